//! Scans on units: the model's engine, the CPU and the golden model agree; faults of units and of the buffers
//! that they keep are found and redone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{Clock, ManualClock, Prng};
use weft_column::units::{
    Found, Matches, Scan, ScanEngine, ScanEngineParams, ScanPart, ScanPredicate, ScanTask, ScannedCodes,
    simulate,
};
use weft_offload::faults::{Fault, FaultCounts, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::kinds::{Golden, validate};
use weft_offload::reason::Blame;
use weft_offload::unit::InlineUnit;
use weft_offload::unit::inline::SimulatedSpeed;
use weft_offload::wire::ReturnCode;
use weft_offload::{
    Buffer, Engine, Finished, FinishedQueue, JobError, JobKind, Link, Operation, Outcome, Reason, Scheduler,
    SchedulerConfig, Unit, UnitSpec,
};
use weft_ops::packed::{code_max, in_range, in_set, pack, positions};

const SPEED: SimulatedSpeed = SimulatedSpeed {
    job_ns: 10_000,
    kib_ns: 1_000,
};

fn part(codes: &Buffer, width: u32, count: usize, predicate: ScanPredicate) -> ScanPart {
    ScanPart {
        codes: ScannedCodes::Registered(codes.clone()),
        width,
        count: count as u32,
        predicate,
    }
}

fn task(codes: &Buffer, width: u32, count: usize, predicate: ScanPredicate, matches: Matches) -> ScanTask {
    ScanTask {
        parts: vec![part(codes, width, count, predicate)],
        matches,
    }
}

/// What the golden model finds.
fn expected(task: &ScanTask) -> Found {
    let words = task.parts.iter().flat_map(|part| {
        let ScannedCodes::Registered(codes) = &part.codes else {
            panic!("not registered");
        };
        let (packed, count) = (codes.bytes(), part.count as usize);
        match &part.predicate {
            ScanPredicate::Range(low, high) => in_range(packed, part.width, count, *low, *high),
            ScanPredicate::Set(set) => in_set(packed, part.width, count, set),
        }
    });
    let words: Vec<u64> = words.collect();
    match task.matches {
        Matches::Bitmap => Found::Bitmap(words),
        Matches::RowIds => Found::RowIds(positions(&words, 0)),
    }
}

fn predicates() -> impl Strategy<Value = ScanPredicate> {
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| ScanPredicate::Range(a, b)),
        (0..200_u32, 0..200_u32).prop_map(|(a, b)| ScanPredicate::Range(a, b)),
        proptest::collection::vec(any::<u64>(), 0..40).prop_map(|set| ScanPredicate::Set(set.into())),
    ]
}

fn parts() -> impl Strategy<Value = ScanPart> {
    let codes = proptest::collection::vec(any::<u32>(), 0..700);
    (codes, 1_u32..=32, predicates(), any::<bool>()).prop_map(|(codes, width, predicate, narrow)| {
        let narrowed = codes.iter().map(|code| if narrow { code % 200 } else { *code });
        let packed = pack(&narrowed.collect::<Vec<u32>>(), width);
        part(&Buffer::new(packed), width, codes.len(), predicate)
    })
}

