//! Exact addition, subtraction and multiplication of decimals with PostgreSQL's display scale.
//!
//! The maximum number of digits of a result follows from those of the arguments. Up to 38 digits the result
//! is a Decimal128 column. Beyond, or if an argument is in stored form, the result is in stored form; each
//! number is still computed in a register unless it exceeds 128 bits. What is only added up may instead have
//! up to 76 digits and be a Decimal256 column ([`DecimalArithmetic::choose_wide`]), which is not decoded
//! value by value.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Decimal128Array, Decimal256Array, new_null_array,
};
use datafusion::arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, i256};
use weft_types::{Numeric, SqlError};

use super::kernels::Arithmetic;
use super::machine::Operand;
use super::numbers::common_nulls;
use crate::arrays::decimal;
use crate::columns::{mantissa, put_mantissa};
use crate::schema::{DECIMAL_DIGITS, DECIMAL_NAN, WIDE_NAN};

/// Scales beyond this are left to [`Numeric`].
const SCALE_MAX: u16 = 1000;

/// One operation on two numerics.
pub(super) struct DecimalArithmetic {
    op: Arithmetic,
    data_type: DataType,
    /// Factors for the mantissas of both sides, for a Decimal128 result.
    factors: (i128, i128),
}

impl DecimalArithmetic {
    pub(super) fn choose(op: Arithmetic, left: &DataType, right: &DataType) -> Option<(Self, DataType)> {
        if !is_exact(op) {
            return None;
        }
        let (data_type, factors) = narrow(op, left, right).unwrap_or((DataType::Binary, (1, 1)));
        let arithmetic = DecimalArithmetic {
            op,
            data_type: data_type.clone(),
            factors,
        };
        Some((arithmetic, data_type))
    }

    /// As [`DecimalArithmetic::choose`], for a result of 39 to 76 digits from sides of at most 38.
    pub(super) fn choose_wide(op: Arithmetic, left: &DataType, right: &DataType) -> Option<(Self, DataType)> {
        if !is_exact(op) {
            return None;
        }
        let (precision, scale, factors) = result(op, left, right)?;
        if precision <= i32::from(DECIMAL_DIGITS) || precision > i32::from(DECIMAL256_MAX_PRECISION) {
            return None;
        }
        let data_type = DataType::Decimal256(u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
        let arithmetic = DecimalArithmetic {
            op,
            data_type: data_type.clone(),
            factors,
        };
        Some((arithmetic, data_type))
    }

    pub(super) fn compute(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
        match (
            &self.data_type,
            left.array().data_type(),
            right.array().data_type(),
        ) {
            (DataType::Decimal128(_, _), DataType::Decimal128(_, _), DataType::Decimal128(_, _)) => {
                Ok(self.in_registers(left, right, rows))
            }
            (DataType::Decimal256(_, _), DataType::Decimal128(_, _), DataType::Decimal128(_, _)) => {
                Ok(self.wide(left, right, rows))
            }
            _ => self.stored(left, right, rows),
        }
    }

    /// Computes a result of at most 38 digits from sides of at most 38 digits.
    fn in_registers(&self, left: &Operand, right: &Operand, rows: usize) -> ArrayRef {
        let Some(nulls) = common_nulls(left, right) else {
            return new_null_array(&self.data_type, rows);
        };
        let (a, b) = (
            left.array().as_primitive::<Decimal128Type>().values(),
            right.array().as_primitive::<Decimal128Type>().values(),
        );
        let (up, down) = self.factors;
        // Wrapping, because values under a NULL are arbitrary.
        let apply = |a: i128, b: i128| {
            if a == DECIMAL_NAN || b == DECIMAL_NAN {
                return DECIMAL_NAN;
            }
            let (a, b) = (a.wrapping_mul(up), b.wrapping_mul(down));
            match self.op {
                Arithmetic::Add => a.wrapping_add(b),
                Arithmetic::Subtract => a.wrapping_sub(b),
                _ => a.wrapping_mul(b),
            }
        };
        let values: Vec<i128> = match (left, right) {
            (Operand::Many(_), Operand::One(_)) => {
                let b = b.first().copied().unwrap_or(0);
                a.iter().map(|a| apply(*a, b)).collect()
            }
            (Operand::One(_), Operand::Many(_)) => {
                let a = a.first().copied().unwrap_or(0);
                b.iter().map(|b| apply(a, *b)).collect()
            }
            _ => a.iter().zip(b.iter()).map(|(a, b)| apply(*a, *b)).collect(),
        };
        Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(self.data_type.clone()))
    }

    /// Computes a result of at most 76 digits from sides of at most 38 digits.
    fn wide(&self, left: &Operand, right: &Operand, rows: usize) -> ArrayRef {
        let Some(nulls) = common_nulls(left, right) else {
            return new_null_array(&self.data_type, rows);
        };
        let (a, b) = (
            left.array().as_primitive::<Decimal128Type>().values(),
            right.array().as_primitive::<Decimal128Type>().values(),
        );
        let (up, down) = (i256::from_i128(self.factors.0), i256::from_i128(self.factors.1));
        // Wrapping, because values under a NULL are arbitrary.
        let apply = |a: i128, b: i128| {
            if a == DECIMAL_NAN || b == DECIMAL_NAN {
                return WIDE_NAN;
            }
            if self.op == Arithmetic::Multiply {
                // Most numbers are small, and two registers multiply sooner than four.
                return match (i64::try_from(a), i64::try_from(b)) {
                    (Ok(a), Ok(b)) => i256::from_i128(i128::from(a) * i128::from(b)),
                    _ => i256::from_i128(a).wrapping_mul(i256::from_i128(b)),
                };
            }
            let (a, b) = (
                i256::from_i128(a).wrapping_mul(up),
                i256::from_i128(b).wrapping_mul(down),
            );
            match self.op {
                Arithmetic::Add => a.wrapping_add(b),
                _ => a.wrapping_sub(b),
            }
        };
        let at = |values: &[i128], operand: &Operand, row: usize| {
            let row = if operand.is_one() { 0 } else { row };
            values.get(row).copied().unwrap_or(0)
        };
        let values: Vec<i256> = (0..rows)
            .map(|row| apply(at(a, left, row), at(b, right, row)))
            .collect();
        Arc::new(Decimal256Array::new(values.into(), nulls).with_data_type(self.data_type.clone()))
    }

