//! What a join is to do, taken from DataFusion's operator for it.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result, internal_err};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter, build_join_schema};

use super::key::{is_hashed, is_key};
use super::side::{Columns, Wanted};

/// One join of two plans.
pub(super) struct Spec {
    pub(super) left: Arc<dyn ExecutionPlan>,
    pub(super) right: Arc<dyn ExecutionPlan>,
    pub(super) join_type: JoinType,
    /// What is kept of the build side, on the left.
    pub(super) build: Wanted,
    pub(super) probe_key: PhysicalExprRef,
    pub(super) filter: Option<JoinFilter>,
    /// Where the columns of the result come from.
    outputs: Vec<ColumnIndex>,
    pub(super) schema: SchemaRef,
    /// Told to scans of the probe side.
    pub(super) told: Option<Arc<DynamicFilterPhysicalExpr>>,
}

/// Whether a join can be run by number: over one key that is an integer inside, or a UUID.
pub(crate) fn is_by_number(join: &HashJoinExec) -> bool {
    let [(left, right)] = join.on() else {
        return false;
    };
    let types = (
        left.data_type(&join.left().schema()),
        right.data_type(&join.right().schema()),
    );
    let (Ok(left), Ok(right)) = types else {
        return false;
    };
    left == right
        && is_key(&left)
        && join.null_equality() == NullEquality::NullEqualsNothing
        && !join.null_aware
        && join.fetch().is_none()
        && !matches!(join.join_type(), JoinType::LeftMark | JoinType::RightMark)
}

/// Whether the result of a join that [`is_by_number`] is just the pairs of rows with equal numbers.
pub(crate) fn is_pairs(join: &HashJoinExec) -> Result<bool> {
    let is_inner = *join.join_type() == JoinType::Inner;
    let key = join
        .on()
        .first()
        .map(|(key, _)| key.data_type(&join.left().schema()))
        .transpose()?;
    Ok(is_inner && key.is_some_and(|key| !is_hashed(&key)))
}

impl Spec {
    /// The same join as `join`, which [`is_by_number`].
    pub(super) fn of(join: &HashJoinExec) -> Result<Spec> {
        let [(build_key, probe_key)] = join.on() else {
            return internal_err!("a join by number has one key");
        };
        let (left, right) = (Arc::clone(join.left()), Arc::clone(join.right()));
        let (_, all) = build_join_schema(&left.schema(), &right.schema(), join.join_type());
        let outputs = match &join.projection {
            Some(chosen) => chosen.iter().filter_map(|at| all.get(*at).cloned()).collect(),
            None => all,
        };
        let filter = join.filter().cloned();
        let build = wanted(
            JoinSide::Left,
            build_key,
            &left.schema(),
            &outputs,
            filter.as_ref(),
        );
        Ok(Spec {
            join_type: *join.join_type(),
            build,
            probe_key: Arc::clone(probe_key),
            filter,
            outputs,
            schema: join.schema(),
            told: told(join),
            left,
            right,
        })
    }

    /// What is kept of the probe side, for an algorithm that takes it whole.
    pub(super) fn probe(&self) -> Wanted {
        let schema = self.right.schema();
        let filter = self.filter.as_ref();
        wanted(JoinSide::Right, &self.probe_key, &schema, &self.outputs, filter)
    }

    /// The type of the keys.
    pub(super) fn key_type(&self) -> Result<DataType> {
        self.build.key.data_type(&self.left.schema())
    }

    /// Whether rows of the build side are told at the end.
    pub(super) fn marks_build(&self) -> bool {
        matches!(
            self.join_type,
            JoinType::Left | JoinType::Full | JoinType::LeftSemi | JoinType::LeftAnti
        )
    }

    /// Whether rows of the probe side are told that have no partner.
    pub(super) fn keeps_probe(&self) -> bool {
        matches!(
            self.join_type,
            JoinType::Right | JoinType::Full | JoinType::RightAnti
        )
    }

