//! Read-only programs on a device: they take no place in the order, and read at a boundary.
//!
//! The device reads what its mirror holds, so a group goes there only if the mirror is of that boundary and
//! nobody else uses the device; nobody waits for it.

use weft_base::BatchId;
use weft_store::ReadView;

use super::answers::{Verdict, compare, test};
use super::placed::Mirror;
use super::waves::{Answers, Group};
use super::{CpuReason, DeviceAnswer, DeviceFault, PlacedDevice};
use crate::executor::{Execution, Work, run_reads};
use crate::request::{Answer, Committed, Refused};

impl PlacedDevice {
    /// Runs read-only programs at the boundary of a view, as members of one wave that changes nothing. `keep`
    /// is called for each, by number, in no particular order.
    pub fn run_reads(
        &mut self,
        execution: Execution,
        view: ReadView<'_>,
        calls: &[Work<'_>],
        mut keep: impl FnMut(usize, Answer<Committed>) + Send,
    ) {
        let boundary = view.batch();
        if self.mirror != Mirror::Of(boundary) {
            let reason = match self.is_out_of_service() {
                true => CpuReason::OutOfService,
                false => CpuReason::Boundary,
            };
            self.stats.count_cpu(reason, calls.len());
            return run_reads(execution, view, calls, keep);
        }
        let group = self.group(calls, 0..calls.len());
        let is_checked = self.is_next_checked();
        if group.members.is_empty() || !self.start(&group, boundary) {
            return run_reads(execution, view, calls, keep);
        }
        let on_cpu = |numbers: &[usize], answers: &mut Answers| {
            let works: Vec<Work<'_>> = numbers.iter().filter_map(|n| calls.get(*n).copied()).collect();
            run_reads(execution, view, &works, |at, answer| {
                answers.extend(numbers.get(at).map(|number| (*number, answer)));
            });
        };
        let mut answers = Answers::with_capacity(calls.len());
        let others: Vec<usize> = match is_checked {
            true => (0..calls.len()).collect(),
            false => (0..calls.len())
                .filter(|number| group.members.binary_search(number).is_err())
                .collect(),
        };
        on_cpu(&others, &mut answers);
        answers.sort_unstable_by_key(|(number, _)| *number);
        let ended = self.finish(&group, boundary);
        let redone = self.take_reads(view, calls, (&group, ended, is_checked), &mut answers);
        on_cpu(&redone, &mut answers);
        answers
            .into_iter()
            .for_each(|(number, answer)| keep(number, answer));
    }

    /// Compares or takes what the device read. Returns the members that the CPU has to run.
    fn take_reads(
        &mut self,
        view: ReadView<'_>,
        calls: &[Work<'_>],
        (group, ended, is_checked): (&Group<'_>, Option<Vec<DeviceAnswer>>, bool),
        answers: &mut Answers,
    ) -> Vec<usize> {
        let all = || match is_checked {
            true => Vec::new(),
            false => group.members.clone(),
        };
        let Some(ended) = ended else {
            return all();
        };
        let boundary = view.batch();
        let mut verdicts = Vec::with_capacity(ended.len());
        for (number, answer) in group.members.iter().zip(&ended) {
            // If the CPU ran all of them, their answers are in their order.
            let expected = answers.get(*number).map(|(_, answer)| answer);
            let verdict = match (is_checked, expected, calls.get(*number)) {
                (true, Some(expected), _) => compare(view.catalog(), expected, &Vec::new(), answer),
                (false, _, Some(work)) => match test(view, *work, answer) {
                    Ok(verdict) => verdict,
                    // The CPU meets the same error.
                    Err(_) => Verdict::Cpu(CpuReason::Inputs),
                },
                _ => Verdict::Cpu(CpuReason::Redone),
            };
            if let Verdict::Fault(what) = verdict {
                self.fail(boundary, DeviceFault(format!("read {number}: {what}")));
                self.stats.count_cpu(CpuReason::Redone, group.members.len());
                return all();
            }
            verdicts.push(verdict);
        }
        let mut redone = Vec::new();
        for ((number, answer), verdict) in group.members.iter().zip(ended).zip(verdicts) {
            if let Verdict::Cpu(reason) = verdict {
                self.stats.count_cpu(reason, 1);
                if !is_checked {
                    redone.push(*number);
                }
                continue;
            }
            self.stats.members += 1;
            self.stats.checked_members += u64::from(is_checked);
            if !is_checked {
                answers.extend(read_answer(answer, boundary).map(|answer| (*number, answer)));
            }
        }
        redone
    }
}

/// What a read is answered with. The device does not say which batches wrote what it read: it is the boundary
/// that must be durable.
fn read_answer(answer: DeviceAnswer, boundary: BatchId) -> Option<Answer<Committed>> {
    match answer {
        DeviceAnswer::Committed { outcome, .. } => Some(Ok(Committed {
            outcome,
            batch: boundary,
            observed: boundary,
        })),
        DeviceAnswer::Failed(error) => Some(Err(Box::new(Refused {
            error,
            observed: boundary,
        }))),
        DeviceAnswer::NotRun(_) => None,
    }
}
