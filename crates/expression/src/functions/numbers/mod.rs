//! Functions and operators of numbers.
//!
//! - `integers`: of `smallint`, `integer` and `bigint`.
//! - `floats`: of `real` and `double precision`; `trigonometry`: angles in radians and degrees.
//! - `numerics`: of `numeric`.
//!
//! The modules [`int2`] to [`float8`] have the arithmetic of each type as plain functions; the entries of the
//! table are made of the same computations.

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

/// A function of two numbers for callers that have them as such, from a computation that gives
/// `(value, whether there is none)` and one that says why there is none.
macro_rules! plain {
    ($(#[doc = $doc:literal])+ $name:ident, $ty:ty, $compute:expr, $fail:expr) => {
        $(#[doc = $doc])+
        ///
        /// # Errors
        /// 22003, and 22012 for quotients.
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

/// A loop over columns and the computation of one value, from one closure: `(value, whether there is none)`.
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
