//! Why an engine could not be opened, checkpointed or replayed.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;
use weft_base::BatchId;
use weft_store::checkpoint::CheckpointError;
use weft_types::{SqlError, SqlState};
use weft_wal::WalError;

/// An error of the engine as a whole. Errors of one statement are `SqlError`s.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The file system reported an error.
    Io {
        /// What was tried.
        doing: String,
        /// The error.
        source: std::io::Error,
    },
    /// The log reported an error or is corrupt.
    Log(WalError),
    /// A checkpoint could not be read or written, or is corrupt.
    Checkpoint(CheckpointError),
    /// The directory holds something that is not a Weft database.
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// What was found there.
        found: String,
    },
    /// A record of the log cannot be decoded although its checksum is right.
    Record {
        /// The record's batch.
        batch: BatchId,
        /// What is wrong with it.
        reason: String,
    },
    /// Replaying a batch gave another state than executing it had given. Deterministic: replaying again gives
    /// the same result.
    DigestMismatch {
        /// The batch.
        batch: BatchId,
        /// The digest in the log.
        logged: u64,
        /// The digest after replay.
        computed: u64,
    },
    /// The engine stopped writing earlier.
    Stopped(SqlError),
}

impl EngineError {
    /// The SQLSTATE for a statement that hits this error: 53100 if a disk was full, 58030 otherwise.
    #[must_use]
    pub fn state(&self) -> SqlState {
        let is_full = match self {
            EngineError::Io { source, .. } => {
                matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }
            EngineError::Log(error) => error.is_storage_full(),
            EngineError::Checkpoint(error) => error.is_storage_full(),
            _ => false,
        };
        if is_full {
            SqlState::DISK_FULL
        } else {
            SqlState::IO_ERROR
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineError::Io { doing, source } => write!(f, "{doing}: {source}"),
            EngineError::Log(error) => write!(f, "log: {error}"),
            EngineError::Checkpoint(error) => write!(f, "checkpoint: {error}"),
            EngineError::Foreign { dir, found } => {
                write!(f, "{} is not a Weft database: found {found}", dir.display())
            }
            EngineError::Record { batch, reason } => write!(f, "log record of batch {}: {reason}", batch.0),
            EngineError::DigestMismatch {
                batch,
                logged,
                computed,
            } => write!(
                f,
                "batch {}: replay gave state digest {computed:016x}, the log says {logged:016x}; \
                 memory or disk returned other data than was written, or execution was not deterministic",
                batch.0
            ),
            EngineError::Stopped(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EngineError::Io { source, .. } => Some(source),
            EngineError::Log(error) => Some(error),
            EngineError::Checkpoint(error) => Some(error),
            _ => None,
        }
    }
}

impl From<WalError> for EngineError {
    fn from(error: WalError) -> EngineError {
        EngineError::Log(error)
    }
}

impl From<CheckpointError> for EngineError {
    fn from(error: CheckpointError) -> EngineError {
        EngineError::Checkpoint(error)
    }
}
