//! Concatenation, deletion, and values with one part changed.

use weft_types::json::{Builder, Container, Events, Node, Scalar, parse, push_escaped};
use weft_types::{ArrayValue, Element, JsonbRef, SqlError, SqlState, SqlType, Value};

use super::super::shape::{
    Arguments, BOOL, Computed, INT4, TEXT, boolean, define, infix, int, invalid, text,
};
use super::read::item_number;
use super::{JSON, JSONB, TO_JSON, TO_JSONB, array, json, jsonb};
use crate::context::Context;
use crate::table::{Arg, Entry};

const TEXTS: Arg = Arg::Is(SqlType::Array(Element::Text));

/// The entries.
pub(super) static ENTRIES: &[Entry] = &[
    infix("||", &[JSONB, JSONB], TO_JSONB, concat),
    infix("-", &[JSONB, TEXT], TO_JSONB, delete_key),
    infix("-", &[JSONB, INT4], TO_JSONB, delete_item),
    infix("-", &[JSONB, TEXTS], TO_JSONB, delete_keys),
    infix("#-", &[JSONB, TEXTS], TO_JSONB, delete_path),
    define("jsonb_concat", &[JSONB, JSONB], TO_JSONB, concat),
    define("jsonb_delete", &[JSONB, TEXT], TO_JSONB, delete_key),
    define("jsonb_delete", &[JSONB, INT4], TO_JSONB, delete_item),
    define("jsonb_delete", &[JSONB, TEXTS], TO_JSONB, delete_keys),
    define("jsonb_delete_path", &[JSONB, TEXTS], TO_JSONB, delete_path),
    define("jsonb_set", &[JSONB, TEXTS, JSONB], TO_JSONB, |_, a| set(a, true)),
    define("jsonb_set", &[JSONB, TEXTS, JSONB, BOOL], TO_JSONB, |_, a| {
        set(a, boolean(a, 3)?)
    }),
    define("jsonb_insert", &[JSONB, TEXTS, JSONB], TO_JSONB, |_, a| {
        insert(a, false)
    }),
    define("jsonb_insert", &[JSONB, TEXTS, JSONB, BOOL], TO_JSONB, |_, a| {
        insert(a, boolean(a, 3)?)
    }),
    define("json_strip_nulls", &[JSON], TO_JSON, json_strip_nulls),
    define("jsonb_strip_nulls", &[JSONB], TO_JSONB, jsonb_strip_nulls),
];

fn finished(builder: Builder) -> Computed {
    builder.finish().map(Value::Jsonb)
}

/// Objects are merged, the right one wins. Anything else is appended as items.
fn concat(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (left, right) = (jsonb(arguments, 0)?, jsonb(arguments, 1)?);
    let mut builder = Builder::default();
    match (left.node(), right.node()) {
        (Node::Object(left), Node::Object(right)) => {
            builder.begin(Container::Object)?;
            for (key, value) in left.iter().chain(right.iter()) {
                builder.key(key)?;
                builder.value(value)?;
            }
        }
        _ => {
            builder.begin(Container::Array)?;
            for side in [left, right] {
                match side.node() {
                    Node::Array(array) => array.iter().try_for_each(|item| builder.value(item))?,
                    _ => builder.value(side)?,
                }
            }
        }
    }
    builder.end()?;
    finished(builder)
}

/// Without the keys of an object, or the strings of an array, that `is_deleted` names.
fn without(whole: JsonbRef<'_>, is_deleted: impl Fn(&str) -> bool) -> Computed {
    let mut builder = Builder::default();
    match whole.node() {
        Node::Object(object) => {
            builder.begin(Container::Object)?;
            for (key, value) in object.iter().filter(|(key, _)| !is_deleted(key)) {
                builder.key(key)?;
                builder.value(value)?;
            }
        }
        Node::Array(array) => {
            builder.begin(Container::Array)?;
            for item in array.iter() {
                match item.node() {
                    Node::String(text) if is_deleted(text) => {}
                    _ => builder.value(item)?,
                }
            }
        }
        _ => return Err(invalid("cannot delete from scalar")),
    }
    builder.end()?;
    finished(builder)
}

fn delete_key(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let deleted = text(arguments, 1)?;
    without(jsonb(arguments, 0)?, |key| key == deleted)
}

fn delete_keys(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let keys = array(arguments, 1)?;
    if keys.dimensions.len() > 1 {
        return Err(SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "wrong number of array subscripts",
        ));
    }
    let deleted: std::collections::HashSet<&str> = keys.items.iter().filter_map(Value::as_str).collect();
    without(jsonb(arguments, 0)?, |key| deleted.contains(key))
}

