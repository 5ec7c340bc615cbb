//! Garbage collection in two stages.
//!
//! 1. **Unlink.** A row written by batch N keeps older versions for readers below N. Once no reader below N
//!    is registered they are cut off the chain; index entries that only they carried go; a tombstone at the
//!    head frees the whole slot.
//! 2. **Free.** Whatever was unlinked while the boundary was b, by stage 1, by a rollback, or by publishing
//!    another schema, may still be held by a reader that found it just before. It waits in a queue stamped
//!    b and is freed when every registered reader's boundary, and the boundary itself, is above b: by then
//!    all those readers have left.
//!
//! Batch N's rollbacks happen while the boundary is N-1 and are stamped so.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_base::{BatchId, TableId};

use crate::memory::{Pin, Retired, SlotId};
use crate::table::{MemoryCounter, Schema, TableCore, TableData};

/// A chain that can be shortened when its batch is old enough.
pub(crate) struct Shortenable {
    pub(crate) table: TableId,
    /// The core that the slot belongs to: only compared, never followed.
    pub(crate) core: *const TableCore,
    pub(crate) slot: SlotId,
}

// SAFETY: `core` is an address to compare with and never dereferenced.
unsafe impl Send for Shortenable {}

enum Unlinked {
    Version(Retired),
    Schema(Arc<Schema>),
}

/// Everything that waits for readers to leave.
#[derive(Default)]
pub(crate) struct Garbage {
    /// Per batch, oldest first.
    superseded: VecDeque<(BatchId, Vec<Shortenable>)>,
    /// With the boundary of the unlinking; stamps never fall.
    unlinked: VecDeque<(BatchId, Unlinked)>,
    superseded_len: usize,
}

impl Garbage {
    pub(crate) fn is_empty(&self) -> bool {
        self.superseded.is_empty() && self.unlinked.is_empty()
    }

    /// Chains waiting for stage 1, and things waiting for stage 2.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.superseded_len, self.unlinked.len())
    }

    /// Notes what batch `batch` superseded.
    pub(crate) fn superseded(&mut self, batch: BatchId, chains: Vec<Shortenable>) {
        if !chains.is_empty() {
            self.superseded_len += chains.len();
            self.superseded.push_back((batch, chains));
        }
    }

    /// Notes a version that was unlinked while `boundary` was published.
    pub(crate) fn retire(&mut self, boundary: BatchId, version: Retired) {
        self.unlinked.push_back((boundary, Unlinked::Version(version)));
    }

    /// Notes a schema that was replaced while `boundary` was published.
    pub(crate) fn retire_schema(&mut self, boundary: BatchId, schema: Arc<Schema>) {
        self.unlinked.push_back((boundary, Unlinked::Schema(schema)));
    }

    /// Does up to `budget` steps of both stages; returns the steps done. `oldest` is the lowest registered
    /// boundary, at most the published one, read before the call. No batch is open.
    pub(crate) fn collect(
        &mut self,
        schema: &Schema,
        boundary: BatchId,
        oldest: BatchId,
        budget: usize,
        memory: &MemoryCounter,
    ) -> usize {
        let mut steps = 0;
        while steps < budget && self.unlinked.front().is_some_and(|(stamp, _)| *stamp < oldest) {
            match self.unlinked.pop_front() {
                Some((_, Unlinked::Version(version))) => {
                    // SAFETY: unlinked while the boundary was below `oldest`; every reader registered then
                    // has left.
                    memory.subtract(unsafe { version.free() } as u64);
                }
                Some((_, Unlinked::Schema(schema))) => drop(schema),
                None => {}
            }
            steps += 1;
        }
        while steps < budget {
            let Some((batch, chains)) = self.superseded.front_mut() else {
                break;
            };
            if *batch > oldest {
                break;
            }
            let Some(chain) = chains.pop() else {
                self.superseded.pop_front();
                continue;
            };
            self.superseded_len -= 1;
            steps += 1;
            if let Some(table) = schema.tables.get(&chain.table)
                && std::ptr::eq(Arc::as_ptr(&table.core), chain.core)
            {
                shorten(table, chain.slot, oldest, |version| {
                    self.unlinked.push_back((boundary, Unlinked::Version(version)))
                });
            }
        }
        if self.superseded.is_empty() && self.unlinked.is_empty() {
            self.superseded.shrink_to(64);
            self.unlinked.shrink_to(1024);
        }
        steps
    }
}

impl Drop for Garbage {
    /// The store goes, so no reader is left: each holds the store.
    fn drop(&mut self) {
        for (_, unlinked) in self.unlinked.drain(..) {
            if let Unlinked::Version(version) = unlinked {
                // SAFETY: no reader, no batch.
                unsafe { version.free() };
            }
        }
    }
}

/// Stage 1 for one slot: everything below the version that `oldest` sees goes.
fn shorten(table: &TableData, slot: SlotId, oldest: BatchId, mut retire: impl FnMut(Retired)) {
    let core = &table.core;
    let Some(place) = core.slots.slot(slot) else {
        return;
    };
    // SAFETY: only the collector frees, and it is this thread.
    let (seen, newest) = unsafe { (Pin::new(oldest.0), Pin::new(Pin::EVERYTHING)) };
    let (Some(floor), Some(head)) = (place.at(seen), place.at(newest)) else {
        return;
    };
    let cut: Vec<Retired> = floor.cut().collect();
    for version in cut {
        table.remove_entries(slot, version.view(), Some(head));
        core.unlinked(version.view().size_bytes());
        retire(version);
    }
    if !head.is_live() && head.batch() <= oldest {
        table.remove_row_id(slot, place.row_id());
        if let Some(tombstone) = place.pop() {
            core.unlinked(tombstone.view().size_bytes());
            retire(tombstone);
        }
        core.slots.release(slot);
    }
}
