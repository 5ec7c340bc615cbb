//! `weft bench join --simulate-ranks N`: SIMULATED joins over more ranks than there are processors here.
//!
//! Rates of a rank are measured first, by two ranks that are threads, or are the document's (`--rates
//! document`); so is the bandwidth of a link unless it is given. Everything else is simulated
//! (`weft_join::simulate` says what). No figure is a measurement of so many ranks, and every record says so.
//! Totals and network passes stand beside what the document's equations predict with the same rates.
//!
//! Source: Barthels 4.3.3, 4.4, 6.1.2.

use weft_fabric::Threads;
use weft_join::measure::{Workload, measure};
use weft_join::simulate::{Machine, Resize, SimulatedJoin, predict, simulate};
use weft_join::{Algorithm, RankOptions, RankRates};
use weft_workload::Record;

use crate::arguments::{JoinArguments, RatesArgument, SimulationArguments};
use crate::failure::Failure;

/// Seeds are reported with the result; the same seed gives the same times from the same rates.
const SEED: u64 = 1;
/// Tuples of a side that rates are measured with.
const SAMPLE_TUPLES: u64 = 4 << 20;
const QUICK_TUPLES: u64 = 20_000;
const ALGORITHMS: [Algorithm; 2] = [Algorithm::Radix, Algorithm::SortMerge];

/// What a join does on one rank.
struct Work {
    algorithm: Algorithm,
    rates: RankRates,
    tuple_bytes: u64,
    merge_depth: f64,
}

/// Simulates both joins, for each number of ranks.
pub(crate) fn records(arguments: &JoinArguments) -> Result<Vec<Record>, Failure> {
    let works = match arguments.simulation.rates {
        RatesArgument::Here => measured(arguments.quick)?,
        RatesArgument::Document => documented(),
    };
    let mut all = Vec::new();
    for &ranks in &arguments.simulation.simulate_ranks {
        for work in &works {
            all.extend(one(&arguments.simulation, ranks, work));
        }
    }
    Ok(all)
}

fn measured(is_quick: bool) -> Result<Vec<Work>, Failure> {
    let sample = if is_quick { QUICK_TUPLES } else { SAMPLE_TUPLES };
    let workload = Workload {
        build: sample,
        probe: sample,
        hot_percent: 0,
    };
    let measured = Threads::run(2, |rank| {
        measure(&rank, &workload, &RankOptions::default(), &ALGORITHMS, 1)
    });
    let measured = measured.map_err(|error| Failure::doing("a fabric of threads", error))?;
    let measured = measured.into_iter().next().unwrap_or_else(|| Ok(Vec::new()));
    let measured = measured.map_err(|error| Failure::doing("measuring rates", error))?;
    let works = measured.into_iter().map(|measured| Work {
        algorithm: measured.algorithm,
        rates: measured.rates,
        tuple_bytes: measured.tuple_bytes as u64,
        merge_depth: 1.0,
    });
    Ok(works.collect())
}

/// Tuples are sent in 8 bytes (3.4.1) and merged three deep (table 4.2).
fn documented() -> Vec<Work> {
    let works = ALGORITHMS.map(|algorithm| Work {
        algorithm,
        rates: RankRates::OF_THE_DOCUMENT,
        tuple_bytes: 8,
        merge_depth: 3.0,
    });
    works.into()
}

fn one(arguments: &SimulationArguments, ranks: u32, work: &Work) -> Vec<Record> {
    let tuple_bytes = work.tuple_bytes;
    let link = match arguments.link_gb {
        Some(gigabytes) => gigabytes * 1e9,
        None => work.rates.network * tuple_bytes as f64,
    };
    let machine = Machine {
        ranks,
        ranks_per_node: arguments.ranks_per_node,
        link_bytes: link,
        latency_ns: arguments.latency_ns,
        request_ns: arguments.request_ns,
        requests_max: arguments.requests_max as usize,
        stragglers_per_mille: arguments.stragglers_per_mille,
        straggler_factor: arguments.straggler_factor,
    };
    let join = SimulatedJoin {
        algorithm: work.algorithm,
        build: arguments.rank_build_tuples.unwrap_or(arguments.rank_tuples),
        probe: arguments.rank_tuples,
        tuple_bytes,
        message_bytes: arguments.message_bytes,
        partitions: u64::from(ranks).max(1024),
        local_passes: 1.0,
        merge_depth: work.merge_depth,
        rates: work.rates,
    };
    let resize = arguments.resize_to.map(|ranks| Resize {
        after: arguments.resize_after,
        ranks,
    });
    let found = simulate(&machine, &join, resize, SEED);
    let config = format!(
        "SIMULATION ranks={ranks} ranks_per_node={} link={:.2}GB/s latency={}ns request={}ns requests={} \
         stragglers={}/1000 factor={} resize={resize:?} build={} probe={} message={}B rates={} seed={SEED} \
         version={}",
        arguments.ranks_per_node,
        link / 1e9,
        arguments.latency_ns,
        arguments.request_ns,
        arguments.requests_max,
        arguments.stragglers_per_mille,
        arguments.straggler_factor,
        join.build,
        join.probe,
        arguments.message_bytes,
        match arguments.rates {
            RatesArgument::Here => "here",
            RatesArgument::Document => "document",
        },
        env!("CARGO_PKG_VERSION")
    );
    let name = match work.algorithm {
        Algorithm::SortMerge => "sort-merge",
        _ => "radix",
    };
    let case = format!("simulated {name}, {ranks} ranks");
    let record = |metric: &str, value, unit| Record::new("join", &case, &config, metric, value, unit);
    let model = predict(&machine, &join);
    let predicted: f64 = model.iter().map(|(_, seconds)| seconds).sum();
    let mut all = vec![
        record("tuples", found.tuples_per_second / 1e6, "M/s"),
        record("total", found.seconds * 1e3, "ms").versus(Some(("model", predicted * 1e3))),
        record(
            "waiting for requests",
            found.queue_share * 100.0,
            "% of the exchange",
        ),
    ];
    for (phase, seconds) in &found.phases {
        let predicted = model.iter().find(|(name, _)| name == phase);
        let predicted = predicted.map(|(_, seconds)| ("model", seconds * 1e3));
        all.push(record(phase, seconds * 1e3, "ms").versus(predicted));
    }
    all
}
