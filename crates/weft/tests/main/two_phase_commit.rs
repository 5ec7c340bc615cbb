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

/// The batch of the commit, and not that of the preparation, tells from when on rows have the new columns.
#[test]
fn prepared_changes_of_columns_are_made_when_they_are_committed() {
    let disk = SimDisk::new(8);
    let db = open_on(&disk);
    let mut c = Client::with(&db, "create table t (id int primary key, a int, b text)");
    c.ok("create table u (id int primary key)");
    c.ok("insert into t select i, i, 'b' || i from generate_series(1, 100) i; create index t_a on t (a)");
    c.ok("begin; alter table t drop column b, add column d int default 7; update t set d = 8 where id = 1");
    c.ok("delete from t where id = 2; insert into t values (101, 101, 9); prepare transaction 'columns'");
    drop((c, db));
    disk.crash();
    for round in 0..4 {
        let db = open_on(&disk);
        let mut c = Client::new(&db);
        assert_eq!(c.rows("select count(*), min(b), max(b) from t"), "100,b1,b99");
        // Batches between the preparation and the commit.
        c.ok(&format!(
            "insert into u values ({round}); insert into u values ({round} + 10)"
        ));
        match round {
            0 => {}
            1 => {
                c.ok("checkpoint");
            }
            2 => {
                db.checkpoint_for_stop().unwrap();
            }
            _ => {
                let mut before = Client::with(&db, "begin isolation level repeatable read; select * from t");
                c.ok("commit prepared 'columns'");
                assert_eq!(
                    before.rows("select id, b from t where id < 3 order by id"),
                    "1,b1;2,b2"
                );
                assert_eq!(c.rows("select * from t where id < 4 order by id"), "1,1,8;3,3,7");
            }
        }
        drop((c, db));
        disk.crash();
    }
    for _ in 0..2 {
        let db = open_on(&disk);
        let mut c = Client::new(&db);
        assert_eq!(c.rows("select count(*), sum(d), sum(a) from t"), "100,703,5149");
        assert_eq!(
            c.rows("select * from t where a in (1, 3, 101) order by id"),
            "1,1,8;3,3,7;101,101,9"
        );
        c.fails("select b from t", "42703");
        c.ok("update t set d = d where id = 3; checkpoint");
        let snapshot = db.engine().snapshot();
        assert_eq!(
            db.engine().store().verify_digest(&snapshot).unwrap(),
            snapshot.digest()
        );
    }
}

/// Who is told that a transaction is prepared is told that it can be committed.
#[test]
fn constraints_that_are_checked_at_commit_are_not_prepared() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2)");
    for changes in [
        "update t set v = 2; create unique index t_v on t (v)",
        "update t set v = null where id = 1; alter table t alter v set not null",
        "alter table t add column w int; alter table t alter w set not null",
        "alter table t drop constraint t_pkey, add column w int; alter table t add primary key (v)",
        "create table n (id int); insert into n values (1), (1); create unique index on n (id)",
    ] {
        c.ok(&format!("begin; {changes}"));
        let refused = c.message("prepare transaction 'a'").1;
        let state = refused.map_err(|error| error.state.0);
        assert_eq!(state, Err("0A000"), "{changes}");
    }
    // These have been checked, and nobody can write to the table meanwhile.
    c.ok("begin; create unique index t_v on t (v); alter table t alter v set not null");
    c.ok("insert into t values (3, 3)");
    c.ok("prepare transaction 'a'");
    c.ok("commit prepared 'a'");
    c.ok("begin; truncate t; alter table t add unique (id, v); prepare transaction 'a'");
    c.ok("commit prepared 'a'");
    c.ok("insert into t values (1, 1)");
    for begin in ["", "begin; "] {
        c.fails(
            &format!("{begin}alter table t add column w int not null"),
            "23502",
        );
        c.ok("rollback");
    }
    c.ok("begin; truncate t; alter table t add column w int not null; prepare transaction 'a'");
    c.ok("commit prepared 'a'");
    c.fails("insert into t values (1, 1, null)", "23502");
}
