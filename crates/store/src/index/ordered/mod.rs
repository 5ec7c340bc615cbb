//! Ordered index: a B+-tree of (key, slot) in cache lines, which readers access without a latch.
//!
//! ```text
//!   root (stays)  -> nodes of separators -> leaves, linked both ways -> slots
//! ```
//!
//! A reader descends from the root, notes each node's version, and checks the version again before it trusts
//! what it read; if a writer interfered it starts over. A writer descends the same way and latches only what
//! it changes: usually one leaf. Readers write nothing, except for marks at entries whose rows are gone
//! (`range.rs`), so any number of them share the upper nodes in their caches; and a descent is a sequence of
//! separate steps, so that many can be in flight at once ([`OrderedIndex::begin_descent`]). Freed memory is
//! reused by the index at once, without waiting for readers (`pool.rs`).
//!
//! - `target`: positions in the order, keys as words. `node`: a node and its version. `pool`: memory.
//! - `search`: places in a node. `latch`: changes of a node. `hint`: where a thread added last.
//! - `change`: splits and joins. `range`: reading in order, forwards and backwards.
//!
//! Invariants:
//! 1. An entry that exists during the whole of a lookup or range read is found, once, in its place; entries
//!    that are added or removed in the meantime may be seen or not. A range passes over entries whose rows
//!    were found gone, so a slot may only be used again when its entries are removed.
//! 2. A child holds the entries from the separator left of it, inclusive, up to the one right of it.
//! 3. Nodes other than the root and the edges of the tree are at least a quarter full, or will be after the
//!    next removal from them.
//!
//! Sources: Leis et al., "The ART of practical synchronization" (2016), section 3.2; Graefe, "Modern B-tree
//! techniques" (2011), chapters 2 and 3; the steps of a descent, BionicDB 4.4.2 (its skiplist pipeline).

mod change;
mod hint;
mod latch;
mod node;
mod pool;
mod range;
mod search;
mod target;

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::hash::Candidates;
use crate::memory::{RowMemory, SlotId};
use hint::{ABOVE_ALL, ABOVE_NONE, Above, Hint, with_hint};
use node::{ENTRIES_MAX, ENTRIES_MIN, Meta, Node, Restart, Side, Version, interruption_point, race_point};
use pool::Pool;
pub(crate) use range::Batch;
use target::Target;

/// Levels above the leaves whose nodes are prefetched in a descent; higher ones are in the cache.
const COLD_LEVELS: u8 = 1;
const COUNTERS: usize = 8;

/// A sorted multimap from keys to slots.
pub(crate) struct OrderedIndex {
    /// Lives in the pool.
    root: NonNull<Node>,
    pool: Pool,
    /// Tells indexes apart for the lifetime of the process.
    id: u64,
    /// Entry counters; a leaf's address chooses one, so that writers seldom share one.
    counters: [Counter; COUNTERS],
}

// SAFETY: nodes consist of atomic words and live as long as the pool; a latch says who may change one.
unsafe impl Send for OrderedIndex {}
// SAFETY: as above.
unsafe impl Sync for OrderedIndex {}

#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicI64);

/// A node that a descent reached, and how: the parent had this version when the node had this one.
struct Child<'i> {
    node: &'i Node,
    version: Version,
    /// The node's parent, and how many of its separators are left of the node.
    parent: &'i Node,
    parent_version: Version,
    at: usize,
    /// No separator of the parent is right of the node. Stored, because the parent may have another version
    /// after the descent.
    is_last: bool,
}

impl<'i> Child<'i> {
    /// The parent's separator right of the node.
    #[inline(always)]
    fn separator(&self) -> Option<Separator<'i>> {
        (!self.is_last).then_some((self.parent, self.parent_version, self.at))
    }
}

/// A separator, and the node that it was found in.
type Separator<'i> = (&'i Node, Version, usize);

/// A descent in progress: names a node of one index. The index's number is checked before the pointer is
/// followed, so it cannot outlive its index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    index: u64,
    node: *const Node,
}

// SAFETY: the pointer is followed only by a holder of the index that it belongs to.
unsafe impl Send for Descent {}
// SAFETY: as above.
unsafe impl Sync for Descent {}

/// The outcome of a step of a descent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A node that is being prefetched.
    Down(Descent),
    /// Probably the first entry that is not below the key.
    Entry(SlotId),
    /// Unknown: the position is at a leaf's end, or the tree is being changed.
    Nothing,
}

impl Descent {
    /// The address and size of what the next step accesses, for hints.
    #[inline(always)]
    pub(crate) fn address(self) -> (*const u8, usize) {
        (self.node.cast(), Node::FETCH_BYTES)
    }
}

