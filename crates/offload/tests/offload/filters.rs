//! Filters on units that fail: a filter that misses a key loses reads, so each is looked through, and what is
//! told is the golden model's, byte for byte, whoever built it.

use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Clock, ManualClock, Prng};
use weft_offload::faults::{Fault, FaultCounts, FaultPlan, FaultyUnit};
use weft_offload::kinds::{BuildFilter, Golden, validate};
use weft_offload::model::{ModelEngine, ModelParams};
use weft_offload::reason::Blame;
use weft_offload::unit::inline::InlineUnit;
use weft_offload::wire::ReturnCode;
use weft_offload::{
    Engine, Finished, FinishedQueue, Job, JobKind, Outcome, Output, Reason, Scheduler, SchedulerConfig, Unit,
    UnitSpec,
};
use weft_ops::filter::build_filter;

use crate::campaign::faults_wanted;
use crate::lab::{CPU_PACE, FOUND_WITHOUT_COMPARING, TIMES, UNIT_PACE, bytes, config, script_of};

struct Lab {
    clock: Arc<ManualClock>,
    scheduler: Scheduler,
    faults: Vec<FaultCounts>,
    queue: FinishedQueue,
}

impl Lab {
    fn new(settings: SchedulerConfig, engines: Vec<(Box<dyn Engine>, FaultPlan)>) -> Lab {
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = clock.clone();
        let mut faults = Vec::new();
        let units = engines.into_iter().enumerate().map(|(number, (engine, plan))| {
            let spec = ModelParams::default().spec(format!("model {number}"), 2);
            let inner = InlineUnit::new(spec, engine, shared.clone(), UNIT_PACE);
            let unit = FaultyUnit::new(inner, shared.clone(), plan, TIMES);
            faults.push(unit.counts());
            Box::new(unit) as Box<dyn Unit>
        });
        let units = units.collect();
        let cpu = InlineUnit::new(UnitSpec::cpu(2), Box::new(Golden), shared.clone(), CPU_PACE);
        Lab {
            clock,
            scheduler: Scheduler::manual(settings, shared, validate, Box::new(cpu), units).unwrap(),
            faults,
            queue: FinishedQueue::new(),
        }
    }

    /// A step, and time moves to the next event; false when there is none.
    fn advance(&self) -> bool {
        let Some(next) = self.scheduler.step() else {
            return false;
        };
        let micros = next.as_nanos().div_ceil(1000);
        self.clock.advance_micros(u32::try_from(micros).unwrap());
        true
    }

    fn one(&self, hashes: &[u64]) -> Finished {
        let job = Job::build_filter(hashes.to_vec(), 10);
        self.scheduler.try_submit_to(job, &self.queue, 0).unwrap();
        while self.advance() {}
        let (_, finished) = self.queue.pop().unwrap();
        assert_eq!(bytes(&finished), build_filter(hashes, 10));
        finished
    }
}

fn model() -> Box<dyn Engine> {
    Box::new(ModelEngine::default())
}

fn hashes(prng: &mut Prng, count_max: u64) -> Vec<u64> {
    (0..prng.below(count_max)).map(|_| prng.next_u64()).collect()
}

/// Nothing is compared here: even what is upset inside a unit is found by looking.
#[test]
fn a_campaign_of_faults_on_filters_loses_nothing() {
    let mut settings = config();
    settings.health.failures_max = 64;
    settings.health.window = 64;
    settings.health.out_ns = 500_000;
    settings.health.out_ns_max = 1_000_000;
    let random = |seed| FaultPlan::Random {
        per_million: 300_000,
        faults: Fault::ALL.to_vec(),
        seed,
    };
    let engines = (0..3).map(|seed| (model(), random(seed))).collect();
    let lab = Lab::new(settings, engines);
    let injected = || lab.faults.iter().map(|counts| counts.total()).sum::<u64>();
    let mut prng = Prng::new(3);
    let (mut expected, mut told) = (Vec::new(), 0);
    loop {
        while injected() < faults_wanted() && expected.len() - told < 16 {
            let hashes = hashes(&mut prng, 200);
            let bits = 1 + prng.below(20) as u32;
            expected.push(Some(build_filter(&hashes, bits)));
            let (job, tag) = (Job::build_filter(hashes, bits), expected.len() as u64 - 1);
            lab.scheduler.try_submit_to(job, &lab.queue, tag).unwrap();
        }
        let goes_on = lab.advance();
        while let Some((tag, finished)) = lab.queue.pop() {
            let golden = expected[tag as usize].take().expect("told once");
            assert_eq!(bytes(&finished), golden, "filter {tag}");
            told += 1;
        }
        if !goes_on {
            break;
        }
    }
    assert_eq!(told, expected.len());
    let counters = lab.scheduler.counters();
    println!("{} faults injected into filters\n{counters}", injected());
    assert!(injected() >= faults_wanted());
    assert_eq!((counters.errors, counters.waiting), (0, 0));
    let harmless: u64 = lab.faults.iter().map(|counts| counts.get(Fault::Duplicate)).sum();
    let found: u64 = counters
        .units
        .iter()
        .map(|unit| unit.failures.total(Blame::Unit))
        .sum();
    assert!(found >= injected() - harmless, "{found} found of {}", injected());
    assert_eq!(counters.redone_on_cpu.total(Blame::Unit), found);
    assert!(counters.units[0].cycles > 0);
}

