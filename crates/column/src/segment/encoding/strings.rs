//! A column of strings: which encoding is the smallest, and reading any of them.

use std::borrow::Cow;

use super::array::Array;
use super::delta::Delta;
use super::string_blocks::{self, StringBlocks};
use super::string_dictionary::{self, StringDictionary};
use super::string_raw::{self, RawStrings};
use super::{Encoded, is_worth};
use crate::segment::Kind;
use crate::segment::format::{Encoding, Entry};

/// What lies somewhere else than it can.
pub(crate) const DAMAGED: &str = "a string lies outside of its place";

/// Strings as they are read, in whichever encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strings<'a> {
    Raw(RawStrings<'a>),
    Dictionary(StringDictionary<'a>),
    Blocks(StringBlocks<'a>),
}

/// A dictionary that takes at most this part of the plain strings is good enough. Its codes are scanned some
/// sixty times as fast as blocks, which could be smaller still where strings recur in some order.
const GOOD_PART: usize = 4;

/// The strings in the encoding that takes the fewest bytes; but blocks, which have to be decompressed, have
/// to be worth it.
pub(crate) fn encode(strings: &[Option<&[u8]>], fixed: bool) -> Encoded {
    let raw = match fixed {
        true => string_raw::encode16(strings),
        false => string_raw::encode(strings),
    };
    let raw_bytes = raw.stored_bytes();
    let dictionary = string_dictionary::encode(strings, fixed, raw_bytes);
    let best = match dictionary {
        Some(dictionary) if dictionary.stored_bytes() <= raw_bytes / GOOD_PART => return dictionary,
        Some(dictionary) if dictionary.stored_bytes() <= raw_bytes => dictionary,
        _ => raw,
    };
    if fixed {
        return best;
    }
    let blocks = string_blocks::encode(strings);
    match is_worth(blocks.stored_bytes(), best.stored_bytes()) {
        true => blocks,
        false => best,
    }
}

impl<'a> Strings<'a> {
    /// The strings of a column that the directory describes.
    pub(crate) fn new(column: &'a [u8], entry: &Entry) -> Strings<'a> {
        let [_, first, second, third, fourth] = entry.parts.map(|part| Array::new(column, &part));
        let has_offsets = entry.kind == Kind::Bytes;
        match entry.encoding {
            Encoding::Dictionary => Strings::Dictionary(StringDictionary {
                codes: first,
                offsets: has_offsets.then_some(second),
                heap: third,
            }),
            Encoding::Blocks => Strings::Blocks(StringBlocks {
                lengths: first,
                first_rows: second,
                stored_ends: third,
                heap: fourth,
            }),
            _ => Strings::Raw(RawStrings {
                offsets: has_offsets.then_some(Delta {
                    deltas: first,
                    restarts: second,
                }),
                heap: third,
            }),
        }
    }

    /// One string. There must be such a row.
    pub(crate) fn get(&self, at: usize) -> Result<Cow<'a, [u8]>, &'static str> {
        match self {
            Strings::Raw(raw) => raw.get(at).map(Cow::Borrowed),
            Strings::Dictionary(dictionary) => dictionary.get(at).map(Cow::Borrowed),
            Strings::Blocks(blocks) => blocks.get(at).map(Cow::Owned),
        }
    }

    /// Each string of the rows `first..end`, in order. There must be such rows.
    pub(crate) fn each(
        &self,
        first: usize,
        end: usize,
        each: impl FnMut(usize, &[u8]),
    ) -> Result<(), &'static str> {
        match self {
            Strings::Raw(raw) => raw.each(first, end, each),
            Strings::Dictionary(dictionary) => dictionary.each(first, end, each),
            Strings::Blocks(blocks) => blocks.each(first, end, each),
        }
    }

    /// Whether the parts fit each other.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Strings::Raw(raw) => raw.check(),
            Strings::Dictionary(dictionary) => dictionary.check(),
            Strings::Blocks(blocks) => blocks.check(),
        }
    }
}
