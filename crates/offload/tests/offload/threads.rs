//! Real threads: wakers, waiting at the bound, many requesters, a pool as the CPU, drops in mid-flight.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weft_base::{Clock, SystemClock};
use weft_offload::faults::{Fault, FaultPlan, FaultTimes, FaultyUnit};
use weft_offload::job::Job;
use weft_offload::unit::PoolUnit;
use weft_offload::{
    Engine, FinishedQueue, JobError, JobKind, Outcome, Output, Reason, Scheduler, SchedulerConfig, Unit,
    UnitSpec,
};

use crate::lab::{Cpu, Sound, accept_all, bytes, golden, job, unit_spec};

fn pool(spec: UnitSpec, engines: Vec<Box<dyn Engine>>, clock: &Arc<dyn Clock>) -> PoolUnit {
    PoolUnit::new(spec, engines, 1.0, clock).unwrap()
}

fn scheduler(config: SchedulerConfig, plans: Vec<FaultPlan>) -> Scheduler {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let times = FaultTimes {
        late_ns: 30_000_000,
        dead_ns: 20_000_000,
    };
    let mut units: Vec<Box<dyn Unit>> = Vec::new();
    for (number, plan) in plans.into_iter().enumerate() {
        let unit = pool(
            unit_spec(&format!("unit {number}")),
            vec![Box::new(Sound)],
            &clock,
        );
        units.push(Box::new(FaultyUnit::new(unit, clock.clone(), plan, times)));
    }
    let cpu = Box::new(pool(
        UnitSpec::unlimited("cpu", 4),
        vec![Box::new(Cpu), Box::new(Cpu)],
        &clock,
    ));
    Scheduler::with_cpu(config, clock, accept_all, cpu, units).unwrap()
}

fn config() -> SchedulerConfig {
    SchedulerConfig {
        deadline_ns: 20_000_000,
        queue_jobs_max: 8,
        ..SchedulerConfig::default()
    }
}

#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn many_requesters_with_faults_on_real_threads() {
    let faults: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| *fault != Fault::Upset)
        .collect();
    let plans = (0..2).map(|seed| FaultPlan::Random {
        per_million: 30_000,
        faults: faults.clone(),
        seed,
    });
    let scheduler = scheduler(config(), plans.collect());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let scheduler = &scheduler;
            scope.spawn(move || {
                for round in 0..100_u8 {
                    let payload = vec![thread; usize::from(round) * 7 + 1];
                    let finished = scheduler.submit(job(&payload)).wait();
                    assert_eq!(bytes(&finished), golden(&payload));
                }
            });
        }
    });
    let counters = scheduler.counters();
    assert_eq!(
        (counters.submitted, counters.finished, counters.waiting),
        (400, 400, 0)
    );
}

#[test]
fn a_ticket_is_a_future_whose_waker_is_called() {
    let scheduler = scheduler(config(), vec![FaultPlan::Script([None].into())]);
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(counted.clone());
    let mut context = Context::from_waker(&waker);
    let mut ticket = scheduler.submit(job(b"task"));
    let finished = loop {
        let before = counted.0.load(SeqCst);
        match Pin::new(&mut ticket).poll(&mut context) {
            Poll::Ready(finished) => break finished,
            Poll::Pending => {
                while counted.0.load(SeqCst) == before {
                    std::thread::yield_now();
                }
            }
        }
    };
    assert_eq!(bytes(&finished), golden(b"task"));
}

#[test]
fn the_finished_queue_wakes_once_for_each_registration() {
    let scheduler = scheduler(config(), vec![FaultPlan::Script([None].into())]);
    let queue = FinishedQueue::new();
    let counted = Arc::new(Counted::default());
    let waker = Waker::from(counted.clone());
    assert!(queue.poll(&waker).is_pending());
    for tag in 0..20 {
        scheduler.submit_to(job(&[tag as u8]), &queue, tag);
    }
    let mut tags = Vec::new();
    while tags.len() < 20 {
        let (tag, finished) = queue.wait_for(Duration::from_secs(20)).unwrap();
        assert_eq!(bytes(&finished), golden(&[tag as u8]));
        tags.push(tag);
    }
    tags.sort_unstable();
    assert_eq!(tags, (0..20).collect::<Vec<_>>());
    assert_eq!(counted.0.load(SeqCst), 1);
    assert!(queue.pop().is_none());
}

