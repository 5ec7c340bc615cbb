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
//! Nothing unwinds through machine code, which has no tables for that: a panic of a function that it calls
//! is caught there, ends the machine code like an error, and goes on from [`Machine::run_code`].

use std::any::Any;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::row_image::RowTarget;
use super::scratch::{Collected, Registers, Scratch};
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

/// Does the instruction with a number, and what is fused with it; the number of the next one, or
/// [`STOPPED`].
type StepFunction = unsafe extern "C" fn(*mut Context, u32) -> u32;

/// Who does an instruction that machine code does not. One function each, so that nothing asks again what was
/// known when the code was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Handler {
    /// Whoever the interpreter would choose.
    Any,
    /// A single instruction, the function of this name of [`Machine`].
    Search,
    Next,
    Insert,
    Update,
    Key,
    Build,
    Output,
}

impl Handler {
    const COUNT: usize = Handler::Output as usize + 1;

    /// Where in the context its function lies.
    pub const fn offset(self) -> usize {
        offset_of!(Context, steps) + self as usize * size_of::<StepFunction>()
    }
}

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
    /// A row buffer: number, [`RowTarget::code`]. As `row`.
    pub image: Place,
    /// As `image`, when it has been made a row of all NULLs.
    pub start: Place,
    /// As `image`, when it has been made a copy of a row: its number, the collect register's from bit 8 on;
    /// null where the copy is of another table.
    pub copy: Place,
    /// As `image`, when an instruction has set a column of it: number of the instruction; null where it does
    /// not do so, which the interpreter says again.
    pub set: Place,
    /// By [`Handler`].
    steps: [StepFunction; Handler::COUNT],
    machine: *mut (),
    /// What the instruction gave that machine code stopped at, and its number.
    result: Option<Result<Flow, SqlError>>,
    stopped_at: u32,
    panic: Option<Box<dyn Any + Send>>,
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
        let (values, nulls, collect) = unsafe {
            let (values, nulls) = Registers::parts(&raw mut (*scratch).registers);
            (values, nulls, &raw mut (*scratch).collect)
        };
        let mut context = Context {
            values: values.cast(),
            nulls,
            left,
            inputs,
            collect: collect.cast(),
            row: row::<A>,
            image: image::<A>,
            start: start::<A>,
            copy: copy::<A>,
            set: set::<A>,
            steps: Self::STEPS,
            machine: machine.cast(),
            result: None,
            stopped_at: 0,
            panic: None,
        };
        // SAFETY: the context is complete, its functions are those of this machine's type, and all that it
        // points to lives until this call returns.
        let next = unsafe { code.run(&raw mut context, entry) };
        if let Some(panic) = context.panic {
            resume_unwind(panic);
        }
        match context.result {
            Some(result) => Ran::At(context.stopped_at as usize, result),
            None => Ran::Before(next as usize),
        }
    }
}

/// Runs `work` on the machine that a context was made of; what `on_panic` says, with the panic kept, if it
/// panics.
///
/// # Safety
/// The context is that of a `Machine<A>` which runs machine code at this moment and is used by nobody else.
#[inline]
unsafe fn with_machine<A, R>(
    context: *mut Context,
    on_panic: R,
    work: impl FnOnce(&mut Machine<'_, A>) -> R,
) -> R {
    // SAFETY: see above; the machine outlives the call of machine code that this happens in.
    let machine = unsafe { &mut *(*context).machine.cast::<Machine<'_, A>>() };
    // The run is over after a panic; whoever catches it takes back what it wrote, as ever.
    match catch_unwind(AssertUnwindSafe(|| work(machine))) {
        Ok(done) => done,
        Err(panic) => {
            // SAFETY: the context is valid, and the machine is not in use any more.
            unsafe { (*context).panic = Some(panic) };
            on_panic
        }
    }
}

unsafe extern "C" fn row<A: DataAccess>(context: *mut Context, cp: u32, table: u32) -> *mut u8 {
    let find = |machine: &mut Machine<'_, A>| {
        let collected = &machine.scratch.collect[cp as usize % COLLECT_REGISTERS];
        let layout = machine.program.layouts.tables.get(table as usize)?;
        let row = machine.access.row(&collected.row?)?;
        (u32::from(collected.table) == table && row.len() >= layout.fixed_bytes()).then_some(row.as_ptr())
    };
    // SAFETY: called by machine code with the context that it was given.
    let found = unsafe { with_machine::<A, _>(context, None, find) };
    // Only read through.
    found.map_or(std::ptr::null_mut(), <*const u8>::cast_mut)
}

unsafe extern "C" fn image<A: DataAccess>(context: *mut Context, buffer: u32, target: u32) -> *mut u8 {
    let find = |machine: &mut Machine<'_, A>| {
        let image = &mut machine.scratch.rows[buffer as usize % ROW_BUFFERS];
        match super::data::image_layout(machine.program, image) {
            Ok(layout) if image.target.code() == Some(target) => image.cells(layout),
            _ => std::ptr::null_mut(),
        }
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { with_machine::<A, _>(context, std::ptr::null_mut(), find) }
}

unsafe extern "C" fn start<A: DataAccess>(context: *mut Context, buffer: u32, target: u32) -> *mut u8 {
    let make = |machine: &mut Machine<'_, A>| {
        let target = RowTarget::from_code(target);
        let image = &mut machine.scratch.rows[buffer as usize % ROW_BUFFERS];
        match target.layout(machine.program) {
            Some(layout) => {
                image.start(target, layout);
                image.cells(layout)
            }
            None => std::ptr::null_mut(),
        }
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { with_machine::<A, _>(context, std::ptr::null_mut(), make) }
}

unsafe extern "C" fn copy<A: DataAccess>(context: *mut Context, numbers: u32, target: u32) -> *mut u8 {
    let make = |machine: &mut Machine<'_, A>| {
        let Scratch { rows, collect, .. } = &mut *machine.scratch;
        let image = &mut rows[numbers as usize % ROW_BUFFERS];
        let collected = &collect[(numbers >> 8) as usize % COLLECT_REGISTERS];
        let of = RowTarget::Table(collected.table);
        let layout = match of.code() == Some(target) {
            true => of.layout(machine.program)?,
            false => return None,
        };
        match collected.row.and_then(|row| machine.access.row(&row)) {
            Some(row) => image.copy(of, layout, row),
            None => image.start(of, layout),
        }
        Some(image.cells(layout))
    };
    // SAFETY: called by machine code with the context that it was given.
    let made = unsafe { with_machine::<A, _>(context, None, make) };
    made.unwrap_or(std::ptr::null_mut())
}

