//! Garbage collection in two stages.
//!
//! 1. **Cut.** A row written by batch N keeps older versions for readers below N. Once no reader below N is
//!    registered, they are cut off the chain and freed: no reader looks below the version that it sees, and
//!    every reader that saw one of these has left. Index entries that only they needed are removed; a
//!    tombstone at the head is unlinked and frees the whole slot. A row that was written often under an old
//!    reader has a long chain: no more of it is freed at a time than the collection's budget, and the rest
//!    stays linked.
//! 2. **Free.** Something that readers of the newest boundary may reach can be unlinked while the boundary is
//!    b (a tombstone, the block of a relocated row, what a rollback undid, a schema). A reader that found it
//!    just before may still use it. It waits in a queue stamped b and is freed when the boundary and every
//!    registered reader's boundary are above b: by then all those readers have left.
//!
//! Freeing a version in a slot's inline space frees that space, and the slot if it waits for that; or the row
//! is relocated into it, if its only version is in a block (`memory/slots.rs`), and the block is unlinked in
//! turn.
//!
//! Batch N's rollbacks happen while the boundary is N-1 and are stamped accordingly.

use std::sync::Arc;

use smallvec::SmallVec;
use weft_base::memory::prefetch;
use weft_base::{BatchId, TableId};

use crate::chunk_queue::ChunkQueue;
use crate::memory::{
    LeftBehind, OldPlaces, OldSlots, Pin, Retired, RowMemory, Slot, SlotId, free_left_block,
};
use crate::table::{Schema, TableCore, TableData};

/// A row's place, to be looked up again later: the table may be gone by then.
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

    /// The row, if the table still has the same core.
    fn row(self, schema: &Schema) -> Option<Row<'_>> {
        let table: &TableData = schema.tables.get(&self.table)?;
        if table.core.id != self.core {
            return None;
        }
        let place = table.core.slots.peek(self.slot)?;
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

/// What is unlinked, except blocks.
enum Unlinked {
    /// A version in the inline space of a slot, and its bytes. The slot's memory may be gone by then.
    Inline(RowPlace, u32),
    Schema(Arc<Schema>),
}

/// What rows that left memory, or moved, leave behind.
enum Left {
    Slots(OldSlots),
    Places(OldPlaces),
    Block(Retired),
}

/// The state that a collection goes by. No batch is open.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    /// The published boundary.
    pub(crate) boundary: BatchId,
    /// The lowest registered boundary, at most the published one, read before the call.
    pub(crate) oldest: BatchId,
    /// The lowest epoch since which a reader is registered, at most the present one, likewise.
    pub(crate) oldest_epoch: u64,
}

/// What a batch superseded.
struct Superseded {
    batch: BatchId,
    chains: Vec<RowPlace>,
    /// [`Garbage::superseded_bytes`] before it.
    bytes_before: u64,
}

/// Steps that a batch pays for, whatever it did.
const STEPS_PER_BATCH: usize = 4;
/// Steps that each write pays for. It costs one at most for its chain, its version, its inline space, its
/// tombstone.
const STEPS_PER_WRITE: usize = 4;

/// How many chains or versions are looked up together: the memory of all is prefetched before the first is
/// accessed.
const BLOCK: usize = 16;

/// Everything that waits for readers to leave.
pub(crate) struct Garbage {
    /// Per batch, oldest first.
    superseded: ChunkQueue<Superseded>,
    /// Versions in blocks, with the boundary of the unlinking; stamps never fall.
    blocks: ChunkQueue<(BatchId, Vec<Retired>)>,
    /// Everything else that is unlinked, likewise.
    unlinked: ChunkQueue<(BatchId, Unlinked)>,
    /// Left behind by rows that are elsewhere, with the first epoch whose readers do not find it.
    left: ChunkQueue<(u64, Left)>,
    superseded_len: usize,
    /// Memory of all versions that were superseded since the store was made, and of what is noted here about
    /// each.
    superseded_bytes: u64,
    /// Steps that the newest batch pays for, until they are taken.
    due: usize,
    blocks_len: usize,
    memory: Arc<RowMemory>,
}

