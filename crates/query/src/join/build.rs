//! The build side of a join whose probe side streams by: its rows, a hash table over their keys, and what it
//! tells the scans of the probe side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::compute::{concat, max, min, take};
use datafusion::arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, UInt32Type};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, lit};
use datafusion::physical_plan::ExecutionPlanProperties;
use hashbrown::HashSet;
use weft_base::Budget;
use weft_join::{HashTable, JoinError, MORSEL_TUPLES, Ranges, TableWriter, Tuple};
use weft_types::interrupt::{self, Interrupt};
use weft_types::{SqlError, SqlState};

use super::key::{Keys, NOTHING, is_hashed, widen};
use super::side::{Batch, Collected, Columns, collect, joined};
use super::spec::Spec;
use crate::errors::external;
use crate::key_range::RANGES_MAX;
use crate::slice::breathe;

/// A table of fewer tuples is filled by one task.
const TOGETHER_TUPLES_MIN: usize = 64 << 10;
/// Tasks that fill one table: each reads all keys.
const WRITERS_MAX: usize = 4;
/// One in so many tuples may have a key that is too frequent for the table's lines; if there are more, the
/// table is filled again with room for all.
const OVERFLOWING_SHARE: usize = 16;
/// Rows of a build side whose distinct keys are counted.
const COUNTED_ROWS_MAX: usize = 16 * RANGES_MAX;

/// A build side that can be probed.
pub(super) struct Built {
    pub(super) columns: Columns,
    /// `None`: no row has a key.
    pub(super) table: Option<HashTable>,
    pub(super) keys: Keys,
    /// The keys themselves, if the table has hashes of them.
    pub(super) exact: Option<ArrayRef>,
    /// A bit for each row: has a partner. Empty if nobody asks.
    visited: Vec<AtomicU64>,
    /// Probe partitions that have not ended.
    pub(super) probing: AtomicUsize,
    _rooms: Vec<MemoryReservation>,
}

