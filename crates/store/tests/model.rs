//! The store against an ordered map: random batches, members that commit or roll back, batches that abort,
//! snapshots held and dropped, collection, checkpoints and eviction at random moments. Every snapshot must go
//! on showing exactly the state it was taken at, through every index; and when all readers are gone, nothing
//! may be left but the live rows.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use proptest::prelude::*;
use weft_base::IndexId;
use weft_base::{BatchId, SimDisk};
use weft_store::columns::ColumnKeeper;
use weft_store::{
    CatalogOp, Evictor, IndexDef, IndexMethod, Locator, MemberWriter, Prepared, PreparedIndex, Refiller,
    Snapshot, Store,
};
use weft_types::{SqlError, Value};

use crate::fixture::{self, ITEMS, ITEMS_KIND, ITEMS_KIND_HASH, ITEMS_NAME, ITEMS_PKEY, Item};
use crate::{checkpoint, image};

/// Rows that [`Action::RemoveFrom`] removes.
const NEIGHBOURS: i64 = 10;

/// Rows by id.
type Model = BTreeMap<i64, (Option<i32>, Option<String>)>;

#[derive(Clone, Debug)]
enum Action {
    Insert(i64, Option<i32>, Option<String>),
    Update(i64, i64, Option<i32>, Option<String>),
    /// An update that changes nothing.
    Touch(i64),
    Remove(i64),
    /// Neighbours, whose index entries are then marked while a snapshot keeps them.
    RemoveFrom(i64),
}

#[derive(Clone, Debug)]
struct Member {
    actions: Vec<Action>,
    commits: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Batch {
        members: Vec<Member>,
        publishes: bool,
    },
    TakeSnapshot,
    DropSnapshot(usize),
    CheckSnapshot(usize),
    Collect(usize),
    /// Reads some columns of the newest boundary, and copies what was asked for, within so many bytes.
    CopyColumns {
        columns: u8,
        bytes_max: u64,
    },
    Checkpoint,
    /// Takes rows out of memory: so many regions' turns.
    Evict(usize),
    Refill(usize),
    /// Closes the store and opens it, by an image of its indexes.
    Reopen,
    /// Begins to prepare an index of this kind, or goes on with the one that is being prepared.
    Prepare(usize),
    /// Has the prepared index appear, and compares it with the rows.
    CreatePrepared,
}

fn name() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        3 => (0..12u8).prop_map(|n| Some(format!("n{n}"))),
        1 => (0..4u8).prop_map(|n| Some(format!("a name long enough for a tail on the heap {n}"))),
        1 => (0..4usize).prop_map(|n| Some("too long for a slot ".repeat(20 + 100 * n))),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let id = || 0..24i64;
    let kind = || proptest::option::of(0..4i32);
    prop_oneof![
        4 => (id(), kind(), name()).prop_map(|(id, kind, name)| Action::Insert(id, kind, name)),
        4 => (id(), kind(), name()).prop_map(|(id, kind, name)| Action::Update(id, id, kind, name)),
        1 => (id(), id(), kind(), name())
            .prop_map(|(id, new, kind, name)| Action::Update(id, new, kind, name)),
        3 => id().prop_map(Action::Touch),
        3 => id().prop_map(Action::Remove),
        1 => id().prop_map(Action::RemoveFrom),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let member = (
        proptest::collection::vec(action(), 0..8),
        proptest::bool::weighted(0.75),
    )
        .prop_map(|(actions, commits)| Member { actions, commits });
    prop_oneof![
        6 => (proptest::collection::vec(member, 0..4), proptest::bool::weighted(0.9))
            .prop_map(|(members, publishes)| Step::Batch { members, publishes }),
        2 => Just(Step::TakeSnapshot),
        2 => (0..8usize).prop_map(Step::DropSnapshot),
        1 => (0..8usize).prop_map(Step::CheckSnapshot),
        3 => (1..30usize).prop_map(Step::Collect),
        3 => (0..8u8, prop_oneof![4 => Just(u64::MAX), 1 => 0..20_000u64])
            .prop_map(|(columns, bytes_max)| Step::CopyColumns { columns, bytes_max }),
        2 => Just(Step::Checkpoint),
        3 => (1..12usize).prop_map(Step::Evict),
        2 => (1..12usize).prop_map(Step::Refill),
        1 => Just(Step::Reopen),
        3 => (0..INDEXES.len()).prop_map(Step::Prepare),
        2 => Just(Step::CreatePrepared),
    ]
}

