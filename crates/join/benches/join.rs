//! Joins of 16-byte tuples beside what memory allows in the same run, and beside the model.
//!
//! ```text
//! cargo bench -p weft-join --bench join -- [--threads N] [--rounds N] [--sizes 16x16,4x32] [--only NAME]
//!     [--pass-bits N] [--run-tuples N] [--partition-tuples N]
//! ```
//!
//! Sizes are millions (2^20) of build and probe tuples. Keys are all numbers below the build count, once each
//! on the build side and drawn at random on the probe side, in random order; rows are positions. Rates are
//! millions of input tuples (of both sides) a second, medians of the rounds. The results are counted and
//! their rows added up, which needs every pair.
//!
//! - `read`: reading both sides, in order.
//! - `lines`: reading both sides, and for every tuple one random cache line of memory as large as the table:
//!   written on the build side, read on the probe side, 24 prefetches ahead. What no unpartitioned join with
//!   a table of that size can exceed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_base::Prng;
use weft_base::memory::{PageMemory, Pages, prefetch};
use weft_join::{
    Algorithm, Compression, Count, Options, Phases, Report, Shape, Tuning, Tuple, calibrate, join,
};

struct Configuration {
    threads: usize,
    rounds: usize,
    sizes: Vec<(usize, usize)>,
    only: Option<String>,
    tuning: Tuning,
}

fn arguments() -> Configuration {
    let mut found = Configuration {
        threads: 2,
        rounds: 5,
        sizes: vec![(16, 16), (4, 32)],
        only: None,
        tuning: Tuning::default(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = match name.as_str() {
            "--bench" => continue,
            _ => arguments.next().unwrap_or_default(),
        };
        match name.as_str() {
            "--threads" => found.threads = value.parse().expect("a number"),
            "--rounds" => found.rounds = value.parse().expect("a number"),
            "--pass-bits" => found.tuning.pass_bits_max = value.parse().expect("a number"),
            "--run-tuples" => found.tuning.run_tuples = value.parse().expect("a number"),
            "--partition-tuples" => found.tuning.partition_tuples = value.parse().expect("a number"),
            "--only" => found.only = Some(value),
            "--sizes" => {
                let size = |text: &str| {
                    let (build, probe) = text.split_once('x').expect("build x probe");
                    (build.parse().expect("a number"), probe.parse().expect("a number"))
                };
                found.sizes = value.split(',').map(size).collect();
            }
            other => panic!("unknown argument {other}"),
        }
    }
    found
}

/// An array in huge pages, so that all algorithms find the same inputs.
struct Input {
    memory: PageMemory,
    len: usize,
}

impl Input {
    fn new(tuples: impl Iterator<Item = Tuple>, len: usize) -> Input {
        let memory = PageMemory::new(len * size_of::<Tuple>(), Pages::Huge).expect("memory");
        for (at, tuple) in tuples.take(len).enumerate() {
            // SAFETY: inside of the memory, which is aligned and ours.
            unsafe { memory.base().cast::<Tuple>().add(at).write(tuple) };
        }
        Input { memory, len }
    }

    fn tuples(&self) -> &[Tuple] {
        // SAFETY: so many were written (or are zeros).
        unsafe { std::slice::from_raw_parts(self.memory.base().cast().as_ptr(), self.len) }
    }
}

fn inputs(build: usize, probe: usize) -> (Input, Input) {
    let mut prng = Prng::new(1);
    let mut keys: Vec<u64> = (0..build as u64).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, prng.below(at as u64 + 1) as usize);
    }
    let tuple = |(row, key)| Tuple { key, row: row as u64 };
    let left = Input::new(keys.into_iter().enumerate().map(tuple), build);
    let right = Input::new(
        (0..probe).map(|row| tuple((row, prng.below(build as u64)))),
        probe,
    );
    (left, right)
}

/// Runs on so many threads, each with its share of the tuples.
fn on_threads(threads: usize, tuples: &[Tuple], work: impl Fn(&[Tuple]) -> u64 + Sync) {
    let share = tuples.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for part in tuples.chunks(share) {
            scope.spawn(|| black_box(work(part)));
        }
    });
}

