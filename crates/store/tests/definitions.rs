//! Changes of definitions over rows that exist: what readers see before and after, what is refused, what
//! the digest says.

use std::ops::{Bound, ControlFlow};

use weft_base::{BatchId, IndexId, TableId};
use weft_store::{CatalogOp, ColumnDef, FIRST_OBJECT_ID, IndexDef, IndexMethod, Locator, Store, TableDef};
use weft_types::{SqlType, Value};

use crate::fixture::{self, ITEMS, ITEMS_PKEY, NOTES};

fn with_rows() -> std::sync::Arc<Store> {
    let store = fixture::store();
    fixture::member(&store, |member| {
        for id in 0..300 {
            member
                .insert(ITEMS, &fixture::item(id, Some((id % 7) as i32), None))
                .unwrap();
            member
                .insert(NOTES, &fixture::note(&format!("note {id}"), (id % 100) as f64))
                .unwrap();
        }
    });
    store
}

fn next_index(store: &std::sync::Arc<Store>) -> IndexId {
    IndexId(store.catalog().next_object_id())
}

#[test]
fn an_index_appears_with_the_boundary() {
    let store = with_rows();
    let before = store.snapshot();
    let id = next_index(&store);
    fixture::batch(&store, |batch| {
        let member = batch.member(0);
        let slot = member
            .locate(ITEMS, &Locator::Key(fixture::id_key(3)))
            .unwrap()
            .unwrap();
        let mut member = member;
        member.remove(ITEMS, slot).unwrap();
        member.commit();
        let index = fixture::index(id, "items_kind_id_idx", ITEMS, &[1, 0], IndexMethod::Ordered);
        batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
        let mut member = batch.member(1);
        member
            .insert(ITEMS, &fixture::item(1_000, Some(3), None))
            .unwrap();
        member.commit();
    });
    let all = (Bound::Unbounded, Bound::Unbounded);
    assert_eq!(
        before
            .range(ITEMS, id, all.0, all.1, false, 9)
            .unwrap_err()
            .state
            .code(),
        "42704"
    );
    let after = store.snapshot();
    assert_eq!(
        after
            .range(ITEMS, id, all.0, all.1, false, usize::MAX)
            .unwrap()
            .len(),
        300
    );
    let three = fixture::key(&[Value::Int4(3)]);
    let end = weft_store::prefix_successor(&three).unwrap();
    let rows = after
        .range(
            ITEMS,
            id,
            Bound::Included(three.as_slice()),
            Bound::Excluded(end.as_slice()),
            true,
            2,
        )
        .unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| fixture::decode(row).0).collect();
    assert_eq!(ids, [1_000, 297]);
    assert_eq!(after.verify_digest().unwrap(), after.digest());
    assert_eq!(before.verify_digest().unwrap(), before.digest());
}

#[test]
fn definitions_that_rows_violate_change_nothing() {
    let store = with_rows();
    let id = next_index(&store);
    let digest = store.state_digest();
    let unchanged = fixture::batch(&store, |batch| {
        let unique = IndexDef {
            unique: true,
            ..fixture::index(id, "items_kind_key", ITEMS, &[1], IndexMethod::Both)
        };
        let error = batch.apply_catalog(&CatalogOp::CreateIndex(unique)).unwrap_err();
        assert_eq!(error.state.code(), "23505");
        assert_eq!(error.message, "could not create unique index \"items_kind_key\"");
        assert_eq!(
            error.fields().detail.as_deref(),
            Some("Key (kind)=(0) is duplicated.")
        );

        let not_null = CatalogOp::SetNotNull {
            table: ITEMS,
            column: 2,
            not_null: true,
        };
        let error = batch.apply_catalog(&not_null).unwrap_err();
        assert_eq!(error.state.code(), "23502");
        assert_eq!(
            error.message,
            "column \"name\" of relation \"items\" contains null values"
        );

        let column = ColumnDef::new("extra", SqlType::Int4).not_null();
        let add = CatalogOp::AddColumn {
            table: ITEMS,
            column,
            fill: Value::Null,
        };
        assert_eq!(batch.apply_catalog(&add).unwrap_err().state.code(), "23502");

        let second = fixture::index(id, "again", ITEMS, &[0], IndexMethod::Both);
        let error = batch
            .apply_catalog(&CatalogOp::AddPrimaryKey(second))
            .unwrap_err();
        assert_eq!(
            error.message,
            "multiple primary keys for table \"items\" are not allowed"
        );
    });
    assert_eq!(unchanged, digest);
    assert_eq!(store.catalog().next_object_id(), id.0);
}

