//! A table's memory and indexes, and the set of all tables at one catalog.
//!
//! Three layers, so that a change of definitions copies no rows:
//! - [`TableCore`]: the slots. Lives until the table is truncated or its rows are rewritten.
//! - [`TableData`]: a core with one definition and its indexes. CREATE INDEX and ADD COLUMN make a new one
//!   over the same core: it says how rows are laid out, and how they were before.
//! - [`Schema`]: a catalog with the data of each of its tables; what a snapshot pins.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use weft_base::{BatchId, CodecError, IndexId, RowId, TableId};
use weft_ops::{SeededHasher, hash64, row_hasher};
use weft_types::{KeyColumns, RowLayout, SqlError, SqlState};

use crate::catalog::{Catalog, IndexDef, TableDef};
use crate::columns::Asked;
use crate::index::IndexData;
use crate::index::build::{BuildError, build, build_row_ids};
use crate::index::hash::HashIndex;
use crate::memory::{
    ColdRegion, Pin, REGION_SLOTS, RowLengths, RowMemory, Scratch, Slot, SlotArena, SlotId, VersionRef,
};
use crate::table_map::TableMap;

/// Slots in one scan chunk (a morsel).
pub const SCAN_CHUNK_SLOTS: u64 = REGION_SLOTS;

/// The rows of a table.
pub(crate) struct TableCore {
    /// Tells cores apart for the lifetime of the process, which addresses do not.
    pub(crate) id: u64,
    pub(crate) table: TableId,
    pub(crate) slots: SlotArena,
    /// Live rows, as of the last committed member. An estimate for planners.
    pub(crate) row_count: AtomicI64,
    /// The sum of all rows' terms of the state digest, as of the last finished batch.
    pub(crate) terms_sum: AtomicU64,
    /// Rows removed since a checkpoint last took this list, if that checkpoint or an earlier one may contain
    /// them.
    pub(crate) removed: Mutex<Vec<RowId>>,
    /// Who wants to know which slots are written.
    watches: Mutex<Vec<Marks>>,
}

/// What one watch has not taken yet: a bit for each group of slots, by region.
struct Marks {
    watch: u64,
    regions: Vec<u64>,
}

/// Tells which slots of a table may have been written since it was last asked.
pub(crate) struct Watch {
    core: Arc<TableCore>,
    number: u64,
}

impl Watch {
    /// From the next [`Watch::take`] on.
    pub(crate) fn new(core: &Arc<TableCore>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        core.watches.lock().push(Marks {
            watch: number,
            regions: Vec::new(),
        });
        Watch {
            core: Arc::clone(core),
            number,
        }
    }

    /// Marks of those slots ([`SlotArena::ids_of_marks`]). No batch is open, or it is the caller's; so the
    /// writes of all before are among them.
    pub(crate) fn take(&mut self) -> Vec<u64> {
        let new = self.core.slots.take_touched();
        let mut marks = Vec::new();
        for watch in self.core.watches.lock().iter_mut() {
            watch.regions.resize(watch.regions.len().max(new.len()), 0);
            for (all, new) in watch.regions.iter_mut().zip(&new) {
                *all |= new;
            }
            if watch.watch == self.number {
                marks = std::mem::take(&mut watch.regions);
            }
        }
        marks
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.core
            .watches
            .lock()
            .retain(|marks| marks.watch != self.number);
    }
}

impl TableCore {
    /// About how many live rows there are.
    pub(crate) fn rows(&self) -> usize {
        usize::try_from(self.row_count.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn new(def: &TableDef, memory: &Arc<RowMemory>) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        TableCore {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            table: def.id,
            slots: SlotArena::new(def.id, memory),
            row_count: AtomicI64::new(0),
            terms_sum: AtomicU64::new(0),
            removed: Mutex::default(),
            watches: Mutex::default(),
        }
    }

    /// The live row in a slot that the pin sees, and its slot.
    #[inline]
    pub(crate) fn live<'s>(&'s self, slot: SlotId, pin: Pin<'s>) -> Option<(Slot<'s>, VersionRef<'s>)> {
        live_in(self.slots.slot(slot, pin)?, pin)
    }

