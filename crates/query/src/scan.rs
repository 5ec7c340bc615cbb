//! A table in DataFusion: a provider that plans scans, and the scan itself.
//!
//! The scan holds no rows and no snapshot. It finds its [`ReadSource`] in the task context when it runs, so
//! that one physical plan serves every snapshot of one catalog version. Partition `p` of `n` reads chunks `p,
//! p + n, ...`, in packed columns where the source has them, which are compared with the predicates before
//! they are decoded; when predicates bind the leading columns of an ordered index, partition 0 reads the
//! index ranges and the others nothing. Predicates are evaluated when the first batch is requested: by then a
//! hash join above has finished its build side and pushed down a filter on the keys that can match, which
//! turns a join by key into an index lookup.

mod offload;
mod reader;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraint, Constraints, Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::expressions::{Column, DynamicFilterTracking};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use parking_lot::Mutex;
use weft_binder::relation::Scan;
use weft_offload::Units;
use weft_store::{IndexDef, TableDef};
use weft_types::interrupt;

use crate::code_aggregate::CodeGroups;
use crate::columns::CellSource;
use crate::errors::external;
use crate::key_range::{self, KeyRanges, ScannedColumn};
use crate::schema::{column_type, field_name};
use crate::source::ReadSource;
use reader::ScanReader;

/// The source that the scans of one execution read, passed in the session configuration's extensions.
///
/// The partitions of a scan must agree on its access path, although dynamic filters of a running join or sort
/// change concurrently, and although a source may decline a range that is too long. The first partition that
/// asks therefore decides for all, once per execution; if it chooses an index, it has read the rows before
/// the others continue.
pub struct SourceExtension {
    source: Arc<dyn ReadSource>,
    target: Option<Arc<dyn ReadSource>>,
    /// Who compares packed codes.
    units: Units,
    decisions: Mutex<HashMap<u64, Arc<Mutex<Option<Access>>>>>,
    /// What partitions of scans that have not begun are to aggregate on codes.
    groups: Mutex<HashMap<ScanPartition, Arc<Mutex<CodeGroups>>>>,
    /// Counts rows that were.
    rows_on_codes: Arc<AtomicU64>,
}

impl SourceExtension {
    /// For one execution over `source`; scans with hidden columns read `target` if it is given.
    pub fn new(
        source: Arc<dyn ReadSource>,
        target: Option<Arc<dyn ReadSource>>,
        units: Units,
        rows_on_codes: Arc<AtomicU64>,
    ) -> Self {
        SourceExtension {
            source,
            target,
            units,
            decisions: Mutex::new(HashMap::new()),
            groups: Mutex::new(HashMap::new()),
            rows_on_codes,
        }
    }

    fn source(&self, hidden: bool) -> &Arc<dyn ReadSource> {
        match &self.target {
            Some(target) if hidden => target,
            _ => &self.source,
        }
    }

    fn decision(&self, scan: u64) -> Arc<Mutex<Option<Access>>> {
        Arc::clone(self.decisions.lock().entry(scan).or_default())
    }
}

/// A scan's id, and the number of a partition.
type ScanPartition = (u64, usize);

/// The access path of a scan in one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Each partition reads its share of the chunks.
    Chunks,
    /// The deciding partition has read the index ranges; the others have nothing to do.
    Index,
}

/// Up to this many ranges are read whatever the table's size.
const RANGES_ALWAYS: usize = 16;

/// Rows that can be scanned in the time that finding one range takes.
const ROWS_PER_RANGE: usize = 8;

/// Rows that can be scanned in the time that reading one through an index takes.
const ROWS_PER_ROW_FOUND: usize = 16;

/// Estimated rows read per row wanted, since filters above may discard some.
const READ_FOR_ONE: usize = 8;

/// At most this many rows are sorted rather than read in the order of an index other than the one that finds
/// them.
const FEW_ROWS: u64 = 1000;

/// Ids of the scans of all plans.
static NEXT_SCAN: AtomicU64 = AtomicU64::new(0);

/// Plans scans of one table for the columns that one relation of a statement reads.
pub struct RelationProvider {
    table: Arc<TableDef>,
    hidden: bool,
    columns: Vec<CellSource>,
    constraints: Constraints,
    schema: SchemaRef,
    chunk_count: usize,
    row_count: usize,
    reads_in_order: bool,
    is_spread: bool,
}

