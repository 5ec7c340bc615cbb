//! From syntax trees to point statements: shapes that qualify, their expressions bound, their paths chosen.

use std::sync::Arc;

use sqlparser::ast::{
    self, AssignmentTarget, Expr, FromTable, ObjectName, OnConflict, OnConflictAction, OnInsert, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableObject,
};
use weft_store::{Catalog, TableDef};
use weft_types::{SqlError, SqlState};

use super::super::bind::{Binder, Refusal, Scope, Variables};
use super::super::bind_aggregates::AggregateCall;
use super::super::params::ParamTypes;
use super::super::plan::OutputColumn;
use super::super::scalar::Scalar;
use super::super::{defaults, names};
use super::path::{self, conjuncts, folded};
use super::point::{ConflictRow, OutputItem, Path, PointChange, PointConflict, PointInsert, PointStatement};
use super::shape::{
    arbiter, check_width, column_item, is_default, is_plain_wildcard, refuse_unique_columns, single_table,
    target_columns,
};
use crate::error;
use weft_binder::output_name;

/// Most rows of an INSERT that become one program.
const INSERT_ROWS_MAX: usize = 128;

pub(super) type Analysed<T> = Result<T, Refusal>;

/// Analyses statements of one catalog; parameters are collected in `params`.
pub(crate) struct Analyser<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) params: &'a mut ParamTypes,
    /// The statement's text, for positions.
    pub(crate) text: &'a str,
    /// Inside a procedure: its variables. Then UPDATE and DELETE may go over a range of the primary key, and
    /// what no declared row covers declares the table.
    pub(crate) variables: Option<&'a dyn Variables>,
}

