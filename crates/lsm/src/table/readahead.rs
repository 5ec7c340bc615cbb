//! Reads a cursor's blocks with readahead: for scans that read everything once, forward.
//!
//! If the requested block follows the last one, it comes from the current chunk, or begins the next chunk.
//! Any other block is read by itself: a step back or a seek elsewhere costs one read. A chunk ends with the
//! block that contains the end of the wanted keys.

use bytes::Bytes;
use weft_ops::block::Block;

use super::bulk_read::BulkReader;
use super::format::IndexEntry;
use super::read::{Opened, Table};
use crate::error::LsmError;

/// The most bytes of a chunk, unless a single block is longer: with what is read around it, a buffer of 1
/// MiB.
const PIECE_BYTES: u64 = (1 << 20) - (8 << 10);

/// Reads the blocks of tables, one table after the other.
pub(crate) struct Readahead {
    source: BulkReader,
    /// No key from this one on is wanted.
    end: Option<Vec<u8>>,
    /// Table and block after the one that was read last.
    expected: Option<(u64, usize)>,
    /// The current chunk: its table and its offset.
    stored: Bytes,
    table: u64,
    offset: u64,
}

impl Readahead {
    /// For a scan of keys before `end`.
    pub(crate) fn new(end: Option<Vec<u8>>) -> Self {
        Self {
            source: BulkReader::new(),
            end,
            expected: None,
            stored: Bytes::new(),
            table: 0,
            offset: 0,
        }
    }

    /// Block `number`. `None` behind the last one.
    pub(super) fn block(
        &mut self,
        table: &Table,
        opened: &Opened,
        number: usize,
    ) -> Result<Option<Block>, LsmError> {
        let Some(entry) = opened.index().get(number) else {
            return Ok(None);
        };
        let (of_table, behind) = (table.number(), number + 1);
        let goes_on = match self.expected {
            None => true,
            Some(expected) => expected == (of_table, number) || (expected.0 != of_table && number == 0),
        };
        if self.expected.is_some_and(|(before, _)| before != of_table) {
            // Including the handles that it has open.
            self.source = BulkReader::new();
        }
        self.expected = Some((of_table, behind));
        if let Some(block) = table.cached(entry) {
            return Ok(Some(block));
        }
        let stored = match self.in_piece(of_table, entry) {
            Some(stored) => stored,
            None => {
                let last = if goes_on {
                    self.last_of_piece(opened, number, entry)
                } else {
                    entry
                };
                let bytes = last.offset + u64::from(last.bytes) - entry.offset;
                // Its memory may be reused for the next one.
                self.stored = Bytes::new();
                self.stored = self.source.read(table, opened, entry.offset, bytes as usize)?;
                (self.table, self.offset) = (of_table, entry.offset);
                self.stored.slice(..entry.bytes as usize)
            }
        };
        Ok(Some(opened.check_stored(entry, &stored)?))
    }

    /// The block's bytes if the current chunk has them.
    fn in_piece(&self, table: u64, entry: &IndexEntry) -> Option<Bytes> {
        let start = entry.offset.checked_sub(self.offset)? as usize;
        let end = start.checked_add(entry.bytes as usize)?;
        let has_it = table == self.table && end <= self.stored.len();
        has_it.then(|| self.stored.slice(start..end))
    }

    /// The last block of the chunk that begins with `first`, block `number`.
    fn last_of_piece<'o>(&self, opened: &'o Opened, number: usize, first: &'o IndexEntry) -> &'o IndexEntry {
        let index = opened.index();
        // The first block whose last key reaches the end has keys before it, and is the last that does.
        let behind = self
            .end
            .as_ref()
            .map_or(index.len(), |end| opened.block_for(end) + 1);
        let following = index.get(number + 1..behind.min(index.len())).unwrap_or_default();
        let fits = |entry: &&IndexEntry| entry.offset + u64::from(entry.bytes) - first.offset <= PIECE_BYTES;
        following.iter().take_while(fits).last().unwrap_or(first)
    }
}
