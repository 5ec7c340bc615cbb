//! The published state: boundary, digest and schema, which readers read together.
//!
//! A sequence lock. The publisher makes `sequence` odd, writes, and makes it even; a reader that saw the same
//! even number before and after has a consistent triple. Between the two reads the reader registers the
//! boundary it read, so a successful check also proves that the registration came before any later
//! publication, and so before any collection that could free what this reader needs.
//!
//! The schema is an `Arc` turned into a pointer. The replaced one is handed to the retire queue with the
//! boundary at which it was current; so a registered reader may use the pointer without reference counting.

use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use super::registry::ReaderCell;
use crate::table::Schema;

/// What a reader gets.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) boundary: u64,
    pub(super) digest: u64,
    schema: *const Schema,
}

impl State {
    /// # Safety
    /// The reader cell that this state was taken with stays registered at its boundary for `'s`.
    pub(super) unsafe fn schema<'s>(self) -> &'s Schema {
        // SAFETY: made by `Arc::into_raw`; the collector frees it only after the reader has left.
        unsafe { &*self.schema }
    }

    /// # Safety
    /// As [`State::schema`], now.
    pub(super) unsafe fn schema_arc(self) -> Arc<Schema> {
        // SAFETY: as above, so the count is at least one while we raise it.
        unsafe {
            Arc::increment_strong_count(self.schema);
            Arc::from_raw(self.schema)
        }
    }
}

/// The cell that `publish` writes and every reader looks at.
#[repr(align(128))]
pub(crate) struct Published {
    sequence: AtomicU64,
    boundary: AtomicU64,
    digest: AtomicU64,
    schema: AtomicPtr<Schema>,
    /// Counts what was taken out of memory, whatever the boundary.
    epoch: AtomicU64,
}

impl Published {
    pub(crate) fn new(boundary: u64, digest: u64, schema: Arc<Schema>) -> Self {
        Published {
            sequence: AtomicU64::new(0),
            boundary: AtomicU64::new(boundary),
            digest: AtomicU64::new(digest),
            schema: AtomicPtr::new(Arc::into_raw(schema).cast_mut()),
            epoch: AtomicU64::new(0),
        }
    }

