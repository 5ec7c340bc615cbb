//! Definitions inside transactions.

use crate::client::{Client, database, in_thread, moment};

#[test]
fn a_table_exists_only_if_its_transaction_commits() {
    let db = database();
    let mut c = Client::new(&db);
    c.ok("begin");
    c.ok("create table t (id int primary key, v text default 'd')");
    c.ok("insert into t (id) values (1)");
    c.ok("insert into t select id + 1, v || '!' from t");
    c.ok("create index t_v on t (v)");
    assert_eq!(c.rows("select * from t order by id"), "1,d;2,d!");
    assert_eq!(c.rows("select id from t where v = 'd!'"), "2");
    Client::new(&db).fails("select * from t", "42P01");
    c.ok("rollback");
    c.fails("select * from t", "42P01");
    c.ok("begin; create table t (id int primary key); insert into t values (1); commit");
    assert_eq!(Client::new(&db).rows("select * from t"), "1");
    c.fails("create table t (id int)", "42P07");
    let (results, result) = c.message("create table if not exists t (id int); drop table if exists nothing");
    result.unwrap();
    assert_eq!(results.notices.len(), 2);
}

#[test]
fn truncate_copy_commit() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2)");
    c.ok("begin; truncate t");
    assert_eq!(
        c.copy_in("copy t from stdin", "2\t20\n3\t30\n").unwrap(),
        "COPY 2"
    );
    assert_eq!(c.rows("select * from t order by id"), "2,20;3,30");
    assert_eq!(c.rows("select v from t where id = 1"), "");
    c.ok("commit");
    assert_eq!(Client::new(&db).rows("select * from t order by id"), "2,20;3,30");
    c.ok("begin; truncate t; rollback");
    assert_eq!(c.rows("select count(*) from t"), "2");
}

#[test]
fn an_index_made_in_a_transaction_contains_its_rows() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2), (3, 2)");
    c.fails("create unique index t_v on t (v)", "23505");
    c.ok("begin; delete from t where id = 3; create unique index t_v on t (v)");
    c.fails("insert into t values (4, 2)", "23505");
    c.ok("rollback");
    c.ok("delete from t where id = 3");
    c.ok("begin; create unique index t_v on t (v); insert into t values (4, 4); commit");
    c.fails("insert into t values (5, 4)", "23505");
    assert_eq!(c.rows("select id from t where v = 4"), "4");
    c.ok("begin; drop index t_v; insert into t values (5, 4); commit");
    assert_eq!(c.rows("select count(*) from t"), "4");
}

#[test]
fn a_change_waits_for_writers_and_writers_for_it() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("begin; insert into t values (1, 1)");
    let alter = in_thread(Client::new(&db), "alter table t add column w int default 7");
    moment();
    assert!(!alter.is_finished());
    c.ok("insert into t values (2, 2); commit");
    alter.join().unwrap().2.unwrap();
    assert_eq!(c.rows("select * from t order by id"), "1,1,7;2,2,7");

    // A statement that waited for the change runs on what it left.
    c.ok("begin; alter table t drop column v");
    let insert = in_thread(Client::new(&db), "insert into t select 3, max(w) from t");
    let point = in_thread(Client::new(&db), "update t set w = 8 where id = 1");
    moment();
    assert!(!insert.is_finished() && !point.is_finished());
    c.ok("commit");
    insert.join().unwrap().2.unwrap();
    point.join().unwrap().2.unwrap();
    let rows = c.rows("select * from t order by id");
    assert!(rows == "1,8;2,7;3,7" || rows == "1,8;2,7;3,8", "{rows}");
}

#[test]
fn a_snapshot_older_than_a_change_does_not_write() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    for write in [
        "insert into t values (1, 1)",
        "insert into t select 1, 1",
        "update t set v = 2 where v = 5",
    ] {
        c.ok("begin isolation level repeatable read");
        c.ok("select * from t");
        Client::new(&db).ok("alter table t add column w int; alter table t drop column w");
        c.fails(write, "40001");
        c.ok("rollback");
    }
}

/// Others write to the table while its indexes are built: these are right when they appear, and writers
/// hardly wait.
#[test]
fn indexes_are_built_while_others_write() {
    const ROWS: i64 = 20_000;
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, a int, b int)");
    c.ok(&format!(
        "insert into t select g, g % 97, g from generate_series(1, {ROWS}) g"
    ));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let (written, meanwhile) = std::thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut c = Client::new(db);
                let mut number = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    let id = (number * 7_919 + writer) % ROWS + 1;
                    c.ok(&match number % 5 {
                        0 => format!("delete from t where id = {id} and id % 2 = {}", writer % 2),
                        1 => format!("insert into t values ({id}, 5, {id}) on conflict do nothing"),
                        // Keys move between rows of one statement, and stay unique.
                        2 => format!("update t set b = -b where id in ({id}, {})", id % ROWS + 1),
                        _ => format!("update t set a = a + 1 where id = {id}"),
                    });
                }
                number
            })
        });
        let before = db.stats().program_statements;
        for round in 0..3 {
            c.ok(&format!("create index t_a_{round} on t (a, id)"));
            c.ok(&format!("create unique index t_b_{round} on t (b)"));
        }
        let meanwhile = db.stats().program_statements - before;
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        (
            writers.map(|writer| writer.join().unwrap()).iter().sum::<i64>(),
            meanwhile,
        )
    });
    assert!(written > 100 && meanwhile > 50, "{written} {meanwhile}");
    let all = c.rows("select count(*), sum(a), sum(b) from t");
    for round in 0..3 {
        let by_a = "select count(*), sum(a), sum(b) from t where a >= -1000 and a < 100000";
        assert_eq!(c.rows(by_a), all, "{round}");
        let by_b = "select count(*), sum(a), sum(b) from t where b between -1000000 and 1000000";
        assert_eq!(c.rows(by_b), all, "{round}");
        for id in [1, 2, 777, ROWS] {
            let found = c.rows(&format!("select id from t where b in ({id}, -{id})"));
            assert_eq!(found, c.rows(&format!("select id from t where id = {id}")));
        }
        c.ok(&format!("drop index t_a_{round}; drop index t_b_{round}"));
    }
    let engine = db.engine();
    let snapshot = engine.snapshot();
    assert_eq!(
        engine.store().verify_digest(&snapshot).unwrap(),
        snapshot.digest()
    );
}

