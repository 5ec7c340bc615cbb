//! A skiplist in an arena: one writer at a time, any number of readers without a latch.
//!
//! # Layout
//!
//! A node is one allocation of words, never moved and never freed before the whole list is:
//!
//! ```text
//! words ..-1  links to the next node on each level: level 0 is word -1, level 1 word -2, ...
//! word 0      key length (32 bits) | value length (32 bits)      <- where links lead to
//! word 1      stamp
//! then        key bytes, value bytes
//! ```
//!
//! So everything that a comparison needs is together. A search waits for memory at each node; while it
//! compares with the node to the right, the node that follows if the search descends is prefetched. Large
//! lists use huge pages.
//!
//! # Invariants
//!
//! 1. A node is complete before any link leads to it (links are stored with release, loaded with acquire),
//!    and afterwards only its links change.
//! 2. Each level is sorted by key, then stamp descending; each is a part of the level below.
//! 3. Only the holder of the writer's latch allocates or stores links.
//! 4. The arena's memory lives as long as the list.
//!
//! Source: Pugh, "Skip lists", 1990; LevelDB's memtable for one writer with many readers.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering as Memory};

use parking_lot::Mutex;
use weft_base::Prng;
use weft_base::memory::{HUGE_PAGE_BYTES, PageMemory, Pages, prefetch};
use weft_ops::key::Stamp;

const HEIGHT_MAX: usize = 14;
const HEADER_WORDS: usize = 2;
/// Chunks grow from the one to the other, so that a small list takes little.
const CHUNK_WORDS_MIN: usize = 512;
const CHUNK_WORDS_MAX: usize = HUGE_PAGE_BYTES / size_of::<Word>();

/// A node's first word. Nodes are reached through pointers that the list hands out.
type Word = u64;

/// Sorted entries of keys, stamps and values.
pub(crate) struct SkipList {
    /// A node of full height without an entry.
    head: NonNull<Word>,
    /// Levels in use.
    height: AtomicUsize,
    used_bytes: AtomicUsize,
    allocated_bytes: AtomicUsize,
    writer: Mutex<Writer>,
}

struct Writer {
    /// All chunks, as allocated: pointers into them stay valid because nobody borrows a chunk as a whole.
    chunks: Vec<Chunk>,
    /// The chunk being filled: its next free word, and how many are free.
    free: *mut Word,
    free_words: usize,
    chunk_words: usize,
    prng: Prng,
    pool: Arc<PagePool>,
}

/// Huge pages of freed lists, for the next one: the system would have to clear new ones.
pub(crate) struct PagePool {
    pages: Mutex<Vec<PageMemory>>,
    bytes_max: usize,
}

impl PagePool {
    /// A pool that keeps at most so many bytes.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self {
            pages: Mutex::new(Vec::new()),
            bytes_max,
        }
    }

    /// Bytes that wait to be used.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.lock().len() * HUGE_PAGE_BYTES
    }

    /// Used pages are not cleared. `None` if the system has none.
    fn take(&self) -> Option<PageMemory> {
        let kept = self.pages.lock().pop();
        kept.or_else(|| PageMemory::new(HUGE_PAGE_BYTES, Pages::Huge).ok())
    }

    fn release(&self, memory: PageMemory) {
        let mut pages = self.pages.lock();
        if (pages.len() + 1) * HUGE_PAGE_BYTES <= self.bytes_max {
            pages.push(memory);
        }
    }
}

enum Chunk {
    /// Start and length, as leaked by a box.
    Boxed(*mut Word, usize),
    Pages(PageMemory),
}

/// An entry of a list, or none. Valid as long as the list; whoever keeps one must keep the list.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef(*mut Word);

// SAFETY: nodes are immutable but for their links, which are atomic (invariant 1); allocation happens under
// the writer's latch (invariant 3).
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}
// SAFETY: a place is only looked at through the list that it belongs to, which is `Sync`.
unsafe impl Send for NodeRef {}

impl NodeRef {
    pub(crate) const NONE: Self = Self(std::ptr::null_mut());

    pub(crate) const fn is_some(self) -> bool {
        !self.0.is_null()
    }
}

