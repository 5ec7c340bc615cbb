//! The byte format of rows: in memory, in write sets, in checkpoints and in digests.
//!
//! ```text
//! | null bitmap | cell 0 | cell 1 | ... | heap |
//!   ceil(n / 8)   fixed offsets, no padding   bytes of the variable columns, in column order
//!
//! bitmap  bit (i % 8) of byte (i / 8) is set when column i is NULL; bits beyond the last column are 0
//! cell    fixed types: the value, little endian (uuid: its 16 bytes; interval: see `Interval`)
//!         variable types: u32 offset from the start of the row, u32 length
//! ```
//!
//! Invariants:
//! 1. Equal rows have equal bytes: cells of NULL columns are zero, the heap has no gaps and no slack, and a
//!    zero-length value still has its offset.
//! 2. Accessors never panic and never read outside the slice, whatever the bytes. They decode what
//!    `validate` has accepted exactly; for anything else they return NULL, nothing or some value.
//! 3. The format is used in files: it never changes.

use weft_base::{ByteReader, CodecError};

use crate::interval::Interval;
use crate::{ColumnKind, JsonbRef, Numeric, SqlError, SqlState, SqlType, Value, ValueRef, json};

/// Size of the cell of a variable column.
const VARIABLE_CELL_BYTES: usize = 8;

/// The location of columns in a row. Made once per table or result shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLayout {
    types: Box<[SqlType]>,
    cells: Box<[Cell]>,
    /// The columns for which not all byte patterns are valid ([`is_always_valid`]).
    checked: Box<[u32]>,
    /// The bytes before the heap in a row of NULLs.
    null_row: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    offset: u32,
    kind: ColumnKind,
}

impl RowLayout {
    /// The layout of rows with these columns.
    #[must_use]
    pub fn new(types: &[SqlType]) -> Self {
        let mut offset = types.len().div_ceil(8);
        let mut cells = Vec::with_capacity(types.len());
        for ty in types {
            let kind = ty.column_kind();
            cells.push(Cell {
                offset: offset as u32,
                kind,
            });
            offset += match kind {
                ColumnKind::Fixed(bytes) => usize::from(bytes),
                ColumnKind::Variable => VARIABLE_CELL_BYTES,
            };
        }
        let checked = types.iter().enumerate().filter(|(_, ty)| !is_always_valid(ty));
        let mut null_row = vec![0; offset];
        for (byte, columns) in null_row.iter_mut().zip(types.chunks(8)) {
            *byte = u8::MAX >> (8 - columns.len());
        }
        Self {
            types: types.into(),
            cells: cells.into(),
            checked: checked.map(|(col, _)| col as u32).collect(),
            null_row: null_row.into(),
        }
    }

    /// Number of columns.
    #[must_use]
    #[inline]
    pub fn column_count(&self) -> usize {
        self.types.len()
    }

    /// Types of the columns.
    #[must_use]
    #[inline]
    pub fn types(&self) -> &[SqlType] {
        &self.types
    }

    /// Bytes of a row before its heap: null bitmap and cells.
    #[must_use]
    #[inline]
    pub fn fixed_bytes(&self) -> usize {
        self.null_row.len()
    }

    /// The row whose columns are all NULL: [`RowLayout::fixed_bytes`] of them.
    #[must_use]
    #[inline]
    pub fn null_row(&self) -> &[u8] {
        &self.null_row
    }

    /// The storage of column `col`; `Fixed(0)` if there is no such column.
    #[must_use]
    #[inline]
    pub fn column_kind(&self, col: usize) -> ColumnKind {
        self.cells.get(col).map_or(ColumnKind::Fixed(0), |cell| cell.kind)
    }

    /// Offset of the cell of column `col`, in bytes from the start of the row.
    #[must_use]
    #[inline]
    pub fn cell_offset(&self, col: usize) -> Option<usize> {
        self.cells.get(col).map(|cell| cell.offset as usize)
    }

