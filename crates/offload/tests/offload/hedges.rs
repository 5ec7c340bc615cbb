//! The CPU beside units that are unusually slow: who is told, who is blamed, what is counted.

use bytes::Bytes;
use weft_base::Clock;
use weft_offload::faults::{Fault, FaultyUnit};
use weft_offload::health::Standing;
use weft_offload::job::{Job, Shape};
use weft_offload::kinds::KEY_BYTES;
use weft_offload::unit::inline::InlineUnit;
use weft_offload::{Output, Reason, SchedulerConfig, Unit};

use crate::lab::{
    Breaks, Cpu, Lab, MERGE, Sound, TIMES, UNIT_PACE, accept_all, bytes, golden, hedging, job, patient,
    script_of, unit_spec,
};

/// So many answers make a unit's pace known.
const ANSWERS: usize = 16;

/// No fault for as long, and then these.
fn after_answers(faults: &[Option<Fault>]) -> Vec<Option<Fault>> {
    [&[None; ANSWERS], faults].concat()
}

/// The lab, in which the unit's pace is known by now.
fn begun(lab: Lab) -> Lab {
    for _ in 0..ANSWERS {
        assert_eq!(lab.one(b"task").report.unit, "unit 0");
    }
    lab
}

/// A lab with one unit whose pace is known and that meets these faults next.
fn paced(settings: SchedulerConfig, faults: &[Option<Fault>]) -> Lab {
    begun(Lab::scripted(settings, &after_answers(faults)))
}

/// An answer is lost: the CPU begins when the unit ought to have been done, and nobody waits for the
/// deadline. The unit is blamed for it when that has passed.
#[test]
fn a_job_whose_unit_is_unusually_slow_is_begun_on_the_cpu() {
    for fault in [Fault::AnswerLost, Fault::Late] {
        let lab = paced(hedging(50_000), &[Some(fault)]);
        lab.submit(7, job(b"task"));
        let told = loop {
            match lab.pop() {
                Some(told) => break told,
                None => assert!(lab.advance()),
            }
        };
        assert_eq!((told.0, bytes(&told.1)), (7, golden(b"task").into()));
        let report = &told.1.report;
        assert_eq!(
            (report.unit.as_str(), report.redone_on_cpu),
            ("cpu", Some(Reason::Slow))
        );
        // Begun after the floor, done by the CPU in 110 us; the deadline is a millisecond and more.
        assert!(report.run_ns < 250_000, "{fault:?}: {}", report.run_ns);
        assert_eq!(lab.counters().units[0].failures.get(Reason::Late), 0);
        lab.pass(10_000);
        assert!(lab.pop().is_none(), "{fault:?}: told twice");
        let counters = lab.counters();
        assert_eq!(counters.units[0].failures.get(Reason::Late), 1, "{fault:?}");
        assert_eq!(
            counters.redone_on_cpu.nonzero().collect::<Vec<_>>(),
            [(Reason::Slow, 1)]
        );
        assert_eq!(
            (counters.hedged, counters.hedges_lost_by_cpu),
            (1, 0),
            "{fault:?}"
        );
        let text = "redone on the CPU 0, sent there directly 0, begun there beside slow units 1, \
                    of which units lost 1 and the CPU 0 (slow 1)";
        assert!(counters.to_string().contains(text), "{counters}");
        let unit = &counters.units[0];
        assert_eq!(
            (unit.hedges_lost, unit.slow),
            (1, 0),
            "{fault:?}: it was too late"
        );
        assert_eq!(lab.one(b"task").report.unit, "unit 0");
    }
}

/// The unit is done first after all: its result is told, once, and what the CPU makes of it is dropped.
#[test]
fn who_is_first_is_told() {
    // What a small job takes is no measure for a large one's time, which here is all in its bytes.
    let lab = paced(hedging(1_000), &[]);
    let begun = |lab: &Lab| lab.counters().units[1].started;
    assert_eq!(begun(&lab), 0);
    let report = lab.one(&vec![1; 400 << 10]).report;
    assert_eq!((report.unit.as_str(), report.redone_on_cpu), ("unit 0", None));
    assert_eq!(begun(&lab), 1, "the CPU began, too");
    // The unit takes 410 us, the CPU more than 4 ms.
    assert!(report.run_ns < 1_000_000, "{}", report.run_ns);
    lab.pass(100_000);
    assert!(lab.pop().is_none(), "told twice");
    let counters = lab.counters();
    assert_eq!(
        (counters.finished, counters.redone_on_cpu.nonzero().count()),
        (17, 0)
    );
    assert!(counters.units.iter().all(|unit| unit.in_flight == 0));
    assert_eq!((counters.hedged, counters.hedges_lost_by_cpu), (1, 1));
    assert_eq!((counters.units[0].hedges_lost, counters.units[0].slow), (0, 0));
}

