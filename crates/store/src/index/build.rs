//! Building an index over rows that exist: CREATE INDEX, and loading a checkpoint.
//!
//! Entries are collected, sorted once and put into the tree in order, which finds every node in the cache and
//! leaves full ones behind. The sorted list also shows duplicates.

use std::cmp::Ordering;

use weft_ops::hash64;

use super::IndexData;
use crate::catalog::IndexDef;
use crate::memory::{Pin, SlotId};
use crate::table::TableCore;

const HEAD_BYTES: usize = 16;

/// A key and its slot, to be sorted by both. The first 16 bytes stand in the entry as two words, so that most
/// comparisons touch no other memory.
#[derive(PartialEq, Eq)]
struct Entry {
    head: [u64; 2],
    /// Key bytes after those.
    tail: Box<[u8]>,
    slot: SlotId,
    /// Key bytes in the head: tells padding from zeros.
    head_len: u8,
}

impl Entry {
    fn new(key: &[u8], slot: SlotId) -> Self {
        let (front, tail) = key.split_at(key.len().min(HEAD_BYTES));
        let mut head = [0u8; HEAD_BYTES];
        for (to, from) in head.iter_mut().zip(front) {
            *to = *from;
        }
        let both = u128::from_be_bytes(head);
        Entry {
            head: [(both >> 64) as u64, both as u64],
            tail: tail.into(),
            slot,
            head_len: front.len() as u8,
        }
    }

    fn compare_key(&self, other: &Entry) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.head_len.cmp(&other.head_len))
            .then_with(|| self.tail.cmp(&other.tail))
    }

    fn key_into(&self, key: &mut Vec<u8>) {
        key.clear();
        for word in self.head {
            key.extend_from_slice(&word.to_be_bytes());
        }
        key.truncate(usize::from(self.head_len));
        key.extend_from_slice(&self.tail);
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

/// An index over the live rows that the pin sees, or the slot of a row whose key another row has in a
/// unique index.
pub(crate) fn build(def: &IndexDef, core: &TableCore, pin: Pin<'_>) -> Result<IndexData, SlotId> {
    let index = IndexData::new(def, core.slots.memory());
    let layout = core.layout.as_ref();
    let (mut entries, mut with_null) = (Vec::new(), Vec::new());
    let mut key = Vec::new();
    core.each_live(pin, |slot, _, version| {
        index.key_of(layout, version.bytes(), &mut key);
        if let Some(hash) = index.hash_for(&key) {
            hash.add(hash64(&key), slot);
        }
        if index.ordered.is_some() || def.unique {
            let has_null = def.unique && index.has_null(layout, version.bytes());
            (if has_null { &mut with_null } else { &mut entries }).push(Entry::new(&key, slot));
        }
    });
    entries.sort_unstable();
    if def.unique {
        let twins = entries.windows(2).find_map(|pair| match pair {
            [one, other] if one.compare_key(other).is_eq() => Some(other.slot),
            _ => None,
        });
        if let Some(slot) = twins {
            return Err(slot);
        }
    }
    if let Some(ordered) = &index.ordered {
        if !with_null.is_empty() {
            entries.append(&mut with_null);
            entries.sort_unstable();
        }
        for entry in &entries {
            entry.key_into(&mut key);
            ordered.add(&key, entry.slot);
        }
    }
    Ok(index)
}
