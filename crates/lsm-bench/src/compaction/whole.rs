//! A whole compaction by an engine on one thread: reading tables, merging, filters, writing and syncing
//! tables, all but the waiting.
//!
//! The runs of a [`TaskShape`] are written and flushed one after the other; the oldest is moved to level 1,
//! the others stay in level 0. What is measured is the compaction of all of them into level 1, in seconds
//! of the whole process's processor time: RocksDB compacts on a thread of its own. The files lie in the page
//! cache for everybody, or go past it for everybody.

use std::path::Path;
use std::sync::Arc;

use weft_base::clock::process_cpu_nanos;
use weft_base::{RealDisk, SystemClock};
use weft_lsm::{
    Background, FamilyId, Lsm, LsmError, LsmOptions, TASK_RUNS_MAX, TableIo, WriteBatch, WriteOptions,
};

use super::data::TaskShape;
use crate::LoadError;
use crate::key_value::{StoreShape, engine_options};

/// Entries of a batch while loading.
const BATCH_ENTRIES: u32 = 100;

/// Bits of filter per key, for all engines.
pub const FILTER_BITS_PER_KEY: u32 = 10;

/// An engine's settings for a task: nothing is compacted until it is told.
pub(super) fn store_shape(shape: &TaskShape, io: TableIo) -> StoreShape {
    StoreShape {
        // A run is one table.
        memtable_bytes: 1 << 30,
        table_bytes: 1 << 30,
        filter_bits_per_key: FILTER_BITS_PER_KEY,
        compression: shape.compression,
        io,
        ..StoreShape::default()
    }
}

/// Compacts with Weft's engine in `dir`, which is made and removed. Nanoseconds of processor time, and the
/// entries that were read.
///
/// # Errors
/// The engine's; more runs than one compaction takes; direct access where there is none.
pub(super) fn compact_with_engine(
    shape: &TaskShape,
    io: TableIo,
    dir: &Path,
) -> Result<(u64, u64), LoadError> {
    if !(2..=TASK_RUNS_MAX as u64).contains(&shape.ways) {
        let why = format!("an engine compacts 2 to {TASK_RUNS_MAX} runs at a time: a single one it moves");
        return Err(LoadError(why));
    }
    let fresh = Fresh::make(dir)?;
    let measured = load_and_compact(shape, io, fresh.0);
    let (nanos, entries, refused) = measured.map_err(|error| LoadError::doing("compacting", error))?;
    if refused > 0 {
        // What was measured is not what was asked for.
        let why = format!("{} lies on a file system without direct access", dir.display());
        return Err(LoadError(why));
    }
    Ok((nanos, entries))
}

fn load_and_compact(shape: &TaskShape, io: TableIo, dir: &Path) -> Result<(u64, u64, u64), LsmError> {
    let mut options = LsmOptions {
        background: Background::Inline,
        compact: false,
        ..engine_options(&store_shape(shape, io))
    };
    for level in &mut options.levels {
        level.compression = shape.compression;
    }
    let lsm = Lsm::open(
        Arc::new(RealDisk::new()),
        dir,
        options,
        Arc::new(SystemClock::new()),
    )?;
    let unlogged = WriteOptions {
        sync: false,
        log: false,
    };
    for run in (0..shape.ways).rev() {
        let mut batch = WriteBatch::new();
        shape.for_each(|of, key, _, value| {
            if of == run {
                batch.put(FamilyId(0), key, value);
            }
            if batch.count() < BATCH_ENTRIES {
                return Ok::<(), LsmError>(());
            }
            lsm.write(&batch, unlogged)?;
            batch.clear();
            Ok(())
        })?;
        lsm.write(&batch, unlogged)?;
        lsm.flush()?;
        if run + 1 == shape.ways {
            lsm.compact_all()?;
        }
    }
    let entries = |lsm: &Lsm| -> u64 { lsm.stats().levels.iter().map(|level| level.entries_in).sum() };
    let before = (process_cpu_nanos(), entries(&lsm));
    lsm.compact_all()?;
    let nanos = process_cpu_nanos() - before.0;
    Ok((nanos, entries(&lsm) - before.1, lsm.stats().direct_refused_files))
}

/// A directory that goes with it.
pub(super) struct Fresh<'a>(&'a Path);

impl<'a> Fresh<'a> {
    pub(super) fn make(dir: &'a Path) -> Result<Fresh<'a>, LoadError> {
        let made = std::fs::create_dir_all(dir);
        made.map_err(|error| LoadError::doing("making a directory", error))?;
        Ok(Fresh(dir))
    }

    #[cfg(feature = "peers")]
    pub(super) fn path(&self) -> &Path {
        self.0
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0);
    }
}
