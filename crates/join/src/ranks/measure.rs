//! A join over ranks measured, phase by phase, beside the model with rates of the same run.
//!
//! Every build key occurs once, in random order; probe keys are drawn at random, or a share of them is one
//! hot key. Rows are positions, partitioned by range among ranks (Barthels 3.4.1, 4.3.1). The results are
//! counted and their rows added up, which needs every pair, and compared with what must come out.
//!
//! Rates come from micro-benchmarks of the parts that the joins are made of, run on all ranks at the same
//! time, since they share memory and network.

use std::hint::black_box;
use std::time::Instant;

use weft_base::Prng;
use weft_fabric::{InFlight, Rank};

use super::assign::{Segment, Span};
use super::error::RankJoinError;
use super::model::{Prediction, RankRates, RankShape};
use super::options::{RankOptions, RankReport, Schedule};
use super::outbox::{Mailing, Outbox};
use super::{Exchange, network_bits};
use crate::error::JoinError;
use crate::feed::{Pieces, Raw};
use crate::form::{self, Form, Narrow, Order, Wide};
use crate::hash::radix::TOO_LARGE;
use crate::model::{Bench, Shape};
use crate::options::{Algorithm, Compression};
use crate::partition::{self, Layout, Placing, Radix};
use crate::processor::Processor;
use crate::run::Run;
use crate::sort::{self, Splitters};
use crate::tuple::{Count, Ranges, Source, Tuple};
use crate::workers::Control;

/// Tuples of a rank's sample at most.
const SAMPLE_TUPLES: usize = 1 << 20;
/// Bytes that a rank puts to measure the network, in rounds.
const NETWORK_BYTES: usize = 64 << 20;

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Build tuples of all ranks.
    pub build: u64,
    /// Probe tuples of all ranks.
    pub probe: u64,
    /// Of a hundred probe tuples so many have the same key.
    pub hot_percent: u64,
}

/// One side's tuples of a rank, with their bounds.
struct Side {
    tuples: Vec<Tuple>,
    ranges: Ranges,
}

impl Source for Side {
    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn read<'a>(&'a self, first: usize, count: usize, _: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        let end = first.saturating_add(count).min(self.tuples.len());
        self.tuples.get(first..end).unwrap_or_default()
    }

    fn ranges(&self) -> Option<Ranges> {
        Some(self.ranges)
    }
}

/// What was measured; the same on all ranks.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Seconds from the moment when all ranks were ready until the last one was done: the median round.
    pub seconds: f64,
    /// Seconds of each phase in that round, the mean of all ranks.
    pub phases: Prediction,
    /// What the model predicts for each of its phases.
    pub model: Prediction,
    /// The rates that the model was given.
    pub rates: RankRates,
    /// Pairs.
    pub pairs: u64,
    /// Bytes that all ranks put into windows of others.
    pub sent_bytes: u64,
    /// In how many puts.
    pub puts: u64,
    /// Bytes of a tuple on its way.
    pub tuple_bytes: usize,
    /// Partitions of the exchange, and how many of them ranks shared.
    pub partitions: [usize; 2],
    /// Seconds to open the windows.
    pub window_seconds: f64,
}

impl Measured {
    /// Input tuples of both sides a second.
    #[must_use]
    pub fn tuples_per_second(&self, workload: &Workload) -> f64 {
        (workload.build + workload.probe) as f64 / self.seconds.max(1e-9)
    }
}

/// A permutation of the numbers below `count`: the order of build keys, which all ranks can compute.
fn permuted(number: u64, count: u64) -> u64 {
    let bits = form::bits(count.saturating_sub(1)).max(1);
    let mask = u64::MAX >> (u64::BITS - bits);
    let mut at = number;
    loop {
        // Each step can be undone; numbers that leave the range walk on until they are back.
        for _ in 0..3 {
            at = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
            at ^= at >> (bits / 2 + 1);
        }
        if at < count {
            return at;
        }
    }
}

fn share(total: u64, rank: u32, ranks: u32) -> (u64, u64) {
    let bound = |rank: u32| (u128::from(total) * u128::from(rank) / u128::from(ranks.max(1))) as u64;
    (bound(rank), bound(rank + 1))
}

