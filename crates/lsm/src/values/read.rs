//! Reads values by their pointers, and tracks which value files are still needed.
//!
//! Tables share a [`ValueFile`] for each file that they list. It is marked obsolete when no table of the
//! newest version lists it any more, and is released when the last table that lists it is dropped: readers of
//! older versions keep theirs (`obsolete.rs` says when it is removed). A file's handle is opened when first
//! needed; at most [`HANDLES_MAX`] are open, beyond that the oldest is closed.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use weft_base::{Disk, DiskFile, OpenMode};

use super::format::{Pointer, read_record, values_name};
use crate::error::{CorruptKind, LsmError, corrupt, io_error};
use crate::obsolete::Obsolete;

/// Handles of value files that are open at the same time.
const HANDLES_MAX: usize = 256;

/// Where value files lie, and what all of them share.
pub(crate) struct ValueFiles {
    disk: Arc<dyn Disk>,
    pub dir: PathBuf,
    /// Files that some table lists.
    shared: Mutex<HashMap<u64, Weak<ValueFile>>>,
    /// Files with an open handle, in the order in which these were opened.
    open: Mutex<VecDeque<Weak<ValueFile>>>,
    obsolete: Arc<Obsolete>,
}

impl ValueFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, obsolete: Arc<Obsolete>) -> Self {
        Self {
            disk,
            dir,
            shared: Mutex::default(),
            open: Mutex::default(),
            obsolete,
        }
    }

    /// The file with this number, shared by all users.
    pub(crate) fn share(self: &Arc<Self>, number: u64) -> Arc<ValueFile> {
        let mut shared = self.shared.lock();
        let known = shared.get(&number).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let file = Arc::new(ValueFile {
                number,
                files: Arc::clone(self),
                handle: Mutex::new(None),
                is_obsolete: AtomicBool::new(false),
            });
            shared.insert(number, Arc::downgrade(&file));
            file
        })
    }

    /// Registers an opened handle, and closes others if there are too many.
    fn opened(&self, file: &Arc<ValueFile>) {
        let mut open = self.open.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push_back(Arc::downgrade(file));
        while open.len() > HANDLES_MAX {
            if let Some(first) = open.pop_front().and_then(|first| first.upgrade()) {
                *first.handle.lock() = None;
            }
        }
    }
}

/// A value file that some table lists.
pub(crate) struct ValueFile {
    number: u64,
    files: Arc<ValueFiles>,
    handle: Mutex<Option<Arc<dyn DiskFile>>>,
    is_obsolete: AtomicBool,
}

impl ValueFile {
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn name(&self) -> String {
        values_name(self.number)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.files.dir.join(self.name())
    }

    /// The file may be removed when the last table that lists it is gone.
    pub(crate) fn set_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Relaxed);
    }

    /// The open file.
    pub(super) fn handle(self: &Arc<Self>) -> Result<Arc<dyn DiskFile>, LsmError> {
        let mut place = self.handle.lock();
        if let Some(handle) = &*place {
            return Ok(Arc::clone(handle));
        }
        let path = self.path();
        let file = match self.files.disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(corrupt(&self.name(), 0, CorruptKind::File, "the file is missing"));
            }
            other => other.map_err(io_error("opening", &path))?,
        };
        let handle: Arc<dyn DiskFile> = Arc::from(file);
        *place = Some(Arc::clone(&handle));
        drop(place);
        self.files.opened(self);
        Ok(handle)
    }

    /// The value of a key to which a pointer into this file leads. Reads the record and nothing else.
    ///
    /// # Errors
    /// The disk's; a missing file; bytes that are not the record of this key and checksum.
    pub(crate) fn read(self: &Arc<Self>, key: &[u8], pointer: &Pointer) -> Result<Bytes, LsmError> {
        let handle = self.handle()?;
        let mut record = vec![0; pointer.record_bytes(key.len()) as usize];
        let bad = |reason: &str| corrupt(&self.name(), pointer.offset, CorruptKind::Value, reason);
        match handle.read_exact_at(&mut record, pointer.offset) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(bad("the file ends before the record does"));
            }
            other => other.map_err(io_error("reading", Path::new(&self.name())))?,
        }
        let (crc, its_key, value) = read_record(&Bytes::from(record)).map_err(|error| bad(error.reason))?;
        if crc != pointer.crc || *its_key != *key {
            return Err(bad("a whole record, but not the one that the pointer names"));
        }
        Ok(value)
    }
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        let mut shared = self.files.shared.lock();
        if shared
            .get(&self.number)
            .is_some_and(|file| file.strong_count() == 0)
        {
            shared.remove(&self.number);
        }
        drop(shared);
        if self.is_obsolete.load(Ordering::Relaxed) {
            self.files.obsolete.add([self.path()]);
        }
    }
}

impl std::fmt::Debug for ValueFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueFile({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ValueWriter;
    use super::*;
    use crate::fuzzing::dir;
    use weft_base::SimDisk;

    #[test]
    fn handles_are_bounded_and_reopened() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        disk.create_dir_all(dir()).unwrap();
        let obsolete = Arc::new(Obsolete::new(Arc::clone(&disk)));
        let files = Arc::new(ValueFiles::new(Arc::clone(&disk), dir().to_owned(), obsolete));
        let mut all = Vec::new();
        for number in 0..HANDLES_MAX as u64 + 20 {
            let mut writer = ValueWriter::create(&*disk, dir(), number).unwrap();
            let pointer = writer.add(b"key", &number.to_be_bytes()).unwrap();
            writer.finish().unwrap();
            writer.keep();
            all.push((files.share(number), pointer));
        }
        for _ in 0..2 {
            for (file, pointer) in &all {
                assert_eq!(
                    file.read(b"key", pointer).unwrap(),
                    file.number().to_be_bytes()[..]
                );
            }
            let open = all.iter().filter(|(file, _)| file.handle.lock().is_some());
            assert_eq!(
                (open.count(), files.open.lock().len()),
                (HANDLES_MAX, HANDLES_MAX)
            );
        }
        let (file, pointer) = &all[0];
        assert!(file.read(b"kex", pointer).is_err(), "another key's pointer");
        let beyond = Pointer {
            offset: 1 << 40,
            ..*pointer
        };
        assert!(file.read(b"key", &beyond).unwrap_err().is_corruption());
    }

    #[test]
    fn an_abandoned_writer_leaves_no_file() {
        let disk = SimDisk::new(1);
        disk.create_dir_all(dir()).unwrap();
        let mut writer = ValueWriter::create(&disk, dir(), 1).unwrap();
        writer.add(b"key", b"value").unwrap();
        writer.finish().unwrap();
        drop(writer);
        assert!(disk.list(dir()).unwrap().is_empty());
    }
}
