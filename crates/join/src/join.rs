//! One join from its options: bounds, form, algorithm, and what to do when room is short.

use std::sync::Arc;
use std::time::Instant;

use crate::error::JoinError;
use crate::feed::{Feed, Raw};
use crate::form::{Form, Narrow, Order, Wide};
use crate::hash::{radix, unpartitioned};
use crate::options::{Algorithm, Compression, Options, Report};
use crate::output::Output;
use crate::partition::{Placing, Radix};
use crate::processor::Processor;
use crate::run::{Run, Worker};
use crate::sort;
use crate::spill;
use crate::tuple::{Consumer, Ranges, Source, Tuple};
use crate::workers::{Claims, Control};

/// Joins the two sides: every pair of equal keys, or what [`Options::emit`] asks for, to one consumer a
/// worker. As many workers run as there are consumers, the caller's thread among them; fewer for few tuples.
/// The build side should be the smaller one.
///
/// # Errors
/// See [`JoinError`]. Consumers may have got a part of the results.
pub fn join<C: Consumer>(
    build: &dyn Source,
    probe: &dyn Source,
    options: &Options<'_>,
    consumers: &mut [C],
) -> Result<Report, JoinError> {
    let start = Instant::now();
    let run = Run {
        control: Control::new(options.interrupt),
        emit: options.emit,
        budget: Arc::clone(&options.budget),
        processor: Processor::best(),
        tuning: options.tuning,
    };
    run.control.check()?;
    let tuples = build.len().saturating_add(probe.len());
    let useful = tuples.div_ceil(options.tuning.worker_tuples_min.max(1)).max(1);
    let consumers = consumers.iter_mut().take(useful);
    let worker = |consumer| Worker {
        out: Output::new(consumer, options.emit),
        phases: Default::default(),
    };
    let mut workers: Vec<Worker<'_, C>> = consumers.map(worker).collect();
    if workers.is_empty() {
        return Err(JoinError::NoConsumer);
    }
    let mut report = Report {
        algorithm: options.algorithm,
        processor: run.processor.name(),
        workers: workers.len(),
        partitions: 1,
        ..Report::default()
    };
    let algorithm = options
        .algorithm
        .for_sizes(build.len(), workers.len(), &run.tuning);
    run_within_budget(
        &run,
        options,
        algorithm,
        (build, probe),
        &mut workers,
        &mut report,
    )?;
    for worker in &mut workers {
        worker.out.finish()?;
        report.pairs += worker.out.pair_total();
    }
    for worker in &workers {
        report.phases.add_share(&worker.phases, report.workers);
    }
    report.total = start.elapsed();
    Ok(report)
}

