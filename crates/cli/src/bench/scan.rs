//! `weft bench scan`: how fast bit-packed codes are scanned, beside how fast memory is read.
//!
//! The same scans on DBA's engines are simulated, one on each engine of a device; with --simulated-only
//! nothing else is done.
//!
//! For every width, number of threads and kind of scan the forms of the scan that this processor has take
//! turns with a loop that only adds the same bytes. The column is larger than the caches, except with
//! --quick.
//!
//! Source: DBA, tables 1 and 2, figure 7.

use std::time::Duration;

use weft_base::memory::Pages;
use weft_column::packed::Form;
use weft_column::units::ScanEngineParams;
use weft_offload::Link;
use weft_workload::driver::median;
use weft_workload::scan_engines::scan_on_engines;
use weft_workload::scans::{Found, PackedColumn, ScanKind};
use weft_workload::{Record, limits};

use super::print;
use crate::arguments::ScanArguments;
use crate::failure::Failure;

const VALUES: u64 = 200_000_000;
const QUICK_VALUES: u64 = 1_000_000;
/// The loop that the scans are compared with.
const READING: &str = "reading";

/// Runs all cases and prints them.
pub(crate) fn run(arguments: &ScanArguments) -> Result<(), Failure> {
    let values = arguments
        .values
        .unwrap_or(match (arguments.quick, arguments.simulated_only) {
            (true, _) => QUICK_VALUES,
            (false, true) => SIMULATED_VALUES as u64,
            (false, false) => VALUES,
        });
    if arguments
        .threads
        .iter()
        .any(|threads| !(1..=1024).contains(threads))
    {
        return Err(Failure::Usage("--threads must be between 1 and 1024".to_owned()));
    }
    let mut records = Vec::new();
    for &bits in &arguments.bits {
        let column = PackedColumn::random(bits, usize::try_from(values).unwrap_or(usize::MAX))?;
        let threads = match arguments.simulated_only {
            true => &[],
            false => arguments.threads.as_slice(),
        };
        for &threads in threads {
            let config = format!(
                "values={values} bits={bits} threads={threads} rounds={} version={}",
                arguments.rounds,
                env!("CARGO_PKG_VERSION")
            );
            records.extend(measure(arguments, &column, values, bits, threads, &config)?);
        }
        // One thread is asked for unless it is told otherwise.
        let best = |kind: ScanKind| {
            let start = format!("{bits} bits, 1 thread(s), {}, ", kind.name());
            let values = records.iter().filter(|record| record.metric == "value");
            let ours = values.filter(|record| record.case.starts_with(&start));
            ours.map(|record| record.value).min_by(f64::total_cmp)
        };
        let measured = ScanKind::ALL.map(|kind| (kind, best(kind)));
        records.extend(simulated(&column, bits, &measured)?);
    }
    print(arguments.json, "scans of packed codes", &records)
}

/// Codes of a simulated scan. Engines take line after line, so more would take longer and say the same.
const SIMULATED_VALUES: usize = 2_000_000;
/// Scans at a time on one device.
const ENGINES: [usize; 7] = [1, 2, 3, 4, 6, 8, 16];
/// The rates of several engines are of scans of so many codes, as beside TPC-C (`weft bench htap`).
const RATE_VALUES: f64 = 20e6;

