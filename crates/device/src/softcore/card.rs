//! The host's side of a worker: what is where in the device's memory.
//!
//! ```text
//!   word 0   null
//!   ...      buckets and tuples of each table, in the order in which tables were placed
//!   ...      blocks of the transactions of one run
//! ```
//!
//! The rows of the host stay the authority; a table on the device is a mirror of them. What the device cannot
//! do is refused here before it begins ([`Refused`]) or ends there without effect ([`Ended::Undone`]), and
//! the CPU does it.

use std::fmt;

use weft_base::TableId;
use weft_program::{Instr, KeyPart, Op, Program, RaiseState};
use weft_types::range::out_of_range;
use weft_types::{SqlError, Value};

use super::PROGRAMS;
use super::core_program::{CoreProgram, EMITTED, KeyPlace};
use super::lower::{LoadError, PlacedTable, lower, overflowing_type};
use super::mirror::TableArea;
use crate::hash_index::Code;
use crate::memory::Memory;

/// What the core writes of a failure that is no code of the index.
const WHY_MEMORY: u64 = 13;
const WHY_RAISED: u64 = 14;
const WHY_OVERFLOW: u64 = 15;

/// Why a table or a transaction is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The memory is full, or the catalogue.
    Full,
    /// A row has a text that is longer than its column's capacity, or no key.
    Row,
    /// A table has no primary key.
    NoKey,
    /// An input has no form: a text that is too long.
    Input(usize),
    /// A key is NULL: nothing is found by it.
    NullKey,
    /// The table is not on the device.
    NoTable,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full => f.write_str("the device is full"),
            Refused::Row => f.write_str("a row has a text that is too long for the device, or no key"),
            Refused::NoKey => f.write_str("the table has no primary key"),
            Refused::Input(number) => write!(f, "input {number} is too long for the device"),
            Refused::NullKey => f.write_str("a key is NULL"),
            Refused::NoTable => f.write_str("the table is not on the device"),
        }
    }
}

impl std::error::Error for Refused {}

/// A transaction: a program by its number, and its encoded inputs.
#[derive(Clone, Copy, Debug)]
pub struct Call<'i> {
    /// What [`Card::load_program`] gave.
    pub program: usize,
    /// As `weft_program::run` takes them.
    pub inputs: &'i [u8],
}

/// A row that a transaction changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its table.
    pub table: TableId,
    /// The row as it is now.
    pub row: Vec<u8>,
}

/// Why a transaction had no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Undone {
    /// The program's own error: the answer.
    Failed(Box<SqlError>),
    /// The index rejected an access; the CPU has to run it.
    Rejected(Code),
    /// A word outside the memory; the CPU has to run it.
    Memory,
    /// The block says something that no core writes.
    Corrupt,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// It committed.
    Committed {
        /// The core's timestamp.
        timestamp: u64,
        /// Result rows with their statement, in the order in which they were emitted.
        rows: Vec<(u32, Vec<u8>)>,
        /// A count for each statement.
        counts: Vec<u64>,
        /// Changed rows, in the order of the program.
        writes: Vec<Write>,
    },
    /// It had no effect.
    Undone(Undone),
}

/// A program on the device.
struct Loaded {
    core: CoreProgram,
    instrs: Vec<Instr>,
    consts: Vec<Value>,
    /// Where its code begins.
    code_at: u32,
}

/// A word for a port through which a core is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadWord {
    /// 0 code, 1 program, 2 index, 3 clock.
    pub kind: u8,
    /// Number in its table.
    pub at: u16,
    /// The word.
    pub data: u64,
}

/// Tables, programs and blocks in a device's memory.
#[derive(Default)]
pub struct Card {
    pub(super) tables: Vec<PlacedTable>,
    /// Of each table, where it is.
    pub(super) areas: Vec<TableArea>,
    programs: Vec<Loaded>,
    /// The first word that nothing uses; blocks begin here.
    pub(super) free: u32,
    code_free: u32,
}

