//! Cuts a compaction into block-range tasks.
//!
//! The cuts are last keys of input blocks, chosen so that there are about as many bytes between two cuts as a
//! task is to have. A block that contains a cut is read for the tasks on both sides; each uses its own
//! entries.

use std::sync::Arc;

use bytes::Bytes;
use weft_ops::block::BlockOptions;
use weft_ops::key::SeqNo;
use weft_ops::merge::{MergeError, MergeTask, RangeTombstone, Run};

use super::CompactionPick;
use super::output_size::output_bytes_max;
use crate::error::{CorruptKind, LsmError, corrupt};
use crate::table::{BulkReader, Table, TableProperties};

/// From one cut (inclusive) to the next (exclusive).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TaskRange {
    pub lower: Option<Bytes>,
    pub upper: Option<Bytes>,
}

impl TaskRange {
    /// Whether the table may have keys in the range.
    pub(super) fn meets(&self, table: &Table) -> bool {
        let TableProperties { lower, upper, .. } = table.properties();
        let ends_before = self.lower.as_ref().is_some_and(|start| upper.is_before(start));
        let begins_behind = self.upper.as_ref().is_some_and(|end| lower >= end);
        !ends_before && !begins_behind
    }
}

/// The inputs as sorted runs, newest first: each table of level 0 by itself, a deeper level as one.
pub(super) fn runs(picked: &CompactionPick) -> Vec<Vec<Arc<Table>>> {
    let mut runs: Vec<Vec<Arc<Table>>> = if picked.level == 0 {
        picked
            .inputs
            .iter()
            .map(|table| vec![Arc::clone(table)])
            .collect()
    } else {
        vec![picked.inputs.clone()]
    };
    if !picked.below.is_empty() {
        runs.push(picked.below.clone());
    }
    runs
}

/// The ranges of the tasks, in order; they cover all keys.
pub(super) fn cut(runs: &[Vec<Arc<Table>>], task_bytes: u64) -> Result<Vec<TaskRange>, LsmError> {
    let mut blocks: Vec<(Bytes, u32)> = Vec::new();
    for table in runs.iter().flatten() {
        let opened = table.opened()?;
        let index = opened.index().iter();
        blocks.extend(index.map(|entry| (entry.last_key.clone(), entry.bytes)));
    }
    blocks.sort();
    let mut ranges = Vec::new();
    let mut lower: Option<Bytes> = None;
    let mut bytes = 0;
    for (last_key, block_bytes) in blocks {
        bytes += u64::from(block_bytes);
        if bytes >= task_bytes && lower.as_ref() != Some(&last_key) {
            ranges.push(TaskRange {
                lower: lower.replace(last_key.clone()),
                upper: Some(last_key),
            });
            bytes = 0;
        }
    }
    ranges.push(TaskRange { lower, upper: None });
    Ok(ranges)
}

/// What all tasks of a compaction have in common.
pub(super) struct Common {
    pub snapshots: Vec<SeqNo>,
    pub bottom: bool,
    pub tombstones: Vec<RangeTombstone>,
    pub output: BlockOptions,
    pub key_hashes: bool,
}

/// Where the blocks of a task came from: for each run, table and offset of each block.
pub(super) type Origins = Vec<Vec<(Arc<Table>, u64)>>;

/// Reads the blocks of a range: one task.
pub(super) fn read_task(
    runs: &[Vec<Arc<Table>>],
    range: &TaskRange,
    common: &Common,
    source: &BulkReader,
) -> Result<(MergeTask, Origins), LsmError> {
    let mut task_runs = Vec::with_capacity(runs.len());
    let mut origins = Vec::with_capacity(runs.len());
    for tables in runs {
        let (mut blocks, mut places) = (Vec::new(), Vec::new());
        for table in tables {
            read_blocks(table, range, source, &mut blocks, &mut places)?;
        }
        task_runs.push(Run { blocks });
        origins.push(places);
    }
    let inside = |tombstone: &&RangeTombstone| {
        range.upper.as_ref().is_none_or(|upper| tombstone.start < *upper)
            && range.lower.as_ref().is_none_or(|lower| tombstone.end > *lower)
    };
    let mut task = MergeTask {
        runs: task_runs,
        snapshots: common.snapshots.clone(),
        bottom: common.bottom,
        range_tombstones: common.tombstones.iter().filter(inside).cloned().collect(),
        lower: range.lower.clone(),
        upper: range.upper.clone(),
        output: common.output,
        output_bytes_max: 0,
        key_hashes: common.key_hashes,
    };
    task.output_bytes_max = output_bytes_max(&task.runs, &task.output);
    Ok((task, origins))
}

/// Appends the blocks of a table that may have keys in the range; they are contiguous.
fn read_blocks(
    table: &Arc<Table>,
    range: &TaskRange,
    source: &BulkReader,
    blocks: &mut Vec<Bytes>,
    places: &mut Vec<(Arc<Table>, u64)>,
) -> Result<(), LsmError> {
    if !range.meets(table) {
        return Ok(());
    }
    let opened = table.opened()?;
    let index = opened.index();
    let from = range.lower.as_ref().map_or(0, |lower| opened.block_for(lower));
    // The first block whose last key reaches the bound may begin before it.
    let to = match &range.upper {
        Some(upper) => (opened.block_for(upper) + 1).min(index.len()),
        None => index.len(),
    };
    let Some(entries @ [first, .., last] | entries @ [first @ last]) = index.get(from..to) else {
        return Ok(());
    };
    let bytes = last.offset + u64::from(last.bytes) - first.offset;
    let stored = source.read(table, &opened, first.offset, bytes as usize)?;
    for entry in entries {
        let start = (entry.offset - first.offset) as usize;
        let block = stored.slice(start..start + entry.bytes as usize);
        let crc = block.first_chunk::<4>().copied().unwrap_or_default();
        if u32::from_le_bytes(crc) != entry.crc {
            let reason = "not the block that the index names";
            return Err(corrupt(opened.name(), entry.offset, CorruptKind::Block, reason));
        }
        blocks.push(block);
        places.push((Arc::clone(table), entry.offset));
    }
    Ok(())
}

/// Finds the file that a merge error is about.
pub(super) fn locate(error: &MergeError, origins: &Origins) -> Option<LsmError> {
    let MergeError::Block { run, block, error } = error else {
        return None;
    };
    let (table, offset) = origins.get(*run)?.get(*block)?;
    let opened = table.opened().ok()?;
    Some(opened.bad_block(*offset, *error))
}
