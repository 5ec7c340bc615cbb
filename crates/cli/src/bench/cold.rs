//! `weft bench cold`: YCSB over data that is several times larger than memory.
//!
//! ```text
//!   weft                the memory is a part of the data; rows of declared keys are read before their order
//!   read by the batch   the same memory; batches read what they need, and all others wait
//!   all in memory       no bound: what rows on disk cost
//!   rocksdb             the same memory, for blocks and memtables (built with the feature `peers`)
//! ```
//!
//! All take turns. Reads go through the page cache in every contender, and nobody waits for a sync. With
//! `--read-delay-us` each read of a file with rows waits so long first, as on a device: then RocksDB, whose
//! reads cannot be delayed so, does not run. With `--hot-share` a hot set, one row in [`HOT_PART`], which
//! fits into memory, gets that share of accesses; the others are uniform over all rows.
//!
//! Source: Hobbes 5.2.3 (storage stalls); X-DB, storage layout and tiers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weft_base::{DelayedCall, DelayedDisk, Disk, RealDisk};
use weft_workload::driver::{self, Contender};
use weft_workload::embedded::programs::YcsbPrograms;
use weft_workload::embedded::{OneShot, load};
use weft_workload::ycsb::{Mix, ReadOf, ScanLength, Skew, YcsbShape, YcsbSource, YcsbTransaction};
use weft_workload::{Record, report};

use super::{BenchDatabase, bar, print};
use crate::arguments::ColdArguments;
use crate::failure::Failure;

/// The hot set is one part of all rows in so many, so that it fits beside the indexes of all.
const HOT_PART: u64 = 50;
/// The contender that has everything in memory.
const RESIDENT: &str = "all in memory";

/// Loads, measures, checks, prints.
pub(crate) fn run(arguments: &ColdArguments) -> Result<(), Failure> {
    check(arguments)?;
    let letter = &arguments.workload;
    let mix = Mix::from_letter(letter).filter(|mix| matches!(mix, Mix::A | Mix::B | Mix::C));
    let mix = mix.ok_or_else(|| Failure::Usage(format!("cold has no workload {letter:?}: a, b, c")))?;
    let shape = YcsbShape {
        records: arguments.records,
        fields: arguments.fields,
        field_bytes: arguments.field_bytes,
        accesses: 1,
        read_of: ReadOf::Row,
        scan: ScanLength::UpTo(1),
    };
    let memory_bytes = memory_bytes(arguments);
    let delay = Duration::from_micros(arguments.read_delay_us);
    let databases = [
        Contestant::open(arguments, "weft", shape, mix, |engine| {
            engine.memory_bytes = memory_bytes;
        })?,
        Contestant::open(arguments, "read by the batch", shape, mix, |engine| {
            engine.memory_bytes = memory_bytes;
            engine.read_before_order = false;
        })?,
        Contestant::open(arguments, RESIDENT, shape, mix, |engine| engine.memory_bytes = 0)?,
    ];
    let peer = match delay.is_zero() {
        true => super::cold_peer::open(&arguments.load, &shape, memory_bytes)?,
        false => None,
    };
    for skew in skews(arguments) {
        for &clients in &arguments.load.clients {
            measure(
                arguments,
                &databases,
                peer.as_deref(),
                (shape, mix),
                skew,
                clients,
            )?;
        }
    }
    databases.iter().try_for_each(Contestant::check)
}

fn check(arguments: &ColdArguments) -> Result<(), Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    if !arguments.load.protocol.is_empty() {
        return usage("cold is for the product: --protocol is not available");
    }
    if arguments.load.durable {
        return usage("cold compares without syncs: --durable is not available");
    }
    if !(1..=100).contains(&arguments.fields) || !(1..=1 << 16).contains(&arguments.field_bytes) {
        return usage("--fields must be between 1 and 100, --field-bytes between 1 and 65536");
    }
    if !(0.0..=5.0).contains(&arguments.theta) {
        return usage("--theta must be between 0 and 5");
    }
    if arguments
        .hot_share
        .iter()
        .any(|share| !(0.0..=1.0).contains(share))
    {
        return usage("--hot-share must be between 0 and 1");
    }
    Ok(())
}

/// What rows, indexes, and a peer's blocks and memtables, may take.
fn memory_bytes(arguments: &ColdArguments) -> u64 {
    let data = arguments.records * (arguments.fields * arguments.field_bytes) as u64;
    (data / arguments.memory_part).max(1)
}

fn skews(arguments: &ColdArguments) -> Vec<Skew> {
    let hot = |share: &f64| Skew::Hot {
        keys: (arguments.records / HOT_PART).max(1),
        share_permille: (share * 1000.0).round() as u64,
    };
    match arguments.hot_share.as_slice() {
        [] => vec![Skew::Zipf(arguments.theta)],
        shares => shares.iter().map(hot).collect(),
    }
}

/// A database, its programs and its name.
struct Contestant {
    bench: BenchDatabase,
    programs: YcsbPrograms,
    name: &'static str,
}

