//! Statements that frameworks and dumps emit and that have no chapter of their own.

use crate::client::{Client, database, open_on};
use weft_base::SimDisk;

#[test]
fn set_config_is_set_as_an_expression() {
    let db = database();
    let mut c = Client::new(&db);
    assert_eq!(c.rows("select set_config('application_name', 'x', false)"), "x");
    assert_eq!(c.rows("show application_name"), "x");
    assert_eq!(
        c.rows("select set_config('my.a', '1', false) || current_setting('my.a'), set_config('jit', 'off', false)"),
        "11,off"
    );
    c.ok("begin; select set_config('application_name', 'y', true)");
    assert_eq!(c.rows("show application_name"), "y");
    c.ok("commit");
    assert_eq!(c.rows("show application_name"), "x");
    c.ok("begin; select set_config('application_name', 'z', false); rollback");
    assert_eq!(c.rows("show application_name"), "x");
    // Outside of a transaction a local setting ends with the statement.
    assert_eq!(c.rows("select set_config('application_name', 'w', true)"), "w");
    assert_eq!(c.rows("show application_name"), "x");
    c.ok("select set_config('application_name', null, false)");
    assert_eq!(c.rows("show application_name"), "");
    c.fails("select set_config('no_such', '1', false)", "42704");
    c.fails("select set_config('search_path', 'other', false)", "0A000");
}

#[test]
fn sequences_are_set_and_owned_after_a_dump_was_restored() {
    let disk = SimDisk::new(5);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, v int); create sequence \"T id_seq\" as integer;
         alter sequence \"T id_seq\" owned by public.t.id;
         alter table t alter column id set default nextval('\"T id_seq\"'::regclass)",
    );
    assert_eq!(
        c.rows("select pg_get_serial_sequence('t', 'id')"),
        "public.\"T id_seq\""
    );
    assert_eq!(c.rows("select setval('public.\"T id_seq\"', 41, true)"), "41");
    assert_eq!(c.rows("insert into t (v) values (1) returning id"), "42");
    assert_eq!(
        c.rows("select setval('\"T id_seq\"', 7, false), nextval('\"T id_seq\"')"),
        "7,7"
    );
    assert_eq!(c.rows("select currval('\"T id_seq\"')"), "7");
    assert_eq!(
        c.rows("select setval('\"T id_seq\"', (select max(id) from t)), lastval()"),
        "42,7"
    );
    c.fails("select setval('\"T id_seq\"', 0)", "22003");
    c.fails("select setval('no_such', 1)", "42P01");
    c.fails("alter sequence \"T id_seq\" increment by 2", "0A000");
    // Another session does not draw what was handed out before.
    assert_eq!(
        Client::new(&db).rows("insert into t (v) values (2) returning id"),
        "43"
    );
    drop((c, db));
    disk.crash();
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    c.ok("insert into t (v) values (3)");
    assert_eq!(c.rows("select count(*) from t where id > 43"), "1");
    c.ok(
        "alter sequence \"T id_seq\" owned by none; alter table t alter column id drop default; drop table t",
    );
    assert_eq!(c.rows("select count(*) from pg_class where relkind = 'S'"), "1");
}

#[test]
fn columns_of_text_become_wider_and_indexes_have_pattern_classes() {
    let disk = SimDisk::new(6);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table t (id int primary key, s varchar(3) unique check (s <> 'no'), n int); insert into t values (1, 'abc', 1)",
    );
    c.fails("insert into t values (2, 'abcd', 2)", "22001");
    c.ok("alter table t alter column s type varchar(150) using s::varchar(150)");
    c.ok("insert into t values (2, 'abcd', 2); alter table t alter s set data type text; alter table t alter n type int");
    c.ok("create index on t (s varchar_pattern_ops)");
    c.fails("alter table t alter column s type varchar(3)", "22001");
    c.fails("create index on t (s gin_trgm_ops)", "0A000");
    c.ok("alter table t alter column n type bigint");
    drop((c, db));
    disk.crash();
    let mut c = Client::new(&open_on(&disk));
    assert_eq!(c.rows("select id from t where s = 'abcd'"), "2");
    c.fails("insert into t values (3, 'abcd', 2)", "23505");
    c.fails("insert into t values (3, 'no', 2)", "23514");
    assert_eq!(
        c.ok("unlisten *; select pg_advisory_unlock_all()"),
        "UNLISTEN; SELECT 1"
    );
}
