//! Layouts that the rows of a table had before its columns were changed.
//!
//! ```text
//!   batch       2             7                     9
//!               CREATE        ADD COLUMN c          DROP COLUMN a        the definition now
//!   columns     a b           a b c                 b c                  b c
//!               |---- until 7 ----|---- until 9 ----|
//!               b <- column 1     b <- column 1
//!               c <- the default  c <- column 2
//! ```
//!
//! ADD COLUMN and DROP COLUMN change the definition and no row. A row stays as it was written, in memory, on
//! disk and in the state digest, and the batch that wrote it tells its layout: the one of then. Whoever reads
//! it under the present definition gets a copy with the present columns; a row that is written again has the
//! present layout.
//!
//! 1. `until` ascends from one earlier layout to the next: versions of batches below it, and not below that
//!    of the one before, have this layout. Versions from the last one on have the present layout.
//! 2. There is a source for each present column. A column that it names has the present column's type.
//! 3. Two changes in one batch leave one earlier layout: no row was written between them.
//!
//! Source: decision 0042; PostgreSQL's missing attributes (`pg_attribute.attmissingval`).

use std::sync::Arc;

use weft_base::{BatchId, ByteReader, ByteWriter, CodecError};
use weft_types::{RowLayout, SqlType, Value};

use super::codec;
use super::definition::{COLUMNS_MAX, TableDef};

/// Earlier layouts that a table has at most: the next change of its columns rewrites its rows.
pub const EARLIER_LAYOUTS_MAX: usize = 64;

/// A batch number above all: changes of definitions that are not in a batch yet.
pub(super) const NOT_YET: BatchId = BatchId(u64::MAX);

/// How rows were laid out that were written before a change of columns.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierLayout {
    until: BatchId,
    layout: RowLayout,
    sources: Vec<Source>,
}

/// Where a present column's value is.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// In this column of the row.
    Column(usize),
    /// The row has no such column.
    Fill(Fill),
}

/// The value of a column that a row does not have.
#[derive(Clone, Debug, PartialEq)]
struct Fill {
    value: Value,
    /// As [`RowLayout::raw`] gives it; `None` for NULL.
    raw: Option<Box<[u8]>>,
}

impl Fill {
    fn new(ty: &SqlType, value: &Value) -> Fill {
        let one = RowLayout::new(std::slice::from_ref(ty));
        // A value that does not fit its column is refused before (`codec::check_fill`).
        let row = one.encode(std::slice::from_ref(value)).unwrap_or_default();
        Fill {
            value: value.clone(),
            raw: one.raw(&row, 0).map(Box::from),
        }
    }
}

impl EarlierLayout {
    /// The layout.
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// The same row with the present columns, `present` being their layout. Replaces what was in `row`.
    pub fn convert(&self, present: &RowLayout, earlier: &[u8], row: &mut Vec<u8>) {
        row.clear();
        row.extend_from_slice(present.null_row());
        for (column, source) in self.sources.iter().enumerate() {
            let raw = match source {
                Source::Column(column) => self.layout.raw(earlier, *column),
                Source::Fill(fill) => fill.raw.as_deref(),
            };
            if let Some(raw) = raw {
                // Types are the same, and a row is far from 4 GiB (`docs/limits.md`).
                let appended = present.append_raw(row, column, raw);
                debug_assert!(appended.is_ok(), "a column of another type, or a row of 4 GiB");
            }
        }
    }
}

impl TableDef {
    /// Versions of batches below this one have an earlier layout; 0 if none can.
    pub fn laid_out_since(&self) -> BatchId {
        self.earlier.last().map_or(BatchId(0), |last| last.until)
    }

    /// The earlier layout of rows that a batch wrote; `None` if they have the present one.
    pub fn earlier_layout(&self, batch: BatchId) -> Option<&EarlierLayout> {
        let number = self.earlier.partition_point(|earlier| earlier.until <= batch);
        self.earlier.get(number).map(Arc::as_ref)
    }

    /// The layout of rows that a batch wrote.
    pub fn layout_at(&self, batch: BatchId) -> &RowLayout {
        self.earlier_layout(batch)
            .map_or(&self.layout, EarlierLayout::layout)
    }

