//! Building programs: labels, fresh registers, deduplicated constants. The SQL compiler's way in.
//!
//! ```
//! # use weft_program::{ProgramBuilder, Op};
//! # use weft_base::CatalogVersion;
//! # use weft_types::{SqlType, Value};
//! let mut b = ProgramBuilder::new(CatalogVersion(0));
//! let x = b.input(SqlType::Int8);
//! let statement = b.statement(vec![SqlType::Int8]);
//! let (r, one, row) = (b.register(), b.register(), b.row_buffer());
//! b.ldin(r, x);
//! b.ldi(one, 1);
//! b.arithmetic(Op::Add, r, r, one);
//! b.outrow(row, statement);
//! b.setr(row, 0, r);
//! b.emit(statement, row);
//! let program = b.finish()?; // END, commit handler and abort handler are added
//! # let _ = program;
//! # Ok::<(), weft_program::ProgramError>(())
//! ```
//!
//! Errors are sticky: what does not fit (a 65th register, a label never bound) is reported by
//! [`ProgramBuilder::finish`], so that code generation stays free of error handling. A compiler whose
//! statement does not fit falls back to the general path.

use std::collections::HashMap;

use weft_base::{CatalogVersion, IndexId};
use weft_store::TableDef;
use weft_types::{SqlType, Value};

use crate::class::Class;
use crate::error::ProgramError;
use crate::functions::Function;
use crate::instr::{
    COLLECT_REGISTERS, Cond, Datum, Instr, KEY_BUFFERS, NO_LIMIT, Op, REGISTERS, ROW_BUFFERS,
};
use crate::program::{Access, Constant, Program, ProgramParts, Section, TableShape};
use crate::report::{ErrorField, Level, RaiseState};

/// A general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reg(pub u8);
/// A collect register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cp(pub u8);
/// A key buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyBuf(pub u8);
/// A row buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowBuf(pub u8);
/// A place in the program, known once bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(u32);
/// A table of the program, by ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableNo(pub u8);

/// How many of each kind of register are in use; what is taken after a mark can be given back together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterMark {
    registers: u8,
    collect: u8,
    keys: u8,
    rows: u8,
}

/// Assembles one program.
#[derive(Debug)]
pub struct ProgramBuilder {
    parts: ProgramParts,
    const_numbers: HashMap<Vec<u8>, u16>,
    labels: Vec<Option<u32>>,
    /// Instructions whose `imm` is a label still.
    fixups: Vec<(usize, Label)>,
    in_use: RegisterMark,
    /// Registers taken from the top.
    reserved: u8,
    section: Section,
    deferred: Vec<(Cp, Option<u32>)>,
    error: Option<ProgramError>,
}

impl ProgramBuilder {
    /// An empty program for a catalog, in its logic section.
    pub fn new(catalog_version: CatalogVersion) -> Self {
        ProgramBuilder {
            parts: ProgramParts {
                catalog_version,
                ..ProgramParts::default()
            },
            const_numbers: HashMap::new(),
            labels: Vec::new(),
            fixups: Vec::new(),
            in_use: RegisterMark::default(),
            reserved: 0,
            section: Section::Logic,
            deferred: Vec::new(),
            error: None,
        }
    }

    fn fail(&mut self, error: ProgramError) {
        self.error.get_or_insert(error);
    }

    fn too_large(&mut self, what: &'static str, max: usize) {
        self.fail(ProgramError::TooLarge {
            what,
            count: max + 1,
            max,
        });
    }

    // ---- declarations ----

    /// A further input; returns its number.
    pub fn input(&mut self, ty: SqlType) -> u16 {
        self.parts.inputs.push(ty);
        (self.parts.inputs.len() - 1) as u16
    }

    /// Types of the inputs so far.
    pub fn inputs(&self) -> &[SqlType] {
        &self.parts.inputs
    }

