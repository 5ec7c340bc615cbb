//! Some value of a group: chooses one of several keys that are equal but displayed differently (1.0 and
//! 1.00).

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

/// The first value of `column` that is not NULL; NULL if there is none.
pub fn first(column: Expr) -> Expr {
    Arc::new(AggregateUDF::new_from_impl(First {
        signature: Signature::any(1, Volatility::Immutable),
    }))
    .call(vec![column])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct First {
    signature: Signature,
}

impl AggregateUDFImpl for First {
    fn name(&self) -> &str {
        "first"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Null))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(FirstAccumulator {
            value: ScalarValue::try_from(args.return_field.data_type())?,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let ty = args.return_field.data_type().clone();
        Ok(vec![Arc::new(Field::new(
            format!("{}[value]", args.name),
            ty,
            true,
        ))])
    }
}

#[derive(Debug)]
struct FirstAccumulator {
    value: ScalarValue,
}

impl Accumulator for FirstAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        if let Some(values) = values.first()
            && self.value.is_null()
            && let Some(row) = (0..values.len()).find(|row| !values.is_null(*row))
        {
            self.value = ScalarValue::try_from_array(values, row)?;
            self.value.compact();
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
        Ok(vec![self.value.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
