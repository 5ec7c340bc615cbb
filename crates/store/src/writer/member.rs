//! One member of the open batch: reads the newest state, writes versions, commits or rolls back.
//!
//! A write that fails has changed nothing, so the member may continue, for example in an exception handler of
//! a program. NOT NULL and uniqueness are checked here, with PostgreSQL's messages. Uniqueness is checked
//! against newest versions: a candidate whose newest version is live and has the key is a violation. Keys
//! with a NULL never are.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use weft_base::memory::{prefetch, prefetch_bytes};
use weft_base::{BatchId, IndexId, RowId, TableId};
use weft_ops::hash64;
use weft_types::SqlError;

use super::{BatchWriter, MemberWrites, TableWrites, Write, Writes, violation};
use crate::catalog::Catalog;
use crate::garbage::RowPlace;
use crate::index::hash::HashIndex;
use crate::lookup_plan::PlannedLookups;
use crate::memory::{Pin, Slot, SlotId, VersionRef};
use crate::prefetch::Fetch;
use crate::probe::Probe;
use crate::read::{Locator, ReadView, RowVersion, lookup_in};
use crate::table::{TableData, TableIndex};

/// A table that the member has written to.
struct Opened<'b> {
    id: TableId,
    data: &'b Arc<TableData>,
    linked_bytes: u64,
    row_change: i64,
    /// Terms of the state digest: those linked less those found.
    digest_change: u64,
    /// Memory that the versions that were superseded take, and what is noted about them.
    superseded_bytes: u64,
}

/// The state of a member at a savepoint.
#[derive(Default)]
struct Savepoint {
    writes: usize,
    /// Of the tables opened by then: bytes linked, rows gained, change of the digest, bytes superseded.
    tables: SmallVec<[(u64, i64, u64, u64); 4]>,
}

/// Writes of one member. Dropping it without [`MemberWriter::commit`] rolls it back.
pub struct MemberWriter<'b> {
    batch: &'b BatchWriter<'b>,
    view: ReadView<'b>,
    member: u32,
    next_ordinal: u32,
    tables: SmallVec<[Opened<'b>; 4]>,
    writes: Writes,
    /// Open savepoints, newest last.
    savepoints: Vec<Savepoint>,
    observed: Cell<u64>,
    /// Encoded keys of the row being written, one per index of its table.
    keys: Vec<KeyBuffer>,
}

/// A key to be added to an index.
#[derive(Default)]
struct KeyBuffer {
    bytes: Vec<u8>,
    /// Its hash, if a hash index takes it.
    hash: Option<u64>,
    /// The write adds this key to the index.
    is_touched: bool,
    /// It was in the ordered index already, or this write added it.
    is_added: bool,
}

thread_local! {
    /// Key buffers of a member that has ended, for the next one.
    static KEYS: Cell<Vec<KeyBuffer>> = const { Cell::new(Vec::new()) };
}

/// A key buffer larger than this is not kept.
const KEY_BYTES_KEPT: usize = 4 << 10;
/// Writes that a member reserves space for once it has more than a few.
const MANY_WRITES: usize = 32;

impl<'b> MemberWriter<'b> {
    pub(super) fn new(batch: &'b BatchWriter<'b>, member: u32) -> Self {
        MemberWriter {
            batch,
            view: batch.view(),
            member,
            next_ordinal: 0,
            tables: SmallVec::new(),
            writes: SmallVec::new(),
            savepoints: Vec::new(),
            observed: Cell::new(0),
            keys: Vec::new(),
        }
    }

