//! Which joins are run by number, and how.
//!
//! If nobody chooses, a join whose build side is expected to be so large that DataFusion would distribute
//! both sides by hash runs unpartitioned instead. Measured with rows of an int8 key and one int8 column on
//! either side (`cargo bench -p weft-query --bench join`, two threads on a machine that others used as well;
//! seconds of all processors together, so that waiting does not count; medians of 3):
//!
//! ```text
//!   build x probe rows             distributed  collected  unpartitioned  radix  sort-merge
//!   128 Ki x 4 Mi, dense keys             0.08       0.03           0.05
//!     1 Mi x 4 Mi, sparse keys            0.44       0.48           0.13   0.23
//!     4 Mi x 8 Mi, dense keys             0.62       0.48           0.43   0.69        0.82
//!     4 Mi x 8 Mi, sparse keys            1.52       1.55           0.52   0.84
//!     1 Mi x 4 Mi, dense, 4 columns       0.41       0.30           0.29   0.57        0.64
//! ```
//!
//! *Collected* is DataFusion's other form, one table built by one thread. For dense keys that is an array,
//! and no hash table is faster while it is in the cache: it stays with the smaller build sides. Radix and
//! sort-merge never won for rows with columns, because they gather both sides from random places; they run
//! only where a session asks for them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use super::spec::{is_by_number, is_pairs};
use super::{KeyJoin, KeyJoinExec};
use crate::build_sides::TOGETHER_ROWS_MAX;
use crate::settings::JoinChoice;

/// Expected rows of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Of the build side.
    pub build: u64,
    /// Of the probe side.
    pub probe: u64,
}

/// The same join by number, if it can be and is expected to be faster so.
pub(crate) fn chosen(
    join: &HashJoinExec,
    choice: JoinChoice,
    expected: Expected,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !is_by_number(join) {
        return Ok(None);
    }
    let how = match choice {
        JoinChoice::Hash => return Ok(None),
        JoinChoice::Auto if expected.build <= TOGETHER_ROWS_MAX => return Ok(None),
        JoinChoice::Radix if is_pairs(join)? => KeyJoin::Radix,
        JoinChoice::SortMerge if is_pairs(join)? => KeyJoin::SortMerge,
        _ => KeyJoin::Unpartitioned,
    };
    Ok(Some(Arc::new(KeyJoinExec::new(join, how, expected)?)))
}
