//! One node: ten cache lines of atomic words, with a version that readers check.
//!
//! ```text
//!   line 0      version | meta | first word of the prefix | first heads
//!   line 0-1    heads: four key bytes each, from where the prefix ends, ascending
//!   line 2-5    words: in a leaf the slot and the length code, above it the child; then two links
//!   line 5-8    rests: what of the key does not fit into the head
//!   line 8-9    the prefix's further words
//! ```
//!
//! The prefix is what all keys of the node have in common, up to 72 bytes; so four bytes more tell its keys
//! apart as a rule, and a search looks at two lines and a word. With heads of eight bytes it was four lines
//! and a word: a leaf's lines come from far, and it is their number that a group of descents waits for. A
//! leaf's links are its right and left neighbours; above the leaves the first link is the child left of all
//! separators.
//!
//! What follows prefix and head, by length: nothing; up to eight bytes in `rests` (seven and their number in
//! a separator); else the whole key in a block (`pool.rs`) that `rests` leads to. Separators with a slot
//! always have a block.
//!
//! Invariants:
//! 1. The version is odd while a writer changes the node, and never the same again after. Whoever read
//!    something and then finds the version that he found before has read what belongs together.
//! 2. A pointer, a level or a length is used only after such a look: until then it may be torn.
//! 3. A node's memory is a node as long as the index lives, and so is a block's; so following a pointer
//!    that was right a moment ago is harmless.
//!
//! Sources: optimistic lock coupling, Leis et al., "The ART of practical synchronization" (2016); key heads
//! and prefixes, Graefe and Larson, "B-tree indexes and CPU caches" (2001).

use std::cmp::Ordering as Order;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use weft_base::memory::{LINE_BYTES, prefetch_bytes};

use super::pool::{BLOCK_ALIGN, Block};
use super::target::{Target, WORD_BYTES, head_mask, word_at};

/// Entries of a node.
pub(super) const ENTRIES_MAX: usize = 26;
/// A node with fewer is joined with a neighbour, or evened out.
pub(super) const ENTRIES_MIN: usize = 7;
/// How far each step of a search among so many goes.
const SEARCH_HALVES: [usize; 6] = search_halves();
const PREFIX_WORDS_MORE: usize = 8;
/// Bytes of the longest prefix.
pub(super) const PREFIX_MAX: usize = (1 + PREFIX_WORDS_MORE) * WORD_BYTES;

/// The unused head of an unused entry: no search counts it.
const UNUSED: u32 = u32::MAX;
const HEAD_BYTES: usize = size_of::<u32>();
const SLOT_BITS: u32 = 40;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// Key bytes behind the prefix that an entry of a leaf holds without a block.
const LEAF_TAIL_MAX: usize = HEAD_BYTES + WORD_BYTES;
/// The same for a separator.
const SEPARATOR_TAIL_MAX: usize = LEAF_TAIL_MAX - 1;
/// The length code of keys that have a block.
const CODE_BLOCK: usize = LEAF_TAIL_MAX + 1;
/// The bits of a separator's rest that hold its length plus one: 0 in the address of a block.
const LEN_MASK: usize = BLOCK_ALIGN - 1;

const _: () = assert!(SEPARATOR_TAIL_MAX < LEN_MASK && LEN_MASK <= 0xff);

const fn search_halves() -> [usize; 6] {
    let (mut halves, mut left, mut step) = ([1; 6], ENTRIES_MAX, 0);
    while left > 1 {
        halves[step] = left / 2;
        left -= left / 2;
        step += 1;
    }
    assert!(step == 5);
    halves
}

#[repr(C, align(64))]
pub(super) struct Node {
    version: AtomicU64,
    meta: AtomicU64,
    prefix: AtomicU64,
    heads: [AtomicU32; ENTRIES_MAX],
    words: [AtomicPtr<Node>; ENTRIES_MAX],
    links: [AtomicPtr<Node>; 2],
    rests: [AtomicPtr<AtomicU64>; ENTRIES_MAX],
    prefix_more: [AtomicU64; PREFIX_WORDS_MORE],
}

const _: () = assert!(size_of::<Node>() == 10 * LINE_BYTES && size_of::<usize>() == 8);
/// What a search touches, from the beginning; and with the words.
const SEARCH_BYTES: usize = 2 * LINE_BYTES;
const SEARCH_AND_WORDS_BYTES: usize = 6 * LINE_BYTES;

