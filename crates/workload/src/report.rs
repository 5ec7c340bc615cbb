//! Results: one record per figure, as a line of JSON or as a human-readable table.
//!
//! ```json
//! {"bench":"ycsb","case":"a theta=0.9","config":"...","metric":"throughput","value":1.5e5,"unit":"1/s",
//!  "baseline":"two-phase locking","ratio":2.1}
//! ```
//!
//! `ratio` is the value divided by the same metric of `baseline`, measured in the same run; both are null
//! if there is no baseline.

use std::fmt::Write;

use weft_base::json_text;

use crate::driver::Measured;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The benchmark, such as `ycsb`.
    pub bench: String,
    /// The case and the contender.
    pub case: String,
    /// Sizes and settings, sufficient to repeat the run.
    pub config: String,
    /// The metric.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// The contender to which `ratio` refers.
    pub baseline: Option<String>,
    /// `value` divided by the baseline's value.
    pub ratio: Option<f64>,
}

impl Record {
    /// A figure without a baseline: its benchmark, case and configuration, metric, value and unit.
    pub fn new(bench: &str, case: &str, config: &str, metric: &str, value: f64, unit: &str) -> Self {
        Record {
            bench: bench.to_owned(),
            case: case.to_owned(),
            config: config.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            baseline: None,
            ratio: None,
        }
    }

    /// The same figure with a baseline of the same metric, given by name and value. Unchanged if there is
    /// none or its value is not positive and finite.
    #[must_use]
    pub fn versus(mut self, baseline: Option<(&str, f64)>) -> Self {
        if let Some((name, against)) = baseline
            && against > 0.0
            && against.is_finite()
        {
            self.baseline = Some(name.to_owned());
            self.ratio = Some(self.value / against);
        }
        self
    }

    /// The record as one line of JSON, without a newline. Non-finite figures become null.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (name, text) in [
            ("bench", &self.bench),
            ("case", &self.case),
            ("config", &self.config),
        ] {
            let _ = write!(out, "\"{name}\":{},", json_text(text));
        }
        let baseline = self
            .baseline
            .as_deref()
            .map_or_else(|| "null".to_owned(), json_text);
        let _ = write!(
            out,
            "\"metric\":{},\"value\":{},\"unit\":{},\"baseline\":{baseline},\"ratio\":{}}}",
            json_text(&self.metric),
            json_number(Some(self.value)),
            json_text(&self.unit),
            json_number(self.ratio),
        );
        out
    }
}

fn json_number(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => value.to_string(),
        _ => "null".to_owned(),
    }
}

/// Metric, unit, and its computation from a contender's rounds.
type Figure = (&'static str, &'static str, fn(&Measured) -> f64);

/// The records of every contender's rounds, with the contender named `baseline` as the baseline of the
/// others.
pub fn records(bench: &str, case: &str, config: &str, all: &[Measured], baseline: &str) -> Vec<Record> {
    let base = all.iter().find(|measured| measured.name == baseline);
    let mut records = Vec::new();
    for measured in all {
        let name = contender_case(case, measured);
        let figures: [Figure; 6] = [
            ("throughput", "1/s", Measured::throughput),
            ("latency_p50", "us", |m| m.latency_us(50.0)),
            ("latency_p95", "us", |m| m.latency_us(95.0)),
            ("latency_p99", "us", |m| m.latency_us(99.0)),
            ("latency_p999", "us", |m| m.latency_us(99.9)),
            ("abort_rate", "1", Measured::abort_rate),
        ];
        for (metric, unit, figure) in figures {
            let base = base.filter(|base| base.name != measured.name);
            let against = base.map(|base| (base.name.as_str(), figure(base)));
            let record = Record::new(bench, &name, config, metric, figure(measured), unit);
            records.push(record.versus(against));
        }
        records.extend(counter_records(bench, case, config, measured));
    }
    records
}

fn contender_case(case: &str, measured: &Measured) -> String {
    format!("{case} {}", measured.name).trim().to_owned()
}

/// The shape of the load as seen by the engine, if a contender counts it.
fn counter_records(bench: &str, case: &str, config: &str, measured: &Measured) -> Vec<Record> {
    let batches = measured.counter("batches");
    let one_shot = measured.counter("one_shot");
    let sessions = measured.counter("session_commits");
    let syncs = measured.counter("log_syncs");
    let commits = one_shot + sessions;
    let name = contender_case(case, measured);
    let mut found = Vec::new();
    let mut add = |metric: &str, unit: &str, value: f64| {
        found.push(Record::new(bench, &name, config, metric, value, unit));
    };
    if batches > 0.0 {
        add("mean_batch", "members", commits / batches);
        add("one_shot_share", "1", one_shot / commits.max(1.0));
        add(
            "deferral_rate",
            "1",
            measured.counter("deferrals") / commits.max(1.0),
        );
    }
    // Checkpoints compete with commits for processor time and the disk.
    if measured.counter("checkpoints") > 0.0 {
        add("checkpoints", "1", measured.counter("checkpoints"));
    }
    // The machine ran something else then, so long latencies may not be the contender's.
    if let Some(stolen) = measured.stolen() {
        add("stolen", "ms", stolen.as_secs_f64() * 1000.0);
    }
    if syncs > 0.0 {
        add("commits_per_sync", "1", commits / syncs);
        add(
            "mean_sync",
            "us",
            measured.counter("log_sync_ns") / syncs / 1000.0,
        );
    }
    found
}

