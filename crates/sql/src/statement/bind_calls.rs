//! Binding calls of functions, CASE, and the forms that SQL writes as words.
//!
//! A function is found by its name and the types of its arguments, which widen as PostgreSQL's implicit casts
//! have it. What is not known here is refused with [`Refusal::General`]: the query engine may know it.

use sqlparser::ast::{
    self, CaseWhen, CeilFloorKind, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, TrimWhereField,
};
use weft_program::Function;
use weft_types::{CastContext, SqlType, Value, cast_context};

use super::bind::{Binder, Bound, Refusal, Typed, not};
use super::bind_aggregates::is_aggregate;
use super::functions;
use super::literals::without_regclass;
use super::scalar::{ArithmeticOp, CompareOp, Scalar, SessionValue};
use super::type_rules::{base_type, is_float, is_integer};

/// A call with arguments of the function's types.
pub(super) fn called(function: Function, arguments: Vec<Scalar>) -> Typed {
    Typed::known(Scalar::Call(function, arguments), function.result())
}

/// The function that computes on numeric what an operator says.
pub(super) fn numeric_function(op: ArithmeticOp) -> Function {
    match op {
        ArithmeticOp::Add => Function::NumericAdd,
        ArithmeticOp::Subtract => Function::NumericSub,
        ArithmeticOp::Multiply => Function::NumericMul,
        ArithmeticOp::Divide => Function::NumericDiv,
        ArithmeticOp::Modulo => Function::NumericMod,
    }
}

fn null() -> Scalar {
    Scalar::Constant(Value::Null)
}

fn text(text: &str) -> Scalar {
    Scalar::Constant(Value::Text(text.into()))
}

fn int(number: i32) -> Scalar {
    Scalar::Constant(Value::Int4(number))
}

fn is_text(ty: Option<SqlType>) -> bool {
    matches!(ty, None | Some(SqlType::Text | SqlType::Varchar(_)))
}

