//! An older transaction may wait for a younger one; a younger one aborts rather than wait for an older one
//! (Rosenkrantz, Stearns and Lewis 1978). Only older ones wait for younger ones, so there is no cycle. No
//! holder of locks is aborted.

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module's head.
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