fn sides(rank: &Rank, workload: &Workload) -> [Side; 2] {
    let build_keys = workload.build.max(1);
    let mut prng = Prng::new(u64::from(rank.number()) + 1);
    let ranges = |rows: u64| Ranges {
        keys: (0, build_keys - 1),
        rows: (0, rows.saturating_sub(1)),
    };
    let (first, end) = share(workload.build, rank.number(), rank.count());
    let build = (first..end).map(|row| Tuple {
        key: permuted(row, build_keys),
        row,
    });
    let build = Side {
        tuples: build.collect(),
        ranges: ranges(workload.build),
    };
    let (first, end) = share(workload.probe, rank.number(), rank.count());
    let probe = (first..end).map(|row| {
        let is_hot = workload.hot_percent > 0 && prng.chance(workload.hot_percent, 100);
        let key = if is_hot {
            build_keys / 2
        } else {
            prng.below(build_keys)
        };
        Tuple { key, row }
    });
    let probe = Side {
        tuples: probe.collect(),
        ranges: ranges(workload.probe),
    };
    [build, probe]
}

/// Bytes of a window that a rank needs for a workload, with room for uneven assignments.
#[must_use]
pub fn window_bytes(workload: &Workload, ranks: u32) -> u64 {
    let all = (workload.build + workload.probe) * size_of::<Tuple>() as u64;
    let fair = all / u64::from(ranks.max(1));
    fair + fair / 4 + (1 << 20)
}

/// Joins the workload so many times by each of the algorithms, in turns. Collective.
///
/// # Errors
/// See [`RankJoinError`]; `Misuse` if the answer is wrong.
pub fn measure(
    rank: &Rank,
    workload: &Workload,
    options: &RankOptions<'_>,
    algorithms: &[Algorithm],
    rounds: usize,
) -> Result<Vec<Measured>, RankJoinError> {
    let sides = sides(rank, workload);
    rank.barrier()?;
    let start = Instant::now();
    let mut exchange = Exchange::open(rank, window_bytes(workload, rank.count()))?;
    let window_seconds = start.elapsed().as_secs_f64();
    let mut all = Vec::new();
    for algorithm in algorithms {
        let options = RankOptions {
            algorithm: *algorithm,
            ..options.clone()
        };
        let rates = rates(rank, &exchange, workload, &sides, &options)?;
        all.push((options, rates, Vec::with_capacity(rounds)));
    }
    for _ in 0..rounds {
        for (options, _, found) in &mut all {
            found.push(one_round(rank, &mut exchange, workload, &sides, options)?);
        }
    }
    exchange.close()?;
    let mut measured = Vec::with_capacity(all.len());
    for (options, rates, mut found) in all {
        found.sort_by(|one: &Measured, other| one.seconds.total_cmp(&other.seconds));
        let Some(median) = found.get(found.len() / 2) else {
            continue;
        };
        let shape = shape(workload, rank.count(), &options);
        measured.push(Measured {
            algorithm: options.algorithm,
            model: rates.predict(&shape, options.algorithm),
            rates,
            window_seconds,
            ..median.clone()
        });
    }
    Ok(measured)
}

