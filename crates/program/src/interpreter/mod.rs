//! The CPU executor: interprets a program, one instruction after another.
//!
//! ```text
//!            END                COMMIT
//!   logic ---------> commit ----------> Ok(outcome)
//!     |  error, ABORT  |
//!     +-------+--------+
//!             v         ABORT
//!           abort handler -----> Err(first error)
//! ```
//!
//! DB instructions are asynchronous in meaning (BionicDB 4.3): nothing may use their result before RET.
//! This executor completes them when they are issued, and one that fails goes to the abort handler at
//! once: the reported error is the first in program order either way. Every instruction costs one unit of
//! the budget, a SCAN one more per row, and whatever moves or looks at long values more by their bytes
//! ([`Budget`]), so that the budget bounds the work and running out of it depends only on program, inputs
//! and state.
//!
//! A run can be suspended and resumed. Where a SEARCH would access memory that nobody has prefetched, a
//! [`DataAccess`] that interleaves reports it ([`DataAccess::fetch`]); the run then returns
//! [`Progress::Waiting`] with all of its state in the [`Scratch`], its frame, and the caller switches to
//! another program. Nothing was done yet, so suspending changes neither results nor errors nor the budget.
//!
//! Nothing is trusted: registers are masked, ordinals looked up, rows read through checked accessors. What
//! the verifier excludes ends in an internal error, not a panic.
//!
//! Source: BionicDB 4.3 (execution), 4.5 (logic, then commit or abort handler; interleaving, there by
//! transaction, here by access); Kocberber et al., AMAC, VLDB 2015.

mod arithmetic;
mod budget;
mod buffers;
mod calls;
mod data;
mod database;
mod handlers;
#[cfg(feature = "compiled")]
mod machine_code;
mod row_image;
mod scratch;

use weft_types::{SqlError, SqlState};

use crate::access_keys::AccessKeys;
use crate::data_access::DataAccess;
use crate::instr::{Instr, Op};
use budget::out_of_budget;
#[cfg(feature = "compiled")]
use machine_code::Ran;
use scratch::RunState;

use crate::compiled::SAMPLE_RUNS;
use crate::outcome::Outcome;
use crate::program::Program;
use crate::report::RaiseState;
use crate::resolve::Fused;

pub use budget::Budget;
pub(crate) use budget::LONG_BYTES;
#[cfg(feature = "compiled")]
pub(crate) use data::load;
#[cfg(feature = "compiled")]
pub(crate) use machine_code::{COLLECTED_BYTES, Context, Handler, STATUS_OFFSET, TABLE_OFFSET};
#[cfg(feature = "compiled")]
pub(crate) use row_image::RowTarget;
pub(crate) use row_image::{ROW_BYTES_MAX, mismatch, too_big};
pub use scratch::Scratch;
pub(crate) use scratch::{Collected, KeyImage};

/// Bytes of result rows that one program may give back.
pub const RESULT_BYTES_MAX: usize = 1 << 30;

/// Runs a program over a row of inputs ([`Program::encode_inputs`]).
///
/// On success `out` holds each statement's rows and count. On an error everything that the program wrote
/// through `access` must be rolled back by the caller. Errors are deterministic; 54001, with
/// [`ErrorFields::out_of_budget`](weft_types::ErrorFields) set, when `budget` instructions were not enough.
pub fn run<A: DataAccess>(
    program: &Program,
    inputs: &[u8],
    access: &mut A,
    budget: impl Into<Budget>,
    scratch: &mut Scratch,
    out: &mut Outcome,
) -> Result<(), SqlError> {
    begin(program, inputs, budget, scratch, out)?;
    while resume(program, inputs, access, scratch, out)? == Progress::Waiting {}
    Ok(())
}

/// As [`run`], with keys as for [`begin_with_keys`].
pub fn run_with_keys<A: DataAccess>(
    program: &Program,
    (inputs, keys): (&[u8], &AccessKeys),
    access: &mut A,
    budget: impl Into<Budget>,
    scratch: &mut Scratch,
    out: &mut Outcome,
) -> Result<(), SqlError> {
    begin_with_keys(program, keys, budget, scratch, out);
    while resume(program, inputs, access, scratch, out)? == Progress::Waiting {}
    Ok(())
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is over: the outcome is there, or the error.
    Done,
    /// It waits for memory; [`resume`] goes on.
    Waiting,
}

/// Prepares a run, which [`resume`] then executes: checks the inputs, encodes the keys of the declared
/// accesses ([`Scratch::plan_lookups`]). Errors: inputs that are no row of the program's input types.
pub fn begin(
    program: &Program,
    inputs: &[u8],
    budget: impl Into<Budget>,
    scratch: &mut Scratch,
    out: &mut Outcome,
) -> Result<(), SqlError> {
    scratch.code_entries = 0;
    scratch.guard.keys.prepare(program, inputs)?;
    begin_run(program, budget.into(), scratch, out);
    Ok(())
}

