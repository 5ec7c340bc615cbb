//! KV transfer and key buffer: keys to where they are compared, chosen pairs to where they are encoded.
//!
//! Two channels. The *key channel* fills empty slots of the key buffer from the pairs at the rings' read
//! indicators, one way after the other; values stay where they are. The *pair channel* moves the pair that
//! the controller names into the encoding ring; a pair that is dropped only moves the read indicator.
//!
//! Source: X-DB, "FPGA-based Compaction", KV Transfer and Key Buffer.

use weft_ops::key::Stamp;

use super::ring::{Pair, Ring};
use super::{Stop, cycles_for};

/// A key to be compared.
#[derive(Clone, Debug)]
pub(super) struct KeySlot {
    pub(super) key: Vec<u8>,
    pub(super) stamp: Stamp,
}

/// A slot for each way.
pub(super) struct KeyBuffer {
    pub(super) slots: Vec<Option<KeySlot>>,
}

pub(super) struct KvTransfer {
    width: u32,
    /// The way whose key is on its way, and cycles that it still takes.
    key: Option<(usize, u64)>,
    turn: usize,
    pair: Option<(Pair, u64)>,
}

impl KvTransfer {
    pub(super) fn new(bytes_per_cycle: u32) -> KvTransfer {
        KvTransfer {
            width: bytes_per_cycle,
            key: None,
            turn: 0,
            pair: None,
        }
    }

    /// The pair channel can take a pair.
    pub(super) fn is_free(&self) -> bool {
        self.pair.is_none()
    }

    /// Takes a way's pair out of its ring; its key's slot becomes empty.
    fn take(way: usize, rings: &mut [Ring], keys: &mut KeyBuffer) -> Result<Pair, Stop> {
        if let Some(slot) = keys.slots.get_mut(way) {
            *slot = None;
        }
        let pair = rings.get_mut(way).and_then(Ring::pop);
        pair.ok_or(Stop::Broken("a pair was chosen that is not there"))
    }

    /// Starts to move a way's pair to the encoding ring.
    pub(super) fn move_pair(
        &mut self,
        way: usize,
        rings: &mut [Ring],
        keys: &mut KeyBuffer,
    ) -> Result<(), Stop> {
        let pair = Self::take(way, rings, keys)?;
        let left = cycles_for(pair.bytes(), self.width);
        self.pair = Some((pair, left));
        Ok(())
    }

    /// Lets a way's pair go.
    pub(super) fn drop_pair(way: usize, rings: &mut [Ring], keys: &mut KeyBuffer) -> Result<(), Stop> {
        Self::take(way, rings, keys).map(|_| ())
    }

    pub(super) fn step(
        &mut self,
        rings: &[Ring],
        keys: &mut KeyBuffer,
        encoding: &mut Ring,
    ) -> Result<(), Stop> {
        self.step_key(rings, keys);
        if let Some((pair, left)) = self.pair.take() {
            if left > 1 {
                self.pair = Some((pair, left - 1));
            } else if !encoding.push(pair) {
                return Err(Stop::Broken("the encoding ring overflowed"));
            }
        }
        Ok(())
    }

    fn step_key(&mut self, rings: &[Ring], keys: &mut KeyBuffer) {
        let Some((way, left)) = self.key else {
            self.key = self.next_key(rings, keys);
            return;
        };
        if left > 1 {
            self.key = Some((way, left - 1));
            return;
        }
        self.key = None;
        let front = rings.get(way).and_then(Ring::front);
        if let (Some(slot), Some(pair)) = (keys.slots.get_mut(way), front) {
            *slot = Some(KeySlot {
                key: pair.key.clone(),
                stamp: pair.stamp,
            });
        }
    }

    /// The next way whose slot is empty and whose ring is not.
    fn next_key(&mut self, rings: &[Ring], keys: &KeyBuffer) -> Option<(usize, u64)> {
        let ways = rings.len();
        let mut order = (0..ways).map(|offset| (self.turn + offset) % ways);
        let way = order.find(|way| {
            let vacant = keys.slots.get(*way).is_some_and(Option::is_none);
            vacant && rings.get(*way).is_some_and(|ring| !ring.flags().empty)
        })?;
        self.turn = way + 1;
        let bytes = rings.get(way)?.front()?.key.len() + size_of::<u64>();
        Some((way, cycles_for(bytes, self.width)))
    }
}
