//! Acts on answers: comparison, blame, redoing, telling the requester.

use crate::health::{Change, Standing};
use crate::operation::Output;
use crate::reason::Reason;
use crate::report::{Finished, JobError, JobReport};
use crate::scheduler::core::{Attempt, CPU_TRIES_MAX, Core, Ended, JobState, Superseded, UnitResult};
use crate::scheduler::validation::ValidatedAnswer;
use crate::timeline::{Entry, Mark, Span};
use crate::urgency::Urgency;
use crate::wire::AttemptId;

impl Core {
    /// Takes a unit's answer; ignores and counts an unexpected one.
    pub(super) fn take_answer(&mut self, judged: ValidatedAnswer, now_ns: u64) {
        let ValidatedAnswer {
            unit,
            attempt: id,
            answered_ns,
            verdict,
            output,
            bytes_out,
            cycles,
        } = judged;
        let held = self.attempts.get(&id);
        let Some(attempt) = held.filter(|attempt| attempt.unit == unit) else {
            self.count_stray(unit, id);
            return;
        };
        let (job, kind, kib) = (attempt.job, attempt.kind, attempt.kib);
        let took_ns = answered_ns.saturating_sub(attempt.started_ns + attempt.passed_ns);
        let overdue_by_ns = answered_ns.saturating_sub(attempt.overdue_ns);
        let is_cancelled = attempt.is_cancelled;
        let superseded = attempt.superseded.as_ref();
        let done = match superseded {
            _ if is_cancelled => "cancelled",
            Some(superseded) if superseded.hedge_lost => Reason::Slow.name(),
            _ => "done",
        };
        let outcome = verdict.err().map_or(done, Reason::name);
        let ended = self.end_span(id, Ended::Answered, outcome, (bytes_out, cycles), answered_ns);
        if is_cancelled {
            self.take_cancelled(unit, job, verdict, now_ns);
            return;
        }
        if let Some(slot) = self.units.get_mut(unit)
            && verdict.is_ok()
        {
            slot.counters.answered += 1;
            slot.counters.bytes_out += bytes_out;
            slot.counters.link_ns += slot.unit.spec().link.map_or(0, |link| link.ns(bytes_out));
            slot.counters.cycles += cycles;
            slot.paces.answered(kind, kib, took_ns);
        }
        if let Some(superseded) = ended.and_then(|attempt| attempt.superseded) {
            self.take_superseded(unit, job, verdict, &superseded, now_ns);
            return;
        }
        if unit == self.cpu() {
            if let Some(state) = self.jobs.get_mut(&job) {
                (state.cpu_cycles, state.cpu_took_ns) = (cycles, took_ns);
            }
            self.take_cpu_answer(job, verdict, output);
        } else {
            match verdict {
                // Only the CPU decides whether a task is valid; until then nobody is to blame.
                Ok(()) | Err(Reason::CalledInvalid) => {
                    self.doubt(unit, job, now_ns);
                    if let Some(state) = self.jobs.get_mut(&job) {
                        state.outstanding -= 1;
                        state.reason = state.reason.or(verdict.err());
                        state.kept.push(UnitResult {
                            unit,
                            cycles,
                            overdue_by_ns,
                            output: verdict.is_ok().then_some(output),
                        });
                    }
                }
                Err(reason) => {
                    self.unit_failed(unit, job, reason, now_ns);
                    self.attempt_failed(job, unit, reason, now_ns);
                    return;
                }
            }
        }
        self.conclude(job, answered_ns);
    }

    /// A unit that is not in is not trusted on a checksum, whenever it was given the job. A compared job, as
    /// a probe is, has its second result anyway.
    fn doubt(&mut self, unit: usize, job: u64, now_ns: u64) {
        let slot = self.units.get_mut(unit);
        let is_in = slot.is_some_and(|slot| slot.health.standing(now_ns) == Standing::In);
        if let Some(state) = self.jobs.get_mut(&job)
            && !is_in
            && !state.compare
        {
            // The CPU may have started it already: that is no hedge any more.
            (state.compare, state.hedged) = (true, false);
            self.send_to_cpu(job);
        }
    }

    /// An answer to a job whose requester was told without it: it says about the unit what it would have said
    /// in time, and that the unit is slow if it was unusually so.
    fn take_superseded(
        &mut self,
        unit: usize,
        job: u64,
        verdict: Result<(), Reason>,
        superseded: &Superseded,
        now_ns: u64,
    ) {
        let failure = match (verdict, superseded.makes_sense) {
            (Ok(()), Some(true)) | (Err(Reason::CalledInvalid), Some(false)) => None,
            (Ok(()), Some(false)) => Some(Reason::Mismatch),
            // Neither success nor failure.
            (Ok(()) | Err(Reason::CalledInvalid), None) => return,
            (Err(reason), _) => Some(reason),
        };
        match failure {
            Some(reason) => self.unit_failed(unit, job, reason, now_ns),
            None if superseded.hedge_lost => {
                if let Some(slot) = self.units.get_mut(unit) {
                    slot.counters.slow += 1;
                }
                self.unit_slow(unit, job, now_ns);
            }
            None => self.unit_right(unit, job, false, now_ns),
        }
    }

