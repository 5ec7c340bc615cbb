//! Conflict policies: what happens to a request that cannot be granted at once.
//!
//! A policy sees the conflict and the table and decides; it changes nothing. The table carries the decision
//! out. Policies are stateless values that live as long as the program (`&NoWait` is such a value), since a
//! request that has waited goes on later under the policy it came with.
//!
//! Age is the order of transaction ids: the smaller id is the older transaction. A transaction that is run
//! again after a [`WaitDie`] or [`WoundWait`] abort should keep its id, or it may starve.

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
    /// Who asks.
    pub txn: TxnId,
    /// For what.
    pub resource: ResourceId,
    /// What it would hold.
    pub mode: LockMode,
    /// Everybody it would have to wait for: holders of conflicting modes and the waiters before it. Not
    /// empty; may name one transaction twice.
    pub blockers: &'a [TxnId],
    /// Waiters that will have to wait for the requester if it waits, since a conversion stands before them.
    pub overtaken: &'a [TxnId],
}

/// What is to happen to the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It waits.
    Wait,
    /// It is not made; its transaction keeps what it holds.
    Refuse,
    /// It is not made, because it would close this circle of waiting transactions (the requester first, each
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

    /// Whether waiting is decided by age alone, so that a waiter must be judged again when a conversion
    /// overtakes it (it then waits for somebody it was not compared with).
    fn is_by_age(&self) -> bool {
        false
    }
}
