//! What choosing has to know beside the version: where each level was compacted last, and which tables are to
//! be left alone for a while.
//!
//! Several compactions may run at once if they share no table. That is enough: a compaction puts out keys
//! between the first and the last of its tables only, no other table of its two levels lies in between, and
//! what it found below it stays there. Of level 0 one runs at a time, because the oldest tables go first;
//! `choose.rs` says when it goes before deeper ones.
//!
//! A compaction that failed is not tried again at once: the same tables would be chosen, and fail again, and
//! nothing else would ever be compacted. Its tables rest, for a time that doubles with each failure, and
//! others go first. If the error names one of them, only that one rests. If it names none (the disk is full,
//! the executor is gone), others would fail as well: then all compaction rests, for a shorter time.
//!
//! Who needs the machine for himself asks for quiet: then none begins until he is done, whoever asks for one.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::Choice;
use crate::backoff::Backoff;
use crate::error::LsmError;
use crate::options::LEVEL_COUNT;
use crate::table::table_number;
use crate::version::{KeyRange, Version};

/// How long the tables of a compaction rest that failed for the first time, in nanoseconds.
const REST_NANOS: u64 = 1_000_000_000;
/// How long at most if stored bytes are wrong, which time does not mend.
const REST_NANOS_MAX: u64 = 300 * REST_NANOS;
/// How long at most otherwise: a full disk has room again when somebody has made it.
const REST_NANOS_MAX_MENDED: u64 = 4 * REST_NANOS;
/// How long everything rests after a failure that may not be a table's; it doubles up to the same.
const PAUSE_NANOS: u64 = REST_NANOS / 5;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Turns {
    last_keys: Vec<Bytes>,
    /// Level and tables of each compaction that runs.
    running: Vec<(usize, Vec<u64>)>,
    resting: BTreeMap<u64, Backoff>,
    /// Of everything, after failures that may not be a table's.
    pause: Backoff,
    /// How many want quiet: none begins while there are any.
    quiet: usize,
    /// A thread for compactions collects values.
    is_collecting: bool,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            last_keys: vec![Bytes::new(); LEVEL_COUNT],
            running: Vec::new(),
            resting: BTreeMap::new(),
            pause: Backoff::default(),
            quiet: 0,
            is_collecting: false,
        }
    }
}

impl Turns {
    /// Where a level was compacted last: the lowest key of what went.
    pub(super) fn last_key(&self, level: usize) -> &[u8] {
        self.last_keys.get(level).map_or(&[], |key| key)
    }

    /// Tables of compactions that run.
    pub(crate) fn busy(&self) -> BTreeSet<u64> {
        let running = self.running.iter().flat_map(|(_, tables)| tables);
        running.copied().collect()
    }

    /// From now on no compaction begins, until [`Turns::end_quiet`] was called as often.
    pub(crate) fn begin_quiet(&mut self) {
        self.quiet += 1;
    }

    /// See [`Turns::begin_quiet`].
    pub(crate) fn end_quiet(&mut self) {
        self.quiet = self.quiet.saturating_sub(1);
    }

