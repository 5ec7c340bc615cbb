//! Bound expressions as SQL text, for EXPLAIN.
//!
//! Parentheses are written only where PostgreSQL's precedence requires them. Nodes added by the binder
//! (column assignments, exact keys) are omitted; only their operand is shown.

use std::fmt::Write;

use weft_program::Function;
use weft_types::{SqlType, Value, format_text};

use super::scalar::{ArithmeticOp, Scalar, SessionValue};

/// Precedence levels of operators, the lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binds {
    Or,
    And,
    Not,
    Is,
    Compare,
    Other,
    Sum,
    Product,
    Sign,
    Cast,
    Atom,
}

/// Renders the expression; `input` renders inputs.
pub(super) fn show(scalar: &Scalar, input: &dyn Fn(u16) -> String) -> String {
    let mut shown = Shown {
        out: String::new(),
        input,
    };
    shown.put(scalar, Binds::Or);
    shown.out
}

struct Shown<'a> {
    out: String,
    input: &'a dyn Fn(u16) -> String,
}

impl Shown<'_> {
    /// Appends an expression, in parentheses if its precedence is lower than `around`.
    fn put(&mut self, scalar: &Scalar, around: Binds) {
        let binds = binds(scalar);
        if binds < around {
            self.out.push('(');
        }
        self.put_bare(scalar, binds);
        if binds < around {
            self.out.push(')');
        }
    }

    fn put_bare(&mut self, scalar: &Scalar, binds: Binds) {
        match scalar {
            Scalar::Constant(value) => self.put_constant(value),
            Scalar::Input(number) => self.out.push_str(&(self.input)(*number)),
            Scalar::Column(number) => self.put_text(format_args!("column {number}")),
            Scalar::Variable(number) => self.put_text(format_args!("variable {number}")),
            Scalar::Aggregate(number) => self.put_text(format_args!("aggregate {number}")),
            Scalar::Session(value) => self.out.push_str(session_value(*value)),
            Scalar::Setting(name) => self.put_call("current_setting", &[name]),
            Scalar::NextValue(sequence) => self.put_text(format_args!("nextval({})", sequence.0)),
            Scalar::CurrentValue(sequence) => self.put_text(format_args!("currval({})", sequence.0)),
            Scalar::RandomUuid => self.out.push_str("gen_random_uuid()"),
            Scalar::Random => self.out.push_str("random()"),
            Scalar::Cast(inner, _, to) => {
                self.put(inner, Binds::Cast);
                self.put_text(format_args!("::{}", to.name()));
            }
            Scalar::Assign(inner, ..)
            | Scalar::ExactKey(inner, _)
            | Scalar::ClampKey(inner, _)
            | Scalar::OrNull(inner) => self.put_bare(inner, binds),
            Scalar::Negate(inner) => {
                self.out.push('-');
                self.put(inner, Binds::Cast);
            }
            Scalar::Arithmetic(op, left, right) => self.put_pair(left, arithmetic(*op), right, binds),
            Scalar::Compare(op, left, right) => self.put_pair(left, op.symbol(), right, binds),
            Scalar::Concat(left, right) => self.put_pair(left, "||", right, binds),
            Scalar::And(left, right) => self.put_pair(left, "AND", right, binds),
            Scalar::Or(left, right) => self.put_pair(left, "OR", right, binds),
            Scalar::Not(inner) => {
                self.out.push_str("NOT ");
                self.put(inner, Binds::Not);
            }
            Scalar::IsNull(inner) => {
                self.put(inner, Binds::Compare);
                self.out.push_str(" IS NULL");
            }
            Scalar::Coalesce(items) => self.put_call("coalesce", &items.iter().collect::<Vec<_>>()),
            Scalar::Left(text, count) => self.put_call("left", &[text, count]),
            Scalar::Call(function, arguments) => match (numeric_symbol(*function), arguments.as_slice()) {
                (Some(symbol), [left, right]) => self.put_pair(left, symbol, right, binds),
                (_, [inner]) if *function == Function::NumericNeg => {
                    self.out.push('-');
                    self.put(inner, Binds::Cast);
                }
                _ => self.put_call(function.name(), &arguments.iter().collect::<Vec<_>>()),
            },
            Scalar::Extreme { greatest, items } => {
                let name = if *greatest { "greatest" } else { "least" };
                self.put_call(name, &items.iter().collect::<Vec<_>>());
            }
            Scalar::Case { arms, otherwise } => {
                self.out.push_str("CASE");
                for (condition, value) in arms {
                    self.out.push_str(" WHEN ");
                    self.put(condition, Binds::Or);
                    self.out.push_str(" THEN ");
                    self.put(value, Binds::Or);
                }
                self.out.push_str(" ELSE ");
                self.put(otherwise, Binds::Or);
                self.out.push_str(" END");
            }
        }
    }

    /// Operators of one level are left-associative.
    fn put_pair(&mut self, left: &Scalar, operator: &str, right: &Scalar, binds: Binds) {
        let tighter = match binds {
            Binds::Or => Binds::And,
            Binds::And => Binds::Not,
            Binds::Compare => Binds::Other,
            Binds::Other => Binds::Sum,
            Binds::Sum => Binds::Product,
            _ => Binds::Sign,
        };
        // Comparisons are not associative.
        self.put(left, if binds == Binds::Compare { tighter } else { binds });
        self.put_text(format_args!(" {operator} "));
        self.put(right, tighter);
    }

    fn put_call(&mut self, name: &str, arguments: &[&Scalar]) {
        self.out.push_str(name);
        self.out.push('(');
        for (number, argument) in arguments.iter().enumerate() {
            if number > 0 {
                self.out.push_str(", ");
            }
            self.put(argument, Binds::Or);
        }
        self.out.push(')');
    }

    fn put_constant(&mut self, value: &Value) {
        let Some(ty) = value.sql_type() else {
            return self.out.push_str("NULL");
        };
        let text = constant_text(value);
        match value {
            Value::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
            Value::Int2(_) | Value::Int4(_) | Value::Int8(_) | Value::Numeric(_) => self.out.push_str(&text),
            Value::Float4(value) if value.is_finite() => self.out.push_str(&text),
            Value::Float8(value) if value.is_finite() => self.out.push_str(&text),
            Value::Text(_) => self.put_quoted(&text, None),
            _ => self.put_quoted(&text, Some(&ty)),
        }
    }

    fn put_quoted(&mut self, text: &str, ty: Option<&SqlType>) {
        self.put_text(format_args!("'{}'", text.replace('\'', "''")));
        if let Some(ty) = ty {
            self.put_text(format_args!("::{}", ty.name()));
        }
    }

    fn put_text(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

/// The value as PostgreSQL writes it, on one line.
fn constant_text(value: &Value) -> String {
    let mut text = String::new();
    if let Some(ty) = value.sql_type() {
        format_text(value, &ty, &mut text);
    }
    text.replace(['\n', '\r'], " ")
}

fn binds(scalar: &Scalar) -> Binds {
    match scalar {
        Scalar::Or(..) => Binds::Or,
        Scalar::And(..) => Binds::And,
        Scalar::Not(_) => Binds::Not,
        Scalar::IsNull(_) => Binds::Is,
        Scalar::Compare(..) => Binds::Compare,
        Scalar::Concat(..) => Binds::Other,
        Scalar::Arithmetic(ArithmeticOp::Add | ArithmeticOp::Subtract, ..) => Binds::Sum,
        Scalar::Arithmetic(..) => Binds::Product,
        Scalar::Negate(_) | Scalar::Call(Function::NumericNeg, _) => Binds::Sign,
        Scalar::Call(Function::NumericAdd | Function::NumericSub, _) => Binds::Sum,
        Scalar::Call(Function::NumericMul | Function::NumericDiv | Function::NumericMod, _) => Binds::Product,
        Scalar::Cast(..) => Binds::Cast,
        Scalar::Assign(inner, ..)
        | Scalar::ExactKey(inner, _)
        | Scalar::ClampKey(inner, _)
        | Scalar::OrNull(inner) => binds(inner),
        // A sign has lower precedence than a cast.
        Scalar::Constant(Value::Int2(..0) | Value::Int4(..0) | Value::Int8(..0)) => Binds::Sign,
        Scalar::Constant(Value::Float4(value)) if *value < 0.0 && value.is_finite() => Binds::Sign,
        Scalar::Constant(Value::Float8(value)) if *value < 0.0 && value.is_finite() => Binds::Sign,
        Scalar::Constant(value @ Value::Numeric(_)) if constant_text(value).starts_with('-') => Binds::Sign,
        _ => Binds::Atom,
    }
}

/// The operator symbol of a function on numeric.
fn numeric_symbol(function: Function) -> Option<&'static str> {
    Some(match function {
        Function::NumericAdd => "+",
        Function::NumericSub => "-",
        Function::NumericMul => "*",
        Function::NumericDiv => "/",
        Function::NumericMod => "%",
        _ => return None,
    })
}

