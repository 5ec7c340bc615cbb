//! Snapshots that sessions read, bounded in bytes and age.
//!
//! Whatever others replace stays in memory for the oldest snapshot that somebody reads. So after every batch
//! the oldest of them is looked at:
//!
//! - One that a transaction keeps from one statement to the next (REPEATABLE READ, READ ONLY) is taken away
//!   when it keeps more than [`EngineConfig::snapshot_bytes_max`], or is older than
//!   [`EngineConfig::snapshot_age_max`]: its client may be idle. The transaction is told at the next
//!   statement (72000); what it wrote it may still commit.
//! - One that a running statement reads may keep [`EngineConfig::running_snapshot_bytes_max`]. Beyond that
//!   the statement is ended (72000).
//!
//! ```text
//! transaction ── KeptSnapshot ────> Held { snapshot or nothing }
//! statement ──── RunningSnapshot ─> Held { the session's CancelToken }
//!                                   ^ oldest first
//! sequencer, after a batch ─────────┘ takes away what is beyond the bounds, ends who reads it
//! ```
//!
//! Invariant: a snapshot stands in the list as long as it is kept or read, or until it is given up. Without
//! batches nothing is replaced, so an idle database gives nothing up. Programs read without standing here:
//! their instructions are bounded.

use crate::cancel::CancelToken;
use crate::config::EngineConfig;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weft_base::BatchId;
use weft_store::{Catalog, Snapshot, Store};
use weft_types::{SqlError, SqlState};

/// Boundary, and a number that tells snapshots of one boundary apart: the oldest first.
type Key = (BatchId, u64);

/// The snapshots that sessions read.
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Key, Held>>,
    count: AtomicUsize,
    next: AtomicU64,
    kept_bytes_max: u64,
    kept_age_max: Duration,
    running_bytes_max: u64,
}

#[derive(Clone)]
enum Held {
    /// From one statement of a transaction to the next.
    Kept(Arc<Kept>),
    /// By a statement that runs under this token.
    Running(CancelToken),
}

struct Kept {
    snapshot: Mutex<Option<Snapshot>>,
    since: Instant,
}

/// A place in the list, until it is dropped.
struct Place {
    all: Arc<Snapshots>,
    key: Key,
}

/// One transaction's snapshot, unless it was taken away.
pub(crate) struct KeptSnapshot {
    place: Place,
    kept: Arc<Kept>,
    catalog: Arc<Catalog>,
}

/// Says that a statement is reading a snapshot.
pub(crate) struct RunningSnapshot {
    _place: Place,
}

/// The error of whoever reads a snapshot that was given up (72000).
pub(crate) fn snapshot_too_old() -> SqlError {
    SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
        .detail("Others have replaced so many rows since, or it was kept for so long, that it was given up.")
        .hint("Run the transaction again.")
}

impl Snapshots {
    pub(crate) fn new(config: &EngineConfig) -> Arc<Snapshots> {
        Arc::new(Snapshots {
            held: Mutex::default(),
            count: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            kept_bytes_max: config.snapshot_bytes_max,
            kept_age_max: config.snapshot_age_max,
            running_bytes_max: config.running_snapshot_bytes_max,
        })
    }

    /// Keeps a snapshot for a transaction.
    pub(crate) fn keep(self: &Arc<Self>, snapshot: Snapshot) -> KeptSnapshot {
        let (batch, catalog) = (snapshot.batch(), Arc::clone(snapshot.catalog()));
        let kept = Arc::new(Kept {
            snapshot: Mutex::new(Some(snapshot)),
            since: Instant::now(),
        });
        KeptSnapshot {
            place: self.hold(batch, Held::Kept(Arc::clone(&kept))),
            kept,
            catalog,
        }
    }

    /// Notes that a statement reads a snapshot; it runs under this token.
    pub(crate) fn read(self: &Arc<Self>, snapshot: &Snapshot, statement: &CancelToken) -> RunningSnapshot {
        RunningSnapshot {
            _place: self.hold(snapshot.batch(), Held::Running(statement.clone())),
        }
    }

    fn hold(self: &Arc<Self>, batch: BatchId, held: Held) -> Place {
        let key = (batch, self.next.fetch_add(1, Relaxed));
        self.held.lock().insert(key, held);
        self.count.fetch_add(1, Relaxed);
        Place {
            all: Arc::clone(self),
            key,
        }
    }

    /// About how many bytes of versions the oldest snapshot keeps, and how old the oldest is that a
    /// transaction keeps.
    pub(crate) fn oldest(&self, store: &Store) -> (u64, Duration) {
        let all = self.held.lock();
        let bytes = all
            .first_key_value()
            .map_or(0, |(key, _)| store.bytes_kept_at(key.0));
        let since = all.values().filter_map(|held| match held {
            Held::Kept(kept) => Some(kept.since),
            Held::Running(_) => None,
        });
        (bytes, since.min().map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Says of the snapshots that no statement reads at the moment that nothing found in them is used.
    pub(crate) fn forget_what_was_read(&self) {
        let kept: Vec<Arc<Kept>> = {
            let all = self.held.lock();
            let kept = all.values().filter_map(|held| match held {
                Held::Kept(kept) => Some(Arc::clone(kept)),
                Held::Running(_) => None,
            });
            kept.collect()
        };
        for kept in kept {
            if let Some(snapshot) = kept.snapshot.lock().as_mut() {
                snapshot.forget_what_was_read();
            }
        }
    }

    /// Gives up what is beyond the bounds, oldest first. Called after a batch.
    pub(crate) fn enforce_bounds(&self, store: &Store) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let mut dropped = Vec::new();
        let mut all = self.held.lock();
        // Who came later keeps no more bytes than who came before.
        for (key, held) in all.iter() {
            let bytes = store.bytes_kept_at(key.0);
            let is_beyond = match held {
                Held::Kept(kept) => bytes > self.kept_bytes_max || kept.since.elapsed() > self.kept_age_max,
                Held::Running(_) => bytes > self.running_bytes_max,
            };
            match is_beyond {
                true => dropped.push((*key, held.clone())),
                false if matches!(held, Held::Kept(_)) => break,
                false => {}
            }
        }
        for (key, held) in &dropped {
            all.remove(key);
            self.count.fetch_sub(1, Relaxed);
            // Under the lock: a statement that has left the list is not ended, nor the one after it.
            if let Held::Running(statement) = held {
                statement.drop_snapshot();
            }
        }
        drop(all);
        for (_, held) in dropped {
            if let Held::Kept(kept) = held {
                drop(kept.snapshot.lock().take());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.all.held.lock().remove(&self.key).is_some() {
            self.all.count.fetch_sub(1, Relaxed);
        }
    }
}

impl KeptSnapshot {
    /// The snapshot, for a statement: what an earlier one could not read is tried again.
    ///
    /// # Errors
    /// It was taken away (72000).
    pub(crate) fn get(&self) -> Result<Snapshot, SqlError> {
        let mut kept = self.kept.snapshot.lock();
        if let Some(snapshot) = kept.as_mut() {
            snapshot.forget_what_was_read();
        }
        kept.clone().ok_or_else(snapshot_too_old)
    }

    /// Its boundary.
    pub(crate) fn batch(&self) -> BatchId {
        self.place.key.0
    }

    /// Its definitions, which stay.
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}
