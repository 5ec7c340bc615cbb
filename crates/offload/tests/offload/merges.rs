//! Merges and filters through the runtime: every unit that merges gives the golden model's bytes, and a
//! campaign of faults on compaction units loses nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use weft_base::{Clock, ManualClock, Prng, SystemClock};
use weft_offload::faults::{Fault, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::kinds::{BuildFilter, Golden, Merge, validate};
use weft_offload::model::{ModelEngine, ModelParams};
use weft_offload::reason::Blame;
use weft_offload::unit::PoolUnit;
use weft_offload::unit::inline::{InlineUnit, SimulatedSpeed};
use weft_offload::wire::AttemptId;
use weft_offload::wire::{Request, ReturnCode, job_crc};
use weft_offload::{
    Accepts, Engine, FinishedQueue, Job, JobError, JobKind, Limits, Outcome, Reason, Refused, Scheduler,
    SchedulerConfig, Task, Unit, UnitSpec,
};
use weft_ops::block::{Block, BlockBuilder, BlockOptions, Compression};
use weft_ops::filter::build_filter;
use weft_ops::key::{EntryKind, SeqNo, Stamp};
use weft_ops::merge::{MergeOutput, MergeTask, RangeTombstone, Run, merge};

use crate::campaign::faults_wanted;
use crate::lab::{TIMES, bytes, compare_all, config};

fn params(decoders: usize) -> ModelParams {
    ModelParams {
        decoders,
        key_bytes_max: 64,
        value_bytes_max: 512,
        ring_bytes: 2048,
        ..ModelParams::default()
    }
}

/// A small task drawn from a seed; one in sixteen has something that no unit takes.
fn random_task(prng: &mut Prng) -> MergeTask {
    let compression = if prng.chance(1, 2) {
        Compression::Lz4
    } else {
        Compression::None
    };
    let output = BlockOptions {
        block_bytes: 100 + prng.below(400) as u32,
        restart_interval: 1 + prng.below(6) as u16,
        compression,
    };
    let ways = 1 + prng.below(4);
    let longest = if prng.chance(1, 16) { 1000 } else { 100 };
    let runs = (0..ways).map(|_| random_run(prng, output, longest));
    let mut task = MergeTask {
        runs: runs.collect(),
        bottom: prng.chance(1, 2),
        output,
        output_bytes_max: 1 << 20,
        key_hashes: prng.chance(1, 2),
        ..MergeTask::default()
    };
    if prng.chance(1, 2) {
        task.snapshots = vec![SeqNo(prng.below(50)), SeqNo(50 + prng.below(50))];
    }
    if prng.chance(1, 4) {
        task.range_tombstones.push(RangeTombstone {
            start: format!("{:04}", prng.below(60)).into(),
            end: format!("{:04}", prng.below(60)).into(),
            seqno: SeqNo(prng.below(100)),
        });
    }
    task
}

fn random_run(prng: &mut Prng, options: BlockOptions, value_bytes_max: u64) -> Run {
    let mut entries: Vec<(Vec<u8>, Stamp, Vec<u8>)> = (0..prng.below(30))
        .map(|_| {
            let kind = EntryKind::from_u8(prng.below(3) as u8).unwrap();
            let stamp = Stamp::new(SeqNo(1 + prng.below(100)), kind);
            let key = format!("{:04}", prng.below(60)).into_bytes();
            (
                key,
                stamp,
                vec![prng.next_u64() as u8; prng.below(value_bytes_max) as usize],
            )
        })
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
    let mut builder = BlockBuilder::new(options);
    let mut blocks: Vec<Bytes> = Vec::new();
    let mut last: &[u8] = &[];
    for (key, stamp, value) in &entries {
        builder.add(last, key, *stamp, value);
        last = key;
        if builder.is_full() {
            blocks.extend(builder.finish().map(|block| block.bytes));
        }
    }
    blocks.extend(builder.finish().map(|block| block.bytes));
    Run { blocks }
}

fn cpu_spec() -> UnitSpec {
    UnitSpec::cpu(2)
}

/// Every unit there is, on real threads or within the poll.
fn all_units() -> Vec<Box<dyn Unit>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let pace = SimulatedSpeed { job_ns: 0, kib_ns: 0 };
    let model = |decoders| {
        Box::new(ModelEngine {
            params: params(decoders),
        }) as Box<dyn Engine>
    };
    let pool = |spec, engine| PoolUnit::new(spec, vec![engine], 1.0, &clock).unwrap();
    let mut units: Vec<Box<dyn Unit>> = vec![
        Box::new(pool(cpu_spec(), Box::new(Golden))),
        Box::new(InlineUnit::new(cpu_spec(), Box::new(Golden), clock.clone(), pace)),
    ];
    for decoders in [2, 4] {
        let spec = params(decoders).spec("model", 2);
        units.push(Box::new(pool(spec.clone(), model(decoders))));
        units.push(Box::new(InlineUnit::new(
            spec,
            model(decoders),
            clock.clone(),
            pace,
        )));
    }
    units
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 512 }))]

    /// The answer of each unit that takes a merge is the golden model's, byte for byte; the model may say
    /// that a task is beyond its limits, and nothing else.
    #[test]
    fn every_unit_gives_the_golden_models_bytes(seed: u64) {
        let mut prng = Prng::new(seed);
        let task = random_task(&mut prng);
        let golden = merge(&task).unwrap().encode();
        let job = Job::merge(task.clone(), 0, 0);
        let crc = job_crc(&job);
        let mut merged = 0;
        for (number, unit) in all_units().iter_mut().enumerate() {
            let request = Request {
                attempt: AttemptId(number as u64),
                kind: job.kind,
                urgency: weft_offload::Urgency::Background,
                shape: job.shape.clone(),
                buffers: Vec::new(),
                drops_all: false,
                dropped: Vec::new(),
                payload: job.payload().clone(),
                crc,
                task: None,
            };
            unit.submit(request).unwrap();
            let mut answers = Vec::new();
            while answers.is_empty() {
                unit.poll(&mut answers);
                std::thread::yield_now();
            }
            prop_assert_eq!(answers[0].check(job.kind, crc), Ok(()));
            match answers[0].code {
                ReturnCode::Done => {
                    merged += 1;
                    prop_assert_eq!(&answers[0].output, &golden);
                    prop_assert!(validate(&job, answers[0].output.clone()).is_some());
                }
                ReturnCode::BeyondLimits => prop_assert!(number > 1),
                other => prop_assert!(false, "unit {} says {:?}", number, other),
            }
        }
        prop_assert!(merged >= 2);
    }

    /// Any changed bit of an output's frame is found; sealed again, it is read or refused, without a panic.
    #[test]
    fn implausible_outputs_are_refused(seed: u64, at: prop::sample::Index, bit in 0_u8..8) {
        let task = random_task(&mut Prng::new(seed));
        let output = merge(&task).unwrap();
        let job = Job::merge(task, 0, 0);
        let mut frame = output.encode();
        let place = at.index(frame.len());
        frame[place] ^= 1 << bit;
        prop_assert!(validate(&job, frame.clone().into()).is_none(), "the frame's checksum");
        let end = frame.len() - 4;
        let crc = weft_ops::crc32c(&frame[..end]);
        frame[end..].copy_from_slice(&crc.to_le_bytes());
        let _ = validate(&job, frame.into());
    }
}

