//! One slot: a row's place. See `slots.rs` for its layout.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use weft_base::memory::{LINE_BYTES, prefetch};
use weft_base::{BatchId, RowId};

use super::slab::RowMemory;
use super::version::{self, HEADER_BYTES, InlineSpace, Pin, Retired, Version, VersionRef};

/// What begins a slot. All zero is an empty slot.
#[repr(C)]
struct SlotHead {
    newest: AtomicPtr<Version>,
    /// Row id of this row: batch, then member and ordinal. Written before the row's first version is linked;
    /// read only by threads that see a version of that row.
    row_batch: AtomicU64,
    row_place: AtomicU64,
}

const INLINE_OFFSET: usize = size_of::<SlotHead>();
/// Bytes of a slot before its row.
pub(crate) const SLOT_OVERHEAD: usize = INLINE_OFFSET + HEADER_BYTES;
const _: () = assert!(INLINE_OFFSET == 24 && SLOT_OVERHEAD == 48);

/// One row's place.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'s> {
    start: NonNull<SlotHead>,
    room: u32,
    lifetime: PhantomData<&'s SlotHead>,
}

impl<'s> Slot<'s> {
    /// # Safety
    /// For all of `'s`, head, header and `room` bytes for a row are there, aligned to 8; all zero at first.
    #[inline(always)]
    pub(super) unsafe fn new(start: NonNull<u8>, room: u32) -> Self {
        Slot {
            start: start.cast(),
            room,
            lifetime: PhantomData,
        }
    }

