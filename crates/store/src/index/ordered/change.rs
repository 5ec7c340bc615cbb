//! Structural changes of the tree: full nodes are split, nearly empty nodes are merged with a neighbour or
//! rebalanced.
//!
//! A writer that adds an entry splits every full node above the leaf on its way down, so a split always finds
//! space one level up. Nodes are rewritten from a list of complete keys ([`Entries`]): this gives each the
//! longest prefix that its keys share. The root stays where it is; it grows by moving its contents into a new
//! child, and shrinks by taking over its only child.
//!
//! Latch order: a parent before its child, and on one level from left to right. A leaf is unlinked only while
//! its left neighbour's latch is held, so the neighbours of a latched leaf do not change.

use std::cell::RefCell;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use super::OrderedIndex;
use super::latch::{Item, Locked, needs_block};
use super::node::{ENTRIES_MAX, ENTRIES_MIN, LEAF_TAIL_MAX, Meta, Node, PREFIX_MAX, Restart, Side, Version};
use super::pool::Pool;
use super::target::{Target, common_len};

/// Two nodes that together hold at most this many entries are merged.
const JOINED_MAX: usize = ENTRIES_MAX * 3 / 4;

/// Entries of one or two nodes, with their complete keys.
#[derive(Default)]
pub(super) struct Entries {
    keys: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone)]
struct Entry {
    key: Range<usize>,
    slot: u64,
    child: *mut Node,
    block: Option<NonNull<AtomicU64>>,
}

/// Lends a thread's list.
pub(super) fn with_entries<R>(work: impl FnOnce(&mut Entries) -> R) -> R {
    thread_local! {
        static ENTRIES: RefCell<Entries> = RefCell::default();
    }
    ENTRIES.with_borrow_mut(|entries| {
        entries.keys.clear();
        entries.entries.clear();
        work(entries)
    })
}

impl Entries {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn key(&self, at: usize) -> &[u8] {
        let key = self
            .entries
            .get(at)
            .and_then(|entry| self.keys.get(entry.key.clone()));
        key.unwrap_or_default()
    }

    fn slot(&self, at: usize) -> u64 {
        self.entries.get(at).map_or(0, |entry| entry.slot)
    }

    fn child(&self, at: usize) -> *mut Node {
        self.entries.get(at).map_or(ptr::null_mut(), |entry| entry.child)
    }

    /// Appends all entries of a node.
    fn push_node(&mut self, node: &Locked<'_>) -> Result<(), Restart> {
        self.push(node, 0..node.meta().count())
    }

    /// Appends some entries of a node.
    fn push(
        &mut self,
        node: &Locked<'_>,
        places: impl ExactSizeIterator<Item = usize>,
    ) -> Result<(), Restart> {
        let meta = node.meta();
        let Entries { keys, entries } = self;
        entries.reserve(places.len());
        let mut start = keys.len();
        node.keys_into(places, node.version(), keys, |at, end| {
            entries.push(Entry {
                key: start..end,
                slot: node.entry_slot(at, meta.level),
                child: node.child(at + 1),
                block: node.block(at, meta.level),
            });
            start = end;
        })
    }

    /// Puts an entry before the one at `at`.
    fn insert(&mut self, at: usize, target: Target<'_>, child: *mut Node) {
        let start = self.keys.len();
        self.keys.extend_from_slice(target.key);
        self.entries.insert(
            at.min(self.entries.len()),
            Entry {
                key: start..self.keys.len(),
                slot: target.slot,
                child,
                block: None,
            },
        );
    }

    /// Frees an entry's block: no node will hold the entry.
    fn drop_block(&mut self, at: usize, pool: &Pool) {
        if let Some(block) = self.entries.get_mut(at).and_then(|entry| entry.block.take()) {
            pool.free_block(block);
        }
    }

    /// Writes some of the entries into a node. `meta` contains what does not follow from them.
    fn write(&mut self, range: Range<usize>, node: &Locked<'_>, meta: Meta, pool: &Pool) {
        let (first, last) = (self.key(range.start), self.key(range.end.saturating_sub(1)));
        let prefix_len = if range.is_empty() {
            0
        } else {
            common_len(first, last).min(PREFIX_MAX)
        };
        self.write_with_prefix(range, prefix_len, node, meta, pool);
    }

