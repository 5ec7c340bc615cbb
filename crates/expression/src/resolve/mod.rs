//! Resolution of calls to functions, operators and aggregates by PostgreSQL's rules (chapter 10 of its
//! documentation; its `parse_func.c`, `parse_oper.c`, `parse_coerce.c`).
//!
//! The type of an argument is `None` where PostgreSQL calls it `unknown`: a quoted constant or NULL without
//! a type, or a parameter without a type. The caller converts each argument to the resolved type with
//! [`coerce`], and gives untyped parameters that type.
//!
//! - `select`: the best of several candidates.
//! - `signature`: the types of a call to a chosen candidate, polymorphic arguments included.
//! - `operators`: operators, comparisons among them.
//! - `common`: a common type for several expressions (CASE, UNION).
//! - `coerce`: the conversion itself.
//! - `unsupported`: names that PostgreSQL has and Weft does not.

mod coerce;
mod common;
mod operators;
mod select;
mod signature;
mod unsupported;

use weft_types::{SqlError, SqlState, SqlType};

pub use coerce::coerce;
pub use common::{common_type, verified_common_type};
pub use operators::{Operator, compared_left, resolve_operator};

use crate::category::check_equality;
use crate::functions;
use crate::table::{AggregateEntry, Arg, Entry, SetEntry};
use select::{Choice, Shape, choose};
use signature::{result_type, types_of_call};

/// A resolved call of a function or operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The entry.
    pub entry: &'static Entry,
    /// The type to which each argument is converted.
    pub arguments: Vec<SqlType>,
    /// The type of the value.
    pub result: SqlType,
}

/// A resolved call of an aggregate.
#[derive(Clone, Debug)]
pub struct ResolvedAggregate {
    /// The aggregate.
    pub aggregate: &'static AggregateEntry,
    /// The type to which each argument is converted; those of WITHIN GROUP last.
    pub arguments: Vec<SqlType>,
    /// The type of the value.
    pub result: SqlType,
}

