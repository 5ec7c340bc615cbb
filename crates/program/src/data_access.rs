//! How programs reach rows: one trait, and its two implementations over the store.
//!
//! The interpreter never sees transactions, snapshots or overlays, only a [`DataAccess`]. In a batch that is
//! [`BatchAccess`] (reads the newest state, earlier writes of the same batch included); for a program that
//! only reads, [`ReadAccess`] at a batch boundary; a session's overlay brings its own.

use std::ops::Bound;

use weft_base::{BatchId, IndexId, TableId};
use weft_store::{MemberWriter, Probe, ReadView, SlotId, Snapshot};
use weft_types::{SqlError, SqlState};

/// A row that a program holds in a collect register. What `slot` means is the implementation's business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowHandle {
    /// The row's table.
    pub table: TableId,
    /// Where it is.
    pub slot: u64,
}

/// Reads and writes of one program. Every method may fail with the error that the client sees; the caller
/// then rolls back.
pub trait DataAccess {
    /// The row with a complete key in a unique index.
    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError>;

    /// Begins to fetch from memory what [`DataAccess::search`] with this key would touch. True when it is
    /// worth turning to another program meanwhile; false, as here, where programs are not interleaved. A
    /// hint: it changes nothing.
    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        let _ = (index, table, key);
        false
    }

    /// The row's present bytes, writes of this program included; `None` once it is removed.
    fn row(&self, row: &RowHandle) -> Option<&[u8]>;

    /// Appends rows with keys in the bounds, at most `limit`, in key order or its reverse.
    #[expect(clippy::too_many_arguments, reason = "a range read has this many parts")]
    fn range(
        &mut self,
        index: IndexId,
        table: TableId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
        out: &mut Vec<RowHandle>,
    ) -> Result<(), SqlError>;

    /// Inserts a row; constraints are checked.
    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError>;

    /// Replaces a row; constraints are checked.
    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError>;

    /// Removes a row.
    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError>;

    /// The highest batch that anything read was written by.
    fn observed(&self) -> BatchId;
}

/// A batch member's reads and writes.
pub struct BatchAccess<'m, 'b> {
    writer: &'m mut MemberWriter<'b>,
    /// The row found last, until something is written.
    latest: Option<(RowHandle, &'b [u8])>,
    /// Where a search that must wait for memory leaves its probe, if programs are interleaved.
    probe: Option<&'m mut Option<Probe>>,
}

impl<'m, 'b> BatchAccess<'m, 'b> {
    /// Through a member's writer; the caller commits or rolls it back.
    pub fn new(writer: &'m mut MemberWriter<'b>) -> Self {
        BatchAccess {
            writer,
            latest: None,
            probe: None,
        }
    }

    /// As [`BatchAccess::new`], for programs that are interleaved: when the run waits, its probe is in
    /// `probe`, for the caller to advance before the run is resumed.
    pub fn interleaved(writer: &'m mut MemberWriter<'b>, probe: &'m mut Option<Probe>) -> Self {
        BatchAccess {
            writer,
            latest: None,
            probe: Some(probe),
        }
    }
}

impl DataAccess for BatchAccess<'_, '_> {
    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.writer.begin_probe(table, index, key));
        }
        self.probe.is_some()
    }

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let Some(row) = self.writer.lookup_one(table, index, key)? else {
            return Ok(None);
        };
        let handle = RowHandle {
            table,
            slot: row.slot.0,
        };
        self.latest = Some((handle, row.bytes));
        Ok(Some(handle))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        match self.latest {
            Some((handle, bytes)) if handle == *row => Some(bytes),
            _ => self
                .writer
                .get(row.table, SlotId(row.slot))
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
        let rows = self.writer.range(table, index, lo, hi, reverse, limit)?;
        out.extend(rows.iter().map(|row| RowHandle {
            table,
            slot: row.slot.0,
        }));
        Ok(())
    }

    fn insert(&mut self, table: TableId, row: &[u8]) -> Result<RowHandle, SqlError> {
        self.latest = None;
        let slot = self.writer.insert(table, row)?;
        Ok(RowHandle { table, slot: slot.0 })
    }

    fn update(&mut self, row: &RowHandle, bytes: &[u8]) -> Result<(), SqlError> {
        self.latest = None;
        self.writer.update(row.table, SlotId(row.slot), bytes)
    }

    fn remove(&mut self, row: &RowHandle) -> Result<(), SqlError> {
        self.latest = None;
        self.writer.remove(row.table, SlotId(row.slot))
    }

    fn observed(&self) -> BatchId {
        self.writer.observed()
    }
}

/// Reads at a batch boundary. Writes are refused.
pub struct ReadAccess<'m, 's> {
    view: ReadView<'s>,
    observed: BatchId,
    /// The row found last, so that its columns cost no walk along the version chain.
    latest: Option<(RowHandle, &'s [u8])>,
    /// As in [`BatchAccess`].
    probe: Option<&'m mut Option<Probe>>,
}

impl<'m, 's> ReadAccess<'m, 's> {
    /// Reads of a snapshot.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        ReadAccess::over(snapshot.view())
    }

    /// Reads of a view, for callers that keep a pinned reader.
    pub fn over(view: ReadView<'s>) -> Self {
        ReadAccess {
            view,
            observed: BatchId(0),
            latest: None,
            probe: None,
        }
    }

    /// As [`ReadAccess::over`], for programs that are interleaved: when the run waits, its probe is in
    /// `probe`, for the caller to advance before the run is resumed. `observed` is what the run has observed
    /// so far.
    pub fn interleaved(view: ReadView<'s>, observed: BatchId, probe: &'m mut Option<Probe>) -> Self {
        ReadAccess {
            observed,
            probe: Some(probe),
            ..ReadAccess::over(view)
        }
    }

    fn refuse_write() -> SqlError {
        SqlError::new(SqlState::INTERNAL_ERROR, "a program on a snapshot tried to write")
    }
}

impl DataAccess for ReadAccess<'_, '_> {
    fn fetch(&mut self, index: IndexId, table: TableId, key: &[u8]) -> bool {
        if let Some(probe) = &mut self.probe {
            **probe = Some(self.view.begin_probe(table, index, key));
        }
        self.probe.is_some()
    }

    fn search(&mut self, index: IndexId, table: TableId, key: &[u8]) -> Result<Option<RowHandle>, SqlError> {
        let Some(row) = self.view.lookup_one(table, index, key)? else {
            // Any batch may have removed it.
            self.observed = self.view.batch();
            return Ok(None);
        };
        let handle = RowHandle {
            table,
            slot: row.slot.0,
        };
        self.observed = self.observed.max(row.batch);
        self.latest = Some((handle, row.bytes));
        Ok(Some(handle))
    }

    fn row(&self, row: &RowHandle) -> Option<&[u8]> {
        match self.latest {
            Some((handle, bytes)) if handle == *row => Some(bytes),
            _ => self
                .view
                .get(row.table, SlotId(row.slot))
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
        // What is not there was seen too, and any batch may have removed it.
        self.observed = self.view.batch();
        for row in self.view.range(table, index, lo, hi, reverse, limit)? {
            out.push(RowHandle {
                table,
                slot: row.slot.0,
            });
        }
        Ok(())
    }

    fn insert(&mut self, _table: TableId, _row: &[u8]) -> Result<RowHandle, SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn update(&mut self, _row: &RowHandle, _bytes: &[u8]) -> Result<(), SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn remove(&mut self, _row: &RowHandle) -> Result<(), SqlError> {
        Err(ReadAccess::refuse_write())
    }

    fn observed(&self) -> BatchId {
        self.observed
    }
}
