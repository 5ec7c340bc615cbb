//! Batches of writes, and how they look in the log.
//!
//! A key inside the engine is the family's number (4 bytes, big endian) and then the user's key, so that a
//! family is a range of keys and needs no structure of its own.
//!
//! A batch is its own encoding, one operation after the other:
//!
//! ```text
//! kind u8   0 delete, 1 put, 3 delete a range
//! key       varint length and bytes, the family's number included
//! value     varint length and bytes; of a range its end, of a delete nothing at all
//! ```
//!
//! Operation `i` of a batch has the sequence number of the batch's first plus `i`.

use bytes::Bytes;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_ops::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::error::LsmError;

/// A set of keys with its own order. Family 0 always exists; others exist once they are used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FamilyId(pub u32);

/// Bytes of a family's number before each key.
const FAMILY_BYTES: usize = 4;

/// The longest key that a user may give, in bytes.
pub const USER_KEY_BYTES_MAX: usize = KEY_BYTES_MAX - FAMILY_BYTES;

/// The longest batch, in bytes of its encoding.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

impl FamilyId {
    /// The key inside the engine.
    #[must_use]
    pub(crate) fn key(self, user_key: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(FAMILY_BYTES + user_key.len());
        key.extend_from_slice(&self.0.to_be_bytes());
        key.extend_from_slice(user_key);
        key
    }

    /// The first key behind all keys of the family; `None` for the last family.
    #[must_use]
    pub(crate) fn end(self) -> Option<Vec<u8>> {
        Some(self.0.checked_add(1)?.to_be_bytes().to_vec())
    }
}

/// A key above every key of the last family, which no key can be: one byte longer than any key may be.
#[must_use]
pub(crate) fn behind_all_keys() -> Vec<u8> {
    vec![0xff; KEY_BYTES_MAX + 1]
}

/// The family of a key inside the engine.
#[must_use]
pub(crate) fn family_of(key: &[u8]) -> FamilyId {
    FamilyId(key.first_chunk().map_or(0, |number| u32::from_be_bytes(*number)))
}

/// The user's part of a key inside the engine.
#[must_use]
pub(crate) fn user_key(key: &[u8]) -> &[u8] {
    key.get(FAMILY_BYTES..).unwrap_or_default()
}

const DELETE: u8 = 0;
const PUT: u8 = 1;
const DELETE_RANGE: u8 = 3;

/// Writes that are applied together or not at all, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WriteBatch {
    encoded: Vec<u8>,
    count: u32,
    /// The first thing that was too long.
    too_large: Option<(&'static str, usize, usize)>,
}

/// One operation of a batch, with keys as they are inside the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation<'a> {
    Delete { key: &'a [u8] },
    Put { key: &'a [u8], value: &'a [u8] },
    DeleteRange { start: &'a [u8], end: &'a [u8] },
}

impl WriteBatch {
    /// A batch without operations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of operations.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Length of the encoding, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.encoded.clear();
        self.count = 0;
        self.too_large = None;
    }

    /// Sets the value of `key`. If something is too long, writing the batch reports it.
    pub fn put(&mut self, family: FamilyId, key: &[u8], value: &[u8]) {
        if value.len() > VALUE_BYTES_MAX {
            self.too_large
                .get_or_insert(("value", value.len(), VALUE_BYTES_MAX));
            return;
        }
        if self.begin(PUT, family, key) {
            self.encoded.put_len_prefixed(value);
        }
    }

    /// Removes `key`, whether it is there or not.
    pub fn delete(&mut self, family: FamilyId, key: &[u8]) {
        self.begin(DELETE, family, key);
    }

    /// Removes all keys from `start` (inclusive) to `end` (exclusive; `None` for all that follow).
    pub fn delete_range(&mut self, family: FamilyId, start: &[u8], end: Option<&[u8]>) {
        if let Some(end) = end
            && end.len() > USER_KEY_BYTES_MAX
        {
            self.too_large
                .get_or_insert(("key", end.len(), USER_KEY_BYTES_MAX));
            return;
        }
        let end = match end {
            Some(end) => Some(family.key(end)),
            None => family.end(),
        };
        let end = end.unwrap_or_else(behind_all_keys);
        if family.key(start) < end && self.begin(DELETE_RANGE, family, start) {
            self.encoded.put_len_prefixed(&end);
        }
    }

    fn begin(&mut self, kind: u8, family: FamilyId, key: &[u8]) -> bool {
        if key.len() > USER_KEY_BYTES_MAX {
            self.too_large
                .get_or_insert(("key", key.len(), USER_KEY_BYTES_MAX));
            return false;
        }
        self.encoded.put_u8(kind);
        self.encoded.put_varint((FAMILY_BYTES + key.len()) as u64);
        self.encoded.put_bytes(&family.0.to_be_bytes());
        self.encoded.put_bytes(key);
        self.count += 1;
        true
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    pub(crate) fn check(&self) -> Result<(), LsmError> {
        let too_large = self.too_large.or_else(|| {
            let bytes = self.encoded.len();
            (bytes > BATCH_BYTES_MAX).then_some(("batch", bytes, BATCH_BYTES_MAX))
        });
        match too_large {
            Some((what, bytes, bytes_max)) => Err(LsmError::TooLarge {
                what,
                bytes,
                bytes_max,
            }),
            None => Ok(()),
        }
    }
}

/// Reads the operations of an encoded batch.
pub(crate) fn for_each_operation(
    encoded: &[u8],
    mut visit: impl FnMut(Operation<'_>),
) -> Result<u32, CodecError> {
    let mut reader = ByteReader::new(encoded);
    let mut count = 0_u32;
    while reader.remaining() > 0 {
        let kind = reader.u8()?;
        let key = reader.len_prefixed()?;
        if key.len() < FAMILY_BYTES || key.len() > KEY_BYTES_MAX {
            return Err(reader.error("a key of impossible length"));
        }
        visit(match kind {
            DELETE => Operation::Delete { key },
            PUT => Operation::Put {
                key,
                value: reader.len_prefixed()?,
            },
            DELETE_RANGE => Operation::DeleteRange {
                start: key,
                end: reader.len_prefixed()?,
            },
            _ => return Err(reader.error("unknown operation")),
        });
        count += 1;
    }
    Ok(count)
}

/// A copy that can be kept.
pub(crate) fn keep(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = for_each_operation(&bytes, |_| {});
        }
    }

    #[test]
    fn a_batch_reads_back() {
        let mut batch = WriteBatch::new();
        batch.put(FamilyId(1), b"a", b"one");
        batch.delete(FamilyId(0), b"b");
        batch.delete_range(FamilyId(2), b"c", None);
        batch.delete_range(FamilyId(2), b"z", Some(b"a"));
        let mut seen = Vec::new();
        let count = for_each_operation(batch.encoded(), |op| seen.push(format!("{op:?}"))).unwrap();
        assert_eq!((count, batch.count()), (3, 3));
        assert!(seen[2].contains("end: [0, 0, 0, 3]"), "{seen:?}");
        assert!(batch.check().is_ok());
        batch.put(FamilyId(0), &[0; USER_KEY_BYTES_MAX + 1], b"");
        assert!(matches!(
            batch.check(),
            Err(LsmError::TooLarge { what: "key", .. })
        ));
    }
}
