//! `weft bench fabric`: round trips, one-sided operations and bandwidth between two ranks.
//!
//! `weft_fabric::measure` says what is timed. Bandwidth stands beside the rate at which one thread copies in
//! pieces of the same size, an operation beside the round trip of a message. MPI: `cargo bench -p weft-fabric
//! --features mpi`.
//!
//! Source: Barthels, figure 3.7, and 5.2.3 (mailboxes).

use weft_fabric::measure::{Amount, Measured, measure};
use weft_fabric::{Rank, Threads, processes};
use weft_workload::Record;
use weft_workload::driver::median;

use super::{print, rank_processes};
use crate::arguments::{FabricArguments, FormArgument};
use crate::failure::Failure;

const RANKS: u32 = 2;
const AMOUNT: Amount = Amount {
    trips: 50_000,
    operations: 2_000,
    bytes: 256 << 20,
};
const QUICK: Amount = Amount {
    trips: 50,
    operations: 5,
    bytes: 64 << 10,
};

/// Measures one form and prints medians of rounds.
pub(crate) fn run(arguments: &FabricArguments) -> Result<(), Failure> {
    let failed = |error| Failure::doing("a fabric of ranks", error);
    // A process that this command has started.
    if let Some(rank) = processes::from_environment().map_err(failed)? {
        return on_rank(&rank, arguments);
    }
    match arguments.form {
        FormArgument::Threads => {
            let ended = Threads::run(RANKS, |rank| on_rank(&rank, arguments)).map_err(failed)?;
            ended.into_iter().collect()
        }
        FormArgument::Processes => rank_processes::start(RANKS),
    }
}

/// The measurement, by both ranks; the first one prints.
fn on_rank(rank: &Rank, arguments: &FabricArguments) -> Result<(), Failure> {
    let amount = if arguments.quick { QUICK } else { AMOUNT };
    let mut rounds = Vec::new();
    for _ in 0..arguments.rounds {
        let measured = measure(rank, &amount);
        rounds.push(measured.map_err(|error| Failure::doing("measuring the fabric", error))?);
    }
    if rank.number() != 0 {
        return Ok(());
    }
    print(
        arguments.json,
        "the fabric between two ranks",
        &records(arguments, &rounds),
    )
}

fn records(arguments: &FabricArguments, rounds: &[Measured]) -> Vec<Record> {
    let form = match arguments.form {
        FormArgument::Threads => "threads",
        FormArgument::Processes => "processes",
    };
    let config = format!(
        "form={form} ranks={RANKS} rounds={} processors={} version={}",
        arguments.rounds,
        std::thread::available_parallelism().map_or(1, usize::from),
        env!("CARGO_PKG_VERSION")
    );
    let record =
        |case: &str, metric: &str, value, unit| Record::new("fabric", case, &config, metric, value, unit);
    let Some(first) = rounds.first() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut round_trip = None;
    for (at, (name, bytes, _)) in first.latencies.iter().enumerate() {
        let of = |pick: &dyn Fn(&weft_fabric::measure::Latency) -> u64| {
            let times = rounds.iter().filter_map(|round| round.latencies.get(at));
            median(times.map(|(.., latency)| pick(latency) as f64).collect())
        };
        let case = format!("{form}, {name}, {bytes} bytes");
        let middle = of(&|latency| latency.median_ns);
        let beside = round_trip.map(|round_trip| ("round trip of a message", round_trip));
        all.push(record(&case, "time", middle, "ns").versus(beside));
        all.push(record(&case, "time p99", of(&|latency| latency.p99_ns), "ns"));
        all.push(record(&case, "time p99.9", of(&|latency| latency.p999_ns), "ns"));
        round_trip.get_or_insert(middle);
    }
    for (at, of_size) in first.bandwidths.iter().enumerate() {
        let of = |pick: &dyn Fn(&weft_fabric::measure::Bandwidth) -> f64| {
            let found = rounds.iter().filter_map(|round| round.bandwidths.get(at));
            median(found.map(pick).collect())
        };
        let case = format!("{form}, puts of {} bytes", of_size.put_bytes);
        let bandwidth = record(&case, "bandwidth", of(&|found| found.bytes_per_second), "B/s");
        all.push(bandwidth.versus(Some(("copying", of(&|found| found.copied_per_second)))));
    }
    all
}
