//! Hints ahead of a lookup: what it will touch is fetched step by step, so that a caller can keep many
//! lookups in flight.
//!
//! ```text
//!   begin_probe(key)   hash the key, fetch the index's line
//!   advance_probe      look at that line, fetch the first candidate's slot, in which its row lies as a rule
//!   advance_probe      look at the slot, fetch the row if it lies elsewhere
//!   lookup(key)        finds everything in the cache
//! ```
//!
//! A caller begins 16 to 32 probes, advances each in turn, then looks the keys up one by one: the waits for
//! memory overlap. Source: BionicDB, sections 4.4 and 4.5 (pipelined indexes), in software as asynchronous
//! memory access chaining (Kocberber et al., 2015).
//!
//! A probe never changes what a lookup finds and never fails: it holds numbers and no pointers, so one that
//! outlives a change, or that is used with another view, only fetches the wrong lines.

use weft_base::memory::{LINE_BYTES, prefetch_bytes};
use weft_base::{IndexId, TableId};
use weft_ops::hash64;

use crate::memory::{Slot, SlotId};
use crate::table::Schema;

/// How much of a row a probe fetches unless told otherwise.
const ROW_BYTES_DEFAULT: u32 = LINE_BYTES as u32;
/// What stands before a row in its slot.
const ROW_OVERHEAD: usize = 48;

/// A lookup on its way into the cache. Small and without a lifetime, so that it may lie in a reused block.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    table: TableId,
    index: IndexId,
    hash: u64,
    slot: SlotId,
    row_bytes: u32,
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
    /// Fetches this many bytes of the row, from its beginning, instead of its first line.
    #[must_use]
    pub fn with_row_bytes(self, row_bytes: u32) -> Self {
        Probe { row_bytes, ..self }
    }

    pub(crate) fn begin(schema: &Schema, table: TableId, index: IndexId, key: &[u8]) -> Self {
        let mut probe = Probe {
            table,
            index,
            hash: 0,
            slot: SlotId(0),
            row_bytes: ROW_BYTES_DEFAULT,
            next: Next::Nothing,
        };
        let data = schema
            .tables
            .get(&table)
            .and_then(|table| table.index(index).ok());
        if data.is_some_and(|index| index.data.hash.is_some()) {
            probe.hash = hash64(key);
            probe.next = Next::Index;
        }
        probe
    }

    /// Looks at what was fetched, fetches what comes next; false when nothing is left.
    pub(crate) fn advance(&mut self, schema: &Schema) -> bool {
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
                let bytes = place.size_bytes().min(ROW_OVERHEAD + self.row_bytes as usize);
                prefetch_bytes(place.address(), bytes);
                self.slot = slot;
                self.next = Next::Slot;
                true
            }
            Next::Slot => {
                let place = table.core.slots.slot(self.slot);
                if let Some(elsewhere) = place.and_then(Slot::newest_elsewhere) {
                    prefetch_bytes(elsewhere, ROW_OVERHEAD + self.row_bytes as usize);
                }
                false
            }
            Next::Nothing => false,
        }
    }
}
