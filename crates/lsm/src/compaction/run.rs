//! Runs a compaction: tasks to the executor, results in order into tables.
//!
//! One thread drives a compaction, however many tasks it has in flight: it reads the blocks of the next task,
//! submits it, and takes the results that have arrived, in any order. At most [`TASKS_IN_FLIGHT`] tasks and
//! their results are in memory. A result is written as soon as all results before it have been written, while
//! it is still in the caches.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use weft_ops::block::BlockOptions;
use weft_ops::key::SeqNo;
use weft_ops::merge::{CheckedMerge, RangeTombstone};

use super::CompactionPick;
use super::filters::FilterBuilder;
use super::output::{TableMaker, TableSpec};
use super::tasks::{Common, Origins, TaskRange, cut, locate, read_task, runs};
use super::wait::receive;
use crate::error::LsmError;
use crate::executor::{CompactionExecutor, ExecutorError};
use crate::table::{BulkReader, Table, TableMeta, TableSink};

const TASKS_IN_FLIGHT: usize = 8;

/// The most bytes of a task's input if this thread itself merges: task and result then stay in the
/// processor's second-level cache. Units get larger tasks, since each task has a fixed cost.
const TASK_BYTES_HERE: u64 = 1 << 20;

/// Blocks of each run in such a task, if it may be longer: those at its ends are read for two tasks.
const BLOCKS_OF_RUN: u64 = 16;

/// What a compaction needs of the engine.
pub(crate) struct CompactionContext<'a> {
    /// Where results go, and how.
    pub sink: TableSink<'a>,
    pub executor: &'a Arc<dyn CompactionExecutor>,
    pub output_dir: PathBuf,
    pub blocks: BlockOptions,
    pub filter_bits_per_key: u32,
    /// Counts unusable filters of the executor.
    pub filters_rebuilt: &'a AtomicU64,
    pub table_bytes: u64,
    pub task_bytes: u64,
    /// See [`crate::LsmOptions::task_memory_bytes`].
    pub task_memory_bytes: u64,
    /// Bytes of it that all compactions have reserved.
    pub task_memory: &'a AtomicU64,
    /// Sequence numbers of registered snapshots, ascending.
    pub snapshots: Vec<SeqNo>,
    pub next_number: &'a dyn Fn() -> u64,
    /// Whether the engine is being closed, so that the compaction is given up.
    pub is_stopped: &'a dyn Fn() -> bool,
    /// Called after each task, to keep the compaction to its share of the time.
    pub pause: &'a dyn Fn(),
    /// Whether it may pause: then no task is to be long.
    pub is_paced: bool,
}

impl<'a> CompactionContext<'a> {
    fn filters(&self) -> Option<FilterBuilder<'a>> {
        let bits_per_key = self.filter_bits_per_key;
        FilterBuilder::new(
            &**self.executor,
            bits_per_key,
            self.filters_rebuilt,
            self.is_stopped,
        )
    }
}

/// The result of a compaction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compacted {
    /// Synced; their names are not durable yet.
    pub tables: Vec<TableMeta>,
    pub task_count: u64,
    pub entries_in: u64,
    pub entries_out: u64,
}

type Done = (usize, Result<CheckedMerge, ExecutorError>);

