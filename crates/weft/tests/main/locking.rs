//! Two sessions at once: waiting, evaluating again, isolation levels, deadlines, cancellation.

use std::time::Duration;

use crate::client::{Client, Results, database, in_thread, moment};
use weft::Database;
use weft::sink::PipelinePosition;
use weft::sink::TxnStatus::{Failed, Idle};

fn table() -> (Database, Client, Client) {
    let db = database();
    let mut a = Client::with(&db, "create table t (id int primary key, v int)");
    a.ok("insert into t values (1, 1), (2, 2), (3, 3)");
    let b = Client::new(&db);
    (db, a, b)
}

#[test]
fn for_update_waits_and_reads_again() {
    let (_db, mut a, mut b) = table();
    a.ok("begin; update t set v = 10 where id = 1");
    b.fails("select v from t where id = 1 for update nowait", "55P03");
    b.is(Idle);
    let mut waiting = Client::new(&_db);
    waiting.ok("begin");
    let waiting = std::thread::spawn(move || {
        let rows = waiting.rows("select v from t where id = 1 for update");
        (waiting, rows)
    });
    moment();
    assert!(!waiting.is_finished());
    a.ok("commit");
    let (mut waiting, rows) = waiting.join().unwrap();
    assert_eq!(rows, "10");
    // It holds the row now.
    a.fails("select v from t where id = 1 for update nowait", "55P03");
    a.fails("select v from t where id = 1 for share nowait", "55P03");
    assert_eq!(a.rows("select v from t where id = 2 for update nowait"), "2");
    waiting.ok("commit");
    a.ok("begin; select * from t where id = 1 for share");
    b.ok("begin; select * from t where id = 1 for share nowait; commit");
    a.ok("commit");
}

/// As in PostgreSQL, a failed transaction holds no locks, although its client has yet to end it.
#[test]
fn a_failed_transaction_holds_no_locks() {
    let (_db, mut a, mut b) = table();
    a.ok("begin; update t set v = 10 where id = 1");
    b.fails("select v from t where id = 1 for update nowait", "55P03");
    a.fails("select 1 / 0", "22012");
    a.is(Failed);
    b.ok("begin; update t set v = 20 where id = 1");
    a.fails("select 1", "25P02");
    a.fails("update t set v = 11 where id = 1", "25P02");
    a.ok("commit");
    a.is(Idle);
    b.ok("commit");
    assert_eq!(a.rows("select v from t where id = 1"), "20");
    // Up to a savepoint its work may still be kept, and so are its locks.
    a.ok("begin; update t set v = 30 where id = 1; savepoint s; update t set v = 31 where id = 2");
    a.fails("select 1 / 0", "22012");
    b.fails("select v from t where id = 1 for update nowait", "55P03");
    a.ok("rollback to s; commit");
    assert_eq!(a.rows("select v from t where id < 3 order by id"), "30;2");
}

#[test]
fn a_row_changed_while_waiting_is_evaluated_again() {
    let (db, mut a, b) = table();
    for (sql, tag) in [
        ("update t set v = v + 100 where v = 1 and id + 0 > 0", "UPDATE 0"),
        ("delete from t where v < 3 and id + 0 = 1", "DELETE 0"),
        ("update t set v = v * 2 where v > 0 and id + 0 = 1", "UPDATE 1"),
        ("update t set v = v - 1 where id = 1", "UPDATE 1"),
    ] {
        a.ok("update t set v = 1 where id = 1");
        a.ok("begin; update t set v = 5 where id = 1");
        let waiting = in_thread(Client::new(&db), sql);
        moment();
        assert!(!waiting.is_finished(), "{sql}");
        a.ok("commit");
        let (_, tags, result) = waiting.join().unwrap();
        result.unwrap();
        assert_eq!(tags, tag, "{sql}");
    }
    assert_eq!(a.rows("select * from t order by id"), "1,4;2,2;3,3");
    // Deleted while waiting.
    a.ok("begin; delete from t where id = 1");
    let waiting = in_thread(b, "update t set v = 0 where id + 0 = 1");
    moment();
    a.ok("commit");
    assert_eq!(waiting.join().unwrap().1, "UPDATE 0");
}

#[test]
fn the_first_updater_wins_under_repeatable_read() {
    let (_db, mut a, mut b) = table();
    for write in [
        "update t set v = 0 where id = 1",
        "update t set v = 0 where id + 0 = 1",
        "delete from t where id = 1",
        "delete from t where id + 0 = 1",
        "select * from t where id = 1 for update",
    ] {
        b.ok("begin isolation level repeatable read");
        let before = b.rows("select v from t where id = 1");
        a.ok("update t set v = v + 1 where id = 1");
        assert_eq!(b.rows("select v from t where id = 1"), before);
        b.fails(write, "40001");
        b.is(Failed);
        b.ok("rollback");
    }
    b.ok("begin isolation level repeatable read; select * from t where id = 2");
    a.ok("delete from t where id = 2");
    b.fails("update t set v = 0 where id + 0 = 2", "40001");
    b.ok("rollback");
}

