//! Bound expressions: typed, with every cast explicit, over inputs and the columns of one row.
//!
//! A [`Scalar`] is the bound form of an expression that a point statement may contain. Subexpressions
//! without columns are evaluated here, once per execution, and become hidden inputs; those with columns are
//! compiled to instructions ([`super::compile`]). [`Scalar::evaluate`] is also the model against which
//! compiled code is tested.
//!
//! Operands already have the operator's type; NULL follows SQL's three-valued logic; integer overflow is
//! 22003 and division by zero 22012, with PostgreSQL's messages. AND and OR evaluate both operands.

use std::cmp::Ordering;

pub use weft_expression::CompareOp;
use weft_expression::evaluate::{and, extreme, or};
use weft_expression::functions::numbers::{float4, float8, int2, int4, int8};
use weft_expression::functions::text::cut::first_characters;
use weft_program::Function;
use weft_store::SequenceId;
use weft_types::{SqlError, SqlType, Value, ValueRef};

/// What a session supplies when a statement's inputs are bound. All of it is logged with the inputs.
pub trait InputSource {
    /// A value of the session or its clock.
    fn session_value(&mut self, which: SessionValue) -> Result<Value, SqlError>;
    /// `current_setting(name)`; 42704 for an unknown one.
    fn setting(&mut self, name: &str) -> Result<String, SqlError>;
    /// `nextval`
    fn next_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError>;
    /// `currval`; 55000 before the session's first `nextval`.
    fn current_value(&mut self, sequence: SequenceId) -> Result<i64, SqlError>;
    /// A random 64-bit word, for `gen_random_uuid()` and `random()`.
    fn random_u64(&mut self) -> u64;
}

/// Values of the session and its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionValue {
    /// `now()`, `current_timestamp`: start of the transaction, timestamptz.
    TransactionTimestamp,
    /// `statement_timestamp()`: timestamptz.
    StatementTimestamp,
    /// `clock_timestamp()`: timestamptz.
    ClockTimestamp,
    /// `localtimestamp`: start of the transaction in the session's time zone, timestamp.
    LocalTimestamp,
    /// `current_date`: the day of `localtimestamp`.
    CurrentDate,
    /// `current_user`, text.
    CurrentUser,
    /// `session_user`, text.
    SessionUser,
    /// `current_database()`, text.
    CurrentDatabase,
    /// `current_schema()`, text.
    CurrentSchema,
    /// `version()`, text.
    Version,
    /// `pg_backend_pid()`, integer.
    BackendPid,
    /// `lastval()`, bigint; 55000 before the first `nextval`.
    LastValue,
}

