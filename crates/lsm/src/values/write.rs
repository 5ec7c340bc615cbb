//! Writes a value file: takes values, returns pointers.

use std::path::{Path, PathBuf};

use weft_base::{Disk, DiskFile, OpenMode, SyncSite};

use super::format::{Footer, Pointer, put_record, values_name};
use crate::error::{LsmError, io_error};

/// Sync of a value file's bytes, before its name counts.
pub(crate) const SYNC_VALUES: SyncSite = SyncSite("lsm.values");

/// Appended bytes are written from this size on.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes after which what was written is sent on to the device, as with tables.
const SEND_BYTES: u64 = 8 << 20;

/// Writes one value file. If it is dropped before [`ValueWriter::keep`] it removes the file: nobody knows of
/// it.
pub(crate) struct ValueWriter<'a> {
    disk: &'a dyn Disk,
    file: Box<dyn DiskFile>,
    path: PathBuf,
    number: u64,
    buffer: Vec<u8>,
    /// Bytes before those in the buffer.
    written: u64,
    /// The system has been asked to write up to here.
    sent: u64,
    record_count: u64,
    is_kept: bool,
}

impl<'a> ValueWriter<'a> {
    /// Makes the file.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn create(disk: &'a dyn Disk, dir: &Path, number: u64) -> Result<Self, LsmError> {
        let path = dir.join(values_name(number));
        let file = disk
            .open(&path, OpenMode::CreateNew)
            .map_err(io_error("creating", &path))?;
        Ok(Self {
            disk,
            file,
            path,
            number,
            buffer: Vec::new(),
            written: 0,
            sent: 0,
            record_count: 0,
            is_kept: false,
        })
    }

    /// Bytes of records so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Number of the file.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Appends the value of a key (as inside the engine); the pointer is valid once the file is finished.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<Pointer, LsmError> {
        let offset = self.bytes();
        let crc = put_record(&mut self.buffer, key, value);
        self.record_count += 1;
        if self.buffer.len() >= WRITE_BYTES {
            self.write_out()?;
        }
        Ok(Pointer {
            file: self.number,
            offset,
            value_bytes: value.len() as u32,
            crc,
        })
    }

    fn write_out(&mut self) -> Result<(), LsmError> {
        self.file
            .write_at(&self.buffer, self.written)
            .map_err(io_error("writing", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        let waiting = self.written - self.sent;
        if waiting >= SEND_BYTES {
            self.file
                .begin_writing_out(self.sent, waiting)
                .map_err(io_error("writing", &self.path))?;
            self.sent = self.written;
        }
        Ok(())
    }

    /// Writes the footer, syncs the file and returns its length. Its name is not durable yet, and it is
    /// still removed unless it is kept.
    pub(crate) fn finish(&mut self) -> Result<u64, LsmError> {
        let footer = Footer {
            file_number: self.number,
            record_count: self.record_count,
            records_bytes: self.bytes(),
        };
        self.buffer.extend_from_slice(&footer.encode());
        self.write_out()?;
        self.file
            .sync(SYNC_VALUES)
            .map_err(io_error("syncing", &self.path))?;
        Ok(self.written)
    }

    /// The caller owns the file from now on.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        std::mem::take(&mut self.path)
    }
}

impl Drop for ValueWriter<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            // What stays is removed by the next opening.
            let _ = self.disk.remove(&self.path);
        }
    }
}
