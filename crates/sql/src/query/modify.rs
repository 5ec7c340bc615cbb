//! Rows to write, computed by queries.
//!
//! INSERT ... SELECT, and UPDATE and DELETE that do not name their rows by key, become a SELECT:
//!
//! ```text
//!   UPDATE t AS a SET c = e FROM x WHERE p
//!   SELECT a.__weft_row_id, a.__weft_row, e FROM __weft_rows.t AS a, x WHERE p
//! ```
//!
//! Each result row names the row to change, carries it as it was read, and holds the new values, which are
//! converted to the columns' types as an assignment and put into a copy of the row. Nothing is written and
//! nothing locked here.
//!
//! Under READ COMMITTED a row may have changed before its lock was granted. [`QueryEngine::reevaluate`] runs
//! the same query with the locked row as the whole content of the target (other tables, and the target in
//! subqueries, as the new view shows them): no result means that the row no longer qualifies.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, DataType, Delete, Expr, FromTable, Ident, Insert, ObjectName,
    ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement,
    TableAlias, TableFactor, TableObject, TableWithJoins, Update, UpdateTableFromKind, Value as SqlValue,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use weft_base::{RowId, TableId};
use weft_store::{Catalog, TableDef};
use weft_types::{RowBuilder, SqlError, SqlState, SqlType, Value, assign_from};

use super::engine::QueryEngine;
use super::naming::{folded, last_part};
use super::place::{placed, shown};
use super::planner::ROWS_SCHEMA;
use super::results::ValueColumn;
use super::rewrite::{null, object_name};
use super::schema::{ROW_BYTES_COLUMN, ROW_ID_COLUMN};
use super::stream::RowStream;
use super::{GivenRows, QuerySettings, ReadSource, RowHandle};

/// Which statement it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModifyKind {
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
}

/// One row to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// Which row.
    pub handle: RowHandle,
    /// The row as the query read it.
    pub old: Vec<u8>,
    /// The row as it shall be; `None` to delete it.
    pub new: Option<Vec<u8>>,
}

/// Gives the values of columns that an INSERT leaves out or sets to DEFAULT.
pub trait InsertDefaults {
    /// The value for one new row, of the column's type or assignable to it.
    fn value(&mut self, table: &TableDef, column: usize) -> Result<Value, SqlError>;
}

/// An INSERT, UPDATE or DELETE, turned into queries against one catalog version.
#[derive(Debug, Clone)]
pub struct ModifyQuery {
    /// Which statement.
    pub kind: ModifyKind,
    /// The table written to.
    pub table: Arc<TableDef>,
    /// Columns that get a value of their own, in the order of the query's result.
    pub columns: Vec<usize>,
    select: Statement,
    defaulted: HashSet<(usize, usize)>,
    returning: Option<Statement>,
}

/// What every evaluation needs beside the query.
pub struct Evaluation<'a> {
    /// Values of the statement's parameters.
    pub params: &'a [Value],
    /// Declared types of the parameters.
    pub param_types: &'a [Option<SqlType>],
    /// The session.
    pub settings: &'a QuerySettings,
}

impl ModifyQuery {
    /// Takes the statement apart. Refuses what is not built: ON CONFLICT, rows as subquery assignments.
    pub fn new(ast: &Statement, catalog: &Catalog) -> Result<ModifyQuery, SqlError> {
        let query = match ast {
            Statement::Insert(insert) => from_insert(insert, catalog),
            Statement::Update(update) => from_update(update, catalog),
            Statement::Delete(delete) => from_delete(delete, catalog),
            _ => Err(SqlError::internal("not a statement that writes rows")),
        };
        query.map_err(|error| placed(error, ast, ""))
    }

    /// Whether the statement has a RETURNING clause.
    pub fn has_returning(&self) -> bool {
        self.returning.is_some()
    }

    /// The query that computes the rows to change or insert.
    pub fn select(&self) -> &Statement {
        &self.select
    }

    /// The query that computes RETURNING, over the written rows.
    pub fn returning(&self) -> Option<&Statement> {
        self.returning.as_ref()
    }

