//! Every form of the join gives the answer of a map, whatever the keys are and however many workers there
//! are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod reference;

use std::sync::Arc;

use proptest::prelude::*;
use reference::{Results, expected};
use weft_base::{Budget, Prng};
use weft_join::{
    Algorithm, Compression, Emit, HashTable, JoinError, Options, Ranges, Source, TableWriter, Tuning, Tuple,
    join,
};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Unpartitioned, Algorithm::Radix, Algorithm::SortMerge];
const COMPRESSIONS: [Compression; 3] = [Compression::WhereKnown, Compression::Always, Compression::Never];

/// Small partitions and runs, so that few tuples meet every path.
fn small() -> Tuning {
    Tuning {
        partition_tuples: 16,
        pass_bits_max: 4,
        run_tuples: 64,
        shared_tuples_min: 200,
        worker_tuples_min: 1,
        ..Tuning::default()
    }
}

fn emits() -> impl Strategy<Value = Emit> {
    let any = any::<[bool; 5]>().prop_map(|flags| Emit {
        pairs: flags[0],
        probe_matched: flags[1],
        probe_unmatched: flags[2],
        build_matched: flags[3],
        build_unmatched: flags[4],
    });
    let named = [
        Emit::INNER,
        Emit::PROBE_OUTER,
        Emit::BUILD_OUTER,
        Emit::FULL_OUTER,
        Emit::PROBE_SEMI,
        Emit::PROBE_ANTI,
    ];
    prop_oneof![Just(Emit::INNER), proptest::sample::select(named.to_vec()), any]
}

/// Where keys come from.
#[derive(Clone, Debug)]
enum Keys {
    /// Numbers below this.
    Below(u64),
    /// This one, as often as not; else numbers below the other.
    Skewed(u64, u64),
    /// Any number, but from a small set.
    Any(u64),
    /// The ends of the range, and what is near to them.
    Extreme,
    /// Multiples of a large power of two.
    High(u32),
}

impl Keys {
    fn draw(&self, prng: &mut Prng) -> u64 {
        match self {
            Keys::Below(end) => prng.below(*end),
            Keys::Skewed(hot, end) => match prng.chance(1, 2) {
                true => *hot,
                false => prng.below(*end),
            },
            Keys::Any(kinds) => Prng::new(prng.below(*kinds)).next_u64(),
            Keys::Extreme => [0, 1, 2, u64::MAX - 1, u64::MAX, 1 << 63][prng.below(6) as usize],
            Keys::High(shift) => prng.below(64) << shift,
        }
    }
}

fn keys() -> impl Strategy<Value = Keys> {
    prop_oneof![
        (1_u64..3000).prop_map(Keys::Below),
        (any::<u64>(), 1_u64..3000).prop_map(|(hot, end)| Keys::Skewed(hot, end)),
        (0_u64..100, 100_u64..3000).prop_map(|(hot, end)| Keys::Skewed(hot, end)),
        (1_u64..2000).prop_map(Keys::Any),
        Just(Keys::Extreme),
        (1_u32..64).prop_map(Keys::High),
    ]
}

fn tuples(keys: &Keys, count: usize, rows: u64, prng: &mut Prng) -> Vec<Tuple> {
    let tuple = |at| Tuple {
        key: keys.draw(prng),
        row: rows.wrapping_add(at),
    };
    (0..count as u64).map(tuple).collect()
}

/// A source that makes its tuples when they are read, and may know its bounds.
struct Made {
    tuples: Vec<Tuple>,
    ranges: Option<Ranges>,
}

impl Source for Made {
    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn read<'a>(&'a self, first: usize, count: usize, space: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        space.clear();
        space.extend_from_slice(&self.tuples[first..first + count]);
        space
    }

    fn ranges(&self) -> Option<Ranges> {
        self.ranges
    }
}

fn bounds(tuples: &[Tuple]) -> Option<Ranges> {
    let least = |of: fn(&Tuple) -> u64| tuples.iter().map(of).min();
    let most = |of: fn(&Tuple) -> u64| tuples.iter().map(of).max();
    Some(Ranges {
        keys: (least(|tuple| tuple.key)?, most(|tuple| tuple.key)?),
        rows: (least(|tuple| tuple.row)?, most(|tuple| tuple.row)?),
    })
}

