//! Iterates over a sorted run of disjoint tables, in both directions.

use std::sync::Arc;

use weft_ops::block::{Block, BlockCursor, BlockError};
use weft_ops::key::{SeqNo, Stamp};

use super::read::{Opened, Table};
use super::readahead::Readahead;
use crate::error::LsmError;

/// Where a cursor's blocks come from.
pub(crate) enum Blocks {
    /// The cache, which keeps them.
    Cached,
    /// The disk, with readahead, unless the cache has them; they are not cached.
    Once(Box<Readahead>),
}

/// A cursor over tables whose keys ascend from table to table: those of a level, or a single one.
pub(crate) struct RunCursor {
    tables: Vec<Arc<Table>>,
    /// The current table and block; a cursor in it if there is a current entry.
    table: usize,
    block: usize,
    cursor: Option<BlockCursor>,
    /// The table with this number, kept open while the cursor reads it.
    opened: Option<(usize, Arc<Opened>)>,
    blocks: Blocks,
}

impl RunCursor {
    pub(crate) const fn new(tables: Vec<Arc<Table>>, blocks: Blocks) -> Self {
        Self {
            tables,
            table: 0,
            block: 0,
            cursor: None,
            opened: None,
            blocks,
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

    /// The current table, open. `None` after the last one.
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

    /// The current block. `None` after the last one of the table, and after the last table.
    fn read_block(&mut self) -> Result<Option<Block>, LsmError> {
        if self.opened()?.is_none() {
            return Ok(None);
        }
        let (Some(table), Some((_, opened))) = (self.tables.get(self.table), &self.opened) else {
            return Ok(None);
        };
        match &mut self.blocks {
            Blocks::Cached => table.block(opened, self.block),
            Blocks::Once(pieces) => pieces.block(table, opened, self.block),
        }
    }

    /// From the current block on, the first entry that `position` finds. (The entries of one key may span
    /// blocks, so that a search continues in the next.)
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

    /// The error that says where the corrupt block is; the cursor is invalid then.
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
