//! Code for aggregates over all rows of a statement.
//!
//! ```text
//!         each accumulator: 0 or NULL
//!         loop over the rows: argument; NULL: next one; else into the accumulator
//!         OUTROW, SET.., EMIT: one row, from the accumulators
//! ```
//!
//! The minimum and maximum of an index's next column need no loop over the rows: each is the first value
//! from its end of the range that is not NULL.
//!
//! An accumulator is a register, or a column of the workspace ([`super::workspace`]) if the type does not
//! fit into a register. Of equal values with different representations (0 and -0, 1.0 and 1.00), `min` and
//! `max` keep the last, as PostgreSQL does.

use weft_program::{AccessKind, Class, Cond, Datum, Function, Label, Op, Reg, RowBuf};
use weft_types::SqlType;

use super::super::bind::Refusal;
use super::super::convert::{AggregateCall, AggregateKind};
use super::super::scalar::Scalar;
use super::block::Place;
use super::code::{Coder, compare_code};
use super::emit::{Coded, Sink};
use super::point::{Path, PointSelect};

/// Where the result of an aggregate is accumulated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accumulator {
    pub(super) place: Place,
    pub(super) ty: SqlType,
}

impl Coder {
    pub(super) fn accumulator(&self, number: u16) -> Coded<Accumulator> {
        let found = self.accumulators.get(usize::from(number)).copied();
        found.ok_or(Refusal::General)
    }

    /// SELECT of aggregates: one row, even if no rows match.
    pub(super) fn select_aggregates(&mut self, select: &PointSelect, sink: Sink<'_>) -> Coded<()> {
        let calls = &select.aggregates;
        let one = self.b.register();
        self.b.ldi(one, 1);
        self.accumulators.clear();
        for call in calls {
            let accumulator = self.new_accumulator(call);
            self.accumulators.push(accumulator);
        }
        let accumulate = |coder: &mut Coder| -> Coded<()> {
            for (number, call) in calls.iter().enumerate() {
                let mark = coder.b.mark();
                coder.accumulate(number as u16, call, one)?;
                coder.b.release_to(mark);
            }
            Ok(())
        };
        match &select.path {
            _ if select.extremes => self.find_extremes(select, one)?,
            Path::Key { .. } => self.for_one_selected(select, |coder, _| accumulate(coder))?,
            Path::Keys { .. } => {
                let (table, path, residual) = (&select.table, &select.path, &select.residual);
                self.for_each_key(table, path, residual, AccessKind::ReadRow, |coder, _| {
                    accumulate(coder)
                })?;
            }
            Path::Range { .. } => self.for_each_selected(select, |coder, _| accumulate(coder))?,
        }
        self.emit_row(&select.output, sink)?;
        for Accumulator { place, ty } in std::mem::take(&mut self.accumulators) {
            if let Place::Workspace(column) = place {
                self.free_column(ty, column);
            }
        }
        Ok(())
    }

    /// Takes the first value from the path's start for `min`, from its end for `max`, skipping NULLs.
    fn find_extremes(&mut self, select: &PointSelect, one: Reg) -> Coded<()> {
        for (number, call) in (0..).zip(&select.aggregates) {
            let mut path = select.path.clone();
            if let Path::Range { reverse, .. } = &mut path {
                *reverse = call.kind == AggregateKind::Max;
            }
            let mark = self.b.mark();
            let found = self.b.label();
            let (table, access) = (&select.table, Some(AccessKind::ReadRange));
            self.for_each_row(table, &path, &select.residual, None, access, |coder, _| {
                coder.accumulate(number, call, one)?;
                let nothing_yet = coder.b.label();
                let accumulator = Scalar::Aggregate(number);
                coder.branch_if_null(&accumulator, nothing_yet)?;
                coder.b.jump(found);
                coder.b.bind(nothing_yet);
                Ok(())
            })?;
            self.b.bind(found);
            self.b.release_to(mark);
        }
        Ok(())
    }

    fn new_accumulator(&mut self, call: &AggregateCall) -> Accumulator {
        let place = match Class::of(&call.ty).is_register() {
            true => {
                let register = self.b.register();
                match call.kind {
                    AggregateKind::Count => self.b.ldi(register, 0),
                    _ => self.b.ldnull(register),
                }
                Place::Register(register)
            }
            false => {
                let (workspace, column) = (self.workspace(), self.workspace_column(call.ty));
                self.b.setnull(workspace, column);
                Place::Workspace(column)
            }
        };
        Accumulator { place, ty: call.ty }
    }

