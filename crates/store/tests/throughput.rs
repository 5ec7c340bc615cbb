//! Figures, not tests: run with `cargo test --release -p weft-store -- --ignored --nocapture throughput`.

use std::ops::Bound;
use std::time::Instant;

use weft_base::{IndexId, Prng, TableId};
use weft_store::{CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, Store, TableDef};
use weft_types::{SqlType, Value};

use crate::fixture;

const ROWS: u64 = 1_000_000;
const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const KEY: IndexId = IndexId(FIRST_OBJECT_ID + 1);

fn table(with_key: bool) -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("a", SqlType::Int4),
        ColumnDef::new("b", SqlType::Int4),
    ];
    let def = TableDef::new(TABLE, "t", columns);
    let key = fixture::index(KEY, "t_pkey", TABLE, &[0], IndexMethod::Both);
    if with_key {
        def.with_index(IndexDef {
            primary: true,
            unique: true,
            ..key
        })
    } else {
        def
    }
}

fn report(what: &str, count: u64, start: Instant) {
    let elapsed = start.elapsed();
    let each = elapsed.as_nanos() as f64 / count as f64;
    println!("{what:<44} {each:9.1} ns each, {:8.2} M/s", 1_000.0 / each);
}

#[test]
#[ignore = "prints figures"]
fn throughput() {
    for with_key in [false, true] {
        let store = Store::new();
        fixture::batch(&store, |batch| {
            batch
                .apply_catalog(&CatalogOp::CreateTable(table(with_key)))
                .unwrap();
        });
        let layout = table(false).layout;
        let mut row = layout
            .encode(&[Value::Int8(0), Value::Int4(1), Value::Int4(2)])
            .unwrap();
        let start = Instant::now();
        fixture::member(&store, |member| {
            for id in 0..ROWS {
                layout.set_fixed_u64(&mut row, 0, id);
                member.insert(TABLE, &row).unwrap();
            }
            report(
                if with_key {
                    "insert, primary key"
                } else {
                    "insert, no index but row ids"
                },
                ROWS,
                start,
            );
        });
        report("  with digest and publish", ROWS, start);
        if !with_key {
            continue;
        }
        let snapshot = store.snapshot();
        let mut random = Prng::new(1);
        for (what, within) in [
            ("point lookup, 1000 hot rows", 1_000),
            ("point lookup, all rows", ROWS),
        ] {
            let mut key = Vec::new();
            let start = Instant::now();
            for _ in 0..ROWS {
                key.clear();
                weft_types::encode_key_value(&mut key, &Value::Int8(random.below(within) as i64));
                assert!(snapshot.lookup_one(TABLE, KEY, &key).unwrap().is_some());
            }
            report(what, ROWS, start);
        }
        let start = Instant::now();
        let rows = snapshot
            .range(TABLE, KEY, Bound::Unbounded, Bound::Unbounded, false, usize::MAX)
            .unwrap();
        report("range over all rows, per row", rows.len() as u64, start);
        let start = Instant::now();
        assert_eq!(snapshot.verify_digest(), snapshot.digest());
        report("digest of all rows, per row", ROWS, start);
        drop(rows);
        drop(snapshot);

        let start = Instant::now();
        for _ in 0..ROWS {
            std::hint::black_box(store.snapshot().batch());
        }
        report("snapshot", ROWS, start);
        let mut reader = store.reader();
        let start = Instant::now();
        for _ in 0..ROWS {
            std::hint::black_box(reader.pin().view().batch());
        }
        report("pinned reader", ROWS, start);

        let start = Instant::now();
        for number in 0..ROWS / 10 {
            fixture::member(&store, |member| {
                let key = fixture::id_key(random.below(ROWS) as i64);
                let found = member.lookup_one(TABLE, KEY, &key).unwrap().unwrap();
                let mut row = found.bytes.to_vec();
                layout.set_fixed_u64(&mut row, 1, number);
                member.update(TABLE, found.slot, &row).unwrap();
            });
            store.collect_garbage(64);
        }
        report("batch of one update, published, collected", ROWS / 10, start);
    }
}
