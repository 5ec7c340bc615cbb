//! `weft bench ycsb`: batches compared with two-phase locking, at each skew.
//!
//! There are two comparisons. One is through the whole engine, including log and sessions, with closed-loop
//! clients. The other is of concurrency control only (crate `protocols`): the same stream of programs over
//! the same store, without log and sequencer, with members run serially and interleaved, to separate the
//! effects of prefetching and concurrency control. It runs last, on a database that the engine no longer
//! writes.
//!
//! With `--protocol` (or a workload that inserts, a hot set, an open loop) the stream runs through the
//! named protocols instead (`run`).

use std::sync::Arc;

use weft_protocols::partitioned::Partitioned;
use weft_types::{Value, encode_key_value};
use weft_workload::driver::{self, Contender};
use weft_workload::embedded::programs::YcsbPrograms;
use weft_workload::embedded::ycsb::YcsbWorkload;
use weft_workload::embedded::{Interactive, OneShot, load};
use weft_workload::report;
use weft_workload::stream::Workload;
use weft_workload::ycsb::{
    self, Mix, ReadOf, Remoteness, ScanLength, Skew, YcsbShape, YcsbSource, YcsbTransaction,
};

use super::run::{RowsRead, RunCase, run_cases, run_cases_through};
use super::{BenchDatabase, bar, locks_only, print};
use crate::arguments::{YcsbArguments, YcsbPreset, YcsbRead};
use crate::failure::Failure;

/// The baseline of ratios.
const BASELINE: &str = "two-phase locking";
/// Default number of rows in the table.
const DEFAULT_RECORDS: u64 = 100_000;
/// Maximum number of streams of one case, over all its rounds and clients.
const GENERATIONS_OF_A_CASE: u64 = 1 << 16;
/// {serial, interleaved} x {locking, batch}. Ratios are to the first.
const ALONE: [&str; 4] = [
    "two-phase-locking",
    "two-phase-locking-interleaved",
    "batch-serial",
    "batch",
];

/// One workload at one skew.
struct Case<'a> {
    arguments: &'a YcsbArguments,
    bench: &'a BenchDatabase,
    programs: &'a YcsbPrograms,
    shape: YcsbShape,
    mix: Mix,
    theta: f64,
}

/// Loads, measures, prints.
pub(crate) fn run(arguments: &YcsbArguments) -> Result<(), Failure> {
    let mixes = mixes(arguments)?;
    let shape = shape(arguments)?;
    let hot = arguments.hot.hot_set()?;
    let bench = &BenchDatabase::open(&arguments.load, "ycsb")?;
    // With locks only, no row is read.
    let loaded = match arguments.locks_only {
        true => YcsbShape { records: 1, ..shape },
        false => shape,
    };
    let loading = bar(loaded.records, "loading rows");
    load::load_ycsb(&bench.database, &loaded, |rows| loading.set_position(rows))?;
    loading.finish_and_clear();
    // The comparison without --protocol supports neither inserts nor hot sets, partitions, nor an open
    // loop.
    let plain = hot.is_none() && arguments.load.rate.is_none() && arguments.remote_share.is_none();
    let plain = plain && !arguments.locks_only;
    if arguments.load.protocol.is_empty() && plain && mixes.iter().all(|mix| mix.insert_percent() == 0) {
        return compare(arguments, bench, shape, &mixes);
    }
    let skews: Vec<Skew> = match hot {
        Some((keys, share_permille)) => vec![Skew::Hot { keys, share_permille }],
        None => arguments.theta.iter().map(|theta| Skew::Zipf(*theta)).collect(),
    };
    run_mixes(arguments, bench, shape, &mixes, &skews, None)
}

