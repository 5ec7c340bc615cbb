//! Members, paths, containment and types.

use std::cmp::Ordering;

use weft_types::json::{Container, Node, compare, write, write_indented};
use weft_types::{ArrayValue, Element, JsonbRef, SqlError, SqlType, Value, ValueRef};

use super::super::shape::{
    Arguments, Computed, INT4, TEXT, TO_BOOL, TO_INT4, TO_TEXT, counted, define, infix, int, invalid, made,
    text,
};
use super::text::{Part, Parts, as_json, as_text};
use super::{JSON, JSONB, TO_JSON, TO_JSONB, array, json, jsonb, part};
use crate::context::Context;
use crate::table::{Arg, Entry};

const TEXTS: Arg = Arg::Is(SqlType::Array(Element::Text));

/// The entries.
pub(super) static ENTRIES: &[Entry] = &[
    infix("->", &[JSON, TEXT], TO_JSON, |_, a| member(a, as_json)),
    infix("->", &[JSON, INT4], TO_JSON, |_, a| item(a, as_json)),
    infix("->>", &[JSON, TEXT], TO_TEXT, |_, a| member(a, as_text)),
    infix("->>", &[JSON, INT4], TO_TEXT, |_, a| item(a, as_text)),
    infix("#>", &[JSON, TEXTS], TO_JSON, |_, a| {
        json_path(json(a, 0)?, &path_of(array(a, 1)?), as_json)
    }),
    infix("#>>", &[JSON, TEXTS], TO_TEXT, |_, a| {
        json_path(json(a, 0)?, &path_of(array(a, 1)?), as_text)
    }),
    infix("->", &[JSONB, TEXT], TO_JSONB, |_, a| part(field(a)?)).infallible(),
    infix("->", &[JSONB, INT4], TO_JSONB, |_, a| part(element(a)?)).infallible(),
    infix("->>", &[JSONB, TEXT], TO_TEXT, |_, a| shown(field(a)?)),
    infix("->>", &[JSONB, INT4], TO_TEXT, |_, a| shown(element(a)?)),
    infix("#>", &[JSONB, TEXTS], TO_JSONB, |_, a| {
        part(jsonb_path(jsonb(a, 0)?, &path_of(array(a, 1)?)))
    }),
    infix("#>>", &[JSONB, TEXTS], TO_TEXT, |_, a| {
        shown(jsonb_path(jsonb(a, 0)?, &path_of(array(a, 1)?)))
    }),
    define("json_object_field", &[JSON, TEXT], TO_JSON, |_, a| {
        member(a, as_json)
    }),
    define("json_object_field_text", &[JSON, TEXT], TO_TEXT, |_, a| {
        member(a, as_text)
    }),
    define("json_array_element", &[JSON, INT4], TO_JSON, |_, a| {
        item(a, as_json)
    }),
    define("json_array_element_text", &[JSON, INT4], TO_TEXT, |_, a| {
        item(a, as_text)
    }),
    define("jsonb_object_field", &[JSONB, TEXT], TO_JSONB, |_, a| {
        part(field(a)?)
    })
    .infallible(),
    define("jsonb_object_field_text", &[JSONB, TEXT], TO_TEXT, |_, a| {
        shown(field(a)?)
    }),
    define("jsonb_array_element", &[JSONB, INT4], TO_JSONB, |_, a| {
        part(element(a)?)
    })
    .infallible(),
    define("jsonb_array_element_text", &[JSONB, INT4], TO_TEXT, |_, a| {
        shown(element(a)?)
    }),
    define("json_extract_path", &[JSON, TEXT], TO_JSON, |_, a| {
        json_path(json(a, 0)?, &path_of_rest(a), as_json)
    })
    .with_more(),
    define("json_extract_path_text", &[JSON, TEXT], TO_TEXT, |_, a| {
        json_path(json(a, 0)?, &path_of_rest(a), as_text)
    })
    .with_more(),
    define("jsonb_extract_path", &[JSONB, TEXT], TO_JSONB, |_, a| {
        part(jsonb_path(jsonb(a, 0)?, &path_of_rest(a)))
    })
    .with_more(),
    define("jsonb_extract_path_text", &[JSONB, TEXT], TO_TEXT, |_, a| {
        shown(jsonb_path(jsonb(a, 0)?, &path_of_rest(a)))
    })
    .with_more(),
    infix("@>", &[JSONB, JSONB], TO_BOOL, |_, a| {
        Ok(Value::Bool(contains(jsonb(a, 0)?, jsonb(a, 1)?)))
    }),
    infix("<@", &[JSONB, JSONB], TO_BOOL, |_, a| {
        Ok(Value::Bool(contains(jsonb(a, 1)?, jsonb(a, 0)?)))
    }),
    define("jsonb_contains", &[JSONB, JSONB], TO_BOOL, |_, a| {
        Ok(Value::Bool(contains(jsonb(a, 0)?, jsonb(a, 1)?)))
    }),
    define("jsonb_contained", &[JSONB, JSONB], TO_BOOL, |_, a| {
        Ok(Value::Bool(contains(jsonb(a, 1)?, jsonb(a, 0)?)))
    }),
    infix("?", &[JSONB, TEXT], TO_BOOL, has_key),
    infix("?|", &[JSONB, TEXTS], TO_BOOL, has_any),
    infix("?&", &[JSONB, TEXTS], TO_BOOL, has_all),
    define("jsonb_exists", &[JSONB, TEXT], TO_BOOL, has_key),
    define("jsonb_exists_any", &[JSONB, TEXTS], TO_BOOL, has_any),
    define("jsonb_exists_all", &[JSONB, TEXTS], TO_BOOL, has_all),
    define("json_typeof", &[JSON], TO_TEXT, json_typeof),
    define("jsonb_typeof", &[JSONB], TO_TEXT, jsonb_typeof).infallible(),
    define("json_array_length", &[JSON], TO_INT4, json_array_length),
    define("jsonb_array_length", &[JSONB], TO_INT4, jsonb_array_length),
    define("jsonb_pretty", &[JSONB], TO_TEXT, pretty),
];

