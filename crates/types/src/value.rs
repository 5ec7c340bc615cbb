//! One value, owned ([`Value`]) or borrowed from a row or message ([`ValueRef`]).
//!
//! Invariants:
//! 1. The variant follows the type: a column of type `bigint` holds `Int8` or `Null`, never `Int4`. `text`,
//!    `varchar` and `char`, `name` and `"char"` share `Text`; `oid` and the types that refer to objects by
//!    oid share `Oid`. `"char"` is one ASCII character, or none for the byte 0.
//! 2. A value of type `char(n)` is stored WITHOUT trailing blanks. They are insignificant in `char(n)`, so
//!    comparison, hashing and keys need not know the type; only the text and binary forms are padded.
//! 3. Text has no NUL character and is UTF-8.
//!
//! `PartialEq` and `Hash` are those of the stored form, for tests and caches: NaN equals NaN, 1.0 differs
//! from 1.00. SQL's comparison is [`compare()`](crate::compare()).

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use weft_base::{ByteReader, ByteWriter, CodecError};

use crate::array::ArrayValue;
use crate::interval::Interval;
use crate::{Element, Jsonb, JsonbRef, Numeric, SqlError, SqlState, SqlType, json};

/// Maximum nesting of arrays and records when decoding bytes.
const DEPTH_MAX: u32 = 200;

/// Maximum nesting of records. With an array around each of them, [`DEPTH_MAX`] still holds.
const RECORD_DEPTH_MAX: u32 = 99;

/// Maximum bytes of a value, or of its text.
pub const VALUE_BYTES_MAX: usize = 0x3fff_ffff;

