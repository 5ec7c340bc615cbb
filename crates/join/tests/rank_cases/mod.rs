//! Random joins over ranks: what each rank has, how it is joined, and what must come out.

use weft_base::{Budget, Prng};
use weft_fabric::Rank;
use weft_join::{
    Algorithm, Assignment, Compression, Emit, Exchange, Network, Ranges, RankOptions, Schedule, Source,
    Tuning, Tuple,
};

use crate::reference::{Results, expected};

/// Bytes of every rank's window: more than any case needs.
const WINDOW_BYTES: u64 = 1 << 20;

/// A join to be run by all ranks.
#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub ranks: u32,
    pub algorithm: Algorithm,
    compression: Compression,
    pub emit: Emit,
    tuning: Tuning,
    network: Network,
    tuples: [u64; 2],
    keys: u64,
    /// Bounds are told.
    is_bounded: bool,
    /// One rank has nothing.
    empty: Option<u32>,
}

/// Tuples that perhaps tell their bounds.
pub struct Side {
    pub tuples: Vec<Tuple>,
    is_bounded: bool,
}

impl Source for Side {
    fn len(&self) -> usize {
        self.tuples.len()
    }

    fn read<'a>(&'a self, first: usize, count: usize, _: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        &self.tuples[first..first + count]
    }

    fn ranges(&self) -> Option<Ranges> {
        let bounds = |of: fn(&Tuple) -> u64| {
            let all = || self.tuples.iter().map(of);
            Some((all().min()?, all().max()?))
        };
        let (keys, rows) = (bounds(|tuple| tuple.key)?, bounds(|tuple| tuple.row)?);
        self.is_bounded.then_some(Ranges { keys, rows })
    }
}

impl Case {
    pub fn draw(seed: u64, ranks: u32, tuples_max: u64) -> Case {
        let mut prng = Prng::new(seed);
        let mut pick = |count: u64| prng.below(count) as usize;
        let algorithm = [Algorithm::Radix, Algorithm::SortMerge][pick(2)];
        let compression = [Compression::Always, Compression::WhereKnown, Compression::Never][pick(3)];
        let emit = [
            Emit::INNER,
            Emit::INNER,
            Emit::PROBE_OUTER,
            Emit::BUILD_OUTER,
            Emit::FULL_OUTER,
            Emit::PROBE_SEMI,
            Emit::PROBE_ANTI,
        ][pick(7)];
        let tuning = Tuning {
            partition_tuples: [4, 16, 64][pick(3)],
            pass_bits_max: 4,
            run_tuples: [8, 64][pick(2)],
            ..Tuning::default()
        };
        let network = Network {
            bits_max: [2, 4][pick(2)],
            buffer_bytes: [1, 64, 200][pick(3)],
            buffers: [2, 3][pick(2)],
            schedule: [Schedule::Free, Schedule::Free, Schedule::Rounds { tuples: 100 }][pick(3)],
            assignment: [
                Assignment::Shared,
                Assignment::Shared,
                Assignment::Sized,
                Assignment::RoundRobin,
            ][pick(4)],
        };
        let keys = [1, 3, 50, 1000, u64::MAX][pick(5)];
        let empty = [None, None, Some(pick(u64::from(ranks)) as u32)][pick(3)];
        let is_bounded = pick(2) == 0;
        let side = |prng: &mut Prng| {
            let most = [0, 10, tuples_max, tuples_max][prng.below(4) as usize];
            prng.below(most + 1)
        };
        let tuples = [side(&mut prng), side(&mut prng)];
        Case {
            seed,
            ranks,
            algorithm,
            compression,
            emit,
            tuning,
            network,
            tuples,
            keys,
            is_bounded,
            empty,
        }
    }
}

/// What a rank has of both sides. About a third of the probe side has one key.
pub fn sides_of(case: &Case, rank: u32) -> (Side, Side) {
    let mut prng = Prng::new(case.seed << 8 | u64::from(rank));
    let mut side = |number: usize| {
        let count = match case.empty == Some(rank) {
            true => 0,
            false => prng.below(case.tuples[number] + 1),
        };
        let first = u64::from(rank) * 10_000;
        let tuples = (first..first + count).map(|row| {
            let is_hot = number == 1 && prng.chance(1, 3);
            let key = if is_hot {
                case.keys / 2
            } else {
                prng.below(case.keys)
            };
            Tuple { key, row }
        });
        Side {
            tuples: tuples.collect(),
            is_bounded: case.is_bounded,
        }
    };
    (side(0), side(1))
}

pub fn options_of(case: &Case) -> RankOptions<'static> {
    RankOptions {
        algorithm: case.algorithm,
        compression: case.compression,
        emit: case.emit,
        budget: Budget::new(256 << 20),
        interrupt: None,
        tuning: case.tuning,
        network: case.network,
    }
}

/// Runs the case on this rank, twice, since the second join finds used windows.
pub fn run_case(rank: &Rank, case: &Case) -> Result<Results, String> {
    let (build, probe) = sides_of(case, rank.number());
    let options = options_of(case);
    let mut exchange = Exchange::open(rank, WINDOW_BYTES).map_err(|error| error.to_string())?;
    let mut join = || {
        let mut results = Results::default();
        let report = exchange.join(&build, &probe, &options, &mut results);
        let report = report.map_err(|error| error.to_string())?;
        assert_eq!(report.pairs, results.pairs.len() as u64);
        Ok::<_, String>(Results::of(vec![results]))
    };
    let (first, second) = (join()?, join()?);
    assert_eq!(first, second);
    assert_eq!(options.budget.held(), 0);
    exchange.close().map_err(|error| error.to_string())?;
    Ok(first)
}

/// A number of each kind of results that does not depend on their order.
fn digest(results: &Results) -> Vec<u64> {
    let mix = |one: u64, other: u64| (one.rotate_left(32) ^ other).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7;
    let rows = |rows: &[u64]| rows.iter().fold(0_u64, |sum, row| sum.wrapping_add(mix(1, *row)));
    let pairs = results.pairs.iter().map(|pair| mix(pair.build, pair.probe));
    vec![
        results.pairs.len() as u64,
        pairs.fold(0, u64::wrapping_add),
        rows(&results.probe_matched),
        rows(&results.probe_unmatched),
        rows(&results.build_matched),
        rows(&results.build_unmatched),
    ]
}

/// The same as [`check`] by ranks that are processes: each knows all tuples, and they add up what they found.
pub fn check_together(rank: &Rank, case: &Case) {
    let found = run_case(rank, case).unwrap_or_else(|error| panic!("{error}: {case:?}"));
    let mut sums = digest(&found);
    rank.all_reduce_sum(&mut sums).unwrap();
    let (mut build, mut probe) = (Vec::new(), Vec::new());
    for other in 0..case.ranks {
        let sides = sides_of(case, other);
        build.extend(sides.0.tuples);
        probe.extend(sides.1.tuples);
    }
    assert_eq!(sums, digest(&expected(&build, &probe, case.emit)), "{case:?}");
}