fn arithmetic(op: ArithmeticOp) -> &'static str {
    match op {
        ArithmeticOp::Add => "+",
        ArithmeticOp::Subtract => "-",
        ArithmeticOp::Multiply => "*",
        ArithmeticOp::Divide => "/",
        ArithmeticOp::Modulo => "%",
    }
}

fn session_value(value: SessionValue) -> &'static str {
    match value {
        SessionValue::TransactionTimestamp => "now()",
        SessionValue::StatementTimestamp => "statement_timestamp()",
        SessionValue::ClockTimestamp => "clock_timestamp()",
        SessionValue::LocalTimestamp => "localtimestamp",
        SessionValue::CurrentDate => "current_date",
        SessionValue::CurrentUser => "current_user",
        SessionValue::SessionUser => "session_user",
        SessionValue::CurrentDatabase => "current_database()",
        SessionValue::CurrentSchema => "current_schema()",
        SessionValue::Version => "version()",
        SessionValue::BackendPid => "pg_backend_pid()",
        SessionValue::LastValue => "lastval()",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statement::scalar::CompareOp;

    fn int(n: i32) -> Box<Scalar> {
        Box::new(Scalar::Constant(Value::Int4(n)))
    }

    fn input(n: u16) -> Box<Scalar> {
        Box::new(Scalar::Input(n))
    }

    fn shown(scalar: &Scalar) -> String {
        show(scalar, &|n| format!("${}", n + 1))
    }

    #[test]
    fn parentheses_are_printed_where_needed() {
        let sum = |left, right| Scalar::Arithmetic(ArithmeticOp::Add, left, right);
        let less = |left, right| Scalar::Arithmetic(ArithmeticOp::Subtract, left, right);
        let times = |left, right| Scalar::Arithmetic(ArithmeticOp::Multiply, left, right);
        let text = |of| Box::new(Scalar::Cast(of, SqlType::Int4, SqlType::Text));
        for (scalar, expected) in [
            (times(Box::new(sum(input(0), int(1))), input(1)), "($1 + 1) * $2"),
            (sum(Box::new(times(input(0), int(2))), input(1)), "$1 * 2 + $2"),
            (
                less(input(0), Box::new(less(input(1), input(2)))),
                "$1 - ($2 - $3)",
            ),
            (less(Box::new(less(input(0), input(1))), input(2)), "$1 - $2 - $3"),
            (*text(Box::new(sum(input(0), int(1)))), "($1 + 1)::text"),
            (*text(int(-3)), "(-3)::text"),
            (Scalar::Negate(int(-3)), "-(-3)"),
            (
                Scalar::Concat(
                    Box::new(Scalar::Concat(
                        text(input(0)),
                        Box::new(Scalar::Constant(Value::Text("it's".into()))),
                    )),
                    text(input(1)),
                ),
                "$1::text || 'it''s' || $2::text",
            ),
            (
                Scalar::And(
                    Box::new(Scalar::Or(
                        Box::new(Scalar::IsNull(input(0))),
                        Box::new(Scalar::Compare(CompareOp::Le, input(0), int(5))),
                    )),
                    Box::new(Scalar::Not(Box::new(Scalar::Compare(
                        CompareOp::Eq,
                        input(1),
                        int(0),
                    )))),
                ),
                "($1 IS NULL OR $1 <= 5) AND NOT $2 = 0",
            ),
            (
                Scalar::Assign(Box::new(sum(input(0), int(1))), SqlType::Int4, SqlType::Int2),
                "$1 + 1",
            ),
            (
                Scalar::Coalesce(vec![*input(0), Scalar::Constant(Value::Null)]),
                "coalesce($1, NULL)",
            ),
            (Scalar::Constant(Value::Date(0)), "'2000-01-01'::date"),
            (Scalar::Session(SessionValue::TransactionTimestamp), "now()"),
        ] {
            assert_eq!(shown(&scalar), expected);
        }
    }
}
