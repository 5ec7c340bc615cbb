//! Rows by the values of some columns, and what another column's values come to in each group.
//!
//! The codes of all columns together number the groups, so there must be few codes. While there are few
//! groups each is a bitmap, and a column is aggregated as often as there are groups: that is faster than
//! finding the group of each row. Otherwise each row has the number of its group, and adds to its place in an
//! array.

use super::super::column::{Body, Column};
use super::super::encoding::Strings;
use super::super::error::SegmentError;
use super::super::value::Value;
use super::key::Key;
use super::{Aggregate, Wanted, count, each_bit};
use crate::packed::Form;

/// The most numbers of groups: a place for each fits in the nearer caches.
const NUMBERS_MAX: usize = 1024;

/// Up to so many groups are bitmaps.
const BITMAPS_MAX: usize = 8;

/// Selected rows of a segment in groups; one group if they are grouped by no column.
#[derive(Debug)]
pub struct Groups<'a> {
    keys: Vec<Key<'a>>,
    rows: usize,
    /// The groups that have rows.
    found: Vec<Group>,
    members: Members,
}

/// A group that has rows.
#[derive(Debug, Clone, Copy)]
struct Group {
    number: usize,
    rows: u64,
}

#[derive(Debug)]
enum Members {
    /// The rows of each group that was found.
    Bitmaps(Vec<Vec<u64>>),
    /// The number of each row's group, and the rows that count.
    Numbers(Vec<u16>, Vec<u64>),
}

impl<'a> Groups<'a> {
    /// Groups the rows whose bit is set, the first of `rows` in the lowest bit. `None` if a column has no
    /// codes, or they have too many.
    #[must_use]
    pub fn new(form: Form, rows: usize, selection: &[u64], columns: &[Column<'a>]) -> Option<Groups<'a>> {
        let (mut keys, mut numbers) = (Vec::with_capacity(columns.len()), 1);
        for column in columns {
            let key = Key::new(column, NUMBERS_MAX / numbers.max(1))?;
            if column.rows() != rows {
                return None;
            }
            numbers *= key.count();
            keys.push(key);
        }
        let mut groups = Groups {
            keys,
            rows,
            found: Vec::new(),
            members: Members::Bitmaps(Vec::new()),
        };
        if numbers <= BITMAPS_MAX {
            groups.find_bitmaps(form, selection);
        } else {
            groups.find_numbers(form, numbers, selection);
        }
        Some(groups)
    }

    fn find_bitmaps(&mut self, form: Form, selection: &[u64]) {
        let mut open = vec![(0, selection.to_vec())];
        for key in &self.keys {
            let of_codes = |(number, rows): (usize, Vec<u64>)| {
                let split = key.split(form, &rows).into_iter().enumerate();
                split.map(move |(code, rows)| (number * key.count() + code, rows))
            };
            open = open.into_iter().flat_map(of_codes).collect();
            open.retain(|(_, rows)| rows.iter().any(|word| *word != 0));
        }
        let mut bitmaps = Vec::with_capacity(open.len());
        for (number, bitmap) in open {
            let rows = count(&bitmap, self.rows);
            if rows > 0 {
                self.found.push(Group { number, rows });
                bitmaps.push(bitmap);
            }
        }
        self.members = Members::Bitmaps(bitmaps);
    }

    fn find_numbers(&mut self, form: Form, numbers: usize, selection: &[u64]) {
        let mut of_rows = vec![0; self.rows];
        for key in &self.keys {
            key.refine(form, &mut of_rows);
        }
        let mut rows_of = vec![0_u64; numbers];
        each_row(&of_rows, selection, |_, number| {
            if let Some(rows) = rows_of.get_mut(usize::from(number)) {
                *rows += 1;
            }
        });
        let rows_of = rows_of.into_iter().enumerate().filter(|(_, rows)| *rows > 0);
        self.found = rows_of.map(|(number, rows)| Group { number, rows }).collect();
        if self.found.len() > BITMAPS_MAX {
            self.members = Members::Numbers(of_rows, selection.to_vec());
            return;
        }
        let mut bitmaps = vec![vec![0_u64; self.rows.div_ceil(64)]; self.found.len()];
        each_row(&of_rows, selection, |row, number| {
            let place = self
                .found
                .partition_point(|group| group.number < usize::from(number));
            if let Some(word) = bitmaps.get_mut(place).and_then(|rows| rows.get_mut(row / 64)) {
                *word |= 1 << (row % 64);
            }
        });
        self.members = Members::Bitmaps(bitmaps);
    }

    /// How many groups have rows. They are in the order of their values in the columns, NULL last.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found.len()
    }

    /// How many rows a group has.
    #[must_use]
    pub fn rows(&self, group: usize) -> u64 {
        self.found.get(group).map_or(0, |group| group.rows)
    }

    /// A group's value in each column that rows are grouped by, none for NULL.
    ///
    /// # Errors
    /// Damage of a column.
    pub fn values(&self, group: usize) -> Result<Vec<Option<Value<'a>>>, SegmentError> {
        let mut rest = self.found.get(group).map_or(0, |group| group.number);
        let mut values = Vec::with_capacity(self.keys.len());
        for key in self.keys.iter().rev() {
            values.push(key.value(rest % key.count().max(1))?);
            rest /= key.count().max(1);
        }
        values.reverse();
        Ok(values)
    }

    /// What a column's values come to in each group. `None`: as [`Column::aggregate`].
    #[must_use]
    pub fn aggregate(&self, form: Form, column: &Column<'_>, wanted: Wanted) -> Option<Vec<Aggregate>> {
        let (of_rows, selection) = match &self.members {
            Members::Bitmaps(bitmaps) => {
                let aggregates = bitmaps.iter().map(|rows| column.aggregate(form, rows, wanted));
                return aggregates.collect();
            }
            Members::Numbers(of_rows, selection) => (of_rows, selection),
        };
        let selection = match column.values() {
            None => selection.clone(),
            Some(values) => selection.iter().zip(values).map(|(a, b)| a & b).collect(),
        };
        let numbers = self.found.last().map_or(0, |group| group.number + 1);
        let mut all = vec![Aggregate::NONE; numbers];
        match (column.body(), wanted) {
            (_, Wanted::Count) => each_row(of_rows, &selection, |_, group| {
                if let Some(group) = all.get_mut(usize::from(group)) {
                    group.count += 1;
                }
            }),
            (Body::Strings(Strings::Dictionary(dictionary)), Wanted::Extremes) => {
                each_row(of_rows, &selection, |row, group| {
                    if let Some(group) = all.get_mut(usize::from(group)) {
                        group.add(dictionary.codes.get(row));
                    }
                });
            }
            (Body::Strings(_), _) => return None,
            (Body::Numbers(_), _) => column.each_number(&selection, |row, number| {
                let group = of_rows
                    .get(row)
                    .and_then(|group| all.get_mut(usize::from(*group)));
                if let Some(group) = group {
                    group.add(number);
                }
            }),
        }
        let found = self.found.iter();
        Some(
            found
                .map(|group| all.get(group.number).copied().unwrap_or(Aggregate::NONE))
                .collect(),
        )
    }
}

/// Visits the rows whose bit is set, and the numbers of their groups.
#[inline]
fn each_row(of_rows: &[u16], selection: &[u64], mut visit: impl FnMut(usize, u16)) {
    for (nth, (word, numbers)) in selection.iter().zip(of_rows.chunks(64)).enumerate() {
        each_bit(*word, |bit| {
            if let Some(number) = numbers.get(bit) {
                visit(64 * nth + bit, *number);
            }
        });
    }
}
