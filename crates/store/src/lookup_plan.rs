//! Lookups of unique keys that are known before any of them is made: fetched together, then made one by one.
//!
//! ```text
//!   push      hash the key; in an ordered index, go down through the nodes that are in the cache
//!   finish    fetch the index lines of all (or the next nodes, and then the leaves)
//!             look at the lines, fetch the first candidates' slots, in which the rows lie, as a rule
//!             look at the slots, fetch rows that lie elsewhere, or one column of them
//!   lookup    each finds everything in the cache, and its row where the plan says
//!   rest      what of long rows does not lie in their first lines is fetched some rows ahead of the lookup
//! ```
//!
//! Each step is taken for a block of lookups, with the fetches back to back, which overlaps the page walks
//! that they may need (`group.rs`). What was looked up for the fetch, table, index and slot, is kept for the
//! lookup, so that it is paid once. The key is checked against the row as ever: rows may have changed since.
//!
//! Source: BionicDB, sections 4.4 and 4.5; group prefetching, Chen et al. 2004.

use std::ops::Range;

use smallvec::SmallVec;
use weft_base::memory::prefetch;
use weft_base::{IndexId, TableId};
use weft_ops::hash64;
use weft_types::SqlError;

use crate::fetch::{BLOCK_LOOKUPS, Fetch, REST_ROWS, RowAhead, Wanted, fetch_of_each};
use crate::index::hash::HashIndex;
use crate::memory::{Pin, Slot, SlotId};
use crate::probe::{Found, Probe, find_index};
use crate::read::{ReadView, RowVersion, row_in};

/// Lookups that are kept without memory from elsewhere: those of a group and of its last program.
const LOOKUPS_AT_HAND: usize = 128;
/// The same for ways down ordered indexes.
const DESCENTS_AT_HAND: usize = 8;

/// See the module.
pub struct LookupPlan<'s> {
    view: ReadView<'s>,
    lookups: SmallVec<[PlannedLookup<'s>; LOOKUPS_AT_HAND]>,
    descents: SmallVec<[Descending<'s>; DESCENTS_AT_HAND]>,
    /// Lookups that have something to fetch.
    in_flight: usize,
    /// Lookups that have been brought to their ends.
    finished: usize,
    /// Some of their rows are longer than what was fetched.
    has_rests: bool,
}

/// One lookup of a plan: what is known of it.
struct PlannedLookup<'s> {
    /// `None` if there is nothing to look up.
    found: Option<Found<'s>>,
    hashed: Option<&'s HashIndex>,
    hash: u64,
    /// The first candidate's slot.
    place: Option<Slot<'s>>,
    row: RowAhead,
}

/// A lookup, or the beginning of a range, that goes by an ordered index.
struct Descending<'s> {
    /// Number of the lookup.
    lookup: usize,
    found: Found<'s>,
    probe: Probe,
}

impl<'s> LookupPlan<'s> {
    /// An empty plan of lookups through a view. Made where it is to lie: it is large.
    #[inline(always)]
    #[must_use]
    pub fn new(view: ReadView<'s>) -> Self {
        LookupPlan {
            view,
            lookups: SmallVec::new(),
            descents: SmallVec::new(),
            in_flight: 0,
            finished: 0,
            has_rests: false,
        }
    }

    /// How many lookups there are, those of nothing included.
    #[inline]
    pub fn len(&self) -> usize {
        self.lookups.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.lookups.is_empty()
    }

