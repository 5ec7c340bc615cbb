//! Prepared statements, over the protocol's calls and in SQL, and definitions that change under them.

use crate::client::{Client, Results, database};
use weft::sink::PipelinePosition;
use weft::{Options, SqlType, Value};

#[test]
fn a_prepared_statement_is_planned_again_after_a_change_of_definitions() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    let insert = c.0.prepare("insert into t (id, v) values ($1, $2)", &[]).unwrap();
    let point = c.0.prepare("select v from t where id = $1", &[]).unwrap();
    let scan = c.0.prepare("update t set v = v + 1 where v >= $1", &[]).unwrap();
    let copy =
        c.0.prepare(
            "insert into t (id, v) select id + 100, v from t where v = $1",
            &[],
        )
        .unwrap();
    assert_eq!(point.params(), [SqlType::Int4]);
    let mut other = Client::new(&db);
    for round in 0..3_i32 {
        assert_eq!(
            c.0.execute_values(&insert, &[Value::Int4(round), Value::Int4(10)])
                .unwrap(),
            1
        );
        assert_eq!(c.0.execute_values(&point, &[Value::Int4(round)]).unwrap(), 1);
        c.0.execute_values(&scan, &[Value::Int4(10)]).unwrap();
        if round == 1 {
            assert_eq!(c.0.execute_values(&copy, &[Value::Int4(11)]).unwrap(), 1);
        }
        other.ok(&format!(
            "alter table t add column c{round} text default 'x{round}'"
        ));
    }
    assert_eq!(
        c.rows("select * from t order by id"),
        "0,13,x0,x1,x2;1,12,x0,x1,x2;2,11,x0,x1,x2;101,12,x0,x1,x2"
    );
}

#[test]
fn a_prepared_fetch_returns_what_the_cursor_has_now() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v text)");
    c.ok("insert into t values (1, 'one')");
    c.ok("begin; declare c cursor for select id from t");
    let fetch = c.0.prepare("fetch all from c", &[]).unwrap();
    assert_eq!(fetch.columns().len(), 1);
    assert_eq!(fetch.columns()[0].ty, SqlType::Int4);
    assert!(c.0.described_anew(&fetch).unwrap().is_some());
    c.ok("close c; declare c cursor for select v, id from t");
    let fetch = c.0.described_anew(&fetch).unwrap().unwrap();
    assert_eq!(fetch.columns().len(), 2);
    let mut results = Results::default();
    c.0.execute(&fetch, &[], PipelinePosition::Pipelined, &mut results)
        .unwrap();
    assert_eq!(results.rows, ["one,1"]);
    assert_eq!(c.0.cursor_columns("c").unwrap().len(), 2);
    c.ok("commit");
    assert_eq!(c.0.cursor_columns("c").unwrap_err().state.0, "34000");
    let plain = c.0.prepare("select v from t", &[]).unwrap();
    assert!(c.0.described_anew(&plain).unwrap().is_none());
}

#[test]
fn the_result_type_of_a_prepared_statement_must_stay() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    let all = c.0.prepare("select * from t", &[]).unwrap();
    let point = c.0.prepare("select * from t where id = $1", &[]).unwrap();
    c.ok("alter table t add column w text");
    for (prepared, params) in [(&all, vec![]), (&point, vec![Value::Int4(1)])] {
        let error =
            c.0.execute(
                prepared,
                &params,
                PipelinePosition::Alone,
                &mut Results::default(),
            )
            .unwrap_err();
        assert_eq!(
            (error.state.0, error.message.as_str()),
            ("0A000", "cached plan must not change result type")
        );
    }
    c.ok("drop table t");
    let error =
        c.0.execute(&all, &[], PipelinePosition::Alone, &mut Results::default())
            .unwrap_err();
    assert_eq!(error.state.0, "42P01");
}

#[test]
fn prepare_and_execute_in_sql() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("prepare p (int, int) as insert into t values ($1, $2)");
    assert_eq!(c.ok("execute p(1, 2)"), "INSERT 1");
    c.ok("alter table t alter column v set default 5");
    assert_eq!(c.ok("execute p(2, 3)"), "INSERT 1");
    c.fails("execute p(1)", "42601");
    c.fails("prepare p as select 1", "42P05");
    c.ok("deallocate p");
    c.fails("execute p(1, 2)", "26000");
    assert_eq!(c.rows("select * from t order by id"), "1,2;2,3");
}

