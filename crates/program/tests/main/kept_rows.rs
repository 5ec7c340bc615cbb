//! What a program keeps of rows, and fetches ahead of their use, against writes of the same program.
//!
//! A [`BatchAccess`] keeps the bytes of rows that it found lately, and a loop over a range has probes under
//! way for the rows to come. Both must never show what the program has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use weft_base::{BatchId, TableId};
use weft_program::{BatchAccess, DataAccess, RowHandle, asm, verify};
use weft_types::Value;

use crate::fixture::{ACCOUNTS, ACCOUNTS_KEY, BUDGET, Database, PAIRS};

fn encoded(database: &Database, table: TableId, values: &[Value]) -> Vec<u8> {
    let catalog = database.catalog();
    catalog.table_by_id(table).unwrap().layout.encode(values).unwrap()
}

fn account(database: &Database, id: i64, balance: i32) -> Vec<u8> {
    let name = "x".repeat(balance.unsigned_abs() as usize % 20);
    let values = [
        Value::Int8(id),
        Value::Int4(balance),
        Value::Text(name),
        Value::Text(format!("mail{id}")),
        Value::Null,
    ];
    encoded(database, ACCOUNTS, &values)
}

fn key(id: i64) -> Vec<u8> {
    let mut key = Vec::new();
    weft_types::encode_key_value(&mut key, &Value::Int8(id));
    key
}

#[derive(Clone, Debug)]
enum Step {
    Search(i64),
    Range(i64, i64),
    Insert(i64, i32),
    Update(usize, i32),
    Remove(usize),
    Savepoint,
    Rollback,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    // More rows than are kept, so that they take each other's places.
    let id = 0..40_i64;
    prop_oneof![
        6 => id.clone().prop_map(Step::Search),
        2 => (id.clone(), 0..20_i64).prop_map(|(lo, more)| Step::Range(lo, lo + more)),
        4 => (id, any::<i32>()).prop_map(|(id, balance)| Step::Insert(id, balance)),
        5 => (0..64_usize, any::<i32>()).prop_map(|(handle, balance)| Step::Update(handle, balance)),
        3 => (0..64_usize).prop_map(Step::Remove),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Rollback),
        1 => Just(Step::Release),
    ]
}

type Rows = BTreeMap<i64, Vec<u8>>;

