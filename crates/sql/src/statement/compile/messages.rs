//! Code for messages that a procedure composes: RAISE and its options.

use weft_program::{Class, Datum, ErrorField, Level, RaiseState, RowBuf};
use weft_types::{SqlType, Value};

use super::super::bind::Refusal;
use super::super::scalar::Scalar;
use super::code::Coder;

type Coded<T> = Result<T, Refusal>;

impl Coder {
    /// RAISE with a composed text.
    pub(crate) fn raise_text(&mut self, state: RaiseState, message: &Scalar) -> Coded<()> {
        let workspace = self.workspace();
        let column = self.temporary(SqlType::Text);
        self.append_shown(workspace, column, message)?;
        self.b.raise_buffer(state, workspace, column);
        Ok(())
    }

    /// Appends the pieces of a message; NULL is shown as in PL/pgSQL.
    fn append_shown(&mut self, workspace: RowBuf, column: u16, message: &Scalar) -> Coded<()> {
        let Scalar::Concat(left, right) = message else {
            let first = self.b.constant(SqlType::Text, Value::Text(String::new()));
            self.b.setk(workspace, column, first);
            return Ok(());
        };
        self.append_shown(workspace, column, left)?;
        if let Scalar::Constant(Value::Text(text)) = right.as_ref() {
            if !text.is_empty() {
                let number = self.b.constant(SqlType::Text, Value::Text(text.clone()));
                self.b.cat(workspace, column, Datum::Const(number));
            }
            return Ok(());
        }
        let (null, done) = (self.b.label(), self.b.label());
        match right.as_ref() {
            Scalar::Cast(inner, from, _) if Class::of(from).is_register() => {
                let register = self.register(inner, *from)?;
                self.b.branch_null(register, null);
                self.b.catr(workspace, column, register, Class::of(from));
            }
            other => {
                let datum = self.datum(other, SqlType::Text)?;
                let order = self.order_with_itself(datum);
                self.b.branch_null(order, null);
                self.b.cat(workspace, column, datum);
            }
        }
        self.b.jump(done);
        self.b.bind(null);
        let shown = self.b.constant(SqlType::Text, Value::Text("<NULL>".into()));
        self.b.cat(workspace, column, Datum::Const(shown));
        self.b.bind(done);
        Ok(())
    }

    /// RAISE of a level below error, with a composed text.
    pub(crate) fn note_text(&mut self, level: Level, message: &Scalar) -> Coded<()> {
        let workspace = self.workspace();
        let column = self.temporary(SqlType::Text);
        self.append_shown(workspace, column, message)?;
        self.b.note_buffer(level, workspace, column);
        Ok(())
    }

    /// Computes an option of RAISE into a column of the workspace; NULL is an error.
    pub(crate) fn option_text(&mut self, text: &Scalar) -> Coded<u16> {
        let workspace = self.workspace();
        let column = self.temporary(SqlType::Text);
        let mark = self.b.mark();
        let fine = self.b.label();
        let shown = match text {
            Scalar::Cast(inner, from, _) if Class::of(from).is_register() => {
                let register = self.register(inner, *from)?;
                self.b.branch_not_null(register, fine);
                Some((register, Class::of(from)))
            }
            text => {
                self.set_column(workspace, column, text, SqlType::Text)?;
                let order = self.order_with_itself(Datum::Buffer {
                    buffer: workspace.0,
                    column,
                });
                self.b.branch_not_null(order, fine);
                None
            }
        };
        self.b.raise(
            RaiseState::NullNotAllowed,
            "RAISE statement option cannot be null",
        );
        self.b.bind(fine);
        if let Some((register, class)) = shown {
            let empty = self.b.constant(SqlType::Text, Value::Text(String::new()));
            self.b.setk(workspace, column, empty);
            self.b.catr(workspace, column, register, class);
        }
        self.b.release_to(mark);
        Ok(column)
    }

    /// Sets a field of the next error or notice from a column of the workspace.
    pub(crate) fn diagnostic(&mut self, field: ErrorField, column: u16) {
        let workspace = self.workspace();
        self.b.diag(field, workspace, column);
    }

    /// RAISE with the text in a column of the workspace.
    pub(crate) fn raise_column(&mut self, state: RaiseState, column: u16) {
        let workspace = self.workspace();
        self.b.raise_buffer(state, workspace, column);
    }

    /// RAISE of a level below error, with the text in a column of the workspace.
    pub(crate) fn note_column(&mut self, level: Level, column: u16) {
        let workspace = self.workspace();
        self.b.note_buffer(level, workspace, column);
    }
}
