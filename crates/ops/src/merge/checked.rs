//! Results of merges that may be built upon, and how they come to be: [`CheckedMerge`].
//!
//! Whoever stores a result believes it: the inputs go, and a table's index and filter are made of what is
//! said of the blocks. An entry that was dropped and should have stayed, or a value that was changed, is
//! lost; a last key that is not the last hides keys behind the index; a hash that is missing, or another,
//! hides one behind the filter; and nobody would notice. So what comes from somebody else is compared once,
//! every entry of it, with what the inputs leave, and that it was is in the type: there are two ways to a
//! [`CheckedMerge`], the golden merge of this process and the look, and nobody else makes one.
//!
//! Whether an entry may be dropped depends on its neighbours in all runs, so sums over inputs and outputs
//! would not tell it: whoever drops an entry and says so leaves every sum right. It takes the order of the
//! merge, and that is what the look pays for.
//!
//! Source: DESIGN.md, Offload ("no unit is trusted"); decisions 0022 and 0025.

use std::fmt;
use std::ops::{ControlFlow, Deref};

use bytes::Bytes;

use super::run::RunReader;
use super::{MergeError, MergeOutput, MergeTask, Run, keep, merge, merge_in_slices};
use crate::hash64;

/// The output of a merge, computed by [`merge`](super::merge()) or looked through; and which task's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckedMerge {
    output: MergeOutput,
    lower: Option<Bytes>,
    upper: Option<Bytes>,
    key_hashes: bool,
}

/// Why an output is none of the task's. Doing the task again is the only cure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MergeFlaw {
    /// Entries read, put out, or dropped for one of the reasons are not so many.
    Counts,
    /// A block is damaged, its entries are out of order, or it is not what is said of it.
    Block,
    /// The entries are not those that the task leaves: one is missing, or more, or another.
    Entries,
    /// Hashes are there that were not asked for, or not there, or not those of the keys.
    Hashes,
    /// More bytes than the task allows.
    TooLong,
}

impl fmt::Display for MergeFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counts => "a result's counts are not those of its task",
            Self::Block => "a block of a result is damaged, or not what is said of it",
            Self::Entries => "a result's entries are not those that its task leaves",
            Self::Hashes => "a result lacks the hashes of its keys, or has others",
            Self::TooLong => "a result is longer than its task allows",
        })
    }
}

impl std::error::Error for MergeFlaw {}

impl From<MergeError> for MergeFlaw {
    /// Nobody can have a result of such a task.
    fn from(_: MergeError) -> Self {
        Self::Entries
    }
}

impl CheckedMerge {
    /// Merges, here.
    ///
    /// # Errors
    /// As [`merge`](super::merge()).
    pub fn merge(task: &MergeTask) -> Result<Self, MergeError> {
        merge(task).map(|output| Self::of(task, output))
    }

    /// Merges, here, and calls `boundary` between slices; `None` if it breaks.
    ///
    /// # Errors
    /// As [`merge`](super::merge()).
    pub fn merge_in_slices(
        task: &MergeTask,
        boundary: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Self>, MergeError> {
        let output = merge_in_slices(task, boundary)?;
        Ok(output.map(|output| Self::of(task, output)))
    }

    /// Takes what somebody else says is the output of the task, after comparing it entry by entry with what
    /// the task leaves of its inputs: each key, stamp and value, in order, none missing and none more;
    /// counts, each reason by itself; what is said of the blocks; the hashes. The inputs are read for that as
    /// [`merge`](super::merge()) reads them, and nothing is written. What is not compared is how the entries
    /// are cut into blocks and how these are compressed: a result that is cut otherwise is as good.
    ///
    /// Costs what reading inputs and result costs: most of a merge whose blocks are not compressed, less than
    /// half of one that compresses with Zstandard (`examples/merge_rate.rs`).
    ///
    /// # Errors
    /// The first flaw.
    pub fn validate(output: MergeOutput, task: &MergeTask) -> Result<Self, MergeFlaw> {
        if output.block_bytes() > task.output_bytes_max {
            return Err(MergeFlaw::TooLong);
        }
        let lists = if task.key_hashes { output.blocks.len() } else { 0 };
        if output.key_hashes.len() != lists {
            return Err(MergeFlaw::Hashes);
        }
        let blocks = output.blocks.iter().map(|block| block.bytes.clone());
        let run = Run {
            blocks: blocks.collect(),
        };
        let mut found = Found::open(&output, &run)?;
        let no_boundary = || ControlFlow::Continue(());
        let tally = keep(task, no_boundary, |shared, entry| found.compare(shared, entry))?;
        found.end()?;
        let tally = tally.unwrap_or_default();
        let counted = (output.entries_in, output.entries_out, output.dropped);
        if counted != (tally.entries_in, tally.entries_out(), tally.dropped) {
            return Err(MergeFlaw::Counts);
        }
        Ok(Self::of(task, output))
    }

    fn of(task: &MergeTask, output: MergeOutput) -> Self {
        Self {
            output,
            lower: task.lower.clone(),
            upper: task.upper.clone(),
            key_hashes: task.key_hashes,
        }
    }

    /// Whether it was checked against a task with these bounds, that asked for hashes or did not. Cheap: for
    /// who has given out several tasks.
    #[must_use]
    pub fn is_of(&self, lower: Option<&Bytes>, upper: Option<&Bytes>, key_hashes: bool) -> bool {
        self.lower.as_ref() == lower && self.upper.as_ref() == upper && self.key_hashes == key_hashes
    }
}

impl Deref for CheckedMerge {
    type Target = MergeOutput;

