//! Readable procedures: a thin layer over [`ProgramBuilder`] that knows columns by name.
//!
//! ```text
//! let mut p = Procedure::new(&catalog);
//! let district = p.table("district");
//! let (w, d) = (p.input(SqlType::Int4), p.input(SqlType::Int4));
//! p.writes(&district, &[w, d]);                               // what is locked
//! let row = p.search(&district, &[In(w), In(d)]);             // issued
//! p.must_find(row, "no such district");                       // collected
//! let next = p.load(row, &district, "d_next_o_id");
//! ...
//! p.update(row, &district, &[("d_next_o_id", Reg(more))]);
//! let program = p.finish()?;                                  // verified
//! ```
//!
//! Searches are issued where they are written and collected where their rows are needed, so a procedure
//! that writes all its searches first has them all in flight (BionicDB 4.5). Errors (an unknown column, too
//! many registers) are recorded and reported by [`Procedure::finish`].

use std::sync::Arc;

use weft_base::TableId;
use weft_program::instr::SCAN_REVERSE;
use weft_program::{
    Access, AccessKind, Class, Cond, Cp, KeyBuf, KeyPart, Label, Op, Program, ProgramBuilder, RaiseState,
    Reg, RowBuf, TableNo,
};
use weft_store::{Catalog, TableDef};
use weft_types::{SqlType, Value};

use crate::driver::RunError;

/// A table of a procedure.
#[derive(Debug, Clone)]
pub struct Table {
    no: TableNo,
    id: TableId,
    primary: u8,
    def: Option<Arc<TableDef>>,
}

/// The source of a key part or of a column's new value.
#[derive(Debug, Clone)]
pub enum Source {
    /// An input.
    In(u16),
    /// A register.
    Reg(Reg),
    /// A constant of the column's type.
    Is(Value),
    /// A column of a collected row.
    Col(Cp, u16),
}

/// The range of a scan.
#[derive(Debug, Clone, Copy)]
pub struct Range<'s> {
    /// Lower bound: keys from this prefix.
    pub lo: &'s [Source],
    /// Upper bound: keys up to and including this prefix and all that start with it.
    pub hi: &'s [Source],
    /// From the last key to the first.
    pub reverse: bool,
    /// Maximum number of rows.
    pub limit: Option<Reg>,
}

impl<'s> Range<'s> {
    /// All keys that start with a prefix.
    pub fn under(prefix: &'s [Source]) -> Self {
        Self {
            lo: prefix,
            hi: prefix,
            reverse: false,
            limit: None,
        }
    }
}

/// A procedure under construction.
#[derive(Debug)]
pub struct Procedure<'c> {
    /// For instructions that this layer does not wrap.
    pub b: ProgramBuilder,
    catalog: &'c Catalog,
    error: Option<String>,
}

