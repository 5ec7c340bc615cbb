//! Code for expressions: from [`Scalar`]s to instructions on registers.
//!
//! Values that do not depend on a row are never computed by the program: they become inputs or constants.
//! Values that depend on the row must fit into registers: integers, floats, booleans, dates and timestamps.
//! Values of other types may be copied and compared (CMPV); everything else is rejected, and the query
//! engine executes the statement.

use std::sync::Arc;

use weft_base::CatalogVersion;
use weft_program::{Class, Cond, Cp, Datum, KeyPart, Op, ProgramBuilder, Reg, RowBuf};
use weft_store::TableDef;
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::inputs::HiddenInputs;
use super::super::plan::HiddenInput;
use super::super::rights::Need;
use super::super::scalar::{ArithmeticOp, CompareOp, Scalar};
use super::super::type_rules::{base_type, integer_width, is_float, is_integer};
use super::aggregate::Accumulator;
use super::block::{Block, Place};
use super::path::folded;
use super::workspace::Workspace;

/// Generates code for one program.
pub(crate) struct Coder {
    pub(crate) b: ProgramBuilder,
    hidden: HiddenInputs,
    /// The row from which columns are read.
    row: Option<(Arc<TableDef>, Cp)>,
    /// The variables, inside a procedure.
    pub(crate) block: Option<Block>,
    /// Storage of values that do not fit into registers.
    pub(crate) work: Workspace,
    /// What the statements so far do to which tables.
    pub(crate) needs: Vec<Need>,
    /// The aggregates of the statement being compiled, by number.
    pub(super) accumulators: Vec<Accumulator>,
}

type Coded<T> = Result<T, Refusal>;

impl Coder {
    /// An empty program whose first inputs are the parameters.
    pub(crate) fn new(version: CatalogVersion, params: &[SqlType]) -> Self {
        let mut b = ProgramBuilder::new(version);
        for ty in params {
            b.input(*ty);
        }
        Coder {
            b,
            hidden: HiddenInputs::after(params.len()),
            row: None,
            block: None,
            work: Workspace::default(),
            accumulators: Vec::new(),
            needs: Vec::new(),
        }
    }

    /// Notes what a statement does to which table.
    pub(crate) fn note_need(&mut self, need: Need) {
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }

    /// The builder and the hidden inputs.
    pub(crate) fn finish(self) -> (ProgramBuilder, Vec<HiddenInput>) {
        (self.b, self.hidden.finish())
    }

    /// From here on, columns refer to the row in `cp`.
    pub(crate) fn set_row(&mut self, table: &Arc<TableDef>, cp: Cp) {
        self.row = Some((Arc::clone(table), cp));
    }

    /// Takes the row from which columns are read, to be restored by [`Coder::restore_row`].
    pub(crate) fn take_row(&mut self) -> Option<(Arc<TableDef>, Cp)> {
        self.row.take()
    }

    /// Columns refer to an earlier row again.
    pub(crate) fn restore_row(&mut self, row: Option<(Arc<TableDef>, Cp)>) {
        self.row = row;
    }

    pub(super) fn cp(&self) -> Coded<Cp> {
        self.row.as_ref().map(|(_, cp)| *cp).ok_or(Refusal::General)
    }

    /// A remark about the next instruction, for EXPLAIN of a procedure.
    pub(crate) fn remark(&mut self, text: impl FnOnce(&Coder) -> String) {
        if self.block.is_none() {
            return;
        }
        let (pc, text) = (self.b.position(), text(self));
        if let Some(block) = &mut self.block {
            block.remarks.push((pc, text));
        }
    }

    /// Prepends text to the remark about the last instruction, or makes it the remark.
    pub(crate) fn remark_before(&mut self, text: impl FnOnce(&Coder) -> String) {
        let Some(last) = self.b.position().checked_sub(1) else {
            return;
        };
        if self.block.is_none() {
            return;
        }
        let text = text(self);
        if let Some(block) = &mut self.block {
            match block.remarks.last_mut() {
                Some((pc, old)) if *pc == last => *old = format!("{text} {old}"),
                _ => block.remarks.push((last, text)),
            }
        }
    }

