//! How far something long has come: told by whoever does it, read by whoever watches from another thread.
//!
//! What is long has stages, one after the other; each knows how much there is of it when it begins. Telling
//! costs an atomic addition and never waits for the watcher.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Shared by who works and who watches.
#[derive(Debug, Default)]
pub struct Progress {
    stage: Mutex<Option<Stage>>,
    done: AtomicU64,
    rows: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Stage {
    what: &'static str,
    unit: &'static str,
    total: u64,
}

/// A stage, as far as it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// What is done, as in "loading rows".
    pub what: &'static str,
    /// What is counted, in the plural.
    pub unit: &'static str,
    /// So many of them are done.
    pub done: u64,
    /// So many there are.
    pub total: u64,
    /// Rows that were in them; 0 where rows are not counted.
    pub rows: u64,
}

impl Progress {
    /// A stage begins, with so much to do.
    pub fn begin(&self, what: &'static str, unit: &'static str, total: u64) {
        let mut stage = self.stage.lock();
        self.done.store(0, Ordering::Relaxed);
        self.rows.store(0, Ordering::Relaxed);
        *stage = Some(Stage { what, unit, total });
    }

    /// So many more are done, with so many rows in them.
    pub fn add(&self, done: u64, rows: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }

    /// The stage under way, or the last one; `None` before the first.
    pub fn reached(&self) -> Option<Reached> {
        let stage = self.stage.lock();
        stage.map(|Stage { what, unit, total }| Reached {
            what,
            unit,
            done: self.done.load(Ordering::Relaxed),
            total,
            rows: self.rows.load(Ordering::Relaxed),
        })
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} {}", self.what, self.done, self.total, self.unit)?;
        match self.rows {
            0 => Ok(()),
            rows => write!(f, ", {rows} rows"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_counts_for_itself() {
        let progress = Progress::default();
        assert_eq!(progress.reached(), None);
        progress.begin("loading rows", "parts", 3);
        progress.add(1, 500);
        progress.add(1, 20);
        let words = progress.reached().map(|reached| reached.to_string());
        assert_eq!(words.as_deref(), Some("loading rows: 2 of 3 parts, 520 rows"));
        progress.begin("building indexes", "indexes", 2);
        let words = progress.reached().map(|reached| reached.to_string());
        assert_eq!(words.as_deref(), Some("building indexes: 0 of 2 indexes"));
    }
}
