//! What holds at each instruction on every path to it: forward data flow over collect registers, keys and
//! row buffers.
//!
//! ```text
//!              issue (SEARCH, SCAN, INSERT; UPDATE, REMOVE)         two paths meet:
//!   empty ---------------------------------> pending                 pending  = pending on either
//!              <------- use of the row ----- collected <--- RET      table    = the same on both, or mixed
//! ```
//!
//! The state at an instruction is the join over all paths; joins only lose knowledge, each part at most
//! twice, so the worklist ends after a few rounds. The commit handler starts with the join over all END; the
//! abort handler may be entered from anywhere and is only walked for reachability.

use std::collections::HashMap;

use super::{comparable, constant_fits};
use crate::class::{Class, fits_without_check};
use crate::error::ProgramError;
use crate::functions::Function;
use crate::instr::{COLLECT_REGISTERS, Datum, HANDLERS, Instr, KEY_BUFFERS, Op, ROW_BUFFERS};
use crate::program::{IndexShape, Program, Section};
use weft_types::{SqlType, cast_context};

const NOTHING_CAUGHT: &str = "a handler's error is asked for where none has come on every path";

type Rule = Result<(), &'static str>;

/// Something known, unknown because paths differ, or not set yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known<T> {
    Unset,
    Is(T),
    Mixed,
}

impl<T: Copy + PartialEq> Known<T> {
    fn join(self, other: Self) -> Self {
        if self == other { self } else { Known::Mixed }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Table(u8),
    Output(u32),
}

/// A collect register: the table of its row, whether a SCAN filled it, whether something may wait for RET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Collect {
    row: Known<(u8, bool)>,
    pending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    collect: [Collect; COLLECT_REGISTERS],
    /// Interned lists of key parts.
    keys: [Known<u32>; KEY_BUFFERS],
    rows: [Known<Target>; ROW_BUFFERS],
    /// An interned list of the handlers that errors go to.
    tries: Known<u32>,
    /// Bit n: an error has come to handler n.
    caught: u8,
}

impl State {
    fn new() -> State {
        State {
            collect: [Collect {
                row: Known::Unset,
                pending: false,
            }; COLLECT_REGISTERS],
            keys: [Known::Unset; KEY_BUFFERS],
            rows: [Known::Unset; ROW_BUFFERS],
            tries: Known::Is(0),
            caught: 0,
        }
    }

    fn join(&mut self, other: &State) {
        for (mine, other) in self.collect.iter_mut().zip(&other.collect) {
            *mine = Collect {
                row: mine.row.join(other.row),
                pending: mine.pending || other.pending,
            };
        }
        for (mine, other) in self.keys.iter_mut().zip(&other.keys) {
            *mine = mine.join(*other);
        }
        for (mine, other) in self.rows.iter_mut().zip(&other.rows) {
            *mine = mine.join(*other);
        }
        self.tries = self.tries.join(other.tries);
        self.caught &= other.caught;
    }

    /// The state when a handler gets an error: no key is at hand, and of rows those of a SCAN that was over
    /// when the block began (one issued within it leaves a register that differs by path).
    fn caught(&self, handler: u8, tries: u32) -> State {
        let mut collect = State::new().collect;
        for (kept, before) in collect.iter_mut().zip(self.collect) {
            if !before.pending && matches!(before.row, Known::Is((_, true))) {
                kept.row = before.row;
            }
        }
        State {
            collect,
            rows: self.rows,
            caught: self.caught | handler_bit(handler),
            tries: Known::Is(tries),
            ..State::new()
        }
    }
}

fn handler_bit(handler: u8) -> u8 {
    1_u8.checked_shl(u32::from(handler)).unwrap_or(0)
}

const _: () = assert!(HANDLERS <= 8);

/// Blocks with handlers around an instruction, innermost last: handler and its place.
type Tries = Vec<(u8, u32)>;

/// A part of a key: a value of a class, or the place of NULLs.
type KeyTypes = Vec<Option<Class>>;