#[test]
fn a_statement_prepared_on_definitions_that_were_rolled_back_is_planned_again() {
    let db = database();
    let mut c = Client::new(&db);
    c.ok("begin; create table t (id int primary key, v int)");
    c.ok("prepare p as insert into t values (1, 2)");
    let direct = c.0.prepare("insert into t values (2, 2)", &[]).unwrap();
    c.ok("rollback");
    // The same version and the same ids, another table.
    c.ok("create table u (id int primary key, v text)");
    c.fails("execute p", "42P01");
    assert_eq!(c.0.execute_values(&direct, &[]).unwrap_err().state.0, "42P01");
    assert_eq!(c.rows("select count(*) from u"), "0");

    c.ok("begin; savepoint s; create table t (id int primary key, v int); prepare q as insert into t values (1, 2)");
    c.ok("rollback to s; create table w (id int primary key, v text)");
    c.fails("execute q", "42P01");
    c.ok("rollback");
}

#[test]
fn a_pipeline_is_one_transaction() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    let insert = c.0.prepare("insert into t values ($1, 0)", &[]).unwrap();
    let mut sink = Results::default();
    let mut run = |c: &mut Client, id| {
        c.0.execute(
            &insert,
            &[Value::Int4(id)],
            PipelinePosition::Pipelined,
            &mut sink,
        )
    };
    run(&mut c, 1).unwrap();
    run(&mut c, 2).unwrap();
    assert_eq!(Client::new(&db).rows("select count(*) from t"), "0");
    c.0.sync().unwrap();
    run(&mut c, 3).unwrap();
    run(&mut c, 1).unwrap_err();
    c.0.fail();
    c.0.sync().unwrap();
    assert_eq!(c.rows("select id from t order by id"), "1;2");
}

#[test]
fn parameters_are_converted_to_their_types() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id bigint primary key, v varchar(3))");
    let insert = c.0.prepare("insert into t values ($1, $2)", &[]).unwrap();
    assert_eq!(
        c.0.execute_values(&insert, &[Value::Int4(1), Value::Text("abc".into())])
            .unwrap(),
        1
    );
    let error =
        c.0.execute_values(&insert, &[Value::Int4(2), Value::Text("abcd".into())])
            .unwrap_err();
    assert_eq!(error.state.0, "22001");
    assert_eq!(
        c.0.execute_values(&insert, &[Value::Int4(2)])
            .unwrap_err()
            .state
            .0,
        "08P01"
    );
    assert_eq!(c.rows("select * from t"), "1,abc");
}

#[test]
fn what_a_session_holds_between_statements_is_bounded_in_bytes() {
    let options = Options {
        session_memory_bytes: 1 << 20,
        sessions_memory_bytes: 3 << 19,
        ..crate::client::options()
    };
    let db = crate::client::open_with(&weft_base::SimDisk::new(1), options);
    let mut c = Client::new(&db);
    c.ok("begin; declare a cursor for select repeat('x', 1000) from generate_series(1, 900)");
    let error = c.fails(
        "declare b cursor for select repeat('x', 1000) from generate_series(1, 200)",
        "53200",
    );
    assert!(
        error.message.contains("would hold more than 1048576 bytes"),
        "{error:?}"
    );
    c.ok("rollback; begin; declare b cursor for select repeat('x', 1000) from generate_series(1, 900)");
    // Another session has only what this one leaves.
    let mut other = Client::new(&db);
    other.ok("begin; declare a cursor for select repeat('x', 1000) from generate_series(1, 500)");
    other.fails(
        "declare b cursor for select repeat('x', 1000) from generate_series(1, 500)",
        "53200",
    );
    drop(c);
    other.ok(
        "rollback; begin; declare b cursor for select repeat('x', 1000) from generate_series(1, 900); commit",
    );
    // Statements count, whoever keeps them.
    let text = format!("select '{}'", "x".repeat(100_000));
    let mut kept = Vec::new();
    let error = loop {
        match other.0.prepare(&text, &[]) {
            Ok(prepared) => kept.push(prepared),
            Err(error) => break error,
        }
        assert!(kept.len() < 20);
    };
    assert_eq!(error.state.0, "53200");
    kept.clear();
    assert!(other.0.prepare(&text, &[]).is_ok());
}