/// A value of one of the column types.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// NULL of any type.
    #[default]
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`
    Int2(i16),
    /// `integer`
    Int4(i32),
    /// `bigint`
    Int8(i64),
    /// `real`
    Float4(f32),
    /// `double precision`
    Float8(f64),
    /// `numeric`
    Numeric(Numeric),
    /// `text`, `character varying`, `character`
    Text(String),
    /// `bytea`
    Bytea(Vec<u8>),
    /// `date`: days since 2000-01-01; the extremes are infinity
    Date(i32),
    /// `timestamp`: microseconds since 2000-01-01 00:00; the extremes are infinity
    Timestamp(i64),
    /// `timestamptz`: microseconds since 2000-01-01 00:00 UTC; the extremes are infinity
    TimestampTz(i64),
    /// `uuid`
    Uuid([u8; 16]),
    /// `time`: microseconds since midnight, 24:00 included
    Time(i64),
    /// `interval`
    Interval(Interval),
    /// `json`
    Json(String),
    /// `jsonb`
    Jsonb(Jsonb),
    /// `oid`, `regclass`, `regtype`, `regproc`
    Oid(u32),
    /// An array
    Array(Box<ArrayValue>),
    /// A record: its fields with their types
    Record(Vec<(SqlType, Value)>),
}

/// A borrowed value. Making one does not allocate, except for a `numeric` beyond 64 bits, or an array or
/// record in a row.
#[derive(Clone, Debug)]
pub enum ValueRef<'a> {
    /// NULL of any type.
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`
    Int2(i16),
    /// `integer`
    Int4(i32),
    /// `bigint`
    Int8(i64),
    /// `real`
    Float4(f32),
    /// `double precision`
    Float8(f64),
    /// `numeric`
    Numeric(Numeric),
    /// `text`, `character varying`, `character`
    Text(&'a str),
    /// `bytea`
    Bytea(&'a [u8]),
    /// `date`
    Date(i32),
    /// `timestamp`
    Timestamp(i64),
    /// `timestamptz`
    TimestampTz(i64),
    /// `uuid`
    Uuid([u8; 16]),
    /// `time`
    Time(i64),
    /// `interval`
    Interval(Interval),
    /// `json`
    Json(&'a str),
    /// `jsonb`
    Jsonb(JsonbRef<'a>),
    /// `oid`, `regclass`, `regtype`, `regproc`
    Oid(u32),
    /// An array
    Array(Cow<'a, Box<ArrayValue>>),
    /// A record: its fields with their types
    Record(Cow<'a, [(SqlType, Value)]>),
}

impl Value {
    /// Whether it is NULL.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Borrows it. A `numeric` beyond 64 bits is copied.
    #[must_use]
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(v) => ValueRef::Bool(*v),
            Self::Int2(v) => ValueRef::Int2(*v),
            Self::Int4(v) => ValueRef::Int4(*v),
            Self::Int8(v) => ValueRef::Int8(*v),
            Self::Float4(v) => ValueRef::Float4(*v),
            Self::Float8(v) => ValueRef::Float8(*v),
            Self::Numeric(v) => ValueRef::Numeric(v.clone()),
            Self::Text(v) => ValueRef::Text(v),
            Self::Bytea(v) => ValueRef::Bytea(v),
            Self::Date(v) => ValueRef::Date(*v),
            Self::Timestamp(v) => ValueRef::Timestamp(*v),
            Self::TimestampTz(v) => ValueRef::TimestampTz(*v),
            Self::Uuid(v) => ValueRef::Uuid(*v),
            Self::Time(v) => ValueRef::Time(*v),
            Self::Interval(v) => ValueRef::Interval(*v),
            Self::Json(v) => ValueRef::Json(v),
            Self::Jsonb(v) => ValueRef::Jsonb(v.as_ref()),
            Self::Oid(v) => ValueRef::Oid(*v),
            Self::Array(v) => ValueRef::Array(Cow::Borrowed(v)),
            Self::Record(v) => ValueRef::Record(Cow::Borrowed(v)),
        }
    }

    /// The type, without modifier; `None` for NULL, whose type depends on the context.
    #[must_use]
    pub const fn sql_type(&self) -> Option<SqlType> {
        Some(match self {
            Self::Null => return None,
            Self::Bool(_) => SqlType::Bool,
            Self::Int2(_) => SqlType::Int2,
            Self::Int4(_) => SqlType::Int4,
            Self::Int8(_) => SqlType::Int8,
            Self::Float4(_) => SqlType::Float4,
            Self::Float8(_) => SqlType::Float8,
            Self::Numeric(_) => SqlType::Numeric(None),
            Self::Text(_) => SqlType::Text,
            Self::Bytea(_) => SqlType::Bytea,
            Self::Date(_) => SqlType::Date,
            Self::Timestamp(_) => SqlType::Timestamp,
            Self::TimestampTz(_) => SqlType::TimestampTz,
            Self::Uuid(_) => SqlType::Uuid,
            Self::Time(_) => SqlType::Time,
            Self::Interval(_) => SqlType::Interval,
            Self::Json(_) => SqlType::Json,
            Self::Jsonb(_) => SqlType::Jsonb,
            Self::Oid(_) => SqlType::Oid,
            Self::Array(v) => match Element::of(&v.element) {
                Some(element) => SqlType::Array(element),
                None => return None,
            },
            Self::Record(_) => SqlType::Record,
        })
    }

    /// Whether a column of the type may hold its variant; lengths and scales are not checked.
    #[must_use]
    pub fn fits(&self, ty: &SqlType) -> bool {
        self.sql_type().is_none_or(|own| own == *ty || own.same_form(ty))
    }

    /// An integer of any width.
    #[must_use]
    pub const fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int2(v) => Some(*v as i64),
            Self::Int4(v) => Some(*v as i64),
            Self::Int8(v) => Some(*v),
            _ => None,
        }
    }

    /// The text of a text value.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(v) => Some(v),
            _ => None,
        }
    }

    /// Appends a self-describing form: a tag, then the payload. For constants of programs and the like;
    /// rows use [`RowLayout`](crate::RowLayout).
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.put_u8(0),
            Self::Bool(v) => {
                out.put_u8(1);
                out.put_bool(*v);
            }
            Self::Int2(v) => {
                out.put_u8(2);
                out.put_i16(*v);
            }
            Self::Int4(v) => {
                out.put_u8(3);
                out.put_i32(*v);
            }
            Self::Int8(v) => {
                out.put_u8(4);
                out.put_i64(*v);
            }
            Self::Float4(v) => {
                out.put_u8(5);
                out.put_u32(v.to_bits());
            }
            Self::Float8(v) => {
                out.put_u8(6);
                out.put_u64(v.to_bits());
            }
            Self::Numeric(v) => {
                out.put_u8(7);
                let mut bytes = Vec::new();
                v.encode(&mut bytes);
                out.put_len_prefixed(&bytes);
            }
            Self::Text(v) => {
                out.put_u8(8);
                out.put_str_prefixed(v);
            }
            Self::Bytea(v) => {
                out.put_u8(9);
                out.put_len_prefixed(v);
            }
            Self::Date(v) => {
                out.put_u8(10);
                out.put_i32(*v);
            }
            Self::Timestamp(v) => {
                out.put_u8(11);
                out.put_i64(*v);
            }
            Self::TimestampTz(v) => {
                out.put_u8(12);
                out.put_i64(*v);
            }
            Self::Uuid(v) => {
                out.put_u8(13);
                out.put_bytes(v);
            }
            Self::Time(v) => {
                out.put_u8(14);
                out.put_i64(*v);
            }
            Self::Interval(v) => {
                out.put_u8(15);
                out.put_bytes(&v.to_bytes());
            }
            Self::Oid(v) => {
                out.put_u8(16);
                out.put_u32(*v);
            }
            Self::Json(v) => {
                out.put_u8(19);
                out.put_str_prefixed(v);
            }
            Self::Jsonb(v) => {
                out.put_u8(20);
                out.put_len_prefixed(v.as_bytes());
            }
            Self::Array(v) => {
                out.put_u8(17);
                v.encode(out);
            }
            Self::Record(v) => {
                out.put_u8(18);
                out.put_u32(v.len() as u32);
                for (ty, field) in v {
                    ty.encode(out);
                    field.encode(out);
                }
            }
        }
    }

    /// A record of these fields.
    ///
    /// # Errors
    /// 54001 if records are nested too deeply.
    pub fn record(fields: Vec<(SqlType, Value)>) -> Result<Self, SqlError> {
        if fields.iter().any(|(_, field)| field.depth() >= RECORD_DEPTH_MAX) {
            let error = SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded");
            return Err(error.hint(format!("Rows lie in rows in at most {RECORD_DEPTH_MAX} levels.")));
        }
        Ok(Self::Record(fields))
    }

    /// The nesting depth of records, including those inside arrays.
    fn depth(&self) -> u32 {
        match self {
            Self::Record(fields) => 1 + fields.iter().map(|(_, field)| field.depth()).max().unwrap_or(0),
            Self::Array(array) if array.element == SqlType::Record => {
                array.items.iter().map(Self::depth).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Inverse of [`Value::encode`].
    ///
    /// # Errors
    /// At the end of input, for unknown tags and for invalid payloads.
    pub fn decode(reader: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Self::decode_at(reader, 0)
    }

    /// [`Value::decode`] of an item at a nesting depth.
    pub(crate) fn decode_at(reader: &mut ByteReader<'_>, depth: u32) -> Result<Self, CodecError> {
        let position = reader.position();
        if depth > DEPTH_MAX {
            return Err(CodecError::new(position, "value is nested too deeply"));
        }
        Ok(match reader.u8()? {
            0 => Self::Null,
            1 => Self::Bool(reader.bool()?),
            2 => Self::Int2(reader.i16()?),
            3 => Self::Int4(reader.i32()?),
            4 => Self::Int8(reader.i64()?),
            5 => Self::Float4(f32::from_bits(reader.u32()?)),
            6 => Self::Float8(f64::from_bits(reader.u64()?)),
            7 => Self::Numeric(Numeric::decode(reader.len_prefixed()?)?),
            8 => Self::Text(reader.str_prefixed()?.to_owned()),
            9 => Self::Bytea(reader.len_prefixed()?.to_vec()),
            10 => Self::Date(reader.i32()?),
            11 => Self::Timestamp(reader.i64()?),
            12 => Self::TimestampTz(reader.i64()?),
            13 => Self::Uuid(reader.array()?),
            14 => Self::Time(reader.i64()?),
            15 => Self::Interval(Interval::from_bytes(reader.array()?)),
            16 => Self::Oid(reader.u32()?),
            17 => Self::Array(Box::new(ArrayValue::decode(reader, depth)?)),
            18 => {
                let count = reader.u32()?;
                let mut fields = Vec::new();
                for _ in 0..count {
                    let ty = SqlType::decode(reader)?;
                    let field = Self::decode_at(reader, depth + 1)?;
                    if !field.fits(&ty) {
                        return Err(CodecError::new(position, "a field is not of its type"));
                    }
                    fields.push((ty, field));
                }
                Self::Record(fields)
            }
            19 => Self::Json(reader.str_prefixed()?.to_owned()),
            20 => {
                let bytes = reader.len_prefixed()?;
                json::validate(bytes)?;
                Self::Jsonb(JsonbRef::of_stored(bytes).to_jsonb())
            }
            _ => return Err(CodecError::new(position, "unknown value tag")),
        })
    }
}

impl ValueRef<'static> {
    /// The array or record that [`Value::encode`] wrote as all of `bytes`; `None` for anything else.
    #[must_use]
    pub fn nested(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        match Value::decode(&mut reader) {
            Ok(Value::Array(v)) if reader.position() == bytes.len() => Some(Self::Array(Cow::Owned(v))),
            Ok(Value::Record(v)) if reader.position() == bytes.len() => Some(Self::Record(Cow::Owned(v))),
            _ => None,
        }
    }
}

impl ValueRef<'_> {
    /// Whether it is NULL.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Copies it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(v) => Value::Bool(*v),
            Self::Int2(v) => Value::Int2(*v),
            Self::Int4(v) => Value::Int4(*v),
            Self::Int8(v) => Value::Int8(*v),
            Self::Float4(v) => Value::Float4(*v),
            Self::Float8(v) => Value::Float8(*v),
            Self::Numeric(v) => Value::Numeric(v.clone()),
            Self::Text(v) => Value::Text((*v).to_owned()),
            Self::Bytea(v) => Value::Bytea(v.to_vec()),
            Self::Date(v) => Value::Date(*v),
            Self::Timestamp(v) => Value::Timestamp(*v),
            Self::TimestampTz(v) => Value::TimestampTz(*v),
            Self::Uuid(v) => Value::Uuid(*v),
            Self::Time(v) => Value::Time(*v),
            Self::Interval(v) => Value::Interval(*v),
            Self::Json(v) => Value::Json((*v).to_owned()),
            Self::Jsonb(v) => Value::Jsonb(v.to_jsonb()),
            Self::Oid(v) => Value::Oid(*v),
            Self::Array(v) => Value::Array(v.clone().into_owned()),
            Self::Record(v) => Value::Record(v.clone().into_owned()),
        }
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int2(a), Self::Int2(b)) => a == b,
            (Self::Int4(a), Self::Int4(b)) | (Self::Date(a), Self::Date(b)) => a == b,
            (Self::Int8(a), Self::Int8(b))
            | (Self::Timestamp(a), Self::Timestamp(b))
            | (Self::Time(a), Self::Time(b))
            | (Self::TimestampTz(a), Self::TimestampTz(b)) => a == b,
            (Self::Float4(a), Self::Float4(b)) => a.to_bits() == b.to_bits(),
            (Self::Float8(a), Self::Float8(b)) => a.to_bits() == b.to_bits(),
            (Self::Numeric(a), Self::Numeric(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytea(a), Self::Bytea(b)) => a == b,
            (Self::Uuid(a), Self::Uuid(b)) => a == b,
            (Self::Interval(a), Self::Interval(b)) => a == b,
            (Self::Json(a), Self::Json(b)) => a == b,
            (Self::Jsonb(a), Self::Jsonb(b)) => a == b,
            (Self::Oid(a), Self::Oid(b)) => a == b,
            (Self::Array(a), Self::Array(b)) => a == b,
            (Self::Record(a), Self::Record(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for ValueRef<'_> {}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Self::Null => {}
            Self::Bool(v) => v.hash(state),
            Self::Int2(v) => v.hash(state),
            Self::Int4(v) | Self::Date(v) => v.hash(state),
            Self::Int8(v) | Self::Timestamp(v) | Self::TimestampTz(v) | Self::Time(v) => v.hash(state),
            Self::Float4(v) => v.to_bits().hash(state),
            Self::Float8(v) => v.to_bits().hash(state),
            Self::Numeric(v) => v.hash(state),
            Self::Text(v) => v.hash(state),
            Self::Bytea(v) => v.hash(state),
            Self::Uuid(v) => v.hash(state),
            Self::Interval(v) => v.hash(state),
            Self::Json(v) => v.hash(state),
            Self::Jsonb(v) => v.hash(state),
            Self::Oid(v) => v.hash(state),
            Self::Array(v) => v.hash(state),
            Self::Record(v) => v.hash(state),
        }
    }
}

impl From<bool> for Value {
    fn from(v: bool) -> Self {
        Self::Bool(v)
    }
}

impl From<i16> for Value {
    fn from(v: i16) -> Self {
        Self::Int2(v)
    }
}

impl From<i32> for Value {
    fn from(v: i32) -> Self {
        Self::Int4(v)
    }
}

impl From<i64> for Value {
    fn from(v: i64) -> Self {
        Self::Int8(v)
    }
}

impl From<f64> for Value {
    fn from(v: f64) -> Self {
        Self::Float8(v)
    }
}

impl From<Numeric> for Value {
    fn from(v: Numeric) -> Self {
        Self::Numeric(v)
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Self::Text(v.to_owned())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Self {
        Self::Text(v)
    }
}
