//! Roots, powers, exponentials, logarithms and common divisors, with the scales that PostgreSQL's
//! `numeric.c` selects.
//!
//! Results are rounded from values of higher precision, so that they equal PostgreSQL's. Transcendental
//! functions use binary fixed point: an integer `v` represents `v / 2^bits`.

use std::cmp::Ordering;

use bigdecimal::num_bigint::{BigInt, BigUint, Sign};

use super::{Numeric, big_pow10, long, value_overflow};
use crate::range::division_by_zero;
use crate::{SqlError, SqlState, interrupt};

/// PostgreSQL's `NUMERIC_MIN_SIG_DIGITS`.
const DIGITS_MIN: i32 = 16;
/// PostgreSQL's `NUMERIC_MAX_DISPLAY_SCALE`.
const SCALE_SHOWN_MAX: i32 = 1000;
/// PostgreSQL's `NUMERIC_MAX_RESULT_SCALE`.
const RESULT_SCALE_MAX: f64 = 2000.0;
/// `log10(e)` as in PostgreSQL's source.
#[allow(clippy::approx_constant, reason = "its digits decide on scales")]
const LOG10_E: f64 = 0.434_294_481_903_252;
/// Decimal digits per PostgreSQL digit.
const DECIMALS: i32 = 4;

fn invalid_power(message: &str) -> SqlError {
    SqlError::new(SqlState("2201F"), message)
}

fn invalid_logarithm(message: &str) -> SqlError {
    SqlError::new(SqlState("2201E"), message)
}

/// The scale of a result: at least `scale` and the operands' scales, within PostgreSQL's limit.
fn shown(scale: i32, a: &Numeric, b: &Numeric) -> u16 {
    let wanted = scale.max(i32::from(a.scale())).max(i32::from(b.scale()));
    wanted.clamp(0, SCALE_SHOWN_MAX) as u16
}

/// The number of bits for `digits` decimal digits, with a small margin.
fn bits_of(digits: i32) -> u64 {
    (f64::from(digits.max(0)) * 3.322) as u64 + 8
}

impl Numeric {
    fn integer(value: BigInt) -> Result<Self, SqlError> {
        Self::from_parts(value, 0)
    }

    /// Whether it is an integer.
    #[must_use]
    pub fn is_integral(&self) -> bool {
        !self.is_nan() && self.trunc(0).is_ok_and(|cut| cut.compare(self).is_eq())
    }

    /// The square root.
    ///
    /// # Errors
    /// 2201F for a negative number.
    pub fn sqrt(&self) -> Result<Self, SqlError> {
        let weight = self.leading_digit().0 * DECIMALS / 2 + 1;
        self.sqrt_to_scale(shown(DIGITS_MIN - weight, self, self))
    }

    /// The square root, rounded to a scale.
    ///
    /// # Errors
    /// 2201F for a negative number.
    pub fn sqrt_to_scale(&self, scale: u16) -> Result<Self, SqlError> {
        let Some((mantissa, own)) = self.parts() else {
            return Ok(Self::NAN);
        };
        if mantissa.sign() == Sign::Minus {
            return Err(invalid_power("cannot take square root of a negative number"));
        }
        // One digit more than shown decides the rounding: the root of a decimal is never half way between
        // two.
        let shift = 2 * (i32::from(scale) + 1) - i32::from(own);
        let magnitude = mantissa.magnitude().clone();
        let power = big_pow10(shift.unsigned_abs()).magnitude().clone();
        let scaled = if shift >= 0 {
            magnitude * power
        } else {
            long::divided(&magnitude, &power)?.0
        };
        let root = (long::root(&scaled)? + BigUint::from(5_u32)) / BigUint::from(10_u32);
        Self::from_parts(BigInt::from(root), scale)
    }

