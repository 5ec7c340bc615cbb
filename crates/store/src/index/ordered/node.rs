//! One node: six cache lines of atomic words, with a version that readers check, and four more where keys
//! need them.
//!
//! ```text
//!   line 0      version | meta | first word of the prefix | first heads
//!   line 0-1    heads: four key bytes each, from where the prefix ends, ascending
//!   line 2-5    words: in a leaf the slot and the length code, above it the child; then two links
//!   line 5      since when the marked entries lead to no row | extension | two words of the prefix
//!
//!   extension   rests: what of the keys does not fit into the heads; then six words of the prefix
//! ```
//!
//! A leaf of integers that follow each other has no extension: what its keys do not share fits into the
//! heads. Nodes above the leaves have one.
//!
//! The prefix is what all keys of the node have in common, up to 72 bytes; four more bytes usually tell its
//! keys apart, and a search reads two lines and a word. With heads of eight bytes it was four lines and a
//! word: a leaf's lines are not in the cache, and their number determines how long a group of descents waits.
//! A leaf's links are its right and left neighbours; above the leaves the first link is the child left of all
//! separators.
//!
//! The rest of a key after prefix and head, by length: nothing; up to eight bytes in `rests` (in a separator
//! seven and their number); otherwise the complete key in a block (`pool.rs`) that `rests` points to.
//! Separators with a slot always have a block.
//!
//! An entry of a leaf is marked once its row is found removed for good (`range.rs`): readers of a later batch
//! pass over it, while earlier ones still need it.
//!
//! Invariants:
//! 1. The version is odd while a writer changes the node, and never has the same value again afterwards. If a
//!    reader finds the same even version before and after reading, it has read a consistent state.
//! 2. A pointer, a level or a length is used only after this check: before, it may be torn.
//! 3. A node's memory stays a node as long as the index lives, and a block's a block; so following a pointer
//!    that was valid a moment ago is harmless. A node that has an extension keeps it, even when it is used
//!    again for other entries.
//!
//! Sources: optimistic lock coupling, Leis et al., "The ART of practical synchronization" (2016); key heads
//! and prefixes, Graefe and Larson, "B-tree indexes and CPU caches" (2001).

use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};

use super::hint::{ABOVE_NONE, Above};
use super::latch::Locked;
use super::pool::{BLOCK_ALIGN, Block};
use super::target::WORD_BYTES;

/// Entries of a node.
pub(super) const ENTRIES_MAX: usize = 26;
/// A node with fewer entries is merged with a neighbour or rebalanced.
pub(super) const ENTRIES_MIN: usize = 7;
/// Words of a prefix behind the first one, in the node.
const PREFIX_WORDS_MORE: usize = 2;
/// The same in its extension.
const PREFIX_WORDS_EXTENDED: usize = 6;
/// Bytes of the longest prefix that needs no extension.
pub(super) const PREFIX_HERE_MAX: usize = (1 + PREFIX_WORDS_MORE) * WORD_BYTES;
/// Bytes of the longest prefix.
pub(super) const PREFIX_MAX: usize = PREFIX_HERE_MAX + PREFIX_WORDS_EXTENDED * WORD_BYTES;

/// The head of an unused entry: no search counts it.
pub(super) const UNUSED: u32 = u32::MAX;
pub(super) const HEAD_BYTES: usize = size_of::<u32>();
pub(super) const SLOT_BITS: u32 = 40;
pub(super) const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const CODE_MASK: usize = 0xff;
/// The bit of a leaf's word that says that the row is gone.
pub(super) const GONE: usize = 1 << 63;
/// Key bytes after the prefix that a leaf entry holds without a block.
pub(super) const LEAF_TAIL_MAX: usize = HEAD_BYTES + WORD_BYTES;
/// Prefixes up to this length are copied whole.
const SHORT_PREFIX_BYTES: usize = 3 * WORD_BYTES;
/// The same for a separator.
pub(super) const SEPARATOR_TAIL_MAX: usize = LEAF_TAIL_MAX - 1;
/// The length code of keys that have a block.
pub(super) const CODE_BLOCK: usize = LEAF_TAIL_MAX + 1;
/// The bits of a separator's rest that hold its length plus one: 0 in the address of a block.
pub(super) const LEN_MASK: usize = BLOCK_ALIGN - 1;

