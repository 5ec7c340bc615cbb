//! The budget of a run: what bounds its work.
//!
//! ```text
//!   instruction                      1
//!   SCAN                             1 for each row
//!   functions, conversions, CAT ..   1 for each 256 bytes that they look at or make
//!   anything that moves bytes        1 for each 4 KiB: a key, a row, a column, a text, the bounds of a range
//! ```
//!
//! Without the last line a program of a few instructions could build a key of megabytes and then search
//! it a hundred thousand times. What is shorter than 4 KiB costs nothing, so that only long values need a
//! look at their length: instructions that are executed as one, and machine code, leave those to the
//! interpreter, which executes one instruction after the other.
//!
//! Source: extension of BionicDB 4.3, which has no loops.

use weft_types::{SqlError, SqlState};

use super::Machine;
use super::scratch::RunState;

/// What is shorter costs no more than its instruction.
pub(crate) const LONG_BYTES: usize = 4096;

/// What a run may spend. It decides whether a program fails, so it is part of the meaning of whatever records
/// programs to run them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Units.
    pub(super) instructions: u32,
    /// Bytes that are moved cost something, too.
    pub(super) counts_bytes: bool,
}

impl Budget {
    /// So many units, one for an instruction and each 4 KiB that it moves.
    pub const fn new(instructions: u32) -> Budget {
        Budget {
            instructions,
            counts_bytes: true,
        }
    }

    /// The same, and what is moved costs nothing.
    pub const fn of_instructions(instructions: u32) -> Budget {
        Budget {
            instructions,
            counts_bytes: false,
        }
    }
}

impl From<u32> for Budget {
    fn from(instructions: u32) -> Budget {
        Budget::new(instructions)
    }
}

impl Default for Budget {
    /// Nothing.
    fn default() -> Budget {
        Budget::new(0)
    }
}

#[cold]
pub(super) fn out_of_budget(budget: Budget) -> SqlError {
    let instructions = budget.instructions;
    let mut error = SqlError::new(
        SqlState::STATEMENT_TOO_COMPLEX,
        format!("the program exceeded its budget of {instructions} instructions"),
    );
    error.fields_mut().out_of_budget = true;
    error
}

impl<A> Machine<'_, A> {
    /// Takes from the budget what an instruction costs besides itself.
    pub(super) fn spend(&mut self, cost: usize) -> Result<(), SqlError> {
        take(&mut self.left, self.scratch.run.budget, cost)
    }

    /// Takes from the budget what bytes cost that the instruction moves or looks at.
    #[inline]
    pub(super) fn weigh(&mut self, bytes: usize) -> Result<(), SqlError> {
        weigh(&mut self.left, &self.scratch.run, bytes)
    }

    /// Takes from the budget what an instruction has cost that then failed: an error that a handler catches
    /// is not for nothing.
    #[cold]
    pub(super) fn spend_in_vain(&mut self, cost: usize) -> Result<(), SqlError> {
        match self.scratch.run.budget.counts_bytes {
            true => self.spend(cost),
            false => Ok(()),
        }
    }
}

/// As [`Machine::weigh`], where the rest of the machine is in use.
#[inline]
pub(super) fn weigh(left: &mut u32, run: &RunState, bytes: usize) -> Result<(), SqlError> {
    match bytes < LONG_BYTES {
        true => Ok(()),
        false => weigh_long(left, run.budget, bytes),
    }
}

#[cold]
fn weigh_long(left: &mut u32, budget: Budget, bytes: usize) -> Result<(), SqlError> {
    match budget.counts_bytes {
        true => take(left, budget, bytes / LONG_BYTES),
        false => Ok(()),
    }
}

fn take(left: &mut u32, budget: Budget, cost: usize) -> Result<(), SqlError> {
    let rest = u32::try_from(cost).ok().and_then(|cost| left.checked_sub(cost));
    *left = rest.ok_or_else(|| out_of_budget(budget))?;
    Ok(())
}
