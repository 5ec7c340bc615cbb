//! Checks every file of a closed database and lists everything that is wrong.
//!
//! ```text
//! log           each segment by itself, each record decoded              (weft_wal::verify)
//! image         the checksums of what an opening reads instead of rows   (weft_store::checkpoint)
//! rows          every block of the checkpoint's tables, and its header   (weft_store::checkpoint)
//! LSM           every directory below that holds an engine's files       (weft_lsm::verify)
//! together      the log begins where the checkpoint ends
//! ```
//!
//! Recovery stops at the first error; here every file is checked, whether others are damaged or unreadable.
//! No byte of the database is changed and nothing is repaired; at most the lock file is created.
//!
//! Not checked: rows are not loaded, so they are compared neither with the state digest nor with the layouts
//! and constraints of their tables, and no program is run; a replay does that. In an LSM engine, tables after
//! an unreadable one and logs after the first damaged one are not checked.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{BatchId, Disk};
use weft_lsm::{LsmError, LsmOptions, VerifyReport};
use weft_store::checkpoint;
use weft_wal::WalError;

use crate::error::EngineError;
use crate::record::BatchRecord;
use crate::recovery::{MARKER_NAME, has_marker, io_error};

/// How deep directories are searched.
const DEPTH_MAX: usize = 4;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, or the directory if several are concerned.
    pub file: PathBuf,
    /// Where in the file, in bytes.
    pub offset: Option<u64>,
    /// What kind of thing is wrong: "log", "checkpoint", "block", "manifest", "directory".
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

/// What a check covered, and what it found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// A line for each kind of file, for people to read.
    pub looked_at: Vec<String>,
    /// Everything that is wrong; empty if the database is intact.
    pub findings: Vec<Finding>,
}

