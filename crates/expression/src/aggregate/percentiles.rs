//! Aggregates with WITHIN GROUP; rows arrive in its order.

use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use super::{bytes_of, entry, float, mismatch, whole};
use crate::context::Context;
use crate::evaluate::arrays::same_item;
use crate::table::{Accumulator, AggregateEntry, Arg, Returns};

use SqlType::Float8;

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = &[
    ordered_set("mode", &[Arg::AnyElement], Returns::Element, |_, _| {
        sorted(Finish::Mode)
    }),
    ordered_set(
        "percentile_disc",
        &[Arg::Is(Float8), Arg::AnyElement],
        Returns::Element,
        |_, _| sorted(Finish::Discrete),
    ),
    ordered_set(
        "percentile_cont",
        &[Arg::Is(Float8), Arg::Is(Float8)],
        Returns::Is(Float8),
        |_, _| sorted(Finish::Continuous),
    ),
];

const fn ordered_set(
    name: &'static str,
    arguments: &'static [Arg],
    returns: Returns,
    start: fn(&[SqlType], SqlType) -> Box<dyn Accumulator>,
) -> AggregateEntry {
    AggregateEntry {
        ordered_set: 1,
        returns,
        ordered: true,
        ..entry(name, arguments, SqlType::Void, &[], start)
    }
}

#[derive(Clone, Copy, Debug)]
enum Finish {
    Mode,
    Discrete,
    Continuous,
}

fn sorted(finish: Finish) -> Box<dyn Accumulator> {
    Box::new(Sorted {
        finish,
        fraction: 0.0,
        values: Vec::new(),
        bytes: 0,
    })
}

#[derive(Debug)]
struct Sorted {
    finish: Finish,
    fraction: f64,
    values: Vec<Value>,
    bytes: usize,
}

impl Sorted {
    fn mode(&self) -> Value {
        let mut best: (usize, &Value) = (0, &Value::Null);
        let runs = self.values.chunk_by(same_item);
        for run in runs {
            if let Some(value) = run.first()
                && run.len() > best.0
            {
                best = (run.len(), value);
            }
        }
        best.1.clone()
    }

    fn discrete(&self) -> Value {
        let place = (self.fraction * self.values.len() as f64).ceil() as usize;
        let value = self.values.get(place.saturating_sub(1));
        value.cloned().unwrap_or(Value::Null)
    }

    fn continuous(&self) -> Result<Value, SqlError> {
        let Some(last) = self.values.len().checked_sub(1) else {
            return Ok(Value::Null);
        };
        let place = self.fraction * last as f64;
        let at = |place: f64| match self.values.get(place as usize) {
            Some(Value::Float8(value)) => Ok(*value),
            _ => Err(mismatch()),
        };
        let (low, high) = (at(place.floor())?, at(place.ceil())?);
        if place.floor() == place.ceil() {
            return Ok(Value::Float8(low));
        }
        Ok(Value::Float8(low + (place - place.floor()) * (high - low)))
    }
}

impl Accumulator for Sorted {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let (value, direct) = arguments.split_last().ok_or_else(mismatch)?;
        if self.values.is_empty() && !matches!(self.finish, Finish::Mode) {
            self.fraction = float(direct, 0)?;
            if !(0.0..=1.0).contains(&self.fraction) {
                let mut text = String::new();
                weft_types::format_text(&Value::Float8(self.fraction), &Float8, &mut text);
                return Err(SqlError::new(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!("percentile value {text} is not between 0 and 1"),
                ));
            }
        }
        let value = value.to_value();
        self.bytes += bytes_of(&value);
        self.values.push(value);
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        whole()
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        whole()
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        match self.finish {
            Finish::Mode => Ok(self.mode()),
            Finish::Discrete => Ok(self.discrete()),
            Finish::Continuous => self.continuous(),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
