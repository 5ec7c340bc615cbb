//! Merging sorted runs of blocks. Task and output are encoded as `weft_ops::merge` writes them.

use std::sync::Arc;

use bytes::Bytes;
use weft_ops::block::Compression;
use weft_ops::merge::{CheckedMerge, MergeError, MergeOutput, MergeTask};

use crate::job::{Job, Shape};
use crate::operation::{Boundary, Operation};

/// Merges sorted runs of blocks into sorted blocks.
#[derive(Debug)]
pub struct Merge;

/// Part of a job: the longest key, in bytes.
pub const KEY_BYTES: &str = "key_bytes";
/// Part of a job: the longest value, in bytes.
pub const VALUE_BYTES: &str = "value_bytes";
/// Part of a job: sorted inputs that are read side by side.
pub const WAYS: &str = "ways";
/// Part of a job: 1 if a block is read or written with LZ4.
pub const LZ4: &str = "lz4";
/// Part of a job: 1 if a block is read or written with Zstandard.
pub const ZSTD: &str = "zstd";

impl Operation for Merge {
    const CODE: u8 = 1;
    const NAME: &'static str = "merge";

    type Task = MergeTask;
    type Output = CheckedMerge;
    type Error = MergeError;

    fn task_bytes(task: &MergeTask) -> u64 {
        task.block_bytes()
    }

    fn encode(task: &MergeTask) -> Vec<u8> {
        task.encode()
    }

    fn decode(payload: &Bytes, _: &[Bytes]) -> Result<MergeTask, String> {
        MergeTask::decode(payload).map_err(|error| error.to_string())
    }

    fn golden(task: &MergeTask) -> Result<CheckedMerge, MergeError> {
        CheckedMerge::merge(task)
    }

    fn golden_in_slices(
        task: &MergeTask,
        boundary: Boundary<'_>,
    ) -> Result<Option<CheckedMerge>, MergeError> {
        CheckedMerge::merge_in_slices(task, boundary)
    }

    fn output_to_bytes(output: &CheckedMerge) -> Bytes {
        output.encode().into()
    }

    fn output_bytes(output: &CheckedMerge) -> u64 {
        output.block_bytes()
    }

    /// It must have the entries that the task leaves ([`CheckedMerge::validate`]).
    fn look(task: &MergeTask, answer: Bytes) -> Option<CheckedMerge> {
        CheckedMerge::validate(MergeOutput::decode(&answer).ok()?, task).ok()
    }

    /// Its bounds, and whether keys are hashed.
    fn is_of(task: &MergeTask, output: &CheckedMerge) -> bool {
        output.is_of(task.lower.as_ref(), task.upper.as_ref(), task.key_hashes)
    }
}

impl Job {
    /// A merge. `key_bytes_max` and `value_bytes_max` are those of the inputs as far as they are known; 0
    /// leaves it to the unit to find out. The memory for the result is the task's `output_bytes_max`, which
    /// should be what was reserved.
    #[must_use]
    pub fn merge(task: impl Into<Arc<MergeTask>>, key_bytes_max: u32, value_bytes_max: u32) -> Job {
        let task = task.into();
        let mut codecs = vec![task.output.compression];
        for block in task.runs.iter().flat_map(|run| &run.blocks) {
            // The byte after the checksum; if the block is damaged this is detected later.
            let codec = block.get(4).copied().and_then(Compression::from_u8);
            codecs.extend(codec.filter(|codec| !codecs.contains(codec)));
        }
        let uses = |codec| u64::from(codecs.contains(&codec));
        let shape = Shape::new(task.output_bytes_max)
            .with(KEY_BYTES, u64::from(key_bytes_max))
            .with(VALUE_BYTES, u64::from(value_bytes_max))
            .with(WAYS, task.runs.len() as u64)
            .with(LZ4, uses(Compression::Lz4))
            .with(ZSTD, uses(Compression::Zstd));
        Job::of::<Merge>(task, shape)
    }
}
