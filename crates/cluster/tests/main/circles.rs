//! Circles through several servers: each is broken long before waits end, by one refusal, and nobody is
//! refused who was in none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use weft_base::{Disk, Prng, SimDisk, TxnId};
use weft_cluster::{Abort, Agent, ClusterConfig, Error, Planted, Refusal, Server};
use weft_fabric::Rank;
use weft_fabric::sim::{Kill, Simulation, Stall};
use weft_lock::{BoundedWait, ConflictPolicy, DeadlockDetection};

use crate::lab::Lab;
use crate::simulated::{run, seeds, started};

/// Waits that nobody of these tests sees the end of.
const WAIT_MAX: Duration = Duration::from_secs(1);

fn config(servers: u32, records: u64) -> ClusterConfig {
    ClusterConfig {
        servers,
        records,
        record_bytes: 8,
        staging_bytes: 1024,
        wait_max: WAIT_MAX,
        retry_every: Duration::from_micros(100),
        circles_after: Some(Duration::from_micros(20)),
        ..ClusterConfig::default()
    }
}

/// What agents of a run share outside of the fabric.
#[derive(Default)]
struct Shared {
    /// Agents that have the first lock.
    ready: AtomicU64,
    /// Agents that are done.
    done: AtomicU64,
    circles: AtomicU64,
    outcomes: Mutex<Vec<(TxnId, Result<(), Abort>)>>,
}

fn disk(seed: u64, rank: &Rank) -> Arc<dyn Disk> {
    Arc::new(SimDisk::new(seed ^ u64::from(rank.number())))
}

fn serve(rank: &Rank, config: ClusterConfig, seed: u64, shared: &Shared, agents: u64) -> Result<(), Error> {
    let mut server = Server::open(rank, config, disk(seed, rank), Path::new("/server"))?;
    server.serve(|_| shared.done.load(Ordering::SeqCst) == agents)?;
    shared.circles.fetch_add(server.stats().circles, Ordering::SeqCst);
    Ok(())
}