    fn head(self) -> &'s SlotHead {
        // SAFETY: slots live as long as their arena; the head is made of atomics.
        unsafe { self.start.as_ref() }
    }

    pub(super) fn inline(self) -> InlineSpace {
        // SAFETY: a slot has header and `room` bytes behind its head, aligned to 8.
        unsafe { InlineSpace::new(self.start.byte_add(INLINE_OFFSET).cast(), self.room as usize) }
    }

    /// Its address, for hints.
    pub(crate) fn address(self) -> *const u8 {
        self.start.as_ptr().cast_const().cast()
    }

    /// Prefetches the slot's head, and the first cells of its row if that is inline.
    #[inline]
    pub(crate) fn prefetch_head(self) {
        prefetch(self.address());
        prefetch(self.address().wrapping_add(LINE_BYTES));
    }

    /// Bytes of the whole slot.
    pub(crate) fn size_bytes(self) -> usize {
        SLOT_OVERHEAD + self.room as usize
    }

    /// The row id of the row in this slot.
    #[inline]
    pub(crate) fn row_id(self) -> RowId {
        let place = self.head().row_place.load(Ordering::Relaxed);
        RowId {
            batch: BatchId(self.head().row_batch.load(Ordering::Relaxed)),
            member: (place >> 32) as u32,
            ordinal: place as u32,
        }
    }

    /// Sets the row that is about to be stored here.
    pub(crate) fn set_row_id(self, id: RowId) {
        let place = u64::from(id.member) << 32 | u64::from(id.ordinal);
        self.head().row_batch.store(id.batch.0, Ordering::Relaxed);
        self.head().row_place.store(place, Ordering::Relaxed);
    }

    /// The address of the newest version if it is not in this slot, for hints.
    pub(crate) fn newest_elsewhere(self) -> Option<*const u8> {
        let newest = self.head().newest.load(Ordering::Relaxed).cast_const();
        let is_near = newest.is_null() || newest.addr() == self.start.addr().get() + INLINE_OFFSET;
        (!is_near).then_some(newest.cast())
    }

    /// The newest version that the pin may see, tombstones included.
    #[inline]
    pub(crate) fn at(self, pin: Pin<'s>) -> Option<VersionRef<'s>> {
        // SAFETY: the pin keeps every version alive that it can reach.
        let mut version = unsafe { VersionRef::from_raw(self.head().newest.load(Ordering::Acquire)) };
        while let Some(found) = version {
            if found.batch().0 <= pin.horizon() {
                return Some(found);
            }
            version = found.older();
        }
        None
    }

    /// Links a new newest version, inline if there is space; `None` makes a tombstone. One writer per slot at
    /// a time (guaranteed by a lock above). Returns the version, which the pin keeps alive.
    #[inline]
    pub(crate) fn push(
        self,
        _pin: Pin<'s>,
        batch: BatchId,
        bytes: Option<&[u8]>,
        memory: &RowMemory,
    ) -> VersionRef<'s> {
        let older = self.head().newest.load(Ordering::Relaxed);
        let at_home = bytes.and_then(|row| self.inline().write(batch, row, older, 0));
        let version = at_home.unwrap_or_else(|| version::allocate(batch, bytes, older, 0, memory));
        self.head().newest.store(version.as_ptr(), Ordering::Release);
        // SAFETY: linked just now; it may be unlinked soon, but is not freed while the pin is used.
        unsafe { VersionRef::from_linked(version) }
    }

    /// Puts a row into an empty slot, inline if it fits; returns the version's size. Nobody else knows the
    /// slot.
    pub(super) fn put(self, batch: BatchId, row: &[u8], seal_bits: u32, memory: &RowMemory) -> usize {
        let nothing = ptr::null_mut();
        let inline = self.inline().write(batch, row, nothing, seal_bits);
        let version =
            inline.unwrap_or_else(|| version::allocate(batch, Some(row), nothing, seal_bits, memory));
        self.set_newest(version.as_ptr());
        version::size_of_row(row.len())
    }

    /// The same for a slot with enough room.
    pub(super) fn fill(self, batch: BatchId, row: &[u8], seal_bits: u32) {
        if let Some(version) = self.inline().write(batch, row, ptr::null_mut(), seal_bits) {
            self.set_newest(version.as_ptr());
        }
    }

    pub(super) fn newest_raw(self) -> *mut Version {
        self.head().newest.load(Ordering::Acquire)
    }

    pub(super) fn set_newest(self, version: *mut Version) {
        self.head().newest.store(version, Ordering::Release);
    }

    /// Where its inline version is, or would be.
    pub(super) fn inline_version(self) -> *mut Version {
        // SAFETY: inside the slot.
        unsafe { self.start.byte_add(INLINE_OFFSET).cast().as_ptr() }
    }

    /// There is no row in it, and nothing that waits for readers to leave.
    pub(super) fn is_empty(self) -> bool {
        self.newest_raw().is_null() && !self.inline().is_taken()
    }

    /// Its live row, if that has one version and nothing else in the slot waits for readers to leave. No
    /// batch is open, and nobody collects.
    pub(super) fn only_version(self) -> Option<VersionRef<'s>> {
        // SAFETY: nobody frees a version meanwhile.
        let newest = unsafe { VersionRef::from_raw(self.newest_raw()) }?;
        let is_inline = ptr::eq(self.newest_raw(), self.inline_version());
        let is_alone = is_inline || !self.inline().is_taken();
        (newest.is_live() && newest.older().is_none() && is_alone).then_some(newest)
    }

    /// Its newest version, which no place leads to any more.
    ///
    /// # Safety
    /// Nobody finds this slot any more, and this is called once.
    pub(super) unsafe fn retired(self) -> Option<Retired> {
        // SAFETY: not freed before; passed on to the caller.
        NonNull::new(self.newest_raw()).map(|version| unsafe { Retired::from_unlinked(version) })
    }

    /// Unlinks the newest version: rollback, or the garbage collector on a tombstone.
    pub(crate) fn pop(self) -> Option<Retired> {
        let newest = NonNull::new(self.head().newest.load(Ordering::Acquire))?;
        // SAFETY: linked, so not freed; only the one writer of this slot unlinks.
        let retired = unsafe { Retired::from_unlinked(newest) };
        let older = retired.view().older_raw();
        self.head().newest.store(older, Ordering::Release);
        Some(retired)
    }

    /// Relocates the row into the slot if its only version is in a block and the inline space is free;
    /// returns the version in the block. Garbage collector only.
    pub(crate) fn relocate_inline(self) -> Option<Retired> {
        self.newest_elsewhere()?;
        self.move_inline()
    }

    /// Moves a row's only version from a block into the free inline space; returns the one in the block.
    /// Garbage collector only: no batch is open, so nobody else writes.
    pub(super) fn move_inline(self) -> Option<Retired> {
        let newest = NonNull::new(self.head().newest.load(Ordering::Acquire))?;
        // SAFETY: linked, so not freed; the collector alone unlinks now.
        let retired = unsafe { Retired::from_unlinked(newest) };
        let version = retired.view();
        if !version.is_live() || version.older().is_some() {
            return None;
        }
        let moved = self.inline().write(
            version.batch(),
            version.bytes(),
            ptr::null_mut(),
            version.seal_bits(),
        )?;
        self.head().newest.store(moved.as_ptr(), Ordering::Release);
        Some(retired)
    }
}
