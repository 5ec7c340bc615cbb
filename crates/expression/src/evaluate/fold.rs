//! Constants in place of what needs no row, as PostgreSQL's planner puts them there.
//!
//! What can be told before a row is read is told then, and fails then: `1 / 0` is an error over an empty
//! table, but none behind `CASE WHEN false`. A strict function of a constant NULL is NULL, whatever its other
//! arguments would do. Values that last for a statement only (the clock, the zone, texts of dates) are left
//! to the rows.
//!
//! Nodes are taken in their order, arguments first. Behind an argument that decides an AND, an OR, a COALESCE
//! or a CASE the rest is left out without a look.

use weft_types::interrupt::Pace;
use weft_types::{SqlError, SqlType, Value, ValueRef};

use super::apply::{apply, parameter};
use crate::category::{element_of, is_relabel};
use crate::context::Context;
use crate::table::Volatility;
use crate::tree::{Expr, Node, Op};

/// Whether a conversion looks at the session's settings: its zone, its style of dates, the names in a
/// catalog.
fn looks_at_session(from: &SqlType, to: &SqlType) -> bool {
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

/// Types whose texts PostgreSQL reads by settings of the session.
fn is_read_by_style(ty: &SqlType) -> bool {
    matches!(
        ty,
        SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::Interval | SqlType::Array(_)
    )
}

/// Types whose texts PostgreSQL writes by settings of the session.
fn is_written_by_style(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Date | SqlType::Timestamp | SqlType::Array(_))
}

/// How long the value of a node lasts, its arguments apart.
#[must_use]
pub fn volatility(node: &Node) -> Volatility {
    match &node.op {
        Op::Call(entry) => entry.volatility,
        Op::Parameter(_) => Volatility::Stable,
        Op::Cast { from, .. } if !is_relabel(from, &node.ty) && looks_at_session(from, &node.ty) => {
            Volatility::Stable
        }
        _ => Volatility::Immutable,
    }
}

/// How long the value of an expression lasts over one row.
#[must_use]
pub fn volatility_of(expr: &Expr) -> Volatility {
    let of_nodes = expr.nodes().iter().map(volatility);
    of_nodes.max().unwrap_or(Volatility::Immutable)
}

/// An expression with constants in it.
#[derive(Clone, Debug)]
pub struct Folded {
    /// It, with the parameters' values in place.
    pub expr: Expr,
    /// The expression that it was made of, computed over a row, computes something that this one leaves out.
    pub leaves_out: bool,
}

/// The expression with constants in place of what needs no row.
///
/// # Errors
/// Those of its parts that need no row and that every row would ask for.
pub fn fold(expr: &Expr, context: &Context<'_>) -> Result<Folded, SqlError> {
    let count = expr.nodes().len();
    let mut folding = Folding {
        expr,
        places: vec![None; count],
        states: vec![State::default(); count],
        cases: cases_of_operands(expr),
        out: Vec::with_capacity(count),
        starts: Vec::new(),
        leaves_out: false,
        pace: Pace::default(),
    };
    folding.assign_places();
    let mut at = 0;
    while let Some(node) = expr.nodes().get(at) {
        folding.finish(at, node, context)?;
        at = folding.next(at);
    }
    Ok(Folded {
        expr: Expr::from_nodes(folding.out),
        leaves_out: folding.leaves_out,
    })
}

/// Which argument of which node.
#[derive(Clone, Copy)]
struct Place {
    parent: usize,
    number: usize,
    /// Where the argument behind it ends.
    next: usize,
}

/// What is known of an AND, OR, COALESCE or CASE whose arguments are on their way.
#[derive(Clone, Debug, Default)]
struct State {
    /// Arguments that stay.
    kept: usize,
    /// The argument behind which nothing counts.
    last: Option<usize>,
    /// The operand of a CASE, if it is a constant.
    operand: Option<Value>,
    /// Its value is known: a constant that an argument decided.
    decided: bool,
}

struct Folding<'e> {
    expr: &'e Expr,
    /// Of the last node of each argument of AND, OR, COALESCE and CASE.
    places: Vec<Option<Place>>,
    /// Of nodes that are such.
    states: Vec<State>,
    /// The CASE of each reference to an operand.
    cases: Vec<usize>,
    out: Vec<Node>,
    /// Where in `out` each finished value begins that nothing has taken yet.
    starts: Vec<usize>,
    leaves_out: bool,
    pace: Pace,
}

/// The CASE whose operand each [`Op::CaseOperand`] names.
fn cases_of_operands(expr: &Expr) -> Vec<usize> {
    let nodes = expr.nodes();
    let mut cases = vec![0; nodes.len()];
    // CASEs around the node: the last node of the operand and the CASE.
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
                if let (Some(place), Some((_, case))) = (cases.get_mut(at), around.last()) {
                    *place = *case;
                }
            }
            _ => {}
        }
    }
    cases
}