fn answer(build: &dyn Source, probe: &dyn Source, options: &Options<'_>, workers: usize) -> Results {
    let mut results = vec![Results::default(); workers];
    let report = join(build, probe, options, &mut results).expect("a join");
    let results = Results::of(results);
    assert_eq!(report.pairs, results.pairs.len() as u64);
    assert_eq!(options.budget.held(), 0, "everything is given back");
    results
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

    #[test]
    fn every_form_gives_the_answer_of_a_map(
        keys in keys(), counts in (0_usize..3000, 0_usize..3000), seed in any::<u64>(), emit in emits(),
        rows in prop_oneof![Just(0_u64), any::<u64>()], knows in any::<[bool; 2]>(),
    ) {
        let mut prng = Prng::new(seed);
        let build = tuples(&keys, counts.0, rows, &mut prng);
        let probe = tuples(&keys, counts.1, rows.wrapping_add(7), &mut prng);
        let expected = expected(&build, &probe, emit);
        prop_assume!(expected.pairs.len() < 100_000);
        let made = |tuples: &Vec<Tuple>, knows: bool| Made {
            ranges: bounds(tuples).filter(|_| knows),
            tuples: tuples.clone(),
        };
        let sources = (made(&build, knows[0]), made(&probe, knows[1]));
        for algorithm in ALGORITHMS {
            for compression in COMPRESSIONS {
                let workers = 1 + prng.below(4) as usize;
                let options = Options { algorithm, compression, emit, tuning: small(), ..Options::default() };
                let found = answer(&sources.0, &sources.1, &options, workers);
                prop_assert!(found == expected, "{:?} {:?} {} workers", algorithm, compression, workers);
            }
        }
    }
}

/// Sizes at which the default tuning partitions, shares and merges.
#[test]
#[cfg_attr(miri, ignore)]
fn large_joins_with_the_default_tuning() {
    let mut prng = Prng::new(5);
    let unique: Vec<Tuple> = (0..60_000).map(|key| Tuple { key, row: !key }).collect();
    let cases = [
        ("uniform", Keys::Below(60_000)),
        ("skewed", Keys::Skewed(77, 60_000)),
        ("out of range", Keys::Below(80_000)),
    ];
    for (name, keys) in cases {
        let probe = tuples(&keys, 130_000, 1 << 40, &mut prng);
        let expected = expected(&unique, &probe, Emit::FULL_OUTER);
        for algorithm in ALGORITHMS {
            for compression in COMPRESSIONS {
                for workers in 1..=5 {
                    let options = Options {
                        algorithm,
                        compression,
                        emit: Emit::FULL_OUTER,
                        ..Options::default()
                    };
                    let found = answer(&unique, &probe, &options, workers);
                    assert!(
                        found == expected,
                        "{name} {algorithm:?} {compression:?} {workers}"
                    );
                }
            }
        }
    }
}

/// A build side of one key alone ends in time that grows with the results.
#[test]
#[cfg_attr(miri, ignore)]
fn one_key_on_the_build_side() {
    for key in [0, 1, u64::MAX] {
        let build: Vec<Tuple> = (0..80_000).map(|row| Tuple { key, row }).collect();
        let mut probe: Vec<Tuple> = (0..60_000).map(|row| Tuple { key: row + 2, row }).collect();
        probe.push(Tuple { key, row: 9 });
        let expected = expected(&build, &probe, Emit::INNER);
        assert!(expected.pairs.len() >= 80_000);
        for algorithm in ALGORITHMS {
            for compression in COMPRESSIONS {
                let options = Options {
                    algorithm,
                    compression,
                    ..Options::default()
                };
                assert!(
                    answer(&build, &probe, &options, 2) == expected,
                    "{algorithm:?} {compression:?}"
                );
            }
        }
    }
}

#[test]
fn sources_that_change_or_lie_are_errors() {
    struct Short;
    impl Source for Short {
        fn len(&self) -> usize {
            100
        }
        fn read<'a>(&'a self, _: usize, _: usize, space: &'a mut Vec<Tuple>) -> &'a [Tuple] {
            space.clear();
            space
        }
    }
    /// Gives other keys at every reading.
    struct Restless(parking_lot::Mutex<Prng>);
    impl Source for Restless {
        fn len(&self) -> usize {
            3000
        }
        fn read<'a>(&'a self, _: usize, count: usize, space: &'a mut Vec<Tuple>) -> &'a [Tuple] {
            space.clear();
            let mut prng = self.0.lock();
            let key = prng.next_u64();
            space.extend((0..count as u64).map(|row| Tuple { key, row }));
            space
        }
    }
    let sound: Vec<Tuple> = (0..500).map(|key| Tuple { key, row: key }).collect();
    for algorithm in ALGORITHMS {
        for compression in COMPRESSIONS {
            let options = Options {
                algorithm,
                compression,
                tuning: small(),
                ..Options::default()
            };
            let run = |build: &dyn Source, probe: &dyn Source| {
                join(
                    build,
                    probe,
                    &options,
                    &mut [Results::default(), Results::default()],
                )
                .err()
            };
            for error in [run(&Short, &sound), run(&sound, &Short)] {
                let error = error.map(|error| error.to_string());
                assert!(
                    error.is_some_and(|text| text.contains("an input of a join")),
                    "{algorithm:?}"
                );
            }
            for seed in 0..20 {
                // Memory stays whole; whether there is an error depends on what is read twice.
                let restless = Restless(parking_lot::Mutex::new(Prng::new(seed)));
                let _ = run(&restless, &sound);
                let _ = run(&sound, &restless);
                let _ = run(&restless, &restless);
            }
            let lying = Made {
                tuples: sound.clone(),
                ranges: Some(Ranges {
                    keys: (10, 20),
                    rows: (10, 20),
                }),
            };
            if compression != Compression::Never {
                assert!(run(&lying, &lying).is_some(), "{algorithm:?} {compression:?}");
            }
        }
    }
}

