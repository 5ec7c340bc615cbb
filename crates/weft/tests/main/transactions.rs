//! Explicit transactions: failure, savepoints, chains, cursors, read only.

use std::time::{Duration, Instant};

use crate::client::{Client, database, open_with, options};
use weft::sink::TxnStatus::{Failed, Idle, InTransaction};
use weft_base::SimDisk;

const TABLE: &str = "create table t (id int primary key, v int)";

#[test]
fn a_failed_transaction_accepts_only_its_end() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    c.ok("begin");
    c.ok("insert into t values (1, 1)");
    c.fails("insert into t values (1, 1)", "23505");
    c.is(Failed);
    for sql in [
        "select 1",
        "select * from no_such_table",
        "savepoint s",
        "begin",
        "set lock_timeout = 1",
        "show timezone",
    ] {
        c.fails(sql, "25P02");
    }
    assert_eq!(c.0.prepare("select * from t", &[]).unwrap_err().state.0, "25P02");
    assert_eq!(c.ok("commit"), "ROLLBACK");
    c.is(Idle);
    assert_eq!(c.rows("select count(*) from t"), "0");
}

#[test]
fn savepoints() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    c.fails("savepoint s", "25P01");
    c.ok("begin");
    c.ok("insert into t values (1, 1)");
    c.ok("savepoint s");
    c.ok("update t set v = 2 where id = 1");
    c.ok("insert into t select id + 1, v from t");
    assert_eq!(c.rows("select * from t order by id"), "1,2;2,2");
    c.fails("select 1 / 0", "22012");
    assert_eq!(c.ok("rollback to s"), "ROLLBACK");
    c.is(InTransaction);
    assert_eq!(c.rows("select * from t"), "1,1");
    c.ok("insert into t values (3, 3)");
    c.ok("savepoint s");
    c.ok("delete from t");
    c.ok("rollback to savepoint s");
    c.ok("release s");
    c.ok("rollback to s");
    assert_eq!(c.rows("select * from t"), "1,1");
    c.fails("release nothing", "3B001");
    c.ok("rollback to s");
    c.ok("commit");
    assert_eq!(c.rows("select * from t"), "1,1");
}

#[test]
fn chains() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    c.ok("begin isolation level repeatable read");
    c.ok("insert into t values (1, 1)");
    assert_eq!(c.ok("commit and chain"), "COMMIT");
    c.is(InTransaction);
    assert_eq!(c.rows("show transaction_isolation"), "repeatable read");
    c.ok("insert into t values (2, 2)");
    c.ok("rollback and chain");
    c.is(InTransaction);
    c.ok("commit");
    assert_eq!(c.rows("select * from t"), "1,1");
    c.fails("commit and chain", "25P01");
    // The end of a failed transaction begins the next one, which is well.
    c.ok("begin");
    c.fails("select 1 / 0", "22012");
    assert_eq!(c.ok("commit and chain"), "ROLLBACK");
    c.is(InTransaction);
    c.ok("commit");
}

#[test]
fn cursors_end_with_the_transaction_that_declared_them() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    c.ok("insert into t values (1, 1), (2, 2), (3, 3)");
    c.fails("declare x cursor for select * from t", "25P01");
    c.ok("begin");
    c.ok("declare x cursor for select id from t order by id");
    c.ok("insert into t values (4, 4)");
    assert_eq!(c.rows("fetch 2 from x"), "1;2");
    assert_eq!(c.rows("fetch all from x"), "3");
    assert_eq!(c.rows("fetch backward 2 from x"), "3;2");
    assert_eq!(c.ok("move absolute 0 in x"), "MOVE 0");
    assert_eq!(c.rows("fetch next from x"), "1");
    c.fails("declare x cursor for select 1", "42P03");
    c.ok("rollback");
    c.fails("fetch x", "34000");

    c.ok("begin; declare h cursor with hold for select id from t order by id; commit");
    assert_eq!(c.rows("fetch h"), "1");
    // Neither a later failure nor a later rollback concerns it.
    c.fails("select 1 / 0", "22012");
    c.ok("begin; declare g cursor with hold for select 1; rollback");
    assert_eq!(c.rows("fetch h"), "2");
    c.fails("fetch g", "34000");
    c.ok("close h");
    c.fails("fetch h", "34000");

    c.ok("begin; savepoint s; declare k cursor for select 1; rollback to s");
    c.fails("fetch k", "34000");
    c.ok("rollback");
}

#[test]
fn read_only_transactions_refuse_writes() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    for sql in [
        "insert into t values (1, 1)",
        "update t set v = 1 where v > 5",
        "delete from t where id = 1",
        "create table u (id int)",
        "select * from t for update",
        "select * from t where id = 1 for update",
    ] {
        c.ok("begin read only");
        let error = c.fails(sql, "25006");
        assert!(error.message.starts_with("cannot execute "), "{error}");
        c.ok("rollback");
    }
    c.ok("set default_transaction_read_only = on");
    c.fails("insert into t values (1, 1)", "25006");
    c.fails("update t set v = 1 where id = 1; select 1", "25006");
    c.fails(
        "begin; update t set v = 1 where id = 1; insert into t values (1, 1); commit",
        "25006",
    );
    c.ok("rollback");
    c.ok("begin; set transaction read write; insert into t values (1, 1); commit");
    assert_eq!(c.rows("select * from t"), "1,1");
}

#[test]
fn now_is_the_start_of_the_transaction() {
    let db = database();
    let mut c = Client::new(&db);
    c.ok("begin");
    let first = c.rows("select now()");
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(c.rows("select now()"), first);
    assert_ne!(c.rows("select clock_timestamp()"), first);
    c.ok("commit");
    assert_ne!(c.rows("select now()"), first);
}

/// A query that takes long while others replace rows is told when it keeps too many of them; the next one of
/// its session is not.
#[test]
fn a_query_that_keeps_too_many_old_rows_is_ended() {
    let mut options = options();
    options.engine.running_snapshot_bytes_max = 100_000;
    let db = open_with(&SimDisk::new(1), options);
    let mut writer = Client::with(
        &db,
        "create table t (id int primary key, v int); insert into t values (1, 1)",
    );
    for begin in ["", "begin; "] {
        let mut reader = Client::new(&db);
        let many = "generate_series(1, 100000)";
        let query = format!("{begin}select count(*) from t, {many} a, {many} b where a % 7 + b % 9 = v");
        let reading = std::thread::spawn(move || {
            reader.fails(&query, "72000");
            reader
        });
        let began = Instant::now();
        while !reading.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(60));
            writer.ok("update t set v = v + 1 where id = 1");
        }
        let mut reader = reading.join().unwrap();
        reader.ok("rollback");
        assert_eq!(reader.rows("select count(*) from t"), "1");
    }
}
