//! Building an index over rows that exist: CREATE INDEX, and loading a checkpoint.
//!
//! Entries are collected, sorted once and put into the B-tree in order, which is several times faster than
//! one by one. The sorted list also shows duplicates.

use weft_ops::hash64;

use super::IndexData;
use super::ordered::{Entry, OrderedIndex};
use crate::catalog::IndexDef;
use crate::memory::{Pin, SlotId};
use crate::table::TableCore;

/// An index over the live rows that the pin sees, or the slot of a row whose key another row has in a
/// unique index.
pub(crate) fn build(def: &IndexDef, core: &TableCore, pin: Pin<'_>) -> Result<IndexData, SlotId> {
    let mut index = IndexData::new(def, core.slots.memory());
    let layout = core.layout.as_ref();
    let (mut entries, mut with_null) = (Vec::new(), Vec::new());
    let mut key = Vec::new();
    core.each_live(pin, |slot, _, version| {
        index.key_of(layout, version.bytes(), &mut key);
        if let Some(hash) = index.hash_for(&key) {
            hash.add(hash64(&key), slot);
        }
        if index.ordered.is_some() || def.unique {
            let has_null = def.unique && index.has_null(layout, version.bytes());
            (if has_null { &mut with_null } else { &mut entries }).push(Entry::new(&key, slot));
        }
    });
    entries.sort_unstable();
    if def.unique {
        let twins = entries.windows(2).find_map(|pair| match pair {
            [one, other] if one.same_key(other) => Some(other.slot()),
            _ => None,
        });
        if let Some(slot) = twins {
            return Err(slot);
        }
    }
    if index.ordered.is_some() {
        if !with_null.is_empty() {
            entries.append(&mut with_null);
            entries.sort_unstable();
        }
        index.ordered = Some(OrderedIndex::from_sorted(entries));
    }
    Ok(index)
}
