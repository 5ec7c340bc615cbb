//! What a run found, by cause: differences by the shape of their smallest statement, gaps by what Weft says.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::answer::{Answer, Verdict};
use crate::pair::{Comparison, Way};
use crate::tree::Node;

/// Differences of one shape.
#[derive(Clone, Debug, Default)]
struct Group {
    count: usize,
    examples: Vec<Example>,
}

/// One of a group: the shortest ones are kept.
#[derive(Clone, Debug)]
struct Example {
    found: Comparison,
    way: Way,
    off_key: bool,
    number: usize,
}

/// Examples of a group.
const EXAMPLES_MAX: usize = 3;

/// A reason in the list of permitted differences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The verdict's word.
    pub verdict: String,
    /// A pattern of the statement, with `*` for anything.
    pub pattern: String,
}

/// Reads the reasons out of `docs/differences.md`: the lines of its block that opens with "```differences".
#[must_use]
pub fn reasons(document: &str) -> Vec<Reason> {
    let block = document
        .lines()
        .skip_while(|line| !line.starts_with("```differences"))
        .skip(1);
    let lines = block.take_while(|line| !line.starts_with("```"));
    let reason = |line: &str| {
        let (verdict, pattern) = line.split_once(':')?;
        Some(Reason {
            verdict: verdict.trim().to_owned(),
            pattern: pattern.trim().to_owned(),
        })
    };
    lines.filter_map(reason).collect()
}

/// Whether `text` is made as `pattern` says, where `*` stands for anything.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Everything that a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Statements made.
    pub statements: usize,
    /// Messages compared, not counting those of the minimiser.
    pub messages: usize,
    verdicts: BTreeMap<Verdict, usize>,
    groups: BTreeMap<(Verdict, String), Group>,
    gaps: BTreeMap<String, (usize, String)>,
    messages_differ: BTreeMap<String, (usize, String)>,
    permitted: BTreeMap<String, usize>,
    reasons: Vec<Reason>,
    oracle_errors: BTreeMap<String, (usize, String)>,
}

impl Report {
    /// An empty report with the permitted differences.
    #[must_use]
    pub fn new(reasons: Vec<Reason>) -> Self {
        Self {
            reasons,
            ..Self::default()
        }
    }

    /// Counts a statement's worst verdict.
    pub fn verdict(&mut self, verdict: Verdict) {
        *self.verdicts.entry(verdict).or_default() += 1;
    }

    /// Notes an answer that counts as the same, for what it tells beside.
    pub fn same(&mut self, comparison: &Comparison) {
        if let (Answer::Error { code, message }, Answer::Error { message: own, .. }) =
            (&comparison.oracle, &comparison.weft)
        {
            let key = format!("{code} {}", normal(message));
            self.oracle_errors
                .entry(key)
                .or_insert((0, comparison.sql.clone()))
                .0 += 1;
            if message != own && comparison.verdict == Verdict::Same {
                let key = format!("{code}: {} <> {}", normal(message), normal(own));
                let entry = self
                    .messages_differ
                    .entry(key)
                    .or_insert((0, comparison.sql.clone()));
                entry.0 += 1;
            }
        }
    }

    /// Notes a gap.
    pub fn gap(&mut self, comparison: &Comparison) {
        if let Answer::Error { code, message } = &comparison.weft {
            let key = format!("{code} {}", normal(message));
            let entry = self.gaps.entry(key).or_insert((0, comparison.sql.clone()));
            entry.0 += 1;
            if comparison.sql.len() < entry.1.len() {
                entry.1 = comparison.sql.clone();
            }
        }
    }

    /// A cause that needs no minimising to be told from others, when it was seen often enough.
    #[must_use]
    pub fn well_known(&self, comparison: &Comparison) -> Option<String> {
        let key = error_cause(comparison)?;
        let seen = self
            .groups
            .get(&(comparison.verdict, key.clone()))
            .map_or(0, |group| group.count);
        (seen >= 6).then_some(key)
    }

    /// Notes a difference: its smallest statement and answers. Says whether it is a permitted one.
    pub fn difference(
        &mut self,
        tree: &Node,
        found: Comparison,
        way: Way,
        off_key: bool,
        number: usize,
    ) -> bool {
        let word = found.verdict.word();
        let reason = self
            .reasons
            .iter()
            .find(|r| r.verdict == word && matches(&r.pattern, &found.sql));
        if let Some(reason) = reason {
            *self.permitted.entry(reason.pattern.clone()).or_default() += 1;
            return true;
        }
        let key = error_cause(&found).unwrap_or_else(|| tree.shape());
        let group = self.groups.entry((found.verdict, key)).or_default();
        group.count += 1;
        if group
            .examples
            .iter()
            .all(|example| example.found.sql != found.sql)
        {
            group.examples.push(Example {
                found,
                way,
                off_key,
                number,
            });
            group.examples.sort_by_key(|example| example.found.sql.len());
            group.examples.truncate(EXAMPLES_MAX);
        }
        false
    }

