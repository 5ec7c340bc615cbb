//! Records, footers and pointers as bytes.

use bytes::Bytes;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_ops::key::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use weft_ops::{crc32c, crc32c_append};

pub(super) const MAGIC: [u8; 8] = *b"WEFTVAL1";
pub(super) const VERSION: u32 = 1;
pub(crate) const FOOTER_BYTES: usize = 44;
/// What stands in a record before the key.
pub(super) const RECORD_HEAD_BYTES: usize = 12;
/// Length of a pointer.
pub(crate) const POINTER_BYTES: usize = 24;

/// A file's name.
pub(crate) fn values_name(number: u64) -> String {
    format!("values-{number:012}.val")
}

/// The number in a value file's name.
pub(crate) fn values_number(name: &str) -> Option<u64> {
    name.strip_prefix("values-")?.strip_suffix(".val")?.parse().ok()
}

/// Where a large value lies: what an entry of kind `LargeValue` has as its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Pointer {
    /// Number of the value file.
    pub file: u64,
    /// Offset of the record in it.
    pub offset: u64,
    /// Length of the value.
    pub value_bytes: u32,
    /// Checksum of the record.
    pub crc: u32,
}

impl Pointer {
    pub(crate) fn encode(&self) -> [u8; POINTER_BYTES] {
        let mut out = [0; POINTER_BYTES];
        let (file, rest) = out.split_at_mut(8);
        let (offset, rest) = rest.split_at_mut(8);
        let (value_bytes, crc) = rest.split_at_mut(4);
        file.copy_from_slice(&self.file.to_le_bytes());
        offset.copy_from_slice(&self.offset.to_le_bytes());
        value_bytes.copy_from_slice(&self.value_bytes.to_le_bytes());
        crc.copy_from_slice(&self.crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let pointer = Self {
            file: reader.u64()?,
            offset: reader.u64()?,
            value_bytes: reader.u32()?,
            crc: reader.u32()?,
        };
        reader.finish()?;
        if pointer.value_bytes as usize > VALUE_BYTES_MAX {
            return Err(CodecError::new(16, "a value of impossible length"));
        }
        Ok(pointer)
    }

    /// Length of the record of a key of so many bytes.
    pub(crate) fn record_bytes(&self, key_bytes: usize) -> u64 {
        (RECORD_HEAD_BYTES + key_bytes) as u64 + u64::from(self.value_bytes)
    }
}

/// Appends a record and returns its checksum.
pub(super) fn put_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) -> u32 {
    let mut lengths = [0; 8];
    let (key_bytes, value_bytes) = lengths.split_at_mut(4);
    key_bytes.copy_from_slice(&(key.len() as u32).to_le_bytes());
    value_bytes.copy_from_slice(&(value.len() as u32).to_le_bytes());
    let crc = crc32c_append(crc32c_append(crc32c(&lengths), key), value);
    out.put_u32(crc);
    out.put_bytes(&lengths);
    out.put_bytes(key);
    out.put_bytes(value);
    crc
}

/// What a record says of itself before its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHead {
    pub crc: u32,
    pub key_bytes: usize,
    pub value_bytes: usize,
}

impl RecordHead {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(bytes);
        let head = Self {
            crc: reader.u32()?,
            key_bytes: reader.u32()? as usize,
            value_bytes: reader.u32()? as usize,
        };
        if head.key_bytes > KEY_BYTES_MAX || head.value_bytes > VALUE_BYTES_MAX {
            return Err(reader.error("a record of impossible length"));
        }
        Ok(head)
    }

    pub(super) const fn record_bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.key_bytes + self.value_bytes
    }
}

/// Key and value of a whole record.
pub(super) fn read_record(record: &Bytes) -> Result<(u32, Bytes, Bytes), CodecError> {
    let head = RecordHead::read(record)?;
    if head.record_bytes() != record.len() {
        return Err(CodecError::new(4, "the record has another length"));
    }
    if crc32c(record.get(4..).unwrap_or_default()) != head.crc {
        return Err(CodecError::new(0, "checksum does not match"));
    }
    let value_at = RECORD_HEAD_BYTES + head.key_bytes;
    let key = record.slice(RECORD_HEAD_BYTES..value_at);
    Ok((head.crc, key, record.slice(value_at..)))
}

