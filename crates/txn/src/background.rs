//! What runs beside the callers: the flusher, the checkpointer and the sequencer's relief.
//!
//! The flusher syncs the log every few milliseconds for sessions with `synchronous_commit = off`. The
//! checkpointer writes a snapshot at a batch boundary once enough log has been written, while batches go
//! on, and then drops the log before it. The relief takes the sequencer's role over from a caller that has
//! served others for long. All end when the engine is dropped.

use crate::engine::Shared;
use crate::error::EngineError;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;
use weft_base::BatchId;
use weft_store::checkpoint as checkpoint_file;

/// Starts the background threads.
pub(crate) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<(), EngineError> {
    let mut start = |name: &str, run: fn(&Shared)| {
        let shared = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || run(&shared));
        let io = |source| EngineError::Io {
            doing: "starting a background thread".to_string(),
            source,
        };
        thread.map(|thread| threads.push(thread)).map_err(io)
    };
    start("weft-flush", flush)?;
    start("weft-sequence", Shared::relieve)?;
    if shared.config.checkpoint_every_bytes > 0 {
        start("weft-checkpoint", checkpoint_as_needed)?;
    }
    Ok(())
}

fn flush(shared: &Shared) {
    let interval = shared.config.flush_interval.max(Duration::from_millis(1));
    while !stopping(shared, interval) {
        if let Err(error) = shared.log.write_out() {
            shared.fail(&error);
            return;
        }
    }
}

/// Sleeps for `interval`; true when the engine is closing.
fn stopping(shared: &Shared, interval: Duration) -> bool {
    let mut stopping = shared.stopping.lock();
    if !*stopping {
        shared.stop_signal.wait_for(&mut stopping, interval);
    }
    *stopping
}

fn checkpoint_as_needed(shared: &Shared) {
    while !stopping(shared, Duration::from_millis(200)) {
        let written = shared.log.stats().payload_bytes;
        if written.saturating_sub(shared.checkpointed_at_bytes.load(Relaxed))
            < shared.config.checkpoint_every_bytes
        {
            continue;
        }
        if let Err(error) = checkpoint(shared) {
            // The log still covers everything, so the engine goes on; the next round tries again, not at
            // once.
            eprintln!("weft: checkpoint failed, trying again later: {error}");
            shared.checkpointed_at_bytes.store(written, Relaxed);
        }
    }
}

/// Writes a checkpoint of the newest boundary and drops what it makes superfluous.
pub(crate) fn checkpoint(shared: &Shared) -> Result<BatchId, EngineError> {
    let _one_at_a_time = shared.checkpointing.lock();
    if let Some(error) = shared.failure() {
        return Err(EngineError::Stopped(error));
    }
    // The boundary is taken in the sequencer's role, so that the log after it defines its programs anew.
    let snapshot = shared.at_boundary(|sequencer| {
        sequencer.forget_definitions();
        shared.store.snapshot()
    });
    let batch = snapshot.batch();
    shared
        .checkpointed_at_bytes
        .store(shared.log.stats().payload_bytes, Relaxed);
    // A checkpoint must not hold what the log could still lose.
    shared.wait_durable(batch).map_err(EngineError::Stopped)?;
    let mut go_on = |_rows| match *shared.stopping.lock() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    checkpoint_file::write(shared.disk.as_ref(), &snapshot, &shared.dir, &[], &mut go_on)?;
    drop(snapshot);
    shared.log.retire_before(batch)?;
    checkpoint_file::remove_before(shared.disk.as_ref(), &shared.dir, batch)?;
    shared.stats.checkpoints.fetch_add(1, Relaxed);
    shared.stats.checkpoint_batch.store(batch.0, Relaxed);
    Ok(batch)
}
