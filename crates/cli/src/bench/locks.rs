//! `weft bench locks`: locks and commits over the fabric, beside what their messages and the disk cost.
//!
//! ```text
//!   mailbox              a message there and back, nothing else: what a lock is compared with
//!   locks one by one     the document's synthetic transaction: ten locks in drawn modes, a message each
//!   locks together       the same in one request
//!   one server           a write, committed on the server's disk
//!   two servers          a write at each: two-phase commit, three logs
//!   sync                 one write and its sync on this disk: what a commit is compared with
//!   synthetic            ten locks, 0 to 50 % of them at the second of two servers, and commits by votes
//!   tpcc                 the locks of TPC-C's transactions, replayed (`lock_trace`)
//! ```
//!
//! `--record FILE` and `--replay FILE` keep a trace; `--simulate-ranks` is another figure (`lock_ranks`).
//! Logs of replays are in memory, as the document has none, unless the case says something else.
//!
//! Ranks are threads. With fewer processors than ranks everything is the scheduler's time: the first three
//! need two processors, a commit at two servers three.
//!
//! Source: Barthels 5.3 to 5.5.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_base::{Disk, OpenMode, RealDisk, SyncSite};
use weft_cluster::measure::{Measured, Parts, Synthetic, commits, parts, synthetic};
use weft_cluster::trace::LockTrace;
use weft_workload::Record;
use weft_workload::driver::median;

use super::lock_ranks::Ranks;
use super::{BenchDir, lock_trace, print};
use crate::arguments::LocksArguments;
use crate::failure::Failure;

/// Locks of a transaction (5.4.1).
const LOCKS: usize = 10;
/// The document's rate of one server (5.4.2).
const DOCUMENT_LOCKS: f64 = 317_000.0;
const TRIPS: usize = 100_000;
const QUICK_TRIPS: usize = 1_000;
const SYNCS: usize = 200;
const SYNC: SyncSite = SyncSite("bench locks");

/// Shares of locks at the other server, in percent (figure 5.7).
const REMOTE_PERCENTS: [u32; 6] = [0, 1, 5, 10, 25, 50];
const QUICK_PERCENTS: [u32; 2] = [0, 10];
const QUICK_TRANSACTIONS: u32 = 500;
/// Warehouses of a trace, if nothing else is said.
const WAREHOUSES: u32 = 4;
/// Those of one that is simulated with: homes are then the agents' own.
const SIMULATED_WAREHOUSES: u32 = 100;

/// Runs all cases in turns and prints medians.
pub(crate) fn run(arguments: &LocksArguments) -> Result<(), Failure> {
    if !(0.001..=3_600.0).contains(&arguments.seconds) {
        return Err(Failure::Usage(
            "--seconds must be between 0.001 and 3600".to_owned(),
        ));
    }
    if !(0.0..=1e6).contains(&arguments.remote_extra_us) {
        return Err(Failure::Usage(
            "--remote-extra-us must be between 0 and 1000000".to_owned(),
        ));
    }
    let time = Duration::from_secs_f64(if arguments.quick { 0.05 } else { arguments.seconds });
    let transactions = if arguments.quick {
        QUICK_TRANSACTIONS
    } else {
        arguments.transactions
    };
    let recorded = |warehouses: u32| lock_trace::record(warehouses, transactions as usize);
    let largest = arguments.warehouses.iter().max().copied();
    if let Some(file) = &arguments.record {
        return lock_trace::save(&recorded(largest.unwrap_or(WAREHOUSES))?, file);
    }
    if let Some(ranks) = arguments.simulate_ranks {
        let trace = match &arguments.replay {
            Some(file) => lock_trace::load(file)?,
            None => recorded(largest.unwrap_or(SIMULATED_WAREHOUSES))?,
        };
        return simulate(arguments, ranks, &trace, time);
    }
    let trace = match &arguments.replay {
        Some(file) => lock_trace::load(file)?,
        None => recorded(largest.unwrap_or(WAREHOUSES))?,
    };
    let mut cases = lock_trace::cases(arguments, trace, time)?;
    if arguments.replay.is_none() {
        let percents: &[u32] = if arguments.quick {
            &QUICK_PERCENTS
        } else {
            &REMOTE_PERCENTS
        };
        cases.extend(lock_trace::synthetic_cases(time, percents));
    }
    measure(arguments, cases, time)
}

