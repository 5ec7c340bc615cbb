//! Equi-joins at the speed of memory, of one machine and over ranks.
//!
//! Two sides of (key, row) tuples, the smaller one as *build* side; out come pairs of rows, or rows with and
//! without a partner, a chunk at a time and a consumer a worker. Source: Barthels, "Scalable Query and
//! Transaction Processing over High-Performance Networks", chapters 3.2 (algorithms) and 3.3 (models).
//!
//! - [`tuple`](Tuple): tuples, sources, consumers.
//! - `form`: 16-byte and compressed 8-byte tuples, and the mixing of keys.
//! - `table`: the hash table, a cache line a bucket.
//! - `partition`: histogram, and partitioning through one cache line a partition.
//! - `hash`: the unpartitioned join and the radix join.
//! - [`HashTable`]: the unpartitioned join for callers with threads and a pipeline of their own.
//! - `sort`: splitters, sorted runs, their merge, and the sort-merge join.
//! - `spill`: partitions on disk, for joins that are larger than their budget.
//! - [`calibrate`]: the models, with rates of this machine.
//! - `join`: which of them is run, and with what.
//! - `ranks`: both joins over the ranks of a fabric, with the algorithms above for what is local.

mod array;
mod error;
mod feed;
mod form;
mod hash;
mod join;
mod model;
mod options;
mod output;
mod partition;
mod processor;
mod ranks;
mod run;
mod sides;
mod sort;
mod spill;
mod table;
mod tuple;
mod workers;

pub use error::JoinError;
pub use hash::piecewise::{HashTable, TableWriter};
pub use join::join;
pub use model::{Rates, Shape, calibrate};
pub use options::{Algorithm, Compression, Options, Phases, Report, Spill, Tuning};
pub use ranks::{
    Assignment, Exchange, Network, Prediction, RankJoin, RankJoinError, RankOptions, RankPhases, RankRates,
    RankReport, RankShape, Reason, Schedule, measure, simulate,
};
pub use tuple::{CHUNK_ROWS, Chunk, Consumer, Count, Emit, MORSEL_TUPLES, Pair, Ranges, Source, Tuple};
pub use workers::Interrupt;