    /// The same, if the row is in memory, for those who do not use it ([`SlotArena::peek`]).
    pub(crate) fn peek<'s>(&'s self, slot: SlotId, pin: Pin<'s>) -> Option<(Slot<'s>, VersionRef<'s>)> {
        live_in(self.slots.peek(slot)?, pin)
    }

    /// Shows the live row in a slot, if the pin sees one. A cold one is read for this, and not kept.
    ///
    /// # Errors
    /// It could not be read.
    pub(crate) fn visit(
        &self,
        slot: SlotId,
        pin: Pin<'_>,
        scratch: &mut Scratch,
        see: impl FnOnce(Slot<'_>, VersionRef<'_>),
    ) -> Result<(), SqlError> {
        self.slots.visit(slot, scratch, |place| {
            if let Some((place, version)) = live_in(place, pin) {
                see(place, version);
            }
        })?;
        Ok(())
    }

    /// A row's term of the state digest, from its stored bytes.
    pub(crate) fn term(&self, slot: Slot<'_>, version: VersionRef<'_>) -> u64 {
        self.terms(slot).hash(version.bytes())
    }

    /// The hasher for the terms of all versions of the row in this slot.
    pub(crate) fn terms(&self, slot: Slot<'_>) -> SeededHasher {
        row_hasher(self.table.0, slot.row_id().encode())
    }

    /// Shows every live row that the pin sees, in slot order.
    ///
    /// # Errors
    /// A cold row could not be read.
    pub(crate) fn each_live(
        &self,
        pin: Pin<'_>,
        mut see: impl FnMut(SlotId, Slot<'_>, VersionRef<'_>),
    ) -> Result<(), SqlError> {
        let mut scratch = Scratch::default();
        self.slots.ids().try_for_each(|slot| {
            self.visit(slot, pin, &mut scratch, |place, version| {
                see(slot, place, version);
            })
        })
    }

    /// The sum of the terms of all rows that the pin sees, computed from their bytes.
    ///
    /// # Errors
    /// A cold row could not be read.
    pub(crate) fn digest(&self, pin: Pin<'_>) -> Result<u64, SqlError> {
        let mut sum = 0u64;
        self.each_live(pin, |_, slot, version| {
            sum = sum.wrapping_add(self.term(slot, version));
        })?;
        Ok(sum)
    }
}

/// The live row in a place that the pin sees.
#[inline(always)]
fn live_in<'s>(place: Slot<'s>, pin: Pin<'s>) -> Option<(Slot<'s>, VersionRef<'s>)> {
    let version = place.at(pin)?;
    version.is_live().then_some((place, version))
}

/// One index of a table: definition and structures.
#[derive(Clone)]
pub(crate) struct TableIndex {
    pub(crate) id: IndexId,
    pub(crate) def: Arc<IndexDef>,
    pub(crate) data: IndexData,
}

/// A table as one catalog version sees it.
#[derive(Clone)]
pub(crate) struct TableData {
    pub(crate) def: Arc<TableDef>,
    pub(crate) core: Arc<TableCore>,
    /// Versions of batches below this one have an earlier layout.
    laid_out_since: BatchId,
    /// The bits that must not be set in a row's null bitmap.
    pub(crate) not_null: NotNull,
    /// The table has CHECK constraints.
    pub(crate) has_checks: bool,
    pub(crate) indexes: Vec<TableIndex>,
    /// All columns with an index: an update that does not change these touches no index.
    pub(crate) indexed: KeyColumns,
    /// Row ids to slots: how write sets name rows in a table without primary key.
    pub(crate) row_ids: Option<Arc<HashIndex>>,
    /// The columns that queries have read in whole chunks.
    pub(crate) asked: Arc<Asked>,
}

/// See [`TableData::not_null`].
#[derive(Clone)]
pub(crate) struct NotNull {
    /// The bits in the bitmap's first bytes, as a word.
    first: u64,
    /// All of them, up to the last byte with one.
    bits: Box<[u8]>,
}

