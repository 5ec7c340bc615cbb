//! Estimates how many rows a plan reads, to decide whether dividing them among threads is worth its cost.
//!
//! Scans estimate from their indexes how many rows satisfy their predicates ([`RelationScan::expected`]). The
//! probe side of a hash join with a small build side is looked up by key if an index has the key. There are
//! no statistics of values, so these are orders of magnitude.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::join::hash_join;
use crate::operator::OperatorExec;
use crate::scan::RelationScan;

/// Assumed rows of one of our operators without an estimate.
const UNKNOWN_ROWS: u64 = 10_000;

/// Pairs of a join without keys that cost as much as reading one row.
const PAIRS_PER_ROW: u64 = 16;

/// Of so many rows a filter is expected to keep one: as much as join orders assume of conditions of which
/// nothing is known.
const FILTERED_OF: u64 = 3;

/// Estimated rows that a plan returns and reads.
#[derive(Clone, Copy)]
struct Expected {
    rows: u64,
    read: u64,
}

/// Rows that a plan is expected to read, including a charge for the pairs of joins without keys.
pub(crate) fn rows_read(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    expected(plan, None).read
}

/// The estimate of a plan; `keys` is the number of keys that a join above passes to the scans below.
fn expected(plan: &Arc<dyn ExecutionPlan>, keys: Option<u64>) -> Expected {
    if let Some(scan) = plan.downcast_ref::<RelationScan>() {
        let rows = scan.expected(keys);
        return Expected { rows, read: rows };
    }
    if let Some(join) = hash_join(plan.as_ref()) {
        let build = expected(join.left(), keys);
        let probe = expected(join.right(), Some(build.rows));
        return Expected {
            rows: build.rows.max(probe.rows),
            read: build.read.saturating_add(probe.read),
        };
    }
    let children = plan.children();
    if children.is_empty() {
        let rows = leaf_rows(plan);
        return Expected { rows, read: rows };
    }
    let mut inputs = children.iter().map(|child| expected(child, keys));
    if plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() {
        let (one, none) = (Expected { rows: 1, read: 0 }, Expected { rows: 1, read: 0 });
        let (left, right) = (inputs.next().unwrap_or(one), inputs.next().unwrap_or(none));
        let rows = left.rows.saturating_mul(right.rows);
        return Expected {
            rows,
            read: left
                .read
                .saturating_add(right.read)
                .saturating_add(rows / PAIRS_PER_ROW),
        };
    }
    let mut sum = inputs.fold(Expected { rows: 0, read: 0 }, |sum, input| Expected {
        rows: sum.rows.saturating_add(input.rows),
        read: sum.read.saturating_add(input.read),
    });
    if let Some(operator) = plan.downcast_ref::<OperatorExec>()
        && operator.multiplies_rows()
    {
        sum.rows = sum.rows.saturating_mul(UNKNOWN_ROWS);
        sum.read = sum.read.saturating_add(sum.rows);
    }
    if let Some(fetch) = plan.fetch() {
        sum.rows = sum.rows.min(fetch as u64);
    }
    sum
}

/// Rows that an operator is expected to return, given the rows of its inputs.
pub(crate) fn rows_expected(plan: &Arc<dyn ExecutionPlan>, inputs: &[u64]) -> u64 {
    if let Some(scan) = plan.downcast_ref::<RelationScan>() {
        return scan.expected(None);
    }
    let rows = match inputs {
        [] => leaf_rows(plan),
        [left, right] if hash_join(plan.as_ref()).is_some() => *left.max(right),
        [left, right] if plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>() => {
            left.saturating_mul(*right)
        }
        [_] if is_one_row(plan) => 1,
        [rows] if plan.is::<FilterExec>() => rows.div_ceil(FILTERED_OF),
        _ => inputs.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows)),
    };
    plan.fetch().map_or(rows, |fetch| rows.min(fetch as u64))
}

/// Whether it aggregates all rows into one.
fn is_one_row(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.group_expr().is_true_no_grouping())
}

fn leaf_rows(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let rows = statistics
        .ok()
        .and_then(|found| found.num_rows.get_value().copied());
    rows.map_or(UNKNOWN_ROWS, |rows| rows as u64)
}
