//! `__cast(value, 'oid:typmod')`: an explicit cast as PostgreSQL does it.
//!
//! Arrow's own casts truncate where PostgreSQL rounds, write timestamps with a T and know neither uuid nor
//! varchar(n). Where both agree (widening integers, anything to double precision) the call becomes Arrow's
//! cast when the plan is simplified; elsewhere every value goes through [`weft_types::cast`].

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::super::errors::external;
use super::super::results::{ValueColumn, array_of_values};
use super::super::schema::{arrow_type, sql_type_of, type_metadata};

/// The cast function.
pub fn pg_cast() -> Arc<ScalarUDF> {
    static CAST: std::sync::OnceLock<Arc<ScalarUDF>> = std::sync::OnceLock::new();
    Arc::clone(CAST.get_or_init(|| {
        Arc::new(ScalarUDF::new_from_impl(PgCast {
            signature: Signature::any(2, Volatility::Immutable),
        }))
    }))
}

/// `expr::ty`.
pub fn cast_to(expr: Expr, ty: &SqlType) -> Expr {
    let target = ScalarValue::from(format!("{}:{}", ty.oid(), ty.typmod()));
    Expr::ScalarFunction(ScalarFunction::new_udf(
        pg_cast(),
        vec![expr, Expr::Literal(target, None)],
    ))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgCast {
    signature: Signature,
}

fn target(argument: Option<&ScalarValue>) -> Result<SqlType> {
    let text = match argument {
        Some(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text))) => text,
        _ => return datafusion::common::plan_err!("Invalid function '__cast'"),
    };
    text.split_once(':')
        .and_then(|(oid, typmod)| SqlType::from_typmod(oid.parse().ok()?, typmod.parse().ok()?))
        .ok_or_else(|| {
            external(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("type {text} does not exist"),
            ))
        })
}

/// Whether Arrow converts exactly as PostgreSQL does.
fn arrow_agrees(from: &DataType, to: &SqlType) -> bool {
    use DataType as T;
    match to {
        SqlType::Int4 => matches!(from, T::Int16),
        SqlType::Int8 => matches!(from, T::Int16 | T::Int32 | T::UInt32),
        SqlType::Float8 => {
            matches!(
                from,
                T::Int16 | T::Int32 | T::Int64 | T::Decimal128(_, _) | T::Decimal256(_, _)
            )
        }
        SqlType::Float4 => matches!(from, T::Int16 | T::Int32 | T::Int64),
        SqlType::Timestamp | SqlType::TimestampTz => matches!(from, T::Date32 | T::Timestamp(_, _)),
        SqlType::Date => matches!(from, T::Timestamp(_, None)),
        _ => false,
    }
}

impl ScalarUDFImpl for PgCast {
    fn name(&self) -> &str {
        "__cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        datafusion::common::internal_err!("the type of a cast follows from its argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let ty = target(args.scalar_arguments.get(1).copied().flatten())?;
        Ok(Arc::new(
            Field::new("__cast", arrow_type(&ty), true).with_metadata(type_metadata(&ty)),
        ))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [value, Expr::Literal(named, _)] = args.as_slice() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let ty = target(Some(named))?;
        let from = info.get_data_type(value)?;
        let to = arrow_type(&ty);
        let same = from == to
            && matches!(
                ty,
                SqlType::Bool
                    | SqlType::Int2
                    | SqlType::Int4
                    | SqlType::Int8
                    | SqlType::Float4
                    | SqlType::Float8
                    | SqlType::Date
                    | SqlType::Timestamp
                    | SqlType::TimestampTz
                    | SqlType::Uuid
                    | SqlType::Bytea
            );
        if same {
            return Ok(ExprSimplifyResult::Simplified(value.clone()));
        }
        if arrow_agrees(&from, &ty) {
            return Ok(ExprSimplifyResult::Simplified(Expr::Cast(Cast::new(
                Box::new(value.clone()),
                to,
            ))));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let ty = match args.args.get(1) {
            Some(ColumnarValue::Scalar(named)) => target(Some(named))?,
            _ => return datafusion::common::internal_err!("a cast names its type"),
        };
        let from_field = args.arg_fields.first().cloned();
        match args.args.first() {
            Some(ColumnarValue::Array(array)) => {
                Ok(ColumnarValue::Array(convert(array, from_field.as_deref(), &ty)?))
            }
            Some(ColumnarValue::Scalar(scalar)) => {
                let one = convert(&scalar.to_array()?, from_field.as_deref(), &ty)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&one, 0)?))
            }
            None => datafusion::common::internal_err!("a cast takes a value"),
        }
    }
}

