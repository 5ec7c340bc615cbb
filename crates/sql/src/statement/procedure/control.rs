//! Control flow: IF, CASE, LOOP, WHILE, EXIT, CONTINUE, RETURN, and blocks with exception handlers.

use sqlparser::ast::Expr;
use weft_program::{Cond, ErrorField, HANDLERS, Label, Op, RaiseState, Reg};
use weft_types::{SqlError, SqlState, SqlType};

use super::super::scalar::Scalar;
use super::compile::{Compiled, Compiler, LoopLabels};
use super::names::Meaning;
use super::parse::at_line;
use super::tree::{Block, CaseArm, Handler, Statement};

impl Compiler<'_> {
    /// Jumps unless a condition is true.
    pub(super) fn branch_unless(&mut self, condition: &Scalar, target: Label, line: u32) -> Compiled<()> {
        self.code("this condition", line, |coder| {
            coder.branch_unless(condition, target)
        })
    }

    pub(super) fn conditional(
        &mut self,
        arms: &[(Expr, Vec<Statement>)],
        otherwise: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        let end = self.coder.b.label();
        for (number, (condition, body)) in arms.iter().enumerate() {
            let next = self.coder.b.label();
            let condition = self.condition(condition, "IF", line)?;
            self.branch_unless(&condition, next, line)?;
            self.statements(body)?;
            let is_last = number + 1 == arms.len() && otherwise.is_empty();
            if !is_last {
                self.coder.b.jump(end);
            }
            self.coder.b.bind(next);
        }
        self.statements(otherwise)?;
        self.coder.b.bind(end);
        Ok(())
    }

    /// Generates code inside a loop.
    pub(super) fn in_loop<T>(
        &mut self,
        labels: LoopLabels,
        run: impl FnOnce(&mut Self) -> Compiled<T>,
    ) -> Compiled<T> {
        self.loops.push(labels);
        if let Some(block) = self.block() {
            block.loops += 1;
        }
        let result = run(self);
        if let Some(block) = self.block() {
            block.loops -= 1;
        }
        self.loops.pop();
        result
    }

    pub(super) fn labels(&mut self, label: Option<&str>) -> LoopLabels {
        LoopLabels {
            label: label.map(str::to_owned),
            exit: self.coder.b.label(),
            next: self.coder.b.label(),
            frame: self.names.frames.len(),
            handlers: self.handlers.len(),
        }
    }

    pub(super) fn endless(
        &mut self,
        label: Option<&str>,
        condition: Option<&Expr>,
        body: &[Statement],
        line: u32,
    ) -> Compiled<()> {
        let labels = self.labels(label);
        let (exit, next) = (labels.exit, labels.next);
        self.coder.b.bind(next);
        self.in_loop(labels, |compiler| {
            if let Some(condition) = condition {
                let condition = compiler.condition(condition, "WHILE", line)?;
                compiler.branch_unless(&condition, exit, line)?;
            }
            compiler.statements(body)
        })?;
        self.coder.b.jump(next);
        self.coder.b.bind(exit);
        Ok(())
    }

    pub(super) fn leave(
        &mut self,
        exit: bool,
        label: Option<&str>,
        when: Option<&Expr>,
        line: u32,
    ) -> Compiled<()> {
        let depth = self.names.frames.len();
        let found = self
            .loops
            .iter()
            .rev()
            .filter(|labels| labels.frame == depth)
            .find(|labels| label.is_none() || labels.label.as_deref() == label)
            .map(|labels| (if exit { labels.exit } else { labels.next }, labels.handlers));
        let Some((place, handlers)) = found else {
            let word = if exit { "EXIT" } else { "CONTINUE" };
            let message = match label {
                Some(label) => format!("there is no label \"{label}\" attached to any block or loop"),
                None => format!("{word} cannot be used outside a loop"),
            };
            return Err(at_line(SqlError::new(SqlState::SYNTAX_ERROR, message), line));
        };
        match when {
            None => self.jump_out(handlers, place),
            Some(when) => {
                let condition = self.condition(when, "WHEN", line)?;
                let stay = self.coder.b.label();
                self.branch_unless(&condition, stay, line)?;
                self.jump_out(handlers, place);
                self.coder.b.bind(stay);
            }
        }
        Ok(())
    }

    /// A counting loop: changes `variable` by `step` until it passes `to`.
    pub(super) fn count_loop(
        &mut self,
        labels: LoopLabels,
        registers: [Reg; 3],
        down: bool,
        body: impl FnOnce(&mut Self) -> Compiled<()>,
    ) -> Compiled<()> {
        let [variable, to, step] = registers;
        let (exit, next) = (labels.exit, labels.next);
        let top = self.coder.b.label();
        self.coder.b.bind(top);
        let past = if down { Cond::Lt } else { Cond::Gt };
        self.coder.b.branch(past, variable, to, exit);
        self.in_loop(labels, body)?;
        self.coder.b.bind(next);
        let op = if down { Op::Sub } else { Op::Add };
        self.coder.b.arithmetic(op, variable, variable, step);
        self.coder.b.jump(top);
        self.coder.b.bind(exit);
        Ok(())
    }

    /// Jumps to a place enclosed by `handlers` of the current handlers; the inner ones are closed.
    fn jump_out(&mut self, handlers: usize, place: Label) {
        let inner: Vec<u8> = self.handlers.iter().skip(handlers).rev().copied().collect();
        for handler in inner {
            self.coder.b.end_try(handler);
        }
        self.coder.b.jump(place);
    }

    /// RETURN.
    pub(super) fn leave_procedure(&mut self) {
        let target = self.names.frames.last().map(|frame| (frame.handlers, frame.end));
        if let Some((handlers, end)) = target {
            self.jump_out(handlers, end);
        }
    }

    /// The CASE statement. Without ELSE, it is an error if no arm matches.
    pub(super) fn case(
        &mut self,
        operand: Option<&Expr>,
        arms: &[CaseArm],
        otherwise: Option<&[Statement]>,
        line: u32,
    ) -> Compiled<()> {
        self.scoped(|compiler| {
            let operand = operand
                .map(|operand| compiler.case_operand(operand, line))
                .transpose()?;
            let end = compiler.coder.b.label();
            for arm in arms {
                let next = compiler.coder.b.label();
                let condition = compiler.case_condition(operand, &arm.values, line)?;
                compiler.branch_unless(&condition, next, line)?;
                compiler.statements(&arm.body)?;
                compiler.coder.b.jump(end);
                compiler.coder.b.bind(next);
            }
            match otherwise {
                Some(otherwise) => compiler.statements(otherwise)?,
                None => {
                    compiler.coder.b.errcode("20000");
                    compiler
                        .coder
                        .b
                        .raise(RaiseState::RaiseException, "case not found");
                }
            }
            compiler.coder.b.bind(end);
            Ok(())
        })
    }

    /// The operand of CASE, evaluated once.
    fn case_operand(&mut self, operand: &Expr, line: u32) -> Compiled<(u16, SqlType)> {
        let (scalar, ty) = self.bind(&format!("the expression {operand}"), line, |binder| {
            let operand = binder.bind(operand)?;
            binder.settle(operand)
        })?;
        let number = self.variable("case", ty, line)?;
        self.code("this CASE", line, |coder| coder.set_variable(number, &scalar))?;
        Ok((number, ty))
    }

    fn case_condition(
        &mut self,
        operand: Option<(u16, SqlType)>,
        values: &[Expr],
        line: u32,
    ) -> Compiled<Scalar> {
        let mut any: Option<Scalar> = None;
        for value in values {
            let one = match operand {
                Some((number, ty)) => self.bind(&format!("the expression {value}"), line, |binder| {
                    let operand = binder.known(Scalar::Variable(number), ty);
                    let value = binder.bind(value)?;
                    binder.equal(operand, value)
                })?,
                None => self.condition(value, "CASE/WHEN", line)?,
            };
            any = Some(match any {
                Some(before) => Scalar::Or(Box::new(before), Box::new(one)),
                None => one,
            });
        }
        any.ok_or_else(|| SqlError::internal("an arm of CASE without a value"))
    }

    /// `BEGIN .. EXCEPTION WHEN .. END`: an error undoes the block's writes and transfers control
    /// to a handler.
    pub(super) fn catching(&mut self, block: &Block, line: u32) -> Compiled<()> {
        let handler = self.handler_depth;
        if usize::from(handler) >= HANDLERS {
            let message = format!("blocks with handlers are nested more than {HANDLERS} deep");
            return Err(at_line(
                SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message),
                line,
            ));
        }
        let (caught, end) = (self.coder.b.label(), self.coder.b.label());
        self.head(format!("{line}: BEGIN"));
        self.coder.b.try_or(handler, caught);
        self.handlers.push(handler);
        self.handler_depth += 1;
        if let Some(block) = self.block() {
            block.protected += 1;
        }
        let result = self.statements(&block.statements);
        if let Some(block) = self.block() {
            block.protected -= 1;
        }
        self.handlers.pop();
        result?;
        self.coder.b.end_try(handler);
        self.coder.b.jump(end);
        self.coder.b.bind(caught);
        let outer = self.caught.replace(handler);
        let result = self.handlers(&block.handlers, handler, end);
        self.caught = outer;
        self.handler_depth -= 1;
        result?;
        self.coder.b.bind(end);
        Ok(())
    }

    fn handlers(&mut self, handlers: &[Handler], number: u8, end: Label) -> Compiled<()> {
        for handler in handlers {
            let (here, next) = (self.coder.b.label(), self.coder.b.label());
            self.head(format!("{}: {}", handler.line, handler.text));
            let mark = self.coder.b.mark();
            let is_it = self.coder.b.register();
            for state in &handler.states {
                self.coder.b.caught(is_it, number, state);
                self.coder.b.branch_true(is_it, here);
            }
            self.coder.b.release_to(mark);
            self.coder.b.jump(next);
            self.coder.b.bind(here);
            self.scoped(|compiler| {
                if compiler.names_errors {
                    compiler.error_variable("sqlstate", number, ErrorField::State, handler.line)?;
                    compiler.error_variable("sqlerrm", number, ErrorField::Message, handler.line)?;
                }
                compiler.statements(&handler.body)
            })?;
            self.coder.b.jump(end);
            self.coder.b.bind(next);
        }
        self.coder.b.rethrow(number);
        Ok(())
    }

    fn error_variable(&mut self, name: &str, handler: u8, field: ErrorField, line: u32) -> Compiled<()> {
        let number = self.variable(name, SqlType::Text, line)?;
        self.code("this handler", line, |coder| {
            coder.set_from_error(number, handler, field)
        })?;
        self.names
            .add(name, Meaning::Variable(number, SqlType::Text, true));
        Ok(())
    }
}
