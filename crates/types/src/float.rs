//! Text of binary floats, as PostgreSQL 15 reads and writes it.
//!
//! Output is the shortest decimal that reads back as the same float (`extra_float_digits = 1`), as Ryu finds it
//! when, like PostgreSQL's, it does not accept decimals that lie exactly on the border to a neighbouring float: so
//! 1e23 prints as 9.999999999999999e+22. Notation is fixed for exponents from -4 up to 14 (5 for `real`),
//! else scientific with at least two exponent digits.

use std::fmt::{LowerExp, Write as _};
use std::str::FromStr;

use crate::{SqlError, SqlState, SqlType};

/// Decimal exponents from which on `double precision` is written scientifically.
const FIXED_BELOW_F64: i32 = 15;
/// The same for `real`.
const FIXED_BELOW_F32: i32 = 6;

/// Appends a `double precision`.
pub(crate) fn format_f64(value: f64, out: &mut String) {
    if push_special(value, out) {
        return;
    }
    let mut text = Digits::of(&value, None);
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) as i32);
    let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
    if significand & 1 == 0 && on_border(&text, significand, exponent.max(1) - 1075, fraction == 0 && exponent > 1) {
        text = inner(&value, &text, 17, |candidate| {
            f64::from_str(candidate) == Ok(value)
                && !on_border(&Digits::parse(candidate), significand, exponent.max(1) - 1075, fraction == 0)
        });
    }
    text.push(value.is_sign_negative(), FIXED_BELOW_F64, out);
}

/// Appends a `real`.
pub(crate) fn format_f32(value: f32, out: &mut String) {
    if push_special(f64::from(value), out) {
        return;
    }
    let mut text = Digits::of(&value, None);
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    let (fraction, exponent) = (u64::from(bits & ((1 << 23) - 1)), (bits >> 23) as i32);
    let significand = if exponent == 0 { fraction } else { fraction | 1 << 23 };
    if significand & 1 == 0 && on_border(&text, significand, exponent.max(1) - 150, fraction == 0 && exponent > 1) {
        text = inner(&value, &text, 9, |candidate| {
            f32::from_str(candidate) == Ok(value)
                && !on_border(&Digits::parse(candidate), significand, exponent.max(1) - 150, fraction == 0)
        });
    }
    text.push(value.is_sign_negative(), FIXED_BELOW_F32, out);
}

fn push_special(value: f64, out: &mut String) -> bool {
    let text = match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ if value == 0.0 && value.is_sign_negative() => "-0",
        0.0 => "0",
        _ => return false,
    };
    out.push_str(text);
    true
}

/// A positive decimal: digits `d.ddd` and the exponent of the first.
struct Digits {
    bytes: [u8; 20],
    len: usize,
    exponent: i32,
}

/// `{:e}` of a float, without allocating.
struct Scientific {
    bytes: [u8; 40],
    len: usize,
}

impl std::fmt::Write for Scientific {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl Scientific {
    fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.len).unwrap_or(&[])).unwrap_or("")
    }
}

fn scientific<F: LowerExp>(value: &F, digits: Option<usize>) -> Scientific {
    let mut text = Scientific {
        bytes: [0; 40],
        len: 0,
    };
    let _ = match digits {
        Some(digits) => write!(text, "{value:.*e}", digits - 1),
        None => write!(text, "{value:e}"),
    };
    text
}

impl Digits {
    /// The shortest digits, or so many, of a float that is neither zero nor special. The sign is left out.
    fn of<F: LowerExp>(value: &F, digits: Option<usize>) -> Self {
        Self::parse(scientific(value, digits).as_str())
    }

    fn parse(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut digits = Self {
            bytes: [0; 20],
            len: 0,
            exponent: exponent.parse().unwrap_or(0),
        };
        for byte in mantissa.bytes().filter(u8::is_ascii_digit) {
            if let Some(place) = digits.bytes.get_mut(digits.len) {
                *place = byte;
                digits.len += 1;
            }
        }
        while digits.len > 1 && digits.bytes.get(digits.len - 1) == Some(&b'0') {
            digits.len -= 1;
        }
        digits
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(self.bytes.get(..self.len).unwrap_or(&[])).unwrap_or("")
    }

    /// The number as `integer * 10^power`.
    fn integer(&self) -> (u64, i32) {
        let integer = self.as_str().parse().unwrap_or(0);
        (integer, self.exponent - self.len as i32 + 1)
    }