/// Runs every mix at every skew through the given or the requested protocols.
fn run_mixes(
    arguments: &YcsbArguments,
    bench: &BenchDatabase,
    shape: YcsbShape,
    mixes: &[Mix],
    skews: &[Skew],
    protocols: Option<&[&str]>,
) -> Result<(), Failure> {
    let (mut generation, mut workloads) = (0, Vec::new());
    let remoteness = remoteness(arguments, &shape, bench)?;
    for mix in mixes {
        for skew in skews {
            // No two cases insert the same keys.
            let workload = YcsbWorkload::new(&bench.database, shape, *mix, *skew, generation)?
                .placed(remoteness.clone());
            generation += GENERATIONS_OF_A_CASE;
            let case = match skew {
                Skew::Zipf(theta) => format!("{} theta={theta}", mix.letter()),
                Skew::Hot { keys, share_permille } => {
                    format!("{} hot={keys}/{share_permille}", mix.letter())
                }
            };
            workloads.push((case, workload));
        }
    }
    if arguments.locks_only {
        let cases: Vec<(String, &dyn Workload)> = workloads
            .iter()
            .map(|(case, workload)| (case.clone(), workload as &dyn Workload))
            .collect();
        return locks_only::run(&arguments.load, bench, &cases, &sizes(&shape));
    }
    let cases: Vec<RunCase<'_>> = workloads
        .iter()
        .map(|(case, workload)| RunCase {
            name: case.clone(),
            config: match arguments.remote_share {
                Some(share) => format!("{} remote_share={share}", sizes(&shape)),
                None => sizes(&shape),
            },
            workload,
            rows_read: rows_read(&shape, workload.mix()),
        })
        .collect();
    match protocols {
        Some(protocols) => run_cases_through(&arguments.load, bench, &cases, protocols),
        None => run_cases(&arguments.load, bench, &cases),
    }
}

/// Batches compared with interactive two-phase locking, and both protocols in isolation.
fn compare(
    arguments: &YcsbArguments,
    bench: &BenchDatabase,
    shape: YcsbShape,
    mixes: &[Mix],
) -> Result<(), Failure> {
    let compile = |mix: &Mix| YcsbPrograms::compile(&bench.database, &shape, *mix).map(|p| (*mix, p));
    let compiled = mixes.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
    for (mix, programs) in &compiled {
        for theta in &arguments.theta {
            let case = Case {
                arguments,
                bench,
                programs,
                shape,
                mix: *mix,
                theta: *theta,
            };
            for &clients in &arguments.load.clients {
                case.through_engine(clients)?;
            }
        }
    }
    let skews: Vec<Skew> = arguments.theta.iter().map(|theta| Skew::Zipf(*theta)).collect();
    run_mixes(arguments, bench, shape, mixes, &skews, Some(&ALONE))
}

fn mixes(arguments: &YcsbArguments) -> Result<Vec<Mix>, Failure> {
    let mix = |letter: &String| {
        Mix::from_letter(letter)
            .ok_or_else(|| Failure::Usage(format!("there is no workload {letter:?}: a to f")))
    };
    arguments.workload.iter().map(mix).collect()
}

fn shape(arguments: &YcsbArguments) -> Result<YcsbShape, Failure> {
    let usage = |message: &str| Err(Failure::Usage(message.to_owned()));
    let base = match arguments.preset {
        Some(YcsbPreset::Hobbes) => YcsbShape::hobbes(DEFAULT_RECORDS),
        Some(YcsbPreset::Bionicdb) => YcsbShape::bionicdb(arguments.load.workers() as u64),
        None => YcsbShape {
            fields: 10,
            field_bytes: 50,
            read_of: ReadOf::Row,
            ..YcsbShape::hobbes(DEFAULT_RECORDS)
        },
    };
    let fields = arguments.fields.unwrap_or(base.fields);
    let field_bytes = match arguments.record_bytes {
        Some(bytes) => bytes / fields.max(1),
        None => arguments.field_bytes.unwrap_or(base.field_bytes),
    };
    let shape = YcsbShape {
        records: arguments.records.unwrap_or(base.records),
        fields,
        field_bytes,
        accesses: arguments.accesses.unwrap_or(base.accesses),
        read_of: match arguments.read {
            Some(YcsbRead::Row) => ReadOf::Row,
            Some(YcsbRead::Field) => ReadOf::Field,
            Some(YcsbRead::Nothing) => ReadOf::Nothing,
            None => base.read_of,
        },
        scan: match (arguments.scan_up_to, arguments.scan_exactly) {
            (_, Some(rows)) => ScanLength::Exactly(rows),
            (Some(rows), None) => ScanLength::UpTo(rows),
            (None, None) => base.scan,
        },
    };
    if !(1..=100).contains(&shape.fields) || shape.field_bytes > 1 << 20 {
        return usage("--fields must be between 1 and 100, a field at most 1 MiB");
    }
    if !(1..=16).contains(&shape.accesses) || shape.accesses as u64 > shape.records {
        return usage("--accesses must be between 1 and 16, and not more than --records");
    }
    if arguments.theta.iter().any(|theta| !(0.0..=5.0).contains(theta)) {
        return usage("--theta must be between 0 and 5");
    }
    Ok(shape)
}

