//! Pattern matching (PostgreSQL 15, 9.7): LIKE, SIMILAR TO and regular expressions.
//!
//! ```text
//!   like        LIKE, ILIKE and their escapes
//!   similar     SIMILAR TO as a regular expression
//!   regex       regular expressions
//!   operators   ~ and its relatives, the functions that give one value
//!   matches     the matches of a text, one after the other
//! ```

pub mod like;
mod matches;
pub mod operators;
pub(crate) mod regex;
pub mod similar;
