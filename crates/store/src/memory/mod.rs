//! Row memory: version chains and the permanent slots that hold them. All pointer code of the store is in
//! this folder and in [`crate::snapshot`]'s publication cell; everything above it is safe code.
//!
//! ```text
//! SlotArena (one per table)                        block of a slab
//!   slot: newest ---+ or --------------------------> batch 9  older --> ...
//!         row id    v                                len, bytes
//!         inline: batch 4  older --> null
//!                 len, bytes
//! ```
//!
//! - `arena`: blocks of huge pages. `prefault`: populating pages in advance. `slab`: size classes. `version`:
//!   one version. `slot`: one row's place. `slots`: those of a table. `regions`: where slots are. `cold`:
//!   rows that are not in memory. `frozen`: what a region has instead of slots. `row_ids`: which rows those
//!   are. `freeze`: how rows leave memory and come back. `refill`: how a region comes back. `image`: where
//!   rows are, to be written to disk. `context`: what belongs to one reader.
//!
//! Invariants:
//! 1. Who has found a slot may use it until it gives up its pin: a slot that was moved or whose row has
//!    become cold stays where it was until no reader is left that could have found it. Slot numbers are
//!    reused, but only after every index entry that leads to the slot is gone and no registered reader sees a
//!    row in it.
//! 2. A chain is newest first; batch numbers never increase along it. The bytes of a version never change
//!    after it is linked, until nobody can use it any more.
//! 3. Dereferencing a version requires a [`Pin`]: that of a registered reader, of the one open batch, or of
//!    the garbage collector. A reader pinned at boundary B never goes past the first version with batch <= B.
//! 4. An unlinked version becomes [`Retired`] and is freed only when no reader is left that was registered at
//!    the boundary of the unlinking, or before.

pub(crate) mod arena;
mod cold;
mod context;
mod freeze;
mod frozen;
mod image;
mod prefault;
mod refill;
mod regions;
mod row_ids;
mod slab;
mod slot;
mod slots;
mod version;

pub(crate) use cold::{ColdRows, ColdRowsInOrder};
pub(crate) use context::ReadContext;
pub(crate) use freeze::{LeftBehind, OldPlaces, OldSlots, Scratch, free_left_block};
pub(crate) use image::{ColdPlace, ColdRegion, ColdRegionBuilder, RegionShape, RowLengths};
pub use prefault::PrefaultedPages;
pub(crate) use slab::RowMemory;
pub(crate) use slot::{SLOT_OVERHEAD, Slot};
pub(crate) use slots::{REGION_SLOTS, SlotArena};
pub(crate) use version::{Pin, Retired, VersionRef};

/// Names a row's place in its table's memory. Not the row's identity (that is its row id): addresses and
/// slot numbers differ between replays and enter no file and no digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u64);
