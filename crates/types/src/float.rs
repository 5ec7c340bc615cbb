//! Text form of binary floats, as PostgreSQL 15 reads and writes it.
//!
//! Output is the shortest decimal that reads back as the same float (`extra_float_digits = 1`), as Ryu
//! finds it if, like PostgreSQL's, it rejects decimals exactly half way to a neighbouring float: so 1e23
//! prints as 9.999999999999999e+22. Notation is fixed for exponents from -4 up to 14 (5 for `real`),
//! otherwise scientific with at least two exponent digits.

use std::fmt::{LowerExp, Write as _};
use std::str::FromStr;

use crate::{SqlError, SqlState, SqlType};

/// The decimal exponent from which `double precision` is written in scientific notation.
const FIXED_BELOW_F64: i32 = 15;
/// The same for `real`.
const FIXED_BELOW_F32: i32 = 6;

/// Appends a `double precision`.
pub(crate) fn format_f64(value: f64, out: &mut String) {
    if push_special(value, out) {
        return;
    }
    let borders = Borders::new(value.abs().to_bits(), 52, 1075);
    let text = shortest(&value, &borders, 17, |text| {
        f64::from_str(text).is_ok_and(|read| read == value.abs())
    });
    text.push(value.is_sign_negative(), FIXED_BELOW_F64, out);
}

/// Appends a `real`.
pub(crate) fn format_f32(value: f32, out: &mut String) {
    if push_special(f64::from(value), out) {
        return;
    }
    let borders = Borders::new(u64::from(value.abs().to_bits()), 23, 150);
    let text = shortest(&value, &borders, 9, |text| {
        f32::from_str(text).is_ok_and(|read| read == value.abs())
    });
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

/// A positive decimal: digits `d.ddd` and the exponent of the first digit.
struct Digits {
    bytes: [u8; 20],
    len: usize,
    exponent: i32,
}

/// `{:e}` of a float, without allocation.
struct Scientific {
    bytes: [u8; 40],
    len: usize,
}

impl std::fmt::Write for Scientific {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        self.bytes
            .get_mut(self.len..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
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
    /// The shortest digits, or the given number of digits, of a float that is neither zero nor special. The
    /// sign is ignored.
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
            let _ = write!(
                out,
                "e{}{:02}",
                if self.exponent < 0 { '-' } else { '+' },
                self.exponent.abs()
            );
        } else if self.exponent < 0 {
            out.push_str("0.");
            out.extend(std::iter::repeat_n(
                '0',
                self.exponent.unsigned_abs() as usize - 1,
            ));
            out.push_str(digits);
        } else {
            let integer = self.exponent as usize + 1;
            match digits
                .split_at_checked(integer)
                .filter(|(_, fraction)| !fraction.is_empty())
            {
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

/// The midpoints between a float and its neighbours: each an odd number times a power of two.
struct Borders {
    pairs: [(u128, i32); 2],
    /// Whether decimals on a midpoint are read as this float (ties go to even), so that a midpoint can
    /// occur at all.
    reachable: bool,
    /// The binary exponent of the float's lowest set bit.
    lowest_bit: i32,
}

impl Borders {
    /// From the bits of a positive float of a format with `fraction_bits` and `bias`.
    fn new(bits: u64, fraction_bits: u32, bias: i32) -> Self {
        let fraction = bits & ((1 << fraction_bits) - 1);
        let biased = (bits >> fraction_bits) as i32;
        let significand = if biased == 0 {
            fraction
        } else {
            fraction | 1 << fraction_bits
        };
        let exponent = biased.max(1) - bias;
        let wide = u128::from(significand);
        // Below a power of two, the neighbour is half as far away.
        let lower = if fraction == 0 && biased > 1 {
            (wide * 4 - 1, exponent - 2)
        } else {
            ((wide * 2).saturating_sub(1), exponent - 1)
        };
        Self {
            pairs: [(wide * 2 + 1, exponent - 1), lower],
            reachable: significand & 1 == 0,
            lowest_bit: exponent + significand.trailing_zeros() as i32,
        }
    }

    /// Whether the float may be exactly half way between two decimals of that many digits: it is then an
    /// odd multiple of `10^power / 2`.
    fn may_halve(&self, digits: &Digits) -> bool {
        self.lowest_bit == digits.integer().1 - 1
    }

    /// Whether a decimal is exactly on a midpoint.
    fn contain(&self, digits: &Digits) -> bool {
        let (integer, power) = digits.integer();
        self.reachable
            && self
                .pairs
                .iter()
                .any(|(odd, exponent)| is_equal(u128::from(integer), power, *odd, *exponent))
    }
}

/// Whether `integer * 10^power == odd * 2^exponent`, for an odd number of at most 55 bits.
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

/// The shortest decimal strictly between the midpoints.
fn shortest<F: LowerExp>(
    value: &F,
    borders: &Borders,
    digits_max: usize,
    reads_back: impl Fn(&str) -> bool,
) -> Digits {
    let mut digits = Digits::of(value, None);
    if borders.may_halve(&digits) {
        // Of two equally near decimals, Ryu takes the even one, as does formatting to a given length.
        let text = scientific(value, Some(digits.len));
        let text = text.as_str().trim_start_matches('-');
        if reads_back(text) {
            digits = Digits::parse(text);
        }
    }
    if !borders.contain(&digits) {
        return digits;
    }
    for count in digits.len..digits_max {
        let text = scientific(value, Some(count));
        let text = text.as_str().trim_start_matches('-');
        let candidate = Digits::parse(text);
        if reads_back(text) && !borders.contain(&candidate) {
            return candidate;
        }
    }
    Digits::of(value, Some(digits_max))
}

/// Parses a `double precision`.
pub(crate) fn parse_f64(text: &str) -> Result<f64, SqlError> {
    if let Some(number) = Hexadecimal::parse(text) {
        let (number, ty) = (
            number.ok_or_else(|| invalid(text, &SqlType::Float8))?,
            &SqlType::Float8,
        );
        return number
            .rounded(53, -1074, f64::MAX)
            .ok_or_else(|| out_of_range(text, ty));
    }
    let (number, kind) = classify(text, &SqlType::Float8)?;
    let value = f64::from_str(number).map_err(|_| invalid(text, &SqlType::Float8))?;
    check_range(number, kind, value.is_infinite(), value == 0.0, &SqlType::Float8)?;
    Ok(value)
}

/// Parses a `real`, rounding only once, from the decimal.
pub(crate) fn parse_f32(text: &str) -> Result<f32, SqlError> {
    if let Some(number) = Hexadecimal::parse(text) {
        let (number, ty) = (
            number.ok_or_else(|| invalid(text, &SqlType::Float4))?,
            &SqlType::Float4,
        );
        let value = number.rounded(24, -149, f64::from(f32::MAX));
        return value
            .map(|value| value as f32)
            .ok_or_else(|| out_of_range(text, ty));
    }
    let (number, kind) = classify(text, &SqlType::Float4)?;
    let value = f32::from_str(number).map_err(|_| invalid(text, &SqlType::Float4))?;
    // PostgreSQL's message quotes the whole text here, blanks included, but not for `double precision`.
    check_range(text, kind, value.is_infinite(), value == 0.0, &SqlType::Float4)?;
    Ok(value)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `inf`, `nan`.
    Word,
    /// All digits are 0.
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
            if mantissa.any(|byte| matches!(byte, b'1'..=b'9')) {
                Kind::Number
            } else {
                Kind::Zero
            }
        }
        Some(_) => Kind::Word,
    };
    Ok((number, kind))
}

fn check_range(number: &str, kind: Kind, infinite: bool, zero: bool, ty: &SqlType) -> Result<(), SqlError> {
    if kind == Kind::Number && (infinite || zero) {
        return Err(out_of_range(number, ty));
    }
    Ok(())
}

fn out_of_range(number: &str, ty: &SqlType) -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("\"{number}\" is out of range for type {}", ty.base_name()),
    )
}