    pub(super) fn column_name(&self, column: u16) -> String {
        let Some((table, _)) = &self.row else {
            return String::new();
        };
        let name = table
            .columns
            .get(usize::from(column))
            .map_or("?", |def| &def.name);
        format!("{}.{name}", table.name)
    }

    pub(super) fn column_type(&self, column: u16) -> Coded<SqlType> {
        self.row
            .as_ref()
            .and_then(|(table, _)| table.columns.get(usize::from(column)))
            .map(|column| column.ty)
            .ok_or(Refusal::General)
    }

    /// The type of a scalar, as far as its nodes tell; for constants, that of the value.
    pub(crate) fn type_of(&self, scalar: &Scalar) -> Coded<SqlType> {
        Ok(match scalar {
            Scalar::Constant(value) => value.sql_type().unwrap_or(SqlType::Text),
            Scalar::Input(number) => self
                .b
                .inputs()
                .get(usize::from(*number))
                .copied()
                .ok_or(Refusal::General)?,
            Scalar::Column(column) => self.column_type(*column)?,
            Scalar::Variable(number) => self.variable(*number)?.ty,
            Scalar::Aggregate(number) => self.accumulator(*number)?.ty,
            Scalar::OrNull(inner) => self.type_of(inner)?,
            Scalar::Session(which) => which.ty(),
            Scalar::NextValue(_) | Scalar::CurrentValue(_) => SqlType::Int8,
            Scalar::RandomUuid => SqlType::Uuid,
            Scalar::Random => SqlType::Float8,
            Scalar::Cast(_, _, to) | Scalar::Assign(_, _, to) => *to,
            Scalar::ExactKey(_, to) | Scalar::ClampKey(_, to) => *to,
            Scalar::Negate(inner) => self.type_of(inner)?,
            Scalar::Arithmetic(_, left, right) => self.side_type(left, right)?,
            Scalar::Setting(_) | Scalar::Concat(..) | Scalar::Left(..) => SqlType::Text,
            Scalar::Call(function, _) => function.result(),
            Scalar::Compare(..) | Scalar::And(..) | Scalar::Or(..) | Scalar::Not(_) | Scalar::IsNull(_) => {
                SqlType::Bool
            }
            Scalar::Coalesce(items) | Scalar::Extreme { items, .. } => self.first_type(items.iter())?,
            Scalar::Case { arms, otherwise } => {
                let values = arms.iter().map(|(_, value)| value);
                self.first_type(values.chain([otherwise.as_ref()]))?
            }
        })
    }