    /// Encodes a row.
    ///
    /// # Errors
    /// XX000 if the number or variants of values do not match the columns; 54000 if a row exceeds 4 GiB.
    pub fn encode(&self, values: &[Value]) -> Result<Vec<u8>, SqlError> {
        let mut row = Vec::new();
        self.encode_into(values, &mut row)?;
        Ok(row)
    }

    /// Appends an encoded row to `out`. On an error `out` may contain a part of it.
    ///
    /// # Errors
    /// See [`RowLayout::encode`].
    pub fn encode_into(&self, values: &[Value], out: &mut Vec<u8>) -> Result<(), SqlError> {
        if values.len() != self.types.len() {
            return Err(SqlError::internal(format!(
                "row has {} values for {} columns",
                values.len(),
                self.types.len()
            )));
        }
        let start = out.len();
        out.resize(start + self.fixed_bytes(), 0);
        for (col, value) in values.iter().enumerate() {
            if value.is_null() {
                if let Some(byte) = out.get_mut(start + col / 8) {
                    *byte |= 1 << (col % 8);
                }
                continue;
            }
            let heap_start = out.len();
            let mut cell = [0; 16];
            let cell = match fixed_cell(value, &mut cell) {
                Some(cell) => cell,
                None => {
                    append_variable(value, out);
                    let place = variable_cell(heap_start - start, out.len() - heap_start)?;
                    cell[..VARIABLE_CELL_BYTES].copy_from_slice(&place);
                    &cell[..VARIABLE_CELL_BYTES]
                }
            };
            self.put_cell(out.get_mut(start..).unwrap_or_default(), col, value, cell)?;
        }
        Ok(())
    }

    fn put_cell(&self, row: &mut [u8], col: usize, value: &Value, bytes: &[u8]) -> Result<(), SqlError> {
        let ty = self.types.get(col);
        let place = self
            .cell_offset(col)
            .and_then(|at| row.get_mut(at..at + bytes.len()));
        match (ty, place) {
            (Some(ty), Some(place)) if value.fits(ty) => {
                place.copy_from_slice(bytes);
                Ok(())
            }
            _ => Err(mismatch(value, ty)),
        }
    }

    /// Decodes every column, with validation.
    ///
    /// # Errors
    /// See [`RowLayout::validate`].
    pub fn decode(&self, row: &[u8]) -> Result<Vec<Value>, CodecError> {
        self.validate(row)?;
        Ok((0..self.types.len()).map(|col| self.value(row, col)).collect())
    }

    /// Validates untrusted bytes: length, null bitmap, every cell, the heap, text and numbers in it. It
    /// accepts exactly what [`RowLayout::encode`] writes.
    ///
    /// # Errors
    /// The first defect, with its offset.
    pub fn validate(&self, row: &[u8]) -> Result<(), CodecError> {
        let nulls = row.get(..self.types.len().div_ceil(8)).unwrap_or_default();
        let has_null = nulls.iter().any(|byte| *byte != 0);
        match self.checked.is_empty() && !has_null && row.len() == self.fixed_bytes() {
            true => Ok(()),
            false => self.validate_columns(row, has_null),
        }
    }

    #[inline(never)]
    fn validate_columns(&self, row: &[u8], has_null: bool) -> Result<(), CodecError> {
        if row.len() < self.fixed_bytes() {
            return Err(CodecError::new(row.len(), "row is too short"));
        }
        let columns = self.types.len();
        let mut heap_end = self.fixed_bytes();
        if has_null {
            let last = row.get(columns / 8).copied().unwrap_or(0);
            if !columns.is_multiple_of(8) && last >> (columns % 8) != 0 {
                return Err(CodecError::new(
                    columns / 8,
                    "null bitmap names columns that do not exist",
                ));
            }
            for (col, ty) in self.types.iter().enumerate() {
                if !is_always_valid(ty) || self.is_null(row, col) {
                    self.validate_column(row, col, &mut heap_end)?;
                }
            }
        } else {
            for col in &self.checked {
                self.validate_column(row, *col as usize, &mut heap_end)?;
            }
        }
        if heap_end != row.len() {
            return Err(CodecError::new(heap_end, "row is longer than its values"));
        }
        Ok(())
    }