    /// How many of them have something to fetch.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.lookups.clear();
        self.descents.clear();
        (self.in_flight, self.finished, self.has_rests) = (0, 0, false);
    }

    /// Plans a lookup of this key.
    #[inline]
    pub fn push(&mut self, table: TableId, index: IndexId, key: &[u8], fetch: Fetch) {
        self.push_hashed(table, index, (key, hash64(key)), fetch);
    }

    /// As [`LookupPlan::push`], for who knows the key's [`hash64`].
    #[inline]
    pub fn push_hashed(&mut self, table: TableId, index: IndexId, (key, hash): (&[u8], u64), fetch: Fetch) {
        let found = find_index(self.view.schema(), table, index);
        let hashed = found.and_then(|(_, index)| index.data.hash.as_ref());
        match hashed {
            Some(_) => self.in_flight += 1,
            None => self.push_descent(found, (table, index), key, fetch),
        }
        self.lookups.push(PlannedLookup {
            found,
            hashed,
            hash,
            place: None,
            row: RowAhead::new(fetch),
        });
    }

    /// Plans a lookup of nothing, for who counts.
    pub fn push_nothing(&mut self) {
        self.lookups.push(PlannedLookup::nothing(Fetch::Bytes(0)));
    }

    /// Plans to fetch what a range from `lowest` on will touch first: nodes, the leaf, the first row.
    pub fn push_range(&mut self, table: TableId, index: IndexId, lowest: &[u8], fetch: Fetch) {
        let found = find_index(self.view.schema(), table, index);
        self.push_descent(found, (table, index), lowest, fetch);
        self.lookups.push(PlannedLookup::nothing(fetch));
    }

    #[cold]
    fn push_descent(&mut self, found: Option<Found<'s>>, at: (TableId, IndexId), key: &[u8], fetch: Fetch) {
        if let Some((table, index)) = found
            && let Some(ordered) = &index.data.ordered
        {
            self.in_flight += 1;
            self.descents.push(Descending {
                lookup: self.lookups.len(),
                found: (table, index),
                probe: Probe::down(at.0, at.1, ordered, key).with_fetch(fetch),
            });
        }
    }

    /// Brings all to their ends, but for what of long rows does not lie in their first lines.
    pub fn finish(&mut self) {
        let pin = self.view.pin();
        let lookups = self.lookups.get_mut(self.finished..).unwrap_or_default();
        let descents = &mut self.descents;
        // Both kinds go on together, a step of all at a time.
        advance_all(descents, pin);
        for block in lookups.chunks(BLOCK_LOOKUPS) {
            let mut lines = [std::ptr::null(); BLOCK_LOOKUPS];
            for (line, lookup) in lines.iter_mut().zip(block) {
                *line = lookup.line_address();
            }
            lines.iter().take(block.len()).for_each(|line| prefetch(*line));
        }
        advance_all(descents, pin);
        for block in lookups.chunks_mut(BLOCK_LOOKUPS) {
            fetch_of_each(block, PlannedLookup::look_at_line);
        }
        advance_all(descents, pin);
        for block in lookups.chunks_mut(BLOCK_LOOKUPS) {
            fetch_of_each(block, |lookup| lookup.look_at_slot(pin));
        }
        while advance_all(descents, pin) {}
        for Descending { lookup, found, probe } in descents.drain(..) {
            if let Some(planned) = self.lookups.get_mut(lookup) {
                planned.row = probe.row();
                planned.place = planned.found.and_then(|_| found.0.core.slots.slot(probe.slot()));
            }
        }
        let finished = self.lookups.get(self.finished..).unwrap_or_default();
        self.has_rests |= finished.iter().any(|lookup| lookup.row.has_rest());
        self.finished = self.lookups.len();
    }

    /// Where each lookup's row may be. Once the plan is finished.
    pub(crate) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.lookups.iter().map(|lookup| lookup.row.slot)
    }

    /// Some of the lookups, in their order. Once the plan is finished.
    #[inline]
    pub fn part(&mut self, range: Range<usize>) -> Planned<'_, 's> {
        let lookups = self.lookups.get_mut(range).unwrap_or_default();
        Planned {
            rests_fetched: if self.has_rests { 0 } else { lookups.len() },
            lookups,
        }
    }
}