/// What a node says about itself, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) count: u8,
    pub(super) prefix_len: u8,
    /// 0 for leaves.
    pub(super) level: u8,
    /// Where the last entry was added: runs of ascending keys are split at their end.
    pub(super) last_added: u8,
    /// Entries with the last key may go on in the right neighbour.
    pub(super) continues: bool,
}

impl Meta {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        let [count, prefix_len, level, last_added, continues, ..] = word.to_le_bytes();
        Meta {
            count: count.min(ENTRIES_MAX as u8),
            prefix_len: prefix_len.min(PREFIX_MAX as u8),
            level,
            last_added,
            continues: continues != 0,
        }
    }

    fn to_word(self) -> u64 {
        u64::from_le_bytes([
            self.count,
            self.prefix_len,
            self.level,
            self.last_added,
            u8::from(self.continues),
            0,
            0,
            0,
        ])
    }

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        usize::from(self.count)
    }

    #[inline(always)]
    pub(super) fn prefix_len(self) -> usize {
        usize::from(self.prefix_len)
    }
}

/// The node changed while it was looked at: start again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changed;

/// What a node's latch is worth to a reader: the version that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

/// Where a target stands in a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Entries before the target.
    pub(super) at: usize,
    /// The target's key begins with the node's prefix.
    pub(super) has_prefix: bool,
}

impl Node {
    /// What a descent fetches of a node.
    pub(super) const FETCH_BYTES: usize = SEARCH_AND_WORDS_BYTES;

    // --- the version ---

    /// The version, once no writer is at work.
    #[inline(always)]
    pub(super) fn read(&self) -> Version {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 == 0 {
            Version(version)
        } else {
            self.wait()
        }
    }

    /// The version, unless a writer is at work.
    #[inline(always)]
    pub(super) fn read_unlocked(&self) -> Result<Version, Changed> {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 == 0 {
            Ok(Version(version))
        } else {
            Err(Changed)
        }
    }

    #[cold]
    fn wait(&self) -> Version {
        for turn in 0u32.. {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                return Version(version);
            }
            // The writer may have lost its core.
            if turn.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        Version(0)
    }

