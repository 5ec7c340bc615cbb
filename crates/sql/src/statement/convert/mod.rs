//! Conversion of a typed expression to the [`Scalar`] from which programs are compiled.
//!
//! Types are already determined; this module only maps nodes of the tree to operations of programs. A node
//! without such an operation is rejected ([`Refusal::General`]).
//!
//! The operand of CASE, the value before IN and the operands of IS DISTINCT FROM are duplicated at each
//! use; the resulting size and depth of an expression are bounded.

mod aggregates;
mod calls;
mod casts;

use weft_binder::relation;
use weft_expression::{ColumnId, CompareOp, Expr, Node, Op, is_strict};
use weft_store::Catalog;
use weft_types::{SqlType, TimeZone, Value};

use super::bind::{BindResult, Named, Refusal, Scope, named};
use super::scalar::Scalar;

pub(crate) use aggregates::{AggregateCall, AggregateKind};

/// Maximum depth of an expression that is converted.
const DEPTH_MAX: usize = 64;
/// Maximum size in nodes.
const NODES_MAX: usize = 10_000;
/// Longest IN list that becomes a chain of comparisons.
const IN_LIST_MAX: usize = 16;

/// Converts expressions of one scope.
pub(super) struct Conversion<'a> {
    pub(super) catalog: &'a Catalog,
    /// The session's time zone.
    pub(super) zone: TimeZone,
    pub(super) scope: &'a Scope<'a>,
    /// The number of parameters before `$1`.
    pub(super) before: usize,
    /// The values of `excluded.column`, in column order.
    pub(super) excluded: Option<&'a [Scalar]>,
    /// The bound aggregate calls.
    pub(super) calls: &'a [relation::AggregateCall],
    /// The converted ones; `None` where aggregates are not allowed.
    pub(super) aggregates: Option<&'a mut Vec<AggregateCall>>,
    /// The number of nodes made so far.
    pub(super) nodes: usize,
}

/// The context of a node's conversion.
#[derive(Clone, Copy)]
struct Context<'s> {
    /// The operand of the innermost enclosing CASE.
    operand: Option<&'s Scalar>,
    depth: usize,
}

impl<'s> Context<'s> {
    /// The context of the arguments of a node that becomes `by` nested ones.
    fn deeper(self, by: usize) -> Context<'s> {
        Context {
            depth: self.depth + by,
            ..self
        }
    }
}

