//! Bulk reads: tables read once in large chunks, by compactions and by loading. The buffers are reused.
//!
//! New memory costs as much as reading into it: the system has to find, clear and map every page. A buffer is
//! returned when the last block in it is dropped, anywhere, and freed together with the reader.
//!
//! A table of a level with direct I/O ([`TableIo::Direct`]) is read directly, through a handle of its own:
//! blocks that lookups left in the cache stay there, and none are added.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use weft_base::{AlignedBuffer, DiskFile, OpenMode, is_refusal, range_around, read_around};

use super::file_writer::TableIo;
use super::read::{Opened, Table};
use crate::error::LsmError;

/// Tables that are read block range by block range, in the order of their keys.
pub(crate) struct BulkReader {
    /// Direct handles by the tables' numbers, from a table's first block to its last, so that there are at
    /// most as many as runs. `None` for a table that cannot be read directly.
    direct: RefCell<BTreeMap<u64, Option<Box<dyn DiskFile>>>>,
    buffers: ReadBuffers,
}

impl BulkReader {
    pub(crate) fn new() -> Self {
        Self {
            direct: RefCell::default(),
            buffers: ReadBuffers::default(),
        }
    }

    /// Bytes of a table as they lie in its file.
    ///
    /// # Errors
    /// The disk's, by file; `Corrupt` when the file ends before them.
    pub(crate) fn read(
        &self,
        table: &Table,
        opened: &Opened,
        offset: u64,
        bytes: usize,
    ) -> Result<Bytes, LsmError> {
        if table.io() == TableIo::Direct
            && let Some(stored) = self.read_directly(table, opened, offset, bytes)?
        {
            return Ok(stored);
        }
        self.buffers.filled(bytes, |memory| {
            let out = memory.bytes_mut().get_mut(..bytes).unwrap_or_default();
            opened.read_into(offset, out)?;
            Ok(0..bytes)
        })
    }

    /// The same directly; `None` if that is not possible, which the table counts.
    fn read_directly(
        &self,
        table: &Table,
        opened: &Opened,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<Bytes>, LsmError> {
        let files = table.files();
        let mut direct = self.direct.borrow_mut();
        let handle = match direct.entry(table.number()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // If no more files may be open, the table's own handle is used.
                let file = files.disk.open(&table.path(), OpenMode::Read).ok();
                let file = file.filter(|file| file.set_direct().unwrap_or(false));
                if file.is_none() {
                    table.refuse_direct();
                }
                place.insert(file)
            }
        };
        let Some(file) = handle else {
            return Ok(None);
        };
        let around = range_around(offset, bytes);
        let around_bytes = (around.end - around.start) as usize;
        let mut is_refused = false;
        let stored = self.buffers.filled(around_bytes, |memory| {
            match read_around(&**file, memory, offset, bytes) {
                Err(error) if is_refusal(&error) => {
                    is_refused = true;
                    Ok(0..0)
                }
                found => found.map_err(|error| opened.read_failed(offset, error)),
            }
        })?;
        if is_refused {
            *handle = None;
            table.refuse_direct();
            return Ok(None);
        }
        files
            .io
            .read_bytes
            .fetch_add(around_bytes as u64, Ordering::Relaxed);
        let last = opened.index().last();
        if last.is_some_and(|last| offset + bytes as u64 >= last.offset + u64::from(last.bytes)) {
            // A repeated request for the last block opens the table again.
            direct.remove(&table.number());
        }
        Ok(Some(stored))
    }
}

/// Buffers that are free. There are never more than were in use at a time.
#[derive(Default)]
struct ReadBuffers {
    free: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl ReadBuffers {
    /// The smallest free buffer that is long enough, or else the longest, to be replaced: runs of one
    /// compaction are read in pieces of very different lengths, and not every buffer is to become as long as
    /// the longest.
    fn take(&self, bytes: usize) -> AlignedBuffer {
        let mut free = self.free.lock();
        let fits = |buffer: &AlignedBuffer| (buffer.len() < bytes, buffer.len().abs_diff(bytes));
        let best = (0..free.len()).min_by_key(|&at| free.get(at).map(fits));
        best.map_or_else(AlignedBuffer::default, |at| free.swap_remove(at))
    }

    /// A buffer of so many bytes at least, filled by `fill`, which says which part of it counts.
    ///
    /// # Errors
    /// What `fill` says.
    fn filled(
        &self,
        bytes: usize,
        fill: impl FnOnce(&mut AlignedBuffer) -> Result<Range<usize>, LsmError>,
    ) -> Result<Bytes, LsmError> {
        let mut memory = self.take(bytes);
        if memory.len() < bytes {
            // Its contents need not be kept.
            memory = AlignedBuffer::zeroed(bytes.next_power_of_two());
        }
        let part = fill(&mut memory)?;
        Ok(Bytes::from_owner(PooledBuffer {
            memory,
            part,
            home: Arc::downgrade(&self.free),
        }))
    }
}

/// A buffer in use.
struct PooledBuffer {
    memory: AlignedBuffer,
    part: Range<usize>,
    home: Weak<Mutex<Vec<AlignedBuffer>>>,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes().get(self.part.clone()).unwrap_or_default()
    }
}

impl Drop for PooledBuffer {
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

    /// As many buffers as there are pieces, together about as long as these, whatever their order.
    #[test]
    fn buffers_do_not_all_become_as_long_as_the_longest_piece() {
        let buffers = ReadBuffers::default();
        for round in 0..50 {
            let pieces = (0..16).map(|piece| if piece == round % 16 { 3 << 20 } else { 64 << 10 });
            let held: Vec<Bytes> = pieces.map(|bytes| filled(&buffers, bytes, 1)).collect();
            assert_eq!(held.len(), 16);
        }
        let free = buffers.free.lock();
        let bytes: usize = free.iter().map(AlignedBuffer::len).sum();
        assert_eq!((free.len(), bytes), (16, (4 << 20) + 15 * (64 << 10)));
    }

    #[test]
    fn an_error_is_handed_on() {
        let failed = ReadBuffers::default().filled(10, |_| Err(LsmError::Closed));
        assert!(matches!(failed, Err(LsmError::Closed)));
    }
}
