//! One side of a join in memory: the columns that are needed above or by the condition, and the keys.
//!
//! Every partition of the input is read by a task of its own. Its rows are counted in the memory pool before
//! the next batch is asked for. Batches are then put together, column by column, to chunks of millions of
//! rows: a row of the result is gathered from one array instead of from hundreds.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, UInt32Array, new_null_array};
use datafusion::arrow::compute::{concat, interleave, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::StreamExt;
use weft_types::interrupt::{self, Interrupt};

use crate::slice::breathe;

/// Rows of a chunk at most.
const CHUNK_ROWS_MAX: usize = 4 << 20;
/// Bytes of a chunk at most: offsets into a text column have 31 bits.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// Rows of a side at most: the highest number stands for none.
const ROWS_MAX: usize = u32::MAX as usize - 1;

/// Rows as they came.
pub(super) struct Batch {
    pub(super) rows: usize,
    columns: Vec<ArrayRef>,
    /// The key of each row.
    pub(super) key: ArrayRef,
    /// The number of the first row.
    pub(super) first: u64,
}

/// All rows of a side.
pub(super) struct Collected {
    pub(super) batches: Vec<Batch>,
    pub(super) rows: usize,
    /// One for each partition.
    pub(super) rooms: Vec<MemoryReservation>,
}

/// What is collected of a side.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Its key.
    pub(super) key: PhysicalExprRef,
    /// Columns that are kept, ascending.
    pub(super) columns: Vec<usize>,
    /// The types of those columns.
    pub(super) types: Vec<DataType>,
}

/// Bytes of a value without a fixed width, as far as anybody knows.
const VALUE_BYTES: usize = 24;

impl Wanted {
    /// Bytes of one row, about.
    pub(super) fn row_bytes(&self) -> usize {
        let bytes = |ty: &DataType| match ty {
            DataType::FixedSizeBinary(bytes) => usize::try_from(*bytes).unwrap_or(0),
            other => other.primitive_width().unwrap_or(VALUE_BYTES),
        };
        self.types.iter().map(bytes).sum()
    }

    /// Where a column of the side is among those that are kept.
    pub(super) fn place(&self, column: usize) -> Result<usize> {
        match self.columns.binary_search(&column) {
            Ok(place) => Ok(place),
            Err(_) => internal_err!("column {column} was not kept for a join"),
        }
    }
}

/// Reads all partitions of a plan.
pub(super) async fn collect(
    plan: Arc<dyn ExecutionPlan>,
    wanted: Wanted,
    name: &str,
    context: Arc<TaskContext>,
    stop: Option<&Arc<dyn Interrupt>>,
) -> Result<Collected> {
    let mut tasks = Vec::new();
    for partition in 0..plan.output_partitioning().partition_count() {
        let rows = plan.execute(partition, Arc::clone(&context))?;
        let room = MemoryConsumer::new(format!("{name}[{partition}]")).register(context.memory_pool());
        let read = collect_partition(rows, wanted.clone(), room, stop.cloned());
        tasks.push(SpawnedTask::spawn(read));
    }
    let mut all = Collected {
        batches: Vec::new(),
        rows: 0,
        rooms: Vec::new(),
    };
    for task in tasks {
        let (batches, room) = joined(task).await?;
        for mut batch in batches {
            batch.first = all.rows as u64;
            all.rows += batch.rows;
            all.batches.push(batch);
        }
        all.rooms.push(room);
    }
    if all.rows > ROWS_MAX {
        return exec_err!("one side of a join has {} rows, more than {ROWS_MAX}", all.rows);
    }
    Ok(all)
}

/// The result of a task.
pub(super) async fn joined<T: Send + 'static>(task: SpawnedTask<Result<T>>) -> Result<T> {
    match task.join().await {
        Ok(outcome) => outcome,
        Err(error) => Err(DataFusionError::External(Box::new(error))),
    }
}

async fn collect_partition(
    mut input: SendableRecordBatchStream,
    wanted: Wanted,
    room: MemoryReservation,
    stop: Option<Arc<dyn Interrupt>>,
) -> Result<(Vec<Batch>, MemoryReservation)> {
    let mut batches = Vec::new();
    while let Some(batch) = input.next().await {
        let batch = batch?;
        let rows = batch.num_rows();
        if rows == 0 {
            continue;
        }
        let key = || wanted.key.evaluate(&batch)?.into_array(rows);
        let key = match &stop {
            Some(stop) => interrupt::with(Arc::clone(stop), key)?,
            None => key()?,
        };
        let columns = batch.project(&wanted.columns)?.columns().to_vec();
        let is_column = columns.iter().any(|column| Arc::ptr_eq(column, &key));
        let own = if is_column { 0 } else { key.get_array_memory_size() };
        let bytes: usize = columns.iter().map(|column| column.get_array_memory_size()).sum();
        room.try_grow(bytes + own)?;
        batches.push(Batch {
            rows,
            columns,
            key,
            first: 0,
        });
    }
    Ok((batches, room))
}

