//! Intervals in ISO 8601 format: `P1Y2M3DT4H5M6S`, `P0001-02-03T04:05:06`, `P00010203T040506`.

use super::interval_sum::{Fault, Sum};
use super::interval_units::Unit;

/// Largest accepted number, as in PostgreSQL.
const NUMBER_MAX: f64 = 1.0e15;

pub(super) fn parse(text: &str) -> Result<Sum, Fault> {
    let mut rest = text.strip_prefix('P').ok_or(Fault::Syntax)?;
    if rest.is_empty() {
        return Err(Fault::Syntax);
    }
    let mut sum = Sum::default();
    let mut date_part = true;
    let mut have_field = false;
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            (date_part, have_field, rest) = (false, false, time);
            continue;
        }
        let start = rest;
        let (whole, part) = number(&mut rest)?;
        let unit = rest.chars().next();
        let width = start
            .trim_start_matches('-')
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        let plain = match (date_part, unit) {
            (true, Some('Y')) => Some(Unit::Year),
            (true, Some('M')) => Some(Unit::Month),
            (true, Some('W')) => Some(Unit::Week),
            (true, Some('D')) => Some(Unit::Day),
            (false, Some('H')) => Some(Unit::Hour),
            (false, Some('M')) => Some(Unit::Minute),
            (false, Some('S')) => Some(Unit::Second),
            _ => None,
        };
        if let Some(plain) = plain {
            sum.add(whole, part, plain)?;
            rest = rest.get(1..).unwrap_or("");
            have_field = true;
            continue;
        }
        match (date_part, unit) {
            (true, None | Some('T')) if width == 8 && !have_field => sum.add_basic_date(whole, part)?,
            (true, None | Some('T' | '-')) if !have_field => {
                sum.add(whole, part, Unit::Year)?;
                if let Some(tail) = rest.strip_prefix('-') {
                    rest = tail;
                    extended_date(&mut sum, &mut rest)?;
                }
            }
            (false, None) if width == 6 && !have_field => {
                return sum.add_basic_time(whole, part).map(|()| sum);
            }
            (false, None | Some(':')) if !have_field => {
                sum.add(whole, part, Unit::Hour)?;
                if let Some(tail) = rest.strip_prefix(':') {
                    rest = tail;
                    extended_time(&mut sum, &mut rest)?;
                }
                return Ok(sum);
            }
            _ => return Err(Fault::Syntax),
        }
    }
    Ok(sum)
}

/// Months and days after the years of the extended format, up to the end or `T`.
fn extended_date(sum: &mut Sum, rest: &mut &str) -> Result<(), Fault> {
    let (whole, part) = number(rest)?;
    sum.add(whole, part, Unit::Month)?;
    if rest.is_empty() || rest.starts_with('T') {
        return Ok(());
    }
    *rest = rest.strip_prefix('-').ok_or(Fault::Syntax)?;
    let (whole, part) = number(rest)?;
    sum.add(whole, part, Unit::Day)?;
    match rest.is_empty() || rest.starts_with('T') {
        true => Ok(()),
        false => Err(Fault::Syntax),
    }
}

/// Minutes and seconds after the hours of the extended format, up to the end.
fn extended_time(sum: &mut Sum, rest: &mut &str) -> Result<(), Fault> {
    let (whole, part) = number(rest)?;
    sum.add(whole, part, Unit::Minute)?;
    if rest.is_empty() {
        return Ok(());
    }
    *rest = rest.strip_prefix(':').ok_or(Fault::Syntax)?;
    let (whole, part) = number(rest)?;
    sum.add(whole, part, Unit::Second)?;
    match rest.is_empty() {
        true => Ok(()),
        false => Err(Fault::Syntax),
    }
}

/// A number as C's `strtod` accepts it, as integer and fraction.
fn number(rest: &mut &str) -> Result<(i64, f64), Fault> {
    let bytes = rest.as_bytes();
    let digits_from = |from: usize| {
        bytes
            .iter()
            .skip(from)
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let mut len = sign + digits_from(sign);
    let mut digit_count = len - sign;
    if bytes.get(len) == Some(&b'.') {
        let more = digits_from(len + 1);
        digit_count += more;
        len += 1 + more;
    }
    if digit_count == 0 {
        return Err(Fault::Syntax);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let exponent_sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits_from(len + 1 + exponent_sign);
        if exponent > 0 {
            len += 1 + exponent_sign + exponent;
        }
    }
    let (text, tail) = rest.split_at_checked(len).ok_or(Fault::Syntax)?;
    let value: f64 = text.parse().map_err(|_| Fault::Syntax)?;
    *rest = tail;
    if value.is_nan() || value.abs() > NUMBER_MAX {
        return Err(Fault::Overflow);
    }
    Ok((value as i64, value - value.trunc()))
}
