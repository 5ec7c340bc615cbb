//! What to compact next. A function of the version, the options and where each level was compacted last: it
//! reads and writes nothing.
//!
//! The level that exceeds its size the most goes first: level 0 by its number of tables, the others by
//! bytes. Level 0 goes before all others once it is half again too large: writers are slowed by its tables
//! soon after. If what it needs is held by a compaction that runs, none that would hold it longer begins
//! meanwhile; else each deeper one could be followed by the next, and level 0 wait for the whole chain.
//!
//! Of level 0 the oldest tables go, at most three, so that newer ones stay above them. Of another level goes
//! the first table behind the one that went last, in a circle over the keys. What may not be touched at
//! present is passed over (`turns.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{TASK_RUNS_MAX, Turns};
use crate::options::{LEVEL_COUNT, LsmOptions};
use crate::table::Table;
use crate::version::{KeyRange, Version};

/// The score from which level 0 goes before every other level. Writers are slowed from 2 on.
const LEVEL0_FIRST: f64 = 1.5;

/// What to compact.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub level: usize,
    /// Tables of `level`, newest first if that is 0.
    pub inputs: Vec<Arc<Table>>,
    /// The tables of the next level that share keys with them.
    pub below: Vec<Arc<Table>>,
    /// Whether no deeper level has keys of this range.
    pub bottom: bool,
    /// Whether the output is stored as the base is.
    pub base: bool,
}

impl Choice {
    pub(crate) const fn output_level(&self) -> usize {
        self.level + 1
    }

    /// Whether the tables can go down as they are.
    pub(crate) fn moves(&self) -> bool {
        self.inputs.len() == 1 && self.below.is_empty() && !self.base
    }

    /// The numbers of all its tables.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let tables = self.inputs.iter().chain(&self.below);
        tables.map(|table| table.number())
    }

    pub(crate) fn input_bytes(&self) -> u64 {
        let tables = self.inputs.iter().chain(&self.below);
        tables.map(|table| table.meta().file_bytes).sum()
    }
}