/// Indexes that are prepared: columns, method, whether they are unique.
const INDEXES: [(&[usize], IndexMethod, bool); 6] = [
    (&[1, 0], IndexMethod::Ordered, false),
    (&[0, 1], IndexMethod::Both, true),
    (&[2], IndexMethod::Hash, false),
    (&[2], IndexMethod::Both, true),
    (&[1], IndexMethod::Both, true),
    (&[1], IndexMethod::Hash, true),
];

/// A value of a unique index that several rows have.
fn has_duplicate(index: &IndexDef, model: &Model) -> bool {
    let kinds = model.values().filter_map(|(kind, _)| *kind);
    let mut seen = std::collections::BTreeSet::new();
    index.unique && index.columns == [1] && !kinds.into_iter().all(|kind| seen.insert(kind))
}

fn prepare(
    store: &Arc<Store>,
    model: &Model,
    prepared: Option<PreparedIndex>,
    kind: usize,
) -> Option<PreparedIndex> {
    let (columns, method, unique) = INDEXES[kind];
    let id = IndexId(store.catalog().next_object_id());
    let def = IndexDef {
        unique,
        ..fixture::index(id, "prepared", ITEMS, columns, method)
    };
    let (def, outcome) = match prepared {
        Some(mut prepared) => (prepared.def().clone(), prepared.catch_up().map(|_| prepared)),
        None => {
            let table = fixture::table(&store.catalog(), ITEMS).clone();
            let outcome = store.prepare_index(&table, &def);
            (def, outcome.map(|prepared| prepared.expect("the table is there")))
        }
    };
    assert_eq!(outcome.is_err(), has_duplicate(&def, model), "{def:?}");
    outcome
        .map_err(|error| assert_eq!(error.state.code(), "23505"))
        .ok()
}

fn create_prepared(store: &Arc<Store>, model: &mut Model, mut prepared: PreparedIndex) {
    let def = prepared.def().clone();
    let before = store.memory_stats().ordered_entries;
    let next = BatchId(store.boundary().0 + 1);
    let has_writes = model.len() % 2 == 1;
    if has_writes && prepared.catch_up_last().is_err() {
        return assert!(has_duplicate(&def, model), "{def:?}");
    }
    let mut batch = store.begin_batch(next);
    batch.offer(Prepared::Index(Box::new(prepared)));
    if has_writes && let Some((id, (kind, name))) = model.pop_first() {
        // The transaction that creates it also writes: keys stay, change and go.
        let mut member = batch.member(0);
        let locator = Locator::Key(fixture::id_key(id));
        let slot = member.locate(ITEMS, &locator).unwrap().expect("the row is there");
        if id % 3 == 0 {
            member.remove(ITEMS, slot).unwrap();
        } else {
            let kind = kind.map(|kind| kind + 100).filter(|_| id % 2 == 0);
            member
                .update(ITEMS, slot, &fixture::item(id, kind, name.as_deref()))
                .unwrap();
            model.insert(id, (kind, name));
        }
        member.commit();
    }
    let created = batch.apply_catalog(&CatalogOp::CreateIndex(def.clone()));
    assert_eq!(batch.offered(), 0, "it was used");
    assert_eq!(created.is_err(), has_duplicate(&def, model), "{def:?}");
    if let Err(error) = created {
        assert_eq!(error.message, "could not create unique index \"prepared\"");
        assert!(!has_writes, "it was found before");
        return batch.abort();
    }
    batch.finish();
    store.publish(next);
    let snapshot = store.snapshot();
    let expected: Vec<Item> = model
        .iter()
        .map(|(id, (kind, name))| (*id, *kind, name.clone()))
        .collect();
    if def.method != IndexMethod::Hash {
        let entries = store.memory_stats().ordered_entries - before;
        // A row that was written has entries of other indexes, too.
        let written = 3 * u64::from(has_writes);
        let possible = model.len() as u64..=model.len() as u64 + written;
        assert!(
            possible.contains(&entries),
            "one for each row, and no other: {entries}"
        );
        let all = (Bound::Unbounded, Bound::Unbounded);
        let rows = snapshot
            .range(ITEMS, def.id, all.0, all.1, false, usize::MAX)
            .unwrap();
        let mut rows: Vec<Item> = rows.iter().map(fixture::decode).collect();
        rows.sort();
        assert_eq!(rows, expected);
    }
    for (id, kind, name) in &expected {
        let values = fixture::item_values(*id, *kind, name.as_deref());
        let key: Vec<Value> = def.columns.iter().map(|column| values[*column].clone()).collect();
        let mut found = false;
        let see = |row| {
            found |= fixture::decode(&row).0 == *id;
            ControlFlow::Continue(())
        };
        snapshot.lookup(ITEMS, def.id, &fixture::key(&key), see).unwrap();
        assert!(found, "{id} by {def:?}");
    }
    fixture::batch(store, |batch| {
        batch.apply_catalog(&CatalogOp::DropIndex(def.id)).unwrap();
    });
}