impl Garbage {
    pub(crate) fn new(memory: &Arc<RowMemory>) -> Self {
        Garbage {
            superseded: ChunkQueue::new(),
            blocks: ChunkQueue::new(),
            unlinked: ChunkQueue::new(),
            left: ChunkQueue::new(),
            superseded_len: 0,
            superseded_bytes: 0,
            due: 0,
            blocks_len: 0,
            memory: Arc::clone(memory),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.superseded.is_empty()
            && self.blocks.is_empty()
            && self.unlinked.is_empty()
            && self.left.is_empty()
    }

    /// Chains waiting for stage 1, and items waiting for stage 2.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (
            self.superseded_len,
            self.blocks_len + self.unlinked.len() + self.left.len(),
        )
    }

    /// Notes what batch `batch` superseded, and the memory that all this takes.
    pub(crate) fn superseded(&mut self, batch: BatchId, chains: Vec<RowPlace>, bytes: u64) {
        if !chains.is_empty() {
            self.superseded_len += chains.len();
            self.superseded.push_back(Superseded {
                batch,
                chains,
                bytes_before: self.superseded_bytes,
            });
            self.superseded_bytes += bytes;
        }
    }

    /// Notes how many rows a batch inserted, replaced and removed: it pays for more steps than these will
    /// cost.
    pub(crate) fn note_writes(&mut self, writes: usize) {
        self.due = STEPS_PER_BATCH + writes * STEPS_PER_WRITE;
    }

    /// The steps that the newest batch pays for; 0 when called again.
    pub(crate) fn take_due(&mut self) -> usize {
        std::mem::take(&mut self.due)
    }

    /// About how many bytes of memory a reader at `boundary` keeps in use, if it is the oldest.
    pub(crate) fn bytes_kept_at(&self, boundary: BatchId) -> u64 {
        self.superseded
            .first_after(|entry| entry.batch <= boundary)
            .map_or(0, |entry| self.superseded_bytes - entry.bytes_before)
    }

    /// Notes a version that was unlinked while `boundary` was published.
    pub(crate) fn retire(&mut self, boundary: BatchId, place: RowPlace, version: Retired) {
        if version.is_inline() {
            let inline = Unlinked::Inline(place, version.view().size_bytes() as u32);
            self.unlinked.push_back((boundary, inline));
        } else {
            self.retire_blocks(boundary, vec![version]);
        }
    }

    fn retire_blocks(&mut self, boundary: BatchId, versions: Vec<Retired>) {
        if !versions.is_empty() {
            self.blocks_len += versions.len();
            self.blocks.push_back((boundary, versions));
        }
    }

    /// Notes what a freezing or refilling left behind: readers of this epoch do not find it.
    pub(crate) fn leave_behind(&mut self, epoch: u64, left: LeftBehind) {
        let slots = left.slots.into_iter().map(Left::Slots);
        let places = left.places.into_iter().map(Left::Places);
        let blocks = left.blocks.into_iter().map(Left::Block);
        for left in slots.chain(places).chain(blocks) {
            self.left.push_back((epoch, left));
        }
    }

    /// Notes a schema that was replaced while `boundary` was published.
    pub(crate) fn retire_schema(&mut self, boundary: BatchId, schema: Arc<Schema>) {
        self.unlinked.push_back((boundary, Unlinked::Schema(schema)));
    }

    /// Does up to `budget` steps of both stages; returns the steps done. No batch is open.
    pub(crate) fn collect(&mut self, schema: &Schema, moment: Moment, budget: usize) -> usize {
        let Moment { boundary, oldest, .. } = moment;
        // Counted here and added at the end: an atomic addition waits until a copied row has arrived.
        let mut done = Collected::default();
        let mut steps = self.free_blocks(oldest, budget, &mut done);
        steps += self.free_left(moment.oldest_epoch, budget - steps, &mut done);
        while steps < budget
            && let Some((_, unlinked)) = self.unlinked.pop_front_if(|(stamp, _)| *stamp < oldest)
        {
            steps += 1;
            match unlinked {
                Unlinked::Inline(place, row_bytes) => {
                    done.freed_bytes += u64::from(row_bytes);
                    if let Some(row) = place.row(schema) {
                        done.free_inline_space(row);
                    }
                }
                Unlinked::Schema(schema) => drop(schema),
            }
        }
        while let Some(Superseded { batch, chains, .. }) = self.superseded.front_mut()
            && steps < budget
            && *batch <= oldest
        {
            let before = chains.len();
            let rest = before.saturating_sub(BLOCK.min(budget - steps));
            let rows = fetched_chains(schema, chains.drain(rest..));
            self.superseded_len -= before - rest;
            steps += before - rest;
            for row in &rows {
                let freed_max = budget.saturating_sub(steps) + 1;
                let freed = done.shorten(*row, (boundary, oldest), freed_max);
                steps += freed.saturating_sub(1);
                if freed == freed_max {
                    // There may be more.
                    chains.push(RowPlace::new(&row.table.core, row.slot));
                    self.superseded_len += 1;
                }
            }
            if chains.is_empty() {
                self.superseded.pop_front();
            }
        }
        self.memory.add(done.copied_bytes);
        self.memory.subtract(done.freed_bytes);
        self.retire_blocks(boundary, done.blocks);
        if self.is_empty() {
            self.superseded.shrink();
            self.blocks.shrink();
            self.unlinked.shrink();
            self.left.shrink();
        }
        steps
    }

    /// Frees what rows have left behind; returns how many pieces.
    fn free_left(&mut self, oldest: u64, budget: usize, done: &mut Collected) -> usize {
        let mut count = 0;
        while count < budget
            && let Some((_, left)) = self.left.pop_front_if(|(epoch, _)| *epoch <= oldest)
        {
            count += 1;
            match left {
                // SAFETY: unlinked before that epoch began; every reader of an earlier one has left, and
                // later ones, and batches, do not find it.
                Left::Slots(slots) => unsafe { slots.free(&self.memory) },
                // SAFETY: as above.
                Left::Places(places) => unsafe { places.free(&self.memory) },
                Left::Block(version) => {
                    // SAFETY: as above.
                    done.freed_bytes += unsafe { free_left_block(version, &self.memory) } as u64;
                }
            }
        }
        count
    }

    /// Stage 2 for blocks; returns how many.
    fn free_blocks(&mut self, oldest: BatchId, budget: usize, done: &mut Collected) -> usize {
        let mut count = 0;
        while let Some((stamp, versions)) = self.blocks.front_mut()
            && count < budget
            && *stamp < oldest
        {
            let rest = versions.len().saturating_sub(BLOCK.min(budget - count));
            for version in versions.iter().skip(rest) {
                prefetch(version.address());
            }
            count += versions.len() - rest;
            for version in versions.drain(rest..) {
                // SAFETY: unlinked while the boundary was below `oldest`; every reader registered then has
                // left.
                done.freed_bytes += unsafe { version.free(&self.memory) } as u64;
            }
            if versions.is_empty() {
                self.blocks.pop_front();
            }
        }
        self.blocks_len -= count;
        count
    }
}

