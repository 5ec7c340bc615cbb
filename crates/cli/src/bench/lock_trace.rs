//! Lock traces of TPC-C: recording them, files of them, and what a cluster of threads makes of them.
//!
//! A transaction's locks are what `weft_txn::planning::program_locks` declares for its program and inputs:
//! the engine asks the same function before it runs a batch (serializable: reads, writes and ranges) and for
//! an interactive transaction at READ COMMITTED (writes only: reads are from snapshots and hold no lock). So
//! recording needs no hook in the engine, and costs nothing when nobody records. A request that is covered by
//! what its transaction holds already is left out, as a client of a lock server would.
//!
//! The warehouse of a lock is known by its key, whose first column it is in all tables but `item` (of which a
//! cluster has copies everywhere). Locks of whole tables, and of the partition of table `warehouse` that
//! holds 256 warehouses, are of no warehouse.
//!
//! Source: Barthels 5.4.1; 53.2 and 27.9 locks a transaction in 5.4.2.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weft::{Database, Options};
use weft_base::{Disk, RealDisk, SimDisk, TableId};
use weft_cluster::measure::Parts;
use weft_cluster::measure::replay::{Replay, Replayed};
use weft_cluster::trace::{Isolation, LockTrace, TracedLock, TracedTransaction};
use weft_lock::{LockMode, LockRequest, ResourceId, join};
use weft_program::{AccessKeys, AccessKind};
use weft_store::Catalog;
use weft_txn::planning::{LockScope, program_locks};
use weft_types::{ValueRef, encode_key_value_ref};
use weft_workload::Record;
use weft_workload::driver::median;
use weft_workload::stream::{StreamSeed, Transaction, Workload};
use weft_workload::tpcc::{Tpcc, TpccMix, TpccShape};

use super::BenchDir;
use crate::arguments::LocksArguments;
use crate::failure::Failure;

/// What the document's traces have (5.4.2).
const DOCUMENT_LOCKS_EACH: [f64; 2] = [53.2, 27.9];
/// The document's requests a second of one server (5.4.2).
const DOCUMENT_LOCKS: f64 = 317_000.0;
/// The specification's sizes: they decide what is drawn, and nothing of it is loaded.
const ITEMS: u64 = 100_000;
const CUSTOMERS: u64 = 3_000;
/// Tables that are loaded so that programs can be compiled.
const LOADED: TpccShape = TpccShape {
    warehouses: 1,
    items: 1,
    customers: 10,
};
/// A trace's file is read as a whole.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Draws transactions of TPC-C and records what they lock.
pub(super) fn record(warehouses: u32, transactions: usize) -> Result<LockTrace, Failure> {
    let dir = BenchDir::named(None, "lock-trace")?;
    let database = Database::open(&dir.path, Options::default())?;
    let failed = |error| Failure::doing("TPC-C", error);
    Tpcc::load(&database, LOADED, TpccMix::Full, |_, _| {}).map_err(failed)?;
    let shape = TpccShape {
        warehouses: u64::from(warehouses),
        items: ITEMS,
        customers: CUSTOMERS,
    };
    let catalog = database.engine().catalog();
    let tpcc = Tpcc::compile(&catalog, shape, TpccMix::Full).map_err(failed)?;
    let seed = StreamSeed {
        seed: 1,
        number: 0,
        count: 1,
    };
    let mut stream = tpcc.stream(seed);
    let mut recorder = Recorder::new(&catalog, warehouses)?;
    let mut trace = LockTrace {
        warehouses,
        kinds: tpcc.kinds().iter().map(|kind| (*kind).to_owned()).collect(),
        transactions: Vec::with_capacity(transactions),
    };
    for _ in 0..transactions {
        let drawn = stream.draw().map_err(failed)?;
        trace.transactions.push(recorder.record(&drawn)?);
    }
    Ok(trace)
}

