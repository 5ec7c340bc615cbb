//! SQL: from text to plans.
//!
//! ```text
//!   text --statement--> Plan: program | constant row | bound query or change | catalog operations | control
//! ```
//!
//! - [`statement`]: everything from text to a plan. Point statements become programs ([`weft_program`]); what
//!   is none is bound by [`weft_binder`] and run by whoever has a query engine.
//! - [`error`]: PostgreSQL's wording of the errors that planning raises.

pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod statement;
