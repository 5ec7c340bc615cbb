//! The sort-merge join over ranks (Barthels 3.2.2, 4.2.2).
//!
//! ```text
//! sample --> splitters --> histogram --> plan --> partition here --> sort a run, put it, sort the next one
//!                                                            --> all have flushed --> merge runs, match
//! ```
//!
//! 1. Every rank gives a sample, as large as its share of the tuples; all make the same splitters of all
//!    samples. There are as many ranges as make what a rank gets of one fit into the cache, not one a rank:
//!    then a sorted run from each rank is all that has to be merged.
//! 2. Ranges are sent in the order of their ranks, beginning with the right neighbour, so that ranks begin
//!    with different receivers; this rank's own ranges come last. With [`Schedule::Rounds`] a barrier lies
//!    between one receiver and the next.
//! 3. The receiver knows from the counts of all ranks where each run begins (the document's Alltoall).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Instant;

use weft_base::Reservation;

use super::agree::{self, Survey};
use super::assign::{Place, SIDES, Segment, Span, places_of, segments};
use super::error::RankJoinError;
use super::options::{Network, RankReport, Schedule};
use super::outbox::{Mailing, Outbox, lane_of};
use super::stage::{Ground, Histograms, Setting, Stage, bytes_of, histograms, items_of, plan_of};
use crate::array::{Array, reserve};
use crate::error::JoinError;
use crate::feed::{Feed, Raw};
use crate::form::Form;
use crate::partition::{self, Layout, Placing};
use crate::sort::{self, Splitters};
use crate::tuple::Consumer;

const PURPOSE: &str = "runs of a join over ranks";

/// Tuples to be sorted and sent together.
#[derive(Clone, Copy)]
struct Job {
    lane: usize,
    /// The first one among this rank's tuples of the partition.
    number: u64,
    /// In the array of the side.
    first: usize,
    end: usize,
    /// Distance of the receiver: 0 for the right neighbour.
    slot: u32,
}

/// What is known when the plan is made.
struct Counted {
    splitters: Splitters,
    counts: [Vec<usize>; SIDES],
    found: Histograms,
    /// By sender, then by place of this rank.
    senders: Vec<Vec<[u64; SIDES]>>,
}

/// A sort-merge join between its plan and its end.
struct SortStage<'a, F: Form, C> {
    ground: Ground<'a, C>,
    form: F,
    outbox: Outbox<'a>,
    rank: weft_fabric::Rank,
    arrays: [Array<F::Item>; SIDES],
    spare: Array<F::Item>,
    jobs: VecDeque<Job>,
    /// The slot that is being sent.
    slot: u32,
    /// By sender, for each of this rank's places in the order of the plan, counts by side.
    senders: Vec<Vec<[u64; SIDES]>>,
    merged: [Array<F::Item>; SIDES],
    _room: Reservation,
}

/// Samples, counts, plans, and partitions here. The inner error is this rank's own.
pub(super) fn prepare<'a, F: Form + 'a, C: Consumer + 'a>(
    setting: &mut Setting<'a>,
    mut ground: Ground<'a, C>,
    form: F,
    survey: &Survey,
) -> Result<Result<Box<dyn Stage + 'a>, JoinError>, RankJoinError> {
    let start = Instant::now();
    let mut own = Ok(());
    let splitters = splitters(setting, &ground, &form, survey, &mut own)?;
    ground.report.phases.agree = start.elapsed();
    let start = Instant::now();
    let mut counted = Vec::with_capacity(SIDES);
    for side in &ground.sides {
        let counts = partition::histogram::<F, Raw<'_>>(&ground.run.control, (&form, &splitters), side);
        counted.push(counts.unwrap_or_else(|error| {
            own = std::mem::replace(&mut own, Ok(())).and(Err(error));
            Vec::new()
        }));
    }
    let counted: [Vec<usize>; SIDES] = counted.try_into().unwrap_or_default();
    let found = histograms(&setting.rank, own.is_ok().then_some(&counted), splitters.parts())?;
    plan_of(setting, &mut ground, &found, size_of::<F::Item>() as u64)?;
    let senders = counts_of_senders(setting, &ground, &found)?;
    ground.report.phases.histogram = start.elapsed();
    if let Err(error) = own {
        return Ok(Err(error));
    }
    let start = Instant::now();
    let counted = Counted {
        splitters,
        counts: counted,
        found,
        senders,
    };
    let stage = partition_here(setting, ground, form, counted);
    Ok(stage.map(|mut stage| {
        stage.ground.report.phases.partition = start.elapsed();
        Box::new(stage) as Box<dyn Stage + 'a>
    }))
}

