//! The merge: sorted runs of blocks in, sorted blocks out. The golden model of a compaction task.
//!
//! # What it computes
//!
//! Of all entries of all runs whose key lies within the task's bounds, in order of key, then stamp
//! descending, then run, these are dropped, for the first reason that holds:
//!
//! 1. *duplicate*: the entry before has the same key and stamp;
//! 2. *shadowed*: an entry of the same key that came before is seen by every reader who could see this one.
//!    Readers are the snapshots of the task and those who see everything; sequence numbers that lie between
//!    two neighbouring snapshots (above the lower, up to the upper) form a *stripe*, and of each key only
//!    the newest entry in each stripe can be seen;
//! 3. *range deleted*: a range tombstone of a higher sequence number in the same stripe covers the key;
//! 4. *bottom tombstone*: the task is at the bottom, so nothing older of the key exists anywhere, and the
//!    entry is a tombstone in the lowest stripe.
//!
//! An entry that is dropped for reason 3 or 4 still shadows. The others are written in order into blocks: a
//! block is finished after the entry with which its body reaches [`BlockOptions::block_bytes`], and with
//! the last entry. That fixes every byte of the output, so any executor can be checked by comparing bytes.
//!
//! Every entry read within the bounds is counted once: `entries_in = entries_out + dropped`.
//!
//! # How
//!
//! ```text
//! run.rs      one run's entries, decoded in place, order checked      (X-DB: decoder, ring buffer)
//! order.rs    which run is next, by offset-value codes                (X-DB: key buffer, compaction PE)
//! visible.rs  which entries stay
//! checked.rs  results that may be built upon: merged here, or compared with what their task leaves
//! mod.rs      the loop                                                (X-DB: controller)
//! ../block/build.rs                                                   (X-DB: encoder)
//! ```
//!
//! Source: X-DB, "Detailed Design" and "Fault Tolerance"; DESIGN.md, LSM and Offload.

mod checked;
mod codec;
mod order;
mod run;
#[cfg(test)]
mod tests;
mod visible;

use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::block::{BlockBuilder, BlockError, BlockOptions, FinishedBlock};
use crate::hash64;
use crate::key::SeqNo;
pub use checked::{CheckedMerge, MergeFlaw};
use order::RunOrder;
use run::RunReader;
use visible::{Fate, Visibility};

/// One sorted input: blocks in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Stored blocks; entries ascend strictly within a block and from block to block.
    pub blocks: Vec<Bytes>,
}

/// Deletes the keys from `start` (inclusive) to `end` (exclusive) as of its sequence number.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RangeTombstone {
    /// The first key deleted.
    pub start: Bytes,
    /// The first key behind it that is not.
    pub end: Bytes,
    /// Entries below this sequence number are deleted.
    pub seqno: SeqNo,
}

/// Everything that the output of a merge depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MergeTask {
    /// The inputs, newest first. Their order decides only between entries of the same key and stamp.
    pub runs: Vec<Run>,
    /// Sequence numbers that readers hold, ascending.
    pub snapshots: Vec<SeqNo>,
    /// Whether nothing older of any key exists outside of the task.
    pub bottom: bool,
    /// Deletions of ranges that may cover entries, in any order. They are applied, not put out.
    pub range_tombstones: Vec<RangeTombstone>,
    /// Only keys from here on belong to the task.
    pub lower: Option<Bytes>,
    /// Only keys below this belong to the task.
    pub upper: Option<Bytes>,
    /// How output blocks are built.
    pub output: BlockOptions,
    /// The output blocks must not have more bytes than this together.
    pub output_bytes_max: u64,
    /// Whether the hash of each key put out is wanted, for a filter.
    pub key_hashes: bool,
}

/// What a merge puts out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MergeOutput {
    /// The blocks, in order.
    pub blocks: Vec<FinishedBlock>,
    /// [`hash64`] of each distinct user key, in the order of the keys, if the task wanted them; for each
    /// block those of the keys that begin in it, so that there are as many lists as blocks.
    pub key_hashes: Vec<Vec<u64>>,
    /// Entries read within the bounds.
    pub entries_in: u64,
    /// Entries put out.
    pub entries_out: u64,
    /// Entries dropped.
    pub dropped: Dropped,
}

/// Entries dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// The same key and stamp was there already.
    pub duplicate: u64,
    /// No reader can see them behind a newer entry.
    pub shadowed: u64,
    /// A range tombstone covers them.
    pub range_deleted: u64,
    /// Tombstones with nothing left to delete.
    pub bottom_tombstone: u64,
}

impl Dropped {
    /// All together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.duplicate + self.shadowed + self.range_deleted + self.bottom_tombstone
    }
}

impl MergeOutput {
    /// Length of all blocks together.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes.len() as u64).sum()
    }
}

/// Why a task has no output.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MergeError {
    /// An input block is not what it should be.
    Block {
        /// Number of the run.
        run: usize,
        /// Number of the block within the run.
        block: usize,
        /// What is wrong with it.
        error: BlockError,
    },
    /// The output would be longer than the task allows.
    OutputFull,
    /// The snapshots do not ascend.
    Snapshots,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block { run, block, error } => write!(f, "block {block} of run {run}: {error}"),
            Self::OutputFull => f.write_str("the output is longer than the task allows"),
            Self::Snapshots => f.write_str("the snapshots do not ascend"),
        }
    }
}

impl Error for MergeError {}

