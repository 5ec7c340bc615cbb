//! CREATE TABLE ... AS: a table with the columns of a query, and its rows.
//!
//! The table is made, then filled by an INSERT of the same transaction, whose text is part of the plan.

use weft_base::TableId;
use weft_store::{CatalogOp, ColumnDef, TableDef};
use weft_syntax::reader::TokenReader;
use weft_types::{SqlError, SqlState, SqlType};

use super::super::copy::quote_ident;
use super::super::plan::{DdlPlan, Plan};
use super::super::{PlanContext, general, names};
use super::Changes;
use crate::error;

/// CREATE TABLE name (columns) AS query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAsStatement {
    /// Qualified name.
    name: Vec<String>,
    /// IF NOT EXISTS
    if_not_exists: bool,
    /// Names given to the columns.
    columns: Vec<String>,
    /// The query's text.
    query: String,
    /// Number of characters before it in the statement.
    before: u32,
    /// Not WITH NO DATA.
    with_data: bool,
}

/// Parses what follows CREATE; `None` if it is another statement.
pub(crate) fn parse_table_as(reader: &mut TokenReader<'_>) -> Result<Option<TableAsStatement>, SqlError> {
    let mut ahead = reader.clone();
    ahead.accept_any(&["LOCAL", "GLOBAL"]);
    let temporary = ahead.accept_any(&["TEMPORARY", "TEMP"]);
    if !temporary {
        ahead.accept("UNLOGGED");
    }
    if !ahead.accept("TABLE") {
        return Ok(None);
    }
    let if_not_exists = ahead.accept_all(&["IF", "NOT", "EXISTS"]);
    let Ok(name) = ahead.qualified_name() else {
        return Ok(None);
    };
    let mut columns = Vec::new();
    if ahead.accept_symbol("(") {
        match ahead.list(TokenReader::identifier) {
            Ok(list) if ahead.accept_symbol(")") => columns = list,
            _ => return Ok(None),
        }
    }
    if !ahead.accept("AS") {
        return Ok(None);
    }
    *reader = ahead;
    if temporary {
        return Err(error::unsupported("temporary tables are not supported"));
    }
    if reader.clone().accept("EXECUTE") {
        return Err(error::unsupported("CREATE TABLE AS EXECUTE is not supported"));
    }
    let before = reader.position() - 1;
    let text = reader.rest();
    let (query, with_data) = without_data_clause(text, reader);
    if query.is_empty() {
        return Err(TokenReader::new(query).unexpected());
    }
    Ok(Some(TableAsStatement {
        name,
        if_not_exists,
        columns,
        query: query.to_owned(),
        before,
        with_data,
    }))
}

/// The query without the WITH [NO] DATA behind it, and whether that says that rows are wanted. Reads to the
/// end.
fn without_data_clause<'a>(text: &'a str, reader: &mut TokenReader<'_>) -> (&'a str, bool) {
    let start = reader.offset();
    let mut last: [(String, usize); 3] = Default::default();
    while !reader.at_end() {
        let word = (reader.peek_text().to_ascii_uppercase(), reader.offset() - start);
        last.rotate_left(1);
        if let Some(place) = last.last_mut() {
            *place = word;
        }
        reader.next_token();
    }
    let [first, second, third] = &last;
    let (at, with_data) = match (first.0.as_str(), second.0.as_str(), third.0.as_str()) {
        ("WITH", "NO", "DATA") => (first.1, false),
        (_, "WITH", "DATA") => (second.1, true),
        _ => return (text, true),
    };
    (text.get(..at).unwrap_or(text).trim_end(), with_data)
}

/// Plans the statement.
pub(crate) fn plan_table_as(statement: &TableAsStatement, ctx: &PlanContext<'_>) -> Result<Plan, SqlError> {
    let mut changes = Changes::new(ctx.catalog);
    let name = names::cut(names::relation(&statement.name)?.to_owned());
    if statement.if_not_exists && changes.catalog.relation(&name).is_some() {
        changes.notice(format!("relation \"{name}\" already exists, skipping"));
        return Ok(changes.finish("CREATE TABLE AS"));
    }
    let columns = columns(statement, ctx).map_err(|error| match error.fields().position {
        Some(position) => error.position(position + statement.before),
        None => error,
    })?;
    let table = TableId(changes.catalog.next_object_id());
    let count = columns.len();
    changes.push(CatalogOp::CreateTable(TableDef::new(
        table,
        name.clone(),
        columns,
    )))?;
    let fill = statement
        .with_data
        .then(|| fill(&quote_ident(&name), statement, count));
    Ok(match changes.finish("CREATE TABLE AS") {
        Plan::Ddl(plan) => Plan::Ddl(std::sync::Arc::new(DdlPlan {
            fill,
            ..DdlPlan::clone(&plan)
        })),
        other => other,
    })
}

/// The INSERT that fills the table. Behind the name a parenthesis would begin a list of columns.
fn fill(name: &str, statement: &TableAsStatement, columns: usize) -> String {
    match columns {
        0 => format!("INSERT INTO public.{name} {}", statement.query),
        _ => format!(
            "INSERT INTO public.{name} SELECT * FROM ({}) filled",
            statement.query
        ),
    }
}

fn columns(statement: &TableAsStatement, ctx: &PlanContext<'_>) -> Result<Vec<ColumnDef>, SqlError> {
    let query = &statement.query;
    let bound = weft_syntax::with_statement(query, |tree| match tree {
        sqlparser::ast::Statement::Query(query) if !query.locks.is_empty() => Err(error::unsupported(
            "CREATE TABLE AS with FOR UPDATE or FOR SHARE is not supported",
        )),
        sqlparser::ast::Statement::Query(_) => {
            weft_binder::bind_query(tree, general::environment(ctx.catalog, &[], query))
        }
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "not a query")),
    })?;
    if !bound.parameters.is_empty() {
        return Err(error::unsupported(
            "parameters in CREATE TABLE AS are not supported",
        ));
    }
    if statement.columns.len() > bound.output.len() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "too many column names were specified",
        ));
    }
    let columns = bound.output.iter().enumerate().map(|(place, column)| {
        let name = statement.columns.get(place).unwrap_or(&column.name);
        if matches!(column.ty, SqlType::Record | SqlType::Void) {
            let message = format!("column \"{name}\" has pseudo-type {}", column.ty.name());
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        Ok(ColumnDef::new(names::cut(name.clone()), column.ty))
    });
    columns.collect()
}