/// A number in C's hexadecimal notation, `0x1.8p3`: digits times a power of two.
struct Hexadecimal {
    negative: bool,
    /// The leading digits; the lowest bit is sticky for all truncated ones.
    digits: u128,
    exponent: i64,
}

impl Hexadecimal {
    /// `None` if the text does not start with such a number, `Some(None)` if more follows it.
    fn parse(text: &str) -> Option<Option<Self>> {
        let number = text.trim_matches(crate::text::is_space);
        let unsigned = number.strip_prefix(['+', '-']).unwrap_or(number);
        let body = unsigned
            .strip_prefix("0x")
            .or_else(|| unsigned.strip_prefix("0X"))?;
        Some(Self::parse_body(body, number.starts_with('-')))
    }

    fn parse_body(body: &str, negative: bool) -> Option<Self> {
        let (mantissa, power) = match body.split_once(['p', 'P']) {
            Some((mantissa, power)) => (mantissa, Some(power)),
            None => (body, None),
        };
        let (mut digits, mut exponent) = (0_u128, 0_i64);
        let (mut count, mut behind_point) = (0, false);
        for character in mantissa.chars() {
            if character == '.' && !behind_point {
                behind_point = true;
                continue;
            }
            let digit = u128::from(character.to_digit(16)?);
            count += 1;
            if digits >> 120 == 0 {
                digits = digits << 4 | digit;
                exponent -= if behind_point { 4 } else { 0 };
            } else {
                digits |= u128::from(digit != 0);
                exponent += if behind_point { 0 } else { 4 };
            }
        }
        if count == 0 {
            return None;
        }
        if let Some(power) = power {
            let unsigned = power.strip_prefix(['+', '-']).unwrap_or(power);
            if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let limit = 1 << 40;
            let size = unsigned.parse().unwrap_or(limit).min(limit);
            exponent += if power.starts_with('-') { -size } else { size };
        }
        Some(Self {
            negative,
            digits,
            exponent,
        })
    }

    /// The nearest float with `bits` bits, none below the lowest; `None` if it exceeds the greatest, or is
    /// 0 for a nonzero number.
    fn rounded(&self, bits: i64, lowest: i64, greatest: f64) -> Option<f64> {
        let sign = if self.negative { -1.0 } else { 1.0 };
        if self.digits == 0 {
            return Some(0.0_f64.copysign(sign));
        }
        let first = 127 - i64::from(self.digits.leading_zeros()) + self.exponent;
        let last = (first - bits + 1).max(lowest);
        let shift = last - self.exponent;
        let kept = match shift {
            // Fewer bits than the format has.
            ..=0 => self.digits,
            1..=127 => {
                let kept = self.digits >> shift;
                let rest = self.digits & ((1 << shift) - 1);
                let half = 1 << (shift - 1);
                kept + u128::from(rest > half || (rest == half && kept & 1 == 1))
            }
            _ => 0,
        };
        let scale = i32::try_from(self.exponent + shift.max(0)).ok()?;
        if first > 1100 || kept == 0 {
            return None;
        }
        // Both steps are exact: the bits fit, and the intermediate result does not underflow.
        let half = scale / 2;
        let value = kept as f64 * 2.0_f64.powi(half) * 2.0_f64.powi(scale - half);
        (value <= greatest).then(|| value.copysign(sign))
    }
}

fn invalid(text: &str, ty: &SqlType) -> SqlError {
    crate::text::invalid_syntax(text, ty)
}
