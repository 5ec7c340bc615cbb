//! Reading blocks: checked once when opened, and entry by entry as a cursor passes over them.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use super::compress::BlockDecompressor;
use super::entry::read_entry;
use super::{BLOCK_HEADER_BYTES, BLOCK_VERSION, BODY_BYTES_MAX, BlockError, Compression};
use crate::crc32c;
use crate::key::{SeqNo, Stamp, shared_prefix};

/// What a stored block says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// How the body is stored.
    pub compression: Compression,
    /// Entries from one restart point to the next; not 0.
    pub restart_interval: u16,
    /// Length of the body before compression, restart array included.
    pub body_bytes: u32,
    /// Number of entries; not 0.
    pub entry_count: u32,
}

impl BlockHeader {
    /// Reads the header of a stored block after checking the sum over the whole of it.
    ///
    /// # Errors
    /// Everything that can be said without decompressing.
    pub fn read(stored: &[u8]) -> Result<Self, BlockError> {
        let head = stored
            .first_chunk::<BLOCK_HEADER_BYTES>()
            .ok_or(BlockError::TooShort)?;
        let [c0, c1, c2, c3, compression, version, i0, i1, rest @ ..] = *head;
        let [b0, b1, b2, b3, n0, n1, n2, n3] = rest;
        let crc = u32::from_le_bytes([c0, c1, c2, c3]);
        if crc32c(stored.get(4..).unwrap_or_default()) != crc {
            return Err(BlockError::Checksum);
        }
        if version != BLOCK_VERSION {
            return Err(BlockError::Version);
        }
        let header = Self {
            compression: Compression::from_u8(compression).ok_or(BlockError::UnknownCompression)?,
            restart_interval: u16::from_le_bytes([i0, i1]),
            body_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            entry_count: u32::from_le_bytes([n0, n1, n2, n3]),
        };
        let stored_bytes = stored.len() - BLOCK_HEADER_BYTES;
        let body_bytes = header.body_bytes as usize;
        let plausible = header.restart_interval > 0
            && header.entry_count > 0
            && body_bytes <= BODY_BYTES_MAX
            // Neither compression makes bytes more than some thousand times fewer.
            && body_bytes / (1 << 15) <= stored_bytes
            && header.entries_bytes().is_ok()
            && (header.is_compressed() || stored_bytes == body_bytes);
        if plausible {
            Ok(header)
        } else {
            Err(BlockError::Header)
        }
    }

    /// Number of restart points.
    #[must_use]
    pub const fn restart_count(&self) -> usize {
        self.entry_count.div_ceil(self.restart_interval as u32) as usize
    }

    /// Whether the body has to be decompressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compression != Compression::None
    }

    /// Length of the entries, which is where the restart array begins.
    ///
    /// # Errors
    /// [`BlockError::Header`] if the body is shorter than its restart array.
    pub fn entries_bytes(&self) -> Result<usize, BlockError> {
        (self.body_bytes as usize)
            .checked_sub(4 * self.restart_count())
            .ok_or(BlockError::Header)
    }
}

/// An opened block: decompressed, its checksum and lengths checked. Cheap to clone; the bytes are shared.
#[derive(Clone, Debug)]
pub struct Block {
    body: Bytes,
    header: BlockHeader,
    entries_bytes: usize,
}

impl Block {
    /// Opens a stored block. A body that is not compressed is shared, not copied.
    ///
    /// # Errors
    /// All of [`BlockError`] but [`BlockError::Entry`] and [`BlockError::Order`], which show when entries are
    /// read.
    pub fn open(stored: &Bytes) -> Result<Self, BlockError> {
        let header = BlockHeader::read(stored)?;
        let entries_bytes = header.entries_bytes()?;
        let stored_body = stored.slice(BLOCK_HEADER_BYTES..);
        let body = if header.is_compressed() {
            let mut body = vec![0; header.body_bytes as usize];
            BlockDecompressor::default().decompress(header.compression, &stored_body, &mut body)?;
            Bytes::from(body)
        } else {
            stored_body
        };
        Ok(Self {
            body,
            header,
            entries_bytes,
        })
    }

    /// What the block said of itself.
    #[must_use]
    pub const fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Bytes of memory that the block keeps.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.body.len() + size_of::<Self>()
    }

    /// A cursor that stands nowhere yet.
    #[must_use]
    pub fn cursor(&self) -> BlockCursor {
        BlockCursor::new(self.clone())
    }

    /// Reads every entry and checks what opening could not: order, sharing, restart points, counts.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), BlockError> {
        let interval = u32::from(self.header.restart_interval);
        let mut at = 0;
        let mut key: Vec<u8> = Vec::new();
        let mut last: Option<Stamp> = None;
        for number in 0..self.header.entry_count {
            let head = read_entry(self.entries(), at)?;
            let restart = number % interval == 0;
            if restart && (head.shared != 0 || self.restart((number / interval) as usize) != Some(at)) {
                return Err(BlockError::Restart);
            }
            let suffix = self.slice(head.key_at..head.value_at);
            let mut next = key.get(..head.shared).ok_or(BlockError::Entry)?.to_vec();
            next.extend_from_slice(suffix);
            if let Some(last) = last {
                let order = key.cmp(&next).then(head.stamp.cmp(&last));
                if order != Ordering::Less || (!restart && shared_prefix(&key, &next) != head.shared) {
                    return Err(BlockError::Order);
                }
            }
            key = next;
            last = Some(head.stamp);
            at = head.end;
        }
        if at == self.entries_bytes {
            Ok(())
        } else {
            Err(BlockError::Entry)
        }
    }

    #[inline]
    fn entries(&self) -> &[u8] {
        self.body.get(..self.entries_bytes).unwrap_or_default()
    }

    #[inline]
    fn slice(&self, range: Range<usize>) -> &[u8] {
        self.body.get(range).unwrap_or_default()
    }

    /// Where a restart point's entry begins.
    fn restart(&self, number: usize) -> Option<usize> {
        restart_offset(&self.body, self.entries_bytes, number)
    }
}

