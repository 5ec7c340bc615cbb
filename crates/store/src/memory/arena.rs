//! Row memory: blocks cut from extents of huge pages.
//!
//! ```text
//!   PageMemory 2 MB, 4 MB, ... 64 MB      one extent after the other, each cut from its beginning
//!     | lines of an index | slots of a table | versions | ...      blocks, aligned to cache lines
//! ```
//!
//! A returned block waits in a list for a request of the same kind and size: tables, index tables and slabs
//! request few sizes, again and again. Extents go back to the system with the arena. In a large arena, the
//! memory used next is populated in advance (`prefault.rs`).
//!
//! Invariants:
//! 1. A block's memory stays mapped, and is used for its [`Kind`] only, while the arena lives. So a reader
//!    that accesses index lines by atomics, a moment after they were returned, sees old or foreign lines but
//!    never a freed page or plain writes; it must check afterwards and retry (`index/hash.rs`).
//! 2. A block handed out is zero.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_base::memory::{HUGE_PAGE_BYTES, LINE_BYTES, PageMemory, Pages};

use super::prefault::{PrefaultedPages, Prefaulter};

const EXTENT_BYTES_MAX: usize = 64 << 20;
/// Extents of at least this size are prefaulted.
const PREFAULT_FROM_BYTES: usize = 32 << 20;
/// How far ahead pages are populated.
const PREFAULT_BYTES: usize = 8 << 20;

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Lines of a hash index, nodes and keys of an ordered one; touched by atomic words only.
    IndexLines,
    /// The slots of a table.
    Slots,
    /// A slab of versions.
    Versions,
}

/// Memory taken from the system so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArenaSize {
    /// Address space of extents in huge pages; memory is used as it is touched, or a little before.
    pub(crate) huge_bytes: u64,
    /// The same in ordinary pages, because the system refused huge ones.
    pub(crate) ordinary_bytes: u64,
}

/// Extents and the blocks cut from them. Shared by all tables of a store.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    state: Mutex<State>,
    huge_bytes: AtomicU64,
    ordinary_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks are cut from the last one.
    extents: Vec<Arc<PageMemory>>,
    cut_bytes: usize,
    /// How much of the last extent has been requested for prefaulting.
    asked_bytes: usize,
    /// The extent after the last one, once that is nearly used up, and how much of it has been requested.
    next: Option<(Arc<PageMemory>, usize)>,
    prefaulter: Prefaulter,
    given_back: HashMap<(Kind, usize), Vec<Block>>,
}

/// The beginning of a block.
#[derive(Clone, Copy, Debug)]
struct Block(NonNull<u8>);

// SAFETY: an address of plain memory.
unsafe impl Send for Block {}

