//! What each number exceeds the one before by, and every 64th number itself.
//!
//! ```text
//! part 1  deltas    one a row; that of a restart is not used
//! part 2  restarts  numbers 0, 64, 128, ...
//! number i  =  restart i / 64, plus the deltas behind it up to i
//! ```
//!
//! A number costs at most 63 deltas; numbers in sequence one addition each.

use super::array::{Array, ArrayBytes, part_bytes, width_of};
use crate::segment::format::RAW_WIDTH;

/// Rows from one restart to the next.
pub(crate) const RESTART_ROWS: usize = 64;

/// Numbers as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delta<'a> {
    pub deltas: Array<'a>,
    pub restarts: Array<'a>,
}

/// What the deltas of some numbers are like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeltaPlan {
    min: i64,
    width: u32,
}

impl DeltaPlan {
    /// None if the deltas do not fit in 32 bits. Restarts have the width that the numbers have in a frame.
    pub(crate) fn new(numbers: &[i64]) -> Option<DeltaPlan> {
        let mut extremes: Option<(i64, i64)> = None;
        for group in numbers.chunks(RESTART_ROWS) {
            for pair in group.array_windows() {
                let [before, number] = *pair;
                let delta = number.wrapping_sub(before);
                let (min, max) = extremes.unwrap_or((delta, delta));
                extremes = Some((min.min(delta), max.max(delta)));
            }
        }
        let (min, max) = extremes?;
        let width = width_of(min, max);
        (width != RAW_WIDTH).then_some(DeltaPlan { min, width })
    }

    /// Bytes of both parts.
    pub(crate) fn bytes(&self, count: usize, frame_width: u32) -> usize {
        part_bytes(count, self.width) + part_bytes(count.div_ceil(RESTART_ROWS), frame_width)
    }

    pub(crate) fn encode(&self, numbers: &[i64]) -> [ArrayBytes; 2] {
        let mut codes = Vec::with_capacity(numbers.len());
        let mut restarts = Vec::with_capacity(numbers.len().div_ceil(RESTART_ROWS));
        for group in numbers.chunks(RESTART_ROWS) {
            restarts.extend(group.first());
            codes.push(0);
            let deltas = group
                .array_windows()
                .map(|[before, number]| number.wrapping_sub(*before));
            codes.extend(deltas.map(|delta| delta.wrapping_sub(self.min) as u32));
        }
        let deltas = ArrayBytes {
            base: self.min,
            ..ArrayBytes::of_codes(&codes, self.width)
        };
        [deltas, ArrayBytes::of_numbers(&restarts)]
    }
}

impl Delta<'_> {
    /// How many numbers.
    pub(crate) const fn count(&self) -> usize {
        self.deltas.count()
    }

    /// One number: up to 63 deltas are added.
    pub(crate) fn get(&self, at: usize) -> i64 {
        let restart = at / RESTART_ROWS;
        let mut deltas = [0; RESTART_ROWS];
        let used = deltas.get_mut(..=at % RESTART_ROWS).unwrap_or_default();
        self.deltas.fill(restart * RESTART_ROWS, used);
        let behind = used.iter().skip(1);
        behind.fold(self.restarts.get(restart), |number, delta| {
            number.wrapping_add(*delta)
        })
    }

    /// Two numbers that follow each other, for little more than one.
    pub(crate) fn pair(&self, at: usize) -> (i64, i64) {
        let number = self.get(at);
        let next = match (at + 1).is_multiple_of(RESTART_ROWS) {
            true => self.restarts.get((at + 1) / RESTART_ROWS),
            false => number.wrapping_add(self.deltas.get(at + 1)),
        };
        (number, next)
    }

    /// The numbers from `first` on.
    pub(crate) fn fill(&self, first: usize, out: &mut [i64]) {
        self.deltas.fill(first, out);
        let mut number = match first.checked_sub(1) {
            Some(before) if !first.is_multiple_of(RESTART_ROWS) => self.get(before),
            _ => 0,
        };
        for (at, out) in (first..).zip(out) {
            number = match at.is_multiple_of(RESTART_ROWS) {
                true => self.restarts.get(at / RESTART_ROWS),
                false => number.wrapping_add(*out),
            };
            *out = number;
        }
    }
}