#[test]
fn write_skew_is_prevented_under_serializable() {
    let (db, mut a, b) = table();
    a.ok("begin isolation level serializable");
    let mut b = Client(b.0);
    b.ok("begin isolation level serializable");
    assert_eq!(a.rows("select sum(v) from t"), "6");
    assert_eq!(b.rows("select sum(v) from t"), "6");
    let waiting = in_thread(b, "update t set v = 0 where id = 1");
    moment();
    let (_, second) = a.message("update t set v = 0 where id = 2");
    if second.is_ok() {
        a.ok("commit");
    } else {
        a.ok("rollback");
    }
    let (mut b, _, first) = waiting.join().unwrap();
    let survivors = usize::from(first.is_ok()) + usize::from(second.is_ok());
    assert_eq!(survivors, 1, "{first:?} {second:?}");
    let error = first.and(second).unwrap_err();
    assert!(["40P01", "40001"].contains(&error.state.0), "{error}");
    b.ok("commit");
    let sum = Client::new(&db).rows("select sum(v) from t");
    assert!(["4", "5"].contains(&sum.as_str()), "{sum}");
}

#[test]
fn a_phantom_waits_under_serializable() {
    let (db, mut a, b) = table();
    a.ok("begin isolation level serializable");
    assert_eq!(a.rows("select count(*) from t where v > 0"), "3");
    let insert = in_thread(b, "insert into t values (4, 4)");
    moment();
    assert!(!insert.is_finished());
    assert_eq!(a.rows("select count(*) from t where v > 0"), "3");
    a.ok("commit");
    insert.join().unwrap().2.unwrap();
    assert_eq!(Client::new(&db).rows("select count(*) from t"), "4");
}

#[test]
fn deadlocks_have_a_victim() {
    let (_db, mut a, mut b) = table();
    a.ok("begin; update t set v = 0 where id = 1");
    b.ok("begin; update t set v = 0 where id = 2");
    let waiting = in_thread(b, "update t set v = 9 where id = 1");
    moment();
    let (_, second) = a.message("update t set v = 9 where id = 2");
    a.ok(if second.is_ok() { "commit" } else { "rollback" });
    let (mut b, _, first) = waiting.join().unwrap();
    assert!(first.is_ok() != second.is_ok());
    assert_eq!(first.and(second).unwrap_err().state.0, "40P01");
    b.ok("commit");
}

#[test]
fn limits_on_waiting_end_programs_and_transactions() {
    let (_db, mut a, mut b) = table();
    a.ok("begin; update t set v = 0 where id = 1");
    let messages = [
        "update t set v = 7 where id = 1",
        "update t set v = 7 where id + 0 = 1",
        "begin; update t set v = 7 where id = 2; update t set v = 7 where id = 1; commit",
        "select * from t where id = 1 for update",
    ];
    for (setting, state) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        b.ok(&format!("set {setting} = '40ms'"));
        for sql in messages {
            b.fails(sql, state);
            let expected = if sql.starts_with("begin") { Failed } else { Idle };
            b.is(expected);
            b.ok("rollback");
        }
        b.ok(&format!("reset {setting}"));
    }
    a.ok("commit");
    assert_eq!(b.rows("select * from t order by id"), "1,0;2,2;3,3");
    for sql in messages {
        b.ok(sql);
    }
}

#[test]
fn a_query_ends_at_its_deadline() {
    let (_db, mut a, _) = table();
    a.ok("create table big (id int primary key)");
    let input: String = (0..3000).map(|id| format!("{id}\n")).collect();
    a.copy_in("copy big from stdin", &input).unwrap();
    a.ok("set statement_timeout = '100ms'");
    a.fails(
        "select count(*) from big a, big b, big c where a.id + b.id + c.id = 7",
        "57014",
    );
    a.is(Idle);
    assert_eq!(a.rows("select count(*) from big"), "3000");
}

#[test]
fn a_running_statement_is_cancelled() {
    let (db, mut a, _) = table();
    a.ok("begin; update t set v = 0 where id = 1");
    for sql in [
        "update t set v = 7 where id = 1",
        "update t set v = 7 where id + 0 = 1",
        "begin; update t set v = 7 where id = 2; update t set v = 7 where id = 1; commit",
    ] {
        let b = Client::new(&db);
        let handle = b.0.cancel_handle();
        let waiting = in_thread(b, sql);
        moment();
        handle.cancel();
        let (mut b, _, result) = waiting.join().unwrap();
        assert_eq!(result.unwrap_err().state.0, "57014", "{sql}");
        b.ok("rollback");
        // The wish is not kept for the next statement.
        handle.cancel();
        assert_eq!(b.rows("select v from t where id = 2"), "2");
    }
    a.ok("commit");
}

