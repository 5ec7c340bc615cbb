//! Hints ahead of a lookup: what it will touch is fetched step by step, so that a caller can keep many
//! lookups in flight.
//!
//! ```text
//!   plan_probe(key)    hash the key; in an ordered index, go down through the nodes that are in the cache
//!   advance_probe      fetch the index's line, or the next node  (`begin_probe` is both at once)
//!   advance_probe      look at that node, fetch the leaf (ordered only)
//!   advance_probe      look at line or leaf, fetch the first candidate's slot, in which its row lies, as a
//!                      rule
//!   advance_probe      look at the slot, fetch the row if it lies elsewhere, or one column of it
//!   fetch_rest         fetch what of a long row does not lie in its first lines
//!   lookup(key)        finds everything in the cache
//! ```
//!
//! A caller plans 16 to 32 probes, brings all to their end together, a step of all at a time, then looks the
//! keys up one by one: the waits for memory overlap. Rows of many lines are another matter: fetching them is
//! bound by bandwidth, and so best done while rows fetched before are copied. So their rest comes last, some
//! rows ahead of the lookup, when the caller says so. Source: BionicDB, sections 4.4 and 4.5 (pipelined
//! indexes), in software as asynchronous memory access chaining (Kocberber et al., 2015).
//!
//! A probe never changes what a lookup finds and never fails: it holds numbers and no pointers, so one that
//! outlives a change, or that is used with another view, only fetches the wrong lines.

use std::ptr;

use smallvec::SmallVec;
use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};
use weft_base::{IndexId, TableId};
use weft_ops::hash64;

use crate::index::hash::HashIndex;
use crate::index::ordered::{Descent, OrderedIndex, Step};
use crate::memory::{Pin, SLOT_OVERHEAD, Slot, SlotId};
use crate::table::{Schema, TableData, TableIndex};

/// Probes whose fetches [`Probe::finish_all`] asks for back to back.
const BLOCK_PROBES: usize = 16;
/// Bytes of a key that a probe keeps for its way down an ordered index. A longer key's probe leads to where
/// its beginning stands.
const KEY_BYTES: usize = 31;
/// How much of a row is fetched with its slot; what is longer comes with [`Probe::fetch_rest`].
const HEAD_BYTES: usize = 4 * LINE_BYTES;
/// How many rows ahead of the present one the rest of a long row is fetched ([`Probe::fetch_rest`]): its
/// lines and those between fill what a core has under way.
pub const REST_ROWS: usize = 4;
/// How much of one value is fetched.
const VALUE_BYTES_MAX: usize = 2 * LINE_BYTES;

/// What of a row is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Its first bytes, so many; the slot's first line at least. `u32::MAX` for all of it.
    Bytes(u32),
    /// The first line and that of this column's cell; then, for a variable column, its value, 128 bytes at
    /// most.
    Column(u32),
}

impl Fetch {
    /// Bytes of the row, from its beginning.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Fetch::Bytes(bytes) => bytes as usize,
            Fetch::Column(_) => 0,
        }
    }

    /// How much of a slot to fetch from its beginning.
    #[inline(always)]
    pub(crate) fn slot_bytes(self, place: Slot<'_>) -> usize {
        (SLOT_OVERHEAD + self.bytes()).clamp(LINE_BYTES, place.size_bytes())
    }

    /// The column's cell, if the row lies at home.
    #[inline(always)]
    pub(crate) fn cell_address(self, table: &TableData, place: Slot<'_>) -> Option<*const u8> {
        match self {
            Fetch::Column(column) => {
                let offset = table.layout().cell_offset(column as usize)?;
                Some(place.address().wrapping_add(SLOT_OVERHEAD + offset))
            }
            Fetch::Bytes(_) => None,
        }
    }

    /// Looks at a slot that was fetched: what to fetch next, and how much of it, if not all lies there. The
    /// length of a version elsewhere is not known before its header has come; a line too many costs little.
    #[inline(always)]
    pub(crate) fn elsewhere<'s>(
        self,
        table: &'s TableData,
        place: Slot<'s>,
        pin: Pin<'s>,
    ) -> Option<(*const u8, usize)> {
        match (place.newest_elsewhere(), self) {
            (Some(elsewhere), _) => Some((elsewhere, self.slot_bytes(place))),
            (None, Fetch::Column(column)) => {
                let version = place.at(pin)?;
                let value = table.layout().raw(version.bytes(), column as usize)?;
                Some((value.as_ptr(), value.len().min(VALUE_BYTES_MAX)))
            }
            (None, Fetch::Bytes(_)) => None,
        }
    }
}