impl RelationProvider {
    /// For the columns of `scan`, followed by the rows' handle and stored bytes if requested.
    pub fn new(scan: &Scan, source: &dyn ReadSource) -> Self {
        let table = Arc::clone(&scan.table);
        let mut columns = Vec::with_capacity(scan.columns.len() + 2);
        let mut fields = Vec::with_capacity(scan.columns.len() + 2);
        for (position, id, ty) in &scan.columns {
            let definition = table.columns.get(*position);
            let nullable = definition.is_none_or(|column| !column.not_null);
            let ty = definition.map_or(*ty, |column| column.ty);
            columns.push(CellSource::Column(*position));
            fields.push(Field::new(field_name(*id), column_type(&ty), nullable));
        }
        if let Some((handle, bytes)) = scan.hidden {
            columns.extend([CellSource::Handle, CellSource::Bytes]);
            fields.push(Field::new(
                field_name(handle),
                DataType::FixedSizeBinary(16),
                false,
            ));
            fields.push(Field::new(field_name(bytes), DataType::Binary, false));
        }
        let constraints = Constraints::new_unverified(key_of(&table, &columns).into_iter().collect());
        RelationProvider {
            hidden: scan.hidden.is_some(),
            constraints,
            schema: Arc::new(Schema::new(fields)),
            chunk_count: source.chunk_count(table.id),
            row_count: source.row_count_estimate(table.id),
            reads_in_order: source.reads_in_order() && !scan.target,
            is_spread: source.is_spread(table.id),
            columns,
            table,
        }
    }

    /// The scanned table.
    #[must_use]
    pub fn table(&self) -> &Arc<TableDef> {
        &self.table
    }
}

/// The primary key, if all its columns are read.
fn key_of(table: &TableDef, columns: &[CellSource]) -> Option<Constraint> {
    let place = |column: &usize| {
        columns
            .iter()
            .position(|read| *read == CellSource::Column(*column))
    };
    let places: Option<Vec<usize>> = table.primary_index()?.columns.iter().map(place).collect();
    places.map(Constraint::PrimaryKey)
}

impl fmt::Debug for RelationProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelationProvider({})", self.table.name)
    }
}

#[async_trait]
impl TableProvider for RelationProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The primary key.
    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&projection)?);
        let partitions = state.config().target_partitions().min(self.chunk_count).max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let columns = projection
            .iter()
            .filter_map(|at| self.columns.get(*at).copied())
            .collect();
        Ok(Arc::new(RelationScan {
            id: NEXT_SCAN.fetch_add(1, Ordering::Relaxed),
            table: Arc::clone(&self.table),
            hidden: self.hidden,
            columns,
            schema,
            predicates: Vec::new(),
            fetch: limit,
            row_count: self.row_count,
            reads_in_order: self.reads_in_order,
            is_spread: self.is_spread,
            in_order: None,
            properties: Arc::new(properties),
        }))
    }
}

/// Reads one table's rows into record batches.
#[derive(Debug, Clone)]
pub struct RelationScan {
    id: u64,
    table: Arc<TableDef>,
    hidden: bool,
    columns: Vec<CellSource>,
    schema: SchemaRef,
    predicates: Vec<Arc<dyn PhysicalExpr>>,
    fetch: Option<usize>,
    row_count: usize,
    reads_in_order: bool,
    /// Rows are on other ranks as well.
    is_spread: bool,
    in_order: Option<InOrder>,
    properties: Arc<PlanProperties>,
}

/// An index whose order the scan returns.
#[derive(Debug, Clone)]
struct InOrder {
    index: Arc<IndexDef>,
    reverse: bool,
    /// The number of rows wanted, counted after the filters above.
    wanted: usize,
}

