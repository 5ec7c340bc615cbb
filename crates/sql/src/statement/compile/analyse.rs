//! From syntax trees to point statements: checks which shapes qualify, binds their expressions, chooses
//! their paths.

use std::sync::Arc;

use sqlparser::ast::{
    self, AssignmentTarget, Expr, FromTable, ObjectName, OnConflict, OnConflictAction, OnInsert, Query,
    SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableObject,
};
use weft_store::{Catalog, ColumnDef, TableDef};
use weft_types::{SqlError, SqlState};

use super::super::bind::{Binder, Errors, Refusal, Scope, Variables, with_binder};
use super::super::convert::AggregateCall;
use super::super::params::Params;
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

/// Maximum rows of an INSERT that is compiled to one program.
const INSERT_ROWS_MAX: usize = 128;

pub(super) type Analysed<T> = Result<T, Refusal>;

/// Analyses statements of one catalog; parameters are collected in `params`.
pub(crate) struct Analyser<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) params: &'a mut Params,
    /// The statement's text, for error positions.
    pub(crate) text: &'a str,
    /// The variables, inside a procedure. There, UPDATE and DELETE may use a range of the primary key, and
    /// accesses not covered by declared rows declare the table.
    pub(crate) variables: Option<&'a dyn Variables>,
    /// Whether errors in expressions are reported, or left to general planning.
    pub(crate) errors: Errors,
}

