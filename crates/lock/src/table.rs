//! The lock table and the transaction table (Barthels 5.2.2, figure 5.3).
//!
//! Per resource an entry with its granted and waiting groups; per transaction the log of what it took, so
//! that its end releases everything in one call (strict two-phase locking) and a savepoint can give back what
//! came after it.
//!
//! ```text
//! acquire --granted--> Granted
//!    | conflict: ask the policy
//!    +--Wait-----> waiting --head of its queue and compatible--> goes on with the rest of its requests
//!    +--Refuse---> Refused, keeps what it holds                    |           |
//!    +--Deadlock-> Deadlock, keeps what it holds              all granted   conflict: ask the policy again;
//!    +--Wound----> waiting, the others become victims              |        a refusal makes it a victim
//!                                                         returned by release
//! ```
//!
//! Invariants:
//! 1. Two transactions never hold incompatible modes on one resource.
//! 2. A transaction waits for at most one resource; what it will ask for after that is remembered with it.
//! 3. Newcomers never overtake a waiter; conversions overtake newcomers, not each other.
//! 4. Entries without holders and waiters do not exist, so an idle table is empty and costs nothing to
//!    consult.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use weft_base::TxnId;

use crate::entry::{LockEntry, Waiter};
use crate::mode::{LockMode, join};
use crate::policy::{Conflict, ConflictPolicy, Decision};
use crate::resource::{LockRequest, ResourceId};

/// Outcome of [`LockTable::acquire`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acquire {
    /// Everything asked for is held.
    Granted,
    /// One request waits; a later release, or [`LockTable::take_victims`], names the transaction.
    Waiting,
    /// A request would have closed this circle: the requester first, each waits for the next. What was
    /// granted before it stays held.
    Deadlock {
        /// The transactions of the circle.
        cycle: Vec<TxnId>,
    },
    /// The policy refused a request. What was granted before it stays held.
    Refused,
}

/// Why a transaction that was not the caller must end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AbortReason {
    /// It would have closed this circle when it went on after a wait.
    Deadlock {
        /// The transactions of the circle, the victim first.
        cycle: Vec<TxnId>,
    },
    /// The policy refused one of its requests when it went on after a wait, or when it was overtaken.
    Refused,
    /// An older transaction wants what it holds.
    Wounded {
        /// The older transaction.
        by: TxnId,
    },
}

/// A transaction that must end, or go back to a savepoint unless it is wounded. It still holds its locks: the
/// owner rolls it back and calls [`LockTable::release_all`] or [`LockTable::release_since`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Victim {
    /// Who.
    pub txn: TxnId,
    /// Why.
    pub reason: AbortReason,
}

/// A point in a transaction's locking, for savepoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Mark(usize);

#[derive(Default)]
struct TxnEntry {
    /// What was taken, in order: resource, and the mode held before (NL for a new lock).
    log: Vec<(ResourceId, LockMode)>,
    waiting: Option<Wait>,
    /// It is a victim already; do not name it twice.
    doomed: bool,
}

struct Wait {
    resource: ResourceId,
    /// See [`LockTable::acquire_with_ally`].
    ally: Option<TxnId>,
    /// The requests after the one that waits, in order.
    rest: Vec<LockRequest>,
    policy: &'static dyn ConflictPolicy,
}

/// See the module. Owned by the sequencer; single-threaded.
#[derive(Default)]
pub struct LockTable {
    locks: HashMap<ResourceId, LockEntry>,
    txns: HashMap<TxnId, TxnEntry>,
    /// Of each ally of a waiting transaction, that transaction.
    waits_as: HashMap<TxnId, TxnId>,
    waiting: usize,
    /// Resources with a waiting group, in a fixed order: what `overdue` walks.
    contended: BTreeSet<ResourceId>,
    victims: Vec<Victim>,
    clock_nanos: u64,
}

enum Step {
    Granted,
    Waits,
    Ends(Acquire),
}

