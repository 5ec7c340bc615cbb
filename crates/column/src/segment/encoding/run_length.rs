//! Rows in sequence with one value are a run: where it ends, and its value.
//!
//! ```text
//! part 1  ends    the last row of each run, ascending
//! part 2  values  one a run
//! ```
//!
//! A number costs a binary search of the ends.

use super::array::{Array, ArrayBytes, part_bytes, width_of};
use super::search::first_not;

/// Numbers as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunLength<'a> {
    pub ends: Array<'a>,
    pub values: Array<'a>,
}

/// Bytes of both parts, or a little more.
pub(crate) fn bytes(numbers: &[i64], frame_width: u32) -> usize {
    let changes = numbers
        .array_windows()
        .filter(|[before, number]| before != number);
    let runs = changes.count() + 1;
    part_bytes(runs, width_of(0, numbers.len() as i64)) + part_bytes(runs, frame_width)
}

pub(crate) fn encode(numbers: &[i64]) -> [ArrayBytes; 2] {
    let (mut ends, mut values) = (Vec::new(), Vec::new());
    for (at, number) in numbers.iter().enumerate() {
        if numbers.get(at + 1) != Some(number) {
            ends.push(at as i64);
            values.push(*number);
        }
    }
    [ArrayBytes::of_numbers(&ends), ArrayBytes::of_numbers(&values)]
}

impl RunLength<'_> {
    /// The run in which a row lies.
    fn run_of(&self, at: usize) -> usize {
        first_not(0, self.ends.count(), |run| self.ends.get(run) < at as i64)
    }

    pub(crate) fn get(&self, at: usize) -> i64 {
        self.values.get(self.run_of(at))
    }

    /// The numbers from `first` on.
    pub(crate) fn fill(&self, first: usize, out: &mut [i64]) {
        self.each_run(first, first + out.len(), |value, from, end| {
            if let Some(places) = out.get_mut(from - first..end - first) {
                places.fill(value);
            }
        });
    }

    /// Each run with rows among `first..end`: its value, and those of its rows.
    pub(crate) fn each_run(&self, first: usize, end: usize, mut each: impl FnMut(i64, usize, usize)) {
        let mut from = first;
        for run in self.run_of(first)..self.ends.count() {
            if from >= end {
                break;
            }
            let behind = (self.ends.get(run) as usize + 1).min(end);
            each(self.values.get(run), from, behind);
            from = behind;
        }
    }

    /// Whether the runs are those of so many rows.
    pub(crate) fn check(&self, rows: usize) -> Result<(), &'static str> {
        let mut before = -1;
        for run in 0..self.ends.count() {
            let end = self.ends.get(run);
            if end <= before {
                return Err("runs do not ascend");
            }
            before = end;
        }
        match before == rows as i64 - 1 {
            true => Ok(()),
            false => Err("runs do not end with the last row"),
        }
    }
}
