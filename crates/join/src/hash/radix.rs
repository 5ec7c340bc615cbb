//! The radix hash join: partitions whose hash tables fit into the cache (Barthels 3.2.1).
//!
//! ```text
//! histogram --> partition, all workers --> parts --+--> too large for one worker: all share it
//!                                                  +--> larger than the cache: partitioned again
//!                                                  +--> table in the cache: build, probe
//! ```
//!
//! 1. Every worker counts and partitions an equal share of both sides, by the highest bits of mixed keys.
//! 2. A part that is a large share of all tuples is joined by all workers with one shared table, and its
//!    probe side is split between them by morsels.
//! 3. The other parts are claimed by single workers, the largest first, so that the last ones to run are
//!    small.
//! 4. A part that is much larger than it should be is partitioned once more by its worker alone: the second
//!    pass, over memory that is in the cache as far as possible.

use std::cmp::Reverse;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use weft_base::Reservation;

use super::unpartitioned::{self, table_bytes};
use crate::array::{Array, array_bytes, reserve};
use crate::error::JoinError;
use crate::feed::{Feed, Pieces, Raw};
use crate::form::{Form, bits};
use crate::options::Tuning;
use crate::partition::{self, Layout, Placing, Radix};
use crate::run::{Run, Worker};
use crate::sides::both_sides;
use crate::table::{Line, Overflow, Slots, Table, line_count};
use crate::tuple::Consumer;
use crate::workers::Claims;

const PURPOSE: &str = "partitions being joined";
/// A second pass makes at most so many parts of one, as a power of two.
const SECOND_BITS_MAX: u32 = 8;
/// A part is partitioned again if it has more than so many times the tuples that it should have.
pub(crate) const TOO_LARGE: usize = 4;

/// What a worker needs for one part at a time.
pub(crate) struct Scratch<I> {
    lines: Array<Line>,
    marks: Array<AtomicU8>,
    build: Array<I>,
    probe: Array<I>,
}

/// Scratch memory, one a worker.
pub(crate) type Scratches<F> = Vec<Scratch<<F as Form>::Item>>;

/// Bits of the first pass for a build side of so many tuples.
pub(crate) fn first_bits(tuning: &Tuning, build_tuples: usize, key_bits: u32, workers: usize) -> u32 {
    let parts = build_tuples
        .div_ceil(tuning.partition_tuples.max(1))
        .max(4 * workers);
    bits(parts as u64 - 1)
        .min(tuning.pass_bits_max)
        .min(16)
        .min(key_bits)
        .max(1)
}

