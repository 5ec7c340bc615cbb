//! Where a key stands in a node.
//!
//! The prefix is compared once, then a binary search without branches goes over the heads, which as a rule
//! tell the keys of a node apart; only entries with the key's very head are looked at any closer, by the word
//! behind it. What was found holds if the node's version is still the same.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::node::{CODE_BLOCK, Changed, HEAD_BYTES, LEN_MASK, Meta, Node, SLOT_BITS, Version, race_point};
use super::pool::Block;
use super::target::{Target, WORD_BYTES, head_mask};

/// Where a target stands in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Entries before the target.
    pub(super) at: usize,
    /// The target's key begins with the node's prefix.
    pub(super) has_prefix: bool,
}

/// What of a target's key follows a node's prefix.
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
    ) -> Result<usize, Changed> {
        Ok(self.find::<false>(target, version, meta)?.at)
    }

    /// How many entries of a leaf are below the target.
    #[inline(always)]
    pub(super) fn place(&self, target: &Target<'_>, version: Version, meta: Meta) -> Result<Found, Changed> {
        self.find::<true>(target, version, meta)
    }

    #[inline(always)]
    fn find<const LEAF: bool>(
        &self,
        target: &Target<'_>,
        version: Version,
        meta: Meta,
    ) -> Result<Found, Changed> {
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

    /// The place behind a leaf's entry, if the key is above that entry and below the next one. `None` where
    /// more than a look at both would be needed to know.
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

    /// Compares the words of a leaf's entry with those of a target that has its prefix. Equal words say
    /// nothing.
    #[inline(always)]
    fn compare_words(&self, at: usize, rest: Rest<'_, '_>) -> Order {
        let head = self.head(at);
        if head != rest.head {
            return head.cmp(&rest.head);
        }
        if self.word(at).addr() >> SLOT_BITS == CODE_BLOCK {
            return Order::Equal;
        }
        (self.rest(at).addr() as u64).cmp(&rest.word())
    }

    /// Compares a target's key with the prefix.
    #[inline(always)]
    pub(super) fn compare_prefix(&self, target: &Target<'_>, prefix_len: usize) -> Order {
        let (mut wanted, prefix) = (target.word_at(0), self.prefix.load(Ordering::Relaxed));
        if prefix_len < WORD_BYTES {
            wanted &= head_mask(prefix_len);
        }
        if wanted != prefix {
            return wanted.cmp(&prefix);
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
        let mut wanted = target.word_at(at);
        if prefix_len < at + WORD_BYTES {
            wanted &= head_mask(prefix_len);
        }
        let prefix = self.prefix_more.get(number);
        wanted.cmp(&prefix.map_or(0, |word| word.load(Ordering::Relaxed)))
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

    /// [`Node::find`] among some entries that begin with ones that have the target's head.
    #[inline(never)]
    fn find_among_equal_heads<const LEAF: bool>(
        &self,
        places: Range<usize>,
        target: &Target<'_>,
        version: Version,
        prefix_len: usize,
    ) -> Result<usize, Changed> {
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

    /// The entry is before the target, which has its prefix and head; a separator also if it is the target.
    #[inline(always)]
    fn is_below<const LEAF: bool>(
        &self,
        at: usize,
        rest: Rest<'_, '_>,
        version: Version,
    ) -> Result<bool, Changed> {
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
    ) -> Result<Order, Changed> {
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
    fn separator_slot(&self, at: usize, version: Version) -> Result<u64, Changed> {
        let rest = self.rest(at);
        if rest.addr() & LEN_MASK != 0 {
            return Ok(0);
        }
        self.check(version)?;
        Ok(Block::from_raw(rest).ok_or(Changed)?.slot())
    }

    /// [`Node::compare`] for the keys alone.
    #[inline(always)]
    fn compare_keys<const LEAF: bool>(
        &self,
        at: usize,
        rest: Rest<'_, '_>,
        version: Version,
    ) -> Result<Order, Changed> {
        let (code, word) = if LEAF {
            let code = self.word(at).addr() >> SLOT_BITS;
            // The rests lie lines away: they are looked at only if there is one.
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
        let wanted = rest.word();
        if word != wanted {
            return Ok(word.cmp(&wanted));
        }
        let tail_len = rest.target.key.len().saturating_sub(rest.prefix_len);
        Ok(code.cmp(&tail_len.min(CODE_BLOCK)))
    }

    /// [`Node::compare_keys`] for an entry whose key is in a block.
    #[inline(never)]
    fn compare_block(&self, at: usize, rest: Rest<'_, '_>, version: Version) -> Result<Order, Changed> {
        let block = self.rest(at);
        // Before the pointer is followed, and before the length is.
        self.check(version)?;
        let block = Block::from_raw(block).ok_or(Changed)?;
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
    ) -> Result<bool, Changed> {
        race_point();
        let rest = Rest::of(target, meta.prefix_len());
        if !self.has_head(at, rest.head, meta.count()) {
            return Ok(false);
        }
        Ok(self.compare_keys::<true>(at, rest, version)? == Order::Equal)
    }
}
