//! SELECT: binds its clauses in order and builds their relation.

use std::ops::Range;

use sqlparser::ast::{
    BinaryOperator, Distinct, Expr as AstExpr, GroupByExpr, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Spanned,
};
use sqlparser::tokenizer::Span;
use weft_base::TableId;
use weft_expression::category::check_equality;
use weft_expression::{ColumnId, Expr, Op};
use weft_syntax::refuse_wide;
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use crate::binder::Binder;
use crate::names::{self, Place, fold, output_name, syntax_error};
use crate::order::{Limits, SortItem, Tail};
use crate::parameters::Operand;
use crate::relation::{Apply, Relation, SortKey};
use crate::scope::{Clause, Pending, ScopeColumn};

/// A bound query.
#[derive(Debug)]
pub(crate) struct Rows {
    pub relation: Relation,
    pub columns: Vec<RowColumn>,
    /// How many queries and joins stand on each other in the relation, at most.
    pub height: usize,
}

/// One column of a bound query.
#[derive(Debug)]
pub(crate) struct RowColumn {
    pub name: String,
    pub id: ColumnId,
    pub ty: SqlType,
    pub origin: Option<(TableId, i16)>,
    /// Its value, if it has no type yet: a constant or a parameter.
    pub unknown: Option<Operand>,
}

/// One expression of the select list; `junk` items are only for ORDER BY.
#[derive(Debug)]
pub(crate) struct Item {
    pub name: String,
    pub operand: Operand,
    pub origin: Option<(TableId, i16)>,
    pub junk: bool,
}

/// WHERE, split into conjuncts.
#[derive(Debug, Default)]
struct Conjuncts {
    /// Conjuncts without subqueries.
    plain: Vec<Expr>,
    others: Vec<Expr>,
    pending: Vec<Pending>,
}

/// Places subqueries below the relation that uses their results.
pub(crate) fn apply_all(relation: Relation, pending: Vec<Pending>) -> Relation {
    pending
        .into_iter()
        .fold(relation, |input, Pending { subquery, kind }| Relation::Apply {
            input: Box::new(input),
            subquery: Box::new(subquery),
            kind,
        })
}

/// The conjunction of conditions; `None` if there are none.
pub(crate) fn all_of(mut conditions: Vec<Expr>) -> Option<Expr> {
    match conditions.len() {
        0 | 1 => conditions.pop(),
        _ => Some(Expr::new(Op::And, SqlType::Bool, conditions)),
    }
}

pub(crate) fn filter(relation: Relation, conditions: Vec<Expr>) -> Relation {
    match all_of(conditions) {
        None => relation,
        Some(predicate) => Relation::Filter {
            input: Box::new(relation),
            predicate,
        },
    }
}

/// The operands of a chain of ANDs, in order.
fn conjuncts(expr: &AstExpr) -> Vec<&AstExpr> {
    let (mut found, mut at) = (Vec::new(), expr);
    loop {
        match at {
            AstExpr::Nested(inner) => at = inner,
            AstExpr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right,
            } => {
                found.push(right.as_ref());
                at = left;
            }
            _ => break,
        }
    }
    found.push(at);
    found.reverse();
    found
}

