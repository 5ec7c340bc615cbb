//! Picks the next compaction. A function of the version, the options and the state of compactions: it reads
//! and writes nothing.
//!
//! Each level has a score, and the highest goes first. The score is how far the level exceeds its target
//! size: for level 0 in tables, for the others in bytes. But too many tables in level 0 soon slow writers
//! down, so beyond the target each counts three times as much; and compactions of level 0 rewrite level 1, so
//! compared with level 1 the cost of rewriting counts, too:
//!
//! ```text
//! n  tables of level 0 / tables that trigger a compaction
//! s  level 1 / its target size
//! r  the part of level 1 that the next compaction of level 0 rewrites / the target size of level 1
//!
//! score of level 0 = n              up to 1
//!                    1 + 3 (n - 1)  beyond; less than s if 3.5 s / r < s
//! ```
//!
//! So a level 0 that is 50 % too large goes before a level 1 that is two and a half times too large; but it
//! goes after level 1, however many tables it has, if it would rewrite more than three and a half times the
//! target size of level 1 (then `3.5 s / r < s`). Otherwise continuous writers would keep level 1 from ever
//! shrinking. With this rule levels stay below four and a half times their target if three tables are taken
//! at a time, seven and a half times if fifteen are (which is more than level 1 is to hold, at the sizes of
//! the tests), and writers are slowed in the meantime. A deeper level that exceeds its target even more does
//! not delay level 0: it is not involved in its compactions.
//!
//! If level 0 needs tables of a running compaction, no compaction with a lower score that would hold such
//! tables longer is started; otherwise level 0 could wait for a whole chain of them.
//!
//! Of level 0 the oldest tables are compacted, so that newer ones stay above them, as many as are merged at a
//! time. Of another level, the first table after the one compacted last, round robin over the keys. Tables
//! that must not be touched at the moment are skipped (`state.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::CompactionState;
use crate::options::{LEVEL_COUNT, LsmOptions};
use crate::table::Table;
use crate::version::{KeyRange, Version};

/// How much more a table of level 0 counts beyond the target.
const LEVEL0_STEEPNESS: f64 = 3.0;

/// A compaction of level 0 may rewrite this many times the target size of level 1 and still go first.
const REWRITTEN_MAX: f64 = 3.5;

/// What to compact.
#[derive(Clone, Debug)]
pub(crate) struct CompactionPick {
    pub level: usize,
    /// Tables of `level`, newest first if that is 0.
    pub inputs: Vec<Arc<Table>>,
    /// The tables of the next level that share keys with them.
    pub below: Vec<Arc<Table>>,
    /// True if no deeper level has keys in this range.
    pub bottom: bool,
    /// Whether the output uses the base level's compression.
    pub base: bool,
}

impl CompactionPick {
    pub(crate) const fn output_level(&self) -> usize {
        self.level + 1
    }

    /// True if the tables can be moved down without rewriting.
    pub(crate) fn moves(&self) -> bool {
        self.inputs.len() == 1 && self.below.is_empty() && !self.base
    }

    /// The numbers of all its tables.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let tables = self.inputs.iter().chain(&self.below);
        tables.map(|table| table.number())
    }

    fn below_bytes(&self) -> u64 {
        self.below.iter().map(|table| table.meta().file_bytes).sum()
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        let tables = self.inputs.iter().chain(&self.below);
        tables.map(|table| table.meta().file_bytes).sum()
    }
}

/// A level's size relative to its target.
fn fullness(version: &Version, options: &LsmOptions, level: usize) -> f64 {
    if level == 0 {
        version.level(0).len() as f64 / options.level0_tables.max(1) as f64
    } else {
        version.level_bytes(level) as f64 / options.level_bytes(level).max(1) as f64
    }
}

