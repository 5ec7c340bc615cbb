//! Joins over ranks: each rank has a part of both sides, and finds a part of the pairs.
//!
//! ```text
//! rank 0  its tuples --+--> [ its window ] --> joined here --> its consumer
//!                       \ /
//!                        X   put and flush, while the next tuples are partitioned or sorted
//!                       / \
//! rank 1  its tuples --+--> [ its window ] --> joined here --> its consumer
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | `options` | options, phases, what a rank tells |
//! | `agree` | what ranks tell each other beside tuples |
//! | `assign` | who gets which partition, and where in its window |
//! | `outbox` | buffers, puts and flushes, schedules |
//! | `stage` | what both joins have in common |
//! | `hash`, `sorted` | the radix hash join, the sort-merge join |
//! | `model`, [`measure`] | the document's equations; a join and its model measured |
//! | [`simulate`] | how long a join would take on thousands of ranks |
//! | `error` | what can go wrong |
//!
//! A join is collective: every rank calls it, with its own tuples and the same options. Its steps:
//!
//! 1. Survey: sizes and bounds of all ranks, and whether options are the same.
//! 2. Histogram, summed over ranks; from it the plan, which all make alike; whether windows are large enough.
//! 3. Each rank reserves its memory. Status: all go on, or none; nothing was sent so far.
//! 4. Exchange. Each rank writes into stretches of windows that are its own alone.
//! 5. Flush and status: what arrived is whole.
//! 6. Local: partition, build and probe, or merge and match, with the algorithms of one machine.
//!
//! Several joins at once ([`Exchange::join_all`]) share windows, survey and statuses, and take turns in step
//! 4, a morsel or a run each (7.1: concurrent data processing).
//!
//! # Invariants
//!
//! 1. Nobody puts into a window that its owner still reads: a put comes after a collective of its own join,
//!    in which the owner takes part when it has done with the join before.
//! 2. A rank that fails by itself takes part in all collectives up to the next status. The others hear of it
//!    there; a rank that dies or is late is found, and named, by the fabric.
//!
//! One thread a rank, as in the document's chapter 4. A rank that waits for the others does so until its
//! fabric timeout ([`Rank::set_timeout`]): that bounds by how much ranks may differ in the time of one phase.
//!
//! Source: Barthels 3.2, 3.4.1 (compression on the wire, assignment), 3.6 (splitters, sharing of heavy
//! partitions, which the document leaves open), 4.2 and 4.5 (MPI, schedules).

mod agree;
mod assign;
mod error;
mod hash;
pub mod measure;
mod model;
mod options;
mod outbox;
pub mod simulate;
mod sorted;
mod stage;

use std::sync::Arc;
use std::time::Instant;

use weft_fabric::{Rank, Window, WindowSpec};

pub use error::{RankJoinError, Reason};
pub use model::{Prediction, RankRates, RankShape};
pub use options::{Assignment, Network, RankOptions, RankPhases, RankReport, Schedule};

use crate::error::JoinError;
use crate::feed::{Feed, Raw};
use crate::form::{self, Narrow, Order, Wide};
use crate::hash::radix;
use crate::options::Algorithm;
use crate::output::Output;
use crate::partition::Radix;
use crate::processor::Processor;
use crate::run::{Run, Worker};
use crate::tuple::{Consumer, Ranges, Source};
use crate::workers::Control;
use agree::{Share, Survey};
use stage::{Ground, Setting, Stage};

/// One join among several: this rank's tuples of both sides, and who gets what this rank finds.
pub struct RankJoin<'a, C> {
    /// The build side should be the smaller one.
    pub build: &'a dyn Source,
    /// The other one.
    pub probe: &'a dyn Source,
    /// How.
    pub options: RankOptions<'a>,
    /// Gets this rank's results.
    pub consumer: &'a mut C,
}

/// Windows for the tuples of joins, made once and used by one join after the other: making them is
/// collective and has the system clear their memory.
pub struct Exchange {
    window: Window,
    is_broken: bool,
}

impl Exchange {
    /// Opens windows. Collective. Each rank says how many bytes it gives: all that it may get of a join, both
    /// sides together, at 16 or 8 bytes a tuple.
    ///
    /// # Errors
    /// The fabric's.
    pub fn open(rank: &Rank, bytes: u64) -> Result<Exchange, RankJoinError> {
        let window = rank.create_window(&WindowSpec {
            name: "tuples of joins",
            bytes,
            is_uniform: false,
            config: 1,
        })?;
        Ok(Exchange {
            window,
            is_broken: false,
        })
    }

