//! Functions and operators of integers.

use weft_types::range::{division_by_zero, out_of_range};
use weft_types::{Numeric, SqlError, SqlType, Value};

use super::{columns, plain};
use crate::functions::arguments::{self, Arguments, entries};
use crate::table::{Entry, Kernel};

/// The shift distance modulo the width of the type, as processors compute it.
fn distance(by: i32, bits: u32) -> u32 {
    by.rem_euclid(bits as i32) as u32
}

macro_rules! integer_family {
    ($reader:ident, $int:ty, $variant:ident, $(#[doc = $doc:literal])+) => {
        $(#[doc = $doc])+
        pub mod $reader {
            use super::*;

            #[cold]
            fn beyond() -> SqlError {
                out_of_range(&SqlType::$variant)
            }

            fn overflow(_: $int, _: $int) -> SqlError {
                beyond()
            }

            fn no_quotient(_: $int, b: $int) -> SqlError {
                if b == 0 {
                    division_by_zero()
                } else {
                    beyond()
                }
            }

            #[inline]
            fn divide(a: $int, b: $int) -> ($int, bool) {
                match a.checked_div(b) {
                    Some(value) => (value, false),
                    None => (0, true),
                }
            }

            #[inline]
            fn remainder(a: $int, b: $int) -> ($int, bool) {
                if b == 0 {
                    (0, true)
                } else {
                    (a.wrapping_rem(b), false)
                }
            }

            plain!(
                #[doc = "`a + b`"]
                add, $int, <$int>::overflowing_add, overflow
            );
            pub(super) const ADD: Kernel =
                columns!($variant, $reader, <$int>::overflowing_add, overflow);
            plain!(
                #[doc = "`a - b`"]
                sub, $int, <$int>::overflowing_sub, overflow
            );
            pub(super) const SUB: Kernel =
                columns!($variant, $reader, <$int>::overflowing_sub, overflow);
            plain!(
                #[doc = "`a * b`"]
                mul, $int, <$int>::overflowing_mul, overflow
            );
            pub(super) const MUL: Kernel =
                columns!($variant, $reader, <$int>::overflowing_mul, overflow);
            plain!(
                #[doc = "`a / b`, toward zero."]
                div, $int, divide, no_quotient
            );
            plain!(
                #[doc = "`a % b`, with the sign of `a`."]
                rem, $int, remainder, no_quotient
            );
            pub(super) const DIV: Kernel = columns!($variant, $reader, divide, no_quotient);
            pub(super) const REM: Kernel = columns!($variant, $reader, remainder, no_quotient);

            /// `-value`
            ///
            /// # Errors
            /// 22003 for the smallest value.
            #[inline]
            pub fn neg(value: $int) -> Result<$int, SqlError> {
                value.checked_neg().ok_or_else(beyond)
            }

            pub(super) const AND: Kernel = columns!(
                $variant,
                $reader,
                |a: $int, b: $int| (a & b, false),
                overflow
            );
            pub(super) const OR: Kernel = columns!(
                $variant,
                $reader,
                |a: $int, b: $int| (a | b, false),
                overflow
            );
            pub(super) const XOR: Kernel = columns!(
                $variant,
                $reader,
                |a: $int, b: $int| (a ^ b, false),
                overflow
            );

            fn one(
                arguments: Arguments<'_, '_>,
                compute: impl Fn($int) -> Option<$int>,
            ) -> Result<Value, SqlError> {
                let value = compute(arguments::$reader(arguments, 0)?);
                value
                    .map(Value::$variant)
                    .ok_or_else(beyond)
            }

            pub(super) const NEG: Kernel = Kernel::Values(|_, arguments| one(arguments, <$int>::checked_neg));
            pub(super) const PLUS: Kernel = Kernel::Values(|_, arguments| one(arguments, Some));
            pub(super) const ABS: Kernel = Kernel::Values(|_, arguments| one(arguments, <$int>::checked_abs));
            pub(super) const NOT: Kernel =
                Kernel::Values(|_, arguments| one(arguments, |value| Some(!value)));
            pub(super) const SHL: Kernel = Kernel::Values(|_, arguments| {
                let by = distance(arguments::int4(arguments, 1)?, <$int>::BITS.max(32));
                // A smallint is shifted as an integer, then truncated.
                one(arguments, |value| Some((i64::from(value) << by) as $int))
            });
            pub(super) const SHR: Kernel = Kernel::Values(|_, arguments| {
                let by = distance(arguments::int4(arguments, 1)?, <$int>::BITS.max(32));
                one(arguments, |value| Some((i64::from(value) >> by) as $int))
            });
            #[allow(dead_code, reason = "PostgreSQL has none for smallint")]
            pub(super) const GCD: Kernel = Kernel::Values(|_, arguments| {
                let (a, b) = (
                    arguments::$reader(arguments, 0)?,
                    arguments::$reader(arguments, 1)?,
                );
                let divisor = gcd(i128::from(a), i128::from(b));
                let value = <$int>::try_from(divisor).map_err(|_| beyond())?;
                Ok(Value::$variant(value))
            });
            #[allow(dead_code, reason = "PostgreSQL has none for smallint")]
            pub(super) const LCM: Kernel = Kernel::Values(|_, arguments| {
                let (a, b) = (
                    arguments::$reader(arguments, 0)?,
                    arguments::$reader(arguments, 1)?,
                );
                let (a, b) = (i128::from(a), i128::from(b));
                let multiple = if a == 0 || b == 0 {
                    0
                } else {
                    (a / gcd(a, b) * b).abs()
                };
                let value = <$int>::try_from(multiple).map_err(|_| beyond())?;
                Ok(Value::$variant(value))
            });
        }
    };
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

integer_family!(int2, i16, Int2,
    /// Arithmetic of `smallint`.
);
integer_family!(int4, i32, Int4,
    /// Arithmetic of `integer`.
);
integer_family!(int8, i64, Int8,
    /// Arithmetic of `bigint`.
);

use weft_types::SqlType::{Int2, Int4, Int8, Numeric as Decimal, Text};

const NUMERIC: weft_types::SqlType = Decimal(None);

const FACTORIAL: Kernel =
    Kernel::Values(|_, arguments| Numeric::factorial(arguments::int8(arguments, 0)?).map(Value::Numeric));

const HEX_4: Kernel =
    Kernel::Values(|_, arguments| Ok(Value::Text(format!("{:x}", arguments::int4(arguments, 0)?))));
const HEX_8: Kernel =
    Kernel::Values(|_, arguments| Ok(Value::Text(format!("{:x}", arguments::int8(arguments, 0)?))));

/// The functions and operators.
pub static ENTRIES: &[Entry] = entries! {
    infix "+" [Int2, Int2] -> Int2, fallible, int2::ADD;
    infix "+" [Int4, Int4] -> Int4, fallible, int4::ADD;
    infix "+" [Int8, Int8] -> Int8, fallible, int8::ADD;
    infix "-" [Int2, Int2] -> Int2, fallible, int2::SUB;
    infix "-" [Int4, Int4] -> Int4, fallible, int4::SUB;
    infix "-" [Int8, Int8] -> Int8, fallible, int8::SUB;
    infix "*" [Int2, Int2] -> Int2, fallible, int2::MUL;
    infix "*" [Int4, Int4] -> Int4, fallible, int4::MUL;
    infix "*" [Int8, Int8] -> Int8, fallible, int8::MUL;
    infix "/" [Int2, Int2] -> Int2, fallible, int2::DIV;
    infix "/" [Int4, Int4] -> Int4, fallible, int4::DIV;
    infix "/" [Int8, Int8] -> Int8, fallible, int8::DIV;
    infix "%" [Int2, Int2] -> Int2, fallible, int2::REM;
    infix "%" [Int4, Int4] -> Int4, fallible, int4::REM;
    infix "%" [Int8, Int8] -> Int8, fallible, int8::REM;
    infix "&" [Int2, Int2] -> Int2, total, int2::AND;
    infix "&" [Int4, Int4] -> Int4, total, int4::AND;
    infix "&" [Int8, Int8] -> Int8, total, int8::AND;
    infix "|" [Int2, Int2] -> Int2, total, int2::OR;
    infix "|" [Int4, Int4] -> Int4, total, int4::OR;
    infix "|" [Int8, Int8] -> Int8, total, int8::OR;
    infix "#" [Int2, Int2] -> Int2, total, int2::XOR;
    infix "#" [Int4, Int4] -> Int4, total, int4::XOR;
    infix "#" [Int8, Int8] -> Int8, total, int8::XOR;
    infix "<<" [Int2, Int4] -> Int2, total, int2::SHL;
    infix "<<" [Int4, Int4] -> Int4, total, int4::SHL;
    infix "<<" [Int8, Int4] -> Int8, total, int8::SHL;
    infix ">>" [Int2, Int4] -> Int2, total, int2::SHR;
    infix ">>" [Int4, Int4] -> Int4, total, int4::SHR;
    infix ">>" [Int8, Int4] -> Int8, total, int8::SHR;
    prefix "-" [Int2] -> Int2, fallible, int2::NEG;
    prefix "-" [Int4] -> Int4, fallible, int4::NEG;
    prefix "-" [Int8] -> Int8, fallible, int8::NEG;
    prefix "+" [Int2] -> Int2, total, int2::PLUS;
    prefix "+" [Int4] -> Int4, total, int4::PLUS;
    prefix "+" [Int8] -> Int8, total, int8::PLUS;
    prefix "@" [Int2] -> Int2, fallible, int2::ABS;
    prefix "@" [Int4] -> Int4, fallible, int4::ABS;
    prefix "@" [Int8] -> Int8, fallible, int8::ABS;
    prefix "~" [Int2] -> Int2, total, int2::NOT;
    prefix "~" [Int4] -> Int4, total, int4::NOT;
    prefix "~" [Int8] -> Int8, total, int8::NOT;
    function "abs" [Int2] -> Int2, fallible, int2::ABS;
    function "abs" [Int4] -> Int4, fallible, int4::ABS;
    function "abs" [Int8] -> Int8, fallible, int8::ABS;
    function "mod" [Int2, Int2] -> Int2, fallible, int2::REM;
    function "mod" [Int4, Int4] -> Int4, fallible, int4::REM;
    function "mod" [Int8, Int8] -> Int8, fallible, int8::REM;
    function "gcd" [Int4, Int4] -> Int4, fallible, int4::GCD;
    function "gcd" [Int8, Int8] -> Int8, fallible, int8::GCD;
    function "lcm" [Int4, Int4] -> Int4, fallible, int4::LCM;
    function "lcm" [Int8, Int8] -> Int8, fallible, int8::LCM;
    function "factorial" [Int8] -> NUMERIC, fallible, FACTORIAL;
    function "to_hex" [Int4] -> Text, total, HEX_4;
    function "to_hex" [Int8] -> Text, total, HEX_8;
};
