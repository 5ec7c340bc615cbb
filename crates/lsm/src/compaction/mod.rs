//! Compaction: rewriting tables of one level into the next.
//!
//! ```text
//! pick.rs         which compaction is next: a function of the version (nothing is read or written)
//! state.rs        running compactions, and what backs off after failures
//! output_size.rs  an upper bound for the output of a task
//! tasks.rs        cuts it into block-range tasks, reads their blocks (through table/bulk_read.rs)
//! units.rs        who merges (executor.rs, beside this folder): the offload runtime is one
//! filters.rs      tables' filters, if they are built outside of the writer's thread
//! output.rs       results, in order, into tables
//! wait.rs         waiting for them, unless the engine is closed
//! run.rs          all of it together; installed in one edit
//! ```
//!
//! A task has at most four runs ([`TASK_RUNS_MAX`]), since X-DB's units have four decoders: at most three
//! tables of level 0, and the next level as one run.

mod filters;
mod output;
mod output_size;
mod pick;
mod run;
mod state;
mod tasks;
mod units;
mod wait;

pub(crate) use output::{TableMaker, TableSpec};
pub(crate) use pick::{CompactionPick, debt_bytes, pick, pick_from_level};
pub(crate) use run::{Compacted, CompactionContext, compact};
pub(crate) use state::CompactionState;
pub use units::UnitExecutor;

/// The most runs that a task may have.
pub const TASK_RUNS_MAX: usize = 4;