/// A lookup on its way into the cache. Small and without a lifetime, so that it may lie in a reused block.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    table: TableId,
    index: IndexId,
    slot: SlotId,
    fetch: Fetch,
    next: Next,
    /// Where the part of the row lies that was not fetched yet, and how long it is. A number: it is not read
    /// through.
    rest: usize,
    rest_bytes: u32,
    /// For ordered indexes.
    key: [u8; KEY_BYTES],
    key_len: u8,
}

/// What has been fetched, and is looked at next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// Nothing has been fetched yet: the line of this hash is to be.
    Hash(u64),
    /// The line of this hash.
    Line(u64),
    /// Nothing has been fetched yet: this node is to be.
    Descent(Descent),
    Node(Descent),
    Slot,
    Nothing,
}

impl Next {
    fn is_something(self) -> bool {
        !matches!(self, Next::Nothing)
    }
}

impl Probe {
    /// Fetches this of the row instead of its first line.
    #[must_use]
    #[inline(always)]
    pub fn with_fetch(self, fetch: Fetch) -> Self {
        Probe { fetch, ..self }
    }

    /// Fetches this many bytes of the row, from its beginning, instead of its first line.
    #[must_use]
    pub fn with_row_bytes(self, row_bytes: u32) -> Self {
        self.with_fetch(Fetch::Bytes(row_bytes))
    }

    /// Where the key's row may be; anything before the probe is through.
    pub(crate) fn slot(&self) -> SlotId {
        self.slot
    }

    /// Fetches nothing before it is advanced. Made at once, and so where it is to lie: it is larger than what
    /// it is made of.
    #[inline(always)]
    pub(crate) fn plan(schema: &Schema, table: TableId, index: IndexId, key: &[u8]) -> Self {
        Probe::of(find_index(schema, table, index), table, index, key)
    }

    #[inline(always)]
    fn of(found: Option<Found<'_>>, table: TableId, index: IndexId, key: &[u8]) -> Self {
        let data = found.map(|(_, index)| &index.data);
        match data.map(|data| (&data.hash, &data.ordered)) {
            Some((Some(_), _)) => Probe::new(table, index, Next::Hash(hash64(key))),
            Some((None, Some(ordered))) => Probe::down(table, index, ordered, key),
            _ => Probe::new(table, index, Next::Nothing),
        }
    }

    /// A probe for where a range begins. Fetches nothing before it is advanced.
    pub(crate) fn plan_range(schema: &Schema, table: TableId, index: IndexId, lowest: &[u8]) -> Self {
        Probe::of_range(find_index(schema, table, index), table, index, lowest)
    }

    fn of_range(found: Option<Found<'_>>, table: TableId, index: IndexId, lowest: &[u8]) -> Self {
        match found.and_then(|(_, index)| index.data.ordered.as_ref()) {
            Some(ordered) => Probe::down(table, index, ordered, lowest),
            None => Probe::new(table, index, Next::Nothing),
        }
    }

    /// Plans and fetches at once.
    #[inline(always)]
    pub(crate) fn begin(schema: &Schema, table: TableId, index: IndexId, key: &[u8]) -> Self {
        let found = find_index(schema, table, index);
        let mut probe = Probe::of(found, table, index, key);
        probe.start(found);
        probe
    }

    /// The same for where a range begins.
    pub(crate) fn begin_range(schema: &Schema, table: TableId, index: IndexId, lowest: &[u8]) -> Self {
        let found = find_index(schema, table, index);
        let mut probe = Probe::of_range(found, table, index, lowest);
        probe.start(found);
        probe
    }

    /// Fetches what comes first, if anything does.
    #[inline]
    fn start(&mut self, found: Option<Found<'_>>) {
        match (found, self.next) {
            (Some((_, index)), Next::Hash(hash)) => self.want_line(index, hash).fetch(),
            (Some(_), Next::Descent(descent)) => self.want_node(descent).fetch(),
            _ => {}
        }
    }

