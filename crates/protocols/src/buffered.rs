//! A data access that keeps a transaction's writes private until they are installed.
//!
//! Reads see the store's newest state overlaid with the transaction's own writes. Rows inserted here get
//! handles with the top bit set, which no slot of the store has. NOT NULL and uniqueness are checked when the
//! writes are installed, in the order in which they were made, so a violation raises the same error as
//! writing in place.
//!
//! Write sets are small: own writes are searched linearly, and only in tables that the transaction has
//! written to.
//!
//! Source: Tu et al. 2013 (Silo), 4.3 (local write sets).

use std::ops::{Bound, ControlFlow, Range};

use weft_base::{BatchId, IndexId, TableId};
use weft_program::{DataAccess, RowHandle};
use weft_store::{Catalog, MemberWriter, SlotId, TableDef};
use weft_types::{SqlError, SqlState, encode_key_from_row};

use crate::Observe;

const INSERTED: u64 = 1 << 63;

#[derive(Debug, Clone)]
struct Write {
    handle: RowHandle,
    /// Range of the row in `bytes`; `None` if removed.
    row: Option<Range<usize>>,
}

/// The writes of one transaction; reuses its memory.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    writes: Vec<Write>,
    bytes: Vec<u8>,
}

impl WriteBuffer {
    pub fn clear(&mut self) {
        self.writes.clear();
        self.bytes.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    fn find(&self, handle: &RowHandle) -> Option<usize> {
        self.writes.iter().position(|write| write.handle == *handle)
    }

    fn has_table(&self, table: TableId) -> bool {
        self.writes.iter().any(|write| write.handle.table == table)
    }

    fn row(&self, write: &Write) -> Option<&[u8]> {
        self.bytes.get(write.row.clone()?)
    }

    fn put(&mut self, handle: RowHandle, row: Option<&[u8]>) {
        let row = row.map(|row| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(row);
            start..self.bytes.len()
        });
        match self.find(&handle).and_then(|at| self.writes.get_mut(at)) {
            Some(write) => write.row = row,
            None => self.writes.push(Write { handle, row }),
        }
    }

    /// Applies the writes through a member, in order. After an error the member must be rolled back.
    pub fn install<O: Observe>(
        &self,
        member: &mut MemberWriter<'_>,
        job: usize,
        observe: &O,
    ) -> Result<(), SqlError> {
        for write in &self.writes {
            let table = write.handle.table;
            let slot = SlotId(write.handle.slot);
            let row = self.row(write);
            let inserted = write.handle.slot & INSERTED != 0;
            let old = match inserted {
                false if O::INSTALLS => member.get(table, slot)?.map(|version| version.bytes),
                _ => None,
            };
            match row {
                Some(row) if inserted => member.insert(table, row).map(|_| ())?,
                Some(row) => member.update(table, slot, row)?,
                None if inserted => continue,
                None => member.remove(table, slot)?,
            }
            if O::INSTALLS {
                observe.installed(job, table, old, row);
            }
        }
        Ok(())
    }
}

/// See the module.
pub(crate) struct BufferedAccess<'m, 'b> {
    member: &'m mut MemberWriter<'b>,
    buffer: &'m mut WriteBuffer,
    catalog: &'m Catalog,
    /// The row found last, which saves the lookup for its further columns.
    latest: Option<(RowHandle, &'b [u8])>,
    key: Vec<u8>,
}

impl<'m, 'b> BufferedAccess<'m, 'b> {
    pub fn new(member: &'m mut MemberWriter<'b>, buffer: &'m mut WriteBuffer, catalog: &'m Catalog) -> Self {
        BufferedAccess {
            member,
            buffer,
            catalog,
            latest: None,
            key: Vec::new(),
        }
    }