/// The same splitters on all ranks, from samples of all.
fn splitters<F: Form, C>(
    setting: &Setting<'_>,
    ground: &Ground<'_, C>,
    form: &F,
    survey: &Survey,
    own: &mut Result<(), JoinError>,
) -> Result<Splitters, RankJoinError> {
    let tuples = survey
        .tuples
        .map(|tuples| usize::try_from(tuples).unwrap_or(usize::MAX));
    let ranks = setting.rank.count() as usize;
    let wanted = sort::ranges(&ground.run.tuning, tuples[0], tuples[1], ranks);
    let mut sample = Vec::new();
    for (side, all) in ground.sides.iter().zip(tuples) {
        let of_side = (sort::SAMPLES * wanted / SIDES + 1) as u128;
        let share = (of_side * side.len() as u128).div_ceil(all.max(1) as u128) as usize;
        let sampled = side.sample(share, |tuple| {
            let (mixed, is_inside) = form.mix(tuple.key);
            if is_inside {
                sample.push(mixed);
            }
        });
        if let (Err(error), true) = (sampled, own.is_ok()) {
            *own = Err(error);
        }
    }
    let mut sample = agree::gather(&setting.rank, &sample)?;
    sample.sort_unstable();
    Ok(Splitters::of(&sample, wanted, form.key_unit()))
}

/// What each rank has of each place of this one.
fn counts_of_senders<C>(
    setting: &Setting<'_>,
    ground: &Ground<'_, C>,
    found: &Histograms,
) -> Result<Vec<Vec<[u64; SIDES]>>, RankJoinError> {
    let parts = found.own.len() / SIDES;
    let mut words: Vec<Vec<u64>> = vec![Vec::new(); setting.rank.count() as usize];
    for place in &ground.plan.places {
        if let Some(words) = words.get_mut(place.rank as usize) {
            let count = |side| found.own.get(lane_of(side, place.part, parts)).copied();
            words.extend([count(0), count(1)].map(Option::unwrap_or_default));
        }
    }
    let mine = words.get(setting.rank.number() as usize).map_or(0, Vec::len);
    let all = agree::exchange(&setting.rank, &words)?;
    let mut senders = Vec::with_capacity(all.len());
    for (rank, words) in (0_u32..).zip(all) {
        if words.len() != mine {
            let what = "the counts of a join";
            return Err(weft_fabric::Error::Damaged { rank, what }.into());
        }
        senders.push(words.as_chunks::<SIDES>().0.to_vec());
    }
    Ok(senders)
}

/// Partitions both sides in this rank's memory, and makes ready to sort.
fn partition_here<'a, F: Form, C: Consumer>(
    setting: &Setting<'a>,
    mut ground: Ground<'a, C>,
    form: F,
    counted: Counted,
) -> Result<SortStage<'a, F, C>, JoinError> {
    let Counted {
        splitters,
        counts,
        found,
        senders,
    } = counted;
    let budget = std::sync::Arc::clone(&ground.run.budget);
    let budget = Some(&budget);
    let run_tuples = ground.run.tuning.run_tuples.max(1);
    let layouts = counts.map(|counts| Layout::new(&[counts], F::LANES));
    let [to_build, to_probe] = &layouts;
    let arrays = [
        partition::target(to_build, budget)?,
        partition::target(to_probe, budget)?,
    ];
    let parts = splitters.parts();
    let longest = found.own.iter().copied().max().unwrap_or(0);
    let run_max = run_tuples.min(usize::try_from(longest).unwrap_or(usize::MAX));
    let (jobs, mailing) = jobs_of(setting, &ground, &layouts, &found, run_tuples);
    let buffers = buffer_count(&mailing, &ground.network);
    let room = reserve(
        &ground.run.budget,
        run_max
            .saturating_mul(size_of::<F::Item>())
            .saturating_mul(buffers),
        PURPOSE,
    )?;
    let mine = ground.own_places(setting.rank.number());
    let longest = |side: usize| {
        let spans = mine.iter().filter_map(|place| place.spans.get(side));
        let longest = spans.map(|span| span.len()).max().unwrap_or(0);
        usize::try_from(longest).unwrap_or(usize::MAX)
    };
    let merged = [
        Array::new(longest(0), budget, PURPOSE)?,
        Array::new(longest(1), budget, PURPOSE)?,
    ];
    let spare = Array::new(run_max, budget, PURPOSE)?;
    for (side, feed) in ground.sides.iter().enumerate() {
        let (Some(layout), Some(array)) = (layouts.get(side), arrays.get(side)) else {
            continue;
        };
        let by = (&form, &splitters);
        let target = (layout, 0, array);
        let out = &mut ground.worker.out;
        let mut outside = |row| match side {
            0 => Err(JoinError::Source),
            _ => out.probe(row, false),
        };
        // SAFETY: the array was made for the layout, and this thread alone has it.
        unsafe { partition::scatter(&ground.run.control, by, feed, target, &mut outside)? };
    }
    ground.report.partitions = parts;
    // Runs leave at once; a schedule is kept between receivers.
    let network = Network {
        schedule: Schedule::Free,
        ..ground.network
    };
    Ok(SortStage {
        outbox: Outbox::new(setting.window, network, size_of::<F::Item>(), mailing),
        rank: setting.rank.clone(),
        ground,
        form,
        arrays,
        spare,
        jobs,
        slot: 0,
        senders,
        merged,
        _room: room,
    })
}

