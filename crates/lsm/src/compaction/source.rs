//! What the tasks of a compaction read: blocks of its input tables, into memory that is used again from
//! task to task.
//!
//! Fresh memory costs as much as reading into it: the system has to find, clear and map every page. A
//! buffer comes back when the last block of its task is dropped, wherever that happens, and goes for good
//! with the compaction.
//!
//! A table of a level whose tables go past the page cache ([`TableIo::Direct`]) is read past it, too,
//! through a handle of the compaction's own: what lookups left in the cache stays there, and nothing is
//! added.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use weft_base::{AlignedBuffer, Disk, DiskFile, OpenMode, range_around, read_around};

use crate::error::{LsmError, io_error};
use crate::options::LevelOptions;
use crate::table::{IoCounts, Opened, Table, TableIo};

/// The input tables of a compaction, to be read block range by block range.
pub(super) struct Source<'a> {
    /// Handles past the cache, by the tables' numbers; the other tables are read through it.
    direct: BTreeMap<u64, Box<dyn DiskFile>>,
    buffers: ReadBuffers,
    counts: &'a IoCounts,
}

impl<'a> Source<'a> {
    /// Opens the tables that are to be read directly.
    ///
    /// # Errors
    /// The disk's, by file.
    pub(super) fn open<'t>(
        tables: impl Iterator<Item = &'t Arc<Table>>,
        disk: &dyn Disk,
        levels: &[LevelOptions],
        counts: &'a IoCounts,
    ) -> Result<Self, LsmError> {
        let mut direct = BTreeMap::new();
        for table in tables {
            let io = levels.get(table.meta().level).map(|level| level.io);
            if io != Some(TableIo::Direct) {
                continue;
            }
            let path = table.path();
            let file = disk.open(&path, OpenMode::Read);
            let file = file.map_err(io_error("opening", &path))?;
            let is_direct = counts.set_direct(TableIo::Direct, &*file);
            if is_direct.map_err(io_error("opening", &path))? {
                direct.insert(table.number(), file);
            }
        }
        Ok(Self {
            direct,
            buffers: ReadBuffers::default(),
            counts,
        })
    }

    /// Bytes of a table as they lie in its file.
    ///
    /// # Errors
    /// The disk's, by file.
    pub(super) fn read(
        &self,
        table: &Table,
        opened: &Opened,
        offset: u64,
        bytes: usize,
    ) -> Result<Bytes, LsmError> {
        let Some(file) = self.direct.get(&table.number()) else {
            let read = |memory: &mut AlignedBuffer| {
                let out = memory.bytes_mut().get_mut(..bytes).unwrap_or_default();
                opened.read_into(offset, out)?;
                Ok(0..bytes)
            };
            return self.buffers.filled(bytes, read);
        };
        let around = range_around(offset, bytes);
        let around_bytes = (around.end - around.start) as usize;
        let read = |memory: &mut AlignedBuffer| {
            let found = read_around(&**file, memory, offset, bytes);
            found.map_err(io_error("reading", Path::new(opened.name())))
        };
        let stored = self.buffers.filled(around_bytes, read)?;
        let read_bytes = &self.counts.read_bytes;
        read_bytes.fetch_add(around_bytes as u64, Ordering::Relaxed);
        Ok(stored)
    }
}

/// Buffers that wait to be used again. There are never more than were in use at a time.
#[derive(Default)]
struct ReadBuffers {
    free: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl ReadBuffers {
    /// A buffer of so many bytes at least, filled by `fill`, which says which part of it counts.
    ///
    /// # Errors
    /// What `fill` says.
    fn filled(
        &self,
        bytes: usize,
        fill: impl FnOnce(&mut AlignedBuffer) -> Result<Range<usize>, LsmError>,
    ) -> Result<Bytes, LsmError> {
        let mut memory = self.free.lock().pop().unwrap_or_default();
        if memory.len() < bytes {
            // What was there need not be kept.
            memory = AlignedBuffer::zeroed(bytes.next_power_of_two());
        }
        let part = fill(&mut memory)?;
        Ok(Bytes::from_owner(Lent {
            memory,
            part,
            home: Arc::downgrade(&self.free),
        }))
    }
}

/// A buffer in use.
struct Lent {
    memory: AlignedBuffer,
    part: Range<usize>,
    home: Weak<Mutex<Vec<AlignedBuffer>>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes().get(self.part.clone()).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.lock().push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(buffers: &ReadBuffers, bytes: usize, with: u8) -> Bytes {
        let fill = |memory: &mut AlignedBuffer| {
            memory.bytes_mut().fill(with);
            Ok(0..bytes)
        };
        buffers.filled(bytes, fill).unwrap()
    }

    #[test]
    fn a_buffer_is_used_again_only_when_nobody_has_it() {
        let buffers = ReadBuffers::default();
        let first = filled(&buffers, 10_000, 1);
        let part = first.slice(10..20);
        let place = first.as_ptr();
        drop(first);
        let second = filled(&buffers, 10_000, 2);
        assert_ne!(second.as_ptr(), place, "a part of it is still there");
        assert_eq!(part, [1; 10][..]);
        drop(part);
        let third = filled(&buffers, 5000, 3);
        assert_eq!((third.as_ptr(), third.len()), (place, 5000));
        assert_eq!(second, [2; 10_000][..]);
        drop((second, third));
        assert_eq!(buffers.free.lock().len(), 2);
        let long = filled(&buffers, 100_000, 4);
        assert_eq!((long.len(), buffers.free.lock().len()), (100_000, 1));
        drop(buffers);
        assert_eq!(long, vec![4; 100_000], "and outlives the compaction");
    }

    #[test]
    fn an_error_is_handed_on() {
        let failed = ReadBuffers::default().filled(10, |_| Err(LsmError::Closed));
        assert!(matches!(failed, Err(LsmError::Closed)));
    }
}