/// By how much a level exceeds its size; 1 and more calls for a compaction.
fn score(version: &Version, options: &LsmOptions, level: usize) -> f64 {
    if level == 0 {
        version.level(0).len() as f64 / options.level0_tables.max(1) as f64
    } else {
        version.level_bytes(level) as f64 / options.level_bytes(level).max(1) as f64
    }
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

/// The most urgent compaction out of the first `levels` that touches none of the `held` tables; `None` if
/// none of them is too large, or nothing of it is free.
pub(crate) fn choose(
    levels: usize,
    version: &Version,
    options: &LsmOptions,
    turns: &Turns,
    held: &BTreeSet<u64>,
) -> Option<Choice> {
    let rank = |level: usize| match score(version, options, level) {
        score if level == 0 && score >= LEVEL0_FIRST => f64::INFINITY,
        score => score,
    };
    let mut levels: Vec<(usize, f64)> = (0..levels.min(LEVEL_COUNT - 1))
        .map(|level| (level, rank(level)))
        .filter(|(_, rank)| *rank >= 1.0)
        .collect();
    levels.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut held = held.clone();
    for (level, _) in levels {
        let choice = choose_from(version, level, turns, &held);
        if choice.is_some() {
            return choice;
        }
        if level == 0 && !turns.is_running(0) {
            // What it waits for, of those that run.
            let busy = turns.busy();
            let others: BTreeSet<u64> = held.difference(&busy).copied().collect();
            let wanted = choose_from(version, 0, turns, &others);
            held.extend(wanted.iter().flat_map(Choice::numbers));
        }
    }
    None
}

/// A compaction of `level`, too large or not, that touches none of the `held` tables.
pub(crate) fn choose_from(
    version: &Version,
    level: usize,
    turns: &Turns,
    held: &BTreeSet<u64>,
) -> Option<Choice> {
    let tables = version.level(level);
    let is_free = |choice: &Choice| {
        let mut tables = choice.inputs.iter().chain(&choice.below);
        held.is_empty() || !tables.any(|table| held.contains(&table.number()))
    };
    if level == 0 {
        // The oldest, or else fewer of them: a newer one must not go below an older one.
        let most = tables.len().min(TASK_RUNS_MAX - 1);
        let oldest = (1..=most)
            .rev()
            .filter_map(|count| tables.get(tables.len() - count..));
        return oldest
            .filter_map(|inputs| of_tables(version, level, inputs.to_vec()))
            .find(is_free);
    }
    let last = turns.last_key(level);
    let behind = tables.partition_point(|table| *table.properties().lower <= *last);
    let (before, behind) = tables.split_at_checked(behind)?;
    let circle = behind.iter().chain(before);
    circle
        .filter_map(|table| of_tables(version, level, vec![Arc::clone(table)]))
        .find(is_free)
}

/// The compaction of these tables of a level.
fn of_tables(version: &Version, level: usize, inputs: Vec<Arc<Table>>) -> Option<Choice> {
    let range = KeyRange::of(&inputs)?;
    let output_level = level + 1;
    let below = version.overlapping(output_level, &range);
    let whole = KeyRange::of(inputs.iter().chain(&below))?;
    let deeper = output_level + 1..LEVEL_COUNT;
    Some(Choice {
        level,
        bottom: deeper
            .clone()
            .all(|level| version.overlapping(level, &whole).is_empty()),
        // Level 1 is rewritten with every compaction of level 0: too hot to be packed hard.
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

    use super::*;
    use crate::fuzzing::dir;
    use crate::table::{TableFiles, TableMeta, TableProperties, UpperBound};
    use crate::version::Edit;

    /// Tables as (level, first key, last key), each of 100 bytes, numbered from 1 on.
    fn version(tables: &[(usize, &'static str, &'static str)]) -> Version {
        let files = TableFiles::new(
            Arc::new(SimDisk::new(1)),
            dir(),
            vec![dir().to_owned(); LEVEL_COUNT],
            0,
        );
        let added = (1..).zip(tables).map(|(number, &(level, lower, upper))| {
            let key = Bytes::from_static(upper.as_bytes());
            let properties = TableProperties {
                lower: Bytes::from_static(lower.as_bytes()),
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
                file_bytes: 100,
                properties,
            };
            (level, meta)
        });
        let edit = Edit {
            added: added.collect(),
            ..Edit::default()
        };
        Version::empty().apply(&edit, &Arc::new(files))
    }

    /// Level 0 is to have 4 tables, level 1 200 bytes, level 2 2000.
    fn options() -> LsmOptions {
        LsmOptions {
            level0_tables: 4,
            level1_bytes: 200,
            level_factor: 10,
            ..LsmOptions::default()
        }
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

    fn next(version: &Version, turns: &Turns) -> Option<(usize, Vec<u64>)> {
        let chosen = choose(LEVEL_COUNT, version, &options(), turns, &turns.busy());
        chosen.map(|choice| (choice.level, choice.numbers().collect()))
    }

    #[test]
    fn level_0_goes_before_what_is_more_too_large_when_writers_are_about_to_be_slowed() {
        let turns = Turns::default();
        let of = |level0| next(&shape(level0, ("a", "z")), &turns).map(|(level, _)| level);
        assert_eq!((of(3), of(4), of(5)), (Some(1), Some(1), Some(1)));
        assert_eq!((of(6), of(7)), (Some(0), Some(0)));
    }

    #[test]
    fn nothing_begins_that_level_0_would_have_to_wait_for() {
        let version = shape(7, ("a", "h"));
        let mut turns = Turns::default();
        let deep = choose_from(&version, 1, &turns, &BTreeSet::new()).unwrap();
        assert_eq!(deep.numbers().collect::<Vec<_>>(), [1]);
        turns.begin(&deep);
        // Level 0 needs the tables 1 to 4 below it: table 5 alone is nobody's.
        assert_eq!(next(&version, &turns), Some((1, vec![5])));
        turns.end(&deep);
        assert_eq!(next(&version, &turns), Some((0, vec![8, 7, 6, 1, 2, 3, 4])));
    }

    #[test]
    fn level_0_that_is_not_pressing_stops_nobody() {
        let version = shape(4, ("a", "h"));
        let mut turns = Turns::default();
        let deep = choose_from(&version, 1, &turns, &BTreeSet::new()).unwrap();
        turns.begin(&deep);
        assert_eq!(next(&version, &turns), Some((1, vec![2])));
    }

    #[test]
    fn level_0_that_runs_or_rests_keeps_nothing_for_itself() {
        let version = shape(7, ("a", "f"));
        let mut turns = Turns::default();
        let level0 = choose_from(&version, 0, &turns, &BTreeSet::new()).unwrap();
        turns.begin(&level0);
        assert_eq!(next(&version, &turns), Some((1, vec![4])));
        turns.end(&level0);
        // The oldest table of level 0 failed and rests: it is not what others wait for.
        let held = BTreeSet::from([6]);
        let chosen = choose(LEVEL_COUNT, &version, &options(), &turns, &held).unwrap();
        assert_eq!((chosen.level, chosen.inputs[0].number()), (1, 1));
    }
}