/// Joins two sources by partitions of so many bits. Returns how many parts were shared.
pub(crate) fn join<F: Form, C: Consumer>(
    run: &Run<'_>,
    form: F,
    radix: Radix,
    (build, probe): (Raw<'_>, Raw<'_>),
    workers: &mut [Worker<'_, C>],
) -> Result<usize, JoinError> {
    // Items of the narrow form do not have the bits of the first pass any more.
    let skip = radix.bits - form.dropped().min(radix.bits);
    let count = workers.len();
    let plan = |build: &Layout, probe: &Layout| Plan::<F>::new(run, build, probe, radix.parts(), count);
    let (build, probe, plan) = both_sides(run, &form, &radix, (build, probe), workers, plan)?;
    let Plan {
        shared,
        single,
        scratch,
        room,
    } = plan;
    let shared_count = shared.len();
    for part in shared {
        let (build, probe) = (build.pieces(part), probe.pieces(part));
        unpartitioned::join(run, (form, skip), &build, &probe, None, workers)?;
    }
    let claims = Claims::new(single.len());
    let mut pairs: Vec<_> = workers.iter_mut().zip(scratch).collect();
    run.control.phase(&mut pairs, |_, (worker, scratch)| {
        while let Some(part) = claims.claim().and_then(|number| single.get(number)) {
            run.control.check()?;
            let part = (build.pieces(*part), probe.pieces(*part));
            join_part(run, (&form, skip), &part, scratch, worker)?;
        }
        Ok(())
    })?;
    drop(room);
    Ok(shared_count)
}

/// Who joins which part, and the memory for it.
struct Plan<F: Form> {
    /// Parts for all workers together.
    shared: Vec<usize>,
    /// Parts for one worker each, the largest first.
    single: Vec<usize>,
    scratch: Scratches<F>,
    room: [Reservation; 2],
}

impl<F: Form> Plan<F> {
    fn new(
        run: &Run<'_>,
        build: &Layout,
        probe: &Layout,
        parts: usize,
        workers: usize,
    ) -> Result<Plan<F>, JoinError> {
        let counts = |part| (build.count(part), probe.count(part));
        let mut sizes: Vec<(usize, usize)> = (0..parts)
            .map(|part| (counts(part).0 + counts(part).1, part))
            .collect();
        sizes.sort_by_key(|(size, _)| Reverse(*size));
        let all: usize = sizes.iter().map(|(size, _)| size).sum();
        let share = (all / (8 * workers)).max(run.tuning.shared_tuples_min);
        let shared_count = match workers {
            1 => 0,
            _ => sizes.iter().take_while(|(size, _)| *size > share).count(),
        };
        let mut shared: Vec<usize> = sizes.into_iter().map(|(_, part)| part).collect();
        let single = shared.split_off(shared_count);
        let too_much = || JoinError::Memory { bytes: usize::MAX };
        let table = |part: &usize| table_bytes::<F>(counts(*part).0, run.emit.marks_build());
        let shared_bytes = shared
            .iter()
            .map(table)
            .max()
            .unwrap_or(Some(0))
            .ok_or_else(too_much)?;
        let shared_room = reserve(&run.budget, shared_bytes, PURPOSE)?;
        let (scratch, room) = scratches::<F>(run, &single, &counts, workers)?;
        Ok(Plan {
            shared,
            single,
            scratch,
            room: [shared_room, room],
        })
    }
}

/// Scratch memory of every worker for the largest of these parts, and the reservation for what tables of
/// parts may need beside their lines.
pub(crate) fn scratches<F: Form>(
    run: &Run<'_>,
    parts: &[usize],
    counts: &dyn Fn(usize) -> (usize, usize),
    workers: usize,
) -> Result<(Scratches<F>, Reservation), JoinError> {
    let largest =
        |of: &dyn Fn((usize, usize)) -> usize| parts.iter().map(|part| of(counts(*part))).max().unwrap_or(0);
    let build_max = largest(&|(build, _)| build);
    let limit = run.tuning.partition_tuples.saturating_mul(TOO_LARGE);
    let probe_max = largest(&|(build, probe)| if build > limit { probe } else { 0 });
    let too_much = || JoinError::Memory { bytes: usize::MAX };
    let second = |tuples: usize| match build_max > limit {
        true => tuples
            .checked_add(F::LANES << SECOND_BITS_MAX)
            .ok_or_else(too_much),
        false => Ok(0),
    };
    let lines = line_count(build_max, F::LANES);
    let mut all = Vec::with_capacity(workers);
    for _ in 0..workers {
        let budget = Some(&run.budget);
        all.push(Scratch {
            lines: Array::new(lines, budget, PURPOSE)?,
            marks: Array::new(if run.emit.marks_build() { lines } else { 0 }, budget, PURPOSE)?,
            build: Array::new(second(build_max)?, budget, PURPOSE)?,
            probe: Array::new(second(probe_max)?, budget, PURPOSE)?,
        });
    }
    // Overflows: by doubling, of every tuple at most.
    let each = array_bytes::<F::Item>(build_max).and_then(|bytes| bytes.checked_mul(2 * workers));
    let room = reserve(&run.budget, each.ok_or_else(too_much)?, PURPOSE)?;
    Ok((all, room))
}

/// Joins one part, by one worker.
pub(crate) fn join_part<F: Form, C: Consumer>(
    run: &Run<'_>,
    (form, skip): (&F, u32),
    (build, probe): &(Pieces<'_, F::Item>, Pieces<'_, F::Item>),
    scratch: &mut Scratch<F::Item>,
    worker: &mut Worker<'_, C>,
) -> Result<(), JoinError> {
    let wanted = run.tuning.partition_tuples.max(1);
    let bits_left = (form.key_bits() - form.dropped()).saturating_sub(skip);
    if build.len() <= wanted.saturating_mul(TOO_LARGE) || bits_left == 0 {
        return join_in_cache(run, (form, skip), build, probe, scratch, worker);
    }
    let start = Instant::now();
    let parts = build.len().div_ceil(wanted) as u64;
    let radix = Radix {
        skip,
        bits: bits(parts - 1).min(SECOND_BITS_MAX).min(bits_left).max(1),
    };
    let by = (form, &radix);
    let one_side = |feed: &Pieces<'_, F::Item>, items: &Array<F::Item>| {
        let counts = partition::histogram::<F, _>(&run.control, by, feed)?;
        let layout = Layout::new(&[counts], F::LANES);
        let target = (&layout, 0, items);
        // SAFETY: `scatter` refuses an array that is too small; it is this worker's alone.
        unsafe { partition::scatter(&run.control, by, feed, target, &mut partition::no_outside)? };
        Ok::<_, JoinError>(layout)
    };
    let build_layout = one_side(build, &scratch.build)?;
    let probe_layout = one_side(probe, &scratch.probe)?;
    worker.phases.partition += start.elapsed();
    // The arrays are borrowed while the table's lines are written.
    let empty = || Array::new(0, None, PURPOSE);
    let from_build = std::mem::replace(&mut scratch.build, empty()?);
    let from_probe = std::mem::replace(&mut scratch.probe, empty()?);
    let mut outcome = Ok(());
    for part in 0..radix.parts() {
        let build = Pieces::new(build_layout.pieces(part, from_build.as_slice()));
        let probe = Pieces::new(probe_layout.pieces(part, from_probe.as_slice()));
        outcome = join_in_cache(run, (form, skip + radix.bits), &build, &probe, scratch, worker);
        if outcome.is_err() {
            break;
        }
    }
    (scratch.build, scratch.probe) = (from_build, from_probe);
    outcome
}

