//! RAISE, ASSERT and GET DIAGNOSTICS: reporting errors and notices, and reading diagnostics.

use sqlparser::ast::Expr;
use weft_program::{RaiseState, Reg};
use weft_types::{OWN_STATES_MAX, SqlError, SqlState, SqlType, Value};

use super::super::compile::path::folded;
use super::super::scalar::Scalar;
use super::compile::{Compiled, Compiler};
use super::conditions;
use super::names::Meaning;
use super::parse::at_line;
use super::tree::{Block, Diagnostic, Kind, Message, Raise, Target};

/// Counts the SQLSTATEs that a body raises when it is created. One without a name is kept for the rest of
/// the process, so their number must be bounded. Existing procedures raise theirs without a bound: they
/// were counted at creation, and must keep working after a restart.
pub(super) fn count_states(body: &Block) -> Compiled<()> {
    let mut counted = Ok(());
    body.visit(&mut |statement| {
        if let Kind::Raise(Raise {
            state: Some(code), ..
        }) = &statement.kind
            && counted.is_ok()
            && SqlState::is_code(code)
            && SqlState::user_defined(code).is_none()
        {
            let message = format!("more than {OWN_STATES_MAX} SQLSTATEs that have no name were raised");
            let error = SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
            counted = Err(at_line(error, statement.line));
        }
    });
    counted
}

const ASSERTION_FAILED: &str = "assertion failed";

fn constant(text: &str) -> Scalar {
    Scalar::Constant(Value::Text(text.into()))
}

/// The variables that a statement sets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    pub(super) numbers: Vec<u16>,
    /// For variables declared NOT NULL: the variable, its temporary, and its name.
    checked: Vec<(u16, u16, String)>,
}

