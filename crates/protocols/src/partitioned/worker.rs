//! A worker of the partitioned mode: its transactions in flight, and the requests that it serves.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use weft_lock::{LockMode, ResourceId};
use weft_program::{AccessKeys, AccessKind, BatchAccess};
use weft_store::MemberWriter;

use super::access::{PartitionedAccess, Probed};
use super::message::{Found, Message, OwnedWord, Probe};
use super::{Shared, owner_of};
use crate::epoch::{Epoch, Runner};
use crate::needs::{Need, NeedFinder, slot_of};
use crate::observed::ObservedAccess;
use crate::report::Counts;
use crate::ring::{Receiver, Sender};
use crate::timestamp::{TIMESTAMP_END, clock_ended};
use crate::two_phase_locking::pause;
use crate::{Job, Observe, Safeguards};

/// The state that a worker keeps between epochs.
#[derive(Default)]
pub(super) struct State {
    pub words: Vec<OwnedWord>,
    pub counts: Counts,
    finder: NeedFinder,
    keys: AccessKeys,
    runner: Runner,
}

impl State {
    /// A state with `words` unmarked words.
    pub fn with_words(words: usize) -> State {
        State {
            words: vec![OwnedWord::default(); words],
            ..State::default()
        }
    }
}

/// A worker's ends of the rings, indexed by the other worker.
#[derive(Default)]
pub(super) struct Rings<'b> {
    pub out: Vec<Sender<Message<'b>>>,
    pub inbound: Vec<Receiver<Message<'b>>>,
}

/// A transaction in flight.
#[derive(Default)]
struct Flight<'b> {
    /// Position in the epoch; `None` if this flight is free.
    job: Option<usize>,
    needs: Vec<Need>,
    /// For each need, whether it is a read that is marked until the end.
    holds: Vec<bool>,
    probed: Vec<Option<Probed<'b>>>,
    granted: Vec<bool>,
    time: u64,
    pending: usize,
    attempts: u32,
    /// Turns to wait before the next attempt.
    rest: u32,
    start: Option<Instant>,
}

pub(super) struct Worker<'w, O> {
    number: usize,
    epoch: Epoch<'w>,
    shared: &'w Shared<'w, O>,
    state: &'w mut State,
    rings: Rings<'w>,
    /// Messages that did not fit into a ring, by receiver, in order.
    waiting: Vec<VecDeque<Message<'w>>>,
    flights: Vec<Flight<'w>>,
    /// Reads rows for requesters; writes nothing.
    reader: MemberWriter<'w>,
    /// Jobs claimed but not begun. If jobs have fixed workers: those not yet examined.
    claimed: std::ops::Range<usize>,
}

impl<'w, O: Observe> Worker<'w, O> {
    pub fn new(
        number: usize,
        epoch: Epoch<'w>,
        shared: &'w Shared<'w, O>,
        state: &'w mut State,
        rings: Rings<'w>,
        window: usize,
    ) -> Self {
        Worker {
            number,
            epoch,
            shared,
            state,
            rings,
            waiting: (0..shared.workers).map(|_| VecDeque::new()).collect(),
            flights: (0..window).map(|_| Flight::default()).collect(),
            reader: epoch.writer.member(u32::MAX),
            claimed: match shared.runners {
                Some(_) => 0..epoch.jobs.len(),
                None => 0..0,
            },
        }
    }

    /// Runs until no worker has a transaction left.
    pub fn run<G: Safeguards>(mut self) {
        let mut has_reported = false;
        let mut polls = 0;
        loop {
            // Checked before the rings are polled: a finished worker sends nothing more.
            let all_finished = self.shared.finished.load(Ordering::Acquire) == self.shared.workers;
            let mut progress = self.receive::<G>();
            let flushed = self.flush();
            if all_finished && !progress {
                return;
            }
            let mut under_way = false;
            for flight in 0..self.flights.len() {
                progress |= self.advance::<G>(flight, flushed);
                under_way |= self
                    .flights
                    .get(flight)
                    .is_some_and(|flight| flight.job.is_some());
            }
            let idle = !under_way && self.waiting.iter().all(VecDeque::is_empty);
            let is_over = self.shared.runners.is_some() || self.shared.claims.are_taken();
            if idle && !has_reported && self.claimed.is_empty() && is_over {
                has_reported = true;
                self.shared.finished.fetch_add(1, Ordering::Release);
            }
            polls = if progress { 0 } else { polls + 1 };
            if !progress {
                pause(polls);
            }
        }
    }

