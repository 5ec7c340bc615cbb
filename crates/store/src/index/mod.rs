//! Indexes: from a key to the slots that may hold a row with that key.
//!
//! An entry only leads to a candidate. A row's chain may hold versions with different keys, each with its
//! entry; the reader takes the version visible to it and checks that this one has the key. Entries are a set:
//! one per (key, slot), however many versions have the key, and an entry is removed when no version of the
//! chain has its key any more. So indexes know nothing of versions, and rollback needs no log of entries.

pub(crate) mod build;
pub(crate) mod hash;
pub(crate) mod ordered;
pub(crate) mod prepare;

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use weft_ops::hash64;
use weft_types::{KeyColumns, RowLayout};

use crate::catalog::{IndexDef, IndexMethod};
use crate::memory::{RowMemory, SlotId};
use hash::HashIndex;
use ordered::OrderedIndex;

/// What stands for NULL in an encoded key (`weft_types`' key format).
const MARK_NULL: u8 = 0x02;

/// The structures of one index, and how keys are taken from the rows of one layout. Other layouts of the
/// table share the structures.
#[derive(Clone)]
pub(crate) struct IndexData {
    /// In a box, so that the list in which an index is looked up stays short.
    key_columns: Box<KeyColumns>,
    pub(crate) hash: Option<Arc<HashIndex>>,
    pub(crate) ordered: Option<Arc<OrderedIndex>>,
    /// Keys with a NULL are stored in `ordered` only: a unique index may have many rows with such a key, and
    /// long sequences of equal entries are slow to search, for neighbouring keys too.
    nulls_in_order: bool,
}

impl IndexData {
    /// An empty index over rows of this layout.
    pub(crate) fn new(def: &IndexDef, layout: &RowLayout, memory: &Arc<RowMemory>) -> Self {
        IndexData {
            key_columns: Box::new(KeyColumns::new(layout, &def.columns)),
            hash: def.method.is_hashed().then(|| Arc::new(HashIndex::new(memory))),
            ordered: matches!(def.method, IndexMethod::Ordered | IndexMethod::Both)
                .then(|| Arc::new(OrderedIndex::new(memory))),
            nulls_in_order: def.unique && !def.primary && matches!(def.method, IndexMethod::Both),
        }
    }

    /// The same index, over rows of another layout in which its key has other columns.
    pub(crate) fn under(&self, def: &IndexDef, layout: &RowLayout) -> Self {
        IndexData {
            key_columns: Box::new(KeyColumns::new(layout, &def.columns)),
            hash: self.hash.clone(),
            ordered: self.ordered.clone(),
            nulls_in_order: self.nulls_in_order,
        }
    }

    /// Presizes a new index for this many rows, unless some rows may have no entry.
    pub(crate) fn make_room(&mut self, rows: usize) {
        if let Some(hash) = self.hash.as_mut().and_then(Arc::get_mut)
            && !self.nulls_in_order
        {
            hash.make_room(rows);
        }
    }

    /// The hash index that has this key's entries, if it is a hash index. Keys with a NULL are in `ordered`;
    /// the key's bytes alone decide.
    pub(crate) fn hash_for(&self, key: &[u8]) -> Option<&HashIndex> {
        let may_hold_null = || match self.key_columns.columns().len() {
            1 => key.first() == Some(&MARK_NULL),
            _ => key.contains(&MARK_NULL),
        };
        self.hash
            .as_deref()
            .filter(|_| !(self.nulls_in_order && may_hold_null()))
    }

    /// Puts the row's encoded key into `key`, replacing what was there.
    pub(crate) fn key_of(&self, layout: &RowLayout, row: &[u8], key: &mut Vec<u8>) {
        key.clear();
        self.key_columns.encode(key, layout, row);
    }

    /// True if the row has this encoded key. Integers and times are compared without decoding.
    #[inline(always)]
    pub(crate) fn carries(&self, layout: &RowLayout, row: &[u8], key: &[u8]) -> bool {
        match self.key_columns.matches_integers(row, key) {
            Some(carries) => carries,
            None => self.carries_encoded(layout, row, key),
        }
    }

    #[inline(never)]
    fn carries_encoded(&self, layout: &RowLayout, row: &[u8], key: &[u8]) -> bool {
        with_key_buffer(|buffer| {
            self.key_of(layout, row, buffer);
            buffer.as_slice() == key
        })
    }

    /// One of the key's columns is NULL, so uniqueness does not apply.
    pub(crate) fn has_null(&self, layout: &RowLayout, row: &[u8]) -> bool {
        self.key_columns.has_null(layout, row)
    }

    /// True if both rows have the same bytes in the key's columns, and so the same key. The reverse does not
    /// hold: 1.0 and 1.00 are one key.
    pub(crate) fn same_cells(&self, layout: &RowLayout, one: &[u8], other: &[u8]) -> bool {
        self.key_columns.same(layout, one, other)
    }

    /// Adds the entry unless it is there.
    #[cfg(test)]
    pub(crate) fn add(&self, key: &[u8], slot: SlotId) {
        if let Some(hash) = self.hash_for(key) {
            hash.add(hash64(key), slot);
        }
        if let Some(ordered) = &self.ordered {
            ordered.add(key, slot);
        }
    }