impl SessionValue {
    /// The function's result type.
    pub fn ty(self) -> SqlType {
        match self {
            SessionValue::TransactionTimestamp
            | SessionValue::StatementTimestamp
            | SessionValue::ClockTimestamp => SqlType::TimestampTz,
            SessionValue::LocalTimestamp => SqlType::Timestamp,
            SessionValue::CurrentDate => SqlType::Date,
            SessionValue::BackendPid => SqlType::Int4,
            SessionValue::LastValue => SqlType::Int8,
            _ => SqlType::Text,
        }
    }
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArithmeticOp {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

/// A bound expression. The caller knows its type; nodes that need a type carry it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A constant.
    Constant(Value),
    /// Input number, parameters first.
    Input(u16),
    /// Column of the statement's row.
    Column(u16),
    /// Variable of a procedure.
    Variable(u16),
    /// Result of an aggregate over the statement's rows, by number.
    Aggregate(u16),
    /// A value of the session.
    Session(SessionValue),
    /// `current_setting(name)`
    Setting(Box<Scalar>),
    /// `nextval(sequence)`
    NextValue(SequenceId),
    /// `currval(sequence)`
    CurrentValue(SequenceId),
    /// `gen_random_uuid()`
    RandomUuid,
    /// `random()`
    Random,
    /// Conversion by CAST: from type, to type.
    Cast(Box<Scalar>, SqlType, SqlType),
    /// Conversion by assignment to a column: from type, to type.
    Assign(Box<Scalar>, SqlType, SqlType),
    /// The same value in a key column's type; NULL if that type has no equal value, so that the key matches
    /// nothing.
    ExactKey(Box<Scalar>, SqlType),
    /// The nearest value of a key column's integer type: a bound that excludes no row admitted by the exact
    /// bound.
    ClampKey(Box<Scalar>, SqlType),
    /// `-x`
    Negate(Box<Scalar>),
    /// Arithmetic on one type: smallint, integer, bigint, real or double precision.
    Arithmetic(ArithmeticOp, Box<Scalar>, Box<Scalar>),
    /// Comparison of two values of one type.
    Compare(CompareOp, Box<Scalar>, Box<Scalar>),
    /// `a || b` on text.
    Concat(Box<Scalar>, Box<Scalar>),
    /// AND
    And(Box<Scalar>, Box<Scalar>),
    /// OR
    Or(Box<Scalar>, Box<Scalar>),
    /// NOT
    Not(Box<Scalar>),
    /// IS NULL
    IsNull(Box<Scalar>),
    /// COALESCE of values of one type.
    Coalesce(Vec<Scalar>),
    /// `left(text, n)`: the first `n` characters of a text.
    Left(Box<Scalar>, Box<Scalar>),
    /// The value, or NULL if computing it fails: what a procedure declares of a key that it may never
    /// compute.
    OrNull(Box<Scalar>),
    /// A function call with arguments of the function's types.
    Call(Function, Vec<Scalar>),
    /// CASE: the value of the first arm whose condition is true. Later arms are not evaluated.
    Case {
        /// Conditions and values, the latter of one type.
        arms: Vec<(Scalar, Scalar)>,
        /// The value if no condition is true.
        otherwise: Box<Scalar>,
    },
    /// `greatest`, `least`: of the items that are not NULL.
    Extreme {
        /// Whether it is `greatest`.
        greatest: bool,
        /// The items, of one type.
        items: Vec<Scalar>,
    },
}

impl Scalar {
    /// Calls `see` for this node and all its descendants.
    pub fn visit(&self, see: &mut impl FnMut(&Scalar)) {
        see(self);
        match self {
            Scalar::Setting(inner)
            | Scalar::Cast(inner, ..)
            | Scalar::Assign(inner, ..)
            | Scalar::ExactKey(inner, _)
            | Scalar::ClampKey(inner, _)
            | Scalar::Negate(inner)
            | Scalar::OrNull(inner)
            | Scalar::Not(inner)
            | Scalar::IsNull(inner) => inner.visit(see),
            Scalar::Arithmetic(_, left, right)
            | Scalar::Compare(_, left, right)
            | Scalar::Concat(left, right)
            | Scalar::Left(left, right)
            | Scalar::And(left, right)
            | Scalar::Or(left, right) => {
                left.visit(see);
                right.visit(see);
            }
            Scalar::Coalesce(items) | Scalar::Call(_, items) | Scalar::Extreme { items, .. } => {
                items.iter().for_each(|item| item.visit(see));
            }
            Scalar::Case { arms, otherwise } => {
                for (condition, value) in arms {
                    condition.visit(see);
                    value.visit(see);
                }
                otherwise.visit(see);
            }
            Scalar::Constant(_)
            | Scalar::Input(_)
            | Scalar::Column(_)
            | Scalar::Variable(_)
            | Scalar::Aggregate(_)
            | Scalar::Session(_)
            | Scalar::NextValue(_)
            | Scalar::CurrentValue(_)
            | Scalar::RandomUuid
            | Scalar::Random => {}
        }
    }

    fn any(&self, mut test: impl FnMut(&Scalar) -> bool) -> bool {
        let mut found = false;
        self.visit(&mut |node| found |= test(node));
        found
    }

    /// Whether it depends on the row.
    pub fn has_column(&self) -> bool {
        self.any(|node| matches!(node, Scalar::Column(_)))
    }

    /// Whether it depends on the program's execution: a row that it reads, or an aggregate of several.
    pub fn is_dynamic(&self) -> bool {
        self.any(|node| {
            matches!(
                node,
                Scalar::Column(_) | Scalar::Variable(_) | Scalar::Aggregate(_)
            )
        })
    }

