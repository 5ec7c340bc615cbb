//! The distinct strings in ascending order of their bytes, and for each row the place of its string: its
//! code.
//!
//! ```text
//! part 1  codes    one a row; 0 for NULL
//! part 2  offsets  where each entry begins, and the end of the last; none for 16 bytes
//! part 3  heap     the entries
//! ```

use std::collections::HashMap;

use super::Encoded;
use weft_ops::packed::packed_len;

use super::array::{Array, ArrayBytes};
use super::dictionary::{check_codes, code_width};
use super::strings::DAMAGED;
use crate::segment::format::Encoding;

/// Strings as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StringDictionary<'a> {
    pub codes: Array<'a>,
    /// Of strings of any length.
    pub offsets: Option<Array<'a>>,
    pub heap: Array<'a>,
}

/// The strings with a dictionary; none if it would have more than `bytes_max` bytes.
pub(crate) fn encode(strings: &[Option<&[u8]>], fixed: bool, bytes_max: usize) -> Option<Encoded> {
    let (mut places, mut heap_bytes) = (HashMap::new(), 0);
    for string in strings.iter().flatten() {
        if places.insert(*string, 0_u32).is_none() {
            heap_bytes += string.len();
        }
        // Codes are no shorter in the end.
        if heap_bytes + packed_len(strings.len(), code_width(places.len())) > bytes_max {
            return None;
        }
    }
    let mut entries: Vec<&[u8]> = places.keys().copied().collect();
    entries.sort_unstable();
    if entries.is_empty() && !strings.is_empty() {
        entries.push(if fixed { &[0; 16] } else { &[] });
    }
    let mut offsets = vec![0];
    let mut heap = Vec::with_capacity(heap_bytes);
    for (code, entry) in (0..).zip(&entries) {
        heap.extend_from_slice(entry);
        offsets.push(heap.len() as i64);
        places.insert(entry, code);
    }
    let code = |string: &Option<&[u8]>| string.and_then(|string| places.get(string).copied()).unwrap_or(0);
    let codes: Vec<u32> = strings.iter().map(code).collect();
    let offsets = match fixed {
        true => ArrayBytes::default(),
        false => ArrayBytes::of_numbers(&offsets),
    };
    let codes = ArrayBytes::of_codes(&codes, code_width(entries.len()));
    Some(Encoded::new(
        Encoding::Dictionary,
        [codes, offsets, ArrayBytes::of_bytes(heap)],
    ))
}

impl<'a> StringDictionary<'a> {
    /// How many entries.
    pub(crate) fn entry_count(&self) -> usize {
        match &self.offsets {
            Some(offsets) => offsets.count().saturating_sub(1),
            None => self.heap.count() / 16,
        }
    }

    /// The entry of a code.
    pub(crate) fn entry(&self, code: usize) -> Result<&'a [u8], &'static str> {
        let (start, end) = match &self.offsets {
            Some(offsets) => (offsets.get(code) as usize, offsets.get(code + 1) as usize),
            None => (code * 16, code * 16 + 16),
        };
        self.heap.bytes().get(start..end).ok_or(DAMAGED)
    }

    /// One string.
    pub(crate) fn get(&self, at: usize) -> Result<&'a [u8], &'static str> {
        self.entry(self.codes.get(at) as usize)
    }

    /// Each string of the rows `first..end`, in order.
    pub(crate) fn each(
        &self,
        first: usize,
        end: usize,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<(), &'static str> {
        let mut codes = vec![0; end - first];
        self.codes.fill(first, &mut codes);
        if self.entry_count() > codes.len() {
            for (at, code) in (first..).zip(codes) {
                each(at, self.entry(code as usize)?);
            }
            return Ok(());
        }
        // Finding an entry costs more than using it: each is found once.
        let entries = (0..self.entry_count()).map(|code| self.entry(code));
        let entries: Vec<&[u8]> = entries.collect::<Result<_, _>>()?;
        for (at, code) in (first..).zip(codes) {
            each(at, entries.get(code as usize).ok_or(DAMAGED)?);
        }
        Ok(())
    }

    /// Whether entries ascend and fill the heap, and every code has one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let count = self.entry_count();
        check_codes(&self.codes, count)?;
        if let Some(offsets) = &self.offsets {
            let ends = (offsets.get(0), offsets.get(count));
            if ends != (0, self.heap.count() as i64) {
                return Err("entries of the dictionary do not fill their place");
            }
        }
        let mut before: Option<&[u8]> = None;
        for code in 0..count {
            let entry = Some(self.entry(code)?);
            if entry <= before {
                return Err("entries of the dictionary do not ascend");
            }
            before = entry;
        }
        Ok(())
    }
}
