//! `sum` and `avg` of integers, numerics and double precision, with vectorised accumulators for many groups.
//!
//! Sums of integers and decimals are exact in 128 bits; a sum that overflows, and NaN, continue as a separate
//! numeric. An average is the exact sum, divided once at the end by the rules of numeric division. Sums of
//! floats are added in row order.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Float64Array, Int64Array, Int64Builder,
    PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, FieldRef, Float64Type, Int16Type, Int32Type,
    Int64Type,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use parking_lot::Mutex;
use weft_types::{Numeric, SqlError, SqlState};

use crate::columns::{mantissa, put_mantissa};
use crate::errors::external;
use crate::schema::DECIMAL_NAN;

/// The argument and the result of the aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumKind {
    /// smallint or integer to bigint.
    IntegerSum,
    /// bigint or numeric to numeric.
    NumericSum,
    /// Integers or numerics to their average, a numeric.
    NumericAverage,
    /// double precision to its sum.
    FloatSum,
    /// double precision to its average.
    FloatAverage,
}

/// The sum or average as a DataFusion aggregate.
pub fn sums(kind: SumKind) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Sum {
        kind,
        signature: Signature::any(1, Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    kind: SumKind,
    signature: Signature,
}

impl SumKind {
    fn result(self) -> DataType {
        match self {
            SumKind::IntegerSum => DataType::Int64,
            SumKind::NumericSum | SumKind::NumericAverage => DataType::Binary,
            SumKind::FloatSum | SumKind::FloatAverage => DataType::Float64,
        }
    }

    fn groups(self) -> Box<dyn GroupsAccumulator> {
        match self {
            SumKind::FloatSum | SumKind::FloatAverage => Box::new(FloatSums {
                average: self == SumKind::FloatAverage,
                sums: Vec::new(),
                counts: Vec::new(),
            }),
            _ => Box::new(ExactSums {
                kind: self,
                sums: Vec::new(),
                held: Vec::new(),
                counts: Vec::new(),
                scale: 0,
                others: HashMap::new(),
            }),
        }
    }
}

impl AggregateUDFImpl for Sum {
    fn name(&self) -> &str {
        match self.kind {
            SumKind::NumericAverage | SumKind::FloatAverage => "avg",
            _ => "sum",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.kind.result())
    }

    fn accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneGroup {
            groups: Mutex::new(self.kind.groups()),
            zeros: Vec::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let sum = match self.kind {
            SumKind::FloatSum | SumKind::FloatAverage => DataType::Float64,
            _ => DataType::Binary,
        };
        Ok(vec![
            Arc::new(Field::new(format!("{}[sum]", args.name), sum, true)),
            Arc::new(Field::new(format!("{}[count]", args.name), DataType::Int64, true)),
        ])
    }

    fn groups_accumulator_supported(&self, _args: AccumulatorArgs) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(self.kind.groups())
    }
}

/// An aggregation without keys: all rows belong to group 0.
struct OneGroup {
    groups: Mutex<Box<dyn GroupsAccumulator>>,
    zeros: Vec<usize>,
}

impl std::fmt::Debug for OneGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OneGroup")
    }
}

impl OneGroup {
    fn zeros(&mut self, count: usize) -> Vec<usize> {
        let mut zeros = take(&mut self.zeros);
        zeros.resize(count, 0);
        zeros
    }

    /// Creates the group even if there are no rows.
    fn present(&mut self) -> Result<()> {
        self.groups.get_mut().merge_batch(&[], &[], 1)
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let zeros = self.zeros(values.first().map_or(0, |array| array.len()));
        self.groups.get_mut().update_batch(values, &zeros, None, 1)?;
        self.zeros = zeros;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.present()?;
        let array = self.groups.get_mut().evaluate(EmitTo::All)?;
        ScalarValue::try_from_array(&array, 0)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.groups.lock().size() + self.zeros.capacity() * size_of::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.present()?;
        let arrays = self.groups.get_mut().state(EmitTo::All)?;
        arrays
            .iter()
            .map(|array| ScalarValue::try_from_array(array, 0))
            .collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let zeros = self.zeros(states.first().map_or(0, |array| array.len()));
        self.groups.get_mut().merge_batch(states, &zeros, 1)?;
        self.zeros = zeros;
        Ok(())
    }
}

