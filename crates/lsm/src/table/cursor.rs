//! Walking over a sorted run of disjoint tables, in both directions.
//!
//! Tables are read here and there, and the system is told so; it reads nothing that it was not asked for. A
//! cursor that went on from block to block a few times asks for what comes next, in growing pieces.

use std::sync::Arc;

use weft_ops::block::{Block, BlockCursor, BlockError};
use weft_ops::key::{SeqNo, Stamp};

use super::read::{Opened, Table};
use crate::error::LsmError;

/// Blocks in a row after which more are asked for.
const IN_A_ROW: usize = 2;
/// The first piece that is asked for, and the largest, in bytes of the file.
const AHEAD_BYTES_MIN: u64 = 64 << 10;
const AHEAD_BYTES_MAX: u64 = 1 << 20;

/// What a cursor that goes on has asked for.
#[derive(Clone, Copy, Default)]
struct Ahead {
    /// Blocks that were stepped into from the one before, since the cursor was last set down.
    in_a_row: usize,
    /// Of this table, up to this offset.
    table: usize,
    end: u64,
    piece_bytes: u64,
}

/// A cursor over tables whose keys ascend from table to table: those of a level, or a single one.
pub(crate) struct RunCursor {
    tables: Vec<Arc<Table>>,
    /// The present table and block; a cursor in it if there is a present entry.
    table: usize,
    block: usize,
    cursor: Option<BlockCursor>,
    /// The table with this number, which thereby stays open while the cursor reads it.
    opened: Option<(usize, Arc<Opened>)>,
    ahead: Ahead,
    /// Whether blocks that are read go into the cache.
    keep: bool,
}

impl RunCursor {
    pub(crate) const fn new(tables: Vec<Arc<Table>>, keep: bool) -> Self {
        Self {
            tables,
            table: 0,
            block: 0,
            cursor: None,
            opened: None,
            ahead: Ahead {
                in_a_row: 0,
                table: 0,
                end: 0,
                piece_bytes: 0,
            },
            keep,
        }
    }

    pub(crate) const fn valid(&self) -> bool {
        self.cursor.is_some()
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], BlockCursor::key)
    }

    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        self.cursor
            .as_ref()
            .map_or(Stamp::newest_at(SeqNo(0)), BlockCursor::stamp)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.cursor.as_ref().map_or(&[], BlockCursor::value)
    }

    /// The table and the block of the present entry.
    pub(crate) fn place(&self) -> Option<(Arc<Table>, usize)> {
        self.cursor.as_ref()?;
        Some((Arc::clone(self.tables.get(self.table)?), self.block))
    }

    pub(crate) fn last(&mut self) -> Result<(), LsmError> {
        (self.table, self.block) = (self.tables.len(), 0);
        self.load_back()
    }

    /// To the first entry that does not stand before (`key`, `stamp`).
    pub(crate) fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<(), LsmError> {
        self.cursor = None;
        self.ahead = Ahead::default();
        self.table = self
            .tables
            .partition_point(|table| table.properties().upper.is_before(key));
        self.block = match self.opened()? {
            Some((_, opened)) => opened.block_for(key),
            None => return Ok(()),
        };
        self.load_forward(|cursor| cursor.seek(key, stamp))?;
        Ok(())
    }

    #[inline]
    pub(crate) fn forward(&mut self) -> Result<(), LsmError> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        match cursor.forward() {
            Ok(()) if cursor.valid() => Ok(()),
            Ok(()) => {
                self.block += 1;
                self.look_ahead()?;
                self.load_forward(BlockCursor::first)
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(crate) fn back(&mut self) -> Result<(), LsmError> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(());
        };
        match cursor.back() {
            Ok(()) if cursor.valid() => Ok(()),
            Ok(()) => self.load_back(),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The present table, open. `None` behind the last one.
    fn opened(&mut self) -> Result<Option<(&Table, &Opened)>, LsmError> {
        let Some(table) = self.tables.get(self.table) else {
            return Ok(None);
        };
        if self
            .opened
            .as_ref()
            .is_none_or(|(number, _)| *number != self.table)
        {
            self.opened = Some((self.table, table.opened()?));
        }
        Ok(self.opened.as_ref().map(|(_, opened)| (&**table, &**opened)))
    }

    /// Asks for what follows, if the cursor has come half way through what it asked for last. (The last block
    /// of a table asks for nothing: the next table is asked for from its second block on.)
    fn look_ahead(&mut self) -> Result<(), LsmError> {
        self.ahead.in_a_row += 1;
        if self.ahead.in_a_row < IN_A_ROW {
            return Ok(());
        }
        let (table, number, mut ahead) = (self.table, self.block, self.ahead);
        let Some((_, opened)) = self.opened()? else {
            return Ok(());
        };
        let Some(next) = opened.index().get(number) else {
            return Ok(());
        };
        let goes_on = ahead.table == table && ahead.end > next.offset;
        if goes_on && ahead.end - next.offset > ahead.piece_bytes / 2 {
            return Ok(());
        }
        ahead.piece_bytes = (ahead.piece_bytes * 2).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        if !goes_on {
            (ahead.table, ahead.end) = (table, next.offset);
        }
        opened.begin_reading(ahead.end, ahead.piece_bytes);
        ahead.end += ahead.piece_bytes;
        self.ahead = ahead;
        Ok(())
    }

    /// The present block. `None` behind the last one of the table, and behind the last table.
    fn read_block(&mut self) -> Result<Option<Block>, LsmError> {
        let (number, keep) = (self.block, self.keep);
        match self.opened()? {
            Some((table, opened)) => table.block(opened, number, keep),
            None => Ok(None),
        }
    }

    /// From the present block on, the first entry that `position` finds. (The entries of one key may fill
    /// more than a block, so that a search goes on in the next.)
    fn load_forward(
        &mut self,
        position: impl Fn(&mut BlockCursor) -> Result<(), BlockError>,
    ) -> Result<(), LsmError> {
        self.cursor = None;
        while self.table < self.tables.len() {
            let Some(block) = self.read_block()? else {
                (self.table, self.block) = (self.table + 1, 0);
                continue;
            };
            let mut cursor = block.cursor();
            if let Err(error) = position(&mut cursor) {
                return Err(self.failed(error));
            }
            if cursor.valid() {
                self.cursor = Some(cursor);
                return Ok(());
            }
            self.block += 1;
        }
        Ok(())
    }

    /// The last entry before the present block.
    fn load_back(&mut self) -> Result<(), LsmError> {
        self.cursor = None;
        loop {
            if self.block == 0 {
                let Some(before) = self.table.checked_sub(1) else {
                    return Ok(());
                };
                self.table = before;
                self.block = self.opened()?.map_or(0, |(_, opened)| opened.index().len());
                continue;
            }
            self.block -= 1;
            let Some(block) = self.read_block()? else {
                continue;
            };
            let mut cursor = block.cursor();
            if let Err(error) = cursor.last() {
                return Err(self.failed(error));
            }
            self.cursor = Some(cursor);
            return Ok(());
        }
    }

    /// Says where a bad block is; the cursor stands nowhere then.
    fn failed(&mut self, error: BlockError) -> LsmError {
        self.cursor = None;
        let number = self.block;
        match self.opened() {
            Ok(Some((_, opened))) => {
                let offset = opened.index().get(number).map_or(0, |entry| entry.offset);
                opened.bad_block(offset, error)
            }
            Ok(None) => LsmError::Closed,
            Err(error) => error,
        }
    }
}