/// Every row that is at hand shows what the model has, and so does every key.
fn check(access: &BatchAccess<'_, '_>, held: &[(i64, RowHandle)], model: &Rows) {
    for (id, handle) in held {
        assert_eq!(access.row(handle), model.get(id).map(Vec::as_slice), "row {id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn kept_rows_are_the_newest(steps in prop::collection::vec(step(), 1..120), commits in any::<bool>()) {
        let database = Database::new();
        let mut committed = Rows::new();
        for id in 0..20 {
            committed.insert(id * 2, account(&database, id * 2, 7));
        }
        let batch = BatchId(database.store.boundary().0 + 1);
        let writer = database.store.begin_batch(batch);
        let mut member = writer.member(0);
        for row in committed.values() {
            member.insert(ACCOUNTS, row).unwrap();
        }
        member.commit();
        let mut model = committed.clone();
        // Rows at hand with the keys that they had; those that went are dropped, as registers are.
        let mut held: Vec<(i64, RowHandle)> = Vec::new();
        let mut saved: Vec<(Rows, Vec<(i64, RowHandle)>)> = Vec::new();
        let mut member = writer.member(1);
        let mut access = BatchAccess::new(&mut member);
        for step in &steps {
            match step {
                Step::Search(id) => {
                    let found = access.search(ACCOUNTS_KEY, ACCOUNTS, &key(*id)).unwrap();
                    prop_assert_eq!(found.is_some(), model.contains_key(id));
                    held.extend(found.map(|handle| (*id, handle)));
                }
                Step::Range(lo, hi) => {
                    let (low, high) = (key(*lo), key(*hi));
                    let mut rows = Vec::new();
                    let bounds = (Bound::Included(low.as_slice()), Bound::Included(high.as_slice()));
                    access
                        .range(ACCOUNTS_KEY, ACCOUNTS, bounds.0, bounds.1, false, 100, &mut rows)
                        .unwrap();
                    let ids: Vec<i64> = model.range(lo..=hi).map(|(id, _)| *id).collect();
                    prop_assert_eq!(rows.len(), ids.len());
                    held.extend(ids.into_iter().zip(rows));
                }
                Step::Insert(id, balance) => {
                    let row = account(&database, *id, *balance);
                    let inserted = access.insert(ACCOUNTS, &row);
                    prop_assert_eq!(inserted.is_ok(), !model.contains_key(id));
                    if let Ok(handle) = inserted {
                        held.retain(|(_, known)| *known != handle);
                        held.push((*id, handle));
                        model.insert(*id, row);
                    }
                }
                Step::Update(at, balance) => {
                    if let Some((id, handle)) = held.get(at % held.len().max(1)).copied() {
                        let row = account(&database, id, *balance);
                        access.update(&handle, &row).unwrap();
                        model.insert(id, row);
                    }
                }
                Step::Remove(at) => {
                    if let Some((id, handle)) = held.get(at % held.len().max(1)).copied() {
                        access.remove(&handle).unwrap();
                        model.remove(&id);
                        prop_assert!(access.row(&handle).is_none());
                        held.retain(|(_, known)| *known != handle);
                    }
                }
                Step::Savepoint => {
                    access.savepoint().unwrap();
                    saved.push((model.clone(), held.clone()));
                }
                Step::Rollback => {
                    if let Some(before) = saved.pop() {
                        access.rollback_to_savepoint();
                        // What was at hand then is again, as it was.
                        (model, held) = before;
                        check(&access, &held, &model);
                        let present: Vec<i64> = model.keys().copied().collect();
                        for id in present {
                            let found = access.search(ACCOUNTS_KEY, ACCOUNTS, &key(id)).unwrap();
                            prop_assert!(found.is_some(), "row {} after undoing", id);
                            held.extend(found.map(|handle| (id, handle)));
                        }
                    }
                }
                Step::Release => {
                    if saved.pop().is_some() {
                        access.release_savepoint();
                    }
                }
            }
            check(&access, &held, &model);
        }
        match commits {
            true => member.commit(),
            false => {
                member.rollback();
                model = committed;
            }
        }
        writer.finish();
        database.store.publish(batch);
        prop_assert_eq!(database.snapshot().verify_digest().unwrap(), database.store.state_digest());
        let snapshot = database.snapshot();
        let mut rows = Rows::new();
        let catalog = database.catalog();
        let layout = &catalog.table_by_id(ACCOUNTS).unwrap().layout;
        snapshot.view().scan(ACCOUNTS, |row| {
            let id = layout.value(row.bytes, 0).as_i64().unwrap();
            rows.insert(id, row.bytes.to_vec());
        }).unwrap();
        prop_assert_eq!(rows, model);
    }
}

/// For each pair `(1, b, _)` in order: the pair `(2, b, text)` is searched, which is fetched ahead, and
/// shown; then those that later rounds will search are changed: one grows, one goes or comes.
const LOOP: &str = "\
.program catalog 3
.inputs
  i0 int4
.consts
  c0 int4 '1'
  c1 int4 '2'
  c2 text 'x'
  c3 text 'new'
.tables
  t0 16387 (int4, int4, text) x0 16388 unique ordered primary (0, 1)
.outputs
  s0 (int4, text)
.access
  write_table t0 []
.logic
  key k1
  keyk k1, c0
  scan cp0, t0.x0, k1, k1, forward, all
  ret r0, cp0
  ldi r20, 1
  ldi r21, 2
L1:
  bnt r0, L9
  key k0
  keyk k0, c1
  keycol k0, cp0.1
  search cp1, t0.x0, k0
  ret r1, cp1
  outrow b0, s0
  setcol b0.0, cp0.1
  setcol b0.1, cp1.2
  emit s0, b0
  ldcol r2, cp0.1
  ; the next one grows
  add r3, r2, r20
  key k2
  keyk k2, c1
  keyr k2, r3, int4
  search cp2, t0.x0, k2
  ret r4, cp2
  bnt r4, L2
  copyrow b1, cp2
  cat b1.2, c2
  update cp2, b1
  ret r6, cp2
L2:
  ; the one after it goes
  add r3, r2, r21
  key k2
  keyk k2, c1
  keyr k2, r3, int4
  search cp2, t0.x0, k2
  ret r4, cp2
  bnt r4, L3
  remove cp2
  ret r6, cp2
  jmp L4
L3:
  ; or comes
  row b1, t0
  setk b1.0, c1
  setr b1.1, r3
  setk b1.2, c3
  insert cp3, t0, b1
  ret r6, cp3
L4:
  next r0, cp0
  jmp L1
L9:
  end
.commit
  commit
.abort
  abort
";

/// The same in Rust.
fn looped(outer: &BTreeSet<i32>, inner: &mut BTreeMap<i32, String>) -> Vec<(i32, Option<String>)> {
    let mut shown = Vec::new();
    for b in outer {
        shown.push((*b, inner.get(b).cloned()));
        if let Some(text) = inner.get_mut(&(b + 1)) {
            text.push('x');
        }
        if inner.remove(&(b + 2)).is_none() {
            inner.insert(b + 2, "new".into());
        }
    }
    shown
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn rows_fetched_ahead_are_those_of_their_time(
        outer in prop::collection::btree_set(0..40_i32, 1..40),
        first in prop::collection::btree_set(0..45_i32, 0..45),
    ) {
        let mut database = Database::new();
        let batch = BatchId(database.store.boundary().0 + 1);
        let writer = database.store.begin_batch(batch);
        let mut member = writer.member(0);
        let pair = |a: i32, b: i32| [Value::Int4(a), Value::Int4(b), Value::Text(format!("of {b} "))];
        for (a, bs) in [(1, &outer), (2, &first)] {
            for b in bs {
                member.insert(PAIRS, &encoded(&database, PAIRS, &pair(a, *b))).unwrap();
            }
        }
        member.commit();
        writer.finish();
        database.store.publish(batch);
        let mut inner: BTreeMap<i32, String> = first.iter().map(|b| (*b, format!("of {b} "))).collect();
        let expected = looped(&outer, &mut inner);
        let program = asm::parse(LOOP).unwrap();
        verify(&program, &database.catalog()).unwrap();
        let inputs = program.encode_inputs(&[Value::Null]).unwrap();
        database.run(&program, &inputs, BUDGET).unwrap();
        let layout = program.output_layout(0).unwrap();
        let shown: Vec<(i32, Option<String>)> = database.outcome.statement(0).unwrap()
            .rows()
            .map(|row| {
                let values = layout.decode(row).unwrap();
                let text = values[1].as_str().map(str::to_owned);
                (values[0].as_i64().unwrap() as i32, text)
            })
            .collect();
        prop_assert_eq!(shown, expected);
        prop_assert_eq!(database.snapshot().verify_digest().unwrap(), database.store.state_digest());
    }
}
