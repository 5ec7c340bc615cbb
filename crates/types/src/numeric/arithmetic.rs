//! Addition, subtraction, multiplication, division, remainder and rounding.
//!
//! The scale of each result is PostgreSQL's (`numeric.c`): the larger scale for sums and remainders, the
//! sum of the scales for products, and for quotients enough digits for about 16 significant ones, but no
//! smaller scale than either operand's (`select_div_scale`). Rounding is half away from zero everywhere.
//!
//! Every operation has a fast path in 128-bit registers for 64-bit operands and falls back to big integers
//! on overflow.

use bigdecimal::num_bigint::{BigInt, Sign};

use super::{Big, Numeric, Repr, SCALE_MAX, big_pow10, long, pow10, value_overflow};
use crate::range::division_by_zero;
use crate::{SqlError, interrupt};

/// PostgreSQL's `NUMERIC_MIN_SIG_DIGITS`: minimum significant digits of a quotient, approximately.
const QUOTIENT_DIGITS_MIN: i32 = 16;
/// PostgreSQL's `NUMERIC_MAX_DISPLAY_SCALE`: the largest scale that a division selects.
const QUOTIENT_SCALE_MAX: i32 = 1000;
/// PostgreSQL computes with base-10000 digits: four decimal digits each.
const DECIMALS_PER_DIGIT: i32 = 4;

/// Operations on operands of more bits take long.
const LONG_BITS: u64 = 4096;

