//! Sums and averages of double precision, added in row order.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array};
use datafusion::arrow::datatypes::{Float64Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use weft_types::{SqlError, SqlState};

use super::{SumKind, each_value, state_of_rows};
use crate::errors::external;

/// Sums of floats.
pub(super) struct FloatSums {
    average: bool,
    sums: Vec<f64>,
    counts: Vec<i64>,
}

impl FloatSums {
    /// No groups.
    pub(super) fn new(average: bool) -> FloatSums {
        FloatSums {
            average,
            sums: Vec::new(),
            counts: Vec::new(),
        }
    }

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
