//! The loader: turns a resolved program into the core's words, once.
//!
//! ```text
//!   program                          core
//!   key k0 / keyin / search cp0      index cp0                    first phase: all searches
//!   ret r0, cp0                      ret r0, cp0                  second phase: everything else, in order
//!   ldcol r1, cp0.2                  load r1, tuple + column
//!   outrow b0 / setcol / emit        moveto, move; storew         into the transaction's block
//!   copyrow b0 / setr / update cp0   moveto, move (undo); store   in place
//!   commit                           clean; storew counts; commit
//!   (none)                           ret all; fence; undo; clean; abort
//! ```
//!
//! A search's key is known before the program begins, and a row that is found is read where the program reads
//! it. So issuing all searches first changes nothing but the time at which they are issued; that a search
//! which the program would have skipped marks its row as read or dirty costs nothing after the transaction
//! has ended.
//!
//! Why programs are lowered at all: decision 0053. Words: `hardware/doc/softcore.md`.

use std::collections::HashMap;
use std::fmt;

use weft_base::TableId;
use weft_program::verify::device::{
    Action, ColumnSource, DevicePlan, Misfit, NewValue, PlannedUpdate, SOFTCORE, plan,
};
use weft_program::{Class, Instr, Op, Program};
use weft_types::SqlType;

use super::areas::{Areas, source_place, table_of};
use super::core_program::{CoreProgram, EMITTED};
use super::row::{ColumnPlace, RowPlaces};
use crate::hash_index::TUPLE_HEADER_WORDS;

/// Opcodes of the core that programs do not have; `hardware/rtl/softcore_pkg.sv` has the same.
pub mod opcode {
    /// Upper half of a register.
    pub const LDHI: u8 = 0xC0;
    /// DB instruction.
    pub const INDEX: u8 = 0xC1;
    /// A column into a register.
    pub const LOAD: u8 = 0xC2;
    /// A word into a register.
    pub const LOADW: u8 = 0xC3;
    /// A register into a column, and its bit into a mask.
    pub const STORE: u8 = 0xC4;
    /// A register into a word.
    pub const STOREW: u8 = 0xC5;
    /// Where the next MOVE goes.
    pub const MOVETO: u8 = 0xC6;
    /// Words of a row elsewhere, and their bits into a mask.
    pub const MOVE: u8 = 0xC7;
    /// The address of a tuple.
    pub const WHERE: u8 = 0xC8;
    /// A tuple is no longer dirty.
    pub const CLEAN: u8 = 0xC9;
    /// A bit of a mask.
    pub const MASKN: u8 = 0xCA;
    /// Waits for all writes.
    pub const FENCE: u8 = 0xCB;
}
use opcode::{CLEAN, FENCE, INDEX, LDHI, LOAD, LOADW, MASKN, MOVE, MOVETO, STORE, STOREW, WHERE};

const BASE_INPUTS: u8 = 0xFD;
const BASE_BLOCK: u8 = 0xFE;
const KIND_SEARCH: u8 = 1;
const KIND_UPDATE: u8 = 2;
/// Bits of an offset in a memory instruction.
pub(super) const OFFSET_BITS: u32 = 13;
/// Most words of one MOVE.
const MOVE_WORDS_MAX: u32 = 255;
/// Words of code that a core has.
const CODE_WORDS_MAX: usize = 4096;

/// A table as far as lowering needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedTable {
    /// Its id.
    pub id: TableId,
    /// Its number in the core's catalogue.
    pub index: u8,
    /// Columns of the primary key, in order.
    pub key: Vec<usize>,
    /// The form of its rows.
    pub places: RowPlaces,
}

impl PlacedTable {
    /// Where the row begins in a tuple.
    pub fn row_at(&self) -> u32 {
        TUPLE_HEADER_WORDS + self.key.len() as u32
    }
}

