//! What a requester gets: the result, and who made it.

use std::error::Error;
use std::fmt;

use bytes::Bytes;

use crate::job::JobKind;
use crate::reason::Reason;

/// Why there is no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// The task makes no sense; the CPU says so. Deterministic: doing it again brings the same.
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
    /// Nanoseconds from then until the result was accepted, redoing included.
    pub run_ns: u64,
    /// Cycles of the unit whose result was taken, real or simulated; 0 where nobody counts.
    pub cycles: u64,
}

/// A finished job.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The encoded result.
    pub result: Result<Bytes, JobError>,
    /// How it went.
    pub report: JobReport,
}
