//! Records: statements with the answers that PostgreSQL 15 gave, in files of the sqllogictest format.
//!
//! ```text
//! # a comment                          statement ok            query int4 text rowsort
//!                                      INSERT INTO t ...       SELECT a, b FROM t
//! statement error 22012                                        ----
//! SELECT 1 / 0                                                 1 <tab> (empty)
//! ```
//!
//! A blank line ends a record. After `query` stand the types of the columns as PostgreSQL calls them, and
//! `rowsort` where the order of rows is not determined. A line of an answer is one row, its fields parted
//! by tabs and written by [`crate::answer::field_text`], exactly: nothing is rounded or trimmed. `skipif
//! extended` before a record leaves it out where statements are sent one by one as prepared ones (a message
//! of several statements). The format is read here and not by the crate `sqllogictest`, whose runner trims
//! white space, knows no SQLSTATE and brings 60 packages along.

pub mod author;
pub mod limits;
pub mod run;

use crate::answer::{Answer, Field, row_text};
use crate::types::Type;

/// What a statement should answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Not recorded yet.
    Nothing,
    /// Success without columns.
    Ok,
    /// An error of this SQLSTATE.
    Error(String),
    /// Rows.
    Rows {
        /// Types of the columns by name.
        types: Vec<String>,
        /// Whether rows are compared in sorted order.
        sorted: bool,
        /// One line for each row.
        lines: Vec<String>,
    },
}

/// A statement and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// Line of the statement's directive.
    pub line: usize,
    /// Whether it is left out of the extended protocol.
    pub simple_only: bool,
    /// The statement.
    pub sql: String,
    /// Its answer.
    pub expected: Expected,
}

impl Record {
    /// A record without an answer.
    #[must_use]
    pub fn of(sql: impl Into<String>) -> Self {
        Self {
            comments: Vec::new(),
            line: 0,
            simple_only: false,
            sql: sql.into(),
            expected: Expected::Nothing,
        }
    }
}

/// Reads the records of a file.
///
/// # Errors
/// The line that is no record.
pub fn parse(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut comments = Vec::new();
    let mut simple_only = false;
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        if line.is_empty() {
            continue;
        }
        if line.starts_with('#') {
            comments.push(line.to_owned());
            continue;
        }
        if line == "skipif extended" {
            simple_only = true;
            continue;
        }
        let mut body = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.is_empty()) {
            body.push(line.to_owned());
        }
        let divide = body.iter().position(|line| line == "----");
        let answer = divide.map(|divide| body.split_off(divide)).unwrap_or_default();
        let expected = expected(line, answer).ok_or_else(|| format!("line {}: {line}", at + 1))?;
        records.push(Record {
            comments: std::mem::take(&mut comments),
            line: at + 1,
            simple_only: std::mem::take(&mut simple_only),
            sql: body.join("\n"),
            expected,
        });
    }
    Ok(records)
}

fn expected(directive: &str, answer: Vec<String>) -> Option<Expected> {
    let mut words = directive.split_whitespace();
    match (words.next()?, words.next()) {
        ("record", None) => Some(Expected::Nothing),
        ("statement", Some("ok")) => Some(Expected::Ok),
        ("statement", Some("error")) => Some(Expected::Error(words.next()?.to_owned())),
        ("query", first) => {
            let mut types: Vec<String> = first.into_iter().chain(words).map(str::to_owned).collect();
            let sorted = types.last().is_some_and(|word| word == "rowsort");
            if sorted {
                types.pop();
            }
            let lines = answer.into_iter().skip(1).collect();
            Some(Expected::Rows { types, sorted, lines })
        }
        _ => None,
    }
}

/// Writes records as a file.
#[must_use]
pub fn write(records: &[Record]) -> String {
    let mut out = String::new();
    for record in records {
        for comment in &record.comments {
            out.push_str(comment);
            out.push('\n');
        }
        if record.simple_only {
            out.push_str("skipif extended\n");
        }
        let (directive, lines) = match &record.expected {
            Expected::Nothing => ("record".to_owned(), None),
            Expected::Ok => ("statement ok".to_owned(), None),
            Expected::Error(code) => (format!("statement error {code}"), None),
            Expected::Rows { types, sorted, lines } => {
                let sort = if *sorted { " rowsort" } else { "" };
                (format!("query {}{sort}", types.join(" ")), Some(lines))
            }
        };
        out.push_str(&format!("{directive}\n{}\n", record.sql));
        if let Some(lines) = lines {
            out.push_str("----\n");
            for line in lines {
                out.push_str(line);
                out.push('\n');
            }
        }
        out.push('\n');
    }
    out
}

