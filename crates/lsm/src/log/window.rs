//! Reads a log file through a window of bounded memory, however long the file is.
//!
//! A record that is longer than the window is read completely only after its checksum was verified piece by
//! piece, so a damaged length costs no memory.

use std::path::{Path, PathBuf};

use weft_base::{Disk, DiskFile, OpenMode};
use weft_ops::{crc32c, crc32c_append};

use super::{RECORD_HEADER_BYTES, Record};
use crate::error::{LsmError, io_error};

/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Reads a log file front to back; going back is possible and costs a read.
pub(super) struct LogWindow {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    file_bytes: u64,
    /// Bytes of the file from `start` on.
    window: Vec<u8>,
    start: u64,
}

impl LogWindow {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<Self, LsmError> {
        let file = disk
            .open(path, OpenMode::Read)
            .map_err(io_error("opening", path))?;
        Ok(Self {
            file_bytes: file.len().map_err(io_error("reading", path))?,
            file,
            path: path.to_owned(),
            window: Vec::new(),
            start: 0,
        })
    }

    /// Length of the file, in bytes.
    pub(super) const fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// `count` bytes from `offset` on, or as many as the file has.
    pub(super) fn at(&mut self, offset: u64, count: usize) -> Result<&[u8], LsmError> {
        let left = self.file_bytes.saturating_sub(offset);
        let count = usize::try_from(left).map_or(count, |left| left.min(count));
        let end = offset + count as u64;
        if count > 0 && (offset < self.start || end > self.start + self.window.len() as u64) {
            let bytes = usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let bytes = bytes.max(count);
            self.window.clear();
            // A long record made it large.
            self.window.shrink_to(bytes);
            self.window.resize(bytes, 0);
            self.start = offset;
            self.file
                .read_exact_at(&mut self.window, offset)
                .map_err(io_error("reading", &self.path))?;
        }
        let from = usize::try_from(offset.wrapping_sub(self.start)).unwrap_or(usize::MAX);
        let window = self.window.get(from..).unwrap_or_default();
        Ok(window.get(..count).unwrap_or_default())
    }

    /// The record at `offset`, and its length; `None` if there is no whole one.
    pub(super) fn record(&mut self, offset: u64) -> Result<Option<(Record<'_>, usize)>, LsmError> {
        let head = self.at(offset, RECORD_HEADER_BYTES)?;
        let Some((crc, bytes)) = Record::stated(head) else {
            return Ok(None);
        };
        if bytes as u64 > self.file_bytes.saturating_sub(offset) {
            return Ok(None);
        }
        if bytes > PIECE_BYTES && self.crc(offset + 4, bytes - 4)? != crc {
            return Ok(None);
        }
        Ok(Record::parse(self.at(offset, bytes)?))
    }

    /// The checksum of `count` bytes from `offset` on.
    fn crc(&mut self, offset: u64, count: usize) -> Result<u32, LsmError> {
        let mut crc = crc32c(b"");
        let mut done = 0;
        while done < count {
            let piece = self.at(offset + done as u64, PIECE_BYTES.min(count - done))?;
            if piece.is_empty() {
                break;
            }
            crc = crc32c_append(crc, piece);
            done += piece.len();
        }
        Ok(crc)
    }
}
