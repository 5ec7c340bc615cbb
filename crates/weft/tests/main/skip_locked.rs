//! FOR UPDATE SKIP LOCKED: what others hold is passed over, and only what is returned is locked.

use std::collections::BTreeSet;
use std::sync::Mutex;

use weft::Database;

use crate::client::{Client, database, in_thread, moment};

fn jobs() -> (Database, Client, Client) {
    let db = database();
    let mut a = Client::with(
        &db,
        "create table jobs (id int primary key, state text, priority int)",
    );
    a.ok("insert into jobs select n, 'ready', n % 3 from generate_series(1, 9) n");
    let b = Client::new(&db);
    (db, a, b)
}

const NEXT: &str = "select id from jobs where state = 'ready' order by id limit 2 for update skip locked";

#[test]
fn rows_of_others_are_passed_over() {
    let (_db, mut a, mut b) = jobs();
    a.ok("begin; update jobs set state = 'taken' where id in (1, 3)");
    b.ok("begin");
    assert_eq!(b.rows(NEXT), "2;4");
    // Its own rows are not passed over, those it inserted included.
    assert_eq!(b.rows(NEXT), "2;4");
    b.ok("insert into jobs values (0, 'ready', 0)");
    assert_eq!(b.rows(NEXT), "0;2");
    // Nothing but the rows returned is locked.
    assert_eq!(a.rows(NEXT), "5;6");
    assert_eq!(
        a.rows("select id from jobs where id in (2, 4, 7) for update skip locked"),
        "7"
    );
    assert_eq!(
        a.rows("select id from jobs where id = 4 for update skip locked"),
        ""
    );
    a.ok("rollback");
    b.ok("commit");
    assert_eq!(a.rows(NEXT), "0;1");
}

#[test]
fn changes_that_were_committed_meanwhile_are_seen() {
    let (_db, mut a, mut b) = jobs();
    b.ok("begin");
    assert_eq!(
        b.rows("select id from jobs where id = 9 for update skip locked"),
        "9"
    );
    a.ok("update jobs set state = 'done' where id < 3; delete from jobs where id = 3");
    assert_eq!(b.rows(NEXT), "4;5");
    b.ok("commit; begin isolation level repeatable read; select count(*) from jobs");
    a.ok("update jobs set state = 'done' where id = 4");
    // The snapshot shows it as it was, and it cannot be locked as such.
    b.fails(NEXT, "40001");
    b.ok("rollback");
}

/// One look further down finds what is free behind any number of locked rows.
#[test]
fn many_locked_rows_are_passed_at_once() {
    let (_db, mut a, mut b) = jobs();
    a.ok("insert into jobs select n, 'ready', 0 from generate_series(10, 400) n");
    a.ok("begin");
    a.ok("select * from jobs where id <= 300 for update");
    b.ok("begin");
    assert_eq!(b.rows(NEXT), "301;302");
    assert_eq!(
        a.rows("select count(*) from (select 1 from jobs where id > 302) j"),
        "98"
    );
    assert_eq!(
        a.rows("select id from jobs where id > 300 order by id limit 1 for update skip locked"),
        "303"
    );
    assert_eq!(
        b.rows("select id from jobs where id < 302 order by id desc for update skip locked"),
        "301"
    );
    a.ok("commit");
    b.ok("commit");
}

#[test]
fn shared_locks_do_not_skip_each_other() {
    let (_db, mut a, mut b) = jobs();
    a.ok("begin; select * from jobs where id = 1 for share");
    b.ok("begin");
    assert_eq!(
        b.rows("select id from jobs order by id limit 1 for share skip locked"),
        "1"
    );
    assert_eq!(
        b.rows("select id from jobs order by id limit 1 for update skip locked"),
        "2"
    );
    b.ok("commit");
    a.ok("commit");
}