impl<'c> Procedure<'c> {
    /// An empty procedure.
    pub fn new(catalog: &'c Catalog) -> Self {
        Self {
            b: ProgramBuilder::new(catalog.version()),
            catalog,
            error: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.error.get_or_insert(what);
    }

    /// A table by name.
    pub fn table(&mut self, name: &str) -> Table {
        let Some(def) = self.catalog.table(name) else {
            self.fail(format!("there is no table {name}"));
            return Table {
                no: TableNo(0),
                id: TableId(0),
                primary: 0,
                def: None,
            };
        };
        let no = self.b.table(def);
        let primary = def.primary_key.map_or(0, |id| self.b.index(no, id));
        Table {
            no,
            id: def.id,
            primary,
            def: Some(Arc::clone(def)),
        }
    }

    /// A column's number.
    pub fn column(&mut self, table: &Table, name: &str) -> u16 {
        let def = table.def.as_ref();
        let found = def.and_then(|def| def.columns.iter().position(|column| column.name == name));
        found.map_or_else(
            || {
                self.fail(format!("there is no column {name}"));
                0
            },
            |at| at as u16,
        )
    }

    fn column_type(&self, table: &Table, column: u16) -> SqlType {
        let def = table.def.as_ref();
        def.and_then(|def| def.columns.get(usize::from(column)))
            .map_or(SqlType::Int4, |column| column.ty)
    }

    // ---- inputs and accesses ----

    /// Adds an input.
    pub fn input(&mut self, ty: SqlType) -> u16 {
        self.b.input(ty)
    }

    /// Adds an input of a column's type.
    pub fn input_for(&mut self, table: &Table, column: &str) -> u16 {
        let column = self.column(table, column);
        let ty = self.column_type(table, column);
        self.b.input(ty)
    }

    fn access(&mut self, kind: AccessKind, table: &Table, key: &[u16]) {
        let parts = key.iter().map(|input| KeyPart::Input(*input)).collect();
        self.b.add_access(Access::new(kind, table.id, parts));
    }

    /// Declares that the row with this key is read.
    pub fn reads(&mut self, table: &Table, key: &[u16]) {
        self.access(AccessKind::ReadRow, table, key);
    }

    /// Declares that the row with this key is read, updated or deleted.
    pub fn writes(&mut self, table: &Table, key: &[u16]) {
        self.access(AccessKind::WriteRow, table, key);
    }

    /// Declares that a row with this key is inserted; for a table without a key, an empty key.
    pub fn inserts(&mut self, table: &Table, key: &[u16]) {
        self.access(AccessKind::InsertRow, table, key);
    }

    /// Declares reads of all rows whose keys start with this prefix.
    pub fn reads_under(&mut self, table: &Table, prefix: &[u16]) {
        let parts: Vec<KeyPart> = prefix.iter().map(|input| KeyPart::Input(*input)).collect();
        self.b
            .add_access(Access::range(table.id, parts.clone(), Some(parts)));
    }

    /// Declares any access to rows whose keys start with this prefix.
    pub fn writes_under(&mut self, table: &Table, prefix: &[u16]) {
        let parts: Vec<KeyPart> = prefix.iter().map(|input| KeyPart::Input(*input)).collect();
        self.b
            .add_access(Access::write_range(table.id, parts.clone(), Some(parts)));
    }

    // ---- values ----

    /// Loads an input into a register.
    pub fn load_input(&mut self, input: u16) -> Reg {
        let register = self.b.register();
        self.b.ldin(register, input);
        register
    }

    /// Loads a small number into a register.
    pub fn number(&mut self, value: i32) -> Reg {
        let register = self.b.register();
        self.b.ldi(register, value);
        register
    }

    /// Loads a column of a collected row into a register.
    pub fn load(&mut self, row: Cp, table: &Table, column: &str) -> Reg {
        let column = self.column(table, column);
        let register = self.b.register();
        self.b.ldcol(register, row, column);
        register
    }

    /// `left op right` in a fresh register.
    pub fn compute(&mut self, op: Op, left: Reg, right: Reg) -> Reg {
        let register = self.b.register();
        self.b.arithmetic(op, register, left, right);
        register
    }

    /// `register + value` in a fresh register.
    pub fn plus(&mut self, register: Reg, value: i32) -> Reg {
        let other = self.number(value);
        self.compute(Op::Add, register, other)
    }

    // ---- database ----

    /// The ordinal of an index of the table; without a name, that of the primary key.
    fn index(&mut self, table: &Table, name: Option<&str>) -> u8 {
        let (Some(name), Some(def)) = (name, &table.def) else {
            return table.primary;
        };
        match def.indexes.iter().find(|index| index.name == name) {
            Some(index) => self.b.index(table.no, index.id),
            None => {
                self.fail(format!("there is no index {name}"));
                0
            }
        }
    }

    fn key(&mut self, table: &Table, index: u8, parts: &[Source]) -> KeyBuf {
        let def = table.def.as_ref();
        let columns = def.and_then(|def| {
            def.indexes
                .get(usize::from(index))
                .map(|index| index.columns.clone())
        });
        let columns = columns.unwrap_or_default();
        let key = self.b.key_buffer();
        self.b.key(key);
        for (at, part) in parts.iter().enumerate() {
            let ty = self.column_type(table, columns.get(at).copied().unwrap_or(0) as u16);
            match part {
                Source::In(input) => self.b.keyin(key, *input),
                Source::Reg(register) => self.b.keyr(key, *register, Class::of(&ty)),
                Source::Is(value) => {
                    let constant = self.b.constant(ty, value.clone());
                    self.b.keyk(key, constant);
                }
                Source::Col(row, column) => self.b.keycol(key, *row, *column),
            }
        }
        key
    }

    /// Issues a SEARCH by primary key. It must be collected before its row is used.
    pub fn search(&mut self, table: &Table, parts: &[Source]) -> Cp {
        let mark = self.b.mark();
        let key = self.key(table, table.primary, parts);
        self.b.release_to(mark);
        let row = self.b.collect_register();
        self.b.search(row, table.no, table.primary, key);
        row
    }

    /// Collects a row; the register is 1 if there is one.
    pub fn collect(&mut self, row: Cp) -> Reg {
        let status = self.b.register();
        self.b.ret(status, row);
        status
    }

    /// Collects a row, and rolls the transaction back with this message if there is none.
    pub fn must_find(&mut self, row: Cp, message: &str) {
        let mark = self.b.mark();
        let status = self.collect(row);
        let found = self.b.label();
        self.b.branch_true(status, found);
        self.b.raise(RaiseState::RaiseException, message);
        self.b.bind(found);
        self.b.release_to(mark);
    }

    /// Scans the rows in a range of an index (the primary key if unnamed), and collects: the register is 1
    /// if there is a first row.
    pub fn scan(&mut self, table: &Table, index: Option<&str>, range: Range<'_>) -> (Cp, Reg) {
        let (row, status) = (self.b.collect_register(), self.b.register());
        let index = self.index(table, index);
        let mark = self.b.mark();
        let lo = self.key(table, index, range.lo);
        let hi = self.key(table, index, range.hi);
        let flags = if range.reverse { SCAN_REVERSE } else { 0 };
        self.b.scan(row, table.no, index, lo, hi, flags, range.limit);
        self.b.ret(status, row);
        self.b.release_to(mark);
        (row, status)
    }

    /// Loops over the rows of a scan: `body` runs once per row.
    pub fn for_each(&mut self, (row, status): (Cp, Reg), body: impl FnOnce(&mut Self, Cp)) {
        let (top, done) = (self.b.label(), self.b.label());
        self.b.bind(top);
        self.b.branch_not_true(status, done);
        let mark = self.b.mark();
        body(self, row);
        self.b.release_to(mark);
        self.b.next(status, row);
        self.b.jump(top);
        self.b.bind(done);
    }

    fn set(&mut self, table: &Table, buffer: RowBuf, values: &[(&str, Source)]) {
        for (name, from) in values {
            let column = self.column(table, name);
            match from {
                Source::In(input) => self.b.setin(buffer, column, *input),
                Source::Reg(register) => self.b.setr(buffer, column, *register),
                Source::Is(value) => {
                    let ty = self.column_type(table, column);
                    let constant = self.b.constant(ty, value.clone());
                    self.b.setk(buffer, column, constant);
                }
                Source::Col(row, source) => self.b.setcol(buffer, column, *row, *source),
            }
        }
    }

    /// Updates columns of a collected row.
    pub fn update(&mut self, row: Cp, table: &Table, values: &[(&str, Source)]) {
        self.update_and(row, table, values, |_, _| {});
    }

    /// Like [`Procedure::update`]; `more` sets further columns of the row buffer.
    pub fn update_and(
        &mut self,
        row: Cp,
        table: &Table,
        values: &[(&str, Source)],
        more: impl FnOnce(&mut Self, RowBuf),
    ) {
        let mark = self.b.mark();
        let buffer = self.b.row_buffer();
        self.b.copyrow(buffer, row);
        self.set(table, buffer, values);
        more(self, buffer);
        self.b.update(row, buffer);
        let status = self.b.register();
        self.b.ret(status, row);
        self.b.release_to(mark);
    }

    /// Inserts a row; columns that are not named are NULL.
    pub fn insert(&mut self, table: &Table, values: &[(&str, Source)]) {
        self.insert_and(table, values, |_, _| {});
    }

    /// Like [`Procedure::insert`]; `more` sets further columns of the row buffer.
    pub fn insert_and(
        &mut self,
        table: &Table,
        values: &[(&str, Source)],
        more: impl FnOnce(&mut Self, RowBuf),
    ) {
        let mark = self.b.mark();
        let (buffer, row) = (self.b.row_buffer(), self.b.collect_register());
        self.b.row(buffer, table.no);
        self.set(table, buffer, values);
        more(self, buffer);
        self.b.insert(row, table.no, buffer);
        let status = self.b.register();
        self.b.ret(status, row);
        self.b.release_to(mark);
    }

    /// Deletes a collected row.
    pub fn remove(&mut self, row: Cp) {
        let mark = self.b.mark();
        self.b.remove(row);
        let status = self.b.register();
        self.b.ret(status, row);
        self.b.release_to(mark);
    }

    // ---- control ----

    /// Runs `body` unless `left cond right` holds.
    pub fn unless(&mut self, cond: Cond, left: Reg, right: Reg, body: impl FnOnce(&mut Self)) {
        let skip: Label = self.b.label();
        self.b.branch(cond, left, right, skip);
        body(self);
        self.b.bind(skip);
    }

    /// Rolls back with a message unless `left cond right` holds.
    pub fn require(&mut self, cond: Cond, left: Reg, right: Reg, message: &str) {
        self.unless(cond, left, right, |p| {
            p.b.raise(RaiseState::RaiseException, message)
        });
    }

    /// Returns one row of registers as the next statement's result.
    pub fn answer(&mut self, columns: &[(SqlType, Reg)]) {
        let statement = self.b.statement(columns.iter().map(|(ty, _)| *ty).collect());
        self.emit(statement, |p, buffer| {
            for (at, (_, register)) in columns.iter().enumerate() {
                p.b.setr(buffer, at as u16, *register);
            }
        });
    }

    /// Appends a row to a statement's result; `fill` sets its columns.
    pub fn emit(&mut self, statement: u32, fill: impl FnOnce(&mut Self, RowBuf)) {
        let mark = self.b.mark();
        let buffer = self.b.row_buffer();
        self.b.outrow(buffer, statement);
        fill(self, buffer);
        self.b.emit(statement, buffer);
        self.b.release_to(mark);
    }

    /// The verified program.
    pub fn finish(self, name: &str) -> Result<Arc<Program>, RunError> {
        if let Some(error) = self.error {
            return Err(RunError::doing(name, error));
        }
        let program = self.b.finish().map_err(|e| RunError::doing(name, e))?;
        weft_program::verify(&program, self.catalog).map_err(|e| RunError::doing(name, e))?;
        Ok(Arc::new(program))
    }
}
