//! Size classes, and the slabs for versions outside their slot.
//!
//! Sizes up to 128 bytes are rounded to 8, larger ones to an eighth of the power of two below: at most 12.5 %
//! is lost, and from 512 bytes on every size is a whole number of cache lines. A class hands out blocks of
//! its size and takes them back onto a stack: in steady state no memory is allocated, and the block that
//! comes next was used last. Versions longer than [`BLOCK_BYTES_MAX`] come from the allocator.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::arena::{Arena, ArenaSize, Kind};
use super::cold::ColdRows;
use super::prefault::PrefaultedPages;

/// The largest block of a size class.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;
const FINE_STEP_BYTES: usize = 8;
const FINE_BYTES_MAX: usize = 128;
const FINE_CLASSES: usize = FINE_BYTES_MAX / FINE_STEP_BYTES;
/// Steps per doubling.
const COARSE_STEPS: usize = 8;
/// Doublings from [`FINE_BYTES_MAX`] to [`BLOCK_BYTES_MAX`].
const DOUBLINGS: usize = 9;
/// How many size classes there are.
pub(crate) const CLASSES: usize = FINE_CLASSES + DOUBLINGS * COARSE_STEPS;
/// Taken from the arena at a time.
const SLAB_BYTES: usize = 64 << 10;
const BLOCKS_PER_SLAB_MIN: usize = 4;
const ALIGN: usize = 8;

const _: () = assert!(FINE_BYTES_MAX << DOUBLINGS == BLOCK_BYTES_MAX);

/// The class of a size of 1 to [`BLOCK_BYTES_MAX`] bytes; `None` for larger ones.
#[inline]
pub(crate) fn class_of(bytes: usize) -> Option<usize> {
    let last = bytes.max(1) - 1;
    if last < FINE_BYTES_MAX {
        return Some(last / FINE_STEP_BYTES);
    }
    let doubling = (last.ilog2() - FINE_BYTES_MAX.ilog2()) as usize;
    let step = (last >> (doubling + 4)) - COARSE_STEPS;
    (bytes <= BLOCK_BYTES_MAX).then_some(FINE_CLASSES + doubling * COARSE_STEPS + step)
}

/// The size of a class's blocks.
pub(crate) fn class_bytes(class: usize) -> usize {
    match class.checked_sub(FINE_CLASSES) {
        None => (class + 1) * FINE_STEP_BYTES,
        Some(coarse) => {
            let (doubling, step) = (coarse / COARSE_STEPS, coarse % COARSE_STEPS);
            (COARSE_STEPS + step + 1) << (doubling + 4)
        }
    }
}

/// The memory that an allocation of this size takes.
#[inline]
pub(super) fn block_bytes(bytes: usize) -> usize {
    class_of(bytes).map_or(bytes, class_bytes)
}

/// Row memory of a store: the arena, its size classes, and counters.
#[derive(Debug)]
pub(crate) struct RowMemory {
    pub(crate) arena: Arena,
    classes: [Mutex<Class>; CLASSES],
    /// Bytes of row versions, headers included, wherever they lie.
    version_bytes: AtomicU64,
    /// Allocations longer than a block.
    large_bytes: AtomicU64,
    /// Bytes of regions of slots, frozen ones as they are.
    pub(super) region_bytes: AtomicU64,
    /// Of these and of blocks, what waits until nobody can use it any more.
    left_bytes: AtomicU64,
    /// Rows that are not in memory.
    pub(super) cold_count: AtomicU64,
    /// Rows that came back, since the beginning.
    thawed_count: AtomicU64,
    /// Where they are read from.
    cold_rows: OnceLock<Arc<dyn ColdRows>>,
}

#[derive(Debug, Default)]
struct Class {
    free: Vec<Block>,
    in_use: u64,
}

#[derive(Debug)]
struct Block(NonNull<u8>);

// SAFETY: an address of plain memory that nobody uses.
unsafe impl Send for Block {}

impl Default for RowMemory {
    fn default() -> Self {
        RowMemory {
            arena: Arena::default(),
            classes: [const {
                Mutex::new(Class {
                    free: Vec::new(),
                    in_use: 0,
                })
            }; CLASSES],
            version_bytes: AtomicU64::new(0),
            large_bytes: AtomicU64::new(0),
            region_bytes: AtomicU64::new(0),
            left_bytes: AtomicU64::new(0),
            cold_count: AtomicU64::new(0),
            thawed_count: AtomicU64::new(0),
            cold_rows: OnceLock::new(),
        }
    }
}

