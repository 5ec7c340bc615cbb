//! PostgreSQL 15's answers to random expressions and aggregates.
//!
//! A line of `expressions.txt` is the answer (`value|type`, or `ERR state message`), the expression, and
//! the expression in post-order:
//!
//! ```text
//!   N          an untyped NULL          u:text     an untyped quoted constant
//!   l:type:v   CAST('v' AS type)        c:type     the last value cast
//!   i:+        an infix operator        p:-        a prefix operator
//!   f:name:2   a function of two arguments
//! ```
//!
//! A line of `aggregates.txt` is the answer, the aggregate, the types of its arguments, and the rows:
//! values separated by `;`, N for NULL.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use weft_expression::{
    Compiled, Context, Expr, NoSession, Op, Operator, Resolved, coerce, fold, resolve_aggregate,
    resolve_function, resolve_operator,
};
use weft_types::{
    CastContext, Element, SqlError, SqlType, TimeZone, Value, ValueRef, cast_from, format_text, parse_text,
};

mod control;

/// A context without parameters.
pub fn context() -> Context<'static> {
    Context {
        parameters: &[],
        zone: TimeZone::UTC,
        session: &NoSession,
    }
}

fn type_of_name(name: &str) -> SqlType {
    if let Some(element) = name.strip_suffix("[]") {
        return SqlType::Array(Element::of(&type_of_name(element)).unwrap());
    }
    match name {
        "int2" => SqlType::Int2,
        "int4" => SqlType::Int4,
        "int8" => SqlType::Int8,
        "float4" => SqlType::Float4,
        "float8" => SqlType::Float8,
        "numeric" => SqlType::Numeric(None),
        "bool" => SqlType::Bool,
        "text" => SqlType::Text,
        "bpchar" => SqlType::Char(5),
        "varchar" => SqlType::Varchar(None),
        "name" => SqlType::Name,
        "date" => SqlType::Date,
        "timestamp" => SqlType::Timestamp,
        "interval" => SqlType::Interval,
        "uuid" => SqlType::Uuid,
        _ => panic!("no type {name}"),
    }
}

/// An expression and its type; `None` is PostgreSQL's unknown.
type Typed = (Expr, Option<SqlType>);

fn call(resolved: &Resolved, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
    let pairs = arguments.into_iter().zip(&resolved.arguments);
    let converted: Result<Vec<Expr>, SqlError> = pairs
        .map(|((expr, from), to)| coerce(expr, from, *to, CastContext::Implicit))
        .collect();
    let expr = Expr::new(Op::Call(resolved.entry), resolved.result, converted?);
    Ok((expr, Some(resolved.result)))
}

fn operator(symbol: &str, left: Option<Typed>, right: Typed) -> Result<Typed, SqlError> {
    let found = resolve_operator(symbol, left.as_ref().map(|left| left.1), right.1)?;
    let operands: Vec<Typed> = left.into_iter().chain([right]).collect();
    match found {
        Operator::Call(resolved) => call(&resolved, operands),
        Operator::Compare(op, ty) => {
            let sides: Result<Vec<Expr>, SqlError> = operands
                .into_iter()
                .map(|(expr, from)| coerce(expr, from, ty, CastContext::Implicit))
                .collect();
            Ok((
                Expr::new(Op::Compare(op), SqlType::Bool, sides?),
                Some(SqlType::Bool),
            ))
        }
    }
}

fn build(words: &[&str]) -> Result<Typed, SqlError> {
    let mut stack: Vec<Typed> = Vec::new();
    for word in words {
        let (kind, rest) = word.split_once(':').unwrap_or((word, ""));
        let typed = match kind {
            "N" => (Expr::constant(Value::Null, SqlType::Text), None),
            "u" => (Expr::constant(Value::from(rest), SqlType::Text), None),
            "l" => {
                let (name, text) = rest.split_once(':').unwrap();
                let ty = type_of_name(name);
                let text = Expr::constant(Value::from(text), SqlType::Text);
                (coerce(text, None, ty, CastContext::Explicit)?, Some(ty))
            }
            "c" => {
                let (expr, from) = stack.pop().unwrap();
                let ty = type_of_name(rest);
                (coerce(expr, from, ty, CastContext::Explicit)?, Some(ty))
            }
            "i" => {
                let right = stack.pop().unwrap();
                operator(rest, stack.pop(), right)?
            }
            "p" => operator(rest, None, stack.pop().unwrap())?,
            _ => {
                let (name, count) = rest.split_once(':').unwrap();
                let arguments = stack.split_off(stack.len() - count.parse::<usize>().unwrap());
                let types: Vec<Option<SqlType>> = arguments.iter().map(|argument| argument.1).collect();
                call(&resolve_function(&[], name, &types)?, arguments)?
            }
        };
        stack.push(typed);
    }
    Ok(stack.pop().unwrap())
}

