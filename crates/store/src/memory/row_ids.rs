//! The row ids of a region, packed: what cold rows are read by.
//!
//! ```text
//!   batch    base + low word + high word << 32        each a column of codes of one width (`ops::packed`),
//!   member   base + code                              by slot, of the fewest bits that hold all of them
//!   ordinal  base + code
//! ```
//!
//! Rows of one region were mostly inserted one after the other, so their ids differ little: 12 bits for rows
//! of one statement, some 20 for rows of many small transactions. At most it is the 16 bytes of an id.

use weft_base::{BatchId, RowId};
use weft_ops::packed::{code_at, pack};

/// So many bits for each number, from the smallest on.
#[derive(Debug, Default)]
struct Column {
    base: u32,
    width: u32,
    codes: Box<[u8]>,
}

impl Column {
    fn new(numbers: &[u32]) -> Self {
        let base = numbers.iter().copied().min().unwrap_or(0);
        let codes: Vec<u32> = numbers.iter().map(|number| number - base).collect();
        let width = codes.iter().fold(0, |all, code| all | code).checked_ilog2();
        let width = width.map_or(0, |highest| highest + 1);
        Column {
            base,
            width,
            codes: match width {
                0 => Box::default(),
                width => pack(&codes, width).into(),
            },
        }
    }

    fn at(&self, place: usize) -> u32 {
        match self.width {
            0 => self.base,
            width => self.base.wrapping_add(code_at(&self.codes, width, place)),
        }
    }
}

/// A list of row ids that is read by position and never changes.
#[derive(Debug, Default)]
pub(super) struct PackedRowIds {
    batch_base: u64,
    batch_high: Column,
    batch_low: Column,
    member: Column,
    ordinal: Column,
}

impl PackedRowIds {
    /// Packs these; what stands for `None` is undefined.
    pub(super) fn new(ids: &[Option<RowId>]) -> Self {
        // Any of them takes no bits where there is none.
        let Some(any) = ids.iter().flatten().next() else {
            return PackedRowIds::default();
        };
        let batches = ids.iter().flatten().map(|id| id.batch.0);
        let batch_base = batches.min().unwrap_or(0);
        let column = |part: fn(RowId, u64) -> u32| {
            let numbers = ids.iter().map(|id| part(id.unwrap_or(*any), batch_base));
            Column::new(&numbers.collect::<Vec<u32>>())
        };
        PackedRowIds {
            batch_base,
            batch_high: column(|id, base| ((id.batch.0 - base) >> 32) as u32),
            batch_low: column(|id, base| (id.batch.0 - base) as u32),
            member: column(|id, _| id.member),
            ordinal: column(|id, _| id.ordinal),
        }
    }

    /// The one at a position.
    pub(super) fn at(&self, place: usize) -> RowId {
        let batch = u64::from(self.batch_high.at(place)) << 32 | u64::from(self.batch_low.at(place));
        RowId {
            batch: BatchId(self.batch_base.wrapping_add(batch)),
            member: self.member.at(place),
            ordinal: self.ordinal.at(place),
        }
    }

    /// Memory of the codes.
    pub(super) fn size_bytes(&self) -> usize {
        let columns = [&self.batch_high, &self.batch_low, &self.member, &self.ordinal];
        columns.iter().map(|column| column.codes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(batch: u64, member: u32, ordinal: u32) -> RowId {
        RowId {
            batch: BatchId(batch),
            member,
            ordinal,
        }
    }

    proptest! {
        /// Whatever the ids are, and however far apart.
        #[test]
        fn ids_are_read_as_they_were_packed(
            ids in proptest::collection::vec(
                proptest::option::weighted(
                    0.8,
                    (0u32..64, any::<u64>(), 0u32..32, any::<u32>(), any::<u32>()),
                ),
                0..200,
            ),
        ) {
            let ids: Vec<Option<RowId>> = ids
                .into_iter()
                .map(|one| one.map(|(to, batch, by, member, ordinal)| id(batch >> to, member >> by, ordinal)))
                .collect();
            let packed = PackedRowIds::new(&ids);
            for (place, id) in ids.iter().enumerate() {
                if let Some(id) = id {
                    prop_assert_eq!(packed.at(place), *id);
                }
            }
            prop_assert!(packed.size_bytes() <= ids.len() * 16);
        }
    }

    #[test]
    fn ids_of_neighbours_take_few_bits() {
        let bits = |ids: Vec<RowId>| {
            let ids: Vec<Option<RowId>> = ids.into_iter().map(Some).collect();
            PackedRowIds::new(&ids).size_bytes() * 8 / ids.len()
        };
        assert_eq!(
            bits((0..4_096).map(|row| id(1 << 40, 7, 1_000_000 + row)).collect()),
            12
        );
        let transactions = (0..4_096).map(|row| id(1 << 33 | u64::from(row / 30), row % 30, 0));
        assert_eq!(bits(transactions.collect()), 8 + 5);
        assert_eq!(bits(vec![id(5, 5, 5); 64]), 0);
    }
}
