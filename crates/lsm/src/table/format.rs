//! The sections of a table as bytes.

use bytes::Bytes;
use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_ops::crc32c;
use weft_ops::key::SeqNo;
use weft_ops::merge::RangeTombstone;

pub(super) const MAGIC: [u8; 8] = *b"WEFTSST1";
pub(super) const VERSION: u32 = 2;
pub(crate) const FOOTER_BYTES: usize = 92;

/// A file's name.
pub(crate) fn table_name(number: u64) -> String {
    format!("table-{number:012}.sst")
}

/// The number in a table's name.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    name.strip_prefix("table-")?.strip_suffix(".sst")?.parse().ok()
}

/// Where a section lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Section {
    pub offset: u64,
    pub bytes: u64,
}

/// The end of a table's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UpperBound {
    pub key: Bytes,
    /// Whether the key itself belongs to the table; not if only a range tombstone ends there.
    pub inclusive: bool,
}

impl UpperBound {
    /// Whether `key` lies behind the bound.
    pub(crate) fn is_before(&self, key: &[u8]) -> bool {
        if self.inclusive {
            *self.key < *key
        } else {
            *self.key <= *key
        }
    }
}

/// The last bytes of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Footer {
    pub tombstones: Section,
    pub filter: Section,
    pub index: Section,
    pub properties: Section,
    pub file_number: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.put_bytes(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(0);
        for section in [self.tombstones, self.filter, self.index, self.properties] {
            out.put_u64(section.offset);
            out.put_u64(section.bytes);
        }
        out.put_u64(self.file_number);
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
            return Err(CodecError::new(0, "not a table"));
        }
        if reader.u32()? != VERSION {
            return Err(CodecError::new(8, "unknown version"));
        }
        if crc32c(payload) != u32::from_le_bytes(*crc) {
            return Err(CodecError::new(0, "checksum does not match"));
        }
        reader.u32()?;
        let mut section = || -> Result<Section, CodecError> {
            let section = Section {
                offset: reader.u64()?,
                bytes: reader.u64()?,
            };
            match section.offset.checked_add(section.bytes) {
                Some(end) if end <= file_bytes => Ok(section),
                _ => Err(reader.error("a section reaches beyond the file")),
            }
        };
        let (tombstones, filter, index, properties) = (section()?, section()?, section()?, section()?);
        let footer = Self {
            tombstones,
            filter,
            index,
            properties,
            file_number: reader.u64()?,
        };
        reader.finish()?;
        Ok(footer)
    }
}

/// Puts the checksum in front of a section.
pub(super) fn seal(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 4);
    out.put_u32(crc32c(payload));
    out.put_bytes(payload);
    out
}

/// The payload of a section.
pub(super) fn unseal(section: &Bytes) -> Result<Bytes, CodecError> {
    match section.split_first_chunk::<4>() {
        Some((crc, payload)) if crc32c(payload) == u32::from_le_bytes(*crc) => Ok(section.slice(4..)),
        Some(_) => Err(CodecError::new(0, "checksum does not match")),
        None => Err(CodecError::new(0, "unexpected end")),
    }
}

/// What the index knows of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry {
    /// Key of the block's last entry.
    pub last_key: Bytes,
    pub offset: u64,
    pub bytes: u32,
    /// The first four bytes of the stored block: its checksum.
    pub crc: u32,
    pub entry_count: u32,
}

pub(super) fn encode_index(entries: &[IndexEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(entries.len() as u64);
    for entry in entries {
        out.put_len_prefixed(&entry.last_key);
        out.put_varint(u64::from(entry.bytes));
        out.put_u32(entry.crc);
        out.put_varint(u64::from(entry.entry_count));
    }
    seal(&out)
}

/// Reads an index whose blocks must fill `blocks_bytes` bytes from offset 0.
pub(super) fn decode_index(section: &Bytes, blocks_bytes: u64) -> Result<Vec<IndexEntry>, CodecError> {
    let payload = unseal(section)?;
    let mut reader = ByteReader::new(&payload);
    let count = reader.count(7)?;
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(count);
    let mut offset = 0_u64;
    for _ in 0..count {
        let last_key = payload.slice_ref(reader.len_prefixed()?);
        if entries.last().is_some_and(|before| before.last_key > last_key) {
            return Err(reader.error("keys do not ascend"));
        }
        let bytes = reader.varint_u32()?;
        entries.push(IndexEntry {
            last_key,
            offset,
            bytes,
            crc: reader.u32()?,
            entry_count: reader.varint_u32()?,
        });
        offset += u64::from(bytes);
    }
    reader.finish()?;
    if offset == blocks_bytes {
        Ok(entries)
    } else {
        Err(reader.error("blocks do not fill their place"))
    }
}

pub(super) fn encode_tombstones(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_varint(tombstones.len() as u64);
    for tombstone in tombstones {
        out.put_len_prefixed(&tombstone.start);
        out.put_len_prefixed(&tombstone.end);
        out.put_varint(tombstone.seqno.0);
    }
    seal(&out)
}

pub(super) fn decode_tombstones(section: &Bytes) -> Result<Vec<RangeTombstone>, CodecError> {
    let payload = unseal(section)?;
    let mut reader = ByteReader::new(&payload);
    let count = reader.count(3)?;
    let mut tombstones = Vec::with_capacity(count);
    for _ in 0..count {
        tombstones.push(RangeTombstone {
            start: payload.slice_ref(reader.len_prefixed()?),
            end: payload.slice_ref(reader.len_prefixed()?),
            seqno: SeqNo(reader.varint()?),
        });
    }
    reader.finish()?;
    Ok(tombstones)
}

/// A value file that entries of a table point into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueFileUse {
    pub number: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of the records that the table's entries point to.
    pub used_bytes: u64,
}

