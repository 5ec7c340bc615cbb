//! Keys as the LSM orders them: user key ascending, then sequence number descending, then kind.
//!
//! A *stamp* is sequence number and kind in one word, `seqno << 8 | kind`, so that the newest entry of a user
//! key has the largest stamp. Stamps are compared as numbers, descending.

use std::fmt;

/// Place of a write in the LSM's one order. Ascending; the first write has 1. At most [`SeqNo::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct SeqNo(pub u64);

impl SeqNo {
    /// The largest: 56 bits.
    pub const MAX: Self = Self((1 << 56) - 1);
}

impl fmt::Display for SeqNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What an entry says about its key. The numbers stand in files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// The key is gone. The value is empty.
    Tombstone = 0,
    /// The key has this value.
    Value = 1,
    /// The key has a large value, which lies elsewhere; the entry's value says where.
    LargeValue = 2,
}

impl EntryKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Tombstone),
            1 => Some(Self::Value),
            2 => Some(Self::LargeValue),
            _ => None,
        }
    }
}

/// Sequence number and kind of an entry as one word; the kind is a known one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of an entry. Bits of `seqno` beyond [`SeqNo::MAX`] are lost.
    #[must_use]
    #[inline]
    pub const fn new(seqno: SeqNo, kind: EntryKind) -> Self {
        Self(seqno.0 << 8 | kind as u64)
    }

    /// From a word as stored; `None` if it names no kind.
    #[must_use]
    #[inline]
    pub const fn from_u64(word: u64) -> Option<Self> {
        // Only the kinds 0 to 2 exist.
        if word as u8 <= 2 { Some(Self(word)) } else { None }
    }

    /// The word as stored.
    #[must_use]
    #[inline]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The largest stamp with this sequence number: where a search for what a snapshot sees begins.
    #[must_use]
    #[inline]
    pub const fn newest_at(seqno: SeqNo) -> Self {
        Self(seqno.0 << 8 | EntryKind::LargeValue as u64)
    }

    /// The sequence number.
    #[must_use]
    #[inline]
    pub const fn seqno(self) -> SeqNo {
        SeqNo(self.0 >> 8)
    }

    /// The kind.
    #[must_use]
    #[inline]
    pub const fn kind(self) -> EntryKind {
        match self.0 as u8 {
            0 => EntryKind::Tombstone,
            1 => EntryKind::Value,
            _ => EntryKind::LargeValue,
        }
    }
}

/// The longest user key, in bytes.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// The longest value of an entry, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 30;

/// How many bytes two keys have in common at their beginning.
#[must_use]
#[inline]
pub fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let most = a.len().min(b.len());
    let (a, b) = (&a[..most], &b[..most]);
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (at, (x, y)) in words_a.iter().zip(words_b).enumerate() {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return 8 * at + difference.trailing_zeros() as usize / 8;
        }
    }
    let whole = most - most % 8;
    whole
        + a[whole..]
            .iter()
            .zip(&b[whole..])
            .take_while(|(x, y)| x == y)
            .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stamp_keeps_what_it_is_made_of() {
        for kind in [EntryKind::Tombstone, EntryKind::Value, EntryKind::LargeValue] {
            let stamp = Stamp::new(SeqNo(77), kind);
            assert_eq!((stamp.seqno(), stamp.kind()), (SeqNo(77), kind));
            assert_eq!(Stamp::from_u64(stamp.to_u64()), Some(stamp));
            assert!(stamp <= Stamp::newest_at(SeqNo(77)));
            assert_eq!(EntryKind::from_u8(kind as u8), Some(kind));
        }
        assert_eq!(Stamp::from_u64(3), None);
        assert_eq!(EntryKind::from_u8(3), None);
    }

    proptest! {
        #[test]
        fn shared_prefix_is_what_bytes_agree_on(a: Vec<u8>, b: Vec<u8>, cut in 0_usize..40) {
            let plain = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(shared_prefix(&a, &b), plain(&a, &b));
            let mut longer = a[..cut.min(a.len())].to_vec();
            longer.extend_from_slice(&b);
            prop_assert_eq!(shared_prefix(&a, &longer), plain(&a, &longer));
        }
    }
}