    fn first_type<'s>(&self, mut items: impl Iterator<Item = &'s Scalar>) -> Coded<SqlType> {
        let typed = items.find(|item| !matches!(item, Scalar::Constant(Value::Null)));
        self.type_of(typed.ok_or(Refusal::General)?)
    }

    /// The type on which an operator works: that of the operand that is not a bare NULL.
    fn side_type(&self, left: &Scalar, right: &Scalar) -> Coded<SqlType> {
        match left {
            Scalar::Constant(Value::Null) => self.type_of(right),
            _ => self.type_of(left),
        }
    }

    /// A value that does not depend on a row, as an input or a constant of the given type.
    pub(crate) fn part(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<KeyPart> {
        match folded(scalar.clone()) {
            Scalar::Constant(value) => Ok(KeyPart::Const(self.b.constant(ty, value))),
            other if other.is_dynamic() => Err(Refusal::General),
            other if other.is_volatile() && self.block.as_ref().is_some_and(|block| block.loops > 0) => {
                Err(Refusal::General)
            }
            other
                if other.may_be_refused() && self.block.as_ref().is_some_and(|block| block.protected > 0) =>
            {
                Err(Refusal::General)
            }
            other => {
                let (number, new) = self.hidden.number(other, ty);
                if new && usize::from(self.b.input(ty)) != number {
                    return Err(Refusal::General);
                }
                u16::try_from(number)
                    .map(KeyPart::Input)
                    .map_err(|_| Refusal::General)
            }
        }
    }

    /// A value of any type as an operand of CMPV or CAT.
    pub(super) fn datum(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Datum> {
        if !matches!(scalar, Scalar::Column(_)) && !self.hoists(scalar) {
            return self.computed_datum(scalar, base_type(&ty));
        }
        if let Scalar::Column(column) = scalar {
            return Ok(Datum::Column {
                cp: self.cp()?.0,
                column: *column,
            });
        }
        Ok(match self.part(scalar, base_type(&ty))? {
            KeyPart::Input(number) => Datum::Input(number),
            KeyPart::Const(number) => Datum::Const(number),
        })
    }

    /// Loads an input or a constant.
    pub(super) fn load_part(&mut self, to: Reg, part: KeyPart) {
        match part {
            KeyPart::Input(number) => self.b.ldin(to, number),
            KeyPart::Const(number) => self.b.ldk(to, number),
        }
    }

    /// Computes a scalar into a fresh register. `ty` is the type that the context expects, for a bare NULL.
    pub(crate) fn register(&mut self, scalar: &Scalar, ty: SqlType) -> Coded<Reg> {
        if self.hoists(scalar) {
            if !Class::of(&ty).is_register() {
                return Err(Refusal::General);
            }
            let part = self.part(scalar, ty)?;
            let to = self.b.register();
            self.load_part(to, part);
            return Ok(to);
        }
        match scalar {
            Scalar::Column(column) => {
                if !Class::of(&self.column_type(*column)?).is_register() {
                    return Err(Refusal::General);
                }
                let cp = self.cp()?;
                let to = self.b.register();
                self.remark(|coder| coder.column_name(*column));
                self.b.ldcol(to, cp, *column);
                Ok(to)
            }
            Scalar::Variable(number) => self.variable_register(*number),
            Scalar::Aggregate(number) => match self.accumulator(*number)?.place {
                Place::Register(register) => Ok(register),
                Place::Workspace(_) => Err(Refusal::General),
            },
            Scalar::ExactKey(inner, to) => self.exact_key(inner, *to),
            Scalar::ClampKey(inner, to) => self.clamp_key(inner, *to),
            Scalar::Negate(inner) => self.negate(inner),
            Scalar::Arithmetic(op, left, right) => self.arithmetic(*op, left, right),
            Scalar::Compare(op, left, right) => self.compare(*op, left, right),
            Scalar::And(left, right) => self.logic(Op::And, left, right),
            Scalar::Or(left, right) => self.logic(Op::Or, left, right),
            Scalar::Not(inner) => {
                let from = self.register(inner, SqlType::Bool)?;
                let to = self.b.register();
                self.b.unary(Op::Not, to, from);
                Ok(to)
            }
            Scalar::IsNull(inner) => self.is_null(inner),
            Scalar::Cast(inner, from, to) => self.convert(inner, *from, *to, false),
            Scalar::Assign(inner, from, to) => self.convert(inner, *from, *to, true),
            Scalar::Coalesce(items) => self.coalesce(items, ty),
            Scalar::Case { arms, otherwise } => self.case(arms, otherwise, ty),
            Scalar::Extreme { greatest, items } => self.extreme(*greatest, items, ty),
            Scalar::Call(function, _) if Class::of(&function.result()).is_register() => {
                self.register_from_workspace(scalar, function.result())
            }
            _ => Err(Refusal::General),
        }
    }

    fn negate(&mut self, inner: &Scalar) -> Coded<Reg> {
        let ty = self.type_of(inner)?;
        let from = self.register(inner, ty)?;
        let to = self.b.register();
        match ty {
            SqlType::Float8 => self.b.unary(Op::Fneg, to, from),
            SqlType::Float4 => self.b.unary(Op::F4neg, to, from),
            _ if is_integer(&ty) => {
                self.b.unary(Op::Neg, to, from);
                self.narrow(to, ty);
            }
            _ => return Err(Refusal::General),
        }
        Ok(to)
    }

    /// Checks that an integer computed in 64 bits fits its type.
    pub(super) fn narrow(&mut self, register: Reg, ty: SqlType) {
        match ty {
            SqlType::Int2 => self.b.narrow(register, 2),
            SqlType::Int4 => self.b.narrow(register, 4),
            _ => {}
        }
    }

    fn arithmetic(&mut self, op: ArithmeticOp, left: &Scalar, right: &Scalar) -> Coded<Reg> {
        let ty = self.side_type(left, right)?;
        let code = match (op, ty) {
            (ArithmeticOp::Add, SqlType::Float8) => Op::Fadd,
            (ArithmeticOp::Subtract, SqlType::Float8) => Op::Fsub,
            (ArithmeticOp::Multiply, SqlType::Float8) => Op::Fmul,
            (ArithmeticOp::Divide, SqlType::Float8) => Op::Fdiv,
            (ArithmeticOp::Add, SqlType::Float4) => Op::F4add,
            (ArithmeticOp::Subtract, SqlType::Float4) => Op::F4sub,
            (ArithmeticOp::Multiply, SqlType::Float4) => Op::F4mul,
            (ArithmeticOp::Divide, SqlType::Float4) => Op::F4div,
            (ArithmeticOp::Add, _) if is_integer(&ty) => Op::Add,
            (ArithmeticOp::Subtract, _) if is_integer(&ty) => Op::Sub,
            (ArithmeticOp::Multiply, _) if is_integer(&ty) => Op::Mul,
            (ArithmeticOp::Divide, _) if is_integer(&ty) => Op::Div,
            (ArithmeticOp::Modulo, _) if is_integer(&ty) => Op::Mod,
            _ => return Err(Refusal::General),
        };
        let left = self.register(left, ty)?;
        let right = self.register(right, ty)?;
        let to = self.b.register();
        self.b.arithmetic(code, to, left, right);
        if is_integer(&ty) {
            self.narrow(to, ty);
        }
        Ok(to)
    }

    fn compare(&mut self, op: CompareOp, left: &Scalar, right: &Scalar) -> Coded<Reg> {
        let ty = self.side_type(left, right)?;
        let cond = condition(op);
        if !Class::of(&ty).is_register() {
            let left = self.datum(left, ty)?;
            let right = self.datum(right, ty)?;
            let to = self.b.register();
            self.b.compare_values(cond, to, left, right);
            return Ok(to);
        }
        let code = compare_code(&ty);
        let left = self.register(left, ty)?;
        let right = self.register(right, ty)?;
        let to = self.b.register();
        self.b.compare(code, cond, to, left, right);
        Ok(to)
    }

    fn logic(&mut self, op: Op, left: &Scalar, right: &Scalar) -> Coded<Reg> {
        let left = self.register(left, SqlType::Bool)?;
        let right = self.register(right, SqlType::Bool)?;
        let to = self.b.register();
        self.b.arithmetic(op, to, left, right);
        Ok(to)
    }

    fn is_null(&mut self, inner: &Scalar) -> Coded<Reg> {
        let ty = self.type_of(inner)?;
        let from = if Class::of(&ty).is_register() {
            self.register(inner, ty)?
        } else {
            let datum = self.datum(inner, ty)?;
            self.order_with_itself(datum)
        };
        let to = self.b.register();
        self.b.unary(Op::Isnull, to, from);
        Ok(to)
    }

    fn convert(&mut self, inner: &Scalar, from: SqlType, to: SqlType, assigns: bool) -> Coded<Reg> {
        let integers = is_integer(&from) && is_integer(&to);
        let numbers = (is_integer(&from) || is_float(&from)) && (is_integer(&to) || is_float(&to));
        if from != to && !numbers {
            let whole = match assigns {
                true => Scalar::Assign(Box::new(inner.clone()), from, to),
                false => Scalar::Cast(Box::new(inner.clone()), from, to),
            };
            return match Class::of(&to).is_register() {
                true => self.register_from_workspace(&whole, to),
                false => Err(Refusal::General),
            };
        }
        let source = self.register(inner, from)?;
        if integers {
            // A copy, because the source may be narrowed in place and is used again.
            let register = self.b.register();
            self.b.mov(register, source);
            if integer_width(&from) > integer_width(&to) {
                self.narrow(register, to);
            }
            return Ok(register);
        }
        if from == to && Class::of(&from).is_register() {
            return Ok(source);
        }
        let register = self.b.register();
        match (from, to) {
            (_, SqlType::Float8) if is_integer(&from) => self.b.unary(Op::Itof, register, source),
            (_, SqlType::Float4) if is_integer(&from) => self.b.unary(Op::Itof4, register, source),
            (SqlType::Float4, SqlType::Float8) => self.b.unary(Op::F4tof, register, source),
            (SqlType::Float8, SqlType::Float4) => self.b.unary(Op::Ftof4, register, source),
            (SqlType::Float8, _) if is_integer(&to) => {
                self.b
                    .float_to_int(Op::Ftoi, register, source, integer_width(&to));
            }
            (SqlType::Float4, _) if is_integer(&to) => {
                self.b
                    .float_to_int(Op::F4toi, register, source, integer_width(&to));
            }
            _ => return Err(Refusal::General),
        }
        Ok(register)
    }

    fn coalesce(&mut self, items: &[Scalar], ty: SqlType) -> Coded<Reg> {
        let to = self.b.register();
        let done = self.b.label();
        for item in items {
            let value = self.register(item, ty)?;
            self.b.mov(to, value);
            self.b.branch_not_null(to, done);
        }
        self.b.bind(done);
        Ok(to)
    }

    fn case(&mut self, arms: &[(Scalar, Scalar)], otherwise: &Scalar, ty: SqlType) -> Coded<Reg> {
        let to = self.b.register();
        let done = self.b.label();
        for (condition, value) in arms {
            let next = self.b.label();
            self.branch_unless(condition, next)?;
            let mark = self.b.mark();
            let value = self.register(value, ty)?;
            self.b.mov(to, value);
            self.b.release_to(mark);
            self.b.jump(done);
            self.b.bind(next);
        }
        let mark = self.b.mark();
        let value = self.register(otherwise, ty)?;
        self.b.mov(to, value);
        self.b.release_to(mark);
        self.b.bind(done);
        Ok(to)
    }

    /// `greatest`, `least`.
    fn extreme(&mut self, greatest: bool, items: &[Scalar], ty: SqlType) -> Coded<Reg> {
        let to = self.b.register();
        self.b.ldnull(to);
        let cond = if greatest { Cond::Gt } else { Cond::Lt };
        for item in items {
            let mark = self.b.mark();
            let (take, next) = (self.b.label(), self.b.label());
            let value = self.register(item, ty)?;
            self.b.branch_null(to, take);
            let better = self.b.register();
            self.b.compare(compare_code(&ty), cond, better, value, to);
            self.b.branch_not_true(better, next);
            self.b.bind(take);
            self.b.mov(to, value);
            self.b.bind(next);
            self.b.release_to(mark);
        }
        Ok(to)
    }

    /// Sets a column of a row buffer to a scalar of the column's type.
    pub(crate) fn set_column(
        &mut self,
        buffer: RowBuf,
        column: u16,
        scalar: &Scalar,
        ty: SqlType,
    ) -> Coded<()> {
        if let Scalar::Column(source) = scalar {
            if !weft_program::fits_without_check(&self.column_type(*source)?, &ty) {
                return self.set_computed(buffer, column, scalar, ty);
            }
            self.remark(|coder| coder.column_name(*source));
            let cp = self.cp()?;
            self.b.setcol(buffer, column, cp, *source);
            return Ok(());
        }
        if !self.hoists(scalar) {
            if !Class::of(&ty).is_register() {
                return self.set_computed(buffer, column, scalar, ty);
            }
            let register = self.register(scalar, ty)?;
            self.b.setr(buffer, column, register);
            return Ok(());
        }
        match self.part(scalar, ty)? {
            KeyPart::Input(number) => {
                let fits = self
                    .b
                    .inputs()
                    .get(usize::from(number))
                    .is_some_and(|from| weft_program::fits_without_check(from, &ty));
                if !fits {
                    return Err(Refusal::General);
                }
                self.b.setin(buffer, column, number);
            }
            KeyPart::Const(number) => self.b.setk(buffer, column, number),
        }
        Ok(())
    }
}

pub(super) fn compare_code(ty: &SqlType) -> Op {
    match ty {
        SqlType::Float8 => Op::Fcmp,
        SqlType::Float4 => Op::F4cmp,
        _ => Op::Cmp,
    }
}

fn condition(op: CompareOp) -> Cond {
    match op {
        CompareOp::Eq => Cond::Eq,
        CompareOp::Ne => Cond::Ne,
        CompareOp::Lt => Cond::Lt,
        CompareOp::Le => Cond::Le,
        CompareOp::Gt => Cond::Gt,
        CompareOp::Ge => Cond::Ge,
    }
}
