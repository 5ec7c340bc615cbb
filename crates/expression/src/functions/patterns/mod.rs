//! Pattern matching (PostgreSQL 15, 9.7): LIKE, SIMILAR TO and regular expressions.
//!
//! ```text
//!   like        LIKE, ILIKE and their escapes
//!   similar     SIMILAR TO as a regular expression
//!   regex       regular expressions
//!   operators   ~ and related operators, functions that return one value
//!   matches     successive matches in a text
//! ```

pub mod like;
mod matches;
pub mod operators;
pub(crate) mod regex;
pub mod similar;
