//! The hash join without partitioning: one table, all workers.
//!
//! ```text
//! build morsels --> insert, 24 lines ahead --> table --> probe, 24 lines ahead <-- probe morsels
//! ```
//!
//! Each side is read once. A table larger than the cache costs one miss a tuple on either side, as
//! partitioning costs two passes over memory; with enough misses in flight (groups of prefetches: Chen et
//! al., "Improving hash join performance through prefetching", 2004) and in huge pages, that is no slower.
//! The radix join runs the same on partitions that are too large for one worker: the table is then shared,
//! and probing needs no synchronisation (Barthels 3.2.1, skewed data).

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Instant;

use weft_base::Budget;

use crate::array::Array;
use crate::error::JoinError;
use crate::feed::Feed;
use crate::form::{Form, Input};
use crate::run::{Run, Worker};
use crate::table::{Line, Overflow, Slots, Table, line_count};
use crate::tuple::{Consumer, MORSEL_TUPLES};
use crate::workers::Claims;

const PURPOSE: &str = "a hash table";
/// With more workers than this, reading all of the build side by each costs more than contended places do.
const OWNERS_MAX: usize = 4;

/// Joins two feeds, of items that have their highest `skip` bits in common. Without a budget, the caller has
/// reserved what [`table_bytes`] says.
pub(crate) fn join<F, B, P, C>(
    run: &Run<'_>,
    (form, skip): (F, u32),
    build: &B,
    probe: &P,
    budget: Option<&Arc<Budget>>,
    workers: &mut [Worker<'_, C>],
) -> Result<(), JoinError>
where
    F: Form,
    B: Feed,
    B::Item: Input<F>,
    P: Feed,
    P::Item: Input<F>,
    C: Consumer,
{
    let start = Instant::now();
    let lines = Array::<Line>::new(line_count(build.len(), F::LANES), budget, PURPOSE)?;
    let mark_count = if run.emit.marks_build() { lines.len() } else { 0 };
    let marks = Array::<AtomicU8>::new(mark_count, budget, PURPOSE)?;
    let slots = Slots::new(form, lines.as_slice(), skip);
    let overflow = fill(run, slots, build, budget, workers.len())?;
    let table = Table::new(slots, overflow, marks.as_slice())?;
    let built = Instant::now();
    let claims = Claims::new(probe.morsels());
    run.control.phase(workers, |_, worker| {
        let mut space = Vec::new();
        while let Some(morsel) = claims.claim() {
            run.control.check()?;
            table.probe_all(run.processor, probe.read(morsel, &mut space)?, &mut worker.out)?;
        }
        Ok(())
    })?;
    if run.emit.marks_build() {
        let claims = Claims::new(table.sweeps());
        run.control.phase(workers, |_, worker| {
            while let Some(part) = claims.claim() {
                run.control.check()?;
                table.sweep(part, &mut worker.out)?;
            }
            Ok(())
        })?;
    }
    for worker in workers {
        worker.phases.build += built - start;
        worker.phases.probe += built.elapsed();
    }
    Ok(())
}

/// A worker's lists while a table is filled.
struct Lists<I> {
    overflow: Overflow<I>,
    deferred: Overflow<I>,
}

/// Fills the table by all workers. Nothing has been told to a consumer when it fails.
fn fill<F, B>(
    run: &Run<'_>,
    slots: Slots<'_, F>,
    build: &B,
    budget: Option<&Arc<Budget>>,
    workers: usize,
) -> Result<Overflow<F::Item>, JoinError>
where
    F: Form,
    B: Feed,
    B::Item: Input<F>,
{
    let lists = |_| Lists {
        overflow: Overflow::new(budget),
        deferred: Overflow::new(budget),
    };
    let mut lists: Vec<_> = (0..workers).map(lists).collect();
    match workers == 1 || (build.is_cheap() && workers <= OWNERS_MAX) {
        true => fill_owned(run, slots, build, &mut lists)?,
        false => {
            let claims = Claims::new(build.morsels());
            run.control.phase(&mut lists, |_, lists| {
                let mut space = Vec::new();
                while let Some(morsel) = claims.claim() {
                    run.control.check()?;
                    slots.insert_shared(build.read(morsel, &mut space)?, &mut lists.overflow)?;
                }
                Ok(())
            })?;
        }
    }
    let mut all = Overflow::new(budget);
    for lists in lists {
        slots.insert_shared(lists.deferred.items(), &mut all)?;
        all.append(lists.overflow)?;
    }
    Ok(all)
}

/// Every worker reads all, and puts in what belongs into its region.
fn fill_owned<F, B>(
    run: &Run<'_>,
    slots: Slots<'_, F>,
    build: &B,
    lists: &mut [Lists<F::Item>],
) -> Result<(), JoinError>
where
    F: Form,
    B: Feed,
    B::Item: Input<F>,
{
    let workers = lists.len();
    run.control.phase(lists, |number, lists| {
        let region = slots.region(number, workers);
        let Lists { overflow, deferred } = lists;
        let mut space = Vec::new();
        let mut mine = Vec::with_capacity(MORSEL_TUPLES);
        for morsel in 0..build.morsels() {
            run.control.check()?;
            let mut inputs = build.read(morsel, &mut space)?;
            if workers > 1 {
                let count = choose(inputs, &mut mine, |input| slots.is_in(&region, input));
                inputs = mine.get(..count).unwrap_or_default();
            }
            // SAFETY: regions do not overlap.
            unsafe { slots.insert_owned(run.processor, &region, inputs, (overflow, deferred))? };
        }
        Ok(())
    })
}

/// Puts those that are wanted to the beginning of a list, without a branch for each; returns how many.
#[inline(always)]
pub(crate) fn choose<I: Copy>(inputs: &[I], chosen: &mut Vec<I>, is_wanted: impl Fn(I) -> bool) -> usize {
    // Whatever is there already is overwritten or cut off.
    let missing = inputs.len().saturating_sub(chosen.len());
    chosen.extend_from_slice(inputs.get(..missing).unwrap_or_default());
    let mut count = 0;
    for input in inputs {
        if let Some(place) = chosen.get_mut(count) {
            *place = *input;
        }
        count += usize::from(is_wanted(*input));
    }
    count
}

/// Bytes for a table of so many tuples that all go into the overflow: more is never needed.
pub(crate) fn table_bytes<F: Form>(tuples: usize, marks_build: bool) -> Option<usize> {
    let lines = line_count(tuples, F::LANES);
    let mut bytes = crate::array::array_bytes::<Line>(lines)?;
    // Growing by doubling, and joining the workers' lists.
    bytes = bytes.checked_add(tuples.checked_mul(4 * size_of::<F::Item>())?)?;
    if marks_build {
        bytes = bytes.checked_add(lines)?.checked_add(tuples)?;
    }
    Some(bytes)
}
