//! CREATE SEQUENCE, ALTER SEQUENCE, DROP SEQUENCE, and the options that they share with IDENTITY.
//!
//! PostgreSQL accepts the options in any order, sqlparser in one order only, so the two statements
//! are parsed here.

use sqlparser::ast::{Expr, ObjectName, SequenceOptions, UnaryOperator, Value};
use weft_base::TableId;
use weft_store::{CatalogOp, SequenceDef, SequenceId, SequenceState};
use weft_types::{SqlError, SqlState, SqlType};

use super::super::names;
use super::Changes;
use crate::error;
use weft_syntax::reader::TokenReader;

/// The given options of a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceChoices {
    increment: Option<i64>,
    start: Option<i64>,
    /// `Some(None)`: NO MINVALUE.
    min_value: Option<Option<i64>>,
    max_value: Option<Option<i64>>,
    cycle: Option<bool>,
    /// RESTART, with a value or at the start value.
    restart: Option<Option<i64>>,
    /// AS type, as written.
    ty: Option<String>,
    /// OWNED BY table.column; `Some(None)`: NONE.
    owned_by: Option<Option<(Vec<String>, String)>>,
}

/// CREATE SEQUENCE or ALTER SEQUENCE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceStatement {
    /// CREATE rather than ALTER.
    pub create: bool,
    /// IF NOT EXISTS, IF EXISTS.
    pub lenient: bool,
    /// Qualified name.
    pub name: Vec<String>,
    /// Options.
    pub choices: SequenceChoices,
}

/// Parses what follows CREATE or ALTER; `None` if it does not concern a sequence.
pub(crate) fn parse_sequence(
    reader: &mut TokenReader<'_>,
    create: bool,
) -> Result<Option<SequenceStatement>, SqlError> {
    if !reader.accept("SEQUENCE") {
        return Ok(None);
    }
    let lenient = if create {
        reader.accept_all(&["IF", "NOT", "EXISTS"])
    } else {
        reader.accept_all(&["IF", "EXISTS"])
    };
    let name = reader.qualified_name()?;
    let mut choices = SequenceChoices::default();
    while !reader.at_end() {
        choice(reader, &mut choices, create)?;
    }
    Ok(Some(SequenceStatement {
        create,
        lenient,
        name,
        choices,
    }))
}

fn number(reader: &mut TokenReader<'_>) -> Result<i64, SqlError> {
    reader.accept_integer().ok_or_else(|| reader.unexpected())
}

pub(super) fn choice(
    reader: &mut TokenReader<'_>,
    choices: &mut SequenceChoices,
    create: bool,
) -> Result<(), SqlError> {
    if reader.accept("INCREMENT") {
        reader.accept("BY");
        choices.increment = Some(number(reader)?);
    } else if reader.accept("START") {
        reader.accept("WITH");
        choices.start = Some(number(reader)?);
    } else if reader.accept("MINVALUE") {
        choices.min_value = Some(Some(number(reader)?));
    } else if reader.accept("MAXVALUE") {
        choices.max_value = Some(Some(number(reader)?));
    } else if reader.accept_all(&["NO", "MINVALUE"]) {
        choices.min_value = Some(None);
    } else if reader.accept_all(&["NO", "MAXVALUE"]) {
        choices.max_value = Some(None);
    } else if reader.accept_all(&["NO", "CYCLE"]) {
        choices.cycle = Some(false);
    } else if reader.accept("CYCLE") {
        choices.cycle = Some(true);
    } else if reader.accept("CACHE") {
        number(reader)?;
    } else if !create && reader.accept("RESTART") {
        reader.accept("WITH");
        choices.restart = Some(reader.accept_integer());
    } else if reader.accept("AS") {
        choices.ty = Some(reader.identifier()?);
    } else if reader.accept_all(&["OWNED", "BY"]) {
        let mut parts = reader.qualified_name()?;
        let column = parts.pop().unwrap_or_default();
        choices.owned_by = Some(match parts.is_empty() {
            true if column == "none" => None,
            true => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                    .hint("Specify OWNED BY table.column or OWNED BY NONE."));
            }
            false => Some((parts, column)),
        });
    } else {
        return Err(reader.unexpected());
    }
    Ok(())
}

/// CREATE SEQUENCE.
pub(super) fn create_sequence(changes: &mut Changes, statement: &SequenceStatement) -> Result<(), SqlError> {
    let name = names::relation(&statement.name)?;
    if statement.lenient && changes.catalog.relation(name).is_some() {
        changes.notice(format!("relation \"{name}\" already exists, skipping"));
        return Ok(());
    }
    let ty = match &statement.choices.ty {
        None => SqlType::Int8,
        Some(text) => super::super::named_type(text)?,
    };
    let mut sequence = new_sequence(SequenceId(changes.catalog.next_object_id()), name, ty)?;
    apply_choices(&mut sequence, &statement.choices)?;
    if let Some(Some((table, column))) = &statement.choices.owned_by {
        sequence.owned_by = Some(owner_column(changes, table, column)?);
    }
    changes.push(CatalogOp::CreateSequence(sequence))
}

/// The column that OWNED BY names.
fn owner_column(changes: &Changes, table: &[String], column: &str) -> Result<(TableId, u32), SqlError> {
    let table = names::table(&changes.catalog, table)?;
    let position = table
        .column_index(column)
        .and_then(|position| u32::try_from(position).ok())
        .ok_or_else(|| error::undefined_column_of(column, &table.name))?;
    Ok((table.id, position))
}

