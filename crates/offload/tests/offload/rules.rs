//! One rule of the runtime a test: what each fault leads to, limits, bounds, standing, comparison, counting.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use proptest::prelude::*;
use weft_base::{Clock, ManualClock};
use weft_offload::faults::{Fault, FaultPlan};
use weft_offload::health::Standing;
use weft_offload::job::{Job, Shape};
use weft_offload::kinds::{BuildFilter, KEY_BYTES, VALUE_BYTES, WAYS};
use weft_offload::unit::inline::{InlineUnit, SimulatedSpeed};
use weft_offload::{
    FinishedQueue, JobError, JobKind, Output, Reason, Scheduler, SchedulerConfig, Unit, UnitSpec,
};

use crate::lab::{
    Breaks, CPU_PACE, Cpu, FOUND_WITHOUT_COMPARING, Lab, MERGE, Sound, UNIT_PACE, accept_all, bytes,
    compare_all, config, fine, golden, impatient, job, script_of, unit_spec,
};

#[test]
fn a_sound_unit_does_the_job() {
    let lab = Lab::new(config(), vec![fine()]);
    let finished = lab.one(b"some task");
    let report = &finished.report;
    assert_eq!((report.unit.as_str(), report.redone_on_cpu), ("unit 0", None));
    assert_eq!((report.bytes_in, report.bytes_out, report.cycles), (9, 17, 9));
    assert!(!report.compared);
    assert_eq!((report.queued_ns, report.run_ns), (0, 11_000));
    let counters = lab.counters();
    assert_eq!(
        (counters.submitted, counters.finished, counters.waiting),
        (1, 1, 0)
    );
    assert_eq!((counters.units[0].answered, counters.units[1].started), (1, 0));
}

#[test]
fn each_fault_is_found_by_its_own_check_and_redone() {
    for (fault, reason) in FOUND_WITHOUT_COMPARING {
        let lab = Lab::scripted(config(), &[Some(fault)]);
        let finished = lab.one(b"a task that meets a fault");
        assert_eq!(finished.report.redone_on_cpu, reason, "{fault:?}");
        let by = if reason.is_some() { "cpu" } else { "unit 0" };
        assert_eq!(finished.report.unit, by, "{fault:?}");
        assert_eq!(lab.faults[0].get(fault), 1, "{fault:?}");
        lab.pass(10_000);
        assert!(lab.pop().is_none(), "{fault:?}: told twice");
        let strays = lab.counters().units[0].strays;
        assert_eq!(strays.late, u64::from(fault == Fault::Late), "{fault:?}");
        assert_eq!(
            strays.duplicate,
            u64::from(fault == Fault::Duplicate),
            "{fault:?}"
        );
        assert_eq!(
            strays.unknown,
            u64::from(fault == Fault::HeaderFlipped),
            "{fault:?}"
        );
        let failures = lab.counters().units[0].failures;
        assert_eq!(
            failures.nonzero().collect::<Vec<_>>(),
            reason.map(|r| (r, 1)).into_iter().collect::<Vec<_>>()
        );
    }
}

#[test]
fn an_upset_is_found_by_comparison_and_only_so() {
    // Two units: the CPU decides who was wrong.
    for upset in 0..2 {
        let plans = (0..2)
            .map(|unit| script_of(&[(unit == upset).then_some(Fault::Upset)]))
            .collect();
        let lab = Lab::new(compare_all(), plans);
        let finished = lab.one(b"task");
        assert_eq!(finished.report.redone_on_cpu, Some(Reason::Mismatch));
        let failed = |unit: usize| lab.counters().units[unit].failures.get(Reason::Mismatch);
        assert_eq!((failed(upset), failed(1 - upset)), (1, 0));
    }
    // One unit: its partner is the CPU.
    let lab = Lab::new(compare_all(), vec![script_of(&[None, Some(Fault::Upset)])]);
    let first = lab.one(b"task").report;
    assert_eq!(
        (first.unit.as_str(), first.compared, first.redone_on_cpu),
        ("unit 0", true, None)
    );
    let second = lab.one(b"task").report;
    assert_eq!((second.unit.as_str(), second.compared), ("cpu", true));
    assert_eq!(second.redone_on_cpu, Some(Reason::Mismatch));
    assert_eq!(lab.counters().compared, 2);
    // Without comparison it passes: this is what the share is for.
    let lab = Lab::scripted(config(), &[Some(Fault::Upset)]);
    lab.submit(0, job(b"task"));
    lab.run();
    let (_, finished) = lab.pop().unwrap();
    assert_ne!(bytes(&finished), golden(b"task"));
}