impl OrderedIndex {
    pub(crate) fn new(memory: &Arc<RowMemory>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let pool = Pool::new(memory);
        let (root, leaf) = (pool.node(), pool.node());
        for node in [&root, &leaf] {
            node.set_prefix(&[], &pool);
            node.clear_from(0);
        }
        leaf.set_meta(Meta::default());
        root.set_meta(Meta {
            level: 1,
            ..Meta::default()
        });
        root.set_first_child(ptr::from_ref(leaf.node()).cast_mut());
        let address = NonNull::from(root.node());
        drop((root, leaf));
        OrderedIndex {
            root: address,
            pool,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            counters: Default::default(),
        }
    }

    fn root(&self) -> &Node {
        // SAFETY: node memory of this index's pool.
        unsafe { self.root.as_ref() }
    }

    /// A child of a node. The pointer is checked against the version before it is followed.
    #[inline(always)]
    fn child_of<'i>(&'i self, node: &'i Node, version: Version, at: usize) -> Result<&'i Node, Restart> {
        let child = node.child(at);
        node.check(version)?;
        // SAFETY: a child at the checked moment, so node memory of this pool, which it stays.
        unsafe { child.as_ref() }.ok_or(Restart)
    }

    /// The leaf that the target belongs to; the last one without a target. `version` is the root's: what the
    /// caller saw of the root holds for the whole descent. `visit` is called with each child above the leaves
    /// before the descent continues from it.
    #[inline(always)]
    fn descend<'i>(
        &'i self,
        mut version: Version,
        target: Option<Target<'_>>,
        mut visit: impl FnMut(&Child<'i>) -> Result<(), Restart>,
    ) -> Result<Child<'i>, Restart> {
        let mut node = self.root();
        loop {
            let meta = node.meta();
            let at = match target {
                Some(target) => node.child_place(&target, version, meta)?,
                None => meta.count(),
            };
            let child = self.child_of(node, version, at)?;
            if meta.level <= COLD_LEVELS + 1 {
                child.fetch();
            }
            let child_version = child.read();
            node.check(version)?;
            let child = Child {
                node: child,
                version: child_version,
                parent: node,
                parent_version: version,
                at,
                is_last: at == meta.count(),
            };
            if meta.level == 1 {
                return Ok(child);
            }
            visit(&child)?;
            (node, version) = (child.node, child.version);
        }
    }

    /// The leaf that the target belongs to; the last one without a target.
    #[inline]
    fn leaf_of(&self, target: Option<Target<'_>>) -> Result<Child<'_>, Restart> {
        self.descend(self.root().read(), target, |_| Ok(()))
    }

    /// Repeats `work` until no concurrent change interferes.
    #[inline(always)]
    fn retry_while_changed<R>(mut work: impl FnMut() -> Result<R, Restart>) -> R {
        loop {
            match work() {
                Ok(result) => return result,
                Err(Restart) => std::hint::spin_loop(),
            }
        }
    }

    fn count(&self, leaf: &Node, change: i64) {
        let number = ptr::from_ref(leaf).addr() / size_of::<Node>() % COUNTERS;
        if let Some(Counter(counter)) = self.counters.get(number) {
            counter.fetch_add(change, Ordering::Relaxed);
        }
    }

    /// Adds the entry unless it is there; returns whether it was added.
    pub(crate) fn add(&self, key: &[u8], slot: SlotId) -> bool {
        let target = Target::new(key, slot.0);
        Self::retry_while_changed(|| self.try_add(target, false))
    }

    /// Adds the entry unless the key has one, or might have: uniqueness check and insertion in one descent.
    /// If it returns false nothing was added and the caller has to check.
    pub(crate) fn add_alone(&self, key: &[u8], slot: SlotId) -> bool {
        let target = Target::new(key, slot.0);
        Self::retry_while_changed(|| self.try_add(target, true))
    }

    fn try_add(&self, target: Target<'_>, alone: bool) -> Result<bool, Restart> {
        with_hint(self.id, &target, |hint| {
            if let Some((leaf, version)) = hint.leaf(self.id) {
                // SAFETY: the hint is this index's, whose node memory stays node memory while it lives.
                let leaf = unsafe { &*leaf };
                if self.add_at_hint(hint, leaf, version, target) {
                    return Ok(true);
                }
                hint.forget();
            }
            self.add_by_descent(hint, target, alone)
        })
    }

    /// Adds an entry after the one that was added to the leaf last, if it belongs there and no other entry
    /// has its key.
    #[inline]
    fn add_at_hint(&self, hint: &Hint, leaf: &Node, version: Version, target: Target<'_>) -> bool {
        let meta = leaf.meta();
        if meta.count() == ENTRIES_MAX {
            return false;
        }
        let Some(at) = leaf.place_behind(meta.last_added(), &target, meta) else {
            return false;
        };
        if at == meta.count() && !hint.is_above(&target) {
            return false;
        }
        race_point();
        // Everything that was read is from this version.
        let Ok(locked) = leaf.lock(version) else {
            return false;
        };
        self.insert_with_prefix(&locked, meta, at, target, ptr::null_mut());
        hint.set_version(locked.version_after());
        drop(locked);
        self.count(leaf, 1);
        true
    }

    fn add_by_descent(&self, hint: &Hint, target: Target<'_>, alone: bool) -> Result<bool, Restart> {
        // All entries with a key are from this position on.
        let place = if alone { target.before_key() } else { target };
        let (leaf, above) = self.leaf_with_room_above(place)?;
        let meta = leaf.node.meta();
        let found = leaf.node.place(&place, leaf.version, meta)?;
        let is_end = found.at == meta.count();
        let is_taken = !is_end
            && found.has_prefix
            && (alone || leaf.node.slot(found.at) == target.slot)
            && leaf.node.has_key(found.at, &target, leaf.version, meta)?;
        if is_taken || alone && is_end && meta.continues {
            leaf.node.check(leaf.version)?;
            if !alone && meta.has_marks && leaf.node.is_gone(found.at) {
                // Whoever adds the entry has a row for it.
                leaf.node.lock(leaf.version)?.clear_mark(found.at);
            }
            return Ok(false);
        }
        // The next insertion is likely to follow this one.
        let above = (is_end || found.at == meta.last_added() + 1).then(|| key_above(above));
        if meta.count() < ENTRIES_MAX {
            let locked = leaf.node.lock(leaf.version)?;
            if found.has_prefix && meta.count() > 0 {
                self.insert_with_prefix(&locked, meta, found.at, target, ptr::null_mut());
            } else {
                self.insert_into(&locked, found.at, target, ptr::null_mut())?;
            }
            if let Some(above) = above {
                hint.set(self.id, leaf.node, locked.version_after(), above);
            }
        } else {
            let parent = (leaf.parent, leaf.parent_version);
            let right = self.split_leaf(parent, leaf.at, (leaf.node, leaf.version), found.at, target)?;
            if let (Some((right, version)), Some(above)) = (right, above) {
                hint.set(self.id, right, version, above);
            }
        }
        self.count(leaf.node, 1);
        Ok(true)
    }

    /// As [`OrderedIndex::leaf_of`], but splits full nodes above the leaf on the way. Also returns the
    /// separator right of the leaf, if there is one.
    #[inline(always)]
    fn leaf_with_room_above<'i>(
        &'i self,
        target: Target<'_>,
    ) -> Result<(Child<'i>, Option<Separator<'i>>), Restart> {
        let version = self.root().read();
        if self.root().meta().count() == ENTRIES_MAX {
            self.grow_root(version)?;
            return Err(Restart);
        }
        let mut above = None;
        let leaf = self.descend(version, Some(target), |child| {
            race_point();
            above = child.separator().or(above);
            if child.node.meta().count() < ENTRIES_MAX {
                return Ok(());
            }
            let parent = (child.parent, child.parent_version);
            self.split_inner(parent, child.at, (child.node, child.version))?;
            Err(Restart)
        })?;
        interruption_point();
        race_point();
        let above = leaf.separator().or(above);
        Ok((leaf, above))
    }

    /// Removes the entry if it is there.
    pub(crate) fn remove(&self, key: &[u8], slot: SlotId) {
        let target = Target::new(key, slot.0);
        if Self::retry_while_changed(|| self.try_remove(target)) {
            self.tidy_up(target);
        }
    }

    /// Returns whether the leaf has few entries left.
    fn try_remove(&self, target: Target<'_>) -> Result<bool, Restart> {
        let leaf = self.leaf_of(Some(target))?;
        let found = leaf.node.place(&target, leaf.version, leaf.node.meta())?;
        if !found.has_prefix
            || leaf.node.slot(found.at) != target.slot
            || !leaf
                .node
                .has_key(found.at, &target, leaf.version, leaf.node.meta())?
        {
            leaf.node.check(leaf.version)?;
            return Ok(false);
        }
        let locked = leaf.node.lock(leaf.version)?;
        let meta = locked.meta();
        let block = locked.block(found.at, 0);
        locked.close_gap(found.at, meta.count());
        locked.set_meta(Meta {
            count: meta.count - 1,
            ..meta
        });
        drop(locked);
        if let Some(block) = block {
            self.pool.free_block(block);
        }
        self.count(leaf.node, -1);
        Ok(meta.count() <= ENTRIES_MIN)
    }

    /// The slots of entries with this key.
    #[inline]
    pub(crate) fn candidates(&self, key: &[u8], out: &mut Candidates) {
        let start = out.len();
        Self::retry_while_changed(|| {
            out.truncate(start);
            self.try_candidates(key, out)
        });
    }

    #[inline]
    fn try_candidates(&self, key: &[u8], out: &mut Candidates) -> Result<(), Restart> {
        let target = Target::before(key);
        let Child {
            mut node,
            mut version,
            ..
        } = self.leaf_of(Some(target))?;
        loop {
            let meta = node.meta();
            let found = node.place(&target, version, meta)?;
            let mut at = found.at;
            while found.has_prefix && at < meta.count() && node.has_key(at, &target, version, meta)? {
                out.push(SlotId(node.slot(at)));
                at += 1;
            }
            if at < meta.count() || !meta.continues {
                return node.check(version);
            }
            match self.neighbour_of(node, version, Side::Right)? {
                Some(next) => (node, version) = next,
                None => return Ok(()),
            }
        }
    }

    /// A leaf's neighbour and its version, if everything that was read of the leaf is still valid.
    #[inline]
    fn neighbour_of<'i>(
        &'i self,
        leaf: &'i Node,
        version: Version,
        side: Side,
    ) -> Result<Option<(&'i Node, Version)>, Restart> {
        let next = leaf.neighbour(side);
        leaf.check(version)?;
        // SAFETY: a neighbour at the checked moment, so node memory of this pool, which it stays.
        let Some(next) = (unsafe { next.as_ref() }) else {
            return Ok(None);
        };
        let next_version = next.read();
        leaf.check(version)?;
        Ok(Some((next, next_version)))
    }

    /// Descends for a key as far as nodes are likely to be in the cache. The caller prefetches the node that
    /// the descent names and does something else in the meantime. Only a hint: where it leads is not
    /// guaranteed.
    #[inline]
    pub(crate) fn begin_descent(&self, key: &[u8]) -> Descent {
        let mut descent = Descent {
            index: self.id,
            node: self.root.as_ptr(),
        };
        // Counted, not read from the node that was reached: that one may not be in the cache.
        for _ in COLD_LEVELS..self.root().meta().level {
            match self.step(descent, key) {
                Step::Down(next) => descent = next,
                Step::Entry(_) | Step::Nothing => break,
            }
        }
        descent
    }

    /// Continues a descent at the node that it has reached.
    #[inline]
    pub(crate) fn step(&self, descent: Descent, key: &[u8]) -> Step {
        if descent.index != self.id {
            return Step::Nothing;
        }
        // SAFETY: a node of this very index, whose memory stays one while it lives.
        let node = unsafe { &*descent.node };
        let target = Target::before(key);
        let step = || -> Result<Step, Restart> {
            let version = node.read_unlocked()?;
            let meta = node.meta();
            if meta.level > 0 {
                let at = node.child_place(&target, version, meta)?;
                let node = ptr::from_ref(self.child_of(node, version, at)?);
                return Ok(Step::Down(Descent { node, ..descent }));
            }
            let at = node.place(&target, version, meta)?.at;
            let slot = (at < meta.count()).then(|| SlotId(node.slot(at)));
            node.check(version)?;
            Ok(slot.map_or(Step::Nothing, Step::Entry))
        };
        step().unwrap_or(Step::Nothing)
    }

    /// The number of entries. May miss some that are added or removed in the meantime.
    pub(crate) fn len(&self) -> usize {
        let counters = self.counters.iter();
        let sum: i64 = counters.map(|counter| counter.0.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }

    /// Memory of nodes and keys.
    pub(crate) fn size_bytes(&self) -> usize {
        self.pool.size_bytes()
    }
}

/// A key that all entries left of the separator are below.
fn key_above(separator: Option<Separator<'_>>) -> Above {
    let Some((node, version, at)) = separator else {
        return ABOVE_ALL;
    };
    let read = || {
        let words = node.key_words(at, version)?;
        node.check(version)?;
        Ok::<_, Restart>(words)
    };
    read().unwrap_or(ABOVE_NONE)
}

#[cfg(test)]
mod tests;
