//! What takes the place of a region's slots while it is frozen: a word for each of them, and the row ids.
//!
//! ```text
//!   word, 32 bits    0 (25) | turn (7) | 0                       no row
//!                    seal (24) | turn (7) | 1                    the row is cold, its id is in `row_ids`
//!                    number (13) | - (9) | used | 1 | turn (7) | 0    the row is in a slot by itself
//!                    all ones                                    another frozen region has replaced this one
//!
//!   row ids          packed, by slot (`row_ids`)
//!   number  ---->    cell: address of the slot (48) | which slot of the region (16)
//! ```
//!
//! So a cold row takes four bytes and its packed id, and a row in memory eight more. Cells come in chunks
//! that stay where they are; they are given out again as rows leave memory, so a reader that goes from a word
//! to its cell may find the cell of another row: the cell says whose it is, and the reader looks at the word
//! again.
//!
//! Row ids do not change. A row that becomes cold where there is another one's id takes a new frozen region
//! in the place of this one ([`FrozenRegion::replacement`]): all words of this one then say so.
//!
//! Who changes a word: any thread makes a cold row a slot, or marks a slot as used; a member of the open
//! batch puts a slot where there was no row; the rest happens while no batch is open, by one thread. All of
//! them but the mark hold the latch of the cells.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_base::RowId;

use super::regions::race_point;
use super::row_ids::PackedRowIds;
use super::slab::RowMemory;
use super::slots::REGION_SLOTS;

const NOTHING: u32 = 0;
const REPLACED: u32 = u32::MAX;
/// The row is cold.
const COLD: u32 = 1;
/// How often a row of this place became cold, modulo their number: who reads a row meanwhile must not take
/// the next one for it.
const TURN: u32 = 0x7f << TURN_SHIFT;
const TURN_SHIFT: u32 = 1;
/// Of a cold row, its seal, as in the flags of a version.
const SEAL: u32 = 0xffff_ff00;
/// There is a slot. With [`COLD`] it is a bit of the seal.
const SLOT: u32 = 1 << 8;
/// Somebody has used the slot since the evictor last looked.
const USED: u32 = 1 << 9;
const NUMBER_SHIFT: u32 = 19;

/// Cells of a chunk.
const CHUNK_CELLS: usize = 64;
/// With room for their numbers among those given back.
const CHUNK_BYTES: usize = size_of::<Chunk>() + CHUNK_CELLS * size_of::<u16>();
/// A cell's address is below this bit; which slot it belongs to is above.
const ADDRESS_BITS: u32 = 48;

const _: () = assert!(REGION_SLOTS <= 1 << (u32::BITS - NUMBER_SHIFT) && REGION_SLOTS <= 1 << 16);

type Cell = AtomicPtr<u8>;
type Chunk = [Cell; CHUNK_CELLS];

/// A cold row as its place told at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColdRow {
    word: u32,
    pub(super) row_id: RowId,
}

impl ColdRow {
    /// The bits of its seal, as in the flags of a version.
    pub(super) fn seal_bits(self) -> u32 {
        self.word & SEAL
    }
}

/// Where a row of a frozen region is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Where {
    /// There is no row.
    Nowhere,
    Slot(NonNull<u8>),
    Cold(ColdRow),
    /// The region is another one now: look there.
    Replaced,
}

/// Where a row is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Place {
    #[default]
    Nowhere,
    /// In this slot, and which row it is.
    Slot(NonNull<u8>, RowId),
    /// Cold, with these bits of its seal.
    Cold(RowId, u32),
}