/// The first word that is handed out.
const FIRST_WORD: u32 = 64;

impl Card {
    /// Nothing placed yet.
    pub fn new() -> Card {
        Card {
            free: FIRST_WORD,
            ..Card::default()
        }
    }

    /// Tables on the device.
    pub fn tables(&self) -> &[PlacedTable] {
        &self.tables
    }

    /// Lowers a program and gives its number and the words for the core.
    ///
    /// # Errors
    /// It does not fit.
    pub fn load_program(&mut self, program: &Program) -> Result<(usize, Vec<LoadWord>), LoadError> {
        let core = lower(program, &self.tables)?;
        if self.programs.len() >= PROGRAMS || self.code_free as usize + core.code.len() > 4096 {
            return Err(LoadError::TooLarge("the code of all programs"));
        }
        let code_at = self.code_free;
        let mut words: Vec<LoadWord> = core
            .code
            .iter()
            .enumerate()
            .map(|(offset, word)| LoadWord {
                kind: 0,
                at: code_at as u16 + offset as u16,
                data: relocated(*word, code_at),
            })
            .collect();
        let data = u64::from(code_at)
            | u64::from(code_at + core.commit_at) << 12
            | u64::from(code_at + core.abort_at) << 24
            | u64::from(core.registers) << 36
            | u64::from(core.collects) << 46;
        words.push(LoadWord {
            kind: 1,
            at: self.programs.len() as u16,
            data,
        });
        self.code_free += core.code.len() as u32;
        self.programs.push(Loaded {
            core,
            instrs: program.instrs.clone(),
            consts: program
                .consts
                .iter()
                .map(|constant| constant.value.clone())
                .collect(),
            code_at,
        });
        Ok((self.programs.len() - 1, words))
    }

    /// Forgets all programs; tables stay.
    pub fn forget_programs(&mut self) {
        self.programs.clear();
        self.code_free = 0;
    }

    /// A loaded program.
    pub fn program(&self, number: usize) -> Option<&CoreProgram> {
        self.programs.get(number).map(|program| &program.core)
    }

    /// Writes the block of a transaction behind those of `first` words, and gives where it is and where the
    /// next one may begin.
    ///
    /// # Errors
    /// The device cannot run it.
    pub fn write_block(
        &self,
        memory: &mut Memory,
        call: Call<'_>,
        offset: u32,
    ) -> Result<(u32, u32), Refused> {
        let program = self.programs.get(call.program).ok_or(Refused::Full)?;
        let block = &program.core.block;
        let inputs = block.inputs.encode(call.inputs);
        let inputs = inputs.map_err(|error| Refused::Input(error.column))?;
        let at = self.free + offset;
        if u64::from(at) + u64::from(block.words) > memory.words() as u64 {
            return Err(Refused::Full);
        }
        let keys = block.keys.iter().map(|key| program.key(key, call.inputs));
        let keys = keys.collect::<Option<Vec<_>>>().ok_or(Refused::NullKey)?;
        for word in 0..block.words {
            memory.set_word(at + word, 0);
        }
        for (word, value) in inputs.iter().enumerate() {
            memory.set_word(at + block.inputs_at + word as u32, *value);
        }
        for (place, key) in block.keys.iter().zip(keys).filter(|(place, _)| place.is_made) {
            for (word, value) in key.iter().enumerate() {
                memory.set_word(at + place.at + word as u32, *value);
            }
        }
        Ok((at, offset + block.words))
    }

    /// Reads a block that the core has reported.
    pub fn read_block(&self, memory: &Memory, program: usize, at: u32) -> Ended {
        let corrupt = Ended::Undone(Undone::Corrupt);
        let Some(program) = self.programs.get(program) else {
            return corrupt;
        };
        let status = memory.word(at);
        match status >> 62 {
            1 => self
                .committed(memory, program, at, status & ((1 << 62) - 1))
                .unwrap_or(corrupt),
            2 => Ended::Undone(program.undone(status)),
            _ => corrupt,
        }
    }

