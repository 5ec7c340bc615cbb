//! Finds the position of a key in a node.
//!
//! The prefix is compared once, then a binary search without branches goes over the heads, which usually tell
//! the keys of a node apart; only entries with an equal head are compared further, by the following word. The
//! result is valid if the node's version is unchanged.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::node::{CODE_BLOCK, HEAD_BYTES, LEN_MASK, Meta, Node, Restart, Version, race_point};
use super::pool::Block;
use super::target::{Target, WORD_BYTES, head_mask};

/// The position of a target in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Entries before the target.
    pub(super) at: usize,
    /// The target's key begins with the node's prefix.
    pub(super) has_prefix: bool,
}

/// The part of a target's key after a node's prefix.
#[derive(Clone, Copy)]
struct Rest<'t, 'k> {
    target: &'t Target<'k>,
    prefix_len: usize,
    head: u32,
}

impl<'t, 'k> Rest<'t, 'k> {
    #[inline(always)]
    fn of(target: &'t Target<'k>, prefix_len: usize) -> Self {
        let head = target.head_at(prefix_len);
        Rest {
            target,
            prefix_len,
            head,
        }
    }

    /// The eight bytes behind the head.
    #[inline(always)]
    fn word(self) -> u64 {
        self.target.word_at(self.prefix_len + HEAD_BYTES)
    }
}

impl Node {
    /// How many separators are not above the target.
    #[inline(always)]
    pub(super) fn child_place(
        &self,
        target: &Target<'_>,
        version: Version,
        meta: Meta,
    ) -> Result<usize, Restart> {
        Ok(self.find::<false>(target, version, meta)?.at)
    }

    /// How many entries of a leaf are below the target.
    #[inline(always)]
    pub(super) fn place(&self, target: &Target<'_>, version: Version, meta: Meta) -> Result<Found, Restart> {
        self.find::<true>(target, version, meta)
    }

    #[inline(always)]
    fn find<const LEAF: bool>(
        &self,
        target: &Target<'_>,
        version: Version,
        meta: Meta,
    ) -> Result<Found, Restart> {
        match self.compare_prefix(target, meta.prefix_len()) {
            Order::Equal => {}
            order => {
                return Ok(Found {
                    at: if order == Order::Less { 0 } else { meta.count() },
                    has_prefix: false,
                });
            }
        }
        let rest = Rest::of(target, meta.prefix_len());
        let count = meta.count();
        let mut at = self.heads_below(rest.head).min(count);
        if self.has_head(at, rest.head, count) && self.is_below::<LEAF>(at, rest, version)? {
            at += 1;
            if self.has_head(at, rest.head, count) {
                at = self.find_among_equal_heads::<LEAF>(at..count, target, version, rest.prefix_len)?;
            }
        }
        Ok(Found { at, has_prefix: true })
    }

    /// The position after a leaf's entry, if the key is between that entry and the next one. `None` if more
    /// than comparing with both would be needed.
    #[inline(always)]
    pub(super) fn place_behind(&self, at: usize, target: &Target<'_>, meta: Meta) -> Option<usize> {
        if at >= meta.count() || self.compare_prefix(target, meta.prefix_len()).is_ne() {
            return None;
        }
        let rest = Rest::of(target, meta.prefix_len());
        let next = at + 1;
        let is_there = self.compare_words(at, rest).is_lt()
            && (next == meta.count() || self.compare_words(next, rest).is_gt());
        is_there.then_some(next)
    }

    /// Compares the words of a leaf's entry with those of a target that has its prefix. Equal words decide
    /// nothing.
    #[inline(always)]
    fn compare_words(&self, at: usize, rest: Rest<'_, '_>) -> Order {
        let head = self.head(at);
        if head != rest.head {
            return head.cmp(&rest.head);
        }
        if self.code(at) == CODE_BLOCK {
            return Order::Equal;
        }
        (self.rest(at).addr() as u64).cmp(&rest.word())
    }

    /// Compares a target's key with the prefix.
    #[inline(always)]
    pub(super) fn compare_prefix(&self, target: &Target<'_>, prefix_len: usize) -> Order {
        let (mut list, prefix) = (target.word_at(0), self.prefix.load(Ordering::Relaxed));
        if prefix_len < WORD_BYTES {
            list &= head_mask(prefix_len);
        }
        if list != prefix {
            return list.cmp(&prefix);
        }
        if prefix_len > WORD_BYTES {
            let order = self.compare_prefix_word(0, target, prefix_len);
            if order != Order::Equal {
                return order;
            }
            if prefix_len > 2 * WORD_BYTES {
                return self.compare_long_prefix(target, prefix_len);
            }
        }
        if target.key.len() < prefix_len {
            Order::Less
        } else {
            Order::Equal
        }
    }

    /// Compares one of the words behind the prefix's first.
    #[inline(always)]
    fn compare_prefix_word(&self, number: usize, target: &Target<'_>, prefix_len: usize) -> Order {
        let at = (number + 1) * WORD_BYTES;
        let mut list = target.word_at(at);
        if prefix_len < at + WORD_BYTES {
            list &= head_mask(prefix_len);
        }
        list.cmp(&self.prefix_word_behind(number))
    }

