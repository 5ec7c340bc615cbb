//! Rows that are not in memory: cold rows, and what those do who meet one.
//!
//! ```text
//!   region of slots --freeze--> place for each slot, 24 bytes
//!                                 0          no row
//!                                 address    a slot allocated by itself: the row is in memory
//!                                 odd        the row is cold: its seal; its id is beside it
//! ```
//!
//! A cold row has one version, and the newest checkpoint holds it. Its place says which row it is, so that it
//! can be read from there ([`ColdRows`]), and what its seal was, so that nothing else is taken for it. A row
//! that somebody needs becomes a slot again (it is *thawed*); whole tables are read without that. Slot
//! numbers do not change, so no index does.
//!
//! Whoever needs the row waits for it, members of a batch included. Whoever reads must ask
//! [`ColdAccess::check`] before it uses what it found: a row that could not be read is not a row that is not
//! there.
//!
//! Source: decision 0027.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weft_base::{BatchId, RowId, TableId};
use weft_ops::hash64;
use weft_types::SqlError;

use super::slot::Slot;

/// Where cold rows are read from.
pub(crate) trait ColdRows: fmt::Debug + Send + Sync {
    /// Puts a row's bytes into `row`, replacing what was there; returns the batch that wrote it.
    ///
    /// # Errors
    /// The disk's; a damaged file; no such row.
    fn read(&self, table: TableId, row_id: RowId, row: &mut Vec<u8>) -> Result<BatchId, SqlError>;

    /// What is kept in memory to read them.
    fn memory_bytes(&self) -> u64;

    /// For who reads many rows in the order of their ids, this one first. `None` if there is no such way.
    fn in_order(&self, table: TableId, first: RowId) -> Option<Box<dyn ColdRowsInOrder>>;
}

/// Cold rows, read in the order of their ids.
pub(crate) trait ColdRowsInOrder: Send {
    /// As [`ColdRows::read`]. `None` if the row is not a little ahead of the one before, or if it cannot be
    /// read: it is then to be read by itself. Shows rows as they were stored when this was made.
    fn read(&mut self, row_id: RowId, row: &mut Vec<u8>) -> Option<BatchId>;
}

/// Cold rows that are read one by one before all that follow are read in order, and that may be missing
/// there before it is given up.
const ALONE: u32 = 16;
/// Reading in order pays from about so many rows on; if it gave fewer, twice as many are read alone next
/// time.
const FOUND_MIN: u32 = 64;
const DOUBLINGS_MAX: u32 = 12;

/// Reads rows ahead for who visits one after the other: most of them are stored one behind the other, too.
#[derive(Default)]
pub(super) struct ReadAhead {
    rows: Option<Box<dyn ColdRowsInOrder>>,
    /// Rows that `rows` has had.
    found: u32,
    /// Rows that were read alone since then.
    alone: u32,
    doublings: u32,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("found", &self.found)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

impl ReadAhead {
    /// As [`ColdRowsInOrder::read`].
    pub(super) fn read(
        &mut self,
        stored: &dyn ColdRows,
        table: TableId,
        row_id: RowId,
        row: &mut Vec<u8>,
    ) -> Option<BatchId> {
        if self.rows.is_none() && self.alone >= ALONE << self.doublings {
            (self.rows, self.found, self.alone) = (stored.in_order(table, row_id), 0, 0);
        }
        let read = self.rows.as_mut().and_then(|rows| rows.read(row_id, row));
        if read.is_some() {
            (self.found, self.alone) = (self.found.saturating_add(1), 0);
            return read;
        }
        self.alone = self.alone.saturating_add(1);
        if self.rows.is_some() && self.alone == ALONE {
            self.rows = None;
            self.doublings = match self.found < FOUND_MIN {
                true => (self.doublings + 1).min(DOUBLINGS_MAX),
                false => 0,
            };
        }
        None
    }
}

/// For those who need cold rows: why the first one that could not be read was not.
#[derive(Debug, Default)]
pub(crate) struct ColdAccess(OnceLock<SqlError>);

impl ColdAccess {
    /// Fails if a row was needed that could not be read: then what was found is not all there is.
    ///
    /// # Errors
    /// Why it was not read.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        match self.0.get() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// The slot of a row that was to be read; notes if it could not be.
    pub(super) fn note<'s>(&self, read: Result<Option<Slot<'s>>, SqlError>) -> Option<Slot<'s>> {
        read.unwrap_or_else(|error| {
            // The first one tells why.
            let _ = self.0.set(error);
            None
        })
    }
}