/// As [`begin`], with the keys that were made of this program and the same inputs, and so checked these
/// ([`AccessKeys::prepare`]).
pub fn begin_with_keys(
    program: &Program,
    keys: &AccessKeys,
    budget: impl Into<Budget>,
    scratch: &mut Scratch,
    out: &mut Outcome,
) {
    scratch.code_entries = 0;
    scratch.guard.keys.copy_from(keys);
    begin_run(program, budget.into(), scratch, out);
}

fn begin_run(program: &Program, budget: Budget, scratch: &mut Scratch, out: &mut Outcome) {
    out.reset(program.layouts.outputs.len());
    scratch.reset(program.layouts.resolved.uses);
    scratch.output_size = scratch.output_sizes.of(program.number());
    scratch.uncounted_runs += 1;
    if scratch.uncounted_runs >= SAMPLE_RUNS {
        scratch.uncounted_runs = 0;
        program.count_runs();
    }
    scratch.run = RunState {
        pc: 0,
        is_aborting: false,
        is_fetched: false,
        left: budget.instructions,
        budget,
    };
}

/// Executes a run that [`begin`] prepared, with the same program, inputs, scratch and outcome, until it is
/// done or waits for memory. `access` may be another one over the same member or snapshot. On an error the
/// run is over and what it wrote must be rolled back; see [`run`].
pub fn resume<A: DataAccess>(
    program: &Program,
    inputs: &[u8],
    access: &mut A,
    scratch: &mut Scratch,
    out: &mut Outcome,
) -> Result<Progress, SqlError> {
    let left = scratch.run.left;
    let mut machine = Machine {
        program,
        inputs,
        access,
        scratch,
        out,
        left,
    };
    let result = machine.execute();
    if !matches!(result, Ok(Progress::Waiting)) {
        scratch
            .output_sizes
            .note(program.number(), scratch.output_size, out.output_size());
    }
    match result {
        Err(error) if !out.notices.is_empty() => Err(handlers::with_notices(error, out)),
        result => result,
    }
}

/// A run in progress.
struct Machine<'r, A> {
    program: &'r Program,
    inputs: &'r [u8],
    access: &'r mut A,
    scratch: &'r mut Scratch,
    out: &'r mut Outcome,
    /// Budget left.
    left: u32,
}

/// Where control goes after an instruction.
enum Flow {
    Next,
    /// Over so many instructions, this one included.
    Skip(u32),
    Jump(u32),
    /// Nowhere before memory has been fetched; then this instruction again.
    Wait,
    Abort,
    Done,
}

#[cold]
fn voluntary_abort() -> SqlError {
    SqlError::new(SqlState("40000"), "the program aborted the transaction")
}

/// What only an unverified program can do.
#[cold]
fn broken(what: &'static str) -> SqlError {
    SqlError::internal(format!("program is broken: {what}"))
}

