//! Changes of one node, under its latch.
//!
//! The holder of the latch stores word after word; the version is odd in the meantime, and concurrent readers
//! read again. So the order of the stores does not matter, and entries are moved array by array.

use std::cmp::Ordering as Order;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::node::{
    CODE_BLOCK, GONE, HEAD_BYTES, LEAF_TAIL_MAX, LEN_MASK, Meta, Node, PREFIX_HERE_MAX, Places,
    SEPARATOR_TAIL_MAX, SLOT_BITS, SLOT_MASK, Side, UNUSED, Version, race_point,
};
use super::pool::Pool;
use super::target::{Target, WORD_BYTES};

/// An entry as it is written into a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'k> {
    /// Key and slot; a separator's slot is 0 unless equal keys are apart.
    pub(super) target: Target<'k>,
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

/// An entry needs a rest in a node with this prefix.
fn needs_rest(key_len: usize, prefix_len: usize, level: u8) -> bool {
    level > 0 || key_len.saturating_sub(prefix_len) > HEAD_BYTES
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

fn move_up<T>(places: &[AtomicPtr<T>]) {
    for pair in places.windows(2).rev() {
        if let [from, to] = pair {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

fn move_down<T>(places: &[AtomicPtr<T>]) {
    for pair in places.windows(2) {
        if let [to, from] = pair {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl<'n> Locked<'n> {
    /// The caller has just made the version odd.
    pub(super) fn of(node: &'n Node) -> Self {
        Locked { node }
    }

    /// The version that reads under the latch are checked against.
    pub(super) fn version(&self) -> Version {
        Version(self.node.version.load(Ordering::Relaxed))
    }

    /// The version after the latch is released.
    pub(super) fn version_after(&self) -> Version {
        Version(self.version().0.wrapping_add(1))
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

    pub(super) fn set_prefix(&self, prefix: &[u8], pool: &Pool) {
        if prefix.len() > PREFIX_HERE_MAX {
            self.extend(pool);
        }
        let prefix = Target::before(prefix);
        for (number, word) in self.node.prefix_words().enumerate() {
            word.store(prefix.word_at(number * WORD_BYTES), Ordering::Relaxed);
        }
    }

    /// Gives the node an extension unless it has one.
    fn extend(&self, pool: &Pool) {
        if self.node.extension().is_none() {
            self.node.set_extension(pool.extension());
        }
    }

    /// The key begins with the node's prefix.
    pub(super) fn takes_key(&self, target: &Target<'_>) -> bool {
        let meta = self.meta();
        meta.count > 0 && self.compare_prefix(target, meta.prefix_len()) == Order::Equal
    }

    /// Writes an entry. Its block is set where it needs one.
    pub(super) fn write(&self, at: usize, item: Item<'_>, prefix_len: usize, level: u8, pool: &Pool) {
        let (Some(head), Some(word)) = (self.node.heads.get(at), self.node.words.get(at)) else {
            return;
        };
        if needs_rest(item.target.key.len(), prefix_len, level) {
            self.extend(pool);
        }
        let tail = item.target.key.len().saturating_sub(prefix_len);
        head.store(item.target.head_at(prefix_len), Ordering::Relaxed);
        let behind = item.target.word_at(prefix_len + HEAD_BYTES) as usize;
        let inline = if level == 0 {
            let code = if item.block.is_some() { CODE_BLOCK } else { tail };
            let slot = item.target.slot & SLOT_MASK | (code as u64) << SLOT_BITS;
            word.store(ptr::without_provenance_mut(slot as usize), Ordering::Relaxed);
            behind
        } else {
            word.store(item.child, Ordering::Relaxed);
            behind & !0xff | (tail + 1) & LEN_MASK
        };
        // Without an extension all rests are zero, as this one is.
        if let Some(rest) = self.rests().get(at) {
            let block = item.block.map(NonNull::as_ptr);
            rest.store(
                block.unwrap_or(ptr::without_provenance_mut(inline)),
                Ordering::Relaxed,
            );
        }
    }

    /// Empty without an extension.
    fn rests(&self) -> &'n [AtomicPtr<AtomicU64>] {
        self.node
            .extension()
            .map_or(&[], |extension| extension.rests.as_slice())
    }

    /// Marks a leaf's entries: their rows are gone for readers of batch `since` and later ones.
    pub(super) fn mark_gone(&self, places: Places, since: u64) {
        let before = self.node.gone_since.load(Ordering::Relaxed);
        self.node.gone_since.store(before.max(since), Ordering::Relaxed);
        self.set_meta(Meta {
            has_marks: true,
            ..self.meta()
        });
        for word in places.filter_map(|at| self.node.words.get(at)) {
            let marked = word.load(Ordering::Relaxed).addr() | GONE;
            word.store(ptr::without_provenance_mut(marked), Ordering::Relaxed);
        }
    }

    /// Takes the mark of a leaf's entry away.
    pub(super) fn clear_mark(&self, at: usize) {
        if let Some(word) = self.node.words.get(at) {
            let unmarked = word.load(Ordering::Relaxed).addr() & !GONE;
            word.store(ptr::without_provenance_mut(unmarked), Ordering::Relaxed);
        }
    }

    /// Marks the entries from `count` on as unused.
    pub(super) fn clear_from(&self, count: usize) {
        for head in self.node.heads.iter().skip(count) {
            head.store(UNUSED, Ordering::Relaxed);
        }
    }

    /// Moves the entries from `at` on one place up.
    #[inline]
    pub(super) fn open_gap(&self, at: usize, count: usize) {
        race_point();
        for pair in self
            .node
            .heads
            .get(at..=count)
            .unwrap_or_default()
            .windows(2)
            .rev()
        {
            if let [from, to] = pair {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        move_up(self.node.words.get(at..=count).unwrap_or_default());
        race_point();
        move_up(self.rests().get(at..=count).unwrap_or_default());
    }

    /// Moves the entries behind `at` one place down, over the one there.
    pub(super) fn close_gap(&self, at: usize, count: usize) {
        race_point();
        for pair in self.node.heads.get(at..count).unwrap_or_default().windows(2) {
            if let [to, from] = pair {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        move_down(self.node.words.get(at..count).unwrap_or_default());
        race_point();
        move_down(self.rests().get(at..count).unwrap_or_default());
        self.clear_from(count.saturating_sub(1));
    }

    /// Makes this node a copy of another: everything but the version.
    pub(super) fn copy_of(&self, other: &Locked<'_>, pool: &Pool) {
        if other.node.extension().is_some() {
            self.extend(pool);
        }
        let copy =
            |to: &AtomicU64, from: &AtomicU64| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        copy(&self.node.meta, &other.node.meta);
        for (to, from) in self.node.prefix_words().zip(other.node.prefix_words()) {
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
        let from = other.rests().iter().map(|rest| rest.load(Ordering::Relaxed));
        let from = from.chain(std::iter::repeat(ptr::null_mut()));
        for (to, from) in self.rests().iter().zip(from) {
            to.store(from, Ordering::Relaxed);
        }
    }
}
