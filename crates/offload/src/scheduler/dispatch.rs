//! Gives jobs to units: which unit takes which job, which are busy or on probation, what goes to the CPU
//! directly.
//!
//! The queue is served in order, but a job whose units are busy does not delay one behind it whose units are
//! free. Among free units the one with the smallest used fraction of its depth gets the job.
//!
//! Units that fail faster than the CPU redoes their jobs would fill the CPU's queue without limit. So nobody
//! gets a job while that queue is full: jobs stay where they wait, and their requesters feel it.
//!
//! Lost answers occupy their units' places until the deadline. So an idle CPU takes a job if everything that
//! its units hold is unusually slow.

use bytes::Bytes;

use crate::reason::Reason;
use crate::scheduler::core::{Attempt, Core, Ended};
use crate::scheduler::service_time::kib;
use crate::unit::Fit;
use crate::wire::{AttemptId, Request, job_crc};
use crate::{health::Standing, job::Excess};

/// What to do with a queued job.
enum Choice {
    /// Its units are busy.
    Wait,
    /// These units get it: one, or two that are compared.
    Units(usize, Option<usize>),
    /// A unit on probation gets it, and the CPU too.
    Probe(usize),
    /// The CPU gets it; with a reason if units were to have it.
    Cpu(Option<Reason>),
}

