//! Rows that are not in memory: they leave it, are found by every reader, come back when they are needed, and
//! what cannot be read is an error and not a row that is not there.

use std::ops::Bound;
use std::sync::Arc;

use weft_base::{BatchId, SimDisk, TableId};
use weft_store::checkpoint::{CheckpointConfig, Checkpoints};
use weft_store::columns::ColumnKeeper;
use weft_store::{
    CatalogOp, ColumnDef, Evictor, IndexDef, IndexMethod, Locator, MemberWriter, Refilled, Refiller, SlotId,
    Store, TableDef,
};
use weft_types::{SqlError, SqlType, Value};

use crate::checkpoint::{files, filled, load, open_with, tiny, write};
use crate::fixture::{self, ITEMS, ITEMS_KIND, ITEMS_PKEY, NOTES};

/// Evicts until nothing more leaves; returns how many rows did.
pub fn evict_all(store: &Arc<Store>) -> usize {
    let mut evictor = Evictor::default();
    let (mut rows, mut in_round) = (0, 0);
    // Rows that were used are spared in the first round.
    let mut rounds = 0;
    loop {
        let step = evictor.step(store, true).unwrap();
        in_round += step.rows;
        if step.is_round {
            rounds += 1;
            if in_round == 0 && rounds > 1 {
                return rows;
            }
            rows += std::mem::take(&mut in_round);
        }
    }
}

fn slot_of(member: &MemberWriter<'_>, id: i64) -> Result<SlotId, SqlError> {
    let found = member.locate(ITEMS, &Locator::Key(fixture::id_key(id)))?;
    Ok(found.expect("the row is there"))
}

/// A store with `rows` items, all of them cold.
fn cold(rows: i64) -> (SimDisk, Checkpoints, Arc<Store>) {
    let disk = SimDisk::new(7);
    let mut checkpoints = open_with(&disk, &tiny()).unwrap();
    let store = filled(rows);
    fixture::settle(&store);
    write(&mut checkpoints, &store).unwrap();
    evict_all(&store);
    fixture::settle(&store);
    (disk, checkpoints, store)
}

fn count(store: &Arc<Store>, table: TableId) -> u64 {
    let mut rows = 0;
    store.snapshot().view().scan(table, |_| rows += 1).unwrap();
    rows
}

#[test]
fn rows_leave_memory_and_every_reader_finds_them() {
    let resident = filled(3_000);
    fixture::settle(&resident);
    let (_disk, _checkpoints, store) = cold(3_000);
    let rows = count(&store, ITEMS) + count(&store, NOTES);
    let (used, stats) = (store.row_memory(), store.memory_stats());
    assert_eq!(
        (used.cold_rows, used.version_bytes, used.left_bytes),
        (rows, 0, 0)
    );
    let before = resident.row_memory();
    assert!(used.kept_bytes < before.kept_bytes / 2, "{used:?} {before:?}");
    assert_eq!(
        (stats.slot_bytes, stats.unlinked_versions),
        (used.kept_bytes, 0),
        "only the places are left"
    );
    // Scans, digests and columns read without bringing rows back.
    let snapshot = store.snapshot();
    assert_eq!(snapshot.verify_digest().unwrap(), snapshot.digest());
    assert_eq!(store.row_memory().cold_rows, rows);
    let fill = (-1, Some(-1), Some("not asked for".to_owned()));
    let expected = fixture::read_columns(&resident.snapshot(), &[0, 1, 2], &fill);
    for _ in 0..3 {
        assert_eq!(fixture::read_columns(&snapshot, &[0, 1, 2], &fill), expected);
        ColumnKeeper::new(u64::MAX, fixture::EAGER).keep(&store, &mut || true);
    }
    assert!(store.column_stats().rows_from_columns > 0);
    assert_eq!(store.row_memory().cold_rows, rows);
    // Lookups and ranges bring back what they find, and the same rows.
    let model = resident.snapshot();
    for id in [1, 4, 5, 1_001, 2_999] {
        let found = snapshot
            .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(id))
            .unwrap();
        let expected = model.lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(id)).unwrap();
        let comparable = |row: weft_store::RowVersion<'_>| (row.row_id, row.batch, row.bytes.to_vec());
        assert_eq!(found.map(comparable), expected.map(comparable), "{id}");
    }
    assert_eq!(store.row_memory().cold_rows, rows - 5);
    let key = fixture::key(&[Value::Int4(3)]);
    let bound = Bound::Included(key.as_slice());
    let range = |view: &weft_store::Snapshot| {
        let rows = view.range(ITEMS, ITEMS_KIND, bound, bound, true, 50).unwrap();
        rows.iter().map(fixture::decode).collect::<Vec<_>>()
    };
    assert_eq!(range(&snapshot).len(), 50);
    range(&snapshot)
        .iter()
        .for_each(|item| assert!(expected.contains(item)));
    assert!(store.row_memory().cold_rows < rows - 40);
    drop(snapshot);
    // And they leave again.
    evict_all(&store);
    fixture::settle(&store);
    let again = store.row_memory();
    assert_eq!(again.cold_rows, rows);
    // A region keeps what it needs for a few rows in memory.
    let spare_bytes = 4_096;
    assert!(
        (used.kept_bytes..used.kept_bytes + spare_bytes).contains(&again.kept_bytes),
        "{used:?} {again:?}"
    );
    assert!(again.thawed_rows > 40);
}

