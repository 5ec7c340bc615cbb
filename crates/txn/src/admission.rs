//! Admission: which of the waiting programs enter the next batch, and in which wave.
//!
//! A program that conflicts with an earlier one of its batch goes into a later wave (`waves`), so conflicts
//! within a batch never keep a program out. Two things do: a batch has a limited capacity in members and
//! bytes, and a transaction that is still open may hold a lock that the program needs. A program that finds
//! the batch full stays at the head of the queue. A program that needs a held lock is parked in the chain of
//! the transaction that holds it, and is not looked at again before that transaction ends.
//!
//! ```text
//! arrived ──> lock held by T? ──yes──> chain of T ──T ends──> freed ──┐
//!    ^              no└──────────> planner: wave w                    │
//!    └ back, first in line, when the batch is full      before all that arrived, in order of arrival
//! ```
//!
//! Invariants: 1. Freed programs enter the next batch before any that arrived, in order of arrival, so
//! programs starve nobody. 2. Of two conflicting members the one that entered first has the lower wave. 3. A
//! parked program reserves nothing: while a transaction stalls, programs that need none of its locks go on,
//! even if they conflict with a parked one. This delays nobody, since a program holds no lock beyond its
//! batch.
//!
//! Source: DESIGN.md, Batches; Hobbes 3.3.3 (Algorithm 1) and 2.3 (a stalled transaction stops everybody if
//! the order is kept).

use crate::request::{Answer, Committed, ProgramRequest};
use crate::ticket::TicketCell;
use crate::waves::WavePlanner;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_base::TxnId;
use weft_lock::{LockRequest, LockTable, compatible};

/// Turns that a program may be parked before new transactions have to wait for it.
const TURNS_BEFORE_RESERVATION: u64 = 8;

/// How far ahead of the program being placed lock slots are prefetched.
const FETCH_AHEAD: usize = 8;

/// A waiting program and its arrival number.
#[derive(Debug)]
struct Waiting {
    arrival: u64,
    /// The turn in which a lock first deferred it.
    parked_in: Option<u64>,
    program: ProgramRequest,
}

/// The programs admitted to a batch in the order of placement, and the wave of each.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub programs: Vec<ProgramRequest>,
    pub waves: Vec<u32>,
    /// Times a program was parked.
    pub parked: u64,
}

impl Admitted {
    /// How many programs were deferred: to a later wave, or behind a lock.
    pub(crate) fn deferrals(&self) -> u64 {
        self.parked + self.waves.iter().filter(|wave| **wave > 0).count() as u64
    }
}

/// How much a batch can still take.
pub(crate) struct BatchCapacity {
    pub members: usize,
    pub bytes: usize,
}

/// The waiting programs.
#[derive(Debug)]
pub(crate) struct Admission {
    planner: WavePlanner,
    arrived: VecDeque<Waiting>,
    /// Programs that were parked and can be considered again, in order of arrival.
    freed: VecDeque<Waiting>,
    /// Parked programs by the transaction that holds their locks, each list in order of arrival.
    chains: HashMap<TxnId, Vec<Waiting>>,
    next_arrival: u64,
    /// The bytes of all programs in the three lists.
    held_bytes: usize,
    turn: u64,
    without_locks: bool,
}

impl Admission {
    pub(crate) fn new(slot_count: usize, without_locks: bool) -> Admission {
        Admission {
            planner: WavePlanner::new(slot_count),
            arrived: VecDeque::new(),
            freed: VecDeque::new(),
            chains: HashMap::new(),
            next_arrival: 0,
            held_bytes: 0,
            turn: 0,
            without_locks,
        }
    }

    /// Appends a program to the queue.
    pub(crate) fn arrive(&mut self, program: ProgramRequest) {
        self.held_bytes += program.held_bytes;
        self.arrived.push_back(Waiting {
            arrival: self.next_arrival,
            parked_in: None,
            program,
        });
        self.next_arrival += 1;
    }

    /// Removes a program. None if it is not waiting: it is part of a batch or has its answer already.
    pub(crate) fn cancel(&mut self, ticket: &Arc<TicketCell<Answer<Committed>>>) -> Option<ProgramRequest> {
        let is_it = |waiting: &Waiting| waiting.program.ticket.is_for(ticket);
        let in_chains = || {
            self.chains.values_mut().find_map(|chain| {
                let at = chain.iter().position(is_it)?;
                Some(chain.remove(at))
            })
        };
        let taken = [&mut self.arrived, &mut self.freed].into_iter().find_map(|line| {
            let at = line.iter().position(is_it)?;
            line.remove(at)
        });
        let program = taken.or_else(in_chains)?.program;
        self.held_bytes = self.held_bytes.saturating_sub(program.held_bytes);
        Some(program)
    }

