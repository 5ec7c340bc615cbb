//! Aggregation on codes: an aggregation directly above a scan is computed from packed columns, without
//! decoding them.
//!
//! ```text
//!   AggregateExec (final)                   merges states, whoever computed them
//!     AggregateOnCodes                      hands on the states of its input, then those of the codes
//!       AggregateExec (partial)             of rows that are read in their slots, or were decoded
//!         FilterExec, ProjectionExec
//!           RelationScan                    chunk by chunk: to the codes' groups, or decoded
//! ```
//!
//! The operator gives each partition of the scan its [`CodeGroups`]. The scan offers these every chunk of
//! packed columns, with the rows that its filters left. What they take is aggregated there and then; what
//! they decline takes the ordinary way, as do rows that are not packed or were written since, so a row is
//! aggregated exactly once. Both ways end in states of the same partial aggregation, which the final one
//! above merges: overflow, scales, NULL and empty inputs mean what they mean without codes.
//!
//! # Invariants
//!
//! 1. Groups take rows only if the filters of the scan accept exactly the rows that the predicates below the
//!    aggregation do, less those that operators above need not see (dynamic filters). Whether they do is
//!    decided when the scan begins: it depends on values of parameters.
//! 2. A chunk is taken whole or not at all.
//!
//! Source: DBA 6 (aggregates on value ids, its announced next step); decision 0041.

mod groups;
mod plan;

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use parking_lot::Mutex;

use crate::scan::{RelationScan, SourceExtension};

pub(crate) use groups::CodeGroups;
use plan::CodeAggregation;

/// Puts the operator above each partial aggregation that it suits.
pub(crate) fn aggregate_on_codes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let aggregation = plan.downcast_ref::<AggregateExec>().and_then(CodeAggregation::of);
        Ok(match aggregation {
            Some(aggregation) => Transformed::yes(Arc::new(AggregateOnCodes {
                aggregation: Arc::new(aggregation),
                input: plan,
            })),
            None => Transformed::no(plan),
        })
    })
    .data()
}

/// See above.
#[derive(Debug, Clone)]
struct AggregateOnCodes {
    aggregation: Arc<CodeAggregation>,
    input: Arc<dyn ExecutionPlan>,
}

impl DisplayAs for AggregateOnCodes {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AggregateOnCodes: aggregate on codes, {}", self.aggregation)
    }
}

impl ExecutionPlan for AggregateOnCodes {
    fn name(&self) -> &str {
        "AggregateOnCodes"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(AggregateOnCodes {
                input,
                ..self.as_ref().clone()
            })),
            _ => internal_err!("AggregateOnCodes has one input"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    /// Filters on keys go through, as through the aggregation below.
    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let extension = context.session_config().get_extension::<SourceExtension>();
        let (Some(extension), Some(scan)) = (extension, scan_below(&self.input)) else {
            return internal_err!("nothing to scan for an aggregation on codes");
        };
        let groups = CodeGroups::new(Arc::clone(&self.aggregation), context.memory_pool());
        let groups = Arc::new(Mutex::new(groups));
        scan.fill_groups(&extension, partition, &groups);
        let mut input = self.input.execute(partition, context)?;
        let mut has_ended = false;
        let stream = futures::stream::poll_fn(move |context| {
            if !has_ended {
                match input.poll_next_unpin(context) {
                    Poll::Ready(None) => has_ended = true,
                    other => return other,
                }
            }
            Poll::Ready(groups.lock().take_states().transpose())
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }
}

/// The scan at the end of a chain of operators.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<&RelationScan> {
    match (plan.downcast_ref::<RelationScan>(), &plan.children()[..]) {
        (Some(scan), _) => Some(scan),
        (None, [input]) => scan_below(input),
        _ => None,
    }
}

/// States as a partial aggregation returns them.
type States = RecordBatch;
