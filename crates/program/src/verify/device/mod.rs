//! The device profile: which programs a softcore takes, and the first reason why another one does not fit.
//!
//! ```text
//!   Program --verify--> --[ profile: counts, types, opcodes ]--> --[ plan: walk in order ]--> DevicePlan
//!                                  | the first that does not fit        |
//!                                  v                                    v
//!                                Misfit: where, and why, as a sentence for users
//! ```
//!
//! A core is smaller than the CPU executor (`hardware/doc/softcore.md`): it computes with integers, moves
//! texts without looking into them, and finds rows by keys that are known before the program begins. What
//! does not fit stays with the CPU, which loses nothing but time.
//!
//! [`plan`] is also the first half of the loader: a [`DevicePlan`] names each search, output row and change
//! once, so that lowering to the core's words needs no knowledge of programs beyond it.
//!
//! Source: BionicDB 4.3 (instruction set, registers), 4.5 (registers a transaction), 4.7 (update in place).

mod walk;

use std::fmt;

use crate::access_keys::KeyPart;
use crate::class::Class;
use crate::instr::{Instr, Op, Operand};
use crate::program::{Program, TableShape};
use weft_types::SqlType;

/// What a core takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceProfile {
    /// Most instructions.
    pub instrs_max: usize,
    /// Most registers of the core: the program's own, and those that [`DevicePlan::registers`] adds.
    pub registers_max: usize,
    /// Most DB instructions that are collected: one collect register each.
    pub searches_max: usize,
    /// Most tables.
    pub tables_max: usize,
    /// Most columns of a row: bits of the word that says which are NULL.
    pub columns_max: usize,
    /// Most columns of a key: a word each.
    pub key_columns_max: usize,
}

/// The softcore of `hardware/rtl/softcore.sv`: 256 registers of each kind for all transactions of a batch.
pub const SOFTCORE: DeviceProfile = DeviceProfile {
    instrs_max: 2048,
    registers_max: 128,
    searches_max: 64,
    tables_max: 16,
    columns_max: 62,
    key_columns_max: 8,
};

/// Why a program does not fit a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The instruction, if it is one.
    pub pc: Option<u32>,
    /// What the device lacks.
    pub reason: String,
}

impl Misfit {
    fn whole(reason: impl Into<String>) -> Misfit {
        Misfit {
            pc: None,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pc {
            Some(pc) => write!(f, "instruction {pc}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Misfit {}

/// A column that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    /// An input.
    Input(u16),
    /// A column of the row that a search found; NULL if it found none.
    Found {
        /// Number in [`DevicePlan::searches`].
        search: usize,
        /// Column of its table.
        column: u16,
    },
}

/// What a column is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue {
    /// NULL.
    Null,
    /// A register; 22003 if it does not fit the column.
    Register(u8),
    /// A constant that a register can hold, as its bits.
    Bits(u64),
    /// Another column of the same class.
    Column(ColumnSource),
}

/// A SEARCH: issued before anything else of its program, because its key is known then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSearch {
    /// The instruction.
    pub pc: u32,
    /// Table ordinal; the index is its primary key.
    pub table: usize,
    /// The key, in the order of the index.
    pub key: Vec<KeyPart>,
    /// An UPDATE follows: the row is found for writing.
    pub for_update: bool,
}

/// An UPDATE of a found row in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedUpdate {
    /// Whose row.
    pub search: usize,
    /// The columns that are set, in order, each once.
    pub sets: Vec<(u16, NewValue)>,
}

/// A result row: an OUTROW, what it is filled with, and its EMIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRow {
    /// The statement that it belongs to.
    pub statement: usize,
    /// Where each column may come from, for the space that a text needs.
    pub sources: Vec<Vec<ColumnSource>>,
}

/// What is left of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The instruction as it stands: branches (targets are those of the program) and registers.
    Plain(Instr),
    /// Set a register to bits, or NULL.
    Constant(u8, Option<u64>),
    /// Set a register to a column.
    Load(u8, ColumnSource),
    /// Collect a search: the register is 1 if there is a row, else 0.
    Collect(u8, usize),
    /// Collect an update: the register is 1 if there was a row, else 0.
    CollectUpdate(u8, usize),
    /// Begin a result row.
    BeginRow(usize),
    /// Set a column of a result row.
    Set(usize, u16, NewValue),
    /// Append a result row.
    Emit(usize),
    /// Change a row.
    Update(usize),
    /// Add a register to the count of a statement; NULL adds nothing.
    Count(usize, u8),
    /// To the commit handler.
    End,
    /// The program is done.
    Commit,
    /// Undo everything: the error is that of this instruction.
    Abort,
}

/// A program, resolved for a core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePlan {
    /// Searches, in the order of the program.
    pub searches: Vec<PlannedSearch>,
    /// Updates, in the order of the program.
    pub updates: Vec<PlannedUpdate>,
    /// Result rows, in the order in which they are emitted.
    pub rows: Vec<PlannedRow>,
    /// Logic and commit handler, by instruction number, in order; instructions that leave nothing are not
    /// there.
    pub steps: Vec<(u32, Action)>,
    /// Registers that the program itself uses: 0 to here.
    pub own_registers: usize,
    /// Registers that are NULL where they are first read.
    pub null_registers: Vec<u8>,
}

impl DevicePlan {
    /// Registers of the core that the program needs: its own, one for intermediate values, a mask of NULLs
    /// for each result row, three for each update, and a count for each statement.
    pub fn registers(&self, statements: usize) -> usize {
        self.own_registers + 1 + self.rows.len() + 3 * self.updates.len() + statements
    }
}

