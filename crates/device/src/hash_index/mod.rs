//! The hash index coprocessor: its operations, the layout of its memory, and its golden model.
//!
//! ```text
//!   bucket, one word      [31:0] first tuple, 0 if there is none
//!   tuple   word 0        [31:0] next tuple, [38:32] bytes of the key
//!           word 1        state: [61:0] write timestamp, [62] tombstone, [63] dirty
//!           word 2        read timestamp
//!           word 3..      the key, first byte lowest, padded with zeros; then the row
//! ```
//!
//! Addresses are numbers of 64-bit words, and 0 is null. A new tuple goes to the front of its bucket. Links
//! never change after that, so a transaction that owns a dirty tuple commits it by one write of its state.
//!
//! The unit itself is `hardware/rtl/hash_index.sv`; its page is `hardware/doc/hash_index.md`.
//!
//! Source: BionicDB 4.4.1, 4.7.

mod golden;
#[cfg(feature = "fpga")]
pub mod throughput;
#[cfg(feature = "fpga")]
mod unit;

use crate::memory::Memory;

pub use golden::GoldenHashIndex;
#[cfg(feature = "fpga")]
pub use unit::{HashIndexUnit, Model, Stalls, UnitError};

/// Longest key.
pub const KEY_BYTES_MAX: usize = 64;
/// Words before a tuple's key.
pub const TUPLE_HEADER_WORDS: u32 = 3;
/// Tuples of a bucket that an operation looks at.
pub const CHAIN_MAX: usize = 255;
/// Bit of the state: changed by a transaction that has not ended.
pub const DIRTY: u64 = 1 << 63;
/// Bit of the state: removed.
pub const TOMBSTONE: u64 = 1 << 62;
/// Highest timestamp.
pub const TIMESTAMP_MAX: u64 = TOMBSTONE - 1;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Puts a new tuple in front of its bucket, dirty.
    Insert = 0,
    /// Finds the tuple with the key for reading.
    Search = 1,
    /// Finds the tuple with the key for writing, and marks it dirty.
    Update = 2,
    /// The same, and marks it as a tombstone.
    Remove = 3,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Done; the result has the tuple's address.
    Done = 0,
    /// There is no tuple with the key.
    NotFound = 1,
    /// INSERT of a unique key: there is a tuple with the key.
    Duplicate = 2,
    /// The tuple was changed by a transaction that has not ended.
    Dirty = 3,
    /// A later transaction has written the tuple, or has read what is to be written.
    TooLate = 4,
    /// A key of no bytes, or of more than [`KEY_BYTES_MAX`].
    BadKey = 8,
    /// A word outside the memory was needed.
    BadMemory = 9,
    /// [`CHAIN_MAX`] tuples of the bucket have other keys.
    LongChain = 10,
}

impl Code {
    /// The code with a number.
    pub fn from_number(number: u8) -> Option<Code> {
        Some(match number {
            0 => Code::Done,
            1 => Code::NotFound,
            2 => Code::Duplicate,
            3 => Code::Dirty,
            4 => Code::TooLate,
            8 => Code::BadKey,
            9 => Code::BadMemory,
            10 => Code::LongChain,
            _ => return None,
        })
    }
}

/// One operation, as it is handed to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What to do.
    pub kind: OpKind,
    /// INSERT: [`Code::Duplicate`] if there is a tuple with the key.
    pub unique: bool,
    /// The table's first bucket.
    pub base: u32,
    /// Number of its buckets less 1; the number is a power of two.
    pub mask: u32,
    /// Where the search key lies.
    pub key_addr: u32,
    /// Its length.
    pub key_bytes: u8,
    /// INSERT: where the tuple is to be.
    pub tuple_addr: u32,
    /// The transaction's timestamp, at most [`TIMESTAMP_MAX`].
    pub timestamp: u64,
    /// Comes back with the result.
    pub id: u16,
}

/// What an operation gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpResult {
    /// That of the operation.
    pub id: u16,
    /// How it ended.
    pub code: Code,
    /// The tuple, for [`Code::Done`]; otherwise 0.
    pub addr: u32,
}

/// The hash of a key: sdbm, 32 bits. An index's shape enters no digest, so it is the unit's own.
pub fn sdbm(key: &[u8]) -> u32 {
    key.iter().fold(0_u32, |hash, byte| {
        hash.wrapping_mul(65_599).wrapping_add(u32::from(*byte))
    })
}

/// Words of a key.
pub fn key_words(key_bytes: usize) -> u32 {
    key_bytes.div_ceil(8) as u32
}

/// Writes a key from the host.
pub fn put_key(memory: &mut Memory, addr: u32, key: &[u8]) {
    for (at, part) in key.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(part) {
            *to = *from;
        }
        memory.set_word(addr + at as u32, u64::from_le_bytes(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sdbm_of_known_keys() {
        // h = byte + (h << 6) + (h << 16) - h, as published.
        assert_eq!(sdbm(b""), 0);
        assert_eq!(sdbm(b"a"), 97);
        assert_eq!(sdbm(b"ab"), 97 * 65_599 + 98);
        let published = |key: &[u8]| {
            key.iter().fold(0_u32, |h, byte| {
                u32::from(*byte)
                    .wrapping_add(h << 6)
                    .wrapping_add(h << 16)
                    .wrapping_sub(h)
            })
        };
        assert_eq!(sdbm(b"customer 17"), published(b"customer 17"));
    }

    #[test]
    fn codes_have_their_numbers() {
        for number in 0..=255_u8 {
            if let Some(code) = Code::from_number(number) {
                assert_eq!(code as u8, number);
            }
        }
    }
}