    fn owner_of(&self, slot: u32) -> usize {
        owner_of(slot, self.shared.workers)
    }

    fn word(&mut self, slot: u32) -> Option<&mut OwnedWord> {
        self.state.words.get_mut(slot as usize / self.shared.workers)
    }

    fn send(&mut self, to: usize, message: Message<'w>) {
        let Some(waiting) = self.waiting.get_mut(to) else {
            return;
        };
        let sent = waiting.is_empty() && self.rings.out.get(to).is_some_and(|ring| ring.send(message));
        if !sent {
            waiting.push_back(message);
        }
    }

    /// Sends queued messages. True if none remain.
    fn flush(&mut self) -> bool {
        let mut flushed = true;
        for (waiting, ring) in self.waiting.iter_mut().zip(&self.rings.out) {
            while let Some(message) = waiting.front() {
                if !ring.send(*message) {
                    flushed = false;
                    break;
                }
                waiting.pop_front();
            }
        }
        flushed
    }

    /// Handles received messages. True if there were any.
    fn receive<G: Safeguards>(&mut self) -> bool {
        let mut progress = false;
        for from in 0..self.rings.inbound.len() {
            while let Some(message) = self.rings.inbound.get(from).and_then(Receiver::receive) {
                progress = true;
                match message {
                    Message::Request {
                        flight,
                        need,
                        slot,
                        mode,
                        hold,
                        time,
                        probe,
                    } => {
                        let (granted, found) = self.serve::<G>(slot, mode, hold, time, probe);
                        let answer = Message::Answer {
                            flight,
                            need,
                            granted,
                            found,
                        };
                        self.send(from, answer);
                    }
                    Message::Answer {
                        flight,
                        need,
                        granted,
                        found,
                    } => self.take_answer(usize::from(flight), usize::from(need), granted, found),
                    Message::End {
                        slot,
                        mode,
                        time,
                        wrote,
                    } => {
                        if let Some(word) = self.word(slot) {
                            word.end(mode, time, wrote);
                        }
                    }
                }
            }
        }
        progress
    }

    /// The visibility check on an own record, and the current row.
    fn serve<G: Safeguards>(
        &mut self,
        slot: u32,
        mode: LockMode,
        hold: bool,
        time: u64,
        probe: Option<Probe>,
    ) -> (bool, Found<'w>) {
        let granted = self
            .word(slot)
            .is_some_and(|word| word.mark::<G>(mode, hold, time));
        let found = match probe {
            Some(probe) if granted => self
                .reader
                .lookup_one(probe.table, probe.index, probe.key())
                .ok()
                .flatten()
                .map(|row| (row.slot, row.bytes)),
            _ => None,
        };
        (granted, found)
    }

    fn take_answer(&mut self, flight: usize, need: usize, granted: bool, found: Found<'w>) {
        let Some(flight) = self.flights.get_mut(flight) else {
            return;
        };
        flight.pending = flight.pending.saturating_sub(1);
        if let Some(entry) = flight.granted.get_mut(need) {
            *entry = granted;
        }
        if let Some(Some(probed)) = flight.probed.get_mut(need) {
            probed.found = found;
        }
    }

    /// Advances a transaction by one step. True if there was one to advance.
    fn advance<G: Safeguards>(&mut self, at: usize, may_begin: bool) -> bool {
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        if flight.job.is_none() {
            return may_begin && flight.pending == 0 && self.begin(at) && {
                self.request::<G>(at);
                true
            };
        }
        if !G::KEEPS_MESSAGE_ORDER && flight.rest == 0 && flight.writes_are_granted() {
            flight.forget_reads();
            self.execute::<G>(at);
            return true;
        }
        if flight.pending > 0 {
            return false;
        }
        if flight.rest > 0 {
            flight.rest -= 1;
            if flight.rest == 0 {
                self.request::<G>(at);
            }
            return true;
        }
        if flight.granted.iter().all(|granted| *granted) {
            self.execute::<G>(at);
        } else {
            self.end(at, false);
            self.state.counts.aborts += 1;
            if let Some(flight) = self.flights.get_mut(at) {
                flight.attempts += 1;
                flight.rest = (1 << flight.attempts.min(6)) + self.number as u32;
                if flight.attempts > 8 {
                    std::thread::yield_now();
                }
            }
        }
        true
    }