impl Analyser<'_> {
    /// Analyses a statement; fails if it is not a point statement.
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

    /// A write that foreign keys look at is executed by a transaction, which locks the keys of parents.
    fn leave_to_transactions(&self, concerns_keys: bool, table: &TableDef) -> Analysed<()> {
        match (concerns_keys, self.variables) {
            (false, _) => Ok(()),
            (true, None) => Err(Refusal::General),
            (true, Some(_)) => Err(Refusal::Error(SqlError::unsupported(format!(
                "a procedure that writes columns of foreign keys of table \"{}\" is not supported",
                table.name
            )))),
        }
    }

    /// Binds over the columns of a table.
    pub(super) fn over<T>(
        &mut self,
        table: &TableDef,
        alias: &str,
        bind: impl FnOnce(&mut Binder<'_>) -> Analysed<T>,
    ) -> Analysed<T> {
        let scope = Scope::of_table(table, alias, self.variables);
        self.within(&scope, bind)
    }

    /// Binds over no columns.
    pub(super) fn over_nothing<T>(
        &mut self,
        bind: impl FnOnce(&mut Binder<'_>) -> Analysed<T>,
    ) -> Analysed<T> {
        let scope = Scope::of_variables(self.variables);
        self.within(&scope, bind)
    }

    fn within<T>(
        &mut self,
        scope: &Scope<'_>,
        bind: impl FnOnce(&mut Binder<'_>) -> Analysed<T>,
    ) -> Analysed<T> {
        with_binder(self.catalog, self.text, scope, self.params, self.errors, bind)
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
        self.leave_to_transactions(table.foreign_keys().next().is_some(), &table)?;
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
        check_width(width, targets.len(), explicit)?;
        if values.rows.iter().any(|row| row.content.len() != width) {
            let message = "VALUES lists must all be the same length";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).into());
        }
        let catalog = self.catalog;
        let mut template = vec![None; table.columns.len()];
        self.over_nothing(|binder| {
            let rows = values.rows.iter();
            rows.map(|row| inserted_row(catalog, binder, &row.content, table, targets, &mut template))
                .collect()
        })
    }

    fn conflict(
        &mut self,
        conflict: &OnConflict,
        table: &Arc<TableDef>,
        alias: &str,
        rows: &[Vec<Scalar>],
    ) -> Analysed<PointConflict> {
        let arbiter = arbiter(conflict, table, self.text)?;
        // Conditions are tested before conflicts are looked for; a program tests only what it writes.
        if !table.checks().is_empty() {
            return Err(Refusal::General);
        }
        // The key is both searched for and inserted, so a volatile one would differ between the two.
        let volatile_key = rows.iter().any(|row| {
            arbiter
                .columns
                .iter()
                .any(|&column| row.get(column).is_none_or(Scalar::is_volatile))
        });
        if volatile_key {
            return Err(Refusal::General);
        }
        let updates = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                if rows.iter().flatten().any(Scalar::is_volatile) {
                    return Err(Refusal::General);
                }
                let mut scope = Scope::of_table(table, alias, self.variables);
                scope.has_excluded = true;
                let catalog = self.catalog;
                Some(self.within(&scope, |binder| {
                    conflict_rows(catalog, binder, update, table, rows)
                })?)
            }
        };
        Ok(PointConflict {
            arbiter,
            is_named: conflict.conflict_target.is_some(),
            updates,
        })
    }

    // ---- UPDATE, DELETE ----

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
        let catalog = self.catalog;
        let assignments = self.over(&table, &alias, |binder| {
            let bound = assignments(catalog, binder, &update.assignments, &table)?;
            in_row(binder, &bound, None)
        })?;
        let is_set = |column: &usize| assignments.iter().any(|(set, _)| set == column);
        let refers = table
            .foreign_keys()
            .any(|(_, key)| key.columns.iter().any(is_set));
        let is_referenced = table
            .references_to_it()
            .any(|(_, key)| key.parent_columns.iter().any(is_set));
        self.leave_to_transactions(refers || is_referenced, &table)?;
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
        self.leave_to_transactions(!table.referenced_by.is_empty(), &table)?;
        // The old values of further unique indexes would have to be locked, and they are unknown in
        // advance.
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
            // Programs do not scan whole tables.
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
        let condition = self.over(table, alias, |binder| {
            let operand = binder.bind(selection)?;
            binder.condition(operand, "WHERE")
        })?;
        // As an input it would be evaluated once instead of once per row.
        if condition.is_volatile() {
            Err(Refusal::General)
        } else {
            Ok(Some(condition))
        }
    }

    /// The columns of a select or RETURNING list. Where aggregates are allowed, their calls are collected.
    pub(super) fn output(
        &mut self,
        items: &[SelectItem],
        table: &TableDef,
        alias: &str,
        aggregates: Option<&mut Vec<AggregateCall>>,
    ) -> Analysed<Vec<OutputItem>> {
        self.over(table, alias, |binder| {
            binder.aggregates = aggregates.is_some().then(Vec::new);
            let mut output = Vec::with_capacity(items.len());
            for item in items {
                output_items(binder, item, table, alias, &mut output)?;
            }
            if let (Some(aggregates), Some(found)) = (aggregates, binder.aggregates.take()) {
                *aggregates = found;
            }
            Ok(output)
        })
    }

    fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        table: &TableDef,
        alias: &str,
    ) -> Analysed<Vec<OutputItem>> {
        let output = items.map_or(Ok(Vec::new()), |items| self.output(items, table, alias, None))?;
        weft_syntax::refuse_wide(output.len())?;
        Ok(output)
    }
}

/// One row of an INSERT: the given values assigned to their columns, defaults for the others.
fn inserted_row(
    catalog: &Catalog,
    binder: &mut Binder<'_>,
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
        refuse_generated(
            column,
            || {
                let name = &column.name;
                format!("cannot insert a non-DEFAULT value into column \"{name}\"")
            },
            Some("Use OVERRIDING SYSTEM VALUE to override."),
        )?;
        let operand = binder.bind(expr)?;
        let value = folded(binder.assign(operand, column)?);
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
                        let value = defaults::column_default(catalog, column)?;
                        *slot = Some(value.clone());
                        Ok(value)
                    }
                },
                _ => Err(Refusal::General),
            },
        )
        .collect()
}