/// Builds and probes the table of one part.
fn join_in_cache<F: Form, C: Consumer>(
    run: &Run<'_>,
    (form, skip): (&F, u32),
    build: &Pieces<'_, F::Item>,
    probe: &Pieces<'_, F::Item>,
    scratch: &mut Scratch<F::Item>,
    worker: &mut Worker<'_, C>,
) -> Result<(), JoinError> {
    let start = Instant::now();
    if build.len() == 0 && !(run.emit.probe_unmatched && probe.len() > 0) {
        return Ok(());
    }
    let count = line_count(build.len(), F::LANES);
    let lines = scratch.lines.as_mut_slice().get_mut(..count).unwrap_or_default();
    lines.iter_mut().for_each(Line::clear);
    let marks = scratch.marks.as_mut_slice();
    let marks = marks.get_mut(..count).unwrap_or_default();
    marks.iter_mut().for_each(|mark| *mark.get_mut() = 0);
    let slots = Slots::new(*form, lines, skip);
    let (mut overflow, mut deferred) = (Overflow::new(None), Overflow::new(None));
    let mut space = Vec::new();
    let region = slots.region(0, 1);
    for morsel in 0..build.morsels() {
        let lists = (&mut overflow, &mut deferred);
        // SAFETY: the lines are this worker's.
        unsafe { slots.insert_owned(run.processor, &region, build.read(morsel, &mut space)?, lists)? };
    }
    let table = Table::new(slots, overflow, marks)?;
    let built = Instant::now();
    for morsel in 0..probe.morsels() {
        run.control.check()?;
        table.probe_all(run.processor, probe.read(morsel, &mut space)?, &mut worker.out)?;
    }
    if run.emit.marks_build() {
        for part in 0..table.sweeps() {
            table.sweep(part, &mut worker.out)?;
        }
    }
    worker.phases.build += built - start;
    worker.phases.probe += built.elapsed();
    Ok(())
}
