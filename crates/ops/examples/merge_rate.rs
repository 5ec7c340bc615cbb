//! How quickly one thread merges in memory: MB of input per second of its processor time; and what share of
//! that time it takes to look through the result, as is done with one that somebody else has computed.
//!
//! Four runs of 16-byte keys, a quarter of them overwritten, blocks of 16 KiB, restart interval 16,
//! checksums checked and written. Values are half random, half zeros, so that LZ4 has something to find.
//!
//! `cargo run --release -p weft-ops --example merge_rate -- [rounds [value_bytes [none|lz4|zstd]]]`

use bytes::Bytes;
use weft_base::Prng;
use weft_base::clock::thread_cpu_nanos;
use weft_ops::block::{BlockBuilder, BlockOptions, Compression};
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::{CheckedMerge, MergeTask, Run, merge};

const RUNS: u64 = 4;
const INPUT_BYTES: u64 = 32 << 20;

fn task(value_bytes: usize, compression: Compression) -> MergeTask {
    let options = BlockOptions {
        compression,
        ..BlockOptions::default()
    };
    let mut prng = Prng::new(7);
    let count = INPUT_BYTES / RUNS / (value_bytes as u64 + 24);
    let keys = count * RUNS * 3 / 4;
    let runs = (0..RUNS)
        .map(|run| {
            let mut numbers: Vec<u64> = (0..count).map(|_| prng.below(keys)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let mut builder = BlockBuilder::new(options);
            let mut blocks: Vec<Bytes> = Vec::new();
            let mut last = Vec::new();
            let mut value = vec![0; value_bytes];
            for number in numbers {
                let key = format!("{number:016}").into_bytes();
                prng.fill(&mut value[..value_bytes / 2]);
                let seqno = SeqNo((RUNS - run) * 1_000_000_000 + number);
                builder.add(&last, &key, Stamp::new(seqno, EntryKind::Value), &value);
                last = key;
                if builder.is_full() {
                    blocks.extend(builder.finish().map(|block| block.bytes));
                }
            }
            blocks.extend(builder.finish().map(|block| block.bytes));
            Run { blocks }
        })
        .collect();
    MergeTask {
        runs,
        output: options,
        output_bytes_max: u64::MAX,
        key_hashes: true,
        ..MergeTask::default()
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let rounds: usize = arguments.get(1).and_then(|arg| arg.parse().ok()).unwrap_or(9);
    let only_bytes: Option<usize> = arguments.get(2).and_then(|arg| arg.parse().ok());
    let only_compression = arguments.get(3).map(String::as_str);
    println!("MB of logical input (key + value) per CPU second, median of {rounds}; MB as stored beside it");
    println!(
        "{:>6} {:>12} {:>8} {:>8} {:>10} {:>10} {:>6}",
        "value", "compression", "logical", "stored", "ns/entry", "look", "share"
    );
    for value_bytes in [32, 128, 512, 1024] {
        for (name, compression) in [
            ("none", Compression::None),
            ("lz4", Compression::Lz4),
            ("zstd", Compression::Zstd),
        ] {
            if only_bytes.is_some_and(|only| only != value_bytes)
                || only_compression.is_some_and(|only| only != name)
            {
                continue;
            }
            let task = task(value_bytes, compression);
            let stored = task.block_bytes() as f64 / 1e6;
            let (mut seconds, mut look_seconds) = (Vec::new(), Vec::new());
            let mut entries = 0;
            for _ in 0..rounds {
                let before = thread_cpu_nanos();
                let output = merge(&task);
                seconds.push((thread_cpu_nanos() - before) as f64 / 1e9);
                match output {
                    Ok(output) => {
                        entries = output.entries_in;
                        let before = thread_cpu_nanos();
                        let looked = CheckedMerge::validate(output, &task);
                        look_seconds.push((thread_cpu_nanos() - before) as f64 / 1e9);
                        if let Err(flaw) = looked {
                            println!("{flaw}");
                        }
                    }
                    Err(error) => println!("{error}"),
                }
            }
            let (median, look) = (median(seconds), median(look_seconds));
            let logical = entries as f64 * (value_bytes as f64 + 16.0) / 1e6;
            println!(
                "{value_bytes:>6} {name:>12} {:>8.0} {:>8.0} {:>10.1} {:>10.1} {:>5.0}%",
                logical / median,
                stored / median,
                median * 1e9 / entries as f64,
                look * 1e9 / entries as f64,
                100.0 * look / median
            );
        }
    }
}
