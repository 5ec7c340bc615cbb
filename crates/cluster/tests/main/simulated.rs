//! Seeds: every interleaving, delay and death is drawn.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_base::{FaultKind, Prng};
use weft_cluster::{ClusterConfig, Planted};
use weft_fabric::sim::{Kill, Report, Simulation, Stall};
use weft_lock::{BoundedWait, ConflictPolicy, DeadlockDetection, NoWait, WaitDie, WoundWait};

use crate::lab::Lab;

fn config(servers: u32) -> ClusterConfig {
    ClusterConfig {
        servers,
        records: 6,
        staging_bytes: 4096,
        wait_max: Duration::from_micros(200),
        retry_every: Duration::from_micros(100),
        circles_after: Some(Duration::from_micros(30)),
        ..ClusterConfig::default()
    }
}

/// Seeds that `WEFT_SEEDS` asks for, or so many.
pub fn seeds(default: u64) -> u64 {
    let asked = std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok());
    asked.unwrap_or(default)
}

pub fn run(seed: u64, lab: &Lab, kills: &[Kill]) -> Report<()> {
    let mut simulation = Simulation::new(seed, lab.disks.len() as u32);
    for kill in kills {
        simulation = simulation.kill(*kill);
    }
    let disks = lab.disks.clone();
    simulation = simulation
        .on_kill(move |rank| disks[rank as usize].crash())
        .steps_max(60_000 * u64::from(lab.ranks()));
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
        assert!(
            lab.stats.lock().iter().all(|stats| stats.nonsense == 0),
            "seed {seed}"
        );
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
pub fn started(report: &Report<()>, rank: usize) -> u64 {
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

/// Servers that hang for longer than agents wait, some of which die as well: what is given up is released,
/// and a late answer or vote is none for what comes after.
#[test]
fn whoever_gives_up_leaves_nothing_behind() {
    let mut gave_up = 0;
    for seed in 0..seeds(120) {
        let mut prng = Prng::new(seed);
        let settings = ClusterConfig {
            policy: [&BoundedWait as &dyn ConflictPolicy, &WoundWait, &NoWait][seed as usize % 3],
            presumes_abort: seed % 4 != 0,
            ..config(2 + seed as u32 % 2)
        };
        let lab = |timeout| {
            let mut lab = Lab::new(seed, settings, 5, 8);
            lab.timeout = timeout;
            lab
        };
        let alone = run(seed, &lab(None), &[]);
        let lab = lab(Some(Duration::from_micros(100 << (seed % 3))));
        let mut simulation = Simulation::new(seed, 5).steps_max(60_000);
        let mut at = |rank: usize| {
            let first = started(&alone, rank);
            first + prng.below(alone.steps[rank] - first)
        };
        for rank in [0, 1, seed as usize % 2] {
            simulation = simulation.stall(Stall {
                rank: rank as u32,
                at_step: at(rank),
                lasts: Duration::from_micros(200 + seed % 13 * 100),
            });
        }
        for kill in 0..seed % 3 {
            let rank = ((seed / 3 + kill) % 5) as usize;
            simulation = simulation.kill(Kill {
                rank: rank as u32,
                at_step: at(rank),
                returns_after: Some(Duration::from_micros(10 + seed % 50 * 10)),
            });
        }
        let disks = lab.disks.clone();
        simulation = simulation.on_kill(move |rank| disks[rank as usize].crash());
        let report = simulation.run(|rank| lab.run(rank));
        assert!(!report.is_stopped(), "seed {seed} does not end");
        check(seed, &lab, &[]);
        gave_up += lab.counts()[1];
    }
    assert!(gave_up > 0);
}

/// The disk of a coordinator fails, it says nothing any more, dies and returns, and a server dies meanwhile.
#[test]
fn a_coordinator_whose_disk_fails_says_nothing() {
    let mut failed = 0;
    // Seed 680 splits if everybody is told to abort after the error.
    for seed in 600..600 + seeds(100) {
        let mut prng = Prng::new(seed);
        let alone = run(seed, &Lab::new(seed, config(2), 3, 5), &[]);
        let mut lab = Lab::new(seed, config(2), 3, 5);
        lab.disks_fail = true;
        let disk = &lab.disks[2];
        disk.fail_after(disk.op_count() + 4 + prng.below(12), FaultKind::Io);
        let first = started(&alone, 1);
        let mut kills = vec![Kill {
            rank: 2,
            at_step: alone.steps[2] + 100,
            returns_after: Some(Duration::from_micros(200)),
        }];
        if seed % 2 == 0 {
            kills.push(Kill {
                rank: 1,
                at_step: first + prng.below(alone.steps[1] - first),
                returns_after: Some(Duration::from_micros(400 + prng.below(2000))),
            });
        }
        run(seed, &lab, &kills);
        check(seed, &lab, &kills);
        failed += lab.failed.load(Ordering::SeqCst);
    }
    assert!(failed > 0);
}

/// Messages that are damaged on their way, of any agent or server and in any part of a transaction: nobody
/// but their own transactions hears of it, servers go on, and what is told is so.
#[test]
fn a_damaged_message_ends_one_transaction() {
    let ([mut committed, mut aborted], mut damaged) = ([0; 2], 0);
    for seed in 0..seeds(80) {
        let settings = ClusterConfig {
            planted: Planted::DamagesEvery(9 + seed as u32 % 11),
            presumes_abort: seed % 3 != 0,
            ..config(1 + seed as u32 % 3)
        };
        let mut lab = Lab::new(seed, settings, 6, 6);
        lab.timeout = Some(Duration::from_millis(2));
        lab.server_timeout = Some(Duration::from_micros(400));
        run(seed, &lab, &[]);
        check(seed, &lab, &[]);
        let counts = lab.counts();
        assert_eq!(counts[2], 0, "seed {seed}: all know how it ended");
        committed += counts[0];
        aborted += counts[1];
        damaged += lab.stats.lock().iter().map(|stats| stats.damaged).sum::<u64>();
    }
    println!("{damaged} damaged: {committed} committed, {aborted} aborted");
    assert!(committed > 100 && damaged > 100);
}

/// More agents than a server looks at one by one: it is told which groups have sent something.
#[test]
fn many_agents_and_deaths_among_them() {
    let mut committed = 0;
    for seed in 0..seeds(24) {
        let settings = ClusterConfig {
            records: 16,
            ..config(2)
        };
        let ranks = 2 + 9 + seed as u32 % 9;
        let alone = run(seed, &Lab::new(seed, settings, ranks, 2), &[]);
        let mut prng = Prng::new(seed);
        let kills: Vec<Kill> = (0..seed % 3)
            .map(|_| {
                let rank = prng.below(u64::from(ranks)) as usize;
                let first = started(&alone, rank);
                Kill {
                    rank: rank as u32,
                    at_step: first + prng.below(alone.steps[rank] - first),
                    returns_after: Some(Duration::from_micros(prng.below(600) + 5)),
                }
            })
            .collect();
        let lab = Lab::new(seed, settings, ranks, 2);
        run(seed, &lab, &kills);
        check(seed, &lab, &kills);
        committed += lab.counts()[0];
    }
    assert!(committed > 100, "{committed}");
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
