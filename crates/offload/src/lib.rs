//! Typed jobs on units that may fail.
//!
//! Heavy pure operations (merging blocks, building filters) are done by *units*: accelerators, models of
//! accelerators, threads. No unit is trusted. Requests and answers are checksummed, every result is validated
//! against its task's inputs, every attempt has a deadline, a share of jobs runs on two units and is compared
//! byte for byte, and the CPU redoes whatever fails; each failure is counted by its reason. If every unit is
//! gone the work continues, more slowly, and the counters show it.
//!
//! | module | what is in it |
//! |---|---|
//! | [`buffer`] | data that stays at units |
//! | [`urgency`] | which jobs pass others, and how far |
//! | [`operation`] | what a kind of operation brings along |
//! | [`kinds`] | the kinds of this crate; the CPU's engine, validation |
//! | [`job`] | jobs, shapes and limits |
//! | [`model`] | X-DB's compaction unit, simulated cycle by cycle |
//! | [`wire`] | requests and answers under checksums |
//! | [`unit`] | what a unit is; units made of threads, or of simulated time |
//! | [`scheduler`] | the queue, choosing units, checks, comparison, redoing |
//! | [`health`] | taking units out and trying them again |
//! | [`faults`] | lost, late, damaged, duplicate, refused: injected at every interface |
//! | [`ticket`], [`report`] | how a requester gets its result |
//! | [`units`] | who does the jobs of one user |
//! | [`counters`], [`reason`], [`timeline`] | what happened, in numbers and as a Chrome trace |
//!
//! Each module imports only those before it in this order: `buffer`, `urgency`, `operation`, `job`, `reason`,
//! `report`, `wire`, `unit`, `kinds`, and then what runs jobs.
//!
//! Source: X-DB, "When Databases Meet FPGA" (Alibaba, 2018): task queue, finished queue, compaction units,
//! fault tolerance. In addition: half-open probing, comparison by share, injected faults, answers bound to
//! their attempt.

pub mod buffer;
pub mod counters;
pub mod faults;
pub mod health;
pub mod job;
pub mod kinds;
pub mod model;
pub mod operation;
pub mod reason;
pub mod report;
pub mod scheduler;
pub mod ticket;
pub mod timeline;
pub mod unit;
pub mod units;
pub mod urgency;
pub mod wire;

pub use buffer::{Buffer, BufferId};
pub use counters::Counters;
pub use job::{Job, Limits, Shape};
pub use operation::{JobKind, Operation, Output, Refused, Task};
pub use reason::Reason;
pub use report::{Finished, JobError, JobReport};
pub use scheduler::{Scheduler, SchedulerConfig, Validator};
pub use ticket::{FinishedQueue, JobHandle, Ticket};
pub use unit::{Accepts, Engine, Link, Outcome, Unit, UnitSpec};
pub use units::{UnitStats, Units};
pub use urgency::Urgency;
