//! Comments on objects: part of their transaction, of the log and of checkpoints.

use weft_base::SimDisk;

use crate::client::{Client, database, open_on};

const SCHEMA: &str = "create table t (id int primary key, a int, b int, c int check (c > 0));
    create sequence s; create index t_a on t (a);
    create procedure p(x int) language sql as $$ select 1 $$";

fn comments(c: &mut Client) -> String {
    c.rows(
        "select description from pg_description where classoid <> 'pg_namespace'::regclass
         and classoid <> 'pg_extension'::regclass order by 1",
    )
}

#[test]
fn a_comment_is_part_of_its_transaction() {
    let db = database();
    let mut c = Client::with(&db, SCHEMA);
    c.ok("begin; comment on table t is 'one'");
    assert_eq!(comments(&mut c), "one");
    assert_eq!(comments(&mut Client::new(&db)), "");
    c.ok("rollback");
    assert_eq!(comments(&mut c), "");
    c.ok("begin; savepoint a; comment on table t is 'two'; rollback to a; comment on column t.b is 'three'; commit");
    assert_eq!(comments(&mut Client::new(&db)), "three");
    c.ok("begin; alter table t drop column b; rollback");
    assert_eq!(comments(&mut c), "three");
}

#[test]
fn comments_survive_a_restart() {
    let disk = SimDisk::new(5);
    {
        let db = open_on(&disk);
        let mut c = Client::with(&db, SCHEMA);
        c.ok("comment on table t is 'table'; comment on column t.b is 'column'; comment on index t_a is 'index'");
        c.ok("comment on schema public is null");
        c.ok("checkpoint");
        c.ok("comment on sequence s is 'sequence'; comment on constraint t_pkey on t is 'key'");
        c.ok("comment on constraint t_c_check on t is 'check'; comment on procedure p(int) is 'procedure'");
        c.ok("alter table t rename to u; alter table u drop column a");
    }
    disk.crash();
    for _ in 0..2 {
        let db = open_on(&disk);
        let mut c = Client::new(&db);
        assert_eq!(comments(&mut c), "check;column;key;procedure;sequence;table");
        assert_eq!(
            c.rows("select col_description('u'::regclass, 2), obj_description('u'::regclass, 'pg_class')"),
            "column,table"
        );
        assert_eq!(c.rows("select obj_description(2200, 'pg_namespace')"), "NULL");
        c.ok("checkpoint");
    }
}
