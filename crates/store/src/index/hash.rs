//! Hash index: 64 shards, each a latch over an open-addressing table of (hash, slot).
//!
//! The upper bits of the key's hash choose the shard, all bits the place in it. An entry keeps the hash and
//! not the key: a table grows without touching rows, and the key is checked against the row, which the
//! reader needs anyway. A shard's latch is held for one probe only.

use hashbrown::HashTable;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::memory::SlotId;

/// Slots found for one key. Almost always one.
pub(crate) type Candidates = SmallVec<[SlotId; 4]>;

const SHARD_BITS: u32 = 6;

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    slot: SlotId,
}

#[repr(align(64))]
struct Shard(RwLock<HashTable<Entry>>);

/// A multimap from key hashes to slots.
pub(crate) struct HashIndex {
    shards: Box<[Shard]>,
}

impl HashIndex {
    pub(crate) fn new() -> Self {
        HashIndex {
            shards: (0..1 << SHARD_BITS)
                .map(|_| Shard(RwLock::new(HashTable::new())))
                .collect(),
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> Option<&RwLock<HashTable<Entry>>> {
        // Not the top bits: the table inside takes its tags from those.
        self.shards
            .get((hash >> 32) as usize & ((1 << SHARD_BITS) - 1))
            .map(|shard| &shard.0)
    }

    pub(crate) fn add(&self, hash: u64, slot: SlotId) {
        if let Some(shard) = self.shard(hash) {
            shard
                .write()
                .entry(
                    hash,
                    |entry| entry.hash == hash && entry.slot == slot,
                    |entry| entry.hash,
                )
                .or_insert(Entry { hash, slot });
        }
    }

    pub(crate) fn remove(&self, hash: u64, slot: SlotId) {
        if let Some(shard) = self.shard(hash) {
            let mut table = shard.write();
            if let Ok(entry) = table.find_entry(hash, |entry| entry.hash == hash && entry.slot == slot) {
                entry.remove();
            }
        }
    }

    #[inline]
    pub(crate) fn candidates(&self, hash: u64, out: &mut Candidates) {
        if let Some(shard) = self.shard(hash) {
            let table = shard.read();
            out.extend(
                table
                    .iter_hash(hash)
                    .filter(|entry| entry.hash == hash)
                    .map(|entry| entry.slot),
            );
        }
    }

    /// The first slot with this hash: for hints.
    pub(crate) fn first_candidate(&self, hash: u64) -> Option<SlotId> {
        let table = self.shard(hash)?.read();
        let mut found = table.iter_hash(hash).filter(|entry| entry.hash == hash);
        found.next().map(|entry| entry.slot)
    }

    /// Entries in all shards.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.read().len()).sum()
    }

    /// Memory of the tables.
    pub(crate) fn size_bytes(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.0.read().allocation_size())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_a_set_of_pairs() {
        let index = HashIndex::new();
        for slot in 0..1_000 {
            index.add(slot / 2, SlotId(slot));
            index.add(slot / 2, SlotId(slot));
        }
        assert_eq!(index.len(), 1_000);
        let mut found = Candidates::new();
        index.candidates(250, &mut found);
        found.sort_unstable();
        assert_eq!(found.as_slice(), [SlotId(500), SlotId(501)]);
        index.remove(250, SlotId(500));
        index.remove(250, SlotId(500));
        index.remove(77_777, SlotId(1));
        found.clear();
        index.candidates(250, &mut found);
        assert_eq!(found.as_slice(), [SlotId(501)]);
        assert_eq!(index.len(), 999);
        assert!(index.size_bytes() > 0);
    }
}
