//! Function calls.

use sqlparser::ast::{Expr as AstExpr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};
use sqlparser::tokenizer::Span;
use weft_expression::category::element_of;
use weft_expression::resolve::{Operator, compared_left, is_aggregate, is_set_returning, resolve_operator};
use weft_expression::{Expr, Op};
use weft_types::{CastContext, SqlError, SqlState, SqlType, Value};

use super::plain_arguments;
use crate::binder::Binder;
use crate::names::{Place, parts};
use crate::parameters::Operand;
use crate::window::is_window_function;

impl Binder<'_> {
    pub(super) fn function(&mut self, function: &Function) -> Result<Operand, SqlError> {
        let (names, span) = parts(&function.name);
        let (schema, name) = match names.as_slice() {
            [name] => (None, name.as_str()),
            [.., schema, name] => (Some(schema.as_str()), name.as_str()),
            [] => return Err(crate::names::syntax_error("a function without a name")),
        };
        if let FunctionArguments::Subquery(query) = &function.args {
            return match name {
                "array" => self.array_subquery(query),
                _ => Err(self.at(
                    crate::names::syntax_error("a subquery as an argument needs parentheses of its own"),
                    span,
                )),
            };
        }
        if schema.is_none() && function.over.is_none() {
            let found = self.special(name, function, span)?;
            if let Some(operand) = found {
                return Ok(operand);
            }
        }
        if let Some(schema) = schema
            && !matches!(schema, "pg_catalog" | "information_schema")
        {
            return Err(self.no_function_in(schema, name, function, span));
        }
        if let Some(over) = &function.over {
            return self.window_call(name, function, over, span);
        }
        if is_aggregate(name) {
            let saved = self.aggregate_name.replace(name.to_owned());
            let bound = self.aggregate_call(name, function, span);
            self.aggregate_name = saved;
            return bound;
        }
        if is_window_function(name) && !function.within_group.is_empty() {
            let error = SqlError::unsupported("hypothetical-set aggregates are not supported");
            return Err(self.at(error, span));
        }
        if is_window_function(name) {
            let error = SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("window function {name} requires an OVER clause"),
            );
            return Err(self.at(error, span));
        }
        self.refuse_aggregate_syntax(name, function, span)?;
        let arguments = match has_names(function) {
            true => self.named_arguments(name, function, span)?,
            false => self.arguments(function)?,
        };
        if is_set_returning(name) {
            return self.set_call(name, arguments, span);
        }
        self.call(name, arguments, span.into())
    }

    fn no_function_in(&mut self, schema: &str, name: &str, function: &Function, span: Span) -> SqlError {
        if schema != "public" {
            let error = SqlError::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("schema \"{schema}\" does not exist"),
            );
            return self.at(error, span);
        }
        match self.arguments(function) {
            Ok(arguments) => {
                let types: Vec<Option<SqlType>> = arguments.iter().map(|operand| operand.ty).collect();
                let error = weft_expression::resolve::no_function(&format!("{schema}.{name}"), &types);
                self.at(error, span)
            }
            Err(error) => error,
        }
    }

    pub(super) fn arguments(&mut self, function: &Function) -> Result<Vec<Operand>, SqlError> {
        match &function.args {
            FunctionArguments::List(list) => {
                list.args.iter().map(|argument| self.argument(argument)).collect()
            }
            FunctionArguments::None => Ok(Vec::new()),
            FunctionArguments::Subquery(_) => {
                Err(SqlError::unsupported("a subquery as arguments is not supported"))
            }
        }
    }

    /// The arguments of a call that names some of them, in order and with defaults.
    fn named_arguments(
        &mut self,
        name: &str,
        function: &Function,
        span: Span,
    ) -> Result<Vec<Operand>, SqlError> {
        let FunctionArguments::List(list) = &function.args else {
            return Ok(Vec::new());
        };
        let Some((_, names, has_defaults)) = NAMED.iter().find(|(of, ..)| *of == name) else {
            let error = SqlError::unsupported("arguments by name are not supported");
            return Err(self.at(error, span));
        };
        let no_such = || {
            SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("no function {name} has these arguments"),
            )
        };
        let mut given: Vec<Option<Operand>> = names.iter().map(|_| None).collect();
        let mut by_name = false;
        for (number, argument) in list.args.iter().enumerate() {
            let (place, operand) = match argument {
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(expr),
                    ..
                } => {
                    by_name = true;
                    (
                        names.iter().position(|known| *known == name.value),
                        self.expr(expr)?,
                    )
                }
                _ if by_name => {
                    let error = "positional argument cannot follow named argument";
                    return Err(self.at(crate::names::syntax_error(error), span));
                }
                other => (Some(number), self.argument(other)?),
            };
            match place.and_then(|place| given.get_mut(place)) {
                Some(slot @ None) => *slot = Some(operand),
                _ => return Err(self.at(no_such(), span)),
            }
        }
        let zero = || Operand::typed(Expr::constant(Value::Int4(0), SqlType::Int4));
        let whole = given.into_iter().map(|operand| match operand {
            None if *has_defaults => Some(zero()),
            operand => operand,
        });
        whole
            .collect::<Option<Vec<Operand>>>()
            .ok_or_else(|| self.at(no_such(), span))
    }

    /// Rejects syntax that only aggregate calls allow.
    fn refuse_aggregate_syntax(&self, name: &str, function: &Function, span: Span) -> Result<(), SqlError> {
        let wrong = |what: String| {
            let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, what);
            Err(self.at(error, span))
        };
        if let FunctionArguments::List(list) = &function.args {
            if list.duplicate_treatment == Some(sqlparser::ast::DuplicateTreatment::Distinct) {
                return wrong(format!(
                    "DISTINCT specified, but {name} is not an aggregate function"
                ));
            }
            if !list.clauses.is_empty() {
                return wrong(format!(
                    "ORDER BY specified, but {name} is not an aggregate function"
                ));
            }
            let is_star =
                |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
            if list.args.iter().any(is_star) {
                return wrong(format!(
                    "{name}(*) specified, but {name} is not an aggregate function"
                ));
            }
        }
        if !function.within_group.is_empty() {
            return wrong(format!(
                "WITHIN GROUP specified, but {name} is not an aggregate function"
            ));
        }
        if function.filter.is_some() {
            return wrong(format!(
                "FILTER specified, but {name} is not an aggregate function"
            ));
        }
        Ok(())
    }

    /// Calls that are not functions.
    fn special(&mut self, name: &str, function: &Function, span: Span) -> Result<Option<Operand>, SqlError> {
        if !matches!(
            name,
            "coalesce" | "nullif" | "greatest" | "least" | "row" | "grouping" | "pg_typeof"
        ) {
            return Ok(None);
        }
        if name == "grouping" {
            return self.grouping_call(function, span).map(Some);
        }
        let Some(arguments) = plain_arguments(function) else {
            return Ok(None);
        };
        if name == "pg_typeof" {
            return self.type_of(&arguments);
        }
        let operand = match name {
            "coalesce" => self.of_common_type(Op::Coalesce, "COALESCE", &arguments)?,
            "greatest" => self.of_common_type(Op::Greatest, "GREATEST", &arguments)?,
            "least" => self.of_common_type(Op::Least, "LEAST", &arguments)?,
            "nullif" => self.nullif(&arguments, span)?,
            _ => self.row(&arguments)?,
        };
        Ok(Some(operand))
    }

    /// `pg_typeof(x)`: a constant, because the type is known here.
    fn type_of(&mut self, arguments: &[&AstExpr]) -> Result<Option<Operand>, SqlError> {
        let [argument] = arguments else { return Ok(None) };
        let operand = self.expr(argument)?;
        let oid = match (operand.ty, &operand.expr.root().op) {
            (Some(ty), _) => ty.oid(),
            (None, Op::Parameter(number)) => {
                self.parameters.leave_untyped(*number);
                UNKNOWN_OID
            }
            (None, _) => UNKNOWN_OID,
        };
        Ok(Some(Operand::typed(Expr::constant(
            Value::Oid(oid),
            SqlType::Regtype,
        ))))
    }

    fn of_common_type(&mut self, op: Op, what: &str, arguments: &[&AstExpr]) -> Result<Operand, SqlError> {
        if arguments.is_empty() {
            return Err(crate::names::syntax_error("syntax error at or near \")\""));
        }
        let sets = self.level()?.sets.len();
        let mut operands = Vec::with_capacity(arguments.len());
        for argument in arguments {
            operands.push(self.expr(argument)?);
        }
        let place = arguments
            .first()
            .map_or(Place::Unknown, |first| Place::Expr(first));
        let is_compared = op != Op::Coalesce;
        self.refuse_sets(sets, what, place)?;
        let (values, ty) = self
            .parameters
            .common(what, operands)
            .map_err(|error| self.at(error, place))?;
        if is_compared && matches!(element_of(&ty).unwrap_or(ty), SqlType::Json) {
            let error = SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                "could not identify a comparison function for type json",
            );
            return Err(self.at(error, place));
        }
        Ok(Operand::typed(Expr::new(op, ty, values)))
    }

    /// Rejects set-returning functions added since `since`, in constructs that may not evaluate
    /// them.
    pub(super) fn refuse_sets(&mut self, since: usize, what: &str, place: Place<'_>) -> Result<(), SqlError> {
        if self.level()?.sets.len() > since {
            let error = SqlError::unsupported(format!("set-returning functions are not allowed in {what}"))
                .hint("You might be able to move the set-returning function into a LATERAL FROM item.");
            return Err(self.at(error, place));
        }
        Ok(())
    }

    /// `NULLIF(a, b)`: `CASE a WHEN b THEN NULL ELSE a END`, evaluating `a` once.
    fn nullif(&mut self, arguments: &[&AstExpr], span: Span) -> Result<Operand, SqlError> {
        let [left, right] = arguments else {
            return Err(self.at(crate::names::syntax_error("NULLIF takes two arguments"), span));
        };
        let left = self.expr(left)?;
        let right = self.expr(right)?;
        // The value has the type of the left operand of `=`.
        let ty = match left.ty {
            Some(own) => compared_left(own, right.ty),
            None => resolve_operator("=", Some(None), right.ty).map(|operator| match operator {
                Operator::Call(resolved) => resolved.arguments.first().copied().unwrap_or(SqlType::Text),
                Operator::Compare(_, ty) => ty,
            }),
        };
        let ty = ty.map_err(|error| self.at(error, span))?;
        let left = Operand::typed(self.parameters.coerce(left, ty, CastContext::Implicit)?);
        let kept = Operand::typed(Expr::leaf(Op::CaseOperand, ty));
        let test = self.infix("=", kept.clone(), right, span.into())?;
        let parts = vec![left.expr, test.expr, Expr::constant(Value::Null, ty), kept.expr];
        Ok(Operand::typed(Expr::new(Op::Case { operand: true }, ty, parts)))
    }
}

/// The oid of type `unknown`.
const UNKNOWN_OID: u32 = 705;

/// Functions with named arguments, and whether all default to 0.
const NAMED: &[(&str, &[&str], bool)] = &[
    (
        "make_interval",
        &["years", "months", "weeks", "days", "hours", "mins", "secs"],
        true,
    ),
    ("make_date", &["year", "month", "day"], false),
    ("make_time", &["hour", "min", "sec"], false),
    (
        "make_timestamp",
        &["year", "month", "mday", "hour", "min", "sec"],
        false,
    ),
];

fn has_names(function: &Function) -> bool {
    match &function.args {
        FunctionArguments::List(list) => list
            .args
            .iter()
            .any(|argument| matches!(argument, FunctionArg::Named { .. })),
        _ => false,
    }
}
