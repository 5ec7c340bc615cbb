//! Programs: transactions compiled to a small instruction set, and everything that handles them.
//!
//! ```text
//!   SQL compiler --builder--> Program --encode--> log, device     text <--asm--> Program
//!                               | verify (once, against the catalog)
//!                               v
//!   inputs ---> run: interpreter --guard--> DataAccess ---> store (batch member | snapshot)
//!                               |
//!                               v
//!                            Outcome: rows and counts per statement
//! ```
//!
//! A transaction is a program over one row of inputs. Its *logic* issues DB instructions (SEARCH, SCAN,
//! INSERT, UPDATE, REMOVE), whose results wait in collect registers; the *commit handler* collects them with
//! RET and commits, or control goes to the *abort handler*. Where data depends on data the logic collects
//! too. What a program may touch is declared in its accesses, whose keys are made from inputs and constants:
//! the lock manager admits by them, the guard holds the program to them. Running changes the database
//! through a [`DataAccess`] only; whoever runs a program rolls back when it fails.
//!
//! Invariants:
//! 1. Outcome and writes are a function of program, inputs and the state read: no clock, no randomness, no
//!    addresses; running out of budget happens at a definite instruction.
//! 2. No program, verified or not, makes the interpreter panic or read outside its buffers. A verified one
//!    moreover meets none of the interpreter's internal errors.
//! 3. The error reported is the first in program order, wherever it is collected, so that executors which
//!    overlap DB instructions report the same.
//!
//! - [`instr`]: opcodes and their eight-byte form. [`program`]: the parts. [`codec`]: bytes. [`asm`]: text.
//! - `resolve`: what is computed once per program. `prefetch`: prefetching what a run will search for.
//! - [`builder`]: for compilers. [`verify`]: the rules. [`guard`]: declared accesses enforced.
//! - [`interpreter`]: the CPU executor; `compiled`: machine code for hot programs.
//! - [`functions`]: the functions of CALL. [`report`]: errors and notices of a program.
//! - [`data_access`]: the interface to the rows.
//!
//! Eight modules import each other in a circle: `program`, `access_keys`, `resolve`, `prefetch`,
//! `projection`, `data_access`, `interpreter` and `compiled`. A [`Program`] owns what is derived from it (the
//! resolved form, the machine code), so that a batch finds all of it behind one pointer; and what is derived
//! names the program that it belongs to. The other modules stand below (`instr`, `class`, `functions`,
//! `error`, `outcome`, `report`) or above (`builder`, `asm`, `codec`, `verify`).
//!
//! Source: BionicDB 4.3 (softcore, Table 2), 4.5 (two-phase execution); Hobbes 3.3 (read and write sets
//! ahead of time).

pub mod access_keys;
pub mod asm;
pub mod builder;
pub mod class;
pub mod codec;
mod compiled;
pub mod data_access;
pub mod error;
pub mod functions;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod guard;
pub mod instr;
pub mod interpreter;
pub mod outcome;
mod prefetch;
pub mod program;
mod projection;
pub mod report;
mod resolve;
pub mod verify;

pub use access_keys::{AccessKeys, BoundKey, KeyPart};
pub use builder::{Cp, KeyBuf, Label, ProgramBuilder, Reg, RowBuf, TableNo};
pub use class::{Class, fits_without_check};
pub use compiled::{Compilation, CompiledStats, compiled_stats, set_compilation};
pub use data_access::{BatchAccess, DataAccess, FoundRow, ReadAccess, RowHandle, RowsPinned};
pub use error::ProgramError;
pub use functions::Function;
pub use guard::is_refusal;
pub use instr::{Cond, Datum, HANDLERS, Instr, Op};
pub use interpreter::{Budget, Progress, Scratch, begin, begin_with_keys, resume, run, run_with_keys};
pub use outcome::{Outcome, StatementOutcome};
pub use prefetch::KeyList;
pub use program::{
    Access, AccessKind, Constant, IndexShape, Program, ProgramHash, ProgramParts, Section, TableShape,
};
pub use report::{ErrorField, Level, Notice, RaiseState};
pub use verify::verify;
