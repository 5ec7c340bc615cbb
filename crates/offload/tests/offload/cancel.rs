//! Cancelled jobs: told at once, out of the queue, their places free once, and nobody blamed for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use proptest::prelude::*;
use weft_offload::faults::{Fault, FaultPlan, FaultyUnit};
use weft_offload::health::Standing;
use weft_offload::unit::inline::InlineUnit;
use weft_offload::{JobError, Reason, SchedulerConfig, Unit};

use crate::lab::{
    CPU_PACE, Cpu, Lab, Sound, TIMES, UNIT_PACE, accept_all, bytes, compare_all, config, fine, golden,
    impatient, job, unit_spec,
};
use crate::urgency::{merge_job, spec, urgent};

fn is_cancelled(told: Option<(u64, weft_offload::Finished)>) -> u64 {
    let (tag, finished) = told.unwrap();
    assert_eq!(finished.result, Err(JobError::Cancelled));
    tag
}

#[test]
fn a_waiting_job_leaves_the_queue() {
    let bounded = SchedulerConfig {
        queue_jobs_max: 3,
        ..config()
    };
    let lab = Lab::new(bounded, vec![fine()]);
    let handles: Vec<_> = (0..3)
        .map(|tag| {
            lab.scheduler
                .try_submit_to(job(b"task"), &lab.finished, tag)
                .unwrap()
        })
        .collect();
    assert!(lab.scheduler.try_submit(job(b"task")).is_err());
    // Before the core has seen it, and with two of the others at the unit.
    handles[2].cancel();
    lab.scheduler.step();
    assert_eq!(is_cancelled(lab.pop()), 2);
    assert_eq!(lab.counters().waiting, 0);
    lab.submit(3, job(b"task"));
    lab.submit(4, job(b"task"));
    let last = lab
        .scheduler
        .try_submit_to(job(b"task"), &lab.finished, 5)
        .unwrap();
    lab.scheduler.step();
    assert_eq!(lab.counters().waiting, 3);
    last.cancel();
    last.cancel();
    lab.scheduler.step();
    assert_eq!(is_cancelled(lab.pop()), 5);
    assert_eq!(lab.counters().waiting, 2);
    lab.run();
    handles[0].cancel();
    lab.run();
    let counters = lab.counters();
    assert_eq!(
        (
            counters.submitted,
            counters.finished,
            counters.cancelled,
            counters.waiting
        ),
        (6, 4, 2, 0)
    );
}

#[test]
fn dropping_a_ticket_cancels_its_job_unless_it_is_finished() {
    let lab = Lab::new(config(), vec![fine()]);
    let tickets: Vec<_> = (0..4)
        .map(|_| lab.scheduler.try_submit(job(b"task")).unwrap())
        .collect();
    lab.scheduler.step();
    drop(tickets);
    lab.run();
    let counters = lab.counters();
    assert_eq!((counters.cancelled, counters.finished), (4, 0));
    // Two that the unit had were answered all the same.
    assert_eq!((counters.units[0].started, counters.units[0].in_flight), (2, 0));
    let ticket = lab.scheduler.try_submit(job(b"task")).unwrap();
    lab.run();
    drop(ticket);
    let ticket = lab.scheduler.try_submit(job(b"task")).unwrap();
    lab.run();
    assert_eq!(bytes(&ticket.wait()), golden(b"task"));
    lab.run();
    assert_eq!((lab.counters().cancelled, lab.counters().finished), (4, 2));
}

/// A unit that finishes what it has begun keeps the place until then; the requester does not wait.
#[test]
fn a_running_job_is_given_up_without_waiting_for_its_unit() {
    let lab = Lab::new(config(), vec![fine()]);
    let handle = lab
        .scheduler
        .try_submit_to(job(b"task"), &lab.finished, 0)
        .unwrap();
    lab.submit(1, job(b"task"));
    lab.submit(2, job(b"task"));
    lab.scheduler.step();
    handle.cancel();
    lab.scheduler.step();
    assert_eq!(is_cancelled(lab.pop()), 0);
    // Both places are taken: by what was cancelled, and by the second.
    assert_eq!(
        (lab.counters().units[0].in_flight, lab.counters().waiting),
        (2, 1)
    );
    lab.run();
    assert_eq!([lab.pop().unwrap().0, lab.pop().unwrap().0], [1, 2]);
    let unit = &lab.counters().units[0];
    assert_eq!((unit.in_flight, unit.started, unit.answered), (0, 3, 2));
    assert_eq!(
        (unit.failures.nonzero().count(), unit.strays),
        (0, Default::default())
    );
}