/// One join, with the times of all ranks.
fn one_round(
    rank: &Rank,
    exchange: &mut Exchange,
    workload: &Workload,
    [build, probe]: &[Side; 2],
    options: &RankOptions<'_>,
) -> Result<Measured, RankJoinError> {
    let mut count = Count::default();
    rank.barrier()?;
    let start = Instant::now();
    let report = exchange.join(build, probe, options, &mut count)?;
    rank.barrier()?;
    let seconds = start.elapsed().as_secs_f64();
    let named = report.phases.named();
    let mut words: Vec<u64> = named
        .iter()
        .map(|(_, time)| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        .collect();
    words.extend([report.pairs, report.sent_bytes, report.puts]);
    rank.all_reduce_sum(&mut words)?;
    let mean = |sum: &u64| *sum as f64 / 1e9 / f64::from(rank.count());
    let phases = named
        .iter()
        .zip(&words)
        .map(|((name, _), sum)| (*name, mean(sum)));
    let phases = phases.collect();
    let at = |number: usize| words.get(named.len() + number).copied().unwrap_or(0);
    if at(0) != workload.probe || count.pairs != report.pairs {
        return Err(RankJoinError::Misuse {
            what: "the measured join gave another number of pairs than there are",
        });
    }
    Ok(measured(&report, seconds, phases, [at(0), at(1), at(2)]))
}

fn measured(
    report: &RankReport,
    seconds: f64,
    phases: Prediction,
    [pairs, sent_bytes, puts]: [u64; 3],
) -> Measured {
    Measured {
        algorithm: report.algorithm,
        seconds,
        phases,
        pairs,
        sent_bytes,
        puts,
        tuple_bytes: report.tuple_bytes,
        partitions: [report.partitions, report.shared],
        ..Measured::default()
    }
}

/// The shape for the model.
fn shape(workload: &Workload, ranks: u32, options: &RankOptions<'_>) -> RankShape {
    let key_bits = form::bits(workload.build.max(1) - 1).max(1);
    let bits = network_bits(&options.network, &options.tuning, workload.build, key_bits, ranks);
    let wanted = options.tuning.partition_tuples.max(1) as u64;
    let is_large = workload.build >> bits > TOO_LARGE as u64 * wanted;
    RankShape {
        ranks,
        build: workload.build as f64,
        probe: workload.probe as f64,
        local_passes: f64::from(u8::from(is_large)),
        merge_depth: f64::from(u8::from(ranks > 1)),
    }
}

/// Rates of all ranks at once: each phase ends with the slowest, so times are averaged.
fn rates(
    rank: &Rank,
    exchange: &Exchange,
    workload: &Workload,
    sides: &[Side; 2],
    options: &RankOptions<'_>,
) -> Result<RankRates, RankJoinError> {
    let [build, probe] = sides;
    let key_bits = form::bits(workload.build.max(1) - 1).max(1);
    let bits = network_bits(
        &options.network,
        &options.tuning,
        workload.build,
        key_bits,
        rank.count(),
    );
    let order = match options.algorithm {
        Algorithm::SortMerge => Order::Kept,
        _ => Order::Mixed,
    };
    let dropped = if order == Order::Mixed { bits } else { 0 };
    let narrow = match options.compression {
        Compression::Never => None,
        _ => Narrow::of(&build.ranges, probe.ranges.rows, dropped, order),
    };
    let bench = RankBench {
        rank,
        exchange,
        tuples: &probe.tuples,
        workload,
        options,
        radix: Radix { skip: 0, bits },
    };
    let own = match narrow {
        Some(form) => bench.rates(form)?,
        None => bench.rates(Wide::new(order))?,
    };
    // Of times, not of rates.
    let mut words = own.map(|rate| (1e15 / rate.max(1.0)) as u64);
    rank.all_reduce_sum(&mut words)?;
    let mean = |sum: u64| 1e15 * f64::from(rank.count()) / (sum.max(1) as f64);
    let [
        scan,
        partition,
        network,
        local_partition,
        build,
        probe,
        range_scan,
        range_partition,
        sort,
        merge,
        matching,
    ] = words.map(mean);
    Ok(RankRates {
        scan,
        partition,
        network,
        local_partition,
        build,
        probe,
        range_scan,
        range_partition,
        sort,
        merge,
        matching,
    })
}

/// One rank's micro-benchmarks.
struct RankBench<'a> {
    rank: &'a Rank,
    exchange: &'a Exchange,
    tuples: &'a [Tuple],
    workload: &'a Workload,
    options: &'a RankOptions<'a>,
    radix: Radix,
}

