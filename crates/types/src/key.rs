//! Order-preserving encoding of values, as compared by indexes and locks.
//!
//! A key is the concatenation of its columns. Each column is self-delimiting, so the order of keys is the
//! order of the tuples, and an encoded prefix of columns is a prefix of the bytes.
//!
//! ```text
//! 0x02                        NULL (after every value: NULLS LAST)
//! 0x01 payload                a value:
//!   boolean                   0 or 1
//!   integers, date, times     big endian, sign bit flipped, as wide as the type
//!   real, double precision    IEEE bits: negative inverted, else sign bit set; -0 as 0; NaN greatest
//!   text, varchar, char       bytes, 0x00 as 0x00 0xFF, then 0x00 0x00 (char without trailing blanks)
//!   bytea                     likewise
//!   uuid                      16 bytes
//!   numeric                   class, exponent, digits: see `put_numeric`
//!   oid and alias types       big endian
//!   interval                  total microseconds, months of 30 days: 16 bytes, sign bit flipped
//!   arrays                    items as columns, 0x00, number of dimensions (1 byte), then their lengths and
//!                             their lower bounds as integers
//!   records                   fields as columns, 0x00
//!   json                      as text (json has no order: never the key of an index)
//!   jsonb                     see `json::put_key`
//! ```
//!
//! Values that are equal in SQL have equal bytes: 1.0 and 1.00, -0.0 and 0.0, 1 month and 30 days. Text is
//! ordered by bytes (collation "C"). The encoding is part of the file format and never changes.

use bigdecimal::num_bigint::{BigInt, Sign};
use weft_base::{ByteReader, CodecError};

use crate::array::{ArrayValue, DIMENSIONS_MAX};
use crate::interval::Interval;
use crate::{ColumnKind, Numeric, RowLayout, SqlType, Value, ValueRef, json};

pub(crate) const MARK_VALUE: u8 = 0x01;
const MARK_NULL: u8 = 0x02;
/// Terminates the items of an array and the fields of a record; sorts before a further item.
const MARK_END: u8 = 0x00;

/// Appends one column of a key.
pub fn encode_key_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Numeric(v) => {
            out.push(MARK_VALUE);
            put_numeric(out, v);
        }
        other => encode_key_value_ref(out, &other.as_ref()),
    }
}

/// Appends NULL as one column of a key.
pub fn encode_key_null(out: &mut Vec<u8>) {
    out.push(MARK_NULL);
}

/// Appends one column of a key.
#[inline]
pub fn encode_key_value_ref(out: &mut Vec<u8>, value: &ValueRef<'_>) {
    match value {
        ValueRef::Null => return out.push(MARK_NULL),
        ValueRef::Int2(v) => return out.extend_from_slice(&int2_key(*v)),
        ValueRef::Int4(v) | ValueRef::Date(v) => return out.extend_from_slice(&int4_key(*v)),
        ValueRef::Int8(v) | ValueRef::Timestamp(v) | ValueRef::TimestampTz(v) | ValueRef::Time(v) => {
            return out.extend_from_slice(&int8_key(*v));
        }
        _ => out.push(MARK_VALUE),
    }
    match value {
        ValueRef::Null
        | ValueRef::Int2(_)
        | ValueRef::Int4(_)
        | ValueRef::Date(_)
        | ValueRef::Int8(_)
        | ValueRef::Timestamp(_)
        | ValueRef::TimestampTz(_)
        | ValueRef::Time(_) => {}
        ValueRef::Bool(v) => out.push(u8::from(*v)),
        ValueRef::Float4(v) => out.extend_from_slice(&order_f32(*v).to_be_bytes()),
        ValueRef::Float8(v) => out.extend_from_slice(&order_f64(*v).to_be_bytes()),
        ValueRef::Numeric(v) => put_numeric(out, v),
        ValueRef::Text(v) => put_escaped(out, v.as_bytes()),
        ValueRef::Bytea(v) => put_escaped(out, v),
        ValueRef::Json(v) => put_escaped(out, v.as_bytes()),
        ValueRef::Jsonb(v) => json::put_key(out, *v),
        ValueRef::Uuid(v) => out.extend_from_slice(v),
        ValueRef::Interval(v) => {
            out.extend_from_slice(&(v.span() as u128 ^ 1 << 127).to_be_bytes());
        }
        ValueRef::Oid(v) => out.extend_from_slice(&v.to_be_bytes()),
        ValueRef::Array(v) => put_array(out, v),
        ValueRef::Record(fields) => {
            for (_, field) in fields.iter() {
                encode_key_value(out, field);
            }
            out.push(MARK_END);
        }
    }
}