    /// Position in the epoch of the next job that this worker is to run.
    fn next_job(&mut self) -> Option<usize> {
        if let Some(runners) = self.shared.runners {
            let (first, own) = (self.epoch.first, self.number);
            return self.claimed.find(|n| {
                runners
                    .get(first + n)
                    .is_some_and(|runner| usize::from(*runner) == own)
            });
        }
        if self.claimed.is_empty() {
            self.claimed = self.shared.claims.claim()?;
        }
        self.claimed.next()
    }

    /// Begins the next job in a free flight. False if there is none.
    fn begin(&mut self, at: usize) -> bool {
        let Some(n) = self.next_job() else {
            return false;
        };
        let (Some(job), Some(flight)) = (self.epoch.jobs.get(n), self.flights.get_mut(at)) else {
            return false;
        };
        let number = self.epoch.first + n;
        flight.start = Counts::start(number);
        flight.attempts = 0;
        flight.rest = 0;
        let (shared, state) = (self.shared, &mut *self.state);
        let found = state.finder.simple_needs(
            job,
            self.epoch.catalog,
            shared.coarse,
            shared.mask,
            &mut flight.needs,
        );
        if let Err(error) = found.and_then(|()| flight.find_probes(job, &self.epoch, shared.mask, state)) {
            shared.observe.answered(number, Err(&error));
            state.counts.ended(false);
            return true;
        }
        flight.job = Some(n);
        true
    }

    /// Sends requests for all needs to their owners, with a new timestamp; own records are served at once.
    fn request<G: Safeguards>(&mut self, at: usize) {
        let time = self.shared.clock.fetch_add(1, Ordering::Relaxed);
        let Some(flight) = self.flights.get_mut(at) else {
            return;
        };
        let Some(n) = flight.job else { return };
        if time >= TIMESTAMP_END {
            flight.job = None;
            self.shared
                .observe
                .answered(self.epoch.first + n, Err(&clock_ended()));
            self.state.counts.ended(false);
            return;
        }
        flight.time = time;
        flight.pending = flight.needs.len();
        flight.granted.clear();
        flight.granted.resize(flight.needs.len(), false);
        // Remote requests first, so that their answers are in transit while own records are looked up.
        for own in [false, true] {
            for need in 0..self.flights.get(at).map_or(0, |flight| flight.needs.len()) {
                self.request_one::<G>(at, need, own, time);
            }
        }
    }

    fn request_one<G: Safeguards>(&mut self, at: usize, number: usize, own: bool, time: u64) {
        let Some(flight) = self.flights.get(at) else {
            return;
        };
        let Some(Need { slot, mode }) = flight.needs.get(number).copied() else {
            return;
        };
        let owner = self.owner_of(slot);
        if (owner == self.number) != own {
            return;
        }
        let hold = flight.holds.get(number).copied().unwrap_or(true);
        let probe = flight
            .probed
            .get(number)
            .copied()
            .flatten()
            .map(|probed| probed.probe);
        self.state.counts.accesses += 1;
        if own {
            let (granted, found) = self.serve::<G>(slot, mode, hold, time, probe);
            self.take_answer(at, number, granted, found);
        } else {
            self.state.counts.remote_accesses += 1;
            let request = Message::Request {
                flight: at as u16,
                need: number as u16,
                slot,
                mode,
                hold,
                time,
                probe,
            };
            self.send(owner, request);
        }
    }

    /// Removes the marks that were granted.
    fn end(&mut self, at: usize, wrote: bool) {
        for number in 0..self.flights.get(at).map_or(0, |flight| flight.needs.len()) {
            let Some(flight) = self.flights.get(at) else {
                return;
            };
            let Some(Need { slot, mode }) = flight.needs.get(number).copied() else {
                return;
            };
            let marked = mode != LockMode::S || flight.holds.get(number).copied().unwrap_or(true);
            if !marked || flight.granted.get(number) != Some(&true) {
                continue;
            }
            let time = flight.time;
            let owner = self.owner_of(slot);
            if owner != self.number {
                self.send(
                    owner,
                    Message::End {
                        slot,
                        mode,
                        time,
                        wrote,
                    },
                );
            } else if let Some(word) = self.word(slot) {
                word.end(mode, time, wrote);
            }
        }
    }

