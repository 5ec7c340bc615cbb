//! Ordered index: a B+-tree of (key, slot) in cache lines, which readers look at without a latch.
//!
//! ```text
//!   root (stays)  -> nodes of separators -> leaves, linked both ways -> slots
//! ```
//!
//! A reader goes down from the root, notes each node's version, and looks at the version again before it
//! trusts what it read; if a writer was there it starts anew. A writer goes down the same way and latches
//! only what it changes: one leaf as a rule. Readers write nothing, so any number of them share the upper
//! nodes in their caches; and a descent is a sequence of separable steps, so that many can be under way at
//! once ([`OrderedIndex::begin_descent`]). Memory goes back to the index at once, without waiting for
//! readers (`pool.rs`).
//!
//! - `target`: positions in the order, keys as words. `node`: a node and its version. `pool`: memory.
//! - `search`: places in a node. `latch`: changes of a node. `hint`: where a thread added last.
//! - `change`: splits and joins. `range`: reading in order, forwards and backwards.
//!
//! Invariants:
//! 1. An entry that is there during the whole of a lookup or range read is found, once, in its place;
//!    what comes or goes meanwhile may be seen or not.
//! 2. A child holds the entries from the separator left of it, included, up to the one right of it.
//! 3. Nodes but the root and the edges of the tree hold at least a quarter of what they could, or will when
//!    somebody next removes from them.
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
use node::{Changed, ENTRIES_MAX, ENTRIES_MIN, Meta, Node, Side, Version, interruption_point, race_point};
use pool::Pool;
pub(crate) use range::Batch;
use target::Target;

/// Levels above the leaves whose nodes a descent waits for; those above are in the cache.
const COLD_LEVELS: u8 = 1;
const COUNTERS: usize = 8;

/// A sorted multimap from keys to slots.
pub(crate) struct OrderedIndex {
    /// Lives in the pool.
    root: NonNull<Node>,
    pool: Pool,
    /// Tells indexes apart as long as the process lives.
    id: u64,
    /// Entries; a leaf's address chooses the counter, so that writers seldom share one.
    counters: [Counter; COUNTERS],
}

// SAFETY: nodes are made of atomic words and live as long as the pool; who may change one says its latch.
unsafe impl Send for OrderedIndex {}
// SAFETY: as above.
unsafe impl Sync for OrderedIndex {}

#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicI64);

/// A node that a descent has come to, and how: the parent had this version when the node had this one.
struct Child<'i> {
    node: &'i Node,
    version: Version,
    /// The node's parent, and how many of its separators are left of the node.
    parent: &'i Node,
    parent_version: Version,
    at: usize,
    /// No separator of the parent is right of the node. Kept, because a look at the parent after the
    /// descent may find another version.
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

/// A descent on its way: names a node of one index. No pointer that outlives its index is followed: the
/// index's number is checked first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descent {
    index: u64,
    node: *const Node,
}

// SAFETY: the pointer is followed only by who holds the index that it belongs to.
unsafe impl Send for Descent {}
// SAFETY: as above.
unsafe impl Sync for Descent {}

/// Where a step of a descent has led.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// To a node that is being fetched.
    Down(Descent),
    /// To the first entry that is not below the key, perhaps.
    Entry(SlotId),
    /// Nowhere: the place is at a leaf's end, or the tree is being changed.
    Nothing,
}

impl Descent {
    /// What the next step looks at, so many bytes: for hints.
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
            node.set_prefix(&[]);
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
    fn child_of<'i>(&'i self, node: &'i Node, version: Version, at: usize) -> Result<&'i Node, Changed> {
        let child = node.child(at);
        node.check(version)?;
        // SAFETY: a child at the checked moment, so node memory of this pool, which it stays.
        unsafe { child.as_ref() }.ok_or(Changed)
    }

