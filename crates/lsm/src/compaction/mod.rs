//! Compaction: rewriting tables of one level into the next.
//!
//! ```text
//! choose.rs    what to compact: a function of the version          (nothing is read or written)
//! turns.rs     whose turn it is: what failed rests
//! bound.rs     how long the output of a task can be
//! tasks.rs     cutting it into block-range tasks, reading their blocks (through table/source.rs)
//! units.rs     who merges (executor.rs, beside this folder): the offload runtime, one of them
//! filters.rs   tables' filters, if somebody builds them beside the writer
//! output.rs    results, in order, into tables
//! wait.rs      waiting for them, but not when the engine is closed
//! run.rs       all of it together; installed in one edit
//! ```
//!
//! A task has at most four runs ([`TASK_RUNS_MAX`]), as X-DB's units have four decoders: three tables of
//! level 0 at most, and the next level as one run.

mod bound;
mod choose;
mod filters;
mod output;
mod run;
mod tasks;
mod turns;
mod units;
mod wait;

pub(crate) use choose::{Choice, choose, choose_from, debt_bytes};
pub(crate) use output::{TableMaker, TableSpec};
pub(crate) use run::{Compacted, CompactionContext, compact};
pub(crate) use turns::Turns;
pub use units::UnitExecutor;

/// The most runs that a task may have.
pub const TASK_RUNS_MAX: usize = 4;
