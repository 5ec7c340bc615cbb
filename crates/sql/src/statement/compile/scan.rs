//! Code for statements over a range of an index: the loop over the rows of a SCAN.
//!
//! ```text
//!         KEY.., KEY.., SCAN, RET; none: done
//!   more: residual; not true: next
//!         code for a row
//!   next: NEXT; there is one: more
//!   done:
//! ```
//!
//! A limit is passed to the scan if every row counts; otherwise a counter enforces it.

use std::sync::Arc;

use weft_program::instr::{SCAN_HI_EXCLUSIVE, SCAN_LO_EXCLUSIVE, SCAN_REVERSE};
use weft_program::{Access, AccessKind, Cond, Cp, KeyBuf, KeyPart, Label, Op, RaiseState, Reg};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::scalar::Scalar;
use super::super::type_rules::base_type;
use super::block::KeySource;
use super::code::Coder;
use super::emit::{Coded, Sink};
use super::point::{Path, PointSelect, RangeEnd};

/// Jump targets of a statement that finds its row or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) missing: Label,
    pub(super) done: Label,
    /// Whether no row is an error.
    pub(super) strict: bool,
}

/// The current row of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtRow {
    /// The collect register that holds the row.
    pub(crate) cp: Cp,
    /// A scratch register for statuses; overwritten before the next row.
    pub(crate) status: Reg,
}

/// LIMIT and OFFSET of a scan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slice<'s> {
    pub(super) limit: Option<&'s Scalar>,
    pub(super) offset: Option<&'s Scalar>,
    /// Whether the loop is left after the first row.
    pub(super) once: bool,
}

/// A SCAN to be issued.
struct Range {
    low: KeyBuf,
    high: KeyBuf,
    flags: u8,
}

impl Coder {
    /// Ends a statement that found its row; binds the target for one without a row.
    pub(super) fn end_row(&mut self, sink: Sink<'_>, at: Missing) -> Coded<()> {
        if matches!(sink, Sink::Variables { .. }) {
            self.b.jump(at.done);
        }
        self.b.bind(at.missing);
        self.no_row(sink, at.strict)?;
        self.b.bind(at.done);
        Ok(())
    }

    /// Sets the variables if there is no row.
    fn no_row(&mut self, sink: Sink<'_>, strict: bool) -> Coded<()> {
        let Sink::Variables { targets, .. } = sink else {
            return Ok(());
        };
        if strict {
            self.b.raise(RaiseState::NoDataFound, "query returned no rows");
            return Ok(());
        }
        for target in targets {
            self.set_variable(*target, &Scalar::Constant(Value::Null))?;
        }
        Ok(())
    }

    /// The keys of a range and its declaration. `access` is what to declare for a range of the
    /// primary key: `None` if something wider is declared.
    fn range(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        prefix: &[Scalar],
        ends: [Option<&RangeEnd>; 2],
        access: Option<AccessKind>,
    ) -> Coded<Range> {
        let equal = self.key_sources(table, index, prefix)?;
        let mut flags = 0;
        let mut bounds = Vec::with_capacity(2);
        for (end, exclusive) in ends.into_iter().zip([SCAN_LO_EXCLUSIVE, SCAN_HI_EXCLUSIVE]) {
            let mut sources = equal.clone();
            if let Some(end) = end {
                for (number, value) in end.values.iter().enumerate() {
                    let column = index
                        .columns
                        .get(prefix.len() + number)
                        .and_then(|&column| table.columns.get(column));
                    let ty = column
                        .map(|column| base_type(&column.ty))
                        .ok_or(Refusal::General)?;
                    sources.push(self.key_source(value, ty)?);
                }
                if end.exclusive {
                    flags |= exclusive;
                }
            }
            bounds.push(sources);
        }
        let (Some(high), Some(low)) = (bounds.pop(), bounds.pop()) else {
            return Err(Refusal::General);
        };
        match (access, index.primary) {
            (None, _) => {}
            (Some(_), false) => self.declare_secondary(table, index, &equal),
            (Some(kind), true) => self.declare_range(kind, table, [&low, &high], &equal),
        }
        Ok(Range {
            low: self.build_key(&low)?,
            high: self.build_key(&high)?,
            flags,
        })
    }

    fn declare_range(
        &mut self,
        kind: AccessKind,
        table: &TableDef,
        bounds: [&[KeySource]; 2],
        equal: &[KeySource],
    ) {
        let known = |sources: &[KeySource]| -> Vec<KeyPart> {
            sources.iter().map_while(|source| source.declared).collect()
        };
        let [low, high] = bounds;
        let (from, to) = (known(low), known(high));
        if from.len() < low.len() || to.len() < high.len() {
            let prefix = known(equal);
            return self.declare_prefix(kind.is_write(), table, prefix);
        }
        self.b.add_access(match kind.is_write() {
            true => Access::write_range(table.id, from, Some(to)),
            false => Access::range(table.id, from, Some(to)),
        });
    }

