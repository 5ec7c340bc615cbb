//! Foreign keys: what they refuse and bring about, when they are checked, and that no orphan is committed.

use crate::client::{Client, database, in_thread, moment, open_on};
use weft_base::SimDisk;

const FAMILY: &str = "create table p (id int primary key, v int);
    create table c (id int primary key, p int references p, n int);
    insert into p values (1, 1), (2, 2), (3, 3); insert into c values (10, 1), (20, 2), (30, null)";

#[test]
fn orphans_are_refused_in_postgresql_s_words() {
    let db = database();
    let mut c = Client::with(&db, FAMILY);
    for begin in ["", "begin; "] {
        for write in [
            "insert into c values (40, 9)",
            "insert into c select 40, 9",
            "update c set p = 9 where id = 10",
            "update c set p = p + 8 where p + 0 = 1",
            "insert into c values (10, 1) on conflict (id) do update set p = 9",
            "insert into c values (50, 1), (40, 9), (60, 2)",
        ] {
            let error = c.fails(&format!("{begin}{write}"), "23503");
            assert_eq!(
                error.message,
                "insert or update on table \"c\" violates foreign key constraint \"c_p_fkey\""
            );
            let fields = error.fields();
            assert_eq!(
                fields.detail.as_deref(),
                Some("Key (p)=(9) is not present in table \"p\".")
            );
            assert_eq!(fields.constraint.as_deref(), Some("c_p_fkey"));
            assert_eq!(fields.table.as_deref(), Some("c"));
            c.ok("rollback");
        }
        for write in [
            "delete from p where id = 1",
            "delete from p",
            "update p set id = 7 where id = 1",
            "update p set id = id + 10",
        ] {
            let error = c.fails(&format!("{begin}{write}"), "23503");
            assert_eq!(
                error.message,
                "update or delete on table \"p\" violates foreign key constraint \"c_p_fkey\" on table \"c\""
            );
            let detail = "Key (id)=(1) is still referenced from table \"c\".";
            assert_eq!(error.fields().detail.as_deref(), Some(detail));
            c.ok("rollback");
        }
        let copied = c
            .copy_in("copy c (id, p) from stdin", "70\t1\n80\t9\n")
            .unwrap_err();
        assert_eq!(copied.state.0, "23503");
    }
    c.ok("update p set v = 5 where id = 1; delete from p where id = 3; update p set id = id where id = 1");
    // What the statement leaves counts: another row may have taken the key.
    c.ok("insert into p values (7, 7); begin; delete from c where p = 1; update p set id = 8 where id = 1; rollback; delete from p where id = 7");
    c.ok("begin; delete from c where p = 2; delete from p where id = 2; insert into p values (2, 0); commit");
    assert_eq!(c.rows("select id, p from c order by id"), "10,1;30,NULL");
    c.ok("create procedure put() language sql as 'insert into p values (9, 9)'; call put()");
    c.fails(
        "create procedure orphan() language sql as 'insert into c values (90, 90, 90)'",
        "0A000",
    );
    c.fails(
        "create procedure bereave() language sql as 'delete from p where id = 1'",
        "0A000",
    );
}

#[test]
fn actions_change_the_rows_that_refer() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table p (id int primary key, u int unique, v int);
         create table c (id int primary key, p int references p on delete cascade on update cascade);
         create table g (id int primary key, c int references c (id) on delete set null, u int references p (u) on update cascade);
         create index on g (c);
         insert into p values (1, 11), (2, 22), (3, 33); insert into c values (10, 1), (11, 1), (20, 2);
         insert into g values (100, 10, 11), (110, 11, null), (200, 20, 22)",
    );
    assert_eq!(c.ok("update p set id = 5, u = 55 where id = 1"), "UPDATE 1");
    assert_eq!(c.rows("select * from c order by id"), "10,5;11,5;20,2");
    assert_eq!(
        c.rows("select * from g order by id"),
        "100,10,55;110,11,NULL;200,20,22"
    );
    // The row of g keeps p's row by its other key.
    c.fails("delete from p where id = 5", "23503");
    c.ok("update g set u = null where id = 100");
    assert_eq!(c.ok("delete from p where id = 5"), "DELETE 1");
    assert_eq!(c.rows("select * from c order by id"), "20,2");
    assert_eq!(
        c.rows("select * from g order by id"),
        "100,NULL,NULL;110,NULL,NULL;200,20,22"
    );
    // What an action writes is checked.
    c.ok("create table s (id int references p on delete set null, constraint filled check (id is not null))");
    c.ok("insert into s values (3)");
    c.fails("delete from p where id = 3", "23514");
    c.ok("create table r (id int references p on delete restrict deferrable initially deferred); insert into r values (2)");
    c.ok("begin");
    c.fails("delete from p where id = 2", "23503");
    c.ok("rollback");
}