    fn take_cpu_answer(&mut self, job: u64, verdict: Result<(), Reason>, output: Output) {
        let Some(state) = self.jobs.get_mut(&job) else {
            return;
        };
        state.at_cpu = false;
        let text = |output: &Output| String::from_utf8_lossy(&output.to_bytes()).into_owned();
        state.cpu_result = match verdict {
            Ok(()) => Some(Ok(output)),
            Err(Reason::CalledInvalid) => Some(Err(match output {
                Output::Refused(error) => JobError::Refused(error),
                other => JobError::Invalid(text(&other)),
            })),
            Err(Reason::Broken) => Some(Err(JobError::Broken(text(&output)))),
            Err(Reason::Malformed) => Some(Err(JobError::Broken("its result is implausible".to_owned()))),
            Err(_) if state.cpu_tries + 1 < CPU_TRIES_MAX => {
                state.cpu_tries += 1;
                self.send_to_cpu(job);
                return;
            }
            Err(_) => Some(Err(JobError::CpuDamaged)),
        };
        let has_none = |result: &Result<Output, JobError>| result.as_ref().is_err_and(is_of_cpu);
        if state.hedged && state.reason.is_none() && state.cpu_result.as_ref().is_some_and(has_none) {
            // The unit may still answer.
            (state.cpu_result, state.hedged) = (None, false);
            self.hedges_lost_by_cpu += 1;
        }
    }

    /// An attempt on a unit failed: the CPU's result will be final.
    pub(super) fn attempt_failed(&mut self, job: u64, unit: usize, reason: Reason, now_ns: u64) {
        if let Some(slot) = self.units.get_mut(unit)
            && slot.probe == Some(job)
        {
            slot.probe = None;
        }
        if let Some(state) = self.jobs.get_mut(&job) {
            state.outstanding -= 1;
            state.reason.get_or_insert(reason);
        }
        self.conclude(job, now_ns);
    }

