//! Writes the bytes of a table to its file: through the system's page cache, or directly.
//!
//! Through the cache ([`TableIo::Buffered`]) parts are kept until there are enough for one large gathering
//! write, which the system copies. Directly ([`TableIo::Direct`]) they are collected in an aligned buffer, in
//! the processor's cache, from which the device takes them. If a file system refuses direct access, the cache
//! is used, and that is counted ([`IoCounts::refused_files`]).

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use weft_base::{DirectWriter, Disk, DiskFile, OpenMode, SyncSite};

use crate::error::{LsmError, io_error};

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// How many bytes are written through the cache before the system is asked to write them to the device. Left
/// alone it collects many times as much, and syncs of other files have to wait for it.
const SEND_BYTES: u64 = 8 << 20;

/// How tables are written, and read by compactions and bulk scans. Lookups and other iterators always read
/// through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableIo {
    /// Through the page cache: recently written data can be read from it.
    #[default]
    Buffered,
    /// Past the cache where the file system allows it, with less processor time; elsewhere as `Buffered`, and
    /// counted ([`crate::LsmStats::direct_refused_files`]).
    Direct,
}

/// How much table I/O bypassed the page cache; readable without a latch of the engine.
#[derive(Debug, Default)]
pub struct IoCounts {
    pub(crate) written_bytes: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    /// Files that should have been written or read directly, and could not be.
    pub(crate) refused_files: AtomicU64,
}

impl IoCounts {
    /// Files so far that should have bypassed the cache but did not, because their file system does not
    /// support it or no more files could be open.
    #[must_use]
    pub fn refused_files(&self) -> u64 {
        self.refused_files.load(Ordering::Relaxed)
    }

    /// Makes a handle direct if requested; returns whether it is.
    pub(crate) fn set_direct(&self, io: TableIo, file: &dyn DiskFile) -> std::io::Result<bool> {
        if io == TableIo::Buffered {
            return Ok(false);
        }
        let is_direct = file.set_direct()?;
        if !is_direct {
            self.refused_files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_direct)
    }
}

/// Where and how tables are written.
#[derive(Clone, Copy)]
pub(crate) struct TableSink<'a> {
    pub disk: &'a dyn Disk,
    pub io: TableIo,
    pub counts: &'a Arc<IoCounts>,
}

/// Parts to be written through the cache.
struct Parts {
    file: Box<dyn DiskFile>,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    /// Bytes before that.
    written: u64,
    /// The system has been asked to write up to here.
    sent: u64,
}

enum WriteMode {
    Cached(Parts),
    Direct(DirectWriter),
}

/// A file that is written front to back.
pub(super) struct TableFileWriter {
    mode: WriteMode,
    path: PathBuf,
    counts: Arc<IoCounts>,
}

impl TableFileWriter {
    /// Makes the file.
    pub(super) fn create(sink: &TableSink<'_>, path: PathBuf) -> Result<Self, LsmError> {
        let file = sink
            .disk
            .open(&path, OpenMode::CreateNew)
            .map_err(io_error("creating", &path))?;
        let is_direct = sink
            .counts
            .set_direct(sink.io, &*file)
            .map_err(io_error("creating", &path))?;
        let mode = if is_direct {
            WriteMode::Direct(DirectWriter::new(file, WRITE_BYTES))
        } else {
            WriteMode::Cached(Parts {
                file,
                waiting: Vec::new(),
                waiting_bytes: 0,
                written: 0,
                sent: 0,
            })
        };
        Ok(Self {
            mode,
            path,
            counts: Arc::clone(sink.counts),
        })
    }

    /// Bytes so far.
    pub(super) const fn bytes(&self) -> u64 {
        match &self.mode {
            WriteMode::Cached(parts) => parts.written + parts.waiting_bytes as u64,
            WriteMode::Direct(writer) => writer.len(),
        }
    }

    /// Appends a part, which is written later.
    pub(super) fn append(&mut self, part: Bytes) -> Result<(), LsmError> {
        let path = &self.path;
        match &mut self.mode {
            WriteMode::Direct(writer) => writer.append(&part).map_err(io_error("writing", path)),
            WriteMode::Cached(parts) => {
                parts.waiting_bytes += part.len();
                parts.waiting.push(part);
                if parts.waiting_bytes < WRITE_BYTES {
                    return Ok(());
                }
                parts.write(path)?;
                parts.send(path)
            }
        }
    }

    /// Writes what is left and syncs the file. Its length in bytes.
    pub(super) fn finish(self, site: SyncSite) -> Result<u64, LsmError> {
        let path = &self.path;
        let (file, bytes) = match self.mode {
            WriteMode::Direct(writer) => {
                let written = writer.finish().map_err(io_error("writing", path))?;
                let (count, by) = if written.is_direct {
                    (&self.counts.written_bytes, written.bytes)
                } else {
                    (&self.counts.refused_files, 1)
                };
                count.fetch_add(by, Ordering::Relaxed);
                (written.file, written.bytes)
            }
            WriteMode::Cached(mut parts) => {
                parts.write(path)?;
                (parts.file, parts.written)
            }
        };
        file.sync(site).map_err(io_error("syncing", path))?;
        Ok(bytes)
    }
}

impl Parts {
    fn write(&mut self, path: &Path) -> Result<(), LsmError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let slices: Vec<IoSlice<'_>> = self.waiting.iter().map(|part| IoSlice::new(part)).collect();
        self.file
            .write_parts_at(&slices, self.written)
            .map_err(io_error("writing", path))?;
        self.written += self.waiting_bytes as u64;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    fn send(&mut self, path: &Path) -> Result<(), LsmError> {
        let unsent = self.written - self.sent;
        if unsent >= SEND_BYTES {
            self.file
                .begin_writing_out(self.sent, unsent)
                .map_err(io_error("writing", path))?;
            self.sent = self.written;
        }
        Ok(())
    }
}
