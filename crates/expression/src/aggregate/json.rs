//! json_agg, jsonb_agg, json_object_agg, jsonb_object_agg.

use weft_types::json::{Builder, Container, push_escaped};
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef, format_text_in};

use super::{entry, first, mismatch, whole};
use crate::context::Context;
use crate::functions::json::{check_key, json_of};
use crate::table::{Accumulator, AggregateEntry, Arg};

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = &[
    listed("json_agg", &[Arg::AnyElement], SqlType::Json, |types, _| {
        Box::new(Texts::new(types, false))
    }),
    listed("jsonb_agg", &[Arg::AnyElement], SqlType::Jsonb, |types, _| {
        Box::new(Parts::new(types, false))
    }),
    listed(
        "json_object_agg",
        &[Arg::Any, Arg::Any],
        SqlType::Json,
        |types, _| Box::new(Texts::new(types, true)),
    ),
    listed(
        "jsonb_object_agg",
        &[Arg::Any, Arg::Any],
        SqlType::Jsonb,
        |types, _| Box::new(Parts::new(types, true)),
    ),
];

const fn listed(
    name: &'static str,
    arguments: &'static [Arg],
    returns: SqlType,
    start: super::Start,
) -> AggregateEntry {
    AggregateEntry {
        strict: false,
        ordered: true,
        ..entry(name, arguments, returns, &[], start)
    }
}

/// A value as its type shows it: a `char(n)` with its blanks, an object of the catalog as text.
fn typed<'v>(context: &Context<'_>, value: &ValueRef<'v>, ty: &SqlType) -> Result<Value, SqlError> {
    match (value, ty) {
        (ValueRef::Text(_), SqlType::Char(_)) => {
            let mut text = String::new();
            format_text_in(value, ty, &context.zone, &mut text)?;
            Ok(Value::Text(text))
        }
        _ => Ok(value.to_value()),
    }
}

/// The key and the value of a row; without a key for lists.
fn row<'a, 'v>(
    context: &Context<'_>,
    arguments: &'a [ValueRef<'v>],
    types: &[SqlType],
    keyed: bool,
) -> Result<(Option<String>, Value), SqlError> {
    let ty = |at: usize| types.get(at).copied().unwrap_or(SqlType::Text);
    if !keyed {
        return Ok((None, typed(context, first(arguments)?, &ty(0))?));
    }
    let [key, value] = arguments else {
        return Err(mismatch());
    };
    if key.is_null() {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "field name must not be null",
        ));
    }
    let key = typed(context, key, &ty(0))?;
    let key = check_key(context, &key.as_ref())?;
    Ok((Some(key), typed(context, value, &ty(1))?))
}

/// The text of a `json` that grows.
#[derive(Debug)]
struct Texts {
    types: Vec<SqlType>,
    keyed: bool,
    /// Without its end; empty before the first row.
    text: String,
}

impl Texts {
    fn new(types: &[SqlType], keyed: bool) -> Self {
        Self {
            types: types.to_vec(),
            keyed,
            text: String::new(),
        }
    }
}

impl Accumulator for Texts {
    fn update(&mut self, context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let (key, value) = row(context, arguments, &self.types, self.keyed)?;
        let Value::Json(json) = json_of::<String>(context, &value.as_ref())? else {
            return Err(mismatch());
        };
        let is_first = self.text.is_empty();
        self.text.push_str(match (is_first, self.keyed) {
            (true, false) => "[",
            (true, true) => "{ ",
            (false, _) => ", ",
        });
        if !self.keyed && !is_first && matches!(value, Value::Array(_) | Value::Record(_)) {
            self.text.push_str("\n ");
        }
        if let Some(key) = key {
            push_escaped(&key, &mut self.text);
            self.text.push_str(" : ");
        }
        self.text.push_str(&json);
        crate::functions::shape::check_bytes(self.text.len())
    }

    fn merge(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        whole()
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        whole()
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        if self.text.is_empty() {
            return Ok(Value::Null);
        }
        let end = if self.keyed { " }" } else { "]" };
        Ok(Value::Json(format!("{}{end}", self.text)))
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// The parts of a `jsonb`.
#[derive(Debug)]
struct Parts {
    types: Vec<SqlType>,
    keyed: bool,
    parts: Vec<(String, Value)>,
    bytes: usize,
}

impl Parts {
    fn new(types: &[SqlType], keyed: bool) -> Self {
        Self {
            types: types.to_vec(),
            keyed,
            parts: Vec::new(),
            bytes: 0,
        }
    }
}

impl Accumulator for Parts {
    fn update(&mut self, context: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let (key, value) = row(context, arguments, &self.types, self.keyed)?;
        let key = key.unwrap_or_default();
        let value = json_of::<Builder>(context, &value.as_ref())?;
        self.bytes += key.len() + super::bytes_of(&value);
        self.parts.push((key, value));
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        whole()
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        whole()
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        if self.parts.is_empty() {
            return Ok(Value::Null);
        }
        let mut builder = Builder::default();
        builder.begin(match self.keyed {
            true => Container::Object,
            false => Container::Array,
        })?;
        for (key, value) in &self.parts {
            let Value::Jsonb(value) = value else {
                return Err(mismatch());
            };
            if self.keyed {
                builder.key(key)?;
            }
            builder.value(value.as_ref())?;
        }
        builder.end()?;
        Ok(Value::Jsonb(builder.finish()?))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
