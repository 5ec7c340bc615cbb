//! What memory holds, durably: rows of a batch boundary in an ordered key-value engine.
//!
//! ```text
//!   batches ──► marks on slots written, lists of rows removed       memory/slots.rs, writer/
//!                   │ at a boundary
//!                   ▼
//!   Changes (snapshot, marks, lists) ──► sorted runs ──► tables of the engine ──► one edit
//!       changes.rs                          write.rs          weft-lsm
//!
//!   opening: header ──► catalog, empty tables ◄── rows, by ranges and threads ──► indexes
//!                                                     load.rs
//! ```
//!
//! The engine holds a header (batch, digest, catalog) and every row under (table, row id): the state at one
//! batch boundary. A checkpoint brings it to a newer boundary: it writes the rows that changed, tombstones
//! for those that went, and the header, and all of that appears in one edit of the engine's manifest. So what
//! is on disk is always one whole boundary, the old one or the new one. It is written from a
//! [`Snapshot`](crate::Snapshot) while batches go on. Together with the log after its batch it is the
//! database; the log before it may go.
//!
//! # Which rows changed
//!
//! A writer marks the group of slots that it writes to, a batch lists the rows that it removed. A checkpoint
//! takes marks and lists at its boundary, looks through marked groups alone, and writes the rows there whose
//! version is younger than the checkpoint before. If it fails it gives marks and lists back, so that the next
//! one covers both. A table whose rows were replaced as a whole (TRUNCATE, a new layout) or that is new is
//! written as a whole, behind the deletion of all that was there before.
//!
//! # Checks
//!
//! Damaged memory does not become a checkpoint: every row that is written must be what was sealed when it was
//! put into memory (`memory/version.rs`), no row that was replaced since may have been found to be other, and
//! when all rows are written their digest must be the batches'. Rows that did not change are not looked at:
//! what is on disk of them stays. The reader trusts nothing: blocks have checksums, rows are checked against
//! their layout, unique keys when indexes are built, and in the end the digest.
//!
//! # Merging
//!
//! Files of changes are merged by the engine's compaction, on its own thread or on units that may fail and
//! are checked ([`CompactionUnits`]). Whoever does it, the files are the same.
//!
//! Byte tables: `docs/formats/checkpoint.md`. Choices and their price: decision 0015.

mod changes;
mod format;
mod load;
mod units;
mod verify;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use weft_base::{BatchId, Disk, SystemClock, TableId};
use weft_lsm::{Background, LsmError, LsmOptions, TableIo};
use weft_ops::block::Compression;

pub use changes::Changes;
pub use units::{CompactionUnits, UnitStats};
pub use verify::{Checked, verify};
pub use weft_lsm::{IoCounts, SYNC_SITES};
pub use write::Written;

/// Folder of the engine in a database's directory.
pub const FOLDER: &str = "rows";

/// Sizes of what is on disk. None of them is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// A file is finished when it has this many bytes.
    pub table_bytes: u64,
    /// Bytes of a block: the unit of reading, checking and compression.
    pub block_bytes: u32,
    /// Files of changes that call for their being merged with older ones.
    pub level0_tables: usize,
    /// Bytes that the first level of merged files is to hold.
    pub level1_bytes: u64,
    /// Rows that are put in order at a time: 32 bytes of memory each.
    pub run_rows: usize,
    /// Whether files are merged by a thread of their own. If not, [`Checkpoints::merge`] does it.
    pub merge_beside: bool,
    /// Who merges them.
    pub units: CompactionUnits,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            table_bytes: 64 << 20,
            block_bytes: 64 << 10,
            level0_tables: 4,
            level1_bytes: 256 << 20,
            run_rows: 1 << 20,
            merge_beside: true,
            units: CompactionUnits::Cpu,
        }
    }
}

/// A block of a table takes some 60 bytes of its index: enough for 5 GB and more. Beyond that tables are
/// closed and opened again from range to range.
const OPEN_TABLES_BYTES: usize = 8 << 20;

