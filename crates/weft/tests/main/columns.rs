//! Columns beside the rows: a database that copies them answers as one that does not, whatever is written. So
//! does one whose rows leave memory whenever they can.

use std::path::Path;
use std::time::{Duration, Instant};

use weft::{Database, EngineConfig, Options};
use weft_base::{Prng, SimDisk};

use crate::client::{Client, open_with, options};

const TABLE: &str = "create table t (id int primary key, b bool, si smallint, i int, l bigint, r real, d float8, \
                     n numeric(12,2), w numeric(30,5), u numeric, s text, v varchar(20), c char(5), y bytea, \
                     dt date, ts timestamp, tz timestamptz, tm time, uu uuid, iv interval, a int[], js json, jb jsonb)";
const ROWS: usize = 6_000;
/// Of databases whose rows are on disk: each scan reads them one by one.
const COLD_ROWS: usize = 600;
/// For a copy to be made at a quarter of the time of a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn databases() -> (Database, Database) {
    let without = EngineConfig {
        column_bytes_max: 0,
        ..options().engine
    };
    let without = Options {
        engine: without,
        ..options()
    };
    let (one, other) = (SimDisk::new(1), SimDisk::new(2));
    (open_with(&one, options()), open_with(&other, without))
}

/// One whose rows leave memory whenever they can, and one without a bound. Neither copies columns.
fn with_and_without_memory(dir: &Path) -> (Database, Database) {
    let roomy = EngineConfig {
        column_bytes_max: 0,
        memory_bytes: 0,
        ..options().engine
    };
    let narrow = EngineConfig {
        memory_bytes: 1,
        memory_pause: Duration::from_millis(10),
        ..roomy.clone()
    };
    let with = |engine| Options { engine, ..options() };
    // Many checkpoints are written, and a simulated disk keeps every file.
    let one = Database::open(dir, with(narrow)).unwrap();
    (one, open_with(&SimDisk::new(2), with(roomy)))
}

/// Rows with a value of each column made from their number, a tenth of them NULL, some of them odd.
fn insert(from: usize, to: usize) -> String {
    format!(
        "insert into t select g, g % 3 = 0, (g % 100)::smallint, g * 7 % 1000, g * 1000000007::bigint, \
         case g % 50 when 0 then 'NaN' when 1 then '-0' else g / 7.0::real end, \
         case g % 40 when 0 then 'NaN' when 1 then '-Infinity' else g * 0.3::float8 end, \
         case when g % 60 = 0 then 'NaN' else g * 1.25 end, g * 123456789.12345, g / 7.0, \
         'text ' || g % 97, repeat('v', g % 20), 'c' || g % 9, decode(lpad(to_hex(g), 8, '0'), 'hex'), \
         date '2020-01-01' + g % 700, timestamp '2020-01-01' + g * interval '1 minute', \
         timestamptz '2020-01-01' + g * interval '1 hour', time '00:00' + g * interval '1 second', \
         ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid, g * interval '1 day', array[g, g % 5], \
         ('{{\"k\" :' || g % 7 || '.0}}')::json, jsonb_build_object('k', g % 7, 'l', array[g % 3, g]) \
         from generate_series({from}, {to}) g; \
         update t set b = null, i = null, n = null, s = null, y = null, uu = null, iv = null, a = null, \
         js = null, jb = null \
         where id % 10 = 5 and id between {from} and {to}"
    )
}

const QUERIES: [&str; 15] = [
    "select * from t order by id",
    "select count(*) from t",
    "select count(*), count(i), sum(i), min(i), max(i), sum(l), avg(si) from t",
    "select b, count(*), sum(n), sum(w), min(u), max(u) from t group by b order by b",
    "select r, count(*) from t where r > 800 or r = 'NaN' or r = 0 group by r order by r limit 20",
    "select d, id from t where d = 'NaN' or d < 0 order by d, id limit 50",
    "select n, id from t where n between 100 and 200 or n = 'NaN' order by n, id",
    "select s, count(*) from t where s like 'text 1%' group by s order by s",
    "select id, v, c, y from t where i = 7 and s is not null order by id",
    "select dt, count(*), min(ts), max(tz), min(tm) from t group by dt order by dt limit 30",
    "select id, uu, iv, a from t where i in (14, 21, 28) order by id",
    "select x.id, z.s from t x join t z on z.id = x.i where x.si = 42 order by 1",
    "select sum(i) over (order by id rows 3 preceding), id from t where si < 3 order by id",
    "select id from t where i is null and id > 3000 order by id",
    "select jb -> 'k', count(*), max(js ->> 'k') from t where jb @> '{\"l\": [1]}' group by jb -> 'k' order by 1",
];

fn shown(client: &mut Client, name: &str) -> u64 {
    client.rows(&format!("show weft.{name}")).parse().unwrap()
}