    fn validate_column(&self, row: &[u8], col: usize, heap_end: &mut usize) -> Result<(), CodecError> {
        let Some(at) = self.cell_offset(col) else {
            return Ok(());
        };
        let cell = self
            .cell_bytes(row, col)
            .ok_or(CodecError::new(at, "row is too short"))?;
        if self.is_null(row, col) {
            return if cell.iter().all(|byte| *byte == 0) {
                Ok(())
            } else {
                Err(CodecError::new(at, "cell of a null column is not zero"))
            };
        }
        let ty = self.types.get(col).copied().unwrap_or(SqlType::Bool);
        if ty == SqlType::Bool && cell.first().is_some_and(|byte| *byte > 1) {
            return Err(CodecError::new(at, "boolean is neither 0 nor 1"));
        }
        if self.column_kind(col) != ColumnKind::Variable {
            return Ok(());
        }
        let (offset, _) = split_place(cell).unwrap_or((0, 0));
        let bytes = self.var_bytes(row, col).filter(|_| offset == *heap_end);
        let bytes = bytes.ok_or(CodecError::new(at, "variable column lies outside its place"))?;
        *heap_end += bytes.len();
        match ty {
            SqlType::Numeric(_) => Numeric::decode(bytes)
                .map(drop)
                .map_err(|error| CodecError::new(offset + error.position, error.reason)),
            SqlType::Bytea => Ok(()),
            SqlType::Jsonb => {
                json::validate(bytes).map_err(|error| CodecError::new(offset + error.position, error.reason))
            }
            SqlType::Array(_) | SqlType::Record => decode_nested(bytes)
                .and_then(|value| match value.fits(&ty) {
                    true => Ok(()),
                    false => Err(CodecError::new(0, "an array or record of another type")),
                })
                .map_err(|error| CodecError::new(offset + error.position, error.reason)),
            _ => std::str::from_utf8(bytes)
                .map(drop)
                .map_err(|error| CodecError::new(offset + error.valid_up_to(), "text is not UTF-8")),
        }
    }

    /// Whether column `col` is NULL. A missing column or byte counts as NULL.
    #[must_use]
    #[inline]
    pub fn is_null(&self, row: &[u8], col: usize) -> bool {
        col >= self.cells.len() || row.get(col / 8).is_none_or(|byte| byte >> (col % 8) & 1 == 1)
    }

    /// The raw bits of a fixed column of at most 8 bytes, zero-extended: an `integer` -1 is 0xFFFF_FFFF.
    /// `None` for NULL, for wider and for variable columns.
    #[must_use]
    #[inline]
    pub fn fixed_u64(&self, row: &[u8], col: usize) -> Option<u64> {
        if self.is_null(row, col) {
            return None;
        }
        let cell = self.cells.get(col)?;
        let rest = row.get(cell.offset as usize..)?;
        Some(match cell.kind {
            ColumnKind::Fixed(8) => u64::from_le_bytes(*rest.first_chunk()?),
            ColumnKind::Fixed(4) => u64::from(u32::from_le_bytes(*rest.first_chunk()?)),
            ColumnKind::Fixed(2) => u64::from(u16::from_le_bytes(*rest.first_chunk()?)),
            ColumnKind::Fixed(1) => u64::from(*rest.first()?),
            _ => return None,
        })
    }

