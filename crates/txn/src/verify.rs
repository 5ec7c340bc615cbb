//! Checking every file of a database that nobody has open, and listing everything that is wrong.
//!
//! ```text
//! log           each segment by itself, each record decoded              (weft_wal::verify)
//! checkpoints   each read as recovery would, digest included             (weft_store::checkpoint)
//! LSM           every directory below that holds an engine's files       (weft_lsm::verify)
//! together      the log begins where the newest sound checkpoint ends
//! ```
//!
//! Recovery ends at the first thing that is wrong; here nothing hides anything else. No byte of the database
//! is changed and nothing is repaired: at most the file of the lock is made.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{BatchId, Disk};
use weft_lsm::{LsmError, LsmOptions};
use weft_store::checkpoint::{self, CheckpointError};
use weft_wal::WalError;

use crate::error::EngineError;
use crate::record::BatchRecord;
use crate::recovery::{has_marker_file, io_error};

/// Directories are looked into so deep.
const DEPTH_MAX: usize = 4;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, or the directory if it is about several.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub offset: Option<u64>,
    /// What kind of thing is wrong: "log", "checkpoint", "block", "manifest".
    pub kind: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        write!(f, ": {}: {}", self.kind, self.reason)
    }
}

/// What a check looked at, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// A line for each kind of file, for people.
    pub looked_at: Vec<String>,
    /// Everything that is wrong; none if the database is sound.
    pub findings: Vec<Finding>,
}

/// Checks the database in `dir`, or the LSM engine, if that is what lies there.
///
/// # Errors
/// The disk's, `WouldBlock` among them for a database that is open; a directory that is neither. What is
/// corrupt is no error but a finding. Cost: everything is read, a checkpoint's rows are in memory once.
pub fn verify(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Verification, EngineError> {
    let marked = has_marker_file(&**disk, dir)?;
    // What lies in a directory that is not ours is none of our business.
    let engines = engines(&**disk, dir, if marked { DEPTH_MAX } else { 0 })?;
    if !marked && engines.is_empty() {
        return Err(EngineError::Foreign {
            dir: dir.to_owned(),
            found: "nothing of ours".to_owned(),
        });
    }
    let mut report = Verification::default();
    // The lock of an engine's own directory is taken when that is checked.
    let lock = if marked && !engines.iter().any(|engine| engine == dir) {
        let doing = format!("locking {} (is a server running on it?)", dir.display());
        Some(disk.lock_dir(dir).map_err(io_error(doing))?)
    } else {
        None
    };
    if marked {
        let newest = checkpoints(&**disk, dir, &mut report)?;
        log(&**disk, dir, newest, &mut report)?;
    }
    for engine in engines {
        lsm(disk, &engine, &mut report)?;
    }
    drop(lock);
    Ok(report)
}

fn reading(path: &Path) -> impl FnOnce(std::io::Error) -> EngineError {
    io_error(format!("reading {}", path.display()))
}

/// Directories in which an LSM engine has files: `dir` and those below.
fn engines(disk: &dyn Disk, dir: &Path, depth: usize) -> Result<Vec<PathBuf>, EngineError> {
    let names = disk.list(dir).map_err(reading(dir))?;
    let is_table = |name: &String| name.ends_with(".sst") || name.ends_with(".lsm");
    let mut found = Vec::new();
    if names.iter().any(is_table) {
        found.push(dir.to_owned());
    }
    if depth > 0 {
        for name in disk.list_dirs(dir).map_err(reading(dir))? {
            found.extend(engines(disk, &dir.join(name), depth - 1)?);
        }
    }
    Ok(found)
}

/// Reads every checkpoint; the batch of the newest sound one.
fn checkpoints(
    disk: &dyn Disk,
    dir: &Path,
    report: &mut Verification,
) -> Result<Option<BatchId>, EngineError> {
    let files = checkpoint::list(disk, dir).map_err(EngineError::Checkpoint)?;
    report
        .looked_at
        .push(format!("{} checkpoint file(s)", files.len()));
    let mut newest = None;
    for (batch, path) in files {
        let (offset, reason) = match checkpoint::read(disk, &path) {
            Ok(_) => {
                newest = newest.max(Some(batch));
                continue;
            }
            Err(CheckpointError::Io { path, source }) => return Err(reading(&path)(source)),
            Err(CheckpointError::Corrupt { offset, reason, .. }) => (Some(offset), reason),
            Err(error) => (None, error.to_string()),
        };
        let kind = "checkpoint".to_owned();
        report.findings.push(Finding {
            file: path,
            offset,
            kind,
            reason,
        });
    }
    Ok(newest)
}

/// Reads every segment and decodes every record.
fn log(
    disk: &dyn Disk,
    dir: &Path,
    newest: Option<BatchId>,
    report: &mut Verification,
) -> Result<(), EngineError> {
    let decode = |_: BatchId, payload: &[u8]| {
        let decoded = BatchRecord::decode(payload);
        decoded.map(drop).map_err(|error| error.to_string())
    };
    let check = weft_wal::verify(disk, dir, decode).map_err(EngineError::Log)?;
    report.looked_at.push(format!(
        "{} log segment(s) with {} batch(es)",
        check.segments, check.batches
    ));
    for error in check.findings {
        let finding = |file: &str, offset, reason: &str| Finding {
            file: dir.join(file),
            offset,
            kind: "log".to_owned(),
            reason: reason.to_owned(),
        };
        report.findings.push(match &error {
            WalError::Corrupt { file, offset, reason } => finding(file, Some(*offset), reason),
            WalError::Foreign { file, reason } => finding(file, Some(0), reason),
            other => finding("", None, &other.to_string()),
        });
    }
    let due = newest.map_or(0, |batch| batch.0) + 1;
    let missing = match (check.first_batch, check.end_batch) {
        (Some(first), _) if first.0 > due => Some(format!("the log begins with batch {}", first.0)),
        (_, Some(end)) if end.0 < due => Some(format!("the log ends before batch {}", end.0)),
        _ => None,
    };
    if let Some(missing) = missing {
        report.findings.push(Finding {
            file: dir.to_owned(),
            offset: None,
            kind: "log".to_owned(),
            reason: format!("{missing}, and batch {due} is due behind the newest sound checkpoint"),
        });
    }
    Ok(())
}

fn lsm(disk: &Arc<dyn Disk>, dir: &Path, report: &mut Verification) -> Result<(), EngineError> {
    let check = weft_lsm::verify(disk, dir, &LsmOptions::default());
    let check = check.map_err(|error| {
        let doing = format!("checking {}", dir.display());
        let source = match &error {
            LsmError::Io { source, .. } => std::io::Error::new(source.kind(), error.to_string()),
            other => std::io::Error::other(other.to_string()),
        };
        io_error(doing)(source)
    })?;
    report.looked_at.push(format!(
        "LSM in {}: {} table(s), {} block(s), {} entries, {} log record(s)",
        dir.display(),
        check.tables,
        check.blocks,
        check.entries,
        check.log_records
    ));
    for error in check.findings {
        report.findings.push(match error {
            LsmError::Corrupt {
                file,
                offset,
                kind,
                reason,
            } => Finding {
                file: dir.join(&*file),
                offset: Some(offset),
                kind: kind.to_string(),
                reason: reason.to_string(),
            },
            other => Finding {
                file: dir.to_owned(),
                offset: None,
                kind: "LSM".to_owned(),
                reason: other.to_string(),
            },
        });
    }
    Ok(())
}
