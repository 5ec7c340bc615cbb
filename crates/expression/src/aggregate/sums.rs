//! count, sum and avg.

use weft_types::range::{float_overflow as overflow, out_of_range};
use weft_types::{Interval, Numeric, SqlError, SqlState, SqlType, Value, ValueRef};

use super::{entry, first, float, integer, mismatch};
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg};

use Arg::{Any, Is};
use SqlType::{Float4, Float8, Int2, Int4, Int8, Numeric as Decimal};

const NUMERIC: SqlType = Decimal(None);

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = &[
    AggregateEntry {
        strict: false,
        ..entry("count", &[], Int8, &[Int8], |_, _| Box::new(Count(0)))
    },
    entry("count", &[Any], Int8, &[Int8], |_, _| Box::new(Count(0))),
    entry("sum", &[Is(Int2)], Int8, SUM_STATE, |_, _| integers(Of::Int8)),
    entry("sum", &[Is(Int4)], Int8, SUM_STATE, |_, _| integers(Of::Int8)),
    entry("sum", &[Is(Int8)], NUMERIC, SUM_STATE, |_, _| integers(Of::Sum)),
    entry("avg", &[Is(Int2)], NUMERIC, SUM_STATE, |_, _| integers(Of::Mean)),
    entry("avg", &[Is(Int4)], NUMERIC, SUM_STATE, |_, _| integers(Of::Mean)),
    entry("avg", &[Is(Int8)], NUMERIC, SUM_STATE, |_, _| integers(Of::Mean)),
    entry("sum", &[Is(NUMERIC)], NUMERIC, SUM_STATE, |_, _| {
        numerics(Of::Sum)
    }),
    entry("avg", &[Is(NUMERIC)], NUMERIC, SUM_STATE, |_, _| {
        numerics(Of::Mean)
    }),
    entry("sum", &[Is(Float4)], Float4, &[Float4], |_, _| {
        Box::new(SumFloat4(None))
    }),
    entry("sum", &[Is(Float8)], Float8, &[Float8, Int8], |_, _| {
        floats(false)
    }),
    entry("avg", &[Is(Float4)], Float8, &[Float8, Int8], |_, _| floats(true)),
    entry("avg", &[Is(Float8)], Float8, &[Float8, Int8], |_, _| floats(true)),
    entry(
        "sum",
        &[Is(SqlType::Interval)],
        SqlType::Interval,
        SPAN_STATE,
        |_, _| spans(false),
    ),
    entry(
        "avg",
        &[Is(SqlType::Interval)],
        SqlType::Interval,
        SPAN_STATE,
        |_, _| spans(true),
    ),
];

const SUM_STATE: &[SqlType] = &[NUMERIC, Int8];
const SPAN_STATE: &[SqlType] = &[Int8, Int8, NUMERIC, Int8];

/// What the accumulated sum is turned into.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// `bigint`
    Int8,
    /// `numeric`
    Sum,
    /// The sum divided by the number of rows.
    Mean,
}

fn integers(of: Of) -> Box<dyn Accumulator> {
    Box::new(SumIntegers { sum: 0, count: 0, of })
}

fn numerics(of: Of) -> Box<dyn Accumulator> {
    Box::new(SumNumerics {
        sum: DecimalSum::default(),
        count: 0,
        of,
    })
}

fn floats(mean: bool) -> Box<dyn Accumulator> {
    Box::new(SumFloats {
        sum: 0.0,
        count: 0,
        mean,
    })
}

fn spans(mean: bool) -> Box<dyn Accumulator> {
    Box::new(SumIntervals {
        months: 0,
        days: 0,
        micros: 0,
        count: 0,
        mean,
    })
}

#[derive(Debug)]
pub(super) struct Count(pub i64);

impl Accumulator for Count {
    fn update(&mut self, _: &Context<'_>, _: &[ValueRef<'_>]) -> Result<(), SqlError> {
        self.0 += 1;
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        self.0 += integer(state, 0)?;
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![Value::Int8(self.0)])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(Value::Int8(self.0))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

