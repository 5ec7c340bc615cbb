//! Views: the rights of their owners, what a restart finds, and who waits for whom.

use weft_base::SimDisk;

use crate::client::{Client, database, in_thread, moment, open_on};

#[test]
fn a_view_reads_with_its_owners_rights() {
    let db = database();
    let mut owner = Client::with(
        &db,
        "create table t (id int primary key, secret int); insert into t values (1, 7), (2, 8);
         create table u (id int primary key);
         create role ann login; create role bob login; grant create on schema public to ann;
         create view open as select id from t where secret > 7;
         create view inner_one as select id, secret from t;
         create view alone as select 1 as id",
    );
    let mut ann = Client(db.login("ann", 0).unwrap());
    let mut bob = Client(db.login("bob", 0).unwrap());
    assert_eq!(
        ann.fails("select * from open", "42501").message,
        "permission denied for view open"
    );
    owner.ok("grant select on open to ann");
    assert_eq!(ann.rows("select * from open"), "2");
    assert_eq!(
        ann.rows("select count(*) from open o join open p on o.id = p.id"),
        "1"
    );
    assert_eq!(
        ann.fails("select * from t", "42501").message,
        "permission denied for table t"
    );
    assert_eq!(
        ann.fails("select * from open where id in (select id from t)", "42501")
            .message,
        "permission denied for table t"
    );
    // Through a view of a view each owner needs what his own view names.
    ann.ok("create view mine as select id from open; grant select on mine to bob");
    assert_eq!(bob.rows("select * from mine"), "2");
    assert_eq!(
        bob.fails("select * from open", "42501").message,
        "permission denied for view open"
    );
    owner.ok("revoke select on open from ann");
    assert_eq!(
        bob.fails("select * from mine", "42501").message,
        "permission denied for view open"
    );
    ann.ok("create view blind as select secret from inner_one");
    assert_eq!(
        ann.fails("select * from blind", "42501").message,
        "permission denied for view inner_one"
    );
    owner.ok("grant select on inner_one to ann");
    assert_eq!(ann.rows("select * from blind order by 1"), "7;8");
    // What only the owner may do.
    for sql in [
        "drop view alone",
        "create or replace view alone as select id from u",
        "alter view alone rename to shut",
        "alter view alone owner to ann",
    ] {
        assert_eq!(
            ann.fails(sql, "42501").message,
            "must be owner of view alone",
            "{sql}"
        );
    }
    assert_eq!(
        bob.fails("create view no as select 1 as x", "42501").message,
        "permission denied for schema public"
    );
    owner.ok("alter view open owner to ann");
    assert_eq!(
        ann.fails("select * from open", "42501").message,
        "permission denied for table t"
    );
    owner.ok("grant select on t to ann");
    assert_eq!(ann.rows("select * from open"), "2");
    owner.ok("alter default privileges for role ann grant select on tables to bob");
    ann.ok("create view shown as select 5 as x");
    assert_eq!(bob.rows("select * from shown"), "5");
    ann.fails("alter view nothing owner to ann", "42P01");
    owner.fails("alter view t owner to ann", "42809");
    owner.fails("drop role ann", "2BP01");
}

#[test]
fn views_come_back() {
    let disk = SimDisk::new(11);
    let mut c = Client(open_on(&disk).session());
    c.ok("create table t (id int primary key, v text); insert into t values (1, 'a')");
    c.ok("create view one as select * from t; create view two as select v, id + 1 as next from one");
    c.ok("checkpoint; alter table t add column w int default 3");
    c.ok("create view three as select * from t; create view gone as select 1 as x; drop view gone");
    let shown = c.rows(
        "select viewname, definition from pg_views where viewname in ('one', 'two', 'three') order by 1",
    );
    assert_eq!(
        shown,
        "one, select t.id, t.v from public.t;;three, select t.id, t.v, t.w from public.t;;two, select v, id + 1 as next from public.one;"
    );
    drop(c);
    disk.crash();
    let mut c = Client(open_on(&disk).session());
    assert_eq!(
        c.rows(
            "select viewname, definition from pg_views where viewname in ('one', 'two', 'three') order by 1"
        ),
        shown
    );
    assert_eq!(c.rows("select * from one"), "1,a");
    assert_eq!(c.rows("select * from two"), "a,2");
    assert_eq!(c.rows("select * from three"), "1,a,3");
    c.fails("select * from gone", "42P01");
    c.fails("drop table t", "2BP01");
    c.ok("drop table t cascade");
    c.fails("select * from two", "42P01");
}

