//! Performance models of the joins on one machine (Barthels 3.3), calibrated on the machine they run on.
//!
//! With one machine the network terms fall away (3.2 to 3.6, 3.14, 3.15). With W workers, rates P in tuples a
//! second and worker, R build and S probe tuples, d passes:
//!
//! ```text
//! histogram  (R + S) / (W P_scan)          3.1       sort    (R + S) / (W P_sort(l))         3.12-3.16
//! partition  d (R + S) / (W P_partition)   3.7, 3.8  merge   (d_R R + d_S S) / (W P_merge)   3.17, 3.18
//! build      R / (W P_build)               3.9       match   (R + S) / (W P_match)           3.19
//! probe      S / (W P_probe)               3.10      total   the sum of the phases           3.11, 3.20
//! ```
//!
//! Beyond the document: the unpartitioned join, with the same two equations for build and probe but rates of
//! a table of its size, what it costs every worker to choose its tuples among all (R / P_choose), and the
//! clearing of fresh pages by the system (bytes / (W P_clear)); and finding bounds for the 8-byte form.
//!
//! [`calibrate`] measures every rate with all workers at work, because they share the memory. The model is
//! the document's: phases in sequence, perfectly shared; so it is a lower bound where tuples are skewed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use weft_base::{Budget, Prng};

use crate::array::Array;
use crate::error::JoinError;
use crate::feed::{Feed, Pieces, Raw};
use crate::form::{Form, Narrow, Order, Wide};
use crate::hash::radix;
use crate::options::{Algorithm, Phases, Tuning};
use crate::output::Output;
use crate::partition::{self, Layout, Placing, Radix};
use crate::processor::Processor;
use crate::run::Run;
use crate::sort;
use crate::table::{Line, Overflow, Slots, Table, line_count};
use crate::tuple::{Count, Emit, Ranges, Tuple};
use crate::workers::Control;

const PURPOSE: &str = "a calibration";
/// Tuples of a worker's sample at most.
const SAMPLE_TUPLES: usize = 2 << 20;

/// A join to be predicted: dense keys, each once on the build side.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tuples of the build side.
    pub build: usize,
    /// Tuples of the probe side.
    pub probe: usize,
    /// Workers.
    pub workers: usize,
    /// 8-byte tuples.
    pub is_compressed: bool,
    /// As the join will have it.
    pub tuning: Tuning,
}

/// Rates of one worker while all are at work, in tuples a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Reading tuples, for their bounds.
    pub read: f64,
    /// Counting for each partition: P_scan of 3.1.
    pub scan: f64,
    /// Partitioning by hash, one pass.
    pub partition: f64,
    /// Filling a table in the cache.
    pub build: f64,
    /// Probing a table in the cache.
    pub probe: f64,
    /// Choosing the tuples of a worker's region.
    pub choose: f64,
    /// Filling a table of the whole build side.
    pub insert: f64,
    /// Probing it.
    pub lookup: f64,
    /// Clearing fresh memory, in bytes a second.
    pub clear_bytes: f64,
    /// Counting by range.
    pub range_scan: f64,
    /// Partitioning by range.
    pub range_partition: f64,
    /// Sorting runs of [`Tuning::run_tuples`].
    pub sort: f64,
    /// Merging runs.
    pub merge: f64,
    /// Matching sorted sides.
    pub matching: f64,
}

