//! The regions that hold a table's slots, by number, and the directory of regions.
//!
//! A full directory is replaced by one of twice its length and stays valid for concurrent readers: all
//! directories, and the regions, live as long as the table. So nobody who looks up a slot waits.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::SlotId;
use super::frozen::{ColdRow, FrozenRegion, Where};
use super::slot::{SLOT_OVERHEAD, Slot};
use super::slots::REGION_SLOTS;
use crate::columns::{ChangedSlots, RegionColumns};

/// Regions that a table's first directory has room for.
const FIRST_REGIONS: usize = 4;
/// 2^40 slots.
const REGIONS_MAX: usize = 1 << 28;

/// Slots of one stride, side by side.
pub(super) struct Region {
    /// Where the slots are, or were: [`Region::base`].
    base: AtomicPtr<u8>,
    pub(super) stride: u32,
    pub(super) slots: u32,
    /// A bit for each group of slots: one of them was written since a checkpoint took them.
    pub(super) written: AtomicU64,
    /// The same, since an index that is being prepared took them.
    pub(super) touched: AtomicU64,
    /// The copy of its columns, if there is one.
    columns: Mutex<Option<Arc<RegionColumns>>>,
    /// What that copy has to be told of; null without one.
    changed: AtomicPtr<ChangedSlots>,
    /// Chunks read in their slots while there was no copy.
    pub(super) reads: AtomicU32,
    /// What takes the place of the slots while it is frozen; null otherwise. As long as it is there, nobody
    /// new looks at `base`.
    frozen: AtomicPtr<FrozenRegion>,
}

