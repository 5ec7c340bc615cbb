//! Weft's engine beside RocksDB in one run, without the rest of the database: what `weft bench compaction`
//! and `weft bench lsm` measure, as one table of ratios.
//!
//! ```text
//! cargo run --release -p weft-lsm-bench --features peers --example beside_rocksdb --
//!     compaction [ROUNDS [MEGABYTES [DIR [VALUE_BYTES,...]]]]
//!     | load [SECONDS [VALUE_BYTES,... [none|lz4 [DIR [buffered|direct]]]]]
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_lsm::TableIo;
use weft_lsm_bench::LoadError;
use weft_lsm_bench::compaction::{Compaction, Executor, TaskShape};
use weft_lsm_bench::key_value::{
    Case, CaseRun, Compactor, KeyValueStore, KeyValues, RocksStore, RunSchedule, StoreShape, WeftStore,
    io_name, run_case,
};
use weft_ops::block::Compression;

const KEYS: u64 = 1_000_000;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), LoadError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, usual: &str| words.get(at).map_or(usual.to_owned(), Clone::clone);
    let number = |at: usize, usual: f64| word(at, "").parse().unwrap_or(usual);
    let usual_dir = std::env::temp_dir().join(format!("beside-rocksdb-{}", std::process::id()));
    match word(0, "compaction").as_str() {
        "load" => {
            let io = if word(5, "buffered") == "direct" {
                TableIo::Direct
            } else {
                TableIo::Buffered
            };
            let compression = if word(3, "lz4") == "none" {
                Compression::None
            } else {
                Compression::Lz4
            };
            let dir = words.get(4).map_or(usual_dir, PathBuf::from);
            let shape = StoreShape {
                compression,
                io,
                ..StoreShape::default()
            };
            for value_bytes in list(&word(2, "128")) {
                load(number(1, 5.0), value_bytes, &shape, &dir)?;
            }
            Ok(())
        }
        _ => {
            let dir = words.get(3).map_or(usual_dir, PathBuf::from);
            let values = list(&word(4, "32,128,512,1024"));
            compaction(
                number(1, 3.0) as usize,
                (number(2, 64.0) * 1e6) as u64,
                &dir,
                &values,
            )
        }
    }
}

fn list(words: &str) -> Vec<usize> {
    words.split(',').filter_map(|word| word.parse().ok()).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// One-thread compaction: MB of input blocks per CPU second, and the ratios that matter; both engines
/// through the page cache and past it, in alternation.
fn compaction(rounds: usize, bytes: u64, dir: &Path, values: &[usize]) -> Result<(), LoadError> {
    println!(
        "value compression       io   merge  engine rocksdb   engine/merge  engine/rocksdb   (MB/s of CPU time)"
    );
    for compression in [Compression::None, Compression::Lz4] {
        for &value_bytes in values {
            let failed = |error| LoadError::doing("compacting", error);
            let shape = TaskShape {
                ways: 4,
                value_bytes,
                compression,
                bytes,
                seed: 9,
            };
            let task = Compaction::new(&shape).map_err(failed)?;
            let modes = [TableIo::Buffered, TableIo::Direct];
            let contenders = |io| [Executor::Cpu, Executor::Engine(io), Executor::RocksDb(io)];
            let mut rates = modes.map(|io| (io, contenders(io).map(|by| (by, Vec::new()))));
            for _ in 0..rounds {
                for (by, rates) in rates.iter_mut().flat_map(|(_, rates)| rates) {
                    rates.push(task.round(*by, 1, dir).map_err(failed)?.bytes / 1e6);
                }
            }
            for (io, rates) in rates {
                let [merge, engine, rocksdb] = rates.map(|(_, rates)| median(rates));
                println!(
                    "{value_bytes:>5} {:>11} {:>8} {merge:>7.0} {engine:>7.0} {rocksdb:>7.0} {:>14.2} {:>15.2}",
                    format!("{compression:?}"),
                    io_name(io),
                    engine / merge,
                    engine / rocksdb
                );
            }
        }
    }
    Ok(())
}

/// Fill, overwrite, reads: operations a second of both, and the ratio.
fn load(seconds: f64, value_bytes: usize, shape: &StoreShape, dir: &Path) -> Result<(), LoadError> {
    let schedule = RunSchedule {
        warmup: Duration::from_secs_f64(seconds * 0.2),
        steady: Duration::from_secs_f64(seconds),
        slot: Duration::from_millis(500),
    };
    println!(
        "value {value_bytes}, {:?}, {}: 1000/s, jitter, p99.9 in us; weft | rocksdb | ratio",
        shape.compression,
        io_name(shape.io)
    );
    let open = |name: &str| -> Result<[Box<dyn KeyValueStore>; 2], LoadError> {
        Ok([
            Box::new(WeftStore::open(
                &fresh(dir, &format!("weft-{name}"))?,
                shape,
                Compactor::Cpu,
            )?),
            Box::new(RocksStore::open(&fresh(dir, &format!("rocksdb-{name}"))?, shape)?),
        ])
    };
    let one = |stores: &[Box<dyn KeyValueStore>; 2], case| -> Result<(), LoadError> {
        let mut runs: Vec<CaseRun> = Vec::new();
        for store in stores {
            store.settle()?;
            runs.push(run_case(&**store, case, KEYS, value_bytes, &schedule, 3)?);
        }
        let shown: Vec<String> = runs.iter().map(show).collect();
        let ratio = match runs.as_slice() {
            [weft, rocksdb] => weft.throughput() / rocksdb.throughput(),
            _ => f64::NAN,
        };
        println!("{:>20} {} | {ratio:.2}", case.name(), shown.join(" | "));
        Ok(())
    };
    one(&open("fill")?, Case::Fill)?;
    let stores = open("loaded")?;
    for store in &stores {
        let mut data = KeyValues::new(value_bytes, 1);
        (0..KEYS).try_for_each(|number| data.put(number, &**store))?;
    }
    for case in [
        Case::Overwrite,
        Case::Read,
        Case::Mixed(50),
        Case::ReadWhileWriting,
    ] {
        one(&stores, case)?;
    }
    drop(stores);
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

fn show(run: &CaseRun) -> String {
    let slow = run.latency_ns.value_at_percentile(99.9) as f64 / 1e3;
    let writes = run
        .writes_beside
        .map_or_else(String::new, |rate| format!(" +{:.0} writes", rate / 1e3));
    format!(
        "{:>5.0}{writes} {:>5.2} {slow:>6.0}",
        run.throughput() / 1e3,
        run.jitter()
    )
}

fn fresh(dir: &Path, name: &str) -> Result<PathBuf, LoadError> {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).map_err(|error| LoadError::doing("making a directory", error))?;
    Ok(dir)
}
