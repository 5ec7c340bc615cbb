//! Operands, and parameters whose types are inferred from the statement.
//!
//! An [`Operand`] without a type is PostgreSQL's `unknown`: a quoted constant, NULL, or a parameter whose
//! type has not been inferred yet. Converting it gives it the type; a parameter then has that type in the
//! whole statement.

use sqlparser::tokenizer::Span;
use weft_expression::category::BPCHAR;
use weft_expression::resolve::{self, coerce};
use weft_expression::{Expr, Op};
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value, assign_from, cast_from};

use crate::names::position;

/// A bound expression.
#[derive(Clone, Debug)]
pub struct Operand {
    /// The expression. Without a type: a text constant, NULL or a parameter.
    pub expr: Expr,
    /// Its type; `None` is PostgreSQL's unknown.
    pub ty: Option<SqlType>,
    /// The position of a constant of unknown type.
    pub(crate) span: Span,
}

impl Operand {
    /// An expression of a type.
    #[must_use]
    pub fn typed(expr: Expr) -> Operand {
        let ty = Some(expr.ty());
        Operand {
            expr,
            ty,
            span: Span::empty(),
        }
    }

    /// Whether it is NULL without a type.
    fn is_null(&self) -> bool {
        self.ty.is_none() && matches!(self.expr.as_constant(), Some(Value::Null))
    }

    /// A quoted constant.
    pub(crate) fn quoted(text: impl Into<String>) -> Operand {
        Operand {
            expr: Expr::constant(Value::Text(text.into()), SqlType::Text),
            ty: None,
            span: Span::empty(),
        }
    }

    /// NULL
    pub(crate) fn null() -> Operand {
        Operand {
            expr: Expr::constant(Value::Null, SqlType::Text),
            ty: None,
            span: Span::empty(),
        }
    }

    /// The name of its type for messages.
    pub(crate) fn type_name(&self) -> String {
        self.ty
            .map_or_else(|| "unknown".to_owned(), |ty| ty.base_name().to_string())
    }
}

/// The types of `$1`, `$2`, ..., as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct ParameterTypes {
    types: Vec<Option<SqlType>>,
    /// Parameters used where no type can be inferred.
    open: Vec<u32>,
}

impl ParameterTypes {
    /// The types that the client declared.
    #[must_use]
    pub fn declared(types: &[Option<SqlType>]) -> ParameterTypes {
        ParameterTypes {
            types: types.to_vec(),
            open: Vec::new(),
        }
    }

    /// The number of parameters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.types.len()
    }

    /// All types, once the whole statement is bound.
    ///
    /// # Errors
    /// 42P18 or 42P08 for a parameter whose type cannot be inferred.
    pub fn finish(&self) -> Result<Vec<SqlType>, SqlError> {
        let decided = |number: &&u32| self.types.get(**number as usize).is_some_and(Option::is_some);
        if let Some(number) = self.open.iter().find(decided) {
            return Err(SqlError::new(
                SqlState::AMBIGUOUS_PARAMETER,
                format!("could not determine data type of parameter ${}", number + 1),
            ));
        }
        let typed = self.types.iter().enumerate().map(|(place, ty)| {
            ty.ok_or_else(|| {
                SqlError::new(
                    SqlState::INDETERMINATE_DATATYPE,
                    format!("could not determine data type of parameter ${}", place + 1),
                )
            })
        });
        typed.collect()
    }
}

/// The parameters of a statement that is being bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters<'a> {
    pub known: ParameterTypes,
    /// Whether an invalid constant raises its error only when it is evaluated, as in PL/pgSQL.
    pub converts_late: bool,
    /// The statement's text, for the positions of errors.
    text: &'a str,
}

/// Maximum number of parameters of a statement.
const PARAMETERS_MAX: usize = 65_535;

