//! Open tables: the memory for their metadata is counted and bounded.
//!
//! An open table costs memory for its index, filter and range tombstones, and a file handle. The budget is
//! that for reads ([`crate::LsmOptions::block_cache_bytes`]): open tables may use up to seven eighths of it,
//! and blocks get the rest. Beyond that a CLOCK hand goes round the open tables, as in the block cache, and
//! closes those not used since its last round. A reader keeps its table while it reads, closed or not.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use super::read::Opened;

/// The slot of a table: empty while the table is closed.
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
    /// A budget of `bytes_max` bytes; one table may always be open.
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

    /// Puts an opened table into its slot, and closes others if there are too many.
    pub(super) fn admit(&self, slot: &Arc<OpenSlot>, opened: &Arc<Opened>) {
        let mut ring = self.ring.lock();
        *slot.opened.write() = Some(Arc::clone(opened));
        slot.used.store(true, Ordering::Relaxed);
        ring.slots.push((Arc::downgrade(slot), opened.memory_bytes()));
        let mut bytes = self.bytes() + opened.memory_bytes();
        // Twice round: in the first round all of them may be in use.
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
