//! Snapshots: moments that somebody reads at, and up to where there is something to see.
//!
//! # Invariants
//!
//! 1. What stands in a table of the newest version is visible: its sequence number is at most the visible
//!    one. So who compacts and asks which snapshots are held knows of every reader who needs an older entry:
//!    a snapshot that is taken later sees the newer one.
//! 2. The directories stay locked as long as somebody has a snapshot: nobody else removes what it needs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_base::DirLock;
use weft_ops::key::SeqNo;

use crate::sync::Mutex;

/// Who reads, and what is visible.
pub(crate) struct Readers {
    /// The last write that readers see.
    visible: AtomicU64,
    /// How many hold a snapshot of each sequence number.
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

    /// From now on readers see all writes up to this one.
    pub(crate) fn show(&self, last: SeqNo) {
        self.visible.fetch_max(last.0, Ordering::AcqRel);
    }

    /// Sequence numbers that are held, ascending.
    pub(crate) fn held(&self) -> Vec<SeqNo> {
        self.held.lock().keys().copied().collect()
    }

    /// The present moment.
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

/// A moment of the engine: what was written later is not seen through it, what it sees is kept for it.
pub struct Snapshot {
    readers: Arc<Readers>,
    seqno: SeqNo,
}

impl Snapshot {
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