#[test]
fn tables_refer_to_themselves_and_by_several_columns() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table e (id int primary key, boss int references e on delete cascade);
         insert into e values (2, 1), (1, null), (3, 2), (4, 3), (5, 5)",
    );
    c.fails("insert into e values (6, 7)", "23503");
    assert_eq!(c.ok("delete from e where id = 1"), "DELETE 1");
    assert_eq!(c.rows("select * from e"), "5,5");
    c.ok("delete from e where id = 5");
    c.ok("create table k (a int, b text, primary key (b, a));
          create table m (y text, x bigint, z int, foreign key (x, y) references k (a, b) on update cascade);
          insert into k values (1, 'a'), (2, 'b'); insert into m values ('a', 1, 1), ('zz', null, 2), (null, 9, 3)");
    let error = c.fails("insert into m values ('b', 1)", "23503");
    assert_eq!(
        error.fields().detail.as_deref(),
        Some("Key (x, y)=(1, b) is not present in table \"k\".")
    );
    c.fails("insert into m values ('a', 5000000000)", "23503");
    c.ok("update k set a = 7, b = 'q' where a = 1");
    assert_eq!(c.rows("select y, x from m where z = 1"), "q,7");
    assert_eq!(
        c.rows("select conname, conkey, confkey, confupdtype, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'm'::regclass"),
        "m_x_y_fkey,{2,1},{1,2},c,FOREIGN KEY (x, y) REFERENCES k(a, b) ON UPDATE CASCADE"
    );
}

#[test]
fn deferred_constraints_are_checked_at_the_end() {
    let db = database();
    let mut c = Client::with(
        &db,
        "create table p (id int primary key);
         create table c (id int primary key, p int constraint late references p deferrable initially deferred,
                         q int constraint soon references p deferrable)",
    );
    c.ok("begin; insert into c values (1, 1); insert into p values (1); commit");
    c.fails("insert into c values (2, 2)", "23503");
    c.ok("begin; insert into c values (2, 2)");
    let error = c.fails("commit", "23503");
    assert_eq!(error.fields().constraint.as_deref(), Some("late"));
    assert_eq!(c.rows("select id from c"), "1");
    // The row need not be there any more.
    c.ok("begin; insert into c values (2, 2); delete from c where id = 2; commit");
    c.ok("begin; delete from p; insert into c values (3, null); insert into p values (1); commit");
    c.ok("begin; delete from p");
    c.fails("commit", "23503");
    c.ok("begin; set constraints late immediate");
    c.fails("insert into c values (2, 2)", "23503");
    c.ok("rollback; begin; set constraints all deferred; insert into c values (4, null, 4)");
    c.fails("set constraints soon immediate", "23503");
    c.ok("rollback; begin; insert into c values (4, 4); savepoint a; insert into p values (4); set constraints all immediate; rollback to a");
    c.fails("commit", "23503");
    c.ok("begin; savepoint a; insert into c values (4, 4); rollback to a; commit");
    c.fails("begin; set constraints no_such immediate", "42704");
    c.ok("rollback");
    assert_eq!(c.rows("select id from c order by id"), "1;3");
}

#[test]
fn definitions_keep_what_depends_on_them() {
    let db = database();
    let mut c = Client::with(&db, FAMILY);
    for (statement, state) in [
        ("drop table p", "2BP01"),
        ("alter table p drop column id", "2BP01"),
        ("alter table p drop constraint p_pkey", "2BP01"),
        ("truncate p", "0A000"),
        ("create table x (a text references p)", "42804"),
        ("create table x (a int references p (v))", "42830"),
        (
            "create table x (a int, b int, foreign key (a, b) references p)",
            "42830",
        ),
        ("create table x (a int, foreign key (b) references p)", "42703"),
        ("create table x (a int references nothing)", "42P01"),
        ("create table x (a int references p match full)", "0A000"),
        (
            "create table x (a int references p on delete set default)",
            "0A000",
        ),
        (
            "alter table c add constraint c_p_fkey foreign key (n) references p",
            "42710",
        ),
    ] {
        c.fails(statement, state);
    }
    c.ok("insert into c values (40, null, 9)");
    let error = c.fails(
        "alter table c add constraint late foreign key (n) references p",
        "23503",
    );
    assert_eq!(
        error.fields().detail.as_deref(),
        Some("Key (n)=(9) is not present in table \"p\".")
    );
    c.ok("alter table c add constraint late foreign key (n) references p not valid");
    c.fails("insert into c values (50, null, 8)", "23503");
    c.fails("alter table c validate constraint late", "23503");
    c.ok("insert into p values (9); alter table c validate constraint late");
    c.ok("truncate p, c; alter table p add column w int; alter table p drop column v; alter table c drop column p");
    c.ok("insert into p values (1, 1); insert into c values (1, 1)");
    c.fails("delete from p", "23503");
    c.fails("insert into c values (2, 2)", "23503");
    assert_eq!(c.ok("truncate p cascade"), "TRUNCATE TABLE");
    assert_eq!(c.rows("select count(*) from c"), "0");
    c.ok("drop table p cascade; insert into c values (2, 2)");
    c.ok(
        "create table a (id int primary key); create table b (id int references a);
          alter table a add foreign key (id) references a; drop table a, b",
    );
}