/// Calls `each` with the group and the value of every row that is not NULL or filtered out.
fn each_value<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    groups: &[usize],
    filter: Option<&BooleanArray>,
    mut each: impl FnMut(usize, T::Native) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    if filter.is_none() && array.null_count() == 0 {
        for (group, value) in groups.iter().zip(array.values()) {
            each(*group, *value)?;
        }
        return Ok(());
    }
    for (row, group) in groups.iter().enumerate() {
        if counts(filter, row) && array.is_valid(row) {
            each(*group, array.value(row))?;
        }
    }
    Ok(())
}

fn counts(filter: Option<&BooleanArray>, row: usize) -> bool {
    filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
}

/// Exact sums.
struct ExactSums {
    kind: SumKind,
    /// Sums of decimals of `scale`.
    sums: Vec<i128>,
    /// Whether the 128-bit sum contains a value: the scale of an empty sum is not displayed.
    held: Vec<bool>,
    counts: Vec<i64>,
    scale: u16,
    /// Additional numerics of groups: values of other scales, overflowed sums, NaN.
    others: HashMap<usize, Numeric>,
}

impl ExactSums {
    fn resize(&mut self, groups: usize) {
        if self.sums.len() < groups {
            self.sums.resize(groups, 0);
            self.held.resize(groups, false);
            self.counts.resize(groups, 0);
        }
    }

    /// Converts the sums to a new scale.
    fn rescale(&mut self, scale: u16) -> Result<(), SqlError> {
        if scale == self.scale {
            return Ok(());
        }
        for group in 0..self.sums.len() {
            if let (Some(sum), Some(held)) = (self.sums.get_mut(group), self.held.get_mut(group))
                && take(held)
            {
                let number = decimal(take(sum), self.scale)?;
                self.add_other(group, number)?;
            }
        }
        self.scale = scale;
        Ok(())
    }

