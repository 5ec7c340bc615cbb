//! Folds the expressions that PostgreSQL's planner computes before rows are read.
//!
//! A query's expressions are folded ([`weft_expression::fold`]) with the parameters of each execution.
//! Usually this only detects errors: a constant computed per row has the same value. If an expression
//! contains a part that would fail or have effects and that PostgreSQL eliminates, the query is planned from
//! folded expressions.

use weft_binder::relation::{Apply, Query, Relation, SharedBody};
use weft_expression::{ColumnId, Context, Expr, Op, fold};
use weft_types::{SqlError, SqlType, Value};

use crate::lower::walk::{self, Part};

/// Whether expressions contain parts that must not be evaluated for any row.
///
/// # Errors
/// Errors of parts that do not depend on a row.
pub(crate) fn omits_parts(query: &Query, context: &Context<'_>) -> Result<bool, SqlError> {
    let mut outcome = Ok(false);
    for relation in relations(query) {
        walk::visit(relation, &mut |part| {
            outcome = match (&outcome, omits_parts_of(part, context)) {
                (Ok(before), Ok(now)) => Ok(*before || now),
                (Ok(before), Err(error)) => unless_unused(query, part, context, error).map(|()| *before),
                (Err(_), _) => return false,
            };
            outcome.is_ok()
        });
    }
    outcome
}

/// Whether folding eliminates a part of an expression of this node, or its condition rejects every row.
fn omits_parts_of(part: &Part<'_>, context: &Context<'_>) -> Result<bool, SqlError> {
    let mut omits_parts = false;
    // Frame bounds are excluded: one that cannot be computed has a meaning of its own.
    for expr in part.exprs.iter().take(part.exprs.len() - part.bounds) {
        let is_condition = part
            .condition
            .is_some_and(|condition| std::ptr::eq(condition, *expr));
        if expr.as_constant().is_some() || !is_condition && expr.nodes().len() == 1 {
            continue;
        }
        let folded = fold(expr, context)?;
        omits_parts |= folded.omits_parts || is_condition && is_never_true(&folded.expr);
    }
    Ok(omits_parts)
}

/// The error of a node, unless only unused columns cause it: those are not computed.
fn unless_unused(
    query: &Query,
    part: &Part<'_>,
    context: &Context<'_>,
    error: SqlError,
) -> Result<(), SqlError> {
    let uses = walk::survey(query).uses;
    let is_unused = |id: &ColumnId| !uses.contains_key(id);
    if part.types.len() != part.exprs.len() || !part.types.iter().any(|(id, _)| is_unused(id)) {
        return Err(error);
    }
    for ((id, _), expr) in part.types.iter().zip(&part.exprs) {
        if !is_unused(id) {
            fold(expr, context)?;
        }
    }
    Ok(())
}

fn relations(query: &Query) -> impl Iterator<Item = &Relation> {
    let shared = query.shared.iter().flat_map(|shared| match &shared.body {
        SharedBody::Plain(relation) => [Some(relation), None],
        SharedBody::Recursive { start, term, .. } => [Some(start), Some(term)],
    });
    shared.flatten().chain([&query.relation])
}

/// The query with folded expressions. Expressions that fail are unchanged: they are unused, see
/// [`unless_unused`].
pub(crate) fn folded(query: &Query, context: &Context<'_>) -> Query {
    let mut query = query.clone();
    let mut stack = vec![&mut query.relation];
    for shared in &mut query.shared {
        match &mut shared.body {
            SharedBody::Plain(relation) => stack.push(relation),
            SharedBody::Recursive { start, term, .. } => stack.extend([start, term]),
        }
    }
    while let Some(relation) = stack.pop() {
        let is_filter = matches!(relation, Relation::Filter { .. });
        for expr in expressions(relation, &mut stack) {
            if let Ok(folded) = fold(expr, context) {
                *expr = folded.expr;
            }
            if is_filter && is_never_true(expr) {
                *expr = Expr::constant(Value::Bool(false), SqlType::Bool);
            }
        }
    }
    query
}

/// Whether a condition is false or NULL for every row. As in PostgreSQL, NULL counts as false among the
/// operands of AND and OR.
fn is_never_true(condition: &Expr) -> bool {
    let mut parts: Vec<bool> = Vec::new();
    for node in condition.nodes() {
        let below = parts.split_off(parts.len().saturating_sub(node.arity as usize));
        parts.push(match &node.op {
            Op::Constant(Value::Bool(false) | Value::Null) => true,
            Op::And => below.contains(&true),
            Op::Or => !below.contains(&false),
            _ => false,
        });
    }
    parts == [true]
}

/// The expressions of one relation except frame bounds; pushes its inputs onto the stack.
fn expressions<'r>(relation: &'r mut Relation, stack: &mut Vec<&'r mut Relation>) -> Vec<&'r mut Expr> {
    match relation {
        Relation::One
        | Relation::Scan(_)
        | Relation::Given { .. }
        | Relation::System { .. }
        | Relation::Shared { .. }
        | Relation::Working { .. } => Vec::new(),
        Relation::Recursive(recursive) => {
            stack.extend([&mut recursive.start, &mut recursive.term]);
            Vec::new()
        }
        Relation::Values { rows, .. } => rows.iter_mut().flatten().collect(),
        Relation::Functions { input, calls, .. } => {
            stack.push(input);
            calls.iter_mut().flat_map(|call| &mut call.arguments).collect()
        }
        Relation::Project { input, items } => {
            stack.push(input);
            items.iter_mut().map(|(_, expr)| expr).collect()
        }
        Relation::Filter { input, predicate } => {
            stack.push(input);
            vec![predicate]
        }
        Relation::Join { left, right, on, .. } => {
            stack.extend([left.as_mut(), right.as_mut()]);
            on.iter_mut().collect()
        }
        Relation::Apply {
            input,
            subquery,
            kind,
        } => {
            stack.extend([input.as_mut(), subquery.as_mut()]);
            match kind {
                Apply::Lateral { on, .. } => on.iter_mut().collect(),
                Apply::Quantified { test, .. } => vec![test],
                _ => Vec::new(),
            }
        }
        Relation::Aggregate {
            input, groups, calls, ..
        } => {
            stack.push(input);
            let mut all: Vec<&mut Expr> = groups.iter_mut().map(|(_, expr)| expr).collect();
            for call in calls {
                all.extend(&mut call.arguments);
                all.extend(call.order.iter_mut().map(|key| &mut key.expr));
                all.extend(&mut call.filter);
            }
            all
        }
        Relation::Window { input, calls } => {
            stack.push(input);
            let mut all: Vec<&mut Expr> = Vec::new();
            for call in calls {
                all.extend(&mut call.arguments);
                all.extend(&mut call.filter);
                all.extend(&mut call.partition);
                all.extend(call.order.iter_mut().map(|key| &mut key.expr));
            }
            all
        }
        Relation::Distinct { input, .. } => {
            stack.push(input);
            Vec::new()
        }
        Relation::Sort { input, keys } => {
            stack.push(input);
            keys.iter_mut().map(|key| &mut key.expr).collect()
        }
        Relation::Limit {
            input,
            count,
            offset,
            ties,
        } => {
            stack.push(input);
            let keys = ties.iter_mut().flatten().map(|key| &mut key.expr);
            count.iter_mut().chain(offset).chain(keys).collect()
        }
        Relation::Set { inputs, .. } => {
            stack.extend(inputs);
            Vec::new()
        }
    }
}
