//! Background threads: the flusher, the checkpointer, the keeper of columns and the background sequencer.
//!
//! The flusher syncs the log every few milliseconds for sessions with `synchronous_commit = off`, and
//! collects garbage while there are no batches. Once enough log has been written, the checkpointer writes
//! what changed up to a batch boundary, while batches go on, and then removes the log before it; in between
//! it checks the rows for damage ([`Scrubber`]). The keeper copies columns that queries scan
//! ([`weft_store::columns`]), the governor takes rows out of memory when it becomes too much ([`memory`]).
//! The background sequencer takes over the sequencer's role from a caller that has served others for long.
//! All end when the engine is dropped. If one of them panics, writing ends: its work would not be done any
//! more, and the state that it left is unknown.

use crate::backlog::IdleCollector;
use crate::engine::Shared;
use crate::error::EngineError;
use crate::memory;
use crate::request::PreparedStep;
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_base::{BatchId, Pacer};
use weft_store::Scrubber;
use weft_store::checkpoint::Changes;
use weft_store::columns::{ColumnKeeper, CopyPolicy};
use weft_types::SqlState;

/// The pause after a checkpoint that failed; it doubles with every further failure.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest such pause.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Time between two looks at which columns queries have asked for.
const COLUMNS_INTERVAL: Duration = Duration::from_millis(100);
/// The share of the time in which they are copied.
const COLUMNS_SHARE: f64 = 0.25;
/// The least share of the time that a checkpoint takes while nobody waits for it.
const SHARE_MIN: f64 = 0.2;

/// Starts the background threads.
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<(), EngineError> {
    let mut start = |name: &str, run: fn(&Shared)| {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new().name(name.to_string()).spawn(move || {
            let work = AssertUnwindSafe(|| run(&shared));
            if std::panic::catch_unwind(work).is_err() {
                shared.end_writing(SqlState::INTERNAL_ERROR, "a background thread failed");
            }
        });
        let io = |source| EngineError::Io {
            doing: "starting a background thread".to_string(),
            source,
        };
        thread.map(|thread| threads.push(thread)).map_err(io)
    };
    start("weft-flush", flush)?;
    start("weft-sequence", Shared::run_background)?;
    if shared.config.column_bytes_max > 0 {
        start("weft-columns", keep_columns)?;
    }
    if shared.config.memory_bytes > 0 || shared.store.has_cold_rows() {
        start("weft-memory", memory::govern)?;
    }
    if shared.config.checkpoint_every_bytes > 0 {
        start("weft-checkpoint", checkpoint_as_needed)?;
    }
    Ok(())
}

fn flush(shared: &Shared) {
    let interval = shared.config.flush_interval.max(Duration::from_millis(1));
    let mut idle = IdleCollector::default();
    while !stopping(shared, interval) {
        idle.collect(&shared.store, interval / 2);
        if let Err(error) = shared.log.write_out() {
            shared.fail(&error);
            return;
        }
    }
}

/// Sleeps for `interval`; true when the engine is closing.
pub(crate) fn stopping(shared: &Shared, interval: Duration) -> bool {
    let mut stopping = shared.stopping.lock();
    if !*stopping {
        shared.stop_signal.wait_for(&mut stopping, interval);
    }
    *stopping
}

fn checkpoint_as_needed(shared: &Shared) {
    let (mut pause, mut not_before) = (RETRY_PAUSE_MIN, None);
    let (mut scrubber, mut scrub_from) = (Scrubber::default(), Instant::now());
    while !stopping(shared, Duration::from_millis(50)) {
        if scrub_from <= Instant::now() && scrubber.step(&shared.store) {
            scrub_from = Instant::now() + shared.config.scrub_pause;
        }
        let logged = shared.logged_bytes();
        if logged.saturating_sub(shared.checkpointed_at_bytes.load(Relaxed))
            < shared.config.checkpoint_every_bytes
            || not_before.is_some_and(|time| Instant::now() < time)
        {
            continue;
        }
        match checkpoint(shared, Pace::Background) {
            Ok(_) => (pause, not_before) = (RETRY_PAUSE_MIN, None),
            Err(error) => {
                // The log still covers everything, so the engine goes on. The retry is by time: on a full
                // disk nothing is logged any more, and a checkpoint may free space.
                eprintln!(
                    "weft: checkpoint failed, trying again in {} s: {error}",
                    pause.as_secs()
                );
                not_before = Some(Instant::now() + pause);
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        }
    }
}

/// Copies the columns that queries scan, at a share of the time.
fn keep_columns(shared: &Shared) {
    let mut keeper = ColumnKeeper::new(shared.config.column_bytes_max as u64, CopyPolicy::default());
    while !stopping(shared, COLUMNS_INTERVAL) {
        let mut pacer = Pacer::new();
        keeper.keep(&shared.store, &mut || {
            pacer.pause(COLUMNS_SHARE);
            !*shared.stopping.lock()
        });
    }
}

/// How fast a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Somebody waits for it.
    Full,
    /// Nobody does: a share of the time, which grows with the log.
    Background,
}

