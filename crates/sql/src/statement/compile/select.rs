//! SELECT from syntax trees to [`PointSelect`]: by a key, by a range whose index has the required order,
//! over all rows of either (aggregates), or by a range that is sorted afterwards ([`Finish`]).

use std::sync::Arc;

use sqlparser::ast::{self, Expr, LimitClause, OrderByKind, Query};
use weft_store::TableDef;
use weft_types::{SqlError, SqlState, SqlType, Value};

use super::super::bind::Refusal;
use super::super::convert::{AggregateCall, AggregateKind};
use super::super::finish::{Finish, RowCount, SortKey};
use super::super::names;
use super::super::plan::OutputColumn;
use super::super::scalar::Scalar;
use super::super::show::show;
use super::analyse::{Analysed, Analyser};
use super::path::{self, Choice, Order, conjuncts, folded};
use super::point::{OutputItem, Path, PointSelect};
use super::shape::{row_locks, single_select, single_table};

/// Largest LIMIT without other bounds that is compiled to a program.
const LIMIT_MAX: i64 = 4_096;

/// One item of ORDER BY.
struct OrderTerm {
    /// As written, for EXPLAIN.
    text: String,
    scalar: Scalar,
    ty: SqlType,
    descending: bool,
    nulls_first: bool,
}

impl Analyser<'_> {
    pub(super) fn select(&mut self, query: &Query) -> Analysed<PointSelect> {
        let select = single_select(query).ok_or(Refusal::General)?;
        let distinct = select.distinct.is_some();
        let [from] = select.from.as_slice() else {
            return Err(Refusal::General);
        };
        let (name, alias) = single_table(from)?;
        let table = self.find(name)?;
        let alias = alias.unwrap_or_else(|| table.name.clone());
        let mut aggregates = Vec::new();
        let output = self.output(&select.projection, &table, &alias, Some(&mut aggregates))?;
        weft_syntax::refuse_wide(output.len())?;
        let condition = self.condition(select.selection.as_ref(), &table, &alias)?;
        let conjuncts = conjuncts(condition);
        let (limit, offset) = self.limits(query)?;
        let locks = row_locks(query)?;
        if !aggregates.is_empty() {
            // A column next to an aggregate is an error, which the query engine reports.
            let grouped = output.iter().any(|item| item.scalar.has_column());
            if grouped || distinct || locks || query.order_by.is_some() || self.variables.is_some() {
                return Err(Refusal::General);
            }
            if let Some(choice) = extremes_path(&table, &conjuncts, &aggregates) {
                return Ok(PointSelect {
                    aggregates,
                    extremes: true,
                    ..one_row(table, choice, output, limit, offset)?
                });
            }
            let choice = path::choose(&table, conjuncts, None, true).ok_or(Refusal::General)?;
            if !is_bounded(&choice.path) {
                return Err(Refusal::General);
            }
            return Ok(PointSelect {
                aggregates,
                ..one_row(table, choice, output, limit, offset)?
            });
        }
        let terms = self.order_terms(query, &table, &alias, &output)?;
        if !distinct && let Some(order) = index_order(&terms) {
            let several = self.variables.is_none();
            let choice = path::choose(&table, conjuncts.clone(), order.as_ref(), several);
            if let Some(choice) = choice
                && serves(&choice, limit.as_ref(), offset.as_ref(), locks)
            {
                return Ok(PointSelect {
                    limit,
                    offset,
                    locks,
                    ..found(table, choice, output)
                });
            }
        }
        if locks || self.variables.is_some() {
            return Err(Refusal::General);
        }
        let choice = path::choose(&table, conjuncts, None, true).ok_or(Refusal::General)?;
        let sliced = limit.is_some() || offset.is_some();
        let finished = match &choice.path {
            Path::Key { .. } => return one_row(table, choice, output, limit, offset),
            Path::Keys { .. } => distinct || !terms.is_empty() || sliced,
            Path::Range { .. } => is_bounded(&choice.path) && (distinct || !terms.is_empty()),
        };
        match finished {
            true => {
                let mut output = output;
                let finish = finish(&mut output, &terms, distinct, limit, offset)?;
                Ok(PointSelect {
                    finish: Some(Arc::new(finish)),
                    ..found(table, choice, output)
                })
            }
            false => Err(Refusal::General),
        }
    }

    /// ORDER BY: each item by output position, by output name, or an expression, in PostgreSQL's order.
    fn order_terms(
        &mut self,
        query: &Query,
        table: &TableDef,
        alias: &str,
        output: &[OutputItem],
    ) -> Analysed<Vec<OrderTerm>> {
        let Some(order_by) = &query.order_by else {
            return Ok(Vec::new());
        };
        let OrderByKind::Expressions(list) = &order_by.kind else {
            return Err(Refusal::General);
        };
        let mut terms = Vec::with_capacity(list.len());
        for item in list {
            if item.with_fill.is_some() {
                return Err(Refusal::General);
            }
            let (scalar, ty) = self.order_item(&item.expr, table, alias, output)?;
            let descending = item.options.asc == Some(false);
            terms.push(OrderTerm {
                text: item.expr.to_string(),
                scalar,
                ty,
                descending,
                nulls_first: item.options.nulls_first.unwrap_or(descending),
            });
        }
        Ok(terms)
    }

    fn order_item(
        &mut self,
        expr: &Expr,
        table: &TableDef,
        alias: &str,
        output: &[OutputItem],
    ) -> Analysed<(Scalar, SqlType)> {
        let of_output = |item: &OutputItem| (item.scalar.clone(), item.column.ty);
        match expr {
            Expr::Value(value) => {
                let ast::Value::Number(digits, false) = &value.value else {
                    return Err(Refusal::General);
                };
                let position: usize = digits.parse().map_err(|_| Refusal::General)?;
                let item = position.checked_sub(1).and_then(|position| output.get(position));
                item.map(of_output).ok_or(Refusal::General)
            }
            Expr::Identifier(ident) => {
                let name = names::ident(ident);
                let mut named = output.iter().filter(|item| item.column.name == name);
                match (named.next(), named.next()) {
                    (Some(item), None) => Ok(of_output(item)),
                    (None, _) => {
                        let number = table.column_index(&name).ok_or(Refusal::General)?;
                        let column = table.columns.get(number).ok_or(Refusal::General)?;
                        Ok((Scalar::Column(number as u16), column.ty))
                    }
                    _ => Err(Refusal::General),
                }
            }
            other => {
                let (scalar, ty) = self.over(table, alias, |binder| {
                    let operand = binder.bind(other)?;
                    binder.settle(operand)
                })?;
                match scalar.is_volatile() || !scalar.has_column() {
                    true => Err(Refusal::General),
                    false => Ok((scalar, ty)),
                }
            }
        }
    }

    fn limits(&mut self, query: &Query) -> Analysed<(Option<Scalar>, Option<Scalar>)> {
        let (limit, offset) = match (&query.limit_clause, &query.fetch) {
            (None, None) => (None, None),
            (
                Some(LimitClause::LimitOffset {
                    limit,
                    offset,
                    limit_by,
                }),
                None,
            ) if limit_by.is_empty() => (limit.as_ref(), offset.as_ref().map(|offset| &offset.value)),
            (None, Some(fetch)) if !fetch.with_ties && !fetch.percent => (fetch.quantity.as_ref(), None),
            _ => return Err(Refusal::General),
        };
        let mut bound = [None, None];
        for (slot, (expr, what)) in bound.iter_mut().zip([(limit, "LIMIT"), (offset, "OFFSET")]) {
            let Some(expr) = expr else { continue };
            let scalar = self.over_nothing(|binder| {
                let operand = binder.bind(expr)?;
                binder.coerce(operand, SqlType::Int8).map(folded)
            })?;
            if let Scalar::Constant(value) = &scalar
                && value.as_i64().is_some_and(|number| number < 0)
            {
                let state = if what == "LIMIT" {
                    SqlState::INVALID_ROW_COUNT_IN_LIMIT
                } else {
                    SqlState::INVALID_ROW_COUNT_IN_OFFSET
                };
                return Err(SqlError::new(state, format!("{what} must not be negative")).into());
            }
            *slot = Some(scalar);
        }
        let [limit, offset] = bound;
        Ok((limit, offset))
    }
}