/// What a table is known to hold; kept in the manifest too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TableProperties {
    /// The first key, of an entry or a range tombstone.
    pub lower: Bytes,
    pub upper: UpperBound,
    pub entry_count: u64,
    pub tombstone_count: u64,
    pub block_count: u64,
    /// No entry or range tombstone is newer.
    pub last_seqno: SeqNo,
    /// The value files that its entries point into, by number.
    pub value_files: Vec<ValueFileUse>,
}

impl TableProperties {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_len_prefixed(&self.lower);
        out.put_len_prefixed(&self.upper.key);
        out.put_bool(self.upper.inclusive);
        for number in [
            self.entry_count,
            self.tombstone_count,
            self.block_count,
            self.last_seqno.0,
        ] {
            out.put_varint(number);
        }
        out.put_varint(self.value_files.len() as u64);
        for file in &self.value_files {
            out.put_varint(file.number);
            out.put_varint(file.file_bytes);
            out.put_varint(file.used_bytes);
        }
    }

    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        let mut properties = Self {
            lower: Bytes::copy_from_slice(reader.len_prefixed()?),
            upper: UpperBound {
                key: Bytes::copy_from_slice(reader.len_prefixed()?),
                inclusive: reader.bool()?,
            },
            entry_count: reader.varint()?,
            tombstone_count: reader.varint()?,
            block_count: reader.varint()?,
            last_seqno: SeqNo(reader.varint()?),
            value_files: Vec::new(),
        };
        let count = reader.count(3)?;
        let files = &mut properties.value_files;
        files.reserve_exact(count);
        for _ in 0..count {
            let file = ValueFileUse {
                number: reader.varint()?,
                file_bytes: reader.varint()?,
                used_bytes: reader.varint()?,
            };
            if files.last().is_some_and(|last| last.number >= file.number) {
                return Err(reader.error("value files do not ascend"));
            }
            files.push(file);
        }
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let sealed = Bytes::from(seal(&bytes));
            for section in [Bytes::from(bytes.clone()), sealed] {
                let _ = decode_index(&section, 100);
                let _ = decode_tombstones(&section);
                let _ = Footer::decode(&section, 1000);
                let _ = TableProperties::decode(&mut ByteReader::new(&section));
            }
            let mut footer = Footer::default().encode();
            for (at, byte) in bytes.iter().enumerate().take(FOOTER_BYTES - 20) {
                footer[at + 16] = *byte;
            }
            let crc = crc32c(&footer[..FOOTER_BYTES - 4]);
            footer[FOOTER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            let _ = Footer::decode(&footer, 1000);
        }
    }

    #[test]
    fn sections_read_back() {
        let index = vec![
            IndexEntry {
                last_key: "a".into(),
                offset: 0,
                bytes: 10,
                crc: 1,
                entry_count: 2,
            },
            IndexEntry {
                last_key: "b".into(),
                offset: 10,
                bytes: 20,
                crc: 3,
                entry_count: 4,
            },
        ];
        let section = Bytes::from(encode_index(&index));
        assert_eq!(decode_index(&section, 30).unwrap(), index);
        assert!(decode_index(&section, 31).is_err());
        let footer = Footer {
            index: Section { offset: 5, bytes: 6 },
            file_number: 9,
            ..Footer::default()
        };
        let bytes = footer.encode();
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(Footer::decode(&bytes, 11).unwrap(), footer);
        assert!(Footer::decode(&bytes, 10).is_err());
        let mut older = bytes;
        older[8] = 1;
        assert_eq!(Footer::decode(&older, 11).unwrap_err().reason, "unknown version");
    }
}