/// Why a program is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// It does not fit the profile.
    Misfit(Misfit),
    /// One of its tables is not on the device.
    NoTable(TableId),
    /// Its code or its block is too large.
    TooLarge(&'static str),
    /// A text would be moved into a column with less room.
    LessRoom,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Misfit(misfit) => misfit.fmt(f),
            LoadError::NoTable(id) => write!(f, "table {} is not on the device", id.0),
            LoadError::TooLarge(what) => write!(f, "{what} is too large for a core"),
            LoadError::LessRoom => f.write_str("a text goes into a column that has less room for it"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Lowers a verified program. `tables` are those on the device.
///
/// # Errors
/// See [`LoadError`].
pub fn lower(program: &Program, tables: &[PlacedTable]) -> Result<CoreProgram, LoadError> {
    let plan = plan(program, &SOFTCORE).map_err(LoadError::Misfit)?;
    let placed = |id: TableId| {
        tables
            .iter()
            .find(|table| table.id == id)
            .ok_or(LoadError::NoTable(id))
    };
    let tables = program
        .tables
        .iter()
        .map(|shape| placed(shape.id))
        .collect::<Result<Vec<_>, _>>()?;
    let layout = Areas::of(program, &plan, &tables)?;
    let mut lowering = Lowering {
        program,
        plan: &plan,
        tables,
        layout,
        code: Vec::new(),
        origins: Vec::new(),
        at: HashMap::new(),
        branches: Vec::new(),
        origin: 0,
    };
    lowering.first_phase();
    let commit_at = lowering.code.len() as u32;
    lowering.second_phase()?;
    lowering.resolve_branches();
    let abort_at = lowering.code.len() as u32;
    lowering.undo();
    if lowering.code.len() > CODE_WORDS_MAX {
        return Err(LoadError::TooLarge("its code"));
    }
    Ok(CoreProgram {
        commit_at,
        abort_at,
        registers: plan.registers(program.outputs.len()) as u32,
        collects: plan.searches.len() as u32,
        code: lowering.code,
        origins: lowering.origins,
        block: lowering.layout.block,
    })
}

/// A place that memory instructions name: base, the row's first word, the column's, its bit.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: u8,
    row: u32,
    column: u32,
    bit: u32,
}

impl Place {
    fn imm(self) -> u32 {
        self.bit << (2 * OFFSET_BITS) | self.column << OFFSET_BITS | self.row
    }
}

struct Lowering<'p> {
    program: &'p Program,
    plan: &'p DevicePlan,
    tables: Vec<&'p PlacedTable>,
    layout: Areas,
    code: Vec<u64>,
    origins: Vec<u32>,
    /// The word that an instruction of the program begins at.
    at: HashMap<u32, u32>,
    /// Words whose target is an instruction of the program.
    branches: Vec<(usize, u32)>,
    /// The instruction that is being lowered.
    origin: u32,
}

fn encode(op: u8, a: u8, b: u8, c: u8, imm: u32) -> u64 {
    u64::from(op) | u64::from(a) << 8 | u64::from(b) << 16 | u64::from(c) << 24 | u64::from(imm) << 32
}

