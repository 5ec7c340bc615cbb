//! Collectives: calls that every rank makes, and that return what all of them gave.
//!
//! All of them are rounds. In a round each rank puts a block of at most [`BLOCK_BYTES`] into a cell at every
//! other rank, flushes, stores the cell's word, and waits for the words in its own cells. Blocks may be
//! empty: such a round is a barrier. Longer arrays take more rounds; a sum of arrays first sends each rank
//! the piece that it adds up, then the sums to all, so that every rank sends and receives each word about
//! twice, whatever the number of ranks.
//!
//! ```text
//! control window of a rank
//!   0                     table of windows: WINDOWS_MAX rows of 1 + n words: fingerprint, sizes
//!   table bytes           cells: 2 parities x n senders x (64 + BLOCK_BYTES)
//! word of a cell          epoch (16 bits) | kind (8) | round (24) | bytes (16)
//! ```
//!
//! # Invariants
//!
//! 1. A cell is not written again before it was read: who begins round r + 2 has finished r + 1, for which
//!    every other rank had finished reading r. Therefore two parities.
//! 2. A word is stored after the flush of its block: whoever sees the word sees the block.
//! 3. The epoch is the sum of all incarnations: rounds begin again at 0 when a rank has returned, and words
//!    from before are of no epoch that is waited for.
//!
//! A collective that failed leaves the ranks in different rounds; the fabric then refuses collectives until
//! the epoch changes, that is, until the rank that died has returned. The number of messages grows with the
//! square of the ranks: right for tens of them. The document's machine does the same calls by trees.
//!
//! Source: Barthels, section 4.2 (Allreduce, Scan, Alltoall, Barrier).

use std::sync::atomic::{Ordering, fence};

use crate::error::Error;
use crate::rank::{Rank, Wait};
use crate::window::WINDOWS_MAX;

/// Bytes of a cell's block.
pub const BLOCK_BYTES: usize = 4096;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;
/// Bytes before a block: its word, and the rest of the cache line.
const HEAD_BYTES: usize = 64;
const ROUND_MASK: u64 = (1 << 24) - 1;
/// Even, so that parities alternate also where rounds begin again at 1.
const ROUND_MAX: u64 = ROUND_MASK - 1;

/// Where things are in the control window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    rank_count: usize,
}

impl Layout {
    pub(crate) const fn new(rank_count: u32) -> Self {
        Self {
            rank_count: rank_count as usize,
        }
    }

    const fn row_bytes(self) -> usize {
        (1 + self.rank_count) * 8
    }

    const fn row(self, window: u32) -> usize {
        window as usize * self.row_bytes()
    }

    const fn table_bytes(self) -> usize {
        (self.row(WINDOWS_MAX)).next_multiple_of(HEAD_BYTES)
    }

    const fn cell(self, parity: usize, sender: u32) -> usize {
        self.table_bytes() + (parity * self.rank_count + sender as usize) * (HEAD_BYTES + BLOCK_BYTES)
    }

    /// Bytes of the control window.
    pub(crate) const fn bytes(self) -> usize {
        self.cell(2, 0)
    }
}

/// Where this rank is.
#[derive(Debug, Default)]
pub(crate) struct Collectives {
    epoch: u64,
    round: u64,
    /// A collective failed in this epoch.
    is_broken: bool,
}

/// Which collective a round belongs to: ranks that call different ones are told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Barrier = 1,
    AllGather = 2,
    Sum = 3,
    Scan = 4,
    AllToAll = 5,
    Broadcast = 6,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::AllGather => "all_gather",
            Self::Sum => "all_reduce_sum",
            Self::Scan => "exclusive_scan_sum",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
        }
    }
}

/// The word of a cell in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellWord {
    epoch: u64,
    kind: u64,
    round: u64,
    bytes: usize,
}

impl CellWord {
    const fn pack(self) -> u64 {
        (self.epoch & 0xffff) << 48 | self.kind << 40 | self.round << 16 | self.bytes as u64
    }

    const fn unpack(word: u64) -> Self {
        Self {
            epoch: word >> 48,
            kind: word >> 40 & 0xff,
            round: word >> 16 & ROUND_MASK,
            bytes: (word & 0xffff) as usize,
        }
    }
}

impl Rank {
    /// Returns when every rank has called it.
    ///
    /// # Errors
    ///
    /// `RankDead` with the rank, `Deadline`, `Disagreement` if another rank calls another collective,
    /// `Misuse` after a collective that failed. These are the errors of all collectives.
    pub fn barrier(&self) -> Result<(), Error> {
        self.round(Kind::Barrier, |_, _| {}, |_, _| Ok(()))
    }