    /// `e` raised to this number.
    ///
    /// # Errors
    /// 22003 if it is too large.
    pub fn exp(&self) -> Result<Self, SqlError> {
        if self.is_nan() {
            return Ok(Self::NAN);
        }
        let value = self.to_f64();
        let weight = (value * LOG10_E).clamp(-RESULT_SCALE_MAX, RESULT_SCALE_MAX) as i32;
        let scale = shown(DIGITS_MIN - weight, self, self);
        if value.abs() >= RESULT_SCALE_MAX * 3.0 {
            return if value > 0.0 {
                Err(value_overflow())
            } else {
                zero_at(scale)
            };
        }
        let bits = bits_of(i32::from(scale) + (value.abs() * LOG10_E) as i32 + 20) + 64;
        let Some(fixed) = self.to_fixed(bits) else {
            return Ok(Self::NAN);
        };
        from_fixed(&exp_fixed(&fixed, bits)?, bits, scale)
    }

    /// The natural logarithm.
    ///
    /// # Errors
    /// 2201E unless the number is greater than 0.
    pub fn ln(&self) -> Result<Self, SqlError> {
        if self.is_nan() {
            return Ok(Self::NAN);
        }
        self.check_logarithm()?;
        let scale = shown(DIGITS_MIN - self.ln_weight()?, self, self);
        let bits = bits_of(i32::from(scale) + 20);
        let fixed = self.ln_fixed(bits)?;
        from_fixed(&fixed, bits, scale)
    }

    /// The logarithm of `number` to this base.
    ///
    /// # Errors
    /// 2201E unless both are greater than 0, 22012 for base 1.
    pub fn log(&self, number: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || number.is_nan() {
            return Ok(Self::NAN);
        }
        self.check_logarithm()?;
        number.check_logarithm()?;
        let weight = number.ln_weight()? - self.ln_weight()?;
        let scale = shown(DIGITS_MIN - weight, self, number);
        let bits = bits_of(i32::from(scale) + 40 + 2 * weight.abs());
        let bits = bits + bits_of(2 * self.ln_weight()?.abs());
        let (base, number) = (self.ln_fixed(bits)?, number.ln_fixed(bits)?);
        if base.sign() == Sign::NoSign {
            return Err(division_by_zero());
        }
        from_fixed(&((number << bits) / base), bits, scale)
    }

    fn check_logarithm(&self) -> Result<(), SqlError> {
        if self.is_negative() {
            Err(invalid_logarithm("cannot take logarithm of a negative number"))
        } else if self.is_zero() {
            Err(invalid_logarithm("cannot take logarithm of zero"))
        } else {
            Ok(())
        }
    }

