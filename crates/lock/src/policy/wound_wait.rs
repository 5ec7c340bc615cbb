//! An older transaction wounds the younger ones that it conflicts with (they must abort) and waits until they
//! are gone; a younger one waits for an older one (Rosenkrantz, Stearns and Lewis 1978). Only younger ones
//! wait for older ones, except for the wounded, which end; so there is no cycle.

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct WoundWait;

impl ConflictPolicy for WoundWait {
    fn name(&self) -> &'static str {
        "wound_wait"
    }

    fn decide(&self, conflict: &Conflict<'_>, _: &LockTable) -> Decision {
        let mut younger: Vec<_> = conflict
            .blockers
            .iter()
            .copied()
            .filter(|b| *b > conflict.txn)
            .collect();
        younger.sort_unstable();
        younger.dedup();
        if younger.is_empty() {
            Decision::Wait
        } else {
            Decision::Wound(younger)
        }
    }

    fn is_by_age(&self) -> bool {
        true
    }
}
