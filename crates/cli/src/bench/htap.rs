//! `weft bench htap`: TPC-C alone, beside analytic queries back to back, and the queries alone.
//!
//! ```text
//!   alone               TPC-C, no queries
//!   queries give way    as sessions have it by default (`weft.query_priority`)
//!   queries do not      the same queries on ordinary threads
//!   queries alone       no transactions
//! ```
//!
//! All take turns on one database, which grows meanwhile for all of them. What counts is the share of throughput
//! that transactions keep, what happens to their latencies, and what is left of the queries' rate. Tables begin
//! without columns beside the rows; the first rounds make them.

use weft_workload::driver::{self, Contender, Measured};
use weft_workload::embedded::beside::{Beside, Idle, Priority};
use weft_workload::embedded::product::{Drawn, Product, Requests, TAPE_TRANSACTIONS};
use weft_workload::stream::{StreamSeed, Workload};
use weft_workload::tpcc::{Tpcc, TpccMix, TpccShape};
use weft_workload::{Record, report};

use super::{BenchDatabase, WARMUP_SHARE, bar, print};
use crate::arguments::HtapArguments;
use crate::failure::Failure;

const ALONE: &str = "alone";
const QUERIES_ALONE: &str = "queries alone";

/// Loads, measures, checks the consistency conditions, prints.
pub(crate) fn run(arguments: &HtapArguments) -> Result<(), Failure> {
    if !arguments.load.protocol.is_empty() {
        let message = "htap is for the product: --protocol is not available";
        return Err(Failure::Usage(message.to_owned()));
    }
    let shape = TpccShape {
        warehouses: arguments.warehouses,
        items: arguments.items,
        customers: arguments.customers_per_district,
    };
    let bench = BenchDatabase::open(&arguments.load, "htap")?;
    let loading = bar(shape.warehouses * shape.items, "loading");
    let workload = Tpcc::load(&bench.database, shape, TpccMix::Full, |table, rows| {
        loading.set_message(table);
        loading.set_position(rows);
    })?;
    loading.finish_and_clear();
    bench.database.checkpoint()?;
    for &clients in &arguments.load.clients {
        measure(arguments, &bench, &workload, clients)?;
        let store = bench.database.engine().store();
        let held = workload.check(store, 0).map_err(Failure::Check)?;
        for line in held {
            eprintln!("htap: {line}");
        }
    }
    Ok(())
}

fn measure(
    arguments: &HtapArguments,
    bench: &BenchDatabase,
    workload: &Tpcc,
    clients: usize,
) -> Result<(), Failure> {
    let database = &bench.database;
    let product = || Product::new(database, arguments.load.commit());
    let analysts = usize::try_from(arguments.analysts).unwrap_or(usize::MAX);
    let alone = Named(ALONE, product());
    let yielding = Beside::new("queries give way", product(), database, analysts, Priority::Auto);
    let ordinary = Beside::new("queries do not", product(), database, analysts, Priority::Normal);
    let queries = Beside::new(QUERIES_ALONE, Idle, database, analysts, Priority::Auto);
    let contenders: [&dyn Contender<Drawn>; 4] = [&alone, &yielding, &ordinary, &queries];
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
        "warehouses={} items={} customers={} analysts={} {}",
        arguments.warehouses,
        arguments.items,
        arguments.customers_per_district,
        arguments.analysts,
        arguments.load.config(clients)
    );
    let label = format!("{clients} client(s)");
    let (nothing, transactions): (Vec<Measured>, Vec<Measured>) = measured
        .into_iter()
        .partition(|measured| measured.name == QUERIES_ALONE);
    let mut records = report::records("htap", &label, &config, &transactions, ALONE);
    let base = nothing
        .first()
        .map(|measured| (QUERIES_ALONE, query_rate(measured)));
    for measured in nothing.iter().chain(&transactions) {
        records.extend(of_queries(measured, &label, &config, base));
    }
    print(arguments.load.json, &format!("htap, {config}"), &records)
}

/// A round's time with its warm-up.
fn seconds(measured: &Measured) -> f64 {
    let elapsed = measured.rounds.iter().map(|round| round.elapsed.as_secs_f64());
    elapsed.sum::<f64>() * (1.0 + WARMUP_SHARE)
}

fn query_rate(measured: &Measured) -> f64 {
    measured.counter("queries") / seconds(measured).max(1e-9)
}

/// Rate and mean time of queries, and where their rows came from; nothing if there were none.
fn of_queries(measured: &Measured, label: &str, config: &str, base: Option<(&str, f64)>) -> Vec<Record> {
    let queries = measured.counter("queries");
    if queries == 0.0 {
        return Vec::new();
    }
    let case = format!("{label} {}", measured.name);
    let of_columns = measured.counter("rows_from_columns");
    let rows = of_columns + measured.counter("rows_from_slots");
    let record = |metric, value, unit| Record::new("htap", &case, config, metric, value, unit);
    let base = base.filter(|(name, _)| *name != measured.name);
    vec![
        record("queries", query_rate(measured), "1/s").versus(base),
        record("query_mean", measured.counter("query_ns") / queries / 1e6, "ms"),
        record("rows_from_columns", of_columns / rows.max(1.0), "1"),
    ]
}

/// A contender under another name.
struct Named<'n, C>(&'n str, C);

impl<R, C: Contender<R>> Contender<R> for Named<'_, C> {
    fn name(&self) -> &str {
        self.0
    }

    fn client(&self) -> Result<Box<dyn driver::Client<R> + '_>, driver::RunError> {
        self.1.client()
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        self.1.counters()
    }
}
