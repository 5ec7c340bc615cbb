//! One run's entries, one after the other, decoded in place.
//!
//! A reader knows of each entry how many bytes its key shares with the key before it in the run: the block
//! says so, and at restart points the reader compares. So it checks that entries ascend with one comparison
//! of bytes, and the number is what the merge's order starts from.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{MergeError, Run};
use crate::block::{BLOCK_HEADER_BYTES, BlockError, BlockHeader};
use crate::block::{BlockDecompressor, read_entry, restart_offset};
use crate::key::{SeqNo, Stamp, shared_prefix};

/// Stands on an entry of its run within the task's bounds.
pub(super) struct RunReader<'a> {
    number: usize,
    blocks: std::slice::Iter<'a, Bytes>,
    upper: Option<&'a [u8]>,
    /// Whether an entry before the next restart point may lie behind the upper bound.
    may_pass: bool,
    /// Blocks opened so far.
    opened: usize,
    /// The present block's body as stored; if that is compressed, `scratch` has it as it was.
    stored: &'a [u8],
    scratch: Vec<u8>,
    is_compressed: bool,
    decompressor: BlockDecompressor,
    interval: u32,
    entries_bytes: usize,
    /// Where the next entry begins.
    next_at: usize,
    /// Entries of the present block that are still to be read, and those until the next restart point.
    left: u32,
    until_restart: u32,
    restart: usize,
    key: Vec<u8>,
    stamp: Stamp,
    value: (usize, usize),
    shared: usize,
    /// Whether an entry was read at all.
    started: bool,
}

impl<'a> RunReader<'a> {
    /// A reader on the first entry within the bounds; `None` if there is none.
    pub(super) fn open(
        number: usize,
        run: &'a Run,
        lower: Option<&[u8]>,
        upper: Option<&'a [u8]>,
    ) -> Result<Option<Self>, MergeError> {
        let mut reader = Self {
            number,
            blocks: run.blocks.iter(),
            upper,
            may_pass: true,
            opened: 0,
            stored: &[],
            scratch: Vec::new(),
            is_compressed: false,
            decompressor: BlockDecompressor::default(),
            interval: 1,
            entries_bytes: 0,
            next_at: 0,
            left: 0,
            until_restart: 0,
            restart: 0,
            key: Vec::new(),
            stamp: Stamp::newest_at(SeqNo::MAX),
            value: (0, 0),
            shared: 0,
            started: false,
        };
        while reader.advance()? {
            if lower.is_none_or(|lower| reader.key.as_slice() >= lower) {
                return Ok(Some(reader));
            }
        }
        Ok(None)
    }

