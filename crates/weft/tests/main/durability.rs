//! What is told is on disk, and what is on disk comes back.

use crate::client::{Client, Results, open_on};
use proptest::prelude::*;
use std::collections::BTreeMap;
use weft_base::{FaultKind, SimDisk};

#[test]
fn nothing_is_acknowledged_once_syncing_fails() {
    let disk = SimDisk::new(3);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)",
    );
    disk.fail_after(disk.op_count() + 1, FaultKind::Io);
    let mut sink = Results::default();
    let answer =
        c.0.execute_simple("update t set v = 5 where id = 1", &mut sink)
            .and_then(|()| c.0.gate().wait());
    assert_eq!(answer.unwrap_err().state.0, "58030");
    // A reader of the row is not told either; a reader of what is durable is.
    let mut reader = Client::new(&db);
    reader
        .0
        .execute_simple("select v from t where id = 1", &mut sink)
        .unwrap();
    reader.0.gate().wait().unwrap_err();
    assert_eq!(Client::new(&db).rows("select v from t where id = 2"), "2");
    for write in [
        "insert into t values (3, 3)",
        "insert into t select 3, 3",
        "begin; insert into t values (4, 4); delete from t where id = 1; commit",
    ] {
        let mut writer = Client::new(&db);
        let answer = writer
            .0
            .execute_simple(write, &mut sink)
            .and_then(|()| writer.0.gate().wait());
        assert_eq!(answer.unwrap_err().state.0, "58030", "{write}");
    }
    drop((c, reader, db));
    disk.crash();
    let mut c = Client(open_on(&disk).session());
    let rows = c.rows("select * from t order by id");
    assert!(rows == "1,1;2,2" || rows == "1,5;2,2", "{rows}");
    c.ok("insert into t values (3, 3)");
}

#[test]
fn replies_of_an_asynchronous_session_do_not_wait() {
    let disk = SimDisk::new(4);
    let db = open_on(&disk);
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("set synchronous_commit = off");
    disk.cut_power_at(disk.op_count() + 1);
    c.ok("insert into t values (1, 1)");
    let mut strict = Client::new(&db);
    strict
        .0
        .execute_simple("select * from t", &mut Results::default())
        .unwrap();
    strict.0.gate().wait().unwrap_err();
    drop((c, strict, db));
    disk.crash();
    assert_eq!(Client(open_on(&disk).session()).rows("select * from t"), "");
}

/// Nor does the answer that an index cannot be built go out before the rows that are the reason are durable.
#[test]
fn errors_of_definitions_wait_for_the_log() {
    let disk = SimDisk::new(5);
    let db = open_on(&disk);
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1)");
    c.ok("set synchronous_commit = off");
    disk.cut_power_at(disk.op_count() + 1);
    c.ok("insert into t values (2, 1)");
    let mut strict = Client::new(&db);
    let answer = strict
        .0
        .execute_simple("create unique index t_v on t (v)", &mut Results::default());
    assert_eq!(answer.unwrap_err().state.0, "23505");
    strict.0.gate().wait().unwrap_err();
}

#[derive(Debug, Clone)]
enum Step {
    Put(i32, i32),
    Delete(i32),
    Transfer(i32, i32),
    Generic(i32),
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6_i32;
    let step = prop_oneof![
        4 => (key.clone(), any::<i16>()).prop_map(|(k, v)| Step::Put(k, i32::from(v))),
        2 => key.clone().prop_map(Step::Delete),
        3 => (key.clone(), key.clone()).prop_map(|(a, b)| Step::Transfer(a, b)),
        2 => key.prop_map(Step::Generic),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..25)
}

impl Step {
    fn sql(&self) -> String {
        match self {
            Step::Put(k, v) => {
                format!("insert into t values ({k}, {v}) on conflict (id) do update set v = excluded.v")
            }
            Step::Delete(k) => format!("delete from t where id = {k}"),
            Step::Transfer(a, b) => {
                format!(
                    "begin; update t set v = v - 1 where id = {a}; update t set v = v + 1 where id = {b}; commit"
                )
            }
            Step::Generic(k) => format!(
                "begin; update t set v = v + 1 where id >= {k}; savepoint s; delete from t; rollback to s; commit"
            ),
            Step::Checkpoint => "checkpoint".into(),
        }
    }

    fn apply(&self, model: &mut BTreeMap<i32, i32>) {
        match *self {
            Step::Put(k, v) => drop(model.insert(k, v)),
            Step::Delete(k) => drop(model.remove(&k)),
            Step::Transfer(a, b) => {
                for (k, change) in [(a, -1), (b, 1)] {
                    if let Some(v) = model.get_mut(&k) {
                        *v += change;
                    }
                }
            }
            Step::Generic(k) => model.range_mut(k..).for_each(|(_, v)| *v += 1),
            Step::Checkpoint => {}
        }
    }
}

fn text(model: &BTreeMap<i32, i32>) -> String {
    model
        .iter()
        .map(|(k, v)| format!("{k},{v}"))
        .collect::<Vec<_>>()
        .join(";")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn acknowledged_rows_survive_a_power_cut(steps in steps(), seed in any::<u64>(), cut in 1..60_u64) {
        let disk = SimDisk::new(seed);
        let db = open_on(&disk);
        let mut c = Client::with(&db, "create table t (id int primary key, v int)");
        disk.cut_power_at(disk.op_count() + cut);
        let mut told = BTreeMap::new();
        let mut maybe = None;
        for step in &steps {
            let ran = c.0.execute_simple(&step.sql(), &mut Results::default());
            let answer = ran.and_then(|()| c.0.gate().wait());
            let mut next = told.clone();
            step.apply(&mut next);
            if answer.is_err() {
                maybe = Some(next);
                break;
            }
            told = next;
        }
        drop((c, db));
        disk.crash();
        let rows = Client(open_on(&disk).session()).rows("select * from t order by id");
        let may_be = rows == text(&told) || maybe.is_some_and(|maybe| rows == text(&maybe));
        prop_assert!(may_be, "{} instead of {}", rows, text(&told));
    }
}
