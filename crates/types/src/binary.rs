//! The binary wire form of values: what PostgreSQL's send and receive functions exchange.
//!
//! Integers and floats are big endian, dates and timestamps the integers of [`Value`], text its bytes,
//! `numeric` digits in base 10000, `uuid` its 16 bytes, `boolean` one byte.

use std::borrow::Cow;

use crate::{Numeric, SqlError, SqlState, SqlType, Value, ValueRef, datetime, text};

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
        ValueRef::Int8(v) | ValueRef::Timestamp(v) | ValueRef::TimestampTz(v) => {
            out.extend_from_slice(&v.to_be_bytes());
        }
        ValueRef::Float4(v) => out.extend_from_slice(&v.to_bits().to_be_bytes()),
        ValueRef::Float8(v) => out.extend_from_slice(&v.to_bits().to_be_bytes()),
        ValueRef::Numeric(v) => v.encode_wire(out),
        ValueRef::Text(v) => {
            out.extend_from_slice(v.as_bytes());
            out.resize(out.len() + text::padding(v, ty), b' ');
        }
        ValueRef::Bytea(v) => out.extend_from_slice(v),
        ValueRef::Uuid(v) => out.extend_from_slice(v),
    }
}

/// Reads the binary form of a value of the type.
///
/// # Errors
/// 22P03 for a wrong length or malformed bytes, 22021 for text that is not UTF-8 or has a NUL, 22001 for text
/// that is too long, 22003 and 22008 for numbers and times beyond their range.
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
            let decoded =
                std::str::from_utf8(bytes).map_err(|error| invalid_utf8(bytes, error.valid_up_to()))?;
            text::check_no_nul(decoded)?;
            Value::Text(text::fit_text(Cow::Borrowed(decoded), ty)?.into_owned())
        }
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
    })
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
        // PostgreSQL's code for a message that is too short is that of the protocol.
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
    // As many bytes as the first one announces are shown.
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