impl RelationScan {
    /// How many rows are expected to satisfy the predicates. `keys` is the number of values of the columns of
    /// dynamic filters that a join above will know.
    pub(crate) fn expected(&self, keys: Option<u64>) -> u64 {
        let (told, fixed): (Vec<_>, Vec<_>) = self
            .predicates
            .iter()
            .partition(|predicate| DynamicFilterTracking::classify(predicate).contains_dynamic_filter());
        let columns = self.table_columns();
        let told = told.into_iter().flat_map(collect_columns);
        let bound = told.filter_map(|column| columns.get(column.index()).copied().flatten());
        let bound: Vec<usize> = bound.collect();
        let keys = keys.filter(|_| !bound.is_empty());
        let rows =
            key_range::expected_rows(&self.table, &columns, fixed, &bound, keys, self.row_count as u64);
        let wanted = self
            .in_order
            .as_ref()
            .map(|order| order.wanted.saturating_mul(READ_FOR_ONE));
        let most = self.fetch.into_iter().chain(wanted).min();
        most.map_or(rows, |most| rows.min(most as u64))
    }

    /// This scan in index order, if an index has `order`. The caller wants `wanted` rows.
    pub(crate) fn ordered_by(&self, order: &LexOrdering, wanted: usize) -> Option<RelationScan> {
        if !self.reads_in_order || self.fetch.is_some() || self.in_order.is_some() {
            return None;
        }
        let columns = self.table_columns();
        let better = self.ranges(&self.predicates).map(|ranges| ranges.index.id);
        let few = self.expected(None) <= FEW_ROWS;
        let ordered = self
            .table
            .indexes
            .iter()
            .filter(|index| index.method.is_ordered());
        let (index, reverse) = ordered
            .filter(|index| !few || better.is_none_or(|better| better == index.id))
            .find_map(|index| Some((index, self.has_order(index, &columns, order)?)))?;
        let mut scan = self.clone();
        scan.in_order = Some(InOrder {
            index: Arc::clone(index),
            reverse,
            wanted,
        });
        scan.properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new_with_orderings(Arc::clone(&self.schema), [order.clone()]),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        Some(scan)
    }

    /// Whether an index has an order: `Some(false)` forwards, `Some(true)` backwards. The order may omit
    /// columns that have a single value.
    fn has_order(&self, index: &IndexDef, columns: &[ScannedColumn], order: &LexOrdering) -> Option<bool> {
        let (_, fixed) = key_range::ranges_of(&self.table, columns, &self.predicates, index);
        let mut keys = order.iter().peekable();
        let mut reverse = None;
        for at in &index.columns {
            let Some(key) = keys.peek() else { break };
            let column = key.expr.downcast_ref::<Column>().map(Column::index)?;
            if columns.get(column).copied().flatten() != Some(*at) {
                if fixed.contains(at) {
                    continue;
                }
                return None;
            }
            let not_null = self.table.columns.get(*at).is_some_and(|column| column.not_null);
            let nulls_fit = not_null || key.options.nulls_first == key.options.descending;
            if !nulls_fit || *reverse.get_or_insert(key.options.descending) != key.options.descending {
                return None;
            }
            keys.next();
        }
        keys.peek().is_none().then_some(reverse?)
    }

    /// The scanned table.
    pub(crate) fn table(&self) -> &Arc<TableDef> {
        &self.table
    }

    /// Whether it returns all rows of the table, in any order.
    pub(crate) fn reads_all_chunks(&self) -> bool {
        self.fetch.is_none() && self.in_order.is_none()
    }

    /// Has a partition, before it is executed, aggregate into these groups what they take.
    pub(crate) fn fill_groups(
        &self,
        extension: &SourceExtension,
        partition: usize,
        groups: &Arc<Mutex<CodeGroups>>,
    ) {
        let groups = Arc::clone(groups);
        extension.groups.lock().insert((self.id, partition), groups);
    }

    /// The table's columns that are read; none for the hidden ones.
    pub(crate) fn table_columns(&self) -> Vec<ScannedColumn> {
        let columns = self.columns.iter();
        columns.map(|column| column.table_column()).collect()
    }

    /// The index ranges that hold all rows which `predicates` accept, if they bind an index and are few
    /// enough that reading them costs less than reading the table.
    fn ranges(&self, predicates: &[Arc<dyn PhysicalExpr>]) -> Option<KeyRanges> {
        let ranges = key_range::choose(&self.table, &self.table_columns(), predicates)?;
        let few = ranges.ranges.len() <= RANGES_ALWAYS
            || ranges.ranges.len().saturating_mul(ROWS_PER_RANGE) <= self.row_count;
        few.then_some(ranges)
    }