    fn def(&self, table: TableId) -> Result<&'m TableDef, SqlError> {
        self.catalog
            .table_by_id(table)
            .map(|def| &**def)
            .ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "the table no longer exists"))
    }

    /// The own rows of a table with their keys in an index.
    fn own_keys(&self, table: TableId, index: IndexId) -> Result<Vec<(Vec<u8>, RowHandle)>, SqlError> {
        let def = self.def(table)?;
        let columns = def
            .indexes
            .iter()
            .find(|known| known.id == index)
            .map(|index| index.columns.as_slice())
            .unwrap_or_default();
        let own = self
            .buffer
            .writes
            .iter()
            .filter(|write| write.handle.table == table);
        let keyed = own.filter_map(|write| {
            let mut key = Vec::new();
            encode_key_from_row(&mut key, &def.layout, self.buffer.row(write)?, columns);
            Some((key, write.handle))
        });
        Ok(keyed.collect())
    }
}

impl DataAccess for BufferedAccess<'_, '_> {
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let written = self.buffer.has_table(table);
        if written {
            let own = self.own_keys(table, index)?;
            if let Some((_, handle)) = own.into_iter().find(|(own, _)| own == key) {
                return Ok(Some(handle));
            }
        }
        let mut found = None;
        let buffer = &*self.buffer;
        self.member.lookup(table, index, key, |row| {
            let handle = RowHandle {
                table,
                slot: row.slot.0,
            };
            if written && buffer.find(&handle).is_some() {
                // The row was removed, or its key has changed.
                return ControlFlow::Continue(());
            }
            found = Some((handle, row.bytes));
            ControlFlow::Break(())
        })?;
        self.latest = found.or(self.latest);
        Ok(found.map(|(handle, _)| handle))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        if let Some(write) = self.buffer.find(row).and_then(|at| self.buffer.writes.get(at)) {
            return self.buffer.row(write);
        }
        match self.latest {
            Some((handle, bytes)) if handle == *row => Some(bytes),
            _ => self
                .member
                .get(row.table, SlotId(row.slot))
                .ok()
                .flatten()
                .map(|version| version.bytes),
        }
    }

    fn range(
        &mut self,
        index: IndexId,
        table: TableId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError> {
        let handle = |slot: SlotId| RowHandle { table, slot: slot.0 };
        if !self.buffer.has_table(table) {
            let rows = self.member.range(table, index, lo, hi, reverse, limit)?;
            out.extend(rows.iter().map(|row| handle(row.slot)));
            return Ok(());
        }
        let mut keyed = self.own_keys(table, index)?;
        keyed.retain(|(key, _)| {
            let above = match lo {
                Bound::Included(lo) => key.as_slice() >= lo,
                Bound::Excluded(lo) => key.as_slice() > lo,
                Bound::Unbounded => true,
            };
            above
                && match hi {
                    Bound::Included(hi) => key.as_slice() <= hi,
                    Bound::Excluded(hi) => key.as_slice() < hi,
                    Bound::Unbounded => true,
                }
        });
        let def = self.def(table)?;
        let columns = def.indexes.iter().find(|known| known.id == index);
        let columns = columns.map(|index| index.columns.as_slice()).unwrap_or_default();
        // Each own write hides at most one of these rows.
        let wanted = limit.saturating_add(self.buffer.writes.len());
        for row in self.member.range(table, index, lo, hi, reverse, wanted)? {
            if self.buffer.find(&handle(row.slot)).is_none() {
                self.key.clear();
                encode_key_from_row(&mut self.key, &def.layout, row.bytes, columns);
                keyed.push((self.key.clone(), handle(row.slot)));
            }
        }
        keyed.sort_by(|(a, a_row), (b, b_row)| a.cmp(b).then(a_row.slot.cmp(&b_row.slot)));
        if reverse {
            keyed.reverse();
        }
        out.extend(keyed.into_iter().take(limit).map(|(_, handle)| handle));
        Ok(())
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        let handle = RowHandle {
            table,
            slot: INSERTED | self.buffer.writes.len() as u64,
        };
        self.buffer.put(handle, Some(row));
        Ok(handle)
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.buffer.put(*row, Some(bytes));
        Ok(())
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.buffer.put(*row, None);
        Ok(())
    }

    fn observed(&self) -> BatchId {
        self.member.observed()
    }
}
