//! Strings one after the other.
//!
//! ```text
//! parts 1, 2  offsets  where each string begins, and the end of the last: module delta; none for 16 bytes
//! part 3      heap     the strings
//! ```

use super::Encoded;
use super::array::{Array, ArrayBytes};
use super::delta::{Delta, DeltaPlan};
use super::strings::DAMAGED;
use crate::segment::format::Encoding;

/// Strings as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawStrings<'a> {
    /// Of strings of any length.
    pub offsets: Option<Delta<'a>>,
    pub heap: Array<'a>,
}

/// Strings of 16 bytes each; zeros for NULL.
pub(crate) fn encode16(strings: &[Option<&[u8]>]) -> Encoded {
    let heap = strings
        .iter()
        .flat_map(|string| string.unwrap_or(&[0; 16]))
        .copied()
        .collect();
    let none = ArrayBytes::default();
    Encoded::new(Encoding::Raw, [none.clone(), none, ArrayBytes::of_bytes(heap)])
}

/// Strings of any length; none for NULL.
pub(crate) fn encode(strings: &[Option<&[u8]>]) -> Encoded {
    let mut offsets = Vec::with_capacity(strings.len() + 1);
    let mut heap = Vec::new();
    offsets.push(0);
    for string in strings {
        heap.extend_from_slice(string.unwrap_or_default());
        offsets.push(heap.len() as i64);
    }
    let [deltas, restarts] = match DeltaPlan::new(&offsets) {
        Some(plan) => plan.encode(&offsets),
        // A single offset has no delta.
        None => [ArrayBytes::of_codes(&[0], 0), ArrayBytes::of_numbers(&offsets)],
    };
    Encoded::new(Encoding::Raw, [deltas, restarts, ArrayBytes::of_bytes(heap)])
}

impl<'a> RawStrings<'a> {
    /// One string. Of any length: up to 64 deltas are added.
    pub(crate) fn get(&self, at: usize) -> Result<&'a [u8], &'static str> {
        match &self.offsets {
            Some(offsets) => self.slice(offsets.pair(at)),
            None => self.slice((at as i64 * 16, at as i64 * 16 + 16)),
        }
    }

    fn slice(&self, (start, end): (i64, i64)) -> Result<&'a [u8], &'static str> {
        self.heap.bytes().get(start as usize..end as usize).ok_or(DAMAGED)
    }

    /// Where each string of the rows `first..end` begins in the heap, and the end of the last.
    fn offsets(&self, first: usize, end: usize) -> Vec<i64> {
        match &self.offsets {
            Some(stored) => {
                let mut offsets = vec![0; end - first + 1];
                stored.fill(first, &mut offsets);
                offsets
            }
            None => (first..=end).map(|at| at as i64 * 16).collect(),
        }
    }

    /// The strings of the rows `first..end`, and where each begins among them.
    pub(crate) fn copy(&self, first: usize, end: usize) -> Result<(Vec<i32>, Vec<u8>), &'static str> {
        let offsets = self.offsets(first, end);
        let start = offsets.first().copied().unwrap_or(0);
        let bytes = self
            .slice((start, offsets.last().copied().unwrap_or(0)))?
            .to_vec();
        let offsets = offsets.iter().map(|offset| (offset - start) as i32);
        Ok((offsets.collect(), bytes))
    }

    /// Each string of the rows `first..end`, in order.
    pub(crate) fn each(
        &self,
        first: usize,
        end: usize,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<(), &'static str> {
        for (at, [start, end]) in (first..).zip(self.offsets(first, end).array_windows()) {
            each(at, self.slice((*start, *end))?);
        }
        Ok(())
    }

    /// Whether the strings fill the heap.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let Some(stored) = &self.offsets else {
            return Ok(());
        };
        let offsets = self.offsets(0, stored.count().saturating_sub(1));
        let ends = (offsets.first(), offsets.last());
        let fills = ends == (Some(&0), Some(&(self.heap.count() as i64)));
        match fills && offsets.is_sorted() {
            true => Ok(()),
            false => Err("strings do not fill their place"),
        }
    }
}
