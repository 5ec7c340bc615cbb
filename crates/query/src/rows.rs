//! Rows that a plan holds: VALUES, rows of a system relation, the one row of a SELECT without FROM.
//!
//! DataFusion has operators for them (`PlaceholderRowExec`, `DataSourceExec`). Ours is a leaf at which
//! planning can be stopped: see [`OperatorExec`](crate::operator::OperatorExec)'s statistics.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;
use weft_types::SqlError;

use crate::operator::{Operator, operator_plan};

/// Returns the rows that it holds.
#[derive(Debug)]
struct Rows {
    batch: RecordBatch,
}

/// A plan of rows.
///
/// # Errors
/// If two columns have one name.
pub fn rows_of(batch: RecordBatch) -> std::result::Result<LogicalPlan, SqlError> {
    let schema = batch.schema().as_ref().clone();
    operator_plan(Arc::new(Rows { batch }), Vec::new(), schema, Vec::new())
}

impl Operator for Rows {
    fn name(&self) -> &'static str {
        "Rows"
    }

    fn rows(&self) -> Option<usize> {
        Some(self.batch.num_rows())
    }

    fn run(
        &self,
        _inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let batch = self.batch.clone();
        let batch_rows = context.session_config().batch_size().max(1);
        let starts = (0..batch.num_rows()).step_by(batch_rows);
        let batches =
            starts.map(move |start| Ok(batch.slice(start, batch_rows.min(batch.num_rows() - start))));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(schema),
            stream::iter(batches),
        )))
    }
}
