//! Reads, shared by snapshots and the members of the open batch. Only the pin differs: a snapshot sees
//! versions up to its boundary, a member sees the newest.
//!
//! An index leads to candidate slots; each candidate's visible version is checked against the key before it
//! is shown (`index/mod.rs` says why).

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use weft_base::{BatchId, IndexId, RowId, TableId};
use weft_types::{SqlError, SqlState};

use crate::catalog::Catalog;
use crate::columns::{ChunkColumns, SlotMask, has_many_holes};
use crate::index::hash::Candidates;
use crate::index::ordered::Batch;
use crate::lookup_plan::LookupPlan;
use crate::memory::{Pin, REGION_SLOTS, Scratch, Slot, SlotId, VersionRef};
use crate::prefetch::Fetch;
use crate::probe::Probe;
use crate::table::{Schema, TableData, TableIndex, row_id_hash};

/// Entries of a range that are read beyond its limit, for entries that lead to no row: recently removed rows
/// are at the beginning of a queue.
const SPARE_ENTRIES: usize = 3;

/// Copies of columns that are asked how many values they have.
const SAMPLED_COPIES: u64 = 4;
/// Distinct values that are few.
const FEW_VALUES: usize = 256;

/// Entries of a batch whose rows are removed for good.
#[derive(Default)]
struct GoneRows {
    entries: SmallVec<[usize; 32]>,
    /// When the last of them was removed.
    since: BatchId,
}

impl GoneRows {
    fn add(&mut self, entry: usize, since: BatchId) {
        self.entries.push(entry);
        self.since = self.since.max(since);
    }
}

/// A row as the reader sees it. The bytes follow the table's [`weft_types::RowLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowVersion<'s> {
    /// Where the row is; good for [`ReadView::get`] and for writes in the same batch.
    pub slot: SlotId,
    /// The row's permanent identity.
    pub row_id: RowId,
    /// The batch that wrote this version.
    pub batch: BatchId,
    /// The row.
    pub bytes: &'s [u8],
}

/// How a write set names a row: the same on every replay.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Locator {
    /// Encoded primary key.
    Key(Vec<u8>),
    /// Row id, for tables without primary key.
    RowId(RowId),
}

/// The tables at one pin. Copies are cheap; rows read through it live for `'s`.
#[derive(Clone, Copy)]
pub struct ReadView<'s> {
    schema: &'s Schema,
    pin: Pin<'s>,
    /// What batches up to this one have written is never undone.
    settled: BatchId,
    digest: u64,
}

impl<'s> ReadView<'s> {
    /// `settled`: the last batch that is over.
    pub(crate) fn new(schema: &'s Schema, pin: Pin<'s>, settled: BatchId, digest: u64) -> Self {
        ReadView {
            schema,
            pin,
            settled,
            digest,
        }
    }