#[test]
fn one_of_a_pair_that_fails_is_redone_although_the_other_answered() {
    let lab = Lab::new(compare_all(), vec![script_of(&[Some(Fault::AnswerLost)]), fine()]);
    let report = lab.one(b"task").report;
    assert_eq!(report.redone_on_cpu, Some(Reason::Late));
    assert!(
        report.compared,
        "the CPU's result was compared with the second unit's"
    );
    // The CPU was the second, and has answered before the first is given up: it does not run again.
    let lab = Lab::scripted(compare_all(), &[Some(Fault::AnswerLost)]);
    assert_eq!(lab.one(b"task").report.redone_on_cpu, Some(Reason::Late));
    assert_eq!(lab.counters().units[1].started, 1);
}

#[test]
fn jobs_beyond_the_limits_go_to_the_cpu_and_say_why() {
    let of_kind = |kind, shape| Job::encoded(kind, vec![1].into(), shape);
    let of_part = |part, size| of_kind(MERGE, Shape::default().with(part, size));
    let filter = of_kind(JobKind::of::<BuildFilter>(), Shape::default());
    let cases = [
        (of_part(KEY_BYTES, 65), Reason::PartTooLarge),
        (of_part(VALUE_BYTES, 1025), Reason::PartTooLarge),
        (of_part(WAYS, 5), Reason::PartTooLarge),
        (of_kind(MERGE, Shape::new(1 << 20)), Reason::TooMuchMemory),
        (filter, Reason::NoUnit),
        // The shape was within the limits; the unit found out.
        (job(&[254]), Reason::LimitsFoundExceeded),
    ];
    let lab = Lab::new(config(), vec![fine()]);
    for (job, reason) in cases {
        let expected = golden(job.payload());
        let before = lab.counters().redone_on_cpu.get(reason);
        lab.submit(0, job);
        lab.run();
        let (_, finished) = lab.pop().unwrap();
        assert_eq!(bytes(&finished), expected);
        assert_eq!(finished.report.redone_on_cpu, Some(reason));
        assert_eq!(lab.counters().redone_on_cpu.get(reason), before + 1);
    }
    assert_eq!(
        lab.counters().units[0].standing,
        Standing::In,
        "none of this is a failure"
    );
}

#[test]
fn a_task_that_makes_no_sense_is_the_requesters_error_and_nobody_elses() {
    let lab = Lab::new(config(), vec![fine()]);
    for _ in 0..20 {
        lab.submit(3, job(&[255, 1]));
        lab.run();
        let (tag, finished) = lab.pop().unwrap();
        assert_eq!(
            (tag, finished.result),
            (3, Err(JobError::Invalid("begins with 255".into())))
        );
    }
    let counters = lab.counters();
    assert_eq!((counters.errors, counters.units[0].taken_out), (20, 0));
}

