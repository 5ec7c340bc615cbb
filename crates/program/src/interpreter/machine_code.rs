//! The interface between the interpreter and a program's machine code.
//!
//! ```text
//!   execute --- entry ---> machine code --- row, image ---> addresses of bytes
//!      ^                        |  ^ ----- step ----------> one instruction, executed as usual
//!      +-- stopped at ----------+  +--- the next one, if control continues
//! ```
//!
//! What machine code cannot do itself it does through the functions here, which run the interpreter's own
//! code on the same machine; so each instruction with effects has one implementation. If one of them does
//! anything but continue (an error, an end, waiting for memory), machine code ends, and the interpreter's
//! loop acts on it as usual.
//!
//! Machine code caches the addresses of rows in collect registers ([`Context::places`]), across calls but no
//! longer than it runs: after a resume there are none. An address is dropped by the call that puts another
//! row into its register, or that writes to the row through any register; if the access does not promise that
//! other rows stay in place ([`RowsPinned`](crate::data_access::RowsPinned)), all are dropped by each call in
//! which the access may change. So a cached address is always the one that a new request would return.
//!
//! No panic unwinds through machine code, which has no unwind tables: a panic of a function that it calls is
//! caught there, ends the machine code like an error, and is resumed from [`Machine::run_code`].

use std::any::Any;
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::data::{Change, row_of};
use super::row_image::RowTarget;
use super::scratch::{Collected, Registers, Scratch};
use super::{Flow, LONG_BYTES, Machine};
use crate::compiled::{Code, STOPPED};
use crate::data_access::DataAccess;
use crate::instr::{COLLECT_REGISTERS, Op, ROW_BUFFERS};
use crate::outcome::Statement;
use weft_types::SqlError;

/// Distance of collect registers in memory, and where in one the status that RET gives lies, 0 or 1.
pub(crate) const COLLECTED_BYTES: usize = size_of::<Collected>();
/// See [`COLLECTED_BYTES`].
pub(crate) const STATUS_OFFSET: usize = offset_of!(Collected, status);
/// See [`COLLECTED_BYTES`]: the ordinal of the table that the row is of.
pub(crate) const TABLE_OFFSET: usize = offset_of!(Collected, table);

/// Returns the address of bytes, given a number and their expected type; null if they are not there.
type Place = unsafe extern "C" fn(*mut Context, u32, u32) -> *mut u8;

/// Sets a variable column of a row buffer (its number, the column's from bit 8 on; the buffer's layout; the
/// offset of the column's cell) to bytes. As [`Context::set`]; returns null and does nothing unless the bytes
/// can be appended.
type Put = unsafe extern "C" fn(*mut Context, u32, u32, u32, *const u8, u64) -> *mut u8;

/// Executes the instruction with a number, with an argument by [`Handler`]; returns the number of the next
/// one, or [`STOPPED`].
type StepFunction = unsafe extern "C" fn(*mut Context, u32, u32) -> u32;

/// The address of the row in a collect register.
#[repr(C)]
#[derive(Clone, Copy)]
struct RowPlace {
    /// Null: unknown. Otherwise all fixed columns of the register's table are there.
    bytes: *const u8,
    len: usize,
}

impl RowPlace {
    const UNKNOWN: RowPlace = RowPlace {
        bytes: std::ptr::null(),
        len: 0,
    };

    fn of(row: &[u8]) -> RowPlace {
        RowPlace {
            bytes: row.as_ptr(),
            len: row.len(),
        }
    }
}

/// The function for an instruction that machine code does not execute itself. One function each, so that
/// nothing is checked again that was known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Handler {
    /// The interpreter's own choice.
    Any,
    /// What is fused, by its number; what finds a row, with the collect register from bit 16 on.
    CoveredSearch,
    Join,
    Projection,
    /// So many instructions that make a key.
    MakeKey,
    /// A single instruction, the function of this name of [`Machine`]; with the collect register, if it gives
    /// that another row.
    Search,
    Scan,
    Next,
    Insert,
    Update,
    Key,
    Build,
    Output,
}

impl Handler {
    const COUNT: usize = Handler::Output as usize + 1;