/// As in PostgreSQL, a duplicate that appears while an index is built ends the statement, and nothing else.
#[test]
fn duplicates_that_appear_meanwhile_are_found() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, b int)");
    c.ok("insert into t select g, g from generate_series(1, 3000) g");
    // The index waits for this transaction, whose row is a duplicate.
    let mut other = Client::new(&db);
    other.ok("begin; update t set b = 5 where id = 7");
    let (mut creator, failed) = (Client::new(&db), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| {
            creator.fails("create unique index t_b on t (b)", "23505");
            failed.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        moment();
        assert!(!failed.load(std::sync::atomic::Ordering::Relaxed));
        other.ok("commit");
        creating.join().unwrap();
    });
    c.ok("update t set b = 7 where id = 7");
    c.ok("create unique index t_b on t (b)");
    c.fails("insert into t values (0, 5)", "23505");
    // Rows of the transaction itself decide, too.
    c.ok("drop index t_b; insert into t values (0, 5)");
    c.fails("create unique index t_b on t (b)", "23505");
    c.ok("begin; delete from t where id = 0; create unique index t_b on t (b); commit");
    c.fails("insert into t values (0, 5)", "23505");
    c.ok("drop index t_b; insert into t values (0, 5), (-1, null)");
    c.ok("begin; delete from t where id <= 0; create unique index t_c on t (b); alter table t alter b set not null; \
          alter index t_c rename to t_b; commit");
    c.fails("insert into t values (0, 5)", "23505");
    c.fails("insert into t values (0, null)", "23502");
    c.ok(
        "drop index t_b; alter table t alter b drop not null; insert into t values (0, 5); create sequence s",
    );
    c.ok("begin; delete from t where id = 0; create unique index t_b on t (b); alter sequence s restart; commit");
    // A column of the same type takes the place of one with duplicates.
    c.ok("drop index t_b; insert into t values (0, 5)");
    c.ok("begin; alter table t drop column b; alter table t add column b int; create unique index t_b on t (b); \
          commit");
    c.ok("drop index t_b; update t set b = id; insert into t values (-1, 5)");
    c.ok("begin; truncate t; create unique index t_b on t (b); insert into t values (0, 5); commit");
    assert_eq!(c.rows("select * from t"), "0,5");
    c.fails("insert into t values (1, 5)", "23505");
}

#[test]
fn concurrently_stands_outside_of_transactions() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, b int)");
    c.ok("create index concurrently t_b on t (b)");
    c.ok("create unique index concurrently if not exists t_b on t (b)");
    c.ok("begin");
    c.fails("create index concurrently t_b2 on t (b)", "25001");
    c.ok("rollback; begin; create index t_b2 on t (b); commit");
}

#[test]
fn the_distribution_of_a_table_is_kept_and_shown() {
    let db = database();
    let mut c = Client::new(&db);
    c.ok("create table w (id int, v int, primary key (id)) with (partition_by = 'id')");
    c.ok("create table stock (w_id int, id int, primary key (w_id, id)) with (partition_by = w_id, fillfactor = 90)");
    c.ok("create table item (id int primary key) with (replicated = true)");
    c.ok("create table plain (id int primary key) with (replicated = off)");
    assert_eq!(
        c.rows("select relname, reloptions from pg_class where relkind = 'r' and oid > 16383 order by 1"),
        "item,{replicated=true};plain,NULL;stock,{partition_by=w_id};w,{partition_by=id}"
    );
    // One machine has all rows of all of them.
    c.ok(
        "insert into w values (1, 10), (2, 20); insert into stock values (1, 1); insert into item values (7)",
    );
    assert_eq!(
        c.rows("select w.v from w, stock, item where w.id = stock.w_id"),
        "10"
    );
    let refused = [
        (
            "create table x (id int primary key) with (partition_by = 'v')",
            "42P16",
        ),
        (
            "create table x (id int, v int, primary key (v, id)) with (partition_by = 'id')",
            "42P16",
        ),
        ("create table x (id int) with (partition_by = 'id')", "42P16"),
        (
            "create table x (id int primary key) with (partition_by = 'range(id, 10)')",
            "0A000",
        ),
        (
            "create table x (id int primary key) with (partition_by = '')",
            "22023",
        ),
        (
            "create table x (id int primary key) with (replicated = perhaps)",
            "22023",
        ),
        (
            "create table x (id int primary key) with (replicated = true, partition_by = id)",
            "22023",
        ),
        (
            "create table x (id int primary key, v int unique) with (partition_by = id)",
            "0A000",
        ),
        ("create unique index on w (v)", "0A000"),
        ("alter table w drop constraint w_pkey", "0A000"),
        ("alter table w drop column id", "0A000"),
        ("alter table plain set (replicated = true)", "0A000"),
    ];
    for (statement, state) in refused {
        c.fails(statement, state);
    }
    c.ok("create unique index on w (v, id)");
    c.ok("alter table w rename column id to key");
    assert_eq!(
        c.rows("select reloptions from pg_class where relname = 'w'"),
        "{partition_by=key}"
    );
}
