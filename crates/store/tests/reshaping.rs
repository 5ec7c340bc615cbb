//! Columns that come and go, against a model: random rows, indexes and changes of columns; snapshots from
//! before and after; batches that abort; eviction, checkpoints and restarts. Rows are not written when
//! columns change (decision 0042), so at any moment there are rows of several layouts.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{BatchId, IndexId, SimDisk, TableId};
use weft_column::segment as packed;
use weft_store::columns::ColumnKeeper;
use weft_store::{
    BatchWriter, CatalogOp, ColumnDef, EARLIER_LAYOUTS_MAX, Evictor, FIRST_OBJECT_ID, IndexDef, IndexMethod,
    Locator, Refiller, RowVersion, Snapshot, Store, TableDef,
};
use weft_types::{SqlType, Value};

use crate::{checkpoint, fixture, image};

const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const PKEY: IndexId = IndexId(FIRST_OBJECT_ID + 1);
const TYPES: [SqlType; 5] = [
    SqlType::Int4,
    SqlType::Text,
    SqlType::Bool,
    SqlType::Int8,
    SqlType::Bytea,
];

/// Rows by id; each has a value for every column behind the id.
type Model = BTreeMap<i64, Vec<Value>>;

#[derive(Clone, Debug)]
enum Change {
    /// A column of this type, filled with this value of it (0 is NULL).
    Add(usize, u8),
    /// The n-th column behind the id.
    Drop(usize),
    /// Over the n-th and the m-th column.
    Index(usize, usize, IndexMethod),
    DropIndex(usize),
    Truncate,
}

#[derive(Clone, Debug)]
enum Write {
    /// Inserts or updates; the seed gives the values.
    Put(i64, u8),
    /// Sets the n-th column.
    Set(i64, usize, u8),
    Remove(i64),
}

#[derive(Clone, Debug)]
enum Step {
    Batch {
        changes: Vec<Change>,
        writes: Vec<Write>,
        publishes: bool,
    },
    TakeSnapshot,
    DropSnapshot(usize),
    Collect(usize),
    CopyColumns,
    Checkpoint,
    Evict(usize),
    Refill(usize),
    Reopen,
    ReopenByImage,
}

fn change() -> impl Strategy<Value = Change> {
    let method = prop_oneof![
        Just(IndexMethod::Hash),
        Just(IndexMethod::Ordered),
        Just(IndexMethod::Both)
    ];
    prop_oneof![
        6 => (0..TYPES.len(), 0..4u8).prop_map(|(ty, fill)| Change::Add(ty, fill)),
        4 => (0..8usize).prop_map(Change::Drop),
        2 => (0..8usize, 0..8usize, method).prop_map(|(n, m, method)| Change::Index(n, m, method)),
        1 => (0..4usize).prop_map(Change::DropIndex),
        1 => Just(Change::Truncate),
    ]
}

