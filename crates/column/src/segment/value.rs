//! Values of a column, and the numbers that stand for them.
//!
//! All kinds but byte strings are encoded as `i64`: a *number* whose order is that of the values. An integer
//! is its own number. The number of a float is its bits, turned so that they ascend as PostgreSQL orders
//! floats: from minus infinity to infinity, then every NaN.
//!
//! ```text
//! sign 0   bits                              the order of positive floats is that of their bits
//! sign 1   bits with all but the sign flipped   negative floats descend with their bits
//! then     minus the number of minus infinity, so that NaNs with a sign, which lay below it, come out on top
//! ```
//!
//! Different bits have different numbers, so -0.0 and every NaN come back as they were. But -0.0 equals 0.0
//! and all NaNs are equal to each other: a value as a bound stands for a *span* of numbers.

use std::borrow::Cow;

/// What a column holds, and in how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// True or false.
    Bool = 0,
    /// A signed integer of 2 bytes.
    I16 = 1,
    /// A signed integer of 4 bytes.
    I32 = 2,
    /// A signed integer of 8 bytes.
    I64 = 3,
    /// An integer of 4 bytes without a sign.
    U32 = 4,
    /// A float of 4 bytes.
    F32 = 5,
    /// A float of 8 bytes.
    F64 = 6,
    /// A string of 16 bytes.
    Bytes16 = 7,
    /// A string of any number of bytes.
    Bytes = 8,
}

/// One value that is not NULL.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::I16`].
    I16(i16),
    /// Of [`Kind::I32`].
    I32(i32),
    /// Of [`Kind::I64`].
    I64(i64),
    /// Of [`Kind::U32`].
    U32(u32),
    /// Of [`Kind::F32`].
    F32(f32),
    /// Of [`Kind::F64`].
    F64(f64),
    /// Of [`Kind::Bytes16`].
    Bytes16([u8; 16]),
    /// Of [`Kind::Bytes`]. Borrowed unless it had to be decompressed.
    Bytes(Cow<'a, [u8]>),
}

/// The number of minus infinity as an `f64`, before it is taken away.
const F64_LOWEST: i64 = ascending64(f64::NEG_INFINITY.to_bits());
/// The number of the first NaN: behind infinity.
const F64_NAN: i64 = f64_number(f64::INFINITY) + 1;
const F32_LOWEST: i32 = ascending32(f32::NEG_INFINITY.to_bits());
const F32_NAN: i64 = f32_number(f32::INFINITY) + 1;

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Kind> {
        Some(match number {
            0 => Kind::Bool,
            1 => Kind::I16,
            2 => Kind::I32,
            3 => Kind::I64,
            4 => Kind::U32,
            5 => Kind::F32,
            6 => Kind::F64,
            7 => Kind::Bytes16,
            8 => Kind::Bytes,
            _ => return None,
        })
    }

    /// Whether values are encoded as numbers; otherwise they are byte strings.
    #[must_use]
    pub const fn is_number(self) -> bool {
        !matches!(self, Kind::Bytes16 | Kind::Bytes)
    }

    /// The lowest and the highest number that a value of this kind has.
    pub(crate) const fn domain(self) -> (i64, i64) {
        match self {
            Kind::Bool => (0, 1),
            Kind::I16 => (i16::MIN as i64, i16::MAX as i64),
            Kind::U32 => (0, u32::MAX as i64),
            Kind::I32 | Kind::F32 => (i32::MIN as i64, i32::MAX as i64),
            Kind::I64 | Kind::F64 | Kind::Bytes16 | Kind::Bytes => (i64::MIN, i64::MAX),
        }
    }

    /// The value with this number; for byte strings, none.
    pub(crate) fn value_of(self, number: i64) -> Option<Value<'static>> {
        Some(match self {
            Kind::Bool => Value::Bool(number & 1 == 1),
            Kind::I16 => Value::I16(number as i16),
            Kind::I32 => Value::I32(number as i32),
            Kind::I64 => Value::I64(number),
            Kind::U32 => Value::U32(number as u32),
            Kind::F32 => Value::F32(f32_of(number)),
            Kind::F64 => Value::F64(f64_of(number)),
            Kind::Bytes16 | Kind::Bytes => return None,
        })
    }
}