/// Finds the locks of transactions and their warehouses.
struct Recorder<'c> {
    catalog: &'c Catalog,
    /// The table whose keys begin with no warehouse.
    item: TableId,
    /// By the first column of a key.
    warehouses: HashMap<Vec<u8>, u32>,
    /// Bytes of that column.
    prefix_bytes: usize,
    keys: AccessKeys,
}

impl<'c> Recorder<'c> {
    fn new(catalog: &'c Catalog, warehouses: u32) -> Result<Self, Failure> {
        let item = catalog.tables().find(|table| table.name.as_str() == "item");
        let item = item
            .ok_or_else(|| Failure::Check("there is no table item".to_owned()))?
            .id;
        let key = |warehouse: u32| {
            let mut key = Vec::new();
            encode_key_value_ref(&mut key, &ValueRef::Int4(warehouse.cast_signed() + 1));
            key
        };
        Ok(Recorder {
            catalog,
            item,
            warehouses: (0..warehouses)
                .map(|warehouse| (key(warehouse), warehouse))
                .collect(),
            prefix_bytes: key(0).len(),
            keys: AccessKeys::default(),
        })
    }

    fn record(&mut self, drawn: &Transaction) -> Result<TracedTransaction, Failure> {
        let serializable = self.locks(drawn, LockScope::ReadsAndWrites)?;
        let read_committed = self.locks(drawn, LockScope::Writes)?;
        // A client's own warehouse is what its transaction touches first.
        let home = serializable.iter().find_map(|lock| lock.warehouse);
        Ok(TracedTransaction {
            home: home.ok_or_else(|| Failure::Check("a transaction without a warehouse".to_owned()))?,
            kind: drawn.kind as u8,
            locks: [serializable, read_committed],
        })
    }

    fn locks(&mut self, drawn: &Transaction, scope: LockScope) -> Result<Vec<TracedLock>, Failure> {
        let requests = program_locks(&drawn.program, &drawn.inputs, self.catalog, scope, &mut self.keys)
            .map_err(|error| Failure::doing("locks of a transaction", error))?;
        let warehouses = self.warehouses_of(drawn);
        let mut held: HashMap<ResourceId, LockMode> = HashMap::new();
        let mut locks = Vec::with_capacity(requests.len());
        for LockRequest { resource, mode } in requests {
            let holds = held.entry(resource).or_default();
            if !holds.covers(mode) {
                *holds = join(*holds, mode);
                locks.push(TracedLock {
                    request: LockRequest { resource, mode },
                    warehouse: warehouses.get(&resource).copied(),
                });
            }
        }
        Ok(locks)
    }

    /// The warehouse of everything that the accesses of a transaction may lock, by its keys.
    fn warehouses_of(&self, drawn: &Transaction) -> HashMap<ResourceId, u32> {
        let mut found = HashMap::new();
        self.keys.for_each(|number, key| {
            let Some(access) = drawn.program.accesses.get(number) else {
                return;
            };
            let first = key.bytes.get(..self.prefix_bytes);
            let warehouse = first.and_then(|first| self.warehouses.get(first));
            let (Some(warehouse), true) = (warehouse, access.table != self.item) else {
                return;
            };
            found.insert(ResourceId::row_hashed(access.table, key.hash), *warehouse);
            if let AccessKind::WriteValue(index) = access.kind {
                found.insert(ResourceId::value_hashed(index, key.hash), *warehouse);
            }
            for bytes in [key.bytes, key.hi] {
                for length in self.prefix_bytes..=bytes.len() {
                    let prefix = bytes.get(..length).unwrap_or_default();
                    found.insert(ResourceId::range(access.table, prefix), *warehouse);
                }
            }
        });
        found
    }
}

/// Writes a trace.
pub(super) fn save(trace: &LockTrace, file: &Path) -> Result<(), Failure> {
    let bytes = trace
        .encode()
        .map_err(|error| Failure::Check(error.to_string()))?;
    let doing = format!("writing {}", file.display());
    std::fs::write(file, bytes).map_err(|error| Failure::doing(&doing, error))
}

