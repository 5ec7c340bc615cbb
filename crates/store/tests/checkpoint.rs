//! Checkpoints: there and back, only what changed, damage of every kind, and power cuts and errors at every
//! write.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::{BatchId, Disk, FaultKind, OpenMode, Prng, Progress, Reached, RowId, SimDisk, SyncSite};
use weft_store::checkpoint::{
    Changes, CheckpointConfig, CheckpointError, Checkpoints, FOLDER, SYNC_SITES, Written,
};
use weft_store::{CatalogOp, ColumnDef, Locator, SequenceDef, SequenceId, SlotId, Snapshot, Store};
use weft_types::{SqlType, Value};

use crate::fixture::{self, ITEMS, ITEMS_KIND_HASH, ITEMS_NAME, NOTES};

pub fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn folder() -> PathBuf {
    dir().join(FOLDER)
}

/// So small that some rows make several files, and some checkpoints several levels.
pub fn tiny() -> CheckpointConfig {
    CheckpointConfig {
        table_bytes: 1500,
        block_bytes: 256,
        level0_tables: 2,
        level1_bytes: 4000,
        run_rows: 7,
        merge_beside: false,
        ..CheckpointConfig::default()
    }
}

fn open(disk: &SimDisk) -> Result<Checkpoints, CheckpointError> {
    open_with(disk, &tiny())
}

pub fn open_with(disk: &SimDisk, config: &CheckpointConfig) -> Result<Checkpoints, CheckpointError> {
    Checkpoints::open(Arc::new(disk.clone()), &dir(), config)
}

/// What a restart finds, and the engine that goes on from there.
fn reopen(disk: &SimDisk) -> Result<(Checkpoints, Arc<Store>), CheckpointError> {
    let mut checkpoints = open(disk)?;
    let store = checkpoints.load(2, &Progress::default())?;
    Ok((checkpoints, store))
}

pub fn load(disk: &SimDisk) -> Result<Arc<Store>, CheckpointError> {
    reopen(disk).map(|(_, store)| store)
}

pub fn write(checkpoints: &mut Checkpoints, store: &Arc<Store>) -> Result<Written, CheckpointError> {
    let written = checkpoints.write(Changes::take(store).unwrap(), &mut |_| ControlFlow::Continue(()))?;
    checkpoints.merge()?;
    Ok(written)
}

/// A thousand of these are longer than what the engine puts apart if it is not told otherwise.
const LARGE: &str = "long ";

/// A store with rows old and new, removed rows, a sequence, and `rows` items.
pub fn filled(rows: i64) -> Arc<Store> {
    let store = fixture::store();
    let id = SequenceId(store.catalog().next_object_id());
    fixture::batch(&store, |batch| {
        batch
            .apply_catalog(&CatalogOp::CreateSequence(SequenceDef::new(id, "seq")))
            .unwrap();
        batch
            .apply_catalog(&CatalogOp::AdvanceSequence { id, to: 77 })
            .unwrap();
    });
    fixture::member(&store, |member| {
        for id in 0..rows {
            let name = format!("item {id}");
            member
                .insert(
                    ITEMS,
                    &fixture::item(id, Some((id % 5) as i32), (id % 3 > 0).then_some(&name)),
                )
                .unwrap();
        }
        member
            .insert(NOTES, &fixture::note(&LARGE.repeat(1000), 0.5))
            .unwrap();
        member.insert(NOTES, &fixture::note("", -0.5)).unwrap();
    });
    fixture::member(&store, |member| {
        for id in (0..rows).step_by(4) {
            let slot = member
                .locate(ITEMS, &Locator::Key(fixture::id_key(id)))
                .unwrap()
                .unwrap();
            if id % 8 == 0 {
                member.remove(ITEMS, slot).unwrap();
            } else {
                member
                    .update(ITEMS, slot, &fixture::item(id, None, None))
                    .unwrap();
            }
        }
    });
    store
}

pub fn same_state(one: &Snapshot, other: &Snapshot) {
    assert_eq!((one.batch(), one.digest()), (other.batch(), other.digest()));
    assert_eq!(one.catalog(), other.catalog());
    assert_eq!(one.verify_digest().unwrap(), one.digest());
    assert_eq!(other.verify_digest().unwrap(), other.digest());
}

