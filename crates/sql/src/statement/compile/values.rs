//! Code for values that do not fit into registers: texts, numerics and the like, computed into columns of
//! the workspace.
//!
//! A value is computed in its destination unless the destination is one of its inputs; then it is computed
//! in a temporary column and copied. The arguments of a function are in adjacent columns, each computed in
//! place.

use weft_program::{Class, Cond, Datum, Function, Op, Reg, RowBuf};
use weft_types::{SqlType, Value, cast_context};

use super::super::bind::Refusal;
use super::super::scalar::Scalar;
use super::block::Place;
use super::code::Coder;

type Coded<T> = Result<T, Refusal>;

/// The type without length or scale, as functions and texts under construction use it.
fn plain(ty: &SqlType) -> SqlType {
    match ty {
        SqlType::Varchar(_) => SqlType::Text,
        SqlType::Numeric(_) => SqlType::Numeric(None),
        other => *other,
    }
}

/// Whether the conversion depends on the session's time zone.
pub(in crate::statement) fn needs_zone(from: &SqlType, to: &SqlType) -> bool {
    matches!(from, SqlType::TimestampTz) != matches!(to, SqlType::TimestampTz)
}

impl Coder {
    /// A value that is neither an input nor a plain column, as an operand of CMPV or CAT.
    pub(super) fn computed_datum(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Datum> {
        let (buffer, column) = self.workspace_value(scalar, ty)?;
        Ok(Datum::Buffer {
            buffer: buffer.0,
            column,
        })
    }

    /// The workspace column that holds a value: a variable's own, or a temporary one.
    pub(super) fn workspace_value(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<(RowBuf, u16)> {
        let workspace = self.workspace();
        if let Scalar::Variable(number) = scalar
            && let Place::Workspace(column) = self.variable(*number)?.place
        {
            return Ok((workspace, column));
        }
        if let Scalar::Aggregate(number) = scalar
            && let Place::Workspace(column) = self.accumulator(*number)?.place
        {
            return Ok((workspace, column));
        }
        let column = self.temporary(ty);
        self.set_column(workspace, column, scalar, ty)?;
        Ok((workspace, column))
    }

    /// Computes into a register a value that only workspace instructions can compute.
    pub(super) fn register_from_workspace(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Reg> {
        let (workspace, column) = (self.workspace(), self.temporary(ty));
        self.set_computed(workspace, column, scalar, ty)?;
        let to = self.b.register();
        self.b.ldbuf(to, workspace, column);
        Ok(to)
    }

    /// Sets a column to a value that is neither an input nor in a register.
    pub(super) fn set_computed(
        &mut self,
        buffer: RowBuf,
        column: u16,
        scalar: &Scalar,
        ty: SqlType,
    ) -> Coded<()> {
        match scalar {
            Scalar::Variable(number) => {
                let variable = self.variable(*number)?;
                let (place, from, name) = (variable.place, variable.ty, variable.name.clone());
                let Place::Workspace(source) = place else {
                    return Err(Refusal::General);
                };
                if Class::of(&from) != Class::of(&ty) {
                    return Err(Refusal::General);
                }
                let workspace = self.workspace();
                self.remark(|_| name);
                self.b.setbuf(buffer, column, workspace, source);
                Ok(())
            }
            Scalar::Aggregate(number) => {
                let accumulator = self.accumulator(*number)?;
                let Place::Workspace(source) = accumulator.place else {
                    return Err(Refusal::General);
                };
                if Class::of(&accumulator.ty) != Class::of(&ty) {
                    return Err(Refusal::General);
                }
                let workspace = self.workspace();
                self.b.setbuf(buffer, column, workspace, source);
                Ok(())
            }
            Scalar::Column(source) => self.set_checked(buffer, column, *source, ty),
            Scalar::Assign(inner, from, to) => {
                self.set_converted(Op::Assign, (buffer, column), inner, (*from, *to), ty)
            }
            Scalar::Cast(inner, from, to) => {
                self.set_converted(Op::Convert, (buffer, column), inner, (*from, *to), ty)
            }
            _ if ty != plain(&ty) => {
                let (workspace, beside) = self.workspace_value(scalar, plain(&ty))?;
                self.b.setbuf(buffer, column, workspace, beside);
                Ok(())
            }
            Scalar::Concat(left, right) if ty == SqlType::Text => {
                self.set_joined(buffer, column, left, right)
            }
            Scalar::Left(text, count) if ty == SqlType::Text => {
                let count = self.register(count, SqlType::Int4)?;
                self.set_column(buffer, column, text, SqlType::Text)?;
                self.b.cut(buffer, column, count);
                Ok(())
            }
            Scalar::Call(function, arguments) => self.set_called((buffer, column), *function, arguments, ty),
            Scalar::Case { arms, otherwise } => {
                let done = self.b.label();
                for (condition, value) in arms {
                    let next = self.b.label();
                    self.branch_unless(condition, next)?;
                    let mark = self.b.mark();
                    self.set_column(buffer, column, value, ty)?;
                    self.b.release_to(mark);
                    self.b.jump(done);
                    self.b.bind(next);
                }
                self.set_column(buffer, column, otherwise, ty)?;
                self.b.bind(done);
                Ok(())
            }
            Scalar::Coalesce(items) => self.set_first(buffer, column, items, ty),
            Scalar::Extreme { greatest, items } => self.set_extreme((buffer, column), *greatest, items, ty),
            _ => Err(Refusal::General),
        }
    }

    /// Jumps unless a condition is true; AND and OR short-circuit.
    pub(crate) fn branch_unless(&mut self, condition: &Scalar, target: weft_program::Label) -> Coded<()> {
        match condition {
            Scalar::And(left, right) => {
                self.branch_unless(left, target)?;
                self.branch_unless(right, target)
            }
            Scalar::Or(left, right) => {
                let (second, holds) = (self.b.label(), self.b.label());
                self.branch_unless(left, second)?;
                self.b.jump(holds);
                self.b.bind(second);
                self.branch_unless(right, target)?;
                self.b.bind(holds);
                Ok(())
            }
            condition => {
                let mark = self.b.mark();
                let truth = self.register(condition, SqlType::Bool)?;
                self.b.branch_not_true(truth, target);
                self.b.release_to(mark);
                Ok(())
            }
        }
    }

    /// A conversion whose result is stored in a column.
    fn set_converted(
        &mut self,
        op: Op,
        (buffer, column): (RowBuf, u16),
        inner: &Scalar,
        (from, to): (SqlType, SqlType),
        ty: SqlType,
    ) -> Coded<()> {
        if needs_zone(&from, &to) {
            return Err(Refusal::General);
        }
        // A register is appended as text without the workspace, except a boolean, which converts to other
        // words.
        if Class::of(&to) == Class::Text
            && to.typmod() == -1
            && ty == SqlType::Text
            && Class::of(&from).is_register()
            && from != SqlType::Bool
        {
            let register = self.register(inner, from)?;
            let empty = self.b.constant(SqlType::Text, Value::Text(String::new()));
            self.b.setk(buffer, column, empty);
            self.b.catr(buffer, column, register, Class::of(&from));
            return Ok(());
        }
        // The destination column checks the length, as an assignment does.
        let checks = to.typmod() == -1 || op == Op::Assign && to == ty;
        if Class::of(&from) == Class::of(&to) && checks {
            return match self.hoists(inner) && ty.typmod() != -1 {
                true => {
                    let (workspace, beside) = self.workspace_value(inner, from)?;
                    self.b.setbuf(buffer, column, workspace, beside);
                    Ok(())
                }
                false => self.set_column(buffer, column, inner, ty),
            };
        }
        if !(from.same_storage(&to) || cast_context(&from, &to).is_some()) {
            return Err(Refusal::General);
        }
        let (workspace, source) = self.workspace_value(inner, from)?;
        if to == ty {
            self.b.convert(op, buffer, column, workspace, source);
            return Ok(());
        }
        let beside = self.temporary(to);
        self.b.convert(op, workspace, beside, workspace, source);
        self.b.setbuf(buffer, column, workspace, beside);
        Ok(())
    }

    fn set_called(
        &mut self,
        (buffer, column): (RowBuf, u16),
        function: Function,
        arguments: &[Scalar],
        ty: SqlType,
    ) -> Coded<()> {
        let workspace = self.workspace();
        let first = self.argument_columns(function)?;
        for ((number, argument), ty) in arguments.iter().enumerate().zip(function.arguments()) {
            let mark = self.b.mark();
            self.set_column(workspace, first + number as u16, argument, *ty)?;
            self.b.release_to(mark);
        }
        let result = function.result();
        if buffer == workspace && ty == result {
            self.b.call(workspace, column, function, first);
            return Ok(());
        }
        let beside = self.temporary(result);
        self.b.call(workspace, beside, function, first);
        if Class::of(&result) != Class::of(&ty) {
            return Err(Refusal::General);
        }
        self.b.setbuf(buffer, column, workspace, beside);
        Ok(())
    }

    /// Copies a column of the row to a column with another length.
    fn set_checked(&mut self, buffer: RowBuf, column: u16, source: u16, ty: SqlType) -> Coded<()> {
        let from = self.column_type(source)?;
        if Class::of(&from) != Class::of(&ty) {
            return Err(Refusal::General);
        }
        let workspace = self.workspace();
        let copy = self.temporary(from);
        let cp = self.cp()?;
        self.b.setcol(workspace, copy, cp, source);
        self.b.setbuf(buffer, column, workspace, copy);
        Ok(())
    }

    fn set_joined(&mut self, buffer: RowBuf, column: u16, left: &Scalar, right: &Scalar) -> Coded<()> {
        let right = self.datum(right, SqlType::Text)?;
        // The right operand may be the destination column itself.
        let (target, direct) = match right {
            Datum::Buffer {
                buffer: same,
                column: of,
            } if same == buffer.0 && of == column => (self.temporary(SqlType::Text), false),
            _ => (column, true),
        };
        let into = if direct { buffer } else { self.workspace() };
        self.set_column(into, target, left, SqlType::Text)?;
        self.b.cat(into, target, right);
        if !direct {
            self.b.setbuf(buffer, column, into, target);
        }
        Ok(())
    }

    /// The order of a value and itself: NULL if and only if the value is NULL.
    pub(super) fn order_with_itself(&mut self, datum: Datum) -> Reg {
        let order = self.b.register();
        self.b.cmpv(order, datum, datum);
        order
    }

    /// COALESCE.
    fn set_first(&mut self, buffer: RowBuf, column: u16, items: &[Scalar], ty: SqlType) -> Coded<()> {
        let (workspace, beside) = (self.workspace(), self.temporary(ty));
        let datum = Datum::Buffer {
            buffer: workspace.0,
            column: beside,
        };
        let done = self.b.label();
        for (number, item) in items.iter().enumerate() {
            let mark = self.b.mark();
            self.set_column(workspace, beside, item, ty)?;
            if number + 1 < items.len() {
                let order = self.order_with_itself(datum);
                self.b.branch_not_null(order, done);
            }
            self.b.release_to(mark);
        }
        self.b.bind(done);
        self.b.setbuf(buffer, column, workspace, beside);
        Ok(())
    }

    /// `greatest`, `least`.
    fn set_extreme(
        &mut self,
        (buffer, column): (RowBuf, u16),
        greatest: bool,
        items: &[Scalar],
        ty: SqlType,
    ) -> Coded<()> {
        let (workspace, beside) = (self.workspace(), self.temporary(ty));
        let found = Datum::Buffer {
            buffer: workspace.0,
            column: beside,
        };
        self.b.setnull(workspace, beside);
        for item in items {
            let mark = self.b.mark();
            let (_, other) = self.workspace_value(item, ty)?;
            let datum = Datum::Buffer {
                buffer: workspace.0,
                column: other,
            };
            let (take, next) = (self.b.label(), self.b.label());
            let is_null = self.order_with_itself(found);
            self.b.branch_null(is_null, take);
            let better = self.b.register();
            let cond = if greatest { Cond::Gt } else { Cond::Lt };
            self.b.compare_values(cond, better, datum, found);
            self.b.branch_not_true(better, next);
            self.b.bind(take);
            self.b.setbuf(workspace, beside, workspace, other);
            self.b.bind(next);
            self.b.release_to(mark);
        }
        self.b.setbuf(buffer, column, workspace, beside);
        Ok(())
    }
}