    /// A constant; equal ones (type and value) share a number.
    pub fn constant(&mut self, ty: SqlType, value: Value) -> u16 {
        let mut identity = Vec::new();
        ty.encode(&mut identity);
        match weft_types::RowLayout::new(&[ty]).encode(std::slice::from_ref(&value)) {
            Ok(row) => identity.extend_from_slice(&row),
            Err(_) => self.fail(ProgramError::Malformed("a constant is not of its type")),
        }
        let next = self.parts.consts.len() as u16;
        let number = *self.const_numbers.entry(identity).or_insert(next);
        if number == next {
            self.parts.consts.push(Constant { ty, value });
        }
        number
    }

    /// A table; the same one again gives the same ordinal.
    pub fn table(&mut self, def: &TableDef) -> TableNo {
        if let Some(ordinal) = self.parts.tables.iter().position(|table| table.id == def.id) {
            return TableNo(ordinal as u8);
        }
        self.parts.tables.push(TableShape::from_def(def));
        TableNo((self.parts.tables.len() - 1) as u8)
    }

    /// The ordinal of a table's index. One that the table lacks is an error at [`ProgramBuilder::finish`].
    pub fn index(&mut self, table: TableNo, id: IndexId) -> u8 {
        let shape = self.parts.tables.get(usize::from(table.0));
        match shape.and_then(|shape| shape.indexes.iter().position(|index| index.id == id)) {
            Some(ordinal) => ordinal as u8,
            None => {
                self.fail(ProgramError::Malformed("the table has no such index"));
                0
            }
        }
    }

    /// A further statement with the types of its result columns, none if it returns no rows; returns its
    /// number.
    pub fn statement(&mut self, output: Vec<SqlType>) -> u32 {
        self.parts.outputs.push(output);
        (self.parts.outputs.len() - 1) as u32
    }

    /// A further column of a statement's rows; returns its number.
    pub fn add_output_column(&mut self, statement: u32, ty: SqlType) -> u16 {
        let Some(columns) = self.parts.outputs.get_mut(statement as usize) else {
            self.fail(ProgramError::Malformed("there is no such statement"));
            return 0;
        };
        columns.push(ty);
        (columns.len() - 1) as u16
    }

    /// Keeps the accesses that a test keeps; the test sees one and all.
    pub fn retain_accesses(&mut self, keep: impl Fn(&Access, &[Access]) -> bool) {
        let all = std::mem::take(&mut self.parts.accesses);
        self.parts.accesses = all.iter().filter(|access| keep(access, &all)).cloned().collect();
    }

    /// Number of the next instruction.
    pub fn position(&self) -> u32 {
        self.parts.instrs.len() as u32
    }

    /// Declares an access; an equal one again changes nothing.
    pub fn add_access(&mut self, access: Access) {
        if !self.parts.accesses.contains(&access) {
            self.parts.accesses.push(access);
        }
    }

    // ---- registers ----

    /// A fresh general register.
    pub fn register(&mut self) -> Reg {
        let number = self.in_use.registers;
        match usize::from(number) < REGISTERS - usize::from(self.reserved) {
            true => self.in_use.registers += 1,
            false => self.too_large("registers", REGISTERS),
        }
        Reg(number.min(REGISTERS as u8 - 1))
    }

    /// A register from the top, which no mark gives back: for what outlives statements.
    pub fn reserve_register(&mut self) -> Reg {
        let number = REGISTERS - 1 - usize::from(self.reserved);
        match number > usize::from(self.in_use.registers) {
            true => self.reserved += 1,
            false => self.too_large("registers", REGISTERS),
        }
        Reg(number as u8)
    }

    /// How many registers are reserved.
    pub fn reserved(&self) -> u8 {
        self.reserved
    }

    /// Gives back the registers reserved since there were so many.
    pub fn release_reserved_to(&mut self, reserved: u8) {
        self.reserved = self.reserved.min(reserved);
    }

