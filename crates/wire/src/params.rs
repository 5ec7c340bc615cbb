//! Parameters of a prepared statement: from what a client declares to types, from what it sends to values.
//!
//! A client may declare a type for each parameter, leave it open (oid 0, `unknown`) or declare a type that
//! Weft keeps as another (`name`, `oid`). What it declared is kept beside the type,
//! because ParameterDescription repeats it and binary values have its form.

use weft_types::{SqlError, SqlState, SqlType, TimeZone, Value, decode_binary, parse_text_in};

use crate::frontend::{Bind, Format, utf8};

/// `unknown`, the type of an undecorated literal.
const UNKNOWN: u32 = 705;
/// `"char"`, `name`, `cstring`: texts.
const TEXTS: [u32; 3] = [18, 19, 2275];
/// `oid`, `regproc`, `xid`, `cid`, `regclass`, `regtype`, `regrole`, `regnamespace`: unsigned numbers of
/// four bytes.
const OIDS: [u32; 8] = [26, 24, 28, 29, 2205, 2206, 4096, 4089];

/// The type that a declared oid stands for; None leaves it to be inferred.
pub fn declared_type(oid: u32) -> Result<Option<SqlType>, SqlError> {
    if oid == 0 || oid == UNKNOWN {
        return Ok(None);
    }
    if TEXTS.contains(&oid) {
        return Ok(Some(SqlType::Text));
    }
    if OIDS.contains(&oid) {
        return Ok(Some(SqlType::Int8));
    }
    SqlType::from_oid(oid).map(Some).ok_or_else(|| {
        SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("parameters of the type with oid {oid} are not supported"),
        )
    })
}

/// What ParameterDescription says of each parameter: the client's own declaration, else the inferred type.
pub fn described_oids(declared: &[u32], types: &[SqlType]) -> Vec<u32> {
    let describe = |(index, ty): (usize, &SqlType)| match declared.get(index) {
        None | Some(0 | &UNKNOWN) => ty.oid(),
        Some(oid) => *oid,
    };
    types.iter().enumerate().map(describe).collect()
}

/// The values of a Bind message, into `values`; texts of timestamptz without a zone are in `zone`.
pub fn decode(
    bind: &Bind<'_>,
    described: &[u32],
    types: &[SqlType],
    zone: &TimeZone,
    values: &mut Vec<Value>,
) -> Result<(), SqlError> {
    values.clear();
    values.reserve(types.len());
    for (index, (ty, bytes)) in types.iter().zip(bind.params.iter()).enumerate() {
        let value = match bytes {
            None => Value::Null,
            Some(bytes) => match bind.param_formats.get(index) {
                Format::Text => decode_text(bytes, ty, zone)?,
                Format::Binary => {
                    let oid = described.get(index).copied().unwrap_or_default();
                    decode_declared_binary(bytes, oid, ty).map_err(|error| name_parameter(error, index))?
                }
            },
        };
        values.push(value);
    }
    Ok(())
}

fn decode_text(bytes: &[u8], ty: &SqlType, zone: &TimeZone) -> Result<Value, SqlError> {
    let text = utf8(bytes)?;
    match ty {
        SqlType::Text | SqlType::Varchar(None) => Ok(Value::Text(text.to_owned())),
        _ => parse_text_in(text, ty, zone),
    }
}

fn decode_declared_binary(bytes: &[u8], oid: u32, ty: &SqlType) -> Result<Value, SqlError> {
    match (ty, bytes.first_chunk::<4>()) {
        (SqlType::Int8, Some(number)) if OIDS.contains(&oid) && bytes.len() == 4 => {
            Ok(Value::Int8(i64::from(u32::from_be_bytes(*number))))
        }
        (SqlType::Text | SqlType::Varchar(None), _) => Ok(Value::Text(utf8(bytes)?.to_owned())),
        _ => decode_binary(bytes, ty),
    }
}

/// Says which parameter a binary value was for, as PostgreSQL does.
fn name_parameter(error: SqlError, index: usize) -> SqlError {
    if error.state == SqlState::INVALID_BINARY_REPRESENTATION {
        let message = format!("incorrect binary data format in bind parameter {}", index + 1);
        return SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message);
    }
    error
}