    /// Closes the windows. Collective.
    ///
    /// # Errors
    /// The fabric's.
    pub fn close(self) -> Result<(), RankJoinError> {
        Ok(self.window.close()?)
    }

    /// Joins both sides over all ranks. Collective. This rank's consumer gets the pairs that are found here.
    ///
    /// # Errors
    /// See [`RankJoinError`].
    pub fn join<C: Consumer>(
        &mut self,
        build: &dyn Source,
        probe: &dyn Source,
        options: &RankOptions<'_>,
        consumer: &mut C,
    ) -> Result<RankReport, RankJoinError> {
        let one = RankJoin {
            build,
            probe,
            options: options.clone(),
            consumer,
        };
        let reports = self.join_all(vec![one])?;
        Ok(reports.into_iter().next().unwrap_or_default())
    }

    /// Several joins at once, the same number in the same order on all ranks. Their tuples share the windows
    /// and take turns on the fabric; if one fails, all do.
    ///
    /// # Errors
    /// See [`RankJoinError`].
    pub fn join_all<C: Consumer>(
        &mut self,
        joins: Vec<RankJoin<'_, C>>,
    ) -> Result<Vec<RankReport>, RankJoinError> {
        if self.is_broken {
            return Err(RankJoinError::Misuse {
                what: "a join failed on this exchange, and ranks may be at different places",
            });
        }
        let done = self.run_all(joins);
        if matches!(done, Err(RankJoinError::Fabric(_))) {
            self.is_broken = true;
        }
        done
    }

    fn run_all<C: Consumer>(&self, joins: Vec<RankJoin<'_, C>>) -> Result<Vec<RankReport>, RankJoinError> {
        let start = Instant::now();
        let rank = self.window.rank().clone();
        // A rank with options that make no sense takes part in the survey, so that the others hear of it.
        let misuse = check_options(&joins).err();
        let mut setting = Setting {
            window_ends: vec![0; rank.count() as usize],
            window: &self.window,
            rank,
        };
        let mut own = Ok(());
        let shares: Vec<Share> = joins.iter().map(|join| share_of(join, &mut own)).collect();
        let told = joins.iter().map(|join| &join.options).zip(shares);
        let told: Vec<_> = told.filter(|_| misuse.is_none()).collect();
        let surveys = match (agree::survey(&setting.rank, &told), misuse) {
            (Ok(_) | Err(RankJoinError::Disagreement { .. }), Some(misuse)) => return Err(misuse),
            (surveys, _) => surveys?,
        };
        let agreed = start.elapsed();
        let mut stages: Vec<Box<dyn Stage + '_>> = Vec::with_capacity(joins.len());
        for (join, survey) in joins.into_iter().zip(&surveys) {
            match prepare(&mut setting, join, survey)? {
                Ok(stage) => stages.push(stage),
                Err(error) => own = own.and(Err(error)),
            }
        }
        agree::status(&setting.rank, own)?;
        send_all(&mut stages)?;
        let mut own = Ok(());
        for stage in &mut stages {
            own = own.and(stage.sent()?);
        }
        self.window.flush_all()?;
        let flushed = Instant::now();
        agree::status(&setting.rank, own)?;
        let waited = flushed.elapsed();
        // SAFETY: every rank has flushed its puts before it took part in the status, and the next puts come
        // after a collective of another join, in which this rank takes part when the slice is gone.
        let bytes = unsafe { self.window.local_bytes() };
        let mut reports = Vec::with_capacity(stages.len());
        for mut stage in stages {
            let mut report = stage.complete(setting.rank.number(), bytes)?;
            report.phases.agree += agreed;
            report.phases.wait = waited;
            reports.push(report);
        }
        for report in &mut reports {
            report.total = start.elapsed();
        }
        Ok(reports)
    }
}