    /// The offset of its function in the context.
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
    /// What is known of the program's statements.
    pub statements: *mut Statement,
    /// A row: collect register, ordinal of the table. At least the layout's fixed columns are there.
    pub row: Place,
    /// A row buffer: number, [`RowTarget::code`]. As `row`.
    pub image: Place,
    /// As `image`, after making it a row of all NULLs.
    pub start: Place,
    /// As `image`, after making it a copy of a row: its number, the collect register's from bit 8 on; null if
    /// the row belongs to another table.
    pub copy: Place,
    /// As `image`, after an instruction has set a column of it: number of the instruction; null if it fails,
    /// which the interpreter then reports.
    pub set: Place,
    /// See [`Put`].
    pub put: Put,
    /// By [`Handler`].
    steps: [StepFunction; Handler::COUNT],
    /// By collect register.
    places: [RowPlace; COLLECT_REGISTERS],
    machine: *mut (),
    /// The result of the instruction that machine code stopped at, and its number.
    result: Option<Result<Flow, SqlError>>,
    stopped_at: u32,
    panic: Option<Box<dyn Any + Send>>,
}

impl Context {
    /// The offset of the cached address of a collect register's row.
    pub const fn place_offset(cp: usize) -> usize {
        offset_of!(Context, places)
            + cp % COLLECT_REGISTERS * size_of::<RowPlace>()
            + offset_of!(RowPlace, bytes)
    }

    /// As [`Context::place_offset`], of the row's length.
    pub const fn place_len_offset(cp: usize) -> usize {
        offset_of!(Context, places)
            + cp % COLLECT_REGISTERS * size_of::<RowPlace>()
            + offset_of!(RowPlace, len)
    }

    /// # Safety
    /// The context is valid, and nobody uses its places.
    #[inline]
    unsafe fn place_mut<'c>(context: *mut Context, cp: u32) -> &'c mut RowPlace {
        // SAFETY: see above.
        unsafe { &mut (*context).places[cp as usize % COLLECT_REGISTERS] }
    }
}

/// How machine code ended.
pub(super) enum Ran {
    /// Before this instruction.
    Before(usize),
    /// The instruction was executed, and control does not simply continue.
    At(usize, Result<Flow, SqlError>),
}

impl<A: DataAccess> Machine<'_, A> {
    /// Continues in machine code. `code` is this program's and accepts the run ([`Code::takes`]).
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
        // SAFETY: as above; nothing resets the outcome during a run.
        let statements = unsafe { (*(*machine).out).statements_mut() };
        let mut context = Context {
            values: values.cast(),
            nulls,
            left,
            inputs,
            collect: collect.cast(),
            statements,
            row: row::<A>,
            image: image::<A>,
            start: start::<A>,
            copy: copy::<A>,
            set: set::<A>,
            put: put::<A>,
            steps: Self::STEPS,
            places: [RowPlace::UNKNOWN; COLLECT_REGISTERS],
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

/// Runs `work` on the machine that a context was made from; returns `on_panic`, and keeps the panic, if it
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
        match u32::from(collected.table) == table {
            true => machine.place_of(cp),
            false => None,
        }
    };
    // SAFETY: called by machine code with the context that it was given.
    let found = unsafe { with_machine::<A, _>(context, None, find) };
    let Some(found) = found else {
        return std::ptr::null_mut();
    };
    // SAFETY: as above, and the machine is not in use any more.
    unsafe { *Context::place_mut(context, cp) = found };
    // Only read through.
    found.bytes.cast_mut()
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

impl<A: DataAccess> Machine<'_, A> {
    /// The address of the row in a collect register, if the row belongs to its table.
    #[inline]
    fn place_of(&self, cp: u32) -> Option<RowPlace> {
        let collected = &self.scratch.collect[cp as usize % COLLECT_REGISTERS];
        let layout = self.program.layouts.tables.get(usize::from(collected.table))?;
        let row = self.access.row(&collected.row?)?;
        (row.len() >= layout.fixed_bytes()).then_some(RowPlace::of(row))
    }
}

/// The row at a cached address, if there is one.
///
/// # Safety
/// The place is one of the present context's, where a known one is that of a row that lies there as long as
/// machine code forgets nothing (the file's head), so not beyond the call that this happens in.
#[inline]
unsafe fn kept_row<'x>(place: RowPlace) -> Option<&'x [u8]> {
    // SAFETY: see above; it was made of a slice.
    (!place.bytes.is_null()).then(|| unsafe { std::slice::from_raw_parts(place.bytes, place.len) })
}

