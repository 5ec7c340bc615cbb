//! SQL: parse, bind, compile to programs; analytical queries through DataFusion.
//!
//! ```text
//!   text --statement--> Plan: program | constant row | catalog operations | control
//!                         |
//!                         +-- what is no point statement --query--> DataFusion over a snapshot or a view
//!                                                            |
//!                                                            +-- pg_catalog: relations made from the catalog
//! ```
//!
//! - [`statement`]: everything from text to a plan; point statements become programs ([`weft_program`]).
//! - [`query`]: queries and general changes of rows, through DataFusion. Nothing below this crate knows
//!   DataFusion.
//! - [`pg_catalog`]: the system catalogs that clients read.
//! - [`error`]: PostgreSQL's wording of the errors that planning raises.

pub mod error;
pub mod pg_catalog;
pub mod query;
pub mod statement;
