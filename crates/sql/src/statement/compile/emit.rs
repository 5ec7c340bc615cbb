//! Code for statements: each becomes a stretch of the logic section that issues its DB instructions and
//! collects them.
//!
//! ```text
//!   INSERT          ROW, SET.., INSERT, RET, COUNT                      per row
//!   .. ON CONFLICT  KEY.., SEARCH, RET; found: (UPDATE) else INSERT     per row
//!   UPDATE, DELETE  KEY.., SEARCH, RET, residual, COPYROW, SET.., UPDATE | REMOVE, RET, COUNT
//!   SELECT by key   KEY.., SEARCH, RET, residual, OUTROW, SET.., EMIT
//!   SELECT by range KEY.., KEY.., SCAN, RET, loop: residual, OUTROW, SET.., EMIT, NEXT
//! ```
//!
//! Every statement declares what it touches; keys of accesses are inputs or constants. A row that is read by
//! a secondary index has a primary key which nobody knows beforehand, so such a read declares the table.

use weft_program::instr::{SCAN_HI_EXCLUSIVE, SCAN_LO_EXCLUSIVE, SCAN_REVERSE};
use weft_program::{Access, AccessKind, Cond, Cp, KeyBuf, KeyPart, Label, RowBuf, TableNo};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::scalar::Scalar;
use super::super::type_rules::base_type;
use super::code::Coder;
use super::point::{
    ConflictRow, OutputItem, Path, PointChange, PointConflict, PointInsert, PointSelect, PointStatement,
    RangeEnd,
};

type Coded<T> = Result<T, Refusal>;

impl<'a> Coder<'a> {
    /// Generates one statement. Registers are given back at its end.
    pub(crate) fn statement(&mut self, statement: &'a PointStatement) -> Coded<()> {
        let number = self.b.statement(statement.output_types());
        let mark = self.b.mark();
        match statement {
            PointStatement::Insert(insert) => self.insert(insert, number)?,
            PointStatement::Change(change) => self.change(change, number)?,
            PointStatement::Select(select) => self.select(select, number)?,
        }
        self.b.release_to(mark);
        Ok(())
    }

    /// Key values as parts, of the index columns' types.
    fn key_parts(&mut self, table: &TableDef, index: &IndexDef, values: &[Scalar]) -> Coded<Vec<KeyPart>> {
        values
            .iter()
            .zip(&index.columns)
            .map(|(value, &column)| {
                let ty = table
                    .columns
                    .get(column)
                    .map(|column| base_type(&column.ty))
                    .ok_or(Refusal::General)?;
                self.part(value, ty)
            })
            .collect()
    }

    fn build_key(&mut self, parts: &[KeyPart]) -> KeyBuf {
        let key = self.b.key_buffer();
        self.b.key(key);
        for part in parts {
            match *part {
                KeyPart::Input(number) => self.b.keyin(key, number),
                KeyPart::Const(number) => self.b.keyk(key, number),
            }
        }
        key
    }

    /// The values that a new row has in an index's columns, as parts of exactly the columns' types.
    fn row_parts(&mut self, table: &TableDef, index: &IndexDef, row: &[Scalar]) -> Coded<Vec<KeyPart>> {
        index
            .columns
            .iter()
            .map(|&column| match (row.get(column), table.columns.get(column)) {
                (Some(value), Some(def)) => self.part(value, def.ty),
                _ => Err(Refusal::General),
            })
            .collect()
    }

    /// Emits the output row of a statement from the current row.
    fn emit_row(&mut self, output: &[OutputItem], statement: u32, buffer: RowBuf) -> Coded<()> {
        self.b.outrow(buffer, statement);
        for (number, item) in output.iter().enumerate() {
            let mark = self.b.mark();
            self.set_column(buffer, number as u16, &item.scalar, item.column.ty)?;
            self.b.release_to(mark);
        }
        self.b.emit(statement, buffer);
        Ok(())
    }

    fn returning(&mut self, table: &'a TableDef, cp: Cp, output: &[OutputItem], statement: u32) -> Coded<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.set_row(table, cp);
        let buffer = self.b.row_buffer();
        self.emit_row(output, statement, buffer)
    }

