//! The columns of one region.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use weft_base::BatchId;
use weft_column::segment::Segment;
use weft_offload::Buffer;

use crate::memory::REGION_SLOTS;
use crate::table::TableData;

/// Words of a bit for each slot of a region.
pub(super) const WORDS: usize = REGION_SLOTS as usize / 64;

/// Slots of a region, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMask([u64; WORDS]);

impl SlotMask {
    /// No slot.
    pub(super) const fn empty() -> SlotMask {
        SlotMask([0; WORDS])
    }

    pub(super) fn set(&mut self, offset: usize) {
        if let Some(word) = self.0.get_mut(offset / 64) {
            *word |= 1 << (offset % 64);
        }
    }

    /// Whether the slot with this offset in its region is in it.
    #[must_use]
    pub fn has(&self, offset: usize) -> bool {
        let word = self.0.get(offset / 64);
        word.is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Keeps those slots whose bit is set here; bits that are missing are not.
    pub fn retain(&mut self, words: &[u64]) {
        let words = words.iter().copied().chain(std::iter::repeat(0));
        self.0
            .iter_mut()
            .zip(words)
            .for_each(|(word, kept)| *word &= kept);
    }

    /// How many slots.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The offsets of its slots, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = u32> {
        self.0.iter().zip(0_u32..).flat_map(|(word, nth)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(64 * nth + bit)
            })
        })
    }

    /// 64 slots a word, the first one in the lowest bit.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

/// Which slots of a region were written since its columns were begun.
#[derive(Debug)]
pub(crate) struct ChangedSlots([AtomicU64; WORDS]);

impl ChangedSlots {
    fn new() -> Self {
        ChangedSlots([const { AtomicU64::new(0) }; WORDS])
    }

    /// Records that a slot is about to be written.
    #[inline]
    pub(crate) fn set(&self, offset: usize) {
        let bit = 1 << (offset % 64);
        if let Some(word) = self.0.get(offset / 64)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn count(&self) -> usize {
        let words = self.0.iter().map(|word| word.load(Ordering::Relaxed));
        words.map(|word| word.count_ones() as usize).sum()
    }

    /// Those slots of a mask that were not written.
    fn unchanged(&self, mask: &SlotMask) -> SlotMask {
        let mut left = *mask;
        for (word, changed) in left.0.iter_mut().zip(&self.0) {
            *word &= !changed.load(Ordering::Relaxed);
        }
        left
    }
}

/// A column of a region, packed; position `p` is the slot with that offset.
#[derive(Debug)]
pub(super) struct Packed {
    segment: Segment<Bytes>,
    /// Its codes for units, once one was asked to scan them.
    codes: OnceLock<Option<Buffer>>,
}

impl Packed {
    pub(super) fn new(segment: Segment<Bytes>) -> Packed {
        Packed {
            segment,
            codes: OnceLock::new(),
        }
    }

    fn codes(&self) -> Option<&Buffer> {
        let registered = || {
            let codes = self.segment.column(0).ok()?.codes()?;
            Some(Buffer::new(self.segment.bytes().slice_ref(codes.bytes())))
        };
        self.codes.get_or_init(registered).as_ref()
    }
}

/// Columns of one region. Made empty at a boundary, from when on it records which slots are written; columns
/// are added as queries ask for them.
#[derive(Debug)]
pub(crate) struct RegionColumns {
    /// Of the definition whose columns these are ([`TableData::laid_out_since`]).
    laid_out_since: BatchId,
    /// The boundary's batch; set before anybody else knows the copy.
    batch: AtomicU64,
    pub(crate) changed: ChangedSlots,
    /// Slots that held a row.
    present: OnceLock<SlotMask>,
    /// By position in the table. `None` inside: it has values that cannot be packed.
    columns: Box<[OnceLock<Option<Packed>>]>,
    bytes: AtomicU64,
    /// Read since the keeper last looked.
    used: AtomicBool,
    /// Chunks that were read in their slots because a column was missing or many slots were written, since
    /// the copy was begun.
    misses: AtomicU32,
}

impl RegionColumns {
    /// A copy of nothing, in a table of so many columns.
    pub(super) fn new(columns: usize, laid_out_since: BatchId) -> Self {
        let bytes = size_of::<RegionColumns>() + columns * size_of::<OnceLock<Option<Packed>>>();
        RegionColumns {
            laid_out_since,
            batch: AtomicU64::new(0),
            changed: ChangedSlots::new(),
            present: OnceLock::new(),
            columns: (0..columns).map(|_| OnceLock::new()).collect(),
            bytes: AtomicU64::new(bytes as u64),
            used: AtomicBool::new(true),
            misses: AtomicU32::new(0),
        }
    }

    /// Whether its columns are those of this definition.
    pub(crate) fn is_of(&self, table: &TableData) -> bool {
        self.laid_out_since == table.laid_out_since()
    }

