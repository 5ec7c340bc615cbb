//! json and jsonb of other values, by PostgreSQL's rules for each type (its `datum_to_json`).
//!
//! Numbers and truth values are those of JSON where it has them, arrays are arrays, rows are objects with
//! keys `f1`, `f2`, ..., dates and times are in the form of ISO 8601, json is taken over; everything else is
//! a string of the value's text.

use weft_types::json::{Builder, Container, parse, push_escaped};
use weft_types::{ArrayValue, Numeric, SqlError, SqlType, Value, ValueRef, format_text_in, interrupt};

use super::super::arguments::mismatch;
use super::super::shape::{Arguments, BOOL, Computed, boolean, check_bytes, define, invalid};
use super::{TO_JSON, TO_JSONB, array};
use crate::context::Context;
use crate::table::{Arg, Entry};

/// The entries. Texts of times depend on the session's time zone.
pub(super) static ENTRIES: &[Entry] = &[
    define("to_json", &[Arg::AnyElement], TO_JSON, |context, a| {
        json_of::<String>(context, first(a)?)
    })
    .stable(),
    define("to_jsonb", &[Arg::AnyElement], TO_JSONB, |context, a| {
        json_of::<Builder>(context, first(a)?)
    })
    .stable(),
    define("array_to_json", &[Arg::AnyArray], TO_JSON, |context, a| {
        json_of::<String>(context, first(a)?)
    })
    .stable(),
    define("array_to_json", &[Arg::AnyArray, BOOL], TO_JSON, array_on_lines).stable(),
    define(
        "row_to_json",
        &[Arg::Is(SqlType::Record)],
        TO_JSON,
        |context, a| json_of::<String>(context, first(a)?),
    )
    .stable(),
    define(
        "row_to_json",
        &[Arg::Is(SqlType::Record), BOOL],
        TO_JSON,
        row_on_lines,
    )
    .stable(),
    define("json_build_array", &[], TO_JSON, built_array::<String>),
    define("jsonb_build_array", &[], TO_JSONB, built_array::<Builder>),
    define("json_build_object", &[], TO_JSON, built_object::<String>),
    define("jsonb_build_object", &[], TO_JSONB, built_object::<Builder>),
    define("json_build_array", &[Arg::Any], TO_JSON, built_array::<String>)
        .with_more()
        .with_nulls()
        .stable(),
    define("jsonb_build_array", &[Arg::Any], TO_JSONB, built_array::<Builder>)
        .with_more()
        .with_nulls()
        .stable(),
    define("json_build_object", &[Arg::Any], TO_JSON, built_object::<String>)
        .with_more()
        .with_nulls()
        .stable(),
    define(
        "jsonb_build_object",
        &[Arg::Any],
        TO_JSONB,
        built_object::<Builder>,
    )
    .with_more()
    .with_nulls()
    .stable(),
];

fn first<'a, 'v>(arguments: Arguments<'a, 'v>) -> Result<&'a ValueRef<'v>, SqlError> {
    arguments.first().ok_or_else(mismatch)
}

/// What json is written to: the text of a `json` or the form of a `jsonb`.
pub(crate) trait Target: Default {
    /// The function that builds objects, in messages.
    const OBJECT_FUNCTION: &'static str;
    /// Begins an array or object; `spaced` as the functions that take any arguments write it.
    fn begin(&mut self, container: Container, spaced: bool) -> Result<(), SqlError>;
    /// What is before the item or key with a number.
    fn separate(&mut self, number: usize, spaced: bool) -> Result<(), SqlError>;
    /// A key.
    fn key(&mut self, key: &str, spaced: bool) -> Result<(), SqlError>;
    /// Ends the innermost array or object.
    fn end(&mut self, container: Container, spaced: bool) -> Result<(), SqlError>;
    /// null
    fn null(&mut self) -> Result<(), SqlError>;
    /// A truth value.
    fn bool(&mut self, value: bool) -> Result<(), SqlError>;
    /// A number, by its text.
    fn number(&mut self, text: &str) -> Result<(), SqlError>;
    /// A string.
    fn string(&mut self, text: &str) -> Result<(), SqlError>;
    /// A value of type json or jsonb.
    fn json(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError>;
    /// The value.
    fn finish(self) -> Result<Value, SqlError>;
    /// The error of a key that is NULL, the argument with a number.
    fn null_key(argument: usize) -> SqlError;
}

impl Target for String {
    const OBJECT_FUNCTION: &'static str = "json_build_object()";

    fn begin(&mut self, container: Container, _: bool) -> Result<(), SqlError> {
        self.push(match container {
            Container::Array => '[',
            Container::Object => '{',
        });
        Ok(())
    }

    fn separate(&mut self, number: usize, spaced: bool) -> Result<(), SqlError> {
        if number > 0 {
            self.push_str(if spaced { ", " } else { "," });
        }
        check_bytes(self.len())
    }

    fn key(&mut self, key: &str, spaced: bool) -> Result<(), SqlError> {
        push_escaped(key, self);
        self.push_str(if spaced { " : " } else { ":" });
        Ok(())
    }

