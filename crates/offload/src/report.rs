//! What a requester gets: the result, and which unit made it.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use weft_ops::filter::CheckedFilter;
use weft_ops::merge::{CheckedMerge, MergeError};

use crate::job::JobKind;
use crate::reason::Reason;

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// A merge that cannot be done, and why, as found by the CPU. Deterministic: retrying gives the same
    /// error.
    Merge(MergeError),
    /// The task is invalid, likewise.
    Invalid(String),
    /// The CPU's implementation failed: a defect of this program.
    Broken(String),
    /// The CPU's answers were damaged several times: memory or processor cannot be trusted.
    CpuDamaged,
    /// The scheduler was stopped before the job was done, or its requester gave up before there was space.
    Stopped,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Merge(error) => error.fmt(f),
            JobError::Invalid(why) => write!(f, "the task is not valid: {why}"),
            JobError::Broken(why) => write!(f, "the CPU's implementation broke down: {why}"),
            JobError::CpuDamaged => f.write_str("results of the CPU came back damaged"),
            JobError::Stopped => f.write_str("the scheduler was stopped, or the job given up"),
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
    /// Why the CPU did it, although there are or should be units. `None`: a unit did it, or the CPU helped
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
    /// Nanoseconds from then until the final result arrived, including redoing but not validation.
    pub run_ns: u64,
    /// Cycles of the unit whose result was taken, real or simulated; 0 if it does not count them.
    pub cycles: u64,
}

/// The result of an operation. A unit sends bytes; validation ([`crate::Validator`]) turns them into one of
/// the other variants. So the type of a result shows that it was validated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// As a unit sent it, or a message: only its checksum was verified.
    Bytes(Bytes),
    /// A merge's output.
    Merge(Box<CheckedMerge>),
    /// A filter.
    Filter(CheckedFilter),
    /// Why there is no merge, from a unit in this process. Never part of a result: there it becomes
    /// [`JobError::Merge`].
    NoMerge(MergeError),
}

impl From<Vec<u8>> for Output {
    fn from(bytes: Vec<u8>) -> Output {
        Output::Bytes(bytes.into())
    }
}

impl Output {
    /// The output as a unit sends it. A merge's output is copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Output::Bytes(bytes) => bytes.clone(),
            Output::Merge(output) => output.encode().into(),
            Output::Filter(filter) => filter.stored().clone(),
            Output::NoMerge(error) => error.to_string().into_bytes().into(),
        }
    }

    /// The output of a merge; `None` for other kinds, and for bytes that were not validated.
    #[must_use]
    pub fn into_merge(self) -> Option<CheckedMerge> {
        match self {
            Output::Merge(output) => Some(*output),
            Output::Bytes(_) | Output::Filter(_) | Output::NoMerge(_) => None,
        }
    }

    /// A filter; `None` likewise.
    #[must_use]
    pub fn into_filter(self) -> Option<CheckedFilter> {
        match self {
            Output::Filter(filter) => Some(filter),
            Output::Bytes(_) | Output::Merge(_) | Output::NoMerge(_) => None,
        }
    }

    /// Bytes of the result: of a merge those of its blocks.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Output::Bytes(bytes) => bytes.len() as u64,
            Output::Merge(output) => output.block_bytes(),
            Output::Filter(filter) => filter.stored().len() as u64,
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
