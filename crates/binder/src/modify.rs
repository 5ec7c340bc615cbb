//! INSERT, UPDATE and DELETE: a query for the rows to write, and RETURNING as a query over the rows written.

use std::sync::Arc;

use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr as AstExpr, FromTable, Insert, ObjectName, OnInsert,
    Query as AstQuery, SelectItem, SetExpr, Spanned, Statement, TableAlias, TableFactor, TableObject,
    TableWithJoins, Update, UpdateTableFromKind, Values,
};
use sqlparser::tokenizer::Span;
use weft_expression::{ColumnId, Expr, Node, Op, Volatility};
use weft_store::{ColumnDef, Relation as Stored, TableDef};
use weft_syntax::refuse_wide;
use weft_types::{SqlError, SqlState, SqlType, Value};

use crate::binder::{Binder, Environment};
use crate::names::{Place, fold, parts, syntax_error, undefined_table};
use crate::parameters::Operand;
use crate::relation::{Modify, ModifyKind, Output, Query, Relation};
use crate::scope::{Clause, FromItem, Pending, ScopeColumn};
use crate::select::apply_all;
use crate::subquery::row_items;

/// Longer constants are computed once in the query and assigned from its columns.
const CONSTANT_NODES_MAX: usize = 64;

/// Binds INSERT, UPDATE or DELETE.
///
/// # Errors
/// Errors in the statement, with PostgreSQL's codes and messages.
pub fn bind_modify(statement: &Statement, env: Environment<'_>) -> Result<Modify, SqlError> {
    let mut binder = Binder::new(env);
    binder.steps_allowed = true;
    let mut statement = statement;
    if let Statement::Query(query) = statement
        && let SetExpr::Insert(inner) | SetExpr::Update(inner) | SetExpr::Delete(inner) = query.body.as_ref()
    {
        if let Some(with) = &query.with {
            binder.bind_with(with)?;
        }
        statement = inner;
    }
    match statement {
        Statement::Insert(insert) => binder.insert(insert),
        Statement::Update(update) => binder.update(update),
        Statement::Delete(delete) => binder.delete(delete),
        _ => Err(SqlError::internal("not a statement that changes rows")),
    }
}

/// Binds the default of a column: its value in rows that specify none.
///
/// # Errors
/// Errors in the default.
pub fn bind_default(column: &ColumnDef, env: Environment<'_>) -> Result<Expr, SqlError> {
    Binder::new(env).default_value(column)
}

/// 0A000: rows are changed in tables.
fn changed_view(name: &str) -> SqlError {
    let message = format!("changing rows through view \"{name}\" is not supported");
    SqlError::unsupported(message).hint("Change the rows of its tables.")
}

/// Refuses an expression of ALTER COLUMN ... TYPE ... USING that is not one over a single row of the table.
///
/// # Errors
/// 42803, 42P20 and 0A000 as in PostgreSQL, and errors in the expression.
pub fn check_transform(expr: &AstExpr, table: &Arc<TableDef>, env: Environment<'_>) -> Result<(), SqlError> {
    let mut binder = Binder::new(env);
    binder.push_level();
    binder.bind_table(Arc::clone(table), None, false)?;
    let (_, pending) = binder.in_clause(Clause::Transform, |binder| binder.expr(expr))?;
    match pending.is_empty() {
        true => Ok(()),
        false => Err(SqlError::unsupported(
            "cannot use subquery in transform expression",
        )),
    }
}