impl<A: DataAccess> Machine<'_, A> {
    fn execute(&mut self) -> Result<Progress, SqlError> {
        let program = self.program;
        let RunState {
            mut pc,
            is_aborting: mut aborting,
            ..
        } = self.scratch.run;
        #[cfg(feature = "compiled")]
        let code = program.layouts.compiled.code();
        #[cfg(feature = "compiled")]
        let code = code.filter(|code| code.takes(self.inputs, self.out.statement_count()));
        loop {
            #[cfg(feature = "compiled")]
            let mut stopped = None;
            #[cfg(feature = "compiled")]
            if let Some(code) = code
                && let Some(entry) = code.entry(pc)
            {
                self.scratch.code_entries = self.scratch.code_entries.saturating_add(1);
                match self.run_code(code, entry) {
                    Ran::Before(next) => pc = next,
                    Ran::At(at, result) => (pc, stopped) = (at, Some(result)),
                }
            }
            let Some(instr) = program.instrs.get(pc) else {
                return Err(self
                    .scratch
                    .error
                    .take()
                    .unwrap_or_else(|| broken("control left it")));
            };
            #[cfg(feature = "compiled")]
            let step = stopped.unwrap_or_else(|| self.at(pc));
            #[cfg(not(feature = "compiled"))]
            let step = self.at(pc);
            match step {
                Ok(Flow::Next) => {
                    pc += 1;
                    continue;
                }
                Ok(Flow::Skip(instrs)) => {
                    pc += instrs as usize;
                    continue;
                }
                Ok(Flow::Jump(target)) => {
                    pc = target as usize;
                    continue;
                }
                Ok(Flow::Done) => {
                    return match self.scratch.error.take() {
                        Some(error) => Err(error),
                        None if aborting => Err(voluntary_abort()),
                        None => Ok(Progress::Done),
                    };
                }
                Ok(Flow::Wait) => {
                    let run = &mut self.scratch.run;
                    (run.pc, run.is_aborting, run.left) = (pc, aborting, self.left);
                    return Ok(Progress::Waiting);
                }
                Ok(Flow::Abort) => {}
                Err(error) if error.fields().out_of_budget => return Err(error),
                Err(error) => match self.catch(error, instr.op, aborting) {
                    Ok(handler) => {
                        pc = handler as usize;
                        continue;
                    }
                    // An error within the abort handler ends it.
                    Err(error) => {
                        self.scratch.error.get_or_insert(error);
                    }
                },
            }
            if aborting {
                return Err(self.scratch.error.take().unwrap_or_else(voluntary_abort));
            }
            aborting = true;
            pc = program.abort_pc as usize;
        }
    }

    /// Does the instruction, and what is fused with it.
    #[inline]
    fn at(&mut self, pc: usize) -> Result<Flow, SqlError> {
        match self.program.layouts.resolved.fused_at.get(pc) {
            Some(Fused::Search(number)) => self.covered_search(pc, *number, |_| ()),
            Some(Fused::Projection(number)) => self.project(pc, *number),
            Some(Fused::Key(instrs)) => self.make_key(pc, u32::from(*instrs)),
            Some(Fused::Join(number)) => self.joined_search(pc, *number, |_| ()),
            _ => {
                let instr = self.take_single(pc)?;
                self.step(instr)
            }
        }
    }

    /// Executes instructions that only continue, as if none of them were fused.
    fn one_by_one(&mut self, pc: usize, instrs: u32) -> Result<Flow, SqlError> {
        for at in pc..pc.saturating_add(instrs as usize) {
            let instr = self.take_single(at)?;
            self.step(instr)?;
        }
        Ok(Flow::Skip(instrs))
    }

    /// An instruction with which nothing is fused, its cost taken from the budget.
    #[inline]
    fn take_single(&mut self, pc: usize) -> Result<Instr, SqlError> {
        let instr = self.program.instrs.get(pc);
        let instr = instr.ok_or_else(|| broken("control left it"))?;
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| out_of_budget(self.scratch.run.budget))?;
        Ok(*instr)
    }

    #[inline]
    fn step(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        let Instr { op, a, b, imm, .. } = instr;
        let registers = &self.scratch.registers;
        let branch = |taken: bool| Ok(if taken { Flow::Jump(imm) } else { Flow::Next });
        let both = || registers.get(a).zip(registers.get(b));
        match op {
            Op::Jmp => Ok(Flow::Jump(imm)),
            Op::Be => branch(both().is_some_and(|(a, b)| a == b)),
            Op::Bne => branch(both().is_some_and(|(a, b)| a != b)),
            Op::Blt => branch(both().is_some_and(|(a, b)| a < b)),
            Op::Ble => branch(both().is_some_and(|(a, b)| a <= b)),
            Op::Bgt => branch(both().is_some_and(|(a, b)| a > b)),
            Op::Bge => branch(both().is_some_and(|(a, b)| a >= b)),
            Op::Bnull => branch(registers.get(a).is_none()),
            Op::Bnnull => branch(registers.get(a).is_some()),
            Op::Bt => branch(registers.get(a).is_some_and(|value| value != 0)),
            Op::Bnt => branch(registers.get(a).is_none_or(|value| value == 0)),
            Op::End => Ok(Flow::Jump(self.program.commit_pc)),
            Op::Commit => Ok(Flow::Done),
            Op::Abort => Ok(Flow::Abort),
            Op::Raise => Err(self.raise(instr)),
            Op::Raiseb => Err(self.raise_buffer(instr)),
            Op::Note
            | Op::Noteb
            | Op::Errcode
            | Op::Diag
            | Op::Try
            | Op::Endtry
            | Op::Caught
            | Op::Rethrow
            | Op::Errtext => self.report(instr),
            Op::Ret => {
                let number = usize::from(b) % self.scratch.collect.len();
                let status = std::mem::take(&mut self.scratch.collect[number].status);
                self.scratch.registers.set(a, Some(i64::from(status)));
                Ok(Flow::Next)
            }
            Op::Search => self.search(instr),
            Op::Scan => self.scan(instr),
            Op::Next => self.next(instr),
            Op::Insert => self.insert(instr),
            Op::Update => self.update(instr),
            Op::Remove => self.remove(instr),
            Op::Emit | Op::Count => self.output(instr),
            Op::Key | Op::Keyin | Op::Keyk | Op::Keyr | Op::Keycol | Op::Keynull => self.key(instr),
            Op::Keybuf | Op::Setbuf | Op::Cat | Op::Catr | Op::Cut | Op::Ldbuf => self.buffer(instr),
            Op::Call | Op::Convert | Op::Assign => self.calculate(instr),
            Op::Row
            | Op::Outrow
            | Op::Copyrow
            | Op::Setin
            | Op::Setk
            | Op::Setr
            | Op::Setcol
            | Op::Setnull => self.build(instr),
            _ => self.compute(instr),
        }
    }

    #[cold]
    fn raise(&mut self, instr: Instr) -> SqlError {
        let state = RaiseState::ALL
            .get(usize::from(instr.a))
            .map_or("P0001", |state| state.sqlstate());
        let message = self.text_constant(instr.imm).to_owned();
        if let Err(error) = self.weigh(message.len()) {
            return error;
        }
        self.dressed(SqlError::new(SqlState(state), message))
    }
}
