//! All tables' data, by table.
//!
//! Every step of every lookup asks for a table, so the tables of ids given out first, which most databases
//! have only, are found by a single load; the others by hash.

use std::sync::Arc;

use hashbrown::HashMap;
use weft_base::TableId;

use crate::catalog::FIRST_OBJECT_ID;
use crate::table::TableData;

/// Ids from the first one on that are found by place. Copied with every change of a definition.
const NEAR_IDS: usize = 1024;

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct TableMap {
    /// By id less the first one; no longer than needed.
    near: Vec<Option<Arc<TableData>>>,
    far: HashMap<TableId, Arc<TableData>>,
}

fn place(id: TableId) -> usize {
    id.0.wrapping_sub(FIRST_OBJECT_ID) as usize
}

impl TableMap {
    #[inline]
    pub(crate) fn get(&self, id: &TableId) -> Option<&Arc<TableData>> {
        match self.near.get(place(*id)) {
            Some(table) => table.as_ref(),
            None => self.get_far(id),
        }
    }

    #[cold]
    fn get_far(&self, id: &TableId) -> Option<&Arc<TableData>> {
        self.far.get(id)
    }

    /// Puts a table in, or another in its stead.
    pub(crate) fn insert(&mut self, id: TableId, table: Arc<TableData>) {
        let place = place(id);
        if place >= NEAR_IDS {
            self.far.insert(id, table);
            return;
        }
        if place >= self.near.len() {
            self.near.resize(place + 1, None);
        }
        if let Some(near) = self.near.get_mut(place) {
            *near = Some(table);
        }
    }

    pub(crate) fn remove(&mut self, id: &TableId) {
        match self.near.get_mut(place(*id)) {
            Some(table) => *table = None,
            None => {
                self.far.remove(id);
            }
        }
    }

    /// In no particular order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<TableData>> {
        self.near.iter().flatten().chain(self.far.values())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::TableDef;

    fn table(id: u32) -> Arc<TableData> {
        let def = TableDef::new(TableId(id), "t", Vec::new());
        Arc::new(TableData::new(&Arc::new(def), &Arc::default()))
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..100)) {
            let ids = [0, 1, FIRST_OBJECT_ID - 1, FIRST_OBJECT_ID, FIRST_OBJECT_ID + 1, FIRST_OBJECT_ID + 7,
                FIRST_OBJECT_ID + 1023, FIRST_OBJECT_ID + 1024, FIRST_OBJECT_ID + 5000, u32::MAX - 1,
                u32::MAX, 99];
            let (mut map, mut model) = (TableMap::default(), BTreeMap::new());
            for (which, puts) in steps {
                let id = TableId(ids[which as usize]);
                if puts {
                    let new = table(id.0);
                    map.insert(id, Arc::clone(&new));
                    model.insert(id, new);
                } else {
                    map.remove(&id);
                    model.remove(&id);
                }
                for id in ids.map(TableId) {
                    let same = |one: &Arc<TableData>, other: &Arc<TableData>| Arc::ptr_eq(one, other);
                    match (map.get(&id), model.get(&id)) {
                        (Some(found), Some(wanted)) => prop_assert!(same(found, wanted)),
                        (found, wanted) => prop_assert_eq!(found.is_some(), wanted.is_some()),
                    }
                }
                prop_assert_eq!(map.values().count(), model.len());
            }
        }
    }
}
