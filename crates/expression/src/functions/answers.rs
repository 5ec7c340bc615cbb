//! Replays calls and compares with PostgreSQL 15's answers in a database with collation C: `answers.txt`,
//! one call per line.
//!
//! A line is the kind (`f` function, `i` operator, `s` set-returning), the name, the arguments as
//! `type:text` (`\N` for NULL), `=` and the answer: text, `\N`, or `E:state:message`. Rows are separated by
//! `~`, fields by tabs.

use weft_types::{Element, SqlError, SqlType, TimeZone, Value, ValueRef, format_text, parse_text};

use super::{functions, infix_operators, sets};
use crate::context::{Context, NoSession};
use crate::table::Arg;

fn ty(name: &str) -> SqlType {
    match name {
        "text" => SqlType::Text,
        "name" => SqlType::Name,
        "bool" => SqlType::Bool,
        "int4" => SqlType::Int4,
        "int8" => SqlType::Int8,
        "float4" => SqlType::Float4,
        "float8" => SqlType::Float8,
        "numeric" => SqlType::Numeric(None),
        "bytea" => SqlType::Bytea,
        "date" => SqlType::Date,
        "_int4" => SqlType::Array(Element::Int4),
        "_text" => SqlType::Array(Element::Text),
        other => panic!("no type {other}"),
    }
}

/// How many of an entry's arguments name exactly these types; `None` if one does not take its type.
fn fit(arguments: &[Arg], variadic: bool, types: &[SqlType]) -> Option<usize> {
    let count = types.len();
    if count < arguments.len() || (count > arguments.len() && !variadic) {
        return None;
    }
    let mut exact = 0;
    for (at, ty) in types.iter().enumerate() {
        let is_array = matches!(ty, SqlType::Array(_));
        match arguments.get(at).or(arguments.last())? {
            Arg::Is(own) if own.without_typmod() == ty.without_typmod() => exact += 1,
            Arg::Is(_) => return None,
            Arg::AnyArray | Arg::AnyCompatibleArray if !is_array => return None,
            Arg::AnyElement | Arg::AnyCompatible | Arg::AnyNonArray if is_array => return None,
            _ => {}
        }
    }
    Some(exact)
}

fn shown(value: &Value) -> String {
    let Some(ty) = value.sql_type() else {
        return "\\N".to_owned();
    };
    let mut out = String::new();
    format_text(value, &ty, &mut out);
    out
}

fn answer(kind: &str, name: &str, types: &[SqlType], values: &[Value]) -> Result<String, SqlError> {
    let context = Context {
        parameters: &[],
        zone: TimeZone::UTC,
        session: &NoSession,
    };
    let null = values.iter().any(Value::is_null);
    let arguments: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
    if kind == "s" {
        let entry = sets(name)
            .iter()
            .find(|entry| fit(entry.arguments, false, types).is_some());
        let entry = entry.unwrap();
        let mut rows = Vec::new();
        if !(entry.strict && null) {
            (entry.compute)(&context, &arguments, &mut |row| {
                rows.push(shown(&row[0]));
                Ok(())
            })?;
        }
        return Ok(rows.join("~"));
    }
    let entries = if kind == "i" {
        infix_operators(name)
    } else {
        functions(name)
    };
    let entry = entries
        .iter()
        .filter(|entry| fit(entry.arguments, entry.variadic, types).is_some())
        .max_by_key(|entry| fit(entry.arguments, entry.variadic, types))
        .unwrap();
    match entry.strict && null {
        true => Ok("\\N".to_owned()),
        false => entry.kernel.compute()(&context, &arguments).map(|value| shown(&value)),
    }
}

#[test]
fn answers_are_postgresqls() {
    let mut count = 0;
    for line in include_str!("answers.txt").lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (call, expected) = fields.split_at(fields.iter().position(|field| *field == "=").unwrap());
        let mut types = Vec::new();
        let mut values = Vec::new();
        for argument in &call[2..] {
            let (name, text) = argument.split_once(':').unwrap();
            types.push(ty(name));
            values.push(match text {
                "\\N" => Value::Null,
                text => parse_text(text, &ty(name)).unwrap(),
            });
        }
        let given = match answer(call[0], call[1], &types, &values) {
            Ok(shown) => shown,
            Err(error) => format!("E:{}:{}", error.state.code(), error.message),
        };
        assert_eq!(given, expected[1], "{line}");
        count += 1;
    }
    assert!(count > 300);
}