impl Arena {
    /// A block of at least `bytes` zero bytes, aligned to a cache line. Aborts the process if the system has
    /// no memory, as every allocation does.
    pub(crate) fn take(&self, kind: Kind, bytes: usize) -> NonNull<u8> {
        let bytes = rounded(bytes);
        let mut state = self.state.lock();
        let again = state.given_back.get_mut(&(kind, bytes)).and_then(Vec::pop);
        if let Some(Block(block)) = again {
            drop(state);
            // SAFETY: the block has this size and nobody else uses it, except readers of index lines, which
            // use atomics; those lines are zeroed by atomics too.
            unsafe { clear(kind, block, bytes) };
            return block;
        }
        let has_room = |extent: &Arc<PageMemory>| extent.size_bytes() - state.cut_bytes >= bytes;
        if !state.extents.last().is_some_and(has_room) {
            self.add_extent(&mut state, bytes);
        }
        let at = state.cut_bytes;
        state.cut_bytes += bytes;
        self.prefault_next(&mut state, at);
        match state.extents.last() {
            // SAFETY: `at + bytes` is at most the extent's size.
            Some(extent) => unsafe { extent.base().add(at) },
            None => handle_alloc_error(Layout::new::<State>()),
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`Arena::take`] with this kind and size and is not used any more, except that readers may
    /// still access index lines by atomics.
    pub(crate) unsafe fn deallocate(&self, kind: Kind, block: NonNull<u8>, bytes: usize) {
        let key = (kind, rounded(bytes));
        self.state
            .lock()
            .given_back
            .entry(key)
            .or_default()
            .push(Block(block));
    }

    /// The results of prefaulting.
    pub(crate) fn prefaulted_pages(&self) -> PrefaultedPages {
        self.state.lock().prefaulter.pages()
    }

    /// Memory taken from the system.
    pub(crate) fn size(&self) -> ArenaSize {
        ArenaSize {
            huge_bytes: self.huge_bytes.load(Ordering::Relaxed),
            ordinary_bytes: self.ordinary_bytes.load(Ordering::Relaxed),
        }
    }

    fn add_extent(&self, state: &mut State, bytes: usize) {
        let fits = |next: &(Arc<PageMemory>, usize)| next.0.size_bytes() >= bytes;
        let found = match state.next.take_if(|next| fits(next)) {
            Some(next) => Ok(next),
            None => self.extent(state, bytes).map(|extent| (extent, 0)),
        };
        match found {
            Ok((extent, asked_bytes)) => {
                state.extents.push(extent);
                (state.cut_bytes, state.asked_bytes) = (0, asked_bytes);
            }
            Err(bytes) => {
                handle_alloc_error(Layout::from_size_align(bytes, LINE_BYTES).unwrap_or(Layout::new::<u8>()))
            }
        }
    }

    /// An extent for a block of so many bytes; its size if the system has no memory.
    fn extent(&self, state: &State, bytes: usize) -> Result<Arc<PageMemory>, usize> {
        let doubled = HUGE_PAGE_BYTES << state.extents.len().min(16);
        let size = doubled.min(EXTENT_BYTES_MAX).max(bytes);
        let extent = PageMemory::new(size, Pages::Huge).map_err(|_| size)?;
        let counter = if extent.is_huge() {
            &self.huge_bytes
        } else {
            &self.ordinary_bytes
        };
        counter.fetch_add(extent.size_bytes() as u64, Ordering::Relaxed);
        Ok(Arc::new(extent))
    }

    /// Prefaults what will be cut next, once the arena is large; the last block begins at `at`. A block that
    /// is longer than the prefaulted range is not prefaulted itself: its owner may need only a part of it.
    fn prefault_next(&self, state: &mut State, at: usize) {
        let Some(extent) = state.extents.last() else {
            return;
        };
        let size = extent.size_bytes();
        let list = state.cut_bytes.saturating_add(PREFAULT_BYTES);
        if size < PREFAULT_FROM_BYTES || list <= state.asked_bytes {
            return;
        }
        let begin = match state.cut_bytes - at > PREFAULT_BYTES {
            true => state.cut_bytes,
            false => at,
        };
        state.asked_bytes = state.asked_bytes.max(begin - begin % HUGE_PAGE_BYTES);
        let end = list.next_multiple_of(HUGE_PAGE_BYTES).min(size);
        if state.asked_bytes < end && state.prefaulter.ask(extent, state.asked_bytes..end) {
            state.asked_bytes = end;
        }
        if list > size && state.next.is_none() {
            // If there is no memory, the next allocation will report it.
            state.next = self.extent(state, 0).ok().map(|next| (next, 0));
        }
        if let Some((next, asked_bytes @ 0)) = &mut state.next
            && state.prefaulter.ask(next, 0..PREFAULT_BYTES)
        {
            *asked_bytes = PREFAULT_BYTES;
        }
    }
}

fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(LINE_BYTES)
}

