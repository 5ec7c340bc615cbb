//! Waves with a device beside the CPU.
//!
//! ```text
//!   group    members whose programs the device has
//!   start    it gets their inputs
//!   CPU      all other members; if the group is checked, all members
//!   finish   answers: compared, or tested and written to the host's rows
//!   CPU      members that the device did not run, or all of the group after a fault
//!   mirror   rows that the CPU changed
//! ```
//!
//! The CPU's part of a wave overlaps the device's. Waves do not overlap: the next group may read what this
//! wave changed on the other side. An engine without a device runs none of this (`executor`).

use std::ops::Range;
use std::time::Instant;

use hashbrown::HashMap;
use weft_base::BatchId;
use weft_store::BatchWriter;
use weft_types::SqlError;

use super::answers::{Verdict, compare, host_changes, test};
use super::placed::Mirror;
use super::{CpuReason, DeviceAnswer, DeviceCall, DeviceFault, PlacedDevice};
use crate::executor::{CpuExecutor, Work, by_member};
use crate::request::{Answer, Committed, Refused};

/// Answers with their members' numbers.
pub(super) type Answers = Vec<(usize, Answer<Committed>)>;

/// Members of one wave for the device.
#[derive(Default)]
pub(super) struct Group<'m> {
    /// Their numbers, ascending.
    pub members: Vec<usize>,
    pub calls: Vec<DeviceCall<'m>>,
}

