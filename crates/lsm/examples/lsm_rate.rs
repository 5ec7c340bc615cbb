//! How quickly one writer fills and overwrites an engine on a real disk, and reads from it: per second and
//! in all.
//!
//! Keys of 16 bytes; values half random, half zeros. Writes go into the log and are not synced.
//!
//! ```text
//! cargo run --release -p weft-lsm --example lsm_rate --
//!     DIR [fill|overwrite|read [value_bytes [seconds [million_keys]]]]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::{Prng, RealDisk, SystemClock};
use weft_lsm::{FamilyId, Lsm, LsmError, LsmOptions, WriteBatch, WriteOptions};

const FAMILY: FamilyId = FamilyId(0);

struct Bench {
    lsm: Lsm,
    prng: Prng,
    value: Vec<u8>,
    batch: WriteBatch,
    key_count: u64,
}

impl Bench {
    fn write(&mut self, number: u64) -> Result<(), LsmError> {
        let key = format!("{number:016}");
        let half = self.value.len() / 2;
        self.prng.fill(&mut self.value[..half]);
        self.batch.clear();
        self.batch.put(FAMILY, key.as_bytes(), &self.value);
        self.lsm.write(&self.batch, WriteOptions::default())?;
        Ok(())
    }

    fn read(&mut self) -> Result<bool, LsmError> {
        let key = format!("{:016}", self.prng.below(self.key_count));
        Ok(self.lsm.get(FAMILY, key.as_bytes())?.is_some())
    }

    /// Operations each second.
    fn run(
        &mut self,
        limit: Duration,
        mut operation: impl FnMut(&mut Self, u64) -> Result<bool, LsmError>,
    ) -> Result<(), LsmError> {
        let begun = Instant::now();
        let mut series = Vec::new();
        let (mut count, mut second_begun, mut before) = (0_u64, begun, 0);
        loop {
            let more = operation(self, count)?;
            count += 1;
            if count.is_multiple_of(64) || !more {
                let elapsed = second_begun.elapsed();
                if elapsed >= Duration::from_secs(1) {
                    series.push((count - before) as f64 / elapsed.as_secs_f64() / 1e3);
                    (second_begun, before) = (Instant::now(), count);
                }
                if !more || begun.elapsed() >= limit {
                    break;
                }
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        let rate = count as f64 / seconds / 1e3;
        let mut sorted = series.clone();
        sorted.sort_by(f64::total_cmp);
        let jitter = match (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2)) {
            (Some(min), Some(max), Some(median)) => (max - min) / median,
            _ => 0.0,
        };
        let shown: Vec<String> = series.iter().map(|rate| format!("{rate:.0}")).collect();
        println!(
            "{count} operations in {seconds:.1} s: {rate:.1} K/s, jitter {:.0} %",
            100.0 * jitter
        );
        println!("K/s each second: {}", shown.join(" "));
        Ok(())
    }
}

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), LsmError> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, usual: u64| {
        arguments
            .get(at)
            .and_then(|arg| arg.parse().ok())
            .unwrap_or(usual)
    };
    let dir = arguments.get(1).map_or("/dev/shm/lsm-rate", String::as_str);
    let case = arguments.get(2).map_or("fill", String::as_str);
    let value_bytes = number(3, 128) as usize;
    let limit = Duration::from_secs(number(4, 20));
    let key_count = number(5, 4) * 1_000_000;
    let clock = Arc::new(SystemClock::new());
    let lsm = Lsm::open(
        Arc::new(RealDisk::new()),
        Path::new(dir),
        LsmOptions::default(),
        clock,
    )?;
    let mut bench = Bench {
        lsm,
        prng: Prng::new(1),
        value: vec![0; value_bytes],
        batch: WriteBatch::new(),
        key_count,
    };
    match case {
        "fill" => bench.run(limit, |bench, count| {
            let number = bench.prng.below(key_count);
            bench.write(number)?;
            Ok(count + 1 < key_count)
        })?,
        "overwrite" => bench.run(limit, |bench, _| {
            let number = bench.prng.below(key_count);
            bench.write(number)?;
            Ok(true)
        })?,
        _ => {
            let mut found = 0_u64;
            bench.run(limit, |bench, _| {
                found += u64::from(bench.read()?);
                Ok(true)
            })?;
            println!("{found} found");
        }
    }
    let stats = bench.lsm.stats();
    println!(
        "slowed {:.2} s, full {:.2} s, pressure {:.2}, debt {} MB, flushes {} ({} MB in {:.1} s)",
        stats.slowed_nanos as f64 / 1e9,
        stats.full_nanos as f64 / 1e9,
        stats.pressure,
        stats.debt_bytes / 1_000_000,
        stats.flushes,
        stats.flushed_bytes / 1_000_000,
        stats.flush_nanos as f64 / 1e9,
    );
    for (level, stats) in stats
        .levels
        .iter()
        .enumerate()
        .filter(|(_, level)| level.tables > 0)
    {
        println!(
            "level {level}: {} tables, {} MB; {} compactions read {} MB, wrote {} MB in {:.1} s",
            stats.tables,
            stats.bytes / 1_000_000,
            stats.compactions,
            stats.compacted_bytes_in / 1_000_000,
            stats.compacted_bytes_out / 1_000_000,
            stats.compaction_nanos as f64 / 1e9,
        );
    }
    if let Some(error) = stats.flush_error.or(stats.compaction_error) {
        println!("{error}");
    }
    bench.lsm.close()
}