/// The row is cold.
const COLD: usize = 1;
/// A slot that somebody has used since the evictor last looked.
const USED: usize = 2;
/// Bits of a word that are not part of an address.
const MARKS: usize = 7;
/// Bits of a cold row's word that are its seal.
const SEAL: usize = 0xffff_ff00;

/// What a frozen region knows of a row.
#[derive(Debug, Default)]
struct Place {
    /// Nothing, a slot's address with [`USED`], or a cold row: seal, and 32 bits of a hash of its id.
    word: AtomicPtr<u8>,
    /// Row id of a cold row: batch, then member and ordinal. Changes only while `word` is an address.
    row_batch: AtomicU64,
    row_place: AtomicU64,
}

/// A cold row as its place told at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColdRow {
    word: *mut u8,
    pub(super) row_id: RowId,
}

impl ColdRow {
    /// The bits of its seal, as in the flags of a version.
    pub(super) fn seal_bits(self) -> u32 {
        (self.word.addr() & SEAL) as u32
    }
}

/// Where a row of a frozen region is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Where {
    /// There is no row.
    Nowhere,
    Slot(NonNull<u8>),
    Cold(ColdRow),
}

/// What takes the place of a region's slots while it is frozen.
#[derive(Debug)]
pub(super) struct FrozenRegion {
    places: Box<[Place]>,
    /// A bit for each place: set where there is a slot, so that few of them are found among many cold rows.
    /// Set after a slot was put there, cleared before it is taken away: a bit may be missing for a moment.
    with_slot: Box<[AtomicU64]>,
}

