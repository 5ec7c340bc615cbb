//! The runtime from outside: simulated runs under a manual clock, campaigns of injected faults, threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod campaign;
mod cancel;
mod filters;
mod hedges;
mod lab;
mod merges;
mod pools;
mod rules;
mod threads;
mod urgency;
