//! Histories of transactions, and the check whether they are serializable.
//!
//! A history records for each committed transaction which versions it read and which it overwrote. A version
//! is identified by the value written, and every write of a history writes a unique value; so the value read
//! identifies the version, and the engine need not report it.
//!
//! ```text
//! run under a Recorder ([`recorder`]) --> History --> check ([`graph`]): no cycle, or the cycle
//! ```
//!
//! The absence of a row is also a version. A key may be absent for only one reason in a history: initially,
//! or because it was removed. Generators of histories must ensure this, and the check rejects others.
//!
//! Source: Adya 1999 (direct serialization graph, phenomena G0 to G2).

mod graph;
mod recorder;

use std::collections::HashMap;

pub use graph::{Dependency, Edge, Interval, Violation, check, check_strict};
pub use recorder::Recorder;

/// A version of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// No row.
    Absent,
    /// The row with this value, unique in its history.
    Value(u64),
}

impl From<Option<u64>> for Version {
    fn from(value: Option<u64>) -> Version {
        value.map_or(Version::Absent, Version::Value)
    }
}

/// A key that a transaction read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The row.
    pub key: u64,
    /// The version found.
    pub version: Version,
}

/// A key that a transaction wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The row.
    pub key: u64,
    /// The version replaced.
    pub old: Version,
    /// The new version.
    pub new: Version,
}

/// A committed transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Its number in violations.
    pub number: usize,
    /// All reads, including those of absent rows.
    pub reads: Vec<Read>,
    /// The keys written, without duplicates.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Adds a read.
    pub fn read(&mut self, key: u64, version: Version) {
        self.reads.push(Read { key, version });
    }

    /// Adds a write; a second write of the same key extends the first.
    pub fn write(&mut self, key: u64, old: Version, new: Version) {
        match self.writes.iter_mut().find(|write| write.key == key) {
            Some(write) => write.new = new,
            None => self.writes.push(Write { key, old, new }),
        }
    }
}

/// A recorded execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The initial rows; other keys are absent.
    pub initial: HashMap<u64, u64>,
    /// The committed transactions, in any order.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// A key's initial version.
    pub fn initial(&self, key: u64) -> Version {
        self.initial.get(&key).copied().into()
    }
}
