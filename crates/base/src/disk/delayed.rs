//! A disk that waits before it reads or syncs: for tests of what a slow or stalled disk holds up, and for
//! measurements with a device that this machine does not have.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DirLock, Disk, DiskFile, OpenMode, SyncSite};

/// What is about to be done with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayedCall {
    /// [`DiskFile::read_at`].
    Read,
    /// [`DiskFile::sync`].
    Sync,
}

/// Returns when the call may go on.
type Delay = dyn Fn(DelayedCall, &Path) + Send + Sync;

/// Another disk whose reads and syncs wait first, on their callers' threads.
pub struct DelayedDisk {
    disk: Arc<dyn Disk>,
    delay: Arc<Delay>,
}

impl DelayedDisk {
    /// `delay` gets each call with its file's path at the opening, and returns when the call may go on.
    pub fn new(disk: Arc<dyn Disk>, delay: impl Fn(DelayedCall, &Path) + Send + Sync + 'static) -> Self {
        let delay = Arc::new(delay);
        Self { disk, delay }
    }
}

impl Disk for DelayedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(DelayedFile {
            file: self.disk.open(path, mode)?,
            path: path.to_owned(),
            delay: Arc::clone(&self.delay),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn list_dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list_dirs(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir_all(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()> {
        self.disk.sync_dir(dir, site)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        self.disk.lock_dir(dir)
    }
}

struct DelayedFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    delay: Arc<Delay>,
}

impl DiskFile for DelayedFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.delay)(DelayedCall::Read, &self.path);
        self.file.read_at(out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn write_parts_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.file.write_parts_at(parts, offset)
    }

    fn sync(&self, site: SyncSite) -> io::Result<()> {
        (self.delay)(DelayedCall::Sync, &self.path);
        self.file.sync(site)
    }

    fn begin_writing_out(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.file.begin_writing_out(offset, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.file.forget_cached()
    }

    fn set_direct(&self) -> io::Result<bool> {
        self.file.set_direct()
    }

    fn set_buffered(&self) -> io::Result<()> {
        self.file.set_buffered()
    }
}