/// Selects all rows of a path.
fn found(table: Arc<TableDef>, choice: Choice, output: Vec<OutputItem>) -> PointSelect {
    PointSelect {
        table,
        path: choice.path,
        residual: choice.residual,
        output,
        limit: None,
        offset: None,
        aggregates: Vec::new(),
        extremes: false,
        finish: None,
        locks: false,
    }
}

/// Selects at most one row, which needs no order.
fn one_row(
    table: Arc<TableDef>,
    choice: Choice,
    mut output: Vec<OutputItem>,
    limit: Option<Scalar>,
    offset: Option<Scalar>,
) -> Analysed<PointSelect> {
    if gives_one_row(limit.as_ref(), offset.as_ref()) {
        return Ok(found(table, choice, output));
    }
    let finish = finish(&mut output, &[], false, limit, offset)?;
    Ok(PointSelect {
        finish: Some(Arc::new(finish)),
        ..found(table, choice, output)
    })
}

/// Whether LIMIT and OFFSET keep a single row.
fn gives_one_row(limit: Option<&Scalar>, offset: Option<&Scalar>) -> bool {
    let some = match limit {
        None | Some(Scalar::Constant(Value::Null)) => true,
        Some(Scalar::Constant(value)) => value.as_i64().is_some_and(|limit| limit > 0),
        Some(_) => false,
    };
    some && offset.is_none()
}