impl Contestant {
    fn open(
        arguments: &ColdArguments,
        name: &'static str,
        shape: YcsbShape,
        mix: Mix,
        set: impl FnOnce(&mut weft_txn::EngineConfig),
    ) -> Result<Self, Failure> {
        let mut options = arguments.load.options();
        set(&mut options.engine);
        let delay = Duration::from_micros(arguments.read_delay_us);
        let disk: Arc<dyn Disk> = match delay.is_zero() {
            true => Arc::new(RealDisk),
            false => Arc::new(DelayedDisk::new(Arc::new(RealDisk), move |call, path| {
                if call == DelayedCall::Read && path.extension().is_some_and(|extension| extension == "sst") {
                    thread::sleep(delay);
                }
            })),
        };
        let loading = bar(shape.records, name);
        let load_arguments = arguments.load.within(name);
        let bench = BenchDatabase::open_loaded(&load_arguments, "cold", options, disk, |database| {
            Ok(load::load_ycsb(database, &shape, |rows| {
                loading.set_position(rows)
            })?)
        })?;
        loading.finish_and_clear();
        // Or its first rounds would read from the device what others have written through the page cache.
        let filled = bench.dir.fill_page_cache();
        filled.map_err(|error| Failure::doing("reading the files", error))?;
        let programs = YcsbPrograms::compile(&bench.database, &shape, mix)?;
        Ok(Contestant {
            bench,
            programs,
            name,
        })
    }

    fn contender(&self) -> OneShot<'_, YcsbPrograms> {
        OneShot {
            database: &self.bench.database,
            programs: &self.programs,
            commit: weft_workload::embedded::Commit::Executed,
            name: self.name,
        }
    }

    /// What its rows and indexes take, and where its rows are.
    fn records(&self, case: &str, config: &str, records: u64) -> Vec<Record> {
        let store = self.bench.database.engine().store();
        let (rows, index_bytes) = (store.row_memory(), store.index_bytes());
        let all = rows.kept_bytes + rows.left_bytes + index_bytes + store.read_bytes();
        let record = |metric, value: f64, unit| Record::new("cold", case, config, metric, value, unit);
        vec![
            record("memory", all as f64, "bytes"),
            record("index_memory", index_bytes as f64 / records as f64, "bytes/row"),
            record("cold_rows", rows.cold_rows as f64 / records as f64, "1"),
        ]
    }

    /// All rows, wherever they are, are what the batches made of them.
    fn check(&self) -> Result<(), Failure> {
        let store = self.bench.database.engine().store();
        let snapshot = store.snapshot();
        let found = store.verify_digest(&snapshot);
        let found = found.map_err(|error| Failure::Check(format!("{}: {error}", self.name)))?;
        match found == snapshot.digest() {
            true => Ok(()),
            false => Err(Failure::Check(format!("{}: rows and digest differ", self.name))),
        }
    }
}

fn measure(
    arguments: &ColdArguments,
    databases: &[Contestant],
    peer: Option<&dyn Contender<YcsbTransaction>>,
    (shape, mix): (YcsbShape, Mix),
    skew: Skew,
    clients: usize,
) -> Result<(), Failure> {
    let ours: Vec<OneShot<'_, YcsbPrograms>> = databases.iter().map(Contestant::contender).collect();
    let mut contenders: Vec<&dyn Contender<YcsbTransaction>> = Vec::new();
    contenders.extend(ours.iter().map(|ours| ours as &dyn Contender<YcsbTransaction>));
    contenders.extend(peer);
    let load = arguments.load.load(clients);
    let running = bar((arguments.load.rounds * contenders.len()) as u64, "cold");
    let source = |seed| {
        let mut source = YcsbSource::one_of(shape, mix, skew, seed, 0, 1);
        move || source.transaction()
    };
    let rounds = arguments.load.rounds;
    let measured = driver::alternate(&contenders, rounds, &load, source, |name, round| {
        running.inc(1);
        running.set_message(format!("{name}: {:.0}/s", round.throughput()));
    })?;
    running.finish_and_clear();
    let case = match skew {
        Skew::Zipf(theta) => format!("{} theta={theta}", mix.letter()),
        Skew::Hot { share_permille, .. } => {
            format!("{} hot_share={}", mix.letter(), share_permille as f64 / 1000.0)
        }
    };
    let config = format!(
        "records={} fields={} field_bytes={} memory_bytes={} read_delay_us={}{} {}",
        shape.records,
        shape.fields,
        shape.field_bytes,
        memory_bytes(arguments),
        arguments.read_delay_us,
        super::cold_peer::SETTINGS,
        arguments.load.config(clients)
    );
    let label = format!("{case} {clients} client(s)");
    let baseline = peer.map_or(RESIDENT, Contender::name);
    let mut records = report::records("cold", &label, &config, &measured, baseline);
    for (ours, measured) in databases.iter().zip(&measured) {
        let case = format!("{label} {}", ours.name);
        let reads = measured.counter("thawed_rows") / (measured.committed_in_all() as f64).max(1.0);
        records.push(Record::new(
            "cold",
            &case,
            &config,
            "rows_from_disk",
            reads,
            "1/transaction",
        ));
        records.extend(ours.records(&case, &config, shape.records));
    }
    print(arguments.load.json, &format!("cold, {config}"), &records)
}
