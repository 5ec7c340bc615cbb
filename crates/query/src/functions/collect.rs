//! Wraps any aggregate of the table as a DataFusion aggregate.
//!
//! Without DISTINCT and ORDER BY every row is passed to the aggregate's own accumulator ([`Feeding`]), whose
//! state, if it has one, is passed between phases. Otherwise all rows are kept as bytes: the sort key, the
//! arguments' key, the arguments. Phases exchange them unchanged; they are sorted, deduplicated and
//! accumulated when the value is requested ([`Keeping`]). DISTINCT without ORDER BY sorts by the arguments,
//! as PostgreSQL does.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use parking_lot::Mutex;
use weft_base::{ByteReader, ByteWriter};
use weft_expression::table::{Accumulator as OwnAccumulator, AggregateEntry};
use weft_types::{SqlError, SqlType, Value, ValueRef, interrupt, sort};

use crate::arrays::{ValueColumn, array_of_values, needs_order_key, order_key};
use crate::errors::external;
use crate::schema::arrow_type;
use crate::session::ExecutionContext;

/// One sort key of a call.
#[derive(Clone, Copy, Debug)]
pub struct RowOrder {
    /// The key's type.
    pub ty: SqlType,
    /// DESC
    pub descending: bool,
    /// NULLS FIRST
    pub nulls_first: bool,
}

/// A call; its columns are the arguments, followed by the sort keys.
#[derive(Clone)]
pub struct Collected {
    /// Unique number of the call within its lowering.
    pub number: u32,
    /// The aggregate.
    pub entry: &'static AggregateEntry,
    /// Argument types.
    pub arguments: Vec<SqlType>,
    /// Result type.
    pub ty: SqlType,
    /// DISTINCT
    pub distinct: bool,
    /// ORDER BY
    pub order: Vec<RowOrder>,
    /// Context in which it is computed.
    pub context: Arc<ExecutionContext>,
}

/// The call as a DataFusion aggregate.
pub fn collect(call: Collected) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Collect {
        call,
        signature: Signature::variadic_any(Volatility::Immutable),
    }))
}

struct Collect {
    call: Collected,
    signature: Signature,
}

impl fmt::Debug for Collect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.entry.name)
    }
}

impl PartialEq for Collect {
    fn eq(&self, other: &Self) -> bool {
        self.call.number == other.call.number
    }
}

impl Eq for Collect {}

impl Hash for Collect {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.call.number.hash(state);
    }
}

impl Collected {
    fn keeps_rows(&self) -> bool {
        self.distinct || !self.order.is_empty() || self.entry.state.is_empty()
    }

    fn start(&self) -> Box<dyn OwnAccumulator> {
        (self.entry.start)(&self.arguments, self.ty)
    }

    fn result(&self, value: Value) -> Result<ScalarValue, SqlError> {
        scalar(&value, &self.ty)
    }
}

fn scalar(value: &Value, ty: &SqlType) -> Result<ScalarValue, SqlError> {
    let array = array_of_values(std::slice::from_ref(value), ty, &arrow_type(ty))?;
    ScalarValue::try_from_array(&array, 0).map_err(crate::errors::sql_error)
}

