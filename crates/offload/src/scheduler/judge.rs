//! Checking answers: whether one is whole, is for its request, and can be a result.
//!
//! Checking reads all of an answer, and takes a merge's apart block by block; comparing needs a merge's
//! result encoded. None of that is done while the scheduler's latch is held: under it an answer is given what
//! judging takes ([`Unjudged`]), and under it again the verdict is acted upon, if the attempt still stands.

use std::sync::Arc;

use bytes::Bytes;

use crate::job::{Job, JobKind};
use crate::reason::Reason;
use crate::report::Output;
use crate::scheduler::core::Plausible;
use crate::wire::{Answer, Damage, ReturnCode};

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
    /// The job, unless it is over.
    pub(super) job: Option<Arc<Job>>,
    /// It will be compared with another executor's.
    pub(super) compared: bool,
}

/// An answer and what is thought of it.
pub(crate) struct Judged {
    pub(super) unit: usize,
    pub(super) answer: Answer,
    pub(super) verdict: Result<(), Reason>,
    /// The result as it is compared, where that is not the result itself.
    pub(super) encoded: Option<Bytes>,
}

impl Unjudged {
    pub(crate) fn judge(self, plausible: Plausible) -> Judged {
        let Unjudged { unit, answer, asked } = self;
        let verdict = match &asked {
            Some(asked) => asked.judge(&answer, plausible),
            // It will be counted as a stray.
            None => Ok(()),
        };
        let compared = verdict.is_ok() && asked.is_some_and(|asked| asked.compared);
        let direct = answer.direct.as_ref().filter(|_| compared);
        let encoded = direct.map(Output::to_bytes);
        Judged {
            unit,
            answer,
            verdict,
            encoded,
        }
    }
}

impl Asked {
    fn judge(&self, answer: &Answer, plausible: Plausible) -> Result<(), Reason> {
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
            ReturnCode::Done => {}
            ReturnCode::InputDamaged => return Err(Reason::InputDamaged),
            ReturnCode::Invalid => return Err(Reason::CalledInvalid),
            ReturnCode::BeyondLimits => return Err(Reason::LimitsFoundExceeded),
            ReturnCode::Broken => return Err(Reason::Broken),
        }
        let job = self.job.as_ref().filter(|_| !self.in_process);
        match job.is_none_or(|job| plausible(job, &answer.output)) {
            true => Ok(()),
            false => Err(Reason::Malformed),
        }
    }
}
