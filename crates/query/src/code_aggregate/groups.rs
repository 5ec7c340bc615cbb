//! The groups of one partition: what chunks came to so far, and the states that it is in the end.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryBuilder, Int64Array, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use weft_column::packed::Form;
use weft_column::segment::{Aggregate, Column, Groups, Segment, SegmentError, Value, Wanted};
use weft_store::columns::{ChunkColumns, NAN, SlotMask};

use super::States;
use super::plan::{CodeAggregation, Function};
use crate::columns::put_mantissa;
use crate::schema::DECIMAL_NAN;
use crate::unpacked::UnpackError;

/// With so many groups chunks are declined: what dictionaries of regions have in common is no longer little.
const GROUPS_MAX: usize = 1 << 16;

/// The groups of one partition of a scan.
pub(crate) struct CodeGroups {
    aggregation: Arc<CodeAggregation>,
    /// By the bytes of its key ([`put_key`]).
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<GroupState>,
    reserved: MemoryReservation,
    /// There are too many groups, or there is no memory for more: chunks are declined.
    is_full: bool,
    key: Vec<u8>,
}

/// What a group came to.
struct GroupState {
    key: Vec<Option<Value<'static>>>,
    rows: u64,
    columns: Vec<ColumnState>,
}

/// What the values of a column came to.
#[derive(Default)]
struct ColumnState {
    count: u64,
    sum: i128,
    extremes: Option<(Value<'static>, Value<'static>)>,
}

impl CodeGroups {
    pub(super) fn new(aggregation: Arc<CodeAggregation>, pool: &Arc<dyn MemoryPool>) -> CodeGroups {
        CodeGroups {
            aggregation,
            places: HashMap::new(),
            groups: Vec::new(),
            reserved: MemoryConsumer::new("aggregate on codes").register(pool),
            is_full: false,
            key: Vec::new(),
        }
    }

    /// The predicates that the rows offered must satisfy.
    pub(crate) fn predicates(&self) -> &[Arc<dyn PhysicalExpr>] {
        self.aggregation.predicates()
    }

    /// Aggregates the rows of a mask. False, and nothing done, if they have to be decoded.
    ///
    /// # Errors
    /// Damage of a column.
    pub(crate) fn take(&mut self, chunk: &ChunkColumns, mask: &SlotMask) -> Result<bool, UnpackError> {
        let form = Form::best();
        if self.is_full {
            return Ok(false);
        }
        if mask.count() == 0 {
            return Ok(true);
        }
        let aggregation = Arc::clone(&self.aggregation);
        let segment = |column: usize| {
            let segment = chunk.column(column);
            segment.ok_or(UnpackError::Schema("a column is missing"))
        };
        let mut keys = Vec::with_capacity(aggregation.keys.len());
        for column in &aggregation.keys {
            keys.push(segment(*column)?.column(0)?);
        }
        let rows = keys.first().map_or(mask.words().len() * 64, Column::rows);
        let Some(groups) = Groups::new(form, rows, mask.words(), &keys) else {
            return Ok(false);
        };
        let mut columns = Vec::with_capacity(aggregation.columns.len());
        for of in &aggregation.columns {
            let segment = segment(of.column)?;
            if of.wanted == Wanted::All && of.scale.is_some() && has_nan(segment)? {
                return Ok(false);
            }
            let column = segment.column(0)?;
            match groups.aggregate(form, &column, of.wanted) {
                Some(aggregates) => columns.push((column, aggregates)),
                None => return Ok(false),
            }
        }
        for group in 0..groups.count() {
            let key = groups.values(group)?;
            let Some(state) = self.state_of(&key) else {
                return Err(UnpackError::Schema("a group is missing"));
            };
            state.rows += groups.rows(group);
            for ((column, aggregates), state) in columns.iter().zip(&mut state.columns) {
                if let Some(aggregate) = aggregates.get(group) {
                    state.add(column, aggregate)?;
                }
            }
        }
        // The groups of a last chunk are held beyond what there is: they are few.
        self.is_full = self.groups.len() >= GROUPS_MAX || self.reserved.try_resize(self.bytes()).is_err();
        Ok(true)
    }

