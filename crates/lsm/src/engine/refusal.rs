//! After an error writes are refused until what is in memory is in tables; a panic ends all writing.
//!
//! A failed append or sync leaves the log's end unknown. Writes are then refused until everything that is
//! in memory, and therefore everything that was acknowledged, is in tables, and a new log has begun. The
//! next write tries that at once, without the writer's latch; if it fails, the memtables are not written
//! again before a while has passed, which doubles with each failure from [`FIRST_NANOS`] to [`MOST_NANOS`],
//! and writes that come meanwhile are refused without touching the disk. The same holds for a flush that
//! failed while writes are taken: writers that would need its room are refused. Reads go on all the time. So
//! a disk that was full takes writes again at most [`MOST_NANOS`] after there is space, without a restart.
//!
//! A panic in a thread of the engine, or in the middle of a change of its state, leaves what is in memory in
//! doubt. From then on nothing is written and nothing is installed; everybody who waits is told
//! ([`LsmError::Poisoned`]). Reads go on. The next opening has everything that was acknowledged.

use std::sync::atomic::Ordering;

use super::Engine;
use super::write::Writer;
use crate::error::LsmError;
use crate::sync::MutexGuard;

/// How long nothing is flushed after a first failure, in nanoseconds.
const FIRST_NANOS: u64 = 50_000_000;
/// How long at most after further ones.
const MOST_NANOS: u64 = 2_000_000_000;

impl Engine {
    /// The writer's latch for somebody who is going to write: ends a refusal first, if it is time to try.
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

    /// Ends a refusal, if there is one: a new log begins, and everything in memory goes into tables. One
    /// thread tries at a time; others are refused meanwhile. `at_once`: whatever failed a moment ago.
    ///
    /// # Errors
    /// The refusal: because it is not time yet, somebody else tries, or it could not be ended.
    pub(super) fn end_refusal(&self, at_once: bool) -> Result<(), LsmError> {
        let mut writer = self.writer.lock();
        let Some(refused) = writer.refused.clone() else {
            return Ok(());
        };
        let now_nanos = self.clock.monotonic_nanos();
        let rests = !at_once && self.work.lock().flush_backoff.rests(now_nanos);
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
        work.flush_backoff.prolong(now_nanos, FIRST_NANOS, MOST_NANOS);
    }

    /// Flushes the oldest frozen memtable, unless the last flush failed a short while ago.
    ///
    /// # Errors
    /// The flush's; the last one's if that rests.
    pub(super) fn flush_if_due(&self) -> Result<bool, LsmError> {
        let now_nanos = self.clock.monotonic_nanos();
        let work = self.work.lock();
        if let Some(error) = &work.flush_error
            && work.flush_backoff.rests(now_nanos)
        {
            return Err(error.clone());
        }
        drop(work);
        self.flush_oldest()
    }

    /// Keeps how a flush went, for those who ask and those who wait.
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

    /// From now on nothing is written. Only the first reason is kept.
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

/// Somebody tries to end a refusal, until this is dropped, after a panic too.
struct Ending<'a>(&'a Engine);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.writer.lock().is_being_ended = false;
    }
}

/// Poisons the engine if the thread panics before this is dropped: for steps that must not be left half done.
pub(super) struct Whole<'a> {
    pub engine: &'a Engine,
    /// What would be half done.
    pub step: &'static str,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.poison(self.step);
        }
    }
}
