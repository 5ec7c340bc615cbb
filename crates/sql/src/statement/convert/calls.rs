//! Calls of functions and operators: mapping entries of the table to operations of programs.

use weft_expression::{Arg, Entry, Expr, Kind, Op};
use weft_program::Function;
use weft_types::{SqlType, Value};

use super::super::bind::{BindResult, Refusal};
use super::super::functions::{sequence_named, session_function};
use super::super::scalar::{ArithmeticOp, Scalar, SessionValue};
use super::super::type_rules::{is_float, is_integer};
use super::{Context, Conversion, not};

const TEXTS: &[Arg] = &[Arg::Is(SqlType::Text), Arg::Is(SqlType::Text)];

fn text(text: &str) -> Scalar {
    Scalar::Constant(Value::Text(text.into()))
}

impl Conversion<'_> {
    pub(super) fn call(
        &mut self,
        expr: &Expr,
        at: usize,
        entry: &'static Entry,
        context: Context<'_>,
    ) -> BindResult<Scalar> {
        if let Some(found) = self.session_call(expr, at, entry, context)? {
            return Ok(found);
        }
        let result = expr.nodes().get(at).map(|node| node.ty).ok_or(Refusal::General)?;
        let in_register = is_integer(&result) || is_float(&result);
        if let Some(op) = arithmetic(entry).filter(|_| in_register) {
            let types = [0, 1].map(|side| match entry.arguments.get(side) {
                Some(Arg::Is(ty)) => *ty,
                _ => result,
            });
            let [left, right] = self.pair(expr, at, context)?;
            let left = Box::new(widened(left, types[0], result));
            let right = Box::new(widened(right, types[1], result));
            return Ok(Scalar::Arithmetic(op, left, right));
        }
        if matches!(entry.name, "~~" | "!~~") && entry.arguments == TEXTS {
            let like = self.like(expr, at, context)?;
            return Ok(match entry.name {
                "~~" => like,
                _ => not(like),
            });
        }
        let arguments = self.arguments(expr, at, context)?;
        if let Some((function, more)) = function_of(entry) {
            return Ok(Scalar::Call(
                function,
                arguments.into_iter().chain(more).collect(),
            ));
        }
        let roots = expr.argument_roots(at);
        let types = roots
            .iter()
            .filter_map(|root| expr.nodes().get(*root).map(|node| node.ty));
        let typed = arguments.into_iter().zip(types).collect();
        self.operator(entry, typed, result)
    }

    /// Entries that have dedicated instructions.
    fn operator(
        &mut self,
        entry: &'static Entry,
        arguments: Vec<(Scalar, SqlType)>,
        result: SqlType,
    ) -> BindResult<Scalar> {
        let in_register = is_integer(&result) || is_float(&result);
        let mut arguments = arguments.into_iter();
        let (first, second) = (arguments.next(), arguments.next());
        Ok(match (entry.kind, entry.name, first, second) {
            (Kind::Prefix, "-", Some((value, _)), None) if in_register => Scalar::Negate(Box::new(value)),
            (Kind::Prefix, "+", Some((value, _)), None) => value,
            (Kind::Infix, "-", Some((date, SqlType::Date)), Some((days, SqlType::Int4))) => match days {
                // The smallest integer cannot be negated.
                Scalar::Constant(Value::Int4(days)) if days != i32::MIN => {
                    let days = Scalar::Constant(Value::Int4(-days));
                    Scalar::Call(Function::DateAdd, vec![date, days])
                }
                _ => return Err(Refusal::General),
            },
            (Kind::Infix, "+", Some((days, SqlType::Int4)), Some((date, SqlType::Date))) => {
                Scalar::Call(Function::DateAdd, vec![date, days])
            }
            (Kind::Function, "abs", Some((value, ty)), None) if is_integer(&result) => {
                let wide = Scalar::Call(Function::IntAbs, vec![widened(value, ty, SqlType::Int8)]);
                Scalar::Cast(Box::new(wide), SqlType::Int8, result)
            }
            (Kind::Function, "left", Some((text, SqlType::Text)), Some((count, _))) => {
                Scalar::Left(Box::new(text), Box::new(count))
            }
            (Kind::Infix, "||", Some(left), Some(right)) if result == SqlType::Text => {
                Scalar::Concat(Box::new(self.shown(left)?), Box::new(self.shown(right)?))
            }
            (Kind::Function, "concat", first, second) => {
                let items = first.into_iter().chain(second).chain(arguments);
                self.concat(items.collect())?
            }
            _ => return Err(Refusal::General),
        })
    }

    /// A value as text, as in `||` and `concat`.
    fn shown(&mut self, (scalar, ty): (Scalar, SqlType)) -> BindResult<Scalar> {
        match ty {
            SqlType::TimestampTz | SqlType::Bytea | SqlType::Bool | SqlType::Char(_) => Err(Refusal::General),
            ty => self.cast(scalar, &ty, &SqlType::Text, true),
        }
    }

    fn concat(&mut self, items: Vec<(Scalar, SqlType)>) -> BindResult<Scalar> {
        if items.len() > super::DEPTH_MAX {
            return Err(Refusal::General);
        }
        let mut pieces = Vec::with_capacity(items.len());
        for item in items {
            pieces.push(Scalar::Coalesce(vec![self.shown(item)?, text("")]));
        }
        super::chain(pieces, Scalar::Concat)
    }

    /// `value LIKE pattern`: the escape character is the program's third argument.
    fn like(&mut self, expr: &Expr, at: usize, context: Context<'_>) -> BindResult<Scalar> {
        let context = context.deeper(1);
        let roots = expr.argument_roots(at);
        let [value, pattern] = roots.as_slice() else {
            return Err(Refusal::General);
        };
        let value = self.node(expr, *value, context)?;
        let escaped = matches!(
            expr.nodes().get(*pattern).map(|node| &node.op),
            Some(Op::Call(entry)) if entry.name == "like_escape" && entry.arguments == TEXTS
        );
        let mut arguments = vec![value];
        match escaped {
            true => arguments.extend(self.arguments(expr, *pattern, context)?),
            false => {
                arguments.push(self.node(expr, *pattern, context)?);
                arguments.push(text("\\"));
            }
        }
        Ok(Scalar::Call(Function::Like, arguments))
    }

    /// Values that the session provides when inputs are bound.
    fn session_call(
        &mut self,
        expr: &Expr,
        at: usize,
        entry: &'static Entry,
        context: Context<'_>,
    ) -> BindResult<Option<Scalar>> {
        if entry.kind != Kind::Function {
            return Ok(None);
        }
        let arity = expr.nodes().get(at).map_or(0, |node| node.arity);
        Ok(Some(match (entry.name, arity) {
            ("gen_random_uuid", 0) => Scalar::RandomUuid,
            ("random", 0) => Scalar::Random,
            ("lastval", 0) => Scalar::Session(SessionValue::LastValue),
            ("nextval" | "currval", 1) => {
                let name = constant_name(expr, at).ok_or(Refusal::General)?;
                let sequence = sequence_named(self.catalog, name)?;
                match entry.name {
                    "nextval" => Scalar::NextValue(sequence),
                    _ => Scalar::CurrentValue(sequence),
                }
            }
            ("current_setting", 1) => {
                let name = self.node(expr, at - 1, context.deeper(1))?;
                Scalar::Setting(Box::new(name))
            }
            (name, 0) => match session_function(name) {
                Some(which) => Scalar::Session(which),
                None => return Ok(None),
            },
            _ => return Ok(None),
        }))
    }
}

