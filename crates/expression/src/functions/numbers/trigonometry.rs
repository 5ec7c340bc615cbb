//! Angles, in radians and in degrees, and hyperbolic functions.
//!
//! In degrees, results at multiples of 30 and 45 are exact, as in PostgreSQL's `float.c`.

use weft_types::{SqlError, SqlState, SqlType, Value};

use super::floats::{RADIANS_PER_DEGREE, overflow, underflow};
use crate::functions::arguments::{self, entries};
use crate::table::{Entry, Kernel};

type Computed = Result<f64, SqlError>;

#[cold]
fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "input is out of range")
}

/// An infinite angle is an error.
fn of_angle(angle: f64, compute: fn(f64) -> f64) -> Computed {
    if angle.is_nan() {
        return Ok(f64::NAN);
    }
    if angle.is_infinite() {
        return Err(out_of_range());
    }
    Ok(compute(angle))
}

fn of_ratio(ratio: f64, compute: fn(f64) -> f64) -> Computed {
    if ratio.is_nan() {
        return Ok(f64::NAN);
    }
    if !(-1.0..=1.0).contains(&ratio) {
        return Err(out_of_range());
    }
    Ok(compute(ratio))
}

fn sine_of_30() -> f64 {
    (30.0 * RADIANS_PER_DEGREE).sin()
}

/// The sine of an angle from 0 to 30 degrees.
fn sin_to_30(x: f64) -> f64 {
    (x * RADIANS_PER_DEGREE).sin() / sine_of_30() / 2.0
}

/// The cosine of an angle from 0 to 60 degrees.
fn cos_to_60(x: f64) -> f64 {
    let missing = 1.0 - (x * RADIANS_PER_DEGREE).cos();
    let of_60 = 1.0 - (60.0 * RADIANS_PER_DEGREE).cos();
    1.0 - (missing / of_60) / 2.0
}

fn sin_quadrant(x: f64) -> f64 {
    if x <= 30.0 {
        sin_to_30(x)
    } else {
        cos_to_60(90.0 - x)
    }
}

fn cos_quadrant(x: f64) -> f64 {
    if x <= 60.0 {
        cos_to_60(x)
    } else {
        sin_to_30(90.0 - x)
    }
}

fn sind(angle: f64) -> f64 {
    let mut x = angle % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        x = 180.0 - x;
    }
    sign * sin_quadrant(x)
}

fn cosd(angle: f64) -> f64 {
    let mut x = (angle % 360.0).abs();
    let mut sign = 1.0;
    if x > 180.0 {
        x = 360.0 - x;
    }
    if x > 90.0 {
        (x, sign) = (180.0 - x, -sign);
    }
    sign * cos_quadrant(x)
}

/// The sign, and the angle mapped to the first quadrant.
fn tangent_quadrant(angle: f64) -> (f64, f64) {
    let mut x = angle % 360.0;
    let mut sign = 1.0;
    if x < 0.0 {
        (x, sign) = (-x, -sign);
    }
    if x > 180.0 {
        (x, sign) = (360.0 - x, -sign);
    }
    if x > 90.0 {
        (x, sign) = (180.0 - x, -sign);
    }
    (sign, x)
}

fn tand(angle: f64) -> f64 {
    let (sign, x) = tangent_quadrant(angle);
    let of_45 = sin_quadrant(45.0) / cos_quadrant(45.0);
    let result = sign * ((sin_quadrant(x) / cos_quadrant(x)) / of_45);
    // No negative zero.
    if result == 0.0 { 0.0 } else { result }
}

fn cotd(angle: f64) -> f64 {
    let (sign, x) = tangent_quadrant(angle);
    let of_45 = cos_quadrant(45.0) / sin_quadrant(45.0);
    let result = sign * ((cos_quadrant(x) / sin_quadrant(x)) / of_45);
    if result == 0.0 { 0.0 } else { result }
}

fn asin_quadrant(x: f64) -> f64 {
    if x <= 0.5 {
        (x.asin() / 0.5_f64.asin()) * 30.0
    } else {
        90.0 - (x.acos() / 0.5_f64.acos()) * 60.0
    }
}

fn acos_quadrant(x: f64) -> f64 {
    if x <= 0.5 {
        90.0 - (x.asin() / 0.5_f64.asin()) * 30.0
    } else {
        (x.acos() / 0.5_f64.acos()) * 60.0
    }
}

fn asind(x: f64) -> f64 {
    if x >= 0.0 {
        asin_quadrant(x)
    } else {
        -asin_quadrant(-x)
    }
}

fn acosd(x: f64) -> f64 {
    if x >= 0.0 {
        acos_quadrant(x)
    } else {
        90.0 + asin_quadrant(-x)
    }
}

