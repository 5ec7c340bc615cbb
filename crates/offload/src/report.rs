//! What a requester gets: the result, and which unit made it.

use std::error::Error;
use std::fmt;

use crate::operation::{JobKind, Output, Refused};
use crate::reason::Reason;

/// Why there is no result.
#[derive(Clone, PartialEq, Debug)]
pub enum JobError {
    /// The task has no output, and why, as found by the CPU. Deterministic: retrying gives the same error.
    Refused(Refused),
    /// The encoded task is invalid or has no output, likewise.
    Invalid(String),
    /// The CPU's implementation failed: a defect of this program.
    Broken(String),
    /// The CPU's answers were damaged several times: memory or processor cannot be trusted.
    CpuDamaged,
    /// Its requester cancelled it.
    Cancelled,
    /// The scheduler was stopped before the job was done, or its requester gave up before there was space.
    Stopped,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Refused(error) => error.fmt(f),
            JobError::Invalid(why) => write!(f, "the task is not valid: {why}"),
            JobError::Broken(why) => write!(f, "the CPU's implementation broke down: {why}"),
            JobError::CpuDamaged => f.write_str("results of the CPU came back damaged"),
            JobError::Cancelled => f.write_str("the job was cancelled"),
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

/// A finished job.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it yields.
    pub result: Result<Output, JobError>,
    /// How it went.
    pub report: JobReport,
}