fn finish(sum: Numeric, count: i64, of: Of) -> Result<Value, SqlError> {
    if count == 0 {
        return Ok(Value::Null);
    }
    Ok(match of {
        Of::Int8 => Value::Int8(sum.to_i64()?),
        Of::Sum => Value::Numeric(sum),
        Of::Mean => Value::Numeric(sum.div(&Numeric::from(count))?),
    })
}

/// 128 bits cannot overflow: they hold the sum of as many integers as there can be rows.
#[derive(Debug)]
struct SumIntegers {
    sum: i128,
    count: i64,
    of: Of,
}

impl SumIntegers {
    fn sum(&self) -> Result<Numeric, SqlError> {
        Numeric::from_i128(self.sum, 0).ok_or_else(mismatch)
    }
}

impl Accumulator for SumIntegers {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        self.sum += i128::from(integer(arguments, 0)?);
        self.count += 1;
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let ValueRef::Numeric(sum) = first(state)? else {
            return Err(mismatch());
        };
        self.sum += sum.to_i128(0)?;
        self.count += integer(state, 1)?;
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![Value::Numeric(self.sum()?), Value::Int8(self.count)])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        finish(self.sum()?, self.count, self.of)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// A sum of decimals. Those of the largest scale so far are summed in 128 bits while they fit.
#[derive(Clone, Debug)]
pub(super) struct DecimalSum {
    near: i128,
    scale: u16,
    far: Numeric,
}

impl Default for DecimalSum {
    fn default() -> Self {
        DecimalSum {
            near: 0,
            scale: 0,
            far: Numeric::ZERO,
        }
    }
}

impl DecimalSum {
    pub fn add(&mut self, value: &Numeric) -> Result<(), SqlError> {
        if let Some((mantissa, scale)) = value.small_parts() {
            if scale > self.scale {
                self.far = self.total()?;
                self.near = 0;
                self.scale = scale;
            }
            if scale == self.scale
                && let Some(near) = self.near.checked_add(i128::from(mantissa))
            {
                self.near = near;
                return Ok(());
            }
        }
        self.far = self.far.add(value)?;
        Ok(())
    }

    /// The sum, with the largest scale of any summand.
    pub fn total(&self) -> Result<Numeric, SqlError> {
        match Numeric::from_i128(self.near, self.scale) {
            Some(near) => self.far.add(&near),
            None => Err(mismatch()),
        }
    }
}

#[derive(Debug)]
struct SumNumerics {
    sum: DecimalSum,
    count: i64,
    of: Of,
}

impl Accumulator for SumNumerics {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let ValueRef::Numeric(value) = first(arguments)? else {
            return Err(mismatch());
        };
        self.count += 1;
        self.sum.add(value)
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let ValueRef::Numeric(sum) = first(state)? else {
            return Err(mismatch());
        };
        self.count += integer(state, 1)?;
        self.sum.add(sum)
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![Value::Numeric(self.sum.total()?), Value::Int8(self.count)])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        finish(self.sum.total()?, self.count, self.of)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.sum.far.size()
    }
}

/// Sums in 32 bits, as PostgreSQL does.
#[derive(Debug)]
struct SumFloat4(Option<f32>);

impl Accumulator for SumFloat4 {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let ValueRef::Float4(value) = *first(arguments)? else {
            return Err(mismatch());
        };
        let sum = match self.0 {
            Some(sum) => sum + value,
            None => value,
        };
        if sum.is_infinite() && !value.is_infinite() && self.0.is_none_or(f32::is_finite) {
            return Err(overflow());
        }
        self.0 = Some(sum);
        Ok(())
    }

    fn merge(&mut self, context: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        match first(state)? {
            ValueRef::Null => Ok(()),
            _ => self.update(context, state),
        }
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![self.0.map_or(Value::Null, Value::Float4)])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(self.0.map_or(Value::Null, Value::Float4))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

