//! What a join reads and what it gives: tuples in, chunks of row pairs out.
//!
//! A tuple is a 64-bit key and a 64-bit row (Barthels 3.4.1: narrow 16-byte tuples of a column-oriented
//! storage model). A key that SQL would not find equal to itself (NULL) must not be given to a join; its row
//! is unmatched, and its owner knows that already.

use std::ops::ControlFlow;

/// Tuples that a worker claims at a time.
pub const MORSEL_TUPLES: usize = 8192;
/// Entries of a chunk at most.
pub const CHUNK_ROWS: usize = 1024;

/// A join key and the row that has it. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// Compared for equality; any value.
    pub key: u64,
    /// Handed to the consumer as it is; any value.
    pub row: u64,
}

/// Rows of two tuples with the same key.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The row of the build side.
    pub build: u64,
    /// The row of the probe side.
    pub probe: u64,
}

/// Bounds of the keys and rows of one side, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges {
    /// The smallest and the largest key.
    pub keys: (u64, u64),
    /// The smallest and the largest row.
    pub rows: (u64, u64),
}

impl Ranges {
    /// The bounds of nothing; every tuple widens them.
    pub(crate) const EMPTY: Ranges = Ranges {
        keys: (u64::MAX, 0),
        rows: (u64::MAX, 0),
    };

    /// Widens the bounds to these tuples.
    pub(crate) fn include(&mut self, tuples: &[Tuple]) {
        for tuple in tuples {
            self.keys = (self.keys.0.min(tuple.key), self.keys.1.max(tuple.key));
            self.rows = (self.rows.0.min(tuple.row), self.rows.1.max(tuple.row));
        }
    }

    /// Widens the bounds to those of others.
    pub(crate) fn unite(&mut self, other: &Ranges) {
        self.keys = (self.keys.0.min(other.keys.0), self.keys.1.max(other.keys.1));
        self.rows = (self.rows.0.min(other.rows.0), self.rows.1.max(other.rows.1));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.0 > self.keys.1
    }
}

/// One side of a join: tuples by position, so that a caller can make them from its columns, a morsel at a
/// time, without an array of all of them.
///
/// A position is read once or several times, by any worker, and must give the same tuple each time.
pub trait Source: Sync {
    /// How many tuples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tuples of so many positions from `first` on, all below [`Source::len`]: a slice of the source's
    /// own, or `space` after they were put there. `space` comes with any contents. `count` is at most
    /// [`MORSEL_TUPLES`].
    fn read<'a>(&'a self, first: usize, count: usize, space: &'a mut Vec<Tuple>) -> &'a [Tuple];

    /// Bounds of all tuples, if they are known without reading them. They may be wider than the tuples; a
    /// tuple outside of them ends the join with an error.
    fn ranges(&self) -> Option<Ranges> {
        None
    }
}

impl Source for &[Tuple] {
    fn len(&self) -> usize {
        <[Tuple]>::len(self)
    }

    fn read<'a>(&'a self, first: usize, count: usize, _: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        let end = first.saturating_add(count).min(<[Tuple]>::len(self));
        self.get(first..end).unwrap_or_default()
    }
}

impl Source for Vec<Tuple> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn read<'a>(&'a self, first: usize, count: usize, _: &'a mut Vec<Tuple>) -> &'a [Tuple] {
        let end = first.saturating_add(count).min(Vec::len(self));
        self.get(first..end).unwrap_or_default()
    }
}

/// What a join tells its consumers. Any set of these: an inner join is the pairs, a probe-side outer join
/// the pairs and the unmatched probe rows, a semi join the matched rows, an anti join the unmatched ones.
///
/// A caller with a condition beyond equality of keys asks for the pairs and keeps account of rows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emit {
    /// Every pair of rows with equal keys.
    pub pairs: bool,
    /// Probe rows with at least one partner, each once.
    pub probe_matched: bool,
    /// Probe rows without a partner.
    pub probe_unmatched: bool,
    /// Build rows with at least one partner, each once.
    pub build_matched: bool,
    /// Build rows without a partner.
    pub build_unmatched: bool,
}

impl Emit {
    const NOTHING: Emit = Emit {
        pairs: false,
        probe_matched: false,
        probe_unmatched: false,
        build_matched: false,
        build_unmatched: false,
    };
    /// The pairs alone.
    pub const INNER: Emit = Emit {
        pairs: true,
        ..Emit::NOTHING
    };
    /// The pairs, and probe rows without a partner.
    pub const PROBE_OUTER: Emit = Emit {
        probe_unmatched: true,
        ..Emit::INNER
    };
    /// The pairs, and build rows without a partner.
    pub const BUILD_OUTER: Emit = Emit {
        build_unmatched: true,
        ..Emit::INNER
    };
    /// The pairs, and the rows of both sides without a partner.
    pub const FULL_OUTER: Emit = Emit {
        build_unmatched: true,
        ..Emit::PROBE_OUTER
    };
    /// Probe rows with a partner.
    pub const PROBE_SEMI: Emit = Emit {
        probe_matched: true,
        ..Emit::NOTHING
    };
    /// Probe rows without a partner.
    pub const PROBE_ANTI: Emit = Emit {
        probe_unmatched: true,
        ..Emit::NOTHING
    };

    /// Something is asked for that a scan of the probe side alone cannot tell.
    pub(crate) fn marks_build(self) -> bool {
        self.build_matched || self.build_unmatched
    }

    pub(crate) fn is_inner(self) -> bool {
        self == Emit::INNER
    }
}

/// Up to [`CHUNK_ROWS`] results of one kind. Chunks come in no particular order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'a> {
    /// Rows with equal keys.
    Pairs(&'a [Pair]),
    /// Probe rows with a partner.
    ProbeMatched(&'a [u64]),
    /// Probe rows without one.
    ProbeUnmatched(&'a [u64]),
    /// Build rows with a partner.
    BuildMatched(&'a [u64]),
    /// Build rows without one.
    BuildUnmatched(&'a [u64]),
}

/// Takes the results of one worker.
pub trait Consumer: Send {
    /// Takes a chunk. `Break` ends the whole join with [`JoinError::Stopped`](crate::JoinError::Stopped): the
    /// caller has enough, or keeps an error of its own.
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()>;
}

/// Counts results and adds up the rows of pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Pairs.
    pub pairs: u64,
    /// Rows of other chunks.
    pub rows: u64,
    /// Sum of the rows of all pairs, wrapping.
    pub sum: u64,
}

impl Consumer for Count {
    fn take(&mut self, chunk: Chunk<'_>) -> ControlFlow<()> {
        match chunk {
            Chunk::Pairs(pairs) => {
                self.pairs += pairs.len() as u64;
                for pair in pairs {
                    self.sum = self.sum.wrapping_add(pair.build).wrapping_add(pair.probe);
                }
            }
            Chunk::ProbeMatched(rows)
            | Chunk::ProbeUnmatched(rows)
            | Chunk::BuildMatched(rows)
            | Chunk::BuildUnmatched(rows) => self.rows += rows.len() as u64,
        }
        ControlFlow::Continue(())
    }
}
