//! Lookups of many keys at once: a pipeline of blocks of keys that keeps the memory system busy.
//!
//! ```text
//!   block n        hash its keys, fetch their index lines
//!   block n - 1    look at the lines, fetch the candidates' slots
//!   block n - 2    look at the slots, fetch rows that lie elsewhere, or a column
//!   block n - 3    check the keys, show the rows
//! ```
//!
//! In an ordered index the first step goes down through the nodes that are in the cache, and one more step
//! looks at the node above the leaf.
//!
//! Each step first computes the addresses of the whole block and then asks for them back to back. That
//! matters as much as the number in flight: a prefetch whose page is not in the translation buffer holds up
//! the instructions behind it until the page walk is done, and only prefetches that stand close together
//! overlap their walks (docs/decisions/0008-row-memory.md). What of a row is fetched is the caller's choice
//! ([`Fetch`]). Sources: group and software-pipelined prefetching, Chen et al. 2004; BionicDB 4.4.

use std::ops::ControlFlow;

use weft_base::memory::{LINE_BYTES, prefetch, prefetch_bytes};
use weft_base::{IndexId, TableId};
use weft_ops::hash64;
use weft_types::SqlError;

use crate::fetch::Fetch;
use crate::index::hash::HashIndex;
use crate::index::ordered::{Descent, OrderedIndex, Step};
use crate::memory::{Pin, SlotId};
use crate::read::{ReadView, RowVersion, lookup_in, lookup_slot};
use crate::table::{TableData, TableIndex};

/// Keys that go through a step together: two steps' lines are in flight.
const BLOCK_KEYS: usize = 16;
/// Blocks under way, at most.
const STAGES: usize = 5;

/// What is known of the keys of a block.
#[derive(Clone, Copy, Default)]
struct Block {
    hashes: [u64; BLOCK_KEYS],
    descents: [Option<Descent>; BLOCK_KEYS],
    slots: [Option<SlotId>; BLOCK_KEYS],
}

/// Addresses to fetch, asked for together.
struct Wanted {
    addresses: [*const u8; 2 * BLOCK_KEYS],
    len: usize,
}

