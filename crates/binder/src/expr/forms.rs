//! CASE, and functions with their own syntax.

use sqlparser::ast::{CaseWhen, CeilFloorKind, DateTimeField, Expr as AstExpr, TrimWhereField};
use weft_expression::{Expr, Op};
use weft_types::{CastContext, SqlError, SqlType, Value};

use crate::binder::Binder;
use crate::names::{Place, fold};
use crate::parameters::Operand;

impl Binder<'_> {
    pub(super) fn case(
        &mut self,
        operand: Option<&AstExpr>,
        branches: &[CaseWhen],
        otherwise: Option<&AstExpr>,
    ) -> Result<Operand, SqlError> {
        let sets = self.level()?.sets.len();
        let value = match operand {
            Some(operand) => {
                let operand = self.expr(operand)?;
                Some(self.parameters.settle(operand)?)
            }
            None => None,
        };
        let mut conditions = Vec::with_capacity(branches.len());
        let mut results = Vec::with_capacity(branches.len() + 1);
        for branch in branches {
            let condition = match &value {
                None => self.boolean(&branch.condition, "CASE/WHEN")?,
                Some(value) => {
                    let kept = Operand::typed(Expr::leaf(Op::CaseOperand, value.ty()));
                    let other = self.expr(&branch.condition)?;
                    let test = self.infix("=", kept, other, Place::Unknown)?;
                    self.as_boolean(test, "CASE/WHEN", &branch.condition)?
                }
            };
            conditions.push(condition);
            results.push(self.expr(&branch.result)?);
        }
        let otherwise = match otherwise {
            Some(otherwise) => self.expr(otherwise)?,
            None => Operand::null(),
        };
        let first = branches.first().map(|branch| &branch.result);
        let place = first.map_or(Place::Unknown, Place::Expr);
        self.refuse_sets(sets, "CASE", place)?;
        // ELSE is first in the search for a common type.
        results.insert(0, otherwise);
        let common = self.parameters.common("CASE", results);
        let (mut values, ty) = common.map_err(|error| self.at(error, place))?;
        let otherwise = values.remove(0);
        let has_operand = value.is_some();
        let mut parts: Vec<Expr> = value.into_iter().collect();
        for (condition, result) in conditions.into_iter().zip(values) {
            parts.push(condition);
            parts.push(result);
        }
        parts.push(otherwise);
        let op = Op::Case { operand: has_operand };
        Ok(Operand::typed(Expr::new(op, ty, parts)))
    }

    /// EXTRACT, SUBSTRING and the like, as function calls.
    pub(super) fn special_call(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        let place = Place::Expr(expr);
        let (name, arguments): (&str, Vec<&AstExpr>) = match expr {
            AstExpr::Extract { field, expr, .. } => {
                let field = Operand::quoted(field_name(field));
                let source = self.expr(expr)?;
                return self.call("extract", vec![field, source], place);
            }
            AstExpr::Ceil {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            } => ("ceil", vec![expr]),
            AstExpr::Floor {
                expr,
                field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime),
            } => ("floor", vec![expr]),
            AstExpr::Position { expr, r#in } => ("position", vec![r#in, expr]),
            AstExpr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => return self.substring(expr, substring_from.as_deref(), substring_for.as_deref(), place),
            AstExpr::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters,
            } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let mut arguments: Vec<&AstExpr> = vec![expr];
                arguments.extend(trim_what.as_deref());
                arguments.extend(trim_characters.iter().flatten());
                (name, arguments)
            }
            AstExpr::Overlay {
                expr,
                overlay_what,
                overlay_from,
                overlay_for,
            } => {
                let mut arguments: Vec<&AstExpr> = vec![expr, overlay_what, overlay_from];
                arguments.extend(overlay_for.as_deref());
                ("overlay", arguments)
            }
            AstExpr::AtTimeZone { timestamp, time_zone } => {
                let time = self.expr(timestamp)?;
                let zone = self.expr(time_zone)?;
                return self.call("timezone", vec![zone, time], place);
            }
            _ => {
                return Err(SqlError::unsupported(
                    "this form of a function call is not supported",
                ));
            }
        };
        let mut operands = Vec::with_capacity(arguments.len());
        for argument in arguments {
            operands.push(self.expr(argument)?);
        }
        self.call(name, operands, place)
    }

    fn substring(
        &mut self,
        value: &AstExpr,
        from: Option<&AstExpr>,
        count: Option<&AstExpr>,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        let mut operands = vec![self.expr(value)?];
        match (from, count) {
            (Some(from), _) => operands.push(self.expr(from)?),
            (None, Some(_)) => operands.push(Operand::typed(Expr::constant(Value::Int4(1), SqlType::Int4))),
            (None, None) => {}
        }
        if let Some(count) = count {
            let count = self.expr(count)?;
            let count = match (from, count.ty) {
                (None, None) => Operand::typed(self.parameters.coerce(
                    count,
                    SqlType::Int4,
                    CastContext::Implicit,
                )?),
                _ => count,
            };
            operands.push(count);
        }
        self.call("substring", operands, place)
    }
}

/// A field of EXTRACT, in the form that PostgreSQL's parser produces.
fn field_name(field: &DateTimeField) -> String {
    match field {
        DateTimeField::Custom(ident) => fold(ident),
        other => other.to_string().to_lowercase().replace('\'', ""),
    }
}
