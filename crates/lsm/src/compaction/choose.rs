//! What to compact next. A function of the version, the options and where each level was compacted last: it
//! reads and writes nothing.
//!
//! The level that exceeds its size the most goes first: level 0 by its number of tables, the others by
//! bytes. Of level 0 the oldest tables go, at most three, so that newer ones stay above them. Of another
//! level goes the first table behind the one that went last, in a circle over the keys. What may not be
//! touched at present is passed over (`turns.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{TASK_RUNS_MAX, Turns};
use crate::options::{LEVEL_COUNT, LsmOptions};
use crate::table::Table;
use crate::version::{KeyRange, Version};

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
    let mut levels: Vec<(usize, f64)> = (0..levels.min(LEVEL_COUNT - 1))
        .map(|level| (level, score(version, options, level)))
        .filter(|(_, score)| *score >= 1.0)
        .collect();
    levels.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    levels
        .into_iter()
        .find_map(|(level, _)| choose_from(version, level, turns, held))
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
