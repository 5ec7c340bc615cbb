//! Values of a range of rows, in buffers as Arrow has them.
//!
//! A crate above turns each vector into a buffer of Arrow's without copying it: numbers little endian one
//! after the other, bitmaps with the first row in the lowest bit, strings as offsets and bytes.

use super::encoding::Numbers;
use super::encoding::array::bits;
use super::value::{f32_of, f64_of};
use super::{Kind, SegmentError, Value};

/// Rows that are decoded at once where values become something else: they stay in the nearest cache.
pub(crate) const CHUNK_ROWS: usize = 1024;

/// The values of a range of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// How many rows.
    pub rows: usize,
    /// Their values; where a row is NULL, any one.
    pub values: Values,
    /// A bit for each row that has a value. None if none of the column's rows is NULL.
    pub validity: Option<Vec<u64>>,
}

/// Values of one kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Of [`Kind::Bool`], a bit each.
    Bool(Vec<u64>),
    /// Of [`Kind::I16`].
    I16(Vec<i16>),
    /// Of [`Kind::I32`].
    I32(Vec<i32>),
    /// Of [`Kind::I64`].
    I64(Vec<i64>),
    /// Of [`Kind::U32`].
    U32(Vec<u32>),
    /// Of [`Kind::F32`].
    F32(Vec<f32>),
    /// Of [`Kind::F64`].
    F64(Vec<f64>),
    /// Of [`Kind::Bytes16`], 16 bytes each.
    Bytes16(Vec<u8>),
    /// Of [`Kind::Bytes`].
    Bytes {
        /// Where each string begins, and the end of the last: one more than there are rows.
        offsets: Vec<i32>,
        /// The strings.
        bytes: Vec<u8>,
    },
}

impl Values {
    /// No values of this kind yet, with memory for so many.
    pub(crate) fn with_capacity(kind: Kind, rows: usize) -> Values {
        match kind {
            Kind::Bool => Values::Bool(vec![0; rows.div_ceil(64)]),
            Kind::I16 => Values::I16(Vec::with_capacity(rows)),
            Kind::I32 => Values::I32(Vec::with_capacity(rows)),
            Kind::I64 => Values::I64(Vec::with_capacity(rows)),
            Kind::U32 => Values::U32(Vec::with_capacity(rows)),
            Kind::F32 => Values::F32(Vec::with_capacity(rows)),
            Kind::F64 => Values::F64(Vec::with_capacity(rows)),
            Kind::Bytes16 => Values::Bytes16(Vec::with_capacity(16 * rows)),
            Kind::Bytes => Values::Bytes {
                offsets: Vec::with_capacity(rows + 1),
                bytes: Vec::new(),
            },
        }
    }

    /// Appends the value number `at`, of the same kind; anything for NULL.
    pub(crate) fn push(&mut self, at: usize, value: Option<&Value<'_>>) -> Result<(), SegmentError> {
        let number = || value.and_then(Value::number).unwrap_or(0);
        match self {
            Values::Bool(words) => {
                if let (Some(word), true) = (words.get_mut(at / 64), number() != 0) {
                    *word |= 1 << (at % 64);
                }
            }
            Values::I16(values) => values.push(number() as i16),
            Values::I32(values) => values.push(number() as i32),
            Values::I64(values) => values.push(number()),
            Values::U32(values) => values.push(number() as u32),
            Values::F32(values) => values.push(f32_of(number())),
            Values::F64(values) => values.push(f64_of(number())),
            Values::Bytes16(bytes) => match value {
                Some(Value::Bytes16(value)) => bytes.extend_from_slice(value),
                _ => bytes.extend_from_slice(&[0; 16]),
            },
            Values::Bytes { offsets, bytes } => {
                offsets.push(i32::try_from(bytes.len()).map_err(|_| SegmentError::TooLarge)?);
                bytes.extend_from_slice(value.and_then(Value::bytes).unwrap_or_default());
            }
        }
        Ok(())
    }

    /// The values, with the end of the last string.
    pub(crate) fn finish(mut self) -> Result<Values, SegmentError> {
        if let Values::Bytes { offsets, bytes } = &mut self {
            offsets.push(i32::try_from(bytes.len()).map_err(|_| SegmentError::TooLarge)?);
        }
        Ok(self)
    }
}

impl Decoded {
    /// The value of one of the rows; none for NULL, or if there is no such row.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<Value<'_>> {
        let bit = |words: &[u64]| words.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1);
        if at >= self.rows || self.validity.as_deref().is_some_and(|validity| !bit(validity)) {
            return None;
        }
        Some(match &self.values {
            Values::Bool(values) => Value::Bool(bit(values)),
            Values::I16(values) => Value::I16(*values.get(at)?),
            Values::I32(values) => Value::I32(*values.get(at)?),
            Values::I64(values) => Value::I64(*values.get(at)?),
            Values::U32(values) => Value::U32(*values.get(at)?),
            Values::F32(values) => Value::F32(*values.get(at)?),
            Values::F64(values) => Value::F64(*values.get(at)?),
            Values::Bytes16(bytes) => Value::Bytes16(*bytes.get(at * 16..)?.first_chunk()?),
            Values::Bytes { offsets, bytes } => {
                let (start, end) = (*offsets.get(at)?, *offsets.get(at + 1)?);
                Value::from(bytes.get(start as usize..end as usize)?)
            }
        })
    }
}

/// The numbers of so many rows from `first` on, as values. None for strings.
pub(crate) fn decode_numbers(kind: Kind, numbers: &Numbers<'_>, first: usize, rows: usize) -> Option<Values> {
    Some(match kind {
        Kind::Bool => {
            let bytes = convert(numbers, first, rows, |number| number as u8);
            let packed: Vec<u8> = bytes
                .chunks(8)
                .map(|bytes| bytes.iter().rev().fold(0, |byte, bit| byte << 1 | bit & 1))
                .collect();
            Values::Bool(bits(&packed, 0, rows))
        }
        Kind::I16 => Values::I16(convert(numbers, first, rows, |number| number as i16)),
        Kind::I32 => Values::I32(convert(numbers, first, rows, |number| number as i32)),
        Kind::U32 => Values::U32(convert(numbers, first, rows, |number| number as u32)),
        Kind::F32 => Values::F32(convert(numbers, first, rows, f32_of)),
        Kind::F64 => Values::F64(convert(numbers, first, rows, f64_of)),
        Kind::I64 => {
            let mut values = vec![0; rows];
            numbers.fill(first, &mut values);
            Values::I64(values)
        }
        Kind::Bytes16 | Kind::Bytes => return None,
    })
}

/// In chunks that stay in the nearest cache.
fn convert<T>(numbers: &Numbers<'_>, first: usize, rows: usize, value: impl Fn(i64) -> T) -> Vec<T> {
    let mut values = Vec::with_capacity(rows);
    let mut chunk = [0; CHUNK_ROWS];
    while values.len() < rows {
        let length = CHUNK_ROWS.min(rows - values.len());
        let chunk = chunk.get_mut(..length).unwrap_or_default();
        numbers.fill(first + values.len(), chunk);
        values.extend(chunk.iter().map(|number| value(*number)));
    }
    values
}
