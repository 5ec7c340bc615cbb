//! A scheduler on simulated time, with units that compute a known function and fail as planned.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use weft_base::{Clock, ManualClock};
use weft_offload::counters::Counters;
use weft_offload::faults::{Fault, FaultCounts, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::job::{Job, Limits, Shape};
use weft_offload::kinds::{KEY_BYTES, Merge, VALUE_BYTES, WAYS};
use weft_offload::unit::inline::{InlineUnit, SimulatedSpeed};
use weft_offload::wire::ReturnCode;
use weft_offload::{
    Accepts, Engine, Finished, FinishedQueue, JobKind, Outcome, Output, Reason, Scheduler, SchedulerConfig,
    Unit, UnitSpec, Validator,
};

/// The function that every sound unit of these tests computes.
pub fn golden(payload: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = payload.iter().rev().map(|byte| byte.wrapping_mul(3)).collect();
    out.extend_from_slice(&weft_ops::hash64(payload).to_le_bytes());
    out
}

/// Computes [`golden`]; calls tasks that begin with 255 invalid.
pub struct Sound;

impl Engine for Sound {
    fn run(&mut self, _: JobKind, payload: &Bytes) -> Outcome {
        let (code, output) = match payload.first() {
            Some(255) => (ReturnCode::Invalid, b"begins with 255".to_vec()),
            Some(254) => (ReturnCode::BeyondLimits, Vec::new()),
            _ => (ReturnCode::Done, golden(payload)),
        };
        Outcome {
            code,
            output: output.into(),
            cycles: payload.len() as u64,
        }
    }
}

/// As [`Sound`], but no task is too large: the CPU.
pub struct Cpu;

impl Engine for Cpu {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        let mut outcome = Sound.run(kind, payload);
        if outcome.code == ReturnCode::BeyondLimits {
            outcome.code = ReturnCode::Done;
            outcome.output = golden(payload).into();
        }
        outcome
    }
}

/// Breaks down whatever it is given.
pub struct Breaks;

impl Engine for Breaks {
    fn run(&mut self, _: JobKind, _: &Bytes) -> Outcome {
        Outcome {
            code: ReturnCode::Broken,
            output: b"broke down".to_vec().into(),
            cycles: 0,
        }
    }
}

pub const UNIT_PACE: SimulatedSpeed = SimulatedSpeed {
    job_ns: 10_000,
    kib_ns: 1_000,
};
pub const CPU_PACE: SimulatedSpeed = SimulatedSpeed {
    job_ns: 100_000,
    kib_ns: 10_000,
};
pub const TIMES: FaultTimes = FaultTimes {
    late_ns: 5_000_000,
    dead_ns: 3_000_000,
};

/// The faults that a single attempt shows, and for which reason its job is done again; all but an upset.
pub const FOUND_WITHOUT_COMPARING: [(Fault, Option<Reason>); Fault::ALL.len() - 1] = [
    (Fault::InputFlipped, Some(Reason::InputDamaged)),
    (Fault::InputTruncated, Some(Reason::InputDamaged)),
    (Fault::RequestLost, Some(Reason::Late)),
    (Fault::Refused, Some(Reason::Refused)),
    (Fault::OutputFlipped, Some(Reason::OutputDamaged)),
    (Fault::OutputTruncated, Some(Reason::Truncated)),
    (Fault::HeaderFlipped, Some(Reason::Late)),
    (Fault::AnswerLost, Some(Reason::Late)),
    (Fault::Late, Some(Reason::Late)),
    (Fault::Duplicate, None),
    (Fault::DiesSilent, Some(Reason::Late)),
    (Fault::DiesRefusing, Some(Reason::Refused)),
];

pub const MERGE: JobKind = JobKind::of::<Merge>();

pub fn unit_spec(name: &str) -> UnitSpec {
    let limits = Limits::of_memory(1 << 20)
        .with(KEY_BYTES, 64)
        .with(VALUE_BYTES, 1024)
        .with(WAYS, 4);
    UnitSpec {
        name: name.to_owned(),
        accepts: Accepts::Kinds(vec![(MERGE, limits)]),
        depth: 2,
        urgent_depth: 0,
        buffer_bytes_max: 0,
        link: None,
        in_process: false,
    }
}

pub fn config() -> SchedulerConfig {
    SchedulerConfig {
        deadline_ns: 1_000_000,
        deadline_ns_per_kib: 10_000,
        compare_per_million: 0,
        ..SchedulerConfig::default()
    }
}

/// As [`config`], but every job is compared.
pub fn compare_all() -> SchedulerConfig {
    SchedulerConfig {
        compare_per_million: 1_000_000,
        ..config()
    }
}

/// As [`config`], but the CPU begins what units are slow with, after so long at least.
pub fn hedging(hedge_floor_ns: u64) -> SchedulerConfig {
    SchedulerConfig {
        hedge_floor_ns,
        ..config()
    }
}