impl Built {
    /// The row has a partner.
    pub(super) fn visit(&self, row: u32) {
        if let Some(word) = self.visited.get(row as usize / 64) {
            let bit = 1 << (row % 64);
            // Most bits are set already when keys repeat; what is only read stays shared.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Whether the row has a partner, when all partitions have ended.
    pub(super) fn is_visited(&self, row: u32) -> bool {
        let word = self.visited.get(row as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (row % 64) & 1 == 1)
    }
}

/// Reads the build side and fills the table.
pub(super) async fn build(spec: Arc<Spec>, context: Arc<TaskContext>) -> Result<Arc<Built>> {
    let stop = interrupt::current();
    let stop = stop.as_ref();
    let left = Arc::clone(&spec.left);
    let mut collected = collect(left, spec.build.clone(), "JoinBuild", Arc::clone(&context), stop).await?;
    let pool = context.memory_pool();
    let room = MemoryConsumer::new("JoinTable").register(pool);
    let keys = Keys::default();
    let key_type = spec.key_type()?;
    let mut visited = Vec::new();
    if spec.marks_build() {
        let words = collected.rows.div_ceil(64);
        room.try_grow(words * size_of::<AtomicU64>())?;
        visited.resize_with(words, AtomicU64::default);
    }
    if let Some(told) = &spec.told {
        told.update(filter_of(&spec, &collected, &keys)?)?;
        told.mark_complete();
    }
    let columns = Columns::of(&mut collected, &spec.build, stop).await?;
    let Collected { batches, rooms, .. } = collected;
    let batches = Arc::new(batches);
    let writers = spec.right.output_partitioning().partition_count();
    let table = fill(&batches, &keys, writers, &room, stop).await?;
    let exact = match is_hashed(&key_type) && !batches.is_empty() {
        true => {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.key.as_ref()).collect();
            let bytes = arrays.iter().map(|array| array.get_array_memory_size()).sum();
            room.try_grow(bytes)?;
            Some(concat(&arrays)?)
        }
        false => None,
    };
    let mut rooms = rooms;
    rooms.push(room);
    Ok(Arc::new(Built {
        columns,
        table,
        keys,
        exact,
        visited,
        probing: AtomicUsize::new(writers),
        _rooms: rooms,
    }))
}

/// The table over all keys, filled by several tasks. `room` grows by what it needs, before it is made.
async fn fill(
    batches: &Arc<Vec<Batch>>,
    keys: &Keys,
    writers: usize,
    room: &MemoryReservation,
    stop: Option<&Arc<dyn Interrupt>>,
) -> Result<Option<HashTable>> {
    let tuples: usize = batches
        .iter()
        .map(|batch| batch.rows - batch.key.null_count())
        .sum();
    if tuples == 0 {
        return Ok(None);
    }
    let ranges = bounds(batches, keys, stop).await?;
    let writers = match tuples {
        ..TOGETHER_TUPLES_MIN => 1,
        _ => writers.clamp(1, WRITERS_MAX),
    };
    let mut overflowing = tuples / OVERFLOWING_SHARE + MORSEL_TUPLES;
    loop {
        let Some(bytes) = HashTable::bytes(tuples, overflowing) else {
            return Err(external(no_memory()));
        };
        room.try_grow(bytes)?;
        let filling = fill_once(batches, keys, (tuples, writers), (ranges, bytes), stop).await;
        match filling {
            Ok(table) => return Ok(Some(table)),
            // Keys are very unequally frequent.
            Err(Filling::NoRoom) if overflowing < 2 * tuples => {
                room.shrink(bytes);
                overflowing = 2 * tuples + MORSEL_TUPLES;
            }
            Err(Filling::NoRoom) => return Err(external(no_memory())),
            Err(Filling::Failed(error)) => return Err(error),
        }
    }
}

/// Why a table was not filled.
enum Filling {
    NoRoom,
    Failed(DataFusionError),
}

impl From<DataFusionError> for Filling {
    fn from(error: DataFusionError) -> Filling {
        Filling::Failed(error)
    }
}

impl From<JoinError> for Filling {
    fn from(error: JoinError) -> Filling {
        match error {
            JoinError::Budget { .. } => Filling::NoRoom,
            other => Filling::Failed(join_error(&other)),
        }
    }
}

/// The error of a join as a statement's.
pub(super) fn join_error(error: &JoinError) -> DataFusionError {
    let state = match error {
        JoinError::Budget { .. } | JoinError::Memory { .. } => SqlState::OUT_OF_MEMORY,
        JoinError::Io { .. } => SqlState::SYSTEM_ERROR,
        _ => SqlState::INTERNAL_ERROR,
    };
    external(SqlError::new(state, error.to_string()))
}

fn no_memory() -> SqlError {
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory for this query")
        .detail("the hash table of a join is too large")
}

async fn fill_once(
    batches: &Arc<Vec<Batch>>,
    keys: &Keys,
    (tuples, writers): (usize, usize),
    (ranges, bytes): (Ranges, usize),
    stop: Option<&Arc<dyn Interrupt>>,
) -> std::result::Result<HashTable, Filling> {
    let writers = TableWriter::all(tuples, Some(ranges), writers, &Budget::new(bytes))?;
    let mut tasks = Vec::new();
    for mut writer in writers {
        let (batches, keys, stop) = (Arc::clone(batches), keys.clone(), stop.cloned());
        let write = async move {
            let mut outcome = Ok(());
            each_morsel(&batches, &keys, stop.as_ref(), |tuples| {
                outcome = writer.insert(tuples);
                outcome.is_ok()
            })
            .await?;
            Ok(outcome.map(|()| writer))
        };
        tasks.push(SpawnedTask::spawn(write));
    }
    let mut filled = Vec::new();
    for task in tasks {
        filled.push(joined(task).await??);
    }
    Ok(HashTable::new(filled)?)
}

/// Visits the tuples of all rows, in slices, until `visit` returns false.
pub(super) async fn each_morsel(
    batches: &[Batch],
    keys: &Keys,
    stop: Option<&Arc<dyn Interrupt>>,
    mut visit: impl FnMut(&[Tuple]) -> bool + Send,
) -> Result<()> {
    let mut tuples = Vec::with_capacity(MORSEL_TUPLES);
    for batch in batches {
        for first in (0..batch.rows).step_by(MORSEL_TUPLES) {
            tuples.clear();
            let row = batch.first + first as u64;
            keys.tuples(&batch.key, (first, MORSEL_TUPLES), row, &mut tuples)?;
            if !visit(&tuples) {
                return Ok(());
            }
            breathe(stop).await?;
        }
    }
    Ok(())
}

async fn bounds(batches: &[Batch], keys: &Keys, stop: Option<&Arc<dyn Interrupt>>) -> Result<Ranges> {
    let mut ranges = NOTHING;
    each_morsel(batches, keys, stop, |tuples| {
        widen(&mut ranges, tuples);
        true
    })
    .await?;
    Ok(ranges)
}

/// What the probe side's keys must satisfy to match, for its scans: between the smallest and the largest key,
/// and one of them, if they are few.
pub(super) fn filter_of(spec: &Spec, collected: &Collected, keys: &Keys) -> Result<Arc<dyn PhysicalExpr>> {
    let key = &spec.probe_key;
    let arrays = || collected.batches.iter().map(|batch| &batch.key);
    if arrays().all(|array| array.null_count() == array.len()) {
        return Ok(lit(false));
    }
    let (mut least, mut most): (Option<ScalarValue>, Option<ScalarValue>) = (None, None);
    for (low, high) in arrays().filter_map(ends) {
        least = Some(least.filter(|least| *least <= low).unwrap_or(low));
        most = Some(most.filter(|most| *most >= high).unwrap_or(high));
    }
    let mut conditions: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    for (operator, value) in [(Operator::GtEq, least), (Operator::LtEq, most)] {
        if let Some(value) = value {
            conditions.push(Arc::new(BinaryExpr::new(Arc::clone(key), operator, lit(value))));
        }
    }
    if let Some(values) = distinct(collected, keys)? {
        let list = InListExpr::try_new_from_array(Arc::clone(key), values, false, &spec.right.schema())?;
        conditions.push(Arc::new(list));
    }
    let both = |one, other| Arc::new(BinaryExpr::new(one, Operator::And, other)) as Arc<dyn PhysicalExpr>;
    Ok(conditions.into_iter().reduce(both).unwrap_or_else(|| lit(true)))
}

/// The smallest and the largest value of an integer column.
fn ends(array: &ArrayRef) -> Option<(ScalarValue, ScalarValue)> {
    macro_rules! of {
        ($kind:ty) => {{
            let array = array.as_primitive::<$kind>();
            let (low, high) = (min(array)?, max(array)?);
            Some((ScalarValue::from(low), ScalarValue::from(high)))
        }};
    }
    match array.data_type() {
        DataType::Int16 => of!(Int16Type),
        DataType::Int32 => of!(Int32Type),
        DataType::Int64 => of!(Int64Type),
        DataType::UInt32 => of!(UInt32Type),
        _ => None,
    }
}

/// The distinct keys, if there are at most [`RANGES_MAX`] and counting them is cheap.
fn distinct(collected: &Collected, keys: &Keys) -> Result<Option<ArrayRef>> {
    if collected.rows > COUNTED_ROWS_MAX {
        return Ok(None);
    }
    let (mut seen, mut arrays, mut tuples) = (HashSet::new(), Vec::new(), Vec::new());
    let mut count = 0;
    for batch in &collected.batches {
        tuples.clear();
        keys.tuples(&batch.key, (0, batch.rows), 0, &mut tuples)?;
        // Different keys may have one hash: none is left out then.
        let is_exact = !is_hashed(batch.key.data_type());
        let fresh = tuples.iter().filter(|tuple| seen.insert(tuple.key) || !is_exact);
        let fresh: Vec<u32> = fresh.map(|tuple| tuple.row as u32).collect();
        count += fresh.len();
        if count > RANGES_MAX {
            return Ok(None);
        }
        arrays.push(take(&batch.key, &UInt32Array::from(fresh), None)?);
    }
    let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
    Ok(Some(concat(&arrays)?))
}
