//! Why a join ended without all of its results.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a join failed. What consumers got before is a part of the results, and no more than that.
#[derive(Debug)]
#[non_exhaustive]
pub enum JoinError {
    /// The budget is too small for this join, and it may not spill or could not go on with what is left.
    Budget {
        /// What was to be held.
        purpose: &'static str,
        /// Bytes that were asked for.
        bytes: usize,
        /// The limit that was met, in bytes.
        bytes_max: usize,
    },
    /// The system has no such memory.
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// A file of spilled tuples could not be written or read.
    Io {
        /// What was being done.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The disk's answer.
        source: io::Error,
    },
    /// A block of spilled tuples is not what was written.
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Offset of the block in it, in bytes.
        offset: u64,
    },
    /// A source gave other tuples than before, or tuples outside of the bounds that it told.
    Source,
    /// A consumer wants no more.
    Stopped,
    /// The caller interrupted the join.
    Interrupted,
    /// There is no consumer, so nobody works.
    NoConsumer,
}

impl JoinError {
    pub(crate) fn io(action: &'static str, file: &Path, source: io::Error) -> JoinError {
        let file = file.to_owned();
        JoinError::Io { action, file, source }
    }

    /// More room was needed than there is: the same join may succeed in another way.
    pub(crate) fn is_of_room(&self) -> bool {
        matches!(self, JoinError::Budget { .. } | JoinError::Memory { .. })
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget {
                purpose,
                bytes,
                bytes_max,
            } => write!(
                f,
                "a join needs {bytes} bytes for {purpose}, more than is left of its {bytes_max}"
            ),
            Self::Memory { bytes } => write!(f, "the system has no {bytes} bytes of memory for a join"),
            Self::Io { action, file, source } => {
                write!(
                    f,
                    "cannot {action} spilled tuples, file {}: {source}",
                    file.display()
                )
            }
            Self::Corrupt { file, offset } => write!(
                f,
                "spilled tuples at byte {offset} of file {} are not what was written",
                file.display()
            ),
            Self::Source => f.write_str("an input of a join changed, or is not within the bounds it told"),
            Self::Stopped => f.write_str("a consumer ended the join"),
            Self::Interrupted => f.write_str("the join was interrupted"),
            Self::NoConsumer => f.write_str("a join without a consumer"),
        }
    }
}

impl std::error::Error for JoinError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
