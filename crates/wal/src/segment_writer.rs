//! Writes segment files for the leader: create, write, sync.
//!
//! A segment is created under another name, filled with its header and its reserved space, synced, renamed,
//! and its name synced; only then are records written. So a file with a segment's name always has a complete
//! header, and a bad one is never the result of a power cut. Before that, the contents of the previous
//! segment are synced (invariant 4 of the crate).
//!
//! The file of the next segment may be created in advance, with its space and without its name
//! ([`SegmentWriter::reserve`]): a full disk reports it then, when nothing depends on it yet, and a removed
//! file frees its space.
//!
//! The first write to a reserved block costs a journal commit, because the file system must record that the
//! block now has contents. The writer therefore writes zeros ahead of the records, a quarter of a mebibyte at
//! a time: one sync in some hundred pays for it, the others write into blocks that were written before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{Disk, DiskFile, OpenMode, SyncSite};

use crate::error::WalError;
use crate::format::{SEGMENT_HEADER_BYTES, SegmentHeader, UNFINISHED_SEGMENT, segment_name};
use crate::pending::{Group, NewSegment};
use crate::survey::{SegmentInfo, io_error};

/// Sync of records, once a group.
pub(crate) const SYNC_SEGMENT: SyncSite = SyncSite("log.segment");
/// Sync of the finished segment, before the next one is made.
pub(crate) const SYNC_ROTATE: SyncSite = SyncSite("log.rotate");
/// Sync of a new segment's header, before it gets its name.
pub(crate) const SYNC_CREATE: SyncSite = SyncSite("log.create");
/// Sync of a new segment's name.
pub(crate) const SYNC_DIR: SyncSite = SyncSite("log.dir");
/// Sync of a removed segment's name, before the next one is removed.
pub(crate) const SYNC_RETIRE: SyncSite = SyncSite("log.retire");
/// Sync of the last segment when the log is opened: of what an earlier process wrote.
pub(crate) const SYNC_OPEN: SyncSite = SyncSite("log.open");
/// Sync of the last segment after its torn tail was overwritten.
pub(crate) const SYNC_CUT: SyncSite = SyncSite("log.cut");
/// Sync of the names when the log is opened: an earlier process may have died before it.
pub(crate) const SYNC_OPEN_DIR: SyncSite = SyncSite("log.open.dir");

/// Every place at which the log syncs. Leaving out any one of them loses data in some crash.
pub const SYNC_SITES: [SyncSite; 8] = [
    SYNC_SEGMENT,
    SYNC_ROTATE,
    SYNC_CREATE,
    SYNC_DIR,
    SYNC_RETIRE,
    SYNC_OPEN,
    SYNC_CUT,
    SYNC_OPEN_DIR,
];

const ZERO_AHEAD_BYTES: u64 = 256 << 10;

/// The files of the log. Used by one leader at a time.
pub(crate) struct SegmentWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    preallocate: bool,
    active: Option<Active>,
    /// The file of the next segment, created in advance, and its length.
    spare: Option<(Box<dyn DiskFile>, u64)>,
    zeros: Vec<u8>,
}

/// The segment that is written to.
pub(crate) struct Active {
    pub file: Box<dyn DiskFile>,
    pub path: PathBuf,
    pub start_lsn: u64,
    /// Length of the file with its reserved space.
    pub file_bytes: u64,
    /// Up to where the file was written, records or zeros.
    pub written_to: u64,
    /// Whether something was written since the last sync.
    pub dirty: bool,
}

/// What a written group added.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub bytes: u64,
    pub new_segments: Vec<SegmentInfo>,
}

