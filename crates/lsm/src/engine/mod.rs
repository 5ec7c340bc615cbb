//! The engine: connects log, memtables, tables and compaction.
//!
//! ```text
//! write.rs       batch -> log -> memtable; group sync; freezing
//! refusal.rs     writes after an error, and after a panic
//! read.rs        get, multi-get, iterators over a view and a sequence number
//! flush.rs       frozen memtable -> table of level 0
//! ingest.rs      many changes -> tables, bypassing log and memtable
//! cuts.rs        a family in ranges of equal size
//! collect.rs     garbage collection of value files
//! background.rs  flushes and compactions in the background
//! pressure.rs    back-pressure on writers
//! checkpoint.rs  a copy of the state at one moment
//! open.rs        manifest and logs -> engine
//! stats.rs       counters
//! ```
//!
//! # Latches, in the order in which they may be taken
//!
//! `collected`, `writer` (log and active memtable), `flush_turn` or `compaction_turn`, `manifest`,
//! `uncertain_files`, `view`. None is held while a reader reads; `view` is held only to copy or to replace a
//! pointer. The holder of `writer` replaces the active memtable of the view, the holder of `manifest` its
//! version.
//!
//! # What a reader sees
//!
//! A reader takes the view first and the sequence number second: the view then contains everything up to that
//! number, and a compaction that dropped something older knew of every registered snapshot. The entries that
//! an edit brings into tables become visible while readers are kept out of the view, so that no compaction
//! finds an entry in a table that a snapshot taken later would not see.

mod background;
mod checkpoint;
mod collect;
mod cuts;
mod flush;
mod ingest;
#[cfg(test)]
mod interleavings;
mod open;
mod pressure;
mod read;
mod refusal;
mod stats;
mod write;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use weft_base::{Clock, Disk, SyncSite};
use weft_ops::key::SeqNo;

use crate::batch::{FamilyId, WriteBatch};
use crate::compaction::CompactionState;
use crate::error::{LsmError, io_error};
use crate::iterator::LsmIterator;
use crate::memtable::{Memtable, PagePool};
use crate::options::LsmOptions;
use crate::snapshot::{Readers, Snapshot};
use crate::sync::{Condvar, Mutex, RwLock};
use crate::table::{IoCounts, TableFiles, TableMeta, table_name};
use crate::values::values_name;
use crate::version::{Edit, Manifest, Version};
use background::{BackgroundStatus, CompactionRequest};
use collect::Collected;
use pressure::Pressure;
use refusal::PoisonOnPanic;
use stats::Counters;
use write::{SyncState, Writer};

pub use ingest::Ingest;
pub(crate) use open::{Found, level_dirs, lock_dirs};
pub use stats::{LevelStats, LsmStats};
pub use write::WriteOptions;

/// Sync of the names of new tables and value files, before the manifest speaks of them.
pub(crate) const SYNC_TABLE_DIR: SyncSite = SyncSite("lsm.table.dir");

/// What readers look into: replaced as a whole.
#[derive(Clone)]
pub(crate) struct View {
    pub active: Arc<Memtable>,
    /// Frozen memtables, newest first.
    pub frozen: Vec<Arc<Memtable>>,
    pub version: Arc<Version>,
}

/// The engine behind its handle.
pub(crate) struct Engine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: LsmOptions,
    clock: Arc<dyn Clock>,
    files: Arc<TableFiles>,
    pool: Arc<PagePool>,
    writer: Mutex<Writer>,
    sync: Mutex<SyncState>,
    sync_done: Condvar,
    readers: Arc<Readers>,
    view: RwLock<Arc<View>>,
    manifest: Mutex<Manifest>,
    flush_turn: Mutex<()>,
    /// Held to choose a compaction and to say how it went, not while it runs.
    compaction_turn: Mutex<CompactionState>,
    compaction_ended: Condvar,
    /// Held while a value file is collected.
    collected: Mutex<Collected>,
    /// Files of edits whose fate is unknown: obsolete when the next edit is durable.
    uncertain_files: Mutex<Vec<PathBuf>>,
    next_number: AtomicU64,
    work: Mutex<BackgroundStatus>,
    work_changed: Condvar,
    /// Whether there is a reason in `work` why nothing is written any more.
    is_poisoned: AtomicBool,
    pressure: Pressure,
    counters: Counters,
}

