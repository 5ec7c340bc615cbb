//! What values of 16 KiB cost in the tables and apart from them: bytes written for each byte of the user,
//! overwrites a second, reads a second, space.
//!
//! Both settings take turns on the same keys: all are written once in order, then overwritten at random, with
//! threads behind; the time includes flushing and compacting what is left. Nothing is compressed or synced
//! beyond what the engine syncs by itself. Bytes written are those of log, tables and value files.
//!
//! `cargo run --release -p weft-lsm --example large_values -- DIR [rounds [value_bytes [keys [overwrites]]]]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use weft_base::{Prng, RealDisk, SystemClock};
use weft_lsm::{FamilyId, Lsm, LsmError, LsmOptions, WriteBatch, WriteOptions};
use weft_ops::block::Compression;

const FAMILY: FamilyId = FamilyId(0);

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy)]
struct Shape {
    value_bytes: usize,
    keys: u64,
    overwrites: u64,
}

/// What one run measured.
#[derive(Clone, Copy, Default)]
struct Measured {
    overwrites_per_second: f64,
    /// Bytes of tables and value files written for each byte of keys and values, the log apart.
    amplification: f64,
    reads_per_second: f64,
    /// Bytes of files at the end for each byte of keys and values that are there.
    space: f64,
    collected_megabytes: f64,
}

fn options(large_value_bytes: usize) -> LsmOptions {
    let mut options = LsmOptions {
        memtable_bytes: 16 << 20,
        level1_bytes: 64 << 20,
        table_bytes: 16 << 20,
        base_compression: Compression::None,
        large_value_bytes,
        ..LsmOptions::default()
    };
    let levels = options.levels.iter_mut();
    levels.for_each(|level| level.compression = Compression::None);
    options
}

fn put(lsm: &Lsm, batch: &mut WriteBatch, key: u64, value: &[u8]) -> Result<(), LsmError> {
    batch.clear();
    batch.put(FAMILY, format!("{key:016}").as_bytes(), value);
    lsm.write(batch, WriteOptions::default()).map(drop)
}

fn run(dir: &Path, shape: Shape, large_value_bytes: usize) -> Result<Measured, LsmError> {
    // A directory that is not there yet is what is wanted.
    let _ = std::fs::remove_dir_all(dir);
    let clock = Arc::new(SystemClock::new());
    let lsm = Lsm::open(Arc::new(RealDisk::new()), dir, options(large_value_bytes), clock)?;
    let mut prng = Prng::new(7);
    let mut value = vec![0; shape.value_bytes];
    let mut batch = WriteBatch::new();
    prng.fill(&mut value);
    let settle = |lsm: &Lsm| lsm.flush().and_then(|()| lsm.compact());
    for key in 0..shape.keys {
        value[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
        put(&lsm, &mut batch, key, &value)?;
    }
    settle(&lsm)?;
    let begun = Instant::now();
    for _ in 0..shape.overwrites {
        value[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
        put(&lsm, &mut batch, prng.below(shape.keys), &value)?;
    }
    settle(&lsm)?;
    let seconds = begun.elapsed().as_secs_f64();
    let stats = lsm.stats();
    let compacted: u64 = stats.levels.iter().map(|level| level.compacted_bytes_out).sum();
    let written = stats.flushed_bytes + stats.flushed_value_bytes + compacted;
    let entry_bytes = (shape.value_bytes + 16) as f64;
    let files: u64 = stats.levels.iter().map(|level| level.bytes).sum::<u64>() + stats.value_bytes;
    let begun = Instant::now();
    let reads = shape.overwrites.min(20_000);
    for _ in 0..reads {
        lsm.get(FAMILY, format!("{:016}", prng.below(shape.keys)).as_bytes())?;
    }
    Ok(Measured {
        overwrites_per_second: shape.overwrites as f64 / seconds,
        amplification: written as f64 / ((shape.keys + shape.overwrites) as f64 * entry_bytes),
        reads_per_second: reads as f64 / begun.elapsed().as_secs_f64(),
        space: files as f64 / (shape.keys as f64 * entry_bytes),
        collected_megabytes: stats.collected_bytes as f64 / 1e6,
    })
}

fn median(runs: &[Measured], of: fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn main() -> Result<(), LsmError> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, usual: u64| {
        arguments
            .get(at)
            .and_then(|arg| arg.parse().ok())
            .unwrap_or(usual)
    };
    let dir = arguments.get(1).map_or("/tmp/large-values", String::as_str);
    let dir = PathBuf::from(dir);
    let shape = Shape {
        value_bytes: number(3, 16 << 10) as usize,
        keys: number(4, 16_000),
        overwrites: number(5, 48_000),
    };
    let settings = [("in tables", usize::MAX), ("apart", 4 << 10)];
    let mut runs = [Vec::new(), Vec::new()];
    for round in 0..number(2, 3) {
        // Whoever comes second finds another state of the disk.
        for at in [round as usize % 2, 1 - round as usize % 2] {
            runs[at].push(run(&dir, shape, settings[at].1)?);
        }
    }
    println!(
        "{:>10} {:>13} {:>14} {:>8} {:>6} {:>12}",
        "", "overwrites/s", "amplification", "reads/s", "space", "collected MB"
    );
    for ((name, _), runs) in settings.iter().zip(&runs) {
        println!(
            "{name:>10} {:>13.0} {:>14.2} {:>8.0} {:>6.2} {:>12.0}",
            median(runs, |run| run.overwrites_per_second),
            median(runs, |run| run.amplification),
            median(runs, |run| run.reads_per_second),
            median(runs, |run| run.space),
            median(runs, |run| run.collected_megabytes),
        );
    }
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}