fn time_of(tuples: f64, rate: f64) -> Duration {
    let seconds = if rate > 0.0 { tuples / rate } else { 0.0 };
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Rates {
    /// The time of each phase.
    #[must_use]
    pub fn predict(&self, shape: &Shape, algorithm: Algorithm) -> Phases {
        let algorithm = algorithm.for_sizes(shape.build, shape.workers, &shape.tuning);
        let (build, probe) = (shape.build as f64, shape.probe as f64);
        let workers = shape.workers.max(1) as f64;
        let shared = |tuples: f64, rate: f64| time_of(tuples / workers, rate);
        let lanes = if shape.is_compressed {
            Narrow::LANES
        } else {
            Wide::LANES
        };
        let bounded = match (shape.is_compressed, algorithm) {
            (false, _) => 0.0,
            (true, Algorithm::Radix | Algorithm::SortMerge) => build + probe,
            (true, _) => build,
        };
        let mut phases = Phases {
            bounds: shared(bounded, self.read),
            ..Phases::default()
        };
        match algorithm {
            Algorithm::Chosen | Algorithm::Unpartitioned => {
                let bytes = line_count(shape.build, lanes) as f64 * 64.0;
                let chosen = if shape.workers > 1 { build } else { 0.0 };
                phases.build = shared(build, self.insert)
                    + shared(bytes, self.clear_bytes)
                    + time_of(chosen, self.choose);
                phases.probe = shared(probe, self.lookup);
            }
            Algorithm::Radix => {
                phases.histogram = shared(build + probe, self.scan);
                phases.partition = shared(build + probe, self.partition) * self.passes(shape);
                phases.build = shared(build, self.build);
                phases.probe = shared(probe, self.probe);
            }
            Algorithm::SortMerge => {
                phases.histogram = shared(build + probe, self.range_scan);
                phases.partition = shared(build + probe, self.range_partition);
                phases.sort = shared(build + probe, self.sort);
                let merged: f64 = [build, probe]
                    .into_iter()
                    .filter(|side| {
                        side / sort::range_count(&shape.tuning, shape) as f64 > shape.tuning.run_tuples as f64
                    })
                    .sum();
                phases.merge = shared(merged, self.merge);
                phases.matching = shared(build + probe, self.matching);
            }
        }
        phases
    }

    /// Partitioning passes: d of equation 3.8.
    fn passes(&self, shape: &Shape) -> u32 {
        let bits = radix::first_bits(&shape.tuning, shape.build, u64::BITS, shape.workers);
        let wanted = shape.tuning.partition_tuples.max(1);
        if shape.build >> bits > radix::TOO_LARGE * wanted {
            2
        } else {
            1
        }
    }
}

/// Measures the rates for a shape. Takes some seconds, and memory as a join of the shape does.
///
/// # Errors
/// There is no such memory.
pub fn calibrate(shape: &Shape) -> Result<Rates, JoinError> {
    let last_key = (shape.build as u64).saturating_sub(1);
    let last_row = (shape.build.max(shape.probe) as u64).saturating_sub(1);
    let bits = |key_bits| radix::first_bits(&shape.tuning, shape.build, key_bits, shape.workers);
    let narrow = |dropped, order| Narrow::new((0, last_key), (0, last_row), dropped, order);
    let key_bits = crate::form::bits(last_key).max(1);
    let forms = (
        narrow(0, Order::Mixed),
        narrow(bits(key_bits), Order::Mixed),
        narrow(0, Order::Kept),
    );
    match (shape.is_compressed, forms) {
        (true, (Some(whole), Some(part), Some(sorted))) => {
            measure(shape, whole, part, sorted, bits(key_bits))
        }
        _ => {
            let mixed = Wide::new(Order::Mixed);
            measure(shape, mixed, mixed, Wide::new(Order::Kept), bits(u64::BITS))
        }
    }
}

/// One worker's micro-benchmarks.
pub(crate) struct Bench<'a, F: Form> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) shape: Shape,
    pub(crate) whole: F,
    pub(crate) part: F,
    pub(crate) sorted: F,
    pub(crate) radix: Radix,
    pub(crate) number: usize,
}

fn measure<F: Form>(shape: &Shape, whole: F, part: F, sorted: F, bits: u32) -> Result<Rates, JoinError> {
    let run = Run {
        control: Control::new(None),
        emit: Emit::INNER,
        budget: Budget::new(usize::MAX),
        processor: Processor::best(),
        tuning: shape.tuning,
    };
    let workers = shape.workers.max(1);
    let mut all = vec![Rates::default(); workers];
    let lines = Array::<Line>::new(line_count(shape.build, F::LANES), None, PURPOSE)?;
    let radix = Radix { skip: 0, bits };
    run.control.phase(&mut all, |number, rates| {
        let bench = Bench {
            run: &run,
            shape: *shape,
            whole,
            part,
            sorted,
            radix,
            number,
        };
        *rates = bench.rates(&lines)?;
        Ok(())
    })?;
    Ok(mean(&all))
}

fn mean(all: &[Rates]) -> Rates {
    // Of times, not of rates: the phase ends with its work.
    let of = |rate: fn(&Rates) -> f64| {
        let times: f64 = all.iter().map(|rates| 1.0 / rate(rates).max(1.0)).sum();
        all.len() as f64 / times
    };
    Rates {
        read: of(|rates| rates.read),
        scan: of(|rates| rates.scan),
        partition: of(|rates| rates.partition),
        build: of(|rates| rates.build),
        probe: of(|rates| rates.probe),
        choose: of(|rates| rates.choose),
        insert: of(|rates| rates.insert),
        lookup: of(|rates| rates.lookup),
        clear_bytes: of(|rates| rates.clear_bytes),
        range_scan: of(|rates| rates.range_scan),
        range_partition: of(|rates| rates.range_partition),
        sort: of(|rates| rates.sort),
        merge: of(|rates| rates.merge),
        matching: of(|rates| rates.matching),
    }
}