/// Reads all columns until they are copied.
fn wait_for_copies(client: &mut Client) {
    let begin = Instant::now();
    loop {
        let before = shown(client, "rows_from_slots");
        client.rows(QUERIES[0]);
        if shown(client, "rows_from_slots") < before + ROWS as u64 / 2 {
            assert!(shown(client, "column_regions") >= 3 && shown(client, "column_bytes") > 100_000);
            return;
        }
        assert!(begin.elapsed() < SOON, "no copy was made");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn compare(one: &mut Client, other: &mut Client) {
    for sql in QUERIES {
        let (found, expected) = (one.rows(sql), other.rows(sql));
        if found != expected {
            let at = found
                .bytes()
                .zip(expected.bytes())
                .take_while(|(a, b)| a == b)
                .count();
            let around = |text: &str| {
                text.get(at.saturating_sub(60)..(at + 60).min(text.len()))
                    .map(str::to_owned)
            };
            panic!("{sql}: {:?} instead of {:?}", around(&found), around(&expected));
        }
    }
}

#[test]
fn answers_do_not_depend_on_columns() {
    compare_while_written((TABLE, ROWS), &databases(), wait_for_copies, |one, other| {
        assert!(shown(one, "rows_from_columns") > 50_000);
        assert_eq!(shown(other, "rows_from_columns"), 0);
    });
}

#[test]
fn nor_do_those_of_a_table_without_an_index() {
    let table = TABLE.replace(" primary key", "");
    compare_while_written((&table, ROWS), &databases(), wait_for_copies, |_, _| ());
}

/// Rows that are read from disk, one by one as they are needed and in scans, are what they were.
#[test]
fn answers_do_not_depend_on_what_is_in_memory() {
    let evicted = |one: &mut Client, other: &mut Client| {
        assert!(shown(one, "thawed_rows") > 0);
        assert_eq!((shown(other, "thawed_rows"), shown(other, "cold_rows")), (0, 0));
    };
    let dir = tempfile::tempdir().unwrap();
    let databases = with_and_without_memory(dir.path());
    compare_while_written((TABLE, COLD_ROWS), &databases, wait_for_eviction, evicted);
}

fn wait_for_eviction(client: &mut Client) {
    let begin = Instant::now();
    while shown(client, "cold_rows") < COLD_ROWS as u64 / 4 {
        assert!(begin.elapsed() < SOON, "rows stay in memory");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Compares two databases while rows are inserted, changed and deleted; `wait` is for what only the first one
/// does, and `check` asks whether it did.
fn compare_while_written(
    (table, rows): (&str, usize),
    (with, without): &(Database, Database),
    wait: fn(&mut Client),
    check: impl Fn(&mut Client, &mut Client),
) {
    let (mut one, mut other) = (Client::with(with, table), Client::with(without, table));
    let (mut old, mut other_old) = (Client::new(with), Client::new(without));
    let both =
        |one: &mut Client, other: &mut Client, sql: &str| assert_eq!(one.ok(sql), other.ok(sql), "{sql}");
    for client in [&mut one, &mut other, &mut old, &mut other_old] {
        client.ok("set timezone to 'Europe/Zurich'");
    }
    both(&mut one, &mut other, &insert(1, rows));
    compare(&mut one, &mut other);
    wait(&mut one);
    compare(&mut one, &mut other);
    for client in [&mut old, &mut other_old] {
        client.ok("begin isolation level repeatable read; select count(*) from t");
    }
    let mut random = Prng::new(7);
    for round in 0..12 {
        let id = random.below(rows as u64);
        for sql in [
            format!(
                "update t set i = i + 1, s = s || '!', n = n + 1 where id between {id} and {}",
                id + 40
            ),
            format!("update t set id = -id where id between {id} and {}", id + 2),
            format!("delete from t where id % 1000 = {}", random.below(1000)),
            insert(rows + round * 10 + 1, rows + round * 10 + 10),
        ] {
            both(&mut one, &mut other, &sql);
        }
        if round % 4 == 3 {
            compare(&mut one, &mut other);
        }
        // A transaction's own rows beside the columns.
        if round % 4 == 1 {
            both(&mut one, &mut other, "begin");
            both(
                &mut one,
                &mut other,
                "update t set si = -si where id % 50 = 1; delete from t where id % 50 = 2",
            );
            compare(&mut one, &mut other);
            let end = if round == 1 { "rollback" } else { "commit" };
            both(&mut one, &mut other, end);
            compare(&mut one, &mut other);
        }
    }
    check(&mut one, &mut other);
    // Snapshots that are older than copies to come. (Rows whose versions they keep stay in memory.)
    both(&mut one, &mut other, "update t set i = 1 where id % 2 = 0");
    if rows == ROWS {
        wait(&mut one);
    }
    compare(&mut old, &mut other_old);
    compare(&mut one, &mut other);
    for client in [&mut old, &mut other_old] {
        client.ok("commit");
    }
    wait(&mut one);
    compare(&mut one, &mut other);
    // Another layout, no rows, other rows.
    for sql in [
        "alter table t add column z int default 5",
        "alter table t drop column z",
        "truncate t",
    ] {
        both(&mut one, &mut other, sql);
        compare(&mut one, &mut other);
    }
    both(&mut one, &mut other, &insert(100, 200));
    compare(&mut one, &mut other);
}
