//! Constant folding, with the same results as PostgreSQL's planner.
//!
//! Subexpressions that need no row are evaluated before any row is read, and fail then: `1 / 0` is an error
//! over an empty table, but not after `CASE WHEN false`. A strict function of a constant NULL is NULL,
//! whatever its other arguments would do. Values that are only stable within a statement (clock, time zone,
//! dates as text) are left for run time.
//!
//! Nodes are visited in post-order. Once an argument decides an AND, OR, COALESCE or CASE, the remaining
//! arguments are skipped unvisited.

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value, ValueRef};

use super::apply::{apply, parameter};
use crate::category::{element_of, is_relabel};
use crate::context::Context;
use crate::table::Volatility;
use crate::tree::{Expr, Node, Op};

/// Whether a conversion depends on the session: its time zone, its date style, or names in its catalog.
fn depends_on_session(from: &SqlType, to: &SqlType) -> bool {
    let zoned = |ty: &SqlType| {
        matches!(
            element_of(ty).unwrap_or(*ty),
            SqlType::TimestampTz
                | SqlType::Regclass
                | SqlType::Regtype
                | SqlType::Regproc
                | SqlType::Regnamespace
                | SqlType::Record
        )
    };
    zoned(from) != zoned(to)
        || from.is_text() && is_read_by_style(to)
        || to.is_text() && is_written_by_style(from)
}

/// Types whose input format depends on session settings in PostgreSQL.
fn is_read_by_style(ty: &SqlType) -> bool {
    matches!(
        ty,
        SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::Interval | SqlType::Array(_)
    )
}

/// Types whose output format depends on session settings in PostgreSQL.
fn is_written_by_style(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::Array(_))
}

/// The volatility of a node, its arguments aside.
#[must_use]
pub fn volatility(node: &Node) -> Volatility {
    match &node.op {
        Op::Call(entry) => entry.volatility,
        Op::Parameter(_) => Volatility::Stable,
        Op::Cast { from, .. } if !is_relabel(from, &node.ty) && depends_on_session(from, &node.ty) => {
            Volatility::Stable
        }
        _ => Volatility::Immutable,
    }
}

/// The volatility of an expression over one row.
#[must_use]
pub fn volatility_of(expr: &Expr) -> Volatility {
    let of_nodes = expr.nodes().iter().map(volatility);
    of_nodes.max().unwrap_or(Volatility::Immutable)
}

/// A folded expression.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The expression, with parameters replaced by their values.
    pub expr: Expr,
    /// Whether the original, evaluated over a row, could evaluate something that this one omits.
    pub omits_parts: bool,
}

/// Replaces subexpressions that need no row with constants.
///
/// # Errors
/// Errors of subexpressions that need no row and that every row would evaluate.
pub fn fold(expr: &Expr, context: &Context<'_>) -> Result<Folded, SqlError> {
    let count = expr.nodes().len();
    let mut folding = Folding {
        expr,
        positions: vec![None; count],
        states: vec![State::default(); count],
        cases: cases_of_operands(expr),
        out: Vec::with_capacity(count),
        starts: Vec::new(),
        omits_parts: false,
        pace: Pace::default(),
    };
    folding.assign_positions();
    let mut at = 0;
    while let Some(node) = expr.nodes().get(at) {
        folding.finish(at, node, context)?;
        at = folding.next(at);
    }
    Ok(Folded {
        expr: Expr::from_nodes(folding.out),
        omits_parts: folding.omits_parts,
    })
}

/// An argument's position: which argument of which node.
#[derive(Clone, Copy)]
struct Position {
    parent: usize,
    number: usize,
    /// The root of the argument after it.
    next: usize,
}

/// What is known so far of an AND, OR, COALESCE or CASE while its arguments are visited.
#[derive(Clone, Debug, Default)]
struct State {
    /// The number of arguments kept.
    kept: usize,
    /// The argument after which the rest is irrelevant.
    last: Option<usize>,
    /// The operand of a CASE, if it is a constant.
    operand: Option<Value>,
    /// Whether an argument decided it: its value is a known constant.
    decided: bool,
}

