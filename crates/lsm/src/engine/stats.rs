//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Engine;
use crate::compaction::debt_bytes;
use crate::options::LEVEL_COUNT;

/// One level: its state and its totals so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LevelStats {
    /// Tables in it.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries in them, range tombstones not counted.
    pub entries: u64,
    /// Compactions out of it so far, moves included.
    pub compactions: u64,
    /// Bytes that these read, of this level and the next; moves read nothing.
    pub compacted_bytes_in: u64,
    /// Bytes that these wrote.
    pub compacted_bytes_out: u64,
    /// Entries that these read.
    pub entries_in: u64,
    /// Entries that these wrote.
    pub entries_out: u64,
    /// Time that these took.
    pub compaction_nanos: u64,
}

/// The engine: its state and its totals so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LsmStats {
    /// Level by level.
    pub levels: Vec<LevelStats>,
    /// Bytes of memory in memtables, or kept for the next ones.
    pub memtable_bytes: u64,
    /// Frozen memtables that wait for their flush.
    pub frozen_memtables: u64,
    /// Bytes in the block cache.
    pub block_cache_bytes: u64,
    /// Blocks found in the cache.
    pub block_cache_hits: u64,
    /// Blocks that had to be read.
    pub block_cache_misses: u64,
    /// Bytes of memory for indexes, filters and range tombstones of open tables.
    pub table_memory_bytes: u64,
    /// Bytes of memory that compaction tasks under way count with, see
    /// [`LsmOptions::task_memory_bytes`](crate::LsmOptions::task_memory_bytes).
    pub task_memory_bytes: u64,
    /// Bytes of memory of all kinds that have a budget: memtables, blocks, open tables, tasks.
    pub memory_bytes: u64,
    /// Bytes of the present log.
    pub log_bytes: u64,
    /// Batches written.
    pub batches: u64,
    /// Their bytes.
    pub batch_bytes: u64,
    /// Syncs of the log.
    pub syncs: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of the tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of the value files that flushes wrote.
    pub flushed_value_bytes: u64,
    /// Time that flushes took.
    pub flush_nanos: u64,
    /// Value files that a table of the newest version points into.
    pub value_files: u64,
    /// Their bytes.
    pub value_bytes: u64,
    /// Bytes of the records in them that some entry points to, even if a newer entry hides it.
    pub value_live_bytes: u64,
    /// Value files that were collected.
    pub collected_files: u64,
    /// Bytes of values that collection rewrote.
    pub collected_bytes: u64,
    /// Why the last collection failed, if it did.
    pub collect_error: Option<String>,
    /// Compaction tasks.
    pub compaction_tasks: u64,
    /// Filters that the executor did not build, or built wrongly: rebuilt here.
    pub filters_rebuilt: u64,
    /// Bytes that should be in deeper levels.
    pub debt_bytes: u64,
    /// How much writers are slowed, from 0 to 1.
    pub pressure: f64,
    /// Time that writers slept for that.
    pub slowed_nanos: u64,
    /// Time that writers waited because every memtable was full.
    pub full_nanos: u64,
    /// Lookups that a filter answered.
    pub filtered: u64,
    /// Bytes of tables that were written past the page cache.
    pub direct_written_bytes: u64,
    /// Bytes of tables that compactions and loading read past it.
    pub direct_read_bytes: u64,
    /// Files that should bypass the page cache but did not, because their file system does not support it or
    /// no more files could be open.
    pub direct_refused_files: u64,
    /// Obsolete files that still have to be removed, whether that was tried or not.
    pub files_left: u64,
    /// Why the last flush failed, if it did.
    pub flush_error: Option<String>,
    /// Compactions that failed.
    pub compaction_failures: u64,
    /// Tables whose last compaction failed. They back off for a while, and others go first.
    pub failed_tables: u64,
    /// The error of the last failed compaction, as long as there are such tables.
    pub compaction_error: Option<String>,
}

impl LsmStats {
    /// Which share of the bytes in value files is still pointed to, from 0 to 1; 1 without any.
    #[must_use]
    pub fn value_live_share(&self) -> f64 {
        share(self.value_live_bytes, self.value_bytes)
    }
}

/// `part` of `whole`, from 0 to 1; 1 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        1.0
    } else {
        (part as f64 / whole as f64).min(1.0)
    }
}

#[derive(Default)]
pub(super) struct Counters {
    pub batches: AtomicU64,
    pub batch_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub tasks: AtomicU64,
    pub filters_rebuilt: AtomicU64,
    pub full_nanos: AtomicU64,
    pub filtered: AtomicU64,
    pub log_bytes: AtomicU64,
    pub task_memory: AtomicU64,
    pub compaction_failures: AtomicU64,
    pub failed_tables: AtomicU64,
    pub collected_files: AtomicU64,
    pub collected_bytes: AtomicU64,
    flushes: AtomicU64,
    flushed_bytes: AtomicU64,
    flushed_value_bytes: AtomicU64,
    flush_nanos: AtomicU64,
    levels: [LevelCounters; LEVEL_COUNT],
}