    pub(crate) fn schema(&self) -> &'s Schema {
        self.schema
    }

    pub(crate) fn pin(&self) -> Pin<'s> {
        self.pin
    }

    /// The boundary that is read; `u64::MAX` for a member of the open batch.
    pub fn batch(&self) -> BatchId {
        BatchId(self.pin.horizon())
    }

    /// The catalog at the boundary.
    pub fn catalog(&self) -> &'s Arc<Catalog> {
        &self.schema.catalog
    }

    /// The state digest at the boundary.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Shows every row with exactly this key, in no particular order, until told to stop.
    /// Errors: the table or index does not exist (any more); a cold row could not be read.
    pub fn lookup(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
        mut see: impl FnMut(RowVersion<'s>) -> ControlFlow<()>,
    ) -> Result<(), SqlError> {
        let table = self.schema.table(table)?;
        lookup_in(table, table.index(index)?, self.pin, key, &mut see)
    }

    /// The row with this key in a unique index; in another index the first one found.
    pub fn lookup_one(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
    ) -> Result<Option<RowVersion<'s>>, SqlError> {
        let mut found = None;
        self.lookup(table, index, key, |row| {
            found = Some(row);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Fails if a row was needed that could not be read from disk: what was read through this view, or the
    /// snapshot that it belongs to, may not be all there is. Every method that can fail has asked.
    pub fn check(&self) -> Result<(), SqlError> {
        self.pin.check()
    }

    /// Begins to prefetch what a lookup of `key` will access. A hint: it does not wait and never fails. See
    /// [`Probe`].
    pub fn begin_probe(&self, table: TableId, index: IndexId, key: &[u8]) -> Probe {
        Probe::begin(self.schema, table, index, key)
    }

    /// Begins to prefetch what a range from `lowest` on accesses first: nodes, the leaf, the first row.
    pub fn begin_range_probe(&self, table: TableId, index: IndexId, lowest: &[u8]) -> Probe {
        Probe::begin_range(self.schema, table, index, lowest)
    }

    /// Reads what the probe prefetched and prefetches what comes next; false if nothing is left. Waits only
    /// for what was prefetched.
    pub fn advance_probe(&self, probe: &mut Probe) -> bool {
        probe.advance(self.schema, self.pin)
    }

    /// As [`ReadView::lookup_hinted`], using a probe for the key.
    #[inline(always)]
    pub fn lookup_probed(
        &self,
        table: TableId,
        index: IndexId,
        key: &[u8],
        probe: &Probe,
    ) -> Result<Option<RowVersion<'s>>, SqlError> {
        self.lookup_hinted((table, index), key, probe.slot())
    }

    /// Prefetches the rows of lookups that will follow, together ([`LookupPlan`]): `slots` gets the place of
    /// each key's row, as a hint for [`ReadView::lookup_hinted`].
    pub fn prefetch_lookups<'k>(
        &self,
        (table, index): (TableId, IndexId),
        keys: impl Iterator<Item = &'k [u8]>,
        fetch: Fetch,
        slots: &mut [SlotId],
    ) {
        let mut plan = LookupPlan::new(*self);
        keys.for_each(|key| plan.push(table, index, key, fetch));
        plan.finish();
        slots
            .iter_mut()
            .zip(plan.slots())
            .for_each(|(to, slot)| *to = slot);
        plan.part(0..plan.len()).fetch_all_rests();
    }

    /// As [`ReadView::lookup_one`] in a unique index, but tries a slot first: the key is checked there, so an
    /// outdated or wrong hint only costs time.
    // The result stays in registers: a result in memory, stored in words and loaded in larger pieces, would
    // have to wait for the stores.
    #[inline(always)]
    pub fn lookup_hinted(
        &self,
        (table, index): (TableId, IndexId),
        key: &[u8],
        hint: SlotId,
    ) -> Result<Option<RowVersion<'s>>, SqlError> {
        let table_data = self.schema.table(table)?;
        let index_data = table_data.index(index)?;
        if index_data.def.unique
            // A hint is not worth a read from disk.
            && let Some(place) = table_data.core.slots.resident(hint)
            && let Some(row) = row_in(table_data, place, hint, self.pin)
            && index_data.data.carries(table_data.layout(), row.bytes, key)
        {
            return Ok(Some(row));
        }
        self.lookup_one(table, index, key)
    }

    /// The row in a slot. Errors: it is cold and could not be read.
    pub fn get(&self, table: TableId, slot: SlotId) -> Result<Option<RowVersion<'s>>, SqlError> {
        let table = self.schema.tables.get(&table);
        let found = table.and_then(|table| row_at(table, slot, self.pin));
        self.found(found)
    }

    /// What was looked for, if it was not a cold row that could not be read.
    #[inline(always)]
    fn found<T>(&self, found: Option<T>) -> Result<Option<T>, SqlError> {
        match found {
            Some(found) => Ok(Some(found)),
            None => self.pin.check().map(|()| None),
        }
    }

    /// The bytes of the row in a slot, and the batch that wrote them; a cheaper [`ReadView::get`].
    #[inline]
    pub fn bytes(&self, table: TableId, slot: SlotId) -> Result<Option<(&'s [u8], BatchId)>, SqlError> {
        let table: Option<&'s Arc<TableData>> = self.schema.tables.get(&table);
        let found = table.and_then(|table| {
            let (_, version) = table.core.live(slot, self.pin)?;
            Some((table.row(version, self.pin)?, version.batch()))
        });
        self.found(found)
    }

    /// Rows with keys between the bounds (on encoded key bytes), in key order or reverse, at most `limit`. A
    /// prefix of a key is a valid bound: as a lower bound it precedes, and as an upper bound it excludes, all
    /// keys with that prefix; to include them, exclude the prefix's [`prefix_successor`]. No latch is held.
    /// Errors: the table or index does not exist, or the index is not ordered.
    pub fn range(
        &self,
        table: TableId,
        index: IndexId,
        lo: Bound<&[u8]>,
        hi: Bound<&[u8]>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<RowVersion<'s>>, SqlError> {
        let mut rows = Vec::new();
        self.range_each(table, index, (lo, hi), reverse, limit, |row| rows.push(row))?;
        Ok(rows)
    }

    /// [`ReadView::range`] row by row.
    #[inline]
    pub fn range_each(
        &self,
        table: TableId,
        index: IndexId,
        (lo, hi): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
        mut see: impl FnMut(RowVersion<'s>),
    ) -> Result<(), SqlError> {
        if limit == 0 {
            return Ok(());
        }
        let table: &'s TableData = self.schema.table(table)?;
        let index = table.index(index)?;
        let Some(ordered) = &index.data.ordered else {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!(
                    "access method \"hash\" of index \"{}\" does not support ranges",
                    index.def.name
                ),
            ));
        };
        let mut cursor = ordered.range(lo, hi, reverse, self.batch());
        let (mut left, mut most) = (limit, limit.saturating_add(SPARE_ENTRIES));
        with_batch(|batch| {
            while cursor.next(batch, most) {
                // The rows of a leaf are scattered: all are prefetched before the first is read.
                if left > 1 {
                    for slot in batch.slots().iter().take(left) {
                        if let Some(place) = table.core.slots.resident(*slot) {
                            place.prefetch_head();
                        }
                    }
                }
                let mut gone = GoneRows::default();
                for (at, (key, slot)) in batch.entries().enumerate() {
                    if let Some(row) = lookup_slot(table, index, self.pin, key, slot) {
                        see(row);
                        left -= 1;
                        if left == 0 {
                            break;
                        }
                    } else if let Some(since) = self.gone_since(table, slot) {
                        gone.add(at, since);
                    }
                }
                // A few among others are not worth a latch: they are mostly collected soon.
                if gone.entries.len() > SPARE_ENTRIES || gone.entries.len() == batch.slots().len() {
                    cursor.mark_gone(batch, gone.entries.into_iter(), gone.since);
                }
                if left == 0 {
                    return;
                }
                // Many entries lead to no row of this view.
                most = usize::MAX;
                if self.pin.check().is_err() {
                    return;
                }
            }
        });
        self.pin.check()
    }

    /// Since when the row in a slot is removed, if it is and that will not be undone.
    fn gone_since(&self, table: &TableData, slot: SlotId) -> Option<BatchId> {
        let version = table.core.slots.resident(slot)?.at(self.pin)?;
        let since = version.batch();
        (!version.is_live() && since <= self.settled).then_some(since)
    }

    /// The slot of a row that a write set names; `None` when there is no such row. A row id finds rows only
    /// in tables without primary key.
    pub fn locate(&self, table: TableId, locator: &Locator) -> Result<Option<SlotId>, SqlError> {
        let table = self.schema.table(table)?;
        match (locator, &table.row_ids, table.def.primary_key) {
            (Locator::Key(key), _, Some(primary)) => {
                let mut found = None;
                lookup_in(table, table.index(primary)?, self.pin, key, &mut |row| {
                    found = Some(row.slot);
                    ControlFlow::Break(())
                })?;
                Ok(found)
            }
            (Locator::RowId(id), Some(row_ids), _) => {
                let mut candidates = Candidates::new();
                row_ids.candidates(row_id_hash(*id), &mut candidates);
                let carries =
                    |slot: &SlotId| row_at(table, *slot, self.pin).is_some_and(|row| row.row_id == *id);
                self.found(candidates.into_iter().find(carries))
            }
            _ => Ok(None),
        }
    }

    /// Morsels of the table: chunks of up to [`crate::SCAN_CHUNK_SLOTS`] slots. Chunks added later hold no
    /// rows for this view.
    pub fn scan_chunks(&self, table: TableId) -> u64 {
        self.schema
            .tables
            .get(&table)
            .map_or(0, |table| table.core.slots.region_count())
    }

    /// Shows every row of one morsel, in slot order. Cold rows are read for this and not kept. Errors: one
    /// could not be read.
    pub fn scan_chunk(
        &self,
        table: TableId,
        chunk: u64,
        see: impl FnMut(RowVersion<'_>),
    ) -> Result<(), SqlError> {
        self.scan_slots(table, chunk, |_| true, see)
    }

    /// The rows in some slots of a morsel.
    fn scan_slots(
        &self,
        table: TableId,
        chunk: u64,
        is_wanted: impl Fn(usize) -> bool,
        mut see: impl FnMut(RowVersion<'_>),
    ) -> Result<(), SqlError> {
        let Some(table) = self.schema.tables.get(&table) else {
            return Ok(());
        };
        let (mut scratch, mut buffer) = (Scratch::default(), Vec::new());
        for slot in table.core.slots.ids_in(chunk) {
            if is_wanted((slot.0 % REGION_SLOTS) as usize) {
                table.core.visit(slot, self.pin, &mut scratch, |place, version| {
                    see(row_of(slot, place, version, table.row_in(version, &mut buffer)));
                })?;
            }
        }
        Ok(())
    }

    /// The copied columns of one morsel, as this view sees them, if all of these are copied. `None` is noted:
    /// a morsel that is read in its slots again and again gets a copy.
    pub fn chunk_columns(&self, table: TableId, chunk: u64, columns: &[usize]) -> Option<ChunkColumns> {
        let table = self.schema.tables.get(&table)?;
        let core = &table.core;
        // One under another definition has other columns.
        let copy = core.slots.columns(chunk).filter(|copy| copy.is_of(table));
        let read = copy.as_ref().and_then(|copy| copy.read(self.batch(), columns));
        table.asked.note(columns);
        match &copy {
            None => core.slots.note_read(chunk),
            Some(copy) if read.is_none() || has_many_holes(copy) => copy.miss(),
            Some(_) => return read,
        }
        table.asked.note_miss();
        read
    }

    /// How many distinct values a column has, if these are few: an estimate from the columns that are copied,
    /// for join orders. `None`: many, or unknown. Costs microseconds.
    ///
    /// A sample of the copies is asked for the values that each has. If together they have many more than any
    /// of them alone, values go with the place in the table, and nothing is said of all.
    pub fn few_values(&self, table: TableId, column: usize) -> Option<u64> {
        let core = &self.schema.tables.get(&table)?.core;
        let chunks = core.slots.region_count();
        let (mut all, mut largest) = (HashSet::new(), 0);
        for sample in 0..SAMPLED_COPIES.min(chunks) {
            let copy = core.slots.columns(sample * chunks / SAMPLED_COPIES.min(chunks))?;
            let keys = copy.distinct_keys(column, FEW_VALUES)?;
            largest = largest.max(keys.len());
            all.extend(keys);
        }
        let is_known = largest > 0 && all.len() <= 2 * largest;
        is_known.then_some(all.len() as u64)
    }

    /// Shows every row of one morsel that is not in the mask of its copied columns, in slot order. Errors: as
    /// [`ReadView::scan_chunk`].
    pub fn scan_rest(
        &self,
        table: TableId,
        chunk: u64,
        mask: &SlotMask,
        see: impl FnMut(RowVersion<'_>),
    ) -> Result<(), SqlError> {
        self.scan_slots(table, chunk, |slot| !mask.has(slot), see)
    }

    /// Shows every row of a table. Errors: as [`ReadView::scan_chunk`].
    pub fn scan(&self, table: TableId, mut see: impl FnMut(RowVersion<'_>)) -> Result<(), SqlError> {
        (0..self.scan_chunks(table)).try_for_each(|chunk| self.scan_chunk(table, chunk, &mut see))
    }

    /// Live rows as of the last committed member, whatever the boundary.
    pub fn row_count_estimate(&self, table: TableId) -> u64 {
        let count = self
            .schema
            .tables
            .get(&table)
            .map_or(0, |table| table.core.row_count.load(Ordering::Relaxed));
        u64::try_from(count).unwrap_or(0)
    }

    /// Bytes of the slots of all tables, in use or once used.
    pub(crate) fn slot_bytes(&self) -> u64 {
        let tables = self.schema.tables.values();
        tables.map(|table| table.core.slots.size_bytes()).sum()
    }

    /// Bytes of all hash tables; bytes and entries of all ordered indexes.
    pub(crate) fn index_sizes(&self) -> (u64, u64, u64) {
        let (mut bytes, mut ordered_bytes, mut entries) = (0, 0, 0);
        for table in self.schema.tables.values() {
            let hashes = table
                .indexes
                .iter()
                .filter_map(|index| index.data.hash.as_deref());
            bytes += hashes
                .chain(table.row_ids.as_deref())
                .map(|hash| hash.size_bytes() as u64)
                .sum::<u64>();
            let ordered = table
                .indexes
                .iter()
                .filter_map(|index| index.data.ordered.as_deref());
            for ordered in ordered {
                ordered_bytes += ordered.size_bytes() as u64;
                entries += ordered.len() as u64;
            }
        }
        (bytes, ordered_bytes, entries)
    }

    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn flip_bit(&self, table: TableId, nth: usize, bit: usize) -> bool {
        let Some(table) = self.schema.tables.get(&table) else {
            return false;
        };
        let core = &table.core;
        let live = core.slots.ids().filter_map(|slot| core.peek(slot, self.pin));
        let Some((_, version)) = live.into_iter().nth(nth) else {
            return false;
        };
        version.flip_bit(bit);
        true
    }

    /// The state digest, computed anew from every stored byte. Errors: a cold row could not be read.
    pub(crate) fn recompute_digest(&self) -> Result<u64, SqlError> {
        let tables = self.schema.tables.values();
        tables
            .into_iter()
            .try_fold(self.schema.catalog.digest(), |sum, table| {
                Ok(sum.wrapping_add(table.core.digest(self.pin)?))
            })
    }
}

/// The smallest byte string above all that begin with `prefix`; `None` if there is none. As an excluded
/// upper bound it makes a range of everything that begins with the prefix.
pub fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor = prefix.get(..=last)?.to_vec();
    if let Some(byte) = successor.last_mut() {
        *byte += 1;
    }
    Some(successor)
}

#[inline(always)]
pub(crate) fn row_at<'s>(table: &'s TableData, slot: SlotId, pin: Pin<'s>) -> Option<RowVersion<'s>> {
    row_in(table, table.core.slots.slot(slot, pin)?, slot, pin)
}

/// The row in this place, which is this slot's.
#[inline(always)]
pub(crate) fn row_in<'s>(
    table: &'s TableData,
    place: Slot<'s>,
    slot: SlotId,
    pin: Pin<'s>,
) -> Option<RowVersion<'s>> {
    let version = place.at(pin).filter(|version| version.is_live())?;
    Some(row_of(slot, place, version, table.row(version, pin)?))
}

