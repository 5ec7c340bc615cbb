//! Our expressions and aggregates as DataFusion functions.
//!
//! ```text
//!   scalar     an expression over columns; order keys; conversion between representations of numeric
//!   collect    any aggregate of the table: row by row, or all rows kept, sorted and deduplicated
//!   sums       sum and average of integers, numerics and floats, vectorised over groups
//!   single     the value of the only row
//!   first      some value of a group whose values are all equal
//! ```

pub mod collect;
pub mod first;
pub mod scalar;
pub mod single;
pub mod sums;