/// A small job that was slow, behind a large one perhaps, says nothing of a large one; and nobody waits for
/// the whole deadline because of it.
#[test]
fn one_slow_small_job_does_not_make_large_ones_wait_for_their_deadline() {
    let mut script = vec![None; 17];
    (script[0], script[16]) = (Some(Fault::Late), Some(Fault::AnswerLost));
    let lab = Lab::scripted(hedging(50_000), &script);
    // 5 ms for what counts as 64 KiB.
    lab.submit(0, patient(b"small", 20_000_000));
    lab.run();
    assert_eq!(lab.pop().unwrap().1.report.unit, "unit 0");
    for _ in 0..15 {
        lab.one(b"small");
    }
    lab.submit(1, patient(&[1; 400 << 10], 20_000_000));
    lab.run();
    let report = lab.pop().unwrap().1.report;
    assert_eq!(report.redone_on_cpu, Some(Reason::Slow));
    // Half of the deadline, and what the CPU takes.
    assert!(
        (10_000_000..15_000_000).contains(&report.run_ns),
        "{}",
        report.run_ns
    );
}

/// A job that only the CPU can do.
fn too_long(payload: &[u8]) -> Job {
    let shape = Shape::default().with(KEY_BYTES, 1000);
    Job::encoded(MERGE, payload.to_vec().into(), shape)
}

/// What is begun beside slow units takes no place from jobs that nobody but the CPU can do, and not the one
/// behind the job that its only thread is at.
#[test]
fn only_an_idle_cpu_begins_what_units_are_slow_with() {
    let lab = paced(hedging(50_000), &[Some(Fault::AnswerLost)]);
    lab.submit(0, job(b"task"));
    for tag in 1..=4 {
        lab.submit(tag, too_long(b"task"));
    }
    lab.run();
    let told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
    let order: Vec<u64> = told.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(order, [1, 2, 3, 4, 0]);
    assert_eq!(told[4].1.report.redone_on_cpu, Some(Reason::Slow));
}

/// Of two threads one is idle, so the CPU gets what a unit is slow with. The unit is done before the CPU
/// has begun it: it is not done twice for nothing. Of one thread none is idle, and it does not get it.
#[test]
fn what_the_cpu_has_not_begun_is_withdrawn_when_the_unit_answers() {
    for cpu_threads in [1, 2] {
        let settings = SchedulerConfig {
            cpu_threads,
            ..hedging(1_000)
        };
        let lab = paced(settings, &[]);
        // The unit takes 410 us, the CPU 5 ms for the one and 4 ms for the other.
        lab.submit(1, too_long(&[2; 500 << 10]));
        lab.submit(0, job(&[1; 400 << 10]));
        // Somebody wakes the scheduler when the unit has been slow and has not answered.
        lab.scheduler.step();
        lab.clock.advance_micros(200);
        lab.run();
        let order: Vec<_> = std::iter::from_fn(|| lab.pop())
            .map(|(tag, finished)| (tag, finished.report.unit))
            .collect();
        assert_eq!(order, [(0, "unit 0".to_owned()), (1, "cpu".to_owned())]);
        let cpu = &lab.counters().units[1];
        let given = cpu_threads as u64;
        assert_eq!((cpu.started, cpu.answered, cpu.in_flight), (given, 1, 0));
        let counters = lab.counters();
        assert_eq!(
            (counters.hedged, counters.hedges_lost_by_cpu),
            (given - 1, given - 1)
        );
    }
}

