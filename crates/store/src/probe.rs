//! Hints ahead of a lookup: what it will touch is fetched step by step, so that a caller can keep many
//! lookups in flight.
//!
//! ```text
//!   begin_probe(key)   hash the key, fetch the index's line; in an ordered index, go down through the nodes
//!                      that are in the cache, fetch the next one
//!   advance_probe      look at that node, fetch the leaf (ordered only)
//!   advance_probe      look at line or leaf, fetch the first candidate's slot, in which its row lies, as a
//!                      rule
//!   advance_probe      look at the slot, fetch the row if it lies elsewhere, or one column of it
//!   lookup(key)        finds everything in the cache
//! ```
//!
//! For a caller that turns to something else between two steps. Who knows many keys at once brings their
//! lookups to the rows together ([`crate::LookupPlan`]). Source: BionicDB, sections 4.4 and 4.5 (pipelined
//! indexes), in software as asynchronous memory access chaining (Kocberber et al., 2015).
//!
//! A probe never changes what a lookup finds and never fails: it holds numbers and no pointers, so one that
//! outlives a change, or that is used with another view, only fetches the wrong lines.

use weft_base::memory::prefetch;
use weft_base::{IndexId, TableId};
use weft_ops::hash64;

use crate::fetch::{Fetch, RowAhead, RowPart, Wanted, fetch_of_one};
use crate::index::ordered::{Descent, OrderedIndex, Step};
use crate::memory::{Pin, SlotId};
use crate::table::{Schema, TableData, TableIndex};

/// Bytes of a key that a probe keeps for its way down an ordered index. A longer key's probe leads to where
/// its beginning stands.
const KEY_BYTES: usize = 31;

/// A lookup on its way into the cache. Small and without a lifetime, so that it may lie in a reused block.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    table: TableId,
    index: IndexId,
    part: RowPart,
    row: RowAhead,
    next: Next,
    /// For ordered indexes.
    key: [u8; KEY_BYTES],
    key_len: u8,
}

/// What has been fetched, and is looked at next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The line of this hash.
    Line(u64),
    /// Nothing has been fetched yet: this node is to be.
    Descent(Descent),
    Node(Descent),
    Slot,
    Nothing,
}

impl Probe {
    /// Fetches this of the row instead of its first line.
    #[must_use]
    #[inline(always)]
    pub fn with_fetch(mut self, fetch: Fetch) -> Self {
        self.part = fetch.into();
        self
    }

    /// Where the key's row may be; anything before the probe is through.
    pub(crate) fn slot(&self) -> SlotId {
        self.row.slot
    }

    /// What is known of its row.
    pub(crate) fn row(&self) -> RowAhead {
        self.row
    }

    /// It is not at its end.
    pub(crate) fn is_under_way(&self) -> bool {
        !matches!(self.next, Next::Nothing)
    }

    /// Fetches what the lookup will touch first. Made at once, and so where it is to lie: it is larger than
    /// what it is made of.
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

    /// The same for where a range begins.
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
            row: RowAhead::NOWHERE,
            next,
            key: [0; KEY_BYTES],
            key_len: 0,
        }
    }

    /// A probe that goes down an ordered index. Fetches nothing before it is advanced.
    pub(crate) fn down(table: TableId, index: IndexId, ordered: &OrderedIndex, key: &[u8]) -> Self {
        let mut probe = Probe::new(table, index, Next::Descent(ordered.begin_descent(key)));
        let len = key.len().min(KEY_BYTES);
        if let (Some(to), Some(from)) = (probe.key.get_mut(..len), key.get(..len)) {
            to.copy_from_slice(from);
        }
        probe.key_len = len as u8;
        probe
    }

    /// Its first fetch asked for.
    fn begun(mut self) -> Self {
        if let Next::Descent(descent) = self.next {
            fetch_of_one(|wanted| self.want_node(descent, wanted));
        }
        self
    }

    /// Looks at what was fetched, fetches what comes next; false when nothing is left.
    pub(crate) fn advance(&mut self, schema: &Schema, pin: Pin<'_>) -> bool {
        match find_index(schema, self.table, self.index) {
            Some(found) => fetch_of_one(|wanted| self.look(found, pin, wanted)),
            None => self.next = Next::Nothing,
        }
        let is_under_way = self.is_under_way();
        if !is_under_way {
            self.row.fetch_rest();
        }
        is_under_way
    }

    /// Looks at what was fetched; asks for what comes next.
    #[inline(always)]
    pub(crate) fn look(&mut self, (table, index): Found<'_>, pin: Pin<'_>, wanted: &mut Wanted<'_>) {
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Descent(descent) => self.want_node(descent, wanted),
            Next::Line(hash) => {
                let hashed = index.data.hash.as_ref();
                if let Some(slot) = hashed.and_then(|hashed| hashed.first_candidate(hash)) {
                    self.want_slot(table, slot, wanted);
                }
            }
            Next::Node(descent) => self.look_at_node((table, index), descent, wanted),
            Next::Slot => {
                if let Some(place) = table.core.slots.slot(self.row.slot) {
                    self.row.look_at_slot((table, self.part), place, pin, wanted);
                }
            }
            Next::Nothing => {}
        }
    }

    fn look_at_node(&mut self, (table, index): Found<'_>, descent: Descent, wanted: &mut Wanted<'_>) {
        let Some(ordered) = &index.data.ordered else {
            return;
        };
        let key = self.key.get(..usize::from(self.key_len)).unwrap_or_default();
        match ordered.step(descent, key) {
            Step::Down(next) => self.want_node(next, wanted),
            Step::Entry(slot) => self.want_slot(table, slot, wanted),
            Step::Nothing => {}
        }
    }

    #[inline]
    fn want_node(&mut self, descent: Descent, wanted: &mut Wanted<'_>) {
        self.next = Next::Node(descent);
        let (address, bytes) = descent.address();
        wanted.push(address, bytes);
    }

    #[inline]
    fn want_slot(&mut self, table: &TableData, slot: SlotId, wanted: &mut Wanted<'_>) {
        if let Some(place) = table.core.slots.slot(slot) {
            self.next = Next::Slot;
            self.row.want_place((table, self.part), (slot, place), wanted);
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
