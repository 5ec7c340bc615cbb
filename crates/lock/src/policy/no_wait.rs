//! Never wait: a request that cannot be granted at once is refused. Without waiting there is no deadlock.
//! `SELECT ... FOR UPDATE NOWAIT` and the NO_WAIT protocol of the literature.

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct NoWait;

impl ConflictPolicy for NoWait {
    fn name(&self) -> &'static str {
        "no_wait"
    }

    fn decide(&self, _: &Conflict<'_>, _: &LockTable) -> Decision {
        Decision::Refuse
    }
}
