//! Aggregates of booleans and of bits.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use super::{entry, first, mismatch};
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg};

use Arg::Is;
use SqlType::{Bool, Int2, Int4, Int8};

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = &[
    entry("bool_and", &[Is(Bool)], Bool, &[Bool], |_, _| of(Fold::And)),
    entry("every", &[Is(Bool)], Bool, &[Bool], |_, _| of(Fold::And)),
    entry("bool_or", &[Is(Bool)], Bool, &[Bool], |_, _| of(Fold::Or)),
    entry("bit_and", &[Is(Int2)], Int2, &[Int2], |_, _| of(Fold::And)),
    entry("bit_and", &[Is(Int4)], Int4, &[Int4], |_, _| of(Fold::And)),
    entry("bit_and", &[Is(Int8)], Int8, &[Int8], |_, _| of(Fold::And)),
    entry("bit_or", &[Is(Int2)], Int2, &[Int2], |_, _| of(Fold::Or)),
    entry("bit_or", &[Is(Int4)], Int4, &[Int4], |_, _| of(Fold::Or)),
    entry("bit_or", &[Is(Int8)], Int8, &[Int8], |_, _| of(Fold::Or)),
    entry("bit_xor", &[Is(Int2)], Int2, &[Int2], |_, _| of(Fold::Xor)),
    entry("bit_xor", &[Is(Int4)], Int4, &[Int4], |_, _| of(Fold::Xor)),
    entry("bit_xor", &[Is(Int8)], Int8, &[Int8], |_, _| of(Fold::Xor)),
];

#[derive(Clone, Copy, Debug)]
enum Fold {
    And,
    Or,
    Xor,
}

fn of(fold: Fold) -> Box<dyn Accumulator> {
    Box::new(Bits {
        fold,
        value: Value::Null,
    })
}

#[derive(Debug)]
struct Bits {
    fold: Fold,
    value: Value,
}

impl Accumulator for Bits {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        macro_rules! fold {
            ($a:expr, $b:expr) => {
                match self.fold {
                    Fold::And => $a & $b,
                    Fold::Or => $a | $b,
                    Fold::Xor => $a ^ $b,
                }
            };
        }
        let value = first(arguments)?;
        self.value = match (&self.value, value) {
            (Value::Null, value) => value.to_value(),
            (Value::Bool(a), ValueRef::Bool(b)) => Value::Bool(fold!(a, b)),
            (Value::Int2(a), ValueRef::Int2(b)) => Value::Int2(fold!(a, b)),
            (Value::Int4(a), ValueRef::Int4(b)) => Value::Int4(fold!(a, b)),
            (Value::Int8(a), ValueRef::Int8(b)) => Value::Int8(fold!(a, b)),
            _ => return Err(mismatch()),
        };
        Ok(())
    }

    fn merge(&mut self, context: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        match first(state)? {
            ValueRef::Null => Ok(()),
            _ => self.update(context, state),
        }
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![self.value.clone()])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(self.value.clone())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
