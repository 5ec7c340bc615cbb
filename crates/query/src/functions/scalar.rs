//! Scalar functions that lowering creates: each computes one of our expressions over columns.
//!
//! Two functions are equal if they have the same number. Numbers are unique within a lowering, so that
//! DataFusion can compare plans and never mistakes two different expressions for the same.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use weft_types::{SqlError, SqlType};

use crate::arrays::{converted, order_key};
use crate::errors::external;
use crate::evaluate::BatchExpr;

/// A computation over columns.
pub enum Computation {
    /// An expression; the arguments are its inputs, in order.
    Expression(BatchExpr),
    /// Keys with PostgreSQL's order of the one argument.
    OrderKey(SqlType),
    /// A key that is equal if all arguments are, NULL being equal to NULL; never NULL.
    RowKey,
    /// The one argument in another Arrow type of the same SQL type.
    Converted(SqlType, DataType),
}

impl Computation {
    fn compute(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, SqlError> {
        match (self, columns) {
            (Computation::Expression(expr), _) => expr.evaluate(columns, rows),
            (Computation::OrderKey(ty), [column]) => order_key(column, ty),
            (Computation::Converted(ty, to), [column]) => converted(column, ty, to),
            (Computation::RowKey, _) => row_key(columns),
            _ => Err(SqlError::internal("a function of one column got several")),
        }
    }
}

/// A [`Computation`] as a scalar function.
struct Computed {
    name: String,
    number: u32,
    computation: Computation,
    ty: DataType,
    signature: Signature,
}

/// Makes the function `number`, displayed as `name`, with values of the Arrow type `ty`.
pub fn computed(
    name: String,
    number: u32,
    computation: Computation,
    ty: DataType,
    volatility: Volatility,
) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(Computed {
        name,
        number,
        computation,
        ty,
        signature: Signature::one_of(
            vec![TypeSignature::Nullary, TypeSignature::VariadicAny],
            volatility,
        ),
    }))
}

impl Computed {
    /// A function without arguments is one scalar for all rows; without rows it is not computed.
    fn one_value(&self, rows: usize) -> Result<ColumnarValue> {
        if rows == 0 {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(&self.ty)?));
        }
        let array = self.computation.compute(&[], 1).map_err(external)?;
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PartialEq for Computed {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Computed {}

impl Hash for Computed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl ScalarUDFImpl for Computed {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.ty.clone())
    }

    fn return_field_from_args(&self, _args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = !matches!(self.computation, Computation::RowKey);
        Ok(Arc::new(Field::new(&self.name, self.ty.clone(), nullable)))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        if args.args.is_empty() && self.signature.volatility != Volatility::Volatile {
            return self.one_value(rows);
        }
        let columns = args
            .args
            .into_iter()
            .map(|argument| argument.into_array(rows))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let array = self.computation.compute(&columns, rows).map_err(external)?;
        Ok(ColumnarValue::Array(array))
    }
}

fn row_key(columns: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let fields = columns
        .iter()
        .map(|column| SortField::new(column.data_type().clone()));
    let rows = RowConverter::new(fields.collect())
        .and_then(|converter| converter.convert_columns(columns))
        .and_then(datafusion::arrow::row::Rows::try_into_binary);
    match rows {
        Ok(rows) => Ok(Arc::new(rows)),
        Err(error) => Err(crate::errors::sql_error(error.into())),
    }
}