/// Items first, dimensions after the end mark, as in the comparison of arrays.
fn put_array(out: &mut Vec<u8>, array: &ArrayValue) {
    for item in &array.items {
        encode_key_value(out, item);
    }
    out.push(MARK_END);
    out.push(array.dimensions.len() as u8);
    for (length, _) in &array.dimensions {
        out.extend_from_slice(&flip32(*length));
    }
    for (_, lower) in &array.dimensions {
        out.extend_from_slice(&flip32(*lower));
    }
}

fn take_array(reader: &mut ByteReader<'_>, ty: SqlType) -> Result<Value, CodecError> {
    let mut items = Vec::new();
    loop {
        match reader.u8()? {
            MARK_END => break,
            MARK_NULL => items.push(Value::Null),
            MARK_VALUE => items.push(decode_payload(reader, &ty)?),
            _ => return Err(reader.error("array key has an unknown marker")),
        }
    }
    let count = usize::from(reader.u8()?);
    if count > DIMENSIONS_MAX {
        return Err(reader.error("array key has too many dimensions"));
    }
    let mut dimensions = vec![(0, 0); count];
    for (length, _) in &mut dimensions {
        *length = unflip32(reader.array()?);
    }
    for (_, lower) in &mut dimensions {
        *lower = unflip32(reader.array()?);
    }
    let array = ArrayValue {
        element: ty,
        dimensions,
        items,
    };
    match array.is_valid() {
        true => Ok(Value::Array(Box::new(array))),
        false => Err(reader.error("array key has wrong dimensions")),
    }
}

/// Appends the key of columns `cols` of an encoded row.
#[inline]
pub fn encode_key_from_row(out: &mut Vec<u8>, layout: &RowLayout, row: &[u8], cols: &[usize]) {
    for &col in cols {
        // The most common key types, read directly from the cell.
        match (layout.types().get(col), layout.fixed_u64(row, col)) {
            (Some(SqlType::Int4 | SqlType::Date), Some(bits)) => {
                out.extend_from_slice(&int4_key(bits as i32));
            }
            (Some(SqlType::Int8 | SqlType::Timestamp | SqlType::TimestampTz), Some(bits)) => {
                out.extend_from_slice(&int8_key(bits as i64));
            }
            _ => encode_key_value_ref(out, &layout.value_ref(row, col)),
        }
    }
}

/// An integer as one column of a key.
#[inline(always)]
pub(crate) fn int2_key(v: i16) -> [u8; 3] {
    let [a, b] = (v as u16 ^ 1 << 15).to_be_bytes();
    [MARK_VALUE, a, b]
}

/// The same for `integer` and `date`.
#[inline(always)]
pub(crate) fn int4_key(v: i32) -> [u8; 5] {
    // Assembled in a register: byte by byte takes twice the instructions.
    let payload = u64::from(u32::from_le_bytes(flip32(v)));
    let [key @ .., _, _, _] = (u64::from(MARK_VALUE) | payload << 8).to_le_bytes();
    key
}

/// The same for `bigint` and times.
#[inline(always)]
pub(crate) fn int8_key(v: i64) -> [u8; 9] {
    let [a, b, c, d, e, f, g, h] = flip64(v);
    [MARK_VALUE, a, b, c, d, e, f, g, h]
}

/// Decodes one column of a key. A `numeric` gets the scale of its type, or the smallest scale that
/// represents it; an `interval` has no months.
///
/// # Errors
/// At the end of input, and for bytes that do not encode a value of the type.
pub fn decode_key_value(reader: &mut ByteReader<'_>, ty: &SqlType) -> Result<Value, CodecError> {
    let position = reader.position();
    match reader.u8()? {
        MARK_NULL => return Ok(Value::Null),
        MARK_VALUE => {}
        _ => return Err(CodecError::new(position, "key column has an unknown marker")),
    }
    decode_payload(reader, ty)
}