#[test]
fn columns_are_added_and_dropped() {
    let store = with_rows();
    fixture::settle(&store);
    let live = store.memory_stats().version_bytes;
    let before = store.snapshot();
    let row_id = before.get(NOTES, weft_store::SlotId(5)).unwrap().unwrap().row_id;
    fixture::batch(&store, |batch| {
        let column = ColumnDef::new("rank", SqlType::Int4).not_null();
        batch
            .apply_catalog(&CatalogOp::AddColumn {
                table: ITEMS,
                column,
                fill: Value::Int4(9),
            })
            .unwrap();
        batch
            .apply_catalog(&CatalogOp::DropColumn {
                table: ITEMS,
                column: 1,
            })
            .unwrap();
        batch
            .apply_catalog(&CatalogOp::DropColumn {
                table: NOTES,
                column: 0,
            })
            .unwrap();
    });
    let after = store.snapshot();
    let items = std::sync::Arc::clone(fixture::table(after.catalog(), ITEMS));
    let names: Vec<&str> = items.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "name", "rank"]);
    assert_eq!(
        items
            .indexes
            .iter()
            .map(|index| index.name.as_str())
            .collect::<Vec<_>>(),
        ["items_pkey", "items_name_key"]
    );
    assert_eq!(items.indexes[1].columns, [1]);
    let row = after
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(8))
        .unwrap()
        .unwrap();
    assert_eq!(
        items.layout.decode(row.bytes).unwrap(),
        [Value::Int8(8), Value::Null, Value::Int4(9)]
    );
    let slot = after.locate(NOTES, &Locator::RowId(row_id)).unwrap().unwrap();
    assert_eq!(after.get(NOTES, slot).unwrap().unwrap().row_id, row_id);
    assert_eq!(
        (after.verify_digest().unwrap(), before.verify_digest().unwrap()),
        (after.digest(), before.digest())
    );
    let old = before
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(8))
        .unwrap()
        .unwrap();
    assert_eq!(fixture::decode(&old), (8, Some(1), None));
    drop((before, after));
    fixture::settle(&store);
    assert_eq!(store.memory_stats().version_bytes, live, "no row was written");
}

#[test]
fn a_primary_key_is_replaced() {
    let store = with_rows();
    let digest = fixture::batch(&store, |batch| {
        batch.apply_catalog(&CatalogOp::DropIndex(ITEMS_PKEY)).unwrap();
    });
    let snapshot = store.snapshot();
    assert_eq!(snapshot.verify_digest().unwrap(), digest);
    let row = snapshot.get(ITEMS, weft_store::SlotId(4)).unwrap().unwrap();
    assert_eq!(
        snapshot.locate(ITEMS, &Locator::RowId(row.row_id)).unwrap(),
        Some(row.slot)
    );
    assert_eq!(
        snapshot.locate(ITEMS, &Locator::Key(fixture::id_key(4))).unwrap(),
        None
    );

    let id = next_index(&store);
    fixture::batch(&store, |batch| {
        let primary = fixture::index(id, "items_pk2", ITEMS, &[0], IndexMethod::Both);
        batch.apply_catalog(&CatalogOp::AddPrimaryKey(primary)).unwrap();
        let mut member = batch.member(0);
        let error = member.insert(ITEMS, &fixture::item(4, None, None)).unwrap_err();
        assert_eq!(error.fields().constraint.as_deref(), Some("items_pk2"));
        member.insert(ITEMS, &fixture::item(-4, None, None)).unwrap();
        member.commit();
    });
    assert!(
        store
            .snapshot()
            .locate(ITEMS, &Locator::Key(fixture::id_key(-4)))
            .unwrap()
            .is_some()
    );
}

#[test]
fn dropped_and_emptied_tables_are_removed_from_the_digest() {
    let store = with_rows();
    let before = store.snapshot();
    fixture::batch(&store, |batch| {
        // Rows of this very batch go with the table too.
        let mut member = batch.member(0);
        member.insert(NOTES, &fixture::note("late", 0.0)).unwrap();
        member.insert(ITEMS, &fixture::item(-1, None, None)).unwrap();
        member.commit();
        batch.apply_catalog(&CatalogOp::DropTable(NOTES)).unwrap();
        batch.apply_catalog(&CatalogOp::Truncate(ITEMS)).unwrap();
        let mut member = batch.member(1);
        assert_eq!(
            member
                .insert(NOTES, &fixture::note("gone", 0.0))
                .unwrap_err()
                .state
                .code(),
            "42P01"
        );
        member.insert(ITEMS, &fixture::item(3, None, None)).unwrap();
        member.commit();
    });
    let after = store.snapshot();
    assert_eq!(after.verify_digest().unwrap(), after.digest());
    assert_eq!(after.row_count_estimate(ITEMS), 1);
    assert!(after.get(NOTES, weft_store::SlotId(0)).unwrap().is_none());
    assert!(before.get(NOTES, weft_store::SlotId(0)).unwrap().is_some());
    assert_eq!(before.verify_digest().unwrap(), before.digest());
    drop((before, after));
    fixture::settle(&store);
    assert_eq!(
        store.memory_stats().version_bytes,
        24 + fixture::item(3, None, None).len() as u64
    );
}

