//! Urgent jobs pass background jobs, within bounds; deadlines know of it. All on simulated time.

use std::sync::Arc;

use weft_base::{Clock, Prng};
use weft_offload::faults::{Fault, FaultPlan, FaultyUnit};
use weft_offload::job::Job;
use weft_offload::unit::inline::{InlineUnit, SimulatedSpeed};
use weft_offload::urgency::{TURN_NS, URGENT_RUN_MAX};
use weft_offload::{Finished, SchedulerConfig, Unit, UnitSpec, Urgency};

use crate::lab::{Cpu, Lab, Sound, TIMES, accept_all, bytes, config, golden, job, unit_spec};

const SLICE_NS: u64 = 50_000;
/// 110 us for a small job, 6.41 ms for one of 64 KiB.
const PACE: SimulatedSpeed = SimulatedSpeed {
    job_ns: 10_000,
    kib_ns: 100_000,
};
const URGENT_NS: u64 = 110_000;
const MERGE_NS: u64 = 6_410_000;

pub fn spec(urgent_depth: usize) -> UnitSpec {
    UnitSpec {
        urgent_depth,
        ..unit_spec("unit")
    }
}

/// One unit that does urgent jobs between slices, or one that does not.
fn lab(settings: SchedulerConfig, in_slices: bool) -> Lab {
    Lab::of_units(settings, accept_all, Box::new(Cpu), |clock| {
        let spec = spec(usize::from(in_slices));
        let unit = InlineUnit::new(spec, Box::new(Sound), clock.clone(), PACE);
        let unit = if in_slices { unit.in_slices(SLICE_NS) } else { unit };
        vec![Box::new(unit) as Box<dyn Unit>]
    })
}

fn patient() -> SchedulerConfig {
    SchedulerConfig {
        deadline_ns: 1_000_000_000,
        ..config()
    }
}

pub fn merge_job() -> Job {
    job(&[7; 64 << 10])
}

pub fn urgent(payload: &[u8]) -> Job {
    let mut urgent = job(payload);
    urgent.urgency = Urgency::Urgent;
    urgent
}

fn took_ns(finished: &Finished) -> u64 {
    finished.report.queued_ns + finished.report.run_ns
}

/// Goes on until a job is finished, and not beyond.
fn next(lab: &Lab) -> (u64, Finished) {
    loop {
        let due = lab.scheduler.step();
        if let Some(told) = lab.pop() {
            return told;
        }
        let micros = due.expect("nothing is to come").as_nanos().div_ceil(1000);
        lab.clock.advance_micros(u32::try_from(micros).unwrap());
    }
}

#[test]
fn an_urgent_job_waits_for_one_slice_at_most() {
    let lab = lab(patient(), true);
    let mut prng = Prng::new(3);
    let (mut merges, mut merged, mut longest) = (0, 0, 0);
    for tag in 0..300 {
        // Always more than the unit has places for.
        while merges < merged + 4 {
            lab.submit(1000 + merges, merge_job());
            merges += 1;
        }
        lab.scheduler.step();
        lab.clock.advance_micros(prng.below(3000) as u32);
        lab.submit(tag, urgent(b"scan"));
        loop {
            let (told, finished) = next(&lab);
            if told == tag {
                assert_eq!(bytes(&finished), golden(b"scan"));
                assert_eq!(finished.report.unit, "unit");
                longest = longest.max(took_ns(&finished));
                break;
            }
            merged += 1;
        }
    }
    // The lab's clock goes by microseconds.
    assert!(longest <= SLICE_NS + URGENT_NS + 2_000, "{longest} ns");
    assert!(merged > 20, "{merged} merges");
    lab.run();
    assert!(lab.counters().units[0].failures.nonzero().next().is_none());
}

/// Without slices the urgent job is next, whatever waits in the scheduler and at the unit.
#[test]
fn where_there_are_no_slices_the_urgent_job_is_next() {
    let lab = lab(patient(), false);
    for tag in 0..6 {
        lab.submit(tag, merge_job());
    }
    lab.scheduler.step();
    lab.submit(100, urgent(b"scan"));
    let mut order = Vec::new();
    while order.len() < 7 {
        order.push(next(&lab).0);
    }
    // One is at work; the other holds the unit's second place, and goes behind.
    assert_eq!(order, [0, 1, 100, 2, 3, 4, 5]);
    // With a place for urgent jobs alone it does not wait for a place.
    let lab = Lab::of_units(patient(), accept_all, Box::new(Cpu), |clock| {
        let unit = InlineUnit::new(spec(1), Box::new(Sound), clock.clone(), PACE);
        vec![Box::new(unit) as Box<dyn Unit>]
    });
    for tag in 0..6 {
        lab.submit(tag, merge_job());
    }
    lab.scheduler.step();
    lab.submit(100, urgent(b"scan"));
    let order: Vec<u64> = (0..7).map(|_| next(&lab).0).collect();
    assert_eq!(order, [0, 100, 1, 2, 3, 4, 5]);
}

