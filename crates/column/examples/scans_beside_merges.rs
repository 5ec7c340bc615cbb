//! What a scan of a millisecond waits for beside merges of 4 MiB back to back on the same unit, and how many
//! merges a unit's answers allow by the number of threads that validate them.
//!
//! Latencies: the `cpu` unit with one thread, as `weft serve --compaction-unit runtime` has it, always with
//! four merges under way or waiting; a scan at a time, one every ten milliseconds on average, latency from
//! submission to result. The contenders take turns: `alone`, without merges; `one class`, in which a scan is
//! a job like any other and the thread that drives the unit validates all answers; `two classes`, urgent
//! scans and a pool for validation. Merges: of a unit that costs no processor time, because it replays
//! answers, by validation threads.
//!
//! `cargo run --release -p weft-column --example scans_beside_merges -- [rounds [seconds]]`

#![allow(clippy::unwrap_used, reason = "a failed step fails the measurement")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_base::clock::thread_cpu_nanos;
use weft_base::{Clock, Prng, SystemClock};
use weft_column::units::{Matches, Scan, ScanPart, ScanPredicate, ScanTask, ScannedCodes};
use weft_offload::kinds::{Golden, Merge, validate};
use weft_offload::unit::{Between, PoolUnit, Work};
use weft_offload::{
    Buffer, Engine, FinishedQueue, Job, JobKind, Operation, Outcome, Scheduler, SchedulerConfig, Unit,
    UnitSpec, Urgency,
};
use weft_ops::block::{BlockBuilder, BlockOptions, Compression};
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::{MergeTask, Run};
use weft_ops::packed::{code_max, pack};

const WIDTH: u32 = 10;
const VALUES: usize = 5_000_000;
const MERGE_BYTES: usize = 4 << 20;
const MERGES_AHEAD: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contender {
    Alone,
    OneClass,
    TwoClasses,
}

const CONTENDERS: [(Contender, &str); 3] = [
    (Contender::Alone, "alone"),
    (Contender::OneClass, "one class"),
    (Contender::TwoClasses, "two classes"),
];

/// Two runs of 16-byte keys and values of 128 bytes, half of which compresses away.
fn merge_task(compression: Compression) -> Arc<MergeTask> {
    let options = BlockOptions {
        compression,
        ..BlockOptions::default()
    };
    let mut prng = Prng::new(9);
    let mut value = [b'v'; 128];
    let entries = MERGE_BYTES / (16 + value.len()) / 2;
    let runs = [0_u64, 1].map(|run| {
        let (mut builder, mut blocks, mut last) = (BlockBuilder::new(options), Vec::new(), Vec::new());
        for number in 0..entries as u64 {
            prng.fill(&mut value[..64]);
            let key = format!("{:016}", 2 * number + run).into_bytes();
            builder.add(
                &last,
                &key,
                Stamp::new(SeqNo(number + 1), EntryKind::Value),
                &value,
            );
            last = key;
            if builder.is_full() {
                blocks.extend(builder.finish().map(|block| block.bytes));
            }
        }
        blocks.extend(builder.finish().map(|block| block.bytes));
        Run { blocks }
    });
    Arc::new(MergeTask {
        runs: runs.to_vec(),
        output: options,
        output_bytes_max: u64::MAX,
        key_hashes: true,
        ..MergeTask::default()
    })
}

fn scan_task() -> ScanTask {
    let mut prng = Prng::new(1);
    let codes: Vec<u32> = (0..VALUES)
        .map(|_| prng.next_u64() as u32 & code_max(WIDTH))
        .collect();
    ScanTask {
        parts: vec![ScanPart {
            codes: ScannedCodes::Registered(Buffer::new(pack(&codes, WIDTH))),
            width: WIDTH,
            count: VALUES as u32,
            predicate: ScanPredicate::Range(100, 200),
        }],
        matches: Matches::Bitmap,
    }
}