    /// A row that a batch wrote, in the present layout: itself, or a copy in `buffer`.
    #[inline]
    pub fn present<'r>(&self, batch: BatchId, row: &'r [u8], buffer: &'r mut Vec<u8>) -> &'r [u8] {
        if batch >= self.laid_out_since() {
            return row;
        }
        match self.earlier_layout(batch) {
            Some(earlier) => {
                earlier.convert(&self.layout, row, buffer);
                buffer
            }
            None => row,
        }
    }

    /// Keeps the layout that this table has now as an earlier one: rows written before batch `until` have it.
    /// The columns are changed afterwards: [`TableDef::column_added`], [`TableDef::column_dropped`].
    pub(super) fn keep_layout(&mut self, until: BatchId) {
        if self.earlier.last().is_some_and(|last| last.until == until) {
            return;
        }
        if self.earlier.len() >= EARLIER_LAYOUTS_MAX {
            // Its rows are written anew, in the layout to come.
            self.earlier.clear();
            return;
        }
        let sources = (0..self.columns.len()).map(Source::Column).collect();
        self.earlier.push(Arc::new(EarlierLayout {
            until,
            layout: RowLayout::clone(&self.layout),
            sources,
        }));
    }

    /// The last column is new, with this value in the rows that exist.
    pub(super) fn column_added(&mut self, fill: &Value) {
        let ty = self.columns.last().map_or(SqlType::Bool, |column| column.ty);
        for earlier in &mut self.earlier {
            let fill = Source::Fill(Fill::new(&ty, fill));
            Arc::make_mut(earlier).sources.push(fill);
        }
        self.renew_layout();
    }

    /// The column at this position is gone.
    pub(super) fn column_dropped(&mut self, position: usize) {
        for earlier in &mut self.earlier {
            let sources = &mut Arc::make_mut(earlier).sources;
            if position < sources.len() {
                sources.remove(position);
            }
        }
        self.renew_layout();
    }

    pub(crate) fn has_earlier(&self) -> bool {
        !self.earlier.is_empty()
    }

    /// No row is left that was written before.
    pub(super) fn forget_layouts(&mut self) {
        self.earlier.clear();
    }

    /// Appends the earlier layouts.
    pub(super) fn put_earlier(&self, out: &mut Vec<u8>) {
        out.put_varint(self.earlier.len() as u64);
        for earlier in &self.earlier {
            out.put_u64(earlier.until.0);
            let types = earlier.layout.types();
            out.put_varint(types.len() as u64);
            types.iter().for_each(|ty| codec::put_type(out, ty));
            for (source, column) in earlier.sources.iter().zip(&self.columns) {
                match source {
                    Source::Column(column) => out.put_varint(*column as u64 + 1),
                    Source::Fill(fill) => {
                        out.put_varint(0);
                        codec::put_fill(out, &column.ty, &fill.value);
                    }
                }
            }
        }
    }

    /// Reads what [`TableDef::put_earlier`] wrote, for a table with its present columns.
    pub(super) fn read_earlier(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        for _ in 0..codec::count(reader, EARLIER_LAYOUTS_MAX)? {
            let until = BatchId(reader.u64()?);
            if until <= self.laid_out_since() {
                return Err(codec::invalid("earlier layouts out of order"));
            }
            let mut types = Vec::new();
            for _ in 0..codec::count(reader, COLUMNS_MAX)? {
                types.push(codec::sql_type(reader)?);
            }
            let mut sources = Vec::new();
            for column in &self.columns {
                let source = match reader.varint()? {
                    0 => Source::Fill(Fill::new(&column.ty, &codec::fill(reader, &column.ty)?)),
                    number => {
                        let number = usize::try_from(number - 1).unwrap_or(usize::MAX);
                        if types.get(number) != Some(&column.ty) {
                            return Err(codec::invalid("source of a column"));
                        }
                        Source::Column(number)
                    }
                };
                sources.push(source);
            }
            self.earlier.push(Arc::new(EarlierLayout {
                until,
                layout: RowLayout::new(&types),
                sources,
            }));
        }
        Ok(())
    }
}