struct Folding<'e> {
    expr: &'e Expr,
    /// For the root of each argument of AND, OR, COALESCE and CASE.
    positions: Vec<Option<Position>>,
    /// For each such parent node.
    states: Vec<State>,
    /// The CASE that each operand reference belongs to.
    cases: Vec<usize>,
    out: Vec<Node>,
    /// The start in `out` of each finished value that no node has consumed yet.
    starts: Vec<usize>,
    omits_parts: bool,
    pace: Pace,
}

/// The CASE to which each [`Op::CaseOperand`] refers.
fn cases_of_operands(expr: &Expr) -> Vec<usize> {
    let nodes = expr.nodes();
    let mut cases = vec![0; nodes.len()];
    // The enclosing CASEs: the last node of the operand, and the CASE.
    let mut around: Vec<(usize, usize)> = Vec::new();
    for (at, node) in nodes.iter().enumerate().rev() {
        while around.last().is_some_and(|(operand, _)| at <= *operand) {
            around.pop();
        }
        match node.op {
            Op::Case { operand: true } => {
                if let Some(operand) = expr.argument_roots(at).first() {
                    around.push((*operand, at));
                }
            }
            Op::CaseOperand => {
                if let (Some(position), Some((_, case))) = (cases.get_mut(at), around.last()) {
                    *position = *case;
                }
            }
            _ => {}
        }
    }
    cases
}

