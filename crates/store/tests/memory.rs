//! What rows take, and that looking up many keys at once finds what looking up each finds.

use weft_base::{IndexId, Prng, TableId};
use weft_store::{
    CatalogOp, ColumnDef, FIRST_OBJECT_ID, Fetch, IndexDef, IndexMethod, LookupPlan, ReadView, Store,
    TableDef,
};
use weft_types::{SqlType, Value};

use crate::fixture;

const TABLE: TableId = TableId(FIRST_OBJECT_ID);
const KEY: IndexId = IndexId(FIRST_OBJECT_ID + 1);
const KIND: IndexId = IndexId(FIRST_OBJECT_ID + 2);
const ORDERED: IndexId = IndexId(FIRST_OBJECT_ID + 3);

/// (id bigint primary key, kind integer, body bytea)
fn table() -> TableDef {
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("kind", SqlType::Int4),
        ColumnDef::new("body", SqlType::Bytea),
    ];
    let key = fixture::index(KEY, "t_pkey", TABLE, &[0], IndexMethod::Hash);
    TableDef::new(TABLE, "t", columns)
        .with_index(IndexDef {
            primary: true,
            unique: true,
            ..key
        })
        .with_index(fixture::index(KIND, "t_kind", TABLE, &[1], IndexMethod::Hash))
        .with_index(fixture::index(
            ORDERED,
            "t_ordered",
            TABLE,
            &[0],
            IndexMethod::Ordered,
        ))
}

fn row(id: i64, body: usize) -> Vec<u8> {
    let values = [
        Value::Int8(id),
        Value::Int4((id % 7) as i32),
        Value::Bytea(vec![id as u8; body]),
    ];
    table().layout.encode(&values).unwrap()
}

fn filled(rows: i64, body: impl Fn(i64) -> usize) -> std::sync::Arc<Store> {
    let store = Store::new();
    fixture::batch(&store, |batch| {
        batch.apply_catalog(&CatalogOp::CreateTable(table())).unwrap();
    });
    fixture::member(&store, |member| {
        for id in 0..rows {
            member.insert(TABLE, &row(id, body(id))).unwrap();
        }
    });
    store
}

/// Rewrites every row, or every third one, with a body as long as before.
fn rewrite(store: &std::sync::Arc<Store>, rows: i64, body: usize, step: usize) {
    fixture::member(store, |member| {
        for id in (0..rows).step_by(step) {
            let slot = member
                .lookup_one(TABLE, KEY, &fixture::id_key(id))
                .unwrap()
                .unwrap()
                .slot;
            member.update(TABLE, slot, &row(id, body)).unwrap();
        }
    });
}

#[test]
fn a_row_takes_at_most_its_data_and_a_third_and_24_bytes() {
    for body in [80, 100, 200, 1_000, 2_000] {
        let rows = 5_000;
        let store = filled(rows, |_| body);
        let data = row(0, body).len() as u64;
        let check = |when: &str| {
            let stats = store.memory_stats();
            let each = (stats.slot_bytes + stats.block_bytes) / rows as u64;
            assert!(each <= data * 13 / 10 + 24, "{when}: {each} for {data}");
            assert_eq!(stats.version_bytes, rows as u64 * (data + 24), "{when}");
            assert!(stats.huge_page_bytes + stats.ordinary_page_bytes >= stats.slot_bytes);
        };
        check("inserted");
        // Superseded versions and rows outside their slot are gone once everything is collected.
        rewrite(&store, rows, body, 1);
        fixture::settle(&store);
        check("rewritten");
        for _ in 0..5 {
            rewrite(&store, rows, body, 3);
            store.collect_garbage(usize::MAX);
        }
        fixture::settle(&store);
        check("rewritten in parts");
    }
}

#[test]
fn steady_updates_take_no_more_memory() {
    let rows = 2_000;
    let store = filled(rows, |_| 100);
    let mut sizes = Vec::new();
    for _ in 0..30 {
        rewrite(&store, rows, 100, 1);
        store.collect_garbage(usize::MAX);
        let stats = store.memory_stats();
        sizes.push((
            stats.slot_bytes,
            stats.huge_page_bytes + stats.ordinary_page_bytes,
        ));
    }
    assert_eq!(sizes[5], sizes[29], "{sizes:?}");
}

