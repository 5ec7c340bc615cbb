//! The interface of a workload to its drivers: transactions as programs with bound inputs, by seed.
//!
//! ```text
//! Workload --stream(number, seed)--> Stream --> Transaction { program, inputs, kind }
//!                                                  |-> embedded::product   the engine: sequencer, log
//!                                                  `-> crate protocols     other concurrency controls
//! ```
//!
//! A stream depends only on its seed and its number, so every contender gets the same transactions. Drawing
//! one costs some hundred nanoseconds; a contender for which that must not be measured draws a [`Tape`]
//! beforehand.

use std::sync::Arc;

use weft_program::Program;
use weft_store::Store;

use crate::driver::RunError;

/// A transaction to run.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The program to run.
    pub program: Arc<Program>,
    /// Its inputs, encoded with the program's input layout.
    pub inputs: Vec<u8>,
    /// Index into [`Workload::kinds`].
    pub kind: usize,
    /// Whether the transaction will roll itself back.
    pub rolls_back: bool,
}

impl Transaction {
    /// A transaction that is expected to commit.
    pub fn new(program: &Arc<Program>, inputs: Vec<u8>, kind: usize) -> Self {
        Self {
            program: Arc::clone(program),
            inputs,
            kind,
            rolls_back: false,
        }
    }
}

/// An endless stream of transactions.
pub trait Stream: Send {
    /// The next transaction.
    fn draw(&mut self) -> Result<Transaction, RunError>;
}

/// The seed, number and count of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSeed {
    /// Different in every round.
    pub seed: u64,
    /// This client's number, from 0.
    pub number: u64,
    /// How many clients there are.
    pub count: u64,
}

/// Which transactions may roll themselves back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rollbacks {
    /// None: every error is a failure.
    None,
    /// Exactly those marked when they are drawn.
    AsDrawn,
    /// Any, depending on the data.
    DependOnData,
}

/// Loaded tables, compiled programs, and the invariants of every run.
pub trait Workload: Sync {
    /// The benchmark's name in records.
    fn name(&self) -> &'static str;

    /// Names of the transaction kinds.
    fn kinds(&self) -> &'static [&'static str];

    /// One client's stream.
    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_>;

    /// Whether a stream may be replayed from its start: nothing in it may be limited to once.
    fn repeats(&self) -> bool;

    /// Which transactions may roll themselves back.
    fn rollbacks(&self) -> Rollbacks;

    /// Checks the newest state; returns what was checked, one line each. The error says which invariant is
    /// violated. `committed` is the number of transactions committed since loading.
    fn check(&self, store: &Arc<Store>, committed: u64) -> Result<Vec<String>, String>;
}

/// Transactions drawn beforehand, repeated in a circle.
#[derive(Debug, Clone)]
pub struct Tape {
    transactions: Vec<Transaction>,
    next: usize,
}

impl Tape {
    /// Draws `length` transactions, at least one.
    pub fn record(stream: &mut dyn Stream, length: usize) -> Result<Self, RunError> {
        let draw = |_| stream.draw();
        Ok(Self {
            transactions: (0..length.max(1)).map(draw).collect::<Result<_, _>>()?,
            next: 0,
        })
    }

    /// The next transaction. Copies its inputs.
    pub fn play(&mut self) -> Result<Transaction, RunError> {
        let at = self.next;
        self.next = (at + 1) % self.transactions.len().max(1);
        let drawn = self.transactions.get(at).cloned();
        drawn.ok_or_else(|| RunError("the tape is empty".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_base::CatalogVersion;
    use weft_program::ProgramBuilder;

    /// Counts.
    struct Counting(u8, Arc<Program>);

    impl Stream for Counting {
        fn draw(&mut self) -> Result<Transaction, RunError> {
            self.0 += 1;
            Ok(Transaction::new(&self.1, vec![self.0], 0))
        }
    }

    #[test]
    fn a_tape_plays_in_a_circle() {
        let mut builder = ProgramBuilder::new(CatalogVersion(0));
        builder.statement(Vec::new());
        let program = Arc::new(builder.finish().unwrap());
        let mut tape = Tape::record(&mut Counting(0, program), 3).unwrap();
        let played: Vec<u8> = (0..7).map(|_| tape.play().unwrap().inputs[0]).collect();
        assert_eq!(played, [1, 2, 3, 1, 2, 3, 1]);
    }
}
