//! TPC-H: its tables, rows and queries for the embedded database.
//!
//! Rows are those of `dbgen`, made by the library `tpchgen`. They enter through COPY, as a user's would, in
//! parts, because the rows of one transaction are bounded (`docs/limits.md`). Schema and queries are the
//! files of `experiments/tpch`, which also compares with other systems.
//!
//! Source: TPC-H, revision 3.0.1.

use std::fmt::{Display, Write as _};
use std::io::{self, Read};

use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use weft::{Database, Session};

use crate::driver::RunError;

/// Statements that make the tables and their indexes.
const SCHEMA: &str = include_str!("../../../experiments/tpch/schema.sql");
const QUERIES: &str = include_str!("../../../experiments/tpch/queries.sql");
/// Rows of one transaction.
const PART_ROWS: usize = 250_000;

/// A query by its name, Q1 to Q22.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Its name.
    pub name: String,
    /// Its text.
    pub sql: String,
}

/// The 22 queries with the parameters of TPC-H's validation, for rows of this scale factor.
#[must_use]
pub fn queries(scale: f64) -> Vec<Query> {
    // Section 2.4.11.3: the fraction of Q11 depends on the scale factor.
    let text = QUERIES.replace("{fraction}", &format!("{:.10}", 0.0001 / scale));
    // The head of the file names queries, too.
    let sections = text.split("\n-- Q").skip(1);
    let query = |section: &str| {
        let (number, sql) = section.split_once('\n')?;
        let sql = sql.trim().trim_end_matches(';').to_owned();
        let name = format!("Q{number}");
        Some(Query { name, sql })
    };
    sections.filter_map(query).collect()
}

/// Makes the tables and loads all rows of a scale factor; `progress` is told the table and how many rows have
/// been loaded so far, of all tables.
///
/// # Errors
/// Whatever the database refuses.
pub fn load(database: &Database, scale: f64, progress: &mut dyn FnMut(&str, u64)) -> Result<u64, RunError> {
    let mut session = database.session();
    for statement in SCHEMA.split_inclusive(';').filter(|part| part.contains(';')) {
        let made = session.run(statement);
        made.map_err(|error| RunError::doing("making TPC-H's tables", error))?;
    }
    let mut loading = Loading {
        session,
        rows: 0,
        progress,
    };
    loading.table(
        "region",
        RegionGenerator::new(scale, 1, 1).iter().map(RegionCsv::new),
    )?;
    loading.table(
        "nation",
        NationGenerator::new(scale, 1, 1).iter().map(NationCsv::new),
    )?;
    loading.table("part", PartGenerator::new(scale, 1, 1).iter().map(PartCsv::new))?;
    loading.table(
        "supplier",
        SupplierGenerator::new(scale, 1, 1).iter().map(SupplierCsv::new),
    )?;
    loading.table(
        "partsupp",
        PartSuppGenerator::new(scale, 1, 1).iter().map(PartSuppCsv::new),
    )?;
    loading.table(
        "customer",
        CustomerGenerator::new(scale, 1, 1).iter().map(CustomerCsv::new),
    )?;
    loading.table(
        "orders",
        OrderGenerator::new(scale, 1, 1).iter().map(OrderCsv::new),
    )?;
    loading.table(
        "lineitem",
        LineItemGenerator::new(scale, 1, 1).iter().map(LineItemCsv::new),
    )?;
    Ok(loading.rows)
}

struct Loading<'p> {
    session: Session,
    rows: u64,
    progress: &'p mut dyn FnMut(&str, u64),
}

impl Loading<'_> {
    fn table(&mut self, name: &str, rows: impl Iterator<Item = impl Display>) -> Result<(), RunError> {
        let copy = format!("COPY {name} FROM STDIN WITH (FORMAT csv)");
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut part = Lines::new(rows.by_ref().take(PART_ROWS));
            let copied = self.session.copy_in(&copy, &mut part);
            self.rows += copied.map_err(|error| RunError::doing(&copy, error))?;
            (self.progress)(name, self.rows);
        }
        Ok(())
    }
}

/// Rows as a file of lines.
struct Lines<R> {
    rows: R,
    line: String,
    /// Bytes of the line that were read.
    read: usize,
}

impl<R> Lines<R> {
    fn new(rows: R) -> Lines<R> {
        Lines {
            rows,
            line: String::new(),
            read: 0,
        }
    }
}

impl<R: Iterator<Item = impl Display>> Read for Lines<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.read == self.line.len() {
            self.line.clear();
            self.read = 0;
            // As many lines as there is room for bytes, not one at a time.
            while self.line.len() < into.len()
                && let Some(row) = self.rows.next()
            {
                writeln!(self.line, "{row}").map_err(io::Error::other)?;
            }
        }
        let mut left = self.line.as_bytes().get(self.read..).unwrap_or_default();
        let read = left.read(into)?;
        self.read += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_22_queries_and_rows_are_read_whole() {
        let queries = queries(0.5);
        let names: Vec<&str> = queries.iter().map(|query| query.name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[21]), (22, "Q1", "Q22"));
        assert!(queries[10].sql.contains("0.0002000000"), "{}", queries[10].sql);
        assert!(queries.iter().all(|query| !query.sql.contains(';')));

        let expected: String = (0..5000).map(|row| format!("{row}\n")).collect();
        for piece in [1, 7, 4096, 1 << 20] {
            let (mut lines, mut found, mut buffer) = (Lines::new(0..5000), Vec::new(), vec![0; piece]);
            loop {
                match lines.read(&mut buffer).unwrap() {
                    0 => break,
                    read => found.extend_from_slice(&buffer[..read]),
                }
            }
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{piece}");
        }
    }
}
