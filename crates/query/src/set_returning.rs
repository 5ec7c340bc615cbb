//! Set-returning functions over the rows of an input.
//!
//! For each input row the calls run in lockstep: the number of rows is that of the longest call, and shorter
//! ones are padded with NULLs. The rows of a call are collected before they are returned, within the pool's
//! limit; the returned batches have the configured size.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use weft_binder::relation::SetCall;
use weft_expression::table::SetEntry;
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlType, Value, ValueRef, interrupt};

use crate::arrays::{ColumnBuilder, ValueColumn};
use crate::errors::{external, sql_error};
use crate::evaluate::BatchExpr;
use crate::operator::{Operator, operator_plan};
use crate::schema::{arrow_type, field, field_name};
use crate::session::ExecutionContext;

/// How many rows a call produces between two checks for an interrupt.
const ROWS_BETWEEN_CHECKS: usize = 256;

/// The operator: set-returning functions over the rows of an input.
struct SetReturning {
    calls: Arc<Vec<Call>>,
    ordinality: bool,
    keep: bool,
    context: Arc<ExecutionContext>,
}

/// One call.
struct Call {
    function: &'static SetEntry,
    arguments: Vec<BatchExpr>,
    types: Vec<SqlType>,
}

impl fmt::Debug for SetReturning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.calls.iter().map(|call| call.function.name))
            .finish()
    }
}

/// The plan of set-returning functions over `plan`, whose columns are named by their ids.
///
/// # Errors
/// If an argument cannot be computed from the plan's columns.
pub fn set_functions(
    plan: LogicalPlan,
    calls: &[SetCall],
    ordinality: Option<ColumnId>,
    keep: bool,
    context: &Arc<ExecutionContext>,
) -> std::result::Result<LogicalPlan, SqlError> {
    let input = plan.schema().as_arrow().clone();
    let mut fields: Vec<FieldRef> = input.fields().iter().cloned().collect();
    let mut compiled = Vec::with_capacity(calls.len());
    for call in calls {
        let arguments = call.arguments.iter().map(|expr| argument(expr, &input, context));
        compiled.push(Call {
            function: call.function,
            arguments: arguments.collect::<std::result::Result<_, _>>()?,
            types: call.columns.iter().map(|(_, ty)| *ty).collect(),
        });
        fields.extend(
            call.columns
                .iter()
                .map(|(id, ty)| Arc::new(field(*id, arrow_type(ty)))),
        );
    }
    fields.extend(ordinality.map(|id| Arc::new(field(id, DataType::Int64))));
    let operator = SetReturning {
        calls: Arc::new(compiled),
        ordinality: ordinality.is_some(),
        keep,
        context: Arc::clone(context),
    };
    operator_plan(Arc::new(operator), vec![plan], Schema::new(fields), Vec::new())
}

/// Compiles an argument over all columns of the input.
fn argument(
    expr: &Expr,
    input: &Schema,
    context: &Arc<ExecutionContext>,
) -> std::result::Result<BatchExpr, SqlError> {
    let mut places: Vec<(ColumnId, DataType)> = Vec::new();
    for id in expr.columns() {
        let column = input
            .field_with_name(&field_name(id))
            .map_err(|error| sql_error(error.into()))?;
        if !places.iter().any(|(known, _)| *known == id) {
            places.push((id, column.data_type().clone()));
        }
    }
    BatchExpr::new(expr, &places, context)
}

impl Operator for SetReturning {
    fn name(&self) -> &'static str {
        "SetReturning"
    }

    fn multiplies_rows(&self) -> bool {
        true
    }

    fn run(
        &self,
        inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(input) = inputs.first() else {
            return datafusion::common::internal_err!("set-returning functions have an input");
        };
        let room = MemoryConsumer::new("SetReturning").register(context.memory_pool());
        let running = Running {
            calls: Arc::clone(&self.calls),
            ordinality: self.ordinality,
            keep: self.keep,
            context: Arc::clone(&self.context),
            schema: Arc::clone(schema),
            batch_rows: context.session_config().batch_size().max(1),
            room,
        };
        let input = input.execute(0, Arc::clone(context))?;
        let rows = stream::try_unfold((running, input), |(mut running, mut input)| async move {
            let Some(batch) = input.next().await else {
                return Ok(None);
            };
            let batches = running.batches(&batch?)?;
            Ok::<_, datafusion::error::DataFusionError>(Some((batches, (running, input))))
        });
        let rows = rows
            .map_ok(|batches| stream::iter(batches.into_iter().map(Ok)))
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}

/// The rows that a call returned.
type Rows = Vec<Vec<Value>>;

/// The state of running calls.
struct Running {
    calls: Arc<Vec<Call>>,
    ordinality: bool,
    keep: bool,
    context: Arc<ExecutionContext>,
    schema: SchemaRef,
    batch_rows: usize,
    room: MemoryReservation,
}

