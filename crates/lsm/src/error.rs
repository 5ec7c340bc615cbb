//! What can go wrong with the engine.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What kind of thing is corrupt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum CorruptKind {
    /// A data block of an SSTable.
    Block,
    /// The index of an SSTable.
    Index,
    /// The filter of an SSTable.
    Filter,
    /// The range tombstones of an SSTable.
    Tombstones,
    /// The properties of an SSTable.
    Properties,
    /// The footer of an SSTable or of a value file.
    Footer,
    /// The manifest.
    Manifest,
    /// A log file.
    Log,
    /// An entry that should lead to a large value.
    Pointer,
    /// A record of a value file.
    Value,
    /// A file that the manifest names is not there, or has another length.
    File,
}

impl fmt::Display for CorruptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Block => "block",
            Self::Index => "index",
            Self::Filter => "filter",
            Self::Tombstones => "range tombstones",
            Self::Properties => "properties",
            Self::Footer => "footer",
            Self::Manifest => "manifest",
            Self::Log => "log",
            Self::Pointer => "pointer to a large value",
            Self::Value => "large value",
            Self::File => "file",
        })
    }
}

/// Why a call to the engine failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LsmError {
    /// The disk refused.
    Io {
        /// What was being done, and to which file.
        context: Arc<str>,
        /// The disk's answer.
        source: Arc<io::Error>,
    },
    /// Stored bytes are not what was written. Other data stays readable.
    Corrupt {
        /// Name of the file.
        file: Arc<str>,
        /// Offset in it, in bytes, of what is bad.
        offset: u64,
        /// What is bad.
        kind: CorruptKind,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// A directory is not as required. Nothing was changed in it.
    Directory {
        /// The directory.
        dir: Arc<str>,
        /// What is wrong with it.
        reason: Arc<str>,
    },
    /// The engine refuses writes at the moment because an earlier one, or a flush, failed; reads go on.
    /// Writes are accepted again when the disk allows it, at most two seconds later.
    Refused {
        /// The error that made it so, as text.
        first: Arc<str>,
        /// Its kind; `StorageFull` stays recognizable.
        kind: io::ErrorKind,
    },
    /// A key, a value or a batch is longer than it can be. Nothing was changed.
    TooLarge {
        /// What is too long.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The longest that is allowed.
        bytes_max: usize,
    },
    /// An executor could not do a compaction task.
    Executor {
        /// What it says.
        reason: Arc<str>,
    },
    /// The engine accepts no more writes because its code panicked; reads go on. Reopening it repairs this.
    Poisoned {
        /// Where, and what the panic said.
        reason: Arc<str>,
    },
    /// The engine is being closed.
    Closed,
}

impl LsmError {
    /// Whether the disk was full.
    #[must_use]
    pub fn is_storage_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source.kind()),
            Self::Refused { kind, .. } => is_full(*kind),
            _ => false,
        }
    }

    /// Whether stored bytes are corrupt, so that retrying cannot help.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// The error for writes that come after this error.
    pub(crate) fn refusal(&self) -> Self {
        match self {
            Self::Refused { .. } | Self::Poisoned { .. } => self.clone(),
            Self::Io { source, .. } => Self::Refused {
                first: self.to_string().into(),
                kind: source.kind(),
            },
            _ => Self::Refused {
                first: self.to_string().into(),
                kind: io::ErrorKind::Other,
            },
        }
    }
}

fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for LsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { context, source } => write!(f, "{context}: {source}"),
            Self::Corrupt {
                file,
                offset,
                kind,
                reason,
            } => write!(f, "{kind} at byte {offset} of {file} is corrupt: {reason}"),
            Self::Directory { dir, reason } => write!(f, "directory {dir} cannot be used: {reason}"),
            Self::Refused { first, .. } => write!(f, "no writes are taken after an earlier error: {first}"),
            Self::TooLarge {
                what,
                bytes,
                bytes_max,
            } => write!(f, "a {what} of {bytes} bytes; the longest has {bytes_max}"),
            Self::Executor { reason } => write!(f, "a compaction task failed: {reason}"),
            Self::Poisoned { reason } => {
                write!(
                    f,
                    "no writes are taken any more until the engine is opened again: {reason}"
                )
            }
            Self::Closed => f.write_str("the engine is being closed"),
        }
    }
}

impl std::error::Error for LsmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// Makes an [`LsmError::Io`] that says what was being done.
pub(crate) fn io_error(action: &str, path: &Path) -> impl FnOnce(io::Error) -> LsmError {
    let context: Arc<str> = format!("{action} {}", path.display()).into();
    move |source| LsmError::Io {
        context,
        source: Arc::new(source),
    }
}

/// Makes an [`LsmError::Directory`].
pub(crate) fn bad_directory(dir: &Path, reason: impl fmt::Display) -> LsmError {
    LsmError::Directory {
        dir: dir.display().to_string().into(),
        reason: reason.to_string().into(),
    }
}

/// Makes an [`LsmError::Corrupt`].
pub(crate) fn corrupt(file: &str, offset: u64, kind: CorruptKind, reason: impl fmt::Display) -> LsmError {
    LsmError::Corrupt {
        file: file.into(),
        offset,
        kind,
        reason: reason.to_string().into(),
    }
}
