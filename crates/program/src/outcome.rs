//! What a program gives back: rows and counts, one entry per statement, and notices. Buffers keep their
//! memory between runs.

use weft_types::Notice;

/// Encoded rows one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBuffer {
    /// Rows in the layout of the statement's output.
    pub data: Vec<u8>,
    /// End of each row in `data`.
    pub ends: Vec<u32>,
}

impl RowBuffer {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// One row's bytes.
    pub fn row(&self, number: usize) -> Option<&[u8]> {
        let end = *self.ends.get(number)? as usize;
        let start = match number.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.data.get(start..end)
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|number| self.row(number))
    }

    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }
}

/// One statement's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementOutcome {
    /// Result rows: a SELECT's, or RETURNING.
    pub rows: RowBuffer,
    /// Rows inserted, updated or removed, as COUNT added them up.
    pub affected: u64,
}

/// The result of one run. After an error its content means nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In statement order.
    pub statements: Vec<StatementOutcome>,
    /// What the client is told besides, in the order in which it was said.
    pub notices: Vec<Notice>,
}

impl Outcome {
    pub(crate) fn reset(&mut self, statement_count: usize) {
        self.notices.clear();
        self.statements.truncate(statement_count);
        for statement in &mut self.statements {
            statement.rows.clear();
            statement.affected = 0;
        }
        self.statements
            .resize_with(statement_count, StatementOutcome::default);
    }
}