impl Engine {
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes an edit durable, then lets readers see it. `frozen_gone` is the memtable that it put into a
    /// table. Takes care of the files that were made for it: if it fails they are removed, at once if it
    /// certainly does not count, else when a later edit is durable, which is then without it.
    fn install(&self, edit: &Edit, frozen_gone: Option<&Arc<Memtable>>) -> Result<(), LsmError> {
        let made = self.made_by(edit);
        let ready = self.check_poison();
        if let Err(error) = ready.and_then(|()| sync_names(&self.files, edit)) {
            // The manifest does not speak of them and never will.
            self.files.obsolete.add(made);
            self.files.obsolete.remove_all();
            return Err(error);
        }
        let mut manifest = self.manifest.lock();
        let whole = PoisonOnPanic {
            engine: self,
            step: "a panic while an edit was installed",
        };
        if let Err(refused) = manifest.append(&*self.disk, edit, || self.next_number()) {
            drop(whole);
            drop(manifest);
            if refused.may_count {
                self.uncertain_files.lock().extend(made);
            } else {
                self.files.obsolete.add(made);
                self.files.obsolete.remove_all();
            }
            return Err(refused.error);
        }
        self.files
            .obsolete
            .add(std::mem::take(&mut *self.uncertain_files.lock()));
        // Only who has the manifest's latch replaces the version: it is made before readers are kept out, for
        // it takes a look at every table and what that lists.
        let before = self.view();
        let version = Arc::new(before.version.apply(edit, &self.files));
        drop(before);
        let mut view = self.view.write();
        let mut next = View::clone(&view);
        next.version = version;
        if let Some(gone) = frozen_gone {
            next.frozen.retain(|memtable| !Arc::ptr_eq(memtable, gone));
        }
        let old = std::mem::replace(&mut *view, Arc::new(next));
        // Before anybody can compact what was ingested.
        self.readers.show(edit.flushed.unwrap_or_default());
        drop(view);
        drop(whole);
        // The last to have a table closes it, which is no reason to keep readers out either.
        drop(old);
        drop(manifest);
        self.files.obsolete.remove_all();
        Ok(())
    }

    /// The files that were made for an edit: those that the newest version does not know.
    fn made_by(&self, edit: &Edit) -> Vec<PathBuf> {
        let view = self.view();
        let known: BTreeSet<u64> = view.version.tables().map(|(_, table)| table.number()).collect();
        let known_values = view.version.value_files();
        let mut made = Vec::new();
        for (_, meta) in edit
            .added
            .iter()
            .filter(|(_, meta)| !known.contains(&meta.number))
        {
            made.push(self.files.dir(meta.level).join(table_name(meta.number)));
            let values = meta.properties.value_files.iter().map(|file| file.number);
            let values = values.filter(|number| !known_values.contains_key(number));
            made.extend(values.map(|number| self.files.values.dir.join(values_name(number))));
        }
        made
    }
}

/// Makes the names of an edit's tables and of their value files durable.
fn sync_names(files: &TableFiles, edit: &Edit) -> Result<(), LsmError> {
    let of_tables = edit.added.iter().map(|(_, meta)| files.dir(meta.level));
    let have_values = |(_, meta): &(usize, TableMeta)| !meta.properties.value_files.is_empty();
    let of_values = edit
        .added
        .iter()
        .any(have_values)
        .then_some(files.values.dir.as_path());
    for dir in of_tables.chain(of_values).collect::<BTreeSet<&Path>>() {
        let synced = files.disk.sync_dir(dir, SYNC_TABLE_DIR);
        synced.map_err(io_error("syncing", dir))?;
    }
    Ok(())
}

/// An open engine. Dropping it stops its threads; what was written without sync is then with the operating
/// system.
pub struct Lsm {
    engine: Arc<Engine>,
    threads: Vec<JoinHandle<()>>,
}