impl Writer {
    /// Words that do not move; their contents are undefined, except in the first chunk, which is zeroed.
    fn allocate(&mut self, words: usize, allocated_bytes: &AtomicUsize) -> NonNull<Word> {
        // A large node gets a chunk of its own, to waste little.
        if words > self.chunk_words / 8 && words > HEADER_WORDS + HEIGHT_MAX {
            return self.chunk(words, allocated_bytes);
        }
        if words > self.free_words {
            self.free_words = self.chunk_words;
            self.free = self.chunk(self.free_words, allocated_bytes).as_ptr();
            self.chunk_words = (2 * self.chunk_words).min(CHUNK_WORDS_MAX);
        }
        let Some(start) = NonNull::new(self.free) else {
            return self.chunk(words, allocated_bytes);
        };
        // SAFETY: `free` begins `free_words` words of a chunk, and `words` is not more.
        self.free = unsafe { start.as_ptr().add(words) };
        self.free_words -= words;
        start
    }

    fn chunk(&mut self, words: usize, allocated_bytes: &AtomicUsize) -> NonNull<Word> {
        if words == CHUNK_WORDS_MAX
            && let Some(pages) = self.pool.take()
        {
            let start = pages.base().cast::<Word>();
            allocated_bytes.fetch_add(pages.size_bytes(), Memory::Relaxed);
            self.chunks.push(Chunk::Pages(pages));
            return start;
        }
        let chunk: &mut [Word] = Box::leak(vec![0; words].into_boxed_slice());
        allocated_bytes.fetch_add(size_of_val(chunk), Memory::Relaxed);
        let start = NonNull::from(chunk).cast::<Word>();
        self.chunks.push(Chunk::Boxed(start.as_ptr(), words));
        start
    }

    /// Each level holds a quarter of the one below.
    fn height(&mut self) -> usize {
        let zeros = self.prng.next_u64().trailing_zeros() as usize / 2;
        (1 + zeros).min(HEIGHT_MAX)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            let (start, words) = match chunk {
                Chunk::Boxed(start, words) => (start, words),
                Chunk::Pages(memory) => {
                    self.pool.release(memory);
                    continue;
                }
            };
            let chunk = std::ptr::slice_from_raw_parts_mut(start, words);
            // SAFETY: `chunk` leaked this box, and the list that pointed into it is being dropped.
            drop(unsafe { Box::from_raw(chunk) });
        }
    }
}

#[inline(always)]
fn compare(key: &[u8], stamp: Stamp, other_key: &[u8], other_stamp: Stamp) -> Ordering {
    compare_keys(key, other_key).then(other_stamp.cmp(&stamp))
}

/// Bytewise comparison, eight bytes at a time, without a function call.
#[inline(always)]
fn compare_keys(a: &[u8], b: &[u8]) -> Ordering {
    let most = a.len().min(b.len());
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    };
    let mut at = 0;
    while at + 8 <= most {
        let (x, y) = (word(a, at), word(b, at));
        if x != y {
            return x.cmp(&y);
        }
        at += 8;
    }
    if at < most {
        if most < 8 {
            return a.cmp(b);
        }
        // What is left, with bytes before it that are equal.
        let (x, y) = (word(a, most - 8), word(b, most - 8));
        if x != y {
            return x.cmp(&y);
        }
    }
    a.len().cmp(&b.len())
}

impl SkipList {
    pub(crate) fn new(seed: u64, pool: Arc<PagePool>) -> Self {
        let allocated_bytes = AtomicUsize::new(0);
        let mut writer = Writer {
            chunks: Vec::new(),
            free: std::ptr::null_mut(),
            free_words: 0,
            chunk_words: CHUNK_WORDS_MIN,
            prng: Prng::new(seed),
            pool,
        };
        let head = writer.allocate(HEADER_WORDS + HEIGHT_MAX, &allocated_bytes);
        // SAFETY: the words of the links lie before the node, within the same allocation.
        let head = unsafe { head.add(HEIGHT_MAX) };
        Self {
            head,
            height: AtomicUsize::new(1),
            used_bytes: AtomicUsize::new(0),
            allocated_bytes,
            writer: Mutex::new(writer),
        }
    }

