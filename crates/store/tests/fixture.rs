//! A table with every kind of index, and short ways to write rows and keys.

use std::sync::Arc;

use weft_base::{BatchId, IndexId, TableId};
use weft_store::{
    BatchWriter, Catalog, CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, MemberWriter,
    RowVersion, Store, TableDef,
};
use weft_types::{SqlType, Value, encode_key_value};

pub const ITEMS: TableId = TableId(FIRST_OBJECT_ID);
pub const ITEMS_PKEY: IndexId = IndexId(FIRST_OBJECT_ID + 1);
pub const ITEMS_NAME: IndexId = IndexId(FIRST_OBJECT_ID + 2);
pub const ITEMS_KIND: IndexId = IndexId(FIRST_OBJECT_ID + 3);
pub const ITEMS_KIND_HASH: IndexId = IndexId(FIRST_OBJECT_ID + 4);
/// A table without primary key.
pub const NOTES: TableId = TableId(FIRST_OBJECT_ID + 5);

pub fn index(id: IndexId, name: &str, table: TableId, columns: &[usize], method: IndexMethod) -> IndexDef {
    IndexDef {
        id,
        name: name.into(),
        table,
        columns: columns.to_vec(),
        unique: false,
        primary: false,
        method,
    }
}

/// items (id bigint primary key, kind integer, name text unique), with an ordered and a hash index on kind.
pub fn items() -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("kind", SqlType::Int4),
        ColumnDef::new("name", SqlType::Text),
    ];
    let primary = index(ITEMS_PKEY, "items_pkey", ITEMS, &[0], IndexMethod::Both);
    let name = index(ITEMS_NAME, "items_name_key", ITEMS, &[2], IndexMethod::Both);
    TableDef::new(ITEMS, "items", columns)
        .with_index(IndexDef {
            primary: true,
            unique: true,
            ..primary
        })
        .with_index(IndexDef { unique: true, ..name })
        .with_index(index(
            ITEMS_KIND,
            "items_kind_idx",
            ITEMS,
            &[1],
            IndexMethod::Ordered,
        ))
        .with_index(index(
            ITEMS_KIND_HASH,
            "items_kind_hash",
            ITEMS,
            &[1],
            IndexMethod::Hash,
        ))
}

/// notes (body text, weight float8), no primary key.
pub fn notes() -> TableDef {
    TableDef::new(
        NOTES,
        "notes",
        vec![
            ColumnDef::new("body", SqlType::Text),
            ColumnDef::new("weight", SqlType::Float8),
        ],
    )
}

/// A store with both tables, at boundary 1.
pub fn store() -> Arc<Store> {
    let store = Store::new();
    let mut batch = store.begin_batch(BatchId(1));
    batch.apply_catalog(&CatalogOp::CreateTable(items())).unwrap();
    batch.apply_catalog(&CatalogOp::CreateTable(notes())).unwrap();
    batch.finish();
    store.publish(BatchId(1));
    store
}

/// Runs one batch and publishes it; returns the state digest.
pub fn batch(store: &Arc<Store>, work: impl FnOnce(&mut BatchWriter<'_>)) -> u64 {
    let id = BatchId(store.boundary().0 + 1);
    let mut batch = store.begin_batch(id);
    work(&mut batch);
    let digest = batch.finish();
    store.publish(id);
    digest
}

/// Runs one batch with one member that commits.
pub fn member(store: &Arc<Store>, work: impl FnOnce(&mut MemberWriter<'_>)) -> u64 {
    batch(store, |batch| {
        let mut member = batch.member(0);
        work(&mut member);
        member.commit();
    })
}

pub fn table(catalog: &Catalog, id: TableId) -> &Arc<TableDef> {
    catalog.table_by_id(id).unwrap()
}

pub fn item_values(id: i64, kind: Option<i32>, name: Option<&str>) -> Vec<Value> {
    vec![
        Value::Int8(id),
        kind.map_or(Value::Null, Value::Int4),
        name.map_or(Value::Null, |name| Value::Text(name.to_owned())),
    ]
}

pub fn item(id: i64, kind: Option<i32>, name: Option<&str>) -> Vec<u8> {
    items().layout.encode(&item_values(id, kind, name)).unwrap()
}

pub fn note(body: &str, weight: f64) -> Vec<u8> {
    notes()
        .layout
        .encode(&[Value::Text(body.to_owned()), Value::Float8(weight)])
        .unwrap()
}

pub fn key(values: &[Value]) -> Vec<u8> {
    let mut key = Vec::new();
    values.iter().for_each(|value| encode_key_value(&mut key, value));
    key
}

pub fn id_key(id: i64) -> Vec<u8> {
    key(&[Value::Int8(id)])
}

/// An item as (id, kind, name).
pub type Item = (i64, Option<i32>, Option<String>);

pub fn decode(row: &RowVersion<'_>) -> Item {
    let mut values = items().layout.decode(row.bytes).unwrap().into_iter();
    let id = match values.next().unwrap() {
        Value::Int8(id) => id,
        other => panic!("{other:?}"),
    };
    let kind = match values.next().unwrap() {
        Value::Null => None,
        Value::Int4(kind) => Some(kind),
        other => panic!("{other:?}"),
    };
    let name = match values.next().unwrap() {
        Value::Null => None,
        Value::Text(name) => Some(name),
        other => panic!("{other:?}"),
    };
    (id, kind, name)
}

/// Publishes an empty batch and collects until nothing is left to do.
pub fn settle(store: &Arc<Store>) {
    for _ in 0..3 {
        batch(store, |_| ());
        while store.collect_garbage(1_000) > 0 {}
    }
}