fn check_group(view: ReadView<'_>, index: IndexId, keys: &[Vec<u8>], fetch: Fetch) {
    let mut expected = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        view.lookup(TABLE, index, key, |row| {
            expected.push((at, row));
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    }
    let mut found = Vec::new();
    view.lookup_group(TABLE, index, keys, fetch, |at, row| found.push((at, row)))
        .unwrap();
    assert!(found.is_sorted_by_key(|(at, _)| *at));
    let order = |(at, row): &(usize, weft_store::RowVersion<'_>)| (*at, row.slot);
    found.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(found, expected);
}

#[test]
fn groups_find_what_single_lookups_find() {
    let rows = 3_000;
    let store = filled(rows, |id| (id as usize * 7) % 300);
    let old = store.snapshot();
    rewrite(&store, rows, 150, 3);
    fixture::member(&store, |member| {
        for id in (0..rows).step_by(5) {
            let slot = member
                .lookup_one(TABLE, KEY, &fixture::id_key(id))
                .unwrap()
                .unwrap()
                .slot;
            member.remove(TABLE, slot).unwrap();
        }
    });
    let new = store.snapshot();
    let mut random = Prng::new(3);
    for count in [0, 1, 15, 16, 17, 63, 64, 200] {
        let ids: Vec<Vec<u8>> = (0..count)
            .map(|_| fixture::id_key(random.below(rows as u64 + 100) as i64))
            .collect();
        let kinds: Vec<Vec<u8>> = (0..count.min(9))
            .map(|kind| fixture::key(&[Value::Int4(kind)]))
            .collect();
        for view in [old.view(), new.view()] {
            for fetch in [
                Fetch::Bytes(0),
                Fetch::Bytes(u32::MAX),
                Fetch::Column(2),
                Fetch::Column(99),
            ] {
                check_group(view, KEY, &ids, fetch);
                check_group(view, ORDERED, &ids, fetch);
                check_group(view, KIND, &kinds, fetch);
                check_plans(view, &ids, fetch);
            }
        }
    }
    assert!(
        old.view()
            .lookup_group(TABLE, IndexId(9), &[[0u8]], Fetch::Bytes(0), |_, _| ())
            .is_err()
    );
}

/// Lookups that are planned together, in both kinds of index, and of a range in between, find what lookups
/// alone find; so do probes.
fn check_plans(view: ReadView<'_>, keys: &[Vec<u8>], fetch: Fetch) {
    let mut plan = LookupPlan::new(view);
    let mut probes: Vec<weft_store::Probe> = Vec::new();
    for key in keys {
        plan.push(TABLE, KEY, key, fetch);
        plan.push_range(TABLE, ORDERED, key, fetch);
        plan.push(TABLE, ORDERED, key, fetch);
        plan.push_nothing();
        plan.push(TABLE, IndexId(9), key, fetch);
        probes.push(view.begin_probe(TABLE, KEY, key).with_fetch(fetch));
    }
    assert_eq!((plan.len(), plan.in_flight()), (5 * keys.len(), 3 * keys.len()));
    for probe in &mut probes {
        while view.advance_probe(probe) {}
    }
    plan.finish();
    let mut planned = plan.part(0..5 * keys.len());
    planned.fetch_first_rests();
    for (number, (key, probe)) in keys.iter().zip(&probes).enumerate() {
        let found = view.lookup_one(TABLE, KEY, key).unwrap();
        let mut by = |at: usize, index| {
            planned
                .lookup(5 * number + at, &view, (TABLE, index), key)
                .unwrap()
        };
        assert_eq!(view.lookup_probed(TABLE, KEY, key, probe).unwrap(), found);
        // Whatever the lookup was planned for.
        for at in 0..5 {
            assert_eq!(by(at, KEY), found);
            assert_eq!(by(at, ORDERED), found);
        }
        assert_eq!(by(10_000, KEY), found);
        assert!(planned.lookup(0, &view, (TABLE, IndexId(9)), key).is_err());
    }
}

/// What of a row did not come with its slot is fetched later, once.
#[test]
fn long_rows_have_a_rest_to_fetch() {
    let rests = |body_bytes: usize, fetch: Fetch| {
        let store = filled(300, |_| body_bytes);
        let (snapshot, mut rests) = (store.snapshot(), 0);
        let view = snapshot.view();
        for count in [0, 1, 20, 100] {
            let mut plan = LookupPlan::new(view);
            for key in (0..count).map(fixture::id_key) {
                plan.push(TABLE, KEY, &key, fetch);
            }
            plan.finish();
            let mut planned = plan.part(0..count as usize);
            let fetched = planned.fetch_all_rests();
            assert_eq!(planned.fetch_all_rests(), 0, "{count} rows of {body_bytes} bytes");
            rests += fetched;
        }
        rests
    };
    assert_eq!(rests(600, Fetch::Bytes(u32::MAX)), 121);
    assert_eq!(rests(600, Fetch::Bytes(100)), 0);
    assert_eq!(rests(600, Fetch::Column(2)), 0);
    assert_eq!(rests(20, Fetch::Bytes(u32::MAX)), 0);
}

#[test]
fn groups_find_all_rows_that_are_null_in_a_unique_index() {
    for method in [IndexMethod::Hash, IndexMethod::Both] {
        let unique = IndexId(FIRST_OBJECT_ID + 4);
        let index = fixture::index(unique, "t_unique", TABLE, &[1], method);
        let def = table().with_index(IndexDef {
            unique: true,
            ..index
        });
        let store = Store::new();
        fixture::batch(&store, |batch| {
            batch.apply_catalog(&CatalogOp::CreateTable(def)).unwrap();
        });
        fixture::member(&store, |member| {
            for id in 0..40_i64 {
                let kind = if id < 30 {
                    Value::Null
                } else {
                    Value::Int4(id as i32)
                };
                let values = [Value::Int8(id), kind, Value::Bytea(vec![1; 50])];
                member
                    .insert(TABLE, &table().layout.encode(&values).unwrap())
                    .unwrap();
            }
        });
        let snapshot = store.snapshot();
        let keys =
            [Value::Null, Value::Int4(30), Value::Int4(2), Value::Null].map(|value| fixture::key(&[value]));
        check_group(snapshot.view(), unique, &keys, Fetch::Bytes(0));
        let mut count = 0;
        let count_row = |_, _| count += 1;
        snapshot
            .view()
            .lookup_group(TABLE, unique, &keys, Fetch::Bytes(0), count_row)
            .unwrap();
        assert_eq!(count, 61, "{method:?}");
    }
}
