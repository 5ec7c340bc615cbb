//! Conflict policies: what happens to a request that cannot be granted at once.
//!
//! A policy gets the conflict and the table and decides; it changes nothing. The table carries out the
//! decision. Policies are stateless values with static lifetime (such as `&NoWait`), since a request that has
//! waited continues later under its original policy.
//!
//! Age is the order of transaction ids: the smaller id is the older transaction. A transaction that is
//! retried after a [`WaitDie`] or [`WoundWait`] abort should keep its id, or it may starve.

mod bounded_wait;
mod deadlock_detection;
mod no_wait;
mod wait_die;
mod wound_wait;

pub use bounded_wait::BoundedWait;
pub use deadlock_detection::DeadlockDetection;
pub use no_wait::NoWait;
pub use wait_die::WaitDie;
pub use wound_wait::WoundWait;

use weft_base::TxnId;

use crate::{LockMode, LockTable, ResourceId};

/// A request that cannot be granted at once.
#[derive(Debug)]
pub struct Conflict<'a> {
    /// The requester.
    pub txn: TxnId,
    /// Its ally, which does not run while it waits ([`LockTable::acquire_with_ally`]).
    pub ally: Option<TxnId>,
    /// The resource.
    pub resource: ResourceId,
    /// The mode that it would hold.
    pub mode: LockMode,
    /// Every transaction that it would have to wait for: holders of conflicting modes and the waiters before
    /// it. Not empty; may name a transaction twice.
    pub blockers: &'a [TxnId],
    /// Waiters that would have to wait for the requester if it waits, because it is a conversion and
    /// overtakes them.
    pub overtaken: &'a [TxnId],
}

/// What happens to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It waits.
    Wait,
    /// It is refused; its transaction keeps its locks.
    Refuse,
    /// It is refused because it would close this cycle of waiting transactions (the requester first; each
    /// waits for the next, the last for the first).
    Deadlock(Vec<TxnId>),
    /// It waits, and these transactions are to be aborted.
    Wound(Vec<TxnId>),
}

/// Decides about requests that cannot be granted at once.
pub trait ConflictPolicy: Sync {
    /// The policy's name, as in the literature: "wait_die".
    fn name(&self) -> &'static str;

    /// Decides about one conflict.
    fn decide(&self, conflict: &Conflict<'_>, table: &LockTable) -> Decision;

    /// Whether waiting depends on age alone, so that a waiter must be judged again when a conversion
    /// overtakes it (it then waits for a transaction that it was not compared with).
    fn is_by_age(&self) -> bool {
        false
    }
}