const _: () = assert!(SEPARATOR_TAIL_MAX < LEN_MASK && LEN_MASK <= 0xff);

#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) version: AtomicU64,
    pub(super) meta: AtomicU64,
    pub(super) prefix: AtomicU64,
    pub(super) heads: [AtomicU32; ENTRIES_MAX],
    pub(super) words: [AtomicPtr<Node>; ENTRIES_MAX],
    pub(super) links: [AtomicPtr<Node>; 2],
    /// The rows of all marked entries are gone for readers of this batch and later ones.
    pub(super) gone_since: AtomicU64,
    /// Null at first; set once.
    extension: AtomicPtr<Extension>,
    prefix_more: [AtomicU64; PREFIX_WORDS_MORE],
}

/// What only some nodes need.
#[repr(C, align(64))]
pub(super) struct Extension {
    pub(super) rests: [AtomicPtr<AtomicU64>; ENTRIES_MAX],
    prefix_more: [AtomicU64; PREFIX_WORDS_EXTENDED],
}

const _: () = assert!(size_of::<Node>() == 6 * LINE_BYTES && size_of::<usize>() == 8);
const _: () = assert!(size_of::<Extension>() == 4 * LINE_BYTES);
/// The bytes that a search accesses, from the beginning; and with the words.
const SEARCH_BYTES: usize = 2 * LINE_BYTES;
const SEARCH_AND_WORDS_BYTES: usize = 6 * LINE_BYTES;

/// What a node says about itself, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) count: u8,
    pub(super) prefix_len: u8,
    /// 0 for leaves.
    pub(super) level: u8,
    /// Where the last entry was added: sequences of ascending keys are split at their end.
    pub(super) last_added: u8,
    /// Entries with the last key may continue in the right neighbour.
    pub(super) continues: bool,
    /// Entries may be marked.
    pub(super) has_marks: bool,
}

impl Meta {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        let [count, prefix_len, level, last_added, continues, has_marks, ..] = word.to_le_bytes();
        Meta {
            count,
            prefix_len,
            level,
            last_added,
            continues: continues != 0,
            has_marks: has_marks != 0,
        }
    }

    pub(super) fn to_word(self) -> u64 {
        u64::from_le_bytes([
            self.count,
            self.prefix_len,
            self.level,
            self.last_added,
            u8::from(self.continues),
            u8::from(self.has_marks),
            0,
            0,
        ])
    }

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        usize::from(self.count)
    }

    /// Where the last entry was added.
    #[inline(always)]
    pub(super) fn last_added(self) -> usize {
        usize::from(self.last_added)
    }

    #[inline(always)]
    pub(super) fn prefix_len(self) -> usize {
        usize::from(self.prefix_len)
    }
}

/// The node changed while it was read: start over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart;

/// The version of a node that a reader validates against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(pub(super) u64);

impl Node {
    /// How much of a node a descent prefetches.
    pub(super) const FETCH_BYTES: usize = SEARCH_AND_WORDS_BYTES;

    // --- the version ---

    /// The version, once no writer is active.
    #[inline(always)]
    pub(super) fn read(&self) -> Version {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 == 0 {
            Version(version)
        } else {
            self.wait()
        }
    }

    /// The version, unless a writer is active.
    #[inline(always)]
    pub(super) fn read_unlocked(&self) -> Result<Version, Restart> {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 == 0 {
            Ok(Version(version))
        } else {
            Err(Restart)
        }
    }

