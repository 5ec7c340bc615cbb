//! What a requester gets: the result, and who made it.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use weft_base::CodecError;
use weft_ops::merge::{MergeError, MergeOutput};

use crate::job::JobKind;
use crate::reason::Reason;

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// A merge that cannot be done, and why; the CPU says so. Deterministic: doing it again brings the same.
    Merge(MergeError),
    /// The task makes no sense, likewise.
    Invalid(String),
    /// The CPU's implementation broke down. A defect of this program.
    Broken(String),
    /// The CPU's answers came back damaged, several times: memory or processor are not to be trusted.
    CpuDamaged,
    /// The scheduler was stopped before the job was done.
    Stopped,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Merge(error) => error.fmt(f),
            JobError::Invalid(why) => write!(f, "the task is not valid: {why}"),
            JobError::Broken(why) => write!(f, "the CPU's implementation broke down: {why}"),
            JobError::CpuDamaged => f.write_str("results of the CPU came back damaged"),
            JobError::Stopped => f.write_str("the scheduler was stopped"),
        }
    }
}

impl Error for JobError {}

/// How a job went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobReport {
    /// Which operation.
    pub kind: JobKind,
    /// The name of the unit whose result was taken.
    pub unit: String,
    /// Why the CPU did it, although units are there or ought to be. `None`: a unit did it, or the CPU helped
    /// because units were busy.
    pub redone_on_cpu: Option<Reason>,
    /// Two executors gave the same bytes.
    pub compared: bool,
    /// Bytes of the task.
    pub bytes_in: u64,
    /// Bytes of the result.
    pub bytes_out: u64,
    /// Nanoseconds from submission until the first executor got it.
    pub queued_ns: u64,
    /// Nanoseconds from then until the result that stands was there, redoing included; judging it is not.
    pub run_ns: u64,
    /// Cycles of the unit whose result was taken, real or simulated; 0 where nobody counts.
    pub cycles: u64,
}

/// What an operation yields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Encoded, as the kind's codec writes it: a stored filter, or what a unit made of a merge.
    Bytes(Bytes),
    /// A merge's output, from a unit in this process.
    Merge(MergeOutput),
    /// Why there is none, likewise. It never stands in a result: there it is [`JobError::Merge`].
    NoMerge(MergeError),
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Output {
        Output::Bytes(bytes.into())
    }
}

impl Output {
    /// The output encoded, as units compare it. A merge's output is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Output::Bytes(bytes) => bytes.clone(),
            Output::Merge(output) => output.encode().into(),
            Output::NoMerge(error) => error.to_string().into_bytes().into(),
        }
    }

    /// The output of a merge.
    ///
    /// # Errors
    /// When the bytes are not one; a scheduler's results were looked at before.
    pub fn into_merge(self) -> Result<MergeOutput, CodecError> {
        match self {
            Output::Bytes(bytes) => MergeOutput::decode(&bytes),
            Output::Merge(output) => Ok(output),
            Output::NoMerge(_) => Err(CodecError::new(0, "no output of a merge")),
        }
    }

    /// Bytes of the result: of a merge not encoded, those of its blocks.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Output::Bytes(bytes) => bytes.len() as u64,
            Output::Merge(output) => output.block_bytes(),
            Output::NoMerge(_) => 0,
        }
    }
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it yields.
    pub result: Result<Output, JobError>,
    /// How it went.
    pub report: JobReport,
}
