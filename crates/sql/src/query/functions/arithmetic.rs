//! Arithmetic that fails instead of wrapping, and PostgreSQL's numeric division and rounding.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal256Array, Float64Array, new_null_array};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, Float64Type, i256};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use weft_types::{SqlError, SqlState};

use super::super::columns::numeric_overflow;
use super::super::errors::{division_by_zero, external};
use super::super::numeric::{quotient, round_at};
use super::super::schema::{NUMERIC_PRECISION, QUOTIENT_SCALE};

/// Integer `op` of two operands of one type.
pub fn checked_integer(op: Operator) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(CheckedInteger {
        op,
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedInteger {
    op: Operator,
    signature: Signature,
}

impl ScalarUDFImpl for CheckedInteger {
    fn name(&self) -> &str {
        match self.op {
            Operator::Plus => "__int_add",
            Operator::Minus => "__int_subtract",
            Operator::Multiply => "__int_multiply",
            Operator::Divide => "__int_divide",
            _ => "__int_modulo",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Int64))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return datafusion::common::internal_err!("{} takes two operands", self.name());
        };
        let kernel = match self.op {
            Operator::Plus => numeric::add,
            Operator::Minus => numeric::sub,
            Operator::Multiply => numeric::mul,
            Operator::Divide => numeric::div,
            _ => numeric::rem,
        };
        let computed = match (left, right) {
            (ColumnarValue::Array(left), ColumnarValue::Array(right)) => kernel(left, right),
            (ColumnarValue::Array(left), ColumnarValue::Scalar(right)) => kernel(left, &right.to_scalar()?),
            (ColumnarValue::Scalar(left), ColumnarValue::Array(right)) => kernel(&left.to_scalar()?, right),
            (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) => {
                let one = kernel(&left.to_scalar()?, &right.to_scalar()?)
                    .map_err(|e| integer_error(e, args.return_type()))?;
                return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?));
            }
        };
        Ok(ColumnarValue::Array(
            computed.map_err(|error| integer_error(error, args.return_type()))?,
        ))
    }
}

fn integer_error(error: ArrowError, ty: &DataType) -> DataFusionError {
    match error {
        ArrowError::DivideByZero => external(division_by_zero()),
        ArrowError::ArithmeticOverflow(_) => {
            let name = match ty {
                DataType::Int16 => "smallint",
                DataType::Int32 => "integer",
                _ => "bigint",
            };
            external(SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!("{name} out of range"),
            ))
        }
        other => DataFusionError::from(other),
    }
}

/// numeric / numeric.
pub fn numeric_divide() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(NumericDivide {
        signature: Signature::any(2, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericDivide {
    signature: Signature,
}

impl ScalarUDFImpl for NumericDivide {
    fn name(&self) -> &str {
        "__numeric_divide"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal256(NUMERIC_PRECISION, QUOTIENT_SCALE))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else {
            return datafusion::common::internal_err!("a division takes two operands");
        };
        let (left_scale, right_scale) = (scale_of(left), scale_of(right));
        let (left, right) = (
            left.as_primitive::<Decimal256Type>(),
            right.as_primitive::<Decimal256Type>(),
        );
        let mut values: Vec<Option<i256>> = Vec::with_capacity(left.len());
        for row in 0..left.len() {
            if left.is_null(row) || right.is_null(row) {
                values.push(None);
                continue;
            }
            if right.value(row) == i256::ZERO {
                return Err(external(division_by_zero()));
            }
            let divided = quotient(
                (left.value(row), left_scale),
                (right.value(row), right_scale),
                QUOTIENT_SCALE,
            );
            values.push(Some(divided.ok_or_else(|| external(numeric_overflow()))?));
        }
        let array =
            Decimal256Array::from(values).with_precision_and_scale(NUMERIC_PRECISION, QUOTIENT_SCALE)?;
        Ok(ColumnarValue::Array(Arc::new(array)))
    }
}

fn scale_of(array: &ArrayRef) -> i8 {
    match array.data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// `round(numeric [, digits])`, `round(double precision)`.
pub fn round() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Round {
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Round {
    signature: Signature,
}

impl ScalarUDFImpl for Round {
    fn name(&self) -> &str {
        "round"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let value = match arg_types.first() {
            Some(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
                DataType::Decimal256(NUMERIC_PRECISION, *scale)
            }
            Some(ty) if arg_types.len() == 2 && ty.is_integer() => DataType::Decimal256(NUMERIC_PRECISION, 0),
            Some(ty) if arg_types.len() == 1 && (ty.is_numeric() || *ty == DataType::Null) => {
                DataType::Float64
            }
            _ => {
                return datafusion::common::plan_err!(
                    "No function matches the given name and argument types 'round({})'",
                    arg_types
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join(", ")
                );
            }
        };
        let mut types = vec![value];
        if arg_types.len() == 2 {
            types.push(DataType::Int64);
        }
        Ok(types)
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Float64))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ty = match args.arg_fields.first().map(|field| field.data_type()) {
            Some(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
                let digits = match args.scalar_arguments.get(1) {
                    None => 0,
                    Some(Some(digits)) => integer_of(digits).unwrap_or(i64::from(*scale)),
                    Some(None) => i64::from(*scale),
                };
                DataType::Decimal256(NUMERIC_PRECISION, digits.clamp(0, 38) as i8)
            }
            _ => DataType::Float64,
        };
        Ok(Arc::new(Field::new(self.name(), ty, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(value) = arrays.first() else {
            return datafusion::common::internal_err!("round takes an operand");
        };
        let DataType::Decimal256(_, to) = args.return_type() else {
            let values: Float64Array = value.as_primitive::<Float64Type>().unary(f64::round_ties_even);
            return Ok(ColumnarValue::Array(Arc::new(values)));
        };
        let to = *to;
        let from = scale_of(value);
        let digits = arrays
            .get(1)
            .map(|digits| digits.as_primitive::<datafusion::arrow::datatypes::Int64Type>());
        let value = value.as_primitive::<Decimal256Type>();
        if value.null_count() == value.len() {
            return Ok(ColumnarValue::Array(new_null_array(
                args.return_type(),
                value.len(),
            )));
        }
        let mut rounded: Vec<Option<i256>> = Vec::with_capacity(value.len());
        for row in 0..value.len() {
            if value.is_null(row) || digits.is_some_and(|digits| digits.is_null(row)) {
                rounded.push(None);
                continue;
            }
            let places = digits.map_or(0, |digits| digits.value(row)).clamp(-80, 80) as i32;
            let at_scale = round_at(value.value(row), i32::from(from), places)
                .and_then(|value| rescale(value, from, to))
                .ok_or_else(|| external(numeric_overflow()))?;
            rounded.push(Some(at_scale));
        }
        let array = Decimal256Array::from(rounded).with_precision_and_scale(NUMERIC_PRECISION, to)?;
        Ok(ColumnarValue::Array(Arc::new(array)))
    }
}

/// Changes the scale; digits that go are rounded.
pub fn rescale(value: i256, from: i8, to: i8) -> Option<i256> {
    let shift = i32::from(to) - i32::from(from);
    let unit = super::super::numeric::power_of_ten(shift.unsigned_abs())?;
    if shift >= 0 {
        value.checked_mul(unit)
    } else {
        super::super::numeric::divide_rounded(value, unit)
    }
}

fn integer_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}