/// The last bytes of a value file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footer {
    pub file_number: u64,
    pub record_count: u64,
    /// Bytes of all records: where the footer begins.
    pub records_bytes: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.put_bytes(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(0);
        out.put_u64(self.file_number);
        out.put_u64(self.record_count);
        out.put_u64(self.records_bytes);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// The footer of a file of `file_bytes`.
    pub(super) fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, CodecError> {
        let Some((payload, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(CodecError::new(0, "unexpected end"));
        };
        let mut reader = ByteReader::new(payload);
        if reader.array::<8>()? != MAGIC {
            return Err(CodecError::new(0, "not a value file"));
        }
        if reader.u32()? != VERSION {
            return Err(CodecError::new(8, "unknown version"));
        }
        if crc32c(payload) != u32::from_le_bytes(*crc) {
            return Err(CodecError::new(0, "checksum does not match"));
        }
        reader.u32()?;
        let footer = Self {
            file_number: reader.u64()?,
            record_count: reader.u64()?,
            records_bytes: reader.u64()?,
        };
        reader.finish()?;
        if footer.records_bytes.checked_add(FOOTER_BYTES as u64) != Some(file_bytes) {
            return Err(CodecError::new(32, "the file has another length"));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Pointer::decode(&bytes);
            let _ = RecordHead::read(&bytes);
            let _ = read_record(&Bytes::from(bytes.clone()));
            let _ = Footer::decode(&bytes, 1000);
        }

        #[test]
        fn records_and_pointers_read_back(
            key in prop::collection::vec(any::<u8>(), 0..100),
            value in prop::collection::vec(any::<u8>(), 0..5000),
            file in any::<u64>(),
            offset in any::<u64>(),
            bit in 0_usize..8,
        ) {
            let mut record = Vec::new();
            let crc = put_record(&mut record, &key, &value);
            let pointer = Pointer { file, offset, value_bytes: value.len() as u32, crc };
            prop_assert_eq!(Pointer::decode(&pointer.encode()).unwrap(), pointer);
            prop_assert_eq!(pointer.record_bytes(key.len()), record.len() as u64);
            let read = read_record(&Bytes::from(record.clone())).unwrap();
            prop_assert_eq!((read.0, &*read.1, &*read.2), (crc, &key[..], &value[..]));
            let at = offset as usize % record.len();
            record[at] ^= 1 << bit;
            prop_assert!(read_record(&Bytes::from(record)).is_err());
        }
    }

    /// The bytes stand in files: if this fails, the format has changed.
    #[test]
    fn bytes_are_those_of_the_document() {
        let mut record = Vec::new();
        let crc = put_record(&mut record, b"k", b"value");
        let mut expected = crc32c(&record[4..]).to_le_bytes().to_vec();
        expected.extend_from_slice(b"\x01\0\0\0\x05\0\0\0kvalue");
        assert_eq!(
            (crc.to_le_bytes().to_vec(), &record),
            (expected[..4].to_vec(), &expected)
        );
        let pointer = Pointer {
            file: 1,
            offset: 2,
            value_bytes: 3,
            crc: 4,
        };
        assert_eq!(
            pointer.encode(),
            *b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\x04\0\0\0"
        );
        let footer = Footer {
            file_number: 9,
            record_count: 2,
            records_bytes: 30,
        };
        let bytes = footer.encode();
        assert_eq!(
            (bytes.len(), &bytes[..12]),
            (FOOTER_BYTES, &b"WEFTVAL1\x01\0\0\0"[..])
        );
        assert_eq!(Footer::decode(&bytes, 30 + FOOTER_BYTES as u64).unwrap(), footer);
        assert!(Footer::decode(&bytes, 31 + FOOTER_BYTES as u64).is_err());
        let mut foreign = bytes;
        foreign[8] = 2;
        let reason = Footer::decode(&foreign, 30 + FOOTER_BYTES as u64)
            .unwrap_err()
            .reason;
        assert_eq!(reason, "unknown version");
        assert_eq!(values_number(&values_name(77)), Some(77));
    }
}
