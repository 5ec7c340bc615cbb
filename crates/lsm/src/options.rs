//! How an engine is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weft_ops::block::{BlockOptions, Compression};

use crate::batch::{FamilyId, family_of};
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
    /// How its tables are written, and read by compactions and by who reads once.
    pub io: TableIo,
}

/// Who does flushes and compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// Threads of the engine.
    Threads,
    /// The caller whose write made it necessary, before the call returns: for simulations, where every run
    /// must be the same. Writers are not slowed.
    Inline,
}

/// An engine's settings. None of them is stored; all may change from one opening to the next.
#[derive(Clone)]
pub struct LsmOptions {
    /// A memtable is frozen when it has this many bytes.
    pub memtable_bytes: usize,
    /// Frozen memtables that may wait for their flush.
    pub frozen_memtables_max: usize,
    /// Memory for what is read: indexes and filters of open tables, and blocks in what these leave.
    pub block_cache_bytes: usize,
    /// Length of a block before compression.
    pub block_bytes: u32,
    /// Entries from one restart point to the next.
    pub restart_interval: u16,
    /// Bits of filter per key; 0 for no filters.
    pub filter_bits_per_key: u32,
    /// Values of at least so many bytes lie in value files, apart from the tables; `usize::MAX` for none.
    /// Counts when a value is flushed or ingested: what is there already stays where it is.
    pub large_value_bytes: usize,
    /// The same for families that differ from it.
    pub large_value_bytes_of: BTreeMap<FamilyId, usize>,
    /// A value file of whose bytes a smaller share than this is still pointed to is emptied: its values are
    /// written again. 0 for never.
    pub value_share_min: f64,
    /// A table is finished when it has this many bytes.
    pub table_bytes: u64,
    /// Tables in level 0 that call for a compaction.
    pub level0_tables: usize,
    /// Bytes that level 1 is to hold.
    pub level1_bytes: u64,
    /// How much more each further level is to hold.
    pub level_factor: u64,
    /// Bytes of input that a compaction task is cut to.
    pub task_bytes: u64,
    /// Bytes of memory that the tasks of all running compactions may have together. A task counts, from when
    /// it is given to the executor until its result is in a table, with its input blocks as they are stored
    /// and the most that its result can take ([`weft_ops::merge::MergeTask::output_bytes_max`]), which is
    /// about twice its input decompressed. A task for which there is no room waits, with its input read,
    /// until others of its compaction are done; if there are none it goes on, so that no compaction waits
    /// for another one. So up to one task of each compaction may be beyond this bound, and one more input
    /// of each. What an executor takes besides, to decompress a block or to send a task elsewhere, is not
    /// counted.
    pub task_memory_bytes: u64,
    /// Bytes that wait to be compacted, from which on writers are slowed.
    pub debt_soft_bytes: u64,
    /// Bytes that wait to be compacted, at which writers are slowed the most.
    pub debt_hard_bytes: u64,
    /// The settings of each level.
    pub levels: [LevelOptions; LEVEL_COUNT],
    /// The compression of tables that have nothing below them, whichever level that is.
    pub base_compression: Compression,
    /// Who flushes and compacts.
    pub background: Background,
    /// Compactions that may run at the same time, with a thread each; the last one only for level 0.
    pub compaction_threads: usize,
    /// Whether levels that are too large are compacted without being told.
    pub compact: bool,
    /// Who merges.
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

    /// How tables of a level are written.
    pub(crate) fn table_io(&self, level: usize) -> TableIo {
        self.levels.get(level).map_or(TableIo::Buffered, |level| level.io)
    }

    /// Whether a value of a key (as inside the engine) is to lie apart.
    pub(crate) fn is_large(&self, key: &[u8], value_bytes: usize) -> bool {
        let own = if self.large_value_bytes_of.is_empty() {
            None
        } else {
            self.large_value_bytes_of.get(&family_of(key))
        };
        value_bytes >= *own.unwrap_or(&self.large_value_bytes)
    }

    /// The same settings within one budget: half of it for memtables, frozen ones and one in reserve
    /// included, three eighths for what is read, an eighth for compaction tasks. Small budgets get small
    /// tables.
    #[must_use]
    pub fn within_memory(mut self, bytes: usize) -> Self {
        let memtables = self.frozen_memtables_max.max(1) + 2;
        self.memtable_bytes = bytes / 2 / memtables;
        self.block_cache_bytes = bytes / 8 * 3;
        self.task_memory_bytes = bytes as u64 / 8;
        // Task and result, decompressed: about six times what the task is stored in.
        self.task_bytes = self.task_bytes.min(self.task_memory_bytes / 8).max(1);
        self.table_bytes = self.table_bytes.min(bytes as u64 / 4).max(1);
        self
    }

    /// What memtables, reading and compaction tasks may take together, in bytes. Beside it: what readers hold
    /// at the moment, a batch that is being written, the buffers of tables that are being written, and one
    /// task of each compaction that finds no room in its share.
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        let memtables = (self.frozen_memtables_max.max(1) + 2) * self.memtable_bytes;
        (memtables + self.block_cache_bytes) as u64 + self.task_memory_bytes
    }

    /// Bytes that a level is to hold; of level 0 its tables count instead.
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
            compact: true,
            executor: Arc::new(InlineExecutor),
        }
    }
}
