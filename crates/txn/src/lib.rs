//! The sequencer, the batch lock manager, interactive transactions and recovery.
//!
//! This crate decides in which order transactions happen, and makes that order the log.
//!
//! ```text
//! one-shot program ──> request ──┐                         ┌─> executor ──> store (rows, digest)
//!                                ├──> sequencer ──> batch ─┤
//! transaction ──> overlay ───────┘   (waves, lock table)   └─> record ──> wal ──> durable
//! ```
//!
//! Chapters, in reading order: `engine` (the interface), `request`, `queue` and `ticket` (asking and
//! waiting), `locks` and `lock_plan` (what a program must lock), `lock_slots` and `waves` (conflicting
//! programs go into later waves), `admission` (which programs enter the next batch), `batch`, `combiner`
//! (which thread is the sequencer), `sequencer` (a turn), `executor` (waves), `device` (waves with a device
//! beside the CPU), `record` and `write_set` (what
//! the log keeps), `prepared` (two-phase commit), `transaction`, `snapshots`, `overlay`, `view` and
//! `session_access` (BEGIN ... COMMIT), `advisory` (locks that clients name), `background` (flusher,
//! checkpointer), `recovery` (replay), `verify` (checking files).
//!
//! `engine`, `sequencer`, `background`, `advisory` and `transaction` import each other: the state that all
//! threads share is the engine's, contains the sequencer, and is what the sequencer, the background threads,
//! advisory locks and transactions work on. So do `request` and `ticket` (a request owns the responder of its
//! answer), and `locks` and `lock_plan` (the requests of a program, and the plan that makes them).
//!
//! Forbidden knowledge: nothing here knows SQL text, the wire, or DataFusion.

mod admission;
mod advisory;
mod background;
mod backlog;
mod batch;
mod cancel;
mod cold_keys;
mod combiner;
mod config;
pub mod device;
mod engine;
mod error;
mod executor;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod lock_plan;
mod lock_slots;
mod locks;
mod memory;
mod overlay;
mod prepared;
mod queue;
pub mod record;
mod recovery;
mod request;
mod sequencer;
mod session_access;
mod snapshots;
mod stats;
mod sync;
mod ticket;
#[cfg(test)]
mod ticket_tests;
mod transaction;
mod verify;
mod view;
pub mod waves;
pub mod write_set;

/// What a protocol needs to run programs outside of an engine: for crate `protocols`, which measures.
pub mod planning {
    pub use crate::executor::{
        AnswerSink, BatchRun, Work, compiled_runs, prefetch_accesses, run_reads_into, run_wave_as,
        run_wave_into, run_waves_into,
    };
    pub use crate::lock_slots::LockSlots;
    pub use crate::locks::{LockRequests, LockScope, program_locks, row_locks};
}

pub use advisory::{AdvisoryKey, AdvisoryLockInfo, AdvisoryLocks, AdvisoryMode, AdvisoryScope, AdvisoryWait};
pub use cancel::CancelToken;
pub use config::EngineConfig;
pub use engine::{Engine, Ticket};
pub use error::EngineError;
pub use executor::Execution;
pub use locks::{is_stale, stale_program};
pub use prepared::{PREPARED_NAME_BYTES_MAX, PreparedInfo};
pub use recovery::{Replay, ReplayedBatch};
pub use request::{Answer, Committed, Refused};
pub use stats::EngineStats;
pub use transaction::{InsertOutcome, Isolation, Transaction, TxnOptions, TxnSavepoint, is_parked};
pub use verify::{Finding, Verification, verify};
pub use view::{TxnView, ViewRow};
pub use weft_offload::{UnitStats, Units};
pub use weft_store::checkpoint::CheckpointConfig;