#[test]
fn submit_waits_at_the_bound_and_a_stopped_scheduler_tells_all() {
    // A unit that takes everything and never answers, and a CPU without threads.
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = pool(unit_spec("deaf"), Vec::new(), &clock);
    let cpu = Box::new(pool(UnitSpec::unlimited("cpu", 2), Vec::new(), &clock));
    let scheduler = Scheduler::with_cpu(config(), clock, accept_all, cpu, vec![Box::new(unit)]).unwrap();
    let scheduler = Arc::new(scheduler);
    let queue = FinishedQueue::new();
    let taken = Arc::new(AtomicUsize::new(0));
    let submitter = {
        let (scheduler, queue, taken) = (scheduler.clone(), queue.clone(), taken.clone());
        std::thread::spawn(move || {
            for tag in 0..12 {
                scheduler.submit_to(job(b"task"), &queue, tag);
                taken.fetch_add(1, SeqCst);
            }
        })
    };
    // Two at the unit, later two at the CPU; the others wait in a line of eight.
    submitter.join().unwrap();
    while scheduler.counters().units[0].failures.get(Reason::Late) < 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(scheduler.counters().waiting <= 8);
    drop(scheduler);
    let delivered: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
    assert_eq!(delivered.len(), taken.load(SeqCst));
    assert!(
        delivered
            .iter()
            .all(|(_, finished)| finished.result == Err(JobError::Stopped))
    );
}

#[test]
fn submit_blocks_until_there_is_room() {
    let scheduler = scheduler(
        SchedulerConfig {
            queue_jobs_max: 1,
            ..config()
        },
        vec![FaultPlan::Script([None].into())],
    );
    let tickets: Vec<_> = (0..50_u8)
        .map(|number| scheduler.submit(job(&[number; 2000])))
        .collect();
    for (number, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(bytes(&ticket.wait()), golden(&[number as u8; 2000]));
    }
}

/// A unit whose driver code is broken.
struct Panics(UnitSpec);

impl Unit for Panics {
    fn spec(&self) -> &UnitSpec {
        &self.0
    }
    fn set_waker(&mut self, _: weft_offload::unit::Waker) {}
    fn submit(&mut self, _: weft_offload::wire::Request) -> Result<(), weft_offload::unit::Refusal> {
        std::panic::resume_unwind(Box::new("a defect"))
    }
    fn poll(&mut self, _: &mut Vec<weft_offload::wire::Answer>) {}
    fn forget(&mut self, _: weft_offload::wire::AttemptId) {}
}

#[test]
fn a_driver_that_panics_leaves_nobody_waiting() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let units: Vec<Box<dyn Unit>> = vec![Box::new(Panics(unit_spec("broken")))];
    let scheduler = Scheduler::new(config(), clock, units).unwrap();
    assert_eq!(
        scheduler.submit(job(b"task")).wait().result,
        Err(JobError::Stopped)
    );
    for _ in 0..20 {
        assert_eq!(
            scheduler.submit(job(b"task")).wait().result,
            Err(JobError::Stopped)
        );
    }
}

/// While an answer is looked at, which may take long, counters can be read.
#[test]
fn answers_are_looked_at_outside_of_the_latch() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static COUNTED: AtomicUsize = AtomicUsize::new(0);
    /// Says no if nobody could read counters meanwhile.
    fn slow(job: &Job, output: Bytes) -> Option<Output> {
        INSIDE.store(1, SeqCst);
        eventually(|| COUNTED.load(SeqCst) > 0)
            .then(|| accept_all(job, output))
            .flatten()
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = pool(unit_spec("unit"), vec![Box::new(Sound)], &clock);
    let spec = UnitSpec::unlimited("cpu", 4);
    let cpu = Box::new(pool(spec, vec![Box::new(Cpu)], &clock));
    let config = SchedulerConfig {
        deadline_ns: 60_000_000_000,
        ..config()
    };
    let scheduler = Scheduler::with_cpu(config, clock, slow, cpu, vec![Box::new(unit)]).unwrap();
    let ticket = scheduler.submit(job(b"looked at"));
    assert!(eventually(|| INSIDE.load(SeqCst) > 0));
    let counters = scheduler.counters();
    COUNTED.store(1, SeqCst);
    assert_eq!(counters.finished, 0);
    let finished = ticket.wait();
    assert_eq!(bytes(&finished), golden(b"looked at"));
    assert_eq!(finished.report.redone_on_cpu, None);
}

