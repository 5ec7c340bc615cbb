//! The bytes of a table on their way into its file: through the system's page cache, or past it.
//!
//! Through the cache ([`TableIo::Buffered`]) parts are kept until there are enough of them for one large
//! write, which takes them from where they lie; the system copies them. Past it ([`TableIo::Direct`]) they
//! are gathered in an aligned buffer, in the processor's cache, and the device takes them from there. A
//! file system that refuses direct access is written through its cache, and that is counted
//! ([`IoCounts::refused_files`]).

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use weft_base::{DirectWriter, Disk, DiskFile, OpenMode, SyncSite};

use crate::error::{LsmError, io_error};

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes after which what was written through the cache is sent on to the device. Left to itself the system
/// collects many times as much, and syncs of other files have to wait for it.
const SEND_BYTES: u64 = 8 << 20;

/// How tables are written, and read by compactions and by who reads once. Lookups and other iterators read
/// through the page cache either way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TableIo {
    /// Through the page cache: what was written is there for whoever reads it soon.
    #[default]
    Buffered,
    /// Past it, where the file system allows that, with less of the processor; elsewhere as `Buffered`, and
    /// counted ([`crate::LsmStats::direct_refused_files`]).
    Direct,
}

/// How much of an engine's tables went past the page cache, for who asks without waiting for the engine.
#[derive(Debug, Default)]
pub struct IoCounts {
    pub(crate) written_bytes: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    /// Files that were to be written or read directly, and could not be.
    pub(crate) refused_files: AtomicU64,
}

impl IoCounts {
    /// Files that were to be written or read past the cache so far, and went through it because their file
    /// system does not do it, or no more files could be open.
    #[must_use]
    pub fn refused_files(&self) -> u64 {
        self.refused_files.load(Ordering::Relaxed)
    }

    /// Makes a handle direct if it is to be; whether it is.
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

/// Parts on their way through the cache.
struct Parts {
    file: Box<dyn DiskFile>,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    /// Bytes before that.
    written: u64,
    /// Up to here the system has been asked to write.
    sent: u64,
}

enum Way {
    Cached(Parts),
    Direct(DirectWriter),
}

/// A file that is written front to back.
pub(super) struct TableOut {
    way: Way,
    path: PathBuf,
    counts: Arc<IoCounts>,
}

impl TableOut {
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
        let way = if is_direct {
            Way::Direct(DirectWriter::new(file, WRITE_BYTES))
        } else {
            Way::Cached(Parts {
                file,
                waiting: Vec::new(),
                waiting_bytes: 0,
                written: 0,
                sent: 0,
            })
        };
        Ok(Self {
            way,
            path,
            counts: Arc::clone(sink.counts),
        })
    }

    /// Bytes so far.
    pub(super) const fn bytes(&self) -> u64 {
        match &self.way {
            Way::Cached(parts) => parts.written + parts.waiting_bytes as u64,
            Way::Direct(writer) => writer.len(),
        }
    }

    /// Appends a part, which is written sooner or later.
    pub(super) fn append(&mut self, part: Bytes) -> Result<(), LsmError> {
        let path = &self.path;
        match &mut self.way {
            Way::Direct(writer) => writer.append(&part).map_err(io_error("writing", path)),
            Way::Cached(parts) => {
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
        let (file, bytes) = match self.way {
            Way::Direct(writer) => {
                let written = writer.finish().map_err(io_error("writing", path))?;
                let (count, by) = if written.is_direct {
                    (&self.counts.written_bytes, written.bytes)
                } else {
                    (&self.counts.refused_files, 1)
                };
                count.fetch_add(by, Ordering::Relaxed);
                (written.file, written.bytes)
            }
            Way::Cached(mut parts) => {
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