/// The path from whose ends `min` and `max` of one column take the first row.
fn extremes_path(table: &TableDef, conjuncts: &[Scalar], calls: &[AggregateCall]) -> Option<Choice> {
    let mut column = None;
    for call in calls {
        let Some(Scalar::Column(argument)) = call.argument else {
            return None;
        };
        let is_extreme = matches!(call.kind, AggregateKind::Min | AggregateKind::Max);
        if !is_extreme || column.is_some_and(|column| column != argument) {
            return None;
        }
        column = Some(argument);
    }
    let column = usize::from(column?);
    // If equal values can look different, all of them must be read.
    let plain = matches!(
        table.columns.get(column)?.ty,
        SqlType::Int2
            | SqlType::Int4
            | SqlType::Int8
            | SqlType::Date
            | SqlType::Timestamp
            | SqlType::TimestampTz
    );
    let order = Order {
        columns: vec![column],
        descending: false,
    };
    let choice = path::choose(table, conjuncts.to_vec(), Some(&order), false).filter(|_| plain)?;
    let ends_first = matches!(&choice.path, Path::Range { .. })
        && (choice.residual.is_empty() || is_bounded(&choice.path));
    ends_first.then_some(choice)
}

/// A key, a prefix of an index, or a range with both bounds.
fn is_bounded(path: &Path) -> bool {
    match path {
        Path::Key { .. } | Path::Keys { .. } => true,
        Path::Range {
            prefix, low, high, ..
        } => !prefix.is_empty() || (low.is_some() && high.is_some()),
    }
}

/// Whether a path reads few rows, and exactly those that LIMIT and OFFSET select.
fn serves(choice: &Choice, limit: Option<&Scalar>, offset: Option<&Scalar>, locks: bool) -> bool {
    match &choice.path {
        Path::Key { .. } => return gives_one_row(limit, offset),
        Path::Keys { index, .. } => {
            return limit.is_none() && offset.is_none() && (index.primary || !locks);
        }
        Path::Range { .. } => {}
    }
    let small_limit = match limit {
        Some(Scalar::Constant(value)) => value.as_i64().is_some_and(|limit| limit <= LIMIT_MAX),
        other => other.is_some(),
    };
    let bounded = is_bounded(&choice.path);
    // A filtered scan of unbounded length is not a point statement.
    let searches = !choice.residual.is_empty() && !bounded;
    !locks && !searches && (bounded || small_limit)
}

/// An order that an index may have; `None` if none has it. The inner `None` is any order.
fn index_order(terms: &[OrderTerm]) -> Option<Option<Order>> {
    let Some(first) = terms.first() else {
        return Some(None);
    };
    let mut order = Order {
        columns: Vec::with_capacity(terms.len()),
        descending: first.descending,
    };
    for term in terms {
        let Scalar::Column(column) = term.scalar else {
            return None;
        };
        if term.descending != order.descending || term.nulls_first != term.descending {
            return None;
        }
        order.columns.push(usize::from(column));
    }
    Some(Some(order))
}

/// The finishing step; appends the additional columns that it needs to the output.
fn finish(
    output: &mut Vec<OutputItem>,
    terms: &[OrderTerm],
    distinct: bool,
    limit: Option<Scalar>,
    offset: Option<Scalar>,
) -> Analysed<Finish> {
    let types: Vec<SqlType> = output.iter().map(|item| item.column.ty).collect();
    let mut further = Vec::new();
    let mut keys: Vec<SortKey> = Vec::with_capacity(terms.len());
    for term in terms {
        let known = output.iter().position(|item| item.scalar == term.scalar);
        let column = match known {
            Some(column) => column,
            None if distinct => return Err(not_selected(&term.scalar)),
            None => {
                further.push(term.text.clone());
                further_column(output, term.scalar.clone(), term.ty)
            }
        };
        if keys.iter().all(|key| key.column != column) {
            keys.push(SortKey {
                column,
                descending: term.descending,
                nulls_first: term.nulls_first,
            });
        }
    }
    let mut count = |count: Option<Scalar>| match count? {
        Scalar::Constant(value) => value
            .as_i64()
            .and_then(|count| u64::try_from(count).ok())
            .map(RowCount::Constant),
        other => {
            further.push(show(&other, &|number| format!("${}", number + 1)));
            Some(RowCount::Column(further_column(output, other, SqlType::Int8)))
        }
    };
    let (limit, offset) = (count(limit), count(offset));
    let finish = Finish::new(keys, distinct, &types).slice(limit, offset);
    Ok(match output.len() == types.len() {
        true => finish,
        false => finish.without_further_columns(&types, further),
    })
}

/// Adds a column to the program's rows; returns its number.
fn further_column(output: &mut Vec<OutputItem>, scalar: Scalar, ty: SqlType) -> usize {
    output.push(OutputItem {
        scalar,
        column: OutputColumn::computed("", ty),
    });
    output.len() - 1
}

/// The error for SELECT DISTINCT ordered by an expression that is not selected. If expressions may be equal
/// in different spellings, the query engine decides.
fn not_selected(scalar: &Scalar) -> Refusal {
    match scalar {
        Scalar::Column(_) => SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
        )
        .into(),
        _ => Refusal::General,
    }
}