    fn add_other(&mut self, group: usize, number: Numeric) -> Result<(), SqlError> {
        match self.others.get_mut(&group) {
            Some(sum) => *sum = sum.add(&number)?,
            None => {
                self.others.insert(group, number);
            }
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, group: usize, value: i128) -> Result<(), SqlError> {
        if let (Some(sum), Some(held), Some(count)) = (
            self.sums.get_mut(group),
            self.held.get_mut(group),
            self.counts.get_mut(group),
        ) {
            *count += 1;
            match sum.checked_add(value) {
                Some(total) if value != DECIMAL_NAN => {
                    *sum = total;
                    *held = true;
                }
                _ => {
                    let number = decimal(value, self.scale)?;
                    self.add_other(group, number)?;
                }
            }
        }
        Ok(())
    }

    fn update(
        &mut self,
        array: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) -> Result<(), SqlError> {
        match array.data_type() {
            DataType::Int16 => {
                let array = array.as_primitive::<Int16Type>();
                each_value(array, groups, filter, |group, value| {
                    self.add(group, value.into())
                })
            }
            DataType::Int32 => {
                let array = array.as_primitive::<Int32Type>();
                each_value(array, groups, filter, |group, value| {
                    self.add(group, value.into())
                })
            }
            DataType::Int64 => {
                let array = array.as_primitive::<Int64Type>();
                each_value(array, groups, filter, |group, value| {
                    self.add(group, value.into())
                })
            }
            DataType::Decimal128(_, scale) => {
                self.rescale(u16::from(scale.unsigned_abs()))?;
                let array = array.as_primitive::<Decimal128Type>();
                each_value(array, groups, filter, |group, value| self.add(group, value))
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                for (row, group) in groups.iter().enumerate() {
                    if counts(filter, row) && array.is_valid(row) {
                        self.add_stored(*group, array.value(row), 1)?;
                    }
                }
                Ok(())
            }
            other => Err(SqlError::internal(format!("a sum of {other}"))),
        }
    }

    /// Adds a stored numeric, which is the sum of `rows` rows.
    fn add_stored(&mut self, group: usize, bytes: &[u8], rows: i64) -> Result<(), SqlError> {
        let number = mantissa(bytes);
        if let Some((_, scale)) = number
            && scale != self.scale
            && self.others.is_empty()
            && !self.held.contains(&true)
        {
            // The first number determines the scale of the fast path.
            self.scale = scale;
        }
        let (Some(sum), Some(held), Some(count)) = (
            self.sums.get_mut(group),
            self.held.get_mut(group),
            self.counts.get_mut(group),
        ) else {
            return Ok(());
        };
        *count += rows;
        if let Some((value, scale)) = number
            && scale == self.scale
            && let Some(total) = sum.checked_add(value)
        {
            *sum = total;
            *held = true;
            return Ok(());
        }
        let number = Numeric::decode(bytes).map_err(|error| {
            SqlError::new(SqlState::DATA_CORRUPTED, format!("numeric to be summed: {error}"))
        })?;
        self.add_other(group, number)
    }

    fn total(&self, group: usize) -> Result<Numeric, SqlError> {
        let held = self.held.get(group).copied().unwrap_or(false);
        let sum = decimal(self.sums.get(group).copied().unwrap_or(0), self.scale)?;
        match self.others.get(&group) {
            Some(other) if held => other.add(&sum),
            Some(other) => Ok(other.clone()),
            None => Ok(sum),
        }
    }

    fn value(&self, group: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let count = self.counts.get(group).copied().unwrap_or(0);
        if self.kind == SumKind::NumericAverage {
            self.total(group)?.div(&decimal(count.into(), 0)?)?.encode(out);
        } else if self.others.contains_key(&group) {
            self.total(group)?.encode(out);
        } else {
            put_mantissa(out, self.sums.get(group).copied().unwrap_or(0), self.scale);
        }
        Ok(())
    }

    /// Removes the first groups.
    fn drop_groups(&mut self, emit: EmitTo) {
        emit.take_needed(&mut self.sums);
        emit.take_needed(&mut self.held);
        emit.take_needed(&mut self.counts);
        match emit {
            EmitTo::All => self.others.clear(),
            EmitTo::First(n) => {
                let others = take(&mut self.others);
                let rest = others
                    .into_iter()
                    .filter_map(|(group, number)| Some((group.checked_sub(n)?, number)));
                self.others = rest.collect();
            }
        }
    }

    fn emitted(&self, emit: EmitTo) -> usize {
        match emit {
            EmitTo::All => self.sums.len(),
            EmitTo::First(n) => n.min(self.sums.len()),
        }
    }

    fn finished(&mut self, emit: EmitTo) -> Result<ArrayRef, SqlError> {
        let groups = self.emitted(emit);
        let array: ArrayRef = if self.kind == SumKind::IntegerSum {
            let mut builder = Int64Builder::with_capacity(groups);
            for group in 0..groups {
                if self.counts.get(group).is_none_or(|count| *count == 0) {
                    builder.append_null();
                } else {
                    builder.append_value(self.integer(group)?);
                }
            }
            Arc::new(builder.finish())
        } else {
            Arc::new(self.numerics(groups, |sums, group, out| sums.value(group, out))?)
        };
        self.drop_groups(emit);
        Ok(array)
    }

    fn integer(&self, group: usize) -> Result<i64, SqlError> {
        let sum = self.sums.get(group).copied().unwrap_or(0);
        match i64::try_from(sum) {
            Ok(sum) if !self.others.contains_key(&group) => Ok(sum),
            _ => Err(SqlError::new(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                "bigint out of range",
            )),
        }
    }

    fn numerics(
        &self,
        groups: usize,
        write: impl Fn(&Self, usize, &mut Vec<u8>) -> Result<(), SqlError>,
    ) -> Result<datafusion::arrow::array::BinaryArray, SqlError> {
        let mut builder = BinaryBuilder::with_capacity(groups, groups * 10);
        let mut bytes = Vec::new();
        for group in 0..groups {
            if self.counts.get(group).is_none_or(|count| *count == 0) {
                builder.append_null();
            } else {
                bytes.clear();
                write(self, group, &mut bytes)?;
                builder.append_value(&bytes);
            }
        }
        Ok(builder.finish())
    }

    fn states(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>, SqlError> {
        let groups = self.emitted(emit);
        let sums = self.numerics(groups, |sums, group, out| {
            sums.total(group)?.encode(out);
            Ok(())
        })?;
        let counts: Int64Array = self.counts.iter().take(groups).copied().map(Some).collect();
        self.drop_groups(emit);
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<(), SqlError> {
        if let [sums, counts] = states {
            let sums = sums.as_binary::<i32>();
            let counts = counts.as_primitive::<Int64Type>();
            for (row, group) in groups.iter().enumerate() {
                if sums.is_valid(row) {
                    self.add_stored(*group, sums.value(row), counts.value(row))?;
                }
            }
        }
        Ok(())
    }
}

fn decimal(value: i128, scale: u16) -> Result<Numeric, SqlError> {
    if value == DECIMAL_NAN {
        return Ok(Numeric::NAN);
    }
    Numeric::from_i128(value, scale).ok_or_else(|| SqlError::internal("a decimal of too many digits"))
}

impl GroupsAccumulator for ExactSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        match values.first() {
            Some(array) => self.update(array, group_indices, opt_filter).map_err(external),
            None => Ok(()),
        }
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        self.finished(emit_to).map_err(external)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.states(emit_to).map_err(external)
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        self.merge(values, group_indices).map_err(external)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        state_of_rows(self.kind, values, opt_filter)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>()
            + self.counts.capacity() * size_of::<i64>()
            + self.others.len() * 64
    }
}

/// A state in which every row is a group of its own.
fn state_of_rows(kind: SumKind, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
    let rows = values.first().map_or(0, |array| array.len());
    let groups: Vec<usize> = (0..rows).collect();
    let mut sums = kind.groups();
    sums.update_batch(values, &groups, filter, rows)?;
    sums.state(EmitTo::All)
}

/// Sums of floats.
struct FloatSums {
    average: bool,
    sums: Vec<f64>,
    counts: Vec<i64>,
}

impl FloatSums {
    fn resize(&mut self, groups: usize) {
        if self.sums.len() < groups {
            // The empty sum is -0, which changes no number when added to it. An average begins with 0.
            self.sums.resize(groups, if self.average { 0.0 } else { -0.0 });
            self.counts.resize(groups, 0);
        }
    }