impl Place {
    fn row_id(self) -> Option<RowId> {
        match self {
            Place::Nowhere => None,
            Place::Slot(_, row_id) | Place::Cold(row_id, _) => Some(row_id),
        }
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct FrozenRegion {
    words: Box<[AtomicU32]>,
    row_ids: PackedRowIds,
    cells: Cells,
    /// A bit for each place: set where there is a slot, so that few of them are found among many cold rows.
    /// Set after a slot was put there, cleared before it is taken away: a bit may be missing for a moment.
    with_slot: Box<[AtomicU64]>,
}

/// Where slots are, by number.
#[derive(Debug)]
struct Cells {
    /// Null where there is none yet.
    chunks: Box<[AtomicPtr<Chunk>]>,
    latch: Mutex<CellsInUse>,
}

#[derive(Debug, Default)]
struct CellsInUse {
    /// Numbers given back. Has room for all so far.
    free: Vec<u16>,
    /// Numbers so far.
    count: u16,
    /// The region has been replaced: no row of it may change.
    is_closed: bool,
}

impl FrozenRegion {
    /// Of rows that are in these places, one for each slot.
    pub(super) fn new(places: &[Place]) -> Self {
        let row_ids: Vec<Option<RowId>> = places.iter().map(|place| place.row_id()).collect();
        let chunks = places.len().div_ceil(CHUNK_CELLS);
        let frozen = FrozenRegion {
            words: places.iter().map(|_| AtomicU32::new(NOTHING)).collect(),
            row_ids: PackedRowIds::new(&row_ids),
            cells: Cells {
                chunks: (0..chunks).map(|_| AtomicPtr::default()).collect(),
                latch: Mutex::default(),
            },
            with_slot: (0..places.len().div_ceil(u64::BITS as usize))
                .map(|_| AtomicU64::new(0))
                .collect(),
        };
        for ((offset, place), word) in (0..).zip(places).zip(&frozen.words) {
            match *place {
                Place::Nowhere => {}
                Place::Slot(slot, _) => {
                    frozen.put_slot(offset, slot);
                }
                Place::Cold(_, seal_bits) => word.store(seal_bits & SEAL | COLD, Ordering::Relaxed),
            }
        }
        frozen
    }

    /// How many slots it stands for.
    pub(super) fn slot_count(&self) -> u32 {
        self.words.len() as u32
    }

    /// Memory that it takes. Grows as rows come back.
    pub(super) fn size_bytes(&self) -> u64 {
        let fixed = size_of::<Self>()
            + size_of_val::<[AtomicU32]>(&self.words)
            + size_of_val::<[AtomicU64]>(&self.with_slot)
            + size_of_val::<[AtomicPtr<Chunk>]>(&self.cells.chunks)
            + self.row_ids.size_bytes();
        let count = usize::from(self.cells.latch.lock().count);
        (fixed + count.div_ceil(CHUNK_CELLS) * CHUNK_BYTES) as u64
    }

    fn word(&self, offset: u64) -> Option<&AtomicU32> {
        self.words.get(offset as usize)
    }

    fn note_slot(&self, offset: u64) {
        if let Some(word) = self.with_slot.get((offset / u64::from(u64::BITS)) as usize) {
            word.fetch_or(1 << (offset % u64::from(u64::BITS)), Ordering::Release);
        }
    }

    fn forget_slot(&self, offset: u64) {
        if let Some(word) = self.with_slot.get((offset / u64::from(u64::BITS)) as usize) {
            word.fetch_and(!(1 << (offset % u64::from(u64::BITS))), Ordering::Relaxed);
        }
    }

    /// The slot at an offset, if its row is in memory: for somebody who uses the row.
    #[inline]
    pub(super) fn slot(&self, offset: u64) -> Option<NonNull<u8>> {
        let place = self.word(offset)?;
        let (word, found) = self.slot_at(place, offset)?;
        if word & USED == 0 {
            // Whoever changes it in the meantime uses it, too, or takes it away.
            let _ = place.compare_exchange(word, word | USED, Ordering::AcqRel, Ordering::Relaxed);
        }
        Some(found)
    }

    /// A place's word and slot, if it has a slot.
    #[inline]
    fn slot_at(&self, place: &AtomicU32, offset: u64) -> Option<(u32, NonNull<u8>)> {
        loop {
            let word = place.load(Ordering::Acquire);
            if !is_slot(word) {
                return None;
            }
            race_point();
            // Otherwise the row has left memory since, and the cell is another one's.
            if let Some(found) = self.cells.slot(word, offset) {
                return Some((word, found));
            }
        }
    }

    /// Where the row at an offset is, at one moment: it may be elsewhere at the next.
    pub(super) fn find(&self, offset: u64) -> Where {
        let Some(place) = self.word(offset) else {
            return Where::Nowhere;
        };
        loop {
            let word = place.load(Ordering::Acquire);
            if word == REPLACED {
                return Where::Replaced;
            }
            if word & COLD != 0 {
                let row_id = self.row_ids.at(offset as usize);
                return Where::Cold(ColdRow { word, row_id });
            }
            if !is_slot(word) {
                return Where::Nowhere;
            }
            race_point();
            if let Some(slot) = self.cells.slot(word, offset) {
                return Where::Slot(slot);
            }
        }
    }

    /// Whether the row at an offset is still cold, as it was found.
    pub(super) fn is_still(&self, offset: u64, cold: ColdRow) -> bool {
        let place = self.word(offset);
        place.is_some_and(|place| place.load(Ordering::Acquire) == cold.word)
    }

    /// Replaces a cold row by a slot; false if its place has changed meanwhile.
    pub(super) fn thaw(&self, offset: u64, cold: ColdRow, slot: NonNull<u8>, memory: &RowMemory) -> bool {
        let Some(place) = self.word(offset) else {
            return false;
        };
        let mut in_use = self.cells.latch.lock();
        if in_use.is_closed || place.load(Ordering::Acquire) != cold.word {
            return false;
        }
        memory.places_grow(self.put(&mut in_use, place, offset, slot));
        true
    }

    /// Puts a slot where there was another one, or no row. By the thread that freezes, or by the member that
    /// fills the slot.
    pub(super) fn set_slot(&self, offset: u64, slot: NonNull<u8>, memory: &RowMemory) {
        memory.places_grow(self.put_slot(offset, slot));
    }

    /// [`FrozenRegion::set_slot`]; returns the memory that it took.
    fn put_slot(&self, offset: u64, slot: NonNull<u8>) -> usize {
        let mut in_use = self.cells.latch.lock();
        match self.word(offset) {
            Some(place) => self.put(&mut in_use, place, offset, slot),
            None => 0,
        }
    }

    fn put(&self, in_use: &mut CellsInUse, place: &AtomicU32, offset: u64, slot: NonNull<u8>) -> usize {
        let word = place.load(Ordering::Relaxed);
        let (number, bytes) = match is_slot(word) {
            true => (number_of(word), 0),
            false => self.cells.take(in_use),
        };
        self.cells.set(number, offset, slot);
        let word = (number as u32) << NUMBER_SHIFT | USED | SLOT | word & TURN;
        place.store(word, Ordering::Release);
        self.note_slot(offset);
        bytes
    }

    /// Takes the slot away at an offset. No batch is open.
    pub(super) fn set_nothing(&self, offset: u64) {
        self.replace_slot(offset, |word| word & TURN);
    }

    /// Makes a row cold that is in a slot; false if the place has another row's id. No batch is open.
    pub(super) fn set_cold(&self, offset: u64, row_id: RowId, seal_bits: u32) -> bool {
        let is_same = self.row_ids.at(offset as usize) == row_id;
        if is_same {
            self.replace_slot(offset, |word| {
                let turn = word.wrapping_add(1 << TURN_SHIFT) & TURN;
                let cold = seal_bits & SEAL | turn | COLD;
                // Never the word of a replaced region.
                if cold == REPLACED { cold & !TURN } else { cold }
            });
        }
        is_same
    }

    fn replace_slot(&self, offset: u64, by: impl FnOnce(u32) -> u32) {
        let Some(place) = self.word(offset) else {
            return;
        };
        let mut in_use = self.cells.latch.lock();
        let word = place.load(Ordering::Relaxed);
        self.forget_slot(offset);
        place.store(by(word), Ordering::Release);
        if is_slot(word) {
            in_use.free.push(number_of(word) as u16);
        }
    }

    /// The slots in memory with their offsets, and whether each was used since this was last asked.
    pub(super) fn take_used(&self) -> impl Iterator<Item = (u64, NonNull<u8>, bool)> {
        self.offsets_with_slot().filter_map(|offset| {
            let place = self.word(offset)?;
            let (_, slot) = self.slot_at(place, offset)?;
            let is_used = place.fetch_and(!USED, Ordering::AcqRel) & USED != 0;
            Some((offset, slot, is_used))
        })
    }

    /// Whether there is a slot in memory.
    pub(super) fn has_slot(&self) -> bool {
        self.with_slot
            .iter()
            .any(|word| word.load(Ordering::Acquire) != 0)
    }

    fn offsets_with_slot(&self) -> impl Iterator<Item = u64> {
        (0..).zip(&self.with_slot).flat_map(|(number, word)| {
            let mut bits = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let bit = bits.checked_ilog2()?;
                bits &= !(1 << bit);
                Some(number * u64::from(u64::BITS) + u64::from(bit))
            })
        })
    }