/// The placement of rows, if a remote share was requested: on the workers of protocol `partitioned`.
fn remoteness(
    arguments: &YcsbArguments,
    shape: &YcsbShape,
    bench: &BenchDatabase,
) -> Result<Option<Remoteness>, Failure> {
    let Some(share) = arguments.remote_share else {
        return Ok(None);
    };
    if !(0.0..=1.0).contains(&share) {
        return Err(Failure::Usage(
            "--remote-share must be between 0 and 1".to_owned(),
        ));
    }
    let catalog = bench.database.engine().store().catalog();
    let table = catalog.table(ycsb::TABLE).map(|def| def.id);
    let table = table.ok_or_else(|| Failure::Check("the table is gone".to_owned()))?;
    let (protocol, workers) = (Partitioned::default(), arguments.load.workers());
    let owner_of = move |key: u64| {
        let mut encoded = Vec::with_capacity(16);
        encode_key_value(&mut encoded, &Value::Int8(key as i64));
        protocol.owner(table, &encoded, workers)
    };
    let share_permille = (share * 1000.0).round() as u64;
    Remoteness::new(shape, Arc::new(owner_of), workers, share_permille)
        .map(Some)
        .map_err(|error| Failure::Usage(format!("--remote-share: {error}; more --records are needed")))
}

/// The rows read per transaction. A scan counts as one probe per row.
fn rows_read(shape: &YcsbShape, mix: Mix) -> Option<RowsRead> {
    let row_bytes = shape.fields * shape.field_bytes;
    let read_bytes = match shape.read_of {
        ReadOf::Row => row_bytes,
        ReadOf::Field => shape.field_bytes,
        ReadOf::Nothing => 1,
    };
    let accesses = match (mix, shape.scan) {
        (Mix::E, ScanLength::UpTo(rows)) => (1 + rows) as f64 / 2.0,
        (Mix::E, ScanLength::Exactly(rows)) => rows as f64,
        _ => shape.accesses as f64,
    };
    (row_bytes > 0).then_some(RowsRead {
        records: shape.records,
        row_bytes,
        read_bytes,
        accesses,
    })
}

fn sizes(shape: &YcsbShape) -> String {
    let YcsbShape {
        records,
        fields,
        field_bytes,
        accesses,
        read_of,
        scan,
    } = shape;
    format!(
        "records={records} fields={fields} field_bytes={field_bytes} accesses={accesses} read={read_of:?} \
         scan={scan:?}"
    )
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{} theta={}", self.mix.letter(), self.theta)
    }

    fn config(&self, clients: usize) -> String {
        format!("{} {}", sizes(&self.shape), self.arguments.load.config(clients))
    }

    fn source(&self, seed: u64) -> YcsbSource {
        YcsbSource::new(self.shape, self.mix, self.theta, seed)
    }

    fn through_engine(&self, clients: usize) -> Result<(), Failure> {
        let (database, commit) = (&self.bench.database, self.arguments.load.commit());
        let batch = OneShot {
            database,
            programs: self.programs,
            commit,
            name: "batch",
        };
        let locking = Interactive {
            database,
            programs: self.programs,
            commit,
            name: BASELINE,
        };
        let contenders: [&dyn Contender<YcsbTransaction>; 2] = [&locking, &batch];
        let rounds = self.arguments.load.rounds;
        let running = bar(
            (rounds * contenders.len()) as u64,
            &format!("ycsb {}", self.name()),
        );
        let load = self.arguments.load.load(clients);
        let source = |seed| {
            let mut source = self.source(seed);
            move || source.transaction()
        };
        let measured = driver::alternate(&contenders, rounds, &load, source, |name, round| {
            running.inc(1);
            running.set_message(format!("{name}: {:.0}/s", round.throughput()));
        })?;
        running.finish_and_clear();
        let config = self.config(clients);
        let case = format!("{} {clients} client(s)", self.name());
        let records = report::records("ycsb", &case, &config, &measured, BASELINE);
        print(
            self.arguments.load.json,
            &format!("YCSB through the engine, {config}"),
            &records,
        )
    }
}
