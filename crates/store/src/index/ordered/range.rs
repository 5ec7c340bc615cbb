//! Reading a range: leaf by leaf, forwards or backwards, in batches that are copied out and checked before
//! anybody sees them.
//!
//! From one leaf the reader goes to its neighbour if the leaf is still as it was read; otherwise it goes down
//! the tree again, to where the last entry that was shown stood. So nothing that stays is missed or shown
//! twice, whatever is split or joined meanwhile, and no latch is held while a batch is looked at.

use std::ops::Bound;

use super::node::{Changed, Node, Side, Version};
use super::target::Target;
use super::{Leaf, OrderedIndex};
use crate::memory::SlotId;

/// Entries of one leaf, in the order of the range, with their keys. Made to be used again.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    slots: Vec<SlotId>,
    /// Where each key ends in `keys`.
    ends: Vec<usize>,
    keys: Vec<u8>,
    /// The last entry shown, by its key; `None` at the beginning.
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

    fn clear(&mut self) {
        self.slots.clear();
        self.ends.clear();
        self.keys.clear();
    }

    fn remember_last(&mut self) {
        let last = self.entries().last().map(|(key, slot)| (key.len(), slot));
        if let Some((len, slot)) = last {
            self.last = Some(slot);
            self.last_key.clear();
            let start = self.keys.len() - len;
            self.last_key
                .extend_from_slice(self.keys.get(start..).unwrap_or_default());
        }
    }
}

/// A range that is being read.
pub(crate) struct Cursor<'i, 'k> {
    index: &'i OrderedIndex,
    from: Target<'k>,
    to: Option<Target<'k>>,
    reverse: bool,
    /// The leaf read last, and how it was.
    leaf: Option<(&'i Node, Version)>,
    is_done: bool,
}

impl OrderedIndex {
    /// Begins to read a range. A bound that is a key's beginning sorts before the key.
    pub(crate) fn range<'i, 'k>(
        &'i self,
        lo: Bound<&'k [u8]>,
        hi: Bound<&'k [u8]>,
        reverse: bool,
    ) -> Cursor<'i, 'k> {
        Cursor {
            index: self,
            from: Target::of_lower(lo),
            to: Target::of_upper(hi),
            reverse,
            leaf: None,
            is_done: false,
        }
    }
}

impl<'i> Cursor<'i, '_> {
    /// Puts the next entries into `batch`, the one that it was given before; false when there are none.
    pub(crate) fn next(&mut self, batch: &mut Batch) -> bool {
        if self.leaf.is_none() {
            batch.last = None;
        }
        while !self.is_done {
            batch.clear();
            // Who was disturbed at a leaf looks for its place again.
            let leaf = match self.follow(batch) {
                Ok(leaf) => leaf,
                Err(Changed) => {
                    self.leaf = None;
                    continue;
                }
            };
            let Some((node, version)) = leaf else {
                self.is_done = true;
                break;
            };
            if let Ok(is_last) = self.read(node, version, batch) {
                self.leaf = Some((node, version));
                self.is_done = is_last;
                if !batch.slots.is_empty() {
                    batch.remember_last();
                    return true;
                }
            } else {
                self.leaf = None;
            }
        }
        batch.clear();
        false
    }

    /// Where the range begins, or goes on behind the last entry that was shown.
    fn bounds<'b>(&'b self, batch: &'b Batch) -> (Target<'b>, Option<Target<'b>>) {
        let Some(slot) = batch.last else {
            return (self.from, self.to);
        };
        let key = &batch.last_key;
        if self.reverse {
            (self.from, Some(Target { key, slot: slot.0 }))
        } else {
            let slot = slot.0 + 1;
            (Target { key, slot }, self.to)
        }
    }

    /// The leaf to read next; `None` at the end of the tree.
    fn follow(&self, batch: &Batch) -> Result<Option<(&'i Node, Version)>, Changed> {
        let side = if self.reverse { Side::Left } else { Side::Right };
        if let Some((leaf, version)) = self.leaf {
            return self.index.neighbour_of(leaf, version, side);
        }
        let (from, to) = self.bounds(batch);
        let target = if self.reverse { to } else { Some(from) };
        let Leaf { node, version, .. } = self.index.leaf_of(target)?;
        Ok(Some((node, version)))
    }

    /// Copies a leaf's part of the range; returns whether the range ends there.
    fn read(&self, leaf: &Node, version: Version, batch: &mut Batch) -> Result<bool, Changed> {
        let count = leaf.meta().count();
        let side = if self.reverse { Side::Left } else { Side::Right };
        Node::fetch_neighbour(leaf.neighbour(side));
        let (start, end) = {
            let (from, to) = self.bounds(batch);
            let end = match to {
                Some(to) => leaf.search(to, false, version)?.at,
                None => count,
            };
            (leaf.search(from, false, version)?.at, end)
        };
        for number in 0..end.saturating_sub(start) {
            let at = if self.reverse {
                end - 1 - number
            } else {
                start + number
            };
            batch.slots.push(SlotId(leaf.slot(at)));
            leaf.key_into(at, version, &mut batch.keys)?;
            batch.ends.push(batch.keys.len());
        }
        leaf.check(version)?;
        Ok(if self.reverse { start > 0 } else { end < count })
    }
}
