//! Wait unless that closes a circle. The default.
//!
//! A transaction waits for at most one resource, so the waits-for graph has the waiting transactions as inner
//! nodes; a search from the requester's blockers that comes back to the requester has found the circle. A circle
//! can only close by somebody beginning to wait, and this runs each time somebody does; so circles of standing
//! waiters never exist, and the requester is always a sensible victim: it alone closes the circle.

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

/// Depth-first search over an explicit stack; each transaction is visited once. Remembers from where it came, to
/// tell the circle.
fn circle(conflict: &Conflict<'_>, table: &LockTable) -> Option<Vec<TxnId>> {
    let mut came_from: HashMap<TxnId, TxnId> = HashMap::new();
    let mut stack: Vec<TxnId> = Vec::new();
    let mut visit = |from: TxnId, to: &[TxnId], stack: &mut Vec<TxnId>| -> Option<Vec<TxnId>> {
        for txn in to.iter().rev() {
            if *txn == conflict.txn {
                return Some(path(conflict.txn, from, &came_from));
            }
            if !came_from.contains_key(txn) {
                came_from.insert(*txn, from);
                stack.push(*txn);
            }
        }
        None
    };
    visit(conflict.txn, conflict.blockers, &mut stack);
    while let Some(txn) = stack.pop() {
        if !table.is_waiting(txn) {
            continue;
        }
        if let Some(cycle) = visit(txn, &table.blockers_of(txn), &mut stack) {
            return Some(cycle);
        }
    }
    None
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