fn answer(result: Result<(Value, SqlType), SqlError>) -> String {
    match result {
        Err(error) => format!("ERR {} {}", error.state.0, error.message),
        Ok((Value::Null, ty)) => format!("NULL|{}", ty.base_name()),
        Ok((value, ty)) => {
            let mut text = String::new();
            format_text(&value, &ty, &mut text);
            format!("{text}|{}", ty.base_name())
        }
    }
}

#[test]
fn expressions_have_the_values_of_postgresql() {
    for line in include_str!("expressions.txt").lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [expected, sql, words @ ..] = &words[..] else {
            panic!("{line}");
        };
        let result = build(words).and_then(|(expr, ty)| {
            let value = Compiled::new(&expr, &|_| None)?.evaluate(&context(), &|_| ValueRef::Null)?;
            let folded = Compiled::new(&fold(&expr, &context())?.expr, &|_| None)?;
            let of_folded = folded.evaluate(&context(), &|_| ValueRef::Null)?;
            assert_eq!(of_folded, value, "{sql}");
            Ok((value, ty.unwrap_or(SqlType::Text)))
        });
        assert_eq!(answer(result), *expected, "{sql}");
    }
}

fn aggregate(
    name: &str,
    types: &[SqlType],
    rows: &[&str],
    parts: usize,
) -> Result<(Value, SqlType), SqlError> {
    let known: Vec<Option<SqlType>> = types.iter().map(|ty| Some(*ty)).collect();
    let resolved = resolve_aggregate(name, &known, false).unwrap()?;
    let start = || (resolved.aggregate.start)(&resolved.arguments, resolved.result);
    let mut states: Vec<_> = (0..parts).map(|_| start()).collect();
    for (number, row) in rows.iter().enumerate() {
        let mut values = Vec::new();
        for ((text, ty), to) in row.split(';').zip(types).zip(&resolved.arguments) {
            let value = if text == "N" {
                Value::Null
            } else {
                parse_text(text, ty)?
            };
            values.push(cast_from(value, ty, to)?);
        }
        if resolved.aggregate.strict && values.iter().any(Value::is_null) {
            continue;
        }
        let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        states[number * parts / rows.len()].update(&context(), &values)?;
    }
    while states.len() > 1 {
        let state = states.pop().unwrap().state()?;
        let state: Vec<ValueRef<'_>> = state.iter().map(Value::as_ref).collect();
        states[0].merge(&context(), &state)?;
    }
    Ok((states[0].value(&context())?, resolved.result))
}

#[test]
fn aggregates_have_the_values_of_postgresql() {
    for line in include_str!("aggregates.txt").lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let [expected, name, types, rows @ ..] = &words[..] else {
            panic!("{line}");
        };
        let types: Vec<SqlType> = types.split(',').map(type_of_name).collect();
        let whole = answer(aggregate(name, &types, rows, 1));
        assert_eq!(whole, *expected, "{line}");
        // Sums of floats depend on the order of summation.
        let in_parts = resolve_aggregate(name, &types.iter().map(|ty| Some(*ty)).collect::<Vec<_>>(), false)
            .unwrap()
            .is_ok_and(|resolved| !resolved.aggregate.state.is_empty());
        if in_parts && !expected.ends_with("double precision") && !expected.ends_with("real") {
            assert_eq!(
                answer(aggregate(name, &types, rows, 2)),
                *expected,
                "in parts: {line}"
            );
        }
    }
}
