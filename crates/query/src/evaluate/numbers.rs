//! Integer and float arithmetic: one loop over slices, which only records whether any row failed. If so, a
//! second loop searches for the row, because rows with NULL compute arbitrary values.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, new_null_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use weft_types::{SqlError, SqlState, SqlType};

use super::kernels::Arithmetic;
use super::machine::{Operand, arrow_error};
use crate::schema::arrow_type;

/// Arithmetic in the wider of two integer types.
pub(super) struct IntegerArithmetic {
    op: Arithmetic,
    ty: SqlType,
    data_type: DataType,
}

/// Arithmetic in the wider of two float types.
pub(super) struct FloatArithmetic {
    op: Arithmetic,
    data_type: DataType,
}

impl IntegerArithmetic {
    pub(super) fn choose(op: Arithmetic, left: &SqlType, right: &SqlType, result: &SqlType) -> Option<Self> {
        // The types are ordered from smallint to bigint.
        (left.is_integer() && right.is_integer() && left.max(right) == result).then(|| IntegerArithmetic {
            op,
            ty: *result,
            data_type: arrow_type(result),
        })
    }

    pub(super) fn compute(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
        let (left, right) = (widened(left, &self.data_type)?, widened(right, &self.data_type)?);
        match self.data_type {
            DataType::Int16 => self.integers::<Int16Type>(&left, &right, rows),
            DataType::Int32 => self.integers::<Int32Type>(&left, &right, rows),
            _ => self.integers::<Int64Type>(&left, &right, rows),
        }
    }

    fn integers<T>(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError>
    where
        T: ArrowPrimitiveType,
        T::Native: Overflowing,
    {
        let out_of_range = |_, divisor: T::Native| {
            if divisor.is_zero() && matches!(self.op, Arithmetic::Divide | Arithmetic::Remainder) {
                return division_by_zero();
            }
            SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{} out of range", self.ty.base_name()),
            )
        };
        match self.op {
            Arithmetic::Add => zipped::<T>(left, right, rows, T::Native::add, out_of_range),
            Arithmetic::Subtract => zipped::<T>(left, right, rows, T::Native::subtract, out_of_range),
            Arithmetic::Multiply => zipped::<T>(left, right, rows, T::Native::multiply, out_of_range),
            Arithmetic::Divide => zipped::<T>(left, right, rows, T::Native::divide, out_of_range),
            Arithmetic::Remainder => zipped::<T>(left, right, rows, T::Native::remainder, out_of_range),
        }
    }
}

impl FloatArithmetic {
    pub(super) fn choose(op: Arithmetic, left: &SqlType, right: &SqlType, result: &SqlType) -> Option<Self> {
        let float = |ty: &SqlType| matches!(ty, SqlType::Float4 | SqlType::Float8);
        (op != Arithmetic::Remainder && float(left) && float(right) && left.max(right) == result).then(|| {
            FloatArithmetic {
                op,
                data_type: arrow_type(result),
            }
        })
    }

    pub(super) fn compute(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError> {
        let (left, right) = (widened(left, &self.data_type)?, widened(right, &self.data_type)?);
        match self.data_type {
            DataType::Float32 => self.floats::<Float32Type>(&left, &right, rows),
            _ => self.floats::<Float64Type>(&left, &right, rows),
        }
    }

    fn floats<T>(&self, left: &Operand, right: &Operand, rows: usize) -> Result<ArrayRef, SqlError>
    where
        T: ArrowPrimitiveType,
        T::Native: Floating,
    {
        let op = self.op;
        let failed = move |left: T::Native, right: T::Native| {
            if op == Arithmetic::Divide && right.is_zero() {
                return division_by_zero();
            }
            let overflow = left.result(op, right).is_infinite();
            let what = if overflow { "overflow" } else { "underflow" };
            SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("value out of range: {what}"),
            )
        };
        match op {
            Arithmetic::Add => zipped::<T>(left, right, rows, |a, b| a.checked(Arithmetic::Add, b), failed),
            Arithmetic::Subtract => zipped::<T>(
                left,
                right,
                rows,
                |a, b| a.checked(Arithmetic::Subtract, b),
                failed,
            ),
            Arithmetic::Multiply => zipped::<T>(
                left,
                right,
                rows,
                |a, b| a.checked(Arithmetic::Multiply, b),
                failed,
            ),
            _ => zipped::<T>(left, right, rows, |a, b| a.checked(Arithmetic::Divide, b), failed),
        }
    }
}

pub(super) fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn widened(operand: &Operand, data_type: &DataType) -> Result<Operand, SqlError> {
    if operand.array().data_type() == data_type {
        return Ok(operand.clone());
    }
    let array = cast(operand.array(), data_type).map_err(arrow_error)?;
    Ok(if operand.is_one() {
        Operand::One(array)
    } else {
        Operand::Many(array)
    })
}

