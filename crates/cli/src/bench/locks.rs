//! `weft bench locks`: locks and commits over the fabric, beside what their messages and the disk cost.
//!
//! ```text
//!   mailbox              a message there and back, nothing else: what a lock is compared with
//!   locks one by one     the document's synthetic transaction: ten locks in drawn modes, a message each
//!   locks together       the same in one request
//!   one server           a write, committed on the server's disk
//!   two servers          a write at each: two-phase commit, three logs
//!   sync                 one write and its sync on this disk: what a commit is compared with
//! ```
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
use weft_workload::Record;
use weft_workload::driver::median;

use super::{BenchDir, print};
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

/// Runs all cases in turns and prints medians.
pub(crate) fn run(arguments: &LocksArguments) -> Result<(), Failure> {
    let time = Duration::from_secs_f64(if arguments.quick { 0.05 } else { arguments.seconds });
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
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds {
        let dir = own.path.join(format!("round-{round}"));
        rounds.push(Round {
            parts: parts(trips).map_err(failed)?,
            apart: synthetic(workload(1), &disk, &dir.join("apart")).map_err(failed)?,
            together: synthetic(workload(LOCKS), &disk, &dir.join("together")).map_err(failed)?,
            one: commits(1, &disk, &dir.join("one"), time).map_err(failed)?,
            two: commits(2, &disk, &dir.join("two"), time).map_err(failed)?,
            sync_ns: sync_ns(&*disk, &dir).map_err(|e| Failure::doing("syncing a file", e))?,
        });
    }
    print(
        arguments.json,
        "locks and commits over one-sided messages",
        &records(&rounds, &config, [workload(1), workload(LOCKS)]),
    )
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
