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
use weft_base::memory::{prefetch, prefetch_bytes};
use weft_base::{BatchId, TableId};

use crate::memory::{Pin, Retired, RowMemory, SLOT_OVERHEAD, Slot, SlotId};
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

    /// The row, if the table's rows are still the same ones.
    fn row(self, schema: &Schema) -> Option<Row<'_>> {
        let table: &TableData = schema.tables.get(&self.table)?;
        if table.core.id != self.core {
            return None;
        }
        let place = table.core.slots.slot(self.slot)?;
        Some(Row {
            table,
            slot: self.slot,
            place,
        })
    }
}

/// A row whose place was looked up.
#[derive(Clone, Copy)]
struct Row<'s> {
    table: &'s TableData,
    slot: SlotId,
    place: Slot<'s>,
}

impl Row<'_> {
    fn name(self) -> RowPlace {
        RowPlace::new(&self.table.core, self.slot)
    }
}

enum Unlinked {
    /// A version in a block.
    Block(Retired),
    /// A version in the home of a slot, and its bytes. The slot's memory may be gone by the time.
    Home(RowPlace, u32),
    Schema(Arc<Schema>),
}

/// How many chains or versions are looked up together: the memory of all is asked for before the first is
/// looked at.
const BLOCK: usize = 16;

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
        while steps < budget {
            let block = self.unlinked.iter().take(BLOCK.min(budget - steps));
            let count = block.take_while(|(stamp, _)| *stamp < oldest).count();
            if count == 0 {
                break;
            }
            for row in self.fetched(schema, count) {
                match self.unlinked.pop_front() {
                    Some((_, Unlinked::Block(version))) => {
                        // SAFETY: unlinked while the boundary was below `oldest`; every reader registered
                        // then has left.
                        freed_bytes += unsafe { version.free(&self.memory) } as u64;
                    }
                    Some((_, Unlinked::Home(place, bytes))) => {
                        freed_bytes += u64::from(bytes);
                        let moved = row.and_then(|row| row.table.core.slots.home_left(row.slot, row.place));
                        if let Some(left) = moved {
                            // The copy is linked in its stead; the block's bytes count until it is freed.
                            copied_bytes += left.view().size_bytes() as u64;
                            self.retire(boundary, place, left);
                        }
                    }
                    Some((_, Unlinked::Schema(schema))) => drop(schema),
                    None => {}
                }
            }
            steps += count;
        }
        while let Some((batch, chains)) = self.superseded.front_mut()
            && steps < budget
            && *batch <= oldest
        {
            let rest = chains.len().saturating_sub(BLOCK.min(budget - steps));
            let rows = fetched_chains(schema, chains.drain(rest..));
            if chains.is_empty() {
                self.superseded.pop_front();
            }
            self.superseded_len -= rows.len();
            steps += rows.len();
            for row in rows.into_iter().flatten() {
                shorten(row, oldest, |version| self.retire(boundary, row.name(), version));
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

    /// The rows of the first things that wait for stage 2, so many of them, and nothing for what is no row's.
    /// Fetches what will be touched: heads of slots and blocks; then a row that comes home, and the home,
    /// which is written as a whole.
    fn fetched<'s>(&self, schema: &'s Schema, count: usize) -> Rows<'s> {
        let rows: Rows<'s> = self
            .unlinked
            .iter()
            .take(count)
            .map(|(_, unlinked)| match unlinked {
                Unlinked::Home(place, _) => place.row(schema).inspect(|row| row.place.prefetch_head()),
                Unlinked::Block(version) => {
                    prefetch(version.address());
                    None
                }
                Unlinked::Schema(_) => None,
            })
            .collect();
        for (row, (_, unlinked)) in rows.iter().zip(&self.unlinked) {
            if let (Some(row), Unlinked::Home(_, bytes)) = (row, unlinked)
                && let Some(elsewhere) = row.place.newest_elsewhere()
            {
                let home_bytes = SLOT_OVERHEAD + *bytes as usize;
                prefetch_bytes(elsewhere, *bytes as usize);
                prefetch_bytes(row.place.address(), home_bytes.min(row.place.size_bytes()));
            }
        }
        rows
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

/// Rows that are looked up together; `None` for one whose table is gone.
type Rows<'s> = SmallVec<[Option<Row<'s>>; BLOCK]>;

/// The rows of these chains. Fetches what stage 1 will touch of them: slots, then versions elsewhere.
fn fetched_chains<'s>(schema: &'s Schema, chains: impl Iterator<Item = RowPlace>) -> Rows<'s> {
    let rows: Rows<'s> = chains
        .map(|place| place.row(schema).inspect(|row| row.place.prefetch_head()))
        .collect();
    for row in rows.iter().flatten() {
        if let Some(elsewhere) = row.place.newest_elsewhere() {
            prefetch(elsewhere);
        }
    }
    rows
}

/// Stage 1 for one slot: everything below the version that `oldest` sees goes.
fn shorten(row: Row<'_>, oldest: BatchId, mut retire: impl FnMut(Retired)) {
    let Row { table, slot, place } = row;
    let core = &table.core;
    // SAFETY: only the collector frees, and it is this thread.
    let (seen, newest) = unsafe { (Pin::new(oldest.0), Pin::new(Pin::EVERYTHING)) };
    let (Some(floor), Some(head)) = (place.at(seen), place.at(newest)) else {
        return;
    };
    // A version whose keys the next newer one kept has no entries of its own: that one has them, or they went
    // with it.
    let mut are_keys_kept = floor.keeps_keys();
    for version in floor.cut() {
        let view = version.view();
        if !are_keys_kept {
            table.remove_entries(slot, view, Some(head));
        }
        are_keys_kept = view.keeps_keys();
        core.unlinked(view.size_bytes());
        retire(version);
    }
    if !head.is_live() && head.batch() <= oldest {
        table.remove_row_id(slot, place.row_id());
        if let Some(tombstone) = place.pop() {
            core.unlinked(tombstone.view().size_bytes());
            retire(tombstone);
        }
        core.slots.release(slot);
    } else if let Some(left) = place.come_home() {
        core.slots.memory().add(left.view().size_bytes() as u64);
        retire(left);
    }
}
