//! The state of compactions beside the version: where each level was compacted last, which compactions run,
//! and which tables back off after failures.
//!
//! Several compactions may run at once if they share no table. That is sufficient: a compaction outputs only
//! keys between the first and the last of its tables, no other table of its two levels is in this range, and
//! tables below stay where they are. Of level 0 only one runs at a time, because the oldest tables go first;
//! `pick.rs` says when it goes before deeper levels.
//!
//! A failed compaction is not retried at once: the same tables would be picked and fail again, and nothing
//! else would ever be compacted. Its tables back off, for a time that doubles with each failure, and others
//! go first. If the error names one of the tables, only that one backs off. If it names none (the disk is
//! full, the executor is gone), others would fail as well: then all compaction backs off, for a shorter time.
//!
//! A caller that needs the machine for itself suspends compactions: none starts until it resumes them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::CompactionPick;
use crate::backoff::Backoff;
use crate::error::LsmError;
use crate::options::LEVEL_COUNT;
use crate::table::table_number;
use crate::version::{KeyRange, Version};

/// The backoff of tables after their compaction failed once, in nanoseconds.
const BACKOFF_NANOS: u64 = 1_000_000_000;
/// The longest backoff if stored bytes are corrupt, which time does not repair.
const BACKOFF_NANOS_MAX: u64 = 300 * BACKOFF_NANOS;
/// The longest backoff otherwise: a full disk may get space again.
const BACKOFF_NANOS_MAX_TRANSIENT: u64 = 4 * BACKOFF_NANOS;
/// The backoff of all compaction after a failure that may not be a table's; it doubles up to the same bound.
const PAUSE_NANOS: u64 = BACKOFF_NANOS / 5;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct CompactionState {
    last_keys: Vec<Bytes>,
    /// Level and tables of each running compaction.
    running: Vec<(usize, Vec<u64>)>,
    backing_off: BTreeMap<u64, Backoff>,
    /// The backoff of all compaction, after failures that may not be a table's.
    pause: Backoff,
    /// How many callers have suspended compactions.
    suspensions: usize,
    /// A compaction thread is collecting values.
    is_collecting: bool,
}

impl Default for CompactionState {
    fn default() -> Self {
        Self {
            last_keys: vec![Bytes::new(); LEVEL_COUNT],
            running: Vec::new(),
            backing_off: BTreeMap::new(),
            pause: Backoff::default(),
            suspensions: 0,
            is_collecting: false,
        }
    }
}

impl CompactionState {
    /// Where a level was compacted last: the lowest key of the inputs.
    pub(super) fn last_key(&self, level: usize) -> &[u8] {
        self.last_keys.get(level).map_or(&[], |key| key)
    }

    /// Tables of running compactions.
    pub(crate) fn busy(&self) -> BTreeSet<u64> {
        let running = self.running.iter().flat_map(|(_, tables)| tables);
        running.copied().collect()
    }

    /// Lets no compaction start until [`CompactionState::resume`] was called as often.
    pub(crate) fn suspend(&mut self) {
        self.suspensions += 1;
    }

    /// See [`CompactionState::suspend`].
    pub(crate) fn resume(&mut self) {
        self.suspensions = self.suspensions.saturating_sub(1);
    }

    /// Whether compactions are suspended.
    pub(crate) const fn is_suspended(&self) -> bool {
        self.suspensions > 0
    }

    /// True if a compaction of this level runs.
    pub(crate) fn is_running(&self, level: usize) -> bool {
        self.running.iter().any(|(running, _)| *running == level)
    }

    /// No compaction runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Tables that back off after a failed compaction.
    pub(crate) fn backing_off(&self, now_nanos: u64) -> impl Iterator<Item = u64> {
        let backing_off = self.backing_off.iter();
        let backing_off = backing_off.filter(move |(_, rest)| rest.is_waiting(now_nanos));
        backing_off.map(|(number, _)| *number)
    }

    /// Tables of running compactions of this level.
    pub(super) fn busy_at(&self, level: usize) -> impl Iterator<Item = u64> {
        let running = self.running.iter().filter(move |(running, _)| *running == level);
        running.flat_map(|(_, tables)| tables.iter().copied())
    }

    /// Whether all of `threads` but one are at deeper levels or collect values: the last one is kept for
    /// level 0, and what that has to wait for, so that no large compaction delays it. While level 0 waits for
    /// a compaction of level 1, that is one for level 0 and not a deep one.
    ///
    /// If it counted as a deep one, levels 1 and 2 would take turns on one thread, and under writers that
    /// never stop level 2 would grow without bound.
    pub(crate) fn last_is_for_level0(&self, threads: usize, level0_waits: bool) -> bool {
        let deep = if level0_waits { 1 } else { 0 };
        let deeper = self.running.iter().filter(|(level, _)| *level > deep).count();
        threads > 1 && deeper + usize::from(self.is_collecting) + 1 >= threads
    }

