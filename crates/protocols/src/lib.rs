//! The documents' other concurrency controls, for measuring only, on the same store and programs.
//!
//! The product has one way, batch and locks (crate `txn`). Here each protocol of the documents runs the same
//! stream of one-shot programs against the same store, without log and sequencer, so that nothing but
//! concurrency control differs between two figures of one run. A protocol is a type; each has a file of its
//! own with its source cited.
//!
//! ```text
//! serial              none; one thread
//! batch               Hobbes 3.3.3, Algorithm 1 on stamps; waves without conflicts
//! waves               the same, who conflicts in a later wave of its batch
//! calvin              Hobbes 3.2.1, listing 3.1: a lock manager thread grants in the order of the stream
//! two_phase_locking   Hobbes 3.2.2: shared lock words, under one of five conflict policies
//! silo                Tu et al. 2013: optimistic, validated at commit
//! timestamp           BionicDB 4.7: single-version timestamp ordering
//! aria                Lu et al. 2020: unknown sets, deterministic reservations
//! reconnaissance      Calvin 3.2.1: unknown sets, found by a run at the boundary, kept to by the next
//! partitioned         BionicDB 4.6: records owned by workers, DB instructions as messages
//! ```
//!
//! `needs` finds what a transaction touches, `epoch` runs a stream, `lock_only` takes locks and runs nothing,
//! `observe` looks on, `safeguards` lets a test take one away, `registry` knows the names. Figures separate
//! planning from execution where a protocol plans.

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
    /// What to run.
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

    /// The same, looked on by an observer.
    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport;
}
