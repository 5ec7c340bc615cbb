//! Reads a range leaf by leaf, forwards or backwards, in batches that are copied out and validated before
//! anybody sees them.
//!
//! From one leaf the reader goes to its neighbour if the leaf is unchanged since it was read; otherwise it
//! descends again to the position of the last entry that was returned. So no entry that stays is missed or
//! returned twice, whatever is split or merged in the meantime, and no latch is held while a batch is
//! processed.
//!
//! While an old reader is there, entries stay whose rows everybody else finds removed: at the beginning of a
//! queue there may be many. Who reads such a row tells the cursor, which marks the entry in the leaf, so that
//! later readers go past it without visiting its row ([`Cursor::mark_gone`]). A slot is not used again before
//! its entries are removed, so a mark stays true; it is lost when the leaf is split or merged.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use super::node::{Node, Places, Restart, Side, Version};
use super::target::Target;
use super::{Child, OrderedIndex};
use crate::memory::SlotId;
use weft_base::BatchId;

/// Entries of one leaf, in the order of the range, with their keys. Meant to be reused.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    slots: Vec<SlotId>,
    /// Where each key ends in `keys`.
    ends: Vec<usize>,
    keys: Vec<u8>,
    /// Where the entries are in their leaf.
    places: Places,
    reverse: bool,
    /// The last entry returned, by its key; `None` at the beginning.
    last: Option<SlotId>,
    last_key: Vec<u8>,
}

impl Batch {
    /// The entries' slots.
    pub(crate) fn slots(&self) -> &[SlotId] {
        &self.slots
    }

    /// The entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], SlotId)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let keys = starts
            .zip(&self.ends)
            .map(|(start, end)| self.keys.get(start..*end));
        keys.map(Option::unwrap_or_default)
            .zip(self.slots.iter().copied())
    }

    /// Where each entry is in its leaf.
    fn place_of(&self, at: usize) -> Option<usize> {
        let mut places = self.places;
        if self.reverse {
            places.nth_back(at)
        } else {
            places.nth(at)
        }
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.ends.clear();
        self.keys.clear();
    }

    /// Appends entries of a leaf, which are valid if the leaf is unchanged.
    fn copy(&mut self, leaf: &Node, version: Version, places: Places, reverse: bool) -> Result<(), Restart> {
        (self.places, self.reverse) = (places, reverse);
        let Batch {
            slots, ends, keys, ..
        } = self;
        ends.reserve(places.len());
        let see = |_, end| ends.push(end);
        if reverse {
            slots.extend(places.rev().map(|at| SlotId(leaf.slot(at))));
            leaf.keys_into(places.rev(), version, keys, see)
        } else {
            slots.extend(places.map(|at| SlotId(leaf.slot(at))));
            leaf.keys_into(places, version, keys, see)
        }
    }

    /// All of these entries are passed over: if the position is looked up again, the range goes on behind
    /// them.
    fn pass(&mut self, leaf: &Node, version: Version, all: Places, reverse: bool) -> Result<(), Restart> {
        let mut places = all;
        if let Some(last) = if reverse {
            places.next()
        } else {
            places.next_back()
        } {
            leaf.key_into(last, version, &mut self.keys)?;
            let slot = leaf.slot(last);
            leaf.check(version)?;
            self.last = Some(SlotId(slot));
            std::mem::swap(&mut self.last_key, &mut self.keys);
            self.keys.clear();
        }
        leaf.check(version)
    }

    fn remember_last(&mut self) {
        let Some(slot) = self.slots.last() else {
            return;
        };
        self.last = Some(*slot);
        let start = self.ends.iter().rev().nth(1).copied().unwrap_or(0);
        self.last_key.clear();
        self.last_key
            .extend_from_slice(self.keys.get(start..).unwrap_or_default());
    }
}

/// Where a range continues.
struct NextLeaf<'i> {
    node: &'i Node,
    version: Version,
    /// It was reached from the leaf read before.
    is_neighbour: bool,
}

