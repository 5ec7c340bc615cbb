//! The store: all tables of one database, at the newest batch boundary and at every older one that somebody
//! still reads.
//!
//! ```text
//!   begin_batch(N) -> members write versions of batch N -> finish() -> digest
//!                                                              |
//!   snapshot() <- boundary, catalog, digest as one <------- publish(N), then collect_garbage()
//! ```
//!
//! One batch is open at a time. Readers never wait for it: they see versions up to their boundary. What
//! batch N wrote becomes visible as a whole when it is published.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weft_base::BatchId;
use weft_types::SqlError;

use crate::catalog::Catalog;
use crate::columns::{ColumnStats, Counters};
use crate::garbage::{Garbage, Moment, RowPlace};
use crate::memory::{ColdRows, PrefaultedPages, RowMemory};
use crate::snapshot::{Published, ReaderRegistry, Snapshot};
use crate::table::Schema;
use crate::writer::BatchWriter;

/// What a finished batch will make visible.
pub(crate) struct Finished {
    pub(crate) batch: BatchId,
    pub(crate) digest: u64,
    /// Set when the catalog changed.
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) superseded: Vec<RowPlace>,
    pub(crate) superseded_bytes: u64,
    /// Rows inserted, replaced and removed.
    pub(crate) writes: usize,
}

/// How often, and after which pause, a boundary between batches is looked for again.
const AT_REST_TRIES: usize = 100;
const AT_REST_PAUSE: Duration = Duration::from_micros(200);

/// Sizes, for statistics and for back-pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes of all row versions with their headers, unlinked ones included until they are freed.
    pub version_bytes: u64,
    /// Bytes of the slots that hold them, including slots that are free again.
    pub slot_bytes: u64,
    /// Bytes of the blocks that versions outside their slot take, and slots of rows that came back.
    pub block_bytes: u64,
    /// Address space taken from the system in huge pages, for rows and indexes; takes memory as it is
    /// used.
    pub huge_page_bytes: u64,
    /// The same in ordinary pages, because the system refused huge ones.
    pub ordinary_page_bytes: u64,
    /// How many of these pages were prefaulted.
    pub prefaulted_pages: PrefaultedPages,
    /// Rows whose superseded versions wait for old readers to leave.
    pub superseded_rows: usize,
    /// Unlinked versions that wait to be freed.
    pub unlinked_versions: usize,
    /// Registered readers.
    pub readers: usize,
    /// Bytes of the hash tables of all indexes.
    pub hash_index_bytes: u64,
    /// Bytes of the nodes and keys of all ordered indexes, as taken from the arena.
    pub ordered_index_bytes: u64,
    /// Entries of all ordered indexes.
    pub ordered_entries: u64,
}

/// What rows take in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowMemoryUse {
    /// Bytes of slots, blocks and the places of cold rows; what is free again but kept for later does not
    /// count.
    pub kept_bytes: u64,
    /// Bytes that are only there for readers of the time before rows left memory.
    pub left_bytes: u64,
    /// Bytes of all row versions with their headers.
    pub version_bytes: u64,
    /// Rows that are not in memory.
    pub cold_rows: u64,
    /// Rows that came back into memory since the store was made.
    pub thawed_rows: u64,
}

/// All tables of a database.
pub struct Store {
    published: Published,
    readers: ReaderRegistry,
    /// True while a batch or the collector runs.
    gate: Mutex<bool>,
    gate_opened: Condvar,
    finished: Mutex<Option<Finished>>,
    garbage: Mutex<Garbage>,
    memory: Arc<RowMemory>,
    /// The batch of the newest checkpoint that was begun or loaded.
    checkpoint_begun: AtomicU64,
    /// The batch of the newest checkpoint that is durable: a row that was not written since is in it.
    saved: AtomicU64,
    /// A damaged row was found.
    is_damaged: AtomicBool,
    columns: Counters,
    /// Where the next panic comes, for tests.
    #[cfg(any(test, feature = "faults"))]
    panic_at: Mutex<Option<PanicAt>>,
}

