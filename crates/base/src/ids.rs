//! The numbers by which the parts speak of things.
//!
//! Each is a tuple newtype, so that a batch number cannot be passed where a log position is meant. The
//! field is public: ids are plain data, made by whoever owns the sequence they come from. A [`RowId`] is
//! permanent and the same on every replay (it says which batch, which member of it and which insert of that
//! member made the row), therefore it may enter digests and files; slots and addresses may not.

use std::fmt;

use crate::codec::{ByteReader, CodecError};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// Place of a batch in the one order of the database. The first batch is 1; 0 is the state before it.
    BatchId(u64)
}
id! {
    /// A table. Never used again after the table is dropped.
    TableId(u32)
}
id! {
    /// An index. Never used again after the index is dropped.
    IndexId(u32)
}
id! {
    /// A transaction of a session, or a one-shot program, while it runs. Not durable.
    TxnId(u64)
}
id! {
    /// A client's session. Not durable.
    SessionId(u32)
}
id! {
    /// Position in the log, in bytes since the log was first made. Grows over segments without a gap.
    Lsn(u64)
}
id! {
    /// Number of the catalog; every change of a definition raises it by one.
    CatalogVersion(u64)
}

impl BatchId {
    /// The batch that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl CatalogVersion {
    /// The version that follows this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Permanent identity of a row: the `ordinal`-th insert of member `member` of batch `batch`.
///
/// Ordered by batch, then member, then ordinal, which is the order in which rows came to be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RowId {
    /// Batch that inserted the row.
    pub batch: BatchId,
    /// Place of the inserting program within the batch.
    pub member: u32,
    /// How many rows that program had inserted before this one.
    pub ordinal: u32,
}

impl RowId {
    /// Length of [`RowId::encode`]'s result.
    pub const ENCODED_BYTES: usize = 16;

    /// Batch, member, ordinal; little endian.
    #[must_use]
    pub fn encode(self) -> [u8; Self::ENCODED_BYTES] {
        let wide = u128::from(self.batch.0) | u128::from(self.member) << 64 | u128::from(self.ordinal) << 96;
        wide.to_le_bytes()
    }

    /// Reverse of [`RowId::encode`]. Every 16 bytes are some row id.
    #[must_use]
    pub fn decode(bytes: [u8; Self::ENCODED_BYTES]) -> Self {
        let wide = u128::from_le_bytes(bytes);
        Self {
            batch: BatchId(wide as u64),
            member: (wide >> 64) as u32,
            ordinal: (wide >> 96) as u32,
        }
    }

    /// Reads an encoded row id.
    ///
    /// # Errors
    /// When fewer than 16 bytes are left.
    pub fn read(reader: &mut ByteReader<'_>) -> Result<Self, CodecError> {
        Ok(Self::decode(reader.array()?))
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.batch, self.member, self.ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_id_is_little_endian_and_reads_back() {
        let id = RowId {
            batch: BatchId(0x0102_0304_0506_0708),
            member: 0x1112_1314,
            ordinal: 0x2122_2324,
        };
        let bytes = id.encode();
        assert_eq!(bytes[..8], 0x0102_0304_0506_0708_u64.to_le_bytes());
        assert_eq!(bytes[8..12], 0x1112_1314_u32.to_le_bytes());
        assert_eq!(bytes[12..], 0x2122_2324_u32.to_le_bytes());
        assert_eq!(RowId::decode(bytes), id);
        assert_eq!(RowId::read(&mut ByteReader::new(&bytes)), Ok(id));
        assert!(RowId::read(&mut ByteReader::new(&bytes[1..])).is_err());
    }

    #[test]
    fn row_ids_sort_in_the_order_in_which_rows_came_to_be() {
        let id = |batch, member, ordinal| RowId {
            batch: BatchId(batch),
            member,
            ordinal,
        };
        let mut ids = [id(2, 0, 0), id(1, 1, 0), id(1, 0, 9), id(1, 0, 1)];
        ids.sort();
        assert_eq!(ids, [id(1, 0, 1), id(1, 0, 9), id(1, 1, 0), id(2, 0, 0)]);
        assert_eq!(id(1, 2, 3).to_string(), "1.2.3");
        assert_eq!(BatchId(7).next(), BatchId(8));
    }
}
