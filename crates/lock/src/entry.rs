//! One lock: the granted group and the waiting group (Barthels, figure 5.2).
//!
//! The granted group is a counter per mode; the set of modes with a counter above zero decides whether a
//! request fits. Holders are listed as well, since waiting transactions wait for them. The waiting group is
//! first in, first out, with conversions (a holder that requests a stronger mode) before all others.

use std::collections::VecDeque;

use smallvec::SmallVec;
use weft_base::TxnId;

use crate::mode::{LockMode, MODE_COUNT};

/// A request in the waiting group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub txn: TxnId,
    /// The mode that it will hold once granted (for a conversion: the join of the held and the requested
    /// mode).
    pub target: LockMode,
    /// What it holds now; NL unless it is a conversion.
    pub held: LockMode,
    /// When it began to wait, on the table's clock.
    pub since_nanos: u64,
}

impl Waiter {
    pub fn is_conversion(&self) -> bool {
        self.held != LockMode::NL
    }
}

/// A lock with its two groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockEntry {
    counts: [u32; MODE_COUNT],
    /// Set of modes whose counter is above zero.
    granted: u8,
    /// By transaction, ascending; few locks have many.
    holders: SmallVec<[(TxnId, LockMode); 2]>,
    queue: VecDeque<Waiter>,
}

impl LockEntry {
    pub fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    /// The set of granted modes.
    pub fn granted(&self) -> u8 {
        self.granted
    }

    /// The set of modes granted to others than a transaction that holds `held`.
    fn granted_except(&self, held: LockMode) -> u8 {
        let only_own = self.counts[held as usize] == 1;
        if held != LockMode::NL && only_own {
            self.granted & !held.bit()
        } else {
            self.granted
        }
    }

    pub fn holders(&self) -> impl Iterator<Item = (TxnId, LockMode)> + '_ {
        self.holders.iter().copied()
    }

    pub fn queue(&self) -> &VecDeque<Waiter> {
        &self.queue
    }

    /// The position of a transaction among the holders, or where it would be inserted.
    fn place_of(&self, txn: TxnId) -> Result<usize, usize> {
        self.holders.binary_search_by_key(&txn, |(holder, _)| *holder)
    }

    pub fn held_by(&self, txn: TxnId) -> LockMode {
        let place = self.place_of(txn).ok();
        let holder = place.and_then(|place| self.holders.get(place));
        holder.map_or(LockMode::NL, |(_, mode)| *mode)
    }

    /// Whether a holder of `held` could get `target` now. New requests queue behind all waiters; a conversion
    /// only behind other conversions.
    pub fn admits(&self, held: LockMode, target: LockMode) -> bool {
        let clear = if held == LockMode::NL {
            self.queue.is_empty()
        } else {
            self.queue.front().is_none_or(|first| !first.is_conversion())
        };
        clear && self.fits(held, target)
    }

    /// Whether `target` is compatible with everything granted to others.
    fn fits(&self, held: LockMode, target: LockMode) -> bool {
        target.conflicts() & self.granted_except(held) == 0
    }

    /// Whether the first waiter can be granted now.
    pub fn head_fits(&self) -> bool {
        self.queue
            .front()
            .is_some_and(|head| self.fits(head.held, head.target))
    }

    /// Changes what a transaction holds; NL removes it from the granted group.
    pub fn set_held(&mut self, txn: TxnId, mode: LockMode) {
        let before = match (self.place_of(txn), mode) {
            (Ok(place), LockMode::NL) => Some(self.holders.remove(place).1),
            (Ok(place), mode) => self
                .holders
                .get_mut(place)
                .map(|(_, held)| std::mem::replace(held, mode)),
            (Err(_), LockMode::NL) => None,
            (Err(place), mode) => {
                self.holders.insert(place, (txn, mode));
                None
            }
        };
        if let Some(before) = before {
            let count = &mut self.counts[before as usize];
            *count -= 1;
            if *count == 0 {
                self.granted &= !before.bit();
            }
        }
        if mode != LockMode::NL {
            self.counts[mode as usize] += 1;
            self.granted |= mode.bit();
        }
    }

    /// Inserts a waiter at its position.
    pub fn enqueue(&mut self, waiter: Waiter) {
        let place = self.place_for(waiter.is_conversion());
        self.queue.insert(place, waiter);
    }

    /// The queue position of a new request.
    fn place_for(&self, conversion: bool) -> usize {
        if conversion {
            self.queue
                .iter()
                .take_while(|waiter| waiter.is_conversion())
                .count()
        } else {
            self.queue.len()
        }
    }

    pub fn pop_head(&mut self) -> Option<Waiter> {
        self.queue.pop_front()
    }

    pub fn remove_waiter(&mut self, txn: TxnId) {
        self.queue.retain(|waiter| waiter.txn != txn);
    }

    /// Every transaction that a new request would have to wait for: holders of conflicting modes by age, then
    /// the waiters before it from front to back. May name a transaction twice.
    pub fn blockers(&self, txn: TxnId, held: LockMode, target: LockMode) -> Vec<TxnId> {
        let place = self.place_for(held != LockMode::NL);
        self.conflicting_holders(txn, target)
            .chain(self.queue.iter().take(place).map(|w| w.txn))
            .collect()
    }

    /// Every transaction that the waiter `txn` waits for.
    pub fn blockers_of_waiter(&self, txn: TxnId) -> Vec<TxnId> {
        let ahead = self
            .queue
            .iter()
            .take_while(|waiter| waiter.txn != txn)
            .map(|waiter| waiter.txn);
        match self.queue.iter().find(|waiter| waiter.txn == txn) {
            Some(waiter) => self
                .conflicting_holders(txn, waiter.target)
                .chain(ahead)
                .collect(),
            None => Vec::new(),
        }
    }

    fn conflicting_holders(&self, txn: TxnId, target: LockMode) -> impl Iterator<Item = TxnId> + '_ {
        let conflicts = target.conflicts();
        let any = conflicts & self.granted != 0;
        let holders = self
            .holders
            .iter()
            .filter(move |(holder, mode)| any && *holder != txn && conflicts & mode.bit() != 0);
        holders.map(|(holder, _)| *holder)
    }

    /// Waiters that would be behind a new request of a holder of `held`: none unless it is a conversion.
    pub fn followers(&self, held: LockMode) -> Vec<TxnId> {
        self.queue
            .iter()
            .skip(self.place_for(held != LockMode::NL))
            .map(|waiter| waiter.txn)
            .collect()
    }

    /// Waiters that wait for `txn` now and did not before it converted from `before` to `target`, or queued
    /// for it.
    pub fn overtaken(&self, txn: TxnId, before: LockMode, target: LockMode) -> Vec<TxnId> {
        let newly = target.conflicts() & !before.conflicts();
        let behind = self
            .queue
            .iter()
            .filter(|waiter| waiter.txn != txn && !waiter.is_conversion());
        let waits_for_it = self.queue.iter().any(|waiter| waiter.txn == txn);
        behind
            .filter(|waiter| waits_for_it || newly & waiter.target.bit() != 0)
            .map(|w| w.txn)
            .collect()
    }
}
