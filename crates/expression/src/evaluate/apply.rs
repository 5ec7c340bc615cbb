//! The value of one node, given the values of all its arguments.
//!
//! Operations with short-circuit evaluation (AND, OR, CASE, COALESCE) are included for folding:
//! once the arguments have values, skipping one and evaluating it are equivalent.

use std::cmp::Ordering;

use weft_types::{SqlError, SqlType, Value, ValueRef, assign_from, cast_in, compare_ref, interrupt};

use super::arrays;
use crate::context::Context;
use crate::table::Entry;
use crate::tree::{CompareOp, Op};

/// Bytes or items from which a value takes long to build and to use.
const LONG_VALUE: usize = 1 << 18;

/// The value of an operation. `ty` is the node's own type.
///
/// # Errors
/// Errors of the function or conversion; XX000 for arguments that it does not take.
pub fn apply(
    context: &Context<'_>,
    op: &Op,
    ty: &SqlType,
    arguments: &[ValueRef<'_>],
) -> Result<Value, SqlError> {
    let value = computed(context, op, ty, arguments)?;
    let units = match &value {
        Value::Text(text) => text.len(),
        Value::Bytea(bytes) => bytes.len(),
        Value::Json(text) => text.len(),
        Value::Jsonb(json) => json.as_bytes().len(),
        Value::Array(array) => array.items.len(),
        _ => 0,
    };
    if units >= LONG_VALUE {
        interrupt::check()?;
    }
    Ok(value)
}

fn computed(
    context: &Context<'_>,
    op: &Op,
    ty: &SqlType,
    arguments: &[ValueRef<'_>],
) -> Result<Value, SqlError> {
    Ok(match op {
        Op::Constant(value) => value.clone(),
        Op::Parameter(number) => parameter(context, *number)?.clone(),
        Op::Column(_) | Op::CaseOperand => return Err(mismatch()),
        Op::Call(entry) => return call(context, entry, arguments),
        Op::Cast { from, explicit } => {
            let value = first(arguments)?.to_value();
            return convert(context, value, from, ty, *explicit);
        }
        Op::Compare(op) => truth(compare_two(*op, arguments)?),
        Op::IsDistinct => Value::Bool(is_distinct(arguments)?),
        Op::CompareRows(op) => truth(compare_rows(*op, arguments)),
        Op::And => truth(arguments.iter().map(as_truth).fold(Some(true), and)),
        Op::Or => truth(arguments.iter().map(as_truth).fold(Some(false), or)),
        Op::Not => truth(as_truth(first(arguments)?).map(|value| !value)),
        Op::IsNull => Value::Bool(first(arguments)?.is_null()),
        Op::IsTruth(wanted) => Value::Bool(as_truth(first(arguments)?) == Some(*wanted)),
        Op::Coalesce => {
            let found = arguments.iter().find(|value| !value.is_null());
            found.map_or(Value::Null, ValueRef::to_value)
        }
        Op::NullIf => match arguments {
            [_, ValueRef::Bool(true)] => Value::Null,
            _ => first(arguments)?.to_value(),
        },
        Op::Greatest => extreme(arguments, Ordering::Greater),
        Op::Least => extreme(arguments, Ordering::Less),
        Op::Case { operand } => case(arguments, *operand),
        Op::InList { negated } => match arguments.split_first() {
            Some((value, items)) => truth(in_list(value, items).map(|found| found != *negated)),
            None => return Err(mismatch()),
        },
        Op::CompareArray { op, all } => return arrays::compare(*op, *all, arguments),
        Op::Array => return arrays::build(arguments, ty),
        Op::Subscript => return arrays::subscript(arguments),
        Op::Row => return record(arguments),
    })
}

/// A record whose field types are derived from the values' variants.
fn record(arguments: &[ValueRef<'_>]) -> Result<Value, SqlError> {
    let values = arguments.iter().map(ValueRef::to_value);
    let fields = values.map(|value| (value.sql_type().unwrap_or(SqlType::Text), value));
    Value::record(fields.collect())
}

/// The error of an ill-typed tree, which only a bug can build.
#[cold]
pub(crate) fn mismatch() -> SqlError {
    SqlError::internal("an expression was computed over values of other types")
}

fn first<'a, 'v>(arguments: &'a [ValueRef<'v>]) -> Result<&'a ValueRef<'v>, SqlError> {
    arguments.first().ok_or_else(mismatch)
}

/// The value of `$n`.
pub(crate) fn parameter<'a>(context: &Context<'a>, number: u32) -> Result<&'a Value, SqlError> {
    context.parameters.get(number as usize).ok_or_else(|| {
        SqlError::new(
            weft_types::SqlState::UNDEFINED_PARAMETER,
            format!("there is no parameter ${}", u64::from(number) + 1),
        )
    })
}