/// A CPU that breaks down while it does what a unit is slow with takes nothing from the unit's result.
#[test]
fn a_cpu_that_breaks_down_beside_a_slow_unit_changes_nothing() {
    let script = script_of(&after_answers(&[Some(Fault::Late)]));
    let lab = begun(Lab::with_cpu(hedging(50_000), vec![script], Box::new(Breaks)));
    lab.submit(0, patient(b"task", 50_000_000));
    lab.run();
    let (_, finished) = lab.pop().unwrap();
    assert_eq!(bytes(&finished), golden(b"task"));
    let report = &finished.report;
    assert_eq!((report.unit.as_str(), report.redone_on_cpu), ("unit 0", None));
    assert_eq!(lab.counters().units[1].started, 1, "the CPU tried");
    assert_eq!((lab.counters().hedged, lab.counters().hedges_lost_by_cpu), (1, 1));
}

/// The unit's answer comes after the CPU's result and before the deadline: it was slow, and nothing else.
#[test]
fn a_unit_that_is_right_after_the_cpu_was_slow_and_did_not_fail() {
    let lab = paced(hedging(50_000), &[Some(Fault::Late)]);
    lab.submit(0, patient(b"task", 50_000_000));
    lab.run();
    let report = lab.pop().unwrap().1.report;
    assert_eq!(
        (report.unit.as_str(), report.redone_on_cpu),
        ("cpu", Some(Reason::Slow))
    );
    assert!(lab.pop().is_none(), "told twice");
    let counters = lab.counters();
    assert_eq!((counters.hedged, counters.hedges_lost_by_cpu), (1, 0));
    let unit = &counters.units[0];
    assert_eq!((unit.hedges_lost, unit.slow, unit.answered), (1, 1, 17));
    assert_eq!((unit.failures.nonzero().count(), unit.strays.late), (0, 0));
    let text = "lost to the CPU 1 times, of which right afterwards 1";
    assert!(counters.to_string().contains(text), "{counters}");
    assert!(lab.scheduler.chrome_trace().contains("\"slow\""));
}

/// What comes too late to be needed is looked through all the same: a unit that is slow and wrong fails.
#[test]
fn a_unit_that_is_wrong_after_the_cpu_failed() {
    fn only_golden(job: &Job, output: Bytes) -> Option<Output> {
        (output == golden(job.payload()))
            .then(|| accept_all(job, output))
            .flatten()
    }
    let lab = Lab::of_units(hedging(50_000), only_golden, Box::new(Cpu), |clock| {
        let inner = InlineUnit::new(unit_spec("unit 0"), Box::new(Sound), clock.clone(), UNIT_PACE);
        let upset = script_of(&after_answers(&[Some(Fault::Upset)]));
        let wrong = FaultyUnit::new(inner, clock.clone(), upset, TIMES);
        let late = script_of(&after_answers(&[Some(Fault::Late)]));
        vec![Box::new(FaultyUnit::new(wrong, clock.clone(), late, TIMES)) as Box<dyn Unit>]
    });
    let lab = begun(lab);
    lab.submit(0, patient(b"task", 50_000_000));
    lab.run();
    assert_eq!(lab.pop().unwrap().1.report.redone_on_cpu, Some(Reason::Slow));
    let unit = &lab.counters().units[0];
    assert_eq!((unit.hedges_lost, unit.slow), (1, 0));
    assert_eq!(
        unit.failures.nonzero().collect::<Vec<_>>(),
        [(Reason::Malformed, 1)]
    );
}