    /// The bytes of a variable column: text, `bytea`, or a stored `numeric`. `None` for NULL and for fixed
    /// columns.
    #[must_use]
    #[inline]
    pub fn var_bytes<'r>(&self, row: &'r [u8], col: usize) -> Option<&'r [u8]> {
        if self.is_null(row, col) {
            return None;
        }
        let cell = self.cells.get(col)?;
        if cell.kind != ColumnKind::Variable {
            return None;
        }
        let (offset, len) = split_place(row.get(cell.offset as usize..)?)?;
        row.get(offset..offset.checked_add(len)?)
    }

    /// The bytes that [`RowBuilder::set_raw`] takes: the cell of a fixed column, the heap bytes of a variable
    /// one.
    /// `None` for NULL.
    #[must_use]
    #[inline]
    pub fn raw<'r>(&self, row: &'r [u8], col: usize) -> Option<&'r [u8]> {
        match self.column_kind(col) {
            ColumnKind::Variable => self.var_bytes(row, col),
            ColumnKind::Fixed(_) if self.is_null(row, col) => None,
            ColumnKind::Fixed(_) => self.cell_bytes(row, col),
        }
    }

    /// Whether a column has the same bytes, or NULL, in both rows; compares what [`RowLayout::raw`]
    /// returns.
    #[must_use]
    #[inline]
    pub fn same_raw(&self, one: &[u8], other: &[u8], col: usize) -> bool {
        match self.column_kind(col) {
            ColumnKind::Fixed(1 | 2 | 4 | 8) => self.fixed_u64(one, col) == self.fixed_u64(other, col),
            _ => self.raw(one, col) == self.raw(other, col),
        }
    }

    #[inline]
    fn cell_bytes<'r>(&self, row: &'r [u8], col: usize) -> Option<&'r [u8]> {
        let cell = self.cells.get(col)?;
        let len = match cell.kind {
            ColumnKind::Fixed(bytes) => usize::from(bytes),
            ColumnKind::Variable => VARIABLE_CELL_BYTES,
        };
        row.get(cell.offset as usize..cell.offset as usize + len)
    }

    /// Column `col`, borrowed.
    #[must_use]
    #[inline]
    pub fn value_ref<'r>(&self, row: &'r [u8], col: usize) -> ValueRef<'r> {
        self.try_value_ref(row, col).unwrap_or(ValueRef::Null)
    }

    #[inline]
    fn try_value_ref<'r>(&self, row: &'r [u8], col: usize) -> Option<ValueRef<'r>> {
        let bits = || self.fixed_u64(row, col);
        Some(match self.types.get(col)? {
            SqlType::Bool => ValueRef::Bool(bits()? != 0),
            SqlType::Int2 => ValueRef::Int2(bits()? as i16),
            SqlType::Int4 => ValueRef::Int4(bits()? as i32),
            SqlType::Int8 => ValueRef::Int8(bits()? as i64),
            SqlType::Float4 => ValueRef::Float4(f32::from_bits(bits()? as u32)),
            SqlType::Float8 => ValueRef::Float8(f64::from_bits(bits()?)),
            SqlType::Date => ValueRef::Date(bits()? as i32),
            SqlType::Timestamp => ValueRef::Timestamp(bits()? as i64),
            SqlType::TimestampTz => ValueRef::TimestampTz(bits()? as i64),
            SqlType::Numeric(_) => ValueRef::Numeric(Numeric::decode(self.var_bytes(row, col)?).ok()?),
            SqlType::Text
            | SqlType::Varchar(_)
            | SqlType::Char(_)
            | SqlType::Name
            | SqlType::InternalChar
            | SqlType::Void => ValueRef::Text(std::str::from_utf8(self.var_bytes(row, col)?).ok()?),
            SqlType::Bytea => ValueRef::Bytea(self.var_bytes(row, col)?),
            SqlType::Json => ValueRef::Json(std::str::from_utf8(self.var_bytes(row, col)?).ok()?),
            SqlType::Jsonb => ValueRef::Jsonb(JsonbRef::of_stored(self.var_bytes(row, col)?)),
            SqlType::Uuid => ValueRef::Uuid(*self.raw(row, col)?.first_chunk()?),
            SqlType::Time => ValueRef::Time(bits()? as i64),
            SqlType::Interval => {
                ValueRef::Interval(Interval::from_bytes(*self.raw(row, col)?.first_chunk()?))
            }
            SqlType::Oid
            | SqlType::Regclass
            | SqlType::Regtype
            | SqlType::Regproc
            | SqlType::Regnamespace => ValueRef::Oid(bits()? as u32),
            SqlType::Array(_) | SqlType::Record => ValueRef::nested(self.var_bytes(row, col)?)?,
        })
    }

    /// Column `col`, copied.
    #[must_use]
    pub fn value(&self, row: &[u8], col: usize) -> Value {
        self.value_ref(row, col).to_value()
    }

    /// Sets a column of `row`, which began as [`RowLayout::null_row`], to bytes taken by [`RowLayout::raw`]
    /// from a column of the same type. Columns are set in ascending order, and none twice: so the heap is in
    /// column order.
    ///
    /// # Errors
    /// XX000 if the length does not match the column or there is no such column; 54000 if the row exceeds
    /// 4 GiB. The row is then unchanged.
    pub fn append_raw(&self, row: &mut Vec<u8>, col: usize, raw: &[u8]) -> Result<(), SqlError> {
        let place = match self.column_kind(col) {
            ColumnKind::Variable => Some(variable_cell(row.len(), raw.len())?),
            ColumnKind::Fixed(bytes) if usize::from(bytes) == raw.len() && col < self.cells.len() => None,
            ColumnKind::Fixed(_) => {
                let message = format!("{} raw bytes do not fit column {col}", raw.len());
                return Err(SqlError::internal(message));
            }
        };
        let cell = place.as_ref().map_or(raw, <[u8; _]>::as_slice);
        let at = self.cell_offset(col).unwrap_or_default();
        if let Some(to) = row.get_mut(at..at + cell.len()) {
            to.copy_from_slice(cell);
        }
        if let Some(byte) = row.get_mut(col / 8) {
            *byte &= !(1 << (col % 8));
        }
        if place.is_some() {
            row.extend_from_slice(raw);
        }
        Ok(())
    }

    /// Overwrites a fixed column of at most 8 bytes in place with the low bits of `bits` and makes it
    /// non-NULL. Returns whether there is such a column.
    pub fn set_fixed_u64(&self, row: &mut [u8], col: usize, bits: u64) -> bool {
        let Some(cell) = self.cells.get(col) else {
            return false;
        };
        let len = match cell.kind {
            ColumnKind::Fixed(len @ 1..=8) => usize::from(len),
            _ => return false,
        };
        let (at, source) = (cell.offset as usize, bits.to_le_bytes());
        let (Some(place), Some(source)) = (row.get_mut(at..at + len), source.get(..len)) else {
            return false;
        };
        place.copy_from_slice(source);
        if let Some(byte) = row.get_mut(col / 8) {
            *byte &= !(1 << (col % 8));
        }
        true
    }
}

