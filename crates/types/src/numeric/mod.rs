//! Decimal numbers of arbitrary precision, with PostgreSQL's semantics.
//!
//! A [`Numeric`] is NaN or `mantissa / 10^scale`. The scale is what PostgreSQL calls the display scale: the
//! numbers 1.0 and 1.00 are equal but print differently, and every operation defines the scale of its
//! result. Nearly all numbers in real tables fit in 64 bits, so those are stored inline and computed in 128
//! bits without allocation; longer ones are a boxed big integer.
//!
//! Invariants:
//! 1. A mantissa that fits in `i64` is `Small`: every number has one representation, and equality is
//!    structural.
//! 2. `scale <= SCALE_MAX`, and there are at most [`INTEGER_DIGITS_MAX`] digits before the point.
//!
//! PostgreSQL's infinities are not supported; they are rejected with a message that says so.
//!
//! - `arithmetic`: add, sub, mul, div, rem, rounding; scale rules of PostgreSQL's `numeric.c`.
//! - `form`: decimal text, base-10000 wire format, floats.
//! - `functions`: roots, powers, logarithms, common divisors.
//! - `long`: integers of a hundred thousand digits.

mod arithmetic;
mod form;
mod functions;
mod long;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use bigdecimal::num_bigint::{BigInt, Sign};
use weft_base::CodecError;

use crate::{NumericSpec, SqlError, SqlState};

/// Largest display scale (PostgreSQL's `NUMERIC_DSCALE_MAX`).
pub const SCALE_MAX: u16 = 16_383;
/// Largest number of digits before the decimal point.
pub const INTEGER_DIGITS_MAX: u32 = 131_072;
/// Scale field that marks NaN in the stored format.
const SCALE_NAN: u16 = u16::MAX;
/// Maximum bytes of a mantissa in the stored format: all digits that invariant 2 allows.
const MAGNITUDE_BYTES_MAX: usize = ((INTEGER_DIGITS_MAX as usize + SCALE_MAX as usize) * 5) / 12 + 2;

/// A decimal number. `PartialEq` and `Hash` include the scale (1.0 differs from 1.00); [`Numeric::compare`]
/// ignores it.
#[derive(Clone, Debug)]
pub struct Numeric(Repr);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    NaN,
    Small { mantissa: i64, scale: u16 },
    Big(Box<Big>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Big {
    mantissa: BigInt,
    scale: u16,
}

/// Number of powers of ten that fit in `i128`.
const POW10_LEN: usize = 39;
static POW10: [i128; POW10_LEN] = {
    let mut table = [1_i128; POW10_LEN];
    let mut i = 1;
    while i < POW10_LEN {
        table[i] = table[i - 1] * 10;
        i += 1;
    }
    table
};

/// `10^exponent`, if it fits.
fn pow10(exponent: u32) -> Option<i128> {
    POW10.get(exponent as usize).copied()
}

/// `10^exponent` of any size.
fn big_pow10(exponent: u32) -> BigInt {
    match pow10(exponent) {
        Some(power) => BigInt::from(power),
        None => BigInt::from(long::ten_to(exponent)),
    }
}

pub(crate) fn value_overflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value overflows numeric format",
    )
}

impl Numeric {
    /// Not a number. Greater than every number and equal to itself.
    pub const NAN: Self = Self(Repr::NaN);
    /// 0
    pub const ZERO: Self = Self(Repr::Small {
        mantissa: 0,
        scale: 0,
    });

    /// `mantissa / 10^scale`; `None` if the scale exceeds [`SCALE_MAX`].
    #[must_use]
    pub fn from_i128(mantissa: i128, scale: u16) -> Option<Self> {
        if scale > SCALE_MAX {
            return None;
        }
        Some(match i64::try_from(mantissa) {
            Ok(mantissa) => Self(Repr::Small { mantissa, scale }),
            Err(_) => Self(Repr::Big(Box::new(Big {
                mantissa: BigInt::from(mantissa),
                scale,
            }))),
        })
    }

