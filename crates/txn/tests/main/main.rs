//! The engine as a whole: crashes, isolation by name, mixed histories, replay, failing disks, locks.
//!
//! All tests work on one bank (see `bank`). `WEFT_SEEDS` sets how many seeds the random ones take; a
//! failure prints its seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step fails the test"
)]

mod allocation;
mod backlog;
mod bank;
mod bounds;
mod checkpoints;
mod cold_keys;
mod crash;
mod definitions;
mod device;
mod directory;
mod failures;
mod full_disk;
mod history;
mod interleaving;
mod isolation;
mod locking;
mod replay;
mod session_model;
mod verification;
mod waves;

/// How many seeds a random test takes: `WEFT_SEEDS`, or `default`.
fn seed_count(default: u64) -> u64 {
    std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
