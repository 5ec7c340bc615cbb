//! The binary wire format of values, as exchanged with PostgreSQL's send and receive functions.
//!
//! Integers and floats are big endian, dates and timestamps are the integers of [`Value`], text its bytes,
//! `numeric` digits in base 10000, `uuid` its 16 bytes, `boolean` one byte, `interval` microseconds, days
//! and months, `json` its text, `jsonb` the byte 1 and its text; arrays and records have their items, each
//! preceded by its length.

use std::borrow::Cow;

use crate::array::{self, ArrayValue, DIMENSIONS_MAX};
use crate::interval::Interval;
use crate::{
    Element, Jsonb, Numeric, SqlError, SqlState, SqlType, Value, ValueRef, cast, datetime, interrupt, json,
    text,
};

/// Appends the binary form of a value of the type, without length; nothing for NULL.
pub fn encode_binary(value: &Value, ty: &SqlType, out: &mut Vec<u8>) {
    match value {
        Value::Numeric(v) => v.encode_wire(out),
        other => encode_binary_ref(&other.as_ref(), ty, out),
    }
}

/// Appends the binary form of a value of the type, without length; nothing for NULL.
pub fn encode_binary_ref(value: &ValueRef<'_>, ty: &SqlType, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => {}
        ValueRef::Bool(v) => out.push(u8::from(*v)),
        ValueRef::Int2(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Int4(v) | ValueRef::Date(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Int8(v) | ValueRef::Timestamp(v) | ValueRef::TimestampTz(v) | ValueRef::Time(v) => {
            out.extend_from_slice(&v.to_be_bytes());
        }
        ValueRef::Float4(v) => out.extend_from_slice(&v.to_bits().to_be_bytes()),
        ValueRef::Float8(v) => out.extend_from_slice(&v.to_bits().to_be_bytes()),
        ValueRef::Numeric(v) => v.encode_wire(out),
        ValueRef::Text("") if *ty == SqlType::InternalChar => out.push(0),
        ValueRef::Text(v) => {
            out.extend_from_slice(v.as_bytes());
            out.resize(out.len() + text::padding(v, ty), b' ');
        }
        ValueRef::Bytea(v) => out.extend_from_slice(v),
        ValueRef::Uuid(v) => out.extend_from_slice(v),
        ValueRef::Json(v) => out.extend_from_slice(v.as_bytes()),
        ValueRef::Jsonb(v) => {
            let mut shown = String::new();
            // Cancellation is the only possible error.
            let _ = interrupt::masked(|| json::write(*v, &mut shown));
            out.push(JSONB_VERSION);
            out.extend_from_slice(shown.as_bytes());
        }
        ValueRef::Interval(v) => {
            out.extend_from_slice(&v.micros.to_be_bytes());
            out.extend_from_slice(&v.days.to_be_bytes());
            out.extend_from_slice(&v.months.to_be_bytes());
        }
        ValueRef::Oid(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Array(v) => put_array(v, out),
        ValueRef::Record(fields) => put_record(fields, out),
    }
}

/// Decodes the binary form of a value of the type.
///
/// # Errors
/// 22P03 for a wrong length or malformed bytes, 22021 for text that is not UTF-8 or contains NUL, 22001 for
/// text that is too long, 22003 and 22008 for numbers and times out of range.
pub fn decode_binary(bytes: &[u8], ty: &SqlType) -> Result<Value, SqlError> {
    Ok(match ty {
        SqlType::Bool => Value::Bool(u8::from_be_bytes(exact(bytes)?) != 0),
        SqlType::Int2 => Value::Int2(i16::from_be_bytes(exact(bytes)?)),
        SqlType::Int4 => Value::Int4(i32::from_be_bytes(exact(bytes)?)),
        SqlType::Int8 => Value::Int8(i64::from_be_bytes(exact(bytes)?)),
        SqlType::Float4 => Value::Float4(f32::from_bits(u32::from_be_bytes(exact(bytes)?))),
        SqlType::Float8 => Value::Float8(f64::from_bits(u64::from_be_bytes(exact(bytes)?))),
        SqlType::Numeric(spec) => {
            let number = Numeric::decode_wire(bytes)?;
            Value::Numeric(match spec {
                Some(spec) => number.apply_spec(*spec)?,
                None => number,
            })
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            let decoded = decode_text(bytes)?;
            Value::Text(text::fit_text(Cow::Borrowed(decoded), ty)?.into_owned())
        }
        SqlType::Name => Value::Text(cast::fit_name(decode_text(bytes)?.to_owned())),
        SqlType::InternalChar => Value::Text(match u8::from_be_bytes(exact(bytes)?) {
            0 => String::new(),
            byte => cast::internal_char(byte)?,
        }),
        SqlType::Void => Value::Text(String::new()),
        SqlType::Bytea => Value::Bytea(bytes.to_vec()),
        SqlType::Date => {
            let days = i32::from_be_bytes(exact(bytes)?);
            if !datetime::is_date(days) {
                return Err(SqlError::new(
                    SqlState::DATETIME_FIELD_OVERFLOW,
                    "date out of range",
                ));
            }
            Value::Date(days)
        }
        SqlType::Timestamp => Value::Timestamp(timestamp(bytes)?),
        SqlType::TimestampTz => Value::TimestampTz(timestamp(bytes)?),
        SqlType::Uuid => Value::Uuid(exact(bytes)?),
        SqlType::Json => {
            let decoded = decode_text(bytes)?;
            json::check(decoded)?;
            Value::Json(decoded.to_owned())
        }
        SqlType::Jsonb => Value::Jsonb(take_jsonb(bytes)?),
        SqlType::Time => {
            let micros = i64::from_be_bytes(exact(bytes)?);
            if !(0..=datetime::MICROS_PER_DAY).contains(&micros) {
                let state = SqlState::DATETIME_FIELD_OVERFLOW;
                return Err(SqlError::new(state, "time out of range"));
            }
            Value::Time(micros)
        }
        SqlType::Interval => {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = exact(bytes)?;
            Value::Interval(Interval {
                micros: i64::from_be_bytes([a, b, c, d, e, f, g, h]),
                days: i32::from_be_bytes([i, j, k, l]),
                months: i32::from_be_bytes([m, n, o, p]),
            })
        }
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            Value::Oid(u32::from_be_bytes(exact(bytes)?))
        }
        SqlType::Array(element) => take_array(bytes, *element)?,
        SqlType::Record => {
            return Err(SqlError::unsupported(
                "input of anonymous composite types is not implemented",
            ));
        }
    })
}

/// The first byte of a `jsonb`.
const JSONB_VERSION: u8 = 1;

/// The version and the text.
fn take_jsonb(bytes: &[u8]) -> Result<Jsonb, SqlError> {
    match bytes.split_first() {
        Some((&JSONB_VERSION, text)) => json::parse_jsonb(decode_text(text)?),
        Some((version, _)) => Err(SqlError::internal(format!(
            "unsupported jsonb version number {version}"
        ))),
        None => Err(SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            "no data left in message",
        )),
    }
}

