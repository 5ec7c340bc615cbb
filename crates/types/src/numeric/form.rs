//! Representations of a decimal number: text, base-10000 digits of the wire format, floats and integers.

use std::fmt;
use std::str::FromStr;

use bigdecimal::num_bigint::{BigInt, Sign};

use super::{INTEGER_DIGITS_MAX, Numeric, Repr, SCALE_MAX, long, value_overflow};
use crate::{SqlError, SqlState, SqlType, interrupt};

/// Values of the sign field of the wire format.
const WIRE_POSITIVE: u16 = 0x0000;
const WIRE_NEGATIVE: u16 = 0x4000;
const WIRE_NAN: u16 = 0xC000;
const WIRE_INFINITY: u16 = 0xD000;
const WIRE_MINUS_INFINITY: u16 = 0xF000;
/// Header of the wire format: digit count, weight, sign, display scale, two bytes each.
const WIRE_HEADER_BYTES: usize = 8;
/// Texts of more digits take long to parse.
const LONG_DIGITS: usize = 1000;
/// Base of the digits of the wire format.
const WIRE_BASE: u128 = 10_000;

fn invalid_text(text: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type numeric: \"{text}\""),
    )
}

fn invalid_wire(what: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_BINARY_REPRESENTATION,
        format!("invalid {what} in external \"numeric\" value"),
    )
}

fn no_infinity() -> SqlError {
    SqlError::unsupported("infinity is not supported for type numeric")
}

