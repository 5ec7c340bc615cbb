//! Makes a `jsonb`: from a text, or part by part.

use std::borrow::Cow;

use super::parse::{Container, Events, Scalar, parse};
use super::view::compare_keys;
use super::{
    DEPTH_MAX, Jsonb, JsonbRef, PIECES_BYTES_MAX, TAG_ARRAY, TAG_FALSE, TAG_NULL, TAG_NUMBER, TAG_OBJECT,
    TAG_STRING, TAG_TRUE, too_deep,
};
use crate::{Numeric, SqlError, SqlState};

/// Reads the text of a `jsonb`.
///
/// # Errors
/// 22P02, 22P05, 22003 for numbers out of range, 54000 for strings and values that are too long, 54001 if it
/// nests too deeply.
pub fn parse_jsonb(text: &str) -> Result<Jsonb, SqlError> {
    let mut builder = Builder::default();
    parse(text, true, &mut builder)?;
    builder.finish()
}

/// A `jsonb` under construction. Values are appended to the innermost container that has begun.
#[derive(Debug, Default)]
pub struct Builder {
    open: Vec<Open>,
    root: Option<Vec<u8>>,
}

/// A container that has begun, with the values that it has so far.
#[derive(Debug)]
struct Open {
    container: Container,
    /// Of an object: the keys, one more than values while the next value is expected.
    keys: Vec<Box<str>>,
    ends: Vec<u32>,
    values: Vec<u8>,
}

/// 54000 for a container whose parts are too long.
fn too_long(container: Container) -> SqlError {
    let (what, limit) = (
        match container {
            Container::Array => "array",
            Container::Object => "object",
        },
        PIECES_BYTES_MAX,
    );
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("total size of jsonb {what} elements exceeds the maximum of {limit} bytes"),
    )
}

fn check_string(text: &str) -> Result<(), SqlError> {
    if text.len() <= PIECES_BYTES_MAX {
        return Ok(());
    }
    let message = "string too long to represent as jsonb string";
    let detail = format!(
        "Due to an implementation restriction, jsonb strings cannot exceed {PIECES_BYTES_MAX} bytes."
    );
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).detail(detail))
}

impl Builder {
    /// Begins an array or object.
    ///
    /// # Errors
    /// 54001 if it nests too deeply.
    pub fn begin(&mut self, container: Container) -> Result<(), SqlError> {
        if self.open.len() == DEPTH_MAX {
            return Err(too_deep());
        }
        self.open.push(Open {
            container,
            keys: Vec::new(),
            ends: Vec::new(),
            values: Vec::new(),
        });
        Ok(())
    }

    /// The key of the next value.
    ///
    /// # Errors
    /// 54000 if it is too long.
    pub fn key(&mut self, key: &str) -> Result<(), SqlError> {
        check_string(key)?;
        if let Some(open) = self.open.last_mut() {
            open.keys.push(key.into());
        }
        Ok(())
    }

    fn put(&mut self, tag: u8, payload: &[u8]) -> Result<(), SqlError> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some([&[tag], payload].concat());
            return Ok(());
        };
        open.values.push(tag);
        open.values.extend_from_slice(payload);
        open.piece_ends()
    }

    /// Appends `null`.
    ///
    /// # Errors
    /// 54000 if the container is too long.
    pub fn null(&mut self) -> Result<(), SqlError> {
        self.put(TAG_NULL, &[])
    }

    /// Appends `true` or `false`.
    ///
    /// # Errors
    /// 54000 if the container is too long.
    pub fn bool(&mut self, value: bool) -> Result<(), SqlError> {
        self.put(if value { TAG_TRUE } else { TAG_FALSE }, &[])
    }

    /// Appends a number; NaN as a string, because no number of JSON is that.
    ///
    /// # Errors
    /// 54000 if the container is too long.
    pub fn number(&mut self, number: &Numeric) -> Result<(), SqlError> {
        if number.is_nan() {
            return self.string("NaN");
        }
        let mut payload = Vec::new();
        number.encode(&mut payload);
        self.put(TAG_NUMBER, &payload)
    }

    /// Appends a string.
    ///
    /// # Errors
    /// 54000 if it or the container is too long.
    pub fn string(&mut self, text: &str) -> Result<(), SqlError> {
        check_string(text)?;
        self.put(TAG_STRING, text.as_bytes())
    }

    /// Appends a copy of a value.
    ///
    /// # Errors
    /// 54001 if it nests too deeply here, 54000 if the container is too long.
    pub fn value(&mut self, value: JsonbRef<'_>) -> Result<(), SqlError> {
        if self.open.len() + value.depth() > DEPTH_MAX {
            return Err(too_deep());
        }
        match value.0.split_first() {
            Some((tag, payload)) => self.put(*tag, payload),
            None => self.null(),
        }
    }

    /// Ends the innermost container.
    ///
    /// # Errors
    /// 54000 if a container is too long.
    pub fn end(&mut self) -> Result<(), SqlError> {
        let Some(open) = self.open.pop() else {
            return Err(SqlError::internal("a jsonb value ends that has not begun"));
        };
        let container = open.container;
        let payload = match container {
            Container::Array => open.array(),
            Container::Object => open.object()?,
        };
        let tag = match container {
            Container::Array => TAG_ARRAY,
            Container::Object => TAG_OBJECT,
        };
        self.put(tag, &payload)
    }

    /// The value.
    ///
    /// # Errors
    /// XX000 if there is none, or a container has not ended.
    pub fn finish(self) -> Result<Jsonb, SqlError> {
        match self.root {
            Some(bytes) if self.open.is_empty() => Ok(Jsonb(bytes)),
            _ => Err(SqlError::internal("a jsonb value is not complete")),
        }
    }
}

