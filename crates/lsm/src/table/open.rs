//! Which tables are open: what is kept in memory of them is counted, and bounded.
//!
//! An open table costs memory for its index, filter and range tombstones, and a file handle. The budget is
//! that of what is read ([`crate::LsmOptions::block_cache_bytes`]): open tables come first, up to
//! seven eighths of it, and blocks have what is left. Beyond that a hand passes over the open tables in a
//! circle, as in the block cache, and closes those that were not used since it passed them last. Who reads a
//! table keeps it while he does, closed or not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::read::Opened;

/// A table's place: empty while it is closed.
#[derive(Default)]
pub(crate) struct OpenSlot {
    opened: RwLock<Option<Arc<Opened>>>,
    used: AtomicBool,
}

impl OpenSlot {
    /// The table if it is open; marks it as used.
    pub(super) fn get(&self) -> Option<Arc<Opened>> {
        let opened = self.opened.read().clone()?;
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Some(opened)
    }
}

/// All open tables of an engine.
pub(crate) struct OpenTables {
    bytes_max: usize,
    bytes: AtomicUsize,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    slots: Vec<(Weak<OpenSlot>, usize)>,
    hand: usize,
}

impl OpenTables {
    /// Tables that take at most `bytes_max` bytes; one may always be open.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            ring: Mutex::default(),
        }
    }

    /// Bytes that open tables take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Puts a table that was opened into its place, and closes others if they are too many.
    pub(super) fn admit(&self, slot: &Arc<OpenSlot>, opened: &Arc<Opened>) {
        let mut ring = self.ring.lock();
        *slot.opened.write() = Some(Arc::clone(opened));
        slot.used.store(true, Ordering::Relaxed);
        ring.slots.push((Arc::downgrade(slot), opened.memory_bytes()));
        let mut bytes = self.bytes() + opened.memory_bytes();
        // Twice round: the first pass may find all of them used.
        let mut steps = 2 * ring.slots.len();
        while bytes > self.bytes_max && ring.slots.len() > 1 && steps > 0 {
            steps -= 1;
            ring.hand = if ring.hand + 1 < ring.slots.len() {
                ring.hand + 1
            } else {
                0
            };
            let at = ring.hand;
            let Some((weak, memory)) = ring.slots.get(at) else {
                break;
            };
            let (held, memory) = (weak.upgrade(), *memory);
            if let Some(held) = held {
                if Arc::ptr_eq(&held, slot) || held.used.swap(false, Ordering::Relaxed) {
                    continue;
                }
                *held.opened.write() = None;
            }
            ring.slots.swap_remove(at);
            bytes -= memory;
        }
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// A table is gone.
    pub(super) fn forget(&self, slot: &Arc<OpenSlot>) {
        let mut ring = self.ring.lock();
        let gone = Arc::downgrade(slot);
        if let Some(at) = ring.slots.iter().position(|(slot, _)| slot.ptr_eq(&gone)) {
            let (_, memory) = ring.slots.swap_remove(at);
            self.bytes.fetch_sub(memory, Ordering::Relaxed);
        }
    }
}