/// Merges. Memory: one decoded block per run and the output.
///
/// # Errors
/// A bad input block, naming it; an output beyond its limit. Nothing of the output is then told.
pub fn merge(task: &MergeTask) -> Result<MergeOutput, MergeError> {
    // Without a boundary that breaks there always is an output.
    merge_in_slices(task, || ControlFlow::Continue(())).map(Option::unwrap_or_default)
}

/// As [`merge`], and calls `boundary` after each [`SLICE_ENTRIES`] entries read, so that a caller can do
/// something more urgent in between. `None` if it breaks.
///
/// # Errors
/// As [`merge`].
#[inline(always)]
pub fn merge_in_slices(
    task: &MergeTask,
    boundary: impl FnMut() -> ControlFlow<()>,
) -> Result<Option<MergeOutput>, MergeError> {
    let mut writer = Writer::new(task);
    let tally = keep(task, boundary, |shared, entry| {
        writer.add(shared, entry.key(), entry)
    })?;
    let Some(tally) = tally else {
        return Ok(None);
    };
    let mut output = writer.finish()?;
    output.entries_in = tally.entries_in;
    output.dropped = tally.dropped;
    Ok(Some(output))
}

/// Entries of a slice: some tens of microseconds of a merge of values of a kilobyte.
pub const SLICE_ENTRIES: u64 = 64;

/// How many entries were read and dropped.
#[derive(Default)]
struct Tally {
    entries_in: u64,
    dropped: Dropped,
}

impl Tally {
    const fn entries_out(&self) -> u64 {
        self.entries_in - self.dropped.total()
    }
}

/// Hands the entries that a task leaves to `take`, in their order, each with the number of bytes that its key
/// shares with the key handed over before. `None` if `boundary`, called between slices, breaks.
///
/// # Errors
/// A bad input block; what `take` says.
#[inline(always)]
fn keep<E: From<MergeError>>(
    task: &MergeTask,
    mut boundary: impl FnMut() -> ControlFlow<()>,
    mut take: impl FnMut(usize, &RunReader<'_>) -> Result<(), E>,
) -> Result<Option<Tally>, E> {
    if !task.snapshots.is_sorted_by(|a, b| a < b) {
        return Err(MergeError::Snapshots.into());
    }
    let lower = task.lower.as_deref();
    let mut readers = Vec::with_capacity(task.runs.len());
    for (number, run) in task.runs.iter().enumerate() {
        readers.extend(RunReader::open(number, run, lower, task.upper.as_deref())?);
    }
    let mut order = RunOrder::new(readers);
    let mut visibility = Visibility::new(task);
    // Bytes that the present key shares with the key before it, and with the last one handed over.
    let mut shared_with_taken = 0;
    let mut key_bytes_before = None;
    let mut tally = Tally::default();
    let dropped = &mut tally.dropped;
    while let Some((shared, reader)) = order.head() {
        tally.entries_in += 1;
        if tally.entries_in.is_multiple_of(SLICE_ENTRIES) && boundary().is_break() {
            return Ok(None);
        }
        shared_with_taken = shared.min(shared_with_taken);
        let key = reader.key();
        let same_key = key_bytes_before == Some(shared) && key.len() == shared;
        key_bytes_before = Some(key.len());
        match visibility.judge(same_key, key, reader.stamp()) {
            Fate::Keep => {
                take(shared_with_taken, reader)?;
                shared_with_taken = usize::MAX;
            }
            Fate::Duplicate => dropped.duplicate += 1,
            Fate::Shadowed => dropped.shadowed += 1,
            Fate::RangeDeleted => dropped.range_deleted += 1,
            Fate::BottomTombstone => dropped.bottom_tombstone += 1,
        }
        order.advance()?;
    }
    Ok(Some(tally))
}

/// Puts entries into blocks.
struct Writer {
    builder: BlockBuilder,
    output: MergeOutput,
    output_bytes: u64,
    output_bytes_max: u64,
    wants_hashes: bool,
    hashes: Vec<u64>,
    /// Length of the key written last.
    key_bytes: Option<usize>,
}

impl Writer {
    fn new(task: &MergeTask) -> Self {
        Self {
            builder: BlockBuilder::new(task.output),
            output: MergeOutput::default(),
            output_bytes: 0,
            output_bytes_max: task.output_bytes_max,
            wants_hashes: task.key_hashes,
            hashes: Vec::new(),
            key_bytes: None,
        }
    }

    #[inline(always)]
    fn add(&mut self, shared: usize, key: &[u8], reader: &RunReader<'_>) -> Result<(), MergeError> {
        if self.wants_hashes && !(self.key_bytes == Some(shared) && key.len() == shared) {
            self.hashes.push(hash64(key));
        }
        self.key_bytes = Some(key.len());
        self.builder
            .add_sharing(shared, key, reader.stamp(), reader.value());
        self.output.entries_out += 1;
        if self.builder.is_full() {
            self.finish_block()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn finish_block(&mut self) -> Result<(), MergeError> {
        if let Some(block) = self.builder.finish() {
            self.output_bytes += block.bytes.len() as u64;
            if self.output_bytes > self.output_bytes_max {
                return Err(MergeError::OutputFull);
            }
            self.output.blocks.push(block);
            if self.wants_hashes {
                self.output.key_hashes.push(std::mem::take(&mut self.hashes));
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<MergeOutput, MergeError> {
        self.finish_block()?;
        Ok(self.output)
    }
}
