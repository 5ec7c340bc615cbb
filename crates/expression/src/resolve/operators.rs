//! Operators: those of the table, and comparisons, which all types share.

use weft_types::{SqlError, SqlState, SqlType};

use super::select::{Choice, Shape, choose};
use super::signature::{element_type, result_type, types_of_call};
use super::{Resolved, check_compared, type_name};
use crate::category::{BPCHAR, array_of, check_equality, same_type};
use crate::functions;
use crate::table::{Arg, Entry};
use crate::tree::CompareOp;

/// A resolved operator.
#[derive(Clone, Debug, PartialEq)]
pub enum Operator {
    /// An entry of the table.
    Call(Resolved),
    /// A comparison, with both operands converted to the type.
    Compare(CompareOp, SqlType),
}

/// Resolves an operator. `left` is `None` for a prefix operator; the type of an operand is `None`
/// if it is unknown.
///
/// # Errors
/// 42883 if none fits, 42725 if several do.
pub fn resolve_operator(
    symbol: &str,
    left: Option<Option<SqlType>>,
    right: Option<SqlType>,
) -> Result<Operator, SqlError> {
    let Some(left) = left else {
        let number = |shapes: &[Shape]| pick(shapes, symbol, &[right]);
        return call(functions::prefix_operators(symbol), &[right], number);
    };
    let types = [left, right];
    if let Some(op) = comparison(symbol) {
        let number = pick_infix(COMPARABLE, symbol, &types)?;
        let shape = COMPARABLE
            .get(number)
            .ok_or_else(|| no_operator(symbol, &types))?;
        return Ok(Operator::Compare(op, compared_as(shape, &types)?));
    }
    let number = |shapes: &[Shape]| pick_infix(shapes, symbol, &types);
    call(functions::infix_operators(symbol), &types, number)
}

fn call(
    candidates: &[&'static Entry],
    types: &[Option<SqlType>],
    number: impl Fn(&[Shape]) -> Result<usize, SqlError>,
) -> Result<Operator, SqlError> {
    let shapes: Vec<Shape> = candidates.iter().map(|entry| Shape::of_entry(entry)).collect();
    let number = number(&shapes)?;
    let entry = candidates
        .get(number)
        .ok_or_else(|| SqlError::internal("a chosen operator is not among its candidates"))?;
    let shape = Shape::of_entry(entry);
    let arguments = types_of_call(&shape, types)?;
    check_compared(entry, &arguments)?;
    let result = result_type(&shape, entry.returns, &arguments, types)?;
    Ok(Operator::Call(Resolved {
        entry,
        arguments,
        result,
    }))
}

/// The comparison that a symbol denotes.
fn comparison(symbol: &str) -> Option<CompareOp> {
    Some(match symbol {
        "=" => CompareOp::Eq,
        "<>" | "!=" => CompareOp::Ne,
        "<" => CompareOp::Lt,
        "<=" => CompareOp::Le,
        ">" => CompareOp::Gt,
        ">=" => CompareOp::Ge,
        _ => return None,
    })
}

/// An operand of unknown type is first assumed to be of the other operand's type.
fn pick_infix(shapes: &[Shape], symbol: &str, types: &[Option<SqlType>; 2]) -> Result<usize, SqlError> {
    let assumed = match types {
        [Some(known), None] | [None, Some(known)] => Some([Some(*known), Some(*known)]),
        _ => None,
    };
    if let Some(assumed) = assumed
        && let Some(number) = shapes.iter().position(|shape| is_exactly(shape, &assumed))
    {
        return Ok(number);
    }
    pick(shapes, symbol, types)
}

/// The type to which `=` converts its left operand; it is the type of NULLIF of the two.
///
/// # Errors
/// 42883 if they are not comparable.
pub fn compared_left(left: SqlType, right: Option<SqlType>) -> Result<SqlType, SqlError> {
    let number = pick_infix(COMPARABLE, "=", &[Some(left), right])?;
    match COMPARABLE.get(number).and_then(|shape| shape.at(0)) {
        Some(Arg::Is(own)) if !same_type(own, &left) => Ok(*own),
        _ => Ok(left),
    }
}

fn is_exactly(shape: &Shape, types: &[Option<SqlType>]) -> bool {
    types.iter().enumerate().all(
        |(place, ty)| matches!((shape.at(place), ty), (Some(Arg::Is(own)), Some(ty)) if same_type(own, ty)),
    )
}

fn pick(shapes: &[Shape], symbol: &str, types: &[Option<SqlType>]) -> Result<usize, SqlError> {
    match choose(shapes, types) {
        Choice::One(number) => Ok(number),
        Choice::None => Err(no_operator(symbol, types)),
        Choice::Several => Err(SqlError::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("operator is not unique: {}", operation_text(symbol, types)),
        )
        .hint("Could not choose a best candidate operator. You might need to add explicit type casts.")),
    }
}

