//! Random histories of rows and definitions against a map: members that commit, roll back and go back to
//! savepoints, indexes that come and go between them, batches that are given up, collection at any time,
//! old snapshots. Every index leads to exactly the rows that have the key, at every boundary that is held.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use weft_base::{BatchId, IndexId, Prng, TableId};
use weft_store::{
    BatchWriter, CatalogOp, ColumnDef, FIRST_OBJECT_ID, Fetch, IndexMethod, LookupPlan, ReadView, SlotId,
    Snapshot, Store, TableDef,
};
use weft_types::{SqlType, Value};

use crate::fixture;

const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const HISTORIES: u64 = if cfg!(miri) { 1 } else { 25 };
const BATCHES: u64 = if cfg!(miri) { 12 } else { 120 };

type Row = Vec<Value>;
type Model = BTreeMap<SlotId, Row>;

struct History {
    store: Arc<Store>,
    def: TableDef,
    random: Prng,
    model: Model,
    indexes: Vec<IndexId>,
    held: Vec<(Snapshot, Model)>,
}

#[test]
fn indexes_lead_to_rows_through_every_history() {
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        for _ in 0..BATCHES {
            history.batch();
        }
        history.end(seed);
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let columns = vec![
            ColumnDef::new("a", SqlType::Int8),
            ColumnDef::new("b", SqlType::Int4),
            ColumnDef::new("c", SqlType::Text),
        ];
        let def = TableDef::new(TABLE, "t", columns);
        let store = Store::new();
        fixture::batch(&store, |batch| {
            batch.apply_catalog(&CatalogOp::CreateTable(def.clone())).unwrap();
        });
        History {
            store,
            def,
            random: Prng::new(seed),
            model: Model::new(),
            indexes: Vec::new(),
            held: Vec::new(),
        }
    }

    fn row(&mut self) -> Row {
        let b = self.random.below(6);
        let text = match self.random.below(8) {
            0 => "x".repeat(300 + self.random.below(9_000) as usize),
            number => format!("t{number}"),
        };
        let a = Value::Int8(self.random.below(5) as i64);
        let b = if b < 5 { Value::Int4(b as i32) } else { Value::Null };
        vec![a, b, Value::Text(text)]
    }

    fn batch(&mut self) {
        let store = Arc::clone(&self.store);
        let id = BatchId(store.boundary().0 + 1);
        let before = (self.model.clone(), self.indexes.clone());
        let mut batch = store.begin_batch(id);
        for number in 0..self.random.below(5) as u32 {
            if self.random.below(6) == 0 {
                self.define(&mut batch);
            }
            self.member(&batch, number);
            if self.random.below(4) == 0 {
                check(batch.view(), &self.model, &mut self.random);
            }
        }
        if self.random.below(6) > 0 {
            batch.finish();
            if self.random.below(3) == 0 {
                store.collect_garbage(1 + self.random.below(40) as usize);
            }
            store.publish(id);
        } else {
            batch.abort();
            (self.model, self.indexes) = before;
        }
        if self.random.below(2) == 0 {
            store.collect_garbage(1 + self.random.below(60) as usize);
        }
        self.look_back();
    }

    fn define(&mut self, batch: &mut BatchWriter<'_>) {
        if self.indexes.len() < 3 && self.random.below(2) == 0 {
            let id = IndexId(batch.catalog().next_object_id());
            let methods = [IndexMethod::Hash, IndexMethod::Both, IndexMethod::Ordered];
            let method = methods[self.random.below(3) as usize];
            let column = self.random.below(3) as usize;
            let index = fixture::index(id, &format!("i{}", id.0), TABLE, &[column], method);
            batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
            self.indexes.push(id);
        } else if !self.indexes.is_empty() {
            let at = self.random.below(self.indexes.len() as u64) as usize;
            let gone = self.indexes.swap_remove(at);
            batch.apply_catalog(&CatalogOp::DropIndex(gone)).unwrap();
        }
        if self.random.below(20) == 0 {
            batch.apply_catalog(&CatalogOp::Truncate(TABLE)).unwrap();
            self.model.clear();
        }
    }

    fn member(&mut self, batch: &BatchWriter<'_>, number: u32) {
        let before = self.model.clone();
        let mut member = batch.member(number);
        let mut points: Vec<Model> = Vec::new();
        for _ in 0..self.random.below(9) {
            let row = self.row();
            let at = self.random.below(self.model.len().max(1) as u64) as usize;
            let slot = self.model.keys().nth(at).copied();
            match (self.random.below(10), slot) {
                (0..=2, _) | (3..=7, None) => {
                    let slot = member
                        .insert(TABLE, &self.def.layout.encode(&row).unwrap())
                        .unwrap();
                    assert!(self.model.insert(slot, row).is_none());
                }
                (kind @ 3..=5, Some(slot)) => {
                    let changed = match kind {
                        5 => [&row[..1], &self.model[&slot][1..]].concat(),
                        _ => row,
                    };
                    let bytes = self.def.layout.encode(&changed).unwrap();
                    member.update(TABLE, slot, &bytes).unwrap();
                    self.model.insert(slot, changed);
                }
                (6..=7, Some(slot)) => {
                    member.remove(TABLE, slot).unwrap();
                    self.model.remove(&slot);
                }
                (8, _) => {
                    member.savepoint();
                    points.push(self.model.clone());
                }
                _ => match (points.pop(), self.random.below(3)) {
                    (Some(_), 0) => member.release_savepoint(),
                    (Some(point), _) => {
                        member.rollback_to_savepoint();
                        self.model = point;
                    }
                    (None, _) => {}
                },
            }
        }
        if self.random.below(4) > 0 {
            member.commit();
        } else {
            member.rollback();
            self.model = before;
        }
    }

    fn look_back(&mut self) {
        if self.random.below(4) == 0 {
            self.held.push((self.store.snapshot(), self.model.clone()));
        }
        if self.held.len() > 4 || self.random.below(5) == 0 && !self.held.is_empty() {
            let at = self.random.below(self.held.len() as u64) as usize;
            self.held.swap_remove(at);
        }
        if self.random.below(3) == 0 {
            let newest = self.store.snapshot();
            check(newest.view(), &self.model, &mut self.random);
            for (snapshot, model) in &self.held {
                check(snapshot.view(), model, &mut self.random);
                assert_eq!(snapshot.verify_digest().unwrap(), snapshot.digest());
            }
        }
    }

    /// Nothing is left but the rows.
    fn end(mut self, seed: u64) {
        self.held.clear();
        for _ in 0..4 {
            fixture::batch(&self.store, |_| ());
            self.store.collect_garbage(usize::MAX);
        }
        let rows = self.model.values();
        let bytes: usize = rows
            .map(|row| self.def.layout.encode(row).unwrap().len() + 24)
            .sum();
        let stats = self.store.memory_stats();
        let left = (
            stats.version_bytes,
            stats.superseded_rows,
            stats.unlinked_versions,
        );
        assert_eq!(left, (bytes as u64, 0, 0), "{seed}");
    }
}

