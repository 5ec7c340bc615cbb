//! The parts of a `json`: its text is read, and parts are slices of it.

use std::borrow::Cow;

use weft_types::json::{Container, Events, Scalar, parse};
use weft_types::{SqlError, Value};

/// What a `json` is, with its outermost parts.
#[derive(Debug)]
pub(super) struct Parts<'t> {
    text: &'t str,
    /// How many containers are open.
    depth: usize,
    /// Where the part begins that is being read.
    start: usize,
    key: Option<Cow<'t, str>>,
    pub(super) whole: Part<'t>,
    /// The outermost container; `None` for a scalar.
    pub(super) container: Option<Container>,
    /// Its items or values, in the order of the text.
    pub(super) parts: Vec<Part<'t>>,
}

/// A value in a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Part<'t> {
    /// Its key, if it is in an object.
    pub(super) key: Cow<'t, str>,
    /// As it is written.
    pub(super) raw: &'t str,
    /// What it is if it is a scalar.
    scalar: Option<Scalar<'t>>,
}

/// A part as a `json`.
pub(super) fn as_json(part: &Part<'_>) -> Value {
    Value::Json(part.raw.to_owned())
}

/// A part as a text: strings without quotes and escapes; NULL for null.
pub(super) fn as_text(part: &Part<'_>) -> Value {
    match &part.scalar {
        Some(Scalar::Null) => Value::Null,
        Some(Scalar::String(text)) => Value::Text(text.to_string()),
        _ => Value::Text(part.raw.to_owned()),
    }
}

impl<'t> Parts<'t> {
    /// Reads a text. With `unescape`, escapes in strings are replaced.
    ///
    /// # Errors
    /// Those of escapes without an equivalent.
    pub(super) fn of(text: &'t str, unescape: bool) -> Result<Self, SqlError> {
        let mut parts = Self {
            text,
            depth: 0,
            start: 0,
            key: None,
            whole: Part::default(),
            container: None,
            parts: Vec::new(),
        };
        parse(text, unescape, &mut parts)?;
        Ok(parts)
    }

    /// The value of a key: of several, the last.
    pub(super) fn field(&self, key: &str) -> Option<&Part<'t>> {
        let is_object = self.container == Some(Container::Object);
        self.parts.iter().rev().find(|part| is_object && part.key == key)
    }

    /// The item with a number, from 0, or from -1 backwards.
    pub(super) fn item(&self, number: i64) -> Option<&Part<'t>> {
        if self.container != Some(Container::Array) {
            return None;
        }
        let number = match number {
            0.. => usize::try_from(number).ok()?,
            _ => self
                .parts
                .len()
                .checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
        };
        self.parts.get(number)
    }

    fn add(&mut self, start: usize, end: usize, scalar: Option<Scalar<'t>>) {
        let part = Part {
            key: self.key.take().unwrap_or_default(),
            raw: self.text.get(start..end).unwrap_or_default(),
            scalar,
        };
        match self.depth {
            0 => self.whole = part,
            1 => self.parts.push(part),
            _ => {}
        }
    }
}

impl<'t> Events<'t> for Parts<'t> {
    fn begin(&mut self, container: Container, start: usize) -> Result<(), SqlError> {
        match self.depth {
            0 => {
                self.container = Some(container);
                self.whole.raw = self.text.get(start..).unwrap_or_default();
            }
            1 => self.start = start,
            _ => {}
        }
        self.depth += 1;
        Ok(())
    }

    fn key(&mut self, key: Cow<'t, str>) -> Result<(), SqlError> {
        if self.depth == 1 {
            self.key = Some(key);
        }
        Ok(())
    }

    fn scalar(&mut self, scalar: Scalar<'t>, start: usize, end: usize) -> Result<(), SqlError> {
        if self.depth < 2 {
            self.add(start, end, Some(scalar));
        }
        Ok(())
    }

    fn end(&mut self, _: Container, end: usize) -> Result<(), SqlError> {
        self.depth -= 1;
        match self.depth {
            0 => {
                self.whole.raw = self
                    .whole
                    .raw
                    .get(..end + self.whole.raw.len() - self.text.len())
                    .unwrap_or_default()
            }
            1 => self.add(self.start, end, None),
            _ => {}
        }
        Ok(())
    }
}