#[derive(Default)]
struct LevelCounters {
    compactions: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    entries_in: AtomicU64,
    entries_out: AtomicU64,
    nanos: AtomicU64,
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(super) fn flushed(&self, bytes: u64, value_bytes: u64, nanos: u64) {
        add(&self.flushes, 1);
        add(&self.flushed_bytes, bytes);
        add(&self.flushed_value_bytes, value_bytes);
        add(&self.flush_nanos, nanos);
    }

    pub(super) fn compacted(
        &self,
        level: usize,
        bytes_in: u64,
        bytes_out: u64,
        entries: (u64, u64),
        nanos: u64,
    ) {
        if let Some(counters) = self.levels.get(level) {
            add(&counters.compactions, 1);
            add(&counters.bytes_in, bytes_in);
            add(&counters.bytes_out, bytes_out);
            add(&counters.entries_in, entries.0);
            add(&counters.entries_out, entries.1);
            add(&counters.nanos, nanos);
        }
    }
}

impl Engine {
    pub(super) fn stats(&self) -> LsmStats {
        let view = self.view();
        let counters = &self.counters;
        let levels = view.version.levels().zip(&counters.levels);
        let (hits, misses) = self.files.cache.hits_and_misses();
        let memtables = std::iter::once(&view.active).chain(&view.frozen);
        let memtable_bytes: u64 = memtables.map(|memtable| memtable.memory_bytes() as u64).sum();
        let memtable_bytes = memtable_bytes + self.pool.bytes() as u64;
        let block_cache_bytes = self.files.cache.bytes() as u64;
        let table_memory_bytes = self.files.open.bytes() as u64;
        let task_memory_bytes = get(&counters.task_memory);
        let values = view.version.value_files();
        let work = self.work.lock();
        LsmStats {
            levels: levels
                .map(|(tables, counters)| LevelStats {
                    tables: tables.len() as u64,
                    bytes: tables.iter().map(|table| table.meta().file_bytes).sum(),
                    entries: tables.iter().map(|table| table.properties().entry_count).sum(),
                    compactions: get(&counters.compactions),
                    compacted_bytes_in: get(&counters.bytes_in),
                    compacted_bytes_out: get(&counters.bytes_out),
                    entries_in: get(&counters.entries_in),
                    entries_out: get(&counters.entries_out),
                    compaction_nanos: get(&counters.nanos),
                })
                .collect(),
            memtable_bytes,
            frozen_memtables: view.frozen.len() as u64,
            block_cache_bytes,
            block_cache_hits: hits,
            block_cache_misses: misses,
            table_memory_bytes,
            task_memory_bytes,
            memory_bytes: memtable_bytes + block_cache_bytes + table_memory_bytes + task_memory_bytes,
            log_bytes: get(&counters.log_bytes),
            batches: get(&counters.batches),
            batch_bytes: get(&counters.batch_bytes),
            syncs: get(&counters.syncs),
            flushes: get(&counters.flushes),
            flushed_bytes: get(&counters.flushed_bytes),
            flushed_value_bytes: get(&counters.flushed_value_bytes),
            flush_nanos: get(&counters.flush_nanos),
            value_files: values.len() as u64,
            value_bytes: values.values().map(|file| file.file_bytes).sum(),
            value_live_bytes: values.values().map(|file| file.live_bytes).sum(),
            collected_files: get(&counters.collected_files),
            collected_bytes: get(&counters.collected_bytes),
            collect_error: work.collect_error.as_ref().map(ToString::to_string),
            compaction_tasks: get(&counters.tasks),
            filters_rebuilt: get(&counters.filters_rebuilt),
            debt_bytes: debt_bytes(&view.version, &self.options),
            pressure: self.pressure.value(),
            slowed_nanos: get(&self.pressure.slept_nanos),
            full_nanos: get(&counters.full_nanos),
            filtered: get(&counters.filtered),
            direct_written_bytes: get(&self.files.io.written_bytes),
            direct_read_bytes: get(&self.files.io.read_bytes),
            direct_refused_files: get(&self.files.io.refused_files),
            files_left: self.files.obsolete.len() as u64,
            compaction_failures: get(&counters.compaction_failures),
            failed_tables: get(&counters.failed_tables),
            flush_error: work.flush_error.as_ref().map(ToString::to_string),
            compaction_error: work.compaction_error.as_ref().map(ToString::to_string),
        }
    }
}
