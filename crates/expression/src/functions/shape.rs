//! Constructors of entries, and access to arguments.
//!
//! [`define`] makes the common entry (strict, immutable, fallible); the methods below change single
//! properties.

use weft_types::{ArrayValue, Element, SqlError, SqlState, SqlType, Value, ValueRef};

use crate::table::{Arg, Compute, Entry, Kernel, Kind, Returns, Volatility};

/// A computation's arguments.
pub(crate) type Arguments<'a, 'v> = &'a [ValueRef<'v>];
/// A computation's result.
pub(crate) type Computed = Result<Value, SqlError>;

pub(crate) use weft_types::VALUE_BYTES_MAX;

pub(crate) const TEXT: Arg = Arg::Is(SqlType::Text);
pub(crate) const BPCHAR: Arg = Arg::Is(SqlType::Char(0));
pub(crate) const BYTEA: Arg = Arg::Is(SqlType::Bytea);
pub(crate) const INT4: Arg = Arg::Is(SqlType::Int4);
pub(crate) const INT8: Arg = Arg::Is(SqlType::Int8);
pub(crate) const FLOAT4: Arg = Arg::Is(SqlType::Float4);
pub(crate) const FLOAT8: Arg = Arg::Is(SqlType::Float8);
pub(crate) const NUMERIC: Arg = Arg::Is(SqlType::Numeric(None));
pub(crate) const BOOL: Arg = Arg::Is(SqlType::Bool);

pub(crate) const NAME: Arg = Arg::Is(SqlType::Name);

pub(crate) const TO_TEXTS: Returns = Returns::Is(SqlType::Array(Element::Text));
pub(crate) const TO_TEXT: Returns = Returns::Is(SqlType::Text);
pub(crate) const TO_BYTEA: Returns = Returns::Is(SqlType::Bytea);
pub(crate) const TO_INT4: Returns = Returns::Is(SqlType::Int4);
pub(crate) const TO_INT8: Returns = Returns::Is(SqlType::Int8);
pub(crate) const TO_BOOL: Returns = Returns::Is(SqlType::Bool);
pub(crate) const TO_NUMERIC: Returns = Returns::Is(SqlType::Numeric(None));

/// A function: strict, immutable, fallible.
pub(crate) const fn define(
    name: &'static str,
    arguments: &'static [Arg],
    returns: Returns,
    compute: Compute,
) -> Entry {
    Entry {
        name,
        kind: Kind::Function,
        arguments,
        variadic: false,
        returns,
        volatility: Volatility::Immutable,
        strict: true,
        fallible: true,
        kernel: Kernel::Values(compute),
    }
}

/// An infix operator: strict, immutable, fallible.
pub(crate) const fn infix(
    name: &'static str,
    arguments: &'static [Arg],
    returns: Returns,
    compute: Compute,
) -> Entry {
    Entry {
        kind: Kind::Infix,
        ..define(name, arguments, returns, compute)
    }
}

impl Entry {
    /// The entry never fails.
    pub(crate) const fn infallible(mut self) -> Entry {
        self.fallible = false;
        self
    }

    /// The entry is not strict.
    pub(crate) const fn with_nulls(mut self) -> Entry {
        self.strict = false;
        self
    }

    /// The entry is variadic.
    pub(crate) const fn with_more(mut self) -> Entry {
        self.variadic = true;
        self
    }

    /// The entry is stable: its value depends on the session.
    pub(crate) const fn stable(mut self) -> Entry {
        self.volatility = Volatility::Stable;
        self
    }
}

fn foreign() -> SqlError {
    SqlError::internal("an argument is of another type than its function takes")
}

pub(crate) fn text<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a str, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Text(text)) => Ok(text),
        _ => Err(foreign()),
    }
}

pub(crate) fn bytes<'a>(arguments: Arguments<'a, '_>, at: usize) -> Result<&'a [u8], SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Bytea(bytes)) => Ok(bytes),
        _ => Err(foreign()),
    }
}

/// An integer of any width.
pub(crate) fn int(arguments: Arguments<'_, '_>, at: usize) -> Result<i64, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Int2(v)) => Ok(i64::from(*v)),
        Some(ValueRef::Int4(v)) => Ok(i64::from(*v)),
        Some(ValueRef::Int8(v)) => Ok(*v),
        _ => Err(foreign()),
    }
}

pub(crate) fn boolean(arguments: Arguments<'_, '_>, at: usize) -> Result<bool, SqlError> {
    match arguments.get(at) {
        Some(ValueRef::Bool(v)) => Ok(*v),
        _ => Err(foreign()),
    }
}

pub(crate) fn is_null(arguments: Arguments<'_, '_>, at: usize) -> bool {
    arguments.get(at).is_none_or(ValueRef::is_null)
}

/// A text as a value.
pub(crate) fn made(text: impl Into<String>) -> Computed {
    Ok(Value::Text(text.into()))
}

/// Texts or NULLs as an array.
pub(crate) fn made_texts(items: Vec<Value>) -> Value {
    Value::Array(Box::new(ArrayValue::of_items(SqlType::Text, items)))
}

/// A count of something in a value, which has at most 2^30 bytes.
pub(crate) fn counted(count: usize) -> Computed {
    Ok(Value::Int4(i32::try_from(count).map_err(|_| too_long())?))
}

pub(crate) fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

/// 54000 for a value that is too long.
pub(crate) fn check_bytes(count: usize) -> Result<(), SqlError> {
    match count > VALUE_BYTES_MAX {
        true => Err(too_long()),
        false => Ok(()),
    }
}

/// 22023 with a message.
pub(crate) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The number of characters of a text.
pub(crate) fn char_count(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.chars().count(),
    }
}

/// The byte at which a character begins; the end of the text if there are fewer.
pub(crate) fn byte_of(text: &str, character: usize) -> usize {
    if text.is_ascii() {
        return character.min(text.len());
    }
    text.char_indices()
        .nth(character)
        .map_or(text.len(), |(at, _)| at)
}
