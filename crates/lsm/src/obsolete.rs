//! Files that nobody needs any more, until they are removed.
//!
//! Whoever drops the last reference to a file only puts its path here: it may hold latches, and removing can
//! take long. The files go with the next flush, compaction or ingestion, and when the flush thread looks
//! again, so that a full disk gets their space back although nothing can be written. A file that cannot be
//! removed stays here and is tried again; what is left when the engine ends is removed by the next opening.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use weft_base::Disk;

use crate::sync::Mutex;

/// See the file's head.
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

    /// These files may go. Does nothing with the disk.
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