#[test]
fn no_consumer_an_interrupt_and_a_consumer_that_has_enough() {
    let tuples: Vec<Tuple> = (0..5000).map(|row| Tuple { key: row % 10, row }).collect();
    let none: &mut [Results] = &mut [];
    let error = join(&tuples, &tuples, &Options::default(), none).err().unwrap();
    assert_eq!(error.to_string(), "a join without a consumer");
    for algorithm in ALGORITHMS {
        let interrupt = || true;
        let budget = Budget::new(1 << 30);
        let options = Options {
            algorithm,
            interrupt: Some(&interrupt),
            budget: Arc::clone(&budget),
            ..Options::default()
        };
        let error = join(&tuples, &tuples, &options, &mut [Results::default()])
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "the join was interrupted");
        struct Enough;
        impl weft_join::Consumer for Enough {
            fn take(&mut self, _: weft_join::Chunk<'_>) -> std::ops::ControlFlow<()> {
                std::ops::ControlFlow::Break(())
            }
        }
        let options = Options {
            interrupt: None,
            tuning: small(),
            ..options
        };
        let error = join(&tuples, &tuples, &options, &mut [Enough, Enough, Enough])
            .err()
            .unwrap();
        assert_eq!(error.to_string(), "a consumer ended the join");
        assert_eq!(budget.held(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 100 }))]

    /// A table that several threads fill at once and that is probed in pieces gives every pair, in the order
    /// of the probe tuples, in whichever form.
    #[test]
    fn a_table_filled_and_probed_in_pieces_gives_all_pairs_in_order(
        keys in keys(), seed in any::<u64>(), build in 0_usize..1500, probe in 0_usize..1000,
        writers in 1_usize..5, piece in 1_usize..300, is_bounded in any::<bool>(),
    ) {
        let mut prng = Prng::new(seed);
        let build = tuples(&keys, build, 0, &mut prng);
        let probe = tuples(&keys, probe, 7, &mut prng);
        let budget = Budget::new(HashTable::bytes(build.len(), 4 * build.len() + 4096).unwrap());
        let ranges = bounds(&build).filter(|_| is_bounded);
        let filling = TableWriter::all(build.len(), ranges, writers, &budget).unwrap();
        let filled = std::thread::scope(|scope| {
            let fill = |mut writer: TableWriter| {
                build.chunks(piece).for_each(|piece| writer.insert(piece).unwrap());
                writer
            };
            let start = |writer| scope.spawn(move || fill(writer));
            let threads: Vec<_> = filling.into_iter().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let table = HashTable::new(filled).unwrap();
        let (mut pairs, mut matched) = (Results::default(), Results::default());
        for piece in probe.chunks(piece) {
            table.pairs(piece, &mut pairs).unwrap();
            table.matched(piece, &mut matched).unwrap();
        }
        prop_assert!(pairs.pairs.is_sorted_by_key(|pair| pair.probe));
        prop_assert!(matched.probe_matched.is_sorted());
        let all = Emit { probe_matched: true, ..Emit::INNER };
        pairs.probe_matched = matched.probe_matched;
        prop_assert_eq!(Results::of(vec![pairs]), expected(&build, &probe, all));
        drop(table);
        prop_assert_eq!(budget.held(), 0);
    }
}

#[test]
fn a_table_needs_all_of_its_writers_and_tuples_within_its_bounds() {
    let budget = Budget::new(1 << 20);
    let writers = |count| TableWriter::all(100, None, count, &budget).unwrap();
    assert!(matches!(HashTable::new(Vec::new()), Err(JoinError::NoConsumer)));
    assert!(matches!(
        HashTable::new(writers(3).split_off(1)),
        Err(JoinError::Source)
    ));
    let mixed = writers(1).into_iter().chain(writers(1)).collect();
    assert!(matches!(HashTable::new(mixed), Err(JoinError::Source)));
    let ranges = Ranges {
        keys: (10, 20),
        rows: (0, 1),
    };
    for count in [1, 2] {
        let mut bounded = TableWriter::all(100, Some(ranges), count, &budget).unwrap();
        let outside = Tuple { key: 21, row: 0 };
        assert!(
            bounded
                .iter_mut()
                .all(|writer| matches!(writer.insert(&[outside]), Err(JoinError::Source)))
        );
    }
    let too_small = Budget::new(1 << 10);
    assert!(matches!(
        TableWriter::all(1 << 16, None, 2, &too_small),
        Err(JoinError::Budget { .. })
    ));
}
