//! ALTER TABLE ... ALTER COLUMN ... ADD GENERATED ... AS IDENTITY, SET GENERATED and DROP IDENTITY.
//!
//! sqlparser does not take the options of the sequence in the form in which pg_dump writes them, so the
//! statement is parsed here.

use weft_base::TableId;
use weft_store::{CatalogOp, ColumnDef, Identity, SequenceId, TableDef};
use weft_syntax::reader::TokenReader;
use weft_types::{SqlError, SqlState};

use super::super::plan::Plan;
use super::super::{PlanContext, names};
use super::Changes;
use super::sequence::{self, SequenceChoices};
use crate::error;

/// What happens to the column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// ADD GENERATED
    Add {
        always: bool,
        /// SEQUENCE NAME
        name: Option<Vec<String>>,
        choices: SequenceChoices,
    },
    /// SET GENERATED
    Set { always: bool },
    /// DROP IDENTITY [IF EXISTS]
    Drop { lenient: bool },
}

/// ALTER TABLE of a column's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityStatement {
    if_exists: bool,
    table: Vec<String>,
    column: String,
    change: Change,
}

/// Parses what follows ALTER; `None`, and the reader as it was, if it is another statement.
pub(crate) fn parse(reader: &mut TokenReader<'_>) -> Result<Option<IdentityStatement>, SqlError> {
    let before = reader.clone();
    let found = recognise(reader)?;
    if found.is_none() {
        *reader = before;
    }
    Ok(found)
}

fn recognise(reader: &mut TokenReader<'_>) -> Result<Option<IdentityStatement>, SqlError> {
    if !reader.accept("TABLE") {
        return Ok(None);
    }
    let if_exists = reader.accept_all(&["IF", "EXISTS"]);
    reader.accept("ONLY");
    let Ok(table) = reader.qualified_name() else {
        return Ok(None);
    };
    reader.accept_symbol("*");
    if !reader.accept("ALTER") {
        return Ok(None);
    }
    reader.accept("COLUMN");
    let Ok(column) = reader.identifier() else {
        return Ok(None);
    };
    let change = if reader.accept_all(&["ADD", "GENERATED"]) {
        let always = kind(reader)?;
        reader.expect("AS")?;
        reader.expect("IDENTITY")?;
        let (mut name, mut choices) = (None, SequenceChoices::default());
        if reader.accept_symbol("(") {
            while !reader.accept_symbol(")") {
                match reader.accept_all(&["SEQUENCE", "NAME"]) {
                    true => name = Some(reader.qualified_name()?),
                    false => sequence::choice(reader, &mut choices, true)?,
                }
            }
        }
        Change::Add {
            always,
            name,
            choices,
        }
    } else if reader.accept_all(&["SET", "GENERATED"]) {
        let always = kind(reader)?;
        Change::Set { always }
    } else if reader.accept_all(&["DROP", "IDENTITY"]) {
        let lenient = reader.accept_all(&["IF", "EXISTS"]);
        Change::Drop { lenient }
    } else {
        return Ok(None);
    };
    if !reader.at_end() {
        return Err(error::unsupported(
            "a change of an identity column beside other changes is not supported",
        ));
    }
    Ok(Some(IdentityStatement {
        if_exists,
        table,
        column,
        change,
    }))
}

/// ALWAYS or BY DEFAULT.
fn kind(reader: &mut TokenReader<'_>) -> Result<bool, SqlError> {
    if reader.accept("ALWAYS") {
        return Ok(true);
    }
    match reader.accept_all(&["BY", "DEFAULT"]) {
        true => Ok(false),
        false => Err(reader.unexpected()),
    }
}

fn refused(column: &str, table: &TableDef, why: &str) -> SqlError {
    let message = format!("column \"{column}\" of relation \"{}\" {why}", table.name);
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

/// Plans the statement.
pub(crate) fn plan(statement: &IdentityStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    let table = match names::table(&changes.catalog, &statement.table) {
        Ok(table) => table.clone(),
        Err(error) if statement.if_exists && error.state == SqlState::UNDEFINED_TABLE => {
            let shown = statement.table.join(".");
            changes.notice(format!("relation \"{shown}\" does not exist, skipping"));
            return Ok(changes.finish("ALTER TABLE"));
        }
        Err(error) => return Err(error),
    };
    let name = names::cut(statement.column.clone());
    let position = table.column_index(&name);
    let found =
        position.and_then(|position| Some((u32::try_from(position).ok()?, table.columns.get(position)?)));
    let (position, column) = found.ok_or_else(|| error::undefined_column_of(&name, &table.name))?;
    match &statement.change {
        Change::Add {
            always,
            name,
            choices,
        } => {
            let place = (table.id, position);
            add(
                &mut changes,
                &table,
                place,
                column,
                (*always, name.as_deref(), choices),
            )?;
        }
        Change::Set { always } => {
            let identity = column.identity;
            let identity = identity.ok_or_else(|| refused(&name, &table, "is not an identity column"))?;
            changes.push(CatalogOp::SetIdentity {
                table: table.id,
                column: position,
                identity: Some(Identity {
                    always: *always,
                    ..identity
                }),
            })?;
        }
        Change::Drop { lenient } => match column.identity {
            Some(identity) => {
                changes.push(CatalogOp::SetIdentity {
                    table: table.id,
                    column: position,
                    identity: None,
                })?;
                changes.push(CatalogOp::DropSequence(identity.sequence))?;
            }
            None if *lenient => {
                let table = &table.name;
                changes.notice(format!(
                    "column \"{name}\" of relation \"{table}\" is not an identity column, skipping"
                ));
            }
            None => return Err(refused(&name, &table, "is not an identity column")),
        },
    }
    Ok(changes.finish("ALTER TABLE"))
}

fn add(
    changes: &mut Changes,
    table: &TableDef,
    place: (TableId, u32),
    column: &ColumnDef,
    (always, name, choices): (bool, Option<&[String]>, &SequenceChoices),
) -> Result<(), SqlError> {
    if column.identity.is_some() {
        return Err(refused(&column.name, table, "is already an identity column"));
    }
    if column.default.is_some() {
        return Err(refused(&column.name, table, "already has a default value"));
    }
    if !column.not_null {
        let why = "must be declared NOT NULL before identity can be added";
        return Err(refused(&column.name, table, why));
    }
    let name = match name {
        Some(parts) => names::cut(names::relation(parts)?.to_owned()),
        None => changes
            .catalog
            .free_name(&names::cut(format!("{}_{}_seq", table.name, column.name))),
    };
    let id = SequenceId(changes.catalog.next_object_id());
    let mut sequence = sequence::new_sequence(id, &name, column.ty).map_err(|_| {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            "identity column type must be smallint, integer, or bigint",
        )
    })?;
    sequence::apply_choices(&mut sequence, choices)?;
    sequence.owned_by = Some(place);
    changes.push(CatalogOp::CreateSequence(sequence))?;
    changes.push(CatalogOp::SetIdentity {
        table: place.0,
        column: place.1,
        identity: Some(Identity { always, sequence: id }),
    })
}
