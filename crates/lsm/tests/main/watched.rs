//! A simulated disk that can be full for as long as a test wants, and says how it was read and how many
//! tables were open.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weft_base::{DirLock, Disk, DiskFile, OpenMode, SimDisk, SyncSite};

/// Clones are the same disk.
#[derive(Clone)]
pub struct WatchedDisk {
    pub sim: SimDisk,
    pub watch: Arc<Watch>,
}

#[derive(Default)]
pub struct Watch {
    /// Whatever needs space is refused; files can be removed.
    pub full: AtomicBool,
    /// The most bytes that one call has asked for.
    pub longest_read: AtomicU64,
    /// Tables that were opened to be read.
    pub opened_tables: AtomicU64,
    /// Those of them that are open: descriptors, on a real disk.
    pub open_tables: AtomicU64,
    /// The most that were open at a time.
    pub open_tables_most: AtomicU64,
}

impl Watch {
    fn table_opened(&self) {
        self.opened_tables.fetch_add(1, Ordering::Relaxed);
        let open = self.open_tables.fetch_add(1, Ordering::Relaxed) + 1;
        self.open_tables_most.fetch_max(open, Ordering::Relaxed);
    }

    fn check_space(&self) -> io::Result<()> {
        if self.full.load(Ordering::Relaxed) {
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"))
        } else {
            Ok(())
        }
    }
}

impl WatchedDisk {
    pub fn new(sim: SimDisk) -> Self {
        let watch = Arc::default();
        Self { sim, watch }
    }
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        if mode == OpenMode::CreateNew {
            self.watch.check_space()?;
        }
        let file = self.sim.open(path, mode)?;
        let is_read_table = mode == OpenMode::Read && path.extension().is_some_and(|name| name == "sst");
        if is_read_table {
            self.watch.table_opened();
        }
        Ok(Box::new(WatchedFile {
            file,
            watch: Arc::clone(&self.watch),
            is_read_table,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.sim.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.sim.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.sim.list(dir)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.sim.create_dir_all(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.sim.exists(path)
    }

    fn sync_dir(&self, dir: &Path, site: SyncSite) -> io::Result<()> {
        self.sim.sync_dir(dir, site)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn DirLock>> {
        self.sim.lock_dir(dir)
    }
}

struct WatchedFile {
    file: Box<dyn DiskFile>,
    watch: Arc<Watch>,
    is_read_table: bool,
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        if self.is_read_table {
            self.watch.open_tables.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl DiskFile for WatchedFile {
    fn set_direct(&self) -> io::Result<bool> {
        self.file.set_direct()
    }

    fn set_buffered(&self) -> io::Result<()> {
        self.file.set_buffered()
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.watch
            .longest_read
            .fetch_max(out.len() as u64, Ordering::Relaxed);
        self.file.read_at(out, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watch.check_space()?;
        self.file.write_at(bytes, offset)
    }

    fn sync(&self, site: SyncSite) -> io::Result<()> {
        self.file.sync(site)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.watch.check_space()?;
        self.file.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.watch.check_space()?;
        self.file.allocate(len)
    }
}
