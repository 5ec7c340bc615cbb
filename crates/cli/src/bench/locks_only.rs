//! `weft bench ycsb --locks-only`: the cost of lock managers in isolation (Hobbes, figure 3.9).
//!
//! Every round acquires the locks of the same transactions with each manager, each time starting with a
//! different one; medians count. `locking_each` is nanoseconds per transaction, including determining its
//! lock requests, and its ratio is to the Calvin-style manager; `needs` is only the time for determining
//! them. `speedup_less_needs` is the Calvin-style manager's time over the contender's, both less
//! determining the requests once; omitted if too little remains. Where transactions conflict, `batch`
//! determines the requests of deferred ones again, and that counts.

use weft_protocols::Job;
use weft_protocols::lock_only::{LockManager, Locked};
use weft_workload::Record;
use weft_workload::driver::median;
use weft_workload::stream::{StreamSeed, Workload};

use super::run::draw_jobs;
use super::{BenchDatabase, print};
use crate::arguments::LoadArguments;
use crate::failure::Failure;

/// The baseline of ratios.
const BASELINE: LockManager = LockManager::Calvin;
/// Minimum share of a manager's own time for a meaningful quotient without the rest.
const LEAST_SHARE: f64 = 0.1;

/// Measures the workloads one after another and prints the results.
pub(super) fn run(
    arguments: &LoadArguments,
    bench: &BenchDatabase,
    cases: &[(String, &dyn Workload)],
    sizes: &str,
) -> Result<(), Failure> {
    let mut records = Vec::new();
    for (case, workload) in cases {
        let seed = StreamSeed {
            seed: 1,
            number: 0,
            count: 1,
        };
        let (jobs, _) = draw_jobs(&mut *workload.stream(seed), arguments.jobs)?;
        let config = format!(
            "{sizes} jobs={} rounds={} threads=1",
            jobs.len(),
            arguments.rounds
        );
        records.extend(measure(bench, &jobs, arguments.rounds, case, &config)?);
    }
    print(arguments.json, "Lock managers alone", &records)
}

fn measure(
    bench: &BenchDatabase,
    jobs: &[Job],
    rounds: usize,
    case: &str,
    config: &str,
) -> Result<Vec<Record>, Failure> {
    let catalog = bench.database.engine().catalog();
    let mut times = LockManager::ALL.map(|manager| (manager, Vec::new(), Locked::default()));
    for _ in 0..rounds.max(1) {
        times.rotate_left(1);
        for (manager, each, last) in &mut times {
            *last = manager
                .take_all(jobs, &catalog)
                .map_err(|error| Failure::Check(format!("{}: {error}", manager.name())))?;
            each.push(last.elapsed.as_nanos() as f64 / jobs.len().max(1) as f64);
        }
    }
    let medians = times.map(|(manager, each, last)| (manager, median(each), last));
    let of = |wanted: LockManager| {
        let found = medians.iter().find(|(manager, ..)| *manager == wanted);
        found.map_or(0.0, |(_, each, _)| *each)
    };
    let (needs, baseline) = (of(LockManager::None), of(BASELINE));
    let mut records = Vec::new();
    let in_order = LockManager::ALL.iter().filter_map(|wanted| {
        let mut found = medians.iter().filter(|(manager, ..)| manager == wanted);
        found.next().copied()
    });
    for (manager, each, last) in in_order {
        let case = format!("{case} {}", manager.name());
        let mut figures = vec![("locking_each", each, "ns")];
        if manager != LockManager::None {
            let deferred = last.deferrals as f64 / jobs.len().max(1) as f64;
            if each - needs > LEAST_SHARE * each {
                figures.push(("speedup_less_needs", (baseline - needs) / (each - needs), "1"));
            }
            figures.extend([
                ("deferral_rate", deferred, "1"),
                ("batches", last.batches as f64, "1"),
            ]);
        }
        for (metric, value, unit) in figures {
            let record = Record::new("ycsb", &case, config, metric, value, unit);
            let is_time = metric == "locking_each" && manager != BASELINE;
            records.push(record.versus(is_time.then_some((BASELINE.name(), baseline))));
        }
    }
    Ok(records)
}