    fn bytes(&self) -> usize {
        let of_group = size_of::<GroupState>()
            + self.aggregation.keys.len() * 96
            + self.aggregation.columns.len() * size_of::<ColumnState>();
        self.groups.len() * of_group
    }

    fn state_of(&mut self, key: &[Option<Value<'_>>]) -> Option<&mut GroupState> {
        self.key.clear();
        for value in key {
            put_key(&mut self.key, value.as_ref());
        }
        let place = match self.places.get(&self.key) {
            Some(place) => *place,
            None => {
                let place = self.groups.len();
                self.places.insert(self.key.clone(), place);
                let columns = self.aggregation.columns.iter();
                self.groups.push(GroupState {
                    key: key.iter().map(|value| value.as_ref().map(owned)).collect(),
                    rows: 0,
                    columns: columns.map(|_| ColumnState::default()).collect(),
                });
                place
            }
        };
        self.groups.get_mut(place)
    }

    /// The states of all groups, once; none if there are no groups.
    ///
    /// # Errors
    /// A text that is none.
    pub(super) fn take_states(&mut self) -> Result<Option<States>> {
        let groups = take(&mut self.groups);
        self.places.clear();
        self.reserved.free();
        if groups.is_empty() {
            return Ok(None);
        }
        let schema = Arc::clone(&self.aggregation.schema);
        let mut arrays = Vec::with_capacity(schema.fields().len());
        let type_of = |at: usize| match schema.fields().get(at) {
            Some(field) => Ok(field.data_type().clone()),
            None => Err(internal_datafusion_err!("a state has no field")),
        };
        for at in 0..self.aggregation.keys.len() {
            let values = groups
                .iter()
                .map(|group| group.key.get(at).and_then(Option::as_ref));
            arrays.push(array(values, &type_of(arrays.len())?)?);
        }
        for function in &self.aggregation.functions {
            let of = |place: usize| groups.iter().filter_map(move |group| group.columns.get(place));
            match *function {
                Function::Rows => {
                    let rows = groups.iter().map(|group| group.rows as i64);
                    arrays.push(Arc::new(Int64Array::from_iter_values(rows)));
                }
                Function::Count(place) => arrays.push(counts(of(place))),
                Function::Min(place) => {
                    let min = of(place).map(|state| state.extremes.as_ref().map(|(min, _)| min));
                    arrays.push(array(min, &type_of(arrays.len())?)?);
                }
                Function::Max(place) => {
                    let max = of(place).map(|state| state.extremes.as_ref().map(|(_, max)| max));
                    arrays.push(array(max, &type_of(arrays.len())?)?);
                }
                Function::Sum(place) => {
                    let column = self.aggregation.columns.get(place);
                    let scale = column.and_then(|column| column.scale).unwrap_or(0);
                    arrays.push(sums(of(place), scale));
                    arrays.push(counts(of(place)));
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(groups.len()));
        Ok(Some(RecordBatch::try_new_with_options(schema, arrays, &options)?))
    }
}

impl ColumnState {
    fn add(&mut self, column: &Column<'_>, aggregate: &Aggregate) -> Result<(), SegmentError> {
        self.count += aggregate.count;
        self.sum += aggregate.sum;
        let Some((min, max)) = column.extremes(aggregate)? else {
            return Ok(());
        };
        match &mut self.extremes {
            None => self.extremes = Some((owned(&min), owned(&max))),
            Some((least, greatest)) => {
                if is_less(&min, least) {
                    *least = owned(&min);
                }
                if is_less(greatest, &max) {
                    *greatest = owned(&max);
                }
            }
        }
        Ok(())
    }
}

/// Whether a numeric column has a NaN: it is above all numbers.
fn has_nan<B: AsRef<[u8]>>(segment: &Segment<B>) -> Result<bool, SegmentError> {
    let extremes = segment.min_max(0)?;
    Ok(extremes.is_some_and(|extremes| extremes.max == Value::I64(NAN)))
}

fn owned(value: &Value<'_>) -> Value<'static> {
    match value {
        Value::Bool(value) => Value::Bool(*value),
        Value::I16(value) => Value::I16(*value),
        Value::I32(value) => Value::I32(*value),
        Value::I64(value) => Value::I64(*value),
        Value::U32(value) => Value::U32(*value),
        Value::F32(value) => Value::F32(*value),
        Value::F64(value) => Value::F64(*value),
        Value::Bytes16(value) => Value::Bytes16(*value),
        Value::Bytes(value) => Value::Bytes(value.to_vec().into()),
    }
}

/// Of two values of one kind.
fn is_less(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::I16(a), Value::I16(b)) => a < b,
        (Value::I32(a), Value::I32(b)) => a < b,
        (Value::I64(a), Value::I64(b)) => a < b,
        (Value::Bytes(a), Value::Bytes(b)) => a < b,
        _ => false,
    }
}

/// Appends bytes that differ for any two values of one kind, and NULL.
fn put_key(out: &mut Vec<u8>, value: Option<&Value<'_>>) {
    let number = match value {
        None => return out.push(0),
        Some(Value::Bytes(bytes)) => {
            out.push(2);
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            return out.extend_from_slice(bytes);
        }
        Some(Value::Bytes16(bytes)) => {
            out.push(3);
            return out.extend_from_slice(bytes);
        }
        Some(Value::Bool(value)) => i64::from(*value),
        Some(Value::I16(value)) => i64::from(*value),
        Some(Value::I32(value)) => i64::from(*value),
        Some(Value::I64(value)) => *value,
        Some(Value::U32(value)) => i64::from(*value),
        Some(Value::F32(value)) => i64::from(value.to_bits()),
        Some(Value::F64(value)) => value.to_bits() as i64,
    };
    out.push(1);
    out.extend_from_slice(&number.to_le_bytes());
}

fn counts<'a>(states: impl Iterator<Item = &'a ColumnState>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(
        states.map(|state| state.count as i64),
    ))
}