fn member(arguments: Arguments<'_, '_>, as_value: fn(&Part<'_>) -> Value) -> Computed {
    let parts = Parts::of(json(arguments, 0)?, true)?;
    Ok(parts.field(text(arguments, 1)?).map_or(Value::Null, as_value))
}

fn item(arguments: Arguments<'_, '_>, as_value: fn(&Part<'_>) -> Value) -> Computed {
    let parts = Parts::of(json(arguments, 0)?, true)?;
    Ok(parts.item(int(arguments, 1)?).map_or(Value::Null, as_value))
}

/// The texts of a path; `None` if one is NULL.
type Path = Option<Vec<String>>;

fn path_of(array: &ArrayValue) -> Path {
    let texts = array.items.iter().map(|item| match item {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

fn path_of_rest(arguments: Arguments<'_, '_>) -> Path {
    let texts = arguments.iter().skip(1).map(|argument| match argument {
        ValueRef::Text(text) => Some((*text).to_owned()),
        _ => None,
    });
    texts.collect()
}

/// The number of an item as a step of a path: as C's `strtoint` reads it.
pub(super) fn item_number(step: &str) -> Option<i64> {
    let number = step.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let is_number = number.strip_prefix(['-', '+']).unwrap_or(number);
    match !is_number.is_empty() && is_number.bytes().all(|byte| byte.is_ascii_digit()) {
        true => number.parse::<i32>().ok().map(i64::from),
        false => None,
    }
}

fn json_path(whole: &str, path: &Path, as_value: fn(&Part<'_>) -> Value) -> Computed {
    let Some(path) = path else { return Ok(Value::Null) };
    let mut parts = Parts::of(whole, true)?;
    let mut found = parts.whole.clone();
    for step in path {
        let next = match parts.container {
            Some(Container::Object) => parts.field(step),
            Some(Container::Array) => item_number(step).and_then(|number| parts.item(number)),
            None => None,
        };
        let Some(next) = next else { return Ok(Value::Null) };
        found = next.clone();
        parts = Parts::of(found.raw, true)?;
    }
    Ok(as_value(&found))
}

fn field<'a>(arguments: Arguments<'_, 'a>) -> Result<Option<JsonbRef<'a>>, SqlError> {
    let key = text(arguments, 1)?;
    Ok(match jsonb(arguments, 0)?.node() {
        Node::Object(object) => object.get(key),
        _ => None,
    })
}

/// An item of an array. PostgreSQL takes what is neither array nor object for an array of itself here.
fn element<'a>(arguments: Arguments<'_, 'a>) -> Result<Option<JsonbRef<'a>>, SqlError> {
    let number = int(arguments, 1)?;
    let whole = jsonb(arguments, 0)?;
    Ok(match whole.node() {
        Node::Array(array) => array.at(number),
        Node::Object(_) => None,
        _ => matches!(number, 0 | -1).then_some(whole),
    })
}

fn jsonb_path<'a>(whole: JsonbRef<'a>, path: &Path) -> Option<JsonbRef<'a>> {
    let mut found = whole;
    for step in path.as_ref()? {
        found = match found.node() {
            Node::Object(object) => object.get(step)?,
            Node::Array(array) => array.at(item_number(step)?)?,
            _ => return None,
        };
    }
    Some(found)
}

/// A part as a text: strings without quotes; NULL for null.
pub(super) fn shown(found: Option<JsonbRef<'_>>) -> Computed {
    let Some(found) = found else {
        return Ok(Value::Null);
    };
    match found.node() {
        Node::Null => Ok(Value::Null),
        Node::String(text) => made(text),
        _ => {
            let mut out = String::new();
            write(found, &mut out)?;
            Ok(Value::Text(out))
        }
    }
}

/// Whether a value contains another (`@>`): at the outermost level, an array also contains its scalars.
fn contains(whole: JsonbRef<'_>, sought: JsonbRef<'_>) -> bool {
    match (whole.node(), sought.node()) {
        (Node::Array(array), Node::Null | Node::Bool(_) | Node::Number(_) | Node::String(_)) => {
            array.iter().any(|item| is_equal_scalar(item, sought))
        }
        _ => contains_part(whole, sought),
    }
}

fn is_equal_scalar(item: JsonbRef<'_>, sought: JsonbRef<'_>) -> bool {
    !matches!(item.node(), Node::Array(_) | Node::Object(_)) && compare(item, sought) == Ordering::Equal
}

fn contains_part(whole: JsonbRef<'_>, sought: JsonbRef<'_>) -> bool {
    match (whole.node(), sought.node()) {
        (Node::Object(whole), Node::Object(sought)) => {
            whole.len() >= sought.len()
                && sought.iter().all(|(key, sought)| {
                    let found = whole.get(key);
                    found.is_some_and(|found| contains_part(found, sought))
                })
        }
        (Node::Array(whole), Node::Array(sought)) => sought
            .iter()
            .all(|sought| whole.iter().any(|item| contains_part(item, sought))),
        (Node::Array(_) | Node::Object(_), _) | (_, Node::Array(_) | Node::Object(_)) => false,
        _ => is_equal_scalar(whole, sought),
    }
}

/// Whether a text is a key of an object, an item of an array, or the string itself.
fn has(whole: JsonbRef<'_>, sought: &str) -> bool {
    let is_sought = |value: JsonbRef<'_>| matches!(value.node(), Node::String(text) if text == sought);
    match whole.node() {
        Node::Object(object) => object.get(sought).is_some(),
        Node::Array(array) => array.iter().any(is_sought),
        _ => is_sought(whole),
    }
}

fn has_key(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Bool(has(jsonb(arguments, 0)?, text(arguments, 1)?)))
}

/// The texts of an array that are not NULL.
fn texts(array: &ArrayValue) -> impl Iterator<Item = &str> {
    array.items.iter().filter_map(Value::as_str)
}

fn has_any(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = jsonb(arguments, 0)?;
    let found = texts(array(arguments, 1)?).any(|sought| has(whole, sought));
    Ok(Value::Bool(found))
}

fn has_all(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let whole = jsonb(arguments, 0)?;
    let found = texts(array(arguments, 1)?).all(|sought| has(whole, sought));
    Ok(Value::Bool(found))
}

fn json_typeof(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let first = json(arguments, 0)?.trim_start().bytes().next();
    made(match first {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    })
}

fn jsonb_typeof(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    made(match jsonb(arguments, 0)?.node() {
        Node::Null => "null",
        Node::Bool(_) => "boolean",
        Node::Number(_) => "number",
        Node::String(_) => "string",
        Node::Array(_) => "array",
        Node::Object(_) => "object",
    })
}

fn no_length(is_scalar: bool) -> SqlError {
    invalid(match is_scalar {
        true => "cannot get array length of a scalar",
        false => "cannot get array length of a non-array",
    })
}

fn json_array_length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let parts = Parts::of(json(arguments, 0)?, false)?;
    match parts.container {
        Some(Container::Array) => counted(parts.parts.len()),
        container => Err(no_length(container.is_none())),
    }
}

fn jsonb_array_length(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    match jsonb(arguments, 0)?.node() {
        Node::Array(array) => counted(array.len()),
        Node::Object(_) => Err(no_length(false)),
        _ => Err(no_length(true)),
    }
}

fn pretty(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut out = String::new();
    write_indented(jsonb(arguments, 0)?, &mut out)?;
    Ok(Value::Text(out))
}
