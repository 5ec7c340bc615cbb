//! Validates answers: whether one is complete, belongs to its request, and can be a result.
//!
//! Validation reads all of an answer, and decodes a merge block by block. None of that happens under the
//! scheduler's latch: under it an answer is combined with what validation needs ([`PendingAnswer`]), and
//! later, under it again, the verdict is acted on if the attempt still exists. Large answers are validated by
//! threads of their own (`validation_pool.rs`), and count as come when they were gathered.
//!
//! A result is validated here and nowhere else: a reported result has the type of a validated one
//! ([`Output`]). A unit that works in this process's memory may pass a golden result as such; then only its
//! kind and what it knows of its task are compared. Its bytes are validated like any others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;

use crate::job::Job;
use crate::operation::{JobKind, Output};
use crate::reason::Reason;
use crate::scheduler::core::Validator;
use crate::urgency::Urgency;
use crate::wire::{Answer, AttemptId, Damage, ReturnCode};

/// An answer as it was polled.
pub(crate) struct PendingAnswer {
    pub(super) unit: usize,
    /// When it was gathered.
    pub(super) answered_ns: u64,
    pub(super) answer: Answer,
    /// `None` if its unit holds no such attempt.
    pub(super) asked: Option<AttemptContext>,
}

/// What an answer is validated against.
pub(super) struct AttemptContext {
    pub(super) kind: JobKind,
    pub(super) crc: u32,
    pub(super) in_process: bool,
    /// The unit was told that it may give the attempt up.
    pub(super) is_cancelled: bool,
    /// The job; not of a cancelled attempt, and for attempts of the CPU only while it is not finished.
    pub(super) job: Option<Arc<Job>>,
}

/// An answer and its verdict.
pub(crate) struct ValidatedAnswer {
    pub(super) unit: usize,
    pub(super) attempt: AttemptId,
    /// When it was gathered.
    pub(super) answered_ns: u64,
    pub(super) verdict: Result<(), Reason>,
    /// The result, validated if the verdict is good; otherwise what the unit reports.
    pub(super) output: Output,
    /// Bytes that the unit sent.
    pub(super) bytes_out: u64,
    pub(super) cycles: u64,
}

impl PendingAnswer {
    /// Whether validating it may take long, and nobody waits for it.
    pub(super) fn is_for_the_pool(&self) -> bool {
        let job = self.asked.as_ref().and_then(|asked| asked.job.as_ref());
        self.answer.direct.is_none() && job.is_some_and(|job| job.urgency == Urgency::Background)
    }

    pub(crate) fn judge(self, validator: Validator) -> ValidatedAnswer {
        let PendingAnswer {
            unit,
            answered_ns,
            answer,
            asked,
        } = self;
        let (attempt, bytes_out, cycles) = (answer.attempt, answer.size_bytes(), answer.cycles);
        let (verdict, output) = match asked {
            Some(asked) => asked.judge(answer, validator),
            // It will be counted as a stray.
            None => (Ok(()), answer.into_output()),
        };
        ValidatedAnswer {
            unit,
            attempt,
            answered_ns,
            verdict,
            output,
            bytes_out,
            cycles,
        }
    }
}

impl AttemptContext {
    fn judge(&self, answer: Answer, validator: Validator) -> (Result<(), Reason>, Output) {
        let whole = self.check(&answer);
        let output = answer.into_output();
        match (whole, output, &self.job) {
            (Ok(()), Output::Bytes(bytes), Some(job)) => match guarded(validator, job, bytes) {
                Some(output) => (Ok(()), output),
                None => (Err(Reason::Malformed), Output::Bytes(Bytes::new())),
            },
            (Ok(()), output, Some(job)) if !job.kind.is_of(&job.task, &output) => {
                (Err(Reason::Malformed), output)
            }
            (whole, output, _) => (whole, output),
        }
    }

    /// Whether it is complete and claims to be a result.
    fn check(&self, answer: &Answer) -> Result<(), Reason> {
        let checked = match (&answer.direct, self.in_process) {
            // Nothing was sent, so nothing can have been damaged.
            (Some(_), true) => Ok(()),
            (Some(_), false) => return Err(Reason::Malformed),
            (None, _) => answer.check(self.kind, self.crc),
        };
        checked.map_err(|damage| match damage {
            Damage::Answer => Reason::OutputDamaged,
            Damage::Length => Reason::Truncated,
            Damage::Request => Reason::InputDamaged,
        })?;
        match answer.code {
            ReturnCode::Done => Ok(()),
            ReturnCode::InputDamaged => Err(Reason::InputDamaged),
            ReturnCode::Invalid => Err(Reason::CalledInvalid),
            ReturnCode::BeyondLimits => Err(Reason::LimitsFoundExceeded),
            ReturnCode::Broken => Err(Reason::Broken),
            ReturnCode::BufferLost => Err(Reason::BufferLost),
            ReturnCode::GivenUp if self.is_cancelled => Ok(()),
            ReturnCode::GivenUp => Err(Reason::Broken),
        }
    }
}

/// A validator that panics has not accepted the answer.
fn guarded(validator: Validator, job: &Job, bytes: Bytes) -> Option<Output> {
    let validate = AssertUnwindSafe(|| validator(job, bytes));
    catch_unwind(validate).unwrap_or_default()
}