    /// Counts one more of a cause that is known.
    pub fn once_more(&mut self, verdict: Verdict, key: String) {
        if let Some(group) = self.groups.get_mut(&(verdict, key)) {
            group.count += 1;
        }
    }

    /// How many statements differ.
    #[must_use]
    pub fn differences(&self) -> usize {
        self.groups.values().map(|group| group.count).sum()
    }

    /// How many statements got a wrong answer: other rows or columns, an internal error or none at all.
    #[must_use]
    pub fn wrong_answers(&self) -> usize {
        let wrong = self
            .groups
            .iter()
            .filter(|((verdict, _), _)| verdict.is_wrong_answer());
        wrong.map(|(_, group)| group.count).sum()
    }

    /// One line of counts.
    #[must_use]
    pub fn summary(&self) -> String {
        let counts: Vec<String> = self
            .verdicts
            .iter()
            .map(|(verdict, count)| format!("{count} {}", verdict.word()))
            .collect();
        format!(
            "{} statements, {} messages: {}; {} causes of differences",
            self.statements,
            self.messages,
            counts.join(", "),
            self.groups.len()
        )
    }

    /// The whole report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("{}\n", self.summary());
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|((verdict, key), group)| {
            (
                std::cmp::Reverse(*verdict),
                std::cmp::Reverse(group.count),
                key.clone(),
            )
        });
        let mut last = None;
        for ((verdict, key), group) in groups {
            if last.replace(*verdict) != Some(*verdict) {
                let _ = write!(out, "\n== {} ==\n", verdict.word());
            }
            let _ = writeln!(out, "\n{} x {key}", group.count);
            for example in &group.examples {
                let side = if example.off_key { ", off the key" } else { "" };
                let _ = write!(
                    out,
                    "    #{} ({}{side}): {}\n    postgres: {}\n    weft:     {}\n",
                    example.number,
                    example.way.word(),
                    example.found.sql,
                    example.found.oracle,
                    example.found.weft
                );
            }
        }
        list(&mut out, "unsupported", &self.gaps);
        list(
            &mut out,
            "messages of the same SQLSTATE that differ (not counted)",
            &self.messages_differ,
        );
        if !self.permitted.is_empty() {
            let _ = write!(out, "\n== permitted by docs/differences.md ==\n");
            for (pattern, count) in &self.permitted {
                let _ = writeln!(out, "{count} x {pattern}");
            }
        }
        list(&mut out, "errors that both report", &self.oracle_errors);
        out
    }
}

fn list(out: &mut String, title: &str, entries: &BTreeMap<String, (usize, String)>) {
    let _ = write!(out, "\n== {title} ==\n");
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|(key, (count, _))| (std::cmp::Reverse(*count), (*key).clone()));
    for (key, (count, example)) in sorted {
        let example: String = example.chars().take(200).collect();
        let _ = writeln!(out, "{count} x {key}\n        {example}");
    }
}

/// Weft's error says what the cause is where PostgreSQL has none of the kind.
fn error_cause(comparison: &Comparison) -> Option<String> {
    match (&comparison.oracle, &comparison.weft) {
        // Which word it is makes the difference.
        (_, Answer::Error { code, message }) if code == "42601" => Some(format!("{code} {message}")),
        (Answer::Rows(_), Answer::Error { code, message }) => Some(format!("{code} {}", normal(message))),
        (
            Answer::Error {
                code: oracle,
                message: theirs,
            },
            Answer::Error { code, message },
        ) => Some(format!(
            "{code} {} instead of {oracle} {}",
            normal(message),
            normal(theirs)
        )),
        _ => None,
    }
}

/// A message without its values.
fn normal(message: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    let mut text = String::new();
    for c in message.chars().take(160) {
        if c == '"' {
            if quoted {
                out.push_str("\"..\"");
                text.clear();
            }
            quoted = !quoted;
        } else if quoted {
            text.push(c);
        } else if c.is_ascii_digit() {
            if !out.ends_with('#') {
                out.push('#');
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        assert!(matches("SELECT * FROM a*", "SELECT x FROM a WHERE b"));
        assert!(matches("*sum(*", "SELECT sum(x)"));
        assert!(!matches("*sum(", "SELECT sum(x)"));
        assert!(matches("a", "a"));
        assert!(!matches("a", "ab"));
    }

    #[test]
    fn reasons_stand_in_one_block() {
        let text = "# Title\n```differences\nrows differ: *random*\n```\nrows differ: no\n";
        let expected = Reason {
            verdict: "rows differ".into(),
            pattern: "*random*".into(),
        };
        assert_eq!(reasons(text), [expected]);
    }

    #[test]
    fn values_are_no_part_of_a_cause() {
        assert_eq!(normal("column \"a\" has 123 bytes"), "column \"..\" has # bytes");
    }
}
