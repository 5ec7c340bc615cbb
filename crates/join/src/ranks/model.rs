//! The models of the joins over ranks (Barthels 3.3, equations 3.1 to 3.20), with one thread a rank, as in
//! the document's chapter 4.
//!
//! With N ranks, R build and S probe tuples of all ranks, and rates in tuples a second and rank:
//!
//! ```text
//! network      bw / (threads a machine = 1)                                3.2
//! network pass the network is the limit if (N - 1) / N P_partition > P_network   3.3
//!              if not: N P_partition                                       3.4
//!              if so:  N / ((1 / N) / P_partition + ((N - 1) / N) / P_network)   3.5, 3.6
//! histogram    (R + S) / (N P_scan)      3.1   sort    (R + S) / P_sort, as the network pass  3.12 - 3.16
//! local passes (d - 1) (R + S) / (N P)   3.7   merge   (d_R R + d_S S) / (N P_merge)          3.17, 3.18
//! build        R / (N P_build)           3.9   match   (R + S) / (N P_match)                  3.19
//! probe        S / (N P_probe)           3.10  total   the sums                               3.11, 3.20
//! ```
//!
//! The models know neither imbalance nor the agreement between ranks: they are lower bounds. Each phase is
//! printed beside its prediction, so that the difference is seen where it arises.

use crate::options::Algorithm;

/// Rates of one rank while all are at work, in tuples a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankRates {
    /// Counting by hash: P_scan of 3.1.
    pub scan: f64,
    /// Network partitioning of tuples that stay: P_partition.
    pub partition: f64,
    /// Tuples that a rank can put into windows of others: P_network.
    pub network: f64,
    /// Partitioning in memory what has arrived.
    pub local_partition: f64,
    /// Filling a table in the cache.
    pub build: f64,
    /// Probing it.
    pub probe: f64,
    /// Counting by range.
    pub range_scan: f64,
    /// Partitioning by range, in memory.
    pub range_partition: f64,
    /// Sorting a run, and copying it to its buffer: P_sort_run.
    pub sort: f64,
    /// Merging runs.
    pub merge: f64,
    /// Matching sorted sides: P_scan of 3.19.
    pub matching: f64,
}

/// A join over ranks to be predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankShape {
    /// Ranks: N.
    pub ranks: u32,
    /// Build tuples of all ranks.
    pub build: f64,
    /// Probe tuples of all ranks.
    pub probe: f64,
    /// Local partitioning passes: d - 1.
    pub local_passes: f64,
    /// Depth of the merge, of either side: d_R and d_S.
    pub merge_depth: f64,
}

/// Predicted seconds by phase, with the names of [`RankPhases`](crate::RankPhases::named).
pub type Prediction = Vec<(&'static str, f64)>;

fn seconds(tuples: f64, rate: f64) -> f64 {
    if rate > 0.0 { tuples / rate } else { 0.0 }
}

impl RankRates {
    /// The rates of one core and its share of a link that table 4.2 states, from a Cray XC30. Its radix and
    /// sort-merge joins name theirs apart; counting by range is part of its partitioning.
    pub const OF_THE_DOCUMENT: RankRates = RankRates {
        scan: 225e6,
        partition: 120e6,
        network: 1560e6,
        local_partition: 120e6,
        build: 210e6,
        probe: 210e6,
        range_scan: f64::INFINITY,
        range_partition: 120e6,
        sort: 45e6,
        merge: 270e6,
        matching: 370e6,
    };

    /// Whether the network is the limit for ranks that make so many tuples a second: 3.3.
    #[must_use]
    pub fn is_network_bound(&self, ranks: u32, rate: f64) -> bool {
        let ranks = f64::from(ranks.max(1));
        (ranks - 1.0) / ranks * rate > self.network
    }

    /// The rate of one rank that makes tuples at a rate and puts those of other ranks: 3.4 and 3.5.
    fn with_network(&self, ranks: u32, rate: f64) -> f64 {
        if !self.is_network_bound(ranks, rate) {
            return rate;
        }
        let ranks = f64::from(ranks.max(1));
        1.0 / (1.0 / ranks / rate + (ranks - 1.0) / ranks / self.network)
    }

    /// The time of each phase.
    #[must_use]
    pub fn predict(&self, shape: &RankShape, algorithm: Algorithm) -> Prediction {
        let ranks = f64::from(shape.ranks.max(1));
        let (build, probe) = (shape.build / ranks, shape.probe / ranks);
        let both = build + probe;
        if algorithm == Algorithm::SortMerge {
            return vec![
                ("histogram", seconds(both, self.range_scan)),
                ("partition", seconds(both, self.range_partition)),
                (
                    "network",
                    seconds(both, self.with_network(shape.ranks, self.sort)),
                ),
                ("merge", shape.merge_depth * seconds(both, self.merge)),
                ("match", seconds(both, self.matching)),
            ];
        }
        vec![
            ("histogram", seconds(both, self.scan)),
            (
                "network",
                seconds(both, self.with_network(shape.ranks, self.partition)),
            ),
            (
                "local partition",
                shape.local_passes * seconds(both, self.local_partition),
            ),
            ("build", seconds(build, self.build)),
            ("probe", seconds(probe, self.probe)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 4.2: 1,024 ranks with 40 million tuples of either side each.
    #[test]
    fn the_documents_own_example_comes_out() {
        let million = 1e6;
        let rates = RankRates::OF_THE_DOCUMENT;
        let shape = RankShape {
            ranks: 1024,
            build: 1024.0 * 40.0 * million,
            probe: 1024.0 * 40.0 * million,
            local_passes: 1.0,
            merge_depth: 3.0,
        };
        let of = |prediction: &Prediction, name| {
            let found = prediction.iter().find(|(phase, _)| *phase == name);
            (found.unwrap().1 * 100.0).round() / 100.0
        };
        let radix = rates.predict(&shape, Algorithm::Radix);
        assert_eq!(of(&radix, "histogram"), 0.36);
        assert_eq!(of(&radix, "network"), 0.67);
        assert_eq!(of(&radix, "local partition"), 0.67);
        assert_eq!(of(&radix, "build") + of(&radix, "probe"), 0.38);
        let total: f64 = radix.iter().map(|(_, seconds)| seconds).sum();
        // The table adds up rounded phases.
        assert!((total - 2.08).abs() < 0.02, "{total}");
        let sorted = rates.predict(&shape, Algorithm::SortMerge);
        assert_eq!(of(&sorted, "network"), 1.78);
        assert_eq!(of(&sorted, "match"), 0.22);
        // The table says 1.78, twice what its own parameters give by equation 3.18.
        assert_eq!(of(&sorted, "merge"), 0.89);
    }

    #[test]
    fn a_slow_network_is_the_limit() {
        let rates = RankRates {
            partition: 100.0,
            network: 10.0,
            ..RankRates::default()
        };
        assert!(rates.is_network_bound(2, 100.0) && !rates.is_network_bound(1, 100.0));
        // Half stays, at 100; half goes, at 10.
        assert!((rates.with_network(2, 100.0) - 1.0 / 0.055).abs() < 1e-9);
    }
}