/// Merges what was chosen into new tables. Nothing is installed.
///
/// # Errors
/// A bad input block, by file and offset; the disk's; an executor's. No file is left.
pub(crate) fn compact(
    picked: &CompactionPick,
    context: &CompactionContext<'_>,
) -> Result<Compacted, LsmError> {
    let runs = runs(picked);
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    let mut last_seqno = SeqNo(0);
    let mut value_files = BTreeMap::new();
    for table in runs.iter().flatten() {
        let listed = table.properties().value_files.iter();
        value_files.extend(listed.map(|file| (file.number, file.file_bytes)));
        tombstones.extend(table.opened()?.tombstones().iter().cloned());
        last_seqno = last_seqno.max(table.properties().last_seqno);
    }
    tombstones.sort();
    let oldest = context.snapshots.first().copied().unwrap_or(SeqNo::MAX);
    let kept = |tombstone: &&RangeTombstone| !picked.bottom || tombstone.seqno > oldest;
    let spec = TableSpec {
        dir: context.output_dir.clone(),
        level: picked.output_level(),
        table_bytes: context.table_bytes,
        filter_bits_per_key: context.filter_bits_per_key,
        last_seqno,
        value_files,
    };
    let kept_tombstones = tombstones.iter().filter(kept).cloned().collect();
    let maker = TableMaker::new(context.sink, spec, kept_tombstones, context.next_number);
    let mut maker = maker.with_filters(context.filters());
    let common = Common {
        snapshots: context.snapshots.clone(),
        bottom: picked.bottom,
        tombstones,
        output: context.blocks,
        key_hashes: context.filter_bits_per_key > 0,
    };
    let ranges = cut(&runs, task_bytes(context, runs.len()))?;
    let with_pointers = runs.iter().flatten();
    let with_pointers = with_pointers.filter(|table| !table.properties().value_files.is_empty());
    let (done, results) = channel::<Done>();
    let mut flight = TasksInFlight {
        with_pointers: with_pointers.map(|table| &**table).collect(),
        wants_hashes: context.filter_bits_per_key > 0,
        ranges: &ranges,
        results,
        is_stopped: context.is_stopped,
        origins: BTreeMap::new(),
        memory: Reserved::new(context.task_memory),
        waiting: BTreeMap::new(),
        next: 0,
        compacted: Compacted::default(),
    };
    let source = BulkReader::new();
    for (number, range) in ranges.iter().enumerate() {
        while flight.origins.len() >= TASKS_IN_FLIGHT {
            flight.receive(&mut maker)?;
        }
        let (task, origins) = read_task(&runs, range, &common, &source)?;
        let bytes = task.block_bytes() + task.output_bytes_max;
        while !flight.memory.reserve(
            number,
            bytes,
            context.task_memory_bytes,
            flight.origins.is_empty(),
        ) {
            flight.receive(&mut maker)?;
        }
        flight.origins.insert(number, origins);
        let mut answer = ResultSender {
            number,
            done: Some(done.clone()),
        };
        let tell = move |result| answer.send(result);
        context.executor.submit(task, context.is_stopped, Box::new(tell));
        // If it was given up because of closing, the answer is not an error.
        if (context.is_stopped)() {
            return Err(LsmError::Closed);
        }
        flight.receive_ready(&mut maker)?;
        (context.pause)();
    }
    drop(done);
    while !flight.origins.is_empty() {
        flight.receive(&mut maker)?;
    }
    let mut compacted = flight.compacted;
    // Tasks do not overlap and leave out nothing, so every entry of every input was read exactly once.
    let entries = runs.iter().flatten().map(|table| table.properties().entry_count);
    let there: u64 = entries.sum();
    if compacted.entries_in != there {
        let reason = format!("{} entries were read where {there} are", compacted.entries_in);
        return Err(failed(&reason));
    }
    compacted.tables = maker.finish()?;
    Ok(compacted)
}

/// The length of a task with so many runs.
fn task_bytes(context: &CompactionContext<'_>, runs: usize) -> u64 {
    if !context.executor.is_inline() {
        return context.task_bytes;
    }
    let for_runs = if context.is_paced {
        0
    } else {
        runs as u64 * BLOCKS_OF_RUN * u64::from(context.blocks.block_bytes)
    };
    context.task_bytes.min(TASK_BYTES_HERE.max(for_runs))
}

/// Sends a task's result, or, if the executor drops it, the message that there is none.
struct ResultSender {
    number: usize,
    done: Option<Sender<Done>>,
}

impl ResultSender {
    fn send(&mut self, result: Result<CheckedMerge, ExecutorError>) {
        if let Some(done) = self.done.take() {
            // After a failed compaction nobody receives its results.
            let _ = done.send((self.number, result));
        }
    }
}

impl Drop for ResultSender {
    fn drop(&mut self) {
        self.send(Err(ExecutorError::Failed(
            "the executor forgot a task".to_owned(),
        )));
    }
}

