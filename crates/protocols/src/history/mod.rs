//! Histories of transactions, and whether they are serializable.
//!
//! A history says of each committed transaction which versions it read and which it wrote over which. A
//! version is named by the value written, and every write of a history writes a value that no other writes;
//! so reading the value tells the version, and the engine needs to tell nothing.
//!
//! ```text
//! run under a Recorder ([`recorder`]) --> History --> check ([`graph`]): no cycle, or the cycle
//! ```
//!
//! The absence of a row is a version too. A key may be absent for one reason in a history: it was not there
//! in the beginning, or it was removed; whoever makes histories sees to that, and the check refuses others.
//!
//! Source: Adya 1999 (direct serialization graph, phenomena G0 to G2).

mod graph;
mod recorder;

use std::collections::HashMap;

pub use graph::{Dependency, Edge, Violation, check};
pub use recorder::Recorder;

/// A version of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// There is no row.
    Absent,
    /// The row with this value, unique in its history.
    Value(u64),
}

impl From<Option<u64>> for Version {
    fn from(value: Option<u64>) -> Version {
        value.map_or(Version::Absent, Version::Value)
    }
}

/// One key as a transaction found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Which row.
    pub key: u64,
    /// What was there.
    pub version: Version,
}

/// One key as a transaction left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Which row.
    pub key: u64,
    /// What was replaced.
    pub old: Version,
    /// What is there instead.
    pub new: Version,
}

/// A committed transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What the violation calls it.
    pub number: usize,
    /// Everything read, rows that were not there included.
    pub reads: Vec<Read>,
    /// Each key written, once.
    pub writes: Vec<Write>,
}

impl Transaction {
    /// Adds a read.
    pub fn read(&mut self, key: u64, version: Version) {
        self.reads.push(Read { key, version });
    }

    /// Adds a write; a second one of the same key goes on from the first.
    pub fn write(&mut self, key: u64, old: Version, new: Version) {
        match self.writes.iter_mut().find(|write| write.key == key) {
            Some(write) => write.new = new,
            None => self.writes.push(Write { key, old, new }),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The rows before; other keys are absent.
    pub initial: HashMap<u64, u64>,
    /// The committed transactions, in any order.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// A key's version in the beginning.
    pub fn initial(&self, key: u64) -> Version {
        self.initial.get(&key).copied().into()
    }
}