    fn committed(&self, memory: &Memory, program: &Loaded, at: u32, timestamp: u64) -> Option<Ended> {
        let block = &program.core.block;
        let read = |at: u32, words: u32| (at..at + words).map(|at| memory.word(at)).collect::<Vec<_>>();
        let mut rows = Vec::new();
        for (statement, place, places) in &block.rows {
            let mut words = read(at + place, places.words());
            let first = words.first_mut()?;
            if *first & EMITTED != 0 {
                *first &= !EMITTED;
                rows.push((*statement, places.decode(&words)?));
            }
        }
        let mut writes = Vec::new();
        for (number, (_, id)) in block.writes.iter().enumerate() {
            let tuple = u32::try_from(memory.word(at + block.writes_at + number as u32)).ok()?;
            if tuple != 0 {
                let table = self.tables.iter().find(|table| table.id == *id)?;
                let row = table
                    .places
                    .decode(&read(tuple + table.row_at(), table.places.words()))?;
                writes.push(Write { table: *id, row });
            }
        }
        Some(Ended::Committed {
            timestamp,
            rows,
            counts: read(at + block.counts_at, block.statements),
            writes,
        })
    }
}

impl Loaded {
    /// The words of a key; `None` if a part is NULL.
    fn key(&self, key: &KeyPlace, inputs: &[u8]) -> Option<Vec<u64>> {
        let part = |part: &KeyPart| match *part {
            KeyPart::Input(number) => self.core.block.inputs.word_of(inputs, number.into()),
            KeyPart::Const(number) => match self.consts.get(usize::from(number))? {
                Value::Bool(value) => Some(u64::from(*value)),
                Value::Int2(value) => Some(i64::from(*value).cast_unsigned()),
                Value::Int4(value) | Value::Date(value) => Some(i64::from(*value).cast_unsigned()),
                Value::Int8(value)
                | Value::Timestamp(value)
                | Value::TimestampTz(value)
                | Value::Time(value) => Some(value.cast_unsigned()),
                _ => None,
            },
        };
        key.parts.iter().map(part).collect()
    }

    fn undone(&self, status: u64) -> Undone {
        let (why, imm) = (status >> 32 & 0xF, status as u32);
        match why {
            WHY_RAISED => match self.instrs.get(imm as usize) {
                Some(instr) => Undone::Failed(Box::new(self.raised(*instr))),
                None => Undone::Corrupt,
            },
            WHY_OVERFLOW => {
                let word = imm
                    .checked_sub(self.code_at)
                    .and_then(|at| self.core.code.get(at as usize));
                match word {
                    Some(word) => Undone::Failed(Box::new(out_of_range(&overflowing_type(*word)))),
                    None => Undone::Corrupt,
                }
            }
            WHY_MEMORY => Undone::Memory,
            code => Code::from_number(code as u8).map_or(Undone::Corrupt, Undone::Rejected),
        }
    }

    /// The error of a RAISE or ABORT.
    fn raised(&self, instr: Instr) -> SqlError {
        if instr.op != Op::Raise {
            return SqlError::new(
                weft_types::SqlState("40000"),
                "the program aborted the transaction",
            );
        }
        let state = RaiseState::ALL.get(usize::from(instr.a));
        let state = state.map_or("P0001", |state| state.sqlstate());
        let text = self.consts.get(instr.imm as usize).and_then(Value::as_str);
        SqlError::new(weft_types::SqlState(state), text.unwrap_or_default())
    }
}

/// A word of code, for where it will be: branches count from the first word of the program.
fn relocated(word: u64, code_at: u32) -> u64 {
    let is_branch = Op::from_code(word as u8).is_some_and(Op::is_branch);
    match is_branch {
        true => word + (u64::from(code_at) << 32),
        false => word,
    }
}