impl Lowering<'_> {
    fn emit(&mut self, op: u8, a: u8, b: u8, c: u8, imm: u32) {
        self.code.push(encode(op, a, b, c, imm));
        self.origins.push(self.origin);
    }

    fn op(&mut self, op: Op, a: u8, b: u8, c: u8, imm: u32) {
        self.emit(op as u8, a, b, c, imm);
    }

    fn temporary(&self) -> u8 {
        self.plan.own_registers as u8
    }

    fn row_mask(&self, row: usize) -> u8 {
        self.temporary() + 1 + row as u8
    }

    /// Registers of an update: the tuple that it changed, its NULLs before, and after.
    fn update_registers(&self, update: usize) -> (u8, u8, u8) {
        let first = self.row_mask(self.plan.rows.len()) + 3 * update as u8;
        (first, first + 1, first + 2)
    }

    fn count_register(&self, statement: usize) -> u8 {
        self.update_registers(self.plan.updates.len()).0 + statement as u8
    }

    fn constant(&mut self, register: u8, bits: u64) {
        self.op(Op::Ldi, register, 0, 0, bits as u32);
        if i64::from((bits as u32).cast_signed()).cast_unsigned() != bits {
            self.emit(LDHI, register, 0, 0, (bits >> 32) as u32);
        }
    }

    /// A branch over what follows; give the result to [`Lowering::land`].
    fn branch_over(&mut self, op: Op, a: u8, b: u8) -> usize {
        self.op(op, a, b, 0, 0);
        self.code.len() - 1
    }

    fn land(&mut self, branch: usize) {
        let here = (self.code.len() as u64) << 32;
        if let Some(word) = self.code.get_mut(branch) {
            *word |= here;
        }
    }

    fn resolve_branches(&mut self) {
        for (word, target) in std::mem::take(&mut self.branches) {
            if let (Some(word), Some(at)) = (self.code.get_mut(word), self.at.get(&target)) {
                *word |= u64::from(*at) << 32;
            }
        }
    }

    fn first_phase(&mut self) {
        let plan = self.plan;
        for (number, search) in plan.searches.iter().enumerate() {
            self.origin = search.pc;
            let kind = if search.for_update {
                KIND_UPDATE
            } else {
                KIND_SEARCH
            };
            let index = self.tables.get(search.table).map_or(0, |table| table.index);
            let key = self.layout.block.keys.get(number).map_or(0, |key| key.at);
            self.emit(INDEX, number as u8, kind, index, key);
        }
        self.op(Op::End, 0, 0, 0, 0);
    }

    fn second_phase(&mut self) -> Result<(), LoadError> {
        self.origin = 0;
        let plan = self.plan;
        for register in &plan.null_registers {
            self.op(Op::Ldnull, *register, 0, 0, 0);
        }
        for update in 0..plan.updates.len() {
            let (changed, ..) = self.update_registers(update);
            self.op(Op::Ldi, changed, 0, 0, 0);
        }
        for statement in self.counted() {
            let register = self.count_register(statement);
            self.op(Op::Ldi, register, 0, 0, 0);
        }
        let mut set: Vec<(usize, u16)> = Vec::new();
        let mut steps = plan.steps.iter().peekable();
        let mut before = None;
        let mut described = 0;
        while let Some((pc, action)) = steps.next() {
            // Instructions before this one that have left nothing lead here.
            (described..=*pc).for_each(|pc| {
                self.at.entry(pc).or_insert(self.code.len() as u32);
            });
            described = *pc + 1;
            self.origin = *pc;
            if let Action::Set(row, column, value) = *action {
                // Columns that follow each other on both sides are moved together.
                let mut run = vec![(column, value)];
                while let Some((next, Action::Set(other, column, value))) = steps.peek()
                    && *other == row
                    && !self.is_target(*next)
                    && *next == *pc + run.len() as u32
                    // Two writes of one word could change places.
                    && run.iter().all(|(other, _)| other != column)
                {
                    run.push((*column, *value));
                    steps.next();
                }
                described = *pc + run.len() as u32;
                if run.iter().any(|(column, _)| set.contains(&(row, *column))) {
                    self.emit(FENCE, 0, 0, 0, 0);
                }
                set.extend(run.iter().map(|(column, _)| (row, *column)));
                let Some((_, at, places)) = self.layout.block.rows.get(row).cloned() else {
                    continue;
                };
                let mask = self.row_mask(row);
                self.sets(mask, (BASE_BLOCK, at, &places), &run, false)?;
            } else {
                self.step(*pc, *action, before)?;
            }
            before = Some(*action);
        }
        Ok(())
    }

    /// Statements that count.
    fn counted(&self) -> Vec<usize> {
        let mut counted: Vec<usize> = self
            .plan
            .steps
            .iter()
            .filter_map(|(_, action)| match action {
                Action::Count(statement, _) => Some(*statement),
                _ => None,
            })
            .collect();
        counted.sort_unstable();
        counted.dedup();
        counted
    }

    fn is_target(&self, pc: u32) -> bool {
        let mut branches = self.program.instrs.iter().filter(|instr| instr.op.is_branch());
        branches.any(|instr| instr.imm == pc)
    }

    fn step(&mut self, pc: u32, action: Action, before: Option<Action>) -> Result<(), LoadError> {
        match action {
            Action::Plain(instr) => self.plain(instr),
            Action::Constant(register, Some(bits)) => self.constant(register, bits),
            Action::Constant(register, None) => self.op(Op::Ldnull, register, 0, 0, 0),
            Action::Load(register, source) => {
                let place = self.place_of(source);
                self.emit(LOAD, register, 0, place.base, place.imm());
            }
            Action::Collect(register, search) => self.op(Op::Ret, register, search as u8, 0, 0),
            Action::CollectUpdate(register, update) => {
                let (changed, ..) = self.update_registers(update);
                self.op(Op::Test, register, changed, 0, weft_program::Cond::Ne as u32);
            }
            Action::BeginRow(row) => {
                let columns = self
                    .layout
                    .block
                    .rows
                    .get(row)
                    .map_or(0, |(_, _, places)| places.column_count());
                let mask = self.row_mask(row);
                self.constant(mask, EMITTED | ((1 << columns) - 1));
            }
            Action::Emit(row) => {
                let at = self.layout.block.rows.get(row).map_or(0, |(_, at, _)| *at);
                let mask = self.row_mask(row);
                self.store_word(mask, BASE_BLOCK, at);
            }
            Action::Update(update) => self.update(update)?,
            Action::Count(statement, register) => {
                let count = self.count_register(statement);
                let collected = match before {
                    Some(Action::Collect(to, _) | Action::CollectUpdate(to, _)) => Some(to),
                    _ => None,
                };
                let is_collected = collected == Some(register) && !self.is_target(pc);
                if is_collected {
                    self.op(Op::Add, count, count, register, 0);
                } else {
                    let over = self.branch_over(Op::Bnull, register, 0);
                    self.op(Op::Add, count, count, register, 0);
                    self.land(over);
                }
            }
            Action::End => {
                self.branches.push((self.code.len(), self.program.commit_pc));
                self.op(Op::Jmp, 0, 0, 0, 0);
            }
            Action::Commit => self.commit(),
            Action::Abort => self.op(Op::Raise, 0, 0, 0, pc),
            Action::Set(..) => {}
        }
        Ok(())
    }

    fn plain(&mut self, instr: Instr) {
        let Instr { op, a, b, c, imm } = instr;
        if op.is_branch() {
            self.branches.push((self.code.len(), imm));
            return self.op(op, a, b, c, 0);
        }
        self.op(op, a, b, c, imm);
    }

    fn place_of(&self, source: ColumnSource) -> Place {
        let block = &self.layout.block;
        let (base, row, bit) = match source {
            ColumnSource::Input(input) => (BASE_INPUTS, block.inputs_at, input),
            ColumnSource::Found { search, column } => {
                let table = table_of(self.plan, &self.tables, search);
                (search as u8, table.map_or(0, |table| table.row_at()), column)
            }
        };
        let column = source_place(self.plan, &self.tables, &block.inputs, source);
        Place {
            base,
            row,
            column: column.map_or(0, |place| place.at),
            bit: bit.into(),
        }
    }

    fn store_word(&mut self, register: u8, base: u8, at: u32) {
        self.emit(STOREW, 0, register, base, at);
    }

    /// Words from one place to another, and `bits` of the mask, from bit `bit` on.
    fn moves(&mut self, mask: u8, from: Place, to: (u8, u32), words: u32, (bit, bits): (u32, u32)) {
        let mut moved = 0;
        while moved < words {
            let now = (words - moved).min(MOVE_WORDS_MAX);
            let bits = if moved == 0 { bits } else { 0 };
            self.emit(MOVETO, bit as u8, bits as u8, to.0, now << 16 | (to.1 + moved));
            let column = from.column + moved;
            self.emit(MOVE, mask, 0, from.base, Place { column, ..from }.imm());
            moved += now;
        }
    }

    /// Sets columns of a row that begins at a word of a base. `is_checked`: registers are known to fit.
    fn sets(
        &mut self,
        mask: u8,
        (base, row, places): (u8, u32, &RowPlaces),
        sets: &[(u16, NewValue)],
        is_checked: bool,
    ) -> Result<(), LoadError> {
        let mut at = 0;
        while let Some((column, value)) = sets.get(at).copied() {
            let place = places.column(column.into()).unwrap_or(ColumnPlace {
                class: Class::Int8,
                at: 0,
                words: 1,
            });
            let to = Place {
                base,
                row,
                column: place.at,
                bit: column.into(),
            };
            at += 1;
            match value {
                NewValue::Null => self.emit(MASKN, mask, mask, 0, column.into()),
                NewValue::Register(register) => {
                    let register = match (is_checked, place.class) {
                        (true, class) if class != Class::Bool => register,
                        (_, class) => self.fitted(register, class),
                    };
                    self.emit(STORE, mask, register, base, to.imm());
                }
                NewValue::Bits(bits) => {
                    let register = self.temporary();
                    self.constant(register, bits);
                    self.emit(STORE, mask, register, base, to.imm());
                }
                NewValue::Column(source) => {
                    let mut words = self.moved_words(source, place)?;
                    let mut columns = 1;
                    while let Some((next, NewValue::Column(more))) = sets.get(at).copied()
                        && next == column + columns
                        && let Some(wider) = self.follows(source, more, columns)
                        && u32::from(column) == self.place_of(source).bit
                        && let Some(target) = places.column(next.into())
                        && target.at == place.at + words
                    {
                        // What has been moved so far fills its columns on both sides.
                        if wider.at != self.place_of(source).column + words {
                            break;
                        }
                        words += self.moved_words(more, target)?;
                        columns += 1;
                        at += 1;
                    }
                    let from = self.place_of(source);
                    self.moves(
                        mask,
                        from,
                        (base, row + place.at),
                        words,
                        (column.into(), columns.into()),
                    );
                }
            }
        }
        Ok(())
    }

    /// The place of a source that is so many columns behind another one of the same row.
    fn follows(&self, first: ColumnSource, next: ColumnSource, columns: u16) -> Option<ColumnPlace> {
        let is_next = match (first, next) {
            (ColumnSource::Input(a), ColumnSource::Input(b)) => a + columns == b,
            (ColumnSource::Found { search: a, column: x }, ColumnSource::Found { search: b, column: y }) => {
                a == b && x + columns == y
            }
            _ => false,
        };
        source_place(self.plan, &self.tables, &self.layout.block.inputs, next).filter(|_| is_next)
    }

    fn moved_words(&self, source: ColumnSource, to: ColumnPlace) -> Result<u32, LoadError> {
        let from = source_place(self.plan, &self.tables, &self.layout.block.inputs, source);
        let words = from.map_or(1, |from| from.words);
        if words > to.words {
            return Err(LoadError::LessRoom);
        }
        Ok(words)
    }

    /// A register whose value is one of the class: checked, or made one.
    fn fitted(&mut self, register: u8, class: Class) -> u8 {
        let temporary = self.temporary();
        match class {
            Class::Int2 | Class::Int4 | Class::Date => {
                let width = if class == Class::Int2 { 2 } else { 4 };
                self.op(Op::Mov, temporary, register, 0, 0);
                self.op(Op::Narrow, temporary, 0, width, 0);
                temporary
            }
            Class::Bool => {
                self.op(Op::Test, temporary, register, 0, weft_program::Cond::Ne as u32);
                temporary
            }
            _ => register,
        }
    }

    fn update_places(&self, number: usize) -> Option<(&PlannedUpdate, &PlacedTable)> {
        let update = self.plan.updates.get(number)?;
        Some((update, table_of(self.plan, &self.tables, update.search)?))
    }

    /// Keeps what the columns were, then sets them in place.
    fn update(&mut self, number: usize) -> Result<(), LoadError> {
        let Some((update, table)) = self.update_places(number) else {
            return Ok(());
        };
        let (search, row) = (update.search as u8, table.row_at());
        let (sets, places) = (update.sets.clone(), table.places.clone());
        let (changed, nulls, mask) = self.update_registers(number);
        let temporary = self.temporary();
        // A value that does not fit is an error even if there is no row.
        for (column, value) in &sets {
            if let (NewValue::Register(register), Some(place)) = (value, places.column((*column).into()))
                && place.class != Class::Bool
            {
                self.fitted(*register, place.class);
            }
        }
        self.emit(WHERE, temporary, 0, search, 0);
        let over = self.branch_over(Op::Bnt, temporary, 0);
        self.emit(LOADW, nulls, 0, search, row);
        self.op(Op::Mov, mask, nulls, 0, 0);
        let kept = self.layout.undo.get(number).cloned().unwrap_or_default();
        for ((column, _), undo) in sets.iter().zip(&kept) {
            if let Some(place) = places.column((*column).into()) {
                let from = Place {
                    base: search,
                    row,
                    column: place.at,
                    bit: 0,
                };
                self.moves(mask, from, (BASE_BLOCK, *undo), place.words, (0, 0));
            }
        }
        // From here on there is something to undo.
        self.emit(WHERE, changed, 0, search, 0);
        self.sets(mask, (search, row, &places), &sets, true)?;
        let same = self.branch_over(Op::Be, mask, nulls);
        self.store_word(mask, search, row);
        self.land(same);
        let writes_at = self.layout.block.writes_at + number as u32;
        self.store_word(changed, BASE_BLOCK, writes_at);
        self.land(over);
        Ok(())
    }

    /// Dirty marks go, what is counted is told, and the transaction has committed.
    fn commit(&mut self) {
        self.clean(1);
        for statement in self.counted() {
            let register = self.count_register(statement);
            let at = self.layout.block.counts_at + statement as u32;
            self.store_word(register, BASE_BLOCK, at);
        }
        self.op(Op::Commit, 0, 0, 0, 0);
    }

    fn clean(&mut self, committed: u8) {
        let plan = self.plan;
        for (number, search) in plan.searches.iter().enumerate() {
            if search.for_update {
                self.emit(CLEAN, 0, committed, number as u8, 0);
            }
        }
    }

    /// The code for a transaction that fails: everything as it was before.
    fn undo(&mut self) {
        self.origin = 0;
        let temporary = self.temporary();
        for number in 0..self.plan.searches.len() {
            self.op(Op::Ret, temporary, number as u8, 0, 0);
        }
        if !self.plan.updates.is_empty() {
            self.emit(FENCE, 0, 0, 0, 0);
        }
        for number in 0..self.plan.updates.len() {
            let Some((update, table)) = self.update_places(number) else {
                continue;
            };
            let (search, row) = (update.search as u8, table.row_at());
            let (sets, places) = (update.sets.clone(), table.places.clone());
            let (changed, nulls, _) = self.update_registers(number);
            let over = self.branch_over(Op::Bnt, changed, 0);
            let kept = self.layout.undo.get(number).cloned().unwrap_or_default();
            for ((column, _), undo) in sets.iter().zip(&kept) {
                if let Some(place) = places.column((*column).into()) {
                    let from = Place {
                        base: BASE_BLOCK,
                        row: *undo,
                        column: 0,
                        bit: 0,
                    };
                    self.moves(temporary, from, (search, row + place.at), place.words, (0, 0));
                }
            }
            self.store_word(nulls, search, row);
            self.land(over);
        }
        self.clean(0);
        self.op(Op::Abort, 0, 0, 0, 0);
    }
}

/// The error of an arithmetic word of the core: what it computed does not fit this type.
pub(super) fn overflowing_type(word: u64) -> SqlType {
    match (word as u8 == Op::Narrow as u8, (word >> 24) as u8) {
        (true, 2) => SqlType::Int2,
        (true, 4) => SqlType::Int4,
        _ => SqlType::Int8,
    }
}
