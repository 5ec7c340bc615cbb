//! Deterministic reservations: a batch runs on the state before it, without knowing its read and write sets;
//! afterwards each member checks whether an earlier one conflicts with it.
//!
//! ```text
//! 1. run      every member runs on the boundary, writes into its own buffer, reserves its reads and writes:
//!             a slot keeps the lowest position in the batch that writes it
//! 2. commit   a member whose reads and writes no earlier member writes installs its buffer;
//!             the others are first in the next batch, in their order
//! ```
//!
//! Which members commit depends only on positions, not on threads, so the outcome is repeatable. The first
//! member of a batch always commits, so every batch makes progress; but one hot key admits only one writer
//! per batch, and the runs of all deferred members are wasted. In return no set must be known beforehand.
//!
//! Reservations are made for the declared accesses of a program if those are rows, as for every protocol
//! here, and for the run's footprint (`footprint`) if it declares a range or a table. A later member that
//! conflicts only by overwriting what an earlier one read (write after read) commits as well, since all read
//! the state before the batch anyway; the reordering of section 5 of the source is omitted.
//!
//! Source: Lu et al. 2020 (Aria), sections 3 and 4.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use weft_lock::LockMode;
use weft_store::{BatchWriter, Catalog, Store};
use weft_types::SqlError;

use crate::buffered::{BufferedAccess, WriteBuffer};
use crate::epoch::{Chosen, Runner, run_batches, worker_count};
use crate::footprint::{Footprint, Watched};
use crate::needs::{CoarseTables, Need, NeedFinder, is_coarse, needs_of, slot_mask};
use crate::report::Counts;
use crate::{Job, Observe, Protocol, RunReport, Safeguards, Sound};

/// Deterministic reservations in the style of Aria.
#[derive(Debug, Clone, Copy)]
pub struct Aria<G = Sound> {
    /// Maximum number of members per batch.
    pub max_members: usize,
    /// Slots of the reservation table.
    pub slots: usize,
    /// See [`Safeguards`].
    pub safeguards: G,
}

impl Default for Aria {
    fn default() -> Aria {
        Aria {
            max_members: 1024,
            slots: 1 << 18,
            safeguards: Sound,
        }
    }
}

impl<G> Aria<G> {
    /// This protocol with other safeguards.
    pub fn guarded<H: Safeguards>(self, safeguards: H) -> Aria<H> {
        Aria {
            max_members: self.max_members,
            slots: self.slots,
            safeguards,
        }
    }
}

/// The lowest position that writes a slot, below the batch's stamp: `!batch << 32 | position`, so that the
/// smallest number is that of the newest batch and the lowest position, and a new batch invalidates all slots
/// without clearing them.
struct Reservations {
    /// Exclusive changes of a slot, and changes that are compatible with each other.
    exclusive: Box<[AtomicU64]>,
    shared: Box<[AtomicU64]>,
    stamp: u32,
}

impl Reservations {
    fn new(slot_mask: u32) -> Reservations {
        let table = || (0..=slot_mask).map(|_| AtomicU64::new(u64::MAX)).collect();
        Reservations {
            exclusive: table(),
            shared: table(),
            stamp: u32::MAX,
        }
    }

    /// Starts a batch. After four billion batches the tables are cleared.
    fn begin(&mut self) {
        if self.stamp == 0 {
            *self = Reservations::new((self.exclusive.len() - 1) as u32);
        }
        self.stamp -= 1;
    }

    fn reserve(&self, needs: &[Need], position: usize) {
        let word = u64::from(self.stamp) << 32 | position as u64;
        for need in needs {
            let table = match need.mode {
                LockMode::NL | LockMode::IS | LockMode::S => continue,
                LockMode::IX => &self.shared,
                _ => &self.exclusive,
            };
            if let Some(slot) = table.get(need.slot as usize) {
                slot.fetch_min(word, Ordering::Relaxed);
            }
        }
    }

    /// Whether an earlier member writes a slot that this one reads or writes.
    fn is_late(&self, needs: &[Need], position: usize) -> bool {
        let earlier = |table: &[AtomicU64], slot: u32| {
            let word = table
                .get(slot as usize)
                .map_or(u64::MAX, |slot| slot.load(Ordering::Relaxed));
            word >> 32 == u64::from(self.stamp) && (word as u32 as usize) < position
        };
        needs.iter().any(|need| {
            earlier(&self.exclusive, need.slot)
                || (!matches!(need.mode, LockMode::IS | LockMode::IX) && earlier(&self.shared, need.slot))
        })
    }
}

/// A member between its run and its commit.
#[derive(Default)]
struct Member {
    needs: Vec<Need>,
    footprint: Footprint,
    buffer: WriteBuffer,
    runner: Runner,
    result: Option<Result<(), SqlError>>,
    is_late: bool,
}

struct Batch<'b> {
    jobs: &'b [Job],
    /// The jobs of the batch, by position.
    chosen: &'b [Chosen],
    members: &'b [Mutex<Member>],
    catalog: &'b Catalog,
    coarse: &'b CoarseTables,
    reservations: &'b Reservations,
    writer: &'b BatchWriter<'b>,
}