impl NotNull {
    fn of(def: &TableDef) -> Self {
        let columns = def.columns.iter().enumerate();
        let mut bits = Vec::new();
        for (at, _) in columns.filter(|(_, column)| column.not_null) {
            bits.resize(at / 8 + 1, 0);
            if let Some(last) = bits.last_mut() {
                *last |= 1 << (at % 8);
            }
        }
        let mut first = [0; size_of::<u64>()];
        first.iter_mut().zip(&bits).for_each(|(to, from)| *to = *from);
        NotNull {
            first: u64::from_le_bytes(first),
            bits: bits.into(),
        }
    }

    /// The row has one of them.
    #[inline]
    fn is_violated(&self, row: &[u8]) -> bool {
        if let Some(word) = row.first_chunk()
            && self.bits.len() <= word.len()
        {
            return u64::from_le_bytes(*word) & self.first != 0;
        }
        let is_forbidden = |(at, bits): (usize, &u8)| row.get(at).is_none_or(|nulls| nulls & bits != 0);
        self.bits.iter().enumerate().any(is_forbidden)
    }
}

impl TableData {
    /// An empty table.
    pub(crate) fn new(def: &Arc<TableDef>, memory: &Arc<RowMemory>) -> Self {
        let indexes = def.indexes.iter().map(|index| TableIndex {
            id: index.id,
            def: Arc::clone(index),
            data: IndexData::new(index, &def.layout, memory),
        });
        let core = Arc::new(TableCore::new(def, memory));
        let has_key = def.primary_key.is_some();
        let row_ids = (!has_key).then(|| Arc::new(HashIndex::new(memory)));
        let asked = Arc::new(Asked::new(def.layout.column_count()));
        TableData::with_indexes(Arc::clone(def), (core, asked), indexes.collect(), row_ids)
    }

    /// These rows and indexes under a definition.
    pub(crate) fn with_indexes(
        def: Arc<TableDef>,
        (core, asked): (Arc<TableCore>, Arc<Asked>),
        indexes: Vec<TableIndex>,
        row_ids: Option<Arc<HashIndex>>,
    ) -> Self {
        let columns = indexes.iter().flat_map(|index| &index.def.columns);
        let columns: BTreeSet<usize> = columns.copied().collect();
        TableData {
            not_null: NotNull::of(&def),
            has_checks: !def.checks().is_empty(),
            indexed: KeyColumns::new(&def.layout, &columns.into_iter().collect::<Vec<_>>()),
            laid_out_since: def.laid_out_since(),
            def,
            core,
            indexes,
            row_ids,
            asked,
        }
    }

    /// The same rows and indexes under another definition, without indexes that have no data.
    pub(crate) fn under(&self, def: &Arc<TableDef>) -> TableData {
        let indexes = def.indexes.iter().filter_map(|index| {
            let old = self.index(index.id).ok()?;
            Some(TableIndex {
                id: index.id,
                def: Arc::clone(index),
                data: old.data.under(index, &def.layout),
            })
        });
        let asked = match self.laid_out_since == def.laid_out_since() {
            true => Arc::clone(&self.asked),
            false => Arc::new(Asked::new(def.layout.column_count())),
        };
        let core = Arc::clone(&self.core);
        TableData::with_indexes(
            Arc::clone(def),
            (core, asked),
            indexes.collect(),
            self.row_ids.clone(),
        )
    }

    pub(crate) fn layout(&self) -> &RowLayout {
        &self.def.layout
    }

    /// What tells copies of columns under this definition from those under another one.
    pub(crate) fn laid_out_since(&self) -> BatchId {
        self.laid_out_since
    }

