//! Joins over ranks give the answer of a map on every form of the fabric, whatever the keys are and however
//! many ranks there are; ranks that fail, die or are late are named; nobody hangs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod rank_cases;
mod reference;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rank_cases::{Case, options_of, run_case, sides_of};
use reference::{Results, expected};
use weft_base::Budget;
use weft_fabric::sim::{Kill, Outcome, Planted, Simulation, Stall};
use weft_fabric::{Error as FabricError, Rank, Threads, processes};
use weft_join::{
    Algorithm, Compression, Emit, Exchange, RankJoin, RankJoinError, RankOptions, Reason, Source, Tuple,
};

/// All ranks' results together are those of a map over all ranks' tuples.
fn check(case: &Case, found: Vec<Result<Results, String>>) {
    let (mut build, mut probe) = (Vec::new(), Vec::new());
    for rank in 0..case.ranks {
        let sides = sides_of(case, rank);
        build.extend(sides.0.tuples);
        probe.extend(sides.1.tuples);
    }
    let found: Result<Vec<Results>, String> = found.into_iter().collect();
    let found = found.unwrap_or_else(|error| panic!("{error}: {case:?}"));
    let (found, expected) = (Results::of(found), expected(&build, &probe, case.emit));
    assert!(
        found == expected,
        "{case:?}\nfound {found:?}\nexpected {expected:?}"
    );
}

/// `WEFT_JOIN_SEEDS` for more of them.
fn seeds(usual: u64) -> u64 {
    let more = std::env::var("WEFT_JOIN_SEEDS").ok();
    more.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn threads_join() {
    for seed in 0..seeds(200) {
        let case = Case::draw(seed, 1 + (seed % 4) as u32, 400);
        let found = Threads::run(case.ranks, |rank| run_case(&rank, &case)).unwrap();
        check(&case, found);
    }
}

#[test]
fn the_simulation_joins() {
    for seed in 0..seeds(60) {
        let case = Case::draw(seed, 1 + (seed % 4) as u32, 60);
        let report = Simulation::new(seed, case.ranks).run(|rank| run_case(&rank, &case));
        assert!(!report.is_stopped(), "seed {seed}");
        let found = report
            .outcomes
            .into_iter()
            .flatten()
            .map(|outcome| match outcome {
                Outcome::Ended(found) => found,
                other => panic!("seed {seed}: {other:?}"),
            });
        check(&case, found.collect());
    }
}

/// The planted fault of the fabric must be found by these cases, or they would not find one of ours.
#[test]
fn a_fabric_whose_flush_returns_early_gives_wrong_answers() {
    let caught = (0..20).filter(|seed| {
        let case = Case::draw(*seed, 2, 60);
        let run = || {
            let simulation = Simulation::new(*seed, 2).planted(Planted::FlushReturnsEarly);
            let report = simulation.run(|rank| run_case(&rank, &case));
            let found = report
                .outcomes
                .into_iter()
                .flatten()
                .map(|outcome| match outcome {
                    Outcome::Ended(found) => found,
                    _ => Err("no end".into()),
                });
            check(&case, found.collect());
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    });
    assert!(caught.count() > 0);
}

/// A rank starts as processes do below; without the variables this is no test.
#[test]
#[ignore = "started by other tests"]
fn as_a_process() {
    let Some(rank) = processes::from_environment().unwrap() else {
        return;
    };
    let (first, end) = (0, 24);
    for seed in first..end {
        let case = Case::draw(seed, rank.count(), 2_000);
        rank_cases::check_together(&rank, &case);
    }
}

#[test]
fn processes_join() {
    for ranks in [2, 4] {
        let session = processes::Session::create(Path::new(processes::SHARED_MEMORY), ranks).unwrap();
        let start = |rank| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["as_a_process", "--exact", "--ignored", "--nocapture"])
                .stdout(Stdio::null())
                .stderr(Stdio::inherit());
            session.spawn(rank, &mut command).unwrap()
        };
        let children: Vec<_> = (0..ranks).map(start).collect();
        for (rank, mut child) in children.into_iter().enumerate() {
            assert!(child.wait().unwrap().success(), "rank {rank} of {ranks}");
        }
    }
}

/// Each with its own tuples, options and consumer, and by turns on the fabric.
#[test]
fn several_joins_at_once() {
    for seed in 0..20 {
        let ranks = 1 + (seed % 4) as u32;
        let cases: Vec<Case> = (0..3).map(|at| Case::draw(seed * 3 + at, ranks, 200)).collect();
        let found = Threads::run(ranks, |rank| {
            let mut exchange = Exchange::open(&rank, 1 << 20).unwrap();
            let mut results: Vec<Results> = cases.iter().map(|_| Results::default()).collect();
            let sides: Vec<_> = cases.iter().map(|case| sides_of(case, rank.number())).collect();
            let joins = cases.iter().zip(&sides).zip(&mut results);
            let joins = joins.map(|((case, (build, probe)), consumer)| RankJoin {
                build,
                probe,
                options: options_of(case),
                consumer,
            });
            let reports = exchange.join_all(joins.collect()).unwrap();
            for (report, results) in reports.iter().zip(&results) {
                assert_eq!(report.pairs, results.pairs.len() as u64);
            }
            exchange.close().unwrap();
            results
        });
        let mut found = found.unwrap();
        for (at, case) in cases.iter().enumerate().rev() {
            let of_case = found.iter_mut().map(|results| Ok(results.remove(at)));
            check(case, of_case.collect());
        }
    }
}