/// The score of level 0, and its limit compared with level 1. See the module's head.
fn level0_score(version: &Version, options: &LsmOptions, compactions: &CompactionState) -> (f64, f64) {
    let tables = fullness(version, options, 0);
    let next = pick_from_level(version, options, 0, compactions, &BTreeSet::new());
    let rewritten = next.map_or(0, |picked| picked.below_bytes());
    let most = match rewritten {
        0 => f64::INFINITY,
        bytes => REWRITTEN_MAX * version.level_bytes(1) as f64 / bytes as f64,
    };
    let steep = tables.min(1.0) + LEVEL0_STEEPNESS * (tables - 1.0).max(0.0);
    let level1 = fullness(version, options, 1);
    let score = if level1 > most {
        steep.min(level1.next_down())
    } else {
        steep
    };
    (score, most)
}

/// Whether level 0 is to be compacted and has to wait for a running compaction of level 1.
pub(crate) fn level0_waits(version: &Version, options: &LsmOptions, compactions: &CompactionState) -> bool {
    let level1: BTreeSet<u64> = compactions.busy_at(1).collect();
    if level1.is_empty() || fullness(version, options, 0) < 1.0 {
        return false;
    }
    let wanted = pick_from_level(version, options, 0, compactions, &BTreeSet::new());
    wanted.is_some_and(|wanted| wanted.numbers().any(|number| level1.contains(&number)))
}

/// Bytes that should lie deeper than they do.
pub(crate) fn debt_bytes(version: &Version, options: &LsmOptions) -> u64 {
    let mut debt = 0;
    for level in 0..LEVEL_COUNT - 1 {
        let bytes = version.level_bytes(level);
        debt += if level > 0 {
            bytes.saturating_sub(options.level_bytes(level))
        } else if version.level(0).len() > options.level0_tables {
            bytes
        } else {
            0
        };
    }
    debt
}

/// The most urgent compaction that touches none of the `held` tables; `None` if no level exceeds its target,
/// or none of it is free. `only_level0`: of level 0, or of level 1 if level 0 has to wait for that.
pub(crate) fn pick(
    only_level0: bool,
    version: &Version,
    options: &LsmOptions,
    compactions: &CompactionState,
    held: &BTreeSet<u64>,
) -> Option<CompactionPick> {
    let (level0, level0_most) = level0_score(version, options, compactions);
    let is_wanted = |level: usize, score: f64| match level {
        0 => true,
        1 => !only_level0 || score > level0_most,
        _ => !only_level0,
    };
    let deeper = (1..LEVEL_COUNT - 1).map(|level| (level, fullness(version, options, level)));
    let scores = std::iter::once((0, level0)).chain(deeper);
    let mut levels: Vec<(usize, f64)> = scores
        .filter(|&(level, score)| score >= 1.0 && is_wanted(level, score))
        .collect();
    // Among equals the upper level.
    levels.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut held = held.clone();
    for (level, _) in levels {
        let picked = pick_from_level(version, options, level, compactions, &held);
        if picked.is_some() {
            return picked;
        }
        if level == 0 && !compactions.is_running(0) {
            // The running compactions that it waits for.
            let busy = compactions.busy();
            let others: BTreeSet<u64> = held.difference(&busy).copied().collect();
            let wanted = pick_from_level(version, options, 0, compactions, &others);
            held.extend(wanted.iter().flat_map(CompactionPick::numbers));
        }
    }
    None
}

/// A compaction of `level`, whether it exceeds its target or not, that touches none of the `held` tables.
pub(crate) fn pick_from_level(
    version: &Version,
    options: &LsmOptions,
    level: usize,
    compactions: &CompactionState,
    held: &BTreeSet<u64>,
) -> Option<CompactionPick> {
    let tables = version.level(level);
    let is_free = |picked: &CompactionPick| {
        let mut tables = picked.inputs.iter().chain(&picked.below);
        held.is_empty() || !tables.any(|table| held.contains(&table.number()))
    };
    if level == 0 {
        // The oldest tables, possibly fewer: a newer table must not go below an older one.
        let most = tables.len().min(options.runs_max() - 1);
        let oldest = (1..=most)
            .rev()
            .filter_map(|count| tables.get(tables.len() - count..));
        return oldest
            .filter_map(|inputs| of_tables(version, level, inputs.to_vec()))
            .find(is_free);
    }
    let last = compactions.last_key(level);
    let behind = tables.partition_point(|table| *table.properties().lower <= *last);
    let (before, behind) = tables.split_at_checked(behind)?;
    let circle = behind.iter().chain(before);
    circle
        .filter_map(|table| of_tables(version, level, vec![Arc::clone(table)]))
        .find(is_free)
}

