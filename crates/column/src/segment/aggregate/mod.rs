//! What the values of some rows come to: how many there are, their sum, minimum and maximum.
//!
//! ```text
//! frame of reference   totals of the codes; sum = base * count + sum of codes
//! dictionary           extremes of the codes, whose order is the values'; numbers are looked up to be added
//! runs                 each run once
//! other numbers        unpacked, 1,024 at a time
//! ```
//!
//! Values are known by their numbers (`value.rs`); a string of a dictionary by its code. [`Groups`] are rows
//! by the values of other columns.
//!
//! Source: DBA 6 (aggregates on value ids, announced as the next step).

mod groups;
mod key;

pub use groups::Groups;

use super::column::{Body, Column};
use super::decoded::CHUNK_ROWS;
use super::encoding::{Dictionary, Numbers, Strings};
use super::error::SegmentError;
use super::value::Value;
use crate::packed::{Codes, Form};

/// What is asked of a column's values, besides their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// Nothing else.
    Count,
    /// The minimum and the maximum.
    Extremes,
    /// Their sum, too.
    All,
}

/// What the values of some rows come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    /// How many of the rows are not NULL.
    pub count: u64,
    /// The sum of numbers, if it was asked for.
    pub sum: i128,
    min: i64,
    max: i64,
}

impl Aggregate {
    /// That of no row.
    pub const NONE: Aggregate = Aggregate {
        count: 0,
        sum: 0,
        min: i64::MAX,
        max: i64::MIN,
    };

    #[inline]
    fn add(&mut self, number: i64) {
        self.count += 1;
        self.sum += i128::from(number);
        self.min = self.min.min(number);
        self.max = self.max.max(number);
    }

    fn add_many(&mut self, number: i64, count: u64) {
        if count > 0 {
            self.count += count;
            self.sum += i128::from(number) * i128::from(count);
            self.min = self.min.min(number);
            self.max = self.max.max(number);
        }
    }

    fn of_count(count: u64) -> Aggregate {
        Aggregate {
            count,
            ..Aggregate::NONE
        }
    }
}

impl<'a> Column<'a> {
    /// What the rows whose bit is set come to, the first in the lowest bit. `None`: its values cannot be
    /// aggregated without being decoded; strings have no sum.
    #[must_use]
    pub fn aggregate(&self, form: Form, selection: &[u64], wanted: Wanted) -> Option<Aggregate> {
        let values = self.values();
        match &values {
            None => self.aggregate_values(form, selection, wanted),
            Some(values) => {
                let both: Vec<u64> = selection.iter().zip(values).map(|(a, b)| a & b).collect();
                self.aggregate_values(form, &both, wanted)
            }
        }
    }

    /// The same, of rows that are not NULL.
    fn aggregate_values(&self, form: Form, selection: &[u64], wanted: Wanted) -> Option<Aggregate> {
        if wanted == Wanted::Count {
            return Some(Aggregate::of_count(count(selection, self.rows())));
        }
        match self.body() {
            Body::Numbers(Numbers::Plain(array)) => match array.codes() {
                Some(codes) => Some(of_frame(codes, array.base(), form, selection)),
                None => Some(self.aggregate_unpacked(selection)),
            },
            Body::Numbers(Numbers::Dictionary(dictionary)) => {
                Some(of_dictionary(dictionary, form, selection, wanted == Wanted::All))
            }
            Body::Numbers(Numbers::RunLength(runs)) => {
                let mut all = Aggregate::NONE;
                runs.each_run(0, self.rows(), |value, first, end| {
                    all.add_many(value, count_between(selection, first, end));
                });
                Some(all)
            }
            Body::Numbers(Numbers::Delta(_)) => Some(self.aggregate_unpacked(selection)),
            Body::Strings(Strings::Dictionary(dictionary)) if wanted == Wanted::Extremes => {
                Some(of_frame(dictionary.codes.codes()?, 0, form, selection))
            }
            Body::Strings(_) => None,
        }
    }

    fn aggregate_unpacked(&self, selection: &[u64]) -> Aggregate {
        let mut all = Aggregate::NONE;
        self.each_number(selection, |_, number| all.add(number));
        all
    }

    /// Visits the rows whose bit is set, and their numbers, also where a row is NULL; of strings, none.
    fn each_number(&self, selection: &[u64], mut visit: impl FnMut(usize, i64)) {
        let Body::Numbers(numbers) = self.body() else {
            return;
        };
        let mut buffer = [0; CHUNK_ROWS];
        for (nth, words) in selection.chunks(CHUNK_ROWS / 64).enumerate() {
            let first = nth * CHUNK_ROWS;
            let rows = CHUNK_ROWS.min(self.rows().saturating_sub(first));
            let Some(unpacked) = buffer
                .get_mut(..rows)
                .filter(|_| words.iter().any(|word| *word != 0))
            else {
                continue;
            };
            numbers.fill(first, unpacked);
            for (at, (word, numbers)) in words.iter().zip(unpacked.chunks(64)).enumerate() {
                each_bit(*word, |bit| {
                    if let Some(number) = numbers.get(bit) {
                        visit(first + 64 * at + bit, *number);
                    }
                });
            }
        }
    }

