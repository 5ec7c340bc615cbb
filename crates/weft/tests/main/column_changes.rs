//! Columns that come and go, and NOT NULL, in transactions, beside writers and through crashes.

use std::time::Duration;

use weft::Database;
use weft_base::{Prng, SimDisk};

use crate::client::{Client, Results, database, in_thread, moment, open_on, open_with, options};

#[test]
fn columns_that_a_transaction_changes_can_be_used_in_it() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int, k int)");
    c.ok("insert into t values (1, 1, 10), (2, 2, 20); create index t_k on t (k)");
    let mut other = Client::with(&db, "begin isolation level repeatable read");
    assert_eq!(other.rows("select * from t order by id"), "1,1,10;2,2,20");

    c.ok("begin; alter table t drop column v, add column w int default 7, add column x text");
    assert_eq!(c.rows("select * from t order by id"), "1,10,7,NULL;2,20,7,NULL");
    assert_eq!(c.rows("select w from t where id = 1"), "7");
    assert_eq!(c.rows("select id from t where k = 20"), "2");
    assert_eq!(c.rows("select sum(w) from t where k > 0 and w < 8"), "14");
    c.ok("update t set w = 8, x = 'first' where id = 1");
    c.ok("update t set w = w + 1 where w > 7");
    c.ok("insert into t (id, k) values (3, 30); insert into t (id) select 4");
    c.ok("insert into t (id, k) values (3, 31) on conflict (id) do update set x = 'third'");
    c.ok("delete from t where id = 2");
    let rows = "1,10,9,first;3,30,7,third;4,NULL,7,NULL";
    assert_eq!(c.rows("select * from t order by id"), rows);
    c.ok("savepoint s; update t set w = null where id = 3; rollback to s");
    c.ok("alter table t alter w set not null; create index t_w on t (w)");
    assert_eq!(c.rows("select id from t where w = 9"), "1");
    c.ok("commit");
    assert_eq!(other.rows("select * from t order by id"), "1,1,10;2,2,20");
    other.ok("commit");
    assert_eq!(other.rows("select * from t order by id"), rows);
    assert_eq!(c.rows("select id from t where w = 9 and k = 10"), "1");
    c.fails("insert into t (id, w) values (5, null)", "23502");

    // What the transaction would leave is checked when it commits; then nothing of it is left.
    c.ok("begin; alter table t add column y int; update t set y = 1 where id <> 3");
    c.fails("alter table t alter y set not null; commit", "23502");
    c.fails("select y from t", "42703");
    assert_eq!(c.rows("select * from t order by id"), rows);
}

#[test]
fn columns_that_a_transaction_cannot_change_or_use() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, v int)");
    c.ok("insert into t values (1, 1), (2, 2)");
    c.ok("begin; update t set v = 3 where id = 1");
    c.fails("alter table t add column w int", "0A000");
    c.ok("rollback");
    // Nothing names its rows before the commit.
    for sql in [
        "select * from t",
        "insert into t select 3",
        "update t set v = 3 where v > 0",
        "delete from t",
    ] {
        for change in ["drop column id", "drop constraint t_pkey"] {
            c.ok(&format!("begin; alter table t {change}"));
            c.fails(sql, "0A000");
            c.ok("rollback");
        }
    }
    c.ok("alter table t drop column id");
    c.ok("update t set v = v + 1 where v = 1");
    assert_eq!(c.rows("select * from t order by v"), "2;2");
    c.ok("drop table t; create table t (id int primary key, v int); insert into t values (1, 1)");
    // A table without other rows than the transaction's later ones is free to use.
    c.ok("begin; truncate t; alter table t add column w int default 5; insert into t values (1, 1); commit");
    c.ok("begin; create table u (id int primary key); alter table u add column w int");
    c.ok("insert into u values (1, 2); update u set w = w + 1; commit");
    assert_eq!(c.rows("select * from t, u"), "1,1,5,1,3");
    // Going back to before the change frees it too.
    c.ok("begin; savepoint s; alter table t drop column w");
    c.ok("rollback to s; update t set w = 6 where id = 1; commit");
    assert_eq!(c.rows("select w from t"), "6");
}

