//! Contenders over the embedded database, and loading of their tables.
//!
//! ```text
//! batch              OneShot            one program submitted to the sequencer, many may be outstanding
//! two-phase locking  Interactive        an interactive SERIALIZABLE transaction, statement by statement
//! one message        sessions::Message  one text of several statements through a session
//! seven statements   sessions::Steps    BEGIN, five prepared statements, COMMIT through a session
//! ```
//!
//! The first two run the same compiled statements on the same engine, so they differ only in concurrency
//! control. None of them involves a network.

pub mod beside;
pub mod load;
pub mod product;
pub mod programs;
pub mod sessions;
pub mod tpcb;
pub mod ycsb;

use std::collections::VecDeque;
use std::sync::Arc;

use weft::Database;
use weft_program::Program;
use weft_txn::{Answer, Committed, Engine, Isolation, Ticket, TxnOptions};
use weft_types::{SqlError, SqlState};

use crate::driver::{Client, Contender, Finished, RunError};

/// A program and its encoded inputs.
pub type Call = (Arc<Program>, Vec<u8>);

/// A workload's requests as programs.
pub trait Programs<R>: Sync {
    /// The whole transaction as one program.
    fn one_shot(&self, request: &R) -> Result<Call, RunError>;

    /// The transaction as one program per statement.
    fn steps(&self, request: &R) -> Result<Vec<Call>, RunError>;
}

/// Whether a transaction counts as committed once it is executed or once it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// Once it is executed.
    Executed,
    /// Once it is on disk.
    Durable,
}

/// An engine's counters, as reported by contenders.
pub fn engine_counters(engine: &Engine) -> Vec<(&'static str, f64)> {
    let stats = engine.stats();
    vec![
        ("batches", stats.batches as f64),
        ("one_shot", stats.one_shot as f64),
        ("session_commits", stats.session_commits as f64),
        ("read_only", stats.read_only_programs as f64),
        ("deferrals", stats.deferrals as f64),
        ("log_syncs", stats.log_syncs as f64),
        ("log_sync_ns", stats.log_sync_ns as f64),
        ("log_bytes", stats.log_bytes as f64),
        ("checkpoints", stats.checkpoints as f64),
        ("thawed_rows", stats.rows.thawed_rows as f64),
    ]
}

/// Whether retrying the transaction may succeed after this error.
fn is_transient(error: &SqlError) -> bool {
    error.state == SqlState::DEADLOCK_DETECTED || error.state == SqlState::SERIALIZATION_FAILURE
}

/// One-shot programs through the sequencer.
pub struct OneShot<'d, P> {
    /// The database.
    pub database: &'d Database,
    /// The workload's programs.
    pub programs: &'d P,
    /// When a transaction counts as committed.
    pub commit: Commit,
    /// The name in tables.
    pub name: &'d str,
}

struct OneShotClient<'d, P> {
    engine: &'d Engine,
    programs: &'d P,
    commit: Commit,
    outstanding: VecDeque<Started>,
}

/// A started transaction.
enum Started {
    /// Submitted to the sequencer.
    Waiting(Ticket),
    /// Already executed on this thread, because it only reads.
    Ran(Answer<Committed>),
}

impl<R, P: Programs<R>> Contender<R> for OneShot<'_, P> {
    fn name(&self) -> &str {
        self.name
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(OneShotClient {
            engine: self.database.engine(),
            programs: self.programs,
            commit: self.commit,
            outstanding: VecDeque::new(),
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

impl<R, P: Programs<R>> Client<R> for OneShotClient<'_, P> {
    fn start(&mut self, request: R) -> Result<(), RunError> {
        let (program, inputs) = self.programs.one_shot(&request)?;
        let started = if program.read_only {
            Started::Ran(self.engine.execute(&program, inputs))
        } else {
            let ticket = self.engine.submit(&program, inputs);
            Started::Waiting(ticket.map_err(|refused| RunError::doing("submitting", refused.error))?)
        };
        self.outstanding.push_back(started);
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        let answer = match self.outstanding.pop_front() {
            Some(Started::Waiting(ticket)) => ticket.wait(),
            Some(Started::Ran(answer)) => answer,
            None => return Err(RunError("nothing is outstanding".to_owned())),
        };
        let committed = answer.map_err(|refused| RunError::doing("a one-shot program", refused.error))?;
        if self.commit == Commit::Durable {
            let durable = self.engine.wait_durable(committed.observed);
            durable.map_err(|e| RunError::doing("waiting for the disk", e))?;
        }
        Ok(Finished::default())
    }
}

/// Interactive transactions under strict two-phase locking, each on its client's thread.
pub struct Interactive<'d, P> {
    /// The database.
    pub database: &'d Database,
    /// The workload's programs.
    pub programs: &'d P,
    /// When a transaction counts as committed.
    pub commit: Commit,
    /// The name in tables.
    pub name: &'d str,
}

struct InteractiveClient<'d, P> {
    engine: &'d Engine,
    programs: &'d P,
    commit: Commit,
    /// Retries of finished transactions that were not reported yet.
    ran: VecDeque<u64>,
}

impl<R, P: Programs<R>> Contender<R> for Interactive<'_, P> {
    fn name(&self) -> &str {
        self.name
    }

    fn client(&self) -> Result<Box<dyn Client<R> + '_>, RunError> {
        Ok(Box::new(InteractiveClient {
            engine: self.database.engine(),
            programs: self.programs,
            commit: self.commit,
            ran: VecDeque::new(),
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

impl<P> InteractiveClient<'_, P> {
    /// One attempt.
    fn attempt(&self, calls: &[Call]) -> Result<Committed, SqlError> {
        let options = TxnOptions {
            isolation: Isolation::Serializable,
            ..TxnOptions::default()
        };
        let mut transaction = self.engine.begin(options);
        for (program, inputs) in calls {
            transaction.run(program, inputs)?;
        }
        transaction.commit().map_err(|refused| refused.error)
    }
}

impl<R, P: Programs<R>> Client<R> for InteractiveClient<'_, P> {
    /// Executes the transaction here: the client itself waits for it.
    fn start(&mut self, request: R) -> Result<(), RunError> {
        let calls = self.programs.steps(&request)?;
        let mut retries = 0;
        let committed = loop {
            match self.attempt(&calls) {
                Ok(committed) => break committed,
                Err(error) if is_transient(&error) => retries += 1,
                Err(error) => return Err(RunError::doing("an interactive transaction", error)),
            }
        };
        if self.commit == Commit::Durable {
            let durable = self.engine.wait_durable(committed.observed);
            durable.map_err(|e| RunError::doing("waiting for the disk", e))?;
        }
        self.ran.push_back(retries);
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        let retries = self
            .ran
            .pop_front()
            .ok_or_else(|| RunError("nothing is outstanding".to_owned()))?;
        Ok(Finished {
            retries,
            rolled_back: false,
        })
    }
}
