//! SQL: parse, bind, compile to programs; analytical queries through DataFusion.

pub mod error;
pub mod pg_catalog;
pub mod query;
pub mod statement;
