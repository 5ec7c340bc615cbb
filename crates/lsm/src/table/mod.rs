//! SSTables: sorted entries in a file that never changes.
//!
//! # Layout
//!
//! ```text
//! blocks       data blocks without gaps, from offset 0      (docs/formats/block.md)
//! tombstones   crc u32, list of (start, end, seqno)
//! filter       as in docs/formats/block.md; absent if the table has none
//! index        crc u32, list of (last key, length, block's crc u32, entries)
//! properties   crc u32, numbers and keys, value files that entries point into
//! footer       92 bytes: magic, version, where the sections lie, file number, crc
//! ```
//!
//! The index repeats each block's checksum, so that a block that is whole but not the one that was written
//! there is found out too. `docs/formats/sstable.md` has the bytes.
//!
//! # Invariants
//!
//! 1. A table is written whole, synced and named durably before the manifest speaks of it.
//! 2. Every byte that is read is covered by a checksum that is looked at before it is believed.
//! 3. A bad section is an error for those who need it, and for nobody else.

mod cursor;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod open;
mod out;
mod pieces;
mod read;
mod source;
mod write;

pub(crate) use cursor::{Blocks, RunCursor};
#[cfg(test)]
pub(crate) use format::ValueFileUse;
pub(crate) use format::{IndexEntry, TableProperties, UpperBound, table_name, table_number};
pub(crate) use out::TableSink;
pub use out::{IoCounts, TableIo};
pub(crate) use pieces::Pieces;
pub(crate) use read::{Opened, Table, TableFiles, TableMeta};
pub(crate) use source::Source;
pub(crate) use write::{SYNC_TABLE, TableWriter};
