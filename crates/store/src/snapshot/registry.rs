//! Which boundaries readers hold, and since which epoch: an array of cache lines, one per reader.
//!
//! A reader writes its boundary into its own cell, fences, and checks that the boundary is still current
//! (`published.rs`); the collector fences and reads all cells. So either the collector sees the reader, or
//! the reader notices that it was late and retries. There is no latch and no shared counter: a thread first
//! tries the cell it used last. The array grows by chunks that never move.
//!
//! Epochs are for what leaves memory while the boundary stays where it is ([`crate::Evictor`]). A reader
//! writes the epoch into its cell before its boundary, so the same holds for it: either the collector sees
//! its epoch, or the reader sees what was done before that epoch ended.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// A free cell.
const FREE: u64 = u64::MAX;
/// A claimed cell whose reader reads nothing at the moment.
pub(super) const IDLE: u64 = u64::MAX - 1;

const FIRST_CHUNK_BITS: usize = 6;
/// 64 + 128 + ... cells: over four million readers.
const CHUNKS: usize = 17;

#[repr(align(128))]
pub(super) struct ReaderCell {
    boundary: AtomicU64,
    /// Means something while a boundary is registered.
    epoch: AtomicU64,
}

impl ReaderCell {
    /// Registers a boundary; visible to the collector once the caller has fenced.
    pub(super) fn set(&self, boundary: u64) {
        self.boundary.store(boundary, Ordering::SeqCst);
    }

    /// Sets the epoch of the boundary that is registered next.
    pub(super) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
    }
}

/// Names a cell; given back with [`ReaderRegistry::release`].
#[derive(Clone, Copy, Debug)]
pub(super) struct CellId(usize);

/// All readers' cells.
pub(crate) struct ReaderRegistry {
    chunks: [OnceLock<Box<[ReaderCell]>>; CHUNKS],
}

thread_local! {
    /// The cell that this thread used last, or a first guess.
    static HINT: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % (1 << FIRST_CHUNK_BITS))
    };
}

impl ReaderRegistry {
    pub(crate) fn new() -> Self {
        ReaderRegistry {
            chunks: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// Takes a free cell and registers `boundary` in it (or [`IDLE`]). `None` when millions of readers are
    /// registered.
    pub(super) fn claim(&self, boundary: u64) -> Option<(CellId, &ReaderCell)> {
        let hint = HINT.get();
        if let Some(cell) = self.cell(hint).filter(|cell| take(cell, boundary)) {
            return Some((CellId(hint), cell));
        }
        let mut base = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let cells = chunk.get_or_init(|| new_chunk(1 << (FIRST_CHUNK_BITS + number)));
            for (offset, cell) in cells.iter().enumerate() {
                if cell.boundary.load(Ordering::Relaxed) == FREE && take(cell, boundary) {
                    HINT.set(base + offset);
                    return Some((CellId(base + offset), cell));
                }
            }
            base += cells.len();
        }
        None
    }

    pub(super) fn cell(&self, index: usize) -> Option<&ReaderCell> {
        let shifted = index + (1 << FIRST_CHUNK_BITS);
        let chunk = shifted.ilog2() as usize - FIRST_CHUNK_BITS;
        self.chunks
            .get(chunk)?
            .get()?
            .get(shifted - (1 << (chunk + FIRST_CHUNK_BITS)))
    }

    /// The cell behind an id.
    pub(super) fn cell_of(&self, id: CellId) -> Option<&ReaderCell> {
        self.cell(id.0)
    }

    /// Releases a cell. What its reader accessed must not be used any more.
    pub(super) fn release(&self, id: CellId) {
        if let Some(cell) = self.cell(id.0) {
            cell.boundary.store(FREE, Ordering::Release);
        }
        HINT.set(id.0);
    }

    /// The lowest registered boundary, at most `boundary`, which the caller read before. A reader that this
    /// misses registers at `boundary` or later.
    pub(crate) fn oldest(&self, boundary: u64) -> u64 {
        fence(Ordering::SeqCst);
        self.cells().fold(boundary, |oldest, cell| {
            oldest.min(cell.boundary.load(Ordering::SeqCst))
        })
    }

    /// The lowest epoch since which a reader is registered, at most `epoch`, which the caller read before.
    pub(crate) fn oldest_epoch(&self, epoch: u64) -> u64 {
        fence(Ordering::SeqCst);
        let registered = self
            .cells()
            .filter(|cell| cell.boundary.load(Ordering::SeqCst) < IDLE);
        registered.fold(epoch, |oldest, cell| {
            oldest.min(cell.epoch.load(Ordering::SeqCst))
        })
    }

    /// Readers that hold a boundary.
    pub(crate) fn active(&self) -> usize {
        self.cells()
            .filter(|cell| cell.boundary.load(Ordering::Relaxed) < IDLE)
            .count()
    }

    fn cells(&self) -> impl Iterator<Item = &ReaderCell> {
        self.chunks
            .iter()
            .map_while(OnceLock::get)
            .flat_map(|chunk| chunk.iter())
    }
}

fn take(cell: &ReaderCell, boundary: u64) -> bool {
    cell.boundary
        .compare_exchange(FREE, boundary, Ordering::SeqCst, Ordering::Relaxed)
        .is_ok()
}

fn new_chunk(len: usize) -> Box<[ReaderCell]> {
    let free = || ReaderCell {
        boundary: AtomicU64::new(FREE),
        epoch: AtomicU64::new(0),
    };
    (0..len).map(|_| free()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_counts_registered_readers_only() {
        let registry = ReaderRegistry::new();
        assert_eq!(registry.oldest(9), 9);
        let (five, _) = registry.claim(5).unwrap();
        let (idle, cell) = registry.claim(IDLE).unwrap();
        assert_eq!((registry.oldest(9), registry.active()), (5, 1));
        cell.set(3);
        assert_eq!((registry.oldest(9), registry.active()), (3, 2));
        registry.release(idle);
        assert_eq!(registry.oldest(9), 5);
        registry.release(five);
        assert_eq!((registry.oldest(9), registry.active()), (9, 0));
    }

    #[test]
    fn epochs_count_while_a_boundary_is_registered() {
        let registry = ReaderRegistry::new();
        assert_eq!(registry.oldest_epoch(9), 9);
        let (id, cell) = registry.claim(IDLE).unwrap();
        cell.set_epoch(4);
        assert_eq!(registry.oldest_epoch(9), 9, "it reads nothing");
        cell.set(7);
        assert_eq!((registry.oldest_epoch(9), registry.oldest(9)), (4, 7));
        cell.set(IDLE);
        cell.set_epoch(9);
        cell.set(7);
        assert_eq!(registry.oldest_epoch(9), 9, "it began anew");
        registry.release(id);
        assert_eq!(registry.oldest_epoch(9), 9);
    }

    #[test]
    fn cells_grow_and_are_reused() {
        let registry = ReaderRegistry::new();
        let ids: Vec<CellId> = (0..500).map(|n| registry.claim(n).unwrap().0).collect();
        let mut numbers: Vec<usize> = ids.iter().map(|id| id.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 500);
        assert_eq!(registry.active(), 500);
        for id in ids {
            registry.release(id);
        }
        let (again, _) = registry.claim(1).unwrap();
        assert!(again.0 < 1_000);
    }
}
