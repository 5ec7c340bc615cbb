//! Scans a value file from beginning to end: for checks, and for collection.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::DiskFile;

use super::ValueFile;
use super::format::{FOOTER_BYTES, Footer, Pointer, RECORD_HEAD_BYTES, RecordHead, read_record};
use crate::error::{CorruptKind, LsmError, corrupt, io_error};

/// Bytes that are read at once, if no record is longer.
const READ_BYTES: usize = 1 << 20;

/// Iterates over the records of a file in order.
pub(crate) struct ValueScan {
    file: Arc<ValueFile>,
    handle: Arc<dyn DiskFile>,
    footer: Footer,
    place: ScanPosition,
    /// Bytes of the file from `buffer_at` on.
    buffer: Bytes,
    buffer_at: u64,
}

/// The position of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ScanPosition {
    /// Where the next record begins.
    pub offset: u64,
    /// Records before it.
    record_count: u64,
}

/// A record.
pub(crate) struct Scanned {
    /// As inside the engine.
    pub key: Bytes,
    pub value: Bytes,
    /// The pointer to it.
    pub pointer: Pointer,
}

impl ValueScan {
    /// Reads the footer. `file_bytes` is what tables say of the file.
    ///
    /// # Errors
    /// The disk's; a missing file, one of another length, a bad footer.
    pub(crate) fn begin(file: &Arc<ValueFile>, file_bytes: u64) -> Result<Self, LsmError> {
        let handle = file.handle()?;
        let name = file.name();
        let found = handle.len().map_err(io_error("reading", &file.path()))?;
        if found != file_bytes || found < FOOTER_BYTES as u64 {
            let reason = format!("{found} bytes where {file_bytes} were written");
            return Err(corrupt(&name, found, CorruptKind::File, reason));
        }
        let footer_at = file_bytes - FOOTER_BYTES as u64;
        let mut bytes = [0; FOOTER_BYTES];
        handle
            .read_exact_at(&mut bytes, footer_at)
            .map_err(io_error("reading", &file.path()))?;
        let bad = |reason: &str| corrupt(&name, footer_at, CorruptKind::Footer, reason);
        let footer = Footer::decode(&bytes, file_bytes).map_err(|error| bad(error.reason))?;
        if footer.file_number != file.number() {
            return Err(bad("the values belong to another file"));
        }
        Ok(Self {
            file: Arc::clone(file),
            handle,
            footer,
            place: ScanPosition::default(),
            buffer: Bytes::new(),
            buffer_at: 0,
        })
    }

    /// The current position.
    pub(crate) const fn place(&self) -> ScanPosition {
        self.place
    }

    /// Continues a scan of the same file at this position.
    pub(crate) const fn go_to(&mut self, place: ScanPosition) {
        self.place = place;
    }

    /// The next record; `None` after the last one. After an error about a record the scan continues after it
    /// if its length is plausible, otherwise it is at the end.
    ///
    /// # Errors
    /// The disk's; a bad record; fewer or more of them than the footer names.
    pub(crate) fn next(&mut self) -> Result<Option<Scanned>, LsmError> {
        let at = self.place.offset;
        let name = self.file.name();
        let bad = |reason: &str| corrupt(&name, at, CorruptKind::Value, reason);
        if at >= self.footer.records_bytes {
            if at == self.footer.records_bytes && self.place.record_count != self.footer.record_count {
                self.place.record_count = self.footer.record_count;
                let reason = "the footer names another number of records";
                return Err(corrupt(&name, at, CorruptKind::Footer, reason));
            }
            return Ok(None);
        }
        // After any error: stop, unless the record's length turns out to be plausible.
        self.place.offset = u64::MAX;
        let left = self.footer.records_bytes - at;
        if left < RECORD_HEAD_BYTES as u64 {
            return Err(bad("the records end in the middle of one"));
        }
        let head = self.read(at, RECORD_HEAD_BYTES, left)?;
        let head = RecordHead::read(&head).map_err(|error| bad(error.reason))?;
        if head.record_bytes() as u64 > left {
            return Err(bad("the record reaches beyond the end"));
        }
        let record = self.read(at, head.record_bytes(), left)?;
        self.place.offset = at + record.len() as u64;
        self.place.record_count += 1;
        let (crc, key, value) = read_record(&record).map_err(|error| bad(error.reason))?;
        Ok(Some(Scanned {
            pointer: Pointer {
                file: self.file.number(),
                offset: at,
                value_bytes: value.len() as u32,
                crc,
            },
            key,
            value,
        }))
    }

    /// `bytes` bytes from `at` on, of which there are `left` before the footer.
    fn read(&mut self, at: u64, bytes: usize, left: u64) -> Result<Bytes, LsmError> {
        let skipped = at
            .checked_sub(self.buffer_at)
            .map_or(usize::MAX, |skip| skip as usize);
        let inside = |buffer: &Bytes| skipped <= buffer.len() && bytes <= buffer.len() - skipped;
        if inside(&self.buffer) {
            return Ok(self.buffer.slice(skipped..skipped + bytes));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX);
        let mut buffer = vec![0; bytes.max(READ_BYTES).min(most)];
        self.handle
            .read_exact_at(&mut buffer, at)
            .map_err(io_error("reading", &self.file.path()))?;
        self.buffer = Bytes::from(buffer);
        self.buffer_at = at;
        Ok(self.buffer.slice(..bytes))
    }
}
