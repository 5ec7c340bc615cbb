//! The sort-merge join (Barthels 3.2.2).
//!
//! ```text
//! sample --> splitters --> histogram, partition by range --> runs sorted in the cache --> merge --> match
//! ```
//!
//! 1. Splitters come from a sorted sample of both sides, so that ranges have about the same number of tuples
//!    whatever the keys are. A key that fills several ranges gets one of its own (3.6: splitters for skewed
//!    data); nothing is sorted there, and all workers share its pairs.
//! 2. Both sides are partitioned by range, as in the radix join. Ranges are claimed by workers, the largest
//!    first.
//! 3. Where both sides of a range are as small as a run, it is sorted and matched in the cache, and the merge
//!    falls away: the depth of equation 3.17 is zero. The number of ranges aims at that as long as one pass
//!    can make so many. Longer sides are sorted run by run and merged, all runs at once.
//! 4. Two heads move over the sorted sides; equal keys are a group on either side, whose rows are paired.

mod matching;
mod merge;
mod run;
mod splitters;

use std::cmp::Reverse;
use std::time::Instant;

use crate::array::Array;
use crate::error::JoinError;
use crate::feed::{Feed, Pieces, Raw};
use crate::form::Form;
use crate::model::Shape;
use crate::options::Tuning;
use crate::partition::{Layout, Placing};
use crate::run::{Run, Worker};
use crate::sides::both_sides;
use crate::tuple::Consumer;
use crate::workers::Claims;

pub(crate) use matching::sorted_sides as match_sides;
pub(crate) use merge::merge as merge_runs;
pub(crate) use run::sort as sort_run;
pub(crate) use splitters::{SAMPLES, Splitters};

const PURPOSE: &str = "runs being sorted";

/// What a sort-merge join tells of itself.
pub(crate) struct Told {
    pub(crate) parts: usize,
    pub(crate) runs: usize,
    pub(crate) shared: usize,
}

/// How many ranges are wanted.
pub(crate) fn ranges(tuning: &Tuning, build: usize, probe: usize, workers: usize) -> usize {
    // Half as long as a run on average, so that a range of uneven size still is one.
    let wanted = build.max(probe).div_ceil(tuning.run_tuples.max(2) / 2);
    wanted.max(4 * workers).min(1 << tuning.pass_bits_max.min(16))
}

/// As many ranges as a join of this shape makes.
pub(crate) fn range_count(tuning: &Tuning, shape: &Shape) -> usize {
    ranges(tuning, shape.build, shape.probe, shape.workers)
}

/// Where so many ranges of one side begin.
pub(crate) fn splitters<F: Form>(form: &F, side: &Raw<'_>, ranges: usize) -> Result<impl Placing, JoinError> {
    Splitters::new(form, (side, side), ranges)
}

/// What a worker needs for one range at a time.
struct Scratch<I> {
    build: Array<I>,
    probe: Array<I>,
    /// Runs before they are merged.
    runs: Array<I>,
    /// As long as a run.
    spare: Array<I>,
    run_count: usize,
}