    fn stored(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
        let Some(nulls) = common_nulls(left, right) else {
            return Ok(new_null_array(&DataType::Binary, rows));
        };
        let (a, b) = (Numbers::new(left.array())?, Numbers::new(right.array())?);
        let mut builder = BinaryBuilder::with_capacity(rows, rows * 10);
        let mut room = Vec::new();
        for row in 0..rows {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                builder.append_null();
                continue;
            }
            let (at, bt) = (left.at(row), right.at(row));
            room.clear();
            let quick = match (a.parts(at), b.parts(bt)) {
                (Some(a), Some(b)) => self.quick(a, b),
                _ => None,
            };
            match quick {
                Some((mantissa, scale)) => put_mantissa(&mut room, mantissa, scale),
                None => {
                    let (a, b) = (a.numeric(at)?, b.numeric(bt)?);
                    let value = match self.op {
                        Arithmetic::Add => a.add(&b)?,
                        Arithmetic::Subtract => a.sub(&b)?,
                        _ => a.mul(&b)?,
                    };
                    value.encode(&mut room);
                }
            }
            builder.append_value(&room);
        }
        Ok(Arc::new(builder.finish()))
    }

    /// The result, unless it exceeds 128 bits.
    fn quick(&self, (a, s): (i128, u16), (b, t): (i128, u16)) -> Option<(i128, u16)> {
        if s > SCALE_MAX || t > SCALE_MAX {
            return None;
        }
        if self.op == Arithmetic::Multiply {
            return Some((a.checked_mul(b)?, s + t));
        }
        let scale = s.max(t);
        let a = a.checked_mul(10_i128.checked_pow(u32::from(scale - s))?)?;
        let b = b.checked_mul(10_i128.checked_pow(u32::from(scale - t))?)?;
        let value = if self.op == Arithmetic::Add {
            a.checked_add(b)?
        } else {
            a.checked_sub(b)?
        };
        Some((value, scale))
    }
}

/// Whether a result has no more digits than follow from those of the arguments.
fn is_exact(op: Arithmetic) -> bool {
    matches!(op, Arithmetic::Add | Arithmetic::Subtract | Arithmetic::Multiply)
}

/// The Decimal128 type that can represent every result, and the factors that align the scales of both sides.
fn narrow(op: Arithmetic, left: &DataType, right: &DataType) -> Option<(DataType, (i128, i128))> {
    let (precision, scale, factors) = result(op, left, right)?;
    if precision > i32::from(DECIMAL_DIGITS) {
        return None;
    }
    let data_type = DataType::Decimal128(u8::try_from(precision).ok()?, i8::try_from(scale).ok()?);
    Some((data_type, factors))
}

/// Digits and scale of every result of two Decimal128 columns, and the factors that align the scales.
fn result(op: Arithmetic, left: &DataType, right: &DataType) -> Option<(i32, i32, (i128, i128))> {
    let (DataType::Decimal128(p, s), DataType::Decimal128(q, t)) = (left, right) else {
        return None;
    };
    let (p, s, q, t) = (i32::from(*p), i32::from(*s), i32::from(*q), i32::from(*t));
    if op == Arithmetic::Multiply {
        return Some((p + q, s + t, (1, 1)));
    }
    let scale = s.max(t);
    let factor = |own: i32| 10_i128.checked_pow(u32::try_from(scale - own).ok()?);
    Some(((p - s).max(q - t) + scale + 1, scale, (factor(s)?, factor(t)?)))
}

/// A column of numerics in either form.
pub(super) enum Numbers<'a> {
    Decimal(&'a Decimal128Array, u16),
    Stored(&'a BinaryArray),
}

impl<'a> Numbers<'a> {
    pub(super) fn new(array: &'a ArrayRef) -> Result<Numbers<'a>, SqlError> {
        match array.data_type() {
            DataType::Decimal128(_, scale) => Ok(Numbers::Decimal(
                array.as_primitive(),
                u16::from(scale.unsigned_abs()),
            )),
            DataType::Binary => Ok(Numbers::Stored(array.as_binary())),
            other => Err(SqlError::internal(format!("numerics do not lie as {other}"))),
        }
    }

    /// Mantissa and scale; `None` for NaN and for numbers beyond 128 bits.
    pub(super) fn parts(&self, row: usize) -> Option<(i128, u16)> {
        match self {
            Numbers::Decimal(array, scale) => {
                let mantissa = array.value(row);
                (mantissa != DECIMAL_NAN).then_some((mantissa, *scale))
            }
            Numbers::Stored(array) => mantissa(array.value(row)),
        }
    }

    pub(super) fn numeric(&self, row: usize) -> Result<Numeric, SqlError> {
        match self {
            Numbers::Decimal(array, scale) => Ok(decimal(array.value(row), *scale)),
            Numbers::Stored(array) => {
                Numeric::decode(array.value(row)).map_err(|error| SqlError::internal(error.to_string()))
            }
        }
    }
}