proptest! {
    #[test]
    fn every_way_finds_the_same(parts in proptest::collection::vec(parts(), 0..5), rows: bool) {
        let matches = if rows { Matches::RowIds } else { Matches::Bitmap };
        let task = ScanTask { parts, matches };
        let found = expected(&task);

        let golden = Scan::golden(&task).unwrap();
        prop_assert_eq!(&golden.found, &found);
        let (simulated, count, cycles) = simulate(ScanEngineParams::default(), &[&task]).unwrap().remove(0);
        prop_assert_eq!((&simulated, count), (&found, golden.count));
        let buffers = Scan::buffers(&task);
        let buffers: Vec<bytes::Bytes> = buffers.iter().map(|buffer| buffer.bytes().clone()).collect();
        let lines: usize = buffers.iter().map(|codes| codes.len().div_ceil(64)).sum();
        prop_assert_eq!(cycles.lines_read as usize, lines);

        // As a unit is asked: bytes in, bytes out, which the look takes for the same result.
        let payload = Scan::encode(&task).into();
        let answer = ScanEngine::default().run_over(JobKind::of::<Scan>(), &payload, &buffers);
        prop_assert_eq!(answer.code, ReturnCode::Done);
        let looked = Scan::look(&task, answer.output.to_bytes());
        prop_assert_eq!(looked, Some(golden.clone()));
        prop_assert!(Scan::is_of(&task, &golden));
        let decoded = Scan::decode(&payload, &buffers).map(|task| Scan::encode(&task));
        prop_assert_eq!(decoded, Ok(payload.to_vec()));
    }

    #[test]
    fn any_bytes_are_refused_or_answered(payload: Vec<u8>, codes: Vec<u8>, answer: Vec<u8>) {
        let (payload, codes) = (bytes::Bytes::from(payload), bytes::Bytes::from(codes));
        let kind = JobKind::of::<Scan>();
        let model = ScanEngine::default().run_over(kind, &payload, std::slice::from_ref(&codes));
        let golden = Golden.run_over(kind, &payload, std::slice::from_ref(&codes));
        prop_assert_eq!(model.code, golden.code);
        if let Ok(task) = Scan::decode(&payload, &[codes]) {
            let _ = Scan::look(&task, answer.into());
        }
    }

    /// A result with many wrong words does not pass, nor one that is too long, too short or miscounted.
    #[test]
    fn wrong_results_are_seen(seed: u64, rows: bool, how in 0..5) {
        let mut prng = Prng::new(seed);
        let codes: Vec<u32> = (0..5000).map(|_| prng.below(1024) as u32).collect();
        let buffer = Buffer::new(pack(&codes, 10));
        let matches = if rows { Matches::RowIds } else { Matches::Bitmap };
        let asked = task(&buffer, 10, codes.len(), ScanPredicate::Range(100, 500), matches);
        let other = task(&buffer, 10, codes.len(), ScanPredicate::Range(101, 600), matches);
        let mut answer = Scan::output_to_bytes(&Scan::golden(&asked).unwrap()).to_vec();
        match how {
            // Another predicate's: a tenth of the bits differ.
            0 => answer = Scan::output_to_bytes(&Scan::golden(&other).unwrap()).to_vec(),
            1 => answer[0] ^= 1,
            2 => answer.truncate(answer.len() - 8),
            3 => answer.extend_from_slice(&[0; 8]),
            // A bit of the last word, behind the last code.
            _ if rows => answer.extend_from_slice(&5000_u32.to_le_bytes()),
            _ => *answer.last_mut().unwrap() ^= 0x80,
        }
        prop_assert_eq!(Scan::look(&asked, answer.into()), None);
        prop_assert!(!Scan::is_of(&asked, &Scan::golden(&other).unwrap()));
    }
}

struct Lab {
    clock: Arc<ManualClock>,
    scheduler: Scheduler,
    faults: Vec<FaultCounts>,
    finished: FinishedQueue,
}

impl Lab {
    fn new(memory_bytes_max: u64, compare_per_million: u32, plans: Vec<FaultPlan>) -> Lab {
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = clock.clone();
        let params = ScanEngineParams {
            memory_bytes_max,
            ..ScanEngineParams::default()
        };
        let times = FaultTimes {
            late_ns: 5_000_000,
            dead_ns: 3_000_000,
        };
        let mut faults = Vec::new();
        let units = plans.into_iter().enumerate().map(|(number, plan)| {
            let spec = params.spec(format!("engine {number}"), 2, Link::PCIE_3_X8);
            let unit = InlineUnit::new(spec, Box::new(ScanEngine { params }), shared.clone(), SPEED);
            let unit = FaultyUnit::new(unit, shared.clone(), plan, times);
            faults.push(unit.counts());
            Box::new(unit) as Box<dyn Unit>
        });
        let units = units.collect();
        let mut config = SchedulerConfig {
            deadline_ns: 1_000_000,
            compare_per_million,
            ..SchedulerConfig::default()
        };
        config.health.failures_max = 64;
        config.health.window = 64;
        config.health.out_ns = 500_000;
        config.health.out_ns_max = 1_000_000;
        let cpu = InlineUnit::new(UnitSpec::cpu(2), Box::new(Golden), shared.clone(), SPEED);
        Lab {
            scheduler: Scheduler::manual(config, shared, validate, Box::new(cpu), units).unwrap(),
            clock,
            faults,
            finished: FinishedQueue::new(),
        }
    }

    fn advance(&self) -> bool {
        let Some(next) = self.scheduler.step() else {
            return false;
        };
        let micros = next.as_nanos().div_ceil(1000);
        self.clock.advance_micros(u32::try_from(micros).unwrap());
        true
    }

