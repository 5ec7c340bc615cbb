//! Physical optimizer rules: the choice of DataFusion's, and our own.
//!
//! DataFusion's list is longer. Omitted are rules for what our plans never contain (exact statistics,
//! DataFusion's own aggregates) and for sources that can sort or count: every rule walks every plan, and most
//! plans are small.

use std::fmt;
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
use crate::code_aggregate::aggregate_on_codes;
use crate::first_rows::read_in_order;
use crate::in_order::gather_in_order;
use crate::settings::JoinChoice;

/// The function of a rule: transforms a plan.
type Apply = Box<dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync>;

/// A rule of our own.
struct Rule {
    name: &'static str,
    apply: Apply,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
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

/// Makes a rule of a function.
fn rule(
    name: &'static str,
    apply: impl Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync + 'static,
) -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
    let apply = Box::new(apply);
    Arc::new(Rule { name, apply })
}

/// The rules that make a plan, in order, for few rows or for many; joins by one integer-like key as `join`
/// says.
#[must_use]
pub fn rules(join: JoinChoice, serial: bool) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![
        Arc::new(OutputRequirements::new_add_mode()),
        // Filters reduce the row estimates of scans, which determine the build sides of joins.
        Arc::new(FilterPushdown::new()),
        rule("BuildSides", move |plan| choose_build_sides(plan, join)),
        rule("FirstRows", read_in_order),
        Arc::new(EnsureRequirements::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
        Arc::new(LimitPushdown::new()),
        rule("WholeSorts", sort_whole),
        rule("PlainProjections", push_plain_projections),
    ];
    if !serial {
        // Needs partial aggregations, also where the final one is next to them.
        rules.push(rule("AggregateOnCodes", aggregate_on_codes));
    }
    rules.push(Arc::new(CombinePartialFinalAggregate::new()));
    rules
}

/// The rules for a plan that is about to run, in order, for one thread or for all. They connect operators
/// that run together.
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

/// Replaces top-k sorts below a merge that has more keys by full sorts.
///
/// A key may be constant in every partition but differ between them, as in `SELECT 2 UNION ALL SELECT 1`, and
/// the sorts then omit it. Top-k sorts share a threshold over the keys that they have, so they would drop
/// rows that come first by the missing key.
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

/// Pushes projections that only choose columns down towards the tables, or removes them.
///
/// DataFusion's rule also pushes computing projections: below a filter they would be computed for rows that
/// the filter removes, such as `y / z` for the zeros that `WHERE z > 0` excludes.
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

/// Replaces the plan's input.
fn with_input(plan: Arc<dyn ExecutionPlan>, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(vec![input], options)
}

/// Replaces the plan's topmost sort by a full sort, if it has a limit and fewer keys than `keys`.
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