impl Lsm {
    /// Opens the engine in `dir`, or makes one there. Takes the directory for itself, replays the logs and
    /// flushes what they held.
    ///
    /// # Errors
    /// The disk's, `WouldBlock` among them when someone else has the directory or one of a level; a corrupt
    /// manifest or log; tables or logs without a manifest.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LsmOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LsmError> {
        let engine = Arc::new(Engine::open(disk, dir, options, clock)?);
        let threads = background::start(&engine).inspect_err(|_| engine.stop())?;
        Ok(Self { engine, threads })
    }

    /// Writes a batch: all of it or nothing, seen by all readers at once.
    ///
    /// # Errors
    /// [`LsmError::TooLarge`]; [`LsmError::Io`] when the log refused, [`LsmError::Refused`] until it can be
    /// written again; [`LsmError::Poisoned`]. Whether a batch whose write failed comes back after a crash is
    /// not known; one that only was not synced is seen meanwhile.
    pub fn write(&self, batch: &WriteBatch, options: WriteOptions) -> Result<SeqNo, LsmError> {
        self.engine.write(batch, options)
    }

    /// Writes one key.
    ///
    /// # Errors
    /// As [`Lsm::write`].
    pub fn put(
        &self,
        family: FamilyId,
        key: &[u8],
        value: &[u8],
        options: WriteOptions,
    ) -> Result<SeqNo, LsmError> {
        let mut batch = WriteBatch::new();
        batch.put(family, key, value);
        self.write(&batch, options)
    }

    /// Removes one key.
    ///
    /// # Errors
    /// As [`Lsm::write`].
    pub fn delete(&self, family: FamilyId, key: &[u8], options: WriteOptions) -> Result<SeqNo, LsmError> {
        let mut batch = WriteBatch::new();
        batch.delete(family, key);
        self.write(&batch, options)
    }

    /// Waits until every write so far that went into the log is durable.
    ///
    /// # Errors
    /// The disk's; what was not durable then may never be.
    pub fn sync(&self) -> Result<(), LsmError> {
        self.engine.sync_all()
    }

    /// The newest value of a key.
    ///
    /// # Errors
    /// The disk's; a corrupt block, index or filter where the key would be.
    pub fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Bytes>, LsmError> {
        self.engine.get(&family.key(key))
    }

    /// The value of a key as a snapshot sees it.
    ///
    /// # Errors
    /// As [`Lsm::get`].
    pub fn get_at(
        &self,
        snapshot: &Snapshot,
        family: FamilyId,
        key: &[u8],
    ) -> Result<Option<Bytes>, LsmError> {
        self.engine
            .get_from(&self.engine.view(), &family.key(key), snapshot.seqno())
    }

    /// The values of several keys at one moment, in the order of the keys.
    ///
    /// # Errors
    /// As [`Lsm::get`], for any of them.
    pub fn multi_get(&self, family: FamilyId, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>, LsmError> {
        let snapshot = self.engine.readers.snapshot();
        let view = self.engine.view();
        keys.iter()
            .map(|key| self.engine.get_from(&view, &family.key(key), snapshot.seqno()))
            .collect()
    }

    /// The present moment.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::new(self.engine.readers.snapshot())
    }

    /// Walks over a family as a snapshot sees it.
    ///
    /// # Errors
    /// A table that cannot be opened; its range tombstones may matter.
    pub fn iterator(&self, family: FamilyId, snapshot: &Arc<Snapshot>) -> Result<LsmIterator, LsmError> {
        self.engine.iterator(family, snapshot, None)
    }

    /// As [`Lsm::iterator`], for who reads the keys from `start` to `end` once, forward; without `end`, all
    /// that follow in the family. Blocks are read in pieces of about 1 MB, past the page cache if their level
    /// is written so, and do not go into the block cache. Takes a piece's memory and, past the cache, a file
    /// handle for each run of tables that may have such keys; each table of level 0 is a run.
    ///
    /// # Errors
    /// As [`Lsm::iterator`].
    pub fn iterator_once(
        &self,
        family: FamilyId,
        snapshot: &Arc<Snapshot>,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<LsmIterator, LsmError> {
        let behind = end.map_or_else(|| family.end(), |end| Some(family.key(end)));
        let range = (family.key(start), behind);
        let mut iterator = self.engine.iterator(family, snapshot, Some(&range))?;
        iterator.set_bounds(Some(start), end);
        Ok(iterator)
    }

    /// Puts everything written so far into tables.
    ///
    /// # Errors
    /// The disk's.
    pub fn flush(&self) -> Result<(), LsmError> {
        self.engine.flush_all()
    }

    /// Compacts until no level is too large, what failed before not excepted.
    ///
    /// # Errors
    /// The disk's; corrupt input; an executor's; [`LsmError::Poisoned`]. The first ends the call.
    pub fn compact(&self) -> Result<(), LsmError> {
        while self.engine.compact_once(CompactionRequest::Urgent)? {}
        Ok(())
    }

    /// Flushes, then moves everything into the deepest level that has something, at least level 1.
    ///
    /// # Errors
    /// As [`Lsm::compact`].
    pub fn compact_all(&self) -> Result<(), LsmError> {
        self.engine.flush_all()?;
        for level in 0..crate::options::LEVEL_COUNT - 1 {
            let deeper = |view: &View| {
                let levels = view.version.levels().skip(level + 1);
                level == 0 || levels.into_iter().any(|tables| !tables.is_empty())
            };
            while deeper(&self.engine.view()) && self.engine.compact_once(CompactionRequest::Of(level))? {}
        }
        Ok(())
    }

    /// Makes a copy of the present state in `target`, which must be empty or absent, while everything goes
    /// on. The copy is an engine of its own; it is opened with options that name no directories for levels.
    /// Returns the last write that it has. An unfinished copy has no manifest and is refused when opened.
    ///
    /// # Errors
    /// [`LsmError::Directory`] for a target that is not empty; the disk's. What was copied is then removed.
    pub fn checkpoint(&self, target: &Path) -> Result<SeqNo, LsmError> {
        self.engine.checkpoint(target)
    }

    /// What the engine holds and did so far.
    #[must_use]
    pub fn stats(&self) -> LsmStats {
        self.engine.stats()
    }

    /// Memory that reads keep at the moment: blocks, and the indexes and filters of open tables.
    #[must_use]
    pub fn read_memory_bytes(&self) -> u64 {
        let files = &self.engine.files;
        (files.cache.bytes() + files.open.bytes()) as u64
    }

    /// What went past the page cache, from now on, too.
    #[must_use]
    pub fn io_counts(&self) -> Arc<IoCounts> {
        Arc::clone(&self.engine.files.io)
    }

    /// Makes everything durable and ends the engine. A last record in the log shows from then on if the end
    /// of the log is damaged.
    ///
    /// # Errors
    /// The disk's.
    pub fn close(mut self) -> Result<(), LsmError> {
        self.stop();
        self.engine.seal()
    }

    fn stop(&mut self) {
        self.engine.stop();
        for thread in self.threads.drain(..) {
            // A panic in it has poisoned the engine.
            let _ = thread.join();
        }
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Lsm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lsm")
            .field("dir", &self.engine.dir)
            .finish_non_exhaustive()
    }
}
