//! The two hash joins: with one table for all, and with a table in the cache for each partition.

pub(crate) mod radix;
pub(crate) mod unpartitioned;
