//! ORDER BY, LIMIT, OFFSET and FETCH.

use sqlparser::ast::{
    Expr as AstExpr, LimitClause, OrderByExpr, OrderByKind, Query, Spanned, UnaryOperator, Value as AstValue,
};
use sqlparser::tokenizer::Span;
use weft_expression::category::check_order;
use weft_expression::{Expr, Op};
use weft_types::{CastContext, SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::names::{fold, syntax_error};
use crate::relation::{Relation, SortKey};
use crate::scope::Clause;
use crate::select::{Item, Rows, sorted};

/// The clauses after a query's body.
#[derive(Clone, Copy, Default)]
pub(crate) struct Tail<'q> {
    pub order_by: &'q [OrderByExpr],
    count: Option<&'q AstExpr>,
    offset: Option<&'q AstExpr>,
    has_limit: bool,
    ties: bool,
}

/// The bound LIMIT and OFFSET.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    count: Option<Expr>,
    offset: Option<Expr>,
    ties: bool,
}

/// A sort key: a position in the select list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortItem {
    pub item: usize,
    pub descending: bool,
    pub nulls_first: bool,
    pub span: Span,
}

impl<'q> Tail<'q> {
    /// The clauses after a query's body, except locking.
    pub fn of(query: &'q Query) -> Result<Tail<'q>, SqlError> {
        let mut tail = Tail::default();
        if query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty()
        {
            return Err(SqlError::unsupported("this form of a query is not supported"));
        }
        if let Some(order_by) = &query.order_by {
            match &order_by.kind {
                OrderByKind::Expressions(exprs) if order_by.interpolate.is_none() => tail.order_by = exprs,
                _ => return Err(SqlError::unsupported("this form of ORDER BY is not supported")),
            }
        }
        match &query.limit_clause {
            None => {}
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) if limit_by.is_empty() => {
                tail.count = limit.as_ref();
                tail.offset = offset.as_ref().map(|offset| &offset.value);
                tail.has_limit = true;
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => {
                return Err(syntax_error("LIMIT #,# syntax is not supported")
                    .hint("Use separate LIMIT and OFFSET clauses."));
            }
            Some(_) => return Err(SqlError::unsupported("LIMIT BY is not supported")),
        }
        if let Some(fetch) = &query.fetch {
            if fetch.percent {
                return Err(SqlError::unsupported("FETCH with PERCENT is not supported"));
            }
            if tail.count.is_some() {
                return Err(syntax_error("multiple LIMIT clauses not allowed"));
            }
            tail.count = fetch.quantity.as_ref();
            tail.has_limit = true;
            tail.ties = fetch.with_ties;
            if tail.count.is_none() {
                tail.count = Some(&ONE);
            }
        }
        Ok(tail)
    }

    pub fn is_empty(&self) -> bool {
        self.order_by.is_empty() && !self.has_limit
    }

    /// Merges the clauses of a parenthesized query.
    pub fn merge(&mut self, inner: Tail<'q>) -> Result<(), SqlError> {
        if !inner.order_by.is_empty() {
            if !self.order_by.is_empty() {
                return Err(syntax_error("multiple ORDER BY clauses not allowed"));
            }
            self.order_by = inner.order_by;
        }
        if inner.has_limit {
            if self.count.is_some() && inner.count.is_some() {
                return Err(syntax_error("multiple LIMIT clauses not allowed"));
            }
            if self.offset.is_some() && inner.offset.is_some() {
                return Err(syntax_error("multiple OFFSET clauses not allowed"));
            }
            self.count = self.count.or(inner.count);
            self.offset = self.offset.or(inner.offset);
            self.ties |= inner.ties;
            self.has_limit = true;
        }
        Ok(())
    }
}

/// FETCH FIRST ROW ONLY
static ONE: AstExpr = AstExpr::Value(sqlparser::ast::ValueWithSpan {
    value: AstValue::Boolean(true),
    span: Span {
        start: sqlparser::tokenizer::Location { line: 0, column: 0 },
        end: sqlparser::tokenizer::Location { line: 0, column: 0 },
    },
});

impl Limits {
    pub fn put_over(self, relation: Relation, keys: Vec<SortKey>) -> Result<Relation, SqlError> {
        if self.count.is_none() && self.offset.is_none() {
            return Ok(relation);
        }
        if self.ties && keys.is_empty() {
            return Err(syntax_error(
                "WITH TIES cannot be specified without ORDER BY clause",
            ));
        }
        Ok(Relation::Limit {
            input: Box::new(relation),
            count: self.count,
            offset: self.offset,
            ties: self.ties.then_some(keys),
        })
    }
}

impl Binder<'_> {
    pub(crate) fn bind_limits(&mut self, tail: &Tail<'_>) -> Result<Limits, SqlError> {
        let count = match tail.count {
            Some(expr) if std::ptr::eq(expr, &raw const ONE) => {
                Some(Expr::constant(weft_types::Value::Int8(1), SqlType::Int8))
            }
            Some(expr) => Some(self.bind_limit(expr, Clause::Limit)?),
            None => None,
        };
        let offset = match tail.offset {
            Some(expr) => Some(self.bind_limit(expr, Clause::Offset)?),
            None => None,
        };
        Ok(Limits {
            count,
            offset,
            ties: tail.ties,
        })
    }