#[test]
fn an_aborted_batch_undoes_its_definitions() {
    let store = with_rows();
    let (digest, catalog, bytes) = (
        store.state_digest(),
        store.catalog(),
        store.memory_stats().version_bytes,
    );
    let mut batch = store.begin_batch(BatchId(3));
    let mut member = batch.member(0);
    for id in 0..300 {
        let slot = member
            .locate(ITEMS, &Locator::Key(fixture::id_key(id)))
            .unwrap()
            .unwrap();
        member.remove(ITEMS, slot).unwrap();
        member
            .insert(ITEMS, &fixture::item(id, None, Some(&format!("{id}"))))
            .unwrap();
    }
    member.commit();
    batch.apply_catalog(&CatalogOp::DropTable(ITEMS)).unwrap();
    batch
        .apply_catalog(&CatalogOp::RenameTable {
            table: NOTES,
            name: "remarks".into(),
        })
        .unwrap();
    batch.abort();
    assert_eq!((store.state_digest(), store.catalog()), (digest, catalog));
    assert_eq!(store.snapshot().verify_digest().unwrap(), digest);
    fixture::settle(&store);
    let stats = store.memory_stats();
    assert_eq!((stats.version_bytes, stats.ordered_entries), (bytes, 900));
}

#[test]
fn sequences_move_without_a_new_version() {
    use weft_store::{SequenceDef, SequenceId, SequenceState};
    let store = fixture::store();
    let id = SequenceId(store.catalog().next_object_id());
    fixture::batch(&store, |batch| {
        batch
            .apply_catalog(&CatalogOp::CreateSequence(SequenceDef::new(id, "items_id_seq")))
            .unwrap();
    });
    let (version, digest) = (store.catalog().version(), store.state_digest());
    fixture::batch(&store, |batch| {
        batch
            .apply_catalog(&CatalogOp::AdvanceSequence { id, to: 5 })
            .unwrap();
        let mut member = batch.member(0);
        member.insert(ITEMS, &fixture::item(5, None, None)).unwrap();
        member.commit();
        batch
            .apply_catalog(&CatalogOp::AdvanceSequence { id, to: 6 })
            .unwrap();
    });
    let catalog = store.catalog();
    assert_eq!(catalog.version(), version);
    assert_ne!(store.state_digest(), digest);
    let state = catalog.sequence_state(id).unwrap();
    assert_eq!(
        state,
        SequenceState {
            last_value: 6,
            is_called: true
        }
    );
    assert_eq!(state.next(catalog.sequence_by_id(id).unwrap()), Some(7));
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
}

/// An update that touches no index says so once and for all: whatever index comes later, nothing that an
/// older version carried stays in it, and nothing that a newer one carries goes.
#[test]
fn updates_from_before_an_index_do_not_change_it() {
    let store = with_rows();
    let update = |body: &'static str, weight: f64| {
        fixture::member(&store, |member| {
            let mut slots = Vec::new();
            member.scan(NOTES, |row| slots.push(row.slot)).unwrap();
            member
                .update(NOTES, slots[7], &fixture::note(body, weight))
                .unwrap();
        });
    };
    let held = store.snapshot();
    // No index yet, so none is touched, though the body changes.
    update("b", 1.0);
    update("c", 1.0);
    let id = next_index(&store);
    fixture::batch(&store, |batch| {
        let index = fixture::index(id, "notes_body_idx", NOTES, &[0], IndexMethod::Both);
        batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
    });
    let entries_of_items = 300 * 3;
    let entries = |store: &std::sync::Arc<Store>| store.memory_stats().ordered_entries - entries_of_items;
    assert_eq!(entries(&store), 300);
    update("b", 1.0);
    update("b", 2.0);
    update("note 7", 2.0);
    update("note 7", 3.0);
    assert_eq!(entries(&store), 302, "c, b and note 7 of one row");
    drop(held);
    fixture::settle(&store);
    assert_eq!(entries(&store), 300);
    let found = |body: &str| {
        let key = fixture::key(&[Value::Text(body.to_owned())]);
        store.snapshot().lookup_one(NOTES, id, &key).unwrap().is_some()
    };
    assert_eq!((found("note 7"), found("b"), found("c")), (true, false, false));
    update("d", 3.0);
    fixture::settle(&store);
    assert_eq!((found("note 7"), found("d"), entries(&store)), (false, true, 300));
}

