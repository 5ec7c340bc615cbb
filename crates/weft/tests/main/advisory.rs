//! Advisory locks: who may hold them, until when, waits and deadlocks.

use std::time::Duration;

use weft::Database;
use weft::sink::NoticeLevel;
use weft::sink::TxnStatus::{Failed, Idle};
use weft_types::Value;

use crate::client::{Client, database, in_thread, moment};

/// Whether a session could take a lock now; it gives it back.
fn is_free(c: &mut Client, key: &str) -> bool {
    match c.rows(&format!("select pg_try_advisory_lock({key})")).as_str() {
        "t" => {
            assert_eq!(c.rows(&format!("select pg_advisory_unlock({key})")), "t");
            true
        }
        _ => false,
    }
}

fn pair() -> (Database, Client, Client) {
    let db = database();
    let (a, b) = (Client::new(&db), Client::new(&db));
    (db, a, b)
}

#[test]
fn locks_of_a_session_are_counted_and_outlive_transactions() {
    let (_db, mut a, mut b) = pair();
    assert_eq!(a.rows("select pg_advisory_lock(1)"), "");
    assert_eq!(
        a.rows("select pg_try_advisory_lock(1), pg_try_advisory_lock_shared(1)"),
        "t,t"
    );
    a.ok("begin; select pg_advisory_lock(2); rollback");
    a.ok("begin; select pg_advisory_lock(3); commit");
    for key in ["1", "2", "3"] {
        assert!(!is_free(&mut b, key), "{key}");
    }
    assert!(is_free(&mut b, "4"));
    assert_eq!(a.rows("select pg_advisory_unlock(1)"), "t");
    assert!(!is_free(&mut b, "1"));
    assert_eq!(a.rows("select pg_advisory_unlock(1)"), "t");
    // What is left is shared.
    assert!(!is_free(&mut b, "1"));
    assert_eq!(
        b.rows("select pg_try_advisory_lock_shared(1), pg_advisory_unlock_shared(1)"),
        "t,t"
    );
    assert_eq!(
        a.rows("select pg_advisory_unlock_shared(1), pg_advisory_unlock(2)"),
        "t,t"
    );
    assert!(is_free(&mut b, "1") && is_free(&mut b, "2") && !is_free(&mut b, "3"));
    a.ok("select pg_advisory_unlock_all()");
    assert!(is_free(&mut b, "3"));
}

#[test]
fn to_unlock_what_is_not_held_is_a_warning() {
    let (_db, mut a, _b) = pair();
    let (results, result) = a.message("select pg_advisory_unlock(1), pg_advisory_unlock_shared(1, 2)");
    result.unwrap();
    assert_eq!(results.rows, ["f,f"]);
    assert_eq!(results.levels, [NoticeLevel::Warning, NoticeLevel::Warning]);
    let texts: Vec<&str> = results
        .notices
        .iter()
        .map(|notice| notice.message.as_str())
        .collect();
    assert_eq!(
        texts,
        [
            "you don't own a lock of type ExclusiveLock",
            "you don't own a lock of type ShareLock"
        ]
    );
    assert_eq!(results.notices[0].state.0, "01000");
    // A lock of the transaction is not the session's.
    a.ok("begin; select pg_advisory_xact_lock(1)");
    assert_eq!(a.rows("select pg_advisory_unlock(1)"), "f");
    a.ok("set client_min_messages = error");
    assert!(a.message("select pg_advisory_unlock(1)").0.notices.is_empty());
}

#[test]
fn one_number_is_no_pair_of_numbers() {
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock(1, 2), pg_advisory_lock(-1), pg_advisory_lock(-1, -1)");
    assert!(!is_free(&mut b, "1, 2") && !is_free(&mut b, "-1") && !is_free(&mut b, "-1, -1"));
    assert!(is_free(&mut b, "(1::int8 << 32) + 2") && is_free(&mut b, "2, 1"));
    assert_eq!(
        a.rows("select pg_advisory_lock(null), pg_try_advisory_lock(null, 1)"),
        "NULL,NULL"
    );
    a.fails("select pg_advisory_lock('a')", "22P02");
    a.fails("select pg_advisory_lock(1.5)", "42883");
    a.fails("select pg_advisory_lock(1, 3000000000)", "42883");
}