unsafe extern "C" fn start<A: DataAccess>(context: *mut Context, buffer: u32, target: u32) -> *mut u8 {
    let make = |machine: &mut Machine<'_, A>| {
        let target = RowTarget::from_code(target);
        let image = &mut machine.scratch.rows[buffer as usize % ROW_BUFFERS];
        match target.layout(machine.program) {
            Some(layout) if layout.null_row().len() < LONG_BYTES => {
                image.start(target, layout);
                image.cells(layout)
            }
            _ => std::ptr::null_mut(),
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
        // SAFETY: the context is valid; nobody else uses its places now.
        let place = unsafe { Context::place_mut(context, numbers >> 8) };
        // SAFETY: see `kept_row`.
        let row = match unsafe { kept_row(*place) } {
            Some(row) => Some(row),
            None => {
                let row = collected.row.and_then(|row| machine.access.row(&row));
                let whole = row.filter(|row| row.len() >= layout.fixed_bytes());
                *place = whole.map_or(RowPlace::UNKNOWN, RowPlace::of);
                row
            }
        };
        match row {
            Some(row) if row.len() >= LONG_BYTES => return None,
            Some(row) => image.copy(of, layout, row),
            None if layout.null_row().len() >= LONG_BYTES => return None,
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
        let program = machine.program;
        let instr = *program.instrs.get(pc as usize)?;
        if instr.op == Op::Setr {
            let image = &machine.scratch.rows[usize::from(instr.a) % ROW_BUFFERS];
            if image.finish().len() >= LONG_BYTES {
                return None;
            }
            machine.build(instr).ok()?;
        }
        let Scratch { rows, collect, .. } = &mut *machine.scratch;
        let image = &mut rows[usize::from(instr.a) % ROW_BUFFERS];
        if image.target.code() != Some(target) {
            return None;
        }
        if instr.op != Op::Setr {
            let collected = &collect[usize::from(instr.b) % COLLECT_REGISTERS];
            let row = || {
                // SAFETY: the context is valid; nobody else uses its places now.
                let place = unsafe { *Context::place_mut(context, u32::from(instr.b)) };
                // SAFETY: see `kept_row`.
                match unsafe { kept_row(place) } {
                    Some(row) => Some((program.layouts.tables.get(usize::from(collected.table))?, row)),
                    None => row_of(program, machine.access, collected),
                }
            };
            let change = Change::of((program, machine.inputs), image, instr, row).ok()?;
            // What costs more than one instruction is the interpreter's.
            if change.bytes(image) >= LONG_BYTES {
                return None;
            }
            change.apply(image).ok()?;
        }
        Some(image.cells(image.target.layout(program)?))
    };
    // SAFETY: called by machine code with the context that it was given.
    let made = unsafe { with_machine::<A, _>(context, None, make) };
    made.unwrap_or(std::ptr::null_mut())
}

impl<A: DataAccess> Machine<'_, A> {
    /// In the order of [`Handler`].
    const STEPS: [StepFunction; Handler::COUNT] = [
        any::<A>,
        covered_search::<A>,
        join::<A>,
        projection::<A>,
        make_key::<A>,
        search::<A>,
        scan::<A>,
        next::<A>,
        insert::<A>,
        update::<A>,
        key::<A>,
        build::<A>,
        output::<A>,
    ];
}

/// Executes the instruction `pc` by `work`, and returns where control continues.
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
    // The result is moved only where the run ends. Moving it loads words that were stored in halves, and
    // waits until the processor has completed all earlier stores: copied rows, for example.
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

unsafe extern "C" fn put<A: DataAccess>(
    context: *mut Context,
    numbers: u32,
    target: u32,
    cell: u32,
    bytes: *const u8,
    len: u64,
) -> *mut u8 {
    let put = |machine: &mut Machine<'_, A>| {
        let image = &mut machine.scratch.rows[numbers as usize % ROW_BUFFERS];
        // SAFETY: machine code has seen that the bytes are some of a row that lies there.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
        match image.target.code() == Some(target) && bytes.len() < LONG_BYTES {
            true => image.put_behind((numbers >> 8) as usize, cell as usize, bytes),
            false => std::ptr::null_mut(),
        }
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { with_machine::<A, _>(context, std::ptr::null_mut(), put) }
}

/// What a call does to the cached addresses of rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Places {
    /// The access is only read, and no register gets another row.
    Stay,
    /// A register gets another row, which will be read.
    Found,
    /// A register gets another row.
    Other,
    /// Machine code itself drops what was written to (`compiled/cells.rs`).
    Written,
    /// Unknown.
    Gone,
}

