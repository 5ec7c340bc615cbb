//! COPY data in lines: from bytes, which arrive in pieces of any size, to rows of values.
//!
//! Text format (PostgreSQL, COPY, "Text Format"): one row per line, values between delimiters, `\N` for
//! NULL, backslash escapes `\b \f \n \r \t \v \ooo \xhh`, any other escaped character for itself; a line
//! `\.` ends the data. Lines end in LF, CR LF or CR; a raw CR or LF in a value must be escaped. CSV: values
//! may be quoted, quotes are doubled inside, line ends may occur inside quotes, an empty unquoted value (or
//! the NULL text) is NULL.
//!
//! Errors name the line, from 1, as PostgreSQL does in CONTEXT: `COPY t, line 3, column a: "x"`. A line
//! longer than [`LINE_BYTES_MAX`] is rejected, which bounds memory.

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState, SqlType, TimeZone, Value};

use super::copy::{CopyFormat, CopyOptions};

/// Longest line, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 30;

/// A value of a line: its range in the line buffer, or NULL.
#[derive(Clone, Copy, Debug)]
struct Field {
    start: usize,
    end: usize,
    null: bool,
}

/// Decodes one COPY's data.
#[derive(Debug)]
pub struct CopyDecoder {
    table: String,
    columns: Vec<(String, SqlType)>,
    options: CopyOptions,
    zone: TimeZone,
    /// Bytes of an incomplete line.
    pending: Vec<u8>,
    /// The position up to which `pending` has been searched for a line end.
    searched: usize,
    in_quotes: bool,
    line: u64,
    ended: bool,
    fields: Vec<Field>,
    decoded: Vec<u8>,
}

impl CopyDecoder {
    /// A decoder for rows in text or CSV format with the given columns, in the data's order.
    pub fn new(
        table: impl Into<String>,
        columns: Vec<(String, SqlType)>,
        options: CopyOptions,
        zone: TimeZone,
    ) -> Self {
        CopyDecoder {
            table: table.into(),
            columns,
            options,
            zone,
            pending: Vec::new(),
            searched: 0,
            in_quotes: false,
            line: 0,
            ended: false,
            fields: Vec::new(),
            decoded: Vec::new(),
        }
    }