    /// The words that each rank gave, by rank. Lengths may differ; at most 512 words each.
    ///
    /// # Errors
    ///
    /// As for [`Self::barrier`]; `Misuse` for too many words.
    pub fn all_gather(&self, words: &[u64]) -> Result<Vec<Vec<u64>>, Error> {
        check_block(words)?;
        let mut all: Vec<Vec<u64>> = (0..self.count()).map(|_| Vec::new()).collect();
        let mine = encode(words);
        self.round(
            Kind::AllGather,
            |_, block| block.extend_from_slice(&mine),
            |sender, block| {
                if let Some(slot) = all.get_mut(sender as usize) {
                    *slot = decode(block);
                }
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// Replaces every word by the wrapping sum of that word over all ranks. All give arrays of one length.
    ///
    /// # Errors
    ///
    /// As for [`Self::barrier`]; `Disagreement` if lengths differ.
    pub fn all_reduce_sum(&self, words: &mut [u64]) -> Result<(), Error> {
        self.check_lengths("length of the arrays that are summed", words.len())?;
        let rank_count = self.count() as usize;
        for part in words.chunks_mut(BLOCK_WORDS * rank_count) {
            let piece = part.len().div_ceil(rank_count).max(1);
            let given: Vec<Vec<u8>> = part.chunks(piece).map(encode).collect();
            let mut sums: Vec<u64> = Vec::new();
            self.round(
                Kind::Sum,
                |target, block| {
                    if let Some(bytes) = given.get(target as usize) {
                        block.extend_from_slice(bytes);
                    }
                },
                |sender, block| add_into(&mut sums, sender, block),
            )?;
            let mine = encode(&sums);
            let mut pieces: Vec<&mut [u64]> = part.chunks_mut(piece).collect();
            self.round(
                Kind::Sum,
                |_, block| block.extend_from_slice(&mine),
                |sender, block| match pieces.get_mut(sender as usize) {
                    Some(piece) => fill(piece, sender, block),
                    None => fill(&mut [], sender, block),
                },
            )?;
        }
        Ok(())
    }

    /// Replaces every word by the wrapping sum of that word over all ranks with lower numbers: 0 on rank 0.
    /// All give arrays of one length.
    ///
    /// # Errors
    ///
    /// As for [`Self::barrier`]; `Disagreement` if lengths differ.
    pub fn exclusive_scan_sum(&self, words: &mut [u64]) -> Result<(), Error> {
        self.check_lengths("length of the arrays that are scanned", words.len())?;
        let me = self.number();
        for part in words.chunks_mut(BLOCK_WORDS) {
            let mine = encode(part);
            let mut sums = vec![0_u64; part.len()];
            self.round(
                Kind::Scan,
                |target, block| {
                    if target > me {
                        block.extend_from_slice(&mine);
                    }
                },
                |sender, block| {
                    if sender < me {
                        add_into(&mut sums, sender, block)
                    } else {
                        Ok(())
                    }
                },
            )?;
            part.copy_from_slice(&sums);
        }
        Ok(())
    }

    /// Sends each rank an array of its own, `words[target]`, and returns what each rank sent here. Arrays may
    /// differ in length; at most 512 words each.
    ///
    /// # Errors
    ///
    /// As for [`Self::barrier`]; `Misuse` for another number of arrays than ranks, or too long ones.
    pub fn all_to_all(&self, words: &[Vec<u64>]) -> Result<Vec<Vec<u64>>, Error> {
        if words.len() != self.count() as usize {
            return Err(Error::misuse("all_to_all needs one array for each rank"));
        }
        for array in words {
            check_block(array)?;
        }
        let mut all: Vec<Vec<u64>> = words.iter().map(|_| Vec::new()).collect();
        self.round(
            Kind::AllToAll,
            |target, block| {
                if let Some(array) = words.get(target as usize) {
                    block.extend_from_slice(&encode(array));
                }
            },
            |sender, block| {
                if let Some(slot) = all.get_mut(sender as usize) {
                    *slot = decode(block);
                }
                Ok(())
            },
        )?;
        Ok(all)
    }

    /// Gives every rank the bytes of `root`, whatever they gave themselves.
    ///
    /// # Errors
    ///
    /// As for [`Self::barrier`]; `NoSuchRank`.
    pub fn broadcast(&self, root: u32, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.check_number(root)?;
        let is_root = self.number() == root;
        let announced = self.all_gather(&[if is_root { bytes.len() as u64 } else { 0 }])?;
        let length = announced
            .get(root as usize)
            .and_then(|words| words.first())
            .copied()
            .and_then(|length| usize::try_from(length).ok())
            .ok_or(Error::Damaged {
                rank: root,
                what: "the length of a broadcast",
            })?;
        let mut received: Vec<u8> = Vec::new();
        let mut sent = 0;
        while sent < length {
            let end = (sent + BLOCK_BYTES).min(length);
            self.round(
                Kind::Broadcast,
                |_, block| {
                    if is_root {
                        block.extend_from_slice(bytes.get(sent..end).unwrap_or_default());
                    }
                },
                |sender, block| {
                    if sender == root {
                        received.extend_from_slice(block);
                    }
                    Ok(())
                },
            )?;
            sent = end;
        }
        if received.len() != length {
            return Err(Error::Damaged {
                rank: root,
                what: "the bytes of a broadcast",
            });
        }
        *bytes = received;
        Ok(())
    }

    fn check_lengths(&self, what: &str, length: usize) -> Result<(), Error> {
        let ours = length as u64;
        for (rank, words) in (0_u32..).zip(self.all_gather(&[ours])?) {
            let theirs = words.first().copied().unwrap_or(0);
            if theirs != ours {
                return Err(Error::Disagreement {
                    what: what.to_owned(),
                    rank,
                    ours,
                    theirs,
                });
            }
        }
        Ok(())
    }

    /// One round. `give` fills the block for a target, at most [`BLOCK_BYTES`]; `take` gets the block of each
    /// sender, this rank's own included, by the order of arrival.
    fn round(
        &self,
        kind: Kind,
        give: impl Fn(u32, &mut Vec<u8>),
        mut take: impl FnMut(u32, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.inner.collectives.lock();
        let lives = self.lives();
        let epoch = lives.iter().map(|life| u64::from(*life)).sum();
        if epoch != state.epoch {
            *state = Collectives {
                epoch,
                ..Collectives::default()
            };
        }
        if state.is_broken {
            return Err(Error::misuse(
                "a collective has failed before, and the rank that it failed for has not returned",
            ));
        }
        // Round 0 is never used, so that a cell of zeros is no round.
        state.round = state.round % ROUND_MAX + 1;
        let round = state.round;
        let result = self
            .give_blocks(kind, epoch, round, give, &mut take)
            .and_then(|()| self.take_blocks(kind, epoch, round, &lives, take));
        state.is_broken = result.is_err();
        result
    }

    fn give_blocks(
        &self,
        kind: Kind,
        epoch: u64,
        round: u64,
        give: impl Fn(u32, &mut Vec<u8>),
        take: &mut impl FnMut(u32, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (me, count) = (self.number(), self.count());
        let control = &self.inner.control;
        let cell = self.inner.layout.cell(parity(round), me);
        let mut block = Vec::new();
        give(me, &mut block);
        take(me, &block)?;
        let mut words = Vec::with_capacity(count as usize);
        // Each rank begins with its right neighbour, so that they do not all write to one at a time.
        for target in (1..count).map(|step| (me + step) % count) {
            block.clear();
            give(target, &mut block);
            debug_assert!(block.len() <= BLOCK_BYTES);
            if !block.is_empty() {
                control.put(target, cell + HEAD_BYTES, &block)?;
            }
            words.push((target, block.len()));
        }
        if words.iter().any(|(_, bytes)| *bytes > 0) {
            control.flush_all()?;
        }
        for (target, bytes) in words {
            let word = CellWord {
                epoch,
                kind: kind as u64,
                round,
                bytes,
            };
            control.store(target, cell, word.pack())?;
        }
        Ok(())
    }

    fn take_blocks(
        &self,
        kind: Kind,
        epoch: u64,
        round: u64,
        lives: &[u32],
        mut take: impl FnMut(u32, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (me, count) = (self.number(), self.count());
        let (control, layout) = (&self.inner.control, self.inner.layout);
        let mut missing: Vec<u32> = (1..count).map(|step| (me + step) % count).collect();
        let mut block = Vec::new();
        let mut wait = Wait::default();
        loop {
            // Asked before the look: a rank that has gone may have done its part before.
            let dead = missing
                .iter()
                .copied()
                .find(|sender| self.check_alive(*sender, kind.name()).is_err());
            let mut left = Vec::with_capacity(missing.len());
            for sender in missing {
                let cell = layout.cell(parity(round), sender);
                let word = CellWord::unpack(control.local_load(cell));
                if word.epoch != epoch & 0xffff || word.round != round {
                    left.push(sender);
                    continue;
                }
                check_word(word, kind, sender)?;
                block.resize(word.bytes, 0);
                control.local_read(cell + HEAD_BYTES, &mut block);
                take(sender, &block)?;
            }
            missing = left;
            // A rank that has returned, and others that saw it, may write over blocks that were read here.
            fence(Ordering::Acquire);
            let now = self.lives();
            let returned = (0_u32..)
                .zip(lives.iter().zip(&now))
                .find(|(_, (life, now))| life != now);
            if let Some((rank, _)) = returned {
                return Err(Error::RankDead {
                    rank,
                    during: kind.name(),
                });
            }
            let Some(needed) = missing.first().copied() else {
                return Ok(());
            };
            if let Some(dead) = dead.filter(|dead| missing.contains(dead)) {
                self.check_alive(dead, kind.name())?;
            }
            wait.turn(self, self.timeout(), kind.name(), Some(needed))?;
        }
    }

    /// The incarnations of all ranks.
    fn lives(&self) -> Vec<u32> {
        let transport = &self.inner.transport;
        (0..self.count())
            .map(|rank| transport.presence(rank).incarnation)
            .collect()
    }

    /// Writes a row of the table of windows; fingerprint 0 for none.
    pub(crate) fn write_table(&self, window: u32, print: u64, sizes: &[u64]) {
        let row = self.inner.layout.row(window);
        self.inner.control.local_write(row + 8, &encode(sizes));
        self.inner.control.local_write(row, &print.to_ne_bytes());
    }

    /// Another rank's row, if it has the window.
    pub(crate) fn read_table(&self, rank: u32, window: u32) -> Result<Option<(u64, Vec<u64>)>, Error> {
        let row = self.inner.layout.row(window);
        // The fingerprint was written last: where it is seen, the sizes are whole.
        if self.inner.control.load(rank, row)? == 0 {
            return Ok(None);
        }
        let mut bytes = vec![0_u8; self.inner.layout.row_bytes()];
        // SAFETY: the bytes are ours until the flush has returned, and nobody looks at them before. If the
        // flush fails they are never freed.
        let read = unsafe {
            self.inner
                .control
                .get_in_place(rank, row, bytes.as_mut_ptr(), bytes.len())
        };
        if let Err(error) = read.and_then(|()| self.inner.control.flush(rank)) {
            std::mem::forget(bytes);
            return Err(error);
        }
        let mut words = decode(&bytes).into_iter();
        let print = words.next().unwrap_or(0);
        Ok((print != 0).then(|| (print, words.collect())))
    }
}

const fn parity(round: u64) -> usize {
    (round % 2) as usize
}

fn check_word(word: CellWord, kind: Kind, sender: u32) -> Result<(), Error> {
    if word.kind != kind as u64 {
        return Err(Error::Disagreement {
            what: format!("collective: {} here", kind.name()),
            rank: sender,
            ours: kind as u64,
            theirs: word.kind,
        });
    }
    if word.bytes > BLOCK_BYTES {
        return Err(Error::Damaged {
            rank: sender,
            what: "the length of a block",
        });
    }
    Ok(())
}

fn check_block(words: &[u64]) -> Result<(), Error> {
    if words.len() <= BLOCK_WORDS {
        Ok(())
    } else {
        Err(Error::misuse(format!(
            "{} words are more than the {BLOCK_WORDS} of a block",
            words.len()
        )))
    }
}

fn encode(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn decode(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Adds a block's words; the first block gives the length.
fn add_into(sums: &mut Vec<u64>, sender: u32, block: &[u8]) -> Result<(), Error> {
    let words = decode(block);
    if sums.is_empty() {
        sums.resize(words.len(), 0);
    }
    if words.len() != sums.len() {
        return Err(Error::Damaged {
            rank: sender,
            what: "the number of words to add",
        });
    }
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum = sum.wrapping_add(word);
    }
    Ok(())
}

fn fill(piece: &mut [u64], sender: u32, block: &[u8]) -> Result<(), Error> {
    let words = decode(block);
    if words.len() != piece.len() {
        return Err(Error::Damaged {
            rank: sender,
            what: "the number of sums",
        });
    }
    piece.copy_from_slice(&words);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_word_comes_apart_as_it_was_put_together() {
        let word = CellWord {
            epoch: 0xabcd,
            kind: Kind::Broadcast as u64,
            round: ROUND_MAX,
            bytes: BLOCK_BYTES,
        };
        assert_eq!(CellWord::unpack(word.pack()), word);
        assert_eq!(CellWord::unpack(0).round, 0, "no round");
    }

    #[test]
    fn parities_alternate_also_where_rounds_begin_again() {
        crate::Threads::run(2, |rank| {
            rank.inner.collectives.lock().round = ROUND_MAX - 2;
            for number in 0..6 {
                let all = rank.all_gather(&[number, u64::from(rank.number())]).unwrap();
                assert_eq!(all, [[number, 0], [number, 1]]);
            }
            assert_eq!(rank.inner.collectives.lock().round, 4);
        })
        .unwrap();
        assert_ne!(parity(ROUND_MAX), parity(1));
    }

    #[test]
    fn cells_do_not_overlap_and_fill_the_window() {
        let layout = Layout::new(3);
        let mut ends = layout.table_bytes();
        for parity in 0..2 {
            for sender in 0..3 {
                assert_eq!(layout.cell(parity, sender), ends);
                assert_eq!(ends % HEAD_BYTES, 0);
                ends += HEAD_BYTES + BLOCK_BYTES;
            }
        }
        assert_eq!(layout.bytes(), ends);
    }
}