/// Where a store panics on request of a test.
#[cfg(any(test, feature = "faults"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicAt {
    /// In [`BatchWriter::finish`].
    Finish,
    /// In [`Store::collect_garbage`].
    Collect,
    /// Where a checkpoint writes what changed.
    Checkpoint,
}

/// The store's gate, closed: one batch, publication or collection at a time. It opens when this is dropped,
/// by a panic too.
pub(crate) struct GateGuard<'s>(&'s Store);

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        *self.0.gate.lock() = false;
        self.0.gate_opened.notify_one();
    }
}

impl Store {
    /// An empty store at boundary 0.
    pub fn new() -> Arc<Self> {
        let schema = Schema {
            catalog: Arc::new(Catalog::new()),
            tables: Arc::default(),
        };
        Arc::new(Self::with_state(BatchId(0), 0, schema, Arc::default()))
    }

    pub(crate) fn with_state(boundary: BatchId, digest: u64, schema: Schema, memory: Arc<RowMemory>) -> Self {
        Store {
            published: Published::new(boundary.0, digest, Arc::new(schema)),
            readers: ReaderRegistry::new(),
            gate: Mutex::new(false),
            gate_opened: Condvar::new(),
            finished: Mutex::new(None),
            garbage: Mutex::new(Garbage::new(&memory)),
            memory,
            // A non-empty state was loaded.
            checkpoint_begun: AtomicU64::new(boundary.0),
            saved: AtomicU64::new(0),
            is_damaged: AtomicBool::new(false),
            columns: Counters::default(),
            #[cfg(any(test, feature = "faults"))]
            panic_at: Mutex::default(),
        }
    }

    /// The newest published batch.
    pub fn boundary(&self) -> BatchId {
        BatchId(self.published.boundary())
    }

    /// The state digest at the newest boundary.
    pub fn state_digest(&self) -> u64 {
        self.published.boundary_and_digest().1
    }

    /// The lowest boundary that a reader holds; the newest boundary if there is none.
    pub fn oldest_snapshot(&self) -> BatchId {
        let boundary = self.published.boundary();
        BatchId(self.readers.oldest(boundary))
    }

