//! Building a block, entry after entry.

use bytes::Bytes;

use super::entry::{HEAD_BYTES_MAX, read_entry, write_head};
use super::{BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockCompressor, BlockOptions};
use crate::crc32c;
use crate::key::{KEY_BYTES_MAX, Stamp, VALUE_BYTES_MAX, shared_prefix};

/// A block, finished: what is written, and what an index needs to know of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FinishedBlock {
    /// The stored block, header and all.
    pub bytes: Bytes,
    /// User key of the first entry.
    pub first_key: Bytes,
    /// User key of the last entry.
    pub last_key: Bytes,
    /// Number of entries; not 0.
    pub entry_count: u32,
}

/// Builds blocks one after the other. Entries must come in order; whoever adds them answers for that.
#[derive(Debug)]
pub struct BlockBuilder {
    options: BlockOptions,
    interval: u32,
    /// Room for the header, then the body as far as it is built.
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    entry_count: u32,
    /// Entries until the next restart point.
    until_restart: u32,
    first_key: Vec<u8>,
    compressor: BlockCompressor,
}

impl BlockBuilder {
    /// An empty block.
    #[must_use]
    pub fn new(options: BlockOptions) -> Self {
        let mut builder = Self {
            options,
            interval: u32::from(options.restart_interval.max(1)),
            buffer: Vec::new(),
            restarts: Vec::new(),
            entry_count: 0,
            until_restart: 0,
            first_key: Vec::new(),
            compressor: BlockCompressor::default(),
        };
        builder.begin();
        builder
    }

    fn begin(&mut self) {
        let room = BLOCK_HEADER_BYTES + self.options.block_bytes as usize + 1024;
        self.buffer = Vec::with_capacity(room);
        self.buffer.resize(BLOCK_HEADER_BYTES, 0);
        self.restarts.clear();
        self.entry_count = 0;
        self.until_restart = 0;
    }

    /// Number of entries so far.
    #[must_use]
    pub const fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// Length of the body if it were finished now, in bytes.
    #[must_use]
    #[inline]
    pub fn body_bytes(&self) -> usize {
        self.buffer.len() - BLOCK_HEADER_BYTES + 4 * self.restarts.len()
    }

    /// Whether the block has reached its length.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.body_bytes() >= self.options.block_bytes as usize
    }

    /// Appends an entry. `previous_key` is the key of the entry added before (anything, if there is none).
    /// Keys and values beyond [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`] must not come here.
    pub fn add(&mut self, previous_key: &[u8], key: &[u8], stamp: Stamp, value: &[u8]) {
        self.add_sharing(shared_prefix(previous_key, key), key, stamp, value);
    }

    /// As [`BlockBuilder::add`], by someone who knows how many bytes the keys share.
    #[inline]
    pub fn add_sharing(&mut self, shared: usize, key: &[u8], stamp: Stamp, value: &[u8]) {
        debug_assert!(key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX && shared <= key.len());
        let shared = if self.until_restart == 0 {
            self.until_restart = self.interval;
            self.restarts
                .push((self.buffer.len() - BLOCK_HEADER_BYTES) as u32);
            if self.entry_count == 0 {
                self.first_key.clear();
                self.first_key.extend_from_slice(key);
            }
            0
        } else {
            shared
        };
        self.until_restart -= 1;
        self.entry_count += 1;
        let suffix = key.get(shared..).unwrap_or_default();
        let mut head = [0; HEAD_BYTES_MAX];
        let head_bytes = write_head(&mut head, shared, suffix.len(), value.len(), stamp);
        self.buffer.reserve(HEAD_BYTES_MAX + suffix.len() + value.len());
        self.buffer.extend_from_slice(&head[..head_bytes]);
        self.buffer.extend_from_slice(suffix);
        self.buffer.extend_from_slice(value);
    }

    /// Finishes the block and begins the next; `None` if it has no entries.
    pub fn finish(&mut self) -> Option<FinishedBlock> {
        if self.entry_count == 0 {
            return None;
        }
        let last_key = self.last_key();
        for offset in &self.restarts {
            self.buffer.extend_from_slice(&offset.to_le_bytes());
        }
        let body_bytes = (self.buffer.len() - BLOCK_HEADER_BYTES) as u32;
        let entry_count = self.entry_count;
        let mut stored = std::mem::take(&mut self.buffer);
        let compression = self.options.compression;
        let mut compressed = vec![0; BLOCK_HEADER_BYTES];
        let body = stored.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        let mut written_as = 0;
        if self.compressor.compress(compression, body, &mut compressed) {
            stored = compressed;
            written_as = compression as u8;
        }
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[4] = written_as;
        header[5] = BLOCK_VERSION;
        header[6..8].copy_from_slice(&(self.interval as u16).to_le_bytes());
        header[8..12].copy_from_slice(&body_bytes.to_le_bytes());
        header[12..16].copy_from_slice(&entry_count.to_le_bytes());
        if let Some(place) = stored.first_chunk_mut::<BLOCK_HEADER_BYTES>() {
            *place = header;
        }
        let crc = crc32c(stored.get(4..).unwrap_or_default());
        if let Some(place) = stored.first_chunk_mut::<4>() {
            *place = crc.to_le_bytes();
        }
        // What is kept is as long as it is, not as long as a block may be.
        stored.shrink_to_fit();
        let block = FinishedBlock {
            bytes: Bytes::from(stored),
            first_key: Bytes::copy_from_slice(&self.first_key),
            last_key: Bytes::from(last_key),
            entry_count,
        };
        self.begin();
        Some(block)
    }

    /// The key of the last entry, put together from its restart point on.
    fn last_key(&self) -> Vec<u8> {
        let entries = self.buffer.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        let mut key = Vec::new();
        let mut at = self.restarts.last().map_or(0, |&offset| offset as usize);
        while let Ok(head) = read_entry(entries, at) {
            key.truncate(head.shared);
            key.extend_from_slice(entries.get(head.key_at..head.value_at).unwrap_or_default());
            at = head.end;
        }
        key
    }
}
