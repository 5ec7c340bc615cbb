//! Takes jobs out whose requester wants no result any more.
//!
//! A job that waits leaves its queue. Attempts that units have not begun are withdrawn. What a unit is at is
//! not waited for: the requester is told at once, and the attempt keeps its place until it ends like any
//! other, in time or late. A unit that can stop does and says so; another answers as if nothing had happened,
//! and then its answer is looked at as far as that is cheap: damage counts, the result is not validated. So
//! cancelling neither hides faults nor blames anybody.

use super::core::{Core, Ended};
use crate::reason::Reason;
use crate::report::{Finished, JobError, JobReport};
use crate::wire::AttemptId;

impl Core {
    /// Cancels a job. No effect if it is finished.
    pub(crate) fn cancel(&mut self, id: u64, now_ns: u64) {
        let Some(state) = self.jobs.remove(&id) else {
            return;
        };
        let urgency = state.job.urgency;
        if self.waiting.remove(urgency, id) {
            let dequeued = self.dequeued.get_mut(urgency);
            dequeued.0 += 1;
            dequeued.1 += state.job.task_bytes();
        }
        self.for_cpu.remove(urgency, id);
        let of_job = self.attempts.iter().filter(|(_, attempt)| attempt.job == id);
        let attempts: Vec<AttemptId> = of_job.map(|(id, _)| *id).collect();
        for id in attempts {
            self.cancel_attempt(id, now_ns);
        }
        for slot in &mut self.units {
            slot.probe = slot.probe.filter(|probe| *probe != id);
        }
        self.cancelled += 1;
        let started_ns = state.started_ns.unwrap_or(now_ns);
        let report = JobReport {
            kind: state.job.kind,
            unit: String::new(),
            redone_on_cpu: None,
            compared: false,
            bytes_in: state.job.task_bytes(),
            bytes_out: 0,
            queued_ns: started_ns.saturating_sub(state.submitted_ns),
            run_ns: now_ns.saturating_sub(started_ns),
            cycles: 0,
        };
        let result = Err(JobError::Cancelled);
        self.finished.push((state.done, Finished { result, report }));
    }

    fn cancel_attempt(&mut self, id: AttemptId, now_ns: u64) {
        let Some(attempt) = self.attempts.get_mut(&id) else {
            return;
        };
        attempt.is_cancelled = true;
        attempt.may_hedge = false;
        let slot = self.units.get_mut(attempt.unit);
        let is_withdrawn = slot.is_some_and(|slot| {
            let is_withdrawn = slot.unit.withdraw(id);
            if !is_withdrawn {
                slot.unit.cancel(id);
            }
            is_withdrawn
        });
        if is_withdrawn {
            self.end_span(id, Ended::GivenUp, "cancelled", (0, 0), now_ns);
        }
    }

    /// The end of an attempt whose job was cancelled.
    pub(super) fn take_cancelled(&mut self, unit: usize, job: u64, verdict: Result<(), Reason>, now_ns: u64) {
        if let Err(reason) = verdict
            && unit != self.cpu()
            // Nobody finds out whether the task is valid.
            && reason != Reason::CalledInvalid
        {
            self.unit_failed(unit, job, reason, now_ns);
        }
    }
}