impl Wanted {
    #[inline(always)]
    fn new() -> Self {
        Wanted {
            addresses: [std::ptr::null(); 2 * BLOCK_KEYS],
            len: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, address: *const u8) {
        if let Some(place) = self.addresses.get_mut(self.len) {
            *place = address;
            self.len += 1;
        }
    }

    #[inline(always)]
    fn fetch(self, bytes: usize) {
        for address in self.addresses.iter().take(self.len) {
            if bytes <= LINE_BYTES {
                prefetch(*address);
            } else {
                prefetch_bytes(*address, bytes);
            }
        }
    }
}

impl<'s> ReadView<'s> {
    /// Shows the rows with each of the keys, key by key in their order, with the key's position; as
    /// [`ReadView::lookup`] for each, but the waits for memory overlap. `fetch` says what
    /// `see` will look at. Errors: the table or index does not exist (any more).
    pub fn lookup_group<K: AsRef<[u8]>>(
        &self,
        table: TableId,
        index: IndexId,
        keys: &[K],
        fetch: Fetch,
        mut see: impl FnMut(usize, RowVersion<'s>),
    ) -> Result<(), SqlError> {
        let table = self.schema().table(table)?;
        let index = table.index(index)?;
        let mut ring = [Block::default(); STAGES];
        let blocks = keys.len().div_ceil(BLOCK_KEYS);
        let keys_of = |block: usize| keys.chunks(BLOCK_KEYS).nth(block).unwrap_or_default();
        // Steps that lead to a slot; then come the row and the key.
        let to_slot = match (&index.data.hash, &index.data.ordered) {
            (Some(_), _) => 2,
            (None, Some(_)) => 3,
            (None, None) => 0,
        };
        for turn in 0..blocks + to_slot + 1 {
            for step in 0..to_slot {
                let Some((at, block)) = earlier(turn, step, &mut ring) else {
                    break;
                };
                match (&index.data.hash, &index.data.ordered, step) {
                    (Some(hash), _, 0) => begin_index(hash, keys_of(at), block),
                    (Some(hash), ..) => begin_rows(table, hash, keys_of(at).len(), block, fetch),
                    (None, Some(ordered), 0) => begin_descents(ordered, keys_of(at), block),
                    (None, Some(ordered), 1) => continue_descents(ordered, keys_of(at), block),
                    (None, Some(ordered), _) => end_descents(table, ordered, keys_of(at), block, fetch),
                    (None, None, _) => {}
                }
            }
            if let Some((at, block)) = earlier(turn, to_slot, &mut ring) {
                continue_rows(table, self.pin(), keys_of(at).len(), block, fetch);
            }
            let Some((at, block)) = earlier(turn, to_slot + 1, &mut ring) else {
                continue;
            };
            for (number, (key, slot)) in keys_of(at).iter().zip(block.slots).enumerate() {
                let position = at * BLOCK_KEYS + number;
                self.finish(table, index, key.as_ref(), slot, |row| see(position, row));
            }
        }
        Ok(())
    }

    /// A unique key's first candidate is nearly always the row; anything else takes the usual way.
    #[inline(always)]
    fn finish(
        &self,
        table: &'s TableData,
        index: &TableIndex,
        key: &[u8],
        slot: Option<SlotId>,
        mut see: impl FnMut(RowVersion<'s>),
    ) {
        let found = slot
            .filter(|_| index.def.unique)
            .and_then(|slot| lookup_slot(table, index, self.pin(), key, slot))
            // Keys with a NULL are not unique: there may be more.
            .filter(|row| !index.data.has_null(table.layout(), row.bytes));
        match found {
            Some(row) => see(row),
            None => lookup_in(table, index, self.pin(), key, &mut |row| {
                see(row);
                ControlFlow::Continue(())
            }),
        }
    }
}

/// The block that entered the pipeline some turns ago, with its number.
#[inline(always)]
fn earlier(turn: usize, turns: usize, ring: &mut [Block; STAGES]) -> Option<(usize, &mut Block)> {
    let at = turn.checked_sub(turns)?;
    Some((at, ring.get_mut(at % STAGES)?))
}

#[inline(always)]
fn begin_index<K: AsRef<[u8]>>(hash: &HashIndex, keys: &[K], block: &mut Block) {
    let mut wanted = Wanted::new();
    for (key, of) in keys.iter().zip(&mut block.hashes) {
        *of = hash64(key.as_ref());
        wanted.push(hash.line_address(*of));
    }
    wanted.fetch(LINE_BYTES);
}

#[inline(always)]
fn begin_rows(table: &TableData, hash: &HashIndex, keys: usize, block: &mut Block, fetch: Fetch) {
    for (slot, of) in block.slots.iter_mut().zip(block.hashes).take(keys) {
        *slot = hash.first_candidate(of);
    }
    fetch_slots(table, keys, block, fetch);
}

#[inline(always)]
fn begin_descents<K: AsRef<[u8]>>(ordered: &OrderedIndex, keys: &[K], block: &mut Block) {
    for (key, descent) in keys.iter().zip(&mut block.descents) {
        *descent = Some(ordered.begin_descent(key.as_ref()));
    }
    fetch_nodes(keys.len(), block);
}

#[inline(always)]
fn continue_descents<K: AsRef<[u8]>>(ordered: &OrderedIndex, keys: &[K], block: &mut Block) {
    for (key, descent) in keys.iter().zip(&mut block.descents) {
        *descent = descent.and_then(|at| match ordered.step(at, key.as_ref()) {
            Step::Down(next) => Some(next),
            Step::Entry(_) | Step::Nothing => None,
        });
    }
    fetch_nodes(keys.len(), block);
}

#[inline(always)]
fn end_descents<K: AsRef<[u8]>>(
    table: &TableData,
    ordered: &OrderedIndex,
    keys: &[K],
    block: &mut Block,
    fetch: Fetch,
) {
    for ((key, descent), slot) in keys.iter().zip(block.descents).zip(&mut block.slots) {
        *slot = descent.and_then(|at| match ordered.step(at, key.as_ref()) {
            Step::Entry(slot) => Some(slot),
            Step::Down(_) | Step::Nothing => None,
        });
    }
    fetch_slots(table, keys.len(), block, fetch);
}

#[inline(always)]
fn fetch_nodes(keys: usize, block: &Block) {
    for descent in block.descents.iter().take(keys).flatten() {
        let (address, bytes) = descent.address();
        prefetch_bytes(address, bytes);
    }
}

#[inline(always)]
fn fetch_slots(table: &TableData, keys: usize, block: &Block, fetch: Fetch) {
    let (mut wanted, mut bytes) = (Wanted::new(), LINE_BYTES);
    for slot in block.slots.iter().take(keys) {
        if let Some(place) = slot.and_then(|slot| table.core.slots.slot(slot)) {
            wanted.push(place.address());
            bytes = bytes.max(fetch.slot_bytes(place));
            if let Some(cell) = fetch.cell_address(table, place) {
                wanted.push(cell);
            }
        }
    }
    wanted.fetch(bytes);
}

#[inline(always)]
fn continue_rows<'s>(table: &'s TableData, pin: Pin<'s>, keys: usize, block: &Block, fetch: Fetch) {
    let (mut wanted, mut bytes) = (Wanted::new(), LINE_BYTES);
    for slot in block.slots.iter().take(keys).flatten() {
        if let Some(place) = table.core.slots.slot(*slot)
            && let Some((address, elsewhere_bytes)) = fetch.elsewhere(table, place, pin)
        {
            wanted.push(address);
            bytes = bytes.max(elsewhere_bytes);
        }
    }
    wanted.fetch(bytes);
}