#[test]
fn a_batch_reads_the_rows_that_it_needs() {
    let (disk, mut checkpoints, store) = cold(300);
    let resident = filled(300);
    fixture::settle(&resident);
    fixture::settle(&resident);
    let old = store.snapshot();
    let change = |member: &mut MemberWriter<'_>| {
        for id in (1..300).step_by(50) {
            let slot = slot_of(member, id).unwrap();
            member
                .update(ITEMS, slot, &fixture::item(id, Some(77), None))
                .unwrap();
        }
        let slot = slot_of(member, 5).unwrap();
        member.remove(ITEMS, slot).unwrap();
        // Its name is that of a cold row.
        let taken = fixture::item(9_000, None, Some("item 10"));
        assert_eq!(member.insert(ITEMS, &taken).unwrap_err().state.code(), "23505");
        member
            .insert(ITEMS, &fixture::item(9_000, Some(1), Some("new")))
            .unwrap();
    };
    assert_eq!(resident.boundary(), store.boundary());
    fixture::member(&store, change);
    fixture::member(&resident, change);
    assert_eq!(store.state_digest(), resident.state_digest());
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    // The old snapshot sees what was there, of rows that have changed and of rows that are still cold.
    assert_eq!(old.verify_digest().unwrap(), old.digest());
    let five = old.lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(5)).unwrap();
    assert_eq!(fixture::decode(&five.unwrap()).0, 5);
    // Rows with versions for old readers stay, and so do rows that no checkpoint has.
    evict_all(&store);
    assert_eq!(old.verify_digest().unwrap(), old.digest());
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    drop(old);
    write(&mut checkpoints, &store).unwrap();
    fixture::settle(&store);
    evict_all(&store);
    fixture::settle(&store);
    let used = store.row_memory();
    let rows = count(&store, ITEMS) + count(&store, NOTES);
    assert_eq!((used.cold_rows, used.version_bytes), (rows, 0));
    write(&mut checkpoints, &store).unwrap();
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    let digest = store.state_digest();
    drop(checkpoints);
    let error = store.snapshot().verify_digest().unwrap_err();
    assert_eq!(error.state.code(), "55000", "{error}");
    let loaded = load(&disk).unwrap().snapshot();
    assert_eq!(
        (loaded.digest(), loaded.verify_digest().unwrap()),
        (digest, digest)
    );
}

#[test]
fn a_row_that_was_used_is_spared_once() {
    let (_disk, _checkpoints, store) = cold(300);
    let all = store.row_memory().cold_rows;
    let snapshot = store.snapshot();
    snapshot
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(7))
        .unwrap()
        .unwrap();
    let mut evictor = Evictor::default();
    let mut round = || while !evictor.step(&store, true).unwrap().is_round {};
    round();
    assert_eq!(store.row_memory().cold_rows, all - 1, "it was used");
    let found = snapshot
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(7))
        .unwrap();
    round();
    assert_eq!(store.row_memory().cold_rows, all - 1, "it was used again");
    round();
    assert_eq!(store.row_memory().cold_rows, all);
    // Who has found it may still look at it.
    assert_eq!(fixture::decode(&found.unwrap()).0, 7);
    assert!(store.memory_stats().unlinked_versions > 0, "its slot");
    drop(snapshot);
    fixture::settle(&store);
    assert_eq!(store.memory_stats().unlinked_versions, 0);
}