/// The payload after [`MARK_VALUE`].
fn decode_payload(reader: &mut ByteReader<'_>, ty: &SqlType) -> Result<Value, CodecError> {
    let position = reader.position();
    Ok(match ty {
        SqlType::Bool => Value::Bool(reader.bool()?),
        SqlType::Int2 => Value::Int2((u16::from_be_bytes(reader.array()?) ^ 1 << 15) as i16),
        SqlType::Int4 => Value::Int4(unflip32(reader.array()?)),
        SqlType::Date => Value::Date(unflip32(reader.array()?)),
        SqlType::Int8 => Value::Int8(unflip64(reader.array()?)),
        SqlType::Timestamp => Value::Timestamp(unflip64(reader.array()?)),
        SqlType::TimestampTz => Value::TimestampTz(unflip64(reader.array()?)),
        SqlType::Float4 => {
            let bits = u32::from_be_bytes(reader.array()?);
            Value::Float4(f32::from_bits(if bits >> 31 == 1 {
                bits ^ 1 << 31
            } else {
                !bits
            }))
        }
        SqlType::Float8 => {
            let bits = u64::from_be_bytes(reader.array()?);
            Value::Float8(f64::from_bits(if bits >> 63 == 1 {
                bits ^ 1 << 63
            } else {
                !bits
            }))
        }
        SqlType::Numeric(spec) => {
            let number = take_numeric(reader)?;
            let scale = spec.map_or(0, |spec| spec.scale.max(0));
            if i32::from(number.scale()) < i32::from(scale) {
                let padded = number.round(i32::from(scale));
                Value::Numeric(padded.map_err(|_| CodecError::new(position, "numeric key is out of range"))?)
            } else {
                Value::Numeric(number)
            }
        }
        SqlType::Text
        | SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::Name
        | SqlType::InternalChar
        | SqlType::Void => {
            let text = String::from_utf8(take_escaped(reader)?);
            Value::Text(text.map_err(|_| CodecError::new(position, "key text is not UTF-8"))?)
        }
        SqlType::Bytea => Value::Bytea(take_escaped(reader)?),
        SqlType::Json => {
            let text = String::from_utf8(take_escaped(reader)?);
            Value::Json(text.map_err(|_| CodecError::new(position, "key text is not UTF-8"))?)
        }
        SqlType::Jsonb => Value::Jsonb(json::take_key(reader)?),
        SqlType::Uuid => Value::Uuid(reader.array()?),
        SqlType::Time => Value::Time(unflip64(reader.array()?)),
        SqlType::Interval => {
            let span = (u128::from_be_bytes(reader.array()?) ^ 1 << 127) as i128;
            let interval = Interval::of_span(span);
            Value::Interval(interval.ok_or(CodecError::new(position, "interval key is out of range"))?)
        }
        SqlType::Oid | SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            Value::Oid(u32::from_be_bytes(reader.array()?))
        }
        SqlType::Array(element) => take_array(reader, element.ty())?,
        SqlType::Record => return Err(CodecError::new(position, "key of a record has no types")),
    })
}

/// Length of the prefix of an encoded key that identifies the lock partition of a range: the mark and all
/// but the last byte of a fixed first column (so that a partition holds 256 neighbours), 9 bytes if the
/// column is variable. Shorter keys are their own partition.
#[must_use]
pub fn range_prefix_len(first: &SqlType) -> usize {
    match first.column_kind() {
        ColumnKind::Fixed(bytes) => usize::from(bytes),
        ColumnKind::Variable => 9,
    }
}

/// The smallest key greater than every key that starts with `prefix`; `None` if there is none (all bytes
/// 0xFF).
#[must_use]
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut successor = prefix.get(..=last)?.to_vec();
    if let Some(byte) = successor.last_mut() {
        *byte += 1;
    }
    Some(successor)
}

fn flip32(v: i32) -> [u8; 4] {
    (v as u32 ^ 1 << 31).to_be_bytes()
}

fn unflip32(bytes: [u8; 4]) -> i32 {
    (u32::from_be_bytes(bytes) ^ 1 << 31) as i32
}

fn flip64(v: i64) -> [u8; 8] {
    (v as u64 ^ 1 << 63).to_be_bytes()
}

fn unflip64(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ 1 << 63) as i64
}

fn order_f32(v: f32) -> u32 {
    let v = if v.is_nan() { f32::NAN.abs() } else { v + 0.0 };
    let bits = v.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn order_f64(v: f64) -> u64 {
    // Adding 0 turns -0 into 0 and changes nothing else.
    let v = if v.is_nan() { f64::NAN.abs() } else { v + 0.0 };
    let bits = v.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

pub(crate) fn put_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == 0) {
        let (head, tail) = rest.split_at(at);
        out.extend_from_slice(head);
        out.extend_from_slice(&[0x00, 0xff]);
        rest = tail.get(1..).unwrap_or(&[]);
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0x00, 0x00]);
}