/// As [`config`], but few failures take a unit out for so long, and two probes bring it back.
pub fn impatient(failures_max: u32, out_ns: u64) -> SchedulerConfig {
    let mut settings = config();
    let health = &mut settings.health;
    (health.window, health.failures_max, health.probes) = (8, failures_max, 2);
    (health.out_ns, health.out_ns_max) = (out_ns, 8 * out_ns);
    settings
}

pub fn accept_all(_: &Job, output: Bytes) -> Option<Output> {
    Some(Output::Bytes(output))
}

pub struct Lab {
    pub clock: Arc<ManualClock>,
    pub scheduler: Scheduler,
    pub faults: Vec<FaultCounts>,
    pub finished: FinishedQueue,
}

impl Lab {
    /// One unit for each plan, named `unit 0` and so on.
    pub fn new(config: SchedulerConfig, plans: Vec<FaultPlan>) -> Lab {
        Lab::with_cpu(config, plans, Box::new(Cpu))
    }

    /// The same with another engine as the CPU.
    pub fn with_cpu(config: SchedulerConfig, plans: Vec<FaultPlan>, engine: Box<dyn Engine>) -> Lab {
        let mut faults = Vec::new();
        let lab = Lab::of_units(config, accept_all, engine, |clock| {
            let unit = |(number, plan)| {
                let spec = unit_spec(&format!("unit {number}"));
                let inner = InlineUnit::new(spec, Box::new(Sound), clock.clone(), UNIT_PACE);
                let unit = FaultyUnit::new(inner, clock.clone(), plan, TIMES);
                faults.push(unit.counts());
                Box::new(unit) as Box<dyn Unit>
            };
            plans.into_iter().enumerate().map(unit).collect()
        });
        Lab { faults, ..lab }
    }

    /// The same with units made by the caller, whose faults it does not count.
    pub fn of_units(
        config: SchedulerConfig,
        look: Validator,
        engine: Box<dyn Engine>,
        units: impl FnOnce(&Arc<dyn Clock>) -> Vec<Box<dyn Unit>>,
    ) -> Lab {
        let clock = Arc::new(ManualClock::new(0));
        let shared: Arc<dyn Clock> = clock.clone();
        let units = units(&shared);
        let spec = UnitSpec::unlimited("cpu", 2);
        let cpu = Box::new(InlineUnit::new(spec, engine, shared.clone(), CPU_PACE));
        Lab {
            clock,
            scheduler: Scheduler::manual(config, shared, look, cpu, units).unwrap(),
            faults: Vec::new(),
            finished: FinishedQueue::new(),
        }
    }

    /// A lab whose only unit meets these faults, one for each attempt.
    pub fn scripted(config: SchedulerConfig, script: &[Option<Fault>]) -> Lab {
        Lab::new(config, vec![script_of(script)])
    }

    pub fn submit(&self, tag: u64, job: Job) {
        self.scheduler.try_submit_to(job, &self.finished, tag).unwrap();
    }

    /// Goes on until nothing is due.
    pub fn run(&self) {
        while self.advance() {}
    }

    /// One step, then time moves to the next event. False when there is none.
    pub fn advance(&self) -> bool {
        let Some(next) = self.scheduler.step() else {
            return false;
        };
        let micros = u32::try_from(next.as_nanos().div_ceil(1000)).unwrap();
        self.clock.advance_micros(micros);
        true
    }

    /// Goes on for at least so long, whether something is due or not.
    pub fn pass(&self, micros: u32) {
        self.run();
        self.clock.advance_micros(micros);
        self.run();
    }

    pub fn pop(&self) -> Option<(u64, Finished)> {
        self.finished.pop()
    }

    /// Runs one job to its end; its result must be right.
    pub fn one(&self, payload: &[u8]) -> Finished {
        self.submit(0, job(payload));
        self.run();
        let (_, finished) = self.pop().unwrap();
        assert_eq!(bytes(&finished), golden(payload));
        finished
    }

    pub fn counters(&self) -> Counters {
        self.scheduler.counters()
    }
}

/// The result's bytes.
pub fn bytes(finished: &Finished) -> Bytes {
    finished.result.as_ref().unwrap().to_bytes()
}

pub fn script_of(script: &[Option<Fault>]) -> FaultPlan {
    FaultPlan::Script(script.iter().copied().collect::<VecDeque<_>>())
}

/// A unit that meets no faults.
pub fn fine() -> FaultPlan {
    script_of(&[])
}

/// A job with a deadline of its own.
pub fn patient(payload: &[u8], deadline_ns: u64) -> Job {
    let mut patient = job(payload);
    patient.deadline_ns = Some(deadline_ns);
    patient
}

pub fn job(payload: &[u8]) -> Job {
    Job::encoded(MERGE, payload.to_vec().into(), Shape::default())
}