impl RowMemory {
    /// A block of at least `bytes` bytes, aligned to 8, with undefined contents. Any thread.
    pub(super) fn take(&self, bytes: usize) -> NonNull<u8> {
        let Some((number, class)) = class_of(bytes).and_then(|class| Some((class, self.classes.get(class)?)))
        else {
            let layout = large_layout(bytes);
            self.large_bytes
                .fetch_add(layout.size() as u64, Ordering::Relaxed);
            // SAFETY: the layout's size is not zero.
            let memory = unsafe { alloc::alloc(layout) };
            return NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        };
        let block_bytes = class_bytes(number);
        let mut class = class.lock();
        class.in_use += 1;
        if let Some(Block(block)) = class.free.pop() {
            return block;
        }
        let count = (SLAB_BYTES / block_bytes).max(BLOCKS_PER_SLAB_MIN);
        let slab = self.arena.take(Kind::Versions, count * block_bytes);
        // SAFETY: the slab holds `count` blocks.
        let block = |at: usize| unsafe { slab.add(at * block_bytes) };
        class.free.extend((1..count).rev().map(|at| Block(block(at))));
        slab
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// It came from [`RowMemory::take`] with this size, and nobody uses it any more.
    pub(super) unsafe fn deallocate(&self, block: NonNull<u8>, bytes: usize) {
        match class_of(bytes).and_then(|class| Some((class, self.classes.get(class)?))) {
            Some((_, class)) => {
                let mut class = class.lock();
                class.in_use -= 1;
                class.free.push(Block(block));
            }
            None => {
                let layout = large_layout(bytes);
                self.large_bytes
                    .fetch_sub(layout.size() as u64, Ordering::Relaxed);
                // SAFETY: allocated in `take` with this layout.
                unsafe { alloc::dealloc(block.as_ptr(), layout) };
            }
        }
    }

    /// Counts versions linked.
    pub(crate) fn add(&self, version_bytes: u64) {
        self.version_bytes.fetch_add(version_bytes, Ordering::Relaxed);
    }

    /// Counts versions that are gone.
    pub(crate) fn subtract(&self, version_bytes: u64) {
        self.version_bytes.fetch_sub(version_bytes, Ordering::Relaxed);
    }

    /// Bytes of all versions.
    pub(crate) fn version_bytes(&self) -> u64 {
        self.version_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of blocks in use, by the size of their class, and of allocations longer than a block.
    pub(crate) fn block_bytes(&self) -> u64 {
        let blocks = self.classes.iter().enumerate();
        let in_classes: u64 = blocks
            .map(|(class, blocks)| blocks.lock().in_use * class_bytes(class) as u64)
            .sum();
        in_classes + self.large_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of slots, blocks and the places of cold rows: what the rows of all tables take.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.region_bytes.load(Ordering::Relaxed) + self.block_bytes()
    }

    /// Of that, what rows that became cold, or moved, have left behind for the readers of that moment.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.left_bytes.load(Ordering::Relaxed)
    }

    /// Counts what the places of a frozen region take beyond what they took so far.
    pub(super) fn places_grow(&self, bytes: usize) {
        if bytes > 0 {
            self.region_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Counts what is left behind.
    pub(crate) fn leave(&self, bytes: u64) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets where cold rows are read from, once; without that no row becomes cold.
    pub(crate) fn set_cold_rows(&self, rows: Arc<dyn ColdRows>) {
        // A second one would be the same store's.
        let _ = self.cold_rows.set(rows);
    }

    /// What was left behind is freed.
    pub(super) fn left_is_freed(&self, bytes: u64) {
        self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Rows that are not in memory.
    pub(crate) fn cold_count(&self) -> u64 {
        self.cold_count.load(Ordering::Relaxed)
    }

    /// Counts a row that comes back.
    pub(super) fn row_is_thawed(&self) {
        self.cold_count.fetch_sub(1, Ordering::Relaxed);
        self.thawed_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows that came back.
    pub(crate) fn thawed_count(&self) -> u64 {
        self.thawed_count.load(Ordering::Relaxed)
    }

    /// Where cold rows are read from.
    pub(crate) fn cold_rows(&self) -> Option<&Arc<dyn ColdRows>> {
        self.cold_rows.get()
    }

    /// The results of prefaulting.
    pub(crate) fn prefaulted_pages(&self) -> PrefaultedPages {
        self.arena.prefaulted_pages()
    }

    /// Memory taken from the system.
    pub(crate) fn arena_size(&self) -> ArenaSize {
        self.arena.size()
    }
}

fn large_layout(bytes: usize) -> Layout {
    // A row is at most u32::MAX bytes, so this cannot exceed isize on 64-bit machines.
    Layout::from_size_align(bytes, ALIGN).unwrap_or(Layout::new::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_fit_closely() {
        let mut before = 0;
        for class in 0..CLASSES {
            let bytes = class_bytes(class);
            assert_eq!(
                (class_of(bytes), class_of(before + 1)),
                (Some(class), Some(class))
            );
            assert!(
                bytes <= FINE_BYTES_MAX || bytes * 8 <= (before + 1) * 9,
                "{before} {bytes}"
            );
            assert!(bytes <= 512 || bytes.is_multiple_of(64));
            before = bytes;
        }
        assert_eq!((before, class_of(before + 1)), (BLOCK_BYTES_MAX, None));
    }

    #[test]
    fn blocks_are_reused() {
        let memory = RowMemory::default();
        for bytes in [1, 24, 100, 1_000, BLOCK_BYTES_MAX, BLOCK_BYTES_MAX + 1, 1 << 20] {
            let blocks: Vec<NonNull<u8>> = (0..100).map(|_| memory.take(bytes)).collect();
            for (at, block) in blocks.iter().enumerate() {
                assert!(block.addr().get().is_multiple_of(ALIGN));
                // SAFETY: `bytes` bytes, ours.
                unsafe { block.write_bytes(at as u8, bytes) };
            }
            assert!(memory.block_bytes() >= 100 * bytes as u64);
            for (at, block) in blocks.into_iter().enumerate() {
                // SAFETY: as above; then given back once.
                unsafe {
                    let bytes_of_block = std::slice::from_raw_parts(block.as_ptr(), bytes);
                    assert!(bytes_of_block.iter().all(|byte| *byte == at as u8));
                    memory.deallocate(block, bytes);
                }
            }
            assert_eq!(memory.block_bytes(), 0);
        }
    }
}