    #[cold]
    fn wait(&self) -> Version {
        for turn in 0u32.. {
            let version = self.version.load(Ordering::Acquire);
            if version & 1 == 0 {
                return Version(version);
            }
            // The writer may have been preempted.
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
    pub(super) fn check(&self, version: Version) -> Result<(), Restart> {
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) == version.0 {
            Ok(())
        } else {
            Err(Restart)
        }
    }

    /// Takes the latch if nothing has changed since.
    #[inline]
    pub(super) fn lock(&self, version: Version) -> Result<Locked<'_>, Restart> {
        let locked = version.0 | 1;
        self.version
            .compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| Restart)?;
        // A thread that sees one of the stores that follow must also see the odd version.
        fence(Ordering::Release);
        Ok(Locked::of(self))
    }

    /// Takes the latch, waiting for it.
    pub(super) fn lock_now(&self) -> Locked<'_> {
        loop {
            if let Ok(locked) = self.lock(self.read()) {
                return locked;
            }
        }
    }

    // --- reading ---

    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        Meta::from_word(self.meta.load(Ordering::Relaxed))
    }

    /// A leaf's neighbour. Valid only if the version is unchanged.
    #[inline(always)]
    pub(super) fn neighbour(&self, side: Side) -> *mut Node {
        let [right, left] = &self.links;
        let link = if side == Side::Right { right } else { left };
        link.load(Ordering::Relaxed)
    }

    /// The child right of `separators` separators. Valid only if the version is unchanged.
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

    /// How the key of a leaf's entry continues behind the prefix: its length, or [`CODE_BLOCK`].
    #[inline(always)]
    pub(super) fn code(&self, at: usize) -> usize {
        self.word(at).addr() >> SLOT_BITS & CODE_MASK
    }

    /// Those of a leaf's entries whose rows are gone for a reader up to batch `horizon`. Valid only if the
    /// version is unchanged.
    #[inline(always)]
    pub(super) fn gone(&self, meta: Meta, places: Places, horizon: u64) -> Places {
        if meta.has_marks && self.gone_since.load(Ordering::Relaxed) <= horizon {
            places.filter(|&at| self.is_gone(at)).collect()
        } else {
            Places::default()
        }
    }

    /// Whether a leaf's entry is marked.
    pub(super) fn is_gone(&self, at: usize) -> bool {
        self.word(at).addr() & GONE != 0
    }

    /// The slot of an entry: in a leaf the row's, above it the separator's. A separator's is valid only under
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
    pub(super) fn word(&self, at: usize) -> *mut Node {
        self.words
            .get(at)
            .map_or(ptr::null_mut(), |word| word.load(Ordering::Relaxed))
    }

    /// Null without an extension.
    #[inline(always)]
    pub(super) fn rest(&self, at: usize) -> *mut AtomicU64 {
        self.extension()
            .and_then(|extension| extension.rests.get(at))
            .map_or(ptr::null_mut(), |rest| rest.load(Ordering::Relaxed))
    }

    /// What it has beyond its six lines.
    #[inline(always)]
    pub(super) fn extension(&self) -> Option<&Extension> {
        // SAFETY: null, or an extension of this node, which it stays as long as the node is one.
        unsafe { self.extension.load(Ordering::Acquire).as_ref() }
    }

    /// Gives it an extension, which is zero. The caller holds the latch, and there is none.
    pub(super) fn set_extension(&self, extension: NonNull<Extension>) {
        self.extension.store(extension.as_ptr(), Ordering::Release);
    }

    /// The prefix's words: three, and those of the extension.
    pub(super) fn prefix_words(&self) -> impl Iterator<Item = &AtomicU64> {
        let extended = self.extension().map(|extension| &extension.prefix_more);
        let here = std::iter::once(&self.prefix).chain(&self.prefix_more);
        here.chain(extended.into_iter().flatten())
    }

    /// One of the prefix's words behind its first.
    #[inline(always)]
    pub(super) fn prefix_word_behind(&self, number: usize) -> u64 {
        let word = match self.prefix_more.get(number) {
            Some(word) => Some(word),
            None => self
                .extension()
                .and_then(|extension| extension.prefix_more.get(number - PREFIX_WORDS_MORE)),
        };
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn head(&self, at: usize) -> u32 {
        self.heads
            .get(at)
            .map_or(UNUSED, |head| head.load(Ordering::Relaxed))
    }

    /// How an entry's key continues after prefix and head.
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
        match self.code(at) {
            // The rests are lines away: they are read only if there is one.
            len @ 0..=HEAD_BYTES => Tail::Here { len, word: 0 },
            CODE_BLOCK => Tail::Block(self.rest(at)),
            len => Tail::Here {
                len,
                word: self.rest(at).addr() as u64,
            },
        }
    }

    /// The block of an entry, if it has one. Valid only if the version is unchanged.
    pub(super) fn block(&self, at: usize, level: u8) -> Option<NonNull<AtomicU64>> {
        match self.tail(at, level) {
            Tail::Block(block) => NonNull::new(block),
            Tail::Here { .. } => None,
        }
    }

    /// Appends an entry's complete key.
    pub(super) fn key_into(&self, at: usize, version: Version, out: &mut Vec<u8>) -> Result<(), Restart> {
        self.keys_into(std::iter::once(at), version, out, |_, _| {})
    }

    /// Appends the complete keys of entries and calls `see` with each one's end in `out`. After an error the
    /// appended bytes are undefined.
    #[inline]
    pub(super) fn keys_into(
        &self,
        places: impl ExactSizeIterator<Item = usize>,
        version: Version,
        out: &mut Vec<u8>,
        mut see: impl FnMut(usize, usize),
    ) -> Result<(), Restart> {
        race_point();
        let meta = self.meta();
        let prefix_len = meta.prefix_len();
        let prefix = self.prefix_bytes(prefix_len);
        let mut left = places.len();
        let mut end = out.len();
        let bytes_max = |keys: usize| keys * (prefix_len + LEAF_TAIL_MAX) + SHORT_PREFIX_BYTES;
        out.resize(end + bytes_max(left), 0);
        for at in places {
            match self.tail(at, meta.level) {
                Tail::Here { len, word } => {
                    let place = out.get_mut(end..).ok_or(Restart)?;
                    put_key(place, &prefix, prefix_len, self.head(at), word).ok_or(Restart)?;
                    end += prefix_len + len.min(LEAF_TAIL_MAX);
                }
                Tail::Block(block) => {
                    self.check(version)?;
                    let block = Block::from_raw(block).ok_or(Restart)?;
                    let len = block.len();
                    self.check(version)?;
                    out.truncate(end);
                    block.key_into(len, out);
                    end = out.len();
                    out.resize(end + bytes_max(left), 0);
                }
            }
            left -= 1;
            see(at, end);
        }
        out.truncate(end);
        Ok(())
    }

    /// The first words of an entry's key, padded with zeros. Valid only if the version is unchanged.
    pub(super) fn key_words(&self, at: usize, version: Version) -> Result<Above, Restart> {
        let meta = self.meta();
        let mut words = ABOVE_NONE;
        match self.tail(at, meta.level) {
            Tail::Here { word, .. } => {
                let prefix_len = meta.prefix_len();
                let mut bytes = [0; PREFIX_MAX + LEAF_TAIL_MAX];
                let prefix = self.prefix_bytes(prefix_len);
                put_key(&mut bytes, &prefix, prefix_len, self.head(at), word).ok_or(Restart)?;
                let (chunks, _) = bytes.as_chunks();
                for (word, bytes) in words.iter_mut().zip(chunks) {
                    *word = u64::from_be_bytes(*bytes);
                }
            }
            Tail::Block(block) => {
                self.check(version)?;
                let block = Block::from_raw(block).ok_or(Restart)?;
                let len = block.len();
                self.check(version)?;
                block.words_into(len, &mut words);
            }
        }
        Ok(words)
    }

    fn prefix_bytes(&self, len: usize) -> [u8; PREFIX_MAX] {
        let mut bytes = [0; PREFIX_MAX];
        let words = self.prefix_words().take(len.div_ceil(WORD_BYTES));
        let (chunks, _) = bytes.as_chunks_mut();
        for (bytes, word) in chunks.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Relaxed).to_be_bytes();
        }
        bytes
    }

    /// Prefetches what a search of the node reads, so that its lines arrive together.
    #[inline(always)]
    pub(super) fn fetch(&self) {
        for line in 0..Self::FETCH_BYTES / LINE_BYTES {
            prefetch(ptr::from_ref(self).cast::<u8>().wrapping_add(line * LINE_BYTES));
        }
    }

    /// Prefetches what a scan along the leaves reads first.
    #[inline(always)]
    pub(super) fn fetch_neighbour(node: *const Node) {
        if !node.is_null() {
            prefetch_bytes(node, SEARCH_BYTES);
        }
    }
}