pub(crate) fn take_escaped(reader: &mut ByteReader<'_>) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    loop {
        match reader.u8()? {
            0x00 => match reader.u8()? {
                0x00 => return Ok(out),
                0xff => out.push(0x00),
                _ => return Err(reader.error("bad escape in a key")),
            },
            byte => out.push(byte),
        }
    }
}

const CLASS_NEGATIVE: u8 = 1;
const CLASS_ZERO: u8 = 2;
const CLASS_POSITIVE: u8 = 3;
const CLASS_NAN: u8 = 4;

/// Class; then for nonzero numbers, written as `0.d1 d2 d3... * 10^exponent` without leading or trailing
/// zeros: the exponent (`i32` as above), the digits in pairs (pair + 1, one byte each), 0x00. For negative
/// numbers everything after the class is inverted.
pub(crate) fn put_numeric(out: &mut Vec<u8>, v: &Numeric) {
    if v.is_nan() {
        return out.push(CLASS_NAN);
    }
    if v.is_zero() {
        return out.push(CLASS_ZERO);
    }
    let negative = v.is_negative();
    out.push(if negative { CLASS_NEGATIVE } else { CLASS_POSITIVE });
    let start = out.len();
    if let Some((mantissa, scale)) = v.small_parts() {
        let mut buffer = [0_u8; 20];
        let digits = small_digits(mantissa.unsigned_abs(), &mut buffer);
        put_digits(out, digits, digits.len() as i32 - i32::from(scale));
    } else if let Some((mantissa, scale)) = v.parts() {
        let digits = mantissa.magnitude().to_radix_be(10);
        put_digits(out, &digits, digits.len() as i32 - i32::from(scale));
    }
    if negative {
        for byte in out.iter_mut().skip(start) {
            *byte = !*byte;
        }
    }
}

/// Decimal digits of a number, most significant first, values 0 to 9.
fn small_digits(mut rest: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut count = 0;
    for slot in buffer.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *slot = (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    buffer.get(20 - count..).unwrap_or(&[])
}

fn put_digits(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    out.extend_from_slice(&flip32(exponent));
    let significant = digits
        .iter()
        .rposition(|digit| *digit != 0)
        .map_or(0, |last| last + 1);
    for pair in digits.get(..significant).unwrap_or(&[]).chunks(2) {
        let pair = match pair {
            [tens, ones] => tens * 10 + ones,
            [tens] => tens * 10,
            _ => 0,
        };
        out.push(pair + 1);
    }
    out.push(0);
}

pub(crate) fn take_numeric(reader: &mut ByteReader<'_>) -> Result<Numeric, CodecError> {
    let position = reader.position();
    let invert = match reader.u8()? {
        CLASS_NAN => return Ok(Numeric::NAN),
        CLASS_ZERO => return Ok(Numeric::ZERO),
        CLASS_POSITIVE => 0x00,
        CLASS_NEGATIVE => 0xff,
        _ => return Err(CodecError::new(position, "numeric key has an unknown class")),
    };
    let exponent = unflip32(reader.array::<4>()?.map(|byte| byte ^ invert));
    let mut digits: Vec<u8> = Vec::new();
    loop {
        match reader.u8()? ^ invert {
            0 => break,
            pair @ 1..=100 => digits.extend_from_slice(&[(pair - 1) / 10, (pair - 1) % 10]),
            _ => return Err(reader.error("bad digits in a numeric key")),
        }
    }
    if digits.last() == Some(&0) {
        digits.pop();
    }
    let canonical = digits.first().is_some_and(|d| *d != 0) && digits.last().is_some_and(|d| *d != 0);
    let out_of_range = CodecError::new(position, "numeric key is out of range");
    let scale = i64::try_from(digits.len()).unwrap_or(i64::MAX) - i64::from(exponent);
    let zeros = usize::try_from(-scale).unwrap_or(0);
    if !canonical || zeros > crate::numeric::INTEGER_DIGITS_MAX as usize {
        return Err(out_of_range);
    }
    digits.resize(digits.len() + zeros, 0);
    let sign = if invert == 0 { Sign::Plus } else { Sign::Minus };
    let mantissa = BigInt::from_radix_be(sign, &digits, 10).ok_or(out_of_range)?;
    let scale = u16::try_from(scale.max(0)).map_err(|_| out_of_range)?;
    Numeric::from_parts(mantissa, scale).map_err(|_| out_of_range)
}