#[test]
fn a_line_of_a_join_is_passed_over_with_any_of_its_rows() {
    let (_db, mut a, mut b) = jobs();
    a.ok("create table owners (priority int primary key, name text)");
    a.ok("insert into owners values (0, 'zero'), (1, 'one'), (2, 'two')");
    a.ok("begin; select * from owners where priority = 1 for update; select * from jobs where id = 3 for update");
    let joined = "select id, name from jobs join owners using (priority) order by id";
    b.ok("begin");
    assert_eq!(
        b.rows(&format!("{joined} limit 3 for update skip locked")),
        "2,two;5,two;6,zero"
    );
    // Of the table that is not locked all rows are seen.
    assert_eq!(
        b.rows(&format!("{joined} limit 3 for update of jobs skip locked")),
        "1,one;2,two;4,one"
    );
    let counted =
        "select id, (select count(*) from jobs) from jobs order by id desc limit 1 for update skip locked";
    assert_eq!(b.rows(counted), "9,9");
    assert_eq!(a.rows(counted), "8,9");
    b.ok("commit");
    a.ok("commit");
}

#[test]
fn a_table_that_is_locked_whole_is_waited_for() {
    let (db, mut a, b) = jobs();
    a.ok("begin; lock table jobs in exclusive mode");
    let waiting = in_thread(
        b,
        "select id from jobs order by id limit 1 for update skip locked",
    );
    moment();
    assert!(!waiting.is_finished());
    a.ok("commit");
    waiting.join().unwrap().2.unwrap();
    drop(db);
}

#[test]
fn what_does_not_go_with_it_is_refused() {
    let (_db, mut a, _) = jobs();
    for (sql, state) in [
        (
            "select * from jobs order by id limit 1 offset 1 for update skip locked",
            "0A000",
        ),
        (
            "select * from jobs order by id fetch first row with ties for update skip locked",
            "42601",
        ),
        (
            "select * from jobs j, jobs k for update of j skip locked for update of k",
            "0A000",
        ),
        ("select count(*) from jobs for update skip locked", "0A000"),
    ] {
        a.fails(sql, state);
    }
    a.ok("insert into jobs select n, 'ready', 0 from generate_series(10, 5000) n");
    a.fails("select * from jobs for update skip locked", "54000");
    a.ok("begin; select * from jobs limit 4000 for update skip locked");
    a.fails("select * from jobs for update skip locked", "54000");
    a.ok("rollback");
}

/// Every job is taken by one worker, in about the order of the queue, although some workers hold theirs for
/// long.
#[test]
fn a_queue_gives_each_job_once() {
    const JOBS: i32 = 200;
    let db = database();
    let mut a = Client::with(&db, "create table queue (id int primary key, worker int)");
    a.ok(&format!(
        "insert into queue select n, null from generate_series(1, {JOBS}) n"
    ));
    let taken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (db, taken) = (&db, &taken);
            scope.spawn(move || {
                let mut client = Client::new(db);
                loop {
                    client.ok("begin");
                    let next = "select id from queue where worker is null order by id limit 1 for update skip locked";
                    let id = client.rows(next);
                    if id.is_empty() {
                        // Others may still undo theirs; what is left then is taken below.
                        client.ok("commit");
                        break;
                    }
                    client.ok(&format!("update queue set worker = {worker} where id = {id}"));
                    if id.ends_with('7') && taken.lock().unwrap().len() % 2 == 0 {
                        client.ok("rollback");
                        continue;
                    }
                    taken.lock().unwrap().push(id.parse::<i32>().unwrap());
                    client.ok("commit");
                }
            });
        }
    });
    let mut taken = taken.into_inner().unwrap();
    let rest = a.rows("select id from queue where worker is null order by id for update skip locked");
    taken.extend(
        rest.split(';')
            .filter(|id| !id.is_empty())
            .map(|id| id.parse::<i32>().unwrap()),
    );
    assert_eq!(taken.len(), taken.iter().collect::<BTreeSet<_>>().len());
    taken.sort_unstable();
    assert_eq!(taken, (1..=JOBS).collect::<Vec<_>>());
}