impl Numeric {
    /// The sum, with the larger scale.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn add(&self, other: &Self) -> Result<Self, SqlError> {
        self.sum(other, false)
    }

    /// The difference, with the larger scale.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn sub(&self, other: &Self) -> Result<Self, SqlError> {
        self.sum(other, true)
    }

    fn sum(&self, other: &Self, subtract: bool) -> Result<Self, SqlError> {
        let sign: i8 = if subtract { -1 } else { 1 };
        let scale = self.scale().max(other.scale());
        if let (Some(a), Some(b)) = (self.small_at(scale), other.small_at(scale))
            && let Some(sum) = a.checked_add(b * i128::from(sign))
            && let Some(sum) = Self::from_i128(sum, scale)
        {
            return Ok(sum);
        }
        self.check_long(other)?;
        match (self.big_at(scale), other.big_at(scale)) {
            (Some(a), Some(b)) => Self::from_parts(a + b * sign, scale),
            _ => Ok(Self::NAN),
        }
    }

    /// The product, with the sum of the scales.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn mul(&self, other: &Self) -> Result<Self, SqlError> {
        if let (Some((a, s)), Some((b, t))) = (self.small_parts(), other.small_parts())
            && let Some(product) = Self::from_i128(i128::from(a) * i128::from(b), s.saturating_add(t))
        {
            return Ok(product);
        }
        self.check_long(other)?;
        let (Some((a, s)), Some((b, t))) = (self.parts(), other.parts()) else {
            return Ok(Self::NAN);
        };
        let (product, scale) = (a * b, u32::from(s) + u32::from(t));
        match u16::try_from(scale).ok().filter(|scale| *scale <= SCALE_MAX) {
            Some(scale) => Self::from_parts(product, scale),
            None => {
                let excess = scale - u32::from(SCALE_MAX);
                Self::from_parts(div_round(&product, &big_pow10(excess))?, SCALE_MAX)
            }
        }
    }

    /// The quotient, rounded to the scale selected by PostgreSQL's `select_div_scale`.
    ///
    /// # Errors
    /// 22012 for division by zero, 22003 if it exceeds the limits.
    pub fn div(&self, other: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let scale = quotient_scale(self, other);
        self.div_to_scale(other, scale)
    }

    /// The quotient, rounded to a scale.
    ///
    /// # Errors
    /// 22012 for division by zero, 22003 if it exceeds the limits.
    pub fn div_to_scale(&self, other: &Self, scale: u16) -> Result<Self, SqlError> {
        // (a / 10^s) / (b / 10^t) = (a * 10^(scale + t - s) / b) / 10^scale
        let shift = i32::from(scale) + i32::from(other.scale()) - i32::from(self.scale());
        if other.is_zero() {
            return Err(division_by_zero());
        }
        if let (Some((a, _)), Some((b, _))) = (self.small_parts(), other.small_parts())
            && let Some(factor) = u32::try_from(shift).ok().and_then(pow10)
            && let Some(dividend) = i128::from(a).checked_mul(factor)
            && let Some(quotient) = Self::from_i128(div_round_i128(dividend, i128::from(b)), scale)
        {
            return Ok(quotient);
        }
        self.check_long(other)?;
        let (Some((a, _)), Some((b, _))) = (self.parts(), other.parts()) else {
            return Ok(Self::NAN);
        };
        let power = big_pow10(shift.unsigned_abs());
        let quotient = if shift >= 0 {
            div_round(&(a * power), &b)?
        } else {
            div_round(&a, &(b * power))?
        };
        Self::from_parts(quotient, scale)
    }

    /// The integer part of the quotient, truncated toward zero: PostgreSQL's `div`.
    ///
    /// # Errors
    /// 22012 for division by zero.
    pub fn div_trunc(&self, other: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        let scale = self.scale().max(other.scale());
        match (self.big_at(scale), other.big_at(scale)) {
            (Some(_), Some(b)) if b.sign() == Sign::NoSign => Err(division_by_zero()),
            (Some(a), Some(b)) => Self::from_parts(long::divided_signed(&a, &b)?.0, 0),
            _ => Ok(Self::NAN),
        }
    }

    /// The remainder, with the sign of the dividend and the larger scale.
    ///
    /// # Errors
    /// 22012 for division by zero.
    pub fn rem(&self, other: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        if other.is_zero() {
            return Err(division_by_zero());
        }
        let scale = self.scale().max(other.scale());
        if let (Some(a), Some(b)) = (self.small_at(scale), other.small_at(scale))
            && let Some(rest) = a.checked_rem(b).and_then(|rest| Self::from_i128(rest, scale))
        {
            return Ok(rest);
        }
        self.check_long(other)?;
        match (self.big_at(scale), other.big_at(scale)) {
            (Some(a), Some(b)) => Self::from_parts(long::divided_signed(&a, &b)?.1, scale),
            _ => Ok(Self::NAN),
        }
    }

    /// The negation, with the same scale.
    #[must_use]
    pub fn neg(&self) -> Self {
        match &self.0 {
            Repr::NaN => Self::NAN,
            Repr::Small { mantissa, scale } => match mantissa.checked_neg() {
                Some(mantissa) => Self(Repr::Small {
                    mantissa,
                    scale: *scale,
                }),
                None => Self(Repr::Big(Box::new(Big {
                    mantissa: -BigInt::from(*mantissa),
                    scale: *scale,
                }))),
            },
            // -2^63 fits in 64 bits although 2^63 does not.
            Repr::Big(big) => {
                let mantissa = -big.mantissa.clone();
                let scale = big.scale;
                match i64::try_from(&mantissa) {
                    Ok(mantissa) => Self(Repr::Small { mantissa, scale }),
                    Err(_) => Self(Repr::Big(Box::new(Big { mantissa, scale }))),
                }
            }
        }
    }

    /// The absolute value, with the same scale.
    #[must_use]
    pub fn abs(&self) -> Self {
        if self.is_negative() {
            self.neg()
        } else {
            self.clone()
        }
    }

    /// Rounds half away from zero to `scale` decimal places. A negative scale rounds to the left of the
    /// point, and the result has scale 0; a scale larger than the number's appends zeros.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn round(&self, scale: i32) -> Result<Self, SqlError> {
        self.to_scale(scale, div_round_i128, div_round)
    }

    /// Truncates toward zero; otherwise like [`Numeric::round`].
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn trunc(&self, scale: i32) -> Result<Self, SqlError> {
        self.to_scale(scale, |a, b| a / b, |a, b| Ok(long::divided_signed(a, b)?.0))
    }

    fn to_scale(
        &self,
        scale: i32,
        small: fn(i128, i128) -> i128,
        big: fn(&BigInt, &BigInt) -> Result<BigInt, SqlError>,
    ) -> Result<Self, SqlError> {
        if self.is_nan() {
            return Ok(Self::NAN);
        }
        let shown = u16::try_from(scale.max(0))
            .ok()
            .filter(|shown| *shown <= SCALE_MAX);
        let shown = shown.ok_or_else(value_overflow)?;
        let dropped = i32::from(self.scale()) - scale;
        if dropped <= 0 {
            let up = dropped.unsigned_abs();
            if let (Some((a, _)), Some(factor)) = (self.small_parts(), pow10(up))
                && let Some(a) = i128::from(a).checked_mul(factor)
                && let Some(result) = Self::from_i128(a, shown)
            {
                return Ok(result);
            }
            let mantissa = self.parts().map_or_else(BigInt::default, |(a, _)| a);
            return Self::from_parts(mantissa * big_pow10(up), shown);
        }
        let dropped = dropped.unsigned_abs();
        // Zeros replace the digits dropped before the point.
        let zeros = scale.min(0).unsigned_abs();
        if let (Some((a, _)), Some(divisor), Some(factor)) =
            (self.small_parts(), pow10(dropped), pow10(zeros))
            && let Some(a) = small(i128::from(a), divisor).checked_mul(factor)
            && let Some(result) = Self::from_i128(a, shown)
        {
            return Ok(result);
        }
        let mantissa = self.parts().map_or_else(BigInt::default, |(a, _)| a);
        Self::from_parts(big(&mantissa, &big_pow10(dropped))? * big_pow10(zeros), shown)
    }

    /// The smallest integer greater than or equal to the number.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn ceil(&self) -> Result<Self, SqlError> {
        let cut = self.trunc(0)?;
        if cut.compare(self).is_lt() {
            cut.add(&Self::from(1))
        } else {
            Ok(cut)
        }
    }

    /// The greatest integer less than or equal to the number.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn floor(&self) -> Result<Self, SqlError> {
        let cut = self.trunc(0)?;
        if cut.compare(self).is_gt() {
            cut.sub(&Self::from(1))
        } else {
            Ok(cut)
        }
    }

    /// Checks for cancellation before an operation on operands of thousands of digits.
    fn check_long(&self, other: &Self) -> Result<(), SqlError> {
        let is_long = |number: &Self| matches!(&number.0, Repr::Big(big) if big.mantissa.bits() > LONG_BITS);
        match is_long(self) || is_long(other) {
            true => interrupt::check(),
            false => Ok(()),
        }
    }

    /// The mantissa at a scale no smaller than the number's, in a register. Bounded so that the sum of two
    /// cannot overflow.
    fn small_at(&self, scale: u16) -> Option<i128> {
        let (mantissa, own) = self.small_parts()?;
        let factor = pow10(u32::from(scale - own))?;
        i128::from(mantissa)
            .checked_mul(factor)
            .filter(|wide| wide.unsigned_abs() < 1 << 126)
    }

    fn big_at(&self, scale: u16) -> Option<BigInt> {
        let (mantissa, own) = self.parts()?;
        Some(if own == scale {
            mantissa
        } else {
            mantissa * big_pow10(u32::from(scale - own))
        })
    }

    /// Position of the first nonzero base-10000 digit (0 is the ones digit) and the digit, both 0 for zero:
    /// the inputs of PostgreSQL's scale rule.
    pub(super) fn leading_digit(&self) -> (i32, u32) {
        if self.is_zero() || self.is_nan() {
            return (0, 0);
        }
        // Decimal position of the first digit: 0 is ones.
        let position = |digit_count: usize| digit_count as i32 - 1 - i32::from(self.scale());
        let used = |first: i32| first.rem_euclid(DECIMALS_PER_DIGIT) as usize + 1;
        if let Some((mantissa, _)) = self.small_parts() {
            let magnitude = mantissa.unsigned_abs();
            let count = magnitude.ilog10() as usize + 1;
            let first = position(count);
            let digit = match used(first).checked_sub(count) {
                Some(missing) => magnitude * 10_u64.pow(missing as u32),
                None => magnitude / 10_u64.pow((count - used(first)) as u32),
            };
            return (first.div_euclid(DECIMALS_PER_DIGIT), digit as u32);
        }
        let (count, first) = match self.parts() {
            Some((mantissa, _)) => long::first_digits(mantissa.magnitude(), 6),
            None => return (0, 0),
        };
        let place = position(count);
        let given = first.max(1).ilog10() as usize + 1;
        let digit = first / 10_u64.pow(given.saturating_sub(used(place)) as u32);
        (place.div_euclid(DECIMALS_PER_DIGIT), digit as u32)
    }
}