    /// Runs code for each row of a range that passes the residual conditions. `access` as in
    /// [`Coder::range`].
    pub(super) fn for_each_row(
        &mut self,
        table: &Arc<TableDef>,
        path: &Path,
        residual: &[Scalar],
        slice: Option<Slice<'_>>,
        access: Option<AccessKind>,
        mut at_row: impl FnMut(&mut Coder, AtRow) -> Coded<()>,
    ) -> Coded<()> {
        let Path::Range {
            index,
            prefix,
            low,
            high,
            reverse,
        } = path
        else {
            return Err(Refusal::General);
        };
        let number = self.b.table(table);
        let mut range = self.range(table, index, prefix, [low.as_ref(), high.as_ref()], access)?;
        if *reverse {
            range.flags |= SCAN_REVERSE;
        }
        let ordinal = self.b.index(number, index.id);
        let (cp, status) = (self.b.collect_register(), self.b.register());
        let (more, next, done) = (self.b.label(), self.b.label(), self.b.label());
        let slice = slice.unwrap_or_default();
        let limit = match slice.limit {
            Some(limit) => Some(self.fresh_register(limit, SqlType::Int8)?),
            None => None,
        };
        // The scan itself may stop early only if every row that it finds counts.
        let counted = !residual.is_empty() || slice.offset.is_some();
        let counter = limit.filter(|_| counted);
        let zero_one = match counter.is_some() || slice.offset.is_some() {
            true => {
                let (zero, one) = (self.b.register(), self.b.register());
                self.b.ldi(zero, 0);
                self.b.ldi(one, 1);
                Some((zero, one))
            }
            false => None,
        };
        if let (Some(limit), Some((zero, _))) = (counter, zero_one) {
            self.refuse_negative(
                limit,
                zero,
                RaiseState::InvalidLimit,
                "LIMIT must not be negative",
            );
            self.b.branch(Cond::Le, limit, zero, done);
        }
        let offset = match (slice.offset, zero_one) {
            (Some(offset), Some((zero, _))) => {
                let offset = self.fresh_register(offset, SqlType::Int8)?;
                let state = RaiseState::InvalidOffset;
                self.refuse_negative(offset, zero, state, "OFFSET must not be negative");
                Some(offset)
            }
            _ => None,
        };
        let own_limit = limit.filter(|_| !counted);
        self.remark(|_| format!("{} by {}", table.name, index.name));
        let (low, high, flags) = (range.low, range.high, range.flags);
        self.b.scan(cp, number, ordinal, low, high, flags, own_limit);
        self.b.ret(status, cp);
        self.b.branch_not_true(status, done);
        self.set_row(table, cp);
        self.b.bind(more);
        self.conditions(residual, next)?;
        if let (Some(offset), Some((zero, one))) = (offset, zero_one) {
            let skipped = self.b.label();
            self.b.branch_null(offset, skipped);
            self.b.branch(Cond::Le, offset, zero, skipped);
            self.b.arithmetic(Op::Sub, offset, offset, one);
            self.b.jump(next);
            self.b.bind(skipped);
        }
        at_row(self, AtRow { cp, status })?;
        if let (Some(limit), Some((zero, one))) = (counter, zero_one) {
            self.b.arithmetic(Op::Sub, limit, limit, one);
            self.b.branch(Cond::Le, limit, zero, done);
        }
        self.b.bind(next);
        if !slice.once {
            self.b.next(status, cp);
            self.b.branch_true(status, more);
        }
        self.b.bind(done);
        Ok(())
    }