impl CheckpointConfig {
    fn engine_options(&self) -> LsmOptions {
        let mut options = LsmOptions {
            // Nothing is written but whole checkpoints, and nothing read but all of it.
            memtable_bytes: 1 << 20,
            // For what is known of open tables. Loading reads every block once and keeps none.
            block_cache_bytes: OPEN_TABLES_BYTES,
            filter_bits_per_key: 0,
            // However long a row is: an opening reads every value, tables compress it, and a load is shared
            // out by the bytes of tables (decision 0017).
            large_value_bytes: usize::MAX,
            block_bytes: self.block_bytes,
            table_bytes: self.table_bytes,
            level0_tables: self.level0_tables,
            level1_bytes: self.level1_bytes,
            executor: self.units.executor(),
            // Opening has to read all of it.
            base_compression: Compression::Lz4,
            background: if self.merge_beside {
                Background::Threads
            } else {
                Background::Inline
            },
            ..LsmOptions::default()
        };
        for level in &mut options.levels {
            level.compression = Compression::Lz4;
            // Read again only by the next opening: the page cache is for others.
            level.io = TableIo::Direct;
        }
        options
    }
}

/// The durable rows of a database.
pub struct Checkpoints {
    lsm: weft_lsm::Lsm,
    run_rows: usize,
    written: Option<Boundary>,
}

/// The state that the engine holds.
struct Boundary {
    batch: BatchId,
    /// Which rows each table had, by [`TableCore::id`](crate::table::TableCore::id).
    cores: HashMap<TableId, u64>,
}

impl Checkpoints {
    /// Opens what is in the database directory `dir`, or makes it.
    ///
    /// # Errors
    /// The disk's; corrupt files that opening has to look at.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: &CheckpointConfig) -> Result<Self, CheckpointError> {
        let (dir, options) = (dir.join(FOLDER), config.engine_options());
        // The clock serves the engine's statistics alone.
        let clock = Arc::new(SystemClock::default());
        Ok(Checkpoints {
            lsm: weft_lsm::Lsm::open(disk, &dir, options, clock)?,
            run_rows: config.run_rows,
            written: None,
        })
    }

    /// Merges files until none is superfluous, if no thread does it.
    ///
    /// # Errors
    /// The disk's; corrupt files. What was written stays as it is.
    pub fn merge(&self) -> Result<(), CheckpointError> {
        Ok(self.lsm.compact()?)
    }

    /// How the engine's files go past the page cache, from now on, too.
    pub fn io_counts(&self) -> Arc<IoCounts> {
        self.lsm.io_counts()
    }

    /// What the engine holds and did so far.
    pub fn stats(&self) -> weft_lsm::LsmStats {
        self.lsm.stats()
    }
}

impl fmt::Debug for Checkpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints")
            .field("batch", &self.written.as_ref().map(|written| written.batch))
            .finish_non_exhaustive()
    }
}

/// Why a checkpoint was not written or not loaded. The one before is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The engine refused: the disk, or files that are damaged.
    Storage(LsmError),
    /// Another version of the format.
    UnknownVersion {
        /// Its version.
        version: u32,
    },
    /// What is stored is whole and makes no sense.
    Corrupt {
        /// Header, or table and row.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Rows in memory are not what batches have written. Nothing was written.
    DamagedMemory {
        /// How that shows.
        found: String,
    },
    /// The caller stopped it.
    Canceled,
}

impl CheckpointError {
    /// Whether the disk was full.
    pub fn is_storage_full(&self) -> bool {
        matches!(self, CheckpointError::Storage(error) if error.is_storage_full())
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Storage(error) => write!(f, "{error}"),
            CheckpointError::UnknownVersion { version } => {
                write!(f, "the checkpoint has unknown format version {version}")
            }
            CheckpointError::Corrupt { place, reason } => {
                write!(f, "{place} of the checkpoint is corrupt: {reason}")
            }
            CheckpointError::DamagedMemory { found } => write!(f, "memory is damaged: {found}"),
            CheckpointError::Canceled => f.write_str("checkpoint canceled"),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Storage(error) => Some(error),
            _ => None,
        }
    }
}

impl From<LsmError> for CheckpointError {
    fn from(error: LsmError) -> Self {
        CheckpointError::Storage(error)
    }
}