    fn changed_row(&self, old: &[u8], values: &[Value]) -> Result<Vec<u8>, SqlError> {
        let layout = &self.table.layout;
        let mut builder = RowBuilder::new(layout);
        for column in 0..layout.column_count() {
            match self.columns.iter().position(|assigned| *assigned == column) {
                Some(position) => builder.set(column, &values[position])?,
                None if layout.is_null(old, column) => builder.set_null(column),
                None => {
                    let raw = layout.raw(old, column).ok_or_else(|| {
                        SqlError::new(SqlState::DATA_CORRUPTED, "a stored row does not fit its table")
                    })?;
                    builder.set_raw(column, raw)?;
                }
            }
        }
        builder.try_finish()
    }
}

impl QueryEngine {
    /// Computes the rows that an UPDATE or DELETE changes, each once, and calls `each` with them.
    pub fn changes(
        &self,
        query: &ModifyQuery,
        source: Arc<dyn ReadSource>,
        with: &Evaluation<'_>,
        mut each: impl FnMut(RowChange) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.run_changes(query, source, None, with, &mut each)
    }

    /// Evaluates the statement again for one locked row: the change to make now, or `None` when the row no
    /// longer qualifies.
    pub fn reevaluate(
        &self,
        query: &ModifyQuery,
        source: Arc<dyn ReadSource>,
        handle: RowHandle,
        row: Vec<u8>,
        with: &Evaluation<'_>,
    ) -> Result<Option<RowChange>, SqlError> {
        let given = GivenRows::new(Arc::clone(&source), query.table.id, vec![(handle, row)]);
        let mut change = None;
        self.run_changes(query, source, Some(Arc::new(given)), with, &mut |found| {
            change = Some(found);
            Ok(())
        })?;
        Ok(change)
    }

    fn run_changes(
        &self,
        query: &ModifyQuery,
        source: Arc<dyn ReadSource>,
        target: Option<Arc<dyn ReadSource>>,
        with: &Evaluation<'_>,
        each: &mut dyn FnMut(RowChange) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut stream = self.run_over(&query.select, source, target, with)?;
        let types: Vec<SqlType> = stream.columns().iter().map(|column| column.ty).collect();
        let mut seen: HashSet<RowId> = HashSet::new();
        while let Some(batch) = stream.next_batch()? {
            let assigned = value_columns(&batch, &types, 2)?;
            for row in 0..batch.num_rows() {
                let (handle, old) = hidden_columns(&batch, 0, row)?;
                if !seen.insert(handle) {
                    continue;
                }
                let new = match query.kind {
                    ModifyKind::Delete => None,
                    _ => {
                        let values = assigned_values(query, &assigned, &types[2..], row)?;
                        Some(query.changed_row(old, &values)?)
                    }
                };
                each(RowChange {
                    handle,
                    old: old.to_vec(),
                    new,
                })?;
            }
        }
        Ok(())
    }