impl AggregateUDFImpl for Collect {
    fn name(&self) -> &str {
        self.call.entry.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(arrow_type(&self.call.ty))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn accumulator(&self, _args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if self.call.keeps_rows() {
            return Ok(Box::new(Keeping {
                call: self.call.clone(),
                converters: None,
                rows: Vec::new(),
                bytes: 0,
            }));
        }
        Ok(Box::new(Feeding {
            own: Mutex::new(self.call.start()),
            call: self.call.clone(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let field = |at: usize, ty: DataType| Arc::new(Field::new(format!("{}[{at}]", args.name), ty, true));
        if self.call.keeps_rows() {
            return Ok(vec![field(0, DataType::Binary)]);
        }
        let types = self.call.entry.state.iter().enumerate();
        Ok(types.map(|(at, ty)| field(at, arrow_type(ty))).collect())
    }
}

/// Passes every row to the aggregate's accumulator.
struct Feeding {
    call: Collected,
    own: Mutex<Box<dyn OwnAccumulator>>,
}

impl fmt::Debug for Feeding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.lock().fmt(f)
    }
}

impl Feeding {
    fn feed(&mut self, arrays: &[ArrayRef]) -> Result<(), SqlError> {
        let columns = value_columns(arrays, &self.call.arguments)?;
        let rows = arrays.first().map_or(0, |array| array.len());
        let execution = self.call.context.execution();
        let context = execution.context();
        let mut arguments = Vec::with_capacity(columns.len());
        for row in 0..rows {
            arguments.clear();
            arguments.extend(columns.iter().map(|column| column.value_ref(row)));
            if self.call.entry.strict && arguments.iter().any(ValueRef::is_null) {
                continue;
            }
            self.own.get_mut().update(&context, &arguments)?;
        }
        Ok(())
    }

    fn merge(&mut self, arrays: &[ArrayRef]) -> Result<(), SqlError> {
        let columns = value_columns(arrays, self.call.entry.state)?;
        let rows = arrays.first().map_or(0, |array| array.len());
        let execution = self.call.context.execution();
        let context = execution.context();
        for row in 0..rows {
            let state: Vec<ValueRef<'_>> = columns.iter().map(|column| column.value_ref(row)).collect();
            self.own.get_mut().merge(&context, &state)?;
        }
        Ok(())
    }
}

fn value_columns(arrays: &[ArrayRef], types: &[SqlType]) -> Result<Vec<ValueColumn>, SqlError> {
    let pairs = arrays.iter().zip(types);
    pairs.map(|(array, ty)| ValueColumn::new(array, ty)).collect()
}

impl Accumulator for Feeding {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.feed(values).map_err(external)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let execution = self.call.context.execution();
        let value = self.own.get_mut().value(&execution.context());
        value.and_then(|value| self.call.result(value)).map_err(external)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.own.lock().bytes()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = self.own.get_mut().state().map_err(external)?;
        let pairs = state.iter().zip(self.call.entry.state);
        pairs
            .map(|(value, ty)| scalar(value, ty).map_err(external))
            .collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.merge(states).map_err(external)
    }
}

/// One row of a [`Keeping`].
struct Kept {
    /// The sort key.
    sort: Vec<u8>,
    /// The key for DISTINCT: equal for equal arguments; empty without DISTINCT.
    distinct: Vec<u8>,
    /// The arguments, encoded.
    arguments: Vec<u8>,
}

/// Keeps the rows until the value is requested.
struct Keeping {
    call: Collected,
    converters: Option<(RowConverter, RowConverter)>,
    rows: Vec<Kept>,
    bytes: usize,
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows for {}", self.rows.len(), self.call.entry.name)
    }
}

impl Keeping {
    fn keep(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        let count = self.call.arguments.len();
        let rows = arrays.first().map_or(0, |array| array.len());
        let arguments = arrays.get(..count).unwrap_or_default();
        let columns = value_columns(arguments, &self.call.arguments).map_err(external)?;
        let (sort, distinct) = self.keys(arguments, arrays.get(count..).unwrap_or_default())?;
        for row in 0..rows {
            let values: Vec<Value> = columns.iter().map(|column| column.value(row)).collect();
            if self.call.entry.strict && values.iter().any(Value::is_null) {
                continue;
            }
            let mut encoded = Vec::new();
            values.iter().for_each(|value| value.encode(&mut encoded));
            let bytes = |rows: &Option<Rows>| rows.as_ref().map(|rows| rows.row(row).as_ref().to_vec());
            self.push(Kept {
                sort: bytes(&sort).unwrap_or_default(),
                distinct: bytes(&distinct).unwrap_or_default(),
                arguments: encoded,
            });
        }
        Ok(())
    }

    fn push(&mut self, row: Kept) {
        self.bytes += size_of::<Kept>() + row.sort.len() + row.distinct.len() + row.arguments.len();
        self.rows.push(row);
    }

