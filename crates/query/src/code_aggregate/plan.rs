//! Which aggregations can be computed on codes, and what they compute.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};
use weft_column::segment::Wanted;
use weft_store::TableDef;
use weft_store::columns::integer_scale;
use weft_types::SqlType;

use crate::functions::sums::is_exact_sum;
use crate::key_range::{ScannedColumn, exact_filters};
use crate::scan::RelationScan;

/// An aggregation of columns of one table.
#[derive(Debug)]
pub(crate) struct CodeAggregation {
    table: Arc<TableDef>,
    /// The table's columns that rows are grouped by.
    pub(super) keys: Vec<usize>,
    /// The table's columns whose values are aggregated, each once.
    pub(super) columns: Vec<Aggregated>,
    /// What is computed, in the order of the states.
    pub(super) functions: Vec<Function>,
    /// Which rows count, over the scan's columns.
    predicates: Vec<Arc<dyn PhysicalExpr>>,
    /// Keys, then the states of each function.
    pub(super) schema: SchemaRef,
}

/// A column whose values are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aggregated {
    pub(super) column: usize,
    pub(super) wanted: Wanted,
    /// The scale of a numeric column.
    pub(super) scale: Option<u16>,
}

/// A function of rows, or of the column at this place among those that are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Rows,
    Count(usize),
    Min(usize),
    Max(usize),
    /// The sum and the number of values: of an average, too.
    Sum(usize),
}

/// What lies between an aggregation and the scan.
struct Below<'a> {
    scan: &'a RelationScan,
    /// The table's columns that the aggregation's input has.
    columns: Vec<ScannedColumn>,
    predicates: Vec<Arc<dyn PhysicalExpr>>,
}

impl CodeAggregation {
    /// `None` if it cannot be computed on codes.
    pub(super) fn of(aggregate: &AggregateExec) -> Option<CodeAggregation> {
        let is_plain = *aggregate.mode() == AggregateMode::Partial
            && aggregate.group_expr().is_single()
            && aggregate.limit_options().is_none()
            && *aggregate.input_order_mode() == InputOrderMode::Linear
            && aggregate.filter_expr().iter().all(Option::is_none);
        if !is_plain {
            return None;
        }
        let below = below(aggregate.input())?;
        let table = below.scan.table();
        // As far as that is known when a statement is planned.
        exact_filters(table, &below.scan.table_columns(), &below.predicates)?;
        let schema = aggregate.schema();
        let mut keys = Vec::new();
        for (key, _) in aggregate.group_expr().expr() {
            let column = table_column(key, &below.columns)?;
            is_value(
                &table.columns.get(column)?.ty,
                key.data_type(&aggregate.input_schema()).ok()?,
            )
            .then(|| keys.push(column))?;
        }
        let mut aggregation = CodeAggregation {
            table: Arc::clone(table),
            keys,
            columns: Vec::new(),
            functions: Vec::new(),
            predicates: below.predicates,
            schema,
        };
        for call in aggregate.aggr_expr() {
            let function = aggregation.function(call, &below.columns)?;
            aggregation.functions.push(function);
        }
        Some(aggregation)
    }

    /// The predicates that rows satisfy, over the scan's columns.
    pub(crate) fn predicates(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.predicates
    }

