//! The older wounds the younger in its way (they must abort) and waits until they are gone; the younger waits
//! for the older (Rosenkrantz, Stearns and Lewis 1978). Waiting goes from young to old only, apart from the
//! wounded, who go away; so there is no circle.

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module.
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