    /// Whether it advances a sequence.
    pub fn moves_sequence(&self) -> bool {
        self.any(|node| matches!(node, Scalar::NextValue(_)))
    }

    /// Whether it may fail when inputs are bound, because the session lacks the requested value.
    pub fn may_be_refused(&self) -> bool {
        self.any(|node| {
            matches!(
                node,
                Scalar::Setting(_) | Scalar::CurrentValue(_) | Scalar::Session(SessionValue::LastValue)
            )
        })
    }

    /// Whether it is volatile, so that it must not be evaluated once for several rows.
    pub fn is_volatile(&self) -> bool {
        self.any(|node| {
            matches!(
                node,
                Scalar::NextValue(_)
                    | Scalar::RandomUuid
                    | Scalar::Random
                    | Scalar::Session(SessionValue::ClockTimestamp)
            )
        })
    }

    /// The value, given inputs, a row and a session. `row` is empty if there is none.
    pub fn evaluate(
        &self,
        inputs: &[Value],
        row: &[Value],
        source: &mut dyn InputSource,
    ) -> Result<Value, SqlError> {
        let part = |inner: &Scalar, source: &mut dyn InputSource| inner.evaluate(inputs, row, source);
        Ok(match self {
            Scalar::Constant(value) => value.clone(),
            Scalar::Input(number) => at(inputs, *number)?,
            Scalar::Column(number) => at(row, *number)?,
            Scalar::Variable(_) | Scalar::Aggregate(_) => {
                return Err(SqlError::internal(
                    "a variable or an aggregate was asked for before its program ran",
                ));
            }
            Scalar::OrNull(inner) => part(inner, source).unwrap_or(Value::Null),
            Scalar::Left(text, count) => match (part(text, source)?, part(count, source)?.as_i64()) {
                (Value::Text(text), Some(count)) => Value::Text(first_characters(&text, count).to_owned()),
                _ => Value::Null,
            },
            Scalar::Session(which) => source.session_value(*which)?,
            Scalar::Setting(name) => match part(name, source)? {
                Value::Text(name) => Value::Text(source.setting(&name)?),
                _ => Value::Null,
            },
            Scalar::NextValue(sequence) => Value::Int8(source.next_value(*sequence)?),
            Scalar::CurrentValue(sequence) => Value::Int8(source.current_value(*sequence)?),
            Scalar::RandomUuid => Value::Uuid(random_uuid(source)),
            // 53 random bits over 2^53: every double in [0, 1) with that spacing, equally likely.
            Scalar::Random => Value::Float8((source.random_u64() >> 11) as f64 / (1u64 << 53) as f64),
            Scalar::Cast(inner, from, to) => weft_types::cast_from(part(inner, source)?, from, to)?,
            Scalar::Assign(inner, from, to) => weft_types::assign_from(part(inner, source)?, from, to)?,
            Scalar::ExactKey(inner, to) => exact_key(&part(inner, source)?, to),
            Scalar::ClampKey(inner, to) => clamp_key(part(inner, source)?, to),
            Scalar::Negate(inner) => negate(part(inner, source)?)?,
            Scalar::Arithmetic(op, left, right) => {
                arithmetic(*op, part(left, source)?, part(right, source)?)?
            }
            Scalar::Compare(op, left, right) => {
                match weft_types::compare(&part(left, source)?, &part(right, source)?) {
                    Some(order) => Value::Bool(op.holds(order)),
                    None => Value::Null,
                }
            }
            Scalar::Concat(left, right) => match (part(left, source)?, part(right, source)?) {
                (Value::Text(left), Value::Text(right)) => Value::Text(left + &right),
                _ => Value::Null,
            },
            Scalar::And(left, right) => {
                let (left, right) = (part(left, source)?, part(right, source)?);
                and(truth(left), truth(right)).map_or(Value::Null, Value::Bool)
            }
            Scalar::Or(left, right) => {
                let (left, right) = (part(left, source)?, part(right, source)?);
                or(truth(left), truth(right)).map_or(Value::Null, Value::Bool)
            }
            Scalar::Not(inner) => {
                truth(part(inner, source)?).map_or(Value::Null, |value| Value::Bool(!value))
            }
            Scalar::IsNull(inner) => Value::Bool(part(inner, source)?.is_null()),
            Scalar::Coalesce(items) => {
                for item in items {
                    let value = part(item, source)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Value::Null
            }
            Scalar::Call(..) | Scalar::Case { .. } | Scalar::Extreme { .. } => {
                return self.evaluate_call(&mut |inner| part(inner, source));
            }
        })
    }

    /// Functions, CASE, `greatest` and `least`; `evaluate` evaluates their operands.
    fn evaluate_call(
        &self,
        evaluate: &mut dyn FnMut(&Scalar) -> Result<Value, SqlError>,
    ) -> Result<Value, SqlError> {
        Ok(match self {
            Scalar::Call(function, arguments) => {
                let mut values = Vec::with_capacity(arguments.len());
                for argument in arguments {
                    values.push(evaluate(argument)?);
                }
                let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
                function.apply(&values)?
            }
            Scalar::Case { arms, otherwise } => {
                for (condition, value) in arms {
                    if truth(evaluate(condition)?) == Some(true) {
                        return evaluate(value);
                    }
                }
                evaluate(otherwise)?
            }
            Scalar::Extreme { greatest, items } => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.push(evaluate(item)?);
                }
                let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
                extreme(
                    &values,
                    if *greatest {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    },
                )
            }
            _ => {
                return Err(SqlError::internal(
                    "an expression that is no call was evaluated as one",
                ));
            }
        })
    }
}

