//! NOT NULL and uniqueness, in PostgreSQL's words, and that a refused write has changed nothing.

use weft_store::Locator;
use weft_types::Value;

use crate::fixture::{self, ITEMS, ITEMS_NAME, NOTES};

#[test]
fn a_taken_key_is_refused_and_named() {
    let store = fixture::store();
    fixture::member(&store, |member| {
        member
            .insert(ITEMS, &fixture::item(1, None, Some("one")))
            .unwrap();
        let error = member.insert(ITEMS, &fixture::item(1, None, None)).unwrap_err();
        assert_eq!(error.state.code(), "23505");
        assert_eq!(
            error.message,
            "duplicate key value violates unique constraint \"items_pkey\""
        );
        assert_eq!(
            error.fields().detail.as_deref(),
            Some("Key (id)=(1) already exists.")
        );
        assert_eq!(error.fields().constraint.as_deref(), Some("items_pkey"));

        // Of two violated constraints the older is named; and the first one has left no entry behind.
        let error = member
            .insert(ITEMS, &fixture::item(2, None, Some("one")))
            .unwrap_err();
        assert_eq!(
            error.fields().detail.as_deref(),
            Some("Key (name)=(one) already exists.")
        );
        assert!(
            member
                .locate(ITEMS, &Locator::Key(fixture::id_key(2)))
                .unwrap()
                .is_none()
        );
        member
            .insert(ITEMS, &fixture::item(2, None, Some("two")))
            .unwrap();

        let two = member
            .locate(ITEMS, &Locator::Key(fixture::id_key(2)))
            .unwrap()
            .unwrap();
        let error = member
            .update(ITEMS, two, &fixture::item(2, None, Some("one")))
            .unwrap_err();
        assert_eq!(error.state.code(), "23505");
        member
            .update(ITEMS, two, &fixture::item(2, Some(5), Some("two")))
            .unwrap();
    });
    let snapshot = store.snapshot();
    let row = snapshot
        .lookup_one(ITEMS, ITEMS_NAME, &fixture::key(&[Value::Text("two".into())]))
        .unwrap()
        .unwrap();
    assert_eq!(fixture::decode(&row), (2, Some(5), Some("two".into())));
    assert_eq!(snapshot.verify_digest().unwrap(), snapshot.digest());
}

#[test]
fn keys_with_null_are_never_duplicates() {
    let store = fixture::store();
    fixture::member(&store, |member| {
        for id in 0..10 {
            member.insert(ITEMS, &fixture::item(id, None, None)).unwrap();
        }
    });
    assert_eq!(store.snapshot().row_count_estimate(ITEMS), 10);
}

#[test]
fn a_removed_key_is_free_at_once() {
    let store = fixture::store();
    let held = store.snapshot();
    fixture::member(&store, |member| {
        let slot = member
            .insert(ITEMS, &fixture::item(1, Some(1), Some("one")))
            .unwrap();
        member.remove(ITEMS, slot).unwrap();
        assert_eq!(member.remove(ITEMS, slot).unwrap_err().state.code(), "XX000");
        member
            .insert(ITEMS, &fixture::item(1, Some(2), Some("one")))
            .unwrap();
    });
    fixture::member(&store, |member| {
        let slot = member
            .locate(ITEMS, &Locator::Key(fixture::id_key(1)))
            .unwrap()
            .unwrap();
        assert_eq!(member.observed().0, 0);
        assert_eq!(member.get(ITEMS, slot).unwrap().unwrap().batch.0, 2);
        assert_eq!(member.observed().0, 2);
        // A key may move away and come back within the chain of one row.
        member
            .update(ITEMS, slot, &fixture::item(7, Some(2), Some("one")))
            .unwrap();
        member
            .update(ITEMS, slot, &fixture::item(1, Some(2), Some("one")))
            .unwrap();
    });
    assert_eq!(held.row_count_estimate(ITEMS), 1);
    drop(held);
    fixture::settle(&store);
    assert_eq!(store.memory_stats().ordered_entries, 3);
}

