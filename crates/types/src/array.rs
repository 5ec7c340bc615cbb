//! Arrays: items in row-major order, with a length and a lower bound for each dimension.
//!
//! Invariants ([`ArrayValue::is_valid`]):
//! 1. The product of the lengths is the number of items; an empty array has no dimension.
//! 2. At most six dimensions, as in PostgreSQL; lower bound plus length fits 32 bits.
//! 3. `element` has no modifier and is not an array.

mod text;

use std::cmp::Ordering;

use weft_base::{ByteReader, ByteWriter, CodecError};

use crate::compare::compare_items;
use crate::{Element, SqlError, SqlState, SqlType, Value};

pub(crate) use text::{format_array, format_record, format_vector, parse_array, parse_vector};

/// Maximum number of dimensions of an array.
pub const DIMENSIONS_MAX: usize = 6;
/// Maximum number of items of an array: PostgreSQL's `MaxArraySize`.
pub const ITEMS_MAX: usize = 134_217_727;

/// An array value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayValue {
    /// Type of the items, without modifier.
    pub element: SqlType,
    /// Length and lower bound of each dimension, outermost first; empty if there are no items.
    pub dimensions: Vec<(i32, i32)>,
    /// The items, with the last dimension varying fastest.
    pub items: Vec<Value>,
}

/// 54000 for more than [`DIMENSIONS_MAX`] dimensions.
pub(crate) fn too_many_dimensions(count: usize) -> SqlError {
    SqlError::new(
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("number of array dimensions ({count}) exceeds the maximum allowed ({DIMENSIONS_MAX})"),
    )
}

/// Number of items of an array with these dimensions.
///
/// # Errors
/// 54000 for too many items, 2202E for a negative length and for bounds beyond 32 bits.
pub(crate) fn item_count(dimensions: &[(i32, i32)]) -> Result<usize, SqlError> {
    let mut count = usize::from(!dimensions.is_empty());
    for (length, lower) in dimensions {
        let length = usize::try_from(*length).map_err(|_| {
            SqlError::new(
                SqlState::ARRAY_SUBSCRIPT_ERROR,
                format!("array size exceeds the maximum allowed ({ITEMS_MAX})"),
            )
        })?;
        count = count
            .checked_mul(length)
            .filter(|count| *count <= ITEMS_MAX)
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::PROGRAM_LIMIT_EXCEEDED,
                    format!("array size exceeds the maximum allowed ({ITEMS_MAX})"),
                )
            })?;
        if i32::try_from(length)
            .ok()
            .and_then(|length| lower.checked_add(length))
            .is_none()
        {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("array lower bound is too large: {lower}"),
            ));
        }
    }
    Ok(count)
}

impl ArrayValue {
    /// A one-dimensional array with lower bound 1, or an empty array.
    #[must_use]
    pub fn of_items(element: SqlType, items: Vec<Value>) -> Self {
        let dimensions = match items.len() {
            0 => Vec::new(),
            count => vec![(count as i32, 1)],
        };
        Self {
            element: element.without_typmod(),
            dimensions,
            items,
        }
    }

    /// Whether the invariants hold: the number of items matches the dimensions, each item matches the
    /// element type.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let positive = self.dimensions.iter().all(|(length, _)| *length > 0);
        self.dimensions.len() <= DIMENSIONS_MAX
            && positive
            && Element::of(&self.element).is_some()
            && item_count(&self.dimensions).is_ok_and(|count| count == self.items.len())
            && self.items.iter().all(|item| item.fits(&self.element))
    }

    /// PostgreSQL's order: item by item, then by number of items, dimensions, lengths, lower bounds. `None`
    /// if the items are not comparable.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        for (a, b) in self.items.iter().zip(&other.items) {
            match compare_items(a, b)? {
                Ordering::Equal => {}
                unequal => return Some(unequal),
            }
        }
        let lengths = |array: &Self| {
            array
                .dimensions
                .iter()
                .map(|(length, _)| *length)
                .collect::<Vec<_>>()
        };
        let bounds = |array: &Self| {
            array
                .dimensions
                .iter()
                .map(|(_, lower)| *lower)
                .collect::<Vec<_>>()
        };
        Some(
            (self.items.len().cmp(&other.items.len()))
                .then_with(|| self.dimensions.len().cmp(&other.dimensions.len()))
                .then_with(|| lengths(self).cmp(&lengths(other)))
                .then_with(|| bounds(self).cmp(&bounds(other))),
        )
    }

    /// Appends the item type, the dimensions and the items, each self-describing.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.is_valid(), "{self:?}");
        self.element.encode(out);
        out.put_u8(self.dimensions.len() as u8);
        for (length, lower) in &self.dimensions {
            out.put_i32(*length);
            out.put_i32(*lower);
        }
        for item in &self.items {
            item.encode(out);
        }
    }

    /// Inverse of [`ArrayValue::encode`].
    pub(crate) fn decode(reader: &mut ByteReader<'_>, depth: u32) -> Result<Self, CodecError> {
        let element = SqlType::decode(reader)?;
        let dimension_count = reader.u8()?;
        if usize::from(dimension_count) > DIMENSIONS_MAX {
            return Err(reader.error("array has too many dimensions"));
        }
        let mut dimensions = Vec::new();
        for _ in 0..dimension_count {
            dimensions.push((reader.i32()?, reader.i32()?));
        }
        let count = item_count(&dimensions).map_err(|_| reader.error("array has wrong dimensions"))?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(Value::decode_at(reader, depth + 1)?);
        }
        let array = Self {
            element,
            dimensions,
            items,
        };
        match array.is_valid() {
            true => Ok(array),
            false => Err(reader.error("array has other dimensions or items than it says")),
        }
    }
}
