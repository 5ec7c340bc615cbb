//! Our expressions and aggregates as DataFusion's functions.
//!
//! ```text
//!   scalar     an expression over columns; order keys; one representation for numerics of several
//!   collect    any aggregate of the table: row by row, or all rows kept, sorted and without repetition
//!   sums       sum and average of integers, numerics and floats, many groups at a time
//!   single     the value of the only row
//!   first      some value of a group whose values are all equal
//! ```

pub mod collect;
pub mod first;
pub mod scalar;
pub mod single;
pub mod sums;