fn tuples(count: u64) -> Vec<Tuple> {
    (0..count).map(|row| Tuple { key: row % 97, row }).collect()
}

#[test]
fn a_window_that_is_too_small_is_an_error_on_all_ranks_before_anything_moves() {
    for algorithm in [Algorithm::Radix, Algorithm::SortMerge] {
        let all = Threads::run(3, |rank| {
            let bytes = if rank.number() == 1 { 64 } else { 1 << 20 };
            let mut exchange = Exchange::open(&rank, bytes).unwrap();
            let side = tuples(1000);
            let options = RankOptions {
                algorithm,
                ..RankOptions::default()
            };
            let mut results = Results::default();
            let error = exchange.join(&side, &side, &options, &mut results).unwrap_err();
            let RankJoinError::Window {
                rank: 1,
                bytes_max: 64,
                bytes,
            } = error
            else {
                panic!("{error}")
            };
            assert!(bytes > 64 && results == Results::default());
            // The exchange is as good as before.
            let few = tuples(1);
            exchange.join(&few, &few, &options, &mut results).unwrap();
            exchange.close().unwrap();
            results.pairs.len()
        });
        assert_eq!(all.unwrap().iter().sum::<usize>(), 9);
    }
}

/// Gives other tuples at the second reading.
struct Changing {
    tuples: Vec<Tuple>,
    reads: AtomicUsize,
    calm: usize,
}

impl Source for Changing {
    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn read<'a>(&'a self, first: usize, count: usize, space: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        let round = self.reads.fetch_add(1, Ordering::Relaxed);
        space.clear();
        space.extend(self.tuples.iter().skip(first).take(count));
        if round >= self.calm {
            space
                .iter_mut()
                .for_each(|tuple| tuple.key = (tuple.key + 1).wrapping_mul(2 * round as u64 + 1));
        }
        space
    }
}

#[test]
fn a_rank_that_fails_by_itself_is_named_by_the_others() {
    for algorithm in [Algorithm::Radix, Algorithm::SortMerge] {
        for (what, reason) in [
            ("budget", Reason::Room),
            ("source", Reason::Source),
            ("caller", Reason::Ended),
        ] {
            let all = Threads::run(3, |rank| {
                rank.set_timeout(Duration::from_secs(5));
                let mut exchange = Exchange::open(&rank, 1 << 20).unwrap();
                let fails = rank.number() == 2;
                let interrupt = || what == "caller" && fails;
                let side = tuples(1000);
                let build = Changing {
                    tuples: side.clone(),
                    reads: AtomicUsize::new(0),
                    calm: if fails && what == "source" { 1 } else { usize::MAX },
                };
                let options = RankOptions {
                    algorithm,
                    budget: Budget::new(if fails && what == "budget" {
                        100
                    } else {
                        usize::MAX
                    }),
                    interrupt: Some(&interrupt),
                    ..RankOptions::default()
                };
                let mut results = Results::default();
                let error = exchange.join(&build, &side, &options, &mut results).unwrap_err();
                // All are still together.
                let options = RankOptions::default();
                exchange
                    .join(&side, &side, &options, &mut Results::default())
                    .unwrap();
                exchange.close().unwrap();
                error
            });
            for (rank, error) in all.unwrap().into_iter().enumerate() {
                match error {
                    RankJoinError::Local(error) if rank == 2 => assert!(!error.to_string().is_empty()),
                    RankJoinError::Peer {
                        rank: 2,
                        reason: found,
                    } if rank != 2 => assert_eq!(found, reason),
                    other => panic!("{algorithm:?}, {what}, rank {rank}: {other}"),
                }
            }
        }
    }
}

#[test]
fn other_options_are_a_disagreement_and_senseless_ones_refused() {
    let all = Threads::run(2, |rank| {
        let mut exchange = Exchange::open(&rank, 1 << 16).unwrap();
        let side = tuples(10);
        let mut options = RankOptions {
            compression: [Compression::Never, Compression::Always][rank.number() as usize],
            ..RankOptions::default()
        };
        let error = exchange
            .join(&side, &side, &options, &mut Results::default())
            .unwrap_err();
        assert!(matches!(error, RankJoinError::Disagreement { .. }), "{error}");
        options.compression = Compression::Never;
        if rank.number() == 1 {
            options.network.buffers = 1;
        }
        let error = exchange
            .join(&side, &side, &options, &mut Results::default())
            .unwrap_err();
        match rank.number() {
            0 => assert!(
                matches!(error, RankJoinError::Disagreement { rank: 1 }),
                "{error}"
            ),
            _ => assert!(matches!(error, RankJoinError::Misuse { .. }), "{error}"),
        }
        options.algorithm = Algorithm::Unpartitioned;
        let error = exchange
            .join(&side, &side, &options, &mut Results::default())
            .unwrap_err();
        assert!(matches!(error, RankJoinError::Misuse { .. }), "{error}");
        let error = exchange.join_all::<Results>(Vec::new()).unwrap_err();
        assert!(matches!(error, RankJoinError::Misuse { .. }), "{error}");
        exchange.close().unwrap();
    });
    all.unwrap();
}

