//! The radix hash join over ranks (Barthels 3.2.1, 4.2.1).
//!
//! ```text
//! histogram --> plan --> network partitioning, puts on the way --> all have flushed
//!                                                                  --> local partitioning, build, probe
//! ```
//!
//! The network pass partitions by the highest bits of mixed keys, straight into buffers. What arrives is in
//! one stretch for each partition and side, and is joined as a part of the radix join of one machine is:
//! partitioned again if its table would not fit into the cache.

use std::cmp::Reverse;
use std::time::Instant;

use weft_base::Reservation;

use super::assign::{SIDES, places_of, segments};
use super::error::RankJoinError;
use super::options::{RankReport, Schedule};
use super::outbox::{Mailing, Outbox, lane_of, room_bytes};
use super::stage::{Ground, Setting, Stage, histograms, items_at, plan_of};
use crate::array::reserve;
use crate::error::JoinError;
use crate::feed::{Feed, Pieces, Raw};
use crate::form::{Form, Input};
use crate::hash::radix::{Scratch, join_part, scratches};
use crate::partition::{self, Placing, Radix};
use crate::run::{Run, Worker};
use crate::tuple::{Consumer, MORSEL_TUPLES};

/// A radix join between its plan and its end.
struct HashStage<'a, F: Form, C> {
    ground: Ground<'a, C>,
    form: F,
    radix: Radix,
    outbox: Outbox<'a>,
    /// Morsels of both sides that were read.
    read: usize,
    /// Rounds that are left, with a schedule.
    rounds_left: u64,
    space: Vec<crate::tuple::Tuple>,
    scratch: Vec<Scratch<F::Item>>,
    _room: [Reservation; 2],
}

/// Counts, plans and makes ready. The inner error is this rank's own: the others are told at the next status.
pub(super) fn prepare<'a, F: Form + 'a, C: Consumer + 'a>(
    setting: &mut Setting<'a>,
    mut ground: Ground<'a, C>,
    form: F,
    radix: Radix,
) -> Result<Result<Box<dyn Stage + 'a>, JoinError>, RankJoinError> {
    let start = Instant::now();
    let counted: [Result<Vec<usize>, JoinError>; SIDES] = ground
        .sides
        .map(|side| partition::histogram::<F, Raw<'_>>(&ground.run.control, (&form, &radix), &side));
    let counted = match counted {
        [Ok(build), Ok(probe)] => Ok([build, probe]),
        [Err(error), _] | [_, Err(error)] => Err(error),
    };
    let found = histograms(&setting.rank, counted.as_ref().ok(), radix.parts())?;
    plan_of(setting, &mut ground, &found, size_of::<F::Item>() as u64)?;
    ground.report.phases.histogram = start.elapsed();
    if let Err(error) = counted {
        return Ok(Err(error));
    }
    let parts = radix.parts();
    let mut mailing = Mailing {
        counts: found.own.clone(),
        segments: Vec::with_capacity(SIDES * parts),
        is_pushed: true,
    };
    for side in 0..SIDES {
        for part in 0..parts {
            let at = |words: &[u64]| words.get(lane_of(side, part, parts)).copied().unwrap_or(0);
            let places = places_of(&ground.plan.places, part);
            let stretch = (at(&found.before), at(&found.own));
            let item_bytes = size_of::<F::Item>() as u64;
            mailing.segments.push(segments(places, side, stretch, item_bytes));
        }
    }
    Ok(ready(setting, ground, form, radix, mailing))
}

/// Reserves what this rank needs, and makes the stage.
fn ready<'a, F: Form + 'a, C: Consumer + 'a>(
    setting: &Setting<'a>,
    ground: Ground<'a, C>,
    form: F,
    radix: Radix,
    mailing: Mailing,
) -> Result<Box<dyn Stage + 'a>, JoinError> {
    let network = ground.network;
    let item_bytes = size_of::<F::Item>();
    let bytes = room_bytes(&mailing, &network, item_bytes, setting.rank.count());
    let buffers = reserve(&ground.run.budget, bytes, "buffers of an exchange between ranks")?;
    let mine = ground.own_places(setting.rank.number());
    let counts = |number: usize| {
        let spans = mine.get(number).map(|place| place.spans.map(|span| span.len()));
        let [build, probe] = spans.unwrap_or_default();
        let tuples = |count| usize::try_from(count).unwrap_or(usize::MAX);
        (tuples(build), tuples(probe))
    };
    let numbers: Vec<usize> = (0..mine.len()).collect();
    let (scratch, room) = scratches::<F>(&ground.run, &numbers, &counts, 1)?;
    let outbox = Outbox::new(setting.window, network, item_bytes, mailing);
    let rounds_left = match network.schedule {
        Schedule::Free => 0,
        Schedule::Rounds { tuples } => {
            let morsels = ground
                .tuples_max
                .map(|tuples| tuples.div_ceil(MORSEL_TUPLES as u64));
            let a_round = morsels_of_round(tuples) as u64;
            morsels.iter().sum::<u64>().div_ceil(a_round) + 1
        }
    };
    Ok(Box::new(HashStage {
        ground,
        form,
        radix,
        outbox,
        read: 0,
        rounds_left,
        space: Vec::new(),
        scratch,
        _room: [buffers, room],
    }))
}

