//! Operations of registers, by the functions that operators have everywhere ([`weft_expression`]).
//!
//! Integers are computed in 64 bits; a narrower result is checked by NARROW afterwards, which is exact
//! because no operation on narrower operands leaves 64 bits.

use weft_expression::functions::numbers::{float4, float8, int8};
use weft_types::range::out_of_range;
use weft_types::{SqlError, SqlType, float_to_integer};

use crate::instr::Op;

/// The integer type of some bytes.
const fn integer_type(width_bytes: u8) -> SqlType {
    match width_bytes {
        2 => SqlType::Int2,
        4 => SqlType::Int4,
        _ => SqlType::Int8,
    }
}

/// 22003 for an integer of some bytes.
#[cold]
pub(crate) fn integer_out_of_range(width_bytes: u8) -> SqlError {
    out_of_range(&integer_type(width_bytes))
}

/// ADD SUB MUL DIV MOD.
#[inline]
pub(crate) fn integer(op: Op, a: i64, b: i64) -> Result<i64, SqlError> {
    match op {
        Op::Add => int8::add(a, b),
        Op::Sub => int8::sub(a, b),
        Op::Mul => int8::mul(a, b),
        Op::Div => int8::div(a, b),
        _ => int8::rem(a, b),
    }
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

/// FADD FSUB FMUL FDIV.
#[inline]
pub(crate) fn double(op: Op, a: f64, b: f64) -> Result<f64, SqlError> {
    match op {
        Op::Fadd => float8::add(a, b),
        Op::Fsub => float8::sub(a, b),
        Op::Fmul => float8::mul(a, b),
        _ => float8::div(a, b),
    }
}

/// F4ADD F4SUB F4MUL F4DIV.
#[inline]
pub(crate) fn real(op: Op, a: f32, b: f32) -> Result<f32, SqlError> {
    match op {
        Op::F4add => float4::add(a, b),
        Op::F4sub => float4::sub(a, b),
        Op::F4mul => float4::mul(a, b),
        _ => float4::div(a, b),
    }
}

/// FTOI: half to even, then the range of the width.
pub(crate) fn double_to_integer(value: f64, width_bytes: u8) -> Result<i64, SqlError> {
    float_to_integer(value, &integer_type(width_bytes))
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
    use std::cmp::Ordering;

    use weft_types::{compare_floats, narrow_float};

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
        assert_eq!(message(narrow_float(1e39)), overflow);
        assert_eq!(message(narrow_float(1e-60)), underflow);
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