struct Flow<'p> {
    program: &'p Program,
    states: Vec<Option<State>>,
    work: Vec<usize>,
    key_lists: Vec<KeyTypes>,
    key_numbers: HashMap<KeyTypes, u32>,
    try_lists: Vec<Tries>,
}

/// Step 4 of verification.
pub(super) fn check(program: &Program) -> Result<(), ProgramError> {
    let mut flow = Flow {
        program,
        states: vec![None; program.instrs.len()],
        work: Vec::new(),
        key_lists: Vec::new(),
        key_numbers: HashMap::new(),
        try_lists: vec![Vec::new()],
    };
    flow.reach(0, &State::new());
    flow.reach(program.abort_pc as usize, &State::new());
    while let Some(pc) = flow.work.pop() {
        flow.visit(pc)
            .map_err(|rule| ProgramError::Instruction { pc: pc as u32, rule })?;
    }
    let reached = |section: Section, op: Op| {
        let ops = program.instrs.iter().zip(&flow.states).enumerate();
        ops.into_iter().any(|(pc, (instr, state))| {
            state.is_some() && instr.op == op && program.section_of(pc) == section
        })
    };
    if !reached(Section::Commit, Op::Commit) {
        return Err(ProgramError::Malformed("COMMIT is not reachable"));
    }
    if !reached(Section::Abort, Op::Abort) {
        return Err(ProgramError::Malformed("the abort handler does not end"));
    }
    Ok(())
}