/// The compaction of these tables of a level.
fn of_tables(version: &Version, level: usize, inputs: Vec<Arc<Table>>) -> Option<CompactionPick> {
    let range = KeyRange::of(&inputs)?;
    let output_level = level + 1;
    let below = version.overlapping(output_level, &range);
    let whole = KeyRange::of(inputs.iter().chain(&below))?;
    let deeper = output_level + 1..LEVEL_COUNT;
    Some(CompactionPick {
        level,
        bottom: deeper
            .clone()
            .all(|level| version.overlapping(level, &whole).is_empty()),
        // Level 1 is rewritten with every compaction of level 0: too hot for strong compression.
        base: output_level > 1 && deeper.clone().all(|level| version.level(level).is_empty()),
        inputs,
        below,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weft_base::SimDisk;
    use weft_ops::key::SeqNo;
    use weft_ops::merge::MergeTask;

    use super::*;
    use crate::executor::{CompactionExecutor, InlineExecutor, TaskDone};
    use crate::fuzzing::dir;
    use crate::table::{TableFiles, TableMeta, TableProperties, UpperBound};
    use crate::version::Edit;

    fn files() -> Arc<TableFiles> {
        let dirs = vec![dir().to_owned(); LEVEL_COUNT];
        Arc::new(TableFiles::new(Arc::new(SimDisk::new(1)), dir(), dirs, 0))
    }

    fn meta(number: u64, level: usize, lower: &str, upper: &str, file_bytes: u64) -> (usize, TableMeta) {
        let key = Bytes::copy_from_slice(upper.as_bytes());
        let properties = TableProperties {
            lower: Bytes::copy_from_slice(lower.as_bytes()),
            upper: UpperBound { key, inclusive: true },
            entry_count: 1,
            tombstone_count: 0,
            block_count: 1,
            last_seqno: SeqNo(number),
            value_files: Vec::new(),
        };
        let meta = TableMeta {
            number,
            level,
            file_bytes,
            properties,
        };
        (level, meta)
    }

    /// Tables as (level, first key, last key), each of 100 bytes, numbered from 1 on.
    fn version(tables: &[(usize, &'static str, &'static str)]) -> Version {
        let numbered = (1..).zip(tables);
        let added = numbered.map(|(number, &(level, lower, upper))| meta(number, level, lower, upper, 100));
        let edit = Edit {
            added: added.collect(),
            ..Edit::default()
        };
        Version::empty().apply(&edit, &files())
    }

    /// Merges so many runs at a time.
    struct OfRuns(usize);

    impl CompactionExecutor for OfRuns {
        fn submit(&self, task: MergeTask, is_stopped: &dyn Fn() -> bool, done: TaskDone) {
            InlineExecutor.submit(task, is_stopped, done);
        }

        fn runs_max(&self) -> usize {
            self.0
        }
    }

    /// Level 0 is to have 4 tables, level 1 `level1_bytes`, level 2 ten times as many.
    fn options_of(runs_max: usize, level1_bytes: u64) -> LsmOptions {
        LsmOptions {
            level0_tables: 4,
            level1_bytes,
            level_factor: 10,
            executor: Arc::new(OfRuns(runs_max)),
            ..LsmOptions::default()
        }
    }

    fn options() -> LsmOptions {
        options_of(4, 200)
    }

    const LEVEL1: [(usize, &str, &str); 5] = [
        (1, "a", "b"),
        (1, "c", "d"),
        (1, "e", "f"),
        (1, "g", "h"),
        (1, "i", "j"),
    ];

    /// Level 1 is two and a half times too large, and level 0 has so many tables.
    fn shape(level0: usize, range: (&'static str, &'static str)) -> Version {
        let mut tables = LEVEL1.to_vec();
        tables.extend(vec![(0, range.0, range.1); level0]);
        version(&tables)
    }

    fn next(version: &Version, compactions: &CompactionState) -> Option<(usize, Vec<u64>)> {
        let chosen = pick(false, version, &options(), compactions, &compactions.busy());
        chosen.map(|picked| (picked.level, picked.numbers().collect()))
    }

    #[test]
    fn level_0_precedes_larger_debts_when_writers_are_about_to_be_slowed() {
        let compactions = CompactionState::default();
        let of = |level0| next(&shape(level0, ("a", "z")), &compactions).map(|(level, _)| level);
        assert_eq!((of(3), of(4), of(5)), (Some(1), Some(1), Some(1)));
        assert_eq!((of(6), of(7)), (Some(0), Some(0)));
    }

    /// The compaction of a level that is chosen when nothing runs; from now on it does.
    fn begun(version: &Version, level: usize) -> (CompactionState, CompactionPick) {
        let mut compactions = CompactionState::default();
        let picked = pick_from_level(version, &options(), level, &compactions, &BTreeSet::new()).unwrap();
        compactions.begin(&picked);
        (compactions, picked)
    }

    #[test]
    fn no_compaction_starts_that_level_0_would_have_to_wait_for() {
        let version = shape(7, ("a", "h"));
        let (mut compactions, deep) = begun(&version, 1);
        assert_eq!(deep.numbers().collect::<Vec<_>>(), [1]);
        // Level 0 needs the tables 1 to 4 below it: table 5 alone is nobody's.
        assert_eq!(next(&version, &compactions), Some((1, vec![5])));
        compactions.end(&deep);
        assert_eq!(next(&version, &compactions), Some((0, vec![8, 7, 6, 1, 2, 3, 4])));
    }

    #[test]
    fn level_0_waits_only_for_level_1_and_only_if_it_is_due() {
        let waits = |version: &Version, level| {
            let (compactions, _) = begun(version, level);
            level0_waits(version, &options(), &compactions)
        };
        assert!(waits(&shape(7, ("a", "h")), 1) && !waits(&shape(3, ("a", "h")), 1));
        assert!(!waits(&shape(7, ("c", "h")), 1), "table 1 is not in its way");
        assert!(!waits(&shape(7, ("a", "h")), 0));
    }

    #[test]
    fn level_0_without_urgency_blocks_no_compaction() {
        let version = shape(4, ("a", "h"));
        let (compactions, _) = begun(&version, 1);
        assert_eq!(next(&version, &compactions), Some((1, vec![2])));
    }

    #[test]
    fn level_0_that_runs_or_backs_off_reserves_nothing() {
        let version = shape(7, ("a", "f"));
        let (mut compactions, level0) = begun(&version, 0);
        assert_eq!(next(&version, &compactions), Some((1, vec![4])));
        compactions.end(&level0);
        // The oldest table of level 0 failed and rests: it is not what others wait for.
        let held = BTreeSet::from([6]);
        let chosen = pick(false, &version, &options(), &compactions, &held).unwrap();
        assert_eq!((chosen.level, chosen.inputs[0].number()), (1, 1));
    }

    /// Level 1 is seven and a half times too large, and not in the way.
    #[test]
    fn level_0_precedes_when_it_would_rewrite_nothing() {
        let mut tables = shape_of(&[LEVEL1.as_slice(); 3].concat());
        tables.extend(vec![(0, "x", "z"); 13]);
        let (version, compactions) = (version(&tables), CompactionState::default());
        for only_level0 in [false, true] {
            let chosen = pick(only_level0, &version, &options(), &compactions, &BTreeSet::new()).unwrap();
            assert_eq!((chosen.level, chosen.below.len()), (0, 0));
        }
    }

    #[test]
    fn level_1_precedes_when_level_0_would_rewrite_too_much_of_it() {
        // Level 1 is two and a half times too large with 5 tables; here it has 15.
        let mut tables = shape_of(&[LEVEL1.as_slice(); 3].concat());
        tables.extend(vec![(0, "a", "z"); 6]);
        let compactions = CompactionState::default();
        let version = version(&tables);
        assert_eq!(next(&version, &compactions).map(|(level, _)| level), Some(1));
        // Not even the thread that is kept for level 0 goes past it.
        let chosen = pick(true, &version, &options(), &compactions, &BTreeSet::new()).unwrap();
        assert_eq!(chosen.level, 1);
    }

    /// The same number of tables, no two of which share a key.
    fn shape_of(tables: &[(usize, &'static str, &'static str)]) -> Vec<(usize, &'static str, &'static str)> {
        const KEYS: [&str; 15] = [
            "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o",
        ];
        let keyed = tables.iter().zip(KEYS);
        keyed.map(|(&(level, ..), key)| (level, key, key)).collect()
    }

    const KEYS: u64 = 1_000_000_000;
    const TABLE: u64 = 100;

    /// Writers that never stop: a table of level 0 comes as fast as it can be written, unless there are too
    /// many, and compactions take the time that their bytes take.
    struct Saturated {
        version: Arc<Version>,
        files: Arc<TableFiles>,
        compactions: CompactionState,
        options: LsmOptions,
        next_number: u64,
        now: u64,
        threads: Vec<Option<(u64, CompactionPick)>>,
        flushed: u64,
        next_flush: u64,
    }

    impl Saturated {
        fn new(threads: usize, runs_max: usize) -> Self {
            Self {
                version: Arc::new(Version::empty()),
                files: files(),
                compactions: CompactionState::default(),
                options: options_of(runs_max, 4 * TABLE),
                next_number: 1,
                now: 0,
                threads: vec![None; threads],
                flushed: 0,
                next_flush: TABLE / 2,
            }
        }

        fn table(&mut self, level: usize, (lower, upper): (u64, u64), bytes: u64) -> (usize, TableMeta) {
            self.next_number += 1;
            meta(
                self.next_number,
                level,
                &format!("{lower:09}"),
                &format!("{upper:09}"),
                bytes,
            )
        }

        fn install(&mut self, edit: &Edit) {
            self.version = Arc::new(self.version.apply(edit, &self.files));
        }

        fn finish(&mut self, picked: &CompactionPick) {
            let number = |key: &[u8]| std::str::from_utf8(key).unwrap().parse::<u64>().unwrap();
            let all: Vec<&Arc<Table>> = picked.inputs.iter().chain(&picked.below).collect();
            let lower = all
                .iter()
                .map(|table| number(&table.properties().lower))
                .min()
                .unwrap();
            let upper = all
                .iter()
                .map(|table| number(&table.properties().upper.key))
                .max()
                .unwrap();
            let (bytes, width) = (picked.input_bytes(), upper - lower + 1);
            let count = bytes.div_ceil(TABLE);
            let mut edit = Edit::default();
            for at in 0..count {
                let range = (lower + width * at / count, lower + width * (at + 1) / count - 1);
                edit.added
                    .push(self.table(picked.output_level(), range, bytes / count));
            }
            edit.removed = picked.numbers().collect();
            self.install(&edit);
            self.compactions.end(picked);
            self.compactions.succeeded(picked);
        }

        fn start(&mut self, thread: usize) {
            let waits = level0_waits(&self.version, &self.options, &self.compactions);
            let only_level0 = self.compactions.last_is_for_level0(self.threads.len(), waits);
            let held = self.compactions.busy();
            if let Some(picked) = pick(
                only_level0,
                &self.version,
                &self.options,
                &self.compactions,
                &held,
            ) {
                self.compactions.begin(&picked);
                self.threads[thread] = Some((self.now + picked.input_bytes(), picked));
            }
        }

        /// To the next event.
        fn step(&mut self) {
            let may_flush = self.version.level(0).len() < 8 * self.options.level0_tables;
            let running = self.threads.iter().flatten().map(|(end, _)| *end).min();
            if may_flush && running.is_none_or(|end| self.next_flush <= end) {
                self.now = self.now.max(self.next_flush);
                self.next_flush = self.now + TABLE / 2;
                self.flushed += 1;
                let added = vec![self.table(0, (0, KEYS - 1), TABLE)];
                self.install(&Edit {
                    added,
                    ..Edit::default()
                });
            } else {
                self.now = self
                    .now
                    .max(running.expect("writers wait for a compaction that runs"));
                for thread in 0..self.threads.len() {
                    if let Some((_, picked)) = self.threads[thread].take_if(|(end, _)| *end <= self.now) {
                        self.finish(&picked);
                    }
                }
            }
            for thread in 0..self.threads.len() {
                if self.threads[thread].is_none() {
                    self.start(thread);
                }
            }
        }
    }

    /// Level 2 came to be six times too large, from a restore perhaps, and writers wait: level 0 goes
    /// first as long as level 1 is not in its way, and all of it shrinks in the end.
    #[test]
    fn level_0_does_not_wait_for_a_level_2_that_is_far_too_large() {
        for (threads, runs_max) in (1..=3).flat_map(|threads| [(threads, 4), (threads, 16)]) {
            let mut engine = Saturated::new(threads, runs_max);
            let mut edit = Edit::default();
            for (level, count) in [(0, 32), (1, 4), (2, 6 * 40)] {
                for at in 0..count {
                    let part = (KEYS * at / count, KEYS * (at + 1) / count - 1);
                    let range = if level == 0 { (0, KEYS - 1) } else { part };
                    edit.added.push(engine.table(level, range, TABLE));
                }
            }
            engine.install(&edit);
            engine.start(0);
            let first = engine.threads[0].as_ref().map(|(_, picked)| picked.level);
            assert_eq!(first, Some(0), "{threads} threads, {runs_max} runs");
            let mut most = 0.0_f64;
            while engine.flushed < 600 {
                engine.step();
                most = most.max(fullness(&engine.version, &engine.options, 2));
            }
            let last = fullness(&engine.version, &engine.options, 2);
            assert!(
                most <= 7.0 && last <= 5.0,
                "{threads} threads, {runs_max} runs: {most}, then {last}"
            );
        }
    }

    /// How full the levels 0 to 2 become at most, and how long it takes.
    fn saturated(threads: usize, runs_max: usize) -> ([f64; 3], u64) {
        let mut engine = Saturated::new(threads, runs_max);
        let mut most = [0.0_f64; 3];
        while engine.flushed < 1500 {
            engine.step();
            for (level, most) in most.iter_mut().enumerate() {
                *most = most.max(fullness(&engine.version, &engine.options, level));
            }
        }
        // Seen with `--nocapture`.
        println!("{threads} threads, {runs_max} runs: {most:?} in {}", engine.now);
        (most, engine.now)
    }

    #[test]
    fn levels_stay_bounded_under_writers_that_never_stop() {
        for threads in 1..=3 {
            for (runs_max, deeper_most) in [(4, 4.5), (16, 7.5)] {
                let (most, _) = saturated(threads, runs_max);
                assert!(
                    most[0] <= 8.0 && most[1] <= deeper_most && most[2] <= deeper_most,
                    "{threads} threads, {runs_max} runs: {most:?}"
                );
            }
        }
    }

    /// Level 1 is rewritten once for fifteen tables instead of for three.
    #[test]
    fn more_runs_at_a_time_let_writers_be_faster() {
        for threads in 1..=3 {
            let (_, few) = saturated(threads, 4);
            let (_, many) = saturated(threads, 16);
            assert!(5 * many < 4 * few, "{threads} threads: {many} against {few}");
        }
    }

    /// As many as the executor takes, the oldest ones, and what lies below them.
    #[test]
    fn a_compaction_of_level_0_takes_as_many_tables_as_are_merged_at_a_time() {
        let compactions = CompactionState::default();
        let version = shape(20, ("a", "h"));
        for (runs_max, taken) in [(2, 1), (4, 3), (9, 8), (16, 15), (1000, 15), (0, 1)] {
            let options = options_of(runs_max, 200);
            let picked = pick_from_level(&version, &options, 0, &compactions, &BTreeSet::new()).unwrap();
            let oldest: Vec<u64> = (6..6 + taken).rev().collect();
            let numbers: Vec<u64> = picked.inputs.iter().map(|table| table.number()).collect();
            assert_eq!((numbers, picked.below.len()), (oldest, 4), "{runs_max} runs");
        }
    }
}
