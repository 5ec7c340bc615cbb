//! Iterative traversal of relations: their parts, and the columns that they name and make.

use std::collections::{HashMap, HashSet};

use super::window;
use weft_binder::relation::{
    AggregateCall, Apply, FrameBound, Query, Recursive, Relation, SharedBody, SortKey, WindowCall,
};
use weft_expression::{Arg, ColumnId, Entry, Expr, Op, Volatility};
use weft_types::SqlType;

/// Counts of the names in a query.
#[derive(Debug, Default)]
pub struct Survey {
    /// How often each column is named.
    pub uses: HashMap<ColumnId, u32>,
    /// How often each shared relation is named.
    pub shared: Vec<u32>,
    /// The greatest column id.
    pub greatest: u32,
}

/// Counts what a query names.
#[must_use]
pub fn survey(query: &Query) -> Survey {
    let mut survey = Survey {
        shared: vec![0; query.shared.len()],
        ..Survey::default()
    };
    let mut see = |relation: &Relation| {
        visit(relation, &mut |part| {
            for expr in &part.exprs {
                for id in expr.columns() {
                    *survey.uses.entry(id).or_default() += 1;
                    survey.greatest = survey.greatest.max(id.0);
                }
            }
            for id in &part.named {
                *survey.uses.entry(*id).or_default() += 1;
                survey.greatest = survey.greatest.max(id.0);
            }
            for id in &part.made {
                survey.greatest = survey.greatest.max(id.0);
            }
            if let Some(number) = part.shared
                && let Some(count) = survey.shared.get_mut(number)
            {
                *count += 1;
            }
            true
        });
    };
    see(&query.relation);
    for shared in &query.shared {
        match &shared.body {
            SharedBody::Plain(relation) => see(relation),
            SharedBody::Recursive { start, term, .. } => {
                see(start);
                see(term);
            }
        }
    }
    for shared in &query.shared {
        if let SharedBody::Recursive { columns, .. } = &shared.body {
            for (a, b) in columns {
                survey.greatest = survey.greatest.max(a.0).max(b.0);
            }
        }
        for (id, _) in &shared.columns {
            survey.greatest = survey.greatest.max(id.0);
        }
    }
    for output in &query.output {
        *survey.uses.entry(output.column).or_default() += 1;
        survey.greatest = survey.greatest.max(output.column.0);
    }
    survey
}

/// Whether a relation names one of the columns.
#[must_use]
pub fn names_any(relation: &Relation, columns: &[ColumnId]) -> bool {
    let columns: HashSet<ColumnId> = columns.iter().copied().collect();
    names_one_of(relation, &columns)
}

/// Whether a relation names one of the columns.
#[must_use]
pub fn names_one_of(relation: &Relation, columns: &HashSet<ColumnId>) -> bool {
    if columns.is_empty() {
        return false;
    }
    let mut found = false;
    visit(relation, &mut |part| {
        found = part.exprs.iter().any(|expr| expr_names(expr, columns));
        !found
    });
    found
}

/// Whether an expression names one of the columns.
#[must_use]
pub fn expr_names(expr: &Expr, columns: &HashSet<ColumnId>) -> bool {
    expr.columns().any(|id| columns.contains(&id))
}

/// The columns among `columns` that a relation names, in the order of `columns`.
#[must_use]
pub fn named_of(relation: &Relation, columns: &[ColumnId]) -> Vec<ColumnId> {
    let mut named = HashSet::new();
    visit(relation, &mut |part| {
        named.extend(part.exprs.iter().flat_map(|expr| expr.columns()));
        true
    });
    columns.iter().copied().filter(|id| named.contains(id)).collect()
}

/// Whether an expression can fail, or is volatile.
#[must_use]
pub fn is_fallible(expr: &Expr) -> bool {
    let nodes = expr.nodes();
    nodes.iter().enumerate().any(|(at, node)| match &node.op {
        Op::Call(entry) => {
            entry.fallible && !(is_like(entry.name) && at > 0 && is_good_pattern(&nodes[at - 1].op))
        }
        Op::Cast { from, .. } => cast_can_fail(from, &node.ty),
        Op::Subscript | Op::Array => true,
        _ => false,
    })
}

fn is_like(name: &str) -> bool {
    matches!(name, "~~" | "!~~" | "~~*" | "!~~*")
}

