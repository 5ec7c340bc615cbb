//! Which side of a join is built into a hash table, and how many threads build it.
//!
//! Inner joins have their sides by the order in which relations are joined ([`crate::order`]), which knows
//! more than operators do. All other joins, made of subqueries and outer joins, build the side that is
//! expected to have fewer rows. DataFusion's rule would decide about both by the rows that operators expect.

use std::sync::Arc;

use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, PartitionMode};

use crate::estimate::rows_given;

/// A side of so many rows is built by one thread for all; a larger one is divided among them.
const TOGETHER_ROWS_MAX: u64 = 128 * 1024;

/// Chooses which side of a hash join is built, and by how many threads.
pub(crate) fn choose_build_sides(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    sided(plan).map(|(plan, _)| plan)
}

/// The plan with its joins' sides, and the rows that it is expected to give.
fn sided(plan: Arc<dyn ExecutionPlan>) -> Result<(Arc<dyn ExecutionPlan>, u64)> {
    let (mut inputs, mut rows, mut changed) = (Vec::new(), Vec::new(), false);
    for child in plan.children() {
        let (input, expected) = sided(Arc::clone(child))?;
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
    let given = rows_given(&plan, &rows);
    let [left, right] = rows[..] else {
        return Ok((plan, given));
    };
    Ok((join_sided(plan, left, right)?, given))
}

fn join_sided(plan: Arc<dyn ExecutionPlan>, left: u64, right: u64) -> Result<Arc<dyn ExecutionPlan>> {
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
    if swapped {
        return join.swap_inputs(mode);
    }
    Ok(Arc::new(join.builder().with_partition_mode(mode).build()?))
}