/// The numbers as ranges, which the CPU executor takes.
fn ranges(numbers: impl IntoIterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(range) if range.end == number => range.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

impl PlacedDevice {
    /// Runs a batch's waves, each partly on the device, and returns the answers in the order of their
    /// members. `wave_ends` is as for the CPU executor.
    ///
    /// # Errors
    /// As of the CPU executor: the batch is to be undone.
    pub fn run_waves(
        &mut self,
        cpu: &CpuExecutor<'_, '_>,
        members: &[Work<'_>],
        wave_ends: &[usize],
    ) -> Result<Vec<Answer<Committed>>, SqlError> {
        let batch = cpu.batch();
        let boundary = BatchId(batch.0.saturating_sub(1));
        if self.mirror != Mirror::Of(boundary) {
            self.mirror = Mirror::Absent;
            if !self.is_out_of_service() && self.has_candidates(members) {
                // A row that could not be read is an error of the batch, which asks for it (`check_rows`).
                let _ = self.load(cpu.writer().view(), boundary);
            }
        }
        if self.mirror != Mirror::Absent {
            self.mirror = Mirror::Ahead(batch);
        }
        let mut answers = Answers::with_capacity(members.len());
        let mut start = 0;
        for end in wave_ends {
            self.run_wave(cpu, members, start..*end, &mut answers)?;
            start = *end;
        }
        by_member(answers, members.len())
    }

    /// A batch that changes definitions runs on the CPU, and the mirror is lost.
    pub fn forget_mirror(&mut self) {
        self.mirror = Mirror::Absent;
    }

    fn run_wave(
        &mut self,
        cpu: &CpuExecutor<'_, '_>,
        members: &[Work<'_>],
        range: Range<usize>,
        answers: &mut Answers,
    ) -> Result<(), SqlError> {
        let mark = cpu.writer().committed_members();
        let before = answers.len();
        let group = self.group(members, range.clone());
        let is_checked = self.is_next_checked();
        if group.members.is_empty() || !self.start(&group, cpu.batch()) {
            cpu.run(members, range, answers);
            self.mirror_changes(cpu.writer(), mark, &[]);
            return Ok(());
        }
        if is_checked {
            cpu.run(members, range, answers);
        } else {
            let others = range.filter(|number| group.members.binary_search(number).is_err());
            for range in ranges(others) {
                cpu.run(members, range, answers);
            }
        }
        let Some(ended) = self.finish(&group, cpu.batch()) else {
            if !is_checked {
                self.redo(cpu, members, &group.members, answers);
            }
            self.mirror_changes(cpu.writer(), mark, &[]);
            return Ok(());
        };
        let in_place = match is_checked {
            true => {
                let expected = answers.get(before..).unwrap_or_default();
                self.compare(cpu.writer(), mark, (&group, &ended), expected)?
            }
            false => self.take(cpu, members, (&group, ended), answers)?,
        };
        self.mirror_changes(cpu.writer(), mark, &in_place);
        Ok(())
    }

    /// The members of a wave that the device takes; the others are counted.
    pub(super) fn group<'m>(&mut self, members: &[Work<'m>], range: Range<usize>) -> Group<'m> {
        let mut group = Group::default();
        let first = range.start;
        let of_wave = members.get(range).unwrap_or_default();
        for (number, work) in (first..).zip(of_wave) {
            let reason = match work {
                Work::WriteSet(_) => CpuReason::Commit,
                Work::Program { .. } if self.is_out_of_service() => CpuReason::OutOfService,
                Work::Program { program, inputs, .. } => {
                    let number_of = match self.mirror {
                        Mirror::Absent => None,
                        Mirror::Of(_) | Mirror::Ahead(_) => self.program(program),
                    };
                    match number_of {
                        Some(program) => {
                            group.members.push(number);
                            group.calls.push(DeviceCall { program, inputs });
                            continue;
                        }
                        None => CpuReason::Program,
                    }
                }
            };
            self.stats.count_cpu(reason, 1);
        }
        group
    }

    pub(super) fn start(&mut self, group: &Group<'_>, batch: BatchId) -> bool {
        self.stats.groups += 1;
        match self.executor.start(&group.calls) {
            Ok(()) => true,
            Err(fault) => {
                self.fail(batch, fault);
                self.stats.count_cpu(CpuReason::Redone, group.members.len());
                false
            }
        }
    }

    /// An answer for each member of the group; `None` if the device failed.
    pub(super) fn finish(&mut self, group: &Group<'_>, batch: BatchId) -> Option<Vec<DeviceAnswer>> {
        let ended = self.executor.finish().and_then(|answers| {
            let (given, due) = (answers.len(), group.members.len());
            match given == due {
                true => Ok(answers),
                false => Err(DeviceFault(format!("{given} answers for {due} members"))),
            }
        });
        match ended {
            Ok(answers) => Some(answers),
            Err(fault) => {
                self.fail(batch, fault);
                self.stats.count_cpu(CpuReason::Redone, group.members.len());
                None
            }
        }
    }

    /// Compares a group with what the CPU did. Returns the members whose changes the mirror has.
    fn compare(
        &mut self,
        writer: &BatchWriter<'_>,
        mark: usize,
        (group, ended): (&Group<'_>, &[DeviceAnswer]),
        expected: &[(usize, Answer<Committed>)],
    ) -> Result<Vec<usize>, SqlError> {
        let expected: HashMap<usize, &Answer<Committed>> = expected
            .iter()
            .map(|(number, answer)| (*number, answer))
            .collect();
        let mut changed = host_changes(writer, mark, &group.members);
        let mut verdicts = Vec::with_capacity(ended.len());
        for (number, answer) in group.members.iter().zip(ended) {
            let changed = changed.remove(number).unwrap_or_default();
            let verdict = match expected.get(number) {
                Some(expected) => compare(writer.catalog(), expected, &changed, answer),
                // The executor's own check finds it (`by_member`).
                None => Verdict::Cpu(CpuReason::Redone),
            };
            if let Verdict::Fault(what) = verdict {
                self.fail(writer.batch(), DeviceFault(format!("member {number}: {what}")));
                self.stats.count_cpu(CpuReason::Redone, group.members.len());
                return Ok(Vec::new());
            }
            verdicts.push(verdict);
        }
        let mut in_place = Vec::new();
        for ((number, answer), verdict) in group.members.iter().zip(ended).zip(verdicts) {
            match (verdict, answer) {
                (Verdict::Cpu(reason), DeviceAnswer::Committed { write_set, .. }) => {
                    self.stats.count_cpu(reason, 1);
                    self.restore_rows(writer.view(), write_set)?;
                }
                (Verdict::Cpu(reason), _) => self.stats.count_cpu(reason, 1),
                (Verdict::Good | Verdict::Fault(_), _) => {
                    self.stats.members += 1;
                    self.stats.checked_members += 1;
                    in_place.push(*number);
                }
            }
        }
        Ok(in_place)
    }

    /// Takes the answers of a group that the CPU does not run: if one of them is a fault, none counts.
    /// Returns the members whose changes the mirror has.
    fn take(
        &mut self,
        cpu: &CpuExecutor<'_, '_>,
        members: &[Work<'_>],
        (group, ended): (&Group<'_>, Vec<DeviceAnswer>),
        answers: &mut Answers,
    ) -> Result<Vec<usize>, SqlError> {
        let (writer, batch) = (cpu.writer(), cpu.batch());
        let mut verdicts = Vec::with_capacity(ended.len());
        for (number, answer) in group.members.iter().zip(&ended) {
            let Some(work) = members.get(*number) else {
                continue;
            };
            let verdict = test(writer.view(), *work, answer)?;
            if let Verdict::Fault(what) = verdict {
                self.fail(batch, DeviceFault(format!("member {number}: {what}")));
                self.stats.count_cpu(CpuReason::Redone, group.members.len());
                self.redo(cpu, members, &group.members, answers);
                return Ok(Vec::new());
            }
            verdicts.push(verdict);
        }
        let began = Instant::now();
        let (mut in_place, mut redone) = (Vec::new(), Vec::new());
        for ((number, answer), verdict) in group.members.iter().zip(ended).zip(verdicts) {
            match (verdict, answer) {
                (Verdict::Cpu(reason), answer) => {
                    if let DeviceAnswer::Committed { write_set, .. } = answer {
                        self.restore_rows(writer.view(), &write_set)?;
                    }
                    self.stats.count_cpu(reason, 1);
                    redone.push(*number);
                }
                (_, DeviceAnswer::Committed { outcome, write_set }) => {
                    match self.write_back(cpu, *number, &write_set) {
                        Ok(()) => {
                            let committed = Committed {
                                outcome,
                                batch,
                                observed: batch,
                            };
                            answers.push((*number, Ok(committed)));
                            in_place.push(*number);
                        }
                        Err(error) => {
                            let what = format!("member {number}: its write set failed: {}", error.message);
                            self.fail(batch, DeviceFault(what));
                            self.stats.count_cpu(CpuReason::Redone, 1);
                            redone.push(*number);
                        }
                    }
                }
                (_, DeviceAnswer::Failed(error)) => {
                    self.stats.members += 1;
                    let observed = batch;
                    answers.push((*number, Err(Box::new(Refused { error, observed }))));
                }
                (_, DeviceAnswer::NotRun(_)) => redone.push(*number),
            }
        }
        self.stats.written_back.time += began.elapsed();
        self.redo(cpu, members, &redone, answers);
        Ok(in_place)
    }

    fn write_back(
        &mut self,
        cpu: &CpuExecutor<'_, '_>,
        member: usize,
        write_set: &[u8],
    ) -> Result<(), SqlError> {
        cpu.apply(member, write_set)?;
        self.stats.members += 1;
        if !write_set.is_empty() {
            self.stats.written_back.rows += crate::write_set::operations(write_set).count() as u64;
            self.stats.written_back.bytes += write_set.len() as u64;
        }
        Ok(())
    }

    fn redo(
        &mut self,
        cpu: &CpuExecutor<'_, '_>,
        members: &[Work<'_>],
        numbers: &[usize],
        answers: &mut Answers,
    ) {
        for range in ranges(numbers.iter().copied()) {
            cpu.run(members, range, answers);
        }
    }
}
