//! How rows leave memory and come back.
//!
//! [`SlotArena::freeze`] takes a region's rows out of memory while no batch is open: rows with one version
//! that a checkpoint holds become cold, the others move into slots of their own. Of a region that is frozen
//! already it takes those that nobody has used since the last time. Readers may be in the old slots, which
//! show what they showed: they are left behind until those readers have gone.
//!
//! A row comes back when a reader or a batch needs it ([`SlotArena::thaw`]), a region when there is memory
//! for it (`refill`). Who looks at whole tables reads cold rows without that ([`SlotArena::visit`]).

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use weft_base::{BatchId, RowId};
use weft_ops::row_hasher;
use weft_types::{SqlError, SqlState};

use super::SlotId;
use super::arena::Kind;
use super::cold::ReadAhead;
use super::frozen::{ColdRow, FrozenRegion, Place};
use super::regions::{Found, Region};
use super::slab::RowMemory;
use super::slot::{SLOT_OVERHEAD, Slot};
use super::slots::{REGION_SLOTS, SlotArena};
use super::version::{HEADER_BYTES, Pin, Retired};

/// What a freezing leaves behind, until no reader is left that could have found it.
#[derive(Debug, Default)]
#[must_use = "what is left behind must reach the garbage, or its memory is lost"]
pub(crate) struct LeftBehind {
    /// Versions in blocks.
    pub(crate) blocks: Vec<Retired>,
    /// Slots.
    pub(crate) slots: Vec<OldSlots>,
    /// The places of a region's rows.
    pub(crate) places: Option<OldPlaces>,
    /// How many rows became cold.
    pub(crate) rows: usize,
}

impl LeftBehind {
    /// Memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let slots: usize = self.slots.iter().map(|slots| slots.bytes).sum();
        let blocks: usize = self.blocks.iter().map(|block| block.view().memory_bytes()).sum();
        (slots + blocks) as u64 + self.places.as_ref().map_or(0, |places| places.0.size_bytes())
    }

    /// Frees everything at once.
    ///
    /// # Safety
    /// Nobody uses it any more; `memory` is what it came from.
    pub(crate) unsafe fn free(self, memory: &RowMemory) {
        for version in self.blocks {
            // SAFETY: passed on.
            let bytes = unsafe { free_left_block(version, memory) };
            memory.subtract(bytes as u64);
        }
        for slots in self.slots {
            // SAFETY: passed on.
            unsafe { slots.free(memory) };
        }
        if let Some(places) = self.places {
            // SAFETY: passed on.
            unsafe { places.free(memory) };
        }
    }
}

/// The places of a region's rows, which are in slots again.
#[derive(Debug)]
pub(crate) struct OldPlaces(pub(super) Box<FrozenRegion>);

impl OldPlaces {
    /// # Safety
    /// Nobody uses them any more; `memory` is what they count in.
    pub(crate) unsafe fn free(self, memory: &RowMemory) {
        let bytes = self.0.size_bytes();
        memory.left_is_freed(bytes);
        memory.region_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Frees a version in a block that was left behind; returns its size.
///
/// # Safety
/// As [`Retired::free`].
pub(crate) unsafe fn free_left_block(version: Retired, memory: &RowMemory) -> usize {
    memory.left_is_freed(version.view().memory_bytes() as u64);
    // SAFETY: passed on.
    unsafe { version.free(memory) }
}

/// Memory of slots whose rows are elsewhere now.
#[derive(Debug)]
pub(crate) struct OldSlots {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) is_region: bool,
}

// SAFETY: memory with one owner.
unsafe impl Send for OldSlots {}

impl OldSlots {
    /// # Safety
    /// Nobody uses them any more; `memory` is what they came from.
    pub(crate) unsafe fn free(self, memory: &RowMemory) {
        memory.left_is_freed(self.bytes as u64);
        if self.is_region {
            memory
                .region_bytes
                .fetch_sub(self.bytes as u64, Ordering::Relaxed);
            // SAFETY: taken in `SlotArena::grow` with this size.
            unsafe { memory.arena.deallocate(Kind::Slots, self.start, self.bytes) };
        } else {
            // SAFETY: taken in `SlotArena::slot_memory` with this size.
            unsafe { memory.deallocate(self.start, self.bytes) };
        }
    }
}

/// A place for one row that is not in any table's memory, to be looked at like a row in its slot. For one
/// table; whoever visits many rows keeps it, so that they are read together.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(super) row: Vec<u8>,
    words: Vec<u64>,
    ahead: ReadAhead,
}

