//! Code for statements: each becomes a part of the logic section that issues its DB instructions and
//! collects their results.
//!
//! ```text
//!   INSERT          ROW, SET.., INSERT, RET, COUNT                      per row
//!   .. ON CONFLICT  KEY.., SEARCH, RET; found: (UPDATE) else INSERT     per row
//!   UPDATE, DELETE  KEY.., SEARCH, RET, residual, COPYROW, SET.., UPDATE | REMOVE, RET, COUNT
//!   SELECT by key   KEY.., SEARCH, RET, residual, OUTROW, SET.., EMIT
//!   .. by several keys: the same for each
//!   SELECT by range KEY.., KEY.., SCAN, RET, loop: residual, OUTROW, SET.., EMIT, NEXT
//!   .. aggregates   the same with accumulators in the loop, and OUTROW, SET.., EMIT after it
//! ```
//!
//! In a procedure, rows go into variables instead of results ([`Sink`]), counts into FOUND, and UPDATE and
//! DELETE may use a range.
//!
//! Every statement declares its accesses; their keys are inputs or constants. If only a prefix of a key is
//! known in advance, the range of keys with this prefix is declared, and without a prefix the table. The
//! primary key of a row that is read by a secondary index is not known in advance: such a read declares the
//! table, or a range if index and primary key begin with the same columns.

use std::sync::Arc;

use weft_program::{Access, AccessKind, Cp, KeyPart, Label, RowBuf, TableNo};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::rights::Need;
use super::super::scalar::Scalar;
use super::super::type_rules::base_type;
use super::block::KeySource;
use super::code::Coder;
use super::point::{
    ConflictRow, OutputItem, Path, PointChange, PointConflict, PointInsert, PointSelect, PointStatement,
};
use super::scan::Missing;

pub(super) type Coded<T> = Result<T, Refusal>;

/// The destination of a statement's rows and counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink<'s> {
    /// The results of a statement of the program.
    Statement(u32),
    /// Variables, of the output items' types, for the first row; FOUND for the count.
    Variables {
        /// One per column.
        targets: &'s [u16],
        /// Whether it is an error if there is not exactly one row.
        strict: bool,
    },
    /// None for rows; FOUND for the count.
    Nothing,
}

impl Coder {
    /// Generates one statement and releases its registers.
    pub(crate) fn statement_into(&mut self, statement: &PointStatement, sink: Sink<'_>) -> Coded<()> {
        self.note_need(Need::of_point(statement));
        let mark = self.b.mark();
        match statement {
            PointStatement::Insert(insert) => self.insert(insert, sink)?,
            PointStatement::Change(change) => self.change(change, sink)?,
            PointStatement::Select(select) => self.select(select, sink)?,
        }
        self.b.release_to(mark);
        Ok(())
    }

    /// Key values, of the index columns' types.
    pub(super) fn key_sources(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        values: &[Scalar],
    ) -> Coded<Vec<KeySource>> {
        values
            .iter()
            .zip(&index.columns)
            .map(|(value, &column)| {
                let ty = table
                    .columns
                    .get(column)
                    .map(|column| base_type(&column.ty))
                    .ok_or(Refusal::General)?;
                self.key_source(value, ty)
            })
            .collect()
    }

    /// What is known in advance of a new row's values in an index's columns.
    fn row_parts(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        row: &[Scalar],
    ) -> Coded<Vec<Option<KeyPart>>> {
        index
            .columns
            .iter()
            .map(|&column| match (row.get(column), table.columns.get(column)) {
                (Some(value), Some(def)) => self.declared_part(value, def.ty),
                _ => Err(Refusal::General),
            })
            .collect()
    }

    /// Declares an access to one row by its primary key, or to the range of the known prefix.
    pub(super) fn declare_row(&mut self, kind: AccessKind, table: &TableDef, parts: &[Option<KeyPart>]) {
        let known: Vec<KeyPart> = parts.iter().map_while(|part| *part).collect();
        let access = if known.len() == parts.len() {
            Access::new(kind, table.id, known)
        } else {
            return self.declare_prefix(kind.is_write(), table, known);
        };
        self.b.add_access(access);
    }

    /// Declares an access to all rows whose primary keys begin with a prefix.
    pub(super) fn declare_prefix(&mut self, write: bool, table: &TableDef, prefix: Vec<KeyPart>) {
        self.b.add_access(match (prefix.is_empty(), write) {
            (true, true) => Access::table(AccessKind::WriteTable, table.id),
            (true, false) => Access::table(AccessKind::ReadTable, table.id),
            (false, true) => Access::write_range(table.id, prefix.clone(), Some(prefix)),
            (false, false) => Access::range(table.id, prefix.clone(), Some(prefix)),
        });
    }