/// PostgreSQL's `select_div_scale`.
fn quotient_scale(a: &Numeric, b: &Numeric) -> u16 {
    let (weight_a, digit_a) = a.leading_digit();
    let (weight_b, digit_b) = b.leading_digit();
    let quotient_weight = weight_a - weight_b - i32::from(digit_a <= digit_b);
    let scale = (QUOTIENT_DIGITS_MIN - quotient_weight * DECIMALS_PER_DIGIT)
        .max(i32::from(a.scale()))
        .max(i32::from(b.scale()))
        .clamp(0, QUOTIENT_SCALE_MAX);
    scale as u16
}

/// Rounds half away from zero. The divisor is not zero and its double does not overflow.
fn div_round_i128(a: i128, b: i128) -> i128 {
    let (quotient, rest) = (a / b, a % b);
    if rest.unsigned_abs() >= b.unsigned_abs() - rest.unsigned_abs() && rest != 0 {
        quotient + if (a < 0) == (b < 0) { 1 } else { -1 }
    } else {
        quotient
    }
}

/// Rounds half away from zero. The divisor is not zero.
fn div_round(a: &BigInt, b: &BigInt) -> Result<BigInt, SqlError> {
    let (quotient, rest) = long::divided_signed(a, b)?;
    let twice = rest.magnitude() * 2_u32;
    Ok(if &twice >= b.magnitude() && rest.sign() != Sign::NoSign {
        quotient + if a.sign() == b.sign() { 1 } else { -1 }
    } else {
        quotient
    })
}
