//! Indexes: from a key to the slots that may hold a row with that key.
//!
//! An entry leads to a candidate only. A row's chain may hold versions with different keys, each with its
//! entry; the reader takes the version visible to it and checks that this one carries the key. Entries are
//! a set: one per (key, slot), however many versions carry the key, and an entry goes when no version of
//! the chain carries its key any more. So no index knows of versions, and rollback needs no log of entries.

pub(crate) mod build;
pub(crate) mod hash;
pub(crate) mod ordered;

use weft_ops::hash64;
use weft_types::{RowLayout, encode_key_from_row};

use crate::catalog::{IndexDef, IndexMethod};
use crate::memory::SlotId;
use hash::HashIndex;
use ordered::OrderedIndex;

/// The structures of one index.
pub(crate) struct IndexData {
    pub(crate) columns: Vec<usize>,
    pub(crate) hash: Option<HashIndex>,
    pub(crate) ordered: Option<OrderedIndex>,
}

impl IndexData {
    pub(crate) fn new(def: &IndexDef) -> Self {
        IndexData {
            columns: def.columns.clone(),
            hash: def.method.is_hashed().then(HashIndex::new),
            ordered: matches!(def.method, IndexMethod::Ordered | IndexMethod::Both).then(OrderedIndex::new),
        }
    }

    /// Puts the row's encoded key into `key`, replacing what was there.
    pub(crate) fn key_of(&self, layout: &RowLayout, row: &[u8], key: &mut Vec<u8>) {
        key.clear();
        encode_key_from_row(key, layout, row, &self.columns);
    }

    /// One of the key's columns is NULL, so it takes no part in uniqueness.
    pub(crate) fn has_null(&self, layout: &RowLayout, row: &[u8]) -> bool {
        self.columns.iter().any(|column| layout.is_null(row, *column))
    }

    /// Both rows have the same bytes in the key's columns, so they carry the same key. The reverse does not
    /// hold: 1.0 and 1.00 are one key.
    pub(crate) fn same_cells(&self, layout: &RowLayout, one: &[u8], other: &[u8]) -> bool {
        self.columns
            .iter()
            .all(|column| layout.raw(one, *column) == layout.raw(other, *column))
    }

    /// Adds the entry unless it is there.
    pub(crate) fn add(&self, key: &[u8], slot: SlotId) {
        if let Some(hash) = &self.hash {
            hash.add(hash64(key), slot);
        }
        if let Some(ordered) = &self.ordered {
            ordered.add(key, slot);
        }
    }

    /// Removes the entries that lead to `slot` only because of the row `removed`: those that none of the
    /// rows in `remaining` needs as well.
    pub(crate) fn remove<'r>(
        &self,
        layout: &RowLayout,
        slot: SlotId,
        removed: &[u8],
        remaining: impl Iterator<Item = &'r [u8]>,
    ) {
        let (mut key, mut other_key) = (Vec::new(), Vec::new());
        let (mut hash_needed, mut key_needed) = (false, false);
        for other in remaining {
            if self.same_cells(layout, removed, other) {
                return;
            }
            if key.is_empty() {
                self.key_of(layout, removed, &mut key);
            }
            self.key_of(layout, other, &mut other_key);
            key_needed |= key == other_key;
            hash_needed |= hash64(&key) == hash64(&other_key);
        }
        if key.is_empty() {
            self.key_of(layout, removed, &mut key);
        }
        if let Some(hash) = self.hash.as_ref().filter(|_| !hash_needed) {
            hash.remove(hash64(&key), slot);
        }
        if let Some(ordered) = self.ordered.as_ref().filter(|_| !key_needed) {
            ordered.remove(&key, slot);
        }
    }

    /// Slots that may hold a row with exactly this key.
    pub(crate) fn candidates(&self, key: &[u8], out: &mut hash::Candidates) {
        match (&self.hash, &self.ordered) {
            (Some(hash), _) => hash.candidates(hash64(key), out),
            (None, Some(ordered)) => ordered.candidates(key, out),
            (None, None) => {}
        }
    }
}
