//! Tests of the crate through its public face.
//!
//! - `golden`: answers of a PostgreSQL 15 server (`golden/*.tsv`, written by `golden/generate.sql`).
//! - `forms`: what is written reads back; no bytes and no text panic.
//! - `rows`: rows against the values they were made of; damaged rows.
//! - `keys`: the order of keys is the order of values.
//! - `numbers`: decimals against 128-bit integers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod forms;
mod golden_tables;
mod keys;
mod numbers;
mod rows;
mod values;