/// Does what [`Sound`] does, but keeps tasks that begin with 9 until it is let go.
struct Held(Arc<AtomicUsize>);

impl Engine for Held {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        if payload.first() == Some(&9) {
            eventually(|| self.0.load(SeqCst) > 0);
        }
        Sound.run(kind, payload)
    }
}

/// A unit hangs: the CPU's result is told long before the deadline. When the unit comes back after all it was
/// slow, and did not fail.
#[test]
fn a_unit_that_hangs_holds_nobody_up() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let let_go = Arc::new(AtomicUsize::new(0));
    let unit = pool(unit_spec("unit"), vec![Box::new(Held(let_go.clone()))], &clock);
    let spec = UnitSpec::unlimited("cpu", 2);
    let cpu = Box::new(pool(spec, vec![Box::new(Cpu)], &clock));
    let config = SchedulerConfig {
        deadline_ns: 60_000_000_000,
        hedge_floor_ns: 1_000_000,
        compare_per_million: 0,
        ..config()
    };
    let scheduler = Scheduler::with_cpu(config, clock, accept_all, cpu, vec![Box::new(unit)]).unwrap();
    // So many make its pace known.
    for number in 0..16 {
        let report = scheduler.submit(job(&[number % 8; 100])).wait().report;
        assert_eq!(report.unit, "unit");
    }
    let finished = scheduler.submit(job(&[9; 100])).wait();
    assert_eq!(bytes(&finished), golden(&[9; 100]));
    let report = &finished.report;
    assert_eq!(
        (report.unit.as_str(), report.redone_on_cpu),
        ("cpu", Some(Reason::Slow))
    );
    let unit = || scheduler.counters().units[0].clone();
    assert_eq!((unit().hedges_lost, unit().slow, unit().in_flight), (1, 0, 1));
    let_go.store(1, SeqCst);
    assert!(eventually(|| unit().slow == 1), "{}", scheduler.counters());
    assert_eq!((unit().in_flight, unit().failures.nonzero().count()), (0, 0));
}

/// Everybody hangs, and the line is full: who waits for a place may give up, and takes nothing with him.
#[test]
fn who_waits_for_a_place_may_give_up() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let unit = pool(unit_spec("deaf"), Vec::new(), &clock);
    let cpu = Box::new(pool(UnitSpec::unlimited("cpu", 2), Vec::new(), &clock));
    let config = SchedulerConfig {
        deadline_ns: 60_000_000_000,
        queue_jobs_max: 1,
        ..config()
    };
    let scheduler = Scheduler::with_cpu(config, clock, accept_all, cpu, vec![Box::new(unit)]).unwrap();
    // Two at the unit, one in line.
    let tickets: Vec<_> = (0..3).map(|_| scheduler.submit(job(b"task"))).collect();
    let (stopped, delivered) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let delivered = delivered.clone();
            let is_stopped = || stopped.load(SeqCst) > 0;
            scheduler.submit_with(job(b"task"), &is_stopped, move |finished| {
                assert_eq!(finished.result, Err(JobError::Stopped));
                delivered.store(1, SeqCst);
            });
        });
        // Whether it comes to wait before or after this, it waits.
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waits.is_finished());
        stopped.store(1, SeqCst);
        assert!(eventually(|| waits.is_finished()));
    });
    assert_eq!(delivered.load(SeqCst), 1);
    let counters = scheduler.counters();
    assert_eq!(
        (counters.submitted, counters.waiting, counters.finished),
        (3, 1, 0)
    );
    drop(scheduler);
    for ticket in tickets {
        assert_eq!(ticket.wait().result, Err(JobError::Stopped));
    }
}

/// Whether something comes to hold within some seconds.
pub fn eventually(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > Duration::from_secs(10) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