impl Numeric {
    /// Parses decimal text: sign, digits, point, exponent; `NaN`; surrounding blanks. The scale is that of
    /// the text.
    ///
    /// # Errors
    /// 22P02 for anything else, 22003 if it exceeds the limits, 0A000 for infinity.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let trimmed = text.trim_matches(crate::text::is_space);
        let (negative, body) = match trimmed.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if !body
            .first()
            .is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.')
        {
            return parse_special(text, trimmed, body);
        }
        let (digits, exponent) = match body.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => {
                let tail = body.get(at + 1..).unwrap_or(&[]);
                (
                    body.get(..at).unwrap_or(&[]),
                    parse_exponent(tail).ok_or_else(|| invalid_text(text))?,
                )
            }
            None => (body, 0),
        };
        let (integer, fraction) = match digits.iter().position(|byte| *byte == b'.') {
            Some(at) => (
                digits.get(..at).unwrap_or(&[]),
                digits.get(at + 1..).unwrap_or(&[]),
            ),
            None => (digits, &[][..]),
        };
        if integer.is_empty() && fraction.is_empty()
            || !integer.iter().chain(fraction).all(u8::is_ascii_digit)
        {
            return Err(invalid_text(text));
        }
        from_digits(negative, integer, fraction, exponent)
    }

    /// The integer, rounded half away from zero.
    ///
    /// # Errors
    /// 0A000 for NaN, 22003 if it exceeds 64 bits: "bigint out of range".
    pub fn to_i64(&self) -> Result<i64, SqlError> {
        self.to_integer(&SqlType::Int8)
    }

    /// An integer of one of the integer types, rounded half away from zero; the caller narrows it.
    pub(crate) fn to_integer(&self, ty: &SqlType) -> Result<i64, SqlError> {
        if self.is_nan() {
            return Err(SqlError::unsupported(format!(
                "cannot convert NaN to {}",
                ty.base_name()
            )));
        }
        let rounded = self.round(0)?;
        rounded
            .small_parts()
            .map(|(mantissa, _)| mantissa)
            .ok_or_else(|| crate::range::out_of_range(ty))
    }

    /// The nearest float; infinite if out of range.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Repr::NaN => f64::NAN,
            Repr::Small { mantissa, scale: 0 } => *mantissa as f64,
            // Both are exact: one correctly rounded division.
            Repr::Small { mantissa, scale } if mantissa.unsigned_abs() < 1 << 53 && *scale <= 22 => {
                *mantissa as f64 / 10_f64.powi(i32::from(*scale))
            }
            _ => f64::from_str(&self.to_string()).unwrap_or(f64::NAN),
        }
    }

    /// The nearest 32-bit float; infinite if out of range.
    #[must_use]
    pub fn to_f32(&self) -> f32 {
        if self.is_nan() {
            f32::NAN
        } else {
            f32::from_str(&self.to_string()).unwrap_or(f32::NAN)
        }
    }

    /// A float to its 15 guaranteed significant digits, as PostgreSQL casts it.
    ///
    /// # Errors
    /// 0A000 for infinity.
    pub fn from_f64(value: f64) -> Result<Self, SqlError> {
        Self::from_float(value, 15)
    }

    /// A float to its 6 guaranteed significant digits, as PostgreSQL casts it.
    ///
    /// # Errors
    /// 0A000 for infinity.
    pub fn from_f32(value: f32) -> Result<Self, SqlError> {
        Self::from_float(f64::from(value), 6)
    }

    fn from_float(value: f64, digits: usize) -> Result<Self, SqlError> {
        if value.is_nan() {
            return Ok(Self::NAN);
        }
        if value.is_infinite() {
            return Err(SqlError::unsupported("cannot convert infinity to numeric"));
        }
        // Like C's %.15g: trailing zeros are dropped.
        let text = format!("{:.*e}", digits - 1, value);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
        Self::parse(&format!("{mantissa}e{exponent}"))
    }

    /// Without trailing zeros in the fraction: 1.500 becomes 1.5.
    #[must_use]
    pub fn normalized(&self) -> Self {
        let (Some((mantissa, scale)), false) = (self.parts(), self.is_zero()) else {
            return if self.is_nan() { Self::NAN } else { Self::ZERO };
        };
        let digits = mantissa.magnitude().to_str_radix(10);
        let zeros = digits.bytes().rev().take_while(|digit| *digit == b'0').count();
        let drop = zeros.min(usize::from(scale));
        self.round(i32::from(scale) - drop as i32)
            .unwrap_or_else(|_| self.clone())
    }

    /// Appends decimal text.
    ///
    /// # Errors
    /// 57014 if the statement is cancelled.
    pub fn format(&self, out: &mut String) -> Result<(), SqlError> {
        let scale = usize::from(self.scale());
        match &self.0 {
            Repr::NaN => out.push_str("NaN"),
            Repr::Small { mantissa, .. } => {
                let mut buffer = [0; 20];
                let digits = crate::text::decimal_digits(mantissa.unsigned_abs(), &mut buffer);
                push_decimal(out, *mantissa < 0, digits, scale);
            }
            Repr::Big(big) => {
                let digits = long::digits(big.mantissa.magnitude())?;
                push_decimal(out, big.mantissa.sign() == Sign::Minus, &digits, scale);
            }
        }
        Ok(())
    }

    /// Appends PostgreSQL's wire format: digit count, weight of the first digit, sign, display scale (16
    /// bits each, big endian), then the digits in base 10000.
    pub fn encode_wire(&self, out: &mut Vec<u8>) {
        let scale = u32::from(self.scale());
        // Zeros after the fraction align it to whole digits.
        let padding = 10_u32.pow((4 - scale % 4) % 4);
        let sign = if self.is_negative() {
            WIRE_NEGATIVE
        } else {
            WIRE_POSITIVE
        };
        match &self.0 {
            Repr::NaN => self.put_wire(&[], WIRE_NAN, out),
            Repr::Small { mantissa, .. } => {
                // 64 bits and the padding are at most 23 decimal digits.
                let mut rest = u128::from(mantissa.unsigned_abs()) * u128::from(padding);
                let mut digits = [0_u16; 6];
                let mut count = 0;
                for place in digits.iter_mut().rev() {
                    if rest == 0 {
                        break;
                    }
                    *place = (rest % WIRE_BASE) as u16;
                    rest /= WIRE_BASE;
                    count += 1;
                }
                self.put_wire(digits.get(digits.len() - count..).unwrap_or(&[]), sign, out);
            }
            Repr::Big(big) => {
                let mut digits = (big.mantissa.magnitude() * padding).to_radix_be(10);
                let lead = (4 - digits.len() % 4) % 4;
                digits.splice(..0, std::iter::repeat_n(0, lead));
                let digit = |four: &[u8]| four.iter().fold(0, |sum, digit| sum * 10 + u16::from(*digit));
                let digits: Vec<u16> = digits.chunks(4).map(digit).collect();
                self.put_wire(&digits, sign, out);
            }
        }
    }

    /// Header and digits. The last digit is the last of the fraction; trailing zeros are omitted.
    fn put_wire(&self, digits: &[u16], sign: u16, out: &mut Vec<u8>) {
        let significant = digits
            .iter()
            .rposition(|digit| *digit != 0)
            .map_or(0, |last| last + 1);
        let weight = match significant {
            0 => 0,
            _ => digits.len() as i32 - i32::from(self.scale().div_ceil(4)) - 1,
        };
        for field in [significant as u16, weight as i16 as u16, sign, self.scale()] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        for digit in digits.iter().take(significant) {
            out.extend_from_slice(&digit.to_be_bytes());
        }
    }

    /// Inverse of [`Numeric::encode_wire`]. Digits beyond the display scale are truncated, as in
    /// PostgreSQL.
    ///
    /// # Errors
    /// 22P03 for malformed bytes, 22003 if it exceeds the limits, 0A000 for infinity.
    pub fn decode_wire(bytes: &[u8]) -> Result<Self, SqlError> {
        let Some((header, body)) = bytes.split_first_chunk::<WIRE_HEADER_BYTES>() else {
            return Err(invalid_wire("length"));
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (count, weight, sign, scale) = (usize::from(field(0)), field(2) as i16, field(4), field(6));
        match sign {
            WIRE_POSITIVE | WIRE_NEGATIVE | WIRE_NAN => {}
            WIRE_INFINITY | WIRE_MINUS_INFINITY => return Err(no_infinity()),
            _ => return Err(invalid_wire("sign")),
        }
        if scale > SCALE_MAX {
            return Err(invalid_wire("scale"));
        }
        if body.len() != count * 2 {
            return Err(invalid_wire("length"));
        }
        if sign == WIRE_NAN {
            return Ok(Self::NAN);
        }
        let mut digits = Vec::with_capacity(count * 4);
        for group in body.chunks_exact(2) {
            let group = u16::from_be_bytes([group[0], group[1]]);
            if group >= 10_000 {
                return Err(invalid_wire("digit"));
            }
            let group = group as u32;
            digits.extend(
                [group / 1000, group / 100 % 10, group / 10 % 10, group % 10].map(|digit| digit as u8),
            );
        }
        // value = digits * 10^exponent
        let exponent = (i32::from(weight) + 1) * 4 - digits.len() as i32;
        let magnitude = long::of_digits(&digits)?;
        let sign = if sign == WIRE_NEGATIVE {
            Sign::Minus
        } else {
            Sign::Plus
        };
        let mantissa = BigInt::from_biguint(sign, magnitude);
        let (mantissa, own_scale) = if exponent > 0 {
            (mantissa * super::big_pow10(exponent.unsigned_abs()), 0)
        } else {
            (mantissa, exponent.unsigned_abs())
        };
        // All digits first, then the display scale.
        let drop = i64::from(own_scale) - i64::from(scale);
        let shift = super::big_pow10(u32::try_from(drop.abs()).unwrap_or(0));
        Self::from_parts(
            if drop > 0 {
                mantissa / shift
            } else {
                mantissa * shift
            },
            scale,
        )
    }
}