impl Binder<'_> {
    /// Binds a query. With `resolve`, columns of unknown type become text.
    pub(crate) fn bind_rows(&mut self, query: &Query, resolve: bool) -> Result<Rows, SqlError> {
        if self.names.is_some() {
            return Err(SqlError::unsupported("subqueries are not supported here"));
        }
        if !query.locks.is_empty() && (!self.locks_allowed || !self.levels.is_empty()) {
            return self.bind_step(query);
        }
        let mut tail = Tail::of(query)?;
        let withs = self.withs.len();
        let mut has_with = query.with.is_some();
        if let Some(with) = &query.with {
            self.bind_with(with)?;
        }
        let mut body = query.body.as_ref();
        while let SetExpr::Query(inner) = body {
            if let Some(with) = &inner.with {
                if has_with {
                    return Err(syntax_error("multiple WITH clauses not allowed"));
                }
                has_with = true;
                self.bind_with(with)?;
            }
            if !inner.locks.is_empty() {
                return Err(SqlError::unsupported("FOR UPDATE in a subquery is not supported"));
            }
            tail.merge(Tail::of(inner)?)?;
            body = inner.body.as_ref();
        }
        let rows = match body {
            SetExpr::Select(select) => self.bind_select(select, &tail, resolve)?,
            other => {
                let rows = self.bind_set_expr(other, resolve && tail.is_empty())?;
                self.bind_tail(rows, &tail, resolve)?
            }
        };
        self.withs.truncate(withs);
        Ok(rows)
    }

    /// Binds a SELECT without ORDER BY or LIMIT.
    pub(crate) fn bind_plain_select(&mut self, select: &Select, resolve: bool) -> Result<Rows, SqlError> {
        self.bind_select(select, &Tail::default(), resolve)
    }

    /// `TABLE name`
    pub(crate) fn bind_table_command(&mut self, name: &sqlparser::ast::ObjectName) -> Result<Rows, SqlError> {
        self.push_level();
        let from = self.bind_named(name, None)?;
        let visible = self.level()?.visible.clone();
        let columns = self.star_columns(visible)?;
        let depth = self.levels.len().saturating_sub(1);
        let mut items = Vec::new();
        self.push_columns(&mut items, columns, depth, Span::empty());
        let (relation, columns) = self.project(from, items);
        let level = self.pop_level()?;
        Ok(Rows {
            relation,
            columns: columns.into_iter().map(|(column, _)| column).collect(),
            height: level.height.total(),
        })
    }

    fn bind_select(&mut self, select: &Select, tail: &Tail<'_>, resolve: bool) -> Result<Rows, SqlError> {
        reject_other_dialects(select)?;
        self.push_level();
        let rows = self.select_in_level(select, tail, resolve)?;
        self.pop_level()?;
        Ok(rows)
    }

    fn select_in_level(&mut self, select: &Select, tail: &Tail<'_>, resolve: bool) -> Result<Rows, SqlError> {
        let from = self.bind_from(&select.from)?;
        let locked = self.finish_locks(select)?;
        self.forget_references(0..0)?;
        for window in &select.named_window {
            self.bind_named_window(window)?;
        }
        let mut items = self.bind_items(&select.projection, Clause::Select)?;
        items.extend(locked);
        let condition = match &select.selection {
            Some(expr) => self.bind_where(expr)?,
            None => Conjuncts::default(),
        };
        let having = match &select.having {
            Some(expr) => {
                let (having, pending) =
                    self.in_clause(Clause::Having, |binder| binder.boolean(expr, "HAVING"))?;
                Some((having, pending))
            }
            None => None,
        };
        let sort = self.bind_sort(tail.order_by, &mut items, Clause::OrderBy)?;
        let has_group_by = self.bind_group_by(&select.group_by, &mut items)?;
        let distinct = self.bind_distinct(select.distinct.as_ref(), &sort, &mut items)?;
        let limits = self.bind_limits(tail)?;
        let level = self.level()?;
        let longest = level.grouping.width().max(level.aggregates.len());
        refuse_wide(longest.max(items.len()))?;
        if resolve {
            for item in &mut items {
                self.settle_item(item)?;
            }
        }
        self.refuse_locked_aggregates()?;
        let relation = with_condition(from, condition);
        let level = self.level()?;
        let aggregates = !level.aggregates.is_empty() || level.grouping.is_asked();
        let (relation, having) = if has_group_by || having.is_some() || aggregates {
            self.aggregate(relation, &mut items, having)?
        } else {
            (relation, None)
        };
        let relation = match having {
            Some((predicate, pending)) => filter(apply_all(relation, pending), vec![predicate]),
            None => relation,
        };
        let pending = std::mem::take(&mut self.level()?.pending);
        let relation = self.add_windows(apply_all(relation, pending))?;
        let relation = self.add_sets(relation)?;
        let (relation, columns) = self.project(relation, items);
        self.arrange(relation, columns, distinct, &sort, limits)
    }

    /// Adds DISTINCT, ORDER BY and LIMIT over the projected columns.
    fn arrange(
        &mut self,
        relation: Relation,
        columns: Vec<(RowColumn, bool)>,
        distinct: Option<Option<Vec<usize>>>,
        sort: &[SortItem],
        limits: Limits,
    ) -> Result<Rows, SqlError> {
        let key = |item: &SortItem| {
            let (column, _) = columns.get(item.item)?;
            Some(SortKey {
                expr: Expr::column(column.id, column.ty),
                descending: item.descending,
                nulls_first: item.nulls_first,
            })
        };
        let keys: Vec<SortKey> = sort.iter().filter_map(key).collect();
        let mut relation = relation;
        match distinct {
            None => {}
            Some(None) => {
                relation = Relation::Distinct {
                    input: Box::new(relation),
                    on: None,
                };
            }
            Some(Some(on)) => {
                let ids = on
                    .iter()
                    .filter_map(|item| columns.get(*item))
                    .map(|(column, _)| column.id);
                let on = Some(ids.collect());
                relation = Relation::Distinct {
                    input: Box::new(sorted(relation, keys.clone())),
                    on,
                };
            }
        }
        let relation = limits.put_over(sorted(relation, keys.clone()), keys)?;
        let visible = columns.into_iter().filter(|(_, junk)| !junk);
        Ok(Rows {
            relation,
            columns: visible.map(|(column, _)| column).collect(),
            height: self.level()?.height.total(),
        })
    }

    /// Projects the select list to new ids.
    pub(crate) fn project(
        &mut self,
        relation: Relation,
        items: Vec<Item>,
    ) -> (Relation, Vec<(RowColumn, bool)>) {
        let (mut computed, mut columns) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        for item in items {
            let id = self.fresh();
            let (expr, ty, unknown) = match item.operand.ty {
                Some(ty) => (item.operand.expr, ty, None),
                None => {
                    let placeholder = Expr::constant(Value::Null, SqlType::Text);
                    (placeholder, SqlType::Text, Some(item.operand))
                }
            };
            computed.push((id, expr));
            let column = RowColumn {
                name: item.name,
                id,
                ty,
                origin: item.origin,
                unknown,
            };
            columns.push((column, item.junk));
        }
        let relation = Relation::Project {
            input: Box::new(relation),
            items: computed,
        };
        (relation, columns)
    }

    /// Converts an item of unknown type to text.
    pub(crate) fn settle_item(&mut self, item: &mut Item) -> Result<(), SqlError> {
        if item.operand.ty.is_none() {
            let operand = std::mem::replace(&mut item.operand, Operand::null());
            item.operand = Operand::typed(self.parameters.settle(operand)?);
        }
        Ok(())
    }

    /// Binds expressions of a clause; returns also their subqueries.
    pub(crate) fn in_clause<T>(
        &mut self,
        clause: Clause,
        bind: impl FnOnce(&mut Self) -> Result<T, SqlError>,
    ) -> Result<(T, Vec<Pending>), SqlError> {
        let level = self.level()?;
        let saved_clause = std::mem::replace(&mut level.clause, clause);
        let saved = std::mem::take(&mut level.pending);
        let bound = bind(self)?;
        let level = self.level()?;
        level.clause = saved_clause;
        Ok((bound, std::mem::replace(&mut level.pending, saved)))
    }

    /// Removes the references recorded since `since`: they are not subject to grouping.
    pub(crate) fn forget_references(&mut self, since: Range<usize>) -> Result<(), SqlError> {
        let level = self.level()?;
        level.references.truncate(since.start);
        level.outer_references.truncate(since.end);
        Ok(())
    }

    /// The number of references so far, for [`Binder::forget_references`].
    pub(crate) fn reference_marks(&mut self) -> Result<Range<usize>, SqlError> {
        let level = self.level()?;
        Ok(level.references.len()..level.outer_references.len())
    }

    fn bind_where(&mut self, expr: &AstExpr) -> Result<Conjuncts, SqlError> {
        let marks = self.reference_marks()?;
        let parts = conjuncts(expr);
        let what = if parts.len() == 1 { "WHERE" } else { "AND" };
        let mut split = Conjuncts::default();
        for part in parts {
            let (condition, pending) = self.in_clause(Clause::Where, |binder| binder.boolean(part, what))?;
            if pending.is_empty() {
                split.plain.push(condition);
            } else {
                split.others.push(condition);
                split.pending.extend(pending);
            }
        }
        self.forget_references(marks)?;
        Ok(split)
    }

    /// Adds the WHERE of a statement that changes rows to its relation.
    pub(crate) fn add_where(
        &mut self,
        relation: Relation,
        expr: Option<&AstExpr>,
    ) -> Result<Relation, SqlError> {
        match expr {
            Some(expr) => {
                let condition = self.bind_where(expr)?;
                Ok(with_condition(relation, condition))
            }
            None => Ok(relation),
        }
    }

    /// Binds the select list and expands `*`.
    pub(crate) fn bind_items(&mut self, items: &[SelectItem], clause: Clause) -> Result<Vec<Item>, SqlError> {
        self.level()?.clause = clause;
        let mut bound = Vec::with_capacity(items.len());
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    if let AstExpr::CompoundFieldAccess { .. } = expr
                        && let Some(()) = self.bind_record_star(expr)?
                    {
                        continue;
                    }
                    bound.push(self.bind_item(expr, output_name(expr))?);
                }
                SelectItem::ExprWithAlias { expr, alias } => bound.push(self.bind_item(expr, fold(alias))?),
                SelectItem::Wildcard(options) => {
                    self.note_star(options.wildcard_token.0.span)?;
                    let visible = self.level()?.visible.clone();
                    if visible.is_empty() {
                        return Err(syntax_error("SELECT * with no tables specified is not valid"));
                    }
                    let columns = self.star_columns(visible)?;
                    let depth = self.levels.len().saturating_sub(1);
                    self.push_columns(&mut bound, columns, depth, Span::empty());
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let (parts, span) = names::parts(name);
                    let (schema, table) = match parts.as_slice() {
                        [table] => (None, table),
                        [.., schema, table] => (Some(schema.as_str()), table),
                        [] => return Err(syntax_error("zero-length name")),
                    };
                    let found = self
                        .find_item(schema, table)
                        .map_err(|error| self.at(error, span))?;
                    let Some((depth, place)) = found else {
                        return Err(self.at(self.missing_item(table), span));
                    };
                    self.note_qualified_star(span, (depth, place), options.wildcard_token.0.span);
                    let item = self.levels.get(depth).and_then(|level| level.items.get(place));
                    let columns = item.map(|item| item.columns.clone()).unwrap_or_default();
                    self.push_columns(&mut bound, columns, depth, span);
                }
                _ => {
                    return Err(SqlError::unsupported(
                        "this form of the select list is not supported",
                    ));
                }
            }
        }
        Ok(bound)
    }

    /// `(expression).*`
    fn bind_record_star(&mut self, expr: &AstExpr) -> Result<Option<()>, SqlError> {
        match expr {
            AstExpr::CompoundFieldAccess { access_chain, .. }
                if matches!(
                    access_chain.last(),
                    Some(sqlparser::ast::AccessExpr::Dot(AstExpr::Wildcard(_)))
                ) =>
            {
                Err(SqlError::unsupported("expansion of a row by .* is not supported"))
            }
            _ => Ok(None),
        }
    }

    fn push_columns(&mut self, items: &mut Vec<Item>, columns: Vec<ScopeColumn>, depth: usize, span: Span) {
        for column in columns {
            for id in column.expr.columns() {
                self.mark(id);
                self.refer_to(depth, usize::MAX, id, span);
            }
            items.push(Item {
                name: column.name,
                operand: Operand::typed(column.expr),
                origin: column.origin,
                junk: false,
            });
        }
    }

    fn bind_item(&mut self, expr: &AstExpr, name: String) -> Result<Item, SqlError> {
        let mut plain = expr;
        while let AstExpr::Nested(inner) = plain {
            plain = inner;
        }
        let column = match plain {
            AstExpr::Identifier(ident) => self.column(std::slice::from_ref(ident))?,
            AstExpr::CompoundIdentifier(idents) => self.column(idents)?,
            _ => None,
        };
        let (operand, origin) = match column {
            Some(found) => found,
            None => (self.expr(plain)?, None),
        };
        Ok(Item {
            name,
            operand,
            origin,
            junk: false,
        })
    }

    /// Binds DISTINCT: `Some(None)` for all columns, `Some(Some(items))` for DISTINCT ON.
    fn bind_distinct(
        &mut self,
        distinct: Option<&Distinct>,
        sort: &[SortItem],
        items: &mut Vec<Item>,
    ) -> Result<Option<Option<Vec<usize>>>, SqlError> {
        match distinct {
            None | Some(Distinct::All) => Ok(None),
            Some(Distinct::Distinct) => {
                for item in sort {
                    if items.get(item.item).is_some_and(|item| item.junk) {
                        let error = SqlError::new(
                            SqlState::INVALID_COLUMN_REFERENCE,
                            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                        );
                        return Err(self.at(error, item.span));
                    }
                }
                for item in items {
                    self.settle_item(item)?;
                    check_equality(&item.operand.expr.ty())?;
                }
                Ok(Some(None))
            }
            Some(Distinct::On(exprs)) => {
                let mut on = Vec::new();
                for expr in exprs {
                    let item = self.sort_item(expr, items, Clause::DistinctOn)?;
                    if let Some(ty) = items.get(item).and_then(|item| item.operand.ty) {
                        check_equality(&ty).map_err(|error| self.at(error, expr.span()))?;
                    }
                    if !on.contains(&item) {
                        on.push(item);
                    }
                }
                let mut left = on.clone();
                for key in sort {
                    if left.is_empty() {
                        break;
                    }
                    if !on.contains(&key.item) {
                        let error = SqlError::new(
                            SqlState::INVALID_COLUMN_REFERENCE,
                            "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                        );
                        return Err(self.at(error, exprs.first().map_or_else(Span::empty, Spanned::span)));
                    }
                    left.retain(|item| *item != key.item);
                }
                Ok(Some(Some(on)))
            }
        }
    }

    /// Binds a condition.
    pub(crate) fn boolean(&mut self, expr: &AstExpr, what: &str) -> Result<Expr, SqlError> {
        let operand = self.expr(expr)?;
        self.as_boolean(operand, what, expr)
    }

    pub(crate) fn as_boolean<'p>(
        &mut self,
        operand: Operand,
        what: &str,
        place: impl Into<Place<'p>>,
    ) -> Result<Expr, SqlError> {
        match operand.ty {
            Some(SqlType::Bool) => Ok(operand.expr),
            None => {
                let bound = self
                    .parameters
                    .coerce(operand, SqlType::Bool, CastContext::Implicit);
                bound.map_err(|error| self.at(error, place))
            }
            Some(_) => {
                let error = SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "argument of {what} must be type boolean, not type {}",
                        operand.type_name()
                    ),
                );
                Err(self.at(error, place))
            }
        }
    }
}