impl Value<'_> {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Value::Bool(_) => Kind::Bool,
            Value::I16(_) => Kind::I16,
            Value::I32(_) => Kind::I32,
            Value::I64(_) => Kind::I64,
            Value::U32(_) => Kind::U32,
            Value::F32(_) => Kind::F32,
            Value::F64(_) => Kind::F64,
            Value::Bytes16(_) => Kind::Bytes16,
            Value::Bytes(_) => Kind::Bytes,
        }
    }

    /// The number that stands for exactly this value; none for byte strings.
    pub(crate) fn number(&self) -> Option<i64> {
        Some(match self {
            Value::Bool(value) => i64::from(*value),
            Value::I16(value) => i64::from(*value),
            Value::I32(value) => i64::from(*value),
            Value::I64(value) => *value,
            Value::U32(value) => i64::from(*value),
            Value::F32(value) => f32_number(*value),
            Value::F64(value) => f64_number(*value),
            Value::Bytes16(_) | Value::Bytes(_) => return None,
        })
    }

    /// The numbers of all values that are equal to this one, both ends included.
    pub(crate) fn span(&self) -> Option<(i64, i64)> {
        let number = self.number()?;
        Some(match self {
            Value::F64(value) if value.is_nan() => (F64_NAN, i64::MAX),
            Value::F64(value) if *value == 0.0 => (f64_number(-0.0), f64_number(0.0)),
            Value::F32(value) if value.is_nan() => (F32_NAN, i64::from(i32::MAX)),
            Value::F32(value) if *value == 0.0 => (f32_number(-0.0), f32_number(0.0)),
            _ => (number, number),
        })
    }

    /// Whether a value of this kind can be compared with those of a column: integers with integers of any
    /// length, everything else with its own kind.
    pub(crate) const fn compares_with(&self, kind: Kind) -> bool {
        match self {
            Value::I16(_) | Value::I32(_) | Value::I64(_) | Value::U32(_) => {
                matches!(kind, Kind::I16 | Kind::I32 | Kind::I64 | Kind::U32)
            }
            _ => self.kind() as u8 == kind as u8,
        }
    }

    /// Its bytes, of a byte string.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Bytes16(bytes) => Some(bytes),
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

const fn ascending64(bits: u64) -> i64 {
    let bits = bits as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

const fn ascending32(bits: u32) -> i32 {
    let bits = bits as i32;
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

const fn f64_number(value: f64) -> i64 {
    ascending64(value.to_bits())
        .wrapping_sub(F64_LOWEST)
        .wrapping_add(i64::MIN)
}

const fn f32_number(value: f32) -> i64 {
    ascending32(value.to_bits())
        .wrapping_sub(F32_LOWEST)
        .wrapping_add(i32::MIN) as i64
}

/// The float with this number. The turn of the sign is its own inverse.
pub(crate) fn f64_of(number: i64) -> f64 {
    let turned = number.wrapping_sub(i64::MIN).wrapping_add(F64_LOWEST);
    f64::from_bits(ascending64(turned as u64) as u64)
}

/// As [`f64_of`].
pub(crate) fn f32_of(number: i64) -> f32 {
    let turned = (number as i32).wrapping_sub(i32::MIN).wrapping_add(F32_LOWEST);
    f32::from_bits(ascending32(turned as u32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Ordering;

    /// PostgreSQL's order of floats.
    fn order(a: f64, b: f64) -> Ordering {
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    fn floats() -> impl Strategy<Value = u64> {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ];
        let nans = [
            0x7ff8_0000_0000_0000,
            0xfff8_0000_0000_0000,
            u64::MAX,
            0x7ff0_0000_0000_0001,
        ];
        let named: Vec<u64> = edges.iter().map(|edge| edge.to_bits()).chain(nans).collect();
        prop_oneof![any::<u64>(), prop::sample::select(named)]
    }

    proptest! {
        #[test]
        fn numbers_of_floats_ascend_and_come_back(a in floats(), b in floats()) {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(f64_of(f64_number(a)).to_bits(), a.to_bits());
            let (span, number) = (Value::F64(a).span().unwrap(), f64_number(b));
            let found = match (number < span.0, number > span.1) {
                (true, _) => Ordering::Less,
                (_, true) => Ordering::Greater,
                _ => Ordering::Equal,
            };
            prop_assert_eq!(found, order(b, a));
            let (a, b) = (a as f32, b as f32);
            prop_assert_eq!(f32_of(f32_number(a)).to_bits(), a.to_bits());
            let (span, number) = (Value::F32(a).span().unwrap(), f32_number(b));
            prop_assert_eq!(number < span.0, order(b.into(), a.into()) == Ordering::Less);
            prop_assert_eq!(number > span.1, order(b.into(), a.into()) == Ordering::Greater);
        }
    }

    #[test]
    fn kinds_have_numbers() {
        for number in 0..=u8::MAX {
            let kind = Kind::from_u8(number);
            assert!(kind.is_none_or(|kind| kind as u8 == number));
        }
        let ends = [f64::NEG_INFINITY, f64::from_bits(u64::MAX >> 12 << 12)];
        assert_eq!(f64_number(ends[0]), i64::MIN);
        assert_eq!(f32_number(f32::NEG_INFINITY), i64::from(i32::MIN));
    }
}
