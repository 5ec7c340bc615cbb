//! Chooses the build side of each hash join, and how many threads build it.
//!
//! The sides of inner joins follow from the join order ([`crate::order`]), which uses more information than
//! operators have. All other joins, which come from subqueries and outer joins, build the side that is
//! expected to have fewer rows. DataFusion's rule would use the operators' row estimates for both.

use std::sync::Arc;

use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};

use crate::estimate::rows_expected;
use crate::join::{self, Expected};
use crate::settings::JoinChoice;

/// A build side of at most this many rows is built by one thread; a larger one is partitioned among all.
pub(crate) const TOGETHER_ROWS_MAX: u64 = 128 * 1024;

/// Chooses which side of a hash join is built, and by how many threads.
pub(crate) fn choose_build_sides(
    plan: Arc<dyn ExecutionPlan>,
    choice: JoinChoice,
) -> Result<Arc<dyn ExecutionPlan>> {
    with_build_sides(plan, choice).map(|(plan, _)| plan)
}

/// The plan with the build sides of its joins chosen, and its estimated rows.
fn with_build_sides(
    plan: Arc<dyn ExecutionPlan>,
    choice: JoinChoice,
) -> Result<(Arc<dyn ExecutionPlan>, u64)> {
    let (mut inputs, mut rows, mut changed) = (Vec::new(), Vec::new(), false);
    for child in plan.children() {
        let (input, expected) = with_build_sides(Arc::clone(child), choice)?;
        changed |= !Arc::ptr_eq(&input, child);
        inputs.push(input);
        rows.push(expected);
    }
    let plan = match changed {
        true => {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            plan.replace_children(inputs, options)?
        }
        false => plan,
    };
    let given = rows_expected(&plan, &rows);
    let [left, right] = rows[..] else {
        return Ok((plan, given));
    };
    Ok((with_build_side(plan, left, right, choice)?, given))
}

fn with_build_side(
    plan: Arc<dyn ExecutionPlan>,
    left: u64,
    right: u64,
    choice: JoinChoice,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let free = *join.join_type() != JoinType::Inner && join.join_type().supports_swap();
        return if free && left > right {
            join.swap_inputs()
        } else {
            Ok(plan)
        };
    }
    let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
        return Ok(plan);
    };
    let free = *join.join_type() != JoinType::Inner && join.join_type().supports_swap() && !join.null_aware;
    let swapped = free && left > right;
    let built = if swapped { right } else { left };
    let mode = match join.partition_mode() {
        PartitionMode::Auto if built > TOGETHER_ROWS_MAX => PartitionMode::Partitioned,
        PartitionMode::Auto => PartitionMode::CollectLeft,
        mode => *mode,
    };
    let plan = match swapped {
        true => join.swap_inputs(mode)?,
        false => Arc::new(join.builder().with_partition_mode(mode).build()?),
    };
    let expected = match swapped {
        true => Expected {
            build: right,
            probe: left,
        },
        false => Expected {
            build: left,
            probe: right,
        },
    };
    by_number(plan, choice, expected)
}

/// The plan with its join run by number where that is chosen. Swapped inputs may have a projection above.
fn by_number(
    plan: Arc<dyn ExecutionPlan>,
    choice: JoinChoice,
    expected: Expected,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return Ok(join::chosen(join, choice, expected)?.unwrap_or(plan));
    }
    match plan.children()[..] {
        [input] if input.is::<HashJoinExec>() => {
            let input = by_number(Arc::clone(input), choice, expected)?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            plan.replace_children(vec![input], options)
        }
        _ => Ok(plan),
    }
}
