//! What a program gives back: rows and counts of each statement, and notices.
//!
//! The rows of all statements lie in one buffer, in the order in which they were emitted, each with the
//! number of its statement: a transaction of many statements with a row each needs no memory for each.
//! Buffers keep their memory between runs.

use weft_types::{Notice, SqlError};

/// Where a row ends, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowEnd {
    statement: u32,
    /// In the outcome's bytes; it begins where the row before it ends.
    end: u32,
}

/// What is known of one statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Statement {
    affected: u64,
    /// Its rows lie among these, by number over all statements.
    first: u32,
    behind: u32,
    /// How many rows it has.
    rows: u32,
}

/// The result of one run. After an error its content means nothing.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    bytes: Vec<u8>,
    rows: Vec<RowEnd>,
    statements: Vec<Statement>,
    /// Bytes that room is made for with the first row.
    room: usize,
    /// What the client is told besides, in the order in which it was said.
    pub notices: Vec<Notice>,
}

/// The same rows, counts and notices.
impl PartialEq for Outcome {
    fn eq(&self, other: &Self) -> bool {
        (&self.bytes, &self.rows, &self.statements, &self.notices)
            == (&other.bytes, &other.rows, &other.statements, &other.notices)
    }
}

impl Eq for Outcome {}

impl Outcome {
    /// How many statements there were.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Bytes of all rows.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// What one statement gave.
    pub fn statement(&self, number: usize) -> Option<StatementOutcome<'_>> {
        let statement = *self.statements.get(number)?;
        Some(StatementOutcome {
            outcome: self,
            number: number as u32,
            statement,
        })
    }

    /// What each statement gave, in statement order.
    pub fn statements(&self) -> impl Iterator<Item = StatementOutcome<'_>> {
        (0..self.statements.len()).filter_map(|number| self.statement(number))
    }

    /// Begins anew, with room for so many bytes once there is a row.
    pub(crate) fn reset(&mut self, statement_count: usize, room: usize) {
        self.notices.clear();
        self.bytes.clear();
        self.room = room;
        self.rows.clear();
        self.statements.clear();
        self.statements.resize(statement_count, Statement::default());
    }

    pub(crate) fn has_statement(&self, number: usize) -> bool {
        number < self.statements.len()
    }

    /// Adds to the count of rows that a statement affected. False: there is no such statement.
    pub(crate) fn count(&mut self, statement: usize, add: i64) -> bool {
        match self.statements.get_mut(statement) {
            Some(statement) => {
                statement.affected = statement.affected.saturating_add_signed(add);
                true
            }
            None => false,
        }
    }

    /// Appends a row that `write` puts behind the bytes that are there. Leaves nothing if that fails, and
    /// says false if there would be more than `bytes_max` of them, of all statements, or if there is no such
    /// statement, which callers have seen to.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        statement: usize,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), SqlError>,
    ) -> Result<bool, SqlError> {
        if self.rows.is_empty() {
            self.bytes.reserve(self.room);
            // A row each, as a rule.
            self.rows.reserve(self.statements.len());
        }
        let before = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        let end = u32::try_from(self.bytes.len())
            .ok()
            .filter(|end| *end as usize <= bytes_max);
        let Some((end, whose)) = end.zip(self.statements.get_mut(statement)) else {
            self.bytes.truncate(before);
            return Ok(false);
        };
        let number = self.rows.len() as u32;
        if whose.rows == 0 {
            whose.first = number;
        }
        whose.rows += 1;
        whose.behind = number + 1;
        self.rows.push(RowEnd {
            statement: statement as u32,
            end,
        });
        Ok(true)
    }

    /// The row with a number over all statements, if it is this statement's.
    fn row_of(&self, statement: u32, number: usize) -> Option<&[u8]> {
        let row = self.rows.get(number).filter(|row| row.statement == statement)?;
        let start = match number.checked_sub(1) {
            Some(before) => self.rows.get(before)?.end as usize,
            None => 0,
        };
        self.bytes.get(start..row.end as usize)
    }
}

/// One statement's result.
#[derive(Clone, Copy, Debug)]
pub struct StatementOutcome<'o> {
    outcome: &'o Outcome,
    number: u32,
    statement: Statement,
}

impl<'o> StatementOutcome<'o> {
    /// Rows inserted, updated or removed, as COUNT added them up.
    pub fn affected(&self) -> u64 {
        self.statement.affected
    }

    /// How many rows it gave: a SELECT's, or RETURNING.
    pub fn row_count(&self) -> usize {
        self.statement.rows as usize
    }

    /// Its rows in order, in the layout of the statement's output.
    pub fn rows(&self) -> impl Iterator<Item = &'o [u8]> + use<'o> {
        let (outcome, number) = (self.outcome, self.number);
        let among = self.statement.first as usize..self.statement.behind as usize;
        among.filter_map(move |row| outcome.row_of(number, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit(outcome: &mut Outcome, statement: usize, row: &[u8]) -> bool {
        let write = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(row);
            Ok(())
        };
        outcome.emit(statement, 20, write).unwrap()
    }

    #[test]
    fn each_statement_has_its_own_rows_in_order() {
        let mut outcome = Outcome::default();
        for _ in 0..2 {
            outcome.reset(3, 0);
            for (statement, row) in [(1, "one"), (0, "nought"), (1, ""), (1, "two")] {
                assert!(emit(&mut outcome, statement, row.as_bytes()));
            }
            assert!(outcome.count(2, 5) && outcome.count(2, -2) && !outcome.count(3, 1));
            let rows = |number| -> Vec<&[u8]> { outcome.statement(number).unwrap().rows().collect() };
            assert_eq!(rows(0), [b"nought"]);
            assert_eq!(rows(1), [&b"one"[..], b"", b"two"]);
            assert!(rows(2).is_empty() && outcome.statement(3).is_none());
            let counts: Vec<_> = outcome
                .statements()
                .map(|of| (of.row_count(), of.affected()))
                .collect();
            assert_eq!(counts, [(1, 0), (3, 0), (0, 3)]);
        }
    }

    #[test]
    fn a_row_that_fails_or_is_too_long_leaves_nothing() {
        let mut outcome = Outcome::default();
        outcome.reset(2, 0);
        assert!(emit(&mut outcome, 1, b"before"));
        assert!(!emit(&mut outcome, 0, &[1; 15]));
        let fails = outcome.emit(0, 20, |bytes| {
            bytes.extend_from_slice(b"a part");
            Err(SqlError::internal("it broke"))
        });
        assert_eq!(fails.unwrap_err().message, "it broke");
        assert!(!emit(&mut outcome, 2, b""), "no such statement");
        assert!(emit(&mut outcome, 0, b"behind"));
        let rows: Vec<_> = outcome.statements().flat_map(|of| of.rows()).collect();
        assert_eq!(rows, [b"behind", b"before"]);
        assert_eq!(outcome.row_bytes(), 12);
    }
}