/// Decodes an array or record of the heap.
fn decode_nested(bytes: &[u8]) -> Result<Value, CodecError> {
    let mut reader = ByteReader::new(bytes);
    let value = Value::decode(&mut reader)?;
    match (&value, reader.position() == bytes.len()) {
        (Value::Array(_) | Value::Record(_), true) => Ok(value),
        _ => Err(reader.error("not one array or record")),
    }
}

/// Whether all byte patterns of a cell of this type are valid.
#[inline]
fn is_always_valid(ty: &SqlType) -> bool {
    *ty != SqlType::Bool && matches!(ty.column_kind(), ColumnKind::Fixed(_))
}

/// The offset and length in a variable column's cell.
#[inline]
fn split_place(cell: &[u8]) -> Option<(usize, usize)> {
    let bits = u64::from_le_bytes(*cell.first_chunk()?);
    Some((bits as u32 as usize, (bits >> 32) as usize))
}

fn variable_cell(offset: usize, len: usize) -> Result<[u8; VARIABLE_CELL_BYTES], SqlError> {
    match (u32::try_from(offset), u32::try_from(len)) {
        (Ok(offset), Ok(len)) => Ok((u64::from(offset) | u64::from(len) << 32).to_le_bytes()),
        _ => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "row is too big: more than 4 GiB",
        )),
    }
}