/// One thread; without urgent places a unit that finishes what it has begun, as all were.
fn cpu(engine: Box<dyn Engine>, urgent_depth: usize, clock: &Arc<dyn Clock>) -> Box<dyn Unit> {
    let spec = UnitSpec {
        urgent_depth,
        ..UnitSpec::cpu(2)
    };
    Box::new(PoolUnit::new(spec, vec![engine], 1.0, clock).unwrap())
}

/// Nothing is hedged or compared: the unit does all jobs.
fn config(validation_threads: usize) -> SchedulerConfig {
    SchedulerConfig {
        compare_per_million: 0,
        hedge_floor_ns: u64::MAX,
        deadline_ns: 60_000_000_000,
        validation_threads,
        ..SchedulerConfig::default()
    }
}

/// The golden model on a unit's thread; publishes the thread's processor time, so that waiting can be told in
/// it: that does not depend on what else runs on the machine.
struct Timed {
    times: Arc<Times>,
}

#[derive(Default)]
struct Times {
    /// Processor time of the unit's thread at the last boundary.
    now_ns: AtomicU64,
    /// The same when the scan was submitted.
    submitted_ns: AtomicU64,
    /// What the thread did from then until it began the scan, as late as the last boundary before.
    waited_ns: Mutex<Vec<u64>>,
}

impl Timed {
    fn publish(&self) -> u64 {
        let now = thread_cpu_nanos();
        self.times.now_ns.store(now, Relaxed);
        now
    }
}

impl Engine for Timed {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        Golden.run(kind, payload)
    }

    fn run_in_slices(&mut self, kind: JobKind, work: Work<'_>, between: Between<'_>) -> Option<Outcome> {
        let now = self.publish();
        if kind == JobKind::of::<Scan>() {
            let waited = now.saturating_sub(self.times.submitted_ns.load(Relaxed));
            self.times.waited_ns.lock().unwrap().push(waited);
        }
        let outcome = Golden.run_in_slices(kind, work, &mut |_| {
            self.publish();
            between(self)
        });
        self.publish();
        outcome
    }
}

/// Keeps merges under way until it is stopped; how many were done.
fn keep_merging(scheduler: &Scheduler, task: &Arc<MergeTask>, is_stopped: &AtomicBool) -> u64 {
    let (finished, mut submitted, mut done) = (FinishedQueue::new(), 0, 0);
    while !is_stopped.load(Relaxed) {
        while submitted < done + MERGES_AHEAD {
            scheduler.submit_to(Job::merge(task.clone(), 0, 0), &finished, submitted);
            submitted += 1;
        }
        if let Some((_, finished)) = finished.wait_for(Duration::from_millis(20)) {
            assert!(finished.result.unwrap().take::<Merge>().is_some());
            done += 1;
        }
    }
    done
}

/// What scans took and waited for, in nanoseconds.
#[derive(Default)]
struct Found {
    latency_ns: Vec<u64>,
    waited_ns: Vec<u64>,
    merges_a_second: Vec<f64>,
}

fn scans_beside(
    contender: Contender,
    merge: &Arc<MergeTask>,
    scan: &ScanTask,
    took: Duration,
    found: &mut Found,
) {
    let is_one = contender == Contender::OneClass;
    let validation_threads = if is_one {
        0
    } else {
        SchedulerConfig::default().validation_threads
    };
    let times = Arc::new(Times::default());
    let engine = Timed { times: times.clone() };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let cpu = cpu(Box::new(engine), usize::from(!is_one), &clock);
    let scheduler =
        Scheduler::with_cpu(config(validation_threads), clock, validate, cpu, Vec::new()).unwrap();
    let is_stopped = AtomicBool::new(contender == Contender::Alone);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let merges = scope.spawn(|| keep_merging(&scheduler, merge, &is_stopped));
        let mut prng = Prng::new(5);
        while begun.elapsed() < took {
            std::thread::sleep(Duration::from_micros(prng.below(20_000)));
            let mut job = scan.clone().job();
            if is_one {
                job.urgency = Urgency::Background;
            }
            let submitted = Instant::now();
            times.submitted_ns.store(times.now_ns.load(Relaxed), Relaxed);
            let finished = scheduler.submit(job).wait();
            found.latency_ns.push(submitted.elapsed().as_nanos() as u64);
            assert!(finished.result.unwrap().take::<Scan>().is_some());
        }
        is_stopped.store(true, Relaxed);
        let merges = merges.join().unwrap() as f64;
        found.merges_a_second.push(merges / begun.elapsed().as_secs_f64());
    });
    found.waited_ns.append(&mut times.waited_ns.lock().unwrap());
}