    fn deref(&self) -> &MergeOutput {
        &self.output
    }
}

/// The entries that a result has, as they are compared.
struct Found<'a> {
    output: &'a MergeOutput,
    /// `None` behind the last entry.
    reader: Option<RunReader<'a>>,
    /// Hashes of the present block that were not met yet.
    hashes: &'a [u64],
    /// Length of the key before; none before the first.
    key_bytes: Option<usize>,
}

impl<'a> Found<'a> {
    fn open(output: &'a MergeOutput, run: &'a Run) -> Result<Self, MergeFlaw> {
        let reader = RunReader::open(0, run, None, None).map_err(|_| MergeFlaw::Block)?;
        let mut found = Self {
            output,
            reader,
            hashes: &[],
            key_bytes: None,
        };
        found.begin_block()?;
        Ok(found)
    }

    /// On the first entry of a block: compares what is said of that.
    fn begin_block(&mut self) -> Result<(), MergeFlaw> {
        let Some(reader) = &self.reader else {
            return Ok(());
        };
        let named = self.output.blocks.get(reader.block()).ok_or(MergeFlaw::Block)?;
        if named.entry_count != reader.entries_left() + 1 || *named.first_key != *reader.key() {
            return Err(MergeFlaw::Block);
        }
        let hashes = self.output.key_hashes.get(reader.block());
        self.hashes = hashes.map_or(&[], Vec::as_slice);
        Ok(())
    }

    /// Compares the next entry with one that is to be there, whose key has `shared` bytes of the one before.
    #[inline(always)]
    fn compare(&mut self, shared: usize, entry: &RunReader<'_>) -> Result<(), MergeFlaw> {
        let reader = self.reader.as_mut().ok_or(MergeFlaw::Entries)?;
        let key = reader.key();
        let is_same = key == entry.key() && reader.stamp() == entry.stamp();
        if !is_same || reader.value() != entry.value() {
            return Err(MergeFlaw::Entries);
        }
        let same_key = self.key_bytes == Some(shared) && key.len() == shared;
        if !same_key && !self.output.key_hashes.is_empty() {
            let (hash, rest) = self.hashes.split_first().ok_or(MergeFlaw::Hashes)?;
            if *hash != hash64(key) {
                return Err(MergeFlaw::Hashes);
            }
            self.hashes = rest;
        }
        self.key_bytes = Some(key.len());
        if reader.entries_left() > 0 {
            // The result has no bounds, so that there is one.
            return reader.advance().map(drop).map_err(|_| MergeFlaw::Block);
        }
        self.end_block()
    }

    /// On the last entry of a block.
    #[cold]
    fn end_block(&mut self) -> Result<(), MergeFlaw> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let named = self.output.blocks.get(reader.block()).ok_or(MergeFlaw::Block)?;
        if *named.last_key != *reader.key() {
            return Err(MergeFlaw::Block);
        }
        if !self.hashes.is_empty() {
            return Err(MergeFlaw::Hashes);
        }
        if !reader.advance().map_err(|_| MergeFlaw::Block)? {
            self.reader = None;
        }
        self.begin_block()
    }

    /// Nothing is left.
    fn end(&self) -> Result<(), MergeFlaw> {
        match self.reader {
            Some(_) => Err(MergeFlaw::Entries),
            None => Ok(()),
        }
    }
}