fn parse_special(text: &str, trimmed: &str, unsigned: &[u8]) -> Result<Numeric, SqlError> {
    if trimmed.eq_ignore_ascii_case("nan") {
        Ok(Numeric::NAN)
    } else if unsigned.eq_ignore_ascii_case(b"infinity") || unsigned.eq_ignore_ascii_case(b"inf") {
        Err(no_infinity())
    } else {
        Err(invalid_text(text))
    }
}

/// The number after an `e`; beyond 32 bits it is clamped to a value that overflows later.
fn parse_exponent(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0_i64, |sum, byte| {
        (sum * 10 + i64::from(byte - b'0')).min(1 << 40)
    });
    Some(if negative { -value } else { value })
}

fn from_digits(negative: bool, integer: &[u8], fraction: &[u8], exponent: i64) -> Result<Numeric, SqlError> {
    let scale = fraction.len() as i64 - exponent;
    let all = integer.iter().chain(fraction);
    // Up to 18 digits always fit in 64 bits.
    if integer.len() + fraction.len() <= 18 && (0..=i64::from(SCALE_MAX)).contains(&scale) {
        let magnitude = all.fold(0_i64, |sum, byte| sum * 10 + i64::from(byte - b'0'));
        let mantissa = if negative { -magnitude } else { magnitude };
        return Ok(Numeric(Repr::Small {
            mantissa,
            scale: scale as u16,
        }));
    }
    if integer.len() + fraction.len() > LONG_DIGITS {
        interrupt::check()?;
    }
    let digits: Vec<u8> = all
        .map(|byte| byte - b'0')
        .skip_while(|digit| *digit == 0)
        .collect();
    if scale > i64::from(SCALE_MAX) + i64::from(INTEGER_DIGITS_MAX)
        || scale < -2 * i64::from(INTEGER_DIGITS_MAX)
    {
        // Exceeds all limits, without computing the power. PostgreSQL lets a vanishing fraction become zero
        // only within its scale, so both directions are overflows unless every digit is zero.
        return if digits.is_empty() && scale < 0 {
            Ok(Numeric::ZERO)
        } else {
            Err(value_overflow())
        };
    }
    let sign = if negative { Sign::Minus } else { Sign::Plus };
    let mantissa = BigInt::from_biguint(sign, long::of_digits(&digits)?);
    if scale < 0 {
        return Numeric::from_parts(mantissa * super::big_pow10(scale.unsigned_abs() as u32), 0);
    }
    if scale > i64::from(SCALE_MAX) {
        return Err(value_overflow());
    }
    Numeric::from_parts(mantissa, scale as u16)
}

/// Appends `digits` with the point before the last `scale` of them.
fn push_decimal(out: &mut String, negative: bool, digits: &str, scale: usize) {
    if negative {
        out.push('-');
    }
    if scale == 0 {
        return out.push_str(digits);
    }
    match digits.len().checked_sub(scale).filter(|integer| *integer > 0) {
        Some(integer) => {
            out.push_str(digits.get(..integer).unwrap_or(""));
            out.push('.');
            out.push_str(digits.get(integer..).unwrap_or(""));
        }
        None => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', scale - digits.len()));
            out.push_str(digits);
        }
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        interrupt::masked(|| self.format(&mut text)).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl FromStr for Numeric {
    type Err = SqlError;

    fn from_str(text: &str) -> Result<Self, SqlError> {
        Self::parse(text)
    }
}