/// # Safety
/// The block is `bytes` long, a multiple of a line, and nobody uses it except readers of index lines.
unsafe fn clear(kind: Kind, block: NonNull<u8>, bytes: usize) {
    if kind == Kind::IndexLines {
        // A reader that sees one of these zeros must see that its table was replaced: a seqlock writer's
        // fence.
        std::sync::atomic::fence(Ordering::Release);
        for word in 0..bytes / size_of::<AtomicU64>() {
            // SAFETY: inside the block, aligned, and touched by atomics only.
            unsafe { block.cast::<AtomicU64>().add(word).as_ref() }.store(0, Ordering::Relaxed);
        }
    } else {
        // SAFETY: passed on.
        unsafe { block.write_bytes(0, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_disjoint_and_reused() {
        let arena = Arena::default();
        let mut blocks: Vec<NonNull<u8>> = (0..100).map(|_| arena.take(Kind::Slots, 100_000)).collect();
        blocks.sort();
        for pair in blocks.windows(2) {
            assert!(pair[1].addr().get() - pair[0].addr().get() >= 100_000);
        }
        for kind in [Kind::Slots, Kind::IndexLines] {
            let block = arena.take(kind, 128);
            // SAFETY: 128 bytes, ours.
            unsafe { block.write_bytes(7, 128) };
            // SAFETY: taken just now with this kind and size, not used below.
            unsafe { arena.deallocate(kind, block, 128) };
            assert_ne!(arena.take(Kind::Versions, 128), block, "another kind");
            let again = arena.take(kind, 128);
            assert_eq!(again, block);
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(again.as_ptr(), 128) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        let size = arena.size();
        assert!(size.huge_bytes + size.ordinary_bytes >= 10_000_000);
    }

    /// Blocks over several extents are zero, apart, and as many bytes are taken as before: an extent that was
    /// made ahead is the next one that is cut.
    #[test]
    fn memory_prepared_ahead_is_used() {
        let arena = Arena::default();
        let bytes = 1 << 20;
        let mut blocks: Vec<NonNull<u8>> = (0..200).map(|_| arena.take(Kind::Slots, bytes)).collect();
        blocks.sort();
        for pair in blocks.windows(2) {
            assert!(pair[1].addr().get() - pair[0].addr().get() >= bytes);
        }
        let looked_at = if cfg!(miri) { 64 } else { bytes };
        for block in &blocks {
            // SAFETY: a block of at least this size, ours.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), looked_at) };
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        let size = arena.size();
        // 2 + 4 + 8 + 16 + 32 + 64 + 64 + 64 MB, the last ahead.
        assert_eq!(size.huge_bytes + size.ordinary_bytes, 254 << 20);
        let state = arena.state.lock();
        assert_eq!(state.extents.len() + usize::from(state.next.is_some()), 8);
    }

    /// What will be cut next has its pages before anybody touches it; nothing far behind it has.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn the_next_block_has_resident_pages() {
        let arena = Arena::default();
        let mut taken = 0;
        // Into the first extent that is large enough, by less than what is had ahead.
        while taken < 34 << 20 {
            arena.take(Kind::Slots, 1 << 20);
            taken += 1 << 20;
        }
        for _ in 0..10_000 {
            let (pages, state) = (arena.prefaulted_pages(), arena.state.lock());
            let extent = state.extents.last().unwrap();
            assert_eq!(extent.size_bytes(), PREFAULT_FROM_BYTES);
            let prefaulter = extent.resident_bytes(state.cut_bytes, PREFAULT_BYTES);
            if pages.stopped || pages.refused > 0 {
                println!("NOT TESTED: {pages:?}");
                return;
            }
            if prefaulter == PREFAULT_BYTES {
                let end = state.cut_bytes + PREFAULT_BYTES + HUGE_PAGE_BYTES;
                assert_eq!(
                    extent.resident_bytes(end, usize::MAX),
                    0,
                    "nobody has asked for it"
                );
                assert!(pages.bytes >= PREFAULT_BYTES as u64, "{pages:?}");
                return;
            }
            drop(state);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("pages do not come: {:?}", arena.prefaulted_pages());
    }

    #[test]
    fn a_block_may_be_larger_than_an_extent() {
        let arena = Arena::default();
        let block = arena.take(Kind::Slots, 3 * EXTENT_BYTES_MAX);
        // SAFETY: the last byte of the block.
        unsafe { block.add(3 * EXTENT_BYTES_MAX - 1).write(1) };
        assert_ne!(arena.take(Kind::Slots, 64), block);
    }
}
