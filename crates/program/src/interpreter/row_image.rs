//! A row under construction: at every moment a finished row.
//!
//! ```text
//! bytes   | null bitmap | cells | heap: variable bytes in column order |
//! tail    every variable column from this number on is NULL: setting one of them appends
//! ```
//!
//! A copy of a stored row is one memory copy, and setting a column to bytes of the length that it has
//! already overwrites them in place; columns set in their order append. Only a variable column that changes
//! its length in the middle moves what lies behind it. So an update of one column costs one copy of the row,
//! and a finished row costs nothing more.
//!
//! Unlike `weft_types::RowBuilder` it borrows no layout, so that it can wait in the scratch between runs.

use weft_types::{ColumnKind, RowLayout, SqlError, SqlState};

use super::LONG_BYTES;
use crate::program::Program;

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

impl RowTarget {
    /// The layout of such rows.
    #[inline]
    pub fn layout(self, program: &Program) -> Option<&RowLayout> {
        match self {
            RowTarget::None => None,
            RowTarget::Table(ordinal) => program.layouts.tables.get(usize::from(ordinal)),
            RowTarget::Output(statement) => program.layouts.outputs.get(statement as usize),
        }
    }
}

#[cfg(feature = "compiled")]
impl RowTarget {
    const OUTPUTS: u32 = u8::MAX as u32 + 1;

    /// A number for each; none for nothing.
    #[inline]
    pub fn code(self) -> Option<u32> {
        match self {
            RowTarget::None => None,
            RowTarget::Table(ordinal) => Some(u32::from(ordinal)),
            RowTarget::Output(statement) => statement.checked_add(Self::OUTPUTS),
        }
    }

    /// What a number is for.
    #[inline]
    pub fn from_code(code: u32) -> RowTarget {
        match code.checked_sub(Self::OUTPUTS) {
            Some(statement) => RowTarget::Output(statement),
            None => RowTarget::Table(code as u8),
        }
    }
}

/// Bytes that a row may take while it is built.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 30;

/// One row buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowImage {
    pub target: RowTarget,
    bytes: Vec<u8>,
    tail: usize,
    /// A value that changes its length, on its way.
    whole: Vec<u8>,
}

#[cold]
pub(crate) fn mismatch() -> SqlError {
    SqlError::internal("a program sets a column that its row buffer does not have")
}

#[cold]
pub(crate) fn too_big() -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "row is too big: more than 1 GiB",
    )
}