    fn push(&self, negative: bool, fixed_below: i32, out: &mut String) {
        if negative {
            out.push('-');
        }
        let digits = self.as_str();
        if self.exponent < -4 || self.exponent >= fixed_below {
            let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            let _ = write!(out, "e{}{:02}", if self.exponent < 0 { '-' } else { '+' }, self.exponent.abs());
        } else if self.exponent < 0 {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', self.exponent.unsigned_abs() as usize - 1));
            out.push_str(digits);
        } else {
            let integer = self.exponent as usize + 1;
            match digits.split_at_checked(integer).filter(|(_, fraction)| !fraction.is_empty()) {
                Some((integer, fraction)) => {
                    out.push_str(integer);
                    out.push('.');
                    out.push_str(fraction);
                }
                None => {
                    out.push_str(digits);
                    out.extend(std::iter::repeat_n('0', integer.saturating_sub(self.len)));
                }
            }
        }
    }
}

/// Whether the decimal lies exactly half way between the float `significand * 2^exponent` and a neighbour. Below a
/// power of two (`at_power`) the neighbour is half as far.
fn on_border(digits: &Digits, significand: u64, exponent: i32, at_power: bool) -> bool {
    let upper = (u128::from(significand) * 2 + 1, exponent - 1);
    let lower = if at_power {
        (u128::from(significand) * 4 - 1, exponent - 2)
    } else {
        (u128::from(significand).saturating_mul(2).saturating_sub(1), exponent - 1)
    };
    let (integer, power) = digits.integer();
    [upper, lower].into_iter().any(|(odd, exponent)| is_equal(u128::from(integer), power, odd, exponent))
}

/// `integer * 10^power == odd * 2^exponent`, for an odd number of at most 55 bits.
fn is_equal(integer: u128, power: i32, odd: u128, exponent: i32) -> bool {
    // The powers of five must agree: 5^24 exceeds 55 bits, and integer has at most 17 digits.
    if !(-24..=24).contains(&power) || integer == 0 {
        return false;
    }
    let fives = 5_u128.pow(power.unsigned_abs());
    let (Some(left), Some(right)) = (if power >= 0 {
        (integer.checked_mul(fives), Some(odd))
    } else {
        (Some(integer), odd.checked_mul(fives))
    }) else {
        return false;
    };
    let twos = left.trailing_zeros();
    left >> twos == right && twos as i32 + power == exponent
}

/// The shortest decimal inside the borders, given the one on the border.
fn inner<F: LowerExp>(value: &F, border: &Digits, digits_max: usize, fits: impl Fn(&str) -> bool) -> Digits {
    for digits in border.len..digits_max {
        let text = scientific(value, Some(digits));
        let text = text.as_str().trim_start_matches('-');
        if fits(text) {
            return Digits::parse(text);
        }
    }
    Digits::of(value, Some(digits_max))
}

/// Reads a `double precision`.
pub(crate) fn parse_f64(text: &str) -> Result<f64, SqlError> {
    let (number, kind) = classify(text, &SqlType::Float8)?;
    let value = f64::from_str(number).map_err(|_| invalid(text, &SqlType::Float8))?;
    check_range(number, kind, value.is_infinite(), value == 0.0, &SqlType::Float8)?;
    Ok(value)
}

/// Reads a `real`. Rounded once, from the decimal.
pub(crate) fn parse_f32(text: &str) -> Result<f32, SqlError> {
    let (number, kind) = classify(text, &SqlType::Float4)?;
    let value = f32::from_str(number).map_err(|_| invalid(text, &SqlType::Float4))?;
    check_range(number, kind, value.is_infinite(), value == 0.0, &SqlType::Float4)?;
    Ok(value)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `inf`, `nan`.
    Word,
    /// All digits are zero.
    Zero,
    Number,
}

fn classify<'t>(text: &'t str, ty: &SqlType) -> Result<(&'t str, Kind), SqlError> {
    let number = text.trim_matches(crate::text::is_space);
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
    let kind = match unsigned.as_bytes().first() {
        None => return Err(invalid(text, ty)),
        Some(b'0'..=b'9' | b'.') => {
            let mut mantissa = unsigned.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
            if mantissa.any(|byte| matches!(byte, b'1'..=b'9')) { Kind::Number } else { Kind::Zero }
        }
        Some(_) => Kind::Word,
    };
    Ok((number, kind))
}

fn check_range(number: &str, kind: Kind, infinite: bool, zero: bool, ty: &SqlType) -> Result<(), SqlError> {
    if kind == Kind::Number && (infinite || zero) {
        return Err(SqlError::new(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("\"{number}\" is out of range for type {}", ty.base_name()),
        ));
    }
    Ok(())
}

fn invalid(text: &str, ty: &SqlType) -> SqlError {
    crate::text::invalid_syntax(text, ty)
}
