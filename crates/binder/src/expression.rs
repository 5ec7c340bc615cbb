//! Expressions without a query around them: those of point statements and procedures, of CALL and EXECUTE.
//!
//! What a name means the caller says ([`Names`]): a column of the one row in sight, a variable. Everything
//! else is as in a query, but for subqueries, which are refused. A call of an aggregate stands as a column
//! ([`ExpressionBinder::aggregates`]); what to make of it is the caller's.

use sqlparser::ast::{Expr as AstExpr, Ident};
use sqlparser::tokenizer::Span;
use weft_expression::Expr;
use weft_types::{CastContext, SqlError, SqlType};

use crate::binder::{Binder, Environment};
use crate::parameters::{Operand, ParameterTypes};
use crate::relation::AggregateCall;

/// What names mean.
pub trait Names {
    /// What a name of these parts stands for; `None` if nothing has the name.
    ///
    /// # Errors
    /// 42702 and the like.
    fn named(&self, parts: &[Ident]) -> Result<Option<Expr>, SqlError>;

    /// What `$number` stands for; `None` where it is a parameter of the statement.
    fn positional(&self, number: &str) -> Option<Result<Expr, SqlError>>;

    /// Whether a constant that is no value of its type is an error only where it is computed, as in PL/pgSQL.
    fn reads_late(&self) -> bool;
}

/// Binds expressions one after the other; they share the parameters.
pub struct ExpressionBinder<'a> {
    binder: Binder<'a>,
}

impl<'a> ExpressionBinder<'a> {
    /// A binder that goes on with the parameters as they are known by now; those of `env` are not looked at.
    #[must_use]
    pub fn new(env: Environment<'a>, names: &'a dyn Names, parameters: ParameterTypes) -> Self {
        let mut binder = Binder::new(Environment {
            parameters: &[],
            ..env
        });
        binder.parameters.known = parameters;
        binder.parameters.reads_late = names.reads_late();
        binder.names = Some(names);
        binder.push_level();
        ExpressionBinder { binder }
    }

    /// The parameters as they are known now.
    #[must_use]
    pub fn into_parameters(self) -> ParameterTypes {
        self.binder.parameters.known
    }

    /// Binds an expression.
    ///
    /// # Errors
    /// Whatever is wrong with it, as PostgreSQL says it.
    pub fn bind(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        self.binder.expr(expr)
    }

    /// The operand by itself: text if it has no type.
    ///
    /// # Errors
    /// None for what [`ExpressionBinder::bind`] gives, but the signature of conversions.
    pub fn settle(&mut self, operand: Operand) -> Result<Expr, SqlError> {
        self.binder.parameters.settle(operand)
    }

    /// The operand as a value of a type.
    ///
    /// # Errors
    /// Where there is no such conversion in the context, or a constant is no value of the type.
    pub fn coerce(&mut self, operand: Operand, to: SqlType, context: CastContext) -> Result<Expr, SqlError> {
        self.binder.parameters.coerce(operand, to, context)
    }

    /// The operand assigned to a column or variable.
    ///
    /// # Errors
    /// 42804 if it does not convert on assignment; 22P02 and the like for a constant.
    pub fn assign(&mut self, operand: Operand, target: &str, to: SqlType) -> Result<Expr, SqlError> {
        self.binder.assigned(operand, target, to)
    }

    /// The operand as a condition; `place` is what messages call it.
    ///
    /// # Errors
    /// 42804 if it is no boolean.
    pub fn condition(&mut self, operand: Operand, place: &str) -> Result<Expr, SqlError> {
        self.binder.as_boolean(operand, place, Span::empty)
    }

    /// `left = right`
    ///
    /// # Errors
    /// 42883 if they do not compare.
    pub fn equal(&mut self, left: Operand, right: Operand) -> Result<Expr, SqlError> {
        let equal = self.binder.infix("=", left, right, Span::empty())?;
        Ok(equal.expr)
    }

    /// The aggregates that were called so far: each stands as the column that its value goes to.
    #[must_use]
    pub fn aggregates(&self) -> &[AggregateCall] {
        self.binder.levels.first().map_or(&[], |level| &level.aggregates)
    }
}
