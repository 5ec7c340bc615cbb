//! PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED. What PostgreSQL 15 answers to the same
//! statements was compared; crashes are in the engine's tests.

use crate::client::{Client, database, open_on};
use weft_base::SimDisk;

const PREPARED: &str = "select gid, owner, database from pg_prepared_xacts order by gid";

#[test]
fn a_prepared_transaction_is_invisible_until_it_is_committed() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2)");
    for (end, rows) in [("rollback", "1,1;2,2"), ("commit", "1,10;3,3")] {
        c.ok("begin; update t set v = 10 where id = 1; delete from t where id = 2");
        c.ok("savepoint s; insert into t values (4, 4); rollback to s");
        c.ok("insert into t values (3, 3); prepare transaction 'a'");
        let (results, result) = c.message("rollback");
        result.unwrap();
        assert_eq!(results.notices.len(), 1, "no transaction is open any more");
        assert_eq!(c.rows("select * from t order by id"), "1,1;2,2");
        assert_eq!(c.rows(PREPARED), "a,postgres,postgres");
        // Its locks are held by no session.
        c.ok("set lock_timeout = '20ms'");
        c.fails("update t set v = 0 where id = 1", "55P03");
        c.fails("insert into t values (3, 0)", "55P03");
        c.ok("begin; select * from t");
        c.fails("select * from t where id = 2 for update nowait", "55P03");
        c.ok("rollback; reset lock_timeout");
        Client::new(&db).ok(&format!("{end} prepared 'a'"));
        assert_eq!(c.rows("select * from t order by id"), rows);
        assert_eq!(c.rows(PREPARED), "");
        c.ok("update t set v = v where id = 1");
    }
}

#[test]
fn names_and_blocks_are_checked() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key)");
    c.fails("commit prepared 'a'", "42704");
    c.fails("rollback prepared 'a'", "42704");
    let (results, result) = c.message("prepare transaction 'a'");
    result.unwrap();
    assert_eq!(
        (results.tags, results.notices.len()),
        (vec!["ROLLBACK".to_string()], 1)
    );
    c.ok("begin; insert into t values (1); prepare transaction 'a'");
    c.ok("begin; insert into t values (2)");
    c.fails("prepare transaction 'a'", "42710");
    c.ok("insert into t values (2); delete from t where id = 2");
    for statement in ["commit prepared 'a'", "rollback prepared 'a'"] {
        c.ok("begin");
        c.fails(statement, "25001");
        c.ok("rollback");
        c.fails(&format!("insert into t values (7); {statement}"), "25001");
    }
    c.ok("begin");
    c.fails("select 1 / 0", "22012");
    let (results, result) = c.message("prepare transaction 'b'");
    result.unwrap();
    assert_eq!(results.tags, ["ROLLBACK"]);
    c.ok("begin");
    c.fails(&format!("prepare transaction '{}'", "n".repeat(200)), "22023");
    c.ok(&format!("begin; prepare transaction '{}'", "n".repeat(199)));
    c.ok(&format!("rollback prepared '{}'", "n".repeat(199)));
    c.ok("begin; declare k cursor with hold for select 1");
    c.fails("prepare transaction 'b'", "0A000");
    c.ok("create sequence s; begin; alter sequence s restart 7");
    c.fails("prepare transaction 'b'", "0A000");
    c.ok("begin; set local statement_timeout = '1s'; set lock_timeout = '5s'; prepare transaction 'b'");
    assert_eq!(c.rows("show statement_timeout"), "0");
    assert_eq!(c.rows("show lock_timeout"), "5s");
    assert_eq!(c.rows("select gid from pg_prepared_xacts order by 1"), "a;b");
    c.ok("rollback prepared 'b'");
    c.ok("commit prepared 'a'");
    assert_eq!(c.rows("select * from t"), "1");
}

#[test]
fn prepared_definitions_survive_a_restart() {
    let disk = SimDisk::new(6);
    let db = open_on(&disk);
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t select i, i from generate_series(1, 100) i");
    // Its answer waits for the disk nevertheless.
    c.ok("set synchronous_commit = off");
    c.ok("begin; create index t_v on t (v); create table u (id int primary key); insert into u values (5)");
    c.ok("insert into t values (101, 101); prepare transaction 'definitions'");
    drop((c, db));
    disk.crash();
    for commits in [false, true] {
        let db = open_on(&disk);
        let mut c = Client::new(&db);
        assert_eq!(c.rows("select gid from pg_prepared_xacts"), "definitions");
        c.fails("select * from u", "42P01");
        c.ok("set lock_timeout = '20ms'");
        c.fails("create table w (id int)", "55P03");
        c.fails("insert into t values (102, 102)", "55P03");
        if commits {
            c.ok("set synchronous_commit = off");
            c.ok("commit prepared 'definitions'");
        } else {
            // Neither does a checkpoint lose it, nor a crash after it.
            c.ok("checkpoint");
        }
        drop((c, db));
        disk.crash();
    }
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    assert_eq!(c.rows("select * from u"), "5");
    assert_eq!(c.rows("select id from t where v = 101"), "101");
    assert_eq!(
        c.rows("select indexname from pg_indexes where tablename = 't' order by 1"),
        "t_pkey;t_v"
    );
    c.ok("insert into t values (102, 102); create table w (id int)");
}
