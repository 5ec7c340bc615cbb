//! What the hash index must do: the same operations, one after the other, on ordinary collections.
//!
//! It is written from the rules (4.4.1, 4.7) and not from the circuit: buckets are lists of keys, not of
//! words. It also says what the memory must hold afterwards, word for word.

use std::collections::BTreeMap;

use super::{
    CHAIN_MAX, Code, DIRTY, KEY_BYTES_MAX, Op, OpKind, OpResult, TOMBSTONE, TUPLE_HEADER_WORDS, sdbm,
};
use crate::memory::Memory;

/// A tuple of the model.
#[derive(Clone, Debug)]
struct Tuple {
    addr: u32,
    key: Vec<u8>,
    written: u64,
    read: u64,
    tombstone: bool,
    /// The timestamp of the transaction that changed it, and what it was before; `None` before an INSERT.
    dirty: Option<(u64, Option<bool>)>,
}

impl Tuple {
    fn state(&self) -> u64 {
        let tombstone = if self.tombstone { TOMBSTONE } else { 0 };
        let dirty = if self.dirty.is_some() { DIRTY } else { 0 };
        self.written | tombstone | dirty
    }
}

/// The model of one hash table.
#[derive(Clone, Debug, Default)]
pub struct GoldenHashIndex {
    base: u32,
    mask: u32,
    /// Tuples of each bucket, newest first.
    buckets: BTreeMap<u32, Vec<Tuple>>,
}

impl GoldenHashIndex {
    /// An empty table.
    pub fn new(base: u32, mask: u32) -> GoldenHashIndex {
        GoldenHashIndex {
            base,
            mask,
            buckets: BTreeMap::new(),
        }
    }

    /// Executes one operation; `key` is what lies at its key address.
    pub fn execute(&mut self, op: &Op, key: &[u8]) -> OpResult {
        let result = |code, addr| OpResult {
            id: op.id,
            code,
            addr,
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return result(Code::BadKey, 0);
        }
        let bucket = self.buckets.entry(sdbm(key) & self.mask).or_default();
        let insert = |bucket: &mut Vec<Tuple>| {
            let tuple = Tuple {
                addr: op.tuple_addr,
                key: key.to_vec(),
                written: op.timestamp,
                read: 0,
                tombstone: false,
                dirty: Some((op.timestamp, None)),
            };
            bucket.insert(0, tuple);
            result(Code::Done, op.tuple_addr)
        };
        if op.kind == OpKind::Insert && !op.unique {
            return insert(bucket);
        }
        let place = bucket.iter().position(|tuple| tuple.key == key);
        if place.unwrap_or(bucket.len()) >= CHAIN_MAX {
            return result(Code::LongChain, 0);
        }
        let Some(tuple) = place.and_then(|place| bucket.get_mut(place)) else {
            return match op.kind {
                OpKind::Insert => insert(bucket),
                _ => result(Code::NotFound, 0),
            };
        };
        if tuple.dirty.is_some() {
            return result(Code::Dirty, 0);
        }
        if tuple.written > op.timestamp {
            return result(Code::TooLate, 0);
        }
        if tuple.tombstone {
            return match op.kind {
                OpKind::Insert => insert(bucket),
                _ => result(Code::NotFound, 0),
            };
        }
        match op.kind {
            OpKind::Insert => return result(Code::Duplicate, 0),
            OpKind::Search => tuple.read = tuple.read.max(op.timestamp),
            OpKind::Update | OpKind::Remove if tuple.read > op.timestamp => {
                return result(Code::TooLate, 0);
            }
            OpKind::Update | OpKind::Remove => {
                tuple.dirty = Some((op.timestamp, Some(tuple.tombstone)));
                tuple.tombstone = op.kind == OpKind::Remove;
            }
        }
        result(Code::Done, tuple.addr)
    }