    /// The sort key and the equality key of every row.
    fn keys(&mut self, arguments: &[ArrayRef], keys: &[ArrayRef]) -> Result<(Option<Rows>, Option<Rows>)> {
        let mut sort_columns = Vec::new();
        let mut sort_fields = Vec::new();
        for (array, order) in keys.iter().zip(&self.call.order) {
            let array = ordered(array, &order.ty).map_err(external)?;
            let options = SortOptions::new(order.descending, order.nulls_first);
            sort_fields.push(SortField::new_with_options(array.data_type().clone(), options));
            sort_columns.push(array);
        }
        let mut distinct_columns = Vec::new();
        let mut distinct_fields = Vec::new();
        if self.call.distinct {
            for (array, ty) in arguments.iter().zip(&self.call.arguments) {
                let array = ordered(array, ty).map_err(external)?;
                let options = SortOptions::new(false, false);
                let field = SortField::new_with_options(array.data_type().clone(), options);
                sort_fields.push(field.clone());
                sort_columns.push(Arc::clone(&array));
                distinct_fields.push(field);
                distinct_columns.push(array);
            }
        }
        if self.converters.is_none() {
            self.converters = Some((
                RowConverter::new(sort_fields)?,
                RowConverter::new(distinct_fields)?,
            ));
        }
        let Some((sort, distinct)) = &mut self.converters else {
            return Ok((None, None));
        };
        let rows = |converter: &mut RowConverter, columns: &[ArrayRef]| {
            if columns.is_empty() {
                return Ok(None);
            }
            converter.convert_columns(columns).map(Some)
        };
        Ok((rows(sort, &sort_columns)?, rows(distinct, &distinct_columns)?))
    }

    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes);
        for row in &self.rows {
            out.put_len_prefixed(&row.sort);
            out.put_len_prefixed(&row.distinct);
            out.put_len_prefixed(&row.arguments);
        }
        out
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<(), SqlError> {
        let mut reader = ByteReader::new(bytes);
        let broken = |_| SqlError::internal("the state of an aggregate is broken");
        while reader.remaining() > 0 {
            let row = Kept {
                sort: reader.len_prefixed().map_err(broken)?.to_vec(),
                distinct: reader.len_prefixed().map_err(broken)?.to_vec(),
                arguments: reader.len_prefixed().map_err(broken)?.to_vec(),
            };
            self.push(row);
        }
        Ok(())
    }

    fn value(&mut self) -> Result<ScalarValue, SqlError> {
        self.rows = sort::sorted(std::mem::take(&mut self.rows), |a, b| a.sort.cmp(&b.sort))?;
        if self.call.distinct {
            self.rows.dedup_by(|a, b| a.distinct == b.distinct);
        }
        let mut own = self.call.start();
        let execution = self.call.context.execution();
        let context = execution.context();
        for (at, row) in self.rows.iter().enumerate() {
            if at % 1024 == 0 {
                interrupt::check()?;
            }
            let mut reader = ByteReader::new(&row.arguments);
            let mut values = Vec::with_capacity(self.call.arguments.len());
            for _ in &self.call.arguments {
                let value = Value::decode(&mut reader);
                values.push(value.map_err(|_| SqlError::internal("the state of an aggregate is broken"))?);
            }
            let arguments: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
            own.update(&context, &arguments)?;
        }
        let value = own.value(&context)?;
        self.call.result(value)
    }
}

fn ordered(array: &ArrayRef, ty: &SqlType) -> Result<ArrayRef, SqlError> {
    if needs_order_key(ty, array.data_type()) {
        order_key(array, ty)
    } else {
        Ok(Arc::clone(array))
    }
}

impl Accumulator for Keeping {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.keep(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.value().map_err(external)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.encoded()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        if let Some(states) = states.first() {
            for state in states.as_binary::<i32>().iter().flatten() {
                self.decode(state).map_err(external)?;
            }
        }
        Ok(())
    }
}
