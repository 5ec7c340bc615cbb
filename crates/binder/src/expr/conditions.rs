//! Conditions with their own syntax: IS, BETWEEN, LIKE.

use sqlparser::ast::{BinaryOperator, Expr as AstExpr, ValueWithSpan};
use weft_expression::resolve::{Operator, resolve_operator};
use weft_expression::{Expr, Op};
use weft_types::{SqlError, SqlType, Value};

use super::literals::text_of;
use crate::binder::Binder;
use crate::names::Place;
use crate::parameters::Operand;
use crate::subquery::{negate, row_items};

/// Expressions of at most this many nodes are duplicated rather than evaluated once.
const COPIED_NODES_MAX: usize = 4;
/// Maximum size of the bounds of BETWEEN SYMMETRIC, which are duplicated.
const BOUND_NODES_MAX: usize = 64;

impl Binder<'_> {
    pub(super) fn is_null(&mut self, inner: &AstExpr, negated: bool) -> Result<Operand, SqlError> {
        let operands = match row_items(inner) {
            Some(items) => {
                let bound = items.into_iter().map(|item| self.expr(item));
                bound.collect::<Result<Vec<Operand>, SqlError>>()?
            }
            None => match self.row_columns(inner)? {
                Some(columns) => columns,
                None => vec![self.expr(inner)?],
            },
        };
        let mut tests = Vec::with_capacity(operands.len());
        for operand in operands {
            // A parameter remains untyped: nothing can be inferred from IS NULL.
            let value = match (operand.ty, &operand.expr.root().op) {
                (None, Op::Parameter(number)) => {
                    self.parameters.leave_untyped(*number);
                    operand.expr
                }
                _ => self.parameters.settle(operand)?,
            };
            let test = Expr::new(Op::IsNull, SqlType::Bool, vec![value]);
            tests.push(negate(test, negated).expr);
        }
        let all = match tests.len() {
            1 => tests.pop(),
            0 => Some(Expr::constant(Value::Bool(true), SqlType::Bool)),
            _ => Some(Expr::new(Op::And, SqlType::Bool, tests)),
        };
        let all = all.ok_or_else(|| SqlError::internal("IS NULL of nothing"))?;
        Ok(Operand::typed(all))
    }

    /// The columns of a table whose name denotes its row.
    fn row_columns(&mut self, expr: &AstExpr) -> Result<Option<Vec<Operand>>, SqlError> {
        let AstExpr::Identifier(ident) = super::unnested(expr) else {
            return Ok(None);
        };
        let idents = std::slice::from_ref(ident);
        if self.column(idents)?.is_some() {
            return Ok(None);
        }
        let Some((depth, place)) = self.find_item(None, &crate::names::fold(ident)).ok().flatten() else {
            return Ok(None);
        };
        let item = self.levels.get(depth).and_then(|level| level.items.get(place));
        let columns: Vec<Expr> = item
            .map(|item| item.columns.iter().map(|column| column.expr.clone()).collect())
            .unwrap_or_default();
        for id in columns.iter().flat_map(Expr::columns) {
            self.mark(id);
            self.refer_to(depth, place, id, ident.span);
        }
        Ok(Some(columns.into_iter().map(Operand::typed).collect()))
    }

    /// IS TRUE, IS FALSE, IS UNKNOWN.
    pub(super) fn is_truth(
        &mut self,
        inner: &AstExpr,
        truth: Option<bool>,
        negated: bool,
    ) -> Result<Operand, SqlError> {
        let what = match (truth, negated) {
            (Some(true), false) => "IS TRUE",
            (Some(true), true) => "IS NOT TRUE",
            (Some(false), false) => "IS FALSE",
            (Some(false), true) => "IS NOT FALSE",
            (None, false) => "IS UNKNOWN",
            (None, true) => "IS NOT UNKNOWN",
        };
        let inner = self.boolean(inner, what)?;
        let op = truth.map_or(Op::IsNull, Op::IsTruth);
        Ok(negate(Expr::new(op, SqlType::Bool, vec![inner]), negated))
    }

    pub(super) fn is_distinct(
        &mut self,
        left: &AstExpr,
        right: &AstExpr,
        negated: bool,
    ) -> Result<Operand, SqlError> {
        let pairs: Vec<(Operand, Operand)> = match (row_items(left), row_items(right)) {
            (Some(left), Some(right)) => {
                if left.len() != right.len() {
                    return Err(crate::names::syntax_error(
                        "unequal number of entries in row expressions",
                    ));
                }
                let mut pairs = Vec::with_capacity(left.len());
                for (one, other) in left.into_iter().zip(right) {
                    pairs.push((self.expr(one)?, self.expr(other)?));
                }
                pairs
            }
            _ => vec![(self.expr(left)?, self.expr(right)?)],
        };
        let mut tests = Vec::with_capacity(pairs.len());
        for (one, other) in pairs {
            let operator = resolve_operator("=", Some(one.ty), other.ty);
            let Operator::Compare(_, ty) = operator.map_err(|error| self.at(error, left))? else {
                return Err(SqlError::internal("= is no comparison"));
            };
            let sides = vec![self.compared_side(one, ty)?, self.compared_side(other, ty)?];
            tests.push(Expr::new(Op::IsDistinct, SqlType::Bool, sides));
        }
        let any = match tests.len() {
            0 => Expr::constant(Value::Bool(false), SqlType::Bool),
            1 => tests.pop().ok_or_else(|| SqlError::internal("no test"))?,
            _ => Expr::new(Op::Or, SqlType::Bool, tests),
        };
        Ok(negate(any, negated))
    }

    /// BETWEEN: the value is duplicated if it is small, otherwise evaluated once.
    pub(super) fn between(
        &mut self,
        value: &AstExpr,
        low: &AstExpr,
        high: &AstExpr,
        negated: bool,
    ) -> Result<Operand, SqlError> {
        if row_items(value).is_some() {
            return Err(SqlError::unsupported("BETWEEN of rows is not supported"));
        }
        let written = value;
        let value = self.expr(value)?;
        let (low, symmetric) = match low {
            AstExpr::Prefixed { prefix, value } if prefix.value == weft_syntax::expression::SYMMETRIC => {
                (value.as_ref(), true)
            }
            low => (low, false),
        };
        let low = self.expr(low)?;
        let high = self.expr(high)?;
        if symmetric {
            return self.between_symmetric(value, &low, &high, negated, written);
        }
        self.with_copies(value, |binder, one, other| {
            let (least, most) = if negated { ("<", ">") } else { (">=", "<=") };
            let first = binder.infix(least, one, low, Place::Unknown)?.expr;
            // By now a parameter has a type.
            let other = match other.ty {
                None => binder.expr(written)?,
                Some(_) => other,
            };
            let sides = vec![first, binder.infix(most, other, high, Place::Unknown)?.expr];
            let op = if negated { Op::Or } else { Op::And };
            Ok(Expr::new(op, SqlType::Bool, sides))
        })
        .map(Operand::typed)
    }

    /// BETWEEN SYMMETRIC: between the bounds in either order.
    fn between_symmetric(
        &mut self,
        value: Operand,
        low: &Operand,
        high: &Operand,
        negated: bool,
        written: &AstExpr,
    ) -> Result<Operand, SqlError> {
        for bound in [low, high] {
            if bound.expr.nodes().len() > BOUND_NODES_MAX || self.is_volatile(&bound.expr) {
                return Err(SqlError::unsupported(
                    "BETWEEN SYMMETRIC with bounds that are long or volatile is not supported",
                ));
            }
        }
        let result = self.with_copies(value, |binder, one, other| {
            let mut orders = Vec::with_capacity(2);
            for (least, most) in [(low, high), (high, low)] {
                let mut sides = Vec::with_capacity(2);
                for (symbol, value, bound) in [(">=", &one, least), ("<=", &other, most)] {
                    // A parameter that occurred before has a type by now.
                    let value = match value.ty {
                        None => binder.expr(written)?,
                        Some(_) => value.clone(),
                    };
                    let bound = binder.parameters.refreshed(bound.clone());
                    sides.push(binder.infix(symbol, value, bound, Place::Unknown)?.expr);
                }
                orders.push(Expr::new(Op::And, SqlType::Bool, sides));
            }
            Ok(Expr::new(Op::Or, SqlType::Bool, orders))
        })?;
        Ok(negate(result, negated))
    }

    /// Whether a value that is used twice is duplicated.
    pub(super) fn is_copied(&self, value: &Operand) -> bool {
        value.ty.is_none() || (value.expr.nodes().len() <= COPIED_NODES_MAX && !self.is_volatile(&value.expr))
    }

    /// Builds an expression that uses a value twice.
    pub(super) fn with_copies(
        &mut self,
        value: Operand,
        build: impl FnOnce(&mut Self, Operand, Operand) -> Result<Expr, SqlError>,
    ) -> Result<Expr, SqlError> {
        if self.is_copied(&value) {
            return build(self, value.clone(), value);
        }
        let ty = value.expr.ty();
        let kept = Operand::typed(Expr::leaf(Op::CaseOperand, ty));
        let result = build(self, kept.clone(), kept)?;
        let result_type = result.ty();
        let parts = vec![
            value.expr,
            Expr::constant(Value::Bool(true), SqlType::Bool),
            result,
            Expr::constant(Value::Null, result_type),
        ];
        Ok(Expr::new(Op::Case { operand: true }, result_type, parts))
    }

    /// LIKE and ILIKE.
    pub(super) fn like(
        &mut self,
        symbols: [&str; 2],
        negated: bool,
        any: bool,
        value: &AstExpr,
        pattern: &AstExpr,
        escape: Option<&ValueWithSpan>,
    ) -> Result<Operand, SqlError> {
        let [plain, not] = symbols;
        let symbol = if negated { not } else { plain };
        if any {
            let op = BinaryOperator::Custom(symbol.to_owned());
            return self.any_or_all(value, &op, pattern, false);
        }
        let value = self.expr(value)?;
        let mut pattern = self.expr(pattern)?;
        if let Some(escape) = escape {
            let escape = self.escape(escape)?;
            pattern = self.call("like_escape", vec![pattern, escape], Place::Unknown)?;
        }
        self.infix(symbol, value, pattern, Place::Unknown)
    }

    fn escape(&mut self, escape: &ValueWithSpan) -> Result<Operand, SqlError> {
        match text_of(&escape.value) {
            Some(text) => Ok(Operand::quoted(text)),
            None => self.literal(escape),
        }
    }

    /// SIMILAR TO.
    pub(super) fn similar(
        &mut self,
        negated: bool,
        value: &AstExpr,
        pattern: &AstExpr,
        escape: Option<&ValueWithSpan>,
    ) -> Result<Operand, SqlError> {
        let value = self.expr(value)?;
        let mut arguments = vec![self.expr(pattern)?];
        if let Some(escape) = escape {
            arguments.push(self.escape(escape)?);
        }
        let pattern = self.call("similar_to_escape", arguments, Place::Unknown)?;
        self.infix(if negated { "!~" } else { "~" }, value, pattern, Place::Unknown)
    }
}
