//! Which shapes of syntax a point statement may have: tests on syntax trees, before binding.

use std::sync::Arc;

use sqlparser::ast::{
    self, ConflictTarget, Distinct, Expr, GroupByExpr, LockType, ObjectName, OnConflict, OnConflictAction,
    Query, Select, SetExpr, TableFactor, TableWithJoins,
};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlError, SqlState};

use super::super::bind::Refusal;
use super::super::names;
use super::super::plan::OutputColumn;
use super::super::scalar::Scalar;
use super::point::OutputItem;
use crate::error;

type Analysed<T> = Result<T, Refusal>;

/// The columns that an INSERT names, or all.
pub(super) fn target_columns(table: &TableDef, columns: &[ObjectName]) -> Analysed<Vec<usize>> {
    if columns.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut targets = Vec::with_capacity(columns.len());
    for column in columns {
        let parts = names::parts(column);
        let [name] = parts.as_slice() else {
            return Err(Refusal::General);
        };
        let number = table
            .column_index(name)
            .ok_or_else(|| error::undefined_column_of(name, &table.name))?;
        if targets.contains(&number) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            )
            .into());
        }
        targets.push(number);
    }
    Ok(targets)
}

pub(super) fn check_width(expressions: usize, targets: usize, explicit: bool) -> Result<(), SqlError> {
    if expressions > targets {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more expressions than target columns",
        ));
    }
    if expressions < targets && explicit {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more target columns than expressions",
        ));
    }
    Ok(())
}

pub(crate) fn is_default(expr: &Expr) -> bool {
    let Expr::Identifier(ident) = expr else {
        return false;
    };
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
}

/// The arbiter index of ON CONFLICT; `text` is the statement's, for error positions.
pub(super) fn arbiter(conflict: &OnConflict, table: &Arc<TableDef>, text: &str) -> Analysed<Arc<IndexDef>> {
    let undefined = |column: &ast::Ident| {
        let error = error::undefined_column(&names::ident(column));
        match weft_binder::position(text, column.span) {
            Some(position) => error.position(position),
            None => error,
        }
    };
    let no_match = || {
        SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        )
    };
    match &conflict.conflict_target {
        Some(ConflictTarget::Columns(columns)) => {
            let mut wanted = Vec::with_capacity(columns.len());
            for column in columns {
                let number = table.column_index(&names::ident(column));
                wanted.push(number.ok_or_else(|| undefined(column))?);
            }
            let matches = |index: &&Arc<IndexDef>| {
                index.unique
                    && index.columns.len() == wanted.len()
                    && index.columns.iter().all(|column| wanted.contains(column))
            };
            table
                .indexes
                .iter()
                .find(matches)
                .cloned()
                .ok_or_else(|| no_match().into())
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let parts = names::parts(name);
            let name = parts.last().map_or("", String::as_str);
            table
                .indexes
                .iter()
                .find(|index| index.unique && index.name == name)
                .cloned()
                .ok_or_else(|| {
                    SqlError::new(
                        SqlState::UNDEFINED_OBJECT,
                        format!(
                            "constraint \"{name}\" for table \"{}\" does not exist",
                            table.name
                        ),
                    )
                    .into()
                })
        }
        None => {
            if !matches!(conflict.action, OnConflictAction::DoNothing) {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                )
                .into());
            }
            let mut unique = table.indexes.iter().filter(|index| index.unique);
            match (unique.next(), unique.next()) {
                (Some(index), None) => Ok(Arc::clone(index)),
                // Several indexes may conflict.
                _ => Err(Refusal::General),
            }
        }
    }
}

pub(super) fn refuse_unique_columns(table: &TableDef, assignments: &[(usize, Scalar)]) -> Analysed<()> {
    let changes_key = table.indexes.iter().filter(|index| index.unique).any(|index| {
        assignments
            .iter()
            .any(|(column, _)| index.columns.contains(column))
    });
    if changes_key {
        Err(Refusal::General)
    } else {
        Ok(())
    }
}

pub(super) fn single_table(from: &TableWithJoins) -> Analysed<(&ObjectName, Option<String>)> {
    match &from.relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } if from.joins.is_empty()
            && with_hints.is_empty()
            && partitions.is_empty()
            && index_hints.is_empty()
            && alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) =>
        {
            Ok((name, alias.as_ref().map(|alias| names::ident(&alias.name))))
        }
        _ => Err(Refusal::General),
    }
}

/// The SELECT of a query without DISTINCT and without clauses that only the query engine supports.
pub(crate) fn plain_select(query: &Query) -> Option<&Select> {
    single_select(query).filter(|select| select.distinct.is_none())
}

/// The SELECT or SELECT DISTINCT of a query without clauses that only the query engine supports.
pub(super) fn single_select(query: &Query) -> Option<&Select> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(list, modifiers) => !list.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let plain = query.with.is_none()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty()
        && !grouped
        && matches!(select.distinct, None | Some(Distinct::Distinct))
        && select.top.is_none()
        && select.into.is_none()
        && select.exclude.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none()
        && select.connect_by.is_empty()
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty();
    plain.then_some(select.as_ref())
}

/// Whether rows are locked; NOWAIT and SKIP LOCKED are planned in general form.
pub(super) fn row_locks(query: &Query) -> Analysed<bool> {
    match query.locks.as_slice() {
        [] => Ok(false),
        [lock] if lock.nonblock.is_none() && lock.of.is_none() => match lock.lock_type {
            LockType::Update => Ok(true),
            LockType::Share => Err(Refusal::General),
        },
        _ => Err(Refusal::General),
    }
}

pub(super) fn is_plain_wildcard(options: &ast::WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

pub(super) fn column_item(table: &TableDef, column: usize) -> Option<OutputItem> {
    let def = table.columns.get(column)?;
    Some(OutputItem {
        scalar: Scalar::Column(column as u16),
        column: OutputColumn {
            name: def.name.clone(),
            ty: def.ty,
            table: Some((table.id, column as i16 + 1)),
        },
    })
}