    /// [`Entries::write`] with a prefix of this length, which the keys have in common.
    fn write_with_prefix(
        &mut self,
        range: Range<usize>,
        prefix_len: usize,
        node: &Locked<'_>,
        meta: Meta,
        pool: &Pool,
    ) {
        let first = self.key(range.start);
        node.set_prefix(first.get(..prefix_len).unwrap_or_default(), pool);
        node.set_meta(Meta {
            count: range.len() as u8,
            prefix_len: prefix_len as u8,
            ..meta
        });
        node.clear_from(range.len());
        let Entries { keys, entries } = self;
        for (at, entry) in entries.get_mut(range).unwrap_or_default().iter_mut().enumerate() {
            let target = Target::new(keys.get(entry.key.clone()).unwrap_or_default(), entry.slot);
            match (
                needs_block(target.key.len(), entry.slot, prefix_len, meta.level),
                entry.block,
            ) {
                (true, None) => entry.block = Some(pool.block(&target)),
                (false, Some(block)) => {
                    pool.free_block(block);
                    entry.block = None;
                }
                _ => {}
            }
            let item = Item {
                target,
                child: entry.child,
                block: entry.block,
            };
            node.write(at, item, prefix_len, meta.level, pool);
        }
    }

    /// Makes a leaf of the last entry, which is greater than all others. Keys that follow are expected to
    /// share the same prefix with it, so that they fit under it.
    fn write_following(&mut self, at: usize, leaf: &Locked<'_>, meta: Meta, pool: &Pool) {
        let key = self.key(at);
        let prefix_len = common_len(self.key(0), key)
            .max(key.len().saturating_sub(LEAF_TAIL_MAX))
            .min(PREFIX_MAX);
        self.write_with_prefix(at..at + 1, prefix_len, leaf, meta, pool);
    }

    /// The separator between the entries before `at` and those from `at` on: the shortest key that separates
    /// them, and a slot if only that differs.
    fn separator(&self, at: usize) -> (usize, u64) {
        let (left, right) = (self.key(at.saturating_sub(1)), self.key(at));
        if left == right {
            (right.len(), self.slot(at))
        } else {
            (common_len(left, right) + 1, 0)
        }
    }
}

impl OrderedIndex {
    /// Adds an entry to a latched node that has space. Above the leaves, `child` is the node right of it.
    pub(super) fn insert_into(
        &self,
        node: &Locked<'_>,
        at: usize,
        target: Target<'_>,
        child: *mut Node,
    ) -> Result<(), Restart> {
        let meta = node.meta();
        if !node.takes_key(&target) {
            return with_entries(|entries| {
                entries.push_node(node)?;
                entries.insert(at, target, child);
                let meta = Meta {
                    last_added: at as u8,
                    ..meta
                };
                entries.write(0..entries.len(), node, meta, &self.pool);
                Ok(())
            });
        }
        self.insert_with_prefix(node, meta, at, target, child);
        Ok(())
    }

    /// [`OrderedIndex::insert_into`] for a key that has the prefix of a node that is not empty.
    #[inline]
    pub(super) fn insert_with_prefix(
        &self,
        node: &Locked<'_>,
        meta: Meta,
        at: usize,
        target: Target<'_>,
        child: *mut Node,
    ) {
        let prefix_len = meta.prefix_len();
        let block = needs_block(target.key.len(), target.slot, prefix_len, meta.level)
            .then(|| self.pool.block(&target));
        node.open_gap(at, meta.count());
        let item = Item { target, child, block };
        node.write(at, item, prefix_len, meta.level, &self.pool);
        node.set_meta(Meta {
            count: meta.count + 1,
            last_added: at as u8,
            ..meta
        });
    }

