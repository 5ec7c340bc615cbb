//! Small facts about types and operators that binding and compiling share.

use sqlparser::ast::BinaryOperator;
use weft_types::SqlType;

use super::scalar::{ArithmeticOp, CompareOp};

/// The type without modifiers, those of `char(n)` excepted.
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

/// Integers, numeric and floats.
pub(crate) fn is_number(ty: &SqlType) -> bool {
    is_integer(ty) || is_float(ty) || matches!(ty, SqlType::Numeric(_))
}

pub(crate) fn is_date_like(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz)
}

pub(crate) fn integer_width(ty: &SqlType) -> u8 {
    match ty {
        SqlType::Int2 => 2,
        SqlType::Int4 => 4,
        _ => 8,
    }
}

pub(crate) fn is_system_column(name: &str) -> bool {
    matches!(
        name,
        "ctid" | "xmin" | "xmax" | "cmin" | "cmax" | "tableoid" | "oid"
    )
}

pub(crate) fn compare_op(op: &BinaryOperator) -> Option<CompareOp> {
    Some(match op {
        BinaryOperator::Eq => CompareOp::Eq,
        BinaryOperator::NotEq => CompareOp::Ne,
        BinaryOperator::Lt => CompareOp::Lt,
        BinaryOperator::LtEq => CompareOp::Le,
        BinaryOperator::Gt => CompareOp::Gt,
        BinaryOperator::GtEq => CompareOp::Ge,
        _ => return None,
    })
}

pub(crate) fn arithmetic_op(op: &BinaryOperator) -> Option<ArithmeticOp> {
    Some(match op {
        BinaryOperator::Plus => ArithmeticOp::Add,
        BinaryOperator::Minus => ArithmeticOp::Subtract,
        BinaryOperator::Multiply => ArithmeticOp::Multiply,
        BinaryOperator::Divide => ArithmeticOp::Divide,
        BinaryOperator::Modulo => ArithmeticOp::Modulo,
        _ => return None,
    })
}

pub(crate) fn arithmetic_symbol(op: ArithmeticOp) -> &'static str {
    match op {
        ArithmeticOp::Add => "+",
        ArithmeticOp::Subtract => "-",
        ArithmeticOp::Multiply => "*",
        ArithmeticOp::Divide => "/",
        ArithmeticOp::Modulo => "%",
    }
}