/// A range that is being read.
pub(crate) struct Cursor<'i, 'k> {
    index: &'i OrderedIndex,
    from: Target<'k>,
    to: Option<Target<'k>>,
    reverse: bool,
    /// Marked entries that are older are passed over.
    horizon: u64,
    /// The last leaf read within the range, and its version.
    leaf: Option<(&'i Node, Version)>,
    /// The leaf of the last batch, and its version.
    source: Option<(&'i Node, Version)>,
    is_begun: bool,
    is_done: bool,
}

impl OrderedIndex {
    /// Begins to read a range, for a reader that sees batches up to `horizon`. A bound that is a prefix of a
    /// key sorts before the key.
    pub(crate) fn range<'i, 'k>(
        &'i self,
        lo: Bound<&'k [u8]>,
        hi: Bound<&'k [u8]>,
        reverse: bool,
        horizon: BatchId,
    ) -> Cursor<'i, 'k> {
        Cursor {
            index: self,
            from: Target::of_lower(lo),
            to: Target::of_upper(hi),
            reverse,
            horizon: horizon.0,
            leaf: None,
            source: None,
            is_begun: false,
            is_done: false,
        }
    }
}

impl<'i> Cursor<'i, '_> {
    /// Puts the next entries into `batch`, which must be the one of the previous call, at most `most` of
    /// them; false if there are none.
    pub(crate) fn next(&mut self, batch: &mut Batch, most: usize) -> bool {
        if self.is_done {
            return false;
        }
        if self.is_begun {
            batch.remember_last();
        } else {
            batch.last = None;
            self.is_begun = true;
        }
        while !self.is_done {
            batch.clear();
            // After a concurrent change the position is looked up again.
            match self.follow(batch).and_then(|leaf| self.read(leaf, batch, most)) {
                Ok(()) if !batch.slots.is_empty() => return true,
                Ok(()) => {}
                Err(Restart) => self.leaf = None,
            }
        }
        batch.clear();
        false
    }

    /// Marks entries of the last batch: for readers of batch `since` and later ones, their rows are removed,
    /// and will not come back. If the leaf has changed in the meantime, nothing happens.
    pub(crate) fn mark_gone(&mut self, batch: &Batch, entries: impl Iterator<Item = usize>, since: BatchId) {
        let places: Places = entries.filter_map(|at| batch.place_of(at)).collect();
        let Some((leaf, version)) = self.source else {
            return;
        };
        // A reader that is too old to trust the marks finds the rows gone by itself.
        let is_marked = leaf.gone(leaf.meta(), places, u64::MAX) == places;
        if is_marked && leaf.gone_since.load(Ordering::Relaxed) >= since.0 {
            return;
        }
        let Ok(locked) = leaf.lock(version) else {
            return;
        };
        locked.mark_gone(places, since.0);
        let marked = (leaf, locked.version_after());
        drop(locked);
        self.source = Some(marked);
        if self.leaf.is_some() {
            self.leaf = Some(marked);
        }
    }

    /// Where the range begins, or continues after the last entry that was returned.
    fn bounds<'b>(&'b self, batch: &'b Batch) -> (Target<'b>, Option<Target<'b>>) {
        let Some(slot) = batch.last else {
            return (self.from, self.to);
        };
        let key = &batch.last_key;
        if self.reverse {
            (self.from, Some(Target::new(key, slot.0)))
        } else {
            (Target::new(key, slot.0 + 1), self.to)
        }
    }

    /// The leaf to read next; `None` at the end of the tree.
    fn follow(&self, batch: &Batch) -> Result<Option<NextLeaf<'i>>, Restart> {
        if let Some((leaf, version)) = self.leaf {
            let next = self.index.neighbour_of(leaf, version, self.side())?;
            return Ok(next.map(|(node, version)| NextLeaf {
                node,
                version,
                is_neighbour: true,
            }));
        }
        let (from, to) = self.bounds(batch);
        let target = if self.reverse { to } else { Some(from) };
        let Child { node, version, .. } = self.index.leaf_of(target)?;
        Ok(Some(NextLeaf {
            node,
            version,
            is_neighbour: false,
        }))
    }

    fn side(&self) -> Side {
        if self.reverse { Side::Left } else { Side::Right }
    }

    /// Copies a leaf's part of the range, or `most` entries of it.
    fn read(&mut self, leaf: Option<NextLeaf<'i>>, batch: &mut Batch, most: usize) -> Result<(), Restart> {
        let Some(NextLeaf {
            node,
            version,
            is_neighbour,
        }) = leaf
        else {
            self.is_done = true;
            return Ok(());
        };
        let meta = node.meta();
        Node::fetch_neighbour(node.neighbour(self.side()));
        let (start, end) = {
            let (from, to) = self.bounds(batch);
            // All of a neighbour's entries are beyond those returned.
            let start = if is_neighbour && !self.reverse {
                0
            } else {
                node.place(&from, version, meta)?.at
            };
            let end = match to {
                Some(to) if !(is_neighbour && self.reverse) => node.place(&to, version, meta)?.at,
                _ => meta.count(),
            };
            (start, end)
        };
        let is_last = if self.reverse {
            start > 0
        } else {
            end < meta.count()
        };
        let all = Places::of(start..end);
        let there = all.without(node.gone(meta, all, self.horizon));
        let places = there.first(most, self.reverse);
        batch.copy(node, version, places, self.reverse)?;
        if there.is_empty() {
            batch.pass(node, version, all, self.reverse)?;
        } else {
            node.check(version)?;
        }
        self.source = Some((node, version));
        if places == there {
            self.leaf = self.source;
            self.is_done = is_last;
        } else {
            // If more entries are needed, the position after the last one is looked up.
            self.leaf = None;
        }
        Ok(())
    }
}