fn sum(tuples: &[Tuple]) -> u64 {
    tuples.iter().fold(0, |sum, tuple| sum ^ tuple.key ^ tuple.row)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn rate(tuples: usize, time: Duration) -> f64 {
    tuples as f64 / time.as_secs_f64() / 1e6
}

fn read_limit(threads: usize, build: &[Tuple], probe: &[Tuple]) -> Duration {
    let start = Instant::now();
    on_threads(threads, build, sum);
    on_threads(threads, probe, sum);
    start.elapsed()
}

fn line_limit(threads: usize, build: &[Tuple], probe: &[Tuple], table_bytes: usize) -> [Duration; 2] {
    let start = Instant::now();
    let memory = PageMemory::new(table_bytes, Pages::Huge).expect("memory");
    let count = table_bytes / 64;
    // SAFETY: so many lines of eight words; zeros are atomics.
    let lines = unsafe { std::slice::from_raw_parts(memory.base().cast::<[AtomicU64; 8]>().as_ptr(), count) };
    let line = |tuple: &Tuple| {
        let hash = tuple.key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((u128::from(hash) * count as u128) >> 64) as usize
    };
    let each = |tuples: &[Tuple], touch: fn(&[AtomicU64; 8], u64) -> u64| {
        let mut sum = 0_u64;
        for (at, tuple) in tuples.iter().enumerate() {
            if let Some(later) = tuples.get(at + 24) {
                prefetch(&lines[line(later)]);
            }
            sum ^= touch(&lines[line(tuple)], tuple.row);
        }
        sum
    };
    on_threads(threads, build, |part| {
        each(part, |line, row| {
            line[0].store(row, Ordering::Relaxed);
            row
        })
    });
    let built = Instant::now();
    on_threads(threads, probe, |part| {
        each(part, |line, _| line[0].load(Ordering::Relaxed))
    });
    [built - start, built.elapsed()]
}

fn measured(rounds: usize, mut round: impl FnMut() -> Duration) -> Duration {
    round();
    median((0..rounds).map(|_| round()).collect())
}

/// The median and the fastest of the rounds.
fn run(
    configuration: &Configuration,
    (build, probe): (&[Tuple], &[Tuple]),
    threads: usize,
    options: &Options<'_>,
) -> (Report, Report) {
    let mut reports = Vec::new();
    for _ in 0..=configuration.rounds {
        let mut counts = vec![Count::default(); threads];
        let report = join(&build, &probe, options, &mut counts).expect("a join");
        assert_eq!(
            counts.iter().map(|count| count.pairs).sum::<u64>(),
            probe.len() as u64
        );
        reports.push(report);
    }
    reports.remove(0);
    reports.sort_by_key(|report| report.total);
    (reports[reports.len() / 2], reports[0])
}

fn show(name: &str, threads: usize, tuples: usize, (median, best): (Report, Report), model: &Phases) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{name:<24} {threads} threads  median {:6.1}  best {:6.1} M/s  {} partitions, {} bytes, {}",
        rate(tuples, median.total),
        rate(tuples, best.total),
        median.partitions,
        median.tuple_bytes,
        median.processor,
    );
    let mut sum = Duration::ZERO;
    print!("    ms, best / model:");
    for ((phase, time), (_, predicted)) in best.phases.named().into_iter().zip(model.named()) {
        sum += predicted;
        if !time.is_zero() || !predicted.is_zero() {
            print!("  {phase} {:.1} / {:.1}", ms(time), ms(predicted));
        }
    }
    let ratio = best.total.as_secs_f64() / sum.as_secs_f64().max(1e-9);
    println!("  total {:.1} / {:.1} = {ratio:.2}", ms(best.total), ms(sum));
}

fn main() {
    let configuration = arguments();
    let Configuration { threads, rounds, .. } = configuration;
    println!("threads {threads}, rounds {rounds}, {:?}", configuration.tuning);
    for (build, probe) in &configuration.sizes {
        let (build, probe) = (build << 20, probe << 20);
        let (left, right) = inputs(build, probe);
        let (left, right) = (left.tuples(), right.tuples());
        let tuples = build + probe;
        println!("\n{} M with {} M", build >> 20, probe >> 20);
        for threads in [threads, 1] {
            let read = measured(rounds, || read_limit(threads, left, right));
            println!(
                "limit read                   {threads} threads {:7.1} M/s",
                rate(tuples, read)
            );
            for (form, bytes) in [("wide", 64 * build * 2 / 5), ("narrow", 64 * build / 5)] {
                let mut parts = Vec::new();
                let lines = measured(rounds, || {
                    let both = line_limit(threads, left, right, bytes);
                    parts.push(both);
                    both.iter().sum()
                });
                let part = |at: usize| median(parts.iter().map(|both| both[at]).collect());
                println!(
                    "limit lines {form:<16} {threads} threads {:7.1} M/s  build {:.1} probe {:.1} ms",
                    rate(tuples, lines),
                    part(0).as_secs_f64() * 1e3,
                    part(1).as_secs_f64() * 1e3,
                );
            }
        }
        for threads in [threads, 1] {
            for compression in [Compression::Never, Compression::Always] {
                let shape = Shape {
                    build,
                    probe,
                    workers: threads,
                    is_compressed: compression == Compression::Always,
                    tuning: configuration.tuning,
                };
                let is_wanted = |name: &str| {
                    configuration
                        .only
                        .as_ref()
                        .is_none_or(|only| name.contains(only.as_str()))
                };
                let mut rates = None;
                for algorithm in [Algorithm::Unpartitioned, Algorithm::Radix, Algorithm::SortMerge] {
                    let options = Options {
                        algorithm,
                        compression,
                        tuning: configuration.tuning,
                        ..Options::default()
                    };
                    let name = format!("{algorithm:?} {compression:?}");
                    if is_wanted(&name) {
                        let reports = run(&configuration, (left, right), threads, &options);
                        let rates = rates.get_or_insert_with(|| {
                            let rates = calibrate(&shape).expect("memory");
                            println!(
                                "rates of a worker, {} bytes: {rates:.0?}",
                                if shape.is_compressed { 8 } else { 16 }
                            );
                            rates
                        });
                        show(&name, threads, tuples, reports, &rates.predict(&shape, algorithm));
                    }
                }
            }
        }
    }
}
