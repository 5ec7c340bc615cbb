//! Writes are refused after an error until the memtables are flushed; after a panic they are refused for
//! good.
//!
//! A failed append or sync leaves the end of the log unknown. Writes are then refused until everything in
//! memory, and so everything that was acknowledged, is in tables, and a new log has begun. The next write
//! tries this at once, without the writer's latch; if it fails, the memtables are not written again before a
//! backoff has passed, which doubles with each failure from [`FIRST_NANOS`] to [`MOST_NANOS`], and writes in
//! the meantime are refused without touching the disk. The same holds for a flush that failed while writes
//! were accepted: writers that need its space are refused. Reads always go on. So after a full disk has space
//! again, writes resume at most [`MOST_NANOS`] later, without a restart.
//!
//! A panic in a thread of the engine, or in the middle of a state change, makes the state in memory doubtful.
//! From then on nothing is written and nothing is installed; everybody who waits gets [`LsmError::Poisoned`].
//! Reads go on. The next opening recovers everything that was acknowledged.

use std::sync::atomic::Ordering;

use super::Engine;
use super::write::Writer;
use crate::error::LsmError;
use crate::sync::MutexGuard;

/// The backoff of flushes after a first failure, in nanoseconds.
const FIRST_NANOS: u64 = 50_000_000;
/// The longest backoff.
const MOST_NANOS: u64 = 2_000_000_000;

impl Engine {
    /// The writer's latch for a write: first tries to end a refusal, if its backoff has passed.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn writer_for_writing(&self) -> Result<MutexGuard<'_, Writer>, LsmError> {
        self.check_poison()?;
        loop {
            let writer = self.writer.lock();
            if writer.refused.is_none() {
                return Ok(writer);
            }
            drop(writer);
            self.end_refusal(false)?;
        }
    }

    /// Ends a refusal, if there is one: begins a new log and flushes all memtables. One thread tries at a
    /// time; others are refused in the meantime. `at_once`: even during the backoff.
    ///
    /// # Errors
    /// The refusal: its backoff has not passed, another thread tries, or it could not be ended.
    pub(super) fn end_refusal(&self, at_once: bool) -> Result<(), LsmError> {
        let mut writer = self.writer.lock();
        let Some(refused) = writer.refused.clone() else {
            return Ok(());
        };
        let now_nanos = self.clock.monotonic_nanos();
        let rests = !at_once && self.work.lock().flush_backoff.is_waiting(now_nanos);
        if rests || writer.is_being_ended {
            return Err(refused);
        }
        let frozen = self.freeze(&mut writer);
        writer.is_being_ended = true;
        drop(writer);
        let ending = Ending(self);
        let flushed = match frozen {
            Ok(_) => self.flush_frozen(),
            Err(error) => {
                self.prolong_backoff();
                Err(error)
            }
        };
        drop(ending);
        flushed.map_err(|error| error.refusal())?;
        let mut writer = self.writer.lock();
        writer.unsynced.clear();
        writer.refused = None;
        Ok(())
    }

    fn prolong_backoff(&self) {
        let now_nanos = self.clock.monotonic_nanos();
        let mut work = self.work.lock();
        work.flush_backoff.double(now_nanos, FIRST_NANOS, MOST_NANOS);
    }

    /// Flushes the oldest frozen memtable, unless the last flush failed recently.
    ///
    /// # Errors
    /// The flush's; during the backoff the last one's.
    pub(super) fn flush_if_due(&self) -> Result<bool, LsmError> {
        let now_nanos = self.clock.monotonic_nanos();
        let work = self.work.lock();
        if let Some(error) = &work.flush_error
            && work.flush_backoff.is_waiting(now_nanos)
        {
            return Err(error.clone());
        }
        drop(work);
        self.flush_oldest()
    }

    /// Records the outcome of a flush for callers that ask or wait.
    pub(super) fn note_flush(&self, done: &Result<bool, LsmError>) {
        if done.is_err() {
            self.prolong_backoff();
        }
        let mut work = self.work.lock();
        work.flush_error = done.as_ref().err().cloned();
        if let Ok(true) = done {
            work.flush_backoff = Default::default();
        }
    }

    /// Stops all writing. Only the first reason is kept.
    pub(super) fn poison(&self, reason: &str) {
        let reason = reason.into();
        self.work
            .lock()
            .poison
            .get_or_insert(LsmError::Poisoned { reason });
        self.is_poisoned.store(true, Ordering::Release);
        self.work_changed.notify_all();
        self.compaction_ended.notify_all();
        self.sync_done.notify_all();
    }

    /// # Errors
    /// [`LsmError::Poisoned`] after a panic.
    pub(super) fn check_poison(&self) -> Result<(), LsmError> {
        if !self.is_poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let poison = self.work.lock().poison.clone();
        Err(poison.unwrap_or(LsmError::Closed))
    }
}

/// A thread tries to end a refusal until this is dropped, after a panic too.
struct Ending<'a>(&'a Engine);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.writer.lock().is_being_ended = false;
    }
}

/// Poisons the engine if the thread panics before this is dropped: for steps that must not be left
/// incomplete.
pub(super) struct PoisonOnPanic<'a> {
    pub engine: &'a Engine,
    /// The step, for the error message.
    pub step: &'static str,
}

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.poison(self.step);
        }
    }
}