    /// All slots in memory.
    pub(super) fn slots(&self) -> impl Iterator<Item = NonNull<u8>> {
        let places = (0..).zip(&self.words);
        places.filter_map(|(offset, place)| Some(self.slot_at(place, offset)?.1))
    }

    /// How many rows are cold.
    pub(super) fn cold_count(&self) -> usize {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed));
        words.filter(|word| is_cold(*word)).count()
    }

    /// Whether chunks of cells have far more room than its slots need.
    pub(super) fn is_loose(&self) -> bool {
        let in_use = self.cells.latch.lock();
        let count = usize::from(in_use.count);
        let taken = count - in_use.free.len();
        count.div_ceil(CHUNK_CELLS) > 2 * taken.div_ceil(CHUNK_CELLS) + 1
    }

    /// A frozen region with the same rows, except that those in `changed` are in these places. No batch is
    /// open. Rows do not come back until [`FrozenRegion::set_replaced`], which is to follow at once.
    /// `row_id_of` tells which row is in a slot.
    pub(super) fn replacement(
        &self,
        changed: &[(u64, Place)],
        row_id_of: impl Fn(NonNull<u8>) -> RowId,
    ) -> FrozenRegion {
        self.cells.latch.lock().is_closed = true;
        let as_it_was = |offset: u64| match self.find(offset) {
            Where::Nowhere | Where::Replaced => Place::Nowhere,
            Where::Slot(slot) => Place::Slot(slot, row_id_of(slot)),
            Where::Cold(cold) => Place::Cold(cold.row_id, cold.seal_bits()),
        };
        let mut places: Vec<Place> = (0..self.words.len() as u64).map(as_it_was).collect();
        for (offset, place) in changed {
            if let Some(to) = places.get_mut(*offset as usize) {
                *to = *place;
            }
        }
        FrozenRegion::new(&places)
    }

    /// Sends everybody to the region that has replaced this one.
    pub(super) fn set_replaced(&self) {
        for word in &self.words {
            word.store(REPLACED, Ordering::Release);
        }
    }
}

