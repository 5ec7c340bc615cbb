//! The distinct numbers in ascending order, and for each row the place of its number among them: its code.
//!
//! ```text
//! part 1  codes    one a row
//! part 2  entries  the distinct numbers
//! ```
//!
//! Codes have the order of the numbers, so a range of numbers is a range of codes.

use super::array::{Array, ArrayBytes, part_bytes, width_of};

/// Numbers as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dictionary<'a> {
    pub codes: Array<'a>,
    pub entries: Array<'a>,
}

/// The distinct numbers, ascending.
pub(crate) fn distinct(numbers: &[i64]) -> Vec<i64> {
    let mut entries = numbers.to_vec();
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Bits of the codes of so many entries.
pub(crate) const fn code_width(entries: usize) -> u32 {
    width_of(0, entries.saturating_sub(1) as i64)
}

/// Bytes of both parts.
pub(crate) fn bytes(rows: usize, entries: usize, frame_width: u32) -> usize {
    part_bytes(rows, code_width(entries)) + part_bytes(entries, frame_width)
}

/// The entries are the distinct numbers.
pub(crate) fn encode(numbers: &[i64], entries: &[i64]) -> [ArrayBytes; 2] {
    let code = |number: &i64| entries.partition_point(|entry| entry < number) as u32;
    let codes: Vec<u32> = numbers.iter().map(code).collect();
    [
        ArrayBytes::of_codes(&codes, code_width(entries.len())),
        ArrayBytes::of_numbers(entries),
    ]
}

impl Dictionary<'_> {
    pub(crate) fn get(&self, at: usize) -> i64 {
        self.entries.get(self.codes.get(at) as usize)
    }

    /// The numbers from `first` on.
    pub(crate) fn fill(&self, first: usize, out: &mut [i64]) {
        self.codes.fill(first, out);
        if out.len() < self.entries.count() {
            out.iter_mut()
                .for_each(|out| *out = self.entries.get(*out as usize));
            return;
        }
        let mut entries = vec![0; self.entries.count()];
        self.entries.fill(0, &mut entries);
        for out in out {
            *out = entries.get(*out as usize).copied().unwrap_or(0);
        }
    }

    /// Whether entries ascend and every code has one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        check_codes(&self.codes, self.entries.count())?;
        let mut before = None;
        for at in 0..self.entries.count() {
            let entry = Some(self.entries.get(at));
            if entry <= before {
                return Err("entries of the dictionary do not ascend");
            }
            before = entry;
        }
        Ok(())
    }
}

/// Whether every code is one of so many entries.
pub(crate) fn check_codes(codes: &Array<'_>, entries: usize) -> Result<(), &'static str> {
    let sound = codes.count() == 0 || entries > 0 && codes.is_at_most(entries as i64 - 1);
    match sound {
        true => Ok(()),
        false => Err("a code has no entry in the dictionary"),
    }
}
