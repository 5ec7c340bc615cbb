//! Functions and operators of numbers.
//!
//! - `integers`: of `smallint`, `integer` and `bigint`.
//! - `floats`: of `real` and `double precision`; `trigonometry`: angles in radians and degrees.
//! - `numerics`: of `numeric`.
//!
//! The modules [`int2`] to [`float8`] have each type's arithmetic as plain functions; the entries of the
//! table use the same computations.

mod floats;
mod integers;
mod numerics;
mod trigonometry;

pub use floats::ENTRIES as FLOATS;
pub use floats::{float4, float8};
pub use integers::ENTRIES as INTEGERS;
pub use integers::{int2, int4, int8};
pub use numerics::ENTRIES as NUMERICS;
pub use trigonometry::ENTRIES as TRIGONOMETRY;

/// A function of two plain numbers, from a computation that returns `(value, failed)` and one that builds
/// the error.
macro_rules! plain {
    ($(#[doc = $doc:literal])+ $name:ident, $ty:ty, $compute:expr, $fail:expr) => {
        $(#[doc = $doc])+
        ///
        /// # Errors
        /// 22003, and 22012 for division by zero.
        #[inline]
        pub fn $name(a: $ty, b: $ty) -> Result<$ty, SqlError> {
            match $compute(a, b) {
                (value, false) => Ok(value),
                _ => Err($fail(a, b)),
            }
        }
    };
}
pub(crate) use plain;

/// A column loop and the computation of a single value, from one closure that returns `(value, failed)`.
macro_rules! columns {
    ($variant:ident, $reader:ident, $compute:expr, $fail:expr) => {
        crate::table::Kernel::Columns(
            |_, arguments| {
                let (a, b) = (
                    arguments::$reader(arguments, 0)?,
                    arguments::$reader(arguments, 1)?,
                );
                match $compute(a, b) {
                    (value, false) => Ok(weft_types::Value::$variant(value)),
                    _ => Err($fail(a, b)),
                }
            },
            crate::columns::ColumnLoop::$variant(|a, b, rows, valid, out| {
                crate::columns::infix(a, b, rows, valid, out, $compute, $fail)
            }),
        )
    };
}
pub(crate) use columns;
