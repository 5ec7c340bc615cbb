//! Campaigns of injected faults: all found or redone, nothing lost, nothing told twice.
//!
//! The short form runs with every `cargo test`; `WEFT_FAULTS=50000` asks for so many injected faults in each
//! campaign. Seeds are fixed, so a failure repeats.

use weft_base::Prng;
use weft_offload::faults::{Fault, FaultPlan};
use weft_offload::reason::Blame;
use weft_offload::{Reason, SchedulerConfig};

use crate::lab::{Lab, bytes, compare_all, config, golden, hedging, job};

pub fn faults_wanted() -> u64 {
    let wanted = std::env::var("WEFT_FAULTS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(2_000)
}

/// Runs jobs until enough faults have been injected; returns the lab and how many jobs that took.
fn campaign(settings: SchedulerConfig, units: u64, faults: &[Fault], per_million: u32, wanted: u64) -> Lab {
    let plans = (0..units).map(|unit| FaultPlan::Random {
        per_million,
        faults: faults.to_vec(),
        seed: 40 + unit,
    });
    let lab = Lab::new(settings, plans.collect());
    let mut chance = Prng::new(7);
    let mut expected = Vec::new();
    let mut told = Vec::new();
    let mut finished = 0;
    let injected = |lab: &Lab| lab.faults.iter().map(|counts| counts.total()).sum::<u64>();
    while injected(&lab) < wanted {
        while expected.len() as u64 - finished < 32 {
            let mut payload = vec![0; chance.below(600) as usize];
            chance.fill(&mut payload);
            if let Some(first) = payload.first_mut() {
                *first %= 250;
            }
            lab.submit(expected.len() as u64, job(&payload));
            expected.push(golden(&payload));
            told.push(false);
        }
        lab.advance();
        finished += check(&lab, &expected, &mut told);
    }
    lab.run();
    check(&lab, &expected, &mut told);
    assert!(told.iter().all(|told| *told), "a job was lost");
    let counters = lab.counters();
    assert_eq!(counters.finished, expected.len() as u64);
    assert_eq!((counters.waiting, counters.errors), (0, 0));
    println!("{} faults injected\n{counters}", injected(&lab));
    lab
}

fn check(lab: &Lab, expected: &[Vec<u8>], told: &mut [bool]) -> u64 {
    let mut count = 0;
    while let Some((tag, finished)) = lab.pop() {
        let tag = tag as usize;
        assert!(
            !std::mem::replace(&mut told[tag], true),
            "job {tag} was told twice"
        );
        assert_eq!(bytes(&finished), expected[tag], "job {tag}");
        count += 1;
    }
    count
}

fn all_but(left_out: &[Fault]) -> Vec<Fault> {
    let kept = Fault::ALL.into_iter().filter(|fault| !left_out.contains(fault));
    kept.collect()
}

/// A tolerant policy, so that faults keep meeting units instead of units that are out.
fn tolerant(mut settings: SchedulerConfig) -> SchedulerConfig {
    settings.health.failures_max = 64;
    settings.health.slow_max = 64;
    settings.health.window = 64;
    settings.health.out_ns = 500_000;
    settings.health.out_ns_max = 1_000_000;
    settings.timeline_entries_max = 16;
    settings
}

#[test]
fn faults_on_the_way_are_all_found() {
    let lab = campaign(
        tolerant(config()),
        3,
        &all_but(&[Fault::Upset]),
        300_000,
        faults_wanted(),
    );
    let (mut injected, mut harmless, mut found) = (0, 0, 0);
    for (unit, faults) in lab.faults.iter().enumerate() {
        injected += faults.total();
        harmless += faults.get(Fault::Duplicate);
        found += lab.counters().units[unit].failures.total(Blame::Unit);
    }
    // Every fault but a duplicate fails its attempt; a dead unit fails others besides.
    assert!(
        found >= injected - harmless,
        "{found} found of {injected}, {harmless} harmless"
    );
    let redone = lab.counters().redone_on_cpu.total(Blame::Unit);
    assert_eq!(
        redone, found,
        "without comparison each failed attempt is one redone job"
    );
}

#[test]
fn faults_inside_units_are_all_found_when_all_is_compared() {
    let lab = campaign(tolerant(compare_all()), 3, &Fault::ALL, 300_000, faults_wanted());
    assert!(lab.faults.iter().all(|faults| faults.get(Fault::Upset) > 0));
}

/// The CPU begins what units are slow with: some are told first by the one, some by the other.
#[test]
fn with_the_cpu_beside_slow_units_nothing_is_lost_or_told_twice() {
    // Seldom enough for the CPU to be idle now and then.
    let lab = campaign(
        tolerant(hedging(30_000)),
        3,
        &all_but(&[Fault::Upset]),
        10_000,
        faults_wanted() / 10,
    );
    assert!(lab.counters().redone_on_cpu.get(Reason::Slow) > 10);
}

#[test]
fn a_single_unit_with_faults_of_every_kind() {
    campaign(
        tolerant(compare_all()),
        1,
        &Fault::ALL,
        500_000,
        faults_wanted() / 10,
    );
}

#[test]
fn units_that_only_fail_are_left_alone_and_the_cpu_goes_on() {
    let mut settings = config();
    settings.health.out_ns = 5_000_000;
    settings.health.out_ns_max = 50_000_000;
    let faults = all_but(&[Fault::Duplicate, Fault::Upset]);
    let lab = campaign(settings, 2, &faults, 1_000_000, 30);
    let counters = lab.counters();
    let cpu = counters.units.last().unwrap();
    assert!(counters.units[0].taken_out > 3 && counters.units[1].taken_out > 3);
    assert_eq!(
        (counters.units[0].brought_back, counters.units[1].brought_back),
        (0, 0)
    );
    let tried = counters.units[0].started + counters.units[1].started;
    assert!(cpu.started > 10 * tried, "cpu {} tried {tried}", cpu.started);
}