    /// Computes the rows that an INSERT adds and calls `each` with every encoded row.
    pub fn new_rows(
        &self,
        query: &ModifyQuery,
        source: Arc<dyn ReadSource>,
        with: &Evaluation<'_>,
        defaults: &mut dyn InsertDefaults,
        mut each: impl FnMut(Vec<u8>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut stream = self.run_over(&query.select, source, None, with)?;
        let types: Vec<SqlType> = stream.columns().iter().map(|column| column.ty).collect();
        if types.len() > query.columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "INSERT has more expressions than target columns",
            ));
        }
        let table = &query.table;
        let mut row_number = 0;
        let mut values = vec![Value::Null; table.columns.len()];
        while let Some(batch) = stream.next_batch()? {
            let assigned = value_columns(&batch, &types, 0)?;
            for row in 0..batch.num_rows() {
                for (column, value) in values.iter_mut().enumerate() {
                    let position = query.columns.iter().position(|assigned| *assigned == column);
                    let given = position.filter(|position| {
                        *position < types.len() && !query.defaulted.contains(&(row_number, *position))
                    });
                    *value = match given {
                        Some(position) => {
                            let from = &types[position];
                            converted(table, column, assigned[position].value(row, from)?, from)?
                        }
                        None => {
                            let default = defaults.value(table, column)?;
                            weft_types::assign(default, &table.columns[column].ty)?
                        }
                    };
                }
                row_number += 1;
                each(table.layout.encode(&values)?)?;
            }
        }
        Ok(())
    }

    /// RETURNING, over the rows that were written (for DELETE: the rows that were removed), in their order.
    pub fn returning(
        &self,
        query: &ModifyQuery,
        source: Arc<dyn ReadSource>,
        rows: Vec<(RowHandle, Vec<u8>)>,
        with: &Evaluation<'_>,
    ) -> Result<RowStream, SqlError> {
        let Some(returning) = &query.returning else {
            return Err(SqlError::internal("the statement returns nothing"));
        };
        let given = GivenRows::new(Arc::clone(&source), query.table.id, rows);
        self.run_over(returning, source, Some(Arc::new(given)), with)
    }

    /// The rows that `SELECT ... FOR UPDATE` (or SHARE) has to lock: of every table of its FROM clause, or of
    /// those named by OF. After locking, ask again over a fresh view; when nothing new comes, the query
    /// itself may run on that view.
    pub fn rows_to_lock(
        &self,
        ast: &Statement,
        source: Arc<dyn ReadSource>,
        with: &Evaluation<'_>,
    ) -> Result<Vec<(TableId, RowHandle, Vec<u8>)>, SqlError> {
        let (select, tables) = locking_query(ast, &source.catalog())?;
        let mut stream = self.run_over(&select, source, None, with)?;
        let mut rows = Vec::new();
        let mut seen: HashSet<(TableId, RowId)> = HashSet::new();
        while let Some(batch) = stream.next_batch()? {
            let first = batch.num_columns() - 2 * tables.len();
            for row in 0..batch.num_rows() {
                for (position, table) in tables.iter().enumerate() {
                    let column = first + 2 * position;
                    if batch.column(column).is_null(row) {
                        continue;
                    }
                    let (handle, bytes) = hidden_columns(&batch, column, row)?;
                    if seen.insert((*table, handle)) {
                        rows.push((*table, handle, bytes.to_vec()));
                    }
                }
            }
        }
        Ok(rows)
    }
}

fn value_columns(batch: &RecordBatch, types: &[SqlType], skip: usize) -> Result<Vec<ValueColumn>, SqlError> {
    batch
        .columns()
        .iter()
        .zip(types)
        .skip(skip)
        .map(|(array, ty)| ValueColumn::new(array, ty))
        .collect()
}

fn hidden_columns(batch: &RecordBatch, first: usize, row: usize) -> Result<(RowId, &[u8]), SqlError> {
    let handles = batch.column(first).as_fixed_size_binary_opt();
    let rows = batch.column(first + 1).as_binary_opt::<i32>();
    match (handles, rows) {
        (Some(handles), Some(rows)) => {
            let handle = handles.value(row).try_into().unwrap_or_default();
            Ok((RowId::decode(handle), rows.value(row)))
        }
        _ => Err(SqlError::internal(
            "a query for rows to change lost its hidden columns",
        )),
    }
}

fn assigned_values(
    query: &ModifyQuery,
    columns: &[ValueColumn],
    types: &[SqlType],
    row: usize,
) -> Result<Vec<Value>, SqlError> {
    let mut values = Vec::with_capacity(columns.len());
    for ((column, from), &target) in columns.iter().zip(types).zip(&query.columns) {
        values.push(converted(&query.table, target, column.value(row, from)?, from)?);
    }
    Ok(values)
}

fn converted(table: &TableDef, column: usize, value: Value, from: &SqlType) -> Result<Value, SqlError> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let definition = &table.columns[column];
    assign_from(value, from, &definition.ty).map_err(|error| {
        if error.state == SqlState::DATATYPE_MISMATCH || error.state == SqlState::CANNOT_COERCE {
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{}\" is of type {} but expression is of type {}",
                    definition.name,
                    definition.ty.name(),
                    from.name()
                ),
            )
            .hint("You will need to rewrite or cast the expression.")
        } else {
            error
        }
    })
}

fn from_insert(insert: &Insert, catalog: &Catalog) -> Result<ModifyQuery, SqlError> {
    if insert.on.is_some() {
        return Err(SqlError::unsupported(
            "INSERT ... ON CONFLICT is not supported with a query",
        ));
    }
    let TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::unsupported("INSERT into a function is not supported"));
    };
    let table = target_table(name, catalog)?;
    let columns = target_columns(&insert.columns, &table)?;
    let Some(source) = &insert.source else {
        return Err(SqlError::internal("INSERT DEFAULT VALUES has no query"));
    };
    let mut source = source.as_ref().clone();
    let mut defaulted = HashSet::new();
    type_source(&mut source, &table, &columns, &mut defaulted)?;
    let alias = insert.table_alias.as_ref().map(|alias| alias.alias.clone());
    let returning = returning_query(&insert.returning, &table, alias)?;
    Ok(ModifyQuery {
        kind: ModifyKind::Insert,
        table,
        columns,
        select: Statement::Query(Box::new(source)),
        defaulted,
        returning,
    })
}