fn check_options<C>(joins: &[RankJoin<'_, C>]) -> Result<(), RankJoinError> {
    let misuse = |what| Err(RankJoinError::Misuse { what });
    if joins.is_empty() || joins.len() > agree::JOINS_MAX {
        return misuse("between 1 and 46 joins can be run at once");
    }
    for join in joins {
        let network = &join.options.network;
        if join.options.algorithm == Algorithm::Unpartitioned {
            return misuse("a join over ranks needs partitions");
        }
        if network.buffers < 2 || network.buffer_bytes == 0 {
            return misuse("an exchange needs two buffers a partition at least, of some bytes");
        }
    }
    Ok(())
}

/// Sends everything, the joins by turns.
fn send_all(stages: &mut [Box<dyn Stage + '_>]) -> Result<(), RankJoinError> {
    let mut has_more = vec![true; stages.len()];
    while has_more.contains(&true) {
        for (stage, has_more) in stages.iter_mut().zip(&mut has_more) {
            if *has_more {
                *has_more = stage.step()?;
            }
        }
    }
    Ok(())
}

/// What this rank tells of a join. If its bounds cannot be found, it tells none, and keeps the error.
fn share_of<C>(join: &RankJoin<'_, C>, own: &mut Result<(), JoinError>) -> Share {
    let ranges = |side: &dyn Source| {
        let find = || {
            let feed = Raw::new(side);
            let mut found = Ranges::EMPTY;
            let mut space = Vec::new();
            for morsel in 0..feed.morsels() {
                if join.options.interrupt.is_some_and(|interrupt| interrupt()) {
                    return Err(JoinError::Interrupted);
                }
                found.include(feed.read(morsel, &mut space)?);
            }
            Ok(found)
        };
        agree::own_ranges(join.options.compression, side.len(), side.ranges(), find)
    };
    let mut kept = |found: Result<Option<Ranges>, JoinError>| match found {
        Ok(ranges) => ranges,
        Err(error) => {
            if own.is_ok() {
                *own = Err(error);
            }
            None
        }
    };
    Share {
        tuples: [join.build.len() as u64, join.probe.len() as u64],
        ranges: [kept(ranges(join.build)), kept(ranges(join.probe))],
    }
}

/// Chooses the form, which all ranks do alike, and prepares the join.
fn prepare<'a, C: Consumer + 'a>(
    setting: &mut Setting<'a>,
    join: RankJoin<'a, C>,
    survey: &Survey,
) -> Result<Result<Box<dyn Stage + 'a>, JoinError>, RankJoinError> {
    let options = join.options;
    let algorithm = match options.algorithm {
        Algorithm::SortMerge => Algorithm::SortMerge,
        _ => Algorithm::Radix,
    };
    let ground = Ground {
        run: Run {
            control: Control::new(options.interrupt),
            emit: options.emit,
            budget: Arc::clone(&options.budget),
            processor: Processor::best(),
            tuning: options.tuning,
        },
        worker: Worker {
            out: Output::new(join.consumer, options.emit),
            phases: Default::default(),
        },
        sides: [Raw::new(join.build), Raw::new(join.probe)],
        network: options.network,
        tuples_max: survey.tuples_max,
        plan: Default::default(),
        report: RankReport {
            algorithm,
            ..RankReport::default()
        },
        failed: None,
    };
    let bounds = match survey.ranges {
        [Some(build), Some(probe)] if !build.is_empty() => Some((build, probe.rows)),
        _ => None,
    };
    // The rows of an empty probe side are no bounds.
    let bounds = bounds.map(|(build, rows)| (build, if rows.0 > rows.1 { build.rows } else { rows }));
    if algorithm == Algorithm::SortMerge {
        let narrow = bounds.and_then(|(build, rows)| Narrow::of(&build, rows, 0, Order::Kept));
        return match narrow {
            Some(form) => sorted::prepare(setting, ground, form, survey),
            None => sorted::prepare(setting, ground, Wide::new(Order::Kept), survey),
        };
    }
    let ranks = setting.rank.count();
    let radix = |key_bits| Radix {
        skip: 0,
        bits: network_bits(
            &ground.network,
            &ground.run.tuning,
            survey.tuples[0],
            key_bits,
            ranks,
        ),
    };
    let narrow = bounds.and_then(|(build, rows)| {
        let key_bits = form::bits(build.keys.1 - build.keys.0).max(1);
        let radix = radix(key_bits);
        Some((Narrow::of(&build, rows, radix.bits, Order::Mixed)?, radix))
    });
    let wide_radix = radix(u64::BITS);
    match narrow {
        Some((form, radix)) => hash::prepare(setting, ground, form, radix),
        None => hash::prepare(setting, ground, Wide::new(Order::Mixed), wide_radix),
    }
}

/// Bits of the network pass: as many as make tables fit into the cache, within what the options say.
fn network_bits(
    network: &Network,
    tuning: &crate::options::Tuning,
    build_tuples: u64,
    key_bits: u32,
    ranks: u32,
) -> u32 {
    let build = usize::try_from(build_tuples).unwrap_or(usize::MAX);
    let wanted = radix::first_bits(tuning, build, key_bits, ranks as usize);
    // Four partitions a rank, so that an assignment can balance them.
    let at_least = form::bits(4 * u64::from(ranks) - 1);
    wanted.min(network.bits_max.max(at_least)).min(key_bits).max(1)
}
