//! Prefetching for one lookup: what it will access is prefetched step by step, so that a caller can keep many
//! lookups in flight.
//!
//! ```text
//!   begin_probe(key)   hash the key, prefetch the index's line; in an ordered index, descend through the
//!                      nodes that are in the cache, prefetch the next one
//!   advance_probe      read that node, prefetch the leaf (ordered only)
//!   advance_probe      read line or leaf, prefetch the first candidate's slot, which usually holds its
//!                      row
//!   advance_probe      read the slot, prefetch the row if it is elsewhere, or one column of it
//!   lookup(key)        finds everything in the cache
//! ```
//!
//! For a caller that does something else between two steps. A caller that knows many keys at once plans their
//! lookups together ([`crate::LookupPlan`]). Source: BionicDB, sections 4.4 and 4.5 (pipelined indexes), in
//! software as asynchronous memory access chaining (Kocberber et al., 2015).
//!
//! A probe never changes what a lookup finds and never fails: it holds numbers, not pointers, so a probe that
//! is outdated, or used with another view, only prefetches the wrong lines.

use weft_base::memory::prefetch;
use weft_base::{IndexId, TableId};
use weft_ops::hash64;

use crate::index::ordered::{Descent, OrderedIndex, Step};
use crate::memory::{Pin, SlotId};
use crate::prefetch::{Fetch, FetchExtent, PrefetchList, RowPrefetch, fetch_of_one};
use crate::table::{Schema, TableData, TableIndex};

/// Bytes of a key that a probe keeps for its descent of an ordered index. The probe of a longer key leads to
/// where its first bytes are.
const KEY_BYTES: usize = 31;

/// The prefetch state of one lookup. Small and without a lifetime, so that it can be kept in reused memory.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    table: TableId,
    index: IndexId,
    part: FetchExtent,
    row: RowPrefetch,
    next: Next,
    /// For ordered indexes.
    key: [u8; KEY_BYTES],
    key_len: u8,
}

/// What has been prefetched and is read next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The line of this hash.
    Line(u64),
    /// Nothing has been prefetched yet: this node is next.
    Descent(Descent),
    Node(Descent),
    Slot,
    Nothing,
}

impl Probe {
    /// Prefetches this part of the row instead of its first line.
    #[must_use]
    #[inline(always)]
    pub fn with_fetch(mut self, fetch: Fetch) -> Self {
        self.part = fetch.into();
        self
    }

    /// Where the key's row may be; undefined before the probe is complete.
    pub(crate) fn slot(&self) -> SlotId {
        self.row.slot
    }

    /// The prefetch state of its row.
    pub(crate) fn row(&self) -> RowPrefetch {
        self.row
    }

    /// True if it is not complete.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.next, Next::Nothing)
    }

    /// Prefetches what the lookup accesses first. Construct it in place: it is larger than what it is made
    /// of.
    #[inline(always)]
    pub(crate) fn begin(schema: &Schema, table: TableId, index: IndexId, key: &[u8]) -> Self {
        let Some(found) = find_index(schema, table, index) else {
            return Probe::new(table, index, Next::Nothing);
        };
        match (&found.1.data.hash, &found.1.data.ordered) {
            (Some(hashed), _) => {
                let hash = hash64(key);
                prefetch(hashed.line_address(hash));
                Probe::new(table, index, Next::Line(hash))
            }
            (None, Some(ordered)) => Probe::down(table, index, ordered, key).begun(),
            (None, None) => Probe::new(table, index, Next::Nothing),
        }
    }

    /// The same for the beginning of a range.
    pub(crate) fn begin_range(schema: &Schema, table: TableId, index: IndexId, lowest: &[u8]) -> Self {
        let found = find_index(schema, table, index);
        match found.and_then(|(_, index)| index.data.ordered.as_ref()) {
            Some(ordered) => Probe::down(table, index, ordered, lowest).begun(),
            None => Probe::new(table, index, Next::Nothing),
        }
    }

    #[inline(always)]
    fn new(table: TableId, index: IndexId, next: Next) -> Self {
        Probe {
            table,
            index,
            part: Fetch::Bytes(0).into(),
            row: RowPrefetch::NOWHERE,
            next,
            key: [0; KEY_BYTES],
            key_len: 0,
        }
    }

    /// A probe that descends an ordered index. Prefetches nothing before it is advanced.
    pub(crate) fn down(table: TableId, index: IndexId, ordered: &OrderedIndex, key: &[u8]) -> Self {
        let mut probe = Probe::new(table, index, Next::Descent(ordered.begin_descent(key)));
        let len = key.len().min(KEY_BYTES);
        if let (Some(to), Some(from)) = (probe.key.get_mut(..len), key.get(..len)) {
            to.copy_from_slice(from);
        }
        probe.key_len = len as u8;
        probe
    }

    /// Issues its first prefetch.
    fn begun(mut self) -> Self {
        if let Next::Descent(descent) = self.next {
            fetch_of_one(|list| self.want_node(descent, list));
        }
        self
    }

    /// Reads what was prefetched and prefetches what comes next; false if nothing is left.
    pub(crate) fn advance(&mut self, schema: &Schema, pin: Pin<'_>) -> bool {
        match find_index(schema, self.table, self.index) {
            Some(found) => fetch_of_one(|list| self.look(found, pin, list)),
            None => self.next = Next::Nothing,
        }
        let is_under_way = self.is_under_way();
        if !is_under_way {
            self.row.fetch_rest();
        }
        is_under_way
    }

    /// Reads what was prefetched; requests what comes next.
    #[inline(always)]
    pub(crate) fn look(&mut self, (table, index): Found<'_>, pin: Pin<'_>, list: &mut PrefetchList<'_>) {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Descent(descent) => self.want_node(descent, list),
            Next::Line(hash) => {
                let hashed = index.data.hash.as_ref();
                if let Some(slot) = hashed.and_then(|hashed| hashed.first_candidate(hash)) {
                    self.want_slot(table, slot, list);
                }
            }
            Next::Node(descent) => self.look_at_node((table, index), descent, list),
            Next::Slot => {
                if let Some(place) = table.core.slots.resident(self.row.slot) {
                    self.row.look_at_slot((table, self.part), place, pin, list);
                }
            }
            Next::Nothing => {}
        }
    }

    fn look_at_node(&mut self, (table, index): Found<'_>, descent: Descent, list: &mut PrefetchList<'_>) {
        let Some(ordered) = &index.data.ordered else {
            return;
        };
        let key = self.key.get(..usize::from(self.key_len)).unwrap_or_default();
        match ordered.step(descent, key) {
            Step::Down(next) => self.want_node(next, list),
            Step::Entry(slot) => self.want_slot(table, slot, list),
            Step::Nothing => {}
        }
    }

    #[inline]
    fn want_node(&mut self, descent: Descent, list: &mut PrefetchList<'_>) {
        self.next = Next::Node(descent);
        let (address, bytes) = descent.address();
        list.push(address, bytes);
    }

    #[inline]
    fn want_slot(&mut self, table: &TableData, slot: SlotId, list: &mut PrefetchList<'_>) {
        if let Some(place) = table.core.slots.resident(slot) {
            self.next = Next::Slot;
            self.row.want_place((table, self.part), (slot, place), list);
        }
    }
}

/// A table and an index of it.
pub(crate) type Found<'s> = (&'s TableData, &'s TableIndex);

#[inline]
pub(crate) fn find_index(schema: &Schema, table: TableId, index: IndexId) -> Option<Found<'_>> {
    let table = schema.tables.get(&table)?;
    Some((table, table.index(index).ok()?))
}