/// A key that is taken back is no row's any more, though a version that was superseded before the index came
/// had it: its entry goes, and whoever gets the slot next is found once.
#[test]
fn an_entry_is_undone_where_an_older_version_had_its_key() {
    let store = Store::new();
    let columns = vec![
        ColumnDef::new("a", SqlType::Int8),
        ColumnDef::new("b", SqlType::Int4),
    ];
    let def = TableDef::new(TableId(FIRST_OBJECT_ID), "t", columns);
    let (table, index) = (def.id, IndexId(FIRST_OBJECT_ID + 1));
    let row = |b: i32| def.layout.encode(&[Value::Int8(7), Value::Int4(b)]).unwrap();
    fixture::batch(&store, |batch| {
        let create = CatalogOp::CreateTable(def.clone());
        batch.apply_catalog(&create).unwrap();
    });
    let mut slot = None;
    fixture::member(&store, |member| {
        slot = Some(member.insert(table, &row(1)).unwrap())
    });
    let slot = slot.unwrap();
    let before = store.snapshot();
    fixture::member(&store, |member| member.update(table, slot, &row(2)).unwrap());
    fixture::batch(&store, |batch| {
        let by_b = fixture::index(index, "t_b", table, &[1], IndexMethod::Both);
        batch.apply_catalog(&CatalogOp::CreateIndex(by_b)).unwrap();
    });
    fixture::batch(&store, |batch| {
        let mut member = batch.member(0);
        member.update(table, slot, &row(1)).unwrap();
        member.rollback();
    });
    drop(before);
    let collect = || {
        for _ in 0..3 {
            fixture::batch(&store, |_| ());
            store.collect_garbage(usize::MAX);
        }
    };
    collect();
    fixture::member(&store, |member| member.remove(table, slot).unwrap());
    collect();
    let mut again = None;
    fixture::member(&store, |member| {
        again = Some(member.insert(table, &row(1)).unwrap())
    });
    assert_eq!(again, Some(slot), "the slot was free");
    let (snapshot, mut found) = (store.snapshot(), 0);
    let view = snapshot.view();
    let key = fixture::key(&[Value::Int4(1)]);
    view.lookup(table, index, &key, |_| {
        found += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(found, 1);
}

/// An update in the batch that drops an index keeps no key for that one: readers of the boundary before find
/// the row that it superseded, though what lies below that goes.
#[test]
fn an_index_that_is_being_dropped_still_leads_to_superseded_rows() {
    let store = Store::new();
    let columns = vec![
        ColumnDef::new("a", SqlType::Int8),
        ColumnDef::new("b", SqlType::Int4),
    ];
    let (by_a, by_b) = (IndexId(FIRST_OBJECT_ID + 1), IndexId(FIRST_OBJECT_ID + 2));
    let table = TableId(FIRST_OBJECT_ID);
    let def = TableDef::new(table, "t", columns)
        .with_index(fixture::index(by_a, "t_a", table, &[0], IndexMethod::Hash))
        .with_index(fixture::index(by_b, "t_b", table, &[1], IndexMethod::Hash));
    let row = |a, b| def.layout.encode(&[Value::Int8(a), Value::Int4(b)]).unwrap();
    fixture::batch(&store, |batch| {
        let create = CatalogOp::CreateTable(def.clone());
        batch.apply_catalog(&create).unwrap();
    });
    let mut slot = None;
    fixture::member(&store, |member| {
        slot = Some(member.insert(table, &row(2, 1)).unwrap())
    });
    let slot = slot.unwrap();
    fixture::member(&store, |member| member.update(table, slot, &row(2, 3)).unwrap());
    let held = store.snapshot();
    let id = BatchId(store.boundary().0 + 1);
    let mut batch = store.begin_batch(id);
    batch.apply_catalog(&CatalogOp::DropIndex(by_a)).unwrap();
    batch.apply_catalog(&CatalogOp::DropIndex(by_b)).unwrap();
    let mut member = batch.member(0);
    member.update(table, slot, &row(0, 3)).unwrap();
    member.commit();
    batch.finish();
    assert!(store.collect_garbage(usize::MAX) > 0);
    store.publish(id);
    for (index, key) in [(by_a, Value::Int8(2)), (by_b, Value::Int4(3))] {
        let found = held
            .view()
            .lookup_one(table, index, &fixture::key(&[key]))
            .unwrap();
        assert_eq!(found.map(|row| row.slot), Some(slot));
    }
}