    /// The row of a version in the present layout; a copy, which the pin's owner keeps, if the version has an
    /// earlier one. `None` if the pin has no such owner: no row is read through those.
    #[inline(always)]
    pub(crate) fn row<'s>(&'s self, version: VersionRef<'s>, pin: Pin<'s>) -> Option<&'s [u8]> {
        match version.batch() >= self.laid_out_since {
            true => Some(version.bytes()),
            false => self.converted(version, pin),
        }
    }

    #[cold]
    fn converted<'s>(&'s self, version: VersionRef<'s>, pin: Pin<'s>) -> Option<&'s [u8]> {
        let Some(earlier) = self.def.earlier_layout(version.batch()) else {
            return Some(version.bytes());
        };
        let convert = |row: &mut Vec<u8>| earlier.convert(self.layout(), version.bytes(), row);
        pin.keep(version, convert)
    }

    /// The same for a moment: a copy is in `buffer`.
    #[inline(always)]
    pub(crate) fn row_in<'v>(&self, version: VersionRef<'v>, buffer: &'v mut Vec<u8>) -> &'v [u8] {
        match version.batch() >= self.laid_out_since {
            true => version.bytes(),
            false => self.def.present(version.batch(), version.bytes(), buffer),
        }
    }

    /// The same with a copy of its own.
    #[inline(always)]
    fn owned_row<'v>(&self, version: VersionRef<'v>) -> Cow<'v, [u8]> {
        match version.batch() >= self.laid_out_since {
            true => Cow::Borrowed(version.bytes()),
            false => self.converted_copy(version),
        }
    }

    #[cold]
    fn converted_copy<'v>(&self, version: VersionRef<'v>) -> Cow<'v, [u8]> {
        let Some(earlier) = self.def.earlier_layout(version.batch()) else {
            return Cow::Borrowed(version.bytes());
        };
        let mut row = Vec::new();
        earlier.convert(self.layout(), version.bytes(), &mut row);
        Cow::Owned(row)
    }

    /// The row has a NULL in a NOT NULL column: visible in its null bitmap, which comes first.
    #[inline]
    pub(crate) fn has_forbidden_null(&self, row: &[u8]) -> bool {
        self.not_null.is_violated(row)
    }

    #[inline]
    pub(crate) fn index(&self, id: IndexId) -> Result<&TableIndex, SqlError> {
        self.indexes.iter().find(|index| index.id == id).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!(
                    "index with OID {} does not exist on table \"{}\"",
                    id.0, self.def.name
                ),
            )
        })
    }

    /// Removes the entries that lead to a slot only because of `removed`: those whose key no remaining
    /// version has. `remaining` is the head of the chain after the unlinking. A version below one that kept
    /// its keys needs no check: either that one has the same keys, or the index was created later and never
    /// had an entry. (Or the index was dropped before, but then this table is no newer than `newest`, and
    /// that one is.)
    pub(crate) fn remove_entries(
        &self,
        slot: SlotId,
        removed: VersionRef<'_>,
        remaining: Option<VersionRef<'_>>,
        newest: BatchId,
    ) {
        if !removed.is_live() {
            return;
        }
        let removed_row = self.owned_row(removed);
        for index in &self.indexes {
            let chain = std::iter::successors(remaining, |version| version.older());
            let mut are_keys_kept = false;
            let needing = chain.filter(|version| {
                let keeps_keys = version.keeps_keys() && version.batch() <= newest;
                !std::mem::replace(&mut are_keys_kept, keeps_keys) && version.is_live()
            });
            let rows = needing.map(|version| self.owned_row(version));
            index.data.remove(self.layout(), slot, &removed_row, rows);
        }
    }

    /// Forgets the row id of a slot that is about to be released.
    pub(crate) fn remove_row_id(&self, slot: SlotId, row_id: RowId) {
        if let Some(row_ids) = &self.row_ids {
            row_ids.remove(row_id_hash(row_id), slot);
        }
    }
}

/// Fills a table that nobody else knows yet, from several threads; indexes are built at the end.
pub(crate) struct TableLoader {
    data: TableData,
    /// Slots that were reserved for a range of rows that turned out shorter.
    spare: Mutex<Vec<Range<u64>>>,
}

/// Slots that are reserved at a time: what is left of a region. So consecutive rows are stored next to each
/// other, whatever other threads load in the meantime, and a region has one loader at a time.
const RUN_SLOTS: u32 = REGION_SLOTS as u32;