fn check_columns(snapshot: &Snapshot, model: &Model, columns: &[usize]) {
    let fill = (-1, Some(-1), Some("not asked for".to_owned()));
    let mut expected: Vec<Item> = model
        .iter()
        .map(|(id, (kind, name))| {
            (
                if columns.contains(&0) { *id } else { fill.0 },
                if columns.contains(&1) { *kind } else { fill.1 },
                if columns.contains(&2) {
                    name.clone()
                } else {
                    fill.2.clone()
                },
            )
        })
        .collect();
    expected.sort();
    assert_eq!(
        fixture::read_columns(snapshot, columns, &fill),
        expected,
        "columns {columns:?}"
    );
}

/// What the action must answer, and the model after it.
fn apply_to_model(model: &mut Model, action: &Action) -> Result<(), &'static str> {
    let name_taken = |model: &Model, own: Option<i64>, name: &Option<String>| {
        name.is_some() && model.iter().any(|(id, row)| Some(*id) != own && row.1 == *name)
    };
    match action {
        Action::Insert(id, kind, name) => {
            if model.contains_key(id) || name_taken(model, None, name) {
                return Err("23505");
            }
            model.insert(*id, (*kind, name.clone()));
        }
        Action::Update(id, new, kind, name) => {
            if !model.contains_key(id) {
                return Ok(());
            }
            if (new != id && model.contains_key(new)) || name_taken(model, Some(*id), name) {
                return Err("23505");
            }
            model.remove(id);
            model.insert(*new, (*kind, name.clone()));
        }
        Action::Touch(_) => {}
        Action::Remove(id) => {
            model.remove(id);
        }
        Action::RemoveFrom(id) => {
            model.retain(|other, _| !(*id..id + NEIGHBOURS).contains(other));
        }
    }
    Ok(())
}

fn apply(member: &mut MemberWriter<'_>, action: &Action) -> Result<(), SqlError> {
    let locate =
        |member: &MemberWriter<'_>, id: i64| member.locate(ITEMS, &Locator::Key(fixture::id_key(id)));
    match action {
        Action::Insert(id, kind, name) => member
            .insert(ITEMS, &fixture::item(*id, *kind, name.as_deref()))
            .map(|_| ()),
        Action::Update(id, new, kind, name) => match locate(member, *id)? {
            Some(slot) => member.update(ITEMS, slot, &fixture::item(*new, *kind, name.as_deref())),
            None => Ok(()),
        },
        Action::Touch(id) => match locate(member, *id)?
            .map(|slot| member.get(ITEMS, slot))
            .transpose()?
            .flatten()
        {
            Some(row) => member.update(ITEMS, row.slot, row.bytes),
            None => Ok(()),
        },
        Action::Remove(id) => match locate(member, *id)? {
            Some(slot) => member.remove(ITEMS, slot),
            None => Ok(()),
        },
        Action::RemoveFrom(id) => (*id..id + NEIGHBOURS).try_for_each(|id| match locate(member, id)? {
            Some(slot) => member.remove(ITEMS, slot),
            None => Ok(()),
        }),
    }
}