    /// Nothing has changed since.
    #[inline(always)]
    pub(super) fn check(&self, version: Version) -> Result<(), Changed> {
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) == version.0 {
            Ok(())
        } else {
            Err(Changed)
        }
    }

    /// Takes the latch if nothing has changed since.
    #[inline]
    pub(super) fn lock(&self, version: Version) -> Result<Locked<'_>, Changed> {
        let locked = version.0 | 1;
        self.version
            .compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| Changed)?;
        // Who sees one of the stores that follow must see the odd version as well.
        fence(Ordering::Release);
        Ok(Locked { node: self })
    }

    /// Takes the latch, waiting for it.
    pub(super) fn lock_now(&self) -> Locked<'_> {
        loop {
            if let Ok(locked) = self.lock(self.read()) {
                return locked;
            }
        }
    }

    // --- looking ---

    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        Meta::from_word(self.meta.load(Ordering::Relaxed))
    }

    /// A leaf's neighbour. Good only if the version is still the same.
    #[inline(always)]
    pub(super) fn neighbour(&self, side: Side) -> *mut Node {
        let [right, left] = &self.links;
        let link = if side == Side::Right { right } else { left };
        link.load(Ordering::Relaxed)
    }

    /// The child right of `separators` separators. Good only if the version is still the same.
    #[inline(always)]
    pub(super) fn child(&self, separators: usize) -> *mut Node {
        let [first, _] = &self.links;
        let link = separators.checked_sub(1).and_then(|at| self.words.get(at));
        link.unwrap_or(first).load(Ordering::Relaxed)
    }

    /// The slot of a leaf's entry.
    #[inline(always)]
    pub(super) fn slot(&self, at: usize) -> u64 {
        self.word(at).addr() as u64 & SLOT_MASK
    }

    /// The slot of an entry: in a leaf the row's, above it the separator's. A separator's is good only under
    /// the latch.
    pub(super) fn entry_slot(&self, at: usize, level: u8) -> u64 {
        if level == 0 {
            return self.slot(at);
        }
        let block = self
            .block(at, level)
            .and_then(|block| Block::from_raw(block.as_ptr()));
        block.map_or(0, |block| block.slot())
    }

    #[inline(always)]
    fn word(&self, at: usize) -> *mut Node {
        self.words
            .get(at)
            .map_or(ptr::null_mut(), |word| word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn rest(&self, at: usize) -> *mut AtomicU64 {
        self.rests
            .get(at)
            .map_or(ptr::null_mut(), |rest| rest.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn head(&self, at: usize) -> u32 {
        self.heads
            .get(at)
            .map_or(UNUSED, |head| head.load(Ordering::Relaxed))
    }

    /// How an entry's key goes on behind prefix and head.
    #[inline(always)]
    fn tail(&self, at: usize, level: u8) -> Tail {
        if level > 0 {
            let rest = self.rest(at);
            return match rest.addr() & LEN_MASK {
                0 => Tail::Block(rest),
                len => Tail::Here {
                    len: len - 1,
                    word: rest.addr() as u64 & !0xff,
                },
            };
        }
        match self.word(at).addr() >> SLOT_BITS {
            // The rests lie lines away: they are looked at only if there is one.
            len @ 0..=HEAD_BYTES => Tail::Here { len, word: 0 },
            CODE_BLOCK => Tail::Block(self.rest(at)),
            len => Tail::Here {
                len,
                word: self.rest(at).addr() as u64,
            },
        }
    }

    /// The block of an entry, if it has one. Good only if the version is still the same.
    pub(super) fn block(&self, at: usize, level: u8) -> Option<NonNull<AtomicU64>> {
        match self.tail(at, level) {
            Tail::Block(block) => NonNull::new(block),
            Tail::Here { .. } => None,
        }
    }

    /// Compares the target's key with the prefix.
    #[inline(always)]
    fn compare_prefix(&self, key: &[u8], prefix_len: usize) -> Order {
        let first = head_mask(prefix_len);
        let (wanted, prefix) = (word_at(key, 0) & first, self.prefix.load(Ordering::Relaxed));
        if wanted != prefix {
            return wanted.cmp(&prefix);
        }
        if prefix_len > WORD_BYTES {
            for (number, word) in self.prefix_more.iter().enumerate() {
                let at = (number + 1) * WORD_BYTES;
                let Some(left) = prefix_len.checked_sub(at).filter(|left| *left > 0) else {
                    break;
                };
                let (wanted, prefix) = (word_at(key, at) & head_mask(left), word.load(Ordering::Relaxed));
                if wanted != prefix {
                    return wanted.cmp(&prefix);
                }
            }
        }
        if key.len() < prefix_len {
            Order::Less
        } else {
            Order::Equal
        }
    }

    /// How many heads are smaller: a binary search without branches, for which one is the first that is not
    /// is anybody's guess. Unused heads are never smaller.
    #[inline(always)]
    fn heads_below(&self, head: u32) -> usize {
        let mut below = 0;
        for half in SEARCH_HALVES {
            let is_below = self.head(below + half - 1) < head;
            below = std::hint::select_unpredictable(is_below, below + half, below);
        }
        below
    }

    /// How many entries are below the target, or not above it if `through`.
    #[inline(always)]
    pub(super) fn search(
        &self,
        target: Target<'_>,
        through: bool,
        version: Version,
    ) -> Result<Found, Changed> {
        let meta = self.meta();
        match self.compare_prefix(target.key, meta.prefix_len()) {
            Order::Equal => {}
            order => {
                return Ok(Found {
                    at: if order == Order::Less { 0 } else { meta.count() },
                    has_prefix: false,
                });
            }
        }
        let head = head_at(target.key, meta.prefix_len());
        let at = self.heads_below(head).min(meta.count());
        if at == meta.count() || self.head(at) != head {
            return Ok(Found { at, has_prefix: true });
        }
        let at = self.search_equal_heads(target, through, version, at, meta)?;
        Ok(Found { at, has_prefix: true })
    }

    /// [`Node::search`] from the first entry on whose head is the target's.
    #[inline]
    fn search_equal_heads(
        &self,
        target: Target<'_>,
        through: bool,
        version: Version,
        first: usize,
        meta: Meta,
    ) -> Result<usize, Changed> {
        let head = self.head(first);
        let mut end = first + 1;
        while end < meta.count() && self.head(end) == head {
            end += 1;
        }
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low.midpoint(high);
            let order = self.compare(middle, target, version, meta)?;
            if order == Order::Less || through && order == Order::Equal {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Compares an entry with a target whose key has the same prefix and head.
    #[inline]
    fn compare(&self, at: usize, target: Target<'_>, version: Version, meta: Meta) -> Result<Order, Changed> {
        let behind = meta.prefix_len() + HEAD_BYTES;
        match self.tail(at, meta.level) {
            Tail::Here { len, word } => {
                let target_len = (target.key.len() - meta.prefix_len().min(target.key.len())).min(CODE_BLOCK);
                let slot = if meta.level == 0 { self.slot(at) } else { 0 };
                let order = word.cmp(&word_at(target.key, behind));
                Ok(order.then(len.cmp(&target_len)).then(slot.cmp(&target.slot)))
            }
            Tail::Block(block) => {
                // Before the pointer is followed, and before the length is.
                self.check(version)?;
                let block = Block::from_raw(block).ok_or(Changed)?;
                let len = block.len();
                self.check(version)?;
                let slot = if meta.level == 0 {
                    self.slot(at)
                } else {
                    block.slot()
                };
                let order = block.compare_key(len, target.key, behind);
                Ok(order.then(slot.cmp(&target.slot)))
            }
        }
    }

    /// The entry has exactly this key.
    #[inline]
    pub(super) fn has_key(&self, at: usize, key: &[u8], version: Version) -> Result<bool, Changed> {
        race_point();
        let meta = self.meta();
        if at >= meta.count() || self.head(at) != head_at(key, meta.prefix_len()) {
            return Ok(false);
        }
        let target = Target {
            key,
            slot: self.slot(at),
        };
        Ok(self.compare(at, target, version, meta)? == Order::Equal)
    }

    /// Appends an entry's whole key.
    pub(super) fn key_into(&self, at: usize, version: Version, out: &mut Vec<u8>) -> Result<(), Changed> {
        race_point();
        let meta = self.meta();
        match self.tail(at, meta.level) {
            Tail::Block(block) => {
                self.check(version)?;
                let block = Block::from_raw(block).ok_or(Changed)?;
                let len = block.len();
                self.check(version)?;
                block.key_into(len, out);
            }
            Tail::Here { len, word } => {
                let start = out.len();
                let prefix_words = std::iter::once(&self.prefix).chain(&self.prefix_more);
                for word in prefix_words.take(meta.prefix_len().div_ceil(WORD_BYTES)) {
                    out.extend_from_slice(&word.load(Ordering::Relaxed).to_be_bytes());
                }
                out.truncate(start + meta.prefix_len());
                out.extend_from_slice(&self.head(at).to_be_bytes());
                out.extend_from_slice(&word.to_be_bytes());
                out.truncate(start + meta.prefix_len() + len.min(LEAF_TAIL_MAX));
            }
        }
        Ok(())
    }

    /// Fetches what a search of the node touches, so that its lines come together.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        prefetch_bytes(self, Self::FETCH_BYTES);
    }

    /// Fetches what a walk along the leaves touches first.
    #[inline(always)]
    pub(super) fn fetch_neighbour(node: *const Node) {
        if !node.is_null() {
            prefetch_bytes(node, SEARCH_BYTES);
        }
    }
}

/// The four bytes of the key from `at` on.
#[inline(always)]
fn head_at(key: &[u8], at: usize) -> u32 {
    (word_at(key, at) >> 32) as u32
}

/// In a test that asked for it, now and then lets other threads in between two looks or two stores.
#[inline(always)]
fn race_point() {
    #[cfg(test)]
    races::point();
}

#[cfg(test)]
pub(super) mod races {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0) };
    }

    /// From now on this thread sleeps where others should get in between.
    pub(in super::super) fn provoke(seed: u64) {
        TURN.set(seed + 1);
    }

    pub(super) fn point() {
        if TURN.get() != 0 {
            TURN.set(weft_ops::mix64(TURN.get()));
            if TURN.get().is_multiple_of(97) {
                std::thread::sleep(Duration::from_micros(1));
            }
        }
    }
}

/// A leaf's neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Right,
    Left,
}

