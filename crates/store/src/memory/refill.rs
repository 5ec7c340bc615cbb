//! How the rows of a frozen region come back together: it has slots again, side by side, as before it was
//! frozen.
//!
//! ```text
//!   read_region: cold rows -> slots that nobody knows      any time; the disk is read
//!   refill:      the others are copied there, too          no batch is open; no disk
//!                all places lead to these slots, then they are taken away
//! ```
//!
//! Readers may be in the old slots and among the places: both are left behind until those have gone, as when
//! rows are frozen (`freeze`). A row that somebody thaws between the two steps is copied like one that had
//! been in memory before.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use weft_types::SqlError;

use super::arena::Kind;
use super::freeze::{LeftBehind, OldPlaces, OldSlots, Scratch};
use super::frozen::{ColdRow, FrozenRegion, Where};
use super::regions::Region;
use super::slots::SlotArena;

/// A region of fewer rows, one in so many slots, takes less memory as it is.
const ROWS_PART: usize = 4;
/// Unless its slots are so small: most tables have only such a region.
const SMALL_BYTES: usize = 64 << 10;

/// Slots for a frozen region, with the rows that were cold when it was made. Must reach
/// [`SlotArena::refill`] or [`SlotArena::discard`], or its memory is lost.
#[must_use = "its memory is lost otherwise"]
pub(crate) struct FilledSlots {
    region: u64,
    base: NonNull<u8>,
    /// By place: the row that was put there, and the size of its version.
    rows: Vec<Option<(ColdRow, usize)>>,
}

// SAFETY: memory with one owner.
unsafe impl Send for FilledSlots {}

impl SlotArena {
    /// Whether a region is frozen and has so many rows that slots are of use.
    pub(crate) fn is_worth_refilling(&self, region: u64) -> bool {
        let Some(region) = self.region(region) else {
            return false;
        };
        region.frozen().is_some_and(|frozen| {
            let cold = frozen.cold_count();
            let is_small = region.slots_bytes() <= SMALL_BYTES;
            let rows_min = frozen.slot_count() as usize / ROWS_PART;
            cold > 0 && (is_small || cold + frozen.slots().count() >= rows_min)
        })
    }