impl Cells {
    fn cell(&self, number: usize) -> Option<&Cell> {
        let chunk = self.chunks.get(number / CHUNK_CELLS)?;
        // SAFETY: null, or made in `take`, and there until `self` is dropped.
        let chunk = unsafe { chunk.load(Ordering::Acquire).as_ref() }?;
        chunk.get(number % CHUNK_CELLS)
    }

    /// The slot that a word leads to, if the cell is still that of the place at `offset`.
    #[inline]
    fn slot(&self, word: u32, offset: u64) -> Option<NonNull<u8>> {
        let cell = self.cell(number_of(word))?.load(Ordering::Acquire);
        let is_of = cell.addr() as u64 >> ADDRESS_BITS == offset;
        let slot = cell.map_addr(|address| address & ((1 << ADDRESS_BITS) - 1));
        NonNull::new(slot).filter(|_| is_of)
    }

    fn set(&self, number: usize, offset: u64, slot: NonNull<u8>) {
        assert!(
            slot.addr().get() >> ADDRESS_BITS == 0,
            "memory of a process lies below 2^48"
        );
        let cell = slot
            .as_ptr()
            .map_addr(|address| address | (offset as usize) << ADDRESS_BITS);
        if let Some(place) = self.cell(number) {
            place.store(cell, Ordering::Release);
        }
    }