    #[inline(always)]
    fn new(table: TableId, index: IndexId, next: Next) -> Self {
        Probe {
            table,
            index,
            slot: SlotId(0),
            fetch: Fetch::Bytes(0),
            next,
            rest: 0,
            rest_bytes: 0,
            key: [0; KEY_BYTES],
            key_len: 0,
        }
    }

    fn down(table: TableId, index: IndexId, ordered: &OrderedIndex, key: &[u8]) -> Self {
        let mut probe = Probe::new(table, index, Next::Descent(ordered.begin_descent(key)));
        for (to, from) in probe.key.iter_mut().zip(key) {
            *to = *from;
        }
        probe.key_len = key.len().min(KEY_BYTES) as u8;
        probe
    }

    /// Looks at what was fetched, fetches what comes next; false when nothing is left.
    pub(crate) fn advance(&mut self, schema: &Schema, pin: Pin<'_>) -> bool {
        match find_index(schema, self.table, self.index) {
            Some(found) => self.look(found, pin).fetch(),
            None => self.next = Next::Nothing,
        }
        let is_under_way = self.next.is_something();
        if !is_under_way {
            self.fetch_rest();
        }
        is_under_way
    }

    /// Fetches what of a long row does not lie in its first lines, once; false if there is no such rest. For
    /// probes that were brought to their end together; [`REST_ROWS`] rows ahead of the lookup is the time, so
    /// that the row is there then and others are not yet pushed out of the cache. Costs next to nothing for
    /// rows that have no rest.
    #[inline]
    pub fn fetch_rest(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.rest_bytes) as usize;
        if bytes > 0 {
            prefetch_bytes(ptr::without_provenance::<u8>(self.rest), bytes);
        }
        bytes > 0
    }

    /// Brings many to their end, but for [`Probe::fetch_rest`]: looks at all that was fetched, then fetches
    /// all that comes next, back to back (`group.rs` says why), until nothing is left for any. True if one of
    /// them has a rest to fetch: where rows are short nobody needs to ask them again.
    pub(crate) fn finish_all<'p>(
        probes: impl IntoIterator<Item = &'p mut Probe>,
        schema: &Schema,
        pin: Pin<'_>,
    ) -> bool {
        let mut hashed: SmallVec<[Hashed<'_, '_>; PROBES_AT_HAND]> = SmallVec::new();
        let mut under_way: SmallVec<[UnderWay<'_, '_>; PROBES_AT_HAND]> = SmallVec::new();
        for probe in probes {
            if !probe.next.is_something() {
                continue;
            }
            let Some(found) = find_index(schema, probe.table, probe.index) else {
                probe.next = Next::Nothing;
                continue;
            };
            match (probe.next, &found.1.data.hash) {
                (Next::Hash(hash) | Next::Line(hash), Some(index)) => {
                    hashed.push(Hashed::new(probe, found.0, index, hash));
                }
                _ => under_way.push(UnderWay { probe, found }),
            }
        }
        // Both kinds go on together, a step of all at a time.
        let mut has_rest = UnderWay::advance_all(&mut under_way, pin);
        for block in hashed.chunks(BLOCK_PROBES) {
            let mut lines = [ptr::null(); BLOCK_PROBES];
            for (line, hashed) in lines.iter_mut().zip(block) {
                *line = hashed.index.line_address(hashed.hash);
            }
            lines.iter().take(block.len()).for_each(|line| prefetch(*line));
        }
        has_rest |= UnderWay::advance_all(&mut under_way, pin);
        for block in hashed.chunks_mut(BLOCK_PROBES) {
            fetch_of_each(block, |hashed| hashed.look_at_line());
        }
        has_rest |= UnderWay::advance_all(&mut under_way, pin);
        for block in hashed.chunks_mut(BLOCK_PROBES) {
            fetch_of_each(block, |hashed| hashed.look_at_slot(pin));
        }
        has_rest |= hashed.iter().any(|hashed| hashed.probe.rest_bytes > 0);
        while !under_way.is_empty() {
            has_rest |= UnderWay::advance_all(&mut under_way, pin);
        }
        has_rest
    }

    /// Looks at what was fetched; returns what to fetch next.
    #[inline(always)]
    fn look(&mut self, (table, index): Found<'_>, pin: Pin<'_>) -> Wanted {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Hash(hash) => self.want_line(index, hash),
            Next::Descent(descent) => self.want_node(descent),
            Next::Line(hash) => {
                let hashed = index.data.hash.as_ref();
                let slot = hashed.and_then(|hashed| hashed.first_candidate(hash));
                slot.map_or(Wanted::default(), |slot| self.want_slot(table, slot))
            }
            Next::Node(descent) => self.look_at_node((table, index), descent),
            Next::Slot => match table.core.slots.slot(self.slot) {
                Some(place) => self.look_at_slot(table, place, pin),
                None => Wanted::default(),
            },
            Next::Nothing => Wanted::default(),
        }
    }

    #[inline(always)]
    fn look_at_slot<'s>(&mut self, table: &'s TableData, place: Slot<'s>, pin: Pin<'s>) -> Wanted {
        match self.fetch.elsewhere(table, place, pin) {
            Some((address, bytes)) => Wanted {
                address,
                bytes: self.keep_rest(address, bytes),
                cell: ptr::null(),
            },
            None => Wanted::default(),
        }
    }

    fn look_at_node(&mut self, (table, index): Found<'_>, descent: Descent) -> Wanted {
        let Some(ordered) = &index.data.ordered else {
            return Wanted::default();
        };
        let key = self.key.get(..usize::from(self.key_len)).unwrap_or_default();
        match ordered.step(descent, key) {
            Step::Down(next) => self.want_node(next),
            Step::Entry(slot) => self.want_slot(table, slot),
            Step::Nothing => Wanted::default(),
        }
    }

    #[inline]
    fn want_line(&mut self, index: &TableIndex, hash: u64) -> Wanted {
        self.next = Next::Line(hash);
        index
            .data
            .hash
            .as_ref()
            .map_or(Wanted::default(), |index| Wanted {
                address: index.line_address(hash).cast(),
                bytes: LINE_BYTES,
                cell: ptr::null(),
            })
    }

    #[inline]
    fn want_node(&mut self, descent: Descent) -> Wanted {
        self.next = Next::Node(descent);
        let (address, bytes) = descent.address();
        Wanted {
            address,
            bytes,
            cell: ptr::null(),
        }
    }

    /// How much of so many bytes is fetched at once; what is left is kept for later.
    #[inline]
    fn keep_rest(&mut self, address: *const u8, bytes: usize) -> usize {
        let head = bytes.min(HEAD_BYTES);
        self.rest = address.addr().wrapping_add(head);
        self.rest_bytes = u32::try_from(bytes - head).unwrap_or(u32::MAX);
        head
    }

    #[inline]
    fn want_slot(&mut self, table: &TableData, slot: SlotId) -> Wanted {
        let Some(place) = table.core.slots.slot(slot) else {
            return Wanted::default();
        };
        self.next = Next::Slot;
        self.want_place(table, slot, place)
    }

    #[inline(always)]
    fn want_place(&mut self, table: &TableData, slot: SlotId, place: Slot<'_>) -> Wanted {
        self.slot = slot;
        Wanted {
            address: place.address(),
            bytes: self.keep_rest(place.address(), self.fetch.slot_bytes(place)),
            cell: self.fetch.cell_address(table, place).unwrap_or(ptr::null()),
        }
    }
}