impl Scratch {
    /// The row in `self.row` in a slot.
    fn slot(&mut self, row_id: RowId, batch: BatchId, seal_bits: u32) -> Slot<'_> {
        let room = self.row.len().next_multiple_of(8);
        self.words.clear();
        self.words.resize((SLOT_OVERHEAD + room) / 8, 0);
        let start = NonNull::from(self.words.as_mut_slice()).cast();
        // SAFETY: head, header and room for the row, aligned to 8 and zero; they live as long as `self` is
        // borrowed. A row is at most 4 GiB long.
        let slot = unsafe { Slot::new(start, room as u32) };
        slot.set_row_id(row_id);
        slot.fill(batch, &self.row, seal_bits);
        slot
    }
}

impl SlotArena {
    /// Takes the rows of a region out of memory that are neither newer than `saved`, the batch of a
    /// checkpoint that holds them all, nor in use. `None` if there is no such region, or no checkpoint. No
    /// batch is open.
    pub(crate) fn freeze(&self, region: u64, saved: BatchId) -> Option<LeftBehind> {
        self.memory().cold_rows()?;
        let region = self.region(region)?;
        let mut left = LeftBehind::default();
        match region.frozen() {
            None => self.freeze_slots(region, saved, &mut left),
            Some(frozen) => self.evict(region, frozen, saved, &mut left),
        }
        self.memory().leave(left.bytes());
        Some(left)
    }

    /// Whether a region may have rows in memory.
    pub(crate) fn has_resident(&self, region: u64) -> bool {
        self.region(region).is_some_and(|region| {
            let frozen = region.frozen();
            frozen.is_none_or(FrozenRegion::has_slot)
        })
    }

    fn freeze_slots(&self, region: &Region, saved: BatchId, left: &mut LeftBehind) {
        let place_of = |offset: u64| {
            let Some(slot) = region.slot(SlotId(offset)).filter(|slot| !slot.is_empty()) else {
                return Place::Nowhere;
            };
            let row_id = slot.row_id();
            match self.make_cold(slot, saved, left) {
                Some(seal_bits) => Place::Cold(row_id, seal_bits),
                None => Place::Slot(self.moved(region, slot), row_id),
            }
        };
        let places: Vec<Place> = (0..u64::from(region.slots)).map(place_of).collect();
        let frozen = FrozenRegion::new(&places);
        self.memory()
            .region_bytes
            .fetch_add(frozen.size_bytes(), Ordering::Relaxed);
        region.set_frozen(frozen);
        left.slots.push(OldSlots {
            start: region.base(),
            bytes: region.slots_bytes(),
            is_region: true,
        });
    }

    fn evict(&self, region: &Region, frozen: &FrozenRegion, saved: BatchId, left: &mut LeftBehind) {
        // Rows that were put where another one had been.
        let mut others = Vec::new();
        for (offset, start, is_used) in frozen.take_used() {
            if is_used {
                continue;
            }
            // SAFETY: a slot of this region.
            let slot = unsafe { region.slot_at(start) };
            if slot.is_empty() {
                // A row that is put there gets another one.
                frozen.set_nothing(offset);
            } else {
                let row_id = slot.row_id();
                let Some(seal_bits) = self.make_cold(slot, saved, left) else {
                    continue;
                };
                if !frozen.set_cold(offset, row_id, seal_bits) {
                    others.push((offset, Place::Cold(row_id, seal_bits)));
                }
            }
            left.slots.push(OldSlots {
                start,
                bytes: region.stride as usize,
                is_region: false,
            });
        }
        if !others.is_empty() || frozen.is_loose() {
            // SAFETY: a slot of this region.
            let row_id_of = |start| unsafe { region.slot_at(start) }.row_id();
            let replacement = frozen.replacement(&others, row_id_of);
            self.memory()
                .region_bytes
                .fetch_add(replacement.size_bytes(), Ordering::Relaxed);
            left.places = region.replace_frozen(replacement).map(OldPlaces);
        }
    }

