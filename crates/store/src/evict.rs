//! Eviction: rows leave memory, region by region, when they are in a checkpoint and nobody uses them.
//!
//! An [`Evictor`] goes round all regions of all tables like the hand of a clock. A region that it comes to
//! for the first time is frozen: all its rows become cold that may (`memory/freeze.rs`). Of a frozen one it
//! takes the rows that came back and that nobody has used since it was here last.
//!
//! No batch is open while it freezes a region, which takes some 100 microseconds.

use std::sync::Arc;

use crate::Store;
use crate::region_walk::RegionWalk;

/// How far it has come.
#[derive(Debug, Default)]
pub struct Evictor(RegionWalk);

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Rows that left memory. What they took is free once the readers of this moment have left.
    pub rows: usize,
    /// There was no further region: the next step begins again.
    pub is_round: bool,
}

impl Evictor {
    /// Takes the rows of one region out of memory that may leave. Waits for the open batch, and the next one
    /// waits. `takes_filling`: also those of a region that new rows are still put into, which are stored one
    /// by one from then on. `None` if a finished batch stays unpublished.
    pub fn step(&mut self, store: &Arc<Store>, takes_filling: bool) -> Option<Evicted> {
        let snapshot = store.snapshot();
        let Some((core, region)) = self.0.next(&snapshot) else {
            return Some(Evicted {
                rows: 0,
                is_round: true,
            });
        };
        let mut evicted = Evicted::default();
        let is_spared = !takes_filling && core.slots.is_being_filled(region);
        if is_spared || !core.slots.has_resident(region) {
            return Some(evicted);
        }
        store.at_rest(|now| {
            // The table may have been dropped or rewritten meanwhile.
            let is_same = now.tables().any(|(_, newest)| Arc::ptr_eq(newest, core));
            let left = is_same.then(|| core.slots.freeze(region, store.saved()));
            if let Some(left) = left.flatten() {
                evicted.rows = left.rows;
                let epoch = store.published().next_epoch();
                store.garbage().lock().leave_behind(epoch, left);
            }
        })?;
        Some(evicted)
    }
}