unsafe extern "C" fn set<A: DataAccess>(context: *mut Context, pc: u32, target: u32) -> *mut u8 {
    let make = |machine: &mut Machine<'_, A>| {
        let instr = *machine.program.instrs.get(pc as usize)?;
        machine.build(instr).ok()?;
        let image = &mut machine.scratch.rows[usize::from(instr.a) % ROW_BUFFERS];
        let layout = super::data::image_layout(machine.program, image).ok()?;
        (image.target.code() == Some(target)).then(|| image.cells(layout))
    };
    // SAFETY: called by machine code with the context that it was given.
    let made = unsafe { with_machine::<A, _>(context, None, make) };
    made.unwrap_or(std::ptr::null_mut())
}

impl<A: DataAccess> Machine<'_, A> {
    /// In the order of [`Handler`].
    const STEPS: [StepFunction; Handler::COUNT] = [
        any::<A>,
        search::<A>,
        next::<A>,
        insert::<A>,
        update::<A>,
        key::<A>,
        build::<A>,
        output::<A>,
    ];
}

/// Does the instruction `pc` by `work`, and says where control goes.
///
/// # Safety
/// As [`with_machine`].
#[inline(always)]
unsafe fn step<A>(
    context: *mut Context,
    pc: u32,
    work: impl FnOnce(&mut Machine<'_, A>) -> Result<Flow, SqlError>,
) -> u32 {
    let mut result = None;
    // The result is moved only where the run ends. Whoever moves it loads words that were stored in halves,
    // and waits until the processor has written all that it stored before: copied rows, for example.
    let work = |machine: &mut Machine<'_, A>| match work(machine) {
        Ok(Flow::Next) => pc.saturating_add(1),
        Ok(Flow::Skip(instrs)) => pc.saturating_add(instrs),
        other => {
            result = Some(other);
            STOPPED
        }
    };
    // SAFETY: the caller's.
    let next = unsafe { with_machine::<A, _>(context, STOPPED, work) };
    if next == STOPPED {
        // SAFETY: as above; the machine is not in use any more.
        let context = unsafe { &mut *context };
        (context.result, context.stopped_at) = (result, pc);
    }
    next
}

unsafe extern "C" fn any<A: DataAccess>(context: *mut Context, pc: u32) -> u32 {
    // SAFETY: called by machine code with the context that it was given.
    unsafe { step::<A>(context, pc, |machine| machine.at(pc as usize)) }
}

/// The function for machine code that has one of the interpreter's do an instruction.
macro_rules! single {
    ($name:ident) => {
        unsafe extern "C" fn $name<A: DataAccess>(context: *mut Context, pc: u32) -> u32 {
            let work = |machine: &mut Machine<'_, A>| {
                let instr = machine.take_single(pc as usize)?;
                machine.$name(instr)
            };
            // SAFETY: called by machine code with the context that it was given.
            unsafe { step::<A>(context, pc, work) }
        }
    };
}

single!(search);
single!(next);
single!(insert);
single!(update);
single!(key);
single!(build);
single!(output);
