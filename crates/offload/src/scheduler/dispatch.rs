//! Gives jobs to units: which unit takes which job, which are busy or on probation, what goes to the CPU
//! directly.
//!
//! Each urgency's queue is served in order, urgent jobs first within the bounds of [`crate::urgency`]; but a
//! job whose units are busy does not delay one behind it whose units are free. Among free units the one with
//! the smallest used fraction of its depth gets the job.
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
use crate::urgency::{URGENT_RUN_MAX, Urgency};
use crate::wire::{AttemptId, Request, job_crc};
use crate::{health::Standing, job::Excess};

/// What to do with a queued job.
enum Choice {
    /// Its units are busy.
    Wait,
    /// Its units have place, but it is the turn of a background job.
    GiveWay,
    /// These units get it: one, or two that are compared.
    Units(usize, Option<usize>),
    /// A unit on probation gets it, and the CPU too.
    Probe(usize),
    /// The CPU gets it; with a reason if units were to have it.
    Cpu(Option<Reason>),
}

impl Core {
    pub(super) fn dispatch(&mut self, now_ns: u64) {
        self.feed_cpu(Some(Urgency::Urgent), now_ns);
        loop {
            let (_, gave_way) = self.dispatch_of(Urgency::Urgent, usize::MAX, now_ns);
            self.feed_cpu(None, now_ns);
            // What gave way to one background job is next.
            let jobs_max = if gave_way { 1 } else { usize::MAX };
            let (started, _) = self.dispatch_of(Urgency::Background, jobs_max, now_ns);
            if !gave_way || !started {
                return;
            }
        }
    }

    /// Starts waiting jobs of an urgency; whether there were any, and whether one gave way.
    fn dispatch_of(&mut self, urgency: Urgency, jobs_max: usize, now_ns: u64) -> (bool, bool) {
        let (mut at, mut started, mut gave_way) = (0, 0, false);
        while started < jobs_max && self.has_free_executor(urgency) && self.for_cpu_has_room(urgency) {
            let Some(id) = self.waiting.get(urgency).get(at).copied() else {
                break;
            };
            let choice = self.choose(id, now_ns);
            if matches!(choice, Choice::Wait | Choice::GiveWay) {
                gave_way |= matches!(choice, Choice::GiveWay);
                at += 1;
                continue;
            }
            self.waiting.get_mut(urgency).remove(at);
            started += 1;
            self.start(id, &choice, now_ns);
            self.feed_cpu(Some(urgency), now_ns);
        }
        (started > 0, gave_way)
    }

    fn has_free_executor(&self, urgency: Urgency) -> bool {
        self.units.iter().any(|slot| slot.free(urgency) > 0)
    }

    /// A job that fails now will find space in the CPU's queue.
    fn for_cpu_has_room(&self, urgency: Urgency) -> bool {
        self.for_cpu.get(urgency).len() < self.config.cpu_queue_jobs_max.max(1)
    }

    /// The CPU has space beyond what is queued for it.
    pub(super) fn cpu_free(&self, urgency: Urgency) -> bool {
        let free = self.units.last().map_or(0, |cpu| cpu.free(urgency));
        free > self.before_on_cpu(urgency)
    }

    /// A CPU thread is idle, and nothing is queued for it. For an urgent job it need not be idle, if it does
    /// such jobs between slices.
    pub(super) fn cpu_idle(&self, urgency: Urgency) -> bool {
        let held = self
            .units
            .last()
            .map_or(0, |cpu| match (urgency, cpu.unit.spec().urgent_depth) {
                (Urgency::Urgent, 1..) => cpu.held.urgent,
                _ => cpu.held.total(),
            });
        held + self.before_on_cpu(urgency) < self.config.cpu_threads.max(1)
    }

    /// Jobs that are queued for the CPU and come before a new one.
    fn before_on_cpu(&self, urgency: Urgency) -> usize {
        match urgency {
            Urgency::Urgent => self.for_cpu.urgent.len(),
            Urgency::Background => self.for_cpu.total(),
        }
    }

    /// It is the turn of a background job that waits for a place at this unit, and there is one.
    fn is_turn_of_background(&self, unit: usize) -> bool {
        let Some(slot) = self.units.get(unit) else {
            return false;
        };
        let fits = |id: &u64| {
            let job = self.jobs.get(id).map(|state| &state.job);
            job.is_some_and(|job| slot.unit.spec().fit(job) == Fit::Accepted)
        };
        slot.urgent_run >= URGENT_RUN_MAX
            && slot.free(Urgency::Background) > 0
            && self.for_cpu_has_room(Urgency::Background)
            && self.waiting.background.iter().any(fits)
    }