/// ALTER SEQUENCE: sets its position or its owner. Other properties are fixed at creation.
pub(super) fn alter_sequence(changes: &mut Changes, statement: &SequenceStatement) -> Result<(), SqlError> {
    let name = names::relation(&statement.name)?;
    let Some(sequence) = changes.catalog.sequence(name).cloned() else {
        if statement.lenient {
            changes.notice(format!("relation \"{name}\" does not exist, skipping"));
            return Ok(());
        }
        return Err(error::undefined_table(name));
    };
    let possible = SequenceChoices {
        restart: statement.choices.restart,
        owned_by: statement.choices.owned_by.clone(),
        ..SequenceChoices::default()
    };
    if statement.choices != possible {
        return Err(error::unsupported(
            "ALTER SEQUENCE can only RESTART and set OWNED BY",
        ));
    }
    if let Some(owner) = &statement.choices.owned_by {
        let owner = owner
            .as_ref()
            .map(|(table, column)| owner_column(changes, table, column));
        changes.push(CatalogOp::SetSequenceOwner {
            id: sequence.id,
            owner: owner.transpose()?,
        })?;
    }
    if let Some(restart) = statement.choices.restart {
        let state = SequenceState {
            last_value: restart.unwrap_or(sequence.start),
            is_called: false,
        };
        changes.push(CatalogOp::SetSequence {
            id: sequence.id,
            state,
        })?;
    }
    Ok(())
}

/// An ascending sequence of a type.
pub(super) fn new_sequence(id: SequenceId, name: &str, ty: SqlType) -> Result<SequenceDef, SqlError> {
    let max_value = match ty {
        SqlType::Int2 => i64::from(i16::MAX),
        SqlType::Int4 => i64::from(i32::MAX),
        SqlType::Int8 => i64::MAX,
        _ => {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "sequence type must be smallint, integer, or bigint",
            ));
        }
    };
    Ok(SequenceDef {
        ty,
        max_value,
        ..SequenceDef::new(id, name)
    })
}

/// Applies START, INCREMENT, MINVALUE, MAXVALUE, CYCLE; CACHE has no effect.
pub(super) fn apply_choices(sequence: &mut SequenceDef, choices: &SequenceChoices) -> Result<(), SqlError> {
    sequence.increment = choices.increment.unwrap_or(1);
    if sequence.increment < 0 {
        let smallest = match sequence.ty {
            SqlType::Int2 => i64::from(i16::MIN),
            SqlType::Int4 => i64::from(i32::MIN),
            _ => i64::MIN,
        };
        (sequence.min_value, sequence.max_value) = (smallest, -1);
    }
    sequence.min_value = choices.min_value.flatten().unwrap_or(sequence.min_value);
    sequence.max_value = choices.max_value.flatten().unwrap_or(sequence.max_value);
    sequence.cycle = choices.cycle.unwrap_or(false);
    let first = if sequence.increment < 0 {
        sequence.max_value
    } else {
        sequence.min_value
    };
    sequence.start = choices.start.unwrap_or(first);
    Ok(())
}

/// Applies the options of an IDENTITY column, as parsed by sqlparser.
pub(super) fn apply_options(sequence: &mut SequenceDef, options: &[SequenceOptions]) -> Result<(), SqlError> {
    let mut choices = SequenceChoices::default();
    for option in options {
        match option {
            SequenceOptions::IncrementBy(expr, _) => choices.increment = Some(integer(expr)?),
            SequenceOptions::StartWith(expr, _) => choices.start = Some(integer(expr)?),
            SequenceOptions::MinValue(expr) => {
                choices.min_value = Some(expr.as_ref().map(integer).transpose()?)
            }
            SequenceOptions::MaxValue(expr) => {
                choices.max_value = Some(expr.as_ref().map(integer).transpose()?)
            }
            SequenceOptions::Cycle(no) => choices.cycle = Some(!*no),
            SequenceOptions::Cache(_) => {}
        }
    }
    apply_choices(sequence, &choices)
}

fn integer(expr: &Expr) -> Result<i64, SqlError> {
    let (expr, sign) = match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => (expr.as_ref(), "-"),
        other => (other, ""),
    };
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => format!("{sign}{digits}")
                .parse()
                .map_err(|_| error::syntax(digits)),
            other => Err(error::syntax(&other.to_string())),
        },
        other => Err(error::syntax(&other.to_string())),
    }
}

/// DROP SEQUENCE.
pub(super) fn drop_sequences(
    changes: &mut Changes,
    list: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<(), SqlError> {
    for name in list {
        let parts = names::parts(name);
        let name = names::relation(&parts)?;
        let Some(sequence) = changes.catalog.sequence(name).cloned() else {
            if changes.catalog.relation(name).is_some() {
                let message = format!("\"{name}\" is not a sequence");
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            if if_exists {
                changes.notice(format!("sequence \"{name}\" does not exist, skipping"));
                continue;
            }
            return Err(SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("sequence \"{name}\" does not exist"),
            ));
        };
        if let Some((owner, column)) = sequence.owned_by {
            let table = changes.catalog.table_by_id(owner).cloned();
            let names = table.as_ref().and_then(|table| {
                Some((
                    table.name.clone(),
                    table.columns.get(column as usize)?.name.clone(),
                ))
            });
            if let Some((table_name, column_name)) = names {
                if !cascade {
                    return Err(SqlError::new(
                        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                        format!("cannot drop sequence {name} because other objects depend on it"),
                    )
                    .detail(format!(
                        "default value for column {column_name} of table {table_name} depends on sequence {name}"
                    ))
                    .hint("Use DROP ... CASCADE to drop the dependent objects too."));
                }
                changes.push(CatalogOp::SetDefault {
                    table: owner,
                    column,
                    default: None,
                })?;
            }
        }
        changes.push(CatalogOp::DropSequence(sequence.id))?;
    }
    Ok(())
}
