//! Snapshots: registered read positions, and up to which write there is something to see.
//!
//! # Invariants
//!
//! 1. Everything in a table of the newest version is visible: its sequence number is at most the visible one.
//!    So a compaction that asks for the registered snapshots knows every reader that needs an older entry: a
//!    snapshot taken later sees the newer one.
//! 2. The directories stay locked as long as there is a snapshot: nobody else removes what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_base::DirLock;
use weft_ops::key::SeqNo;

use crate::sync::Mutex;

/// The registered readers, and what is visible.
pub(crate) struct Readers {
    /// The last write that readers see.
    visible: AtomicU64,
    /// The number of snapshots of each sequence number.
    held: Mutex<BTreeMap<SeqNo, usize>>,
    /// The engine's directory and those of its levels.
    _locks: Vec<Box<dyn DirLock>>,
}

impl Readers {
    pub(crate) fn new(visible: SeqNo, locks: Vec<Box<dyn DirLock>>) -> Self {
        Self {
            visible: AtomicU64::new(visible.0),
            held: Mutex::default(),
            _locks: locks,
        }
    }

    /// The last write that readers see.
    pub(crate) fn visible(&self) -> SeqNo {
        SeqNo(self.visible.load(Ordering::Acquire))
    }

    /// Makes all writes up to this one visible.
    pub(crate) fn show(&self, last: SeqNo) {
        self.visible.fetch_max(last.0, Ordering::AcqRel);
    }

    /// Sequence numbers that are held, ascending.
    pub(crate) fn held(&self) -> Vec<SeqNo> {
        self.held.lock().keys().copied().collect()
    }

    /// A snapshot of the current state.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Snapshot {
        let mut held = self.held.lock();
        let seqno = self.visible();
        *held.entry(seqno).or_insert(0) += 1;
        drop(held);
        Snapshot {
            readers: Arc::clone(self),
            seqno,
        }
    }
}

/// A moment of the engine: later writes are not seen through it, and what it sees is kept for it.
pub struct Snapshot {
    readers: Arc<Readers>,
    seqno: SeqNo,
}

impl Snapshot {
    /// Whether it sees all that others see now.
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.readers.visible() == self.seqno
    }

    /// The last write that it sees.
    #[must_use]
    pub const fn seqno(&self) -> SeqNo {
        self.seqno
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = self.readers.held.lock();
        if let Some(count) = held.get_mut(&self.seqno) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.seqno);
            }
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.seqno)
    }
}