/// Where the row of a slot is.
pub(super) enum Found<'r> {
    Slot(Slot<'r>),
    /// On disk; its place is here.
    Cold(&'r FrozenRegion, ColdRow),
}

/// Lets other threads in between two looks, in tests.
#[inline(always)]
pub(super) fn race_point() {
    #[cfg(test)]
    std::thread::yield_now();
}

impl Drop for Region {
    fn drop(&mut self) {
        let frozen = *self.frozen.get_mut();
        if !frozen.is_null() {
            // SAFETY: made in `set_frozen` or `replace_frozen`.
            drop(unsafe { Box::from_raw(frozen) });
        }
    }
}

impl Region {
    /// `slots` slots of `stride` bytes from `base` on.
    pub(super) fn new(base: NonNull<u8>, stride: u32, slots: u32) -> Self {
        Region {
            base: AtomicPtr::new(base.as_ptr()),
            stride,
            slots,
            written: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            columns: Mutex::default(),
            changed: AtomicPtr::default(),
            reads: AtomicU32::new(0),
            frozen: AtomicPtr::default(),
        }
    }

    /// A region that never had slots: its rows are on disk.
    pub(super) fn new_frozen(stride: u32, frozen: FrozenRegion) -> Self {
        let region = Region::new(NonNull::dangling(), stride, frozen.slot_count());
        region.set_frozen(frozen);
        region
    }

    /// Where its slots are. Only if it is not frozen.
    pub(super) fn base(&self) -> NonNull<u8> {
        // Never null.
        NonNull::new(self.base.load(Ordering::Acquire)).unwrap_or(NonNull::dangling())
    }

    /// What takes the place of its slots, if it is frozen. Who has a pin may use it as long as that.
    #[inline(always)]
    pub(super) fn frozen(&self) -> Option<&FrozenRegion> {
        // SAFETY: null, or alive until nobody with a pin is left that could have found it.
        unsafe { self.frozen.load(Ordering::Acquire).as_ref() }
    }

    /// Freezes it, by one thread.
    pub(super) fn set_frozen(&self, frozen: FrozenRegion) {
        let frozen = Box::into_raw(Box::new(frozen));
        let before = self.frozen.swap(frozen, Ordering::AcqRel);
        assert!(before.is_null(), "it was not frozen");
    }

    /// Replaces the places of a frozen region by others; returns them. By the thread that freezes.
    pub(super) fn replace_frozen(&self, frozen: FrozenRegion) -> Option<Box<FrozenRegion>> {
        let before = self
            .frozen
            .swap(Box::into_raw(Box::new(frozen)), Ordering::AcqRel);
        // SAFETY: made in `set_frozen` or here, and taken once.
        let before = (!before.is_null()).then(|| unsafe { Box::from_raw(before) });
        before.inspect(|before| before.set_replaced())
    }

    /// Slots take the place of the rows' places again; these are returned. By the thread that freezes.
    pub(super) fn set_slots(&self, base: NonNull<u8>) -> Option<Box<FrozenRegion>> {
        // Who finds no places finds these slots, or those of a time before it was frozen.
        self.base.store(base.as_ptr(), Ordering::Release);
        let frozen = self.frozen.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made in `set_frozen` or `replace_frozen`, and taken once.
        (!frozen.is_null()).then(|| unsafe { Box::from_raw(frozen) })
    }

    /// Bytes of its slots while it is not frozen.
    pub(super) fn slots_bytes(&self) -> usize {
        self.slots as usize * self.stride as usize
    }

    /// # Safety
    /// `start` is a slot of this region, in it or by itself, that lives as long as the result is used.
    #[inline(always)]
    pub(super) unsafe fn slot_at<'s>(&self, start: NonNull<u8>) -> Slot<'s> {
        // SAFETY: passed on; every slot is as long as the stride.
        unsafe { Slot::new(start, self.stride - SLOT_OVERHEAD as u32) }
    }

    /// The copy of its columns.
    pub(super) fn columns(&self) -> Option<Arc<RegionColumns>> {
        self.columns.lock().clone()
    }

    /// Replaces the copy of its columns; returns the one before. Only while no batch is open: its members use
    /// `changed`.
    pub(super) fn set_columns(&self, columns: Option<Arc<RegionColumns>>) -> Option<Arc<RegionColumns>> {
        let changed = columns.as_ref().map_or(ptr::null_mut(), |columns| {
            ptr::from_ref(&columns.changed).cast_mut()
        });
        let mut held = self.columns.lock();
        self.changed.store(changed, Ordering::Release);
        self.reads.store(0, Ordering::Relaxed);
        std::mem::replace(&mut *held, columns)
    }

    /// Tells the copy that the slot with this offset is about to be written. A member of the open batch only.
    #[inline(always)]
    pub(super) fn note_change(&self, offset: u64) {
        let changed = self.changed.load(Ordering::Acquire);
        // SAFETY: null, or a part of what `columns` holds, which is replaced while no batch is open.
        if let Some(changed) = unsafe { changed.as_ref() } {
            changed.set(offset as usize);
        }
    }

    /// Where the row of a slot is, for somebody who only looks; `None` if there is none.
    ///
    /// A region may get its slots back, or be frozen, between any two looks at it: who has not found a row in
    /// memory must not conclude anything from a second look.
    pub(super) fn find(&self, slot: SlotId) -> Option<Found<'_>> {
        let offset = slot.0 & (REGION_SLOTS - 1);
        while offset < u64::from(self.slots) {
            race_point();
            let Some(frozen) = self.frozen() else {
                if let Some(place) = self.peek(slot) {
                    return Some(Found::Slot(place));
                }
                continue;
            };
            return match frozen.find(offset) {
                Where::Nowhere => None,
                // SAFETY: a slot of this region; who finds it has a pin.
                Where::Slot(start) => Some(Found::Slot(unsafe { self.slot_at(start) })),
                Where::Cold(cold) => Some(Found::Cold(frozen, cold)),
                Where::Replaced => continue,
            };
        }
        None
    }

    /// The slot with this number, in this region or a later one, if it is in memory: for somebody who uses
    /// its row.
    #[inline(always)]
    pub(super) fn slot(&self, slot: SlotId) -> Option<Slot<'_>> {
        self.slot_by(slot, FrozenRegion::slot)
    }

    /// The same for somebody who only looks.
    pub(super) fn peek(&self, slot: SlotId) -> Option<Slot<'_>> {
        self.slot_by(slot, |frozen, offset| match frozen.find(offset) {
            Where::Slot(start) => Some(start),
            Where::Nowhere | Where::Cold(_) | Where::Replaced => None,
        })
    }

    #[inline(always)]
    fn slot_by(
        &self,
        slot: SlotId,
        find: impl FnOnce(&FrozenRegion, u64) -> Option<NonNull<u8>>,
    ) -> Option<Slot<'_>> {
        let offset = slot.0 & (REGION_SLOTS - 1);
        if offset >= u64::from(self.slots) {
            return None;
        }
        let start = match self.frozen() {
            // SAFETY: inside the region. Its slots were all zero, and are there until nobody is left who
            // could have looked before it was frozen.
            None => unsafe { self.base().add(offset as usize * self.stride as usize) },
            Some(frozen) => find(frozen, offset)?,
        };
        // SAFETY: a slot of this region; who finds it has a pin.
        Some(unsafe { self.slot_at(start) })
    }
}

