//! `to_char` of numbers and `to_number`.

use weft_types::{Numeric, NumericSpec, SqlError, SqlState, SqlType, Value, ValueRef, cast_from};

use super::super::shape::{
    Arguments, Computed, FLOAT4, FLOAT8, INT4, INT8, NUMERIC, TEXT, TO_NUMERIC, TO_TEXT, check_bytes, define,
    made, text,
};
use super::number::{Digits, lay_out};
use super::read::read;
use super::template::{Template, Token};
use crate::context::Context;
use crate::table::Entry;

/// The entries.
pub static ENTRIES: &[Entry] = &[
    define("to_char", &[INT4, TEXT], TO_TEXT, to_char).stable(),
    define("to_char", &[INT8, TEXT], TO_TEXT, to_char).stable(),
    define("to_char", &[NUMERIC, TEXT], TO_TEXT, to_char).stable(),
    define("to_char", &[FLOAT4, TEXT], TO_TEXT, to_char).stable(),
    define("to_char", &[FLOAT8, TEXT], TO_TEXT, to_char).stable(),
    define("to_number", &[TEXT, TEXT], TO_NUMERIC, to_number).stable(),
];

fn foreign() -> SqlError {
    SqlError::internal("a number is of another type than its function takes")
}

fn to_char(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let format = text(arguments, 1)?;
    check_bytes(format.len().saturating_mul(8))?;
    if format.is_empty() {
        return made("");
    }
    let value = arguments.first().ok_or_else(foreign)?;
    let mut template = Template::read(format)?;
    if template.roman {
        return made(lay_out_roman(&template, &roman(value)?));
    }
    if template.scientific {
        return made(lay_out_scientific(&template, value)?);
    }
    let shown = match value {
        ValueRef::Float4(v) => float_digits(f64::from(*v), 6, true, &mut template),
        ValueRef::Float8(v) => float_digits(*v, 15, false, &mut template),
        ValueRef::Int4(v) => integer_digits(&Value::Int4(*v), &mut template)?,
        ValueRef::Int8(v) => integer_digits(&Value::Int8(*v), &mut template)?,
        ValueRef::Numeric(v) => numeric_digits(v, &mut template)?,
        _ => return Err(foreign()),
    };
    let digits = fitted(&shown, &template);
    let has_ending = template
        .tokens
        .iter()
        .any(|token| matches!(token, Token::Ordinal(_)));
    if has_ending && template.pre == 0 && !template.point && !digits.negative {
        return Err(SqlError::new(
            SqlState::INVALID_TEXT_REPRESENTATION,
            "\".\" is not a number",
        ));
    }
    made(lay_out(&template, &digits))
}

/// A number's digits, or `#` if there are too many for the template.
fn fitted(shown: &str, template: &Template) -> Digits {
    let (negative, digits) = match shown.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, shown),
    };
    let pre = digits.find('.').unwrap_or(digits.len());
    let mut text = digits.as_bytes().to_vec();
    if pre > template.pre {
        text = vec![b'#'; template.pre + template.post + 1];
        if let Some(point) = text.get_mut(template.pre) {
            *point = b'.';
        }
    }
    Digits {
        text,
        negative,
        missing: template.pre.saturating_sub(pre),
    }
}

/// Ten raised to a power.
fn power_of_ten(exponent: i64) -> Result<Numeric, SqlError> {
    Numeric::parse(&format!("1e{exponent}"))
}

fn numeric_digits(value: &Numeric, template: &mut Template) -> Result<String, SqlError> {
    let shifted = match template.shifts {
        true => value.mul(&power_of_ten(template.shift as i64)?)?,
        false => value.clone(),
    };
    template.pre += template.shift;
    let mut shown = String::new();
    shifted.round(template.post as i32)?.format(&mut shown)?;
    Ok(shown)
}

fn integer_digits(value: &Value, template: &mut Template) -> Result<String, SqlError> {
    let number = value.as_i64().unwrap_or(0);
    let factor = u32::try_from(template.shift)
        .ok()
        .and_then(|power| 10_i64.checked_pow(power));
    let small = matches!(value, Value::Int4(_));
    let factor = factor.filter(|factor| !small || *factor <= i64::from(i32::MAX));
    let shifted = factor.and_then(|factor| match small {
        // PostgreSQL 15 does not check this integer for overflow.
        true => Some(i64::from(number.wrapping_mul(factor) as i32)),
        false => number.checked_mul(factor),
    });
    let Some(shifted) = shifted else {
        let message = if small {
            "integer out of range"
        } else {
            "bigint out of range"
        };
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    };
    template.pre += template.shift;
    let mut shown = shifted.to_string();
    if template.post > 0 {
        shown.push('.');
        shown.extend(std::iter::repeat_n('0', template.post));
    }
    Ok(shown)
}

/// A float's digits, limited to the significant digits that its type guarantees.
fn float_digits(value: f64, sure: usize, single: bool, template: &mut Template) -> String {
    let mut shifted = value;
    if template.shifts {
        shifted = value * 10_f64.powi(i32::try_from(template.shift).unwrap_or(i32::MAX));
        if single {
            shifted = f64::from(shifted as f32);
        }
        template.pre += template.shift;
    }
    let pre = fixed(shifted.abs(), 0).len();
    template.post = template.post.min(sure.saturating_sub(pre));
    fixed(shifted, template.post)
}

