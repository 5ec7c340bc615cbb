//! Reuses the memory of transactions that have ended, per thread.

use crate::overlay::Overlay;
use hashbrown::HashMap;
use std::cell::RefCell;
use std::sync::Arc;
use weft_lock::{LockMode, ResourceId};

/// Transactions whose memory a thread keeps.
const KEPT_MAX: usize = 8;
/// Up to this number of locks a transaction's memory is kept.
const HELD_KEPT_MAX: usize = 256;

/// What a transaction begins with: both are empty.
#[derive(Default)]
pub(super) struct TxnMemory {
    pub overlay: Arc<Overlay>,
    pub held: HashMap<ResourceId, LockMode>,
}

thread_local! {
    static SPARE: RefCell<Vec<TxnMemory>> = RefCell::default();
}

impl TxnMemory {
    /// Memory left by an earlier transaction, or new memory.
    pub fn spare() -> TxnMemory {
        SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
    }
}

/// Keeps the memory of a transaction that ends, unless it is large or a view still reads the overlay.
pub(super) fn keep(overlay: &mut Arc<Overlay>, held: &mut HashMap<ResourceId, LockMode>) {
    let is_spare = Arc::get_mut(overlay).is_some_and(Overlay::clear);
    if !is_spare || held.capacity() > HELD_KEPT_MAX {
        return;
    }
    let mut held = std::mem::take(held);
    held.clear();
    let overlay = Arc::clone(overlay);
    // Not while the thread ends.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < KEPT_MAX {
            spare.push(TxnMemory { overlay, held });
        }
    });
}