#[test]
fn the_line_has_a_bound_in_jobs_and_in_bytes() {
    let bounded = SchedulerConfig {
        queue_jobs_max: 3,
        queue_bytes_max: 1000,
        ..config()
    };
    let lab = Lab::new(bounded, vec![fine()]);
    // The core has not been stepped, so nothing has left the line.
    for tag in 0..3 {
        lab.submit(tag, job(b"x"));
    }
    let refused = lab.scheduler.try_submit(job(b"fourth")).map(|_| ()).unwrap_err();
    assert_eq!(refused.payload().as_ref(), b"fourth");
    assert_eq!((lab.counters().queue_full, lab.counters().waiting), (1, 3));
    lab.run();
    assert_eq!(lab.counters().finished, 3);
    // Larger than the bound in bytes, alone: taken. Then there is no room.
    lab.submit(3, job(&[1; 2000]));
    assert!(lab.scheduler.try_submit(job(b"x")).is_err());
    lab.run();
    lab.submit(4, job(&[1; 600]));
    assert!(lab.scheduler.try_submit(job(&[1; 600])).is_err());
    lab.run();
    assert_eq!(lab.counters().finished, 5);
}

#[test]
fn a_unit_that_keeps_failing_is_taken_out_and_comes_back_by_probes() {
    let sick = impatient(3, 1_000_000);
    let mut script = vec![Some(Fault::OutputFlipped); 4];
    script.extend([None, Some(Fault::Upset)]);
    let lab = Lab::scripted(sick, &script);
    for _ in 0..3 {
        assert_eq!(lab.one(b"task").report.redone_on_cpu, Some(Reason::OutputDamaged));
    }
    assert!(lab.counters().all_units_out());
    assert!(
        lab.counters()
            .to_string()
            .starts_with("all 1 units are taken out: the CPU does everything")
    );
    assert_eq!(lab.one(b"task").report.redone_on_cpu, Some(Reason::UnitsOut));
    let outcomes: Vec<_> = (0..6)
        .map(|_| {
            lab.pass(10_000);
            let report = lab.one(b"task").report;
            (report.redone_on_cpu, report.compared)
        })
        .collect();
    let expected = [
        (Some(Reason::OutputDamaged), false),
        (None, true),
        // An upset in a probe is found whatever the share of comparison is.
        (Some(Reason::Mismatch), true),
        (None, true),
        (None, true),
        (None, false),
    ];
    assert_eq!(outcomes, expected);
    let unit = &lab.counters().units[0];
    assert_eq!((unit.taken_out, unit.brought_back, unit.probes), (3, 1, 5));
    assert_eq!(unit.standing, Standing::In);
    let trace = lab.scheduler.chrome_trace();
    assert_eq!(trace.matches("\"name\":\"taken out\"").count(), 3);
    assert_eq!(trace.matches("\"name\":\"brought back\"").count(), 1);
}

/// An attempt is lost; its unit fails at others, is taken out, and may be probed before the deadline of the
/// first has passed. That is one more failure of before, and none of the probation.
#[test]
fn what_was_under_way_says_nothing_of_a_unit_on_probation() {
    let script = [Fault::AnswerLost, Fault::OutputFlipped, Fault::OutputFlipped].map(Some);
    let lab = Lab::scripted(impatient(2, 100_000), &script);
    for tag in 0..3 {
        lab.submit(tag, job(b"task"));
    }
    let mut told = 0;
    loop {
        let next = lab.scheduler.step().unwrap();
        told += std::iter::from_fn(|| lab.pop()).count();
        if told == 2 {
            break;
        }
        lab.clock
            .advance_micros(u32::try_from(next.as_micros()).unwrap() + 1);
    }
    // The CPU took longer for two jobs than the unit stays out; whoever asks now finds it on probation.
    lab.submit(3, job(b"task"));
    lab.run();
    let reasons: Vec<_> = std::iter::from_fn(|| lab.pop())
        .map(|(_, finished)| finished.report.redone_on_cpu)
        .collect();
    assert_eq!(reasons, [Some(Reason::UnitsOut), Some(Reason::Late)]);
    let unit = &lab.counters().units[0];
    assert_eq!((unit.failures.get(Reason::Late), unit.taken_out), (1, 1));
    let probe = lab.one(b"task").report;
    assert_eq!((probe.redone_on_cpu, probe.compared), (None, true));
}

