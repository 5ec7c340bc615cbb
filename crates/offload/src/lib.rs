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
//! | [`job`], [`filter_task`] | kinds, tasks as bytes, shapes and limits |
//!  [`operation`] | the kinds: how jobs are made, what the CPU computes, how results are validated |
//! | [`model`] | X-DB's compaction unit, simulated cycle by cycle |
//! | [`wire`] | requests and answers under checksums |
//! | [`unit`] | what a unit is; units made of threads, or of simulated time |
//! | [`scheduler`] | the queue, choosing units, checks, comparison, redoing |
//! | [`health`] | taking units out and trying them again |
//! | [`faults`] | lost, late, damaged, duplicate, refused: injected at every interface |
//! | [`ticket`], [`report`] | how a requester gets its result |
//! | [`counters`], [`reason`], [`timeline`] | what happened, in numbers and as a Chrome trace |
//!
//! Each module imports only those before it in this order: `filter_task`, `job`, `reason`, `report`, `wire`,
//! `unit`, `operation`, and then what runs jobs.
//!
//! Source: X-DB, "When Databases Meet FPGA" (Alibaba, 2018): task queue, finished queue, compaction units,
//! fault tolerance. In addition: half-open probing, comparison by share, injected faults, answers bound to
//! their attempt.

pub mod counters;
pub mod faults;
pub mod filter_task;
pub mod health;
pub mod job;
pub mod model;
pub mod operation;
pub mod reason;
pub mod report;
pub mod scheduler;
pub mod ticket;
pub mod timeline;
pub mod unit;
pub mod wire;

pub use counters::Counters;
pub use job::{Job, JobKind, Limits, Shape, Task};
pub use reason::Reason;
pub use report::{Finished, JobError, JobReport, Output};
pub use scheduler::{Scheduler, SchedulerConfig, Validator};
pub use ticket::{FinishedQueue, Ticket};
pub use unit::{Engine, Outcome, Unit, UnitSpec};
