//! `weft bench join`: joins of 16-byte tuples, phase by phase beside the document's models.
//!
//! ```text
//!   one rank       the joins of one machine, with all threads
//!   several ranks  the joins over the fabric, one thread a rank; ranks are threads or processes
//! ```
//!
//! Every build key occurs once, in random order; probe keys are drawn. Results are counted and compared with
//! what must come out. The models' rates are measured in the same run, by all ranks at the same time. With
//! more ranks than processors a rate is the scheduler's. Ranks of mpirun: `cargo bench -p weft-join
//! --features mpi --bench ranks`.
//!
//! Source: Barthels 3.3, 3.4, 4.3 and 4.4.

use std::time::{Duration, Instant};

use weft_base::Prng;
use weft_fabric::{Rank, Threads, processes};
use weft_join::measure::{Measured, Workload, measure};
use weft_join::{
    Algorithm, Assignment, Compression, Count, Options, Phases, RankOptions, Report, Schedule, Shape, Tuning,
    Tuple, calibrate, join,
};
use weft_workload::Record;
use weft_workload::driver::median;

use super::{join_simulation, print, rank_processes};
use crate::arguments::{AssignmentArgument, FormArgument, JoinArguments};
use crate::failure::Failure;

const TITLE: &str = "joins of 16-byte tuples";
const QUICK_TUPLES: u64 = 20_000;
/// How long ranks wait for each other: they make their tuples between two meetings.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs the joins and prints medians.
pub(crate) fn run(arguments: &JoinArguments) -> Result<(), Failure> {
    if !arguments.simulation.simulate_ranks.is_empty() {
        let records = join_simulation::records(arguments)?;
        return print(arguments.json, "SIMULATED joins over many ranks", &records);
    }
    let tuples = |given: Option<u64>| match given {
        Some(count) => count,
        None if arguments.quick => QUICK_TUPLES,
        None => 16 << 20,
    };
    let workload = Workload {
        build: tuples(arguments.build),
        probe: tuples(arguments.probe),
        hot_percent: arguments.hot_percent,
    };
    let config = format!(
        "ranks={} build={} probe={} hot={}% rounds={} processors={} version={}",
        arguments.ranks,
        workload.build,
        workload.probe,
        workload.hot_percent,
        arguments.rounds,
        std::thread::available_parallelism().map_or(1, usize::from),
        env!("CARGO_PKG_VERSION")
    );
    if arguments.ranks == 1 {
        let records = one_machine(arguments, &workload, &config)?;
        return print(arguments.json, TITLE, &records);
    }
    let failed = |error| Failure::doing("a fabric of ranks", error);
    // A process that this command has started.
    if let Some(rank) = processes::from_environment().map_err(failed)? {
        return on_rank(&rank, arguments, &workload, &config);
    }
    match arguments.form {
        FormArgument::Threads => {
            let code = |rank: Rank| on_rank(&rank, arguments, &workload, &config);
            let ended = Threads::run(arguments.ranks, code).map_err(failed)?;
            ended.into_iter().collect()
        }
        FormArgument::Processes => rank_processes::start(arguments.ranks),
    }
}

/// The measurement, by every rank; the first one prints.
fn on_rank(rank: &Rank, arguments: &JoinArguments, workload: &Workload, config: &str) -> Result<(), Failure> {
    rank.set_timeout(TIMEOUT);
    let mut options = RankOptions::default();
    if arguments.wide {
        options.compression = Compression::Never;
    }
    let network = &mut options.network;
    network.buffer_bytes = arguments.buffer_bytes.unwrap_or(network.buffer_bytes);
    network.assignment = match arguments.assignment {
        AssignmentArgument::Shared => Assignment::Shared,
        AssignmentArgument::Sized => Assignment::Sized,
        AssignmentArgument::RoundRobin => Assignment::RoundRobin,
    };
    if let Some(tuples) = arguments.schedule_rounds_of {
        network.schedule = Schedule::Rounds { tuples };
    }
    let algorithms = [Algorithm::Radix, Algorithm::SortMerge];
    let rounds = usize::try_from(arguments.rounds).unwrap_or(1);
    let all = measure(rank, workload, &options, &algorithms, rounds)
        .map_err(|error| Failure::doing("joining over ranks", error))?;
    if rank.number() != 0 {
        return Ok(());
    }
    let mut records = Vec::new();
    for measured in &all {
        records.extend(rank_records(measured, workload, config));
    }
    print(arguments.json, TITLE, &records)
}

fn name_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SortMerge => "sort-merge",
        Algorithm::Unpartitioned => "unpartitioned",
        Algorithm::Chosen | Algorithm::Radix => "radix",
    }
}