fn delete_item(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, number) = (jsonb(arguments, 0)?, int(arguments, 1)?);
    let array = match whole.node() {
        Node::Array(array) => array,
        Node::Object(_) => return Err(invalid("cannot delete from object using integer index")),
        _ => return Err(invalid("cannot delete from scalar")),
    };
    let deleted = match number {
        0.. => usize::try_from(number).ok(),
        _ => usize::try_from(number.unsigned_abs())
            .ok()
            .and_then(|back| array.len().checked_sub(back)),
    };
    let mut builder = Builder::default();
    builder.begin(Container::Array)?;
    for (_, item) in array.iter().enumerate().filter(|(at, _)| Some(*at) != deleted) {
        builder.value(item)?;
    }
    builder.end()?;
    finished(builder)
}

/// What happens at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change<'a> {
    /// The part is removed.
    Delete,
    /// The part, if it is there, becomes another value; with `true` it is added if it is not there.
    Set(JsonbRef<'a>, bool),
    /// A value is added before or (`true`) behind an item; a key must not be there.
    Insert(JsonbRef<'a>, bool),
}

impl<'a> Change<'a> {
    /// The value that is added if the part is not there.
    fn added(self) -> Option<JsonbRef<'a>> {
        match self {
            Change::Set(value, true) | Change::Insert(value, _) => Some(value),
            Change::Set(_, false) | Change::Delete => None,
        }
    }
}

/// A change at the end of a path.
struct Changed<'a> {
    path: &'a [Value],
    change: Change<'a>,
    builder: Builder,
}

impl Changed<'_> {
    /// Appends a value, changed at what the path from `level` on names.
    fn value(&mut self, value: JsonbRef<'_>, level: usize) -> Result<(), SqlError> {
        let Some(step) = self.path.get(level) else {
            return self.builder.value(value);
        };
        let node = value.node();
        if !matches!(node, Node::Array(_) | Node::Object(_)) {
            return self.builder.value(value);
        }
        let Some(step) = step.as_str() else {
            let message = format!("path element at position {} is null", level + 1);
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        };
        let is_last = level + 1 == self.path.len();
        match node {
            Node::Object(object) => {
                self.builder.begin(Container::Object)?;
                let mut is_there = false;
                for (key, value) in object.iter() {
                    if key != step {
                        self.builder.key(key)?;
                        self.builder.value(value)?;
                        continue;
                    }
                    is_there = true;
                    self.field(key, value, level, is_last)?;
                }
                if let (false, true, Some(added)) = (is_there, is_last, self.change.added()) {
                    self.builder.key(step)?;
                    self.builder.value(added)?;
                }
            }
            Node::Array(array) => {
                self.builder.begin(Container::Array)?;
                let number = item_number(step).ok_or_else(|| {
                    SqlError::new(
                        SqlState::INVALID_TEXT_REPRESENTATION,
                        format!(
                            "path element at position {} is not an integer: \"{step}\"",
                            level + 1
                        ),
                    )
                })?;
                let length = array.len() as i64;
                let number = if number < 0 { number + length } else { number };
                let added = self.change.added().filter(|_| is_last);
                if let Some(added) = added.filter(|_| number < 0) {
                    self.builder.value(added)?;
                }
                for (at, item) in array.iter().enumerate() {
                    match at as i64 == number {
                        true => self.item(item, level, is_last)?,
                        false => self.builder.value(item)?,
                    }
                }
                if let Some(added) = added.filter(|_| number >= length) {
                    self.builder.value(added)?;
                }
            }
            _ => {}
        }
        self.builder.end()
    }

    /// The value of the key that a step names.
    fn field(&mut self, key: &str, value: JsonbRef<'_>, level: usize, is_last: bool) -> Result<(), SqlError> {
        if !is_last {
            self.builder.key(key)?;
            return self.value(value, level + 1);
        }
        match self.change {
            Change::Delete => Ok(()),
            Change::Set(new, _) => {
                self.builder.key(key)?;
                self.builder.value(new)
            }
            Change::Insert(..) => Err(invalid("cannot replace existing key")
                .hint("Try using the function jsonb_set to replace key value.")),
        }
    }

    /// The item that a step names.
    fn item(&mut self, item: JsonbRef<'_>, level: usize, is_last: bool) -> Result<(), SqlError> {
        if !is_last {
            return self.value(item, level + 1);
        }
        match self.change {
            Change::Delete => Ok(()),
            Change::Set(new, _) => self.builder.value(new),
            Change::Insert(new, behind) => {
                let both = if behind { [item, new] } else { [new, item] };
                both.into_iter().try_for_each(|value| self.builder.value(value))
            }
        }
    }
}