/// Columns come and go, and are checked for NULLs, while others write and read; writers hardly wait.
#[test]
fn columns_change_while_others_write() {
    const ROWS: i64 = 20_000;
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, a int, b int default 1)");
    c.ok(&format!(
        "insert into t select g, 0, 1 from generate_series(1, {ROWS}) g"
    ));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let sum = std::thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut c = Client::new(db);
                let mut number = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    number += 1;
                    let id = (number * 7_919 + writer) % ROWS + 1;
                    c.ok(&format!("update t set a = a + 1 where id = {id}"));
                    if number % 50 == 0 {
                        let all = c.rows("select count(*), sum(b), min(b) from t");
                        assert_eq!(all, format!("{ROWS},{ROWS},1"));
                    }
                }
                number
            })
        });
        for round in 0..5 {
            c.ok(&format!(
                "alter table t add column c{round} int default {round} not null"
            ));
            c.ok("alter table t alter b set not null; alter table t alter b drop not null");
            c.ok(&format!("update t set c{round} = c{round} + 1 where id <= 100"));
            let expected = format!("{}", ROWS * round + 100);
            assert_eq!(c.rows(&format!("select sum(c{round}) from t")), expected);
            c.ok(&format!("create index t_c on t (c{round}, id)"));
            let found = c.rows(&format!("select count(*) from t where c{round} = {round}"));
            assert_eq!(found, format!("{}", ROWS - 100));
            let dropped = (round + 3) % 5;
            c.ok(&format!("alter table t drop column if exists c{dropped}"));
            c.ok("drop index if exists t_c");
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.map(|writer| writer.join().unwrap()).iter().sum::<i64>()
    });
    assert_eq!(c.rows("select sum(a) from t"), sum.to_string());
    let engine = db.engine();
    let snapshot = engine.snapshot();
    assert_eq!(
        engine.store().verify_digest(&snapshot).unwrap(),
        snapshot.digest()
    );
}

/// A NULL that is written while rows are searched for NULLs ends the statement, and nothing else.
#[test]
fn nulls_that_appear_meanwhile_are_found() {
    let db = database();
    let mut c = Client::with(&db, "create table t (id int primary key, b int)");
    c.ok("insert into t select g, g from generate_series(1, 3000) g");
    // SET NOT NULL waits for this transaction, whose row has a NULL.
    let mut other = Client::with(&db, "begin; update t set b = null where id = 7");
    let alter = in_thread(Client::new(&db), "alter table t alter b set not null");
    moment();
    assert!(!alter.is_finished());
    other.ok("commit");
    assert_eq!(alter.join().unwrap().2.unwrap_err().state.code(), "23502");
    c.ok("insert into t values (0, null); delete from t where id = 0");
    c.fails("alter table t alter b set not null", "23502");
    c.ok("begin; update t set b = 7 where id = 7; alter table t alter b set not null; commit");
    c.fails("insert into t values (0, null)", "23502");
    c.ok("alter table t alter b drop not null; insert into t values (0, null)");
    c.ok("begin; alter table t alter id set not null; delete from t where id = 0");
    c.ok("alter table t alter b set not null; update t set b = 5 where id = 1");
    c.fails("update t set b = null where id = 1", "23502");
    c.ok("rollback; insert into t values (-1, null)");
}

/// Statements that change columns and rows, the same for every seed.
struct Statements(Prng);