/// A rank dies at each of its steps: the others end in time, with its name or the whole answer.
#[test]
fn a_death_at_any_step_is_found_and_named() {
    let mut named = 0;
    for (seed, algorithm) in [(0, Algorithm::Radix), (1, Algorithm::SortMerge)] {
        let mut case = Case::draw(seed, 3, 40);
        case.algorithm = algorithm;
        let code = |rank: Rank| {
            rank.set_timeout(Duration::from_millis(100));
            let (build, probe) = sides_of(&case, rank.number());
            let mut exchange = Exchange::open(&rank, 1 << 20)?;
            rank.step();
            let mut results = Results::default();
            exchange.join(&build, &probe, &options_of(&case), &mut results)?;
            Ok::<_, RankJoinError>(results)
        };
        let whole = Simulation::new(seed, 3).run(code);
        let stride = if seeds(0) > 0 { 1 } else { 5 };
        for at_step in (1..=whole.steps[1]).step_by(stride) {
            let kill = Kill {
                rank: 1,
                at_step,
                returns_after: None,
            };
            let report = Simulation::new(seed, 3).kill(kill).run(code);
            assert!(!report.is_stopped());
            assert!(report.now_ns < 2_000_000_000, "{} ns", report.now_ns);
            for result in report.ended() {
                match result {
                    Ok(_) => {}
                    Err(error) if error.lost_rank() == Some(1) => named += 1,
                    // Who was told first has gone, and the last one misses that one.
                    Err(RankJoinError::Fabric(
                        FabricError::RankDead { .. } | FabricError::Deadline { .. },
                    )) => {}
                    Err(other) => panic!("at {at_step}: {other}"),
                }
            }
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn a_rank_that_is_late_is_named_and_the_exchange_is_over() {
    let case = Case::draw(5, 2, 40);
    let code = |rank: Rank| {
        rank.set_timeout(Duration::from_millis(50));
        let (build, probe) = sides_of(&case, rank.number());
        let mut exchange = Exchange::open(&rank, 1 << 20).unwrap();
        rank.step();
        let mut results = Results::default();
        let error = exchange
            .join(&build, &probe, &options_of(&case), &mut results)
            .err()?;
        let again = exchange.join(&build, &probe, &options_of(&case), &mut results);
        assert!(matches!(again, Err(RankJoinError::Misuse { .. })));
        error.lost_rank()
    };
    for seed in 0..8 {
        let whole = Simulation::new(seed, 2).run(code);
        let begun = whole.first_marks[1].unwrap();
        let stall = Stall {
            rank: 1,
            at_step: begun + (whole.steps[1] - begun) * (seed + 1) / 10,
            lasts: Duration::from_secs(1),
        };
        let report = Simulation::new(seed, 2).stall(stall).run(code);
        let named = report.outcomes[0].first().unwrap();
        assert_eq!(*named, Outcome::Ended(Some(1)), "seed {seed}");
    }
}

#[test]
fn a_heavy_partition_is_shared_between_ranks() {
    let all = Threads::run(4, |rank| {
        let mut exchange = Exchange::open(&rank, 8 << 20).unwrap();
        let first = u64::from(rank.number()) * 10_000;
        let build: Vec<Tuple> = (first..first + 500).map(|row| Tuple { key: row, row }).collect();
        // Half of the probe side has one key.
        let probe = (first..first + 10_000).map(|row| Tuple {
            key: if row % 2 == 0 { 7 } else { row },
            row,
        });
        let probe: Vec<Tuple> = probe.collect();
        let mut results = Results::default();
        let options = RankOptions {
            budget: Arc::clone(&Budget::new(64 << 20)),
            ..RankOptions::default()
        };
        let report = exchange.join(&build, &probe, &options, &mut results).unwrap();
        exchange.close().unwrap();
        ((build, probe), report, results)
    });
    let (mut build, mut probe, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for ((some_build, some_probe), report, results) in all.unwrap() {
        build.extend(some_build);
        probe.extend(some_probe);
        assert!(
            report.shared > 0 && report.pairs > 3_000 && report.pairs < 8_000,
            "{report:?}"
        );
        found.push(results);
    }
    assert_eq!(Results::of(found), expected(&build, &probe, Emit::INNER));
}