/// A scan, lookups alone and planned, and ranges find the model's rows.
fn check(view: ReadView<'_>, model: &Model, random: &mut Prng) {
    let table = Arc::clone(view.catalog().table_by_id(TABLE).unwrap());
    let mut seen = Vec::new();
    view.scan(TABLE, |row| seen.push((row.slot, row.bytes.to_vec())))
        .unwrap();
    let rows = model.iter();
    let rows = rows.map(|(slot, row)| (*slot, table.layout.encode(row).unwrap()));
    assert!(seen.into_iter().eq(rows));
    for index in &table.indexes {
        let column = index.columns[0];
        let mut values: Vec<Value> = model.values().map(|row| row[column].clone()).collect();
        values.push(match column {
            0 => Value::Int8(99),
            1 => Value::Int4(99),
            _ => Value::Text("none".into()),
        });
        let keys: Vec<Vec<u8>> = values
            .iter()
            .map(|value| fixture::key(std::slice::from_ref(value)))
            .collect();
        let mut plan = LookupPlan::new(view);
        for key in &keys {
            plan.push(TABLE, index.id, key, Fetch::Column(2));
        }
        plan.finish();
        let mut planned = plan.part(0..keys.len());
        for (number, (value, key)) in values.iter().zip(&keys).enumerate() {
            let has_it = |(slot, row): (&SlotId, &Row)| (row[column] == *value).then_some(*slot);
            let expected: Vec<SlotId> = model.iter().filter_map(has_it).collect();
            let mut found = Vec::new();
            let see = |row: weft_store::RowVersion<'_>| {
                found.push(row.slot);
                ControlFlow::Continue(())
            };
            view.lookup(TABLE, index.id, key, see).unwrap();
            found.sort();
            assert_eq!(found, expected, "{} {value:?}", index.name);
            let one = planned.lookup(number, &view, (TABLE, index.id), key).unwrap();
            assert_eq!(one.is_some(), !expected.is_empty());
            if index.method != IndexMethod::Hash {
                let limit = 1 + random.below(4) as usize;
                let only = Bound::Included(key.as_slice());
                let range = view.range(TABLE, index.id, only, only, random.below(2) == 0, limit);
                assert_eq!(range.unwrap().len(), expected.len().min(limit));
            }
        }
    }
}
