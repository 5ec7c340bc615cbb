//! The product itself: streams of programs through the embedded engine, sequencer and log included.
//!
//! A program that writes is submitted to the sequencer, several at once if a client has several to start;
//! one that only reads runs on its client's thread over a snapshot. A program that raises an exception on
//! purpose (TPC-C's unused item) counts as completed.

use std::collections::VecDeque;
use std::sync::Mutex;

use weft::Database;
use weft_txn::planning::Work;
use weft_txn::{Answer, Committed, Engine, Ticket};
use weft_types::SqlState;

use super::{Commit, engine_counters};
use crate::driver::{Client, Contender, Finished, RunError};
use crate::stream::{Stream, StreamSeed, Tape, Transaction, Workload};

/// The state that RAISE sets when a program requests its own rollback: P0001 raise_exception.
const RAISED: SqlState = SqlState("P0001");

/// Transactions on one client's tape, which is repeated in a circle.
pub const TAPE_TRANSACTIONS: usize = 50_000;

/// A request that the driver passes to a client: drawn beforehand or just now.
pub type Drawn = Result<Transaction, RunError>;

/// A workload's streams as requests for the driver.
pub enum Requests<'w> {
    /// Drawn before the clock starts.
    Tape(Tape),
    /// Drawn during the run, because nothing may be repeated.
    Live(Box<dyn Stream + 'w>),
    /// Drawing failed.
    Broken(RunError),
}

impl<'w> Requests<'w> {
    /// One client's stream; on a tape of `tape_transactions` if the workload can be repeated.
    pub fn new(workload: &'w dyn Workload, seed: StreamSeed, tape_transactions: usize) -> Self {
        let mut stream = workload.stream(seed);
        if !workload.repeats() {
            return Requests::Live(stream);
        }
        match Tape::record(&mut *stream, tape_transactions) {
            Ok(tape) => Requests::Tape(tape),
            Err(error) => Requests::Broken(error),
        }
    }

    /// The next transaction.
    pub fn draw(&mut self) -> Drawn {
        match self {
            Requests::Tape(tape) => tape.play(),
            Requests::Live(stream) => stream.draw(),
            Requests::Broken(error) => Err(error.clone()),
        }
    }
}

/// The engine as a contender.
pub struct Product<'d> {
    /// The database.
    pub database: &'d Database,
    /// When a transaction counts as committed.
    pub commit: Commit,
    /// Commits by kind since the contender was made, including those outside the measured time.
    by_kind: Mutex<Vec<u64>>,
}

impl<'d> Product<'d> {
    /// A contender over a database.
    pub fn new(database: &'d Database, commit: Commit) -> Self {
        Self {
            database,
            commit,
            by_kind: Mutex::default(),
        }
    }

    /// Commits by kind so far, by clients that have ended.
    pub fn commits_by_kind(&self) -> Vec<u64> {
        self.by_kind
            .lock()
            .map_or_else(|_| Vec::new(), |counts| counts.clone())
    }
}

enum Started {
    Waiting(Ticket),
    Ran(Answer<Committed>),
}

struct ProductClient<'d> {
    engine: &'d Engine,
    commit: Commit,
    outstanding: VecDeque<(Started, usize)>,
    /// Transactions about to be started together.
    drawn: Vec<Transaction>,
    by_kind: Vec<u64>,
    of: &'d Mutex<Vec<u64>>,
}

impl Contender<Drawn> for Product<'_> {
    fn name(&self) -> &str {
        "product"
    }

    fn client(&self) -> Result<Box<dyn Client<Drawn> + '_>, RunError> {
        Ok(Box::new(ProductClient {
            engine: self.database.engine(),
            commit: self.commit,
            outstanding: VecDeque::new(),
            drawn: Vec::new(),
            by_kind: Vec::new(),
            of: &self.by_kind,
        }))
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        engine_counters(self.database.engine())
    }
}

impl Drop for ProductClient<'_> {
    fn drop(&mut self) {
        if let Ok(mut all) = self.of.lock() {
            add_counts(&mut all, &self.by_kind);
        }
    }
}

fn add_counts(all: &mut Vec<u64>, more: &[u64]) {
    all.resize(all.len().max(more.len()), 0);
    all.iter_mut().zip(more).for_each(|(sum, count)| *sum += count);
}

impl Client<Drawn> for ProductClient<'_> {
    fn start(&mut self, request: Drawn) -> Result<(), RunError> {
        let Transaction {
            program,
            inputs,
            kind,
            ..
        } = request?;
        let started = if program.read_only {
            Started::Ran(self.engine.execute(&program, inputs))
        } else {
            let ticket = self.engine.submit(&program, inputs);
            Started::Waiting(ticket.map_err(|refused| RunError::doing("submitting", refused.error))?)
        };
        self.outstanding.push_back((started, kind));
        Ok(())
    }

    fn start_many(&mut self, requests: &mut Vec<Drawn>) -> Result<(), RunError> {
        if requests.len() == 1 {
            return requests.drain(..).try_for_each(|request| self.start(request));
        }
        self.drawn.clear();
        for request in requests.drain(..) {
            self.drawn.push(request?);
        }
        let writers = self.drawn.iter_mut().filter(|drawn| !drawn.program.read_only);
        let writers = writers.map(|drawn| (&drawn.program, std::mem::take(&mut drawn.inputs)));
        let mut tickets = self.engine.submit_many(writers).into_iter();
        // Read-only programs run together too, at one boundary.
        let readers: Vec<Work<'_>> = self
            .drawn
            .iter()
            .filter(|transaction| transaction.program.read_only)
            .map(|Transaction { program, inputs, .. }| Work::Program {
                program,
                inputs,
                keys: None,
            })
            .collect();
        let mut read = match readers.is_empty() {
            true => Vec::new(),
            false => self.engine.read_many(&self.engine.snapshot(), &readers),
        }
        .into_iter();
        for transaction in self.drawn.drain(..) {
            let started = if transaction.program.read_only {
                let answer = read.next();
                Started::Ran(answer.ok_or_else(|| RunError("an answer is missing".to_owned()))?)
            } else {
                let ticket = tickets
                    .next()
                    .ok_or_else(|| RunError("a ticket is missing".to_owned()))?;
                Started::Waiting(ticket.map_err(|refused| RunError::doing("submitting", refused.error))?)
            };
            self.outstanding.push_back((started, transaction.kind));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Finished, RunError> {
        let (answer, kind) = match self.outstanding.pop_front() {
            Some((Started::Waiting(ticket), kind)) => (ticket.wait(), kind),
            Some((Started::Ran(answer), kind)) => (answer, kind),
            None => return Err(RunError("nothing is outstanding".to_owned())),
        };
        let (observed, rolled_back) = match answer {
            Ok(committed) => (committed.observed, false),
            Err(refused) if refused.error.state == RAISED => (refused.observed, true),
            Err(refused) => return Err(RunError::doing("a program", refused.error)),
        };
        if self.commit == Commit::Durable {
            let durable = self.engine.wait_durable(observed);
            durable.map_err(|e| RunError::doing("waiting for the disk", e))?;
        }
        if !rolled_back {
            self.by_kind.resize(self.by_kind.len().max(kind + 1), 0);
            if let Some(count) = self.by_kind.get_mut(kind) {
                *count += 1;
            }
        }
        Ok(Finished {
            retries: 0,
            rolled_back,
        })
    }
}
