//! Garbage collection beyond what each batch pays for: a reader that kept versions for long leaves a backlog,
//! and so does a large batch.
//!
//! Millions of versions take seconds, and batches wait while the collector runs. So while batches come one
//! after another the backlog gets a share of the time ([`SHARE`]), in pieces after each batch; while none
//! comes, the flusher works on it in short slices. What is collected when changes neither a row nor a digest,
//! so the clock may decide.

use std::time::{Duration, Instant};

use weft_base::BatchId;
use weft_store::Store;

/// Batches give a backlog this part of the time.
const SHARE: u32 = 32;
/// The longest piece of work after one batch.
const PIECE_MAX: Duration = Duration::from_millis(1);
/// A batch whose share is shorter than this leaves it to the next one.
const PIECE_MIN: Duration = Duration::from_micros(20);
/// Steps after which the clock is looked at. Each may wait for rows that are in no cache; 64 take some 20
/// microseconds.
const SLICE_STEPS: usize = 64;

/// The sequencer's part.
#[derive(Default)]
pub(crate) struct Backlog {
    /// When the last piece of work ended, or when the backlog was first seen; `None` without one.
    worked_until: Option<Instant>,
}

impl Backlog {
    /// Collects what the batch just published pays for, and a piece of the backlog.
    pub(crate) fn collect_after_batch(&mut self, store: &Store) {
        if !store.collect_due_garbage() {
            self.worked_until = None;
            return;
        }
        let begin = Instant::now();
        let worked_until = *self.worked_until.get_or_insert(begin);
        let share = (begin - worked_until) / SHARE;
        if share < PIECE_MIN {
            return;
        }
        let end = begin + share.min(PIECE_MAX);
        while store.collect_garbage(SLICE_STEPS) >= SLICE_STEPS {
            if Instant::now() >= end {
                self.worked_until = Some(Instant::now());
                return;
            }
        }
        self.worked_until = None;
    }
}

/// The flusher's part.
#[derive(Default)]
pub(crate) struct IdleCollector {
    boundary: BatchId,
}

impl IdleCollector {
    /// Collects for up to `time` if no batch was published since the last call, until one is.
    pub(crate) fn collect(&mut self, store: &Store, time: Duration) {
        let before = std::mem::replace(&mut self.boundary, store.boundary());
        let end = Instant::now() + time;
        while store.boundary() == before && store.collect_garbage(SLICE_STEPS) > 0 && Instant::now() < end {}
    }
}
