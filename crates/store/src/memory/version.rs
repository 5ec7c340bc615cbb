//! One version of a row: a header and the row's bytes in one allocation, linked to the version that it
//! superseded.

use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use weft_base::BatchId;

/// Header of a version; `len` bytes of the row follow it.
#[repr(C)]
pub(crate) struct Version {
    batch: u64,
    prev: AtomicPtr<Version>,
    len: u32,
    tombstone: u32,
}

const HEADER_BYTES: usize = size_of::<Version>();
const _: () = assert!(HEADER_BYTES == 24 && align_of::<Version>() == 8);

/// Permission to follow version pointers for `'s`, and the newest batch to see. Readers hold their
/// boundary, the open batch sees everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pin<'s> {
    horizon: u64,
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
            lifetime: PhantomData,
        }
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

    fn header(self) -> &'s Version {
        // SAFETY: alive for 's by construction; only atomics change.
        unsafe { self.version.as_ref() }
    }

    /// Where it lies: for hints.
    pub(crate) fn address(self) -> *const u8 {
        self.version.as_ptr().cast_const().cast()
    }

    /// The batch that wrote it.
    pub(crate) fn batch(self) -> BatchId {
        BatchId(self.header().batch)
    }

    /// False for the mark that a row was removed.
    pub(crate) fn is_live(self) -> bool {
        self.header().tombstone == 0
    }

    /// The row's bytes; empty for a tombstone.
    pub(crate) fn bytes(self) -> &'s [u8] {
        let len = self.header().len as usize;
        // SAFETY: `allocate` reserved and filled `len` bytes after the header; they are never written again.
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

    /// Memory that it takes.
    pub(crate) fn size_bytes(self) -> usize {
        size_of_row(self.header().len as usize)
    }

    /// Cuts off everything older, newest first. Garbage collector only: no registered reader goes past this
    /// version.
    pub(crate) fn cut(self) -> impl Iterator<Item = Retired> {
        let mut next = self.header().prev.swap(ptr::null_mut(), Ordering::AcqRel);
        std::iter::from_fn(move || {
            let version = NonNull::new(next)?;
            // SAFETY: unlinked just now and not freed before the caller does so.
            next = unsafe { version.as_ref() }.prev.load(Ordering::Acquire);
            Some(Retired { version })
        })
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

/// A version that no slot leads to any more, waiting until the last reader that may hold it has gone.
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

    /// Looks into it; the borrow keeps it from being freed.
    pub(crate) fn view(&self) -> VersionRef<'_> {
        VersionRef {
            version: self.version,
            lifetime: PhantomData,
        }
    }

    /// Gives the memory back; returns its size.
    ///
    /// # Safety
    /// No `VersionRef` to it exists and none can be made any more.
    pub(crate) unsafe fn free(self) -> usize {
        let bytes = self.view().size_bytes();
        // SAFETY: passed on to the caller.
        unsafe { free_version(self.version) };
        bytes
    }
}

/// Memory that a version of a row of `len` bytes takes.
pub(super) fn size_of_row(len: usize) -> usize {
    HEADER_BYTES + len
}

fn layout_for(len: usize) -> Layout {
    // A row is at most u32::MAX bytes, so this cannot exceed isize on 64-bit machines.
    Layout::from_size_align(HEADER_BYTES + len, align_of::<Version>()).unwrap_or(Layout::new::<Version>())
}

/// A new version in front of `prev`; `None` as bytes makes a tombstone.
///
/// Panics (aborts) only when memory is exhausted, as every allocation does.
pub(super) fn allocate(batch: BatchId, bytes: Option<&[u8]>, prev: *mut Version) -> NonNull<Version> {
    let tombstone = u32::from(bytes.is_none());
    let bytes = bytes.unwrap_or_default();
    assert!(bytes.len() <= u32::MAX as usize, "row longer than 4 GiB");
    let layout = layout_for(bytes.len());
    // SAFETY: the layout has a size of at least the header.
    let memory = unsafe { alloc::alloc(layout) };
    let Some(version) = NonNull::new(memory.cast::<Version>()) else {
        alloc::handle_alloc_error(layout);
    };
    // SAFETY: fresh memory of header and `len` bytes, aligned for the header.
    unsafe {
        version.as_ptr().write(Version {
            batch: batch.0,
            prev: AtomicPtr::new(prev),
            len: bytes.len() as u32,
            tombstone,
        });
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory.add(HEADER_BYTES), bytes.len());
    }
    version
}

/// # Safety
/// Made by [`allocate`], unreachable, not freed before.
pub(super) unsafe fn free_version(version: NonNull<Version>) {
    // SAFETY: by the contract the header is readable and the memory is ours.
    unsafe {
        let len = version.as_ref().len as usize;
        alloc::dealloc(version.as_ptr().cast::<u8>(), layout_for(len));
    }
}