fn fixed(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-Infinity" } else { "Infinity" }.to_owned();
    }
    format!("{value:.digits$}")
}

/// A number in Roman numerals; `None` outside 1 to 3999.
fn roman(value: &ValueRef<'_>) -> Result<Option<String>, SqlError> {
    let owned = value.to_value();
    let from = owned.sql_type().ok_or_else(foreign)?;
    let number = match cast_from(owned, &from, &SqlType::Int4) {
        Ok(number) => number.as_i64().unwrap_or(0),
        Err(_) if matches!(value, ValueRef::Float4(_) | ValueRef::Float8(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !(1..=3999).contains(&number) {
        return Ok(None);
    }
    const STEPS: &[(i64, &str)] = &[
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let (mut rest, mut out) = (number, String::new());
    for (step, digits) in STEPS {
        while rest >= *step {
            out.push_str(digits);
            rest -= step;
        }
    }
    Ok(Some(out))
}

/// Width of a Roman numeral.
const ROMAN_WIDTH: usize = 15;

fn lay_out_roman(template: &Template, number: &Option<String>) -> String {
    let number = number.clone().unwrap_or_else(|| "#".repeat(ROMAN_WIDTH));
    let mut out = String::new();
    for token in &template.tokens {
        match token {
            Token::Roman(capital) => {
                let number = if *capital {
                    number.clone()
                } else {
                    number.to_ascii_lowercase()
                };
                match template.fill {
                    true => out.push_str(&number),
                    false => out.push_str(&format!("{number:>ROMAN_WIDTH$}")),
                }
            }
            Token::Comma | Token::Group | Token::Minus | Token::Plus if !template.fill => out.push(' '),
            Token::Currency => out.push(' '),
            // PostgreSQL writes a NUL sign here, which ends its string.
            Token::AnySign => break,
            Token::Is(character) => out.push(*character),
            _ => {}
        }
    }
    out
}

fn lay_out_scientific(template: &Template, value: &ValueRef<'_>) -> Result<String, SqlError> {
    let shown = match value {
        ValueRef::Int4(v) => scientific_float(f64::from(*v), template.post),
        ValueRef::Float4(v) => scientific_float(f64::from(*v), template.post),
        ValueRef::Float8(v) => scientific_float(*v, template.post),
        ValueRef::Int8(v) => Some(scientific(&Numeric::parse(&v.to_string())?, template.post)?),
        ValueRef::Numeric(v) if v.is_nan() => None,
        ValueRef::Numeric(v) => Some(scientific(v, template.post)?),
        _ => return Err(foreign()),
    };
    Ok(match shown {
        Some(shown) if shown.starts_with('-') => shown,
        Some(shown) => format!(" {shown}"),
        // Not a number: the width includes the sign, the point and the exponent.
        None => {
            let mut out = vec![b'#'; template.pre + template.post + 6];
            for (at, byte) in [(0, b' '), (template.pre + 1, b'.')] {
                if let Some(place) = out.get_mut(at) {
                    *place = byte;
                }
            }
            String::from_utf8_lossy(&out).into_owned()
        }
    })
}

fn scientific_float(value: f64, digits: usize) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let shown = format!("{value:.digits$e}");
    let (significand, exponent) = shown.split_once('e')?;
    let exponent: i64 = exponent.parse().ok()?;
    let sign = if exponent < 0 { '-' } else { '+' };
    Some(format!("{significand}e{sign}{:02}", exponent.abs()))
}

/// The significand is rounded after the exponent is determined, so that it may become 10.
fn scientific(value: &Numeric, digits: usize) -> Result<String, SqlError> {
    let mut exponent: i64 = 0;
    let mut plain = String::new();
    value.abs().format(&mut plain)?;
    if let Some(first) = plain.find(|c: char| c.is_ascii_digit() && c != '0') {
        let point = plain.find('.').unwrap_or(plain.len());
        let (first, point) = (first as i64, point as i64);
        exponent = if first < point {
            point - first - 1
        } else {
            point - first
        };
    }
    let significand = value.mul(&power_of_ten(-exponent)?)?.round(digits as i32)?;
    let mut shown = String::new();
    significand.format(&mut shown)?;
    let sign = if exponent < 0 { '-' } else { '+' };
    Ok(format!("{shown}e{sign}{:02}", exponent.abs()))
}

fn to_number(_: &Context<'_>, arguments: Arguments<'_, '_>) -> Computed {
    let (whole, format) = (text(arguments, 0)?, text(arguments, 1)?);
    if format.is_empty() {
        return Ok(Value::Null);
    }
    let template = Template::read(format)?;
    let unsupported = |what: &str| SqlError::unsupported(format!("\"{what}\" not supported for input"));
    if template.scientific {
        return Err(unsupported("EEEE"));
    }
    if template.roman {
        return Err(unsupported("RN"));
    }
    let (digits, post) = read(whole, &template);
    let precision = u16::try_from(template.pre + template.shift + post).unwrap_or(u16::MAX);
    let scale = i16::try_from(post).unwrap_or(i16::MAX);
    let number = Numeric::parse(&digits)?.apply_spec(NumericSpec { precision, scale })?;
    Ok(Value::Numeric(match template.shifts {
        // Uses the scale of PostgreSQL's `power`.
        true => {
            let ten = Numeric::parse("10")?;
            let shift = Numeric::parse(&format!("-{}", template.shift))?;
            number.mul(&ten.power(&shift)?)?
        }
        false => number,
    }))
}
