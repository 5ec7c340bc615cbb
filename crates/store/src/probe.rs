//! Hints ahead of a lookup: what it will touch is fetched step by step, so that a caller can keep many
//! lookups in flight.
//!
//! ```text
//!   begin_probe(key)   hash the key, fetch the index's line
//!   advance_probe      look at that line, fetch the first candidate's slot, in which its row lies as a rule
//!   advance_probe      look at the slot, fetch the row if it lies elsewhere, or one column of it
//!   lookup(key)        finds everything in the cache
//! ```
//!
//! A caller begins 16 to 32 probes, advances each in turn, then looks the keys up one by one: the waits for
//! memory overlap. Source: BionicDB, sections 4.4 and 4.5 (pipelined indexes), in software as asynchronous
//! memory access chaining (Kocberber et al., 2015).
//!
//! A probe never changes what a lookup finds and never fails: it holds numbers and no pointers, so one that
//! outlives a change, or that is used with another view, only fetches the wrong lines.

use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};
use weft_base::{IndexId, TableId};
use weft_ops::hash64;

use crate::memory::{Pin, SLOT_OVERHEAD, Slot, SlotId};
use crate::table::{Schema, TableData};

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
    hash: u64,
    slot: SlotId,
    fetch: Fetch,
    next: Next,
}

/// What has been fetched, and is looked at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Index,
    Slot,
    Nothing,
}

impl Probe {
    /// Fetches this of the row instead of its first line.
    #[must_use]
    pub fn with_fetch(self, fetch: Fetch) -> Self {
        Probe { fetch, ..self }
    }

    /// Fetches this many bytes of the row, from its beginning, instead of its first line.
    #[must_use]
    pub fn with_row_bytes(self, row_bytes: u32) -> Self {
        self.with_fetch(Fetch::Bytes(row_bytes))
    }

    pub(crate) fn begin(schema: &Schema, table: TableId, index: IndexId, key: &[u8]) -> Self {
        let mut probe = Probe {
            table,
            index,
            hash: 0,
            slot: SlotId(0),
            fetch: Fetch::Bytes(0),
            next: Next::Nothing,
        };
        let data = schema
            .tables
            .get(&table)
            .and_then(|table| table.index(index).ok());
        if let Some(hash) = data.and_then(|index| index.data.hash.as_ref()) {
            probe.hash = hash64(key);
            prefetch(hash.line_address(probe.hash));
            probe.next = Next::Index;
        }
        probe
    }

    /// Looks at what was fetched, fetches what comes next; false when nothing is left.
    pub(crate) fn advance(&mut self, schema: &Schema, pin: Pin<'_>) -> bool {
        let stage = std::mem::replace(&mut self.next, Next::Nothing);
        let Some(table) = schema.tables.get(&self.table) else {
            return false;
        };
        match stage {
            Next::Index => {
                let hash = table
                    .index(self.index)
                    .ok()
                    .and_then(|index| index.data.hash.as_ref());
                let Some(slot) = hash.and_then(|index| index.first_candidate(self.hash)) else {
                    return false;
                };
                let Some(place) = table.core.slots.slot(slot) else {
                    return false;
                };
                prefetch_bytes(place.address(), self.fetch.slot_bytes(place));
                if let Some(cell) = self.fetch.cell_address(table, place) {
                    prefetch(cell);
                }
                self.slot = slot;
                self.next = Next::Slot;
                true
            }
            Next::Slot => {
                if let Some(place) = table.core.slots.slot(self.slot)
                    && let Some((address, bytes)) = self.fetch.elsewhere(table, place, pin)
                {
                    prefetch_bytes(address, bytes);
                }
                false
            }
            Next::Nothing => false,
        }
    }
}
