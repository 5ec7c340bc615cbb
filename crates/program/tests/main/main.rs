//! Programs against a real store: golden scripts, random programs, the guard, rollback, and steady state
//! without allocation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod allocation;
mod budget;
#[cfg(feature = "compiled")]
mod cells;
mod compiled;
mod decoding;
mod fixture;
mod joins;
mod kept_rows;
mod loops;
mod random_programs;
mod scripts;
mod verification;