/// As the exact sums have them: stored numerics, NULL where there is no value.
fn sums<'a>(states: impl Iterator<Item = &'a ColumnState>, scale: u16) -> ArrayRef {
    let mut builder = BinaryBuilder::new();
    let mut bytes = Vec::new();
    for state in states {
        if state.count == 0 {
            builder.append_null();
            continue;
        }
        bytes.clear();
        put_mantissa(&mut bytes, state.sum, scale);
        builder.append_value(&bytes);
    }
    Arc::new(builder.finish())
}

fn array<'a>(values: impl Iterator<Item = Option<&'a Value<'static>>>, arrow: &DataType) -> Result<ArrayRef> {
    let scalars: Result<Vec<ScalarValue>> = values.map(|value| scalar(value, arrow)).collect();
    ScalarValue::iter_to_array(scalars?)
}

/// A packed value as one of an array.
fn scalar(value: Option<&Value<'_>>, arrow: &DataType) -> Result<ScalarValue> {
    let Some(value) = value else {
        return ScalarValue::try_from(arrow);
    };
    Ok(match (value, arrow) {
        (Value::Bool(value), DataType::Boolean) => ScalarValue::Boolean(Some(*value)),
        (Value::I16(value), DataType::Int16) => ScalarValue::Int16(Some(*value)),
        (Value::I32(value), DataType::Int32) => ScalarValue::Int32(Some(*value)),
        (Value::I64(value), DataType::Int64) => ScalarValue::Int64(Some(*value)),
        (Value::I64(value), DataType::Decimal128(precision, scale)) => {
            let wide = match *value {
                NAN => DECIMAL_NAN,
                value => i128::from(value),
            };
            ScalarValue::Decimal128(Some(wide), *precision, *scale)
        }
        (Value::Bytes(bytes), DataType::Utf8) => {
            let text = std::str::from_utf8(bytes);
            let text = text.map_err(|_| internal_datafusion_err!("a packed text is not valid UTF-8"))?;
            ScalarValue::Utf8(Some(text.to_owned()))
        }
        _ => return Err(internal_datafusion_err!("a packed value is of another type")),
    })
}
