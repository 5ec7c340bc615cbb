//! CREATE SEQUENCE, DROP SEQUENCE, and the options that IDENTITY shares with them.

use datafusion::sql::sqlparser::ast::{Expr, ObjectName, SequenceOptions, Statement};
use weft_store::{CatalogOp, SequenceDef, SequenceId};
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::super::bind::Binder;
use super::super::compile::path::folded;
use super::super::names;
use super::super::params::ParamTypes;
use super::{Changes, types};
use crate::error;

/// CREATE SEQUENCE.
pub(super) fn create_sequence(changes: &mut Changes, statement: &Statement) -> Result<(), SqlError> {
    let Statement::CreateSequence { temporary, if_not_exists, name, data_type, sequence_options, owned_by } = statement
    else {
        return Err(SqlError::internal("not a CREATE SEQUENCE"));
    };
    if *temporary {
        return Err(error::unsupported("temporary sequences are not supported"));
    }
    if owned_by.is_some() {
        return Err(error::unsupported("OWNED BY is not supported"));
    }
    let parts = names::parts(name);
    let name = names::relation(&parts)?;
    if *if_not_exists && changes.catalog.relation(name).is_some() {
        changes.notice(format!("relation \"{name}\" already exists, skipping"));
        return Ok(());
    }
    let ty = match data_type {
        None => SqlType::Int8,
        Some(data_type) => types::known_type(data_type)?,
    };
    let mut sequence = new_sequence(SequenceId(changes.catalog.next_object_id()), name, ty)?;
    apply_options(&mut sequence, sequence_options)?;
    changes.push(CatalogOp::CreateSequence(sequence))
}

/// An ascending sequence over a type.
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
    Ok(SequenceDef { ty, max_value, ..SequenceDef::new(id, name) })
}

/// Applies START, INCREMENT, MINVALUE, MAXVALUE, CYCLE; CACHE means nothing here.
pub(super) fn apply_options(sequence: &mut SequenceDef, options: &[SequenceOptions]) -> Result<(), SqlError> {
    let mut start = None;
    let (mut min, mut max) = (None, None);
    for option in options {
        match option {
            SequenceOptions::IncrementBy(expr, _) => sequence.increment = integer(expr)?,
            SequenceOptions::StartWith(expr, _) => start = Some(integer(expr)?),
            SequenceOptions::MinValue(Some(expr)) => min = Some(integer(expr)?),
            SequenceOptions::MaxValue(Some(expr)) => max = Some(integer(expr)?),
            SequenceOptions::Cycle(no) => sequence.cycle = !*no,
            SequenceOptions::MinValue(None) | SequenceOptions::MaxValue(None) | SequenceOptions::Cache(_) => {}
        }
    }
    if sequence.increment < 0 {
        let smallest = match sequence.ty {
            SqlType::Int2 => i64::from(i16::MIN),
            SqlType::Int4 => i64::from(i32::MIN),
            _ => i64::MIN,
        };
        (sequence.min_value, sequence.max_value) = (smallest, -1);
    }
    sequence.min_value = min.unwrap_or(sequence.min_value);
    sequence.max_value = max.unwrap_or(sequence.max_value);
    let first = if sequence.increment < 0 { sequence.max_value } else { sequence.min_value };
    sequence.start = start.unwrap_or(first);
    Ok(())
}

fn integer(expr: &Expr) -> Result<i64, SqlError> {
    let mut params = ParamTypes::default();
    let catalog = weft_store::Catalog::new();
    let mut binder = Binder::new(&catalog, None, &mut params, "");
    let value = binder.bind(expr).ok().map(|typed| folded(typed.scalar));
    match value {
        Some(super::super::scalar::Scalar::Constant(value)) if value.as_i64().is_some() => {
            Ok(value.as_i64().unwrap_or_default())
        }
        Some(super::super::scalar::Scalar::Constant(Value::Text(text))) => {
            text.parse().map_err(|_| error::syntax(&text))
        }
        _ => Err(error::syntax(&expr.to_string())),
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
                Some((table.name.clone(), table.columns.get(column as usize)?.name.clone()))
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
                changes.push(CatalogOp::SetDefault { table: owner, column, default: None })?;
            }
        }
        changes.push(CatalogOp::DropSequence(sequence.id))?;
    }
    Ok(())
}
