//! Window functions over input that is sorted by partition and order keys.
//!
//! All calls of one [`WindowPlan`] share partition and order keys, and therefore one sort. The operator
//! collects a partition (its rows are held within the pool's limit), computes each call over it, and returns
//! it. Everything it reads is a column of the input: arguments, filters, keys that Arrow compares as
//! PostgreSQL does, frame offsets and boundaries.
//!
//! An aggregate over a frame that starts at the partition's first row and only grows (the default)
//! accumulates every row once. Over other frames it is computed again wherever the frame changes: values are
//! never subtracted from a state, because that would change float sums.

mod frame;
mod values;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{concat_batches, partition};
use datafusion::arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, Result};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use weft_binder::relation::{FrameExclusion, FrameUnit, WindowFunction};
use weft_expression::ColumnId;
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use crate::arrays::{ValueColumn, array_of_values};
use crate::errors::external;
use crate::operator::{Operator, operator_plan};
use crate::schema::{arrow_type, field, field_name};
use crate::session::ExecutionContext;
use frame::Frames;
use values::Values;

/// A frame bound; its offset or boundary is a column of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// UNBOUNDED PRECEDING or UNBOUNDED FOLLOWING
    Unbounded,
    /// CURRENT ROW
    CurrentRow,
    /// n PRECEDING; for RANGE the boundary key.
    Preceding(ColumnId, SqlType),
    /// n FOLLOWING; for RANGE the boundary key.
    Following(ColumnId, SqlType),
}

/// A call over columns of the input.
#[derive(Clone, Debug)]
pub struct Call {
    /// Column of its value.
    pub output: ColumnId,
    /// Type of the value.
    pub ty: SqlType,
    /// The window function.
    pub function: WindowFunction,
    /// Arguments.
    pub arguments: Vec<(ColumnId, SqlType)>,
    /// FILTER.
    pub filter: Option<ColumnId>,
    /// ROWS, RANGE or GROUPS.
    pub unit: FrameUnit,
    /// The frame's start.
    pub start: Bound,
    /// The frame's end.
    pub end: Bound,
    /// EXCLUDE.
    pub exclude: FrameExclusion,
    /// For RANGE with an offset: the sort key itself, of the boundaries' type, and whether it is descending.
    pub range_key: Option<(ColumnId, SqlType, bool)>,
}

/// Calls that share partition and order.
#[derive(Clone)]
pub struct WindowPlan {
    /// PARTITION BY: columns whose Arrow equality is that of their values.
    pub partition: Vec<ColumnId>,
    /// ORDER BY: columns whose Arrow order is that of their values; whether descending; whether NULLs first.
    pub order: Vec<(ColumnId, bool, bool)>,
    /// The calls.
    pub calls: Vec<Call>,
    /// Context in which aggregates are computed.
    pub context: Arc<ExecutionContext>,
}

impl fmt::Debug for WindowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// The plan that adds the columns of the calls to those of `input`.
///
/// # Errors
/// If two columns have one name.
pub fn window(window: WindowPlan, input: LogicalPlan) -> std::result::Result<LogicalPlan, SqlError> {
    let mut fields: Vec<FieldRef> = input.schema().as_arrow().fields().iter().cloned().collect();
    fields.extend(
        window
            .calls
            .iter()
            .map(|call| Arc::new(field(call.output, arrow_type(&call.ty)))),
    );
    let named = |id: ColumnId| Expr::Column(Column::new_unqualified(field_name(id)));
    let mut ordering: Vec<SortExpr> = window
        .partition
        .iter()
        .map(|id| SortExpr::new(named(*id), true, false))
        .collect();
    let keys = window.order.iter();
    ordering.extend(keys.map(|(id, descending, first)| SortExpr::new(named(*id), !descending, *first)));
    operator_plan(Arc::new(window), vec![input], Schema::new(fields), ordering)
}

