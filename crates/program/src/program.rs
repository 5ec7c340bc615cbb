//! The program: instructions in three sections, and everything they refer to.
//!
//! ```text
//!   instrs   0 ............ commit_pc ............ abort_pc ............ len
//!            [ logic        ][ commit handler      ][ abort handler      ]
//!   inputs   types of the one row a caller binds      outputs  one row shape per statement
//!   consts   typed values                             tables   shapes of the tables and indexes touched
//!   accesses what it may touch, keys made from inputs and constants: the lock manager's view
//! ```
//!
//! A program is self-contained: tables and indexes are described as far as the instructions need them, so
//! that running one needs no catalog and its hash pins the shape it was compiled for. Verification compares
//! the description with a catalog.
//!
//! Source: BionicDB 4.3, Figure 3 (logic, commit handler, abort handler; transaction block).

use std::any::Any;
use std::sync::{Arc, OnceLock};

use weft_base::{CatalogVersion, IndexId, TableId};
use weft_store::{Fetch, TableDef};
use weft_types::{RowLayout, SqlError, SqlType, Value};

use crate::access_keys::KeyPart;
use crate::compiled::Compiled;
use crate::error::ProgramError;
use crate::instr::Instr;
use crate::resolve::Resolved;

/// Most instructions in a program.
pub const INSTRS_MAX: usize = 1 << 16;
/// Most inputs, constants or columns: they are named by 16 bits.
pub const VALUES_MAX: usize = 1 << 16;
/// Most tables, and most indexes of a table: they are named by 8 bits.
pub const TABLES_MAX: usize = 256;
/// Most statements.
pub const STATEMENTS_MAX: usize = 1 << 12;
/// Most accesses.
pub const ACCESSES_MAX: usize = 1 << 16;

/// 128-bit hash of a program's encoding: its name in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramHash(pub [u8; 16]);

/// A typed constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Declared type; decides the key form and where the constant may go.
    pub ty: SqlType,
    /// The value, NULL allowed.
    pub value: Value,
}

/// An index as far as a program needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexShape {
    /// Permanent id.
    pub id: IndexId,
    /// Columns in key order.
    pub columns: Vec<usize>,
    /// No two rows have the same key.
    pub unique: bool,
    /// Ordered, so that SCAN works.
    pub ordered: bool,
}

/// A table as far as a program needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableShape {
    /// Permanent id.
    pub id: TableId,
    /// Column types.
    pub columns: Vec<SqlType>,
    /// All indexes, in the catalog's order.
    pub indexes: Vec<IndexShape>,
    /// Ordinal of the primary key in `indexes`.
    pub primary: Option<usize>,
}

impl TableShape {
    /// The shape of a catalog's table.
    pub fn from_def(def: &TableDef) -> TableShape {
        let shape = |index: &Arc<weft_store::IndexDef>| IndexShape {
            id: index.id,
            columns: index.columns.clone(),
            unique: index.unique,
            ordered: index.method.is_ordered(),
        };
        TableShape {
            id: def.id,
            columns: def.types(),
            indexes: def.indexes.iter().map(shape).collect(),
            primary: def
                .primary_key
                .and_then(|id| def.indexes.iter().position(|index| index.id == id)),
        }
    }

    /// The primary key.
    pub fn primary_index(&self) -> Option<&IndexShape> {
        self.indexes.get(self.primary?)
    }
}

/// What an access does. Keys are primary keys, except for [`AccessKind::WriteValue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads the row with the key, or sees that there is none.
    ReadRow,
    /// Reads, changes or removes the row with the key.
    WriteRow,
    /// Inserts a row with the key. A table without primary key: an empty key.
    InsertRow,
    /// Reads rows with keys between the prefixes `key` and `hi`, including all keys with these prefixes; an
    /// empty or absent prefix is no bound.
    ReadRange,
    /// Reads anything of the table.
    ReadTable,
    /// Does anything to the table.
    WriteTable,
    /// Takes or releases a value of a unique index.
    WriteValue(IndexId),
    /// Changes rows with keys in a range, given as for [`AccessKind::ReadRange`]; rows may be inserted and
    /// removed in it.
    WriteRange,
}

impl AccessKind {
    /// The access changes the database.
    pub fn is_write(self) -> bool {
        !matches!(
            self,
            AccessKind::ReadRow | AccessKind::ReadRange | AccessKind::ReadTable
        )
    }
}

/// One declared access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Kind.
    pub kind: AccessKind,
    /// Table.
    pub table: TableId,
    /// Where the key's values come from, in key order.
    pub key: Vec<KeyPart>,
    /// The upper prefix of a range.
    pub hi: Option<Vec<KeyPart>>,
}

impl Access {
    /// An access to one row or value.
    pub fn new(kind: AccessKind, table: TableId, key: Vec<KeyPart>) -> Access {
        Access {
            kind,
            table,
            key,
            hi: None,
        }
    }

