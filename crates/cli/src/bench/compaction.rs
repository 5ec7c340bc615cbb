//! `weft bench compaction`: merging sorted runs, comparing executors on the same task.
//!
//! `throughput` is bytes of input blocks per second: of the thread's processor time for `cpu`, of the
//! process's for `runtime`, `engine` and `rocksdb`, and for `model` of *simulated* cycles at its stated
//! clock rate, which is in the name of its case. Its ratio is to `cpu`, the bare merge in memory;
//! `times_rocksdb` is that of `engine` to RocksDB with the same kind of I/O, through the page cache or past
//! it. `jitter` is the spread of the rounds, (largest - smallest) / median.

use weft_lsm_bench::compaction::{Compaction, Executor, FILTER_BITS_PER_KEY, KEY_BYTES, Rate, TaskShape};
use weft_lsm_bench::key_value::io_name;
use weft_offload::model::ModelParams;
use weft_ops::block::Compression;
use weft_workload::Record;
use weft_workload::driver::median;

use super::lsm::table_io;
use super::print;
use crate::arguments::{BlockCompression, CompactionArguments, CompactionUnit};
use crate::failure::Failure;

const SEED: u64 = 9;

/// Measures and prints.
pub(crate) fn run(arguments: &CompactionArguments) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    if !(0.001..=3600.0).contains(&arguments.seconds) {
        return usage("--seconds must be between 0.001 and 3600");
    }
    if arguments.value_bytes.iter().any(|bytes| *bytes > 1 << 20) {
        return usage("--value-bytes must be at most 1048576");
    }
    let contenders = contenders(arguments)?;
    let mut found = Vec::new();
    for compression in &arguments.compression {
        for value_bytes in &arguments.value_bytes {
            let shape = TaskShape {
                ways: arguments.ways,
                value_bytes: *value_bytes,
                compression: match compression {
                    BlockCompression::None => Compression::None,
                    BlockCompression::Lz4 => Compression::Lz4,
                },
                bytes: arguments.bytes,
                seed: SEED,
            };
            found.extend(measure(arguments, &shape, &contenders)?);
        }
    }
    print(arguments.json, "Merging sorted runs", &found)
}

/// The names and executors of the contenders.
fn contenders(arguments: &CompactionArguments) -> Result<Vec<(String, Executor)>, Failure> {
    let mut contenders = Vec::new();
    for unit in &arguments.unit {
        match unit {
            CompactionUnit::Cpu => contenders.push(("cpu".to_owned(), Executor::Cpu)),
            CompactionUnit::Runtime => contenders.push(("runtime".to_owned(), Executor::Runtime)),
            CompactionUnit::Engine => {
                let by_io = arguments.io.iter().map(|io| table_io(*io));
                contenders.extend(by_io.map(|io| (format!("engine, {}", io_name(io)), Executor::Engine(io))));
            }
            #[cfg(feature = "peers")]
            CompactionUnit::Rocksdb => {
                let by_io = arguments.io.iter().map(|io| table_io(*io));
                contenders
                    .extend(by_io.map(|io| (format!("rocksdb, {}", io_name(io)), Executor::RocksDb(io))));
            }
            CompactionUnit::Model => {
                for decoders in &arguments.decoders {
                    let params = ModelParams {
                        decoders: *decoders,
                        ..ModelParams::of_width(arguments.width)
                    };
                    params
                        .check()
                        .map_err(|why| Failure::Usage(format!("--decoders {decoders}: {why}")))?;
                    let name = format!(
                        "model {decoders} decoders, {} bytes a cycle, simulated at {} MHz",
                        arguments.width, params.clock_mhz
                    );
                    contenders.push((name, Executor::Model(params)));
                }
            }
        }
    }
    Ok(contenders)
}

/// RocksDB with the same kind of I/O, for the engine.
#[cfg(feature = "peers")]
const fn peer_of(executor: Executor) -> Option<Executor> {
    match executor {
        Executor::Engine(io) => Some(Executor::RocksDb(io)),
        _ => None,
    }
}

#[cfg(not(feature = "peers"))]
const fn peer_of(_: Executor) -> Option<Executor> {
    None
}

fn measure(
    arguments: &CompactionArguments,
    shape: &TaskShape,
    contenders: &[(String, Executor)],
) -> Result<Vec<Record>, Failure> {
    let failed = |error| Failure::doing("merging", error);
    let compaction = Compaction::new(shape).map_err(failed)?;
    let nanos = (arguments.seconds * 1e9) as u64;
    let home = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = home.join(format!("weft-bench-compaction-{}", std::process::id()));
    let mut rounds: Vec<Vec<Rate>> = vec![Vec::new(); contenders.len()];
    for _ in 0..arguments.rounds {
        for ((_, executor), rates) in contenders.iter().zip(&mut rounds) {
            rates.push(compaction.round(*executor, nanos, &dir).map_err(failed)?);
        }
    }
    let compression = match shape.compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::Zstd => "zstd",
    };
    let config = format!(
        "ways={} key_bytes={KEY_BYTES} value_bytes={} compression={compression} block_bytes=16384 filter_bits={FILTER_BITS_PER_KEY} \
         input_bytes={} entries={} seconds={} rounds={} version={}",
        shape.ways,
        shape.value_bytes,
        compaction.input_bytes(),
        compaction.entries(),
        arguments.seconds,
        arguments.rounds,
        env!("CARGO_PKG_VERSION"),
    );
    let case = |name: &str| format!("value={} {compression} {name}", shape.value_bytes);
    let mid = |rates: &[Rate], figure: fn(&Rate) -> f64| median(rates.iter().map(figure).collect());
    let cpu = contenders
        .iter()
        .position(|(_, executor)| *executor == Executor::Cpu);
    let base = cpu
        .and_then(|at| rounds.get(at))
        .map(|rates| mid(rates, |rate| rate.bytes));
    let peers: Vec<Option<f64>> = contenders
        .iter()
        .map(|(_, executor)| {
            let peer = peer_of(*executor)?;
            let at = contenders.iter().position(|(_, other)| *other == peer)?;
            rounds.get(at).map(|rates| mid(rates, |rate| rate.bytes))
        })
        .collect();
    let mut found = Vec::new();
    for (((name, executor), rates), peer) in contenders.iter().zip(&rounds).zip(peers) {
        let bytes = mid(rates, |rate| rate.bytes);
        let against = base.filter(|base| *base > 0.0 && *executor != Executor::Cpu);
        let spread = rates.iter().map(|rate| rate.bytes);
        let (least, most) = (
            spread.clone().fold(f64::MAX, f64::min),
            spread.fold(0.0, f64::max),
        );
        let entries = mid(rates, |rate| rate.entries);
        let mut add = |metric: &str, unit: &str, value: f64, against: Option<f64>| {
            let record = Record::new("compaction", &case(name), &config, metric, value, unit);
            found.push(record.versus(against.map(|against| ("cpu", against))));
        };
        add("throughput", "B/s", bytes, against);
        add("entries", "1/s", entries, None);
        if let Some(peer) = peer.filter(|peer| *peer > 0.0) {
            add("times_rocksdb", "1", bytes / peer, None);
        }
        add(
            "jitter",
            "1",
            if bytes > 0.0 { (most - least) / bytes } else { 0.0 },
            None,
        );
        if let Some(rate) = rates.first().filter(|rate| rate.cycles > 0) {
            let per_entry = rate.cycles as f64 / compaction.entries().max(1) as f64;
            add("simulated_cycles_per_entry", "1", per_entry, None);
        }
    }
    Ok(found)
}
