//! KV ring buffer: decoded pairs between two modules that do not run at the same speed.
//!
//! Invariants: the writer starts a pair only while `half_full` is low, and a pair is at most half of the ring
//! ([`super::ModelParams::check`]), so a pair that was started always fits; `full` is never exceeded.
//!
//! Source: X-DB, "FPGA-based Compaction", KV Ring Buffer: read and write indicators, FLAG_EMPTY,
//! FLAG_HALF_FULL, FLAG_FULL.

use std::collections::VecDeque;

use bytes::Bytes;
use weft_ops::key::Stamp;

/// A decoded pair.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: Vec<u8>,
    pub(super) stamp: Stamp,
    pub(super) value: Bytes,
}

/// Bytes that a pair takes beside key and value: stamp and lengths.
pub(super) const PAIR_HEAD_BYTES: usize = 16;

impl Pair {
    pub(super) fn bytes(&self) -> usize {
        PAIR_HEAD_BYTES + self.key.len() + self.value.len()
    }
}

/// The three signals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flags {
    pub(super) empty: bool,
    pub(super) half_full: bool,
    pub(super) full: bool,
}

pub(super) struct Ring {
    pairs: VecDeque<Pair>,
    capacity: usize,
    /// Read and write indicators, in bytes since the start; their difference is what is held.
    read: u64,
    write: u64,
}

impl Ring {
    pub(super) fn new(capacity: u32) -> Ring {
        Ring {
            pairs: VecDeque::new(),
            capacity: capacity as usize,
            read: 0,
            write: 0,
        }
    }

    pub(super) fn flags(&self) -> Flags {
        let held = (self.write - self.read) as usize;
        Flags {
            empty: held == 0,
            half_full: held * 2 > self.capacity,
            full: held >= self.capacity,
        }
    }

    /// Moves the write indicator. False, and the pair is lost, when it does not fit: a fault of the design.
    pub(super) fn push(&mut self, pair: Pair) -> bool {
        let held = (self.write - self.read) as usize;
        if self.flags().full || held + pair.bytes() > self.capacity {
            return false;
        }
        self.write += pair.bytes() as u64;
        self.pairs.push_back(pair);
        true
    }

    /// The pair at the read indicator.
    pub(super) fn front(&self) -> Option<&Pair> {
        self.pairs.front()
    }

    /// Moves the read indicator.
    pub(super) fn pop(&mut self) -> Option<Pair> {
        let pair = self.pairs.pop_front()?;
        self.read += pair.bytes() as u64;
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ops::key::{EntryKind, SeqNo};

    fn pair(value_bytes: usize) -> Pair {
        Pair {
            key: vec![1; 4],
            stamp: Stamp::new(SeqNo(1), EntryKind::Value),
            value: vec![0; value_bytes].into(),
        }
    }

    #[test]
    fn flags_follow_the_indicators() {
        let mut ring = Ring::new(200);
        let flags = |ring: &Ring| (ring.flags().empty, ring.flags().half_full, ring.flags().full);
        assert_eq!(flags(&ring), (true, false, false));
        assert!(ring.push(pair(80)));
        assert_eq!(flags(&ring), (false, false, false));
        assert!(ring.push(pair(80)));
        assert_eq!(flags(&ring), (false, true, true));
        assert!(!ring.push(pair(0)));
        assert_eq!(ring.pop().map(|pair| pair.bytes()), Some(100));
        assert!(!ring.push(pair(81)), "one byte too many");
        assert!(ring.front().is_some());
        ring.pop();
        assert_eq!(flags(&ring), (true, false, false));
        assert!(ring.pop().is_none());
    }
}
