//! Looking through relations without recursion: their parts, the columns that they name and make.

use std::collections::{HashMap, HashSet};

use super::window;
use weft_binder::relation::{
    AggregateCall, Apply, FrameBound, Query, Relation, SharedBody, SortKey, WindowCall,
};
use weft_expression::{Arg, ColumnId, Entry, Expr, Op, Volatility};
use weft_types::SqlType;

/// What a query names.
#[derive(Debug, Default)]
pub struct Survey {
    /// How often each column is named.
    pub uses: HashMap<ColumnId, u32>,
    /// How often each shared relation is named.
    pub shared: Vec<u32>,
    /// The greatest id of all columns.
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

/// Whether an expression can fail or, evaluated twice, differ.
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

/// Whether a cast can fail: only those between types of which one holds all values of the other cannot.
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

/// Whether an expression without columns may have another value in another execution of the same query.
#[must_use]
pub fn varies(expr: &Expr) -> bool {
    expr.nodes().iter().any(|node| match &node.op {
        Op::Parameter(_) => true,
        Op::Call(entry) => entry.volatility != Volatility::Immutable || sees_zone(entry),
        // Casts to and from texts know the session's zone, and names of its catalog.
        Op::Cast { from, .. } => !(from.is_number() && node.ty.is_number()),
        _ => false,
    })
}

/// What PostgreSQL calls immutable may know the session's zone all the same.
fn sees_zone(entry: &Entry) -> bool {
    let zoned = |arg: &Arg| matches!(arg, Arg::Is(SqlType::TimestampTz) | Arg::Any | Arg::AnyElement);
    entry.arguments.iter().any(zoned)
}

/// Whether an expression has another value with every call.
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
    /// Its expressions; ends of frames are the last.
    pub exprs: Vec<&'r Expr>,
    /// How many of them are ends of frames.
    pub bounds: usize,
    /// Without this its rows are none: the condition of a filter or of an inner join.
    pub condition: Option<&'r Expr>,
    /// Columns that it names outside expressions.
    pub named: Vec<ColumnId>,
    /// Columns that it makes.
    pub made: Vec<ColumnId>,
    /// Types of those that it makes by expressions, where they say the type.
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

/// A relation without inputs.
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
        Relation::Given { columns } => part.made.extend(columns.iter().map(|(id, _)| *id)),
        Relation::System { columns, .. } => part.made.extend(columns.iter().map(|(_, id, _)| *id)),
        Relation::Shared { number, columns } => {
            part.shared = Some(*number);
            part.named.extend(columns.iter().map(|(from, _, _)| *from));
            part.made.extend(columns.iter().map(|(_, id, _)| *id));
        }
        Relation::Working { columns, .. } => part.made.extend(columns.iter().map(|(_, id, _)| *id)),
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

/// An expression with columns replaced by expressions.
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

/// How large a query is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Size {
    /// Levels of its relations; each window is one.
    pub depth: usize,
    /// Windows, all together.
    pub windows: usize,
    /// Relations and nodes of their expressions, sixteen of these for one.
    pub nodes: usize,
    /// Nodes of the largest expression, which may be as deep.
    pub expression: usize,
}

/// How large a query is.
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
        let depth = depth + levels - 1;
        size.depth = size.depth.max(depth);
        size.nodes = size.nodes.saturating_add(levels + exprs / 16);
        stack.extend(part.inputs.into_iter().map(|input| (input, depth + 1)));
    }
    size
}