    /// Sets the boundary at which it begins.
    pub(super) fn set_batch(&self, batch: BatchId) {
        self.batch.store(batch.0, Ordering::Relaxed);
    }

    /// Nothing was copied yet.
    pub(super) fn is_empty(&self) -> bool {
        self.present.get().is_none()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Slots written since it was begun.
    pub(super) fn changed_count(&self) -> usize {
        self.changed.count()
    }

    /// Slots that held a row.
    pub(super) fn present_count(&self) -> usize {
        self.present.get().map_or(0, SlotMask::count)
    }

    pub(super) fn is_missing(&self, column: usize) -> bool {
        self.columns
            .get(column)
            .is_some_and(|column| column.get().is_none())
    }

    /// Says which slots hold a row; ignored if that is known.
    pub(super) fn set_present(&self, present: SlotMask) {
        self.present.get_or_init(|| present);
    }

    /// Adds a column, `None` if its values cannot be packed; ignored if it is there.
    pub(super) fn put(&self, column: usize, packed: Option<Packed>) {
        let bytes = packed.as_ref().map_or(0, |packed| packed.segment.bytes().len());
        if let Some(place) = self.columns.get(column)
            && place.set(packed).is_ok()
        {
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Notes that a chunk was read in its slots.
    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn misses(&self) -> u32 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Whether it was read since the last call.
    pub(super) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Keys of a column's distinct values, if it is copied and has at most `most`; see
    /// [`weft_column::segment::Column::distinct_keys`].
    pub(crate) fn distinct_keys(&self, column: usize, most: usize) -> Option<Vec<u64>> {
        let packed = self.columns.get(column)?.get()?.as_ref()?;
        packed.segment.column(0).ok()?.distinct_keys(most)
    }

    /// The columns as a reader at a boundary sees them; `None` if it is too old, or a column is missing.
    pub(crate) fn read(self: &Arc<Self>, boundary: BatchId, columns: &[usize]) -> Option<ChunkColumns> {
        let is_there = |column: &usize| {
            let packed = self.columns.get(*column).and_then(OnceLock::get);
            packed.is_some_and(Option::is_some)
        };
        if boundary.0 < self.batch.load(Ordering::Relaxed) || !columns.iter().all(is_there) {
            return None;
        }
        // The writes of all batches up to the boundary are marked: they were before it was published.
        let mask = self.changed.unchanged(self.present.get()?);
        self.used.store(true, Ordering::Relaxed);
        Some(ChunkColumns {
            columns: Arc::clone(self),
            mask,
        })
    }
}

/// The columns of a chunk for one reader.
#[derive(Clone, Debug)]
pub struct ChunkColumns {
    columns: Arc<RegionColumns>,
    mask: SlotMask,
}

impl ChunkColumns {
    /// The slots whose rows are to be read here; all others are to be read in their slots.
    #[must_use]
    pub fn mask(&self) -> &SlotMask {
        &self.mask
    }

    /// A column that was asked for: its value at the offset of each slot.
    #[must_use]
    pub fn column(&self, column: usize) -> Option<&Segment<Bytes>> {
        self.packed(column).map(|packed| &packed.segment)
    }

    /// Its codes as a buffer that units keep, always the same one; none if it has no codes, or is damaged.
    #[must_use]
    pub fn codes(&self, column: usize) -> Option<&Buffer> {
        self.packed(column)?.codes()
    }

    fn packed(&self, column: usize) -> Option<&Packed> {
        self.columns.columns.get(column)?.get()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(offsets: &[usize]) -> SlotMask {
        let mut mask = SlotMask::empty();
        offsets.iter().for_each(|offset| mask.set(*offset));
        mask
    }

    #[test]
    fn written_slots_are_masked_out() {
        let columns = Arc::new(RegionColumns::new(2, BatchId(0)));
        columns.set_batch(BatchId(5));
        assert!(columns.read(BatchId(9), &[]).is_none(), "nothing was copied yet");
        columns.set_present(mask(&[0, 63, 64, 4095]));
        columns.put(0, None);
        assert!(columns.read(BatchId(4), &[]).is_none(), "older than the copy");
        assert!(columns.read(BatchId(5), &[0]).is_none(), "not packable");
        assert!(columns.is_missing(1) && !columns.is_missing(0) && !columns.is_missing(2));
        columns.changed.set(64);
        columns.changed.set(64);
        columns.changed.set(1);
        let read = columns.read(BatchId(5), &[]).unwrap();
        assert_eq!(*read.mask(), mask(&[0, 63, 4095]));
        assert_eq!(
            (
                read.mask().count(),
                columns.changed_count(),
                columns.present_count()
            ),
            (3, 2, 4)
        );
        assert_eq!(read.mask().offsets().collect::<Vec<_>>(), [0, 63, 4095]);
        assert!(read.mask().has(63) && !read.mask().has(64) && !read.mask().has(9999));
        assert!(columns.take_used() && !columns.take_used());
    }
}