// SAFETY: an address of memory that lives as long as the arena; what lies there is made of atomics and of
// versions, which have their own rules.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Where the regions of a table are, by number; null for those to come.
struct Directory {
    regions: Box<[AtomicPtr<Region>]>,
    /// The one before, of half the length.
    outgrown: *mut Directory,
}

impl Directory {
    /// An empty directory that replaces another.
    fn new(length: usize, outgrown: *mut Directory) -> *mut Self {
        let regions = (0..length).map(|_| AtomicPtr::default()).collect();
        Box::into_raw(Box::new(Directory { regions, outgrown }))
    }
}

/// See the module's head. Owns the regions, but not the memory of their slots.
pub(super) struct Regions {
    /// Made by [`Directory::new`].
    directory: AtomicPtr<Directory>,
}

impl Regions {
    pub(super) fn new() -> Self {
        Regions {
            directory: AtomicPtr::new(Directory::new(FIRST_REGIONS, ptr::null_mut())),
        }
    }

    #[inline(always)]
    fn directory(&self) -> &Directory {
        // SAFETY: never null, and lives as long as this, as those that it has outgrown.
        unsafe { &*self.directory.load(Ordering::Acquire) }
    }

    /// The region of that number, if there is one.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&Region> {
        let entry = self.directory().regions.get(number as usize)?;
        // SAFETY: null, or a region of a directory, which lives as long as this.
        unsafe { entry.load(Ordering::Acquire).as_ref() }
    }

    /// Publishes the next region.
    ///
    /// # Safety
    /// Only one thread does so at a time, and no region has this number.
    pub(super) unsafe fn add(&self, number: usize, region: Region) {
        assert!(number < REGIONS_MAX, "a table has at most 2^40 rows");
        if number >= self.directory().regions.len() {
            let outgrown = self.directory();
            let longer = Directory::new(2 * outgrown.regions.len(), self.directory.load(Ordering::Relaxed));
            // SAFETY: made just now, and nobody else's yet.
            let entries = unsafe { &(*longer).regions };
            for (to, from) in entries.iter().zip(&outgrown.regions) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
            self.directory.store(longer, Ordering::Release);
        }
        if let Some(entry) = self.directory().regions.get(number) {
            entry.store(Box::into_raw(Box::new(region)), Ordering::Release);
        }
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        let mut directory = *self.directory.get_mut();
        let mut is_newest = true;
        while !directory.is_null() {
            // SAFETY: made by `Directory::new`, and nobody looks into it any more.
            let outgrown = unsafe { Box::from_raw(directory) };
            let regions = outgrown.regions.iter().filter(|_| is_newest);
            for region in regions.map(|entry| entry.load(Ordering::Relaxed)) {
                if !region.is_null() {
                    // SAFETY: made in `add`; the newest directory leads to each of them once.
                    drop(unsafe { Box::from_raw(region) });
                }
            }
            (directory, is_newest) = (outgrown.outgrown, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Directories are outgrown while others look for regions; what was found stays where it is.
    #[test]
    fn regions_stay_while_directories_grow() {
        let regions = Regions::new();
        let count = FIRST_REGIONS as u64 * 4 + 1;
        let address = |number: u64| regions.get(number).map(ptr::from_ref);
        let is_complete = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut found = Vec::new();
                loop {
                    let is_last = is_complete.load(Ordering::Acquire);
                    found.extend((found.len() as u64..count).map_while(|number| regions.get(number)));
                    for (number, known) in (0..).zip(&found) {
                        assert_eq!(
                            (address(number), known.stride),
                            (Some(ptr::from_ref(*known)), number as u32)
                        );
                    }
                    if is_last {
                        break;
                    }
                }
                assert_eq!(found.len() as u64, count);
            });
            for number in 0..count {
                let region = Region::new(NonNull::dangling(), number as u32, 0);
                // SAFETY: one thread, one after the other.
                unsafe { regions.add(number as usize, region) };
            }
            is_complete.store(true, Ordering::Release);
        });
        assert!(address(count).is_none() && address(u64::MAX).is_none());
    }
}