/// Buffers of a run each that may be in use at a time: one is filled, the others are on their way.
fn buffer_count(mailing: &Mailing, network: &Network) -> usize {
    let targets = |segments: &Vec<Segment>| segments.iter().map(|segment| segment.targets.len()).max();
    let most = mailing.segments.iter().filter_map(targets).max().unwrap_or(1);
    network.buffers.saturating_mul(most).saturating_add(1)
}

/// All runs of this rank in the order in which they are sorted and sent, and where they go.
fn jobs_of<C>(
    setting: &Setting<'_>,
    ground: &Ground<'_, C>,
    layouts: &[Layout; SIDES],
    found: &Histograms,
    run_tuples: usize,
) -> (VecDeque<Job>, Mailing) {
    let parts = found.own.len() / SIDES;
    let (me, ranks) = (setting.rank.number(), setting.rank.count());
    let item_bytes = ground.report.tuple_bytes as u64;
    let mut jobs = Vec::new();
    let mut mailing = Mailing {
        counts: found.own.clone(),
        segments: Vec::with_capacity(SIDES * parts),
        is_pushed: false,
    };
    for (side, layout) in layouts.iter().enumerate() {
        for part in 0..parts {
            let lane = lane_of(side, part, parts);
            let at = |words: &[u64]| words.get(lane).copied().unwrap_or(0);
            let places = places_of(&ground.plan.places, part);
            let of_part = segments(places, side, (at(&found.before), at(&found.own)), item_bytes);
            let start = layout.first_of(part);
            for segment in &of_part {
                let distance = |(target, _): &(u32, u64)| (target + ranks - me - 1) % ranks;
                let slot = segment.targets.first().map_or(0, distance);
                for run in runs_of(segment.span, run_tuples) {
                    let at = |number: u64| start + usize::try_from(number).unwrap_or(usize::MAX);
                    let (first, end) = (at(run.first), at(run.end));
                    let number = run.first;
                    jobs.push((
                        slot,
                        part,
                        Job {
                            lane,
                            number,
                            first,
                            end,
                            slot,
                        },
                    ));
                }
            }
            mailing.segments.push(of_part);
        }
    }
    jobs.sort_by_key(|(slot, part, _)| (*slot, *part));
    (jobs.into_iter().map(|(_, _, job)| job).collect(), mailing)
}

/// A stretch in runs of so many tuples; the last one may be shorter.
fn runs_of(span: Span, run_tuples: usize) -> impl Iterator<Item = Span> {
    let run = run_tuples.max(1) as u64;
    (0..span.len().div_ceil(run)).map(move |number| Span {
        first: span.first + number * run,
        end: (span.first + (number + 1) * run).min(span.end),
    })
}

impl<F: Form, C: Consumer> SortStage<'_, F, C> {
    /// Sorts a run and sends it.
    fn one_run(&mut self, job: Job) -> Result<(), RankJoinError> {
        self.ground.run.control.check()?;
        let parts = self.ground.report.partitions.max(1);
        let items = self.arrays.get_mut(job.lane / parts).map(Array::as_mut_slice);
        let items = items.and_then(|items| items.get_mut(job.first..job.end));
        let items = items.ok_or(JoinError::Source)?;
        sort::sort_run(&self.form, items, self.spare.as_mut_slice());
        self.ground.report.runs += 1;
        let mut buffer = self.outbox.take_buffer();
        buffer.extend_from_slice(bytes_of(items));
        self.outbox.ship_run(job.lane, job.number, buffer)
    }
}

