//! COPY data in binary format: from bytes, which arrive in pieces of any size, to rows of values, and back.
//!
//! ```text
//!   header:  "PGCOPY\n\xff\r\n\0"  flags u32  bytes of the extension i32, the extension
//!   row:     fields i16            per field: length i32 (-1 for NULL), the value's binary form
//!   trailer: -1 as i16
//! ```
//!
//! All integers are big endian. Of the flags, the upper 16 are critical: none is known, so each is refused.
//! The extension is skipped. As PostgreSQL does, data that ends between two rows without the trailer is
//! accepted, and data after the trailer is refused.
//!
//! Source: PostgreSQL, COPY, "Binary Format". Errors name the row, from 1, in place of the line.

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, SqlType, Value, decode_binary, encode_binary};

use super::copy_text::LINE_BYTES_MAX;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Flags that a reader must know.
const CRITICAL_FLAGS: u32 = 0xffff_0000;
/// The flag of a format in which rows had oids.
const WITH_OIDS: u32 = 1 << 16;

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Signature,
    Flags,
    ExtensionLength,
    /// So many bytes of the extension.
    Extension(usize),
    Row,
    /// So many more fields of the row.
    Fields(usize),
    /// The trailer was read.
    End,
}

/// Decodes one COPY's data.
#[derive(Debug)]
pub struct BinaryDecoder {
    table: String,
    columns: Vec<(String, SqlType)>,
    next: Next,
    /// Bytes that have not been read.
    pending: Vec<u8>,
    /// How much of `pending` has been read.
    at: usize,
    /// Values of an incomplete row.
    values: Vec<Value>,
    row_bytes: usize,
    row: u64,
}

impl BinaryDecoder {
    /// A decoder for rows with the given columns, in the data's order.
    pub fn new(table: impl Into<String>, columns: Vec<(String, SqlType)>) -> Self {
        BinaryDecoder {
            table: table.into(),
            columns,
            next: Next::Signature,
            pending: Vec::new(),
            at: 0,
            values: Vec::new(),
            row_bytes: 0,
            row: 0,
        }
    }

