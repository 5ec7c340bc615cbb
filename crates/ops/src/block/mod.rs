//! Blocks: sorted entries with prefix compression, the unit of reading, caching, checking and merging.
//!
//! # Layout
//!
//! All numbers are little endian; a varint is LEB128 in its shortest form.
//!
//! ```text
//! stored block   crc u32          CRC-32C of all that follows
//!                compression u8   0 none, 1 LZ4, 2 zstd
//!                version u8       1
//!                interval u16     entries from one restart point to the next
//!                body_bytes u32   length of the body before compression
//!                entry_count u32
//!                body             as stored: compressed or not
//!
//! body           entries, then the restart array: offset u32 of entry 0, interval, 2 * interval, ...
//!
//! entry          shared varint    bytes of the key that stand in the entry before
//!                unshared varint  bytes of the key that stand here
//!                value_bytes varint
//!                stamp u64        seqno << 8 | kind
//!                key bytes, value bytes
//! ```
//!
//! The restart array's length follows from `entry_count` and `interval`, so whoever has the header knows
//! where each group of entries begins: a hardware unit can set several decoders on one block.
//!
//! # Invariants
//!
//! 1. Entries ascend strictly: by user key, then by stamp descending.
//! 2. `shared` is exact: as long as it can be, and 0 at a restart point. So bytes are a function of
//!    entries, and order can be checked by one comparison of bytes.
//! 3. The bytes of a stored block are a function of its entries and [`BlockOptions`] alone.
//! 4. No bytes make a reader panic, or allocate more than [`BODY_BYTES_MAX`].
//!
//! Source: LevelDB's block format for the idea of restart points; X-DB, "FPGA-based Compaction", for what a
//! unit needs.

mod build;
mod compress;
mod entry;
mod read;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fmt;

pub use build::{BlockBuilder, FinishedBlock};
pub(crate) use compress::BlockDecompressor;
pub use compress::{BlockCompressor, ZSTD_LEVEL};
pub(crate) use entry::read_entry;
pub(crate) use read::restart_offset;
pub use read::{Block, BlockCursor, BlockHeader};

/// Bytes of a stored block before its body.
pub const BLOCK_HEADER_BYTES: usize = 16;

/// The longest body: one entry of the greatest key and value, and what surrounds it.
pub const BODY_BYTES_MAX: usize = (1 << 30) + (1 << 20);

/// The number in a block's header that says how to read the rest.
pub const BLOCK_VERSION: u8 = 1;

/// How the body of a block is stored. The numbers stand in files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Compression {
    /// As it is.
    None = 0,
    /// LZ4 block format: quick.
    #[default]
    Lz4 = 1,
    /// Zstandard at level [`ZSTD_LEVEL`]: dense.
    Zstd = 2,
}

impl Compression {
    /// The compression with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// How blocks are built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockOptions {
    /// A block is finished when its body has at least this many bytes; a single entry may exceed it.
    pub block_bytes: u32,
    /// Entries from one restart point to the next; 0 counts as 1.
    pub restart_interval: u16,
    /// What is tried on each body. A body that does not get an eighth shorter is stored as it is.
    pub compression: Compression,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            block_bytes: 16 << 10,
            restart_interval: 16,
            compression: Compression::Lz4,
        }
    }
}

/// Why bytes are not a block, or not one that this version reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BlockError {
    /// Fewer bytes than a header has.
    TooShort,
    /// The bytes are not those that were written.
    Checksum,
    /// A version that is not known here.
    Version,
    /// A compression that is not known here.
    UnknownCompression,
    /// The stored body cannot be decompressed to the length in the header.
    Decompression,
    /// Lengths or counts in the header contradict each other or the bytes.
    Header,
    /// The restart array disagrees with the entries.
    Restart,
    /// An entry reaches beyond the entries, or a number in it is malformed.
    Entry,
    /// An entry's stamp names no known kind.
    UnknownKind,
    /// Entries that do not ascend, or share more or less than they could.
    Order,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "fewer bytes than a block's header",
            Self::Checksum => "checksum of the block does not match",
            Self::Version => "unknown version of the block format",
            Self::UnknownCompression => "unknown compression",
            Self::Decompression => "the block cannot be decompressed",
            Self::Header => "the block's header contradicts its bytes",
            Self::Restart => "the restart array disagrees with the entries",
            Self::Entry => "an entry is malformed",
            Self::UnknownKind => "an entry is of an unknown kind",
            Self::Order => "entries are out of order",
        })
    }
}

impl Error for BlockError {}
