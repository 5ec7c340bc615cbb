//! Ordered index: a latch over a B-tree of (key, slot).
//!
//! The first 16 bytes of a key stand in the entry as two big-endian words, so keys of one or two columns
//! compare without touching other memory; the rest, if any, is a tail on the heap. A range read holds the
//! latch for a bounded number of entries ([`VISIT_MAX`]) and resumes after the last entry it saw, so
//! writers wait microseconds at most.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use parking_lot::RwLock;

use super::hash::Candidates;
use crate::memory::SlotId;

/// Entries looked at in one holding of the latch.
pub(crate) const VISIT_MAX: usize = 128;
const HEAD_BYTES: usize = 16;

/// A key and where a row with that key may be. Ordered by key bytes, then slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// First 16 key bytes, big endian, zero padded.
    head: [u64; 2],
    /// Key bytes after those.
    tail: Box<[u8]>,
    slot: SlotId,
    /// Key length, at most 17: tells padding from zeros.
    head_len: u8,
}

impl Entry {
    pub(crate) fn new(key: &[u8], slot: SlotId) -> Self {
        let mut head = [0u8; HEAD_BYTES];
        let split = key.len().min(HEAD_BYTES);
        let (front, tail) = key.split_at(split);
        for (to, from) in head.iter_mut().zip(front) {
            *to = *from;
        }
        let (high, low) = head.split_at(8);
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        Entry {
            head: [word(high), word(low)],
            tail: tail.into(),
            slot,
            head_len: key.len().min(HEAD_BYTES + 1) as u8,
        }
    }

    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    fn compare_key(&self, other: &Entry) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.head_len.cmp(&other.head_len))
            .then_with(|| self.tail.cmp(&other.tail))
    }

    /// The two entries have the same key.
    pub(crate) fn same_key(&self, other: &Entry) -> bool {
        self.head == other.head && self.head_len == other.head_len && self.tail == other.tail
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare_key(other).then_with(|| self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Where a range read starts and ends, in entries.
#[derive(Clone, Debug)]
pub(crate) struct EntryRange {
    lo: Bound<Entry>,
    hi: Bound<Entry>,
}

impl EntryRange {
    /// From bounds on key bytes. A shorter key sorts before every key that it begins.
    pub(crate) fn new(lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> Self {
        const FIRST: SlotId = SlotId(0);
        const LAST: SlotId = SlotId(u64::MAX);
        EntryRange {
            lo: match lo {
                Bound::Included(key) => Bound::Included(Entry::new(key, FIRST)),
                Bound::Excluded(key) => Bound::Excluded(Entry::new(key, LAST)),
                Bound::Unbounded => Bound::Unbounded,
            },
            hi: match hi {
                Bound::Included(key) => Bound::Included(Entry::new(key, LAST)),
                Bound::Excluded(key) => Bound::Excluded(Entry::new(key, FIRST)),
                Bound::Unbounded => Bound::Unbounded,
            },
        }
    }

    /// Exactly one key.
    pub(crate) fn point(key: &[u8]) -> Self {
        EntryRange::new(Bound::Included(key), Bound::Included(key))
    }

    /// Goes on behind an entry that has been seen.
    pub(crate) fn resume(&mut self, seen: Entry, reverse: bool) {
        let bound = Bound::Excluded(seen);
        if reverse {
            self.hi = bound;
        } else {
            self.lo = bound;
        }
    }

    /// `BTreeSet::range` refuses bounds that cross; such a range is empty here.
    fn is_empty(&self) -> bool {
        match (&self.lo, &self.hi) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lo), Bound::Included(hi)) => lo > hi,
            (Bound::Included(lo) | Bound::Excluded(lo), Bound::Included(hi) | Bound::Excluded(hi)) => {
                lo >= hi
            }
        }
    }
}

/// A sorted multimap from keys to slots.
pub(crate) struct OrderedIndex {
    entries: RwLock<BTreeSet<Entry>>,
}

impl OrderedIndex {
    pub(crate) fn new() -> Self {
        OrderedIndex {
            entries: RwLock::new(BTreeSet::new()),
        }
    }

