//! The multi-granularity lock table and its conflict policies.
//!
//! Sessions (`BEGIN ... COMMIT` over several messages) hold locks here until they end; the one-shot programs
//! of a batch only ask whether a session's lock conflicts ([`LockTable::blocked_by`]). The table belongs to
//! the sequencer: it is a plain data structure without a latch, a thread or a clock of its own, and its
//! behaviour is a function of the calls made to it.
//!
//! - [`LockMode`]: NL, IS, IX, S, SIX, X; compatibility and least upper bound (Barthels, table 2.1).
//! - [`ResourceId`]: what is locked: a table, a key range, a row, a unique value, the catalog.
//! - [`LockTable`]: granted counters and first-in-first-out queues per resource, and the transaction table
//!   that makes "release all" one call (Barthels 5.2.2).
//! - [`ConflictPolicy`]: what happens to a request that cannot be granted at once; one file per policy. The
//!   product uses [`DeadlockDetection`] and [`NoWait`]; the other policies are meant for the lock servers of
//!   a cluster, where a wait-for graph is not at hand.

mod entry;
pub mod mode;
pub mod policy;
pub mod resource;
pub mod table;

pub use mode::{LockMode, compatible, join};
pub use policy::{
    BoundedWait, Conflict, ConflictPolicy, DeadlockDetection, Decision, NoWait, WaitDie, WoundWait,
};
pub use resource::{LockRequest, ResourceId, ResourceKind};
pub use table::{AbortReason, Acquire, LockTable, Mark, Victim};
