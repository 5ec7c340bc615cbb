//! Wait for a bounded time: the first waiter of a queue that has waited longer than a bound is refused
//! (Barthels 5.2.2, DL-BW; the bound there is 100 ms). A deadlock is resolved without being recognised.
//!
//! The decision depends on time, which the table is told ([`LockTable::set_clock`]); the owner calls
//! [`LockTable::overdue`] now and then and ends the waits that it returns with [`LockTable::cancel_wait`].

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct BoundedWait;

impl ConflictPolicy for BoundedWait {
    fn name(&self) -> &'static str {
        "bounded_wait"
    }

    fn decide(&self, _: &Conflict<'_>, _: &LockTable) -> Decision {
        Decision::Wait
    }
}
