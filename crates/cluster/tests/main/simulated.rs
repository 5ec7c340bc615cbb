//! Seeds: every interleaving, delay and death is drawn.

use std::time::Duration;

use weft_base::Prng;
use weft_cluster::{ClusterConfig, Planted};
use weft_fabric::sim::{Kill, Report, Simulation};
use weft_lock::{BoundedWait, ConflictPolicy, DeadlockDetection, NoWait, WaitDie, WoundWait};

use crate::lab::Lab;

fn config(servers: u32) -> ClusterConfig {
    ClusterConfig {
        servers,
        records: 6,
        staging_bytes: 4096,
        wait_max: Duration::from_micros(200),
        retry_every: Duration::from_micros(100),
        ..ClusterConfig::default()
    }
}

/// Seeds that `WEFT_SEEDS` asks for, or so many.
fn seeds(default: u64) -> u64 {
    let asked = std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    asked.unwrap_or(default)
}

fn run(seed: u64, lab: &Lab, kills: &[Kill]) -> Report<()> {
    let mut simulation = Simulation::new(seed, lab.disks.len() as u32);
    for kill in kills {
        simulation = simulation.kill(*kill);
    }
    let disks = lab.disks.clone();
    simulation = simulation
        .on_kill(move |rank| disks[rank as usize].crash())
        .steps_max(60_000);
    let report = simulation.run(|rank| lab.run(rank));
    assert!(!report.is_stopped(), "seed {seed} with {kills:?} does not end");
    report
}

fn check(seed: u64, lab: &Lab, kills: &[Kill]) {
    if let Err(why) = lab.check() {
        panic!("seed {seed}, {kills:?}: {why}");
    }
}

#[test]
fn without_deaths_everything_ends_and_is_serial() {
    let mut committed = 0;
    for seed in 0..seeds(60) {
        let lab = Lab::new(seed, config(2), 5, 6);
        run(seed, &lab, &[]);
        check(seed, &lab, &[]);
        let [done, _, unknown] = lab.counts();
        assert_eq!(unknown, 0, "seed {seed}");
        committed += done;
    }
    assert!(committed > 100, "{committed}");
}

#[test]
fn every_policy_ends_and_is_serial() {
    let policies: [&dyn ConflictPolicy; 4] = [&NoWait, &WaitDie, &WoundWait, &DeadlockDetection];
    for policy in policies {
        for seed in 0..seeds(60) / 4 {
            let settings = ClusterConfig {
                policy,
                records: 3,
                presumes_abort: seed % 2 == 0,
                ..config(2)
            };
            let lab = Lab::new(seed, settings, 5, 6);
            run(seed, &lab, &[]);
            check(seed, &lab, &[]);
        }
    }
}

/// The coordinator and both participants, killed at every step of a few transactions.
#[test]
fn deaths_at_every_step_split_and_lose_nothing() {
    let lab = Lab::new(3, config(2), 3, 3);
    let alone = run(3, &lab, &[]);
    let mut runs = 0;
    for (rank, steps) in alone.steps.iter().enumerate() {
        for at_step in started(&alone, rank)..=*steps {
            let kill = Kill {
                rank: rank as u32,
                at_step,
                returns_after: Some(Duration::from_micros(20 + at_step % 7 * 50)),
            };
            let lab = Lab::new(3, config(2), 3, 3);
            run(3, &lab, &[kill]);
            check(3, &lab, &[kill]);
            runs += 1;
        }
    }
    println!("{runs} runs");
}

/// The first step of a rank after its start, which needs all ranks.
fn started(report: &Report<()>, rank: usize) -> u64 {
    report.first_marks[rank].unwrap() + 1
}

/// Several deaths at random, among several agents.
#[test]
fn random_deaths_split_and_lose_nothing() {
    let [mut committed, mut aborted, mut unknown] = [0; 3];
    for seed in 0..seeds(200) {
        let mut prng = Prng::new(seed);
        let policies: [&dyn ConflictPolicy; 4] = [&BoundedWait, &WoundWait, &WaitDie, &DeadlockDetection];
        let settings = ClusterConfig {
            presumes_abort: seed % 3 != 0,
            policy: policies[seed as usize % 4],
            records: 3 + seed % 4,
            ..config(2)
        };
        let alone = run(seed, &Lab::new(seed, settings, 5, 5), &[]);
        let mut kill = || {
            let rank = prng.below(5) as usize;
            let first = started(&alone, rank);
            Kill {
                rank: rank as u32,
                at_step: first + prng.below(alone.steps[rank] - first),
                returns_after: Some(Duration::from_micros(prng.below(600) + 5)),
            }
        };
        let kills: Vec<Kill> = (0..seed % 3 + 1).map(|_| kill()).collect();
        let lab = Lab::new(seed, settings, 5, 5);
        run(seed, &lab, &kills);
        check(seed, &lab, &kills);
        let counts = lab.counts();
        committed += counts[0];
        aborted += counts[1];
        unknown += counts[2];
    }
    println!("{committed} committed, {aborted} aborted, {unknown} unknown");
    assert!(committed > 100);
}

/// A coordinator that tells before its decision is on the disk is found.
#[test]
fn a_decision_told_too_early_is_found() {
    let settings = ClusterConfig {
        planted: Planted::TellsBeforeDisk,
        ..config(2)
    };
    let is_found = |seed: u64| {
        let alone = run(seed, &Lab::new(seed, settings, 3, 4), &[]);
        (started(&alone, 2)..=alone.steps[2]).any(|at_step| {
            let kill = Kill {
                rank: 2,
                at_step,
                returns_after: Some(Duration::from_micros(50)),
            };
            let lab = Lab::new(seed, settings, 3, 4);
            run(seed, &lab, &[kill]);
            lab.check().is_err()
        })
    };
    assert!((0..20).any(is_found));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let trace = || {
        let lab = Lab::new(11, config(2), 5, 4);
        run(11, &lab, &[]).trace
    };
    assert_eq!(trace(), trace());
}