impl Compiler<'_> {
    pub(super) fn raise(&mut self, raise: &Raise, line: u32) -> Compiled<()> {
        let mut computed = None;
        let pieces = match &raise.message {
            Message::Again => return self.raise_again(line),
            Message::Format(format) => self.pieces(format, &raise.arguments, line)?,
            Message::Asserted(message) => {
                let shown = self.shown_argument(message, line)?;
                vec![folded(Scalar::Coalesce(vec![shown, constant(ASSERTION_FAILED)]))]
            }
            Message::Computed(message) => match self.shown_argument(message, line)? {
                shown @ Scalar::Constant(Value::Text(_)) => vec![shown],
                shown => {
                    computed = Some(self.option_text(&shown, line)?);
                    Vec::new()
                }
            },
        };
        // All options are computed before the first is set, so that none is left for another error.
        let mut options = Vec::with_capacity(raise.options.len());
        for (field, option) in &raise.options {
            let text = self.shown_argument(option, line)?;
            options.push((*field, self.option_text(&text, line)?));
        }
        for (field, column) in options {
            self.coder.diagnostic(field, column);
        }
        let state = match (&raise.state, raise.level) {
            (Some(code), None) => {
                let known = RaiseState::ALL.into_iter().find(|state| state.sqlstate() == code);
                if known.is_none() {
                    self.coder.b.errcode(code);
                }
                known.unwrap_or(RaiseState::RaiseException)
            }
            (Some(code), Some(_)) => {
                self.coder.b.errcode(code);
                RaiseState::RaiseException
            }
            (None, _) => RaiseState::RaiseException,
        };
        if let Some(column) = computed {
            match raise.level {
                Some(level) => self.coder.note_column(level, column),
                None => self.coder.raise_column(state, column),
            }
            return Ok(());
        }
        let constants: Option<Vec<&str>> = pieces
            .iter()
            .map(|piece| match piece {
                Scalar::Constant(Value::Text(text)) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        if let Some(constants) = constants {
            let text = constants.concat();
            match raise.level {
                Some(level) => self.coder.b.note(level, &text),
                None => self.coder.b.raise(state, &text),
            }
            return Ok(());
        }
        let mut message = constant("");
        for piece in pieces {
            message = Scalar::Concat(Box::new(message), Box::new(piece));
        }
        let mark = self.coder.b.mark();
        self.code("this RAISE", line, |coder| match raise.level {
            Some(level) => coder.note_text(level, &message),
            None => coder.raise_text(state, &message),
        })?;
        self.coder.b.release_to(mark);
        Ok(())
    }

    /// Computes an option, which must not be NULL, into a column of the workspace.
    fn option_text(&mut self, text: &Scalar, line: u32) -> Compiled<u16> {
        self.code("this option of RAISE", line, |coder| coder.option_text(text))
    }

    /// RAISE without arguments: raises the current error again.
    fn raise_again(&mut self, line: u32) -> Compiled<()> {
        match self.caught {
            Some(handler) => {
                self.coder.b.rethrow(handler);
                Ok(())
            }
            None => {
                let message = "RAISE without parameters cannot be used outside an exception handler";
                Err(at_line(SqlError::new(SqlState("0Z002"), message), line))
            }
        }
    }

    /// A format split at its `%`, with the arguments in between.
    fn pieces(&self, format: &str, arguments: &[Expr], line: u32) -> Compiled<Vec<Scalar>> {
        let mut pieces = Vec::new();
        let mut arguments = arguments.iter();
        let mut text = String::new();
        let mut characters = format.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' || characters.next_if_eq(&'%').is_some() {
                text.push(character);
                continue;
            }
            let Some(argument) = arguments.next() else {
                continue;
            };
            pieces.push(constant(&std::mem::take(&mut text)));
            pieces.push(match self.shown_argument(argument, line)? {
                Scalar::Constant(Value::Null) => constant("<NULL>"),
                piece => piece,
            });
        }
        pieces.push(constant(&text));
        Ok(pieces)
    }

    /// An argument of RAISE, converted to text.
    fn shown_argument(&self, argument: &Expr, line: u32) -> Compiled<Scalar> {
        let (scalar, ty) = self.bind(&format!("the expression {argument}"), line, |binder| {
            let operand = binder.bind(argument)?;
            binder.settle(operand)
        })?;
        Ok(match ty {
            SqlType::Text => folded(scalar),
            ty => folded(Scalar::Cast(Box::new(scalar), ty, SqlType::Text)),
        })
    }

    /// ASSERT: a false or NULL condition raises an error that OTHERS does not catch.
    pub(super) fn assert(&mut self, condition: &Expr, message: Option<&Expr>, line: u32) -> Compiled<()> {
        let condition = self.condition(condition, "ASSERT", line)?;
        let (failed, fine) = (self.coder.b.label(), self.coder.b.label());
        self.branch_unless(&condition, failed, line)?;
        self.coder.b.jump(fine);
        self.coder.b.bind(failed);
        let raise = Raise {
            level: None,
            state: conditions::code_of("assert_failure").map(str::to_owned),
            message: match message {
                Some(message) => Message::Asserted(Box::new(message.clone())),
                None => Message::Format(ASSERTION_FAILED.into()),
            },
            arguments: Vec::new(),
            options: Vec::new(),
        };
        self.raise(&raise, line)?;
        self.coder.b.bind(fine);
        Ok(())
    }

    /// GET [STACKED] DIAGNOSTICS.
    pub(super) fn diagnostics(
        &mut self,
        stacked: bool,
        items: &[(Target, Diagnostic)],
        line: u32,
    ) -> Compiled<()> {
        for (name, item) in items {
            let (number, ty) = self.target(name, line)?;
            let (scalar, from) = match item {
                Diagnostic::RowCount => (self.row_count(), SqlType::Int8),
                Diagnostic::Error(field) => {
                    let Some(handler) = self.caught.filter(|_| stacked) else {
                        let message = "GET STACKED DIAGNOSTICS cannot be used outside an exception handler";
                        return Err(at_line(SqlError::new(SqlState("0Z002"), message), line));
                    };
                    let text = self.variable("diagnostic", SqlType::Text, line)?;
                    self.code("this item", line, |coder| {
                        coder.set_from_error(text, handler, *field)
                    })?;
                    (Scalar::Variable(text), SqlType::Text)
                }
            };
            let value = self.bind("this item", line, |binder| {
                let column = weft_store::ColumnDef::new(name.join("."), ty);
                let value = binder.known(scalar, from);
                binder.assign(value, &column).map(folded)
            })?;
            self.set(number, &value, "this item", line)?;
        }
        Ok(())
    }

    /// The variable that counts the rows of the last statement.
    fn row_count(&self) -> Scalar {
        self.names.uses_row_count.set(true);
        match self.names.row_count {
            Some(number) => Scalar::Variable(number),
            None => Scalar::Constant(Value::Int8(0)),
        }
    }

    /// Resets FOUND and ROW_COUNT before a statement.
    pub(super) fn reset_counts(&mut self) {
        let registers = self.block().map(|block| [block.found, block.row_count]);
        for register in registers.into_iter().flatten().flatten() {
            self.coder.b.ldi(register, 0);
        }
    }

    /// Sets FOUND and ROW_COUNT after a statement with one row.
    pub(super) fn count_one_row(&mut self) {
        let registers = self.block().map(|block| [block.found, block.row_count]);
        for register in registers.into_iter().flatten().flatten() {
            self.coder.b.ldi(register, 1);
        }
    }

    /// Declares the variable of FOUND or ROW_COUNT; also returns its register.
    pub(super) fn count_variable(&mut self, name: &str, ty: SqlType) -> Compiled<(u16, Option<Reg>)> {
        let number = self.variable(name, ty, 1)?;
        let register = self.coder.variable_register(number).ok();
        if let Some(register) = register {
            self.coder.b.ldi(register, 0);
        }
        Ok((number, register))
    }

    /// The name of a variable, if it is declared NOT NULL.
    fn not_null(&self, number: u16) -> Option<String> {
        let declared = self.names.not_null.iter().find(|(known, _)| *known == number);
        declared.map(|(_, name)| name.clone())
    }

    /// Sets a variable. One declared NOT NULL keeps its value if the new one is rejected.
    pub(super) fn set(&mut self, number: u16, value: &Scalar, what: &str, line: u32) -> Compiled<()> {
        self.with_targets(&[number], line, |compiler, targets| {
            for target in targets {
                compiler.code(what, line, |coder| coder.set_variable(*target, value))?;
            }
            Ok(())
        })
    }

    /// Runs code that sets variables. For those declared NOT NULL it sets temporaries, which are assigned
    /// after checking that they are not NULL.
    pub(super) fn with_targets(
        &mut self,
        numbers: &[u16],
        line: u32,
        run: impl FnOnce(&mut Self, &[u16]) -> Compiled<()>,
    ) -> Compiled<()> {
        if numbers.iter().all(|number| self.not_null(*number).is_none()) {
            return run(self, numbers);
        }
        self.scoped(|compiler| {
            let targets = compiler.targets_for(numbers, line)?;
            run(compiler, &targets.numbers)?;
            compiler.assign_targets(&targets, line)
        })
    }

    /// Targets for some variables: temporaries in place of those declared NOT NULL.
    pub(super) fn targets_for(&mut self, numbers: &[u16], line: u32) -> Compiled<Targets> {
        let mut targets = Targets::default();
        for number in numbers {
            let Some(name) = self.not_null(*number) else {
                targets.numbers.push(*number);
                continue;
            };
            let ty = self.code(&name, line, |coder| coder.variable(*number).map(|known| known.ty))?;
            let temporary = self.variable(&name, ty, line)?;
            targets.numbers.push(temporary);
            targets.checked.push((*number, temporary, name));
        }
        Ok(targets)
    }

    /// Assigns the temporaries to their variables, unless one is NULL.
    pub(super) fn assign_targets(&mut self, targets: &Targets, line: u32) -> Compiled<()> {
        for (number, temporary, name) in &targets.checked {
            self.refuse_null(*temporary, name, line)?;
            self.code(name, line, |coder| {
                coder.set_variable(*number, &Scalar::Variable(*temporary))
            })?;
        }
        Ok(())
    }

    /// Raises an error if a variable is NULL.
    pub(super) fn refuse_null(&mut self, number: u16, name: &str, line: u32) -> Compiled<()> {
        let fine = self.coder.b.label();
        let mark = self.coder.b.mark();
        let is_null = Scalar::IsNull(Box::new(Scalar::Variable(number)));
        self.branch_unless(&is_null, fine, line)?;
        let message = format!("null value cannot be assigned to variable \"{name}\" declared NOT NULL");
        self.coder.b.raise(RaiseState::NullNotAllowed, &message);
        self.coder.b.bind(fine);
        self.coder.b.release_to(mark);
        Ok(())
    }

    /// A variable of a row type: the columns of a table that the body mentions.
    pub(super) fn declare_row(&mut self, name: &str, table: &[String], line: u32) -> Compiled<()> {
        let table = super::super::names::table(self.catalog, table).map_err(|error| at_line(error, line))?;
        let mut columns = Vec::new();
        for column in &table.columns {
            if !self.is_named(&column.name) {
                continue;
            }
            let number = self.variable(&format!("{name}.{}", column.name), column.ty, line)?;
            self.code("this variable", line, |coder| {
                coder.set_variable(number, &Scalar::Constant(Value::Null))
            })?;
            columns.push((column.name.clone(), Meaning::Variable(number, column.ty, false)));
        }
        self.names.add_record(name, columns);
        Ok(())
    }

    /// Whether the procedure's body contains a word.
    pub(super) fn is_named(&self, word: &str) -> bool {
        let frame = self.names.frames.last();
        frame.is_some_and(|frame| frame.words.contains(word))
    }
}