/// Places of entries in a leaf, ascending; an iterator over them, from both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places(u32);

const _: () = assert!(ENTRIES_MAX < u32::BITS as usize);

impl Places {
    /// From one place to another.
    #[inline(always)]
    pub(super) fn of(places: Range<usize>) -> Self {
        let below = |end: usize| (1 << end.min(ENTRIES_MAX)) - 1;
        Places(below(places.end) & !below(places.start))
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, at: usize) {
        self.0 |= 1 << at.min(ENTRIES_MAX);
    }

    #[inline(always)]
    pub(super) fn without(self, others: Self) -> Self {
        Places(self.0 & !others.0)
    }

    /// The first `most` of them in the order of a reader.
    #[inline(always)]
    pub(super) fn first(self, most: usize, reverse: bool) -> Self {
        if self.len() <= most {
            return self;
        }
        let (mut left, mut first) = (self, Places::default());
        for _ in 0..most {
            let next = if reverse { left.next_back() } else { left.next() };
            next.into_iter().for_each(|at| first.insert(at));
        }
        first
    }
}

impl Iterator for Places {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let at = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (at < u32::BITS).then_some(at as usize)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.0.count_ones() as usize;
        (len, Some(len))
    }
}

impl DoubleEndedIterator for Places {
    #[inline(always)]
    fn next_back(&mut self) -> Option<usize> {
        let at = self.0.checked_ilog2()?;
        self.0 &= !(1 << at);
        Some(at as usize)
    }
}