    /// The memory of all waiting programs.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Removes all programs.
    pub(crate) fn drain(&mut self) -> Vec<ProgramRequest> {
        let mut all: Vec<Waiting> = self.freed.drain(..).chain(self.arrived.drain(..)).collect();
        all.extend(self.chains.drain().flat_map(|(_, chain)| chain));
        self.held_bytes = 0;
        all.sort_by_key(|waiting| waiting.arrival);
        all.into_iter().map(|waiting| waiting.program).collect()
    }

    /// Frees the programs that are parked behind a transaction. False if there are none.
    pub(crate) fn end_of(&mut self, txn: TxnId) -> bool {
        let Some(chain) = self.chains.remove(&txn) else {
            return false;
        };
        self.freed.extend(chain);
        self.freed
            .make_contiguous()
            .sort_by_key(|waiting| waiting.arrival);
        true
    }

    /// True while freed programs have not been admitted yet.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// True if a program that conflicts with these requests has been parked for long.
    pub(crate) fn would_starve(&self, requests: &[LockRequest]) -> bool {
        let conflicts = |wanted: &LockRequest| {
            requests
                .iter()
                .any(|r| r.resource == wanted.resource && !compatible(r.mode, wanted.mode))
        };
        let starving = |waiting: &&Waiting| {
            waiting
                .parked_in
                .is_some_and(|turn| self.turn - turn >= TURNS_BEFORE_RESERVATION)
        };
        let parked = self.chains.values().flatten().chain(&self.freed);
        parked
            .filter(starving)
            .any(|waiting| waiting.program.locks.iter().any(conflicts))
    }

    /// Begins a batch, and a turn.
    pub(crate) fn begin(&mut self) {
        self.planner.begin();
        self.turn += 1;
    }

    /// True when programs wait that [`Admission::place`] would look at.
    pub(crate) fn has_candidates(&self) -> bool {
        !(self.freed.is_empty() && self.arrived.is_empty())
    }

    /// Puts a transaction that commits in this batch into wave 0, before all programs that conflict with it.
    pub(crate) fn place_commit(&mut self, locks: &LockTable, txn: TxnId, requests: &mut Vec<LockRequest>) {
        requests.clear();
        requests.extend(
            locks
                .held(txn)
                .map(|(resource, mode)| LockRequest { resource, mode }),
        );
        self.planner.place_first(requests);
    }

    /// Admits programs to the open batch until it is full; the last one may exceed the bytes. Locks of the
    /// transactions in `ending` are ignored. `refuse` gets the programs that were compiled for another
    /// catalog.
    pub(crate) fn place(
        &mut self,
        mut capacity: BatchCapacity,
        locks: &LockTable,
        ending: &HashSet<TxnId>,
        is_stale: impl Fn(&ProgramRequest) -> bool,
        record_bytes: impl Fn(&ProgramRequest) -> usize,
        mut refuse: impl FnMut(ProgramRequest),
    ) -> Admitted {
        let mut placed = Admitted::default();
        let expected = capacity.members.min(self.freed.len() + self.arrived.len());
        placed.programs.reserve(expected);
        placed.waves.reserve(expected);
        while capacity.members > 0
            && capacity.bytes > 0
            && let Some(mut waiting) = self.freed.pop_front().or_else(|| self.arrived.pop_front())
        {
            if let Some(ahead) = self.arrived.get(FETCH_AHEAD) {
                self.planner.fetch(&ahead.program.locks);
            }
            if is_stale(&waiting.program) {
                self.held_bytes = self.held_bytes.saturating_sub(waiting.program.held_bytes);
                refuse(waiting.program);
                continue;
            }
            if let Some(holder) = self.holder(&waiting.program, locks, ending) {
                placed.parked += 1;
                waiting.parked_in.get_or_insert(self.turn);
                self.chains.entry(holder).or_default().push(waiting);
                continue;
            }
            let wave = match self.without_locks {
                true => Some(0),
                false => self.planner.place(&waiting.program.locks),
            };
            let Some(wave) = wave else {
                // The batch has reached its highest number of waves.
                match waiting.parked_in {
                    Some(_) => self.freed.push_front(waiting),
                    None => self.arrived.push_front(waiting),
                }
                break;
            };
            self.held_bytes = self.held_bytes.saturating_sub(waiting.program.held_bytes);
            capacity.members -= 1;
            capacity.bytes = capacity.bytes.saturating_sub(record_bytes(&waiting.program));
            placed.programs.push(waiting.program);
            placed.waves.push(wave);
        }
        placed
    }

    /// A transaction that stays open and holds a lock that conflicts with the program.
    fn holder(&self, program: &ProgramRequest, locks: &LockTable, ending: &HashSet<TxnId>) -> Option<TxnId> {
        if self.without_locks || locks.is_empty() {
            return None;
        }
        let held = |r: &&LockRequest| locks.blocked_by(r.resource, r.mode);
        program.locks.iter().filter(held).find_map(|r| {
            locks
                .conflicting_holders(r.resource, r.mode)
                .find(|txn| !ending.contains(txn))
        })
    }
}
