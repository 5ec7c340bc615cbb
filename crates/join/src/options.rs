//! How a join is to be run, and what it tells of its run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft_base::{Budget, Disk};

use crate::tuple::Emit;
use crate::workers::Interrupt;

/// The algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Whichever the sizes suggest: see [`Options::algorithm`].
    #[default]
    Chosen,
    /// One hash table for the whole build side, with many prefetched searches in flight.
    Unpartitioned,
    /// Both sides are partitioned until a partition's table fits into the cache.
    Radix,
    /// Both sides are partitioned by range, sorted and merged.
    SortMerge,
}

/// Partitions that a build side must be worth before it is partitioned without being asked.
const PARTITIONS_MIN: usize = 64;

impl Algorithm {
    /// The algorithm that is run for so many build tuples: see [`Options::algorithm`].
    pub(crate) fn for_sizes(self, build: usize, workers: usize, tuning: &Tuning) -> Algorithm {
        let is_large = build / PARTITIONS_MIN >= tuning.partition_tuples.max(1);
        match self {
            Algorithm::Chosen if is_large && workers > 1 => Algorithm::Radix,
            Algorithm::Chosen => Algorithm::Unpartitioned,
            named => named,
        }
    }
}

/// In which form tuples stand in partitions and tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// 8 bytes where the bounds of keys and rows allow it and both sides know theirs.
    #[default]
    WhereKnown,
    /// 8 bytes where the bounds allow it; they are found by reading the sides once more.
    Always,
    /// 16 bytes.
    Never,
}

/// Where a join may put what does not fit into its budget.
#[derive(Clone)]
pub struct Spill {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// A directory that exists. Files in it are removed when the join ends, however it ends; what a killed
    /// process left there is named `join-*.spill`.
    pub dir: PathBuf,
}

/// What the algorithms are tuned by. The defaults suit machines with 1 MB of second-level cache a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Build tuples that a partition should have: its hash table must fit into the cache.
    pub partition_tuples: usize,
    /// Partitions of one pass, as a power of two at most (Barthels 3.2.1: 512 to 2,048 cost little).
    pub pass_bits_max: u32,
    /// Tuples of a sorted run.
    pub run_tuples: usize,
    /// A partition with more tuples than this is worked on by all workers at once, if it is also a large
    /// share of all.
    pub shared_tuples_min: usize,
    /// Workers are not started for fewer tuples than this each.
    pub worker_tuples_min: usize,
    /// Bytes written to a spill file at a time.
    pub spill_block_bytes: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            partition_tuples: 16 << 10,
            pass_bits_max: 11,
            run_tuples: 64 << 10,
            shared_tuples_min: 64 << 10,
            worker_tuples_min: 16 << 10,
            spill_block_bytes: 64 << 10,
        }
    }
}

/// How a join is to be run.
#[derive(Clone)]
pub struct Options<'a> {
    /// The algorithm. [`Algorithm::Chosen`] is the radix join if several workers share a table that is much
    /// larger than the cache, and the unpartitioned join otherwise: that reads each side once and needs the
    /// least memory. Measured with 4 M and with 16 M build tuples of 16 bytes (AMD EPYC, idle): two workers
    /// join 141 and 136 M tuples a second by radix, 117 and 104 unpartitioned; one 74 and 63, 64 and 65. A
    /// join for which there is no room in the budget is run unpartitioned, too, and then by way of the disk.
    pub algorithm: Algorithm,
    /// The form of tuples.
    pub compression: Compression,
    /// What consumers are told.
    pub emit: Emit,
    /// Bytes for partitions, tables, runs and blocks. Beside them a worker has its chunks and a morsel, less
    /// than half a megabyte.
    pub budget: Arc<Budget>,
    /// Where to put what is too large for the budget. `None`: such a join is an error.
    pub spill: Option<Spill>,
    /// Asked by every worker once a morsel; `true` ends the join with
    /// [`JoinError::Interrupted`](crate::JoinError::Interrupted).
    pub interrupt: Option<Interrupt<'a>>,
    /// What the algorithms are tuned by.
    pub tuning: Tuning,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            algorithm: Algorithm::Chosen,
            compression: Compression::default(),
            emit: Emit::INNER,
            budget: Budget::new(usize::MAX),
            spill: None,
            interrupt: None,
            tuning: Tuning::default(),
        }
    }
}

/// Time of each phase. Where workers alternate between phases partition by partition, the time of a phase is
/// the mean of the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Finding the bounds of keys and rows.
    pub bounds: Duration,
    /// Counting tuples for each partition; for the sort-merge join, choosing splitters as well.
    pub histogram: Duration,
    /// Partitioning, all passes.
    pub partition: Duration,
    /// Filling hash tables.
    pub build: Duration,
    /// Probing them.
    pub probe: Duration,
    /// Sorting runs.
    pub sort: Duration,
    /// Merging runs.
    pub merge: Duration,
    /// Scanning sorted sides for equal keys.
    pub matching: Duration,
    /// Writing to disk and reading back.
    pub spill: Duration,
}

impl Phases {
    /// The phases with their names, in order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Duration); 9] {
        [
            ("bounds", self.bounds),
            ("histogram", self.histogram),
            ("partition", self.partition),
            ("build", self.build),
            ("probe", self.probe),
            ("sort", self.sort),
            ("merge", self.merge),
            ("match", self.matching),
            ("spill", self.spill),
        ]
    }

    /// Adds a part of others: one worker's share of the mean.
    pub(crate) fn add_share(&mut self, other: &Phases, workers: usize) {
        let share = |time: Duration| time / u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
        self.bounds += share(other.bounds);
        self.histogram += share(other.histogram);
        self.partition += share(other.partition);
        self.build += share(other.build);
        self.probe += share(other.probe);
        self.sort += share(other.sort);
        self.merge += share(other.merge);
        self.matching += share(other.matching);
        self.spill += share(other.spill);
    }
}

/// What a join tells of its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The algorithm that was run.
    pub algorithm: Algorithm,
    /// Bytes of a tuple in partitions and tables: 16 or 8.
    pub tuple_bytes: usize,
    /// Instructions of the inner loops: `portable`, `avx2` or `avx512`.
    pub processor: &'static str,
    /// Workers that took part.
    pub workers: usize,
    /// Partitions of the first pass; 1 without.
    pub partitions: usize,
    /// Sorted runs, of both sides.
    pub runs: usize,
    /// Partitions that all workers worked on together.
    pub shared: usize,
    /// Time of each phase.
    pub phases: Phases,
    /// From begin to end.
    pub total: Duration,
    /// Pairs that were told.
    pub pairs: u64,
    /// Bytes written to disk.
    pub spilled_bytes: u64,
    /// Partitions on disk that were partitioned again.
    pub respilled: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_tables_of_several_workers_are_partitioned() {
        let tuning = Tuning::default();
        let chosen = |build, workers| Algorithm::Chosen.for_sizes(build, workers, &tuning);
        assert_eq!(chosen(4 << 20, 2), Algorithm::Radix);
        assert_eq!(chosen(4 << 20, 1), Algorithm::Unpartitioned);
        assert_eq!(chosen(1 << 19, 8), Algorithm::Unpartitioned);
        let named = Algorithm::SortMerge;
        assert_eq!(named.for_sizes(4 << 20, 2, &tuning), named);
    }
}
