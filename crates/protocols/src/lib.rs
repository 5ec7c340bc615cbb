//! The documents' other concurrency controls, for measuring only, on the same store and programs.
//!
//! The product has one way, batch and locks (crate `txn`). Here each protocol of the documents runs the same
//! stream of one-shot programs against the same store, without log and sequencer, so that nothing but
//! concurrency control differs between two figures of one run. A protocol is a type; each has a file of its
//! own with its source cited.
//!
//! ```text
//! batch               Hobbes 3.3.3, Algorithm 1 on stamps; waves without conflicts
//! two_phase_locking   Hobbes 3.2.2: a read-write lock a tuple, taken in order, released at commit
//! ```
//!
//! Figures separate planning from execution where a protocol plans.

pub mod batch;
mod registry;
pub mod two_phase_locking;

use std::sync::Arc;
use std::time::Duration;

use weft_program::Program;
use weft_store::Store;

pub use registry::{UnknownProtocol, protocol_names, run_by_name};

/// One transaction of a stream: a program and its encoded inputs.
#[derive(Debug, Clone)]
pub struct Job {
    /// What to run.
    pub program: Arc<Program>,
    /// Its inputs, encoded with the program's input layout.
    pub inputs: Vec<u8>,
}

/// What running a stream came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunReport {
    /// Wall time of the whole stream.
    pub elapsed: Duration,
    /// The part of `elapsed` in which one thread chose what may run together; zero for protocols that do not
    /// plan.
    pub planning: Duration,
    /// Transactions that committed.
    pub committed: u64,
    /// Transactions that ended in an error of their own.
    pub failed: u64,
    /// Times a transaction was put off (batch) or had to wait for a lock (locking).
    pub deferrals: u64,
    /// Batches formed; for locking, epochs.
    pub batches: u64,
}

impl RunReport {
    /// Committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A concurrency control that can run a stream of one-shot programs.
pub trait Protocol {
    /// The name that figures print.
    const NAME: &'static str;

    /// Runs every job once, in an order equivalent to some serial one, on `workers` threads, and publishes
    /// the result. Jobs whose inputs do not fit their program count as failed.
    fn run(&self, store: &Arc<Store>, jobs: &[Job], workers: usize) -> RunReport;
}