fn run_batch(store: &Arc<Store>, model: &mut Model, members: &[Member], publishes: bool) {
    let before = (store.state_digest(), model.clone());
    let id = BatchId(store.boundary().0 + 1);
    let batch = store.begin_batch(id);
    for (number, plan) in members.iter().enumerate() {
        let saved = model.clone();
        let mut member = batch.member(number as u32);
        for action in &plan.actions {
            let expected = apply_to_model(model, action);
            let found = apply(&mut member, action).map_err(|error| error.state.code());
            assert_eq!(found, expected, "{action:?}");
        }
        let mut seen = Model::new();
        member
            .scan(ITEMS, |row| {
                let (id, kind, name) = fixture::decode(&row);
                seen.insert(id, (kind, name));
            })
            .unwrap();
        assert_eq!(&seen, model);
        check_member_ranges(&member, model);
        if plan.commits {
            member.commit();
        } else {
            member.rollback();
            *model = saved;
        }
    }
    if publishes {
        let digest = batch.finish();
        assert_eq!(
            (store.boundary(), store.state_digest()),
            (BatchId(id.0 - 1), before.0)
        );
        store.publish(id);
        assert_eq!((store.boundary(), store.state_digest()), (id, digest));
    } else {
        batch.abort();
        *model = before.1;
        assert_eq!(store.state_digest(), before.0);
    }
}

/// All rows, and the first ones, from either end: what is removed by this member, by others of its batch, and
/// by earlier batches is passed over.
fn check_member_ranges(member: &MemberWriter<'_>, model: &Model) {
    for (reverse, limit) in [false, true]
        .into_iter()
        .flat_map(|end| [(end, usize::MAX), (end, 1)])
    {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let rows = member
            .range(ITEMS, ITEMS_PKEY, all.0, all.1, reverse, limit)
            .unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| fixture::decode(row).0).collect();
        let expected: Vec<i64> = if reverse {
            model.keys().rev().copied().take(limit).collect()
        } else {
            model.keys().copied().take(limit).collect()
        };
        assert_eq!(ids, expected, "reverse {reverse}, limit {limit}");
    }
}

fn check(snapshot: &Snapshot, model: &Model) {
    let expected: Vec<Item> = model
        .iter()
        .map(|(id, (kind, name))| (*id, *kind, name.clone()))
        .collect();
    let mut scanned = Vec::new();
    for chunk in 0..snapshot.scan_chunks(ITEMS) {
        snapshot
            .scan_chunk(ITEMS, chunk, |row| scanned.push(fixture::decode(&row)))
            .unwrap();
    }
    scanned.sort();
    assert_eq!(scanned, expected);
    for columns in [&[0, 1, 2][..], &[0], &[2, 0], &[]] {
        check_columns(snapshot, model, columns);
    }
    assert_eq!(snapshot.verify_digest().unwrap(), snapshot.digest());

    let range = |index, reverse| -> Vec<Item> {
        let rows = snapshot
            .range(
                ITEMS,
                index,
                Bound::Unbounded,
                Bound::Unbounded,
                reverse,
                usize::MAX,
            )
            .unwrap();
        rows.iter().map(fixture::decode).collect()
    };
    assert_eq!(range(ITEMS_PKEY, false), expected);
    assert_eq!(
        range(ITEMS_PKEY, true),
        expected.iter().rev().cloned().collect::<Vec<_>>()
    );
    let mut by_name = range(ITEMS_NAME, false);
    assert!(by_name.is_sorted_by_key(|item| (item.2.is_none(), item.2.clone())));
    by_name.sort();
    assert_eq!(by_name, expected);

    for id in 0..24 {
        let found = snapshot
            .lookup_one(ITEMS, ITEMS_PKEY, &fixture::id_key(id))
            .unwrap();
        assert_eq!(
            found.map(|row| fixture::decode(&row)),
            expected.iter().find(|item| item.0 == id).cloned()
        );
        if let Some(row) = found {
            assert_eq!(snapshot.get(ITEMS, row.slot).unwrap(), Some(row));
            assert!(row.batch <= snapshot.batch() && row.row_id.batch <= row.batch);
        }
    }
    for kind in [None, Some(0), Some(1), Some(2), Some(3)] {
        let key = fixture::key(&[kind.map_or(Value::Null, Value::Int4)]);
        let mut hashed = Vec::new();
        let see = |row| {
            hashed.push(fixture::decode(&row));
            ControlFlow::Continue(())
        };
        snapshot.lookup(ITEMS, ITEMS_KIND_HASH, &key, see).unwrap();
        hashed.sort();
        let bound = Bound::Included(key.as_slice());
        let rows = snapshot
            .range(ITEMS, ITEMS_KIND, bound, bound, false, usize::MAX)
            .unwrap();
        let mut ordered: Vec<Item> = rows.iter().map(fixture::decode).collect();
        ordered.sort();
        let expected: Vec<Item> = expected.iter().filter(|item| item.1 == kind).cloned().collect();
        assert_eq!((&hashed, &ordered), (&expected, &expected));
    }
}

