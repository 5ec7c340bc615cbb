//! The same compaction by RocksDB.

use std::path::Path;

use rocksdb::{DB, FlushOptions, WriteBatch, WriteOptions};
use weft_base::clock::process_cpu_nanos;
use weft_lsm::TableIo;

use super::data::TaskShape;
use super::whole::{Fresh, store_shape};
use crate::LoadError;
use crate::key_value::{compression_type, rocks_options};

/// Compacts in `dir`, which is made and removed. Nanoseconds of processor time.
///
/// # Errors
/// RocksDB's; files that stay in level 0.
pub(super) fn compact_with_rocksdb(shape: &TaskShape, io: TableIo, dir: &Path) -> Result<u64, LoadError> {
    let fresh = Fresh::make(dir)?;
    let mut options = rocks_options(&store_shape(shape, io))?;
    options.set_disable_auto_compactions(true);
    options.set_compression_per_level(&[compression_type(shape.compression)?; 7]);
    let failed = |error| LoadError::doing("RocksDB", error);
    let db = DB::open(&options, fresh.path()).map_err(failed)?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut flush = FlushOptions::default();
    flush.set_wait(true);
    let everything = (None::<&[u8]>, None::<&[u8]>);
    for run in (0..shape.ways).rev() {
        let mut batch = WriteBatch::default();
        shape.for_each(|of, key, _, value| {
            if of == run {
                batch.put(key, value);
            }
            if batch.len() < 100 {
                return Ok(());
            }
            db.write_opt(std::mem::take(&mut batch), &unlogged)
                .map_err(failed)
        })?;
        db.write_opt(batch, &unlogged).map_err(failed)?;
        db.flush_opt(&flush).map_err(failed)?;
        if run + 1 == shape.ways {
            db.compact_range(everything.0, everything.1);
        }
    }
    let before = process_cpu_nanos();
    db.compact_range(everything.0, everything.1);
    let nanos = process_cpu_nanos() - before;
    let left = db
        .property_int_value("rocksdb.num-files-at-level0")
        .map_err(failed)?;
    match left {
        None | Some(0) => Ok(nanos),
        Some(files) => Err(LoadError(format!("RocksDB left {files} files in level 0"))),
    }
}