/// Agent `place` writes its own record, and when all have, the one of the next agent.
fn go_round(
    rank: &Rank,
    config: ClusterConfig,
    seed: u64,
    shared: &Shared,
    agents: u64,
) -> Result<(), Error> {
    let mut agent = Agent::open(rank, config, disk(seed, rank), Path::new("/agent"))?;
    let place = u64::from(rank.number() - config.servers);
    // So that numbers differ in more than the agent.
    for _ in 0..Prng::new(seed ^ place << 32).below(4) {
        agent.begin()?.abort()?;
    }
    let mut transaction = agent.begin()?;
    let txn = transaction.id();
    transaction.write(place, vec![1; 8])?.unwrap();
    shared.ready.fetch_add(1, Ordering::SeqCst);
    while shared.ready.load(Ordering::SeqCst) < agents {
        rank.pause(1);
    }
    let outcome = match transaction.write((place + 1) % agents, vec![2; 8])? {
        Ok(()) => transaction.commit()?,
        Err(abort) => {
            transaction.abort()?;
            Err(abort)
        }
    };
    shared.outcomes.lock().push((txn, outcome));
    while !agent.is_settled() {
        agent.poll()?;
        rank.pause(1);
    }
    shared.done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[test]
fn circles_of_two_to_five_are_broken_at_their_youngest() {
    let mut latest_us = 0;
    for seed in 0..seeds(120) {
        let (agents, servers) = (2 + seed % 4, 1 + seed as u32 / 4 % 4);
        let policy: &dyn ConflictPolicy = if seed % 2 == 0 {
            &BoundedWait
        } else {
            &DeadlockDetection
        };
        let settings = ClusterConfig {
            policy,
            ..config(servers, 5)
        };
        let shared = Shared::default();
        let report = Simulation::new(seed, servers + agents as u32).run(|rank| {
            let ran = match rank.number() < servers {
                true => serve(&rank, settings, seed, &shared, agents),
                false => go_round(&rank, settings, seed, &shared, agents),
            };
            ran.unwrap();
        });
        assert!(!report.is_stopped());
        let outcomes = shared.outcomes.into_inner();
        let youngest = outcomes.iter().map(|(txn, _)| *txn).max();
        let refused: Vec<_> = outcomes.iter().filter(|(_, outcome)| outcome.is_err()).collect();
        let deadlock = Err(Abort::Refused(Refusal::Deadlock));
        assert!(
            matches!(refused.as_slice(), [(_, outcome)] if *outcome == deadlock),
            "seed {seed}: {refused:?}"
        );
        // A server that sees all of a circle by itself refuses whoever closes it.
        if servers > 1 && policy.name() == "bounded_wait" {
            assert_eq!(Some(refused[0].0), youngest, "seed {seed}");
            assert_eq!(shared.circles.into_inner(), 1, "seed {seed}");
        }
        latest_us = latest_us.max(report.now_ns / 1_000);
    }
    println!("the longest took {latest_us} us");
    assert!(Duration::from_micros(latest_us) < WAIT_MAX / 100);
}

/// Transactions that lock in one order, some of which give up or wait too long: there never is a circle.
/// How many were refused for one.
fn refused_for_nothing(seed: u64, settings: ClusterConfig) -> usize {
    let (agents, records) = (6, settings.records);
    let shared = Shared::default();
    let one = |agent: &mut Agent, prng: &mut Prng| -> Result<Result<(), Abort>, Error> {
        let mut transaction = agent.begin()?;
        let mut record = prng.below(2);
        while record < records {
            if let Err(abort) = transaction.write(record, vec![3; 8])? {
                return Ok(Err(abort));
            }
            record += 1 + prng.below(2);
        }
        match prng.chance(1, 3) {
            true => transaction.abort().map(Ok),
            false => transaction.commit(),
        }
    };
    let transact = |rank: &Rank| -> Result<(), Error> {
        let mut agent = Agent::open(rank, settings, disk(seed, rank), Path::new("/agent"))?;
        let mut prng = Prng::new(seed ^ u64::from(rank.number()) << 32);
        for _ in 0..8 {
            let outcome = one(&mut agent, &mut prng)?;
            shared.outcomes.lock().push((TxnId(0), outcome));
        }
        while !agent.is_settled() {
            agent.poll()?;
            rank.pause(1);
        }
        shared.done.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let report = Simulation::new(seed, settings.servers + agents).run(|rank| {
        let ran = match rank.number() < settings.servers {
            true => serve(&rank, settings, seed, &shared, u64::from(agents)),
            false => transact(&rank),
        };
        ran.unwrap();
    });
    assert!(!report.is_stopped(), "seed {seed}");
    let outcomes = shared.outcomes.into_inner();
    let deadlock = Err(Abort::Refused(Refusal::Deadlock));
    outcomes
        .iter()
        .filter(|(_, outcome)| *outcome == deadlock)
        .count()
}

/// Waits end soon, so that what is read of a graph is often over.
fn impatient(seed: u64) -> ClusterConfig {
    ClusterConfig {
        wait_max: Duration::from_micros(150 + seed % 5 * 50),
        circles_after: Some(Duration::from_micros(1)),
        ..config(3, 6)
    }
}

#[test]
fn without_circles_nobody_is_refused_for_one() {
    for seed in 0..seeds(40) {
        assert_eq!(refused_for_nothing(seed, impatient(seed)), 0, "seed {seed}");
        assert_eq!(refused_for_nothing(seed, config(3, 6)), 0, "seed {seed}");
    }
}

/// Three transactions of which the third begins to wait for the first only when the second has given up
/// waiting for it: a circle of edges that were never there together. Whether the first was refused for it.
/// The server that looks hangs for a while, at a drawn step.
fn is_refused_for_a_phantom(seed: u64, settings: ClusterConfig) -> bool {
    let step = |prng: &mut Prng, from: u64, to: u64| from + prng.below(to - from);
    let run = |stalls: Option<Stall>| {
        let shared = Shared::default();
        let mut simulation = Simulation::new(seed, 6);
        if let Some(stall) = stalls {
            simulation = simulation.stall(stall);
        }
        let report = simulation.run(|rank| {
            let ran = match rank.number() < settings.servers {
                true => serve(&rank, settings, seed, &shared, 3),
                false => phantom_member(&rank, settings, seed, &shared),
            };
            ran.unwrap();
        });
        assert!(!report.is_stopped());
        (report, shared.outcomes.into_inner())
    };
    let (alone, _) = run(None);
    let first = started(&alone, 0);
    let stall = Stall {
        rank: 0,
        at_step: step(&mut Prng::new(seed), first, alone.steps[0]),
        lasts: Duration::from_millis(4),
    };
    let (_, outcomes) = run(Some(stall));
    let deadlock = Err(Abort::Refused(Refusal::Deadlock));
    outcomes.iter().any(|(_, outcome)| *outcome == deadlock)
}

fn phantom_member(rank: &Rank, config: ClusterConfig, seed: u64, shared: &Shared) -> Result<(), Error> {
    let mut agent = Agent::open(rank, config, disk(seed, rank), Path::new("/agent"))?;
    let place = rank.number() - config.servers;
    // The one that is refused in the end is the youngest.
    for _ in 0..u32::from(place == 2) {
        agent.begin()?.abort()?;
    }
    let until = |count: u64| {
        while shared.ready.load(Ordering::SeqCst) < count {
            rank.pause(1);
        }
    };
    let mut transaction = agent.begin()?;
    let (own, wanted) = [(0, 1), (1, 2), (2, 0)][place as usize];
    transaction.write(own, vec![1; 8])?.unwrap();
    shared.ready.fetch_add(1, Ordering::SeqCst);
    // 0 waits for 1 until it gives up, 2 for 0 meanwhile; then 1 waits for 2.
    until(if place == 1 { 4 } else { 3 });
    let outcome = transaction.write(wanted, vec![2; 8])?;
    transaction.abort()?;
    if place == 0 {
        assert_eq!(outcome, Err(Abort::Refused(Refusal::Timeout)));
        shared.ready.fetch_add(1, Ordering::SeqCst);
    }
    shared.outcomes.lock().push((TxnId(0), outcome));
    shared.done.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[test]
fn edges_that_were_never_there_together_are_no_circle() {
    let settings = |planted| ClusterConfig {
        wait_max: Duration::from_millis(4),
        planted,
        ..config(3, 3)
    };
    let mut believed = 0;
    for seed in 0..seeds(20) {
        assert!(
            !is_refused_for_a_phantom(seed, settings(Planted::Sound)),
            "seed {seed}"
        );
        believed += u32::from(is_refused_for_a_phantom(seed, settings(Planted::BelievesOneLook)));
    }
    println!(
        "{believed} of {} were refused by who believes one look",
        seeds(20)
    );
    assert!(believed > 0);
}

/// Random transactions that read, convert and wait at several servers at once, without a bound that would
/// end a wait in time: whatever circles there are, all transactions end.
#[test]
fn whatever_circles_there_are_all_end() {
    for seed in 0..seeds(20) {
        let settings = ClusterConfig {
            record_bytes: 64,
            ..config(2 + seed as u32 % 2, 3 + seed % 3)
        };
        let lab = Lab::new(seed, settings, 7, 6);
        let report = run(seed, &lab, &[]);
        assert!(Duration::from_nanos(report.now_ns) < WAIT_MAX, "seed {seed}");
        lab.check().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// The same while ranks die and return.
#[test]
fn deaths_leave_nobody_waiting() {
    let mut committed = 0;
    for seed in 0..seeds(100) {
        let mut prng = Prng::new(seed);
        let settings = ClusterConfig {
            record_bytes: 64,
            ..config(2, 3)
        };
        let lab = || {
            let mut lab = Lab::new(seed, settings, 6, 6);
            lab.timeout = Some(Duration::from_millis(100));
            lab
        };
        let alone = run(seed, &lab(), &[]);
        let kills: Vec<Kill> = (0..1 + seed % 2)
            .map(|_| {
                let rank = prng.below(6) as usize;
                let first = started(&alone, rank);
                Kill {
                    rank: rank as u32,
                    at_step: first + prng.below(alone.steps[rank] - first),
                    returns_after: Some(Duration::from_micros(prng.below(600) + 5)),
                }
            })
            .collect();
        let lab = lab();
        let report = run(seed, &lab, &kills);
        assert!(Duration::from_nanos(report.now_ns) < WAIT_MAX, "seed {seed}");
        lab.check().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        committed += lab.counts()[0];
    }
    assert!(committed > 100);
}
