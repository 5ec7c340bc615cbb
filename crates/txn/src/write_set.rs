//! A write set: what an interactive transaction did, as it enters the sequence at commit.
//!
//! Operations are in the order in which the transaction made them: no unique index is violated in between
//! that the transaction itself did not violate. They name rows by where these are just before the operation
//! (primary key; row id in a table without one; or the transaction's own n-th insert), never by address, so
//! that the same write set applies to any replica of the state. Format: a sequence of
//!
//! ```text
//! tag 0 insert: varint table, length-prefixed row
//! tag 1 update: varint table, place, length-prefixed row
//! tag 2 delete: varint table, place
//! place: tag 0 and a length-prefixed encoded primary key | tag 1 and 16 bytes of row id
//!        | tag 2 and a varint, the place among this write set's own inserts
//! ```

use weft_base::codec::{ByteReader, ByteWriter, CodecError};
use weft_base::{RowId, TableId};
use weft_store::{Locator, MemberWriter, SlotId};
use weft_types::{SqlError, SqlState};

const TAG_INSERT: u8 = 0;
const TAG_UPDATE: u8 = 1;
const TAG_DELETE: u8 = 2;

/// How a write set names a row, just before an operation.
#[derive(Debug, Clone, PartialEq)]
pub enum RowPosition {
    /// A row that existed before the transaction.
    Located(Locator),
    /// The row that this write set's n-th insert made.
    Own(u32),
}

/// One operation of a write set, borrowed from its bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOp<'a> {
    /// A new row.
    Insert {
        /// The table.
        table: TableId,
        /// The encoded row.
        row: &'a [u8],
    },
    /// A new value of an existing row.
    Update {
        /// The table.
        table: TableId,
        /// Where the row stands just before.
        place: RowPosition,
        /// The encoded row.
        row: &'a [u8],
    },
    /// The end of a row.
    Delete {
        /// The table.
        table: TableId,
        /// Where the row stands just before.
        place: RowPosition,
    },
}

fn put_place(out: &mut Vec<u8>, place: &RowPosition) {
    match place {
        RowPosition::Own(ordinal) => {
            out.put_u8(2);
            out.put_varint(u64::from(*ordinal));
        }
        RowPosition::Located(Locator::Key(key)) => {
            out.put_u8(0);
            out.put_len_prefixed(key);
        }
        RowPosition::Located(Locator::RowId(row_id)) => {
            out.put_u8(1);
            out.extend_from_slice(&row_id.encode());
        }
    }
}

/// Appends an insert.
pub fn put_insert(out: &mut Vec<u8>, table: TableId, row: &[u8]) {
    out.put_u8(TAG_INSERT);
    out.put_varint(u64::from(table.0));
    out.put_len_prefixed(row);
}

/// Appends an update.
pub fn put_update(out: &mut Vec<u8>, table: TableId, place: &RowPosition, row: &[u8]) {
    out.put_u8(TAG_UPDATE);
    out.put_varint(u64::from(table.0));
    put_place(out, place);
    out.put_len_prefixed(row);
}

/// Appends a delete.
pub fn put_delete(out: &mut Vec<u8>, table: TableId, place: &RowPosition) {
    out.put_u8(TAG_DELETE);
    out.put_varint(u64::from(table.0));
    put_place(out, place);
}

/// Reads the operations of a write set one by one; ends after the first error.
pub fn operations(bytes: &[u8]) -> impl Iterator<Item = Result<WriteOp<'_>, CodecError>> {
    let mut reader = ByteReader::new(bytes);
    let mut broken = false;
    std::iter::from_fn(move || {
        if broken || reader.remaining() == 0 {
            return None;
        }
        let op = next_op(&mut reader);
        broken = op.is_err();
        Some(op)
    })
}

