//! Checkpoints: the rows of a batch boundary, durable in an ordered key-value engine.
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
//!                                             ◄── places of rows, indexes: if the last stop was a clean one
//!                                                     image/
//! ```
//!
//! The engine holds a header (batch, digest, catalog) and every row under (table, row id): the state at one
//! batch boundary. A checkpoint brings it to a newer boundary: it writes the rows that changed, tombstones
//! for the removed ones, and the header, all in one edit of the engine's manifest. So the disk always holds
//! one complete boundary, the old one or the new one. A checkpoint is written from a
//! [`Snapshot`](crate::Snapshot) while batches go on. Together with the log after its batch it is the
//! database; the log before it can be removed.
//!
//! # Which rows changed
//!
//! A writer marks the group of slots that it writes to, and a batch lists the rows that it removed. A
//! checkpoint takes marks and lists at its boundary, scans only the marked groups, and writes the rows in
//! them whose version is newer than the previous checkpoint. If it fails it returns marks and lists, so that
//! the next one covers both. A new table, or one whose rows were all replaced (TRUNCATE, a new layout), is
//! written completely, after a deletion of everything that was stored for it.
//!
//! # Checks
//!
//! Damaged memory does not get into a checkpoint: every row that is written must match the seal made when it
//! was put into memory (`memory/version.rs`), no damaged row may have been found when it was replaced, and
//! once all rows are written their digest must equal the batches'. Unchanged rows are not checked: their
//! stored copies stay. The reader trusts nothing: blocks have checksums, rows are checked against their
//! layout, unique keys when indexes are built, and finally the digest.
//!
//! # Merging
//!
//! The engine's compaction merges the files of changes, on its own thread or on units that may fail and are
//! checked ([`Units`]). The resulting files are the same in either case.
//!
//! Byte tables: `docs/formats/checkpoint.md`. Choices and their price: decision 0015.

mod changes;
mod cold;
pub(crate) mod format;
pub(crate) mod image;
mod load;
mod verify;
mod write;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use weft_base::{BatchId, Disk, SystemClock, TableId};
use weft_lsm::{Background, InlineExecutor, LsmError, LsmOptions, TableIo, UnitExecutor};
use weft_offload::Units;
use weft_ops::block::Compression;

use crate::table::TableCore;

pub use changes::Changes;
pub use image::NAME as IMAGE_NAME;
pub use verify::{Checked, verify};
pub use weft_lsm::{IoCounts, SYNC_SITES};
pub use write::Written;

/// Folder of the engine in a database's directory.
pub const FOLDER: &str = "rows";

/// Size settings of checkpoints. None of them is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointConfig {
    /// A file is finished when it has this many bytes.
    pub table_bytes: u64,
    /// Bytes of a block: the unit of reading, checking and compression.
    pub block_bytes: u32,
    /// The number of files of changes at which they are merged with older ones.
    pub level0_tables: usize,
    /// The target size of the first level of merged files, in bytes.
    pub level1_bytes: u64,
    /// Rows that are sorted at a time: 32 bytes of memory each.
    pub run_rows: usize,
    /// Whether an opening may use an image of the indexes, and so read no rows. If not, it compares all rows
    /// with the digest.
    pub reads_image: bool,
    /// Memory that rows take when they are loaded; about so much is filled, and the others stay on disk.
    pub loaded_bytes_max: u64,
    /// Memory for reading rows that are not in memory: indexes and filters of files, about 7 bytes for a row
    /// of 1 KB, and blocks in the rest. Files whose index does not fit are opened again for each row.
    pub read_bytes: usize,
    /// Whether a thread of its own merges files. If not, [`Checkpoints::merge`] does.
    pub merge_beside: bool,
    /// Who merges them.
    pub units: Units,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig {
            table_bytes: 64 << 20,
            block_bytes: 16 << 10,
            level0_tables: 4,
            level1_bytes: 256 << 20,
            run_rows: 1 << 20,
            reads_image: true,
            loaded_bytes_max: u64::MAX,
            read_bytes: 72 << 20,
            merge_beside: true,
            units: Units::Cpu,
        }
    }
}

