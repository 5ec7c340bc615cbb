//! One version of a row: a header and the row's bytes behind it, linked to the version that it superseded.
//!
//! A version is stored inline in its slot (`slots.rs`) or in a block of its own (`slab.rs`). Once linked, its
//! bytes and header do not change, except for the link, which the collector cuts, and the flags: whether it
//! is inline, whether the update that made it changed no index, and the *seal*, 24 bits of the row's term of
//! the state digest. The seal is compared before a row is replaced or written to disk, which detects bits
//! that have flipped.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use weft_base::BatchId;
use weft_types::SqlError;

use super::context::ReadContext;
use super::slab::{RowMemory, block_bytes};

/// Header of a version; `len` bytes of the row follow it.
#[repr(C)]
pub(crate) struct Version {
    batch: u64,
    prev: AtomicPtr<Version>,
    len: u32,
    flags: AtomicU32,
}

/// The mark that a row was removed.
const TOMBSTONE: u32 = 1;
/// The version is inline in its slot. No flag at all means that the inline space is free.
const INLINE: u32 = 2;
/// The slot is to be released once its inline space is free.
const RELEASE: u32 = 4;
/// The version has the same keys as the one that it superseded, in all indexes that existed then.
const KEEPS_KEYS: u32 = 8;
/// Bits of the flags below the seal.
const SEAL_SHIFT: u32 = 8;
const MARKS: u32 = (1 << SEAL_SHIFT) - 1;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = size_of::<Version>();
const _: () = assert!(HEADER_BYTES == 24 && align_of::<Version>() == 8);

/// Permission to follow version pointers for `'s`, the newest batch to see, and what belongs to the reader.
/// Readers use their boundary, the open batch sees everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin<'s> {
    horizon: u64,
    /// `None`: it passes over cold rows.
    context: Option<&'s ReadContext>,
    lifetime: PhantomData<&'s ()>,
}

impl<'s> Pin<'s> {
    /// Sees all versions.
    pub(crate) const EVERYTHING: u64 = u64::MAX;

    /// # Safety For all of `'s`, nothing that this pin can reach is freed: either a reader is registered at
    /// a boundary not above `horizon`, and has been since that boundary was current, or the caller keeps
    /// [`Retired::free`] from being called.
    pub(crate) unsafe fn new(horizon: u64) -> Self {
        Pin {
            horizon,
            context: None,
            lifetime: PhantomData,
        }
    }

    /// The same, for somebody who reads rows: cold ones and those of an earlier layout, too.
    pub(crate) fn with_context(self, context: &'s ReadContext) -> Self {
        Pin {
            context: Some(context),
            ..self
        }
    }

    /// For somebody who needs cold rows.
    pub(super) fn context(self) -> Option<&'s ReadContext> {
        self.context
    }

    /// See [`ReadContext::keep`]; `None` if it reads no rows.
    pub(crate) fn keep(
        self,
        version: VersionRef<'s>,
        convert: impl FnOnce(&mut Vec<u8>),
    ) -> Option<&'s [u8]> {
        debug_assert!(
            self.context.is_some(),
            "rows are read through pins with a context"
        );
        self.context.map(|context| context.keep(version, convert))
    }

    /// See [`ReadContext::check`].
    #[inline]
    pub(crate) fn check(self) -> Result<(), SqlError> {
        self.context.map_or(Ok(()), ReadContext::check)
    }

    /// The newest batch that is visible.
    pub(crate) fn horizon(self) -> u64 {
        self.horizon
    }
}

/// A version that is alive for `'s`.
#[derive(Clone, Copy)]
pub(crate) struct VersionRef<'s> {
    version: NonNull<Version>,
    lifetime: PhantomData<&'s Version>,
}

// SAFETY: a version is immutable but for `prev`, which is atomic; the lifetime keeps it alive.
unsafe impl Send for VersionRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for VersionRef<'_> {}

impl<'s> VersionRef<'s> {
    /// # Safety
    /// A pointer that is not null points to a version that is not freed during `'s`.
    pub(super) unsafe fn from_raw(version: *mut Version) -> Option<Self> {
        NonNull::new(version).map(|version| VersionRef {
            version,
            lifetime: PhantomData,
        })
    }

    /// # Safety
    /// As above.
    pub(super) unsafe fn from_linked(version: NonNull<Version>) -> Self {
        VersionRef {
            version,
            lifetime: PhantomData,
        }
    }