/// Resolves a verified program for a device, or says what does not fit first.
///
/// # Errors
/// The first reason: counts, then types, then instructions in order.
pub fn plan(program: &Program, profile: &DeviceProfile) -> Result<DevicePlan, Misfit> {
    check_counts(program, profile)?;
    check_types(program, profile)?;
    for (pc, instr) in program.instrs.iter().enumerate().take(program.abort_pc as usize) {
        check_opcode(pc, *instr).map_err(|reason| Misfit {
            pc: Some(pc as u32),
            reason,
        })?;
    }
    let plan = walk::walk(program)?;
    let bounded = |count: usize, max: usize, what: &str| match count <= max {
        true => Ok(()),
        false => Err(Misfit::whole(format!("{count} {what}, a core has {max}"))),
    };
    bounded(plan.searches.len(), profile.searches_max, "DB instructions")?;
    bounded(
        plan.registers(program.outputs.len()),
        profile.registers_max,
        "registers",
    )?;
    Ok(plan)
}

fn check_counts(program: &Program, profile: &DeviceProfile) -> Result<(), Misfit> {
    let bounded = |count: usize, max: usize, what: &str| match count <= max {
        true => Ok(()),
        false => Err(Misfit::whole(format!("{count} {what}, a core takes {max}"))),
    };
    bounded(program.instrs.len(), profile.instrs_max, "instructions")?;
    bounded(program.tables.len(), profile.tables_max, "tables")?;
    bounded(program.inputs.len(), profile.columns_max, "inputs")?;
    for output in &program.outputs {
        bounded(output.len(), profile.columns_max, "columns of a result")?;
    }
    for table in &program.tables {
        bounded(table.columns.len(), profile.columns_max, "columns of a table")?;
        if let Some(index) = table.primary_index() {
            bounded(index.columns.len(), profile.key_columns_max, "columns of a key")?;
        }
    }
    Ok(())
}

fn check_types(program: &Program, _profile: &DeviceProfile) -> Result<(), Misfit> {
    for (number, ty) in program.inputs.iter().enumerate() {
        check_type(ty, || format!("input {number}"))?;
    }
    for table in &program.tables {
        for (column, ty) in table.columns.iter().enumerate() {
            check_type(ty, || format!("column {column} of table {}", table.id.0))?;
        }
    }
    for (statement, output) in program.outputs.iter().enumerate() {
        for (column, ty) in output.iter().enumerate() {
            check_type(ty, || format!("column {column} of result {statement}"))?;
        }
    }
    Ok(())
}

/// Whether a core can hold values of a type: in a word, or as text that is only moved.
fn check_type(ty: &SqlType, what: impl Fn() -> String) -> Result<(), Misfit> {
    let class = Class::of(ty);
    match class.is_register() || matches!(class, Class::Text | Class::Char) {
        true => Ok(()),
        false => Err(Misfit::whole(format!(
            "{} is of type {}, which a core cannot hold",
            what(),
            class.name()
        ))),
    }
}

/// Whether values of a class can be part of a key: equal values have equal words.
fn is_key_class(class: Class) -> bool {
    class.is_register() && !matches!(class, Class::Float4 | Class::Float8)
}

fn check_opcode(pc: usize, instr: Instr) -> Result<(), String> {
    let op = instr.op;
    let lacks = match op {
        _ if instr.op.is_branch() && instr.op != Op::Try && (instr.imm as usize) <= pc => {
            "repeats instructions"
        }
        Op::Scan | Op::Next => "reads a range of rows",
        Op::Insert => "inserts a row",
        Op::Remove => "removes a row",
        Op::Row => "builds a row of a table",
        Op::Mul | Op::Div | Op::Mod => "multiplies or divides",
        Op::Keyr | Op::Keycol | Op::Keybuf => "makes a key of what was read or computed",
        Op::Keynull => "makes a bound of a range",
        Op::Cmpv => "compares values outside registers",
        Op::Ldbuf | Op::Setbuf => "reads a row that is being built",
        Op::Cat | Op::Catr | Op::Cut => "builds a text",
        Op::Call | Op::Convert | Op::Assign => "calls a function",
        Op::Note | Op::Noteb => "sends a notice",
        Op::Raiseb | Op::Errcode | Op::Diag => "raises an error whose text depends on data",
        Op::Try | Op::Endtry | Op::Caught | Op::Rethrow | Op::Errtext => "handles errors",
        _ if (Op::Fadd..=Op::F4toi).contains(&op) || matches!(op, Op::Fcmp | Op::F4cmp) => {
            "computes with floating point"
        }
        _ => return Ok(()),
    };
    Err(format!("it {lacks} ({}), which a core cannot", op.mnemonic()))
}

/// Registers that an instruction reads and the one that it writes; for those that stay as they are.
fn register_use(instr: Instr) -> (Vec<u8>, Option<u8>) {
    let (mut reads, mut writes) = (Vec::new(), None);
    let compares = instr.op.is_branch();
    for operand in instr.op.operands() {
        match operand {
            Operand::RegA if compares || instr.op == Op::Count => reads.push(instr.a),
            Operand::RegA if instr.op == Op::Narrow => {
                reads.push(instr.a);
                writes = Some(instr.a);
            }
            Operand::RegA => writes = Some(instr.a),
            Operand::RegB => reads.push(instr.b),
            Operand::RegC => reads.push(instr.c),
            _ => {}
        }
    }
    (reads, writes)
}

/// Whether an index of a table has a column.
fn is_indexed(table: &TableShape, column: usize) -> bool {
    table.indexes.iter().any(|index| index.columns.contains(&column))
}

#[cfg(test)]
mod tests;
