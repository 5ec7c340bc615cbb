//! Where the rows of a table are, to be written to disk and put back: regions with a place for each slot.
//!
//! What comes back is frozen (`cold`): every row is on disk, and its place says which row it is and what its
//! seal was. Slot numbers are the same, so indexes that name them are right.

use std::sync::atomic::Ordering;

use weft_base::RowId;
use weft_ops::row_hasher;

use super::SlotId;
use super::frozen::{FrozenRegion, Place, Where};
use super::regions::{Found, Region};
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
pub(crate) struct ColdRegionBuilder {
    shape: RegionShape,
    places: Vec<Place>,
    taken: u64,
}

impl ColdRegionBuilder {
    /// Without rows.
    pub(crate) fn new(shape: RegionShape) -> Self {
        ColdRegionBuilder {
            shape,
            places: vec![Place::Nowhere; shape.slots as usize],
            taken: 0,
        }
    }

    /// Puts a row there. False if there is no such slot, or it is taken.
    pub(crate) fn put(&mut self, row: ColdPlace) -> bool {
        match self.places.get_mut(row.offset as usize) {
            Some(place @ Place::Nowhere) => {
                *place = Place::Cold(row.row_id, row.seal_bits);
                self.taken += 1;
                true
            }
            _ => false,
        }
    }

    /// The region.
    pub(crate) fn finish(self) -> ColdRegion {
        ColdRegion {
            shape: self.shape,
            places: FrozenRegion::new(&self.places),
            taken: self.taken,
        }
    }
}

/// A region whose rows are all cold.
pub(crate) struct ColdRegion {
    shape: RegionShape,
    places: FrozenRegion,
    taken: u64,
}

impl SlotArena {
    /// The slots of a region.
    pub(crate) fn shape(&self, number: u64) -> Option<RegionShape> {
        let region = self.region(number)?;
        Some(RegionShape {
            stride: region.stride,
            slots: region.slots,
        })
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
    /// All cold rows are among them: who has a pin of the newest boundary sees those. False if one of those
    /// in memory is not what was written.
    #[must_use]
    pub(crate) fn each_place(&self, number: u64, pin: Pin<'_>, mut see: impl FnMut(ColdPlace)) -> bool {
        let Some(region) = self.region(number) else {
            return true;
        };
        self.ids_in(number).all(|slot| {
            let row = self.row_at(region, slot, pin);
            row.is_none_or(|row| {
                see(ColdPlace {
                    offset: (slot.0 & (REGION_SLOTS - 1)) as u32,
                    row_id: row.row_id,
                    seal_bits: row.seal_bits,
                });
                row.is_intact
            })
        })
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

impl SlotArena {
    /// The live row in a slot that the pin sees.
    fn row_at(&self, region: &Region, slot: SlotId, pin: Pin<'_>) -> Option<ImageRow> {
        match region.find(slot)? {
            Found::Cold(_, cold) => Some(ImageRow {
                row_id: cold.row_id,
                seal_bits: cold.seal_bits(),
                is_intact: true,
            }),
            Found::Slot(place) => {
                let version = place.at(pin).filter(|version| version.is_live())?;
                let row_id = place.row_id();
                let term = row_hasher(self.table().0, row_id.encode()).hash(version.bytes());
                Some(ImageRow {
                    row_id,
                    seal_bits: version.seal_bits(),
                    is_intact: version.is_sealed_with(term),
                })
            }
        }
    }
}

/// A row, in memory or not.
struct ImageRow {
    row_id: RowId,
    seal_bits: u32,
    /// Its bytes are what was written, as far as that is known without reading the disk.
    is_intact: bool,
}
