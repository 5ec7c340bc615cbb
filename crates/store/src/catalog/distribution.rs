//! Where a table's rows are when several ranks hold the database together.
//!
//! A database by itself has one rank, which holds everything: the distribution then changes nothing, and is
//! kept for the cluster that the definitions may be used in later. What it requires of a table is checked
//! wherever the table is, so that the same statements succeed on one machine and on several:
//!
//! 1. The rank of a row follows from the first column of the primary key, so that a statement that names a
//!    key names a rank. A partitioned table therefore has a primary key, which cannot be dropped.
//! 2. Every unique index contains that column: equal values then meet on one rank (as PostgreSQL requires of
//!    unique constraints on partitioned tables).
//!
//! In the catalog's encoding distributions are a section of their own, which is absent where every table is
//! on a single rank.

use weft_base::{ByteReader, ByteWriter, CodecError, TableId};
use weft_ops::hash64;
use weft_types::{SqlError, SqlState, Value, encode_key_value};

use super::Catalog;
use super::codec::{SECTION_DISTRIBUTIONS, count, invalid};
use super::definition::{IndexDef, TableDef};

/// Which ranks hold a table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// One rank, the first, holds all of them.
    #[default]
    Single,
    /// Each row is on the rank that the hash of the first column of its primary key names.
    Hash,
    /// Every rank holds all of them.
    Replicated,
}

impl Distribution {
    /// The rank, of so many, of a row of a table with distribution [`Distribution::Hash`] whose first key
    /// column has this value. It is part of what is on disk: it never changes.
    #[must_use]
    pub fn rank_of(value: &Value, rank_count: u32) -> u32 {
        let mut key = Vec::with_capacity(16);
        encode_key_value(&mut key, value);
        // The upper half of a product spreads hashes over any number of ranks.
        let product = u128::from(hash64(&key)) * u128::from(rank_count.max(1));
        u32::try_from(product >> 64).unwrap_or(0)
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.put_u8(match self {
            Distribution::Single => 0,
            Distribution::Hash => 1,
            Distribution::Replicated => 2,
        });
    }

    fn decode(reader: &mut ByteReader<'_>) -> Result<Distribution, CodecError> {
        match reader.u8()? {
            0 => Ok(Distribution::Single),
            1 => Ok(Distribution::Hash),
            2 => Ok(Distribution::Replicated),
            _ => Err(invalid("distribution")),
        }
    }
}

impl TableDef {
    /// The column whose value names a row's rank, for a table with distribution [`Distribution::Hash`].
    #[must_use]
    pub fn partition_column(&self) -> Option<usize> {
        match self.distribution {
            Distribution::Hash => self.primary_index()?.columns.first().copied(),
            Distribution::Single | Distribution::Replicated => None,
        }
    }

    /// Refuses an index that the distribution does not allow.
    pub(super) fn check_placed_index(&self, index: &IndexDef) -> Result<(), SqlError> {
        let Some(column) = self.partition_column() else {
            return Ok(());
        };
        if !index.unique || index.columns.contains(&column) {
            return Ok(());
        }
        let name = self.columns.get(column).map_or("", |column| column.name.as_str());
        let message = "unique constraint on partitioned table must include all partitioning columns";
        Err(SqlError::unsupported(message).detail(format!(
            "Index \"{}\" lacks column \"{name}\", by which table \"{}\" is partitioned.",
            index.name, self.name
        )))
    }
}

impl Catalog {
    pub(super) fn set_distribution(
        &mut self,
        table: TableId,
        distribution: Distribution,
    ) -> Result<(), SqlError> {
        let mut def = TableDef::clone(self.table_def(table)?.as_ref());
        if distribution == Distribution::Hash && def.primary_key.is_none() {
            let message = format!(
                "table \"{}\" cannot be partitioned without a primary key",
                def.name
            );
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        let refers = def.foreign_keys().next().is_some() || !def.referenced_by.is_empty();
        if distribution != Distribution::Single && refers {
            let message = "foreign keys of tables that several ranks hold are not supported";
            return Err(SqlError::unsupported(message));
        }
        def.distribution = distribution;
        for index in &def.indexes {
            def.check_placed_index(index)?;
        }
        self.put_table(def);
        Ok(())
    }

    /// Appends the section, if any table has a distribution.
    pub(super) fn encode_distributions(&self, out: &mut Vec<u8>) {
        let placed = || {
            self.tables()
                .filter(|table| table.distribution != Distribution::Single)
        };
        if placed().next().is_none() {
            return;
        }
        out.put_u8(SECTION_DISTRIBUTIONS);
        out.put_varint(placed().count() as u64);
        for table in placed() {
            out.put_u32(table.id.0);
            table.distribution.encode(out);
        }
    }

    /// Reads the section behind its tag.
    pub(super) fn decode_distributions(&mut self, reader: &mut ByteReader<'_>) -> Result<(), CodecError> {
        let tables = count(reader, usize::MAX)?;
        if tables == 0 {
            return Err(invalid("an empty list of distributions"));
        }
        let mut before = TableId(0);
        for _ in 0..tables {
            let table = TableId(reader.u32()?);
            let distribution = Distribution::decode(reader)?;
            if table <= before || distribution == Distribution::Single {
                return Err(invalid("distributions out of order"));
            }
            before = table;
            self.set_distribution(table, distribution)
                .map_err(|_| invalid("a distribution that its table does not allow"))?;
        }
        Ok(())
    }
}

/// As an operation of the catalog.
pub(super) fn put(out: &mut Vec<u8>, table: TableId, distribution: Distribution) {
    out.put_u32(table.0);
    distribution.encode(out);
}

/// Inverse of [`put`].
pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<(TableId, Distribution), CodecError> {
    Ok((TableId(reader.u32()?), Distribution::decode(reader)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_values_never_change() {
        let ranks: Vec<u32> = (0..12)
            .map(|id| Distribution::rank_of(&Value::Int4(id), 3))
            .collect();
        assert_eq!(ranks, EXPECTED);
        let text = Value::Text("weft".into());
        assert_eq!(Distribution::rank_of(&text, 1), 0);
        assert_eq!(Distribution::rank_of(&text, 1000), EXPECTED_TEXT);
    }

    const EXPECTED: [u32; 12] = [0, 2, 2, 2, 2, 2, 1, 2, 0, 0, 1, 1];
    const EXPECTED_TEXT: u32 = 848;

    #[test]
    fn values_spread_over_ranks() {
        for rank_count in [2, 3, 7] {
            let mut counts = vec![0_u32; rank_count as usize];
            for id in 0..10_000 {
                let rank = Distribution::rank_of(&Value::Int4(id), rank_count);
                counts[rank as usize] += 1;
            }
            let fair = 10_000 / rank_count;
            assert!(
                counts
                    .iter()
                    .all(|count| (fair * 9 / 10..fair * 11 / 10).contains(count)),
                "{counts:?}"
            );
        }
    }
}