    /// Takes the row in a slot out of memory, if it may be cold; returns its seal.
    fn make_cold(&self, slot: Slot<'_>, saved: BatchId, left: &mut LeftBehind) -> Option<u32> {
        let only = slot.only_version().filter(|only| only.batch() <= saved)?;
        let (bytes, seal_bits) = (only.size_bytes(), only.seal_bits());
        self.unlinked(bytes);
        match slot.newest_elsewhere() {
            // SAFETY: its place does not lead to it any more, or will not before anybody else is here.
            Some(_) => left.blocks.extend(unsafe { slot.retired() }),
            None => self.memory().subtract(bytes as u64),
        }
        self.memory().cold_count.fetch_add(1, Ordering::Relaxed);
        left.rows += 1;
        Some(seal_bits)
    }

    /// A copy of a slot in memory of its own.
    fn moved(&self, region: &Region, slot: Slot<'_>) -> NonNull<u8> {
        let to = self.slot_memory(region.stride as usize);
        // SAFETY: of that size, and nobody else's.
        unsafe { Self::copy_slot(region, slot, to) };
        to
    }

    /// Copies a slot, with the same versions except for the inline one, which is copied, too: what led to it
    /// leads to the copy. No batch is open, and nobody collects.
    ///
    /// # Safety
    /// `to` is memory for a slot of this region that nobody else knows.
    pub(super) unsafe fn copy_slot(region: &Region, slot: Slot<'_>, to: NonNull<u8>) {
        // SAFETY: a slot of the region's stride; nobody changes it, as no batch is open and nobody collects.
        unsafe { ptr::copy_nonoverlapping(slot.address(), to.as_ptr(), region.stride as usize) };
        // SAFETY: a copy of a slot of this region.
        let copy = unsafe { region.slot_at(to) };
        let (from, to_inline) = (slot.inline_version(), copy.inline_version());
        if copy.newest_raw() == from {
            copy.set_newest(to_inline);
            return;
        }
        // SAFETY: as above; nothing is freed meanwhile.
        let mut version = copy.at(unsafe { Pin::new(Pin::EVERYTHING) });
        while let Some(newer) = version {
            if newer.older_raw() == from {
                newer.set_older(to_inline);
                break;
            }
            version = newer.older();
        }
    }

    /// Memory for a slot. Undefined contents.
    fn slot_memory(&self, stride: usize) -> NonNull<u8> {
        self.memory().take(stride)
    }

    /// Memory for a slot of a region, empty.
    fn empty_slot(&self, region: &Region) -> NonNull<u8> {
        let start = self.slot_memory(region.stride as usize);
        // SAFETY: at least that long, and nobody else's.
        unsafe { start.write_bytes(0, SLOT_OVERHEAD) };
        start
    }