impl Batch<'_> {
    /// Calls `step` for every position, on all workers.
    fn each<S: Send>(&self, states: &mut [S], step: impl Fn(&mut S, usize, usize, &mut Member) + Sync) {
        let next = AtomicUsize::new(0);
        let work = |state: &mut S| loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let (Some(chosen), Some(member)) = (self.chosen.get(position), self.members.get(position)) else {
                return;
            };
            step(state, position, chosen.job, &mut member.lock());
        };
        if let Some((mine, others)) = states.split_first_mut() {
            let work = &work;
            std::thread::scope(|scope| {
                others.iter_mut().for_each(|state| {
                    scope.spawn(move || work(state));
                });
                work(mine);
            });
        }
    }

    fn run(&self, finder: &mut NeedFinder, position: usize, job: usize, member: &mut Member) {
        member.buffer.clear();
        member.needs.clear();
        let Some(job) = self.jobs.get(job) else { return };
        let mask = (self.reservations.exclusive.len() - 1) as u32;
        let mut writer = self.writer.member(position as u32);
        let access = BufferedAccess::new(&mut writer, &mut member.buffer, self.catalog);
        let mut ran = None;
        if is_coarse(&job.program) {
            member.footprint.clear();
            let mut access = Watched::recording(access, self.catalog, &mut member.footprint);
            ran = Some(member.runner.run(job, &mut access));
        }
        let touched = member.footprint.requests().filter(|_| ran.is_some());
        let found = match touched {
            Some(requests) => {
                needs_of(requests, mask, &mut member.needs);
                Ok(())
            }
            None => finder.needs(job, self.catalog, self.coarse, mask, &mut member.needs),
        };
        member.result = Some(found.and_then(|()| match ran {
            Some(result) => result,
            None => {
                let access = BufferedAccess::new(&mut writer, &mut member.buffer, self.catalog);
                member.runner.run(job, &mut { access })
            }
        }));
        // A failed member writes nothing, but its error may result from another's write: it is validated like
        // the others.
        self.reservations.reserve(&member.needs, position);
    }

    fn commit<G: Safeguards, O: Observe>(
        &self,
        counts: &mut Counts,
        (position, job): (usize, usize),
        member: &mut Member,
        observe: &O,
    ) {
        let needs = &mut member.needs;
        if !G::VALIDATES {
            needs.retain(|need| need.mode != LockMode::S);
        }
        member.is_late = self.reservations.is_late(needs, position);
        if member.is_late {
            counts.aborts += 1;
            return;
        }
        let ended = member.result.take().unwrap_or(Ok(())).and_then(|()| {
            let mut writer = self.writer.member(position as u32);
            member.buffer.install(&mut writer, job, observe)?;
            writer.commit();
            Ok(())
        });
        observe.answered(job, ended.as_ref().map(|()| &member.runner.outcome));
        counts.ended(ended.is_ok());
    }
}

impl<G: Safeguards> Protocol for Aria<G> {
    const NAME: &'static str = "aria";

    fn run_observed<O: Observe>(
        &self,
        store: &Arc<Store>,
        jobs: &[Job],
        workers: usize,
        observe: &O,
    ) -> RunReport {
        let coarse = CoarseTables::of(jobs);
        let mut reservations = Reservations::new(slot_mask(self.slots));
        let members: Vec<Mutex<Member>> = (0..self.max_members.max(1).min(jobs.len()))
            .map(|_| Mutex::default())
            .collect();
        let mut states: Vec<(NeedFinder, Counts)> =
            (0..worker_count(workers)).map(|_| Default::default()).collect();
        let run = |chosen: &[Chosen], writer: &BatchWriter<'_>, catalog: &Catalog, _: &mut RunReport| {
            reservations.begin();
            let batch = Batch {
                jobs,
                chosen,
                members: &members,
                catalog,
                coarse: &coarse,
                reservations: &reservations,
                writer,
            };
            batch.each(&mut states, |(finder, _), position, job, member| {
                batch.run(finder, position, job, member)
            });
            batch.each(&mut states, |(_, counts), position, job, member| {
                batch.commit::<G, O>(counts, (position, job), member, observe);
            });
        };
        let is_late = |position| {
            members
                .get(position)
                .is_some_and(|member: &Mutex<Member>| member.lock().is_late)
        };
        let mut report = run_batches(store, jobs.len(), self.max_members, run, is_late);
        states.iter().for_each(|(_, counts)| report.add_counts(counts));
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_writer_wins_in_each_batch() {
        let mut reservations = Reservations::new(63);
        let need = |mode| [Need { slot: 5, mode }];
        for _ in 0..3 {
            reservations.begin();
            assert!(
                !reservations.is_late(&need(LockMode::X), 9),
                "nothing is left of the batch before"
            );
            reservations.reserve(&need(LockMode::X), 4);
            reservations.reserve(&need(LockMode::X), 2);
            reservations.reserve(&need(LockMode::S), 0);
            assert!(!reservations.is_late(&need(LockMode::X), 2));
            assert!(
                reservations.is_late(&need(LockMode::X), 4) && reservations.is_late(&need(LockMode::S), 3)
            );
            assert!(
                !reservations.is_late(&need(LockMode::S), 1),
                "it reads the state before"
            );
        }
    }

    #[test]
    fn concurrent_changes_conflict_with_readers_only() {
        let mut reservations = Reservations::new(63);
        reservations.begin();
        let need = |mode| [Need { slot: 5, mode }];
        reservations.reserve(&need(LockMode::IX), 1);
        assert!(!reservations.is_late(&need(LockMode::IX), 2));
        assert!(reservations.is_late(&need(LockMode::S), 2) && reservations.is_late(&need(LockMode::X), 2));
        assert!(
            !reservations.is_late(&need(LockMode::IS), 2),
            "it will read another part"
        );
        reservations.reserve(&need(LockMode::X), 1);
        assert!(reservations.is_late(&need(LockMode::IS), 2));
    }
}
