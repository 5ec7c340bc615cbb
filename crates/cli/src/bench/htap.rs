//! `weft bench htap`: TPC-C alone, beside analytics back to back, and the analytics alone.
//!
//! ```text
//!   alone               TPC-C, no analytics
//!   queries give way    as sessions have it by default (`weft.query_priority`)
//!   queries do not      the same queries on ordinary threads
//!   a snapshot is kept  no queries: a session takes a snapshot, sleeps for 250 ms, takes another
//!   queries alone       no transactions
//! ```
//!
//! All take turns on one database, which was loaded, closed and opened again, and grows meanwhile for all of
//! them. What counts is the share of
//! throughput that transactions keep, what happens to their latencies, and what is left of the queries'
//! rate. Tables begin without columns beside the rows; the first rounds make them.
//!
//! With `--scan-threads` threads that scan packed codes outside of the database take the place of
//! queries: DBA's figures 1, 6 and 7, where data and processes are apart, so that only processors, caches
//! and bandwidth are shared.

use std::sync::Arc;
use std::time::Duration;

use weft::Database;
use weft_base::RealDisk;
use weft_column::packed::Form;
use weft_workload::driver::{self, Contender, Measured};
use weft_workload::embedded::beside::{Analysts, Background, Beside, Holders, Idle, Nothing, Priority};
use weft_workload::embedded::product::{Drawn, Product, Requests, TAPE_TRANSACTIONS};
use weft_workload::scans::{PackedColumn, Scanners};
use weft_workload::stream::{StreamSeed, Workload};
use weft_workload::tpcc::{Tpcc, TpccShape};
use weft_workload::{Record, report};

use super::{BenchDatabase, WARMUP_SHARE, bar, print, tpcc};
use crate::arguments::HtapArguments;
use crate::failure::Failure;

const ALONE: &str = "alone";
/// Ends the name of a contender without transactions.
const NO_TRANSACTIONS: &str = " alone";
/// How long a snapshot is kept by a session that does nothing else: about as long as a query takes.
const SNAPSHOT_TIME: Duration = Duration::from_millis(250);
/// Bits of the codes that scanners scan.
const SCAN_BITS: u32 = 10;

/// Loads, measures, checks the consistency conditions, prints.
pub(crate) fn run(arguments: &HtapArguments) -> Result<(), Failure> {
    if !arguments.load.protocol.is_empty() {
        let message = "htap is for the product: --protocol is not available";
        return Err(Failure::Usage(message.to_owned()));
    }
    if arguments
        .scan_threads
        .iter()
        .any(|threads| !(1..=1024).contains(threads))
    {
        return Err(Failure::Usage(
            "--scan-threads must be between 1 and 1024".to_owned(),
        ));
    }
    let shape = TpccShape {
        warehouses: arguments.warehouses,
        items: arguments.items,
        customers: arguments.customers_per_district,
    };
    let (mix, mix_name) = tpcc::mix(arguments.mix);
    let load = |database: &Database| {
        let loading = bar(shape.warehouses * shape.items, "loading");
        Tpcc::load(database, shape, mix, |table, rows| {
            loading.set_message(table);
            loading.set_position(rows);
        })?;
        loading.finish_and_clear();
        Ok(())
    };
    let mut options = arguments.load.options();
    options.engine.checkpoint_every_bytes = arguments.checkpoint_mb << 20;
    let bench = BenchDatabase::open_loaded(&arguments.load, "htap", options, Arc::new(RealDisk), load)?;
    let workload = Tpcc::compile(&bench.database.engine().catalog(), shape, mix)?;
    let background = background(arguments, &bench)?;
    for &clients in &arguments.load.clients {
        measure(arguments, &bench, (&workload, mix_name), clients, &background)?;
        let store = bench.database.engine().store();
        let held = workload.check(store, 0).map_err(Failure::Check)?;
        for line in held {
            eprintln!("htap: {line}");
        }
    }
    Ok(())
}

/// What runs beside transactions in one case.
struct Case {
    name: String,
    work: Arc<dyn Background>,
    threads: usize,
    /// Whether it is measured without transactions, too.
    alone: bool,
}

fn background(arguments: &HtapArguments, bench: &BenchDatabase) -> Result<Vec<Case>, Failure> {
    if arguments.scan_threads.is_empty() {
        let case = |name: &str, priority| Case {
            name: format!("queries {name}"),
            work: Arc::new(Analysts {
                database: bench.database.clone(),
                priority,
            }),
            threads: usize::try_from(arguments.analysts).unwrap_or(usize::MAX),
            alone: priority == Priority::Auto,
        };
        return Ok(vec![
            case("give way", Priority::Auto),
            case("do not", Priority::Normal),
            Case {
                name: "a snapshot is kept".to_owned(),
                work: Arc::new(Holders {
                    database: bench.database.clone(),
                    time: SNAPSHOT_TIME,
                }),
                threads: 1,
                alone: false,
            },
        ]);
    }
    let values = usize::try_from(arguments.scan_values).unwrap_or(usize::MAX);
    let column = Arc::new(PackedColumn::random(SCAN_BITS, values)?);
    let mut cases = Vec::new();
    for &threads in &arguments.scan_threads {
        for form in Form::here() {
            for gives_way in [false, true] {
                let way = if gives_way { ", giving way" } else { "" };
                cases.push(Case {
                    name: format!("{threads} scan(s) {}{way}", form.name()),
                    work: Arc::new(Scanners {
                        column: Arc::clone(&column),
                        form,
                        gives_way,
                    }),
                    threads,
                    alone: !gives_way,
                });
            }
        }
    }
    Ok(cases)
}