    /// An access to a range.
    pub fn range(table: TableId, lo: Vec<KeyPart>, hi: Option<Vec<KeyPart>>) -> Access {
        Access {
            kind: AccessKind::ReadRange,
            table,
            key: lo,
            hi,
        }
    }

    /// An access that changes a range.
    pub fn write_range(table: TableId, lo: Vec<KeyPart>, hi: Option<Vec<KeyPart>>) -> Access {
        Access {
            kind: AccessKind::WriteRange,
            ..Access::range(table, lo, hi)
        }
    }

    /// An access to a whole table.
    pub fn table(kind: AccessKind, table: TableId) -> Access {
        Access {
            kind,
            table,
            key: Vec::new(),
            hi: None,
        }
    }
}

/// The three parts of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Section {
    /// Transaction logic: issues DB instructions.
    Logic,
    /// Commit handler: collects and commits.
    Commit,
    /// Abort handler: ends with the error.
    Abort,
}

/// A compiled transaction. Made by [`crate::builder::ProgramBuilder`], [`crate::asm::parse`] or
/// [`Program::decode`]; fields are to be read, not changed, because layouts are derived from them once.
#[derive(Clone, Debug)]
pub struct Program {
    /// Logic, commit handler, abort handler.
    pub instrs: Vec<Instr>,
    /// First instruction of the commit handler.
    pub commit_pc: u32,
    /// First instruction of the abort handler.
    pub abort_pc: u32,
    /// Constants.
    pub consts: Vec<Constant>,
    /// Types of the input row.
    pub inputs: Vec<SqlType>,
    /// Row shape of each statement; empty: it returns no rows.
    pub outputs: Vec<Vec<SqlType>>,
    /// Number of statements, always `outputs.len()`.
    pub statement_count: u32,
    /// Tables touched.
    pub tables: Vec<TableShape>,
    /// Declared accesses.
    pub accesses: Vec<Access>,
    /// The catalog that it was compiled for.
    pub catalog_version: CatalogVersion,
    /// Contains no writing instruction.
    pub read_only: bool,
    pub(crate) layouts: Layouts,
}

/// What a program's parts imply and the interpreter wants ready.
#[derive(Clone, Debug)]
pub(crate) struct Layouts {
    pub inputs: RowLayout,
    pub consts: RowLayout,
    pub const_row: Vec<u8>,
    pub tables: Vec<RowLayout>,
    pub outputs: Vec<RowLayout>,
    pub resolved: Resolved,
    pub compiled: Arc<Compiled>,
    /// Hash and length of the encoding, once somebody has asked: the log wants the hash for every member of
    /// every batch.
    pub named: OnceLock<(ProgramHash, usize)>,
    /// See [`Program::derived`].
    pub derived: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.encode() == other.encode()
    }
}

/// The parts of a program, before layouts are derived.
#[derive(Clone, Debug, Default)]
pub struct ProgramParts {
    /// See [`Program::instrs`].
    pub instrs: Vec<Instr>,
    /// See [`Program::commit_pc`].
    pub commit_pc: u32,
    /// See [`Program::abort_pc`].
    pub abort_pc: u32,
    /// See [`Program::consts`].
    pub consts: Vec<Constant>,
    /// See [`Program::inputs`].
    pub inputs: Vec<SqlType>,
    /// See [`Program::outputs`].
    pub outputs: Vec<Vec<SqlType>>,
    /// See [`Program::tables`].
    pub tables: Vec<TableShape>,
    /// See [`Program::accesses`].
    pub accesses: Vec<Access>,
    /// See [`Program::catalog_version`].
    pub catalog_version: CatalogVersion,
}

impl Program {
    /// Puts a program together: checks the bounds that other code relies on and derives the layouts. Does
    /// not verify.
    pub fn from_parts(parts: ProgramParts) -> Result<Program, ProgramError> {
        parts.check_bounds()?;
        let layouts = Layouts::of(&parts)?;
        let read_only = !parts.instrs.iter().any(|instr| instr.op.is_write());
        Ok(Program {
            statement_count: parts.outputs.len() as u32,
            instrs: parts.instrs,
            commit_pc: parts.commit_pc,
            abort_pc: parts.abort_pc,
            consts: parts.consts,
            inputs: parts.inputs,
            outputs: parts.outputs,
            tables: parts.tables,
            accesses: parts.accesses,
            catalog_version: parts.catalog_version,
            read_only,
            layouts,
        })
    }

    /// Layout of the input row.
    pub fn input_layout(&self) -> &RowLayout {
        &self.layouts.inputs
    }

    /// Layout of a statement's result rows.
    pub fn output_layout(&self, statement: usize) -> Option<&RowLayout> {
        self.layouts.outputs.get(statement)
    }

    /// What of a row is worth fetching from memory ahead of this program: a guess, for hints only.
    pub fn row_fetch(&self) -> Fetch {
        self.layouts.resolved.row_fetch
    }

