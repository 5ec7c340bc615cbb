//! The root projection of a plan: the result's columns by position.

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::Output;
use weft_types::SqlError;

use super::{column, projected};

/// Projects the columns of the result, in order. A column may occur twice.
///
/// # Errors
/// If the plan lacks a column.
pub fn final_projection(plan: LogicalPlan, output: &[Output]) -> Result<LogicalPlan, SqlError> {
    let columns = output.iter().enumerate();
    let columns = columns.map(|(at, output)| column(output.column).alias(format!("o{at}")));
    projected(plan, columns.collect())
}
