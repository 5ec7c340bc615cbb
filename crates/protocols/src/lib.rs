//! The other concurrency controls of the documents, for measurement only, on the same store and programs.
//!
//! The product has only batches and locks (crate `txn`). Here each protocol of the documents runs the same
//! stream of one-shot programs on the same store, without log and sequencer, so that two figures of one run
//! differ only in concurrency control. A protocol is a type; each has its own file, which cites its source.
//!
//! ```text
//! serial              none; one thread
//! batch               Hobbes 3.3.3, Algorithm 1 on stamps; waves without conflicts
//! waves               the same, with conflicting transactions in later waves of the batch
//! calvin              Hobbes 3.2.1, listing 3.1: a lock manager thread grants in stream order
//! two_phase_locking   Hobbes 3.2.2: shared lock words, under one of five conflict policies
//! silo                Tu et al. 2013: optimistic, validated at commit
//! timestamp           BionicDB 4.7: single-version timestamp ordering
//! aria                Lu et al. 2020: unknown sets, deterministic reservations
//! reconnaissance      Calvin 3.2.1: unknown sets, found by a run at the boundary that restricts the next
//! partitioned         BionicDB 4.6: records owned by workers, DB instructions as messages
//! ```
//!
//! `needs` finds what a transaction accesses, `epoch` runs a stream, `lock_only` takes locks without running
//! programs, `observe` observes, `safeguards` lets a test remove one, `registry` maps names to protocols.
//! Figures separate planning from execution for protocols that plan.

pub mod aria;
pub mod batch;
mod buffered;
pub mod calvin;
mod epoch;
mod footprint;
mod forward;
pub mod history;
pub mod lock_only;
pub mod lock_words;
mod members;
pub mod needs;
mod observe;
mod observed;
pub mod partitioned;
pub mod reconnaissance;
mod registry;
mod report;
mod ring;
mod safeguards;
pub mod serial;
pub mod silo;
pub mod stamps;
pub mod timestamp;
pub mod two_phase_locking;
pub mod waves;

use std::sync::Arc;

use weft_program::Program;
use weft_store::Store;

pub use epoch::WORKERS_MAX;
pub use observe::{Observe, Unobserved};
pub use registry::{UnknownProtocol, is_protocol, protocol_names, run_by_name};
pub use report::{LATENCY_SAMPLE, Latency, RunReport};
pub use safeguards::{Safeguards, Sound};

/// One transaction of a stream: a program and its encoded inputs.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program.
    pub program: Arc<Program>,
    /// Its inputs, encoded with the program's input layout.
    pub inputs: Vec<u8>,
}

/// A concurrency control that can run a stream of one-shot programs.
pub trait Protocol {
    /// The name that figures print, and that [`run_by_name`] takes.
    const NAME: &'static str;

    /// Runs every job once, in an order equivalent to some serial one, on `workers` threads (1 to
    /// [`WORKERS_MAX`]), and publishes the result. Jobs whose inputs do not fit their program count as
    /// failed.
    fn run(&self, store: &Arc<Store>, jobs: &[Job], workers: usize) -> RunReport {
        self.run_observed(store, jobs, workers, &Unobserved)
    }

    /// Like [`Protocol::run`], with an observer.
    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport;
}
