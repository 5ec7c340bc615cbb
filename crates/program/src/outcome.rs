//! The result of a program: rows and counts of each statement, and notices.
//!
//! The rows of all statements are in one buffer, in the order in which they were emitted, each with the
//! number of its statement: a transaction of many statements with a row each needs no allocation for each.
//! Buffers keep their memory between runs.

use weft_types::{Notice, SqlError};

/// The end of a row, and its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowEnd {
    statement: u32,
    /// In the outcome's bytes; it begins where the previous row ends.
    end: u32,
}

/// The result of one statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statement {
    affected: u64,
    /// Its first row, by number over all statements.
    first: u32,
    behind: u32,
    /// How many rows it has.
    rows: u32,
}

impl Statement {
    /// Offset of the count of affected rows.
    #[cfg(feature = "compiled")]
    pub(crate) const AFFECTED_OFFSET: usize = std::mem::offset_of!(Statement, affected);
}

/// The result of one run. Undefined after an error.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    bytes: Vec<u8>,
    rows: Vec<RowEnd>,
    statements: Vec<Statement>,
    /// Messages for the client, in order.
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

/// The approximate size of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputSize {
    pub bytes: u32,
    pub rows: u32,
}

impl OutputSize {
    /// The most bytes and rows for which memory is reserved in advance.
    const MAX: OutputSize = OutputSize {
        bytes: 64 << 10,
        rows: 4 << 10,
    };

    /// The estimate after a run of this size: a little more than that, or a little less than before.
    fn with(self, taken: OutputSize) -> OutputSize {
        let one = |before: u32, taken: u32, max: u32| match taken.min(max) {
            taken if taken > before => (taken + taken / 8).min(max),
            taken => before - (before - taken) / 8,
        };
        OutputSize {
            bytes: one(self.bytes, taken.bytes, OutputSize::MAX.bytes),
            rows: one(self.rows, taken.rows, OutputSize::MAX.rows),
        }
    }
}

/// Expected output sizes of the programs that ran on this thread recently.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputSizes([(usize, OutputSize); OUTPUT_SIZES]);

/// A power of two.
const OUTPUT_SIZES: usize = 32;

impl OutputSizes {
    fn slot(&mut self, program: usize) -> &mut (usize, OutputSize) {
        // Numbers are addresses, so the low bits carry little information.
        &mut self.0[(program ^ program >> 7) / 16 % OUTPUT_SIZES]
    }

    /// The expected output size of a program with this number.
    #[inline]
    pub fn of(&mut self, program: usize) -> OutputSize {
        let (whose, output_size) = *self.slot(program);
        if whose == program {
            output_size
        } else {
            OutputSize::default()
        }
    }

    /// Records the output size of a run.
    #[inline]
    pub fn note(&mut self, program: usize, output_size: OutputSize, taken: OutputSize) {
        *self.slot(program) = (program, output_size.with(taken));
    }
}

/// The outcome of emitting a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Emitted {
    /// It is the statement's last.
    Row,
    /// The rows would exceed the allowed bytes. The row is not kept.
    TooLong,
    /// There is no such statement. The row is not kept.
    NoStatement,
}