fn measure(
    arguments: &HtapArguments,
    bench: &BenchDatabase,
    (workload, mix): (&Tpcc, &str),
    clients: usize,
    cases: &[Case],
) -> Result<(), Failure> {
    let database = &bench.database;
    let product = || Product::new(database, arguments.load.commit());
    let alone = Beside::new(ALONE, product(), database, Arc::new(Nothing), 0);
    let mut contenders: Vec<Box<dyn Contender<Drawn> + '_>> = vec![Box::new(alone)];
    for case in cases {
        let name = case.name.clone();
        let beside = Beside::new(name, product(), database, Arc::clone(&case.work), case.threads);
        contenders.push(Box::new(beside));
        if case.alone {
            let name = format!("{}{NO_TRANSACTIONS}", case.name);
            let alone = Beside::new(name, Idle, database, Arc::clone(&case.work), case.threads);
            contenders.push(Box::new(alone));
        }
    }
    let contenders: Vec<&dyn Contender<Drawn>> = contenders.iter().map(Box::as_ref).collect();
    let load = arguments.load.load(clients);
    let running = bar((arguments.load.rounds * contenders.len()) as u64, "htap");
    let source = |seed: u64| {
        let seed = StreamSeed {
            seed: seed >> 32,
            number: seed & u64::from(u32::MAX),
            count: clients as u64,
        };
        let mut requests = Requests::new(workload, seed, TAPE_TRANSACTIONS);
        move || requests.draw()
    };
    let measured = driver::alternate(
        &contenders,
        arguments.load.rounds,
        &load,
        source,
        |name, round| {
            running.inc(1);
            running.set_message(format!("{name}: {:.0}/s", round.throughput()));
        },
    )?;
    running.finish_and_clear();
    let config = format!(
        "mix={mix} warehouses={} items={} customers={} analysts={} scan_values={} checkpoint_mb={} {}",
        arguments.warehouses,
        arguments.items,
        arguments.customers_per_district,
        arguments.analysts,
        arguments.scan_values,
        arguments.checkpoint_mb,
        arguments.load.config(clients)
    );
    let label = format!("{clients} client(s)");
    let (nothing, transactions): (Vec<Measured>, Vec<Measured>) = measured
        .into_iter()
        .partition(|measured| measured.name.ends_with(NO_TRANSACTIONS));
    let mut records = report::records("htap", &label, &config, &transactions, ALONE);
    for measured in &transactions {
        // That of the same work, or of the same that does not give way.
        let name = measured.name.trim_end_matches(", giving way");
        let of_same = |alone: &&Measured| alone.name.strip_suffix(NO_TRANSACTIONS) == Some(name);
        let base = nothing.iter().find(of_same).or(nothing.first());
        records.extend(of_background(measured, &label, &config, base));
    }
    for measured in &nothing {
        records.extend(of_background(measured, &label, &config, None));
    }
    print(arguments.load.json, &format!("htap, {config}"), &records)
}

/// A round's time with its warm-up.
fn seconds(measured: &Measured) -> f64 {
    let elapsed = measured.rounds.iter().map(|round| round.elapsed.as_secs_f64());
    elapsed.sum::<f64>() * (1.0 + WARMUP_SHARE)
}

fn rate(measured: &Measured) -> f64 {
    measured.counter("steps") / seconds(measured).max(1e-9)
}

/// Rate and mean time of queries or scans, and where queries' rows came from; nothing if there were none.
fn of_background(measured: &Measured, label: &str, config: &str, base: Option<&Measured>) -> Vec<Record> {
    let steps = measured.counter("steps");
    if steps == 0.0 {
        return Vec::new();
    }
    let case = format!("{label} {}", measured.name);
    let record = |metric, value, unit| Record::new("htap", &case, config, metric, value, unit);
    let base = base.map(|base| (base.name.as_str(), rate(base)));
    let mut records = vec![
        record("background", rate(measured), "1/s").versus(base),
        record("background_mean", measured.counter("step_ns") / steps / 1e6, "ms"),
    ];
    let of_columns = measured.counter("rows_from_columns");
    let rows = of_columns + measured.counter("rows_from_slots");
    if rows > 0.0 {
        records.push(record("rows_from_columns", of_columns / rows, "1"));
    }
    records
}
