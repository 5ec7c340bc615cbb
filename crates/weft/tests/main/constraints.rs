//! What rows are checked against, RETURNING, and ON CONFLICT.

use crate::client::{Client, database};

#[test]
fn unique_violations_name_everything() {
    let db = database();
    let mut c = Client::with(&db, "create table t (a int primary key, b text unique)");
    c.ok("insert into t values (1, 'x')");
    // As a program, in a transaction, and in general form.
    for sql in ["insert into t values (1, 'y')", "insert into t select 1, 'y'"] {
        for begin in ["", "begin; "] {
            let error = c.fails(&format!("{begin}{sql}"), "23505");
            assert_eq!(
                error.message,
                "duplicate key value violates unique constraint \"t_pkey\""
            );
            let fields = error.fields();
            assert_eq!(fields.detail.as_deref(), Some("Key (a)=(1) already exists."));
            assert_eq!(fields.constraint.as_deref(), Some("t_pkey"));
            assert_eq!(fields.table.as_deref(), Some("t"));
            c.ok("rollback");
        }
    }
    let error = c.fails("insert into t values (2, 'x')", "23505");
    assert_eq!(error.fields().constraint.as_deref(), Some("t_b_key"));
    c.ok("insert into t values (2, null), (3, null)");
    c.fails("update t set b = 'x' where a = 2", "23505");
    c.fails("update t set b = 'x' where a + 0 = 2", "23505");
    c.ok("update t set b = 'x' where a = 1");
}

#[test]
fn values_must_fit_their_columns() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, n int not null, v varchar(3), c char(4), d numeric(4,2), s smallint)",
    );
    for row in [
        "(1, 1, 'abc', 'ab', 12.345, 1)",
        "(2, 1, 'abc  ', 'abcd  ', -99.99, null)",
    ] {
        c.ok(&format!("insert into t values {row}"));
    }
    assert_eq!(
        c.rows("select v, c, d from t order by id"),
        "abc,ab  ,12.35;abc,abcd,-99.99"
    );
    assert_eq!(c.rows("select id from t where c = 'ab'"), "1");
    for (values, state) in [
        ("3, null, '', '', 1, 1", "23502"),
        ("3, 1, 'abcd', '', 1, 1", "22001"),
        ("3, 1, '', 'abcde', 1, 1", "22001"),
        ("3, 1, '', '', 99.995, 1", "22003"),
        ("3, 1, '', '', 1, 32768", "22003"),
        ("3, 2147483648, '', '', 1, 1", "22003"),
    ] {
        c.fails(&format!("insert into t values ({values})"), state);
        c.fails(&format!("insert into t select {values}"), state);
    }
    let error = c.fails("insert into t (id) values (3)", "23502");
    assert_eq!(error.fields().column.as_deref(), Some("n"));
    c.fails("update t set n = null where id = 1", "23502");
    c.fails("update t set n = n + 2147483647 where id = 1", "22003");
    c.fails("update t set n = n + 2147483647 where id + 0 = 1", "22003");
    c.fails("update t set n = n / 0 where id = 1", "22012");
    assert_eq!(c.rows("select count(*) from t"), "2");
}

#[test]
fn returning() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    assert_eq!(
        c.rows("insert into t values (1, 1), (2, 2) returning id, v * 10 as w"),
        "1,10;2,20"
    );
    for open in ["", "begin"] {
        if !open.is_empty() {
            c.ok(open);
        }
        assert_eq!(c.rows("update t set v = v + 1 where id = 1 returning *"), "1,2");
        assert_eq!(
            c.rows("update t set v = v - 1 where v = 2 and id < 2 returning id, v"),
            "1,1"
        );
        assert_eq!(c.rows("delete from t where id = 2 returning v"), "2");
        assert_eq!(c.rows("insert into t select 2, 2 returning *"), "2,2");
        assert_eq!(c.rows("delete from t where v > 1 returning id, v"), "2,2");
        c.ok("insert into t values (2, 2)");
    }
    c.ok("commit");
    assert_eq!(c.rows("select * from t order by id"), "1,1;2,2");
}

#[test]
fn statements_see_the_state_before_themselves() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2)");
    assert_eq!(c.ok("insert into t select id + 10, v from t"), "INSERT 2");
    assert_eq!(c.ok("insert into t select id + 100, v from t"), "INSERT 4");
    assert_eq!(c.ok("update t set v = v + 1 where v >= 1"), "UPDATE 8");
    c.ok("create table m (id int, v int); insert into m values (1, 5), (1, 5)");
    // A row that joins twice changes once.
    assert_eq!(
        c.ok("update t set v = t.v + m.v from m where m.id = t.id"),
        "UPDATE 1"
    );
    assert_eq!(c.rows("select v from t where id = 1"), "7");
    assert_eq!(c.ok("delete from t using m where m.id = t.id"), "DELETE 1");
}

#[test]
fn a_row_has_a_value_for_every_column_that_is_named() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int, w text)");
    c.fails("insert into t (id, v, w) values (1, 2)", "42601");
    c.fails("insert into t (id, v) values (1, 2, 3)", "42601");
    c.fails("insert into t values (1, 2, 'x', 4)", "42601");
    assert_eq!(c.ok("insert into t values (1, 2)"), "INSERT 1");
    assert_eq!(c.ok("insert into t (id, v) values (2, 2)"), "INSERT 1");
}

#[test]
fn a_definition_that_rows_contradict_is_not_announced() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, null), (2, 5), (3, 5)");
    for (sql, state) in [
        ("alter table t alter column v set not null", "23502"),
        ("create unique index t_v on t (v)", "23505"),
    ] {
        let mut results = crate::client::Results::default();
        let error = c.0.execute_simple(sql, &mut results).unwrap_err();
        assert_eq!(error.state.0, state);
        assert!(results.tags.is_empty(), "{sql}: {:?}", results.tags);
    }
    assert_eq!(c.ok("update t set v = id"), "UPDATE 3");
}

#[test]
fn on_conflict() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1)");
    assert_eq!(
        c.ok("insert into t values (1, 5) on conflict (id) do nothing"),
        "INSERT 0"
    );
    assert_eq!(
        c.ok("insert into t values (1, 5) on conflict (id) do update set v = t.v + excluded.v"),
        "INSERT 1"
    );
    assert_eq!(
        c.ok("insert into t values (2, 5) on conflict (id) do update set v = 0"),
        "INSERT 1"
    );
    c.ok("begin; insert into t values (2, 9) on conflict (id) do update set v = excluded.v; commit");
    assert_eq!(c.rows("select * from t order by id"), "1,6;2,9");
    c.fails(
        "insert into t values (3, 1), (3, 2) on conflict (id) do update set v = excluded.v",
        "21000",
    );
    c.fails(
        "insert into t values (3, 1), (3, 2) on conflict (id) do update set v = excluded.v where t.v > 1",
        "21000",
    );
    assert_eq!(
        c.ok("insert into t values (3, 1), (3, 2) on conflict (id) do nothing"),
        "INSERT 1"
    );
    assert_eq!(
        c.ok("insert into t select id, v from t where v > 0 on conflict (id) do nothing"),
        "INSERT 0"
    );
}
