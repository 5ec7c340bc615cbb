//! Compaction PE: which of the keys in the key buffer comes first.
//!
//! Neighbours are compared in pairs, then the winners, as a tree: the pairs of one level at the same time,
//! each a stated number of bytes a cycle up to the first that differs. The winner is then compared with the
//! key that won before, so that the controller knows versions of one key.
//!
//! Source: X-DB, "FPGA-based Compaction", Compaction PE.

use std::cmp::Ordering;

use super::transfer::{KeyBuffer, KeySlot};

/// What the PE tells the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    /// The way whose key is first.
    pub(super) way: usize,
    /// It is the key that won before.
    pub(super) same_key: bool,
}

pub(super) struct ComparePe {
    width: usize,
    busy: Option<(u64, Verdict)>,
    last_key: Option<Vec<u8>>,
    pub(super) busy_cycles: u64,
}

impl ComparePe {
    pub(super) fn new(bytes_per_cycle: u32) -> ComparePe {
        ComparePe {
            width: bytes_per_cycle as usize,
            busy: None,
            last_key: None,
            busy_cycles: 0,
        }
    }

    /// Cycles to compare two byte strings, and how they compare.
    fn compare(&self, a: &[u8], b: &[u8]) -> (u64, Ordering) {
        let common = a.iter().zip(b).take_while(|(x, y)| x == y).count();
        let order = a.get(common).cmp(&b.get(common));
        ((common / self.width.max(1)) as u64 + 1, order)
    }

    /// Starts on the keys that are in the buffer. False if there is none.
    pub(super) fn start(&mut self, keys: &KeyBuffer) -> bool {
        let slots = keys.slots.iter().enumerate();
        let mut level: Vec<(usize, &KeySlot)> = slots
            .filter_map(|(way, slot)| slot.as_ref().map(|slot| (way, slot)))
            .collect();
        let mut cycles = 0;
        while level.len() > 1 {
            let mut slowest = 0;
            let mut winners = Vec::with_capacity(level.len().div_ceil(2));
            for pair in level.chunks(2) {
                match pair {
                    [a, b] => {
                        let (took, order) = self.compare(&a.1.key, &b.1.key);
                        slowest = slowest.max(took);
                        // Newer first, then the lower way.
                        let order = order.then(b.1.stamp.cmp(&a.1.stamp)).then(a.0.cmp(&b.0));
                        winners.push(if order == Ordering::Greater { *b } else { *a });
                    }
                    alone => winners.extend_from_slice(alone),
                }
            }
            cycles += slowest;
            level = winners;
        }
        let Some((way, winner)) = level.first() else {
            return false;
        };
        let (took, order) = match &self.last_key {
            Some(last) => self.compare(last, &winner.key),
            None => (1, Ordering::Less),
        };
        let same_key = order == Ordering::Equal;
        let verdict = Verdict { way: *way, same_key };
        if !same_key {
            self.last_key = Some(winner.key.clone());
        }
        self.busy = Some((cycles + took, verdict));
        true
    }

    /// One cycle; the verdict when it is reached.
    pub(super) fn step(&mut self) -> Option<Verdict> {
        let (left, verdict) = self.busy?;
        self.busy_cycles += 1;
        if left > 1 {
            self.busy = Some((left - 1, verdict));
            return None;
        }
        self.busy = None;
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ops::key::{EntryKind, SeqNo, Stamp};

    fn slot(key: &[u8], seqno: u64) -> Option<KeySlot> {
        let stamp = Stamp::new(SeqNo(seqno), EntryKind::Value);
        let key = key.to_vec();
        Some(KeySlot { key, stamp })
    }

    fn run(pe: &mut ComparePe, slots: Vec<Option<KeySlot>>) -> (Verdict, u64) {
        assert!(pe.start(&KeyBuffer { slots }));
        let before = pe.busy_cycles;
        loop {
            if let Some(verdict) = pe.step() {
                return (verdict, pe.busy_cycles - before);
            }
        }
    }

    #[test]
    fn the_smallest_key_wins_then_the_newest_then_the_lower_way() {
        let mut pe = ComparePe::new(4);
        let (verdict, _) = run(&mut pe, vec![slot(b"b", 9), slot(b"a", 1), None, slot(b"a", 2)]);
        assert_eq!((verdict.way, verdict.same_key), (3, false));
        let (verdict, _) = run(&mut pe, vec![slot(b"b", 9), slot(b"a", 1), None, slot(b"a", 1)]);
        assert_eq!((verdict.way, verdict.same_key), (1, true));
        let (verdict, _) = run(&mut pe, vec![slot(b"b", 9), slot(b"aa", 1), None, None]);
        assert_eq!((verdict.way, verdict.same_key), (1, false));
        assert!(!pe.start(&KeyBuffer { slots: vec![None] }));
    }

    #[test]
    fn longer_common_prefixes_take_longer() {
        let cycles = |common: usize| {
            let mut pe = ComparePe::new(8);
            let key = |last: u8| [vec![7; common], vec![last]].concat();
            run(&mut pe, vec![slot(&key(1), 1), slot(&key(2), 1)]).1
        };
        assert_eq!((cycles(0), cycles(7), cycles(8), cycles(64)), (2, 2, 3, 10));
    }
}