    /// From entries in order: how an index over existing rows is built.
    pub(crate) fn from_sorted(entries: Vec<Entry>) -> Self {
        OrderedIndex {
            entries: RwLock::new(entries.into_iter().collect()),
        }
    }

    pub(crate) fn add(&self, key: &[u8], slot: SlotId) {
        let entry = Entry::new(key, slot);
        self.entries.write().insert(entry);
    }

    pub(crate) fn remove(&self, key: &[u8], slot: SlotId) {
        let entry = Entry::new(key, slot);
        self.entries.write().remove(&entry);
    }

    pub(crate) fn candidates(&self, key: &[u8], out: &mut Candidates) {
        let range = EntryRange::point(key);
        let entries = self.entries.read();
        out.extend(entries.range((range.lo, range.hi)).map(Entry::slot));
    }

    /// Shows up to [`VISIT_MAX`] entries of the range to `see`, under the latch, until it returns false.
    /// Returns the last entry shown when there may be more behind it.
    pub(crate) fn visit(
        &self,
        range: &EntryRange,
        reverse: bool,
        mut see: impl FnMut(&Entry) -> bool,
    ) -> Option<Entry> {
        if range.is_empty() {
            return None;
        }
        let entries = self.entries.read();
        let mut found = entries.range((range.lo.as_ref(), range.hi.as_ref()));
        let mut seen = 0;
        loop {
            let entry = if reverse { found.next_back() } else { found.next() }?;
            seen += 1;
            if !see(entry) || seen == VISIT_MAX {
                return Some(entry.clone());
            }
        }
    }

    /// Entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.read().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(index: &OrderedIndex, lo: Bound<&[u8]>, hi: Bound<&[u8]>, reverse: bool) -> Vec<SlotId> {
        let mut range = EntryRange::new(lo, hi);
        let mut out = Vec::new();
        while let Some(last) = index.visit(&range, reverse, |entry| {
            out.push(entry.slot());
            true
        }) {
            range.resume(last, reverse);
        }
        out
    }

    proptest! {
        #[test]
        fn entries_sort_as_key_bytes(
            mut keys in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..40), 0..60),
            lo in proptest::collection::vec(0u8..3, 0..20),
            hi in proptest::collection::vec(0u8..3, 0..20),
        ) {
            let index = OrderedIndex::new();
            for (slot, key) in keys.iter().enumerate() {
                index.add(key, SlotId(slot as u64));
            }
            let mut sorted: Vec<(Vec<u8>, SlotId)> =
                keys.drain(..).enumerate().map(|(slot, key)| (key, SlotId(slot as u64))).collect();
            sorted.sort();
            type Inside = fn(&[u8], &[u8]) -> bool;
            let lows: [(Bound<&[u8]>, Inside); 3] = [
                (Bound::Included(&lo), |key, lo| key >= lo),
                (Bound::Excluded(&lo), |key, lo| key > lo),
                (Bound::Unbounded, |_, _| true),
            ];
            let highs: [(Bound<&[u8]>, Inside); 3] = [
                (Bound::Included(&hi), |key, hi| key <= hi),
                (Bound::Excluded(&hi), |key, hi| key < hi),
                (Bound::Unbounded, |_, _| true),
            ];
            for (lo_bound, above) in lows {
                for (hi_bound, below) in highs {
                    let mut expected: Vec<SlotId> = sorted
                        .iter()
                        .filter(|(key, _)| above(key, &lo) && below(key, &hi))
                        .map(|(_, slot)| *slot)
                        .collect();
                    prop_assert_eq!(all(&index, lo_bound, hi_bound, false), expected.clone());
                    expected.reverse();
                    prop_assert_eq!(all(&index, lo_bound, hi_bound, true), expected);
                }
            }
        }
    }

    #[test]
    fn long_ranges_resume() {
        let index = OrderedIndex::new();
        for slot in 0..1_000u64 {
            index.add(&slot.to_be_bytes(), SlotId(slot));
        }
        let slots = all(&index, Bound::Unbounded, Bound::Unbounded, false);
        assert_eq!(slots, (0..1_000).map(SlotId).collect::<Vec<_>>());
        index.remove(&5u64.to_be_bytes(), SlotId(5));
        assert_eq!(index.len(), 999);
    }
}
