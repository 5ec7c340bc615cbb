//! Planned lookups: unique keys that are known in advance are prefetched together and then looked up one by
//! one.
//!
//! ```text
//!   push      hash the key; in an ordered index, descend through the nodes that are in the cache
//!   finish    prefetch the index lines of all (or the next nodes, and then the leaves)
//!             read the lines, prefetch the first candidates' slots, which usually hold the rows
//!             read the slots, prefetch rows in blocks, or one column of them
//!   lookup    each finds everything in the cache, and its row where the plan says
//!   rest      the tails of long rows are prefetched some rows ahead of the lookup
//! ```
//!
//! Each step first computes the addresses for a block of lookups and then issues the prefetches back to back.
//! That matters as much as the number in flight: a prefetch whose page is not in the TLB stalls the following
//! instructions until the page walk is done, and only prefetches that are issued close together overlap their
//! page walks (docs/decisions/0008-row-memory.md). Table, index and slot found for the prefetch are kept for
//! the lookup, so that this work is done once. The key is checked against the row as always: rows may have
//! changed since.
//!
//! Sources: BionicDB, sections 4.4 and 4.5; group prefetching, Chen et al. 2004.

use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;
use weft_base::memory::prefetch;
use weft_base::{IndexId, TableId};
use weft_ops::hash64;
use weft_types::{RowLayout, SqlError};

use crate::index::IndexData;
use crate::index::hash::{HashIndex, HomeLine};
use crate::memory::{Pin, Slot, SlotArena, SlotId};
use crate::prefetch::{Fetch, FetchExtent, PrefetchList, REST_ROWS, RowPrefetch, fetch_of_each};
use crate::probe::{Found, Probe, find_index};
use crate::read::{ReadView, RowVersion, lookup_in, row_in};

/// Lookups kept inline: those of a group and of its last program.
const INLINE_LOOKUPS: usize = 128;
/// The same for index paths.
const INLINE_PATHS: usize = 32;
/// The same for descents of ordered indexes.
const INLINE_DESCENTS: usize = 8;

/// Keys of a [`ReadView::lookup_group`] that are looked up together: enough for the most lines that a plan
/// has in flight, so that ramp-up and ramp-down matter little.
const GROUP_KEYS: usize = 64;

/// See the module's head.
pub struct LookupPlan<'s> {
    view: ReadView<'s>,
    lookups: SmallVec<[LookupState<'s>; INLINE_LOOKUPS]>,
    paths: SmallVec<[IndexPath<'s>; INLINE_PATHS]>,
    current: Option<CurrentPath<'s>>,
    descents: SmallVec<[Descending<'s>; INLINE_DESCENTS]>,
    /// Lookups that have something to prefetch.
    in_flight: usize,
    /// Lookups that are complete.
    finished: usize,
    /// Some of their rows are longer than what was prefetched.
    has_rests: bool,
}

/// What lookups by one index have in common, determined once for all of them.
struct IndexPath<'s> {
    at: (TableId, IndexId),
    fetch: Fetch,
    part: FetchExtent,
    /// At most one row has a key: then the row that a lookup leads to is the result, if it has the key.
    is_unique: bool,
    found: Found<'s>,
    slots: &'s SlotArena,
    layout: &'s RowLayout,
    index: &'s IndexData,
}

/// The index path of the lookups being planned.
struct CurrentPath<'s> {
    at: (TableId, IndexId),
    fetch: Fetch,
    hashed: Option<&'s HashIndex>,
    number: u32,
}

/// One lookup of a plan.
struct LookupState<'s> {
    hash: u64,
    /// The hash's home line, if the lookup uses a hash index.
    home: Option<HomeLine<'s>>,
    /// The first candidate's slot.
    place: Option<Slot<'s>>,
    row: RowPrefetch,
    /// Number of its index path; [`NO_PATH`] if it can find nothing.
    path: u32,
}

const NO_PATH: u32 = u32::MAX;
const _: () = assert!(size_of::<LookupState<'_>>() <= 64);

/// A lookup, or the beginning of a range, in an ordered index.
struct Descending<'s> {
    /// Number of the lookup.
    lookup: usize,
    found: Found<'s>,
    probe: Probe,
}

impl LookupState<'_> {
    const NOTHING: Self = LookupState {
        hash: 0,
        home: None,
        place: None,
        row: RowPrefetch::NOWHERE,
        path: NO_PATH,
    };
}