impl Operator for WindowPlan {
    fn name(&self) -> &'static str {
        "Window"
    }

    fn run(
        &self,
        inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(input) = inputs.first() else {
            return datafusion::common::internal_err!("a window has an input");
        };
        let running = Running {
            window: self.clone(),
            schema: Arc::clone(schema),
            input_schema: input.schema(),
            input: input.execute(0, Arc::clone(context))?,
            held: Vec::new(),
            room: MemoryConsumer::new("Window").register(context.memory_pool()),
            ended: false,
        };
        let rows = stream::try_unfold(running, |mut running| async move {
            let batch = running.next().await?;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, running)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}

/// The state of a running window operator.
struct Running {
    window: WindowPlan,
    schema: SchemaRef,
    input_schema: SchemaRef,
    input: SendableRecordBatchStream,
    /// Rows of the partition that may continue in the next batch.
    held: Vec<RecordBatch>,
    room: MemoryReservation,
    ended: bool,
}

impl Running {
    /// The rows of the next complete partitions, with the columns of the calls.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended {
            match self.input.next().await {
                Some(batch) => {
                    let batch = batch?;
                    if batch.num_rows() == 0 {
                        continue;
                    }
                    self.room.try_grow(batch.get_array_memory_size())?;
                    // There is nothing to compute until a batch ends a partition.
                    let ends = !self.window.partition.is_empty() && self.ends_partition(&batch)?;
                    self.held.push(batch);
                    if ends {
                        let rows = concat_batches(&self.input_schema, &self.held)?;
                        let complete = self.last_partition(&rows)?.start;
                        self.held = vec![rows.slice(complete, rows.num_rows() - complete)];
                        let computed = self.computed(&rows.slice(0, complete))?;
                        self.room.try_resize(rows.get_array_memory_size())?;
                        return Ok(Some(computed));
                    }
                }
                None => self.ended = true,
            }
        }
        if self.held.is_empty() {
            return Ok(None);
        }
        let rows = concat_batches(&self.input_schema, &self.held)?;
        self.held.clear();
        if rows.num_rows() == 0 {
            return Ok(None);
        }
        self.computed(&rows).map(Some)
    }

    /// Whether the batch has rows of a partition other than that of the last row held.
    fn ends_partition(&self, batch: &RecordBatch) -> Result<bool> {
        let Some(last) = self.held.last() else {
            return Ok(self.last_partition(batch)?.start > 0);
        };
        let pair = concat_batches(&self.input_schema, [&last.slice(last.num_rows() - 1, 1), batch])?;
        Ok(self.last_partition(&pair)?.start > 0)
    }

    fn last_partition(&self, rows: &RecordBatch) -> Result<Range<usize>> {
        Ok(ranges(rows, &self.window.partition)?
            .pop()
            .unwrap_or(0..rows.num_rows()))
    }

    /// The rows of complete partitions with the columns of the calls.
    fn computed(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let calls = self.window.calls.iter();
        let mut values: Vec<Values<'_>> = calls.map(|_| Values::new(rows.num_rows(), &self.room)).collect();
        for range in ranges(rows, &self.window.partition)? {
            let rows = rows.slice(range.start, range.len());
            let order: Vec<ColumnId> = self.window.order.iter().map(|(id, _, _)| *id).collect();
            let peers = ranges(&rows, &order)?;
            for (call, values) in self.window.calls.iter().zip(&mut values) {
                over_partition(call, &rows, &peers, &self.window.context, values).map_err(external)?;
            }
        }
        let mut arrays: Vec<ArrayRef> = rows.columns().to_vec();
        for (call, values) in self.window.calls.iter().zip(&values) {
            let array = array_of_values(values.all(), &call.ty, &arrow_type(&call.ty));
            arrays.push(array.map_err(external)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            arrays,
            &options,
        )?)
    }
}

/// The ranges of rows with equal values in `columns`; all rows if there are no columns.
fn ranges(rows: &RecordBatch, columns: &[ColumnId]) -> Result<Vec<Range<usize>>> {
    if columns.is_empty() || rows.num_rows() == 0 {
        let all = 0..rows.num_rows();
        return Ok(Vec::from([all]));
    }
    let arrays: Result<Vec<ArrayRef>> = columns
        .iter()
        .map(|id| array(rows, *id).map_err(external))
        .collect();
    Ok(partition(&arrays?)?.ranges())
}

fn array(rows: &RecordBatch, id: ColumnId) -> std::result::Result<ArrayRef, SqlError> {
    let found = rows.column_by_name(&field_name(id)).map(Arc::clone);
    found.ok_or_else(|| SqlError::internal(format!("a window lacks column c{}", id.0)))
}

fn column(rows: &RecordBatch, id: ColumnId, ty: &SqlType) -> std::result::Result<ValueColumn, SqlError> {
    ValueColumn::new(&array(rows, id)?, ty)
}

/// Appends the values of a call over one partition with the peer groups `peers`.
fn over_partition(
    call: &Call,
    rows: &RecordBatch,
    peers: &[Range<usize>],
    context: &ExecutionContext,
    out: &mut Values<'_>,
) -> std::result::Result<(), SqlError> {
    let count = rows.num_rows();
    let arguments: std::result::Result<Vec<ValueColumn>, SqlError> = call
        .arguments
        .iter()
        .map(|(id, ty)| column(rows, *id, ty))
        .collect();
    let arguments = arguments?;
    match call.function {
        WindowFunction::RowNumber => {
            for number in 1..=count as i64 {
                out.push(Value::Int8(number))?;
            }
        }
        WindowFunction::Rank
        | WindowFunction::DenseRank
        | WindowFunction::PercentRank
        | WindowFunction::CumeDist => ranked(call.function, peers, count, out)?,
        WindowFunction::Ntile => ntile(&arguments, count, out)?,
        WindowFunction::Lag => shifted(&arguments, count, -1, out)?,
        WindowFunction::Lead => shifted(&arguments, count, 1, out)?,
        WindowFunction::FirstValue | WindowFunction::LastValue | WindowFunction::NthValue => {
            let frames = Frames::new(call, rows, peers)?;
            for row in 0..count {
                out.push(of_frame(call.function, &frames, row, &arguments)?)?;
            }
        }
        WindowFunction::Aggregate(_) => {
            let frames = Frames::new(call, rows, peers)?;
            frame::aggregated(call, &frames, rows, &arguments, context, out)?;
        }
    }
    Ok(())
}

