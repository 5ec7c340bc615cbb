//! The binder: from an expression's syntax tree to a [`Scalar`], with types resolved as PostgreSQL resolves
//! them.
//!
//! Only what a point statement may contain is bound: one table's columns, parameters, literals, arithmetic,
//! comparison, logic, CASE, casts and functions ([`super::bind_calls`]). Everything else is refused with
//! [`Refusal::General`], whereupon the statement goes the general way through the query engine. Errors that
//! the general way would report too (an unknown column, an operator that does not exist) are reported here,
//! with their position.
//!
//! Types (PostgreSQL chapter 10, the part that matters here): a quoted literal, NULL or an untyped parameter
//! is of *unknown* type and takes the type of what it meets; integers widen to the wider side; an integer or
//! real that meets another kind of number is computed in double precision.

use sqlparser::ast::{self, BinaryOperator, Expr, Ident, UnaryOperator};
use weft_program::Function;
use weft_store::{Catalog, TableDef};
use weft_types::{CastContext, SqlError, SqlState, SqlType, TimeZone, Value, cast_context};

use super::bind_aggregates::AggregateCall;
use super::bind_calls::{called, numeric_function};
use super::compile::values::needs_zone;
use super::literals::{number_literal, parse_unknown};
use super::params::ParamTypes;
use super::scalar::{ArithmeticOp, CompareOp, Scalar};
use super::type_rules::{
    arithmetic_op, arithmetic_symbol, base_type, compare_op, integer_width, is_date_like, is_float,
    is_integer, is_number, is_system_column,
};
use super::{functions, names};
use crate::error;
use weft_binder::sql_type;

/// Deepest expression that is bound; deeper ones go the general way.
const DEPTH_MAX: usize = 64;
/// Longest IN list that becomes a chain of comparisons.
const IN_LIST_MAX: usize = 16;

/// Why something is not bound here.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Not in the reach of programs: plan it in general form.
    General,
    /// An error of the user.
    Error(SqlError),
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Self {
        Refusal::Error(error)
    }
}

/// An expression and its type; `None` is PostgreSQL's *unknown*.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) scalar: Scalar,
    pub(crate) ty: Option<SqlType>,
}

impl Typed {
    pub(super) fn known(scalar: Scalar, ty: SqlType) -> Self {
        Typed { scalar, ty: Some(ty) }
    }
}

/// The one table that columns may come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    pub(crate) table: &'a TableDef,
    /// What expressions call it.
    pub(crate) alias: &'a str,
}

/// What a name stands for that is no column: the variables and parameters of a procedure.
pub(crate) trait Variables {
    /// `name` or `qualifier.name`.
    fn named(&self, qualifier: Option<&str>, name: &str) -> Option<Typed>;
    /// `$n`, from 1.
    fn positional(&self, number: usize) -> Option<Typed>;
    /// Whether a constant that cannot be converted is an error only where control gets to it, as in PL/pgSQL.
    fn converts_late(&self) -> bool;
}

/// A type that programs compute with; times of few digits are not among them.
fn point_type(data_type: &ast::DataType) -> Bound<SqlType> {
    let digits = matches!(
        data_type,
        ast::DataType::Timestamp(Some(_), _) | ast::DataType::Time(..) | ast::DataType::Interval { .. }
    );
    match sql_type(data_type) {
        Ok(ty) if !digits && is_stored(&ty) => Ok(ty),
        _ => Err(Refusal::General),
    }
}

/// The types that programs have always had.
fn is_stored(ty: &SqlType) -> bool {
    matches!(
        ty,
        SqlType::Bool
            | SqlType::Int2
            | SqlType::Int4
            | SqlType::Int8
            | SqlType::Float4
            | SqlType::Float8
            | SqlType::Numeric(_)
            | SqlType::Text
            | SqlType::Varchar(_)
            | SqlType::Char(1..)
            | SqlType::Bytea
            | SqlType::Date
            | SqlType::Timestamp
            | SqlType::TimestampTz
            | SqlType::Uuid
    )
}

