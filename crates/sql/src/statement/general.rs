//! Statements for the query engine: what the session must know beside the syntax tree.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{self, LockType, NonBlock, ObjectName, Visit, Visitor};
use weft_base::TableId;
use weft_store::Catalog;
use weft_types::SqlError;

use super::plan::{ModifyPlan, QueryPlan, RowLockStrength, RowLockWait, RowLocks};
use super::{PlanContext, defaults, functions, names};
use crate::error;
use crate::query::{ModifyKind, ModifyQuery};

/// A query that is no point statement.
pub(crate) fn query(
    statement: &ast::Statement,
    query: &ast::Query,
    ctx: &PlanContext<'_>,
) -> Result<QueryPlan, SqlError> {
    let found = survey(statement, ctx.catalog);
    let row_locks = row_locks(query, &found.tables, ctx.catalog)?;
    Ok(QueryPlan {
        statement: Box::new(statement.clone()),
        text: ctx.text.to_owned(),
        param_types: ctx.param_types.to_vec(),
        row_locks,
        tables: found.tables,
        moves_sequence: found.moves_sequence,
    })
}

/// INSERT, UPDATE or DELETE that is no point statement.
pub(crate) fn modify(statement: &ast::Statement, ctx: &PlanContext<'_>) -> Result<ModifyPlan, SqlError> {
    check_target(statement, ctx.catalog)?;
    let query = ModifyQuery::new(statement, ctx.catalog)?;
    let defaults = match query.kind {
        ModifyKind::Insert => defaults::all_defaults(ctx.catalog, &query.table)?,
        _ => Vec::new(),
    };
    let mut tables = survey(statement, ctx.catalog).tables;
    if query.kind == ModifyKind::Insert && !reads_target(statement, &query, ctx.catalog) {
        tables.retain(|table| *table != query.table.id);
    }
    Ok(ModifyPlan {
        query,
        statement: Box::new(statement.clone()),
        param_types: ctx.param_types.to_vec(),
        defaults,
        tables,
    })
}

/// The table that is written to must be a user's table.
fn check_target(statement: &ast::Statement, catalog: &Catalog) -> Result<(), SqlError> {
    let relation = match statement {
        ast::Statement::Update(update) => Some(&update.table.relation),
        ast::Statement::Delete(delete) => {
            let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) = &delete.from;
            from.first().map(|from| &from.relation)
        }
        _ => None,
    };
    let name = match (statement, relation) {
        (
            ast::Statement::Insert(ast::Insert {
                table: ast::TableObject::TableName(name),
                ..
            }),
            _,
        ) => name,
        (_, Some(ast::TableFactor::Table { name, .. })) => name,
        _ => return Ok(()),
    };
    names::table(catalog, &names::parts(name)).map(|_| ())
}

/// Whether an INSERT's source names its own target.
fn reads_target(statement: &ast::Statement, query: &ModifyQuery, catalog: &Catalog) -> bool {
    match statement {
        ast::Statement::Insert(insert) => insert.source.as_ref().is_some_and(|source| {
            let source = ast::Statement::Query(source.clone());
            survey(&source, catalog).tables.contains(&query.table.id)
        }),
        _ => true,
    }
}

/// What a statement names.
#[derive(Default)]
struct Survey<'c> {
    catalog: Option<&'c Catalog>,
    tables: Vec<TableId>,
    moves_sequence: bool,
}

fn survey<'c>(statement: &ast::Statement, catalog: &'c Catalog) -> Survey<'c> {
    let mut survey = Survey {
        catalog: Some(catalog),
        ..Survey::default()
    };
    let _ = statement.visit(&mut survey);
    survey
}

impl Visitor for Survey<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let table = self
            .catalog
            .and_then(|catalog| names::find_table(catalog, &names::parts(relation)));
        if let Some(table) = table
            && !self.tables.contains(&table.id)
        {
            self.tables.push(table.id);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
        if let ast::Expr::Function(function) = expr {
            let name = functions::function_name(&function.name);
            self.moves_sequence |= matches!(name.as_deref(), Some("nextval" | "setval"));
        }
        ControlFlow::Continue(())
    }
}

fn row_locks(
    query: &ast::Query,
    tables: &[TableId],
    catalog: &Catalog,
) -> Result<Option<RowLocks>, SqlError> {
    let Some(first) = query.locks.first() else {
        return Ok(None);
    };
    let mut locks = RowLocks {
        strength: RowLockStrength::Share,
        wait: RowLockWait::Wait,
        tables: Vec::new(),
    };
    for clause in &query.locks {
        if matches!(clause.lock_type, LockType::Update) {
            locks.strength = RowLockStrength::Update;
        }
        match &clause.of {
            None => locks.tables = tables.to_vec(),
            Some(name) => {
                // OF names tables or their aliases; an alias locks what the query reads, which is never too
                // little.
                match names::find_table(catalog, &names::parts(name)) {
                    Some(table) if tables.contains(&table.id) => locks.tables.push(table.id),
                    _ => locks.tables = tables.to_vec(),
                }
            }
        }
    }
    locks.wait = match first.nonblock {
        None => RowLockWait::Wait,
        Some(NonBlock::Nowait) => RowLockWait::NoWait,
        Some(NonBlock::SkipLocked) => RowLockWait::SkipLocked,
    };
    if locks.tables.is_empty() && !tables.is_empty() {
        return Err(error::unsupported(
            "FOR UPDATE of these relations is not supported",
        ));
    }
    Ok(Some(locks))
}