/// Whether a value of a row is DEFAULT rather than an expression.
fn is_default(expr: &AstExpr) -> bool {
    matches!(expr, AstExpr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The bound RETURNING, and what it needs besides the table's row.
struct Returning {
    query: Query,
    carried: Vec<Expr>,
}

impl Binder<'_> {
    fn target(&mut self, name: &ObjectName) -> Result<Arc<TableDef>, SqlError> {
        let (parts, span) = parts(name);
        let (schema, last) = match parts.as_slice() {
            [name] => (None, name.as_str()),
            [.., schema, name] => (Some(schema.as_str()), name.as_str()),
            [] => return Err(syntax_error("zero-length relation name")),
        };
        if schema != Some("public") && (self.env.relations)(schema, last).is_some() {
            let error = SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied: \"{last}\" is a system catalog"),
            );
            return Err(self.at(error, span));
        }
        if schema.is_none() && self.find_with(last).is_some() {
            let error = SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("relation \"{last}\" cannot be the target of a modifying statement"),
            );
            return Err(self.at(error, span));
        }
        let is_public = matches!(schema, None | Some("public"));
        let table = self.env.catalog.table(last).filter(|_| is_public);
        table
            .cloned()
            .ok_or_else(|| match self.env.catalog.relation(last).filter(|_| is_public) {
                Some(Stored::Sequence(_)) => SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot change sequence \"{last}\""),
                ),
                Some(Stored::View(_)) => self.at(changed_view(last), span),
                Some(_) => {
                    let message = format!("\"{last}\" is an index");
                    self.at(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message), span)
                }
                None => self.at(undefined_table(&parts.join(".")), span),
            })
    }

    fn target_column(&self, name: &ObjectName, table: &TableDef) -> Result<usize, SqlError> {
        let (parts, span) = parts(name);
        let column = parts.first().map_or("", String::as_str);
        table.column_index(column).ok_or_else(|| {
            let error = SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!(
                    "column \"{column}\" of relation \"{}\" does not exist",
                    table.name
                ),
            );
            self.at(error, span)
        })
    }

    fn insert(mut self, insert: &Insert) -> Result<Modify, SqlError> {
        let TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::unsupported("INSERT into a function is not supported"));
        };
        let table = self.target(name)?;
        let mut columns = Vec::with_capacity(insert.columns.len());
        for name in &insert.columns {
            let column = self.target_column(name, &table)?;
            if columns.contains(&column) {
                let (names, span) = parts(name);
                let error = SqlError::new(
                    SqlState::DUPLICATE_COLUMN,
                    format!("column \"{}\" specified more than once", names.join(".")),
                );
                return Err(self.at(error, span));
            }
            columns.push(column);
        }
        let listed = !columns.is_empty();
        if !listed {
            columns = (0..table.columns.len()).collect();
        }
        let (relation, values) = match &insert.source {
            None => {
                columns.clear();
                (Relation::One, Vec::new())
            }
            Some(source) => match plain_values(source) {
                Some(values) => self.insert_values(values, &table, &mut columns, listed)?,
                None => self.insert_query(source, &table, &mut columns, listed)?,
            },
        };
        let (relation, values) = self.with_defaults(relation, values, &table, &mut columns)?;
        let alias = insert.table_alias.as_ref().map(|alias| fold(&alias.alias));
        let conflict = match &insert.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => {
                Some(self.on_conflict(conflict, &table, alias.as_deref())?)
            }
            Some(_) => return Err(syntax_error("INSERT takes ON CONFLICT alone")),
        };
        let returning = self.returning(insert.returning.as_deref(), &table, alias, Vec::new())?;
        let mut modify =
            self.modification(ModifyKind::Insert, table, relation, values, columns, returning)?;
        modify.conflict = conflict;
        if let Some(update) = modify
            .conflict
            .as_mut()
            .and_then(|conflict| conflict.update.as_mut())
        {
            let parameters = modify.rows.parameters.clone();
            Arc::make_mut(&mut update.rows).parameters = parameters;
        }
        Ok(modify)
    }

    /// INSERT ... VALUES: each value is converted to its column's type.
    fn insert_values(
        &mut self,
        values: &Values,
        table: &TableDef,
        columns: &mut Vec<usize>,
        listed: bool,
    ) -> Result<(Relation, Vec<Expr>), SqlError> {
        let width = values.rows.first().map_or(0, |row| row.content.len());
        self.check_width(
            width,
            columns,
            listed,
            values.rows.first().map(|row| row.content.as_slice()),
        )?;
        let mut rows = Vec::with_capacity(values.rows.len());
        let mut pendings = Vec::with_capacity(values.rows.len());
        self.push_level();
        for row in &values.rows {
            if row.content.len() != width {
                return Err(syntax_error("VALUES lists must all be the same length"));
            }
            let mut pending_of_row: Vec<Pending> = Vec::new();
            // The whole row is bound before any of its values is converted to its column's type.
            let mut operands = Vec::with_capacity(width);
            self.level()?.height.next_row();
            for expr in &row.content {
                if is_default(expr) {
                    operands.push(None);
                    continue;
                }
                let (operand, pending) = self.in_clause(Clause::Values, |binder| binder.expr(expr))?;
                pending_of_row.extend(pending);
                operands.push(Some(operand));
            }
            let mut bound = Vec::with_capacity(width);
            for ((operand, expr), place) in operands.into_iter().zip(&row.content).zip(columns.iter()) {
                let Some(column) = table.columns.get(*place) else {
                    continue;
                };
                let Some(operand) = operand else {
                    bound.push(self.default_value(column)?);
                    continue;
                };
                self.refuse_generated(column, expr.span())?;
                let value = self.assigned(operand, &column.name, column.ty);
                bound.push(value.map_err(|error| self.at(error, expr.span()))?);
            }
            rows.push(bound);
            pendings.push(pending_of_row);
        }
        self.pop_level()?;
        let mut described: Vec<(ColumnId, SqlType)> = Vec::with_capacity(width);
        for place in columns.iter() {
            let ty = table
                .columns
                .get(*place)
                .map_or(SqlType::Text, |column| column.ty);
            described.push((self.fresh(), ty));
        }
        let values = described.iter().map(|(id, ty)| Expr::column(*id, *ty)).collect();
        Ok((self.values_relation(described, rows, pendings), values))
    }

    fn check_width(
        &self,
        width: usize,
        columns: &mut Vec<usize>,
        listed: bool,
        row: Option<&[AstExpr]>,
    ) -> Result<(), SqlError> {
        let span = |place: usize| {
            row.and_then(|row| row.get(place))
                .map_or_else(Span::empty, Spanned::span)
        };
        if width > columns.len() {
            let error = syntax_error("INSERT has more expressions than target columns");
            return Err(self.at(error, span(columns.len())));
        }
        if width < columns.len() && listed {
            return Err(syntax_error("INSERT has more target columns than expressions"));
        }
        columns.truncate(width);
        Ok(())
    }

    fn refuse_generated(&self, column: &ColumnDef, span: Span) -> Result<(), SqlError> {
        if column.identity.is_none_or(|identity| !identity.always) {
            return Ok(());
        }
        let error = generated_always(
            column,
            &format!(
                "cannot insert a non-DEFAULT value into column \"{}\"",
                column.name
            ),
        )
        .hint("Use OVERRIDING SYSTEM VALUE to override.");
        Err(self.at(error, span))
    }

    /// INSERT ... SELECT.
    fn insert_query(
        &mut self,
        source: &AstQuery,
        table: &TableDef,
        columns: &mut Vec<usize>,
        listed: bool,
    ) -> Result<(Relation, Vec<Expr>), SqlError> {
        let rows = self.bind_rows(source, false)?;
        self.check_width(rows.columns.len(), columns, listed, None)?;
        let mut values = Vec::with_capacity(columns.len());
        for (given, place) in rows.columns.into_iter().zip(columns.iter()) {
            let Some(column) = table.columns.get(*place) else {
                continue;
            };
            self.refuse_generated(column, Span::empty())?;
            self.mark(given.id);
            let operand = given.unknown.unwrap_or_else(|| {
                // A constant that does not fit its column is an error even if there are no rows.
                let constant = constant_item(&rows.relation, given.id);
                Operand::typed(constant.unwrap_or_else(|| Expr::column(given.id, given.ty)))
            });
            values.push(self.assigned(operand, &column.name, column.ty)?);
        }
        Ok((rows.relation, values))
    }

    /// Adds the defaults of columns without a value.
    fn with_defaults(
        &mut self,
        relation: Relation,
        mut values: Vec<Expr>,
        table: &TableDef,
        columns: &mut Vec<usize>,
    ) -> Result<(Relation, Vec<Expr>), SqlError> {
        for (place, column) in table.columns.iter().enumerate() {
            if columns.contains(&place) || (column.default.is_none() && column.identity.is_none()) {
                continue;
            }
            let value = self.default_value(column)?;
            if value.as_constant().is_some_and(Value::is_null) {
                continue;
            }
            columns.push(place);
            values.push(value);
        }
        Ok((relation, values))
    }

    /// The default of a column, converted to its type.
    fn default_value(&mut self, column: &ColumnDef) -> Result<Expr, SqlError> {
        let operand = if let Some(identity) = &column.identity {
            let sequence = self
                .env
                .catalog
                .sequence_by_id(identity.sequence)
                .ok_or_else(|| SqlError::internal("an identity column without its sequence"))?;
            let name = Operand::quoted(quoted_name(&sequence.name));
            self.call("nextval", vec![name], Place::Unknown)?
        } else if let Some(default) = &column.default {
            let parsed = weft_syntax::parse_expression(&default.sql)?;
            self.default_operand(&parsed)?
        } else {
            Operand::null()
        };
        self.assigned(operand, &column.name, column.ty)
    }

    fn default_operand(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        // A default may use neither names nor parameters of the statement.
        let levels = std::mem::take(&mut self.levels);
        let withs = std::mem::take(&mut self.withs);
        let parameters = std::mem::take(&mut self.parameters);
        self.push_level();
        let bound = self.in_clause(Clause::Default, |binder| binder.expr(expr));
        self.levels = levels;
        self.withs = withs;
        let used = std::mem::replace(&mut self.parameters, parameters);
        let unplaced = |mut error: SqlError| {
            if error.fields().position.is_some() {
                error.fields_mut().position = None;
            }
            if error.state == SqlState::UNDEFINED_COLUMN {
                return SqlError::unsupported("cannot use column reference in DEFAULT expression");
            }
            error
        };
        let (operand, pending) = bound.map_err(unplaced)?;
        if !pending.is_empty() {
            return Err(SqlError::unsupported("cannot use subquery in DEFAULT expression"));
        }
        if used.count() > 0 {
            return Err(SqlError::new(
                SqlState::UNDEFINED_PARAMETER,
                "there is no parameter $1",
            ));
        }
        Ok(operand)
    }

    fn update(mut self, update: &Update) -> Result<Modify, SqlError> {
        if !update.table.joins.is_empty() {
            return Err(SqlError::unsupported("UPDATE of a join is not supported"));
        }
        if !update.order_by.is_empty() || update.limit.is_some() {
            return Err(syntax_error("UPDATE takes neither ORDER BY nor LIMIT"));
        }
        let from = match &update.from {
            Some(UpdateTableFromKind::AfterSet(from) | UpdateTableFromKind::BeforeSet(from)) => {
                from.as_slice()
            }
            None => &[],
        };
        let (table, alias, relation) = self.open_target(&update.table.relation, from)?;
        let relation = self.add_where(relation, update.selection.as_ref())?;
        let ((columns, values), pending) = self.in_clause(Clause::Update, |binder| {
            binder.assignments(&update.assignments, &table)
        })?;
        let relation = apply_all(relation, pending);
        let items = self.other_items()?;
        let returning = self.returning(update.returning.as_deref(), &table, alias, items)?;
        self.modification(ModifyKind::Update, table, relation, values, columns, returning)
    }

    fn delete(mut self, delete: &Delete) -> Result<Modify, SqlError> {
        if !delete.order_by.is_empty() || delete.limit.is_some() || !delete.tables.is_empty() {
            return Err(syntax_error("DELETE takes neither ORDER BY nor LIMIT"));
        }
        let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
        let [TableWithJoins { relation, joins }] = tables.as_slice() else {
            return Err(syntax_error("DELETE takes one table"));
        };
        if !joins.is_empty() {
            return Err(SqlError::unsupported("DELETE from a join is not supported"));
        }
        let using = delete.using.as_deref().unwrap_or_default();
        let (table, alias, relation) = self.open_target(relation, using)?;
        let relation = self.add_where(relation, delete.selection.as_ref())?;
        let items = self.other_items()?;
        let returning = self.returning(delete.returning.as_deref(), &table, alias, items)?;
        self.modification(
            ModifyKind::Delete,
            table,
            relation,
            Vec::new(),
            Vec::new(),
            returning,
        )
    }

    /// Binds the target and the other relations.
    fn open_target(
        &mut self,
        factor: &TableFactor,
        from: &[TableWithJoins],
    ) -> Result<(Arc<TableDef>, Option<String>, Relation), SqlError> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = factor
        else {
            return Err(SqlError::unsupported("only a table can be changed"));
        };
        let table = self.target(name)?;
        self.push_level();
        let alias: Option<&TableAlias> = alias.as_ref();
        let target = self.bind_table(Arc::clone(&table), alias, true)?;
        self.level()?.barred.push(0..1);
        let relation = self.bind_further_from(target, from)?;
        self.level()?.barred.clear();
        Ok((table, alias.map(|alias| fold(&alias.name)), relation))
    }

    pub(crate) fn assignments(
        &mut self,
        assignments: &[Assignment],
        table: &TableDef,
    ) -> Result<(Vec<usize>, Vec<Expr>), SqlError> {
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        for assignment in assignments {
            let names: &[ObjectName] = match &assignment.target {
                AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
                AssignmentTarget::Tuple(names) => names,
            };
            let mut targets = Vec::with_capacity(names.len());
            for name in names {
                let place = self.target_column(name, table)?;
                let column = table
                    .columns
                    .get(place)
                    .ok_or_else(|| SqlError::internal("a column without a definition"))?;
                if columns.contains(&place) {
                    let message = format!("multiple assignments to same column \"{}\"", column.name);
                    return Err(self.at(syntax_error(message), parts(name).1));
                }
                columns.push(place);
                targets.push(column);
            }
            let is_tuple = matches!(&assignment.target, AssignmentTarget::Tuple(_));
            self.assignment(&targets, &assignment.value, is_tuple, &mut values)?;
        }
        Ok((columns, values))
    }

    fn assignment(
        &mut self,
        targets: &[&ColumnDef],
        value: &AstExpr,
        is_tuple: bool,
        values: &mut Vec<Expr>,
    ) -> Result<(), SqlError> {
        let span = value.span();
        let wrong_count = || syntax_error("number of columns does not match number of values");
        if !is_tuple {
            let Some(column) = targets.first() else {
                return Ok(());
            };
            values.push(self.new_value(column, value)?);
            return Ok(());
        }
        if let Some(items) = row_items(value) {
            if items.len() != targets.len() {
                return Err(self.at(wrong_count(), span));
            }
            for (column, item) in targets.iter().zip(items) {
                values.push(self.new_value(column, item)?);
            }
            return Ok(());
        }
        let AstExpr::Subquery(query) = value else {
            if let [column] = targets {
                values.push(self.new_value(column, value)?);
                return Ok(());
            }
            let error = syntax_error(
                "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            );
            return Err(self.at(error, span));
        };
        let operands = self.row_subquery(query)?;
        if operands.len() != targets.len() {
            return Err(self.at(wrong_count(), span));
        }
        for (column, operand) in targets.iter().zip(operands) {
            self.refuse_update(column, span)?;
            values.push(self.assigned(operand, &column.name, column.ty)?);
        }
        Ok(())
    }

    fn refuse_update(&self, column: &ColumnDef, span: Span) -> Result<(), SqlError> {
        if column.identity.is_none_or(|identity| !identity.always) {
            return Ok(());
        }
        let error = generated_always(
            column,
            &format!("column \"{}\" can only be updated to DEFAULT", column.name),
        );
        Err(self.at(error, span))
    }

    fn new_value(&mut self, column: &ColumnDef, value: &AstExpr) -> Result<Expr, SqlError> {
        if is_default(value) {
            return self.default_value(column);
        }
        self.refuse_update(column, value.span())?;
        let operand = self.expr(value)?;
        let bound = self.assigned(operand, &column.name, column.ty);
        bound.map_err(|error| self.at(error, value.span()))
    }

    /// The FROM items other than the target, for RETURNING.
    fn other_items(&mut self) -> Result<Vec<FromItem>, SqlError> {
        let mut items = std::mem::take(&mut self.level()?.items);
        let rest = items.split_off(items.len().min(1));
        self.level()?.items = items;
        Ok(rest)
    }

    /// Binds RETURNING over the written rows and the columns of other tables.
    fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &Arc<TableDef>,
        alias: Option<String>,
        others: Vec<FromItem>,
    ) -> Result<Option<Returning>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let mut inner = Binder::new(self.env);
        inner.parameters = std::mem::take(&mut self.parameters);
        inner.push_level();
        let mut given = Vec::new();
        let mut visible = Vec::new();
        for (place, column) in table.columns.iter().enumerate() {
            let id = inner.own_fresh()?;
            given.push((id, column.ty));
            visible.push(ScopeColumn {
                name: column.name.clone(),
                expr: Expr::column(id, column.ty),
                origin: i16::try_from(place + 1).ok().map(|number| (table.id, number)),
                hidden: false,
            });
        }
        let mut item = FromItem::plain(Some(alias.unwrap_or_else(|| table.name.clone())), visible);
        item.table = Some(Arc::clone(table));
        inner.add_item(item, None)?;
        let mut carried = Vec::new();
        for mut item in others {
            for column in &mut item.columns {
                let id = inner.own_fresh()?;
                let ty = column.expr.ty();
                let outer = std::mem::replace(&mut column.expr, Expr::column(id, ty));
                carried.push((id, outer));
            }
            let level = inner.level()?;
            level.items.push(item);
            level.visible = 0..level.items.len();
        }
        let mut bound = inner.bind_items(items, Clause::Returning)?;
        refuse_wide(bound.len())?;
        for item in &mut bound {
            inner.settle_item(item)?;
        }
        let level = inner.pop_level()?;
        let is_used =
            |(id, _): &(ColumnId, Expr)| inner.columns.get(id.0 as usize).is_some_and(|info| info.used);
        carried.retain(is_used);
        given.extend(carried.iter().map(|(id, expr)| (*id, expr.ty())));
        let relation = apply_all(
            Relation::Given {
                columns: given,
                step: None,
            },
            level.pending,
        );
        let (relation, columns) = inner.project(relation, bound);
        let mut output = Vec::with_capacity(columns.len());
        for (column, _) in columns {
            inner.mark(column.id);
            output.push(Output {
                column: column.id,
                name: column.name,
                ty: column.ty,
                origin: column.origin,
            });
        }
        self.adopt(&mut inner);
        let query = inner.finish(relation, output)?;
        let carried: Vec<Expr> = carried.into_iter().map(|(_, expr)| expr).collect();
        for id in carried.iter().flat_map(Expr::columns) {
            self.mark(id);
        }
        Ok(Some(Returning { query, carried }))
    }

    /// Assembles the statement; its rows are handle and bytes (except for INSERT), the values, the carried
    /// columns.
    fn modification(
        mut self,
        kind: ModifyKind,
        table: Arc<TableDef>,
        relation: Relation,
        values: Vec<Expr>,
        columns: Vec<usize>,
        returning: Option<Returning>,
    ) -> Result<Modify, SqlError> {
        let mut items: Vec<(ColumnId, Expr)> = Vec::new();
        let mut output = Vec::new();
        let mut add = |binder: &mut Self, name: &str, expr: Expr| {
            let (id, ty) = (binder.fresh(), expr.ty());
            items.push((id, expr));
            output.push(Output {
                column: id,
                name: name.to_owned(),
                ty,
                origin: None,
            });
        };
        if kind != ModifyKind::Insert
            && let Some((handle, bytes)) = hidden_columns(&relation)
        {
            add(&mut self, "handle", Expr::column(handle, SqlType::Uuid));
            add(&mut self, "bytes", Expr::column(bytes, SqlType::Bytea));
        }
        for (value, place) in values.into_iter().zip(&columns) {
            let name = table
                .columns
                .get(*place)
                .map_or("", |column| column.name.as_str());
            add(&mut self, name, value);
        }
        let (returning, carried) = match returning {
            Some(returning) => (Some(returning.query), returning.carried),
            None => (None, Vec::new()),
        };
        let carried_count = carried.len();
        for expr in carried {
            add(&mut self, "carried", expr);
        }
        let relation = Relation::Project {
            input: Box::new(relation),
            items,
        };
        let rows = self.finish(relation, output)?;
        let mut returning = returning;
        if let Some(returning) = &mut returning {
            returning.parameters.clone_from(&rows.parameters);
        }
        Ok(Modify {
            kind,
            table,
            rows: Arc::new(rows),
            columns,
            carried: carried_count,
            conflict: None,
            returning: returning.map(Arc::new),
        })
    }
}