impl<'s> LookupPlan<'s> {
    /// An empty plan of lookups through a view. Construct it in place: it is large.
    #[inline(always)]
    #[must_use]
    pub fn new(view: ReadView<'s>) -> Self {
        LookupPlan {
            view,
            lookups: SmallVec::new(),
            paths: SmallVec::new(),
            current: None,
            descents: SmallVec::new(),
            in_flight: 0,
            finished: 0,
            has_rests: false,
        }
    }

    /// The number of lookups, including empty ones.
    #[inline]
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// How many of them have something to prefetch.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.lookups.clear();
        self.paths.clear();
        self.current = None;
        self.descents.clear();
        (self.in_flight, self.finished, self.has_rests) = (0, 0, false);
    }

    /// Plans a lookup of this key.
    #[inline]
    pub fn push(&mut self, table: TableId, index: IndexId, key: &[u8], fetch: Fetch) {
        self.push_hashed(table, index, (key, hash64(key)), fetch);
    }

    /// As [`LookupPlan::push`], for a caller that knows the key's [`hash64`].
    #[inline]
    pub fn push_hashed(&mut self, table: TableId, index: IndexId, (key, hash): (&[u8], u64), fetch: Fetch) {
        if let Some(path) = &self.current
            && path.at == (table, index)
            && path.fetch == fetch
            && let Some(hashed) = path.hashed
        {
            let (home, path) = (hashed.home(hash), path.number);
            self.push_line(hash, home, path);
        } else {
            self.push_changing((table, index), (key, hash), fetch);
        }
    }

    #[inline(always)]
    fn push_line(&mut self, hash: u64, home: Option<HomeLine<'s>>, path: u32) {
        self.in_flight += 1;
        self.lookups.push(LookupState {
            hash,
            home,
            path,
            ..LookupState::NOTHING
        });
    }

    /// Plans a lookup by another index than the previous one, or by an ordered index.
    #[inline(never)]
    fn push_changing(&mut self, at: (TableId, IndexId), (key, hash): (&[u8], u64), fetch: Fetch) {
        let Some(number) = self.path(at, fetch) else {
            return self.push_nothing();
        };
        let Some(path) = self.paths.get(number) else {
            return self.push_nothing();
        };
        let (found, hashed, number) = (path.found, path.index.hash.as_deref(), number as u32);
        self.current = Some(CurrentPath {
            at,
            fetch,
            hashed,
            number,
        });
        match hashed {
            Some(hashed) => self.push_line(hash, hashed.home(hash), number),
            None => {
                self.descend(at, found, key, fetch);
                self.lookups.push(LookupState {
                    path: number,
                    ..LookupState::NOTHING
                });
            }
        }
    }

    /// Number of the path by this index, if the index exists.
    fn path(&mut self, at: (TableId, IndexId), fetch: Fetch) -> Option<usize> {
        let known = self
            .paths
            .iter()
            .position(|path| path.at == at && path.fetch == fetch);
        if known.is_some() {
            return known;
        }
        let (table, index) = find_index(self.view.schema(), at.0, at.1)?;
        self.paths.push(IndexPath {
            at,
            fetch,
            part: fetch.into(),
            is_unique: index.def.unique,
            found: (table, index),
            slots: &table.core.slots,
            layout: table.layout(),
            index: &index.data,
        });
        Some(self.paths.len() - 1)
    }

    /// Plans an empty lookup, to keep the numbering.
    pub fn push_nothing(&mut self) {
        self.lookups.push(LookupState::NOTHING);
    }

    /// Plans to prefetch what a range from `lowest` on accesses first: nodes, the leaf, the first row.
    pub fn push_range(&mut self, table: TableId, index: IndexId, lowest: &[u8], fetch: Fetch) {
        if let Some(found) = find_index(self.view.schema(), table, index) {
            self.descend((table, index), found, lowest, fetch);
        }
        self.push_nothing();
    }

    /// Begins a descent for the next lookup, if it uses an ordered index.
    fn descend(&mut self, at: (TableId, IndexId), found: Found<'s>, key: &[u8], fetch: Fetch) {
        if let Some(ordered) = &found.1.data.ordered {
            self.in_flight += 1;
            self.descents.push(Descending {
                lookup: self.lookups.len(),
                found,
                probe: Probe::down(at.0, at.1, ordered, key).with_fetch(fetch),
            });
        }
    }

    /// Completes all lookups, except for the tails of long rows.
    pub fn finish(&mut self) {
        let pin = self.view.pin();
        let lookups = self.lookups.get_mut(self.finished..).unwrap_or_default();
        let (paths, descents) = (self.paths.as_slice(), &mut self.descents);
        // Both kinds advance together, all by one step at a time.
        advance_all(descents, pin);
        for lookup in lookups.iter() {
            prefetch(lookup.home.map_or(std::ptr::null(), HomeLine::address));
        }
        advance_all(descents, pin);
        fetch_of_each(lookups, |lookup, list| lookup.look_at_line(paths, list));
        advance_all(descents, pin);
        let has_columns = paths.iter().any(|path| path.part.has_column());
        fetch_of_each(lookups, |lookup, list| {
            // Most rows are stored in their slots.
            if let Some(place) = lookup.place
                && (has_columns || place.newest_elsewhere().is_some())
            {
                lookup.look_at_slot(paths, place, pin, list);
            }
        });
        while advance_all(descents, pin) {}
        for Descending { lookup, found, probe } in descents.drain(..) {
            if let Some(planned) = self.lookups.get_mut(lookup) {
                planned.row = probe.row();
                planned.place = found.0.core.slots.resident(probe.slot());
            }
        }
        let finished = self.lookups.get(self.finished..).unwrap_or_default();
        let rest_bytes = finished.iter().map(|lookup| lookup.row.rest_bytes());
        self.has_rests |= rest_bytes.fold(0, |all, bytes| all | bytes) > 0;
        self.finished = self.lookups.len();
    }

    /// Where each lookup's row may be. Call after `finish`.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.lookups.iter().map(|lookup| lookup.row.slot)
    }

    /// Some of the lookups, in order. Call after `finish`.
    #[inline]
    pub fn part(&mut self, range: Range<usize>) -> PlannedLookups<'_, 's> {
        PlannedLookups {
            lookups: self.lookups.get_mut(range).unwrap_or_default(),
            paths: &self.paths,
            rests_fetched: if self.has_rests { 0 } else { usize::MAX },
        }
    }
}

