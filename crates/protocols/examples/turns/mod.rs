//! Shared by the measuring programs: protocols take turns on one stream, and medians over the rounds are
//! reported.
//!
//! With one worker a rate is per CPU second, so that other work on the machine does not count, otherwise per
//! second of wall time.

use std::sync::Arc;

use weft_base::BatchId;
use weft_program::Program;
use weft_protocols::{Job, RunReport, run_by_name};
use weft_store::{CatalogOp, Store, TableDef};
use weft_types::Value;

/// Jobs per run while a table is loaded.
const LOAD_JOBS: usize = 1 << 16;

/// A run: its report, and transactions per second.
pub type Turn = (RunReport, f64);

/// The number of rounds, and of workers in each run.
pub type Size = (usize, usize);

/// CPU seconds of this thread, if the system reports them; the kernel counts in ticks of some milliseconds,
/// so measurements must be long.
pub fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// The median; NaN without figures.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median of a figure over all turns.
pub fn median_of(turns: &[Turn], figure: impl Fn(&Turn) -> f64) -> f64 {
    median(turns.iter().map(figure).collect())
}

/// The median of the rounds' ratios of rates.
pub fn ratio(turns: &[Turn], base: Option<&Vec<Turn>>) -> f64 {
    let base = base.into_iter().flatten();
    median(base.zip(turns).map(|(base, own)| own.1 / base.1).collect())
}

/// The share of its time that a run spent planning, in per cent.
pub fn planning_percent((report, _): &Turn) -> f64 {
    100.0 * report.planning.as_secs_f64() / report.elapsed.as_secs_f64()
}

fn turn(name: &str, store: &Arc<Store>, jobs: &[Job], workers: usize) -> Turn {
    let before = cpu_seconds();
    let report = run_by_name(name, store, jobs, workers).unwrap();
    assert_eq!(report.failed, 0, "{name}");
    let cpu = before.zip(cpu_seconds()).map(|(before, after)| after - before);
    let rate = match cpu.filter(|cpu| workers == 1 && *cpu > 0.0) {
        Some(seconds) => report.committed as f64 / seconds,
        None => report.throughput(),
    };
    (report, rate)
}

/// Runs every protocol on every stream, in turns: by stream, then by protocol.
pub fn take_turns(
    store: &Arc<Store>,
    streams: &[&[Job]],
    names: &[&str],
    (rounds, workers): Size,
) -> Vec<Vec<Vec<Turn>>> {
    let mut turns = vec![vec![Vec::new(); names.len()]; streams.len()];
    for _ in 0..rounds {
        for (jobs, turns) in streams.iter().zip(&mut turns) {
            for (name, turns) in names.iter().zip(turns) {
                turns.push(turn(name, store, jobs, workers));
            }
        }
    }
    turns
}

/// The turns of the protocol with a name.
pub fn of<'t>(names: &[&str], name: &str, turns: &'t [Vec<Turn>]) -> Option<&'t Vec<Turn>> {
    let at = names.iter().position(|known| *known == name)?;
    turns.get(at)
}

/// A store with empty tables.
pub fn store_with(tables: impl IntoIterator<Item = TableDef>) -> Arc<Store> {
    let store = Store::new();
    let mut writer = store.begin_batch(BatchId(1));
    for table in tables {
        writer.apply_catalog(&CatalogOp::CreateTable(table)).unwrap();
    }
    writer.finish();
    store.publish(BatchId(1));
    store
}

/// A transaction.
pub fn job(program: &Arc<Program>, values: &[Value]) -> Job {
    Job {
        program: Arc::clone(program),
        inputs: program.encode_inputs(values).unwrap(),
    }
}

/// Runs the insert jobs of `rows` rows, some at a time.
pub fn load_rows(store: &Arc<Store>, rows: u64, mut insert: impl FnMut(u64) -> Job) {
    for first in (0..rows).step_by(LOAD_JOBS) {
        let rows = first..rows.min(first + LOAD_JOBS as u64);
        let jobs: Vec<Job> = rows.map(&mut insert).collect();
        let report = run_by_name("batch", store, &jobs, 1).unwrap();
        assert_eq!(report.committed, jobs.len() as u64, "loading failed");
    }
}

/// The numeric arguments of every program, rounds and workers last, and the protocols after them, or the
/// given defaults.
pub fn arguments<'a>(
    arguments: &'a [String],
    default: Vec<&'a str>,
) -> Option<(u64, usize, Size, Vec<&'a str>)> {
    let [rows, count, rounds, workers, names @ ..] = arguments else {
        return None;
    };
    let names = match names {
        [] => default,
        names => names.iter().map(String::as_str).collect(),
    };
    let size = (rounds.parse().ok()?, workers.parse().ok()?);
    Some((rows.parse().ok()?, count.parse().ok()?, size, names))
}
