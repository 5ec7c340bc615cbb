//! The two hash joins: with one table for all, and with a table in the cache for each partition. The former
//! also for callers that have their tuples piece by piece.

pub(crate) mod piecewise;
pub(crate) mod radix;
pub(crate) mod unpartitioned;
