//! CREATE EXTENSION and DROP EXTENSION.
//!
//! Every database has `plpgsql`, as in PostgreSQL, and no other extension is available.

use weft_syntax::reader::TokenReader;
use weft_types::{SqlError, SqlState};

use super::super::PlanContext;
use super::super::plan::Plan;
use super::Changes;
use crate::error;

/// CREATE EXTENSION or DROP EXTENSION.
#[derive(Clone, Debug)]
pub struct ExtensionStatement {
    create: bool,
    /// IF NOT EXISTS, IF EXISTS.
    lenient: bool,
    names: Vec<String>,
}

/// Parses what follows CREATE or DROP; `None` if it does not concern an extension.
pub(crate) fn parse(
    reader: &mut TokenReader<'_>,
    create: bool,
) -> Result<Option<ExtensionStatement>, SqlError> {
    if !reader.accept("EXTENSION") {
        return Ok(None);
    }
    if !create {
        let lenient = reader.accept_all(&["IF", "EXISTS"]);
        let names = reader.list(TokenReader::identifier)?;
        reader.accept_any(&["CASCADE", "RESTRICT"]);
        return Ok(Some(ExtensionStatement {
            create,
            lenient,
            names,
        }));
    }
    let lenient = reader.accept_all(&["IF", "NOT", "EXISTS"]);
    let names = vec![reader.identifier()?];
    reader.accept("WITH");
    while !reader.at_end() {
        if reader.accept("SCHEMA") {
            reader.identifier()?;
        } else if reader.accept("VERSION") {
            if reader.accept_string().is_none() {
                reader.identifier()?;
            }
        } else if !reader.accept("CASCADE") {
            return Err(reader.unexpected());
        }
    }
    Ok(Some(ExtensionStatement {
        create,
        lenient,
        names,
    }))
}

/// Plans the statement: there is nothing that it could change.
pub(crate) fn plan(statement: &ExtensionStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    for name in &statement.names {
        let is_there = name == "plpgsql";
        match (statement.create, is_there) {
            (true, true) => {
                let message = format!("extension \"{name}\" already exists");
                if !statement.lenient {
                    return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                }
                changes.notices.push(SqlError::new(
                    SqlState::DUPLICATE_OBJECT,
                    format!("{message}, skipping"),
                ));
            }
            (true, false) => {
                return Err(error::unsupported(format!(
                    "extension \"{name}\" is not available"
                )));
            }
            (false, true) => {
                return Err(error::unsupported(
                    "dropping the extension plpgsql is not supported",
                ));
            }
            (false, false) if statement.lenient => {
                changes.notice(format!("extension \"{name}\" does not exist, skipping"));
            }
            (false, false) => {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("extension \"{name}\" does not exist"),
                ));
            }
        }
    }
    Ok(changes.finish(match statement.create {
        true => "CREATE EXTENSION",
        false => "DROP EXTENSION",
    }))
}
