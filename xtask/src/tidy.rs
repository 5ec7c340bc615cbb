//! Style as a test: every rule of the project that a machine can check.
//!
//! | rule             | what it says                                               | module       |
//! | ---------------- | ---------------------------------------------------------- | ------------ |
//! | `floors`         | calls between crates go down, never up or sideways; fences | [`floors`]   |
//! | `file-lines`     | a source file has at most 800 lines without its tests      | [`sizes`]    |
//! | `function-lines` | a function has at most 100 lines                           | [`sizes`]    |
//! | `line-width`     | a source line has at most 110 columns                      | [`sizes`]    |
//! | `head`           | every Rust file opens by explaining itself                 | [`contents`] |
//! | `markers`        | nothing unfinished is left in code                         | [`contents`] |
//! | `machine-paths`  | no path of somebody's machine is in the sources            | [`contents`] |
//! | `names`          | no file is named after nothing                             | [`contents`] |
//! | `named-paths`    | paths named in ARCHITECTURE.md and README.md exist         | [`paths`]    |
//! | `glossary`       | no word of docs/GLOSSARY.md has two meanings               | [`glossary`] |
//! | `figures`        | figures show kept rows, and rows are of commits            | [`figures`]  |
//!
//! A size rule can be suspended for one file or function, until a date, in `xtask/tidy-exemptions.txt`
//! ([`exemptions`]); an exemption that is out of date, or that nothing needs any more, is itself a finding.

mod contents;
mod exemptions;
mod figures;
mod floors;
mod glossary;
mod paths;
mod rust_source;
mod sizes;
mod tree;

use std::fmt;
use std::io;
use std::path::Path;

/// One place where a rule does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule's name, as in the table above and in the exemption list.
    pub rule: &'static str,
    /// Path from the workspace root; for `function-lines` with `::function` appended.
    pub subject: String,
    /// Line, counted from 1; 0 when the finding is about the whole file.
    pub line: usize,
    /// What is wrong, in one sentence.
    pub message: String,
}

impl Finding {
    fn new(rule: &'static str, subject: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            rule,
            subject: subject.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: [{}] {}", self.subject, self.rule, self.message)
        } else {
            write!(
                f,
                "{}:{}: [{}] {}",
                self.subject, self.line, self.rule, self.message
            )
        }
    }
}

/// Checks every rule over the workspace at `root`; an empty list means that all of them hold.
pub fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let files = tree::read(root)?;
    let mut findings = floors::check(&files);
    for file in &files {
        findings.extend(sizes::check(file));
        findings.extend(contents::check(file));
    }
    findings.extend(paths::check(&files, |path| root.join(path).exists()));
    findings.extend(glossary::check(&files));
    let history = figures::History::of(root);
    findings.extend(figures::check(&files, |commit| history.has(commit)));
    let list = std::fs::read_to_string(root.join(exemptions::LIST)).unwrap_or_default();
    Ok(exemptions::apply(&list, exemptions::Date::today(), findings))
}