/// Measures what a message and a lock cost, and simulates with that.
fn simulate(arguments: &LocksArguments, ranks: u32, tpcc: &LockTrace, time: Duration) -> Result<(), Failure> {
    let trips = if arguments.quick { QUICK_TRIPS } else { TRIPS };
    let own = BenchDir::named(arguments.dir.clone(), "locks")?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let failed = |error| Failure::doing("a cluster of threads", error);
    let workload = Synthetic {
        locks: LOCKS,
        together: 1,
        records: arguments.records,
        time,
    };
    let (mut measured, mut lock_ns) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        measured.push(parts(trips).map_err(failed)?);
        let apart = synthetic(workload, &disk, &own.path.join(format!("round-{round}"))).map_err(failed)?;
        lock_ns.push(apart.txn_ns[0] / LOCKS as f64);
    }
    let of = |value: fn(&Parts) -> f64| median(measured.iter().map(value).collect());
    let parts = Parts {
        round_trip_ns: [
            of(|parts| parts.round_trip_ns[0]),
            of(|parts| parts.round_trip_ns[1]),
        ],
        send_ns: of(|parts| parts.send_ns),
        table_ns: of(|parts| parts.table_ns),
    };
    let config = format!(
        "SIMULATED with costs of threads, rounds={} version={}",
        arguments.rounds,
        env!("CARGO_PKG_VERSION")
    );
    let simulated = Ranks {
        ranks,
        remote_extra_ns: arguments.remote_extra_us * 1e3,
        quick: arguments.quick,
        tpcc,
        config: &config,
    };
    print(
        arguments.json,
        "SIMULATION of the lock protocol with measured costs",
        &simulated.records(&parts, median(lock_ns)),
    )
}

fn measure(
    arguments: &LocksArguments,
    mut cases: Vec<lock_trace::Case>,
    time: Duration,
) -> Result<(), Failure> {
    let trips = if arguments.quick { QUICK_TRIPS } else { TRIPS };
    let own = BenchDir::named(arguments.dir.clone(), "locks")?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let config = format!(
        "threads, locks={LOCKS} records={} seconds={} rounds={} processors={} version={}",
        arguments.records,
        time.as_secs_f64(),
        arguments.rounds,
        std::thread::available_parallelism().map_or(1, usize::from),
        env!("CARGO_PKG_VERSION")
    );
    let workload = |together| Synthetic {
        locks: LOCKS,
        together,
        records: arguments.records,
        time,
    };
    let failed = |error| Failure::doing("a cluster of threads", error);
    let (mut rounds, mut replay_parts) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let dir = own.path.join(format!("round-{round}"));
        cases.iter_mut().try_for_each(|case| case.run(&dir))?;
        if arguments.replay.is_some() {
            replay_parts.push(parts(trips).map_err(failed)?);
            continue;
        }
        rounds.push(Round {
            parts: parts(trips).map_err(failed)?,
            apart: synthetic(workload(1), &disk, &dir.join("apart")).map_err(failed)?,
            together: synthetic(workload(LOCKS), &disk, &dir.join("together")).map_err(failed)?,
            one: commits(1, &disk, &dir.join("one"), time).map_err(failed)?,
            two: commits(2, &disk, &dir.join("two"), time).map_err(failed)?,
            sync_ns: sync_ns(&*disk, &dir).map_err(|e| Failure::doing("syncing a file", e))?,
        });
    }
    let mut all = Vec::new();
    if arguments.replay.is_none() {
        all = records(&rounds, &config, [workload(1), workload(LOCKS)]);
        replay_parts = rounds.iter().map(|round| round.parts).collect();
    }
    for case in &cases {
        all.extend(case.records(&config, &replay_parts));
    }
    print(arguments.json, "locks and commits over one-sided messages", &all)
}

