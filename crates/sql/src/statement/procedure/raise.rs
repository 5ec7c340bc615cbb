//! RAISE: a message with arguments in it, and an error.

use datafusion::sql::sqlparser::ast::Expr;
use weft_program::RaiseState;
use weft_types::{SqlType, Value};

use super::super::bind::Typed;
use super::super::compile::path::folded;
use super::super::scalar::Scalar;
use super::compile::{Compiled, Compiler};
use super::parse::unsupported;
use super::tree::Raise;

impl Compiler<'_> {
    pub(super) fn raise(&mut self, raise: &Raise, line: u32) -> Compiled<()> {
        if !raise.is_exception {
            return match raise.level.as_str() {
                // Below what a client is shown by default.
                "DEBUG" | "LOG" => Ok(()),
                level => Err(unsupported(&format!("RAISE {level}"), line)),
            };
        }
        if raise.arguments.is_empty() {
            self.coder.b.raise(raise.state, &raise.format.replace("%%", "%"));
            return Ok(());
        }
        let mut message = Scalar::Constant(Value::Text(String::new()));
        let mut append = |piece: Scalar| {
            let whole = std::mem::replace(&mut message, Scalar::Constant(Value::Null));
            message = Scalar::Concat(Box::new(whole), Box::new(piece));
        };
        let mut arguments = raise.arguments.iter();
        let mut text = String::new();
        let mut characters = raise.format.chars().peekable();
        while let Some(character) = characters.next() {
            if character != '%' || characters.next_if_eq(&'%').is_some() {
                text.push(character);
                continue;
            }
            let Some(argument) = arguments.next() else {
                continue;
            };
            append(Scalar::Constant(Value::Text(std::mem::take(&mut text))));
            append(self.shown_argument(argument, line)?);
        }
        append(Scalar::Constant(Value::Text(text)));
        self.raise_text(raise.state, message, line)
    }

    /// An argument of RAISE as text.
    fn shown_argument(&self, argument: &Expr, line: u32) -> Compiled<Scalar> {
        let (scalar, ty) = self.bind(&format!("the expression {argument}"), line, |binder| {
            let typed: Typed = binder.bind(argument)?;
            binder.settle(typed)
        })?;
        Ok(match ty {
            SqlType::Text => scalar,
            ty => folded(Scalar::Cast(Box::new(scalar), ty, SqlType::Text)),
        })
    }

    fn raise_text(&mut self, state: RaiseState, message: Scalar, line: u32) -> Compiled<()> {
        if let Scalar::Constant(Value::Text(text)) = folded(message.clone()) {
            self.coder.b.raise(state, &text);
            return Ok(());
        }
        let mark = self.coder.b.mark();
        self.code("this RAISE", line, |coder| coder.raise_text(state, &message))?;
        self.coder.b.release_to(mark);
        Ok(())
    }
}