#[test]
fn locks_of_a_transaction_end_with_it() {
    let (_db, mut a, mut b) = pair();
    // Each statement is a transaction.
    a.ok("select pg_advisory_xact_lock(1)");
    assert!(is_free(&mut b, "1"));
    assert_eq!(
        a.rows("select pg_advisory_xact_lock(1); select pg_try_advisory_xact_lock(2)"),
        ";t"
    );
    assert!(is_free(&mut b, "1") && is_free(&mut b, "2"));
    for end in ["commit", "rollback"] {
        a.ok("begin; select pg_advisory_xact_lock(1), pg_advisory_xact_lock(1), pg_advisory_xact_lock_shared(2)");
        assert!(!is_free(&mut b, "1") && !is_free(&mut b, "2"));
        assert_eq!(b.rows("select pg_try_advisory_xact_lock_shared(2)"), "t");
        a.ok("select pg_advisory_unlock_all()");
        assert!(!is_free(&mut b, "1"));
        a.ok(end);
        assert!(is_free(&mut b, "1") && is_free(&mut b, "2"));
    }
    // Held by both the session and its transaction.
    a.ok("begin; select pg_advisory_xact_lock(1), pg_advisory_lock(1); commit");
    assert!(!is_free(&mut b, "1"));
    a.ok("select pg_advisory_unlock(1)");
    assert!(is_free(&mut b, "1"));
    // One that has failed holds none, but the session does.
    a.ok("begin; select pg_advisory_xact_lock(1), pg_advisory_lock(2)");
    a.fails("select 1 / 0", "22012");
    a.is(Failed);
    assert!(is_free(&mut b, "1") && !is_free(&mut b, "2"));
    a.ok("rollback");
    assert!(!is_free(&mut b, "2"));
}

#[test]
fn a_savepoint_keeps_what_was_locked_before_it() {
    let (_db, mut a, mut b) = pair();
    a.ok("begin; select pg_advisory_xact_lock(1); savepoint s");
    a.ok("select pg_advisory_xact_lock(1), pg_advisory_xact_lock(2), pg_advisory_lock(3)");
    a.ok("rollback to s");
    assert!(!is_free(&mut b, "1") && is_free(&mut b, "2") && !is_free(&mut b, "3"));
    a.ok("select pg_advisory_xact_lock(2); savepoint u; select pg_advisory_xact_lock(4)");
    a.fails("select 1 / 0", "22012");
    assert!(!is_free(&mut b, "2") && is_free(&mut b, "4"));
    a.ok("rollback to s; select pg_advisory_xact_lock(5); release s");
    assert!(is_free(&mut b, "2") && !is_free(&mut b, "5"));
    a.ok("commit");
    assert!(is_free(&mut b, "1") && is_free(&mut b, "5"));
}

#[test]
fn a_session_that_ends_or_is_reset_holds_none() {
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock(1), pg_advisory_lock_shared(2)");
    a.ok("discard all");
    assert!(is_free(&mut b, "1") && is_free(&mut b, "2"));
    a.ok("begin; select pg_advisory_lock(1), pg_advisory_xact_lock(2)");
    let waiting = in_thread(b, "select pg_advisory_lock(2), pg_advisory_lock(1)");
    moment();
    assert!(!waiting.is_finished());
    drop(a);
    let (mut b, _, result) = waiting.join().unwrap();
    result.unwrap();
    assert_eq!(b.rows("select count(*) from pg_locks"), "2");
}

#[test]
fn whoever_waits_comes_next() {
    let (db, mut a, b) = pair();
    a.ok("select pg_advisory_lock(7)");
    let first = in_thread(b, "begin; select pg_advisory_xact_lock(7)");
    moment();
    let second = in_thread(Client::new(&db), "select pg_advisory_lock_shared(7)");
    moment();
    assert_eq!(a.rows("select pg_try_advisory_lock(7)"), "t");
    a.ok("select pg_advisory_unlock(7)");
    assert!(!first.is_finished() && !second.is_finished());
    a.ok("select pg_advisory_unlock(7)");
    let (mut b, _, result) = first.join().unwrap();
    result.unwrap();
    assert!(!second.is_finished());
    assert_eq!(a.rows("select pg_try_advisory_lock_shared(7)"), "f");
    b.ok("commit");
    let (_c, _, result) = second.join().unwrap();
    result.unwrap();
    assert_eq!(a.rows("select pg_try_advisory_lock_shared(7)"), "t");
}

