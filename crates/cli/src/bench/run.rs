//! Runs workloads through the requested protocols, in turns, and checks the state after each turn.
//!
//! ```text
//! product        clients (closed or open loop) -> sequencer -> batches -> log
//! other          streams drawn beforehand -> crate protocols on the bare store
//! ```
//!
//! The product runs first, whatever the order on the command line: what runs on the bare store is not in
//! the log, so the engine must not write afterwards.

use std::time::Duration;

use weft_protocols::{Job, RunReport, is_protocol, protocol_names, run_by_name};
use weft_workload::driver::{self, Contender, Measured};
use weft_workload::embedded::product::{Drawn, Product, Requests, TAPE_TRANSACTIONS};
use weft_workload::open_loop::Bare;
use weft_workload::stream::{Rollbacks, Stream, StreamSeed, Workload};
use weft_workload::{Record, limits, report};

use super::{BenchDatabase, bar, print};
use crate::arguments::LoadArguments;
use crate::failure::Failure;

/// The name of the embedded engine among protocols.
const PRODUCT: &str = "product";

/// One workload to run.
pub(crate) struct RunCase<'w> {
    /// The name in records.
    pub name: String,
    /// Sizes, for records.
    pub config: String,
    /// The loaded and compiled workload.
    pub workload: &'w dyn Workload,
    /// The rows read per transaction, if a bare loop over memory can read the same.
    pub rows_read: Option<RowsRead>,
}

/// Rows that a transaction finds by key, and how much of each it reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowsRead {
    /// Number of rows in the table.
    pub records: u64,
    /// Size of a row in bytes.
    pub row_bytes: usize,
    /// Bytes read of each row.
    pub read_bytes: usize,
    /// Average number of rows per transaction.
    pub accesses: f64,
}

/// Number of transactions drawn to determine how many rows one declares.
const DECLARED_DRAWN: usize = 2_000;

impl RowsRead {
    /// For a workload whose transactions declare every row that they access by its key.
    pub fn declared(workload: &dyn Workload, records: u64, row_bytes: usize) -> Result<RowsRead, Failure> {
        let mut stream = workload.stream(StreamSeed {
            seed: 1,
            number: 0,
            count: 1,
        });
        let mut rows = 0;
        for _ in 0..DECLARED_DRAWN {
            rows += stream.draw()?.program.accesses.len();
        }
        Ok(RowsRead {
            records,
            row_bytes,
            read_bytes: row_bytes,
            accesses: rows as f64 / DECLARED_DRAWN as f64,
        })
    }
}

/// Probes per thread when measuring the limit.
const LIMIT_PROBES: usize = 1_000_000;

/// Transactions per second that would only do bare probes of the same rows on as many threads, measured
/// now. A workload's throughput is reported as a share of it.
fn limit(case: &RunCase<'_>, threads: usize) -> Result<Option<f64>, Failure> {
    let Some(rows) = case.rows_read else {
        return Ok(None);
    };
    let records = usize::try_from(rows.records).unwrap_or(usize::MAX);
    let rate = limits::probe_rate(records, rows.row_bytes, rows.read_bytes, LIMIT_PROBES, threads);
    let rate = rate.map_err(|e| Failure::doing("taking the limit", e))?;
    Ok(Some(rate / rows.accesses))
}

/// The baseline of ratios: a protocol and its throughput.
type Baseline = Option<(String, f64)>;

