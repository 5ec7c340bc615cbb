//! ON CONFLICT: determines the arbiter indexes, and binds DO UPDATE as a query over pairs of rows, the
//! existing and the proposed one.

use std::sync::Arc;

use sqlparser::ast::{ConflictTarget, DoUpdate, OnConflict, OnConflictAction};
use weft_expression::{ColumnId, Expr};
use weft_store::{IndexDef, TableDef};
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::names::{fold, parts, syntax_error};
use crate::parameters::Parameters;
use crate::relation::{Conflict, ConflictUpdate, Output, Relation};
use crate::scope::{Clause, FromItem, ScopeColumn};
use crate::select::apply_all;

impl Binder<'_> {
    /// Binds the clause of an INSERT into `table`, which has the name `alias` in the statement.
    pub(crate) fn on_conflict(
        &mut self,
        conflict: &OnConflict,
        table: &Arc<TableDef>,
        alias: Option<&str>,
    ) -> Result<Conflict, SqlError> {
        let arbiters = self.arbiters(conflict, table)?;
        let update = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => Some(self.conflict_update(update, table, alias)?),
        };
        Ok(Conflict { arbiters, update })
    }

    fn arbiters(&self, conflict: &OnConflict, table: &TableDef) -> Result<Vec<Arc<IndexDef>>, SqlError> {
        let unique = || table.indexes.iter().filter(|index| index.unique);
        match &conflict.conflict_target {
            None if matches!(conflict.action, OnConflictAction::DoNothing) => Ok(unique().cloned().collect()),
            None => Err(syntax_error(
                "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            )
            .hint("For example, ON CONFLICT (column_name).")),
            Some(ConflictTarget::OnConstraint(name)) => {
                let (parts, span) = parts(name);
                let name = parts.last().map_or("", String::as_str);
                let found = unique().find(|index| index.name == name);
                found.map(|index| vec![Arc::clone(index)]).ok_or_else(|| {
                    let table = &table.name;
                    let message = format!("constraint \"{name}\" for table \"{table}\" does not exist");
                    self.at(SqlError::new(SqlState::UNDEFINED_OBJECT, message), span)
                })
            }
            Some(ConflictTarget::Columns(columns)) => {
                let mut wanted = Vec::with_capacity(columns.len());
                for column in columns {
                    let name = fold(column);
                    wanted.push(table.column_index(&name).ok_or_else(|| {
                        let message = format!("column \"{name}\" does not exist");
                        self.at(SqlError::new(SqlState::UNDEFINED_COLUMN, message), column.span)
                    })?);
                }
                let fits = |index: &&Arc<IndexDef>| {
                    index.columns.iter().all(|column| wanted.contains(column))
                        && wanted.iter().all(|column| index.columns.contains(column))
                };
                let found: Vec<Arc<IndexDef>> = unique().filter(fits).cloned().collect();
                match found.is_empty() {
                    false => Ok(found),
                    true => Err(SqlError::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
                    )),
                }
            }
        }
    }

    fn conflict_update(
        &mut self,
        update: &DoUpdate,
        table: &Arc<TableDef>,
        alias: Option<&str>,
    ) -> Result<ConflictUpdate, SqlError> {
        let mut inner = Binder::new(self.env);
        inner.parameters = std::mem::take(&mut self.parameters);
        inner.push_level();
        let number = inner.own_fresh()?;
        let mut given = vec![(number, SqlType::Int8)];
        for name in [alias.unwrap_or(&table.name), "excluded"] {
            let mut visible = Vec::with_capacity(table.columns.len());
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
            let mut item = FromItem::plain(Some(name.to_owned()), visible);
            item.table = Some(Arc::clone(table));
            inner.add_item(item, None)?;
        }
        let ((columns, values), pending) = inner.in_clause(Clause::Update, |binder| {
            binder.assignments(&update.assignments, table)
        })?;
        let relation = inner.add_where(
            Relation::Given {
                columns: given,
                step: None,
            },
            update.selection.as_ref(),
        )?;
        let relation = apply_all(relation, pending);
        let mut items: Vec<(ColumnId, Expr)> = Vec::with_capacity(values.len() + 1);
        let mut output = Vec::with_capacity(values.len() + 1);
        for expr in std::iter::once(Expr::column(number, SqlType::Int8)).chain(values) {
            for used in expr.columns() {
                inner.mark(used);
            }
            let (id, ty) = (inner.fresh(), expr.ty());
            inner.mark(id);
            items.push((id, expr));
            output.push(Output {
                column: id,
                name: String::new(),
                ty,
                origin: None,
            });
        }
        inner.pop_level()?;
        let relation = Relation::Project {
            input: Box::new(relation),
            items,
        };
        self.adopt(&mut inner);
        Ok(ConflictUpdate {
            rows: Arc::new(inner.finish(relation, output)?),
            columns,
        })
    }
}

impl<'a> Binder<'a> {
    /// Adopts the state of a separately bound part of the statement: parameters, tables, dependence on the
    /// session.
    pub(crate) fn adopt(&mut self, inner: &mut Binder<'a>) {
        self.parameters = inner.parameters.clone();
        // The rows may determine parameter types later, which `inner` cannot know: types are checked with the
        // statement.
        inner.parameters = Parameters::default();
        for id in &inner.tables {
            if !self.tables.contains(id) {
                self.tables.push(*id);
            }
        }
        for read in &inner.reads {
            if !self.reads.contains(read) {
                self.reads.push(*read);
            }
        }
        self.session_bound |= inner.session_bound;
        self.moves_sequence |= inner.moves_sequence;
        self.takes_advisory_locks |= inner.takes_advisory_locks;
        self.volatile_count += inner.volatile_count;
    }
}
