//! Checked arithmetic as PostgreSQL does it: its errors, its words, its order of checks.
//!
//! Integers are computed in 64 bits; a narrower result is checked by NARROW afterwards, which is exact
//! because no operation on narrower operands leaves 64 bits. Floats are IEEE basics; an infinite result of
//! finite operands is an overflow, a zero product of operands that are not zero an underflow (`float.h` of
//! PostgreSQL).
//!
//! Source: PostgreSQL int8.c, int.c, float.c, float.h.

use std::cmp::Ordering;

use weft_types::{SqlError, SqlState};

use crate::instr::Op;

/// 22012.
#[cold]
pub(crate) fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// 22003 for an integer of some bytes.
#[cold]
pub(crate) fn integer_out_of_range(width_bytes: u8) -> SqlError {
    let name = match width_bytes {
        2 => "smallint",
        4 => "integer",
        _ => "bigint",
    };
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{name} out of range"),
    )
}

#[cold]
fn float_overflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range: overflow",
    )
}

#[cold]
fn float_underflow() -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "value out of range: underflow",
    )
}

/// ADD SUB MUL DIV MOD.
#[inline]
pub(crate) fn integer(op: Op, a: i64, b: i64) -> Result<i64, SqlError> {
    let result = match op {
        Op::Add => a.checked_add(b),
        Op::Sub => a.checked_sub(b),
        Op::Mul => a.checked_mul(b),
        Op::Div if b == 0 => return Err(division_by_zero()),
        Op::Div => a.checked_div(b),
        _ if b == 0 => return Err(division_by_zero()),
        // The least number by -1 leaves nothing, though the quotient would not fit.
        _ => Some(a.wrapping_rem(b)),
    };
    result.ok_or_else(|| integer_out_of_range(8))
}

/// Whether an integer fits some bytes.
#[inline]
pub(crate) fn fits(value: i64, width_bytes: u8) -> bool {
    match width_bytes {
        2 => i16::try_from(value).is_ok(),
        4 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

/// NARROW.
#[inline]
pub(crate) fn narrow(value: i64, width_bytes: u8) -> Result<i64, SqlError> {
    if fits(value, width_bytes) {
        Ok(value)
    } else {
        Err(integer_out_of_range(width_bytes))
    }
}

macro_rules! float_operations {
    ($name:ident, $float:ty, $add:pat, $sub:pat, $mul:pat) => {
        /// Sum, difference, product, quotient (the rest) of one float type.
        #[inline]
        pub(crate) fn $name(op: Op, a: $float, b: $float) -> Result<$float, SqlError> {
            match op {
                $add | $sub => {
                    let result = if matches!(op, $add) { a + b } else { a - b };
                    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
                        return Err(float_overflow());
                    }
                    Ok(result)
                }
                $mul => {
                    let result = a * b;
                    if result.is_infinite() && !a.is_infinite() && !b.is_infinite() {
                        return Err(float_overflow());
                    }
                    if result == 0.0 && a != 0.0 && b != 0.0 {
                        return Err(float_underflow());
                    }
                    Ok(result)
                }
                _ => {
                    if b == 0.0 && !a.is_nan() {
                        return Err(division_by_zero());
                    }
                    let result = a / b;
                    if result.is_infinite() && !a.is_infinite() {
                        return Err(float_overflow());
                    }
                    if result == 0.0 && a != 0.0 && !b.is_infinite() {
                        return Err(float_underflow());
                    }
                    Ok(result)
                }
            }
        }
    };
}

float_operations!(double, f64, Op::Fadd, Op::Fsub, Op::Fmul);
float_operations!(real, f32, Op::F4add, Op::F4sub, Op::F4mul);

/// FTOF4.
pub(crate) fn double_to_real(value: f64) -> Result<f32, SqlError> {
    let result = value as f32;
    if result.is_infinite() && !value.is_infinite() {
        return Err(float_overflow());
    }
    if result == 0.0 && value != 0.0 {
        return Err(float_underflow());
    }
    Ok(result)
}

/// FTOI: half to even, then the range of the width. `limit` of each width is a power of two, so exact.
pub(crate) fn double_to_integer(value: f64, width_bytes: u8) -> Result<i64, SqlError> {
    let rounded = value.round_ties_even();
    let limit = match width_bytes {
        2 => 32_768.0,
        4 => 2_147_483_648.0,
        _ => 9_223_372_036_854_775_808.0,
    };
    // NaN fails both comparisons.
    if rounded >= -limit && rounded < limit {
        Ok(rounded as i64)
    } else {
        Err(integer_out_of_range(width_bytes))
    }
}

/// SQL order of floats: NaN equals NaN and is above everything.
#[inline]
pub(crate) fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Three-valued AND: false wins over NULL.
#[inline]
pub(crate) fn and(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(0), _) | (_, Some(0)) => Some(0),
        (Some(_), Some(_)) => Some(1),
        _ => None,
    }
}

