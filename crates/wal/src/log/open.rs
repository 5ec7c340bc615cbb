//! Opens a log: finds its end, cuts the torn tail, and makes the rest durable.
//!
//! An opened log may have seen three kinds of crash: of the power (the tail may be torn), of the process
//! alone (the tail may be complete and not durable, and so may the last segment's name), or of an earlier
//! opening. The same steps handle each, and repeating them does no harm:
//!
//! 1. the unfinished segment, if any, is removed (it never held records);
//! 2. the last segment is synced, and dropped from the system's page cache, before it is read: the previous
//!    process may have died of a failed sync, after which the system can show records that are not on the
//!    disk;
//! 3. what follows the last record becomes zero, durably; sectors that hold records are not written, unless
//!    they hold a torn one as well (then they were never durable);
//! 4. the directory is synced. Earlier segments were synced before the last one was created.
//!
//! Only then may the caller see the records, and append.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Condvar, Mutex};
use weft_base::{Disk, DiskFile, OpenMode};

use super::{Log, LogConfig, LogStats, State};
use crate::error::WalError;
use crate::format::{SECTOR_BYTES, UNFINISHED_SEGMENT, align_to_sector, parse_segment_name};
use crate::pending::{OpenSegment, Pending};
use crate::reader::LogReader;
use crate::segment_writer::{Active, SYNC_CUT, SYNC_OPEN, SYNC_OPEN_DIR, SegmentWriter};
use crate::survey::{Survey, Tail, io_error, survey};

impl Log {
    /// Opens the log in a directory, which is made if needed, and returns it with a reader of what it holds.
    ///
    /// Everything that the reader will yield is durable, and the torn tail is overwritten with zeros. The
    /// caller owns the directory (`Disk::lock_dir`).
    ///
    /// # Errors I/O errors; corruption and foreign files, as far as headers and the last segment show it. Bad
    /// records of earlier segments are the reader's to find.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, cfg: LogConfig) -> Result<(Self, LogReader), WalError> {
        disk.create_dir_all(dir).map_err(io_error("making", dir))?;
        let unfinished = dir.join(UNFINISHED_SEGMENT);
        if disk
            .exists(&unfinished)
            .map_err(io_error("looking for", &unfinished))?
        {
            disk.remove(&unfinished)
                .map_err(io_error("removing", &unfinished))?;
        }
        let last = open_last(&*disk, dir)?;
        let survey = survey(&*disk, dir)?;
        let reader = LogReader::from_survey(Arc::clone(&disk), dir, &survey);
        let active = match (last, survey.segments.last(), &survey.tail) {
            (Some(LastFile { file, path }), Some(last), Some(tail)) => {
                cut_tail(&*file, &path, tail)?;
                disk.sync_dir(dir, SYNC_OPEN_DIR)
                    .map_err(io_error("syncing", dir))?;
                let (start_lsn, file_bytes) = (last.header.start_lsn, tail.file_bytes);
                let written_to = align_to_sector(tail.offset as u64);
                Some(Active {
                    file,
                    path,
                    start_lsn,
                    file_bytes,
                    written_to,
                    dirty: false,
                })
            }
            _ => None,
        };
        let log = Self::from_survey(disk, dir, cfg, survey, active);
        Ok((log, reader))
    }

    fn from_survey(
        disk: Arc<dyn Disk>,
        dir: &Path,
        cfg: LogConfig,
        survey: Survey,
        active: Option<Active>,
    ) -> Self {
        let segment_bytes = align_to_sector(cfg.segment_bytes.clamp(4 * SECTOR_BYTES, 1 << 40));
        // If space is reserved, what an earlier process reserved counts.
        let reserved = survey.tail.as_ref().filter(|_| cfg.preallocate);
        let file_bytes = reserved.map_or(segment_bytes, |tail| tail.file_bytes);
        let last = survey.segments.last().map(|segment| OpenSegment {
            header: segment.header,
            file_bytes,
        });
        let (end, next_batch, sealed) = match (&last, &survey.tail) {
            (Some(last), Some(tail)) => (
                align_to_sector(last.header.lsn_at(tail.offset)),
                Some(tail.next_batch),
                tail.sealed,
            ),
            _ => (0, None, true),
        };
        let last_batch = next_batch.unwrap_or(1).saturating_sub(1);
        let state = State {
            pending: Pending::new(last, end, next_batch, segment_bytes, cfg.salt),
            batch_ends: VecDeque::new(),
            syncing: false,
            group_no: 0,
            group_end: end,
            poison: None,
            segments: survey.segments.into(),
            sealed,
            idle_at: None,
            spare_bytes: 0,
            is_reserved: false,
            stats: LogStats::default(),
        };
        Self {
            durable: AtomicU64::new(end),
            durable_batch: AtomicU64::new(last_batch),
            appended: AtomicU64::new(end),
            appended_batch: AtomicU64::new(last_batch),
            state: Mutex::new(state),
            group_done: [Condvar::new(), Condvar::new()],
            space: Condvar::new(),
            writer: Mutex::new(SegmentWriter::new(
                Arc::clone(&disk),
                dir.to_owned(),
                cfg.preallocate,
                active,
            )),
            retiring: Mutex::new(()),
            disk,
            dir: dir.to_owned(),
            buffer_bytes: cfg.buffer_bytes,
            preallocates: cfg.preallocate,
        }
    }
}

/// The last segment's file, opened for writing.
struct LastFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
}

/// Opens the last segment, so that what is read from now on is on the disk.
fn open_last(disk: &dyn Disk, dir: &Path) -> Result<Option<LastFile>, WalError> {
    let names = disk.list(dir).map_err(io_error("listing", dir))?;
    let Some(name) = names.iter().rfind(|name| parse_segment_name(name).is_some()) else {
        return Ok(None);
    };
    let path = dir.join(name);
    let file = disk
        .open(&path, OpenMode::ReadWrite)
        .map_err(io_error("opening", &path))?;
    file.sync(SYNC_OPEN).map_err(io_error("syncing", &path))?;
    file.forget_cached().map_err(io_error("rereading", &path))?;
    Ok(Some(LastFile { file, path }))
}

/// Overwrites what follows the last record with zeros, durably.
fn cut_tail(file: &dyn DiskFile, path: &Path, tail: &Tail) -> Result<(), WalError> {
    if tail.garbage.is_empty() {
        return Ok(());
    }
    // Nothing before it is written: zeros that follow the last record share its durable sector.
    let zeros = vec![0; tail.garbage.len()];
    file.write_at(&zeros, tail.garbage.start as u64)
        .map_err(io_error("cutting", path))?;
    file.sync(SYNC_CUT).map_err(io_error("syncing", path))
}