fn at(values: &[Value], number: u16) -> Result<Value, SqlError> {
    values.get(usize::from(number)).cloned().ok_or_else(|| {
        SqlError::internal(format!(
            "a bound expression names value {number}, which is not there"
        ))
    })
}

fn truth(value: Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(value),
        _ => None,
    }
}

/// A version 4 UUID.
fn random_uuid(source: &mut dyn InputSource) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    let (high, low) = bytes.split_at_mut(8);
    high.copy_from_slice(&source.random_u64().to_be_bytes());
    low.copy_from_slice(&source.random_u64().to_be_bytes());
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    bytes
}

fn exact_key(value: &Value, to: &SqlType) -> Value {
    let converted = match (value, to) {
        (Value::Int2(_) | Value::Int4(_) | Value::Int8(_), SqlType::Int2 | SqlType::Int4 | SqlType::Int8) => {
            value.as_i64().and_then(|number| integer(number, to))
        }
        _ => weft_types::cast(value.clone(), to).ok(),
    };
    match converted {
        Some(converted) if weft_types::compare(&converted, value) == Some(Ordering::Equal) => converted,
        _ => Value::Null,
    }
}

fn clamp_key(value: Value, to: &SqlType) -> Value {
    let Some(number) = value.as_i64() else {
        return value;
    };
    let (low, high) = match to {
        SqlType::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        SqlType::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    integer(number.clamp(low, high), to).unwrap_or(value)
}

/// The integer in one of the three types, if it fits.
fn integer(number: i64, ty: &SqlType) -> Option<Value> {
    match ty {
        SqlType::Int2 => i16::try_from(number).ok().map(Value::Int2),
        SqlType::Int4 => i32::try_from(number).ok().map(Value::Int4),
        SqlType::Int8 => Some(Value::Int8(number)),
        _ => None,
    }
}

fn negate(value: Value) -> Result<Value, SqlError> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Int2(v) => int2::neg(v).map(Value::Int2),
        Value::Int4(v) => int4::neg(v).map(Value::Int4),
        Value::Int8(v) => int8::neg(v).map(Value::Int8),
        Value::Float4(v) => Ok(Value::Float4(-v)),
        Value::Float8(v) => Ok(Value::Float8(-v)),
        _ => Err(mismatch()),
    }
}

#[cold]
fn mismatch() -> SqlError {
    SqlError::internal("arithmetic was computed over values of other types")
}

/// Dispatches to the arithmetic functions of one type.
macro_rules! operate {
    ($family:ident, $op:expr, $left:expr, $right:expr, $remainder:expr) => {
        match $op {
            ArithmeticOp::Add => $family::add($left, $right),
            ArithmeticOp::Subtract => $family::sub($left, $right),
            ArithmeticOp::Multiply => $family::mul($left, $right),
            ArithmeticOp::Divide => $family::div($left, $right),
            ArithmeticOp::Modulo => $remainder($left, $right),
        }
    };
}

