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
//! A reader waits for the row. A member of a batch must not, since others wait for it: it notes the row, the
//! batch is undone, the row is thawed, and the batch runs again. Either way, whoever reads must ask
//! [`ColdAccess::check`] before it uses what it found: a row that could not be read is not a row that is not
//! there.
//!
//! Source: decision 0027.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_base::{BatchId, RowId, TableId};
use weft_ops::hash64;
use weft_types::{SqlError, SqlState};

use super::SlotId;
use super::slots::Slot;

/// Where cold rows are read from.
pub(crate) trait ColdRows: fmt::Debug + Send + Sync {
    /// Puts a row's bytes into `row`, replacing what was there; returns the batch that wrote it.
    ///
    /// # Errors
    /// The disk's; a damaged file; no such row.
    fn read(&self, table: TableId, row_id: RowId, row: &mut Vec<u8>) -> Result<BatchId, SqlError>;
}

/// What a reader does when it meets a cold row, and what came of it.
#[derive(Debug)]
pub(crate) struct ColdAccess {
    policy: Policy,
    has_notes: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Reads it, and waits for that.
    Thaw,
    /// Notes it.
    Note,
    /// Passes over it: it has nothing to do with cold rows.
    PassOver,
}

#[derive(Debug)]
struct Notes {
    missed: Vec<(TableId, SlotId)>,
    failure: Option<SqlError>,
}

impl ColdAccess {
    const fn new(policy: Policy) -> Self {
        ColdAccess {
            policy,
            has_notes: AtomicBool::new(false),
            notes: Mutex::new(Notes {
                missed: Vec::new(),
                failure: None,
            }),
        }
    }

    /// For readers of a snapshot.
    pub(crate) fn thawing() -> Self {
        ColdAccess::new(Policy::Thaw)
    }

    /// For the members of a batch.
    pub(crate) fn noting() -> Self {
        ColdAccess::new(Policy::Note)
    }

    /// For those who look only at what is in memory.
    pub(crate) fn passing_over() -> &'static Self {
        static PASSING_OVER: ColdAccess = ColdAccess::new(Policy::PassOver);
        &PASSING_OVER
    }

    /// Fails if a row was needed that could not be read, or not yet: then what was found is not all there is.
    ///
    /// # Errors
    /// Why it was not read; that it is cold (XX000), if it was noted.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        match self.has_notes.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(self.error()),
        }
    }

    #[cold]
    fn error(&self) -> SqlError {
        let failure = self.notes.lock().failure.clone();
        failure.unwrap_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "a row is not in memory"))
    }

    /// The rows that were noted.
    pub(crate) fn missed(&self) -> Vec<(TableId, SlotId)> {
        self.notes.lock().missed.clone()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        if *self.has_notes.get_mut() {
            *self = ColdAccess::new(self.policy);
        }
    }

    /// Does what is to be done about a cold row; returns its slot if it is in memory now.
    #[cold]
    pub(super) fn meet<'s>(
        &self,
        row: (TableId, SlotId),
        thaw: impl FnOnce() -> Result<Option<Slot<'s>>, SqlError>,
    ) -> Option<Slot<'s>> {
        match self.policy {
            Policy::PassOver => return None,
            Policy::Note => self.notes.lock().missed.push(row),
            Policy::Thaw => match thaw() {
                Ok(found) => return found,
                Err(error) => self.notes.lock().failure = Some(error),
            },
        }
        self.has_notes.store(true, Ordering::Relaxed);
        None
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

/// What takes the place of a region's slots when it is frozen. It stays frozen.
#[derive(Debug)]
pub(super) struct FrozenRegion {
    places: Box<[Place]>,
}

impl FrozenRegion {
    /// No rows.
    pub(super) fn new(slots: u32) -> Self {
        FrozenRegion {
            places: (0..slots).map(|_| Place::default()).collect(),
        }
    }

    /// Memory that it takes.
    pub(super) fn size_bytes(&self) -> u64 {
        size_of_val::<[Place]>(&self.places) as u64
    }

    /// The slot at an offset, if its row is in memory.
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
        place.is_some_and(|place| place.exchange(cold.word, used(slot)))
    }

    /// Puts a slot where there was no row. By the freezing thread, or by the member that fills the slot.
    pub(super) fn set_slot(&self, offset: u64, slot: NonNull<u8>) {
        if let Some(place) = self.places.get(offset as usize) {
            place.word.store(used(slot), Ordering::Release);
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
            place
                .word
                .store(ptr::without_provenance_mut(word), Ordering::Release);
        }
    }

    /// The slots in memory with their offsets, and whether each was used since this was last asked.
    pub(super) fn take_used(&self) -> impl Iterator<Item = (u64, NonNull<u8>, bool)> {
        (0..).zip(&self.places).filter_map(|(offset, place)| {
            let word = place.word.load(Ordering::Acquire);
            let slot = slot_in(word)?;
            let is_used = word.addr() & USED != 0 && place.exchange(word, slot.as_ptr());
            Some((offset, slot, is_used))
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
