//! Converts a stored row to a DataRow message, without building values for the common types.
//!
//! ```text
//!   row:      | null bits | fixed cells, little endian | heap |
//!   DataRow:  | 'D' | length i32 | columns u16 | per column: length i32 (-1 for null), bytes |
//! ```
//!
//! A [`RowEncoder`] is built once for a statement's columns and the requested formats; it holds one
//! [`CellCodec`] per column. Integers, booleans, floats (binary), dates and timestamps (binary) and texts are
//! copied or printed from the raw cell; everything else goes through a value and `weft_types`' own forms. The
//! tests compare the two ways.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use weft_types::interrupt::byte_pieces;
use weft_types::{
    RowLayout, SqlError, SqlState, SqlType, TimeZone, ValueRef, encode_binary_ref, format_text_in,
};
use weft_wire::frontend::Format;

use crate::backend::{OidNames, OutputColumn, RowRef, SharedZone};
use crate::reply;

/// The size up to which [`Scratch`] keeps a buffer between statements.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// How one column is written.
#[derive(Clone, Debug)]
enum CellCodec {
    /// A signed integer of so many bytes, printed.
    IntegerText(usize),
    /// `t` or `f`.
    BoolText,
    /// A fixed cell of so many bytes, turned to network order.
    FixedBinary(usize),
    /// The cell's own bytes.
    Bytes,
    /// An oid that is shown as what it names.
    NameText(Arc<OidNames>),
    /// Through a value, printed.
    ValueText(SqlType),
    /// Through a value, in its binary form.
    ValueBinary(SqlType),
}

impl CellCodec {
    fn new(column: &OutputColumn, format: Format) -> CellCodec {
        if let (Some(names), Format::Text) = (&column.names, format) {
            return CellCodec::NameText(Arc::clone(names));
        }
        let ty = &column.ty;
        match (ty, format) {
            (SqlType::Int2, Format::Text) => CellCodec::IntegerText(2),
            (SqlType::Int4, Format::Text) => CellCodec::IntegerText(4),
            (SqlType::Int8, Format::Text) => CellCodec::IntegerText(8),
            (SqlType::Bool, Format::Text) => CellCodec::BoolText,
            (SqlType::Bool, Format::Binary) => CellCodec::FixedBinary(1),
            (SqlType::Int2, Format::Binary) => CellCodec::FixedBinary(2),
            (SqlType::Int4 | SqlType::Float4 | SqlType::Date, Format::Binary) => CellCodec::FixedBinary(4),
            (
                SqlType::Int8 | SqlType::Float8 | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time,
                Format::Binary,
            ) => CellCodec::FixedBinary(8),
            (SqlType::Text | SqlType::Varchar(_) | SqlType::Json, _) | (SqlType::Bytea, Format::Binary) => {
                CellCodec::Bytes
            }
            (_, Format::Text) => CellCodec::ValueText(*ty),
            (_, Format::Binary) => CellCodec::ValueBinary(*ty),
        }
    }
}

/// Writes the rows of one result.
#[derive(Clone, Debug)]
pub struct RowEncoder {
    cells: Arc<[CellCodec]>,
}

impl RowEncoder {
    /// An encoder for `columns`, the format of each told by `format`.
    pub fn new(columns: &[OutputColumn], format: impl Fn(usize) -> Format) -> RowEncoder {
        let cells = columns
            .iter()
            .enumerate()
            .map(|(index, column)| CellCodec::new(column, format(index)));
        RowEncoder {
            cells: cells.collect(),
        }
    }

    /// Takes over the names that are known only when the statement runs.
    pub fn take_names(&mut self, columns: &[OutputColumn]) {
        if columns.iter().all(|column| column.names.is_none()) {
            return;
        }
        let cells = self.cells.iter().zip(columns).map(|(cell, column)| match cell {
            CellCodec::ValueText(_) | CellCodec::NameText(_) => CellCodec::new(column, Format::Text),
            other => other.clone(),
        });
        self.cells = cells.collect();
    }

    /// Appends the row as a DataRow message. On an error nothing is appended.
    pub fn encode(&self, row: RowRef<'_>, scratch: &mut Scratch, out: &mut BytesMut) -> Result<(), SqlError> {
        let at = reply::begin(out, b'D');
        let result = self.encode_cells(row, scratch, out);
        match result {
            Ok(()) if out.len() - at <= i32::MAX as usize => {
                reply::end(out, at);
                Ok(())
            }
            Ok(()) => {
                out.truncate(at);
                Err(SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    "row is too long for the protocol",
                ))
            }
            Err(error) => {
                out.truncate(at);
                Err(error)
            }
        }
    }

    fn encode_cells(
        &self,
        row: RowRef<'_>,
        scratch: &mut Scratch,
        out: &mut BytesMut,
    ) -> Result<(), SqlError> {
        if row.layout.column_count() != self.cells.len() {
            return Err(SqlError::new(
                SqlState::INTERNAL_ERROR,
                "row and result differ in their columns",
            ));
        }
        out.put_u16(u16::try_from(self.cells.len()).unwrap_or(u16::MAX));
        for (column, codec) in self.cells.iter().enumerate() {
            if row.layout.is_null(row.bytes, column) {
                out.put_i32(-1);
                continue;
            }
            encode_cell(codec, row, column, scratch, out)?;
        }
        Ok(())
    }
}

