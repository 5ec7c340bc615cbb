//! Many sorted sources as one, in either direction.

use std::cmp::Ordering;
use std::sync::Arc;

use weft_ops::key::{EntryKind, SeqNo, Stamp};

use crate::error::LsmError;
use crate::memtable::MemtableCursor;
use crate::table::{RunCursor, Table};

/// A source of entries.
pub(crate) enum EntryCursor {
    Memtable(MemtableCursor),
    Run(RunCursor),
}

impl EntryCursor {
    fn valid(&self) -> bool {
        match self {
            Self::Memtable(cursor) => cursor.valid(),
            Self::Run(cursor) => cursor.valid(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Run(cursor) => cursor.key(),
        }
    }

    fn stamp(&self) -> Stamp {
        match self {
            Self::Memtable(cursor) => cursor.stamp(),
            Self::Run(cursor) => cursor.stamp(),
        }
    }

    fn value(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.value(),
            Self::Run(cursor) => cursor.value(),
        }
    }

    /// Table and block, if it stands in one.
    fn place(&self) -> Option<(Arc<Table>, usize)> {
        match self {
            Self::Memtable(_) => None,
            Self::Run(cursor) => cursor.place(),
        }
    }

    fn last(&mut self) -> Result<(), LsmError> {
        match self {
            Self::Memtable(cursor) => cursor.last(),
            Self::Run(cursor) => cursor.last()?,
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<(), LsmError> {
        match self {
            Self::Memtable(cursor) => cursor.seek(key, stamp),
            Self::Run(cursor) => cursor.seek(key, stamp)?,
        }
        Ok(())
    }

    fn forward(&mut self) -> Result<(), LsmError> {
        match self {
            Self::Memtable(cursor) => cursor.forward(),
            Self::Run(cursor) => cursor.forward()?,
        }
        Ok(())
    }

    fn back(&mut self) -> Result<(), LsmError> {
        match self {
            Self::Memtable(cursor) => cursor.back(),
            Self::Run(cursor) => cursor.back()?,
        }
        Ok(())
    }
}

/// All entries of all sources in order of key, then stamp descending. Moves in one direction after each
/// positioning: forward after `seek`, back after `seek_before`.
pub(crate) struct MergingCursor {
    sources: Vec<EntryCursor>,
    /// The sources that stand on an entry, the present one first.
    order: Vec<usize>,
    backward: bool,
}

impl MergingCursor {
    pub(crate) const fn new(sources: Vec<EntryCursor>) -> Self {
        Self {
            sources,
            order: Vec::new(),
            backward: false,
        }
    }

    fn present(&self) -> Option<&EntryCursor> {
        self.sources.get(*self.order.first()?)
    }

    pub(crate) fn valid(&self) -> bool {
        !self.order.is_empty()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.present().map_or(&[], EntryCursor::key)
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.present()
            .map_or(Stamp::newest_at(SeqNo(0)), EntryCursor::stamp)
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.present().map_or(&[], EntryCursor::value)
    }

    /// Where the present entry stands, if it is a pointer to a large value: table and block.
    pub(crate) fn pointer_place(&self) -> Option<(Arc<Table>, usize)> {
        if self.stamp().kind() == EntryKind::LargeValue {
            self.present()?.place()
        } else {
            None
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<(), LsmError> {
        self.position(false, |source| source.seek(key, stamp))
    }

    /// To the last entry before (`key`, `stamp`).
    pub(crate) fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<(), LsmError> {
        self.position(true, |source| {
            source.seek(key, stamp)?;
            if source.valid() {
                source.back()
            } else {
                source.last()
            }
        })
    }

    fn position(
        &mut self,
        backward: bool,
        to: impl Fn(&mut EntryCursor) -> Result<(), LsmError>,
    ) -> Result<(), LsmError> {
        self.backward = backward;
        self.order.clear();
        for source in &mut self.sources {
            to(source)?;
        }
        for number in 0..self.sources.len() {
            if self.sources.get(number).is_some_and(EntryCursor::valid) {
                self.order.insert(0, number);
                self.sink();
            }
        }
        Ok(())
    }

    /// To the next entry in the direction that was chosen. After an error the cursor stands nowhere.
    pub(crate) fn advance(&mut self) -> Result<(), LsmError> {
        let Some(source) = self
            .order
            .first()
            .and_then(|&number| self.sources.get_mut(number))
        else {
            return Ok(());
        };
        let moved = if self.backward {
            source.back()
        } else {
            source.forward()
        };
        if let Err(error) = moved {
            self.order.clear();
            return Err(error);
        }
        if source.valid() {
            self.sink();
        } else {
            self.order.remove(0);
        }
        Ok(())
    }

    /// Moves the first source to its place among the others, which are sorted.
    fn sink(&mut self) {
        let mut at = 0;
        while let Some(&[number, next]) = self
            .order
            .get(at..at + 2)
            .and_then(|pair| pair.first_chunk::<2>())
        {
            let (Some(a), Some(b)) = (self.sources.get(number), self.sources.get(next)) else {
                return;
            };
            let order = a.key().cmp(b.key()).then_with(|| b.stamp().cmp(&a.stamp()));
            let order = if self.backward { order.reverse() } else { order };
            if order != Ordering::Greater {
                return;
            }
            self.order.swap(at, at + 1);
            at += 1;
        }
    }
}