/// Whether a pattern of LIKE is constant and cannot end with its escape character.
fn is_good_pattern(pattern: &Op) -> bool {
    matches!(pattern, Op::Constant(weft_types::Value::Text(text)) if !text.ends_with('\\'))
}

/// Whether a cast can fail: it cannot if every value of the source type is a value of the target type.
fn cast_can_fail(from: &SqlType, to: &SqlType) -> bool {
    use SqlType as T;
    !matches!(
        (from, to),
        (T::Bool, T::Bool)
            | (
                T::Int2,
                T::Int2 | T::Int4 | T::Int8 | T::Float4 | T::Float8 | T::Numeric(None)
            )
            | (
                T::Int4,
                T::Int4 | T::Int8 | T::Float4 | T::Float8 | T::Numeric(None)
            )
            | (T::Int8, T::Int8 | T::Float4 | T::Float8 | T::Numeric(None))
            | (T::Float4, T::Float4 | T::Float8)
            | (T::Float8, T::Float8)
            | (T::Numeric(_), T::Numeric(None))
            | (_, T::Text)
            | (T::Date, T::Date)
    )
}

/// Whether an expression without columns may have a different value in another execution of the same query.
#[must_use]
pub fn varies(expr: &Expr) -> bool {
    expr.nodes().iter().any(|node| match &node.op {
        Op::Parameter(_) => true,
        Op::Call(entry) => entry.volatility != Volatility::Immutable || sees_zone(entry),
        // Casts to and from text depend on the session's time zone, and names of catalog objects on its
        // catalog.
        Op::Cast { from, .. } => !(from.is_number() && node.ty.is_number()),
        _ => false,
    })
}

/// Functions that PostgreSQL declares immutable may nevertheless depend on the session's time zone.
fn sees_zone(entry: &Entry) -> bool {
    let zoned = |arg: &Arg| matches!(arg, Arg::Is(SqlType::TimestampTz) | Arg::Any | Arg::AnyElement);
    entry.arguments.iter().any(zoned)
}

/// Whether an expression may have a different value at each evaluation.
#[must_use]
pub fn is_volatile(expr: &Expr) -> bool {
    expr.nodes().iter().any(|node| match &node.op {
        Op::Call(entry) => entry.volatility == Volatility::Volatile,
        _ => false,
    })
}

/// One node of a relation.
#[derive(Default)]
pub struct Part<'r> {
    /// Its expressions; frame bounds are last.
    pub exprs: Vec<&'r Expr>,
    /// The number of frame bounds.
    pub bounds: usize,
    /// The condition of a filter or an inner join: if it is never true, the node has no rows.
    pub condition: Option<&'r Expr>,
    /// Columns that it names outside of expressions.
    pub named: Vec<ColumnId>,
    /// Columns that it makes.
    pub made: Vec<ColumnId>,
    /// Columns that it computes by expressions with a known type, and their types.
    pub types: Vec<(ColumnId, SqlType)>,
    /// The shared relation that it names.
    pub shared: Option<usize>,
    inputs: Vec<&'r Relation>,
}

/// Calls `each` with every node until it returns false.
pub fn visit<'r>(relation: &'r Relation, each: &mut dyn FnMut(&Part<'r>) -> bool) {
    let mut stack = vec![relation];
    while let Some(relation) = stack.pop() {
        let part = part(relation);
        if !each(&part) {
            return;
        }
        stack.extend(part.inputs);
    }
}