/// What queues in SQL are written with: the rows to change are chosen by a subquery that locks them.
#[test]
fn a_subquery_that_locks_runs_once_and_first() {
    let (_db, mut a, mut b) = jobs();
    let next = "select id from jobs where state = 'ready' order by id limit 1 for update skip locked";
    a.ok("begin");
    assert_eq!(
        a.rows(&format!(
            "update jobs set state = 'taken' where id = ({next}) returning id, state"
        )),
        "1,taken"
    );
    b.ok("begin");
    assert_eq!(
        b.rows(&format!(
            "with next as ({next}) update jobs j set state = 'mine' from next where j.id = next.id returning j.id"
        )),
        "2"
    );
    assert_eq!(
        b.rows(&format!("delete from jobs where id in ({next}) returning id")),
        "3"
    );
    assert_eq!(
        b.rows("select count(*), max(id) from (select id from jobs where id > 5 for update skip locked) j"),
        "4,9"
    );
    assert_eq!(
        a.rows("select id from jobs order by id for update skip locked"),
        "1;4;5"
    );
    assert_eq!(
        a.rows(
            "with j as (select id, state from jobs where id < 6 for update skip locked) \
                select one.id, other.state from j one join j other using (id) order by id"
        ),
        "1,taken;4,ready;5,ready"
    );
    a.ok("rollback");
    // Nothing waits, so b's rows are passed over; those it has not taken are free.
    assert_eq!(
        a.rows(&format!(
            "update jobs set priority = 9 where id = any(array({next})) returning id"
        )),
        "1"
    );
    b.ok("rollback");
    assert_eq!(
        a.ok("insert into jobs select id + 100, 'copy', 0 from jobs where id < 4 for update"),
        "INSERT 3"
    );
}

#[test]
fn a_subquery_that_locks_waits_as_others_do() {
    let (db, mut a, b) = jobs();
    a.ok("begin; update jobs set priority = 7 where id = 1");
    let waiting = in_thread(
        b,
        "update jobs set state = priority::text where id = (select id from jobs where id = 1 for update)",
    );
    moment();
    assert!(!waiting.is_finished());
    a.ok("commit");
    waiting.join().unwrap().2.unwrap();
    assert_eq!(a.rows("select state from jobs where id = 1"), "7");
    let mut c = Client::new(&db);
    a.ok("begin; update jobs set priority = 8 where id = 1");
    c.fails("select * from (select id from jobs for update nowait) j", "55P03");
    a.ok("commit");
    c.ok("begin read only");
    c.fails("select * from (select id from jobs for update) j", "25006");
}

#[test]
fn parameters_of_a_subquery_that_locks() {
    let (_db, mut a, mut b) = jobs();
    a.ok("prepare take(int, text) as update jobs set state = $2 where id in \
          (select id from jobs where state = 'ready' order by id limit $1 for update skip locked) returning id");
    b.ok("begin; select * from jobs where id = 2 for update");
    assert_eq!(a.rows("execute take(2, 'a')"), "1;3");
    b.ok("commit");
    assert_eq!(a.rows("execute take(2, 'b')"), "2;4");
    assert_eq!(a.rows("select count(*) from jobs where state = 'b'"), "2");
}

#[test]
fn subqueries_that_cannot_lock_are_refused() {
    let (_db, mut a, _) = jobs();
    for (sql, state) in [
        (
            "select (select k.id from jobs k where k.id = j.id for update) from jobs j",
            "0A000",
        ),
        (
            "with w as (select 1 as id) select * from (select * from w for update) x",
            "0A000",
        ),
        ("select * from (select nothing from jobs for update) j", "42703"),
        ("select * from (select count(*) from jobs for update) j", "0A000"),
        (
            "select * from jobs where id in (select id from jobs for update) for update",
            "0A000",
        ),
        (
            "insert into jobs values (50) returning (select id from jobs limit 1 for update)",
            "0A000",
        ),
        (
            "insert into jobs values (1) on conflict (id) do update set priority = (select 1 from jobs for update)",
            "0A000",
        ),
    ] {
        a.fails(sql, state);
    }
    // One that nothing names is not run.
    a.ok("begin");
    assert_eq!(a.rows("with w as (select id from jobs for update) select 1"), "1");
}