    /// A separate register, which may be decremented.
    fn fresh_register(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Reg> {
        let register = self.register(scalar, ty)?;
        if !matches!(scalar, Scalar::Variable(_)) {
            return Ok(register);
        }
        let copy = self.b.register();
        self.b.mov(copy, register);
        Ok(copy)
    }

    /// Runs code for each row that a SELECT finds.
    pub(crate) fn for_each_selected(
        &mut self,
        select: &PointSelect,
        at_row: impl FnMut(&mut Coder, AtRow) -> Coded<()>,
    ) -> Coded<()> {
        let slice = Slice {
            limit: select.limit.as_ref(),
            offset: select.offset.as_ref(),
            once: false,
        };
        self.for_each_row(
            &select.table,
            &select.path,
            &select.residual,
            Some(slice),
            Some(AccessKind::ReadRange),
            at_row,
        )
    }

    /// Runs code for the one row that a SELECT by key finds, if it does.
    pub(crate) fn for_one_selected(
        &mut self,
        select: &PointSelect,
        mut at_row: impl FnMut(&mut Coder, AtRow) -> Coded<()>,
    ) -> Coded<()> {
        let Path::Key { index, values } = &select.path else {
            return Err(Refusal::General);
        };
        let (cp, status) = self.search_row(select, index, values)?;
        let done = self.b.label();
        self.b.branch_not_true(status, done);
        self.set_row(&select.table, cp);
        self.conditions(&select.residual, done)?;
        at_row(self, AtRow { cp, status })?;
        self.b.bind(done);
        Ok(())
    }

    /// Runs code for the row of each of several keys, if it passes the residual conditions.
    pub(super) fn for_each_key(
        &mut self,
        table: &Arc<TableDef>,
        path: &Path,
        residual: &[Scalar],
        kind: AccessKind,
        mut at_row: impl FnMut(&mut Coder, AtRow) -> Coded<()>,
    ) -> Coded<()> {
        let Path::Keys { index, keys } = path else {
            return Err(Refusal::General);
        };
        let number = self.b.table(table);
        let ordinal = self.b.index(number, index.id);
        for key in keys {
            let mark = self.b.mark();
            let sources = self.key_sources(table, index, key)?;
            if index.primary {
                let parts: Vec<_> = sources.iter().map(|source| source.declared).collect();
                self.declare_row(kind, table, &parts);
            } else if kind.is_write() {
                return Err(Refusal::General);
            } else {
                self.declare_secondary(table, index, &sources);
            }
            let key = self.build_key(&sources)?;
            let (cp, status) = (self.b.collect_register(), self.b.register());
            let next = self.b.label();
            self.b.search(cp, number, ordinal, key);
            self.b.ret(status, cp);
            self.b.branch_not_true(status, next);
            self.set_row(table, cp);
            self.conditions(residual, next)?;
            at_row(self, AtRow { cp, status })?;
            self.b.bind(next);
            self.b.release_to(mark);
        }
        Ok(())
    }

    pub(super) fn select_by_keys(&mut self, select: &PointSelect, sink: Sink<'_>) -> Coded<()> {
        let kind = match select.locks {
            true => AccessKind::WriteRow,
            false => AccessKind::ReadRow,
        };
        self.for_each_key(&select.table, &select.path, &select.residual, kind, |coder, _| {
            coder.emit_row(&select.output, sink)
        })
    }

    pub(super) fn select_by_range(&mut self, select: &PointSelect, sink: Sink<'_>) -> Coded<()> {
        if let Sink::Variables { strict, .. } = sink {
            return self.select_first(select, sink, strict);
        }
        let found = match sink {
            Sink::Statement(_) => false,
            Sink::Variables { .. } | Sink::Nothing => true,
        };
        self.for_each_selected(select, |coder, at| {
            coder.emit_row(&select.output, sink)?;
            if found {
                coder.note_found(at.status);
            }
            Ok(())
        })
    }

    /// SELECT INTO: the first row.
    fn select_first(&mut self, select: &PointSelect, sink: Sink<'_>, strict: bool) -> Coded<()> {
        let done = self.b.label();
        let mut first = select.clone();
        let plain = select.residual.is_empty() && select.offset.is_none();
        match (plain, strict) {
            (false, true) => return Err(Refusal::General),
            // One row more than needed shows that there are several.
            (true, _) if select.limit.is_none() => {
                first.limit = Some(Scalar::Constant(Value::Int8(1 + i64::from(strict))));
            }
            _ => {}
        }
        let slice = Slice {
            limit: first.limit.as_ref(),
            offset: first.offset.as_ref(),
            once: plain,
        };
        let access = Some(AccessKind::ReadRange);
        let (table, path) = (&select.table, &select.path);
        self.for_each_row(table, path, &select.residual, Some(slice), access, |coder, at| {
            coder.emit_row(&select.output, sink)?;
            coder.note_found(at.status);
            if strict {
                let only = coder.b.label();
                coder.b.next(at.status, at.cp);
                coder.b.branch_not_true(at.status, only);
                coder
                    .b
                    .raise(RaiseState::TooManyRows, "query returned more than one row");
                coder.b.bind(only);
            }
            coder.b.jump(done);
            Ok(())
        })?;
        self.no_row(sink, strict)?;
        self.b.bind(done);
        Ok(())
    }

    /// Checks LIMIT and OFFSET, even if they are applied after the program.
    pub(super) fn check_counts(&mut self, select: &PointSelect) -> Coded<()> {
        let Some(finish) = &select.finish else {
            return Ok(());
        };
        let mark = self.b.mark();
        for (column, state, message) in [
            (
                finish.limit_column(),
                RaiseState::InvalidLimit,
                "LIMIT must not be negative",
            ),
            (
                finish.offset_column(),
                RaiseState::InvalidOffset,
                "OFFSET must not be negative",
            ),
        ] {
            let Some(item) = column.and_then(|column| select.output.get(column)) else {
                continue;
            };
            let zero = self.b.register();
            self.b.ldi(zero, 0);
            let count = self.register(&item.scalar, SqlType::Int8)?;
            self.refuse_negative(count, zero, state, message);
        }
        self.b.release_to(mark);
        Ok(())
    }

    fn refuse_negative(&mut self, register: Reg, zero: Reg, state: RaiseState, message: &str) {
        let fine = self.b.label();
        self.b.branch_null(register, fine);
        self.b.branch(Cond::Ge, register, zero, fine);
        self.b.raise(state, message);
        self.b.bind(fine);
    }
}