#[test]
fn a_wait_ends_by_timeouts_and_by_cancelling() {
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock(1)");
    b.ok("set lock_timeout = 50; select pg_advisory_lock(2)");
    let error = b.fails("select pg_advisory_lock(1)", "55P03");
    assert_eq!(error.message, "canceling statement due to lock timeout");
    b.ok("set lock_timeout = 0; set statement_timeout = 50");
    let error = b.fails("select pg_advisory_xact_lock_shared(1)", "57014");
    assert_eq!(error.message, "canceling statement due to statement timeout");
    b.ok("set statement_timeout = 0; begin");
    let handle = b.0.cancel_handle();
    let waiting = in_thread(b, "select pg_advisory_lock(1)");
    moment();
    handle.cancel();
    let (mut b, _, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().state.0, "57014");
    b.is(Failed);
    b.ok("rollback");
    // Nothing of that is left.
    a.ok("select pg_advisory_unlock(1)");
    assert!(is_free(&mut a, "1") && !is_free(&mut a, "2"));
    assert_eq!(b.rows("select count(*) from pg_locks"), "1");
}

/// Runs `wait` in one session and then `close` in the other, which must be the victim.
fn is_deadlock(mut a: Client, wait: &'static str, mut b: Client, close: &str) {
    let waiting = in_thread(a, wait);
    moment();
    assert!(!waiting.is_finished(), "{wait}");
    b.fails(close, "40P01");
    b.ok("rollback; select pg_advisory_unlock_all()");
    let (back, _, result) = waiting.join().unwrap();
    a = back;
    result.unwrap_or_else(|error| panic!("{wait}: {error:?}"));
    a.ok("rollback; select pg_advisory_unlock_all()");
    a.is(Idle);
}

#[test]
fn deadlocks_among_advisory_locks() {
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock(1)");
    b.ok("begin; select pg_advisory_xact_lock(2)");
    is_deadlock(a, "select pg_advisory_lock(2)", b, "select pg_advisory_lock(1)");
    // Both hold it shared.
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock_shared(1)");
    b.ok("select pg_advisory_lock_shared(1)");
    is_deadlock(a, "select pg_advisory_lock(1)", b, "select pg_advisory_lock(1)");
}

#[test]
fn deadlocks_of_advisory_locks_and_rows() {
    let rows = || {
        let (db, mut a, mut b) = pair();
        a.ok("create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)");
        b.ok("begin; update t set v = 0 where id = 1");
        a.ok("select pg_advisory_lock(1)");
        (db, a, b)
    };
    // The point statement of a transaction, of none, and the general one wait for the row.
    let (_db, mut a, b) = rows();
    a.ok("begin");
    is_deadlock(
        a,
        "update t set v = 3 where id = 1",
        b,
        "select pg_advisory_lock(1)",
    );
    let (_db, a, b) = rows();
    is_deadlock(
        a,
        "update t set v = 3 where id = 1",
        b,
        "select pg_advisory_lock(1)",
    );
    let (_db, a, b) = rows();
    is_deadlock(
        a,
        "update t set v = 3 where v > 0",
        b,
        "select pg_advisory_xact_lock(1)",
    );
    let (_db, a, b) = rows();
    is_deadlock(
        a,
        "begin; update t set v = 4 where id = 2; update t set v = 3 where id = 1; commit",
        b,
        "select pg_advisory_lock(1)",
    );
    // The lock waits, and the row closes the circle.
    let (_db, a, b) = rows();
    is_deadlock(
        b,
        "select pg_advisory_lock(1)",
        a,
        "update t set v = 3 where id = 1",
    );
    let (_db, mut a, b) = rows();
    a.ok("begin; select * from t where id = 2 for update");
    is_deadlock(
        b,
        "select pg_advisory_xact_lock(1)",
        a,
        "delete from t where v = 1",
    );
}

