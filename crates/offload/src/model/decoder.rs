//! Decoder: a run's blocks from memory into pairs in a ring.
//!
//! ```text
//! fetch:  idle --> reading --> unpacking (LZ4) --> ready --> idle        one block ahead of the decode
//! decode: no block --> next pair (waits while half full) --> parsing --> next pair
//!                                                             last pair of the run, or upper bound --> ended
//! ```
//!
//! The decoder reads entries by the format's page alone (`docs/formats/block.md`) and checks what the format
//! promises: lengths, restart points, order. It drops what lies below the task's lower bound and stops at
//! the upper.
//!
//! Source: X-DB, "FPGA-based Compaction", Decoder.

use std::collections::VecDeque;

use bytes::Bytes;
use weft_ops::block::{BLOCK_HEADER_BYTES, BlockHeader, Compression};
use weft_ops::key::{KEY_BYTES_MAX, Stamp, VALUE_BYTES_MAX};

use super::memory::Memory;
use super::ring::{Pair, Ring};
use super::{ModelParams, Stop, cycles_for};

/// A body in the decoder's block memory.
struct Body {
    bytes: Bytes,
    entries_bytes: usize,
    interval: u32,
    entry_count: u32,
}

enum Fetch {
    Idle,
    Reading(Bytes),
    Unpacking { left: u64, body: Body },
    Ready(Body),
    Ended,
}

enum Decode {
    NoBlock,
    NextPair,
    Parsing { left: u64, pair: Pair },
    Ended,
}

/// An entry's numbers, and where its bytes are.
struct Head {
    shared: usize,
    stamp: Stamp,
    key_at: usize,
    value_at: usize,
    end: usize,
}

pub(super) struct Decoder {
    /// Which run, and which stream of the memory.
    number: usize,
    params: ModelParams,
    lower: Option<Bytes>,
    upper: Option<Bytes>,
    blocks: VecDeque<Bytes>,
    fetch: Fetch,
    decode: Decode,
    body: Option<Body>,
    /// Entries of the body read so far, and where the next one begins.
    entry: u32,
    at: usize,
    /// The entry before, in the whole run.
    before: Option<(Vec<u8>, Stamp)>,
    /// Cycles in which the ring was more than half full.
    pub(super) stall_cycles: u64,
}

impl Decoder {
    pub(super) fn new(
        number: usize,
        params: ModelParams,
        blocks: &[Bytes],
        lower: Option<Bytes>,
        upper: Option<Bytes>,
    ) -> Decoder {
        Decoder {
            number,
            params,
            lower,
            upper,
            blocks: blocks.iter().cloned().collect(),
            fetch: Fetch::Idle,
            decode: Decode::NoBlock,
            body: None,
            entry: 0,
            at: 0,
            before: None,
            stall_cycles: 0,
        }
    }