impl Folding<'_> {
    fn assign_positions(&mut self) {
        for (parent, node) in self.expr.nodes().iter().enumerate() {
            if !matches!(node.op, Op::And | Op::Or | Op::Coalesce | Op::Case { .. }) {
                continue;
            }
            let roots = self.expr.argument_roots(parent);
            let behind = roots.iter().skip(1).copied().chain([parent]);
            for (number, (root, next)) in roots.iter().zip(behind).enumerate() {
                if let Some(position) = self.positions.get_mut(*root) {
                    *position = Some(Position { parent, number, next });
                }
            }
        }
    }

    /// The finished value `back` positions before the last one, if it is a constant.
    fn constant(&self, back: usize) -> Option<&Value> {
        let position = self.starts.len().checked_sub(back + 1)?;
        let start = *self.starts.get(position)?;
        let end = self.starts.get(position + 1).copied().unwrap_or(self.out.len());
        match self.out.get(start..end)? {
            [
                Node {
                    op: Op::Constant(value),
                    ..
                },
            ] => Some(value),
            _ => None,
        }
    }

    /// Drops the last `count` finished values.
    fn drop_values(&mut self, count: usize) {
        let position = self.starts.len().saturating_sub(count);
        if let Some(start) = self.starts.get(position).copied() {
            self.out.truncate(start);
        }
        self.starts.truncate(position);
    }

    /// Combines the last `arity` values into one.
    fn push(&mut self, op: Op, ty: SqlType, arity: usize) {
        let position = self.starts.len().saturating_sub(arity);
        let start = self.starts.get(position).copied().unwrap_or(self.out.len());
        self.starts.truncate(position);
        self.starts.push(start);
        self.out.push(Node {
            op,
            ty,
            arity: arity as u32,
            size: (self.out.len() - start) as u32 + 1,
        });
    }

    fn replace(&mut self, arity: usize, value: Value, ty: SqlType) {
        self.drop_values(arity);
        self.push(Op::Constant(value), ty, 0);
    }

    fn state(&mut self, at: usize) -> State {
        self.states.get_mut(at).map(std::mem::take).unwrap_or_default()
    }

    /// Folds a node whose arguments are finished.
    fn finish(&mut self, at: usize, node: &Node, context: &Context<'_>) -> Result<(), SqlError> {
        match &node.op {
            Op::Parameter(number) => {
                let value = parameter(context, *number)?.clone();
                self.push(Op::Constant(value), node.ty, 0);
            }
            Op::CaseOperand => {
                let case = self.cases.get(at).and_then(|case| self.states.get(*case));
                let op = match case.and_then(|state| state.operand.clone()) {
                    Some(value) => Op::Constant(value),
                    None => Op::CaseOperand,
                };
                self.push(op, node.ty, 0);
            }
            Op::And | Op::Or | Op::Coalesce => {
                let state = self.state(at);
                match state.kept {
                    _ if state.decided => {}
                    0 => {
                        let value = match node.op {
                            Op::And => Value::Bool(true),
                            Op::Or => Value::Bool(false),
                            _ => Value::Null,
                        };
                        self.push(Op::Constant(value), node.ty, 0);
                    }
                    1 => {}
                    // A constant that does not decide is NULL.
                    kept if (0..kept).all(|back| self.constant(back).is_some()) => {
                        self.replace(kept, Value::Null, node.ty);
                    }
                    kept => self.push(node.op.clone(), node.ty, kept),
                }
            }
            Op::Case { operand } => {
                let state = self.state(at);
                let operand = *operand && state.operand.is_none();
                self.case(operand, state.kept, node.ty);
            }
            _ => self.plain(node, context)?,
        }
        Ok(())
    }

    /// A CASE with `kept` operands, conditions and values left.
    fn case(&mut self, operand: bool, kept: usize, ty: SqlType) {
        if kept > 1 + usize::from(operand) {
            self.push(Op::Case { operand }, ty, kept);
        } else if operand && let [.., start, end] = self.starts[..] {
            // Only ELSE is left: the operand is dropped unless ELSE refers to it.
            match self.out.get(end..) {
                Some(
                    [
                        Node {
                            op: Op::CaseOperand, ..
                        },
                    ],
                ) => self.drop_values(1),
                Some(value) if value.iter().any(|node| node.op == Op::CaseOperand) => {
                    self.push(Op::Case { operand }, ty, kept);
                }
                _ => {
                    self.omits_parts |= end > start + 1;
                    self.out.drain(start..end);
                    self.starts.pop();
                }
            }
        }
    }

    /// An operation that evaluates all its arguments.
    fn plain(&mut self, node: &Node, context: &Context<'_>) -> Result<(), SqlError> {
        let arity = node.arity as usize;
        // PostgreSQL's planner does not fold row comparisons.
        if let Op::CompareRows(_) = node.op {
            self.push(node.op.clone(), node.ty, arity);
            return Ok(());
        }
        let constants = (0..arity).filter(|back| self.constant(*back).is_some()).count();
        let any_null = || (0..arity).any(|back| self.constant(back) == Some(&Value::Null));
        if constants > 0 && is_strict(&node.op) && any_null() {
            let nodes = self.out.len() - self.starts.get(self.starts.len() - arity).copied().unwrap_or(0);
            self.omits_parts |= constants < arity && nodes > arity;
            self.replace(arity, Value::Null, node.ty);
            return Ok(());
        }
        if let (Op::NullIf, Some(condition)) = (&node.op, self.constant(0)) {
            match condition {
                Value::Bool(true) => self.replace(arity, Value::Null, node.ty),
                _ => self.drop_values(1),
            }
            return Ok(());
        }
        let row_decides = matches!(node.op, Op::Column(_) | Op::Constant(_) | Op::Row);
        let zoned_literal = is_zoned_literal(node);
        if row_decides || constants < arity || volatility(node) > Volatility::Immutable && !zoned_literal {
            self.push(node.op.clone(), node.ty, arity);
            return Ok(());
        }
        self.pace.step(32)?;
        let arguments: Vec<ValueRef<'_>> = (0..arity)
            .rev()
            .filter_map(|back| self.constant(back).map(Value::as_ref))
            .collect();
        let value = match apply(context, &node.op, &node.ty, &arguments) {
            // It may be a cast of text instead of a literal; PostgreSQL reads that at run time.
            Err(_) if zoned_literal => {
                self.push(node.op.clone(), node.ty, arity);
                return Ok(());
            }
            value => value?,
        };
        self.replace(arity, value, node.ty);
        Ok(())
    }

    /// The node to visit after the finished one at `at`, skipping irrelevant ones.
    fn next(&mut self, at: usize) -> usize {
        let Some(position) = self.positions.get(at).copied().flatten() else {
            return at + 1;
        };
        let Position { parent, number, .. } = position;
        let Some(node) = self.expr.nodes().get(parent) else {
            return at + 1;
        };
        let constant = self.constant(0).cloned();
        let truth = match &constant {
            Some(Value::Bool(value)) => Some(*value),
            _ => None,
        };
        match node.op {
            Op::And | Op::Or => self.next_of_logic(at, parent, node.op == Op::Or, truth),
            Op::Coalesce => match constant {
                Some(Value::Null) => {
                    self.drop_values(1);
                    at + 1
                }
                constant => {
                    self.keep(parent);
                    if constant.is_some() { parent } else { at + 1 }
                }
            },
            Op::Case { operand: true } if number == 0 => {
                match constant {
                    Some(value) => {
                        self.drop_values(1);
                        if let Some(state) = self.states.get_mut(parent) {
                            state.operand = Some(value);
                        }
                    }
                    None => self.keep(parent),
                }
                at + 1
            }
            Op::Case { operand } => {
                let is_condition =
                    (number + usize::from(operand)).is_multiple_of(2) && number + 1 < node.arity as usize;
                if is_condition {
                    return self.next_of_condition(at, position, constant.is_some(), truth);
                }
                self.keep(parent);
                let last = self.states.get(parent).and_then(|state| state.last);
                if last == Some(number) { parent } else { at + 1 }
            }
            _ => at + 1,
        }
    }

    fn keep(&mut self, parent: usize) {
        if let Some(state) = self.states.get_mut(parent) {
            state.kept += 1;
        }
    }

    /// The next node after an argument of AND or OR.
    fn next_of_logic(&mut self, at: usize, parent: usize, decides: bool, truth: Option<bool>) -> usize {
        let Some(truth) = truth else {
            self.keep(parent);
            return at + 1;
        };
        if truth != decides {
            self.drop_values(1);
            return at + 1;
        }
        let kept = self.states.get(parent).map_or(0, |state| state.kept);
        self.omits_parts |= kept > 0;
        self.replace(kept + 1, Value::Bool(decides), SqlType::Bool);
        if let Some(state) = self.states.get_mut(parent) {
            state.decided = true;
        }
        parent
    }

    /// The next node after a condition of CASE.
    fn next_of_condition(
        &mut self,
        at: usize,
        position: Position,
        is_constant: bool,
        truth: Option<bool>,
    ) -> usize {
        if !is_constant {
            self.keep(position.parent);
            return at + 1;
        }
        self.drop_values(1);
        if truth == Some(true) {
            if let Some(state) = self.states.get_mut(position.parent) {
                state.last = Some(position.number + 1);
            }
            return at + 1;
        }
        // The value after it is never needed; a subquery whose result it uses need not be computed.
        let value = self.expr.nodes().get(at + 1..=position.next).unwrap_or_default();
        self.omits_parts |= value.iter().any(|node| matches!(node.op, Op::Column(_)));
        position.next + 1
    }
}

/// Whether this may be the literal `timestamptz '...'`: PostgreSQL reads it while parsing, here it is read
/// in the session's time zone.
fn is_zoned_literal(node: &Node) -> bool {
    matches!(&node.op, Op::Cast { from, .. } if from.is_text()) && matches!(node.ty, SqlType::TimestampTz)
}

/// Whether an operation is NULL if any argument is NULL.
#[must_use]
pub fn is_strict(op: &Op) -> bool {
    match op {
        Op::Call(entry) => entry.strict,
        Op::Cast { .. } | Op::Compare(_) | Op::Not => true,
        _ => false,
    }
}