fn target_columns(names: &[ObjectName], table: &TableDef) -> Result<Vec<usize>, SqlError> {
    if names.is_empty() {
        return Ok((0..table.columns.len()).collect());
    }
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let column = column_of(name, table)?;
        if columns.contains(&column) {
            return Err(SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!(
                    "column \"{}\" specified more than once",
                    table.columns[column].name
                ),
            ));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Untyped literals and parameters of an INSERT's source take their column's type; DEFAULT is noted.
fn type_source(
    source: &mut Query,
    table: &TableDef,
    columns: &[usize],
    defaulted: &mut HashSet<(usize, usize)>,
) -> Result<(), SqlError> {
    let too_many = || {
        SqlError::new(
            SqlState::SYNTAX_ERROR,
            "INSERT has more expressions than target columns",
        )
    };
    match source.body.as_mut() {
        SetExpr::Values(values) => {
            for (row_number, row) in values.rows.iter_mut().enumerate() {
                for (position, expr) in row.iter_mut().enumerate() {
                    let column = *columns.get(position).ok_or_else(too_many)?;
                    if is_default(expr) {
                        defaulted.insert((row_number, position));
                        *expr = null();
                    }
                    type_untyped(expr, &table.columns[column].ty);
                }
            }
        }
        SetExpr::Select(select) => {
            for (position, item) in select.projection.iter_mut().enumerate() {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && let Some(&column) = columns.get(position)
                {
                    type_untyped(expr, &table.columns[column].ty);
                } else {
                    break;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn is_default(expr: &Expr) -> bool {
    let Expr::Identifier(ident) = expr else {
        return false;
    };
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
}

/// A string literal, parameter or NULL becomes a value of `ty`, without its length: assignment checks that.
fn type_untyped(expr: &mut Expr, ty: &SqlType) {
    let Expr::Value(value) = expr else { return };
    if matches!(
        value.value,
        SqlValue::SingleQuotedString(_)
            | SqlValue::EscapedStringLiteral(_)
            | SqlValue::Placeholder(_)
            | SqlValue::Null
    ) {
        let data_type = DataType::Custom(object_name(ty.catalog_name()), Vec::new());
        let inner = std::mem::replace(expr, null());
        *expr = Expr::Cast {
            kind: datafusion::sql::sqlparser::ast::CastKind::Cast,
            expr: Box::new(inner),
            data_type,
            array: false,
            format: None,
        };
    }
}

fn from_update(update: &Update, catalog: &Catalog) -> Result<ModifyQuery, SqlError> {
    if !update.table.joins.is_empty() {
        return Err(SqlError::unsupported("UPDATE of a join is not supported"));
    }
    let (table, alias, target) = target_factor(&update.table.relation, catalog)?;
    let (columns, values) = assignments(&update.assignments, &table)?;
    let mut from = vec![TableWithJoins {
        relation: target,
        joins: Vec::new(),
    }];
    if let Some(UpdateTableFromKind::AfterSet(more) | UpdateTableFromKind::BeforeSet(more)) = &update.from {
        from.extend(more.iter().cloned());
    }
    let mut projection = hidden_items(&alias, None);
    projection.extend(values.into_iter().map(SelectItem::UnnamedExpr));
    let select = select_statement(projection, from, update.selection.clone())?;
    let returning = returning_query(&update.returning, &table, Some(alias))?;
    Ok(ModifyQuery {
        kind: ModifyKind::Update,
        table,
        columns,
        select,
        defaulted: HashSet::new(),
        returning,
    })
}

fn assignments(assignments: &[Assignment], table: &TableDef) -> Result<(Vec<usize>, Vec<Expr>), SqlError> {
    let mut columns = Vec::new();
    let mut values = Vec::new();
    let mut assign = |name: &ObjectName, value: &Expr| -> Result<(), SqlError> {
        let column = column_of(name, table)?;
        if columns.contains(&column) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!(
                    "multiple assignments to same column \"{}\"",
                    table.columns[column].name
                ),
            ));
        }
        columns.push(column);
        let mut value = value.clone();
        if is_default(&value) {
            value = default_expr(table, column)?;
        }
        type_untyped(&mut value, &table.columns[column].ty);
        values.push(value);
        Ok(())
    };
    for assignment in assignments {
        match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(name), value) => assign(name, value)?,
            (AssignmentTarget::Tuple(names), Expr::Tuple(items)) if names.len() == items.len() => {
                for (name, value) in names.iter().zip(items) {
                    assign(name, value)?;
                }
            }
            _ => {
                return Err(SqlError::unsupported(
                    "assignment of a row from a subquery is not supported",
                ));
            }
        }
    }
    Ok((columns, values))
}

/// `SET column = DEFAULT`.
fn default_expr(table: &TableDef, column: usize) -> Result<Expr, SqlError> {
    let definition = &table.columns[column];
    match &definition.default {
        None if definition.identity.is_some() => Err(SqlError::unsupported(
            "SET of an identity column to DEFAULT is not supported in this statement",
        )),
        None => Ok(null()),
        Some(default) => Parser::new(&PostgreSqlDialect {})
            .try_with_sql(&default.sql)
            .and_then(|mut parser| parser.parse_expr())
            .map_err(|error| SqlError::internal(format!("default of \"{}\": {error}", definition.name))),
    }
}

fn from_delete(delete: &Delete, catalog: &Catalog) -> Result<ModifyQuery, SqlError> {
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    let [only] = tables.as_slice() else {
        return Err(SqlError::unsupported(
            "DELETE from several tables is not supported",
        ));
    };
    let (table, alias, target) = target_factor(&only.relation, catalog)?;
    let mut from = vec![TableWithJoins {
        relation: target,
        joins: Vec::new(),
    }];
    from.extend(delete.using.iter().flatten().cloned());
    let select = select_statement(hidden_items(&alias, None), from, delete.selection.clone())?;
    let returning = returning_query(&delete.returning, &table, Some(alias))?;
    Ok(ModifyQuery {
        kind: ModifyKind::Delete,
        table,
        columns: Vec::new(),
        select,
        defaulted: HashSet::new(),
        returning,
    })
}

fn target_table(name: &ObjectName, catalog: &Catalog) -> Result<Arc<TableDef>, SqlError> {
    let table = last_part(name).unwrap_or_default();
    let public = match name.0.as_slice() {
        [_] => true,
        [schema, _] => schema.as_ident().is_some_and(|schema| folded(schema) == "public"),
        _ => false,
    };
    catalog.table(&table).filter(|_| public).cloned().ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{}\" does not exist", shown(name)),
        )
    })
}

