//! The settings of an engine, with the defaults of a server.

use crate::executor::Execution;
use std::time::Duration;
use weft_base::memory;
use weft_store::checkpoint::CheckpointConfig;

/// Settings of an engine. Every queue and wait has its bound here (DESIGN.md, invariant 7).
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Threads that may share one batch, the sequencer's own included. 1 or more.
    pub workers: usize,
    /// How a worker runs its members; serial execution is for measurements.
    pub execution: Execution,
    /// A wave with at least this many members is split among workers.
    pub split_batch_at: usize,
    /// Most members of one batch.
    pub max_batch_members: usize,
    /// Bytes of programs that may wait for a batch; a caller with another one then waits.
    pub queue_bytes: usize,
    /// How long a caller waits, at most, before its program is refused with 53200.
    pub queue_wait: Duration,
    /// Slots of the wave planner for rows, and as many for tables and ranges; more slots mean fewer false
    /// conflicts. 8 bytes each.
    pub batch_lock_slots: usize,
    /// Size of a log segment in bytes.
    pub segment_bytes: u64,
    /// An unguessable number that enters the checksums of new log segments.
    pub log_salt: u64,
    /// Log bytes after which a checkpoint is taken; 0 takes none automatically.
    pub checkpoint_every_bytes: u64,
    /// Sizes of what checkpoints write.
    pub checkpoint: CheckpointConfig,
    /// Time between two passes over all rows in memory that look for damage; they are made where checkpoints
    /// are taken by themselves.
    pub scrub_pause: Duration,
    /// Memory of rows, indexes, packed columns, and reading rows from disk (an eighth, or 1 MB); beyond, rows
    /// leave memory that nobody has used for a while and that the newest checkpoint holds. Indexes stay, with
    /// 24 bytes for each row. 0 for no bound.
    pub memory_bytes: u64,
    /// Time between two looks at how much that is.
    pub memory_pause: Duration,
    /// Whether rows of a one-shot program's keys that are not in memory are read on its caller's thread,
    /// before the program is ordered. If not, its batch reads them, and all others wait: only for
    /// measurements.
    pub read_before_order: bool,
    /// Memory of the packed columns that are kept beside the rows of tables that queries scan; 0 keeps none.
    pub column_bytes_max: usize,
    /// How long a commit with `synchronous_commit = off` may stay in memory only.
    pub flush_interval: Duration,
    /// Row locks of one transaction in one table after which the table is locked instead.
    pub row_locks_before_escalation: usize,
    /// Memory of rows that open transactions have written and not committed, all together; beyond, who writes
    /// is refused with 53200.
    pub open_writes_bytes: usize,
    /// Transactions that may be prepared at a time; the next PREPARE TRANSACTION is refused (53200).
    pub prepared_transactions_max: usize,
    /// Bytes of replaced row versions that a transaction's snapshot may keep in memory; beyond this the
    /// snapshot is dropped and the transaction's next statement fails (72000).
    pub snapshot_bytes_max: u64,
    /// Bytes that the snapshot of a running statement may keep so; beyond, the statement is ended (72000).
    pub running_snapshot_bytes_max: u64,
    /// How old a transaction's snapshot may become while others write.
    pub snapshot_age_max: Duration,
    /// Switches admission and locking off. Only for showing that the isolation tests can fail.
    #[doc(hidden)]
    pub without_locks: bool,
}

/// Of the memory of rows and indexes, what rows may fill when they are loaded: one part in.
const LOADED_PART: u64 = 2;
/// What reading rows from disk may take of it: one part in, but some blocks at least.
const READ_PART: u64 = 8;
const READ_BYTES_MIN: u64 = 1 << 20;

impl EngineConfig {
    /// Settings of checkpoints, within the memory that there is.
    pub(crate) fn checkpoints(&self) -> CheckpointConfig {
        let mut checkpoint = self.checkpoint.clone();
        if self.memory_bytes > 0 {
            let loaded = checkpoint.loaded_bytes_max.min(self.memory_bytes / LOADED_PART);
            let read = (self.memory_bytes / READ_PART).max(READ_BYTES_MIN);
            (checkpoint.loaded_bytes_max, checkpoint.read_bytes) =
                (loaded, usize::try_from(read).unwrap_or(usize::MAX));
        }
        checkpoint
    }
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        EngineConfig {
            workers: cores,
            execution: Execution::Interleaved,
            split_batch_at: 256,
            max_batch_members: 16_384,
            queue_bytes: 256 << 20,
            queue_wait: Duration::from_secs(5),
            batch_lock_slots: 1 << 16,
            segment_bytes: 64 << 20,
            log_salt: 0,
            checkpoint_every_bytes: 256 << 20,
            checkpoint: CheckpointConfig::default(),
            scrub_pause: Duration::from_secs(60),
            memory_bytes: memory::machine_bytes() as u64 / 4 * 3,
            memory_pause: Duration::from_millis(50),
            read_before_order: true,
            column_bytes_max: memory::machine_bytes() / 8,
            flush_interval: Duration::from_millis(10),
            row_locks_before_escalation: 4096,
            open_writes_bytes: 2 << 30,
            prepared_transactions_max: 4096,
            snapshot_bytes_max: 1 << 30,
            running_snapshot_bytes_max: 4 << 30,
            snapshot_age_max: Duration::from_secs(4 * 3600),
            without_locks: false,
        }
    }
}