/// A table and an index of it.
type Found<'s> = (&'s TableData, &'s TableIndex);

/// Probes that [`Probe::finish_all`] takes without memory from elsewhere.
const PROBES_AT_HAND: usize = 64;

/// A probe on its way with others.
struct UnderWay<'p, 's> {
    probe: &'p mut Probe,
    found: Found<'s>,
}

impl UnderWay<'_, '_> {
    /// Takes all a step further; those that are at their end then leave. True if one of these has a rest to
    /// fetch.
    fn advance_all(all: &mut SmallVec<[Self; PROBES_AT_HAND]>, pin: Pin<'_>) -> bool {
        let (mut ended, mut has_rest) = (false, false);
        for block in all.chunks_mut(BLOCK_PROBES) {
            fetch_of_each(block, |UnderWay { probe, found }| probe.look(*found, pin));
        }
        for UnderWay { probe, .. } in &*all {
            let goes_on = probe.next.is_something();
            ended |= !goes_on;
            has_rest |= !goes_on && probe.rest_bytes > 0;
        }
        if ended {
            all.retain(|UnderWay { probe, .. }| probe.next.is_something());
        }
        has_rest
    }
}

/// A probe of a hash index on its way with others: three steps, the same for all.
struct Hashed<'p, 's> {
    probe: &'p mut Probe,
    table: &'s TableData,
    index: &'s HashIndex,
    hash: u64,
    /// Where the line led.
    place: Option<Slot<'s>>,
}

