//! `weft bench limits`: the limits of this machine's memory, without a database.
//!
//! Measures probes of a hash index of 16-byte slots and of its payloads, with every access strategy, in
//! huge and in ordinary pages; pointer chasing; sequential reading. Rates are per second of the threads'
//! processor time. `share_of_limit` of a case is its fraction of the best case with the same records and
//! threads.

use weft_base::memory::Pages;
use weft_workload::Record;
use weft_workload::driver::median;
use weft_workload::limits::{Access, ProbeTable, chase_rate, sequential_rate};

use super::print;
use crate::arguments::LimitsArguments;
use crate::failure::Failure;

const RECORDS: u64 = 2 << 20;
const RECORDS_QUICK: u64 = 100_000;
/// Divisor of the number of probes for the dependent strategy.
const DEPENDENT_SHARE: usize = 8;
const WAYS: [Access; 5] = [
    Access::Dependent,
    Access::Plain,
    Access::Group(16),
    Access::Group(32),
    Access::Amac(24),
];

/// Measures and prints.
pub(crate) fn run(arguments: &LimitsArguments) -> Result<(), Failure> {
    if arguments.threads.is_empty() || arguments.threads.iter().any(|n| !(1..=1_024).contains(n)) {
        return Err(Failure::Usage("--threads must be between 1 and 1024".to_owned()));
    }
    let records = arguments
        .records
        .unwrap_or(if arguments.quick { RECORDS_QUICK } else { RECORDS }) as usize;
    let probes = if arguments.quick {
        arguments.probes.min(200_000)
    } else {
        arguments.probes
    } as usize;
    let mut found = Vec::new();
    let large = arguments.record_bytes as usize;
    for (payload_bytes, pages) in [
        (64, Pages::Huge),
        (64, Pages::Ordinary),
        (large, Pages::Huge),
        (large, Pages::Ordinary),
    ] {
        let table = ProbeTable::new(records, payload_bytes, pages).map_err(no_memory)?;
        for threads in &arguments.threads {
            found.extend(probe_records(&table, pages, probes, *threads, arguments.rounds));
        }
    }
    let bytes = records * large;
    for pages in [Pages::Huge, Pages::Ordinary] {
        let rate = chase_rate(bytes, pages, probes / DEPENDENT_SHARE).map_err(no_memory)?;
        found.push(record(
            "chase",
            &format!("bytes={bytes} pages={}", name(pages)),
            "throughput",
            rate,
            "1/s",
        ));
    }
    for threads in &arguments.threads {
        let rate =
            sequential_rate(bytes, Pages::Huge, *threads, arguments.rounds as usize).map_err(no_memory)?;
        let config = format!("bytes={bytes} pages=huge threads={threads}");
        found.push(record("sequential read", &config, "throughput", rate, "B/s"));
    }
    print(arguments.json, "Limits of this machine's memory", &found)
}

fn probe_records(
    table: &ProbeTable,
    pages: Pages,
    probes: usize,
    threads: usize,
    rounds: u64,
) -> Vec<Record> {
    let mut rates = WAYS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (access, rates) in WAYS.iter().zip(&mut rates) {
            let share = if *access == Access::Dependent {
                DEPENDENT_SHARE
            } else {
                1
            };
            rates.push(table.rate(*access, (probes / share).max(1), threads));
        }
    }
    let medians = rates.map(median);
    let best = medians.iter().copied().fold(0.0, f64::max);
    let taken = if pages == Pages::Huge && !table.is_huge() {
        "refused"
    } else {
        name(pages)
    };
    let config = format!(
        "records={} payload_bytes={} bytes={} pages={taken} threads={threads} probes={probes} rounds={rounds}",
        table.record_count(),
        table.payload_bytes(),
        table.size_bytes()
    );
    let mut found = Vec::new();
    for (access, rate) in WAYS.iter().zip(medians) {
        let case = format!("probe and {} B, {}", table.payload_bytes(), access.name());
        let share = if best > 0.0 { rate / best } else { 0.0 };
        found.push(record(&case, &config, "throughput", rate, "1/s"));
        found.push(record(&case, &config, "share_of_limit", share, "1"));
    }
    found
}

fn record(case: &str, config: &str, metric: &str, value: f64, unit: &str) -> Record {
    Record::new("limits", case, config, metric, value, unit)
}

fn name(pages: Pages) -> &'static str {
    match pages {
        Pages::Huge => "huge",
        Pages::Ordinary => "ordinary",
    }
}

fn no_memory(error: std::io::Error) -> Failure {
    Failure::doing("taking memory to measure", error)
}