    /// The number times `10^scale` as an integer, for a decimal column of that scale. Further digits are
    /// rounded (half away from zero).
    ///
    /// # Errors
    /// For NaN and if the result exceeds 128 bits.
    pub fn to_i128(&self, scale: u16) -> Result<i128, SqlError> {
        let out_of_range = || {
            SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                "numeric value exceeds 128 bits",
            )
        };
        if let Repr::Small { mantissa, scale: own } = &self.0 {
            // The common case: same or larger scale, entirely in registers.
            if let Some(factor) = scale.checked_sub(*own).and_then(|by| pow10(u32::from(by))) {
                return i128::from(*mantissa).checked_mul(factor).ok_or_else(out_of_range);
            }
        }
        let (mantissa, _) = self.round(i32::from(scale))?.parts().ok_or_else(out_of_range)?;
        i128::try_from(mantissa).map_err(|_| out_of_range())
    }

    /// Mantissa and scale; `None` for NaN.
    #[must_use]
    pub fn parts(&self) -> Option<(BigInt, u16)> {
        match &self.0 {
            Repr::NaN => None,
            Repr::Small { mantissa, scale } => Some((BigInt::from(*mantissa), *scale)),
            Repr::Big(big) => Some((big.mantissa.clone(), big.scale)),
        }
    }

    /// Mantissa and scale if the mantissa fits in 64 bits.
    #[must_use]
    pub const fn small_parts(&self) -> Option<(i64, u16)> {
        match &self.0 {
            Repr::Small { mantissa, scale } => Some((*mantissa, *scale)),
            _ => None,
        }
    }

    /// `mantissa / 10^scale`, checked against the limits.
    ///
    /// # Errors
    /// 22003 if there are too many digits.
    pub fn from_parts(mantissa: BigInt, scale: u16) -> Result<Self, SqlError> {
        if let Ok(mantissa) = i64::try_from(&mantissa) {
            return if scale <= SCALE_MAX {
                Ok(Self(Repr::Small { mantissa, scale }))
            } else {
                Err(value_overflow())
            };
        }
        // The bit length bounds the digits: they are only counted near the limit.
        let digits_max = u64::from(INTEGER_DIGITS_MAX) + u64::from(scale);
        let too_many = mantissa.bits() > digits_max * 4
            || (mantissa.bits() > digits_max * 3
                && mantissa.magnitude() >= big_pow10(digits_max as u32).magnitude());
        if scale > SCALE_MAX || too_many {
            return Err(value_overflow());
        }
        Ok(Self(Repr::Big(Box::new(Big { mantissa, scale }))))
    }

    /// The approximate number of bytes involved in computing with it: those of its digits, and those added
    /// when scales are aligned.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.0 {
            Repr::NaN => 1,
            Repr::Small { scale, .. } => size_of::<i64>() + usize::from(*scale) / 2,
            Repr::Big(big) => {
                let bytes = usize::try_from(big.mantissa.bits() / 8).unwrap_or(usize::MAX);
                bytes.saturating_add(usize::from(big.scale) / 2)
            }
        }
    }

    /// Whether it is NaN.
    #[must_use]
    pub const fn is_nan(&self) -> bool {
        matches!(self.0, Repr::NaN)
    }

    /// Whether it is 0, 0.0, ...
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        matches!(self.0, Repr::Small { mantissa: 0, .. })
    }

    /// Whether it is less than 0.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        match &self.0 {
            Repr::NaN => false,
            Repr::Small { mantissa, .. } => *mantissa < 0,
            Repr::Big(big) => big.mantissa.sign() == Sign::Minus,
        }
    }

    /// The number of decimal places displayed; 0 for NaN.
    #[must_use]
    pub const fn scale(&self) -> u16 {
        match &self.0 {
            Repr::NaN => 0,
            Repr::Small { scale, .. } => *scale,
            Repr::Big(big) => big.scale,
        }
    }

    /// SQL's order: numeric, with NaN last and equal to itself.
    #[must_use]
    pub fn compare(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Repr::NaN, Repr::NaN) => Ordering::Equal,
            (Repr::NaN, _) => Ordering::Greater,
            (_, Repr::NaN) => Ordering::Less,
            (
                Repr::Small {
                    mantissa: a,
                    scale: s,
                },
                Repr::Small {
                    mantissa: b,
                    scale: t,
                },
            ) if s == t => a.cmp(b),
            (
                Repr::Small {
                    mantissa: a,
                    scale: s,
                },
                Repr::Small {
                    mantissa: b,
                    scale: t,
                },
            ) if s.abs_diff(*t) <= 19 => {
                // 64 bits times 10^19 fits in 127 bits.
                let factor = pow10(u32::from(s.abs_diff(*t))).unwrap_or(1);
                let (a, b) = (i128::from(*a), i128::from(*b));
                if s < t {
                    (a * factor).cmp(&b)
                } else {
                    a.cmp(&(b * factor))
                }
            }
            _ => self.compare_big(other),
        }
    }

    fn compare_big(&self, other: &Self) -> Ordering {
        let (Some((a, s)), Some((b, t))) = (self.parts(), other.parts()) else {
            return self.is_nan().cmp(&other.is_nan());
        };
        if a.sign() != b.sign() {
            return a.sign().cmp(&b.sign());
        }
        if s < t {
            (a * big_pow10(u32::from(t - s))).cmp(&b)
        } else {
            a.cmp(&(b * big_pow10(u32::from(s - t))))
        }
    }

    /// Rounds to the scale of a column and checks its precision.
    ///
    /// # Errors
    /// 22003 "numeric field overflow" with PostgreSQL's DETAIL.
    pub fn apply_spec(&self, spec: NumericSpec) -> Result<Self, SqlError> {
        if self.is_nan() {
            return Ok(self.clone());
        }
        let rounded = self.round(i32::from(spec.scale))?;
        let integer_digits = i32::from(spec.precision) - i32::from(spec.scale);
        if rounded.abs_reaches_pow10(integer_digits) {
            let limit = if integer_digits == 0 {
                "1".to_owned()
            } else {
                format!("10^{integer_digits}")
            };
            let detail = format!(
                "A field with precision {}, scale {} must round to an absolute value less than {limit}.",
                spec.precision, spec.scale,
            );
            return Err(
                SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").detail(detail),
            );
        }
        Ok(rounded)
    }

    /// Whether `|self| >= 10^exponent`.
    fn abs_reaches_pow10(&self, exponent: i32) -> bool {
        let power = exponent + i32::from(self.scale());
        match &self.0 {
            Repr::NaN => false,
            Repr::Small { mantissa: 0, .. } => false,
            _ if power <= 0 => true,
            Repr::Small { mantissa, .. } => match pow10(power as u32) {
                Some(limit) => i128::from(*mantissa).abs() >= limit,
                None => false,
            },
            Repr::Big(big) => big.mantissa.magnitude() >= big_pow10(power as u32).magnitude(),
        }
    }

    /// Appends the stored format: scale (`u16`, 0xFFFF for NaN), then the mantissa in two's complement,
    /// little endian, in as few bytes as possible (none for 0). Equal numbers of equal scale have equal
    /// bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::NaN => out.extend_from_slice(&SCALE_NAN.to_le_bytes()),
            Repr::Small { mantissa, scale } => {
                out.extend_from_slice(&scale.to_le_bytes());
                let bytes = mantissa.to_le_bytes();
                let length = shortest_len(*mantissa);
                out.extend_from_slice(bytes.get(..length).unwrap_or(&bytes));
            }
            Repr::Big(big) => {
                out.extend_from_slice(&big.scale.to_le_bytes());
                out.extend_from_slice(&big.mantissa.to_signed_bytes_le());
            }
        }
    }

    /// Inverse of [`Numeric::encode`]; consumes all of `bytes`.
    ///
    /// # Errors
    /// For bytes that `encode` never produces.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let Some((scale, magnitude)) = bytes.split_first_chunk::<2>() else {
            return Err(CodecError::new(0, "numeric is too short"));
        };
        let scale = u16::from_le_bytes(*scale);
        if scale == SCALE_NAN {
            return if magnitude.is_empty() {
                Ok(Self::NAN)
            } else {
                Err(CodecError::new(2, "numeric NaN has digits"))
            };
        }
        if scale > SCALE_MAX {
            return Err(CodecError::new(0, "numeric scale is out of range"));
        }
        if !is_shortest(magnitude) || magnitude.len() > MAGNITUDE_BYTES_MAX {
            return Err(CodecError::new(2, "numeric mantissa has a wrong length"));
        }
        if magnitude.len() <= 8 {
            let negative = magnitude.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut wide = if negative { [0xff; 8] } else { [0; 8] };
            for (to, from) in wide.iter_mut().zip(magnitude) {
                *to = *from;
            }
            return Ok(Self(Repr::Small {
                mantissa: i64::from_le_bytes(wide),
                scale,
            }));
        }
        Self::from_parts(BigInt::from_signed_bytes_le(magnitude), scale)
            .map_err(|_| CodecError::new(2, "numeric has too many digits"))
    }
}

/// Minimum bytes of a number in two's complement; 0 for 0.
const fn shortest_len(mantissa: i64) -> usize {
    if mantissa == 0 {
        return 0;
    }
    let significant = 64 - (if mantissa < 0 { !mantissa } else { mantissa }).leading_zeros();
    significant as usize / 8 + 1
}

/// Whether the number has no shorter two's complement form.
fn is_shortest(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [0] => false,
        [.., below, top] => !((*top == 0 && below & 0x80 == 0) || (*top == 0xff && below & 0x80 != 0)),
        _ => true,
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Numeric {}

impl Hash for Numeric {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

macro_rules! from_integer {
    ($($int:ty),*) => {
        $(impl From<$int> for Numeric {
            fn from(v: $int) -> Self {
                Self(Repr::Small { mantissa: i64::from(v), scale: 0 })
            }
        })*
    };
}

from_integer!(i16, i32, i64, u8, u16, u32);
