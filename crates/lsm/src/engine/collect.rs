//! Collecting: what is still needed of a value file that is nearly empty is written again, as a user would.
//!
//! A file goes with the last table that points into it, and that may be long after most of its values were
//! replaced. So a file of whose bytes a smaller share than [`crate::LsmOptions::value_share_min`] is still
//! pointed to is read, and each value whose pointer is the newest entry of its key is put again, through log
//! and memtable. Compactions drop the old pointers when they meet the new entries, and the file goes. A
//! snapshot keeps what it sees: the old pointers, and so the file.
//!
//! # Invariants
//!
//! 1. Under the writer's latch the pointer is still the newest entry: a value that a user writes meanwhile is
//!    not overwritten. Before that everything is looked up without the latch, so that what is looked up again
//!    under it is in the cache.
//! 2. A file is collected once: no pointer into it can come anew, so what was not needed then never is.
//!
//! Source: decision 0017.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_ops::key::SeqNo;

use super::read::Newest;
use super::stats::share;
use super::{Engine, Lsm, View};
use crate::batch::{WriteBatch, family_of, user_key};
use crate::error::LsmError;
use crate::values::{Pointer, Scanned, ValueScan};
use crate::version::{ValueFileState, Version};

/// Bytes of values that are written again at once: for so long other writers wait.
const CHUNK_BYTES: usize = 1 << 20;

/// After an error that may pass, nothing is collected for so long.
const REST_NANOS: u64 = 4_000_000_000;

/// What a collector remembers.
#[derive(Default)]
pub(super) struct Collected {
    /// Files that were gone through and are still there.
    files: BTreeSet<u64>,
    rests_until_nanos: u64,
}

/// The value file of which the smallest share is in use, if that is below `share_min`; none that was
/// collected already.
fn choose(version: &Version, share_min: f64, collected: &BTreeSet<u64>) -> Option<ValueFileState> {
    let files = version.value_files().into_iter();
    let open = files.filter(|(number, _)| !collected.contains(number));
    let with_share = open.map(|(_, state)| (share(state.live_bytes, state.file_bytes), state));
    let emptiest = with_share.min_by(|(a, _), (b, _)| a.total_cmp(b));
    emptiest
        .filter(|(share, _)| *share < share_min)
        .map(|(_, state)| state)
}

impl Lsm {
    /// Writes again what is needed of every value file that is nearly empty
    /// ([`crate::LsmOptions::value_share_min`]); the files go as compactions meet what was written. Returns
    /// the bytes of the values. Threads of the engine do the same when nothing is to be compacted.
    ///
    /// # Errors
    /// As for [`Lsm::write`]; a corrupt value file, which stays as it is.
    pub fn collect_values(&self) -> Result<u64, LsmError> {
        let counter = &self.engine.counters.collected_bytes;
        let before = counter.load(Ordering::Relaxed);
        let mut collected = self.engine.collected.lock();
        while self.engine.collect_one(&mut collected)? {}
        Ok(counter.load(Ordering::Relaxed) - before)
    }
}

impl Engine {
    /// Collects a file if one calls for it and nobody else does; keeps an error for those who ask.
    pub(super) fn collect_if_wanted(&self) -> Result<bool, LsmError> {
        // A write of the collector may call for a flush and a compaction, and these for another collection.
        let Some(mut collected) = self.collected.try_lock() else {
            return Ok(false);
        };
        let now_nanos = self.clock.monotonic_nanos();
        if now_nanos < collected.rests_until_nanos || self.compaction_turn.lock().is_quiet() {
            return Ok(false);
        }
        let done = self.collect_one(&mut collected);
        if !matches!(done, Err(LsmError::Closed)) {
            if done.is_err() {
                collected.rests_until_nanos = now_nanos.saturating_add(REST_NANOS);
            }
            self.work.lock().collect_error = done.as_ref().err().cloned();
        }
        done
    }

    /// Collects the emptiest file; `false` if none is empty enough.
    fn collect_one(&self, collected: &mut Collected) -> Result<bool, LsmError> {
        let version = Arc::clone(&self.view().version);
        let files = version.value_files();
        collected.files.retain(|number| files.contains_key(number));
        let Some(chosen) = choose(&version, self.options.value_share_min, &collected.files) else {
            return Ok(false);
        };
        // They would keep what flushes and compactions make superfluous meanwhile.
        drop((version, files));
        // If bytes are wrong, time does not mend them.
        let number = chosen.file.number();
        let gone_through = self.collect_file(&chosen);
        if gone_through
            .as_ref()
            .map_or_else(LsmError::is_corruption, |()| true)
        {
            collected.files.insert(number);
        }
        gone_through?;
        self.counters.collected_files.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn collect_file(&self, chosen: &ValueFileState) -> Result<(), LsmError> {
        let mut scan = ValueScan::begin(&chosen.file, chosen.file_bytes)?;
        let mut needed: Vec<Scanned> = Vec::new();
        let mut bytes = 0;
        loop {
            let record = scan.next()?;
            let is_last = record.is_none();
            if let Some(record) = record {
                let seqno = SeqNo(self.visible.load(Ordering::Acquire));
                if self.is_newest(&self.view(), &record, seqno)? {
                    bytes += record.value.len();
                    needed.push(record);
                }
            }
            if bytes >= CHUNK_BYTES || is_last {
                if self.work.lock().stop {
                    return Err(LsmError::Closed);
                }
                self.write_again(&std::mem::take(&mut needed))?;
                bytes = 0;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Whether a reader at `seqno` finds this very record behind its key.
    fn is_newest(&self, view: &View, record: &Scanned, seqno: SeqNo) -> Result<bool, LsmError> {
        Ok(match self.newest(view, &record.key, seqno)? {
            Some(Newest::Pointer(_, _, pointer)) => Pointer::decode(&pointer) == Ok(record.pointer),
            _ => false,
        })
    }

    /// Puts those of some values again whose pointers are still the newest.
    fn write_again(&self, records: &[Scanned]) -> Result<(), LsmError> {
        if records.is_empty() {
            return Ok(());
        }
        self.slow_down(records.iter().map(|record| record.value.len()).sum());
        let durable = self.sync.lock().durable;
        let mut writer = self.writer.lock();
        if writer.refused.is_some() {
            self.put_right(&mut writer)?;
        }
        let view = self.view();
        let last = SeqNo(writer.next_seqno.0 - 1);
        let (mut batch, mut bytes) = (WriteBatch::new(), 0);
        for record in records {
            if self.is_newest(&view, record, last)? {
                bytes += record.value.len();
                batch.put(family_of(&record.key), user_key(&record.key), &record.value);
            }
        }
        drop(view);
        let (_, froze) = self.apply_next(&mut writer, &batch, true, durable)?;
        drop(writer);
        self.counters
            .collected_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if froze { self.froze() } else { Ok(()) }
    }
}