/// Joins two sources. The form keeps the order of keys.
pub(crate) fn join<F: Form, C: Consumer>(
    run: &Run<'_>,
    form: F,
    (build, probe): (Raw<'_>, Raw<'_>),
    workers: &mut [Worker<'_, C>],
) -> Result<Told, JoinError> {
    let start = Instant::now();
    let wanted = ranges(&run.tuning, build.len(), probe.len(), workers.len());
    let splitters = Splitters::new(&form, (&build, &probe), wanted)?;
    for worker in workers.iter_mut() {
        worker.phases.histogram += start.elapsed();
    }
    let count = workers.len();
    let plan = |build: &Layout, probe: &Layout| {
        let counts = |part: usize| (build.count(part), probe.count(part));
        let mut parts: Vec<usize> = (0..splitters.parts()).collect();
        parts.sort_by_key(|part| Reverse(counts(*part).0 + counts(*part).1));
        let (shared, single): (Vec<usize>, Vec<usize>) =
            parts.into_iter().partition(|part| splitters.has_one_key(*part));
        let sizes = single.iter().map(|part| counts(*part));
        let largest = sizes.fold((0, 0), |most: (usize, usize), (build, probe)| {
            (most.0.max(build), most.1.max(probe))
        });
        Ok((shared, single, scratches::<F>(run, largest, count)?))
    };
    let (build, probe, plan) = both_sides(run, &form, &splitters, (build, probe), workers, plan)?;
    let (shared, single, mut scratch) = plan;
    for part in &shared {
        matching::one_key(run, &form, &build.pieces(*part), &probe.pieces(*part), workers)?;
    }
    let claims = Claims::new(single.len());
    let mut pairs: Vec<_> = workers.iter_mut().zip(&mut scratch).collect();
    run.control.phase(&mut pairs, |_, (worker, scratch)| {
        while let Some(part) = claims.claim().and_then(|number| single.get(number)) {
            run.control.check()?;
            join_range(
                run,
                &form,
                &(build.pieces(*part), probe.pieces(*part)),
                scratch,
                worker,
            )?;
        }
        Ok(())
    })?;
    Ok(Told {
        parts: splitters.parts(),
        runs: scratch.iter().map(|scratch| scratch.run_count).sum(),
        shared: shared.len(),
    })
}

fn scratches<F: Form>(
    run: &Run<'_>,
    (build, probe): (usize, usize),
    workers: usize,
) -> Result<Vec<Scratch<F::Item>>, JoinError> {
    let budget = Some(&run.budget);
    let run_tuples = run.tuning.run_tuples.max(1);
    let merged = build.max(probe);
    let runs = if merged > run_tuples { merged } else { 0 };
    let scratch = |_| {
        Ok(Scratch {
            build: Array::new(build, budget, PURPOSE)?,
            probe: Array::new(probe, budget, PURPOSE)?,
            runs: Array::new(runs, budget, PURPOSE)?,
            spare: Array::new(run_tuples.min(merged), budget, PURPOSE)?,
            run_count: 0,
        })
    };
    (0..workers).map(scratch).collect()
}

/// Sorts both sides of a range and matches them, by one worker.
fn join_range<F: Form, C: Consumer>(
    run: &Run<'_>,
    form: &F,
    (build, probe): &(Pieces<'_, F::Item>, Pieces<'_, F::Item>),
    scratch: &mut Scratch<F::Item>,
    worker: &mut Worker<'_, C>,
) -> Result<(), JoinError> {
    let emit = run.emit;
    let has_result = (build.len() > 0 && probe.len() > 0)
        || (emit.probe_unmatched && probe.len() > 0)
        || (emit.build_unmatched && build.len() > 0);
    if !has_result {
        return Ok(());
    }
    let Scratch {
        build: to_build,
        probe: to_probe,
        runs,
        spare,
        run_count,
    } = scratch;
    let mut rest = (runs.as_mut_slice(), spare.as_mut_slice());
    let build = sorted(
        run,
        form,
        build,
        to_build.as_mut_slice(),
        &mut rest,
        (worker, run_count),
    )?;
    let probe = sorted(
        run,
        form,
        probe,
        to_probe.as_mut_slice(),
        &mut rest,
        (worker, run_count),
    )?;
    let start = Instant::now();
    matching::sorted_sides(form, build, probe, &mut worker.out)?;
    worker.phases.matching += start.elapsed();
    Ok(())
}

/// All tuples of a part, sorted, at the beginning of `to`.
fn sorted<'a, F: Form, C: Consumer>(
    run: &Run<'_>,
    form: &F,
    part: &Pieces<'_, F::Item>,
    to: &'a mut [F::Item],
    (runs, spare): &mut (&mut [F::Item], &mut [F::Item]),
    (worker, run_count): (&mut Worker<'_, C>, &mut usize),
) -> Result<&'a [F::Item], JoinError> {
    let start = Instant::now();
    let run_tuples = run.tuning.run_tuples.max(1);
    let to = to.get_mut(..part.len()).ok_or(JoinError::Source)?;
    if part.len() <= run_tuples {
        *run_count += sorted_runs(run, form, part, to, spare)?;
        worker.phases.sort += start.elapsed();
        return Ok(to);
    }
    let runs = runs.get_mut(..part.len()).ok_or(JoinError::Source)?;
    *run_count += sorted_runs(run, form, part, runs, spare)?;
    let is_sorted = Instant::now();
    merge::merge(form, runs.chunks(run_tuples), to);
    worker.phases.sort += is_sorted - start;
    worker.phases.merge += is_sorted.elapsed();
    Ok(to)
}

/// All tuples of a part at `place`, in sorted runs. Returns how many.
fn sorted_runs<F: Form>(
    run: &Run<'_>,
    form: &F,
    part: &Pieces<'_, F::Item>,
    place: &mut [F::Item],
    spare: &mut [F::Item],
) -> Result<usize, JoinError> {
    let mut at = 0;
    let mut space = Vec::new();
    for morsel in 0..part.morsels() {
        let items = part.read(morsel, &mut space)?;
        if let Some(place) = place.get_mut(at..at + items.len()) {
            place.copy_from_slice(items);
        }
        at += items.len();
    }
    let mut count = 0;
    for items in place.chunks_mut(run.tuning.run_tuples.max(1)) {
        run.control.check()?;
        run::sort(form, items, spare);
        count += 1;
    }
    Ok(count)
}