#[derive(Debug)]
struct SumFloats {
    sum: f64,
    count: i64,
    mean: bool,
}

impl SumFloats {
    fn add(&mut self, value: f64, count: i64) -> Result<(), SqlError> {
        // The first summand initializes the sum, so that -0 stays -0. A mean starts at 0.
        let sum = match self.count {
            0 if !self.mean => value,
            _ => self.sum + value,
        };
        if sum.is_infinite() && !self.sum.is_infinite() && !value.is_infinite() {
            return Err(overflow());
        }
        self.sum = sum;
        self.count += count;
        Ok(())
    }
}

impl Accumulator for SumFloats {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        self.add(float(arguments, 0)?, 1)
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        match integer(state, 1)? {
            0 => Ok(()),
            count => self.add(float(state, 0)?, count),
        }
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![Value::Float8(self.sum), Value::Int8(self.count)])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(match self.count {
            0 => Value::Null,
            count if self.mean => Value::Float8(self.sum / count as f64),
            _ => Value::Float8(self.sum),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// Months, days and microseconds are summed separately.
#[derive(Debug)]
struct SumIntervals {
    months: i64,
    days: i64,
    micros: i128,
    count: i64,
    mean: bool,
}

impl SumIntervals {
    fn sum(&self) -> Result<Interval, SqlError> {
        let beyond = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range");
        Ok(Interval {
            months: i32::try_from(self.months).map_err(|_| beyond())?,
            days: i32::try_from(self.days).map_err(|_| beyond())?,
            micros: i64::try_from(self.micros).map_err(|_| beyond())?,
        })
    }
}

/// PostgreSQL's `interval_div`.
fn divide(span: Interval, by: f64) -> Result<Interval, SqlError> {
    // Rounds to six decimal places of a second.
    let round = |value: f64| (value * 1e6).round_ties_even() / 1e6;
    let months = (f64::from(span.months) / by) as i32;
    let days = (f64::from(span.days) / by) as i32;
    let month_remainder = round((f64::from(span.months) / by - f64::from(months)) * 30.0);
    let mut days_more = month_remainder.trunc();
    let mut seconds = (f64::from(span.days) / by - f64::from(days) + month_remainder - days_more) * 86_400.0;
    seconds = round(seconds);
    if seconds.abs() >= 86_400.0 {
        let whole = (seconds / 86_400.0).trunc();
        days_more += whole;
        seconds -= whole * 86_400.0;
    }
    let micros = (span.micros as f64 / by + seconds * 1e6).round_ties_even();
    if !micros.is_finite() || micros.abs() > 9.2e18 {
        return Err(out_of_range(&SqlType::Interval));
    }
    Ok(Interval {
        months,
        days: days.saturating_add(days_more as i32),
        micros: micros as i64,
    })
}

impl Accumulator for SumIntervals {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let ValueRef::Interval(value) = first(arguments)? else {
            return Err(mismatch());
        };
        self.months += i64::from(value.months);
        self.days += i64::from(value.days);
        self.micros += i128::from(value.micros);
        self.count += 1;
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let Some(ValueRef::Numeric(micros)) = state.get(2) else {
            return Err(mismatch());
        };
        self.months += integer(state, 0)?;
        self.days += integer(state, 1)?;
        self.micros += micros.to_i128(0)?;
        self.count += integer(state, 3)?;
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        let micros = Numeric::from_i128(self.micros, 0).ok_or_else(mismatch)?;
        Ok(vec![
            Value::Int8(self.months),
            Value::Int8(self.days),
            Value::Numeric(micros),
            Value::Int8(self.count),
        ])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok(match self.count {
            0 => Value::Null,
            count if self.mean => Value::Interval(divide(self.sum()?, count as f64)?),
            _ => Value::Interval(self.sum()?),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