/// Reads a trace.
pub(super) fn load(file: &Path) -> Result<LockTrace, Failure> {
    let doing = format!("reading {}", file.display());
    let length = std::fs::metadata(file)
        .map_err(|error| Failure::doing(&doing, error))?
        .len();
    if length > FILE_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{} is larger than a lock trace can be",
            file.display()
        )));
    }
    let bytes = std::fs::read(file).map_err(|error| Failure::doing(&doing, error))?;
    LockTrace::decode(&bytes).map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))
}

/// A replay and what it is called.
pub(super) struct Case {
    name: String,
    trace: Arc<LockTrace>,
    replay: Replay,
    /// On the disk, or in memory as the document's.
    is_durable: bool,
    rounds: Vec<Replayed>,
}

/// Every combination of warehouses and ranks, at both levels; and the synthetic workload. Whatever is out of
/// range is an error before anything runs.
pub(super) fn cases(
    arguments: &LocksArguments,
    trace: LockTrace,
    time: Duration,
) -> Result<Vec<Case>, Failure> {
    let trace = Arc::new(trace);
    let mut cases = Vec::new();
    let warehouses = match arguments.warehouses.as_slice() {
        [] => vec![trace.warehouses],
        asked => asked.to_vec(),
    };
    for warehouses in warehouses {
        for servers in &arguments.servers {
            for agents in &arguments.agents {
                for isolation in Isolation::ALL {
                    let (servers, agents) = (*servers, *agents);
                    let replay = Replay {
                        servers,
                        agents,
                        warehouses,
                        isolation,
                        together: arguments.together,
                        time,
                    };
                    let level = isolation.name();
                    let ranks = format!("warehouses={warehouses} servers={servers} agents={agents}");
                    cases.push(Case::new(&format!("tpcc {level} {ranks}"), &trace, replay, false));
                }
            }
        }
    }
    for case in &cases {
        case.check()?;
    }
    Ok(cases)
}

/// Ten locks, of which a share is at the other server (figure 5.7), in memory; and one of them on the disk.
pub(super) fn synthetic_cases(time: Duration, percents: &[u32]) -> Vec<Case> {
    let mut cases = Vec::new();
    for percent in percents {
        let trace = Arc::new(LockTrace::synthetic(
            1,
            2,
            20_000,
            10,
            f64::from(*percent) / 100.0,
        ));
        let replay = Replay {
            servers: 2,
            agents: 1,
            warehouses: 2,
            isolation: Isolation::Serializable,
            together: 1,
            time,
        };
        cases.push(Case::new(
            &format!("synthetic remote={percent}%"),
            &trace,
            replay,
            false,
        ));
        if *percent == 10 {
            let name = format!("synthetic remote={percent}% on disk");
            cases.push(Case::new(&name, &trace, replay, true));
        }
    }
    cases
}