    /// Declares a read by a secondary index: the primary keys are not known, but may share the index's
    /// first columns.
    pub(super) fn declare_secondary(&mut self, table: &TableDef, index: &IndexDef, equal: &[KeySource]) {
        let primary = table.primary_index().map_or(&[][..], |index| &index.columns);
        let shared = primary
            .iter()
            .zip(&index.columns)
            .take_while(|(left, right)| left == right);
        let prefix: Vec<KeyPart> = shared
            .zip(equal)
            .map_while(|(_, source)| source.declared)
            .collect();
        self.declare_prefix(false, table, prefix);
    }

    /// Sends the current row to the statement's sink.
    pub(crate) fn emit_row(&mut self, output: &[OutputItem], sink: Sink<'_>) -> Coded<()> {
        match sink {
            Sink::Statement(statement) => {
                let buffer = self.b.row_buffer();
                self.b.outrow(buffer, statement);
                for (number, item) in output.iter().enumerate() {
                    let mark = self.b.mark();
                    self.set_column(buffer, number as u16, &item.scalar, item.column.ty)?;
                    self.b.release_to(mark);
                }
                self.b.emit(statement, buffer);
                Ok(())
            }
            Sink::Variables { targets, .. } => {
                for (item, target) in output.iter().zip(targets) {
                    self.set_variable(*target, &item.scalar)?;
                }
                Ok(())
            }
            Sink::Nothing => Ok(()),
        }
    }

    /// Counts the effect of a DB instruction.
    fn counted(&mut self, sink: Sink<'_>, status: weft_program::Reg) {
        match sink {
            Sink::Statement(statement) => self.b.count(statement, status),
            Sink::Variables { .. } | Sink::Nothing => self.note_found(status),
        }
    }

