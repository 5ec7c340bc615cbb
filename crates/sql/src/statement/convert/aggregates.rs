//! Aggregates over all rows of a point statement: `count`, `sum`, `avg`, `min` and `max`.
//!
//! Each call gets a number ([`Scalar::Aggregate`]) in a list that the statement keeps; equal calls share
//! one. They may occur within any expression: `coalesce(sum(k), 0) + 1`. An average is the sum divided by
//! the count, as numeric, which is how PostgreSQL computes it.
//!
//! Floats are not summed here: their sum depends on the order of the rows, which differs in the query
//! engine.

use weft_expression::ColumnId;
use weft_program::Function;
use weft_types::{SqlType, Value};

use super::super::bind::{BindResult, Refusal};
use super::super::scalar::Scalar;
use super::super::type_rules::{is_float, is_integer};
use super::Conversion;

/// The aggregate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    /// The number of rows, or of those whose argument is not NULL. 0 for no rows.
    Count,
    /// NULL for no rows, as the following ones.
    Sum,
    Min,
    Max,
}

/// One aggregate of a statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateCall {
    pub(crate) kind: AggregateKind,
    /// Evaluated for each row; NULLs are skipped. `None` counts rows.
    pub(crate) argument: Option<Scalar>,
    /// Type of the result.
    pub(crate) ty: SqlType,
}

const NUMERIC: SqlType = SqlType::Numeric(None);

impl Conversion<'_> {
    /// The scalar for an aggregate to which the binder assigned a column.
    pub(super) fn aggregate(&mut self, id: ColumnId) -> BindResult<Scalar> {
        let calls = self.calls;
        let call = calls
            .iter()
            .find(|call| call.output == id)
            .ok_or(Refusal::General)?;
        if call.distinct || !call.order.is_empty() || call.filter.is_some() {
            return Err(Refusal::General);
        }
        // Aggregates cannot be nested.
        let outer = self.aggregates.take();
        let argument = match call.arguments.as_slice() {
            [] => Ok(None),
            [argument] => self.convert(argument).map(|scalar| Some((scalar, argument.ty()))),
            _ => Err(Refusal::General),
        };
        self.aggregates = outer;
        let argument = argument?;
        if argument.as_ref().is_some_and(|(scalar, _)| scalar.is_volatile()) {
            return Err(Refusal::General);
        }
        match (call.aggregate.name, argument) {
            ("count", argument) => self.count(argument.map(|(scalar, _)| scalar)),
            ("sum", Some((scalar, ty))) => self.sum(scalar, ty).map(|(sum, _)| sum),
            ("avg", Some((scalar, ty))) => {
                let (sum, ty) = self.sum(scalar.clone(), ty)?;
                let count = self.count(Some(scalar))?;
                let operands = vec![numeric(sum, ty), numeric(count, SqlType::Int8)];
                Ok(Scalar::Call(Function::NumericDiv, operands))
            }
            ("min", Some((scalar, ty))) => self.extreme(AggregateKind::Min, scalar, ty),
            ("max", Some((scalar, ty))) => self.extreme(AggregateKind::Max, scalar, ty),
            _ => Err(Refusal::General),
        }
    }

    fn collected(
        &mut self,
        kind: AggregateKind,
        argument: Option<Scalar>,
        ty: SqlType,
    ) -> BindResult<Scalar> {
        let call = AggregateCall { kind, argument, ty };
        let calls = self.aggregates.as_deref_mut().ok_or(Refusal::General)?;
        let number = calls.iter().position(|known| *known == call).unwrap_or_else(|| {
            calls.push(call);
            calls.len() - 1
        });
        let number = u16::try_from(number).map_err(|_| Refusal::General)?;
        Ok(Scalar::Aggregate(number))
    }

    fn count(&mut self, argument: Option<Scalar>) -> BindResult<Scalar> {
        let never_null = |scalar: &Scalar| match scalar {
            Scalar::Constant(value) => *value != Value::Null,
            Scalar::Column(number) => {
                let column = |(table, _): (&'_ weft_store::TableDef, &str)| {
                    let column = table.columns.get(usize::from(*number));
                    column.is_some_and(|column| column.not_null)
                };
                self.scope.table.is_some_and(column)
            }
            _ => false,
        };
        let argument = argument.filter(|scalar| !never_null(scalar));
        self.collected(AggregateKind::Count, argument, SqlType::Int8)
    }

    /// The sum and its type.
    fn sum(&mut self, scalar: Scalar, ty: SqlType) -> BindResult<(Scalar, SqlType)> {
        let (argument, ty) = match ty {
            SqlType::Int2 | SqlType::Int4 => (scalar, SqlType::Int8),
            SqlType::Int8 => (Scalar::Cast(Box::new(scalar), ty, NUMERIC), NUMERIC),
            SqlType::Numeric(_) => (scalar, NUMERIC),
            _ => return Err(Refusal::General),
        };
        Ok((self.collected(AggregateKind::Sum, Some(argument), ty)?, ty))
    }

    fn extreme(&mut self, kind: AggregateKind, scalar: Scalar, ty: SqlType) -> BindResult<Scalar> {
        let ty = match ty {
            _ if is_integer(&ty) || is_float(&ty) => ty,
            SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => ty,
            SqlType::Numeric(_) => NUMERIC,
            SqlType::Text | SqlType::Varchar(_) => SqlType::Text,
            _ => return Err(Refusal::General),
        };
        self.collected(kind, Some(scalar), ty)
    }
}

fn numeric(scalar: Scalar, ty: SqlType) -> Scalar {
    match ty {
        SqlType::Numeric(_) => scalar,
        ty => Scalar::Cast(Box::new(scalar), ty, NUMERIC),
    }
}
