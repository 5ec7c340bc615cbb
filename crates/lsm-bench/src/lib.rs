//! Benchmarks of `lsm`: the key-value engine and its compaction under load, alone and beside other engines.
//!
//! ```text
//! key_value    fill, overwrite, read, mixed: throughput second by second, jitter, latency, debt
//! compaction   runs to merge, and who merges them how fast: executors, simulated units, whole engines
//! ```
//!
//! A crate of its own, below the database: with the feature `peers` it brings RocksDB, and who compares the
//! two need not build the rest. `weft bench lsm` and `weft bench compaction` are made of it, and report as
//! all benches do (`crates/workload/src/report.rs`).

pub mod compaction;
pub mod key_value;

use std::fmt;

/// Why a run ended early, as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError(pub String);

impl LoadError {
    /// From any error, with what was being done.
    pub fn doing(what: &str, error: impl fmt::Display) -> Self {
        Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}
