//! The block cache: opened blocks in memory, within a budget.
//!
//! Sixteen shards, each behind a latch and with a sixteenth of the budget. Within a shard the CLOCK algorithm
//! evicts: a hand goes round the blocks, and the first one that was not used since the hand last passed it is
//! evicted. A block larger than a shard's budget is not cached.
//!
//! Source: Corbató, "A paging experiment with the Multics system", 1969.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use weft_ops::block::Block;
use weft_ops::mix64;

const PART_COUNT: usize = 16;

/// A file's number and an offset in it.
type Key = (u64, u64);

pub(crate) struct BlockCache {
    parts: Vec<Mutex<Part>>,
    part_bytes_max: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Part {
    places: HashMap<Key, usize>,
    slots: Vec<Option<Slot>>,
    empty: Vec<usize>,
    hand: usize,
    bytes: usize,
}

struct Slot {
    key: Key,
    block: Block,
    bytes: usize,
    used: bool,
}

impl BlockCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            parts: (0..PART_COUNT).map(|_| Mutex::default()).collect(),
            part_bytes_max: AtomicUsize::new(bytes_max / PART_COUNT),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn part(&self, (file, offset): Key) -> Option<&Mutex<Part>> {
        self.parts.get(mix64(file << 40 ^ offset) as usize % PART_COUNT)
    }

    pub(crate) fn get(&self, file: u64, offset: u64) -> Option<Block> {
        let key = (file, offset);
        let mut part = self.part(key)?.lock();
        let place = part.places.get(&key).copied();
        let slot = place.and_then(|place| part.slots.get_mut(place)?.as_mut());
        let found = slot.map(|slot| {
            slot.used = true;
            slot.block.clone()
        });
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    pub(crate) fn insert(&self, file: u64, offset: u64, block: &Block) {
        let key = (file, offset);
        let bytes = block.memory_bytes() + size_of::<Slot>() + 64;
        let Some(room) = self.part_bytes_max.load(Ordering::Relaxed).checked_sub(bytes) else {
            return;
        };
        let Some(part) = self.part(key) else {
            return;
        };
        let mut part = part.lock();
        if part.places.contains_key(&key) {
            return;
        }
        part.make_room(room);
        let slot = Some(Slot {
            key,
            block: block.clone(),
            bytes,
            used: false,
        });
        let place = match part.empty.pop() {
            Some(place) => place,
            None => {
                part.slots.push(None);
                part.slots.len() - 1
            }
        };
        if let Some(empty) = part.slots.get_mut(place) {
            *empty = slot;
        }
        part.places.insert(key, place);
        part.bytes += bytes;
    }

    /// Changes the budget; blocks beyond it go at once.
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        let part_bytes_max = bytes_max / PART_COUNT;
        let before = self.part_bytes_max.swap(part_bytes_max, Ordering::Relaxed);
        if part_bytes_max < before {
            for part in &self.parts {
                part.lock().make_room(part_bytes_max);
            }
        }
    }

    /// Drops the blocks of a file that is removed. Visits all slots.
    pub(crate) fn forget(&self, file: u64) {
        for part in &self.parts {
            let mut part = part.lock();
            for place in 0..part.slots.len() {
                if matches!(part.slots.get(place), Some(Some(slot)) if slot.key.0 == file) {
                    part.remove(place);
                }
            }
        }
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lock().bytes).sum()
    }

    /// Lookups that found their block, and those that did not.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        (
            self.hits.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed),
        )
    }
}

impl Part {
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let place = self.hand;
            self.hand = if place + 1 < self.slots.len() {
                place + 1
            } else {
                0
            };
            match self.slots.get_mut(place) {
                Some(Some(slot)) if slot.used => slot.used = false,
                Some(Some(_)) => self.remove(place),
                _ => {}
            }
        }
    }

    fn remove(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::take) {
            self.places.remove(&slot.key);
            self.bytes -= slot.bytes;
            self.empty.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ops::block::{BlockBuilder, BlockOptions};
    use weft_ops::key::{SeqNo, Stamp};

    fn block(bytes: usize) -> Block {
        let mut builder = BlockBuilder::new(BlockOptions::default());
        let value: Vec<u8> = (0..bytes).map(|i| weft_ops::mix64(i as u64) as u8).collect();
        builder.add(b"", b"key", Stamp::newest_at(SeqNo(1)), &value);
        Block::open(&builder.finish().unwrap().bytes).unwrap()
    }

    #[test]
    fn the_budget_is_kept_and_used() {
        let cache = BlockCache::new(16 * 10_000);
        let block = block(900);
        for offset in 0..1000 {
            cache.insert(1, offset, &block);
            assert!(cache.bytes() <= 16 * 10_000);
        }
        assert!(cache.bytes() > 16 * 8_000);
        let kept = (0..1000).filter(|&offset| cache.get(1, offset).is_some()).count();
        assert!((100..200).contains(&kept), "{kept}");
        cache.forget(1);
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn used_blocks_stay_cached() {
        let cache = BlockCache::new(16 * 10_000);
        let block = block(900);
        cache.insert(1, 0, &block);
        for offset in 1..1000 {
            assert!(cache.get(1, 0).is_some(), "{offset}");
            cache.insert(1, offset, &block);
        }
        let large = self::block(20_000);
        cache.insert(2, 0, &large);
        assert!(cache.get(2, 0).is_none());
    }
}