/// Takes all a step further; true while one of them is not at its end.
#[inline]
fn advance_all(descents: &mut [Descending<'_>], pin: Pin<'_>) -> bool {
    for block in descents.chunks_mut(BLOCK_LOOKUPS) {
        fetch_of_each(block, |descending| descending.probe.look(descending.found, pin));
    }
    descents.iter().any(|descending| descending.probe.is_under_way())
}

impl<'s> PlannedLookup<'s> {
    fn nothing(fetch: Fetch) -> Self {
        PlannedLookup {
            found: None,
            hashed: None,
            hash: 0,
            place: None,
            row: RowAhead::new(fetch),
        }
    }

    #[inline(always)]
    fn line_address(&self) -> *const u8 {
        self.hashed
            .map_or(std::ptr::null(), |index| index.line_address(self.hash))
    }

    #[inline(always)]
    fn look_at_line(&mut self) -> Wanted {
        let (Some((table, _)), Some(index)) = (self.found, self.hashed) else {
            return Wanted::default();
        };
        let Some(slot) = index.first_candidate(self.hash) else {
            return Wanted::default();
        };
        self.place = table.core.slots.slot(slot);
        match self.place {
            Some(place) => self.row.want_place(table, slot, place),
            None => Wanted::default(),
        }
    }

    #[inline(always)]
    fn look_at_slot(&mut self, pin: Pin<'s>) -> Wanted {
        match (self.found, self.place) {
            (Some((table, _)), Some(place)) => self.row.look_at_slot(table, place, pin),
            _ => Wanted::default(),
        }
    }

    /// The row with this key where the plan led, if it is there for the pin.
    #[inline(always)]
    fn row(&self, (table, index): (TableId, IndexId), key: &[u8], pin: Pin<'s>) -> Option<RowVersion<'s>> {
        let ((data, by), place) = self.found.zip(self.place)?;
        if data.core.table != table || by.id != index || !by.def.unique {
            return None;
        }
        let row = row_in(place, self.row.slot, pin)?;
        by.data.carries(data.layout(), row.bytes, key).then_some(row)
    }
}

/// The lookups that one program has in a plan.
#[derive(Default)]
pub struct Planned<'p, 's> {
    lookups: &'p mut [PlannedLookup<'s>],
    /// Before this lookup there is no rest that nobody has fetched.
    rests_fetched: usize,
}

impl<'s> Planned<'_, 's> {
    /// As [`ReadView::lookup_one`] in a unique index, by lookup number `number`, planned for a view of the
    /// same schema: looks first where it has led. One for another key, or from before a change, costs time
    /// only. Before, the rest of the rows some lookups ahead is fetched.
    // What is found stays in registers: a result in memory, stored in words and loaded in larger pieces,
    // would have to wait for all that was stored before.
    #[inline(always)]
    pub fn lookup(
        &mut self,
        number: usize,
        view: &ReadView<'s>,
        (table, index): (TableId, IndexId),
        key: &[u8],
    ) -> Result<Option<RowVersion<'s>>, SqlError> {
        let rests_end = self.lookups.len().min(number + REST_ROWS + 1);
        if self.rests_fetched < rests_end {
            self.fetch_rests_before(rests_end);
        }
        if let Some(lookup) = self.lookups.get(number)
            && let Some(row) = lookup.row((table, index), key, view.pin())
        {
            return Ok(Some(row));
        }
        view.lookup_one(table, index, key)
    }

    fn fetch_rests_before(&mut self, end: usize) {
        for lookup in self.lookups.get_mut(self.rests_fetched..end).unwrap_or_default() {
            lookup.row.fetch_rest();
        }
        self.rests_fetched = end;
    }

    /// Fetches the rest of the first rows that have one. The lookups themselves fetch the others', as they
    /// come near them.
    pub fn fetch_first_rests(&mut self) {
        self.fetch_rests(REST_ROWS);
    }

    /// Fetches the rest of all rows that have one; of how many there was one.
    pub fn fetch_all_rests(&mut self) -> usize {
        self.fetch_rests(usize::MAX)
    }

    fn fetch_rests(&mut self, rows: usize) -> usize {
        let ahead = self.lookups.get_mut(self.rests_fetched..).unwrap_or_default();
        let with_rest = ahead.iter_mut().filter(|lookup| lookup.row.has_rest());
        with_rest.take(rows).map(|lookup| lookup.row.fetch_rest()).count()
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

    /// Plans lead to the rows themselves, and where a probe leads that goes alone; where there is no row,
    /// nowhere.
    #[test]
    fn plans_lead_to_their_rows() {
        let store = Store::new();
        let mut batch = store.begin_batch(BatchId(1));
        let index = |id, primary, method| IndexDef {
            id,
            name: format!("i{}", id.0),
            table: TABLE,
            columns: vec![0],
            unique: true,
            primary,
            method,
        };
        let def = TableDef::new(TABLE, "t", vec![ColumnDef::new("a", SqlType::Int8)])
            .with_index(index(HASHED, true, IndexMethod::Both))
            .with_index(index(ORDERED, false, IndexMethod::Ordered));
        batch.apply_catalog(&CatalogOp::CreateTable(def.clone())).unwrap();
        let mut member = batch.member(0);
        for a in 0..200 {
            let row = def.layout.encode(&[Value::Int8(a)]).unwrap();
            member.insert(TABLE, &row).unwrap();
        }
        member.commit();
        batch.finish();
        store.publish(BatchId(1));
        let snapshot = store.snapshot();
        let view = snapshot.view();
        for count in [1, 15, 16, 17, 50, 190] {
            let all = (1..=count).flat_map(|a| [(a, HASHED), (a, ORDERED), (a + 10_000, HASHED)]);
            let mut plan = LookupPlan::new(view);
            let key = |a: i64| {
                let mut key = Vec::new();
                encode_key_value(&mut key, &Value::Int8(a));
                key
            };
            for (a, index) in all.clone() {
                plan.push(TABLE, index, &key(a), Fetch::Bytes(0));
            }
            plan.finish();
            for ((a, index), planned) in all.zip(&plan.lookups) {
                let row = planned.row((TABLE, index), &key(a), view.pin());
                assert_eq!(row.is_some(), a < 10_000, "{a} by {index:?}");
                assert!(planned.row((TABLE, index), &key(a + 1), view.pin()).is_none());
                assert!(planned.row((TableId(1), index), &key(a), view.pin()).is_none());
                let mut alone = view.begin_probe(TABLE, index, &key(a));
                while view.advance_probe(&mut alone) {}
                assert_eq!(planned.row.slot, alone.slot(), "{a} by {index:?}");
            }
        }
    }
}