/// The cell of a value of a fixed type; `None` for the others.
fn fixed_cell<'c>(value: &Value, cell: &'c mut [u8; 16]) -> Option<&'c [u8]> {
    let len = match value {
        Value::Bool(v) => put(cell, [u8::from(*v)]),
        Value::Int2(v) => put(cell, v.to_le_bytes()),
        Value::Int4(v) | Value::Date(v) => put(cell, v.to_le_bytes()),
        Value::Int8(v) | Value::Timestamp(v) | Value::TimestampTz(v) | Value::Time(v) => {
            put(cell, v.to_le_bytes())
        }
        Value::Interval(v) => put(cell, v.to_bytes()),
        Value::Oid(v) => put(cell, v.to_le_bytes()),
        Value::Float4(v) => put(cell, v.to_bits().to_le_bytes()),
        Value::Float8(v) => put(cell, v.to_bits().to_le_bytes()),
        Value::Uuid(v) => put(cell, *v),
        Value::Null | Value::Numeric(_) | Value::Text(_) | Value::Bytea(_) => return None,
        Value::Json(_) | Value::Jsonb(_) | Value::Array(_) | Value::Record(_) => return None,
    };
    cell.get(..len)
}

fn put<const N: usize>(cell: &mut [u8; 16], bytes: [u8; N]) -> usize {
    cell[..N].copy_from_slice(&bytes);
    N
}

fn append_variable(value: &Value, heap: &mut Vec<u8>) {
    match value {
        Value::Text(v) => heap.extend_from_slice(v.as_bytes()),
        Value::Bytea(v) => heap.extend_from_slice(v),
        Value::Numeric(v) => v.encode(heap),
        Value::Json(v) => heap.extend_from_slice(v.as_bytes()),
        Value::Jsonb(v) => heap.extend_from_slice(v.as_bytes()),
        Value::Array(_) | Value::Record(_) => value.encode(heap),
        _ => {}
    }
}

fn mismatch(value: &Value, ty: Option<&SqlType>) -> SqlError {
    let own = value.sql_type().map_or("null", |ty| ty.base_name());
    let ty = ty.map_or_else(|| "a column that does not exist".to_owned(), SqlType::name);
    SqlError::internal(format!("value of type {own} cannot be stored as {ty}"))
}

/// Builds a row column by column, in any order. Columns that are not set are NULL. It can be reused after
/// [`RowBuilder::finish_into`] or [`RowBuilder::clear`], without allocation.
#[derive(Clone, Debug)]
pub struct RowBuilder<'a> {
    layout: &'a RowLayout,
    /// Bitmap and cells; variable cells hold the position in `pending` until `finish`.
    fixed: Vec<u8>,
    /// Bytes of variable columns, in the order in which they were set.
    pending: Vec<u8>,
}

impl<'a> RowBuilder<'a> {
    /// A row with all columns NULL.
    #[must_use]
    pub fn new(layout: &'a RowLayout) -> Self {
        let mut builder = Self {
            layout,
            fixed: Vec::new(),
            pending: Vec::new(),
        };
        builder.clear();
        builder
    }

    /// Sets every column to NULL.
    pub fn clear(&mut self) {
        self.pending.clear();
        self.fixed.clear();
        self.fixed.resize(self.layout.fixed_bytes(), 0);
        let columns = self.layout.column_count();
        for (i, byte) in self.fixed.iter_mut().take(columns.div_ceil(8)).enumerate() {
            *byte = if columns - i * 8 >= 8 {
                0xff
            } else {
                (1 << (columns - i * 8)) - 1
            };
        }
    }

    /// Sets a column.
    ///
    /// # Errors
    /// XX000 if the value's variant does not match the column or there is no such column.
    pub fn set(&mut self, col: usize, value: &Value) -> Result<(), SqlError> {
        let ty = self.layout.types.get(col);
        if !ty.is_some_and(|ty| value.fits(ty)) {
            return Err(mismatch(value, ty));
        }
        if value.is_null() {
            self.set_null(col);
            return Ok(());
        }
        let mut cell = [0; 16];
        match fixed_cell(value, &mut cell) {
            Some(cell) => self.put_cell(col, cell),
            None => {
                let start = self.pending.len();
                append_variable(value, &mut self.pending);
                self.put_pending(col, start)?;
            }
        }
        Ok(())
    }