/// The target with its hidden columns, and the name that the statement calls it by.
fn target_factor(
    factor: &TableFactor,
    catalog: &Catalog,
) -> Result<(Arc<TableDef>, Ident, TableFactor), SqlError> {
    let TableFactor::Table { name, alias, .. } = factor else {
        return Err(SqlError::unsupported("only a table can be changed"));
    };
    let table = target_table(name, catalog)?;
    let called = match alias {
        Some(alias) => alias.name.clone(),
        None => Ident::with_quote('"', table.name.clone()),
    };
    let factor = with_hidden_columns(factor, &table, &called);
    Ok((table, called, factor))
}

fn with_hidden_columns(factor: &TableFactor, table: &TableDef, called: &Ident) -> TableFactor {
    let mut factor = factor.clone();
    if let TableFactor::Table { name, alias, .. } = &mut factor {
        *name = ObjectName(vec![
            ObjectNamePart::Identifier(Ident::new(ROWS_SCHEMA)),
            ObjectNamePart::Identifier(Ident::with_quote('"', table.name.clone())),
        ]);
        *alias = Some(TableAlias {
            explicit: true,
            name: called.clone(),
            columns: Vec::new(),
            at: None,
        });
    }
    factor
}

fn column_of(name: &ObjectName, table: &TableDef) -> Result<usize, SqlError> {
    let column = last_part(name).unwrap_or_default();
    table.column_index(&column).ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_COLUMN,
            format!(
                "column \"{column}\" of relation \"{}\" does not exist",
                table.name
            ),
        )
    })
}

