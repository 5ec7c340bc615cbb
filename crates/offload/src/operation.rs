//! The kinds as operations of `weft_ops`: how jobs are made from tasks, what the CPU computes, and how a
//! result is validated.
//!
//! ```text
//! kind           task                                          result
//! Merge          MergeTask as its codec writes it              MergeOutput, likewise
//! BuildFilter    as `filter_task.rs` writes it                 the stored filter
//! ```

use std::sync::Arc;

use bytes::Bytes;
use weft_ops::block::Compression;
use weft_ops::filter::{CheckedFilter, build_filter};
use weft_ops::merge::{CheckedMerge, MergeOutput, MergeTask, merge};

use crate::filter_task::{BITS_PER_KEY_MAX, TOO_MANY_BITS, decode_filter_task};
use crate::job::{Codecs, Job, JobKind, Shape, Task};
use crate::report::Output;
use crate::unit::{Engine, Outcome};
use crate::wire::ReturnCode;

impl Job {
    /// A merge. `key_bytes_max` and `value_bytes_max` are those of the inputs as far as they are known; 0
    /// leaves it to the unit to find out. The memory for the result is the task's `output_bytes_max`, which
    /// should be what was reserved.
    #[must_use]
    pub fn merge(task: impl Into<Arc<MergeTask>>, key_bytes_max: u32, value_bytes_max: u32) -> Job {
        let task = task.into();
        let mut codecs = Codecs::of(&[task.output.compression]);
        for block in task.runs.iter().flat_map(|run| &run.blocks) {
            // The byte after the checksum; if the block is damaged this is detected later.
            if let Some(codec) = block.get(4).copied().and_then(Compression::from_u8) {
                codecs.insert(codec);
            }
        }
        let shape = Shape {
            key_bytes_max,
            value_bytes_max,
            ways: u32::try_from(task.runs.len()).unwrap_or(u32::MAX),
            codecs,
            output_bytes_max: task.output_bytes_max,
        };
        Job::new(JobKind::Merge, Task::Merge(task), shape)
    }

    /// A filter over the hashes of keys, with at most [`BITS_PER_KEY_MAX`] bits for each.
    #[must_use]
    pub fn build_filter(hashes: impl Into<Arc<[u64]>>, bits_per_key: u32) -> Job {
        let hashes = hashes.into();
        let shape = Shape {
            // Lines are complete: at least one, and at most one more than the bits need.
            output_bytes_max: hashes.len() as u64 * u64::from(bits_per_key) / 8 + 128,
            ..Shape::default()
        };
        Job::new(
            JobKind::BuildFilter,
            Task::BuildFilter(hashes, bits_per_key),
            shape,
        )
    }
}

/// The CPU's implementation of every kind: the golden model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Golden;

impl Engine for Golden {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        outcome(match kind {
            JobKind::Merge => MergeTask::decode(payload)
                .map_err(text)
                .and_then(|task| merge(&task).map_err(text))
                .map(|output| Output::Bytes(output.encode().into())),
            JobKind::BuildFilter => decode_filter_task(payload)
                .map_err(text)
                .map(|(hashes, bits_per_key)| Output::Bytes(build_filter(&hashes, bits_per_key).into())),
        })
    }

    fn run_task(&mut self, kind: JobKind, task: &Task) -> Outcome {
        outcome(match task {
            Task::Encoded(payload) => return self.run(kind, payload),
            Task::Merge(task) => CheckedMerge::merge(task)
                .map(|output| Output::Merge(Box::new(output)))
                .map_err(Output::NoMerge),
            Task::BuildFilter(_, bits) if *bits > BITS_PER_KEY_MAX => Err(text(TOO_MANY_BITS)),
            Task::BuildFilter(hashes, bits) => {
                Ok(Output::Filter(CheckedFilter::build(hashes.clone(), *bits)))
            }
        })
    }
}

fn text(why: impl ToString) -> Output {
    Output::from(why.to_string().into_bytes())
}

