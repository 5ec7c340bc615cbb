//! From a logical plan to operators, with DataFusion's rules that move operators and none that touches
//! expressions.
//!
//! Deliberately omitted: every rule that depends on DataFusion's semantics of types or functions (coercion,
//! simplification, common subexpressions), and every rule for subqueries, which our plans do not contain.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::eliminate_filter::EliminateFilter;
use datafusion::optimizer::eliminate_limit::EliminateLimit;
use datafusion::optimizer::eliminate_outer_join::EliminateOuterJoin;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::optimize_unions::OptimizeUnions;
use datafusion::optimizer::propagate_empty_relation::PropagateEmptyRelation;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerContext, OptimizerRule};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use weft_types::SqlError;

use crate::errors::{external, sql_error};
use crate::operator::OperatorPlanner;
use crate::slice::StopSignal;

/// Maximum number of passes of the rules over a plan.
const PASSES_MAX: usize = 3;

/// Optimizes a logical plan.
///
/// # Errors
/// 57014 when the statement is stopped.
pub fn optimized(
    plan: LogicalPlan,
    state: &SessionState,
    stop: &Arc<StopSignal>,
) -> Result<LogicalPlan, SqlError> {
    let rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(OptimizeUnions::new()),
        Arc::new(ExtractEquijoinPredicate::new()),
        Arc::new(EliminateFilter::new()),
        Arc::new(EliminateLimit::new()),
        Arc::new(PropagateEmptyRelation::new()),
        Arc::new(EliminateOuterJoin::new()),
        Arc::new(PushDownLimit::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let mut watched: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::with_capacity(rules.len() * 2);
    for rule in rules {
        watched.push(Arc::new(Watch {
            stop: Arc::clone(stop),
        }));
        watched.push(rule);
    }
    let options = Arc::clone(state.config_options());
    let context = OptimizerContext::new_with_config_options(options)
        .with_max_passes(u8::try_from(PASSES_MAX).unwrap_or(1))
        .with_skip_failing_rules(false);
    Optimizer::with_rules(watched)
        .optimize(plan, &context, |_, _| {})
        .map_err(sql_error)
}

/// Makes the operators of a plan.
///
/// # Errors
/// 57014 when the statement is stopped.
pub fn physical(
    plan: &LogicalPlan,
    state: &SessionState,
    handle: &tokio::runtime::Handle,
    stop: &Arc<StopSignal>,
) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
    stop.ensure_running(Instant::now())?;
    let planner = DefaultPhysicalPlanner::with_extension_planners(extension_planners());
    let plan = handle
        .block_on(planner.create_physical_plan(plan, state))
        .map_err(sql_error)?;
    stop.ensure_running(Instant::now())?;
    Ok(plan)
}

fn extension_planners() -> Vec<Arc<dyn ExtensionPlanner + Send + Sync>> {
    vec![Arc::new(OperatorPlanner)]
}

/// A rule that changes nothing and fails when the statement is stopped.
#[derive(Debug)]
struct Watch {
    stop: Arc<StopSignal>,
}

impl OptimizerRule for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        self.stop.ensure_running(Instant::now()).map_err(external)?;
        Ok(Transformed::no(plan))
    }
}
