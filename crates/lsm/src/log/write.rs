//! Writes one log file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weft_base::{Disk, DiskFile, OpenMode, SyncSite};
use weft_ops::key::SeqNo;

use super::{Record, SECTOR_BYTES, log_name};
use crate::error::{LsmError, io_error};

/// Sync of records, for everybody who waits.
pub(crate) const SYNC_LOG: SyncSite = SyncSite("lsm.log");
/// Sync of an earlier file, before records of a later one are called durable.
pub(crate) const SYNC_LOG_OLDER: SyncSite = SyncSite("lsm.log.older");
/// Sync of a new file's name.
pub(crate) const SYNC_LOG_DIR: SyncSite = SyncSite("lsm.log.dir");

/// What a record contains besides its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub first: SeqNo,
    pub after: SeqNo,
    pub count: u32,
    pub durable: SeqNo,
}

/// A log file that is written to.
pub(crate) struct LogFile {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    number: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl LogFile {
    /// Makes a file and its name durable.
    pub(crate) fn create(disk: &dyn Disk, dir: &Path, number: u64) -> Result<Self, LsmError> {
        let path = dir.join(log_name(number));
        let file = disk
            .open(&path, OpenMode::CreateNew)
            .map_err(io_error("creating", &path))?;
        if let Err(error) = disk.sync_dir(dir, SYNC_LOG_DIR) {
            // Nobody knows of it; do not leave a name in the way of the next attempt.
            let _ = disk.remove(&path);
            return Err(io_error("syncing", dir)(error));
        }
        Ok(Self {
            file: Arc::from(file),
            path,
            number,
            offset: 0,
            buffer: Vec::new(),
        })
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.offset
    }

    /// Appends a record. After an error the state of the file's end is unknown.
    pub(crate) fn append(&mut self, appended: &Appended, payload: &[u8]) -> Result<(), LsmError> {
        self.buffer.clear();
        let Appended {
            first,
            after,
            count,
            durable,
        } = *appended;
        Record {
            log_number: self.number,
            first,
            after,
            count,
            durable,
            payload,
        }
        .encode(&mut self.buffer);
        self.file
            .write_at(&self.buffer, self.offset)
            .map_err(io_error("writing", &self.path))?;
        self.offset += self.buffer.len() as u64;
        Ok(())
    }

    /// The file and its path, to be synced without the writer's latch. Later records start in a new sector.
    pub(crate) fn begin_sync(&mut self) -> (Arc<dyn DiskFile>, PathBuf) {
        self.offset = self.offset.next_multiple_of(SECTOR_BYTES as u64);
        (Arc::clone(&self.file), self.path.clone())
    }
}