    fn function(&mut self, call: &AggregateFunctionExpr, columns: &[ScannedColumn]) -> Option<Function> {
        let arguments = call.expressions();
        let [argument] = &arguments[..] else { return None };
        if call.is_distinct() || !call.order_bys().is_empty() {
            return None;
        }
        let function = call.fun().inner();
        let is_count = function.downcast_ref::<Count>().is_some();
        if let Some(literal) = argument.downcast_ref::<Literal>() {
            return (is_count && !literal.value().is_null()).then_some(Function::Rows);
        }
        let column = table_column(argument, columns)?;
        let ty = self.table.columns.get(column)?.ty;
        if is_count {
            return Some(Function::Count(self.place(column, Wanted::Count, &ty)));
        }
        let state = call.state_fields().ok()?;
        let (is_min, is_max) = (
            function.downcast_ref::<Min>().is_some(),
            function.downcast_ref::<Max>().is_some(),
        );
        if is_min || is_max {
            let [state] = &state[..] else { return None };
            // SQL has no minimum of bools.
            let is_known = ty != SqlType::Bool && is_value(&ty, state.data_type().clone());
            let place = is_known.then(|| self.place(column, Wanted::Extremes, &ty))?;
            return Some(if is_min {
                Function::Min(place)
            } else {
                Function::Max(place)
            });
        }
        let is_number =
            matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8) || integer_scale(&ty).is_some();
        let is_sum = is_exact_sum(call.fun()) && is_number;
        is_sum.then(|| Function::Sum(self.place(column, Wanted::All, &ty)))
    }

    /// The place of a column among those that are aggregated.
    fn place(&mut self, column: usize, wanted: Wanted, ty: &SqlType) -> usize {
        if let Some(place) = self.columns.iter().position(|of| of.column == column) {
            if let Some(of) = self.columns.get_mut(place) {
                of.wanted = of.wanted.max(wanted);
            }
            return place;
        }
        self.columns.push(Aggregated {
            column,
            wanted,
            scale: integer_scale(ty),
        });
        self.columns.len() - 1
    }

    fn name(&self, column: usize) -> &str {
        let column = self.table.columns.get(column);
        column.map_or("?", |column| column.name.as_str())
    }
}

impl fmt::Display for CodeAggregation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&str> = self.keys.iter().map(|column| self.name(*column)).collect();
        let column = |place: &usize| self.columns.get(*place).map_or("?", |of| self.name(of.column));
        let functions: Vec<String> = self
            .functions
            .iter()
            .map(|function| match function {
                Function::Rows => "count(*)".to_owned(),
                Function::Count(place) => format!("count({})", column(place)),
                Function::Min(place) => format!("min({})", column(place)),
                Function::Max(place) => format!("max({})", column(place)),
                Function::Sum(place) => format!("sum({})", column(place)),
            })
            .collect();
        write!(f, "by=[{}], of=[{}]", keys.join(", "), functions.join(", "))
    }
}

/// Follows operators that only filter rows or choose columns, down to a scan whose rows may come in any order
/// and number.
fn below(plan: &Arc<dyn ExecutionPlan>) -> Option<Below<'_>> {
    if let Some(scan) = plan.downcast_ref::<RelationScan>() {
        let columns = scan.table_columns();
        let is_whole = scan.reads_all_chunks() && columns.iter().all(Option::is_some);
        return is_whole.then_some(Below {
            scan,
            columns,
            predicates: Vec::new(),
        });
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut below = below(projection.input())?;
        let columns = projection.expr().iter();
        below.columns = columns
            .map(|item| table_column(&item.expr, &below.columns))
            .collect();
        return Some(below);
    }
    let filter = plan
        .downcast_ref::<FilterExec>()
        .filter(|filter| filter.fetch().is_none())?;
    // Its predicate is over the columns of its input, so that has to be the scan.
    let mut below = below(filter.input())?;
    if !filter.input().is::<RelationScan>() || collect_columns(filter.predicate()).is_empty() {
        return None;
    }
    below.predicates.push(Arc::clone(filter.predicate()));
    if let Some(chosen) = filter.projection() {
        let columns = chosen.iter().map(|at| below.columns.get(*at).copied().flatten());
        below.columns = columns.collect();
    }
    Some(below)
}

fn table_column(expr: &Arc<dyn PhysicalExpr>, columns: &[ScannedColumn]) -> ScannedColumn {
    *columns.get(expr.downcast_ref::<Column>()?.index())?
}

/// Whether packed values of the type become values of an array of this Arrow type, and have its order and
/// equality.
fn is_value(ty: &SqlType, arrow: DataType) -> bool {
    match ty {
        SqlType::Bool => arrow == DataType::Boolean,
        SqlType::Int2 => arrow == DataType::Int16,
        SqlType::Int4 | SqlType::Date => arrow == DataType::Int32,
        SqlType::Int8 | SqlType::Timestamp | SqlType::TimestampTz => arrow == DataType::Int64,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => arrow == DataType::Utf8,
        SqlType::Numeric(_) => integer_scale(ty).is_some() && matches!(arrow, DataType::Decimal128(_, _)),
        _ => false,
    }
}
