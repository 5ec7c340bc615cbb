//! Encodings of a column, one a file. Each has two to four parts behind the bitmap of NULLs.
//!
//! | encoding | numbers | strings | value by position |
//! |---|---|---|---|
//! | frame of reference, raw | [`array`] | [`string_raw`] | at once; of strings up to 64 lengths are added |
//! | dictionary | [`dictionary`] | [`string_dictionary`] | at once |
//! | run length | [`run_length`] | | a binary search |
//! | delta | [`delta`] | | up to 63 additions |
//! | blocks | | [`string_blocks`] | a block is decompressed |
//!
//! A constant column is a frame of reference, or a dictionary of one entry, with codes of no bits. Rows that
//! are NULL have a number or string too, whichever costs least.

pub(crate) mod array;
mod delta;
mod dictionary;
pub(crate) mod numbers;
mod run_length;
pub(crate) mod search;
mod string_blocks;
mod string_dictionary;
mod string_raw;
pub(crate) mod strings;

pub(crate) use array::{Array, ArrayBytes};
pub(crate) use dictionary::Dictionary;
pub(crate) use numbers::Numbers;
pub(crate) use strings::Strings;

use super::Kind;
use super::format::{Encoding, Entry, Part, RAW_WIDTH};
use delta::RESTART_ROWS;

/// A column's encoding and the parts of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub encoding: Encoding,
    pub parts: Vec<ArrayBytes>,
}

impl Encoded {
    pub(crate) fn new(encoding: Encoding, parts: impl Into<Vec<ArrayBytes>>) -> Encoded {
        let parts = parts.into();
        Encoded { encoding, parts }
    }

    /// Bytes of all parts.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.parts.iter().map(ArrayBytes::stored_bytes).sum()
    }
}

/// The encoding with the fewest bytes; the first among equals. One of those that have to be walked through,
/// value by value, is taken only if it is an eighth smaller than what can be scanned as codes.
fn smallest(scanned: &[(Encoding, Option<usize>)], walked: &[(Encoding, Option<usize>)]) -> Encoding {
    let min = |of: &[(Encoding, Option<usize>)]| {
        let possible = of
            .iter()
            .filter_map(|(encoding, bytes)| Some((*encoding, (*bytes)?)));
        possible.min_by_key(|(_, bytes)| *bytes)
    };
    match (min(scanned), min(walked)) {
        (Some((encoding, bytes)), Some((_, other))) if !is_worth(other, bytes) => encoding,
        (_, Some((encoding, _))) | (Some((encoding, _)), None) => encoding,
        (None, None) => Encoding::Raw,
    }
}

/// Whether so few bytes, at a price for whoever reads them, are worth it.
fn is_worth(bytes: usize, than: usize) -> bool {
    bytes < than && bytes <= than - than / 8
}

/// Whether the parts behind the bitmap of NULLs are those that the encoding has for so many rows.
pub(crate) fn check_shape(entry: &Entry, row_count: u32) -> Result<(), &'static str> {
    let [_, first, second, third, fourth] = &entry.parts;
    let rows = row_count as usize;
    let count = |part: &Part, expected: usize| part.count as usize == expected;
    let packed = |part: &Part, expected: usize| count(part, expected) && part.width != RAW_WIDTH;
    let codes = |part: &Part| packed(part, rows) && part.base == 0;
    let heap = |part: &Part| (part.width, part.base) == (8, 0) || part.count == 0;
    let none = |part: &Part| part.count == 0;
    let groups = |numbers: usize| numbers.div_ceil(RESTART_ROWS);
    let is_right = match (entry.encoding, entry.kind) {
        (Encoding::Raw, Kind::Bytes16) => {
            none(first) && none(second) && heap(third) && count(third, rows * 16) && none(fourth)
        }
        (Encoding::Raw, Kind::Bytes) => {
            packed(first, rows + 1) && count(second, groups(rows + 1)) && heap(third) && none(fourth)
        }
        (Encoding::Dictionary, Kind::Bytes16) => {
            codes(first) && none(second) && heap(third) && third.count % 16 == 0 && none(fourth)
        }
        (Encoding::Dictionary, Kind::Bytes) => {
            codes(first) && second.count > 0 && heap(third) && none(fourth)
        }
        (Encoding::Blocks, Kind::Bytes) => {
            packed(first, rows) && first.base >= 0 && count(third, second.count as usize) && heap(fourth)
        }
        (_, Kind::Bytes16 | Kind::Bytes) | (Encoding::Blocks, _) => false,
        (Encoding::Raw, _) => count(first, rows) && first.width == RAW_WIDTH && none(second),
        (Encoding::Frame, _) => packed(first, rows) && none(second),
        (Encoding::Dictionary, _) => codes(first),
        (Encoding::Delta, _) => packed(first, rows) && count(second, groups(rows)),
        (Encoding::RunLength, _) => count(second, first.count as usize),
    };
    let is_right = is_right && (!entry.kind.is_number() || none(third) && none(fourth));
    match is_right {
        true => Ok(()),
        false => Err("the parts are not those of the encoding"),
    }
}
