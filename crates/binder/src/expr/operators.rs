//! Operators and chains of operators.

use sqlparser::ast::{BinaryOperator, Expr as AstExpr, UnaryOperator, Value as AstValue};
use weft_expression::resolve::{self, Operator, resolve_operator};
use weft_expression::table::{Arg, Entry};
use weft_expression::{CompareOp, Expr, Node, Op, Volatility, functions};
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use super::literals::number;
use super::{symbol, unnested};
use crate::binder::Binder;
use crate::names::{Place, syntax_error};
use crate::parameters::Operand;
use crate::subquery::{negate, row_items};

/// Row comparisons with more nodes are evaluated eagerly: a lazy one would duplicate too many nodes.
const LAZY_NODES_MAX: usize = 64;

/// Functions that see the trailing blanks of char(n).
const SEES_BLANKS: [&str; 11] = [
    "octet_length",
    "bit_length",
    "concat",
    "concat_ws",
    "format",
    "to_json",
    "to_jsonb",
    "json_build_array",
    "json_build_object",
    "jsonb_build_array",
    "jsonb_build_object",
];

impl Binder<'_> {
    /// Binary operators: descends the left spine in a loop, and ascends again. A chain of AND or OR becomes
    /// one node.
    pub(super) fn chain(&mut self, expr: &AstExpr) -> Result<Operand, SqlError> {
        let (mut spine, mut at) = (Vec::new(), expr);
        while let AstExpr::BinaryOp { left, op, right } = at {
            spine.push((op, right.as_ref()));
            at = unnested(left);
        }
        let mut leftmost = Place::Expr(at);
        let mut operand = match spine.last() {
            Some((op, right)) if row_items(at).is_some() || is_row_query(at, right) => {
                let rows = self.compare_rows(op, at, right)?;
                spine.pop();
                rows
            }
            _ => self.expr(at)?,
        };
        while let Some((op, right)) = spine.pop() {
            operand = match op {
                BinaryOperator::And | BinaryOperator::Or => {
                    let (node, what) = match op {
                        BinaryOperator::And => (Op::And, "AND"),
                        _ => (Op::Or, "OR"),
                    };
                    let mut items = vec![self.as_boolean(operand, what, leftmost)?];
                    items.push(self.boolean(right, what)?);
                    while let Some((_, right)) = spine.pop_if(|(next, _)| *next == op) {
                        items.push(self.boolean(right, what)?);
                    }
                    Operand::typed(Expr::new(node, SqlType::Bool, items))
                }
                op => {
                    let right = self.expr(right)?;
                    self.infix(&symbol(op), operand, right, Place::Unknown)?
                }
            };
            leftmost = Place::Unknown;
        }
        Ok(operand)
    }

    /// `left symbol right`
    pub(crate) fn infix(
        &mut self,
        symbol: &str,
        mut left: Operand,
        right: Operand,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        let mut operator = resolve_operator(symbol, Some(left.ty), right.ty);
        if let (Ok(_), Some(ty @ SqlType::Char(_))) = (&operator, left.ty)
            && is_pattern_operator(symbol)
        {
            left = self.padded(left, ty)?;
            operator = resolve_operator(symbol, Some(left.ty), right.ty);
        }
        let operator = operator.map_err(|error| self.at(error, place))?;
        self.operation(operator, left, right, place).map(Operand::typed)
    }

    /// Applies an operator to two operands.
    pub(crate) fn operation(
        &mut self,
        operator: Operator,
        left: Operand,
        right: Operand,
        place: Place<'_>,
    ) -> Result<Expr, SqlError> {
        let bound = match operator {
            Operator::Call(resolved) if is_appended(resolved.entry, &left, &right) => {
                // PostgreSQL's operator is a function that casts its argument when it is evaluated.
                let mut texts = Vec::with_capacity(2);
                for operand in [left, right] {
                    let text = match operand.ty {
                        Some(ty) if !ty.is_text() => {
                            let text = self
                                .parameters
                                .coerce(operand, SqlType::Text, CastContext::Explicit);
                            Operand::typed(text.map_err(|error| self.at(error, place))?)
                        }
                        _ => operand,
                    };
                    texts.push(text);
                }
                let [left, right] = <[Operand; 2]>::try_from(texts)
                    .map_err(|_| SqlError::internal("two operands are not two"))?;
                let operator = resolve::resolve_operator("||", Some(left.ty), right.ty)
                    .map_err(|error| self.at(error, place))?;
                return self.operation(operator, left, right, place);
            }
            Operator::Call(resolved) => {
                self.note_entry(resolved.entry);
                let ty = |side: usize| resolved.arguments.get(side).copied().unwrap_or(resolved.result);
                self.parameters
                    .coerce(left, ty(0), CastContext::Implicit)
                    .and_then(|left| {
                        let right = self.parameters.coerce(right, ty(1), CastContext::Implicit)?;
                        Ok(Expr::binary(
                            Op::Call(resolved.entry),
                            resolved.result,
                            left,
                            right,
                        ))
                    })
            }
            Operator::Compare(op, ty) => self.compared_side(left, ty).and_then(|left| {
                let right = self.compared_side(right, ty)?;
                Ok(Expr::binary(Op::Compare(op), SqlType::Bool, left, right))
            }),
        };
        bound.map_err(|error| self.at(error, place))
    }

    /// A char(n) padded with its trailing blanks, for functions that see them.
    fn padded(&mut self, operand: Operand, ty: SqlType) -> Result<Operand, SqlError> {
        let SqlType::Char(length) = ty else {
            return Ok(operand);
        };
        let is_bare = ty == weft_expression::category::BPCHAR || length == 0;
        let is_sized = |ty: &SqlType| matches!(ty, SqlType::Char(own) if *own > 0 && own != &length);
        if is_bare && operand.expr.nodes().iter().any(|node| is_sized(&node.ty)) {
            return Err(SqlError::unsupported(
                "blanks of char(n) values of several lengths are not supported",
            ));
        }
        if is_bare || functions::functions("bpchar_pad").is_empty() {
            return Ok(operand);
        }
        let length = Expr::constant(Value::Int4(i32::try_from(length).unwrap_or(0)), SqlType::Int4);
        self.call(
            "bpchar_pad",
            vec![operand, Operand::typed(length)],
            Place::Unknown,
        )
    }

    /// Converts one side of a comparison to the comparison's type. A date beyond the range of timestamps is
    /// still comparable with them.
    pub(crate) fn compared_side(&mut self, operand: Operand, ty: SqlType) -> Result<Expr, SqlError> {
        if operand.ty == Some(SqlType::Date)
            && let Some(entry) = functions::datetime::compared_date(&ty)
        {
            return Ok(Expr::new(Op::Call(entry), ty, vec![operand.expr]));
        }
        self.parameters.coerce(operand, ty, CastContext::Implicit)
    }

    /// Records the side effects and session dependence of a function.
    pub(crate) fn note_entry(&mut self, entry: &'static Entry) {
        if entry.volatility == Volatility::Volatile {
            self.volatile_count += 1;
        }
        if matches!(entry.name, "nextval" | "setval") {
            self.moves_sequence = true;
        }
        self.takes_advisory_locks |= functions::is_advisory(entry);
        if entry.kind == weft_expression::Kind::Function
            && !functions::functions(entry.name)
                .iter()
                .any(|own| std::ptr::eq(*own, entry))
        {
            self.session_bound = true;
        }
    }

    pub(super) fn prefix(
        &mut self,
        op: UnaryOperator,
        inner: &AstExpr,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        let symbol = match op {
            UnaryOperator::Not => {
                let inner = self.boolean(inner, "NOT")?;
                return Ok(negate(inner, true));
            }
            UnaryOperator::Minus => {
                if let Some((digits, negative)) = signed_number(inner) {
                    let sign = if negative { "" } else { "-" };
                    return number(&format!("{sign}{digits}")).map_err(|error| self.at(error, place));
                }
                "-"
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            other => {
                return Err(SqlError::unsupported(format!(
                    "the operator {other} is not supported"
                )));
            }
        };
        let operand = self.expr(inner)?;
        self.prefix_operator(symbol, operand, place)
    }

    /// `symbol operand`
    pub(super) fn prefix_operator(
        &mut self,
        symbol: &str,
        operand: Operand,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        let operator = resolve_operator(symbol, None, operand.ty).map_err(|error| self.at(error, place))?;
        let Operator::Call(resolved) = operator else {
            return Err(SqlError::internal("a prefix operator is no comparison"));
        };
        self.note_entry(resolved.entry);
        let arguments = self.converted(vec![operand], &resolved.arguments);
        let arguments = arguments.map_err(|error| self.at(error, place))?;
        let value = Expr::new(Op::Call(resolved.entry), resolved.result, arguments);
        Ok(Operand::typed(value))
    }

    /// Compares rows, at least one of which is a row constructor.
    fn compare_rows(
        &mut self,
        op: &BinaryOperator,
        left: &AstExpr,
        right: &AstExpr,
    ) -> Result<Operand, SqlError> {
        let place = Place::Expr(left);
        let left = self.row_operands(left)?;
        let right = self.row_operands(right)?;
        if *op == BinaryOperator::Overlaps {
            for (side, items) in [("left", &left), ("right", &right)] {
                if items.len() != 2 {
                    let message = format!("wrong number of parameters on {side} side of OVERLAPS expression");
                    return Err(self.at(syntax_error(message), place));
                }
            }
            return self.call("overlaps", left.into_iter().chain(right).collect(), place);
        }
        self.compare_lists(op, left, right, place)
    }

    fn row_operands(&mut self, expr: &AstExpr) -> Result<Vec<Operand>, SqlError> {
        match (row_items(expr), unnested(expr)) {
            (Some(items), _) => items.into_iter().map(|item| self.expr(item)).collect(),
            (None, AstExpr::Subquery(query)) => self.row_subquery(query),
            (None, other) => Ok(vec![self.expr(other)?]),
        }
    }

    /// Compares two lists pairwise.
    pub(crate) fn compare_lists(
        &mut self,
        op: &BinaryOperator,
        left: Vec<Operand>,
        right: Vec<Operand>,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        if left.len() != right.len() {
            return Err(self.at(
                syntax_error("unequal number of entries in row expressions"),
                place,
            ));
        }
        if left.is_empty() {
            return Err(self.at(SqlError::unsupported("cannot compare rows of zero length"), place));
        }
        let symbol = symbol(op);
        if left.len() == 1 {
            let (left, right) = (left.into_iter().next(), right.into_iter().next());
            if let (Some(left), Some(right)) = (left, right) {
                return self.infix(&symbol, left, right, place);
            }
            return Err(SqlError::internal("a row without columns"));
        }
        let mut pairs = Vec::with_capacity(left.len());
        let mut compared = None;
        for (one, other) in left.into_iter().zip(right) {
            let operator = resolve_operator(&symbol, Some(one.ty), other.ty);
            let operator = operator.map_err(|error| self.at(error, place))?;
            let Operator::Compare(op, ty) = operator else {
                let error = SqlError::unsupported(format!(
                    "could not determine interpretation of row comparison operator {symbol}"
                ))
                .hint("Row comparison operators must be associated with btree operator families.");
                return Err(self.at(error, place));
            };
            compared = Some(op);
            pairs.push((self.compared_side(one, ty)?, self.compared_side(other, ty)?));
        }
        let op = compared.ok_or_else(|| SqlError::internal("a row without columns"))?;
        Ok(Operand::typed(self.rows_compared(op, pairs)))
    }

    /// Equality and inequality of rows combine those of their columns; other operators compare column by
    /// column up to the first that differs or is NULL.
    fn rows_compared(&self, op: CompareOp, pairs: Vec<(Expr, Expr)>) -> Expr {
        let compare = |op, one, other| Expr::new(Op::Compare(op), SqlType::Bool, vec![one, other]);
        let all = match op {
            CompareOp::Eq => Some(Op::And),
            CompareOp::Ne => Some(Op::Or),
            _ => None,
        };
        if let Some(all) = all {
            let compared = pairs.into_iter().map(|(one, other)| compare(op, one, other));
            return Expr::new(all, SqlType::Bool, compared.collect());
        }
        if !self.is_compared_lazily(&pairs) {
            let (left, right): (Vec<Expr>, Vec<Expr>) = pairs.into_iter().unzip();
            let sides = left.into_iter().chain(right).collect();
            return Expr::new(Op::CompareRows(op), SqlType::Bool, sides);
        }
        let strict = match op {
            CompareOp::Le => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Gt,
            other => other,
        };
        let mut pairs = pairs.into_iter().rev();
        let last = pairs.next().map(|(one, other)| compare(op, one, other));
        let whole = pairs.fold(last, |rest, (one, other)| {
            let equal = compare(CompareOp::Eq, one.clone(), other.clone());
            let arms = [Some(equal), rest, Some(compare(strict, one, other))];
            let arms = arms.into_iter().flatten().collect();
            Some(Expr::new(Op::Case { operand: false }, SqlType::Bool, arms))
        });
        whole.unwrap_or_else(|| Expr::leaf(Op::Constant(Value::Null), SqlType::Bool))
    }

    /// Whether a column after the first may fail, so that it must not be evaluated for rows that earlier
    /// columns decide. This duplicates all columns but the last, and is therefore done only for short rows.
    fn is_compared_lazily(&self, pairs: &[(Expr, Expr)]) -> bool {
        let sides = || pairs.iter().flat_map(|(one, other)| [one, other]);
        let has = |expr: &Expr, is: fn(&Node) -> bool| expr.nodes().iter().any(is);
        let computes = |expr: &Expr| {
            has(expr, |node| node.arity > 0) && has(expr, |node| matches!(node.op, Op::Column(_)))
        };
        let short = sides().map(|expr| expr.nodes().len()).sum::<usize>() <= LAZY_NODES_MAX;
        short && sides().skip(2).any(computes) && !sides().any(|expr| self.is_volatile(expr))
    }

    /// Binds a function call by name.
    pub(crate) fn call(
        &mut self,
        name: &str,
        mut arguments: Vec<Operand>,
        place: Place<'_>,
    ) -> Result<Operand, SqlError> {
        if SEES_BLANKS.contains(&name) {
            for argument in &mut arguments {
                if let Some(ty) = argument.ty {
                    *argument = self.padded(argument.clone(), ty)?;
                }
            }
        }
        if name.starts_with("to_json") || name.starts_with("json") && name.contains("_build_") {
            // A name of the catalog is a string of json; its number would be one too.
            for argument in &mut arguments {
                if argument.ty.is_some_and(|ty| ty.holds_oid() && ty != SqlType::Oid) {
                    let text =
                        self.parameters
                            .coerce(argument.clone(), SqlType::Text, CastContext::Explicit)?;
                    *argument = Operand::typed(text);
                }
            }
        }
        if matches!(name, "quote_literal" | "quote_nullable") {
            // PostgreSQL's functions take any type and cast it.
            for argument in &mut arguments {
                if argument.ty.is_some_and(|ty| !ty.is_text()) {
                    let text =
                        self.parameters
                            .coerce(argument.clone(), SqlType::Text, CastContext::Explicit)?;
                    *argument = Operand::typed(text);
                }
            }
        }
        let types: Vec<Option<SqlType>> = arguments.iter().map(|operand| operand.ty).collect();
        if matches!(name, "trunc" | "bit_count") && types == [None] {
            return Err(self.at(not_unique(&format!("{name}(unknown)")), place));
        }
        let extra = (self.env.functions)(name);
        let resolved = match resolve::resolve_function(extra, name, &types) {
            Ok(resolved) => resolved,
            Err(error) => {
                return self
                    .cast_by_name(name, arguments)
                    .unwrap_or(Err(error))
                    .map_err(|error| self.at(error, place));
            }
        };
        self.note_entry(resolved.entry);
        self.leave_untyped(&mut arguments, resolved.entry.arguments);
        let arguments = self.converted(arguments, &resolved.arguments);
        let arguments = arguments.map_err(|error| self.at(error, place))?;
        Ok(Operand::typed(Expr::new(
            Op::Call(resolved.entry),
            resolved.result,
            arguments,
        )))
    }
}