/// A call of an entry.
pub(crate) fn call(
    context: &Context<'_>,
    entry: &Entry,
    arguments: &[ValueRef<'_>],
) -> Result<Value, SqlError> {
    if entry.strict && arguments.iter().any(ValueRef::is_null) {
        return Ok(Value::Null);
    }
    (entry.kernel.compute())(context, arguments)
}

/// A conversion, in the session's time zone.
pub(crate) fn convert(
    context: &Context<'_>,
    value: Value,
    from: &SqlType,
    to: &SqlType,
    explicit: bool,
) -> Result<Value, SqlError> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    if explicit || !to.is_text() {
        return cast_in(value, from, to, &context.zone);
    }
    if from.is_text() {
        return assign_from(value, from, to);
    }
    let text = cast_in(value, from, &SqlType::Text, &context.zone)?;
    assign_from(text, &SqlType::Text, to)
}

/// The truth value; `None` for NULL and everything else.
pub(crate) fn as_truth(value: &ValueRef<'_>) -> Option<bool> {
    match value {
        ValueRef::Bool(value) => Some(*value),
        _ => None,
    }
}

/// A truth value as a [`Value`]; the inverse of [`as_truth`].
pub(crate) fn truth(value: Option<bool>) -> Value {
    value.map_or(Value::Null, Value::Bool)
}

/// Three-valued AND.
#[must_use]
pub fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Three-valued OR.
#[must_use]
pub fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// The order of two values that are not NULL.
fn order(a: &ValueRef<'_>, b: &ValueRef<'_>) -> Result<Ordering, SqlError> {
    compare_ref(a, b).ok_or_else(mismatch)
}

fn compare_two(op: CompareOp, arguments: &[ValueRef<'_>]) -> Result<Option<bool>, SqlError> {
    match arguments {
        [ValueRef::Null, _] | [_, ValueRef::Null] => Ok(None),
        [a, b] => Ok(Some(op.holds(order(a, b)?))),
        _ => Err(mismatch()),
    }
}

fn is_distinct(arguments: &[ValueRef<'_>]) -> Result<bool, SqlError> {
    match arguments {
        [ValueRef::Null, ValueRef::Null] => Ok(false),
        [ValueRef::Null, _] | [_, ValueRef::Null] => Ok(true),
        [a, b] => Ok(order(a, b)?.is_ne()),
        _ => Err(mismatch()),
    }
}

fn compare_rows(op: CompareOp, arguments: &[ValueRef<'_>]) -> Option<bool> {
    let (left, right) = arguments.split_at(arguments.len() / 2);
    let mut pairs = left.iter().zip(right).map(|(a, b)| compare_ref(a, b));
    match op {
        CompareOp::Eq | CompareOp::Ne => {
            let equal = pairs
                .map(|order| order.map(Ordering::is_eq))
                .fold(Some(true), and);
            equal.map(|equal| equal == (op == CompareOp::Eq))
        }
        // The first pair that differs decides.
        _ => match pairs.find(|order| *order != Some(Ordering::Equal)) {
            Some(order) => order.map(|order| op.holds(order)),
            None => Some(op.holds(Ordering::Equal)),
        },
    }
}

/// `greatest` or `least` of the arguments that are not NULL; of equal ones, the first.
#[must_use]
pub fn extreme(arguments: &[ValueRef<'_>], wanted: Ordering) -> Value {
    let mut chosen: Option<&ValueRef<'_>> = None;
    for value in arguments.iter().filter(|value| !value.is_null()) {
        if chosen.is_none_or(|chosen| compare_ref(value, chosen) == Some(wanted)) {
            chosen = Some(value);
        }
    }
    chosen.map_or(Value::Null, ValueRef::to_value)
}

fn case(arguments: &[ValueRef<'_>], operand: bool) -> Value {
    let arms = arguments.get(usize::from(operand)..).unwrap_or(&[]);
    let mut pairs = arms.chunks_exact(2);
    let found = pairs.by_ref().find_map(|pair| match pair {
        [ValueRef::Bool(true), value] => Some(value),
        _ => None,
    });
    let value = found.or_else(|| pairs.remainder().first());
    value.map_or(Value::Null, ValueRef::to_value)
}

fn in_list(value: &ValueRef<'_>, items: &[ValueRef<'_>]) -> Option<bool> {
    if value.is_null() {
        return if items.is_empty() { Some(false) } else { None };
    }
    let mut unknown = false;
    for item in items {
        match compare_ref(value, item) {
            Some(Ordering::Equal) => return Some(true),
            Some(_) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(false) }
}