fn changed(whole: JsonbRef<'_>, path: &ArrayValue, change: Change<'_>) -> Computed {
    if path.dimensions.len() > 1 {
        return Err(SqlError::new(
            SqlState::ARRAY_SUBSCRIPT_ERROR,
            "wrong number of array subscripts",
        ));
    }
    let is_empty = match whole.node() {
        Node::Array(array) => array.is_empty(),
        Node::Object(object) => object.is_empty(),
        _ => {
            return Err(invalid(match change {
                Change::Delete => "cannot delete path in scalar",
                _ => "cannot set path in scalar",
            }));
        }
    };
    if path.items.is_empty() || (is_empty && change.added().is_none()) {
        return Ok(Value::Jsonb(whole.to_jsonb()));
    }
    let mut changed = Changed {
        path: &path.items,
        change,
        builder: Builder::default(),
    };
    changed.value(whole, 0)?;
    finished(changed.builder)
}

fn delete_path(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    changed(jsonb(arguments, 0)?, array(arguments, 1)?, Change::Delete)
}

fn set(arguments: Arguments<'_, '_>, create: bool) -> Computed {
    let change = Change::Set(jsonb(arguments, 2)?, create);
    changed(jsonb(arguments, 0)?, array(arguments, 1)?, change)
}

fn insert(arguments: Arguments<'_, '_>, behind: bool) -> Computed {
    let change = Change::Insert(jsonb(arguments, 2)?, behind);
    changed(jsonb(arguments, 0)?, array(arguments, 1)?, change)
}

fn jsonb_strip_nulls(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    fn strip(value: JsonbRef<'_>, builder: &mut Builder) -> Result<(), SqlError> {
        match value.node() {
            Node::Object(object) => {
                builder.begin(Container::Object)?;
                for (key, value) in object.iter() {
                    if !matches!(value.node(), Node::Null) {
                        builder.key(key)?;
                        strip(value, builder)?;
                    }
                }
                builder.end()
            }
            Node::Array(array) => {
                builder.begin(Container::Array)?;
                array.iter().try_for_each(|item| strip(item, builder))?;
                builder.end()
            }
            _ => builder.value(value),
        }
    }
    let mut builder = Builder::default();
    strip(jsonb(arguments, 0)?, &mut builder)?;
    finished(builder)
}

/// Writes a text anew, without blanks and without the keys whose values are null.
#[derive(Default)]
struct Stripped {
    out: String,
    key: Option<String>,
    /// For each open container, whether it has a part.
    has_part: Vec<bool>,
}

impl Stripped {
    /// What is before a value: a comma, and its key.
    fn before(&mut self) {
        if let Some(has_part) = self.has_part.last_mut()
            && std::mem::replace(has_part, true)
        {
            self.out.push(',');
        }
        if let Some(key) = self.key.take() {
            push_escaped(&key, &mut self.out);
            self.out.push(':');
        }
    }
}

impl<'t> Events<'t> for Stripped {
    fn begin(&mut self, container: Container, _: usize) -> Result<(), SqlError> {
        self.before();
        self.out.push(match container {
            Container::Array => '[',
            Container::Object => '{',
        });
        self.has_part.push(false);
        Ok(())
    }

    fn key(&mut self, key: std::borrow::Cow<'t, str>) -> Result<(), SqlError> {
        self.key = Some(key.into_owned());
        Ok(())
    }

    fn scalar(&mut self, scalar: Scalar<'t>, _: usize, _: usize) -> Result<(), SqlError> {
        if scalar == Scalar::Null && self.key.take().is_some() {
            return Ok(());
        }
        self.before();
        match scalar {
            Scalar::Null => self.out.push_str("null"),
            Scalar::Bool(value) => self.out.push_str(if value { "true" } else { "false" }),
            Scalar::Number(number) => self.out.push_str(number),
            Scalar::String(text) => push_escaped(&text, &mut self.out),
        }
        Ok(())
    }

    fn end(&mut self, container: Container, _: usize) -> Result<(), SqlError> {
        self.has_part.pop();
        self.out.push(match container {
            Container::Array => ']',
            Container::Object => '}',
        });
        Ok(())
    }
}

fn json_strip_nulls(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut stripped = Stripped::default();
    parse(json(arguments, 0)?, true, &mut stripped)?;
    Ok(Value::Json(stripped.out))
}
