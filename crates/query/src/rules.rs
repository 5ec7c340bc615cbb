//! Rules over operators: which ones run, and our own.
//!
//! DataFusion's list is longer. Left out are rules for what our plans never have (exact statistics,
//! DataFusion's own aggregates), and those for sources that sort or count by themselves: every rule walks
//! every plan, and most plans are small.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::limit_pushdown::LimitPushdown;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::projection::{ProjectionExec, remove_unnecessary_projections};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::build_sides::choose_build_sides;
use crate::first_rows::read_in_order;
use crate::in_order::gather_in_order;

/// From plan to plan.
type Apply = fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;

/// A rule of our own.
#[derive(Debug)]
struct Rule {
    name: &'static str,
    apply: Apply,
}

impl PhysicalOptimizerRule for Rule {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        (self.apply)(plan)
    }
}

/// The function as a rule of this name.
fn rule(name: &'static str, apply: Apply) -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
    Arc::new(Rule { name, apply })
}

/// The rules, in order, that make a plan.
#[must_use]
pub fn rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    vec![
        Arc::new(OutputRequirements::new_add_mode()),
        // Scans with predicates expect fewer rows, which decides about the sides of joins.
        Arc::new(FilterPushdown::new()),
        rule("BuildSides", choose_build_sides),
        rule("FirstRows", read_in_order),
        Arc::new(EnsureRequirements::new()),
        Arc::new(CombinePartialFinalAggregate::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
        Arc::new(LimitPushdown::new()),
        rule("WholeSorts", sort_whole),
        rule("PlainProjections", push_plain_projections),
    ]
}

/// The rules, in order, for a plan that is about to run, with one thread or with all. They tie operators to
/// each other that will run together.
#[must_use]
pub fn last_rules(serial: bool) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
        vec![Arc::new(FilterPushdown::new_post_optimization())];
    if cfg!(debug_assertions) {
        rules.push(Arc::new(SanityCheckPlan::new()));
    }
    if serial {
        rules.push(rule("GatherInOrder", gather_in_order));
    }
    rules
}

/// Partitions that are sorted by fewer keys than they are merged by are sorted whole.
///
/// A key may be constant in every partition and yet another in each, as in `SELECT 2 UNION ALL SELECT 1`.
/// Sorts for the first rows tell each other what they need no more, by the keys that they have: they would
/// drop rows that come first by the key that they lack.
fn sort_whole(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() else {
            return Ok(Transformed::no(plan));
        };
        match whole(merge.input(), merge.expr().len())? {
            Some(input) => Ok(Transformed::yes(with_input(plan, input)?)),
            None => Ok(Transformed::no(plan)),
        }
    })
    .data()
}

/// Projections that only choose columns go down, towards the tables, or away.
///
/// DataFusion's rule takes those along that compute: below a filter they compute for rows that the filter
/// keeps from them, `y / z` where `WHERE x > 0` has left out the zeros.
fn push_plain_projections(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_down(|plan| match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) if is_plain(projection) || projection.input().is::<ProjectionExec>() => {
            remove_unnecessary_projections(plan)
        }
        _ => Ok(Transformed::no(plan)),
    });
    plan.data()
}

fn is_plain(projection: &ProjectionExec) -> bool {
    projection.expr().iter().all(|item| item.expr.is::<Column>())
}

/// The plan over another input.
fn with_input(plan: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(vec![input], options)
}

/// The plan with a whole sort for its topmost sort, if that has a limit and fewer keys than `keys`.
fn whole(plan: &Arc<dyn ExecutionPlan>, keys: usize) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut above = Vec::new();
    let mut plan = Arc::clone(plan);
    while let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let input = Arc::clone(projection.input());
        above.push(plan);
        plan = input;
    }
    let Some(sort) = plan.downcast_ref::<SortExec>() else {
        return Ok(None);
    };
    if sort.fetch().is_none() || sort.expr().len() >= keys {
        return Ok(None);
    }
    let sorted = SortExec::new(sort.expr().clone(), Arc::clone(sort.input()))
        .with_preserve_partitioning(sort.preserve_partitioning());
    let mut whole: Arc<dyn ExecutionPlan> = Arc::new(sorted);
    for projection in above.into_iter().rev() {
        whole = with_input(projection, whole)?;
    }
    Ok(Some(whole))
}