fn morsels_of_round(tuples: usize) -> usize {
    tuples.div_ceil(MORSEL_TUPLES).max(1)
}

impl<F: Form, C: Consumer> HashStage<'_, F, C> {
    fn morsels(&self) -> usize {
        self.ground.sides.iter().map(Feed::morsels).sum()
    }

    /// Partitions the next morsel.
    fn one_morsel(&mut self) -> Result<(), RankJoinError> {
        self.ground.run.control.check()?;
        let [build, probe] = self.ground.sides;
        let (side, feed, morsel) = match self.read.checked_sub(build.morsels()) {
            None => (0, build, self.read),
            Some(morsel) => (1, probe, morsel),
        };
        self.read += 1;
        let parts = self.radix.parts();
        let HashStage {
            ground,
            form,
            radix,
            outbox,
            space,
            ..
        } = self;
        for tuple in feed.read(morsel, space)? {
            let (mixed, is_inside) = tuple.mixed(form);
            if !is_inside {
                if side == 0 {
                    return Err(JoinError::Source.into());
                }
                ground.worker.out.probe(tuple.row, false)?;
                continue;
            }
            let Some(item) = form.item(mixed, tuple.row) else {
                return Err(JoinError::Source.into());
            };
            let lane = lane_of(side, radix.part_of(mixed), parts);
            let [first, second] = F::words(item);
            match F::LANES {
                8 => outbox.push(lane, [first])?,
                _ => outbox.push(lane, [first, second])?,
            }
        }
        Ok(())
    }

    /// Partitions what a step should, if nothing failed before.
    fn some_morsels(&mut self, count: usize) -> Result<(), RankJoinError> {
        for _ in 0..count {
            if self.read >= self.morsels() || self.ground.failed.is_some() {
                return Ok(());
            }
            let done = self.one_morsel();
            self.ground.note(done)?;
        }
        Ok(())
    }
}

impl<F: Form, C: Consumer> Stage for HashStage<'_, F, C> {
    fn step(&mut self) -> Result<bool, RankJoinError> {
        let start = Instant::now();
        let is_last = match self.ground.network.schedule {
            Schedule::Free => {
                self.some_morsels(1)?;
                self.read >= self.morsels() || self.ground.failed.is_some()
            }
            Schedule::Rounds { tuples } => {
                self.some_morsels(morsels_of_round(tuples))?;
                self.rounds_left = self.rounds_left.saturating_sub(1);
                self.rounds_left == 0
            }
        };
        if is_last && self.ground.failed.is_none() {
            let done = self.outbox.send_rest();
            self.ground.note(done)?;
        }
        if self.ground.network.schedule != Schedule::Free {
            self.outbox.round()?;
        }
        self.ground.report.phases.network += start.elapsed();
        Ok(!is_last)
    }

    fn sent(&mut self) -> Result<Result<(), JoinError>, RankJoinError> {
        let start = Instant::now();
        self.outbox.finish()?;
        let own = match self.ground.failed.take() {
            Some(error) => Err(error),
            None => self.outbox.check_counts(),
        };
        let report = &mut self.ground.report;
        (report.sent_bytes, report.puts) = (self.outbox.sent_bytes, self.outbox.puts);
        report.phases.network += start.elapsed();
        Ok(own)
    }

    fn complete(&mut self, rank: u32, bytes: &[u8]) -> Result<RankReport, RankJoinError> {
        // Items of the narrow form do not have the bits of the network pass any more.
        let skip = self.radix.bits - self.form.dropped().min(self.radix.bits);
        let mut mine = self.ground.own_places(rank);
        mine.sort_by_key(|place| Reverse(place.spans.iter().map(|span| span.len()).sum::<u64>()));
        for place in mine {
            self.ground.run.control.check()?;
            let [build, probe] = [0, 1].map(|side| items_at::<F::Item>(bytes, &place, side));
            let side = |items| Pieces::new(std::iter::once(items));
            let part = (side(build?), side(probe?));
            let Some(scratch) = self.scratch.first_mut() else {
                break;
            };
            let run: &Run<'_> = &self.ground.run;
            let worker: &mut Worker<'_, C> = &mut self.ground.worker;
            join_part(run, (&self.form, skip), &part, scratch, worker)?;
        }
        self.ground.end()
    }
}