/// A unit with slices stops at the next one.
#[test]
fn a_unit_with_slices_stops_at_the_next_one() {
    let settings = SchedulerConfig {
        deadline_ns: 1_000_000_000,
        ..config()
    };
    let lab = Lab::of_units(settings, accept_all, Box::new(Cpu), |clock| {
        let unit = InlineUnit::new(spec(1), Box::new(Sound), clock.clone(), UNIT_PACE);
        vec![Box::new(unit.in_slices(5_000)) as Box<dyn Unit>]
    });
    // 74 us.
    let handle = lab
        .scheduler
        .try_submit_to(merge_job(), &lab.finished, 0)
        .unwrap();
    lab.scheduler.step();
    lab.clock.advance_micros(12);
    handle.cancel();
    lab.scheduler.step();
    assert_eq!(is_cancelled(lab.pop()), 0);
    lab.submit(1, job(b"task"));
    lab.run();
    let (_, finished) = lab.pop().unwrap();
    // 3 us until the slice ends, and 11 for the job.
    assert_eq!(finished.report.queued_ns + finished.report.run_ns, 14_000);
    let unit = &lab.counters().units[0];
    assert_eq!(
        (unit.in_flight, unit.answered, unit.failures.nonzero().count()),
        (0, 1, 0)
    );
    // One that waits for an urgent job stops at once.
    let handle = lab
        .scheduler
        .try_submit_to(merge_job(), &lab.finished, 2)
        .unwrap();
    lab.scheduler.step();
    lab.submit(3, urgent(b"scan"));
    lab.scheduler.step();
    handle.cancel();
    lab.scheduler.step();
    assert_eq!(is_cancelled(lab.pop()), 2);
    lab.scheduler.step();
    assert_eq!(lab.counters().units[0].in_flight, 1);
    lab.run();
    assert_eq!(lab.pop().unwrap().0, 3);
    assert_eq!(lab.counters().units[0].in_flight, 0);
}

