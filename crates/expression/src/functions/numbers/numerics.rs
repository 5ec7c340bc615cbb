//! Functions and operators of `numeric`.

use weft_types::range::out_of_range;
use weft_types::{Numeric, SqlError, SqlState, SqlType, Value};

use crate::functions::arguments::{self, Arguments, entries};
use crate::table::{Entry, Kernel};

type Computed = Result<Numeric, SqlError>;

fn one(arguments: Arguments<'_, '_>, compute: fn(&Numeric) -> Computed) -> Result<Value, SqlError> {
    compute(arguments::numeric(arguments, 0)?).map(Value::Numeric)
}

fn two(arguments: Arguments<'_, '_>, compute: fn(&Numeric, &Numeric) -> Computed) -> Result<Value, SqlError> {
    let (a, b) = (
        arguments::numeric(arguments, 0)?,
        arguments::numeric(arguments, 1)?,
    );
    compute(a, b).map(Value::Numeric)
}

macro_rules! of_one {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| one(arguments, $compute))
    };
}

macro_rules! of_two {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| two(arguments, $compute))
    };
}

/// Most digits before and after the point.
const DIGITS_BEFORE_MAX: i32 = 131_073;
const DIGITS_BEHIND_MAX: i32 = 16_383;

/// The digit count is clamped to a `numeric`'s limits, as in PostgreSQL.
macro_rules! to_digits {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| {
            let digits = arguments::int4(arguments, 1)?.clamp(-DIGITS_BEFORE_MAX, DIGITS_BEHIND_MAX);
            $compute(arguments::numeric(arguments, 0)?, digits).map(Value::Numeric)
        })
    };
}

fn sign(value: &Numeric) -> Computed {
    Ok(if value.is_nan() {
        Numeric::NAN
    } else if value.is_zero() {
        Numeric::ZERO
    } else {
        Numeric::from(if value.is_negative() { -1 } else { 1 })
    })
}

fn log10(value: &Numeric) -> Computed {
    Numeric::from(10).log(value)
}

fn scale_value(value: &Numeric, scale: u16) -> Value {
    if value.is_nan() {
        Value::Null
    } else {
        Value::Int4(i32::from(scale))
    }
}

const SCALE: Kernel = Kernel::Values(|_, arguments| {
    let value = arguments::numeric(arguments, 0)?;
    Ok(scale_value(value, value.scale()))
});

const MIN_SCALE: Kernel = Kernel::Values(|_, arguments| {
    let value = arguments::numeric(arguments, 0)?;
    Ok(scale_value(value, value.min_scale()))
});

/// PostgreSQL's `width_bucket_numeric`.
const WIDTH_BUCKET: Kernel = Kernel::Values(|_, arguments| {
    let (value, low, high) = (
        arguments::numeric(arguments, 0)?,
        arguments::numeric(arguments, 1)?,
        arguments::numeric(arguments, 2)?,
    );
    let count = arguments::int4(arguments, 3)?;
    let invalid = |message: &str| SqlError::new(SqlState("2201G"), message);
    if count <= 0 {
        return Err(invalid("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    let order = low.compare(high);
    if order.is_eq() {
        return Err(invalid("lower bound cannot equal upper bound"));
    }
    // Comparisons for an ascending range; for a descending one both are reversed.
    let (from_low, from_high) = if order.is_lt() {
        (value.compare(low), value.compare(high))
    } else {
        (low.compare(value), high.compare(value))
    };
    let bucket = if from_low.is_lt() {
        0
    } else if from_high.is_ge() {
        above(count)?
    } else {
        inside(value, low, high, count)?
    };
    Ok(Value::Int4(bucket))
});

fn above(count: i32) -> Result<i32, SqlError> {
    count.checked_add(1).ok_or_else(|| out_of_range(&Int4))
}

/// The bucket of a value between the bounds `low` and `high`, which may be in either order.
fn inside(value: &Numeric, low: &Numeric, high: &Numeric, count: i32) -> Result<i32, SqlError> {
    // As in PostgreSQL 15, a quotient that rounds up to the count yields the bucket after the last.
    let offset = value.sub(low)?.mul(&Numeric::from(count))?;
    let part = offset.div(&high.sub(low)?)?;
    let bucket = part.add(&Numeric::from(1))?.floor()?.to_i64()?;
    i32::try_from(bucket).map_err(|_| out_of_range(&Int4))
}

use SqlType::Int4;

const NUMERIC: SqlType = SqlType::Numeric(None);

/// The functions and operators.
pub static ENTRIES: &[Entry] = entries! {
    infix "+" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::add);
    infix "-" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::sub);
    infix "*" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::mul);
    infix "/" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::div);
    infix "%" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::rem);
    infix "^" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::power);
    prefix "-" [NUMERIC] -> NUMERIC, total, of_one!(|value| Ok(value.neg()));
    prefix "+" [NUMERIC] -> NUMERIC, total, of_one!(|value| Ok(value.clone()));
    prefix "@" [NUMERIC] -> NUMERIC, total, of_one!(|value| Ok(value.abs()));
    function "abs" [NUMERIC] -> NUMERIC, total, of_one!(|value| Ok(value.abs()));
    function "ceil" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::ceil);
    function "ceiling" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::ceil);
    function "floor" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::floor);
    function "round" [NUMERIC] -> NUMERIC, fallible, of_one!(|value| value.round(0));
    function "round" [NUMERIC, Int4] -> NUMERIC, fallible, to_digits!(Numeric::round);
    function "trunc" [NUMERIC] -> NUMERIC, fallible, of_one!(|value| value.trunc(0));
    function "trunc" [NUMERIC, Int4] -> NUMERIC, fallible, to_digits!(Numeric::trunc);
    function "sign" [NUMERIC] -> NUMERIC, total, of_one!(sign);
    function "mod" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::rem);
    function "div" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::div_trunc);
    function "gcd" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::gcd);
    function "lcm" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::lcm);
    function "sqrt" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::sqrt);
    function "exp" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::exp);
    function "ln" [NUMERIC] -> NUMERIC, fallible, of_one!(Numeric::ln);
    function "log" [NUMERIC] -> NUMERIC, fallible, of_one!(log10);
    function "log10" [NUMERIC] -> NUMERIC, fallible, of_one!(log10);
    function "log" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::log);
    function "power" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::power);
    function "pow" [NUMERIC, NUMERIC] -> NUMERIC, fallible, of_two!(Numeric::power);
    function "scale" [NUMERIC] -> Int4, total, SCALE;
    function "min_scale" [NUMERIC] -> Int4, total, MIN_SCALE;
    function "trim_scale" [NUMERIC] -> NUMERIC, total, of_one!(|value| Ok(value.normalized()));
    function "width_bucket" [NUMERIC, NUMERIC, NUMERIC, Int4] -> Int4, fallible, WIDTH_BUCKET;
};