    /// Reads the cold rows of a frozen region into slots; `None` if it is not frozen, or if slots and rows
    /// take more than `room_bytes`. Nobody freezes meanwhile.
    ///
    /// # Errors
    /// A row could not be read.
    pub(crate) fn read_region(
        &self,
        number: u64,
        room_bytes: u64,
        scratch: &mut Scratch,
    ) -> Result<Option<FilledSlots>, SqlError> {
        let Some((region, frozen)) = self
            .region(number)
            .and_then(|region| Some((region, region.frozen()?)))
        else {
            return Ok(None);
        };
        let Some(mut room) = room_bytes.checked_sub(region.slots_bytes() as u64) else {
            return Ok(None);
        };
        let mut filled = FilledSlots {
            region: number,
            base: self.memory().arena.take(Kind::Slots, region.slots_bytes()),
            rows: vec![None; region.slots as usize],
        };
        for offset in 0..u64::from(region.slots) {
            let Where::Cold(cold) = frozen.find(offset) else {
                continue;
            };
            let batch = match self.read_ahead(cold, scratch) {
                Ok(batch) => batch,
                // It was read while it was thawed and written: it will be copied.
                Err(_) if !frozen.is_still(offset, cold) => continue,
                Err(error) => {
                    self.discard(filled);
                    return Err(error);
                }
            };
            // SAFETY: inside this memory, which is zero and nobody else's.
            let place = unsafe { region.slot_at(filled.slot(region, offset)) };
            place.set_row_id(cold.row_id);
            let bytes = place.put(batch, &scratch.row, cold.seal_bits(), self.memory());
            if let Some(row) = filled.rows.get_mut(offset as usize) {
                *row = Some((cold, bytes));
            }
            // The others are in memory already.
            if place.newest_elsewhere().is_some() {
                match room.checked_sub(bytes as u64) {
                    Some(rest) => room = rest,
                    None => {
                        self.discard(filled);
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(filled))
    }

    /// Puts slots in the place of a frozen region's places; without effect if rows have become cold since
    /// they were read. No batch is open, nobody collects, and nobody freezes.
    pub(crate) fn refill(&self, mut filled: FilledSlots) -> LeftBehind {
        let mut left = LeftBehind::default();
        let region = self.region(filled.region);
        let both = region.and_then(|region| Some((region, region.frozen()?)));
        let Some((region, frozen)) = both.filter(|(_, frozen)| filled.has_all(frozen)) else {
            self.discard(filled);
            return left;
        };
        for offset in 0..u64::from(region.slots) {
            let to = filled.slot(region, offset);
            let read = filled.rows.get_mut(offset as usize).and_then(Option::take);
            // Readers thaw rows meanwhile: what is cold may be in a slot a moment later, but not again cold.
            if let Some((cold, bytes)) = read {
                if frozen.thaw(offset, cold, to, self.memory()) {
                    self.linked(bytes as u64);
                    self.memory().row_is_thawed();
                    continue;
                }
                // SAFETY: nobody has seen the slot.
                unsafe { self.empty(region, to) };
            }
            match frozen.find(offset) {
                // Nobody freezes meanwhile, so it is not replaced.
                Where::Nowhere | Where::Replaced => {}
                Where::Slot(start) => {
                    // SAFETY: a slot of this region, and memory for one that nobody knows yet.
                    unsafe { Self::copy_slot(region, region.slot_at(start), to) };
                    frozen.set_slot(offset, to, self.memory());
                    left.slots.push(OldSlots {
                        start,
                        bytes: region.stride as usize,
                        is_region: false,
                    });
                }
                // Not since `has_all`.
                Where::Cold(_) => debug_assert!(false, "frozen meanwhile"),
            }
        }
        self.memory()
            .region_bytes
            .fetch_add(region.slots_bytes() as u64, Ordering::Relaxed);
        left.places = region.set_slots(filled.base).map(OldPlaces);
        self.memory().leave(left.bytes());
        left
    }

    /// Frees slots that were not used.
    pub(crate) fn discard(&self, filled: FilledSlots) {
        let Some(region) = self.region(filled.region) else {
            return;
        };
        let read = filled.rows.iter().zip(0..).filter(|(row, _)| row.is_some());
        for (_, offset) in read {
            // SAFETY: nobody has seen the slot.
            unsafe { self.empty(region, filled.slot(region, offset)) };
        }
        let bytes = region.slots_bytes();
        // SAFETY: taken with this size, and nobody has seen it.
        unsafe {
            self.memory().arena.deallocate(Kind::Slots, filled.base, bytes);
        }
    }

    /// Empties a slot in which a row was put.
    ///
    /// # Safety
    /// A slot of this region that nobody has seen.
    unsafe fn empty(&self, region: &Region, start: NonNull<u8>) {
        // SAFETY: passed on; a block leads to no other version.
        unsafe {
            let place = region.slot_at(start);
            if place.newest_elsewhere().is_some()
                && let Some(version) = place.retired()
            {
                version.free(self.memory());
            }
            start.write_bytes(0, region.stride as usize);
        }
    }
}

impl FilledSlots {
    /// Whether all rows that are cold were read. Others may be thawed meanwhile, none becomes cold.
    fn has_all(&self, frozen: &FrozenRegion) -> bool {
        (0..)
            .zip(&self.rows)
            .all(|(offset, read)| match frozen.find(offset) {
                Where::Cold(cold) => read.is_some_and(|(read, _)| read == cold),
                Where::Nowhere | Where::Slot(_) => true,
                Where::Replaced => false,
            })
    }

    fn slot(&self, region: &Region, offset: u64) -> NonNull<u8> {
        // SAFETY: the caller's offset is below the region's slots, for which this memory was taken.
        unsafe { self.base.add(offset as usize * region.stride as usize) }
    }
}
