//! A bounded record of what each unit did and when, exportable as a Chrome trace.
//!
//! `chrome://tracing` and Perfetto read the export: a box for each attempt with its outcome, beginning when
//! the unit got it; a row for each concurrent attempt of a unit, so that boxes of a row do not overlap; a
//! mark where a unit was taken out or brought back. Format: "Trace Event Format" (Google, 2016), JSON object
//! form, phases `X`, `i` and `M`. When the record is full the oldest entries are dropped; the export states
//! how many.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

use weft_base::json_text;

use crate::operation::JobKind;
use crate::wire::AttemptId;

/// One attempt on one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Index of the unit; the CPU is the last one.
    pub unit: usize,
    /// Its row among those of the unit: the lowest that was free.
    pub lane: u32,
    /// The job's number.
    pub job: u64,
    /// The attempt's number.
    pub attempt: AttemptId,
    /// Which operation.
    pub kind: JobKind,
    /// When the unit got it, on the scheduler's clock.
    pub start_ns: u64,
    /// When its answer was taken or given up.
    pub end_ns: u64,
    /// `done`, or the name of the reason why not.
    pub outcome: &'static str,
    /// Bytes sent.
    pub bytes_in: u64,
    /// Bytes that came back.
    pub bytes_out: u64,
    /// Cycles that the unit reported.
    pub cycles: u64,
}

/// Something that happened to a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Index of the unit.
    pub unit: usize,
    /// When.
    pub at_ns: u64,
    /// What, as a phrase.
    pub what: &'static str,
}

/// An entry of the timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Work.
    Span(Span),
    /// An event.
    Mark(Mark),
}

/// The record. Entries are in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    entries: VecDeque<Entry>,
    entries_max: usize,
    /// Entries that were dropped because the record was full.
    pub gone: u64,
}

impl Timeline {
    /// A record of at most `entries_max` entries; 0 records nothing and counts nothing as dropped.
    #[must_use]
    pub fn new(entries_max: usize) -> Timeline {
        Timeline {
            entries: VecDeque::new(),
            entries_max,
            gone: 0,
        }
    }

    /// Adds an entry; drops the oldest if there is no space.
    pub fn push(&mut self, entry: Entry) {
        if self.entries_max == 0 {
            return;
        }
        if self.entries.len() >= self.entries_max {
            self.entries.pop_front();
            self.gone += 1;
        }
        self.entries.push_back(entry);
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The first row of each unit, and every other that has a box.
    fn rows(&self, units: usize) -> BTreeSet<(usize, u32)> {
        let boxes = self.entries.iter().filter_map(|entry| match entry {
            Entry::Span(span) => Some((span.unit, span.lane)),
            Entry::Mark(_) => None,
        });
        (0..units).map(|unit| (unit, 0)).chain(boxes).collect()
    }

    /// The record as a Chrome trace; `units` are the units' names by index.
    #[must_use]
    pub fn to_chrome_trace(&self, units: &[&str]) -> String {
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"entries_gone\":");
        let _ = write!(out, "{}}},\"traceEvents\":[", self.gone);
        let mut comma = "";
        for (unit, lane) in self.rows(units.len()) {
            let name = units.get(unit).copied().unwrap_or_default();
            let name = if lane == 0 {
                name.to_owned()
            } else {
                format!("{name} +{lane}")
            };
            let _ = write!(
                out,
                "{comma}\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":{},\"args\":{{\"name\":{}}}}}",
                row(unit, lane),
                json_text(&name)
            );
            comma = ",";
        }
        for entry in &self.entries {
            let _ = writeln!(out, "{comma}");
            comma = ",";
            match entry {
                Entry::Span(span) => write_span(&mut out, span),
                Entry::Mark(mark) => {
                    let _ = write!(
                        out,
                        "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{}}}",
                        mark.what,
                        row(mark.unit, 0),
                        micros(mark.at_ns)
                    );
                }
            }
        }
        out.push_str("\n]}\n");
        out
    }
}

/// The number of a row; a unit has at most 64.
const fn row(unit: usize, lane: u32) -> usize {
    unit * 64 + lane as usize
}

fn write_span(out: &mut String, span: &Span) {
    let _ = write!(
        out,
        "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":{},\"args\":{{\
         \"job\":{},\"attempt\":{},\"outcome\":\"{}\",\"bytes_in\":{},\"bytes_out\":{},\"cycles\":{}}}}}",
        span.kind.name(),
        span.outcome,
        row(span.unit, span.lane),
        micros(span.start_ns),
        micros(span.end_ns.saturating_sub(span.start_ns)),
        span.job,
        span.attempt.0,
        span.outcome,
        span.bytes_in,
        span.bytes_out,
        span.cycles
    );
}

/// Microseconds with three decimals: what the format counts in.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(attempt: u64) -> Entry {
        Entry::Span(Span {
            unit: 0,
            lane: attempt as u32 % 2,
            job: attempt,
            attempt: AttemptId(attempt),
            kind: JobKind::of::<crate::kinds::Merge>(),
            start_ns: 1_500,
            end_ns: 4_000,
            outcome: "done",
            bytes_in: 10,
            bytes_out: 8,
            cycles: 99,
        })
    }

    #[test]
    fn the_oldest_go_first_and_are_counted() {
        let mut timeline = Timeline::new(2);
        for attempt in 0..5 {
            timeline.push(span(attempt));
        }
        assert_eq!(timeline.gone, 3);
        assert_eq!(
            timeline.entries().cloned().collect::<Vec<_>>(),
            [span(3), span(4)]
        );
        let mut none = Timeline::new(0);
        none.push(span(0));
        assert_eq!((none.entries().count(), none.gone), (0, 0));
    }

    #[test]
    fn the_export_is_a_chrome_trace() {
        let mut timeline = Timeline::new(8);
        timeline.push(span(1));
        timeline.push(Entry::Mark(Mark {
            unit: 1,
            at_ns: 2_000_000,
            what: "taken out",
        }));
        let expected = r#"{"displayTimeUnit":"ns","otherData":{"entries_gone":0},"traceEvents":[
{"ph":"M","name":"thread_name","pid":1,"tid":0,"args":{"name":"fpga \"0\""}},
{"ph":"M","name":"thread_name","pid":1,"tid":1,"args":{"name":"fpga \"0\" +1"}},
{"ph":"M","name":"thread_name","pid":1,"tid":64,"args":{"name":"cpu"}},
{"ph":"X","name":"merge","cat":"done","pid":1,"tid":1,"ts":1.500,"dur":2.500,"args":{"job":1,"attempt":1,"outcome":"done","bytes_in":10,"bytes_out":8,"cycles":99}},
{"ph":"i","s":"t","name":"taken out","pid":1,"tid":64,"ts":2000.000}
]}
"#;
        assert_eq!(timeline.to_chrome_trace(&["fpga \"0\"", "cpu"]), expected);
        assert_eq!(
            Timeline::new(1)
                .to_chrome_trace(&[])
                .matches("traceEvents\":[\n]")
                .count(),
            1
        );
    }
}
