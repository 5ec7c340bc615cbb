//! SQL sessions in one process, over a simulated disk: messages, transactions, definitions, locks, copies,
//! durability.
//!
//! `client` drives sessions and writes results as text; each module tells what it checks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod accounts;
mod advisory;
mod checks;
mod client;
mod code_aggregates;
mod column_changes;
mod columns;
mod comments;
mod constraints;
mod copies;
mod definitions;
mod durability;
mod equivalence;
mod foreign_keys;
mod frameworks;
mod json;
mod locking;
mod long_statements;
mod messages;
mod paths;
mod pipelines;
mod plpgsql;
mod prepared;
mod procedures;
mod sequences;
mod settings;
mod skip_locked;
mod small_ranges;
mod tpch;
mod transactions;
mod two_phase_commit;
mod views;
