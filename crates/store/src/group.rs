//! Lookups of many keys at once: a pipeline that keeps a constant number of them in flight.
//!
//! ```text
//!   key i          hash, fetch the index line
//!   key i - D      look at the line, fetch the candidate's slot
//!   key i - 2D     look at the slot, fetch the row if it lies elsewhere
//!   key i - 3D     check the key, show the row
//! ```
//!
//! Each turn does one step of four keys, so about 3 D waits for memory overlap, and there is no pause between
//! groups. Sources: software-pipelined prefetching, Chen et al. 2004; BionicDB 4.4.

use std::ops::ControlFlow;

use weft_base::memory::{LINE_BYTES, prefetch_bytes};
use weft_base::{IndexId, TableId};
use weft_ops::hash64;
use weft_types::SqlError;

use crate::index::hash::HashIndex;
use crate::memory::{SLOT_OVERHEAD, Slot, SlotId};
use crate::read::{ReadView, RowVersion, lookup_in, lookup_slot};
use crate::table::{TableData, TableIndex};

/// Keys between two steps of one key: 24 to 32 lines in flight.
const DISTANCE: usize = 8;
/// Keys remembered: more than three distances, a power of two.
const RING: usize = 32;

const _: () = assert!(RING > 3 * DISTANCE && RING.is_power_of_two());

/// What is known of a key in flight.
#[derive(Clone, Copy, Default)]
struct InFlight {
    hash: u64,
    slot: Option<SlotId>,
}

impl<'s> ReadView<'s> {
    /// Shows the rows with each of the keys, key by key in their order, with the key's position; as
    /// [`ReadView::lookup`] for each, but the waits for memory overlap. `row_bytes` is how much of a row `see`
    /// will look at, from its beginning. Errors: the table or index does not exist (any more).
    pub fn lookup_group<K: AsRef<[u8]>>(
        &self,
        table: TableId,
        index: IndexId,
        keys: &[K],
        row_bytes: usize,
        mut see: impl FnMut(usize, RowVersion<'s>),
    ) -> Result<(), SqlError> {
        let table = self.schema().table(table)?;
        let index = table.index(index)?;
        let Some(hash) = &index.data.hash else {
            return self.lookup_group_ordered(table, index, keys, row_bytes, see);
        };
        let mut ring = [InFlight::default(); RING];
        for turn in 0..keys.len() + 3 * DISTANCE {
            if let Some(key) = keys.get(turn)
                && let Some(probe) = ring.get_mut(turn % RING)
            {
                probe.hash = hash64(key.as_ref());
                hash.prefetch(probe.hash);
            }
            if let Some(probe) = earlier(turn, DISTANCE).and_then(|at| ring.get_mut(at % RING)) {
                probe.slot = begin_row(table, hash, probe.hash, row_bytes);
            }
            if let Some(probe) = earlier(turn, 2 * DISTANCE).and_then(|at| ring.get(at % RING)) {
                continue_row(table, probe.slot, row_bytes);
            }
            let Some(at) = earlier(turn, 3 * DISTANCE) else {
                continue;
            };
            let Some((key, probe)) = keys.get(at).zip(ring.get(at % RING)) else {
                continue;
            };
            let key = key.as_ref();
            // A unique key's first candidate is nearly always the row; anything else takes the usual way.
            let found = probe
                .slot
                .filter(|_| index.def.unique)
                .and_then(|slot| lookup_slot(table, index, self.pin(), key, slot));
            match found {
                Some(row) => see(at, row),
                None => lookup_in(table, index, self.pin(), key, &mut |row| {
                    see(at, row);
                    ControlFlow::Continue(())
                }),
            }
        }
        Ok(())
    }

    /// Indexes without hash: one descent after the other, then the rows.
    fn lookup_group_ordered<K: AsRef<[u8]>>(
        &self,
        table: &'s TableData,
        index: &'s TableIndex,
        keys: &[K],
        _row_bytes: usize,
        mut see: impl FnMut(usize, RowVersion<'s>),
    ) -> Result<(), SqlError> {
        for (at, key) in keys.iter().enumerate() {
            lookup_in(table, index, self.pin(), key.as_ref(), &mut |row| {
                see(at, row);
                ControlFlow::Continue(())
            });
        }
        Ok(())
    }
}

#[inline(always)]
fn earlier(turn: usize, distance: usize) -> Option<usize> {
    turn.checked_sub(distance)
}

#[inline(always)]
fn begin_row(table: &TableData, hash: &HashIndex, of: u64, row_bytes: usize) -> Option<SlotId> {
    let slot = hash.first_candidate(of)?;
    let place = table.core.slots.slot(slot)?;
    let bytes = place
        .size_bytes()
        .min(SLOT_OVERHEAD + row_bytes.max(LINE_BYTES - SLOT_OVERHEAD));
    prefetch_bytes(place.address(), bytes);
    Some(slot)
}

#[inline(always)]
fn continue_row(table: &TableData, slot: Option<SlotId>, row_bytes: usize) {
    let place = slot.and_then(|slot| table.core.slots.slot(slot));
    if let Some(elsewhere) = place.and_then(Slot::newest_elsewhere) {
        prefetch_bytes(elsewhere, SLOT_OVERHEAD + row_bytes);
    }
}
