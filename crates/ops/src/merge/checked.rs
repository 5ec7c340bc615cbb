//! Results of merges that may be built upon, and how they come to be: [`CheckedMerge`].
//!
//! Whoever stores a result believes what is said of its blocks: a table's index and filter are made of it. A
//! last key that is not the last hides keys behind the index; a hash that is missing, or another, hides one
//! behind the filter; and nobody would notice. So what comes from somebody else is looked through once, every
//! key of it, and that it was is in the type: there are two ways to a [`CheckedMerge`], the golden merge of
//! this process and the look, and nobody else makes one.
//!
//! Source: DESIGN.md, Offload ("no unit is trusted"); decision 0022.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use super::{MergeError, MergeOutput, MergeTask, merge};
use crate::block::{Block, FinishedBlock};
use crate::hash64;
use crate::key::Stamp;

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
    /// Entries read are not entries put out and dropped, or not those in the blocks.
    Counts,
    /// A block is damaged, or its entries or keys are not what is said of them.
    Block,
    /// The blocks do not stand in the order of their keys.
    Order,
    /// Keys outside of the task's bounds.
    Bounds,
    /// Hashes are there that were not asked for, or not there, or not those of the keys.
    Hashes,
    /// More bytes than the task allows.
    TooLong,
}

impl fmt::Display for MergeFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counts => "a result's counts do not add up",
            Self::Block => "a block of a result is not what is said of it",
            Self::Order => "the blocks of a result are out of order",
            Self::Bounds => "a result has keys outside of its task's bounds",
            Self::Hashes => "a result lacks the hashes of its keys, or has others",
            Self::TooLong => "a result is longer than its task allows",
        })
    }
}

impl std::error::Error for MergeFlaw {}

impl CheckedMerge {
    /// Merges, here.
    ///
    /// # Errors
    /// As [`merge`](super::merge()).
    pub fn merge(task: &MergeTask) -> Result<Self, MergeError> {
        merge(task).map(|output| Self::of(task, output))
    }

    /// Takes what somebody else says is the output of the task, after a look through all of it: counts add
    /// up; blocks are whole, in the order of their keys and within the task's bounds, and are what is said of
    /// them; hashes are those of the keys. What cannot be seen without merging again is a value, or an entry
    /// with its count, that is another one.
    ///
    /// Costs a checksum of each block, a decompression if it is compressed, and a walk over its keys, with a
    /// hash of each if hashes were asked for.
    ///
    /// # Errors
    /// The first flaw.
    pub fn look_through(output: MergeOutput, task: &MergeTask) -> Result<Self, MergeFlaw> {
        if !output.adds_up() {
            return Err(MergeFlaw::Counts);
        }
        if output.block_bytes() > task.output_bytes_max {
            return Err(MergeFlaw::TooLong);
        }
        let lists = if task.key_hashes { output.blocks.len() } else { 0 };
        if output.key_hashes.len() != lists {
            return Err(MergeFlaw::Hashes);
        }
        let below = |block: &FinishedBlock| task.lower.as_ref().is_some_and(|lower| block.first_key < *lower);
        let above = |block: &FinishedBlock| task.upper.as_ref().is_some_and(|upper| block.last_key >= *upper);
        if output.blocks.first().is_some_and(below) || output.blocks.last().is_some_and(above) {
            return Err(MergeFlaw::Bounds);
        }
        let mut before: Option<(&[u8], Stamp)> = None;
        for (at, block) in output.blocks.iter().enumerate() {
            // Versions of one key may stand on both sides.
            if block.first_key > block.last_key || before.is_some_and(|(last, _)| *last > *block.first_key) {
                return Err(MergeFlaw::Order);
            }
            let stamp = walk(block, before, output.key_hashes.get(at).map(Vec::as_slice))?;
            before = Some((&block.last_key, stamp));
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

/// Whether the block is whole, holds as many entries as are named, in order, begins and ends with the keys
/// that are named, and `hashes` are those of the keys that begin in it, as [`MergeOutput::key_hashes`] has
/// them. `before` is the last entry in front of it: versions of one key may go on in the next block, and
/// stand in order there, too. `None` for `hashes` if none were asked for. Returns its last entry's stamp.
fn walk(
    named: &FinishedBlock,
    before: Option<(&[u8], Stamp)>,
    hashes: Option<&[u64]>,
) -> Result<Stamp, MergeFlaw> {
    let bad = |_| MergeFlaw::Block;
    let block = Block::open(&named.bytes).map_err(bad)?;
    let mut cursor = block.cursor();
    cursor.first().map_err(bad)?;
    let begins = cursor.valid() && cursor.key() == named.first_key;
    if block.header().entry_count != named.entry_count || !begins {
        return Err(MergeFlaw::Block);
    }
    let mut listed = hashes.map(<[u64]>::iter);
    // Of the entry before.
    let mut key = before.map(|(key, _)| key.to_vec());
    let mut stamp = before.map(|(_, stamp)| stamp);
    while cursor.valid() {
        match key.as_deref().map(|key| key.cmp(cursor.key())) {
            Some(Ordering::Equal) if stamp.is_some_and(|stamp| stamp <= cursor.stamp()) => {
                return Err(MergeFlaw::Order);
            }
            Some(Ordering::Equal) => {}
            Some(Ordering::Greater) => return Err(MergeFlaw::Order),
            None | Some(Ordering::Less) => {
                let hash = listed.as_mut().map(Iterator::next);
                if hash.is_some_and(|hash| hash != Some(&hash64(cursor.key()))) {
                    return Err(MergeFlaw::Hashes);
                }
                let key = key.get_or_insert_default();
                key.clear();
                key.extend_from_slice(cursor.key());
            }
        }
        stamp = Some(cursor.stamp());
        cursor.forward().map_err(bad)?;
    }
    if key.is_none_or(|last| last != named.last_key) {
        return Err(MergeFlaw::Block);
    }
    match listed.is_none_or(|mut rest| rest.next().is_none()) {
        true => stamp.ok_or(MergeFlaw::Block),
        false => Err(MergeFlaw::Hashes),
    }
}