/// A unit that takes more than half of its deadline, always: the CPU does everything, and everybody waits for
/// it to begin. Without that unit nobody waits. It stays out longer each time: its probes are slow, too.
#[test]
fn a_unit_that_is_always_slow_is_taken_out() {
    let mut settings = hedging(50_000);
    let slow_max = settings.health.slow_max as usize;
    (settings.health.out_ns, settings.health.out_ns_max) = (10_000_000, 160_000_000);
    let lab = paced(settings, &vec![Some(Fault::Late); 2 * slow_max]);
    // 5 ms are late.
    let one = || {
        lab.submit(0, patient(b"task", 8_000_000));
        lab.run();
        lab.pop().unwrap().1.report
    };
    for round in 0..slow_max {
        assert_eq!(lab.counters().units[0].standing, Standing::In, "{round}");
        assert_eq!(one().redone_on_cpu, Some(Reason::Slow));
    }
    let unit = &lab.counters().units[0];
    assert_eq!((unit.slow, unit.taken_out), (slow_max as u64, 1));
    assert_eq!(unit.failures.nonzero().count(), 0);
    let report = lab.one(b"task").report;
    assert_eq!(report.redone_on_cpu, Some(Reason::UnitsOut));
    assert!(report.run_ns < 200_000, "{}", report.run_ns);
    for cycle in 0..4 {
        let Standing::Out { until_ns } = lab.counters().units[0].standing else {
            panic!("{cycle}: {}", lab.counters());
        };
        let left = until_ns - lab.clock.monotonic_nanos();
        lab.clock.advance_micros(u32::try_from(left / 1000).unwrap() + 1);
        let report = one();
        assert_eq!((report.redone_on_cpu, report.compared), (None, true), "{cycle}");
        let Standing::Out { until_ns } = lab.counters().units[0].standing else {
            panic!("{cycle}: {}", lab.counters());
        };
        let out_ns = until_ns - lab.clock.monotonic_nanos();
        let doubled = 10_000_000 << (cycle + 1);
        assert!(
            (doubled / 2 - 1000..=doubled).contains(&out_ns),
            "{cycle}: {out_ns}"
        );
    }
    let unit = &lab.counters().units[0];
    assert_eq!((unit.probes, unit.brought_back, unit.taken_out), (4, 0, 5));
    // It is quick from now on.
    while lab.counters().units[0].probes < 8 {
        one();
        lab.pass(200_000);
    }
    while lab.counters().units[0].brought_back == 0 {
        one();
        lab.pass(200_000);
    }
}

/// All places of a unit are held by answers that were lost: the CPU, idle, takes what comes next, after what
/// has waited longer.
#[test]
fn lost_answers_that_hold_all_places_hold_nobody_up() {
    let lab = paced(
        hedging(50_000),
        &[Some(Fault::AnswerLost), Some(Fault::AnswerLost)],
    );
    for tag in 1..=3 {
        lab.submit(tag, patient(b"task", 50_000_000));
    }
    lab.run();
    let told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
    let report = &told[2].1.report;
    assert!(report.queued_ns < 400_000, "{}", report.queued_ns);
    assert!(report.run_ns < 150_000, "{}", report.run_ns);
    let told: Vec<_> = told
        .into_iter()
        .map(|(tag, finished)| (tag, finished.report.redone_on_cpu))
        .collect();
    let slow = Some(Reason::Slow);
    assert_eq!(told, [(1, slow), (2, slow), (3, Some(Reason::UnitsOverdue))]);
    let unit = &lab.counters().units[0];
    assert_eq!((unit.failures.get(Reason::Late), unit.in_flight), (2, 0));
    assert_eq!(lab.one(b"task").report.unit, "unit 0");
}

/// A job stands in line behind another at its unit; the CPU, begun beside it, is first. The unit does
/// not do it
/// for nothing.
#[test]
fn what_a_unit_has_not_begun_is_withdrawn_when_the_cpu_was_first() {
    let lab = paced(hedging(1_000), &[]);
    // 410 us at the unit.
    lab.submit(0, job(&[1; 400 << 10]));
    lab.submit(1, job(b"task"));
    lab.run();
    let told: Vec<_> = std::iter::from_fn(|| lab.pop())
        .map(|(tag, finished)| (tag, finished.report.redone_on_cpu))
        .collect();
    assert_eq!(told, [(1, Some(Reason::Slow)), (0, None)]);
    let unit = &lab.counters().units[0];
    assert_eq!((unit.started, unit.answered, unit.in_flight), (18, 17, 0));
    assert_eq!((unit.hedges_lost, unit.slow), (1, 0));
    assert_eq!(unit.failures.nonzero().count(), 0);
}

/// A unit is taken out while the CPU races with it for a job: its answer, first, is not believed.
#[test]
fn a_unit_that_is_out_wins_no_race() {
    let mut settings = hedging(1_000);
    settings.health.failures_max = 1;
    let lab = paced(settings, &[Some(Fault::Upset), Some(Fault::Refused)]);
    lab.submit(0, job(&[1; 400 << 10]));
    lab.submit(1, job(b"task"));
    lab.run();
    assert_eq!(lab.counters().hedged, 1);
    let told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
    let reasons: Vec<_> = told
        .iter()
        .map(|(_, finished)| finished.report.redone_on_cpu)
        .collect();
    assert_eq!(reasons, [Some(Reason::Refused), Some(Reason::Mismatch)]);
    assert_eq!(bytes(&told[1].1), golden(&[1; 400 << 10]));
}