impl RowImage {
    /// Memory that it keeps, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.whole.capacity()
    }

    /// Where its bytes lie, for machine code that writes to fixed columns; null if they do not all lie there.
    #[cfg(feature = "compiled")]
    pub fn cells(&mut self, layout: &RowLayout) -> *mut u8 {
        match self.bytes.len() >= layout.fixed_bytes() {
            true => self.bytes.as_mut_ptr(),
            false => std::ptr::null_mut(),
        }
    }

    /// Sets a variable column, whose cell lies there, to bytes that come behind all others. As
    /// [`RowImage::cells`]; null, and nothing done, if they would have to come elsewhere.
    #[cfg(feature = "compiled")]
    #[inline]
    pub fn put_behind(&mut self, column: usize, cell: usize, raw: &[u8]) -> *mut u8 {
        let at = self.bytes.len();
        if column < self.tail || at + raw.len() > ROW_BYTES_MAX || cell + 8 > at {
            return std::ptr::null_mut();
        }
        self.bytes.extend_from_slice(raw);
        self.tail = column + 1;
        let place = at as u64 | (raw.len() as u64) << 32;
        if let Some(cell) = self.bytes.get_mut(cell..cell + 8) {
            cell.copy_from_slice(&place.to_le_bytes());
        }
        self.mark_present(column);
        self.bytes.as_mut_ptr()
    }

    /// Makes the buffer a row of all NULLs.
    pub fn start(&mut self, target: RowTarget, layout: &RowLayout) {
        self.target = target;
        self.tail = 0;
        self.bytes.clear();
        self.bytes.extend_from_slice(layout.null_row());
    }

    /// Makes the buffer a copy of a row. A row too short for its layout counts as all NULL.
    pub fn copy(&mut self, target: RowTarget, layout: &RowLayout, row: &[u8]) {
        if row.len() < layout.fixed_bytes() {
            return self.start(target, layout);
        }
        self.target = target;
        self.tail = layout.column_count();
        self.bytes.clear();
        self.bytes.extend_from_slice(row);
    }

    /// Sets a column to NULL.
    pub fn set_null(&mut self, layout: &RowLayout, column: usize) -> Result<(), SqlError> {
        if layout.column_kind(column) == ColumnKind::Variable && !layout.is_null(&self.bytes, column) {
            self.put_variable(layout, column, &[])?;
        }
        self.cell(layout, column)?.fill(0);
        if let Some(byte) = self.bytes.get_mut(column / 8) {
            *byte |= 1 << (column % 8);
        }
        Ok(())
    }

    /// Sets a fixed column of at most eight bytes to the low bits of `bits`.
    pub fn set_bits(&mut self, layout: &RowLayout, column: usize, bits: u64) -> Result<(), SqlError> {
        let cell = match layout.column_kind(column) {
            ColumnKind::Fixed(1..=8) => self.cell(layout, column)?,
            _ => return Err(mismatch()),
        };
        match (cell.len(), bits.to_le_bytes()) {
            (8, bytes) => cell.copy_from_slice(&bytes),
            (len, bytes) => cell.copy_from_slice(bytes.get(..len).unwrap_or_default()),
        }
        self.mark_present(column);
        Ok(())
    }

    /// Sets a column to what [`RowLayout::raw`] gave for a column of the same stored form.
    #[inline]
    pub fn set_raw(&mut self, layout: &RowLayout, column: usize, raw: Option<&[u8]>) -> Result<(), SqlError> {
        let Some(raw) = raw else {
            return self.set_null(layout, column);
        };
        match layout.column_kind(column) {
            ColumnKind::Fixed(_) => {
                let cell = self.cell(layout, column)?;
                if cell.len() != raw.len() {
                    return Err(mismatch());
                }
                cell.copy_from_slice(raw);
            }
            ColumnKind::Variable => self.put_variable(layout, column, raw)?,
        }
        self.mark_present(column);
        Ok(())
    }

    /// Bytes that setting a column to these moves, or NULL: what is shorter than [`LONG_BYTES`] may be 0.
    #[inline]
    pub fn change_bytes(&self, layout: &RowLayout, column: usize, raw: Option<&[u8]>) -> usize {
        let new = raw.map_or(0, <[u8]>::len);
        match self.bytes.len() + new < LONG_BYTES {
            true => 0,
            false => self.long_change_bytes(layout, column, new),
        }
    }

    #[cold]
    fn long_change_bytes(&self, layout: &RowLayout, column: usize, new: usize) -> usize {
        let is_behind = column >= self.tail;
        let old = self.raw(layout, column).map(<[u8]>::len);
        match layout.column_kind(column) {
            ColumnKind::Fixed(_) => 0,
            ColumnKind::Variable if is_behind || old == Some(new) => new,
            // All that lies behind it.
            ColumnKind::Variable => self.bytes.len() + new,
        }
    }

    /// The bytes of a column, as [`RowLayout::raw`] gives them; `None` for NULL.
    pub fn raw(&self, layout: &RowLayout, column: usize) -> Option<&[u8]> {
        layout.raw(&self.bytes, column)
    }

    /// Appends bytes to a variable column that is not NULL.
    pub fn append(&mut self, layout: &RowLayout, column: usize, bytes: &[u8]) -> Result<(), SqlError> {
        let (at, len) = self.variable_place(layout, column)?;
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(self.bytes.get(at..at + len).unwrap_or_default());
        whole.extend_from_slice(bytes);
        let result = self.put_variable(layout, column, &whole);
        self.whole = whole;
        result
    }

    /// Keeps the first bytes of a variable column that is not NULL.
    pub fn truncate(&mut self, layout: &RowLayout, column: usize, bytes: usize) -> Result<(), SqlError> {
        let (at, len) = self.variable_place(layout, column)?;
        if bytes >= len {
            return Ok(());
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(self.bytes.get(at..at + bytes).unwrap_or_default());
        let result = self.put_variable(layout, column, &whole);
        self.whole = whole;
        result
    }

    /// The row.
    #[inline]
    pub fn finish(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn put_variable(&mut self, layout: &RowLayout, column: usize, raw: &[u8]) -> Result<(), SqlError> {
        if column >= self.tail {
            let at = self.bytes.len();
            if at + raw.len() > ROW_BYTES_MAX {
                return Err(too_big());
            }
            self.tail = column + 1;
            self.bytes.extend_from_slice(raw);
            return self.put_place(layout, column, at, raw.len());
        }
        if !layout.is_null(&self.bytes, column) {
            let (at, len) = self.place(layout, column);
            if len == raw.len()
                && let Some(there) = self.bytes.get_mut(at..at + len)
            {
                there.copy_from_slice(raw);
                return Ok(());
            }
        }
        self.replace(layout, column, raw)
    }

    /// Gives a variable column other bytes than it had, of another length, and moves what lies behind it.
    fn replace(&mut self, layout: &RowLayout, column: usize, raw: &[u8]) -> Result<(), SqlError> {
        let is_here = |bytes: &[u8], column| {
            layout.column_kind(column) == ColumnKind::Variable && !layout.is_null(bytes, column)
        };
        let (at, old_len) = match is_here(&self.bytes, column) {
            true => self.place(layout, column),
            false => {
                let before = (0..column).rev().find(|before| is_here(&self.bytes, *before));
                let end = before.map(|before| self.place(layout, before));
                (end.map_or(layout.fixed_bytes(), |(at, len)| at + len), 0)
            }
        };
        let (total, end) = (self.bytes.len(), at.saturating_add(old_len));
        if end > total {
            return Err(mismatch());
        }
        if total - old_len + raw.len() > ROW_BYTES_MAX {
            return Err(too_big());
        }
        if raw.len() > old_len {
            self.bytes.resize(total + raw.len() - old_len, 0);
        }
        self.bytes.copy_within(end..total, at + raw.len());
        self.bytes.truncate(total - old_len + raw.len());
        if let Some(there) = self.bytes.get_mut(at..at + raw.len()) {
            there.copy_from_slice(raw);
        }
        self.put_place(layout, column, at, raw.len())?;
        for later in column + 1..layout.column_count() {
            if is_here(&self.bytes, later) {
                let (at, len) = self.place(layout, later);
                let moved = (at + raw.len()).saturating_sub(old_len);
                self.put_place(layout, later, moved, len)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn cell(&mut self, layout: &RowLayout, column: usize) -> Result<&mut [u8], SqlError> {
        let bytes = match layout.column_kind(column) {
            ColumnKind::Fixed(bytes) => usize::from(bytes),
            ColumnKind::Variable => 8,
        };
        let start = layout.cell_offset(column).ok_or_else(mismatch)?;
        self.bytes.get_mut(start..start + bytes).ok_or_else(mismatch)
    }

    #[inline]
    fn mark_present(&mut self, column: usize) {
        if let Some(byte) = self.bytes.get_mut(column / 8) {
            *byte &= !(1 << (column % 8));
        }
    }

    /// The same as [`RowImage::place`], an error for a column that is not variable: which row a buffer holds,
    /// a program decides as it runs.
    fn variable_place(&self, layout: &RowLayout, column: usize) -> Result<(usize, usize), SqlError> {
        match layout.column_kind(column) {
            ColumnKind::Variable => Ok(self.place(layout, column)),
            ColumnKind::Fixed(_) => Err(mismatch()),
        }
    }

    /// Offset and length in a variable column's cell.
    #[inline]
    fn place(&self, layout: &RowLayout, column: usize) -> (usize, usize) {
        let cell = layout
            .cell_offset(column)
            .and_then(|start| self.bytes.get(start..)?.first_chunk::<8>());
        let bits = cell.map_or(0, |bytes| u64::from_le_bytes(*bytes));
        (bits as u32 as usize, (bits >> 32) as usize)
    }

    #[inline]
    fn put_place(
        &mut self,
        layout: &RowLayout,
        column: usize,
        at: usize,
        len: usize,
    ) -> Result<(), SqlError> {
        let place = at as u64 | (len as u64) << 32;
        self.cell(layout, column)?.copy_from_slice(&place.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_types::{SqlType, Value};

    #[test]
    fn only_variable_columns_grow_and_shrink() {
        let layout = RowLayout::new(&[SqlType::Int4, SqlType::Text, SqlType::Int8]);
        let mut image = RowImage::default();
        image.start(RowTarget::Table(0), &layout);
        image.set_bits(&layout, 0, 7).unwrap();
        image.set_bits(&layout, 2, u64::MAX >> 33).unwrap();
        image.set_raw(&layout, 1, Some(b"text")).unwrap();
        let before = image.finish().to_vec();
        for fixed in [0, 2, 3] {
            assert!(image.append(&layout, fixed, b"more").is_err());
            assert!(image.truncate(&layout, fixed, 0).is_err());
        }
        assert_eq!(image.finish(), before);
        image.append(&layout, 1, b" and more").unwrap();
        image.truncate(&layout, 1, 8).unwrap();
        assert_eq!(image.raw(&layout, 1), Some(&b"text and"[..]));
    }

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
        assert_eq!(image.finish(), expected);
        image.copy(RowTarget::Table(0), &layout, &expected);
        assert_eq!(image.finish(), expected);
        image.set_raw(&layout, 0, Some(b"other")).unwrap();
        let mut values = values;
        values[0] = Value::Text("other".into());
        assert_eq!(image.finish(), layout.encode(&values).unwrap());
        assert!(image.set_bits(&layout, 0, 1).is_err());
        assert!(image.set_raw(&layout, 1, Some(&[1])).is_err());
        assert!(image.set_null(&layout, 5).is_err());
    }

    proptest! {
        /// Columns set in any order, several times, to anything: always the row that `encode` makes.
        #[test]
        fn is_a_finished_row_at_every_moment(
            first in proptest::collection::vec(any::<u8>(), 6),
            starts_as_copy in any::<bool>(),
            changes in proptest::collection::vec((0_usize..6, any::<u8>()), 0..24),
        ) {
            let types = [
                SqlType::Text, SqlType::Int2, SqlType::Bytea, SqlType::Text, SqlType::Int8, SqlType::Text,
            ];
            let layout = RowLayout::new(&types);
            let value = |column: usize, n: u8| match types[column] {
                _ if n.is_multiple_of(5) => Value::Null,
                SqlType::Int2 => Value::Int2(n.into()),
                SqlType::Int8 => Value::Int8(n.into()),
                SqlType::Bytea => Value::Bytea(vec![n; usize::from(n % 4)]),
                _ => Value::Text("x".repeat(usize::from(n % 7))),
            };
            let mut image = RowImage::default();
            let mut values = vec![Value::Null; 6];
            image.start(RowTarget::Table(0), &layout);
            if starts_as_copy {
                values = first.iter().enumerate().map(|(column, n)| value(column, *n)).collect();
                image.copy(RowTarget::Table(0), &layout, &layout.encode(&values).unwrap());
            }
            for (column, n) in changes {
                values[column] = value(column, n);
                let row = layout.encode(&values).unwrap();
                image.set_raw(&layout, column, layout.raw(&row, column)).unwrap();
                prop_assert_eq!(image.finish(), row.as_slice());
            }
        }
    }
}