fn decode_text(bytes: &[u8]) -> Result<&str, SqlError> {
    let decoded = std::str::from_utf8(bytes).map_err(|error| invalid_utf8(bytes, error.valid_up_to()))?;
    text::check_no_nul(decoded)?;
    Ok(decoded)
}

/// Number of dimensions, whether an item is NULL, the item type; length and lower bound of each dimension;
/// the items, each preceded by its length.
fn put_array(array: &ArrayValue, out: &mut Vec<u8>) {
    let has_null = array.items.iter().any(Value::is_null);
    out.extend_from_slice(&(array.dimensions.len() as i32).to_be_bytes());
    out.extend_from_slice(&i32::from(has_null).to_be_bytes());
    out.extend_from_slice(&array.element.oid().to_be_bytes());
    for (length, lower) in &array.dimensions {
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&lower.to_be_bytes());
    }
    for item in &array.items {
        put_item(item, &array.element, out);
    }
}

/// Number of fields; type, length and bytes of each field.
fn put_record(fields: &[(SqlType, Value)], out: &mut Vec<u8>) {
    out.extend_from_slice(&(fields.len() as i32).to_be_bytes());
    for (ty, value) in fields {
        out.extend_from_slice(&ty.oid().to_be_bytes());
        put_item(value, ty, out);
    }
}

