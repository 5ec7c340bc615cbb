//! Functions and operators of floats, by the rules of PostgreSQL's `float.c`: overflow and underflow of
//! finite operands are errors.

use weft_types::range::{division_by_zero, out_of_range};
pub(super) use weft_types::range::{float_overflow as overflow, float_underflow as underflow};
use weft_types::{SqlError, SqlState, SqlType, Value, ValueRef};

use super::{columns, plain};
use crate::functions::arguments::{self, Arguments, entries, mismatch};
use crate::table::{Entry, Kernel};

macro_rules! float_family {
    ($reader:ident, $float:ty, $variant:ident, $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        pub mod $reader {
            use super::*;

            #[inline]
            fn sum(a: $float, b: $float) -> ($float, bool) {
                let value = a + b;
                (value, value.is_infinite() & a.is_finite() & b.is_finite())
            }

            #[inline]
            fn difference(a: $float, b: $float) -> ($float, bool) {
                let value = a - b;
                (value, value.is_infinite() & a.is_finite() & b.is_finite())
            }

            #[inline]
            fn product(a: $float, b: $float) -> ($float, bool) {
                let value = a * b;
                let over = value.is_infinite() & !a.is_infinite() & !b.is_infinite();
                (value, over | ((value == 0.0) & (a != 0.0) & (b != 0.0)))
            }

            #[inline]
            fn quotient(a: $float, b: $float) -> ($float, bool) {
                let value = a / b;
                let zero = (b == 0.0) & !a.is_nan();
                let over = value.is_infinite() & !a.is_infinite();
                (
                    value,
                    zero | over | ((value == 0.0) & (a != 0.0) & !b.is_infinite()),
                )
            }

            #[cold]
            fn too_large(_: $float, _: $float) -> SqlError {
                overflow()
            }

            #[cold]
            fn no_product(a: $float, b: $float) -> SqlError {
                if (a * b).is_infinite() {
                    overflow()
                } else {
                    underflow()
                }
            }

            #[cold]
            fn no_quotient(a: $float, b: $float) -> SqlError {
                if b == 0.0 {
                    division_by_zero()
                } else if (a / b).is_infinite() {
                    overflow()
                } else {
                    underflow()
                }
            }

            plain!(
                #[doc = "`a + b`"]
                add, $float, sum, too_large
            );
            plain!(
                #[doc = "`a - b`"]
                sub, $float, difference, too_large
            );
            plain!(
                #[doc = "`a * b`"]
                mul, $float, product, no_product
            );
            plain!(
                #[doc = "`a / b`"]
                div, $float, quotient, no_quotient
            );

            pub(super) const ADD: Kernel = columns!($variant, $reader, sum, too_large);
            pub(super) const SUB: Kernel = columns!($variant, $reader, difference, too_large);
            pub(super) const MUL: Kernel = columns!($variant, $reader, product, no_product);
            pub(super) const DIV: Kernel = columns!($variant, $reader, quotient, no_quotient);

            fn one(
                arguments: Arguments<'_, '_>,
                compute: impl Fn($float) -> $float,
            ) -> Result<Value, SqlError> {
                Ok(Value::$variant(compute(arguments::$reader(arguments, 0)?)))
            }

            pub(super) const NEG: Kernel = Kernel::Values(|_, arguments| one(arguments, |value| -value));
            pub(super) const PLUS: Kernel = Kernel::Values(|_, arguments| one(arguments, |value| value));
            pub(super) const ABS: Kernel = Kernel::Values(|_, arguments| one(arguments, <$float>::abs));
        }
    };
}

float_family!(float4, f32, Float4,
    /// Arithmetic of `real`.
);
float_family!(float8, f64, Float8,
    /// Arithmetic of `double precision`.
);

/// A `real` or a `double precision`.
fn either(arguments: Arguments<'_, '_>, number: usize) -> Result<f64, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Float4(value)) => Ok(f64::from(*value)),
        Some(ValueRef::Float8(value)) => Ok(*value),
        _ => Err(mismatch()),
    }
}

/// An operation with a `real` and a `double precision` operand.
macro_rules! mixed {
    ($kernel:expr) => {
        Kernel::Values(|context, arguments| {
            let (a, b) = (either(arguments, 0)?, either(arguments, 1)?);
            ($kernel.compute())(context, &[ValueRef::Float8(a), ValueRef::Float8(b)])
        })
    };
}

const MIXED_ADD: Kernel = mixed!(float8::ADD);
const MIXED_SUB: Kernel = mixed!(float8::SUB);
const MIXED_MUL: Kernel = mixed!(float8::MUL);
const MIXED_DIV: Kernel = mixed!(float8::DIV);

macro_rules! of_one {
    ($compute:expr) => {
        Kernel::Values(|_, arguments| {
            let compute: fn(f64) -> Result<f64, SqlError> = $compute;
            compute(arguments::float8(arguments, 0)?).map(Value::Float8)
        })
    };
}

