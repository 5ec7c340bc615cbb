//! Covariance, correlation and linear regression, as PostgreSQL's `float8_regr_accum` and its final
//! functions compute them. The arguments are the dependent variable Y, then the independent X.

use weft_types::{SqlError, SqlType, Value, ValueRef};

use weft_types::range::float_overflow as overflow;

use super::sums::Count;
use super::{entry, float, mismatch};
use crate::context::Context;
use crate::table::{Accumulator, AggregateEntry, Arg};

use SqlType::Float8;

const PAIR: &[Arg] = &[Arg::Is(Float8), Arg::Is(Float8)];
const STATE: &[SqlType] = &[Float8; 6];

macro_rules! regressions {
    ($($name:literal $finish:expr;)*) => {
        &[
            $(entry($name, PAIR, Float8, STATE, |_, _| {
                let finish: Finish = $finish;
                Box::new(Pairs {
                    sums: Sums::default(),
                    finish,
                })
            }),)*
            entry("regr_count", PAIR, SqlType::Int8, &[SqlType::Int8], |_, _| Box::new(Count(0))),
        ]
    };
}

/// The aggregates.
pub(super) static ENTRIES: &[AggregateEntry] = regressions! {
    "covar_pop" |s| (s.n >= 1.0).then(|| s.xy / s.n);
    "covar_samp" |s| (s.n >= 2.0).then(|| s.xy / (s.n - 1.0));
    "corr" |s| (s.n >= 1.0 && s.xx != 0.0 && s.yy != 0.0).then(|| s.xy / (s.xx * s.yy).sqrt());
    "regr_avgx" |s| (s.n >= 1.0).then(|| s.x / s.n);
    "regr_avgy" |s| (s.n >= 1.0).then(|| s.y / s.n);
    "regr_sxx" |s| (s.n >= 1.0).then_some(s.xx);
    "regr_syy" |s| (s.n >= 1.0).then_some(s.yy);
    "regr_sxy" |s| (s.n >= 1.0).then_some(s.xy);
    "regr_slope" |s| (s.n >= 1.0 && s.xx != 0.0).then(|| s.xy / s.xx);
    "regr_intercept" |s| (s.n >= 1.0 && s.xx != 0.0).then(|| (s.y - s.x * s.xy / s.xx) / s.n);
    "regr_r2" |s| {
        if s.n < 1.0 || s.xx == 0.0 {
            None
        } else if s.yy == 0.0 {
            Some(1.0)
        } else {
            Some((s.xy * s.xy) / (s.xx * s.yy))
        }
    };
};

type Finish = fn(&Sums) -> Option<f64>;

/// The number of rows, the sums, and the sums of products of differences from the means.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

#[derive(Debug)]
struct Pairs {
    sums: Sums,
    finish: Finish,
}

impl Sums {
    fn add(&mut self, y: f64, x: f64) -> Result<(), SqlError> {
        let old = *self;
        self.n += 1.0;
        self.x += x;
        self.y += y;
        if old.n == 0.0 {
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let of_x = x * self.n - self.x;
        let of_y = y * self.n - self.y;
        let scale = 1.0 / (self.n * old.n);
        self.xx += of_x * of_x * scale;
        self.yy += of_y * of_y * scale;
        self.xy += of_x * of_y * scale;
        let finite_x = !old.x.is_infinite() && !x.is_infinite();
        let finite_y = !old.y.is_infinite() && !y.is_infinite();
        if ((self.x.is_infinite() || self.xx.is_infinite()) && finite_x)
            || ((self.y.is_infinite() || self.yy.is_infinite()) && finite_y)
            || (self.xy.is_infinite() && finite_x && finite_y)
        {
            return Err(overflow());
        }
        for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: &Sums) -> Result<(), SqlError> {
        if other.n == 0.0 {
            return Ok(());
        }
        if self.n == 0.0 {
            *self = *other;
            return Ok(());
        }
        let n = self.n + other.n;
        let of_x = self.x / self.n - other.x / other.n;
        let of_y = self.y / self.n - other.y / other.n;
        let weight = self.n * other.n;
        let merged = Sums {
            n,
            x: self.x + other.x,
            xx: self.xx + other.xx + weight * of_x * of_x / n,
            y: self.y + other.y,
            yy: self.yy + other.yy + weight * of_y * of_y / n,
            xy: self.xy + other.xy + weight * of_x * of_y / n,
        };
        let overflows = merged
            .all()
            .into_iter()
            .zip(self.all())
            .zip(other.all())
            .any(|((sum, a), b)| sum.is_infinite() && !a.is_infinite() && !b.is_infinite());
        if overflows {
            return Err(overflow());
        }
        *self = merged;
        Ok(())
    }

    fn all(&self) -> [f64; 6] {
        [self.n, self.x, self.xx, self.y, self.yy, self.xy]
    }
}

impl Accumulator for Pairs {
    fn update(&mut self, _: &Context<'_>, arguments: &[ValueRef<'_>]) -> Result<(), SqlError> {
        self.sums.add(float(arguments, 0)?, float(arguments, 1)?)
    }

    fn merge(&mut self, _: &Context<'_>, state: &[ValueRef<'_>]) -> Result<(), SqlError> {
        if state.len() != STATE.len() {
            return Err(mismatch());
        }
        self.sums.merge(&Sums {
            n: float(state, 0)?,
            x: float(state, 1)?,
            xx: float(state, 2)?,
            y: float(state, 3)?,
            yy: float(state, 4)?,
            xy: float(state, 5)?,
        })
    }

    fn state(&mut self) -> Result<Vec<Value>, SqlError> {
        Ok(self.sums.all().into_iter().map(Value::Float8).collect())
    }

    fn value(&mut self, _: &Context<'_>) -> Result<Value, SqlError> {
        Ok((self.finish)(&self.sums).map_or(Value::Null, Value::Float8))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}
