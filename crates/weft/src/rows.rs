//! Results kept in memory, for callers inside the process.

use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;

use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value, assign};

use crate::sink::{CommandTag, CopyHeader, OutputColumn, ResultSink, RowRef};

/// Bytes that are read at one time of data to copy.
const COPY_PIECE_BYTES: usize = 64 * 1024;

/// The rows of one statement, as values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    columns: Vec<OutputColumn>,
    rows: Vec<Vec<Value>>,
}

impl Rows {
    /// The columns, in order.
    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One value; NULL where there is none.
    pub fn value(&self, row: usize, column: usize) -> Value {
        self.rows
            .get(row)
            .and_then(|row| row.get(column))
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &[Value]> {
        self.rows.iter().map(Vec::as_slice)
    }
}

/// A sink that keeps the last statement's rows and tag.
#[derive(Debug, Default)]
pub struct Collected {
    rows: Rows,
    layout: Option<RowLayout>,
    tags: Vec<CommandTag>,
    pub(crate) broken: bool,
}

impl Collected {
    /// Rows returned or changed by the last statement.
    pub fn affected(&self) -> u64 {
        self.tags.last().and_then(|tag| tag.rows).unwrap_or(0)
    }

    /// The tags of all statements, in order.
    pub fn tags(&self) -> &[CommandTag] {
        &self.tags
    }

    /// The last statement's rows.
    pub fn into_rows(self) -> Rows {
        self.rows
    }
}

impl ResultSink for Collected {
    fn columns(&mut self, columns: &[OutputColumn]) {
        let types: Vec<SqlType> = columns.iter().map(|column| column.ty).collect();
        self.layout = Some(RowLayout::new(&types));
        self.rows = Rows {
            columns: columns.to_vec(),
            rows: Vec::new(),
        };
    }

    fn row(&mut self, row: RowRef<'_>) -> ControlFlow<()> {
        match row.layout.decode(row.bytes) {
            Ok(values) => {
                self.rows.rows.push(values);
                ControlFlow::Continue(())
            }
            Err(_) => {
                self.broken = true;
                ControlFlow::Break(())
            }
        }
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.tags.push(tag.clone());
    }
}

/// A sink whose data for COPY FROM STDIN comes from a reader.
pub(crate) struct Given<'r> {
    input: &'r mut dyn Read,
    rows: u64,
}

impl<'r> Given<'r> {
    pub(crate) fn new(input: &'r mut dyn Read) -> Given<'r> {
        Given { input, rows: 0 }
    }

    /// Rows that the last statement has copied.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }
}

impl ResultSink for Given<'_> {
    fn columns(&mut self, _columns: &[OutputColumn]) {}

    fn row(&mut self, _row: RowRef<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn complete(&mut self, tag: &CommandTag) {
        self.rows = tag.rows.unwrap_or(0);
    }

    fn copy_in(
        &mut self,
        _header: CopyHeader,
        take: &mut dyn FnMut(&[u8]) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut piece = vec![0; COPY_PIECE_BYTES];
        loop {
            let read = match self.input.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| {
                    SqlError::new(
                        SqlState::IO_ERROR,
                        format!("could not read the data to copy: {error}"),
                    )
                })?,
            };
            match piece.get(..read) {
                None | Some([]) => return Ok(()),
                Some(data) => take(data)?,
            }
        }
    }
}

/// Brings values to the types of a statement's parameters.
pub(crate) fn assign_all(values: &[Value], types: &[SqlType]) -> Result<Vec<Value>, SqlError> {
    if values.len() != types.len() {
        return Err(SqlError::new(
            SqlState("08P01"),
            format!(
                "the statement has {} parameters, {} were given",
                types.len(),
                values.len()
            ),
        ));
    }
    values
        .iter()
        .zip(types)
        .map(|(value, ty)| assign(value.clone(), ty))
        .collect()
}
