//! What of a row is fetched ahead of who looks at it, and where that lies.
//!
//! Rows of many lines are fetched in two parts: the first lines with the slot, the rest some rows ahead of
//! the lookup, while rows fetched before are copied; that part is bound by bandwidth, not by latency.

use std::ptr;

use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};

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

/// Where a lookup's row may be, and what of it is still to be fetched. It holds numbers and no pointers: what
/// they say of a row that has gone only fetches the wrong lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAhead {
    pub(crate) slot: SlotId,
    pub(crate) fetch: Fetch,
    /// Where the part of the row lies that was not fetched yet, and how long it is.
    rest: usize,
    rest_bytes: u32,
}

impl RowAhead {
    #[inline(always)]
    pub(crate) fn new(fetch: Fetch) -> Self {
        RowAhead {
            slot: SlotId(0),
            fetch,
            rest: 0,
            rest_bytes: 0,
        }
    }

    /// There is more of the row than was fetched.
    #[inline(always)]
    pub(crate) fn has_rest(&self) -> bool {
        self.rest_bytes > 0
    }

    /// Fetches what of a long row does not lie in its first lines, once.
    #[inline]
    pub(crate) fn fetch_rest(&mut self) {
        let bytes = std::mem::take(&mut self.rest_bytes) as usize;
        if bytes > 0 {
            prefetch_bytes(ptr::without_provenance::<u8>(self.rest), bytes);
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

    /// The row is in this slot: what to fetch there.
    #[inline(always)]
    pub(crate) fn want_place(&mut self, table: &TableData, slot: SlotId, place: Slot<'_>) -> Wanted {
        self.slot = slot;
        Wanted {
            address: place.address(),
            bytes: self.keep_rest(place.address(), self.fetch.slot_bytes(place)),
            cell: self.fetch.cell_address(table, place).unwrap_or(ptr::null()),
        }
    }

    /// The slot has been fetched: what to fetch of a row that lies elsewhere.
    #[inline(always)]
    pub(crate) fn look_at_slot<'s>(&mut self, table: &'s TableData, place: Slot<'s>, pin: Pin<'s>) -> Wanted {
        match self.fetch.elsewhere(table, place, pin) {
            Some((address, bytes)) => Wanted {
                address,
                bytes: self.keep_rest(address, bytes),
                cell: ptr::null(),
            },
            None => Wanted::default(),
        }
    }
}

/// Asks all of a block what to fetch, then fetches it back to back (`group.rs` says why).
#[inline(always)]
pub(crate) fn fetch_of_each<T>(block: &mut [T], mut look: impl FnMut(&mut T) -> Wanted) {
    let mut wanted = [Wanted::default(); BLOCK_LOOKUPS];
    for (wanted, member) in wanted.iter_mut().zip(block.iter_mut()) {
        *wanted = look(member);
    }
    wanted.iter().take(block.len()).for_each(Wanted::fetch);
}

/// What a lookup asks for: bytes, and the line of a cell.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) address: *const u8,
    pub(crate) bytes: usize,
    pub(crate) cell: *const u8,
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
    pub(crate) fn fetch(&self) {
        if self.bytes > 0 {
            prefetch_bytes(self.address, self.bytes);
        }
        if !self.cell.is_null() {
            prefetch(self.cell);
        }
    }
}