    /// The leaf that the target belongs to; the last one without a target. `version` is the root's: what the
    /// caller saw of the root holds all the way. `visit` sees each child above the leaves before the descent
    /// goes on from it.
    #[inline(always)]
    fn descend<'i>(
        &'i self,
        mut version: Version,
        target: Option<Target<'_>>,
        mut visit: impl FnMut(&Child<'i>) -> Result<(), Changed>,
    ) -> Result<Child<'i>, Changed> {
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
    fn leaf_of(&self, target: Option<Target<'_>>) -> Result<Child<'_>, Changed> {
        self.descend(self.root().read(), target, |_| Ok(()))
    }

    /// Repeats what meets with changes until it does not.
    #[inline(always)]
    fn until_unchanged<R>(mut work: impl FnMut() -> Result<R, Changed>) -> R {
        loop {
            match work() {
                Ok(result) => return result,
                Err(Changed) => std::hint::spin_loop(),
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
        Self::until_unchanged(|| self.try_add(target, false))
    }

    /// Adds the entry unless the key has one, or might have: uniqueness and addition for one descent. False
    /// says that nothing was added and that the caller has to look.
    pub(crate) fn add_alone(&self, key: &[u8], slot: SlotId) -> bool {
        let target = Target::new(key, slot.0);
        Self::until_unchanged(|| self.try_add(target, true))
    }

    fn try_add(&self, target: Target<'_>, alone: bool) -> Result<bool, Changed> {
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

    /// Adds an entry behind the one that was added to the leaf before, if it belongs there and no other has
    /// its key.
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
        // All that was read is from this version.
        let Ok(locked) = leaf.lock(version) else {
            return false;
        };
        self.insert_with_prefix(&locked, meta, at, target, ptr::null_mut());
        hint.set_version(locked.version_after());
        drop(locked);
        self.count(leaf, 1);
        true
    }

    fn add_by_descent(&self, hint: &Hint, target: Target<'_>, alone: bool) -> Result<bool, Changed> {
        // All entries with a key stand behind this place, from there on.
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
            return Ok(false);
        }
        // Who adds behind the entry that was added last may well do it again.
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

    /// As [`OrderedIndex::leaf_of`]; what is full above the leaf is split on the way. Also names the
    /// separator right of the leaf, if there is one.
    #[inline(always)]
    fn leaf_with_room_above<'i>(
        &'i self,
        target: Target<'_>,
    ) -> Result<(Child<'i>, Option<Separator<'i>>), Changed> {
        let version = self.root().read();
        if self.root().meta().count() == ENTRIES_MAX {
            self.grow_root(version)?;
            return Err(Changed);
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
            Err(Changed)
        })?;
        interruption_point();
        race_point();
        let above = leaf.separator().or(above);
        Ok((leaf, above))
    }

    /// Removes the entry if it is there.
    pub(crate) fn remove(&self, key: &[u8], slot: SlotId) {
        let target = Target::new(key, slot.0);
        if Self::until_unchanged(|| self.try_remove(target)) {
            self.tidy_up(target);
        }
    }

    /// Returns whether the leaf has few entries left.
    fn try_remove(&self, target: Target<'_>) -> Result<bool, Changed> {
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
        Self::until_unchanged(|| {
            out.truncate(start);
            self.try_candidates(key, out)
        });
    }

    #[inline]
    fn try_candidates(&self, key: &[u8], out: &mut Candidates) -> Result<(), Changed> {
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

    /// A leaf's neighbour and its version, when all that was read of the leaf holds.
    #[inline]
    fn neighbour_of<'i>(
        &'i self,
        leaf: &'i Node,
        version: Version,
        side: Side,
    ) -> Result<Option<(&'i Node, Version)>, Changed> {
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

    /// Goes down for a key as far as nodes are likely to be in the cache. The caller fetches what the descent
    /// names, and turns to another meanwhile. Hints only: nothing is promised about where it leads.
    #[inline]
    pub(crate) fn begin_descent(&self, key: &[u8]) -> Descent {
        let mut descent = Descent {
            index: self.id,
            node: self.root.as_ptr(),
        };
        // Counted, not read from the node that was reached: that one may be far.
        for _ in COLD_LEVELS..self.root().meta().level {
            match self.step(descent, key) {
                Step::Down(next) => descent = next,
                Step::Entry(_) | Step::Nothing => break,
            }
        }
        descent
    }

    /// Looks at the node that a descent has come to.
    #[inline]
    pub(crate) fn step(&self, descent: Descent, key: &[u8]) -> Step {
        if descent.index != self.id {
            return Step::Nothing;
        }
        // SAFETY: a node of this very index, whose memory stays one while it lives.
        let node = unsafe { &*descent.node };
        let target = Target::before(key);
        let step = || -> Result<Step, Changed> {
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

    /// Entries. May miss some that come or go meanwhile.
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
        Ok::<_, Changed>(words)
    };
    read().unwrap_or(ABOVE_NONE)
}

#[cfg(test)]
mod tests;
