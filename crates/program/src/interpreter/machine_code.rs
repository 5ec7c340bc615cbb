//! Between the interpreter and a program's machine code.
//!
//! ```text
//!   execute --- entry ---> machine code --- row, image ---> where bytes lie
//!      ^                        |  ^ ----- step ----------> one instruction, done as ever
//!      +-- where it stopped ----+  +--- the next one, if it goes on behind itself
//! ```
//!
//! What machine code cannot do by itself it has done by the functions here, which run the interpreter's own
//! code on the same machine; so there is one implementation of each instruction with effects. Anything but
//! going on (an error, an end, waiting for memory) ends the machine code, and the interpreter's loop acts
//! on it as on its own.
//!
//! Nothing here unwinds into machine code: a function that C calls ends the process if it panics.

use std::mem::offset_of;

use super::scratch::Collected;
use super::{Flow, Machine};
use crate::compiled::{Code, STOPPED};
use crate::data_access::DataAccess;
use crate::instr::{COLLECT_REGISTERS, ROW_BUFFERS};
use weft_types::SqlError;

/// Distance of collect registers in memory, and where in one the status that RET gives lies, 0 or 1.
pub(crate) const COLLECTED_BYTES: usize = size_of::<Collected>();
/// See [`COLLECTED_BYTES`].
pub(crate) const STATUS_OFFSET: usize = offset_of!(Collected, status);

/// Tells where bytes lie, by number and by what they must be of; null if they are not there.
type Place = unsafe extern "C" fn(*mut Context, u32, u32) -> *mut u8;

/// What machine code is called with.
#[repr(C)]
pub(crate) struct Context {
    /// Values of all registers.
    pub values: *mut u64,
    /// Their NULL flags.
    pub nulls: *mut u64,
    /// Budget left.
    pub left: *mut u32,
    /// The fixed part of the inputs.
    pub inputs: *const u8,
    /// The collect registers, [`COLLECTED_BYTES`] each.
    pub collect: *mut u8,
    /// A row at hand: collect register, ordinal of the table. At least the layout's fixed columns lie there.
    pub row: Place,
    /// A row buffer: number, [`super::row_image::RowTarget::code`]. As `row`.
    pub image: Place,
    /// Does the instruction with a number, and what is fused with it; the number of the next one, or
    /// [`STOPPED`].
    pub step: unsafe extern "C" fn(*mut Context, u32) -> u32,
    machine: *mut (),
    /// What the instruction gave that machine code stopped at, and its number.
    result: Option<Result<Flow, SqlError>>,
    stopped_at: u32,
}

/// How machine code came to its end.
pub(super) enum Ran {
    /// Before this instruction.
    Before(usize),
    /// The instruction was done, and control does not just go on.
    At(usize, Result<Flow, SqlError>),
}

impl<A: DataAccess> Machine<'_, A> {
    /// Goes on in machine code. `code` is this program's and takes the inputs ([`Code::takes`]).
    #[inline]
    pub(super) fn run_code(&mut self, code: &Code, entry: u16) -> Ran {
        let inputs = self.inputs.as_ptr();
        let machine: *mut Self = self;
        // SAFETY: just made of a reference that nobody uses until machine code has ended; all pointers
        // below come from it, so that the functions here may use the machine in between.
        let (left, scratch) = unsafe { (&raw mut (*machine).left, &raw mut *(*machine).scratch) };
        // SAFETY: as above; fields of a live scratch.
        let (registers, collect) = unsafe { (&raw mut (*scratch).registers, &raw mut (*scratch).collect) };
        // SAFETY: as above.
        let (values, nulls) = unsafe { (*registers).parts() };
        let mut context = Context {
            values: values.as_mut_ptr(),
            nulls,
            left,
            inputs,
            collect: collect.cast(),
            row: row::<A>,
            image: image::<A>,
            step: step::<A>,
            machine: machine.cast(),
            result: None,
            stopped_at: 0,
        };
        // SAFETY: the context is complete, its functions are those of this machine's type, and all that it
        // points to lives until this call returns.
        let next = unsafe { code.run(&raw mut context, entry) };
        match context.result {
            Some(result) => Ran::At(context.stopped_at as usize, result),
            None => Ran::Before(next as usize),
        }
    }
}

/// The machine that a context was made of.
///
/// # Safety
/// The context is that of a `Machine<A>` which runs machine code at this moment and is used by nobody else.
unsafe fn machine<'c, A: 'c>(context: *mut Context) -> &'c mut Machine<'c, A> {
    // SAFETY: see above; the machine outlives the call of machine code that this happens in.
    unsafe { &mut *(*context).machine.cast::<Machine<'c, A>>() }
}

unsafe extern "C" fn row<A: DataAccess>(context: *mut Context, cp: u32, table: u32) -> *mut u8 {
    // SAFETY: called by machine code with the context that it was given.
    let machine = unsafe { machine::<A>(context) };
    let collected = &machine.scratch.collect[cp as usize % COLLECT_REGISTERS];
    let found = || {
        let layout = machine.program.layouts.tables.get(table as usize)?;
        let row = machine.access.row(&collected.row?)?;
        (u32::from(collected.table) == table && row.len() >= layout.fixed_bytes()).then_some(row.as_ptr())
    };
    // Only read through.
    found().map_or(std::ptr::null_mut(), <*const u8>::cast_mut)
}

unsafe extern "C" fn image<A: DataAccess>(context: *mut Context, buffer: u32, target: u32) -> *mut u8 {
    // SAFETY: called by machine code with the context that it was given.
    let machine = unsafe { machine::<A>(context) };
    let image = &mut machine.scratch.rows[buffer as usize % ROW_BUFFERS];
    let layout = super::data::image_layout(machine.program, image);
    match layout {
        Ok(layout) if image.target.code() == Some(target) => image.cells(layout),
        _ => std::ptr::null_mut(),
    }
}

unsafe extern "C" fn step<A: DataAccess>(context: *mut Context, pc: u32) -> u32 {
    // SAFETY: called by machine code with the context that it was given.
    let result = unsafe { machine::<A>(context) }.at(pc as usize);
    let instrs = match result {
        Ok(Flow::Next) => Some(1),
        Ok(Flow::Skip(instrs)) => Some(instrs),
        _ => None,
    };
    match instrs.and_then(|instrs| pc.checked_add(instrs)) {
        Some(next) => next,
        None => {
            // SAFETY: as above; the machine is not in use any more.
            let context = unsafe { &mut *context };
            (context.result, context.stopped_at) = (Some(result), pc);
            STOPPED
        }
    }
}