/// The expectation that an answer fulfils; nothing where there was none.
#[must_use]
pub fn expectation(sql: &str, answer: &Answer) -> Option<Expected> {
    match answer {
        Answer::Broken(_) => None,
        Answer::Error { code, .. } => Some(Expected::Error(code.clone())),
        Answer::Rows(rows) if rows.columns.is_empty() && rows.values.is_empty() => Some(Expected::Ok),
        Answer::Rows(rows) => {
            let sorted = rows.values.len() > 1 && !sql.to_ascii_uppercase().contains("ORDER BY");
            Some(Expected::Rows {
                types: rows
                    .columns
                    .iter()
                    .map(|column| type_name(column.type_oid))
                    .collect(),
                sorted,
                lines: lines(&rows.values, sorted),
            })
        }
    }
}

fn lines(values: &[Vec<Field>], sorted: bool) -> Vec<String> {
    let mut lines: Vec<String> = values.iter().map(|row| row_text(row)).collect();
    // A row of a query without columns must not look like the end of a record.
    lines
        .iter_mut()
        .filter(|line| line.is_empty())
        .for_each(|line| line.push_str("()"));
    if sorted {
        lines.sort();
    }
    lines
}

/// Whether an answer is the expected one.
#[must_use]
pub fn fulfils(expected: &Expected, answer: &Answer) -> bool {
    match (expected, answer) {
        (Expected::Error(code), Answer::Error { code: own, .. }) => code == own,
        (Expected::Ok, Answer::Rows(rows)) => rows.columns.is_empty(),
        (
            Expected::Rows {
                types,
                sorted,
                lines: expected,
            },
            Answer::Rows(rows),
        ) => {
            let own: Vec<String> = rows
                .columns
                .iter()
                .map(|column| type_name(column.type_oid))
                .collect();
            own == *types && lines(&rows.values, *sorted) == *expected
        }
        _ => false,
    }
}

/// Names of types beyond those of [`crate::types`].
const OTHER_TYPES: [(u32, &str); 22] = [
    (18, "char"),
    (19, "name"),
    (26, "oid"),
    (25, "text"),
    (705, "unknown"),
    (1000, "bool[]"),
    (1005, "int2[]"),
    (1016, "int8[]"),
    (1021, "float4[]"),
    (1022, "float8[]"),
    (1231, "numeric[]"),
    (1182, "date[]"),
    (1115, "timestamp[]"),
    (1185, "timestamptz[]"),
    (1187, "interval[]"),
    (2951, "uuid[]"),
    (2205, "regclass"),
    (2206, "regtype"),
    (24, "regproc"),
    (2278, "void"),
    (2249, "record"),
    (1266, "timetz"),
];

fn type_name(oid: u32) -> String {
    if let Some(ty) = Type::of_oid(oid) {
        return ty.name().to_owned();
    }
    let other = OTHER_TYPES.iter().find(|(number, _)| *number == oid);
    other.map_or_else(|| format!("oid:{oid}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# what it is\nstatement ok\nCREATE TABLE t (a int)\n\nstatement error 22012\nSELECT 1 / 0\n\n\
                        skipif extended\nquery int4 text rowsort\nSELECT a, b\nFROM t\n----\n1\t(empty)\n2\tNULL\n\n";

    #[test]
    fn what_is_read_is_written_again() {
        let records = parse(FILE).expect("records");
        assert_eq!(records.len(), 3);
        assert_eq!(records[2].sql, "SELECT a, b\nFROM t");
        assert!(records[2].simple_only);
        assert_eq!(write(&records), FILE);
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert_eq!(parse("\nhalt\n"), Err("line 2: halt".to_owned()));
    }

    #[test]
    fn types_and_rows_must_be_those_recorded() {
        let rows = |oid, value: &str| {
            Answer::Rows(crate::answer::Rows {
                columns: vec![crate::answer::Column {
                    name: "a".into(),
                    type_oid: oid,
                    modifier: -1,
                }],
                values: vec![vec![Some(value.into())]],
                tag: "SELECT 1".into(),
                binary: false,
            })
        };
        let expected = expectation("SELECT 1", &rows(23, "1")).expect("an answer");
        assert!(fulfils(&expected, &rows(23, "1")));
        assert!(!fulfils(&expected, &rows(20, "1")));
        assert!(!fulfils(&expected, &rows(23, "1.0")));
    }
}