#[test]
fn prepared_statements_follow_a_replaced_view() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v int); insert into t values (1, 10), (2, 20);
         create view w as select id, v from t where v > 10",
    );
    c.ok("prepare p as select * from w order by id");
    assert_eq!(c.rows("execute p"), "2,20");
    let mut other = Client::new(&db);
    other.ok("create or replace view w as select id, v * 2 as v from t");
    assert_eq!(c.rows("execute p"), "1,20;2,40");
    c.ok("begin isolation level repeatable read");
    assert_eq!(c.rows("select count(*) from w"), "2");
    other.ok("insert into t values (3, 30)");
    assert_eq!(c.rows("select count(*) from w"), "2");
    c.ok("commit");
    assert_eq!(c.rows("select count(*) from w"), "3");
    other.ok("drop view w");
    c.fails("execute p", "42P01");
}

#[test]
fn a_view_is_seen_once_its_transaction_commits() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key); insert into t values (1)",
    );
    c.ok("begin; create view w as select id from t; insert into t values (2)");
    assert_eq!(c.rows("select * from w order by 1"), "1;2");
    let drop_table = in_thread(Client::new(&db), "drop table t");
    moment();
    c.ok("commit");
    let refused = drop_table.join().unwrap().2.unwrap_err();
    assert_eq!(refused.state.code(), "2BP01", "{refused:?}");
    assert_eq!(c.rows("select * from w order by 1"), "1;2");
}

#[test]
fn many_views_under_one_name_end_in_an_error() {
    let db = database();
    let mut c = Client::with(&db, "create view v0 as select 1 as x");
    let double = |number: u32| {
        let before = number - 1;
        format!("create view v{number} as select a.x from v{before} a join v{before} b on a.x = b.x")
    };
    for number in 1..=11 {
        c.ok(&double(number));
    }
    c.fails(&double(12), "54001");
    c.ok("create view six as select 1 as x from v9 a, v9 b");
    c.fails("select * from six a, six b, six c, six d", "54001");
    assert_eq!(c.rows("select count(*) from v5"), "1");
    // A long chain is refused or answered, but ends nothing.
    let mut last = "v0".to_owned();
    for number in 0..100 {
        let (_, made) = c.message(&format!("create view c{number} as select x from {last}"));
        match made {
            Ok(()) => last = format!("c{number}"),
            Err(error) => {
                assert_eq!(error.state.code(), "54001");
                break;
            }
        }
    }
    assert_eq!(c.rows(&format!("select x from {last}")), "1");
}

#[test]
fn what_a_view_cannot_do_is_said() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v int); create view w as select id, v from t",
    );
    for sql in [
        "insert into w values (1, 1)",
        "insert into w values (1, 1) on conflict (id) do nothing",
        "update w set v = 2",
        "update w set v = 2 where id = 1",
        "delete from w",
        "delete from w where id = 1",
        "select * from w for update",
        "select * from w where id = 1 for share",
        "create temp view x as select 1",
        "create materialized view x as select 1",
        "create recursive view x (n) as select 1",
        "create view x with (security_barrier) as select 1 as y",
        "create view x as select id from t with check option",
        "create view x as select id from t with local check option",
        "create view x as select id from t for update",
        "create view x as table t",
        "alter view w alter column v set default 1",
        "alter view w rename column v to z",
        "alter table t rename to s",
        "alter table t rename column v to z",
        "drop materialized view x",
    ] {
        c.fails(sql, "0A000");
    }
    c.ok("comment on view w is 'seen'; comment on column w.v is 'value'");
    assert_eq!(
        c.rows("select obj_description('w'::regclass, 'pg_class'), col_description('w'::regclass, 2)"),
        "seen,value"
    );
    c.fails("comment on table w is 'no'", "42809");
    c.fails("comment on column w.nothing is 'no'", "42703");
    c.fails("create view x as select $1::int as y", "42P02");
    c.fails("copy w from stdin", "42809");
    c.fails("create view x as select ) as y", "42601");
    assert_eq!(
        c.rows("select pg_get_viewdef('w'), pg_get_viewdef('w'::regclass, true)"),
        " select id, v from public.t;, select id, v from public.t;"
    );
}
