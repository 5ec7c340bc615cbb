//! `weft bench scan`: how fast bit-packed codes are scanned, beside how fast memory is read.
//!
//! Source: DBA, tables 1 and 2. For every width, number of threads and kind of scan the forms of the scan
//! that this processor has take turns with a loop that only adds the same bytes. The column is larger
//! than the caches, except with --quick.

use std::time::Duration;

use weft_base::memory::Pages;
use weft_column::packed::Form;
use weft_workload::driver::median;
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
        .unwrap_or(if arguments.quick { QUICK_VALUES } else { VALUES });
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
        for &threads in &arguments.threads {
            let config = format!(
                "values={values} bits={bits} threads={threads} rounds={} version={}",
                arguments.rounds,
                env!("CARGO_PKG_VERSION")
            );
            records.extend(measure(arguments, &column, values, bits, threads, &config)?);
        }
    }
    print(arguments.json, "scans of packed codes", &records)
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