/// What follows prefix and head of a key.
enum Tail {
    /// Bytes from the prefix's end, and the word behind the head.
    Here {
        len: usize,
        word: u64,
    },
    Block(*mut AtomicU64),
}

/// An entry as it is written into a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'k> {
    pub(super) key: &'k [u8],
    /// In a leaf, the entry's; above, the separator's: 0 unless equal keys are apart.
    pub(super) slot: u64,
    /// Above the leaves, what is right of the separator.
    pub(super) child: *mut Node,
    /// A block with this key, and slot if it is a separator.
    pub(super) block: Option<NonNull<AtomicU64>>,
}

/// An entry needs a block in a node with this prefix.
#[inline]
pub(super) fn needs_block(key_len: usize, slot: u64, prefix_len: usize, level: u8) -> bool {
    let tail = key_len.saturating_sub(prefix_len);
    if level == 0 {
        tail > LEAF_TAIL_MAX
    } else {
        tail > SEPARATOR_TAIL_MAX || slot != 0
    }
}

/// A node whose latch this thread holds.
pub(super) struct Locked<'n> {
    node: &'n Node,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Node;

    fn deref(&self) -> &Node {
        self.node
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let version = self.node.version.load(Ordering::Relaxed);
        self.node
            .version
            .store(version.wrapping_add(1), Ordering::Release);
    }
}