    /// Memory that entries use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Memory::Relaxed)
    }

    /// Memory that the list has taken.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Memory::Relaxed)
    }

    #[inline(always)]
    fn link(&self, node: NonNull<Word>, level: usize) -> &AtomicPtr<Word> {
        // SAFETY: every node has been allocated with its links, of which `level` is one: callers ask for
        // levels below the height of a node that they reached on that level, and the head has all. Words
        // and pointers have the same size and alignment, a link is only ever accessed as an atomic pointer,
        // and the memory lives as long as the list (invariant 4).
        unsafe { &*node.as_ptr().sub(1 + level).cast::<AtomicPtr<Word>>() }
    }

    #[inline(always)]
    fn next(&self, node: NonNull<Word>, level: usize) -> Option<NonNull<Word>> {
        NonNull::new(self.link(node, level).load(Memory::Acquire))
    }

    #[inline(always)]
    fn entry(&self, node: NonNull<Word>) -> (&[u8], Stamp, &[u8]) {
        // SAFETY: the node was complete before it was linked (invariant 1); it has two words of header and
        // then the bytes whose lengths are in its first word.
        unsafe {
            let word = node.as_ptr();
            let lengths = *word;
            let (key_bytes, value_bytes) = ((lengths >> 32) as usize, lengths as u32 as usize);
            let bytes = word.add(HEADER_WORDS).cast::<u8>();
            (
                std::slice::from_raw_parts(bytes, key_bytes),
                Stamp::from_u64(*word.add(1)).unwrap_or(Stamp::newest_at(weft_ops::key::SeqNo(0))),
                std::slice::from_raw_parts(bytes.add(key_bytes), value_bytes),
            )
        }
    }

    /// Adds an entry. Waits for another writer.
    pub(crate) fn insert(&self, key: &[u8], stamp: Stamp, value: &[u8]) {
        let mut writer = self.writer.lock();
        let height = writer.height();
        let mut before = [self.head; HEIGHT_MAX];
        let in_use = self.height.load(Memory::Relaxed);
        self.descend(key, stamp, in_use, |level, node| {
            if let Some(place) = before.get_mut(level) {
                *place = node;
            }
        });
        let bytes = key.len() + value.len();
        let words = HEADER_WORDS + height + bytes.div_ceil(size_of::<Word>());
        let new = writer.allocate(words, &self.allocated_bytes);
        // SAFETY: the words of the links lie before the node, within the same allocation.
        let new = unsafe { new.add(height) };
        self.used_bytes
            .fetch_add(words * size_of::<Word>(), Memory::Relaxed);
        // SAFETY: `new` has `words` words of its own, which hold header, links and bytes; nobody else knows
        // of it.
        unsafe {
            let word = new.as_ptr();
            *word = (key.len() as u64) << 32 | value.len() as u64;
            *word.add(1) = stamp.to_u64();
            let target = word.add(HEADER_WORDS).cast::<u8>();
            std::ptr::copy_nonoverlapping(key.as_ptr(), target, key.len());
            std::ptr::copy_nonoverlapping(value.as_ptr(), target.add(key.len()), value.len());
        }
        for (level, before) in before.iter().enumerate().take(height) {
            let next = self.link(*before, level).load(Memory::Relaxed);
            self.link(new, level).store(next, Memory::Relaxed);
        }
        if height > in_use {
            self.height.store(height, Memory::Relaxed);
        }
        for (level, before) in before.iter().enumerate().take(height) {
            self.link(*before, level).store(new.as_ptr(), Memory::Release);
        }
    }

    /// The last node before the target, or the head.
    #[inline]
    fn before(&self, key: &[u8], stamp: Stamp) -> NonNull<Word> {
        self.descend(key, stamp, self.height.load(Memory::Relaxed), |_, _| {})
            .0
    }

    /// Searches from level `height - 1` down; reports the last node before the target on each level, and
    /// returns that of level 0 with its successor, which was seen not to be before the target. Reading the
    /// successor again would be wrong: a writer may have inserted a newer entry of the same key in between.
    #[inline(always)]
    fn descend(
        &self,
        key: &[u8],
        stamp: Stamp,
        height: usize,
        mut visit: impl FnMut(usize, NonNull<Word>),
    ) -> (NonNull<Word>, Option<NonNull<Word>>) {
        let mut node = self.head;
        // The node that was found not to be before the target, one level up.
        let mut behind = None;
        let mut last = None;
        for level in (0..height).rev() {
            last = None;
            while let Some(next) = self.next(node, level) {
                if level > 0 {
                    prefetch(self.link(node, level - 1).load(Memory::Relaxed));
                }
                if Some(next) == behind {
                    last = behind;
                    break;
                }
                let (next_key, next_stamp, _) = self.entry(next);
                if compare(next_key, next_stamp, key, stamp) != Ordering::Less {
                    behind = Some(next);
                    last = behind;
                    break;
                }
                node = next;
            }
            visit(level, node);
        }
        (node, last)
    }

    fn place(&self, node: Option<NonNull<Word>>) -> NodeRef {
        match node {
            Some(node) if node != self.head => NodeRef(node.as_ptr()),
            _ => NodeRef::NONE,
        }
    }

    /// The first entry that does not stand before (`key`, `stamp`).
    pub(crate) fn seek(&self, key: &[u8], stamp: Stamp) -> NodeRef {
        let height = self.height.load(Memory::Relaxed);
        self.place(self.descend(key, stamp, height, |_, _| {}).1)
    }

    /// The last entry that stands before (`key`, `stamp`).
    pub(crate) fn seek_before(&self, key: &[u8], stamp: Stamp) -> NodeRef {
        self.place(Some(self.before(key, stamp)))
    }

    /// The first entry.
    pub(crate) fn first(&self) -> NodeRef {
        self.place(self.next(self.head, 0))
    }

    /// The last entry.
    pub(crate) fn last(&self) -> NodeRef {
        let mut node = self.head;
        for level in (0..self.height.load(Memory::Relaxed)).rev() {
            while let Some(next) = self.next(node, level) {
                node = next;
            }
        }
        self.place(Some(node))
    }

    /// The entry behind a place of this list.
    pub(crate) fn after(&self, place: NodeRef) -> NodeRef {
        self.place(NonNull::new(place.0).and_then(|node| self.next(node, 0)))
    }

    /// What stands at a place of this list: key, stamp, value.
    pub(crate) fn at(&self, place: NodeRef) -> Option<(&[u8], Stamp, &[u8])> {
        NonNull::new(place.0).map(|node| self.entry(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use weft_ops::key::{EntryKind, SeqNo};

    fn pool() -> Arc<PagePool> {
        Arc::new(PagePool::new(8 << 20))
    }

    /// Pages with another list's entries in them serve as well as fresh ones.
    #[test]
    fn used_pages_are_reused() {
        let pool = pool();
        for round in 0..3_u64 {
            let list = SkipList::new(round, Arc::clone(&pool));
            for i in 1..=40_000_u64 {
                list.insert(
                    &weft_ops::mix64(i + round).to_be_bytes(),
                    stamp(i),
                    &[round as u8; 100],
                );
            }
            let (mut place, mut count, mut last) = (list.first(), 0, 0);
            while let Some((key, _, value)) = list.at(place) {
                let key = u64::from_be_bytes(key.try_into().unwrap());
                assert!(key > last && value == [round as u8; 100]);
                (last, count, place) = (key, count + 1, list.after(place));
            }
            assert_eq!(count, 40_000);
            drop(list);
            assert!((2 << 20..=8 << 20).contains(&pool.bytes()));
        }
    }

    fn stamp(seqno: u64) -> Stamp {
        Stamp::new(SeqNo(seqno), EntryKind::Value)
    }

    proptest! {
        #[test]
        fn the_list_is_an_ordered_map(
            keys in prop::collection::vec(
                (prop::collection::vec(0_u8..4, 0..20), prop::collection::vec(any::<u8>(), 0..30)),
                0..200,
            ),
            target in prop::collection::vec(0_u8..4, 0..20),
        ) {
            let list = SkipList::new(1, pool());
            let mut model = BTreeMap::new();
            for (i, (key, value)) in keys.iter().enumerate() {
                list.insert(key, stamp(i as u64 + 1), value);
                model.insert((key.clone(), u64::MAX - stamp(i as u64 + 1).to_u64()), value.clone());
            }
            let mut place = list.first();
            for ((key, _), value) in &model {
                let (k, _, v) = list.at(place).unwrap();
                prop_assert_eq!((k, v), (key.as_slice(), value.as_slice()));
                place = list.after(place);
            }
            prop_assert!(!place.is_some());
            let shown = |place| list.at(place).map(|(k, s, _)| (k.to_vec(), u64::MAX - s.to_u64()));
            prop_assert_eq!(shown(list.last()), model.keys().next_back().cloned());
            let bound = (target.clone(), u64::MAX - stamp(100).to_u64());
            let behind = model.range(bound.clone()..).next().map(|entry| entry.0.clone());
            prop_assert_eq!(shown(list.seek(&target, stamp(100))), behind);
            let before = model.range(..bound).next_back().map(|entry| entry.0.clone());
            prop_assert_eq!(shown(list.seek_before(&target, stamp(100))), before);
        }

        #[test]
        fn keys_compare_bytewise(
            a in prop::collection::vec(0_u8..3, 0..30),
            b in prop::collection::vec(0_u8..3, 0..30),
        ) {
            prop_assert_eq!(compare_keys(&a, &b), a.cmp(&b));
        }
    }

    /// Readers see sorted, whole entries while a writer works, and never fewer than before.
    #[test]
    fn readers_need_no_latch() {
        let list = SkipList::new(2, pool());
        let done = AtomicBool::new(false);
        let written = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Memory::Acquire) {
                        let least = written.load(Memory::Acquire);
                        let (mut count, mut last) = (0, None);
                        let mut place = list.first();
                        while let Some((key, stamp, value)) = list.at(place) {
                            assert_eq!(value, stamp.seqno().0.to_le_bytes());
                            assert!(last.is_none_or(|last: Vec<u8>| last.as_slice() < key));
                            last = Some(key.to_vec());
                            count += 1;
                            place = list.after(place);
                        }
                        assert!(count >= least, "{count} of {least}");
                    }
                });
            }
            for i in 1..=20_000_u64 {
                let key = weft_ops::mix64(i).to_be_bytes();
                list.insert(&key, stamp(i), &i.to_le_bytes());
                written.store(i, Memory::Release);
            }
            done.store(true, Memory::Release);
        });
    }

    #[test]
    fn long_values_fit() {
        let list = SkipList::new(3, pool());
        for i in 0..20_u64 {
            list.insert(
                &i.to_be_bytes(),
                stamp(i + 1),
                &vec![i as u8; 300_000 * (i as usize % 3)],
            );
        }
        let mut place = list.first();
        for i in 0..20_u64 {
            let (_, _, value) = list.at(place).unwrap();
            assert!(value.len() == 300_000 * (i as usize % 3) && value.iter().all(|&b| b == i as u8));
            place = list.after(place);
        }
        assert!(list.allocated_bytes() > 18 * 300_000);
    }

    /// A reader at a moment never gets what was written after it, however close behind it that comes.
    #[test]
    fn a_search_never_finds_entries_newer_than_its_snapshot() {
        let list = SkipList::new(1, pool());
        let visible = AtomicU64::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Acquire) {
                    let moment = visible.load(std::sync::atomic::Ordering::Acquire);
                    let place = list.seek(b"key", Stamp::newest_at(SeqNo(moment)));
                    let found = list.at(place).map_or(0, |(_, stamp, _)| stamp.seqno().0);
                    if moment != found {
                        done.store(true, std::sync::atomic::Ordering::Release);
                    }
                    assert_eq!(moment, found);
                }
            });
            for seqno in 1..300_000 {
                list.insert(b"key", Stamp::new(SeqNo(seqno), EntryKind::Value), b"");
                visible.store(seqno, std::sync::atomic::Ordering::Release);
                if done.load(std::sync::atomic::Ordering::Acquire) {
                    break;
                }
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
    }
}