/// Brings all regions back.
pub fn refill_all(store: &Arc<Store>) -> usize {
    let mut refiller = Refiller::default();
    let steps = std::iter::from_fn(|| Some(refiller.step(store, u64::MAX).unwrap()));
    steps
        .take_while(|step| *step != Refilled::Round)
        .filter(|step| *step == Refilled::Region)
        .count()
}

/// Regions come back with what was thawed, written, inserted and removed meanwhile, and old readers see what
/// they saw; the memory is what it was before they were frozen.
#[test]
fn regions_come_back() {
    let resident = filled(3_000);
    fixture::settle(&resident);
    fixture::settle(&resident);
    let (_disk, mut checkpoints, store) = cold(3_000);
    let before = store.snapshot();
    let change = |store: &Arc<Store>| {
        fixture::member(store, |member| {
            for id in (1..3_000).step_by(7).filter(|id| id % 8 != 0) {
                let slot = slot_of(member, id).unwrap();
                if id % 2 == 0 {
                    member.remove(ITEMS, slot).unwrap();
                } else {
                    member
                        .update(
                            ITEMS,
                            slot,
                            &fixture::item(id, Some(77), Some(&format!("now {id}"))),
                        )
                        .unwrap();
                }
            }
            for id in 9_000..9_050 {
                member.insert(ITEMS, &fixture::item(id, None, None)).unwrap();
            }
        });
    };
    change(&store);
    change(&resident);
    let mut refiller = Refiller::default();
    assert_eq!(refiller.step(&store, 1_000), Some(Refilled::Full));
    // Rows that are longer than a slot count, too.
    let room = 300 * 1_024;
    assert_eq!(refiller.step(&store, room), Some(Refilled::Region));
    let regions = refill_all(&store);
    assert!(regions > 1, "{regions}");
    assert_eq!(refill_all(&store), 0, "none is frozen");
    assert_eq!(before.verify_digest().unwrap(), before.digest());
    assert_eq!(store.snapshot().verify_digest().unwrap(), resident.state_digest());
    drop(before);
    for store in [&store, &resident] {
        fixture::settle(store);
    }
    let (used, expected) = (store.row_memory(), resident.row_memory());
    assert_eq!((used.cold_rows, used.left_bytes), (0, 0));
    assert_eq!(used.version_bytes, expected.version_bytes);
    assert_eq!(used.kept_bytes, expected.kept_bytes);
    // And they leave again.
    write(&mut checkpoints, &store).unwrap();
    evict_all(&store);
    fixture::settle(&store);
    fixture::settle(&resident);
    assert_eq!(store.row_memory().version_bytes, 0);
    assert_eq!(store.snapshot().verify_digest().unwrap(), resident.state_digest());
}

/// A row that cannot be read keeps its region on disk, and nothing of it in memory; others come back.
#[test]
fn a_region_that_cannot_be_read_stays_frozen() {
    let (disk, _checkpoints, store) = cold(3_000);
    let before = store.row_memory();
    disk.fail_reads(true);
    assert_eq!(refill_all(&store), 0);
    let after = store.row_memory();
    assert_eq!(
        (after.cold_rows, after.kept_bytes),
        (before.cold_rows, before.kept_bytes)
    );
    disk.fail_reads(false);
    for path in files(&disk, "table-").iter().take(1) {
        disk.flip_bit(path, 300, 3).unwrap();
    }
    assert!(refill_all(&store) > 0);
    let after = store.row_memory();
    assert!(
        after.cold_rows > 0 && after.cold_rows < before.cold_rows,
        "{after:?}"
    );
    assert_eq!(after.cold_rows + after.thawed_rows, before.cold_rows);
    assert!(store.snapshot().verify_digest().is_err());
}