    /// Nothing more will come into the ring.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.decode, Decode::Ended)
    }

    pub(super) fn step(&mut self, ring: &mut Ring, memory: &mut Memory, now: u64) -> Result<(), Stop> {
        self.step_fetch(memory, now)?;
        match std::mem::replace(&mut self.decode, Decode::NoBlock) {
            Decode::Ended => self.decode = Decode::Ended,
            Decode::NoBlock => match std::mem::replace(&mut self.fetch, Fetch::Idle) {
                Fetch::Ready(body) => {
                    self.body = Some(body);
                    self.entry = 0;
                    self.at = 0;
                    self.decode = Decode::NextPair;
                }
                Fetch::Ended => self.decode = Decode::Ended,
                busy => self.fetch = busy,
            },
            Decode::NextPair if ring.flags().half_full => {
                self.stall_cycles += 1;
                self.decode = Decode::NextPair;
            }
            Decode::NextPair => self.decode = self.parse()?,
            Decode::Parsing { left, pair } if left > 1 => {
                self.decode = Decode::Parsing { left: left - 1, pair };
            }
            Decode::Parsing { pair, .. } => self.decode = self.hand_over(pair, ring)?,
        }
        Ok(())
    }

    fn step_fetch(&mut self, memory: &mut Memory, now: u64) -> Result<(), Stop> {
        self.fetch = match std::mem::replace(&mut self.fetch, Fetch::Ended) {
            Fetch::Idle => match self.blocks.pop_front() {
                Some(block) => {
                    memory.request(self.number, block.len(), now);
                    Fetch::Reading(block)
                }
                None => Fetch::Ended,
            },
            Fetch::Reading(block) if memory.is_done(self.number) => self.open(&block)?,
            Fetch::Unpacking { left, body } if left > 1 => Fetch::Unpacking { left: left - 1, body },
            Fetch::Unpacking { body, .. } => Fetch::Ready(body),
            same => same,
        };
        Ok(())
    }

    /// A block has arrived; its checksum was computed on the way.
    fn open(&self, stored: &Bytes) -> Result<Fetch, Stop> {
        let bad = |error| self.invalid(error);
        let header = BlockHeader::read(stored).map_err(|error| bad(error.to_string()))?;
        let entries_bytes = header.entries_bytes().map_err(|error| bad(error.to_string()))?;
        let packed = stored.slice(BLOCK_HEADER_BYTES..);
        let body_bytes = header.body_bytes as usize;
        let (bytes, left) = match header.compression {
            Compression::None => (packed, 0),
            Compression::Lz4 => {
                let mut body = vec![0; body_bytes];
                let filled = lz4_flex::block::decompress_into(&packed, &mut body).ok();
                if filled != Some(body_bytes) {
                    return Err(bad("cannot be decompressed".to_owned()));
                }
                (
                    Bytes::from(body),
                    cycles_for(body_bytes, self.params.unpack_bytes),
                )
            }
            Compression::Zstd => return Err(Stop::BeyondLimits),
        };
        let body = Body {
            bytes,
            entries_bytes,
            interval: u32::from(header.restart_interval),
            entry_count: header.entry_count,
        };
        Ok(if left == 0 {
            Fetch::Ready(body)
        } else {
            Fetch::Unpacking { left, body }
        })
    }

    /// Starts on the next entry of the body.
    fn parse(&mut self) -> Result<Decode, Stop> {
        let Some(body) = &self.body else {
            return Ok(Decode::NoBlock);
        };
        if self.entry == body.entry_count {
            if self.at != body.entries_bytes {
                return Err(self.invalid("entries end elsewhere".to_owned()));
            }
            self.body = None;
            return Ok(Decode::NoBlock);
        }
        let entries = body.bytes.get(..body.entries_bytes).unwrap_or_default();
        let head = read_head(entries, self.at).ok_or_else(|| self.invalid("malformed entry".to_owned()))?;
        let is_restart = self.entry.is_multiple_of(body.interval);
        if is_restart {
            let slot = body.entries_bytes + 4 * (self.entry / body.interval) as usize;
            let stored = body.bytes.get(slot..).and_then(|rest| rest.first_chunk::<4>());
            let stored = stored.map(|bytes| u32::from_le_bytes(*bytes) as usize);
            if head.shared != 0 || stored != Some(self.at) {
                return Err(self.invalid("restart array disagrees".to_owned()));
            }
        }
        let suffix = entries.get(head.key_at..head.value_at).unwrap_or_default();
        let empty: &[u8] = &[];
        let before = self.before.as_ref().map_or(empty, |(key, _)| key.as_slice());
        let Some(start) = before.get(..head.shared) else {
            return Err(self.invalid("shares more than there is".to_owned()));
        };
        let mut key = start.to_vec();
        key.extend_from_slice(suffix);
        // A prefix that is shorter than it could be would make other bytes of the same entries.
        let exact = is_restart
            || before
                .get(head.shared)
                .is_none_or(|next| suffix.first() != Some(next));
        let ascends = self
            .before
            .as_ref()
            .is_none_or(|(before, stamp)| before < &key || (*before == key && head.stamp < *stamp));
        if !exact || !ascends {
            return Err(self.invalid("entries are out of order".to_owned()));
        }
        let value = body.bytes.slice(head.value_at..head.end);
        if key.len() > self.params.key_bytes_max as usize
            || value.len() > self.params.value_bytes_max as usize
        {
            return Err(Stop::BeyondLimits);
        }
        let left = cycles_for(head.end - self.at, self.params.decode_bytes);
        self.entry += 1;
        self.at = head.end;
        self.before = Some((key.clone(), head.stamp));
        let pair = Pair {
            key,
            stamp: head.stamp,
            value,
        };
        Ok(Decode::Parsing { left, pair })
    }

    /// A pair is decoded: into the ring, unless it lies outside of the bounds.
    fn hand_over(&mut self, pair: Pair, ring: &mut Ring) -> Result<Decode, Stop> {
        if self.upper.as_ref().is_some_and(|upper| pair.key >= *upper) {
            self.blocks.clear();
            return Ok(Decode::Ended);
        }
        if self.lower.as_ref().is_none_or(|lower| pair.key >= *lower) && !ring.push(pair) {
            return Err(Stop::Broken("a decoder's ring overflowed"));
        }
        Ok(Decode::NextPair)
    }

    fn invalid(&self, why: String) -> Stop {
        Stop::Invalid(format!("a block of run {}: {why}", self.number))
    }
}

/// Reads the numbers of the entry at `at`. `None` if any is malformed or reaches beyond the entries.
fn read_head(entries: &[u8], at: usize) -> Option<Head> {
    let (shared, at) = read_varint(entries, at)?;
    let (unshared, at) = read_varint(entries, at)?;
    let (value_bytes, at) = read_varint(entries, at)?;
    let stamp = entries.get(at..)?.first_chunk::<8>()?;
    let stamp = Stamp::from_u64(u64::from_le_bytes(*stamp))?;
    if shared.checked_add(unshared)? > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
        return None;
    }
    let key_at = at + 8;
    let value_at = key_at + unshared;
    let end = value_at + value_bytes;
    (end <= entries.len()).then_some(Head {
        shared,
        stamp,
        key_at,
        value_at,
        end,
    })
}

/// A varint of at most five bytes, in its shortest form; the number and where the next byte is.
fn read_varint(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut value = 0;
    for (i, &byte) in bytes.get(at..)?.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return (byte != 0 || i == 0).then_some((value, at + i + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at in 0_usize..40) {
            if let Some(head) = read_head(&bytes, at) {
                prop_assert!(at < head.key_at && head.key_at <= head.value_at && head.end <= bytes.len());
            }
        }
    }

    #[test]
    fn long_forms_are_refused() {
        assert_eq!(read_varint(&[0x80, 0], 0), None);
        assert_eq!(read_varint(&[0x80, 1], 0), Some((128, 2)));
        assert_eq!(read_varint(&[0x80; 9], 0), None);
    }
}