fn arithmetic(op: ArithmeticOp, left: Value, right: Value) -> Result<Value, SqlError> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int2(l), Value::Int2(r)) => operate!(int2, op, l, r, int2::rem).map(Value::Int2),
        (Value::Int4(l), Value::Int4(r)) => operate!(int4, op, l, r, int4::rem).map(Value::Int4),
        (Value::Int8(l), Value::Int8(r)) => operate!(int8, op, l, r, int8::rem).map(Value::Int8),
        (Value::Float4(l), Value::Float4(r)) => {
            operate!(float4, op, l, r, |_, _| Err(mismatch())).map(Value::Float4)
        }
        (Value::Float8(l), Value::Float8(r)) => {
            operate!(float8, op, l, r, |_, _| Err(mismatch())).map(Value::Float8)
        }
        _ => Err(mismatch()),
    }
}

/// A source for expressions that need none: every request is an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSource;

impl InputSource for NoSource {
    fn session_value(&mut self, _: SessionValue) -> Result<Value, SqlError> {
        Err(no_source())
    }

    fn setting(&mut self, _: &str) -> Result<String, SqlError> {
        Err(no_source())
    }

    fn next_value(&mut self, _: SequenceId) -> Result<i64, SqlError> {
        Err(no_source())
    }

    fn current_value(&mut self, _: SequenceId) -> Result<i64, SqlError> {
        Err(no_source())
    }

    fn random_u64(&mut self) -> u64 {
        0
    }
}

fn no_source() -> SqlError {
    SqlError::internal("an expression asked for a session where there is none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(scalar: Scalar) -> Result<Value, SqlError> {
        scalar.evaluate(&[], &[], &mut NoSource)
    }

    fn int4(number: i32) -> Box<Scalar> {
        Box::new(Scalar::Constant(Value::Int4(number)))
    }

    #[test]
    fn integer_arithmetic_is_checked_in_its_width() {
        let add = Scalar::Arithmetic(ArithmeticOp::Add, int4(i32::MAX), int4(1));
        assert_eq!(value(add).unwrap_err().message, "integer out of range");
        let div = Scalar::Arithmetic(ArithmeticOp::Divide, int4(1), int4(0));
        assert_eq!(value(div).unwrap_err().state.0, "22012");
        let min = Scalar::Arithmetic(ArithmeticOp::Modulo, int4(i32::MIN), int4(-1));
        assert_eq!(value(min).unwrap(), Value::Int4(0));
        assert_eq!(
            value(Scalar::Negate(int4(i32::MIN))).unwrap_err().state.0,
            "22003"
        );
    }

    #[test]
    fn logic_has_three_values() {
        let null = || Box::new(Scalar::Constant(Value::Null));
        let yes = || Box::new(Scalar::Constant(Value::Bool(true)));
        let no = || Box::new(Scalar::Constant(Value::Bool(false)));
        assert_eq!(value(Scalar::And(null(), no())).unwrap(), Value::Bool(false));
        assert_eq!(value(Scalar::And(null(), yes())).unwrap(), Value::Null);
        assert_eq!(value(Scalar::Or(null(), yes())).unwrap(), Value::Bool(true));
        assert_eq!(
            value(Scalar::Compare(CompareOp::Eq, null(), int4(1))).unwrap(),
            Value::Null
        );
        assert_eq!(value(Scalar::IsNull(null())).unwrap(), Value::Bool(true));
    }

    #[test]
    fn keys_convert_exactly_or_clamp() {
        let big = || Box::new(Scalar::Constant(Value::Int8(5_000_000_000)));
        assert_eq!(
            value(Scalar::ExactKey(big(), SqlType::Int4)).unwrap(),
            Value::Null
        );
        assert_eq!(
            value(Scalar::ClampKey(big(), SqlType::Int4)).unwrap(),
            Value::Int4(i32::MAX)
        );
        let small = Box::new(Scalar::Constant(Value::Int8(5)));
        assert_eq!(
            value(Scalar::ExactKey(small, SqlType::Int2)).unwrap(),
            Value::Int2(5)
        );
    }
}
