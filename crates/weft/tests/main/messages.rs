//! Simple messages: implicit transactions, errors in the middle, and transactions that run as one program.

use crate::client::{Client, database};
use weft::sink::TxnStatus::{Failed, Idle, InTransaction};

const ACCOUNTS: &str = "create table a (id int primary key, v int not null)";

#[test]
fn statements_of_a_message_commit_or_abort_together() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    assert_eq!(
        c.ok("insert into a values (1, 1); insert into a values (2, 2)"),
        "INSERT 1; INSERT 1"
    );
    c.fails(
        "insert into a values (3, 3); insert into a values (1, 9); insert into a values (4, 4)",
        "23505",
    );
    c.is(Idle);
    assert_eq!(c.rows("select * from a order by id"), "1,1;2,2");
    c.fails(
        "insert into a values (3, 3); select v / 0 from a where id + 0 = 1",
        "22012",
    );
    assert_eq!(c.rows("select count(*) from a"), "2");
}

#[test]
fn begin_and_commit_inside_a_message() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    // The implicit transaction becomes the explicit one, which goes on after the message.
    assert_eq!(
        c.ok("insert into a values (1, 1); begin; insert into a values (2, 2)"),
        "INSERT 1; BEGIN; INSERT 1"
    );
    c.is(InTransaction);
    assert_eq!(c.ok("rollback"), "ROLLBACK");
    assert_eq!(c.rows("select count(*) from a"), "0");
    // What was committed in the middle stays.
    c.fails(
        "begin; insert into a values (1, 1); commit; insert into a values (1, 2)",
        "23505",
    );
    c.is(Idle);
    assert_eq!(c.rows("select * from a"), "1,1");
    let (results, result) = c.message("begin; begin");
    result.unwrap();
    assert_eq!(results.notices.len(), 1);
    c.ok("commit");
    let (results, result) = c.message("commit");
    result.unwrap();
    assert_eq!(
        (results.tags.join(""), results.notices[0].state.0),
        ("COMMIT".into(), "25P01")
    );
}

#[test]
fn empty_messages_and_errors_of_grammar() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    assert_eq!(c.ok(";"), "(empty)");
    assert_eq!(c.ok(""), "(empty)");
    assert_eq!(c.ok(" ; ; select 1; ;"), "SELECT 1");
    c.fails("insert into a values (1, 1); selekt 2", "42601");
    assert_eq!(c.rows("select count(*) from a"), "0");
    c.ok("begin");
    c.fails("selekt", "42601");
    c.is(Failed);
    c.ok("rollback");
}

#[test]
fn a_transaction_of_point_statements_in_one_message_is_one_program() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    c.ok("insert into a values (1, 10), (2, 20)");
    let before = db.stats().engine;
    let (results, result) = c.message(
        "begin; update a set v = v - 5 where id = 1; update a set v = v + 5 where id = 2; \
         select v from a where id = 2; insert into a values (3, 0); delete from a where id = 9; commit",
    );
    result.unwrap();
    assert_eq!(
        results.tags,
        [
            "BEGIN", "UPDATE 1", "UPDATE 1", "SELECT 1", "INSERT 1", "DELETE 0", "COMMIT"
        ]
    );
    assert_eq!(results.rows, ["25"]);
    let after = db.stats().engine;
    assert_eq!(after.one_shot, before.one_shot + 1);
    assert_eq!(after.session_commits, before.session_commits);
    c.is(Idle);
    assert_eq!(c.rows("select * from a order by id"), "1,5;2,25;3,0");
    // The same text with other literals takes the same plan.
    assert_eq!(
        c.ok("begin; update a set v = 1 where id = 1; update a set v = 2 where id = 2; end"),
        "BEGIN; UPDATE 1; UPDATE 1; COMMIT"
    );
    assert_eq!(
        c.ok("begin; update a set v = 3 where id = 1; update a set v = 4 where id = 7; end"),
        "BEGIN; UPDATE 1; UPDATE 0; COMMIT"
    );
    assert_eq!(c.rows("select * from a order by id"), "1,3;2,2;3,0");
    assert_eq!(db.stats().engine.one_shot, after.one_shot + 2);
}

#[test]
fn a_failing_statement_leaves_the_transaction_of_one_message_failed() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    c.ok("insert into a values (1, 10)");
    let message = "begin; update a set v = 11 where id = 1; insert into a values (1, 1); commit";
    for _ in 0..2 {
        let (results, result) = c.message(message);
        assert_eq!(result.unwrap_err().state.0, "23505");
        assert_eq!(results.tags, ["BEGIN", "UPDATE 1"]);
        c.is(Failed);
        c.fails("select 1", "25P02");
        assert_eq!(c.ok("rollback"), "ROLLBACK");
        c.is(Idle);
        assert_eq!(c.rows("select * from a"), "1,10");
    }
    // COMMIT of the failed transaction rolls back and says so.
    c.message("begin; update a set v = 2147483647 where id = 1; update a set v = v + 1 where id = 1; commit")
        .1
        .unwrap_err();
    c.is(Failed);
    assert_eq!(c.ok("commit"), "ROLLBACK");
    assert_eq!(c.rows("select * from a"), "1,10");
}

#[test]
fn the_share_of_programs_is_shown() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    c.ok("insert into a values (1, 1)");
    c.ok("select v from a where id = 1");
    assert_eq!(c.rows("show weft.program_share"), "1.0000");
    c.ok("select sum(v) from a");
    assert_eq!(c.rows("show weft.program_statements"), "2");
    assert_eq!(c.rows("show weft.query_statements"), "1");
    c.fails("show weft.nothing", "42704");
}

#[test]
fn record_batches_come_from_the_transaction() {
    let db = database();
    let mut c = Client::with(&db, ACCOUNTS);
    c.ok("insert into a values (1, 1), (2, 2)");
    c.ok("begin; insert into a values (3, 3)");
    let rows = |c: &mut Client, sql: &str| {
        c.0.query_arrow(sql)
            .map(|b| b.iter().map(|b| b.num_rows()).sum::<usize>())
    };
    assert_eq!(rows(&mut c, "select * from a").unwrap(), 3);
    assert_eq!(rows(&mut c, "select v from a where id = 3").unwrap(), 1);
    assert_eq!(rows(&mut Client::new(&db), "select * from a").unwrap(), 2);
    rows(&mut c, "delete from a").unwrap_err();
    c.is(Failed);
    c.ok("rollback");
    assert_eq!(rows(&mut c, "select * from a").unwrap(), 2);
}
