//! Exception handlers and messages of programs: TRY, ENDTRY, CAUGHT, RETHROW, ERRTEXT; NOTE, ERRCODE, DIAG.
//!
//! ```text
//!   try h0, L1 -----> block -----> endtry h0 ----> next instruction
//!    savepoint          | error                    savepoint released
//!                       v
//!                L1: handler: writes since TRY are undone; the only valid rows are those of a SCAN that
//!                    encloses the block; registers and rows under construction are as they were at the
//!                    error (PL/pgSQL: variables keep their values); CAUGHT and ERRTEXT read the error,
//!                    RETHROW passes it on
//! ```
//!
//! Not every error can be caught: exceeding the budget always ends the program, and an undeclared access
//! makes it run again later (class XX, like every internal fault that was not made up by RAISE). As in
//! PostgreSQL a cancellation or a failed assertion is caught by name, not by OTHERS.
//!
//! Source: PostgreSQL 15 documentation, 43.6.8 (trapping errors), 43.9.

use weft_types::{ErrorFields, Notice, SqlError, SqlState, Value, ValueRef};

use super::{Flow, Machine, broken};
use crate::data_access::DataAccess;
use crate::instr::{HANDLERS, Instr, Op};
use crate::outcome::Outcome;
use crate::report::{ErrorField, Level};

/// Bytes of notices that one run may leave.
pub const NOTICE_BYTES_MAX: usize = 1 << 20;

/// Bytes that a notice counts for besides its text.
const NOTICE_BYTES: usize = 64;

/// PL/pgSQL's ASSERT.
pub(crate) const ASSERT_FAILURE: SqlState = SqlState("P0004");

/// The open blocks with handlers of a run, the errors that their handlers caught, and the fields set for the
/// next error.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// Handler and its position, innermost last. As many savepoints are open.
    tries: Vec<(u8, u32)>,
    caught: [Option<Box<SqlError>>; HANDLERS],
    state: Option<SqlState>,
    fields: Option<Box<ErrorFields>>,
    notice_bytes: usize,
    /// Something differs from the initial state.
    is_used: bool,
}

impl Reports {
    pub fn reset(&mut self) {
        if self.is_used {
            *self = Reports::default();
        }
    }
}

/// An error with the notices that came before it.
#[cold]
pub(super) fn with_notices(mut error: SqlError, out: &mut Outcome) -> SqlError {
    error.fields_mut().notices = std::mem::take(&mut out.notices);
    error
}

/// An error made up by RAISE can be caught whatever its state; so can a rethrown one.
fn can_be_caught(error: &SqlError, op: Op) -> bool {
    matches!(op, Op::Raise | Op::Raiseb | Op::Rethrow) || error.state.class() != "XX"
}

/// Whether a handler is for an error: its state has this prefix. OTHERS, with an empty prefix, excludes some.
fn is_for(beginning: &str, state: SqlState) -> bool {
    match beginning.is_empty() {
        true => !matches!(state, SqlState::QUERY_CANCELED | ASSERT_FAILURE),
        false => state.code().starts_with(beginning),
    }
}

