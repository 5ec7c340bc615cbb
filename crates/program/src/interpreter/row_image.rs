//! A row under construction: columns are set in any order, then laid out once.
//!
//! ```text
//! fixed    null bitmap and cells, as in the finished row; the cell of a variable column holds its place
//!          in `pending`
//! pending  bytes of variable columns in the order in which they were set
//! done     the finished row: fixed part, then variable bytes in column order
//! ```
//!
//! Unlike `weft_types::RowBuilder` it borrows no layout, so that it can wait in the scratch between runs.

use weft_types::{ColumnKind, RowLayout, SqlError, SqlState};

/// What a row buffer is a row of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RowTarget {
    /// Nothing yet.
    #[default]
    None,
    /// A table, by ordinal.
    Table(u8),
    /// A statement's output.
    Output(u32),
}

/// Bytes that the variable columns of one row may take while it is built.
const PENDING_BYTES_MAX: usize = 1 << 30;

/// One row buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowImage {
    pub target: RowTarget,
    fixed: Vec<u8>,
    pending: Vec<u8>,
    done: Vec<u8>,
}

#[cold]
pub(crate) fn misfit() -> SqlError {
    SqlError::internal("a program sets a column that its row buffer does not have")
}

#[cold]
fn too_big() -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "row is too big: more than 1 GiB",
    )
}

impl RowImage {
    /// Makes the buffer a row of all NULLs.
    pub fn start(&mut self, target: RowTarget, layout: &RowLayout) {
        self.target = target;
        self.pending.clear();
        self.fixed.clear();
        self.fixed.resize(layout.fixed_bytes(), 0);
        let columns = layout.column_count();
        let bitmap = columns.div_ceil(8);
        if let Some(bytes) = self.fixed.get_mut(..bitmap) {
            bytes.fill(0xFF);
            if !columns.is_multiple_of(8)
                && let Some(last) = bytes.last_mut()
            {
                *last = (1 << (columns % 8)) - 1;
            }
        }
    }

    /// Makes the buffer a copy of a row. A row too short for its layout counts as all NULL.
    pub fn copy(&mut self, target: RowTarget, layout: &RowLayout, row: &[u8]) {
        let Some((fixed, heap)) = row.split_at_checked(layout.fixed_bytes()) else {
            return self.start(target, layout);
        };
        self.target = target;
        self.fixed.clear();
        self.fixed.extend_from_slice(fixed);
        self.pending.clear();
        self.pending.extend_from_slice(heap);
        for column in 0..layout.column_count() {
            if layout.column_kind(column) == ColumnKind::Variable && !layout.is_null(row, column) {
                let (offset, len) = self.place(layout, column);
                self.put_place(layout, column, offset.saturating_sub(layout.fixed_bytes()), len);
            }
        }
    }

    /// Sets a column to NULL.
    pub fn set_null(&mut self, layout: &RowLayout, column: usize) -> Result<(), SqlError> {
        self.cell(layout, column)?.fill(0);
        if let Some(byte) = self.fixed.get_mut(column / 8) {
            *byte |= 1 << (column % 8);
        }
        Ok(())
    }

    /// Sets a fixed column of at most eight bytes to the low bits of `bits`.
    pub fn set_bits(&mut self, layout: &RowLayout, column: usize, bits: u64) -> Result<(), SqlError> {
        let cell = match layout.column_kind(column) {
            ColumnKind::Fixed(1..=8) => self.cell(layout, column)?,
            _ => return Err(misfit()),
        };
        match (cell.len(), bits.to_le_bytes()) {
            (8, bytes) => cell.copy_from_slice(&bytes),
            (len, bytes) => cell.copy_from_slice(bytes.get(..len).unwrap_or_default()),
        }
        self.mark_present(column);
        Ok(())
    }

    /// Sets a column to what [`RowLayout::raw`] gave for a column of the same stored form.
    pub fn set_raw(&mut self, layout: &RowLayout, column: usize, raw: Option<&[u8]>) -> Result<(), SqlError> {
        let Some(raw) = raw else {
            return self.set_null(layout, column);
        };
        match layout.column_kind(column) {
            ColumnKind::Fixed(_) => {
                let cell = self.cell(layout, column)?;
                if cell.len() != raw.len() {
                    return Err(misfit());
                }
                cell.copy_from_slice(raw);
            }
            ColumnKind::Variable => {
                // Writing the column set last once more, as a loop does, takes no further memory.
                let (offset, len) = self.place(layout, column);
                if len > 0 && offset + len == self.pending.len() {
                    self.pending.truncate(offset);
                }
                let start = self.pending.len();
                if start + raw.len() > PENDING_BYTES_MAX {
                    return Err(too_big());
                }
                self.pending.extend_from_slice(raw);
                self.put_place(layout, column, start, raw.len());
            }
        }
        self.mark_present(column);
        Ok(())
    }

    /// The bytes of a column, as [`RowLayout::raw`] gives them for a finished row; `None` for NULL.
    pub fn raw(&self, layout: &RowLayout, column: usize) -> Option<&[u8]> {
        if column >= layout.column_count() || layout.is_null(&self.fixed, column) {
            return None;
        }
        match layout.column_kind(column) {
            ColumnKind::Fixed(bytes) => {
                let start = layout.cell_offset(column)?;
                self.fixed.get(start..start + usize::from(bytes))
            }
            ColumnKind::Variable => {
                let (offset, len) = self.place(layout, column);
                self.pending.get(offset..offset + len)
            }
        }
    }

