//! Joins larger than their budget: they spill and give the same answer, or fail with an error that says why;
//! and whatever happens, nothing stays on the disk or in the budget.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod reference;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use reference::{Results, expected};
use weft_base::{Budget, Disk, FaultKind, Prng, SimDisk};
use weft_join::{Algorithm, Compression, Emit, JoinError, Options, Report, Spill, Tuning, Tuple, join};

const DIR: &str = "spill";

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

fn spill(disk: &SimDisk) -> Option<Spill> {
    Some(Spill {
        disk: Arc::new(disk.clone()),
        dir: PathBuf::from(DIR),
    })
}

fn options(disk: &SimDisk, budget_bytes: usize, emit: Emit) -> Options<'static> {
    Options {
        emit,
        budget: Budget::new(budget_bytes),
        spill: spill(disk),
        tuning: Tuning {
            worker_tuples_min: 1,
            ..Tuning::default()
        },
        ..Options::default()
    }
}

/// Joins; afterwards nothing is held and no file is left, whatever the outcome.
fn run(
    disk: &SimDisk,
    options: &Options<'_>,
    (build, probe): (&Vec<Tuple>, &Vec<Tuple>),
    workers: usize,
) -> Result<(Results, Report), JoinError> {
    let mut results = vec![Results::default(); workers];
    let outcome = join(build, probe, options, &mut results);
    assert_eq!(options.budget.held(), 0);
    disk.fail_reads(false);
    assert_eq!(disk.list(Path::new(DIR)).unwrap(), [""; 0], "{outcome:?}");
    outcome.map(|report| (Results::of(results), report))
}

fn tuples(keys: impl Iterator<Item = u64>, first_row: u64) -> Vec<Tuple> {
    (first_row..)
        .zip(keys)
        .map(|(row, key)| Tuple { key, row })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_budget_gives_the_answer_or_an_error(
        seed in any::<u64>(), counts in (0_usize..12_000, 0_usize..12_000), kinds in 1_u64..4000,
        budget_bytes in prop_oneof![Just(0_usize), 1_000_usize..100_000, 30_000_usize..600_000],
        flags in any::<[bool; 5]>(), workers in 1_usize..5, hot in 0_u64..4,
    ) {
        let mut prng = Prng::new(seed);
        let mut draw = |count| -> Vec<u64> {
            (0..count)
                .map(|_| match prng.chance(hot, 8) && count < 4000 {
                    true => 3,
                    false => Prng::new(prng.below(kinds)).next_u64(),
                })
                .collect()
        };
        let build = tuples(draw(counts.0).into_iter(), 0);
        let probe = tuples(draw(counts.1).into_iter(), 1 << 50);
        let emit = Emit {
            pairs: flags[0], probe_matched: flags[1], probe_unmatched: flags[2], build_matched: flags[3],
            build_unmatched: flags[4],
        };
        let expected = expected(&build, &probe, emit);
        prop_assume!(expected.pairs.len() < 400_000);
        for algorithm in [Algorithm::Unpartitioned, Algorithm::Radix, Algorithm::SortMerge] {
            let disk = disk(seed);
            let options = Options { algorithm, ..options(&disk, budget_bytes, emit) };
            match run(&disk, &options, (&build, &probe), workers) {
                Ok((results, _)) => prop_assert!(results == expected, "{:?}", algorithm),
                // Not even two blocks of the smallest kind.
                Err(error) => prop_assert!(budget_bytes < 20_000, "{}", error),
            }
        }
    }
}