impl<'p, 's> Hashed<'p, 's> {
    /// At its end, as far as the probe itself knows.
    #[inline(always)]
    fn new(probe: &'p mut Probe, table: &'s TableData, index: &'s HashIndex, hash: u64) -> Self {
        probe.next = Next::Nothing;
        Hashed {
            probe,
            table,
            index,
            hash,
            place: None,
        }
    }

    #[inline(always)]
    fn look_at_line(&mut self) -> Wanted {
        let Some(slot) = self.index.first_candidate(self.hash) else {
            return Wanted::default();
        };
        self.place = self.table.core.slots.slot(slot);
        match self.place {
            Some(place) => self.probe.want_place(self.table, slot, place),
            None => Wanted::default(),
        }
    }

    #[inline(always)]
    fn look_at_slot(&mut self, pin: Pin<'s>) -> Wanted {
        match self.place {
            Some(place) => self.probe.look_at_slot(self.table, place, pin),
            None => Wanted::default(),
        }
    }
}

/// Asks all of a block what to fetch, then fetches it back to back.
#[inline(always)]
fn fetch_of_each<T>(block: &mut [T], mut look: impl FnMut(&mut T) -> Wanted) {
    let mut wanted = [Wanted::default(); BLOCK_PROBES];
    for (wanted, member) in wanted.iter_mut().zip(block.iter_mut()) {
        *wanted = look(member);
    }
    wanted.iter().take(block.len()).for_each(Wanted::fetch);
}

#[inline]
fn find_index(schema: &Schema, table: TableId, index: IndexId) -> Option<Found<'_>> {
    let table = schema.tables.get(&table)?;
    Some((table, table.index(index).ok()?))
}

/// What a probe asks for: bytes, and the line of a cell.
#[derive(Clone, Copy)]
struct Wanted {
    address: *const u8,
    bytes: usize,
    cell: *const u8,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            address: ptr::null(),
            bytes: 0,
            cell: ptr::null(),
        }
    }
}

impl Wanted {
    #[inline(always)]
    fn fetch(&self) {
        if self.bytes > 0 {
            prefetch_bytes(self.address, self.bytes);
        }
        if !self.cell.is_null() {
            prefetch(self.cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CatalogOp, ColumnDef, IndexDef, IndexMethod, Store, TableDef};
    use weft_base::BatchId;
    use weft_types::{SqlType, Value, encode_key_value};

    const TABLE: TableId = TableId(crate::FIRST_OBJECT_ID);
    const HASHED: IndexId = IndexId(TABLE.0 + 1);
    const ORDERED: IndexId = IndexId(TABLE.0 + 2);

    /// Those that come to their end together lead where one leads that goes alone; and where there is no row,
    /// nowhere.
    #[test]
    fn probes_lead_to_their_rows_together_and_alone() {
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
        let plan = |a: i64, index| {
            let mut key = Vec::new();
            encode_key_value(&mut key, &Value::Int8(a));
            view.plan_probe(TABLE, index, &key)
        };
        for count in [1, 15, 16, 17, 50, 190] {
            // Row 0 has the number that a probe has which led nowhere.
            let all = (1..=count).flat_map(|a| [(a, HASHED), (a, ORDERED), (a + 10_000, HASHED)]);
            let mut probes: Vec<Probe> = all.clone().map(|(a, index)| plan(a, index)).collect();
            view.finish_probes(&mut probes);
            for ((a, index), mut together) in all.zip(probes) {
                let mut alone = plan(a, index);
                while view.advance_probe(&mut alone) {}
                assert_eq!(together.slot(), alone.slot(), "{a} by {index:?}");
                assert_eq!(together.slot() != SlotId(0), a < 10_000, "{a} by {index:?}");
                assert!(!view.advance_probe(&mut together), "at its end");
            }
        }
    }
}
