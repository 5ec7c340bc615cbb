//! RocksDB as a contender: the same sizes, blocks, filters, compression and durability.
//!
//! What the two engines share is set from the same [`StoreShape`]; all else is RocksDB's default, its
//! checksum (XXH3) and its allocator (the system's) among it. Level targets are fixed, as Weft's are, and two
//! background jobs are allowed, of which it takes one to flush and one to compact: as Weft's threads here.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Options, WaitForCompactOptions, WriteOptions, properties,
};
use weft_ops::block::Compression;

use super::{KeyValueStore, StoreShape, TableIo};
use crate::LoadError;

/// What is not in [`StoreShape::describe`], as words for a record.
pub const ROCKSDB_SETTINGS: &str = "rocksdb: background_jobs=2 subcompactions=1 dynamic_level_bytes=off restart_interval=16 \
                                    filter=bloom checksum=xxh3";

/// As many levels as Weft has.
const LEVELS: usize = 7;

/// RocksDB's name for a compression.
///
/// # Errors
/// The peer is built with LZ4 alone.
pub(crate) fn compression_type(compression: Compression) -> Result<DBCompressionType, LoadError> {
    match compression {
        Compression::None => Ok(DBCompressionType::None),
        Compression::Lz4 => Ok(DBCompressionType::Lz4),
        Compression::Zstd => Err(LoadError("the peer is built without zstd".to_owned())),
    }
}

/// RocksDB's options for a shape.
///
/// # Errors
/// A compression that the peer does not have.
pub(crate) fn options(shape: &StoreShape) -> Result<Options, LoadError> {
    let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let mut table = BlockBasedOptions::default();
    table.set_block_size(shape.block_bytes);
    table.set_block_restart_interval(16);
    if shape.filter_bits_per_key > 0 {
        table.set_bloom_filter(f64::from(shape.filter_bits_per_key), false);
    }
    table.set_block_cache(&Cache::new_lru_cache(shape.block_cache_bytes));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size(shape.memtable_bytes);
    options.set_max_write_buffer_number(number(shape.memtables_max.max(2)));
    options.set_num_levels(number(LEVELS));
    options.set_level_zero_file_num_compaction_trigger(number(shape.level0_tables));
    options.set_level_compaction_dynamic_level_bytes(false);
    options.set_max_bytes_for_level_base(shape.level1_bytes);
    options.set_max_bytes_for_level_multiplier(10.0);
    options.set_target_file_size_base(shape.table_bytes);
    options.set_max_background_jobs(2);
    options.set_max_subcompactions(1);
    let mut levels = [compression_type(shape.compression)?; LEVELS];
    levels[0] = DBCompressionType::None;
    options.set_compression_per_level(&levels);
    if shape.io == TableIo::Direct {
        // Writes of flushes and compactions, and the reads of both and of users.
        options.set_use_direct_io_for_flush_and_compaction(true);
        options.set_use_direct_reads(true);
    }
    Ok(options)
}

/// RocksDB.
pub struct RocksStore {
    db: DB,
    logged: WriteOptions,
}

impl RocksStore {
    /// Opens a database in `dir`.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn open(dir: &Path, shape: &StoreShape) -> Result<RocksStore, LoadError> {
        let opened = DB::open(&options(shape)?, dir);
        let db = opened.map_err(|error| LoadError::doing("opening RocksDB", error))?;
        Ok(RocksStore {
            db,
            logged: WriteOptions::default(),
        })
    }

    fn number(&self, property: &properties::PropName) -> u64 {
        self.db.property_int_value(property).ok().flatten().unwrap_or(0)
    }
}

impl KeyValueStore for RocksStore {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        let written = self.db.put_opt(key, value, &self.logged);
        written.map_err(|error| LoadError::doing("writing to RocksDB", error))
    }

    fn get(&self, key: &[u8], look: &mut dyn FnMut(&[u8]) -> bool) -> Result<Option<bool>, LoadError> {
        let found = self.db.get_pinned(key);
        let found = found.map_err(|error| LoadError::doing("reading from RocksDB", error))?;
        Ok(found.map(|value| look(&value)))
    }

    fn settle(&self) -> Result<(), LoadError> {
        let failed = |error| LoadError::doing("settling RocksDB", error);
        self.db.flush().map_err(failed)?;
        self.db
            .wait_for_compact(&WaitForCompactOptions::default())
            .map_err(failed)
    }

    fn debt_bytes(&self) -> u64 {
        self.number(properties::ESTIMATE_PENDING_COMPACTION_BYTES)
    }

    fn memory_bytes(&self) -> u64 {
        self.number(properties::CUR_SIZE_ALL_MEM_TABLES) + self.number(properties::BLOCK_CACHE_USAGE)
    }

    fn waited_nanos(&self) -> Option<u64> {
        None
    }
}
