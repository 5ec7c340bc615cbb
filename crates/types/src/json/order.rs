//! The order of `jsonb` values, and their form in keys.
//!
//! PostgreSQL's order: null, strings, numbers, booleans, arrays, objects; of arrays and objects the one with
//! fewer parts first, then part by part (of an object the key, then its value). Strings and keys are ordered
//! by their bytes. One exception, which indexes of PostgreSQL depend on: an empty array that is not in
//! another value is less than everything else.

use std::cmp::Ordering;

use weft_base::{ByteReader, CodecError};

use super::build::Builder;
use super::parse::Container;
use super::view::{Node, compare_keys};
use super::{DEPTH_MAX, Jsonb, JsonbRef};
use crate::SqlError;
use crate::key::{put_escaped, put_numeric, take_escaped, take_numeric};

/// Classes of values, in order. Their numbers are the first bytes of keys.
const CLASS_EMPTY: u8 = 1;
const CLASS_NULL: u8 = 2;
const CLASS_STRING: u8 = 3;
const CLASS_NUMBER: u8 = 4;
const CLASS_FALSE: u8 = 5;
const CLASS_TRUE: u8 = 6;
const CLASS_ARRAY: u8 = 7;
const CLASS_OBJECT: u8 = 8;

fn class(node: &Node<'_>, inner: bool) -> u8 {
    match node {
        Node::Array(array) if array.is_empty() && !inner => CLASS_EMPTY,
        Node::Null => CLASS_NULL,
        Node::String(_) => CLASS_STRING,
        Node::Number(_) => CLASS_NUMBER,
        Node::Bool(false) => CLASS_FALSE,
        Node::Bool(true) => CLASS_TRUE,
        Node::Array(_) => CLASS_ARRAY,
        Node::Object(_) => CLASS_OBJECT,
    }
}

/// SQL's order of two values.
#[must_use]
pub fn compare(a: JsonbRef<'_>, b: JsonbRef<'_>) -> Ordering {
    compare_at(a, b, false)
}

fn compare_at(a: JsonbRef<'_>, b: JsonbRef<'_>, inner: bool) -> Ordering {
    let (a, b) = (a.node(), b.node());
    class(&a, inner)
        .cmp(&class(&b, inner))
        .then_with(|| match (&a, &b) {
            (Node::String(a), Node::String(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Node::Number(a), Node::Number(b)) => a.compare(b),
            (Node::Array(a), Node::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
                let mut items = a.iter().zip(b.iter()).map(|(a, b)| compare_at(a, b, true));
                items.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }),
            (Node::Object(a), Node::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
                let mut parts = a.iter().zip(b.iter()).map(|((a_key, a), (b_key, b))| {
                    let keys = a_key.as_bytes().cmp(b_key.as_bytes());
                    keys.then_with(|| compare_at(a, b, true))
                });
                parts.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            }),
            _ => Ordering::Equal,
        })
}

/// Appends the payload of a key: the class, then of a string its escaped bytes, of a number what a numeric
/// has, of an array its count (big endian) and items, of an object its count and its keys, each followed by
/// its value.
pub(crate) fn put_key(out: &mut Vec<u8>, value: JsonbRef<'_>) {
    put_key_at(out, value, false);
}

fn put_key_at(out: &mut Vec<u8>, value: JsonbRef<'_>, inner: bool) {
    let node = value.node();
    out.push(class(&node, inner));
    match node {
        Node::Null | Node::Bool(_) => {}
        Node::String(text) => put_escaped(out, text.as_bytes()),
        Node::Number(number) => put_numeric(out, &number),
        Node::Array(array) if array.is_empty() && !inner => {}
        Node::Array(array) => {
            out.extend_from_slice(&(array.len() as u32).to_be_bytes());
            for item in array.iter() {
                put_key_at(out, item, true);
            }
        }
        Node::Object(object) => {
            out.extend_from_slice(&(object.len() as u32).to_be_bytes());
            for (key, value) in object.iter() {
                put_escaped(out, key.as_bytes());
                put_key_at(out, value, true);
            }
        }
    }
}

/// Inverse of [`put_key`]; numbers get the smallest scale that represents them.
pub(crate) fn take_key(reader: &mut ByteReader<'_>) -> Result<Jsonb, CodecError> {
    let mut builder = Builder::default();
    take_value(reader, &mut builder, 0)?;
    let position = reader.position();
    builder.finish().map_err(|_| bad_key(position))
}

fn bad_key(position: usize) -> CodecError {
    CodecError::new(position, "bad key of a jsonb value")
}

fn take_text(reader: &mut ByteReader<'_>) -> Result<String, CodecError> {
    let position = reader.position();
    let text = String::from_utf8(take_escaped(reader)?).map_err(|_| bad_key(position))?;
    match text.contains('\0') {
        true => Err(bad_key(position)),
        false => Ok(text),
    }
}

fn take_value(reader: &mut ByteReader<'_>, builder: &mut Builder, depth: usize) -> Result<(), CodecError> {
    let position = reader.position();
    let built = |result: Result<(), SqlError>| result.map_err(|_| bad_key(position));
    let class = reader.u8()?;
    if matches!(class, CLASS_ARRAY | CLASS_OBJECT) && depth == DEPTH_MAX {
        return Err(bad_key(position));
    }
    match class {
        CLASS_EMPTY if depth == 0 => {
            built(builder.begin(Container::Array))?;
            built(builder.end())
        }
        CLASS_NULL => built(builder.null()),
        CLASS_STRING => built(builder.string(&take_text(reader)?)),
        CLASS_NUMBER => {
            let number = take_numeric(reader)?;
            match number.is_nan() {
                true => Err(bad_key(position)),
                false => built(builder.number(&number)),
            }
        }
        CLASS_FALSE | CLASS_TRUE => built(builder.bool(class == CLASS_TRUE)),
        CLASS_ARRAY => {
            let count = u32::from_be_bytes(reader.array()?);
            if count == 0 && depth == 0 {
                return Err(bad_key(position));
            }
            built(builder.begin(Container::Array))?;
            for _ in 0..count {
                take_value(reader, builder, depth + 1)?;
            }
            built(builder.end())
        }
        CLASS_OBJECT => {
            let count = u32::from_be_bytes(reader.array()?);
            built(builder.begin(Container::Object))?;
            let mut before: Option<String> = None;
            for _ in 0..count {
                let key = take_text(reader)?;
                if before.is_some_and(|before| compare_keys(before.as_bytes(), key.as_bytes()).is_ge()) {
                    return Err(bad_key(position));
                }
                built(builder.key(&key))?;
                take_value(reader, builder, depth + 1)?;
                before = Some(key);
            }
            built(builder.end())
        }
        _ => Err(bad_key(position)),
    }
}
