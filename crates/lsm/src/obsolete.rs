//! Obsolete files, until they are removed.
//!
//! Dropping the last reference to a file only puts its path here, since the thread may hold latches and
//! removing can take long. The files are removed by the next flush, compaction or ingestion, and periodically
//! by the flush thread, so that a full disk gets their space back although nothing can be written. A file
//! that cannot be removed stays here and is retried; what is left when the engine closes is removed by the
//! next opening.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use weft_base::Disk;

use crate::sync::Mutex;

/// See the module's head.
pub(crate) struct Obsolete {
    disk: Arc<dyn Disk>,
    paths: Mutex<Vec<PathBuf>>,
}

impl Obsolete {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            paths: Mutex::default(),
        }
    }

    /// Adds obsolete files. Does not access the disk.
    pub(crate) fn add(&self, paths: impl IntoIterator<Item = PathBuf>) {
        self.paths.lock().extend(paths);
    }

    /// Files that are not removed yet.
    pub(crate) fn len(&self) -> usize {
        self.paths.lock().len()
    }

    /// Removes what can be removed now.
    pub(crate) fn remove_all(&self) {
        let mut paths = std::mem::take(&mut *self.paths.lock());
        paths.retain(|path| match self.disk.remove(path) {
            Ok(()) => false,
            Err(error) => error.kind() != ErrorKind::NotFound,
        });
        self.add(paths);
    }
}
