//! A table with every kind of index, and short ways to write rows and keys.

use std::sync::Arc;
use std::time::Duration;

use weft_base::{BatchId, IndexId, TableId};
use weft_column::segment as packed;
use weft_store::columns::CopyPolicy;
use weft_store::{
    BatchWriter, Catalog, CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, MemberWriter,
    RowVersion, Snapshot, Store, TableDef,
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

/// Every chunk that was read once is copied.
pub const EAGER: CopyPolicy = CopyPolicy {
    regions_min: 0,
    reads_min: 1,
    holes_reads_min: 1,
    forget_after: Duration::ZERO,
};

/// The rows of a snapshot as a query reads them: in columns where they are copied, else in their slots. Of
/// columns that were not asked for, and of rows without them, the value is that of `fill`.
pub fn read_columns(snapshot: &Snapshot, columns: &[usize], fill: &Item) -> Vec<Item> {
    let chosen = |item: Item| {
        (
            if columns.contains(&0) { item.0 } else { fill.0 },
            if columns.contains(&1) { item.1 } else { fill.1 },
            if columns.contains(&2) {
                item.2
            } else {
                fill.2.clone()
            },
        )
    };
    let mut rows = Vec::new();
    for chunk in 0..snapshot.scan_chunks(ITEMS) {
        let visit = |row: RowVersion<'_>| rows.push(chosen(decode(&row)));
        let Some(packed) = snapshot.read_chunk_columns(ITEMS, chunk, columns, visit).unwrap() else {
            snapshot
                .scan_chunk(ITEMS, chunk, |row| rows.push(chosen(decode(&row))))
                .unwrap();
            continue;
        };
        for offset in (0..4096).filter(|offset| packed.mask().has(*offset)) {
            let value = |column: usize| {
                let column = packed.column(column).unwrap().column(0).unwrap();
                column.get(offset).unwrap()
            };
            let mut item = fill.clone();
            for column in columns {
                match (column, value(*column)) {
                    (0, Some(packed::Value::I64(id))) => item.0 = id,
                    (1, Some(packed::Value::I32(kind))) => item.1 = Some(kind),
                    (2, Some(packed::Value::Bytes(name))) => {
                        item.2 = Some(String::from_utf8(name.into_owned()).unwrap())
                    }
                    (1, None) => item.1 = None,
                    (2, None) => item.2 = None,
                    (column, value) => panic!("{value:?} in column {column}"),
                }
            }
            rows.push(item);
        }
    }
    rows.sort();
    rows
}

/// Publishes an empty batch and collects until nothing is left to do.
pub fn settle(store: &Arc<Store>) {
    for _ in 0..3 {
        batch(store, |_| ());
        while store.collect_garbage(1_000) > 0 {}
    }
}
