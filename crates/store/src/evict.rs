//! Eviction: rows leave memory, region by region, when they are in a checkpoint and nobody uses them.
//!
//! An [`Evictor`] goes round all regions of all tables like the hand of a clock. A region that it comes to
//! for the first time is frozen: all its rows become cold that may (`memory/freeze.rs`). Of a frozen one it
//! takes the rows that came back and that nobody has used since it was here last.
//!
//! No batch is open while it freezes a region, which takes some 100 microseconds.

use std::sync::Arc;

use weft_base::TableId;

use crate::Store;

/// How far it has come: the next region.
#[derive(Debug, Default)]
pub struct Evictor {
    table: TableId,
    region: u64,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Rows that left memory. What they took is free once the readers of this moment have left.
    pub rows: usize,
    /// The region was the last one of all: the next step begins again.
    pub is_round: bool,
}

impl Evictor {
    /// Takes the rows of one region out of memory that may leave. Waits for the open batch, and the next one
    /// waits. `takes_filling`: also those of a region that new rows are still put into, which are stored one
    /// by one from then on. `None` if a finished batch stays unpublished.
    pub fn step(&mut self, store: &Arc<Store>, takes_filling: bool) -> Option<Evicted> {
        let mut evicted = Evicted::default();
        let snapshot = store.snapshot();
        let next = snapshot
            .tables()
            .filter(|(id, _)| *id >= self.table)
            .min_by_key(|(id, _)| *id);
        let Some((id, core)) = next else {
            *self = Evictor::default();
            evicted.is_round = true;
            return Some(evicted);
        };
        if id != self.table {
            (self.table, self.region) = (id, 0);
        }
        if self.region >= core.slots.region_count() {
            (self.table, self.region) = (TableId(id.0.saturating_add(1)), 0);
            return Some(evicted);
        }
        let is_spared = !takes_filling && core.slots.is_being_filled(self.region);
        if is_spared || !core.slots.has_resident(self.region) {
            self.region += 1;
            return Some(evicted);
        }
        store.at_rest(|now| {
            // The table may have been dropped or rewritten meanwhile.
            let is_same = now.tables().any(|(_, newest)| Arc::ptr_eq(newest, core));
            let left = is_same.then(|| core.slots.freeze(self.region, store.saved()));
            if let Some(left) = left.flatten() {
                evicted.rows = left.rows;
                let epoch = store.published().next_epoch();
                store.garbage().lock().leave_behind(epoch, left);
            }
        })?;
        self.region += 1;
        Some(evicted)
    }
}