/// A resolved call of a set-returning function.
#[derive(Clone, Debug)]
pub struct ResolvedSet {
    /// The entry.
    pub entry: &'static SetEntry,
    /// The type to which each argument is converted.
    pub arguments: Vec<SqlType>,
    /// The columns: names and types.
    pub columns: Vec<(&'static str, SqlType)>,
}

/// Resolves a function call. `extra` are functions in addition to those of this crate.
///
/// # Errors
/// 42883 if none fits, 42725 if several do.
pub fn resolve_function(
    extra: &[&'static Entry],
    name: &str,
    types: &[Option<SqlType>],
) -> Result<Resolved, SqlError> {
    let own = functions::functions(name);
    let others = extra.iter().copied().filter(|entry| entry.name == name);
    let candidates: Vec<&'static Entry> = own.iter().copied().chain(others).collect();
    let shapes: Vec<Shape> = candidates.iter().map(|entry| Shape::of_entry(entry)).collect();
    let number = chosen(&shapes, name, types)?;
    let entry = candidates.get(number).ok_or_else(|| no_function(name, types))?;
    let shape = Shape::of_entry(entry);
    let arguments = types_of_call(&shape, types)?;
    check_compared(entry, &arguments)?;
    let result = result_type(&shape, entry.returns, &arguments, types)?;
    Ok(Resolved {
        entry,
        arguments,
        result,
    })
}

/// Functions and operators of arrays that compare items.
const COMPARING: [&str; 8] = [
    "&&",
    "<@",
    "@>",
    "array_position",
    "array_positions",
    "array_remove",
    "array_replace",
    "width_bucket",
];

/// Checks that items can be equal where a call compares them.
fn check_compared(entry: &Entry, arguments: &[SqlType]) -> Result<(), SqlError> {
    let is_array = |arg: &Arg| matches!(arg, Arg::AnyArray | Arg::AnyCompatibleArray);
    match COMPARING.contains(&entry.name) && entry.arguments.iter().any(is_array) {
        true => arguments.iter().try_for_each(check_equality),
        false => Ok(()),
    }
}

/// Resolves an aggregate call; `None` if no aggregate has the name. The arguments of WITHIN GROUP come
/// last. `count(*)` has no types.
#[must_use]
pub fn resolve_aggregate(
    name: &str,
    types: &[Option<SqlType>],
    _distinct: bool,
) -> Option<Result<ResolvedAggregate, SqlError>> {
    let candidates = functions::aggregates(name);
    if candidates.is_empty() {
        return None;
    }
    Some(aggregate_among(candidates, name, types))
}

fn aggregate_among(
    candidates: &[&'static AggregateEntry],
    name: &str,
    types: &[Option<SqlType>],
) -> Result<ResolvedAggregate, SqlError> {
    let shape_of = |entry: &AggregateEntry| Shape {
        arguments: entry.arguments,
        variadic: false,
    };
    if name == "array_agg" && *types == [None] {
        // PostgreSQL has one candidate for arrays and one for everything else.
        return Err(not_unique(name, types));
    }
    let shapes: Vec<Shape> = candidates.iter().map(|entry| shape_of(entry)).collect();
    let number = chosen(&shapes, name, types)?;
    let aggregate = candidates.get(number).ok_or_else(|| no_function(name, types))?;
    let shape = shape_of(aggregate);
    let arguments = types_of_call(&shape, types)?;
    let result = result_type(&shape, aggregate.returns, &arguments, types)?;
    Ok(ResolvedAggregate {
        aggregate,
        arguments,
        result,
    })
}

/// Resolves a call of a set-returning function; `None` if none has the name.
#[must_use]
pub fn resolve_set(name: &str, types: &[Option<SqlType>]) -> Option<Result<ResolvedSet, SqlError>> {
    let candidates = functions::sets(name);
    if candidates.is_empty() {
        return None;
    }
    Some(set_among(candidates, name, types))
}

/// Resolves a call among `candidates`, set-returning functions that all have the name.
///
/// # Errors
/// 42883 if none fits, 42725 if several do.
pub fn set_among(
    candidates: &[&'static SetEntry],
    name: &str,
    types: &[Option<SqlType>],
) -> Result<ResolvedSet, SqlError> {
    let shape_of = |entry: &SetEntry| Shape {
        arguments: entry.arguments,
        variadic: false,
    };
    let shapes: Vec<Shape> = candidates.iter().map(|entry| shape_of(entry)).collect();
    let number = chosen(&shapes, name, types)?;
    let entry = candidates.get(number).ok_or_else(|| no_function(name, types))?;
    let shape = shape_of(entry);
    let arguments = types_of_call(&shape, types)?;
    let mut columns = Vec::with_capacity(entry.columns.len());
    for (column, returns) in entry.columns {
        columns.push((*column, result_type(&shape, *returns, &arguments, types)?));
    }
    Ok(ResolvedSet {
        entry,
        arguments,
        columns,
    })
}

/// Whether an aggregate has the name.
#[must_use]
pub fn is_aggregate(name: &str) -> bool {
    !functions::aggregates(name).is_empty()
}

/// Whether a set-returning function has the name.
#[must_use]
pub fn is_set_returning(name: &str) -> bool {
    !functions::sets(name).is_empty()
}

/// Whether a scalar function has the name.
#[must_use]
pub fn is_function(name: &str) -> bool {
    !functions::functions(name).is_empty()
}

fn chosen(shapes: &[Shape], name: &str, types: &[Option<SqlType>]) -> Result<usize, SqlError> {
    match choose(shapes, types) {
        Choice::One(number) => Ok(number),
        Choice::None => Err(no_function(name, types)),
        Choice::Several => Err(not_unique(name, types)),
    }
}

fn not_unique(name: &str, types: &[Option<SqlType>]) -> SqlError {
    SqlError::new(
        SqlState::AMBIGUOUS_FUNCTION,
        format!("function {} is not unique", call_text(name, types)),
    )
    .hint("Could not choose a best candidate function. You might need to add explicit type casts.")
}

/// 42883; 0A000 if PostgreSQL has functions with the name and Weft has none.
#[must_use]
pub fn no_function(name: &str, types: &[Option<SqlType>]) -> SqlError {
    let known = is_function(name) || is_aggregate(name) || is_set_returning(name);
    let lacks_type = known && unsupported::takes_missing_type(name, types);
    if lacks_type || !known && unsupported::is_function_of_postgresql(name) {
        return SqlError::unsupported(format!("function {} is not supported", call_text(name, types)));
    }
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {} does not exist", call_text(name, types)),
    )
    .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}

/// A type's name in messages.
fn type_name(ty: Option<&SqlType>) -> String {
    ty.map_or_else(|| "unknown".to_owned(), |ty| ty.base_name().to_string())
}

fn call_text(name: &str, types: &[Option<SqlType>]) -> String {
    let types: Vec<String> = types.iter().map(|ty| type_name(ty.as_ref())).collect();
    format!("{name}({})", types.join(", "))
}