/// Advances all by one step; true while one of them is not complete.
#[inline]
fn advance_all(descents: &mut [Descending<'_>], pin: Pin<'_>) -> bool {
    if descents.is_empty() {
        return false;
    }
    fetch_of_each(descents, |Descending { found, probe, .. }, list| {
        probe.look(*found, pin, list);
    });
    descents.iter().any(|descending| descending.probe.is_under_way())
}

impl<'s> LookupState<'s> {
    #[inline(always)]
    fn look_at_line(&mut self, paths: &[IndexPath<'s>], list: &mut PrefetchList<'_>) {
        if let Some(home) = self.home
            && let Some(path) = paths.get(self.path as usize)
            && let Some(slot) = home
                .first_candidate(self.hash)
                .or_else(|| path.behind(home, self.hash))
            && let Some(place) = path.slots.resident(slot)
        {
            self.place = Some(place);
            self.row
                .want_place((path.found.0, path.part), (slot, place), list);
        }
    }

    #[inline(always)]
    fn look_at_slot(
        &mut self,
        paths: &[IndexPath<'s>],
        place: Slot<'s>,
        pin: Pin<'s>,
        list: &mut PrefetchList<'_>,
    ) {
        if let Some(path) = paths.get(self.path as usize) {
            self.row.look_at_slot((path.found.0, path.part), place, pin, list);
        }
    }

    /// The row with this key at the planned place, if it is there for the pin.
    #[inline(always)]
    fn row(
        &self,
        paths: &[IndexPath<'s>],
        at: (TableId, IndexId),
        key: &[u8],
        pin: Pin<'s>,
    ) -> Option<RowVersion<'s>> {
        let place = self.place?;
        let path = paths
            .get(self.path as usize)
            .filter(|path| path.at == at && path.is_unique)?;
        let row = row_in(path.found.0, place, self.row.slot, pin)?;
        path.index.carries(path.layout, row.bytes, key).then_some(row)
    }
}

impl IndexPath<'_> {
    /// [`HomeLine::first_candidate`] if the home line was full.
    #[inline(always)]
    fn behind(&self, home: HomeLine<'_>, hash: u64) -> Option<SlotId> {
        let hashed = self.index.hash.as_ref().filter(|_| home.was_passed())?;
        hashed.first_candidate_behind(hash)
    }
}

/// The lookups of one program in a plan.
#[derive(Default)]
pub struct PlannedLookups<'p, 's> {
    lookups: &'p mut [LookupState<'s>],
    paths: &'p [IndexPath<'s>],
    /// All tails of rows before this lookup have been prefetched.
    rests_fetched: usize,
}

