//! Where the rows of a table are, to be written to disk and put back: regions with a place for each slot.
//!
//! What comes back is frozen (`cold`): every row is on disk, and its place says which row it is and what its
//! seal was. Slot numbers are the same, so indexes that name them are right.

use std::sync::atomic::Ordering;

use weft_base::RowId;

use super::SlotId;
use super::cold::{FrozenRegion, Where};
use super::regions::Region;
use super::slots::{REGION_SLOTS, SlotArena};
use super::version::Pin;

/// What an arena has learned about the lengths of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowLengths {
    /// Of the longest row.
    pub(crate) longest: u64,
    /// Of some rows, all together.
    pub(crate) sampled_bytes: u64,
    /// How many these are.
    pub(crate) sampled_rows: u64,
}

/// The slots of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionShape {
    /// Bytes of a slot.
    pub(crate) stride: u32,
    /// How many.
    pub(crate) slots: u32,
}

impl RegionShape {
    /// Whether an arena makes such regions.
    pub(crate) fn is_sound(self) -> bool {
        (1..=REGION_SLOTS as u32).contains(&self.slots) && SlotArena::is_stride(self.stride)
    }
}

/// A row on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColdPlace {
    /// Of its slot, in the region.
    pub(crate) offset: u32,
    /// Which row.
    pub(crate) row_id: RowId,
    /// 24 bits of its seal, where a version has them in its flags.
    pub(crate) seal_bits: u32,
}

/// A region that is being put together.
pub(crate) struct ColdRegion {
    shape: RegionShape,
    places: FrozenRegion,
    taken: u64,
}

impl ColdRegion {
    /// Without rows.
    pub(crate) fn new(shape: RegionShape) -> Self {
        ColdRegion {
            shape,
            places: FrozenRegion::new(shape.slots),
            taken: 0,
        }
    }

    /// Puts a row there. False if there is no such slot, or it is taken.
    pub(crate) fn put(&mut self, place: ColdPlace) -> bool {
        let offset = u64::from(place.offset);
        let is_free = place.offset < self.shape.slots && matches!(self.places.find(offset), Where::Nowhere);
        if is_free {
            self.places.set_cold(offset, place.row_id, place.seal_bits);
            self.taken += 1;
        }
        is_free
    }
}

impl SlotArena {
    /// What regions there are.
    pub(crate) fn shapes(&self) -> Vec<RegionShape> {
        let regions = (0..self.region_count()).filter_map(|number| self.region(number));
        regions
            .map(|region| RegionShape {
                stride: region.stride,
                slots: region.slots,
            })
            .collect()
    }

    /// What was learned about the lengths of rows.
    pub(crate) fn lengths(&self) -> RowLengths {
        RowLengths {
            longest: self.row_bytes_max.load(Ordering::Relaxed) as u64,
            sampled_bytes: self.sampled_bytes.load(Ordering::Relaxed),
            sampled_rows: self.sampled_rows.load(Ordering::Relaxed),
        }
    }

    /// Shows the live rows of a region that the pin sees, in slot order, whether they are in memory or not.
    /// All cold rows are among them: who has a pin of the newest boundary sees those.
    pub(crate) fn each_place(&self, number: u64, pin: Pin<'_>, mut see: impl FnMut(ColdPlace)) {
        let Some(region) = self.region(number) else {
            return;
        };
        for slot in self.ids_in(number) {
            let offset = (slot.0 & (REGION_SLOTS - 1)) as u32;
            if let Some((row_id, seal_bits)) = row_at(region, slot, pin) {
                see(ColdPlace {
                    offset,
                    row_id,
                    seal_bits,
                });
            }
        }
    }

    /// Fills an arena that nobody else knows yet: all rows are cold.
    pub(crate) fn restore(&self, lengths: RowLengths, regions: Vec<ColdRegion>) {
        self.row_bytes_max.store(
            usize::try_from(lengths.longest).unwrap_or(usize::MAX),
            Ordering::Relaxed,
        );
        self.sampled_bytes.store(lengths.sampled_bytes, Ordering::Relaxed);
        self.sampled_rows.store(lengths.sampled_rows, Ordering::Relaxed);
        let mut free = Vec::new();
        for (number, ColdRegion { shape, places, taken }) in (0..).zip(regions) {
            let first = number * REGION_SLOTS;
            if taken < u64::from(shape.slots) {
                let is_free = |offset: &u64| matches!(places.find(*offset), Where::Nowhere);
                let offsets = (0..u64::from(shape.slots)).filter(is_free);
                free.extend(offsets.map(|offset| SlotId(first + offset)));
            }
            self.memory().cold_count.fetch_add(taken, Ordering::Relaxed);
            self.memory()
                .region_bytes
                .fetch_add(places.size_bytes(), Ordering::Relaxed);
            self.add_full(Region::new_frozen(shape.stride, places));
        }
        self.give_free(free);
    }
}

/// The live row in a slot that the pin sees, and its seal.
fn row_at(region: &Region, slot: SlotId, pin: Pin<'_>) -> Option<(RowId, u32)> {
    loop {
        if let Some(place) = region.peek(slot) {
            let version = place.at(pin).filter(|version| version.is_live())?;
            return Some((place.row_id(), version.seal_bits()));
        }
        // It may come back, or become cold, between two looks.
        match region
            .frozen()
            .map(|frozen| frozen.find(slot.0 & (REGION_SLOTS - 1)))
        {
            None | Some(Where::Slot(_)) => {}
            Some(Where::Nowhere) => return None,
            Some(Where::Cold(cold)) => return Some((cold.row_id, cold.seal_bits())),
        }
    }
}
