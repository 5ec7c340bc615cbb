//! Subqueries in expressions: each becomes a relation below the expression, which names its result.

use sqlparser::ast::{BinaryOperator, Expr as AstExpr, Query, Spanned};
use sqlparser::tokenizer::Span;
use weft_expression::category::array_of;
use weft_expression::{ColumnId, Expr, Op};
use weft_types::{SqlError, SqlState, SqlType};

use crate::binder::Binder;
use crate::names::syntax_error;
use crate::parameters::Operand;
use crate::relation::Apply;
use crate::scope::Pending;
use crate::select::Rows;

impl Binder<'_> {
    fn pend(&mut self, rows: Rows, kind: Apply) -> Result<(), SqlError> {
        self.rest_on(rows.height)?;
        self.stack()?;
        self.level()?.pending.push(Pending {
            subquery: rows.relation,
            kind,
        });
        Ok(())
    }

    /// Binds a subquery with one column.
    fn only_column(&mut self, query: &Query) -> Result<(Rows, ColumnId, SqlType), SqlError> {
        let rows = self.bind_rows(query, true)?;
        match rows.columns.as_slice() {
            [only] => {
                let (id, ty) = (only.id, only.ty);
                self.mark(id);
                Ok((rows, id, ty))
            }
            _ => {
                let error = syntax_error("subquery must return only one column");
                Err(self.at(error, query.span()))
            }
        }
    }

    /// `(SELECT ...)`
    pub(crate) fn scalar_subquery(&mut self, query: &Query) -> Result<Operand, SqlError> {
        let (rows, value, ty) = self.only_column(query)?;
        let output = self.fresh();
        self.pend(rows, Apply::Scalar { output, value, ty })?;
        Ok(Operand::typed(Expr::column(output, ty)))
    }

    /// Binds a subquery with one row; returns its columns.
    pub(crate) fn row_subquery(&mut self, query: &Query) -> Result<Vec<Operand>, SqlError> {
        let rows = self.bind_rows(query, true)?;
        let (mut columns, mut operands) = (Vec::new(), Vec::new());
        for column in &rows.columns {
            self.mark(column.id);
            let output = self.fresh();
            columns.push((output, column.id, column.ty));
            operands.push(Operand::typed(Expr::column(output, column.ty)));
        }
        self.pend(rows, Apply::Row { columns })?;
        Ok(operands)
    }

    /// `EXISTS (SELECT ...)`
    pub(crate) fn exists(&mut self, query: &Query, negated: bool) -> Result<Operand, SqlError> {
        let rows = self.bind_rows(query, true)?;
        let output = self.fresh();
        self.pend(rows, Apply::Exists { output })?;
        Ok(negate(Expr::column(output, SqlType::Bool), negated))
    }

    /// `ARRAY(SELECT ...)`
    pub(crate) fn array_subquery(&mut self, query: &Query) -> Result<Operand, SqlError> {
        let (rows, value, element) = self.only_column(query)?;
        let ty = array_of(&element).ok_or_else(|| {
            if matches!(element, SqlType::Array(_)) {
                return SqlError::unsupported("an array that is made of arrays is not supported here");
            }
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("could not find array type for data type {}", element.base_name()),
            )
        })?;
        let output = self.fresh();
        self.pend(rows, Apply::Array { output, value, ty })?;
        Ok(Operand::typed(Expr::column(output, ty)))
    }

    /// `left op ANY (SELECT ...)`, `left op ALL (SELECT ...)`; `left` may be a row.
    pub(crate) fn quantified(
        &mut self,
        left: &AstExpr,
        op: &BinaryOperator,
        query: &Query,
        all: bool,
    ) -> Result<Expr, SqlError> {
        let left_items = match row_items(left) {
            Some(items) => {
                let bound = items.iter().map(|item| self.expr(item));
                bound.collect::<Result<Vec<Operand>, SqlError>>()?
            }
            None => vec![self.expr(left)?],
        };
        let rows = self.bind_rows(query, true)?;
        if rows.columns.len() != left_items.len() {
            let many = if rows.columns.len() < left_items.len() {
                "subquery has too few columns"
            } else {
                "subquery has too many columns"
            };
            return Err(self.at(syntax_error(many), left));
        }
        let mut right = Vec::new();
        for column in &rows.columns {
            self.mark(column.id);
            right.push(Operand::typed(Expr::column(column.id, column.ty)));
        }
        let test = self.compare_lists(op, left_items, right, left.into())?;
        let test = self.as_boolean(test, "ANY/ALL", left)?;
        let output = self.fresh();
        self.pend(rows, Apply::Quantified { output, test, all })?;
        Ok(Expr::column(output, SqlType::Bool))
    }

    /// `left IN (SELECT ...)`
    pub(crate) fn in_subquery(
        &mut self,
        left: &AstExpr,
        query: &Query,
        negated: bool,
    ) -> Result<Operand, SqlError> {
        let test = self.quantified(left, &BinaryOperator::Eq, query, false)?;
        Ok(negate(test, negated))
    }
}

/// NOT of the expression if `negated`.
pub(crate) fn negate(expr: Expr, negated: bool) -> Operand {
    Operand::typed(if negated {
        Expr::new(Op::Not, SqlType::Bool, vec![expr])
    } else {
        expr
    })
}

/// The items of `(a, b)` and `ROW(a, b)`.
pub(crate) fn row_items(expr: &AstExpr) -> Option<Vec<&AstExpr>> {
    match expr {
        AstExpr::Nested(inner) => row_items(inner),
        AstExpr::Tuple(items) => Some(items.iter().collect()),
        AstExpr::Function(function) if crate::expr::is_row(function) => {
            crate::expr::plain_arguments(function)
        }
        _ => None,
    }
}

/// The span of a construct without a position.
pub(crate) fn no_span() -> Span {
    Span::empty()
}
