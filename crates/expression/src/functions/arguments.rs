//! Typed access to a computation's arguments, and macros for tables of entries.

use weft_types::{Numeric, SqlError, ValueRef};

/// The arguments of a call.
pub type Arguments<'a, 'v> = &'a [ValueRef<'v>];

/// The error of a call with arguments of other types, which binding rules out.
#[cold]
#[must_use]
pub fn mismatch() -> SqlError {
    SqlError::internal("a function was called with values of other types")
}

macro_rules! readers {
    ($($(#[doc = $doc:literal])+ $name:ident -> $ty:ty: $variant:ident;)+) => {
        $($(#[doc = $doc])+
        ///
        /// # Errors
        /// XX000 if it is of another type.
        #[inline]
        pub fn $name(arguments: Arguments<'_, '_>, number: usize) -> Result<$ty, SqlError> {
            match arguments.get(number) {
                Some(ValueRef::$variant(value)) => Ok(*value),
                _ => Err(mismatch()),
            }
        })+
    };
}

readers! {
    /// A `boolean`.
    boolean -> bool: Bool;
    /// A `smallint`.
    int2 -> i16: Int2;
    /// An `integer`.
    int4 -> i32: Int4;
    /// A `bigint`.
    int8 -> i64: Int8;
    /// A `real`.
    float4 -> f32: Float4;
    /// A `double precision`.
    float8 -> f64: Float8;
}

/// A `numeric`.
///
/// # Errors
/// XX000 if it is of another type.
pub fn numeric<'a>(arguments: Arguments<'a, '_>, number: usize) -> Result<&'a Numeric, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Numeric(value)) => Ok(value),
        _ => Err(mismatch()),
    }
}

/// A text.
///
/// # Errors
/// XX000 if it is of another type.
pub fn text<'v>(arguments: Arguments<'_, 'v>, number: usize) -> Result<&'v str, SqlError> {
    match arguments.get(number) {
        Some(ValueRef::Text(text)) => Ok(text),
        _ => Err(mismatch()),
    }
}

/// Entries that are immutable, strict and not variadic:
/// `function "name" [Int4, Int4] -> Int4, total | fallible, kernel;`
macro_rules! entries {
    ($(
        $kind:ident $name:literal [$($argument:expr),*] -> $returns:expr, $fallible:ident, $kernel:expr;
    )*) => {
        &[$($crate::table::Entry {
            name: $name,
            kind: $crate::functions::arguments::entries!(@kind $kind),
            arguments: &[$($crate::table::Arg::Is($argument)),*],
            variadic: false,
            returns: $crate::table::Returns::Is($returns),
            volatility: $crate::table::Volatility::Immutable,
            strict: true,
            fallible: $crate::functions::arguments::entries!(@fallible $fallible),
            kernel: $kernel,
        }),*]
    };
    (@kind function) => { $crate::table::Kind::Function };
    (@kind infix) => { $crate::table::Kind::Infix };
    (@kind prefix) => { $crate::table::Kind::Prefix };
    (@fallible fallible) => { true };
    (@fallible total) => { false };
}
pub(crate) use entries;
