//! The slots of one table: permanent, numbered memory that grows without moving.
//!
//! Bucket k holds 256 << k slots, so a table of any size needs at most 32 pointers, finding a slot takes a
//! leading-zero count and one load, and no slot ever moves. New buckets come zeroed from the system, so
//! untouched pages cost nothing.

use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weft_base::{BatchId, RowId};

use super::SlotId;
use super::version::{self, Pin, Retired, Version, VersionRef};

const FIRST_BUCKET_BITS: u32 = 8;
const BUCKETS: usize = 32;

/// One row's place. All zero is an empty slot.
#[derive(Default)]
pub(crate) struct Slot {
    head: AtomicPtr<Version>,
    /// Row id of the row that lives here: batch, then member and ordinal. Written before the row's first
    /// version is linked; read only by who sees a version of that row.
    row_batch: AtomicU64,
    row_place: AtomicU64,
}

impl Slot {
    /// The row id of the row in this slot.
    pub(crate) fn row_id(&self) -> RowId {
        let place = self.row_place.load(Ordering::Relaxed);
        RowId {
            batch: BatchId(self.row_batch.load(Ordering::Relaxed)),
            member: (place >> 32) as u32,
            ordinal: place as u32,
        }
    }

    /// Says which row is about to move in.
    pub(crate) fn set_row_id(&self, id: RowId) {
        self.row_batch.store(id.batch.0, Ordering::Relaxed);
        self.row_place.store(
            u64::from(id.member) << 32 | u64::from(id.ordinal),
            Ordering::Relaxed,
        );
    }

    /// The newest version, whether or not the pin sees it: for hints.
    pub(crate) fn newest<'s>(&'s self, _pin: Pin<'s>) -> Option<VersionRef<'s>> {
        // SAFETY: what is linked now was not unlinked before the pin began, so the pin keeps it.
        unsafe { VersionRef::from_raw(self.head.load(Ordering::Acquire)) }
    }

    /// The newest version that the pin may see, tombstones included.
    pub(crate) fn at<'s>(&'s self, pin: Pin<'s>) -> Option<VersionRef<'s>> {
        // SAFETY: the pin keeps every version alive that it can reach.
        let mut version = unsafe { VersionRef::from_raw(self.head.load(Ordering::Acquire)) };
        while let Some(found) = version {
            if found.batch().0 <= pin.horizon() {
                return Some(found);
            }
            version = found.older();
        }
        None
    }

    /// Links a new newest version; `None` makes a tombstone. One writer per slot at a time (a lock above
    /// sees to it). Returns the memory it takes, in bytes.
    pub(crate) fn push(&self, batch: BatchId, bytes: Option<&[u8]>) -> usize {
        let prev = self.head.load(Ordering::Relaxed);
        let version = version::allocate(batch, bytes, prev);
        self.head.store(version.as_ptr(), Ordering::Release);
        version::size_of_row(bytes.map_or(0, <[u8]>::len))
    }

    /// Unlinks the newest version: rollback, or the garbage collector on a tombstone.
    pub(crate) fn pop(&self) -> Option<Retired> {
        let head = NonNull::new(self.head.load(Ordering::Acquire))?;
        // SAFETY: linked, so not freed; only the one writer of this slot unlinks.
        let retired = unsafe { Retired::from_unlinked(head) };
        let older = retired.view().older_raw();
        self.head.store(older, Ordering::Release);
        Some(retired)
    }
}

/// All slots of a table.
pub(crate) struct SlotArena {
    buckets: [OnceLock<Box<[Slot]>>; BUCKETS],
    next: AtomicU64,
    free: Mutex<Vec<SlotId>>,
    free_count: AtomicUsize,
}

impl SlotArena {
    pub(crate) fn new() -> Self {
        SlotArena {
            buckets: [const { OnceLock::new() }; BUCKETS],
            next: AtomicU64::new(0),
            free: Mutex::new(Vec::new()),
            free_count: AtomicUsize::new(0),
        }
    }