/// The records as a table: one line per case, one column per metric, with the ratio in brackets.
pub fn table(records: &[Record]) -> String {
    let mut cases: Vec<&str> = Vec::new();
    let mut metrics: Vec<(&str, &str)> = Vec::new();
    for record in records {
        if !cases.contains(&record.case.as_str()) {
            cases.push(&record.case);
        }
        let metric = (record.metric.as_str(), record.unit.as_str());
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    let mut rows = vec![vec!["case".to_owned()]];
    rows[0].extend(metrics.iter().map(|(metric, unit)| format!("{metric} ({unit})")));
    for case in cases {
        let mut row = vec![case.to_owned()];
        for (metric, _) in &metrics {
            let cell = records.iter().find(|r| r.case == case && r.metric == *metric);
            row.push(cell.map_or_else(String::new, cell_text));
        }
        rows.push(row);
    }
    align(&rows)
}

fn cell_text(record: &Record) -> String {
    let value = human(record.value);
    record
        .ratio
        .map_or_else(|| value.clone(), |ratio| format!("{value} ({ratio:.2}x)"))
}

/// Three significant digits, with K and M above a thousand.
pub fn human(value: f64) -> String {
    let digits = |scaled: f64, suffix: &str| match scaled.abs() {
        v if v >= 100.0 => format!("{scaled:.0}{suffix}"),
        v if v >= 10.0 => format!("{scaled:.1}{suffix}"),
        _ => format!("{scaled:.2}{suffix}"),
    };
    match value.abs() {
        v if v >= 1e6 => digits(value / 1e6, "M"),
        v if v >= 1e4 => digits(value / 1e3, "K"),
        _ => digits(value, ""),
    }
}

/// Aligns columns: the first left, the others right.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        rows.iter()
            .filter_map(|r| r.get(at))
            .map(|c| c.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at] - cell.chars().count());
            let _ = if at == 0 {
                write!(line, "{cell}{pad}")
            } else {
                write!(line, "  {pad}{cell}")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(case: &str, metric: &str, value: f64, ratio: Option<f64>) -> Record {
        let against = ratio.map(|ratio| ("base", value / ratio));
        Record::new("ycsb", case, "a \"b\"\n", metric, value, "1/s").versus(against)
    }

    #[test]
    fn figures_are_compared_only_with_positive_baselines() {
        for against in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let alone = Record::new("b", "c", "s", "m", 3.0, "1");
            assert_eq!(alone.clone().versus(Some(("base", against))), alone, "{against}");
        }
        let both = Record::new("b", "c", "s", "m", 3.0, "1").versus(Some(("base", 2.0)));
        assert_eq!((both.baseline.as_deref(), both.ratio), (Some("base"), Some(1.5)));
    }

    #[test]
    fn json_is_one_escaped_line_with_the_agreed_names() {
        assert_eq!(
            record("a", "throughput", 1500.5, Some(2.0)).to_json(),
            "{\"bench\":\"ycsb\",\"case\":\"a\",\"config\":\"a \\\"b\\\"\\u000a\",\"metric\":\"throughput\",\
             \"value\":1500.5,\"unit\":\"1/s\",\"baseline\":\"base\",\"ratio\":2}"
        );
        assert!(
            record("a", "x", f64::NAN, None)
                .to_json()
                .contains("\"value\":null")
        );
        assert!(
            record("a", "x", 1.0, None)
                .to_json()
                .ends_with("\"baseline\":null,\"ratio\":null}")
        );
    }

    #[test]
    fn tables_have_a_line_per_case_and_a_column_per_metric() {
        let records = [
            record("a one", "throughput", 123_456.0, None),
            record("a two", "throughput", 61_728.0, Some(0.5)),
            record("a two", "extra", 1.0, None),
        ];
        let table = table(&records);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].contains("throughput (1/s)") && lines[0].contains("extra (1/s)"));
        assert!(lines[1].contains("123K"));
        assert!(lines[2].contains("61.7K (0.50x)") && lines[2].ends_with("1.00"));
    }

    #[test]
    fn figures_are_readable() {
        let texts = [0.5, 12.34, 123.4, 9999.0, 12_345.0, 1.5e6].map(human);
        assert_eq!(texts, ["0.50", "12.3", "123", "9999", "12.3K", "1.50M"]);
    }
}
