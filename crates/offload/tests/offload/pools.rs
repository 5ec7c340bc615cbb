//! Threads that do jobs in slices, and threads that validate answers. Nothing here depends on how long
//! something takes: jobs go on until they are let go.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use weft_base::{Clock, SystemClock};
use weft_offload::job::Job;
use weft_offload::unit::{Between, PoolUnit, Work};
use weft_offload::wire::ReturnCode;
use weft_offload::{
    Engine, Finished, FinishedQueue, JobError, JobKind, Outcome, Output, Reason, Scheduler, SchedulerConfig,
    Unit, UnitSpec,
};

use crate::lab::{Cpu, Sound, accept_all, bytes, golden, job, unit_spec};
use crate::threads::eventually;
use crate::urgency::urgent;

/// As [`Sound`], but a task that begins with 9 has slices without end until it is let go.
struct Endless(Arc<AtomicUsize>);

impl Engine for Endless {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        Sound.run(kind, payload)
    }

    fn run_in_slices(&mut self, kind: JobKind, work: Work<'_>, between: Between<'_>) -> Option<Outcome> {
        let payload = match work {
            Work::Payload(payload, _) => payload.clone(),
            Work::Task(_) => return None,
        };
        while payload.first() == Some(&9) && self.0.load(SeqCst) == 0 {
            if let ControlFlow::Break(()) = between(self) {
                return None;
            }
            std::thread::yield_now();
        }
        Some(self.run(kind, &payload))
    }
}

fn settings() -> SchedulerConfig {
    SchedulerConfig {
        deadline_ns: 60_000_000_000,
        hedge_floor_ns: u64::MAX,
        compare_per_million: 0,
        ..SchedulerConfig::default()
    }
}

/// One unit of one thread that does jobs in slices; and what lets its tasks go.
fn sliced() -> (Scheduler, Arc<AtomicUsize>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let let_go = Arc::new(AtomicUsize::new(0));
    let mut spec = unit_spec("unit");
    spec.urgent_depth = 1;
    let unit = PoolUnit::new(spec, vec![Box::new(Endless(let_go.clone()))], 1.0, &clock).unwrap();
    let cpu = PoolUnit::new(UnitSpec::unlimited("cpu", 2), vec![Box::new(Cpu)], 1.0, &clock).unwrap();
    let units: Vec<Box<dyn Unit>> = vec![Box::new(unit)];
    (
        Scheduler::with_cpu(settings(), clock, accept_all, Box::new(cpu), units).unwrap(),
        let_go,
    )
}

#[test]
fn a_thread_does_urgent_jobs_between_slices() {
    let (scheduler, let_go) = sliced();
    let merge = scheduler.submit(job(&[9; 100]));
    let behind = scheduler.submit(job(b"behind"));
    assert!(eventually(|| scheduler.counters().units[0].started == 2));
    // More than may pass in a row: the thread works on the merge for a turn meanwhile.
    for round in 10..40_u8 {
        let finished = scheduler.submit(urgent(&[round; 50])).wait();
        assert_eq!(bytes(&finished), golden(&[round; 50]));
        assert_eq!(finished.report.unit, "unit");
    }
    let Err(merge) = merge.try_take() else {
        panic!("it has no end");
    };
    let_go.store(1, SeqCst);
    assert_eq!(bytes(&merge.wait()), golden(&[9; 100]));
    assert_eq!(bytes(&behind.wait()), golden(b"behind"));
}

#[test]
fn a_thread_gives_a_cancelled_job_up_and_takes_the_next() {
    let (scheduler, _) = sliced();
    for _ in 0..3 {
        let (merge, next) = (scheduler.submit(job(&[9; 100])), scheduler.submit(job(b"next")));
        assert!(eventually(|| scheduler.counters().units[0].in_flight == 2));
        drop(merge);
        assert_eq!(bytes(&next.wait()), golden(b"next"));
        assert!(eventually(|| scheduler.counters().units[0].in_flight == 0));
    }
    let counters = scheduler.counters();
    assert_eq!((counters.cancelled, counters.finished), (3, 3));
    assert_eq!(counters.units[0].failures.nonzero().count(), 0);
    // Nobody waits for the rest of a job when the scheduler is dropped.
    let merge = scheduler.submit(job(&[9; 100]));
    assert!(eventually(|| scheduler.counters().units[0].in_flight == 1));
    drop(scheduler);
    assert_eq!(merge.wait().result, Err(JobError::Stopped));
}

/// Says that it gave up what nobody cancelled.
struct GivesUp;

impl Engine for GivesUp {
    fn run(&mut self, _: JobKind, _: &Bytes) -> Outcome {
        Outcome {
            code: ReturnCode::GivenUp,
            output: Vec::new().into(),
            cycles: 0,
        }
    }
}