impl<'n> Locked<'n> {
    /// What a look under the latch is checked against.
    pub(super) fn version(&self) -> Version {
        Version(self.node.version.load(Ordering::Relaxed))
    }

    pub(super) fn node(&self) -> &'n Node {
        self.node
    }

    pub(super) fn set_meta(&self, meta: Meta) {
        self.node.meta.store(meta.to_word(), Ordering::Relaxed);
    }

    pub(super) fn set_neighbour(&self, side: Side, node: *mut Node) {
        let [right, left] = &self.node.links;
        let link = if side == Side::Right { right } else { left };
        link.store(node, Ordering::Relaxed);
    }

    pub(super) fn set_first_child(&self, node: *mut Node) {
        self.set_neighbour(Side::Right, node);
    }

    pub(super) fn set_prefix(&self, prefix: &[u8]) {
        let words = std::iter::once(&self.node.prefix).chain(&self.node.prefix_more);
        for (number, word) in words.enumerate() {
            word.store(word_at(prefix, number * WORD_BYTES), Ordering::Relaxed);
        }
    }

    /// The key begins with the node's prefix.
    pub(super) fn takes_key(&self, key: &[u8]) -> bool {
        let meta = self.meta();
        meta.count > 0 && self.compare_prefix(key, meta.prefix_len()) == Order::Equal
    }

    /// Writes an entry. Its block is set where it needs one.
    pub(super) fn write(&self, at: usize, item: Item<'_>, prefix_len: usize, level: u8) {
        let (Some(head), Some(word), Some(rest)) = (
            self.node.heads.get(at),
            self.node.words.get(at),
            self.node.rests.get(at),
        ) else {
            return;
        };
        let tail = item.key.len().saturating_sub(prefix_len);
        head.store(head_at(item.key, prefix_len), Ordering::Relaxed);
        let behind = word_at(item.key, prefix_len + HEAD_BYTES) as usize;
        let inline = if level == 0 {
            let code = if item.block.is_some() { CODE_BLOCK } else { tail };
            let slot = item.slot & SLOT_MASK | (code as u64) << SLOT_BITS;
            word.store(ptr::without_provenance_mut(slot as usize), Ordering::Relaxed);
            behind
        } else {
            word.store(item.child, Ordering::Relaxed);
            behind & !0xff | (tail + 1) & LEN_MASK
        };
        let block = item.block.map(NonNull::as_ptr);
        rest.store(
            block.unwrap_or(ptr::without_provenance_mut(inline)),
            Ordering::Relaxed,
        );
    }

    /// Marks the entries from `count` on as unused.
    pub(super) fn clear_from(&self, count: usize) {
        for head in self.node.heads.iter().skip(count) {
            head.store(UNUSED, Ordering::Relaxed);
        }
    }

    /// Moves the entries from `at` on one place up.
    pub(super) fn open_gap(&self, at: usize, count: usize) {
        for to in (at + 1..=count.min(ENTRIES_MAX - 1)).rev() {
            self.copy_entry(to - 1, to);
        }
    }

    /// Moves the entries behind `at` one place down, over the one there.
    pub(super) fn close_gap(&self, at: usize, count: usize) {
        for to in at..count.saturating_sub(1) {
            self.copy_entry(to + 1, to);
        }
        self.clear_from(count.saturating_sub(1));
    }

    #[inline(always)]
    fn copy_entry(&self, from: usize, to: usize) {
        race_point();
        if let (Some(head), Some(word), Some(rest)) = (
            self.node.heads.get(to),
            self.node.words.get(to),
            self.node.rests.get(to),
        ) {
            head.store(self.head(from), Ordering::Relaxed);
            word.store(self.word(from), Ordering::Relaxed);
            rest.store(self.rest(from), Ordering::Relaxed);
        }
    }

    /// Makes this node a copy of another: everything but the version.
    pub(super) fn copy_of(&self, other: &Locked<'_>) {
        let copy =
            |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        copy(&self.node.meta, &other.node.meta);
        copy(&self.node.prefix, &other.node.prefix);
        for (to, from) in self.node.prefix_more.iter().zip(&other.node.prefix_more) {
            copy(to, from);
        }
        for (to, from) in self.node.links.iter().zip(&other.node.links) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in self.node.heads.iter().zip(&other.node.heads) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in self.node.words.iter().zip(&other.node.words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in self.node.rests.iter().zip(&other.node.rests) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}