/// The binary form preceded by its length, -1 for NULL.
fn put_item(value: &Value, ty: &SqlType, out: &mut Vec<u8>) {
    if value.is_null() {
        return out.extend_from_slice(&(-1_i32).to_be_bytes());
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    encode_binary(value, ty, out);
    let len = (out.len() - start - 4) as i32;
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&len.to_be_bytes());
    }
}

fn take_array(bytes: &[u8], element: Element) -> Result<Value, SqlError> {
    let malformed = |message: &str| SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message);
    let mut rest = bytes;
    let dimension_count = take_i32(&mut rest)?;
    let flags = take_i32(&mut rest)?;
    let oid = take_i32(&mut rest)? as u32;
    if dimension_count < 0 {
        return Err(malformed(&format!(
            "invalid number of dimensions: {dimension_count}"
        )));
    }
    if dimension_count as usize > DIMENSIONS_MAX {
        return Err(array::too_many_dimensions(dimension_count as usize));
    }
    if flags != 0 && flags != 1 {
        return Err(malformed("invalid array flags"));
    }
    let ty = element.ty();
    if oid != ty.oid() {
        let state = SqlState::DATATYPE_MISMATCH;
        return Err(SqlError::new(
            state,
            format!(
                "binary data has array element type {oid} ({}) instead of expected {} ({})",
                SqlType::from_oid(oid).map_or("unknown", |ty| ty.base_name()),
                ty.oid(),
                ty.base_name()
            ),
        ));
    }
    let mut dimensions = Vec::new();
    for _ in 0..dimension_count {
        let length = take_i32(&mut rest)?;
        let lower = take_i32(&mut rest)?;
        dimensions.push((length, lower));
    }
    let count = array::item_count(&dimensions)?;
    // Each item takes at least the four bytes of its length.
    if count > rest.len() / 4 {
        return Err(SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            "insufficient data left in message",
        ));
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let len = take_i32(&mut rest)?;
        if len == -1 {
            items.push(Value::Null);
            continue;
        }
        let (item, tail) = usize::try_from(len)
            .ok()
            .and_then(|len| rest.split_at_checked(len))
            .ok_or_else(|| malformed("insufficient data left in message"))?;
        rest = tail;
        items.push(decode_binary(item, &ty)?);
    }
    if !rest.is_empty() {
        return Err(malformed("incorrect binary data format"));
    }
    let dimensions = if count == 0 { Vec::new() } else { dimensions };
    Ok(Value::Array(Box::new(ArrayValue {
        element: ty,
        dimensions,
        items,
    })))
}

fn take_i32(rest: &mut &[u8]) -> Result<i32, SqlError> {
    let Some((head, tail)) = rest.split_first_chunk::<4>() else {
        return Err(SqlError::new(
            SqlState::PROTOCOL_VIOLATION,
            "insufficient data left in message",
        ));
    };
    *rest = tail;
    Ok(i32::from_be_bytes(*head))
}

fn timestamp(bytes: &[u8]) -> Result<i64, SqlError> {
    let micros = i64::from_be_bytes(exact(bytes)?);
    if datetime::is_timestamp(micros) {
        Ok(micros)
    } else {
        Err(SqlError::new(
            SqlState::DATETIME_FIELD_OVERFLOW,
            "timestamp out of range",
        ))
    }
}

fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    <[u8; N]>::try_from(bytes).map_err(|_| {
        let message = if bytes.len() < N {
            "insufficient data left in message"
        } else {
            "incorrect binary data format"
        };
        // PostgreSQL reports a message that is too short as a protocol violation.
        let state = if bytes.len() < N {
            SqlState::PROTOCOL_VIOLATION
        } else {
            SqlState::INVALID_BINARY_REPRESENTATION
        };
        SqlError::new(state, message)
    })
}

fn invalid_utf8(bytes: &[u8], at: usize) -> SqlError {
    let lead = bytes.get(at).copied().unwrap_or(0);
    // Shows as many bytes as the first byte announces.
    let len = match lead {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    };
    let shown: Vec<String> = bytes
        .iter()
        .skip(at)
        .take(len)
        .map(|byte| format!("0x{byte:02x}"))
        .collect();
    SqlError::new(
        SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")),
    )
}
