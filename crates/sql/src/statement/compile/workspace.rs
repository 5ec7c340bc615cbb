//! The workspace of a program: columns of one row buffer for values that do not fit into registers.
//!
//! Texts, numerics, bytea and uuid are columns of an output row that is never emitted, the *workspace*: a
//! procedure's variables of such types, values under construction, and function arguments, which are
//! adjacent. CALL, CONVERT, SETBUF, KEYBUF, CAT and CMPV read it. Whether a program needs a workspace is
//! only known during compilation; it is then compiled again with one.

use weft_program::{Function, RowBuf};
use weft_types::SqlType;

use super::super::bind::Refusal;
use super::code::Coder;

type Coded<T> = Result<T, Refusal>;

/// Adjacent columns for the arguments of a function.
#[derive(Debug)]
struct Arguments {
    types: &'static [SqlType],
    first: u16,
    in_use: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The workspace and the statement whose shape it has.
    workspace: Option<(RowBuf, u32)>,
    /// A workspace is needed and missing: compile again with one.
    pub(crate) needs_workspace: bool,
    /// Unused columns of the workspace.
    free: Vec<(SqlType, u16)>,
    /// Columns of values under construction, until the statement ends.
    temporary: Vec<(SqlType, u16)>,
    arguments: Vec<Arguments>,
}

impl Coder {
    /// Makes the workspace, a row of a further statement without columns so far. Must be called first.
    pub(crate) fn make_workspace(&mut self, statement: u32) {
        let buffer = self.b.row_buffer();
        self.b.outrow(buffer, statement);
        self.work.workspace = Some((buffer, statement));
    }

    /// The workspace's row buffer, if there is one.
    pub(crate) fn workspace_buffer(&self) -> Option<RowBuf> {
        self.work.workspace.map(|(buffer, _)| buffer)
    }

    /// The workspace, or a placeholder if there is none: the code is then compiled again with one.
    pub(super) fn workspace(&mut self) -> RowBuf {
        match self.work.workspace {
            Some((buffer, _)) => buffer,
            None => {
                self.work.needs_workspace = true;
                RowBuf(0)
            }
        }
    }

    /// Allocates a column of the workspace.
    pub(super) fn workspace_column(&mut self, ty: SqlType) -> u16 {
        self.workspace();
        if let Some(found) = self.work.free.iter().position(|(free, _)| *free == ty) {
            return self.work.free.swap_remove(found).1;
        }
        match self.work.workspace {
            Some((_, statement)) => self.b.add_output_column(statement, ty),
            None => 0,
        }
    }

    /// Frees a column of the workspace.
    pub(super) fn free_column(&mut self, ty: SqlType, column: u16) {
        self.work.free.push((ty, column));
    }

    /// A column for a value under construction, until the statement ends.
    pub(super) fn temporary(&mut self, ty: SqlType) -> u16 {
        let column = self.workspace_column(ty);
        self.work.temporary.push((ty, column));
        column
    }

    /// Frees the temporary columns of the previous statement.
    pub(crate) fn forget_temporaries(&mut self) {
        let done = std::mem::take(&mut self.work.temporary);
        self.work.free.extend(done);
        for arguments in &mut self.work.arguments {
            arguments.in_use = false;
        }
    }

    /// Columns for a function's arguments, until the statement ends; returns the first.
    pub(super) fn argument_columns(&mut self, function: Function) -> Coded<u16> {
        self.workspace();
        let types = function.arguments();
        let known = self.work.arguments.iter_mut();
        if let Some(found) = known
            .into_iter()
            .find(|arguments| !arguments.in_use && arguments.types == types)
        {
            found.in_use = true;
            return Ok(found.first);
        }
        let Some((_, statement)) = self.work.workspace else {
            return Ok(0);
        };
        let mut first = None;
        for ty in types {
            let column = self.b.add_output_column(statement, *ty);
            first.get_or_insert(column);
        }
        let first = first.ok_or(Refusal::General)?;
        self.work.arguments.push(Arguments {
            types,
            first,
            in_use: true,
        });
        Ok(first)
    }
}