    /// A fresh collect register.
    pub fn collect_register(&mut self) -> Cp {
        let number = self.in_use.collect;
        match usize::from(number) < COLLECT_REGISTERS {
            true => self.in_use.collect += 1,
            false => self.too_large("collect registers", COLLECT_REGISTERS),
        }
        Cp(number.min(COLLECT_REGISTERS as u8 - 1))
    }

    /// A fresh key buffer.
    pub fn key_buffer(&mut self) -> KeyBuf {
        let number = self.in_use.keys;
        match usize::from(number) < KEY_BUFFERS {
            true => self.in_use.keys += 1,
            false => self.too_large("key buffers", KEY_BUFFERS),
        }
        KeyBuf(number.min(KEY_BUFFERS as u8 - 1))
    }

    /// A fresh row buffer.
    pub fn row_buffer(&mut self) -> RowBuf {
        let number = self.in_use.rows;
        match usize::from(number) < ROW_BUFFERS {
            true => self.in_use.rows += 1,
            false => self.too_large("row buffers", ROW_BUFFERS),
        }
        RowBuf(number.min(ROW_BUFFERS as u8 - 1))
    }

    /// What is in use now.
    pub fn mark(&self) -> RegisterMark {
        self.in_use
    }

    /// Gives back everything taken since the mark. Collect registers must have been collected by then.
    pub fn release_to(&mut self, mark: RegisterMark) {
        self.in_use = mark;
    }

    // ---- control ----