/// This version of the row in this place, with its bytes in the present layout.
#[inline(always)]
fn row_of<'s>(slot: SlotId, place: Slot<'s>, version: VersionRef<'s>, bytes: &'s [u8]) -> RowVersion<'s> {
    RowVersion {
        slot,
        row_id: place.row_id(),
        batch: version.batch(),
        bytes,
    }
}

/// Shows the rows with this key. `see` runs outside any latch. Errors: a cold row could not be read.
pub(crate) fn lookup_in<'s>(
    table: &'s TableData,
    index: &TableIndex,
    pin: Pin<'s>,
    key: &[u8],
    see: &mut dyn FnMut(RowVersion<'s>) -> ControlFlow<()>,
) -> Result<(), SqlError> {
    let mut candidates = Candidates::new();
    index.data.candidates(key, &mut candidates);
    for slot in candidates {
        if let Some(row) = lookup_slot(table, index, pin, key, slot)
            && see(row).is_break()
        {
            break;
        }
    }
    pin.check()
}

/// The row in a candidate's slot, if it carries the key.
#[inline(always)]
pub(crate) fn lookup_slot<'s>(
    table: &'s TableData,
    index: &TableIndex,
    pin: Pin<'s>,
    key: &[u8],
    slot: SlotId,
) -> Option<RowVersion<'s>> {
    let row = row_at(table, slot, pin)?;
    index.data.carries(table.layout(), row.bytes, key).then_some(row)
}

