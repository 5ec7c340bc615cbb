//! Documents in tables: stored, found by their values, and back after a crash and after a checkpoint.

use weft_base::SimDisk;

use crate::client::{Client, open_on};

#[test]
fn documents_come_back_and_are_keys() {
    let disk = SimDisk::new(52);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table d (b jsonb primary key, j json, l jsonb[]); \
         insert into d values \
         ('{\"b\": 1.50, \"a\": [null, \"\u{e4}\"]}', ' { \"x\" : 1.0 } ', array['[1]', null]::jsonb[]), \
         ('[]', null, '{}'), ('null', '\"\\u0000\"', null), ('[1, 2.0]', '[]', null)",
    );
    let rows = "select b, j, l from d order by b";
    let expected = "[],NULL,{};null,\"\\u0000\",NULL;[1, 2.0],[],NULL;\
                    {\"a\": [null, \"\u{e4}\"], \"b\": 1.50}, { \"x\" : 1.0 } ,{[1],NULL}";
    assert_eq!(c.rows(rows), expected);
    // Equal values are one key, whatever their scales.
    c.fails("insert into d values ('[1.00, 2]')", "23505");
    assert_eq!(c.rows("select j from d where b = '[1, 2]'"), "[]");
    c.ok("insert into d values ('[1.00, 2]') on conflict (b) do update set j = '1'");
    assert_eq!(c.rows("select j from d where b = '[1.0, 2.0]'"), "1");
    c.ok("update d set j = '[]' where b = '[1, 2]'");
    drop((c, db));
    disk.crash();
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    assert_eq!(c.rows(rows), expected);
    c.ok("checkpoint");
    drop((c, db));
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    assert_eq!(c.rows(rows), expected);
    assert_eq!(
        c.rows("select count(*) from d where b > '0' and b < '[9, 9, 9]'"),
        "1"
    );
    assert_eq!(c.rows("select b -> 'a' ->> 1 from d where b ? 'b'"), "\u{e4}");
}

#[test]
fn a_json_is_no_key_and_has_no_order() {
    let db = open_on(&SimDisk::new(53));
    let mut c = Client::with(&db, "create table d (id int primary key, j json)");
    for refused in [
        "create table x (j json primary key)",
        "create table x (j json unique)",
        "create index on d (j)",
        "alter table d add constraint u unique (j)",
    ] {
        c.fails(refused, "42704");
    }
    for refused in [
        "select j from d group by j",
        "select distinct j from d",
        "select distinct on (j) id from d",
        "select id from d order by j",
        "select j from d union select j from d",
        "select id from d where j = j",
        "select id from d where j in ('1')",
        "select array[j] = array[j] from d",
        "select array_position(array[j], j) from d",
        "select array_agg(distinct j) from d",
        "select json_agg(id order by j) from d",
        "select rank() over (order by j) from d",
        "select count(*) over (partition by j) from d",
        "select greatest(j, j) from d",
        "select nullif(j, j) from d",
        "select id from d join d e using (j)",
    ] {
        c.fails(refused, "42883");
    }
    assert_eq!(c.rows("select '1'::json union all select '1'::json"), "1;1");
}

#[test]
fn deep_documents_end_statements_and_nothing_else() {
    let db = open_on(&SimDisk::new(54));
    let mut c = Client::with(&db, "create table d (id int primary key, b jsonb)");
    for deep in [
        "insert into d values (1, repeat('[', 200000)::jsonb)",
        "select repeat('{\"a\":', 200000)::json",
        "select jsonb_build_array((repeat('[', 1000) || repeat(']', 1000))::jsonb)",
        "select jsonb_agg((repeat('[', 1000) || repeat(']', 1000))::jsonb)",
        "select jsonb_set('[0]', '{0}', (repeat('[', 1000) || repeat(']', 1000))::jsonb)",
    ] {
        c.fails(deep, "54001");
    }
    c.ok("insert into d values (1, (repeat('[', 1000) || repeat(']', 1000))::jsonb)");
    let same = "select count(*), max(length(b::text)) from d \
                where b = (repeat('[', 1000) || repeat(']', 1000))::jsonb";
    assert_eq!(c.rows(same), "1,2000");
}