    /// Whether somebody wants quiet.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.quiet > 0
    }

    /// A compaction of a level runs.
    pub(crate) fn is_running(&self, level: usize) -> bool {
        self.running.iter().any(|(running, _)| *running == level)
    }

    /// No compaction runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Tables whose last compaction failed and that are not to be touched yet.
    pub(crate) fn resting(&self, now_nanos: u64) -> impl Iterator<Item = u64> {
        let resting = self.resting.iter();
        let resting = resting.filter(move |(_, rest)| rest.rests(now_nanos));
        resting.map(|(number, _)| *number)
    }

    /// Whether all of `threads` but one are at deeper levels or collect values: the last one is kept for
    /// level 0, and what that has to wait for, so that nothing large stops it.
    pub(crate) fn last_is_for_level0(&self, threads: usize) -> bool {
        let deeper = self.running.iter().filter(|(level, _)| *level > 0).count();
        threads > 1 && deeper + usize::from(self.is_collecting) + 1 >= threads
    }

    /// One of `threads` is to collect values, until [`Turns::end_collecting`]; `false` if none may.
    pub(crate) fn begin_collecting(&mut self, threads: usize) -> bool {
        self.is_collecting = !self.is_quiet() && !self.last_is_for_level0(threads);
        self.is_collecting
    }

    /// See [`Turns::begin_collecting`].
    pub(crate) const fn end_collecting(&mut self) {
        self.is_collecting = false;
    }

    /// A compaction begins.
    pub(crate) fn begin(&mut self, choice: &Choice) {
        self.running.push((choice.level, choice.numbers().collect()));
    }

    /// It is over, however that went.
    pub(crate) fn end(&mut self, choice: &Choice) {
        let over: Vec<u64> = choice.numbers().collect();
        self.running.retain(|(_, tables)| *tables != over);
    }

    /// Number of tables whose last compaction failed, resting or not.
    pub(crate) fn failed_count(&self) -> usize {
        self.resting.len()
    }

    /// Forgets tables that are gone.
    pub(crate) fn keep_only(&mut self, version: &Version) {
        if !self.resting.is_empty() {
            let there: BTreeSet<u64> = version.tables().map(|(_, table)| table.number()).collect();
            self.resting.retain(|number, _| there.contains(number));
        }
    }

    /// A compaction was installed.
    pub(crate) fn succeeded(&mut self, choice: &Choice) {
        self.pause = Backoff::default();
        if let (Some(place), Some(range)) =
            (self.last_keys.get_mut(choice.level), KeyRange::of(&choice.inputs))
        {
            *place = range.lower().clone();
        }
        for table in choice.inputs.iter().chain(&choice.below) {
            self.resting.remove(&table.number());
        }
    }

    /// A compaction failed.
    pub(crate) fn failed(&mut self, choice: &Choice, error: &LsmError, now_nanos: u64) {
        let tables = choice.inputs.iter().chain(&choice.below);
        let named = match error {
            LsmError::Corrupt { file, .. } => table_number(file),
            _ => None,
        };
        let mut to_blame: Vec<u64> = tables
            .map(|table| table.number())
            .filter(|number| named == Some(*number))
            .collect();
        if to_blame.is_empty() {
            self.pause.prolong(now_nanos, PAUSE_NANOS, REST_NANOS_MAX_MENDED);
            to_blame.extend(choice.inputs.iter().map(|table| table.number()));
        }
        let longest = if error.is_corruption() {
            REST_NANOS_MAX
        } else {
            REST_NANOS_MAX_MENDED
        };
        for number in to_blame {
            let rest = self.resting.entry(number).or_default();
            rest.prolong(now_nanos, REST_NANOS, longest);
        }
    }

    /// Whether all compaction rests.
    pub(crate) fn is_paused(&self, now_nanos: u64) -> bool {
        self.pause.rests(now_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_collects_counts_among_those_who_are_not_there_for_level_0() {
        let mut turns = Turns::default();
        let deep = || (2, vec![7]);
        assert!(!turns.last_is_for_level0(2) && turns.begin_collecting(2));
        assert!(turns.last_is_for_level0(2) && !turns.last_is_for_level0(3));
        turns.end_collecting();
        assert!(!turns.last_is_for_level0(2));
        turns.running.push(deep());
        assert!(!turns.begin_collecting(2) && turns.begin_collecting(3));
        assert!(turns.last_is_for_level0(3));
        turns.end_collecting();
        turns.running = vec![(0, vec![7])];
        assert!(turns.begin_collecting(2), "level 0 has its thread");
        turns.end_collecting();
        turns.begin_quiet();
        assert!(!turns.begin_collecting(2) && !turns.begin_collecting(1));
        turns.end_quiet();
        turns.running.clear();
        assert!(turns.begin_collecting(1), "a single thread does everything");
    }
}