/// Rejects a value for a column that is GENERATED ALWAYS.
fn refuse_generated(
    column: &ColumnDef,
    message: impl FnOnce() -> String,
    hint: Option<&str>,
) -> Result<(), SqlError> {
    if column.identity.as_ref().is_none_or(|identity| !identity.always) {
        return Ok(());
    }
    let error = SqlError::new(SqlState("428C9"), message()).detail(format!(
        "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
        column.name
    ));
    Err(match hint {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

/// A value in SET: an expression, or DEFAULT.
enum Assigned {
    Value(weft_expression::Expr),
    Default(Scalar),
}

/// The columns that SET names, and their values.
fn assignments(
    catalog: &Catalog,
    binder: &mut Binder<'_>,
    list: &[ast::Assignment],
    table: &TableDef,
) -> Analysed<Vec<(usize, Assigned)>> {
    let mut bound: Vec<(usize, Assigned)> = Vec::with_capacity(list.len());
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
            Assigned::Default(defaults::column_default(catalog, column)?)
        } else {
            refuse_generated(
                column,
                || format!("column \"{name}\" can only be updated to DEFAULT"),
                None,
            )?;
            let operand = binder.bind(&assignment.value)?;
            Assigned::Value(binder.assign_over_rows(operand, column)?)
        };
        bound.push((number, value));
    }
    Ok(bound)
}

/// Converts assignments with a row of an INSERT as the excluded row.
fn in_row(
    binder: &mut Binder<'_>,
    assignments: &[(usize, Assigned)],
    excluded: Option<&[Scalar]>,
) -> Analysed<Vec<(usize, Scalar)>> {
    let mut row = Vec::with_capacity(assignments.len());
    for (number, value) in assignments {
        let value = match value {
            Assigned::Value(expr) => folded(binder.scalar_over(expr, excluded)?),
            Assigned::Default(value) => value.clone(),
        };
        row.push((*number, value));
    }
    Ok(row)
}

/// The action of DO UPDATE for each row of an INSERT.
fn conflict_rows(
    catalog: &Catalog,
    binder: &mut Binder<'_>,
    update: &ast::DoUpdate,
    table: &TableDef,
    rows: &[Vec<Scalar>],
) -> Analysed<Vec<ConflictRow>> {
    let bound = assignments(catalog, binder, &update.assignments, table)?;
    let condition = match &update.selection {
        None => None,
        Some(selection) => {
            let operand = binder.bind(selection)?;
            Some(binder.condition_over_rows(operand, "WHERE")?)
        }
    };
    let mut updates = Vec::with_capacity(rows.len());
    for row in rows {
        let assignments = in_row(binder, &bound, Some(row))?;
        refuse_unique_columns(table, &assignments)?;
        let condition = match &condition {
            None => None,
            Some(condition) => Some(binder.scalar_over(condition, Some(row))?),
        };
        updates.push(ConflictRow {
            assignments,
            condition,
        });
    }
    Ok(updates)
}

/// The output columns of an item of a select list.
fn output_items(
    binder: &mut Binder<'_>,
    item: &SelectItem,
    table: &TableDef,
    alias: &str,
    output: &mut Vec<OutputItem>,
) -> Analysed<()> {
    let (expr, name) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, output_name(expr)),
        SelectItem::ExprWithAlias { expr, alias } => (expr, names::ident(alias)),
        SelectItem::Wildcard(options) if is_plain_wildcard(options) => {
            output.extend((0..table.columns.len()).filter_map(|column| column_item(table, column)));
            return Ok(());
        }
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
            if is_plain_wildcard(options) && names::parts(name).last().is_some_and(|last| last == alias) =>
        {
            output.extend((0..table.columns.len()).filter_map(|column| column_item(table, column)));
            return Ok(());
        }
        _ => return Err(Refusal::General),
    };
    let operand = binder.bind(expr)?;
    let (scalar, ty) = binder.settle(operand)?;
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
    Ok(())
}