#[test]
fn pg_locks_shows_them() {
    let (_db, mut a, b) = pair();
    a.ok("begin; select pg_advisory_lock(5000000007), pg_advisory_xact_lock_shared(-2, 3)");
    let waiting = in_thread(b, "select pg_advisory_lock_shared(5000000007)");
    moment();
    let shown = "select locktype, database is not null, relation, classid, objid, objsubid, mode, granted, \
        pid = pg_backend_pid(), fastpath, waitstart is not null from pg_locks order by objsubid, granted desc";
    assert_eq!(
        a.rows(shown),
        "advisory,t,NULL,1,705032711,1,ExclusiveLock,t,t,f,f;\
         advisory,t,NULL,1,705032711,1,ShareLock,f,f,f,t;\
         advisory,t,NULL,4294967294,3,2,ShareLock,t,t,f,f"
    );
    a.ok("commit");
    assert_eq!(a.rows("select count(*) from pg_locks"), "2");
    a.ok("select pg_advisory_unlock_all()");
    let (mut b, _, result) = waiting.join().unwrap();
    result.unwrap();
    assert_eq!(b.rows("select mode, granted from pg_locks"), "ShareLock,t");
}

#[test]
fn locks_of_the_rows_of_a_table() {
    let (db, mut a, mut b) = pair();
    a.ok("create table job (id int primary key, state text)");
    a.ok("insert into job select i, case when i % 2 = 0 then 'new' else 'done' end from generate_series(1, 40) i");
    let next = "select id from (select id from job where state = 'new' order by id offset 0) j \
        where pg_try_advisory_lock(id) limit 1";
    assert_eq!(a.rows(next), "2");
    assert_eq!(a.rows("select count(*) from pg_locks"), "1");
    assert_eq!(b.rows(next), "4");
    assert_eq!(
        b.rows("select objid from pg_locks where pid = pg_backend_pid()"),
        "4"
    );
    // A worker's queue as libraries write it.
    assert_eq!(
        Client::new(&db).rows(
            "with rows as materialized (select id from job where state = 'new' order by id limit 5) \
             select id from rows where pg_try_advisory_lock(id) limit 1"
        ),
        "6"
    );
    a.ok("select pg_advisory_unlock_all()");
    b.ok("select pg_advisory_unlock_all()");
    assert_eq!(a.rows("select pg_advisory_lock(id) from job where id = 3"), "");
    assert_eq!(a.rows("select pg_advisory_lock(id) from job where id = 1000"), "");
    assert_eq!(a.rows("select objid from pg_locks"), "3");
    assert_eq!(
        a.rows("select count(pg_advisory_lock_shared(9, id)) from job"),
        "40"
    );
    assert_eq!(a.rows("select count(*) from pg_locks"), "41");
    assert_eq!(
        a.rows("select count(*) filter (where pg_advisory_unlock_shared(9, id)) from job where id > 10"),
        "30"
    );
    assert_eq!(a.rows("select count(*) from pg_locks"), "11");
    // One that waits.
    let waiting = in_thread(b, "select pg_advisory_lock(9, id) from job order by id");
    moment();
    assert!(!waiting.is_finished());
    a.ok("select pg_advisory_unlock_all()");
    let (mut b, tags, result) = waiting.join().unwrap();
    result.unwrap();
    assert_eq!(tags, "SELECT 40");
    assert_eq!(b.rows("select count(*) from pg_locks"), "40");
}

#[test]
fn parameters_and_statements_prepared() {
    let (_db, mut a, mut b) = pair();
    let sql = "select pg_try_advisory_xact_lock($1, hashtext($2)) as locked";
    a.ok("begin");
    let params = [Value::Int4(5), Value::Text("a name".into())];
    assert_eq!(a.0.query(sql, &params).unwrap().len(), 1);
    assert_eq!(
        a.rows("select objid::bigint = (hashtext('a name')::bigint & 4294967295) from pg_locks"),
        "t"
    );
    assert!(!is_free(&mut b, "5, hashtext('a name')"));
    let prepared = b.0.prepare("select pg_advisory_lock($1)", &[]).unwrap();
    for key in [1_i64, 2, 2] {
        assert_eq!(b.0.execute_values(&prepared, &[Value::Int8(key)]).unwrap(), 1);
    }
    b.ok("prepare give as select pg_advisory_unlock($1)");
    assert_eq!(
        b.rows("execute give(2); execute give(2); execute give(2)"),
        "t;t;f"
    );
    assert!(!is_free(&mut a, "1") && is_free(&mut a, "2"));
    assert_eq!(
        b.rows("select case when pg_try_advisory_lock(8) then 'got' else 'not' end"),
        "got"
    );
    assert_eq!(b.rows("select (select pg_try_advisory_lock(9))"), "t");
    let (results, result) = b.message("copy (select pg_try_advisory_lock(11)) to stdout");
    result.unwrap();
    assert_eq!(results.output, "t\n");
    // A read-only transaction may take them.
    b.ok("begin read only; select pg_advisory_xact_lock(10); commit");
}