/// What a collection has done so far.
#[derive(Default)]
struct Collected {
    /// Bytes of versions that were freed.
    freed_bytes: u64,
    /// Bytes of rows that were relocated.
    copied_bytes: u64,
    /// Blocks that were unlinked.
    blocks: Vec<Retired>,
}

impl Collected {
    /// Nobody uses the version any more that was in the row's inline space.
    fn free_inline_space(&mut self, row: Row<'_>) {
        let left = row.table.core.slots.inline_space_freed(row.slot, row.place);
        self.note_copied(left);
    }

    /// A row was relocated from this block: the copy is linked instead, but the block's bytes count until it
    /// is freed.
    #[inline]
    fn note_copied(&mut self, left: Option<Retired>) {
        if let Some(left) = left {
            self.copied_bytes += left.view().size_bytes() as u64;
            self.blocks.push(left);
        }
    }

    /// Stage 1 for one slot: everything below the version that `oldest` sees is cut and freed at once, but at
    /// most `freed_max` versions. Returns how many; if it is `freed_max`, there may be more.
    fn shorten(&mut self, row: Row<'_>, (boundary, oldest): (BatchId, BatchId), freed_max: usize) -> usize {
        let Row { table, slot, place } = row;
        let core = &table.core;
        // SAFETY: only the collector frees, on this thread, and it does not access what it has freed.
        let (seen, newest) = unsafe { (Pin::new(oldest.0), Pin::new(Pin::EVERYTHING)) };
        let (Some(floor), Some(head)) = (place.at(seen), place.at(newest)) else {
            return 0;
        };
        // A version whose keys the next newer kept version shares has no entries of its own: they belong to
        // that one, or were removed with it.
        let mut are_keys_kept = floor.keeps_keys();
        let mut is_inline_freed = false;
        let (mut unlinked_bytes, mut freed) = (0, 0);
        for version in floor.cut().take(freed_max) {
            freed += 1;
            let view = version.view();
            if !are_keys_kept {
                table.remove_entries(slot, view, Some(head), boundary);
            }
            are_keys_kept = view.keeps_keys();
            unlinked_bytes += view.size_bytes();
            is_inline_freed |= version.is_inline();
            // SAFETY: readers at `oldest` or later stop at the floor at the latest, and the readers below it
            // have left. See the test `a_reader_of_the_floor_looks_no_further`.
            unsafe { version.free(core.slots.memory()) };
        }
        if unlinked_bytes > 0 {
            core.slots.unlinked(unlinked_bytes);
            self.freed_bytes += unlinked_bytes as u64;
        }
        if is_inline_freed {
            self.free_inline_space(row);
        }
        if freed == freed_max {
            // What follows is no longer the version that it superseded.
            floor.forget_keys_kept();
        } else if !head.is_live() && head.batch() <= oldest {
            table.remove_row_id(slot, place.row_id());
            if let Some(tombstone) = place.pop() {
                core.slots.unlinked(tombstone.view().size_bytes());
                self.blocks.push(tombstone);
            }
            core.slots.release(slot);
        } else if !is_inline_freed {
            self.note_copied(place.relocate_inline());
        }
        freed
    }
}

