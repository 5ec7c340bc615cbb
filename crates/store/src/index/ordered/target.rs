//! Positions in the order of entries, and keys as words.
//!
//! Entries are ordered by key bytes, then slot; a key that begins another one comes first. Keys are compared
//! eight bytes at a time, as big-endian words padded with zeros, and by length where the words agree.

use std::ops::Bound;

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = 8;

/// A place in the order: entries before it are smaller than this key and slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'k> {
    pub(super) key: &'k [u8],
    pub(super) slot: u64,
}

impl<'k> Target<'k> {
    /// Before all entries.
    pub(super) const FIRST: Target<'static> = Target { key: &[], slot: 0 };

    /// Before all entries of the key.
    pub(super) fn before(key: &'k [u8]) -> Self {
        Target { key, slot: 0 }
    }

    /// Behind all entries of the key: no slot has this number.
    pub(super) fn behind(key: &'k [u8]) -> Self {
        Target { key, slot: u64::MAX }
    }

    /// Where a range with this lower bound begins.
    pub(super) fn of_lower(bound: Bound<&'k [u8]>) -> Self {
        match bound {
            Bound::Included(key) => Target::before(key),
            Bound::Excluded(key) => Target::behind(key),
            Bound::Unbounded => Target::FIRST,
        }
    }

    /// Where a range with this upper bound ends; `None` behind everything.
    pub(super) fn of_upper(bound: Bound<&'k [u8]>) -> Option<Self> {
        match bound {
            Bound::Included(key) => Some(Target::behind(key)),
            Bound::Excluded(key) => Some(Target::before(key)),
            Bound::Unbounded => None,
        }
    }
}

/// The eight bytes of the key from `at` on, as a word; zeros stand for what is missing.
#[inline(always)]
pub(super) fn word_at(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    if rest.is_empty() {
        return 0;
    }
    match key.last_chunk() {
        // What precedes the rest is shifted out.
        Some(word) => u64::from_be_bytes(*word) << (8 * (WORD_BYTES - rest.len())),
        None => {
            let word = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            word << (8 * (WORD_BYTES - rest.len()))
        }
    }
}

/// Keeps a word's first `bytes` bytes, at most eight.
#[inline(always)]
pub(super) fn head_mask(bytes: usize) -> u64 {
    if bytes >= WORD_BYTES {
        u64::MAX
    } else {
        !(u64::MAX >> (8 * bytes))
    }
}

/// How many bytes two keys have in common from the beginning.
pub(super) fn common_len(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_padded() {
        let key: Vec<u8> = (1..=20).collect();
        for len in 0..=20 {
            for at in 0..=21 {
                let mut expected = [0; 8];
                for (to, from) in expected.iter_mut().zip(key[..len].iter().skip(at)) {
                    *to = *from;
                }
                assert_eq!(word_at(&key[..len], at), u64::from_be_bytes(expected));
            }
        }
        assert_eq!(
            (head_mask(0), head_mask(1), head_mask(8)),
            (0, 0xff << 56, u64::MAX)
        );
        assert_eq!(common_len(b"abcd", b"abx"), 2);
    }
}