    /// Jumps to `target` unless all conditions are true.
    fn conditions(&mut self, conditions: &[Scalar], target: Label) -> Coded<()> {
        for condition in conditions {
            let mark = self.b.mark();
            let truth = self.register(condition, SqlType::Bool)?;
            self.b.branch_not_true(truth, target);
            self.b.release_to(mark);
        }
        Ok(())
    }

    // ---- INSERT ----

    fn insert(&mut self, insert: &'a PointInsert, statement: u32) -> Coded<()> {
        let table = self.b.table(&insert.table);
        for (number, row) in insert.rows.iter().enumerate() {
            let mark = self.b.mark();
            let row = &self.bound_row(&insert.table, row)?;
            self.insert_accesses(insert, row)?;
            match &insert.on_conflict {
                None => self.insert_row(insert, table, row, statement)?,
                Some(conflict) => {
                    let update = conflict.updates.as_ref().and_then(|updates| updates.get(number));
                    self.upsert_row(insert, conflict, update, table, row, statement)?;
                }
            }
            self.b.release_to(mark);
        }
        Ok(())
    }

    /// The row with everything that is computed at bind as an input, so that a value which is drawn anew each
    /// time (a sequence's) is drawn once and is the same in key and row.
    fn bound_row(&mut self, table: &TableDef, row: &[Scalar]) -> Coded<Vec<Scalar>> {
        row.iter()
            .zip(&table.columns)
            .map(|(value, column)| match value {
                Scalar::Constant(_) | Scalar::Input(_) => Ok(value.clone()),
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
            let kind = match (index.primary, &insert.on_conflict) {
                (true, Some(_)) => AccessKind::WriteRow,
                (true, None) => AccessKind::InsertRow,
                (false, _) => AccessKind::WriteValue(index.id),
            };
            self.b.add_access(Access::new(kind, def.id, parts));
        }
        if def.primary_key.is_none() {
            self.b
                .add_access(Access::new(AccessKind::InsertRow, def.id, Vec::new()));
        }
        Ok(())
    }

    fn insert_row(
        &mut self,
        insert: &'a PointInsert,
        table: TableNo,
        row: &[Scalar],
        statement: u32,
    ) -> Coded<()> {
        let buffer = self.b.row_buffer();
        self.b.row(buffer, table);
        for ((number, value), column) in row.iter().enumerate().zip(&insert.table.columns) {
            if *value != Scalar::Constant(Value::Null) {
                self.set_column(buffer, number as u16, value, column.ty)?;
            }
        }
        let cp = self.b.collect_register();
        let status = self.b.register();
        self.b.insert(cp, table, buffer);
        self.b.ret(status, cp);
        self.b.count(statement, status);
        self.returning(&insert.table, cp, &insert.returning, statement)
    }

    fn upsert_row(
        &mut self,
        insert: &'a PointInsert,
        conflict: &PointConflict,
        update: Option<&ConflictRow>,
        table: TableNo,
        row: &[Scalar],
        statement: u32,
    ) -> Coded<()> {
        let parts = self.row_parts(&insert.table, &conflict.arbiter, row)?;
        let key = self.build_key(&parts);
        let index = self.b.index(table, conflict.arbiter.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        self.b.search(cp, table, index, key);
        self.b.ret(status, cp);
        let (found, done) = (self.b.label(), self.b.label());
        self.b.branch_true(status, found);
        let mark = self.b.mark();
        self.insert_row(insert, table, row, statement)?;
        self.b.release_to(mark);
        self.b.jump(done);
        self.b.bind(found);
        if let Some(update) = update {
            self.set_row(&insert.table, cp);
            if let Some(condition) = &update.condition {
                self.conditions(std::slice::from_ref(condition), done)?;
            }
            self.update_row(&insert.table, cp, &update.assignments, statement)?;
            self.returning(&insert.table, cp, &insert.returning, statement)?;
        }
        self.b.bind(done);
        Ok(())
    }

    // ---- UPDATE, DELETE ----

    /// Changes the row in `cp`, which the columns of the assignments are read from.
    fn update_row(
        &mut self,
        def: &TableDef,
        cp: Cp,
        assignments: &[(usize, Scalar)],
        statement: u32,
    ) -> Coded<()> {
        let buffer = self.b.row_buffer();
        self.b.copyrow(buffer, cp);
        for (column, value) in assignments {
            let ty = def
                .columns
                .get(*column)
                .map(|column| column.ty)
                .ok_or(Refusal::General)?;
            let mark = self.b.mark();
            if *value == Scalar::Constant(Value::Null) {
                self.b.setnull(buffer, *column as u16);
            } else {
                self.set_column(buffer, *column as u16, value, ty)?;
            }
            self.b.release_to(mark);
        }
        let status = self.b.register();
        self.b.update(cp, buffer);
        self.b.ret(status, cp);
        self.b.count(statement, status);
        Ok(())
    }

    fn change(&mut self, change: &'a PointChange, statement: u32) -> Coded<()> {
        let table = self.b.table(&change.table);
        let parts = self.key_parts(&change.table, &change.index, &change.key)?;
        self.b
            .add_access(Access::new(AccessKind::WriteRow, change.table.id, parts.clone()));
        let key = self.build_key(&parts);
        let index = self.b.index(table, change.index.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        let done = self.b.label();
        self.b.search(cp, table, index, key);
        self.b.ret(status, cp);
        self.b.branch_not_true(status, done);
        self.set_row(&change.table, cp);
        self.conditions(&change.residual, done)?;
        match &change.assignments {
            Some(assignments) => {
                self.update_row(&change.table, cp, assignments, statement)?;
                self.returning(&change.table, cp, &change.returning, statement)?;
            }
            None => {
                self.returning(&change.table, cp, &change.returning, statement)?;
                self.b.remove(cp);
                self.b.ret(status, cp);
                self.b.count(statement, status);
            }
        }
        self.b.bind(done);
        Ok(())
    }

    // ---- SELECT ----

    fn select(&mut self, select: &'a PointSelect, statement: u32) -> Coded<()> {
        match &select.path {
            Path::Key { index, values } => self.select_by_key(select, index, values, statement),
            Path::Range {
                index,
                prefix,
                low,
                high,
                reverse,
            } => self.select_by_range(
                select,
                index,
                prefix,
                [low.as_ref(), high.as_ref()],
                *reverse,
                statement,
            ),
        }
    }

    fn select_by_key(
        &mut self,
        select: &'a PointSelect,
        index: &IndexDef,
        values: &[Scalar],
        statement: u32,
    ) -> Coded<()> {
        let table = self.b.table(&select.table);
        let parts = self.key_parts(&select.table, index, values)?;
        let access = match (index.primary, select.locks) {
            (true, false) => Access::new(AccessKind::ReadRow, select.table.id, parts.clone()),
            (true, true) => Access::new(AccessKind::WriteRow, select.table.id, parts.clone()),
            (false, false) => Access::table(AccessKind::ReadTable, select.table.id),
            (false, true) => return Err(Refusal::General),
        };
        self.b.add_access(access);
        let key = self.build_key(&parts);
        let ordinal = self.b.index(table, index.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        let done = self.b.label();
        self.b.search(cp, table, ordinal, key);
        self.b.ret(status, cp);
        self.b.branch_not_true(status, done);
        self.set_row(&select.table, cp);
        self.conditions(&select.residual, done)?;
        let buffer = self.b.row_buffer();
        self.emit_row(&select.output, statement, buffer)?;
        self.b.bind(done);
        Ok(())
    }

    fn range_keys(
        &mut self,
        select: &PointSelect,
        index: &IndexDef,
        prefix: &[Scalar],
        ends: [Option<&RangeEnd>; 2],
    ) -> Coded<([KeyBuf; 2], u8)> {
        let prefix_parts = self.key_parts(&select.table, index, prefix)?;
        let mut flags = 0;
        let mut bounds = Vec::with_capacity(2);
        for (end, exclusive) in ends.into_iter().zip([SCAN_LO_EXCLUSIVE, SCAN_HI_EXCLUSIVE]) {
            let mut parts = prefix_parts.clone();
            if let Some(end) = end {
                let column = index
                    .columns
                    .get(prefix.len())
                    .and_then(|&column| select.table.columns.get(column));
                let ty = column
                    .map(|column| base_type(&column.ty))
                    .ok_or(Refusal::General)?;
                parts.push(self.part(&end.value, ty)?);
                if end.exclusive {
                    flags |= exclusive;
                }
            }
            bounds.push(parts);
        }
        let (Some(high), Some(low)) = (bounds.pop(), bounds.pop()) else {
            return Err(Refusal::General);
        };
        let keys = [self.build_key(&low), self.build_key(&high)];
        self.b.add_access(match index.primary {
            true => Access::range(select.table.id, low, Some(high)),
            false => Access::table(AccessKind::ReadTable, select.table.id),
        });
        Ok((keys, flags))
    }

    fn select_by_range(
        &mut self,
        select: &'a PointSelect,
        index: &IndexDef,
        prefix: &[Scalar],
        ends: [Option<&RangeEnd>; 2],
        reverse: bool,
        statement: u32,
    ) -> Coded<()> {
        let table = self.b.table(&select.table);
        let ([low, high], mut flags) = self.range_keys(select, index, prefix, ends)?;
        if reverse {
            flags |= SCAN_REVERSE;
        }
        let ordinal = self.b.index(table, index.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        let (more, next, done) = (self.b.label(), self.b.label(), self.b.label());
        let limit = match &select.limit {
            Some(limit) => Some(self.register(limit, SqlType::Int8)?),
            None => None,
        };
        // The scan itself may stop early only if every row that it finds counts.
        let counted = !select.residual.is_empty() || select.offset.is_some();
        let (zero, one) = (self.b.register(), self.b.register());
        self.b.ldi(zero, 0);
        self.b.ldi(one, 1);
        if let Some(limit) = limit.filter(|_| counted) {
            self.refuse_negative(
                limit,
                zero,
                weft_program::RaiseState::InvalidLimit,
                "LIMIT must not be negative",
            );
            self.b.branch(Cond::Le, limit, zero, done);
        }
        let offset = match &select.offset {
            Some(offset) => {
                let offset = self.register(offset, SqlType::Int8)?;
                let state = weft_program::RaiseState::InvalidOffset;
                self.refuse_negative(offset, zero, state, "OFFSET must not be negative");
                Some(offset)
            }
            None => None,
        };
        self.b
            .scan(cp, table, ordinal, low, high, flags, limit.filter(|_| !counted));
        self.b.ret(status, cp);
        self.b.branch_not_true(status, done);
        self.set_row(&select.table, cp);
        self.b.bind(more);
        self.conditions(&select.residual, next)?;
        if let Some(offset) = offset {
            let skipped = self.b.label();
            self.b.branch_null(offset, skipped);
            self.b.branch(Cond::Le, offset, zero, skipped);
            self.b.arithmetic(weft_program::Op::Sub, offset, offset, one);
            self.b.jump(next);
            self.b.bind(skipped);
        }
        let buffer = self.b.row_buffer();
        self.emit_row(&select.output, statement, buffer)?;
        if let Some(limit) = limit.filter(|_| counted) {
            self.b.arithmetic(weft_program::Op::Sub, limit, limit, one);
            self.b.branch(Cond::Le, limit, zero, done);
        }
        self.b.bind(next);
        self.b.next(status, cp);
        self.b.branch_true(status, more);
        self.b.bind(done);
        Ok(())
    }

    fn refuse_negative(
        &mut self,
        register: weft_program::Reg,
        zero: weft_program::Reg,
        state: weft_program::RaiseState,
        message: &str,
    ) {
        let fine = self.b.label();
        self.b.branch_null(register, fine);
        self.b.branch(Cond::Ge, register, zero, fine);
        self.b.raise(state, message);
        self.b.bind(fine);
    }
}
