//! Subtrees without columns become constants.
//!
//! A subtree whose value cannot be computed stays as it is: the error is raised only if a row asks for the
//! value.

use weft_types::{SqlType, ValueRef};

use super::apply::apply;
use crate::category::element_of;
use crate::context::Context;
use crate::table::Volatility;
use crate::tree::{Expr, Node, Op};

/// Whether a conversion looks at the session's time zone.
fn is_zoned(from: &SqlType, to: &SqlType) -> bool {
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
}

/// How long the value of a node lasts, its arguments apart.
#[must_use]
pub fn volatility(node: &Node) -> Volatility {
    match &node.op {
        Op::Call(entry) => entry.volatility,
        Op::Parameter(_) => Volatility::Stable,
        Op::Cast { from, .. } if is_zoned(from, &node.ty) => Volatility::Stable,
        _ => Volatility::Immutable,
    }
}

/// How long the value of an expression lasts over one row.
#[must_use]
pub fn volatility_of(expr: &Expr) -> Volatility {
    let of_nodes = expr.nodes().iter().map(volatility);
    of_nodes.max().unwrap_or(Volatility::Immutable)
}

/// The expression with constants in place of subtrees that need no row: those whose values last as long as
/// `lasting` says or longer. With [`Volatility::Stable`] the result holds for one execution: parameters are
/// put in place.
#[must_use]
pub fn fold(expr: &Expr, context: &Context<'_>, lasting: Volatility) -> Expr {
    let mut nodes: Vec<Node> = Vec::with_capacity(expr.nodes().len());
    for node in expr.nodes() {
        let arity = node.arity as usize;
        let start = nodes.len().saturating_sub(arity);
        let arguments = nodes.get(start..).unwrap_or(&[]);
        let constants: Option<Vec<ValueRef<'_>>> = arguments
            .iter()
            .map(|argument| match &argument.op {
                Op::Constant(value) => Some(value.as_ref()),
                _ => None,
            })
            .collect();
        let row_decides = matches!(
            node.op,
            Op::Column(_) | Op::CaseOperand | Op::Constant(_) | Op::Row
        );
        let value = match constants {
            // Arguments that are constants are one node each, so that these are the arguments.
            Some(constants)
                if !row_decides
                    && constants.len() == arity
                    && volatility(node) <= lasting.min(Volatility::Stable) =>
            {
                apply(context, &node.op, &node.ty, &constants).ok()
            }
            _ => None,
        };
        match value {
            Some(value) => {
                nodes.truncate(start);
                nodes.push(Node {
                    op: Op::Constant(value),
                    ty: node.ty,
                    arity: 0,
                    size: 1,
                });
            }
            None => {
                let size = 1 + sizes(&nodes, arity);
                nodes.push(Node { size, ..node.clone() });
            }
        }
    }
    Expr::from_nodes(nodes)
}

/// Nodes of the last `arity` expressions.
fn sizes(nodes: &[Node], arity: usize) -> u32 {
    let mut end = nodes.len();
    for _ in 0..arity {
        let size = end
            .checked_sub(1)
            .and_then(|at| nodes.get(at))
            .map_or(0, |node| node.size);
        end -= size as usize;
    }
    (nodes.len() - end) as u32
}
