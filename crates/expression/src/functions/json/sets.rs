//! Functions that return the parts of a value as rows.

use weft_types::json::{Container, Node};
use weft_types::{SqlError, SqlType, Value};

use super::super::shape::{Arguments, invalid};
use super::read::shown;
use super::text::{Part, Parts, as_json, as_text};
use super::{JSON, JSONB, json, jsonb};
use crate::context::Context;
use crate::table::{Arg, ComputeSet, Returns, SetEntry};

use Returns::Is;
use SqlType::{Json, Jsonb, Text};

type Emit<'e> = &'e mut dyn FnMut(Vec<Value>) -> Result<(), SqlError>;

const fn entry(
    name: &'static str,
    arguments: &'static [Arg],
    columns: &'static [(&'static str, Returns)],
    compute: ComputeSet,
) -> SetEntry {
    SetEntry {
        name,
        arguments,
        columns,
        strict: true,
        compute,
    }
}

/// The entries.
pub(super) static ENTRIES: &[SetEntry] = &[
    entry(
        "json_each",
        &[JSON],
        &[("key", Is(Text)), ("value", Is(Json))],
        |_, a, emit| json_each(a, as_json, emit),
    ),
    entry(
        "json_each_text",
        &[JSON],
        &[("key", Is(Text)), ("value", Is(Text))],
        |_, a, emit| json_each(a, as_text, emit),
    ),
    entry(
        "jsonb_each",
        &[JSONB],
        &[("key", Is(Text)), ("value", Is(Jsonb))],
        |_, a, emit| jsonb_each(a, "jsonb_each", emit),
    ),
    entry(
        "jsonb_each_text",
        &[JSONB],
        &[("key", Is(Text)), ("value", Is(Text))],
        |_, a, emit| jsonb_each(a, "jsonb_each_text", emit),
    ),
    entry(
        "json_array_elements",
        &[JSON],
        &[("value", Is(Json))],
        |_, a, emit| json_items(a, "json_array_elements", as_json, emit),
    ),
    entry(
        "json_array_elements_text",
        &[JSON],
        &[("value", Is(Text))],
        |_, a, emit| json_items(a, "json_array_elements_text", as_text, emit),
    ),
    entry(
        "jsonb_array_elements",
        &[JSONB],
        &[("value", Is(Jsonb))],
        |_, a, emit| jsonb_items(a, false, emit),
    ),
    entry(
        "jsonb_array_elements_text",
        &[JSONB],
        &[("value", Is(Text))],
        |_, a, emit| jsonb_items(a, true, emit),
    ),
    entry(
        "json_object_keys",
        &[JSON],
        &[("json_object_keys", Is(Text))],
        json_keys,
    ),
    entry(
        "jsonb_object_keys",
        &[JSONB],
        &[("jsonb_object_keys", Is(Text))],
        jsonb_keys,
    ),
];

fn json_each(
    arguments: Arguments<'_, '_>,
    as_value: fn(&Part<'_>) -> Value,
    emit: Emit<'_>,
) -> Result<(), SqlError> {
    let parts = Parts::of(json(arguments, 0)?, true)?;
    match parts.container {
        Some(Container::Object) => {}
        Some(Container::Array) => return Err(invalid("cannot deconstruct an array as an object")),
        None => return Err(invalid("cannot deconstruct a scalar")),
    }
    parts
        .parts
        .iter()
        .try_for_each(|part| emit(vec![Value::Text(part.key.to_string()), as_value(part)]))
}

fn jsonb_each(arguments: Arguments<'_, '_>, name: &str, emit: Emit<'_>) -> Result<(), SqlError> {
    let Node::Object(object) = jsonb(arguments, 0)?.node() else {
        return Err(invalid(format!("cannot call {name} on a non-object")));
    };
    for (key, value) in object.iter() {
        let value = match name {
            "jsonb_each_text" => shown(Some(value))?,
            _ => Value::Jsonb(value.to_jsonb()),
        };
        emit(vec![Value::Text(key.to_owned()), value])?;
    }
    Ok(())
}

fn json_items(
    arguments: Arguments<'_, '_>,
    name: &str,
    as_value: fn(&Part<'_>) -> Value,
    emit: Emit<'_>,
) -> Result<(), SqlError> {
    let parts = Parts::of(json(arguments, 0)?, true)?;
    match parts.container {
        Some(Container::Array) => {}
        Some(Container::Object) => return Err(invalid(format!("cannot call {name} on a non-array"))),
        None => return Err(invalid(format!("cannot call {name} on a scalar"))),
    }
    parts.parts.iter().try_for_each(|part| emit(vec![as_value(part)]))
}

fn jsonb_items(arguments: Arguments<'_, '_>, is_text: bool, emit: Emit<'_>) -> Result<(), SqlError> {
    let array = match jsonb(arguments, 0)?.node() {
        Node::Array(array) => array,
        Node::Object(_) => return Err(invalid("cannot extract elements from an object")),
        _ => return Err(invalid("cannot extract elements from a scalar")),
    };
    for item in array.iter() {
        emit(vec![match is_text {
            true => shown(Some(item))?,
            false => Value::Jsonb(item.to_jsonb()),
        }])?;
    }
    Ok(())
}

fn json_keys(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let parts = Parts::of(json(arguments, 0)?, true)?;
    match parts.container {
        Some(Container::Object) => {}
        Some(Container::Array) => return Err(invalid("cannot call json_object_keys on an array")),
        None => return Err(invalid("cannot call json_object_keys on a scalar")),
    }
    parts
        .parts
        .iter()
        .try_for_each(|part| emit(vec![Value::Text(part.key.to_string())]))
}

fn jsonb_keys(_: &Context<'_>, arguments: Arguments<'_, '_>, emit: Emit<'_>) -> Result<(), SqlError> {
    let object = match jsonb(arguments, 0)?.node() {
        Node::Object(object) => object,
        Node::Array(_) => return Err(invalid("cannot call jsonb_object_keys on an array")),
        _ => return Err(invalid("cannot call jsonb_object_keys on a scalar")),
    };
    object
        .iter()
        .try_for_each(|(key, _)| emit(vec![Value::Text(key.to_owned())]))
}
