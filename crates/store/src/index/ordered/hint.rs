//! Insertion hints: where a thread last added an entry.
//!
//! Many keys are added in sequence: the lines of an order follow each other, and so do the orders. An
//! insertion next to the thread's previous one needs no descent. A hint is a leaf, its version, and a key
//! that is above all of the leaf's entries:
//!
//! - As long as the leaf has this version nobody has changed it, so it is still the same leaf for the same
//!   key range; a leaf is split, merged or rebalanced only under its latch.
//! - A key between two of the leaf's entries belongs there; so does one between the last entry and the key
//!   above.
//! - The key above is the separator right of the leaf: the parent's, or, if the leaf is the last child there,
//!   the one right of the parent, and so on upwards. A node's upper bound changes only when the node is
//!   split, or merged or rebalanced with its right neighbour, all under its own latch; when separators above
//!   it move from node to node the bound stays the same key. So a bound belongs to the node's version. A
//!   descent checks each parent after it has read the child's version: at that moment the child's bound was
//!   the separator, or the parent's own bound, for both versions. Which of the two it is must come from what
//!   the descent checked, and the separator's key is checked against the same version of its node.
//!
//! Everything else takes a normal descent. Each thread has its own hints, so no cache line is shared; there
//! are enough for the sequences of several districts and of several indexes.

use std::cell::Cell;
use std::ptr;

use super::node::{Node, Version};
use super::target::{Target, WORD_BYTES, head_mask};

/// The number of hints of a thread, as a power of two.
const HINTS_BITS: u32 = 6;
/// Keys of a sequence differ only in this many of their last bytes, those of an integer.
const RUN_BYTES: usize = 5;
/// Words of the key above that are kept.
pub(super) const ABOVE_WORDS: usize = 4;

/// The beginning of a key that all of a leaf's entries are below, as words.
pub(super) type Above = [u64; ABOVE_WORDS];

/// For the last leaf: only keys that begin like this are not below.
pub(super) const ABOVE_ALL: Above = [u64::MAX; ABOVE_WORDS];
/// No key is below: not known.
pub(super) const ABOVE_NONE: Above = [0; ABOVE_WORDS];

/// A leaf of one index.
pub(super) struct Hint {
    /// The index's number.
    index: Cell<u64>,
    leaf: Cell<*const Node>,
    version: Cell<Version>,
    above: Cell<Above>,
}

/// No index has this number.
const NO_INDEX: u64 = u64::MAX;

impl Hint {
    const fn new() -> Self {
        Hint {
            index: Cell::new(NO_INDEX),
            leaf: Cell::new(ptr::null()),
            version: Cell::new(Version(0)),
            above: Cell::new(ABOVE_NONE),
        }
    }

    /// The leaf, and its version, if the hint is one of this index.
    #[inline(always)]
    pub(super) fn leaf(&self, index: u64) -> Option<(*const Node, Version)> {
        (self.index.get() == index).then(|| (self.leaf.get(), self.version.get()))
    }

    pub(super) fn set(&self, index: u64, leaf: &Node, version: Version, above: Above) {
        self.index.set(index);
        self.leaf.set(leaf);
        self.version.set(version);
        self.above.set(above);
    }

    /// The leaf was changed by its own thread.
    #[inline(always)]
    pub(super) fn set_version(&self, version: Version) {
        self.version.set(version);
    }

    pub(super) fn forget(&self) {
        self.index.set(NO_INDEX);
    }

    /// The key is certainly below the key above the leaf.
    #[inline(always)]
    pub(super) fn is_above(&self, target: &Target<'_>) -> bool {
        let above = self.above.get();
        for (number, above) in above.into_iter().enumerate() {
            let word = target.word_at(number * WORD_BYTES);
            if word != above {
                return word < above;
            }
        }
        false
    }
}

/// Lends the thread's hint for a key: one for each index and each key prefix that a sequence shares.
#[inline(always)]
pub(super) fn with_hint<R>(index: u64, target: &Target<'_>, work: impl FnOnce(&Hint) -> R) -> R {
    thread_local! {
        static OF_THREAD: [Hint; 1 << HINTS_BITS] = const { [const { Hint::new() }; 1 << HINTS_BITS] };
    }
    OF_THREAD.with(|hints| {
        let [first, ..] = hints;
        work(hints.get(number_of(index, target)).unwrap_or(first))
    })
}

#[inline(always)]
fn number_of(index: u64, target: &Target<'_>) -> usize {
    let len = target.key.len().saturating_sub(RUN_BYTES);
    let beginning = match len.checked_sub(WORD_BYTES) {
        Some(at) => target.word_at(at),
        None => target.word_at(0) & head_mask(len),
    };
    // Fibonacci hashing: Knuth, "The Art of Computer Programming" volume 3, section 6.4.
    let product = (beginning ^ index.rotate_right(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> (u64::BITS - HINTS_BITS)) as usize
}