/// Work a second of the fastest of three runs, which all ranks begin together.
fn rate(
    rank: &Rank,
    work: usize,
    mut run: impl FnMut() -> Result<(), RankJoinError>,
) -> Result<f64, RankJoinError> {
    let mut best = f64::MAX;
    for _ in 0..3 {
        rank.barrier()?;
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(work.max(1) as f64 / best.max(1e-9))
}

impl RankBench<'_> {
    /// In the order of the fields of [`RankRates`]; 1 for what the algorithm does not do.
    fn rates<F: Form>(&self, form: F) -> Result<[f64; 11], RankJoinError> {
        let sample = self
            .tuples
            .get(..self.tuples.len().min(SAMPLE_TUPLES))
            .unwrap_or_default();
        let run = Run {
            control: Control::new(None),
            emit: self.options.emit,
            budget: self.options.budget.clone(),
            processor: Processor::best(),
            tuning: self.options.tuning,
        };
        let network = self.network(size_of::<F::Item>())?;
        if self.options.algorithm == Algorithm::SortMerge {
            let [range_scan, range_partition, sort, merge, matching] = self.sorting(&run, form, sample)?;
            return Ok([
                1.0,
                1.0,
                network,
                1.0,
                1.0,
                1.0,
                range_scan,
                range_partition,
                sort,
                merge,
                matching,
            ]);
        }
        let raw = &sample;
        let feed = Raw::new(raw);
        let scan = rate(self.rank, sample.len(), || {
            black_box(partition::histogram::<F, _>(
                &run.control,
                (&form, &self.radix),
                &feed,
            )?);
            Ok(())
        })?;
        let partition = self.partitioning(form, sample)?;
        let local_partition = self.local_partitioning(&run, form, sample)?;
        let [build, probe] = self.in_cache(&run, form, sample)?;
        Ok([
            scan,
            partition,
            network,
            local_partition,
            build,
            probe,
            1.0,
            1.0,
            1.0,
            1.0,
            1.0,
        ])
    }

    /// Puts to the right neighbour, as the network pass does, all ranks at once.
    fn network(&self, item_bytes: usize) -> Result<f64, RankJoinError> {
        let window = &self.exchange.window;
        let target = (self.rank.number() + 1) % self.rank.count();
        if self.rank.count() == 1 {
            return Ok(1e12);
        }
        let bytes = self.options.network.buffer_bytes;
        let puts = (NETWORK_BYTES / bytes).min(usize::try_from(window.bytes_of(target)).unwrap_or(0) / bytes);
        let mut spare = vec![7_u8; bytes];
        rate(self.rank, puts * bytes / item_bytes, || {
            let mut on_its_way = None;
            for number in 0..puts {
                let full = std::mem::take(&mut spare);
                let next = window.put_buffer(target, (number * bytes) as u64, full)?;
                spare = match on_its_way.replace(next) {
                    Some(previous) => InFlight::wait(previous)?,
                    None => vec![7; bytes],
                };
            }
            if let Some(last) = on_its_way {
                spare = last.wait()?;
            }
            Ok(window.flush(target)?)
        })
    }

    /// Network partitioning of tuples that all stay here.
    fn partitioning<F: Form>(&self, form: F, sample: &[Tuple]) -> Result<f64, RankJoinError> {
        let mut counts = vec![0_u64; self.radix.parts()];
        for tuple in sample {
            if let Some(count) = counts.get_mut(self.radix.part_of(form.mix(tuple.key).0)) {
                *count += 1;
            }
        }
        let mut offset = 0;
        let mut segments = Vec::with_capacity(counts.len());
        for count in &counts {
            segments.push(vec![Segment {
                span: Span {
                    first: 0,
                    end: *count,
                },
                targets: vec![(self.rank.number(), offset)],
            }]);
            offset += (count * size_of::<F::Item>() as u64).next_multiple_of(64);
        }
        let mut network = self.options.network;
        network.schedule = Schedule::Free;
        rate(self.rank, sample.len(), || {
            let mailing = Mailing {
                counts: counts.clone(),
                segments: segments.clone(),
                is_pushed: true,
            };
            let mut outbox = Outbox::new(&self.exchange.window, network, size_of::<F::Item>(), mailing);
            for tuple in sample {
                let (mixed, _) = form.mix(tuple.key);
                let Some(item) = form.item(mixed, tuple.row) else {
                    return Err(JoinError::Source.into());
                };
                let [first, second] = F::words(item);
                match F::LANES {
                    8 => outbox.push(self.radix.part_of(mixed), [first])?,
                    _ => outbox.push(self.radix.part_of(mixed), [first, second])?,
                }
            }
            outbox.send_rest()
        })
    }

    /// A second pass over items that have arrived.
    fn local_partitioning<F: Form>(
        &self,
        run: &Run<'_>,
        form: F,
        sample: &[Tuple],
    ) -> Result<f64, RankJoinError> {
        let part = usize::try_from(self.workload.build >> self.radix.bits).unwrap_or(usize::MAX);
        let parts = part.div_ceil(self.options.tuning.partition_tuples.max(1)) as u64;
        let skip = self.radix.bits - form.dropped().min(self.radix.bits);
        let radix = Radix {
            skip,
            bits: form::bits(parts.max(2) - 1).min(8),
        };
        let item = |tuple: &Tuple| form.item(form.mix(tuple.key).0, tuple.row);
        let items: Vec<F::Item> = sample.iter().filter_map(item).collect();
        // One part after the other, as they lie in the window.
        let pieces: Vec<&[F::Item]> = items.chunks(part.clamp(1, items.len().max(1))).collect();
        let layouts: Result<Vec<Layout>, JoinError> = pieces
            .iter()
            .map(|piece| {
                let feed = Pieces::new(std::iter::once(*piece));
                let counts = partition::histogram::<F, _>(&run.control, (&form, &radix), &feed)?;
                Ok(Layout::new(&[counts], F::LANES))
            })
            .collect();
        let longest = layouts?.iter().map(Layout::len).max().unwrap_or(0);
        let target = crate::array::Array::<F::Item>::new(longest, None, "a calibration")?;
        rate(self.rank, items.len(), || {
            for piece in &pieces {
                let feed = Pieces::new(std::iter::once(*piece));
                let by = (&form, &radix);
                let counts = partition::histogram::<F, _>(&run.control, by, &feed)?;
                let layout = Layout::new(&[counts], F::LANES);
                let to = (&layout, 0, &target);
                // SAFETY: `scatter` refuses an array that is too small; it is this thread's alone.
                unsafe { partition::scatter(&run.control, by, &feed, to, &mut partition::no_outside)? };
            }
            Ok(())
        })
    }

    fn in_cache<F: Form>(&self, run: &Run<'_>, form: F, sample: &[Tuple]) -> Result<[f64; 2], RankJoinError> {
        let bench = self.bench(run, form, run.tuning);
        self.rank.barrier()?;
        let (build, probe) = bench.in_cache(sample)?;
        Ok([build, probe])
    }

    fn sorting<F: Form>(&self, run: &Run<'_>, form: F, sample: &[Tuple]) -> Result<[f64; 5], RankJoinError> {
        let tuning = &self.options.tuning;
        let ranks = self.rank.count() as usize;
        let (build, probe) = (self.workload.build as usize, self.workload.probe as usize);
        let ranges = sort::ranges(tuning, build, probe, ranks);
        let mut keys: Vec<u64> = sample
            .iter()
            .take(sort::SAMPLES * ranges)
            .map(|tuple| form.mix(tuple.key).0)
            .collect();
        keys.sort_unstable();
        let splitters = Splitters::of(&keys, ranges, form.key_unit());
        let feed = Raw::new(&sample);
        let mut counts = Vec::new();
        let scan = rate(self.rank, sample.len(), || {
            counts = partition::histogram::<F, _>(&run.control, (&form, &splitters), &feed)?;
            Ok(())
        })?;
        let layout = Layout::new(&[counts], F::LANES);
        let partition = rate(self.rank, sample.len(), || {
            let target = partition::target(&layout, None)?;
            let to = (&layout, 0, &target);
            let by = (&form, &splitters);
            // SAFETY: the array was made for the layout and is this thread's.
            unsafe { partition::scatter(&run.control, by, &feed, to, &mut partition::no_outside)? };
            Ok(())
        })?;
        // Runs as long as those that are sent: a rank's share of a range of one side.
        let run_tuples = (build.max(probe) / ranges.max(1) / ranks).clamp(1, tuning.run_tuples.max(1));
        let tuning = crate::options::Tuning {
            run_tuples,
            ..*tuning
        };
        let bench = self.bench(run, form, tuning);
        self.rank.barrier()?;
        let (sort, merge, matching) = bench.sorting(sample)?;
        Ok([scan, partition, sort, merge, matching])
    }

    fn bench<'b, F: Form>(
        &'b self,
        run: &'b Run<'b>,
        form: F,
        tuning: crate::options::Tuning,
    ) -> Bench<'b, F> {
        Bench {
            run,
            shape: Shape {
                build: usize::try_from(self.workload.build).unwrap_or(usize::MAX),
                probe: usize::try_from(self.workload.probe).unwrap_or(usize::MAX),
                workers: 1,
                is_compressed: size_of::<F::Item>() == 8,
                tuning,
            },
            whole: form,
            part: form,
            sorted: form,
            radix: self.radix,
            number: self.rank.number() as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_permutation() {
        for count in [1, 2, 3, 100, 1000, 4096] {
            let mut keys: Vec<u64> = (0..count).map(|number| permuted(number, count)).collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_measurement_has_all_phases_and_a_model() {
        let workload = Workload {
            build: 5_000,
            probe: 20_000,
            hot_percent: 10,
        };
        let all = weft_fabric::Threads::run(2, |rank| {
            let algorithms = [Algorithm::Radix, Algorithm::SortMerge];
            measure(&rank, &workload, &RankOptions::default(), &algorithms, 1).unwrap()
        });
        for measured in all.unwrap().concat() {
            assert_eq!(measured.pairs, 20_000);
            assert!(measured.seconds > 0.0 && measured.sent_bytes > 0);
            for (name, seconds) in &measured.model {
                assert!(measured.phases.iter().any(|(phase, _)| phase == name));
                assert!(
                    seconds.is_finite() && (*seconds > 0.0 || *name == "local partition"),
                    "{name}"
                );
            }
        }
    }
}