    /// Opens a batch, waiting while the collector runs. `batch` is the successor of the boundary.
    ///
    /// Panics when it is not, or when a finished batch has not been published: both are bugs of the caller.
    pub fn begin_batch(&self, batch: BatchId) -> BatchWriter<'_> {
        let gate = self.close_gate();
        assert_eq!(batch.0, self.published.boundary() + 1, "batches are consecutive");
        assert!(
            self.finished.lock().is_none(),
            "the previous batch is not published"
        );
        // SAFETY: the gate is closed, so nobody else publishes.
        let schema = unsafe { self.published.schema_for_writer() };
        BatchWriter::new(self, gate, batch, schema)
    }

    /// Makes a finished batch the boundary: rows, catalog and digest become visible as one.
    ///
    /// Panics when that batch has not been finished: a bug of the caller.
    pub fn publish(&self, batch: BatchId) {
        let _gate = self.close_gate();
        let finished = self.finished.lock().take_if(|finished| finished.batch == batch);
        assert!(finished.is_some(), "only a finished batch is published");
        if let Some(Finished {
            batch,
            digest,
            schema,
            superseded,
            superseded_bytes,
            writes,
        }) = finished
        {
            let boundary = self.boundary();
            let replaced = self.published.publish(batch.0, digest, schema);
            let mut garbage = self.garbage.lock();
            garbage.superseded(batch, superseded, superseded_bytes);
            garbage.note_writes(writes);
            if let Some(replaced) = replaced {
                garbage.retire_schema(boundary, replaced);
            }
        }
    }

    /// Does up to `budget` steps of garbage collection (a step checks one chain or frees one version) and
    /// returns the steps done. Returns 0 at once if a batch is open. Any thread; a batch that is to be opened
    /// waits meanwhile.
    pub fn collect_garbage(&self, budget: usize) -> usize {
        if self.garbage.lock().is_empty() {
            return 0;
        }
        let Some(_gate) = self.try_close_gate() else {
            return 0;
        };
        #[cfg(any(test, feature = "faults"))]
        self.panic_if_asked(PanicAt::Collect);
        let boundary = self.boundary();
        let moment = Moment {
            boundary,
            oldest: BatchId(self.readers.oldest(boundary.0)),
            oldest_epoch: self.readers.oldest_epoch(self.published.epoch()),
        };
        // SAFETY: the gate is closed, so nobody publishes.
        let schema = unsafe { self.published.schema_for_writer() };
        self.garbage.lock().collect(&schema, moment, budget)
    }

    /// Whether there are versions that newer ones have superseded, and index entries that lead to these only.
    pub fn has_superseded(&self) -> bool {
        self.garbage.lock().waiting().0 > 0
    }

    /// Does the garbage collection that the newest batch pays for: more steps than its writes will cost, so
    /// garbage does not grow unless a reader keeps it. True if it did all of these steps: there may be a
    /// backlog, of versions that a reader kept until now or of a large batch.
    pub fn collect_due_garbage(&self) -> bool {
        let due = self.garbage.lock().take_due();
        due > 0 && self.collect_garbage(due) >= due
    }

    /// About how many bytes of memory stay in use because of a reader at this boundary, if there is no older
    /// one.
    pub fn bytes_kept_at(&self, boundary: BatchId) -> u64 {
        self.garbage.lock().bytes_kept_at(boundary)
    }

    /// Recomputes the state digest over all rows of a snapshot; equals [`Snapshot::digest`] unless memory
    /// is damaged. Errors: a cold row could not be read.
    pub fn verify_digest(&self, snapshot: &Snapshot) -> Result<u64, SqlError> {
        snapshot.verify_digest()
    }

    /// Sizes of everything kept.
    pub fn memory_stats(self: &Arc<Self>) -> MemoryStats {
        let (superseded_rows, unlinked_versions) = self.garbage.lock().waiting();
        let readers = self.readers.active();
        let (hash_index_bytes, ordered_index_bytes, ordered_entries) = self.snapshot().view().index_sizes();
        let arena = self.memory.arena_size();
        MemoryStats {
            version_bytes: self.memory.version_bytes(),
            slot_bytes: self.snapshot().view().slot_bytes(),
            block_bytes: self.memory.block_bytes(),
            huge_page_bytes: arena.huge_bytes,
            ordinary_page_bytes: arena.ordinary_bytes,
            prefaulted_pages: self.memory.prefaulted_pages(),
            superseded_rows,
            unlinked_versions,
            readers,
            hash_index_bytes,
            ordered_index_bytes,
            ordered_entries,
        }
    }

    /// Flips one bit of the nth row of a table, as a memory fault does; returns false if there is no such
    /// row. There must be no reader and no batch.
    #[cfg(any(test, feature = "faults"))]
    pub fn corrupt_row_for_test(self: &Arc<Self>, table: weft_base::TableId, nth: usize, bit: usize) -> bool {
        let snapshot = self.snapshot();
        snapshot.view().flip_bit(table, nth, bit)
    }

    /// Makes the store panic once when it next gets there.
    #[cfg(any(test, feature = "faults"))]
    pub fn panic_for_test(&self, at: PanicAt) {
        *self.panic_at.lock() = Some(at);
    }

    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn panic_if_asked(&self, at: PanicAt) {
        let asked = self.panic_at.lock().take_if(|asked| *asked == at);
        assert!(asked.is_none(), "a panic that a test asked for");
    }

    pub(crate) fn published(&self) -> &Published {
        &self.published
    }

    pub(crate) fn readers(&self) -> &ReaderRegistry {
        &self.readers
    }

    pub(crate) fn garbage(&self) -> &Mutex<Garbage> {
        &self.garbage
    }

    pub(crate) fn memory(&self) -> &Arc<RowMemory> {
        &self.memory
    }

    /// Records that a replaced row was not what had been written: the digest is wrong from here on, and a
    /// replay would find another one.
    #[cold]
    pub(crate) fn note_damage(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    /// A replaced or removed row was not what had been written. What an open or finished batch computed from
    /// it must not be logged; the state can be recovered from the log before it.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Rows of later batches are in no checkpoint.
    pub(crate) fn checkpoint_begun(&self) -> BatchId {
        BatchId(self.checkpoint_begun.load(Ordering::Relaxed))
    }

    /// The batch of the newest checkpoint that cold rows can be read from.
    pub fn saved(&self) -> BatchId {
        BatchId(self.saved.load(Ordering::Acquire))
    }

    /// A checkpoint of this batch is durable, and rows can be read from it.
    pub(crate) fn set_saved(&self, batch: BatchId, rows: Arc<dyn ColdRows>) {
        self.memory.set_cold_rows(rows);
        self.saved.store(batch.0, Ordering::Release);
    }

    /// Takes the newest boundary for a checkpoint: `take` is called while no batch is open, so that what it
    /// takes from the tables covers exactly the batches up to the boundary. `None` if a finished batch has
    /// not been published.
    pub(crate) fn at_checkpoint<T>(self: &Arc<Self>, take: impl FnOnce(Snapshot) -> T) -> Option<T> {
        let _gate = self.close_gate();
        self.finished.lock().is_none().then(|| {
            let snapshot = self.snapshot();
            self.checkpoint_begun.store(self.boundary().0, Ordering::Relaxed);
            take(snapshot)
        })
    }

    /// Calls `work` with the newest boundary while no batch is open and none is finished and unpublished.
    /// Waits for the open batch, and the next one waits. `None` if a batch stays unpublished for long, which
    /// is for ever if the log has failed.
    pub(crate) fn at_rest<T>(self: &Arc<Self>, work: impl FnOnce(Snapshot) -> T) -> Option<T> {
        for _ in 0..AT_REST_TRIES {
            {
                let _gate = self.close_gate();
                if self.finished.lock().is_none() {
                    return Some(work(self.snapshot()));
                }
            }
            // It is being logged.
            std::thread::sleep(AT_REST_PAUSE);
        }
        None
    }

    /// What rows take in memory: cheaper than [`Store::memory_stats`].
    pub fn row_memory(&self) -> RowMemoryUse {
        let left_bytes = self.memory.left_bytes();
        RowMemoryUse {
            kept_bytes: self.memory.row_bytes().saturating_sub(left_bytes),
            left_bytes,
            version_bytes: self.memory.version_bytes(),
            cold_rows: self.memory.cold_count(),
            thawed_rows: self.memory.thawed_count(),
        }
    }

    /// Whether there are rows that are not in memory.
    pub fn has_cold_rows(&self) -> bool {
        self.memory.cold_count() > 0
    }

    /// What is kept in memory to read rows from disk: indexes and filters of files, and blocks.
    pub fn read_bytes(&self) -> u64 {
        self.memory.cold_rows().map_or(0, |rows| rows.memory_bytes())
    }

    /// What all indexes take in memory.
    pub fn index_bytes(self: &Arc<Self>) -> u64 {
        let (hashed, ordered, _) = self.snapshot().view().index_sizes();
        hashed + ordered
    }

    /// Counts of the columns beside the rows.
    pub(crate) fn column_counters(&self) -> &Counters {
        &self.columns
    }

    /// Sizes and counts of the columns beside the rows.
    pub fn column_stats(self: &Arc<Self>) -> ColumnStats {
        ColumnStats::of(self)
    }

    pub(crate) fn set_finished(&self, finished: Finished) {
        *self.finished.lock() = Some(finished);
    }

    fn close_gate(&self) -> GateGuard<'_> {
        let mut closed = self.gate.lock();
        while *closed {
            self.gate_opened.wait(&mut closed);
        }
        *closed = true;
        GateGuard(self)
    }

    fn try_close_gate(&self) -> Option<GateGuard<'_>> {
        let mut closed = self.gate.lock();
        if *closed {
            return None;
        }
        *closed = true;
        Some(GateGuard(self))
    }
}