#[test]
fn other_statements_refuse_them() {
    let (_db, mut a, mut b) = pair();
    a.ok("create table t (id int primary key, v bool); insert into t values (1, true)");
    for sql in [
        "insert into t values (2, pg_try_advisory_lock(1))",
        "insert into t select 2, pg_try_advisory_lock(1)",
        "update t set v = pg_try_advisory_lock(1) where id = 1",
        "update t set v = true where pg_try_advisory_lock(1)",
        "delete from t where id = 1 and pg_try_advisory_lock(1)",
        "delete from t where id = 1 returning pg_try_advisory_lock(1)",
        "select * from t where pg_try_advisory_lock(1) for update",
        "create table u as select pg_try_advisory_lock(1)",
        "create table u (id int primary key, v bool default pg_try_advisory_lock(1))",
    ] {
        a.fails(sql, "0A000");
    }
    a.fails(
        "create table u (id int primary key, v int check (pg_try_advisory_lock(v)))",
        "0A000",
    );
    a.ok("begin");
    a.fails("declare c cursor for select pg_try_advisory_lock(1)", "0A000");
    a.ok("rollback");
    assert!(!a.rows("explain select pg_try_advisory_lock(1)").is_empty());
    assert!(is_free(&mut b, "1"));
    assert_eq!(a.rows("select count(*) from t"), "1");
    a.ok("begin; select pg_advisory_xact_lock(1)");
    a.fails("prepare transaction 'p'", "0A000");
    assert!(is_free(&mut b, "1"));
    a.ok("begin; select pg_advisory_lock(1); insert into t values (2, true)");
    a.ok("prepare transaction 'p'");
    assert!(!is_free(&mut b, "1"));
    a.ok("commit prepared 'p'");
}

#[test]
fn a_session_holds_so_many() {
    let (_db, mut a, mut b) = pair();
    a.ok("select pg_advisory_lock(i) from generate_series(1, 10000) i");
    let error = a.fails("select pg_try_advisory_lock(0)", "53200");
    assert_eq!(error.message, "out of shared memory");
    a.ok("select pg_advisory_lock(1)");
    assert!(is_free(&mut b, "0"));
    a.ok("select pg_advisory_unlock(i) from generate_series(1, 10000) i");
    a.ok("select pg_advisory_lock(0)");
    assert_eq!(b.rows("select objid from pg_locks order by objid"), "0;1");
}

/// One-shot programs of others go on, and a session that holds a lock still has its own statements.
#[test]
fn statements_of_a_session_with_locks() {
    let (_db, mut a, mut b) = pair();
    a.ok("create table t (id int primary key, v int); insert into t values (1, 1), (2, 2)");
    a.ok("select pg_advisory_lock(1)");
    assert_eq!(a.ok("update t set v = v + 1 where id = 1"), "UPDATE 1");
    assert_eq!(b.rows("select v from t where id = 1"), "2");
    assert_eq!(
        a.ok("begin; update t set v = v + 1 where id = 1; update t set v = v + 1 where id = 2; commit"),
        "BEGIN; UPDATE 1; UPDATE 1; COMMIT"
    );
    a.fails("insert into t values (1, 1)", "23505");
    a.is(Idle);
    assert_eq!(b.rows("select sum(v) from t"), "6");
    b.ok("begin; update t set v = 9 where id = 1");
    a.ok("set lock_timeout = 50");
    a.fails("update t set v = 8 where id = 1", "55P03");
    a.is(Idle);
    b.ok("commit");
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(a.rows("select v from t where id = 1"), "9");
}
