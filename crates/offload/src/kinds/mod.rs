//! The kinds of this crate, the CPU's engine for all kinds, and the validation of answers.

mod filter;
mod merge;

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::job::Job;
use crate::operation::{JobKind, Output, Task};
use crate::unit::{Between, Engine, Outcome, Work};
use crate::wire::ReturnCode;

pub use filter::{BITS_PER_KEY_MAX, BuildFilter, FilterTask};
pub use merge::{KEY_BYTES, LZ4, Merge, VALUE_BYTES, WAYS, ZSTD};

/// The CPU's implementation of every kind: the golden model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Golden;

impl Engine for Golden {
    fn run(&mut self, kind: JobKind, payload: &Bytes) -> Outcome {
        self.run_task(kind, &Task::Encoded(payload.clone()))
    }

    fn run_over(&mut self, kind: JobKind, payload: &Bytes, buffers: &[Bytes]) -> Outcome {
        self.in_one_slice(kind, Work::Payload(payload, buffers))
    }

    fn run_task(&mut self, kind: JobKind, task: &Task) -> Outcome {
        self.in_one_slice(kind, Work::Task(task))
    }

    fn run_in_slices(&mut self, kind: JobKind, work: Work<'_>, between: Between<'_>) -> Option<Outcome> {
        let boundary = &mut || between(self);
        let result = match work {
            Work::Task(task) => kind.golden(task, boundary),
            Work::Payload(payload, buffers) => kind.golden_of_payload(payload, buffers, boundary),
        };
        let (code, output) = match result {
            Ok(output) => (ReturnCode::Done, output?),
            Err(why) => (ReturnCode::Invalid, why),
        };
        Some(Outcome {
            code,
            output,
            cycles: 0,
        })
    }
}

impl Golden {
    fn in_one_slice(mut self, kind: JobKind, work: Work<'_>) -> Outcome {
        let outcome = self.run_in_slices(kind, work, &mut |_| ControlFlow::Continue(()));
        outcome.unwrap_or_else(Outcome::given_up)
    }
}

/// Validates a unit's answer as its kind looks at it. It is not validated again. `None`: it is not a result
/// of the task.
#[must_use]
pub fn validate(job: &Job, answer: Bytes) -> Option<Output> {
    job.kind.look(&job.task, answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Shape;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_done_or_refused(noise: Vec<u8>) {
            for kind in [JobKind::of::<Merge>(), JobKind::of::<BuildFilter>()] {
                let outcome = Golden.run(kind, &noise.clone().into());
                prop_assert_eq!(outcome.code, ReturnCode::Invalid);
                let job = Job::encoded(kind, Bytes::new(), Shape::default());
                prop_assert_eq!(validate(&job, noise.clone().into()), None);
            }
        }
    }

    #[test]
    fn a_task_of_another_kind_is_refused() {
        let merge = Job::merge(weft_ops::merge::MergeTask::default(), 0, 0);
        let kind = JobKind::of::<BuildFilter>();
        assert_eq!(Golden.run_task(kind, &merge.task).code, ReturnCode::Invalid);
        assert_eq!(kind.look(&merge.task, Bytes::new()), None);
        let output = Golden.run_task(merge.kind, &merge.task).output;
        assert!(merge.kind.is_of(&merge.task, &output) && !kind.is_of(&merge.task, &output));
    }
}
