//! Admission: which of the waiting programs enter the next batch, and in which wave.
//!
//! A program that conflicts with an earlier one of its batch goes into a later wave (`waves`), so there is
//! no conflict that keeps it out. Two things do: a batch has room for so many members and bytes, and a
//! transaction that goes on holds a lock that the program needs. What finds no room stays first in the
//! queue. What finds a lock is parked in the chain of the transaction that holds it, and nobody looks at
//! it again before that transaction ends.
//!
//! ```text
//! arrived ──> lock held by T? ──yes──> chain of T ──T ends──> freed ──┐
//!    ^              no└──────────> planner: wave w                    │
//!    └ back, first in line, when the batch is full      before all that arrived, in order of arrival
//! ```
//!
//! Invariants: 1. Freed programs enter the next batch before any that arrived, in order of arrival, so
//! nobody starves behind programs. 2. Of two conflicting members the one that entered first has the lower
//! wave. 3. A parked program reserves nothing: while a transaction stalls, whoever does not need what it
//! holds goes on, though it may conflict with one that is parked. Going ahead delays nobody, since a program
//! holds nothing beyond its batch.
//!
//! Source: DESIGN.md, Batches; Hobbes 3.3.3 (Algorithm 1) and 2.3 (a stalled transaction stops those who keep
//! their order).

use crate::request::{Answer, Committed, ProgramRequest};
use crate::ticket::TicketCell;
use crate::waves::WavePlanner;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use weft_base::TxnId;
use weft_lock::{LockRequest, LockTable, compatible};

/// Turns that a program may be parked before new transactions are held back for it.
const TURNS_BEFORE_RESERVATION: u64 = 8;

/// How many programs ahead of the one being placed their slots are fetched.
const FETCH_AHEAD: usize = 8;

/// A program that waits, and when it came.
#[derive(Debug)]
struct Waiting {
    arrival: u64,
    /// The turn in which a lock put it off first.
    parked_in: Option<u64>,
    program: ProgramRequest,
}

/// What admission made of a batch: programs in the order of placement, and the wave of each.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub programs: Vec<ProgramRequest>,
    pub waves: Vec<u32>,
    /// Times a program was parked.
    pub parked: u64,
}

impl Placed {
    /// Times a program was put off: to a later wave, or behind a lock.
    pub(crate) fn put_off(&self) -> u64 {
        self.parked + self.waves.iter().filter(|wave| **wave > 0).count() as u64
    }
}

/// How much a batch may still take.
pub(crate) struct Room {
    pub members: usize,
    pub bytes: usize,
}

/// The programs that wait.
#[derive(Debug)]
pub(crate) struct Admission {
    planner: WavePlanner,
    arrived: VecDeque<Waiting>,
    /// Once parked, now to be looked at again; in order of arrival.
    freed: VecDeque<Waiting>,
    /// By the transaction that holds what they need; each in order of arrival.
    chains: HashMap<TxnId, Vec<Waiting>>,
    next_arrival: u64,
    /// Of all in the three lists.
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

    /// Puts a program at the end of the line.
    pub(crate) fn arrive(&mut self, program: ProgramRequest) {
        self.held_bytes += program.held_bytes;
        self.arrived.push_back(Waiting {
            arrival: self.next_arrival,
            parked_in: None,
            program,
        });
        self.next_arrival += 1;
    }

    /// Takes a program out. None when it does not wait: then it stands in a batch, or has its answer.
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

    /// Memory of all that wait.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes everybody out.
    pub(crate) fn drain(&mut self) -> Vec<ProgramRequest> {
        let mut all: Vec<Waiting> = self.freed.drain(..).chain(self.arrived.drain(..)).collect();
        all.extend(self.chains.drain().flat_map(|(_, chain)| chain));
        self.held_bytes = 0;
        all.sort_by_key(|waiting| waiting.arrival);
        all.into_iter().map(|waiting| waiting.program).collect()
    }

    /// Frees the programs that a transaction keeps out. False when there are none.
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

    /// True when programs whose transactions have ended have not found room yet.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// True when a program has been parked for long that needs something in conflict with these requests.
    pub(crate) fn starves(&self, requests: &[LockRequest]) -> bool {
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

    /// Puts a transaction that commits in this batch into wave 0, before all programs that conflict.
    pub(crate) fn place_commit(&mut self, locks: &LockTable, txn: TxnId, requests: &mut Vec<LockRequest>) {
        requests.clear();
        requests.extend(
            locks
                .held(txn)
                .map(|(resource, mode)| LockRequest { resource, mode }),
        );
        self.planner.place_first(requests);
    }

    /// Takes programs into the open batch until there is no more room; the last one may pass the bytes. Locks
    /// of the transactions in `ending` count for nothing. `refuse` gets those that were compiled for another
    /// catalog.
    pub(crate) fn place(
        &mut self,
        mut room: Room,
        locks: &LockTable,
        ending: &HashSet<TxnId>,
        is_stale: impl Fn(&ProgramRequest) -> bool,
        record_bytes: impl Fn(&ProgramRequest) -> usize,
        mut refuse: impl FnMut(ProgramRequest),
    ) -> Placed {
        let mut placed = Placed::default();
        let expected = room.members.min(self.freed.len() + self.arrived.len());
        placed.programs.reserve(expected);
        placed.waves.reserve(expected);
        while room.members > 0
            && room.bytes > 0
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
                // The batch has as many waves as it may have.
                match waiting.parked_in {
                    Some(_) => self.freed.push_front(waiting),
                    None => self.arrived.push_front(waiting),
                }
                break;
            };
            self.held_bytes = self.held_bytes.saturating_sub(waiting.program.held_bytes);
            room.members -= 1;
            room.bytes = room.bytes.saturating_sub(record_bytes(&waiting.program));
            placed.programs.push(waiting.program);
            placed.waves.push(wave);
        }
        placed
    }

    /// A transaction that goes on and holds a lock in conflict with the program.
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