impl Statements {
    fn one_of(&mut self, words: &[&'static str]) -> &'static str {
        words[self.0.below(words.len() as u64) as usize]
    }

    fn change(&mut self) -> String {
        let column = self.one_of(&["a", "b", "c", "d"]);
        let what = [
            "int default 7",
            "text default 'filled'",
            "int",
            "bigint not null default 5",
            "int not null",
            "numeric(6, 2) default 1.5",
        ];
        match self.0.below(10) {
            0..=3 => format!("alter table t add column {column} {}", self.one_of(&what)),
            4..=6 => format!("alter table t drop column {column}"),
            7 => format!(
                "alter table t alter {column} {} not null",
                self.one_of(&["set", "drop"])
            ),
            8 => format!("create index t_{column} on t ({column})"),
            _ => format!(
                "alter table t drop column if exists {column}, add column {column} {}",
                self.one_of(&what)
            ),
        }
    }

    fn write(&mut self) -> String {
        let (column, id) = (self.one_of(&["a", "b", "c", "d"]), self.0.below(40));
        match self.0.below(6) {
            0 | 1 => format!(
                "insert into t (id) select g from generate_series({id}, {id} + 5) g on conflict do nothing"
            ),
            2 | 3 => format!("update t set {column} = '{}' where id = {id}", self.0.below(9)),
            4 => format!("update t set {column} = '3' where id < {id}"),
            _ => format!("delete from t where id = {id}"),
        }
    }

    fn next(&mut self) -> String {
        match self.0.below(10) {
            0..=2 => self.change(),
            3..=8 => self.write(),
            _ => format!(
                "begin; {}; {}; {}; commit",
                self.change(),
                self.write(),
                self.write()
            ),
        }
    }
}

/// What a statement did: `None` if it is not known whether it was done.
fn outcome(c: &mut Client, sql: &str) -> Option<Result<(), &'static str>> {
    let mut results = Results::default();
    let mut done = c.0.execute_simple(sql, &mut results);
    if done.is_ok() {
        done = c.0.gate().wait();
    }
    let failed = done.map_err(|error| error.state.0);
    if failed.is_err() {
        let _ = c.0.execute_simple("rollback", &mut results);
    }
    match failed {
        Err("58030") => None,
        known => Some(known),
    }
}

/// Columns and rows.
fn state(c: &mut Client) -> String {
    let columns = "select column_name, is_nullable from information_schema.columns where table_name = 't'";
    let (columns, rows) = (c.rows(columns), c.rows("select * from t order by id"));
    format!("{columns}\n{rows}")
}

fn verify(db: &Database) {
    let engine = db.engine();
    let snapshot = engine.snapshot();
    assert_eq!(
        engine.store().verify_digest(&snapshot).unwrap(),
        snapshot.digest()
    );
}

/// Whatever was acknowledged is there after a crash, and what was not is there as a whole or not at all; the
/// same database without crashes says what that is.
#[test]
fn crashes_keep_columns_and_rows() {
    let seeds: u64 = std::env::var("WEFT_SEEDS").map_or(30, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut options = options();
        options.engine.memory_bytes = [1, 64 << 20][seed as usize % 2];
        options.engine.memory_pause = Duration::from_micros(100);
        let mut disk = SimDisk::new(seed);
        let model = database();
        let mut m = Client::with(&model, "create table t (id int primary key, a int, b text)");
        let mut statements = Statements(Prng::new(seed));
        drop(Client::with(
            &open_with(&disk, options.clone()),
            "create table t (id int primary key, a int, b text)",
        ));
        for round in 0..5 {
            let db = open_with(&disk, options.clone());
            verify(&db);
            let mut c = Client::new(&db);
            assert_eq!(state(&mut c), state(&mut m), "seed {seed}, round {round}");
            disk.cut_power_at(disk.op_count() + 5 + statements.0.below(120));
            let mut in_doubt = None;
            for _ in 0..40 {
                if statements.0.chance(1, 8) && db.engine().checkpoint().is_err() {
                    break;
                }
                let sql = statements.next();
                match outcome(&mut c, &sql) {
                    Some(known) => assert_eq!(Some(known), outcome(&mut m, &sql), "seed {seed}: {sql}"),
                    None => {
                        in_doubt = Some(sql);
                        break;
                    }
                }
            }
            drop((c, db));
            disk = disk.fork(seed);
            disk.crash();
            disk.cut_power_at(u64::MAX);
            if let Some(sql) = in_doubt {
                let db = open_with(&disk, options.clone());
                let found = state(&mut Client::new(&db));
                if found != state(&mut m) {
                    let _ = outcome(&mut m, &sql);
                    assert_eq!(found, state(&mut m), "seed {seed}: {sql}");
                }
            }
        }
    }
}

/// What constraints and types read of rows that were written before the columns changed.
#[test]
fn constraints_of_added_columns_are_tested_on_rows_of_earlier_layouts() {
    let disk = SimDisk::new(12);
    let db = open_on(&disk);
    let mut c = Client::with(
        &db,
        "create table p (id int primary key); insert into p values (1); \
         create table t (a int, id int primary key, v varchar(3)); insert into t values (0, 1, 'one'), (0, 2, 'two')",
    );
    c.fails("alter table t add column n int default 7 check (n = 8)", "23514");
    c.fails("alter table t add column n int default 9 references p", "23503");
    c.ok("alter table t drop column a, add column n int default 1");
    c.fails("alter table t add check (v <> 'two')", "23514");
    c.ok("alter table t add check (n = 1 and v <> 'three'), add foreign key (n) references p");
    c.fails("delete from p", "23503");
    c.ok("alter table t alter v type text");
    assert_eq!(c.rows("select * from t order by id"), "1,one,1;2,two,1");
    c.ok("update t set v = 'a longer one' where id = 1; insert into t values (3, 'third')");
    c.fails("update t set v = 'three' where id = 2", "23514");
    c.fails("update t set n = 2 where id = 2", "23514");
    let rows = "1,a longer one,1;2,two,1;3,third,1";
    assert_eq!(c.rows("select * from t order by id"), rows);
    drop((c, db));
    disk.crash();
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    assert_eq!(c.rows("select * from t order by id"), rows);
    c.fails("delete from p", "23503");
    c.ok("delete from t; delete from p");
}

#[test]
fn rows_of_a_retyped_column_come_back() {
    let disk = SimDisk::new(21);
    let db = open_on(&disk);
    let mut c = Client::new(&db);
    c.ok("create table p (id int primary key); insert into p values (1), (2)");
    c.ok("create table t (id int primary key, p int references p, v text unique, w int default 4)");
    c.ok("insert into t select g, 1 + g % 2, 'v' || g, g * 10 from generate_series(1, 3000) g");
    c.ok("checkpoint; update t set w = 5 where id = 7; create index t_w on t (w)");
    let mut reader = Client::new(&db);
    reader.ok("begin isolation level repeatable read");
    assert_eq!(reader.rows("select w from t where id = 7"), "5");
    c.ok("alter table t alter column w type numeric(10,1) using w / 4.0, alter v type varchar(8)");
    assert_eq!(reader.rows("select w from t where id = 7"), "5");
    assert_eq!(reader.rows("select sum(w) from t"), "45014935");
    reader.ok("commit");
    let sum = c.rows("select sum(w), count(distinct v), max(v) from t");
    assert_eq!(c.rows("select id from t where w = 1.3"), "7");
    c.fails("insert into t values (3001, 1, 'v9', 1)", "23505");
    c.fails("insert into t values (3001, 3, 'w', 1)", "23503");
    c.fails("alter table t alter column p type bigint", "0A000");
    c.fails("alter table p alter column id type bigint", "0A000");
    // Whoever waits for the table's lock goes on with the new definition.
    c.ok("begin; alter table t alter column w type text using w::text || '!'");
    let update = in_thread(Client::new(&db), "update t set v = 'seven' where id = 7");
    moment();
    assert!(!update.is_finished());
    c.ok("commit");
    update.join().unwrap().2.unwrap();
    assert_eq!(c.rows("select w, v from t where id = 7"), "1.3!,seven");
    c.fails(
        "begin isolation level repeatable read; alter table t alter column v type text using v || 'x'",
        "0A000",
    );
    c.ok("rollback");
    drop((c, reader, db));
    disk.crash();
    let mut c = Client(open_on(&disk).session());
    assert_eq!(c.rows("select w, v from t where id = 7"), "1.3!,seven");
    assert_eq!(c.rows("select id from t where w = '1.3!'"), "7");
    assert_eq!(
        c.rows("select sum(replace(w, '!', '')::numeric(10,1)), count(distinct v), max(v) from t"),
        sum
    );
}