fn invalid(state: &'static str, message: &str) -> SqlError {
    SqlError::new(SqlState(state), message)
}

fn sqrt(value: f64) -> Result<f64, SqlError> {
    if value < 0.0 {
        return Err(invalid("2201F", "cannot take square root of a negative number"));
    }
    Ok(value.sqrt())
}

fn exp(value: f64) -> Result<f64, SqlError> {
    let result = value.exp();
    if result.is_infinite() && !value.is_infinite() {
        return Err(overflow());
    }
    if result == 0.0 && !value.is_infinite() {
        return Err(underflow());
    }
    Ok(result)
}

fn logarithm(value: f64, compute: fn(f64) -> f64) -> Result<f64, SqlError> {
    if value == 0.0 {
        return Err(invalid("2201E", "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(invalid("2201E", "cannot take logarithm of a negative number"));
    }
    Ok(compute(value))
}

fn sign(value: f64) -> f64 {
    if value > 0.0 {
        1.0
    } else if value < 0.0 {
        -1.0
    } else {
        // Also for NaN, as in PostgreSQL.
        0.0
    }
}

/// PostgreSQL's `dpow`.
fn power(base: f64, exponent: f64) -> Result<f64, SqlError> {
    if base.is_nan() || exponent.is_nan() {
        return Ok(base.powf(exponent));
    }
    if base == 0.0 && exponent < 0.0 {
        return Err(invalid("2201F", "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.is_finite() && exponent.floor() != exponent {
        return Err(invalid(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let result = base.powf(exponent);
    if base.is_infinite() || exponent.is_infinite() {
        return Ok(result);
    }
    if result.is_infinite() {
        return Err(overflow());
    }
    if result == 0.0 && base != 0.0 {
        return Err(underflow());
    }
    Ok(result)
}

fn degrees(value: f64) -> Result<f64, SqlError> {
    finite_as(value, value / RADIANS_PER_DEGREE)
}

fn radians(value: f64) -> Result<f64, SqlError> {
    let result = value * RADIANS_PER_DEGREE;
    if result == 0.0 && value != 0.0 {
        return Err(underflow());
    }
    finite_as(value, result)
}

/// PostgreSQL's `RADIANS_PER_DEGREE`.
pub(super) const RADIANS_PER_DEGREE: f64 = 0.017_453_292_519_943_295_769_236_907_684_886_1;

fn finite_as(value: f64, result: f64) -> Result<f64, SqlError> {
    if result.is_infinite() && !value.is_infinite() {
        return Err(overflow());
    }
    Ok(result)
}

/// The cube root as computed by the GNU C library up to release 2.40, with which PostgreSQL 15 was built: a
/// polynomial and one step of Halley's method, sometimes off in the last digit (the root of 27).
fn cube_root(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value + value;
    }
    // value = fraction * 2^exponent with 0.5 <= fraction < 1.
    let magnitude = value.abs();
    let (normal, shift) = match magnitude < f64::MIN_POSITIVE {
        true => (magnitude * (1_u64 << 54) as f64, 54),
        false => (magnitude, 0),
    };
    let bits = normal.to_bits();
    let exponent = (bits >> 52) as i32 - 1022 - shift;
    let fraction = f64::from_bits((bits & ((1 << 52) - 1)) | (1022 << 52));
    let x = fraction;
    let tail = 1.834_692_774_836_130_8 - (0.784_932_344_976_639_2 - 0.145_263_899_385_486_37 * x) * x;
    let tail = 2.114_994_941_673_713 - (2.446_931_225_635_344_4 - tail * x) * x;
    let guess = 0.354_895_765_043_919_84 + (1.508_191_937_815_849 - tail * x) * x;
    let cube = guess * guess * guess;
    // Cube roots of 2 and 4, and their inverses.
    let factor = match exponent % 3 {
        -2 => 0.629_960_524_947_436_5,
        -1 => 0.793_700_525_984_099_7,
        1 => 1.259_921_049_894_873_2,
        2 => 1.587_401_051_968_199_6,
        _ => 1.0,
    };
    let root = guess * (cube + 2.0 * fraction) / (2.0 * cube + fraction) * factor;
    // The cube root of a float is never subnormal: the power of two is exact.
    let scale = f64::from_bits(((exponent / 3 + 1023) as u64) << 52);
    (root * scale).copysign(value)
}

const POWER: Kernel = Kernel::Values(|_, arguments| {
    power(arguments::float8(arguments, 0)?, arguments::float8(arguments, 1)?).map(Value::Float8)
});

/// PostgreSQL's `width_bucket_float8`.
const WIDTH_BUCKET: Kernel = Kernel::Values(|_, arguments| {
    let (value, low, high) = (
        arguments::float8(arguments, 0)?,
        arguments::float8(arguments, 1)?,
        arguments::float8(arguments, 2)?,
    );
    let count = arguments::int4(arguments, 3)?;
    let invalid = |message: &str| invalid("2201G", message);
    if count <= 0 {
        return Err(invalid("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(invalid("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(invalid("lower bound cannot equal upper bound"));
    }
    let (before, behind) = if low < high {
        (value < low, value >= high)
    } else {
        (value > low, value <= high)
    };
    let above = || count.checked_add(1).ok_or_else(|| out_of_range(&Int4));
    let bucket = if before {
        0
    } else if behind {
        above()?
    } else {
        // As in PostgreSQL 15, a quotient that rounds to 1 yields the bucket after the last.
        let part = f64::from(count) * (value - low) / (high - low);
        let bucket = (part + 1.0).trunc();
        // The processor's result for a number beyond 32 bits.
        if (-2_147_483_648.0..2_147_483_648.0).contains(&bucket) {
            bucket as i32
        } else {
            i32::MIN
        }
    };
    Ok(Value::Int4(bucket))
});

use SqlType::{Float4, Float8, Int4};

/// The functions and operators.
pub static ENTRIES: &[Entry] = entries! {
    infix "+" [Float4, Float4] -> Float4, fallible, float4::ADD;
    infix "+" [Float8, Float8] -> Float8, fallible, float8::ADD;
    infix "+" [Float4, Float8] -> Float8, fallible, MIXED_ADD;
    infix "+" [Float8, Float4] -> Float8, fallible, MIXED_ADD;
    infix "-" [Float4, Float4] -> Float4, fallible, float4::SUB;
    infix "-" [Float8, Float8] -> Float8, fallible, float8::SUB;
    infix "-" [Float4, Float8] -> Float8, fallible, MIXED_SUB;
    infix "-" [Float8, Float4] -> Float8, fallible, MIXED_SUB;
    infix "*" [Float4, Float4] -> Float4, fallible, float4::MUL;
    infix "*" [Float8, Float8] -> Float8, fallible, float8::MUL;
    infix "*" [Float4, Float8] -> Float8, fallible, MIXED_MUL;
    infix "*" [Float8, Float4] -> Float8, fallible, MIXED_MUL;
    infix "/" [Float4, Float4] -> Float4, fallible, float4::DIV;
    infix "/" [Float8, Float8] -> Float8, fallible, float8::DIV;
    infix "/" [Float4, Float8] -> Float8, fallible, MIXED_DIV;
    infix "/" [Float8, Float4] -> Float8, fallible, MIXED_DIV;
    infix "^" [Float8, Float8] -> Float8, fallible, POWER;
    prefix "-" [Float4] -> Float4, total, float4::NEG;
    prefix "-" [Float8] -> Float8, total, float8::NEG;
    prefix "+" [Float4] -> Float4, total, float4::PLUS;
    prefix "+" [Float8] -> Float8, total, float8::PLUS;
    prefix "@" [Float4] -> Float4, total, float4::ABS;
    prefix "@" [Float8] -> Float8, total, float8::ABS;
    prefix "|/" [Float8] -> Float8, fallible, of_one!(sqrt);
    prefix "||/" [Float8] -> Float8, total, of_one!(|value| Ok(cube_root(value)));
    function "abs" [Float4] -> Float4, total, float4::ABS;
    function "abs" [Float8] -> Float8, total, float8::ABS;
    function "sqrt" [Float8] -> Float8, fallible, of_one!(sqrt);
    function "cbrt" [Float8] -> Float8, total, of_one!(|value| Ok(cube_root(value)));
    function "ceil" [Float8] -> Float8, total, of_one!(|value| Ok(value.ceil()));
    function "ceiling" [Float8] -> Float8, total, of_one!(|value| Ok(value.ceil()));
    function "floor" [Float8] -> Float8, total, of_one!(|value| Ok(value.floor()));
    function "round" [Float8] -> Float8, total, of_one!(|value| Ok(value.round_ties_even()));
    function "trunc" [Float8] -> Float8, total, of_one!(|value| Ok(value.trunc()));
    function "sign" [Float8] -> Float8, total, of_one!(|value| Ok(sign(value)));
    function "exp" [Float8] -> Float8, fallible, of_one!(exp);
    function "ln" [Float8] -> Float8, fallible, of_one!(|value| logarithm(value, f64::ln));
    function "log" [Float8] -> Float8, fallible, of_one!(|value| logarithm(value, f64::log10));
    function "log10" [Float8] -> Float8, fallible, of_one!(|value| logarithm(value, f64::log10));
    function "power" [Float8, Float8] -> Float8, fallible, POWER;
    function "pow" [Float8, Float8] -> Float8, fallible, POWER;
    function "degrees" [Float8] -> Float8, fallible, of_one!(degrees);
    function "radians" [Float8] -> Float8, fallible, of_one!(radians);
    function "pi" [] -> Float8, total, Kernel::Values(|_, _| Ok(Value::Float8(std::f64::consts::PI)));
    function "width_bucket" [Float8, Float8, Float8, Int4] -> Int4, fallible, WIDTH_BUCKET;
};
