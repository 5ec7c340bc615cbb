//! Numerics between Weft's arbitrary precision and Arrow's decimals, and PostgreSQL's rules for digits.

use datafusion::arrow::datatypes::i256;
use weft_types::{Numeric, SqlError};

use super::columns::numeric_overflow;

/// A numeric as an integer number of units of `10^-scale`, rounded half away from zero. NaN and values beyond
/// 76 digits are refused with 22003.
pub fn numeric_to_i256(numeric: &Numeric, scale: i8) -> Result<i256, SqlError> {
    if numeric.is_nan() {
        return Err(numeric_overflow());
    }
    if let Ok(digits) = numeric.to_i128(u16::try_from(scale).unwrap_or(0)) {
        return Ok(i256::from_i128(digits));
    }
    let rounded = {
        let mut text = String::new();
        numeric.round(i32::from(scale))?.format(&mut text);
        text
    };
    let (negative, digits) = match rounded.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, rounded.as_str()),
    };
    let mut value = i256::ZERO;
    let mut decimals: Option<i8> = None;
    for character in digits.chars() {
        if character == '.' {
            decimals = Some(0);
            continue;
        }
        let digit = character.to_digit(10).ok_or_else(numeric_overflow)?;
        value = push_digit(value, digit).ok_or_else(numeric_overflow)?;
        if let Some(count) = decimals.as_mut() {
            *count += 1;
        }
    }
    for _ in decimals.unwrap_or(0)..scale {
        value = push_digit(value, 0).ok_or_else(numeric_overflow)?;
    }
    if negative {
        value.checked_neg().ok_or_else(numeric_overflow)
    } else {
        Ok(value)
    }
}

fn push_digit(value: i256, digit: u32) -> Option<i256> {
    value
        .checked_mul(i256::from_i128(10))?
        .checked_add(i256::from_i128(i128::from(digit)))
}

/// `value * 10^-scale` as text, with exactly `scale` digits after the point.
pub fn decimal_text(value: i256, scale: i8) -> String {
    let digits = value.to_string();
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits.as_str()),
    };
    if scale <= 0 {
        let zeros = "0".repeat(usize::from(scale.unsigned_abs()));
        return if digits == "0" {
            "0".to_string()
        } else {
            format!("{sign}{digits}{zeros}")
        };
    }
    let scale = scale as usize;
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Takes zeros after the point off: an unconstrained numeric is computed with more digits than it was written
/// with.
pub fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// The weight (power of 10000) of a decimal's first base-10000 digit, and that digit.
fn leading(value: i256, scale: i8) -> (i32, i32) {
    let text = value.to_string();
    let digits = text.trim_start_matches('-');
    if digits == "0" {
        return (0, 0);
    }
    let exponent = digits.len() as i32 - i32::from(scale);
    let weight = (exponent - 1).div_euclid(4);
    let count = (exponent - weight * 4) as usize;
    let mut first: String = digits.chars().take(count).collect();
    while first.len() < count {
        first.push('0');
    }
    (weight, first.parse().unwrap_or(0))
}

/// How many digits after the point PostgreSQL gives `left / right` (numeric.c, `select_div_scale`).
pub fn quotient_digits(left: (i256, i8), right: (i256, i8)) -> i32 {
    let (left_weight, left_first) = leading(left.0, left.1);
    let (right_weight, right_first) = leading(right.0, right.1);
    let mut weight = left_weight - right_weight;
    if left_first <= right_first {
        weight -= 1;
    }
    (16 - weight * 4)
        .max(i32::from(left.1))
        .max(i32::from(right.1))
        .max(0)
}

/// The digits after the point with which a computed quotient is shown: what [`quotient_digits`] gave for most
/// operands, told from the quotient alone.
pub fn shown_quotient_digits(quotient: i256, scale: i8) -> i32 {
    let (weight, first) = leading(quotient, scale);
    let text = quotient.to_string();
    let power = first == 1 && text.trim_start_matches('-').trim_end_matches('0') == "1";
    let weight = if power || quotient == i256::ZERO {
        weight - 1
    } else {
        weight
    };
    let weight = if quotient == i256::ZERO { 0 } else { weight };
    (16 - weight * 4).clamp(0, i32::from(scale))
}

/// `10^exponent`, or `None` beyond 76.
pub fn power_of_ten(exponent: u32) -> Option<i256> {
    i256::from_i128(10).checked_pow(exponent)
}

/// `dividend / divisor`, rounded half away from zero; `None` when the divisor is zero.
pub fn divide_rounded(dividend: i256, divisor: i256) -> Option<i256> {
    let quotient = dividend.checked_div(divisor)?;
    let rest = dividend.checked_rem(divisor)?;
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    if twice < divisor.wrapping_abs() {
        return Some(quotient);
    }
    let up = dividend.is_negative() == divisor.is_negative();
    quotient.checked_add(i256::from_i128(if up { 1 } else { -1 }))
}