    /// The slot of a row that is about to be inserted, marked as written. A member of the open batch only.
    pub(crate) fn slot_to_fill(&self, slot: SlotId) -> Option<Slot<'_>> {
        let region = self.region_of(slot)?;
        if let Some(frozen) = region.frozen()
            && region.slot(slot).is_none()
        {
            let start = self.empty_slot(region);
            frozen.set_slot(slot.0 & (REGION_SLOTS - 1), start, self.memory());
        }
        self.slot_to_write(slot)
    }

    /// The slot of a row, which is read into memory if it is cold; `None` if there is no row. Any thread.
    ///
    /// # Errors
    /// It could not be read.
    pub(crate) fn thaw(&self, slot: SlotId) -> Result<Option<Slot<'_>>, SqlError> {
        let Some(region) = self.region_of(slot) else {
            return Ok(None);
        };
        let offset = slot.0 & (REGION_SLOTS - 1);
        let mut row = Vec::new();
        loop {
            let (frozen, cold) = match region.find(slot) {
                None => return Ok(None),
                Some(Found::Slot(place)) => return Ok(Some(place)),
                Some(Found::Cold(frozen, cold)) => (frozen, cold),
            };
            let batch = match self.read(cold, &mut row) {
                Ok(batch) => batch,
                // It was read while the place changed.
                Err(_) if !frozen.is_still(offset, cold) => continue,
                Err(error) => return Err(error),
            };
            let start = self.empty_slot(region);
            // SAFETY: a slot of this region.
            let place = unsafe { region.slot_at(start) };
            place.set_row_id(cold.row_id);
            let bytes = place.put(batch, &row, cold.seal_bits(), self.memory());
            if frozen.thaw(offset, cold, start, self.memory()) {
                self.linked(bytes as u64);
                self.memory().row_is_thawed();
                return Ok(Some(place));
            }
            // SAFETY: nobody has seen slot or version.
            unsafe {
                if place.newest_elsewhere().is_some()
                    && let Some(version) = place.retired()
                {
                    version.free(self.memory());
                }
                self.memory().deallocate(start, region.stride as usize);
            }
        }
    }

    /// Shows the slot of a row, or one in `scratch` with the row in it if it is cold; `None` if there is no
    /// row.
    ///
    /// # Errors
    /// It could not be read.
    pub(crate) fn visit<R>(
        &self,
        slot: SlotId,
        scratch: &mut Scratch,
        see: impl FnOnce(Slot<'_>) -> R,
    ) -> Result<Option<R>, SqlError> {
        if let Some(place) = self.peek(slot) {
            return Ok(Some(see(place)));
        }
        let Some(region) = self.region_of(slot) else {
            return Ok(None);
        };
        let offset = slot.0 & (REGION_SLOTS - 1);
        loop {
            let (frozen, cold) = match region.find(slot) {
                None => return Ok(None),
                Some(Found::Slot(place)) => return Ok(Some(see(place))),
                Some(Found::Cold(frozen, cold)) => (frozen, cold),
            };
            let read = self.read_ahead(cold, scratch);
            // The disk may have a newer version, with the same seal if the bytes are the same: the one of a
            // reader's time is then in a slot, and stays there as long as the reader is registered.
            if frozen.is_still(offset, cold) {
                let batch = read?;
                return Ok(Some(see(scratch.slot(cold.row_id, batch, cold.seal_bits()))));
            }
        }
    }

    /// Reads a cold row; returns the batch that wrote it.
    pub(super) fn read(&self, cold: ColdRow, row: &mut Vec<u8>) -> Result<BatchId, SqlError> {
        let (table, row_id) = (self.table(), cold.row_id);
        let Some(rows) = self.memory().cold_rows() else {
            return Err(SqlError::internal("rows are cold, but nowhere"));
        };
        let read = rows.read(table, row_id, row);
        // Asked afterwards: who finds what replaced the row finds this, too.
        if self.is_replaced() {
            return Err(
                SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old").detail(
                    "The table has been dropped or rewritten since, and its rows are gone from the disk.",
                ),
            );
        }
        let batch = read?;
        match self.is_intact(cold, row) {
            true => Ok(batch),
            false => Err(SqlError::new(
                SqlState::DATA_CORRUPTED,
                format!("row {row_id} of table {table} on disk is not what was written"),
            )),
        }
    }

    /// The same for who visits rows one after the other. What is read ahead may not have the row: then it is
    /// read by itself.
    pub(super) fn read_ahead(&self, cold: ColdRow, scratch: &mut Scratch) -> Result<BatchId, SqlError> {
        let (table, row) = (self.table(), &mut scratch.row);
        let rows = self.memory().cold_rows();
        let ahead = rows.and_then(|rows| scratch.ahead.read(rows.as_ref(), table, cold.row_id, row));
        match ahead.filter(|_| self.is_intact(cold, row)) {
            Some(batch) => Ok(batch),
            None => self.read(cold, row),
        }
    }

    /// Whether these bytes are those of the row that became cold.
    fn is_intact(&self, cold: ColdRow, row: &[u8]) -> bool {
        let term = row_hasher(self.table().0, cold.row_id.encode()).hash(row);
        Retired::seal_of(term) == cold.seal_bits()
    }
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(8) && SLOT_OVERHEAD.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hashbrown::HashMap;
    use parking_lot::Mutex;
    use weft_base::TableId;

    use super::*;
    use crate::memory::{ColdRows, ColdRowsInOrder, ReadContext, VersionRef};

    /// What happens while a row is read, once.
    type Meanwhile = Box<dyn FnOnce() + Send>;

    /// Rows as a checkpoint would hold them.
    #[derive(Default)]
    struct Stored(
        Mutex<HashMap<RowId, (BatchId, Vec<u8>)>>,
        Mutex<Option<Meanwhile>>,
    );

    impl std::fmt::Debug for Stored {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Stored")
        }
    }

    impl ColdRows for Stored {
        fn read(&self, _table: TableId, row_id: RowId, row: &mut Vec<u8>) -> Result<BatchId, SqlError> {
            let meanwhile = self.1.lock().take();
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
            let stored = self.0.lock();
            let (batch, bytes) = stored.get(&row_id).ok_or_else(|| SqlError::internal("none"))?;
            row.clear();
            row.extend_from_slice(bytes);
            Ok(*batch)
        }

        fn memory_bytes(&self) -> u64 {
            0
        }

        fn in_order(&self, _table: TableId, _first: RowId) -> Option<Box<dyn ColdRowsInOrder>> {
            None
        }
    }

    const TABLE: TableId = TableId(5);

    fn arena() -> (SlotArena, Arc<Stored>) {
        let (memory, stored) = (Arc::<RowMemory>::default(), Arc::<Stored>::default());
        memory.set_cold_rows(Arc::clone(&stored) as Arc<dyn ColdRows>);
        (SlotArena::new(TABLE, &memory), stored)
    }

    fn pin(horizon: u64) -> Pin<'static> {
        // SAFETY: nothing is freed in these tests while versions are looked at.
        unsafe { Pin::new(horizon) }
    }

    fn id(number: u32) -> RowId {
        RowId {
            batch: BatchId(1),
            member: 0,
            ordinal: number,
        }
    }

    /// A row of these versions, sealed as a member seals them; batch numbers from 1 on.
    fn row(arena: &SlotArena, number: u32, versions: &[Option<&[u8]>]) -> SlotId {
        let slot = arena.reserve(20);
        let place = arena.slot_to_fill(slot).unwrap();
        place.set_row_id(id(number));
        for (batch, bytes) in (1..).zip(versions) {
            let version = place.push(pin(Pin::EVERYTHING), BatchId(batch), *bytes, arena.memory());
            let term = row_hasher(TABLE.0, id(number).encode()).hash(version.bytes());
            version.seal(term, false);
            arena.linked(version.size_bytes() as u64);
        }
        slot
    }

    fn seen(place: Slot<'_>, horizon: u64) -> Option<(u64, bool, Vec<u8>)> {
        let version = place.at(pin(horizon))?;
        Some((version.batch().0, version.is_live(), version.bytes().to_vec()))
    }

    /// Frees what was left behind: nobody looks at it any more.
    fn free(arena: &SlotArena, left: LeftBehind) {
        // SAFETY: no reference is left.
        unsafe { left.free(arena.memory()) };
    }

    const LONG: &[u8] = &[7; 300];

    /// Chains look the same from the old slots and from the new ones, wherever the inline version is.
    #[test]
    fn rows_that_stay_are_moved_with_their_chains() {
        let (arena, _) = arena();
        let chains: [&[Option<&[u8]>]; 6] = [
            &[Some(b"one"), Some(b"two"), Some(b"three")],
            &[Some(LONG), Some(b"two"), Some(LONG)],
            &[Some(LONG), Some(LONG), Some(b"three")],
            &[Some(b"one"), None],
            &[Some(LONG), Some(LONG)],
            &[Some(b"one"), Some(LONG), Some(LONG), Some(b"four"), None],
        ];
        let slots: Vec<SlotId> = (0..)
            .zip(chains)
            .map(|(number, versions)| row(&arena, number, versions))
            .collect();
        let old: Vec<Slot<'_>> = slots.iter().map(|slot| arena.resident(*slot).unwrap()).collect();
        let left = arena.freeze(0, BatchId(100)).unwrap();
        assert_eq!((left.rows, left.slots.len()), (0, 1));
        for (slot, old) in slots.iter().zip(&old) {
            let new = arena.resident(*slot).unwrap();
            assert_ne!(new.address(), old.address());
            assert_eq!(new.row_id(), old.row_id());
            for horizon in 0..6 {
                assert_eq!(seen(new, horizon), seen(*old, horizon), "{slot:?} {horizon}");
            }
        }
        // The collector goes on in the new slots, and old ones see no further than they may.
        let floor = arena.resident(slots[0]).unwrap().at(pin(3)).unwrap();
        let cut: Vec<Retired> = floor.cut().collect();
        assert_eq!(
            cut.iter().map(Retired::is_inline).collect::<Vec<_>>(),
            [false, true]
        );
        for version in cut {
            // SAFETY: no reference is left.
            unsafe { version.free(arena.memory()) };
        }
        let moved = arena.inline_space_freed(slots[0], arena.resident(slots[0]).unwrap());
        assert!(
            moved.is_some_and(|moved| !moved.is_inline()),
            "the row goes inline"
        );
        assert_eq!(seen(old[0], 3), Some((3, true, b"three".to_vec())));
        free(&arena, left);
    }

    /// Inline space that waits for readers is taken in the new slot, too, and so is a slot to be released.
    #[test]
    fn space_that_waits_for_readers_waits_in_the_new_slot() {
        let (arena, _) = arena();
        let slot = row(&arena, 1, &[Some(b"one")]);
        let popped = arena.resident(slot).unwrap().pop().unwrap();
        assert!(popped.is_inline());
        arena.release(slot);
        free(&arena, arena.freeze(0, BatchId(100)).unwrap());
        assert_eq!(arena.free_len(), 0);
        assert!(
            arena
                .inline_space_freed(slot, arena.resident(slot).unwrap())
                .is_none()
        );
        assert_eq!((arena.free_len(), arena.reserve(20)), (1, slot));
    }

    #[test]
    fn cold_rows_come_back_as_they_were_or_not_at_all() {
        let (arena, stored) = arena();
        let rows: [&[u8]; 3] = [b"short", LONG, b""];
        let slots: Vec<SlotId> = (0..)
            .zip(rows)
            .map(|(number, bytes)| row(&arena, number, &[Some(bytes)]))
            .collect();
        let newer = row(&arena, 9, &[Some(b"one")]);
        let place = arena.resident(newer).unwrap();
        let term = row_hasher(TABLE.0, id(9).encode()).hash(b"one");
        place.at(pin(9)).unwrap().seal(term, false);
        let before = arena.memory().row_bytes();
        // Nothing is in a checkpoint yet.
        let left = arena.freeze(0, BatchId(0)).unwrap();
        assert_eq!(left.rows, 0);
        free(&arena, left);
        let evict = || {
            // Slots that were used are spared once.
            free(&arena, arena.freeze(0, BatchId(1)).unwrap());
            let left = arena.freeze(0, BatchId(1)).unwrap();
            let rows = left.rows;
            free(&arena, left);
            rows
        };
        assert_eq!(evict(), 4);
        assert!(arena.memory().row_bytes() < before);
        assert_eq!(
            (arena.memory().version_bytes(), arena.memory().block_bytes()),
            (0, 0)
        );
        assert_eq!(arena.memory().cold_count(), 4);
        let failed = |slot| arena.thaw(slot).map(|_| ()).unwrap_err();
        assert_eq!(failed(slots[0]).message, "none");
        for (number, bytes) in (0..).zip(rows) {
            stored.0.lock().insert(id(number), (BatchId(1), bytes.to_vec()));
        }
        stored
            .0
            .lock()
            .insert(id(1), (BatchId(1), b"another row".to_vec()));
        assert_eq!(failed(slots[1]).state, SqlState::DATA_CORRUPTED);
        let mut scratch = Scratch::default();
        let visited = |place: Slot<'_>| seen(place, 1).unwrap().2;
        let wrong = arena.visit(slots[1], &mut scratch, visited).unwrap_err();
        assert_eq!(wrong.state, SqlState::DATA_CORRUPTED);
        stored.0.lock().insert(id(1), (BatchId(1), LONG.to_vec()));
        for (number, (slot, bytes)) in (0..).zip(slots.iter().zip(rows)) {
            let found = arena.visit(*slot, &mut scratch, |place| (place.row_id(), visited(place)));
            assert_eq!(found.unwrap().unwrap(), (id(number), bytes.to_vec()));
            assert!(arena.resident(*slot).is_none());
            let passed = arena.slot(*slot, pin(1));
            assert!(passed.is_none(), "who does not ask for cold rows");
            let thawing = ReadContext::default();
            let place = arena.slot(*slot, pin(1).with_context(&thawing)).unwrap();
            assert_eq!(seen(place, 1), Some((1, true, bytes.to_vec())));
            assert_eq!(seen(place, 0), None, "it is as old as it was");
            assert!(thawing.check().is_ok() && place.row_id() == id(number));
            assert!(place.at(pin(1)).is_some_and(VersionRef::is_live));
        }
        assert_eq!(arena.memory().cold_count(), 1);
        assert_eq!(evict(), 3);
        assert_eq!(
            (arena.memory().version_bytes(), arena.memory().block_bytes()),
            (0, 0)
        );
    }

    /// A row that is rewritten as it was while an older reader reads it, and is in the next checkpoint by the
    /// time it is found: the reader sees the version of its time.
    #[test]
    fn a_row_that_is_rewritten_meanwhile_does_not_vanish() {
        let (arena, stored) = arena();
        let arena = Arc::new(arena);
        let slot = row(&arena, 1, &[Some(b"same")]);
        stored.0.lock().insert(id(1), (BatchId(1), b"same".to_vec()));
        free(&arena, arena.freeze(0, BatchId(1)).unwrap());
        let (others, rows) = (Arc::clone(&arena), Arc::clone(&stored));
        let rewrite = move || {
            let place = others.thaw(slot).unwrap().unwrap();
            let version = place.push(pin(Pin::EVERYTHING), BatchId(2), Some(b"same"), others.memory());
            version.seal(row_hasher(TABLE.0, id(1).encode()).hash(b"same"), true);
            others.linked(version.size_bytes() as u64);
            rows.0.lock().insert(id(1), (BatchId(2), b"same".to_vec()));
        };
        *stored.1.lock() = Some(Box::new(rewrite));
        let found = arena.visit(slot, &mut Scratch::default(), |place| seen(place, 1));
        assert_eq!(found.unwrap().unwrap(), Some((1, true, b"same".to_vec())));
    }

    /// The same while the places of the region are replaced by others, which a row of another id needs.
    #[test]
    fn a_row_whose_region_is_replaced_meanwhile_does_not_vanish() {
        let (arena, stored) = arena();
        let arena = Arc::new(arena);
        let slot = row(&arena, 1, &[Some(b"same")]);
        stored.0.lock().insert(id(1), (BatchId(1), b"same".to_vec()));
        free(&arena, arena.freeze(0, BatchId(1)).unwrap());
        let (others, rows) = (Arc::clone(&arena), Arc::clone(&stored));
        let left = Arc::new(Mutex::new(Vec::new()));
        let left_by_others = Arc::clone(&left);
        let rewrite = move || {
            row(&others, 2, &[Some(b"new")]);
            // It is spared once.
            for _ in 0..2 {
                left_by_others.lock().extend(others.freeze(0, BatchId(1)));
            }
            assert_eq!(others.memory().cold_count(), 2);
            let place = others.thaw(slot).unwrap().unwrap();
            let version = place.push(pin(Pin::EVERYTHING), BatchId(2), Some(b"same"), others.memory());
            version.seal(row_hasher(TABLE.0, id(1).encode()).hash(b"same"), true);
            others.linked(version.size_bytes() as u64);
            rows.0.lock().insert(id(1), (BatchId(2), b"same".to_vec()));
        };
        *stored.1.lock() = Some(Box::new(rewrite));
        let found = arena.visit(slot, &mut Scratch::default(), |place| seen(place, 1));
        assert_eq!(found.unwrap().unwrap(), Some((1, true, b"same".to_vec())));
        let left = std::mem::take(&mut *left.lock());
        assert!(left.iter().any(|left| left.places.is_some()));
        left.into_iter().for_each(|left| free(&arena, left));
        assert_eq!(arena.memory().left_bytes(), 0);
    }

    /// Rows in blocks, which are stored, too.
    fn long_rows(arena: &SlotArena, stored: &Stored) -> Vec<SlotId> {
        let numbers = 0..if cfg!(miri) { 8 } else { 200 };
        let rows = numbers.map(|number| {
            stored.0.lock().insert(id(number), (BatchId(1), LONG.to_vec()));
            row(arena, number, &[Some(LONG)])
        });
        rows.collect()
    }

    /// A region frozen before its rows were in a checkpoint has a cell for each of them until it leaves.
    #[test]
    fn places_shrink_when_rows_have_left() {
        let (arena, stored) = arena();
        let slots = long_rows(&arena, &stored);
        let places_bytes = || arena.region(0).unwrap().frozen().unwrap().size_bytes();
        free(&arena, arena.freeze(0, BatchId(0)).unwrap());
        let before = places_bytes();
        for _ in 0..2 {
            free(&arena, arena.freeze(0, BatchId(1)).unwrap());
        }
        assert_eq!(arena.memory().cold_count(), slots.len() as u64);
        let cells_bytes = 8 * slots.len() as u64;
        assert!(cfg!(miri) || places_bytes() <= before - cells_bytes, "{before}");
        assert_eq!(arena.memory().row_bytes(), places_bytes());
        assert!(slots.iter().all(|slot| arena.thaw(*slot).unwrap().is_some()));
    }

    /// While a region gets its slots back and is frozen again, every reader finds every row.
    #[test]
    fn no_row_is_missed_while_regions_come_and_go() {
        let (arena, stored) = arena();
        let slots = long_rows(&arena, &stored);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let find_all = |thaws: bool| {
            let mut scratch = Scratch::default();
            while !is_over.load(Ordering::Relaxed) {
                for (number, slot) in (0..).zip(&slots) {
                    let found = arena.visit(*slot, &mut scratch, |place| place.row_id());
                    assert_eq!(found.unwrap(), Some(id(number)));
                    if thaws {
                        let cold = ReadContext::default();
                        let place = arena.slot(*slot, pin(1).with_context(&cold));
                        assert_eq!(place.map(Slot::row_id), Some(id(number)));
                        assert!(arena.thaw(*slot).unwrap().is_some());
                    }
                }
            }
        };
        let left = std::thread::scope(|scope| {
            let _readers = [false, true].map(|thaws| scope.spawn(move || find_all(thaws)));
            let mut left = Vec::new();
            for _ in 0..if cfg!(miri) { 3 } else { 300 } {
                left.extend(arena.freeze(0, BatchId(1)));
                left.extend(arena.freeze(0, BatchId(1)));
                let filled = arena.read_region(0, u64::MAX, &mut Scratch::default());
                left.extend(filled.unwrap().map(|filled| arena.refill(filled)));
            }
            is_over.store(true, Ordering::Relaxed);
            left
        });
        left.into_iter().for_each(|left| free(&arena, left));
        assert_eq!((arena.memory().cold_count(), arena.memory().left_bytes()), (0, 0));
    }

    /// Threads that need the same rows get the same slots.
    #[test]
    fn a_row_comes_back_once() {
        let (arena, stored) = arena();
        let slots = long_rows(&arena, &stored);
        free(&arena, arena.freeze(0, BatchId(1)).unwrap());
        let rows = slots.len() as u64;
        assert_eq!(arena.memory().cold_count(), rows);
        let find = || {
            let places = slots.iter().map(|slot| arena.thaw(*slot).unwrap().unwrap());
            places.map(|place| place.address().addr()).collect::<Vec<_>>()
        };
        let found = std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(find));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert_eq!(arena.memory().cold_count(), 0);
        let stride = arena.region(0).unwrap().stride as usize;
        let each = super::super::slab::block_bytes(stride) + super::super::slab::block_bytes(24 + LONG.len());
        assert_eq!(arena.memory().block_bytes(), rows * each as u64);
    }
}