    /// What a layer above works out of the program's parts: made once, then kept with the program. One type
    /// has the place: `None` for another.
    pub fn derived<T: Any + Send + Sync>(&self, make: impl FnOnce(&Program) -> T) -> Option<&T> {
        let derived = self.layouts.derived.get_or_init(|| Arc::new(make(self)));
        derived.downcast_ref()
    }

    /// The same program, run instruction by instruction as it stands, without what was resolved. For
    /// comparing: it must do the same.
    #[doc(hidden)]
    #[must_use]
    pub fn unresolved(&self) -> Program {
        let mut plain = self.clone();
        plain.layouts.resolved.fused_at = Vec::new();
        plain.layouts.resolved.searches = Vec::new();
        plain.layouts.resolved.projections = Vec::new();
        plain.layouts.resolved.ranges = Vec::new();
        plain.layouts.resolved.joins = Vec::new();
        plain.layouts.compiled = Arc::default();
        plain
    }

    /// Encodes input values as the row that [`crate::run`] takes.
    pub fn encode_inputs(&self, values: &[Value]) -> Result<Vec<u8>, SqlError> {
        self.layouts.inputs.encode(values)
    }

    /// The section that an instruction number lies in.
    pub fn section_of(&self, pc: usize) -> Section {
        if pc < self.commit_pc as usize {
            Section::Logic
        } else if pc < self.abort_pc as usize {
            Section::Commit
        } else {
            Section::Abort
        }
    }
}

impl ProgramParts {
    fn check_bounds(&self) -> Result<(), ProgramError> {
        let bounded = |count: usize, max: usize, what: &'static str| {
            if count <= max {
                Ok(())
            } else {
                Err(ProgramError::TooLarge { what, count, max })
            }
        };
        bounded(self.instrs.len(), INSTRS_MAX, "instructions")?;
        bounded(self.consts.len(), VALUES_MAX, "constants")?;
        bounded(self.inputs.len(), VALUES_MAX, "inputs")?;
        bounded(self.outputs.len(), STATEMENTS_MAX, "statements")?;
        bounded(self.tables.len(), TABLES_MAX, "tables")?;
        bounded(self.accesses.len(), ACCESSES_MAX, "accesses")?;
        for output in &self.outputs {
            bounded(output.len(), VALUES_MAX, "output columns")?;
        }
        for table in &self.tables {
            bounded(table.columns.len(), VALUES_MAX, "table columns")?;
            bounded(table.indexes.len(), TABLES_MAX, "indexes")?;
            let columns_exist =
                |index: &IndexShape| index.columns.iter().all(|column| *column < table.columns.len());
            if !table.indexes.iter().all(columns_exist) {
                return Err(ProgramError::Malformed(
                    "an index names a column that its table lacks",
                ));
            }
            if table
                .primary
                .is_some_and(|ordinal| ordinal >= table.indexes.len())
            {
                return Err(ProgramError::Malformed(
                    "the primary key is not among the table's indexes",
                ));
            }
        }
        if self.commit_pc > self.abort_pc || self.abort_pc as usize > self.instrs.len() {
            return Err(ProgramError::Malformed("sections are out of order"));
        }
        for access in &self.accesses {
            for part in access.key.iter().chain(access.hi.iter().flatten()) {
                let exists = match *part {
                    KeyPart::Input(number) => usize::from(number) < self.inputs.len(),
                    KeyPart::Const(number) => usize::from(number) < self.consts.len(),
                };
                if !exists {
                    return Err(ProgramError::Malformed(
                        "an access names an input or constant that is not there",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Program {
    /// Another one than that of any other program there is at present.
    #[inline]
    pub(crate) fn number(&self) -> usize {
        Arc::as_ptr(&self.layouts.compiled) as usize
    }
}

impl Layouts {
    fn of(parts: &ProgramParts) -> Result<Layouts, ProgramError> {
        let const_types: Vec<SqlType> = parts.consts.iter().map(|constant| constant.ty).collect();
        let const_values: Vec<Value> = parts
            .consts
            .iter()
            .map(|constant| constant.value.clone())
            .collect();
        let consts = RowLayout::new(&const_types);
        let const_row = consts
            .encode(&const_values)
            .map_err(|_| ProgramError::Malformed("a constant is not of its type"))?;
        let inputs = RowLayout::new(&parts.inputs);
        Ok(Layouts {
            resolved: Resolved::of(parts, &inputs, &consts, &const_row),
            compiled: Arc::default(),
            named: OnceLock::new(),
            derived: OnceLock::new(),
            inputs,
            consts,
            const_row,
            tables: parts
                .tables
                .iter()
                .map(|table| RowLayout::new(&table.columns))
                .collect(),
            outputs: parts
                .outputs
                .iter()
                .map(|output| RowLayout::new(output))
                .collect(),
        })
    }
}