impl Binder<'_> {
    pub(super) fn function(&mut self, function: &ast::Function) -> Bound<Typed> {
        if function.filter.is_some()
            || function.over.is_some()
            || function.null_treatment.is_some()
            || !function.within_group.is_empty()
            || !matches!(function.parameters, FunctionArguments::None)
        {
            return Err(Refusal::General);
        }
        let name = functions::function_name(&function.name).ok_or(Refusal::General)?;
        if self.aggregates.is_some() && is_aggregate(&name) {
            return self.aggregate(&name, &function.args);
        }
        let mut arguments = Vec::new();
        match &function.args {
            FunctionArguments::None => {}
            FunctionArguments::List(list)
                if list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
            {
                for argument in &list.args {
                    match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => arguments.push(expr),
                        _ => return Err(Refusal::General),
                    }
                }
            }
            _ => return Err(Refusal::General),
        }
        self.call(&name, &arguments)
    }

    fn call(&mut self, name: &str, arguments: &[&Expr]) -> Bound<Typed> {
        if let ([], Some(which)) = (arguments, functions::session_function(name)) {
            return Ok(Typed::known(Scalar::Session(which), which.ty()));
        }
        match (name, arguments) {
            ("gen_random_uuid", []) => Ok(Typed::known(Scalar::RandomUuid, SqlType::Uuid)),
            ("random", []) => Ok(Typed::known(Scalar::Random, SqlType::Float8)),
            ("nextval" | "currval", [argument]) => {
                let typed = self.bind(without_regclass(argument))?;
                let Scalar::Constant(Value::Text(text)) = typed.scalar else {
                    return Err(Refusal::General);
                };
                let sequence = functions::sequence_named(self.catalog, &text)?;
                let scalar = if name == "nextval" {
                    Scalar::NextValue(sequence)
                } else {
                    Scalar::CurrentValue(sequence)
                };
                Ok(Typed::known(scalar, SqlType::Int8))
            }
            ("lastval", []) => Ok(Typed::known(
                Scalar::Session(SessionValue::LastValue),
                SqlType::Int8,
            )),
            ("current_setting", [argument]) => {
                let typed = self.bind(argument)?;
                let name = self.coerce(typed, &SqlType::Text)?;
                Ok(Typed::known(Scalar::Setting(Box::new(name)), SqlType::Text))
            }
            ("coalesce", [_, ..]) => self.coalesce(arguments),
            ("left", [text, count]) => self.left(text, count),
            ("greatest" | "least", [_, ..]) => {
                let (items, ty) = self.alike(arguments)?;
                let greatest = name == "greatest";
                Ok(Typed::known(Scalar::Extreme { greatest, items }, ty))
            }
            ("nullif", [value, null_value]) => self.nullif(value, null_value),
            ("concat", [_, ..]) => self.concat(arguments),
            _ => {
                let mut typed = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    typed.push(self.bind(argument)?);
                }
                self.pure_call(name, typed)
            }
        }
    }

    /// A function of values alone.
    fn pure_call(&mut self, name: &str, arguments: Vec<Typed>) -> Bound<Typed> {
        let types: Vec<Option<SqlType>> = arguments.iter().map(|argument| argument.ty).collect();
        if let Some(bound) = self.number_call(name, &types, &arguments)? {
            return Ok(bound);
        }
        // A constant of no type behind the text may be a pattern.
        if matches!((name, types.get(1)), ("substring", Some(None))) {
            return Err(Refusal::General);
        }
        use Function as F;
        let (function, more) = match (name, arguments.len()) {
            ("length" | "char_length" | "character_length", 1) => (F::Length, None),
            ("octet_length", 1) => (F::OctetLength, None),
            ("lower", 1) => (F::Lower, None),
            ("upper", 1) => (F::Upper, None),
            ("initcap", 1) => (F::Initcap, None),
            ("right", 2) => (F::Right, None),
            ("substr" | "substring", 2) => (F::Substring, None),
            ("substr" | "substring", 3) => (F::SubstringFor, None),
            ("btrim" | "trim", 1) => (F::Btrim, Some(text(" "))),
            ("ltrim", 1) => (F::Ltrim, Some(text(" "))),
            ("rtrim", 1) => (F::Rtrim, Some(text(" "))),
            ("btrim", 2) => (F::Btrim, None),
            ("ltrim", 2) => (F::Ltrim, None),
            ("rtrim", 2) => (F::Rtrim, None),
            ("replace", 3) => (F::Replace, None),
            ("strpos", 2) => (F::Position, None),
            ("lpad", 2) => (F::Lpad, Some(text(" "))),
            ("rpad", 2) => (F::Rpad, Some(text(" "))),
            ("lpad", 3) => (F::Lpad, None),
            ("rpad", 3) => (F::Rpad, None),
            ("repeat", 2) => (F::Repeat, None),
            ("reverse", 1) => (F::Reverse, None),
            ("split_part", 3) => (F::SplitPart, None),
            ("starts_with", 2) => (F::StartsWith, None),
            ("ascii", 1) => (F::Ascii, None),
            ("chr", 1) => (F::Chr, None),
            ("translate", 3) => (F::Translate, None),
            _ => return Err(Refusal::General),
        };
        let mut scalars = Vec::with_capacity(function.arguments().len());
        for (argument, ty) in arguments.into_iter().zip(function.arguments()) {
            scalars.push(self.argument(argument, ty)?);
        }
        scalars.extend(more);
        match scalars.len() == function.arguments().len() {
            true => Ok(called(function, scalars)),
            false => Err(Refusal::General),
        }
    }

    /// Functions whose meaning follows from the kind of number.
    fn number_call(
        &mut self,
        name: &str,
        types: &[Option<SqlType>],
        arguments: &[Typed],
    ) -> Bound<Option<Typed>> {
        use Function as F;
        let Some(first) = arguments.first() else {
            return Ok(None);
        };
        let integers = types.iter().all(|ty| ty.as_ref().is_some_and(is_integer));
        let exact = |ty: &Option<SqlType>| {
            matches!(ty, Some(SqlType::Numeric(_))) || ty.as_ref().is_some_and(is_integer)
        };
        let float = types.first().is_some_and(|ty| ty.as_ref().is_some_and(is_float));
        let numeric = SqlType::Numeric(None);
        let one = |binder: &mut Self, function: Function| {
            let [ty] = function.arguments() else {
                return Err(Refusal::General);
            };
            let argument = binder.coerce(first.clone(), ty)?;
            Ok(Some(called(function, vec![argument])))
        };
        match (name, types.len()) {
            ("abs", 1) if integers => {
                let bound = one(self, F::IntAbs)?;
                match (bound, first.ty) {
                    (Some(bound), Some(ty)) if ty != SqlType::Int8 => {
                        let narrowed = Scalar::Cast(Box::new(bound.scalar), SqlType::Int8, ty);
                        Ok(Some(Typed::known(narrowed, ty)))
                    }
                    (bound, _) => Ok(bound),
                }
            }
            ("mod", 2) if integers => {
                let [left, right] = arguments else {
                    return Ok(None);
                };
                self.arithmetic(ArithmeticOp::Modulo, left.clone(), right.clone())
                    .map(Some)
            }
            ("mod" | "div", 2) if types.iter().all(exact) => {
                let function = if name == "mod" {
                    F::NumericMod
                } else {
                    F::NumericDivTrunc
                };
                let mut scalars = Vec::with_capacity(2);
                for argument in arguments {
                    scalars.push(self.coerce(argument.clone(), &numeric)?);
                }
                Ok(Some(called(function, scalars)))
            }
            ("round" | "trunc", 2) if types.first().is_some_and(exact) => {
                let [value, digits] = arguments else {
                    return Ok(None);
                };
                let value = self.coerce(value.clone(), &numeric)?;
                let digits = self.argument(digits.clone(), &SqlType::Int4)?;
                let function = if name == "round" {
                    F::NumericRound
                } else {
                    F::NumericTrunc
                };
                Ok(Some(called(function, vec![value, digits])))
            }
            // Of an integer these are the double's.
            ("round", 1) if float || integers => one(self, F::FloatRound),
            ("trunc", 1) if float || integers => one(self, F::FloatTrunc),
            ("ceil" | "ceiling", 1) if float || integers => one(self, F::FloatCeil),
            ("floor", 1) if float || integers => one(self, F::FloatFloor),
            ("sign", 1) if float || integers => one(self, F::FloatSign),
            ("sqrt", 1) if float || integers => one(self, F::FloatSqrt),
            ("abs", 1) if first.ty == Some(SqlType::Float8) => one(self, F::FloatAbs),
            ("round" | "trunc", 1) if types.iter().all(exact) => {
                let value = self.coerce(first.clone(), &numeric)?;
                let function = if name == "round" {
                    F::NumericRound
                } else {
                    F::NumericTrunc
                };
                Ok(Some(called(function, vec![value, int(0)])))
            }
            ("abs", 1) if types.iter().all(exact) => one(self, F::NumericAbs),
            ("ceil" | "ceiling", 1) if types.iter().all(exact) => one(self, F::NumericCeil),
            ("floor", 1) if types.iter().all(exact) => one(self, F::NumericFloor),
            ("sign", 1) if types.iter().all(exact) => one(self, F::NumericSign),
            _ => Ok(None),
        }
    }

    /// An argument in the type that a function takes, if it widens to it.
    pub(super) fn argument(&mut self, typed: Typed, to: &SqlType) -> Bound<Scalar> {
        let fits = match typed.ty {
            None => true,
            Some(SqlType::Char(_)) => false,
            Some(from) => from.same_storage(to) || cast_context(&from, to) == Some(CastContext::Implicit),
        };
        match fits {
            true => self.coerce(typed, to),
            false => Err(Refusal::General),
        }
    }

    /// A value as text, as `||` and `concat` show it.
    pub(super) fn shown(&mut self, typed: Typed) -> Bound<Scalar> {
        match typed.ty {
            Some(SqlType::TimestampTz | SqlType::Bytea | SqlType::Bool) => Err(Refusal::General),
            Some(SqlType::Char(_)) => Err(Refusal::General),
            _ => self.coerce(typed, &SqlType::Text),
        }
    }

    fn concat(&mut self, arguments: &[&Expr]) -> Bound<Typed> {
        let mut whole: Option<Scalar> = None;
        for argument in arguments {
            let typed = self.bind(argument)?;
            let piece = Scalar::Coalesce(vec![self.shown(typed)?, text("")]);
            whole = Some(match whole {
                Some(before) => Scalar::Concat(Box::new(before), Box::new(piece)),
                None => piece,
            });
        }
        Ok(Typed::known(whole.ok_or(Refusal::General)?, SqlType::Text))
    }

    fn left(&mut self, text: &Expr, count: &Expr) -> Bound<Typed> {
        let (text, count) = (self.bind(text)?, self.bind(count)?);
        let text = Box::new(self.argument(text, &SqlType::Text)?);
        let count = Box::new(self.argument(count, &SqlType::Int4)?);
        Ok(Typed::known(Scalar::Left(text, count), SqlType::Text))
    }

    fn coalesce(&mut self, arguments: &[&Expr]) -> Bound<Typed> {
        let (items, ty) = self.alike(arguments)?;
        Ok(Typed::known(Scalar::Coalesce(items), ty))
    }

    /// Expressions in the type that they have in common.
    fn alike(&mut self, arguments: &[&Expr]) -> Bound<(Vec<Scalar>, SqlType)> {
        let mut items = Vec::with_capacity(arguments.len());
        for argument in arguments {
            items.push(self.bind(argument)?);
        }
        let ty = common(items.iter().map(|item| item.ty))?;
        let items = items
            .into_iter()
            .map(|item| self.coerce(item, &ty))
            .collect::<Bound<Vec<_>>>()?;
        Ok((items, ty))
    }

    /// NULL if both are equal, else the first.
    fn nullif(&mut self, value: &Expr, other: &Expr) -> Bound<Typed> {
        let (value, other) = (self.bind(value)?, self.bind(other)?);
        // The type of the value is that which the comparison takes: with one type that one, and so with
        // integers.
        let same = match (value.ty, other.ty) {
            (Some(SqlType::Varchar(_)), _) => false,
            (Some(one), Some(other)) => one == other || is_integer(&one) && is_integer(&other),
            (Some(_), None) => true,
            _ => false,
        };
        if value.scalar.is_volatile() || !same {
            return Err(Refusal::General);
        }
        let compared = |ty| weft_expression::resolve::compared_left(ty, other.ty);
        if value.ty.is_some_and(|ty| compared(ty) != Ok(ty)) {
            // It has the type in which its first argument is compared.
            return Err(Refusal::General);
        }
        let equal = self.comparison(CompareOp::Eq, value.clone(), other)?.scalar;
        let (value, ty) = self.settle(value)?;
        let arms = vec![(equal, null())];
        let otherwise = Box::new(value);
        Ok(Typed::known(Scalar::Case { arms, otherwise }, ty))
    }

    fn case(&mut self, operand: Option<&Expr>, arms: &[CaseWhen], otherwise: Option<&Expr>) -> Bound<Typed> {
        let operand = operand.map(|operand| self.bind(operand)).transpose()?;
        if operand
            .as_ref()
            .is_some_and(|operand| operand.scalar.is_volatile())
        {
            return Err(Refusal::General);
        }
        let mut conditions = Vec::with_capacity(arms.len());
        let mut values = Vec::with_capacity(arms.len() + 1);
        for arm in arms {
            let condition = self.bind(&arm.condition)?;
            conditions.push(match &operand {
                Some(operand) => self.comparison(CompareOp::Eq, operand.clone(), condition)?.scalar,
                None => self.condition(condition, "CASE/WHEN")?,
            });
            values.push(self.bind(&arm.result)?);
        }
        values.push(match otherwise {
            Some(otherwise) => self.bind(otherwise)?,
            None => Typed {
                scalar: null(),
                ty: None,
            },
        });
        let ty = common(values.iter().map(|value| value.ty))?;
        let otherwise = values.pop().ok_or(Refusal::General)?;
        let otherwise = Box::new(self.coerce(otherwise, &ty)?);
        let mut bound = Vec::with_capacity(arms.len());
        for (condition, value) in conditions.into_iter().zip(values) {
            bound.push((condition, self.coerce(value, &ty)?));
        }
        Ok(Typed::known(
            Scalar::Case {
                arms: bound,
                otherwise,
            },
            ty,
        ))
    }

    /// Not equal, where NULL equals NULL and nothing else.
    fn distinct(&mut self, left: &Expr, right: &Expr) -> Bound<Typed> {
        let (left, right) = (self.bind(left)?, self.bind(right)?);
        if left.scalar.is_volatile() || right.scalar.is_volatile() {
            return Err(Refusal::General);
        }
        let equal = self
            .comparison(CompareOp::Eq, left.clone(), right.clone())?
            .scalar;
        let (left, right) = (self.settle(left)?.0, self.settle(right)?.0);
        let both_null = Scalar::And(
            Box::new(Scalar::IsNull(Box::new(left))),
            Box::new(Scalar::IsNull(Box::new(right))),
        );
        let same = Scalar::Coalesce(vec![equal, both_null]);
        Ok(not(Typed::known(same, SqlType::Bool)))
    }

    fn whole(&mut self, name: &str, expr: &Expr, field: &CeilFloorKind) -> Bound<Typed> {
        if *field != CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime) {
            return Err(Refusal::General);
        }
        let argument = self.bind(expr)?;
        self.pure_call(name, vec![argument])
    }

    /// What SQL writes in its own way: CASE, LIKE, SUBSTRING .. FROM, TRIM, POSITION .. IN.
    pub(super) fn special_form(&mut self, expr: &Expr) -> Bound<Typed> {
        match expr {
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => self.case(operand.as_deref(), conditions, else_result.as_deref()),
            Expr::IsDistinctFrom(left, right) => self.distinct(left, right),
            Expr::IsNotDistinctFrom(left, right) => Ok(not(self.distinct(left, right)?)),
            Expr::Like {
                negated,
                any: false,
                expr,
                pattern,
                escape_char,
            } => {
                let (value, pattern) = (self.bind(expr)?, self.bind(pattern)?);
                if !is_text(value.ty) || !is_text(pattern.ty) {
                    return Err(Refusal::General);
                }
                let value = self.coerce(value, &SqlType::Text)?;
                let pattern = self.coerce(pattern, &SqlType::Text)?;
                let escape = match escape_char {
                    Some(escape) => {
                        let escape = self.literal(&escape.value, false)?;
                        self.coerce(escape, &SqlType::Text)?
                    }
                    None => text("\\"),
                };
                let bound = called(Function::Like, vec![value, pattern, escape]);
                Ok(if *negated { not(bound) } else { bound })
            }
            Expr::Substring {
                expr,
                substring_from,
                substring_for,
                ..
            } => {
                let mut arguments = vec![self.bind(expr)?];
                arguments.push(match substring_from {
                    Some(from) => self.bind(from)?,
                    None => Typed::known(int(1), SqlType::Int4),
                });
                if let Some(count) = substring_for {
                    arguments.push(self.bind(count)?);
                }
                // SUBSTRING(text FROM pattern) is another function.
                match arguments.iter().skip(1).any(|argument| argument.ty.is_none()) {
                    true => Err(Refusal::General),
                    false => self.pure_call("substring", arguments),
                }
            }
            Expr::Trim {
                trim_where,
                trim_what,
                expr,
                trim_characters,
            } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let mut arguments = vec![self.bind(expr)?];
                match (trim_what, trim_characters.as_deref()) {
                    (Some(what), None) => arguments.push(self.bind(what)?),
                    (None, Some([what])) => arguments.push(self.bind(what)?),
                    (None, None) => {}
                    _ => return Err(Refusal::General),
                }
                self.pure_call(name, arguments)
            }
            Expr::Position { expr, r#in } => {
                let arguments = vec![self.bind(r#in)?, self.bind(expr)?];
                self.pure_call("strpos", arguments)
            }
            Expr::Ceil { expr, field } => self.whole("ceil", expr, field),
            Expr::Floor { expr, field } => self.whole("floor", expr, field),
            _ => Err(Refusal::General),
        }
    }
}

/// The type that values of several types have in common (PostgreSQL 10.5).
fn common(types: impl Iterator<Item = Option<SqlType>>) -> Bound<SqlType> {
    let mut common: Option<SqlType> = None;
    for ty in types.flatten() {
        let found = base_type(&ty);
        let implicit = |from: &SqlType, to: &SqlType| cast_context(from, to) == Some(CastContext::Implicit);
        common = match common {
            None => Some(found),
            Some(have) if have.same_storage(&found) && is_char(&have) == is_char(&found) => Some(have),
            Some(have) if is_char(&have) || is_char(&found) => return Err(Refusal::General),
            Some(have) if implicit(&have, &found) && !implicit(&found, &have) => Some(found),
            Some(have) if implicit(&found, &have) => Some(have),
            Some(_) => return Err(Refusal::General),
        };
    }
    Ok(common.unwrap_or(SqlType::Text))
}

fn is_char(ty: &SqlType) -> bool {
    matches!(ty, SqlType::Char(_))
}