fn part(relation: &Relation) -> Part<'_> {
    let mut part = Part::default();
    match relation {
        Relation::One
        | Relation::Values { .. }
        | Relation::Scan(_)
        | Relation::Given { .. }
        | Relation::System { .. }
        | Relation::Shared { .. }
        | Relation::Working { .. } => leaf_part(relation, &mut part),
        Relation::Recursive(recursive) => recursive_part(recursive, &mut part),
        Relation::Functions {
            input,
            calls,
            ordinality,
            ..
        } => {
            part.inputs.push(input);
            for call in calls {
                part.exprs.extend(&call.arguments);
                part.made.extend(call.columns.iter().map(|(id, _)| *id));
            }
            part.made.extend(*ordinality);
        }
        Relation::Project { input, items } => {
            part.inputs.push(input);
            part.exprs.extend(items.iter().map(|(_, expr)| expr));
            part.made.extend(items.iter().map(|(id, _)| *id));
            part.types.extend(items.iter().map(|(id, expr)| (*id, expr.ty())));
        }
        Relation::Filter { input, predicate } => {
            part.inputs.push(input);
            part.exprs.push(predicate);
            part.condition = Some(predicate);
        }
        Relation::Join { left, right, on, .. } => {
            part.inputs.extend([left.as_ref(), right.as_ref()]);
            part.exprs.extend(on);
        }
        Relation::Apply {
            input,
            subquery,
            kind,
        } => {
            part.inputs.extend([input.as_ref(), subquery.as_ref()]);
            apply_part(kind, &mut part);
        }
        Relation::Aggregate {
            input,
            groups,
            grouping,
            calls,
            ..
        } => {
            part.inputs.push(input);
            part.exprs.extend(groups.iter().map(|(_, expr)| expr));
            part.made.extend(groups.iter().map(|(id, _)| *id));
            part.made.extend(grouping.iter().map(|(id, _)| *id));
            calls.iter().for_each(|call| aggregate_part(call, &mut part));
        }
        Relation::Window { input, calls } => {
            part.inputs.push(input);
            calls.iter().for_each(|call| window_part(call, &mut part));
            let expressions = part.exprs.len();
            part.exprs.extend(calls.iter().flat_map(frame_bounds));
            part.bounds = part.exprs.len() - expressions;
        }
        Relation::Distinct { input, on } => {
            part.inputs.push(input);
            part.named.extend(on.iter().flatten());
        }
        Relation::Sort { input, keys } => {
            part.inputs.push(input);
            part.exprs.extend(keys.iter().map(|key| &key.expr));
        }
        Relation::Limit {
            input,
            count,
            offset,
            ties,
        } => {
            part.inputs.push(input);
            part.exprs.extend(count);
            part.exprs.extend(offset);
            part.exprs.extend(ties.iter().flatten().map(|key| &key.expr));
        }
        Relation::Set { inputs, columns, .. } => {
            part.inputs.extend(inputs);
            part.types.extend(columns.iter().map(|(id, ty, _)| (*id, *ty)));
            for (id, _, from) in columns {
                part.made.push(*id);
                part.named.extend(from);
            }
        }
    }
    part
}

fn recursive_part<'r>(recursive: &'r Recursive, part: &mut Part<'r>) {
    part.inputs.extend([&recursive.start, &recursive.term]);
    for ((id, ty), (start, term)) in recursive.columns.iter().zip(&recursive.sources) {
        part.made.push(*id);
        part.types.push((*id, *ty));
        part.named.extend([*start, *term]);
    }
}

/// The part of a relation without inputs.
fn leaf_part<'r>(relation: &'r Relation, part: &mut Part<'r>) {
    match relation {
        Relation::Values { columns, rows } => {
            part.made.extend(columns.iter().map(|(id, _)| *id));
            part.types.extend(columns.iter().copied());
            part.exprs.extend(rows.iter().flatten());
        }
        Relation::Scan(scan) => {
            part.made.extend(scan.columns.iter().map(|(_, id, _)| *id));
            part.types
                .extend(scan.columns.iter().map(|(_, id, ty)| (*id, *ty)));
            if let Some((handle, bytes)) = scan.hidden {
                part.made.extend([handle, bytes]);
            }
        }
        Relation::Given { columns, .. } => part.made.extend(columns.iter().map(|(id, _)| *id)),
        Relation::System { columns, .. } => part.made.extend(columns.iter().map(|(_, id, _)| *id)),
        Relation::Shared { number, columns } => {
            part.shared = Some(*number);
            part.named.extend(columns.iter().map(|(from, _, _)| *from));
            part.made.extend(columns.iter().map(|(_, id, _)| *id));
        }
        Relation::Working { columns, outer, .. } => {
            part.made.extend(columns.iter().map(|(_, id, _)| *id));
            part.exprs.extend(outer);
        }
        _ => {}
    }
}

fn apply_part<'r>(kind: &'r Apply, part: &mut Part<'r>) {
    match kind {
        Apply::Lateral { on, .. } => part.exprs.extend(on),
        Apply::Scalar { output, value, .. } | Apply::Array { output, value, .. } => {
            part.made.push(*output);
            part.named.push(*value);
        }
        Apply::Row { columns } => {
            for (output, value, _) in columns {
                part.made.push(*output);
                part.named.push(*value);
            }
        }
        Apply::Exists { output } => part.made.push(*output),
        Apply::Quantified { output, test, .. } => {
            part.made.push(*output);
            part.exprs.push(test);
        }
    }
}

