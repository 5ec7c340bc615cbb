//! The runtime from outside: simulated runs under a manual clock, campaigns of injected faults, threads.

#![allow(clippy::unwrap_used, reason = "tests")]

mod campaign;
mod lab;
mod rules;
mod threads;