    #[inline(always)]
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline(always)]
    pub(super) const fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Number of the block in which the present entry stands.
    #[inline(always)]
    pub(super) const fn block(&self) -> usize {
        self.opened.saturating_sub(1)
    }

    /// Entries behind the present one in its block.
    #[inline(always)]
    pub(super) const fn entries_left(&self) -> u32 {
        self.left
    }

    /// Bytes that the present key shares with the key before it in the run.
    #[inline(always)]
    pub(super) const fn shared(&self) -> usize {
        self.shared
    }

    #[inline(always)]
    pub(super) fn value(&self) -> &[u8] {
        self.body().get(self.value.0..self.value.1).unwrap_or_default()
    }

    #[inline(always)]
    fn body(&self) -> &[u8] {
        if self.is_compressed {
            &self.scratch
        } else {
            self.stored
        }
    }

    /// To the next entry; `false` if none is left within the bounds.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> Result<bool, MergeError> {
        if self.left == 0 && !self.next_block()? {
            return Ok(false);
        }
        if let Err(error) = self.read() {
            return Err(self.error(error));
        }
        Ok(!self.may_pass || self.upper.is_none_or(|upper| self.key.as_slice() < upper))
    }

    #[inline(always)]
    fn read(&mut self) -> Result<(), BlockError> {
        let body = if self.is_compressed {
            &self.scratch
        } else {
            self.stored
        };
        let entries = body.get(..self.entries_bytes).ok_or(BlockError::Header)?;
        let head = read_entry(entries, self.next_at)?;
        // `read_entry` has checked these bounds.
        let suffix = entries.get(head.key_at..head.value_at).unwrap_or_default();
        if self.until_restart == 0 {
            if head.shared != 0
                || restart_offset(body, self.entries_bytes, self.restart) != Some(self.next_at)
            {
                return Err(BlockError::Restart);
            }
            self.until_restart = self.interval;
            self.restart += 1;
            self.may_pass = match (self.upper, restart_offset(body, self.entries_bytes, self.restart)) {
                // Entries ascend, so those before the next restart point stand below its key.
                (Some(upper), Some(next)) if self.left > self.interval => {
                    let head = read_entry(entries, next)?;
                    entries
                        .get(head.key_at..head.value_at)
                        .is_none_or(|key| key >= upper)
                }
                (upper, _) => upper.is_some(),
            };
            self.shared = shared_prefix(&self.key, suffix);
            let order = suffix.get(self.shared..).unwrap_or_default();
            Self::check_order(
                &self.key,
                self.shared,
                order,
                self.stamp,
                head.stamp,
                self.started,
            )?;
            self.key.truncate(self.shared);
            self.key.extend_from_slice(order);
        } else {
            if head.shared > self.key.len() {
                return Err(BlockError::Entry);
            }
            Self::check_order(
                &self.key,
                head.shared,
                suffix,
                self.stamp,
                head.stamp,
                self.started,
            )?;
            self.shared = head.shared;
            self.key.truncate(head.shared);
            self.key.extend_from_slice(suffix);
        }
        self.started = true;
        self.until_restart -= 1;
        self.left -= 1;
        self.stamp = head.stamp;
        self.value = (head.value_at, head.end);
        self.next_at = head.end;
        Ok(())
    }

    /// Whether the key that shares `shared` bytes with `key` and goes on with `suffix` stands behind it. As
    /// `shared` is as long as it can be, the first bytes that differ decide.
    #[inline(always)]
    fn check_order(
        key: &[u8],
        shared: usize,
        suffix: &[u8],
        before: Stamp,
        stamp: Stamp,
        started: bool,
    ) -> Result<(), BlockError> {
        let ascends = match (key.get(shared), suffix.first()) {
            (Some(old), Some(new)) => old < new,
            (None, Some(_)) => true,
            (None, None) => stamp < before || !started,
            (Some(_), None) => false,
        };
        if ascends { Ok(()) } else { Err(BlockError::Order) }
    }

    #[cold]
    fn next_block(&mut self) -> Result<bool, MergeError> {
        if self.next_at != self.entries_bytes {
            return Err(self.error(BlockError::Entry));
        }
        let Some(stored) = self.blocks.next() else {
            return Ok(false);
        };
        self.opened += 1;
        if let Err(error) = self.open_block(stored) {
            return Err(self.error(error));
        }
        Ok(true)
    }

    fn open_block(&mut self, stored: &'a [u8]) -> Result<(), BlockError> {
        let header = BlockHeader::read(stored)?;
        self.stored = stored.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
        self.is_compressed = header.is_compressed();
        if self.is_compressed {
            self.scratch.resize(header.body_bytes as usize, 0);
            self.decompressor
                .decompress(header.compression, self.stored, &mut self.scratch)?;
        }
        self.interval = u32::from(header.restart_interval);
        self.entries_bytes = header.entries_bytes()?;
        self.left = header.entry_count;
        self.next_at = 0;
        self.until_restart = 0;
        self.restart = 0;
        Ok(())
    }

    fn error(&self, error: BlockError) -> MergeError {
        MergeError::Block {
            run: self.number,
            block: self.block(),
            error,
        }
    }

    /// The order of two readers whose keys are known to share `shared` bytes; also how many they share.
    #[inline]
    pub(super) fn compare(&self, other: &Self, shared: usize) -> (Ordering, usize) {
        let rest = self.key.get(shared..).unwrap_or_default();
        let other_rest = other.key.get(shared..).unwrap_or_default();
        let more = shared_prefix(rest, other_rest);
        let order = rest.get(more).cmp(&other_rest.get(more));
        let order = order
            .then_with(|| other.stamp.cmp(&self.stamp))
            .then_with(|| self.number.cmp(&other.number));
        (order, shared + more)
    }
}