/// Binds expressions of one statement.
pub(crate) struct Binder<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) scope: Option<Scope<'a>>,
    pub(crate) params: &'a mut ParamTypes,
    /// The statement's text, for positions.
    pub(crate) text: &'a str,
    /// ON CONFLICT DO UPDATE: what `excluded.column` stands for, in column order.
    pub(crate) excluded: Option<&'a [Scalar]>,
    /// Inside a procedure.
    pub(crate) variables: Option<&'a dyn Variables>,
    /// Where calls of aggregates are collected; `None` where none may stand.
    pub(crate) aggregates: Option<&'a mut Vec<AggregateCall>>,
    depth: usize,
}

pub(super) type Bound<T> = Result<T, Refusal>;

impl<'a> Binder<'a> {
    pub(crate) fn new(
        catalog: &'a Catalog,
        scope: Option<Scope<'a>>,
        params: &'a mut ParamTypes,
        text: &'a str,
    ) -> Self {
        Binder {
            catalog,
            scope,
            params,
            text,
            excluded: None,
            variables: None,
            aggregates: None,
            depth: 0,
        }
    }

    /// Binds an expression.
    pub(crate) fn bind(&mut self, expr: &Expr) -> Bound<Typed> {
        if self.depth >= DEPTH_MAX {
            return Err(Refusal::General);
        }
        self.depth += 1;
        let bound = self.bind_inner(expr);
        self.depth -= 1;
        bound
    }

