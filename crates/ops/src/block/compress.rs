//! Bodies, made shorter and long again.
//!
//! What comes out is a function of what goes in: LZ4's table is cleared for every body, and which table is
//! used depends on the body's length alone.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::{BlockError, Compression};

/// Level of Zstandard: the base level is written rarely and holds most bytes.
pub const ZSTD_LEVEL: i32 = 3;

/// Bodies of at least this length use LZ4's table of wider entries.
const LARGE_BYTES: usize = u16::MAX as usize;

/// Compresses one body after another and keeps its tables in between.
#[derive(Default)]
pub struct BlockCompressor {
    small: Option<CompressTable>,
    large: Option<CompressTable>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
}

impl std::fmt::Debug for BlockCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockCompressor").finish_non_exhaustive()
    }
}

impl BlockCompressor {
    /// Appends the compressed body to `out` if that is at least an eighth shorter, and says whether it did.
    pub(crate) fn compress(&mut self, compression: Compression, body: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let room = match compression {
            Compression::None => return false,
            Compression::Lz4 => get_maximum_output_size(body.len()),
            Compression::Zstd => zstd::zstd_safe::compress_bound(body.len()),
        };
        out.resize(start + room, 0);
        let Some(target) = out.get_mut(start..) else {
            return false;
        };
        let written = match compression {
            Compression::None => None,
            Compression::Lz4 => self.lz4(body, target),
            Compression::Zstd => self.zstd(body, target),
        };
        match written {
            Some(len) if len <= body.len() - body.len() / 8 => {
                out.truncate(start + len);
                true
            }
            _ => {
                out.truncate(start);
                false
            }
        }
    }

    fn lz4(&mut self, body: &[u8], target: &mut [u8]) -> Option<usize> {
        let table = if body.len() < LARGE_BYTES {
            self.small.get_or_insert_with(CompressTable::small)
        } else {
            self.large.get_or_insert_with(CompressTable::large)
        };
        compress_into_with_table(body, target, table).ok()
    }

    fn zstd(&mut self, body: &[u8], target: &mut [u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
        }
        self.zstd.as_mut()?.compress_to_buffer(body, target).ok()
    }
}

/// Decompresses one body after another and keeps its tables in between.
#[derive(Default)]
pub(crate) struct BlockDecompressor {
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl BlockDecompressor {
    /// Fills `body` from `stored`.
    ///
    /// # Errors
    /// [`BlockError::Decompression`] unless exactly all of `body` was filled.
    pub(crate) fn decompress(
        &mut self,
        compression: Compression,
        stored: &[u8],
        body: &mut [u8],
    ) -> Result<(), BlockError> {
        let filled = match compression {
            Compression::None if stored.len() == body.len() => {
                body.copy_from_slice(stored);
                Some(stored.len())
            }
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::decompress_into(stored, body).ok(),
            Compression::Zstd => self.zstd(stored, body),
        };
        match filled {
            Some(len) if len == body.len() => Ok(()),
            _ => Err(BlockError::Decompression),
        }
    }

    fn zstd(&mut self, stored: &[u8], body: &mut [u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = zstd::bulk::Decompressor::new().ok();
        }
        self.zstd.as_mut()?.decompress_to_buffer(stored, body).ok()
    }
}