/// What a unit had in hand when it was taken out is compared with the CPU. A wrong answer that comes
/// out while
/// it is on probation takes it out again.
#[test]
fn a_unit_just_taken_out_is_not_believed_on_its_checksum() {
    for upset in [None, Some(Fault::Upset)] {
        let lab = Lab::scripted(impatient(1, 100_000), &[Some(Fault::OutputFlipped), upset]);
        lab.submit(0, job(b"task"));
        lab.submit(1, job(b"in hand"));
        lab.run();
        let told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
        let report = &told[1].1.report;
        let mismatch = upset.map(|_| Reason::Mismatch);
        assert_eq!((told[1].0, report.redone_on_cpu), (1, mismatch));
        assert!(report.compared);
        assert_eq!(bytes(&told[1].1), golden(b"in hand"));
        // The CPU took longer for two jobs than the unit was out.
        let unit = &lab.counters().units[0];
        assert_eq!(unit.taken_out, 1 + u64::from(upset.is_some()));
    }
}

#[test]
fn units_share_the_work_and_the_cpu_helps_only_if_told() {
    for cpu_helps in [false, true] {
        let lab = Lab::new(
            SchedulerConfig {
                cpu_helps,
                ..config()
            },
            vec![fine(), fine()],
        );
        for tag in 0..64 {
            lab.submit(tag, job(&[tag as u8; 100]));
        }
        lab.run();
        let counters = lab.counters();
        let started: Vec<u64> = counters.units.iter().map(|unit| unit.started).collect();
        assert!(started[0].abs_diff(started[1]) <= 2, "{started:?}");
        assert_eq!(started[2] > 0, cpu_helps, "{started:?}");
        assert_eq!(counters.helped_by_cpu, started[2]);
        assert_eq!(counters.redone_on_cpu.nonzero().count(), 0);
        let mut tags: Vec<u64> = std::iter::from_fn(|| lab.pop()).map(|(tag, _)| tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (0..64).collect::<Vec<_>>());
    }
}

#[test]
fn boxes_of_one_row_of_the_trace_do_not_overlap() {
    let lab = Lab::new(config(), vec![fine()]);
    for tag in 0..20 {
        lab.submit(tag, job(&[tag as u8; 100]));
    }
    lab.run();
    let trace = lab.scheduler.chrome_trace();
    let number = |line: &str, name: &str| {
        let rest = line.split_once(&format!("\"{name}\":")).unwrap().1;
        let end = rest.find([',', '}']).unwrap();
        rest[..end].parse::<f64>().unwrap()
    };
    let mut ends = std::collections::BTreeMap::new();
    for line in trace.lines().filter(|line| line.contains("\"ph\":\"X\"")) {
        let (row, start) = (number(line, "tid") as u64, number(line, "ts"));
        let end = ends.insert(row, start + number(line, "dur"));
        assert!(end.is_none_or(|end| end <= start + 1e-6), "{line}");
    }
    assert_eq!(ends.len(), 2, "the unit holds two at a time");
}

#[test]
fn without_units_the_cpu_is_the_unit() {
    let lab = Lab::new(config(), Vec::new());
    let report = lab.one(b"task").report;
    assert_eq!((report.unit.as_str(), report.redone_on_cpu), ("cpu", None));
    assert!(!lab.counters().all_units_out());
}

#[test]
fn a_job_may_bring_its_own_deadline() {
    let lab = Lab::scripted(config(), &[Some(Fault::AnswerLost), Some(Fault::AnswerLost)]);
    let mut hurried = job(b"task");
    hurried.deadline_ns = Some(50_000);
    lab.submit(0, hurried);
    lab.run();
    let (_, finished) = lab.pop().unwrap();
    assert!(finished.report.run_ns < 300_000, "{}", finished.report.run_ns);
    assert!(lab.one(b"task").report.run_ns > 1_000_000);
}

