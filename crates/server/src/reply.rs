//! Writing the server's messages.
//!
//! What a session sends for every statement is written here directly into the reply buffer, without a message
//! value in between; what it sends once in its life (authentication, parameters, keys, copy headers) goes
//! through `pgwire`. The conversations in `tests/` read everything back with `pgwire`'s decoders.
//!
//! Invariant: the buffer holds whole messages between calls. A row that cannot be finished is cut off again.

use bytes::{BufMut, BytesMut};
use pgwire::messages::PgWireBackendMessage;
use weft::CHANGED_RESULT_TYPE;
use weft_types::SqlError;
use weft_wire::frontend::Format;

use crate::backend::{CommandTag, NoticeLevel, OutputColumn, TxnStatus};

/// How serious an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The statement failed; the session goes on.
    Error,
    /// The session ends.
    Fatal,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        }
    }
}

/// Starts a message; give what comes back to [`end`].
pub fn begin(out: &mut BytesMut, tag: u8) -> usize {
    let at = out.len();
    out.put_u8(tag);
    out.put_i32(0);
    at
}

/// Ends a message: writes its length.
pub fn end(out: &mut BytesMut, at: usize) {
    let length = i32::try_from(out.len() - at - 1).unwrap_or(i32::MAX);
    if let Some(place) = out.get_mut(at + 1..at + 5) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

fn text(out: &mut BytesMut, text: &str) {
    // A zero byte would end the text early and make the rest of the message unreadable.
    out.extend(text.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    out.put_u8(0);
}

/// A message by `pgwire`. Its encoders only refuse messages over their size limits, which these never reach.
pub fn put(out: &mut BytesMut, message: &PgWireBackendMessage) {
    let at = out.len();
    if message.encode(out).is_err() {
        out.truncate(at);
    }
}

/// ParseComplete.
pub fn parse_complete(out: &mut BytesMut) {
    out.put_slice(b"1\0\0\0\x04");
}

/// BindComplete.
pub fn bind_complete(out: &mut BytesMut) {
    out.put_slice(b"2\0\0\0\x04");
}

/// CloseComplete.
pub fn close_complete(out: &mut BytesMut) {
    out.put_slice(b"3\0\0\0\x04");
}

/// NoData: the described statement returns no rows.
pub fn no_data(out: &mut BytesMut) {
    out.put_slice(b"n\0\0\0\x04");
}

/// PortalSuspended: the row limit was reached.
pub fn portal_suspended(out: &mut BytesMut) {
    out.put_slice(b"s\0\0\0\x04");
}

/// EmptyQueryResponse.
pub fn empty_query(out: &mut BytesMut) {
    out.put_slice(b"I\0\0\0\x04");
}

/// CopyDone.
pub fn copy_done(out: &mut BytesMut) {
    out.put_slice(b"c\0\0\0\x04");
}

/// CopyData.
pub fn copy_data(out: &mut BytesMut, data: &[u8]) {
    let at = begin(out, b'd');
    out.put_slice(data);
    end(out, at);
}

/// ReadyForQuery.
pub fn ready(out: &mut BytesMut, status: TxnStatus) {
    out.put_slice(b"Z\0\0\0\x05");
    out.put_u8(match status {
        TxnStatus::Idle => b'I',
        TxnStatus::InTransaction => b'T',
        TxnStatus::Failed => b'E',
    });
}

/// CommandComplete; an INSERT's count stands behind the zero that once was the row's oid.
pub fn command_complete(out: &mut BytesMut, tag: &CommandTag) {
    let at = begin(out, b'C');
    out.put_slice(tag.verb.as_bytes());
    if let Some(rows) = tag.rows {
        out.put_slice(if tag.verb == "INSERT" { b" 0 " } else { b" " });
        decimal(out, rows);
    }
    out.put_u8(0);
    end(out, at);
}

/// ParameterDescription.
pub fn parameter_description(out: &mut BytesMut, type_oids: &[u32]) {
    let at = begin(out, b't');
    out.put_u16(u16::try_from(type_oids.len()).unwrap_or(u16::MAX));
    for oid in type_oids {
        out.put_u32(*oid);
    }
    end(out, at);
}

/// RowDescription; `format` tells the format of each column.
pub fn row_description(out: &mut BytesMut, columns: &[OutputColumn], format: impl Fn(usize) -> Format) {
    let at = begin(out, b'T');
    out.put_u16(u16::try_from(columns.len()).unwrap_or(u16::MAX));
    for (index, column) in columns.iter().enumerate() {
        let (table, attribute) = column.table.unwrap_or((0, 0));
        text(out, &column.name);
        out.put_u32(table);
        out.put_i16(attribute);
        out.put_u32(column.oid());
        out.put_i16(column.ty.typlen());
        out.put_i32(column.ty.typmod());
        out.put_i16(match format(index) {
            Format::Text => 0,
            Format::Binary => 1,
        });
    }
    end(out, at);
}

/// ErrorResponse.
pub fn error(out: &mut BytesMut, severity: Severity, error: &SqlError) {
    let at = begin(out, b'E');
    report_fields(out, severity.as_str(), error);
    end(out, at);
}

/// NoticeResponse.
pub fn notice(out: &mut BytesMut, level: NoticeLevel, notice: &SqlError) {
    let at = begin(out, b'N');
    report_fields(out, level.as_str(), notice);
    end(out, at);
}

fn report_fields(out: &mut BytesMut, severity: &str, error: &SqlError) {
    let mut field = |code: u8, value: Option<&str>| {
        if let Some(value) = value {
            out.put_u8(code);
            text(out, value);
        }
    };
    field(b'S', Some(severity));
    field(b'V', Some(severity));
    let fields = error.fields();
    let position = fields.position.map(|position| position.to_string());
    let names_object = fields.table.is_some() || fields.constraint.is_some();
    let schema = fields.schema.as_deref().or(names_object.then_some("public"));
    field(b'C', Some(error.state.code()));
    field(b'M', Some(&error.message));
    field(b'D', fields.detail.as_deref());
    field(b'H', fields.hint.as_deref());
    field(b'P', position.as_deref());
    field(b'W', fields.context.as_deref());
    field(b's', schema);
    field(b't', fields.table.as_deref());
    field(b'c', fields.column.as_deref());
    field(b'd', fields.data_type.as_deref());
    field(b'n', fields.constraint.as_deref());
    // PostgreSQL names the routine that raises an error. Drivers look at this one's, to prepare again.
    let prepares_again = error.message == CHANGED_RESULT_TYPE;
    field(b'R', prepares_again.then_some("RevalidateCachedQuery"));
    out.put_u8(0);
}

/// A number in decimal digits, without going through `fmt`.
pub fn decimal(out: &mut BytesMut, number: u64) {
    let mut digits = [0u8; 20];
    let mut rest = number;
    let mut length = 0;
    for place in digits.iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
        length += 1;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(digits.get(digits.len() - length..).unwrap_or_default());
}