fn rank_records(measured: &Measured, workload: &Workload, config: &str) -> Vec<Record> {
    let case = name_of(measured.algorithm);
    let record = |metric: &str, value, unit| Record::new("join", case, config, metric, value, unit);
    let predicted: f64 = measured.model.iter().map(|(_, seconds)| seconds).sum();
    let mut all = vec![
        record("tuples", measured.tuples_per_second(workload) / 1e6, "M/s"),
        record("total", measured.seconds * 1e3, "ms").versus(Some(("model", predicted * 1e3))),
        record("windows opened", measured.window_seconds * 1e3, "ms"),
        record("sent", measured.sent_bytes as f64 / 1e6, "MB"),
        record("puts", measured.puts as f64, ""),
        record("shared partitions", measured.partitions[1] as f64, ""),
    ];
    for (phase, seconds) in &measured.phases {
        let model = measured.model.iter().find(|(name, _)| name == phase);
        let model = model.map(|(_, seconds)| ("model", seconds * 1e3));
        if *seconds > 0.0 {
            all.push(record(phase, seconds * 1e3, "ms").versus(model));
        }
    }
    all
}

/// Both sides on this machine.
fn sides(workload: &Workload) -> [Vec<Tuple>; 2] {
    let mut prng = Prng::new(1);
    let mut keys: Vec<u64> = (0..workload.build).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, prng.below(at as u64 + 1) as usize);
    }
    let build = keys.into_iter().zip(0..).map(|(key, row)| Tuple { key, row });
    let mut probe_key = || {
        let is_hot = workload.hot_percent > 0 && prng.chance(workload.hot_percent, 100);
        match is_hot {
            true => workload.build / 2,
            false => prng.below(workload.build.max(1)),
        }
    };
    let probe = (0..workload.probe).map(|row| Tuple {
        key: probe_key(),
        row,
    });
    [build.collect(), probe.collect()]
}

/// The joins of one machine.
fn one_machine(arguments: &JoinArguments, workload: &Workload, config: &str) -> Result<Vec<Record>, Failure> {
    let failed = |error| Failure::doing("joining", error);
    let threads = arguments.threads.unwrap_or_else(|| {
        let here = std::thread::available_parallelism();
        here.map_or(1, usize::from)
    });
    let [build, probe] = sides(workload);
    let shape = Shape {
        build: build.len(),
        probe: probe.len(),
        workers: threads,
        is_compressed: !arguments.wide,
        tuning: Tuning::default(),
    };
    let rates = calibrate(&shape).map_err(failed)?;
    let algorithms = [Algorithm::Unpartitioned, Algorithm::Radix, Algorithm::SortMerge];
    let mut rounds: Vec<Vec<(f64, Report)>> = vec![Vec::new(); algorithms.len()];
    for _ in 0..arguments.rounds {
        for (algorithm, reports) in algorithms.iter().zip(&mut rounds) {
            let options = Options {
                algorithm: *algorithm,
                compression: match arguments.wide {
                    true => Compression::Never,
                    false => Compression::Always,
                },
                ..Options::default()
            };
            let mut counts = vec![Count::default(); threads];
            let begun = Instant::now();
            let report = join(&build, &probe, &options, &mut counts).map_err(failed)?;
            let seconds = begun.elapsed().as_secs_f64();
            if report.pairs != workload.probe {
                return Err(Failure::Check(format!(
                    "a join gave {} pairs instead of {}",
                    report.pairs, workload.probe
                )));
            }
            reports.push((seconds, report));
        }
    }
    let mut all = Vec::new();
    for (algorithm, reports) in algorithms.iter().zip(&rounds) {
        let predicted = rates.predict(&shape, *algorithm);
        all.extend(machine_records(
            *algorithm,
            reports,
            (&predicted, workload),
            config,
        ));
    }
    Ok(all)
}

fn machine_records(
    algorithm: Algorithm,
    reports: &[(f64, Report)],
    (predicted, workload): (&Phases, &Workload),
    config: &str,
) -> Vec<Record> {
    let case = format!("{}, one machine", name_of(algorithm));
    let record = |metric: &str, value, unit| Record::new("join", &case, config, metric, value, unit);
    let seconds = median(reports.iter().map(|(seconds, _)| *seconds).collect());
    let model: f64 = predicted.named().iter().map(|(_, time)| time.as_secs_f64()).sum();
    let tuples = (workload.build + workload.probe) as f64;
    let mut all = vec![
        record("tuples", tuples / seconds.max(1e-9) / 1e6, "M/s"),
        record("total", seconds * 1e3, "ms").versus(Some(("model", model * 1e3))),
    ];
    for (number, (phase, model)) in predicted.named().into_iter().enumerate() {
        let times = reports.iter().map(|(_, report)| {
            let named = report.phases.named();
            named
                .get(number)
                .map_or(0.0, |(_, time)| time.as_secs_f64() * 1e3)
        });
        let time = median(times.collect());
        if time > 0.0 {
            let model = ("model", model.as_secs_f64() * 1e3);
            all.push(record(phase, time, "ms").versus(Some(model)));
        }
    }
    all
}
