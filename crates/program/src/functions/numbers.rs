//! Functions of numbers and dates.

use weft_types::{Numeric, SqlError, SqlState, Value, ValueRef, is_date};

use super::{Computed, int, misfit};

type Arguments<'a, 'v> = &'a [ValueRef<'v>];

fn numeric<'a>(arguments: Arguments<'a, '_>, number: usize) -> Result<&'a Numeric, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Numeric(value)) => Ok(value),
        _ => Err(misfit()),
    }
}

fn float(arguments: Arguments<'_, '_>) -> Result<f64, SqlError> {
    match arguments.first() {
        Some(ValueRef::Float8(value)) => Ok(*value),
        _ => Err(misfit()),
    }
}

fn date(arguments: Arguments<'_, '_>, number: usize) -> Result<i32, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Date(days)) => Ok(*days),
        _ => Err(misfit()),
    }
}

fn two(
    arguments: Arguments<'_, '_>,
    compute: impl Fn(&Numeric, &Numeric) -> Result<Numeric, SqlError>,
) -> Computed {
    compute(numeric(arguments, 0)?, numeric(arguments, 1)?).map(Value::Numeric)
}

pub(super) fn add(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::add)
}

pub(super) fn sub(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::sub)
}

pub(super) fn mul(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::mul)
}

pub(super) fn div(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::div)
}

pub(super) fn rem(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::rem)
}

pub(super) fn div_trunc(arguments: Arguments<'_, '_>) -> Computed {
    two(arguments, Numeric::div_trunc)
}

pub(super) fn neg(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Numeric(numeric(arguments, 0)?.neg()))
}

pub(super) fn abs(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Numeric(numeric(arguments, 0)?.abs()))
}

pub(super) fn round(arguments: Arguments<'_, '_>) -> Computed {
    let digits = i32::try_from(int(arguments, 1)?).map_err(|_| misfit())?;
    numeric(arguments, 0)?.round(digits).map(Value::Numeric)
}

pub(super) fn trunc(arguments: Arguments<'_, '_>) -> Computed {
    let digits = i32::try_from(int(arguments, 1)?).map_err(|_| misfit())?;
    numeric(arguments, 0)?.trunc(digits).map(Value::Numeric)
}

pub(super) fn ceil(arguments: Arguments<'_, '_>) -> Computed {
    numeric(arguments, 0)?.ceil().map(Value::Numeric)
}

pub(super) fn floor(arguments: Arguments<'_, '_>) -> Computed {
    numeric(arguments, 0)?.floor().map(Value::Numeric)
}

pub(super) fn sign(arguments: Arguments<'_, '_>) -> Computed {
    let value = numeric(arguments, 0)?;
    if value.is_nan() {
        return Ok(Value::Numeric(Numeric::NAN));
    }
    let sign = i128::from(value.is_negative()) * -2 + i128::from(!value.is_zero());
    Ok(Numeric::from_i128(sign, 0).map_or(Value::Null, Value::Numeric))
}

pub(super) fn int_abs(arguments: Arguments<'_, '_>) -> Computed {
    let value = int(arguments, 0)?.checked_abs();
    let overflow = || SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range");
    value.map(Value::Int8).ok_or_else(overflow)
}

pub(super) fn float_abs(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Float8(float(arguments)?.abs()))
}

pub(super) fn float_round(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Float8(float(arguments)?.round_ties_even()))
}

pub(super) fn float_trunc(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Float8(float(arguments)?.trunc()))
}

pub(super) fn float_ceil(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Float8(float(arguments)?.ceil()))
}

pub(super) fn float_floor(arguments: Arguments<'_, '_>) -> Computed {
    Ok(Value::Float8(float(arguments)?.floor()))
}

pub(super) fn float_sign(arguments: Arguments<'_, '_>) -> Computed {
    let value = float(arguments)?;
    Ok(Value::Float8(match value {
        _ if value > 0.0 => 1.0,
        _ if value < 0.0 => -1.0,
        _ => 0.0,
    }))
}