impl Conversion<'_> {
    /// Converts the whole expression.
    pub(super) fn convert(&mut self, expr: &Expr) -> BindResult<Scalar> {
        // Such an operation is NULL without evaluating its other arguments, which programs evaluate first.
        // A procedure has no alternative.
        if self.scope.variables.is_none() && has_null_of_several(expr) {
            return Err(Refusal::General);
        }
        let context = Context {
            operand: None,
            depth: 0,
        };
        self.node(expr, expr.nodes().len() - 1, context)
    }

    fn spend(&mut self, nodes: usize) -> BindResult<()> {
        self.nodes += nodes;
        match self.nodes > NODES_MAX {
            true => Err(Refusal::General),
            false => Ok(()),
        }
    }

    fn node(&mut self, expr: &Expr, at: usize, context: Context<'_>) -> BindResult<Scalar> {
        let node = expr.nodes().get(at).ok_or(Refusal::General)?;
        self.spend(1)?;
        if context.depth >= DEPTH_MAX {
            return Err(Refusal::General);
        }
        match &node.op {
            Op::Constant(value) => Ok(Scalar::Constant(value.clone())),
            Op::Parameter(number) => {
                let number = u16::try_from(self.before + *number as usize);
                number.map(Scalar::Input).map_err(|_| Refusal::General)
            }
            Op::Column(id) => self.column(*id),
            Op::CaseOperand => self.copy(context.operand.ok_or(Refusal::General)?),
            Op::Case { operand } => self.case(expr, at, *operand, context),
            Op::Call(entry) => self.call(expr, at, entry, context),
            Op::Cast { from, explicit } => {
                let inner = self.node(expr, at - 1, context.deeper(1))?;
                self.cast(inner, from, &node.ty, *explicit)
            }
            Op::Compare(op) => {
                let [left, right] = self.pair(expr, at, context)?;
                Ok(Scalar::Compare(*op, Box::new(left), Box::new(right)))
            }
            Op::Not => Ok(not(self.node(expr, at - 1, context.deeper(1))?)),
            Op::IsNull => {
                let inner = self.node(expr, at - 1, context.deeper(1))?;
                Ok(Scalar::IsNull(Box::new(inner)))
            }
            Op::IsTruth(truth) => self.truth(expr, at, *truth, context),
            Op::IsDistinct => {
                let [left, right] = self.pair(expr, at, context)?;
                self.same(left, right).map(not)
            }
            Op::NullIf => {
                let [value, condition] = self.pair(expr, at, context)?;
                Ok(Scalar::Case {
                    arms: vec![(condition, Scalar::Constant(Value::Null))],
                    otherwise: Box::new(value),
                })
            }
            _ => self.operation(expr, at, context),
        }
    }

    /// The two arguments of a node.
    fn pair(&mut self, expr: &Expr, at: usize, context: Context<'_>) -> BindResult<[Scalar; 2]> {
        let right = at.checked_sub(1).ok_or(Refusal::General)?;
        let size = expr.nodes().get(right).map_or(0, |node| node.size as usize);
        let left = right.checked_sub(size).ok_or(Refusal::General)?;
        let context = context.deeper(1);
        Ok([self.node(expr, left, context)?, self.node(expr, right, context)?])
    }

    /// IS TRUE and IS FALSE, never NULL.
    fn truth(&mut self, expr: &Expr, at: usize, truth: bool, context: Context<'_>) -> BindResult<Scalar> {
        let inner = self.node(expr, at - 1, context.deeper(1))?;
        let is_known = not(Scalar::IsNull(Box::new(self.copy(&inner)?)));
        let value = match truth {
            true => inner,
            false => not(inner),
        };
        Ok(Scalar::And(Box::new(value), Box::new(is_known)))
    }

    fn column(&mut self, id: ColumnId) -> BindResult<Scalar> {
        match named(id) {
            Named::Column(number) => Ok(Scalar::Column(number)),
            Named::Excluded(number) => {
                let value = self.excluded.and_then(|row| row.get(number));
                self.copy(value.ok_or(Refusal::General)?)
            }
            Named::Value(place) => self.scope.value_of(place).ok_or(Refusal::General),
            Named::Computed => self.aggregate(id),
        }
    }

    /// Copies a scalar that is used elsewhere, too.
    fn copy(&mut self, scalar: &Scalar) -> BindResult<Scalar> {
        let mut size = 0;
        scalar.visit(&mut |_| size += 1);
        self.spend(size)?;
        Ok(scalar.clone())
    }

    fn arguments(&mut self, expr: &Expr, at: usize, context: Context<'_>) -> BindResult<Vec<Scalar>> {
        let roots = expr.argument_roots(at);
        let mut arguments = Vec::with_capacity(roots.len());
        for root in roots {
            arguments.push(self.node(expr, root, context.deeper(1))?);
        }
        Ok(arguments)
    }

    fn operation(&mut self, expr: &Expr, at: usize, context: Context<'_>) -> BindResult<Scalar> {
        let node = expr.nodes().get(at).ok_or(Refusal::General)?;
        let context = match node.op {
            // These become chains of binary operations.
            Op::And | Op::Or | Op::InList { .. } | Op::CompareRows(_) => {
                context.deeper((node.arity as usize).saturating_sub(2))
            }
            _ => context,
        };
        let arguments = self.arguments(expr, at, context)?;
        Ok(match &node.op {
            Op::And => chain(arguments, Scalar::And)?,
            Op::Or => chain(arguments, Scalar::Or)?,
            Op::Coalesce => Scalar::Coalesce(alike(expr, at, arguments)?),
            Op::Greatest | Op::Least => Scalar::Extreme {
                greatest: node.op == Op::Greatest,
                items: alike(expr, at, arguments)?,
            },
            Op::InList { negated } => {
                let listed = self.listed(arguments)?;
                match negated {
                    true => not(listed),
                    false => listed,
                }
            }
            Op::CompareRows(op) => self.rows_compared(*op, arguments)?,
            _ => return Err(Refusal::General),
        })
    }

    /// `(a, b) > (x, y)` as `a > x OR (a = x AND b > y)`: the left row, then the right one.
    fn rows_compared(&mut self, op: CompareOp, mut left: Vec<Scalar>) -> BindResult<Scalar> {
        if left.iter().all(|side| matches!(side, Scalar::Constant(..))) {
            // Unlike other constants, it is not computed at planning.
            return Err(Refusal::General);
        }
        let right = left.split_off(left.len() / 2);
        let strict = match op {
            CompareOp::Le => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Gt,
            other => other,
        };
        let mut whole: Option<Scalar> = None;
        for (left, right) in left.into_iter().zip(right).rev() {
            let compare = |op, left, right| Scalar::Compare(op, Box::new(left), Box::new(right));
            whole = Some(match whole {
                None => compare(op, left, right),
                Some(rest) => {
                    if left.is_volatile() || right.is_volatile() {
                        return Err(Refusal::General);
                    }
                    let equal = compare(CompareOp::Eq, self.copy(&left)?, self.copy(&right)?);
                    let then = Scalar::And(Box::new(equal), Box::new(rest));
                    Scalar::Or(Box::new(compare(strict, left, right)), Box::new(then))
                }
            });
        }
        whole.ok_or(Refusal::General)
    }

    /// Equal, or both NULL; never NULL.
    fn same(&mut self, left: Scalar, right: Scalar) -> BindResult<Scalar> {
        if left.is_volatile() || right.is_volatile() {
            return Err(Refusal::General);
        }
        let both_null = Scalar::And(
            Box::new(Scalar::IsNull(Box::new(self.copy(&left)?))),
            Box::new(Scalar::IsNull(Box::new(self.copy(&right)?))),
        );
        let equal = Scalar::Compare(CompareOp::Eq, Box::new(left), Box::new(right));
        Ok(Scalar::Coalesce(vec![equal, both_null]))
    }

    /// `value IN (items)`, the value first.
    fn listed(&mut self, arguments: Vec<Scalar>) -> BindResult<Scalar> {
        let mut arguments = arguments.into_iter();
        let value = arguments.next().ok_or(Refusal::General)?;
        let count = arguments.len();
        if count > IN_LIST_MAX || (count > 1 && value.is_volatile()) {
            return Err(Refusal::General);
        }
        let mut tests = Vec::with_capacity(count);
        for item in arguments {
            let value = Box::new(self.copy(&value)?);
            tests.push(Scalar::Compare(CompareOp::Eq, value, Box::new(item)));
        }
        chain(tests, Scalar::Or)
    }

    fn case(
        &mut self,
        expr: &Expr,
        at: usize,
        has_operand: bool,
        context: Context<'_>,
    ) -> BindResult<Scalar> {
        let mut parts = expr.argument_roots(at).into_iter();
        let context = context.deeper(1);
        let operand = match has_operand {
            true => {
                let root = parts.next().ok_or(Refusal::General)?;
                Some(self.node(expr, root, context)?)
            }
            false => None,
        };
        if operand.as_ref().is_some_and(Scalar::is_volatile) {
            return Err(Refusal::General);
        }
        let context = Context {
            operand: operand.as_ref().or(context.operand),
            ..context
        };
        let mut values = Vec::with_capacity(parts.len());
        let mut conditions = Vec::with_capacity(parts.len() / 2);
        while let Some(part) = parts.next() {
            let Some(result) = parts.next() else {
                values.push(self.node(expr, part, context)?);
                break;
            };
            conditions.push(self.node(expr, part, context)?);
            values.push(self.node(expr, result, context)?);
        }
        // A CASE with one arm that is always taken only keeps a value for several uses.
        if let [Scalar::Constant(Value::Bool(true))] = conditions.as_slice() {
            return values.into_iter().next().ok_or(Refusal::General);
        }
        same_char(expr, at)?;
        let otherwise = values.pop().ok_or(Refusal::General)?;
        Ok(Scalar::Case {
            arms: conditions.into_iter().zip(values).collect(),
            otherwise: Box::new(otherwise),
        })
    }
}

