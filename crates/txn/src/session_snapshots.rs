//! Snapshots that transactions keep from one statement to the next, bounded in age and bytes.
//!
//! A transaction that reads one snapshot (REPEATABLE READ, READ ONLY) may be idle for long, and whatever
//! others replace meanwhile stays in memory for it. So after every batch the oldest of these snapshots is
//! looked at: if it keeps more than [`EngineConfig::snapshot_bytes_max`], or is older than
//! [`EngineConfig::snapshot_age_max`], it is taken away. Its transaction is told at the next statement
//! (72000); what it wrote it may still commit. A statement that runs keeps what it reads until it ends.
//!
//! ```text
//! transaction ── KeptSnapshot ──> Held { snapshot or nothing }
//!                                   ^ oldest first
//! sequencer, after a batch ─────────┘ takes away what is beyond the bounds
//! ```
//!
//! Invariant: a snapshot stands in the list as long as it is kept. Without batches nothing is replaced, so an
//! idle database takes nothing away.

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

/// The snapshots that transactions keep.
pub(crate) struct SessionSnapshots {
    kept: Mutex<BTreeMap<Key, Arc<Held>>>,
    count: AtomicUsize,
    next: AtomicU64,
    bytes_max: u64,
    age_max: Duration,
}

struct Held {
    snapshot: Mutex<Option<Snapshot>>,
    since: Instant,
}

/// One transaction's snapshot, unless it was taken away.
pub(crate) struct KeptSnapshot {
    all: Arc<SessionSnapshots>,
    key: Key,
    held: Arc<Held>,
    catalog: Arc<Catalog>,
}

impl SessionSnapshots {
    pub(crate) fn new(config: &EngineConfig) -> Arc<SessionSnapshots> {
        Arc::new(SessionSnapshots {
            kept: Mutex::default(),
            count: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            bytes_max: config.snapshot_bytes_max,
            age_max: config.snapshot_age_max,
        })
    }

    /// Keeps a snapshot for a transaction.
    pub(crate) fn keep(self: &Arc<Self>, snapshot: Snapshot) -> KeptSnapshot {
        let key = (snapshot.batch(), self.next.fetch_add(1, Relaxed));
        let catalog = Arc::clone(snapshot.catalog());
        let held = Arc::new(Held {
            snapshot: Mutex::new(Some(snapshot)),
            since: Instant::now(),
        });
        self.kept.lock().insert(key, Arc::clone(&held));
        self.count.fetch_add(1, Relaxed);
        KeptSnapshot {
            all: Arc::clone(self),
            key,
            held,
            catalog,
        }
    }

    /// Takes away what is beyond the bounds, oldest first. Called after a batch.
    pub(crate) fn enforce_bounds(&self, store: &Store) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        loop {
            let mut kept = self.kept.lock();
            let Some(oldest) = kept.first_entry() else {
                return;
            };
            let is_large = store.bytes_kept_at(oldest.key().0) > self.bytes_max;
            if !is_large && oldest.get().since.elapsed() <= self.age_max {
                return;
            }
            let held = oldest.remove();
            self.count.fetch_sub(1, Relaxed);
            drop(kept);
            drop(held.snapshot.lock().take());
        }
    }
}

impl KeptSnapshot {
    /// The snapshot.
    ///
    /// # Errors
    /// It was taken away (72000).
    pub(crate) fn get(&self) -> Result<Snapshot, SqlError> {
        self.held.snapshot.lock().clone().ok_or_else(|| {
            SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
                .detail("Others have replaced so many rows since, or it was kept for so long, that it was given up.")
                .hint("Run the transaction again.")
        })
    }

    /// Its boundary.
    pub(crate) fn batch(&self) -> BatchId {
        self.key.0
    }

    /// Its definitions, which stay.
    pub(crate) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

impl Drop for KeptSnapshot {
    fn drop(&mut self) {
        if self.all.kept.lock().remove(&self.key).is_some() {
            self.all.count.fetch_sub(1, Relaxed);
        }
    }
}