fn no_operator(symbol: &str, types: &[Option<SqlType>]) -> SqlError {
    if super::unsupported::is_operator_of_postgresql(symbol) {
        return SqlError::unsupported(format!(
            "operator {} is not supported",
            operation_text(symbol, types)
        ));
    }
    let hint = if types.len() == 1 {
        "No operator matches the given name and argument type. You might need to add an explicit type cast."
    } else {
        "No operator matches the given name and argument types. You might need to add explicit type casts."
    };
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("operator does not exist: {}", operation_text(symbol, types)),
    )
    .hint(hint)
}

fn operation_text(symbol: &str, types: &[Option<SqlType>]) -> String {
    match types {
        [left, right] => format!(
            "{} {symbol} {}",
            type_name(left.as_ref()),
            type_name(right.as_ref())
        ),
        _ => format!("{symbol} {}", type_name(types.first().and_then(Option::as_ref))),
    }
}

macro_rules! pairs {
    ($($left:expr, $right:expr;)*) => {
        &[
            $(Shape { arguments: &[Arg::Is($left), Arg::Is($right)], variadic: false },)*
            Shape { arguments: &[Arg::AnyArray, Arg::AnyArray], variadic: false },
        ]
    };
}

/// The pairs of types that `pg_operator` has comparisons for, and arrays.
static COMPARABLE: &[Shape] = {
    use SqlType::{Bool, Bytea, Char, Date, Float4, Float8, Int2, Int4, Int8, Numeric};
    use SqlType::{
        InternalChar, Interval, Jsonb, Name, Oid, Record, Text, Time, Timestamp, TimestampTz, Uuid,
    };
    pairs![
        Bool, Bool;
        Int2, Int2; Int2, Int4; Int2, Int8;
        Int4, Int2; Int4, Int4; Int4, Int8;
        Int8, Int2; Int8, Int4; Int8, Int8;
        Float4, Float4; Float4, Float8; Float8, Float4; Float8, Float8;
        Numeric(None), Numeric(None);
        Text, Text; Char(0), Char(0); Name, Name; Name, Text; Text, Name; InternalChar, InternalChar;
        Bytea, Bytea; Uuid, Uuid; Oid, Oid; Time, Time; Interval, Interval; Record, Record;
        Jsonb, Jsonb;
        Date, Date; Date, Timestamp; Date, TimestampTz;
        Timestamp, Date; Timestamp, Timestamp; Timestamp, TimestampTz;
        TimestampTz, Date; TimestampTz, Timestamp; TimestampTz, TimestampTz;
    ]
};

/// The type as which a pair is compared.
fn compared_as(shape: &Shape, types: &[Option<SqlType>; 2]) -> Result<SqlType, SqlError> {
    Ok(match shape.arguments {
        [Arg::Is(SqlType::Char(_)), _] => BPCHAR,
        [Arg::Is(SqlType::Name), Arg::Is(SqlType::Text)] => SqlType::Text,
        [Arg::Is(left), Arg::Is(right)] => wider(left, right),
        _ => {
            let element = element_type(shape, types)?.unwrap_or(SqlType::Text);
            check_equality(&element)?;
            array_of(&element).unwrap_or(element)
        }
    })
}

fn wider(left: &SqlType, right: &SqlType) -> SqlType {
    let rank = |ty: &SqlType| match ty {
        SqlType::Int2 | SqlType::Float4 | SqlType::Date => 0,
        SqlType::Int4 | SqlType::Timestamp => 1,
        _ => 2,
    };
    if rank(right) > rank(left) { *right } else { *left }
}