fn next_op<'a>(reader: &mut ByteReader<'a>) -> Result<WriteOp<'a>, CodecError> {
    let tag = reader.u8()?;
    let table = TableId(reader.varint_u32()?);
    match tag {
        TAG_INSERT => Ok(WriteOp::Insert {
            table,
            row: reader.len_prefixed()?,
        }),
        TAG_UPDATE => {
            let place = read_place(reader)?;
            Ok(WriteOp::Update {
                table,
                place,
                row: reader.len_prefixed()?,
            })
        }
        TAG_DELETE => Ok(WriteOp::Delete {
            table,
            place: read_place(reader)?,
        }),
        _ => Err(reader.error("write set: unknown operation")),
    }
}

fn read_place(reader: &mut ByteReader<'_>) -> Result<RowPosition, CodecError> {
    match reader.u8()? {
        0 => Ok(RowPosition::Located(Locator::Key(
            reader.len_prefixed()?.to_vec(),
        ))),
        1 => Ok(RowPosition::Located(Locator::RowId(RowId::read(reader)?))),
        2 => Ok(RowPosition::Own(reader.varint_u32()?)),
        _ => Err(reader.error("write set: unknown locator")),
    }
}

/// Applies a write set as one member of a batch. On an error the caller rolls the member back.
pub(crate) fn apply(bytes: &[u8], writer: &mut MemberWriter<'_>) -> Result<(), SqlError> {
    let mut own = Vec::new();
    for op in operations(bytes) {
        match op.map_err(|e| SqlError::new(SqlState::DATA_CORRUPTED, e.to_string()))? {
            WriteOp::Insert { table, row } => own.push(writer.insert(table, row)?),
            WriteOp::Update { table, place, row } => {
                let slot = find(writer, table, &place, &own)?;
                writer.update(table, slot, row)?;
            }
            WriteOp::Delete { table, place } => {
                let slot = find(writer, table, &place, &own)?;
                writer.remove(table, slot)?;
            }
        }
    }
    Ok(())
}

fn find(
    writer: &MemberWriter<'_>,
    table: TableId,
    place: &RowPosition,
    own: &[SlotId],
) -> Result<SlotId, SqlError> {
    match place {
        RowPosition::Located(locator) => writer.locate(table, locator)?,
        RowPosition::Own(ordinal) => own.get(*ordinal as usize).copied(),
    }
    .ok_or_else(|| missing_table(table))
}

/// A row that the transaction had locked is missing: the locks failed, which is a bug and not a user's error.
fn missing_table(table: TableId) -> SqlError {
    SqlError::new(
        SqlState::INTERNAL_ERROR,
        format!("a locked row of table {} is gone at commit", table.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weft_base::BatchId;

    #[test]
    fn round_trip() {
        let row_id = RowId {
            batch: BatchId(3),
            member: 4,
            ordinal: 5,
        };
        let mut bytes = Vec::new();
        put_delete(
            &mut bytes,
            TableId(1),
            &RowPosition::Located(Locator::Key(vec![1, 2])),
        );
        put_update(
            &mut bytes,
            TableId(2),
            &RowPosition::Located(Locator::RowId(row_id)),
            b"row",
        );
        put_delete(&mut bytes, TableId(2), &RowPosition::Own(9));
        put_insert(&mut bytes, TableId(3), b"");
        let ops: Vec<_> = operations(&bytes).map(|op| op.unwrap()).collect();
        assert_eq!(
            ops,
            vec![
                WriteOp::Delete {
                    table: TableId(1),
                    place: RowPosition::Located(Locator::Key(vec![1, 2]))
                },
                WriteOp::Update {
                    table: TableId(2),
                    place: RowPosition::Located(Locator::RowId(row_id)),
                    row: b"row"
                },
                WriteOp::Delete {
                    table: TableId(2),
                    place: RowPosition::Own(9)
                },
                WriteOp::Insert {
                    table: TableId(3),
                    row: b""
                },
            ]
        );
    }

    proptest! {
        #[test]
        fn garbage_ends_in_an_error_at_most(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut errors = 0;
            for op in operations(&bytes) {
                errors += u32::from(op.is_err());
            }
            prop_assert!(errors <= 1);
        }
    }
}
