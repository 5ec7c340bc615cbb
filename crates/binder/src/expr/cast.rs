//! Casts.

use sqlparser::ast::{CastKind, DataType, Expr as AstExpr, ObjectName};
use weft_expression::category::element_of;
use weft_expression::{Expr, functions};
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use super::unnested;
use crate::binder::Binder;
use crate::names::{Place, last_part};
use crate::parameters::Operand;
use crate::types::{self, Named};

impl Binder<'_> {
    pub(super) fn cast_expr(
        &mut self,
        kind: &CastKind,
        inner: &AstExpr,
        data_type: &DataType,
    ) -> Result<Operand, SqlError> {
        if !matches!(kind, CastKind::Cast | CastKind::DoubleColon) {
            return Err(SqlError::unsupported("this form of cast is not supported"));
        }
        if let Some((read, write)) = named_oid(data_type) {
            let operand = self.expr(inner)?;
            let reads = operand.ty.is_none_or(|ty| ty.is_text() || ty == SqlType::Name);
            let function = if reads { read } else { write };
            return self
                .cast_call(function, operand)
                .map_err(|error| self.at(error, inner));
        }
        let named = types::named(data_type).map_err(|error| self.at(error, inner))?;
        let bound = match unnested(inner) {
            AstExpr::Array(array) if element_of(&named.ty).is_some() => self.array_as(&array.elem, named.ty),
            inner => {
                let operand = self.expr(inner)?;
                self.cast(operand, named, CastContext::Explicit)
            }
        };
        bound.map_err(|error| self.at(error, inner))
    }

    /// Converts the operand to a type and truncates fractional digits of date/time types.
    pub(crate) fn cast(
        &mut self,
        operand: Operand,
        to: Named,
        context: CastContext,
    ) -> Result<Operand, SqlError> {
        if let Some(function) = reg_function(&operand, to.ty)
            && !(self.env.functions)(function).is_empty()
        {
            let read = self.cast_call(function, operand)?;
            return match read.ty == Some(to.ty) {
                true => Ok(read),
                false => self.cast(read, to, context),
            };
        }
        let value = self.parameters.coerce(operand, to.ty, context)?;
        let Some(digits) = to.digits else {
            return Ok(Operand::typed(value));
        };
        if functions::functions("timestamp_scale").is_empty() {
            return Err(SqlError::unsupported(format!(
                "{} with a number of digits is not supported",
                to.ty.base_name()
            )));
        }
        let digits = Expr::constant(Value::Int4(i32::try_from(digits).unwrap_or(6)), SqlType::Int4);
        let scale = match to.ty {
            SqlType::TimestampTz => "timestamptz_scale",
            SqlType::Time => "time_scale",
            SqlType::Interval => "interval_scale",
            _ => "timestamp_scale",
        };
        self.call(
            scale,
            vec![Operand::typed(value), Operand::typed(digits)],
            Place::Unknown,
        )
    }

    /// A cast that calls a function of the system catalogs.
    fn cast_call(&mut self, function: &str, operand: Operand) -> Result<Operand, SqlError> {
        let value = match operand.ty {
            None => Operand::typed(self.parameters.settle(operand)?),
            Some(ty) if ty.is_number() => Operand::typed(self.parameters.coerce(
                operand,
                SqlType::Oid,
                CastContext::Explicit,
            )?),
            Some(_) => operand,
        };
        self.call(function, vec![value], Place::Unknown)
    }

    /// `int4(x)`: a call by the name of a type; `None` if there is no such type or conversion.
    pub(super) fn cast_by_name(
        &mut self,
        name: &str,
        arguments: Vec<Operand>,
    ) -> Option<Result<Operand, SqlError>> {
        let mut arguments = arguments;
        let (Some(argument), true) = (arguments.pop(), arguments.is_empty()) else {
            return None;
        };
        let ty = types::by_name(name)?;
        let is_cast = match argument.ty {
            None => true,
            Some(from) => weft_types::cast_context(&from, &ty).is_some(),
        };
        if !is_cast {
            return None;
        }
        let named = Named { ty, digits: None };
        Some(self.cast(argument, named, CastContext::Explicit))
    }

    /// `expr COLLATE "C"`
    pub(super) fn collate(&mut self, inner: &AstExpr, collation: &ObjectName) -> Result<Operand, SqlError> {
        let operand = self.expr(inner)?;
        let name = last_part(collation).unwrap_or_default();
        if !matches!(name.as_str(), "C" | "POSIX" | "default" | "ucs_basic") {
            let error = SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("collation \"{name}\" for encoding \"UTF8\" does not exist"),
            );
            return Err(self.at(error, inner));
        }
        match operand.ty {
            None => Ok(Operand::typed(self.parameters.settle(operand)?)),
            Some(ty) if ty.is_text() || matches!(ty, SqlType::Name) => Ok(operand),
            Some(ty) if element_of(&ty).is_some_and(|element| element.is_text()) => Ok(operand),
            Some(_) => {
                let error = SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!("collations are not supported by type {}", operand.type_name()),
                );
                Err(self.at(error, inner))
            }
        }
    }

    /// Converts a value for assignment to a column.
    pub(crate) fn assigned(&mut self, operand: Operand, column: &str, to: SqlType) -> Result<Expr, SqlError> {
        let given = operand.type_name();
        if let Some(function) = reg_function(&operand, to)
            && !(self.env.functions)(function).is_empty()
        {
            let named = Named { ty: to, digits: None };
            return self
                .cast(operand, named, CastContext::Assignment)
                .map(|operand| operand.expr);
        }
        let value = self.parameters.coerce(operand, to, CastContext::Assignment);
        value.map_err(|error| {
            if error.state != SqlState::DATATYPE_MISMATCH && error.state != SqlState::CANNOT_COERCE {
                return error;
            }
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{column}\" is of type {} but expression is of type {given}",
                    to.base_name()
                ),
            )
            .hint("You will need to rewrite or cast the expression.")
        })
    }
}

/// The system catalog function that converts between an oid and a name.
fn reg_function(operand: &Operand, to: SqlType) -> Option<&'static str> {
    let from = operand.ty;
    if from.is_none()
        && operand
            .expr
            .as_constant()
            .is_some_and(|value| *value == Value::Null)
    {
        return None;
    }
    let reads = from.is_none_or(|from| from.is_text() || matches!(from, SqlType::Name));
    match (to, from) {
        (SqlType::Regclass, _) if reads => Some("regclassin"),
        (SqlType::Regtype, _) if reads => Some("regtypein"),
        (SqlType::Regproc, _) if reads => Some("regprocin"),
        (SqlType::Regnamespace, _) if reads => Some("regnamespacein"),
        (to, Some(SqlType::Regclass)) if to.is_text() => Some("regclassout"),
        (to, Some(SqlType::Regtype)) if to.is_text() => Some("regtypeout"),
        (to, Some(SqlType::Regproc)) if to.is_text() => Some("regprocout"),
        (to, Some(SqlType::Regnamespace)) if to.is_text() => Some("regnamespaceout"),
        _ => None,
    }
}

/// Types of oids that identify roles by name. They are stored as oids; a cast to one converts an oid to the
/// name.
fn named_oid(data_type: &DataType) -> Option<(&'static str, &'static str)> {
    let DataType::Custom(name, arguments) = data_type else {
        return None;
    };
    let is_role = arguments.is_empty() && last_part(name)? == "regrole";
    is_role.then_some(("regrolein", "pg_get_userbyid"))
}