impl Case {
    fn new(name: &str, trace: &Arc<LockTrace>, replay: Replay, is_durable: bool) -> Case {
        Case {
            name: name.to_owned(),
            trace: Arc::clone(trace),
            replay,
            is_durable,
            rounds: Vec::new(),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let checked = self.replay.check(&self.trace);
        checked.map_err(|error| Failure::Usage(format!("{}: {error}", self.name)))
    }

    /// One round.
    pub(super) fn run(&mut self, dir: &Path) -> Result<(), Failure> {
        let disk: Arc<dyn Disk> = match self.is_durable {
            true => Arc::new(RealDisk),
            false => Arc::new(SimDisk::new(1)),
        };
        let dir = dir.join(self.name.replace(' ', "-"));
        let replayed = self.replay.run(&self.trace, &disk, &dir);
        self.rounds
            .push(replayed.map_err(|error| Failure::doing(&self.name, error))?);
        Ok(())
    }

    /// Medians of all rounds.
    pub(super) fn records(&self, config: &str, parts: &[Parts]) -> Vec<Record> {
        let of = |value: &dyn Fn(&Replayed) -> f64| median(self.rounds.iter().map(value).collect());
        let record =
            |metric: &str, value, unit| Record::new("locks", &self.name, config, metric, value, unit);
        let isolation = self.replay.isolation;
        let [serializable, read_committed] = DOCUMENT_LOCKS_EACH;
        let document = match isolation {
            Isolation::Serializable => serializable,
            Isolation::ReadCommitted => read_committed,
        };
        let is_tpcc = self.name.starts_with("tpcc");
        let each = self.trace.locks_each(isolation);
        let trip = median(parts.iter().map(|parts| parts.round_trip_ns[0]).collect());
        let servers = f64::from(self.replay.servers);
        let locks = of(&|one| one.agents.locks as f64 / one.seconds.max(1e-9) / servers);
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        let mut all = vec![
            record("locks a transaction", each, "")
                .versus(is_tpcc.then_some(("the document's trace", document))),
            record("remote locks", self.trace.remote_share(isolation), "1"),
            record(
                "transactions",
                of(&|one| one.committed as f64 / one.seconds.max(1e-9)),
                "1/s",
            ),
            record("locks of a server", locks, "1/s").versus(Some(("the document's server", DOCUMENT_LOCKS))),
            record(
                "lock mean",
                of(&|one| mean(one.agents.lock_ns, one.agents.locks)),
                "ns",
            ),
            record(
                "vote mean",
                of(&|one| mean(one.agents.vote_ns, one.agents.committed[2])),
                "ns",
            ),
            record("aborted", of(&|one| one.agents.aborted as f64), ""),
            record("circles", of(&|one| one.servers.circles as f64), ""),
        ];
        type Percentiles = fn(&Replayed) -> [f64; 3];
        let latencies: [(&str, Percentiles); 3] = [
            ("lock", |one| one.lock_ns),
            ("commit", |one| one.commit_ns),
            ("transaction", |one| one.txn_ns),
        ];
        for (what, percentiles) in latencies {
            for (at, name) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
                let value = of(&|one| percentiles(one).get(at).copied().unwrap_or(0.0));
                let beside = (what == "lock" && at == 0).then_some(("mailbox round trip", trip));
                all.push(record(&format!("{what} {name}"), value, "ns").versus(beside));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the specification says of remote rows, and that every lock of one warehouse is known to be its.
    #[test]
    fn a_trace_of_tpcc_has_the_locks_of_tpcc() {
        let trace = record(20, 4_000).unwrap();
        assert_eq!(trace.transactions.len(), 4_000);
        let again = LockTrace::decode(&trace.encode().unwrap()).unwrap();
        assert_eq!(again, trace);
        let [serializable, read_committed] = Isolation::ALL.map(|level| trace.locks_each(level));
        println!("{serializable} {read_committed}");
        assert!(serializable > 1.3 * read_committed && read_committed > 10.0);
        let share = trace.remote_share(Isolation::Serializable);
        assert!(share > 0.001 && share < 0.05, "{share}");
        // 15 % of payments are by customers of another warehouse.
        let payments = trace.transactions.iter().filter(|one| one.kind == 1);
        let (mut remote, mut all) = (0, 0);
        for one in payments {
            let is_remote = |lock: &TracedLock| lock.warehouse.is_some_and(|other| other != one.home);
            remote += u32::from(one.locks[0].iter().any(is_remote));
            all += 1;
        }
        let share = f64::from(remote) / f64::from(all);
        assert!((share - 0.15).abs() < 0.03, "{share}");
        // Order status and stock level write nothing, so lock nothing at read committed.
        for one in &trace.transactions {
            assert_eq!(one.kind == 2 || one.kind == 4, one.locks[1].is_empty());
        }
    }
}