    fn bind_limit(&mut self, expr: &AstExpr, clause: Clause) -> Result<Expr, SqlError> {
        let (operand, pending) = self.in_clause(clause, |binder| binder.expr(expr))?;
        let name = operand.type_name();
        let bound = self
            .parameters
            .coerce(operand, SqlType::Int8, CastContext::Assignment);
        let bound = bound.map_err(|error| {
            let error = if error.state == SqlState::DATATYPE_MISMATCH {
                SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "argument of {} must be type bigint, not type {name}",
                        clause.noun()
                    ),
                )
            } else {
                error
            };
            self.at(error, expr.span())
        })?;
        if !pending.is_empty() {
            return Err(SqlError::unsupported(format!(
                "a subquery in {} is not supported",
                clause.noun()
            )));
        }
        let column = bound.columns().next();
        if let Some(column) = column {
            let serial = self.level()?.serial;
            let is_own = self
                .columns
                .get(column.0 as usize)
                .is_some_and(|info| info.level == serial);
            let error = if is_own {
                SqlError::new(
                    SqlState::INVALID_COLUMN_REFERENCE,
                    format!("argument of {} must not contain variables", clause.noun()),
                )
            } else {
                SqlError::unsupported(format!(
                    "{} that names a column of the query around is not supported",
                    clause.noun()
                ))
            };
            return Err(self.at(error, expr.span()));
        }
        Ok(bound)
    }

    /// Binds the ORDER BY of a SELECT: expressions that are not in the select list are added to it
    /// as junk.
    pub(crate) fn bind_sort(
        &mut self,
        order_by: &[OrderByExpr],
        items: &mut Vec<Item>,
        clause: Clause,
    ) -> Result<Vec<SortItem>, SqlError> {
        let mut sort = Vec::with_capacity(order_by.len());
        for key in order_by {
            let item = self.sort_item(&key.expr, items, clause)?;
            if let Some(ty) = items.get(item).and_then(|item| item.operand.ty) {
                check_order(&ty).map_err(|error| self.at(error, key.expr.span()))?;
            }
            if key.with_fill.is_some() {
                return Err(SqlError::unsupported("WITH FILL is not supported"));
            }
            let (descending, nulls_first) = directions(key);
            // A repeated expression has no effect on the order.
            if !sort.iter().any(|known: &SortItem| known.item == item) {
                sort.push(SortItem {
                    item,
                    descending,
                    nulls_first,
                    span: key.expr.span(),
                });
            }
        }
        Ok(sort)
    }

    /// The position in the select list of an expression of ORDER BY or DISTINCT ON.
    pub(crate) fn sort_item(
        &mut self,
        expr: &AstExpr,
        items: &mut Vec<Item>,
        clause: Clause,
    ) -> Result<usize, SqlError> {
        let place = match self.listed(expr, items, clause)? {
            Some(place) => place,
            None => {
                let saved = std::mem::replace(&mut self.level()?.clause, clause);
                let operand = self.expr(expr)?;
                self.level()?.clause = saved;
                let same = |item: &Item| item.operand.ty == operand.ty && item.operand.expr == operand.expr;
                let volatile = self.is_volatile(&operand.expr);
                match items.iter().position(same) {
                    Some(place) if !volatile => place,
                    _ => {
                        items.push(Item {
                            name: "?column?".to_owned(),
                            operand,
                            origin: None,
                            junk: true,
                        });
                        items.len() - 1
                    }
                }
            }
        };
        if let Some(item) = items.get_mut(place) {
            self.settle_item(item)?;
        }
        Ok(place)
    }

    /// Finds an output column by name or number.
    pub(crate) fn listed(
        &mut self,
        expr: &AstExpr,
        items: &[Item],
        clause: Clause,
    ) -> Result<Option<usize>, SqlError> {
        match crate::expr::unnested(expr) {
            AstExpr::Identifier(ident) => {
                let name = fold(ident);
                let mut found: Option<usize> = None;
                for (place, item) in items.iter().enumerate() {
                    if item.junk || item.name != name {
                        continue;
                    }
                    match found.and_then(|found| items.get(found)) {
                        None => found = Some(place),
                        Some(other) if other.operand.expr == item.operand.expr => {}
                        Some(_) => {
                            let error = SqlError::new(
                                SqlState::AMBIGUOUS_COLUMN,
                                format!("{} \"{name}\" is ambiguous", clause.noun()),
                            );
                            return Err(self.at(error, ident.span));
                        }
                    }
                }
                Ok(found)
            }
            AstExpr::Value(value) => {
                if matches!(value.value, AstValue::Placeholder(_)) {
                    return Ok(None);
                }
                let AstValue::Number(digits, _) = &value.value else {
                    let error = syntax_error(format!("non-integer constant in {}", clause.noun()));
                    return Err(self.at(error, value.span));
                };
                let Ok(number) = digits.parse::<i32>() else {
                    let error = syntax_error(format!("non-integer constant in {}", clause.noun()));
                    return Err(self.at(error, value.span));
                };
                self.numbered(number, items, clause, value.span).map(Some)
            }
            AstExpr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => match expr.as_ref() {
                AstExpr::Value(value) => match &value.value {
                    AstValue::Number(digits, _) => match digits.parse::<i32>() {
                        Ok(number) => self.numbered(-number, items, clause, value.span).map(Some),
                        Err(_) => {
                            let error = syntax_error(format!("non-integer constant in {}", clause.noun()));
                            Err(self.at(error, value.span))
                        }
                    },
                    _ => Ok(None),
                },
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn numbered(&self, number: i32, items: &[Item], clause: Clause, span: Span) -> Result<usize, SqlError> {
        let place = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        let place = place.filter(|place| items.get(*place).is_some_and(|item| !item.junk));
        place.ok_or_else(|| {
            let error = SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!("{} position {number} is not in select list", clause.noun()),
            );
            self.at(error, span)
        })
    }

    /// Binds ORDER BY and LIMIT after a set operation or VALUES.
    pub(crate) fn bind_tail(&mut self, rows: Rows, tail: &Tail<'_>, resolve: bool) -> Result<Rows, SqlError> {
        let mut rows = rows;
        if tail.is_empty() {
            return Ok(rows);
        }
        if resolve {
            rows = self.settle_rows(rows)?;
        }
        let mut keys: Vec<SortKey> = Vec::new();
        self.push_level();
        for key in tail.order_by {
            let column = self.output_column(&key.expr, &rows)?;
            check_order(&column.ty()).map_err(|error| self.at(error, key.expr.span()))?;
            let (descending, nulls_first) = directions(key);
            if !keys.iter().any(|known| known.expr == column) {
                keys.push(SortKey {
                    expr: column,
                    descending,
                    nulls_first,
                });
            }
        }
        let limits = self.bind_limits(tail)?;
        self.pop_level()?;
        rows.relation = limits.put_over(sorted(rows.relation, keys.clone()), keys)?;
        Ok(rows)
    }

    fn output_column(&mut self, expr: &AstExpr, rows: &Rows) -> Result<Expr, SqlError> {
        let items: Vec<Item> = rows
            .columns
            .iter()
            .map(|column| Item {
                name: column.name.clone(),
                operand: crate::parameters::Operand::typed(Expr::column(column.id, column.ty)),
                origin: None,
                junk: false,
            })
            .collect();
        let place = self.listed(expr, &items, Clause::OrderBy)?;
        if let Some(item) = place.and_then(|place| items.into_iter().nth(place)) {
            return Ok(item.operand.expr);
        }
        if let AstExpr::Identifier(ident) = expr {
            let error = crate::names::undefined_column(&format!("\"{}\"", fold(ident)));
            return Err(self.at(error, ident.span));
        }
        let error = SqlError::unsupported("invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
            .detail("Only result column names can be used, not expressions or functions.")
            .hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.");
        Err(self.at(error, expr.span()))
    }

    /// Whether evaluations may return different values.
    pub(crate) fn is_volatile(&self, expr: &Expr) -> bool {
        expr.nodes().iter().any(|node| match node.op {
            Op::Call(entry) => entry.volatility == weft_expression::Volatility::Volatile,
            _ => false,
        })
    }
}

/// DESC and NULLS FIRST of a sort key.
pub(crate) fn directions(key: &OrderByExpr) -> (bool, bool) {
    let descending = key.options.asc == Some(false);
    (descending, key.options.nulls_first.unwrap_or(descending))
}