fn write() -> impl Strategy<Value = Write> {
    let id = || 0..30i64;
    prop_oneof![
        5 => (id(), any::<u8>()).prop_map(|(id, seed)| Write::Put(id, seed)),
        3 => (id(), 0..8usize, any::<u8>()).prop_map(|(id, n, seed)| Write::Set(id, n, seed)),
        2 => id().prop_map(Write::Remove),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let changes = prop_oneof![
        3 => Just(Vec::new()),
        2 => proptest::collection::vec(change(), 1..4)
    ];
    let writes = proptest::collection::vec(write(), 0..8);
    prop_oneof![
        10 => (changes, writes, proptest::bool::weighted(0.9))
            .prop_map(|(changes, writes, publishes)| Step::Batch { changes, writes, publishes }),
        2 => Just(Step::TakeSnapshot),
        2 => (0..8usize).prop_map(Step::DropSnapshot),
        2 => (1..30usize).prop_map(Step::Collect),
        2 => Just(Step::CopyColumns),
        2 => Just(Step::Checkpoint),
        3 => (1..8usize).prop_map(Step::Evict),
        2 => (1..8usize).prop_map(Step::Refill),
        1 => Just(Step::Reopen),
        1 => Just(Step::ReopenByImage),
    ]
}

/// One of a few values of a type; 0 is NULL.
fn value(ty: &SqlType, seed: u8) -> Value {
    match (seed % 4, ty) {
        (0, _) => Value::Null,
        (n, SqlType::Int4) => Value::Int4(i32::from(n) - 2),
        (n, SqlType::Int8) => Value::Int8(i64::from(n) << 40),
        (n, SqlType::Bool) => Value::Bool(n == 1),
        (1, SqlType::Text) => Value::Text(String::new()),
        (n, SqlType::Text) => Value::Text("a text ".repeat(usize::from(n) * 5)),
        (n, _) => Value::Bytea(vec![n; usize::from(n)]),
    }
}

fn table(store: &Arc<Store>) -> Arc<TableDef> {
    Arc::clone(fixture::table(&store.catalog(), TABLE))
}

fn new_store() -> Arc<Store> {
    let store = Store::new();
    let pkey = fixture::index(PKEY, "t_pkey", TABLE, &[0], IndexMethod::Both);
    let def = TableDef::new(TABLE, "t", vec![ColumnDef::new("id", SqlType::Int8)]).with_index(IndexDef {
        primary: true,
        unique: true,
        ..pkey
    });
    fixture::batch(&store, |batch| {
        batch.apply_catalog(&CatalogOp::CreateTable(def)).unwrap();
    });
    store
}

/// Applies a change of definitions to both; nothing if there is no such column or index.
fn apply_change(batch: &mut BatchWriter<'_>, model: &mut Model, change: &Change) {
    let def = Arc::clone(fixture::table(batch.catalog(), TABLE));
    let behind_id = def.columns.len() - 1;
    let next = batch.catalog().next_object_id();
    let op = match change {
        Change::Add(ty, fill) => {
            let fill = value(&TYPES[*ty], *fill);
            model.values_mut().for_each(|row| row.push(fill.clone()));
            CatalogOp::AddColumn {
                table: TABLE,
                column: ColumnDef::new(format!("c{}", batch.catalog().version().0), TYPES[*ty]),
                fill,
            }
        }
        Change::Drop(_) | Change::Index(..) if behind_id == 0 => return,
        Change::Drop(n) => {
            model.values_mut().for_each(|row| drop(row.remove(n % behind_id)));
            CatalogOp::DropColumn {
                table: TABLE,
                column: (1 + n % behind_id) as u32,
            }
        }
        Change::Index(n, m, method) => {
            let columns = [1 + n % behind_id, m % (behind_id + 1)];
            let name = format!("i{next}");
            CatalogOp::CreateIndex(fixture::index(IndexId(next), &name, TABLE, &columns, *method))
        }
        Change::DropIndex(_) if def.indexes.len() == 1 => return,
        Change::DropIndex(n) => CatalogOp::DropIndex(def.indexes[1 + n % (def.indexes.len() - 1)].id),
        Change::Truncate => {
            model.clear();
            CatalogOp::Truncate(TABLE)
        }
    };
    batch.apply_catalog(&op).unwrap();
}

fn encoded(def: &TableDef, id: i64, row: &[Value]) -> Vec<u8> {
    let mut values = vec![Value::Int8(id)];
    values.extend_from_slice(row);
    def.layout.encode(&values).unwrap()
}

fn apply_writes(batch: &BatchWriter<'_>, model: &mut Model, writes: &[Write]) {
    let def = Arc::clone(fixture::table(batch.catalog(), TABLE));
    let types = def.types();
    let mut member = batch.member(0);
    for write in writes {
        let (Write::Put(id, _) | Write::Set(id, ..) | Write::Remove(id)) = write;
        let slot = member.locate(TABLE, &Locator::Key(fixture::id_key(*id))).unwrap();
        assert_eq!(slot.is_some(), model.contains_key(id));
        match write {
            Write::Put(_, seed) => {
                let values =
                    (0..types.len() - 1).map(|n| value(&types[n + 1], seed.wrapping_add(n as u8 * 7)));
                model.insert(*id, values.collect());
            }
            Write::Set(_, n, seed) => {
                let Some(row) = model.get_mut(id).filter(|row| !row.is_empty()) else {
                    continue;
                };
                let n = n % row.len();
                row[n] = value(&types[n + 1], *seed);
            }
            Write::Remove(_) => drop(model.remove(id)),
        }
        match (slot, model.get(id)) {
            (Some(slot), Some(row)) => member.update(TABLE, slot, &encoded(&def, *id, row)).unwrap(),
            (Some(slot), None) => member.remove(TABLE, slot).unwrap(),
            (None, Some(row)) => drop(member.insert(TABLE, &encoded(&def, *id, row)).unwrap()),
            (None, None) => {}
        }
    }
    member.commit();
}

fn run_batch(store: &Arc<Store>, model: &mut Model, changes: &[Change], writes: &[Write], publishes: bool) {
    let before = (store.state_digest(), model.clone());
    let id = BatchId(store.boundary().0 + 1);
    let mut batch = store.begin_batch(id);
    changes
        .iter()
        .for_each(|change| apply_change(&mut batch, model, change));
    apply_writes(&batch, model, writes);
    if publishes {
        batch.finish();
        store.publish(id);
    } else {
        batch.abort();
        assert_eq!(store.state_digest(), before.0);
        *model = before.1;
    }
}

fn decoded(def: &TableDef, row: &RowVersion<'_>) -> (i64, Vec<Value>) {
    let mut values = def.layout.decode(row.bytes).unwrap();
    match values.remove(0) {
        Value::Int8(id) => (id, values),
        other => panic!("{other:?}"),
    }
}

fn unpacked(ty: &SqlType, value: Option<packed::Value<'_>>) -> Value {
    match (ty, value) {
        (_, None) => Value::Null,
        (_, Some(packed::Value::Bool(value))) => Value::Bool(value),
        (_, Some(packed::Value::I32(value))) => Value::Int4(value),
        (_, Some(packed::Value::I64(value))) => Value::Int8(value),
        (SqlType::Text, Some(packed::Value::Bytes(value))) => {
            Value::Text(String::from_utf8(value.into_owned()).unwrap())
        }
        (_, Some(packed::Value::Bytes(value))) => Value::Bytea(value.into_owned()),
        other => panic!("{other:?}"),
    }
}

/// All rows as a query reads them, in copied columns where there are some.
fn in_columns(snapshot: &Snapshot, def: &TableDef) -> Model {
    let columns: Vec<usize> = (0..def.columns.len()).collect();
    let mut rows = Model::new();
    for chunk in 0..snapshot.scan_chunks(TABLE) {
        let see = |row: RowVersion<'_>| rows.extend([decoded(def, &row)]);
        let Some(copy) = snapshot.read_chunk_columns(TABLE, chunk, &columns, see).unwrap() else {
            let see = |row: RowVersion<'_>| rows.extend([decoded(def, &row)]);
            snapshot.scan_chunk(TABLE, chunk, see).unwrap();
            continue;
        };
        for offset in copy.mask().offsets() {
            let of = |column: &usize| {
                let segment = copy.column(*column).unwrap().column(0).unwrap();
                unpacked(&def.columns[*column].ty, segment.get(offset as usize).unwrap())
            };
            let mut values: Vec<Value> = columns.iter().map(of).collect();
            let Value::Int8(id) = values.remove(0) else {
                panic!("no id");
            };
            rows.insert(id, values);
        }
    }
    rows
}

fn check(snapshot: &Snapshot, model: &Model) {
    let def = fixture::table(snapshot.catalog(), TABLE);
    let mut scanned = Model::new();
    for chunk in 0..snapshot.scan_chunks(TABLE) {
        let see = |row: RowVersion<'_>| scanned.extend([decoded(def, &row)]);
        snapshot.scan_chunk(TABLE, chunk, see).unwrap();
    }
    assert_eq!(&scanned, model);
    assert_eq!(&in_columns(snapshot, def), model);
    assert_eq!(snapshot.verify_digest().unwrap(), snapshot.digest());
    for (id, values) in model {
        let found = snapshot.lookup_one(TABLE, PKEY, &fixture::id_key(*id)).unwrap();
        let found = found.expect("by its key");
        assert_eq!((*id, values.clone()), decoded(def, &found));
        assert_eq!(snapshot.get(TABLE, found.slot).unwrap(), Some(found));
        for index in def.indexes.iter().skip(1) {
            let of = |column: &usize| {
                column
                    .checked_sub(1)
                    .map_or(Value::Int8(*id), |n| values[n].clone())
            };
            let key: Vec<Value> = index.columns.iter().map(of).collect();
            let mut ids = Vec::new();
            let see = |row| {
                ids.push(decoded(def, &row).0);
                ControlFlow::Continue(())
            };
            snapshot
                .lookup(TABLE, index.id, &fixture::key(&key), see)
                .unwrap();
            assert!(ids.contains(id), "{id} by {index:?}");
        }
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    for index in def.indexes.iter().filter(|index| index.method.is_ordered()) {
        let rows = snapshot
            .range(TABLE, index.id, all.0, all.1, false, usize::MAX)
            .unwrap();
        let rows: Model = rows.iter().map(|row| decoded(def, row)).collect();
        assert_eq!(&rows, model, "by {index:?}");
    }
}

/// With no reader left and everything collected, there are the entries of the live rows and no others.
fn check_nothing_left(store: &Arc<Store>, model: &Model) {
    fixture::settle(store);
    let stats = store.memory_stats();
    assert_eq!((stats.superseded_rows, stats.unlinked_versions), (0, 0));
    let table = table(store);
    let ordered = table.indexes.iter().filter(|index| index.method.is_ordered());
    assert_eq!(stats.ordered_entries, (ordered.count() * model.len()) as u64);
    assert_eq!(store.snapshot().row_count_estimate(TABLE), model.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn columns_come_and_go_as_in_the_model(steps in proptest::collection::vec(step(), 1..50)) {
        let mut store = new_store();
        let disk = SimDisk::new(1);
        let mut checkpoints = checkpoint::open_with(&disk, &checkpoint::tiny()).unwrap();
        let (mut evictor, mut refiller) = (Evictor::default(), Refiller::default());
        let mut model = Model::new();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for step in &steps {
            match step {
                Step::Batch { changes, writes, publishes } => {
                    run_batch(&store, &mut model, changes, writes, *publishes);
                    check(&store.snapshot(), &model);
                }
                Step::TakeSnapshot => held.push((store.snapshot(), model.clone())),
                Step::DropSnapshot(at) if !held.is_empty() => {
                    let at = at % held.len();
                    let (snapshot, then) = held.swap_remove(at);
                    // Rows that a later checkpoint has removed from the disk are gone for it.
                    if snapshot.verify_digest().is_ok() {
                        check(&snapshot, &then);
                    }
                }
                Step::DropSnapshot(_) => {}
                Step::Collect(budget) => drop(store.collect_garbage(*budget)),
                Step::CopyColumns => {
                    in_columns(&store.snapshot(), &table(&store));
                    ColumnKeeper::new(u64::MAX, fixture::EAGER).keep(&store, &mut || true);
                    check(&store.snapshot(), &model);
                }
                Step::Checkpoint => drop(checkpoint::write(&mut checkpoints, &store).unwrap()),
                Step::Evict(steps) => (0..*steps).for_each(|_| {
                    evictor.step(&store, true).unwrap();
                }),
                Step::Refill(steps) => (0..*steps).for_each(|_| {
                    refiller.step(&store, u64::MAX).unwrap();
                }),
                Step::Reopen | Step::ReopenByImage => {
                    held.clear();
                    fixture::settle(&store);
                    checkpoint::write(&mut checkpoints, &store).unwrap();
                    if matches!(step, Step::ReopenByImage) {
                        prop_assert!(checkpoints.write_image(&store).unwrap());
                    }
                    drop(checkpoints);
                    let digest = store.state_digest();
                    (checkpoints, store) = image::reopen(&disk);
                    prop_assert_eq!(store.state_digest(), digest);
                    check(&store.snapshot(), &model);
                }
            }
        }
        for (snapshot, then) in &held {
            if snapshot.verify_digest().is_ok() {
                check(snapshot, then);
            }
        }
        check(&store.snapshot(), &model);
        drop(held);
        check_nothing_left(&store, &model);
    }
}

/// A change of columns writes no row, however many there are; what was read before stays readable.
#[test]
fn no_row_is_written() {
    let store = checkpoint::filled(300);
    fixture::settle(&store);
    let before = store.snapshot();
    let bytes = store.memory_stats().version_bytes;
    let at = store.boundary();
    fixture::batch(&store, |batch| {
        let op = CatalogOp::AddColumn {
            table: fixture::ITEMS,
            column: ColumnDef::new("note", SqlType::Text),
            fill: Value::Text("filled".into()),
        };
        batch.apply_catalog(&op).unwrap();
    });
    let after = store.snapshot();
    let row = after
        .lookup_one(fixture::ITEMS, fixture::ITEMS_PKEY, &fixture::id_key(7))
        .unwrap()
        .unwrap();
    assert!(row.batch <= at, "it is as old as it was");
    let layout = &fixture::table(after.catalog(), fixture::ITEMS).layout;
    assert_eq!(layout.value(row.bytes, 3), Value::Text("filled".into()));
    let old = before.get(fixture::ITEMS, row.slot).unwrap().unwrap();
    assert_eq!((old.row_id, fixture::decode(&old).0), (row.row_id, 7));
    assert_eq!(store.memory_stats().version_bytes, bytes);
}

/// A table has a bounded number of earlier layouts; then its rows are written anew.
#[test]
fn after_many_changes_the_rows_are_written_anew() {
    let store = new_store();
    let mut model = Model::from([(1, Vec::new()), (2, Vec::new())]);
    fixture::batch(&store, |batch| {
        let mut member = batch.member(0);
        for id in model.keys() {
            member.insert(TABLE, &encoded(&table(&store), *id, &[])).unwrap();
        }
        member.commit();
    });
    let born = store.boundary();
    let newest = |store: &Arc<Store>| {
        let snapshot = store.snapshot();
        let row = snapshot.lookup_one(TABLE, PKEY, &fixture::id_key(1)).unwrap();
        row.unwrap().batch
    };
    for round in 0..2 * EARLIER_LAYOUTS_MAX + 3 {
        let change = match round % 3 {
            2 => Change::Drop(round),
            _ => Change::Add(round % TYPES.len(), round as u8),
        };
        let write = Write::Set(2, round, 1);
        let before = (store.snapshot(), model.clone());
        // Two changes in one batch leave one layout, and the second one finds rows of this batch.
        run_batch(&store, &mut model, &[change, Change::Add(1, 2)], &[write], true);
        check(&store.snapshot(), &model);
        check(&before.0, &before.1);
        assert_eq!(
            newest(&store) == born,
            round < EARLIER_LAYOUTS_MAX,
            "round {round}"
        );
    }
}
