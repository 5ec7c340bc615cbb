//! The reverse of eviction: regions whose rows left memory, or were not read when the database was opened,
//! come back while there is memory for them.
//!
//! No batch is open while a region gets its slots, which takes some 100 microseconds; its rows are read
//! before that (`memory/refill.rs`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

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
    /// Regions with a row that could not be read, by core and number, and until when they are left alone.
    unreadable: HashMap<(u64, u64), Instant>,
}

/// How long a region with a row that could not be read is left alone.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(60);

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refilled {
    /// A region that had been frozen came back.
    Region,
    /// The region is not frozen, or has few rows.
    Nothing,
    /// A row of it could not be read. Whoever needs it is told.
    Unreadable,
    /// The region would take more memory than there is.
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
            self.rest();
            return Some(Refilled::Round);
        };
        let at = (core.id, region);
        let is_left_alone = self
            .unreadable
            .get(&at)
            .is_some_and(|until| Instant::now() < *until);
        if is_left_alone || !core.slots.is_worth_refilling(region) {
            return Some(Refilled::Nothing);
        }
        if self.table != Some(core.id) {
            (self.table, self.scratch) = (Some(core.id), Scratch::default());
        }
        let filled = match core.slots.read_region(region, room_bytes, &mut self.scratch) {
            Ok(Some(filled)) => filled,
            Ok(None) => return Some(Refilled::Full),
            Err(_) => {
                self.unreadable.retain(|_, until| Instant::now() < *until);
                self.unreadable.insert(at, Instant::now() + UNREADABLE_PAUSE);
                return Some(Refilled::Unreadable);
            }
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

    /// Gives back what is kept to read rows in order.
    pub fn rest(&mut self) {
        (self.table, self.scratch) = (None, Scratch::default());
    }
}