impl Drop for Garbage {
    /// The store is dropped, so no reader is left: each holds the store.
    fn drop(&mut self) {
        let blocks = self.blocks.drain().flat_map(|(_, versions)| versions);
        let left = self.left.drain().filter_map(|(_, left)| match left {
            Left::Block(version) => Some(version),
            // Slots are part of the memory that goes with the store.
            Left::Slots(_) | Left::Places(_) => None,
        });
        for version in blocks.chain(left) {
            // SAFETY: no reader, no batch.
            unsafe { version.free(&self.memory) };
        }
    }
}

/// The rows of these chains whose table still exists. Prefetches what stage 1 will access: slots, then
/// versions in blocks.
fn fetched_chains<'s>(
    schema: &'s Schema,
    chains: impl Iterator<Item = RowPlace>,
) -> SmallVec<[Row<'s>; BLOCK]> {
    let mut rows: SmallVec<[Row<'s>; BLOCK]> = SmallVec::new();
    for row in chains.filter_map(|place| place.row(schema)) {
        row.place.prefetch_head();
        rows.push(row);
    }
    for row in &rows {
        if let Some(elsewhere) = row.place.newest_elsewhere() {
            prefetch(elsewhere);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use weft_types::{SqlType, Value};

    use super::*;
    use crate::catalog::{CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, TableDef};
    use crate::store::Store;

    const TABLE: TableId = TableId(FIRST_OBJECT_ID);
    const SLOT: SlotId = SlotId(0);

    fn definition() -> TableDef {
        TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)])
    }

    fn row(number: u64) -> Vec<u8> {
        definition().layout.encode(&[Value::Int8(number as i64)]).unwrap()
    }

    fn write(store: &Store, work: impl FnOnce(&mut crate::writer::MemberWriter<'_>)) {
        let number = BatchId(store.boundary().0 + 1);
        let batch = store.begin_batch(number);
        let mut member = batch.member(0);
        work(&mut member);
        member.commit();
        batch.finish();
        store.publish(number);
    }

    /// A table with one row, of batch 2.
    fn one_row() -> Arc<Store> {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch
            .apply_catalog(&CatalogOp::CreateTable(definition()))
            .unwrap();
        batch.finish();
        store.publish(BatchId(1));
        write(&store, |member| {
            member.insert(TABLE, &row(2)).unwrap();
        });
        store
    }

    fn waiting(store: &Arc<Store>) -> (usize, usize) {
        let stats = store.memory_stats();
        (stats.superseded_rows, stats.unlinked_versions)
    }

    /// What no reader sees is freed in the very collection that cuts it off, and used again; what a reader
    /// sees stays.
    #[test]
    fn a_reader_of_the_floor_looks_no_further() {
        let store = one_row();
        let update = |number| write(&store, |member| member.update(TABLE, SLOT, &row(number)).unwrap());
        update(3);
        let at_three = store.snapshot();
        let version_bytes = store.memory_stats().version_bytes / 2;
        update(4);
        update(5);
        let at_five = store.snapshot();
        store.collect_garbage(100);
        // Batch 2's went; what batches 4 and 5 superseded is still seen.
        assert_eq!(
            (waiting(&store), store.memory_stats().version_bytes),
            ((2, 0), 3 * version_bytes)
        );
        for number in 6..9 {
            update(number);
            store.collect_garbage(100);
            for (snapshot, seen) in [(&at_three, 3), (&at_five, 5), (&store.snapshot(), number)] {
                let bytes = snapshot.get(TABLE, SLOT).unwrap().map(|row| row.bytes.to_vec());
                assert_eq!(bytes, Some(row(seen)));
            }
        }
        drop(at_three);
        store.collect_garbage(100);
        assert_eq!(
            at_five.get(TABLE, SLOT).unwrap().map(|row| row.bytes.to_vec()),
            Some(row(5))
        );
        drop(at_five);
        // The newest one comes home at once; the block that it left waits for the next boundary.
        store.collect_garbage(100);
        let stats = store.memory_stats();
        assert_eq!(
            (waiting(&store), stats.version_bytes),
            ((0, 1), 2 * version_bytes)
        );
        assert_eq!(store.collect_garbage(100), 0);
        write(&store, |_| {});
        store.collect_garbage(100);
        let stats = store.memory_stats();
        assert_eq!(
            (waiting(&store), stats.version_bytes, stats.block_bytes),
            ((0, 0), version_bytes, 0)
        );
    }

    /// One row is written ever again under an old reader. When he leaves, no collection does more than it
    /// may, and in the end nothing is left: no version, no index entry, no slot.
    #[test]
    fn a_long_chain_is_freed_in_steps() {
        const UPDATES: u64 = 20_000;
        const BUDGET: usize = 100;
        let index = IndexDef {
            id: weft_base::IndexId(TABLE.0 + 1),
            name: "t_a".into(),
            table: TABLE,
            columns: vec![0],
            unique: false,
            primary: false,
            method: IndexMethod::Both,
        };
        for is_removed in [false, true] {
            let store = one_row();
            let mut batch = store.begin_batch(BatchId(3));
            batch
                .apply_catalog(&CatalogOp::CreateIndex(index.clone()))
                .unwrap();
            batch.finish();
            store.publish(BatchId(3));
            let version_bytes = store.memory_stats().version_bytes;
            let kept_bytes = version_bytes.next_multiple_of(8) + size_of::<RowPlace>() as u64;
            let old = store.snapshot();
            for number in 0..UPDATES {
                // The key stays for some updates, and comes back.
                write(&store, |member| {
                    member.update(TABLE, SLOT, &row(number / 10 % 50)).unwrap();
                });
                store.collect_garbage(BUDGET);
            }
            if is_removed {
                write(&store, |member| member.remove(TABLE, SLOT).unwrap());
            }
            assert_eq!(store.bytes_kept_at(store.boundary()), 0);
            assert_eq!(
                store.bytes_kept_at(old.batch()) / kept_bytes,
                UPDATES + u64::from(is_removed)
            );
            assert_eq!(old.get(TABLE, SLOT).unwrap().unwrap().bytes, row(2));
            drop(old);
            let at = store.snapshot();
            let (mut longest, mut calls) = (0, 0);
            loop {
                let before = store.memory_stats().version_bytes;
                let steps = store.collect_garbage(BUDGET);
                if steps == 0 {
                    break;
                }
                let freed = before.saturating_sub(store.memory_stats().version_bytes) / version_bytes;
                longest = longest.max(freed).max(steps as u64);
                calls += 1;
                assert_eq!(at.get(TABLE, SLOT).unwrap().is_some(), !is_removed);
            }
            // A block of chains may be begun with the last step.
            assert!(longest <= (BUDGET + BLOCK) as u64, "{longest}");
            assert!(calls >= UPDATES / BUDGET as u64, "{calls}");
            drop(at);
            write(&store, |_| {});
            store.collect_garbage(BUDGET);
            let stats = store.memory_stats();
            let expected = if is_removed { 0 } else { 1 };
            assert_eq!(
                (
                    waiting(&store),
                    stats.version_bytes,
                    stats.block_bytes,
                    stats.ordered_entries
                ),
                ((0, 0), expected * version_bytes, 0, expected)
            );
            assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
        }
    }

    /// The tombstone that a reader may just have come across waits; the slot does not.
    #[test]
    fn a_removed_row_releases_its_slot() {
        let store = one_row();
        write(&store, |member| member.remove(TABLE, SLOT).unwrap());
        store.collect_garbage(100);
        assert_eq!(waiting(&store), (0, 1));
        write(&store, |member| {
            assert_eq!(member.insert(TABLE, &row(4)).unwrap(), SLOT)
        });
        store.collect_garbage(100);
        let stats = store.memory_stats();
        assert_eq!((waiting(&store), stats.block_bytes), ((0, 0), 0));
        assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    }
}