    /// A label, to be bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label((self.labels.len() - 1) as u32)
    }

    /// Binds a label here.
    pub fn bind(&mut self, label: Label) {
        let here = self.parts.instrs.len() as u32;
        match self.labels.get_mut(label.0 as usize) {
            Some(place @ None) => *place = Some(here),
            _ => self.fail(ProgramError::Malformed("a label is bound twice")),
        }
    }

    /// Any instruction as it is.
    pub fn push(&mut self, instr: Instr) {
        if let Err(rule) = instr.check() {
            let pc = self.parts.instrs.len() as u32;
            self.fail(ProgramError::Instruction { pc, rule });
        }
        self.parts.instrs.push(instr);
    }

    fn put(&mut self, op: Op, a: u8, b: u8, c: u8, imm: u32) {
        self.push(Instr::new(op, a, b, c, imm));
    }

    fn jump_with(&mut self, op: Op, a: u8, b: u8, target: Label) {
        self.fixups.push((self.parts.instrs.len(), target));
        self.put(op, a, b, 0, 0);
    }

    /// JMP.
    pub fn jump(&mut self, target: Label) {
        self.jump_with(Op::Jmp, 0, 0, target);
    }

    /// BE, BNE, BLT ...: branch on two integers, neither NULL.
    pub fn branch(&mut self, cond: Cond, a: Reg, b: Reg, target: Label) {
        let op = match cond {
            Cond::Eq => Op::Be,
            Cond::Ne => Op::Bne,
            Cond::Lt => Op::Blt,
            Cond::Le => Op::Ble,
            Cond::Gt => Op::Bgt,
            Cond::Ge => Op::Bge,
        };
        self.jump_with(op, a.0, b.0, target);
    }

    /// BNULL.
    pub fn branch_null(&mut self, a: Reg, target: Label) {
        self.jump_with(Op::Bnull, a.0, 0, target);
    }

    /// BNNULL.
    pub fn branch_not_null(&mut self, a: Reg, target: Label) {
        self.jump_with(Op::Bnnull, a.0, 0, target);
    }

    /// BT: branch if true.
    pub fn branch_true(&mut self, a: Reg, target: Label) {
        self.jump_with(Op::Bt, a.0, 0, target);
    }

    /// BNT: branch unless true, so also if NULL.
    pub fn branch_not_true(&mut self, a: Reg, target: Label) {
        self.jump_with(Op::Bnt, a.0, 0, target);
    }

    /// RET: wait for `cp`; `status` becomes 1 (found, done) or 0 (no row).
    pub fn ret(&mut self, status: Reg, cp: Cp) {
        self.put(Op::Ret, status.0, cp.0, 0, 0);
    }

    /// Collects `cp` in the commit handler and adds its status to a statement's count, if one is given.
    pub fn collect_at_commit(&mut self, cp: Cp, statement: Option<u32>) {
        self.deferred.push((cp, statement));
    }

    /// ABORT.
    pub fn abort(&mut self) {
        self.put(Op::Abort, 0, 0, 0, 0);
    }

    /// RAISE with a message.
    pub fn raise(&mut self, state: RaiseState, message: &str) {
        let number = self.constant(SqlType::Text, Value::Text(message.to_owned()));
        self.put(Op::Raise, state as u8, 0, 0, u32::from(number));
    }

    /// RAISEB: the message is in a column of a row buffer.
    pub fn raise_buffer(&mut self, state: RaiseState, buffer: RowBuf, column: u16) {
        self.put(Op::Raiseb, state as u8, buffer.0, 0, u32::from(column));
    }

    /// NOTE: tell the client.
    pub fn note(&mut self, level: Level, message: &str) {
        let number = self.constant(SqlType::Text, Value::Text(message.to_owned()));
        self.put(Op::Note, level as u8, 0, 0, u32::from(number));
    }

    /// NOTEB: the message is in a column of a row buffer.
    pub fn note_buffer(&mut self, level: Level, buffer: RowBuf, column: u16) {
        self.put(Op::Noteb, level as u8, buffer.0, 0, u32::from(column));
    }

    /// ERRCODE: the state of the next RAISE or NOTE.
    pub fn errcode(&mut self, code: &str) {
        let number = self.constant(SqlType::Text, Value::Text(code.to_owned()));
        self.put(Op::Errcode, 0, 0, 0, u32::from(number));
    }

    /// DIAG: a field of the next RAISE or NOTE.
    pub fn diag(&mut self, field: ErrorField, buffer: RowBuf, column: u16) {
        self.put(Op::Diag, field as u8, buffer.0, 0, u32::from(column));
    }

    /// TRY.
    pub fn try_or(&mut self, handler: u8, target: Label) {
        self.jump_with(Op::Try, handler, 0, target);
    }

    /// ENDTRY.
    pub fn end_try(&mut self, handler: u8) {
        self.put(Op::Endtry, handler, 0, 0, 0);
    }

    /// CAUGHT: whether the state of what a handler caught begins so.
    pub fn caught(&mut self, to: Reg, handler: u8, state: &str) {
        let number = self.constant(SqlType::Text, Value::Text(state.to_owned()));
        self.put(Op::Caught, to.0, handler, 0, u32::from(number));
    }

    /// RETHROW.
    pub fn rethrow(&mut self, handler: u8) {
        self.put(Op::Rethrow, handler, 0, 0, 0);
    }

    /// ERRTEXT: a field of what a handler caught.
    pub fn errtext(&mut self, buffer: RowBuf, column: u16, handler: u8, field: ErrorField) {
        self.put(Op::Errtext, buffer.0, handler, field as u8, u32::from(column));
    }

    // ---- registers and arithmetic ----

    /// MOV.
    pub fn mov(&mut self, to: Reg, from: Reg) {
        self.put(Op::Mov, to.0, from.0, 0, 0);
    }

    /// LDI.
    pub fn ldi(&mut self, to: Reg, value: i32) {
        self.put(Op::Ldi, to.0, 0, 0, value as u32);
    }

    /// LDNULL.
    pub fn ldnull(&mut self, to: Reg) {
        self.put(Op::Ldnull, to.0, 0, 0, 0);
    }

    /// LDK.
    pub fn ldk(&mut self, to: Reg, constant: u16) {
        self.put(Op::Ldk, to.0, 0, 0, u32::from(constant));
    }

    /// LDIN.
    pub fn ldin(&mut self, to: Reg, input: u16) {
        self.put(Op::Ldin, to.0, 0, 0, u32::from(input));
    }

    /// LDCOL.
    pub fn ldcol(&mut self, to: Reg, cp: Cp, column: u16) {
        self.put(Op::Ldcol, to.0, cp.0, 0, u32::from(column));
    }

    /// LDBUF.
    pub fn ldbuf(&mut self, to: Reg, buffer: RowBuf, column: u16) {
        self.put(Op::Ldbuf, to.0, buffer.0, 0, u32::from(column));
    }

    /// An operation of three registers: ADD ... MOD, FADD ..., F4ADD ..., AND, OR.
    pub fn arithmetic(&mut self, op: Op, to: Reg, left: Reg, right: Reg) {
        self.put(op, to.0, left.0, right.0, 0);
    }

    /// An operation of two registers: NEG, ABS, FNEG, NOT, ISNULL, ITOF, F4TOF ...
    pub fn unary(&mut self, op: Op, to: Reg, from: Reg) {
        self.put(op, to.0, from.0, 0, 0);
    }

    /// NARROW to 2, 4 or 8 bytes.
    pub fn narrow(&mut self, register: Reg, width_bytes: u8) {
        self.put(Op::Narrow, register.0, 0, width_bytes, 0);
    }

    /// FTOI or F4TOI to 2, 4 or 8 bytes.
    pub fn float_to_int(&mut self, op: Op, to: Reg, from: Reg, width_bytes: u8) {
        self.put(op, to.0, from.0, width_bytes, 0);
    }

    /// CMP, FCMP or F4CMP.
    pub fn compare(&mut self, op: Op, cond: Cond, to: Reg, left: Reg, right: Reg) {
        self.put(op, to.0, left.0, right.0, cond as u32);
    }

    /// CMPV: -1, 0, 1 or NULL.
    pub fn cmpv(&mut self, to: Reg, left: Datum, right: Datum) {
        let ((b, low), (c, high)) = (left.encode(), right.encode());
        self.put(Op::Cmpv, to.0, b, c, u32::from(low) | u32::from(high) << 16);
    }

    /// TEST: compare an integer with 0.
    pub fn test(&mut self, cond: Cond, to: Reg, from: Reg) {
        self.put(Op::Test, to.0, from.0, 0, cond as u32);
    }

    /// CMPV and TEST: the truth value of a comparison of any two values of one class.
    pub fn compare_values(&mut self, cond: Cond, to: Reg, left: Datum, right: Datum) {
        self.cmpv(to, left, right);
        self.test(cond, to, to);
    }

    // ---- keys ----

    /// KEY: start a key.
    pub fn key(&mut self, key: KeyBuf) {
        self.put(Op::Key, key.0, 0, 0, 0);
    }

    /// KEYIN.
    pub fn keyin(&mut self, key: KeyBuf, input: u16) {
        self.put(Op::Keyin, key.0, 0, 0, u32::from(input));
    }

    /// KEYK.
    pub fn keyk(&mut self, key: KeyBuf, constant: u16) {
        self.put(Op::Keyk, key.0, 0, 0, u32::from(constant));
    }

    /// KEYR.
    pub fn keyr(&mut self, key: KeyBuf, register: Reg, class: Class) {
        self.put(Op::Keyr, key.0, register.0, 0, class as u32);
    }

    /// KEYCOL.
    pub fn keycol(&mut self, key: KeyBuf, cp: Cp, column: u16) {
        self.put(Op::Keycol, key.0, cp.0, 0, u32::from(column));
    }

    /// KEYBUF.
    pub fn keybuf(&mut self, key: KeyBuf, buffer: RowBuf, column: u16) {
        self.put(Op::Keybuf, key.0, buffer.0, 0, u32::from(column));
    }

    /// KEYNULL.
    pub fn keynull(&mut self, key: KeyBuf) {
        self.put(Op::Keynull, key.0, 0, 0, 0);
    }

    // ---- rows ----

    /// ROW.
    pub fn row(&mut self, buffer: RowBuf, table: TableNo) {
        self.put(Op::Row, buffer.0, 0, 0, u32::from(table.0));
    }

    /// OUTROW.
    pub fn outrow(&mut self, buffer: RowBuf, statement: u32) {
        self.put(Op::Outrow, buffer.0, 0, 0, statement);
    }

    /// COPYROW.
    pub fn copyrow(&mut self, buffer: RowBuf, cp: Cp) {
        self.put(Op::Copyrow, buffer.0, cp.0, 0, 0);
    }

    /// SETIN.
    pub fn setin(&mut self, buffer: RowBuf, column: u16, input: u16) {
        self.put(
            Op::Setin,
            buffer.0,
            0,
            0,
            u32::from(column) | u32::from(input) << 16,
        );
    }

    /// SETK.
    pub fn setk(&mut self, buffer: RowBuf, column: u16, constant: u16) {
        self.put(
            Op::Setk,
            buffer.0,
            0,
            0,
            u32::from(column) | u32::from(constant) << 16,
        );
    }

    /// SETR.
    pub fn setr(&mut self, buffer: RowBuf, column: u16, register: Reg) {
        self.put(Op::Setr, buffer.0, register.0, 0, u32::from(column));
    }

    /// SETCOL: `buffer.column = cp.source`.
    pub fn setcol(&mut self, buffer: RowBuf, column: u16, cp: Cp, source: u16) {
        self.put(
            Op::Setcol,
            buffer.0,
            cp.0,
            0,
            u32::from(column) | u32::from(source) << 16,
        );
    }

    /// SETNULL.
    pub fn setnull(&mut self, buffer: RowBuf, column: u16) {
        self.put(Op::Setnull, buffer.0, 0, 0, u32::from(column));
    }

    /// SETBUF: `buffer.column = from.source`.
    pub fn setbuf(&mut self, buffer: RowBuf, column: u16, from: RowBuf, source: u16) {
        let imm = u32::from(column) | u32::from(source) << 16;
        self.put(Op::Setbuf, buffer.0, from.0, 0, imm);
    }

    /// CAT: append a text to a text column.
    pub fn cat(&mut self, buffer: RowBuf, column: u16, text: Datum) {
        let (source, number) = text.encode();
        let imm = u32::from(column) | u32::from(number) << 16;
        self.put(Op::Cat, buffer.0, 0, source, imm);
    }

    /// CATR: append the text form of a register to a text column.
    pub fn catr(&mut self, buffer: RowBuf, column: u16, register: Reg, class: Class) {
        self.put(Op::Catr, buffer.0, register.0, class as u8, u32::from(column));
    }

    /// CUT: keep the first characters of a text column.
    pub fn cut(&mut self, buffer: RowBuf, column: u16, characters: Reg) {
        self.put(Op::Cut, buffer.0, characters.0, 0, u32::from(column));
    }

    /// CALL: a column from a function of others in a row.
    pub fn call(&mut self, buffer: RowBuf, column: u16, function: Function, first: u16) {
        let imm = u32::from(column) | u32::from(first) << 16;
        self.put(Op::Call, buffer.0, function as u8, 0, imm);
    }

    /// CONVERT, or ASSIGN: a column from one of another type.
    pub fn convert(&mut self, op: Op, buffer: RowBuf, column: u16, from: RowBuf, source: u16) {
        let imm = u32::from(column) | u32::from(source) << 16;
        self.put(op, buffer.0, from.0, 0, imm);
    }

    // ---- database ----

    /// SEARCH by an index ordinal from [`ProgramBuilder::index`].
    pub fn search(&mut self, cp: Cp, table: TableNo, index: u8, key: KeyBuf) {
        self.put(
            Op::Search,
            cp.0,
            key.0,
            0,
            u32::from(table.0) | u32::from(index) << 8,
        );
    }

    /// SCAN between two key prefixes, `flags` from `SCAN_*`; a NULL limit is none.
    #[expect(clippy::too_many_arguments, reason = "one instruction, seven operands")]
    pub fn scan(
        &mut self,
        cp: Cp,
        table: TableNo,
        index: u8,
        lo: KeyBuf,
        hi: KeyBuf,
        flags: u8,
        limit: Option<Reg>,
    ) {
        let limit = limit.map_or(NO_LIMIT, |register| register.0);
        let imm = u32::from_le_bytes([table.0, index, flags, limit]);
        self.put(Op::Scan, cp.0, lo.0, hi.0, imm);
    }

    /// NEXT.
    pub fn next(&mut self, status: Reg, cp: Cp) {
        self.put(Op::Next, status.0, cp.0, 0, 0);
    }

    /// INSERT.
    pub fn insert(&mut self, cp: Cp, table: TableNo, buffer: RowBuf) {
        self.put(Op::Insert, cp.0, buffer.0, 0, u32::from(table.0));
    }

    /// UPDATE.
    pub fn update(&mut self, cp: Cp, buffer: RowBuf) {
        self.put(Op::Update, cp.0, buffer.0, 0, 0);
    }

    /// REMOVE.
    pub fn remove(&mut self, cp: Cp) {
        self.put(Op::Remove, cp.0, 0, 0, 0);
    }

    /// EMIT.
    pub fn emit(&mut self, statement: u32, buffer: RowBuf) {
        self.put(Op::Emit, buffer.0, 0, 0, statement);
    }

    /// COUNT.
    pub fn count(&mut self, statement: u32, register: Reg) {
        self.put(Op::Count, register.0, 0, 0, statement);
    }

    // ---- sections ----

    /// Ends the section so that nothing falls out of it.
    fn close_section(&mut self) {
        let here = self.parts.instrs.len() as u32;
        let start = match self.section {
            Section::Logic => 0,
            Section::Commit => self.parts.commit_pc,
            Section::Abort => self.parts.abort_pc,
        };
        let ended = here > start
            && self
                .parts
                .instrs
                .last()
                .is_some_and(|instr| instr.op.is_terminal());
        if ended && !self.labels.contains(&Some(here)) {
            return;
        }
        let op = match self.section {
            Section::Logic => Op::End,
            Section::Commit => Op::Commit,
            Section::Abort => Op::Abort,
        };
        self.put(op, 0, 0, 0, 0);
    }

    /// Ends the logic and begins the commit handler.
    pub fn begin_commit(&mut self) {
        if self.section != Section::Logic {
            return self.fail(ProgramError::Malformed("sections are out of order"));
        }
        self.close_section();
        self.section = Section::Commit;
        self.parts.commit_pc = self.parts.instrs.len() as u32;
        let deferred = std::mem::take(&mut self.deferred);
        if deferred.is_empty() {
            return;
        }
        // The logic is over, yet its registers keep their values for the rest of the handler.
        let status = self.register();
        for (cp, statement) in deferred {
            self.ret(status, cp);
            if let Some(statement) = statement {
                self.count(statement, status);
            }
        }
    }

    /// Ends the commit handler and begins the abort handler.
    pub fn begin_abort(&mut self) {
        if self.section == Section::Logic {
            self.begin_commit();
        }
        if self.section != Section::Commit {
            return self.fail(ProgramError::Malformed("sections are out of order"));
        }
        self.close_section();
        self.section = Section::Abort;
        self.parts.abort_pc = self.parts.instrs.len() as u32;
    }

    /// The program: missing handlers are added, labels resolved, bounds checked. Not verified: see
    /// [`crate::verify`].
    pub fn finish(mut self) -> Result<Program, ProgramError> {
        if self.section != Section::Abort {
            self.begin_abort();
        }
        self.close_section();
        for (at, label) in std::mem::take(&mut self.fixups) {
            let target = self.labels.get(label.0 as usize).copied().flatten();
            match (target, self.parts.instrs.get_mut(at)) {
                (Some(target), Some(instr)) => instr.imm = target,
                _ => self.fail(ProgramError::Malformed("a label is never bound")),
            }
        }
        match self.error {
            Some(error) => Err(error),
            None => Program::from_parts(self.parts),
        }
    }
}
