//! What parses but is a syntax error in PostgreSQL: names that are reserved words without quotes.

use std::ops::ControlFlow;

use sqlparser::ast::{
    AlterTableOperation, AssignmentTarget, Expr, Ident, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, Statement, TableAlias, TableConstraint, TableFactor, Visit, Visitor,
};
use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlState};

use crate::keyword::{self, Category};
use crate::tokens::near;

/// The most columns of a result with its sort keys, group keys, and aggregates of a query. PostgreSQL has no
/// bound on aggregates.
const ENTRIES_MAX: usize = 1664;

/// Refuses a list of more entries than a query may have: 54011.
///
/// # Errors
/// 54011, in PostgreSQL's words.
pub fn refuse_wide(entries: usize) -> Result<(), SqlError> {
    if entries <= ENTRIES_MAX {
        return Ok(());
    }
    let message = format!("target lists can have at most {ENTRIES_MAX} entries");
    Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message))
}

/// Refuses a statement in which an unquoted word is a name that cannot be one.
pub(crate) fn statement(sql: &str, statement: &Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Names::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(Wrong::Name(position)) => Err(near(sql, position)),
        ControlFlow::Break(Wrong::Ended(error)) => Err(error),
    }
}

/// Breaks at the first wrong name, and when the statement shall end.
#[derive(Default)]
struct Names {
    pace: Pace,
}

enum Wrong {
    /// Where the name stands.
    Name(u64),
    /// With this error.
    Ended(SqlError),
}

type Flow = ControlFlow<Wrong>;

fn wrong(ident: &Ident) -> Flow {
    match ident.span.start.column {
        0 => ControlFlow::Continue(()),
        position => ControlFlow::Break(Wrong::Name(position)),
    }
}

/// A column or a table.
fn column(ident: &Ident) -> Flow {
    match ident.quote_style {
        None if !keyword::names_column(&ident.value) => wrong(ident),
        // A literal.
        Some('\'') => wrong(ident),
        _ => ControlFlow::Continue(()),
    }
}

fn columns<'a>(idents: impl IntoIterator<Item = &'a Ident>) -> Flow {
    for ident in idents {
        column(ident)?;
    }
    ControlFlow::Continue(())
}

/// The first part of a name with points; the others are labels.
fn first_part(name: &ObjectName) -> Option<&Ident> {
    name.0.first().and_then(ObjectNamePart::as_ident)
}

fn object(name: &ObjectName) -> Flow {
    columns(first_part(name))
}

fn alias(alias: Option<&TableAlias>) -> Flow {
    let Some(alias) = alias else {
        return ControlFlow::Continue(());
    };
    column(&alias.name)?;
    columns(alias.columns.iter().map(|column| &column.name))
}

fn constraint(constraint: &TableConstraint) -> Flow {
    match constraint {
        TableConstraint::Unique(unique) => columns(&unique.name),
        TableConstraint::PrimaryKey(key) => columns(&key.name),
        TableConstraint::Check(check) => columns(&check.name),
        TableConstraint::ForeignKey(key) => {
            columns(&key.name)?;
            columns(&key.columns)?;
            columns(&key.referred_columns)
        }
        _ => ControlFlow::Continue(()),
    }
}

fn altered(operation: &AlterTableOperation) -> Flow {
    match operation {
        AlterTableOperation::AddColumn { column_def, .. } => column(&column_def.name),
        AlterTableOperation::AddConstraint {
            constraint: added, ..
        } => constraint(added),
        AlterTableOperation::DropColumn { column_names, .. } => columns(column_names),
        AlterTableOperation::DropConstraint { name, .. } => column(name),
        AlterTableOperation::RenameColumn {
            old_column_name,
            new_column_name,
        } => columns([old_column_name, new_column_name]),
        AlterTableOperation::AlterColumn { column_name, .. } => column(column_name),
        _ => ControlFlow::Continue(()),
    }
}

impl Visitor for Names {
    type Break = Wrong;

    fn pre_visit_expr(&mut self, _expr: &Expr) -> Flow {
        match self.pace.step(16) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Wrong::Ended(error)),
        }
    }

    fn pre_visit_statement(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::CreateTable(table) => {
                object(&table.name)?;
                columns(table.columns.iter().map(|column| &column.name))?;
                table.constraints.iter().try_for_each(constraint)
            }
            Statement::CreateIndex(index) => index.name.iter().try_for_each(object),
            Statement::AlterTable(table) => {
                object(&table.name)?;
                table.operations.iter().try_for_each(altered)
            }
            Statement::Drop { names, .. } => names.iter().try_for_each(object),
            Statement::Insert(insert) => {
                insert.columns.iter().try_for_each(object)?;
                columns(insert.table_alias.iter().map(|alias| &alias.alias))
            }
            Statement::Update(update) => update.assignments.iter().try_for_each(|one| match &one.target {
                AssignmentTarget::ColumnName(name) => object(name),
                AssignmentTarget::Tuple(names) => names.iter().try_for_each(object),
            }),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        for table in tables {
            alias(Some(&table.alias))?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        if let Err(error) = refuse_wide(select.projection.len()) {
            return ControlFlow::Break(Wrong::Ended(error));
        }
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item
                && alias.quote_style == Some('\'')
            {
                wrong(alias)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        match first_part(relation) {
            // A function may have a name that a table cannot have.
            Some(ident)
                if ident.quote_style.is_none()
                    && matches!(keyword::look_up(&ident.value), Some((Category::Reserved, _)))
                    && relation.0.len() == 1 =>
            {
                reserved(ident)
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> Flow {
        match table {
            TableFactor::Table {
                name,
                args,
                alias: named,
                ..
            } => {
                if args.is_none() {
                    object(name)?;
                }
                alias(named.as_ref())
            }
            TableFactor::Derived { alias: named, .. }
            | TableFactor::Function { alias: named, .. }
            | TableFactor::UNNEST { alias: named, .. }
            | TableFactor::NestedJoin { alias: named, .. } => alias(named.as_ref()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Calls without parentheses may stand in FROM.
fn reserved(ident: &Ident) -> Flow {
    match ident.value.starts_with("current_") || ident.value == "session_user" || ident.value == "user" {
        true => ControlFlow::Continue(()),
        false => wrong(ident),
    }
}
