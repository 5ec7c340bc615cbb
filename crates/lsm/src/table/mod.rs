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
//! The index repeats each block's checksum, so that a valid block that is not the one written there is
//! detected too. `docs/formats/sstable.md` has the bytes.
//!
//! # Invariants
//!
//! 1. A table is written completely, synced, and its name made durable before the manifest mentions it.
//! 2. Every byte that is read is covered by a checksum that is verified before it is used.
//! 3. A corrupt section is an error only for reads that need it.

mod bulk_read;
mod cursor;
mod file_writer;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod open;
mod read;
mod readahead;
mod write;

pub(crate) use bulk_read::BulkReader;
pub(crate) use cursor::{Blocks, RunCursor};
pub(crate) use file_writer::TableSink;
pub use file_writer::{IoCounts, TableIo};
#[cfg(test)]
pub(crate) use format::ValueFileUse;
pub(crate) use format::{IndexEntry, TableProperties, UpperBound, table_name, table_number};
pub(crate) use read::{Opened, Table, TableFiles, TableMeta};
pub(crate) use readahead::Readahead;
pub(crate) use write::{SYNC_TABLE, TableWriter};