    /// [`Node::compare_prefix`] from the third word on.
    #[inline(never)]
    fn compare_long_prefix(&self, target: &Target<'_>, prefix_len: usize) -> Order {
        (1..prefix_len.div_ceil(WORD_BYTES) - 1)
            .map(|number| self.compare_prefix_word(number, target, prefix_len))
            .find(|order| order.is_ne())
            .unwrap_or(if target.key.len() < prefix_len {
                Order::Less
            } else {
                Order::Equal
            })
    }

    /// How many heads are smaller. Unused heads are never smaller.
    #[inline(always)]
    fn heads_below(&self, head: u32) -> usize {
        self.heads
            .partition_point(|other| other.load(Ordering::Relaxed) < head)
    }

    #[inline(always)]
    fn has_head(&self, at: usize, head: u32, count: usize) -> bool {
        at < count && self.head(at) == head
    }

    /// [`Node::find`] among the entries from the first one that has the target's head.
    #[inline(never)]
    fn find_among_equal_heads<const LEAF: bool>(
        &self,
        places: Range<usize>,
        target: &Target<'_>,
        version: Version,
        prefix_len: usize,
    ) -> Result<usize, Restart> {
        let rest = Rest::of(target, prefix_len);
        let above = self
            .heads
            .partition_point(|other| other.load(Ordering::Relaxed) <= rest.head);
        let (mut low, mut high) = (places.start, above.min(places.end));
        while low < high {
            let middle = low.midpoint(high);
            if self.is_below::<LEAF>(middle, rest, version)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The entry is before the target, which has its prefix and head; a separator also if it equals the
    /// target.
    #[inline(always)]
    fn is_below<const LEAF: bool>(
        &self,
        at: usize,
        rest: Rest<'_, '_>,
        version: Version,
    ) -> Result<bool, Restart> {
        let order = self.compare::<LEAF>(at, rest, version)?;
        Ok(order == Order::Less || !LEAF && order == Order::Equal)
    }

    /// Compares an entry with a target that has its prefix and head.
    #[inline(always)]
    fn compare<const LEAF: bool>(
        &self,
        at: usize,
        rest: Rest<'_, '_>,
        version: Version,
    ) -> Result<Order, Restart> {
        let order = self.compare_keys::<LEAF>(at, rest, version)?;
        if order == Order::Equal {
            let slot = if LEAF {
                self.slot(at)
            } else {
                self.separator_slot(at, version)?
            };
            return Ok(slot.cmp(&rest.target.slot));
        }
        Ok(order)
    }

    /// A separator's slot.
    fn separator_slot(&self, at: usize, version: Version) -> Result<u64, Restart> {
        let rest = self.rest(at);
        if rest.addr() & LEN_MASK != 0 {
            return Ok(0);
        }
        self.check(version)?;
        Ok(Block::from_raw(rest).ok_or(Restart)?.slot())
    }

    /// [`Node::compare`] for the keys alone.
    #[inline(always)]
    fn compare_keys<const LEAF: bool>(
        &self,
        at: usize,
        rest: Rest<'_, '_>,
        version: Version,
    ) -> Result<Order, Restart> {
        let (code, word) = if LEAF {
            let code = self.code(at);
            // The rests are lines away: they are read only if there is one.
            let is_short = code <= HEAD_BYTES;
            (code, if is_short { 0 } else { self.rest(at).addr() as u64 })
        } else {
            let word = self.rest(at).addr() as u64;
            let len = word as usize & LEN_MASK;
            (if len == 0 { CODE_BLOCK } else { len - 1 }, word & !0xff)
        };
        if code == CODE_BLOCK {
            return self.compare_block(at, rest, version);
        }
        let list = rest.word();
        if word != list {
            return Ok(word.cmp(&list));
        }
        let tail_len = rest.target.key.len().saturating_sub(rest.prefix_len);
        Ok(code.cmp(&tail_len.min(CODE_BLOCK)))
    }

    /// [`Node::compare_keys`] for an entry whose key is in a block.
    #[inline(never)]
    fn compare_block(&self, at: usize, rest: Rest<'_, '_>, version: Version) -> Result<Order, Restart> {
        let block = self.rest(at);
        // Before the pointer is followed, and before the length is used.
        self.check(version)?;
        let block = Block::from_raw(block).ok_or(Restart)?;
        let len = block.len();
        self.check(version)?;
        Ok(block.compare_key(len, rest.target, rest.prefix_len + HEAD_BYTES))
    }

    /// The leaf's entry has exactly this key, which begins with the leaf's prefix.
    #[inline(always)]
    pub(super) fn has_key(
        &self,
        at: usize,
        target: &Target<'_>,
        version: Version,
        meta: Meta,
    ) -> Result<bool, Restart> {
        race_point();
        let rest = Rest::of(target, meta.prefix_len());
        if !self.has_head(at, rest.head, meta.count()) {
            return Ok(false);
        }
        Ok(self.compare_keys::<true>(at, rest, version)? == Order::Equal)
    }
}