    /// The catalog as changed by this batch so far.
    pub fn catalog(&self) -> &'b Arc<Catalog> {
        self.view.catalog()
    }

    /// The batch that this member belongs to.
    pub fn batch(&self) -> BatchId {
        self.batch.batch
    }

    /// The highest batch among the versions that this member has read.
    pub fn observed(&self) -> BatchId {
        BatchId(self.observed.get())
    }

    fn observe(&self, row: &RowVersion<'_>) {
        self.observed.set(self.observed.get().max(row.batch.0));
    }

    /// See [`ReadView::lookup`].
    pub fn lookup(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
        mut see: impl FnMut(RowVersion<'b>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        self.view.lookup(table, index, key, |row| {
            self.observe(&row);
            see(row)
        })
    }

    /// See [`ReadView::lookup_one`].
    pub fn lookup_one(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<RowVersion<'b>>, SqlError> {
        let found = self.view.lookup_one(table, index, key)?;
        Ok(found.inspect(|row| self.observe(row)))
    }

    /// See [`ReadView::lookup_probed`].
    #[inline(always)]
    pub fn lookup_probed(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
        probe: &Probe,
    ) -> Result<Option<RowVersion<'b>>, SqlError> {
        let found = self.view.lookup_probed(table, index, key, probe)?;
        Ok(found.inspect(|row| self.observe(row)))
    }

    /// See [`ReadView::lookup_hinted`].
    #[inline(always)]
    pub fn lookup_hinted(
        &self,
        at: (TableId, IndexId),
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<RowVersion<'b>>, SqlError> {
        let found = self.view.lookup_hinted(at, key, hint)?;
        Ok(found.inspect(|row| self.observe(row)))
    }

    /// See [`ReadView::prefetch_lookups`].
    pub fn prefetch_lookups<'k>(
        &self,
        at: (TableId, IndexId),
        keys: impl Iterator<Item = &'k [u8]>,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) {
        self.view.prefetch_lookups(at, keys, fetch, slots);
    }

    /// As [`PlannedLookups::lookup`].
    #[inline(always)]
    pub fn lookup_planned(
        &self,
        planned: &mut PlannedLookups<'_, 'b>,
        number: usize,
        at: (TableId, IndexId),
        key: &[u8],
    ) -> Result<Option<RowVersion<'b>>, SqlError> {
        let found = planned.lookup(number, &self.view, at, key)?;
        Ok(found.inspect(|row| self.observe(row)))
    }

    /// See [`ReadView::begin_probe`].
    pub fn begin_probe(&self, table: TableId, index: IndexId, key: &[u8]) -> Probe {
        self.view.begin_probe(table, index, key)
    }

    /// See [`ReadView::begin_range_probe`].
    pub fn begin_range_probe(&self, table: TableId, index: IndexId, lowest: &[u8]) -> Probe {
        self.view.begin_range_probe(table, index, lowest)
    }

    /// See [`ReadView::advance_probe`].
    pub fn advance_probe(&self, probe: &mut Probe) -> bool {
        self.view.advance_probe(probe)
    }

    /// See [`ReadView::get`].
    pub fn get(&self, table: TableId, slot: SlotId) -> Result<Option<RowVersion<'b>>, SqlError> {
        let found = self.view.get(table, slot)?;
        Ok(found.inspect(|row| self.observe(row)))
    }

    /// The bytes of the row in a slot. See [`ReadView::bytes`].
    #[inline]
    pub fn bytes(&self, table: TableId, slot: SlotId) -> Result<Option<&'b [u8]>, SqlError> {
        let found = self.view.bytes(table, slot)?;
        Ok(found.map(|(bytes, batch)| {
            self.observed.set(self.observed.get().max(batch.0));
            bytes
        }))
    }

    /// See [`ReadView::range`].
    pub fn range(
        &self,
        table: TableId,
        index: IndexId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<RowVersion<'b>>, SqlError> {
        let mut rows = Vec::new();
        self.range_each(table, index, (lo, hi), reverse, limit, |row| rows.push(row))?;
        Ok(rows)
    }

    /// See [`ReadView::range_each`].
    #[inline]
    pub fn range_each(
        &self,
        table: TableId,
        index: IndexId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        mut see: impl FnMut(RowVersion<'b>),
    ) -> Result<(), SqlError> {
        self.view.range_each(table, index, bounds, reverse, limit, |row| {
            self.observe(&row);
            see(row);
        })
    }

    /// See [`ReadView::locate`].
    pub fn locate(&self, table: TableId, locator: &Locator) -> Result<Option<SlotId>, SqlError> {
        self.view.locate(table, locator)
    }

    /// See [`ReadView::scan_chunks`].
    pub fn scan_chunks(&self, table: TableId) -> u64 {
        self.view.scan_chunks(table)
    }

    /// See [`ReadView::scan_chunk`].
    pub fn scan_chunk(
        &self,
        table: TableId,
        chunk: u64,
        mut see: impl FnMut(RowVersion<'_>),
    ) -> Result<(), SqlError> {
        self.view.scan_chunk(table, chunk, |row| {
            self.observe(&row);
            see(row);
        })
    }

    /// See [`ReadView::scan`].
    pub fn scan(&self, table: TableId, mut see: impl FnMut(RowVersion<'_>)) -> Result<(), SqlError> {
        self.view.scan(table, |row| {
            self.observe(&row);
            see(row);
        })
    }

    /// Adds a row, encoded in the table's layout. Errors: NULL in a NOT NULL column (23502), a CHECK that is
    /// false (23514), a key that exists (23505).
    pub fn insert(&mut self, table: TableId, row: &[u8]) -> Result<SlotId, SqlError> {
        let (position, data) = self.open(table)?;
        check_row(data, row)?;
        self.prepare_keys(data, row, None);
        let slot = data.core.slots.reserve(row.len());
        let Some(place) = data.core.slots.slot_to_fill(slot) else {
            return Err(violation::no_row(&data.def.name));
        };
        prefetch_bytes(place.address(), place.size_bytes());
        if let Err(error) = self.claim_keys(data, slot, row, false) {
            data.core.slots.release(slot);
            return Err(error);
        }
        let row_id = RowId {
            batch: self.batch.batch,
            member: self.member,
            ordinal: self.next_ordinal,
        };
        self.next_ordinal += 1;
        place.set_row_id(row_id);
        self.link(position, data, (slot, place), None, Some((row, false)));
        for (hash, number) in self.prepared_hashes(data) {
            hash.add_first(number, slot);
        }
        if let Some(row_ids) = &data.row_ids {
            row_ids.add_first(crate::table::row_id_hash(row_id), slot);
        }
        Ok(slot)
    }

    /// Replaces a row. Indexes whose key columns keep their bytes are not touched.
    /// Errors: as [`MemberWriter::insert`]; no live row in the slot (XX000).
    pub fn update(&mut self, table: TableId, slot: SlotId, row: &[u8]) -> Result<(), SqlError> {
        let (position, data) = self.open(table)?;
        let (place, old) = self.live_to_write(data, slot)?;
        check_row(data, row)?;
        let mut buffer = Vec::new();
        let old_row = data.row_in(old, &mut buffer);
        let keeps_keys = data.indexed.same(data.layout(), old_row, row);
        if !keeps_keys {
            self.prepare_keys(data, row, Some(old_row));
            self.claim_keys(data, slot, row, true)?;
        }
        self.link(position, data, (slot, place), Some(old), Some((row, keeps_keys)));
        if !keeps_keys {
            for (hash, number) in self.prepared_hashes(data) {
                hash.add(number, slot);
            }
        }
        Ok(())
    }

    /// Removes a row. Errors: no live row in the slot (XX000).
    pub fn remove(&mut self, table: TableId, slot: SlotId) -> Result<(), SqlError> {
        let (position, data) = self.open(table)?;
        let (place, old) = self.live_to_write(data, slot)?;
        self.link(position, data, (slot, place), Some(old), None);
        Ok(())
    }

    /// The row that is about to be replaced or removed: its slot, marked as written, and its newest version.
    #[inline(always)]
    fn live_to_write(
        &self,
        data: &'b TableData,
        slot: SlotId,
    ) -> Result<(Slot<'b>, VersionRef<'b>), SqlError> {
        let newest = self.batch.pin(Pin::EVERYTHING);
        let place = match data.core.slots.slot_to_write(slot) {
            Some(place) => Some(place),
            // Who has found the row has brought it into memory.
            None => {
                data.core.slots.slot(slot, newest);
                data.core.slots.slot_to_write(slot)
            }
        };
        let found = place.and_then(|place| Some((place, place.at(newest)?)));
        match found.filter(|(_, version)| version.is_live()) {
            Some(found) => Ok(found),
            None => {
                newest.check()?;
                Err(violation::no_row(&data.def.name))
            }
        }
    }

    /// Keeps the writes.
    pub fn commit(mut self) {
        self.account(|opened| opened.row_change);
        let writes = std::mem::take(&mut self.writes);
        if !writes.is_empty() {
            let tables = self.tables.iter().map(|opened| TableWrites {
                data: Arc::clone(opened.data),
                row_change: opened.row_change,
                digest_change: opened.digest_change,
                superseded_bytes: opened.superseded_bytes,
            });
            let tables = tables.collect();
            self.batch.committed.lock().push(MemberWrites {
                member: self.member,
                tables,
                writes,
            });
        }
    }

    /// Undoes the writes exactly: versions and index entries.
    pub fn rollback(self) {}

    /// Opens a savepoint within those that are open.
    pub fn savepoint(&mut self) {
        let tables = self.tables.iter();
        self.savepoints.push(Savepoint {
            writes: self.writes.len(),
            tables: tables
                .map(|opened| {
                    (
                        opened.linked_bytes,
                        opened.row_change,
                        opened.digest_change,
                        opened.superseded_bytes,
                    )
                })
                .collect(),
        });
    }

    /// Undoes the writes since the newest savepoint exactly, and closes it. Ordinals are not reused.
    pub fn rollback_to_savepoint(&mut self) {
        let Some(savepoint) = self.savepoints.pop() else {
            return;
        };
        if self.writes.len() <= savepoint.writes {
            return;
        }
        for (number, opened) in self.tables.iter_mut().enumerate() {
            let before = savepoint.tables.get(number).copied().unwrap_or_default();
            let linked_bytes = opened.linked_bytes - before.0;
            opened.data.core.slots.linked(linked_bytes);
            (
                opened.linked_bytes,
                opened.row_change,
                opened.digest_change,
                opened.superseded_bytes,
            ) = before;
        }
        let undone: Writes = self.writes.drain(savepoint.writes..).collect();
        self.batch.undo(|at| self.data_at(at), &undone);
    }

    /// Closes the newest savepoint and keeps what was written since.
    pub fn release_savepoint(&mut self) {
        self.savepoints.pop();
    }

    fn undo(&mut self) {
        let writes = std::mem::take(&mut self.writes);
        if !writes.is_empty() {
            self.account(|_| 0);
            self.batch.undo(|at| self.data_at(at), &writes);
        }
    }

    fn data_at(&self, position: usize) -> Option<&'b Arc<TableData>> {
        self.tables.get(position).map(|opened| opened.data)
    }

    fn account(&self, row_change: impl Fn(&Opened<'b>) -> i64) {
        for opened in &self.tables {
            opened.data.core.slots.linked(opened.linked_bytes);
            // Most writes are updates, and workers share this counter.
            let change = row_change(opened);
            if change != 0 {
                opened.data.core.row_count.fetch_add(change, Ordering::Relaxed);
            }
        }
    }

    #[inline(always)]
    fn open(&mut self, table: TableId) -> Result<(usize, &'b Arc<TableData>), SqlError> {
        for (position, opened) in self.tables.iter().enumerate() {
            if opened.id == table {
                return Ok((position, opened.data));
            }
        }
        self.open_another(table)
    }

    #[inline(never)]
    fn open_another(&mut self, table: TableId) -> Result<(usize, &'b Arc<TableData>), SqlError> {
        let batch: &'b BatchWriter<'b> = self.batch;
        let data = batch.schema.table(table)?;
        self.tables.push(Opened {
            id: table,
            data,
            linked_bytes: 0,
            row_change: 0,
            digest_change: 0,
            superseded_bytes: 0,
        });
        Ok((self.tables.len() - 1, data))
    }

    /// Encodes the keys that the write will add, and prefetches the lines of their hashes. `old` is the row
    /// that is replaced.
    fn prepare_keys(&mut self, data: &'b TableData, row: &[u8], old: Option<&[u8]>) {
        let layout = data.layout();
        if self.keys.is_empty() {
            self.keys = KEYS.take();
        }
        if self.keys.len() < data.indexes.len() {
            self.keys.resize_with(data.indexes.len(), KeyBuffer::default);
        }
        for (index, key) in data.indexes.iter().zip(&mut self.keys) {
            key.is_added = false;
            key.is_touched = old.is_none_or(|old| !index.data.same_cells(layout, old, row));
            if key.is_touched {
                index.data.key_of(layout, row, &mut key.bytes);
                key.hash = index.data.hash_for(&key.bytes).map(|hash| {
                    let number = hash64(&key.bytes);
                    prefetch(hash.line_address(number));
                    number
                });
            }
        }
    }

    /// Checks that nobody else has the unique ones of the prepared keys, and adds them all to the ordered
    /// indexes, which usually costs one descent for both. Their entries lead to no row before the row is
    /// linked. On an error nothing was added. `is_there` says that the slot has a row.
    fn claim_keys(
        &mut self,
        data: &'b TableData,
        slot: SlotId,
        row: &[u8],
        is_there: bool,
    ) -> Result<(), SqlError> {
        let mut outcome = Ok(());
        for (index, key) in data.indexes.iter().zip(&mut self.keys) {
            if !key.is_touched {
                continue;
            }
            let is_checked = index.def.unique && !index.data.has_null(data.layout(), row);
            let ordered = index.data.ordered.as_ref();
            let is_alone = is_checked && ordered.is_some_and(|ordered| ordered.add_alone(&key.bytes, slot));
            if is_checked && !is_alone {
                let own = is_there.then_some(slot);
                outcome = check_unique(self.batch, data, index, &key.bytes, own, row);
                if outcome.is_err() {
                    break;
                }
            }
            key.is_added = ordered.is_some_and(|ordered| is_alone || ordered.add(&key.bytes, slot));
        }
        if outcome.is_err() {
            for (index, key) in data.indexes.iter().zip(&self.keys) {
                if let Some(ordered) = index.data.ordered.as_ref().filter(|_| key.is_added) {
                    ordered.remove(&key.bytes, slot);
                }
            }
        }
        outcome
    }

    /// The hash indexes that the prepared keys go into, whose lines are being prefetched, and the hashes.
    #[inline(always)]
    fn prepared_hashes<'d>(&self, data: &'d TableData) -> impl Iterator<Item = (&'d HashIndex, u64)> {
        let prepared = data.indexes.iter().zip(&self.keys);
        prepared.filter_map(|(index, key)| {
            let hash = index.data.hash.as_deref()?;
            Some((hash, key.hash.filter(|_| key.is_touched)?))
        })
    }

    /// Links a version in front of `old`, the live row that it replaces: with the row and whether it keeps
    /// its keys, or without a row to remove it.
    fn link(
        &mut self,
        position: usize,
        data: &TableData,
        (slot, place): (SlotId, Slot<'b>),
        old: Option<VersionRef<'b>>,
        row: Option<(&[u8], bool)>,
    ) {
        let newest = self.batch.pin(Pin::EVERYTHING);
        // A batch's first write to a chain supersedes what was there; a later one only what this batch wrote,
        // if that was alone.
        let supersedes = old.is_some_and(|old| old.batch() != self.batch.batch || old.older().is_none());
        let mut digest_change = 0u64;
        let mut terms = data.core.terms(place);
        if let Some(old) = old {
            let term = terms.hash(old.bytes());
            digest_change = digest_change.wrapping_sub(term);
            if !old.is_sealed_with(term) {
                self.batch.store.note_damage();
            }
        }
        let bytes = row.map(|(bytes, _)| bytes);
        let linked = place.push(newest, self.batch.batch, bytes, data.core.slots.memory());
        if let Some((_, keeps_keys)) = row {
            let term = terms.hash(linked.bytes());
            digest_change = digest_change.wrapping_add(term);
            linked.seal(term, keeps_keys);
        }
        if self.writes.len() == self.writes.inline_size() {
            self.writes.reserve(MANY_WRITES);
        }
        self.writes.push(Write {
            slot,
            table: position as u32,
            supersedes,
            removes: row.is_none(),
        });
        if let Some(opened) = self.tables.get_mut(position) {
            opened.linked_bytes += linked.size_bytes() as u64;
            opened.digest_change = opened.digest_change.wrapping_add(digest_change);
            // All versions of a chain stay until its readers leave, also those that this batch superseded.
            let noted = if supersedes { size_of::<RowPlace>() } else { 0 };
            opened.superseded_bytes += (old.map_or(0, VersionRef::memory_bytes) + noted) as u64;
            opened.row_change += i64::from(row.is_some()) - i64::from(old.is_some());
        }
    }
}

impl Drop for MemberWriter<'_> {
    fn drop(&mut self) {
        self.undo();
        if !self.keys.is_empty() {
            let mut keys = std::mem::take(&mut self.keys);
            for key in keys
                .iter_mut()
                .filter(|key| key.bytes.capacity() > KEY_BYTES_KEPT)
            {
                key.bytes = Vec::new();
            }
            KEYS.set(keys);
        }
    }
}

fn check_row(data: &TableData, row: &[u8]) -> Result<(), SqlError> {
    if data.has_forbidden_null(row) {
        return violation::check_not_null(&data.def, data.layout(), row);
    }
    match data.has_checks {
        true => violation::check_conditions(&data.def, data.layout(), row),
        false => Ok(()),
    }
}

fn check_unique(
    batch: &BatchWriter<'_>,
    data: &TableData,
    index: &TableIndex,
    key: &[u8],
    own: Option<SlotId>,
    row: &[u8],
) -> Result<(), SqlError> {
    let mut is_taken = false;
    lookup_in(data, index, batch.pin(Pin::EVERYTHING), key, &mut |other| {
        is_taken = Some(other.slot) != own;
        if is_taken {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    if is_taken {
        Err(violation::duplicate_key(&data.def, &index.def, row))
    } else {
        Ok(())
    }
}