    fn one(&self, task: &ScanTask) -> Finished {
        self.scheduler
            .try_submit_to(task.clone().job(), &self.finished, 0)
            .unwrap();
        while self.advance() {}
        self.finished.pop().unwrap().1
    }
}

fn no_faults() -> FaultPlan {
    FaultPlan::Script(VecDeque::new())
}

fn column(seed: u64, count: usize) -> (Buffer, Vec<u8>) {
    let mut prng = Prng::new(seed);
    let codes: Vec<u32> = (0..count)
        .map(|_| prng.next_u64() as u32 & code_max(10))
        .collect();
    let packed = pack(&codes, 10);
    (Buffer::new(packed.clone()), packed)
}

#[test]
fn codes_are_sent_once_and_stay() {
    let lab = Lab::new(1 << 20, 0, vec![no_faults()]);
    let (buffer, packed) = column(1, 10_000);
    for low in 0..10 {
        let task = task(
            &buffer,
            10,
            10_000,
            ScanPredicate::Range(low, 300),
            Matches::RowIds,
        );
        let finished = lab.one(&task);
        assert_eq!(finished.report.unit, "engine 0");
        assert!(finished.report.cycles > 0);
        let result = finished.result.unwrap().take::<Scan>().unwrap();
        assert_eq!(result.found, expected(&task));
    }
    let unit = lab.scheduler.counters().units.remove(0);
    let bytes = packed.len() as u64;
    assert_eq!(
        (unit.buffer_bytes_sent, unit.buffer_bytes_kept),
        (bytes, 9 * bytes)
    );
    assert!(unit.link_ns > Link::PCIE_3_X8.ns(bytes));
}

/// A set beyond the engine's table goes to the processor at once, and the codes stay where they are.
#[test]
fn a_set_beyond_the_table_costs_the_unit_nothing() {
    let lab = Lab::new(1 << 20, 0, vec![no_faults()]);
    let codes: Vec<u32> = (0..2000).map(|code| code * 400).collect();
    let packed = pack(&codes, 20);
    let buffer = Buffer::new(packed.clone());
    let of_words = |words: usize| {
        let set = ScanPredicate::Set(vec![0x8000_0001_0000_0001; words].into());
        task(&buffer, 20, codes.len(), set, Matches::RowIds)
    };
    for (words, reason) in [
        (1 << 15, None),
        ((1 << 15) + 1, Some(Reason::PartTooLarge)),
        (1 << 15, None),
    ] {
        let asked = of_words(words);
        let finished = lab.one(&asked);
        assert_eq!(finished.report.redone_on_cpu, reason);
        let result = finished.result.unwrap().take::<Scan>().unwrap();
        assert_eq!(result.found, expected(&asked));
    }
    let unit = lab.scheduler.counters().units.remove(0);
    assert_eq!(unit.buffer_bytes_sent, packed.len() as u64);
    assert_eq!(unit.failures.nonzero().count(), 0);
}

/// Three columns, and memory for two of them.
#[test]
fn columns_make_room_for_each_other() {
    let lab = Lab::new(30_000, 0, vec![no_faults()]);
    let columns: Vec<(Buffer, Vec<u8>)> = (0..3).map(|seed| column(seed, 10_000)).collect();
    for round in 0..9 {
        let (buffer, _) = &columns[round % 3];
        let task = task(buffer, 10, 10_000, ScanPredicate::Range(5, 90), Matches::Bitmap);
        let result = lab.one(&task).result.unwrap().take::<Scan>().unwrap();
        assert_eq!(result.found, expected(&task));
    }
    let unit = lab.scheduler.counters().units.remove(0);
    assert_eq!(
        (unit.started, unit.buffer_bytes_kept),
        (9, 0),
        "least recently used first"
    );
    // Other contents under the same handle.
    let (buffer, _) = &columns[2];
    let codes = pack(&[7; 10_000], 10);
    let replaced = buffer.replaced(codes.clone());
    let task = task(&replaced, 10, 10_000, ScanPredicate::Range(7, 7), Matches::Bitmap);
    let result = lab.one(&task).result.unwrap().take::<Scan>().unwrap();
    assert_eq!((result.count, result.found), (10_000, expected(&task)));
}

