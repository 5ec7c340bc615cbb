//! min and max.

use std::cmp::Ordering;

use weft_types::{SqlError, SqlType, Value, ValueRef, compare_ref};

use super::{bytes_of, entry, first};
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg, Returns};

macro_rules! extremes {
    ($($ty:ident $state:expr;)*) => {
        &[
            $(
                entry("min", &[Arg::Is(SqlType::$ty)], SqlType::$ty, $state, |_, _| extreme(Ordering::Less)),
                entry("max", &[Arg::Is(SqlType::$ty)], SqlType::$ty, $state, |_, _| extreme(Ordering::Greater)),
            )*
            entry("min", &[Arg::Is(NUMERIC)], NUMERIC, &[NUMERIC], |_, _| extreme(Ordering::Less)),
            entry("max", &[Arg::Is(NUMERIC)], NUMERIC, &[NUMERIC], |_, _| extreme(Ordering::Greater)),
            entry("min", &[Arg::Is(BPCHAR)], BPCHAR, &[SqlType::Text], |_, _| extreme(Ordering::Less)),
            entry("max", &[Arg::Is(BPCHAR)], BPCHAR, &[SqlType::Text], |_, _| extreme(Ordering::Greater)),
            AggregateEntry {
                returns: Returns::Array,
                ..entry("min", &[Arg::AnyArray], SqlType::Void, &[], |_, _| extreme(Ordering::Less))
            },
            AggregateEntry {
                returns: Returns::Array,
                ..entry("max", &[Arg::AnyArray], SqlType::Void, &[], |_, _| extreme(Ordering::Greater))
            },
        ]
    };
}

use crate::category::BPCHAR;

const NUMERIC: SqlType = SqlType::Numeric(None);

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = extremes! {
    Int2 &[SqlType::Int2];
    Int4 &[SqlType::Int4];
    Int8 &[SqlType::Int8];
    Float4 &[SqlType::Float4];
    Float8 &[SqlType::Float8];
    Text &[SqlType::Text];
    Date &[SqlType::Date];
    Time &[SqlType::Time];
    Timestamp &[SqlType::Timestamp];
    TimestampTz &[SqlType::TimestampTz];
    Interval &[SqlType::Interval];
    Oid &[SqlType::Oid];
};

fn extreme(wanted: Ordering) -> Box<dyn Accumulator> {
    Box::new(Extreme {
        wanted,
        value: Value::Null,
    })
}

#[derive(Debug)]
struct Extreme {
    wanted: Ordering,
    value: Value,
}

impl Accumulator for Extreme {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let value = first(arguments)?;
        // PostgreSQL keeps the last of equal numbers: 1.0 and 1.00 print differently.
        if self.value.is_null() || compare_ref(&self.value.as_ref(), value) != Some(self.wanted) {
            self.value = value.to_value();
        }
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
        bytes_of(&self.value)
    }
}
