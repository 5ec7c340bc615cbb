//! `sum` with PostgreSQL's result types, and `__single`, which bounds a scalar subquery to one row.
//!
//! sum(smallint | integer) is bigint, sum(bigint) numeric: the input is widened batch by batch and handed to
//! DataFusion's own accumulators, so that no sum can wrap.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use weft_types::{SqlError, SqlState};

use super::super::errors::external;

/// PostgreSQL's `sum`.
pub fn sum() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(PgSum {
        signature: Signature::user_defined(Volatility::Immutable),
        inner: sum_udaf(),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgSum {
    signature: Signature,
    inner: Arc<AggregateUDF>,
}

/// The type that an input is summed in.
fn widened(ty: &DataType) -> DataType {
    match ty {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Int64 | DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::Decimal128(28, 0)
        }
        DataType::Float16 | DataType::Float32 => DataType::Float64,
        other => other.clone(),
    }
}

fn input_type(args: &AccumulatorArgs<'_>) -> DataType {
    args.expr_fields
        .first()
        .map_or(DataType::Null, |field| field.data_type().clone())
}

impl AggregateUDFImpl for PgSum {
    fn name(&self) -> &str {
        "sum"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [DataType::Null] => Ok(vec![DataType::Int32]),
            [ty] if ty.is_numeric() || matches!(ty, DataType::Interval(_) | DataType::Duration(_)) => {
                Ok(vec![ty.clone()])
            }
            _ => datafusion::common::plan_err!(
                "No function matches the given name and argument types 'sum({})'",
                arg_types
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        let wide: Vec<DataType> = arg_types.iter().map(widened).collect();
        self.inner.return_type(&wide)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let to = widened(&input_type(&args));
        Ok(Box::new(Widening {
            inner: self.inner.accumulator(args)?,
            to,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let to = widened(&input_type(&args));
        Ok(Box::new(WideningGroups {
            inner: self.inner.create_groups_accumulator(args)?,
            to,
        }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let to = widened(&input_type(&args));
        Ok(Box::new(Widening {
            inner: self.inner.create_sliding_accumulator(args)?,
            to,
        }))
    }
}

fn widen(values: &[ArrayRef], to: &DataType) -> Result<Vec<ArrayRef>> {
    values
        .iter()
        .map(|array| {
            if array.data_type() == to {
                Ok(Arc::clone(array))
            } else {
                Ok(cast(array, to)?)
            }
        })
        .collect()
}

#[derive(Debug)]
struct Widening {
    inner: Box<dyn Accumulator>,
    to: DataType,
}

impl Accumulator for Widening {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.update_batch(&widen(values, &self.to)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.inner.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.inner.retract_batch(&widen(values, &self.to)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

struct WideningGroups {
    inner: Box<dyn GroupsAccumulator>,
    to: DataType,
}

impl GroupsAccumulator for WideningGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.update_batch(
            &widen(values, &self.to)?,
            group_indices,
            opt_filter,
            total_num_groups,
        )
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.inner.evaluate(emit_to)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.inner.state(emit_to)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.inner.merge_batch(values, group_indices, total_num_groups)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        self.inner.convert_to_state(&widen(values, &self.to)?, opt_filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}

/// The value of the only row; NULL for none, error 21000 for more.
pub fn single() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Single {
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Single {
    signature: Signature,
}

impl AggregateUDFImpl for Single {
    fn name(&self) -> &str {
        "__single"
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
        self.count += count;
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
