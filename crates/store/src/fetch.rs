//! What of a row is fetched ahead of who looks at it, and where that lies.
//!
//! Rows of many lines are fetched in two parts: the first lines with the slot, the rest some rows ahead of
//! the lookup, while rows fetched before are copied; that part is bound by bandwidth, not by latency.

use std::{ptr, slice};

use weft_base::memory::{LINE_BYTES, prefetch_bytes};

use crate::memory::{Pin, SLOT_OVERHEAD, Slot, SlotId};
use crate::table::TableData;

/// Lookups whose fetches are asked for back to back.
pub(crate) const BLOCK_LOOKUPS: usize = 16;
/// How much of a row is fetched with its slot; what is longer comes with [`RowAhead::fetch_rest`].
const HEAD_BYTES: usize = 4 * LINE_BYTES;
/// How many rows ahead of the present one the rest of a long row is fetched: its lines and those between fill
/// what a core has under way.
pub(crate) const REST_ROWS: usize = 4;
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

/// A [`Fetch`] as the steps of a lookup need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPart {
    /// From the slot's beginning; a line at least.
    slot_bytes: u32,
    column: Option<u32>,
}

impl From<Fetch> for RowPart {
    fn from(fetch: Fetch) -> Self {
        let (row_bytes, column) = match fetch {
            Fetch::Bytes(bytes) => (bytes, None),
            Fetch::Column(column) => (0, Some(column)),
        };
        RowPart {
            slot_bytes: row_bytes
                .saturating_add(SLOT_OVERHEAD as u32)
                .max(LINE_BYTES as u32),
            column,
        }
    }
}

impl RowPart {
    /// There is a column to fetch.
    pub(crate) fn has_column(self) -> bool {
        self.column.is_some()
    }

    /// How much of a slot to fetch from its beginning.
    #[inline(always)]
    fn bytes_of(self, place: Slot<'_>) -> usize {
        place.size_bytes().min(self.slot_bytes as usize)
    }

    /// The column's cell, if the row lies at home.
    #[inline(always)]
    fn cell_address(self, table: &TableData, place: Slot<'_>) -> Option<*const u8> {
        let offset = table.layout().cell_offset(self.column? as usize)?;
        Some(place.address().wrapping_add(SLOT_OVERHEAD + offset))
    }

    /// Looks at a slot that was fetched: what to fetch next, and how much of it, if not all lies there. The
    /// length of a version elsewhere is not known before its header has come; a line too many costs little.
    #[inline(always)]
    fn elsewhere<'s>(
        self,
        table: &'s TableData,
        place: Slot<'s>,
        pin: Pin<'s>,
    ) -> Option<(*const u8, usize)> {
        if let Some(elsewhere) = place.newest_elsewhere() {
            return Some((elsewhere, self.bytes_of(place)));
        }
        let column = self.column? as usize;
        let value = table.layout().raw(place.at(pin)?.bytes(), column)?;
        Some((value.as_ptr(), value.len().min(VALUE_BYTES_MAX)))
    }
}

/// Where a lookup's row may be, and what of it is still to be fetched. It holds numbers and no pointers: what
/// they say of a row that has gone only fetches the wrong lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAhead {
    pub(crate) slot: SlotId,
    /// Where the part of the row lies that was not fetched yet, and how long it is.
    rest: usize,
    rest_bytes: u32,
}

impl RowAhead {
    /// Of a lookup that has led nowhere yet.
    pub(crate) const NOWHERE: RowAhead = RowAhead {
        slot: SlotId(0),
        rest: 0,
        rest_bytes: 0,
    };

    /// Bytes of the row beyond those that were fetched.
    #[inline(always)]
    pub(crate) fn rest_bytes(&self) -> u32 {
        self.rest_bytes
    }

    /// Fetches what of a long row does not lie in its first lines, once.
    #[inline]
    pub(crate) fn fetch_rest(&mut self) {
        let bytes = std::mem::take(&mut self.rest_bytes) as usize;
        if bytes > 0 {
            prefetch_bytes(ptr::without_provenance::<u8>(self.rest), bytes);
        }
    }

    /// Asks for the first of so many bytes; what is left is kept for later.
    #[inline(always)]
    fn want_head(&mut self, address: *const u8, bytes: usize, wanted: &mut Wanted<'_>) {
        let head = bytes.min(HEAD_BYTES);
        self.rest = address.addr().wrapping_add(head);
        // Of a slot or of a value's part, both far below 4 GB.
        self.rest_bytes = (bytes - head) as u32;
        wanted.push(address, head);
    }

    /// The row is in this slot: asks for what is to be fetched there.
    #[inline(always)]
    pub(crate) fn want_place(
        &mut self,
        (table, part): (&TableData, RowPart),
        (slot, place): (SlotId, Slot<'_>),
        wanted: &mut Wanted<'_>,
    ) {
        self.slot = slot;
        self.want_head(place.address(), part.bytes_of(place), wanted);
        if let Some(cell) = part.cell_address(table, place) {
            wanted.push(cell, 1);
        }
    }

    /// The slot has been fetched: asks for what is to be fetched of a row that lies elsewhere.
    #[inline(always)]
    pub(crate) fn look_at_slot<'s>(
        &mut self,
        (table, part): (&'s TableData, RowPart),
        place: Slot<'s>,
        pin: Pin<'s>,
        wanted: &mut Wanted<'_>,
    ) {
        if let Some((address, bytes)) = part.elsewhere(table, place, pin) {
            self.want_head(address, bytes, wanted);
        }
    }
}

/// What lookups ask for: addresses, and how many bytes there.
pub(crate) struct Wanted<'w> {
    free: slice::IterMut<'w, Bytes>,
}

/// An address and a length.
type Bytes = (*const u8, usize);

/// What one lookup may ask for in a step: bytes, and the line of a cell.
const LOOKUP_PARTS: usize = 2;

impl Wanted<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, address: *const u8, bytes: usize) {
        if let Some(part) = self.free.next() {
            *part = (address, bytes);
        }
    }
}

/// Asks a lookup what to fetch, and fetches it.
#[inline(always)]
pub(crate) fn fetch_of_one(look: impl FnOnce(&mut Wanted<'_>)) {
    fetch_together(&mut [(ptr::null(), 0); LOOKUP_PARTS], look);
}

/// Asks all members what to fetch, and fetches it back to back, block by block (`lookup_plan.rs` says why).
#[inline(always)]
pub(crate) fn fetch_of_each<T>(members: &mut [T], mut look: impl FnMut(&mut T, &mut Wanted<'_>)) {
    let mut parts = [(ptr::null(), 0); BLOCK_LOOKUPS * LOOKUP_PARTS];
    for block in members.chunks_mut(BLOCK_LOOKUPS) {
        fetch_together(&mut parts, |wanted| {
            block.iter_mut().for_each(|member| look(member, wanted));
        });
    }
}

#[inline(always)]
fn fetch_together(parts: &mut [Bytes], ask: impl FnOnce(&mut Wanted<'_>)) {
    let mut wanted = Wanted {
        free: parts.iter_mut(),
    };
    ask(&mut wanted);
    let free = wanted.free.len();
    let asked = parts.len() - free;
    for (address, bytes) in parts.iter().take(asked) {
        prefetch_bytes(*address, *bytes);
    }
}