    /// The minimum and the maximum of an aggregate of this column; none if it has no value, or they were not
    /// asked for.
    ///
    /// # Errors
    /// Damage of the column.
    pub fn extremes(&self, of: &Aggregate) -> Result<Option<(Value<'a>, Value<'a>)>, SegmentError> {
        if of.min > of.max {
            return Ok(None);
        }
        Ok(Some((self.value_of(of.min)?, self.value_of(of.max)?)))
    }

    /// The value that a number, or a code of a dictionary of strings, stands for.
    fn value_of(&self, number: i64) -> Result<Value<'a>, SegmentError> {
        let value = match self.body() {
            Body::Numbers(_) => self.kind().value_of(number),
            Body::Strings(Strings::Dictionary(dictionary)) => {
                let entry = dictionary.entry(number as usize);
                let entry = entry.map_err(|reason| self.damaged(reason))?;
                match (self.kind(), entry.first_chunk()) {
                    (super::Kind::Bytes16, Some(bytes)) => Some(Value::Bytes16(*bytes)),
                    _ => Some(Value::from(entry)),
                }
            }
            Body::Strings(_) => None,
        };
        value.ok_or(self.damaged("no value has this number"))
    }
}

fn of_frame(codes: Codes<'_>, base: i64, form: Form, selection: &[u64]) -> Aggregate {
    let totals = codes.totals(form, selection);
    match totals.count {
        0 => Aggregate::NONE,
        count => Aggregate {
            count,
            sum: i128::from(base) * i128::from(count) + i128::from(totals.sum),
            min: base.wrapping_add(i64::from(totals.min)),
            max: base.wrapping_add(i64::from(totals.max)),
        },
    }
}

fn of_dictionary(dictionary: &Dictionary<'_>, form: Form, selection: &[u64], is_summed: bool) -> Aggregate {
    let Some(codes) = dictionary.codes.codes() else {
        return Aggregate::NONE;
    };
    let totals = codes.totals(form, selection);
    if totals.count == 0 {
        return Aggregate::NONE;
    }
    let entry = |code: u32| dictionary.entries.get(code as usize);
    Aggregate {
        count: totals.count,
        sum: match is_summed {
            true => sum_of_entries(dictionary, codes, form, selection),
            false => 0,
        },
        min: entry(totals.min),
        max: entry(totals.max),
    }
}

/// How many times 64 codes are unpacked at once: they stay in the nearest cache.
const UNPACKED_GROUPS: usize = 8;

/// The sum of the entries that the selected codes stand for.
fn sum_of_entries(dictionary: &Dictionary<'_>, codes: Codes<'_>, form: Form, selection: &[u64]) -> i128 {
    let mut entries = vec![0; dictionary.entries.count()];
    dictionary.entries.fill(0, &mut entries);
    let entry = |code: &u32| entries.get(*code as usize).copied().unwrap_or(0);
    // In halves, of which as many as a segment has rows do not overflow.
    let (mut low, mut high) = (0_u64, 0_i64);
    let mut add = |number: i64| {
        low += u64::from(number as u32);
        high += number >> 32;
    };
    let mut unpacked = [[0; 64]; UNPACKED_GROUPS];
    for (nth, words) in selection.chunks(UNPACKED_GROUPS).enumerate() {
        if words.iter().all(|word| *word == 0) {
            continue;
        }
        let first = nth * UNPACKED_GROUPS;
        codes.unpack(form, first, &mut unpacked);
        for (at, (word, codes_of_word)) in words.iter().zip(&unpacked).enumerate() {
            let rows = codes.count().saturating_sub(64 * (first + at));
            match *word {
                u64::MAX if rows >= 64 => codes_of_word.iter().for_each(|code| add(entry(code))),
                word => each_bit(first_bits(word, rows), |bit| {
                    add(codes_of_word.get(bit).map_or(0, entry));
                }),
            }
        }
    }
    (i128::from(high) << 32) + i128::from(low)
}

/// A word without the bits from `count` on.
fn first_bits(word: u64, count: usize) -> u64 {
    match count {
        0 => 0,
        1..64 => word & (u64::MAX >> (64 - count)),
        _ => word,
    }
}

#[inline]
fn each_bit(word: u64, mut visit: impl FnMut(usize)) {
    let mut left = word;
    while left != 0 {
        visit(left.trailing_zeros() as usize);
        left &= left - 1;
    }
}

/// How many of the first `rows` bits are set.
fn count(selection: &[u64], rows: usize) -> u64 {
    count_between(selection, 0, rows)
}

/// How many of the bits `first..end` are set.
fn count_between(selection: &[u64], first: usize, end: usize) -> u64 {
    let words = selection
        .iter()
        .enumerate()
        .take(end.div_ceil(64))
        .skip(first / 64);
    let ones = words.map(|(nth, word)| {
        let word = first_bits(*word, end - 64 * nth);
        let before = first_bits(word, first.saturating_sub(64 * nth));
        word.count_ones() - before.count_ones()
    });
    ones.map(u64::from).sum()
}
