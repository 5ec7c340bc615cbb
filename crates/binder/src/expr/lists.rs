//! IN lists, arrays, rows, and comparisons with every element of an array.

use sqlparser::ast::{AccessExpr, BinaryOperator, Expr as AstExpr, Ident, Subscript};
use weft_expression::category::{array_of, element_of, is_implicit, same_type};
use weft_expression::resolve::{Operator, resolve_operator, verified_common_type};
use weft_expression::{CompareOp, Expr, Op};
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use super::{symbol, unnested};
use crate::binder::Binder;
use crate::names::Place;
use crate::parameters::Operand;
use crate::subquery::row_items;

impl Binder<'_> {
    /// `value IN (items)`
    pub(super) fn in_list(
        &mut self,
        value: &AstExpr,
        list: &[AstExpr],
        negated: bool,
    ) -> Result<Operand, SqlError> {
        if let [AstExpr::Subquery(query)] = list {
            return self.in_subquery(value, query, negated);
        }
        if let Some(left) = row_items(value) {
            return self.row_in_list(&left, list, negated, value);
        }
        let mut value = self.expr(value)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            items.push(self.expr(item)?);
        }
        if value.ty.is_none() {
            value = self.typed_by_constants(value, &items)?;
        }
        // An item computed from columns may fail; PostgreSQL does not evaluate it after an equal item.
        let computes = |item: &Operand| !is_constant(item) && item.expr.nodes().len() > 1;
        let together = match items.iter().any(computes) {
            true => None,
            false => list_type(&value, &items),
        };
        if together.is_none() && items.iter().filter(|item| is_constant(item)).count() > 1 {
            // PostgreSQL compares with constants first.
            items.sort_by_key(|item| !is_constant(item));
        }
        if let Some(ty) = together {
            let mut arguments = vec![self.parameters.coerce(value, ty, CastContext::Implicit)?];
            for (item, ast) in items.into_iter().zip(list) {
                let item = self.parameters.coerce(item, ty, CastContext::Implicit);
                arguments.push(item.map_err(|error| self.at(error, ast))?);
            }
            let op = Op::InList { negated };
            return Ok(Operand::typed(Expr::new(op, SqlType::Bool, arguments)));
        }
        // Items of different types are compared one by one; the value is evaluated once.
        let ty = value.ty;
        let copied = self.is_copied(&value);
        let kept = match ty {
            Some(ty) if !copied => Operand::typed(Expr::leaf(Op::CaseOperand, ty)),
            _ => value.clone(),
        };
        let (symbol, op) = if negated { ("<>", Op::And) } else { ("=", Op::Or) };
        let mut tests = Vec::with_capacity(items.len());
        for item in items {
            tests.push(self.infix(symbol, kept.clone(), item, Place::Unknown)?.expr);
        }
        let result = match tests.len() {
            1 => tests.pop().ok_or_else(|| SqlError::internal("no test"))?,
            _ => Expr::new(op, SqlType::Bool, tests),
        };
        if copied {
            return Ok(Operand::typed(result));
        }
        self.kept_operand(value, result)
    }

    /// PostgreSQL combines two or more constants into an array, so a value without a type takes the array's
    /// element type before it is compared with items that name columns.
    fn typed_by_constants(&mut self, value: Operand, items: &[Operand]) -> Result<Operand, SqlError> {
        let constants = items.iter().filter(|item| is_constant(item)).map(|item| item.ty);
        let types: Vec<Option<SqlType>> = constants.collect();
        if types.len() < 2 || types.len() == items.len() {
            return Ok(value);
        }
        let Some(ty) = verified_common_type(&types) else {
            return Ok(value);
        };
        let value = self.parameters.coerce(value, ty, CastContext::Implicit)?;
        Ok(Operand::typed(value))
    }

    /// `CASE value WHEN ...` around an expression that refers to the value as its operand.
    pub(super) fn kept_operand(&mut self, value: Operand, result: Expr) -> Result<Operand, SqlError> {
        let ty = result.ty();
        let parts = vec![
            value.expr,
            Expr::constant(weft_types::Value::Bool(true), SqlType::Bool),
            result,
            Expr::constant(weft_types::Value::Null, ty),
        ];
        Ok(Operand::typed(Expr::new(Op::Case { operand: true }, ty, parts)))
    }

    fn row_in_list(
        &mut self,
        left: &[&AstExpr],
        list: &[AstExpr],
        negated: bool,
        value: &AstExpr,
    ) -> Result<Operand, SqlError> {
        let mut bound = Vec::with_capacity(left.len());
        for item in left {
            bound.push(self.expr(item)?);
        }
        let op = if negated {
            BinaryOperator::NotEq
        } else {
            BinaryOperator::Eq
        };
        let mut tests = Vec::with_capacity(list.len());
        for item in list {
            let right = match row_items(item) {
                Some(items) => {
                    let bound = items.into_iter().map(|item| self.expr(item));
                    bound.collect::<Result<Vec<Operand>, SqlError>>()?
                }
                None => vec![self.expr(item)?],
            };
            tests.push(self.compare_lists(&op, bound.clone(), right, value.into())?.expr);
        }
        let result = match tests.len() {
            1 => tests.pop().ok_or_else(|| SqlError::internal("no test"))?,
            _ => Expr::new(if negated { Op::And } else { Op::Or }, SqlType::Bool, tests),
        };
        Ok(Operand::typed(result))
    }

    /// `ARRAY[...]`
    pub(super) fn array(&mut self, elements: &[AstExpr]) -> Result<Operand, SqlError> {
        if elements.is_empty() {
            return Err(SqlError::new(
                SqlState::INDETERMINATE_DATATYPE,
                "cannot determine type of empty array",
            )
            .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let mut operands = Vec::with_capacity(elements.len());
        for element in elements {
            operands.push(self.expr(element)?);
        }
        let (values, ty) = self.parameters.common("ARRAY", operands)?;
        array_node(values, ty)
    }

    /// `ARRAY[...]::type[]`: the elements are converted to the type directly.
    pub(super) fn array_as(&mut self, elements: &[AstExpr], ty: SqlType) -> Result<Operand, SqlError> {
        let element = element_of(&ty).ok_or_else(|| SqlError::internal("not an array type"))?;
        let mut values = Vec::with_capacity(elements.len());
        for ast in elements {
            if let AstExpr::Array(inner) = unnested(ast) {
                values.push(self.array_as(&inner.elem, ty)?.expr);
                continue;
            }
            let operand = self.expr(ast)?;
            let to = match operand.ty.as_ref().and_then(element_of) {
                Some(_) => ty,
                None => element,
            };
            let value = self.parameters.coerce(operand, to, CastContext::Explicit);
            values.push(value.map_err(|error| self.at(error, ast))?);
        }
        Ok(Operand::typed(Expr::new(Op::Array, ty, values)))
    }

    /// `(a, b)` or `ROW(a, b)` as a value.
    pub(super) fn row(&mut self, items: &[&AstExpr]) -> Result<Operand, SqlError> {
        let mut fields = Vec::with_capacity(items.len());
        for item in items {
            let operand = self.expr(item)?;
            fields.push(self.parameters.settle(operand)?);
        }
        Ok(Operand::typed(Expr::new(Op::Row, SqlType::Record, fields)))
    }

    /// `value op ANY (...)`, `value op ALL (...)`
    pub(super) fn any_or_all(
        &mut self,
        left: &AstExpr,
        op: &BinaryOperator,
        right: &AstExpr,
        all: bool,
    ) -> Result<Operand, SqlError> {
        let right = unnested(right);
        if let AstExpr::Subquery(query) = right {
            let test = self.quantified(left, op, query, all)?;
            return Ok(Operand::typed(test));
        }
        let place = Place::Expr(left);
        let left = self.expr(left)?;
        let symbol = symbol(op);
        if let AstExpr::Array(array) = right
            && !array.elem.is_empty()
            && !is_comparison_symbol(&symbol)
        {
            return self.each_element(left, &symbol, &array.elem, all);
        }
        let array = self.expr(right)?;
        let element = match (&array.ty, &left.ty) {
            (Some(ty), _) => Some(element_of(ty).ok_or_else(|| {
                let error = SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    "op ANY/ALL (array) requires array on right side",
                );
                self.at(error, place)
            })?),
            (None, known) => *known,
        };
        let operator = resolve_operator(&symbol, Some(left.ty), element);
        let Operator::Compare(op, ty) = operator.map_err(|error| self.at(error, place))? else {
            let error =
                SqlError::unsupported(format!("{symbol} with ANY or ALL of an array is not supported"));
            return Err(self.at(error, place));
        };
        let arrays = match &element {
            Some(element) if same_type(element, &ty) => array.ty.or_else(|| array_of(&ty)),
            _ => array_of(&ty),
        };
        let arrays = arrays.ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("could not find array type for data type {}", ty.base_name()),
            )
        })?;
        let arguments = vec![
            self.parameters.coerce(left, ty, CastContext::Implicit)?,
            self.parameters
                .coerce(array, arrays, CastContext::Implicit)
                .map_err(|error| self.at(error, place))?,
        ];
        let node = Op::CompareArray { op, all };
        Ok(Operand::typed(Expr::new(node, SqlType::Bool, arguments)))
    }

    /// Applies an operator other than a comparison to each element of an array constructor.
    fn each_element(
        &mut self,
        left: Operand,
        symbol: &str,
        elements: &[AstExpr],
        all: bool,
    ) -> Result<Operand, SqlError> {
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            items.push(self.expr(element)?);
        }
        let kept = match left.ty {
            Some(ty) => Operand::typed(Expr::leaf(Op::CaseOperand, ty)),
            None => left.clone(),
        };
        let mut tests = Vec::with_capacity(items.len());
        for item in items {
            let test = self.infix(symbol, kept.clone(), item, Place::Unknown)?;
            tests.push(self.as_boolean(test, "ANY/ALL", Place::Unknown)?);
        }
        let result = match tests.len() {
            1 => tests.pop().ok_or_else(|| SqlError::internal("no test"))?,
            _ => Expr::new(if all { Op::And } else { Op::Or }, SqlType::Bool, tests),
        };
        match left.ty {
            Some(_) => self.kept_operand(left, result),
            None => Ok(Operand::typed(result)),
        }
    }

    /// Subscripts and fields.
    pub(super) fn access(&mut self, root: &AstExpr, chain: &[AccessExpr]) -> Result<Operand, SqlError> {
        let (operand, rest) = match (unnested(root), chain.first()) {
            (AstExpr::Identifier(table), Some(AccessExpr::Dot(AstExpr::Identifier(column)))) => {
                let idents: [Ident; 2] = [table.clone(), column.clone()];
                let found = self.column_or_error(&idents)?;
                (found.0, chain.get(1..).unwrap_or_default())
            }
            _ => (self.expr(root)?, chain),
        };
        if rest.is_empty() {
            return Ok(operand);
        }
        if operand.ty == Some(SqlType::Jsonb) {
            return self.jsonb_access(operand, rest, root);
        }
        if operand.ty == Some(SqlType::Name)
            && let [AccessExpr::Subscript(Subscript::Index { index })] = rest
        {
            return self.name_access(operand, index, root);
        }
        let Some(element) = operand.ty.as_ref().and_then(element_of) else {
            let error = match rest.first() {
                Some(AccessExpr::Subscript(_)) => SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "cannot subscript type {} because it does not support subscripting",
                        operand.type_name()
                    ),
                ),
                _ => SqlError::unsupported("fields of rows are not supported"),
            };
            return Err(self.at(error, root));
        };
        let mut arguments = vec![operand.expr];
        for access in rest {
            let AccessExpr::Subscript(Subscript::Index { index }) = access else {
                let error = SqlError::unsupported("slices of arrays and fields of rows are not supported");
                return Err(self.at(error, root));
            };
            let subscript = self.expr(index)?;
            let value = self
                .parameters
                .coerce(subscript, SqlType::Int4, CastContext::Assignment)
                .map_err(|error| {
                    let error = if error.state == SqlState::DATATYPE_MISMATCH {
                        SqlError::new(
                            SqlState::DATATYPE_MISMATCH,
                            "array subscript must have type integer",
                        )
                    } else {
                        error
                    };
                    self.at(error, index)
                })?;
            arguments.push(value);
        }
        Ok(Operand::typed(Expr::new(Op::Subscript, element, arguments)))
    }

    /// A character of a `name`, counted from 0.
    fn name_access(
        &mut self,
        operand: Operand,
        index: &AstExpr,
        root: &AstExpr,
    ) -> Result<Operand, SqlError> {
        let number = |number| Operand::typed(Expr::constant(Value::Int4(number), SqlType::Int4));
        let index = self.expr(index)?;
        let index = self
            .parameters
            .coerce(index, SqlType::Int4, CastContext::Assignment)?;
        let place = self.infix("+", Operand::typed(index), number(1), Place::Expr(root))?;
        let text = self
            .parameters
            .coerce(operand, SqlType::Text, CastContext::Implicit)?;
        let letter = self.call(
            "substr",
            vec![Operand::typed(text), place, number(1)],
            Place::Expr(root),
        )?;
        let letter = self
            .parameters
            .coerce(letter, SqlType::InternalChar, CastContext::Explicit)?;
        Ok(Operand::typed(letter))
    }

    /// Subscripts of a `jsonb`: the steps of a path, as texts.
    fn jsonb_access(
        &mut self,
        operand: Operand,
        chain: &[AccessExpr],
        root: &AstExpr,
    ) -> Result<Operand, SqlError> {
        let mut steps = Vec::with_capacity(chain.len());
        for access in chain {
            let index = match access {
                AccessExpr::Subscript(Subscript::Index { index }) => index,
                AccessExpr::Subscript(Subscript::Slice { .. }) => {
                    let error = SqlError::new(
                        SqlState::DATATYPE_MISMATCH,
                        "jsonb subscript does not support slices",
                    );
                    return Err(self.at(error, root));
                }
                AccessExpr::Dot(_) => {
                    let error = SqlError::unsupported("fields of rows are not supported");
                    return Err(self.at(error, root));
                }
            };
            let step = self.expr(index)?;
            let ty = match step.ty {
                Some(ty) if is_implicit(&ty, &SqlType::Int4) => SqlType::Int4,
                None => SqlType::Text,
                Some(ty) if is_implicit(&ty, &SqlType::Text) => SqlType::Text,
                Some(_) => {
                    let message = format!("subscript type {} is not supported", step.type_name());
                    let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                        .hint("jsonb subscript must be coercible to either integer or text.");
                    return Err(self.at(error, index));
                }
            };
            let step = self.parameters.coerce(step, ty, CastContext::Implicit)?;
            let text = self
                .parameters
                .coerce(Operand::typed(step), SqlType::Text, CastContext::Explicit)?;
            steps.push(text);
        }
        let path = array_node(steps, SqlType::Text)?;
        self.infix("#>", operand, path, Place::Expr(root))
    }
}

