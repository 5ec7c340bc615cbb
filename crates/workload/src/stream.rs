//! A workload as whoever runs it sees it: transactions as programs with bound inputs, by seed.
//!
//! ```text
//! Workload --stream(number, seed)--> Stream --> Transaction { program, inputs, kind }
//!                                                  |-> embedded::product   the engine: sequencer, log
//!                                                  `-> crate protocols     other concurrency controls
//! ```
//!
//! A stream depends on its seed and its number alone, so every contender gets the same transactions. Drawing
//! one costs some hundred nanoseconds; a contender that must not pay for it while it is measured draws a
//! [`Tape`] beforehand.

use std::sync::Arc;

use weft_program::Program;
use weft_store::Store;

use crate::driver::RunError;

/// A transaction to run.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// What to run.
    pub program: Arc<Program>,
    /// Its inputs, encoded with the program's input layout.
    pub inputs: Vec<u8>,
    /// Which of [`Workload::kinds`].
    pub kind: usize,
    /// The transaction will roll itself back.
    pub rolls_back: bool,
}

impl Transaction {
    /// One that means to commit.
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
    /// The next one.
    fn draw(&mut self) -> Result<Transaction, RunError>;
}

/// Which stream of how many, and from which seed.
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
    /// None: an error is an error.
    None,
    /// Those that say so when they are drawn, and no others.
    AsDrawn,
    /// Whichever meet the wrong data.
    DependOnData,
}

/// Loaded tables, compiled programs, and what must hold after any run.
pub trait Workload: Sync {
    /// The benchmark's name in records.
    fn name(&self) -> &'static str;

    /// Names of the kinds of transactions.
    fn kinds(&self) -> &'static [&'static str];

    /// One client's stream.
    fn stream(&self, seed: StreamSeed) -> Box<dyn Stream + '_>;

    /// True when a stream may be played again from its start: nothing in it may happen only once.
    fn repeats(&self) -> bool;

    /// Which transactions may roll themselves back.
    fn rollbacks(&self) -> Rollbacks;

    /// Checks the newest state; returns what was checked, a line each. The error says what does not hold.
    /// `committed` is how many transactions committed since loading.
    fn check(&self, store: &Arc<Store>, committed: u64) -> Result<Vec<String>, String>;
}

/// Transactions drawn beforehand, played in a circle.
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
