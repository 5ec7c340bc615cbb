//! What came of all inputs: counts by kind and SQLSTATE, and each failure with what reproduces it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::client::{End, Outcome};
use super::input::{Input, Kind};

/// Failures that are printed.
const SHOWN_MAX: usize = 60;
/// The slowest inputs that are printed.
const SLOWEST: usize = 5;

#[derive(Debug, Default)]
struct OfKind {
    inputs: usize,
    closed: usize,
    reset: usize,
    states: BTreeMap<String, usize>,
}

/// The counts of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    kinds: BTreeMap<Kind, OfKind>,
    slowest: Vec<(Duration, String)>,
    failures: Vec<String>,
    /// Inputs and checks that went well.
    pub passed: usize,
}

impl Tally {
    /// Counts an input.
    pub fn note(&mut self, seed: u64, index: usize, input: &Input, outcome: &Outcome) {
        let of_kind = self.kinds.entry(input.kind).or_default();
        of_kind.inputs += 1;
        match outcome.end {
            End::Open => {}
            End::Closed => of_kind.closed += 1,
            End::Reset => of_kind.reset += 1,
        }
        for state in &outcome.states {
            *of_kind.states.entry(state.clone()).or_default() += 1;
        }
        let name: String = input.name.chars().take(120).collect();
        let told = format!("#{index} ({}: {name})", input.kind.word());
        match &outcome.wrong {
            None => self.passed += 1,
            Some(why) => self.fail(format!("{told}: {why}; alone: --seed {seed} --only {index}")),
        }
        self.slowest.push((outcome.waited, told));
        self.slowest.sort_by_key(|(waited, _)| std::cmp::Reverse(*waited));
        self.slowest.truncate(SLOWEST);
    }

    /// Counts something that has to hold.
    pub fn check(&mut self, what: &str, holds: Result<(), String>) {
        match holds {
            Ok(()) => self.passed += 1,
            Err(why) => self.fail(format!("{what}: {why}")),
        }
    }

    /// Counts a failure.
    pub fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    /// How many there were.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.failures.len()
    }

    /// All of it as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for kind in Kind::ALL {
            let Some(of_kind) = self.kinds.get(&kind) else {
                continue;
            };
            let _ = writeln!(
                out,
                "hostile: {}: {} inputs; the server closed {} connections, {} of them with bytes unread",
                kind.word(),
                of_kind.inputs,
                of_kind.closed + of_kind.reset,
                of_kind.reset
            );
            let mut states: Vec<_> = of_kind.states.iter().collect();
            states.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let states: Vec<String> = states
                .iter()
                .map(|(state, count)| format!("{state} {count}"))
                .collect();
            let _ = writeln!(out, "    errors: {}", states.join(", "));
        }
        let slowest: Vec<String> = self
            .slowest
            .iter()
            .map(|(waited, told)| format!("\n    {waited:.1?} {told}"))
            .collect();
        let _ = writeln!(out, "hostile: the longest waits:{}", slowest.concat());
        for why in self.failures.iter().take(SHOWN_MAX) {
            let _ = writeln!(
                out,
                "hostile: FAILED: {}",
                why.chars().take(1000).collect::<String>()
            );
        }
        let left = self.failures.len().saturating_sub(SHOWN_MAX);
        if left > 0 {
            let _ = writeln!(out, "hostile: and {left} more");
        }
        out
    }
}