    fn returning(
        &mut self,
        table: &Arc<TableDef>,
        cp: Cp,
        output: &[OutputItem],
        sink: Sink<'_>,
    ) -> Coded<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.set_row(table, cp);
        self.emit_row(output, sink)
    }

    /// Jumps to `target` unless all conditions are true.
    pub(super) fn conditions(&mut self, conditions: &[Scalar], target: Label) -> Coded<()> {
        for condition in conditions {
            let mark = self.b.mark();
            let truth = self.register(condition, SqlType::Bool)?;
            self.b.branch_not_true(truth, target);
            self.b.release_to(mark);
        }
        Ok(())
    }

    // ---- INSERT ----

    fn insert(&mut self, insert: &PointInsert, sink: Sink<'_>) -> Coded<()> {
        let table = self.b.table(&insert.table);
        for (number, row) in insert.rows.iter().enumerate() {
            let mark = self.b.mark();
            let row = &self.bound_row(&insert.table, row)?;
            self.insert_accesses(insert, row)?;
            match &insert.on_conflict {
                None => self.insert_row(insert, table, row, sink)?,
                Some(conflict) => {
                    let update = conflict.updates.as_ref().and_then(|updates| updates.get(number));
                    self.upsert_row(insert, conflict, update, table, row, sink)?;
                }
            }
            self.b.release_to(mark);
        }
        Ok(())
    }

    /// The row with everything computed at bind as an input, so that a volatile value (a sequence's) is
    /// computed once and is the same in key and row.
    fn bound_row(&mut self, table: &TableDef, row: &[Scalar]) -> Coded<Vec<Scalar>> {
        row.iter()
            .zip(&table.columns)
            .map(|(value, column)| match value {
                Scalar::Constant(_) | Scalar::Input(_) => Ok(value.clone()),
                other if !self.hoists(other) => Ok(other.clone()),
                other => match self.part(other, column.ty)? {
                    KeyPart::Input(number) => Ok(Scalar::Input(number)),
                    KeyPart::Const(_) => Ok(other.clone()),
                },
            })
            .collect()
    }

    fn insert_accesses(&mut self, insert: &PointInsert, row: &[Scalar]) -> Coded<()> {
        let def = &insert.table;
        let conflict_on_secondary = insert
            .on_conflict
            .as_ref()
            .is_some_and(|conflict| !conflict.arbiter.primary);
        if conflict_on_secondary {
            self.b.add_access(Access::table(AccessKind::WriteTable, def.id));
            return Ok(());
        }
        for index in def.indexes.iter().filter(|index| index.unique) {
            let parts = self.row_parts(def, index, row)?;
            if index.primary {
                let kind = match insert.on_conflict {
                    Some(_) => AccessKind::WriteRow,
                    None => AccessKind::InsertRow,
                };
                self.declare_row(kind, def, &parts);
                continue;
            }
            let known: Vec<KeyPart> = parts.iter().filter_map(|part| *part).collect();
            self.b.add_access(match known.len() == parts.len() {
                true => Access::new(AccessKind::WriteValue(index.id), def.id, known),
                false => Access::table(AccessKind::WriteTable, def.id),
            });
        }
        if def.primary_key.is_none() {
            self.b
                .add_access(Access::new(AccessKind::InsertRow, def.id, Vec::new()));
        }
        Ok(())
    }

    fn insert_row(
        &mut self,
        insert: &PointInsert,
        table: TableNo,
        row: &[Scalar],
        sink: Sink<'_>,
    ) -> Coded<()> {
        let buffer = self.b.row_buffer();
        self.remark(|_| insert.table.name.clone());
        self.b.row(buffer, table);
        for ((number, value), column) in row.iter().enumerate().zip(&insert.table.columns) {
            if *value != Scalar::Constant(Value::Null) {
                let mark = self.b.mark();
                self.set_named(buffer, number, value, column)?;
                self.b.release_to(mark);
            }
        }
        let cp = self.b.collect_register();
        let status = self.b.register();
        self.remark(|_| format!("into {}", insert.table.name));
        self.b.insert(cp, table, buffer);
        self.b.ret(status, cp);
        self.counted(sink, status);
        self.returning(&insert.table, cp, &insert.returning, sink)
    }

    /// Sets a column of a table's row, with the column's name as a remark.
    fn set_named(
        &mut self,
        buffer: RowBuf,
        number: usize,
        value: &Scalar,
        column: &weft_store::ColumnDef,
    ) -> Coded<()> {
        self.set_column(buffer, number as u16, value, column.ty)?;
        self.remark_before(|_| format!("{} =", column.name));
        Ok(())
    }

    fn upsert_row(
        &mut self,
        insert: &PointInsert,
        conflict: &PointConflict,
        update: Option<&ConflictRow>,
        table: TableNo,
        row: &[Scalar],
        sink: Sink<'_>,
    ) -> Coded<()> {
        let def = &insert.table;
        let values: Vec<Scalar> = conflict
            .arbiter
            .columns
            .iter()
            .filter_map(|&column| row.get(column).cloned())
            .collect();
        let sources = self.arbiter_sources(def, &conflict.arbiter, &values)?;
        let key = self.build_key(&sources)?;
        let index = self.b.index(table, conflict.arbiter.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        self.b.search(cp, table, index, key);
        self.b.ret(status, cp);
        let (found, done) = (self.b.label(), self.b.label());
        self.b.branch_true(status, found);
        let mark = self.b.mark();
        self.insert_row(insert, table, row, sink)?;
        self.b.release_to(mark);
        self.b.jump(done);
        self.b.bind(found);
        if let Some(update) = update {
            self.set_row(def, cp);
            if let Some(condition) = &update.condition {
                self.conditions(std::slice::from_ref(condition), done)?;
            }
            self.update_row(def, cp, &update.assignments, sink)?;
            self.returning(def, cp, &insert.returning, sink)?;
        }
        self.b.bind(done);
        Ok(())
    }

    /// The arbiter's key of a new row, with values of exactly the columns' types.
    fn arbiter_sources(
        &mut self,
        table: &TableDef,
        arbiter: &IndexDef,
        values: &[Scalar],
    ) -> Coded<Vec<KeySource>> {
        values
            .iter()
            .zip(&arbiter.columns)
            .map(|(value, &column)| {
                let ty = table.columns.get(column).map(|column| column.ty);
                self.key_source(value, ty.ok_or(Refusal::General)?)
            })
            .collect()
    }

    // ---- UPDATE, DELETE ----

    /// Updates the row in `cp`, from which assignments read columns.
    fn update_row(
        &mut self,
        def: &TableDef,
        cp: Cp,
        assignments: &[(usize, Scalar)],
        sink: Sink<'_>,
    ) -> Coded<()> {
        let buffer = self.b.row_buffer();
        self.b.copyrow(buffer, cp);
        for (number, value) in assignments {
            let column = def.columns.get(*number).ok_or(Refusal::General)?;
            let mark = self.b.mark();
            if *value == Scalar::Constant(Value::Null) {
                self.b.setnull(buffer, *number as u16);
            } else {
                self.set_named(buffer, *number, value, column)?;
            }
            self.b.release_to(mark);
        }
        let status = self.b.register();
        self.remark(|_| def.name.clone());
        self.b.update(cp, buffer);
        self.b.ret(status, cp);
        self.counted(sink, status);
        Ok(())
    }

    /// Updates or deletes the row in `cp`.
    fn change_row(
        &mut self,
        change: &PointChange,
        cp: Cp,
        status: weft_program::Reg,
        sink: Sink<'_>,
    ) -> Coded<()> {
        match &change.assignments {
            Some(assignments) => {
                self.update_row(&change.table, cp, assignments, sink)?;
                self.returning(&change.table, cp, &change.returning, sink)
            }
            None => {
                self.returning(&change.table, cp, &change.returning, sink)?;
                self.remark(|_| change.table.name.clone());
                self.b.remove(cp);
                self.b.ret(status, cp);
                self.counted(sink, status);
                Ok(())
            }
        }
    }

    fn change(&mut self, change: &PointChange, sink: Sink<'_>) -> Coded<()> {
        let strict = matches!(sink, Sink::Variables { strict: true, .. });
        if change.whole_table {
            let access = Access::table(AccessKind::WriteTable, change.table.id);
            self.b.add_access(access);
        }
        match &change.path {
            Path::Key { index, values } => {
                let table = self.b.table(&change.table);
                let sources = self.key_sources(&change.table, index, values)?;
                if !change.whole_table {
                    let parts: Vec<_> = sources.iter().map(|source| source.declared).collect();
                    self.declare_row(AccessKind::WriteRow, &change.table, &parts);
                }
                let key = self.build_key(&sources)?;
                let ordinal = self.b.index(table, index.id);
                let (cp, status) = (self.b.collect_register(), self.b.register());
                let (missing, done) = (self.b.label(), self.b.label());
                self.remark(|_| format!("{} by {}", change.table.name, index.name));
                self.b.search(cp, table, ordinal, key);
                self.b.ret(status, cp);
                self.b.branch_not_true(status, missing);
                self.set_row(&change.table, cp);
                self.conditions(&change.residual, missing)?;
                self.change_row(change, cp, status, sink)?;
                self.end_row(
                    sink,
                    Missing {
                        missing,
                        done,
                        strict,
                    },
                )
            }
            Path::Keys { .. } => self.for_each_key(
                &change.table,
                &change.path,
                &change.residual,
                AccessKind::WriteRow,
                |coder, at| coder.change_row(change, at.cp, at.status, sink),
            ),
            Path::Range { .. } if matches!(sink, Sink::Variables { .. }) => Err(Refusal::General),
            Path::Range { .. } => {
                let access = (!change.whole_table).then_some(AccessKind::WriteRange);
                self.for_each_row(
                    &change.table,
                    &change.path,
                    &change.residual,
                    None,
                    access,
                    |coder, at| coder.change_row(change, at.cp, at.status, sink),
                )
            }
        }
    }

    // ---- SELECT ----

    fn select(&mut self, select: &PointSelect, sink: Sink<'_>) -> Coded<()> {
        self.check_counts(select)?;
        match &select.path {
            _ if !select.aggregates.is_empty() => self.select_aggregates(select, sink),
            Path::Key { index, values } => self.select_by_key(select, index, values, sink),
            Path::Keys { .. } => self.select_by_keys(select, sink),
            Path::Range { .. } => self.select_by_range(select, sink),
        }
    }

    /// Searches for the row that a SELECT by key names; leaves the status in a register.
    pub(super) fn search_row(
        &mut self,
        select: &PointSelect,
        index: &IndexDef,
        values: &[Scalar],
    ) -> Coded<(Cp, weft_program::Reg)> {
        let table = self.b.table(&select.table);
        let sources = self.key_sources(&select.table, index, values)?;
        match (index.primary, select.locks) {
            (true, locks) => {
                let parts: Vec<_> = sources.iter().map(|source| source.declared).collect();
                let kind = if locks {
                    AccessKind::WriteRow
                } else {
                    AccessKind::ReadRow
                };
                self.declare_row(kind, &select.table, &parts);
            }
            (false, false) => self.declare_secondary(&select.table, index, &sources),
            (false, true) => return Err(Refusal::General),
        }
        let key = self.build_key(&sources)?;
        let ordinal = self.b.index(table, index.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        self.remark(|_| format!("{} by {}", select.table.name, index.name));
        self.b.search(cp, table, ordinal, key);
        self.b.ret(status, cp);
        Ok((cp, status))
    }

    fn select_by_key(
        &mut self,
        select: &PointSelect,
        index: &IndexDef,
        values: &[Scalar],
        sink: Sink<'_>,
    ) -> Coded<()> {
        let (cp, status) = self.search_row(select, index, values)?;
        let (missing, done) = (self.b.label(), self.b.label());
        let strict = matches!(sink, Sink::Variables { strict: true, .. });
        self.set_row(&select.table, cp);
        let plain = select
            .output
            .iter()
            .all(|item| matches!(item.scalar, Scalar::Column(_)));
        if matches!(sink, Sink::Variables { .. }) && plain && select.residual.is_empty() && !strict {
            // Columns of a missing row are NULL, which is what SELECT INTO assigns if it finds none.
            self.emit_row(&select.output, sink)?;
            self.note_found(status);
            return Ok(());
        }
        self.b.branch_not_true(status, missing);
        self.conditions(&select.residual, missing)?;
        self.emit_row(&select.output, sink)?;
        if !matches!(sink, Sink::Statement(_)) {
            self.note_found(status);
        }
        self.end_row(
            sink,
            Missing {
                missing,
                done,
                strict,
            },
        )
    }
}