    /// Takes a piece of data and calls `each` with every row that it completes.
    pub fn push(
        &mut self,
        data: &[u8],
        mut each: impl FnMut(Vec<Value>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.pending.extend_from_slice(data);
        let mut start = 0;
        let mut result = Ok(());
        while result.is_ok()
            && let Some((end, next)) = self.line_end(start, false)
        {
            result = self.row_at(start..end, &mut each);
            start = next;
            self.searched = next;
        }
        self.pending.drain(..start);
        self.searched -= start;
        result?;
        if self.pending.len() > LINE_BYTES_MAX {
            return Err(self.bad("the line is too long".to_owned()));
        }
        Ok(())
    }

    /// Ends the data: a last line without a line end is a row.
    pub fn finish(
        &mut self,
        mut each: impl FnMut(Vec<Value>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut start = 0;
        while let Some((end, next)) = self.line_end(start, true) {
            self.row_at(start..end, &mut each)?;
            start = next;
            self.searched = next;
        }
        if self.in_quotes && !self.ended {
            self.line += 1;
            return Err(self.bad("unterminated CSV quoted field".to_owned()));
        }
        if start < self.pending.len() {
            self.row_at(start..self.pending.len(), &mut each)?;
        }
        self.pending.clear();
        self.searched = 0;
        Ok(())
    }

    /// The number of lines read so far.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The end of the line that begins at `start`, and the start of the next; `None` if it is incomplete.
    fn line_end(&mut self, start: usize, last: bool) -> Option<(usize, usize)> {
        let csv = self.options.format == CopyFormat::Csv;
        let (quote, escape) = (self.options.quote, self.options.escape);
        let mut at = self.searched.max(start);
        while let Some(&byte) = self.pending.get(at) {
            if csv && self.in_quotes && byte == escape && escape != quote {
                if self.pending.get(at + 1).is_none() && !last {
                    break;
                }
                at += 2;
                continue;
            }
            if csv && byte == quote {
                self.in_quotes = !self.in_quotes;
            } else if !self.in_quotes {
                // A backslash escapes the next byte, even a line end.
                if !csv && byte == b'\\' {
                    if self.pending.get(at + 1).is_none() && !last {
                        break;
                    }
                    at += 2;
                    continue;
                }
                if byte == b'\n' {
                    return Some((at, at + 1));
                }
                if byte == b'\r' {
                    match self.pending.get(at + 1) {
                        Some(b'\n') => return Some((at, at + 2)),
                        None if !last => break,
                        _ => return Some((at, at + 1)),
                    }
                }
            }
            at += 1;
        }
        self.searched = at;
        None
    }

    fn row_at(
        &mut self,
        range: std::ops::Range<usize>,
        each: &mut impl FnMut(Vec<Value>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.line += 1;
        if self.ended {
            return Ok(());
        }
        let line = std::mem::take(&mut self.pending);
        let row = self.decode_line(line.get(range).unwrap_or(&[]));
        self.pending = line;
        match row? {
            Some(row) => each(row),
            None => Ok(()),
        }
    }

    fn decode_line(&mut self, line: &[u8]) -> Result<Option<Vec<Value>>, SqlError> {
        if self.options.header && self.line == 1 {
            return Ok(None);
        }
        if line == b"\\." {
            self.ended = true;
            return Ok(None);
        }
        self.fields.clear();
        self.decoded.clear();
        match self.options.format {
            CopyFormat::Csv => self.split_csv(line)?,
            _ => self.split_text(line)?,
        }
        // A table without columns has empty lines.
        if self.columns.is_empty() && line.is_empty() {
            return Ok(Some(Vec::new()));
        }
        if let Some((name, _)) = self.columns.get(self.fields.len()) {
            return Err(self.bad(format!("missing data for column \"{name}\"")));
        }
        if self.fields.len() > self.columns.len() {
            return Err(self.bad("extra data after last expected column".to_owned()));
        }
        let mut row = Vec::with_capacity(self.columns.len());
        for (field, (name, ty)) in self.fields.iter().zip(&self.columns) {
            row.push(if field.null {
                Value::Null
            } else {
                self.value(*field, name, ty)?
            });
        }
        Ok(Some(row))
    }

    fn value(&self, field: Field, name: &str, ty: &SqlType) -> Result<Value, SqlError> {
        let bytes = self.decoded.get(field.start..field.end).unwrap_or(&[]);
        let text = std::str::from_utf8(bytes).map_err(|_| {
            SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                format!("invalid byte sequence for encoding \"UTF8\" in column \"{name}\""),
            )
            .context(format!("COPY {}, line {}", self.table, self.line))
        })?;
        if text.contains('\0') {
            return Err(SqlError::new(
                SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                "invalid byte sequence for encoding \"UTF8\": 0x00",
            )
            .context(format!("COPY {}, line {}", self.table, self.line)));
        }
        weft_types::parse_text_in(text, ty, &self.zone).map_err(|error| {
            let shown: String = text.chars().take(100).collect();
            error.context(format!(
                "COPY {}, line {}, column {name}: \"{shown}\"",
                self.table, self.line
            ))
        })
    }

    fn push_field(&mut self, start: usize, raw: &[u8], quoted: bool) {
        let null = !quoted && raw == self.options.null.as_bytes();
        self.fields.push(Field {
            start,
            end: self.decoded.len(),
            null,
        });
    }

    fn split_text(&mut self, line: &[u8]) -> Result<(), SqlError> {
        let delimiter = self.options.delimiter;
        let mut at = 0;
        let mut start = 0;
        let mut raw_start = 0;
        while let Some(&byte) = line.get(at) {
            at += 1;
            if byte == delimiter {
                self.push_field(start, line.get(raw_start..at - 1).unwrap_or(&[]), false);
                start = self.decoded.len();
                raw_start = at;
            } else if byte == b'\\' {
                at = self.unescape(line, at)?;
            } else {
                self.decoded.push(byte);
            }
        }
        self.push_field(start, line.get(raw_start..).unwrap_or(&[]), false);
        Ok(())
    }

    /// Decodes the escape whose backslash ends before `at`; returns its end.
    fn unescape(&mut self, line: &[u8], at: usize) -> Result<usize, SqlError> {
        let Some(&byte) = line.get(at) else {
            // A trailing backslash is literal.
            self.decoded.push(b'\\');
            return Ok(at);
        };
        let mut next = at + 1;
        let decoded = match byte {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'0'..=b'7' => {
                let mut value = u32::from(byte - b'0');
                while next < at + 3
                    && let Some(digit @ b'0'..=b'7') = line.get(next)
                {
                    value = value * 8 + u32::from(digit - b'0');
                    next += 1;
                }
                (value & 0xff) as u8
            }
            b'x' if line.get(next).is_some_and(u8::is_ascii_hexdigit) => {
                let mut value = 0;
                while next < at + 3
                    && let Some(digit) = line.get(next).and_then(|digit| char::from(*digit).to_digit(16))
                {
                    value = value * 16 + digit;
                    next += 1;
                }
                value as u8
            }
            b'.' if line.len() == 2 => return Err(self.bad("end-of-copy marker is misplaced".to_owned())),
            other => other,
        };
        self.decoded.push(decoded);
        Ok(next)
    }

    fn split_csv(&mut self, line: &[u8]) -> Result<(), SqlError> {
        let CopyOptions {
            delimiter,
            quote,
            escape,
            ..
        } = self.options;
        let mut at = 0;
        let mut start = 0;
        let mut raw_start = 0;
        let (mut quoted, mut inside) = (false, false);
        while let Some(&byte) = line.get(at) {
            at += 1;
            if inside {
                let escapes =
                    byte == escape && line.get(at).is_some_and(|next| *next == quote || *next == escape);
                if escapes {
                    self.decoded.extend(line.get(at));
                    at += 1;
                } else if byte == quote {
                    inside = false;
                } else {
                    self.decoded.push(byte);
                }
            } else if byte == quote {
                (quoted, inside) = (true, true);
            } else if byte == delimiter {
                self.push_field(start, line.get(raw_start..at - 1).unwrap_or(&[]), quoted);
                start = self.decoded.len();
                raw_start = at;
                quoted = false;
            } else {
                self.decoded.push(byte);
            }
        }
        if inside {
            return Err(self.bad("unterminated CSV quoted field".to_owned()));
        }
        self.push_field(start, line.get(raw_start..).unwrap_or(&[]), quoted);
        Ok(())
    }

    fn bad(&self, message: String) -> SqlError {
        SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
            .context(format!("COPY {}, line {}", self.table, self.line))
    }
}

/// Appends one row in text or CSV format with its line end, as COPY TO STDOUT sends it.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn encode_line(
    values: &[Value],
    types: &[SqlType],
    options: &CopyOptions,
    zone: &TimeZone,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    let mut text = String::new();
    for (number, (value, ty)) in values.iter().zip(types).enumerate() {
        if number > 0 {
            out.push(options.delimiter);
        }
        if value.is_null() {
            out.extend_from_slice(options.null.as_bytes());
            continue;
        }
        text.clear();
        weft_types::format_text_in(&value.as_ref(), ty, zone, &mut text)?;
        match options.format {
            CopyFormat::Csv => encode_csv(&text, options, out)?,
            _ => encode_text(&text, options.delimiter, out)?,
        }
    }
    out.push(b'\n');
    Ok(())
}

fn encode_text(text: &str, delimiter: u8, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let mut pace = Pace::default();
    for byte in text.bytes() {
        pace.step(1)?;
        let escaped = match byte {
            b'\\' => b'\\',
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            other if other == delimiter => other,
            other => {
                out.push(other);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escaped]);
    }
    Ok(())
}

fn encode_csv(text: &str, options: &CopyOptions, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let special =
        |byte: u8| byte == options.delimiter || byte == options.quote || matches!(byte, b'\n' | b'\r');
    let must_quote = text == options.null || text == "\\." || text.bytes().any(special);
    if !must_quote {
        out.extend_from_slice(text.as_bytes());
        return Ok(());
    }
    let mut pace = Pace::default();
    out.push(options.quote);
    for byte in text.bytes() {
        pace.step(1)?;
        if byte == options.quote || byte == options.escape {
            out.push(options.escape);
        }
        out.push(byte);
    }
    out.push(options.quote);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::copy::options_of;
    use super::*;

    fn decoder(options: &str, types: &[SqlType]) -> CopyDecoder {
        let options = options_of(&format!("COPY t FROM STDIN {options}")).unwrap();
        let columns = types
            .iter()
            .enumerate()
            .map(|(n, ty)| (format!("c{n}"), *ty))
            .collect();
        CopyDecoder::new("t", columns, options, TimeZone::UTC)
    }

    fn decode(
        options: &str,
        types: &[SqlType],
        data: &[u8],
        piece: usize,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut decoder = decoder(options, types);
        let mut rows = Vec::new();
        for piece in data.chunks(piece) {
            decoder.push(piece, |row| {
                rows.push(row);
                Ok(())
            })?;
        }
        decoder.finish(|row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    #[test]
    fn text_format() {
        let types = [SqlType::Text, SqlType::Text];
        let data = b"a\\tb\t\\N\r\n\\\\N\t\\x41\\101\\q\n\t\n\\.\nafter the end\n";
        for piece in [1, 2, 3, 100] {
            let rows = decode("", &types, data, piece).unwrap();
            assert_eq!(
                rows,
                [
                    vec![text("a\tb"), Value::Null],
                    vec![text("\\N"), text("AAq")],
                    vec![text(""), text("")],
                ]
            );
        }
        assert_eq!(
            decode("", &types, b"1\t2", 9).unwrap(),
            [vec![text("1"), text("2")]]
        );
        assert!(decode("", &types, b"", 9).unwrap().is_empty());
    }

    #[test]
    fn csv_format() {
        let types = [SqlType::Text, SqlType::Text];
        let data = b"h1,h2\n\"a,\"\"b\nc\",\n\"\",x\n";
        for piece in [1, 2, 100] {
            let rows = decode("csv header", &types, data, piece).unwrap();
            assert_eq!(
                rows,
                [vec![text("a,\"b\nc"), Value::Null], vec![text(""), text("x")]]
            );
        }
        assert_eq!(decode("csv", &types, b"\"a,b\n", 9).unwrap_err().state.0, "22P04");
    }

    #[test]
    fn errors_name_the_line() {
        let types = [SqlType::Text, SqlType::Text];
        let error = decode("", &types, b"a\tb\nc\n", 100).unwrap_err();
        assert_eq!(
            (error.state.0, error.message.as_str()),
            ("22P04", "missing data for column \"c1\"")
        );
        assert_eq!(error.fields().context.as_deref(), Some("COPY t, line 2"));
        let error = decode("", &types, b"a\tb\tc\n", 100).unwrap_err();
        assert_eq!(error.message, "extra data after last expected column");
        let error = decode("", &types, b"a\t\xff\n", 100).unwrap_err();
        assert_eq!(error.state.0, "22021");
    }

    fn any_text() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        prop_oneof![1 => Just(Value::Null), 4 => "[a-z\\\\N.\t\n\r,\"' é]{0,6}".prop_map(Value::Text)]
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(
            rows in proptest::collection::vec(proptest::collection::vec(any_text(), 2), 0..5),
            piece in 1usize..9,
            csv in proptest::bool::ANY,
        ) {
            let types = [SqlType::Text, SqlType::Text];
            let how = if csv { "csv" } else { "" };
            let options = options_of(&format!("COPY t FROM STDIN {how}")).unwrap();
            let mut data = Vec::new();
            for row in &rows {
                encode_line(row, &types, &options, &TimeZone::UTC, &mut data).unwrap();
            }
            proptest::prop_assert_eq!(decode(how, &types, &data, piece).unwrap(), rows);
        }

        #[test]
        fn any_bytes_are_rows_or_an_error(
            data in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
            piece in 1usize..9,
        ) {
            let types = [SqlType::Text, SqlType::Text];
            let _ = decode("", &types, &data, piece);
            let _ = decode("csv", &types, &data, piece);
        }
    }
}