    fn end(&mut self, container: Container, _: bool) -> Result<(), SqlError> {
        self.push(match container {
            Container::Array => ']',
            Container::Object => '}',
        });
        check_bytes(self.len())
    }

    fn null(&mut self) -> Result<(), SqlError> {
        self.push_str("null");
        Ok(())
    }

    fn bool(&mut self, value: bool) -> Result<(), SqlError> {
        self.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn number(&mut self, text: &str) -> Result<(), SqlError> {
        match is_number(text) {
            true => self.push_str(text),
            false => push_escaped(text, self),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), SqlError> {
        check_bytes(self.len().saturating_add(text.len()))?;
        push_escaped(text, self);
        Ok(())
    }

    fn json(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError> {
        match value {
            ValueRef::Json(text) => {
                check_bytes(self.len().saturating_add(text.len()))?;
                interrupt::push(self, text)
            }
            ValueRef::Jsonb(value) => weft_types::json::write(*value, self),
            _ => Err(mismatch()),
        }
    }

    fn finish(self) -> Result<Value, SqlError> {
        check_bytes(self.len())?;
        Ok(Value::Json(self))
    }

    fn null_key(argument: usize) -> SqlError {
        invalid(format!("argument {argument} cannot be null")).hint("Object keys should be text.")
    }
}

impl Target for Builder {
    const OBJECT_FUNCTION: &'static str = "jsonb_build_object()";

    fn begin(&mut self, container: Container, _: bool) -> Result<(), SqlError> {
        Builder::begin(self, container)
    }

    fn separate(&mut self, _: usize, _: bool) -> Result<(), SqlError> {
        Ok(())
    }

    fn key(&mut self, key: &str, _: bool) -> Result<(), SqlError> {
        Builder::key(self, key)
    }

    fn end(&mut self, _: Container, _: bool) -> Result<(), SqlError> {
        Builder::end(self)
    }

    fn null(&mut self) -> Result<(), SqlError> {
        Builder::null(self)
    }

    fn bool(&mut self, value: bool) -> Result<(), SqlError> {
        Builder::bool(self, value)
    }

    fn number(&mut self, text: &str) -> Result<(), SqlError> {
        match is_number(text) {
            true => Builder::number(self, &Numeric::parse(text)?),
            false => Builder::string(self, text),
        }
    }

    fn string(&mut self, text: &str) -> Result<(), SqlError> {
        Builder::string(self, text)
    }

    fn json(&mut self, value: &ValueRef<'_>) -> Result<(), SqlError> {
        match value {
            ValueRef::Json(text) => parse(text, true, self),
            ValueRef::Jsonb(value) => self.value(*value),
            _ => Err(mismatch()),
        }
    }

    fn finish(self) -> Result<Value, SqlError> {
        Builder::finish(self).map(Value::Jsonb)
    }

    fn null_key(argument: usize) -> SqlError {
        invalid(format!("argument {argument}: key must not be null"))
    }
}

/// Whether the text of a number is one in JSON: not of NaN and infinities.
fn is_number(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

/// A value as json.
pub(crate) fn json_of<T: Target>(context: &Context<'_>, value: &ValueRef<'_>) -> Computed {
    let mut out = T::default();
    put(context, value, &mut out)?;
    out.finish()
}

/// The text of a value that has none of JSON's forms: times as in ISO 8601.
fn text_of(context: &Context<'_>, value: &ValueRef<'_>) -> Result<String, SqlError> {
    let mut text = String::new();
    if let Some(ty) = value.to_value().sql_type() {
        format_text_in(value, &ty, &context.zone, &mut text)?;
    }
    if matches!(value, ValueRef::Timestamp(_) | ValueRef::TimestampTz(_))
        && let Some(blank) = text
            .find(' ')
            .filter(|_| text.starts_with(|first: char| first.is_ascii_digit()))
    {
        text.replace_range(blank..=blank, "T");
        // The zone has hours and minutes.
        let zone = text
            .rfind(['+', '-'])
            .filter(|at| *at > blank && text.len() == at + 3);
        if let (ValueRef::TimestampTz(_), Some(_)) = (value, zone) {
            text.push_str(":00");
        }
    }
    Ok(text)
}

fn put<T: Target>(context: &Context<'_>, value: &ValueRef<'_>, out: &mut T) -> Result<(), SqlError> {
    match value {
        ValueRef::Null => out.null(),
        ValueRef::Bool(value) => out.bool(*value),
        ValueRef::Int2(_)
        | ValueRef::Int4(_)
        | ValueRef::Int8(_)
        | ValueRef::Float4(_)
        | ValueRef::Float8(_)
        | ValueRef::Numeric(_) => out.number(&text_of(context, value)?),
        ValueRef::Text(text) => out.string(text),
        ValueRef::Json(_) | ValueRef::Jsonb(_) => out.json(value),
        ValueRef::Array(array) => put_array(context, array, out),
        ValueRef::Record(fields) => {
            out.begin(Container::Object, false)?;
            for (number, (ty, field)) in fields.iter().enumerate() {
                out.separate(number, false)?;
                out.key(&format!("f{}", number + 1), false)?;
                put_typed(context, field, ty, out)?;
            }
            out.end(Container::Object, false)
        }
        _ => out.string(&text_of(context, value)?),
    }
}

/// A value whose type tells how it is shown.
fn put_typed<T: Target>(
    context: &Context<'_>,
    value: &Value,
    ty: &SqlType,
    out: &mut T,
) -> Result<(), SqlError> {
    match (value, ty) {
        (Value::Text(_), SqlType::Char(_)) | (Value::Oid(_), _) => {
            let mut text = String::new();
            format_text_in(&value.as_ref(), ty, &context.zone, &mut text)?;
            out.string(&text)
        }
        _ => put(context, &value.as_ref(), out),
    }
}

fn put_array<T: Target>(context: &Context<'_>, array: &ArrayValue, out: &mut T) -> Result<(), SqlError> {
    let lengths: Vec<usize> = array
        .dimensions
        .iter()
        .map(|(length, _)| *length as usize)
        .collect();
    let mut items = array.items.iter();
    put_dimension(context, array, &lengths, &mut items, out)
}

fn put_dimension<T: Target>(
    context: &Context<'_>,
    array: &ArrayValue,
    lengths: &[usize],
    items: &mut std::slice::Iter<'_, Value>,
    out: &mut T,
) -> Result<(), SqlError> {
    let (length, inner) = lengths
        .split_first()
        .map_or((0, lengths), |(length, inner)| (*length, inner));
    out.begin(Container::Array, false)?;
    for number in 0..length {
        out.separate(number, false)?;
        match inner.is_empty() {
            true => put_typed(context, items.next().unwrap_or(&Value::Null), &array.element, out)?,
            false => put_dimension(context, array, inner, items, out)?,
        }
    }
    out.end(Container::Array, false)
}

/// `array_to_json(array, true)`: the outermost items on lines of their own.
fn array_on_lines(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let array = array(arguments, 0)?;
    if !boolean(arguments, 1)? {
        return json_of::<String>(context, first(arguments)?);
    }
    let lengths: Vec<usize> = array
        .dimensions
        .iter()
        .map(|(length, _)| *length as usize)
        .collect();
    let (length, inner) = lengths
        .split_first()
        .map_or((0, &[][..]), |(length, inner)| (*length, inner));
    let mut items = array.items.iter();
    let mut out = String::from("[");
    for number in 0..length {
        out.push_str(if number > 0 { ",\n " } else { "" });
        match inner.is_empty() {
            true => put_typed(
                context,
                items.next().unwrap_or(&Value::Null),
                &array.element,
                &mut out,
            )?,
            false => put_dimension(context, array, inner, &mut items, &mut out)?,
        }
    }
    out.push(']');
    out.finish()
}

/// `row_to_json(row, true)`: the fields on lines of their own.
fn row_on_lines(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let ValueRef::Record(fields) = first(arguments)? else {
        return Err(mismatch());
    };
    if !boolean(arguments, 1)? {
        return json_of::<String>(context, first(arguments)?);
    }
    let mut out = String::from("{");
    for (number, (ty, field)) in fields.iter().enumerate() {
        out.push_str(if number > 0 { ",\n " } else { "" });
        out.key(&format!("f{}", number + 1), false)?;
        put_typed(context, field, ty, &mut out)?;
    }
    out.push('}');
    out.finish()
}

/// A value as a key.
pub(crate) fn check_key(context: &Context<'_>, value: &ValueRef<'_>) -> Result<String, SqlError> {
    match value {
        ValueRef::Array(_) | ValueRef::Record(_) | ValueRef::Json(_) | ValueRef::Jsonb(_) => {
            Err(invalid("key value must be scalar, not array, composite, or json"))
        }
        ValueRef::Bool(value) => Ok(if *value { "true" } else { "false" }.to_owned()),
        ValueRef::Text(text) => Ok((*text).to_owned()),
        _ => text_of(context, value),
    }
}

fn built_array<T: Target>(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let mut out = T::default();
    out.begin(Container::Array, true)?;
    for (number, argument) in arguments.iter().enumerate() {
        out.separate(number, true)?;
        put(context, argument, &mut out)?;
    }
    out.end(Container::Array, true)?;
    out.finish()
}

fn built_object<T: Target>(context: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    if !arguments.len().is_multiple_of(2) {
        let hint = format!(
            "The arguments of {} must consist of alternating keys and values.",
            T::OBJECT_FUNCTION
        );
        return Err(invalid("argument list must have even number of elements").hint(hint));
    }
    let mut out = T::default();
    out.begin(Container::Object, true)?;
    for (number, pair) in arguments.chunks_exact(2).enumerate() {
        let [key, value] = pair else {
            return Err(mismatch());
        };
        if key.is_null() {
            return Err(T::null_key(2 * number + 1));
        }
        out.separate(number, true)?;
        out.key(&check_key(context, key)?, true)?;
        put(context, value, &mut out)?;
    }
    out.end(Container::Object, true)?;
    out.finish()
}