/// DBA's engines. One scan is compared with `measured`, nanoseconds a value of the fastest form in this run,
/// if it measured any.
fn simulated(
    column: &PackedColumn,
    bits: u32,
    measured: &[(ScanKind, Option<f64>)],
) -> Result<Vec<Record>, Failure> {
    let params = ScanEngineParams::default();
    let config = format!(
        "values={SIMULATED_VALUES} bits={bits} clock_mhz={} channels={} channel_bytes_per_us={} \
         memory_latency_cycles={} lines_ahead={} version={}",
        params.clock_mhz,
        params.channels,
        params.channel_bytes_per_us,
        params.memory_latency_cycles,
        params.lines_ahead,
        env!("CARGO_PKG_VERSION")
    );
    let mut records = Vec::new();
    for (kind, measured) in measured {
        let task = column.task(*kind, SIMULATED_VALUES);
        // A set beyond the engine's table is the processor's, which was measured.
        let Some(one) = scan_on_engines(params, &task, 1)? else {
            continue;
        };
        let mut add = |case: &str, metric, value, unit| {
            let case = format!("{bits} bits, 1 thread(s), {}, {case}", kind.name());
            let record = Record::new("scan", &case, &config, metric, value, unit);
            records.push(match unit {
                "ns" => record.versus(measured.map(|measured| ("the fastest form here", measured))),
                _ => record,
            });
        };
        add("simulated engine", "value", one.ns_per_value(), "ns");
        for (link, name) in [
            (Link::PCIE_3_X8, "PCIe 3 x8"),
            (Link::PCIE_5_X16, "PCIe 5 x16"),
            (Link::CXL, "CXL"),
        ] {
            for (sends_codes, codes) in [(false, "codes there"), (true, "codes sent")] {
                let value = one.ns_per_value_over(link, sends_codes);
                add(
                    &format!("simulated engine over {name}, {codes}"),
                    "value",
                    value,
                    "ns",
                );
            }
        }
        let cycles = one.cycles;
        let share = |part: u64| part as f64 / cycles.total.max(1) as f64;
        add(
            "simulated engine",
            "waiting",
            share(cycles.waiting_for_memory),
            "share",
        );
        add("simulated engine", "comparing", share(cycles.comparing), "share");
    }
    let task = column.task(ScanKind::RangeToRows, SIMULATED_VALUES);
    for engines in ENGINES {
        let Some(done) = scan_on_engines(params, &task, engines)? else {
            continue;
        };
        let case = format!("{bits} bits, {engines} scan(s), simulated engines");
        let rate = engines as f64 / (done.ns_per_value() * RATE_VALUES / 1e9);
        records.push(Record::new("engines", &case, &config, "rate", rate, "1/s"));
    }
    Ok(records)
}

fn measure(
    arguments: &ScanArguments,
    column: &PackedColumn,
    values: u64,
    bits: u32,
    threads: usize,
    config: &str,
) -> Result<Vec<Record>, Failure> {
    let cases: Vec<(ScanKind, Form)> = ScanKind::ALL
        .into_iter()
        .flat_map(|kind| Form::here().into_iter().map(move |form| (kind, form)))
        .collect();
    let mut found: Vec<Found> = (0..threads).map(|_| Found::default()).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let mut reading = Vec::new();
    // The first round fills the caches and the memory for results.
    for round in 0..=arguments.rounds {
        let rate = limits::sequential_rate(column.bytes(), Pages::Huge, threads, 1);
        let rate = rate.map_err(|e| Failure::doing("reading memory", e))?;
        if round > 0 {
            reading.push(rate);
        }
        for ((kind, form), times) in cases.iter().zip(&mut times) {
            let took: Duration = column.scan_by(*form, *kind, &mut found)?;
            if round > 0 {
                times.push(took.as_secs_f64());
            }
        }
    }
    let bandwidth = median(reading);
    let label = |what: &str| format!("{bits} bits, {threads} thread(s), {what}");
    let mut records = vec![Record::new(
        "scan",
        &label(READING),
        config,
        "bandwidth",
        bandwidth,
        "B/s",
    )];
    for ((kind, form), times) in cases.iter().zip(times) {
        let seconds = median(times).max(1e-9);
        let case = label(&format!("{}, {}", kind.name(), form.name()));
        let read = column.bytes() as f64 / seconds;
        records.extend([
            Record::new("scan", &case, config, "bandwidth", read, "B/s").versus(Some((READING, bandwidth))),
            Record::new(
                "scan",
                &case,
                config,
                "value",
                seconds * 1e9 / values as f64,
                "ns",
            ),
            Record::new("scan", &case, config, "scan", seconds, "s"),
        ]);
    }
    Ok(records)
}