/// What a unit may get wrong behind its own checksum and what is seen of it without a second run: keys that
/// are not those of the blocks, or lie outside of the task, and hashes that are not those of the keys.
#[test]
fn wrong_keys_of_blocks_are_implausible() {
    let (mut seen, mut hashed) = (0, 0);
    for seed in 0..300 {
        let mut prng = Prng::new(seed);
        let whole = random_task(&mut prng);
        let task = MergeTask {
            lower: prng.chance(1, 2).then(|| "0010".into()),
            upper: prng.chance(1, 2).then(|| "0050".into()),
            ..whole.clone()
        };
        let output = merge(&task).unwrap();
        let job = Job::merge(task.clone(), 0, 0);
        assert!(validate(&job, output.encode().into()).is_some(), "{seed}");
        if output.blocks.is_empty() {
            continue;
        }
        seen += 1;
        let refused = |harm: &dyn Fn(&mut weft_ops::merge::MergeOutput)| {
            let mut harmed = output.clone();
            harm(&mut harmed);
            validate(&job, harmed.encode().into()).is_none()
        };
        let longer = |key: &Bytes| Bytes::from([key.as_ref(), b"0"].concat());
        let last = output.blocks.len() - 1;
        assert!(
            refused(&|o| o.blocks[last].last_key = longer(&o.blocks[last].last_key)),
            "{seed}"
        );
        assert!(refused(&|o| o.blocks[0].first_key = Bytes::new()), "{seed}");
        assert!(
            refused(&|o| {
                o.blocks[0].entry_count += 1;
                o.entries_out += 1;
                o.entries_in += 1;
            }),
            "{seed}"
        );
        if task.key_hashes {
            assert!(refused(&|o| o.key_hashes.clear()), "{seed}");
            // A filter over any of these would hide a key, or let pass what is not there.
            let at = prng.below(output.blocks.len() as u64) as usize;
            let some = |o: &weft_ops::merge::MergeOutput| o.key_hashes[at].first().copied();
            if some(&output).is_some() {
                assert!(refused(&|o| o.key_hashes[at].clear()), "{seed}");
                assert!(refused(&|o| o.key_hashes[at][0] ^= 1 << 40), "{seed}");
                assert!(
                    refused(&|o| o.key_hashes[at].truncate(output.key_hashes[at].len() - 1)),
                    "{seed}"
                );
                assert!(
                    refused(&|o| o.key_hashes[at].push(some(&output).unwrap_or_default())),
                    "{seed}"
                );
                hashed += 1;
            }
            if output.key_hashes[at].len() > 1 {
                assert!(refused(&|o| o.key_hashes[at].swap(0, 1)), "{seed}");
            }
        }
        let unbounded = merge(&whole).unwrap();
        if unbounded.entries_in != output.entries_in && unbounded.blocks != output.blocks {
            assert!(validate(&job, unbounded.encode().into()).is_none(), "{seed}");
        }
    }
    assert!(seen > 200 && hashed > 70, "{seen}, {hashed}");
}

