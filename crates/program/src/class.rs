//! Classes: which values may stand for one another inside a program.
//!
//! A program moves values without converting them, so source and destination must agree on the stored form.
//! Two types are of one class when they do; modifiers (`varchar(10)`, `numeric(12,2)`) are a separate
//! question, see [`fits_without_check`]. `char(n)` is a class of its own because it compares without
//! trailing blanks.

use weft_types::SqlType;

/// The stored form and comparison rule of a type, without modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// date
    Date,
    /// timestamp
    Timestamp,
    /// timestamp with time zone
    TimestampTz,
    /// numeric
    Numeric,
    /// text, character varying
    Text,
    /// character(n)
    Char,
    /// bytea
    Bytea,
    /// uuid
    Uuid,
    /// time
    Time,
    /// interval
    Interval,
    /// oid and the types that name things by it
    Oid,
    /// arrays and records
    Nested,
    /// json
    Json,
    /// jsonb
    Jsonb,
}

impl Class {
    const ALL: [Class; 20] = [
        Class::Bool,
        Class::Int2,
        Class::Int4,
        Class::Int8,
        Class::Float4,
        Class::Float8,
        Class::Date,
        Class::Timestamp,
        Class::TimestampTz,
        Class::Numeric,
        Class::Text,
        Class::Char,
        Class::Bytea,
        Class::Uuid,
        Class::Time,
        Class::Interval,
        Class::Oid,
        Class::Nested,
        Class::Json,
        Class::Jsonb,
    ];

    /// The class of a type.
    pub const fn of(ty: &SqlType) -> Class {
        match ty {
            SqlType::Bool => Class::Bool,
            SqlType::Int2 => Class::Int2,
            SqlType::Int4 => Class::Int4,
            SqlType::Int8 => Class::Int8,
            SqlType::Float4 => Class::Float4,
            SqlType::Float8 => Class::Float8,
            SqlType::Date => Class::Date,
            SqlType::Timestamp => Class::Timestamp,
            SqlType::TimestampTz => Class::TimestampTz,
            SqlType::Numeric(_) => Class::Numeric,
            SqlType::Text | SqlType::Varchar(_) => Class::Text,
            SqlType::Name | SqlType::InternalChar | SqlType::Void => Class::Text,
            SqlType::Char(_) => Class::Char,
            SqlType::Bytea => Class::Bytea,
            SqlType::Uuid => Class::Uuid,
            SqlType::Time => Class::Time,
            SqlType::Interval => Class::Interval,
            SqlType::Oid
            | SqlType::Regclass
            | SqlType::Regtype
            | SqlType::Regproc
            | SqlType::Regnamespace => Class::Oid,
            SqlType::Array(_) | SqlType::Record => Class::Nested,
            SqlType::Json => Class::Json,
            SqlType::Jsonb => Class::Jsonb,
        }
    }

    /// The class with a code (KEYR).
    pub fn from_code(code: u32) -> Option<Class> {
        Class::ALL.get(code as usize).copied()
    }

    /// Values fit a register: at most eight bytes, and an order that integer or float comparison gives.
    pub const fn is_register(self) -> bool {
        (self as u8) <= Class::TimestampTz as u8 || matches!(self, Class::Time)
    }

    /// Name in assembler text.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Bool => "bool",
            Class::Int2 => "int2",
            Class::Int4 => "int4",
            Class::Int8 => "int8",
            Class::Float4 => "float4",
            Class::Float8 => "float8",
            Class::Date => "date",
            Class::Timestamp => "timestamp",
            Class::TimestampTz => "timestamptz",
            Class::Numeric => "numeric",
            Class::Text => "text",
            Class::Char => "char",
            Class::Bytea => "bytea",
            Class::Uuid => "uuid",
            Class::Time => "time",
            Class::Interval => "interval",
            Class::Oid => "oid",
            Class::Nested => "nested",
            Class::Json => "json",
            Class::Jsonb => "jsonb",
        }
    }

    /// The class with an assembler name.
    pub fn from_name(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// A stored value of `from` is always a valid stored value of `to`: same class, and `to` asks for nothing
/// that `from` does not promise. (Length and scale are checked where a value is bound, not inside programs.)
pub fn fits_without_check(from: &SqlType, to: &SqlType) -> bool {
    let same_class = || match to {
        // `name` and `"char"` are text of a length that `text` does not promise.
        SqlType::Name | SqlType::InternalChar => false,
        SqlType::Array(_) | SqlType::Record => from.same_form(to),
        _ => Class::of(from) == Class::of(to) && matches!(to.typmod(), -1),
    };
    from == to || same_class()
}