fn convert(array: &ArrayRef, field: Option<&Field>, ty: &SqlType) -> Result<ArrayRef> {
    let to = arrow_type(ty);
    if array.data_type() == &to && matches!(ty, SqlType::Text | SqlType::Varchar(None)) {
        return Ok(Arc::clone(array));
    }
    if arrow_agrees(array.data_type(), ty) {
        return Ok(datafusion::arrow::compute::cast(array, &to)?);
    }
    let from = match field {
        Some(field) if field.data_type() == array.data_type() => sql_type_of(field),
        _ => super::super::schema::sql_type_of_arrow(array.data_type()),
    };
    // char(n) loses its padding in any cast, and Arrow holds it without.
    let from = if matches!(from, SqlType::Char(_)) {
        SqlType::Text
    } else {
        from
    };
    let column = ValueColumn::new(array, &from).map_err(external)?;
    let mut values = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        let value = column.value(row, &from).map_err(external)?;
        values.push(match value {
            Value::Null => Value::Null,
            value => weft_types::cast_from(value, &from, ty).map_err(external)?,
        });
    }
    array_of_values(&values, ty).map_err(external)
}

/// `__array(list)`: the empty array for NULL, as `ARRAY(subquery)` gives.
pub fn array_or_empty() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ArrayOrEmpty {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOrEmpty {
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "__array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(match arg_types.first() {
            Some(list @ DataType::List(_)) => list.clone(),
            _ => DataType::new_list(DataType::Utf8, true),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(array) = arrays.first() else {
            return datafusion::common::internal_err!("an array takes a subquery");
        };
        let DataType::List(item) = array.data_type() else {
            let mut empty = ListBuilder::new(StringBuilder::new());
            (0..array.len()).for_each(|_| empty.append(true));
            return Ok(ColumnarValue::Array(Arc::new(empty.finish())));
        };
        if array.null_count() == 0 {
            return Ok(ColumnarValue::Array(Arc::clone(array)));
        }
        let empty = ScalarValue::List(ScalarValue::new_list(&[], item.data_type(), item.is_nullable()));
        let list = array.as_list::<i32>();
        let mut scalars = Vec::with_capacity(list.len());
        for row in 0..list.len() {
            scalars.push(if list.is_null(row) {
                empty.clone()
            } else {
                ScalarValue::try_from_array(array, row)?
            });
        }
        Ok(ColumnarValue::Array(ScalarValue::iter_to_array(scalars)?))
    }
}

/// `__plain(x)`: x, whose exact type (varchar(3), numeric(5,2)) is forgotten.
pub fn plain() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Plain {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Plain {
    signature: Signature,
}

impl ScalarUDFImpl for Plain {
    fn name(&self) -> &str {
        "__plain"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.pop() {
            Some(value) => Ok(value),
            None => datafusion::common::internal_err!("__plain takes a value"),
        }
    }
}

/// `x::oid`.
pub fn oid() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(ToOid {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToOid {
    signature: Signature,
}

impl ScalarUDFImpl for ToOid {
    fn name(&self) -> &str {
        "__oid"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let Some(array) = arrays.first() else {
            return datafusion::common::internal_err!("a cast takes a value");
        };
        let options = datafusion::arrow::compute::CastOptions {
            safe: false,
            ..Default::default()
        };
        let oids = datafusion::arrow::compute::cast_with_options(array, &DataType::UInt32, &options)?;
        Ok(ColumnarValue::Array(oids))
    }
}