/// Three-valued OR: true wins over NULL.
#[inline]
pub(crate) fn or(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(0), Some(0)) => Some(0),
        (Some(a), _) if a != 0 => Some(1),
        (_, Some(b)) if b != 0 => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T: std::fmt::Debug>(result: Result<T, SqlError>) -> (&'static str, String) {
        let error = result.unwrap_err();
        (error.state.0, error.message)
    }

    #[test]
    fn integer_edges() {
        assert_eq!(
            message(integer(Op::Add, i64::MAX, 1)),
            ("22003", "bigint out of range".into())
        );
        assert_eq!(
            message(integer(Op::Sub, i64::MIN, 1)),
            ("22003", "bigint out of range".into())
        );
        assert_eq!(
            message(integer(Op::Mul, i64::MIN, -1)),
            ("22003", "bigint out of range".into())
        );
        assert_eq!(
            message(integer(Op::Div, i64::MIN, -1)),
            ("22003", "bigint out of range".into())
        );
        assert_eq!(
            message(integer(Op::Div, 1, 0)),
            ("22012", "division by zero".into())
        );
        assert_eq!(
            message(integer(Op::Mod, 1, 0)),
            ("22012", "division by zero".into())
        );
        assert_eq!(integer(Op::Mod, i64::MIN, -1).unwrap(), 0);
        assert_eq!(integer(Op::Div, -7, 2).unwrap(), -3);
        assert_eq!(integer(Op::Mod, -7, 2).unwrap(), -1);
        assert_eq!(
            message(narrow(1 << 31, 4)),
            ("22003", "integer out of range".into())
        );
        assert_eq!(
            message(narrow(-32_769, 2)),
            ("22003", "smallint out of range".into())
        );
        assert_eq!(narrow(-(1 << 31), 4).unwrap(), -(1 << 31));
    }

    #[test]
    fn float_edges() {
        let overflow = ("22003", "value out of range: overflow".to_owned());
        let underflow = ("22003", "value out of range: underflow".to_owned());
        assert_eq!(message(double(Op::Fadd, f64::MAX, f64::MAX)), overflow);
        assert_eq!(message(double(Op::Fsub, f64::MIN, f64::MAX)), overflow);
        assert_eq!(message(double(Op::Fmul, 1e300, 1e300)), overflow);
        assert_eq!(message(double(Op::Fmul, 1e-300, 1e-300)), underflow);
        assert_eq!(message(double(Op::Fdiv, 1e-300, 1e300)), underflow);
        assert_eq!(message(double(Op::Fdiv, 1e300, 1e-300)), overflow);
        assert_eq!(
            message(double(Op::Fdiv, 1.0, 0.0)),
            ("22012", "division by zero".into())
        );
        assert_eq!(
            message(double(Op::Fdiv, f64::INFINITY, 0.0)),
            ("22012", "division by zero".into())
        );
        assert!(double(Op::Fdiv, f64::NAN, 0.0).unwrap().is_nan());
        assert_eq!(double(Op::Fdiv, 1.0, f64::INFINITY).unwrap(), 0.0);
        assert!(double(Op::Fsub, f64::INFINITY, f64::INFINITY).unwrap().is_nan());
        assert_eq!(message(real(Op::F4mul, 1e30, 1e30)), overflow);
        assert_eq!(message(double_to_real(1e39)), overflow);
        assert_eq!(message(double_to_real(1e-60)), underflow);
        assert_eq!(double_to_integer(2.5, 4).unwrap(), 2);
        assert_eq!(double_to_integer(-32_768.4, 2).unwrap(), -32_768);
        assert_eq!(
            message(double_to_integer(32_767.5, 2)),
            ("22003", "smallint out of range".into())
        );
        assert_eq!(
            message(double_to_integer(f64::NAN, 4)),
            ("22003", "integer out of range".into())
        );
        assert_eq!(
            message(double_to_integer(9.3e18, 8)),
            ("22003", "bigint out of range".into())
        );
        assert_eq!(compare_floats(f64::NAN, f64::INFINITY), Ordering::Greater);
        assert_eq!(compare_floats(f64::NAN, -f64::NAN), Ordering::Equal);
        assert_eq!(compare_floats(-0.0, 0.0), Ordering::Equal);
    }

    #[test]
    fn three_values() {
        let (t, f, n) = (Some(1), Some(0), None);
        let table = [
            (t, t, t, t),
            (t, f, f, t),
            (t, n, n, t),
            (f, f, f, f),
            (f, n, f, n),
            (n, n, n, n),
        ];
        for (a, b, conjunction, disjunction) in table {
            for (a, b) in [(a, b), (b, a)] {
                assert_eq!(and(a, b), conjunction, "{a:?} and {b:?}");
                assert_eq!(or(a, b), disjunction, "{a:?} or {b:?}");
            }
        }
    }
}