#[test]
fn several_levels_and_a_key_larger_than_the_budget() {
    // Keys that are close to each other even when mixed would need many levels without the skipping of bits.
    let many = tuples((0..60_000_u64).map(|key| key << 44), 0);
    let one = tuples((0..30_000).map(|at| if at % 3 == 0 { at } else { u64::MAX }), 7);
    let probes = tuples(
        (0..9000_u64).map(|key| if key % 1000 == 0 { u64::MAX } else { key << 44 }),
        1 << 40,
    );
    for (build, at_least_respilled) in [(&many, 1), (&one, 1)] {
        for emit in [Emit::INNER, Emit::FULL_OUTER] {
            let disk = disk(1);
            let options = options(&disk, 20_000, emit);
            for workers in [1, 3] {
                let (results, report) = run(&disk, &options, (build, &probes), workers).unwrap();
                assert!(results == expected(build, &probes, emit), "{emit:?} {workers}");
                assert!(
                    report.respilled >= at_least_respilled && report.spilled_bytes > 0,
                    "{report:?}"
                );
            }
        }
    }
}

#[test]
fn without_a_disk_a_small_budget_is_an_error_that_says_so() {
    let build = tuples(0..50_000, 0);
    for algorithm in [Algorithm::Unpartitioned, Algorithm::Radix, Algorithm::SortMerge] {
        for compression in [Compression::Never, Compression::Always] {
            let disk = disk(1);
            let options = Options {
                algorithm,
                compression,
                spill: None,
                ..options(&disk, 100_000, Emit::INNER)
            };
            let error = run(&disk, &options, (&build, &build), 2).unwrap_err();
            assert!(
                matches!(
                    error,
                    JoinError::Budget {
                        bytes_max: 100_000,
                        ..
                    }
                ),
                "{error}"
            );
            assert!(error.to_string().contains("100000"), "{error}");
        }
    }
}

#[test]
fn a_partitioned_join_without_room_is_run_with_one_table() {
    let build = tuples(0..1000, 0);
    let probe = tuples((0..200_000).map(|at| at % 2000), 0);
    let disk = disk(1);
    let options = Options {
        algorithm: Algorithm::Radix,
        spill: None,
        ..options(&disk, 200_000, Emit::INNER)
    };
    let (results, report) = run(&disk, &options, (&build, &probe), 2).unwrap();
    assert_eq!(report.algorithm, Algorithm::Unpartitioned);
    assert!(results == expected(&build, &probe, Emit::INNER));
}

#[test]
fn a_disk_that_fails_at_any_write_is_an_error_with_the_file() {
    let build = tuples(0..30_000, 0);
    let mut failures = 0;
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        for step in (1..80).chain([100, 200, 400]) {
            let disk = disk(step);
            let options = options(&disk, 100_000, Emit::FULL_OUTER);
            disk.fail_after(disk.op_count() + step, kind);
            match run(&disk, &options, (&build, &build), 1 + step as usize % 2) {
                Ok((results, _)) => assert_eq!(results.pairs.len(), 30_000),
                Err(error) => {
                    failures += 1;
                    assert!(matches!(error, JoinError::Io { .. }), "{error}");
                    assert!(error.to_string().contains("spill/join-"), "{error}");
                }
            }
        }
    }
    assert!(failures > 50, "{failures}");
}

#[test]
fn a_full_disk_failing_reads_and_an_absent_directory_are_errors() {
    let build = tuples(0..30_000, 0);
    let disk = disk(1);
    disk.set_capacity(Some(300_000));
    let small = options(&disk, 100_000, Emit::INNER);
    let error = run(&disk, &small, (&build, &build), 2).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot write spilled tuples, file spill/join-"),
        "{error}"
    );
    disk.set_capacity(None);
    disk.fail_reads(true);
    let error = run(&disk, &small, (&build, &build), 2).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot read spilled tuples, file spill/join-"),
        "{error}"
    );
    let absent = Options {
        spill: Some(Spill {
            disk: Arc::new(disk.clone()),
            dir: PathBuf::from("absent"),
        }),
        ..small.clone()
    };
    let outcome = run(&disk, &absent, (&build, &build), 2);
    assert!(
        matches!(outcome, Err(JoinError::Io { .. })) || outcome.is_ok(),
        "{outcome:?}"
    );
    // What a killed process left does not stand in the way.
    let (results, _) = run(&disk, &small, (&build, &build), 2).unwrap();
    assert_eq!(results.pairs.len(), 30_000);
}
