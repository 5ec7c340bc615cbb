//! Queries over an in-memory store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arithmetic;
mod catalog;
mod clients;
mod code_aggregates;
mod fixture;
mod joins;
mod kept;
mod modify;
mod repeated;
mod results;
mod selects;
mod slices;
mod units;
