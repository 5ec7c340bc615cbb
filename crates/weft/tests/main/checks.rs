//! CHECK constraints: on every way in which a row is written, in the catalog, after a crash.

use crate::client::{Client, database, open_on};
use weft_base::SimDisk;

const TABLE: &str = "create table t (id int primary key, n int check (n > 0), s text, u int unique, \
                     constraint small check (n < 100 or s is not null))";

#[test]
fn every_way_of_writing_a_row_is_checked() {
    let db = database();
    let mut c = Client::with(&db, TABLE);
    c.ok("insert into t values (1, 1, null, 1), (2, null, null, 2)");
    c.ok("create procedure put(a int, b int) language sql as 'insert into t values (a, b, null, null)'");
    c.ok("create procedure set(a int, b int) language plpgsql as
          'begin update t set n = b where id = a; exception when check_violation then
           update t set s = sqlerrm where id = a; end'");
    for begin in ["", "begin; "] {
        for (write, constraint) in [
            ("insert into t values (3, 0, null, 3)", "t_n_check"),
            ("insert into t values (3, 100, null, 3)", "small"),
            ("insert into t values (3, 5, null, 3), (4, 100, null, 4)", "small"),
            ("insert into t select 3, -1, null, 3", "t_n_check"),
            (
                "insert into t values (1, 0, 'x', 3) on conflict do nothing",
                "t_n_check",
            ),
            (
                "insert into t values (1, 5, null, 3) on conflict (id) do update set n = -5",
                "t_n_check",
            ),
            (
                "insert into t select 1, 5 on conflict (id) do update set n = excluded.n - 5",
                "t_n_check",
            ),
            ("update t set n = -n where id = 1", "t_n_check"),
            ("update t set n = n * 100 where id + 0 = 1", "small"),
            ("update t set n = 0, u = 7 where u = 1", "t_n_check"),
            ("call put(3, 0)", "t_n_check"),
            // The check comes before the unique value.
            ("insert into t values (1, 0, null, 1)", "t_n_check"),
            (
                "insert into t values (1, 0, null, 1) on conflict (id) do nothing",
                "t_n_check",
            ),
            (
                "insert into t values (1, 0, null, 1) on conflict (id) do update set n = 5",
                "t_n_check",
            ),
        ] {
            let error = c.fails(&format!("{begin}{write}"), "23514");
            assert_eq!(error.fields().constraint.as_deref(), Some(constraint), "{write}");
            assert_eq!(error.fields().table.as_deref(), Some("t"));
            c.ok("rollback");
        }
        let copied = c.copy_in("copy t from stdin", "7\t0\t\\N\t7\n").unwrap_err();
        assert_eq!(copied.state.0, "23514");
    }
    c.ok("call set(1, 0)");
    let caught = "new row for relation \"t\" violates check constraint \"t_n_check\"";
    assert_eq!(c.rows("select n, s from t where id = 1"), format!("1,{caught}"));
    let error = c.fails("insert into t values (9, -5, 'word', null)", "23514");
    assert_eq!(error.message, caught);
    assert_eq!(
        error.fields().detail.as_deref(),
        Some("Failing row contains (9, -5, word, null).")
    );
    // NULL in a NOT NULL column comes first; an unknown condition is satisfied.
    c.fails("insert into t values (null, -5, null, null)", "23502");
    c.ok("insert into t values (9, null, null, null)");
}

#[test]
fn a_new_check_looks_at_the_rows_that_are_there() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, n int); insert into t values (1, 1), (2, -2)",
    );
    let error = c.fails("alter table t add constraint positive check (n > 0)", "23514");
    assert_eq!(
        error.message,
        "check constraint \"positive\" of relation \"t\" is violated by some row"
    );
    c.ok("alter table t add constraint positive check (n > 0) not valid");
    c.fails("insert into t values (3, -3)", "23514");
    c.fails("update t set n = -3 where id = 2", "23514");
    c.fails("alter table t validate constraint positive", "23514");
    assert_eq!(
        c.rows(
            "select convalidated, pg_get_constraintdef(oid) from pg_constraint where conname = 'positive'"
        ),
        "f,CHECK ((n > 0)) NOT VALID"
    );
    c.ok("update t set n = 2 where id = 2; alter table t validate constraint positive");
    // In one transaction, the rows that it leaves are tested.
    c.ok(
        "begin; insert into t values (5, 50); update t set n = 5 where id = 5;
          alter table t add check (n < 10); commit",
    );
    c.fails(
        "begin; alter table t add check (n < 5); insert into t values (6, 7)",
        "23514",
    );
    c.ok("rollback");
    assert_eq!(
        c.rows("select count(*) from pg_constraint where contype = 'c'"),
        "2"
    );
    c.ok("begin; alter table t drop constraint positive; insert into t values (7, -7); commit");
    c.fails("insert into t values (8, 10)", "23514");
    c.fails("alter table t drop constraint positive", "42704");
    c.fails("alter table t add constraint t_pkey check (n > 0)", "42710");
    for (condition, state) in [
        ("n > now()", "42883"),
        ("now() > '2000-01-01'", "0A000"),
        ("random() > 0.5", "0A000"),
        ("exp(n) > 1", "0A000"),
        ("n", "42804"),
        ("m > 0", "42703"),
        ("sum(n) > 0", "42803"),
        ("n > (select 1)", "0A000"),
        ("n > $1", "42P02"),
    ] {
        c.fails(&format!("alter table t add check ({condition})"), state);
    }
}

#[test]
fn checks_follow_their_columns_and_survive_a_crash() {
    let disk = SimDisk::new(9);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table t (a int, id int primary key, \"B c\" int, check (t.\"B c\" > id), check (a > 0))",
    );
    c.ok("alter table t rename column \"B c\" to \"order\"; alter table t rename column id to i");
    c.fails("insert into t values (1, 5, 5)", "23514");
    c.ok("alter table t drop column a; alter table t rename to u");
    c.fails("insert into u values (5, 5)", "23514");
    c.ok("alter table u rename constraint t_check to bigger; insert into u values (5, 6)");
    c.ok("alter table u add column d int default 7 check (d = 7)");
    c.fails("alter table u add column e int default 7 check (e = 8)", "23514");
    let shown = c.rows(
        "select conname, conkey, pg_get_constraintdef(oid) from pg_constraint where contype = 'c' order by 1",
    );
    assert_eq!(
        shown,
        "bigger,{1,2},CHECK ((\"order\" > \"i\"));u_d_check,{3},CHECK ((d = 7))"
    );
    drop((c, db));
    disk.crash();
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    let error = c.fails("insert into u values (7, 7)", "23514");
    assert_eq!(error.fields().constraint.as_deref(), Some("bigger"));
    c.fails("update u set d = 8", "23514");
    // And after a checkpoint.
    c.ok("checkpoint");
    drop((c, db));
    disk.crash();
    let mut c = Client::new(&open_on(&disk));
    c.fails("insert into u values (7, 7)", "23514");
    assert_eq!(
        c.rows("select conname, conkey, pg_get_constraintdef(oid) from pg_constraint where contype = 'c' order by 1"),
        shown
    );
}