impl Open {
    /// A value is complete.
    fn piece_ends(&mut self) -> Result<(), SqlError> {
        if self.values.len() > PIECES_BYTES_MAX {
            return Err(too_long(self.container));
        }
        self.ends.push(self.values.len() as u32);
        Ok(())
    }

    fn array(self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(4 + 4 * self.ends.len() + self.values.len());
        payload.extend_from_slice(&(self.ends.len() as u32).to_le_bytes());
        payload.extend(self.ends.iter().flat_map(|end| end.to_le_bytes()));
        payload.extend_from_slice(&self.values);
        payload
    }

    fn value(&self, number: usize) -> &[u8] {
        let end = |number: usize| self.ends.get(number).map_or(0, |end| *end as usize);
        let start = number.checked_sub(1).map_or(0, end);
        self.values.get(start..end(number)).unwrap_or_default()
    }

    fn key(&self, number: usize) -> &[u8] {
        self.keys.get(number).map_or(&[], |key| key.as_bytes())
    }

    fn object(self) -> Result<Vec<u8>, SqlError> {
        let mut order: Vec<usize> = (0..self.ends.len()).collect();
        // Of equal keys the last one comes first, and is kept.
        order.sort_unstable_by(|a, b| compare_keys(self.key(*a), self.key(*b)).then(b.cmp(a)));
        order.dedup_by(|later, kept| self.key(*later) == self.key(*kept));
        let bytes = order
            .iter()
            .map(|number| self.key(*number).len() + self.value(*number).len())
            .sum::<usize>();
        if bytes > PIECES_BYTES_MAX {
            return Err(too_long(Container::Object));
        }
        let mut payload = Vec::with_capacity(4 + 8 * order.len() + bytes);
        payload.extend_from_slice(&(order.len() as u32).to_le_bytes());
        let mut end = 0;
        let keys = order.iter().map(|number| self.key(*number));
        let values = order.iter().map(|number| self.value(*number));
        for piece in keys.clone().chain(values.clone()) {
            end += piece.len() as u32;
            payload.extend_from_slice(&end.to_le_bytes());
        }
        for piece in keys.chain(values) {
            payload.extend_from_slice(piece);
        }
        Ok(payload)
    }
}

impl<'t> Events<'t> for Builder {
    fn begin(&mut self, container: Container, _: usize) -> Result<(), SqlError> {
        Builder::begin(self, container)
    }

    fn key(&mut self, key: Cow<'t, str>) -> Result<(), SqlError> {
        Builder::key(self, &key)
    }

    fn scalar(&mut self, scalar: Scalar<'t>, _: usize, _: usize) -> Result<(), SqlError> {
        match scalar {
            Scalar::Null => self.null(),
            Scalar::Bool(value) => self.bool(value),
            Scalar::Number(text) => self.number(&Numeric::parse(text)?),
            Scalar::String(text) => self.string(&text),
        }
    }

    fn end(&mut self, _: Container, _: usize) -> Result<(), SqlError> {
        Builder::end(self)
    }
}