fn ranked(
    function: WindowFunction,
    peers: &[Range<usize>],
    count: usize,
    out: &mut Values<'_>,
) -> std::result::Result<(), SqlError> {
    for (group, range) in peers.iter().enumerate() {
        let value = match function {
            WindowFunction::Rank => Value::Int8(range.start as i64 + 1),
            WindowFunction::DenseRank => Value::Int8(group as i64 + 1),
            WindowFunction::PercentRank if count <= 1 => Value::Float8(0.0),
            WindowFunction::PercentRank => Value::Float8(range.start as f64 / (count - 1) as f64),
            _ => Value::Float8(range.end as f64 / count as f64),
        };
        for _ in 0..range.len() {
            out.push(value.clone())?;
        }
    }
    Ok(())
}

/// Buckets whose sizes differ by at most one, larger ones first. The first row determines the number of
/// buckets.
fn ntile(arguments: &[ValueColumn], count: usize, out: &mut Values<'_>) -> std::result::Result<(), SqlError> {
    let Some(Value::Int4(buckets)) = arguments
        .first()
        .filter(|_| count > 0)
        .map(|column| column.value(0))
    else {
        for _ in 0..count {
            out.push(Value::Null)?;
        }
        return Ok(());
    };
    if buckets <= 0 {
        return Err(SqlError::new(
            SqlState::from_code("22014").unwrap_or(SqlState::INVALID_PARAMETER_VALUE),
            "argument of ntile must be greater than zero",
        ));
    }
    let buckets = buckets as usize;
    let (size, larger) = (count / buckets, count % buckets);
    for row in 0..count {
        let in_larger = larger * (size + 1);
        let bucket = if row < in_larger {
            row / (size + 1)
        } else {
            larger + (row - in_larger) / size.max(1)
        };
        out.push(Value::Int4(bucket as i32 + 1))?;
    }
    Ok(())
}

/// lag and lead: value, offset, default.
fn shifted(
    arguments: &[ValueColumn],
    count: usize,
    direction: i64,
    out: &mut Values<'_>,
) -> std::result::Result<(), SqlError> {
    let [value, offset, default] = arguments else {
        return Err(SqlError::internal("lag and lead take three arguments"));
    };
    for row in 0..count {
        let Some(offset) = offset.value(row).as_i64() else {
            out.push(Value::Null)?;
            continue;
        };
        let place = offset
            .checked_mul(direction)
            .and_then(|by| by.checked_add(row as i64));
        let place = place
            .and_then(|place| usize::try_from(place).ok())
            .filter(|place| *place < count);
        out.push(place.map_or_else(|| default.value(row), |place| value.value(place)))?;
    }
    Ok(())
}

/// first_value, last_value and nth_value.
fn of_frame(
    function: WindowFunction,
    frames: &Frames,
    row: usize,
    arguments: &[ValueColumn],
) -> std::result::Result<Value, SqlError> {
    let Some(values) = arguments.first() else {
        return Err(SqlError::internal("a window function lacks its argument"));
    };
    let pieces = frames.pieces(row);
    let place = match function {
        WindowFunction::FirstValue => pieces
            .iter()
            .find(|piece| !piece.is_empty())
            .map(|piece| piece.start),
        WindowFunction::LastValue => pieces
            .iter()
            .rfind(|piece| !piece.is_empty())
            .map(|piece| piece.end - 1),
        _ => {
            let Some(ValueRef::Int4(number)) = arguments.get(1).map(|column| column.value_ref(row)) else {
                return Ok(Value::Null);
            };
            let mut rest = usize::try_from(number)
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| {
                    SqlError::new(
                        SqlState::from_code("22016").unwrap_or(SqlState::INVALID_PARAMETER_VALUE),
                        "argument of nth_value must be greater than zero",
                    )
                })?
                - 1;
            pieces.iter().find_map(|piece| {
                if rest < piece.len() {
                    return Some(piece.start + rest);
                }
                rest -= piece.len();
                None
            })
        }
    };
    Ok(place.map_or(Value::Null, |place| values.value(place)))
}