/// Buffers reused from row to row.
#[derive(Debug, Default)]
pub struct Scratch {
    text: String,
    bytes: Vec<u8>,
    zone: SharedZone,
}

impl Scratch {
    /// Buffers for a session that shows times in a zone.
    pub fn new(zone: SharedZone) -> Scratch {
        Scratch {
            zone,
            ..Scratch::default()
        }
    }

    /// The session's zone as it is now.
    pub fn zone(&self) -> TimeZone {
        self.zone.get()
    }

    /// Gives back what one large value has taken.
    pub fn shrink(&mut self) {
        self.text.clear();
        self.bytes.clear();
        self.text.shrink_to(SCRATCH_BYTES_KEPT);
        self.bytes.shrink_to(SCRATCH_BYTES_KEPT);
    }
}

fn encode_cell(
    codec: &CellCodec,
    row: RowRef<'_>,
    column: usize,
    scratch: &mut Scratch,
    out: &mut BytesMut,
) -> Result<(), SqlError> {
    let RowRef { layout, bytes } = row;
    match codec {
        CellCodec::IntegerText(width) => {
            let number = sign_extend(fixed(layout, bytes, column)?, *width);
            let at = out.len();
            out.put_i32(0);
            if number < 0 {
                out.put_u8(b'-');
            }
            reply::decimal(out, number.unsigned_abs());
            let length = (out.len() - at - 4) as u32;
            if let Some(place) = out.get_mut(at..at + 4) {
                place.copy_from_slice(&length.to_be_bytes());
            }
        }
        CellCodec::BoolText => {
            out.put_i32(1);
            out.put_u8(if fixed(layout, bytes, column)? == 0 {
                b'f'
            } else {
                b't'
            });
        }
        CellCodec::FixedBinary(width) => {
            let cell = fixed(layout, bytes, column)?.to_be_bytes();
            out.put_i32(*width as i32);
            out.put_slice(cell.get(8 - *width..).unwrap_or_default());
        }
        CellCodec::Bytes => {
            let cell = layout.var_bytes(bytes, column).ok_or_else(damaged)?;
            put_counted(out, cell)?;
        }
        CellCodec::NameText(names) => {
            let number = fixed(layout, bytes, column)? as u32;
            match names.get(&number) {
                Some(name) => put_counted(out, name.as_bytes())?,
                None => put_counted(out, number.to_string().as_bytes())?,
            }
        }
        CellCodec::ValueText(ty) => {
            scratch.text.clear();
            let zone = scratch.zone();
            format_text_in(&value(layout, bytes, column)?, ty, &zone, &mut scratch.text)?;
            put_counted(out, scratch.text.as_bytes())?;
        }
        CellCodec::ValueBinary(ty) => {
            scratch.bytes.clear();
            encode_binary_ref(&value(layout, bytes, column)?, ty, &mut scratch.bytes);
            put_counted(out, &scratch.bytes)?;
        }
    }
    Ok(())
}

fn fixed(layout: &RowLayout, bytes: &[u8], column: usize) -> Result<u64, SqlError> {
    layout.fixed_u64(bytes, column).ok_or_else(damaged)
}

fn value<'r>(layout: &RowLayout, bytes: &'r [u8], column: usize) -> Result<ValueRef<'r>, SqlError> {
    match layout.value_ref(bytes, column) {
        ValueRef::Null => Err(damaged()),
        value => Ok(value),
    }
}

fn damaged() -> SqlError {
    SqlError::new(
        SqlState::DATA_CORRUPTED,
        "row does not have the form of its columns",
    )
}

fn put_counted(out: &mut BytesMut, cell: &[u8]) -> Result<(), SqlError> {
    let length = i32::try_from(cell.len()).map_err(|_| {
        SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            "value is too long for the protocol",
        )
    })?;
    out.put_i32(length);
    out.reserve(cell.len());
    for piece in byte_pieces(cell) {
        out.put_slice(piece?);
    }
    Ok(())
}

fn sign_extend(bits: u64, width: usize) -> i64 {
    let unused = 64 - 8 * width as u32;
    ((bits << unused) as i64) >> unused
}
