//! Recursive relations.
//!
//! [`Recursion`] is WITH RECURSIVE: its term runs over the rows of the previous step ([`working`]) until a
//! step returns no rows. UNION removes rows that occurred before; their key bytes decide.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use hashbrown::HashSet;
use parking_lot::Mutex;
use weft_expression::ColumnId;
use weft_types::{SqlError, SqlType, encode_key_value_ref};

use crate::arrays::{ValueColumn, converted};
use crate::errors::external;
use crate::operator::{Operator, operator_plan};
use crate::schema::{arrow_type, field, field_name};

/// The rows of the previous step of a recursive relation, read by its term.
#[derive(Default)]
pub struct WorkingTable {
    batches: Mutex<Vec<RecordBatch>>,
}

impl fmt::Debug for WorkingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkingTable")
    }
}

/// Reads some columns of a working table.
#[derive(Debug)]
struct Working {
    table: Arc<WorkingTable>,
    columns: Vec<usize>,
}

/// The plan that reads a working table; `columns` are positions in it, with the ids and types that they get.
///
/// # Errors
/// If two columns have one name.
pub fn working(
    table: &Arc<WorkingTable>,
    columns: &[(usize, ColumnId, SqlType)],
) -> std::result::Result<LogicalPlan, SqlError> {
    let fields: Vec<_> = columns
        .iter()
        .map(|(_, id, ty)| field(*id, arrow_type(ty)))
        .collect();
    let operator = Working {
        table: Arc::clone(table),
        columns: columns.iter().map(|(at, _, _)| *at).collect(),
    };
    operator_plan(Arc::new(operator), Vec::new(), Schema::new(fields), Vec::new())
}

impl Operator for Working {
    fn name(&self) -> &'static str {
        "WorkingTable"
    }

    fn run(
        &self,
        _inputs: &[Arc<dyn ExecutionPlan>],
        schema: &SchemaRef,
        _context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows: Result<Vec<RecordBatch>> = self
            .table
            .batches
            .lock()
            .iter()
            .map(|batch| {
                let arrays = batch.project(&self.columns)?.columns().to_vec();
                labelled(arrays, batch.num_rows(), schema)
            })
            .collect();
        let rows = stream::iter(rows?.into_iter().map(Ok));
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}

fn labelled(arrays: Vec<ArrayRef>, rows: usize, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        arrays,
        &options,
    )?)
}

/// A recursive relation.
#[derive(Debug, Clone)]
pub struct Recursion {
    /// The working table that the term reads.
    pub table: Arc<WorkingTable>,
    /// UNION ALL rather than UNION.
    pub all: bool,
    /// The columns of the relation.
    pub columns: Vec<(ColumnId, SqlType)>,
    /// For each column, its source in the start and in the term.
    pub sources: Vec<(ColumnId, ColumnId)>,
}

/// Makes the plan of a recursive relation.
///
/// # Errors
/// If two columns have one name.
pub fn recursive(
    recursion: Recursion,
    start: LogicalPlan,
    term: LogicalPlan,
) -> std::result::Result<LogicalPlan, SqlError> {
    let fields: Vec<_> = recursion
        .columns
        .iter()
        .map(|(id, ty)| field(*id, arrow_type(ty)))
        .collect();
    operator_plan(
        Arc::new(recursion),
        vec![start, term],
        Schema::new(fields),
        Vec::new(),
    )
}

impl Operator for Recursion {
    fn name(&self) -> &'static str {
        "Recursion"
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
        let [start, term] = inputs else {
            return datafusion::common::internal_err!("a recursion has two inputs");
        };
        let steps = Steps {
            recursion: self.clone(),
            schema: Arc::clone(schema),
            term: Arc::clone(term),
            running: start.execute(0, Arc::clone(context))?,
            room: MemoryConsumer::new("Recursion").register(context.memory_pool()),
            seen_room: MemoryConsumer::new("Recursion").register(context.memory_pool()),
            context: Arc::clone(context),
            in_term: false,
            next: Vec::new(),
            seen: HashSet::new(),
        };
        let rows = stream::try_unfold(steps, |mut steps| async move {
            let batch = steps.next().await?;
            Ok::<_, DataFusionError>(batch.map(|batch| (batch, steps)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), rows)))
    }
}

/// A running recursion.
struct Steps {
    recursion: Recursion,
    schema: SchemaRef,
    term: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    running: SendableRecordBatchStream,
    in_term: bool,
    /// The rows of the current step, which the next step reads.
    next: Vec<RecordBatch>,
    room: MemoryReservation,
    /// Keys of all rows, for UNION.
    seen: HashSet<Vec<u8>>,
    seen_room: MemoryReservation,
}

impl Steps {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match self.running.next().await {
                Some(batch) => {
                    let batch = self.relabelled(&batch?).map_err(external)?;
                    let batch = if self.recursion.all {
                        batch
                    } else {
                        self.unseen(&batch)?
                    };
                    if batch.num_rows() > 0 {
                        self.room.try_grow(batch.get_array_memory_size())?;
                        self.next.push(batch.clone());
                        return Ok(Some(batch));
                    }
                }
                None if self.next.is_empty() => {
                    self.recursion.table.batches.lock().clear();
                    return Ok(None);
                }
                None => {
                    let step = std::mem::take(&mut self.next);
                    let held = step.iter().map(RecordBatch::get_array_memory_size).sum();
                    *self.recursion.table.batches.lock() = step;
                    // The previous step's rows are no longer read.
                    self.room.try_resize(held)?;
                    let term = reset_plan_states(Arc::clone(&self.term))?;
                    self.running = term.execute(0, Arc::clone(&self.context))?;
                    self.in_term = true;
                }
            }
        }
    }

    /// A batch of the start or the term, with the recursion's columns.
    fn relabelled(&self, batch: &RecordBatch) -> std::result::Result<RecordBatch, SqlError> {
        let mut arrays = Vec::with_capacity(self.recursion.columns.len());
        for ((_, ty), (start, term)) in self.recursion.columns.iter().zip(&self.recursion.sources) {
            let name = field_name(if self.in_term { *term } else { *start });
            let array = batch
                .column_by_name(&name)
                .ok_or_else(|| SqlError::internal(format!("a recursion lacks column {name}")))?;
            arrays.push(converted(array, ty, &arrow_type(ty))?);
        }
        labelled(arrays, batch.num_rows(), &self.schema).map_err(crate::errors::sql_error)
    }

    /// The rows that did not occur before.
    fn unseen(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns: std::result::Result<Vec<ValueColumn>, SqlError> = batch
            .columns()
            .iter()
            .zip(&self.recursion.columns)
            .map(|(array, (_, ty))| ValueColumn::new(array, ty))
            .collect();
        let columns = columns.map_err(external)?;
        let mut fresh = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let mut key = Vec::new();
            for column in &columns {
                encode_key_value_ref(&mut key, &column.value_ref(row));
            }
            let bytes = key.len() + size_of::<Vec<u8>>();
            let is_fresh = self.seen.insert(key);
            if is_fresh {
                self.seen_room.try_grow(bytes)?;
            }
            fresh.push(is_fresh);
        }
        Ok(filter_record_batch(batch, &BooleanArray::from(fresh))?)
    }
}
