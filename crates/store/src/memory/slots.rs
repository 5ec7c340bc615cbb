//! The slots of one table: permanent, numbered places that hold rows.
//!
//! ```text
//!   slot, a fixed stride in a region of its table
//!     0   8  newest version: the inline one below, or a block elsewhere
//!     8  16  row id
//!    24  24  header of the inline version: batch, older version, length, flags    (version.rs)
//!    48   .  bytes of the inline version
//! ```
//!
//! A slot has space for one version, the inline version. A row that is only inserted is stored there, so an
//! index line leads to slot, header and row in one step. Versions that find the inline space taken, or do not
//! fit, are stored in blocks. When nobody sees a superseded inline version any more its space becomes free:
//! the next update writes there, or the collector relocates the row into it
//! ([`SlotArena::inline_space_freed`]).
//!
//! Region r holds the slot numbers from r * 4096 on: 256 slots in a table's first region, then 1024, then
//! 4096, at addresses that never change. Its stride follows from the rows that the table has seen:
//! the longest one's length when lengths hardly differ, their mean otherwise. (regions.rs)
//!
//! A region has a mark for every 64 slots: whether one of them was written since a checkpoint last took the
//! marks. The mark is next to the region's address, which a writer has just read, and is written once between
//! two checkpoints, so it costs a write next to nothing. So is the address of what the copy of the region's
//! columns, if there is one, has to be told of ([`crate::columns`]).

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weft_base::TableId;

use super::SlotId;
use super::arena::Kind;
use super::regions::{Found, Region, Regions};
use super::slab::{RowMemory, class_bytes, class_of};
use super::slot::{SLOT_OVERHEAD, Slot};
use super::version::{self, Pin, Retired, VersionRef};
use crate::columns::RegionColumns;

const REGION_BITS: u32 = 12;
/// Slot numbers per region.
pub(crate) const REGION_SLOTS: u64 = 1 << REGION_BITS;
const FIRST_REGION_SLOTS: u32 = 256;
/// Each of the first regions has four times the slots of the previous one.
const GROWTH_BITS: u32 = 2;
/// Rows that would need a longer slot are stored in blocks.
const STRIDE_MAX: usize = 4_096;
const STRIDE_MIN: usize = 64;
/// Slots up to this long are a multiple of 8 bytes, longer ones of a cache line.
const CLOSE_BYTES_MAX: usize = 512;
/// One insertion in so many counts for the mean length.
const SAMPLE_EVERY: u64 = 8;
/// Slots that share a mark.
const GROUP_BITS: u32 = 6;
const _: () = assert!(REGION_SLOTS >> GROUP_BITS == u64::BITS as u64);

/// All slots of a table.
pub(crate) struct SlotArena {
    table: TableId,
    /// Bytes of the versions linked here.
    linked_bytes: AtomicU64,
    /// The newest checkpoint does not have these rows any more.
    is_replaced: AtomicBool,
    /// More of them under the latch of `growth`.
    regions: Regions,
    /// The region that is being filled, and how many of its slots are taken: region << 32 | taken. The count
    /// may exceed the region's slots.
    cursor: AtomicU64,
    /// Regions made, under the latch of `growth` when it changes.
    region_count: AtomicU32,
    growth: Mutex<()>,
    free: Mutex<Vec<SlotId>>,
    free_count: AtomicUsize,
    /// The longest row, and sums of sampled lengths, for the stride of the next region.
    pub(super) row_bytes_max: AtomicUsize,
    pub(super) sampled_bytes: AtomicU64,
    pub(super) sampled_rows: AtomicU64,
    memory: Arc<RowMemory>,
}

impl SlotArena {
    pub(crate) fn new(table: TableId, memory: &Arc<RowMemory>) -> Self {
        SlotArena {
            table,
            linked_bytes: AtomicU64::new(0),
            is_replaced: AtomicBool::new(false),
            regions: Regions::new(),
            cursor: AtomicU64::new(u64::from(u32::MAX) << 32),
            region_count: AtomicU32::new(0),
            growth: Mutex::new(()),
            free: Mutex::new(Vec::new()),
            free_count: AtomicUsize::new(0),
            row_bytes_max: AtomicUsize::new(0),
            sampled_bytes: AtomicU64::new(0),
            sampled_rows: AtomicU64::new(0),
            memory: Arc::clone(memory),
        }
    }

