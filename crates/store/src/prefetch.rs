//! Which part of a row is prefetched, and where it is.
//!
//! Rows of many cache lines are prefetched in two parts: the first lines together with the slot, the tail
//! some rows ahead of the lookup, while rows prefetched earlier are copied; that part is bound by bandwidth,
//! not by latency.

use std::{ptr, slice};

use weft_base::memory::{LINE_BYTES, prefetch_bytes};

use crate::memory::{Pin, SLOT_OVERHEAD, Slot, SlotId};
use crate::table::TableData;

/// Lookups whose prefetches are issued back to back.
pub(crate) const BLOCK_LOOKUPS: usize = 16;
/// How much of a row is prefetched with its slot; the rest follows with [`RowPrefetch::fetch_rest`].
const HEAD_BYTES: usize = 4 * LINE_BYTES;
/// How many rows ahead of the current one the tail of a long row is prefetched: its lines and those in
/// between are as many as a core can have in flight.
pub(crate) const REST_ROWS: usize = 4;
/// How much of one value is prefetched.
const VALUE_BYTES_MAX: usize = 2 * LINE_BYTES;

/// Which part of a row is prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// Its first bytes, so many; the slot's first line at least. `u32::MAX` for all of it.
    Bytes(u32),
    /// The first line and the line of this column's cell; then, for a variable column, at most 128 bytes of
    /// its value.
    Column(u32),
}

/// A [`Fetch`] as the steps of a lookup need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchExtent {
    /// From the beginning of the slot; at least a line.
    slot_bytes: u32,
    column: Option<u32>,
}

impl From<Fetch> for FetchExtent {
    fn from(fetch: Fetch) -> Self {
        let (row_bytes, column) = match fetch {
            Fetch::Bytes(bytes) => (bytes, None),
            Fetch::Column(column) => (0, Some(column)),
        };
        FetchExtent {
            slot_bytes: row_bytes
                .saturating_add(SLOT_OVERHEAD as u32)
                .max(LINE_BYTES as u32),
            column,
        }
    }
}

impl FetchExtent {
    /// There is a column to fetch.
    pub(crate) fn has_column(self) -> bool {
        self.column.is_some()
    }

    /// How much of a slot to prefetch from its beginning.
    #[inline(always)]
    fn bytes_of(self, place: Slot<'_>) -> usize {
        place.size_bytes().min(self.slot_bytes as usize)
    }

    /// The column's cell, if the row is stored inline.
    #[inline(always)]
    fn cell_address(self, table: &TableData, place: Slot<'_>) -> Option<*const u8> {
        let offset = table.layout().cell_offset(self.column? as usize)?;
        Some(place.address().wrapping_add(SLOT_OVERHEAD + offset))
    }

    /// Looks at a prefetched slot: what to prefetch next, and how much, if not everything is there. The
    /// length of a version in a block is not known before its header has arrived; one line too many costs
    /// little.
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

/// Where a lookup's row may be, and what of it is still to be prefetched. It holds numbers, not pointers: if
/// the row is gone, it only prefetches the wrong lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPrefetch {
    pub(crate) slot: SlotId,
    /// Address and length of the part that was not prefetched yet.
    rest: usize,
    rest_bytes: u32,
}

impl RowPrefetch {
    /// For a lookup that has found nothing yet.
    pub(crate) const NOWHERE: RowPrefetch = RowPrefetch {
        slot: SlotId(0),
        rest: 0,
        rest_bytes: 0,
    };

    /// Bytes of the row beyond those that were prefetched.
    #[inline(always)]
    pub(crate) fn rest_bytes(&self) -> u32 {
        self.rest_bytes
    }

    /// Prefetches the tail of a long row, once.
    #[inline]
    pub(crate) fn fetch_rest(&mut self) {
        let bytes = std::mem::take(&mut self.rest_bytes) as usize;
        if bytes > 0 {
            prefetch_bytes(ptr::without_provenance::<u8>(self.rest), bytes);
        }
    }

    /// Requests the first of these bytes; the rest is kept for later.
    #[inline(always)]
    fn want_head(&mut self, address: *const u8, bytes: usize, list: &mut PrefetchList<'_>) {
        let head = bytes.min(HEAD_BYTES);
        self.rest = address.addr().wrapping_add(head);
        // Of a slot or a part of a value, both far below 4 GB.
        self.rest_bytes = (bytes - head) as u32;
        list.push(address, head);
    }

    /// The row is in this slot: requests what is to be prefetched there.
    #[inline(always)]
    pub(crate) fn want_place(
        &mut self,
        (table, part): (&TableData, FetchExtent),
        (slot, place): (SlotId, Slot<'_>),
        list: &mut PrefetchList<'_>,
    ) {
        self.slot = slot;
        self.want_head(place.address(), part.bytes_of(place), list);
        if let Some(cell) = part.cell_address(table, place) {
            list.push(cell, 1);
        }
    }

    /// The slot has been prefetched: requests what is to be prefetched of a row in a block.
    #[inline(always)]
    pub(crate) fn look_at_slot<'s>(
        &mut self,
        (table, part): (&'s TableData, FetchExtent),
        place: Slot<'s>,
        pin: Pin<'s>,
        list: &mut PrefetchList<'_>,
    ) {
        if let Some((address, bytes)) = part.elsewhere(table, place, pin) {
            self.want_head(address, bytes, list);
        }
    }
}

/// The addresses that lookups request, and how many bytes each.
pub(crate) struct PrefetchList<'w> {
    free: slice::IterMut<'w, Bytes>,
}

/// An address and a length.
type Bytes = (*const u8, usize);

/// The most requests of one lookup in a step: bytes, and the line of a cell.
const LOOKUP_PARTS: usize = 2;

impl PrefetchList<'_> {
    #[inline(always)]
    pub(crate) fn push(&mut self, address: *const u8, bytes: usize) {
        if let Some(part) = self.free.next() {
            *part = (address, bytes);
        }
    }
}

/// Collects the requests of one lookup and issues them.
#[inline(always)]
pub(crate) fn fetch_of_one(look: impl FnOnce(&mut PrefetchList<'_>)) {
    fetch_together(&mut [(ptr::null(), 0); LOOKUP_PARTS], look);
}

/// Collects the requests of all members and issues them back to back, block by block (`lookup_plan.rs` says
/// why).
#[inline(always)]
pub(crate) fn fetch_of_each<T>(members: &mut [T], mut look: impl FnMut(&mut T, &mut PrefetchList<'_>)) {
    let mut parts = [(ptr::null(), 0); BLOCK_LOOKUPS * LOOKUP_PARTS];
    for block in members.chunks_mut(BLOCK_LOOKUPS) {
        fetch_together(&mut parts, |list| {
            block.iter_mut().for_each(|member| look(member, list));
        });
    }
}

#[inline(always)]
fn fetch_together(parts: &mut [Bytes], ask: impl FnOnce(&mut PrefetchList<'_>)) {
    let mut list = PrefetchList {
        free: parts.iter_mut(),
    };
    ask(&mut list);
    let free = list.free.len();
    let asked = parts.len() - free;
    for (address, bytes) in parts.iter().take(asked) {
        prefetch_bytes(*address, *bytes);
    }
}