    /// Ends every transaction that has changed something: commits those for which `commits` is true of their
    /// timestamp, and undoes the others. Returns the states that the host has to write, by address.
    pub fn end_transactions(&mut self, mut commits: impl FnMut(u64) -> bool) -> Vec<(u32, u64)> {
        let mut writes = Vec::new();
        for tuple in self.buckets.values_mut().flatten() {
            let Some((timestamp, before)) = tuple.dirty.take() else {
                continue;
            };
            if commits(timestamp) {
                tuple.written = timestamp;
            } else {
                // A tuple that was not there before stays in its bucket, as one that was removed.
                tuple.tombstone = before.unwrap_or(true);
            }
            writes.push((tuple.addr + 1, tuple.state()));
        }
        writes
    }

    /// The first difference between the model and a memory, in words.
    pub fn difference(&self, memory: &Memory) -> Option<String> {
        for (bucket, tuples) in &self.buckets {
            let at = self.base + bucket;
            let mut link = memory.word(at);
            for tuple in tuples {
                if link & 0xFFFF_FFFF != u64::from(tuple.addr) {
                    return Some(format!(
                        "bucket {bucket}: a link is {link:#x}, expected {:#x}",
                        tuple.addr
                    ));
                }
                link = memory.word(tuple.addr);
                if link >> 32 != tuple.key.len() as u64 {
                    return Some(format!("tuple {:#x}: a key of {} bytes", tuple.addr, link >> 32));
                }
                let state = memory.word(tuple.addr + 1);
                if state != tuple.state() {
                    let expected = tuple.state();
                    return Some(format!(
                        "tuple {:#x}: state {state:#x}, expected {expected:#x}",
                        tuple.addr
                    ));
                }
                let read = memory.word(tuple.addr + 2);
                if read != tuple.read {
                    return Some(format!(
                        "tuple {:#x}: read at {read}, expected {}",
                        tuple.addr, tuple.read
                    ));
                }
                for (at, part) in tuple.key.chunks(8).enumerate() {
                    let word = memory.word(tuple.addr + TUPLE_HEADER_WORDS + at as u32);
                    if word.to_le_bytes().iter().zip(part).any(|(a, b)| a != b) {
                        return Some(format!("tuple {:#x}: another key", tuple.addr));
                    }
                }
            }
            if link & 0xFFFF_FFFF != 0 {
                return Some(format!("bucket {bucket}: a tuple too many at {link:#x}"));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(kind: OpKind, timestamp: u64) -> Op {
        Op {
            kind,
            unique: true,
            base: 8,
            mask: 3,
            key_addr: 0,
            key_bytes: 3,
            tuple_addr: 100,
            timestamp,
            id: 0,
        }
    }

    #[test]
    fn visibility_follows_the_document() {
        let mut index = GoldenHashIndex::new(8, 3);
        let code = |index: &mut GoldenHashIndex, kind, at| index.execute(&op(kind, at), b"key").code;
        assert_eq!(code(&mut index, OpKind::Search, 5), Code::NotFound);
        assert_eq!(code(&mut index, OpKind::Insert, 10), Code::Done);
        // Dirty is rejected, whoever asks.
        assert_eq!(code(&mut index, OpKind::Search, 11), Code::Dirty);
        assert_eq!(index.end_transactions(|_| true), [(101, 10)]);
        assert_eq!(code(&mut index, OpKind::Search, 9), Code::TooLate);
        assert_eq!(code(&mut index, OpKind::Insert, 12), Code::Duplicate);
        assert_eq!(code(&mut index, OpKind::Search, 20), Code::Done);
        // Read at 20, so nobody before that may write.
        assert_eq!(code(&mut index, OpKind::Update, 19), Code::TooLate);
        assert_eq!(code(&mut index, OpKind::Remove, 20), Code::Done);
        assert_eq!(index.end_transactions(|_| false), [(101, 10)]);
        assert_eq!(code(&mut index, OpKind::Remove, 21), Code::Done);
        assert_eq!(index.end_transactions(|_| true), [(101, TOMBSTONE | 21)]);
        assert_eq!(code(&mut index, OpKind::Search, 22), Code::NotFound);
        assert_eq!(code(&mut index, OpKind::Search, 20), Code::TooLate);
        assert_eq!(code(&mut index, OpKind::Insert, 23), Code::Done);
    }
}
