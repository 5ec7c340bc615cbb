//! Strings one after the other, some thousand bytes of them compressed together.
//!
//! ```text
//! part 1  lengths      of each string
//! part 2  first rows   of each block
//! part 3  stored ends  of each block, in the heap
//! part 4  heap         the blocks, each compressed with LZ4 (block format), or as it is if that is as short
//! ```
//!
//! A block holds whole strings, and the string with which it reaches [`BLOCK_BYTES`] is its last. So a string
//! costs the decompression of little more than that, unless it is itself longer.

use super::Encoded;
use super::array::{Array, ArrayBytes};
use super::search::first_not;
use super::strings::DAMAGED;
use crate::segment::format::Encoding;

/// A block is finished with the string with which it has so many bytes.
pub(crate) const BLOCK_BYTES: usize = 8 << 10;

/// The longest string.
const LENGTH_MAX: i64 = i32::MAX as i64;

/// Strings as they are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StringBlocks<'a> {
    pub lengths: Array<'a>,
    pub first_rows: Array<'a>,
    pub stored_ends: Array<'a>,
    pub heap: Array<'a>,
}

/// A block, decompressed.
#[derive(Debug, Default)]
struct Block {
    first_row: usize,
    end_row: usize,
    bytes: Vec<u8>,
}

/// The strings in blocks; none for NULL.
pub(crate) fn encode(strings: &[Option<&[u8]>]) -> Encoded {
    let (mut first_rows, mut stored_ends) = (Vec::new(), Vec::new());
    let (mut block, mut heap) = (Vec::new(), Vec::new());
    let mut first_row = 0;
    for (at, string) in strings.iter().enumerate() {
        block.extend_from_slice(string.unwrap_or_default());
        if block.len() >= BLOCK_BYTES || at + 1 == strings.len() {
            let compressed = lz4_flex::block::compress(&block);
            match compressed.len() < block.len() {
                true => heap.extend_from_slice(&compressed),
                false => heap.extend_from_slice(&block),
            }
            first_rows.push(first_row);
            stored_ends.push(heap.len() as i64);
            first_row = at as i64 + 1;
            block.clear();
        }
    }
    let lengths: Vec<i64> = strings
        .iter()
        .map(|string| string.map_or(0, |string| string.len() as i64))
        .collect();
    Encoded::new(
        Encoding::Blocks,
        [
            ArrayBytes::of_numbers(&lengths),
            ArrayBytes::of_numbers(&first_rows),
            ArrayBytes::of_numbers(&stored_ends),
            ArrayBytes::of_bytes(heap),
        ],
    )
}

impl StringBlocks<'_> {
    /// One string. A block is decompressed, and the lengths before it in the block are added.
    pub(crate) fn get(&self, at: usize) -> Result<Vec<u8>, &'static str> {
        let behind = first_not(0, self.first_rows.count(), |block| {
            self.first_rows.get(block) <= at as i64
        });
        let block = self.open(behind.checked_sub(1).ok_or(DAMAGED)?)?;
        let mut found = None;
        self.each_of(&block, |row, string| {
            if row == at {
                found = Some(string.to_vec());
            }
        })?;
        found.ok_or(DAMAGED)
    }

    /// Each string of the rows `first..end`, in order.
    pub(crate) fn each(
        &self,
        first: usize,
        end: usize,
        mut each: impl FnMut(usize, &[u8]),
    ) -> Result<(), &'static str> {
        let behind = first_not(0, self.first_rows.count(), |block| {
            self.first_rows.get(block) <= first as i64
        });
        for number in behind.saturating_sub(1)..self.first_rows.count() {
            if self.first_rows.get(number) >= end as i64 {
                break;
            }
            let block = self.open(number)?;
            self.each_of(&block, |row, string| {
                if (first..end).contains(&row) {
                    each(row, string);
                }
            })?;
        }
        Ok(())
    }

    /// Decompresses a block.
    fn open(&self, number: usize) -> Result<Block, &'static str> {
        let rows = self.lengths.count();
        let first_row = self.first_rows.get(number) as usize;
        let end_row = match number + 1 < self.first_rows.count() {
            true => self.first_rows.get(number + 1) as usize,
            false => rows,
        };
        if first_row > end_row || end_row > rows {
            return Err(DAMAGED);
        }
        let mut lengths = vec![0; end_row - first_row];
        self.lengths.fill(first_row, &mut lengths);
        let bytes: usize = lengths.iter().map(|length| *length as usize).sum();
        let start = number
            .checked_sub(1)
            .map_or(0, |before| self.stored_ends.get(before) as usize);
        let stored = self
            .heap
            .bytes()
            .get(start..self.stored_ends.get(number) as usize)
            .ok_or(DAMAGED)?;
        // LZ4 makes bytes at most some 255 times fewer.
        if bytes / 256 > stored.len() {
            return Err(DAMAGED);
        }
        let mut block = Block {
            first_row,
            end_row,
            bytes: vec![0; bytes],
        };
        if stored.len() == bytes {
            block.bytes.copy_from_slice(stored);
        } else {
            let filled = lz4_flex::block::decompress_into(stored, &mut block.bytes);
            if !filled.is_ok_and(|filled| filled == bytes) {
                return Err("a block cannot be decompressed");
            }
        }
        Ok(block)
    }

    fn each_of(&self, block: &Block, mut each: impl FnMut(usize, &[u8])) -> Result<(), &'static str> {
        let mut rest = block.bytes.as_slice();
        for row in block.first_row..block.end_row {
            let (string, behind) = rest
                .split_at_checked(self.lengths.get(row) as usize)
                .ok_or(DAMAGED)?;
            each(row, string);
            rest = behind;
        }
        Ok(())
    }

    /// Whether blocks ascend from the first row on and fill the heap. They are not decompressed.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.lengths.base() > LENGTH_MAX || !self.lengths.is_at_most(LENGTH_MAX) {
            return Err("a string is longer than a column");
        }
        let (mut row_before, mut end_before) = (-1, -1);
        for block in 0..self.first_rows.count() {
            let (row, end) = (self.first_rows.get(block), self.stored_ends.get(block));
            if row <= row_before || row >= self.lengths.count() as i64 || end < end_before {
                return Err("blocks do not ascend");
            }
            (row_before, end_before) = (row, end);
        }
        let first = (self.first_rows.count() > 0).then(|| self.first_rows.get(0));
        let is_complete = match self.lengths.count() {
            0 => first.is_none(),
            _ => first == Some(0),
        };
        match is_complete && end_before.max(0) == self.heap.count() as i64 {
            true => Ok(()),
            false => Err("blocks do not fill their place"),
        }
    }
}