#[test]
fn a_checkpoint_loads_back() {
    let disk = SimDisk::new(1);
    let store = filled(5_000);
    let changes = Changes::take(&store).unwrap();
    let snapshot = store.snapshot();
    // Batches go on.
    fixture::member(&store, |member| {
        member.insert(NOTES, &fixture::note("later", 0.0)).unwrap();
    });
    let mut told = Vec::new();
    let mut checkpoints = open(&disk).unwrap();
    let written = checkpoints
        .write(changes, &mut |rows| {
            told.push(rows);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(told.len() > 100 && told.is_sorted(), "{told:?}");
    assert_eq!(
        (written.batch, written.rows, written.removed),
        (snapshot.batch(), 4_377, 0)
    );
    drop(checkpoints);

    let loaded = load(&disk).unwrap();
    same_state(&loaded.snapshot(), &snapshot);
    // Both go on from there in the same way, through every index.
    let copy = filled(5_000);
    for store in [&loaded, &copy] {
        fixture::member(store, |member| {
            let slot = member
                .locate(ITEMS, &Locator::Key(fixture::id_key(5)))
                .unwrap()
                .unwrap();
            let row = member.get(ITEMS, slot).unwrap().unwrap();
            assert_eq!((row.row_id.batch.0, row.row_id.ordinal, row.batch.0), (3, 5, 3));
            member
                .update(ITEMS, slot, &fixture::item(5, Some(9), Some("five")))
                .unwrap();
            let error = member
                .insert(ITEMS, &fixture::item(-1, None, Some("item 7")))
                .unwrap_err();
            assert_eq!(error.state.code(), "23505");
            let named = fixture::key(&[Value::Text("five".into())]);
            assert!(member.lookup_one(ITEMS, ITEMS_NAME, &named).unwrap().is_some());
            let nine = fixture::key(&[Value::Int4(9)]);
            assert!(
                member
                    .lookup_one(ITEMS, ITEMS_KIND_HASH, &nine)
                    .unwrap()
                    .is_some()
            );
            let note = RowId {
                batch: BatchId(3),
                member: 0,
                ordinal: 5_001,
            };
            let slot = member.locate(NOTES, &Locator::RowId(note)).unwrap().unwrap();
            member.remove(NOTES, slot).unwrap();
        });
    }
    same_state(&loaded.snapshot(), &copy.snapshot());
}

/// A checkpoint of so many items and the notes behind them.
fn written(rows: i64) -> SimDisk {
    let disk = SimDisk::new(1);
    write(&mut open(&disk).unwrap(), &filled(rows)).unwrap();
    disk
}

#[test]
fn loading_reports_its_progress() {
    let disk = written(5_000);
    let progress = Progress::default();
    open(&disk).unwrap().load(2, &progress).unwrap();
    let reached = progress.reached().unwrap();
    assert_eq!(reached.what, "building indexes");
    assert!(reached.total > 0 && reached.done == reached.total, "{reached}");
}

/// Damage anywhere. Where it is in the notes, which come behind the items, all of these have been loaded:
/// seven of eight that were inserted.
#[test]
fn failed_loading_has_reported_its_progress() {
    let whole = written(200);
    let mut told = Vec::new();
    for path in files(&whole, "table-") {
        let bytes = whole.open(&path, OpenMode::Read).unwrap().len().unwrap();
        for offset in (0..bytes).step_by(8) {
            let (disk, progress) = (whole.fork(offset), Progress::default());
            disk.flip_bit(&path, offset, 3).unwrap();
            if open(&disk).is_ok_and(|mut checkpoints| checkpoints.load(1, &progress).is_err()) {
                told.extend(progress.reached());
            }
        }
    }
    let in_notes =
        |reached: &&Reached| (reached.what, reached.done, reached.rows) == ("loading rows", 1, 175);
    let reached = told.iter().find(in_notes).unwrap_or_else(|| panic!("{told:?}"));
    assert!(reached.total > 1, "{reached}");
    assert!(told.iter().any(|reached| (reached.done, reached.rows) == (0, 0)));
}

#[test]
fn the_empty_store_loads_back() {
    let disk = SimDisk::new(1);
    same_state(&load(&disk).unwrap().snapshot(), &Store::new().snapshot());
    write(&mut open(&disk).unwrap(), &Store::new()).unwrap();
    same_state(&load(&disk).unwrap().snapshot(), &Store::new().snapshot());
}

/// Updates item `id`, or inserts it.
pub fn put(store: &Arc<Store>, id: i64) {
    fixture::member(store, |member| {
        let row = item_now(store, id, 7);
        match member.locate(ITEMS, &Locator::Key(fixture::id_key(id))).unwrap() {
            Some(slot) => member.update(ITEMS, slot, &row).unwrap(),
            None => drop(member.insert(ITEMS, &row).unwrap()),
        }
    });
}

fn remove(store: &Arc<Store>, id: i64) {
    fixture::member(store, |member| {
        let slot = member.locate(ITEMS, &Locator::Key(fixture::id_key(id))).unwrap();
        member.remove(ITEMS, slot.unwrap()).unwrap();
    });
}

#[test]
fn only_changes_are_written() {
    let disk = SimDisk::new(2);
    let store = filled(2_000);
    let mut checkpoints = open(&disk).unwrap();
    write(&mut checkpoints, &store).unwrap();
    let counts = |written: Written| (written.rows, written.removed);
    // Nothing; one row often; a row that comes and goes; rows that go, their slots with others in them.
    assert_eq!(counts(write(&mut checkpoints, &store).unwrap()), (0, 0));
    (0..10).for_each(|_| put(&store, 5));
    put(&store, 3_000);
    remove(&store, 3_000);
    remove(&store, 6);
    remove(&store, 7);
    fixture::settle(&store);
    put(&store, 3_001);
    put(&store, 3_002);
    assert_eq!(counts(write(&mut checkpoints, &store).unwrap()), (3, 2));
    assert_eq!(counts(write(&mut checkpoints, &store).unwrap()), (0, 0));
    same_state(&load_after(checkpoints, &disk), &store.snapshot());
    // What was loaded goes on in the same way.
    let (mut checkpoints, store) = reopen(&disk).unwrap();
    put(&store, 9);
    remove(&store, 5);
    assert_eq!(counts(write(&mut checkpoints, &store).unwrap()), (1, 1));
    same_state(&load_after(checkpoints, &disk), &store.snapshot());
}

fn load_after(checkpoints: Checkpoints, disk: &SimDisk) -> Snapshot {
    drop(checkpoints);
    load(disk).unwrap().snapshot()
}

#[test]
fn a_row_removed_during_a_checkpoint_is_removed_by_the_next() {
    let disk = SimDisk::new(3);
    let store = filled(100);
    let mut checkpoints = open(&disk).unwrap();
    write(&mut checkpoints, &store).unwrap();
    put(&store, 500);
    let changes = Changes::take(&store).unwrap();
    remove(&store, 500);
    remove(&store, 5);
    put(&store, 6);
    fixture::settle(&store);
    checkpoints
        .write(changes, &mut |_| ControlFlow::Continue(()))
        .unwrap();
    let written = write(&mut checkpoints, &store).unwrap();
    assert_eq!((written.rows, written.removed), (1, 2));
    same_state(&load_after(checkpoints, &disk), &store.snapshot());
}

#[test]
fn dropped_and_truncated_tables_leave_nothing() {
    let disk = SimDisk::new(4);
    let store = filled(300);
    let mut checkpoints = open(&disk).unwrap();
    write(&mut checkpoints, &store).unwrap();
    let ops = [
        CatalogOp::AddColumn {
            table: ITEMS,
            column: ColumnDef::new("more", SqlType::Int4),
            fill: Value::Int4(4),
        },
        CatalogOp::DropColumn {
            table: ITEMS,
            column: 3,
        },
        CatalogOp::Truncate(NOTES),
        CatalogOp::Truncate(ITEMS),
        CatalogOp::DropTable(NOTES),
    ];
    for op in ops {
        fixture::batch(&store, |batch| batch.apply_catalog(&op).unwrap());
        remove_some(&store);
        write(&mut checkpoints, &store).unwrap();
        same_state(&load_after(checkpoints, &disk), &store.snapshot());
        // The engine that wrote it goes on with its own store: it must know what it wrote.
        checkpoints = reopen(&disk).unwrap().0;
        write(&mut checkpoints, &store).unwrap();
        same_state(&load_after(checkpoints, &disk), &store.snapshot());
        checkpoints = reopen(&disk).unwrap().0;
        put(&store, 77);
    }
}

fn remove_some(store: &Arc<Store>) {
    if store
        .snapshot()
        .lookup_one(ITEMS, fixture::ITEMS_PKEY, &fixture::id_key(77))
        .unwrap()
        .is_some()
    {
        remove(store, 77);
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Members of one batch: item to put or, if negative, to remove, and whether the member commits.
    Batch(Vec<(i64, bool)>),
    Note,
    RemoveNote(usize),
    AddColumn,
    Truncate(bool),
    Checkpoint,
    /// One that is given up after some rows.
    Canceled(u64),
    /// One during which a batch is written.
    Beside(i64),
    Reopen,
    Collect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let item = (-30..60_i64, prop::bool::weighted(0.8));
    let step = prop_oneof![
        8 => prop::collection::vec(item, 1..6).prop_map(Step::Batch),
        2 => Just(Step::Note),
        2 => (0..20_usize).prop_map(Step::RemoveNote),
        1 => Just(Step::AddColumn),
        1 => any::<bool>().prop_map(Step::Truncate),
        4 => Just(Step::Checkpoint),
        1 => (0..20_u64).prop_map(Step::Canceled),
        2 => (0..60_i64).prop_map(Step::Beside),
        2 => Just(Step::Reopen),
        2 => Just(Step::Collect),
    ];
    prop::collection::vec(step, 1..60)
}

/// An item in the layout that the table has by now.
fn item_now(store: &Arc<Store>, id: i64, kind: i32) -> Vec<u8> {
    let catalog = store.catalog();
    let table = fixture::table(&catalog, ITEMS);
    let mut values = fixture::item_values(id, Some(kind), None);
    values.resize(table.columns.len(), Value::Int4(kind));
    table.layout.encode(&values).unwrap()
}

fn run_batch(store: &Arc<Store>, members: &[(i64, bool)]) {
    let row = |id: i64| item_now(store, id, store.boundary().0 as i32);
    fixture::batch(store, |batch| {
        for (number, (id, commits)) in members.iter().enumerate() {
            let mut member = batch.member(number as u32);
            let key = Locator::Key(fixture::id_key(id.unsigned_abs() as i64));
            match (member.locate(ITEMS, &key).unwrap(), *id < 0) {
                (Some(slot), true) => member.remove(ITEMS, slot).unwrap(),
                (Some(slot), false) => member.update(ITEMS, slot, &row(*id)).unwrap(),
                (None, true) => {}
                (None, false) => drop(member.insert(ITEMS, &row(*id)).unwrap()),
            }
            if *commits {
                member.commit();
            } else {
                member.rollback();
            }
        }
    });
}

fn nth_note(store: &Arc<Store>, nth: usize) -> Option<SlotId> {
    let snapshot = store.snapshot();
    let mut slots = Vec::new();
    snapshot.view().scan(NOTES, |row| slots.push(row.slot)).unwrap();
    slots.get(nth % slots.len().max(1)).copied()
}

/// What is on disk is the state of the last checkpoint, whatever happened before and since.
fn run_steps(steps: &[Step], disk: &SimDisk) {
    let mut store = fixture::store();
    let mut checkpoints = open(disk).unwrap();
    let mut expected: Option<Snapshot> = None;
    for step in steps {
        match step {
            Step::Batch(members) => run_batch(&store, members),
            Step::Note => drop(fixture::member(&store, |member| {
                member.insert(NOTES, &fixture::note("note", 1.0)).unwrap();
            })),
            Step::RemoveNote(nth) => {
                if let Some(slot) = nth_note(&store, *nth) {
                    fixture::member(&store, |member| member.remove(NOTES, slot).unwrap());
                }
            }
            Step::AddColumn => {
                let count = fixture::table(&store.catalog(), ITEMS).columns.len();
                let column = ColumnDef::new(format!("c{count}"), SqlType::Int4);
                let op = CatalogOp::AddColumn {
                    table: ITEMS,
                    column,
                    fill: Value::Int4(count as i32),
                };
                fixture::batch(&store, |batch| batch.apply_catalog(&op).unwrap());
            }
            Step::Truncate(items) => {
                let op = CatalogOp::Truncate(if *items { ITEMS } else { NOTES });
                fixture::batch(&store, |batch| batch.apply_catalog(&op).unwrap());
            }
            Step::Checkpoint => {
                expected = Some(store.snapshot());
                write(&mut checkpoints, &store).unwrap();
            }
            Step::Canceled(rows) => {
                let mut until = |told| match told > *rows {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                };
                let snapshot = store.snapshot();
                match checkpoints.write(Changes::take(&store).unwrap(), &mut until) {
                    Ok(_) => expected = Some(snapshot),
                    Err(error) => assert!(matches!(error, CheckpointError::Canceled), "{error}"),
                }
            }
            Step::Beside(id) => {
                expected = Some(store.snapshot());
                let mut is_first = true;
                let mut beside = |_| {
                    if std::mem::take(&mut is_first) {
                        run_batch(&store, &[(*id, true), (-((id + 7) % 60), true)]);
                    }
                    ControlFlow::Continue(())
                };
                checkpoints
                    .write(Changes::take(&store).unwrap(), &mut beside)
                    .unwrap();
            }
            Step::Reopen => {
                let Some(expected) = &expected else { continue };
                drop(checkpoints);
                (checkpoints, store) = reopen(disk).unwrap();
                same_state(&store.snapshot(), expected);
            }
            Step::Collect => fixture::settle(&store),
        }
    }
    drop(checkpoints);
    if let Some(expected) = expected {
        same_state(&load(disk).unwrap().snapshot(), &expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_loaded_state_equals_the_written_state(steps in steps(), seed: u64) {
        run_steps(&steps, &SimDisk::new(seed));
    }
}

/// Files of the engine, by name.
pub fn files(disk: &SimDisk, begin: &str) -> Vec<PathBuf> {
    let names = disk.list(&folder()).unwrap();
    let names = names.iter().filter(|name| name.starts_with(begin));
    names.map(|name| folder().join(name)).collect()
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error_or_harmless() {
    let whole = SimDisk::new(2);
    let store = filled(24);
    let mut checkpoints = open(&whole).unwrap();
    write(&mut checkpoints, &store).unwrap();
    (0..24).step_by(5).for_each(|id| put(&store, id));
    write(&mut checkpoints, &store).unwrap();
    drop(checkpoints);
    let expected = store.snapshot();
    let (mut errors, mut harmless) = (0, 0);
    for path in files(&whole, "table-") {
        let len = whole.open(&path, OpenMode::Read).unwrap().len().unwrap();
        let mut check = |damage: &dyn Fn(&SimDisk)| {
            let disk = whole.fork(7);
            damage(&disk);
            match load(&disk) {
                Ok(loaded) => {
                    same_state(&loaded.snapshot(), &expected);
                    harmless += 1;
                }
                Err(_) => errors += 1,
            }
        };
        for offset in 0..len {
            check(&|disk| disk.flip_bit(&path, offset, (offset % 8) as u8).unwrap());
        }
        for end in 0..len {
            check(&|disk| {
                disk.open(&path, OpenMode::ReadWrite)
                    .unwrap()
                    .set_len(end)
                    .unwrap()
            });
        }
    }
    assert!(errors > 2_000 && harmless == 0, "{errors} {harmless}");
}

/// However long a row is, it lies in a table: loading reads all of it anyway.
#[test]
fn no_row_is_misplaced() {
    let disk = SimDisk::new(3);
    let store = filled(24);
    let mut checkpoints = open(&disk).unwrap();
    write(&mut checkpoints, &store).unwrap();
    checkpoints.merge().unwrap();
    assert_eq!(files(&disk, "values-"), Vec::<PathBuf>::new());
    same_state(&load_after(checkpoints, &disk), &store.snapshot());
}

/// A store with a checkpoint behind it, and what changed since.
fn changed(checkpoints: &mut Checkpoints) -> (Arc<Store>, Snapshot) {
    let store = filled(40);
    write(checkpoints, &store).unwrap();
    let old = store.snapshot();
    (30..50).for_each(|id| put(&store, id));
    remove(&store, 5);
    fixture::batch(&store, |batch| {
        batch.apply_catalog(&CatalogOp::Truncate(NOTES)).unwrap()
    });
    (store, old)
}

#[test]
fn errors_leave_the_old_checkpoint_and_the_next_one_covers_both() {
    for kind in [FaultKind::Io, FaultKind::StorageFull] {
        let mut failures = 0;
        for nth in 1.. {
            let disk = SimDisk::new(nth);
            let mut checkpoints = open(&disk).unwrap();
            let (store, old) = changed(&mut checkpoints);
            disk.fail_after(disk.op_count() + nth, kind);
            let outcome = write(&mut checkpoints, &store);
            let is_over = disk.op_count() < nth;
            if let Err(error) = &outcome {
                assert_eq!(error.is_storage_full(), kind == FaultKind::StorageFull, "{error}");
                failures += 1;
                // Another process would find one of both, whole.
                let found = load(&disk.fork(nth)).unwrap().snapshot();
                assert!(found.batch() == old.batch() || found.batch() == store.boundary());
                assert_eq!(found.verify_digest().unwrap(), found.digest());
            }
            disk.fail_after(u64::MAX, kind);
            put(&store, 200);
            write(&mut checkpoints, &store).unwrap();
            same_state(&load_after(checkpoints, &disk), &store.snapshot());
            // Nothing is left of what failed.
            let tables = files(&disk, "table-").len();
            let named: u64 = open(&disk)
                .unwrap()
                .stats()
                .levels
                .iter()
                .map(|level| level.tables)
                .sum();
            assert_eq!(tables as u64, named);
            if is_over || nth > 300 {
                break;
            }
        }
        assert!(failures > 14, "{failures}");
    }
}

/// Cuts the power at one mutation of a checkpoint, or after it. Returns whether the checkpoint was reported
/// done, and what a restart finds.
fn crash_while_writing(
    disk: &SimDisk,
    config: &CheckpointConfig,
    cut: u64,
) -> (bool, Result<(Snapshot, Snapshot, Snapshot), String>) {
    let mut checkpoints = open_with(disk, config).unwrap();
    let (store, old) = changed(&mut checkpoints);
    disk.cut_power_at(disk.op_count() + cut);
    let changes = Changes::take(&store).unwrap();
    let done = checkpoints
        .write(changes, &mut |_| ControlFlow::Continue(()))
        .is_ok();
    let _ = checkpoints.merge();
    drop(checkpoints);
    disk.crash();
    // Opening writes too: the power goes again as soon as it is done.
    let opened = load(disk).map(drop);
    disk.crash();
    let found = opened
        .and_then(|()| load(disk))
        .map_err(|error| error.to_string());
    (done, found.map(|found| (found.snapshot(), old, store.snapshot())))
}

#[test]
fn power_cuts_leave_a_complete_checkpoint() {
    cut_the_power(0..6, &tiny());
}

/// Cuts the power at each of many moments; the old state or the new one is there.
pub fn cut_the_power(seeds: std::ops::Range<u64>, config: &CheckpointConfig) {
    let (mut done_count, mut old_count) = (0, 0);
    let least = 8 * (seeds.end - seeds.start) as usize;
    for seed in seeds {
        for cut in 1..90 {
            let (done, found) = crash_while_writing(&SimDisk::new(seed), config, cut);
            let (found, old, new) = found.unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            if found.batch() == new.batch() {
                same_state(&found, &new);
            } else {
                assert!(!done, "seed {seed}, cut {cut}");
                assert_eq!((found.batch(), found.digest()), (old.batch(), old.digest()));
                assert_eq!(found.verify_digest().unwrap(), found.digest());
                old_count += 1;
            }
            done_count += usize::from(done);
        }
    }
    assert!(
        done_count > least && old_count > least,
        "{done_count} {old_count}"
    );
}

/// Without any one of the syncs some crash loses a checkpoint or damages it. Nothing is written to the
/// engine's log and no row lies apart, so neither is synced; and the log's name is made durable again with
/// that of the manifest, in the same folder.
#[test]
fn every_sync_is_needed() {
    let is_called = |site: &SyncSite| !["lsm.log", "lsm.log.older", "lsm.values"].contains(&site.0);
    let is_superfluous = |site: &SyncSite| site.0 == "lsm.log.dir";
    for site in SYNC_SITES
        .into_iter()
        .filter(is_called)
        .filter(|site| !is_superfluous(site))
    {
        let is_noticed = (0..400).any(|seed| {
            let mut prng = Prng::new(seed);
            let disk = SimDisk::new(seed);
            disk.ignore_sync(site);
            let crash = || crash_while_writing(&disk, &tiny(), 1 + prng.below(120));
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(crash)) {
                Ok((done, Ok((found, old, new)))) => {
                    let is_new = found.batch() == new.batch() && found.digest() == new.digest();
                    !is_new && (done || found.batch() != old.batch())
                }
                _ => true,
            }
        });
        assert!(is_noticed, "ignoring {site:?} goes unnoticed");
    }
    let disk = SimDisk::new(1);
    let mut checkpoints = open(&disk).unwrap();
    changed(&mut checkpoints);
    assert!(disk.seen_sites().iter().all(is_called), "{:?}", disk.seen_sites());
}

#[test]
fn foreign_files_are_not_read_as_checkpoints() {
    let disk = SimDisk::new(9);
    disk.create_dir_all(&folder()).unwrap();
    let name = "manifest-000000000001.lsm";
    let file = disk
        .open(&folder().join(Path::new(name)), OpenMode::CreateNew)
        .unwrap();
    file.write_at(b"PNG", 0).unwrap();
    assert!(matches!(load(&disk), Err(CheckpointError::Storage(_))));
}
