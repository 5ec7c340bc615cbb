//! Packed columns, and scans that compare codes without unpacking them.
//!
//! Bytes in, bytes out: nothing here knows tables, transactions or files. A segment takes values and gives
//! bytes, once; from the bytes it gives values by position or in sequence, and for a predicate on values a
//! bitmap. Where it can, the predicate becomes a range or a set of codes first (DBA 2.2: range search and
//! in-list search, the row ids that satisfy them).
//!
//! - [`segment`]: up to 64 Ki rows as bytes, column after column, each in the encoding that is smallest.
//! - [`packed`]: the scans of packed codes, in a portable form and for AVX2 and AVX-512, chosen at run time
//!   and equal bit for bit to the golden model, `weft_ops::packed`.
//! - [`units`]: the same scans as an operation of units that have the codes in their memory, and a model of
//!   such a unit.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod packed;
pub mod segment;
pub mod units;