    /// The present epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Begins the next epoch and returns it: readers of this one do not find what was unlinked before.
    pub(crate) fn next_epoch(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn boundary(&self) -> u64 {
        self.boundary.load(Ordering::Acquire)
    }

    /// Boundary and digest that belong together.
    pub(crate) fn boundary_and_digest(&self) -> (u64, u64) {
        loop {
            let (before, state) = self.look();
            fence(Ordering::SeqCst);
            if self.is_unchanged(before) {
                return (state.boundary, state.digest);
            }
            std::hint::spin_loop();
        }
    }

    /// Makes a new state visible; returns the schema that it replaces. One publisher at a time (the writer
    /// gate).
    pub(crate) fn publish(
        &self,
        boundary: u64,
        digest: u64,
        schema: Option<Arc<Schema>>,
    ) -> Option<Arc<Schema>> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.boundary.store(boundary, Ordering::SeqCst);
        self.digest.store(digest, Ordering::SeqCst);
        let replaced = schema.map(|schema| {
            let old = self
                .schema
                .swap(Arc::into_raw(schema).cast_mut(), Ordering::SeqCst);
            // SAFETY: every pointer in the cell comes from `Arc::into_raw` and is taken out once.
            unsafe { Arc::from_raw(old.cast_const()) }
        });
        self.sequence.store(sequence + 2, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        replaced
    }

    /// Registers the current epoch in `cell`, whose reader uses nothing that it has found, and keeps its
    /// boundary.
    pub(super) fn renew_epoch(&self, cell: &ReaderCell) {
        cell.set_epoch(self.epoch());
        // As after registering a boundary: what this reader finds from here on was not unlinked before.
        fence(Ordering::SeqCst);
    }

    /// Registers the current boundary and epoch in `cell`, which is idle, and returns the state that goes
    /// with the boundary.
    pub(super) fn pin(&self, cell: &ReaderCell) -> State {
        cell.set_epoch(self.epoch());
        loop {
            let (before, state) = self.look();
            cell.set(state.boundary);
            fence(Ordering::SeqCst);
            if self.is_unchanged(before) {
                return state;
            }
            std::hint::spin_loop();
        }
    }

    fn look(&self) -> (u64, State) {
        let before = self.sequence.load(Ordering::SeqCst);
        let state = State {
            boundary: self.boundary.load(Ordering::SeqCst),
            digest: self.digest.load(Ordering::SeqCst),
            schema: self.schema.load(Ordering::SeqCst),
        };
        (before, state)
    }

    fn is_unchanged(&self, before: u64) -> bool {
        before.is_multiple_of(2) && self.sequence.load(Ordering::SeqCst) == before
    }

    /// The schema, for the one writer: it alone replaces it.
    ///
    /// # Safety
    /// Nobody publishes while this runs.
    pub(crate) unsafe fn schema_for_writer(&self) -> Arc<Schema> {
        let schema = self.schema.load(Ordering::SeqCst).cast_const();
        // SAFETY: the cell owns one count and keeps it, since nobody publishes.
        unsafe {
            Arc::increment_strong_count(schema);
            Arc::from_raw(schema)
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // SAFETY: the pointer in the cell owns one count; exclusive access.
        drop(unsafe { Arc::from_raw(self.schema.get_mut().cast_const()) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::super::registry::{IDLE, ReaderRegistry};
    use super::*;
    use crate::catalog::Catalog;

    const PINS: u64 = 1_000_000;
    const PUBLICATIONS: u64 = 500_000;

    /// A collector that follows every publication must never pass a reader that is pinned, and a reader never
    /// sees parts of two states.
    #[test]
    fn the_collector_never_passes_a_pinned_reader() {
        let schema = Arc::new(Schema {
            catalog: Arc::new(Catalog::new()),
            tables: Arc::default(),
        });
        let published = Published::new(0, 0, schema);
        let readers = ReaderRegistry::new();
        let collected = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let pins = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (id, cell) = readers.claim(IDLE).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        let state = published.pin(cell);
                        assert_eq!(state.digest, state.boundary.wrapping_mul(7));
                        for _ in 0..20 {
                            assert!(collected.load(Ordering::SeqCst) <= state.boundary);
                        }
                        cell.set(IDLE);
                        pins.fetch_add(1, Ordering::Relaxed);
                    }
                    readers.release(id);
                });
            }
            let mut boundary = 0u64;
            // Bounded in publications too, so that a reader that has failed ends the test.
            while boundary < PUBLICATIONS || (pins.load(Ordering::Relaxed) < PINS && boundary < 50_000_000) {
                boundary += 1;
                published.publish(boundary, boundary.wrapping_mul(7), None);
                collected.store(readers.oldest(boundary), Ordering::SeqCst);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let (boundary, digest) = published.boundary_and_digest();
        assert_eq!(digest, boundary.wrapping_mul(7));
    }

    /// What was unlinked is never freed while a reader that could have found it is pinned, though the
    /// boundary does not move.
    #[test]
    fn what_is_unlinked_outlives_the_readers_of_its_epoch() {
        let schema = Arc::new(Schema {
            catalog: Arc::new(Catalog::new()),
            tables: Arc::default(),
        });
        let published = Published::new(7, 0, schema);
        let readers = ReaderRegistry::new();
        // The one that is linked, and the first one that is not freed.
        let (linked, kept) = (AtomicU64::new(0), AtomicU64::new(0));
        let (stop, pins) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (id, cell) = readers.claim(IDLE).unwrap();
                    while !stop.load(Ordering::Relaxed) {
                        published.pin(cell);
                        let found = linked.load(Ordering::Acquire);
                        for _ in 0..20 {
                            assert!(kept.load(Ordering::SeqCst) <= found);
                        }
                        cell.set(IDLE);
                        pins.fetch_add(1, Ordering::Relaxed);
                    }
                    readers.release(id);
                });
            }
            let mut waiting = std::collections::VecDeque::new();
            let mut number = 0u64;
            while number < PUBLICATIONS || (pins.load(Ordering::Relaxed) < PINS && number < 50_000_000) {
                linked.store(number + 1, Ordering::Release);
                waiting.push_back((published.next_epoch(), number));
                number += 1;
                let oldest = readers.oldest_epoch(published.epoch());
                while let Some((epoch, number)) = waiting.front().copied()
                    && epoch <= oldest
                {
                    kept.store(number + 1, Ordering::SeqCst);
                    waiting.pop_front();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(kept.into_inner() > 1000);
    }
}
