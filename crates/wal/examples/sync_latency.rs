//! Measures what a commit costs: append one small record and sync it, with and without reserved space.
//!
//! `cargo run --release -p weft-wal --example sync_latency -- DIRECTORY [COMMITS]`
//!
//! The directory should be on the disk in question; a subdirectory is made in it and removed.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use weft_base::{BatchId, RealDisk};
use weft_wal::{Log, LogConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments
        .next()
        .ok_or("usage: sync_latency DIRECTORY [COMMITS]")?;
    let commits: u64 = arguments.next().map_or(Ok(1000), |number| number.parse())?;
    let dir = Path::new(&dir).join("weft-sync-latency");
    for round in 0..2 {
        for preallocate in [false, true] {
            let mut micros = measure(&dir, preallocate, commits)?;
            micros.sort_unstable();
            let at = |share: f64| {
                micros
                    .get(((micros.len() - 1) as f64 * share) as usize)
                    .copied()
                    .unwrap_or(0)
            };
            let mean = micros.iter().sum::<u64>() / micros.len().max(1) as u64;
            println!(
                "round {round} reserved {preallocate:5}: mean {mean} us, median {} us, 99% {} us, max {} us",
                at(0.5),
                at(0.99),
                at(1.0)
            );
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

/// Microseconds of each commit.
fn measure(dir: &Path, preallocate: bool, commits: u64) -> Result<Vec<u64>, Box<dyn Error>> {
    let cfg = LogConfig {
        preallocate,
        ..LogConfig::default()
    };
    let (log, _) = Log::open(Arc::new(RealDisk), dir, cfg)?;
    let mut micros = Vec::new();
    for batch in 1..=commits {
        let start = Instant::now();
        let end = log.append(BatchId(batch), &[7; 200])?;
        log.sync_to(end)?;
        micros.push(start.elapsed().as_micros() as u64);
    }
    Ok(micros)
}
