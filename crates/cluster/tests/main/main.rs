//! Lock servers and agents on the simulated fabric, and on threads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod circles;
mod history;
mod lab;
mod simulated;
mod threads;