#[test]
fn references_survive_a_crash() {
    let disk = SimDisk::new(11);
    let db = open_on(&disk);
    let mut c = Client::with(&db, FAMILY);
    drop((c, db));
    for _ in 0..2 {
        disk.crash();
        let db = open_on(&disk);
        c = Client::new(&db);
        c.fails("insert into c values (40, 9)", "23503");
        c.fails("delete from p where id = 2", "23503");
        c.ok("checkpoint");
        drop((c, db));
    }
}

#[test]
fn whoever_refers_waits_for_who_takes_the_key_away() {
    let db = database();
    let mut a = Client::with(&db, FAMILY);
    let b = Client::new(&db);
    // The parent goes: the child waits, and is refused.
    a.ok("begin; delete from p where id = 3");
    let waiting = in_thread(b, "insert into c values (40, 3)");
    moment();
    assert!(!waiting.is_finished());
    a.ok("commit");
    let (b, _, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().state.0, "23503");
    // The child comes first: the deletion waits, and is refused.
    a.ok("insert into p values (3, 3)");
    a.ok("begin; insert into c values (40, 3)");
    // A change of another column does not wait for the child.
    Client::new(&db).ok("update p set v = v + 1 where id = 3");
    let waiting = in_thread(b, "delete from p where id = 3");
    moment();
    assert!(!waiting.is_finished());
    a.ok("commit");
    let (_, _, result) = waiting.join().unwrap();
    assert_eq!(result.unwrap_err().state.0, "23503");
}

/// A small generator: the test must give the same statements for a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// One step of a random history over parents 0..8 and children 0..40: programs, transactions of several
/// messages, whole transactions in one message.
fn step(client: &mut Client, dice: &mut Dice) {
    let (p, q, c) = (dice.roll(8), dice.roll(8), dice.roll(40));
    let isolation = ["read committed", "repeatable read", "serializable"][dice.roll(3) as usize];
    let statements = [
        format!("insert into p values ({p}, 0) on conflict do nothing"),
        format!("delete from p where id = {p}"),
        format!("update p set v = v + 1 where id = {p}"),
        format!("update p set id = {q} where id = {p}"),
        format!("insert into c values ({c}, {p}) on conflict (id) do update set p = excluded.p"),
        format!("insert into c values ({c}, {p})"),
        format!("update c set p = {p} where id = {c}"),
        format!("delete from c where id = {c}"),
        format!("insert into d values ({c}, {p})"),
        format!("delete from d where id = {c}"),
        format!("delete from p where v % 2 = {}", p % 2),
    ];
    let mut pick = || statements[dice.roll(statements.len() as u64) as usize].clone();
    let message = match c % 4 {
        0 => pick(),
        1 => format!("begin; {}; {}; commit", pick(), pick()),
        _ => {
            let all = [pick(), pick(), pick()];
            let began = client.message(&format!("begin isolation level {isolation}")).1;
            if began
                .and_then(|()| all.iter().try_for_each(|sql| client.message(sql).1))
                .is_ok()
            {
                let _ = client.message("commit");
            }
            "rollback".to_owned()
        }
    };
    let _ = client.message(&message);
    let _ = client.message("rollback");
}

#[test]
fn no_history_commits_an_orphan() {
    let seeds = std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(4_u64);
    for seed in 0..seeds {
        let disk = SimDisk::new(seed);
        let db = open_on(&disk);
        Client::new(&db).ok(
            "create table p (id int primary key, v int);
             create table c (id int primary key, p int references p on delete cascade on update cascade);
             create table d (id int primary key, p int references p deferrable initially deferred); create index on d (p)",
        );
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mut client = Client::new(&db);
                scope.spawn(move || {
                    client.ok("set lock_timeout = '2s'");
                    let mut dice = Dice(seed * 100 + thread);
                    (0..60).for_each(|_| step(&mut client, &mut dice));
                });
            }
        });
        let mut client = Client::new(&db);
        let orphans = "select (select count(*) from c where p not in (select id from p)),
                              (select count(*) from d where p not in (select id from p))";
        assert_eq!(client.rows(orphans), "0,0", "seed {seed}");
        // Replay comes to the same digest, which opening compares.
        let rows = client.rows("select * from c order by id");
        drop((client, db));
        disk.crash();
        let mut client = Client::new(&open_on(&disk));
        assert_eq!(client.rows("select * from c order by id"), rows, "seed {seed}");
    }
}
