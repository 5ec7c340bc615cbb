//! Type categories, as in PostgreSQL's `pg_type.typcategory`, and implicit conversions between
//! types.

use weft_types::{CastContext, Element, SqlError, SqlState, SqlType, cast_context};

/// `bpchar`: `char(n)` without a length. Values are stored without trailing blanks, so that
/// converting to it changes no `char(n)`.
pub const BPCHAR: SqlType = SqlType::Char(0);

/// `pg_type.typcategory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    /// Arrays.
    Array,
    /// `boolean`
    Boolean,
    /// Dates and times.
    DateTime,
    /// Numbers, and object identifiers.
    Numeric,
    /// `any`, `anyelement`, records.
    Pseudo,
    /// Text.
    String,
    /// `interval`
    Timespan,
    /// `"char"`
    Internal,
    /// Others.
    User,
}

/// The category of a type and whether it is preferred in it.
#[must_use]
pub fn category(ty: &SqlType) -> (Category, bool) {
    match ty {
        SqlType::Bool => (Category::Boolean, true),
        SqlType::Int2 | SqlType::Int4 | SqlType::Int8 | SqlType::Float4 | SqlType::Numeric(_) => {
            (Category::Numeric, false)
        }
        SqlType::Float8 => (Category::Numeric, true),
        SqlType::Text => (Category::String, true),
        SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Name => (Category::String, false),
        SqlType::Date | SqlType::Timestamp | SqlType::Time => (Category::DateTime, false),
        SqlType::Interval => (Category::Timespan, true),
        SqlType::Oid => (Category::Numeric, true),
        SqlType::Regclass | SqlType::Regtype | SqlType::Regproc | SqlType::Regnamespace => {
            (Category::Numeric, false)
        }
        SqlType::InternalChar => (Category::Internal, false),
        SqlType::Array(_) => (Category::Array, false),
        SqlType::Record | SqlType::Void => (Category::Pseudo, false),
        SqlType::TimestampTz => (Category::DateTime, true),
        SqlType::Bytea | SqlType::Uuid | SqlType::Json | SqlType::Jsonb => (Category::User, false),
    }
}

/// The type of an array's elements; `None` if it is no array.
#[must_use]
pub fn element_of(ty: &SqlType) -> Option<SqlType> {
    match ty {
        SqlType::Array(element) => Some(element.ty()),
        _ => None,
    }
}

/// The array over a type; `None` if there is none.
#[must_use]
pub fn array_of(ty: &SqlType) -> Option<SqlType> {
    Element::of(ty).map(SqlType::Array)
}

/// Checks that values of a type can be equal: those of `json`, and arrays of it, cannot.
///
/// # Errors
/// 42883
pub fn check_equality(ty: &SqlType) -> Result<(), SqlError> {
    match element_of(ty).unwrap_or(*ty) {
        SqlType::Json => Err(SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            "could not identify an equality operator for type json",
        )),
        _ => Ok(()),
    }
}

/// Checks that values of a type have an order: those of `json`, and arrays of it, have none.
///
/// # Errors
/// 42883
pub fn check_order(ty: &SqlType) -> Result<(), SqlError> {
    match ty {
        SqlType::Json => Err(SqlError::new(
            SqlState::UNDEFINED_FUNCTION,
            "could not identify an ordering operator for type json",
        )
        .hint("Use an explicit ordering operator or modify the query.")),
        _ => check_equality(ty),
    }
}

/// Whether both are the same type, modifiers aside.
#[must_use]
pub fn same_type(a: &SqlType, b: &SqlType) -> bool {
    a.without_typmod() == b.without_typmod()
}

/// Whether a value of one type is implicitly converted to another.
#[must_use]
pub fn is_implicit(from: &SqlType, to: &SqlType) -> bool {
    same_type(from, to) || cast_context(from, to) == Some(CastContext::Implicit)
}

/// Whether the conversion keeps every value unchanged: only the name of the type changes.
#[must_use]
pub fn is_relabel(from: &SqlType, to: &SqlType) -> bool {
    let name = matches!(from, SqlType::Name);
    from == to
        || (same_type(from, to) && to.typmod() == -1)
        || ((from.is_text() || name) && matches!(to, SqlType::Text | SqlType::Varchar(None)))
}