#[test]
fn faults_of_buffers_are_found_by_the_next_scan_and_mended() {
    for (fault, reason) in [
        (Fault::BufferFlipped, Reason::InputDamaged),
        (Fault::BuffersLost, Reason::BufferLost),
    ] {
        // The first scan sends the codes; a loss is of what was sent before.
        let script = match fault {
            Fault::BuffersLost => vec![None, Some(fault)],
            _ => vec![Some(fault)],
        };
        let before = script.len() as u64 - 1;
        let lab = Lab::new(1 << 20, 0, vec![FaultPlan::Script(script.into())]);
        let (buffer, packed) = column(2, 3000);
        for number in 0..5 {
            let task = task(
                &buffer,
                10,
                3000,
                ScanPredicate::Range(number, 500),
                Matches::Bitmap,
            );
            let finished = lab.one(&task);
            let redone = (u64::from(number) == before).then_some(reason);
            assert_eq!(finished.report.redone_on_cpu, redone, "{fault:?} {number}");
            let result = finished.result.unwrap().take::<Scan>().unwrap();
            assert_eq!(result.found, expected(&task));
        }
        assert_eq!(lab.faults[0].get(fault), 1);
        let unit = lab.scheduler.counters().units.remove(0);
        assert_eq!(unit.buffer_bytes_sent, 2 * packed.len() as u64, "{fault:?}");
    }
}

/// Every fault of units and buffers, at random, on three units with memory for some of the columns: what is
/// told is always right.
#[test]
fn a_campaign_of_faults_on_scans_finds_everything() {
    let faults: Vec<Fault> = Fault::ALL.into_iter().chain(Fault::OF_BUFFERS).collect();
    let random = |seed| FaultPlan::Random {
        per_million: 300_000,
        faults: faults.clone(),
        seed,
    };
    // An upset in a single word of a result is found by comparing alone.
    let lab = Lab::new(70_000, 1_000_000, (1..4).map(random).collect());
    let columns: Vec<(Buffer, Vec<u8>)> = (0..5).map(|seed| column(seed, 5000)).collect();
    let mut prng = Prng::new(9);
    let (mut asked, mut told) = (Vec::new(), 0);
    let (mut handles, mut cancelled) = (Vec::new(), 0);
    while told < 3000 {
        while asked.len() < told + 8 {
            let (buffer, _) = &columns[prng.below(5) as usize];
            let predicate = match prng.below(2) {
                0 => ScanPredicate::Range(prng.below(600) as u32, prng.below(1024) as u32),
                _ => ScanPredicate::Set((0..16).map(|_| prng.next_u64()).collect()),
            };
            let matches = if prng.chance(1, 2) {
                Matches::Bitmap
            } else {
                Matches::RowIds
            };
            let task = task(buffer, 10, 5000, predicate, matches);
            let tag = asked.len() as u64;
            asked.push(expected(&task));
            let handle = lab.scheduler.try_submit_to(task.job(), &lab.finished, tag);
            handles.push((handle.unwrap(), false));
        }
        // One of those that are under way, often.
        if prng.chance(1, 4) {
            let (handle, is_cancelled) = &mut handles[told + prng.below(8) as usize];
            handle.cancel();
            *is_cancelled = true;
        }
        assert!(lab.advance());
        while let Some((tag, finished)) = lab.finished.pop() {
            if finished.result == Err(JobError::Cancelled) {
                assert!(handles[tag as usize].1, "nobody cancelled scan {tag}");
                (cancelled, told) = (cancelled + 1, told + 1);
                continue;
            }
            let result = finished.result.unwrap().take::<Scan>().unwrap();
            assert_eq!(result.found, asked[tag as usize], "scan {tag}");
            told += 1;
        }
    }
    let counters = lab.scheduler.counters();
    let injected = |fault| lab.faults.iter().map(|counts| counts.get(fault)).sum::<u64>();
    println!("{counters}");
    for fault in faults {
        assert!(injected(fault) > 0, "{fault:?}");
    }
    assert!(counters.redone_on_cpu.get(Reason::BufferLost) > 0);
    assert!(counters.redone_on_cpu.total(Blame::Unit) > 100);
    assert_eq!((counters.errors, counters.cancelled), (0, cancelled));
    assert!(cancelled > 200, "{cancelled} cancelled");
}

