//! Rows that are not in memory: cold rows, and what those do who meet one.
//!
//! A cold row has one version, and the newest checkpoint holds it. Its place in a frozen region (`frozen`)
//! says which row it is, so that it can be read from there ([`ColdRows`]), and what its seal was, so that
//! nothing else is taken for it. A row that somebody needs becomes a slot again (it is *thawed*); whole
//! tables are read without that. Slot numbers do not change, so no index does.
//!
//! Whoever needs the row waits for it, members of a batch included. Whoever reads must ask
//! [`super::ReadContext::check`] before it uses what it found: a row that could not be read is not a row that
//! is not there.
//!
//! Source: decision 0027.

use std::fmt;

use weft_base::{BatchId, RowId, TableId};
use weft_types::SqlError;

/// Where cold rows are read from.
pub(crate) trait ColdRows: fmt::Debug + Send + Sync {
    /// Puts a row's bytes into `row`, replacing what was there; returns the batch that wrote it.
    ///
    /// # Errors
    /// The disk's; a damaged file; no such row.
    fn read(&self, table: TableId, row_id: RowId, row: &mut Vec<u8>) -> Result<BatchId, SqlError>;

    /// What is kept in memory to read them.
    fn memory_bytes(&self) -> u64;

    /// For who reads many rows in the order of their ids, this one first. `None` if there is no such way.
    fn in_order(&self, table: TableId, first: RowId) -> Option<Box<dyn ColdRowsInOrder>>;
}

/// Cold rows, read in the order of their ids.
pub(crate) trait ColdRowsInOrder: Send {
    /// As [`ColdRows::read`]. `None` if the row is not a little ahead of the one before, or if it cannot be
    /// read: it is then to be read by itself. Shows rows as they were stored when this was made.
    fn read(&mut self, row_id: RowId, row: &mut Vec<u8>) -> Option<BatchId>;
}

/// Cold rows that are read one by one before all that follow are read in order, and that may be missing
/// there before it is given up.
const ALONE: u32 = 16;
/// Reading in order pays from about so many rows on; if it gave fewer, twice as many are read alone next
/// time.
const FOUND_MIN: u32 = 64;
const DOUBLINGS_MAX: u32 = 12;

/// Reads rows ahead for who visits one after the other: most of them are stored one behind the other, too.
#[derive(Default)]
pub(super) struct ReadAhead {
    rows: Option<Box<dyn ColdRowsInOrder>>,
    /// Rows that `rows` has had.
    found: u32,
    /// Rows that were read alone since then.
    alone: u32,
    doublings: u32,
}

impl fmt::Debug for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("found", &self.found)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

impl ReadAhead {
    /// As [`ColdRowsInOrder::read`].
    pub(super) fn read(
        &mut self,
        stored: &dyn ColdRows,
        table: TableId,
        row_id: RowId,
        row: &mut Vec<u8>,
    ) -> Option<BatchId> {
        if self.rows.is_none() && self.alone >= ALONE << self.doublings {
            (self.rows, self.found, self.alone) = (stored.in_order(table, row_id), 0, 0);
        }
        let read = self.rows.as_mut().and_then(|rows| rows.read(row_id, row));
        if read.is_some() {
            (self.found, self.alone) = (self.found.saturating_add(1), 0);
            return read;
        }
        self.alone = self.alone.saturating_add(1);
        if self.rows.is_some() && self.alone == ALONE {
            self.rows = None;
            self.doublings = match self.found < FOUND_MIN {
                true => (self.doublings + 1).min(DOUBLINGS_MAX),
                false => 0,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Rows that are stored in the order of their ids; how often they were asked for in order.
    #[derive(Debug, Default)]
    struct Stored(AtomicU32);

    /// The number of the next row.
    struct Next(u32);

    impl ColdRows for Stored {
        fn read(&self, _: TableId, _: RowId, _: &mut Vec<u8>) -> Result<BatchId, SqlError> {
            Ok(BatchId(1))
        }

        fn memory_bytes(&self) -> u64 {
            0
        }

        fn in_order(&self, _: TableId, first: RowId) -> Option<Box<dyn ColdRowsInOrder>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(Next(first.ordinal)))
        }
    }

    impl ColdRowsInOrder for Next {
        fn read(&mut self, row_id: RowId, _: &mut Vec<u8>) -> Option<BatchId> {
            let is_next = row_id.ordinal == self.0;
            self.0 += u32::from(is_next);
            is_next.then_some(BatchId(1))
        }
    }

    /// How many of these rows are found in order, and how often that is begun.
    fn read(rows: impl Iterator<Item = u32>) -> (usize, u32) {
        let (stored, mut ahead) = (Stored::default(), ReadAhead::default());
        let id = |ordinal| RowId {
            batch: BatchId(1),
            member: 0,
            ordinal,
        };
        let found = rows
            .filter(|row| {
                ahead
                    .read(&stored, TableId(1), id(*row), &mut Vec::new())
                    .is_some()
            })
            .count();
        (found, stored.0.into_inner())
    }

    #[test]
    fn rows_in_order_are_read_together() {
        assert_eq!(read(0..10_000), (10_000 - ALONE as usize, 1));
        // Long runs with jumps between them.
        let (found, begun) = read((0..10).flat_map(|run| run * 5_000..run * 5_000 + 1_000));
        assert!(found > 9_500 && begun == 10, "{found} found, begun {begun} times");
    }

    #[test]
    fn where_rows_are_in_no_order_it_is_given_up() {
        let (found, begun) = read((0..100_000).rev());
        assert!(found <= 20 && begun <= 13, "{found} found, begun {begun} times");
    }
}