    /// The row memory that slots and versions come from.
    pub(crate) fn memory(&self) -> &Arc<RowMemory> {
        &self.memory
    }

    /// The table whose rows these are.
    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// The next checkpoint will not have these rows: who still needs cold ones, in an old snapshot, does not
    /// get them.
    pub(crate) fn set_replaced(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }

    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Acquire)
    }

    /// Accounts for versions linked.
    pub(crate) fn linked(&self, bytes: u64) {
        self.linked_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.memory.add(bytes);
    }

    /// Accounts for a version unlinked; it stays in the store's counter until it is freed.
    pub(crate) fn unlinked(&self, bytes: usize) {
        self.linked_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Whether slots of this region are still given out for the first time.
    pub(crate) fn is_being_filled(&self, region: u64) -> bool {
        self.cursor.load(Ordering::Acquire) >> 32 == region
    }

    /// Regions so far.
    pub(crate) fn region_count(&self) -> u64 {
        u64::from(self.region_count.load(Ordering::Acquire))
    }

    /// The slots of one region that are in use or once were.
    pub(crate) fn ids_in(&self, region: u64) -> impl Iterator<Item = SlotId> + use<> {
        let slots = self.region(region).map_or(0, |region| region.slots);
        let cursor = self.cursor.load(Ordering::Acquire);
        let taken = if cursor >> 32 == region {
            slots.min(cursor as u32)
        } else {
            slots
        };
        let first = region << REGION_BITS;
        (first..first + u64::from(taken)).map(SlotId)
    }

    /// The slot with this number, if it exists, marked as written. A member of the open batch only.
    #[inline]
    pub(crate) fn slot_to_write(&self, slot: SlotId) -> Option<Slot<'_>> {
        let region = self.region(slot.0 >> REGION_BITS)?;
        let place = region.slot(slot)?;
        let bit = 1 << ((slot.0 & (REGION_SLOTS - 1)) >> GROUP_BITS);
        if region.written.load(Ordering::Relaxed) & bit == 0 {
            region.written.fetch_or(bit, Ordering::Relaxed);
        }
        if region.touched.load(Ordering::Relaxed) & bit == 0 {
            region.touched.fetch_or(bit, Ordering::Relaxed);
        }
        region.note_change(slot.0 & (REGION_SLOTS - 1));
        Some(place)
    }

    /// The copy of a region's columns.
    pub(crate) fn columns(&self, region: u64) -> Option<Arc<RegionColumns>> {
        self.region(region)?.columns()
    }

    /// Replaces the copy of a region's columns; returns the one before. No batch is open.
    pub(crate) fn set_columns(
        &self,
        region: u64,
        columns: Option<Arc<RegionColumns>>,
    ) -> Option<Arc<RegionColumns>> {
        self.region(region)?.set_columns(columns)
    }

    /// Counts a reading of a region in its slots, while there is no copy of its columns.
    pub(crate) fn note_read(&self, region: u64) {
        if let Some(region) = self.region(region) {
            region.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many readings were counted.
    pub(crate) fn reads(&self, region: u64) -> u32 {
        self.region(region)
            .map_or(0, |region| region.reads.load(Ordering::Relaxed))
    }

    /// Takes and clears the marks of all regions. No batch is open, so the writes of all batches so far are
    /// in them.
    pub(crate) fn take_written(&self) -> Vec<u64> {
        self.take_marks(|region| &region.written)
    }

    /// The same for the marks of indexes that are being prepared.
    pub(crate) fn take_touched(&self) -> Vec<u64> {
        self.take_marks(|region| &region.touched)
    }

    fn take_marks(&self, which: impl Fn(&Region) -> &AtomicU64) -> Vec<u64> {
        let regions = (0..self.region_count()).map(|number| self.region(number));
        regions
            .map(|region| region.map_or(0, |region| which(region).swap(0, Ordering::Relaxed)))
            .collect()
    }

    /// Sets marks again that were taken. Any time.
    pub(crate) fn give_written_back(&self, marks: &[u64]) {
        for (number, marks) in (0..).zip(marks) {
            if let Some(region) = self.region(number) {
                region.written.fetch_or(*marks, Ordering::Relaxed);
            }
        }
    }

    /// The slots that these marks, of all regions, stand for.
    pub(crate) fn ids_of_marks(&self, marks: &[u64]) -> impl Iterator<Item = SlotId> {
        let regions = (0..).zip(marks).filter(|(_, marks)| **marks != 0);
        regions.flat_map(|(region, marks)| {
            let is_marked =
                move |slot: &SlotId| marks >> ((slot.0 & (REGION_SLOTS - 1)) >> GROUP_BITS) & 1 == 1;
            self.ids_in(region).filter(is_marked)
        })
    }

    /// All slots in use or once used.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SlotId> {
        (0..self.region_count()).flat_map(|region| self.ids_in(region))
    }

    /// Memory of the slots in use or once used, and of the places of cold rows.
    pub(crate) fn size_bytes(&self) -> u64 {
        let bytes = |number| {
            self.region(number).map_or(0, |region| match region.frozen() {
                Some(frozen) => frozen.size_bytes(),
                None => self.ids_in(number).count() as u64 * u64::from(region.stride),
            })
        };
        (0..self.region_count()).map(bytes).sum()
    }

    /// Slots on the free list.
    #[cfg(test)]
    pub(crate) fn free_len(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// A slot for a new row of so many bytes. Any thread.
    pub(crate) fn reserve(&self, row_bytes: usize) -> SlotId {
        self.note_longest(row_bytes);
        if self.free_count.load(Ordering::Relaxed) > 0 {
            let mut free = self.free.lock();
            if let Some(slot) = free.pop() {
                self.free_count.store(free.len(), Ordering::Relaxed);
                return slot;
            }
        }
        let slot = SlotId(self.take_slots(1).start);
        self.note_sample(slot, row_bytes);
        slot
    }

    /// Up to `count` consecutive slots, at least one, for rows that are stored one after another, the first
    /// of this many bytes. Each row's length is to be reported when it is known ([`SlotArena::note`]), and
    /// what is left over to be returned ([`SlotArena::put_back`]). Any thread.
    pub(crate) fn reserve_run(&self, count: u32, row_bytes: usize) -> Range<u64> {
        self.note_longest(row_bytes);
        self.take_slots(count.max(1))
    }

    /// Reports the length of the row in a slot of a run.
    pub(crate) fn note(&self, slot: SlotId, row_bytes: usize) {
        self.note_longest(row_bytes);
        self.note_sample(slot, row_bytes);
    }

    /// Takes back the unused end of a run.
    pub(crate) fn put_back(&self, rest: Range<u64>) {
        if rest.is_empty() {
            return;
        }
        // Nobody opens another region in the meantime: slots returned to this one would be lost.
        let _growth = self.growth.lock();
        let region = rest.start >> REGION_BITS;
        let cursor_at = |slot: u64| region << 32 | (slot - (region << REGION_BITS));
        let is_last = self.cursor.compare_exchange(
            cursor_at(rest.end),
            cursor_at(rest.start),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if is_last.is_err() {
            let mut free = self.free.lock();
            free.extend(rest.map(SlotId));
            self.free_count.store(free.len(), Ordering::Relaxed);
        }
    }

    /// The next slots of the region that is being filled: as many as requested, or as are left.
    fn take_slots(&self, count: u32) -> Range<u64> {
        loop {
            let cursor = self.cursor.fetch_add(u64::from(count), Ordering::AcqRel);
            let (region, offset) = (cursor >> 32, cursor as u32);
            let slots = self.region(region).map_or(0, |region| region.slots);
            if offset < slots {
                let first = region << REGION_BITS;
                return first + u64::from(offset)..first + u64::from(slots.min(offset.saturating_add(count)));
            }
            self.grow();
        }
    }

    fn note_longest(&self, row_bytes: usize) {
        if row_bytes > self.row_bytes_max.load(Ordering::Relaxed) {
            self.row_bytes_max.fetch_max(row_bytes, Ordering::Relaxed);
        }
    }

    fn note_sample(&self, slot: SlotId, row_bytes: usize) {
        if slot.0.is_multiple_of(SAMPLE_EVERY) {
            self.sampled_bytes.fetch_add(row_bytes as u64, Ordering::Relaxed);
            self.sampled_rows.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a region unless another thread has done so.
    fn grow(&self) {
        let _growth = self.growth.lock();
        let cursor = self.cursor.load(Ordering::Acquire);
        if self
            .region(cursor >> 32)
            .is_some_and(|region| (cursor as u32) < region.slots)
        {
            return;
        }
        let number = self.region_count.load(Ordering::Relaxed);
        let slots = FIRST_REGION_SLOTS
            .checked_shl(number.saturating_mul(GROWTH_BITS).min(16))
            .map_or(REGION_SLOTS as u32, |slots| slots.min(REGION_SLOTS as u32));
        let stride = self.next_stride();
        let base = self.memory.arena.take(Kind::Slots, slots as usize * stride);
        let region = Region::new(base, stride as u32, slots);
        self.memory
            .region_bytes
            .fetch_add(region.slots_bytes() as u64, Ordering::Relaxed);
        // SAFETY: the latch of growth is held.
        unsafe { self.regions.add(number as usize, region) };
        self.region_count.store(number + 1, Ordering::Release);
        self.cursor.store(u64::from(number) << 32, Ordering::Release);
    }

    /// Adds a region whose slots are all given out.
    pub(super) fn add_full(&self, region: Region) {
        let _growth = self.growth.lock();
        let number = self.region_count.load(Ordering::Relaxed);
        let cursor = u64::from(number) << 32 | u64::from(region.slots);
        // SAFETY: the latch of growth is held.
        unsafe { self.regions.add(number as usize, region) };
        self.region_count.store(number + 1, Ordering::Release);
        self.cursor.store(cursor, Ordering::Release);
    }

    /// Adds slots that new rows may use.
    pub(super) fn give_free(&self, slots: Vec<SlotId>) {
        let mut free = self.free.lock();
        free.extend(slots);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// Whether slots may have this length.
    pub(super) fn is_stride(bytes: u32) -> bool {
        (STRIDE_MIN..=STRIDE_MAX).contains(&(bytes as usize)) && bytes.is_multiple_of(8)
    }

    fn next_stride(&self) -> usize {
        let longest = self.row_bytes_max.load(Ordering::Relaxed);
        let rows = self.sampled_rows.load(Ordering::Relaxed);
        let mean = self
            .sampled_bytes
            .load(Ordering::Relaxed)
            .checked_div(rows)
            .map_or(longest, |mean| mean as usize);
        let typical = if longest <= mean + mean / 4 { longest } else { mean };
        let bytes = SLOT_OVERHEAD + typical;
        // Short rows lie close; long ones begin at a cache line.
        let stride = if bytes <= CLOSE_BYTES_MAX {
            Some(bytes.next_multiple_of(8))
        } else {
            class_of(bytes).map(class_bytes)
        };
        stride
            .filter(|stride| *stride <= STRIDE_MAX)
            .unwrap_or(0)
            .max(STRIDE_MIN)
    }

    /// Takes back a slot that no index entry leads to and in which no reader sees a row: at once, or when its
    /// inline space is free.
    pub(crate) fn release(&self, slot: SlotId) {
        if !self
            .resident(slot)
            .is_some_and(|place| place.inline().release_later())
        {
            let mut free = self.free.lock();
            free.push(slot);
            self.free_count.store(free.len(), Ordering::Relaxed);
        }
    }

    /// The version that was in the slot's inline space is unlinked and unused: the space is free. If the slot
    /// waits for that it is released; if its row is in a block alone it is relocated, and the version in the
    /// block is returned. Garbage collector only.
    pub(crate) fn inline_space_freed(&self, slot: SlotId, place: Slot<'_>) -> Option<Retired> {
        if place.inline().leave() {
            self.release(slot);
            return None;
        }
        place.move_inline()
    }

    /// The slot of that number, if it is in memory: for hints, and for those who know that it is.
    #[inline]
    pub(crate) fn resident(&self, slot: SlotId) -> Option<Slot<'_>> {
        self.region_of(slot)?.slot(slot)
    }

    /// The same for those who look at rows without using them: the evictor does not spare the row for it.
    pub(crate) fn peek(&self, slot: SlotId) -> Option<Slot<'_>> {
        self.region_of(slot)?.peek(slot)
    }

    /// The slot of that number. Reads a cold row into memory, if the pin needs those; what comes of it is to
    /// be asked of the pin.
    #[inline(always)]
    pub(crate) fn slot<'s>(&'s self, slot: SlotId, pin: Pin<'s>) -> Option<Slot<'s>> {
        let region = self.region_of(slot)?;
        match region.slot(slot) {
            Some(found) => Some(found),
            None => self.slot_of_cold(region, slot, pin),
        }
    }

    #[cold]
    fn slot_of_cold<'s>(&'s self, region: &'s Region, slot: SlotId, pin: Pin<'s>) -> Option<Slot<'s>> {
        match region.find(slot)? {
            Found::Slot(place) => Some(place),
            Found::Cold(..) => pin.context()?.note(self.thaw(slot)),
        }
    }

    #[inline]
    pub(super) fn region_of(&self, slot: SlotId) -> Option<&Region> {
        self.region(slot.0 >> REGION_BITS)
    }

    #[inline]
    pub(super) fn region(&self, number: u64) -> Option<&Region> {
        self.regions.get(number)
    }
}

impl Drop for SlotArena {
    /// Nobody borrows the arena, so nobody uses a version. Unlinked ones in blocks are queued elsewhere, and
    /// so are slots that a freezing left behind.
    fn drop(&mut self) {
        self.memory.subtract(*self.linked_bytes.get_mut());
        for slot in self.ids().filter_map(|id| self.resident(id)) {
            let mut next = slot.newest_raw();
            while let Some(version) = NonNull::new(next) {
                // SAFETY: exclusive access; each version is in one chain only.
                unsafe {
                    next =
                        VersionRef::from_raw(version.as_ptr()).map_or(ptr::null_mut(), VersionRef::older_raw);
                    version::free_version(version, &self.memory);
                }
            }
        }
        for region in (0..self.region_count()).filter_map(|number| self.region(number)) {
            let bytes = match region.frozen() {
                Some(frozen) => {
                    for slot in frozen.slots() {
                        // SAFETY: taken with this size; the table is gone.
                        unsafe { self.memory.deallocate(slot, region.stride as usize) };
                    }
                    let cold = frozen.cold_count() as u64;
                    self.memory.cold_count.fetch_sub(cold, Ordering::Relaxed);
                    frozen.size_bytes()
                }
                None => {
                    let bytes = region.slots_bytes();
                    // SAFETY: taken in `grow` with this size; the table is gone.
                    unsafe { self.memory.arena.deallocate(Kind::Slots, region.base(), bytes) };
                    bytes as u64
                }
            };
            self.memory.region_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_base::{BatchId, RowId};

    use super::*;

    fn arena() -> SlotArena {
        SlotArena::new(TableId(1), &Arc::default())
    }

    fn pin() -> Pin<'static> {
        // SAFETY: nothing is freed in these tests while versions are looked at.
        unsafe { Pin::new(Pin::EVERYTHING) }
    }

    fn see(slot: Slot<'_>, horizon: u64) -> Option<(bool, Vec<u8>)> {
        // SAFETY: nothing is freed in these tests while versions are looked at.
        let pin = unsafe { Pin::new(horizon) };
        slot.at(pin)
            .map(|version| (version.is_live(), version.bytes().to_vec()))
    }

    #[test]
    fn chains_show_each_reader_its_version() {
        let arena = arena();
        let memory = arena.memory();
        let slot = arena.resident(arena.reserve(5)).unwrap();
        let row_id = RowId {
            batch: BatchId(3),
            member: 7,
            ordinal: u32::MAX,
        };
        slot.set_row_id(row_id);
        slot.push(pin(), BatchId(3), Some(b"three"), memory);
        slot.push(pin(), BatchId(5), Some(b"five"), memory);
        slot.push(pin(), BatchId(9), None, memory);
        assert_eq!(see(slot, 2), None);
        assert_eq!(see(slot, 4), Some((true, b"three".to_vec())));
        assert_eq!(see(slot, 8), Some((true, b"five".to_vec())));
        assert_eq!(see(slot, u64::MAX), Some((false, Vec::new())));
        assert_eq!(slot.row_id(), row_id);

        let popped = slot.pop().unwrap();
        assert_eq!(see(slot, 9), Some((true, b"five".to_vec())));
        // SAFETY: unlinked, no reference left.
        unsafe { popped.free(memory) };
        // SAFETY: nothing is freed while the pin is used.
        let head = slot.at(unsafe { Pin::new(u64::MAX) }).unwrap();
        let cut: Vec<Retired> = head.cut().collect();
        assert_eq!((cut.len(), see(slot, 4)), (1, None));
        assert!(
            cut.into_iter().all(|version| version.is_inline()),
            "the first one lay in the slot"
        );
    }

    #[test]
    fn rows_in_blocks_are_relocated() {
        let arena = arena();
        let memory = arena.memory();
        let id = arena.reserve(100);
        let slot = arena.resident(id).unwrap();
        slot.push(pin(), BatchId(1), Some(&[1; 100]), memory);
        assert_eq!((slot.newest_elsewhere(), memory.block_bytes()), (None, 0));
        slot.push(pin(), BatchId(2), Some(&[2; 90]), memory);
        // SAFETY: nothing is freed while the pin is used.
        slot.at(unsafe { Pin::new(2) })
            .unwrap()
            .seal(0x1234_5678_9abc, false);
        assert!(slot.newest_elsewhere().is_some());
        // SAFETY: nothing is freed while the pin is used.
        let cut: Vec<Retired> = slot.at(unsafe { Pin::new(2) }).unwrap().cut().collect();
        assert!(cut.len() == 1 && cut[0].is_inline());
        let left = arena.inline_space_freed(id, slot).unwrap();
        assert!(!left.is_inline());
        assert_eq!(see(slot, 2), Some((true, vec![2; 90])));
        // SAFETY: nothing is freed while the pin is used.
        let moved = slot.at(unsafe { Pin::new(2) }).unwrap();
        assert!(moved.is_sealed_with(0x1234_5678_9abc) && !moved.is_sealed_with(0x1234_5678_9abd));
        assert_eq!(
            (slot.newest_elsewhere(), left.view().bytes()),
            (None, [2u8; 90].as_slice())
        );
        // SAFETY: moved, no reference left.
        unsafe { left.free(memory) };
        assert_eq!(memory.block_bytes(), 0);
        // Nothing to move: the row is there, or does not fit.
        slot.push(pin(), BatchId(3), Some(&[3; 200]), memory);
        // SAFETY: nothing is freed while the pin is used.
        let cut: Vec<Retired> = slot.at(unsafe { Pin::new(3) }).unwrap().cut().collect();
        assert_eq!(cut.len(), 1);
        assert!(arena.inline_space_freed(id, slot).is_none());
        assert_eq!(see(slot, 3), Some((true, vec![3; 200])));
    }

    /// Runs lie side by side within a region; what is left over comes again, at the end or from the list.
    #[test]
    fn runs_of_slots_are_given_out_once() {
        let arena = arena();
        let first = arena.reserve_run(100, 8);
        assert_eq!(first, 0..100);
        arena.put_back(40..100);
        assert_eq!((arena.reserve_run(100, 8), arena.free_len()), (40..140, 0));
        assert_eq!(arena.reserve(8), SlotId(140));
        arena.put_back(130..140);
        assert_eq!(arena.free_len(), 10, "not the last ones");
        arena.put_back(5..5);
        let taken: std::collections::BTreeSet<u64> = (0..10).map(|_| arena.reserve(8).0).collect();
        assert!(taken.into_iter().eq(130..140));
        assert_eq!(arena.reserve_run(200, 8), 141..256, "a region's end");
        arena.put_back(200..256);
        assert_eq!(arena.free_len(), 56, "the count has run past the region's end");
        let mut runs = std::thread::scope(|scope| {
            let run = |_| scope.spawn(|| (0..50).map(|_| arena.reserve_run(300, 8)).collect::<Vec<_>>());
            let threads: Vec<_> = (0..3).map(run).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        runs.sort_by_key(|run| run.start);
        for pair in runs.windows(2) {
            assert!(!pair[0].is_empty() && pair[0].end <= pair[1].start, "{pair:?}");
        }
        assert!(
            runs.iter()
                .flat_map(Clone::clone)
                .all(|slot| arena.resident(SlotId(slot)).is_some())
        );
    }

    #[test]
    fn released_slots_are_reused_when_their_inline_space_is_free() {
        let arena = arena();
        let slots: Vec<SlotId> = (0..1_000).map(|_| arena.reserve(8)).collect();
        assert_eq!((slots[255], slots[256]), (SlotId(255), SlotId(4_096)));
        assert_eq!(arena.ids().collect::<Vec<_>>(), slots);
        arena.release(slots[500]);
        assert_eq!(arena.free_len(), 1);
        assert_eq!(arena.reserve(8), slots[500]);
        let slot = arena.resident(slots[7]).unwrap();
        slot.push(pin(), BatchId(1), Some(&[7; 8]), arena.memory());
        let popped = slot.pop().unwrap();
        arena.release(slots[7]);
        assert_eq!((popped.is_inline(), arena.free_len()), (true, 0));
        assert!(arena.inline_space_freed(slots[7], slot).is_none());
        assert_eq!((arena.free_len(), arena.reserve(8)), (1, slots[7]));
        assert!(arena.resident(SlotId(1 << 60)).is_none() && arena.resident(SlotId(256)).is_none());
    }

    #[test]
    fn marks_represent_slots_until_they_are_taken() {
        let arena = arena();
        let slots: Vec<SlotId> = (0..2_000).map(|_| arena.reserve(8)).collect();
        let written = [0, 63, 64, 255, 256, 300, 1_999];
        written
            .iter()
            .for_each(|at| assert!(arena.slot_to_write(slots[*at]).is_some()));
        let marks = arena.take_written();
        let found: Vec<SlotId> = arena.ids_of_marks(&marks).collect();
        assert!(written.iter().all(|at| found.contains(&slots[*at])));
        assert!(found.len() <= 6 * 64 && found.is_sorted());
        assert!(arena.ids_of_marks(&arena.take_written()).next().is_none());
        assert!(arena.slot_to_write(slots[700]).is_some());
        arena.give_written_back(&marks);
        let again: Vec<SlotId> = arena.ids_of_marks(&arena.take_written()).collect();
        assert!(again.contains(&slots[700]) && found.iter().all(|slot| again.contains(slot)));
        // A region made after the marks were taken has none.
        let more: Vec<SlotId> = (0..9_000).map(|_| arena.reserve(8)).collect();
        more.iter()
            .for_each(|slot| assert!(arena.slot_to_write(*slot).is_some()));
        assert!(arena.region_count() > marks.len() as u64);
        assert!(
            arena
                .ids_of_marks(&marks)
                .all(|slot| slot.0 >> REGION_BITS < marks.len() as u64)
        );
    }

    #[test]
    fn strides_follow_the_rows() {
        for (row_bytes, stride) in [
            (1usize, 64),
            (100, 152),
            (1_098, 1_152),
            (4_048, 4_096),
            (100_000, 64),
        ] {
            let arena = arena();
            arena.reserve(row_bytes);
            assert_eq!(arena.size_bytes(), stride, "{row_bytes}");
        }
    }
}
