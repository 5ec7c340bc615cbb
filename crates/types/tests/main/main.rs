//! Tests of the crate's public interface.
//!
//! - `golden`: answers of a PostgreSQL 15 server (`golden/*.tsv`, written by `golden/generate.sql`).
//! - `forms`: what is written reads back; no bytes and no text panic.
//! - `rows`: rows compared with the values from which they were made; damaged rows.
//! - `keys`: the order of keys equals the order of values.
//! - `numbers`: decimals compared with 128-bit integers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod forms;
mod golden_tables;
mod keys;
mod numbers;
mod rows;
mod values;
