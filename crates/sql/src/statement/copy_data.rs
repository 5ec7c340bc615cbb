//! The data of a COPY, in any of its formats.

use weft_types::{SqlError, SqlType, TimeZone, Value};

use super::copy::{CopyFormat, CopyOptions};
use super::copy_binary::{self, BinaryDecoder};
use super::copy_text::{self, CopyDecoder};

/// Reads the data of COPY FROM.
#[derive(Debug)]
pub enum CopyReader {
    /// Text and CSV.
    Lines(CopyDecoder),
    /// Binary.
    Binary(BinaryDecoder),
}

impl CopyReader {
    /// A reader of rows with the given columns, in the data's order.
    pub fn new(
        table: impl Into<String>,
        columns: Vec<(String, SqlType)>,
        options: CopyOptions,
        zone: TimeZone,
    ) -> CopyReader {
        match options.format {
            CopyFormat::Binary => CopyReader::Binary(BinaryDecoder::new(table, columns)),
            _ => CopyReader::Lines(CopyDecoder::new(table, columns, options, zone)),
        }
    }

    /// Takes a piece of data and calls `each` with every row that it completes.
    ///
    /// # Errors
    /// 22P04 for data that is not in the format, those of values, and those of `each`.
    pub fn push(
        &mut self,
        data: &[u8],
        each: impl FnMut(Vec<Value>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        match self {
            CopyReader::Lines(decoder) => decoder.push(data, each),
            CopyReader::Binary(decoder) => decoder.push(data, each),
        }
    }

    /// Ends the data.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn finish(&mut self, each: impl FnMut(Vec<Value>) -> Result<(), SqlError>) -> Result<(), SqlError> {
        match self {
            CopyReader::Lines(decoder) => decoder.finish(each),
            CopyReader::Binary(decoder) => decoder.finish(),
        }
    }
}

/// Appends what precedes the rows of COPY TO; `names` are those of the columns.
///
/// # Errors
/// 57014 if the statement is cancelled.
pub fn encode_start(
    names: &[Value],
    options: &CopyOptions,
    zone: &TimeZone,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    if options.format == CopyFormat::Binary {
        copy_binary::encode_header(out);
    } else if options.header {
        copy_text::encode_line(names, &vec![SqlType::Text; names.len()], options, zone, out)?;
    }
    Ok(())
}

/// Appends one row of COPY TO.
///
/// # Errors
/// 54000 for a value that is too long, 57014 if the statement is cancelled.
pub fn encode_row(
    values: &[Value],
    types: &[SqlType],
    options: &CopyOptions,
    zone: &TimeZone,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    match options.format {
        CopyFormat::Binary => copy_binary::encode_row(values, types, out),
        _ => copy_text::encode_line(values, types, options, zone, out),
    }
}

/// Appends what follows the rows of COPY TO.
pub fn encode_end(options: &CopyOptions, out: &mut Vec<u8>) {
    if options.format == CopyFormat::Binary {
        copy_binary::encode_trailer(out);
    }
}
