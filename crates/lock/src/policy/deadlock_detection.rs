//! Wait unless that closes a cycle in the waits-for graph. The default.
//!
//! A transaction waits for at most one resource, so the waits-for graph has the waiting transactions as inner
//! nodes; a search from the requester's blockers that returns to the requester has found a cycle. A cycle can
//! only close when a transaction begins to wait, and this runs each time; so there are never cycles among
//! existing waiters (if a conversion overtakes waiters, they count as waiting for it), and the requester is
//! always a sensible victim: it alone closes the cycle. A transaction and its ally are one node of the graph.

use hashbrown::HashMap;
use weft_base::TxnId;

use super::{Conflict, ConflictPolicy, Decision};
use crate::LockTable;

/// See the module's head.
#[derive(Clone, Copy, Debug)]
pub struct DeadlockDetection;

impl ConflictPolicy for DeadlockDetection {
    fn name(&self) -> &'static str {
        "deadlock_detection"
    }

    fn decide(&self, conflict: &Conflict<'_>, table: &LockTable) -> Decision {
        match cycle(conflict, table) {
            Some(cycle) => Decision::Deadlock(cycle),
            None => Decision::Wait,
        }
    }
}

/// Depth-first search over an explicit stack; each transaction is visited once. Remembers its predecessors,
/// to report the cycle.
fn cycle(conflict: &Conflict<'_>, table: &LockTable) -> Option<Vec<TxnId>> {
    let mut came_from: HashMap<TxnId, TxnId> = HashMap::new();
    let mut stack: Vec<TxnId> = Vec::new();
    let mut from = conflict.txn;
    let mut next = conflict.blockers.to_vec();
    loop {
        for txn in next.iter().rev() {
            if *txn == conflict.txn || Some(*txn) == conflict.ally {
                return Some(path(conflict.txn, from, &came_from));
            }
            let txn = table.waiting_for_both(*txn);
            came_from.entry(txn).or_insert_with(|| {
                stack.push(txn);
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

/// The path from `start` to `end`, in order.
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