#[test]
fn nulls_are_refused_with_the_row() {
    let store = fixture::store();
    let layout = fixture::items().layout;
    let row = layout
        .encode(&[Value::Null, Value::Int4(3), Value::Text("x".repeat(70))])
        .unwrap();
    fixture::member(&store, |member| {
        let error = member.insert(ITEMS, &row).unwrap_err();
        assert_eq!(error.state.code(), "23502");
        assert_eq!(
            error.message,
            "null value in column \"id\" of relation \"items\" violates not-null constraint"
        );
        let expected = format!("Failing row contains (null, 3, {}...).", "x".repeat(64));
        assert_eq!(error.fields().detail.as_deref(), Some(expected.as_str()));
        assert_eq!(error.fields().column.as_deref(), Some("id"));
    });
}

#[test]
fn rows_without_key_are_found_by_row_id() {
    let store = fixture::store();
    let mut id = None;
    fixture::member(&store, |member| {
        let slot = member.insert(NOTES, &fixture::note("a", 1.0)).unwrap();
        member.insert(NOTES, &fixture::note("b", 1.0)).unwrap();
        id = member.get(NOTES, slot).unwrap().map(|row| row.row_id);
    });
    let id = id.unwrap();
    assert_eq!((id.batch.0, id.member, id.ordinal), (2, 0, 0));
    let locator = Locator::RowId(id);
    fixture::member(&store, |member| {
        let slot = member.locate(NOTES, &locator).unwrap().unwrap();
        member.update(NOTES, slot, &fixture::note("c", 2.0)).unwrap();
        assert_eq!(member.locate(ITEMS, &locator).unwrap(), None);
        assert_eq!(member.locate(NOTES, &Locator::Key(vec![1])).unwrap(), None);
    });
    fixture::member(&store, |member| {
        let slot = member.locate(NOTES, &locator).unwrap().unwrap();
        member.remove(NOTES, slot).unwrap();
        assert_eq!(member.locate(NOTES, &locator).unwrap(), None);
    });
    fixture::settle(&store);
    assert_eq!(store.snapshot().locate(NOTES, &locator).unwrap(), None);
}

#[test]
fn equal_keys_with_other_bytes_stay_found() {
    // -0.0 and 0.0 are one key with two encodings in the row: removing one version's entry must not remove
    // the other's.
    use weft_store::{CatalogOp, IndexMethod};
    let store = fixture::store();
    let id = weft_base::IndexId(store.catalog().next_object_id());
    fixture::batch(&store, |batch| {
        let index = fixture::index(id, "notes_weight_idx", NOTES, &[1], IndexMethod::Both);
        batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
    });
    fixture::member(&store, |member| {
        member.insert(NOTES, &fixture::note("zero", 0.0)).unwrap();
    });
    fixture::member(&store, |member| {
        member
            .update(NOTES, weft_store::SlotId(0), &fixture::note("zero", -0.0))
            .unwrap();
    });
    fixture::settle(&store);
    let zero = fixture::key(&[Value::Float8(0.0)]);
    assert!(store.snapshot().lookup_one(NOTES, id, &zero).unwrap().is_some());
    let all = std::ops::Bound::Unbounded;
    assert_eq!(
        store
            .snapshot()
            .range(NOTES, id, all, all, false, 9)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn slots_and_entries_are_reused() {
    let store = fixture::store();
    let round = |number: i64| {
        fixture::member(&store, |member| {
            for at in 0..100 {
                let id = number * 100 + at;
                member
                    .insert(ITEMS, &fixture::item(id, None, Some(&format!("{id}"))))
                    .unwrap();
                member.insert(NOTES, &fixture::note("short-lived", 0.0)).unwrap();
            }
        });
        fixture::member(&store, |member| {
            for table in [ITEMS, NOTES] {
                let mut slots = Vec::new();
                member.scan(table, |row| slots.push(row.slot)).unwrap();
                slots
                    .into_iter()
                    .for_each(|slot| member.remove(table, slot).unwrap());
            }
        });
        fixture::settle(&store);
    };
    (0..5).for_each(round);
    let before = store.memory_stats();
    (5..80).for_each(round);
    let after = store.memory_stats();
    assert_eq!((after.version_bytes, after.ordered_entries), (0, 0));
    assert_eq!(
        store.snapshot().scan_chunks(ITEMS),
        1,
        "8000 rows went through a few hundred slots"
    );
    assert_eq!(store.snapshot().scan_chunks(NOTES), 1);
    assert!(
        after.hash_index_bytes <= 4 * before.hash_index_bytes,
        "{before:?} {after:?}"
    );
}