impl Folding<'_> {
    fn assign_places(&mut self) {
        for (parent, node) in self.expr.nodes().iter().enumerate() {
            if !matches!(node.op, Op::And | Op::Or | Op::Coalesce | Op::Case { .. }) {
                continue;
            }
            let roots = self.expr.argument_roots(parent);
            let behind = roots.iter().skip(1).copied().chain([parent]);
            for (number, (root, next)) in roots.iter().zip(behind).enumerate() {
                if let Some(place) = self.places.get_mut(*root) {
                    *place = Some(Place { parent, number, next });
                }
            }
        }
    }

    /// The constant that the last but `back` finished value is.
    fn constant(&self, back: usize) -> Option<&Value> {
        let place = self.starts.len().checked_sub(back + 1)?;
        let start = *self.starts.get(place)?;
        let end = self.starts.get(place + 1).copied().unwrap_or(self.out.len());
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

    /// Drops the last finished values.
    fn drop_values(&mut self, count: usize) {
        let place = self.starts.len().saturating_sub(count);
        if let Some(start) = self.starts.get(place).copied() {
            self.out.truncate(start);
        }
        self.starts.truncate(place);
    }

    /// Makes one value of the last `arity`.
    fn push(&mut self, op: Op, ty: SqlType, arity: usize) {
        let place = self.starts.len().saturating_sub(arity);
        let start = self.starts.get(place).copied().unwrap_or(self.out.len());
        self.starts.truncate(place);
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

    /// The value of a node whose arguments are finished.
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
                    // What does not decide and is constant is NULL.
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

    /// A CASE of so many operands, conditions and values.
    fn case(&mut self, operand: bool, kept: usize, ty: SqlType) {
        if kept > 1 + usize::from(operand) {
            self.push(Op::Case { operand }, ty, kept);
        } else if operand && let [.., start, end] = self.starts[..] {
            // Only ELSE is left: the operand goes, unless it is asked for there.
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
                    self.leaves_out |= end > start + 1;
                    self.out.drain(start..end);
                    self.starts.pop();
                }
            }
        }
    }

    /// An operation that looks at all its arguments.
    fn plain(&mut self, node: &Node, context: &Context<'_>) -> Result<(), SqlError> {
        let arity = node.arity as usize;
        // PostgreSQL's planner computes no comparison of rows.
        if let Op::CompareRows(_) = node.op {
            self.push(node.op.clone(), node.ty, arity);
            return Ok(());
        }
        let constants = (0..arity).filter(|back| self.constant(*back).is_some()).count();
        let any_null = || (0..arity).any(|back| self.constant(back) == Some(&Value::Null));
        if constants > 0 && is_strict(&node.op) && any_null() {
            let nodes = self.out.len() - self.starts.get(self.starts.len() - arity).copied().unwrap_or(0);
            self.leaves_out |= constants < arity && nodes > arity;
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
            // Perhaps it is no literal, but a text that PostgreSQL reads when it comes to it.
            Err(_) if zoned_literal => {
                self.push(node.op.clone(), node.ty, arity);
                return Ok(());
            }
            value => value?,
        };
        self.replace(arity, value, node.ty);
        Ok(())
    }

    /// The node after the one at `at`, which is finished: those that do not count are passed over.
    fn next(&mut self, at: usize) -> usize {
        let Some(place) = self.places.get(at).copied().flatten() else {
            return at + 1;
        };
        let Place { parent, number, .. } = place;
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
                    return self.next_of_condition(at, place, constant.is_some(), truth);
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

    /// Behind an argument of AND or OR.
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
        self.leaves_out |= kept > 0;
        self.replace(kept + 1, Value::Bool(decides), SqlType::Bool);
        if let Some(state) = self.states.get_mut(parent) {
            state.decided = true;
        }
        parent
    }

    /// Behind a condition of CASE.
    fn next_of_condition(
        &mut self,
        at: usize,
        place: Place,
        is_constant: bool,
        truth: Option<bool>,
    ) -> usize {
        if !is_constant {
            self.keep(place.parent);
            return at + 1;
        }
        self.drop_values(1);
        if truth == Some(true) {
            if let Some(state) = self.states.get_mut(place.parent) {
                state.last = Some(place.number + 1);
            }
            return at + 1;
        }
        // The value behind it is never asked for; a subquery's answer in it need not be computed.
        let value = self.expr.nodes().get(at + 1..=place.next).unwrap_or_default();
        self.leaves_out |= value.iter().any(|node| matches!(node.op, Op::Column(_)));
        place.next + 1
    }
}

/// Whether this may be the literal `timestamptz '...'`: PostgreSQL reads it when it parses the statement, the
/// session's zone is asked here.
fn is_zoned_literal(node: &Node) -> bool {
    matches!(&node.op, Op::Cast { from, .. } if from.is_text()) && matches!(node.ty, SqlType::TimestampTz)
}

/// Whether an operation is NULL as soon as an argument is.
#[must_use]
pub fn is_strict(op: &Op) -> bool {
    match op {
        Op::Call(entry) => entry.strict,
        Op::Cast { .. } | Op::Compare(_) | Op::Not => true,
        _ => false,
    }
}
