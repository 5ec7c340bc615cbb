//! The top of a plan: the result's columns by position.

use datafusion::logical_expr::LogicalPlan;
use weft_binder::relation::Output;
use weft_types::SqlError;

use super::{column, projected};

/// The columns of the result, in order. A column may be there twice.
///
/// # Errors
/// If the plan lacks one.
pub fn final_projection(plan: LogicalPlan, output: &[Output]) -> Result<LogicalPlan, SqlError> {
    let columns = output.iter().enumerate();
    let columns = columns.map(|(at, output)| column(output.column).alias(format!("o{at}")));
    projected(plan, columns.collect())
}
