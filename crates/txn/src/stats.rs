//! Counters of an engine. Cheap to bump, read together as one `EngineStats`.

use crate::batch::Batch;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use weft_offload::UnitStats;
use weft_store::RowMemoryUse;
use weft_store::columns::ColumnStats;

/// Running counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub waves: AtomicU64,
    pub one_shot: AtomicU64,
    pub session_commits: AtomicU64,
    pub read_only_programs: AtomicU64,
    /// Of them, those that found the device in use.
    pub reads_beside_device: AtomicU64,
    pub deferrals: AtomicU64,
    pub lock_waits: AtomicU64,
    pub deadlocks: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_batch: AtomicU64,
}

impl Counters {
    pub(crate) fn count_batch(&self, batch: &Batch) {
        let waves = batch.wave_ends().len() as u64;
        self.batches.fetch_add(1, Relaxed);
        self.waves.fetch_add(waves, Relaxed);
        self.session_commits
            .fetch_add(batch.commits.len() as u64, Relaxed);
        self.one_shot.fetch_add(batch.programs.len() as u64, Relaxed);
    }
}

/// What an engine did since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EngineStats {
    /// Batches executed.
    pub batches: u64,
    /// Waves that they had.
    pub waves: u64,
    /// One-shot programs that took a place in a batch.
    pub one_shot: u64,
    /// Interactive transactions that committed with writes.
    pub session_commits: u64,
    /// Programs that only read and ran on their caller's thread, outside the order.
    pub read_only_programs: u64,
    /// Times a program was put off: to a later wave of its batch, because of a conflict, or to a later
    /// batch, because of a transaction's lock.
    pub deferrals: u64,
    /// Times an interactive transaction began to wait for locks of others.
    pub lock_waits: u64,
    /// Transactions refused a lock because waiting for it would have closed a cycle.
    pub deadlocks: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// The batch of the newest finished checkpoint.
    pub checkpoint_batch: u64,
    /// What rows take in memory.
    pub rows: RowMemoryUse,
    /// Times the log was synced.
    pub log_syncs: u64,
    /// Time spent writing and syncing the log, in nanoseconds.
    pub log_sync_ns: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// About how many bytes of replaced rows stay in memory for the oldest snapshot.
    pub snapshot_bytes: u64,
    /// Age of the oldest snapshot that a transaction keeps.
    pub snapshot_age: Duration,
    /// The columns beside the rows.
    pub columns: ColumnStats,
    /// What units did to merge the files of checkpoints.
    pub units: UnitStats,
    /// Files of checkpoints that were to be written or read past the page cache, and went through it because
    /// their file system does not do it.
    pub direct_refused_files: u64,
    /// Programs that became machine code, in this process.
    pub compiled_programs: u64,
    /// Programs that the compiler failed at, in this process: they stay interpreted.
    pub compile_failures: u64,
    /// Runs of programs of which machine code did a part, in this process.
    pub compiled_runs: u64,
}

impl EngineStats {
    /// Members per batch, on average.
    pub fn mean_batch(&self) -> f64 {
        if self.batches == 0 {
            0.0
        } else {
            (self.one_shot + self.session_commits) as f64 / self.batches as f64
        }
    }

    /// Time of one write and sync of the log, on average, in microseconds.
    pub fn mean_sync_us(&self) -> f64 {
        if self.log_syncs == 0 {
            0.0
        } else {
            self.log_sync_ns as f64 / self.log_syncs as f64 / 1000.0
        }
    }

    /// Share of writing transactions that were one-shot programs, 0 to 1.
    pub fn one_shot_share(&self) -> f64 {
        let all = self.one_shot + self.session_commits;
        if all == 0 {
            0.0
        } else {
            self.one_shot as f64 / all as f64
        }
    }
}