    /// All needs are granted: runs the transaction, writes in place, and removes the marks.
    fn execute<G: Safeguards>(&mut self, at: usize) {
        G::pause();
        let Some(flight) = self.flights.get_mut(at) else {
            return;
        };
        let Some((n, job)) = flight.job.take().and_then(|n| Some((n, self.epoch.jobs.get(n)?))) else {
            return;
        };
        let number = self.epoch.first + n;
        let mut member = self.epoch.writer.member(n as u32);
        let mut access = PartitionedAccess::new(BatchAccess::new(&mut member), &flight.probed);
        let (runner, observe) = (&mut self.state.runner, self.shared.observe);
        let result = if O::INSTALLS {
            runner.run(job, &mut ObservedAccess::new(access, number, observe))
        } else {
            runner.run(job, &mut access)
        };
        match &result {
            Ok(()) => member.commit(),
            Err(_) => member.rollback(),
        }
        observe.answered(number, result.as_ref().map(|()| &runner.outcome));
        self.state.counts.ended(result.is_ok());
        self.state.counts.end(flight.start.take());
        self.end(at, true);
    }
}

impl Flight<'_> {
    /// Whether everything except reads is granted. For a test: a sound worker waits for all answers.
    fn writes_are_granted(&self) -> bool {
        let mut needs = self.needs.iter().zip(&self.granted);
        needs.all(|(need, granted)| *granted || need.mode == LockMode::S)
    }

    /// Drops reads without an answer, so that the transaction reads them itself. For a test.
    fn forget_reads(&mut self) {
        for (probed, granted) in self.probed.iter_mut().zip(&self.granted) {
            if !granted {
                *probed = None;
            }
        }
    }

    /// Finds the row of each need, so that the owner can look it up. The transaction itself accesses a need
    /// for several rows, or for none, and if that is a read, it is marked until the end.
    fn find_probes(
        &mut self,
        job: &Job,
        epoch: &Epoch<'_>,
        mask: u32,
        state: &mut State,
    ) -> Result<(), weft_types::SqlError> {
        let needs = &self.needs;
        let probed = &mut self.probed;
        probed.clear();
        probed.resize(needs.len(), None);
        self.holds.clear();
        self.holds.resize(needs.len(), false);
        let holds = &mut self.holds;
        state.keys.prepare(&job.program, &job.inputs)?;
        state.keys.for_each(|number, key| {
            let Some(access) = job.program.accesses.get(number) else {
                return;
            };
            let is_row = matches!(
                access.kind,
                AccessKind::ReadRow | AccessKind::WriteRow | AccessKind::InsertRow
            );
            if !is_row || key.bytes.is_empty() {
                return;
            }
            let slot = slot_of(ResourceId::row_hashed(access.table, key.hash), mask);
            let Some(at) = needs.iter().position(|need| need.slot == slot) else {
                return;
            };
            let def = epoch.catalog.table_by_id(access.table);
            let index = def.and_then(|def| def.primary_key);
            let probe = index.and_then(|index| Probe::new(access.table, index, key.bytes));
            let (Some(found), Some(need)) = (probed.get_mut(at), needs.get(at)) else {
                return;
            };
            match (&*found, probe) {
                (Some(known), Some(probe))
                    if known.probe.table == probe.table && known.probe.key() == probe.key() => {}
                (None, Some(probe)) if holds.get(at) == Some(&false) => {
                    *found = Some(Probed {
                        probe,
                        mode: need.mode,
                        found: None,
                    });
                }
                _ => {
                    *found = None;
                    if let Some(hold) = holds.get_mut(at) {
                        *hold = true;
                    }
                }
            }
        });
        for ((need, probed), hold) in needs.iter().zip(probed).zip(holds) {
            *hold = need.mode == LockMode::S && probed.is_none();
        }
        Ok(())
    }
}