    fn add(&mut self, group: usize, value: f64, rows: i64) -> Result<(), SqlError> {
        if let (Some(sum), Some(count)) = (self.sums.get_mut(group), self.counts.get_mut(group)) {
            let total = *sum + value;
            if total.is_infinite() && sum.is_finite() && value.is_finite() {
                return Err(SqlError::new(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    "value out of range: overflow",
                ));
            }
            *sum = total;
            *count += rows;
        }
        Ok(())
    }
}

impl GroupsAccumulator for FloatSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        let Some(array) = values.first() else {
            return Ok(());
        };
        let array = array.as_primitive::<Float64Type>();
        each_value(array, group_indices, opt_filter, |group, value| {
            self.add(group, value, 1)
        })
        .map_err(external)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let values = sums.into_iter().zip(counts).map(|(sum, count)| match count {
            0 => None,
            _ if self.average => Some(sum / count as f64),
            _ => Some(sum),
        });
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Float64Array::from(emit_to.take_needed(&mut self.sums));
        let counts = Int64Array::from(emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.resize(total_num_groups);
        if let [sums, counts] = values {
            let sums = sums.as_primitive::<Float64Type>();
            let counts = counts.as_primitive::<Int64Type>();
            for (row, group) in group_indices.iter().enumerate() {
                if counts.value(row) > 0 {
                    self.add(*group, sums.value(row), counts.value(row))
                        .map_err(external)?;
                }
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        state_of_rows(SumKind::FloatSum, values, opt_filter)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<f64>() + self.counts.capacity() * size_of::<i64>()
    }
}