impl<A: DataAccess> Machine<'_, A> {
    /// A text constant.
    pub(super) fn text_constant(&self, number: u32) -> &str {
        let layouts = &self.program.layouts;
        let bytes = layouts.consts.var_bytes(&layouts.const_row, number as usize);
        std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    }

    /// The error with the state and the fields that were set for it.
    pub(super) fn dressed(&mut self, mut error: SqlError) -> SqlError {
        let reports = &mut self.scratch.reports;
        if let Some(state) = reports.state.take() {
            error.state = state;
        }
        if let Some(fields) = reports.fields.take() {
            *error.fields_mut() = *fields;
        }
        error
    }

    /// Where control continues after an error of an instruction; the error itself if nothing catches it.
    #[cold]
    pub(super) fn catch(&mut self, error: SqlError, op: Op, aborting: bool) -> Result<u32, SqlError> {
        if aborting || !can_be_caught(&error, op) {
            return Err(error);
        }
        let Some((handler, place)) = self.scratch.reports.tries.pop() else {
            return Err(error);
        };
        self.access.rollback_to_savepoint();
        self.scratch.forget_rows(self.program.layouts.resolved.uses);
        // Fields set for an error or notice that was not raised do not apply to the next one.
        self.scratch.reports.state = None;
        self.scratch.reports.fields = None;
        if let Some(slot) = self.scratch.reports.caught.get_mut(usize::from(handler)) {
            *slot = Some(Box::new(error));
        }
        Ok(place)
    }

    fn caught(&self, handler: u8) -> Result<&SqlError, SqlError> {
        let slot = self.scratch.reports.caught.get(usize::from(handler));
        slot.and_then(|slot| slot.as_deref())
            .ok_or_else(|| broken("a handler has no error"))
    }

    pub(super) fn report(&mut self, instr: Instr) -> Result<Flow, SqlError> {
        self.scratch.reports.is_used = true;
        match instr.op {
            Op::Note => {
                let message = self.text_constant(instr.imm).to_owned();
                self.weigh(message.len())?;
                self.note(instr.a, message)?;
            }
            Op::Noteb => {
                let message = self.text_column(instr.b, instr.low())?.unwrap_or_default();
                self.note(instr.a, message)?;
            }
            Op::Errcode => {
                let state = SqlState::interned(self.text_constant(instr.imm));
                self.scratch.reports.state = Some(state.ok_or_else(|| broken("no SQLSTATE"))?);
            }
            Op::Diag => {
                let text = self.text_column(instr.b, instr.low())?;
                let field = ErrorField::ALL.get(usize::from(instr.a));
                let fields = self.scratch.reports.fields.get_or_insert_default();
                if let Some(field) = field {
                    field.set(fields, text);
                }
            }
            Op::Try => {
                self.access.savepoint()?;
                self.scratch.reports.tries.push((instr.a, instr.imm));
            }
            Op::Endtry => {
                self.scratch.reports.tries.pop();
                self.access.release_savepoint();
            }
            Op::Caught => {
                let state = self.caught(instr.b)?.state;
                let is_it = is_for(self.text_constant(instr.imm), state);
                self.scratch.registers.set(instr.a, Some(i64::from(is_it)));
            }
            Op::Rethrow => {
                let error = self.caught(instr.a)?.clone();
                self.weigh(error.text_bytes())?;
                return Err(error);
            }
            _ => self.error_text(instr)?,
        }
        Ok(Flow::Next)
    }

    fn text_column(&mut self, buffer: u8, column: u16) -> Result<Option<String>, SqlError> {
        let text = match self.buffer_value(buffer, column) {
            ValueRef::Text(text) => Some(text.to_owned()),
            _ => None,
        };
        self.weigh(text.as_ref().map_or(0, String::len))?;
        Ok(text)
    }

    fn note(&mut self, level: u8, message: String) -> Result<(), SqlError> {
        let level = Level::ALL.get(usize::from(level)).copied();
        let level = level.ok_or_else(|| broken("no such level"))?;
        let bytes = self.scratch.reports.notice_bytes + message.len() + NOTICE_BYTES;
        if bytes > NOTICE_BYTES_MAX {
            let message = "the notices of one call exceed 1 MiB";
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
        }
        self.scratch.reports.notice_bytes = bytes;
        let state = match level {
            Level::Warning => SqlState::WARNING,
            _ => SqlState::SUCCESSFUL_COMPLETION,
        };
        let text = self.dressed(SqlError::new(state, message));
        self.out.notices.push(Notice { level, text });
        Ok(())
    }

    fn error_text(&mut self, instr: Instr) -> Result<(), SqlError> {
        let field = ErrorField::ALL.get(usize::from(instr.c));
        let field = field.ok_or_else(|| broken("no such field"))?;
        let text = field.of(self.caught(instr.b)?).map(str::to_owned);
        let program = self.program;
        let image = &self.scratch.rows[super::buffers::number(instr.a)];
        let layout = super::data::image_layout(program, image)?;
        let column = usize::from(instr.low());
        let ty = layout.types().get(column).copied();
        let ty = ty.ok_or_else(|| broken("a row buffer has no such column"))?;
        let value = text.map_or(Value::Null, Value::Text);
        self.set_value(instr.a, layout, column, &ty, &value)
    }
}