/// A region that is frozen gives its free slots to new rows.
#[test]
fn slots_of_frozen_regions_are_used_again() {
    let (_disk, mut checkpoints, store) = cold(300);
    fixture::member(&store, |member| {
        for id in [1, 2, 3] {
            let slot = slot_of(member, id).unwrap();
            member.remove(ITEMS, slot).unwrap();
        }
    });
    fixture::settle(&store);
    let mut slots = Vec::new();
    fixture::member(&store, |member| {
        let insert = |id: i64| member.insert(ITEMS, &fixture::item(10_000 + id, Some(9), None));
        slots = (0..500).map(insert).collect::<Result<_, _>>().unwrap();
    });
    assert!(slots.iter().filter(|slot| slot.0 < 256).count() >= 3, "{slots:?}");
    write(&mut checkpoints, &store).unwrap();
    evict_all(&store);
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    for id in [10_000, 10_499] {
        let snapshot = store.snapshot();
        let row = snapshot
            .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(id))
            .unwrap();
        assert_eq!(fixture::decode(&row.unwrap()), (id, Some(9), None));
    }
}

#[test]
fn definitions_change_over_cold_rows() {
    let (_disk, mut checkpoints, store) = cold(300);
    let resident = filled(300);
    fixture::settle(&resident);
    fixture::settle(&resident);
    let before = store.snapshot();
    let note = ColumnDef::new("note", SqlType::Text);
    for store in [&store, &resident] {
        fixture::batch(store, |batch| {
            let index = fixture::index(
                weft_base::IndexId(batch.catalog().next_object_id()),
                "items_kind2",
                ITEMS,
                &[1, 0],
                weft_store::IndexMethod::Both,
            );
            batch.apply_catalog(&CatalogOp::CreateIndex(index)).unwrap();
        });
        fixture::batch(store, |batch| {
            let op = CatalogOp::AddColumn {
                table: ITEMS,
                column: note.clone(),
                fill: Value::Null,
            };
            batch.apply_catalog(&op).unwrap();
        });
        fixture::batch(store, |batch| {
            batch.apply_catalog(&CatalogOp::DropTable(NOTES)).unwrap();
        });
    }
    assert_eq!(store.state_digest(), resident.state_digest());
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    assert_eq!(before.verify_digest().unwrap(), before.digest());
    // The dropped table leaves the disk with the next checkpoint: then the old snapshot is too old for it.
    write(&mut checkpoints, &store).unwrap();
    let error = before.verify_digest().unwrap_err();
    assert_eq!(error.state.code(), "72000", "{error}");
    let row = before.lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(7));
    let row = row.unwrap().expect("a change of columns writes no row");
    assert_eq!(fixture::decode(&row).0, 7);
    evict_all(&store);
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
}

/// While a disk fails, whoever needs a cold row is told; afterwards all is as before.
#[test]
fn a_disk_that_fails_is_an_error_and_not_a_missing_row() {
    let (disk, _checkpoints, store) = cold(300);
    let key = fixture::id_key(7);
    disk.fail_reads(true);
    let failed = |error: SqlError| {
        assert_eq!(error.state.code(), "58030", "{error}");
        assert!(error.message.contains("row "), "{error}");
    };
    let mut snapshot = store.snapshot();
    failed(snapshot.lookup_one(ITEMS, ITEMS_PKEY, &key).unwrap_err());
    failed(store.snapshot().verify_digest().unwrap_err());
    let all = (Bound::Unbounded, Bound::Unbounded);
    let at_once = store.snapshot();
    failed(
        at_once
            .range(ITEMS, ITEMS_PKEY, all.0, all.1, false, 3)
            .unwrap_err(),
    );
    failed(store.snapshot().view().scan(NOTES, |_| ()).unwrap_err());
    failed(store.snapshot().get(ITEMS, SlotId(1)).map(|_| ()).unwrap_err());
    let mut reader = store.reader();
    let pinned = reader.pin();
    failed(pinned.view().lookup_one(ITEMS, ITEMS_PKEY, &key).unwrap_err());
    failed(pinned.view().check().unwrap_err());
    drop(pinned);
    // A batch cannot have its rows: it is undone.
    let (digest, batch) = (
        store.state_digest(),
        store.begin_batch(BatchId(store.boundary().0 + 1)),
    );
    let mut member = batch.member(0);
    member.insert(ITEMS, &fixture::item(7_777, None, None)).unwrap();
    failed(slot_of(&member, 7).unwrap_err());
    member.commit();
    failed(batch.check_rows().unwrap_err());
    batch.abort();
    assert_eq!(store.state_digest(), digest);
    // A hint that leads to a cold row is not followed, and damages nothing.
    let hinted = store.snapshot();
    let absent = fixture::id_key(123_456);
    let found = hinted
        .view()
        .lookup_hinted((ITEMS, ITEMS_PKEY), &absent, SlotId(1));
    assert_eq!(found, Ok(None));
    disk.fail_reads(false);
    let row = reader
        .pin()
        .view()
        .lookup_one(ITEMS, ITEMS_PKEY, &key)
        .map(|row| row.is_some());
    assert!(row.unwrap(), "a reader that is pinned again begins anew");
    assert!(
        snapshot
            .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(9))
            .is_err(),
        "it has missed a row"
    );
    let clone = snapshot.clone();
    assert!(
        !snapshot.forget_what_was_read(),
        "somebody else may use something"
    );
    drop(clone);
    assert!(snapshot.forget_what_was_read());
    let again = snapshot
        .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(9))
        .unwrap();
    assert!(again.is_some());
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
}

