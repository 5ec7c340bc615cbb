//! The layout of a checkpoint in the engine. `docs/formats/checkpoint.md` describes it in prose.
//!
//! ```text
//! family 0          key "header": version u32 | batch u64 | digest u64 | catalog, length first
//! family of a table key row id, 16 bytes big endian, so that rows stand in the order of their ids:
//!                   batch that wrote this version, varint | row
//! ```
//!
//! A table's family has the table's number, which is never 0 and never used again. Numbers in values are
//! little endian; "length first" is a varint length and the bytes.

use weft_base::{BatchId, ByteReader, ByteWriter, CodecError, RowId, TableId};
use weft_lsm::FamilyId;

use crate::catalog::Catalog;

pub(super) const VERSION: u32 = 1;
pub(super) const HEADER_FAMILY: FamilyId = FamilyId(0);
pub(super) const HEADER_KEY: &[u8] = b"header";
pub(super) const ROW_KEY_BYTES: usize = 16;

pub(super) const fn family(table: TableId) -> FamilyId {
    FamilyId(table.0)
}

pub(super) fn row_key(id: RowId) -> [u8; ROW_KEY_BYTES] {
    let wide = u128::from(id.batch.0) << 64 | u128::from(id.member) << 32 | u128::from(id.ordinal);
    wide.to_be_bytes()
}

/// Reverse of [`row_key`]; `None` for a key of another length.
pub(super) fn row_id(key: &[u8]) -> Option<RowId> {
    let wide = u128::from_be_bytes(key.try_into().ok()?);
    Some(RowId {
        batch: BatchId((wide >> 64) as u64),
        member: (wide >> 32) as u32,
        ordinal: wide as u32,
    })
}

/// Puts a row's value into `out`, replacing what was there.
pub(super) fn row_value(out: &mut Vec<u8>, batch: BatchId, row: &[u8]) {
    out.clear();
    out.put_varint(batch.0);
    out.put_bytes(row);
}

/// Reverse of [`row_value`].
pub(super) fn split_row_value(value: &[u8]) -> Result<(BatchId, &[u8]), CodecError> {
    let mut reader = ByteReader::new(value);
    let batch = BatchId(reader.varint()?);
    Ok((batch, reader.bytes(reader.remaining())?))
}

/// What a checkpoint says of itself.
pub(crate) struct Header {
    pub batch: BatchId,
    pub digest: u64,
    pub catalog: Catalog,
}

impl Header {
    /// A header's bytes.
    pub(crate) fn encode(batch: BatchId, digest: u64, catalog: &Catalog) -> Vec<u8> {
        let mut encoded_catalog = Vec::new();
        catalog.encode(&mut encoded_catalog);
        let mut out = Vec::with_capacity(encoded_catalog.len() + 32);
        out.put_u32(VERSION);
        out.put_u64(batch.0);
        out.put_u64(digest);
        out.put_len_prefixed(&encoded_catalog);
        out
    }

    /// The version of a header.
    pub(super) fn version(bytes: &[u8]) -> Result<u32, CodecError> {
        ByteReader::new(bytes).u32()
    }

    /// Reads a header of [`VERSION`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = ByteReader::new(bytes);
        reader.u32()?;
        let (batch, digest) = (BatchId(reader.u64()?), reader.u64()?);
        let mut catalog_reader = ByteReader::new(reader.len_prefixed()?);
        let catalog = Catalog::decode(&mut catalog_reader)?;
        catalog_reader.finish()?;
        if catalog.tables().any(|table| table.laid_out_since() > batch) {
            return Err(CodecError::new(0, "a layout of rows from after the checkpoint"));
        }
        reader.finish()?;
        Ok(Header {
            batch,
            digest,
            catalog,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn row_keys_round_trip_and_keep_the_order(one: (u64, u32, u32), other: (u64, u32, u32)) {
            let id = |(batch, member, ordinal)| RowId { batch: BatchId(batch), member, ordinal };
            let (one, other) = (id(one), id(other));
            prop_assert_eq!(row_id(&row_key(one)), Some(one));
            prop_assert_eq!(row_key(one).cmp(&row_key(other)), one.cmp(&other));
            prop_assert_eq!(row_id(&row_key(one)[1..]), None);
        }

        #[test]
        fn row_values_round_trip(batch: u64, row: Vec<u8>) {
            let mut value = vec![1, 2, 3];
            row_value(&mut value, BatchId(batch), &row);
            prop_assert_eq!(split_row_value(&value), Ok((BatchId(batch), row.as_slice())));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = split_row_value(&bytes);
            let _ = Header::decode(&bytes).map(|_| ());
        }
    }
}
