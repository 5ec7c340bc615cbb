//! An ordered key-value engine: a log-structured merge tree whose compactions consist of tasks that any
//! executor can run.
//!
//! ```text
//! write ─► log ─► memtable ─► (frozen) ─► flush ─► level 0 ─► compaction ─► level 1 ─► ... ─► base level
//!           log/    memtable/              engine/flush.rs      compaction/ ──► CompactionExecutor
//!                                                  ├─► value files   │             values/
//!                                                  └──── edit ───────┴──► manifest ─► version      version/
//! read ◄─ memtables, then tables from new to old: filter, index, block, cache      table/, cache.rs
//! ```
//!
//! Keys and values are bytes, ordered bytewise, in families that each have their own order. Writes come in
//! atomic batches; snapshots and iterators see one moment. Blocks, the merge and filters are those of
//! [`weft_ops`], so a compaction task can be given to any unit and its result compared byte for byte. Large
//! values are stored separately, in files that tables point to.
//!
//! # Invariants
//!
//! 1. After a crash the state is that of a prefix of the writes, and every write that was synced is in it.
//! 2. A file is removed only after a durable edit of the manifest made it superfluous.
//! 3. Corruption is an error that names file, offset and kind; reads that do not need the corrupt bytes
//!    succeed.
//! 4. When the disk is full, writes are refused and reads go on; writes resume at most two seconds after
//!    there is space again. Obsolete files are removed in the meantime, and failed operations leave no files.
//! 5. Memtables, frozen memtables, block cache and tasks in flight are bounded; writers are slowed before a
//!    bound is reached.
//!
//! Source: X-DB, "Overview of Alibaba's X-Engine" and "FPGA-based Compaction"; DESIGN.md, LSM; O'Neil et
//! al., "The log-structured merge-tree", 1996. Decisions 0013 and 0017 have the choices and their price.

mod backoff;
mod batch;
mod cache;
mod compaction;
mod engine;
mod error;
mod executor;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod iterator;
mod log;
mod memtable;
mod obsolete;
mod options;
mod snapshot;
#[cfg(test)]
mod stepped;
mod sync;
mod table;
mod tombstones;
mod values;
mod verify;
mod version;

pub use batch::{BATCH_BYTES_MAX, FamilyId, USER_KEY_BYTES_MAX, WriteBatch};
pub use compaction::{TASK_RUNS_MAX, UnitExecutor};
pub use engine::{Ingest, LevelStats, Lsm, LsmStats, WriteOptions};
pub use error::{CorruptKind, LsmError};
pub use executor::{CompactionExecutor, ExecutorError, FilterDone, FilterExecutor, InlineExecutor, TaskDone};
pub use iterator::LsmIterator;
pub use options::{Background, LEVEL_COUNT, LevelOptions, LsmOptions};
pub use snapshot::Snapshot;
pub use table::{IoCounts, TableIo};
pub use verify::{VerifyReport, verify, verify_and_show};

use weft_base::SyncSite;

/// Every place at which the engine syncs. Leaving out any one of them loses data in some crash.
pub const SYNC_SITES: [SyncSite; 9] = [
    log::SYNC_LOG,
    log::SYNC_LOG_OLDER,
    log::SYNC_LOG_DIR,
    table::SYNC_TABLE,
    values::SYNC_VALUES,
    engine::SYNC_TABLE_DIR,
    version::SYNC_MANIFEST,
    version::SYNC_MANIFEST_CREATE,
    version::SYNC_MANIFEST_DIR,
];