impl Running {
    /// The output for one batch of the input.
    fn batches(&mut self, input: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let calls = Arc::clone(&self.calls);
        let mut arguments: Vec<Vec<ValueColumn>> = Vec::with_capacity(calls.len());
        for call in calls.iter() {
            arguments.push(columns(call, input).map_err(external)?);
        }
        let mut out = Output::new(self.schema.fields().len() - input.num_columns());
        let mut batches = Vec::new();
        for row in 0..input.num_rows() {
            let mut results: Vec<Rows> = Vec::with_capacity(calls.len());
            for (call, columns) in calls.iter().zip(&arguments) {
                results.push(self.rows(call, columns, row)?);
            }
            let count = results.iter().map(Vec::len).max().unwrap_or(0);
            let mut results: Vec<_> = results.into_iter().map(Vec::into_iter).collect();
            let given = if count == 0 && self.keep { 1 } else { count };
            for number in 0..given {
                let mut values = out.begin(row);
                for (rows, call) in results.iter_mut().zip(calls.iter()) {
                    let values_of_row = rows.next().unwrap_or_default();
                    let missing = call.types.len().saturating_sub(values_of_row.len());
                    values.extend(values_of_row);
                    values.extend(std::iter::repeat_n(Value::Null, missing));
                }
                if self.ordinality {
                    values.push(if count == 0 {
                        Value::Null
                    } else {
                        Value::Int8(number as i64 + 1)
                    });
                }
                out.end(values).map_err(external)?;
                if out.places.len() >= self.batch_rows {
                    batches.push(self.flushed(&mut out, input)?);
                }
            }
        }
        if !out.places.is_empty() {
            batches.push(self.flushed(&mut out, input)?);
        }
        self.room.free();
        Ok(batches)
    }

    /// The rows that a call returns for one input row.
    fn rows(&mut self, call: &Call, columns: &[ValueColumn], row: usize) -> Result<Rows> {
        let arguments: Vec<ValueRef<'_>> = columns.iter().map(|column| column.value_ref(row)).collect();
        let mut rows: Rows = Vec::new();
        if call.function.strict && arguments.iter().any(ValueRef::is_null) {
            return Ok(rows);
        }
        let execution = self.context.execution();
        let context = execution.context();
        let (room, mut full) = (&mut self.room, None);
        let outcome = (call.function.compute)(&context, &arguments, &mut |values| {
            if rows.len().is_multiple_of(ROWS_BETWEEN_CHECKS) {
                interrupt::check()?;
                let bytes = ROWS_BETWEEN_CHECKS * (1 + values.len()) * size_of::<Value>();
                if let Err(error) = room.try_grow(bytes) {
                    full = Some(error);
                    return Err(SqlError::internal("out of memory for this query"));
                }
            }
            rows.push(values);
            Ok(())
        });
        match (outcome, full) {
            (_, Some(error)) => Err(error),
            (Err(error), None) => Err(external(error)),
            (Ok(()), None) => Ok(rows),
        }
    }

    fn flushed(&self, out: &mut Output, input: &RecordBatch) -> Result<RecordBatch> {
        let places = UInt32Array::from(std::mem::take(&mut out.places));
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for array in input.columns() {
            arrays.push(take(array, &places, None)?);
        }
        let fields = self.schema.fields().iter().skip(input.num_columns());
        for (values, field) in out.columns.iter_mut().zip(fields) {
            let mut builder = ColumnBuilder::new(field.data_type(), values.len()).map_err(external)?;
            for value in values.drain(..) {
                builder.push(&value.as_ref()).map_err(external)?;
            }
            arrays.push(builder.finish());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            arrays,
            &options,
        )?)
    }
}

/// Evaluates the arguments of a call over a batch.
fn columns(call: &Call, input: &RecordBatch) -> std::result::Result<Vec<ValueColumn>, SqlError> {
    let mut columns = Vec::with_capacity(call.arguments.len());
    for argument in &call.arguments {
        let mut arrays = Vec::with_capacity(argument.inputs().len());
        for id in argument.inputs() {
            let array = input
                .column_by_name(&field_name(*id))
                .ok_or_else(|| SqlError::internal("an argument's column is missing"))?;
            arrays.push(Arc::clone(array));
        }
        let array = argument.evaluate(&arrays, input.num_rows())?;
        columns.push(ValueColumn::new(&array, &argument.ty())?);
    }
    Ok(columns)
}

/// Output rows that are being collected.
struct Output {
    /// For each output row, the input row that it belongs to.
    places: Vec<u32>,
    columns: Vec<Vec<Value>>,
}

impl Output {
    fn new(columns: usize) -> Output {
        Output {
            places: Vec::new(),
            columns: vec![Vec::new(); columns],
        }
    }

    fn begin(&mut self, row: usize) -> Vec<Value> {
        self.places.push(row as u32);
        Vec::with_capacity(self.columns.len())
    }

    fn end(&mut self, values: Vec<Value>) -> std::result::Result<(), SqlError> {
        if values.len() != self.columns.len() {
            return Err(SqlError::internal(
                "a set-returning function returned a wrong number of columns",
            ));
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        Ok(())
    }
}