    /// Takes a piece of data and calls `each` with every row that it completes.
    ///
    /// # Errors
    /// 22P04 for data that is not in this format, the errors of [`decode_binary`], and those of `each`.
    pub fn push(
        &mut self,
        data: &[u8],
        mut each: impl FnMut(Vec<Value>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.pending.extend_from_slice(data);
        let mut result = Ok(true);
        while matches!(result, Ok(true)) {
            result = self.step(&mut each);
        }
        self.pending.drain(..self.at);
        self.at = 0;
        result?;
        Ok(())
    }

    /// Ends the data.
    ///
    /// # Errors
    /// 22P04 if it ends within the header or a row.
    pub fn finish(&mut self) -> Result<(), SqlError> {
        let message = match self.next {
            Next::Signature => "COPY file signature not recognized",
            Next::Flags => "invalid COPY file header (missing flags)",
            Next::ExtensionLength => "invalid COPY file header (missing length)",
            Next::Extension(_) => "invalid COPY file header (wrong length)",
            Next::Fields(_) => return Err(self.bad_field("unexpected EOF in COPY data")),
            // PostgreSQL ignores half a number of fields.
            Next::Row | Next::End => return Ok(()),
        };
        Err(bad(message))
    }

    /// Reads what is expected next; false if it has not arrived yet.
    fn step(&mut self, each: &mut impl FnMut(Vec<Value>) -> Result<(), SqlError>) -> Result<bool, SqlError> {
        match self.next {
            Next::Signature => {
                let Some(signature) = self.take::<11>() else {
                    return Ok(false);
                };
                if signature != *SIGNATURE {
                    return Err(bad("COPY file signature not recognized"));
                }
                self.next = Next::Flags;
            }
            Next::Flags => {
                let Some(flags) = self.take::<4>().map(u32::from_be_bytes) else {
                    return Ok(false);
                };
                if flags & WITH_OIDS != 0 {
                    return Err(bad("invalid COPY file header (WITH OIDS)"));
                }
                if flags & CRITICAL_FLAGS != 0 {
                    return Err(bad("unrecognized critical flags in COPY file header"));
                }
                self.next = Next::ExtensionLength;
            }
            Next::ExtensionLength => {
                let Some(length) = self.take::<4>().map(i32::from_be_bytes) else {
                    return Ok(false);
                };
                let length = usize::try_from(length);
                self.next =
                    Next::Extension(length.map_err(|_| bad("invalid COPY file header (missing length)"))?);
            }
            Next::Extension(0) => self.next = Next::Row,
            Next::Extension(length) => {
                let here = length.min(self.pending.len() - self.at);
                self.at += here;
                self.next = Next::Extension(length - here);
                return Ok(here > 0);
            }
            Next::Row => return self.begin_row(),
            Next::Fields(0) => {
                self.next = Next::Row;
                each(std::mem::take(&mut self.values))?;
            }
            Next::Fields(left) => return self.field(left),
            Next::End => {
                if self.at < self.pending.len() {
                    return Err(self.bad_row("received copy data after EOF marker".to_owned()));
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin_row(&mut self) -> Result<bool, SqlError> {
        let Some(count) = self.take::<2>().map(i16::from_be_bytes) else {
            return Ok(false);
        };
        self.row += 1;
        if count == -1 {
            self.next = Next::End;
            return Ok(true);
        }
        let wanted = self.columns.len();
        if usize::try_from(count) != Ok(wanted) {
            return Err(self.bad_row(format!("row field count is {count}, expected {wanted}")));
        }
        self.row_bytes = 0;
        self.next = Next::Fields(wanted);
        Ok(true)
    }

    /// Reads one field of the `left` that the row still lacks.
    fn field(&mut self, left: usize) -> Result<bool, SqlError> {
        let rest = self.pending.get(self.at..).unwrap_or(&[]);
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(false);
        };
        let length = i32::from_be_bytes(*length);
        if length == -1 {
            self.at += 4;
            self.values.push(Value::Null);
            self.next = Next::Fields(left - 1);
            return Ok(true);
        }
        let Ok(length) = usize::try_from(length) else {
            return Err(self.bad_field("invalid field size"));
        };
        if self.row_bytes.saturating_add(length) > LINE_BYTES_MAX {
            let state = SqlState::PROGRAM_LIMIT_EXCEEDED;
            let error = SqlError::new(state, "the row is too long");
            return Err(error.context(self.place()));
        }
        let Some(bytes) = rest.get(..length) else {
            return Ok(false);
        };
        let column = self.columns.get(self.values.len());
        let Some((name, ty)) = column else {
            return Err(SqlError::internal("a row has more fields than columns"));
        };
        let value = decode_binary(bytes, ty)
            .map_err(|error| error.context(format!("{}, column {name}", self.place())))?;
        self.at += 4 + length;
        self.row_bytes += length;
        self.values.push(value);
        self.next = Next::Fields(left - 1);
        Ok(true)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.pending.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(bytes)
    }

    fn place(&self) -> String {
        format!("COPY {}, line {}", self.table, self.row)
    }

    fn bad_row(&self, message: String) -> SqlError {
        SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message).context(self.place())
    }

    fn bad_field(&self, message: &str) -> SqlError {
        let name = self.columns.get(self.values.len()).map_or("", |(name, _)| name);
        bad(message).context(format!("{}, column {name}", self.place()))
    }
}

fn bad(message: &str) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

/// Appends the header.
pub fn encode_header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.extend_from_slice(&0_i32.to_be_bytes());
}

/// Appends one row.
///
/// # Errors
/// 54000 if a value is too long for its length to be told; 57014 if the statement is cancelled.
pub fn encode_row(values: &[Value], types: &[SqlType], out: &mut Vec<u8>) -> Result<(), SqlError> {
    let count = i16::try_from(values.len()).map_err(|_| too_long())?;
    out.extend_from_slice(&count.to_be_bytes());
    let mut pace = Pace::default();
    for (value, ty) in values.iter().zip(types) {
        pace.step(1)?;
        if value.is_null() {
            out.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        encode_binary(value, ty, out);
        let length = i32::try_from(out.len() - start - 4).map_err(|_| too_long())?;
        if let Some(place) = out.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

fn too_long() -> SqlError {
    let state = SqlState::PROGRAM_LIMIT_EXCEEDED;
    SqlError::new(state, "value is too long for the binary format of COPY")
}

/// Appends the trailer.
pub fn encode_trailer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1_i16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [SqlType; 2] = [SqlType::Int4, SqlType::Text];

    fn decode(data: &[u8], piece: usize) -> Result<Vec<Vec<Value>>, SqlError> {
        let columns = TYPES
            .iter()
            .zip(["a", "b"])
            .map(|(ty, name)| (name.to_owned(), *ty));
        let mut decoder = BinaryDecoder::new("t", columns.collect());
        let mut rows = Vec::new();
        for piece in data.chunks(piece) {
            decoder.push(piece, |row| {
                rows.push(row);
                Ok(())
            })?;
        }
        decoder.finish()?;
        Ok(rows)
    }

    fn encoded(rows: &[Vec<Value>]) -> Vec<u8> {
        let mut data = Vec::new();
        encode_header(&mut data);
        for row in rows {
            encode_row(row, &TYPES, &mut data).unwrap();
        }
        encode_trailer(&mut data);
        data
    }

    #[test]
    fn bytes_are_those_of_postgresql() {
        // COPY (VALUES (1, NULL::text), (-2, 'xy')) TO STDOUT (FORMAT binary)
        let rows = [
            vec![Value::Int4(1), Value::Null],
            vec![Value::Int4(-2), Value::Text("xy".to_owned())],
        ];
        let wanted = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\
                       \0\x02\0\0\0\x04\0\0\0\x01\xff\xff\xff\xff\
                       \0\x02\0\0\0\x04\xff\xff\xff\xfe\0\0\0\x02xy\
                       \xff\xff";
        assert_eq!(encoded(&rows), wanted);
        for piece in 1..wanted.len() {
            assert_eq!(decode(wanted, piece).unwrap(), rows);
        }
    }

    #[test]
    fn every_cut_is_noticed_but_those_between_rows() {
        let rows = vec![vec![Value::Int4(7), Value::Text("abc".to_owned())]; 3];
        let data = encoded(&rows);
        let row_bytes = 2 + 4 + 4 + 4 + 3;
        for end in 0..data.len() {
            let whole_rows = (end >= 19 && (end - 19) % row_bytes <= 1).then(|| (end - 19) / row_bytes);
            match decode(&data[..end], 5) {
                Ok(read) => assert_eq!(Some(read.len()), whole_rows, "cut at {end}"),
                Err(error) => {
                    assert_eq!(
                        (error.state.0, whole_rows),
                        ("22P04", None),
                        "cut at {end}: {error:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn errors_name_row_and_column() {
        let mut data = encoded(&[vec![Value::Int4(1), Value::Null]]);
        data.truncate(data.len() - 2);
        data.extend_from_slice(b"\0\x02\0\0\0\x05\0\0\0\0\0");
        let error = decode(&data, 100).unwrap_err();
        assert_eq!(error.state.0, "22P03");
        assert_eq!(
            error.fields().context.as_deref(),
            Some("COPY t, line 2, column a")
        );
    }

    fn any_row() -> impl proptest::strategy::Strategy<Value = Vec<Value>> {
        use proptest::prelude::*;
        let number = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::Int4)];
        let text = prop_oneof![Just(Value::Null), "[a-zé\n]{0,6}".prop_map(Value::Text)];
        (number, text).prop_map(|(a, b)| vec![a, b])
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(
            rows in proptest::collection::vec(any_row(), 0..5),
            piece in 1usize..9,
        ) {
            proptest::prop_assert_eq!(decode(&encoded(&rows), piece).unwrap(), rows);
        }
    }
}
