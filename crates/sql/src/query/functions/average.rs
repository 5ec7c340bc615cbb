//! `avg` of integers and numerics: an exact sum divided once at the end, with PostgreSQL's number of digits.
//! Floats go to DataFusion's own.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Field, FieldRef, Int64Type, i256};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

use super::super::columns::numeric_overflow;
use super::super::errors::external;
use super::super::numeric::quotient;
use super::super::schema::{NUMERIC_PRECISION, QUOTIENT_SCALE};

/// PostgreSQL's `avg`.
pub fn avg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(PgAvg {
        signature: Signature::user_defined(Volatility::Immutable),
        inner: avg_udaf(),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PgAvg {
    signature: Signature,
    inner: Arc<AggregateUDF>,
}

/// The scale that an input is summed at; `None` for what DataFusion averages.
fn exact_scale(ty: &DataType) -> Option<i8> {
    match ty {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        ty if ty.is_integer() => Some(0),
        _ => None,
    }
}

fn input_scale(args: &AccumulatorArgs<'_>) -> Option<i8> {
    exact_scale(args.expr_fields.first()?.data_type())
}

impl AggregateUDFImpl for PgAvg {
    fn name(&self) -> &str {
        "avg"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match arg_types {
            [DataType::Null] => Ok(vec![DataType::Int32]),
            [ty] if exact_scale(ty).is_some() => Ok(vec![ty.clone()]),
            [ty] if ty.is_floating() => Ok(vec![DataType::Float64]),
            [ty @ DataType::Duration(_)] => Ok(vec![ty.clone()]),
            _ => datafusion::common::plan_err!(
                "No function matches the given name and argument types 'avg({})'",
                arg_types
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(ty) if exact_scale(ty).is_some() => {
                Ok(DataType::Decimal256(NUMERIC_PRECISION, QUOTIENT_SCALE))
            }
            _ => self.inner.return_type(arg_types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match input_scale(&args) {
            Some(_) if args.is_distinct => {
                datafusion::common::not_impl_err!("avg(DISTINCT ...) is not supported")
            }
            Some(scale) => Ok(Box::new(ExactAverage {
                sum: i256::ZERO,
                count: 0,
                scale,
            })),
            None => self.inner.accumulator(args),
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let input = args.input_fields.first().map(|field| field.data_type().clone());
        match input.as_ref().and_then(exact_scale) {
            Some(scale) => Ok(vec![
                Arc::new(Field::new(
                    format!("{}[sum]", args.name),
                    DataType::Decimal256(NUMERIC_PRECISION, scale),
                    true,
                )),
                Arc::new(Field::new(format!("{}[count]", args.name), DataType::Int64, true)),
            ]),
            None => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        match input_scale(&args) {
            Some(_) => !args.is_distinct,
            None => self.inner.groups_accumulator_supported(args),
        }
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        match input_scale(&args) {
            Some(scale) => Ok(Box::new(ExactAverages {
                sums: Vec::new(),
                counts: Vec::new(),
                scale,
            })),
            None => self.inner.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        match input_scale(&args) {
            Some(scale) => Ok(Box::new(ExactAverage {
                sum: i256::ZERO,
                count: 0,
                scale,
            })),
            None => self.inner.create_sliding_accumulator(args),
        }
    }
}

fn as_decimals(values: &[ArrayRef], scale: i8) -> Result<Decimal256Array> {
    match values.first() {
        Some(array) => {
            let wide = cast(array, &DataType::Decimal256(NUMERIC_PRECISION, scale))?;
            Ok(wide.as_primitive::<Decimal256Type>().clone())
        }
        None => datafusion::common::internal_err!("avg takes a value"),
    }
}

fn average(sum: i256, count: i64, scale: i8) -> Result<i256> {
    quotient(
        (sum, scale),
        (i256::from_i128(i128::from(count)), 0),
        QUOTIENT_SCALE,
    )
    .ok_or_else(|| external(numeric_overflow()))
}

#[derive(Debug)]
struct ExactAverage {
    sum: i256,
    count: i64,
    scale: i8,
}

impl ExactAverage {
    fn add(&mut self, values: &[ArrayRef], sign: i64) -> Result<()> {
        for value in as_decimals(values, self.scale)?.iter().flatten() {
            self.sum = if sign > 0 {
                self.sum.wrapping_add(value)
            } else {
                self.sum.wrapping_sub(value)
            };
            self.count += sign;
        }
        Ok(())
    }
}

impl Accumulator for ExactAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, 1)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = if self.count == 0 {
            None
        } else {
            Some(average(self.sum, self.count, self.scale)?)
        };
        Ok(ScalarValue::Decimal256(value, NUMERIC_PRECISION, QUOTIENT_SCALE))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![
            ScalarValue::Decimal256(Some(self.sum), NUMERIC_PRECISION, self.scale),
            ScalarValue::Int64(Some(self.count)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if let [sums, counts] = states {
            let (sums, counts) = (
                sums.as_primitive::<Decimal256Type>(),
                counts.as_primitive::<Int64Type>(),
            );
            for row in 0..sums.len() {
                if !sums.is_null(row) && !counts.is_null(row) {
                    self.sum = self.sum.wrapping_add(sums.value(row));
                    self.count += counts.value(row);
                }
            }
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// Sums and counts of many groups.
struct ExactAverages {
    sums: Vec<i256>,
    counts: Vec<i64>,
    scale: i8,
}

impl ExactAverages {
    fn grow(&mut self, groups: usize) {
        self.sums.resize(groups.max(self.sums.len()), i256::ZERO);
        self.counts.resize(groups.max(self.counts.len()), 0);
    }
}

impl GroupsAccumulator for ExactAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let values = as_decimals(values, self.scale)?;
        for (row, &group) in group_indices.iter().enumerate() {
            let kept = opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if kept && values.is_valid(row) {
                self.sums[group] = self.sums[group].wrapping_add(values.value(row));
                self.counts[group] += 1;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let mut averages: Vec<Option<i256>> = Vec::with_capacity(sums.len());
        for (sum, count) in sums.into_iter().zip(counts) {
            averages.push(if count == 0 {
                None
            } else {
                Some(average(sum, count, self.scale)?)
            });
        }
        let array = Decimal256Array::from(averages);
        Ok(Arc::new(
            array.with_precision_and_scale(NUMERIC_PRECISION, QUOTIENT_SCALE)?,
        ))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Decimal256Array::from_iter_values(emit_to.take_needed(&mut self.sums))
            .with_precision_and_scale(NUMERIC_PRECISION, self.scale)?;
        let counts = Int64Array::from_iter_values(emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.grow(total_num_groups);
        let [sums, counts] = values else {
            return datafusion::common::internal_err!("the state of avg is a sum and a count");
        };
        let (sums, counts) = (
            sums.as_primitive::<Decimal256Type>(),
            counts.as_primitive::<Int64Type>(),
        );
        for (row, &group) in group_indices.iter().enumerate() {
            if sums.is_valid(row) && counts.is_valid(row) {
                self.sums[group] = self.sums[group].wrapping_add(sums.value(row));
                self.counts[group] += counts.value(row);
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = as_decimals(values, self.scale)?;
        let kept = |row: usize| {
            values.is_valid(row) && opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
        };
        let rows = 0..values.len();
        let sums: Vec<Option<i256>> = rows
            .clone()
            .map(|row| kept(row).then(|| values.value(row)))
            .collect();
        let counts: Vec<i64> = rows.map(|row| i64::from(kept(row))).collect();
        let sums = Decimal256Array::from(sums).with_precision_and_scale(NUMERIC_PRECISION, self.scale)?;
        Ok(vec![Arc::new(sums), Arc::new(Int64Array::from(counts))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i256>() + self.counts.capacity() * size_of::<i64>()
    }
}