    /// Starts collecting on one of `threads`, until [`CompactionState::end_collecting`]; `false` if none is
    /// available.
    pub(crate) fn begin_collecting(&mut self, threads: usize) -> bool {
        self.is_collecting = !self.is_suspended() && !self.last_is_for_level0(threads, false);
        self.is_collecting
    }

    /// See [`CompactionState::begin_collecting`].
    pub(crate) const fn end_collecting(&mut self) {
        self.is_collecting = false;
    }

    /// Records the start of a compaction.
    pub(crate) fn begin(&mut self, picked: &CompactionPick) {
        self.running.push((picked.level, picked.numbers().collect()));
    }

    /// Records its end, successful or not.
    pub(crate) fn end(&mut self, picked: &CompactionPick) {
        let over: Vec<u64> = picked.numbers().collect();
        self.running.retain(|(_, tables)| *tables != over);
    }

    /// Number of tables whose last compaction failed, backing off or not.
    pub(crate) fn failed_count(&self) -> usize {
        self.backing_off.len()
    }

    /// Forgets tables that no longer exist.
    pub(crate) fn keep_only(&mut self, version: &Version) {
        if !self.backing_off.is_empty() {
            let there: BTreeSet<u64> = version.tables().map(|(_, table)| table.number()).collect();
            self.backing_off.retain(|number, _| there.contains(number));
        }
    }

    /// Records that a compaction was installed.
    pub(crate) fn succeeded(&mut self, picked: &CompactionPick) {
        self.pause = Backoff::default();
        if let (Some(place), Some(range)) =
            (self.last_keys.get_mut(picked.level), KeyRange::of(&picked.inputs))
        {
            *place = range.lower().clone();
        }
        for table in picked.inputs.iter().chain(&picked.below) {
            self.backing_off.remove(&table.number());
        }
    }

    /// Records that a compaction failed.
    pub(crate) fn failed(&mut self, picked: &CompactionPick, error: &LsmError, now_nanos: u64) {
        let tables = picked.inputs.iter().chain(&picked.below);
        let named = match error {
            LsmError::Corrupt { file, .. } => table_number(file),
            _ => None,
        };
        let mut to_blame: Vec<u64> = tables
            .map(|table| table.number())
            .filter(|number| named == Some(*number))
            .collect();
        if to_blame.is_empty() {
            self.pause
                .double(now_nanos, PAUSE_NANOS, BACKOFF_NANOS_MAX_TRANSIENT);
            to_blame.extend(picked.inputs.iter().map(|table| table.number()));
        }
        let longest = if error.is_corruption() {
            BACKOFF_NANOS_MAX
        } else {
            BACKOFF_NANOS_MAX_TRANSIENT
        };
        for number in to_blame {
            let rest = self.backing_off.entry(number).or_default();
            rest.double(now_nanos, BACKOFF_NANOS, longest);
        }
    }

    /// Whether all compaction backs off.
    pub(crate) fn is_paused(&self, now_nanos: u64) -> bool {
        self.pause.is_waiting(now_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_count_as_threads_not_reserved_for_level_0() {
        let mut compactions = CompactionState::default();
        let deep = || (2, vec![7]);
        assert!(!compactions.last_is_for_level0(2, false) && compactions.begin_collecting(2));
        assert!(compactions.last_is_for_level0(2, false) && !compactions.last_is_for_level0(3, false));
        compactions.end_collecting();
        assert!(!compactions.last_is_for_level0(2, false));
        compactions.running.push(deep());
        assert!(!compactions.begin_collecting(2) && compactions.begin_collecting(3));
        assert!(compactions.last_is_for_level0(3, false));
        compactions.end_collecting();
        compactions.running = vec![(0, vec![7])];
        assert!(compactions.begin_collecting(2), "level 0 has its thread");
        compactions.end_collecting();
        compactions.running = vec![(1, vec![7])];
        assert!(compactions.last_is_for_level0(2, false) && !compactions.last_is_for_level0(2, true));
        compactions.running.push(deep());
        assert!(compactions.last_is_for_level0(2, true) && !compactions.last_is_for_level0(3, true));
        compactions.suspend();
        assert!(!compactions.begin_collecting(2) && !compactions.begin_collecting(1));
        compactions.resume();
        compactions.running.clear();
        assert!(compactions.begin_collecting(1), "a single thread does everything");
    }
}
