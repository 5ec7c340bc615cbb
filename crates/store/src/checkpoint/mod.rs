//! A snapshot as one file, and back.
//!
//! A checkpoint holds the whole state at a batch boundary: catalog, sequence positions, every visible row
//! with its row id and the batch that wrote it, and the state digest. It is written from a
//! [`Snapshot`](crate::Snapshot) while batches go on. Together with the log after its batch it is the
//! database; the log before it may go.
//!
//! The file is written under a `.partial` name, synced (`checkpoint.file`), renamed, and the directory is
//! synced (`checkpoint.dir`). So a file with a final name is complete, and what a crash leaves has a name
//! that nobody reads and [`remove_leftovers`] removes.
//!
//! Both directions check. The writer compares the digest of what it wrote with the snapshot's, so damaged
//! memory does not become a checkpoint. The reader trusts nothing: every block has a checksum that covers
//! its place in the file, every length is checked against the bytes that are left, every row against its
//! layout, uniqueness when the indexes are built, and in the end the digest.
//!
//! Byte tables: `docs/formats/checkpoint.md`; constants: `format.rs`.

mod format;
mod read;
mod write;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use weft_base::{BatchId, Disk, SyncSite};

pub use format::{file_name, parse_file_name};
pub use read::read;
pub use write::write;

/// The sync of the file's bytes.
pub const SYNC_FILE: SyncSite = SyncSite("checkpoint.file");
/// The sync of the directory after the rename, and after removals.
pub const SYNC_DIR: SyncSite = SyncSite("checkpoint.dir");

/// Why a checkpoint was not written or not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The disk failed. What is on it of this checkpoint is unknown; earlier checkpoints are as they were.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not begin as a checkpoint does.
    NotACheckpoint {
        /// The file.
        path: PathBuf,
    },
    /// Another version of the format.
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file is damaged.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the damage shows, in bytes from the start.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The snapshot's rows do not have the digest that the batches computed: memory is damaged. Nothing was
    /// kept.
    DamagedMemory {
        /// The digest that the batches computed.
        expected: u64,
        /// The digest of the rows.
        found: u64,
    },
    /// The caller stopped it.
    Canceled,
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckpointError::Io { path, source } => write!(f, "checkpoint {}: {source}", path.display()),
            CheckpointError::NotACheckpoint { path } => write!(f, "{} is not a checkpoint", path.display()),
            CheckpointError::UnknownVersion { path, version } => {
                write!(
                    f,
                    "checkpoint {} has unknown format version {version}",
                    path.display()
                )
            }
            CheckpointError::Corrupt { path, offset, reason } => {
                write!(
                    f,
                    "checkpoint {} is corrupt at byte {offset}: {reason}",
                    path.display()
                )
            }
            CheckpointError::DamagedMemory { expected, found } => write!(
                f,
                "rows in memory have digest {found:016x}, the batches computed {expected:016x}: memory is damaged"
            ),
            CheckpointError::Canceled => f.write_str("checkpoint canceled"),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CheckpointError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    |source| CheckpointError::Io { path, source }
}

/// Checkpoints in a directory, oldest first. Partial files do not count.
pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<(BatchId, PathBuf)>, CheckpointError> {
    let names = disk.list(dir).map_err(io_error(dir))?;
    let mut found: Vec<(BatchId, PathBuf)> = names
        .iter()
        .filter_map(|name| Some((parse_file_name(name)?, dir.join(name))))
        .collect();
    found.sort();
    Ok(found)
}

/// Removes what interrupted writes left. Returns how many files went.
pub fn remove_leftovers(disk: &dyn Disk, dir: &Path) -> Result<usize, CheckpointError> {
    let names = disk.list(dir).map_err(io_error(dir))?;
    let partial = names
        .iter()
        .filter(|name| format::is_partial_name(name))
        .map(|name| dir.join(name));
    remove_files(disk, dir, partial)
}

/// Removes checkpoints of batches before `batch`. Returns how many went.
pub fn remove_before(disk: &dyn Disk, dir: &Path, batch: BatchId) -> Result<usize, CheckpointError> {
    let old = list(disk, dir)?
        .into_iter()
        .filter(|(of, _)| *of < batch)
        .map(|(_, path)| path);
    remove_files(disk, dir, old)
}

fn remove_files(
    disk: &dyn Disk,
    dir: &Path,
    files: impl Iterator<Item = PathBuf>,
) -> Result<usize, CheckpointError> {
    let mut count = 0;
    for path in files {
        disk.remove(&path).map_err(io_error(&path))?;
        count += 1;
    }
    if count > 0 {
        disk.sync_dir(dir, SYNC_DIR).map_err(io_error(dir))?;
    }
    Ok(count)
}