/// Whether a strict operation on several arguments has a NULL constant among them, in an expression that
/// may fail.
fn has_null_of_several(expr: &Expr) -> bool {
    let nodes = expr.nodes();
    let may_fail = nodes.iter().enumerate().any(|(at, node)| match &node.op {
        Op::Call(entry) => entry.fallible,
        Op::Cast { .. } => !matches!(
            at.checked_sub(1).and_then(|at| nodes.get(at)),
            Some(Node {
                op: Op::Constant(_),
                ..
            })
        ),
        _ => false,
    });
    if !may_fail {
        return false;
    }
    let mut is_null = vec![false; expr.nodes().len()];
    for (at, node) in expr.nodes().iter().enumerate() {
        let null = match &node.op {
            Op::Constant(Value::Null) => true,
            op if node.arity > 0 && is_strict(op) => {
                let roots = expr.argument_roots(at);
                roots.into_iter().any(|root| is_null.get(root) == Some(&true))
            }
            _ => false,
        };
        if null && node.arity > 1 {
            return true;
        }
        if let Some(slot) = is_null.get_mut(at) {
            *slot = null;
        }
    }
    false
}

fn not(scalar: Scalar) -> Scalar {
    Scalar::Not(Box::new(scalar))
}

/// `a op b op c`, left-associative.
fn chain(items: Vec<Scalar>, join: fn(Box<Scalar>, Box<Scalar>) -> Scalar) -> BindResult<Scalar> {
    let joined = items
        .into_iter()
        .reduce(|before, item| join(Box::new(before), Box::new(item)));
    joined.ok_or(Refusal::General)
}

/// Values of one type. Those of `char(n)` must have one length, by which programs store them.
fn alike(expr: &Expr, at: usize, arguments: Vec<Scalar>) -> BindResult<Vec<Scalar>> {
    same_char(expr, at)?;
    Ok(arguments)
}

fn same_char(expr: &Expr, at: usize) -> BindResult<()> {
    let types = |root: usize| expr.nodes().get(root).map(|node| node.ty);
    let whole = types(at);
    let is_char = matches!(whole, Some(SqlType::Char(_)));
    match is_char
        && expr
            .argument_roots(at)
            .into_iter()
            .any(|root| matches!(types(root), Some(SqlType::Char(_))) && types(root) != whole)
    {
        true => Err(Refusal::General),
        false => Ok(()),
    }
}