/// A case of a round.
type Case = fn(&Round) -> &Measured;

struct Round {
    parts: Parts,
    apart: Measured,
    together: Measured,
    one: Measured,
    two: Measured,
    sync_ns: f64,
}

fn records(rounds: &[Round], config: &str, workloads: [Synthetic; 2]) -> Vec<Record> {
    let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let record = |case: &str, metric, value, unit| Record::new("locks", case, config, metric, value, unit);
    let trip = of(&|round| round.parts.round_trip_ns[0]);
    let sync = of(&|round| round.sync_ns);
    let mut all = vec![
        record("mailbox", "round trip", trip, "ns"),
        record(
            "mailbox",
            "round trip p99",
            of(&|round| round.parts.round_trip_ns[1]),
            "ns",
        ),
        record(
            "lock table alone",
            "lock",
            of(&|round| round.parts.table_ns),
            "ns",
        ),
        record("sync", "sync", sync, "ns"),
    ];
    let cases: [(&str, Synthetic, Case); 2] = [
        ("locks one by one", workloads[0], |round| &round.apart),
        ("locks together", workloads[1], |round| &round.together),
    ];
    for (case, workload, measured) in cases {
        let rate = of(&|round| measured(round).agent.locks as f64 / measured(round).seconds.max(1e-9));
        let took = of(&|round| measured(round).txn_ns[0]);
        let waited = of(&|round| {
            let agent = measured(round).agent;
            agent.lock_ns as f64 / agent.locks.max(1) as f64
        });
        // Medians on both sides: the end of the transaction counts among its locks.
        let lock = took / workload.locks as f64;
        let predicted = of(&|round| round.parts.predicted_ns(&workload));
        all.extend([
            record(case, "lock", lock, "ns").versus(Some(("mailbox round trip", trip))),
            record(case, "locks", rate, "1/s").versus(Some(("the document's server", DOCUMENT_LOCKS))),
            record(case, "transaction", took, "ns").versus(Some(("equation 5.3", predicted))),
            record(
                case,
                "transaction p99",
                of(&|round| measured(round).txn_ns[1]),
                "ns",
            ),
            record(
                case,
                "transaction p99.9",
                of(&|round| measured(round).txn_ns[2]),
                "ns",
            ),
            record(case, "lock mean", waited, "ns"),
            record(
                case,
                "refused",
                of(&|round| measured(round).server.refused as f64),
                "",
            ),
        ]);
    }
    let commits: [(&str, Case); 2] = [
        ("one server", |round| &round.one),
        ("two servers", |round| &round.two),
    ];
    for (case, measured) in commits {
        let took = of(&|round| measured(round).txn_ns[0]);
        let votes = of(&|round| {
            let agent = measured(round).agent;
            agent.vote_ns as f64 / agent.committed[2].max(1) as f64
        });
        if votes > 0.0 {
            all.push(record(case, "vote mean", votes, "ns"));
        }
        all.extend([
            record(case, "commit", took, "ns").versus(Some(("a sync", sync))),
            record(case, "commit p99", of(&|round| measured(round).txn_ns[1]), "ns"),
        ]);
    }
    all
}

/// The median of writing and syncing a sector.
fn sync_ns(disk: &dyn Disk, dir: &Path) -> std::io::Result<f64> {
    disk.create_dir_all(dir)?;
    let file = disk.open(&dir.join("sync"), OpenMode::CreateNew)?;
    let mut times = Vec::with_capacity(SYNCS);
    for at in 0..SYNCS as u64 {
        let begun = Instant::now();
        file.write_at(&[at as u8; 512], at * 512)?;
        file.sync(SYNC)?;
        times.push(begun.elapsed().as_nanos() as f64);
    }
    Ok(median(times))
}