/// Answers merges that it knows by the length of their tasks, without doing them.
struct Replays(BTreeMap<u64, Bytes>);

impl Engine for Replays {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        match self.0.get(&(payload.len() as u64)) {
            Some(output) => Outcome {
                code: weft_offload::wire::ReturnCode::Done,
                output: weft_offload::Output::Bytes(output.clone()),
                cycles: 0,
            },
            None => Golden.run(kind, payload),
        }
    }
}

fn merges_a_second(validation_threads: usize, merge: &Arc<MergeTask>, took: Duration) -> f64 {
    let payload = Merge::encode(merge);
    let output = Merge::output_to_bytes(&Merge::golden(merge).unwrap());
    let engine = Replays(BTreeMap::from([(payload.len() as u64, output)]));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = PoolUnit::new(
        UnitSpec::unlimited("replays", 2),
        vec![Box::new(engine)],
        1.0,
        &clock,
    );
    let units: Vec<Box<dyn Unit>> = vec![Box::new(unit.unwrap())];
    let cpu = cpu(Box::new(Golden), 1, &clock);
    let scheduler = Scheduler::with_cpu(config(validation_threads), clock, validate, cpu, units).unwrap();
    let is_stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let merges = scope.spawn(|| keep_merging(&scheduler, merge, &is_stopped));
        std::thread::sleep(took);
        is_stopped.store(true, Relaxed);
        merges.join().unwrap() as f64 / took.as_secs_f64()
    })
}

fn percentile(sorted: &[u64], share: f64) -> u64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: f64| {
        arguments
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (rounds, took) = (number(5.0) as usize, Duration::from_secs_f64(number(4.0)));
    let scan = scan_task();
    for (name, compression) in [("none", Compression::None), ("zstd", Compression::Zstd)] {
        let merge = merge_task(compression);
        println!("merges of {} KiB, compression {name}", merge.block_bytes() / 1024);
        let mut found = [(); CONTENDERS.len()].map(|()| Found::default());
        for _ in 0..rounds {
            for ((contender, _), found) in CONTENDERS.iter().zip(&mut found) {
                scans_beside(*contender, &merge, &scan, took, found);
            }
        }
        for (what, of) in [
            (
                "us from submission to result",
                (|found| &mut found.latency_ns) as fn(&mut Found) -> &mut Vec<u64>,
            ),
            ("us of the unit's processor time before it begins", |found| {
                &mut found.waited_ns
            }),
        ] {
            println!("  {what}");
            println!(
                "  {:>12} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9}",
                "", "scans", "p50", "p99", "p99.9", "max", "merges/s"
            );
            for ((_, name), found) in CONTENDERS.iter().zip(&mut found) {
                let merges = median(found.merges_a_second.clone());
                let scans = of(found);
                scans.sort_unstable();
                let us = |share| percentile(scans, share) / 1000;
                let count = scans.len();
                println!(
                    "  {name:>12} {count:>7} {:>8} {:>8} {:>8} {:>8} {merges:>9.0}",
                    us(0.5),
                    us(0.99),
                    us(0.999),
                    us(1.0)
                );
            }
        }
        let threads = [0, 1, 2];
        let mut rates = threads.map(|_| Vec::new());
        for _ in 0..rounds {
            for (threads, rates) in threads.iter().zip(&mut rates) {
                rates.push(merges_a_second(*threads, &merge, took / 2));
            }
        }
        for (threads, rates) in threads.iter().zip(rates) {
            println!(
                "  replayed merges, {threads} validation threads: {:.0} a second",
                median(rates)
            );
        }
    }
}
