//! `weft bench join --simulate-ranks N`: SIMULATED joins over more ranks than there are processors here.
//!
//! Rates of a rank, and unless it is given the bandwidth of a link, are measured first, by two ranks that are
//! threads; everything else is simulated (`weft_join::simulate` says what). No figure is a measurement of so
//! many ranks, and every record says so.
//!
//! Source: Barthels 4.3.3, 4.4, 6.1.2.

use weft_fabric::Threads;
use weft_join::measure::{Measured, Workload, measure};
use weft_join::simulate::{Machine, Resize, SimulatedJoin, simulate};
use weft_join::{Algorithm, RankOptions};
use weft_workload::Record;

use crate::arguments::{JoinArguments, SimulationArguments};
use crate::failure::Failure;

/// Seeds are reported with the result; the same seed gives the same times from the same rates.
const SEED: u64 = 1;
/// Tuples of a side that rates are measured with.
const SAMPLE_TUPLES: u64 = 4 << 20;
const QUICK_TUPLES: u64 = 20_000;

/// Measures rates and simulates both joins.
pub(crate) fn records(arguments: &JoinArguments, ranks: u32) -> Result<Vec<Record>, Failure> {
    let sample = if arguments.quick {
        QUICK_TUPLES
    } else {
        SAMPLE_TUPLES
    };
    let workload = Workload {
        build: sample,
        probe: sample,
        hot_percent: 0,
    };
    let algorithms = [Algorithm::Radix, Algorithm::SortMerge];
    let measured = Threads::run(2, |rank| {
        measure(&rank, &workload, &RankOptions::default(), &algorithms, 1)
    });
    let measured = measured.map_err(|error| Failure::doing("a fabric of threads", error))?;
    let measured = measured.into_iter().next().unwrap_or_else(|| Ok(Vec::new()));
    let measured = measured.map_err(|error| Failure::doing("measuring rates", error))?;
    let mut all = Vec::new();
    for measured in &measured {
        all.extend(one(&arguments.simulation, ranks, measured));
    }
    Ok(all)
}

fn one(arguments: &SimulationArguments, ranks: u32, measured: &Measured) -> Vec<Record> {
    let tuple_bytes = measured.tuple_bytes as u64;
    let link = match arguments.link_gb {
        Some(gigabytes) => gigabytes * 1e9,
        None => measured.rates.network * tuple_bytes as f64,
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
        algorithm: measured.algorithm,
        build: arguments.rank_tuples,
        probe: arguments.rank_tuples,
        tuple_bytes,
        message_bytes: arguments.message_bytes,
        partitions: u64::from(ranks).max(1024),
        local_passes: 1.0,
        merge_depth: 1.0,
        rates: measured.rates,
    };
    let resize = arguments.resize_to.map(|ranks| Resize {
        after: arguments.resize_after,
        ranks,
    });
    let found = simulate(&machine, &join, resize, SEED);
    let config = format!(
        "SIMULATION ranks={ranks} ranks_per_node={} link={:.2}GB/s latency={}ns request={}ns requests={} \
         stragglers={}/1000 factor={} resize={resize:?} tuples_per_rank={} message={}B seed={SEED} \
         version={}",
        arguments.ranks_per_node,
        link / 1e9,
        arguments.latency_ns,
        arguments.request_ns,
        arguments.requests_max,
        arguments.stragglers_per_mille,
        arguments.straggler_factor,
        arguments.rank_tuples,
        arguments.message_bytes,
        env!("CARGO_PKG_VERSION")
    );
    let name = match measured.algorithm {
        Algorithm::SortMerge => "sort-merge",
        _ => "radix",
    };
    let case = format!("simulated {name}, {ranks} ranks");
    let record = |metric: &str, value, unit| Record::new("join", &case, &config, metric, value, unit);
    let mut all = vec![
        record("tuples", found.tuples_per_second / 1e6, "M/s"),
        record("total", found.seconds * 1e3, "ms"),
        record(
            "waiting for requests",
            found.queue_share * 100.0,
            "% of the exchange",
        ),
    ];
    for (phase, seconds) in &found.phases {
        all.push(record(phase, seconds * 1e3, "ms"));
    }
    all
}