/// Computes a merge and then makes up another result, sound in itself: one entry is missing and counted as
/// shadowed, or has another value. Every other answer is right.
struct Forges {
    prng: Prng,
    forged: Arc<AtomicU64>,
}

impl Forges {
    fn forge(&mut self, output: &mut MergeOutput, options: BlockOptions) -> Option<()> {
        let at = self.prng.below(output.blocks.len() as u64) as usize;
        let named = output.blocks.get(at)?.clone();
        let block = Block::open(&named.bytes).ok()?;
        let mut cursor = block.cursor();
        cursor.first().ok()?;
        let mut entries = Vec::new();
        while cursor.valid() {
            entries.push((cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec()));
            cursor.forward().ok()?;
        }
        let inside = 1 + self.prng.below(entries.len().checked_sub(2)? as u64) as usize;
        let has_versions = entries.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if self.prng.chance(1, 2) && !has_versions {
            entries.remove(inside);
            output.entries_out -= 1;
            output.dropped.shadowed += 1;
            if let Some(hashes) = output.key_hashes.get_mut(at) {
                // The hashes are those of the keys that are left.
                let begins_before = usize::from(hashes.len() == entries.len());
                hashes.remove(inside - begins_before);
            }
        } else {
            entries[inside].2.push(1);
        }
        let mut builder = BlockBuilder::new(BlockOptions {
            block_bytes: u32::MAX,
            ..options
        });
        let mut last = Vec::new();
        for (key, stamp, value) in entries {
            builder.add(&last, &key, stamp, &value);
            last = key;
        }
        output.blocks[at] = builder.finish()?;
        output.adds_up().then_some(())
    }
}

impl Engine for Forges {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        let mut outcome = Golden.run(kind, payload);
        let task = MergeTask::decode(payload);
        let output = MergeOutput::decode(&outcome.output.to_bytes());
        if let (Ok(task), Ok(mut output)) = (task, output)
            && self.prng.chance(1, 2)
            && self.forge(&mut output, task.output).is_some()
        {
            self.forged.fetch_add(1, Ordering::Relaxed);
            outcome.output = output.encode().into();
        }
        outcome
    }
}