/// Lends a thread's batch of entries; a fresh one if it is lent out already.
fn with_batch<R>(work: impl FnOnce(&mut Batch) -> R) -> R {
    thread_local! {
        static BATCH: RefCell<Batch> = RefCell::default();
    }
    BATCH.with(|batch| match batch.try_borrow_mut() {
        Ok(mut batch) => work(&mut batch),
        Err(_) => work(&mut Batch::default()),
    })
}

#[cfg(test)]
mod tests {
    use weft_types::{SqlType, Value};

    use super::*;
    use crate::catalog::{CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, TableDef};
    use crate::store::Store;
    use crate::writer::MemberWriter;

    const TABLE: TableId = TableId(FIRST_OBJECT_ID);
    const INDEX: IndexId = IndexId(FIRST_OBJECT_ID + 1);

    fn write(store: &Store, work: impl FnOnce(&mut MemberWriter<'_>)) {
        let number = BatchId(store.boundary().0 + 1);
        let batch = store.begin_batch(number);
        let mut member = batch.member(0);
        work(&mut member);
        member.commit();
        batch.finish();
        store.publish(number);
        store.collect_garbage(usize::MAX);
    }

    /// A table of the numbers from 0 on, with an ordered index.
    fn queue(rows: i64) -> Arc<Store> {
        let definition = TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)]);
        let layout = definition.layout.clone();
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch.apply_catalog(&CatalogOp::CreateTable(definition)).unwrap();
        let index = IndexDef {
            id: INDEX,
            name: "t_a".into(),
            table: TABLE,
            columns: vec![0],
            unique: false,
            primary: false,
            method: IndexMethod::Both,
        };
        batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
        batch.finish();
        store.publish(BatchId(1));
        write(&store, |member| {
            for number in 0..rows {
                let row = layout.encode(&[Value::Int8(number)]).unwrap();
                member.insert(TABLE, &row).unwrap();
            }
        });
        store
    }

    const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

    /// Takes the first row.
    fn pop(store: &Store) {
        write(store, |member| {
            let first = member.range(TABLE, INDEX, ALL.0, ALL.1, false, 1).unwrap();
            member.remove(TABLE, first[0].slot).unwrap();
        });
    }

    /// Entries that a reader of the newest boundary is given before it finds a row.
    fn entries_before_a_row(store: &Arc<Store>) -> usize {
        let snapshot = store.snapshot();
        let view = snapshot.view();
        let table = view.schema.table(TABLE).unwrap();
        let ordered = table.index(INDEX).unwrap().data.ordered.as_ref().unwrap();
        let mut cursor = ordered.range(ALL.0, ALL.1, false, view.batch());
        let (mut batch, mut before) = (Batch::default(), 0);
        while cursor.next(&mut batch, usize::MAX) {
            for slot in batch.slots() {
                if view.get(TABLE, *slot).unwrap().is_some() {
                    return before;
                }
                before += 1;
            }
        }
        before
    }

    #[test]
    fn the_beginning_of_a_queue_is_passed_over_while_an_old_reader_keeps_it() {
        let rows = if cfg!(miri) { 70 } else { 1000 };
        let store = queue(rows);
        let old = store.snapshot();
        for number in 1..rows {
            pop(&store);
            assert!(
                entries_before_a_row(&store) <= SPARE_ENTRIES + 1,
                "after {number}"
            );
        }
        let all = old
            .view()
            .range(TABLE, INDEX, ALL.0, ALL.1, false, usize::MAX)
            .unwrap();
        assert_eq!(all.len() as i64, rows, "it sees every row");
        let last = old.view().range(TABLE, INDEX, ALL.0, ALL.1, true, 1).unwrap();
        assert_eq!(last.len(), 1);
        drop(old);
        pop(&store);
        store.collect_garbage(usize::MAX);
        assert_eq!(store.memory_stats().ordered_entries, 0);
    }

    #[test]
    fn successors_of_prefixes() {
        assert_eq!(prefix_successor(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(prefix_successor(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_successor(&[255]), None);
        assert_eq!(prefix_successor(&[]), None);
    }
}
