//! Key-value engines under load, second by second: Weft's own and, for comparison, others.
//!
//! ```text
//! data.rs    keys and values as functions of a number, so that what is read can be checked
//! cases.rs   fill, overwrite, read, mixed, read while writing; the series and its jitter
//! engine.rs  Weft's engine, with compaction by one or the other executor, or by none
//! rocks.rs   RocksDB, set up alike (feature `peers`)
//! ```
//!
//! Writes go into the log and are not synced, one writer at a time. What an engine leaves for later counts:
//! [`KeyValueStore::debt_bytes`] says how much that is.
//!
//! Source: X-DB, "Experiment Results", DbBench: throughput over time while compaction runs.

mod cases;
mod data;
mod engine;
#[cfg(feature = "peers")]
mod rocks;

use weft_ops::block::Compression;

use crate::LoadError;

pub use weft_lsm::TableIo;

pub use cases::{Case, CaseRun, RunSchedule, Second, jitter, run_case};
pub use data::{KEY_BYTES, KeyValues, key};
pub(crate) use engine::options as engine_options;
pub use engine::{Compactor, WeftStore};
#[cfg(feature = "peers")]
pub use rocks::{ROCKSDB_SETTINGS, RocksStore};
#[cfg(feature = "peers")]
pub(crate) use rocks::{compression_type, options as rocks_options};

/// Memory and sizes that every contender is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreShape {
    /// A memtable is full when it has this many bytes.
    pub memtable_bytes: usize,
    /// Memtables that may exist at a time, the one that is written among them.
    pub memtables_max: usize,
    /// Memory for blocks read from disk.
    pub block_cache_bytes: usize,
    /// Length of a block before compression.
    pub block_bytes: usize,
    /// Bits of filter per key.
    pub filter_bits_per_key: u32,
    /// A table is finished when it has this many bytes.
    pub table_bytes: u64,
    /// Tables in level 0 that call for a compaction.
    pub level0_tables: usize,
    /// Bytes that level 1 is to hold; each further level ten times as many.
    pub level1_bytes: u64,
    /// Of level 1 and below; level 0 is not compressed.
    pub compression: Compression,
    /// How flushes and compactions read and write tables.
    pub io: TableIo,
}

impl Default for StoreShape {
    /// The sizes that are usual in both engines, blocks of 16 KiB, LZ4.
    fn default() -> Self {
        Self {
            memtable_bytes: 64 << 20,
            memtables_max: 4,
            block_cache_bytes: 256 << 20,
            block_bytes: 16 << 10,
            filter_bits_per_key: 10,
            table_bytes: 64 << 20,
            level0_tables: 4,
            level1_bytes: 256 << 20,
            compression: Compression::Lz4,
            io: TableIo::default(),
        }
    }
}

impl StoreShape {
    /// The most memory that a contender may take for what is counted: memtables and block cache.
    #[must_use]
    pub const fn budget_bytes(&self) -> u64 {
        (self.memtables_max * self.memtable_bytes + self.block_cache_bytes) as u64
    }

    /// All of it as words for a record.
    #[must_use]
    pub fn describe(&self) -> String {
        let compression = match self.compression {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        };
        format!(
            "memtable_bytes={} memtables={} block_cache_bytes={} block_bytes={} filter_bits={} table_bytes={} \
             level0_tables={} level1_bytes={} level_factor=10 compression=none,{compression} io={} \
             flush_threads=1 compaction_threads=1 log=on sync=off",
            self.memtable_bytes,
            self.memtables_max,
            self.block_cache_bytes,
            self.block_bytes,
            self.filter_bits_per_key,
            self.table_bytes,
            self.level0_tables,
            self.level1_bytes,
            io_name(self.io),
        )
    }
}

/// A way of input and output, as the command line has it.
#[must_use]
pub const fn io_name(io: TableIo) -> &'static str {
    match io {
        TableIo::Buffered => "buffered",
        TableIo::Direct => "direct",
    }
}

/// Something that holds keys and values on a disk. Shared by a reader and a writer.
pub trait KeyValueStore: Sync {
    /// Gives a key a value: in the log and visible when the call returns, not synced.
    ///
    /// # Errors
    /// The engine's.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoadError>;

    /// Calls `look` with the newest value of a key, and says what it said; `None` if the key is not there.
    ///
    /// # Errors
    /// The engine's.
    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8]) -> bool) -> Result<Option<bool>, LoadError>;

    /// Flushes, and compacts until no level is too large, also where compaction is off otherwise.
    ///
    /// # Errors
    /// The engine's.
    fn settle(&self) -> Result<(), LoadError>;

    /// Bytes that should lie deeper than they do, as the engine itself counts them.
    fn debt_bytes(&self) -> u64;

    /// Bytes of memory in memtables and block cache.
    fn memory_bytes(&self) -> u64;

    /// Nanoseconds that writers were made to wait so far, where the engine counts them.
    fn waited_nanos(&self) -> Option<u64>;
}
