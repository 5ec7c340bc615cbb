//! Reads the partitions of a serial plan one after the other.
//!
//! DataFusion gathers partitions as their batches arrive, so chance would decide which of several rows that
//! are equal but not identical (numeric `1.5` and `1.50`) is returned, and what a float sum is. A plan for
//! one thread gains nothing by that: its partitions are the branches of a UNION ALL. They are read in order.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::{StreamExt, TryStreamExt, stream};

use crate::operator::{Operator, OperatorExec};

/// Inserts [`InOrder`] wherever partitions are gathered.
pub(crate) fn gather_in_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan
        .transform_up(|plan| match plan.downcast_ref::<CoalescePartitionsExec>() {
            Some(gather) => {
                let ordered = in_order(Arc::clone(gather.input()));
                Ok(Transformed::yes(match gather.fetch() {
                    Some(_) => Arc::new(GlobalLimitExec::new(ordered, 0, gather.fetch())),
                    None => ordered,
                }))
            }
            None => Ok(Transformed::no(plan)),
        })
        .data()?;
    Ok(if plan.output_partitioning().partition_count() > 1 {
        in_order(plan)
    } else {
        plan
    })
}

fn in_order(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let schema = input.schema();
    Arc::new(OperatorExec::new(Arc::new(InOrder), vec![input], schema, None))
}

/// Concatenates the partitions of its input; a partition starts when the previous one has ended.
#[derive(Debug)]
struct InOrder;

impl Operator for InOrder {
    fn name(&self) -> &'static str {
        "InOrderExec"
    }

    fn run(
        &self,
        inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let inputs: Vec<Arc<dyn ExecutionPlan>> = inputs.to_vec();
        let context = Arc::clone(context);
        let partitions = inputs.into_iter().flat_map(|input| {
            let count = input.output_partitioning().partition_count();
            (0..count).map(move |partition| (Arc::clone(&input), partition))
        });
        let rows = stream::iter(partitions)
            .map(move |(input, partition)| input.execute(partition, Arc::clone(&context)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}