/// Runs an algorithm; if there is no room for it, the one that needs the least; if there is none for that
/// either, by way of the disk. What fails for want of room has told nothing yet.
fn run_within_budget<C: Consumer>(
    run: &Run<'_>,
    options: &Options<'_>,
    algorithm: Algorithm,
    sources: (&dyn Source, &dyn Source),
    workers: &mut [Worker<'_, C>],
    report: &mut Report,
) -> Result<(), JoinError> {
    for algorithm in [algorithm, Algorithm::Unpartitioned] {
        match in_memory(run, options, algorithm, sources, workers, report) {
            Err(error) if error.is_of_room() && !workers.iter().any(|worker| worker.out.has_begun()) => {
                match (algorithm, &options.spill) {
                    (Algorithm::Unpartitioned, None) => return Err(error),
                    (Algorithm::Unpartitioned, Some(_)) => break,
                    _ => {}
                }
            }
            other => return other,
        }
    }
    let Some(spill) = &options.spill else {
        return Ok(());
    };
    report.tuple_bytes = size_of::<Tuple>();
    let sides = (&Raw::new(sources.0), &Raw::new(sources.1));
    spill::join(run, spill, sides, workers, report)
}

fn in_memory<C: Consumer>(
    run: &Run<'_>,
    options: &Options<'_>,
    algorithm: Algorithm,
    sources: (&dyn Source, &dyn Source),
    workers: &mut [Worker<'_, C>],
    report: &mut Report,
) -> Result<(), JoinError> {
    let (build, probe) = (Raw::new(sources.0), Raw::new(sources.1));
    report.algorithm = algorithm;
    let start = Instant::now();
    let build_ranges = bounds(run, options, sources.0, workers.len())?;
    let probe_ranges = match algorithm {
        // Only rows of the build side are stored.
        Algorithm::Unpartitioned => build_ranges,
        _ => bounds(run, options, sources.1, workers.len())?,
    };
    report.phases.bounds = start.elapsed();
    let both = build_ranges
        .zip(probe_ranges)
        .filter(|(build, _)| !build.is_empty());
    if algorithm == Algorithm::Unpartitioned {
        let narrow = both.and_then(|(build, _)| Narrow::new(build.keys, build.rows, 0, Order::Mixed));
        return match narrow {
            Some(form) => {
                report.tuple_bytes = 8;
                unpartitioned::join(run, (form, 0), &build, &probe, Some(&run.budget), workers)
            }
            None => {
                report.tuple_bytes = 16;
                let form = Wide::new(Order::Mixed);
                unpartitioned::join(run, (form, 0), &build, &probe, Some(&run.budget), workers)
            }
        };
    }
    if algorithm == Algorithm::SortMerge {
        let narrow = both.and_then(|(build, probe)| Narrow::of(&build, probe.rows, 0, Order::Kept));
        report.tuple_bytes = if narrow.is_some() { 8 } else { 16 };
        let told = match narrow {
            Some(form) => sort::join(run, form, (build, probe), workers)?,
            None => sort::join(run, Wide::new(Order::Kept), (build, probe), workers)?,
        };
        (report.partitions, report.runs, report.shared) = (told.parts, told.runs, told.shared);
        return Ok(());
    }
    let radix_of = |key_bits| Radix {
        skip: 0,
        bits: radix::first_bits(&run.tuning, build.len(), key_bits, workers.len()),
    };
    let narrow = both.and_then(|(build, probe)| {
        let bits = radix_of(crate::form::bits(build.keys.1 - build.keys.0).max(1)).bits;
        Narrow::of(&build, probe.rows, bits, Order::Mixed)
    });
    report.shared = match narrow {
        Some(form) => {
            report.tuple_bytes = 8;
            let radix = radix_of(form.key_bits());
            report.partitions = radix.parts();
            radix::join(run, form, radix, (build, probe), workers)?
        }
        None => {
            report.tuple_bytes = 16;
            let radix = radix_of(u64::BITS);
            report.partitions = radix.parts();
            radix::join(run, Wide::new(Order::Mixed), radix, (build, probe), workers)?
        }
    };
    Ok(())
}

/// The bounds of a side: those it tells, or those it is found to have.
fn bounds(
    run: &Run<'_>,
    options: &Options<'_>,
    source: &dyn Source,
    workers: usize,
) -> Result<Option<Ranges>, JoinError> {
    match options.compression {
        Compression::Never => return Ok(None),
        Compression::WhereKnown => return Ok(source.ranges()),
        Compression::Always => {}
    }
    if let Some(ranges) = source.ranges() {
        return Ok(Some(ranges));
    }
    let feed = Raw::new(source);
    let claims = Claims::new(feed.morsels());
    let mut found = vec![Ranges::EMPTY; workers];
    run.control.phase(&mut found, |_, ranges| {
        let mut space = Vec::new();
        while let Some(morsel) = claims.claim() {
            run.control.check()?;
            ranges.include(feed.read(morsel, &mut space)?);
        }
        Ok(())
    })?;
    let mut all = Ranges::EMPTY;
    found.iter().for_each(|ranges| all.unite(ranges));
    Ok(Some(all))
}