/// `alias.handle, alias.row`, named apart by `number` where there are several.
fn hidden_items(alias: &Ident, number: Option<usize>) -> Vec<SelectItem> {
    [ROW_ID_COLUMN, ROW_BYTES_COLUMN]
        .into_iter()
        .map(|column| {
            let expr = Expr::CompoundIdentifier(vec![alias.clone(), Ident::new(column)]);
            match number {
                None => SelectItem::UnnamedExpr(expr),
                Some(number) => SelectItem::ExprWithAlias {
                    expr,
                    alias: Ident::new(format!("{column}_lock{number}")),
                },
            }
        })
        .collect()
}

fn select_statement(
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Statement, SqlError> {
    let mut statement = parsed("SELECT 1")?;
    if let Some(select) = select_of(&mut statement) {
        select.projection = projection;
        select.from = from;
        select.selection = selection;
    }
    Ok(statement)
}

fn parsed(sql: &str) -> Result<Statement, SqlError> {
    let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)
        .map_err(|error| SqlError::internal(format!("unreadable query of our own: {error}")))?;
    statements
        .into_iter()
        .next()
        .ok_or_else(|| SqlError::internal("an empty query of our own"))
}

fn select_of(statement: &mut Statement) -> Option<&mut Select> {
    match statement {
        Statement::Query(query) => match query.body.as_mut() {
            SetExpr::Select(select) => Some(select),
            _ => None,
        },
        _ => None,
    }
}

/// `SELECT items FROM target`, wildcards without the hidden columns.
fn returning_query(
    items: &Option<Vec<SelectItem>>,
    table: &Arc<TableDef>,
    alias: Option<Ident>,
) -> Result<Option<Statement>, SqlError> {
    let Some(items) = items else { return Ok(None) };
    let called = alias.unwrap_or_else(|| Ident::with_quote('"', table.name.clone()));
    let mut projection = Vec::new();
    for item in items {
        let wildcard = match item {
            SelectItem::Wildcard(_) => true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                last_part(name).as_deref() == Some(&folded(&called))
            }
            _ => false,
        };
        if !wildcard {
            projection.push(item.clone());
            continue;
        }
        projection.extend(table.columns.iter().map(|column| {
            let name = Ident::with_quote('"', column.name.clone());
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![called.clone(), name]))
        }));
    }
    let mut statement = parsed("SELECT 1 FROM t")?;
    if let Some(select) = select_of(&mut statement) {
        select.projection = projection;
        for from in &mut select.from {
            from.relation = with_hidden_columns(&from.relation, table, &called);
        }
    }
    Ok(Some(statement))
}

/// The query behind FOR UPDATE: itself, with the hidden columns of the tables to lock at the end.
fn locking_query(ast: &Statement, catalog: &Catalog) -> Result<(Statement, Vec<TableId>), SqlError> {
    let mut statement = ast.clone();
    let Statement::Query(query) = &mut statement else {
        return Err(SqlError::internal("only a query locks rows by a clause"));
    };
    let of: Vec<String> = query
        .locks
        .iter()
        .filter_map(|lock| lock.of.as_ref())
        .filter_map(last_part)
        .collect();
    query.locks.clear();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(SqlError::unsupported(
            "FOR UPDATE is not allowed with UNION/INTERSECT/EXCEPT",
        ));
    };
    let grouped = !matches!(&select.group_by,
        datafusion::sql::sqlparser::ast::GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    if grouped || select.distinct.is_some() || select.having.is_some() {
        return Err(SqlError::unsupported(
            "FOR UPDATE is not allowed with DISTINCT, GROUP BY or HAVING clause",
        ));
    }
    let mut tables = Vec::new();
    let mut items = Vec::new();
    for from in &mut select.from {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            let TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } = &*factor
            else {
                continue;
            };
            let Ok(table) = target_table(name, catalog) else {
                continue;
            };
            let called = match alias {
                Some(alias) => alias.name.clone(),
                None => Ident::with_quote('"', table.name.clone()),
            };
            if !of.is_empty() && !of.contains(&folded(&called)) {
                continue;
            }
            items.extend(hidden_items(&called, Some(tables.len())));
            tables.push(table.id);
            *factor = with_hidden_columns(factor, &table, &called);
        }
    }
    select.projection.extend(items);
    Ok((statement, tables))
}