#[test]
fn money_is_kept_while_all_kinds_of_statement_move_it() {
    let db = database();
    let mut c = Client::with(&db, "create table m (id int primary key, v int)");
    c.ok("insert into m values (0, 100), (1, 100), (2, 100), (3, 100)");
    let movers: Vec<_> = (0..4_usize)
        .map(|kind| {
            let mut c = Client::new(&db);
            std::thread::spawn(move || {
                for n in 0..30_usize {
                    let (from, to) = ((n + kind) % 4, (n * 3 + kind + 1) % 4);
                    let (compiled, general) = (format!("id = {from}"), format!("id + 0 = {from}"));
                    let take = if kind % 2 == 0 { compiled } else { general };
                    let level = ["read committed", "repeatable read", "serializable"][n % 3];
                    let messages = match kind {
                        0 => vec![format!(
                            "begin; update m set v = v - 1 where id = {from}; update m set v = v + 1 where id = {to}; commit"
                        )],
                        _ => vec![
                            format!("begin isolation level {level}"),
                            format!("update m set v = v - 1 where {take}"),
                            format!("update m set v = v + 1 where id = {to}"),
                            "commit".to_string(),
                        ],
                    };
                    for message in &messages {
                        if let Err(error) = c.message(message).1 {
                            assert!(error.state.is_retryable(), "{message}: {error:?}");
                            c.ok("rollback");
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for _ in 0..40 {
        assert_eq!(c.rows("select sum(v), count(*) from m"), "400,4");
    }
    movers.into_iter().for_each(|mover| mover.join().unwrap());
    assert_eq!(c.rows("select sum(v), count(*) from m"), "400,4");
    assert_eq!(c.rows("begin; select sum(v) from m; commit"), "400");
}

/// Executes a statement until it is no longer parked; how often it was, and what it said.
fn execute_parking(session: &mut weft::Session, sql: &str, most: usize) -> (usize, Result<(), &'static str>) {
    let prepared = session.prepare(sql, &[]).unwrap();
    let waker = std::task::Waker::noop();
    for tries in 0..most {
        let mut results = Results::default();
        match session.execute_or_park(&prepared, &[], PipelinePosition::Pipelined, waker, &mut results) {
            Err(error) if weft::is_parked(&error) => {
                assert!(results.tags.is_empty() && results.rows.is_empty());
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return (tries, Err(error.state.0)),
            Ok(()) => return (tries, Ok(())),
        }
    }
    (most, Ok(()))
}

/// A statement that waits is tried again with the inputs that it had: no sequence moves on, and the wait is
/// one.
#[test]
fn a_parked_statement_keeps_its_inputs() {
    let (db, mut a, _) = table();
    a.ok("create table mail (id serial primary key, address text unique)");
    let mut b = db.session();
    b.run("begin").unwrap();
    a.ok("begin; insert into mail (address) values ('x')");
    let insert = "insert into mail (address) values ('x')";
    assert_eq!(execute_parking(&mut b, insert, 20), (20, Ok(())));
    a.ok("rollback");
    let (tries, result) = execute_parking(&mut b, insert, 1000);
    assert!(tries < 1000 && result.is_ok(), "{result:?}");
    b.run("commit").unwrap();
    assert_eq!(a.rows("select id from mail"), "2", "each INSERT drew one number");

    b.run("set lock_timeout = '60ms'; begin").unwrap();
    a.ok("begin; insert into mail (address) values ('y')");
    let insert = "insert into mail (address) values ('y')";
    let (tries, result) = execute_parking(&mut b, insert, 1000);
    assert_eq!(result, Err("55P03"), "after {tries}");
    assert!(tries > 3);
    b.run("rollback").unwrap();
    a.ok("commit");
    assert_eq!(a.rows("select id from mail where address = 'y'"), "3");
}

/// A statement that was given up while it was parked stands in nobody's way.
#[test]
fn a_failed_parked_statement_requests_no_locks() {
    let (db, mut a, mut c) = table();
    let mut b = db.session();
    b.run("begin; savepoint s").unwrap();
    a.ok("begin; update t set v = 5 where id = 1");
    let update = "update t set v = v + 1 where id = 1";
    assert_eq!(execute_parking(&mut b, update, 3), (3, Ok(())));
    b.fail();
    b.run("rollback to s").unwrap();
    a.ok("commit");
    c.ok("set lock_timeout = '2s'; update t set v = v + 1 where id = 1");
    b.run("commit").unwrap();
    assert_eq!(a.rows("select v from t where id = 1"), "6");
}

#[test]
fn lock_table_nowait_does_not_wait() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key)");
    c.ok("begin; lock table t in share mode");
    let mut other = Client::with(&db, "begin");
    other.ok("lock table t in share mode nowait");
    other.fails("lock table t in exclusive mode nowait", "55P03");
    other.ok("rollback");
    c.ok("commit");
    other.ok("begin; lock table t nowait; rollback");
}
