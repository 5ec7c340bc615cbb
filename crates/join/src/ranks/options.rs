//! How a join over ranks is to be run, and what each rank tells of it.

use std::sync::Arc;
use std::time::Duration;

use weft_base::Budget;

use crate::options::{Algorithm, Compression, Phases, Tuning};
use crate::tuple::Emit;
use crate::workers::Interrupt;

/// Which rank gets which partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Assignment {
    /// Partition n goes to rank n modulo the ranks.
    RoundRobin,
    /// The largest partition first, each to the rank that has the least so far.
    Sized,
    /// The same, after partitions that no assignment could balance are shared: one side is cut into equal
    /// pieces, and each rank that gets a piece gets all of the other side.
    #[default]
    Shared,
}

/// When full buffers leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// As soon as they are full, in whatever order the data has; sorted runs begin with the right neighbour.
    #[default]
    Free,
    /// In rounds. Between two rounds a rank reads so many tuples; in each of a round's slots every rank sends
    /// to one rank and receives from one, and a barrier ends the slot. The network never has two senders for
    /// one receiver; partitioning no longer overlaps with transfer.
    Rounds {
        /// Tuples that a rank reads for a round.
        tuples: usize,
    },
}

/// What the exchange between ranks is tuned by. Must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Partitions of the network pass, as a power of two at most. There are at least four a rank.
    pub bits_max: u32,
    /// Bytes of a buffer. A network reaches its bandwidth from some kilobytes on (Barthels, figure 3.7).
    pub buffer_bytes: usize,
    /// Buffers of a partition, at least two: one is filled while others are on their way.
    pub buffers: usize,
    /// When they leave.
    pub schedule: Schedule,
    /// Who gets what.
    pub assignment: Assignment,
}

impl Default for Network {
    fn default() -> Self {
        Network {
            bits_max: 7,
            buffer_bytes: 8 << 10,
            buffers: 2,
            schedule: Schedule::Free,
            assignment: Assignment::Shared,
        }
    }
}

/// How a join over ranks is to be run. All but budget and interrupt must be the same on all ranks.
#[derive(Clone)]
pub struct RankOptions<'a> {
    /// [`Algorithm::Radix`], which [`Algorithm::Chosen`] means here, or [`Algorithm::SortMerge`].
    pub algorithm: Algorithm,
    /// The form of tuples on their way and in partitions.
    pub compression: Compression,
    /// What consumers are told.
    pub emit: Emit,
    /// Bytes for this rank's buffers, tables and runs, beside its window.
    pub budget: Arc<Budget>,
    /// Asked once a morsel; `true` ends the join on all ranks while tuples are exchanged, and on this one
    /// afterwards.
    pub interrupt: Option<Interrupt<'a>>,
    /// What the local algorithms are tuned by.
    pub tuning: Tuning,
    /// What the exchange is tuned by.
    pub network: Network,
}

impl Default for RankOptions<'_> {
    fn default() -> Self {
        RankOptions {
            algorithm: Algorithm::Chosen,
            compression: Compression::default(),
            emit: Emit::INNER,
            budget: Budget::new(usize::MAX),
            interrupt: None,
            tuning: Tuning::default(),
            network: Network::default(),
        }
    }
}

/// Time of each phase on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankPhases {
    /// Agreeing on sizes and bounds, finding bounds where they are not known, and splitters.
    pub agree: Duration,
    /// Counting, and adding up the counts of all ranks.
    pub histogram: Duration,
    /// Partitioning in this rank's memory, before the exchange: the sort-merge join alone.
    pub partition: Duration,
    /// Network partitioning, or sorting of runs, with the puts of what they made.
    pub network: Duration,
    /// From this rank's last put until all ranks had flushed theirs: imbalance.
    pub wait: Duration,
    /// After the exchange, as on one machine: local partitioning, build and probe, or merge and match.
    pub local: Phases,
}

impl RankPhases {
    /// The phases with their names, in order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Duration); 10] {
        [
            ("agree", self.agree),
            ("histogram", self.histogram),
            ("partition", self.partition),
            ("network", self.network),
            ("wait", self.wait),
            ("local partition", self.local.partition),
            ("build", self.local.build),
            ("probe", self.local.probe),
            ("merge", self.local.merge),
            ("match", self.local.matching),
        ]
    }
}

/// What a rank tells of its part in a join.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankReport {
    /// The algorithm that was run.
    pub algorithm: Algorithm,
    /// Bytes of a tuple on its way: 16 or 8.
    pub tuple_bytes: usize,
    /// Partitions of the exchange.
    pub partitions: usize,
    /// Partitions that several ranks shared.
    pub shared: usize,
    /// Bytes that this rank put into windows of others.
    pub sent_bytes: u64,
    /// In how many puts.
    pub puts: u64,
    /// Bytes of this rank's window that were used.
    pub window_bytes: u64,
    /// Sorted runs that this rank made.
    pub runs: usize,
    /// Time of each phase.
    pub phases: RankPhases,
    /// From begin to end. Of several joins at once: of all.
    pub total: Duration,
    /// Pairs that this rank told.
    pub pairs: u64,
}