/// What a unit does with a cancelled job still says something about the unit, once: lost and late answers are
/// late, damaged ones are damaged, and only a stray comes afterwards.
#[test]
fn faults_of_cancelled_jobs_are_found_and_told_to_nobody() {
    for (fault, reason) in [
        (Fault::AnswerLost, Some(Reason::Late)),
        (Fault::RequestLost, Some(Reason::Late)),
        (Fault::Late, Some(Reason::Late)),
        (Fault::OutputFlipped, Some(Reason::OutputDamaged)),
        (Fault::Duplicate, None),
        (Fault::Upset, None),
    ] {
        let lab = Lab::scripted(config(), &[Some(fault)]);
        let handle = lab
            .scheduler
            .try_submit_to(job(b"task"), &lab.finished, 0)
            .unwrap();
        lab.scheduler.step();
        handle.cancel();
        lab.scheduler.step();
        assert_eq!(is_cancelled(lab.pop()), 0);
        lab.pass(10_000);
        assert!(lab.pop().is_none(), "{fault:?}: told twice");
        let counters = lab.counters();
        let unit = &counters.units[0];
        assert_eq!(
            (unit.in_flight, counters.redone_on_cpu.nonzero().count()),
            (0, 0),
            "{fault:?}"
        );
        let failures: Vec<_> = unit.failures.nonzero().collect();
        assert_eq!(
            failures,
            reason.map(|reason| (reason, 1)).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(unit.strays.late, u64::from(fault == Fault::Late));
        assert_eq!(unit.strays.duplicate, u64::from(fault == Fault::Duplicate));
        // The next job finds the unit as it was.
        assert_eq!(lab.one(b"another").report.unit, "unit 0");
    }
}

/// A cancelled probe says nothing, and the next job is one.
#[test]
fn a_cancelled_probe_is_followed_by_another() {
    let script = [Some(Fault::OutputFlipped), Some(Fault::OutputFlipped)];
    let lab = Lab::scripted(impatient(2, 1_000_000), &script);
    lab.one(b"task");
    lab.one(b"task");
    assert_eq!(lab.counters().units[0].taken_out, 1);
    lab.clock.advance_micros(1_000);
    let handle = lab
        .scheduler
        .try_submit_to(job(b"probe"), &lab.finished, 0)
        .unwrap();
    lab.scheduler.step();
    assert_eq!(lab.counters().units[0].probes, 1);
    handle.cancel();
    lab.run();
    assert_eq!(is_cancelled(lab.pop()), 0);
    for _ in 0..2 {
        lab.one(b"task");
    }
    let unit = &lab.counters().units[0];
    assert_eq!((unit.probes, unit.standing, unit.in_flight), (3, Standing::In, 0));
}

/// The second executor of a compared job is withdrawn, too.
#[test]
fn both_attempts_of_a_compared_job_end() {
    let lab = Lab::new(compare_all(), vec![fine(), fine()]);
    let handles: Vec<_> = (0..6)
        .map(|tag| {
            lab.scheduler
                .try_submit_to(job(b"task"), &lab.finished, tag)
                .unwrap()
        })
        .collect();
    lab.scheduler.step();
    handles.iter().for_each(weft_offload::JobHandle::cancel);
    lab.run();
    for _ in 0..6 {
        is_cancelled(lab.pop());
    }
    let counters = lab.counters();
    assert!(counters.units.iter().all(|unit| unit.in_flight == 0));
    assert_eq!(
        (counters.cancelled, counters.compared, counters.waiting),
        (6, 0, 0)
    );
}

/// The result goes to a call; so does that there will be none.
#[test]
fn a_call_is_told_that_its_job_was_cancelled() {
    let lab = Lab::new(config(), vec![fine()]);
    let told = Arc::new(AtomicUsize::new(0));
    let count = told.clone();
    let handle = lab
        .scheduler
        .submit_with(job(b"task"), &|| false, move |finished| {
            assert_eq!(finished.result, Err(JobError::Cancelled));
            count.fetch_add(1, SeqCst);
        });
    handle.cancel();
    lab.run();
    handle.cancel();
    lab.run();
    assert_eq!(told.load(SeqCst), 1);
}

#[derive(Clone, Debug)]
enum Event {
    Submit { bytes: usize, is_urgent: bool },
    Cancel(prop::sample::Index),
    Pass(u32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_usize..8000, any::<bool>()).prop_map(|(bytes, is_urgent)| Event::Submit { bytes, is_urgent }),
        2 => any::<prop::sample::Index>().prop_map(Event::Cancel),
        3 => (0_u32..60).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 256 }))]

    /// Jobs of both urgencies, cancelled at any moment, on units with slices and without that fail at one
    /// attempt in five: each is told once, the truth or that it was cancelled, which only one is that was;
    /// every place is free in the end, and the same seeds give the same run.
    #[test]
    fn every_job_is_told_once_by_a_unit_by_the_cpu_or_as_cancelled(
        events in events(),
        per_million in prop_oneof![Just(0_u32), Just(200_000), Just(1_000_000)],
        (slice_ns, urgent_depth) in prop_oneof![Just((u64::MAX, 0)), Just((u64::MAX, 1)), Just((3_000, 2))],
        units in 0_usize..3,
        compare_per_million in prop_oneof![Just(0_u32), Just(300_000)],
        hedge_floor_ns in prop_oneof![Just(u64::MAX), Just(5_000_u64), Just(100_000)],
        cpu_helps: bool,
        seed: u64,
    ) {
        let run = || {
            let settings = SchedulerConfig {
                compare_per_million,
                hedge_floor_ns,
                cpu_helps,
                seed,
                ..config()
            };
            let lab = Lab::of_units(settings, accept_all, Box::new(Cpu), |clock| {
                let faults: Vec<Fault> = Fault::ALL.into_iter().filter(|f| *f != Fault::Upset).collect();
                let unit = |number: usize| {
                    let mut spec = unit_spec(&format!("unit {number}"));
                    spec.urgent_depth = urgent_depth;
                    let pace = if number == 0 { UNIT_PACE } else { CPU_PACE };
                    let inner = InlineUnit::new(spec, Box::new(Sound), clock.clone(), pace);
                    let plan = FaultPlan::Random {
                        per_million,
                        faults: faults.clone(),
                        seed: seed.wrapping_add(number as u64),
                    };
                    let inner = if slice_ns < u64::MAX { inner.in_slices(slice_ns) } else { inner };
                    Box::new(FaultyUnit::new(inner, clock.clone(), plan, TIMES)) as Box<dyn Unit>
                };
                (0..units).map(unit).collect()
            });
            let (mut handles, mut payloads, mut cancelled) = (Vec::new(), Vec::new(), Vec::new());
            for event in &events {
                match event {
                    Event::Submit { bytes, is_urgent } => {
                        let payload = vec![(handles.len() % 250) as u8; *bytes];
                        let job = if *is_urgent { urgent(&payload) } else { job(&payload) };
                        let tag = handles.len() as u64;
                        handles.push(lab.scheduler.try_submit_to(job, &lab.finished, tag).unwrap());
                        payloads.push(payload);
                        cancelled.push(false);
                    }
                    Event::Cancel(at) if !handles.is_empty() => {
                        let at = at.index(handles.len());
                        handles[at].cancel();
                        cancelled[at] = true;
                    }
                    Event::Cancel(_) => {}
                    Event::Pass(micros) => {
                        lab.scheduler.step();
                        lab.clock.advance_micros(*micros);
                    }
                }
            }
            lab.run();
            // Late answers, and the second of two.
            lab.pass(20_000);
            let told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
            (told, payloads, cancelled, lab.counters(), lab.scheduler.chrome_trace())
        };
        let (told, payloads, cancelled, counters, trace) = run();
        prop_assert_eq!(told.len(), payloads.len());
        let mut seen = vec![false; payloads.len()];
        let mut without = 0;
        for (tag, finished) in &told {
            let tag = *tag as usize;
            prop_assert!(!std::mem::replace(&mut seen[tag], true), "job {} was told twice", tag);
            match &finished.result {
                Err(JobError::Cancelled) => {
                    prop_assert!(cancelled[tag]);
                    without += 1;
                }
                _ => prop_assert_eq!(bytes(finished), golden(&payloads[tag])),
            }
        }
        prop_assert_eq!(counters.cancelled, without);
        prop_assert_eq!(counters.submitted, counters.finished + counters.cancelled);
        prop_assert_eq!((counters.waiting, counters.errors), (0, 0));
        prop_assert!(counters.units.iter().all(|unit| unit.in_flight == 0));
        let (_, _, _, _, second_trace) = run();
        prop_assert_eq!(trace, second_trace);
    }
}