/// Nothing is compared with a second unit's result here: what a unit makes up is found by looking, and done
/// again by the CPU.
#[test]
fn entries_that_a_unit_drops_or_changes_are_found_without_a_second_run() {
    let clock = Arc::new(ManualClock::new(0));
    let shared: Arc<dyn Clock> = clock.clone();
    let pace = SimulatedSpeed {
        job_ns: 20_000,
        kib_ns: 1_000,
    };
    let forged = Arc::new(AtomicU64::new(0));
    let engine = Forges {
        prng: Prng::new(5),
        forged: Arc::clone(&forged),
    };
    let spec = UnitSpec::unlimited("forges", 2);
    let unit = InlineUnit::new(spec, Box::new(engine), shared.clone(), pace);
    let cpu = InlineUnit::new(cpu_spec(), Box::new(Golden), shared.clone(), pace);
    let mut settings = SchedulerConfig {
        compare_per_million: 0,
        ..compare_all()
    };
    settings.health.failures_max = 64;
    settings.health.window = 64;
    let scheduler =
        Scheduler::manual(settings, shared, validate, Box::new(cpu), vec![Box::new(unit)]).unwrap();
    let mut prng = Prng::new(3);
    let queue = FinishedQueue::new();
    let mut found = 0;
    for number in 0..400 {
        let task = random_task(&mut prng);
        let Ok(golden) = merge(&task) else { continue };
        let before = forged.load(Ordering::Relaxed);
        scheduler
            .try_submit_to(Job::merge(task, 0, 0), &queue, number)
            .unwrap();
        let finished = loop {
            let next = scheduler.step();
            if let Some((_, finished)) = queue.pop() {
                break finished;
            }
            let next = next.expect("the job is not lost");
            clock.advance_micros(u32::try_from(next.as_nanos().div_ceil(1000)).unwrap());
        };
        assert!(bytes(&finished) == golden.encode(), "job {number}");
        if forged.load(Ordering::Relaxed) > before {
            assert_eq!(
                finished.report.redone_on_cpu,
                Some(Reason::Malformed),
                "job {number}"
            );
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

/// Merges and filters on two compaction units and two filter builders with faults, on simulated time.
#[test]
fn a_campaign_of_faults_on_compaction_units_loses_nothing() {
    let clock = Arc::new(ManualClock::new(0));
    let shared: Arc<dyn Clock> = clock.clone();
    let pace = SimulatedSpeed {
        job_ns: 20_000,
        kib_ns: 1_000,
    };
    let mut faults = Vec::new();
    let mut units: Vec<Box<dyn Unit>> = Vec::new();
    let mut add = |name: &str, spec: UnitSpec, engine: Box<dyn Engine>, seed| {
        let spec = UnitSpec {
            name: name.to_owned(),
            ..spec
        };
        let plan = FaultPlan::Random {
            per_million: 300_000,
            faults: Fault::ALL.to_vec(),
            seed,
        };
        let inner = InlineUnit::new(spec, engine, shared.clone(), pace);
        let times = FaultTimes {
            dead_ns: 1_000_000,
            ..TIMES
        };
        let unit = FaultyUnit::new(inner, shared.clone(), plan, times);
        faults.push(unit.counts());
        units.push(Box::new(unit));
    };
    for (seed, decoders) in [(1, 2), (2, 4), (3, 4)] {
        let engine = ModelEngine {
            params: params(decoders),
        };
        add(
            &format!("model {seed}"),
            params(decoders).spec("model", 2),
            Box::new(engine),
            seed,
        );
    }
    let only_filters = vec![(JobKind::of::<BuildFilter>(), Limits::NONE)];
    let filters = UnitSpec {
        accepts: Accepts::Kinds(only_filters),
        ..UnitSpec::unlimited("filters", 2)
    };
    add("filters 1", filters.clone(), Box::new(Golden), 4);
    add("filters 2", filters, Box::new(Golden), 5);

    let cpu = InlineUnit::new(cpu_spec(), Box::new(Golden), shared.clone(), pace);
    let mut settings = SchedulerConfig {
        timeline_entries_max: 64,
        ..compare_all()
    };
    settings.health.failures_max = 64;
    settings.health.window = 64;
    settings.health.out_ns_max = settings.health.out_ns;
    let scheduler = Scheduler::manual(settings, shared, validate, Box::new(cpu), units).unwrap();

    let wanted = faults_wanted() / 4;
    let queue = FinishedQueue::new();
    let mut prng = Prng::new(11);
    let (mut expected, mut told) = (Vec::new(), 0);
    let injected = || faults.iter().map(|counts| counts.total()).sum::<u64>();
    loop {
        while injected() < wanted && expected.len() - told < 16 {
            let (job, golden) = random_job(&mut prng);
            scheduler
                .try_submit_to(job, &queue, expected.len() as u64)
                .unwrap();
            expected.push(Some(golden));
        }
        let next = scheduler.step();
        while let Some((tag, finished)) = queue.pop() {
            let golden = expected[tag as usize].take().expect("told once");
            assert_eq!(bytes(&finished), golden, "job {tag}");
            told += 1;
        }
        let Some(next) = next else { break };
        clock.advance_micros(u32::try_from(next.as_nanos().div_ceil(1000)).unwrap());
    }
    assert_eq!(told, expected.len());
    let counters = scheduler.counters();
    println!("{} faults injected\n{counters}", injected());
    assert!(injected() >= wanted);
    assert!(counters.redone_on_cpu.total(Blame::Unit) > 0);
    assert!(counters.redone_on_cpu.get(Reason::LimitsFoundExceeded) > 0);
    assert!(counters.units.iter().all(|unit| unit.in_flight == 0));
    assert!(counters.units[0].cycles > 0, "the model reports its cycles");
}

fn random_job(prng: &mut Prng) -> (Job, Vec<u8>) {
    if prng.chance(1, 4) {
        let hashes: Vec<u64> = (0..prng.below(100)).map(|_| prng.next_u64()).collect();
        return (Job::build_filter(hashes.clone(), 10), build_filter(&hashes, 10));
    }
    let task = random_task(prng);
    let golden = merge(&task).unwrap().encode();
    (Job::merge(task.clone(), 0, 0), golden)
}

/// A unit that shares this process's memory hands over its result as it is, alone or compared.
#[test]
fn a_unit_in_this_process_is_a_unit_like_others() {
    for (units, compare_per_million) in [(1, 0), (1, 1_000_000), (2, 1_000_000)] {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
        let pace = SimulatedSpeed { job_ns: 0, kib_ns: 0 };
        let inline = |name: &str| {
            let spec = UnitSpec {
                name: name.to_owned(),
                ..cpu_spec()
            };
            Box::new(InlineUnit::new(spec, Box::new(Golden), clock.clone(), pace)) as Box<dyn Unit>
        };
        let settings = SchedulerConfig {
            compare_per_million,
            ..config()
        };
        let units = (0..units)
            .map(|number| inline(&format!("threads {number}")))
            .collect();
        let scheduler = Scheduler::manual(settings, clock.clone(), validate, inline("cpu"), units).unwrap();
        let task = random_task(&mut Prng::new(5));
        let golden = merge(&task).unwrap();
        let ticket = scheduler.submit(Job::merge(task, 0, 0));
        while scheduler.step().is_some() {}
        let Ok(finished) = ticket.try_take() else {
            panic!("not finished");
        };
        assert_eq!(finished.report.unit, "threads 0");
        assert_eq!(finished.report.compared, compare_per_million > 0);
        assert_eq!(*finished.result.unwrap().take::<Merge>().unwrap(), golden);
    }
}

/// Answers every task with the result of another one.
struct Another(JobKind, Task);

impl Engine for Another {
    fn run(&mut self, _: JobKind, _: &Bytes) -> Outcome {
        Golden.run_task(self.0, &self.1)
    }

    fn run_task(&mut self, _: JobKind, _: &Task) -> Outcome {
        Golden.run_task(self.0, &self.1)
    }
}

/// What a unit in this process hands over as looked through is sound, and may still be nobody's: the unit
/// is blamed, and the CPU does the job.
#[test]
fn a_result_of_another_task_is_no_result() {
    let task = random_task(&mut Prng::new(5));
    let bounded = MergeTask {
        upper: Some("0030".into()),
        ..task.clone()
    };
    let unhashed = MergeTask {
        key_hashes: !task.key_hashes,
        ..task.clone()
    };
    let merge_job = || Job::merge(task.clone(), 0, 0);
    let filter_job = || Job::build_filter(vec![1, 2, 3], 10);
    let others: [(Job, Job); 5] = [
        (merge_job(), Job::merge(bounded, 0, 0)),
        (merge_job(), Job::merge(unhashed, 0, 0)),
        (merge_job(), filter_job()),
        (filter_job(), merge_job()),
        (filter_job(), Job::build_filter(vec![1, 2], 10)),
    ];
    for (number, (asked, other)) in others.into_iter().enumerate() {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
        let pace = SimulatedSpeed { job_ns: 0, kib_ns: 0 };
        let inline = |name: &str, engine: Box<dyn Engine>| {
            let spec = UnitSpec {
                name: name.to_owned(),
                ..cpu_spec()
            };
            Box::new(InlineUnit::new(spec, engine, clock.clone(), pace)) as Box<dyn Unit>
        };
        let unit = inline("confused", Box::new(Another(other.kind, other.task.clone())));
        let cpu = inline("cpu", Box::new(Golden));
        let golden = Golden.run_task(asked.kind, &asked.task).output;
        let scheduler = Scheduler::manual(config(), clock.clone(), validate, cpu, vec![unit]).unwrap();
        let ticket = scheduler.submit(asked);
        while scheduler.step().is_some() {}
        let Ok(finished) = ticket.try_take() else {
            panic!("not finished");
        };
        assert_eq!(finished.report.redone_on_cpu, Some(Reason::Malformed), "{number}");
        assert_eq!(finished.result, Ok(golden), "{number}");
        assert_eq!(scheduler.counters().units[0].failures.get(Reason::Malformed), 1);
    }
}

/// A block that is damaged in storage is the requester's error, with its place; no unit is to blame.
#[test]
fn a_damaged_block_is_named_with_its_place() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    for units in 0..2 {
        let unit = |_| {
            let engine: Box<dyn Engine> = Box::new(ModelEngine { params: params(4) });
            let unit = PoolUnit::new(params(4).spec("model", 2), vec![engine], 1.0, &clock).unwrap();
            Box::new(unit) as Box<dyn Unit>
        };
        let units = (0..units).map(unit).collect();
        let scheduler = Scheduler::new(SchedulerConfig::default(), clock.clone(), units).unwrap();
        let mut task = (0..).map(|seed| random_task(&mut Prng::new(seed)));
        let mut task = task.find(|task| !task.runs[0].blocks.is_empty()).unwrap();
        let mut block = task.runs[0].blocks[0].to_vec();
        block[20] ^= 1;
        task.runs[0].blocks[0] = block.into();
        let error = merge(&task).unwrap_err();
        let (told, heard) = std::sync::mpsc::channel();
        scheduler.submit_with(Job::merge(task, 0, 0), &|| false, move |finished| {
            told.send(finished).unwrap()
        });
        assert_eq!(
            heard.recv().unwrap().result,
            Err(JobError::Refused(Refused::new(error)))
        );
        assert_eq!(scheduler.counters().units[0].failures.total(Blame::Unit), 0);
    }
}

/// The whole as a user of the runtime has it: threads, model units, filters from the merge's hashes.
#[test]
fn merges_and_filters_on_model_units() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let units = (0..2).map(|number| {
        let engine: Box<dyn Engine> = Box::new(ModelEngine { params: params(4) });
        let spec = params(4).spec(format!("model {number}"), 2);
        Box::new(PoolUnit::new(spec, vec![engine], 1.0, &clock).unwrap()) as Box<dyn Unit>
    });
    let settings = SchedulerConfig {
        compare_per_million: 500_000,
        // The model computes at the pace of a simulation.
        deadline_ns: 60_000_000_000,
        hedge_floor_ns: u64::MAX,
        ..SchedulerConfig::default()
    };
    let scheduler = Scheduler::new(settings, clock.clone(), units.collect()).unwrap();
    let mut prng = Prng::new(3);
    for _ in 0..20 {
        let mut task = random_task(&mut prng);
        task.key_hashes = true;
        let golden = merge(&task).unwrap();
        let finished = scheduler.submit(Job::merge(task.clone(), 4, 100)).wait();
        let output = finished.result.unwrap().take::<Merge>().unwrap();
        assert_eq!(*output, golden);
        assert!(finished.report.unit.starts_with("model") || finished.report.redone_on_cpu.is_some());
        let hashes = output.key_hashes.concat();
        let filter = scheduler.submit(Job::build_filter(hashes.clone(), 10)).wait();
        assert!(filter.report.unit.starts_with("model"), "{:?}", filter.report);
        assert_eq!(bytes(&filter), build_filter(&hashes, 10));
    }
    let counters = scheduler.counters();
    assert_eq!((counters.finished, counters.errors), (40, 0));
    assert!(counters.compared > 0);
}
