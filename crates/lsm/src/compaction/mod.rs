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
//! A compaction of level 0 rewrites what lies below it once, however many tables it takes. So it takes as
//! many as the executor merges at a time ([`crate::CompactionExecutor::runs_max`]): fifteen and the next
//! level as one run, or three where units with four decoders merge, as X-DB's have them.

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
pub(crate) use pick::{CompactionPick, debt_bytes, level0_waits, pick, pick_from_level};
pub(crate) use run::{Compacted, CompactionContext, compact};
pub(crate) use state::CompactionState;
pub use units::UnitExecutor;

/// The most runs that a task may have: the merge keeps them in a list, whose cost grows with its length.
pub const TASK_RUNS_MAX: usize = 16;