    /// Appends bytes to a variable column that is not NULL, in place where it was set last.
    pub fn append(&mut self, layout: &RowLayout, column: usize, bytes: &[u8]) -> Result<(), SqlError> {
        let (mut offset, len) = self.place(layout, column);
        if self.pending.len() + len + bytes.len() > PENDING_BYTES_MAX {
            return Err(too_big());
        }
        if offset + len != self.pending.len() {
            let start = self.pending.len();
            self.pending.extend_from_within(offset..(offset + len).min(start));
            offset = start;
        }
        self.pending.extend_from_slice(bytes);
        self.put_place(layout, column, offset, len + bytes.len());
        Ok(())
    }

    /// Keeps the first bytes of a variable column.
    pub fn truncate(&mut self, layout: &RowLayout, column: usize, bytes: usize) {
        let (offset, len) = self.place(layout, column);
        self.put_place(layout, column, offset, len.min(bytes));
    }

    /// The finished row. The buffer may be changed and finished again.
    pub fn finish(&mut self, layout: &RowLayout) -> &[u8] {
        let mut done = std::mem::take(&mut self.done);
        done.clear();
        self.finish_into(layout, &mut done);
        self.done = done;
        &self.done
    }

    /// Appends the finished row.
    pub fn finish_into(&self, layout: &RowLayout, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.fixed);
        for column in 0..layout.column_count() {
            if layout.column_kind(column) != ColumnKind::Variable || layout.is_null(&self.fixed, column) {
                continue;
            }
            let (offset, len) = self.place(layout, column);
            let at = out.len() - start;
            let bytes = self.pending.get(offset..offset + len).unwrap_or_default();
            out.extend_from_slice(bytes);
            let place = at as u64 | (bytes.len() as u64) << 32;
            let cell = layout.cell_offset(column).map(|offset| start + offset);
            if let Some(cell) = cell.and_then(|cell| out.get_mut(cell..cell + 8)) {
                cell.copy_from_slice(&place.to_le_bytes());
            }
        }
    }

    fn cell(&mut self, layout: &RowLayout, column: usize) -> Result<&mut [u8], SqlError> {
        let bytes = match layout.column_kind(column) {
            ColumnKind::Fixed(bytes) => usize::from(bytes),
            ColumnKind::Variable => 8,
        };
        let start = layout.cell_offset(column).ok_or_else(misfit)?;
        self.fixed.get_mut(start..start + bytes).ok_or_else(misfit)
    }

    fn mark_present(&mut self, column: usize) {
        if let Some(byte) = self.fixed.get_mut(column / 8) {
            *byte &= !(1 << (column % 8));
        }
    }

    /// Offset and length in a variable column's cell.
    fn place(&self, layout: &RowLayout, column: usize) -> (usize, usize) {
        let cell = layout
            .cell_offset(column)
            .and_then(|start| self.fixed.get(start..)?.first_chunk::<8>());
        let bits = cell.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (bits as u32 as usize, (bits >> 32) as usize)
    }

    fn put_place(&mut self, layout: &RowLayout, column: usize, offset: usize, len: usize) {
        if let Ok(cell) = self.cell(layout, column) {
            cell.copy_from_slice(&(offset as u64 | (len as u64) << 32).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_types::{SqlType, Value};

    #[test]
    fn any_order_gives_the_row_that_encode_gives() {
        let layout = RowLayout::new(&[
            SqlType::Text,
            SqlType::Int4,
            SqlType::Bytea,
            SqlType::Uuid,
            SqlType::Text,
        ]);
        let values = vec![
            Value::Text("first".into()),
            Value::Int4(-7),
            Value::Null,
            Value::Uuid([9; 16]),
            Value::Text(String::new()),
        ];
        let expected = layout.encode(&values).unwrap();
        let mut image = RowImage::default();
        image.start(RowTarget::Table(0), &layout);
        image.set_raw(&layout, 4, Some(b"longer than nothing")).unwrap();
        image.set_raw(&layout, 4, Some(b"")).unwrap();
        image.set_raw(&layout, 2, Some(b"x")).unwrap();
        image.set_raw(&layout, 0, Some(b"first")).unwrap();
        image.set_null(&layout, 2).unwrap();
        image.set_bits(&layout, 1, -7_i64 as u64).unwrap();
        image.set_raw(&layout, 3, Some(&[9; 16])).unwrap();
        assert_eq!(image.finish(&layout), expected);
        image.copy(RowTarget::Table(0), &layout, &expected);
        assert_eq!(image.finish(&layout), expected);
        image.set_raw(&layout, 0, Some(b"other")).unwrap();
        let mut values = values;
        values[0] = Value::Text("other".into());
        assert_eq!(image.finish(&layout), layout.encode(&values).unwrap());
        assert!(image.set_bits(&layout, 0, 1).is_err());
        assert!(image.set_raw(&layout, 1, Some(&[1])).is_err());
        assert!(image.set_null(&layout, 5).is_err());
    }
}