/// Work a second of the fastest of three runs: others' interruptions are not the machine's speed.
fn rate(work: usize, mut run: impl FnMut() -> Result<(), JoinError>) -> Result<f64, JoinError> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(work.max(1) as f64 / best.max(1e-9))
}

impl<F: Form> Bench<'_, F> {
    fn rates(&self, lines: &Array<Line>) -> Result<Rates, JoinError> {
        let mut rates = Rates::default();
        let mut prng = Prng::new(self.number as u64);
        let keys = self.shape.build.max(1) as u64;
        let count = self.shape.build.max(self.shape.probe) / self.shape.workers.max(1);
        let mut tuples = Array::<Tuple>::new(count.clamp(1, SAMPLE_TUPLES), None, PURPOSE)?;
        for (row, place) in (0..).zip(tuples.as_mut_slice()) {
            *place = Tuple {
                key: prng.below(keys),
                row,
            };
        }
        let tuples = tuples.as_slice();
        rates.read = rate(tuples.len(), || {
            let mut ranges = Ranges::EMPTY;
            ranges.include(black_box(tuples));
            black_box(ranges);
            Ok(())
        })?;
        (rates.scan, rates.partition) = self.partitioning(&self.part, &self.radix, &tuples)?;
        (rates.build, rates.probe) = self.in_cache(tuples)?;
        self.whole_table(lines, tuples, &mut rates)?;
        let ranges = sort::range_count(&self.shape.tuning, &self.shape);
        let sampled = Raw::new(&tuples);
        let splitters = sort::splitters(&self.sorted, &sampled, ranges)?;
        (rates.range_scan, rates.range_partition) = self.partitioning(&self.sorted, &splitters, &tuples)?;
        (rates.sort, rates.merge, rates.matching) = self.sorting(tuples)?;
        Ok(rates)
    }

    fn partitioning(
        &self,
        form: &F,
        placing: &impl Placing,
        tuples: &&[Tuple],
    ) -> Result<(f64, f64), JoinError> {
        let control = &self.run.control;
        let feed = Raw::new(tuples);
        let mut counts = Vec::new();
        let scan = rate(tuples.len(), || {
            counts = partition::histogram::<F, _>(control, (form, placing), &feed)?;
            Ok(())
        })?;
        let layout = Layout::new(&[counts], F::LANES);
        let partition = rate(tuples.len(), || {
            // Fresh pages each time, as in a join.
            let target = partition::target(&layout, None)?;
            let to = (&layout, 0, &target);
            // SAFETY: the array was made for the layout and is this worker's.
            unsafe { partition::scatter(control, (form, placing), &feed, to, &mut partition::no_outside) }
        })?;
        Ok((scan, partition))
    }

    pub(crate) fn in_cache(&self, tuples: &[Tuple]) -> Result<(f64, f64), JoinError> {
        let count = self.shape.tuning.partition_tuples.min(tuples.len());
        let form = &self.whole;
        let item = |tuple: &Tuple| form.item(form.mix(tuple.key).0, tuple.row);
        let mut prng = Prng::new(1);
        let distinct = prng.below(self.shape.build.max(1) as u64);
        let part = (0..count as u64).map(|at| Tuple {
            key: (distinct + at) % self.shape.build.max(1) as u64,
            row: at,
        });
        let part: Vec<Tuple> = part.collect();
        let items: Vec<F::Item> = part.iter().filter_map(item).collect();
        let feed = Pieces::new(std::iter::once(items.as_slice()));
        let mut lines = Array::<Line>::new(line_count(count, F::LANES), None, PURPOSE)?;
        let repeats = (SAMPLE_TUPLES / 4).div_ceil(count.max(1));
        let build = rate(count * repeats, || {
            for _ in 0..repeats {
                lines.as_mut_slice().iter_mut().for_each(Line::clear);
                self.fill(lines.as_slice(), &feed)?;
            }
            Ok(())
        })?;
        lines.as_mut_slice().iter_mut().for_each(Line::clear);
        let table = self.fill(lines.as_slice(), &feed)?;
        let probe = rate(count * repeats, || {
            for _ in 0..repeats {
                self.look_up(&table, &feed)?;
            }
            Ok(())
        })?;
        Ok((build, probe))
    }

    fn fill<'t>(&self, lines: &'t [Line], feed: &Pieces<'_, F::Item>) -> Result<Table<'t, F>, JoinError> {
        let slots = Slots::new(self.whole, lines, 0);
        let (mut overflow, mut deferred) = (Overflow::new(None), Overflow::new(None));
        let region = slots.region(0, 1);
        let mut space = Vec::new();
        for morsel in 0..feed.morsels() {
            let lists = (&mut overflow, &mut deferred);
            let items = feed.read(morsel, &mut space)?;
            // SAFETY: the lines are this worker's.
            unsafe { slots.insert_owned(self.run.processor, &region, items, lists)? };
        }
        Table::new(slots, overflow, &[])
    }

    fn look_up(&self, table: &Table<'_, F>, feed: &Pieces<'_, F::Item>) -> Result<(), JoinError> {
        let mut count = Count::default();
        let mut out = Output::new(&mut count, Emit::INNER);
        let mut space = Vec::new();
        for morsel in 0..feed.morsels() {
            table.probe_all(self.run.processor, feed.read(morsel, &mut space)?, &mut out)?;
        }
        out.finish()?;
        black_box(count);
        Ok(())
    }

    /// A table as large as the build side, of which every worker fills and probes its region.
    fn whole_table(&self, lines: &Array<Line>, tuples: &[Tuple], rates: &mut Rates) -> Result<(), JoinError> {
        let slots = Slots::new(self.whole, lines.as_slice(), 0);
        let region = slots.region(self.number, self.shape.workers);
        let mine: Vec<Tuple> = tuples
            .iter()
            .copied()
            .filter(|tuple| slots.is_in(&region, *tuple))
            .collect();
        let fresh = Array::<u64>::new(8 << 20, None, PURPOSE)?;
        let start = Instant::now();
        for at in (0..fresh.len()).step_by(512) {
            // SAFETY: inside of the array, which is this worker's.
            unsafe { fresh.base().as_ptr().add(at).write_volatile(1) };
        }
        let clear_seconds = start.elapsed().as_secs_f64();
        rates.clear_bytes = size_of_val(fresh.as_slice()) as f64 / clear_seconds.max(1e-9);
        let mut chosen = Vec::new();
        rates.choose = rate(tuples.len(), || {
            for morsel in tuples.chunks(crate::tuple::MORSEL_TUPLES) {
                crate::hash::unpartitioned::choose(morsel, &mut chosen, |tuple| slots.is_in(&region, tuple));
                black_box(chosen.len());
            }
            Ok(())
        })?;
        // The first round has the system clear the pages, which is counted apart.
        let (mut overflow, mut deferred) = (Overflow::new(None), Overflow::new(None));
        let mut best = f64::MAX;
        for round in mine.chunks(mine.len().div_ceil(3).max(1)) {
            let start = Instant::now();
            let lists = (&mut overflow, &mut deferred);
            // SAFETY: regions do not overlap.
            unsafe { slots.insert_owned(self.run.processor, &region, round, lists)? };
            best = best.min(start.elapsed().as_secs_f64() / round.len().max(1) as f64);
        }
        rates.insert = 1.0 / best.max(1e-12);
        let table = Table::new(slots, overflow, &[])?;
        let mut count = Count::default();
        let mut out = Output::new(&mut count, Emit::INNER);
        rates.lookup = rate(mine.len(), || {
            table.probe_all(self.run.processor, &mine, &mut out)
        })?;
        Ok(())
    }

    pub(crate) fn sorting(&self, tuples: &[Tuple]) -> Result<(f64, f64, f64), JoinError> {
        let form = &self.sorted;
        let run_tuples = self.shape.tuning.run_tuples.max(1);
        // One range of keys, of two runs on either side.
        let keys = (2 * run_tuples).min(self.shape.build.max(1)) as u64;
        let tuple = |tuple: &Tuple| form.item(form.mix(tuple.key % keys).0, tuple.row);
        let items: Vec<F::Item> = tuples.iter().take(2 * run_tuples).filter_map(tuple).collect();
        let (mut work, mut spare, mut merged) = (items.clone(), items.clone(), items.clone());
        let sort = rate(items.len() * 8, || {
            for _ in 0..8 {
                work.copy_from_slice(&items);
                work.chunks_mut(run_tuples)
                    .for_each(|run| sort::sort_run(form, run, &mut spare));
            }
            Ok(())
        })?;
        let merge = rate(items.len(), || {
            sort::merge_runs(form, work.chunks(run_tuples), &mut merged);
            Ok(())
        })?;
        let mut count = Count::default();
        let mut out = Output::new(&mut count, Emit::INNER);
        let matching = rate(2 * items.len(), || {
            sort::match_sides(form, &merged, &merged, &mut out)
        })?;
        Ok((sort, merge, matching))
    }
}