impl Core {
    pub(super) fn dispatch(&mut self, now_ns: u64) {
        self.feed_cpu(now_ns);
        let mut at = 0;
        while at < self.waiting.len() && self.has_free_executor() && self.for_cpu_has_room() {
            let Some(id) = self.waiting.get(at).copied() else {
                return;
            };
            let choice = self.choose(id, now_ns);
            if matches!(choice, Choice::Wait) {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            self.start(id, &choice, now_ns);
            self.feed_cpu(now_ns);
        }
    }

    fn has_free_executor(&self) -> bool {
        self.units.iter().any(|slot| slot.free() > 0)
    }

    /// A job that fails now will find space in the CPU's queue.
    fn for_cpu_has_room(&self) -> bool {
        self.for_cpu.len() < self.config.cpu_queue_jobs_max.max(1)
    }

    /// The CPU has space beyond what is queued for it.
    pub(super) fn cpu_free(&self) -> bool {
        let free = self.units.last().map_or(0, |cpu| cpu.free());
        free > self.for_cpu.len()
    }

    /// A CPU thread is idle, and nothing is queued for it.
    pub(super) fn cpu_idle(&self) -> bool {
        let held = self.units.last().map_or(0, |cpu| cpu.counters.in_flight);
        held + self.for_cpu.len() < self.config.cpu_threads.max(1)
    }

    fn choose(&mut self, id: u64, now_ns: u64) -> Choice {
        let cpu = self.cpu();
        let Some(state) = self.jobs.get(&id) else {
            return Choice::Cpu(None);
        };
        let (mut excess, mut taken): (Option<Excess>, bool) = (None, false);
        let mut usable: Vec<usize> = Vec::new();
        let mut free: Vec<(usize, usize)> = Vec::new();
        for (index, slot) in self.units.iter_mut().enumerate().take(cpu) {
            match slot.unit.spec().fit(&state.job) {
                Fit::OtherKind => continue,
                Fit::Beyond(limit) => {
                    excess.get_or_insert(limit);
                    continue;
                }
                Fit::Accepted => taken = true,
            }
            match slot.health.standing(now_ns) {
                Standing::Out { .. } => {}
                Standing::Probation { .. } => {
                    if slot.probe.is_none() && slot.counters.in_flight == 0 {
                        return Choice::Probe(index);
                    }
                }
                Standing::In => {
                    usable.push(index);
                    if slot.free() > 0 {
                        let used = slot.counters.in_flight * 1024 / slot.unit.spec().depth.max(1);
                        free.push((used, index));
                    }
                }
            }
        }
        let compare = state.compare;
        if !taken {
            let reason = excess.map_or(Reason::NoUnit, Reason::from);
            return self.directly((cpu > 0).then_some(reason));
        }
        if usable.is_empty() {
            return self.directly(Some(Reason::UnitsOut));
        }
        free.sort_unstable();
        let mut free = free.into_iter().map(|(_, index)| index);
        match free.next() {
            None if self.config.cpu_helps && self.cpu_free() => Choice::Cpu(None),
            None if self.cpu_idle() && self.all_overdue(&usable, now_ns) => {
                Choice::Cpu(Some(Reason::UnitsOverdue))
            }
            None => Choice::Wait,
            Some(first) if compare => Choice::Units(first, Some(free.next().unwrap_or(cpu))),
            Some(first) => Choice::Units(first, None),
        }
    }

    /// Everything that these units hold is unusually slow, and none of it is still to be started on the CPU:
    /// what has waited longer comes first there.
    fn all_overdue(&self, units: &[usize], now_ns: u64) -> bool {
        let mut held = self.attempts.values();
        held.all(|attempt| {
            !units.contains(&attempt.unit) || attempt.overdue_ns <= now_ns && !attempt.may_hedge
        })
    }

    fn directly(&self, reason: Option<Reason>) -> Choice {
        if self.cpu_free() {
            Choice::Cpu(reason)
        } else {
            Choice::Wait
        }
    }

    fn start(&mut self, id: u64, choice: &Choice, now_ns: u64) {
        let Some(state) = self.jobs.get_mut(&id) else {
            return;
        };
        state.started_ns = Some(now_ns);
        self.dequeued.0 += 1;
        self.dequeued.1 += state.job.task_bytes();
        let cpu = self.cpu();
        match choice {
            Choice::Wait => {}
            Choice::Cpu(reason) => {
                if let Some(state) = self.jobs.get_mut(&id) {
                    state.reason = *reason;
                }
                self.helped += u64::from(reason.is_none());
                self.send_to_cpu(id);
            }
            Choice::Units(first, None) => self.attempt(id, *first, now_ns),
            Choice::Units(first, Some(second)) => {
                // Counted before either is tried: a refusal by the first must not end the job.
                if *second == cpu {
                    self.send_to_cpu(id);
                    self.attempt(id, *first, now_ns);
                } else {
                    self.attempt(id, *first, now_ns);
                    self.attempt(id, *second, now_ns);
                }
            }
            Choice::Probe(index) => {
                if let Some(slot) = self.units.get_mut(*index) {
                    slot.probe = Some(id);
                    slot.counters.probes += 1;
                }
                if let Some(state) = self.jobs.get_mut(&id) {
                    state.compare = true;
                }
                self.send_to_cpu(id);
                self.attempt(id, *index, now_ns);
            }
        }
    }

    /// Queues a job for the CPU, unless it is queued already.
    pub(super) fn send_to_cpu(&mut self, id: u64) {
        if let Some(state) = self.jobs.get_mut(&id)
            && !state.at_cpu
            && state.cpu_result.is_none()
        {
            state.at_cpu = true;
            self.for_cpu.push_back(id);
        }
    }

    /// Withdraws a finished job from the CPU, unless the CPU has started it.
    pub(super) fn withdraw_from_cpu(&mut self, id: u64, now_ns: u64) {
        self.for_cpu.retain(|job| *job != id);
        let cpu = self.cpu();
        let mut attempts = self.attempts.iter();
        let held = attempts.find(|(_, attempt)| attempt.unit == cpu && attempt.job == id);
        if let (Some((&attempt, _)), Some(slot)) = (held, self.units.get_mut(cpu))
            && slot.unit.withdraw(attempt)
        {
            self.end_span(attempt, Ended::GivenUp, "withdrawn", (0, 0), now_ns);
        }
    }

    /// Gives the CPU what is queued for it, as far as it has space.
    pub(super) fn feed_cpu(&mut self, now_ns: u64) {
        let cpu = self.cpu();
        while self.units.get(cpu).is_some_and(|slot| slot.free() > 0) {
            let Some(id) = self.for_cpu.pop_front() else {
                return;
            };
            if self.jobs.contains_key(&id) && !self.submit(id, cpu, now_ns) {
                self.for_cpu.push_front(id);
                return;
            }
        }
    }

    /// One attempt on a unit; a refusal counts as a failure.
    fn attempt(&mut self, id: u64, unit: usize, now_ns: u64) {
        if let Some(state) = self.jobs.get_mut(&id) {
            state.outstanding += 1;
        }
        if !self.submit(id, unit, now_ns) {
            self.unit_failed(unit, id, Reason::Refused, now_ns);
            self.attempt_failed(id, unit, Reason::Refused, now_ns);
        }
    }

    /// Hands a request to a unit. True when it took it.
    fn submit(&mut self, id: u64, unit: usize, now_ns: u64) -> bool {
        let is_cpu = unit == self.cpu();
        let (Some(state), Some(slot)) = (self.jobs.get_mut(&id), self.units.get_mut(unit)) else {
            return false;
        };
        let attempt = AttemptId(self.next_attempt);
        self.next_attempt += 1;
        let (job, kind) = (&state.job, state.job.kind);
        let spec = slot.unit.spec();
        let mut request = Request {
            attempt,
            kind,
            shape: job.shape.clone(),
            payload: Bytes::new(),
            crc: 0,
            buffers: Vec::new(),
            drops_all: false,
            dropped: Vec::new(),
            task: None,
        };
        let mut sent_bytes = job.task_bytes();
        if spec.in_process {
            request.task = Some(job.task.clone());
        } else {
            let carried = slot.residents.carry(job.buffers(), spec.buffer_bytes_max);
            slot.counters.buffer_bytes_sent += carried.sent_bytes;
            slot.counters.buffer_bytes_kept += carried.kept_bytes;
            sent_bytes = job.payload().len() as u64 + carried.sent_bytes;
            request.payload = job.payload().clone();
            request.crc = *state.crc.get_or_insert_with(|| job_crc(job));
            (request.buffers, request.dropped) = (carried.buffers, carried.dropped);
            request.drops_all = carried.drops_all;
        }
        slot.counters.link_ns += spec.link.map_or(0, |link| link.ns(sent_bytes));
        let bytes_in = state.job.task_bytes();
        let kib = kib(bytes_in, &state.job.shape);
        let configured = kib
            .saturating_mul(self.config.deadline_ns_per_kib)
            .saturating_add(self.config.deadline_ns);
        let allowed = if is_cpu {
            u64::MAX
        } else {
            state.job.deadline_ns.unwrap_or(configured)
        };
        let may_hedge = !is_cpu && self.config.hedge_floor_ns < u64::MAX;
        let too_long = slot.paces.too_long_ns(kind, kib).filter(|_| may_hedge);
        let overdue_ns = too_long.map_or(u64::MAX, |ns| {
            let wait_ns = ns.min(allowed / 2).max(self.config.hedge_floor_ns);
            now_ns.saturating_add(wait_ns)
        });
        slot.counters.started += 1;
        slot.counters.in_flight += 1;
        slot.counters.bytes_in += bytes_in;
        let lane = slot.lanes.trailing_ones().min(63);
        slot.lanes |= 1 << lane;
        let record = Attempt {
            job: id,
            unit,
            lane,
            kind: state.job.kind,
            crc: request.crc,
            bytes_in,
            started_ns: now_ns,
            deadline_ns: now_ns.saturating_add(allowed),
            overdue_ns,
            // A job with a second executor has it from the start.
            may_hedge: may_hedge && !state.compare && overdue_ns < u64::MAX,
            kib,
            superseded: None,
        };
        let taken = slot.unit.submit(request).is_ok();
        self.attempts.insert(attempt, record);
        if !taken {
            slot.residents.forget();
            self.end_span(attempt, Ended::Answered, Reason::Refused.name(), (0, 0), now_ns);
        }
        taken
    }
}
