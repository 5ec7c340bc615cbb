//! Requests and answers under checksums: [`Request`] and [`Answer`].
//!
//! X-DB compares CRCs of data before and after transmission ("Fault Tolerance Mechanism Design"). Here each
//! direction is covered from end to end:
//!
//! ```text
//!   host                                         unit
//!   request_crc over kind, length, payload  -->  computes it again over what arrived
//!   and the checksums of buffers                 and what it kept
//!                                           <--  answers with *its* request_crc inside the answer;
//!   compares it with its own                     answer_crc over attempt, kind, request_crc, code,
//!   computes answer_crc again                    length, output
//! ```
//!
//! Invariants:
//! 1. Damage on the way in is detected even if the unit checks nothing: its echo differs.
//! 2. An answer belongs to one attempt only. The attempt's number is under the checksum and never reused, so
//!    an answer that comes twice, late, or for another request is not taken for a valid one.
//! 3. A checksum cannot detect a wrong result that was sealed afterwards (an upset inside the unit).
//!    Validation of results does ([`crate::kinds::validate`]).

use bytes::Bytes;
use weft_ops::{crc32c, crc32c_append};

use crate::buffer::{Buffer, BufferId};
use crate::job::{Job, Shape};
use crate::operation::{JobKind, Output, Task};
use crate::urgency::Urgency;

/// The number of one attempt of a job on a unit. Counts up and is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttemptId(pub u64);

/// A task on its way to a unit.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which try this is.
    pub attempt: AttemptId,
    /// Which operation.
    pub kind: JobKind,
    /// Whether it passes other requests.
    pub urgency: Urgency,
    /// The size of its parts, for reserving memory.
    pub shape: Shape,
    /// The encoded task.
    pub payload: Bytes,
    /// [`request_crc`] as computed by the sender.
    pub crc: u32,
    /// The registered buffers that the task uses, in its order.
    pub buffers: Vec<RequestBuffer>,
    /// Whether the unit is to drop all registered buffers first.
    pub drops_all: bool,
    /// Registered buffers that the unit is to drop first.
    pub dropped: Vec<BufferId>,
    /// For a unit that works in this process's memory, the task itself instead of payload and checksum.
    pub task: Option<Task>,
}

/// A registered buffer that a request uses.
#[derive(Clone, Debug)]
pub struct RequestBuffer {
    /// Which contents.
    pub id: BufferId,
    /// The contents, if the unit does not have them.
    pub bytes: Option<Bytes>,
    /// Whether the unit is to keep them.
    pub is_kept: bool,
}

impl RequestBuffer {
    pub(crate) fn of(buffer: &Buffer, is_sent: bool, is_kept: bool) -> RequestBuffer {
        RequestBuffer {
            id: buffer.id(),
            bytes: is_sent.then(|| buffer.bytes().clone()),
            is_kept,
        }
    }
}

/// CRC-32C over kind, length and bytes of a task, and over the CRC-32C of each buffer.
#[must_use]
pub fn request_crc(kind: JobKind, payload: &[u8], buffers: impl Iterator<Item = u32>) -> u32 {
    let mut head = [0; 9];
    head[0] = kind.code();
    head[1..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let of_payload = crc32c_append(crc32c(&head), payload);
    buffers.fold(of_payload, |crc, buffer| {
        crc32c_append(crc, &buffer.to_le_bytes())
    })
}

/// [`request_crc`] of a job, for its sender.
#[must_use]
pub fn job_crc(job: &Job) -> u32 {
    request_crc(job.kind, job.payload(), job.buffers().iter().map(Buffer::crc))
}

/// The outcome that a unit reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReturnCode {
    /// The output is the result.
    Done,
    /// The checksum of task and buffers did not match what arrived, or what the unit kept.
    InputDamaged,
    /// The task is invalid: the output says why, as UTF-8. The CPU decides whether that is so.
    Invalid,
    /// A part of the task is larger than the unit accepts, whatever the stated shape says.
    BeyondLimits,
    /// The unit broke down while it computed.
    Broken,
    /// The unit does not have a buffer that it was to keep.
    BufferLost,
    /// The unit was told that the result is not needed any more, and stopped ([`crate::Unit::cancel`]).
    GivenUp,
}

impl ReturnCode {
    /// The code as it stands under the checksum.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            ReturnCode::Done => 0,
            ReturnCode::InputDamaged => 1,
            ReturnCode::Invalid => 2,
            ReturnCode::BeyondLimits => 3,
            ReturnCode::Broken => 4,
            ReturnCode::BufferLost => 5,
            ReturnCode::GivenUp => 6,
        }
    }
}

/// A result on its way back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The attempt that it answers.
    pub attempt: AttemptId,
    /// The operation that was done.
    pub kind: JobKind,
    /// [`request_crc`] as computed by the unit over the bytes that reached it.
    pub request_crc: u32,
    /// The outcome.
    pub code: ReturnCode,
    /// Bytes of output that were sent.
    pub output_bytes: u64,
    /// The encoded result.
    pub output: Bytes,
    /// Cycles that the unit took, if it counts or simulates them; otherwise 0.
    pub cycles: u64,
    /// Checksum over all of the above except the cycles, which do not matter.
    pub crc: u32,
    /// From a unit that works in this process's memory, the result itself instead of output and checksum.
    pub direct: Option<Output>,
}