/// Element `number` of the restart array of a body.
#[inline]
pub(crate) fn restart_offset(body: &[u8], entries_bytes: usize, number: usize) -> Option<usize> {
    let bytes = body.get(entries_bytes + 4 * number..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*bytes) as usize)
}

/// Walks over the entries of a block, in both directions. Owns its place, so it can be kept.
#[derive(Clone, Debug)]
pub struct BlockCursor {
    block: Block,
    /// Whether there is a present entry: not before the first movement, not past the ends.
    valid: bool,
    /// The present entry's number, and where it ends.
    number: u32,
    end: usize,
    key: Vec<u8>,
    stamp: Stamp,
    value: Range<usize>,
}

impl BlockCursor {
    fn new(block: Block) -> Self {
        Self {
            block,
            valid: false,
            number: 0,
            end: 0,
            key: Vec::new(),
            stamp: Stamp::newest_at(SeqNo(0)),
            value: 0..0,
        }
    }

    /// Whether the cursor stands on an entry.
    #[must_use]
    #[inline]
    pub const fn valid(&self) -> bool {
        self.valid
    }

    /// User key of the present entry.
    #[must_use]
    #[inline]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Stamp of the present entry.
    #[must_use]
    #[inline]
    pub const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Value of the present entry.
    #[must_use]
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.slice(self.value.clone())
    }

    /// Value of the present entry, sharing the block's memory.
    #[must_use]
    pub fn value_bytes(&self) -> Bytes {
        self.block.body.slice(self.value.clone())
    }

    /// To the first entry.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn first(&mut self) -> Result<(), BlockError> {
        self.restart_at(0)
    }

    /// To the last entry. Reads at most an interval of entries.
    ///
    /// # Errors
    /// If an entry on the way is malformed.
    pub fn last(&mut self) -> Result<(), BlockError> {
        self.restart_at(self.block.header.restart_count() - 1)?;
        while self.number + 1 < self.block.header.entry_count {
            self.step()?;
        }
        Ok(())
    }

    /// To the next entry; off the end after the last.
    ///
    /// # Errors
    /// If it is malformed.
    #[inline]
    pub fn forward(&mut self) -> Result<(), BlockError> {
        if !self.valid {
            return Ok(());
        }
        if self.number + 1 == self.block.header.entry_count {
            self.valid = false;
            return if self.end == self.block.entries_bytes {
                Ok(())
            } else {
                Err(BlockError::Entry)
            };
        }
        self.step()
    }

    /// To the entry before; off the end before the first. Reads at most an interval of entries.
    ///
    /// # Errors
    /// If an entry on the way is malformed.
    pub fn back(&mut self) -> Result<(), BlockError> {
        if !self.valid {
            return Ok(());
        }
        let Some(wanted) = self.number.checked_sub(1) else {
            self.valid = false;
            return Ok(());
        };
        self.restart_at((wanted / u32::from(self.block.header.restart_interval)) as usize)?;
        while self.number < wanted {
            self.step()?;
        }
        Ok(())
    }

    /// To the first entry that does not stand before (`key`, `stamp`); off the end if there is none.
    ///
    /// # Errors
    /// If an entry on the way is malformed.
    pub fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<(), BlockError> {
        // The last restart point whose entry stands before the target.
        let (mut low, mut high) = (0, self.block.header.restart_count());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let at = self.block.restart(middle).ok_or(BlockError::Restart)?;
            let head = read_entry(self.block.entries(), at)?;
            if head.shared != 0 {
                return Err(BlockError::Restart);
            }
            let there = self.block.slice(head.key_at..head.value_at);
            if there.cmp(key).then(stamp.cmp(&head.stamp)) == Ordering::Less {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.restart_at(low)?;
        while self.valid && self.key.as_slice().cmp(key).then(stamp.cmp(&self.stamp)) == Ordering::Less {
            self.forward()?;
        }
        Ok(())
    }

    fn restart_at(&mut self, restart: usize) -> Result<(), BlockError> {
        let at = self.block.restart(restart).ok_or(BlockError::Restart)?;
        self.key.clear();
        self.valid = false;
        self.number = restart as u32 * u32::from(self.block.header.restart_interval);
        self.load(at)
    }

    /// To the next entry, which is known to exist.
    #[inline]
    fn step(&mut self) -> Result<(), BlockError> {
        self.number += 1;
        self.valid = false;
        self.load(self.end)
    }

    #[inline]
    fn load(&mut self, at: usize) -> Result<(), BlockError> {
        let head = read_entry(self.block.entries(), at)?;
        if head.shared > self.key.len() {
            return Err(BlockError::Entry);
        }
        self.key.truncate(head.shared);
        self.key.extend_from_slice(
            self.block
                .body
                .get(head.key_at..head.value_at)
                .unwrap_or_default(),
        );
        self.end = head.end;
        self.stamp = head.stamp;
        self.value = head.value_at..head.end;
        self.valid = true;
        Ok(())
    }
}
