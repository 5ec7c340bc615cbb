//! Variance and standard deviation: exact for integers and decimals, by the Youngs-Cramer
//! recurrence for floats, as in PostgreSQL's `numeric.c` and `float.c`.

use weft_types::{Numeric, SqlError, SqlType, Value, ValueRef};

use weft_types::range::float_overflow as overflow;

use super::sums::DecimalSum;
use super::{entry, first, float, integer, mismatch};
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg};

use Arg::Is;
use SqlType::{Float4, Float8, Int2, Int4, Int8};

const NUMERIC: SqlType = SqlType::Numeric(None);
const EXACT_STATE: &[SqlType] = &[NUMERIC, NUMERIC, Int8];
const FLOAT_STATE: &[SqlType] = &[Float8, Float8, Float8];

macro_rules! spreads {
    ($($name:literal $sample:literal $root:literal;)*) => {
        &[$(
            entry($name, &[Is(Int2)], NUMERIC, EXACT_STATE, |_, _| exact($sample, $root)),
            entry($name, &[Is(Int4)], NUMERIC, EXACT_STATE, |_, _| exact($sample, $root)),
            entry($name, &[Is(Int8)], NUMERIC, EXACT_STATE, |_, _| exact($sample, $root)),
            entry($name, &[Is(NUMERIC)], NUMERIC, EXACT_STATE, |_, _| exact($sample, $root)),
            entry($name, &[Is(Float4)], Float8, FLOAT_STATE, |_, _| floats($sample, $root)),
            entry($name, &[Is(Float8)], Float8, FLOAT_STATE, |_, _| floats($sample, $root)),
        )*]
    };
}

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = spreads! {
    "var_pop" false false;
    "var_samp" true false;
    "variance" true false;
    "stddev_pop" false true;
    "stddev_samp" true true;
    "stddev" true true;
};

fn exact(sample: bool, root: bool) -> Box<dyn Accumulator> {
    Box::new(Exact {
        sum: DecimalSum::default(),
        squares: DecimalSum::default(),
        count: 0,
        sample,
        root,
    })
}

fn floats(sample: bool, root: bool) -> Box<dyn Accumulator> {
    Box::new(Floats {
        count: 0.0,
        sum: 0.0,
        squares: 0.0,
        sample,
        root,
    })
}

#[derive(Debug)]
struct Exact {
    sum: DecimalSum,
    squares: DecimalSum,
    count: i64,
    sample: bool,
    root: bool,
}

impl Accumulator for Exact {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let value = match first(arguments)? {
            ValueRef::Numeric(value) => value.clone(),
            _ => Numeric::from(integer(arguments, 0)?),
        };
        self.count += 1;
        self.squares.add(&value.mul(&value)?)?;
        self.sum.add(&value)
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let [ValueRef::Numeric(sum), ValueRef::Numeric(squares), _] = state else {
            return Err(mismatch());
        };
        self.count += integer(state, 2)?;
        self.squares.add(squares)?;
        self.sum.add(sum)
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![
            Value::Numeric(self.sum.total()?),
            Value::Numeric(self.squares.total()?),
            Value::Int8(self.count),
        ])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        if self.count == 0 || (self.sample && self.count == 1) {
            return Ok(Value::Null);
        }
        let count = Numeric::from(self.count);
        let sum = self.sum.total()?;
        let numerator = count.mul(&self.squares.total()?)?.sub(&sum.mul(&sum)?)?;
        if numerator.is_nan() {
            return Ok(Value::Numeric(Numeric::NAN));
        }
        if numerator.is_zero() || numerator.is_negative() {
            return Ok(Value::Numeric(Numeric::ZERO));
        }
        let others = Numeric::from(if self.sample { self.count - 1 } else { self.count });
        let variance = numerator.div(&count.mul(&others)?)?;
        Ok(Value::Numeric(if self.root {
            variance.sqrt_to_scale(variance.scale())?
        } else {
            variance
        }))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

#[derive(Debug)]
struct Floats {
    count: f64,
    sum: f64,
    squares: f64,
    sample: bool,
    root: bool,
}

impl Accumulator for Floats {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let value = float(arguments, 0)?;
        let (before, sum_before) = (self.count, self.sum);
        self.count += 1.0;
        self.sum += value;
        if before == 0.0 {
            if !value.is_finite() {
                self.squares = f64::NAN;
            }
            return Ok(());
        }
        let difference = value * self.count - self.sum;
        self.squares += difference * difference / (self.count * before);
        if self.sum.is_infinite() || self.squares.is_infinite() {
            if !sum_before.is_infinite() && !value.is_infinite() {
                return Err(overflow());
            }
            self.squares = f64::NAN;
        }
        Ok(())
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        let (count, sum, squares) = (float(state, 0)?, float(state, 1)?, float(state, 2)?);
        if count == 0.0 {
            return Ok(());
        }
        if self.count == 0.0 {
            (self.count, self.sum, self.squares) = (count, sum, squares);
            return Ok(());
        }
        let all = self.count + count;
        let difference = self.sum / self.count - sum / count;
        let merged = self.squares + squares + self.count * count * difference * difference / all;
        let total = self.sum + sum;
        let was_finite = !self.squares.is_infinite() && !squares.is_infinite();
        if (merged.is_infinite() && was_finite)
            || (total.is_infinite() && !self.sum.is_infinite() && !sum.is_infinite())
        {
            return Err(overflow());
        }
        (self.count, self.sum, self.squares) = (all, total, merged);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(vec![
            Value::Float8(self.count),
            Value::Float8(self.sum),
            Value::Float8(self.squares),
        ])
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        let divisor = if self.sample { self.count - 1.0 } else { self.count };
        if divisor <= 0.0 {
            return Ok(Value::Null);
        }
        let variance = self.squares / divisor;
        Ok(Value::Float8(if self.root { variance.sqrt() } else { variance }))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