/// Looking at an answer takes as long as it takes; what another unit answers meanwhile came in time.
#[test]
fn time_spent_on_one_answer_is_not_another_units_lateness() {
    static CLOCK: OnceLock<Arc<ManualClock>> = OnceLock::new();
    /// Looks at the first one's answer for longer than any deadline.
    fn slow(job: &Job, output: Bytes) -> Option<Output> {
        if job.payload().first() == Some(&1) {
            CLOCK.get().unwrap().advance_micros(5_000);
        }
        accept_all(job, output)
    }
    let clock = CLOCK.get_or_init(|| Arc::new(ManualClock::new(0))).clone();
    let shared: Arc<dyn Clock> = clock.clone();
    let slower = SimulatedSpeed {
        job_ns: 900_000,
        ..UNIT_PACE
    };
    let units = [("quick", UNIT_PACE), ("slower", slower)].map(|(name, pace)| {
        let unit = InlineUnit::new(unit_spec(name), Box::new(Sound), shared.clone(), pace);
        Box::new(unit) as Box<dyn Unit>
    });
    let spec = UnitSpec::unlimited("cpu", 2);
    let cpu = Box::new(InlineUnit::new(spec, Box::new(Cpu), shared.clone(), CPU_PACE));
    let scheduler = Scheduler::manual(config(), shared, slow, cpu, units.into()).unwrap();
    let finished = FinishedQueue::new();
    for tag in [1, 2] {
        scheduler
            .try_submit_to(job(&[tag; 10]), &finished, tag.into())
            .unwrap();
    }
    while let Some(next) = scheduler.step() {
        clock.advance_micros(u32::try_from(next.as_nanos().div_ceil(1000)).unwrap());
    }
    for (tag, unit) in [(1, "quick"), (2, "slower")] {
        let (found, finished) = finished.pop().unwrap();
        let report = finished.report;
        assert_eq!((found, report.unit.as_str()), (tag, unit));
        assert_eq!(report.redone_on_cpu, None, "{unit}");
    }
    for unit in scheduler.counters().units {
        assert_eq!(unit.failures.get(Reason::Late), 0, "{}", unit.name);
    }
}

#[test]
fn a_dropped_scheduler_tells_everybody() {
    let lab = Lab::new(config(), vec![fine()]);
    for tag in 0..10 {
        lab.submit(tag, job(b"task"));
    }
    lab.scheduler.step();
    let finished = lab.finished.clone();
    lab.submit(10, job(b"never seen by the core"));
    drop(lab);
    let told: Vec<_> = std::iter::from_fn(|| finished.pop()).collect();
    assert_eq!(told.len(), 11);
    assert!(
        told.iter()
            .all(|(_, finished)| finished.result == Err(JobError::Stopped))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 256 }))]

    /// Any mixture of jobs, units, settings and faults that checks can find: each requester is told once, and
    /// told the truth; the same seeds give the same run.
    #[test]
    fn every_requester_is_told_the_truth_once(
        payloads in proptest::collection::vec(proptest::collection::vec(0_u8..250, 0..300), 1..40),
        per_million in prop_oneof![Just(0_u32), Just(200_000), Just(1_000_000)],
        units in 0_usize..4,
        compare_per_million in prop_oneof![Just(0_u32), Just(300_000), Just(1_000_000)],
        cpu_helps: bool,
        hedge_floor_ns in prop_oneof![Just(u64::MAX), Just(5_000_u64), Just(100_000)],
        seed: u64,
    ) {
        let run = || {
            let faults: Vec<Fault> = Fault::ALL.into_iter().filter(|f| *f != Fault::Upset).collect();
            let plans = (0..units as u64).map(|unit| FaultPlan::Random {
                per_million,
                faults: faults.clone(),
                seed: seed.wrapping_add(unit),
            });
            let chosen = SchedulerConfig { compare_per_million, cpu_helps, seed, ..config() };
            let settings = SchedulerConfig { hedge_floor_ns, ..chosen };
            let lab = Lab::new(settings, plans.collect());
            for (tag, payload) in payloads.iter().enumerate() {
                lab.submit(tag as u64, job(payload));
            }
            lab.run();
            let mut told: Vec<_> = std::iter::from_fn(|| lab.pop()).collect();
            let order: Vec<u64> = told.iter().map(|(tag, _)| *tag).collect();
            told.sort_by_key(|(tag, _)| *tag);
            (told, order, lab.counters(), lab.scheduler.chrome_trace())
        };
        let (told, order, counters, trace) = run();
        prop_assert_eq!(told.len(), payloads.len());
        for ((tag, finished), (number, payload)) in told.iter().zip(payloads.iter().enumerate()) {
            prop_assert_eq!(*tag, number as u64);
            prop_assert_eq!(bytes(finished), golden(payload));
        }
        prop_assert_eq!(counters.finished, payloads.len() as u64);
        prop_assert!(counters.units.iter().all(|unit| unit.in_flight == 0));
        let lost = counters.redone_on_cpu.get(Reason::Slow);
        prop_assert!(counters.hedged >= lost + counters.hedges_lost_by_cpu);
        prop_assert_eq!(counters.units.iter().map(|unit| unit.hedges_lost).sum::<u64>(), lost);
        prop_assert!(counters.units.iter().all(|unit| unit.slow <= unit.hedges_lost));
        let (_, again, _, second_trace) = run();
        prop_assert_eq!(order, again);
        prop_assert_eq!(trace, second_trace);
    }
}

