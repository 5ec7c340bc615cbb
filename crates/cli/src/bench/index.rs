//! `weft bench index`: lookups in the store's indexes, serial and interleaved, compared with the bare
//! limit.
//!
//! Every round measures each mode and the limit over as much memory, one after another; medians count.
//! `throughput` is per second of the thread's processor time, its ratio is the gain over serial lookups;
//! `share_of_limit` is the fraction of the bare rate for reading as much.

use weft_workload::Record;
use weft_workload::driver::median;
use weft_workload::lookups::{Index, LookupMode, Lookups, Read};

use super::print;
use crate::arguments::IndexArguments;
use crate::failure::Failure;

const RECORDS: u64 = 1 << 20;
const RECORDS_QUICK: u64 = 100_000;
/// The baseline of ratios.
const SERIAL: &str = "serial";

/// Serial, with each number of probes in flight, and in groups.
fn modes(in_flight: &[usize]) -> Vec<(LookupMode, String)> {
    let probes = in_flight
        .iter()
        .map(|count| (LookupMode::Probes(*count), format!("{count} probes")));
    std::iter::once((LookupMode::Serial, SERIAL.to_owned()))
        .chain(probes)
        .chain([(LookupMode::Group, "group".to_owned())])
        .collect()
}

/// Loads, measures, prints.
pub(crate) fn run(arguments: &IndexArguments) -> Result<(), Failure> {
    if arguments
        .in_flight
        .iter()
        .any(|count| !(1..=1024).contains(count))
    {
        return Err(Failure::Usage(
            "--in-flight must be between 1 and 1024".to_owned(),
        ));
    }
    let modes = modes(&arguments.in_flight);
    let records = arguments
        .records
        .unwrap_or(if arguments.quick { RECORDS_QUICK } else { RECORDS });
    let count = if arguments.quick {
        arguments.lookups.min(100_000)
    } else {
        arguments.lookups
    } as usize;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::doing("measuring lookups", std::io::Error::other(error.to_string()))
    };
    let mut lookups = Lookups::new(records, arguments.record_bytes as usize, !arguments.hash_only)
        .map_err(|error| failed(&error))?;
    let config = format!(
        "records={} record_bytes={} lookups={count} rounds={} threads=1",
        lookups.record_count(),
        lookups.row_bytes(),
        arguments.rounds
    );
    let indexes: &[(Index, &str)] = if arguments.hash_only {
        &[(Index::Hash, "hash")]
    } else {
        &[(Index::Hash, "hash"), (Index::Ordered, "ordered")]
    };
    let mut found = memory_records(&lookups, &config);
    let loaded = if arguments.hash_only {
        "load, hash"
    } else {
        "load, hash and ordered"
    };
    found.push(record(loaded, &config, "throughput", lookups.load_rate(), "1/s"));
    for (index, index_name) in indexes {
        for (read, read_name) in [
            (Read::Locate, "locate"),
            (Read::Field, "64 B field"),
            (Read::Whole, "whole record"),
        ] {
            let mut rates = vec![(Vec::new(), Vec::new()); modes.len()];
            for round in 0..arguments.rounds {
                let limit = lookups.limit_rate(read, count);
                for ((mode, _), (rates, shares)) in modes.iter().zip(&mut rates) {
                    let rate = lookups
                        .rate(*index, read, *mode, count, round + 1)
                        .map_err(|error| failed(&error.message))?;
                    rates.push(rate);
                    shares.push(if limit > 0.0 { rate / limit } else { 0.0 });
                }
            }
            let medians: Vec<(f64, f64)> = rates
                .into_iter()
                .map(|(rates, shares)| (median(rates), median(shares)))
                .collect();
            let serial = medians.first().map_or(0.0, |(rate, _)| *rate);
            for ((_, way_name), (rate, share)) in modes.iter().zip(medians) {
                let case = format!("{index_name}, {read_name}, {way_name}");
                let against = (way_name != SERIAL).then_some((SERIAL, serial));
                found.push(record(&case, &config, "throughput", rate, "1/s").versus(against));
                found.push(record(&case, &config, "share_of_limit", share, "1"));
            }
        }
    }
    print(arguments.json, &format!("Lookups, {config}"), &found)
}

/// The memory per record, and the kind of pages.
fn memory_records(lookups: &Lookups, config: &str) -> Vec<Record> {
    let stats = lookups.store().memory_stats();
    let rows = lookups.record_count() as f64;
    let each = (stats.slot_bytes + stats.block_bytes) as f64 / rows;
    let huge = stats.huge_page_bytes as f64;
    let mapped = huge + stats.ordinary_page_bytes as f64;
    vec![
        record("memory", config, "row_memory_bytes", each, "B"),
        record(
            "memory",
            config,
            "hash_index_bytes",
            stats.hash_index_bytes as f64 / rows,
            "B",
        ),
        record("memory", config, "huge_page_share", huge / mapped.max(1.0), "1"),
    ]
}

fn record(case: &str, config: &str, metric: &str, value: f64, unit: &str) -> Record {
    Record::new("index", case, config, metric, value, unit)
}