impl<'s> PlannedLookups<'_, 's> {
    /// As [`ReadView::lookup_one`] in a unique index, by lookup number `number`, planned for a view of the
    /// same schema: tries the planned place first. A plan for another key, or from before a change, only
    /// costs time.
    // The result stays in registers: a result in memory, stored in words and loaded in larger pieces, would
    // have to wait for the stores.
    #[inline(always)]
    pub fn lookup(
        &mut self,
        number: usize,
        view: &ReadView<'s>,
        (table, index): (TableId, IndexId),
        key: &[u8],
    ) -> Result<Option<RowVersion<'s>>, SqlError> {
        match self.row(number, view, (table, index), key) {
            Some(row) => Ok(Some(row)),
            None => view.lookup_one(table, index, key),
        }
    }

    /// The row of a lookup if it is at the planned place. Before that, prefetches the tails of rows some
    /// lookups ahead.
    #[inline(always)]
    fn row(
        &mut self,
        number: usize,
        view: &ReadView<'s>,
        at: (TableId, IndexId),
        key: &[u8],
    ) -> Option<RowVersion<'s>> {
        let rests_end = number + REST_ROWS + 1;
        if self.rests_fetched < rests_end {
            self.fetch_rests_before(rests_end);
        }
        self.lookups.get(number)?.row(self.paths, at, key, view.pin())
    }

    #[inline(never)]
    fn fetch_rests_before(&mut self, end: usize) {
        let rests = self.lookups.iter_mut().take(end).skip(self.rests_fetched);
        rests.for_each(|lookup| lookup.row.fetch_rest());
        self.rests_fetched = end;
    }

    /// Prefetches the tails of the first rows. The lookups themselves prefetch those of later rows.
    #[inline]
    pub fn fetch_first_rests(&mut self) {
        if self.rests_fetched < self.lookups.len() {
            self.fetch_rests(REST_ROWS);
        }
    }

    /// Prefetches the tails of all rows; returns how many there were.
    pub fn fetch_all_rests(&mut self) -> usize {
        self.fetch_rests(usize::MAX)
    }

    fn fetch_rests(&mut self, rows: usize) -> usize {
        let ahead = self.lookups.get_mut(self.rests_fetched..).unwrap_or_default();
        let with_rest = ahead.iter_mut().filter(|lookup| lookup.row.rest_bytes() > 0);
        with_rest.take(rows).map(|lookup| lookup.row.fetch_rest()).count()
    }
}

impl<'s> ReadView<'s> {
    /// Visits the rows with each of the keys, key by key in order, with the key's position; as
    /// [`ReadView::lookup`] for each, but with overlapping waits for memory. `fetch` says which part of a row
    /// `see` will access. Errors: the table or index does not exist (any more).
    pub fn lookup_group<K: AsRef<[u8]>>(
        &self,
        table: TableId,
        index: IndexId,
        keys: &[K],
        fetch: Fetch,
        mut see: impl FnMut(usize, RowVersion<'s>),
    ) -> Result<(), SqlError> {
        let at = (table, index);
        let table = self.schema().table(table)?;
        let index = table.index(index)?;
        let mut plan = LookupPlan::new(*self);
        let mut position = 0;
        for keys in keys.chunks(GROUP_KEYS) {
            plan.clear();
            keys.iter()
                .for_each(|key| plan.push(at.0, at.1, key.as_ref(), fetch));
            plan.finish();
            let mut planned = plan.part(0..keys.len());
            for (number, key) in keys.iter().map(AsRef::as_ref).enumerate() {
                // Keys with a NULL are not unique: there may be more.
                let is_only = |row: &RowVersion<'_>| !index.data.has_null(table.layout(), row.bytes);
                match planned.row(number, self, at, key).filter(is_only) {
                    Some(row) => see(position, row),
                    None => lookup_in(table, index, self.pin(), key, &mut |row| {
                        see(position, row);
                        ControlFlow::Continue(())
                    })?,
                }
                position += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weft_base::BatchId;
    use weft_types::{SqlType, Value, encode_key_value};

    use super::*;
    use crate::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};

    const TABLE: TableId = TableId(crate::FIRST_OBJECT_ID);
    const HASHED: IndexId = IndexId(TABLE.0 + 1);
    const ORDERED: IndexId = IndexId(TABLE.0 + 2);

    fn table() -> TableDef {
        let index = |id, primary, method| IndexDef {
            id,
            name: format!("i{}", id.0),
            table: TABLE,
            columns: vec![0],
            unique: true,
            primary,
            method,
        };
        TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)])
            .with_index(index(HASHED, true, IndexMethod::Both))
            .with_index(index(ORDERED, false, IndexMethod::Ordered))
    }

