//! A segment: up to 64 Ki rows as bytes, column after column.
//!
//! ```text
//! header | directory | column 0 | column 1 | ...
//!                      bitmap of NULLs | codes | dictionary, or what the encoding has
//! ```
//!
//! [`SegmentBuilder`] takes values and gives bytes; [`Segment`] reads bytes, wherever they lie: it is asked
//! for a [`Column`], and that for a value by position, for the values of a range of positions in buffers as
//! Arrow has them, for the rows that satisfy a [`ValuePredicate`], or for
//! what the values of some rows come to ([`Aggregate`]). Folder `encoding` has one file for each
//! encoding; `format.rs` the bytes before the columns, as `docs/formats/segment.md` has them in prose.
//!
//! # Invariants
//!
//! 1. The bytes are a function of kinds, values and schema version.
//! 2. What is read is what was written, bit for bit, NaNs and zeros with a sign included: the builder reads
//!    each column back before it hands the bytes over.
//! 3. Each byte is under one checksum: that of the header, of the directory, or of a column. Header and
//!    directory are checked when a segment is opened, a column when it is first used. Until then the column
//!    is not read, and damage in one column leaves the others readable.
//! 4. No bytes make a reader panic, read outside, or allocate more than the rows justify.
//!
//! Source: DBA 2.2 for dictionaries with packed codes; frames of reference, deltas and runs are as in other
//! column stores. Simplification: a segment is made and read whole; there is no reading of a single column
//! from disk here, but the directory says where each one lies.

mod aggregate;
mod build;
mod column;
mod decoded;
mod encoding;
mod error;
mod format;
mod open;
mod predicate;
mod value;

pub use aggregate::{Aggregate, Groups, Wanted};
pub use build::SegmentBuilder;
pub use column::Column;
pub use decoded::{Decoded, Values};
pub use error::{Place, SegmentError};
pub use format::Encoding;
pub use open::{MinMax, Segment};
pub use predicate::{CodePredicate, Prepared, ValuePredicate};
pub use value::{Kind, Value};

/// The most rows of a segment.
pub const ROWS_MAX: usize = 1 << 16;

/// The most columns of a segment.
pub const COLUMNS_MAX: usize = 1 << 12;