    /// This number raised to a power.
    ///
    /// # Errors
    /// 2201F if the power is undefined, 22003 if it is too large.
    pub fn power(&self, exponent: &Self) -> Result<Self, SqlError> {
        let one = Self::from(1);
        if self.is_nan() || exponent.is_nan() {
            let defined = exponent.is_zero() || self.compare(&one).is_eq();
            return Ok(if defined { one } else { Self::NAN });
        }
        if self.is_zero() && exponent.is_negative() {
            return Err(invalid_power("zero raised to a negative power is undefined"));
        }
        let integral = exponent.is_integral();
        if self.is_negative() && !integral {
            return Err(invalid_power(
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
        if integral && let Some(whole) = exponent.to_i64().ok().and_then(|whole| i32::try_from(whole).ok()) {
            return self.power_integer(whole);
        }
        if self.is_zero() {
            return zero_at(DIGITS_MIN as u16);
        }
        let base = self.abs();
        let odd = self.is_negative() && !exponent.rem(&Self::from(2))?.is_zero();
        let weight = base.ln_weight()?;
        let rough = bits_of(8 + weight.abs() + 20);
        let rough_scale = 8 - weight.min(8);
        let logarithm = from_fixed(&base.ln_fixed(rough)?, rough, rough_scale as u16)?;
        // Rounded twice, as in PostgreSQL: it determines the scale.
        let value = logarithm.mul(exponent)?.round(rough_scale)?.to_f64();
        if value.abs() > RESULT_SCALE_MAX * 3.01 {
            return if value > 0.0 {
                Err(value_overflow())
            } else {
                zero_at(SCALE_SHOWN_MAX as u16)
            };
        }
        let scale = shown(DIGITS_MIN - (value * LOG10_E) as i32, &base, exponent);
        let digits = i32::from(scale) + (value.abs() * LOG10_E) as i32 + 30;
        let large = exponent.to_f64().abs().log10().max(0.0) as i32;
        let bits = bits_of(digits + large) + 64;
        let (Some((mantissa, own)), logarithm) = (exponent.parts(), base.ln_fixed(bits)?) else {
            return Ok(Self::NAN);
        };
        let product = logarithm * mantissa / big_pow10(u32::from(own));
        if value.abs() >= RESULT_SCALE_MAX * 3.0 && value > 0.0 {
            return Err(value_overflow());
        }
        let result = from_fixed(&exp_fixed(&product, bits)?, bits, scale)?;
        Ok(if odd { result.neg() } else { result })
    }

    fn power_integer(&self, exponent: i32) -> Result<Self, SqlError> {
        let scale = shown(DIGITS_MIN, self, self);
        match exponent {
            0 => return Self::from(1).round(i32::from(scale)),
            1 => return self.round(i32::from(scale)),
            -1 => return Self::from(1).div_to_scale(self, scale),
            2 => return self.mul(self)?.round(i32::from(scale)),
            _ if self.is_zero() => return zero_at(scale),
            _ => {}
        }
        let Some((mantissa, own)) = self.parts() else {
            return Ok(Self::NAN);
        };
        let length = log10_of(mantissa.magnitude());
        let weight = f64::from(exponent) * (length - f64::from(own));
        if weight > 3.0 * f64::from(i16::MAX) * f64::from(DECIMALS) {
            return Err(value_overflow());
        }
        if weight + 1.0 < -f64::from(scale) {
            return zero_at(scale);
        }
        let digits = (f64::from(scale) + weight + f64::from(exponent).abs().log10() + 20.0).max(20.0);
        let bits = bits_of(digits as i32) + 64;
        let power = Float::of(mantissa, bits).power(exponent.unsigned_abs(), bits)?;
        let tens = Float::of(BigInt::from(10), bits)
            .power(exponent.unsigned_abs().saturating_mul(u32::from(own)), bits)?;
        let (above, below) = if exponent > 0 {
            (power, tens)
        } else {
            (tens, power)
        };
        above.quotient(&below, scale)
    }

    /// The greatest common divisor, nonnegative.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn gcd(&self, other: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        let (mut a, mut b) = (self.abs(), other.abs());
        let scale = i32::from(a.scale().max(b.scale()));
        while !b.is_zero() {
            interrupt::check()?;
            (a, b) = (b.clone(), a.rem(&b)?);
        }
        a.round(scale)
    }

    /// The least common multiple, nonnegative.
    ///
    /// # Errors
    /// 22003 if it exceeds the limits.
    pub fn lcm(&self, other: &Self) -> Result<Self, SqlError> {
        if self.is_nan() || other.is_nan() {
            return Ok(Self::NAN);
        }
        let scale = i32::from(self.scale().max(other.scale()));
        if self.is_zero() || other.is_zero() {
            return Self::ZERO.round(scale);
        }
        let divisor = self.gcd(other)?;
        let multiple = self.div_trunc(&divisor)?.mul(other)?;
        multiple.abs().round(scale)
    }

    /// The factorial of an integer.
    ///
    /// # Errors
    /// 22003 for a negative number and for a result that is too large.
    pub fn factorial(number: i64) -> Result<Self, SqlError> {
        if number < 0 {
            let message = "factorial of a negative number is undefined";
            return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        if number > 32_177 {
            return Err(value_overflow());
        }
        let mut product = BigInt::from(1);
        for factor in 2..=number {
            if factor % 256 == 0 {
                interrupt::check()?;
            }
            product *= factor;
        }
        Self::integer(product)
    }

    /// The scale without trailing zeros.
    #[must_use]
    pub fn min_scale(&self) -> u16 {
        if self.is_zero() {
            0
        } else {
            self.normalized().scale()
        }
    }

    /// The number times `2^bits`, rounded down.
    fn to_fixed(&self, bits: u64) -> Option<BigInt> {
        let (mantissa, scale) = self.parts()?;
        Some((mantissa << bits) / big_pow10(u32::from(scale)))
    }

    /// PostgreSQL's `estimate_ln_dweight`: the approximate decimal position of the logarithm's first digit.
    fn ln_weight(&self) -> Result<i32, SqlError> {
        let tenth = |tenths: i128| Self::from_i128(tenths, 1).unwrap_or(Self::ZERO);
        let near = self.compare(&tenth(9)) != Ordering::Less && self.compare(&tenth(11)) != Ordering::Greater;
        if near {
            let difference = self.sub(&Self::from(1))?;
            if difference.is_zero() {
                return Ok(0);
            }
            let (weight, digit) = difference.leading_digit();
            return Ok(weight * DECIMALS + digit.max(1).ilog10() as i32);
        }
        let Some((mantissa, scale)) = self.parts() else {
            return Ok(0);
        };
        // As in PostgreSQL: from the first two base-10000 digits, truncated.
        let (count, first) = long::first_digits(mantissa.magnitude(), 9);
        let place = count as i32 - 1 - i32::from(scale);
        let wanted = place.rem_euclid(DECIMALS) + 1 + DECIMALS;
        let given = first.max(1).ilog10() as i32 + 1;
        let digits = match wanted - given {
            missing @ 0.. => first * 10_u64.pow(missing as u32),
            excess => first / 10_u64.pow(excess.unsigned_abs()),
        };
        let below = (place.div_euclid(DECIMALS) - 1) * DECIMALS;
        let logarithm = (digits as f64).ln() + f64::from(below) * std::f64::consts::LN_10;
        Ok(logarithm.abs().log10() as i32)
    }

    /// The logarithm in fixed point; the number must be greater than 0.
    fn ln_fixed(&self, bits: u64) -> Result<BigInt, SqlError> {
        let Some((mantissa, scale)) = self.parts() else {
            return Ok(BigInt::default());
        };
        let divisor = big_pow10(u32::from(scale));
        // Square roots bring the number close to 1, where the series converges fast; each one costs a bit.
        const ROOTS: u64 = 12;
        let work = bits + ROOTS + 64;
        let power = mantissa.bits() as i64 - divisor.bits() as i64;
        // number = reduced * 2^power, reduced between 1/2 and 2
        let mut reduced = if power >= 0 {
            (mantissa << work) / (divisor << power.unsigned_abs())
        } else {
            (mantissa << (work + power.unsigned_abs())) / divisor
        };
        for _ in 0..ROOTS {
            interrupt::check()?;
            reduced = (reduced << work).sqrt();
        }
        let one = BigInt::from(1) << work;
        let ratio = ((&reduced - &one) << work) / (&reduced + &one);
        let near = atanh_fixed(&ratio, work)? << (ROOTS + 1);
        let third = &one / BigInt::from(3);
        let ln_2: BigInt = atanh_fixed(&third, work)? << 1_u32;
        Ok((near + ln_2 * power) >> (work - bits))
    }
}

fn zero_at(scale: u16) -> Result<Numeric, SqlError> {
    Numeric::ZERO.round(i32::from(scale))
}

/// The approximate decimal logarithm.
fn log10_of(magnitude: &BigUint) -> f64 {
    let excess = magnitude.bits().saturating_sub(64);
    let top = magnitude >> excess;
    let top = u64::try_from(&top).unwrap_or(u64::MAX) as f64;
    top.log10() + excess as f64 * std::f64::consts::LOG10_2
}

/// `x + x^3/3 + x^5/5 + ...`
fn atanh_fixed(x: &BigInt, bits: u64) -> Result<BigInt, SqlError> {
    let square = (x * x) >> bits;
    let mut power = x.clone();
    let mut sum = x.clone();
    let mut number = 1_u32;
    while power.sign() != Sign::NoSign && power != BigInt::from(-1) {
        interrupt::check()?;
        power = (power * &square) >> bits;
        number += 2;
        sum += &power / BigInt::from(number);
    }
    Ok(sum)
}

/// `e^x`
fn exp_fixed(x: &BigInt, bits: u64) -> Result<BigInt, SqlError> {
    let magnitude = BigInt::from(x.magnitude().clone());
    // Halved until it is below 2^-8; each squaring afterwards costs a bit of relative precision.
    let whole_bits = magnitude.bits().saturating_sub(bits);
    let halvings = whole_bits + 8;
    let work = bits + halvings + whole_bits + 32;
    let reduced = (magnitude << (work - bits)) >> halvings;
    let one = BigInt::from(1) << work;
    let mut term = one.clone();
    let mut sum = one.clone();
    let mut number = 1_u32;
    while term.sign() != Sign::NoSign {
        interrupt::check()?;
        term = ((term * &reduced) >> work) / BigInt::from(number);
        sum += &term;
        number += 1;
    }
    for _ in 0..halvings {
        interrupt::check()?;
        sum = (&sum * &sum) >> work;
    }
    let value = if x.sign() == Sign::Minus {
        (&one << work) / sum
    } else {
        sum
    };
    Ok(value >> (work - bits))
}

/// Rounds half away from zero.
fn from_fixed(value: &BigInt, bits: u64, scale: u16) -> Result<Numeric, SqlError> {
    let scaled = value.magnitude() * big_pow10(u32::from(scale)).magnitude();
    let rounded = (scaled + (BigUint::from(1_u32) << (bits - 1))) >> bits;
    Numeric::from_parts(BigInt::from_biguint(value.sign(), rounded), scale)
}

/// `mantissa * 2^exponent`, the mantissa truncated to a number of bits.
#[derive(Clone)]
struct Float {
    mantissa: BigInt,
    exponent: i64,
}

impl Float {
    fn of(value: BigInt, bits: u64) -> Float {
        Float {
            mantissa: value,
            exponent: 0,
        }
        .cut(bits)
    }

    fn cut(self, bits: u64) -> Float {
        let excess = self.mantissa.bits().saturating_sub(bits);
        Float {
            mantissa: self.mantissa >> excess,
            exponent: self.exponent + excess as i64,
        }
    }

    fn times(&self, other: &Float, bits: u64) -> Float {
        Float {
            mantissa: &self.mantissa * &other.mantissa,
            exponent: self.exponent + other.exponent,
        }
        .cut(bits)
    }

    fn power(&self, exponent: u32, bits: u64) -> Result<Float, SqlError> {
        let mut result = Float::of(BigInt::from(1), bits);
        let mut square = self.clone();
        let mut left = exponent;
        while left > 0 {
            interrupt::check()?;
            if left & 1 == 1 {
                result = result.times(&square, bits);
            }
            left >>= 1;
            if left > 0 {
                square = square.times(&square, bits);
            }
        }
        Ok(result)
    }

    /// The quotient, rounded to a scale.
    fn quotient(&self, other: &Float, scale: u16) -> Result<Numeric, SqlError> {
        let shift = self.exponent - other.exponent;
        let mut above = &self.mantissa * big_pow10(u32::from(scale));
        let mut below = other.mantissa.clone();
        if shift >= 0 {
            above <<= shift.unsigned_abs();
        } else {
            below <<= shift.unsigned_abs();
        }
        // Rounds half away from zero: twice the quotient, plus one, halved.
        let (twice, _) = long::divided(&(above.magnitude() << 1_u32), below.magnitude())?;
        let rounded = (twice + BigUint::from(1_u32)) >> 1_u32;
        let negative = (above.sign() == Sign::Minus) != (below.sign() == Sign::Minus);
        let sign = if negative { Sign::Minus } else { Sign::Plus };
        Numeric::from_parts(BigInt::from_biguint(sign, rounded), scale)
    }
}