/// The constant text that names a call's sequence, ignoring a cast to regclass.
fn constant_name(expr: &Expr, at: usize) -> Option<&str> {
    let size = expr.nodes().get(at)?.size as usize;
    let nodes = expr.nodes().get(at + 1 - size..at)?;
    match nodes {
        [name] | [name, _] => match &name.op {
            Op::Constant(Value::Text(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The program function that computes an entry, and an additional argument that it takes.
fn function_of(entry: &'static Entry) -> Option<(Function, Option<Scalar>)> {
    use Function as F;
    use SqlType::{Float8, Int4, Numeric, Text};
    if let Some(function) = Function::of_entry(entry) {
        return Some((function, None));
    }
    let blank = || Some(text(" "));
    let zero = || Some(Scalar::Constant(Value::Int4(0)));
    Some(match (entry.name, entry.arguments) {
        ("char_length" | "character_length", [Arg::Is(Text)]) => (F::Length, None),
        ("position", TEXTS) => (F::Position, None),
        ("substr", [Arg::Is(Text), Arg::Is(Int4)]) => (F::Substring, None),
        ("substr", [Arg::Is(Text), Arg::Is(Int4), Arg::Is(Int4)]) => (F::SubstringFor, None),
        ("btrim", [Arg::Is(Text)]) => (F::Btrim, blank()),
        ("ltrim", [Arg::Is(Text)]) => (F::Ltrim, blank()),
        ("rtrim", [Arg::Is(Text)]) => (F::Rtrim, blank()),
        ("lpad", [Arg::Is(Text), Arg::Is(Int4)]) => (F::Lpad, blank()),
        ("rpad", [Arg::Is(Text), Arg::Is(Int4)]) => (F::Rpad, blank()),
        ("round", [Arg::Is(Numeric(_))]) => (F::NumericRound, zero()),
        ("trunc", [Arg::Is(Numeric(_))]) => (F::NumericTrunc, zero()),
        ("mod", [Arg::Is(Numeric(_)), _]) => (F::NumericMod, None),
        ("ceiling", [Arg::Is(Numeric(_))]) => (F::NumericCeil, None),
        ("ceiling", [Arg::Is(Float8)]) => (F::FloatCeil, None),
        _ => return None,
    })
}

/// The register arithmetic of an entry on integers or floats.
fn arithmetic(entry: &Entry) -> Option<ArithmeticOp> {
    let numbers = |arg: &Arg| matches!(arg, Arg::Is(ty) if is_integer(ty) || is_float(ty));
    if entry.arguments.len() != 2 || !entry.arguments.iter().all(numbers) {
        return None;
    }
    Some(match (entry.kind, entry.name) {
        (Kind::Infix, "+") => ArithmeticOp::Add,
        (Kind::Infix, "-") => ArithmeticOp::Subtract,
        (Kind::Infix, "*") => ArithmeticOp::Multiply,
        (Kind::Infix, "/") => ArithmeticOp::Divide,
        (Kind::Infix, "%") | (Kind::Function, "mod") => ArithmeticOp::Modulo,
        _ => return None,
    })
}

/// A number converted to the result's type.
fn widened(scalar: Scalar, from: SqlType, to: SqlType) -> Scalar {
    match from == to {
        true => scalar,
        false => Scalar::Cast(Box::new(scalar), from, to),
    }
}