/// Every unit refuses at once what it is given, and the CPU is slow: the jobs that wait for it are bounded,
/// and so is everything that was taken and not done.
#[test]
fn units_that_fail_faster_than_the_cpu_works_fill_no_line() {
    let mut settings = SchedulerConfig {
        queue_jobs_max: 16,
        cpu_queue_jobs_max: 4,
        ..config()
    };
    (settings.health.window, settings.health.failures_max) = (1, 2);
    let refusing = || FaultPlan::Random {
        per_million: 1_000_000,
        faults: vec![Fault::Refused],
        seed: 3,
    };
    let lab = Lab::new(settings, vec![refusing(), refusing()]);
    let (mut accepted, mut full, mut most) = (0, 0, 0);
    for _ in 0..2000 {
        match lab.scheduler.try_submit_to(job(b"task"), &lab.finished, accepted) {
            Ok(_) => accepted += 1,
            Err(_) => full += 1,
        }
        lab.scheduler.step();
        lab.clock.advance_micros(1);
        let counters = lab.counters();
        most = most.max(counters.submitted - counters.finished);
    }
    // The line, the CPU's line, what the two units may hold, and what the CPU holds.
    assert!(most <= 16 + 4 + 4 + 2, "{most} jobs were held");
    assert!(full > 1000, "{full} of 2000 found no room");
    lab.run();
    for _ in 0..accepted {
        let (_, finished) = lab.pop().unwrap();
        assert_eq!(bytes(&finished), golden(b"task"));
    }
    assert!(lab.pop().is_none());
}

/// The CPU's own implementation breaks down while it is to say whether a unit was right: nothing is known
/// then of the unit.
#[test]
fn a_cpu_that_breaks_down_blames_no_unit() {
    let lab = Lab::with_cpu(compare_all(), vec![fine()], Box::new(Breaks));
    for tag in 0..20 {
        lab.submit(tag, job(b"task"));
        lab.run();
        let (_, finished) = lab.pop().unwrap();
        assert!(
            matches!(finished.result, Err(JobError::Broken(_))),
            "{:?}",
            finished.result
        );
        assert!(!finished.report.compared);
    }
    let unit = &lab.counters().units[0];
    assert_eq!((unit.failures.nonzero().count(), unit.taken_out), (0, 0));
    assert_eq!((unit.answered, unit.standing), (20, Standing::In));
}