/// The columns of a side.
pub(super) struct Columns {
    rows: usize,
    /// The first row of each chunk.
    starts: Vec<usize>,
    /// By column, its chunks.
    columns: Vec<Vec<ArrayRef>>,
    types: Vec<DataType>,
}

impl Columns {
    /// Puts the columns of batches together; the batches keep their keys only.
    pub(super) async fn of(
        collected: &mut Collected,
        wanted: &Wanted,
        stop: Option<&Arc<dyn Interrupt>>,
    ) -> Result<Columns> {
        let ends = chunk_ends(&collected.batches);
        let mut columns = Vec::with_capacity(wanted.types.len());
        for _ in &wanted.types {
            let mut chunks = Vec::with_capacity(ends.len());
            let mut first = 0;
            for end in &ends {
                let batches = collected.batches.get_mut(first..*end).unwrap_or_default();
                // The columns after this one move up; the first one is always the next.
                let parts: Vec<ArrayRef> = batches.iter_mut().map(|batch| batch.columns.remove(0)).collect();
                chunks.push(whole(parts, collected.rooms.first())?);
                breathe(stop).await?;
                first = *end;
            }
            columns.push(chunks);
        }
        let mut starts = vec![0];
        starts.extend(ends.iter().filter_map(|end| {
            let batch = collected.batches.get(*end)?;
            Some(batch.first as usize)
        }));
        starts.truncate(ends.len());
        Ok(Columns {
            rows: collected.rows,
            starts,
            columns,
            types: wanted.types.clone(),
        })
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The values of a column in some rows; NULL for rows that are NULL.
    pub(super) fn gather(&self, column: usize, rows: &UInt32Array) -> Result<ArrayRef> {
        let (Some(chunks), Some(data_type)) = (self.columns.get(column), self.types.get(column)) else {
            return internal_err!("a join has no column {column}");
        };
        match chunks.as_slice() {
            [] => Ok(new_null_array(data_type, rows.len())),
            [one] => Ok(take(one, rows, None)?),
            several => {
                let missing = new_null_array(data_type, 1);
                let mut arrays: Vec<&dyn Array> = several.iter().map(|chunk| chunk.as_ref()).collect();
                arrays.push(missing.as_ref());
                let places: Vec<(usize, usize)> =
                    rows.iter().map(|row| self.place(row, several.len())).collect();
                Ok(interleave(&arrays, &places)?)
            }
        }
    }

    /// The chunk of a row and where it is in it.
    fn place(&self, row: Option<u32>, missing: usize) -> (usize, usize) {
        let Some(row) = row.map(|row| row as usize) else {
            return (missing, 0);
        };
        let chunk = self
            .starts
            .partition_point(|start| *start <= row)
            .saturating_sub(1);
        (chunk, row - self.starts.get(chunk).copied().unwrap_or(0))
    }
}

/// After which batches chunks end.
fn chunk_ends(batches: &[Batch]) -> Vec<usize> {
    let (mut ends, mut rows, mut bytes) = (Vec::new(), 0, 0);
    for (number, batch) in batches.iter().enumerate() {
        let more: usize = batch
            .columns
            .iter()
            .map(|column| column.get_array_memory_size())
            .sum();
        if number > 0 && (rows + batch.rows > CHUNK_ROWS_MAX || bytes + more > CHUNK_BYTES_MAX) {
            ends.push(number);
            (rows, bytes) = (0, 0);
        }
        rows += batch.rows;
        bytes += more;
    }
    if !batches.is_empty() {
        ends.push(batches.len());
    }
    ends
}

/// One array of several, reserved while both are there.
fn whole(parts: Vec<ArrayRef>, room: Option<&MemoryReservation>) -> Result<ArrayRef> {
    if let [one] = parts.as_slice() {
        return Ok(Arc::clone(one));
    }
    let bytes: usize = parts.iter().map(|part| part.get_array_memory_size()).sum();
    if let Some(room) = room {
        room.try_grow(bytes)?;
    }
    let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
    let whole = concat(&arrays);
    drop(arrays);
    drop(parts);
    if let Some(room) = room {
        room.shrink(bytes);
    }
    Ok(whole?)
}