impl Outcome {
    /// The result of a run elsewhere: a count for each statement, and all rows in the order in which they
    /// were emitted, each with its statement's number. `None` if a row is of no statement, or there are more
    /// bytes than an outcome holds.
    pub fn of_rows<'r>(counts: &[u64], rows: impl IntoIterator<Item = (usize, &'r [u8])>) -> Option<Outcome> {
        let mut outcome = Outcome::default();
        outcome.reset(counts.len());
        for (statement, count) in outcome.statements.iter_mut().zip(counts) {
            statement.affected = *count;
        }
        for (statement, row) in rows {
            let write = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(row);
                Ok(())
            };
            let emitted = outcome.emit(statement, OutputSize::default(), u32::MAX as usize, write);
            if emitted != Ok(Emitted::Row) {
                return None;
            }
        }
        Some(outcome)
    }

    /// How many statements there were.
    pub fn statement_count(&self) -> usize {
        self.statements.len()
    }

    /// Bytes of all rows.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The size of all rows.
    pub(crate) fn output_size(&self) -> OutputSize {
        let of = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        OutputSize {
            bytes: of(self.bytes.len()),
            rows: of(self.rows.len()),
        }
    }

    /// The result of one statement.
    pub fn statement(&self, number: usize) -> Option<StatementOutcome<'_>> {
        let statement = *self.statements.get(number)?;
        Some(StatementOutcome {
            outcome: self,
            number: number as u32,
            statement,
        })
    }

    /// The result of each statement, in statement order.
    pub fn statements(&self) -> impl Iterator<Item = StatementOutcome<'_>> {
        (0..self.statements.len()).filter_map(|number| self.statement(number))
    }

    /// Clears the outcome.
    pub(crate) fn reset(&mut self, statement_count: usize) {
        self.notices.clear();
        self.bytes.clear();
        self.rows.clear();
        self.statements.clear();
        self.statements.resize(statement_count, Statement::default());
    }

    /// The address of the statements' results, for machine code; it stays valid until the next
    /// [`Outcome::reset`].
    #[cfg(feature = "compiled")]
    pub(crate) fn statements_mut(&mut self) -> *mut Statement {
        self.statements.as_mut_ptr()
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

    /// Appends a row that `write` writes behind the existing bytes; it leaves nothing if that fails. The
    /// first row reserves memory for the expected size. `bytes_max` is the limit for all rows.
    #[inline]
    pub(crate) fn emit(
        &mut self,
        statement: usize,
        output_size: OutputSize,
        bytes_max: usize,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), SqlError>,
    ) -> Result<Emitted, SqlError> {
        if self.rows.is_empty() {
            self.bytes.reserve(output_size.bytes as usize);
            // One row for each, if nothing else is known.
            self.rows
                .reserve(self.statements.len().max(output_size.rows as usize));
        }
        let before = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        let Some(whose) = self.statements.get_mut(statement) else {
            self.bytes.truncate(before);
            return Ok(Emitted::NoStatement);
        };
        let end = match u32::try_from(self.bytes.len()) {
            Ok(end) if end as usize <= bytes_max => end,
            _ => {
                self.bytes.truncate(before);
                return Ok(Emitted::TooLong);
            }
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
        Ok(Emitted::Row)
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
    /// Rows inserted, updated or removed, as counted by COUNT.
    pub fn affected(&self) -> u64 {
        self.statement.affected
    }

    /// The number of rows that it returned: a SELECT's, or RETURNING.
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

    fn emit(outcome: &mut Outcome, statement: usize, row: &[u8]) -> Emitted {
        let write = |bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(row);
            Ok(())
        };
        outcome.emit(statement, OutputSize::default(), 20, write).unwrap()
    }

    #[test]
    fn output_sizes_follow_what_is_taken() {
        let of = |bytes, rows| OutputSize { bytes, rows };
        let mut output_sizes = OutputSizes::default();
        output_sizes.note(4_096, OutputSize::default(), of(800, 11));
        assert_eq!(output_sizes.of(4_096), of(900, 12));
        assert_eq!(output_sizes.of(4_112), OutputSize::default());
        for _ in 0..100 {
            let output_size = output_sizes.of(4_096);
            output_sizes.note(4_096, output_size, of(400, 11));
        }
        assert!((400..408).contains(&output_sizes.of(4_096).bytes));
        output_sizes.note(4_096, OutputSize::default(), of(u32::MAX, u32::MAX));
        assert_eq!(output_sizes.of(4_096), OutputSize::MAX);
        // Another program in the same place.
        output_sizes.note(4_096 + (1 << 40), OutputSize::default(), of(8, 1));
        assert_eq!(output_sizes.of(4_096), OutputSize::default());
    }

    #[test]
    fn each_statement_has_its_own_rows_in_order() {
        let mut outcome = Outcome::default();
        for _ in 0..2 {
            outcome.reset(3);
            for (statement, row) in [(1, "one"), (0, "nought"), (1, ""), (1, "two")] {
                assert_eq!(emit(&mut outcome, statement, row.as_bytes()), Emitted::Row);
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
    fn an_outcome_made_of_rows_is_the_one_that_was_emitted() {
        let mut outcome = Outcome::default();
        outcome.reset(2);
        let rows = [(1, &b"one"[..]), (0, b""), (1, b"two")];
        for (statement, row) in rows {
            assert_eq!(emit(&mut outcome, statement, row), Emitted::Row);
        }
        assert!(outcome.count(1, 7));
        assert_eq!(Outcome::of_rows(&[0, 7], rows), Some(outcome.clone()));
        assert_ne!(Outcome::of_rows(&[1, 7], rows), Some(outcome.clone()));
        assert_ne!(Outcome::of_rows(&[0, 7], rows.into_iter().rev()), Some(outcome));
        assert_eq!(Outcome::of_rows(&[0], rows), None);
    }

    #[test]
    fn a_row_that_fails_or_is_too_long_leaves_nothing() {
        let mut outcome = Outcome::default();
        outcome.reset(2);
        assert_eq!(emit(&mut outcome, 1, b"before"), Emitted::Row);
        assert_eq!(emit(&mut outcome, 0, &[1; 15]), Emitted::TooLong);
        let fails = outcome.emit(0, OutputSize::default(), 20, |bytes| {
            bytes.extend_from_slice(b"a part");
            Err(SqlError::internal("it broke"))
        });
        assert_eq!(fails.unwrap_err().message, "it broke");
        assert_eq!(emit(&mut outcome, 2, b""), Emitted::NoStatement);
        assert_eq!(emit(&mut outcome, 0, b"behind"), Emitted::Row);
        let rows: Vec<_> = outcome.statements().flat_map(|of| of.rows()).collect();
        assert_eq!(rows, [b"behind", b"before"]);
        assert_eq!(outcome.row_bytes(), 12);
    }
}