/// Rounds `value` from `scale` to `digits` digits after the point, keeping it at `scale`.
pub fn round_at(value: i256, scale: i32, digits: i32) -> Option<i256> {
    if digits >= scale {
        return Some(value);
    }
    let unit = power_of_ten(u32::try_from(scale - digits).ok()?)?;
    divide_rounded(value, unit)?.checked_mul(unit)
}

/// PostgreSQL's `left / right`, at `scale` digits; `None` on overflow. The divisor is not zero.
pub fn quotient(left: (i256, i8), right: (i256, i8), scale: i8) -> Option<i256> {
    let digits = quotient_digits(left, right).min(i32::from(scale));
    let shift = digits + i32::from(right.1) - i32::from(left.1);
    let exact = if shift >= 0 {
        divide_rounded(left.0.checked_mul(power_of_ten(shift as u32)?)?, right.0)?
    } else {
        divide_rounded(left.0, right.0.checked_mul(power_of_ten(shift.unsigned_abs())?)?)?
    };
    exact.checked_mul(power_of_ten(u32::try_from(i32::from(scale) - digits).ok()?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_types::{SqlType, Value, parse_text};

    use super::*;

    fn numeric(text: &str) -> Numeric {
        match parse_text(text, &SqlType::Numeric(None)) {
            Ok(Value::Numeric(numeric)) => numeric,
            other => panic!("{text}: {other:?}"),
        }
    }

    /// `|left| / |right|` in integers, halves away from zero.
    fn divided(left: i128, right: i128) -> i128 {
        let magnitude = (left.unsigned_abs() * 2 + right.unsigned_abs()) / (right.unsigned_abs() * 2);
        let magnitude = magnitude as i128;
        if (left < 0) == (right < 0) {
            magnitude
        } else {
            -magnitude
        }
    }

    proptest! {
        #[test]
        fn text_of_a_decimal_reads_back(value in any::<i128>(), scale in 0i8..40) {
            let value = i256::from_i128(value);
            let text = decimal_text(value, scale);
            prop_assert_eq!(numeric_to_i256(&numeric(&text), scale).unwrap(), value);
            prop_assert_eq!(numeric_to_i256(&numeric(trim_zeros(&text)), scale).unwrap(), value);
        }

        #[test]
        fn seventy_digits_are_kept(text in "-?[1-9][0-9]{40,55}\\.[0-9]{15}") {
            let value = numeric_to_i256(&numeric(&text), 15).unwrap();
            prop_assert_eq!(decimal_text(value, 15), text);
        }

        #[test]
        fn more_digits_than_fit_are_refused(text in "-?[1-9][0-9]{80,90}") {
            prop_assert!(numeric_to_i256(&numeric(&text), 0).is_err());
        }

        #[test]
        fn divisions_round_half_away_from_zero(
            left in -(1i128 << 100)..(1i128 << 100),
            right in -(1i128 << 60)..(1i128 << 60),
        ) {
            let quotient = divide_rounded(i256::from_i128(left), i256::from_i128(right));
            let expected = (right != 0).then(|| i256::from_i128(divided(left, right)));
            prop_assert_eq!(quotient, expected);
        }

        #[test]
        fn halves_go_away_from_zero(whole in any::<i64>(), half in any::<i32>()) {
            // (2 * whole * half + half) / (2 * half) is whole and a half.
            prop_assume!(half != 0);
            let (whole, half) = (i128::from(whole), i128::from(half));
            let dividend = i256::from_i128(2 * whole * half + half);
            let rounded = if whole < 0 { whole } else { whole + 1 };
            prop_assert_eq!(
                divide_rounded(dividend, i256::from_i128(2 * half)),
                Some(i256::from_i128(rounded))
            );
        }

        #[test]
        fn rounding_keeps_the_scale(value in any::<i64>(), scale in 0i32..20, digits in 0i32..20) {
            let rounded = round_at(i256::from_i128(i128::from(value)), scale, digits).unwrap();
            let expected = if digits >= scale {
                i128::from(value)
            } else {
                let unit = 10i128.pow((scale - digits) as u32);
                divided(i128::from(value), unit) * unit
            };
            prop_assert_eq!(rounded, i256::from_i128(expected));
        }

        /// The quotient has PostgreSQL's digits: those that the numeric type's own division gives.
        #[test]
        fn quotients_are_those_of_the_numeric_type(
            left in any::<i64>(), left_scale in 0i8..10,
            right in any::<i64>(), right_scale in 0i8..10,
        ) {
            prop_assume!(right != 0);
            let (left, right) = (i256::from_i128(left.into()), i256::from_i128(right.into()));
            let scale = 38;
            let computed = quotient((left, left_scale), (right, right_scale), scale).unwrap();
            let divided = numeric(&decimal_text(left, left_scale))
                .div(&numeric(&decimal_text(right, right_scale)))
                .unwrap();
            prop_assert_eq!(computed, numeric_to_i256(&divided, scale).unwrap());
        }
    }
}