/// With no reader left and everything collected, only the live rows take memory.
fn check_nothing_left(store: &Arc<Store>, model: &Model) {
    fixture::settle(store);
    let stats = store.memory_stats();
    let rows = model
        .iter()
        .map(|(id, (kind, name))| fixture::item(*id, *kind, name.as_deref()).len() as u64 + 24);
    assert_eq!(stats.version_bytes, rows.sum::<u64>());
    assert_eq!((stats.superseded_rows, stats.unlinked_versions), (0, 0));
    assert_eq!(stats.ordered_entries, 3 * model.len() as u64);
    assert_eq!(store.snapshot().row_count_estimate(ITEMS), model.len() as u64);
    assert_eq!(store.row_memory().cold_rows, 0, "all have been looked up");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn store_equals_model(steps in proptest::collection::vec(step(), 1..60)) {
        let mut store = fixture::store();
        let disk = SimDisk::new(1);
        let mut checkpoints = checkpoint::open_with(&disk, &checkpoint::tiny()).unwrap();
        let (mut evictor, mut refiller) = (Evictor::default(), Refiller::default());
        let mut model = Model::new();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        let mut prepared = None;
        for step in &steps {
            match step {
                Step::Batch { members, publishes } => run_batch(&store, &mut model, members, *publishes),
                Step::TakeSnapshot => held.push((store.snapshot(), model.clone())),
                Step::DropSnapshot(at) if !held.is_empty() => {
                    let at = at % held.len();
                    held.swap_remove(at);
                }
                Step::CheckSnapshot(at) if !held.is_empty() => {
                    let (snapshot, then) = &held[at % held.len()];
                    check(snapshot, then);
                }
                Step::Collect(budget) => {
                    store.collect_garbage(*budget);
                }
                Step::CopyColumns { columns, bytes_max } => {
                    let columns: Vec<usize> = (0..3).filter(|column| columns >> column & 1 == 1).collect();
                    check_columns(&store.snapshot(), &model, &columns);
                    ColumnKeeper::new(*bytes_max, fixture::EAGER).keep(&store, &mut || true);
                    check_columns(&store.snapshot(), &model, &columns);
                }
                Step::Checkpoint => {
                    checkpoint::write(&mut checkpoints, &store).unwrap();
                }
                Step::Evict(steps) => (0..*steps).for_each(|_| {
                    evictor.step(&store, true).unwrap();
                }),
                Step::Refill(steps) => (0..*steps).for_each(|_| {
                    refiller.step(&store, u64::MAX).unwrap();
                }),
                Step::Prepare(kind) => prepared = prepare(&store, &model, prepared.take(), *kind),
                Step::CreatePrepared => {
                    if let Some(prepared) = prepared.take() {
                        create_prepared(&store, &mut model, prepared);
                    }
                }
                Step::Reopen => {
                    held.clear();
                    prepared = None;
                    fixture::settle(&store);
                    checkpoint::write(&mut checkpoints, &store).unwrap();
                    prop_assert!(checkpoints.write_image(&store).unwrap());
                    drop(checkpoints);
                    (checkpoints, store) = image::reopen(&disk);
                    prop_assert_eq!(store.row_memory().version_bytes, 0, "no row was read");
                }
                _ => {}
            }
            let oldest = held.iter().map(|(snapshot, _)| snapshot.batch()).min();
            let oldest = oldest.unwrap_or(store.boundary());
            if prepared.is_none() {
                prop_assert_eq!(store.oldest_snapshot(), oldest);
            }
        }
        held.iter().for_each(|(snapshot, then)| check(snapshot, then));
        check(&store.snapshot(), &model);
        drop((held, prepared));
        check_nothing_left(&store, &model);
    }
}