#[test]
fn another_unit_takes_the_urgent_job_if_it_is_free() {
    let lab = Lab::of_units(patient(), accept_all, Box::new(Cpu), |clock| {
        let unit = |name: &str| {
            let spec = unit_spec(name);
            Box::new(InlineUnit::new(spec, Box::new(Sound), clock.clone(), PACE)) as Box<dyn Unit>
        };
        vec![unit("one"), unit("two")]
    });
    lab.submit(0, merge_job());
    lab.scheduler.step();
    lab.submit(1, urgent(b"scan"));
    let (tag, finished) = next(&lab);
    assert_eq!((tag, finished.report.unit.as_str()), (1, "two"));
    assert_eq!(took_ns(&finished), URGENT_NS);
}

/// Urgent jobs without end, and behind them background jobs: one of these is given to the unit after eight of
/// those, and begun after eight more; a sliced unit gives it a slice after each eight.
#[test]
fn urgent_jobs_without_end_do_not_starve_the_others() {
    for in_slices in [false, true] {
        let lab = lab(patient(), in_slices);
        let mut tag = 0;
        let mut ahead = 0;
        let mut feed = |lab: &Lab, done: u64| {
            while ahead < done + 6 {
                lab.submit(tag, urgent(b"scan"));
                (tag, ahead) = (tag + 1, ahead + 1);
            }
        };
        feed(&lab, 0);
        lab.scheduler.step();
        for merge in 0..4 {
            lab.submit(1_000_000 + merge, merge_job());
        }
        let (mut merged, mut scans, mut since) = (0, 0, 0);
        while merged < 4 {
            assert!(scans < 20_000, "merges starve");
            match next(&lab) {
                (told, _) if told >= 1_000_000 => {
                    assert_eq!(told, 1_000_000 + merged, "in order");
                    merged += 1;
                    if !in_slices {
                        // Eight in the scheduler, eight at the unit, and those that were there.
                        assert!(since <= u64::from(2 * URGENT_RUN_MAX) + 3, "{since} passed it");
                        since = 0;
                    }
                }
                _ => (scans, since) = (scans + 1, since + 1),
            }
            feed(&lab, scans);
        }
        let slices = 4 * MERGE_NS / SLICE_NS + 4;
        let bound = if in_slices {
            slices * u64::from(URGENT_RUN_MAX + 1)
        } else {
            60
        };
        assert!(
            scans > 20 && scans <= bound,
            "{scans} scans beside four merges, in slices: {in_slices}"
        );
    }
    // A thread's turn is as long as a scan, so that it is a ninth of the time.
    assert_eq!((URGENT_RUN_MAX, TURN_NS), (8, 1_000_000));
}

/// A merge that waited for urgent jobs is neither late nor slow, and does not make the unit look slow.
#[test]
fn the_time_of_urgent_jobs_is_not_held_against_the_background_job() {
    let settings = SchedulerConfig {
        deadline_ns: 8_000_000,
        deadline_ns_per_kib: 0,
        hedge_floor_ns: 7_000_000,
        ..config()
    };
    let lab = lab(settings, true);
    // So many make the unit's pace known.
    for tag in 0..20 {
        lab.submit(tag, merge_job());
        assert_eq!(next(&lab).0, tag);
    }
    lab.submit(100, merge_job());
    lab.scheduler.step();
    let begun = lab.clock.monotonic_nanos();
    for scan in 0..40 {
        lab.submit(200 + scan, urgent(b"scan"));
        assert_eq!(next(&lab).0, 200 + scan);
    }
    let (tag, finished) = next(&lab);
    assert_eq!((tag, finished.report.redone_on_cpu), (100, None));
    assert!(lab.clock.monotonic_nanos() - begun >= 40 * URGENT_NS + MERGE_NS);
    let counters = lab.counters();
    assert_eq!(
        (counters.hedged, counters.units[0].failures.nonzero().count()),
        (0, 0)
    );
}

/// Background jobs that fill the queue leave its urgent part free.
#[test]
fn each_urgency_has_room_of_its_own() {
    let bounded = SchedulerConfig {
        queue_jobs_max: 3,
        ..patient()
    };
    let lab = lab(bounded, true);
    for tag in 0..3 {
        lab.submit(tag, merge_job());
    }
    assert!(lab.scheduler.try_submit(merge_job()).is_err());
    for tag in 3..6 {
        lab.submit(tag, urgent(b"scan"));
    }
    assert!(lab.scheduler.try_submit(urgent(b"scan")).is_err());
    assert_eq!(lab.counters().waiting, 6);
    lab.run();
    assert_eq!(lab.counters().finished, 6);
}

/// The CPU redoes what units fail: urgent jobs first.
#[test]
fn the_cpu_redoes_urgent_jobs_first() {
    let lab = Lab::of_units(patient(), accept_all, Box::new(Cpu), |clock| {
        let plan = FaultPlan::Random {
            per_million: 1_000_000,
            faults: vec![Fault::Refused],
            seed: 1,
        };
        let inner = InlineUnit::new(unit_spec("unit"), Box::new(Sound), clock.clone(), PACE);
        let clock: Arc<dyn Clock> = clock.clone();
        vec![Box::new(FaultyUnit::new(inner, clock, plan, TIMES)) as Box<dyn Unit>]
    });
    for tag in 0..6 {
        lab.submit(tag, merge_job());
    }
    lab.scheduler.step();
    lab.submit(10, urgent(b"scan"));
    let order: Vec<u64> = (0..7).map(|_| next(&lab).0).collect();
    // Two were at the CPU.
    assert_eq!(order, [0, 1, 10, 2, 3, 4, 5]);
}
