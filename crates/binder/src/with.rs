//! WITH: common table expressions.
//!
//! Each is bound once, where it is written, as a shared relation. Those that are named once and may be
//! inlined are inlined at the end ([`crate::finish`]); unused ones are removed.

use sqlparser::ast::{Cte, CteAsMaterialized, Query, SetExpr, SetOperator, SetQuantifier, With};
use weft_expression::{ColumnId, Expr};
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::names::{fold, syntax_error};
use crate::relation::{Relation, Shared, SharedBody};
use crate::scope::ScopeColumn;
use crate::select::{RowColumn, Rows};

/// A name defined by WITH.
#[derive(Clone, Debug)]
pub(crate) struct WithItem {
    pub name: String,
    /// Its shared relation.
    pub number: usize,
    /// Whether its term is being bound: references then denote the rows of the previous step.
    pub working: bool,
    pub columns: Vec<String>,
}

/// The uses of a shared relation.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedUse {
    pub count: usize,
    /// Shared relations that it names, one entry per use.
    pub names: Vec<usize>,
    /// Whether it must be computed once.
    pub keep: bool,
    /// Whether it names columns of an outer query, so that it must be inlined.
    pub correlated: bool,
    /// How high its relation is.
    pub height: usize,
}

impl Binder<'_> {
    pub(crate) fn bind_with(&mut self, with: &With) -> Result<(), SqlError> {
        let first = self.withs.len();
        // The query locks only the tables of its own FROM.
        let locking = (self.locking.take(), std::mem::take(&mut self.locks_allowed));
        for cte in &with.cte_tables {
            let name = fold(&cte.alias.name);
            if self.withs.iter().skip(first).any(|item| item.name == name) {
                let error = SqlError::new(
                    SqlState::DUPLICATE_ALIAS,
                    format!("WITH query name \"{name}\" specified more than once"),
                );
                return Err(self.at(error, cte.alias.name.span));
            }
            let recursive = with.recursive && mentions(&cte.query, &name);
            let item = self.bind_cte(cte, name, recursive)?;
            self.withs.push(item);
        }
        (self.locking, self.locks_allowed) = locking;
        Ok(())
    }

    fn bind_cte(&mut self, cte: &Cte, name: String, recursive: bool) -> Result<WithItem, SqlError> {
        let number = self.shared.len();
        self.shared.push(Shared {
            name: name.clone(),
            body: SharedBody::Plain(Relation::One),
            columns: Vec::new(),
        });
        self.shared_uses.push(SharedUse::default());
        self.binding_shared.push(number);
        let lowest = std::mem::replace(&mut self.lowest, usize::MAX);
        let volatile = self.volatile_count;
        let bound = if recursive {
            self.bind_recursive(cte, &name, number)
        } else {
            let rows = self.bind_rows(&cte.query, true)?;
            self.name_columns(cte, &rows.columns).map(|names| {
                let columns = rows.columns.iter().map(|column| (column.id, column.ty)).collect();
                (names, columns, SharedBody::Plain(rows.relation), rows.height)
            })
        };
        self.binding_shared.pop();
        self.bound_shared.push(number);
        let (names, columns, body, height) = bound?;
        let correlated = self.lowest < self.levels.len();
        self.lowest = self.lowest.min(lowest);
        if let Some(shared) = self.shared.get_mut(number) {
            shared.body = body;
            shared.columns = columns;
        }
        let keep = recursive
            || self.volatile_count > volatile
            || cte.materialized == Some(CteAsMaterialized::Materialized);
        if let Some(uses) = self.shared_uses.get_mut(number) {
            uses.keep = keep && !correlated;
            uses.correlated = correlated;
            uses.height = height;
        }
        Ok(WithItem {
            name,
            number,
            working: false,
            columns: names,
        })
    }

    fn name_columns(&self, cte: &Cte, columns: &[RowColumn]) -> Result<Vec<String>, SqlError> {
        let given = &cte.alias.columns;
        if given.len() > columns.len() {
            let error = SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!(
                    "WITH query \"{}\" has {} columns available but {} columns specified",
                    fold(&cte.alias.name),
                    columns.len(),
                    given.len()
                ),
            );
            return Err(self.at(error, cte.alias.name.span));
        }
        let own = columns.iter().skip(given.len()).map(|column| column.name.clone());
        Ok(given.iter().map(|column| fold(&column.name)).chain(own).collect())
    }

    #[allow(clippy::type_complexity)] // names, columns, body and its height
    fn bind_recursive(
        &mut self,
        cte: &Cte,
        name: &str,
        number: usize,
    ) -> Result<(Vec<String>, Vec<(ColumnId, SqlType)>, SharedBody, usize), SqlError> {
        let query = &cte.query;
        let SetExpr::SetOperation {
            left,
            op: SetOperator::Union,
            set_quantifier,
            right,
        } = query.body.as_ref()
        else {
            let error = SqlError::new(
                SqlState::INVALID_RECURSION,
                format!(
                    "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] \
                     recursive-term"
                ),
            );
            return Err(self.at(error, cte.alias.name.span));
        };
        for (present, what) in [
            (
                query.order_by.is_some(),
                "ORDER BY in a recursive query is not implemented",
            ),
            (
                query.fetch.is_some(),
                "LIMIT in a recursive query is not implemented",
            ),
            (
                query.limit_clause.is_some(),
                "LIMIT in a recursive query is not implemented",
            ),
            (
                !query.locks.is_empty(),
                "FOR UPDATE/SHARE in a recursive query is not implemented",
            ),
        ] {
            if present {
                return Err(SqlError::unsupported(what));
            }
        }
        let withs = self.withs.len();
        if let Some(with) = &query.with {
            self.bind_with(with)?;
        }
        if mentions_in(left, name) {
            let error = SqlError::new(
                SqlState::INVALID_RECURSION,
                format!(
                    "recursive reference to query \"{name}\" must not appear within its non-recursive term"
                ),
            );
            return Err(self.at(error, cte.alias.name.span));
        }
        let start = self.bind_set_expr(left, true)?;
        let start = self.settle_rows(start)?;
        let names = self.name_columns(cte, &start.columns)?;
        let mut columns = Vec::new();
        for column in &start.columns {
            self.mark(column.id);
            columns.push((self.fresh(), column.ty));
        }
        if let Some(shared) = self.shared.get_mut(number) {
            shared.columns.clone_from(&columns);
        }
        self.withs.push(WithItem {
            name: name.to_owned(),
            number,
            working: true,
            columns: names.clone(),
        });
        let term = self.bind_set_expr(right, false)?;
        self.withs.truncate(withs);
        let height = start.height.max(term.height) + 1;
        let (term, sources) = self.recursive_term(name, &start, term)?;
        let pairs = start.columns.iter().map(|column| column.id).zip(sources);
        let body = SharedBody::Recursive {
            columns: pairs.collect(),
            start: start.relation,
            term,
            all: *set_quantifier == SetQuantifier::All,
        };
        Ok((names, columns, body, height))
    }

    /// Binds the term, whose columns must have the types of those of the first step.
    fn recursive_term(
        &mut self,
        name: &str,
        start: &Rows,
        term: Rows,
    ) -> Result<(Relation, Vec<ColumnId>), SqlError> {
        if start.columns.len() != term.columns.len() {
            return Err(syntax_error(
                "each UNION query must have the same number of columns",
            ));
        }
        let mut types = Vec::new();
        for (place, (one, other)) in start.columns.iter().zip(&term.columns).enumerate() {
            let known = other.unknown.is_none().then_some(other.ty);
            let ty = weft_expression::resolve::common_type("UNION", &[Some(one.ty), known])?;
            if ty != one.ty && ty.without_typmod() != one.ty {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        place + 1,
                        one.ty.name(),
                        ty.name()
                    ),
                )
                .hint("Cast the output of the non-recursive term to the correct type."));
            }
            types.push(one.ty);
        }
        self.converted_rows(term, &types)
    }

    /// The innermost WITH query with a name.
    pub(crate) fn find_with(&self, name: &str) -> Option<WithItem> {
        self.withs.iter().rev().find(|item| item.name == name).cloned()
    }

    /// Binds a reference to a WITH query in FROM.
    pub(crate) fn bind_with_reference(
        &mut self,
        item: WithItem,
    ) -> Result<(Relation, Vec<ScopeColumn>), SqlError> {
        let number = item.number;
        let described = self
            .shared
            .get(number)
            .map(|shared| shared.columns.clone())
            .unwrap_or_default();
        let mut columns = Vec::with_capacity(described.len());
        let mut visible = Vec::with_capacity(described.len());
        for ((source, ty), name) in described.into_iter().zip(item.columns) {
            let id = self.own_fresh()?;
            self.mark(source);
            columns.push((source, id, ty));
            visible.push(ScopeColumn {
                name,
                expr: Expr::column(id, ty),
                origin: None,
                hidden: false,
            });
        }
        if item.working {
            let outer = Vec::new();
            return Ok((
                Relation::Working {
                    number,
                    columns,
                    outer,
                },
                visible,
            ));
        }
        let height = self.shared_uses.get(number).map_or(0, |uses| uses.height);
        self.rest_on(height)?;
        if let Some(uses) = self.shared_uses.get_mut(number) {
            uses.count += 1;
            if uses.correlated && uses.count > 1 {
                return Err(SqlError::unsupported(
                    "a WITH query that names columns of the query around it and is used more than once is not \
                     supported",
                ));
            }
        }
        if let Some(around) = self.binding_shared.last()
            && let Some(uses) = self.shared_uses.get_mut(*around)
        {
            uses.names.push(number);
        }
        Ok((Relation::Shared { number, columns }, visible))
    }
}

/// Whether a query may name a relation. Conservative: counts the name even where a subquery hides it.
fn mentions(query: &Query, name: &str) -> bool {
    use sqlparser::ast::visit_relations;
    let found = visit_relations(query, |relation| found_name(relation, name));
    found.is_break()
}

fn mentions_in(body: &SetExpr, name: &str) -> bool {
    use sqlparser::ast::visit_relations;
    let found = visit_relations(body, |relation| found_name(relation, name));
    found.is_break()
}

fn found_name(relation: &sqlparser::ast::ObjectName, name: &str) -> std::ops::ControlFlow<()> {
    match relation.0.as_slice() {
        [only] if only.as_ident().is_some_and(|ident| fold(ident) == name) => {
            std::ops::ControlFlow::Break(())
        }
        _ => std::ops::ControlFlow::Continue(()),
    }
}
