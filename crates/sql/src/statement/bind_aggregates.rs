//! Binding aggregates: `count`, `sum`, `avg`, `min` and `max` over all rows of a point statement.
//!
//! Each call becomes a number ([`Scalar::Aggregate`]) of a list that the statement keeps; equal calls share
//! one. Around it any expression may stand: `coalesce(sum(k), 0) + 1`. An average is the sum divided by the
//! count, as numeric, which is how PostgreSQL computes it.
//!
//! Types are PostgreSQL's: sums of smallint and integer are bigint, of bigint and numeric numeric; `min` and
//! `max` of varchar are text. Floats are not summed here: their sum depends on the order of the rows, and the
//! query engine's order is its own.

use sqlparser::ast::{FunctionArg, FunctionArgExpr, FunctionArguments};
use weft_program::Function;
use weft_types::{SqlType, Value};

use super::bind::{Binder, Bound, Refusal, Typed};
use super::bind_calls::called;
use super::scalar::Scalar;
use super::type_rules::{is_date_like, is_float, is_integer};

/// What is made of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    /// How many there are, or how many whose argument is not NULL. 0 of none.
    Count,
    /// NULL of none, as the others are.
    Sum,
    Min,
    Max,
}

/// One aggregate of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateCall {
    pub(crate) kind: AggregateKind,
    /// Of each row; its NULLs are passed over. `None` counts rows.
    pub(crate) argument: Option<Scalar>,
    /// Type of the result.
    pub(crate) ty: SqlType,
}

/// Whether a function's name is an aggregate's that is bound here.
pub(super) fn is_aggregate(name: &str) -> bool {
    matches!(name, "count" | "sum" | "avg" | "min" | "max")
}

const NUMERIC: SqlType = SqlType::Numeric(None);

impl Binder<'_> {
    /// A call of an aggregate.
    pub(super) fn aggregate(&mut self, name: &str, arguments: &FunctionArguments) -> Bound<Typed> {
        let FunctionArguments::List(list) = arguments else {
            return Err(Refusal::General);
        };
        if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
            return Err(Refusal::General);
        }
        let argument = match (name, list.args.as_slice()) {
            ("count", [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) => None,
            (_, [FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))]) => {
                // No aggregate within another.
                let outer = self.aggregates.take();
                let bound = self.bind(expr);
                self.aggregates = outer;
                let typed = bound?;
                if typed.scalar.is_volatile() {
                    return Err(Refusal::General);
                }
                Some((typed.scalar, typed.ty.ok_or(Refusal::General)?))
            }
            _ => return Err(Refusal::General),
        };
        match (name, argument) {
            ("count", argument) => self.count(argument.map(|(scalar, _)| scalar)),
            ("sum", Some((scalar, ty))) => self.sum(scalar, ty),
            ("avg", Some((scalar, ty))) => {
                let sum = self.sum(scalar.clone(), ty)?;
                let count = self.count(Some(scalar))?;
                let operands = vec![numeric(sum), numeric(count)];
                Ok(called(Function::NumericDiv, operands))
            }
            ("min", Some((scalar, ty))) => self.extreme_of(AggregateKind::Min, scalar, ty),
            ("max", Some((scalar, ty))) => self.extreme_of(AggregateKind::Max, scalar, ty),
            _ => Err(Refusal::General),
        }
    }

    fn collected(&mut self, call: AggregateCall) -> Bound<Typed> {
        let ty = call.ty;
        let calls = self.aggregates.as_deref_mut().ok_or(Refusal::General)?;
        let number = calls.iter().position(|known| *known == call).unwrap_or_else(|| {
            calls.push(call);
            calls.len() - 1
        });
        let number = u16::try_from(number).map_err(|_| Refusal::General)?;
        Ok(Typed::known(Scalar::Aggregate(number), ty))
    }

    fn count(&mut self, argument: Option<Scalar>) -> Bound<Typed> {
        let never_null = |scalar: &Scalar| match scalar {
            Scalar::Constant(value) => *value != Value::Null,
            Scalar::Column(number) => self
                .scope
                .and_then(|scope| scope.table.columns.get(usize::from(*number)))
                .is_some_and(|column| column.not_null),
            _ => false,
        };
        let argument = argument.filter(|scalar| !never_null(scalar));
        self.collected(AggregateCall {
            kind: AggregateKind::Count,
            argument,
            ty: SqlType::Int8,
        })
    }

    fn sum(&mut self, scalar: Scalar, ty: SqlType) -> Bound<Typed> {
        let (argument, ty) = match ty {
            SqlType::Int2 | SqlType::Int4 => (scalar, SqlType::Int8),
            SqlType::Int8 => (Scalar::Cast(Box::new(scalar), ty, NUMERIC), NUMERIC),
            SqlType::Numeric(_) => (scalar, NUMERIC),
            _ => return Err(Refusal::General),
        };
        self.collected(AggregateCall {
            kind: AggregateKind::Sum,
            argument: Some(argument),
            ty,
        })
    }

    fn extreme_of(&mut self, kind: AggregateKind, scalar: Scalar, ty: SqlType) -> Bound<Typed> {
        let ty = match ty {
            _ if is_integer(&ty) || is_float(&ty) || is_date_like(&ty) => ty,
            SqlType::Numeric(_) => NUMERIC,
            SqlType::Text | SqlType::Varchar(_) => SqlType::Text,
            _ => return Err(Refusal::General),
        };
        self.collected(AggregateCall {
            kind,
            argument: Some(scalar),
            ty,
        })
    }
}

fn numeric(typed: Typed) -> Scalar {
    match typed.ty {
        Some(SqlType::Numeric(_)) | None => typed.scalar,
        Some(ty) => Scalar::Cast(Box::new(typed.scalar), ty, NUMERIC),
    }
}
