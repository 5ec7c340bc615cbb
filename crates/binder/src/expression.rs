//! Binds expressions without a query: those of point statements, procedures, CALL and EXECUTE.
//!
//! The caller resolves names ([`Names`]): to a column of the only visible row, or a variable. Everything else
//! is as in a query, except that subqueries are rejected. An aggregate call is represented by a column
//! ([`ExpressionBinder::aggregates`]), which the caller interprets.

use sqlparser::ast::{Expr as AstExpr, Ident};
use weft_expression::Expr;
use weft_types::{CastContext, SqlError, SqlType};

use crate::binder::{Binder, Environment};
use crate::names::Place;
use crate::parameters::{Operand, ParameterTypes};
use crate::relation::AggregateCall;
use crate::scope::Clause;

/// Resolves names.
pub trait Names {
    /// The expression that a name with these parts denotes; `None` if there is no such name.
    ///
    /// # Errors
    /// 42702 and the like.
    fn named(&self, parts: &[Ident]) -> Result<Option<Expr>, SqlError>;

    /// The expression that `$number` denotes; `None` if it is a parameter of the statement.
    fn positional(&self, number: &str) -> Option<Result<Expr, SqlError>>;

    /// Whether an invalid constant raises its error only when it is evaluated, as in PL/pgSQL.
    fn converts_late(&self) -> bool;
}

/// Binds several expressions, which share the parameters.
pub struct ExpressionBinder<'a> {
    binder: Binder<'a>,
}

impl<'a> ExpressionBinder<'a> {
    /// A binder that starts with the given parameter types; those of `env` are ignored.
    #[must_use]
    pub fn new(env: Environment<'a>, names: &'a dyn Names, parameters: ParameterTypes) -> Self {
        let mut binder = Binder::new(Environment {
            parameters: &[],
            ..env
        });
        binder.parameters.known = parameters;
        binder.parameters.converts_late = names.converts_late();
        binder.names = Some(names);
        binder.push_level();
        ExpressionBinder { binder }
    }

    /// The parameter types determined so far.
    #[must_use]
    pub fn into_parameters(self) -> ParameterTypes {
        self.binder.parameters.known
    }

    /// Binds an expression.
    ///
    /// # Errors
    /// Errors in the expression, with PostgreSQL's codes and messages.
    pub fn bind(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        self.binder.expr(expr)
    }

    /// The operand as an expression; text if it has no type.
    ///
    /// # Errors
    /// None for operands from [`ExpressionBinder::bind`]; the signature is that of conversions.
    pub fn settle(&mut self, operand: Operand) -> Result<Expr, SqlError> {
        self.binder.parameters.settle(operand)
    }

    /// Converts the operand to a type.
    ///
    /// # Errors
    /// If there is no such conversion in the context, or a constant is not a valid value of the type.
    pub fn coerce(&mut self, operand: Operand, to: SqlType, context: CastContext) -> Result<Expr, SqlError> {
        self.binder.parameters.coerce(operand, to, context)
    }

    /// Converts the operand for assignment to a column or variable.
    ///
    /// # Errors
    /// 42804 if there is no assignment conversion; 22P02 and the like for a constant.
    pub fn assign(&mut self, operand: Operand, target: &str, to: SqlType) -> Result<Expr, SqlError> {
        self.binder.assigned(operand, target, to)
    }

    /// Converts the operand to a condition; messages name its `place`.
    ///
    /// # Errors
    /// 42804 if it is not boolean.
    pub fn condition(&mut self, operand: Operand, place: &str) -> Result<Expr, SqlError> {
        self.binder.as_boolean(operand, place, Place::Unknown)
    }

    /// Binds the condition of a CHECK constraint.
    ///
    /// # Errors
    /// Errors in the expression; 0A000 for a subquery.
    pub fn check(&mut self, expr: &AstExpr) -> Result<Expr, SqlError> {
        let (operand, pending) = self.binder.in_clause(Clause::Check, |binder| binder.expr(expr))?;
        if !pending.is_empty() {
            return Err(SqlError::unsupported("cannot use subquery in check constraint"));
        }
        self.condition(operand, "CHECK")
    }

    /// `left = right`
    ///
    /// # Errors
    /// 42883 if they are not comparable.
    pub fn equal(&mut self, left: Operand, right: Operand) -> Result<Expr, SqlError> {
        let equal = self.binder.infix("=", left, right, Place::Unknown)?;
        Ok(equal.expr)
    }

    /// The aggregates called so far; each is represented by the column of its output.
    #[must_use]
    pub fn aggregates(&self) -> &[AggregateCall] {
        self.binder.levels.first().map_or(&[], |level| &level.aggregates)
    }
}