    /// Rows of the result: `rows` of both sides, by [`Half::gather`].
    pub(super) fn assemble(&self, (left, right): (Half<'_>, Half<'_>), rows: usize) -> Result<RecordBatch> {
        let columns = columns_of(&self.outputs, left, right)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }

    /// Which pairs satisfy the condition beyond equal keys. `None`: all.
    pub(super) fn accepted(
        &self,
        (left, right): (Half<'_>, Half<'_>),
        rows: usize,
    ) -> Result<Option<BooleanArray>> {
        let Some(filter) = &self.filter else {
            return Ok(None);
        };
        let columns = columns_of(filter.column_indices(), left, right)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let pairs = RecordBatch::try_new_with_options(Arc::clone(filter.schema()), columns, &options)?;
        let accepted = filter.expression().evaluate(&pairs)?.into_array(rows)?;
        match accepted.as_any().downcast_ref::<BooleanArray>() {
            Some(accepted) => Ok(Some(accepted.clone())),
            None => internal_err!("the condition of a join is no condition"),
        }
    }
}

/// One side of the rows of a result.
#[derive(Clone, Copy)]
pub(super) enum Half<'a> {
    /// Rows of a side in memory.
    Kept(&'a Wanted, &'a Columns, &'a UInt32Array),
    /// Rows of a batch.
    Batch(&'a RecordBatch, &'a UInt32Array),
    /// NULLs, so many, of a side with this schema.
    Nulls(&'a SchemaRef, usize),
}

impl Half<'_> {
    fn gather(self, column: usize) -> Result<ArrayRef> {
        match self {
            Half::Kept(wanted, columns, rows) => columns.gather(wanted.place(column)?, rows),
            Half::Batch(batch, rows) => match batch.columns().get(column) {
                // Every row in its place: nothing is to be copied.
                Some(array) if is_all(rows, array.len()) => Ok(Arc::clone(array)),
                Some(array) => Ok(take(array, rows, None)?),
                None => internal_err!("a probe side has no column {column}"),
            },
            Half::Nulls(schema, rows) => match schema.fields().get(column) {
                Some(field) => Ok(datafusion::arrow::array::new_null_array(field.data_type(), rows)),
                None => internal_err!("a side has no column {column}"),
            },
        }
    }
}

/// Whether the rows are those of a whole batch, in order.
fn is_all(rows: &UInt32Array, of: usize) -> bool {
    rows.len() == of && rows.null_count() == 0 && rows.values().iter().zip(0..).all(|(row, at)| *row == at)
}

fn columns_of(indices: &[ColumnIndex], left: Half<'_>, right: Half<'_>) -> Result<Vec<ArrayRef>> {
    let column = |index: &ColumnIndex| match index.side {
        JoinSide::Left => left.gather(index.index),
        JoinSide::Right => right.gather(index.index),
        JoinSide::None => internal_err!("a join by number marks nothing"),
    };
    indices.iter().map(column).collect()
}

/// The filter that a join tells scans of its probe side, if one was pushed down.
fn told(join: &HashJoinExec) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    let produced = join.dynamic_expressions_produced().into_iter();
    produced.filter_map(|expr| Arc::downcast(expr).ok()).next()
}

/// What is kept of one side: its key, and the columns of the result and of the condition.
fn wanted(
    side: JoinSide,
    key: &PhysicalExprRef,
    schema: &SchemaRef,
    outputs: &[ColumnIndex],
    filter: Option<&JoinFilter>,
) -> Wanted {
    let conditions = filter.map(JoinFilter::column_indices).unwrap_or_default();
    let both = outputs
        .iter()
        .chain(conditions)
        .filter(|index| index.side == side);
    let mut columns: Vec<usize> = both.map(|index| index.index).collect();
    columns.sort_unstable();
    columns.dedup();
    let fields = columns.iter().filter_map(|column| schema.fields().get(*column));
    Wanted {
        key: Arc::clone(key),
        types: fields.map(|field| field.data_type().clone()).collect(),
        columns,
    }
}
