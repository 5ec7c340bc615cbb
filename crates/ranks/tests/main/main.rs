//! Ranks that are threads of this process, each with a database on a simulated disk.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step fails the test"
)]

mod deaths;
mod equality;
mod fixture;
mod histories;
mod measure;
mod statements;
mod transactions;