    /// Removes the entries that lead to `slot` only because of the row `removed`: those that no row in
    /// `remaining` needs.
    pub(crate) fn remove<'r>(
        &self,
        layout: &RowLayout,
        slot: SlotId,
        removed: &[u8],
        remaining: impl Iterator<Item = Cow<'r, [u8]>>,
    ) {
        let (mut key, mut other_key) = (Vec::new(), Vec::new());
        let (mut hash_needed, mut key_needed) = (false, false);
        for other in remaining {
            if self.same_cells(layout, removed, &other) {
                return;
            }
            if key.is_empty() {
                self.key_of(layout, removed, &mut key);
            }
            self.key_of(layout, &other, &mut other_key);
            key_needed |= key == other_key;
            hash_needed |= HashIndex::is_same_entry(hash64(&key), hash64(&other_key));
        }
        if key.is_empty() {
            self.key_of(layout, removed, &mut key);
        }
        if let Some(hash) = self.hash_for(&key).filter(|_| !hash_needed) {
            hash.remove(hash64(&key), slot);
        }
        if let Some(ordered) = self.ordered.as_ref().filter(|_| !key_needed) {
            ordered.remove(&key, slot);
        }
    }

    /// Slots that may hold a row with exactly this key.
    pub(crate) fn candidates(&self, key: &[u8], out: &mut hash::Candidates) {
        match (self.hash_for(key), &self.ordered) {
            (Some(hash), _) => hash.candidates(hash64(key), out),
            (None, Some(ordered)) => ordered.candidates(key, out),
            (None, None) => {}
        }
    }
}

const _: () = assert!(size_of::<IndexData>() == 32);

/// Lends a thread's buffer for encoding keys; a new one if it is lent out already.
fn with_key_buffer<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with(|buffer| match buffer.try_borrow_mut() {
        Ok(mut buffer) => work(&mut buffer),
        Err(_) => work(&mut Vec::new()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weft_types::{SqlType, Value};

    use super::*;
    use weft_base::{IndexId, TableId};

    fn integers() -> impl Strategy<Value = Vec<Value>> {
        let one = |value: Value| prop_oneof![1 => Just(Value::Null), 6 => Just(value)];
        (any::<i16>(), any::<i32>(), any::<i64>(), "[a-z]{0,2}").prop_flat_map(move |(a, b, c, d)| {
            (
                one(Value::Int2(a)),
                one(Value::Int4(b)),
                one(Value::Int8(c)),
                one(Value::Text(d)),
            )
                .prop_map(|(a, b, c, d)| vec![a, b, c, d])
        })
    }

    proptest! {
        /// The comparison without encoding agrees with the encoding.
        #[test]
        fn carries_what_it_encodes(
            one in integers(), other in integers(),
            columns in proptest::sample::subsequence(vec![0, 1, 2, 3], 1..4),
            cut in 0usize..30,
        ) {
            let layout = RowLayout::new(&[SqlType::Int2, SqlType::Int4, SqlType::Int8, SqlType::Text]);
            let def = IndexDef {
                id: IndexId(1), name: "i".into(), table: TableId(1), columns: columns.clone(),
                unique: false, primary: false, method: IndexMethod::Hash,
            };
            let index = IndexData::new(&def, &layout, &Arc::default());
            let (row, other) = (layout.encode(&one).unwrap(), layout.encode(&other).unwrap());
            let mut key = Vec::new();
            index.key_of(&layout, &row, &mut key);
            prop_assert!(index.carries(&layout, &row, &key));
            let mut other_key = Vec::new();
            index.key_of(&layout, &other, &mut other_key);
            prop_assert_eq!(index.carries(&layout, &row, &other_key), key == other_key);
            let short = &key[..cut.min(key.len())];
            prop_assert_eq!(index.carries(&layout, &row, short), short.len() == key.len());
            key.push(1);
            prop_assert!(!index.carries(&layout, &row, &key));
        }
    }

    /// A million NULLs must not become a run of equal entries that every neighbour has to walk.
    #[test]
    fn nulls_of_a_unique_index_are_ordered_separately() {
        let types = [SqlType::Int4, SqlType::Text];
        let layout = RowLayout::new(&types);
        for columns in [vec![0], vec![0, 1]] {
            let def = IndexDef {
                id: IndexId(1),
                name: "i".into(),
                table: TableId(1),
                columns: columns.clone(),
                unique: true,
                primary: false,
                method: IndexMethod::Both,
            };
            let index = IndexData::new(&def, &layout, &Arc::default());
            let mut key = Vec::new();
            let row = |number| layout.encode(&[number, Value::Text("t".into())]).unwrap();
            index.key_of(&layout, &row(Value::Null), &mut key);
            (0..1000).for_each(|slot| index.add(&key, SlotId(slot)));
            let mut found = hash::Candidates::new();
            index.hash.as_ref().unwrap().candidates(hash64(&key), &mut found);
            assert!(found.is_empty(), "{columns:?}");
            index.candidates(&key, &mut found);
            assert_eq!(found.len(), 1000);
            index.remove(&layout, SlotId(7), &row(Value::Null), std::iter::empty());
            found.clear();
            index.candidates(&key, &mut found);
            assert_eq!(found.len(), 999);
            // 2 begins with MARK_NULL's byte in the key, behind the mark of a value.
            index.key_of(&layout, &row(Value::Int4(2)), &mut key);
            index.add(&key, SlotId(5000));
            found.clear();
            index.candidates(&key, &mut found);
            assert_eq!(found.as_slice(), [SlotId(5000)]);
        }
    }
}
