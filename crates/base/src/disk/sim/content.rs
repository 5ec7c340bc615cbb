//! One file of the simulated disk: what is durable, what the program sees, and which sectors lie between.
//!
//! A failed sync may leave sectors that the program sees but that no later sync will write, because the
//! system takes them for written: the `dropped` ones. They are gone after a crash, and as soon as the program
//! asks for what is really there.
//!
//! Invariant: wherever `durable` and `current` differ (reading zeros beyond either's end), the sector is in
//! `pending` or in `dropped`, never in both; lengths may differ without that.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use super::SECTOR_BYTES;
use crate::random::Prng;

/// The longest file. Offsets beyond it are refused, so that a wrong offset cannot take all memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// Contents of a file.
#[derive(Clone, Default)]
pub(super) struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    pending: BTreeSet<usize>,
    dropped: BTreeSet<usize>,
}

/// What a power cut did to a pending sector.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Torn,
    Flipped,
}

impl Fate {
    fn draw(prng: &mut Prng) -> Self {
        match prng.below(8) {
            0..=2 => Self::Lost,
            3..=5 => Self::Kept,
            6 => Self::Torn,
            _ => Self::Flipped,
        }
    }
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.current.len() as u64
    }

    pub(super) fn read_at(&self, out: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|start| self.current.get(start..))
            .unwrap_or(&[]);
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        count
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset
            .checked_add(bytes.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)? as usize;
        let start = end - bytes.len();
        if end > self.current.len() {
            self.current.resize(end, 0);
        }
        self.current[start..end].copy_from_slice(bytes);
        self.mark_pending(start / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES));
        Ok(())
    }

    pub(super) fn set_len(&mut self, len: u64) -> io::Result<()> {
        if len > FILE_BYTES_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = len as usize;
        // What is cut off reads as zeros if the file grows again: a pending change of those sectors.
        self.mark_pending(len / SECTOR_BYTES..self.current.len().div_ceil(SECTOR_BYTES));
        self.current.resize(len, 0);
        Ok(())
    }

    fn mark_pending(&mut self, sectors: Range<usize>) {
        for sector in sectors {
            self.dropped.remove(&sector);
            self.pending.insert(sector);
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.current.len(), 0);
        for sector in std::mem::take(&mut self.pending) {
            let range = sector_range(sector, self.current.len());
            self.durable[range.clone()].copy_from_slice(&self.current[range]);
        }
    }

    /// A sync that failed half-way: some sectors are durable; which ones, the caller cannot know. Half of the
    /// times the others are still pending, otherwise they are dropped.
    pub(super) fn sync_some(&mut self, prng: &mut Prng) {
        if self.durable.len() < self.current.len() {
            self.durable.resize(self.current.len(), 0);
        }
        let keeps_pending = prng.chance(1, 2);
        for sector in std::mem::take(&mut self.pending) {
            let range = sector_range(sector, self.current.len());
            if prng.chance(1, 2) {
                self.durable[range.clone()].copy_from_slice(&self.current[range]);
            } else if keeps_pending {
                self.pending.insert(sector);
            } else {
                self.dropped.insert(sector);
            }
        }
    }

    /// Shows what is there in place of what was dropped.
    pub(super) fn forget_cached(&mut self) {
        for sector in std::mem::take(&mut self.dropped) {
            let range = sector_range(sector, self.current.len());
            let known = sector_range(sector, self.current.len().min(self.durable.len()));
            self.current[range].fill(0);
            self.current[known.clone()].copy_from_slice(&self.durable[known]);
        }
    }

    pub(super) fn crash(&mut self, prng: &mut Prng) {
        let (old_len, new_len) = (self.durable.len(), self.current.len());
        let len = match prng.below(3) {
            0 => old_len,
            1 => new_len,
            _ => {
                let between = prng.below(old_len.abs_diff(new_len) as u64 + 1) as usize;
                old_len.min(new_len) + between
            }
        };
        self.durable.resize(len, 0);
        for sector in std::mem::take(&mut self.pending) {
            let range = sector_range(sector, len);
            // Beyond the current end a cut-off sector reads as zeros.
            let mut new = vec![0; range.len()];
            let known = sector_range(sector, new_len.min(len));
            new[..known.len()].copy_from_slice(&self.current[known]);
            let old = &mut self.durable[range];
            match Fate::draw(prng) {
                Fate::Lost => {}
                Fate::Kept => old.copy_from_slice(&new),
                Fate::Torn => {
                    let part = prng.below(new.len() as u64 + 1) as usize;
                    old[..part].copy_from_slice(&new[..part]);
                }
                Fate::Flipped => {
                    old.copy_from_slice(&new);
                    for _ in 0..=prng.below(4) {
                        let at = prng.below(old.len() as u64) as usize;
                        if let Some(byte) = old.get_mut(at) {
                            *byte ^= 1 << prng.below(8);
                        }
                    }
                }
            }
        }
        self.dropped.clear();
        self.current.clone_from(&self.durable);
    }

    pub(super) fn flip_bit(&mut self, offset: u64, bit: u8) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let byte = self.current.get_mut(at).ok_or(io::ErrorKind::InvalidInput)?;
        *byte ^= 1 << (bit % 8);
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= 1 << (bit % 8);
        }
        Ok(())
    }
}

/// Bytes of a sector, cut at the end of the file.
fn sector_range(sector: usize, len: usize) -> Range<usize> {
    let start = (sector * SECTOR_BYTES).min(len);
    start..(start + SECTOR_BYTES).min(len)
}
