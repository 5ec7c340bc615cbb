//! Reads a `jsonb` in place.

use std::cmp::Ordering;

use weft_base::CodecError;

use super::{
    DEPTH_MAX, JsonbRef, TAG_ARRAY, TAG_FALSE, TAG_NULL, TAG_NUMBER, TAG_OBJECT, TAG_STRING, TAG_TRUE,
};
use crate::Numeric;

/// A value and, of an array or object, access to what it holds.
#[derive(Clone, Debug)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Numeric),
    /// A string.
    String(&'a str),
    /// An array.
    Array(ArrayView<'a>),
    /// An object.
    Object(ObjectView<'a>),
}

/// An array.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a>(Pieces<'a>);

/// An object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a>(Pieces<'a>);

/// The count, the ends and the pieces of an array or object.
#[derive(Clone, Copy, Debug)]
struct Pieces<'a> {
    count: usize,
    ends: &'a [u8],
    bytes: &'a [u8],
}

impl<'a> Pieces<'a> {
    /// The payload of an array (`each` 1) or object (`each` 2).
    fn of(payload: &'a [u8], each: usize) -> Option<Self> {
        let (count, rest) = payload.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (ends, bytes) = rest.split_at_checked(count.checked_mul(4 * each)?)?;
        Some(Self { count, ends, bytes })
    }

    fn end(&self, number: usize) -> Option<usize> {
        let at = number.checked_mul(4)?;
        let end = self.ends.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*end) as usize)
    }

    fn piece(&self, number: usize) -> Option<&'a [u8]> {
        let start = match number.checked_sub(1) {
            Some(before) => self.end(before)?,
            None => 0,
        };
        self.bytes.get(start..self.end(number)?)
    }

    /// Whether the ends never decrease and the last is that of the bytes.
    fn is_whole(&self) -> bool {
        let mut before = 0;
        for number in 0..self.ends.len() / 4 {
            match self.end(number) {
                Some(end) if end >= before => before = end,
                _ => return false,
            }
        }
        before == self.bytes.len()
    }
}

impl<'a> JsonbRef<'a> {
    /// The value.
    #[must_use]
    pub fn node(&self) -> Node<'a> {
        self.try_node().unwrap_or(Node::Null)
    }

    fn try_node(&self) -> Option<Node<'a>> {
        let (tag, payload) = self.0.split_first()?;
        Some(match *tag {
            TAG_FALSE => Node::Bool(false),
            TAG_TRUE => Node::Bool(true),
            TAG_STRING => Node::String(std::str::from_utf8(payload).ok()?),
            TAG_NUMBER => Node::Number(Numeric::decode(payload).ok()?),
            TAG_ARRAY => Node::Array(ArrayView(Pieces::of(payload, 1)?)),
            TAG_OBJECT => Node::Object(ObjectView(Pieces::of(payload, 2)?)),
            _ => Node::Null,
        })
    }

    /// How deeply arrays and objects nest: 0 for a scalar.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self.0.first() {
            Some(&TAG_ARRAY | &TAG_OBJECT) => {}
            _ => return 0,
        }
        1 + match self.node() {
            Node::Array(array) => array.iter().map(|item| item.depth()).max().unwrap_or(0),
            Node::Object(object) => object.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl<'a> ArrayView<'a> {
    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    /// The item with a number, from 0.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<JsonbRef<'a>> {
        self.0.piece(number).map(JsonbRef)
    }

    /// The item with a number, from 0, or from -1 backwards.
    #[must_use]
    pub fn at(&self, number: i64) -> Option<JsonbRef<'a>> {
        let number = match number {
            0.. => usize::try_from(number).ok()?,
            _ => self
                .len()
                .checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
        };
        self.get(number)
    }

    /// The items.
    pub fn iter(&self) -> impl Iterator<Item = JsonbRef<'a>> + use<'a> {
        let pieces = self.0;
        (0..pieces.count).map_while(move |number| pieces.piece(number).map(JsonbRef))
    }
}

impl<'a> ObjectView<'a> {
    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.count
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.count == 0
    }

    fn value(&self, number: usize) -> Option<JsonbRef<'a>> {
        self.0.piece(self.0.count + number).map(JsonbRef)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<JsonbRef<'a>> {
        let (mut low, mut high) = (0, self.0.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match compare_keys(self.0.piece(middle)?, key.as_bytes()) {
                Ordering::Equal => return self.value(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The keys and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, JsonbRef<'a>)> + use<'a> {
        let object = *self;
        (0..object.0.count).map_while(move |number| {
            let key = std::str::from_utf8(object.0.piece(number)?).ok()?;
            Some((key, object.value(number)?))
        })
    }
}

/// The order of keys in an object: shorter ones first, then by bytes.
#[must_use]
pub fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Checks bytes from outside.
///
/// # Errors
/// The first defect.
pub fn validate(bytes: &[u8]) -> Result<(), CodecError> {
    match is_valid(bytes, DEPTH_MAX) {
        true => Ok(()),
        false => Err(CodecError::new(0, "not a jsonb value")),
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'))
}

/// Whether bytes are one value that nests at most `depth` levels.
fn is_valid(bytes: &[u8], depth: usize) -> bool {
    let Some((tag, payload)) = bytes.split_first() else {
        return false;
    };
    match *tag {
        TAG_NULL | TAG_FALSE | TAG_TRUE => payload.is_empty(),
        TAG_STRING => is_text(payload),
        TAG_NUMBER => Numeric::decode(payload).is_ok_and(|number| {
            let mut again = Vec::new();
            number.encode(&mut again);
            !number.is_nan() && again == payload
        }),
        TAG_ARRAY if depth > 0 => Pieces::of(payload, 1).is_some_and(|pieces| {
            let is_item = |number| pieces.piece(number).is_some_and(|item| is_valid(item, depth - 1));
            pieces.is_whole() && (0..pieces.count).all(is_item)
        }),
        TAG_OBJECT if depth > 0 => Pieces::of(payload, 2).is_some_and(|pieces| {
            let is_key = |number: usize| {
                let key = pieces.piece(number).unwrap_or_default();
                let before = number.checked_sub(1).and_then(|before| pieces.piece(before));
                is_text(key) && before.is_none_or(|before| compare_keys(before, key).is_lt())
            };
            let is_value = |number| {
                let value = pieces.piece(pieces.count + number);
                value.is_some_and(|value| is_valid(value, depth - 1))
            };
            pieces.is_whole() && (0..pieces.count).all(|number| is_key(number) && is_value(number))
        }),
        _ => false,
    }
}