    /// Slots in use or once used: all numbers below this.
    pub(crate) fn len(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Slots on the free list.
    #[cfg(test)]
    pub(crate) fn free_len(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// A slot for a new row. Any thread.
    pub(crate) fn reserve(&self) -> SlotId {
        if self.free_count.load(Ordering::Relaxed) > 0 {
            let mut free = self.free.lock();
            if let Some(slot) = free.pop() {
                self.free_count.store(free.len(), Ordering::Relaxed);
                return slot;
            }
        }
        let slot = self.next.fetch_add(1, Ordering::AcqRel);
        let (bucket, _) = place(slot);
        if let Some(bucket_cell) = self.buckets.get(bucket) {
            bucket_cell.get_or_init(|| zeroed_slots(1 << (FIRST_BUCKET_BITS as usize + bucket)));
        }
        SlotId(slot)
    }

    /// Takes back a slot that no index entry and no reader leads to.
    pub(crate) fn release(&self, slot: SlotId) {
        let mut free = self.free.lock();
        free.push(slot);
        self.free_count.store(free.len(), Ordering::Relaxed);
    }

    /// The slot of that number, if it was ever reserved.
    #[inline]
    pub(crate) fn slot(&self, slot: SlotId) -> Option<&Slot> {
        let (bucket, offset) = place(slot.0);
        self.buckets.get(bucket)?.get()?.get(offset)
    }
}

#[inline]
fn place(slot: u64) -> (usize, usize) {
    let shifted = slot.saturating_add(1 << FIRST_BUCKET_BITS);
    let bucket = 63 - shifted.leading_zeros() - FIRST_BUCKET_BITS;
    (
        bucket as usize,
        (shifted - (1 << (bucket + FIRST_BUCKET_BITS))) as usize,
    )
}

fn zeroed_slots(count: usize) -> Box<[Slot]> {
    // SAFETY: all zero bytes are a valid `Slot`: a null pointer and two numbers, all in atomics.
    unsafe { Box::<[Slot]>::new_zeroed_slice(count).assume_init() }
}

impl Drop for SlotArena {
    /// Nobody borrows the arena, so nobody holds a version.
    fn drop(&mut self) {
        for slot in self
            .buckets
            .iter_mut()
            .filter_map(OnceLock::get_mut)
            .flat_map(|bucket| bucket.iter_mut())
        {
            let mut next = std::mem::replace(slot.head.get_mut(), ptr::null_mut());
            while let Some(version) = NonNull::new(next) {
                // SAFETY: exclusive access; each version is in one chain only.
                unsafe {
                    next =
                        VersionRef::from_raw(version.as_ptr()).map_or(ptr::null_mut(), VersionRef::older_raw);
                    version::free_version(version);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_dense() {
        let mut expected = (0, 0);
        for slot in 0..5_000u64 {
            assert_eq!(place(slot), expected);
            expected.1 += 1;
            if expected.1 == 256 << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(u64::MAX).0 >= BUCKETS);
    }

    #[test]
    fn chains_show_each_reader_its_version() {
        let arena = SlotArena::new();
        let id = arena.reserve();
        let slot = arena.slot(id).unwrap();
        slot.set_row_id(RowId {
            batch: BatchId(3),
            member: 7,
            ordinal: u32::MAX,
        });
        slot.push(BatchId(3), Some(b"three"));
        slot.push(BatchId(5), Some(b"five"));
        slot.push(BatchId(9), None);
        let at = |horizon| {
            // SAFETY: nothing is freed in this test while versions are looked at.
            let pin = unsafe { Pin::new(horizon) };
            slot.at(pin)
                .map(|version| (version.is_live(), version.bytes().to_vec()))
        };
        assert_eq!(at(2), None);
        assert_eq!(at(4), Some((true, b"three".to_vec())));
        assert_eq!(at(8), Some((true, b"five".to_vec())));
        assert_eq!(at(u64::MAX), Some((false, Vec::new())));
        assert_eq!(
            slot.row_id(),
            RowId {
                batch: BatchId(3),
                member: 7,
                ordinal: u32::MAX
            }
        );

        let popped = slot.pop().unwrap();
        assert_eq!(at(9), Some((true, b"five".to_vec())));
        // SAFETY: unlinked, no reference left.
        unsafe { popped.free() };
        // SAFETY: nothing is freed while the pin is used.
        let head = slot.at(unsafe { Pin::new(u64::MAX) }).unwrap();
        let cut: Vec<Retired> = head.cut().collect();
        assert_eq!(cut.len(), 1);
        assert_eq!(at(4), None);
        for version in cut {
            // SAFETY: unlinked, no reference left.
            unsafe { version.free() };
        }
    }

    #[test]
    fn released_slots_come_again() {
        let arena = SlotArena::new();
        let slots: Vec<SlotId> = (0..1_000).map(|_| arena.reserve()).collect();
        arena.release(slots[500]);
        assert_eq!(arena.free_len(), 1);
        assert_eq!(arena.reserve(), slots[500]);
        assert_eq!(arena.reserve(), SlotId(1_000));
        assert!(arena.slot(SlotId(1 << 60)).is_none());
    }
}