fn atand(x: f64) -> f64 {
    (x.atan() / 1.0_f64.atan()) * 45.0
}

fn atan2d(y: f64, x: f64) -> f64 {
    (y.atan2(x) / 1.0_f64.atan()) * 45.0
}

fn cot(x: f64) -> f64 {
    1.0 / x.tan()
}

fn checked_hyperbolic(x: f64, result: f64) -> Computed {
    if result.is_infinite() && !x.is_infinite() {
        Err(overflow())
    } else {
        Ok(result)
    }
}

fn sinh(x: f64) -> Computed {
    // PostgreSQL returns infinity on overflow.
    Ok(x.sinh())
}

fn cosh(x: f64) -> Computed {
    let result = x.cosh();
    if result == 0.0 {
        Err(underflow())
    } else {
        Ok(result)
    }
}

/// From here on, the root in `ln(x + sqrt(x*x + 1))` equals `x`.
const LARGE: f64 = (1_u64 << 28) as f64;

/// As the C library computes it.
fn asinh(x: f64) -> f64 {
    let size = x.abs();
    let square = size * size;
    let value = if !x.is_finite() || size < 1.0 / LARGE {
        return x;
    } else if size > LARGE {
        size.ln() + std::f64::consts::LN_2
    } else if size > 2.0 {
        (2.0 * size + 1.0 / ((square + 1.0).sqrt() + size)).ln()
    } else {
        (size + square / (1.0 + (1.0 + square).sqrt())).ln_1p()
    };
    value.copysign(x)
}

/// As the C library computes it.
fn acosh(x: f64) -> Computed {
    if x < 1.0 {
        return Err(out_of_range());
    }
    Ok(if x.is_nan() || x > LARGE {
        x.ln() + std::f64::consts::LN_2
    } else if x > 2.0 {
        (2.0 * x - 1.0 / (x + (x * x - 1.0).sqrt())).ln()
    } else {
        let above = x - 1.0;
        (above + (2.0 * above + above * above).sqrt()).ln_1p()
    })
}

/// As the C library computes it.
fn atanh(x: f64) -> Computed {
    let size = x.abs();
    if size > 1.0 {
        return Err(out_of_range());
    }
    let value = if size < 1.0 / LARGE {
        return Ok(x);
    } else if size < 0.5 {
        let twice = size + size;
        0.5 * (twice + twice * size / (1.0 - size)).ln_1p()
    } else {
        0.5 * ((size + size) / (1.0 - size)).ln_1p()
    };
    Ok(value.copysign(x))
}

macro_rules! of_one {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| {
            let compute: fn(f64) -> Computed = $compute;
            compute(arguments::float8(arguments, 0)?).map(Value::Float8)
        })
    };
}

macro_rules! of_two {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| {
            let compute: fn(f64, f64) -> f64 = $compute;
            let (y, x) = (arguments::float8(arguments, 0)?, arguments::float8(arguments, 1)?);
            Ok(Value::Float8(compute(y, x)))
        })
    };
}

use SqlType::Float8;

/// The functions.
pub static ENTRIES: &[Entry] = entries! {
    function "sin" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, f64::sin));
    function "cos" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, f64::cos));
    function "tan" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, f64::tan));
    function "cot" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, cot));
    function "asin" [Float8] -> Float8, fallible, of_one!(|x| of_ratio(x, f64::asin));
    function "acos" [Float8] -> Float8, fallible, of_one!(|x| of_ratio(x, f64::acos));
    function "atan" [Float8] -> Float8, total, of_one!(|x| Ok(x.atan()));
    function "atan2" [Float8, Float8] -> Float8, total, of_two!(f64::atan2);
    function "sind" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, sind));
    function "cosd" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, cosd));
    function "tand" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, tand));
    function "cotd" [Float8] -> Float8, fallible, of_one!(|x| of_angle(x, cotd));
    function "asind" [Float8] -> Float8, fallible, of_one!(|x| of_ratio(x, asind));
    function "acosd" [Float8] -> Float8, fallible, of_one!(|x| of_ratio(x, acosd));
    function "atand" [Float8] -> Float8, total, of_one!(|x| Ok(atand(x)));
    function "atan2d" [Float8, Float8] -> Float8, total, of_two!(atan2d);
    function "sinh" [Float8] -> Float8, total, of_one!(sinh);
    function "cosh" [Float8] -> Float8, fallible, of_one!(cosh);
    function "tanh" [Float8] -> Float8, fallible, of_one!(|x| checked_hyperbolic(x, x.tanh()));
    function "asinh" [Float8] -> Float8, total, of_one!(|x| Ok(asinh(x)));
    function "acosh" [Float8] -> Float8, fallible, of_one!(acosh);
    function "atanh" [Float8] -> Float8, fallible, of_one!(atanh);
};