/// Checks the database in `dir`, or the LSM engine, if that is what lies there.
///
/// # Errors
/// The disk's: `WouldBlock` for a database that is open, and errors about `dir` itself; a directory that is
/// neither a database nor an engine. Corrupt or unreadable files are findings, not errors. Cost: everything
/// is read once.
pub fn verify(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Verification, EngineError> {
    let mut report = Verification::default();
    let ours = is_ours(&**disk, dir, &mut report)?;
    let rows = dir.join(checkpoint::FOLDER);
    let depth = if ours { DEPTH_MAX } else { 0 };
    let mut engines = engines(&**disk, dir, depth, &mut report)?;
    engines.retain(|engine| !(ours && *engine == rows));
    if !ours && engines.is_empty() {
        return Err(EngineError::Foreign {
            dir: dir.to_owned(),
            found: "nothing of ours".to_owned(),
        });
    }
    // The lock of an engine's own directory is taken when that directory is checked.
    let lock = if ours && !engines.iter().any(|engine| engine == dir) {
        let doing = format!("locking {} (is a server running on it?)", dir.display());
        Some(disk.lock_dir(dir).map_err(io_error(doing))?)
    } else {
        None
    };
    if ours {
        let newest = checkpoint(disk, dir, &mut report)?;
        log(&**disk, dir, newest, &mut report)?;
    }
    for engine in engines {
        let checked = weft_lsm::verify(disk, &engine, &LsmOptions::default());
        if let Some(checked) = readable(&engine, checked, &mut report)? {
            lsm(&engine, checked, &mut report);
        }
    }
    drop(lock);
    Ok(report)
}

/// Whether a database lies in `dir`: its marker is there, or what only a database has.
fn is_ours(disk: &dyn Disk, dir: &Path, report: &mut Verification) -> Result<bool, EngineError> {
    let names = disk.list(dir).map_err(reading(dir))?;
    let wrong = match has_marker(disk, dir) {
        Ok(true) => return Ok(true),
        Err(EngineError::Foreign { found, .. }) if names.iter().any(|name| name == MARKER_NAME) => found,
        Err(EngineError::Foreign { .. }) | Ok(false) => {
            let is_segment = |name: &String| name.starts_with("log-") && name.ends_with(".weft");
            if !names.iter().any(is_segment) {
                return Ok(false);
            }
            format!("the marker file {MARKER_NAME} is missing")
        }
        Err(error) => error.to_string(),
    };
    report.findings.push(Finding {
        file: dir.join(MARKER_NAME),
        offset: None,
        kind: "marker".to_owned(),
        reason: wrong,
    });
    Ok(true)
}

fn reading(path: &Path) -> impl FnOnce(std::io::Error) -> EngineError {
    io_error(format!("reading {}", path.display()))
}

/// Directories in which an LSM engine has files: `dir` and those below.
fn engines(
    disk: &dyn Disk,
    dir: &Path,
    depth: usize,
    report: &mut Verification,
) -> Result<Vec<PathBuf>, EngineError> {
    let names = disk.list(dir).map_err(reading(dir))?;
    let any = |ending: &str| names.iter().any(|name| name.ends_with(ending));
    let mut found = Vec::new();
    if any(".lsm") {
        found.push(dir.to_owned());
    } else if any(".sst") {
        let line = format!(
            "{} holds tables and no manifest: not checked by itself",
            dir.display()
        );
        report.looked_at.push(line);
    }
    if depth > 0 {
        // The folder of a mount point belongs to the system.
        let folders = disk.list_dirs(dir).map_err(reading(dir))?;
        for name in folders.iter().filter(|name| *name != "lost+found") {
            let folder = dir.join(name);
            match engines(disk, &folder, depth - 1, report) {
                Ok(below) => found.extend(below),
                Err(error) => report.found(&folder, "directory", &error.to_string()),
            }
        }
    }
    Ok(found)
}

/// Checks the rows on disk: the last batch in them, 0 without a checkpoint. `None` if their files are
/// damaged, so that they may contain a newer header than was found.
fn checkpoint(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    report: &mut Verification,
) -> Result<Option<BatchId>, EngineError> {
    let rows = dir.join(checkpoint::FOLDER);
    let is_there = disk.list_dirs(dir).map_err(reading(dir))?;
    if !is_there.iter().any(|name| name == checkpoint::FOLDER) {
        return Ok(Some(BatchId(0)));
    }
    let checked = checkpoint::verify(disk, dir);
    let Some(checked) = readable(&rows, checked, report)? else {
        return Ok(None);
    };
    let sound = checked.files.is_sound();
    lsm(&rows, checked.files, report);
    match checked.image {
        None => {}
        Some(Ok(batch)) => report
            .looked_at
            .push(format!("an image of the indexes of batch {batch}")),
        Some(Err(reason)) => {
            let reason = format!("{reason} (rows are read instead, and the next clean stop writes another)");
            report.found(&dir.join(checkpoint::IMAGE_NAME), "image", &reason);
        }
    }
    match checked.batch {
        Ok(batch) => {
            let batch_name = batch.map_or("no batch yet".to_owned(), |batch| format!("batch {batch}"));
            report.looked_at.push(format!("a checkpoint of {batch_name}"));
            Ok(sound.then_some(batch.unwrap_or(BatchId(0))))
        }
        Err(reason) => {
            report.found(&rows, "checkpoint", &reason);
            Ok(None)
        }
    }
}

/// Reads every segment and decodes every record. `newest` is the last batch that the log need not contain.
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
            other => Finding {
                file: dir.to_owned(),
                ..finding("", None, &other.to_string())
            },
        });
    }
    let Some(newest) = newest else {
        let line = "where the log is to begin is not known: not checked".to_owned();
        report.looked_at.push(line);
        return Ok(());
    };
    if check.segments > 0 && check.end_batch.is_none() {
        let line = "where the log ends is not known: not checked".to_owned();
        report.looked_at.push(line);
    }
    let due = newest.0 + 1;
    let missing = match (check.first_batch, check.end_batch) {
        (None, None) if check.segments == 0 && newest.0 > 0 => Some("there is no log".to_owned()),
        (Some(first), _) if first.0 > due => Some(format!("the log begins with batch {}", first.0)),
        (_, Some(end)) if end.0 < due => Some(format!("the log ends before batch {}", end.0)),
        _ => None,
    };
    if let Some(missing) = missing {
        report.findings.push(Finding {
            file: dir.to_owned(),
            offset: None,
            kind: "log".to_owned(),
            reason: format!("{missing}, and batch {due} is due behind the checkpoint"),
        });
    }
    Ok(())
}

/// What was found of the engine in `dir`; a finding instead if the check ended at what the disk refused.
///
/// # Errors
/// That somebody has it open.
fn readable<T>(
    dir: &Path,
    checked: Result<T, LsmError>,
    report: &mut Verification,
) -> Result<Option<T>, EngineError> {
    match checked {
        Ok(checked) => Ok(Some(checked)),
        Err(LsmError::Io { source, context }) if source.kind() == ErrorKind::WouldBlock => {
            let source = std::io::Error::new(source.kind(), format!("{context}: {source}"));
            Err(io_error(format!("checking {}", dir.display()))(source))
        }
        Err(error) => {
            let reason = format!("{error}: what lies behind is not checked");
            report.found(dir, "LSM", &reason);
            Ok(None)
        }
    }
}

impl Verification {
    fn found(&mut self, file: &Path, kind: &str, reason: &str) {
        self.findings.push(Finding {
            file: file.to_owned(),
            offset: None,
            kind: kind.to_owned(),
            reason: reason.to_owned(),
        });
    }
}

fn lsm(dir: &Path, check: VerifyReport, report: &mut Verification) {
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
}