/// The NULLs of a result that is NULL where an argument is; `None` if all of it is NULL.
pub(super) fn common_nulls(left: &Operand, right: &Operand) -> Option<Option<NullBuffer>> {
    let nulls = |operand: &Operand| match operand {
        Operand::Many(array) => Some(array.nulls().cloned()),
        Operand::One(array) if array.is_null(0) => None,
        Operand::One(_) => Some(None),
    };
    let (left, right) = (nulls(left)?, nulls(right)?);
    Some(NullBuffer::union(left.as_ref(), right.as_ref()))
}

/// Applies `op` to all pairs. Where it reports a wrong result and neither argument is NULL, `error` makes the
/// error.
fn zipped<T: ArrowPrimitiveType>(
    left: &Operand,
    right: &Operand,
    rows: usize,
    op: impl Fn(T::Native, T::Native) -> (T::Native, bool),
    error: impl Fn(T::Native, T::Native) -> SqlError,
) -> Result<ArrayRef, SqlError> {
    let Some(nulls) = common_nulls(left, right) else {
        return Ok(new_null_array(&T::DATA_TYPE, rows));
    };
    let (a, b) = (
        left.array().as_primitive::<T>(),
        right.array().as_primitive::<T>(),
    );
    let mut wrong = false;
    let mut apply = |a: T::Native, b: T::Native| {
        let (value, bad) = op(a, b);
        wrong |= bad;
        value
    };
    let values: Vec<T::Native> = match (left, right) {
        (Operand::Many(_), Operand::One(_)) => {
            let b = b.value(0);
            a.values().iter().map(|a| apply(*a, b)).collect()
        }
        (Operand::One(_), Operand::Many(_)) => {
            let a = a.value(0);
            b.values().iter().map(|b| apply(a, *b)).collect()
        }
        _ => a
            .values()
            .iter()
            .zip(b.values())
            .map(|(a, b)| apply(*a, *b))
            .collect(),
    };
    if wrong {
        for row in 0..rows {
            let (a, b) = (a.value(left.at(row)), b.value(right.at(row)));
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) && op(a, b).1 {
                return Err(error(a, b));
            }
        }
    }
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// Integer arithmetic that reports errors.
trait Overflowing: Copy {
    fn add(self, other: Self) -> (Self, bool);
    fn subtract(self, other: Self) -> (Self, bool);
    fn multiply(self, other: Self) -> (Self, bool);
    fn divide(self, other: Self) -> (Self, bool);
    fn remainder(self, other: Self) -> (Self, bool);
    fn is_zero(self) -> bool;
}

macro_rules! overflowing {
    ($($int:ty),*) => {
        $(impl Overflowing for $int {
            #[inline(always)]
            fn add(self, other: Self) -> (Self, bool) {
                self.overflowing_add(other)
            }
            #[inline(always)]
            fn subtract(self, other: Self) -> (Self, bool) {
                self.overflowing_sub(other)
            }
            #[inline(always)]
            fn multiply(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
            #[inline(always)]
            fn divide(self, other: Self) -> (Self, bool) {
                self.checked_div(other).map_or((0, true), |value| (value, false))
            }
            /// The smallest integer modulo -1 is 0 and no error.
            #[inline(always)]
            fn remainder(self, other: Self) -> (Self, bool) {
                if other == 0 { (0, true) } else { (self.wrapping_rem(other), false) }
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0
            }
        })*
    };
}

overflowing!(i16, i32, i64);

/// Float arithmetic with PostgreSQL's errors.
trait Floating: Copy {
    fn result(self, op: Arithmetic, other: Self) -> Self;
    fn checked(self, op: Arithmetic, other: Self) -> (Self, bool);
    fn is_zero(self) -> bool;
    fn is_infinite(self) -> bool;
}

macro_rules! floating {
    ($($float:ty),*) => {
        $(impl Floating for $float {
            #[inline(always)]
            fn result(self, op: Arithmetic, other: Self) -> Self {
                match op {
                    Arithmetic::Add => self + other,
                    Arithmetic::Subtract => self - other,
                    Arithmetic::Multiply => self * other,
                    _ => self / other,
                }
            }
            #[inline(always)]
            fn checked(self, op: Arithmetic, other: Self) -> (Self, bool) {
                let value = self.result(op, other);
                let by_zero = op == Arithmetic::Divide && other == 0.0 && !self.is_nan();
                let overflow = value.is_infinite() && !self.is_infinite() && !other.is_infinite();
                let underflow = match op {
                    Arithmetic::Multiply => value == 0.0 && self != 0.0 && other != 0.0,
                    Arithmetic::Divide => value == 0.0 && self != 0.0 && !other.is_infinite(),
                    _ => false,
                };
                (value, by_zero | overflow | underflow)
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0.0
            }
            #[inline(always)]
            fn is_infinite(self) -> bool {
                <$float>::is_infinite(self)
            }
        })*
    };
}

floating!(f32, f64);
