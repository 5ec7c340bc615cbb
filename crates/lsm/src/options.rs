//! Options of an engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weft_ops::block::{BlockOptions, Compression};

use crate::batch::{FamilyId, family_of};
use crate::compaction::TASK_RUNS_MAX;
use crate::executor::{CompactionExecutor, InlineExecutor};
use crate::table::TableIo;

/// Number of levels. Level 0 holds flushed tables, which overlap; the others hold disjoint tables.
pub const LEVEL_COUNT: usize = 7;

/// One level's settings.
#[derive(Clone, Debug)]
pub struct LevelOptions {
    /// How its blocks are stored.
    pub compression: Compression,
    /// Where its tables lie; the engine's own directory if not given.
    pub dir: Option<PathBuf>,
    /// How its tables are written, and read by compactions and bulk scans.
    pub io: TableIo,
}

/// Where flushes and compactions run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// Threads of the engine.
    Threads,
    /// In the caller whose write triggered them, before the call returns: for simulations, which must be
    /// reproducible. Writers are not slowed.
    Inline,
}

/// An engine's settings. None of them is stored; all may change from one opening to the next.
#[derive(Clone)]
pub struct LsmOptions {
    /// A memtable is frozen when it has this many bytes.
    pub memtable_bytes: usize,
    /// Frozen memtables that may wait for their flush.
    pub frozen_memtables_max: usize,
    /// Memory for reads: indexes and filters of open tables, and blocks in the rest.
    pub block_cache_bytes: usize,
    /// Length of a block before compression.
    pub block_bytes: u32,
    /// Entries from one restart point to the next.
    pub restart_interval: u16,
    /// Bits of filter per key; 0 for no filters.
    pub filter_bits_per_key: u32,
    /// Values of at least this many bytes are stored in value files, separately from the tables; `usize::MAX`
    /// for none. Applies when a value is flushed or ingested: existing values stay where they are.
    pub large_value_bytes: usize,
    /// The same for families that differ from it.
    pub large_value_bytes_of: BTreeMap<FamilyId, usize>,
    /// A value file whose live share is below this is collected: its live values are rewritten. 0 for never.
    pub value_share_min: f64,
    /// A table is finished when it has this many bytes.
    pub table_bytes: u64,
    /// Tables in level 0 that trigger a compaction.
    pub level0_tables: usize,
    /// Target size of level 1.
    pub level1_bytes: u64,
    /// The size ratio between each further level and the one above.
    pub level_factor: u64,
    /// Bytes of input that a compaction task is cut to. Where the engine's own threads merge, it is at most
    /// 1 MiB, or 16 blocks of each run if that is more and they are not paced
    /// ([`LsmOptions::compaction_share`]).
    pub task_bytes: u64,
    /// Bytes of memory that the tasks of all running compactions may use together. A task counts, from when
    /// it is given to the executor until its result is in a table, with its stored input blocks and the most
    /// that its result can take ([`weft_ops::merge::MergeTask::output_bytes_max`]), which is about twice its
    /// input decompressed. A task without space waits, with its input read, until others of its compaction
    /// are done; if there are none it goes on, so that no compaction waits for another one. So one task of
    /// each compaction, and one more input of each, may exceed this bound. What an executor uses in addition,
    /// to decompress a block or to send a task elsewhere, is not counted.
    pub task_memory_bytes: u64,
    /// Bytes of compaction debt at which writers begin to be slowed.
    pub debt_soft_bytes: u64,
    /// Bytes of compaction debt at which writers are slowed the most.
    pub debt_hard_bytes: u64,
    /// The settings of each level.
    pub levels: [LevelOptions; LEVEL_COUNT],
    /// The compression of tables that have nothing below them, on any level.
    pub base_compression: Compression,
    /// Where flushes and compactions run.
    pub background: Background,
    /// Compactions that may run at the same time, with a thread each; the last one is reserved for level 0,
    /// unless that waits for a compaction of level 1.
    pub compaction_threads: usize,
    /// The share of the time that a compaction thread works while nothing is behind, from 0 to 1; the rest it
    /// sleeps, in slices. As level 0 or the debt grows it works more, up to all of the time.
    pub compaction_share: f64,
    /// Whether levels that exceed their target are compacted automatically.
    pub compact: bool,
    /// What merges.
    pub executor: Arc<dyn CompactionExecutor>,
}

