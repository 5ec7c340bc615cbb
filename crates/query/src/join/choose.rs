//! Which joins are run by number.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use super::spec::{is_by_number, is_pairs};
use super::{KeyJoin, KeyJoinExec};
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
        JoinChoice::Auto if expected.build < BUILD_ROWS_MIN => return Ok(None),
        JoinChoice::Radix if is_pairs(join)? => KeyJoin::Radix,
        JoinChoice::SortMerge if is_pairs(join)? => KeyJoin::SortMerge,
        _ => KeyJoin::Unpartitioned,
    };
    Ok(Some(Arc::new(KeyJoinExec::new(join, how, expected)?)))
}

const BUILD_ROWS_MIN: u64 = 128 << 10;