    /// Sets a column to bytes taken by [`RowLayout::raw`] from a column of the same type. They are not
    /// validated.
    ///
    /// # Errors
    /// XX000 if the length does not match the column or there is no such column.
    pub fn set_raw(&mut self, col: usize, bytes: &[u8]) -> Result<(), SqlError> {
        match self.layout.cells.get(col).map(|cell| cell.kind) {
            Some(ColumnKind::Fixed(len)) if usize::from(len) == bytes.len() => {
                self.put_cell(col, bytes);
                Ok(())
            }
            Some(ColumnKind::Variable) => {
                let start = self.pending.len();
                self.pending.extend_from_slice(bytes);
                self.put_pending(col, start)
            }
            _ => Err(SqlError::internal(format!(
                "{} raw bytes do not fit column {col}",
                bytes.len()
            ))),
        }
    }

    /// Sets a fixed column of at most 8 bytes to the low bits of `bits`.
    ///
    /// # Errors
    /// XX000 if there is no such column.
    pub fn set_fixed_u64(&mut self, col: usize, bits: u64) -> Result<(), SqlError> {
        if self.layout.set_fixed_u64(&mut self.fixed, col, bits) {
            Ok(())
        } else {
            Err(SqlError::internal(format!(
                "column {col} is not of a fixed type of at most 8 bytes"
            )))
        }
    }

    /// Sets a column to NULL.
    pub fn set_null(&mut self, col: usize) {
        if col >= self.layout.column_count() {
            return;
        }
        if let Some(byte) = self.fixed.get_mut(col / 8) {
            *byte |= 1 << (col % 8);
        }
        let len = self.layout.cell_bytes(&self.fixed, col).map_or(0, <[u8]>::len);
        let at = self.layout.cell_offset(col).unwrap_or(0);
        if let Some(cell) = self.fixed.get_mut(at..at + len) {
            cell.fill(0);
        }
    }

    fn put_cell(&mut self, col: usize, bytes: &[u8]) {
        let at = self.layout.cell_offset(col).unwrap_or(0);
        if let Some(place) = self.fixed.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        if let Some(byte) = self.fixed.get_mut(col / 8) {
            *byte &= !(1 << (col % 8));
        }
    }

    fn put_pending(&mut self, col: usize, start: usize) -> Result<(), SqlError> {
        let place = variable_cell(start, self.pending.len() - start)?;
        self.put_cell(col, &place);
        Ok(())
    }

    /// Returns the row.
    ///
    /// # Errors
    /// 54000 if it exceeds 4 GiB.
    pub fn try_finish(mut self) -> Result<Vec<u8>, SqlError> {
        let mut row = Vec::with_capacity(self.fixed.len() + self.pending.len());
        self.finish_into(&mut row)?;
        Ok(row)
    }

    /// Returns the row. If it exceeded 4 GiB, which no request can cause, its last columns would be NULL.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let mut row = Vec::with_capacity(self.fixed.len() + self.pending.len());
        let _ = self.finish_into(&mut row);
        row
    }

    /// Appends the row to `out` and resets every column to NULL.
    ///
    /// # Errors
    /// 54000 if the row exceeds 4 GiB; `out` is then unchanged.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let start = out.len();
        out.extend_from_slice(&self.fixed);
        for (col, cell) in self.layout.cells.iter().enumerate() {
            if cell.kind != ColumnKind::Variable || self.layout.is_null(&self.fixed, col) {
                continue;
            }
            let at = cell.offset as usize;
            let place = self.fixed.get(at..).and_then(split_place);
            let bytes = place
                .and_then(|(offset, len)| self.pending.get(offset..offset + len))
                .unwrap_or(&[]);
            match variable_cell(out.len() - start, bytes.len()) {
                Ok(place) => {
                    if let Some(cell) = out.get_mut(start + at..start + at + VARIABLE_CELL_BYTES) {
                        cell.copy_from_slice(&place);
                    }
                }
                Err(error) => {
                    out.truncate(start);
                    return Err(error);
                }
            }
            out.extend_from_slice(bytes);
        }
        self.clear();
        Ok(())
    }
}