/// The expression that a query selects as a column, if it is constant: it is assigned before any row is read.
fn constant_item(relation: &Relation, id: ColumnId) -> Option<Expr> {
    let Relation::Project { items, .. } = relation else {
        return None;
    };
    let (_, item) = items.iter().find(|(item, _)| *item == id)?;
    let is_volatile =
        |node: &Node| matches!(node.op, Op::Call(entry) if entry.volatility == Volatility::Volatile);
    let nodes = item.nodes();
    let changes = item.columns().next().is_some() || nodes.iter().any(is_volatile);
    (!changes && nodes.len() <= CONSTANT_NODES_MAX).then(|| item.clone())
}

/// Handle and bytes of the target, whose scan is the leftmost leaf.
fn hidden_columns(relation: &Relation) -> Option<(ColumnId, ColumnId)> {
    let mut at = relation;
    loop {
        at = match at {
            Relation::Scan(scan) => return scan.hidden,
            Relation::Filter { input, .. }
            | Relation::Apply { input, .. }
            | Relation::Functions { input, .. } => input,
            Relation::Join { left, .. } => left,
            _ => return None,
        };
    }
}

/// VALUES without any other clause.
fn plain_values(source: &AstQuery) -> Option<&Values> {
    let bare = source.with.is_none()
        && source.order_by.is_none()
        && source.limit_clause.is_none()
        && source.fetch.is_none();
    match source.body.as_ref() {
        SetExpr::Values(values) if bare => Some(values),
        _ => None,
    }
}

fn generated_always(column: &ColumnDef, message: &str) -> SqlError {
    SqlError::new(SqlState::GENERATED_ALWAYS, message).detail(format!(
        "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
        column.name
    ))
}

/// A name as written in SQL, quoted if necessary.
fn quoted_name(name: &str) -> String {
    let plain = name
        .chars()
        .enumerate()
        .all(|(place, c)| c == '_' || c.is_ascii_lowercase() || (place > 0 && c.is_ascii_digit()));
    if plain && !name.is_empty() {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}