impl FrozenRegion {
    /// No rows.
    pub(super) fn new(slots: u32) -> Self {
        FrozenRegion {
            places: (0..slots).map(|_| Place::default()).collect(),
            with_slot: (0..slots.div_ceil(u64::BITS))
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// How many slots it stands for.
    pub(super) fn slot_count(&self) -> u32 {
        self.places.len() as u32
    }

    /// Memory that it takes.
    pub(super) fn size_bytes(&self) -> u64 {
        (size_of_val::<[Place]>(&self.places) + size_of_val::<[AtomicU64]>(&self.with_slot)) as u64
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
        let place = self.places.get(offset as usize)?;
        let word = place.word.load(Ordering::Acquire);
        let found = slot_in(word)?;
        if word.addr() & USED == 0 {
            place.exchange(word, used(found));
        }
        Some(found)
    }

    /// Where the row at an offset is, at one moment: it may be elsewhere at the next.
    pub(super) fn find(&self, offset: u64) -> Where {
        let Some(place) = self.places.get(offset as usize) else {
            return Where::Nowhere;
        };
        loop {
            let word = place.word.load(Ordering::Acquire);
            if word.addr() & COLD == 0 {
                return slot_in(word).map_or(Where::Nowhere, Where::Slot);
            }
            let row_batch = place.row_batch.load(Ordering::Acquire);
            let row_place = place.row_place.load(Ordering::Acquire);
            if place.word.load(Ordering::Acquire) == word {
                let row_id = RowId {
                    batch: BatchId(row_batch),
                    member: (row_place >> 32) as u32,
                    ordinal: row_place as u32,
                };
                return Where::Cold(ColdRow { word, row_id });
            }
        }
    }

    /// Whether the row at an offset is still cold, as it was found.
    pub(super) fn is_still(&self, offset: u64, cold: ColdRow) -> bool {
        let place = self.places.get(offset as usize);
        place.is_some_and(|place| place.word.load(Ordering::Acquire) == cold.word)
    }

    /// Replaces a cold row by a slot; false if its place has changed meanwhile.
    pub(super) fn thaw(&self, offset: u64, cold: ColdRow, slot: NonNull<u8>) -> bool {
        let place = self.places.get(offset as usize);
        let is_thawed = place.is_some_and(|place| place.exchange(cold.word, used(slot)));
        if is_thawed {
            self.note_slot(offset);
        }
        is_thawed
    }

    /// Puts a slot where there was no row. By the freezing thread, or by the member that fills the slot.
    pub(super) fn set_slot(&self, offset: u64, slot: NonNull<u8>) {
        if let Some(place) = self.places.get(offset as usize) {
            place.word.store(used(slot), Ordering::Release);
            self.note_slot(offset);
        }
    }

    /// Takes the slot away at an offset. No batch is open.
    pub(super) fn set_nothing(&self, offset: u64) {
        if let Some(place) = self.places.get(offset as usize) {
            self.forget_slot(offset);
            place.word.store(ptr::null_mut(), Ordering::Release);
        }
    }

    /// Makes a row cold that was in a slot. No batch is open.
    pub(super) fn set_cold(&self, offset: u64, row_id: RowId, seal_bits: u32) {
        if let Some(place) = self.places.get(offset as usize) {
            let row_place = u64::from(row_id.member) << 32 | u64::from(row_id.ordinal);
            place.row_batch.store(row_id.batch.0, Ordering::Release);
            place.row_place.store(row_place, Ordering::Release);
            let hash = hash64(&row_id.encode()) as usize & !(u32::MAX as usize);
            let word = hash | (seal_bits as usize & SEAL) | COLD;
            self.forget_slot(offset);
            place
                .word
                .store(ptr::without_provenance_mut(word), Ordering::Release);
        }
    }

    /// The slots in memory with their offsets, and whether each was used since this was last asked.
    pub(super) fn take_used(&self) -> impl Iterator<Item = (u64, NonNull<u8>, bool)> {
        self.offsets_with_slot().filter_map(|offset| {
            let place = self.places.get(offset as usize)?;
            let word = place.word.load(Ordering::Acquire);
            let slot = slot_in(word)?;
            let is_used = word.addr() & USED != 0 && place.exchange(word, slot.as_ptr());
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
        let words = self.places.iter().map(|place| place.word.load(Ordering::Acquire));
        words.filter_map(slot_in)
    }

    /// How many rows are cold.
    pub(super) fn cold_count(&self) -> usize {
        let words = self.places.iter().map(|place| place.word.load(Ordering::Relaxed));
        words.filter(|word| word.addr() & COLD != 0).count()
    }
}

impl Place {
    /// False if somebody has changed it.
    fn exchange(&self, from: *mut u8, to: *mut u8) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

/// The word of a slot that was used.
fn used(slot: NonNull<u8>) -> *mut u8 {
    slot.as_ptr().map_addr(|address| address | USED)
}

/// The slot that a word leads to, if there is one.
#[inline(always)]
fn slot_in(word: *mut u8) -> Option<NonNull<u8>> {
    let is_slot = word.addr() & COLD == 0;
    NonNull::new(word.map_addr(|address| address & !MARKS)).filter(|_| is_slot)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Rows that are stored in the order of their ids; how often they were asked for in order.
    #[derive(Debug, Default)]
    struct Stored(AtomicU32);

    /// The number of the next row.
    struct Next(u32);

    impl ColdRows for Stored {
        fn read(&self, _: TableId, _: RowId, _: &mut Vec<u8>) -> Result<BatchId, SqlError> {
            Ok(BatchId(1))
        }

        fn memory_bytes(&self) -> u64 {
            0
        }

        fn in_order(&self, _: TableId, first: RowId) -> Option<Box<dyn ColdRowsInOrder>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(Next(first.ordinal)))
        }
    }

    impl ColdRowsInOrder for Next {
        fn read(&mut self, row_id: RowId, _: &mut Vec<u8>) -> Option<BatchId> {
            let is_next = row_id.ordinal == self.0;
            self.0 += u32::from(is_next);
            is_next.then_some(BatchId(1))
        }
    }

    /// How many of these rows are found in order, and how often that is begun.
    fn read(rows: impl Iterator<Item = u32>) -> (usize, u32) {
        let (stored, mut ahead) = (Stored::default(), ReadAhead::default());
        let id = |ordinal| RowId {
            batch: BatchId(1),
            member: 0,
            ordinal,
        };
        let found = rows
            .filter(|row| {
                ahead
                    .read(&stored, TableId(1), id(*row), &mut Vec::new())
                    .is_some()
            })
            .count();
        (found, stored.0.into_inner())
    }

    #[test]
    fn rows_in_order_are_read_together() {
        assert_eq!(read(0..10_000), (10_000 - ALONE as usize, 1));
        // Long runs with jumps between them.
        let (found, begun) = read((0..10).flat_map(|run| run * 5_000..run * 5_000 + 1_000));
        assert!(found > 9_500 && begun == 10, "{found} found, begun {begun} times");
    }

    #[test]
    fn where_rows_are_in_no_order_it_is_given_up() {
        let (found, begun) = read((0..100_000).rev());
        assert!(found <= 20 && begun <= 13, "{found} found, begun {begun} times");
    }
}
