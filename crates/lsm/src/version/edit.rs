//! Edits: what a flush, a compaction or an opening changes, as bytes.
//!
//! The first four bytes name the format: an edit of another version is refused by name, not misread.

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_ops::key::SeqNo;

use crate::options::LEVEL_COUNT;
use crate::table::{TableMeta, TableProperties};

/// How an edit of this version begins. Version 1 began with its list, no two bytes of which could be these:
/// the second was a level.
const MAGIC: [u8; 4] = *b"WEM2";

/// An atomic change of the version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Edit {
    /// Added tables, with their level. A moved table is also among `removed`.
    pub added: Vec<(usize, TableMeta)>,
    /// Numbers of removed tables.
    pub removed: Vec<u64>,
    /// All writes up to here are in tables.
    pub flushed: Option<SeqNo>,
    /// Logs before this one are not needed any more.
    pub first_log: Option<u64>,
}

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.put_varint(self.added.len() as u64);
        for (level, meta) in &self.added {
            out.put_varint(*level as u64);
            out.put_varint(meta.number);
            out.put_varint(meta.level as u64);
            out.put_varint(meta.file_bytes);
            meta.properties.encode(&mut out);
        }
        out.put_varint(self.removed.len() as u64);
        for number in &self.removed {
            out.put_varint(*number);
        }
        // Neither number is ever 0.
        out.put_varint(self.flushed.map_or(0, |seqno| seqno.0 + 1));
        out.put_varint(self.first_log.unwrap_or(0));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(bytes);
        if reader.array::<4>() != Ok(MAGIC) {
            return Err(CodecError::new(
                0,
                "an edit of another version than 2, which is this engine's",
            ));
        }
        let mut edit = Self::default();
        for _ in 0..reader.count(11)? {
            let level = level(&mut reader)?;
            let meta = TableMeta {
                number: reader.varint()?,
                level: self::level(&mut reader)?,
                file_bytes: reader.varint()?,
                properties: TableProperties::decode(&mut reader)?,
            };
            edit.added.push((level, meta));
        }
        for _ in 0..reader.count(1)? {
            edit.removed.push(reader.varint()?);
        }
        edit.flushed = reader.varint()?.checked_sub(1).map(SeqNo);
        edit.first_log = Some(reader.varint()?).filter(|&number| number > 0);
        reader.finish()?;
        Ok(edit)
    }
}

fn level(reader: &mut ByteReader<'_>) -> Result<usize, CodecError> {
    match usize::try_from(reader.varint()?) {
        Ok(level) if level < LEVEL_COUNT => Ok(level),
        _ => Err(reader.error("no such level")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{UpperBound, ValueFileUse};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = Edit::decode(&bytes);
        }

        #[test]
        fn edits_read_back(
            numbers in prop::collection::vec(1_u64..9, 0..5),
            flushed: Option<u32>,
            key: Vec<u8>,
        ) {
            let meta = |number| TableMeta {
                number,
                level: 2,
                file_bytes: 77,
                properties: TableProperties {
                    lower: key.clone().into(),
                    upper: UpperBound { key: key.clone().into(), inclusive: number % 2 == 0 },
                    entry_count: 5,
                    tombstone_count: 6,
                    block_count: 7,
                    last_seqno: SeqNo(8),
                    value_files: (0..number).map(|number| ValueFileUse {
                        number,
                        file_bytes: 300 * number,
                        used_bytes: 200,
                    }).collect(),
                },
            };
            let edit = Edit {
                added: numbers.iter().map(|&number| (number as usize % LEVEL_COUNT, meta(number))).collect(),
                removed: numbers.clone(),
                flushed: flushed.map(|seqno| SeqNo(seqno.into())),
                first_log: numbers.first().copied(),
            };
            prop_assert_eq!(Edit::decode(&edit.encode()).unwrap(), edit);
        }
    }
}