    /// Adds an entry to a full leaf, the child right of `at` separators of `parent`, by splitting it. Returns
    /// the leaf right of it with its version, if the new entry is alone there because keys ascend.
    pub(super) fn split_leaf<'i>(
        &'i self,
        (parent, parent_version): (&Node, Version),
        at: usize,
        (leaf, leaf_version): (&Node, Version),
        place: usize,
        target: Target<'_>,
    ) -> Result<Option<(&'i Node, Version)>, Restart> {
        let parent = parent.lock(parent_version)?;
        let left = leaf.lock(leaf_version)?;
        let meta = left.meta();
        let next = left.neighbour(Side::Right);
        // SAFETY: a latched leaf's neighbours are linked.
        let behind = unsafe { next.as_ref() }.map(Node::lock_now);
        let right = self.pool.node();
        let ascends = place > 0 && place == meta.last_added() + 1;
        let is_alone = ascends && place == meta.count();
        with_entries(|entries| {
            let separated = if is_alone {
                // The left leaf is not changed.
                entries.push(&left, [0, place - 1].into_iter())?;
                entries.insert(2, target, ptr::null_mut());
                2
            } else {
                entries.push_node(&left)?;
                entries.insert(place, target, ptr::null_mut());
                let middle = if ascends { place + 1 } else { entries.len() / 2 };
                middle.clamp(1, entries.len() - 1)
            };
            let (separator_len, slot) = entries.separator(separated);
            let separator = entries.key(separated).get(..separator_len).unwrap_or_default();
            let separator = Target::new(separator, slot);
            let right_address = ptr::from_ref(right.node()).cast_mut();
            self.insert_above(&parent, at, separator, right_address)?;
            right.set_neighbour(Side::Right, next);
            right.set_neighbour(Side::Left, ptr::from_ref(left.node()).cast_mut());
            left.set_neighbour(Side::Right, right_address);
            if let Some(behind) = &behind {
                behind.set_neighbour(Side::Left, right_address);
            }
            let continues = slot != 0;
            if is_alone {
                left.set_meta(Meta { continues, ..meta });
                let of_right = Meta {
                    last_added: 0,
                    ..meta
                };
                entries.write_following(2, &right, of_right, &self.pool);
                return Ok(());
            }
            let added = |from: usize| place.saturating_sub(from).min(ENTRIES_MAX) as u8;
            let of_right = Meta {
                last_added: added(separated),
                ..meta
            };
            let of_left = Meta {
                last_added: added(0),
                continues,
                ..meta
            };
            entries.write(separated..entries.len(), &right, of_right, &self.pool);
            entries.write(0..separated, &left, of_left, &self.pool);
            Ok(())
        })?;
        Ok(is_alone.then(|| (right.node(), right.version_after())))
    }

    /// [`OrderedIndex::insert_into`] for a parent, while the thread's list is in use.
    fn insert_above(
        &self,
        parent: &Locked<'_>,
        at: usize,
        separator: Target<'_>,
        child: *mut Node,
    ) -> Result<(), Restart> {
        if parent.takes_key(&separator) {
            return self.insert_into(parent, at, separator, child);
        }
        let mut entries = Entries::default();
        entries.push_node(parent)?;
        entries.insert(at, separator, child);
        entries.write(0..entries.len(), parent, parent.meta(), &self.pool);
        Ok(())
    }

    /// Splits a full node above the leaves, the child right of `at` separators of `parent`, which is not
    /// full.
    pub(super) fn split_inner(
        &self,
        (parent, parent_version): (&Node, Version),
        at: usize,
        (node, version): (&Node, Version),
    ) -> Result<(), Restart> {
        let parent = parent.lock(parent_version)?;
        let left = node.lock(version)?;
        let meta = left.meta();
        let right = self.pool.node();
        with_entries(|entries| {
            entries.push_node(&left)?;
            // Ascending insertion leaves full nodes behind.
            let is_last = at == parent.meta().count();
            let middle = if is_last {
                entries.len() - 2
            } else {
                entries.len() / 2
            };
            let separator = Target::new(entries.key(middle), entries.slot(middle));
            let right_address = ptr::from_ref(right.node()).cast_mut();
            self.insert_above(&parent, at, separator, right_address)?;
            entries.drop_block(middle, &self.pool);
            right.set_first_child(entries.child(middle));
            entries.write(middle + 1..entries.len(), &right, meta, &self.pool);
            entries.write(0..middle, &left, meta, &self.pool);
            Ok(())
        })
    }

    /// Moves the contents of the full root into a new, only child.
    pub(super) fn grow_root(&self, version: Version) -> Result<(), Restart> {
        let root = self.root().lock(version)?;
        let child = self.pool.node();
        child.copy_of(&root, &self.pool);
        let meta = Meta {
            level: root.meta().level.saturating_add(1),
            ..Meta::default()
        };
        root.set_first_child(ptr::from_ref(child.node()).cast_mut());
        root.set_prefix(&[], &self.pool);
        root.clear_from(0);
        root.set_meta(meta);
        Ok(())
    }

    /// Takes over the root's only child, unless that is a leaf.
    fn shrink_root(&self, version: Version) -> Result<(), Restart> {
        let root = self.root().lock(version)?;
        // SAFETY: a latched node's child is linked.
        if let Some(child) = unsafe { root.child(0).as_ref() }.map(Node::lock_now) {
            root.copy_of(&child, &self.pool);
            self.pool.free_node(child);
        }
        Ok(())
    }

    /// Merges or rebalances nearly empty nodes on the way to a target until there are none.
    pub(super) fn tidy_up(&self, target: Target<'_>) {
        loop {
            match self.tidy_one(target) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Restart) => std::hint::spin_loop(),
            }
        }
    }

    /// Takes the uppermost such node; false if there is none.
    fn tidy_one(&self, target: Target<'_>) -> Result<bool, Restart> {
        let mut node = self.root();
        let mut version = node.read();
        loop {
            let meta = node.meta();
            if ptr::eq(node, self.root()) && meta.count() == 0 && meta.level > 1 {
                self.shrink_root(version)?;
                return Ok(true);
            }
            let at = node.child_place(&target, version, meta)?;
            let child = self.child_of(node, version, at)?;
            let child_version = child.read();
            node.check(version)?;
            if child.meta().count() < ENTRIES_MIN && meta.count() > 0 {
                child.check(child_version)?;
                self.join(node.lock(version)?, at.saturating_sub(1))?;
                return Ok(true);
            }
            if meta.level == 1 {
                return Ok(false);
            }
            (node, version) = (child, child_version);
        }
    }

    /// Merges the children left and right of a separator, or rebalances them.
    fn join(&self, parent: Locked<'_>, at: usize) -> Result<(), Restart> {
        let (left, right) = (parent.child(at), parent.child(at + 1));
        // SAFETY: a latched node's children are linked.
        let (Some(left), Some(right)) = (unsafe { left.as_ref() }, unsafe { right.as_ref() }) else {
            return Err(Restart);
        };
        let (left, right) = (left.lock_now(), right.lock_now());
        let of_left = left.meta();
        with_entries(|entries| {
            entries.push_node(&left)?;
            if of_left.level > 0 {
                // The separator moves down between the two.
                let mut between = Vec::new();
                parent.key_into(at, parent.version(), &mut between)?;
                let slot = parent.entry_slot(at, parent.meta().level);
                let between = Target::new(&between, slot);
                entries.insert(entries.len(), between, right.child(0));
            }
            entries.push_node(&right)?;
            if let Some(block) = parent.block(at, parent.meta().level) {
                self.pool.free_block(block);
            }
            let of_parent = parent.meta();
            parent.close_gap(at, of_parent.count());
            parent.set_meta(Meta {
                count: of_parent.count - 1,
                ..of_parent
            });
            if entries.len() <= JOINED_MAX {
                self.join_into(entries, left, right);
                Ok(())
            } else {
                self.even_out(entries, &parent, at, &left, &right)
            }
        })
    }

    fn join_into(&self, entries: &mut Entries, left: Locked<'_>, right: Locked<'_>) {
        let meta = right.meta();
        entries.write(0..entries.len(), &left, meta, &self.pool);
        if meta.level == 0 {
            let next = right.neighbour(Side::Right);
            left.set_neighbour(Side::Right, next);
            // SAFETY: a latched leaf's neighbours are linked.
            if let Some(behind) = unsafe { next.as_ref() } {
                let address = ptr::from_ref(left.node()).cast_mut();
                behind.lock_now().set_neighbour(Side::Left, address);
            }
        }
        drop(left);
        self.pool.free_node(right);
    }

    fn even_out(
        &self,
        entries: &mut Entries,
        parent: &Locked<'_>,
        at: usize,
        left: &Locked<'_>,
        right: &Locked<'_>,
    ) -> Result<(), Restart> {
        let (of_left, of_right) = (left.meta(), right.meta());
        let middle = entries.len() / 2;
        let right_address = ptr::from_ref(right.node()).cast_mut();
        if of_left.level == 0 {
            let (separator_len, slot) = entries.separator(middle);
            let key = entries.key(middle).get(..separator_len).unwrap_or_default();
            self.insert_above(parent, at, Target::new(key, slot), right_address)?;
            entries.write(middle..entries.len(), right, of_right, &self.pool);
            let of_left = Meta {
                continues: slot != 0,
                ..of_left
            };
            entries.write(0..middle, left, of_left, &self.pool);
        } else {
            let separator = Target::new(entries.key(middle), entries.slot(middle));
            self.insert_above(parent, at, separator, right_address)?;
            entries.drop_block(middle, &self.pool);
            right.set_first_child(entries.child(middle));
            entries.write(middle + 1..entries.len(), right, of_right, &self.pool);
            entries.write(0..middle, left, of_left, &self.pool);
        }
        Ok(())
    }
}
