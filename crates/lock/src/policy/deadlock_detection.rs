//! Wait unless that closes a circle. The default.
//!
//! A transaction waits for at most one resource, so the waits-for graph has the waiting transactions as inner
//! nodes; a search from the requester's blockers that comes back to the requester has found the circle. A
//! circle can only close by somebody beginning to wait, and this runs each time somebody does; so circles of
//! standing waiters never exist (a conversion that is to stand before others counts as what those wait for),
//! and the requester is always a sensible victim: it alone closes the circle.

use hashbrown::HashMap;
use weft_base::TxnId;

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct DeadlockDetection;

impl ConflictPolicy for DeadlockDetection {
    fn name(&self) -> &'static str {
        "deadlock_detection"
    }

    fn decide(&self, conflict: &Conflict<'_>, table: &LockTable) -> Decision {
        match circle(conflict, table) {
            Some(cycle) => Decision::Deadlock(cycle),
            None => Decision::Wait,
        }
    }
}

/// Depth-first search over an explicit stack; each transaction is visited once. Remembers from where it came,
/// to tell the circle.
fn circle(conflict: &Conflict<'_>, table: &LockTable) -> Option<Vec<TxnId>> {
    let mut came_from: HashMap<TxnId, TxnId> = HashMap::new();
    let mut stack: Vec<TxnId> = Vec::new();
    let mut from = conflict.txn;
    let mut next = conflict.blockers.to_vec();
    loop {
        for txn in next.iter().rev() {
            if *txn == conflict.txn {
                return Some(path(conflict.txn, from, &came_from));
            }
            came_from.entry(*txn).or_insert_with(|| {
                stack.push(*txn);
                from
            });
        }
        from = stack.pop()?;
        if conflict.overtaken.contains(&from) {
            return Some(path(conflict.txn, from, &came_from));
        }
        next = table.blockers_of(from);
    }
}

/// The way from `start` to `end`, in order.
fn path(start: TxnId, end: TxnId, came_from: &HashMap<TxnId, TxnId>) -> Vec<TxnId> {
    let mut path = vec![end];
    let mut at = end;
    while at != start {
        at = came_from.get(&at).copied().unwrap_or(start);
        path.push(at);
    }
    path.reverse();
    path
}