/// The codes of a cancelled scan are let go by the queue at once, and by the unit when it is done with them,
/// or late, and has other codes to keep.
#[test]
fn buffers_of_cancelled_scans_are_let_go() {
    for fault in [None, Some(Fault::AnswerLost), Some(Fault::Late)] {
        // Memory for one column and its result.
        let lab = Lab::new(4800, 0, vec![FaultPlan::Script(VecDeque::from([fault]))]);
        let scan = |buffer: &Buffer| task(buffer, 10, 3000, ScanPredicate::Range(1, 500), Matches::Bitmap);
        let mut columns = Vec::new();
        for number in 0..6 {
            let (buffer, _) = column(number, 3000);
            let handle = lab
                .scheduler
                .try_submit_to(scan(&buffer).job(), &lab.finished, number);
            columns.push((buffer.bytes().clone(), handle.unwrap()));
        }
        lab.scheduler.step();
        for (_, handle) in &columns {
            handle.cancel();
        }
        lab.scheduler.step();
        // The unit is at one, and keeps another, which it had not begun.
        let free = columns.iter().filter(|(bytes, _)| bytes.is_unique()).count();
        assert_eq!(free, 4, "{fault:?}");
        while lab.advance() {}
        lab.clock.advance_micros(10_000);
        while lab.advance() {}
        let told = std::iter::from_fn(|| lab.finished.pop());
        assert_eq!(told.count(), 6);
        let (other, _) = column(7, 3000);
        assert_eq!(lab.one(&scan(&other)).report.unit, "engine 0");
        assert!(columns.iter().all(|(bytes, _)| bytes.is_unique()), "{fault:?}");
        let unit = lab.scheduler.counters().units.remove(0);
        assert_eq!((unit.started, unit.in_flight), (3, 0));
        let late = unit.failures.get(Reason::Late);
        assert_eq!(late, u64::from(fault.is_some()), "{fault:?}");
    }
}

/// Engines that scan at the same time share the channels: six take as long as their lines need.
#[test]
fn engines_share_the_channels() {
    let params = ScanEngineParams::default();
    let count = 200_000;
    let (buffer, packed) = column(4, count);
    let task = task(&buffer, 10, count, ScanPredicate::Range(0, 0), Matches::Bitmap);
    let took = |engines: usize| {
        let done = simulate(params, &vec![&task; engines]).unwrap();
        done.iter().map(|(_, _, cycles)| cycles.total).max().unwrap()
    };
    let lines = packed.len().div_ceil(64) as u64;
    // One engine takes a line a cycle, which is less than the channels give.
    assert!(
        (lines..lines + lines / 10 + 400).contains(&took(1)),
        "{}",
        took(1)
    );
    let of_channels = |engines: u64| {
        let bytes = engines * (64 * lines + count as u64 / 8);
        bytes * u64::from(params.clock_mhz) / u64::from(params.channels * params.channel_bytes_per_us)
    };
    for engines in [6, 12] {
        let (took, least) = (took(engines), of_channels(engines as u64));
        assert!(
            (least..least + least / 10 + 400).contains(&took),
            "{engines}: {took}, {least}"
        );
    }
}

/// Answers what another task asked for.
struct Confused;

impl Engine for Confused {
    fn run(&mut self, kind: JobKind, payload: &bytes::Bytes) -> Outcome {
        self.run_over(kind, payload, &[])
    }

    fn run_over(&mut self, kind: JobKind, payload: &bytes::Bytes, buffers: &[bytes::Bytes]) -> Outcome {
        let mut other = payload.to_vec();
        // The range's upper end.
        other[24] ^= 0xff;
        Golden.run_over(kind, &other.into(), buffers)
    }
}

#[test]
fn a_unit_that_scans_for_something_else_is_found_without_comparing() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let params = ScanEngineParams::default();
    let spec = params.spec("confused", 2, Link::CXL);
    let instant = SimulatedSpeed { job_ns: 0, kib_ns: 0 };
    let unit = InlineUnit::new(spec, Box::new(Confused), clock.clone(), instant);
    let cpu = InlineUnit::new(UnitSpec::cpu(2), Box::new(Golden), clock.clone(), instant);
    let config = SchedulerConfig {
        compare_per_million: 0,
        ..SchedulerConfig::default()
    };
    let scheduler = Scheduler::manual(config, clock, validate, Box::new(cpu), vec![Box::new(unit)]).unwrap();
    let (buffer, _) = column(5, 4000);
    let task = task(&buffer, 10, 4000, ScanPredicate::Range(0, 512), Matches::Bitmap);
    let ticket = scheduler.submit(task.clone().job());
    while scheduler.step().is_some() {}
    let Ok(finished) = ticket.try_take() else {
        panic!("not finished");
    };
    assert_eq!(finished.report.redone_on_cpu, Some(Reason::Malformed));
    let result = finished.result.unwrap().take::<Scan>().unwrap();
    assert_eq!(result.found, expected(&task));
}
