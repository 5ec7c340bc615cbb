//! Columns beside the rows: what queries scan is copied from regions, column by column, in packed form.
//!
//! ```text
//!   region of slots          its columns
//!     slot 0  row  ......>   position 0                          unchanged since the copy: read here
//!     slot 1  row  --x       changed since: masked out           read in its slot, version by version
//!     slot 2  -    ......>   position 2, not present             nothing
//! ```
//!
//! A copy is derived: it is in memory only, can be dropped at any time, and belongs to no checkpoint. It
//! describes its rows as they were at the batch boundary when it began to record which slots are written
//! ([`RegionColumns`]), and takes over no row that was written since. So a reader at that boundary or a later
//! one finds every row exactly once, in the copy or in its slot; an older reader uses slots alone.
//!
//! - `region.rs`: the copy of one region. `form.rs`: what a SQL type is stored as. `build.rs`: making copies.
//!   `keeper.rs`: which regions and columns are copied, and when.
//!
//! # Invariants
//!
//! 1. A copy begins to record writes while no batch is open; its values are read at that boundary or later.
//!    A slot is marked before its first write of a batch is linked, so before that batch is published.
//! 2. Marks are never cleared: a region with many gets another copy.
//!
//! Source: decision 0027; DBA 2 (columns next to the rows, packed, scanned apart from transactions).

mod build;
mod form;
mod keeper;
mod region;

pub use form::{NAN, integer_scale, kind_of};
pub(crate) use keeper::{Asked, Counters, has_many_holes};
pub use keeper::{ColumnKeeper, ColumnStats, CopyPolicy};
pub(crate) use region::{ChangedSlots, RegionColumns};
pub use region::{ChunkColumns, SlotMask};