impl Binder<'_> {
    /// Leaves a parameter untyped where any type is accepted: its type must be inferred elsewhere, or binding
    /// the statement fails.
    pub(crate) fn leave_untyped(&mut self, operands: &mut [Operand], takes: &[Arg]) {
        for (place, operand) in operands.iter_mut().enumerate() {
            let arg = takes.get(place).or(takes.last());
            if let (None, Some(Arg::Any), Op::Parameter(number)) = (operand.ty, arg, &operand.expr.root().op)
            {
                self.parameters.leave_untyped(*number);
                operand.ty = Some(operand.expr.ty());
            }
        }
    }
}

/// A number after any number of minus signs, and whether it is negative.
fn signed_number(expr: &AstExpr) -> Option<(&str, bool)> {
    let (mut expr, mut negative) = (unnested(expr), false);
    while let AstExpr::UnaryOp {
        op: UnaryOperator::Minus,
        expr: inner,
    } = expr
    {
        (expr, negative) = (unnested(inner), !negative);
    }
    match expr {
        AstExpr::Value(value) => match &value.value {
            AstValue::Number(digits, _) => Some((digits, negative)),
            _ => None,
        },
        _ => None,
    }
}

/// Whether `||` appends text and a value whose text form does not depend on settings.
fn is_appended(entry: &Entry, left: &Operand, right: &Operand) -> bool {
    let is_fixed = |operand: &Operand| {
        operand
            .ty
            .is_some_and(|ty| ty.is_number() || matches!(ty, SqlType::Bool | SqlType::Uuid | SqlType::Bytea))
    };
    entry.name == "||" && entry.arguments.contains(&Arg::AnyNonArray) && (is_fixed(left) || is_fixed(right))
}

/// The error of a call for which PostgreSQL, which has more types, finds several candidates.
fn not_unique(call: &str) -> SqlError {
    SqlError::new(
        SqlState::AMBIGUOUS_FUNCTION,
        format!("function {call} is not unique"),
    )
    .hint("Could not choose a best candidate function. You might need to add explicit type casts.")
}

/// `(SELECT a, b) = (1, 2)`
fn is_row_query(left: &AstExpr, right: &AstExpr) -> bool {
    matches!(left, AstExpr::Subquery(_)) && row_items(right).is_some()
}

/// Operators that see the trailing blanks of a char(n).
fn is_pattern_operator(symbol: &str) -> bool {
    matches!(symbol, "~~" | "!~~" | "~~*" | "!~~*" | "~" | "~*" | "!~" | "!~*")
}
