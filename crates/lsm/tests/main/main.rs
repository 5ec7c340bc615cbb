//! The engine as a whole: against an ordered map, under crashes, against damage, under threads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod bounds;
mod corruption;
mod crash;
mod direct;
mod directories;
mod executors;
mod full_disk;
mod ingest;
mod iterators;
mod large_values;
mod limits;
mod model;
mod panics;
mod units;
mod watched;

use std::path::Path;
use std::sync::Arc;

use weft_base::{Disk, ManualClock};
use weft_lsm::{Background, Lsm, LsmError, LsmOptions, TableIo};
use weft_ops::block::Compression;

const DIR: &str = "/db/lsm";

/// An engine so small that some hundred writes go through all of it.
fn tiny() -> LsmOptions {
    let mut options = LsmOptions {
        memtable_bytes: 6000,
        block_cache_bytes: 64 << 10,
        block_bytes: 256,
        restart_interval: 3,
        large_value_bytes: 300,
        table_bytes: 1500,
        level0_tables: 3,
        level1_bytes: 4000,
        level_factor: 3,
        task_bytes: 700,
        background: Background::Inline,
        base_compression: Compression::Lz4,
        ..LsmOptions::default()
    };
    options.levels[3].dir = Some("/db/cold".into());
    // Flushes past the page cache, level 1 through it, and what is deeper past it again.
    for level in [0, 2, 3, 4, 5, 6] {
        options.levels[level].io = TableIo::Direct;
    }
    options
}

/// How many seeds a random test looks at: `WEFT_SEEDS`, or the usual number.
fn seed_count(usual: u64) -> u64 {
    let wanted = std::env::var("WEFT_SEEDS").ok();
    wanted.and_then(|number| number.parse().ok()).unwrap_or(usual)
}

fn open_with(disk: &dyn DiskHandle, options: LsmOptions) -> Result<Lsm, LsmError> {
    Lsm::open(
        disk.handle(),
        Path::new(DIR),
        options,
        Arc::new(ManualClock::new(0)),
    )
}

/// What can be shared as a disk.
trait DiskHandle {
    fn handle(&self) -> Arc<dyn Disk>;
}

impl<D: Disk + Clone + 'static> DiskHandle for D {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
}