impl Pace {
    /// The share of the time for a checkpoint since which so much has been logged, if one is due whenever
    /// `due_bytes` have been. A checkpoint that is so slow that the next one is due is written at full speed.
    fn share(self, logged_since: u64, due_bytes: u64) -> f64 {
        match self {
            Pace::Full => 1.0,
            Pace::Background => {
                let behind = logged_since as f64 / due_bytes.max(1) as f64;
                SHARE_MIN + (1.0 - SHARE_MIN) * behind.min(1.0)
            }
        }
    }
}

/// Brings the checkpoint to the newest boundary and removes the log before it. After a panic the state of the
/// checkpoint is unknown: writing ends.
pub(crate) fn checkpoint(shared: &Shared, pace: Pace) -> Result<BatchId, EngineError> {
    let work = AssertUnwindSafe(|| checkpoint_or_panic(shared, pace));
    std::panic::catch_unwind(work).unwrap_or_else(|_| {
        let ended = shared.end_writing(SqlState::INTERNAL_ERROR, "a checkpoint failed");
        Err(EngineError::Stopped(ended))
    })
}

fn checkpoint_or_panic(shared: &Shared, pace: Pace) -> Result<BatchId, EngineError> {
    let waiters = &shared.checkpoint_waiters;
    if pace == Pace::Full {
        waiters.fetch_add(1, Relaxed);
    }
    let mut checkpoints = shared.checkpoints.lock();
    if pace == Pace::Full {
        waiters.fetch_sub(1, Relaxed);
    }
    if let Some(error) = shared.failure() {
        return Err(EngineError::Stopped(error));
    }
    // The boundary is taken in the sequencer's role, so that the log after it defines its programs again.
    let (changes, prepared) = shared.at_boundary(|sequencer| {
        sequencer.forget_definitions();
        let prepared: Vec<Arc<str>> = sequencer
            .prepared()
            .transactions()
            .map(|txn| Arc::clone(&txn.name))
            .collect();
        (Changes::take(&shared.store), prepared)
    });
    let changes = changes.ok_or_else(|| {
        // A finished batch that is never published because it could not be logged.
        EngineError::Stopped(shared.end_writing(SqlState::INTERNAL_ERROR, "a batch could not be logged"))
    })?;
    let (batch, logged) = (changes.batch(), shared.logged_bytes());
    // A checkpoint must not contain what the log could still lose.
    shared.wait_durable(batch).map_err(EngineError::Stopped)?;
    define_again(shared, prepared)?;
    let mut pacer = Pacer::new();
    let mut go_on = |_rows| {
        let logged_since = shared.logged_bytes().saturating_sub(logged);
        let pace = if waiters.load(Relaxed) > 0 {
            Pace::Full
        } else {
            pace
        };
        pacer.pause(pace.share(logged_since, shared.config.checkpoint_every_bytes));
        match *shared.stopping.lock() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    checkpoints.write(changes, &mut go_on)?;
    shared.checkpointed_at_bytes.store(logged, Relaxed);
    shared.stats.checkpoints.fetch_add(1, Relaxed);
    shared.stats.checkpoint_batch.store(batch.0, Relaxed);
    shared.log.retire_before(batch)?;
    if !shared.config.checkpoint.merge_beside {
        checkpoints.merge()?;
    }
    Ok(batch)
}

/// Before recovery can begin at a checkpoint, transactions that are still prepared are defined in the log
/// after it, and the ends of others are durable there.
fn define_again(shared: &Shared, prepared: Vec<Arc<str>>) -> Result<(), EngineError> {
    if prepared.is_empty() {
        return Ok(());
    }
    for name in prepared {
        let step = shared.prepared_step(&name, PreparedStep::DefineAgain);
        step.map_err(|refused| EngineError::Stopped(refused.error))?;
    }
    shared
        .wait_durable(shared.store.boundary())
        .map_err(EngineError::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_speed_up_as_the_log_grows() {
        let share = |logged| Pace::Background.share(logged, 1_000);
        assert!((share(0) - SHARE_MIN).abs() < 1e-9 && share(500) > share(100));
        assert!((share(1_000) - 1.0).abs() < 1e-9 && (share(u64::MAX) - 1.0).abs() < 1e-9);
        assert!((Pace::Full.share(0, 1_000) - 1.0).abs() < 1e-9);
    }
}