    /// Gives up attempts whose deadline has passed.
    pub(super) fn abandon_overdue(&mut self, now_ns: u64) {
        let late: Vec<AttemptId> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| attempt.deadline_ns <= now_ns && attempt.answered_ns.is_none())
            .map(|(id, _)| *id)
            .collect();
        for id in late {
            let Some(attempt) = self.end_span(id, Ended::GivenUp, Reason::Late.name(), (0, 0), now_ns) else {
                continue;
            };
            if let Some(slot) = self.units.get_mut(attempt.unit) {
                slot.unit.forget(id);
            }
            self.unit_failed(attempt.unit, attempt.job, Reason::Late, now_ns);
            self.attempt_failed(attempt.job, attempt.unit, Reason::Late, now_ns);
        }
    }

    /// Starts jobs on the CPU that units were unusually slow with at `gathered_ns`, as far as CPU threads are
    /// idle. Jobs that only the CPU can do come first.
    pub(super) fn hedge(&mut self, gathered_ns: u64, now_ns: u64) {
        let due = |attempt: &&Attempt| {
            attempt.may_hedge && attempt.overdue_ns <= gathered_ns && attempt.answered_ns.is_none()
        };
        let slow = self.attempts.values().filter(due);
        let slow = slow.map(|attempt| (attempt.urgency, attempt.overdue_ns, attempt.job));
        let mut slow: Vec<(Urgency, u64, u64)> = slow.collect();
        slow.sort_unstable();
        for (urgency, _, job) in slow {
            if !self.cpu_idle(urgency) {
                continue;
            }
            for attempt in self.attempts.values_mut().filter(|attempt| attempt.job == job) {
                attempt.may_hedge = false;
            }
            if let Some(state) = self.jobs.get_mut(&job)
                && !state.at_cpu
                && state.cpu_result.is_none()
            {
                state.hedged = true;
                self.hedged += 1;
                self.send_to_cpu(job);
                self.feed_cpu(None, now_ns);
            }
        }
    }

    /// Advances a job as far as the results allow.
    fn conclude(&mut self, job: u64, now_ns: u64) {
        let Some(state) = self.jobs.get(&job) else {
            return;
        };
        if state.cpu_result.is_some() {
            if state.reason.is_some() || state.outstanding == 0 || state.hedged {
                self.conclude_by_cpu(job, now_ns);
            }
        } else if state.reason.is_some() {
            self.send_to_cpu(job);
        } else if state.outstanding == 0 && (!state.at_cpu || state.hedged) {
            let equal = state
                .kept
                .windows(2)
                .all(|pair| matches!(pair, [a, b] if a.output == b.output));
            if equal {
                self.conclude_by_units(job, now_ns);
            } else {
                if let Some(state) = self.jobs.get_mut(&job) {
                    state.reason = Some(Reason::Mismatch);
                }
                self.send_to_cpu(job);
            }
        }
    }

    /// One unit's result, or two equal ones.
    fn conclude_by_units(&mut self, job: u64, now_ns: u64) {
        let Some(state) = self.jobs.remove(&job) else {
            return;
        };
        if state.at_cpu {
            self.withdraw_from_cpu(job, now_ns);
        }
        self.hedges_lost_by_cpu += u64::from(state.hedged);
        let compared = state.kept.len() > 1;
        for kept in &state.kept {
            self.unit_right(kept.unit, job, compared, now_ns);
        }
        let first = state.kept.first();
        let Some((unit, cycles, Some(output))) =
            first.map(|kept| (kept.unit, kept.cycles, kept.output.clone()))
        else {
            return;
        };
        self.deliver(state, Ok(output), (unit, cycles), compared, now_ns);
    }

    /// The CPU's result is final; units that gave another one are to blame. If the CPU failed itself, nothing
    /// is known about them.
    fn conclude_by_cpu(&mut self, job: u64, now_ns: u64) {
        let Some(mut state) = self.jobs.remove(&job) else {
            return;
        };
        let Some(result) = state.cpu_result.take() else {
            return;
        };
        let mut by = (self.cpu(), state.cpu_cycles);
        let known = !result.as_ref().is_err_and(is_of_cpu);
        if state.outstanding > 0 {
            let hedge_lost = state.hedged && state.reason.is_none();
            let superseded = || Superseded {
                job: state.job.clone(),
                makes_sense: known.then_some(result.is_ok()),
                hedge_lost,
            };
            self.mark_superseded(job, superseded, now_ns);
            if state.hedged {
                state.reason.get_or_insert(Reason::Slow);
            }
        }
        let compared = known && !state.kept.is_empty();
        for kept in &state.kept {
            let same = match (&kept.output, &result) {
                (Some(output), Ok(golden)) => output == golden,
                (None, Err(JobError::Invalid(_) | JobError::Refused(_))) => true,
                _ => false,
            };
            if !known {
                // Neither success nor failure.
            } else if same {
                // A probe is not hedged; this is how the hedge would have ended.
                if self.is_probe(kept.unit, job) && kept.overdue_by_ns > state.cpu_took_ns {
                    self.unit_compared(kept.unit);
                    self.unit_slow(kept.unit, job, now_ns);
                } else {
                    self.unit_right(kept.unit, job, true, now_ns);
                }
                if state.reason.is_none() {
                    by = (kept.unit, kept.cycles);
                }
            } else {
                let called_invalid = kept.output.is_none();
                let reason = if called_invalid {
                    Reason::CalledInvalid
                } else {
                    Reason::Mismatch
                };
                self.unit_failed(kept.unit, job, reason, now_ns);
                state.reason.get_or_insert(reason);
                by = (self.cpu(), state.cpu_cycles);
            }
            if let Some(slot) = self.units.get_mut(kept.unit) {
                slot.probe = slot.probe.filter(|probe| *probe != job);
            }
        }
        self.deliver(state, result, by, compared, now_ns);
    }

    /// The requester is told without the attempts that units still have. Those not started are withdrawn:
    /// they say nothing about the unit.
    fn mark_superseded(&mut self, job: u64, superseded: impl Fn() -> Superseded, now_ns: u64) {
        let cpu = self.cpu();
        let mut withdrawn = Vec::new();
        let attempts = self.attempts.iter_mut();
        for (id, attempt) in attempts.filter(|(_, attempt)| attempt.job == job && attempt.unit != cpu) {
            let superseded = superseded();
            if let Some(slot) = self.units.get_mut(attempt.unit) {
                slot.counters.hedges_lost += u64::from(superseded.hedge_lost);
                withdrawn.extend(slot.unit.withdraw(*id).then_some(*id));
            }
            attempt.superseded = Some(superseded);
        }
        for id in withdrawn {
            self.end_span(id, Ended::GivenUp, "withdrawn", (0, 0), now_ns);
        }
    }

    fn deliver(
        &mut self,
        state: JobState,
        result: Result<Output, JobError>,
        (unit, cycles): (usize, u64),
        compared: bool,
        now_ns: u64,
    ) {
        if let Some(reason) = state.reason {
            self.redone.add(reason);
        }
        self.compared += u64::from(compared);
        self.errors += u64::from(result.is_err());
        self.delivered += 1;
        let started_ns = state.started_ns.unwrap_or(now_ns);
        let name = self.units.get(unit).map(|slot| slot.counters.name.clone());
        let report = JobReport {
            kind: state.job.kind,
            unit: name.unwrap_or_default(),
            redone_on_cpu: state.reason,
            compared,
            bytes_in: state.job.task_bytes(),
            bytes_out: result.as_ref().map_or(0, Output::size_bytes),
            queued_ns: started_ns.saturating_sub(state.submitted_ns),
            run_ns: now_ns.saturating_sub(started_ns),
            cycles,
        };
        self.finished.push((state.done, Finished { result, report }));
    }

    /// A unit's result was taken. On probation only the probe counts.
    fn unit_right(&mut self, unit: usize, job: u64, compared: bool, now_ns: u64) {
        let Some(slot) = self.units.get_mut(unit) else {
            return;
        };
        slot.counters.compared += u64::from(compared);
        let on_probation = matches!(slot.health.standing(now_ns), Standing::Probation { .. });
        if on_probation && slot.probe != Some(job) {
            return;
        }
        let change = slot.health.right();
        self.note_change(unit, change, now_ns);
    }

    fn is_probe(&self, unit: usize, job: u64) -> bool {
        self.units.get(unit).is_some_and(|slot| slot.probe == Some(job))
    }

    fn unit_compared(&mut self, unit: usize) {
        if let Some(slot) = self.units.get_mut(unit) {
            slot.counters.compared += 1;
        }
    }

    /// A unit was right, but the CPU, started because of its slowness, was first; or would have been. On
    /// probation only the probe counts.
    fn unit_slow(&mut self, unit: usize, job: u64, now_ns: u64) {
        let Some(slot) = self.units.get_mut(unit) else {
            return;
        };
        let on_probation = matches!(slot.health.standing(now_ns), Standing::Probation { .. });
        if on_probation && slot.probe != Some(job) {
            return;
        }
        let change = slot.health.slow(now_ns, &mut self.chance);
        self.note_change(unit, change, now_ns);
    }

    /// Something speaks against a unit, or shows that a job was not for it. A job that it was given before
    /// its probation may end as late as its deadline, and if it was refused or lost, that says nothing about
    /// the unit as it is now. A wrong answer does, whatever job it is for.
    pub(super) fn unit_failed(&mut self, unit: usize, job: u64, reason: Reason, now_ns: u64) {
        let Some(slot) = self.units.get_mut(unit) else {
            return;
        };
        slot.counters.failures.add(reason);
        if reason.blame() != crate::reason::Blame::Nobody {
            // It may have been its buffers, or the request that had them.
            slot.residents.forget();
        }
        let on_probation = matches!(slot.health.standing(now_ns), Standing::Probation { .. });
        let may_be_of_before = matches!(reason, Reason::Late | Reason::Refused);
        let counts = !on_probation || slot.probe == Some(job) || !may_be_of_before;
        if counts && reason.blame() == crate::reason::Blame::Unit {
            let change = slot.health.failed(now_ns, &mut self.chance);
            self.note_change(unit, change, now_ns);
        }
    }

    fn note_change(&mut self, unit: usize, change: Option<Change>, now_ns: u64) {
        let (Some(change), Some(slot)) = (change, self.units.get_mut(unit)) else {
            return;
        };
        let what = match change {
            Change::TakenOut => {
                slot.counters.taken_out += 1;
                "taken out"
            }
            Change::BroughtBack => {
                slot.counters.brought_back += 1;
                "brought back"
            }
        };
        let at_ns = now_ns;
        self.timeline.push(Entry::Mark(Mark { unit, at_ns, what }));
    }

    /// Ends an attempt and records it in the timeline. `sizes` are bytes and cycles of its answer.
    pub(super) fn end_span(
        &mut self,
        id: AttemptId,
        how: Ended,
        outcome: &'static str,
        sizes: (u64, u64),
        now_ns: u64,
    ) -> Option<Attempt> {
        let attempt = self.end_attempt(id, how, now_ns)?;
        self.timeline.push(Entry::Span(Span {
            unit: attempt.unit,
            lane: attempt.lane,
            job: attempt.job,
            attempt: id,
            kind: attempt.kind,
            start_ns: attempt.started_ns,
            end_ns: now_ns,
            outcome,
            bytes_in: attempt.bytes_in,
            bytes_out: sizes.0,
            cycles: sizes.1,
        }));
        Some(attempt)
    }
}

/// Whether the CPU itself is at fault, so that nothing is known about the job.
fn is_of_cpu(error: &JobError) -> bool {
    matches!(error, JobError::Broken(_) | JobError::CpuDamaged)
}