impl SegmentWriter {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, preallocate: bool, active: Option<Active>) -> Self {
        Self {
            disk,
            dir,
            preallocate,
            active,
            spare: None,
            zeros: Vec::new(),
        }
    }

    /// Writes a group and makes it durable. After an error its state is unknown.
    pub(crate) fn write(&mut self, group: &Group) -> Result<Written, WalError> {
        let mut written = Written::default();
        for run in &group.runs {
            if let Some(new) = &run.new_segment {
                self.finish_segment()?;
                written.new_segments.push(self.make_segment(new)?);
            }
            self.write_run(run.start_lsn, &run.bytes)?;
            written.bytes += run.bytes.len() as u64;
        }
        if let Some(active) = &mut self.active {
            active
                .file
                .sync(SYNC_SEGMENT)
                .map_err(io_error("syncing", &active.path))?;
            active.dirty = false;
        }
        Ok(written)
    }

    /// Makes sure that the next segment's file exists with at least this length. After an error nothing has
    /// changed.
    pub(crate) fn reserve(&mut self, file_bytes: u64) -> Result<(), WalError> {
        let path = self.dir.join(UNFINISHED_SEGMENT);
        let (file, reserved) = match self.spare.take() {
            Some(spare) => spare,
            None => (self.make_file(&path)?, 0),
        };
        let bytes = reserved.max(file_bytes);
        let allocated = match self.preallocate && reserved < bytes {
            true => file
                .allocate(bytes)
                .map_err(io_error("reserving space for", &path)),
            false => Ok(()),
        };
        if let Err(error) = allocated {
            // It may exist partially. If it cannot be removed, the next call retries.
            drop(file);
            let _ = self.disk.remove(&path);
            return Err(error);
        }
        self.spare = Some((file, bytes));
        Ok(())
    }

    fn make_file(&self, path: &Path) -> Result<Box<dyn DiskFile>, WalError> {
        if self.disk.exists(path).map_err(io_error("looking for", path))? {
            self.disk.remove(path).map_err(io_error("removing", path))?;
        }
        self.disk
            .open(path, OpenMode::CreateNew)
            .map_err(io_error("creating", path))
    }

    /// Makes the file of the current segment longer. After an error nothing that was written is lost.
    pub(crate) fn lengthen(&mut self, file_bytes: u64) -> Result<(), WalError> {
        match &mut self.active {
            Some(active) if active.file_bytes < file_bytes => {
                active
                    .file
                    .allocate(file_bytes)
                    .map_err(io_error("reserving space for", &active.path))?;
                active.file_bytes = file_bytes;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish_segment(&mut self) -> Result<(), WalError> {
        match self.active.take() {
            Some(active) if active.dirty => active
                .file
                .sync(SYNC_ROTATE)
                .map_err(io_error("syncing", &active.path)),
            _ => Ok(()),
        }
    }

    fn make_segment(&mut self, new: &NewSegment) -> Result<SegmentInfo, WalError> {
        let SegmentHeader {
            first_batch,
            start_lsn,
            ..
        } = new.header;
        let name = segment_name(first_batch);
        let (unfinished, path) = (self.dir.join(UNFINISHED_SEGMENT), self.dir.join(&name));
        self.reserve(new.file_bytes)?;
        let Some((file, file_bytes)) = self.spare.take() else {
            return Err(WalError::NotAppended);
        };
        file.write_at(&new.header.encode(), 0)
            .map_err(io_error("writing", &unfinished))?;
        file.sync(SYNC_CREATE).map_err(io_error("syncing", &unfinished))?;
        self.disk
            .rename(&unfinished, &path)
            .map_err(io_error("naming", &path))?;
        self.disk
            .sync_dir(&self.dir, SYNC_DIR)
            .map_err(io_error("syncing", &self.dir))?;
        let written_to = SEGMENT_HEADER_BYTES;
        self.active = Some(Active {
            file,
            path,
            start_lsn,
            file_bytes,
            written_to,
            dirty: false,
        });
        Ok(SegmentInfo {
            file: name.into(),
            header: new.header,
        })
    }

    fn write_run(&mut self, start_lsn: u64, bytes: &[u8]) -> Result<(), WalError> {
        let Some(active) = &mut self.active else {
            return Err(WalError::NotAppended);
        };
        let offset = SEGMENT_HEADER_BYTES + (start_lsn - active.start_lsn);
        let end = offset + bytes.len() as u64;
        active.dirty = true;
        active
            .file
            .write_at(bytes, offset)
            .map_err(io_error("writing", &active.path))?;
        if end <= active.written_to {
            return Ok(());
        }
        active.written_to = end;
        let zero_to = end.next_multiple_of(ZERO_AHEAD_BYTES).min(active.file_bytes);
        if self.preallocate && zero_to > end {
            self.zeros.resize(ZERO_AHEAD_BYTES as usize, 0);
            let zeros = &self.zeros[..(zero_to - end) as usize];
            active
                .file
                .write_at(zeros, end)
                .map_err(io_error("writing", &active.path))?;
            active.written_to = zero_to;
        }
        Ok(())
    }
}
