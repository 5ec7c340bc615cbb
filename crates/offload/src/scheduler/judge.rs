//! Checking answers: whether one is whole, is for its request, and can be a result.
//!
//! Checking reads all of an answer, and takes a merge's apart block by block. None of that is done while the
//! scheduler's latch is held: under it an answer is given what judging takes ([`Unjudged`]), and under it
//! again the verdict is acted upon, if the attempt still stands.
//!
//! A result is looked through here and nowhere else: what is told has the type of what was looked through
//! ([`Output`]). A unit that works in this process's memory may hand over a golden result as such, and then
//! only its kind and what it knows of its task are compared; bytes from it are looked through like anybody's.

use std::sync::Arc;

use crate::job::{Job, JobKind};
use crate::operation::is_of;
use crate::reason::Reason;
use crate::report::Output;
use crate::scheduler::core::LookThrough;
use crate::wire::{Answer, AttemptId, Damage, ReturnCode};

/// An answer as it was polled.
pub(crate) struct Unjudged {
    pub(super) unit: usize,
    pub(super) answer: Answer,
    /// `None` if its unit holds no such attempt.
    pub(super) asked: Option<Asked>,
}

/// What an answer is judged by.
pub(super) struct Asked {
    pub(super) kind: JobKind,
    pub(super) crc: u32,
    pub(super) in_process: bool,
    /// The job; of the CPU's attempts only while it is not over.
    pub(super) job: Option<Arc<Job>>,
}

/// An answer and what is thought of it.
pub(crate) struct Judged {
    pub(super) unit: usize,
    pub(super) attempt: AttemptId,
    pub(super) verdict: Result<(), Reason>,
    /// The result, looked through if the verdict is good; or what the unit says instead.
    pub(super) output: Output,
    /// Bytes that the unit sent.
    pub(super) bytes_out: u64,
    pub(super) cycles: u64,
}

impl Unjudged {
    pub(crate) fn judge(self, look: LookThrough) -> Judged {
        let Unjudged { unit, answer, asked } = self;
        let (attempt, bytes_out, cycles) = (answer.attempt, answer.size_bytes(), answer.cycles);
        let (verdict, output) = match asked {
            Some(asked) => asked.judge(answer, look),
            // It will be counted as a stray.
            None => (Ok(()), answer.into_output()),
        };
        Judged {
            unit,
            attempt,
            verdict,
            output,
            bytes_out,
            cycles,
        }
    }
}

impl Asked {
    fn judge(&self, answer: Answer, look: LookThrough) -> (Result<(), Reason>, Output) {
        let whole = self.check(&answer);
        let output = answer.into_output();
        match (whole, output, &self.job) {
            (Ok(()), Output::Bytes(bytes), Some(job)) => match look(job, bytes) {
                Some(output) => (Ok(()), output),
                None => (Err(Reason::Malformed), Output::Bytes(bytes::Bytes::new())),
            },
            (Ok(()), output, Some(job)) if !is_of(job, &output) => (Err(Reason::Malformed), output),
            (whole, output, _) => (whole, output),
        }
    }

    /// Whether it is whole and says that it is a result.
    fn check(&self, answer: &Answer) -> Result<(), Reason> {
        let checked = match (&answer.direct, self.in_process) {
            // Nothing was sent: there is no way on which it could have been damaged.
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
        }
    }
}