impl<F: Form, C: Consumer> Stage for SortStage<'_, F, C> {
    fn step(&mut self) -> Result<bool, RankJoinError> {
        let start = Instant::now();
        let job = self
            .jobs
            .front()
            .copied()
            .filter(|_| self.ground.failed.is_none());
        let is_scheduled = self.ground.network.schedule != Schedule::Free;
        let last_slot = self.rank.count() - 1;
        let has_more = match job {
            Some(job) if !is_scheduled || job.slot == self.slot => {
                self.jobs.pop_front();
                let done = self.one_run(job);
                self.ground.note(done)?;
                true
            }
            // All ranks have as many slots, and a barrier behind each but the last, in which nobody sends.
            _ if is_scheduled && self.slot < last_slot => {
                self.outbox.finish()?;
                self.rank.barrier()?;
                self.slot += 1;
                true
            }
            _ => false,
        };
        self.ground.report.phases.network += start.elapsed();
        Ok(has_more)
    }

    fn sent(&mut self) -> Result<Result<(), JoinError>, RankJoinError> {
        let start = Instant::now();
        self.outbox.finish()?;
        let own = self.ground.failed.take().map_or(Ok(()), Err);
        let report = &mut self.ground.report;
        (report.sent_bytes, report.puts) = (self.outbox.sent_bytes, self.outbox.puts);
        report.phases.network += start.elapsed();
        Ok(own)
    }

    fn complete(&mut self, rank: u32, bytes: &[u8]) -> Result<RankReport, RankJoinError> {
        let run_tuples = self.ground.run.tuning.run_tuples.max(1);
        let mut mine: Vec<(Place, usize)> = self.ground.own_places(rank).into_iter().zip(0..).collect();
        let size = |place: &Place| place.spans.iter().map(|span| span.len()).sum::<u64>();
        mine.sort_by_key(|(place, _)| Reverse(size(place)));
        for (place, number) in mine {
            self.ground.run.control.check()?;
            let start = Instant::now();
            let [to_build, to_probe] = &mut self.merged;
            let runs = |side| arrived_runs::<F>(bytes, &place, (number, side), &self.senders, run_tuples);
            let build = merged(&self.form, runs(0)?, to_build)?;
            let probe = merged(&self.form, runs(1)?, to_probe)?;
            let is_merged = Instant::now();
            sort::match_sides(&self.form, build, probe, &mut self.ground.worker.out)?;
            self.ground.worker.phases.merge += is_merged - start;
            self.ground.worker.phases.matching += is_merged.elapsed();
        }
        self.ground.end()
    }
}

/// The sorted runs that came for one side of a place.
fn arrived_runs<'b, F: Form>(
    bytes: &'b [u8],
    place: &Place,
    (number, side): (usize, usize),
    senders: &[Vec<[u64; SIDES]>],
    run_tuples: usize,
) -> Result<Vec<&'b [F::Item]>, JoinError> {
    let (Some(span), Some(offset)) = (place.spans.get(side), place.offsets.get(side)) else {
        return Err(JoinError::Source);
    };
    let mut runs = Vec::new();
    let mut before = 0_u64;
    for counts in senders {
        let count = counts.get(number).and_then(|counts| counts.get(side));
        let end = before.saturating_add(count.copied().unwrap_or(0));
        let here = span.both(Span { first: before, end });
        before = end;
        for run in runs_of(here, run_tuples) {
            let byte = |at: u64| {
                let bytes = (at - span.first).saturating_mul(size_of::<F::Item>() as u64);
                usize::try_from(offset.saturating_add(bytes)).unwrap_or(usize::MAX)
            };
            let found = bytes.get(byte(run.first)..byte(run.end)).and_then(items_of);
            runs.push(found.ok_or(JoinError::Source)?);
        }
    }
    Ok(runs)
}

/// Runs as one: a single one where it is, several merged.
fn merged<'m, F: Form>(
    form: &F,
    runs: Vec<&'m [F::Item]>,
    to: &'m mut Array<F::Item>,
) -> Result<&'m [F::Item], JoinError> {
    match runs.as_slice() {
        [] => Ok(&[]),
        [one] => Ok(one),
        several => {
            let count = several.iter().map(|run| run.len()).sum();
            let to = to.as_mut_slice().get_mut(..count).ok_or(JoinError::Source)?;
            sort::merge_runs(form, several.iter().copied(), to);
            Ok(to)
        }
    }
}