/// Loads consecutive rows into a table.
pub(crate) struct RangeLoader<'l> {
    loader: &'l TableLoader,
    slots: Range<u64>,
    loaded: Loaded,
    residence: Residence,
    /// For a row in the present layout.
    buffer: Vec<u8>,
}

/// Which rows a loader leaves in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Residence {
    All,
    /// Those of regions that were full while the rows of all tables took at most so many bytes. The others
    /// become cold: the checkpoint of this batch holds them.
    Within(u64, BatchId),
}

/// What one thread has loaded into a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loaded {
    linked_bytes: u64,
    row_count: i64,
    /// The rows' terms of the state digest.
    pub(crate) digest: u64,
}

impl Loaded {
    /// How many rows.
    pub(crate) fn rows(&self) -> usize {
        usize::try_from(self.row_count).unwrap_or(0)
    }

    /// So many rows, none of them in memory.
    pub(crate) fn cold(rows: u64, digest: u64) -> Self {
        Loaded {
            linked_bytes: 0,
            row_count: i64::try_from(rows).unwrap_or(i64::MAX),
            digest,
        }
    }

    /// Adds what another thread has put there.
    pub(crate) fn add(&mut self, other: Loaded) {
        self.linked_bytes += other.linked_bytes;
        self.row_count += other.row_count;
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

impl TableLoader {
    pub(crate) fn new(def: &Arc<TableDef>, memory: &Arc<RowMemory>) -> Self {
        TableLoader {
            data: TableData::new(def, memory),
            spare: Mutex::default(),
        }
    }

    pub(crate) fn layout(&self) -> &RowLayout {
        self.data.layout()
    }

    /// For rows that one thread adds one after another.
    pub(crate) fn range(&self, residence: Residence) -> RangeLoader<'_> {
        RangeLoader {
            loader: self,
            slots: self.spare.lock().pop().unwrap_or_default(),
            loaded: Loaded::default(),
            residence,
            buffer: Vec::new(),
        }
    }

    /// Fills the empty table: all its rows are cold.
    pub(crate) fn restore(&self, lengths: RowLengths, regions: Vec<ColdRegion>) {
        self.data.core.slots.restore(lengths, regions);
    }

    /// An index of the table for so many rows, still empty, and its number.
    pub(crate) fn empty_index(&self, id: IndexId, rows: usize) -> Option<(usize, IndexData)> {
        let (core, indexes) = (&self.data.core, self.data.indexes.iter().enumerate());
        let (number, index) = indexes.into_iter().find(|(_, index)| index.id == id)?;
        let mut data = IndexData::new(&index.def, self.data.layout(), core.slots.memory());
        data.make_room(rows);
        Some((number, data))
    }

    /// The index over the row ids of so many rows, still empty, if the table has one.
    pub(crate) fn empty_row_ids(&self, rows: usize) -> Option<HashIndex> {
        self.data.row_ids.as_ref()?;
        let mut row_ids = HashIndex::new(self.data.core.slots.memory());
        row_ids.make_room(rows);
        Some(row_ids)
    }

    fn pin(&self) -> Pin<'_> {
        // SAFETY: nobody else knows this table, so no version of it is unlinked or freed.
        unsafe { Pin::new(Pin::EVERYTHING) }
    }

    /// The number of structures to build over the rows once all are loaded.
    pub(crate) fn structure_count(&self) -> usize {
        self.data.indexes.len() + usize::from(self.data.row_ids.is_some())
    }

    /// Builds one of these structures over `rows` rows, with so many threads; different ones may be built at
    /// the same time. Errors: a duplicate in a unique index, and the end of the statement.
    pub(crate) fn build(&self, number: usize, rows: usize, threads: usize) -> Result<Structure, SqlError> {
        let (core, pin) = (&self.data.core, self.pin());
        match self.data.indexes.get(number) {
            Some(TableIndex { def, .. }) => match build((&self.data.def, def), core, pin, rows, threads) {
                Ok(index) => Ok(Structure::Index(number, index)),
                Err(BuildError::Duplicate(_)) => Err(SqlError::internal(format!(
                    "duplicate key in unique index \"{}\"",
                    def.name
                ))),
                Err(BuildError::Ended(error)) => Err(error),
            },
            None => Ok(Structure::RowIds(build_row_ids(core, pin, rows, threads)?)),
        }
    }