    #[inline(always)]
    fn header(self) -> &'s Version {
        // SAFETY: alive for 's by construction; only atomics change.
        unsafe { self.version.as_ref() }
    }

    /// The batch that wrote it.
    pub(crate) fn batch(self) -> BatchId {
        BatchId(self.header().batch)
    }

    /// False for the mark that a row was removed.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & TOMBSTONE == 0
    }

    /// Where it is: of no other version while somebody may use this one.
    pub(super) fn address(self) -> usize {
        self.version.as_ptr().addr()
    }

    /// The row's bytes as they were written, in the layout of then; empty for a tombstone.
    pub(crate) fn bytes(self) -> &'s [u8] {
        let len = self.header().len as usize;
        // SAFETY: `write` filled `len` bytes after the header; they do not change while it is linked or read.
        unsafe { std::slice::from_raw_parts(self.version.as_ptr().cast::<u8>().add(HEADER_BYTES), len) }
    }

    /// The version that this one superseded.
    pub(crate) fn older(self) -> Option<VersionRef<'s>> {
        // SAFETY: a chain link is alive as long as the version that leads to it may be followed (`Pin`).
        unsafe { VersionRef::from_raw(self.header().prev.load(Ordering::Acquire)) }
    }

    pub(super) fn older_raw(self) -> *mut Version {
        self.header().prev.load(Ordering::Acquire)
    }

    /// Replaces the version that this one superseded by a copy of it. No batch is open, and nobody collects.
    pub(super) fn set_older(self, copy: *mut Version) {
        self.header().prev.store(copy, Ordering::Release);
    }

    /// Memory that it takes.
    pub(crate) fn size_bytes(self) -> usize {
        size_of_row(self.header().len as usize)
    }

    /// Memory that it takes if it is in a block; an inline one takes a block from its successor.
    pub(crate) fn memory_bytes(self) -> usize {
        block_bytes(self.size_bytes())
    }

    /// Seals it with the row's term of the digest, and records whether it has the keys of the version that it
    /// superseded. Called once, right after linking.
    #[inline]
    pub(crate) fn seal(self, term: u64, keeps_keys: bool) {
        let flags = &self.header().flags;
        let marks = flags.load(Ordering::Relaxed) & MARKS | if keeps_keys { KEEPS_KEYS } else { 0 };
        flags.store(marks | (term as u32) << SEAL_SHIFT, Ordering::Relaxed);
    }

    /// It has the keys of the version that it superseded, in each index that existed when it was linked. An
    /// index created later has no entries for versions that were superseded by then.
    #[inline]
    pub(crate) fn keeps_keys(self) -> bool {
        self.header().flags.load(Ordering::Relaxed) & KEEPS_KEYS != 0
    }

    /// Clears the flag of [`VersionRef::keeps_keys`]. Garbage collector only.
    pub(crate) fn forget_keys_kept(self) {
        self.header().flags.fetch_and(!KEEPS_KEYS, Ordering::Relaxed);
    }

    /// Whether it was sealed with this term. If a bit of the row has flipped since, the answer is wrong in
    /// one case out of 16 million.
    #[inline]
    pub(crate) fn is_sealed_with(self, term: u64) -> bool {
        self.seal_bits() == (term as u32) << SEAL_SHIFT
    }

    pub(super) fn seal_bits(self) -> u32 {
        self.header().flags.load(Ordering::Relaxed) & !MARKS
    }

    /// Cuts off older versions, newest first. Garbage collector only: no registered reader goes past this
    /// version.
    pub(crate) fn cut(self) -> Cut<'s> {
        Cut {
            floor: self,
            next: self.header().prev.swap(ptr::null_mut(), Ordering::AcqRel),
        }
    }

    /// Flips one stored bit: what a memory fault does. For tests of the digest, with no reader about.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn flip_bit(self, bit: usize) {
        let len = self.header().len as usize;
        if len == 0 {
            return;
        }
        let bit = bit % (len * 8);
        // SAFETY: inside the allocation; the caller keeps readers away.
        unsafe {
            let byte = self.version.as_ptr().cast::<u8>().add(HEADER_BYTES + bit / 8);
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// The versions cut off below a version. Those not taken are linked again when this is dropped.
pub(crate) struct Cut<'s> {
    floor: VersionRef<'s>,
    next: *mut Version,
}

impl Iterator for Cut<'_> {
    type Item = Retired;

    fn next(&mut self) -> Option<Retired> {
        let version = NonNull::new(self.next)?;
        // SAFETY: unlinked just now and not freed before the caller does so.
        self.next = unsafe { version.as_ref() }.prev.load(Ordering::Acquire);
        Some(Retired { version })
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        if !self.next.is_null() {
            self.floor.header().prev.store(self.next, Ordering::Release);
        }
    }
}

/// A version that no slot leads to any more, waiting until the last reader that may use it has left.
#[derive(Debug)]
#[must_use = "a retired version must reach the retire queue, or its memory is lost"]
pub(crate) struct Retired {
    version: NonNull<Version>,
}

// SAFETY: a retired version is plain memory with one owner.
unsafe impl Send for Retired {}
// SAFETY: shared access only reads.
unsafe impl Sync for Retired {}

impl Retired {
    /// # Safety
    /// `version` is not freed, and the caller unlinks it now.
    pub(super) unsafe fn from_unlinked(version: NonNull<Version>) -> Self {
        Retired { version }
    }