    fn insert(member: &mut crate::MemberWriter<'_>, keys: Range<i64>) {
        let def = table();
        for a in keys {
            let row = def.layout.encode(&[Value::Int8(a)]).unwrap();
            member.insert(TABLE, &row).unwrap();
        }
    }

    fn key(a: i64) -> Vec<u8> {
        let mut key = Vec::new();
        encode_key_value(&mut key, &Value::Int8(a));
        key
    }

    /// Plans lead to the rows themselves, and where a probe leads that goes alone; where there is no row,
    /// nowhere.
    #[test]
    fn plans_lead_to_their_rows() {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
        let mut member = batch.member(0);
        insert(&mut member, 0..200);
        member.commit();
        batch.finish();
        store.publish(BatchId(1));
        let snapshot = store.snapshot();
        let view = snapshot.view();
        for count in [1, 15, 16, 17, 50, 190] {
            let all = (1..=count).flat_map(|a| [(a, HASHED), (a, ORDERED), (a + 10_000, HASHED)]);
            let mut plan = LookupPlan::new(view);
            for (a, index) in all.clone() {
                plan.push(TABLE, index, &key(a), Fetch::Bytes(0));
            }
            plan.finish();
            for ((a, index), planned) in all.zip(&plan.lookups) {
                let row = planned.row(&plan.paths, (TABLE, index), &key(a), view.pin());
                assert_eq!(row.is_some(), a < 10_000, "{a} by {index:?}");
                assert!(
                    planned
                        .row(&plan.paths, (TABLE, index), &key(a + 1), view.pin())
                        .is_none()
                );
                assert!(
                    planned
                        .row(&plan.paths, (TableId(1), index), &key(a), view.pin())
                        .is_none()
                );
                let mut alone = view.begin_probe(TABLE, index, &key(a));
                while view.advance_probe(&mut alone) {}
                assert_eq!(planned.row.slot, alone.slot(), "{a} by {index:?}");
            }
        }
    }

    /// Lines that were outgrown between two steps of a plan, and slots that came after them, cost time only.
    #[test]
    fn plans_stay_valid_after_changes() {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
        let grow = |number: u32, keys| {
            let mut member = batch.member(number);
            insert(&mut member, keys);
            member.commit();
        };
        grow(0, 0..300);
        let view = batch.view();
        let mut plan = LookupPlan::new(view);
        let planned: Vec<i64> = (0..600).step_by(7).collect();
        for a in &planned {
            plan.push(TABLE, HASHED, &key(*a), Fetch::Bytes(0));
        }
        grow(1, 300..5_000);
        plan.finish();
        grow(2, 5_000..20_000);
        for (number, a) in planned.iter().enumerate() {
            let mut part = plan.part(0..planned.len());
            let found = part.lookup(number, &view, (TABLE, HASHED), &key(*a)).unwrap();
            assert_eq!(found, view.lookup_one(TABLE, HASHED, &key(*a)).unwrap());
            assert!(found.is_some());
        }
    }

    /// Lookups find their index once for all that fetch the same.
    #[test]
    fn lookups_share_a_path() {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        batch.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
        let mut plan = LookupPlan::new(batch.view());
        let pushes = [
            (HASHED, Fetch::Bytes(0), 1),
            (HASHED, Fetch::Bytes(0), 1),
            (ORDERED, Fetch::Bytes(0), 2),
            (ORDERED, Fetch::Bytes(0), 2),
            (IndexId(1), Fetch::Bytes(0), 2),
            (ORDERED, Fetch::Column(0), 3),
            (HASHED, Fetch::Column(0), 4),
            (HASHED, Fetch::Column(1), 5),
            (HASHED, Fetch::Bytes(0), 5),
            (ORDERED, Fetch::Column(0), 5),
        ];
        for (index, fetch, paths) in pushes {
            plan.push(TABLE, index, &key(1), fetch);
            let path = plan
                .lookups
                .last()
                .and_then(|lookup| plan.paths.get(lookup.path as usize));
            assert_eq!(
                (plan.paths.len(), path.map(|path| path.at)),
                match index {
                    IndexId(1) => (paths, None),
                    index => (paths, Some((TABLE, index))),
                }
            );
        }
        plan.clear();
        plan.push(TABLE, HASHED, &key(1), Fetch::Column(1));
        assert_eq!(plan.paths.len(), 1);
    }
}