impl Flow<'_> {
    /// Control may come to `pc` with a state.
    fn reach(&mut self, pc: usize, state: &State) {
        let Some(known) = self.states.get_mut(pc) else {
            return;
        };
        let changed = match known {
            Some(known) => {
                let before = known.clone();
                known.join(state);
                *known != before
            }
            None => {
                *known = Some(state.clone());
                true
            }
        };
        if changed {
            self.work.push(pc);
        }
    }

    fn visit(&mut self, pc: usize) -> Rule {
        let (Some(instr), Some(Some(state))) = (self.program.instrs.get(pc).copied(), self.states.get(pc))
        else {
            return Ok(());
        };
        let mut state = state.clone();
        if self.program.section_of(pc) != Section::Abort {
            self.reach_handler(&state)?;
            self.apply(instr, &mut state)?;
        }
        if instr.op == Op::End {
            self.reach(self.program.commit_pc as usize, &state);
        }
        if instr.op.is_branch() && instr.op != Op::Try {
            self.reach(instr.imm as usize, &state);
        }
        if !instr.op.is_terminal() {
            self.reach(pc + 1, &state);
        }
        Ok(())
    }

    fn tries(&self, state: &State) -> Result<&Tries, &'static str> {
        match state.tries {
            Known::Is(number) => self.try_lists.get(number as usize).ok_or("no such handlers"),
            _ => Err("an instruction has different handlers on different paths"),
        }
    }

    fn intern_tries(&mut self, list: Tries) -> u32 {
        let known = self.try_lists.iter().position(|known| *known == list);
        let number = known.unwrap_or(self.try_lists.len());
        if number == self.try_lists.len() {
            self.try_lists.push(list);
        }
        number as u32
    }

    /// An instruction may fail: its handler is reached with what is known before it.
    fn reach_handler(&mut self, state: &State) -> Rule {
        let Some((last, outer)) = self.tries(state)?.split_last() else {
            return Ok(());
        };
        let ((handler, place), outer) = (*last, outer.to_vec());
        let outer = self.intern_tries(outer);
        self.reach(place as usize, &state.caught(handler, outer));
        Ok(())
    }

    /// TRY and ENDTRY.
    fn enter_or_leave(&mut self, instr: Instr, state: &mut State) -> Rule {
        let mut list = self.tries(state)?.clone();
        if instr.op == Op::Try {
            if list.iter().any(|(handler, _)| *handler == instr.a) {
                return Err("TRY within a block of the same handler");
            }
            list.push((instr.a, instr.imm));
        } else if list.pop().is_none_or(|(handler, _)| handler != instr.a) {
            return Err("ENDTRY of a handler that is not the innermost");
        }
        state.tries = Known::Is(self.intern_tries(list));
        Ok(())
    }

    fn apply(&mut self, instr: Instr, state: &mut State) -> Rule {
        let (a, b) = (usize::from(instr.a), usize::from(instr.b));
        match instr.op {
            Op::Try | Op::Endtry => self.enter_or_leave(instr, state),
            Op::Rethrow if state.caught & handler_bit(instr.a) == 0 => Err(NOTHING_CAUGHT),
            Op::Caught | Op::Errtext if state.caught & handler_bit(instr.b) == 0 => Err(NOTHING_CAUGHT),
            Op::End | Op::Emit | Op::Count if !self.tries(state)?.is_empty() => {
                Err("END, EMIT or COUNT before ENDTRY: what they do is not undone")
            }
            Op::Commit if state.collect.iter().any(|collect| collect.pending) => {
                Err("COMMIT before RET of a DB instruction")
            }
            Op::Ret => match &mut state.collect[b] {
                Collect { pending: false, .. } => Err("RET with nothing to collect"),
                collect => {
                    collect.pending = false;
                    Ok(())
                }
            },
            Op::Ldcol => match Class::of(self.row_column(state, b, instr.low())?).is_register() {
                true => Ok(()),
                false => Err("the value does not fit a register"),
            },
            Op::Cmpv => {
                let left = self.datum(state, instr.b, instr.low())?;
                let right = self.datum(state, instr.c, instr.high())?;
                if comparable(left, right) {
                    Ok(())
                } else {
                    Err("values of these types do not compare")
                }
            }
            Op::Key => {
                state.keys[a] = Known::Is(self.intern(Vec::new()));
                Ok(())
            }
            Op::Keyin | Op::Keyk | Op::Keyr | Op::Keycol | Op::Keybuf | Op::Keynull => {
                self.append_key(instr, state)
            }
            Op::Cat | Op::Catr | Op::Cut | Op::Raiseb | Op::Noteb | Op::Diag | Op::Errtext => {
                self.text(instr, state)
            }
            Op::Ldbuf => match Class::of(self.buffer_column(state, instr.b, instr.low())?).is_register() {
                true => Ok(()),
                false => Err("the value does not fit a register"),
            },
            Op::Call => self.call(instr, state),
            Op::Convert | Op::Assign => {
                let from = self.buffer_column(state, instr.b, instr.high())?;
                let to = self.buffer_column(state, instr.a, instr.low())?;
                match from.same_storage(to) || cast_context(from, to).is_some() {
                    true => Ok(()),
                    false => Err("there is no conversion between the columns' types"),
                }
            }
            Op::Row
            | Op::Outrow
            | Op::Copyrow
            | Op::Setin
            | Op::Setk
            | Op::Setr
            | Op::Setcol
            | Op::Setbuf
            | Op::Setnull => self.row(instr, state),
            Op::Search | Op::Scan | Op::Next | Op::Insert | Op::Update | Op::Remove => {
                self.database(instr, state)
            }
            Op::Emit if state.rows[a] != Known::Is(Target::Output(instr.imm)) => {
                Err("EMIT of a row that is not of the statement's shape on every path")
            }
            _ => Ok(()),
        }
    }

    fn intern(&mut self, list: KeyTypes) -> u32 {
        let next = self.key_lists.len() as u32;
        let number = *self.key_numbers.entry(list.clone()).or_insert(next);
        if number == next {
            self.key_lists.push(list);
        }
        number
    }

    /// Ordinal of the table of a collected row that may be used.
    fn collected(&self, state: &State, cp: usize) -> Result<u8, &'static str> {
        match state.collect[cp] {
            Collect { pending: true, .. } => Err("a row is used before RET of its collect register"),
            Collect {
                row: Known::Is((table, _)),
                ..
            } => Ok(table),
            _ => Err("a collect register does not hold a row of one table on every path"),
        }
    }

    fn row_column(&self, state: &State, cp: usize, column: u16) -> Result<&SqlType, &'static str> {
        let table = self
            .program
            .tables
            .get(usize::from(self.collected(state, cp)?))
            .ok_or("no such table")?;
        table.columns.get(usize::from(column)).ok_or("no such column")
    }

    fn datum(&self, state: &State, source: u8, number: u16) -> Result<Class, &'static str> {
        let ty = match Datum::decode(source, number) {
            Some(Datum::Input(number)) => self
                .program
                .inputs
                .get(usize::from(number))
                .ok_or("no such input")?,
            Some(Datum::Const(number)) => self
                .program
                .consts
                .get(usize::from(number))
                .map(|constant| &constant.ty)
                .ok_or("no such constant")?,
            Some(Datum::Column { cp, column }) => self.row_column(state, usize::from(cp), column)?,
            Some(Datum::Buffer { buffer, column }) => self.buffer_column(state, buffer, column)?,
            None => return Err("unknown value source"),
        };
        Ok(Class::of(ty))
    }

    fn buffer_columns(&self, state: &State, buffer: u8) -> Result<&[SqlType], &'static str> {
        let columns = match state.rows[usize::from(buffer)] {
            Known::Is(Target::Table(table)) => self
                .program
                .tables
                .get(usize::from(table))
                .map(|table| table.columns.as_slice()),
            Known::Is(Target::Output(statement)) => {
                self.program.outputs.get(statement as usize).map(Vec::as_slice)
            }
            _ => return Err("a row buffer is not the same kind of row on every path"),
        };
        columns.ok_or("no such row")
    }

    fn buffer_column(&self, state: &State, buffer: u8, column: u16) -> Result<&SqlType, &'static str> {
        self.buffer_columns(state, buffer)?
            .get(usize::from(column))
            .ok_or("no such column")
    }

    /// CAT, CATR, CUT, ERRTEXT, and those that take a message.
    fn text(&self, instr: Instr, state: &State) -> Rule {
        let place = match instr.op {
            Op::Raiseb | Op::Noteb | Op::Diag => self.buffer_column(state, instr.b, instr.low())?,
            _ => self.buffer_column(state, instr.a, instr.low())?,
        };
        if *place != SqlType::Text {
            return Err("the column is not text");
        }
        if instr.op == Op::Cat {
            let class = self.datum(state, instr.c, instr.high())?;
            if !matches!(class, Class::Text | Class::Char) {
                return Err("what is appended is not text");
            }
        }
        Ok(())
    }

    fn call(&self, instr: Instr, state: &State) -> Rule {
        let function = Function::from_code(instr.b).ok_or("unknown function")?;
        let columns = self.buffer_columns(state, instr.a)?;
        let first = usize::from(instr.high());
        let arguments = columns.get(first..first + function.arguments().len());
        if !function.takes(arguments.ok_or("no such column")?.iter().map(Class::of)) {
            return Err("the arguments are not of the function's types");
        }
        match self.buffer_column(state, instr.a, instr.low())? {
            to if Class::of(to) == Class::of(&function.result()) && to.typmod() == -1 => Ok(()),
            _ => Err("the column is not of the function's type"),
        }
    }

    fn append_key(&mut self, instr: Instr, state: &mut State) -> Rule {
        let number = usize::from(instr.imm as u16);
        let part = match instr.op {
            Op::Keyin => Some(self.datum(state, Datum::Input(0).encode().0, number as u16)?),
            Op::Keyk => Some(self.datum(state, Datum::Const(0).encode().0, number as u16)?),
            Op::Keycol => Some(Class::of(self.row_column(
                state,
                usize::from(instr.b),
                instr.low(),
            )?)),
            Op::Keyr => Some(Class::from_code(instr.imm).ok_or("unknown class")?),
            Op::Keybuf => Some(Class::of(self.buffer_column(state, instr.b, instr.low())?)),
            _ => None,
        };
        let key = usize::from(instr.a);
        match state.keys[key] {
            Known::Unset => Err("a key is appended to before KEY"),
            Known::Mixed => Ok(()),
            Known::Is(list) => {
                let mut list = self.key_lists.get(list as usize).cloned().unwrap_or_default();
                list.push(part);
                if list.len() > weft_store::INDEX_COLUMNS_MAX {
                    return Err("a key has too many parts");
                }
                state.keys[key] = Known::Is(self.intern(list));
                Ok(())
            }
        }
    }

    fn key_fits(
        &self,
        state: &State,
        key: u8,
        table: &[SqlType],
        index: &IndexShape,
        complete: bool,
    ) -> Rule {
        let Known::Is(list) = state.keys[usize::from(key)] else {
            return Err("a key is not the same kind of key on every path");
        };
        let parts = self.key_lists.get(list as usize).map_or(&[][..], Vec::as_slice);
        let count_fits = match complete {
            true => parts.len() == index.columns.len(),
            false => parts.len() <= index.columns.len(),
        };
        let class_fits = |(part, column): (&Option<Class>, &usize)| match part {
            Some(class) => table.get(*column).is_some_and(|ty| Class::of(ty) == *class),
            None => !complete,
        };
        match count_fits && parts.iter().zip(&index.columns).all(class_fits) {
            true => Ok(()),
            false => Err("a key does not fit its index"),
        }
    }

    fn row(&mut self, instr: Instr, state: &mut State) -> Rule {
        let (a, b) = (usize::from(instr.a), usize::from(instr.b));
        match instr.op {
            Op::Row => state.rows[a] = Known::Is(Target::Table(instr.table() as u8)),
            Op::Outrow => state.rows[a] = Known::Is(Target::Output(instr.imm)),
            Op::Copyrow => state.rows[a] = Known::Is(Target::Table(self.collected(state, b)?)),
            _ => return self.set(instr, state),
        }
        Ok(())
    }

    fn set(&self, instr: Instr, state: &State) -> Rule {
        let to = self.buffer_column(state, instr.a, instr.low())?;
        let source = usize::from(instr.high());
        let fits = match instr.op {
            Op::Setin => self
                .program
                .inputs
                .get(source)
                .is_some_and(|from| fits_without_check(from, to)),
            Op::Setk => self
                .program
                .consts
                .get(source)
                .is_some_and(|constant| constant_fits(constant, to)),
            Op::Setcol => fits_without_check(self.row_column(state, usize::from(instr.b), instr.high())?, to),
            Op::Setbuf => Class::of(self.buffer_column(state, instr.b, instr.high())?) == Class::of(to),
            Op::Setr => Class::of(to).is_register(),
            _ => true,
        };
        if fits {
            Ok(())
        } else {
            Err("the value does not fit the column")
        }
    }

    fn database(&mut self, instr: Instr, state: &mut State) -> Rule {
        let (a, b) = (usize::from(instr.a), usize::from(instr.b));
        if instr.op == Op::Next {
            return match state.collect[b] {
                Collect {
                    row: Known::Is((_, true)),
                    pending: false,
                } => Ok(()),
                _ => Err("NEXT of a collect register that holds no collected SCAN"),
            };
        }
        let issue = |table: u8, scan: bool| Collect {
            row: Known::Is((table, scan)),
            pending: true,
        };
        if matches!(instr.op, Op::Update | Op::Remove) {
            let table = self.collected(state, a)?;
            if instr.op == Op::Update && state.rows[b] != Known::Is(Target::Table(table)) {
                return Err("UPDATE with a row of another table");
            }
            // A SCAN stays one: NEXT goes on after a change.
            state.collect[a].pending = true;
            return Ok(());
        }
        if state.collect[a].pending {
            return Err("a collect register is issued again before RET");
        }
        let table = instr.table() as u8;
        let shape = self.program.tables.get(instr.table()).ok_or("no such table")?;
        if instr.op == Op::Insert {
            if state.rows[b] != Known::Is(Target::Table(table)) {
                return Err("INSERT of a row of another table");
            }
        } else {
            let index = shape.indexes.get(instr.index()).ok_or("no such index")?;
            let complete = instr.op == Op::Search;
            self.key_fits(state, instr.b, &shape.columns, index, complete)?;
            if !complete {
                self.key_fits(state, instr.c, &shape.columns, index, false)?;
            }
        }
        state.collect[a] = issue(table, instr.op == Op::Scan);
        Ok(())
    }
}