    /// A cell that no place has, and the memory that it took. There are as many as places, of which each has
    /// at most one.
    fn take(&self, in_use: &mut CellsInUse) -> (usize, usize) {
        if let Some(number) = in_use.free.pop() {
            return (usize::from(number), 0);
        }
        let number = usize::from(in_use.count);
        in_use.count += 1;
        let Some(chunk) = self
            .chunks
            .get(number / CHUNK_CELLS)
            .filter(|_| number.is_multiple_of(CHUNK_CELLS))
        else {
            return (number, 0);
        };
        let cells: Box<Chunk> = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; CHUNK_CELLS]);
        chunk.store(Box::into_raw(cells), Ordering::Release);
        in_use.free.reserve_exact(number + CHUNK_CELLS);
        (number, CHUNK_BYTES)
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        for chunk in self.chunks.iter_mut().map(|chunk| *chunk.get_mut()) {
            if !chunk.is_null() {
                // SAFETY: made in `take`, once, and nobody looks into it any more.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[inline(always)]
fn is_slot(word: u32) -> bool {
    word & (COLD | SLOT) == SLOT
}

fn is_cold(word: u32) -> bool {
    word & COLD != 0 && word != REPLACED
}

#[inline(always)]
fn number_of(word: u32) -> usize {
    (word >> NUMBER_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use hashbrown::HashMap;
    use proptest::prelude::*;
    use weft_base::BatchId;

    use super::*;

    const SLOTS: usize = 300;

    /// Memory for slots; only their addresses count.
    struct Slots(Vec<u64>);

    impl Slots {
        fn new() -> Self {
            Slots(vec![0; 4 * SLOTS])
        }

        fn at(&self, number: usize) -> NonNull<u8> {
            NonNull::from(&self.0[number]).cast()
        }
    }

    fn id(number: u32) -> RowId {
        RowId {
            batch: BatchId(7),
            member: 3,
            ordinal: number,
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Expected {
        Nothing,
        /// The slot's number, which row it is, and whether it was used.
        Slot(usize, u32, bool),
        Cold(u32, u32),
    }

    fn check(frozen: &FrozenRegion, model: &[Expected], slots: &Slots) -> Result<(), TestCaseError> {
        for (offset, expected) in (0..).zip(model) {
            match (frozen.find(offset), *expected) {
                (Where::Nowhere, Expected::Nothing) => {}
                (Where::Slot(found), Expected::Slot(slot, ..)) => prop_assert_eq!(found, slots.at(slot)),
                (Where::Cold(cold), Expected::Cold(row, seal)) => {
                    prop_assert_eq!((cold.row_id, cold.seal_bits()), (id(row), seal));
                    prop_assert!(frozen.is_still(offset, cold));
                }
                other => prop_assert!(false, "{} {:?}", offset, other),
            }
        }
        let is_slot = |expected: &&Expected| matches!(expected, Expected::Slot(..));
        let is_cold = |expected: &&Expected| matches!(expected, Expected::Cold(..));
        prop_assert_eq!(frozen.slots().count(), model.iter().filter(is_slot).count());
        prop_assert_eq!(frozen.cold_count(), model.iter().filter(is_cold).count());
        prop_assert_eq!(frozen.has_slot(), model.iter().any(|expected| is_slot(&expected)));
        Ok(())
    }

    proptest! {
        /// Rows come, go and come back, and regions are replaced, as in a model; memory is counted.
        #[test]
        fn rows_are_where_they_were_put(
            steps in proptest::collection::vec((0u8..6, 0..SLOTS, any::<u32>()), 0..400),
        ) {
            let (slots, memory) = (Slots::new(), RowMemory::default());
            let mut rows_of_slots = HashMap::new();
            let mut model = vec![Expected::Nothing; SLOTS];
            let mut places = vec![Place::Nowhere; SLOTS];
            for offset in 0..SLOTS - 40 {
                let seal = (offset as u32 * 77_777) & SEAL;
                (places[offset], model[offset]) = if offset % 3 == 0 {
                    rows_of_slots.insert(slots.at(offset), offset as u32);
                    let (slot, row) = (slots.at(offset), offset as u32);
                    (Place::Slot(slot, id(row)), Expected::Slot(offset, row, true))
                } else {
                    (Place::Cold(id(offset as u32), seal), Expected::Cold(offset as u32, seal))
                };
            }
            let mut frozen = FrozenRegion::new(&places);
            memory.places_grow(frozen.size_bytes() as usize);
            for (step, offset, number) in steps {
                let (at, slot) = (offset as u64, offset + SLOTS * (1 + number as usize % 3));
                match (step, model[offset]) {
                    (0, Expected::Cold(row, _)) => {
                        let Where::Cold(cold) = frozen.find(at) else { panic!("cold") };
                        prop_assert!(frozen.thaw(at, cold, slots.at(slot), &memory));
                        prop_assert!(!frozen.thaw(at, cold, slots.at(slot), &memory));
                        rows_of_slots.insert(slots.at(slot), row);
                        model[offset] = Expected::Slot(slot, row, true);
                    }
                    (1, Expected::Nothing | Expected::Slot(..)) => {
                        frozen.set_slot(at, slots.at(slot), &memory);
                        rows_of_slots.insert(slots.at(slot), number % 500);
                        model[offset] = Expected::Slot(slot, number % 500, true);
                    }
                    (2, Expected::Slot(..)) => {
                        frozen.set_nothing(at);
                        model[offset] = Expected::Nothing;
                    }
                    (3, Expected::Slot(_, row, _)) => {
                        let seal = number & SEAL;
                        if !frozen.set_cold(at, id(row), seal) {
                            let row_of = |slot| id(rows_of_slots[&slot]);
                            let next = frozen.replacement(&[(at, Place::Cold(id(row), seal))], row_of);
                            // Nobody may make a row a slot here that is cold there.
                            let found = (0..).zip(&model).find_map(|(at, _)| match frozen.find(at) {
                                Where::Cold(cold) => Some((at, cold)),
                                _ => None,
                            });
                            if let Some((at, cold)) = found.filter(|(at, _)| *at < SLOTS as u64) {
                                prop_assert!(!frozen.thaw(at, cold, slots.at(0), &memory));
                            }
                            frozen.set_replaced();
                            let is_replaced = |at| matches!(frozen.find(at), Where::Replaced);
                            prop_assert!((0..SLOTS as u64).all(is_replaced));
                            prop_assert!(frozen.slot(at).is_none() && frozen.cold_count() == 0);
                            memory.region_bytes.fetch_sub(frozen.size_bytes(), Ordering::Relaxed);
                            memory.places_grow(next.size_bytes() as usize);
                            frozen = next;
                            for expected in &mut model {
                                if let Expected::Slot(_, _, is_used) = expected {
                                    *is_used = true;
                                }
                            }
                        }
                        model[offset] = Expected::Cold(row, seal);
                    }
                    (4, Expected::Slot(slot, row, _)) => {
                        prop_assert_eq!(frozen.slot(at), Some(slots.at(slot)));
                        model[offset] = Expected::Slot(slot, row, true);
                    }
                    (5, _) => {
                        let mut used: Vec<_> = frozen.take_used().collect();
                        used.sort_unstable();
                        let mut expected = Vec::new();
                        for (at, place) in (0..).zip(&mut model) {
                            if let Expected::Slot(slot, _, is_used) = place {
                                expected.push((at, slots.at(*slot), *is_used));
                                *is_used = false;
                            }
                        }
                        prop_assert_eq!(used, expected);
                    }
                    _ => {}
                }
            }
            check(&frozen, &model, &slots)?;
            prop_assert_eq!(memory.row_bytes(), frozen.size_bytes());
        }
    }

    /// A row that left memory and came back is not the one that somebody began to read before.
    #[test]
    fn a_row_that_was_back_meanwhile_is_another_one() {
        let (slots, memory) = (Slots::new(), RowMemory::default());
        let frozen = FrozenRegion::new(&[Place::Cold(id(1), 0x100)]);
        let Where::Cold(before) = frozen.find(0) else {
            panic!("cold")
        };
        assert!(frozen.thaw(0, before, slots.at(0), &memory) && frozen.set_cold(0, id(1), 0x100));
        assert!(!frozen.is_still(0, before) && !frozen.thaw(0, before, slots.at(0), &memory));
        // Not even a row whose seal has all bits set looks like a region that was replaced.
        for _ in 0..300 {
            let Where::Cold(cold) = frozen.find(0) else {
                panic!("cold")
            };
            assert!(frozen.thaw(0, cold, slots.at(0), &memory) && frozen.set_cold(0, id(1), SEAL));
        }
    }

    /// While one thread makes rows cold and others bring them back, a place never leads to the slot of
    /// another: cells are used for one place after the other.
    #[test]
    fn cells_that_are_used_again_lead_nobody_astray() {
        let (slots, memory) = (Slots::new(), RowMemory::default());
        let count = 70;
        let places: Vec<Place> = (0..count).map(|row| Place::Cold(id(row), 0)).collect();
        let frozen = FrozenRegion::new(&places);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for offset in (0..u64::from(count)).cycle() {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        match frozen.find(offset) {
                            Where::Slot(found) => assert_eq!(found, slots.at(offset as usize)),
                            Where::Cold(cold) => assert_eq!(cold.row_id, id(offset as u32)),
                            other => panic!("{other:?}"),
                        }
                        if let Some(found) = frozen.slot(offset) {
                            assert_eq!(found, slots.at(offset as usize));
                        }
                    }
                });
            }
            // Few rows at a time are in memory, so that they take each other's cells.
            for turn in 0..if cfg!(miri) { 200 } else { 10_000 } {
                let offset = weft_ops::mix64(turn) % u64::from(count);
                if let Where::Cold(cold) = frozen.find(offset) {
                    assert!(frozen.thaw(offset, cold, slots.at(offset as usize), &memory));
                }
                for offset in [offset, (offset + 1) % u64::from(count)] {
                    if let Where::Slot(_) = frozen.find(offset) {
                        assert!(frozen.set_cold(offset, id(offset as u32), 0));
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(frozen.cells.latch.lock().count < 4, "cells are used again");
    }
}