pub(super) fn float_sqrt(arguments: Arguments<'_, '_>) -> Computed {
    let value = float(arguments)?;
    if value < 0.0 {
        let message = "cannot take square root of a negative number";
        return Err(SqlError::new(SqlState("2201F"), message));
    }
    Ok(Value::Float8(value.sqrt()))
}

/// `infinity` and `-infinity` are the ends of the integers.
fn is_infinite(days: i32) -> bool {
    days == i32::MIN || days == i32::MAX
}

pub(super) fn date_add(arguments: Arguments<'_, '_>) -> Computed {
    let (days, more) = (date(arguments, 0)?, int(arguments, 1)?);
    if is_infinite(days) {
        return Ok(Value::Date(days));
    }
    let sum = i32::try_from(i64::from(days) + more).ok();
    let overflow = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range");
    sum.filter(|days| is_date(*days) && !is_infinite(*days))
        .map(Value::Date)
        .ok_or_else(overflow)
}

pub(super) fn date_diff(arguments: Arguments<'_, '_>) -> Computed {
    let (left, right) = (date(arguments, 0)?, date(arguments, 1)?);
    if is_infinite(left) || is_infinite(right) {
        let message = "cannot subtract infinite dates";
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, message));
    }
    let overflow = || SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range");
    left.checked_sub(right).map(Value::Int4).ok_or_else(overflow)
}

#[cfg(test)]
mod tests {
    use super::super::Function;
    use super::*;

    fn call(function: Function, arguments: &[Value]) -> Result<Value, &'static str> {
        let arguments: Vec<ValueRef<'_>> = arguments.iter().map(Value::as_ref).collect();
        function.apply(&arguments).map_err(|error| error.state.code())
    }

    fn number(text: &str) -> Value {
        Value::Numeric(Numeric::parse(text).unwrap())
    }

    fn shown(function: Function, arguments: &[Value]) -> String {
        match call(function, arguments).unwrap() {
            Value::Numeric(value) => {
                let mut text = String::new();
                value.format(&mut text);
                text
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn decimals_are_postgresqls() {
        use Function as F;
        assert_eq!(shown(F::NumericAdd, &[number("1.10"), number("2.005")]), "3.105");
        assert_eq!(
            shown(F::NumericDiv, &[number("1"), number("3")]),
            "0.33333333333333333333"
        );
        assert_eq!(
            shown(F::NumericRound, &[number("-2.345"), Value::Int4(2)]),
            "-2.35"
        );
        assert_eq!(shown(F::NumericTrunc, &[number("1299"), Value::Int4(-2)]), "1200");
        assert_eq!(shown(F::NumericSign, &[number("-0.5")]), "-1");
        assert_eq!(shown(F::NumericSign, &[number("0.0")]), "0");
        assert_eq!(shown(F::NumericSign, &[number("7")]), "1");
        assert_eq!(shown(F::NumericSign, &[number("NaN")]), "NaN");
        assert_eq!(call(F::NumericDiv, &[number("1"), number("0")]), Err("22012"));
        assert_eq!(call(F::NumericMod, &[Value::Null, number("0")]), Ok(Value::Null));
    }

    #[test]
    fn ends_of_ranges_are_errors() {
        use Function as F;
        assert_eq!(call(F::IntAbs, &[Value::Int8(i64::MIN)]), Err("22003"));
        assert_eq!(call(F::FloatSqrt, &[Value::Float8(-1.0)]), Err("2201F"));
        assert_eq!(call(F::FloatRound, &[Value::Float8(2.5)]), Ok(Value::Float8(2.0)));
        assert_eq!(
            call(F::DateAdd, &[Value::Date(i32::MAX), Value::Int4(-1)]),
            Ok(Value::Date(i32::MAX))
        );
        assert_eq!(
            call(F::DateAdd, &[Value::Date(2_145_031_948), Value::Int4(1)]),
            Err("22008")
        );
        assert_eq!(
            call(F::DateDiff, &[Value::Date(9), Value::Date(12)]),
            Ok(Value::Int4(-3))
        );
        assert_eq!(
            call(F::DateDiff, &[Value::Date(i32::MIN), Value::Date(0)]),
            Err("22008")
        );
    }
}