/// One unit for each engine.
fn of_engines(
    settings: SchedulerConfig,
    look: weft_offload::Validator,
    engines: Vec<Box<dyn Engine>>,
) -> Scheduler {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = |(number, engine)| {
        let spec = unit_spec(&format!("unit {number}"));
        Box::new(PoolUnit::new(spec, vec![engine], 1.0, &clock).unwrap()) as Box<dyn Unit>
    };
    let units = engines.into_iter().enumerate().map(unit).collect();
    let cpu = PoolUnit::new(UnitSpec::unlimited("cpu", 2), vec![Box::new(Cpu)], 1.0, &clock).unwrap();
    Scheduler::with_cpu(settings, clock.clone(), look, Box::new(cpu), units).unwrap()
}

#[test]
fn giving_up_what_nobody_cancelled_is_a_failure() {
    let scheduler = of_engines(settings(), accept_all, vec![Box::new(GivesUp)]);
    let finished = scheduler.submit(job(b"task")).wait();
    assert_eq!(finished.report.redone_on_cpu, Some(Reason::Broken));
    assert_eq!(bytes(&finished), golden(b"task"));
}

/// While as many answers to merges wait for validation as the unit may have, it gets a scan and its answer
/// is validated.
#[test]
fn a_scans_validation_is_not_behind_a_merges() {
    static VALIDATED: AtomicUsize = AtomicUsize::new(0);
    static LET_GO: AtomicUsize = AtomicUsize::new(0);
    fn look(job: &Job, output: Bytes) -> Option<Output> {
        if job.payload().first() == Some(&9) {
            VALIDATED.store(1, SeqCst);
            eventually(|| LET_GO.load(SeqCst) > 0);
        }
        accept_all(job, output)
    }
    let scheduler = of_engines(settings(), look, vec![Box::new(Sound)]);
    let queue = FinishedQueue::new();
    for tag in 0..3 {
        scheduler.submit_to(job(&[9; 10]), &queue, tag);
    }
    assert!(eventually(|| VALIDATED.load(SeqCst) > 0));
    let finished = scheduler.submit(urgent(b"scan")).wait();
    assert_eq!(bytes(&finished), golden(b"scan"));
    assert!(queue.pop().is_none());
    LET_GO.store(1, SeqCst);
    for tag in 0..3 {
        let (told, finished) = queue.wait_for(std::time::Duration::from_secs(20)).unwrap();
        assert_eq!((told, bytes(&finished)), (tag, golden(&[9; 10]).into()));
        // The time of validation is not the unit's.
        assert_eq!(finished.report.redone_on_cpu, None);
    }
    assert_eq!(scheduler.counters().units[0].in_flight, 0);
}

/// However long validation takes, the unit was not late; and its answers are taken in their order.
#[test]
fn the_time_of_validation_is_not_the_units() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    fn look(job: &Job, output: Bytes) -> Option<Output> {
        if job.payload().first() == Some(&9) {
            // Longer than the deadline, and than validating the next answer, if a thread can.
            std::thread::sleep(std::time::Duration::from_millis(60));
            eventually(|| SEEN.load(SeqCst) > 0 || processors() < 2);
        } else {
            SEEN.store(1, SeqCst);
        }
        accept_all(job, output)
    }
    let config = SchedulerConfig {
        deadline_ns: 50_000_000,
        deadline_ns_per_kib: 0,
        hedge_floor_ns: 1_000_000,
        validation_threads: 2,
        ..settings()
    };
    let scheduler = of_engines(config, look, vec![Box::new(Sound)]);
    let queue = FinishedQueue::new();
    scheduler.submit_to(job(&[9; 10]), &queue, 0);
    scheduler.submit_to(job(&[1; 10]), &queue, 1);
    let told = || queue.wait_for(std::time::Duration::from_secs(20)).unwrap();
    let told: [(u64, Finished); 2] = [told(), told()];
    for (number, (tag, finished)) in told.iter().enumerate() {
        assert_eq!((*tag, finished.report.redone_on_cpu), (number as u64, None));
    }
    let counters = scheduler.counters();
    assert_eq!(
        (counters.units[0].failures.nonzero().count(), counters.hedged),
        (0, 0)
    );
}

#[test]
fn a_validator_that_panics_has_not_accepted_the_answer() {
    fn look(job: &Job, output: Bytes) -> Option<Output> {
        if job.payload().first() == Some(&9) {
            // Without the message of a panic.
            std::panic::resume_unwind(Box::new("a defect"));
        }
        accept_all(job, output)
    }
    let scheduler = of_engines(settings(), look, vec![Box::new(Sound)]);
    // The CPU's answers are bytes here, too.
    let finished = scheduler.submit(job(&[9])).wait();
    assert!(
        matches!(finished.result, Err(JobError::Broken(_))),
        "{:?}",
        finished.result
    );
    assert_eq!(scheduler.counters().units[0].failures.get(Reason::Malformed), 1);
    // Those threads go on.
    for task in [b"one", b"two"] {
        assert_eq!(bytes(&scheduler.submit(job(task)).wait()), golden(task));
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}