#[test]
fn damaged_files_are_told_with_table_and_row() {
    let (disk, checkpoints, store) = cold(300);
    let _keep = checkpoints;
    for path in files(&disk, "table-").iter().step_by(2) {
        disk.flip_bit(path, 300, 3).unwrap();
    }
    let mut damaged = 0;
    for id in (1..300).filter(|id| id % 8 != 0) {
        let snapshot = store.snapshot();
        match snapshot.lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(id)) {
            Ok(row) => assert_eq!(fixture::decode(&row.unwrap()).0, id),
            Err(error) => {
                assert_eq!(error.state.code(), "XX001", "{error}");
                assert!(error.message.contains(&format!("of table {ITEMS}")), "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 0, "no row lay there");
    assert!(damaged < 250, "the rest stays readable");
}

/// What is left behind counts, rows in blocks too, until its readers have left; and slots whose rows were
/// removed are given back.
#[test]
fn memory_is_free_when_its_readers_have_left() {
    let (_disk, mut checkpoints, store) = cold(300);
    // Longer than a slot.
    let long = |id| fixture::item(id, None, Some(&format!("{id} ").repeat(1_000)));
    fixture::member(&store, |member| {
        for id in 20_000..20_050 {
            member.insert(ITEMS, &long(id)).unwrap();
        }
    });
    write(&mut checkpoints, &store).unwrap();
    let (reader, before) = (store.snapshot(), store.row_memory());
    evict_all(&store);
    let left = store.row_memory();
    assert!(left.left_bytes > 50 * 5_000, "{left:?}");
    assert!(
        left.kept_bytes + 50 * 5_000 < before.kept_bytes,
        "{left:?} {before:?}"
    );
    drop(reader);
    fixture::settle(&store);
    let used = store.row_memory();
    assert_eq!((used.left_bytes, used.kept_bytes), (0, left.kept_bytes));
    fixture::member(&store, |member| {
        let mut slots = Vec::new();
        member.scan(ITEMS, |row| slots.push(row.slot)).unwrap();
        assert!(slots.len() > 300);
        for slot in slots {
            member.remove(ITEMS, slot).unwrap();
        }
    });
    fixture::settle(&store);
    evict_all(&store);
    fixture::settle(&store);
    let (used, stats) = (store.row_memory(), store.memory_stats());
    assert_eq!((used.version_bytes, used.cold_rows), (0, 2), "the notes");
    assert_eq!(used.kept_bytes, stats.slot_bytes, "only the places are left");
}

/// Who visits all rows reads their files once, not once for each row. Rows that are written and leave memory
/// meanwhile, and rows that came back, are shown all the same.
#[test]
fn rows_are_read_together_in_scans() {
    let (_disk, checkpoints, store) = cold(3_000);
    let lookups = |checkpoints: &Checkpoints| {
        let stats = checkpoints.stats();
        stats.block_cache_hits + stats.block_cache_misses
    };
    let before = lookups(&checkpoints);
    assert_eq!(store.snapshot().verify_digest().unwrap(), store.state_digest());
    let rows = store.row_memory().cold_rows;
    let alone = lookups(&checkpoints) - before;
    assert!(
        (1..rows / 4).contains(&alone),
        "{alone} of {rows} rows were read alone"
    );

    let items = count(&store, ITEMS);
    let checkpoints = std::cell::RefCell::new(checkpoints);
    fixture::member(&store, |member| {
        for id in 10_000..10_300 {
            member.insert(ITEMS, &fixture::item(id, Some(9), None)).unwrap();
        }
        for id in (1..3_000).step_by(100) {
            let slot = slot_of(member, id).unwrap();
            member
                .update(ITEMS, slot, &fixture::item(id, Some(8), None))
                .unwrap();
        }
    });
    fixture::settle(&store);
    let mut expected = Vec::new();
    let all = store.snapshot();
    all.view()
        .scan(ITEMS, |row| expected.push(fixture::decode(&row)))
        .unwrap();
    drop(all);
    expected.sort();
    assert_eq!(expected.len() as u64, items + 300);
    let (snapshot, mut shown) = (store.snapshot(), Vec::new());
    snapshot
        .view()
        .scan(ITEMS, |row| {
            if shown.len() == 100 {
                // The reading has begun before these rows were on disk.
                write(&mut checkpoints.borrow_mut(), &store).unwrap();
                assert!(evict_all(&store) >= 300);
            }
            shown.push(fixture::decode(&row));
        })
        .unwrap();
    shown.sort();
    assert_eq!(shown, expected);
}

/// What a row on disk costs in memory, with a primary key: its place, and its entries in the hash index and
/// in the order. The most of all numbers of rows, since tables of the hash index grow in steps; not of few
/// rows, for which memory is taken in large pieces.
fn bytes_of_a_cold_row(key_of: impl Fn(i64) -> i64) -> f64 {
    let table = TableId(weft_store::FIRST_OBJECT_ID);
    let primary = weft_base::IndexId(table.0 + 1);
    let primary = IndexDef {
        primary: true,
        unique: true,
        ..fixture::index(primary, "pkey", table, &[0], IndexMethod::Both)
    };
    let columns = vec![
        ColumnDef::new("id", SqlType::Int8),
        ColumnDef::new("v", SqlType::Text),
    ];
    let def = TableDef::new(table, "t", columns).with_index(primary);
    let (disk, store) = (SimDisk::new(3), Store::new());
    let create = CatalogOp::CreateTable(def.clone());
    fixture::batch(&store, |batch| {
        batch.apply_catalog(&create).unwrap();
    });
    let mut checkpoints = open_with(&disk, &CheckpointConfig::default()).unwrap();
    let text = Value::Text("v".repeat(20));
    let (mut rows, mut most) = (0, 0.0f64);
    while rows < 200_000 {
        fixture::batch(&store, |batch| {
            for number in 0..20 {
                let mut member = batch.member(number);
                for _ in 0..500 {
                    let row = def.layout.encode(&[Value::Int8(key_of(rows)), text.clone()]);
                    member.insert(table, &row.unwrap()).unwrap();
                    rows += 1;
                }
                member.commit();
            }
        });
        if rows < 100_000 {
            continue;
        }
        fixture::settle(&store);
        write(&mut checkpoints, &store).unwrap();
        evict_all(&store);
        fixture::settle(&store);
        let (used, stats) = (store.row_memory(), store.memory_stats());
        assert_eq!(used.cold_rows, rows as u64);
        let a_row = |bytes: u64| bytes as f64 / rows as f64;
        let parts = [used.kept_bytes, stats.hash_index_bytes, stats.ordered_index_bytes].map(a_row);
        let ([place, hashed, ordered], all) = (parts, parts.iter().sum::<f64>());
        println!("{rows} rows: place {place:.1} + hash {hashed:.1} + order {ordered:.1} = {all:.1} bytes");
        most = most.max(all);
    }
    most
}

#[test]
fn a_cold_row_takes_forty_bytes() {
    let bytes = bytes_of_a_cold_row(|row| row);
    assert!(bytes <= 40.0, "keys that rise: {bytes}");
    // Nodes of the order are less full then.
    let bytes = bytes_of_a_cold_row(|row| row * 7_919 % 1_000_003);
    assert!(bytes <= 50.0, "keys in no order: {bytes}");
}