impl<'a> Parameters<'a> {
    pub fn declared(types: &[Option<SqlType>], text: &'a str) -> Parameters<'a> {
        Parameters {
            known: ParameterTypes::declared(types),
            converts_late: false,
            text,
        }
    }

    /// The number of parameters.
    pub fn count(&self) -> usize {
        self.known.count()
    }

    /// The operand `$number`, which is 1-based.
    pub fn operand(&mut self, number: &str) -> Result<Operand, SqlError> {
        let undefined = || {
            SqlError::new(
                SqlState::UNDEFINED_PARAMETER,
                format!("there is no parameter ${number}"),
            )
        };
        let place: usize = number.parse().map_err(|_| undefined())?;
        if place == 0 || place > PARAMETERS_MAX {
            return Err(undefined());
        }
        let types = &mut self.known.types;
        if types.len() < place {
            types.resize(place, None);
        }
        let ty = types.get(place - 1).copied().flatten();
        let leaf = Expr::leaf(Op::Parameter(place as u32 - 1), ty.unwrap_or(SqlType::Text));
        Ok(Operand {
            expr: leaf,
            ty,
            span: Span::empty(),
        })
    }

    /// The operand with the type that its parameter has acquired since.
    pub fn refreshed(&self, operand: Operand) -> Operand {
        let Op::Parameter(number) = operand.expr.root().op else {
            return operand;
        };
        match self.known.types.get(number as usize).copied().flatten() {
            Some(ty) if operand.ty.is_none() => Operand {
                expr: Expr::leaf(Op::Parameter(number), ty),
                ty: Some(ty),
                span: operand.span,
            },
            _ => operand,
        }
    }

    /// Sets the type of a parameter.
    fn decide(&mut self, number: u32, ty: SqlType) -> Result<(), SqlError> {
        let Some(slot) = self.known.types.get_mut(number as usize) else {
            return Err(SqlError::internal("a parameter has no number"));
        };
        match slot {
            None => *slot = Some(ty),
            Some(known) if *known == ty => {}
            Some(known) => {
                return Err(SqlError::new(
                    SqlState::AMBIGUOUS_PARAMETER,
                    format!("inconsistent types deduced for parameter ${}", number + 1),
                )
                .detail(format!("{} versus {}", known.base_name(), ty.base_name())));
            }
        }
        Ok(())
    }

    /// Converts the operand to a type.
    pub fn coerce(&mut self, operand: Operand, to: SqlType, context: CastContext) -> Result<Expr, SqlError> {
        let Operand {
            mut expr,
            mut ty,
            span,
        } = operand;
        if ty.is_none()
            && let Op::Parameter(number) = expr.root().op
        {
            let bare = without_modifier(to);
            self.decide(number, bare)?;
            for leaf in expr.nodes_mut() {
                leaf.ty = bare;
            }
            ty = Some(bare);
        }
        let late = match (ty, self.converts_late, expr.as_constant()) {
            // Constants that depend on the session's time zone are never converted late.
            (None, true, Some(Value::Text(_))) if to != SqlType::TimestampTz => Some(expr.clone()),
            _ => None,
        };
        match (coerce(expr, ty, to, context), late) {
            (Err(_), Some(text)) => Ok(convert_later(text, to, context == CastContext::Explicit)),
            (Ok(value), _) => Ok(folded(value)),
            (Err(error), _) if error.fields().position.is_none() => Err(match position(self.text, span) {
                Some(position) => error.position(position),
                None => error,
            }),
            (Err(error), _) => Err(error),
        }
    }

    /// Converts an operand without a type to text.
    pub fn settle(&mut self, operand: Operand) -> Result<Expr, SqlError> {
        match operand.ty {
            Some(_) => Ok(operand.expr),
            None => self.coerce(operand, SqlType::Text, CastContext::Implicit),
        }
    }

    /// Converts operands to a common type.
    pub fn common(&mut self, what: &str, operands: Vec<Operand>) -> Result<(Vec<Expr>, SqlType), SqlError> {
        let mut types: Vec<Option<SqlType>> = operands.iter().map(|operand| operand.ty).collect();
        if types.iter().any(|ty| matches!(ty, Some(SqlType::Char(_)))) {
            // The common length of char(n) determines the blanks, and NULL must not remove it.
            let written = operands.iter().filter(|operand| !operand.is_null());
            types = written.map(|operand| operand.ty).collect();
        }
        let ty = resolve::common_type(what, &types)?;
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            values.push(self.coerce(operand, ty, CastContext::Implicit)?);
        }
        Ok((values, ty))
    }

    /// Records that a parameter is used where no type can be inferred.
    pub fn leave_untyped(&mut self, number: u32) {
        self.known.open.push(number);
    }
}

/// An untyped constant that is converted to its type when it is evaluated.
fn convert_later(text: Expr, to: SqlType, explicit: bool) -> Expr {
    let cast = |expr: Expr, from: SqlType, to: SqlType, explicit: bool| {
        Expr::new(Op::Cast { from, explicit }, to, vec![expr])
    };
    let bare = to.without_typmod();
    if to.is_text() {
        return cast(text, SqlType::Text, to, explicit);
    }
    let read = cast(text, SqlType::Text, bare, true);
    match bare == to {
        true => read,
        false => cast(read, bare, to, explicit),
    }
}

/// Converts a numeric constant at once if possible.
fn folded(expr: Expr) -> Expr {
    let to = expr.ty();
    let [constant, cast] = expr.nodes() else {
        return expr;
    };
    let (Op::Constant(value), Op::Cast { from, explicit }) = (&constant.op, &cast.op) else {
        return expr;
    };
    if !from.is_number() || !to.is_number() {
        return expr;
    }
    let converted = match explicit {
        true => cast_from(value.clone(), from, &to),
        false => assign_from(value.clone(), from, &to),
    };
    match converted {
        Ok(value) => Expr::constant(value, to),
        Err(_) => expr,
    }
}

/// The type that a parameter takes.
fn without_modifier(ty: SqlType) -> SqlType {
    match ty {
        SqlType::Char(_) => BPCHAR,
        other => other.without_typmod(),
    }
}
