//! Records the answer and the replaced rows of every transaction of a run.

use parking_lot::Mutex;

use weft_base::TableId;
use weft_program::Outcome;
use weft_types::SqlError;

use super::{Transaction, Version};
use crate::Observe;

/// Table, old row, new row.
type Installed = (TableId, Option<Vec<u8>>, Option<Vec<u8>>);

#[derive(Debug, Default)]
struct Entry {
    installed: Vec<Installed>,
    outcome: Option<Outcome>,
    answers: u32,
}

/// An observer that records everything. Yields to another thread before every `yield_every`-th access, so
/// that transactions overlap that otherwise would not.
#[derive(Debug)]
pub struct Recorder {
    entries: Vec<Mutex<Entry>>,
    yield_every: u64,
    accesses: std::sync::atomic::AtomicU64,
}

impl Recorder {
    /// A recorder for a stream of `jobs` jobs. With `yield_every` 0 the schedule is undisturbed.
    pub fn new(jobs: usize, yield_every: u64) -> Recorder {
        Recorder {
            entries: (0..jobs).map(|_| Mutex::default()).collect(),
            yield_every,
            accesses: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Jobs that were not answered exactly once.
    pub fn not_answered_once(&self) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        entries
            .filter(|(_, entry)| entry.lock().answers != 1)
            .map(|(job, _)| job)
            .collect()
    }

    /// The committed transactions. `row` decodes a stored row to key and value; `reads` derives the reads of
    /// a job from its outcome.
    pub fn transactions(
        &self,
        row: impl Fn(TableId, &[u8]) -> (u64, u64),
        reads: impl Fn(usize, &Outcome, &mut Transaction),
    ) -> Vec<Transaction> {
        let committed = self.entries.iter().enumerate().filter_map(|(number, entry)| {
            let entry = entry.lock();
            let outcome = entry.outcome.as_ref()?;
            let mut transaction = Transaction {
                number,
                ..Transaction::default()
            };
            reads(number, outcome, &mut transaction);
            for (table, old, new) in &entry.installed {
                let (old, new) = (old.as_ref(), new.as_ref());
                let [old, new] = [old, new].map(|bytes| bytes.map(|bytes| row(*table, bytes)));
                if let Some((key, _)) = old.or(new) {
                    let version = |row: Option<(u64, u64)>| Version::from(row.map(|(_, value)| value));
                    transaction.write(key, version(old), version(new));
                }
            }
            Some(transaction)
        });
        committed.collect()
    }
}

impl Observe for Recorder {
    const INSTALLS: bool = true;

    fn installed(&self, job: usize, table: TableId, old: Option<&[u8]>, new: Option<&[u8]>) {
        if let Some(entry) = self.entries.get(job) {
            let installed = (table, old.map(<[u8]>::to_vec), new.map(<[u8]>::to_vec));
            entry.lock().installed.push(installed);
        }
    }

    fn aborted(&self, job: usize) {
        if let Some(entry) = self.entries.get(job) {
            entry.lock().installed.clear();
        }
    }

    fn pause(&self) {
        if self.yield_every == 0 {
            return;
        }
        let access = self.accesses.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if access.is_multiple_of(self.yield_every) {
            std::thread::yield_now();
        }
    }

    fn answered(&self, job: usize, answer: Result<&Outcome, &SqlError>) {
        if let Some(entry) = self.entries.get(job) {
            let mut entry = entry.lock();
            entry.answers += 1;
            entry.outcome = answer.ok().cloned();
        }
    }
}
