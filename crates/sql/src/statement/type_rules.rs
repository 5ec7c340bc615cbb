//! Properties of types that code generation needs.

use weft_types::SqlType;

/// The type without modifiers, except for `char(n)`.
pub(crate) fn base_type(ty: &SqlType) -> SqlType {
    match ty {
        SqlType::Varchar(_) => SqlType::Varchar(None),
        SqlType::Numeric(_) => SqlType::Numeric(None),
        other => *other,
    }
}

pub(crate) fn is_integer(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Int2 | SqlType::Int4 | SqlType::Int8)
}

pub(crate) fn is_float(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Float4 | SqlType::Float8)
}

pub(crate) fn integer_width(ty: &SqlType) -> u8 {
    match ty {
        SqlType::Int2 => 2,
        SqlType::Int4 => 4,
        _ => 8,
    }
}