    fn bind_inner(&mut self, expr: &Expr) -> Bound<Typed> {
        match expr {
            Expr::Nested(inner) => self.bind(inner),
            Expr::Identifier(ident) => self.column(&[], ident),
            Expr::CompoundIdentifier(parts) => match parts.split_last() {
                Some((column, qualifier)) => self.column(qualifier, column),
                None => Err(Refusal::General),
            },
            Expr::Value(value) => self.literal(&value.value, false),
            Expr::UnaryOp { op, expr } => self.unary(op, expr),
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right),
            Expr::IsNull(inner) => self.is_null(inner),
            Expr::IsNotNull(inner) => Ok(not(self.is_null(inner)?)),
            Expr::IsTrue(inner) => self.truth_test(inner, true),
            Expr::IsFalse(inner) => self.truth_test(inner, false),
            Expr::IsNotTrue(inner) => Ok(not(self.truth_test(inner, true)?)),
            Expr::IsNotFalse(inner) => Ok(not(self.truth_test(inner, false)?)),
            Expr::Between {
                expr,
                negated,
                low,
                high,
            } => self.between(expr, *negated, low, high),
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated),
            Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr,
                data_type,
                array: false,
                ..
            } => self.cast(expr, data_type),
            Expr::TypedString(typed) => {
                let ty = point_type(&typed.data_type)?;
                let inner = self.literal(&typed.value.value, false)?;
                Ok(Typed::known(self.explicit(inner, &ty)?, ty))
            }
            Expr::Function(function) => self.function(function),
            other => self.special_form(other),
        }
    }

    fn position(&self, ident: &Ident) -> Option<u32> {
        let start = ident.span.start;
        if start.line == 0 || self.text.is_empty() {
            return None;
        }
        let line_start: usize = self
            .text
            .split_inclusive('\n')
            .take(start.line as usize - 1)
            .map(|line| line.chars().count())
            .sum();
        u32::try_from(line_start as u64 + start.column).ok()
    }

    fn at(&self, error: SqlError, ident: &Ident) -> SqlError {
        match self.position(ident) {
            Some(position) => error.position(position),
            None => error,
        }
    }

    fn column(&mut self, qualifier: &[Ident], column: &Ident) -> Bound<Typed> {
        let name = names::ident(column);
        if let Some(found) = self.variable(qualifier, column, &name)? {
            return Ok(found);
        }
        let Some(scope) = self.scope else {
            if qualifier.is_empty() {
                if let Some(which) = functions::bare_word(&name).filter(|_| column.quote_style.is_none()) {
                    return Ok(Typed::known(Scalar::Session(which), which.ty()));
                }
                return Err(self.at(error::undefined_column(&name), column).into());
            }
            return Err(Refusal::General);
        };
        match qualifier.last().map(names::ident) {
            None => {}
            Some(table) if table == scope.alias => {}
            Some(table) if table == "excluded" && self.excluded.is_some() => {
                let number = scope.table.column_index(&name);
                let found = number.and_then(|number| {
                    Some(Typed::known(
                        self.excluded?.get(number)?.clone(),
                        scope.table.columns.get(number)?.ty,
                    ))
                });
                let missing = || {
                    SqlError::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column excluded.{name} does not exist"),
                    )
                };
                return found.ok_or_else(|| self.at(missing(), column).into());
            }
            Some(table) => {
                let error = SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("missing FROM-clause entry for table \"{table}\""),
                );
                return match qualifier {
                    [only] => Err(self.at(error, only).into()),
                    _ => Err(Refusal::General),
                };
            }
        }
        match scope.table.column_index(&name) {
            Some(number) => {
                let ty = scope
                    .table
                    .columns
                    .get(number)
                    .map(|column| column.ty)
                    .ok_or(Refusal::General)?;
                Ok(Typed::known(Scalar::Column(number as u16), ty))
            }
            // System columns, whole-row references and bare words such as current_user.
            None if is_system_column(&name) || name == scope.alias => Err(Refusal::General),
            None if functions::bare_word(&name).is_some() && qualifier.is_empty() => {
                let which = functions::bare_word(&name).ok_or(Refusal::General)?;
                Ok(Typed::known(Scalar::Session(which), which.ty()))
            }
            None => {
                let shown = match qualifier.last() {
                    Some(table) => format!("{}.{name}", names::ident(table)),
                    None => name.clone(),
                };
                let error = if qualifier.is_empty() {
                    error::undefined_column(&shown)
                } else {
                    SqlError::new(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column {shown} does not exist"),
                    )
                };
                Err(self.at(error, qualifier.first().unwrap_or(column)).into())
            }
        }
    }

    /// The variable that a name stands for. A name that is a column too is ambiguous, as PL/pgSQL has it.
    fn variable(&self, qualifier: &[Ident], column: &Ident, name: &str) -> Bound<Option<Typed>> {
        let Some(variables) = self.variables else {
            return Ok(None);
        };
        let table = match qualifier {
            [] => None,
            [only] => Some(names::ident(only)),
            _ => return Ok(None),
        };
        let of_row = |scope: &Scope<'_>| table.as_deref().is_some_and(|table| table == scope.alias);
        if self.scope.as_ref().is_some_and(of_row) {
            return Ok(None);
        }
        let Some(found) = variables.named(table.as_deref(), name) else {
            return Ok(None);
        };
        let is_column = self
            .scope
            .is_some_and(|scope| table.is_none() && scope.table.column_index(name).is_some());
        if is_column {
            let error = SqlError::new(
                SqlState::AMBIGUOUS_COLUMN,
                format!("column reference \"{name}\" is ambiguous"),
            )
            .detail("It could refer to either a PL/pgSQL variable or a table column.");
            return Err(self.at(error, column).into());
        }
        Ok(Some(found))
    }

    pub(super) fn literal(&mut self, value: &ast::Value, negative: bool) -> Bound<Typed> {
        use ast::Value as V;
        match value {
            V::Number(digits, false) => number_literal(digits, negative),
            V::SingleQuotedString(text) | V::EscapedStringLiteral(text) | V::UnicodeStringLiteral(text) => {
                Ok(Typed {
                    scalar: Scalar::Constant(Value::Text(text.clone())),
                    ty: None,
                })
            }
            V::DollarQuotedString(text) => Ok(Typed {
                scalar: Scalar::Constant(Value::Text(text.value.clone())),
                ty: None,
            }),
            V::Boolean(value) => Ok(Typed::known(Scalar::Constant(Value::Bool(*value)), SqlType::Bool)),
            V::Null => Ok(Typed {
                scalar: Scalar::Constant(Value::Null),
                ty: None,
            }),
            V::Placeholder(text) if self.variables.is_some() => {
                let number = text.strip_prefix('$').and_then(|digits| digits.parse().ok());
                number
                    .and_then(|number| self.variables?.positional(number))
                    .ok_or_else(|| {
                        let message = format!("there is no parameter {text}");
                        SqlError::new(SqlState::UNDEFINED_PARAMETER, message).into()
                    })
            }
            V::Placeholder(text) => {
                let number = self.params.placeholder(text)?;
                Ok(Typed {
                    scalar: Scalar::Input(number as u16),
                    ty: self.params.get(number),
                })
            }
            _ => Err(Refusal::General),
        }
    }

    fn unary(&mut self, op: &UnaryOperator, expr: &Expr) -> Bound<Typed> {
        match op {
            UnaryOperator::Minus => {
                // A sign before a number is part of the number, as PostgreSQL's grammar has it: -2147483648
                // is an integer.
                let (mut signed, mut negative) = (expr, true);
                loop {
                    match signed {
                        Expr::Nested(inner) => signed = inner,
                        Expr::UnaryOp {
                            op: UnaryOperator::Minus,
                            expr: inner,
                        } => (signed, negative) = (inner, !negative),
                        _ => break,
                    }
                }
                if let Expr::Value(value) = signed
                    && matches!(value.value, ast::Value::Number(..))
                {
                    return self.literal(&value.value, negative);
                }
                let inner = self.bind(expr)?;
                match inner.ty {
                    Some(ty) if is_integer(&ty) || is_float(&ty) => {
                        Ok(Typed::known(Scalar::Negate(Box::new(inner.scalar)), ty))
                    }
                    Some(SqlType::Numeric(_)) => Ok(called(Function::NumericNeg, vec![inner.scalar])),
                    _ => Err(Refusal::General),
                }
            }
            UnaryOperator::Plus => {
                let inner = self.bind(expr)?;
                match inner.ty {
                    Some(ty) if is_number(&ty) => Ok(inner),
                    _ => Err(Refusal::General),
                }
            }
            UnaryOperator::Not => {
                let inner = self.bind(expr)?;
                Ok(not(Typed::known(self.condition(inner, "NOT")?, SqlType::Bool)))
            }
            _ => Err(Refusal::General),
        }
    }

    fn binary(&mut self, left: &Expr, op: &BinaryOperator, right: &Expr) -> Bound<Typed> {
        if let Some(op) = compare_op(op) {
            let (left, right) = (self.bind(left)?, self.bind(right)?);
            return self.comparison(op, left, right);
        }
        if let Some(op) = arithmetic_op(op) {
            let (left, right) = (self.bind(left)?, self.bind(right)?);
            return self.arithmetic(op, left, right);
        }
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let place = if matches!(op, BinaryOperator::And) {
                    "AND"
                } else {
                    "OR"
                };
                let left = self.bind(left)?;
                let left = Box::new(self.condition(left, place)?);
                let right = self.bind(right)?;
                let right = Box::new(self.condition(right, place)?);
                let scalar = if place == "AND" {
                    Scalar::And(left, right)
                } else {
                    Scalar::Or(left, right)
                };
                Ok(Typed::known(scalar, SqlType::Bool))
            }
            BinaryOperator::StringConcat => {
                let (left, right) = (self.bind(left)?, self.bind(right)?);
                let is_text =
                    |typed: &Typed| matches!(typed.ty, None | Some(SqlType::Text | SqlType::Varchar(_)));
                // Anything may be appended to a text: it is shown.
                if !is_text(&left) && !is_text(&right) {
                    return Err(Refusal::General);
                }
                let left = Box::new(self.shown(left)?);
                let right = Box::new(self.shown(right)?);
                Ok(Typed::known(Scalar::Concat(left, right), SqlType::Text))
            }
            _ => Err(Refusal::General),
        }
    }

    pub(crate) fn comparison(&mut self, op: CompareOp, left: Typed, right: Typed) -> Bound<Typed> {
        let ty = self.common_type(&left, &right, op.symbol())?;
        let left = Box::new(self.coerce(left, &ty)?);
        let right = Box::new(self.coerce(right, &ty)?);
        Ok(Typed::known(Scalar::Compare(op, left, right), SqlType::Bool))
    }

    pub(super) fn arithmetic(&mut self, op: ArithmeticOp, left: Typed, right: Typed) -> Bound<Typed> {
        let symbol = arithmetic_symbol(op);
        if left.ty.is_none() && right.ty.is_none() {
            return Err(Refusal::General);
        }
        if left.ty == Some(SqlType::Date) {
            return self.date_arithmetic(op, left, right);
        }
        let all_numbers = [&left, &right]
            .iter()
            .all(|side| side.ty.as_ref().is_none_or(is_number));
        if !all_numbers {
            return Err(Refusal::General);
        }
        let ty = self.common_type(&left, &right, symbol)?;
        if op == ArithmeticOp::Modulo && is_float(&ty) {
            return Err(Refusal::General);
        }
        let left = self.coerce(left, &ty)?;
        let right = self.coerce(right, &ty)?;
        if matches!(ty, SqlType::Numeric(_)) {
            return Ok(called(numeric_function(op), vec![left, right]));
        }
        Ok(Typed::known(
            Scalar::Arithmetic(op, Box::new(left), Box::new(right)),
            ty,
        ))
    }

    /// A date and days, or the days between two dates.
    fn date_arithmetic(&mut self, op: ArithmeticOp, left: Typed, right: Typed) -> Bound<Typed> {
        match (op, right.ty) {
            (ArithmeticOp::Subtract, Some(SqlType::Date)) => {
                Ok(called(Function::DateDiff, vec![left.scalar, right.scalar]))
            }
            (ArithmeticOp::Add | ArithmeticOp::Subtract, Some(SqlType::Int2 | SqlType::Int4)) => {
                let days = self.coerce(right, &SqlType::Int4)?;
                let days = match op {
                    ArithmeticOp::Add => days,
                    _ => Scalar::Negate(Box::new(days)),
                };
                Ok(called(Function::DateAdd, vec![left.scalar, days]))
            }
            _ => Err(Refusal::General),
        }
    }

    /// The type in which an operator on two sides works.
    fn common_type(&self, left: &Typed, right: &Typed, symbol: &str) -> Bound<SqlType> {
        let (left, right) = match (left.ty, right.ty) {
            (None, None) => return Ok(SqlType::Text),
            (Some(ty), None) | (None, Some(ty)) => return Ok(base_type(&ty)),
            (Some(left), Some(right)) => (left, right),
        };
        if left.same_storage(&right) && matches!(left, SqlType::Char(_)) == matches!(right, SqlType::Char(_))
        {
            return Ok(base_type(&left));
        }
        if is_integer(&left) && is_integer(&right) {
            return Ok(if integer_width(&left) >= integer_width(&right) {
                left
            } else {
                right
            });
        }
        let exact = |ty: &SqlType| is_integer(ty) || matches!(ty, SqlType::Numeric(_));
        if exact(&left) && exact(&right) {
            return Ok(SqlType::Numeric(None));
        }
        let number = |ty: &SqlType| exact(ty) || is_float(ty);
        if number(&left) && number(&right) {
            return Ok(SqlType::Float8);
        }
        let implicit = |from, to| cast_context(from, to) == Some(CastContext::Implicit);
        if implicit(&left, &right) || implicit(&right, &left) {
            return Err(Refusal::General);
        }
        if is_date_like(&left) || is_date_like(&right) {
            return Err(Refusal::General);
        }
        Err(error::undefined_operator(&left, symbol, &right).into())
    }

    /// The expression in another type, as an operator needs it.
    pub(crate) fn coerce(&mut self, typed: Typed, to: &SqlType) -> Bound<Scalar> {
        let Some(from) = typed.ty else {
            return self.resolve_unknown(typed.scalar, to);
        };
        if from.same_storage(to) && matches!(from, SqlType::Char(_)) == matches!(to, SqlType::Char(_)) {
            return Ok(typed.scalar);
        }
        self.check_zone(&from, to)?;
        Ok(Scalar::Cast(Box::new(typed.scalar), from, *to))
    }

    /// A conversion that depends on the session's zone is made here in UTC only.
    fn check_zone(&self, from: &SqlType, to: &SqlType) -> Bound<()> {
        match self.params.zone != TimeZone::UTC && needs_zone(from, to) {
            true => Err(Refusal::General),
            false => Ok(()),
        }
    }

    /// An unknown literal or parameter becomes a value of a type.
    fn resolve_unknown(&mut self, scalar: Scalar, to: &SqlType) -> Bound<Scalar> {
        match scalar {
            Scalar::Constant(Value::Text(text)) => {
                let value = parse_unknown(&text, to, &self.params.zone);
                self.converted(value, &SqlType::Text, to, || {
                    let text = Box::new(Scalar::Constant(Value::Text(text)));
                    Scalar::Cast(text, SqlType::Text, base_type(to))
                })
            }
            Scalar::Input(number) => {
                self.params.learn(usize::from(number), base_type(to));
                match self.params.get(usize::from(number)) {
                    Some(known) if known.same_storage(to) => Ok(Scalar::Input(number)),
                    Some(known) => {
                        self.check_zone(&known, to)?;
                        Ok(Scalar::Cast(Box::new(Scalar::Input(number)), known, *to))
                    }
                    None => Ok(Scalar::Input(number)),
                }
            }
            other => Ok(other),
        }
    }

    /// A converted constant; if it could not be, the conversion is made (and fails) where control gets to it.
    fn converted(
        &self,
        value: Result<Value, SqlError>,
        from: &SqlType,
        to: &SqlType,
        conversion: impl FnOnce() -> Scalar,
    ) -> Bound<Scalar> {
        let late = || self.variables.is_some_and(|variables| variables.converts_late());
        // What needs the session's time zone no program converts.
        let is_computed = |ty: &SqlType| !matches!(ty, SqlType::TimestampTz);
        match value {
            Ok(value) => Ok(Scalar::Constant(value)),
            Err(_) if late() && is_computed(from) && is_computed(to) => Ok(conversion()),
            Err(error) => Err(error.into()),
        }
    }

    /// The expression as a condition.
    pub(crate) fn condition(&mut self, typed: Typed, place: &str) -> Bound<Scalar> {
        match typed.ty {
            Some(SqlType::Bool) => Ok(typed.scalar),
            None => self.resolve_unknown(typed.scalar, &SqlType::Bool),
            Some(other) => Err(error::not_boolean(place, &other).into()),
        }
    }

    /// The expression on its way into a column.
    pub(crate) fn assign(&mut self, typed: Typed, column: &weft_store::ColumnDef) -> Bound<Scalar> {
        let to = column.ty;
        let base = base_type(&to);
        let (scalar, from) = match typed.ty {
            Some(from) => (typed.scalar, from),
            None => (self.resolve_unknown(typed.scalar, &base)?, base),
        };
        if let Scalar::Constant(value) = scalar {
            if cast_context(&from, &to).is_none_or(|context| context > CastContext::Assignment) && from != to
            {
                return Err(error::assignment_mismatch(&column.name, &to, &from).into());
            }
            self.check_zone(&from, &to)?;
            let assigned = weft_types::assign_from(value.clone(), &from, &to);
            return self.converted(assigned, &from, &to, || {
                Scalar::Assign(Box::new(Scalar::Constant(value)), from, to)
            });
        }
        if weft_program::fits_without_check(&from, &to) && !matches!(to, SqlType::Char(_)) {
            return Ok(scalar);
        }
        let plain_copy = matches!(scalar, Scalar::Column(_)) && from == to;
        if plain_copy {
            return Ok(scalar);
        }
        if !from.same_storage(&to)
            && cast_context(&from, &to).is_none_or(|context| context > CastContext::Assignment)
        {
            return Err(error::assignment_mismatch(&column.name, &to, &from).into());
        }
        self.check_zone(&from, &to)?;
        Ok(Scalar::Assign(Box::new(scalar), from, to))
    }

    /// The expression by itself, e.g. in a select list: unknown becomes text.
    pub(crate) fn settle(&mut self, typed: Typed) -> Bound<(Scalar, SqlType)> {
        match typed.ty {
            Some(ty) => Ok((typed.scalar, ty)),
            None => Ok((self.resolve_unknown(typed.scalar, &SqlType::Text)?, SqlType::Text)),
        }
    }

    fn explicit(&mut self, typed: Typed, to: &SqlType) -> Bound<Scalar> {
        let Some(from) = typed.ty else {
            let base = base_type(to);
            let scalar = self.resolve_unknown(typed.scalar, &base)?;
            return Ok(match scalar {
                Scalar::Constant(value) => self.cast_constant(value, &base, to)?,
                other if base == *to && !matches!(to, SqlType::Char(_)) => other,
                other => Scalar::Cast(Box::new(other), base, *to),
            });
        };
        if from == *to {
            return Ok(typed.scalar);
        }
        if cast_context(&from, to).is_none() && !from.same_storage(to) {
            return Err(SqlError::new(
                SqlState::CANNOT_COERCE,
                format!(
                    "cannot cast type {} to {}",
                    error::bare_name(&from),
                    error::bare_name(to)
                ),
            )
            .into());
        }
        self.check_zone(&from, to)?;
        Ok(match typed.scalar {
            Scalar::Constant(value) => self.cast_constant(value, &from, to)?,
            other => Scalar::Cast(Box::new(other), from, *to),
        })
    }

    fn cast_constant(&self, value: Value, from: &SqlType, to: &SqlType) -> Bound<Scalar> {
        let cast = weft_types::cast_from(value.clone(), from, to);
        self.converted(cast, from, to, || {
            Scalar::Cast(Box::new(Scalar::Constant(value)), *from, *to)
        })
    }

    fn cast(&mut self, expr: &Expr, data_type: &ast::DataType) -> Bound<Typed> {
        let ty = point_type(data_type)?;
        let inner = self.bind(expr)?;
        Ok(Typed::known(self.explicit(inner, &ty)?, ty))
    }

    fn is_null(&mut self, expr: &Expr) -> Bound<Typed> {
        let inner = self.bind(expr)?;
        let (scalar, _) = self.settle(inner)?;
        Ok(Typed::known(Scalar::IsNull(Box::new(scalar)), SqlType::Bool))
    }

    /// IS TRUE, IS FALSE: never NULL.
    fn truth_test(&mut self, expr: &Expr, wanted: bool) -> Bound<Typed> {
        let inner = self.bind(expr)?;
        let inner = self.condition(inner, if wanted { "IS TRUE" } else { "IS FALSE" })?;
        let not_null = Scalar::Not(Box::new(Scalar::IsNull(Box::new(inner.clone()))));
        let value = if wanted {
            inner
        } else {
            Scalar::Not(Box::new(inner))
        };
        Ok(Typed::known(
            Scalar::And(Box::new(value), Box::new(not_null)),
            SqlType::Bool,
        ))
    }

    fn between(&mut self, expr: &Expr, negated: bool, low: &Expr, high: &Expr) -> Bound<Typed> {
        let tested = self.bind(expr)?;
        let low = self.bind(low)?;
        let high = self.bind(high)?;
        let above = self.comparison(CompareOp::Ge, tested.clone(), low)?;
        let below = self.comparison(CompareOp::Le, tested, high)?;
        let both = Typed::known(
            Scalar::And(Box::new(above.scalar), Box::new(below.scalar)),
            SqlType::Bool,
        );
        Ok(if negated { not(both) } else { both })
    }

    fn in_list(&mut self, expr: &Expr, list: &[Expr], negated: bool) -> Bound<Typed> {
        if list.len() > IN_LIST_MAX {
            return Err(Refusal::General);
        }
        let tested = self.bind(expr)?;
        let mut any: Option<Scalar> = None;
        for item in list {
            let item = self.bind(item)?;
            let equal = self.comparison(CompareOp::Eq, tested.clone(), item)?.scalar;
            any = Some(match any {
                Some(before) => Scalar::Or(Box::new(before), Box::new(equal)),
                None => equal,
            });
        }
        let any = Typed::known(any.ok_or(Refusal::General)?, SqlType::Bool);
        Ok(if negated { not(any) } else { any })
    }
}

pub(super) fn not(typed: Typed) -> Typed {
    Typed {
        scalar: Scalar::Not(Box::new(typed.scalar)),
        ty: typed.ty,
    }
}