fn with_condition(relation: Relation, condition: Conjuncts) -> Relation {
    let relation = filter(relation, condition.plain);
    filter(apply_all(relation, condition.pending), condition.others)
}

pub(crate) fn sorted(relation: Relation, keys: Vec<SortKey>) -> Relation {
    if keys.is_empty() {
        return relation;
    }
    Relation::Sort {
        input: Box::new(relation),
        keys,
    }
}

/// The column for a subquery's value.
pub(crate) fn output_of(kind: &Apply) -> Option<ColumnId> {
    match kind {
        Apply::Scalar { output, .. }
        | Apply::Exists { output }
        | Apply::Quantified { output, .. }
        | Apply::Array { output, .. } => Some(*output),
        Apply::Lateral { .. } | Apply::Row { .. } => None,
    }
}

/// Rejects syntax of other dialects in a SELECT.
fn reject_other_dialects(select: &Select) -> Result<(), SqlError> {
    if select.into.is_some() {
        return Err(SqlError::unsupported("SELECT INTO is not supported"));
    }
    let foreign = select.top.is_some()
        || select.exclude.is_some()
        || !select.lateral_views.is_empty()
        || select.prewhere.is_some()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty()
        || select.qualify.is_some()
        || select.value_table_mode.is_some()
        || matches!(&select.group_by, GroupByExpr::All(_));
    if foreign {
        return Err(SqlError::unsupported("this form of SELECT is not supported"));
    }
    Ok(())
}
