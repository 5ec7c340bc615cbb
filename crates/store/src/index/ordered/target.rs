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
    /// The key's last eight bytes, or all of a shorter one, as a number.
    end: u64,
}

impl<'k> Target<'k> {
    /// Before all entries.
    pub(super) const FIRST: Target<'static> = Target {
        key: &[],
        slot: 0,
        end: 0,
    };

    #[inline(always)]
    pub(super) fn new(key: &'k [u8], slot: u64) -> Self {
        let end = match key.last_chunk() {
            Some(word) => u64::from_be_bytes(*word),
            None => key.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        Target { key, slot, end }
    }

    /// Before all entries of the key.
    #[inline(always)]
    pub(super) fn before(key: &'k [u8]) -> Self {
        Target::new(key, 0)
    }

    /// Before all entries of this target's key.
    #[inline(always)]
    pub(super) fn before_key(self) -> Self {
        Target { slot: 0, ..self }
    }

    /// After all entries of the key: no slot has this number.
    pub(super) fn behind(key: &'k [u8]) -> Self {
        Target::new(key, u64::MAX)
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

    /// The eight bytes of the key from `at` on, as a word; zeros stand for what is missing.
    #[inline(always)]
    pub(super) fn word_at(&self, at: usize) -> u64 {
        let Some(rest) = self.key.get(at..) else {
            return 0;
        };
        if let Some(word) = rest.first_chunk() {
            return u64::from_be_bytes(*word);
        }
        // What precedes the rest is shifted out.
        self.end.unbounded_shl((8 * (WORD_BYTES - rest.len())) as u32)
    }

    /// The four bytes of the key from `at` on.
    #[inline(always)]
    pub(super) fn head_at(&self, at: usize) -> u32 {
        (self.word_at(at) >> 32) as u32
    }
}

/// Keeps a word's first `bytes` bytes, fewer than eight.
#[inline(always)]
pub(super) fn head_mask(bytes: usize) -> u64 {
    !(u64::MAX >> (8 * (bytes % WORD_BYTES)))
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
                let target = Target::before(&key[..len]);
                assert_eq!(target.word_at(at), u64::from_be_bytes(expected));
            }
        }
        assert_eq!((head_mask(0), head_mask(1)), (0, 0xff << 56));
        assert_eq!(common_len(b"abcd", b"abx"), 2);
    }
}
