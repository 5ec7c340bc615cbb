//! Results kept in memory, for callers inside the process.

use std::ops::ControlFlow;

use weft_types::{RowLayout, SqlError, SqlState, SqlType, Value, assign};

use crate::sink::{CommandTag, OutputColumn, ResultSink, RowRef};

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