    /// Accesses it; the borrow keeps it from being freed.
    pub(crate) fn view(&self) -> VersionRef<'_> {
        VersionRef {
            version: self.version,
            lifetime: PhantomData,
        }
    }

    /// Its address, for hints.
    pub(crate) fn address(&self) -> *const u8 {
        self.version.as_ptr().cast_const().cast()
    }

    /// The bits of the flags that seal a row with this term of the digest.
    pub(super) fn seal_of(term: u64) -> u32 {
        (term as u32) << SEAL_SHIFT
    }

    /// It is inline in its slot, so freeing it frees inline space instead of a block.
    pub(crate) fn is_inline(&self) -> bool {
        self.view().header().flags.load(Ordering::Relaxed) & INLINE != 0
    }

    /// Returns the block to its slab; returns the version's size. Does nothing for an inline version: that is
    /// up to [`super::SlotArena::inline_space_freed`].
    ///
    /// # Safety
    /// No `VersionRef` to it exists and none can be made any more; `memory` is what it was made from.
    pub(crate) unsafe fn free(self, memory: &RowMemory) -> usize {
        let bytes = self.view().size_bytes();
        // SAFETY: passed on to the caller.
        unsafe { free_version(self.version, memory) };
        bytes
    }
}

/// Memory that a version of a row of `len` bytes takes.
pub(super) fn size_of_row(len: usize) -> usize {
    HEADER_BYTES + len
}

/// Writes a version; `None` as bytes makes a tombstone.
///
/// # Safety
/// `place` is aligned to 8, has room for header and bytes, and nobody else looks at it.
unsafe fn write(
    place: NonNull<Version>,
    batch: BatchId,
    bytes: Option<&[u8]>,
    prev: *mut Version,
    flags: u32,
) {
    let flags = flags | if bytes.is_none() { TOMBSTONE } else { 0 };
    let bytes = bytes.unwrap_or_default();
    assert!(bytes.len() <= u32::MAX as usize, "row longer than 4 GiB");
    // SAFETY: by the contract the memory is ours and large enough.
    unsafe {
        place.write(Version {
            batch: batch.0,
            prev: AtomicPtr::new(prev),
            len: bytes.len() as u32,
            flags: AtomicU32::new(flags),
        });
        let row = place.as_ptr().cast::<u8>().add(HEADER_BYTES);
        ptr::copy_nonoverlapping(bytes.as_ptr(), row, bytes.len());
    }
}

/// A new version in front of `prev`, in a block of its own, sealed with these bits; `None` as bytes makes a
/// tombstone.
pub(super) fn allocate(
    batch: BatchId,
    bytes: Option<&[u8]>,
    prev: *mut Version,
    seal_bits: u32,
    memory: &RowMemory,
) -> NonNull<Version> {
    let place = memory.take(size_of_row(bytes.map_or(0, <[u8]>::len))).cast();
    // SAFETY: a block for header and bytes, taken just now.
    unsafe { write(place, batch, bytes, prev, seal_bits) };
    place
}

/// A slot's inline space for a version.
#[derive(Clone, Copy)]
pub(super) struct InlineSpace {
    place: NonNull<Version>,
    /// The longest row that fits, in bytes.
    room: usize,
}

impl InlineSpace {
    /// # Safety
    /// `place` is aligned to 8, its header and `room` bytes behind it are used as inline space only and live
    /// as long as the result is used.
    pub(super) unsafe fn new(place: NonNull<Version>, room: usize) -> Self {
        InlineSpace { place, room }
    }

    fn flags(&self) -> &AtomicU32 {
        // SAFETY: the header is valid even when all zero; only the atomic is looked at.
        unsafe { &(*self.place.as_ptr()).flags }
    }

    /// Writes a version here, sealed with these bits, if the space is free and the row fits. One writer per
    /// slot at a time.
    pub(super) fn write(
        &self,
        batch: BatchId,
        row: &[u8],
        prev: *mut Version,
        seal_bits: u32,
    ) -> Option<NonNull<Version>> {
        if row.len() > self.room || self.flags().load(Ordering::Relaxed) != 0 {
            return None;
        }
        // SAFETY: free, so no slot leads here and no reader is left; the row fits.
        unsafe { write(self.place, batch, Some(row), prev, INLINE | seal_bits) };
        Some(self.place)
    }

    /// It holds a version, linked or not.
    pub(super) fn is_taken(&self) -> bool {
        self.flags().load(Ordering::Relaxed) != 0
    }

    /// Asks that the slot be released once the space is free; false if it is free already.
    pub(super) fn release_later(&self) -> bool {
        let is_taken = self.flags().load(Ordering::Relaxed) != 0;
        if is_taken {
            self.flags().fetch_or(RELEASE, Ordering::Relaxed);
        }
        is_taken
    }

    /// Marks it free; returns whether the slot is to be released. The version in it is unlinked and no reader
    /// is left that could use it.
    pub(super) fn leave(&self) -> bool {
        self.flags().swap(0, Ordering::Relaxed) & RELEASE != 0
    }
}

/// # Safety
/// Made by [`allocate`] from `memory` or inline; unreachable, not freed before.
pub(super) unsafe fn free_version(version: NonNull<Version>, memory: &RowMemory) {
    // SAFETY: by the contract the header is readable and the memory is ours.
    unsafe {
        if version.as_ref().flags.load(Ordering::Relaxed) & INLINE == 0 {
            let bytes = size_of_row(version.as_ref().len as usize);
            memory.deallocate(version.cast(), bytes);
        }
    }
}