    /// Adds the current row to one aggregate.
    fn accumulate(&mut self, number: u16, call: &AggregateCall, one: Reg) -> Coded<()> {
        let next = self.b.label();
        let Accumulator { place, ty } = self.accumulator(number)?;
        match (call.kind, &call.argument, place) {
            (AggregateKind::Count, argument, Place::Register(count)) => {
                if let Some(argument) = argument {
                    self.branch_if_null(argument, next)?;
                }
                self.b.arithmetic(Op::Add, count, count, one);
            }
            (kind, Some(argument), Place::Register(register)) => {
                let from = self.type_of(argument)?;
                let value = self.register(argument, from)?;
                self.b.branch_null(value, next);
                self.take_value(kind, register, value, ty, next);
            }
            (AggregateKind::Sum, Some(argument), Place::Workspace(column)) => {
                self.sum_in_frame(number, column, argument, ty, next)?;
            }
            (kind, Some(argument), Place::Workspace(column)) => {
                self.extreme_in_frame(kind, column, argument, ty, next)?;
            }
            _ => return Err(Refusal::General),
        }
        self.b.bind(next);
        Ok(())
    }

    fn branch_if_null(&mut self, argument: &Scalar, target: Label) -> Coded<()> {
        let ty = self.type_of(argument)?;
        if Class::of(&ty).is_register() {
            let value = self.register(argument, ty)?;
            self.b.branch_null(value, target);
            return Ok(());
        }
        let truth = self.register(&Scalar::IsNull(Box::new(argument.clone())), SqlType::Bool)?;
        self.b.branch_true(truth, target);
        Ok(())
    }

    /// Accumulates a value that is not NULL; jumps to `next` or falls through.
    fn take_value(&mut self, kind: AggregateKind, to: Reg, value: Reg, ty: SqlType, next: Label) {
        let take = self.b.label();
        self.b.branch_null(to, take);
        match kind {
            AggregateKind::Count | AggregateKind::Sum => {
                self.b.arithmetic(Op::Add, to, to, value);
                self.b.jump(next);
            }
            AggregateKind::Min | AggregateKind::Max => {
                let better = self.b.register();
                self.b.compare(compare_code(&ty), keeps(kind), better, to, value);
                self.b.branch_true(better, next);
            }
        }
        self.b.bind(take);
        self.b.mov(to, value);
    }

    /// The same for a sum that does not fit into a register.
    fn sum_in_frame(
        &mut self,
        number: u16,
        column: u16,
        argument: &Scalar,
        ty: SqlType,
        next: Label,
    ) -> Coded<()> {
        let (workspace, value) = self.workspace_value(argument, ty)?;
        let is_null = self.order_with_itself(buffered(workspace, value));
        self.b.branch_null(is_null, next);
        let take = self.b.label();
        let nothing_yet = self.order_with_itself(buffered(workspace, column));
        self.b.branch_null(nothing_yet, take);
        // The operands must be adjacent; the second is copied.
        let first = self.argument_columns(Function::NumericAdd)?;
        self.set_column(workspace, first, &Scalar::Aggregate(number), ty)?;
        self.b.setbuf(workspace, first + 1, workspace, value);
        self.b.call(workspace, column, Function::NumericAdd, first);
        self.b.jump(next);
        self.b.bind(take);
        self.b.setbuf(workspace, column, workspace, value);
        Ok(())
    }

    /// The same for a minimum or maximum that does not fit into a register.
    fn extreme_in_frame(
        &mut self,
        kind: AggregateKind,
        column: u16,
        argument: &Scalar,
        ty: SqlType,
        next: Label,
    ) -> Coded<()> {
        let value = self.datum(argument, ty)?;
        let is_null = self.order_with_itself(value);
        self.b.branch_null(is_null, next);
        let workspace = self.workspace();
        let found = buffered(workspace, column);
        let take = self.b.label();
        let nothing_yet = self.order_with_itself(found);
        self.b.branch_null(nothing_yet, take);
        let better = self.b.register();
        self.b.compare_values(keeps(kind), better, found, value);
        self.b.branch_true(better, next);
        self.b.bind(take);
        match value {
            Datum::Buffer { column: source, .. } => {
                self.b.setbuf(workspace, column, workspace, source);
                Ok(())
            }
            _ => self.set_column(workspace, column, argument, ty),
        }
    }
}

/// The comparison of the accumulated value with the next one under which it is kept.
fn keeps(kind: AggregateKind) -> Cond {
    match kind {
        AggregateKind::Max => Cond::Gt,
        _ => Cond::Lt,
    }
}

fn buffered(buffer: RowBuf, column: u16) -> Datum {
    Datum::Buffer {
        buffer: buffer.0,
        column,
    }
}
