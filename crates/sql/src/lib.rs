//! SQL: from text to plans.
//!
//! ```text
//!   text --statement--> Plan: program | constant row | bound query or change | catalog operations | control
//! ```
//!
//! - [`statement`]: everything from text to a plan. Point statements become programs ([`weft_program`]);
//!   all others are bound by [`weft_binder`] and executed by a caller that has a query engine.
//! - [`error`]: planning errors with PostgreSQL's messages.

pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod statement;