/// Why an answer is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The answer's own checksum does not match.
    Answer,
    /// The answer is not as long as it says.
    Length,
    /// The unit worked on other bytes than those sent.
    Request,
}

impl Answer {
    /// Seals a result, as a unit does when it has computed it.
    #[must_use]
    pub fn seal(
        attempt: AttemptId,
        kind: JobKind,
        request_crc: u32,
        code: ReturnCode,
        output: impl Into<Bytes>,
    ) -> Answer {
        let output = output.into();
        let mut answer = Answer {
            attempt,
            kind,
            request_crc,
            code,
            output_bytes: output.len() as u64,
            output,
            cycles: 0,
            crc: 0,
            direct: None,
        };
        answer.crc = answer.computed_crc();
        answer
    }

    /// The answer of a unit that works in this process's memory.
    #[must_use]
    pub fn direct(request: &Request, code: ReturnCode, output: Output, cycles: u64) -> Answer {
        Answer {
            attempt: request.attempt,
            kind: request.kind,
            request_crc: request.crc,
            code,
            output_bytes: 0,
            output: Bytes::new(),
            cycles,
            crc: 0,
            direct: Some(output),
        }
    }

    /// The result, in whichever form it came.
    #[must_use]
    pub fn into_output(self) -> Output {
        self.direct.unwrap_or(Output::Bytes(self.output))
    }

    /// Bytes of the result.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let direct = self.direct.as_ref().map(Output::size_bytes);
        direct.unwrap_or(self.output.len() as u64)
    }

    /// The checksum that the answer should have.
    #[must_use]
    pub fn computed_crc(&self) -> u32 {
        let mut head = [0; 22];
        head[..8].copy_from_slice(&self.attempt.0.to_le_bytes());
        head[8] = self.kind.code();
        head[9..13].copy_from_slice(&self.request_crc.to_le_bytes());
        head[13] = self.code.code();
        head[14..].copy_from_slice(&self.output_bytes.to_le_bytes());
        crc32c_append(crc32c(&head), &self.output)
    }

    /// Checks the answer against its request.
    ///
    /// # Errors
    /// The first damage found: length, then the answer's checksum, then the request's.
    pub fn check(&self, kind: JobKind, sent_crc: u32) -> Result<(), Damage> {
        if self.output_bytes != self.output.len() as u64 {
            return Err(Damage::Length);
        }
        if self.crc != self.computed_crc() {
            return Err(Damage::Answer);
        }
        if self.kind != kind || self.request_crc != sent_crc {
            return Err(Damage::Request);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{BuildFilter, Merge};
    use proptest::prelude::*;

    const MERGE: JobKind = JobKind::of::<Merge>();

    fn none() -> std::iter::Empty<u32> {
        std::iter::empty()
    }

    proptest! {
        #[test]
        fn any_flipped_bit_of_an_answer_is_found(
            output in proptest::collection::vec(any::<u8>(), 1..400),
            sent: Vec<u8>,
            attempt: u64,
            bit: u32,
            place in 0..4,
        ) {
            let sent_crc = request_crc(MERGE, &sent, none());
            let mut answer =
                Answer::seal(AttemptId(attempt), MERGE, sent_crc, ReturnCode::Done, output);
            prop_assert_eq!(answer.check(MERGE, sent_crc), Ok(()));
            match place {
                0 => {
                    let at = bit as usize % (answer.output.len() * 8);
                    let mut bytes = answer.output.to_vec();
                    bytes[at / 8] ^= 1 << (at % 8);
                    answer.output = bytes.into();
                }
                1 => answer.attempt.0 ^= 1 << (bit % 64),
                2 => answer.request_crc ^= 1 << (bit % 32),
                _ => answer.crc ^= 1 << (bit % 32),
            }
            prop_assert_eq!(answer.check(MERGE, sent_crc), Err(Damage::Answer));
        }

        #[test]
        fn a_unit_that_worked_on_other_bytes_is_found(sent in proptest::collection::vec(any::<u8>(), 1..400),
            bit: u32) {
            let sent_crc = request_crc(MERGE, &sent, none());
            let mut arrived = sent;
            let at = bit as usize % (arrived.len() * 8);
            arrived[at / 8] ^= 1 << (at % 8);
            let echo = request_crc(MERGE, &arrived, none());
            let answer = Answer::seal(AttemptId(1), MERGE, echo, ReturnCode::Done, vec![1, 2]);
            prop_assert_eq!(answer.check(MERGE, sent_crc), Err(Damage::Request));
        }
    }

    #[test]
    fn length_and_kind_are_under_the_seal() {
        let crc = request_crc(MERGE, b"task", none());
        assert_ne!(crc, request_crc(JobKind::of::<BuildFilter>(), b"task", none()));
        let answer = Answer::seal(AttemptId(7), MERGE, crc, ReturnCode::Done, vec![0; 8]);
        let mut shorter = answer.clone();
        shorter.output.truncate(7);
        assert_eq!(shorter.check(MERGE, crc), Err(Damage::Length));
        shorter.output_bytes = 7;
        assert_eq!(shorter.check(MERGE, crc), Err(Damage::Answer));
        let mut other = answer.clone();
        other.code = ReturnCode::Invalid;
        assert_eq!(other.check(MERGE, crc), Err(Damage::Answer));
        assert_eq!(
            answer.check(JobKind::of::<BuildFilter>(), crc),
            Err(Damage::Request)
        );
    }
}