impl Analyser<'_> {
    /// A point statement, or why not.
    pub(crate) fn statement(&mut self, statement: &ast::Statement) -> Analysed<PointStatement> {
        match statement {
            ast::Statement::Query(query) => self.select(query).map(PointStatement::Select),
            ast::Statement::Insert(insert) => self.insert(insert).map(PointStatement::Insert),
            ast::Statement::Update(update) => self.update(update).map(PointStatement::Change),
            ast::Statement::Delete(delete) => self.delete(delete).map(PointStatement::Change),
            _ => Err(Refusal::General),
        }
    }

    pub(super) fn find(&self, name: &ObjectName) -> Analysed<Arc<TableDef>> {
        let parts = names::parts(name);
        names::find_table(self.catalog, &parts)
            .cloned()
            .ok_or(Refusal::General)
    }

    pub(super) fn binder<'b>(&'b mut self, table: &'b TableDef, alias: &'b str) -> Binder<'b> {
        let variables = self.variables;
        let mut binder = Binder::new(self.catalog, Some(Scope { table, alias }), self.params, self.text);
        binder.variables = variables;
        binder
    }

    pub(super) fn bare_binder(&mut self) -> Binder<'_> {
        let variables = self.variables;
        let mut binder = Binder::new(self.catalog, None, self.params, self.text);
        binder.variables = variables;
        binder
    }

    // ---- INSERT ----

    fn insert(&mut self, insert: &ast::Insert) -> Analysed<PointInsert> {
        let ast::Insert {
            table: TableObject::TableName(name),
            source,
            returning,
            on,
            ..
        } = insert
        else {
            return Err(Refusal::General);
        };
        let plain = insert.or.is_none()
            && !insert.overwrite
            && insert.assignments.is_empty()
            && insert.partitioned.is_none()
            && insert.output.is_none()
            && insert.multi_table_into_clauses.is_empty();
        if !plain {
            return Err(Refusal::General);
        }
        let table = self.find(name)?;
        let targets = target_columns(&table, &insert.columns)?;
        let alias = insert
            .table_alias
            .as_ref()
            .map_or(table.name.clone(), |alias| names::ident(&alias.alias));
        let rows = match source.as_deref() {
            // DEFAULT VALUES
            None => vec![defaults::all_defaults(self.catalog, &table)?],
            Some(query) => self.inserted_rows(query, &table, &targets, !insert.columns.is_empty())?,
        };
        let on_conflict = match on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => Some(self.conflict(conflict, &table, &alias, &rows)?),
            Some(_) => return Err(Refusal::General),
        };
        let returning = self.returning(returning.as_deref(), &table, &alias)?;
        Ok(PointInsert {
            table,
            rows,
            on_conflict,
            returning,
        })
    }

    fn inserted_rows(
        &mut self,
        query: &Query,
        table: &TableDef,
        targets: &[usize],
        explicit: bool,
    ) -> Analysed<Vec<Vec<Scalar>>> {
        let plain = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty();
        let SetExpr::Values(values) = query.body.as_ref() else {
            return Err(Refusal::General);
        };
        if !plain || values.rows.len() > INSERT_ROWS_MAX {
            return Err(Refusal::General);
        }
        let width = values.rows.first().map_or(0, |row| row.content.len());
        let mut template = vec![None; table.columns.len()];
        let mut rows = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let expressions = &row.content;
            if expressions.len() != width {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                )
                .into());
            }
            check_width(expressions.len(), targets.len(), explicit)?;
            rows.push(self.inserted_row(expressions, table, targets, &mut template)?);
        }
        Ok(rows)
    }

    /// One row: given values assigned to their columns, defaults in the others.
    fn inserted_row(
        &mut self,
        expressions: &[Expr],
        table: &TableDef,
        targets: &[usize],
        template: &mut [Option<Scalar>],
    ) -> Analysed<Vec<Scalar>> {
        let mut row: Vec<Option<Scalar>> = vec![None; table.columns.len()];
        for (expr, &target) in expressions.iter().zip(targets) {
            let column = table.columns.get(target).ok_or(Refusal::General)?;
            if is_default(expr) {
                continue;
            }
            if column.identity.as_ref().is_some_and(|identity| identity.always) {
                return Err(SqlError::new(
                    SqlState("428C9"),
                    format!(
                        "cannot insert a non-DEFAULT value into column \"{}\"",
                        column.name
                    ),
                )
                .detail(format!(
                    "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
                    column.name
                ))
                .hint("Use OVERRIDING SYSTEM VALUE to override.")
                .into());
            }
            let mut binder = self.bare_binder();
            let typed = binder.bind(expr)?;
            let value = folded(binder.assign(typed, column)?);
            if let Some(slot) = row.get_mut(target) {
                *slot = Some(value);
            }
        }
        row.into_iter()
            .enumerate()
            .map(
                |(number, value)| match (value, template.get_mut(number), table.columns.get(number)) {
                    (Some(value), _, _) => Ok(value),
                    (None, Some(slot), Some(column)) => match slot {
                        Some(value) => Ok(value.clone()),
                        None => {
                            let value = defaults::column_default(self.catalog, column)?;
                            *slot = Some(value.clone());
                            Ok(value)
                        }
                    },
                    _ => Err(Refusal::General),
                },
            )
            .collect()
    }

    fn conflict(
        &mut self,
        conflict: &OnConflict,
        table: &Arc<TableDef>,
        alias: &str,
        rows: &[Vec<Scalar>],
    ) -> Analysed<PointConflict> {
        let arbiter = arbiter(conflict, table)?;
        // A key that is drawn anew for each use could not be searched for and inserted alike.
        let volatile_key = rows.iter().any(|row| {
            arbiter
                .columns
                .iter()
                .any(|&column| row.get(column).is_none_or(Scalar::is_volatile))
        });
        if volatile_key {
            return Err(error::unsupported("ON CONFLICT with a generated key is not supported").into());
        }
        let updates = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                let mut updates = Vec::with_capacity(rows.len());
                for row in rows {
                    if row.iter().any(Scalar::is_volatile) {
                        return Err(error::unsupported(
                            "ON CONFLICT DO UPDATE with volatile values is not supported",
                        )
                        .into());
                    }
                    let assignments = self.assignments(&update.assignments, table, alias, Some(row))?;
                    refuse_unique_columns(table, &assignments)?;
                    let condition = match &update.selection {
                        None => None,
                        Some(selection) => {
                            let mut binder = self.binder(table, alias);
                            binder.excluded = Some(row);
                            let typed = binder.bind(selection)?;
                            Some(binder.condition(typed, "WHERE")?)
                        }
                    };
                    updates.push(ConflictRow {
                        assignments,
                        condition,
                    });
                }
                Some(updates)
            }
        };
        Ok(PointConflict { arbiter, updates })
    }

    // ---- UPDATE, DELETE ----

    fn assignments(
        &mut self,
        list: &[ast::Assignment],
        table: &TableDef,
        alias: &str,
        excluded: Option<&[Scalar]>,
    ) -> Analysed<Vec<(usize, Scalar)>> {
        let mut bound: Vec<(usize, Scalar)> = Vec::with_capacity(list.len());
        for assignment in list {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(Refusal::General);
            };
            let parts = names::parts(name);
            let [name] = parts.as_slice() else {
                return Err(Refusal::General);
            };
            let number = table
                .column_index(name)
                .ok_or_else(|| error::undefined_column_of(name, &table.name))?;
            if bound.iter().any(|(other, _)| *other == number) {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("multiple assignments to same column \"{name}\""),
                )
                .into());
            }
            let column = table.columns.get(number).ok_or(Refusal::General)?;
            let value = if is_default(&assignment.value) {
                defaults::column_default(self.catalog, column)?
            } else {
                if column.identity.as_ref().is_some_and(|identity| identity.always) {
                    return Err(SqlError::new(
                        SqlState("428C9"),
                        format!("column \"{name}\" can only be updated to DEFAULT"),
                    )
                    .detail(format!(
                        "Column \"{name}\" is an identity column defined as GENERATED ALWAYS."
                    ))
                    .into());
                }
                let mut binder = self.binder(table, alias);
                binder.excluded = excluded;
                let typed = binder.bind(&assignment.value)?;
                folded(binder.assign(typed, column)?)
            };
            bound.push((number, value));
        }
        Ok(bound)
    }

    fn update(&mut self, update: &ast::Update) -> Analysed<PointChange> {
        let plain = update.from.is_none()
            && update.or.is_none()
            && update.limit.is_none()
            && update.order_by.is_empty()
            && update.output.is_none();
        let (name, alias) = single_table(&update.table)?;
        let table = self.find(name)?;
        let alias = alias.unwrap_or_else(|| table.name.clone());
        if !plain {
            return Err(Refusal::General);
        }
        let assignments = self.assignments(&update.assignments, &table, &alias, None)?;
        let changes_unique = refuse_unique_columns(&table, &assignments);
        if self.variables.is_none() {
            changes_unique?;
        }
        self.change(
            table,
            &alias,
            update.selection.as_ref(),
            Some(assignments),
            update.returning.as_deref(),
        )
    }

    fn delete(&mut self, delete: &ast::Delete) -> Analysed<PointChange> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else {
            return Err(Refusal::General);
        };
        let plain = delete.using.is_none()
            && delete.tables.is_empty()
            && delete.limit.is_none()
            && delete.order_by.is_empty()
            && delete.output.is_none();
        let (name, alias) = single_table(from)?;
        let table = self.find(name)?;
        let alias = alias.unwrap_or_else(|| table.name.clone());
        // The old values of further unique indexes would have to be locked, and nobody knows them beforehand.
        let unique = table.indexes.iter().any(|index| index.unique && !index.primary);
        if !plain || (unique && self.variables.is_none()) {
            return Err(Refusal::General);
        }
        self.change(
            table,
            &alias,
            delete.selection.as_ref(),
            None,
            delete.returning.as_deref(),
        )
    }

    fn change(
        &mut self,
        table: Arc<TableDef>,
        alias: &str,
        selection: Option<&Expr>,
        assignments: Option<Vec<(usize, Scalar)>>,
        returning: Option<&[SelectItem]>,
    ) -> Analysed<PointChange> {
        let condition = self.condition(selection, &table, alias)?;
        let conjuncts = conjuncts(condition);
        let choice = match self.variables {
            None => path::choose_primary(&table, conjuncts),
            Some(_) => path::choose_primary_range(&table, conjuncts),
        }
        .ok_or(Refusal::General)?;
        if let Path::Range {
            prefix, low, high, ..
        } = &choice.path
            && prefix.is_empty()
            && (low.is_none() || high.is_none())
        {
            // A scan of the table is no business of a program.
            return Err(Refusal::General);
        }
        let returning = self.returning(returning, &table, alias)?;
        let whole_table = match &assignments {
            Some(assignments) => refuse_unique_columns(&table, assignments).is_err(),
            None => table.indexes.iter().any(|index| index.unique && !index.primary),
        };
        Ok(PointChange {
            table,
            path: choice.path,
            residual: choice.residual,
            assignments,
            returning,
            whole_table,
        })
    }

    pub(super) fn condition(
        &mut self,
        selection: Option<&Expr>,
        table: &TableDef,
        alias: &str,
    ) -> Analysed<Option<Scalar>> {
        let Some(selection) = selection else {
            return Ok(None);
        };
        let mut binder = self.binder(table, alias);
        let typed = binder.bind(selection)?;
        let condition = binder.condition(typed, "WHERE")?;
        // Computed once as an input it would not be drawn for each row.
        if condition.is_volatile() {
            Err(Refusal::General)
        } else {
            Ok(Some(condition))
        }
    }

    /// The columns of a select or RETURNING list.
    /// Where aggregates may stand, their calls are collected.
    pub(super) fn output(
        &mut self,
        items: &[SelectItem],
        table: &TableDef,
        alias: &str,
        mut aggregates: Option<&mut Vec<AggregateCall>>,
    ) -> Analysed<Vec<OutputItem>> {
        let mut output = Vec::with_capacity(items.len());
        for item in items {
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, output_name(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, names::ident(alias)),
                SelectItem::Wildcard(options) if is_plain_wildcard(options) => {
                    output.extend((0..table.columns.len()).filter_map(|column| column_item(table, column)));
                    continue;
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if is_plain_wildcard(options)
                        && names::parts(name).last().is_some_and(|last| last == alias) =>
                {
                    output.extend((0..table.columns.len()).filter_map(|column| column_item(table, column)));
                    continue;
                }
                _ => return Err(Refusal::General),
            };
            let mut binder = self.binder(table, alias);
            binder.aggregates = aggregates.as_deref_mut();
            let typed = binder.bind(expr)?;
            let (scalar, ty) = binder.settle(typed)?;
            if scalar.is_volatile() {
                return Err(Refusal::General);
            }
            let origin = match scalar {
                Scalar::Column(column) => Some((table.id, column as i16 + 1)),
                _ => None,
            };
            output.push(OutputItem {
                scalar,
                column: OutputColumn {
                    name,
                    ty,
                    table: origin,
                },
            });
        }
        Ok(output)
    }

    fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &TableDef,
        alias: &str,
    ) -> Analysed<Vec<OutputItem>> {
        items.map_or(Ok(Vec::new()), |items| self.output(items, table, alias, None))
    }
}