    /// What other ranks do of this scan.
    fn describe_ranks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = key_range::column_ranges(&self.table, &self.table_columns(), &self.predicates);
        let filtered = ranges
            .iter()
            .map(|of| self.column_name(CellSource::Column(of.column)));
        let filtered: Vec<&str> = filtered.collect();
        write!(f, ", all ranks")?;
        if !filtered.is_empty() {
            write!(f, ", each filters by [{}]", filtered.join(", "))?;
        }
        Ok(())
    }

    fn column_name(&self, column: CellSource) -> &str {
        match column {
            CellSource::Column(at) => self
                .table
                .columns
                .get(at)
                .map_or("?", |column| column.name.as_str()),
            CellSource::Handle => "handle",
            CellSource::Bytes => "row",
        }
    }
}

impl DisplayAs for RelationScan {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .columns
            .iter()
            .map(|column| self.column_name(*column))
            .collect();
        write!(
            f,
            "RelationScan: table={}, columns=[{}]",
            self.table.name,
            names.join(", ")
        )?;
        if let Some(fetch) = self.fetch {
            write!(f, ", fetch={fetch}")?;
        }
        if !self.predicates.is_empty() {
            let texts: Vec<String> = self.predicates.iter().map(ToString::to_string).collect();
            write!(f, ", predicates=[{}]", texts.join(" AND "))?;
        }
        if let Some(order) = &self.in_order {
            let direction = if order.reverse { ", downwards" } else { "" };
            return write!(f, ", in order of {}{direction}", order.index.name);
        }
        if self.is_spread {
            self.describe_ranks(f)?;
        }
        if let Some(ranges) = self.ranges(&self.predicates) {
            let count = ranges.ranges.len();
            write!(
                f,
                ", index={} ({count} range{})",
                ranges.index.name,
                if count == 1 { "" } else { "s" }
            )?;
        }
        Ok(())
    }
}

impl ExecutionPlan for RelationScan {
    fn name(&self) -> &str {
        "RelationScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for predicate in &self.predicates {
            if f(predicate)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    /// A scan that runs again in one execution (a recursive query) decides again, and drops the filters of
    /// joins whose build side is about to change.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let mut scan = self.as_ref().clone();
        scan.id = NEXT_SCAN.fetch_add(1, Ordering::Relaxed);
        scan.predicates
            .retain(|predicate| !DynamicFilterTracking::classify(predicate).contains_dynamic_filter());
        Ok(Arc::new(scan))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let extension = context.session_config().get_extension::<SourceExtension>();
        let Some(extension) = extension else {
            return datafusion::common::internal_err!("no source to scan {} in", self.table.name);
        };
        let batch_rows = context.session_config().batch_size();
        let mut reader = ScanReader::new(self, extension, partition, batch_rows);
        let stream = futures::stream::poll_fn(move |context| reader.poll(context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            stream,
        )))
    }

    /// Fails when the statement is cancelled. DataFusion's rules ask every operator for statistics again and
    /// again, and so its leaves: of a deep plan this takes longer than anything else in planning, and nothing
    /// else in it can be stopped.
    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        interrupt::check().map_err(external)?;
        let partitions = self.properties.partitioning.partition_count();
        let rows = usize::try_from(self.expected(None)).unwrap_or(usize::MAX);
        let rows = if args.partition().is_some() {
            rows / partitions
        } else {
            rows
        };
        Ok(Arc::new(
            Statistics::new_unknown(&self.schema).with_num_rows(Precision::Inexact(rows)),
        ))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(RelationScan {
            fetch: limit,
            ..self.clone()
        }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        offered: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let count = offered.parent_filters.len();
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(vec![PushedDown::No; count]);
        if count == 0 || self.fetch.is_some() {
            return Ok(propagation);
        }
        let mut scan = self.clone();
        scan.predicates
            .extend(offered.parent_filters.into_iter().map(|filter| filter.filter));
        Ok(propagation.with_updated_node(Arc::new(scan)))
    }
}