/// Memory reserved for tasks, in a shared counter.
struct Reserved<'a> {
    all: &'a AtomicU64,
    tasks: BTreeMap<usize, u64>,
}

impl<'a> Reserved<'a> {
    const fn new(all: &'a AtomicU64) -> Self {
        Self {
            all,
            tasks: BTreeMap::new(),
        }
    }

    /// Reserves memory for a task if all together stay within `bytes_max`, or if the compaction has no other
    /// task; returns whether it did.
    fn reserve(&mut self, task: usize, bytes: u64, bytes_max: u64, is_only: bool) -> bool {
        let fits = |all: u64| (all + bytes <= bytes_max || is_only).then_some(all + bytes);
        let reserved = self
            .all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok();
        if reserved {
            self.tasks.insert(task, bytes);
        }
        reserved
    }

    fn release(&mut self, task: usize) {
        let bytes = self.tasks.remove(&task).unwrap_or(0);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.tasks.values().sum(), Ordering::Relaxed);
    }
}

/// Tasks in flight, and results that arrived early.
struct TasksInFlight<'a> {
    /// The inputs that list value files: only where these have keys can there be pointers to large values.
    with_pointers: Vec<&'a Table>,
    wants_hashes: bool,
    ranges: &'a [TaskRange],
    results: Receiver<Done>,
    is_stopped: &'a dyn Fn() -> bool,
    origins: BTreeMap<usize, Origins>,
    memory: Reserved<'a>,
    waiting: BTreeMap<usize, CheckedMerge>,
    /// The task whose result is written next.
    next: usize,
    compacted: Compacted,
}

impl TasksInFlight<'_> {
    /// Waits for a result, unless the engine is being closed: then tasks are given up, and their results are
    /// dropped.
    fn receive(&mut self, maker: &mut TableMaker<'_>) -> Result<(), LsmError> {
        match receive(&self.results, self.is_stopped)? {
            Some(done) => self.take(done, maker),
            None => Err(failed("nobody is left who could answer")),
        }
    }

    /// Takes the results that have arrived.
    fn receive_ready(&mut self, maker: &mut TableMaker<'_>) -> Result<(), LsmError> {
        while let Ok(done) = self.results.try_recv() {
            self.take(done, maker)?;
        }
        Ok(())
    }

    fn take(&mut self, (number, result): Done, maker: &mut TableMaker<'_>) -> Result<(), LsmError> {
        let output = match result {
            Ok(output) => output,
            Err(ExecutorError::Merge(error)) => {
                let located = self
                    .origins
                    .get(&number)
                    .and_then(|origins| locate(&error, origins));
                return Err(located.unwrap_or_else(|| failed(&error.to_string())));
            }
            Err(error) => return Err(failed(&error.to_string())),
        };
        let is_asked =
            |range: &TaskRange| output.is_of(range.lower.as_ref(), range.upper.as_ref(), self.wants_hashes);
        if !self.ranges.get(number).is_some_and(is_asked) {
            return Err(failed("a result of another task"));
        }
        self.waiting.insert(number, output);
        while let Some(output) = self.waiting.remove(&self.next) {
            let range = self.ranges.get(self.next);
            let mut with_pointers = self.with_pointers.iter();
            let may_point = with_pointers.any(|table| range.is_none_or(|range| range.meets(table)));
            for (at, block) in output.blocks.iter().enumerate() {
                let hashes = output.key_hashes.get(at).map_or(&[][..], Vec::as_slice);
                maker.add(block, hashes, may_point)?;
            }
            self.compacted.task_count += 1;
            let compacted = &mut self.compacted;
            compacted.entries_in = compacted.entries_in.saturating_add(output.entries_in);
            compacted.entries_out = compacted.entries_out.saturating_add(output.entries_out);
            self.origins.remove(&self.next);
            self.memory.release(self.next);
            self.next += 1;
        }
        Ok(())
    }
}

fn failed(reason: &str) -> LsmError {
    LsmError::Executor {
        reason: reason.into(),
    }
}