fn outcome(result: Result<Output, Output>) -> Outcome {
    let (code, output) = match result {
        Ok(output) => (ReturnCode::Done, output),
        Err(why) => (ReturnCode::Invalid, why),
    };
    Outcome {
        code,
        output,
        cycles: 0,
    }
}

/// Validates a unit's answer: a merge must have the entries that the task leaves
/// ([`CheckedMerge::validate`]), and a filter must contain its hashes and no more bits than they can set
/// ([`CheckedFilter::validate`]). It is not validated again. `None`: it is not a result of the task.
#[must_use]
pub fn validate(job: &Job, output: Bytes) -> Option<Output> {
    match job.kind {
        JobKind::Merge => {
            let output = MergeOutput::decode(&output).ok()?;
            let checked = match &job.task {
                Task::Merge(task) => CheckedMerge::validate(output, task),
                _ => CheckedMerge::validate(output, &MergeTask::decode(job.payload()).ok()?),
            };
            checked.ok().map(|output| Output::Merge(Box::new(output)))
        }
        JobKind::BuildFilter => {
            let (hashes, bits_per_key) = match &job.task {
                Task::BuildFilter(hashes, bits_per_key) => (hashes.clone(), *bits_per_key),
                _ => decode_filter_task(job.payload())
                    .map(|(hashes, bits_per_key)| (hashes.into(), bits_per_key))
                    .ok()?,
            };
            CheckedFilter::validate(output, hashes, bits_per_key).map(Output::Filter)
        }
    }
}

/// Whether a result that this process has validated or computed belongs to such a task: its kind, and as far
/// as it knows its task (bounds of a merge, hashes of a filter). Cheap.
pub(crate) fn is_of(job: &Job, output: &Output) -> bool {
    match (job.kind, output) {
        (JobKind::Merge, Output::Merge(merged)) => {
            let is_of =
                |task: &MergeTask| merged.is_of(task.lower.as_ref(), task.upper.as_ref(), task.key_hashes);
            match &job.task {
                Task::Merge(task) => is_of(task),
                _ => MergeTask::decode(job.payload()).is_ok_and(|task| is_of(&task)),
            }
        }
        (JobKind::BuildFilter, Output::Filter(filter)) => match &job.task {
            Task::BuildFilter(hashes, bits_per_key) => filter.is_of(hashes, *bits_per_key),
            _ => decode_filter_task(job.payload())
                .is_ok_and(|(hashes, bits_per_key)| filter.is_of(&hashes.into(), bits_per_key)),
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_done_or_refused(noise: Vec<u8>) {
            for kind in JobKind::ALL {
                let outcome = Golden.run(kind, &noise.clone().into());
                prop_assert_eq!(outcome.code, ReturnCode::Invalid);
                let job = Job::new(kind, Task::Encoded(Bytes::new()), Shape::default());
                prop_assert_eq!(validate(&job, noise.clone().into()), None);
            }
        }

        #[test]
        fn the_filter_of_a_job_is_that_of_the_golden_model(hashes: Vec<u64>, bits_per_key in 1_u32..20) {
            let job = Job::build_filter(hashes.clone(), bits_per_key);
            let outcome = Golden.run(job.kind, job.payload());
            prop_assert_eq!(outcome.code, ReturnCode::Done);
            let output = outcome.output.to_bytes();
            prop_assert!(output.len() as u64 <= job.shape.output_bytes_max);
            prop_assert_eq!(&output, &build_filter(&hashes, bits_per_key));
            // What was looked through is what the CPU builds.
            let direct = Golden.run_task(job.kind, &job.task);
            prop_assert_eq!((direct.code, Some(direct.output)), (outcome.code, validate(&job, output)));
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        let job = Job::build_filter([1], BITS_PER_KEY_MAX + 1);
        assert_eq!(Golden.run_task(job.kind, &job.task).code, ReturnCode::Invalid);
    }
}