impl LsmOptions {
    /// Settings of blocks in `level`; `base` if nothing lies below it.
    pub(crate) fn block_options(&self, level: usize, base: bool) -> BlockOptions {
        let own = self.levels.get(level).map(|level| level.compression);
        BlockOptions {
            block_bytes: self.block_bytes,
            restart_interval: self.restart_interval,
            compression: if base {
                self.base_compression
            } else {
                own.unwrap_or_default()
            },
        }
    }

    /// The most runs of a compaction.
    pub(crate) fn runs_max(&self) -> usize {
        self.executor.runs_max().clamp(2, TASK_RUNS_MAX)
    }

    /// How tables of a level are written.
    pub(crate) fn table_io(&self, level: usize) -> TableIo {
        self.levels.get(level).map_or(TableIo::Buffered, |level| level.io)
    }

    /// Whether a value of a key (as inside the engine) is stored in a value file.
    pub(crate) fn is_large(&self, key: &[u8], value_bytes: usize) -> bool {
        let own = if self.large_value_bytes_of.is_empty() {
            None
        } else {
            self.large_value_bytes_of.get(&family_of(key))
        };
        value_bytes >= *own.unwrap_or(&self.large_value_bytes)
    }

    /// The same settings within one memory budget: half of it for memtables, including frozen ones and one in
    /// reserve, three eighths for reads, one eighth for compaction tasks. Small budgets get small tables.
    #[must_use]
    pub fn within_memory(mut self, bytes: usize) -> Self {
        let memtables = self.frozen_memtables_max.max(1) + 2;
        self.memtable_bytes = bytes / 2 / memtables;
        self.block_cache_bytes = bytes / 8 * 3;
        self.task_memory_bytes = bytes as u64 / 8;
        // Task and result, decompressed: about six times the stored size of the task.
        self.task_bytes = self.task_bytes.min(self.task_memory_bytes / 8).max(1);
        self.table_bytes = self.table_bytes.min(bytes as u64 / 4).max(1);
        self
    }

    /// What memtables, reads and compaction tasks may use together, in bytes. Not included: what readers hold
    /// at the moment, a batch being written, the buffers of tables being written, and one task of each
    /// compaction that does not fit into its share.
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        let memtables = (self.frozen_memtables_max.max(1) + 2) * self.memtable_bytes;
        (memtables + self.block_cache_bytes) as u64 + self.task_memory_bytes
    }

    /// The target size of a level in bytes; level 0 is measured in tables instead.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        let steps = u32::try_from(level.saturating_sub(1)).unwrap_or(u32::MAX);
        self.level1_bytes
            .saturating_mul(self.level_factor.saturating_pow(steps))
    }
}

impl Default for LsmOptions {
    fn default() -> Self {
        let level = |compression| LevelOptions {
            compression,
            dir: None,
            io: TableIo::Buffered,
        };
        Self {
            memtable_bytes: 64 << 20,
            frozen_memtables_max: 3,
            block_cache_bytes: 256 << 20,
            block_bytes: 16 << 10,
            restart_interval: 16,
            filter_bits_per_key: 10,
            large_value_bytes: 4 << 10,
            large_value_bytes_of: BTreeMap::new(),
            value_share_min: 0.25,
            table_bytes: 64 << 20,
            level0_tables: 4,
            level1_bytes: 256 << 20,
            level_factor: 10,
            task_bytes: 4 << 20,
            task_memory_bytes: 256 << 20,
            debt_soft_bytes: 1 << 30,
            debt_hard_bytes: 8 << 30,
            levels: [
                level(Compression::None),
                level(Compression::Lz4),
                level(Compression::Lz4),
                level(Compression::Lz4),
                level(Compression::Lz4),
                level(Compression::Lz4),
                level(Compression::Zstd),
            ],
            base_compression: Compression::Zstd,
            background: Background::Threads,
            compaction_threads: 2,
            compaction_share: 1.0,
            compact: true,
            executor: Arc::new(InlineExecutor),
        }
    }
}
