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
//! A version in its slot's home frees that home, and the slot if it waits for that; or the row comes home, if
//! it lies in a block alone (`memory/slots.rs`), and the block is unlinked in turn.
//!
//! Batch N's rollbacks happen while the boundary is N-1 and are stamped so.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};
use weft_base::{BatchId, TableId};

use crate::memory::{Pin, Retired, RowMemory, SLOT_OVERHEAD, SlotId};
use crate::table::{Schema, TableCore, TableData};

/// A row's place, to be looked up again later: by then the table may be gone.
#[derive(Clone, Copy)]
pub(crate) struct RowPlace {
    table: TableId,
    /// The core that the slot belongs to.
    core: u64,
    slot: SlotId,
}

impl RowPlace {
    pub(crate) fn new(core: &TableCore, slot: SlotId) -> Self {
        RowPlace {
            table: core.table,
            core: core.id,
            slot,
        }
    }

    /// The table, if its rows are still the same ones.
    fn table(self, schema: &Schema) -> Option<&TableData> {
        let table = schema.tables.get(&self.table)?;
        (table.core.id == self.core).then_some(table)
    }

    fn fetch(self, schema: &Schema, bytes: usize) {
        let slots = self.table(schema).map(|table| &table.core.slots);
        if let Some(slot) = slots.and_then(|slots| slots.slot(self.slot)) {
            prefetch_bytes(slot.address(), bytes.min(slot.size_bytes()));
        }
    }

    /// Where the row's newest version lies when it is not in its slot, which was fetched before.
    fn newest_elsewhere(self, schema: &Schema) -> Option<*const u8> {
        self.table(schema)?.core.slots.slot(self.slot)?.newest_elsewhere()
    }
}

enum Unlinked {
    /// A version in a block.
    Block(Retired),
    /// A version in the home of a slot, and its bytes. The slot's memory may be gone by the time.
    Home(RowPlace, u32),
    Schema(Arc<Schema>),
}

/// How many chains or versions ahead their memory is asked for.
const STEPS_AHEAD: usize = 6;
/// What of a version or slot is asked for: its head, and the cells of most keys.
const AHEAD_BYTES: usize = 2 * LINE_BYTES;

/// Everything that waits for readers to leave.
pub(crate) struct Garbage {
    /// Per batch, oldest first.
    superseded: VecDeque<(BatchId, Vec<RowPlace>)>,
    /// With the boundary of the unlinking; stamps never fall.
    unlinked: VecDeque<(BatchId, Unlinked)>,
    superseded_len: usize,
    memory: Arc<RowMemory>,
}

impl Garbage {
    pub(crate) fn new(memory: &Arc<RowMemory>) -> Self {
        Garbage {
            superseded: VecDeque::new(),
            unlinked: VecDeque::new(),
            superseded_len: 0,
            memory: Arc::clone(memory),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.superseded.is_empty() && self.unlinked.is_empty()
    }

    /// Chains waiting for stage 1, and things waiting for stage 2.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.superseded_len, self.unlinked.len())
    }

    /// Notes what batch `batch` superseded.
    pub(crate) fn superseded(&mut self, batch: BatchId, chains: Vec<RowPlace>) {
        if !chains.is_empty() {
            self.superseded_len += chains.len();
            self.superseded.push_back((batch, chains));
        }
    }

    /// Notes a version that was unlinked while `boundary` was published.
    pub(crate) fn retire(&mut self, boundary: BatchId, place: RowPlace, version: Retired) {
        let unlinked = if version.is_home() {
            Unlinked::Home(place, version.view().size_bytes() as u32)
        } else {
            Unlinked::Block(version)
        };
        self.unlinked.push_back((boundary, unlinked));
    }

    /// Notes a schema that was replaced while `boundary` was published.
    pub(crate) fn retire_schema(&mut self, boundary: BatchId, schema: Arc<Schema>) {
        self.unlinked.push_back((boundary, Unlinked::Schema(schema)));
    }

    /// Fetches what stage 2 will touch a few steps later: heads of slots and blocks; then a row that comes
    /// home, and the home, which is written as a whole.
    fn fetch_unlinked(&self, schema: &Schema) {
        match self.unlinked.get(2 * STEPS_AHEAD) {
            Some((_, Unlinked::Home(place, _))) => place.fetch(schema, AHEAD_BYTES),
            Some((_, Unlinked::Block(version))) => prefetch(version.address()),
            _ => {}
        }
        if let Some((_, Unlinked::Home(place, bytes))) = self.unlinked.get(STEPS_AHEAD)
            && let Some(elsewhere) = place.newest_elsewhere(schema)
        {
            prefetch_bytes(elsewhere, *bytes as usize);
            place.fetch(schema, SLOT_OVERHEAD + *bytes as usize);
        }
    }

    /// Does up to `budget` steps of both stages; returns the steps done. `oldest` is the lowest registered
    /// boundary, at most the published one, read before the call. No batch is open.
    pub(crate) fn collect(
        &mut self,
        schema: &Schema,
        boundary: BatchId,
        oldest: BatchId,
        budget: usize,
    ) -> usize {
        let mut steps = 0;
        // Counted here and told at the end: a locked addition waits until a row that was copied has arrived.
        let (mut freed_bytes, mut copied_bytes) = (0u64, 0u64);
        while steps < budget && self.unlinked.front().is_some_and(|(stamp, _)| *stamp < oldest) {
            self.fetch_unlinked(schema);
            match self.unlinked.pop_front() {
                Some((_, Unlinked::Block(version))) => {
                    // SAFETY: unlinked while the boundary was below `oldest`; every reader registered then
                    // has left.
                    freed_bytes += unsafe { version.free(&self.memory) } as u64;
                }
                Some((_, Unlinked::Home(place, bytes))) => {
                    freed_bytes += u64::from(bytes);
                    let moved = place
                        .table(schema)
                        .and_then(|table| table.core.slots.home_left(place.slot));
                    if let Some(left) = moved {
                        // The copy is linked in its stead; the block's bytes count until it is freed.
                        copied_bytes += left.view().size_bytes() as u64;
                        self.retire(boundary, place, left);
                    }
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
            fetch_chains(schema, chains);
            if let Some(table) = chain.table(schema) {
                shorten(table, chain.slot, oldest, |version| {
                    self.retire(boundary, chain, version)
                });
            }
        }
        self.memory.add(copied_bytes);
        self.memory.subtract(freed_bytes);
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
            if let Unlinked::Block(version) = unlinked {
                // SAFETY: no reader, no batch.
                unsafe { version.free(&self.memory) };
            }
        }
    }
}

/// Fetches what stage 1 will touch of the chains that come next: slots, then versions elsewhere. `chains` is
/// taken from its end.
fn fetch_chains(schema: &Schema, chains: &[RowPlace]) {
    let ahead = |steps: usize| chains.len().checked_sub(steps).and_then(|at| chains.get(at));
    if let Some(place) = ahead(2 * STEPS_AHEAD) {
        place.fetch(schema, AHEAD_BYTES);
    }
    if let Some(elsewhere) = ahead(STEPS_AHEAD).and_then(|place| place.newest_elsewhere(schema)) {
        prefetch_bytes(elsewhere, AHEAD_BYTES);
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
    let cut: SmallVec<[Retired; 4]> = floor.cut().collect();
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
    } else if let Some(left) = core.slots.come_home(slot) {
        core.slots.memory().add(left.view().size_bytes() as u64);
        retire(left);
    }
}