/// An array of values, which may be arrays themselves.
fn array_node(values: Vec<Expr>, ty: SqlType) -> Result<Operand, SqlError> {
    let array = match element_of(&ty) {
        Some(_) => Some(ty),
        None => array_of(&ty),
    };
    let array = array.ok_or_else(|| {
        SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("could not find array type for data type {}", ty.base_name()),
        )
    })?;
    Ok(Operand::typed(Expr::new(Op::Array, array, values)))
}

/// Whether an operand names no column.
fn is_constant(operand: &Operand) -> bool {
    operand.expr.columns().next().is_none()
}

/// The type in which a value is compared with all items of a list; `None` if they are compared one by one.
fn list_type(value: &Operand, items: &[Operand]) -> Option<SqlType> {
    let types: Vec<Option<SqlType>> = std::iter::once(value)
        .chain(items)
        .map(|operand| operand.ty)
        .collect();
    let constants = items.iter().filter(|item| is_constant(item)).count();
    let constant = constants == items.len();
    // If compared one by one, a value without a type takes that of the first item.
    let untyped = value.ty.is_none() && items.iter().any(|item| item.ty.is_none());
    if items.len() == 1 || (untyped && constants < 2) {
        return None;
    }
    let first = types.iter().find_map(|ty| *ty);
    let alike = types
        .iter()
        .flatten()
        .all(|ty| first.is_none_or(|first| same_type(&first, ty)));
    if !constant && !alike {
        return None;
    }
    let common = verified_common_type(&types)?;
    match resolve_operator("=", Some(Some(common)), Some(common)) {
        Ok(Operator::Compare(CompareOp::Eq, ty)) => Some(ty),
        _ => None,
    }
}

fn is_comparison_symbol(symbol: &str) -> bool {
    matches!(symbol, "=" | "<>" | "!=" | "<" | "<=" | ">" | ">=")
}
