//! The older may wait for the younger; the younger dies rather than wait for the older (Rosenkrantz, Stearns
//! and Lewis 1978). Waiting goes from old to young only, so there is no circle. Nobody who holds locks is
//! disturbed.

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct WaitDie;

impl ConflictPolicy for WaitDie {
    fn name(&self) -> &'static str {
        "wait_die"
    }

    fn decide(&self, conflict: &Conflict<'_>, _: &LockTable) -> Decision {
        if conflict.blockers.iter().all(|blocker| conflict.txn < *blocker) {
            Decision::Wait
        } else {
            Decision::Refuse
        }
    }

    fn is_by_age(&self) -> bool {
        true
    }
}
