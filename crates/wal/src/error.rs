//! What can go wrong with the log.

use std::fmt;
use std::io;
use std::sync::Arc;

use weft_base::BatchId;

/// Why a call to the log failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum WalError {
    /// The disk returned an error. The log that saw it is poisoned.
    Io {
        /// What was being done, and to which file.
        context: Arc<str>,
        /// The disk's answer.
        source: Arc<io::Error>,
    },
    /// Durable bytes are not what was written.
    Corrupt {
        /// Name of the segment file.
        file: Arc<str>,
        /// Offset in it, in bytes, of the record or header that is bad.
        offset: u64,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// A file has a segment's name but is not one, or not one that this version reads.
    Foreign {
        /// Name of the file.
        file: Arc<str>,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// An earlier I/O error: nothing may be appended or declared durable until the log is opened again.
    Poisoned {
        /// The first error, as text.
        first: Arc<str>,
        /// Its kind; `StorageFull` stays recognizable.
        kind: io::ErrorKind,
    },
    /// Batches must be appended in order, without a gap. The log is unharmed.
    OutOfOrder {
        /// The expected batch.
        due: BatchId,
        /// The batch that was appended.
        got: BatchId,
    },
    /// The payload is larger than a record can be. The log is unharmed.
    TooLarge {
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// Durability was requested for something that has not been appended. The log is unharmed.
    NotAppended,
}

impl WalError {
    /// Whether the disk was full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source.kind()),
            Self::Poisoned { kind, .. } => is_full(*kind),
            _ => false,
        }
    }

    /// Whether stored bytes are corrupt, so that retrying cannot help.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Foreign { .. })
    }
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for WalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, source } => write!(f, "{context}: {source}"),
            Self::Corrupt { file, offset, reason } => {
                write!(f, "log segment {file} is corrupt at byte {offset}: {reason}")
            }
            Self::Foreign { file, reason } => write!(f, "{file} is not a readable log segment: {reason}"),
            Self::Poisoned { first, .. } => {
                write!(f, "the log has stopped after an earlier error: {first}")
            }
            Self::OutOfOrder { due, got } => write!(f, "batch {got} was appended where {due} was due"),
            Self::TooLarge { payload_bytes } => {
                write!(f, "a log record cannot hold {payload_bytes} bytes")
            }
            Self::NotAppended => f.write_str("the position has not been appended to the log"),
        }
    }
}

impl std::error::Error for WalError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}