/// Executes an instruction by `work` and updates the cached addresses; `cp` is the register that `becomes` is
/// about.
///
/// # Safety
/// As [`with_machine`].
#[inline(always)]
unsafe fn access_step<A: DataAccess>(
    context: *mut Context,
    (pc, cp): (u32, u32),
    becomes: Places,
    work: impl FnOnce(&mut Machine<'_, A>) -> Result<Flow, SqlError>,
) -> u32 {
    let work = |machine: &mut Machine<'_, A>| {
        let flow = work(machine)?;
        // SAFETY: the context is valid, and nobody uses its places now.
        let places = unsafe { &mut (*context).places };
        if becomes == Places::Gone || becomes != Places::Stay && A::ROWS_STAY.is_none() {
            *places = [RowPlace::UNKNOWN; COLLECT_REGISTERS];
        }
        let place = &mut places[cp as usize % COLLECT_REGISTERS];
        match becomes {
            // An access that counts reads is not asked for rows that may never be read.
            Places::Found if A::ROWS_STAY.is_some() => {
                *place = machine.place_of(cp).unwrap_or(RowPlace::UNKNOWN);
            }
            Places::Found | Places::Other => *place = RowPlace::UNKNOWN,
            Places::Stay | Places::Written | Places::Gone => {}
        }
        Ok(flow)
    };
    // SAFETY: the caller's.
    unsafe { step::<A>(context, pc, work) }
}

/// Defines the function through which machine code executes an instruction of the interpreter.
macro_rules! by_number {
    ($name:ident, $becomes:expr, |$machine:ident, $pc:ident, $number:ident| $work:expr) => {
        unsafe extern "C" fn $name<A: DataAccess>(context: *mut Context, $pc: u32, argument: u32) -> u32 {
            let $number = argument as u16;
            let work = |$machine: &mut Machine<'_, A>| $work;
            // SAFETY: called by machine code with the context that it was given.
            unsafe { access_step::<A>(context, ($pc, argument >> 16), $becomes, work) }
        }
    };
}

by_number!(any, Places::Gone, |machine, pc, _number| machine.at(pc as usize));

/// As [`access_step`], for an instruction that shows the row that it puts into its register.
///
/// # Safety
/// As [`with_machine`].
#[inline(always)]
unsafe fn found_step<A: DataAccess>(
    context: *mut Context,
    pc: u32,
    argument: u32,
    find: impl FnOnce(&mut Machine<'_, A>, u16, &mut RowPlace) -> Result<Flow, SqlError>,
) -> u32 {
    let work = |machine: &mut Machine<'_, A>| {
        let mut place = RowPlace::UNKNOWN;
        let flow = find(machine, argument as u16, &mut place)?;
        // SAFETY: the context is valid, and nobody uses its places now.
        let places = unsafe { &mut (*context).places };
        match A::ROWS_STAY {
            Some(_) => places[(argument >> 16) as usize % COLLECT_REGISTERS] = place,
            None => *places = [RowPlace::UNKNOWN; COLLECT_REGISTERS],
        }
        Ok(flow)
    };
    // SAFETY: the caller's.
    unsafe { step::<A>(context, pc, work) }
}

unsafe extern "C" fn covered_search<A: DataAccess>(context: *mut Context, pc: u32, argument: u32) -> u32 {
    let find = |machine: &mut Machine<'_, A>, number, place: &mut RowPlace| {
        machine.covered_search(pc as usize, number, |row| *place = RowPlace::of(row))
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { found_step::<A>(context, pc, argument, find) }
}

unsafe extern "C" fn join<A: DataAccess>(context: *mut Context, pc: u32, argument: u32) -> u32 {
    let find = |machine: &mut Machine<'_, A>, number, place: &mut RowPlace| {
        machine.joined_search(pc as usize, number, |row| *place = RowPlace::of(row))
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { found_step::<A>(context, pc, argument, find) }
}

by_number!(projection, Places::Stay, |machine, pc, number| machine
    .project(pc as usize, number));
by_number!(make_key, Places::Stay, |machine, pc, number| machine
    .make_key(pc as usize, u32::from(number)));

unsafe extern "C" fn update<A: DataAccess>(context: *mut Context, pc: u32, _: u32) -> u32 {
    let work = |machine: &mut Machine<'_, A>| {
        let instr = machine.take_single(pc as usize)?;
        // SAFETY: the context is valid, and nobody uses its places now; the row is looked at before it
        // changes.
        let kept = || unsafe { kept_row(*Context::place_mut(context, u32::from(instr.a))) };
        machine.update_row(instr, kept)
    };
    // SAFETY: called by machine code with the context that it was given.
    unsafe { access_step::<A>(context, (pc, 0), Places::Written, work) }
}

/// As `by_number`, for a single instruction.
macro_rules! single {
    ($name:ident, $becomes:expr) => {
        by_number!($name, $becomes, |machine, pc, _number| {
            let instr = machine.take_single(pc as usize)?;
            machine.$name(instr)
        });
    };
}

single!(search, Places::Found);
single!(scan, Places::Other);
single!(next, Places::Other);
single!(insert, Places::Written);
single!(key, Places::Stay);
single!(build, Places::Stay);
single!(output, Places::Stay);
