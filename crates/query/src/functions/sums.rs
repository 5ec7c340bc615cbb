//! `sum` and `avg` of integers, numerics and double precision, with vectorised accumulators for many groups.
//!
//! Sums of integers and decimals are exact in 128 bits; a sum that overflows, and NaN, continue as a separate
//! numeric. An average is the exact sum, divided once at the end by the rules of numeric division. Sums of
//! floats are added in row order.

mod floats;

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Int64Array, Int64Builder, PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Field, FieldRef, Int16Type, Int32Type,
    Int64Type, i256,
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
use crate::schema::{DECIMAL_NAN, WIDE_NAN};
use floats::FloatSums;

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

/// Whether an aggregate is one of these that are exact: its state is a stored numeric, NULL over no value,
/// and the number of values.
pub(crate) fn is_exact_sum(aggregate: &AggregateUDF) -> bool {
    let sum = aggregate.inner().downcast_ref::<Sum>();
    sum.is_some_and(|sum| !matches!(sum.kind, SumKind::FloatSum | SumKind::FloatAverage))
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
            SumKind::FloatSum | SumKind::FloatAverage => {
                Box::new(FloatSums::new(self == SumKind::FloatAverage))
            }
            _ => Box::new(ExactSums {
                kind: self,
                sums: Vec::new(),
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

/// One group's exact sum.
#[derive(Clone, Copy, Default)]
struct GroupSum {
    /// Of decimals of the sums' scale.
    sum: i128,
    /// Of values.
    count: i64,
    /// Whether the 128-bit sum contains a value: the scale of an empty sum is not displayed.
    held: bool,
}

/// The sum of integers.
fn sum_of_integers<T: Copy + Into<i64>>(values: &[T]) -> i128 {
    // In halves, which are added many at once and do not overflow.
    let (low, high) = values.iter().fold((0_u64, 0_i64), |(low, high), value| {
        let value: i64 = (*value).into();
        (
            low.wrapping_add(u64::from(value as u32)),
            high.wrapping_add(value >> 32),
        )
    });
    (i128::from(high) << 32) + i128::from(low)
}

/// The sum of decimals; `None` if one is so large, or NaN, that each has to be looked at.
fn sum_of_decimals(values: impl Iterator<Item = i128>) -> Option<i128> {
    // 2^31 of them, more than an array has, stay below the largest.
    const BITS: u32 = 95;
    let (magnitudes, sum) = values.fold((0_i128, 0_i128), |(magnitudes, sum), value| {
        (magnitudes | (value ^ (value >> 127)), sum.wrapping_add(value))
    });
    (magnitudes >> BITS == 0).then_some(sum)
}

/// The group that all rows belong to, if it is one.
fn only_group(groups: &[usize]) -> Option<usize> {
    let first = *groups.first()?;
    groups.iter().all(|group| *group == first).then_some(first)
}

/// Exact sums.
struct ExactSums {
    kind: SumKind,
    sums: Vec<GroupSum>,
    scale: u16,
    /// Additional numerics of groups: values of other scales, overflowed sums, NaN.
    others: HashMap<usize, Numeric>,
}

impl ExactSums {
    fn resize(&mut self, groups: usize) {
        if self.sums.len() < groups {
            self.sums.resize(groups, GroupSum::default());
        }
    }

    fn of(&self, group: usize) -> GroupSum {
        self.sums.get(group).copied().unwrap_or_default()
    }

    /// Converts the sums to a new scale.
    fn rescale(&mut self, scale: u16) -> Result<(), SqlError> {
        if scale == self.scale {
            return Ok(());
        }
        for group in 0..self.sums.len() {
            if let Some(of) = self.sums.get_mut(group)
                && take(&mut of.held)
            {
                let number = total(take(&mut of.sum), self.scale)?;
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
        if let Some(of) = self.sums.get_mut(group) {
            of.count += 1;
            match of.sum.checked_add(value) {
                Some(total) if value != DECIMAL_NAN => {
                    of.sum = total;
                    of.held = true;
                }
                _ => {
                    let number = decimal(value, self.scale)?;
                    self.add_other(group, number)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a value of more bits.
    #[inline]
    fn add_wide(&mut self, group: usize, value: i256) -> Result<(), SqlError> {
        match value.to_i128() {
            Some(narrow) if narrow != DECIMAL_NAN => self.add(group, narrow),
            _ => {
                if let Some(of) = self.sums.get_mut(group) {
                    of.count += 1;
                    self.add_other(group, wide_numeric(value, self.scale)?)?;
                }
                Ok(())
            }
        }
    }

    /// Adds the sum of so many values, none of which is NaN. False, and nothing done, if it overflows.
    fn add_many(&mut self, group: usize, sum: i128, count: usize) -> bool {
        let Some(of) = self.sums.get_mut(group) else {
            return false;
        };
        let Some(total) = of.sum.checked_add(sum) else {
            return false;
        };
        of.sum = total;
        of.count += count as i64;
        of.held |= count > 0;
        true
    }

    /// Adds all values of an array to one group, at once. False, and nothing done, if that does not go.
    fn update_one(&mut self, array: &ArrayRef, group: usize) -> Result<bool, SqlError> {
        let sum = match array.data_type() {
            DataType::Int16 => sum_of_integers(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => sum_of_integers(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => sum_of_integers(array.as_primitive::<Int64Type>().values()),
            DataType::Decimal128(_, scale) => {
                self.rescale(u16::from(scale.unsigned_abs()))?;
                match sum_of_decimals(array.as_primitive::<Decimal128Type>().values().iter().copied()) {
                    Some(sum) => sum,
                    None => return Ok(false),
                }
            }
            DataType::Decimal256(_, scale) => {
                self.rescale(u16::from(scale.unsigned_abs()))?;
                let values = array.as_primitive::<Decimal256Type>().values();
                match sum_of_decimals(values.iter().map(|value| value.to_i128().unwrap_or(i128::MAX))) {
                    Some(sum) => sum,
                    None => return Ok(false),
                }
            }
            _ => return Ok(false),
        };
        Ok(self.add_many(group, sum, array.len()))
    }

    fn update(
        &mut self,
        array: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
    ) -> Result<(), SqlError> {
        if filter.is_none()
            && array.null_count() == 0
            && let Some(group) = only_group(groups)
            && self.update_one(array, group)?
        {
            return Ok(());
        }
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
            DataType::Decimal256(_, scale) => {
                self.rescale(u16::from(scale.unsigned_abs()))?;
                let array = array.as_primitive::<Decimal256Type>();
                each_value(array, groups, filter, |group, value| self.add_wide(group, value))
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
            && !self.sums.iter().any(|of| of.held)
        {
            // The first number determines the scale of the fast path.
            self.scale = scale;
        }
        let Some(of) = self.sums.get_mut(group) else {
            return Ok(());
        };
        of.count += rows;
        if let Some((value, scale)) = number
            && scale == self.scale
            && let Some(total) = of.sum.checked_add(value)
        {
            of.sum = total;
            of.held = true;
            return Ok(());
        }
        let number = Numeric::decode(bytes).map_err(|error| {
            SqlError::new(SqlState::DATA_CORRUPTED, format!("numeric to be summed: {error}"))
        })?;
        self.add_other(group, number)
    }

    fn total(&self, group: usize) -> Result<Numeric, SqlError> {
        let of = self.of(group);
        let sum = total(of.sum, self.scale)?;
        match self.others.get(&group) {
            Some(other) if of.held => other.add(&sum),
            Some(other) => Ok(other.clone()),
            None => Ok(sum),
        }
    }

    fn value(&self, group: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let of = self.of(group);
        if self.kind == SumKind::NumericAverage {
            self.total(group)?.div(&total(of.count.into(), 0)?)?.encode(out);
        } else if self.others.contains_key(&group) {
            self.total(group)?.encode(out);
        } else {
            put_mantissa(out, of.sum, self.scale);
        }
        Ok(())
    }

    /// Removes the first groups.
    fn drop_groups(&mut self, emit: EmitTo) {
        emit.take_needed(&mut self.sums);
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
                if self.of(group).count == 0 {
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
        match i64::try_from(self.of(group).sum) {
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
            if self.of(group).count == 0 {
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
        let counts: Int64Array = self.sums.iter().take(groups).map(|of| Some(of.count)).collect();
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

/// The number of a Decimal128 column.
fn decimal(value: i128, scale: u16) -> Result<Numeric, SqlError> {
    if value == DECIMAL_NAN {
        return Ok(Numeric::NAN);
    }
    total(value, scale)
}

/// A sum, which is not NaN whatever its bits are.
fn total(value: i128, scale: u16) -> Result<Numeric, SqlError> {
    Numeric::from_i128(value, scale).ok_or_else(|| SqlError::internal("a decimal of too many digits"))
}

/// The number of a Decimal256 column.
fn wide_numeric(value: i256, scale: u16) -> Result<Numeric, SqlError> {
    const UNIT: i128 = 10_i128.pow(38);
    if value == WIDE_NAN {
        return Ok(Numeric::NAN);
    }
    // At most 76 digits, so either part has at most 38.
    let (high, low) = (value / i256::from_i128(UNIT), value % i256::from_i128(UNIT));
    match (high.to_i128(), low.to_i128()) {
        (Some(high), Some(low)) => {
            let high = total(high, scale)?.mul(&total(UNIT, 0)?)?;
            high.add(&total(low, scale)?)
        }
        _ => Err(SqlError::internal("a decimal of too many digits")),
    }
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
        self.sums.capacity() * size_of::<GroupSum>() + self.others.len() * 64
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

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Decimal128Array, Int32Array};
    use proptest::prelude::*;

    use super::*;

    fn states(kind: SumKind, arrays: &[ArrayRef], at_once: bool) -> Vec<ArrayRef> {
        let mut sums = kind.groups();
        for array in arrays {
            let groups = vec![0; array.len()];
            if at_once {
                sums.update_batch(std::slice::from_ref(array), &groups, None, 2)
                    .unwrap();
            } else {
                sums.update_batch(&[array.slice(0, 0)], &[], None, 2).unwrap();
                for row in 0..array.len() {
                    // A filter that all rows pass: each is added by itself.
                    let all = BooleanArray::from(vec![true]);
                    let one = [array.slice(row, 1)];
                    sums.update_batch(&one, &groups[row..=row], Some(&all), 2)
                        .unwrap();
                }
            }
        }
        sums.state(EmitTo::All).unwrap()
    }

    /// A sum may be the number whose bits mean NaN in a column; it is added to by several threads.
    #[test]
    fn a_sum_with_the_bits_of_nan_is_a_number() {
        let most = 10_i128.pow(38) - 1;
        let column = Decimal128Array::from(vec![most, i128::MAX - most]);
        let array: ArrayRef = Arc::new(column.with_data_type(DataType::Decimal128(38, 0)));
        let states = states(SumKind::NumericSum, &[array], false);
        let mut sums = SumKind::NumericSum.groups();
        sums.merge_batch(&states, &[0, 1], 2).unwrap();
        let total = sums.evaluate(EmitTo::All).unwrap();
        let total = Numeric::decode(total.as_binary::<i32>().value(0)).unwrap();
        assert_eq!(total.to_string(), i128::MAX.to_string());
    }

    fn decimal_value() -> impl Strategy<Value = i128> {
        prop_oneof![
            8 => -1_000_000..1_000_000_i128,
            1 => Just(DECIMAL_NAN),
            1 => Just(99_999_999_999_999_999_999_999_999_999_999_999_999_i128),
            1 => Just(-99_999_999_999_999_999_999_999_999_999_999_999_999_i128),
            2 => any::<i64>().prop_map(i128::from),
            1 => (0..127_u32).prop_map(|bit| 1_i128 << bit.min(125)),
        ]
    }

    proptest! {
        /// Values of one group added at once come to what they come to one by one.
        #[test]
        fn sums_at_once_are_sums_one_by_one(
            batches in prop::collection::vec(prop::collection::vec(decimal_value(), 0..40), 1..5),
            integers in prop::collection::vec(prop::collection::vec(any::<i64>(), 0..40), 1..5),
        ) {
            let decimals: Vec<ArrayRef> = batches
                .into_iter()
                .map(|values| -> ArrayRef {
                    Arc::new(Decimal128Array::from(values).with_data_type(DataType::Decimal128(38, 2)))
                })
                .collect();
            let small: Vec<ArrayRef> = integers
                .iter()
                .map(|values| -> ArrayRef {
                    Arc::new(values.iter().map(|v| Some(*v as i32)).collect::<Int32Array>())
                })
                .collect();
            let large: Vec<ArrayRef> = integers
                .iter()
                .map(|values| -> ArrayRef { Arc::new(Int64Array::from(values.clone())) })
                .collect();
            for (kind, arrays) in [
                (SumKind::NumericSum, &decimals),
                (SumKind::NumericAverage, &decimals),
                (SumKind::IntegerSum, &small),
                (SumKind::NumericSum, &large),
            ] {
                prop_assert_eq!(states(kind, arrays, true), states(kind, arrays, false));
            }
        }
    }
}