#[test]
fn each_fault_of_a_filter_is_redone_for_its_reason() {
    // Inside of a filter it shows without a second one, too.
    let upset = (Fault::Upset, Some(Reason::Malformed));
    let cases = FOUND_WITHOUT_COMPARING.into_iter().chain([upset]);
    assert_eq!(cases.clone().count(), Fault::ALL.len());
    for (fault, reason) in cases {
        let lab = Lab::new(config(), vec![(model(), script_of(&[Some(fault)]))]);
        let finished = lab.one(&hashes(&mut Prng::new(1), 300));
        assert_eq!(finished.report.redone_on_cpu, reason, "{fault:?}");
        assert_eq!(finished.report.kind, JobKind::of::<BuildFilter>());
        assert_eq!(lab.faults[0].get(fault), 1, "{fault:?}");
        let counters = lab.scheduler.counters();
        let redone = counters.redone_on_cpu.total(Blame::Unit);
        assert_eq!(redone, u64::from(reason.is_some()), "{fault:?}");
    }
}

/// Builds sound filters, but for one bit that it clears before it seals them.
struct Forgets(Prng);

impl Engine for Forgets {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        let mut outcome = Golden.run(kind, payload);
        let mut stored = outcome.output.to_bytes().to_vec();
        let set: Vec<usize> = (96..8 * stored.len())
            .filter(|bit| stored[bit / 8] & (1 << (bit % 8)) != 0)
            .collect();
        if let (ReturnCode::Done, Some(last)) = (outcome.code, set.len().checked_sub(1)) {
            let bit = set[self.0.below(last as u64 + 1) as usize];
            stored[bit / 8] &= !(1 << (bit % 8));
            let crc = weft_ops::crc32c(&stored[4..]);
            stored[..4].copy_from_slice(&crc.to_le_bytes());
            outcome.output = Output::from(stored);
        }
        outcome
    }
}

#[test]
fn a_filter_that_would_hide_a_key_is_built_again() {
    let lab = Lab::new(config(), vec![(Box::new(Forgets(Prng::new(9))), script_of(&[]))]);
    let mut prng = Prng::new(2);
    for number in 0..3 {
        let hashes = hashes(&mut prng, 400);
        let finished = lab.one(&hashes);
        assert_eq!(finished.report.redone_on_cpu, Some(Reason::Malformed), "{number}");
        assert_eq!(finished.report.unit, "cpu");
    }
    let counters = lab.scheduler.counters();
    assert_eq!(counters.redone_on_cpu.get(Reason::Malformed), 3);
    assert_eq!(counters.units[0].failures.get(Reason::Malformed), 3);
}

#[test]
fn a_filter_beyond_the_units_memory_goes_to_the_cpu() {
    let engine = ModelEngine {
        params: ModelParams {
            filter_bytes_max: 64,
            ..ModelParams::default()
        },
    };
    let lab = Lab::new(config(), vec![(Box::new(engine), script_of(&[]))]);
    assert_eq!(lab.one(&[1; 51]).report.redone_on_cpu, None);
    let beyond = lab.one(&[1; 52]).report.redone_on_cpu;
    assert_eq!(beyond, Some(Reason::LimitsFoundExceeded));
    assert_eq!(lab.scheduler.counters().units[0].taken_out, 0);
}