impl ExactSizeIterator for Places {}

impl FromIterator<usize> for Places {
    #[inline(always)]
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        places.into_iter().fold(Places::default(), |mut all, at| {
            all.insert(at);
            all
        })
    }
}

/// Writes a key from a prefix and an entry's part of the rest, and some bytes beyond its end. `None` if there
/// is no space.
#[inline(always)]
fn put_key(
    place: &mut [u8],
    prefix: &[u8; PREFIX_MAX],
    prefix_len: usize,
    head: u32,
    word: u64,
) -> Option<()> {
    if prefix_len <= SHORT_PREFIX_BYTES {
        let place: &mut [u8; SHORT_PREFIX_BYTES + LEAF_TAIL_MAX] = place.first_chunk_mut()?;
        *place.first_chunk_mut::<SHORT_PREFIX_BYTES>()? = *prefix.first_chunk()?;
        return put_tail(place.get_mut(prefix_len..)?, head, word);
    }
    let prefix = prefix.get(..prefix_len)?;
    place.get_mut(..prefix_len)?.copy_from_slice(prefix);
    put_tail(place.get_mut(prefix_len..)?, head, word)
}

#[inline(always)]
fn put_tail(place: &mut [u8], head: u32, word: u64) -> Option<()> {
    let tail: &mut [u8; LEAF_TAIL_MAX] = place.first_chunk_mut()?;
    *tail.first_chunk_mut()? = head.to_be_bytes();
    *tail.last_chunk_mut()? = word.to_be_bytes();
    Some(())
}

/// In a test that asked for it, sometimes lets other threads run between two reads or two stores.
#[inline(always)]
pub(super) fn race_point() {
    #[cfg(test)]
    races::point();
}

/// In a test that asked for it, does what another thread might do between a descent and the use of the leaf.
#[inline(always)]
pub(super) fn interruption_point() {
    #[cfg(test)]
    races::interruption();
}

#[cfg(test)]
pub(super) mod races {
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    type Work = Box<dyn FnOnce()>;

    thread_local! {
        static TURN: Cell<u64> = const { Cell::new(0) };
        static INTERRUPTION: RefCell<Option<Work>> = const { RefCell::new(None) };
    }

    /// This thread does the work once, at the next point of interruption.
    pub(in super::super) fn interrupt(work: impl FnOnce() + 'static) {
        INTERRUPTION.set(Some(Box::new(work)));
    }

    pub(super) fn interruption() {
        if let Some(work) = INTERRUPTION.take() {
            work();
        }
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
