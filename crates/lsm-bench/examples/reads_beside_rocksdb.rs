//! Random reads of Weft's engine beside RocksDB, by the processor time that one costs.
//!
//! Both are filled alike and settled; then they take turns, so that what else a machine does meets both.
//! Every value is checked. Processor time is that of the reading threads, from `/proc/thread-self/schedstat`:
//! it counts what a page cache costs, not what a disk makes a reader wait.
//!
//! ```text
//! cargo run --release -p weft-lsm-bench --features peers --example reads_beside_rocksdb --
//!     [ROUNDS [VALUE_BYTES,... [none|lz4 [THREADS [DIR]]]]]
//! ```

use std::path::{Path, PathBuf};
use std::time::Instant;

use weft_lsm_bench::LoadError;
use weft_lsm_bench::key_value::{
    Compactor, KeyValueStore, KeyValues, RocksStore, StoreShape, WeftStore, key,
};
use weft_ops::block::Compression;

const KEYS: u64 = 1_000_000;
/// Reads of each thread in a round.
const READS: u64 = 100_000;

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), LoadError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |at: usize, usual: &str| words.get(at).map_or(usual.to_owned(), Clone::clone);
    let rounds: usize = word(0, "5").parse().unwrap_or(5);
    let compression = if word(2, "lz4") == "none" {
        Compression::None
    } else {
        Compression::Lz4
    };
    let threads: usize = word(3, "1").parse().unwrap_or(1);
    let usual_dir = std::env::temp_dir().join(format!("reads-beside-rocksdb-{}", std::process::id()));
    let dir = words.get(4).map_or(usual_dir, PathBuf::from);
    for value_bytes in word(1, "128,1024")
        .split(',')
        .filter_map(|word| word.parse().ok())
    {
        let done = beside(rounds, value_bytes, compression, threads, &dir);
        let _ = std::fs::remove_dir_all(&dir);
        done?;
    }
    Ok(())
}

fn beside(
    rounds: usize,
    value_bytes: usize,
    compression: Compression,
    threads: usize,
    dir: &Path,
) -> Result<(), LoadError> {
    let shape = StoreShape {
        compression,
        ..StoreShape::default()
    };
    let stores: [Box<dyn KeyValueStore>; 2] = [
        Box::new(WeftStore::open(&fresh(dir, "weft")?, &shape, Compactor::Cpu)?),
        Box::new(RocksStore::open(&fresh(dir, "rocksdb")?, &shape)?),
    ];
    for store in &stores {
        let mut data = KeyValues::new(value_bytes, 1);
        (0..KEYS).try_for_each(|number| data.put(number, &**store))?;
        store.settle()?;
    }
    println!(
        "value {value_bytes}, {compression:?}, {threads} threads; us of processor a read, 1000 reads/s: weft | rocksdb | ratios"
    );
    let mut ratios = [Vec::new(), Vec::new()];
    // The first round fills the caches.
    for round in 0..=rounds {
        let mut costs = Vec::new();
        for store in &stores {
            costs.push(read(&**store, value_bytes, threads, round as u64)?);
        }
        if let ([weft, rocksdb], true) = (costs.as_slice(), round > 0) {
            println!(
                "  {:>6.2} {:>6.0} | {:>6.2} {:>6.0} | {:.2} {:.2}",
                weft.0,
                weft.1,
                rocksdb.0,
                rocksdb.1,
                rocksdb.0 / weft.0,
                weft.1 / rocksdb.1
            );
            ratios[0].push(rocksdb.0 / weft.0);
            ratios[1].push(weft.1 / rocksdb.1);
        }
    }
    let [processor, rate] = ratios.map(median);
    println!("  medians of the ratios: {processor:.2} by the processor, {rate:.2} by the clock");
    Ok(())
}

/// Microseconds of processor time a read, and thousands of reads a second of all threads.
fn read(
    store: &dyn KeyValueStore,
    value_bytes: usize,
    threads: usize,
    seed: u64,
) -> Result<(f64, f64), LoadError> {
    let begun = Instant::now();
    let one = |thread: usize| -> Result<u64, LoadError> {
        let mut data = KeyValues::new(value_bytes, seed << 8 | thread as u64);
        let before = processor_nanos()?;
        for _ in 0..READS {
            let number = data.below(KEYS);
            let found = store.get(&key(number), &mut |value| data.is_value(number, value))?;
            if found != Some(true) {
                return Err(LoadError(format!("value {number} is gone, or another's")));
            }
        }
        Ok(processor_nanos()? - before)
    };
    let outcomes: Vec<Result<u64, LoadError>> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined
            .map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    let nanos: u64 = outcomes.into_iter().sum::<Result<u64, LoadError>>()?;
    let reads = READS as f64 * threads as f64;
    Ok((nanos as f64 / reads / 1e3, reads / elapsed / 1e3))
}

/// Processor time of this thread so far.
fn processor_nanos() -> Result<u64, LoadError> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.map_err(|error| LoadError::doing("reading the processor time", error))?;
    let first = text.split_whitespace().next().unwrap_or_default();
    let nanos = first.parse();
    nanos.map_err(|error| LoadError::doing("reading the processor time", error))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn fresh(dir: &Path, name: &str) -> Result<PathBuf, LoadError> {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).map_err(|error| LoadError::doing("making a directory", error))?;
    Ok(dir)
}
