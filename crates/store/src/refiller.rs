//! The reverse of eviction: regions whose rows left memory, or were not read when the database was opened,
//! come back while there is memory for them.
//!
//! No batch is open while a region gets its slots, which takes some 100 microseconds; its rows are read
//! before that (`memory/refill.rs`).

use std::sync::Arc;

use weft_types::SqlError;

use crate::Store;
use crate::memory::Scratch;
use crate::region_walk::RegionWalk;

/// Goes round all regions. Not beside an [`Evictor`](crate::Evictor): one thread does both.
#[derive(Debug, Default)]
pub struct Refiller {
    walk: RegionWalk,
    /// The table whose rows are read in order, by its core's number.
    table: Option<u64>,
    scratch: Scratch,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refilled {
    /// A region that had been frozen came back.
    Region,
    /// There was nothing to do in a region, or a row could not be read: whoever needs it is told.
    Nothing,
    /// The next region would take more memory than there is.
    Full,
    /// There was no further region: the next step begins again.
    Round,
}

impl Refiller {
    /// Brings the rows of one region back if they take at most so much memory. Waits for the open batch, and
    /// the next one waits. `None` if a finished batch stays unpublished.
    pub fn step(&mut self, store: &Arc<Store>, room_bytes: u64) -> Option<Refilled> {
        let snapshot = store.snapshot();
        let Some((core, region)) = self.walk.next(&snapshot) else {
            *self = Refiller::default();
            return Some(Refilled::Round);
        };
        if !core.slots.is_frozen(region) {
            return Some(Refilled::Nothing);
        }
        if core.slots.filled_bytes(region) > room_bytes {
            return Some(Refilled::Full);
        }
        if self.table != Some(core.id) {
            (self.table, self.scratch) = (Some(core.id), Scratch::default());
        }
        let filled: Result<_, SqlError> = core.slots.read_region(region, &mut self.scratch);
        let Ok(Some(filled)) = filled else {
            return Some(Refilled::Nothing);
        };
        let mut filled = Some(filled);
        let done = store.at_rest(|now| {
            // The table may have been dropped or rewritten meanwhile.
            let is_same = now.tables().any(|(_, newest)| Arc::ptr_eq(newest, core));
            if let Some(filled) = filled.take_if(|_| is_same) {
                let left = core.slots.refill(filled);
                let epoch = store.published().next_epoch();
                store.garbage().lock().leave_behind(epoch, left);
            }
        });
        if let Some(filled) = filled {
            core.slots.discard(filled);
            return done.map(|()| Refilled::Nothing);
        }
        Some(Refilled::Region)
    }
}
