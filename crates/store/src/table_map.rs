//! A map by table: its data or its definition.
//!
//! Every step of every lookup asks for a table, so tables with low ids, the only ones that most databases
//! have, are found by a single load.

use std::collections::BTreeMap;

use weft_base::TableId;

use crate::catalog::FIRST_OBJECT_ID;

/// Ids that are found by position. Copied with every change of a definition.
const NEAR_IDS: usize = 1024;

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) struct TableMap<T> {
    /// By id less the first one.
    near: Vec<Option<T>>,
    far: BTreeMap<TableId, T>,
}

impl<T> Default for TableMap<T> {
    fn default() -> Self {
        TableMap {
            near: Vec::new(),
            far: BTreeMap::new(),
        }
    }
}

/// Equal when the same ids have equal values, whatever ids have been there.
impl<T: PartialEq> PartialEq for TableMap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

fn place(id: TableId) -> usize {
    id.0.wrapping_sub(FIRST_OBJECT_ID) as usize
}

impl<T> TableMap<T> {
    #[inline]
    pub(crate) fn get(&self, id: &TableId) -> Option<&T> {
        match self.near.get(place(*id)) {
            Some(table) => table.as_ref(),
            None => self.get_far(id),
        }
    }

    #[cold]
    fn get_far(&self, id: &TableId) -> Option<&T> {
        self.far.get(id)
    }

    /// Inserts a table; returns the one that it replaces.
    pub(crate) fn insert(&mut self, id: TableId, table: T) -> Option<T> {
        let place = place(id);
        if place >= NEAR_IDS {
            return self.far.insert(id, table);
        }
        if place >= self.near.len() {
            self.near.resize_with(place + 1, || None);
        }
        self.near.get_mut(place)?.replace(table)
    }

    pub(crate) fn remove(&mut self, id: &TableId) {
        match self.near.get_mut(place(*id)) {
            Some(table) => *table = None,
            None => {
                self.far.remove(id);
            }
        }
    }

    /// By id.
    fn iter(&self) -> impl Iterator<Item = (TableId, &T)> {
        let first = TableId(FIRST_OBJECT_ID);
        let near = (FIRST_OBJECT_ID..).zip(&self.near);
        let near = near.filter_map(|(id, table)| Some((TableId(id), table.as_ref()?)));
        let before = self.far.range(..first).map(|(id, table)| (*id, table));
        let behind = self.far.range(first..).map(|(id, table)| (*id, table));
        before.chain(near).chain(behind)
    }

    /// In the order of their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, table)| table)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..100)) {
            let ids = [0, 1, FIRST_OBJECT_ID - 1, FIRST_OBJECT_ID, FIRST_OBJECT_ID + 1, FIRST_OBJECT_ID + 7,
                FIRST_OBJECT_ID + 1023, FIRST_OBJECT_ID + 1024, FIRST_OBJECT_ID + 5000, u32::MAX - 1,
                u32::MAX, 99];
            let (mut map, mut model) = (TableMap::default(), BTreeMap::new());
            let mut count = 0;
            for (which, puts) in steps {
                let id = TableId(ids[which as usize]);
                if puts {
                    count += 1;
                    prop_assert_eq!(map.insert(id, count), model.insert(id, count));
                } else {
                    map.remove(&id);
                    model.remove(&id);
                }
                for id in ids.map(TableId) {
                    prop_assert_eq!(map.get(&id), model.get(&id));
                }
                prop_assert!(map.values().eq(model.values()));
                let mut again = TableMap::default();
                for (id, table) in &model {
                    again.insert(*id, *table);
                }
                prop_assert!(map == again);
                again.insert(TableId(FIRST_OBJECT_ID + 77), 0);
                prop_assert!(map != again);
            }
        }
    }
}