/// A row is usually in one file of several that may have it; the others are not read.
const FILTER_BITS_PER_KEY: u32 = 10;

/// Nobody waits for a merge, and transactions need the cores.
const COMPACTION_SHARE: f64 = 0.25;

impl CheckpointConfig {
    fn engine_options(&self) -> LsmOptions {
        let mut options = LsmOptions {
            // Only complete checkpoints are written.
            memtable_bytes: 1 << 20,
            // Loading reads every block once and caches none.
            block_cache_bytes: self.read_bytes,
            filter_bits_per_key: FILTER_BITS_PER_KEY,
            // Values are never stored separately: an opening reads every value, tables compress it, and the
            // work of loading is divided by the bytes of tables (decision 0017).
            large_value_bytes: usize::MAX,
            block_bytes: self.block_bytes,
            table_bytes: self.table_bytes,
            level0_tables: self.level0_tables,
            level1_bytes: self.level1_bytes,
            executor: match self.units.scheduler() {
                None => Arc::new(InlineExecutor),
                Some(scheduler) => Arc::new(UnitExecutor::new(Arc::clone(scheduler))),
            },
            // Opening has to read all of it.
            base_compression: Compression::Lz4,
            background: if self.merge_beside {
                Background::Threads
            } else {
                Background::Inline
            },
            compaction_share: COMPACTION_SHARE,
            ..LsmOptions::default()
        };
        for level in &mut options.levels {
            level.compression = Compression::Lz4;
            // Most of it is read again only by the next opening: leave the page cache to others, and to rows
            // that are looked for.
            level.io = TableIo::Direct;
        }
        options
    }
}

/// The durable rows of a database.
pub struct Checkpoints {
    lsm: Arc<weft_lsm::Lsm>,
    run_rows: usize,
    loaded_bytes_max: u64,
    reads_image: bool,
    written: Option<Boundary>,
    image: image::ImagePlace,
}

/// The state that the engine holds.
struct Boundary {
    batch: BatchId,
    /// The rows of each table.
    cores: HashMap<TableId, Weak<TableCore>>,
}

impl Boundary {
    /// It holds these rows.
    fn has(&self, core: &Arc<TableCore>) -> bool {
        let rows = self.cores.get(&core.table);
        rows.is_some_and(|rows| std::ptr::eq(rows.as_ptr(), Arc::as_ptr(core)))
    }
}

impl Checkpoints {
    /// Opens what is in the database directory `dir`, or creates it.
    ///
    /// # Errors
    /// The disk's; corrupt files that opening has to look at.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, config: &CheckpointConfig) -> Result<Self, CheckpointError> {
        let image = image::ImagePlace::new(Arc::clone(&disk), dir);
        let (dir, options) = (dir.join(FOLDER), config.engine_options());
        // The clock is only used for the engine's statistics.
        let clock = Arc::new(SystemClock::default());
        Ok(Checkpoints {
            lsm: Arc::new(weft_lsm::Lsm::open(disk, &dir, options, clock)?),
            run_rows: config.run_rows,
            loaded_bytes_max: config.loaded_bytes_max,
            reads_image: config.reads_image,
            written: None,
            image,
        })
    }

    /// Writes what the next opening needs to find every row without reading any ([`image`]), if the store is
    /// where the checkpoint is and no reader keeps older versions. Whether it did. Batches may go on
    /// meanwhile, but then nothing is kept.
    ///
    /// # Errors
    /// The disk's. The checkpoint is not touched.
    pub fn write_image(&self, store: &Arc<crate::Store>) -> Result<bool, std::io::Error> {
        let Some(written) = &self.written else {
            return Ok(false);
        };
        image::write(&self.image, store, written.batch)
    }

    /// Merges files until no further merge is due, if no thread does it.
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

/// Why a checkpoint was not written or not loaded. The previous one is intact.
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
    /// The stored bytes are complete but make no sense.
    Corrupt {
        /// Header, or table and row.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// Rows in memory are not what batches wrote. Nothing was written.
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
