//! Vectorised casts: between integers, to floats, between decimals, of dates to timestamps, and casts that
//! change nothing.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int16Type, Int32Type, Int64Type};
use weft_expression::Node;
use weft_expression::functions::datetime::midnight_compared;
use weft_types::{SqlError, SqlState, SqlType};

use super::machine::arrow_error;
use crate::schema::{DECIMAL_NAN, arrow_type, column_type};

/// A cast over a column.
pub(super) enum Conversion {
    /// Only the type changes.
    Same,
    /// Arrow's cast, which cannot fail here.
    Arrow,
    /// To a narrower integer.
    Narrow(SqlType),
    /// Multiplies mantissas.
    Scale(i128),
    /// Midnights of dates that are compared with timestamps.
    Midnight,
}

/// Whether a cast cannot fail and is nearly free.
pub(super) fn is_free_cast(from: &SqlType, to: &SqlType) -> bool {
    is_same(from, to)
        || (from.is_integer() && to.is_integer() && from <= to)
        || (from.is_integer() && matches!(to, SqlType::Float8 | SqlType::Numeric(None)))
        || matches!((from, to), (SqlType::Float4, SqlType::Float8))
}

fn is_same(from: &SqlType, to: &SqlType) -> bool {
    match to {
        SqlType::Text | SqlType::Varchar(None) => from.is_text(),
        SqlType::Numeric(None) => matches!(from, SqlType::Numeric(_)),
        to => from == to,
    }
}

/// Maximum number of digits of an integer type.
fn digits(ty: &SqlType) -> u8 {
    match ty {
        SqlType::Int2 => 5,
        SqlType::Int4 => 10,
        _ => 19,
    }
}

impl Conversion {
    pub(super) fn choose(
        from: &SqlType,
        node: &Node,
        arguments: &[(SqlType, DataType)],
    ) -> Option<(Conversion, DataType)> {
        let [(_, found)] = arguments else { return None };
        let to = &node.ty;
        if is_same(from, to) {
            return Some((Conversion::Same, found.clone()));
        }
        match (from, to) {
            (from, SqlType::Numeric(None)) if from.is_integer() => {
                Some((Conversion::Scale(1), DataType::Decimal128(digits(from), 0)))
            }
            (from, SqlType::Float4 | SqlType::Float8) if from.is_integer() => {
                Some((Conversion::Arrow, arrow_type(to)))
            }
            (SqlType::Float4, SqlType::Float8) => Some((Conversion::Arrow, arrow_type(to))),
            (from, to) if from.is_integer() && to.is_integer() => {
                let conversion = if from < to {
                    Conversion::Arrow
                } else {
                    Conversion::Narrow(*to)
                };
                Some((conversion, arrow_type(to)))
            }
            (from, SqlType::Numeric(Some(_))) => {
                let (p, s) = match (from, found) {
                    (SqlType::Numeric(_), DataType::Decimal128(p, s)) => (*p, *s),
                    (from, _) if from.is_integer() => (digits(from), 0),
                    _ => return None,
                };
                let target = column_type(to);
                let DataType::Decimal128(q, t) = target else {
                    return None;
                };
                // No digit is lost on either side of the decimal point.
                let fits = s <= t && i16::from(p) - i16::from(s) <= i16::from(q) - i16::from(t);
                let factor = 10_i128.checked_pow(u32::from((t - s).unsigned_abs()))?;
                fits.then_some((Conversion::Scale(factor), target))
            }
            _ => None,
        }
    }

    pub(super) fn compute(&self, array: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, SqlError> {
        match self {
            Conversion::Same => Ok(Arc::clone(array)),
            Conversion::Arrow => cast(array, data_type).map_err(arrow_error),
            Conversion::Narrow(to) => {
                let wide = cast(array, &DataType::Int64).map_err(arrow_error)?;
                let wide = wide.as_primitive::<Int64Type>();
                match to {
                    SqlType::Int2 => narrowed::<Int16Type>(wide, to),
                    _ => narrowed::<Int32Type>(wide, to),
                }
            }
            Conversion::Scale(factor) => Ok(scaled(array, *factor, data_type)),
            Conversion::Midnight => {
                let days = array.as_primitive::<Int32Type>();
                let midnights: PrimitiveArray<Int64Type> = days.unary(midnight_compared);
                Ok(Arc::new(midnights))
            }
        }
    }
}

fn narrowed<T>(wide: &PrimitiveArray<Int64Type>, to: &SqlType) -> Result<ArrayRef, SqlError>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let narrow: Result<PrimitiveArray<T>, SqlError> = wide.try_unary(|value| {
        T::Native::try_from(value).map_err(|_| {
            SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{} out of range", to.base_name()),
            )
        })
    });
    Ok(Arc::new(narrow?))
}

fn scaled(array: &ArrayRef, factor: i128, data_type: &DataType) -> ArrayRef {
    let scale = |value: i128| {
        if value == DECIMAL_NAN {
            value
        } else {
            value.wrapping_mul(factor)
        }
    };
    let values: Vec<i128> = match array.data_type() {
        DataType::Int16 => integers::<Int16Type>(array, factor),
        DataType::Int32 => integers::<Int32Type>(array, factor),
        DataType::Int64 => integers::<Int64Type>(array, factor),
        _ => array
            .as_primitive::<Decimal128Type>()
            .values()
            .iter()
            .map(|value| scale(*value))
            .collect(),
    };
    Arc::new(Decimal128Array::new(values.into(), array.nulls().cloned()).with_data_type(data_type.clone()))
}

fn integers<T>(array: &ArrayRef, factor: i128) -> Vec<i128>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i128>,
{
    let values = array.as_primitive::<T>().values();
    values
        .iter()
        .map(|value| Into::<i128>::into(*value).wrapping_mul(factor))
        .collect()
}
