//! Where row memory comes from: blocks cut from extents of huge pages.
//!
//! ```text
//!   PageMemory 2 MB, 4 MB, ... 64 MB      one extent after the other, each cut from its beginning
//!     | lines of an index | slots of a table | versions | ...      blocks, aligned to cache lines
//! ```
//!
//! A block that is given back waits in a list for a request of the same kind and size: tables, index tables
//! and slabs ask for few sizes, again and again. Extents go back to the system with the arena.
//!
//! Invariants:
//! 1. A block's memory stays mapped, and is used for its [`Kind`] only, while the arena lives. So who looks
//!    at index lines by atomics, a moment after they were given back, sees old or foreign lines but never a
//!    freed page or plain writes; he must check afterwards and look again (`index/hash.rs`).
//! 2. A block handed out is zero.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_base::memory::{HUGE_PAGE_BYTES, LINE_BYTES, PageMemory, Pages};

const EXTENT_BYTES_MAX: usize = 64 << 20;

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
    /// Address space of extents in huge pages; takes memory as it is touched.
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
    /// The last one is being cut.
    extents: Vec<PageMemory>,
    cut_bytes: usize,
    given_back: HashMap<(Kind, usize), Vec<Block>>,
}

/// The beginning of a block.
#[derive(Clone, Copy, Debug)]
struct Block(NonNull<u8>);

// SAFETY: an address of plain memory.
unsafe impl Send for Block {}

impl Arena {
    /// A block of at least `bytes` zero bytes, aligned to a cache line. Stops the program when the system has
    /// no memory, as every allocation does.
    pub(crate) fn take(&self, kind: Kind, bytes: usize) -> NonNull<u8> {
        let bytes = rounded(bytes);
        let mut state = self.state.lock();
        let again = state.given_back.get_mut(&(kind, bytes)).and_then(Vec::pop);
        if let Some(Block(block)) = again {
            drop(state);
            // SAFETY: the block has this size and nobody else uses it, but for readers of index lines, who
            // look by atomics; for those lines zeros are written the same way.
            unsafe { clear(kind, block, bytes) };
            return block;
        }
        let has_room = |extent: &PageMemory| extent.size_bytes() - state.cut_bytes >= bytes;
        if !state.extents.last().is_some_and(has_room) {
            self.add_extent(&mut state, bytes);
        }
        let at = state.cut_bytes;
        state.cut_bytes += bytes;
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
    /// still look at index lines by atomics.
    pub(crate) unsafe fn give_back(&self, kind: Kind, block: NonNull<u8>, bytes: usize) {
        let key = (kind, rounded(bytes));
        self.state
            .lock()
            .given_back
            .entry(key)
            .or_default()
            .push(Block(block));
    }

    /// Memory taken from the system.
    pub(crate) fn size(&self) -> ArenaSize {
        ArenaSize {
            huge_bytes: self.huge_bytes.load(Ordering::Relaxed),
            ordinary_bytes: self.ordinary_bytes.load(Ordering::Relaxed),
        }
    }

    fn add_extent(&self, state: &mut State, bytes: usize) {
        let doubled = HUGE_PAGE_BYTES << state.extents.len().min(16);
        let size = doubled.min(EXTENT_BYTES_MAX).max(bytes);
        match PageMemory::new(size, Pages::Huge) {
            Ok(extent) => {
                let counter = if extent.is_huge() {
                    &self.huge_bytes
                } else {
                    &self.ordinary_bytes
                };
                counter.fetch_add(extent.size_bytes() as u64, Ordering::Relaxed);
                state.extents.push(extent);
                state.cut_bytes = 0;
            }
            Err(_) => {
                handle_alloc_error(Layout::from_size_align(size, LINE_BYTES).unwrap_or(Layout::new::<u8>()))
            }
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
        // Who reads one of these zeros must see that its table was replaced: a seqlock writer's fence.
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
    fn blocks_are_zero_apart_and_come_again() {
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
            unsafe { arena.give_back(kind, block, 128) };
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

    #[test]
    fn a_block_may_be_larger_than_an_extent() {
        let arena = Arena::default();
        let block = arena.take(Kind::Slots, 3 * EXTENT_BYTES_MAX);
        // SAFETY: the last byte of the block.
        unsafe { block.add(3 * EXTENT_BYTES_MAX - 1).write(1) };
        assert_ne!(arena.take(Kind::Slots, 64), block);
    }
}