    /// The table, with its row count and all its structures.
    pub(crate) fn finish(mut self, loaded: Loaded, built: impl IntoIterator<Item = Structure>) -> TableData {
        for slots in std::mem::take(self.spare.get_mut()) {
            self.data.core.slots.put_back(slots);
        }
        self.data.core.slots.linked(loaded.linked_bytes);
        self.data.core.terms_sum.store(loaded.digest, Ordering::Relaxed);
        self.data
            .core
            .row_count
            .store(loaded.row_count, Ordering::Relaxed);
        for structure in built {
            match structure {
                Structure::Index(number, index) => {
                    if let Some(place) = self.data.indexes.get_mut(number) {
                        place.data = index;
                    }
                }
                Structure::RowIds(row_ids) => self.data.row_ids = Some(Arc::new(row_ids)),
            }
        }
        self.data
    }
}

impl RangeLoader<'_> {
    /// Adds a row as it was. Errors: bytes that the table's layout does not allow, NULL in a NOT NULL column.
    pub(crate) fn push(&mut self, row_id: RowId, batch: BatchId, row: &[u8]) -> Result<(), CodecError> {
        let data = &self.loader.data;
        data.def.layout_at(batch).validate(row)?;
        if data.has_forbidden_null(data.def.present(batch, row, &mut self.buffer)) {
            return Err(CodecError::new(0, "NULL in a NOT NULL column"));
        }
        let core = &data.core;
        let slot = match self.slots.next() {
            Some(slot) => SlotId(slot),
            None => {
                self.leave_region();
                self.slots = core.slots.reserve_run(RUN_SLOTS, row.len());
                SlotId(self.slots.next().unwrap_or_default())
            }
        };
        core.slots.note(slot, row.len());
        if let Some(place) = core.slots.resident(slot) {
            place.set_row_id(row_id);
            let version = place.push(self.loader.pin(), batch, Some(row), core.slots.memory());
            let term = core.term(place, version);
            version.seal(term, false);
            self.loaded.linked_bytes += version.size_bytes() as u64;
            self.loaded.digest = self.loaded.digest.wrapping_add(term);
        }
        self.loaded.row_count += 1;
        Ok(())
    }

    /// Freezes the region that has become full if there is too much in memory.
    fn leave_region(&mut self) {
        let slots = &self.loader.data.core.slots;
        let Residence::Within(bytes_max, batch) = self.residence else {
            return;
        };
        let Some(last) = self.slots.end.checked_sub(1) else {
            return;
        };
        if slots.memory().row_bytes() > bytes_max
            && let Some(left) = slots.freeze(last / REGION_SLOTS, batch)
        {
            // SAFETY: nobody else knows this table, and no other loader has slots of this region.
            unsafe { left.free(slots.memory()) };
        }
    }

    /// What was put there.
    pub(crate) fn finish(self) -> Loaded {
        if !self.slots.is_empty() {
            self.loader.spare.lock().push(self.slots);
        }
        self.loaded
    }
}

/// What is built over a table's rows.
pub(crate) enum Structure {
    /// The index with this number.
    Index(usize, IndexData),
    /// The index over row ids.
    RowIds(HashIndex),
}

pub(crate) fn row_id_hash(id: RowId) -> u64 {
    hash64(&id.encode())
}

/// A catalog and the data behind it.
#[derive(Clone)]
pub(crate) struct Schema {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tables: Arc<TableMap<Arc<TableData>>>,
}

impl Schema {
    #[inline]
    pub(crate) fn table(&self, id: TableId) -> Result<&Arc<TableData>, SqlError> {
        self.tables.get(&id).ok_or_else(|| {
            SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation with OID {} does not exist", id.0),
            )
        })
    }
}