/// Runs every case through every requested protocol (by default the product), and prints the results.
pub(crate) fn run_cases(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    cases: &[RunCase<'_>],
) -> Result<(), Failure> {
    match arguments.protocol.as_slice() {
        [] => run_cases_through(arguments, bench, cases, &[PRODUCT]),
        asked => run_cases_through(arguments, bench, cases, asked),
    }
}

/// Runs every case through the named protocols, and prints the results.
pub(crate) fn run_cases_through(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    cases: &[RunCase<'_>],
    names: &[impl AsRef<str>],
) -> Result<(), Failure> {
    let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    for name in &names {
        if *name != PRODUCT && !is_protocol(name) {
            let known = protocol_names().join(", ");
            return Err(Failure::Usage(format!(
                "there is no protocol {name:?}: {PRODUCT}, {known}"
            )));
        }
    }
    let product = names.contains(&PRODUCT);
    names.retain(|name| *name != PRODUCT);
    if arguments.rate.is_some() && !names.is_empty() {
        let message = "--rate is for the product: the other protocols take a whole stream at once";
        return Err(Failure::Usage(message.to_owned()));
    }
    // Finishes work left over from loading before the clock starts.
    bench.database.checkpoint()?;
    let mut committed = 0;
    let mut baselines: Vec<Baseline> = vec![None; cases.len()];
    if product {
        for (case, baseline) in cases.iter().zip(&mut baselines) {
            for &clients in &arguments.clients {
                run_product(arguments, bench, case, clients, &mut committed, baseline)?;
                check(case, bench, PRODUCT, committed)?;
            }
        }
    }
    for (case, baseline) in cases.iter().zip(&mut baselines) {
        run_protocols(arguments, bench, case, &names, &mut committed, baseline)?;
    }
    Ok(())
}

/// Checks the state; prints what holds to stderr, and fails for what does not.
fn check(case: &RunCase<'_>, bench: &BenchDatabase, protocol: &str, committed: u64) -> Result<(), Failure> {
    let found = case.workload.check(bench.database.engine().store(), committed);
    let held = found.map_err(|what| Failure::Check(format!("after {protocol}: {what}")))?;
    for line in held {
        eprintln!("{} {}: {line}", case.workload.name(), protocol);
    }
    Ok(())
}

fn record(case: &RunCase<'_>, contender: &str, config: &str, metric: &str, unit: &str, value: f64) -> Record {
    let contender_case = format!("{} {contender}", case.name);
    Record::new(
        case.workload.name(),
        contender_case.trim(),
        config,
        metric,
        value,
        unit,
    )
}

fn run_product(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    case: &RunCase<'_>,
    clients: usize,
    committed: &mut u64,
    baseline: &mut Baseline,
) -> Result<(), Failure> {
    let contender = Product::new(&bench.database, arguments.commit());
    // In an open loop, the delays of an idle thread are measured as well.
    let both: [&dyn Contender<Drawn>; 2] = [&contender, &Bare];
    let contenders = if arguments.rate.is_some() {
        &both[..]
    } else {
        &both[..1]
    };
    let load = arguments.load(clients);
    let running = bar(
        (arguments.rounds * contenders.len()) as u64,
        &format!("{} {}", case.workload.name(), case.name),
    );
    let source = |seed: u64| {
        let seed = StreamSeed {
            seed: seed >> 32,
            number: seed & u64::from(u32::MAX),
            count: clients as u64,
        };
        let mut requests = Requests::new(case.workload, seed, TAPE_TRANSACTIONS);
        move || requests.draw()
    };
    let measured = driver::alternate(contenders, arguments.rounds, &load, source, |_, round| {
        running.inc(1);
        running.set_message(format!("{:.0}/s", round.throughput()));
    })?;
    running.finish_and_clear();
    *committed += measured.first().map_or(0, Measured::committed_in_all);
    let config = format!("{} {}", case.config, arguments.config(clients));
    let label = format!("{} {clients} client(s)", case.name);
    let mut records = report::records(case.workload.name(), &label, &config, &measured, PRODUCT);
    let contender_case = format!("{clients} client(s) {PRODUCT}");
    let rollbacks = measured.first().map_or(0.0, Measured::rollback_rate);
    records.push(record(
        case,
        &contender_case,
        &config,
        "rollback_rate",
        "1",
        rollbacks,
    ));
    let by_kind = contender.commits_by_kind();
    let all = by_kind.iter().sum::<u64>().max(1) as f64;
    for (kind, count) in case.workload.kinds().iter().zip(by_kind) {
        let metric = format!("share_{kind}");
        records.push(record(
            case,
            &contender_case,
            &config,
            &metric,
            "1",
            count as f64 / all,
        ));
    }
    let throughput = measured.first().map_or(0.0, Measured::throughput);
    let threads = clients.min(arguments.workers());
    if let Some(limit) = limit(case, threads)? {
        records.push(record(
            case,
            &contender_case,
            &config,
            "share_of_limit",
            "1",
            throughput / limit,
        ));
    }
    if baseline.is_none() {
        *baseline = Some((PRODUCT.to_owned(), throughput));
    }
    print(
        arguments.json,
        &format!("{}, {config}", case.workload.name()),
        &records,
    )
}

/// Runs a case through protocols, which take turns, and prints their results.
fn run_protocols(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    case: &RunCase<'_>,
    names: &[&str],
    committed: &mut u64,
    baseline: &mut Baseline,
) -> Result<(), Failure> {
    let turns = arguments.rounds * names.len();
    let running = bar(turns as u64, &format!("protocols {}", case.name));
    let mut rounds: Vec<Vec<RunReport>> = vec![Vec::new(); names.len()];
    for round in 0..arguments.rounds {
        for (name, rounds) in names.iter().zip(&mut rounds) {
            let sum = run_stream(arguments, bench, case, name, round as u64)?;
            *committed += sum.committed;
            check(case, bench, name, *committed)?;
            running.inc(1);
            running.set_message(format!("{name}: {:.0}/s", sum.throughput()));
            rounds.push(sum);
        }
    }
    running.finish_and_clear();
    let limit = limit(case, arguments.workers())?;
    for (name, rounds) in names.iter().zip(&rounds) {
        print_protocol(arguments, case, (*name, rounds), limit, baseline)?;
    }
    Ok(())
}

fn print_protocol(
    arguments: &LoadArguments,
    case: &RunCase<'_>,
    (name, rounds): (&str, &[RunReport]),
    limit: Option<f64>,
    baseline: &mut Baseline,
) -> Result<(), Failure> {
    let config = format!("{} jobs={} {}", case.config, arguments.jobs, arguments.config(0));
    let median = |of: fn(&RunReport) -> f64| driver::median(rounds.iter().map(of).collect());
    let share = |part: u64, whole: u64| part as f64 / (whole as f64).max(1.0);
    let sum = |of: fn(&RunReport) -> u64| rounds.iter().map(of).sum::<u64>();
    let (commits, failed) = (sum(|r| r.committed), sum(|r| r.failed));
    let throughput = record(
        case,
        name,
        &config,
        "throughput",
        "1/s",
        median(RunReport::throughput),
    );
    let first = throughput.value;
    let against = baseline.as_ref().map(|(name, value)| (name.as_str(), *value));
    let throughput = throughput.versus(against);
    baseline.get_or_insert_with(|| (name.to_owned(), first));
    let planning =
        |report: &RunReport| report.planning.as_secs_f64() / report.elapsed.as_secs_f64().max(1e-9);
    let planning_each =
        |report: &RunReport| report.planning.as_nanos() as f64 / (report.committed as f64).max(1.0);
    let members = |report: &RunReport| report.committed as f64 / (report.batches as f64).max(1.0);
    let deferrals = share(sum(|r| r.deferrals), commits);
    let mut records = vec![
        throughput,
        record(
            case,
            name,
            &config,
            "rollback_rate",
            "1",
            share(failed, commits + failed),
        ),
        record(
            case,
            name,
            &config,
            "abort_rate",
            "1",
            median(RunReport::abort_rate),
        ),
        record(case, name, &config, "deferral_rate", "1", deferrals),
        record(case, name, &config, "mean_batch", "members", median(members)),
    ];
    if rounds.iter().any(|report| report.accesses > 0) {
        let remote = median(|report| report.remote_share().unwrap_or_default());
        records.push(record(case, name, &config, "remote_share", "1", remote));
    }
    // Protocols that lock or validate during execution have no planning to report.
    if rounds.iter().any(|report| !report.planning.is_zero()) {
        for (metric, unit, value) in [
            ("planning_share", "1", median(planning)),
            ("planning_per_transaction", "ns", median(planning_each)),
        ] {
            records.push(record(case, name, &config, metric, unit, value));
        }
    }
    if let Some(limit) = limit {
        let share = median(RunReport::throughput) / limit;
        records.push(record(case, name, &config, "share_of_limit", "1", share));
    }
    print(
        arguments.json,
        &format!("{} without sequencer and log, {config}", case.workload.name()),
        &records,
    )
}

/// The next jobs of a stream, and how many of them will roll back.
pub(super) fn draw_jobs(stream: &mut dyn Stream, count: usize) -> Result<(Vec<Job>, u64), Failure> {
    let mut jobs = Vec::with_capacity(count);
    let mut rolling_back = 0;
    for _ in 0..count {
        let drawn = stream.draw()?;
        rolling_back += u64::from(drawn.rolls_back);
        jobs.push(Job {
            program: drawn.program,
            inputs: drawn.inputs,
        });
    }
    Ok((jobs, rolling_back))
}

/// One round: streams drawn beforehand, run one after another until the time is up.
fn run_stream(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    case: &RunCase<'_>,
    name: &str,
    seed: u64,
) -> Result<RunReport, Failure> {
    let time = Duration::from_secs_f64(arguments.seconds);
    let seed = StreamSeed {
        seed,
        number: 0,
        count: 1,
    };
    let mut stream = case.workload.stream(seed);
    let mut sum = RunReport::default();
    while sum.elapsed < time {
        let (jobs, rolling_back) = draw_jobs(&mut *stream, arguments.jobs)?;
        let store = bench.database.engine().store();
        let report = run_by_name(name, store, &jobs, arguments.workers())
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let expected = match case.workload.rollbacks() {
            Rollbacks::None => Some(0),
            Rollbacks::AsDrawn => Some(rolling_back),
            Rollbacks::DependOnData => None,
        };
        if expected.is_some_and(|expected| expected != report.failed) {
            return Err(Failure::Check(format!(
                "{name}: {} of {} transactions failed, {} were meant to",
                report.failed,
                jobs.len(),
                expected.unwrap_or(0)
            )));
        }
        sum.elapsed += report.elapsed;
        sum.planning += report.planning;
        sum.committed += report.committed;
        sum.failed += report.failed;
        sum.aborts += report.aborts;
        sum.accesses += report.accesses;
        sum.remote_accesses += report.remote_accesses;
        sum.deferrals += report.deferrals;
        sum.batches += report.batches;
    }
    Ok(sum)
}