    fn choose(&mut self, id: u64, now_ns: u64) -> Choice {
        let cpu = self.cpu();
        let Some(state) = self.jobs.get(&id) else {
            return Choice::Cpu(None);
        };
        let (mut excess, mut taken): (Option<Excess>, bool) = (None, false);
        let urgency = state.job.urgency;
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
                    if slot.free(urgency) > 0 {
                        let used = slot.counters.in_flight * 1024 / slot.unit.spec().depth.max(1);
                        free.push((used, index));
                    }
                }
            }
        }
        let compare = state.compare;
        if !taken {
            let reason = excess.map_or(Reason::NoUnit, Reason::from);
            return self.directly(urgency, (cpu > 0).then_some(reason));
        }
        if usable.is_empty() {
            return self.directly(urgency, Some(Reason::UnitsOut));
        }
        let places = free.len();
        if urgency == Urgency::Urgent {
            free.retain(|(_, unit)| !self.is_turn_of_background(*unit));
        }
        if free.len() < places && free.is_empty() {
            return Choice::GiveWay;
        }
        free.sort_unstable();
        let mut free = free.into_iter().map(|(_, index)| index);
        match free.next() {
            None if self.config.cpu_helps && self.cpu_free(urgency) => Choice::Cpu(None),
            None if self.cpu_idle(urgency) && self.all_overdue(&usable, now_ns) => {
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
            let is_overdue = attempt.overdue_ns <= now_ns && !attempt.may_hedge;
            !units.contains(&attempt.unit) || is_overdue && attempt.answered_ns.is_none()
        })
    }

    fn directly(&self, urgency: Urgency, reason: Option<Reason>) -> Choice {
        if self.cpu_free(urgency) {
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
        let dequeued = self.dequeued.get_mut(state.job.urgency);
        dequeued.0 += 1;
        dequeued.1 += state.job.task_bytes();
        let cpu = self.cpu();
        match choice {
            Choice::Wait | Choice::GiveWay => {}
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
            self.for_cpu.get_mut(state.job.urgency).push_back(id);
        }
    }

    /// Withdraws a finished job from the CPU, unless the CPU has started it.
    pub(super) fn withdraw_from_cpu(&mut self, id: u64, now_ns: u64) {
        self.for_cpu.urgent.retain(|job| *job != id);
        self.for_cpu.background.retain(|job| *job != id);
        let cpu = self.cpu();
        let mut attempts = self.attempts.iter();
        let held = attempts.find(|(_, attempt)| attempt.unit == cpu && attempt.job == id);
        if let (Some((&attempt, _)), Some(slot)) = (held, self.units.get_mut(cpu))
            && slot.unit.withdraw(attempt)
        {
            self.end_span(attempt, Ended::GivenUp, "withdrawn", (0, 0), now_ns);
        }
    }

    /// Gives the CPU what is queued for it, as far as it has space; only jobs of an urgency, if one is given.
    pub(super) fn feed_cpu(&mut self, only: Option<Urgency>, now_ns: u64) {
        let cpu = self.cpu();
        while let Some(urgency) = self
            .next_for_cpu()
            .filter(|next| only.is_none_or(|only| only == *next))
        {
            let Some(id) = self.for_cpu.get_mut(urgency).pop_front() else {
                return;
            };
            if self.jobs.contains_key(&id) && !self.submit(id, cpu, now_ns) {
                self.for_cpu.get_mut(urgency).push_front(id);
                return;
            }
        }
    }

    /// The urgency of the next job for the CPU, if it has space for one.
    fn next_for_cpu(&self) -> Option<Urgency> {
        let cpu = self.units.last()?;
        let is_next = |urgency: &Urgency| !self.for_cpu.get(*urgency).is_empty() && cpu.free(*urgency) > 0;
        let order = match cpu.urgent_run < URGENT_RUN_MAX {
            true => [Urgency::Urgent, Urgency::Background],
            false => [Urgency::Background, Urgency::Urgent],
        };
        order.into_iter().find(is_next)
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
        let background_waits = !(self.waiting.background.is_empty() && self.for_cpu.background.is_empty());
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
            urgency: job.urgency,
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
        let urgency = job.urgency;
        slot.urgent_run = match urgency {
            Urgency::Urgent if background_waits => slot.urgent_run.saturating_add(1),
            _ => 0,
        };
        *slot.held.get_mut(urgency) += 1;
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
            urgency,
            passed_ns: 0,
            answered_ns: None,
            is_cancelled: false,
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