impl LockTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the requests in order, each joined with what the transaction holds on that resource already.
    /// Stops at the first that cannot be granted; `policy` decides what then. A transaction that waits, or is
    /// a victim, must not call this: it is refused.
    pub fn acquire(
        &mut self,
        txn: TxnId,
        requests: &[LockRequest],
        policy: &'static dyn ConflictPolicy,
    ) -> Acquire {
        self.acquire_with_ally(txn, None, requests, policy)
    }

    /// As [`LockTable::acquire`] of a transaction whose ally never runs while it waits: whoever waits for a
    /// lock of the ally waits for it too. Only the search for circles knows of allies; the two must not ask
    /// for the same resources.
    pub fn acquire_with_ally(
        &mut self,
        txn: TxnId,
        ally: Option<TxnId>,
        requests: &[LockRequest],
        policy: &'static dyn ConflictPolicy,
    ) -> Acquire {
        if self
            .txns
            .get(&txn)
            .is_some_and(|entry| entry.waiting.is_some() || entry.doomed)
        {
            return Acquire::Refused;
        }
        for (i, request) in requests.iter().enumerate() {
            let rest = requests.get(i + 1..).unwrap_or(&[]);
            match self.request((txn, ally), *request, rest, policy) {
                Step::Granted => {}
                Step::Waits => return Acquire::Waiting,
                Step::Ends(outcome) => return outcome,
            }
        }
        Acquire::Granted
    }

    fn request(
        &mut self,
        (txn, ally): (TxnId, Option<TxnId>),
        request: LockRequest,
        rest: &[LockRequest],
        policy: &'static dyn ConflictPolicy,
    ) -> Step {
        let LockRequest { resource, mode } = request;
        let entry = self.locks.entry(resource).or_default();
        let held = entry.held_by(txn);
        let target = join(held, mode);
        if target == held {
            if entry.is_unused() {
                self.locks.remove(&resource);
            }
            return Step::Granted;
        }
        if entry.admits(held, target) {
            entry.set_held(txn, target);
            self.txns.entry(txn).or_default().log.push((resource, held));
            self.judge_overtaken(txn, resource, held, target);
            return Step::Granted;
        }
        let (blockers, overtaken) = (entry.blockers(txn, held, target), entry.followers(held));
        let conflict = Conflict {
            txn,
            ally,
            resource,
            mode: target,
            blockers: &blockers,
            overtaken: &overtaken,
        };
        match policy.decide(&conflict, self) {
            Decision::Refuse => return Step::Ends(Acquire::Refused),
            Decision::Deadlock(cycle) => return Step::Ends(Acquire::Deadlock { cycle }),
            Decision::Wait => {}
            Decision::Wound(victims) => {
                for victim in victims {
                    self.doom(victim, AbortReason::Wounded { by: txn });
                }
            }
        }
        let waiter = Waiter {
            txn,
            target,
            held,
            since_nanos: self.clock_nanos,
        };
        self.locks.entry(resource).or_default().enqueue(waiter);
        self.contended.insert(resource);
        self.waiting += 1;
        if let Some(ally) = ally {
            self.waits_as.insert(ally, txn);
        }
        self.txns.entry(txn).or_default().waiting = Some(Wait {
            resource,
            ally,
            rest: rest.to_vec(),
            policy,
        });
        self.judge_overtaken(txn, resource, held, target);
        Step::Waits
    }

    /// A conversion adds itself to what the waiters behind it wait for. Policies that decide by age must look
    /// at them again; a search for circles need not (the one who converts is looked at when it waits).
    fn judge_overtaken(&mut self, txn: TxnId, resource: ResourceId, held: LockMode, target: LockMode) {
        if held == LockMode::NL || !self.contended.contains(&resource) {
            return;
        }
        let overtaken = self
            .locks
            .get(&resource)
            .map(|entry| entry.overtaken(txn, held, target));
        for waiter in overtaken.unwrap_or_default() {
            let Some(policy) = self
                .txns
                .get(&waiter)
                .and_then(|t| t.waiting.as_ref())
                .map(|w| w.policy)
            else {
                continue;
            };
            if !policy.is_by_age() {
                continue;
            }
            let conflict = Conflict {
                txn: waiter,
                ally: None,
                resource,
                mode: target,
                blockers: &[txn],
                overtaken: &[],
            };
            match policy.decide(&conflict, self) {
                Decision::Wait => {}
                Decision::Refuse => self.doom(waiter, AbortReason::Refused),
                Decision::Deadlock(cycle) => self.doom(waiter, AbortReason::Deadlock { cycle }),
                Decision::Wound(victims) => {
                    for victim in victims {
                        self.doom(victim, AbortReason::Wounded { by: waiter });
                    }
                }
            }
        }
    }

    fn doom(&mut self, txn: TxnId, reason: AbortReason) {
        let entry = self.txns.entry(txn).or_default();
        if !entry.doomed {
            entry.doomed = true;
            self.victims.push(Victim { txn, reason });
        }
    }

    /// Transactions that must end through no call of their own, since the last time this was asked, in the
    /// order in which that was found. To be asked after every `acquire`, `release_all`, `release_since` and
    /// `cancel_wait`. One whose request was refused stands where a refused [`LockTable::acquire`] leaves its
    /// caller, and may go back to a savepoint; one that is wounded gets no lock any more.
    #[must_use]
    pub fn take_victims(&mut self) -> Vec<Victim> {
        let victims = std::mem::take(&mut self.victims);
        for victim in &victims {
            if let Some(entry) = self.txns.get_mut(&victim.txn)
                && !matches!(victim.reason, AbortReason::Wounded { .. })
            {
                entry.doomed = false;
            }
        }
        victims
    }

    /// Ends a transaction: gives up its wait and everything it holds. Returns the transactions whose whole
    /// `acquire` is granted by that, in the order in which it was.
    pub fn release_all(&mut self, txn: TxnId) -> Vec<TxnId> {
        let Some(entry) = self.txns.remove(&txn) else {
            return Vec::new();
        };
        // It may be a victim not yet taken, but it has ended: nothing remains to be done about it.
        self.victims.retain(|victim| victim.txn != txn);
        let mut touched = Vec::with_capacity(entry.log.len() + 1);
        if let Some(wait) = entry.waiting {
            self.leave_queue(txn, &wait);
            touched.push(wait.resource);
        }
        for (resource, before) in entry.log {
            // A conversion's entry says what was held before; the first entry of the resource releases it.
            if before != LockMode::NL {
                continue;
            }
            if let Some(lock) = self.locks.get_mut(&resource) {
                lock.set_held(txn, LockMode::NL);
                touched.push(resource);
            }
        }
        self.grant_waiters(touched)
    }

    /// Gives up a transaction's wait and the requests after it; it keeps what it holds. Returns who is
    /// granted by that, as [`LockTable::release_all`].
    pub fn cancel_wait(&mut self, txn: TxnId) -> Vec<TxnId> {
        let Some(wait) = self.txns.get_mut(&txn).and_then(|entry| entry.waiting.take()) else {
            return Vec::new();
        };
        self.leave_queue(txn, &wait);
        let granted = self.grant_waiters(vec![wait.resource]);
        self.remove_if_idle(txn);
        granted
    }

    /// Where the transaction's locking stands now.
    #[must_use]
    pub fn mark(&self, txn: TxnId) -> Mark {
        Mark(self.txns.get(&txn).map_or(0, |entry| entry.log.len()))
    }

    /// Gives up the transaction's wait and gives back what it took since the mark: new locks are released,
    /// conversions undone. Returns who is granted by that, as [`LockTable::release_all`].
    pub fn release_since(&mut self, txn: TxnId, mark: Mark) -> Vec<TxnId> {
        let Some(entry) = self.txns.get_mut(&txn) else {
            return Vec::new();
        };
        let wait = entry.waiting.take();
        let taken = entry.log.split_off(mark.0.min(entry.log.len()));
        let mut touched = Vec::with_capacity(taken.len() + 1);
        if let Some(wait) = wait {
            self.leave_queue(txn, &wait);
            touched.push(wait.resource);
        }
        for (resource, before) in taken.into_iter().rev() {
            if let Some(lock) = self.locks.get_mut(&resource) {
                lock.set_held(txn, before);
                touched.push(resource);
            }
        }
        let granted = self.grant_waiters(touched);
        self.remove_if_idle(txn);
        granted
    }

    /// Gives back what a transaction holds on a resource, down to `mode` (NL: all of it); nothing if it holds
    /// no more than that. It must not wait, and its marks are void. Returns who is granted by that, as
    /// [`LockTable::release_all`].
    pub fn lower(&mut self, txn: TxnId, resource: ResourceId, mode: LockMode) -> Vec<TxnId> {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return Vec::new();
        };
        if join(lock.held_by(txn), mode) == mode {
            return Vec::new();
        }
        lock.set_held(txn, mode);
        if let Some(entry) = self.txns.get_mut(&txn) {
            entry.log.retain(|(taken, _)| *taken != resource);
            if mode != LockMode::NL {
                entry.log.push((resource, LockMode::NL));
            }
        }
        let granted = self.grant_waiters(vec![resource]);
        self.remove_if_idle(txn);
        granted
    }

    fn leave_queue(&mut self, txn: TxnId, wait: &Wait) {
        self.forget_ally(wait.ally);
        if let Some(lock) = self.locks.get_mut(&wait.resource) {
            lock.remove_waiter(txn);
            self.waiting -= 1;
        }
    }

    fn forget_ally(&mut self, ally: Option<TxnId>) {
        if let Some(ally) = ally {
            self.waits_as.remove(&ally);
        }
    }

    fn remove_if_idle(&mut self, txn: TxnId) {
        let idle = |entry: &TxnEntry| entry.log.is_empty() && entry.waiting.is_none() && !entry.doomed;
        if self.txns.get(&txn).is_some_and(idle) {
            self.txns.remove(&txn);
        }
    }

    /// Grants what can be granted on these resources, lets those who got theirs go on with their other
    /// requests, and drops entries that nobody uses.
    fn grant_waiters(&mut self, resources: Vec<ResourceId>) -> Vec<TxnId> {
        let mut done = Vec::new();
        for resource in resources {
            let woken = self.grant_heads(resource);
            for txn in woken {
                if self.resume(txn) {
                    done.push(txn);
                }
            }
        }
        done
    }

    fn grant_heads(&mut self, resource: ResourceId) -> Vec<TxnId> {
        let mut woken = Vec::new();
        let Some(lock) = self.locks.get_mut(&resource) else {
            return woken;
        };
        while lock.head_fits() {
            let Some(waiter) = lock.pop_head() else {
                break;
            };
            lock.set_held(waiter.txn, waiter.target);
            self.waiting -= 1;
            if let Some(entry) = self.txns.get_mut(&waiter.txn) {
                entry.log.push((resource, waiter.held));
            }
            woken.push(waiter.txn);
        }
        if lock.queue().is_empty() {
            self.contended.remove(&resource);
        }
        if lock.is_unused() {
            self.locks.remove(&resource);
        }
        woken
    }

    /// Takes the remaining requests of a transaction whose wait is over. Whether all are granted now.
    fn resume(&mut self, txn: TxnId) -> bool {
        let Some(wait) = self.txns.get_mut(&txn).and_then(|entry| entry.waiting.take()) else {
            return false;
        };
        self.forget_ally(wait.ally);
        if self.txns.get(&txn).is_some_and(|entry| entry.doomed) {
            return false;
        }
        match self.acquire_with_ally(txn, wait.ally, &wait.rest, wait.policy) {
            Acquire::Granted => true,
            Acquire::Waiting => false,
            Acquire::Refused => {
                self.doom(txn, AbortReason::Refused);
                false
            }
            Acquire::Deadlock { cycle } => {
                self.doom(txn, AbortReason::Deadlock { cycle });
                false
            }
        }
    }

    /// Whether somebody who is not in the table may not do this now, because of GRANTED locks. Waiters do not
    /// count.
    #[must_use]
    #[inline]
    pub fn blocked_by(&self, resource: ResourceId, mode: LockMode) -> bool {
        !self.locks.is_empty()
            && self
                .locks
                .get(&resource)
                .is_some_and(|lock| lock.granted() & mode.conflicts() != 0)
    }

    /// Who holds a resource in a mode that conflicts with `mode`, oldest first.
    pub fn conflicting_holders(
        &self,
        resource: ResourceId,
        mode: LockMode,
    ) -> impl Iterator<Item = TxnId> + '_ {
        let holders = self.locks.get(&resource).into_iter().flat_map(LockEntry::holders);
        holders
            .filter(move |(_, held)| held.bit() & mode.conflicts() != 0)
            .map(|(txn, _)| txn)
    }

    /// What the transaction holds on a resource.
    #[must_use]
    pub fn mode_held(&self, txn: TxnId, resource: ResourceId) -> LockMode {
        self.locks
            .get(&resource)
            .map_or(LockMode::NL, |lock| lock.held_by(txn))
    }

    /// What the transaction holds, each resource once, in the order in which it first took them.
    pub fn held(&self, txn: TxnId) -> impl Iterator<Item = (ResourceId, LockMode)> + '_ {
        let log = self.txns.get(&txn).into_iter().flat_map(|entry| entry.log.iter());
        log.filter(|(_, before)| *before == LockMode::NL)
            .map(move |(resource, _)| (*resource, self.mode_held(txn, *resource)))
    }

    /// The transaction that waits if this one does: its ally, if that waits, or itself.
    pub(crate) fn waiting_for_both(&self, txn: TxnId) -> TxnId {
        self.waits_as.get(&txn).copied().unwrap_or(txn)
    }

    /// Whether the transaction waits.
    #[must_use]
    pub fn is_waiting(&self, txn: TxnId) -> bool {
        self.txns.get(&txn).is_some_and(|entry| entry.waiting.is_some())
    }

    /// What the transaction waits for.
    #[must_use]
    pub fn waits_for(&self, txn: TxnId) -> Option<LockRequest> {
        let resource = self.txns.get(&txn)?.waiting.as_ref()?.resource;
        let lock = self.locks.get(&resource)?;
        let mode = lock.queue().iter().find(|waiter| waiter.txn == txn)?.target;
        Some(LockRequest { resource, mode })
    }

    /// Everybody the waiting transaction waits for: holders of conflicting modes, then the waiters before it.
    #[must_use]
    pub fn blockers_of(&self, txn: TxnId) -> Vec<TxnId> {
        let wait = self.txns.get(&txn).and_then(|entry| entry.waiting.as_ref());
        let lock = wait.and_then(|wait| self.locks.get(&wait.resource));
        lock.map_or_else(Vec::new, |lock| lock.blockers_of_waiter(txn))
    }

    /// Number of waiting transactions.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting
    }

    /// Whether nobody holds or waits for anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Tells the table the time, on a monotonic clock, for requests that begin to wait from now on.
    pub fn set_clock(&mut self, now_nanos: u64) {
        self.clock_nanos = now_nanos;
    }

    /// The transactions at the head of a queue that have waited longer than the bound (Barthels' DL-BW).
    /// Waiters behind them have their own turn once those are gone.
    #[must_use]
    pub fn overdue(&self, bound_nanos: u64) -> Vec<TxnId> {
        let heads = self
            .contended
            .iter()
            .filter_map(|resource| self.locks.get(resource)?.queue().front());
        heads
            .filter(|head| self.clock_nanos.saturating_sub(head.since_nanos) > bound_nanos)
            .map(|head| head.txn)
            .collect()
    }
}
