//! Memtables: writes that are not in a table yet.
//!
//! Entries are in a skiplist, range tombstones in a short list beside it. A memtable grows until it is
//! frozen; then it is flushed to a table of level 0 and dropped when the last reader releases it. Entries and
//! range tombstones both count towards its size: the log is bound to its memtable, so whatever is logged must
//! bring the freeze closer.

mod skiplist;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::RangeTombstone;

use crate::batch::{Operation, keep};
pub(crate) use skiplist::PagePool;
use skiplist::{NodeRef, SkipList};

/// A memtable with this many range tombstones is full, whatever its size: every lookup scans all of them.
const RANGE_TOMBSTONES_MAX: usize = 8192;

/// Sorted writes in memory. Any number of readers, one writer at a time.
pub(crate) struct Memtable {
    list: SkipList,
    /// Number of the log file that has the same writes.
    log_number: u64,
    entry_count: AtomicUsize,
    /// Bytes of keys and values.
    data_bytes: AtomicUsize,
    /// The highest sequence number in it, or what stood before it if it is empty.
    last_seqno: AtomicU64,
    tombstone_count: AtomicUsize,
    /// Memory of the range tombstones and their keys.
    tombstone_bytes: AtomicUsize,
    tombstones: RwLock<Arc<Vec<RangeTombstone>>>,
}

impl Memtable {
    /// An empty one, for writes behind `last_seqno`.
    pub(crate) fn new(log_number: u64, last_seqno: SeqNo, pool: &Arc<PagePool>) -> Self {
        Self {
            list: SkipList::new(log_number, Arc::clone(pool)),
            log_number,
            entry_count: AtomicUsize::new(0),
            data_bytes: AtomicUsize::new(0),
            last_seqno: AtomicU64::new(last_seqno.0),
            tombstone_count: AtomicUsize::new(0),
            tombstone_bytes: AtomicUsize::new(0),
            tombstones: RwLock::new(Arc::default()),
        }
    }

    pub(crate) const fn log_number(&self) -> u64 {
        self.log_number
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entry_count.load(Ordering::Relaxed) == 0 && self.tombstone_count.load(Ordering::Relaxed) == 0
    }

    /// Whether it should be frozen, given this limit.
    pub(crate) fn is_full(&self, bytes_max: usize) -> bool {
        let (used, tombstones) = (self.used_bytes(), self.tombstone_count.load(Ordering::Relaxed));
        // Memory is taken in growing chunks: a chunk counts once a good part of it is used.
        used >= bytes_max
            || (self.memory_bytes() >= bytes_max && used >= bytes_max / 2)
            || tombstones >= RANGE_TOMBSTONES_MAX
    }

    /// Memory that entries and range tombstones use, in bytes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.list.used_bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Memory taken, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.allocated_bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values.
    pub(crate) fn data_bytes(&self) -> usize {
        self.data_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn last_seqno(&self) -> SeqNo {
        SeqNo(self.last_seqno.load(Ordering::Relaxed))
    }

    /// Applies one operation of a batch.
    pub(crate) fn apply(&self, seqno: SeqNo, operation: Operation<'_>) {
        let bytes = match operation {
            Operation::Delete { key } => {
                self.list
                    .insert(key, Stamp::new(seqno, EntryKind::Tombstone), b"");
                key.len()
            }
            Operation::Put { key, value } => {
                self.list.insert(key, Stamp::new(seqno, EntryKind::Value), value);
                key.len() + value.len()
            }
            Operation::DeleteRange { start, end } => {
                let tombstone = RangeTombstone {
                    start: keep(start),
                    end: keep(end),
                    seqno,
                };
                let mut tombstones = self.tombstones.write();
                Arc::make_mut(&mut tombstones).push(tombstone);
                let bytes = start.len() + end.len();
                self.tombstone_bytes
                    .fetch_add(size_of::<RangeTombstone>() + bytes, Ordering::Relaxed);
                self.tombstone_count.fetch_add(1, Ordering::Release);
                bytes
            }
        };
        if !matches!(operation, Operation::DeleteRange { .. }) {
            self.entry_count.fetch_add(1, Ordering::Relaxed);
        }
        self.data_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.last_seqno.store(seqno.0, Ordering::Relaxed);
    }

    /// The range tombstones so far.
    pub(crate) fn tombstones(&self) -> Option<Arc<Vec<RangeTombstone>>> {
        if self.tombstone_count.load(Ordering::Acquire) == 0 {
            None
        } else {
            Some(Arc::clone(&self.tombstones.read()))
        }
    }

    /// The newest entry of `key` that a reader at `seqno` sees; range tombstones are not looked at.
    pub(crate) fn get(&self, key: &[u8], seqno: SeqNo) -> Option<(Stamp, &[u8])> {
        let place = self.list.seek(key, Stamp::newest_at(seqno));
        let (found, stamp, value) = self.list.at(place)?;
        (found == key).then_some((stamp, value))
    }
}

/// Walks over a memtable in both directions and keeps it alive.
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    place: NodeRef,
}

impl MemtableCursor {
    pub(crate) const fn new(memtable: Arc<Memtable>) -> Self {
        Self {
            memtable,
            place: NodeRef::NONE,
        }
    }

    pub(crate) const fn valid(&self) -> bool {
        self.place.is_some()
    }

    fn entry(&self) -> Option<(&[u8], Stamp, &[u8])> {
        self.memtable.list.at(self.place)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.entry().map_or(&[], |entry| entry.0)
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.entry().map_or(Stamp::newest_at(SeqNo(0)), |entry| entry.1)
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.entry().map_or(&[], |entry| entry.2)
    }

    pub(crate) fn first(&mut self) {
        self.place = self.memtable.list.first();
    }

    pub(crate) fn last(&mut self) {
        self.place = self.memtable.list.last();
    }

    pub(crate) fn seek(&mut self, key: &[u8], stamp: Stamp) {
        self.place = self.memtable.list.seek(key, stamp);
    }

    pub(crate) fn forward(&mut self) {
        self.place = self.memtable.list.after(self.place);
    }

    pub(crate) fn back(&mut self) {
        if let Some((key, stamp, _)) = self.memtable.list.at(self.place) {
            self.place = self.memtable.list.seek_before(key, stamp);
        }
    }
}