fn window_part<'r>(call: &'r WindowCall, part: &mut Part<'r>) {
    let keys = |keys: &'r [SortKey]| keys.iter().map(|key| &key.expr);
    part.exprs.extend(&call.arguments);
    part.exprs.extend(&call.filter);
    part.exprs.extend(&call.partition);
    part.exprs.extend(keys(&call.order));
    part.made.push(call.output);
}

fn aggregate_part<'r>(call: &'r AggregateCall, part: &mut Part<'r>) {
    part.exprs.extend(&call.arguments);
    part.exprs.extend(call.order.iter().map(|key| &key.expr));
    part.exprs.extend(&call.filter);
    part.made.push(call.output);
}

fn frame_bounds(call: &WindowCall) -> impl Iterator<Item = &Expr> {
    let bounds = [&call.frame.start, &call.frame.end];
    bounds.into_iter().filter_map(|bound| match bound {
        FrameBound::Preceding(expr) | FrameBound::Following(expr) => Some(expr),
        _ => None,
    })
}

/// The columns of a relation's rows.
#[must_use]
pub fn columns_made(relation: &Relation) -> Vec<ColumnId> {
    let mut made = Vec::new();
    let mut stack = vec![relation];
    while let Some(relation) = stack.pop() {
        match relation {
            Relation::Filter { input, .. }
            | Relation::Distinct { input, .. }
            | Relation::Sort { input, .. }
            | Relation::Limit { input, .. } => stack.push(input),
            Relation::Join { left, right, .. } => stack.extend([right.as_ref(), left.as_ref()]),
            Relation::Apply {
                input,
                subquery,
                kind,
            } => {
                if matches!(kind, Apply::Lateral { .. }) {
                    stack.push(subquery);
                } else {
                    made.extend(part(relation).made);
                }
                stack.push(input);
            }
            Relation::Functions { input, .. } | Relation::Window { input, .. } => {
                made.extend(part(relation).made);
                stack.push(input);
            }
            _ => made.extend(part(relation).made),
        }
    }
    made
}

/// Substitutes expressions for columns.
#[must_use]
pub fn substituted(expr: &Expr, by: &HashMap<ColumnId, Expr>) -> Expr {
    let mut stack: Vec<Expr> = Vec::new();
    for node in expr.nodes() {
        let value = match &node.op {
            Op::Column(id) if by.contains_key(id) => by.get(id).cloned(),
            _ => None,
        };
        let value = value.unwrap_or_else(|| {
            let arguments = stack.split_off(stack.len().saturating_sub(node.arity as usize));
            Expr::new(node.op.clone(), node.ty, arguments)
        });
        stack.push(value);
    }
    stack.pop().unwrap_or_else(|| expr.clone())
}

/// The size of a query.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// The depth of its relations; each window is a level.
    pub depth: usize,
    /// The total number of windows.
    pub windows: usize,
    /// The number of relations, plus one for every sixteen nodes of their expressions.
    pub nodes: usize,
    /// The nodes of the largest expression, whose depth may be the same.
    pub expression: usize,
}

/// Measures a query.
#[must_use]
pub fn size(query: &Query) -> Size {
    let mut size = Size::default();
    let mut stack = vec![(&query.relation, 1)];
    for shared in &query.shared {
        match &shared.body {
            SharedBody::Plain(relation) => stack.push((relation, 1)),
            SharedBody::Recursive { start, term, .. } => stack.extend([(start, 1), (term, 1)]),
        }
    }
    while let Some((relation, depth)) = stack.pop() {
        let part = part(relation);
        let mut exprs = 0_usize;
        for nodes in part.exprs.iter().map(|expr| expr.nodes().len()) {
            exprs = exprs.saturating_add(nodes);
            size.expression = size.expression.max(nodes);
        }
        let levels = match relation {
            Relation::Window { calls, .. } => {
                let windows = window::count(calls);
                size.windows = size.windows.saturating_add(windows);
                windows.max(1)
            }
            _ => 1,
        };
        if let Relation::Aggregate {
            sets, groups, calls, ..
        } = relation
        {
            exprs = exprs.saturating_add(sets.len().saturating_mul(groups.len() + calls.len()));
        }
        let depth = depth + levels - 1;
        size.depth = size.depth.max(depth);
        size.nodes = size.nodes.saturating_add(levels + exprs / 16);
        stack.extend(part.inputs.into_iter().map(|input| (input, depth + 1)));
    }
    size
}
