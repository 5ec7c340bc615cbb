//! The value of the only row: NULL for no rows, 21000 for several. Checks scalar subqueries.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};
use weft_types::{SqlError, SqlState};

use crate::errors::external;

/// The value of `column` in the only row.
pub fn single(column: Expr) -> Expr {
    Arc::new(AggregateUDF::new_from_impl(Single {
        signature: Signature::any(1, Volatility::Immutable),
    }))
    .call(vec![column])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Single {
    signature: Signature,
}

impl AggregateUDFImpl for Single {
    fn name(&self) -> &str {
        "single"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Null))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SingleAccumulator {
            value: ScalarValue::try_from(args.return_field.data_type())?,
            count: 0,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![
            Arc::new(Field::new(
                format!("{}[value]", args.name),
                args.return_field.data_type().clone(),
                true,
            )),
            Arc::new(Field::new(format!("{}[count]", args.name), DataType::Int64, true)),
        ])
    }
}

#[derive(Debug)]
struct SingleAccumulator {
    value: ScalarValue,
    count: i64,
}

impl SingleAccumulator {
    fn see(&mut self, value: &ArrayRef, row: usize, count: i64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.count = self.count.saturating_add(count);
        if self.count > 1 {
            return Err(external(SqlError::new(
                SqlState::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )));
        }
        self.value = ScalarValue::try_from_array(value, row)?;
        self.value.compact();
        Ok(())
    }
}

impl Accumulator for SingleAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(value) = values.first() {
            for row in 0..value.len().min(2) {
                self.see(value, row, 1)?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), ScalarValue::Int64(Some(self.count))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if let [value, count] = states {
            let count = count.as_primitive::<Int64Type>();
            for row in 0..count.len() {
                let seen = if count.is_null(row) { 0 } else { count.value(row) };
                self.see(value, row, seen)?;
            }
        }
        Ok(())
    }
}
