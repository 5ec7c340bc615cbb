//! Aggregates on packed codes: random aggregations answer as they do over rows, whatever was written, before
//! and while they run, in transactions with changes of their own, and for prepared parameters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft::{Database, EngineConfig, Options};
use weft_base::{Prng, SimDisk};

use crate::client::{Client, open_with, options};

const TABLE: &str = "create table t (id int primary key, i int, l bigint, s smallint, n numeric(12,2), \
                     g text, r int, d date, b bool, c char(4), w bigint, u numeric)";
/// More than what one thread scans, which is not worth aggregating on codes.
const ROWS: usize = 24_000;
const SOON: Duration = Duration::from_secs(60);

/// Rows of which some values are NULL; `g` and `b` are dictionaries, `r` runs, `w` as wide as a sum can be.
fn insert(from: usize, to: usize) -> String {
    format!(
        "insert into t select g, case when g % 11 <> 0 then g * 7 % 1000 - 300 end, g * 1000000007::bigint, \
         (g % 100 - 50)::smallint, case when g % 13 <> 0 then (g * 37 % 5000) * 0.25 end, \
         case when g % 17 <> 0 then 'group ' || g % 100 * 7 % 5 end, g / 700, date '2020-01-01' + g % 40, \
         case when g % 19 <> 0 then g % 3 = 0 end, 'c' || g % 3, 9223372036854775807 - g, g / 7.0 \
         from generate_series({from}, {to}) g"
    )
}

const AGGREGATES: [&str; 24] = [
    "count(*)", "count(i)", "count(u)", "sum(i)", "avg(i)", "min(i)", "max(i)", "sum(l)", "avg(l)", "max(l)",
    "sum(s)", "avg(s)", "sum(n)", "avg(n)", "min(n)", "max(n)", "min(g)", "max(g)", "min(d)", "max(d)",
    "sum(w)", "min(c)", "count(b)", "sum(r)",
];
/// Which are computed from rows that were decoded, and so are all others beside them.
const DECODED: [&str; 5] = [
    "sum(i + 1)",
    "count(distinct s)",
    "sum(u)",
    "count(*) filter (where b)",
    "max(u)",
];
const EXACT: [&str; 16] = [
    "i > 250",
    "i between -100 and 310",
    "i is not null",
    "n <= 500.25",
    "n between 100.5 and 700",
    "n < 3.14159",
    "g = 'group 1'",
    "g in ('group 0', 'group 4', 'none')",
    "d >= '2020-01-15'",
    "r = 7 or r = 9 or r = 11",
    "c = 'c1'",
    "s in (1, 2, 3, 40)",
    "g > 'group 1' and g < 'group 5'",
    "l >= 1000000007000",
    "i = 100",
    "n > 400",
];
/// Which filters on codes do not decide.
const INEXACT: [&str; 6] = [
    "i <> 9",
    "g like '%1'",
    "b",
    "i is null",
    "n = 100 or r = 3",
    "i + 0 > 100",
];
const KEYS: [&str; 9] = ["g", "b", "r", "s", "d", "c", "i", "n", "s % 3"];

fn pick<'a>(random: &mut Prng, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// Aggregates, with the predicates and keys: most of them can be computed on codes.
fn query(random: &mut Prng) -> String {
    let mut items = Vec::new();
    for _ in 0..1 + random.below(5) {
        items.push(pick(random, &AGGREGATES));
    }
    if random.below(8) == 0 {
        items.push(pick(random, &DECODED));
    }
    let mut predicates = Vec::new();
    for _ in 0..random.below(3) {
        predicates.push(pick(random, &EXACT));
    }
    if random.below(6) == 0 {
        predicates.push(pick(random, &INEXACT));
    }
    let mut keys = Vec::new();
    for _ in 0..[0, 1, 1, 2, 2, 3][random.below(6) as usize] {
        keys.push(pick(random, &KEYS));
    }
    let shown: Vec<&str> = keys.iter().chain(&items).copied().collect();
    let mut sql = format!("select {} from t", shown.join(", "));
    if !predicates.is_empty() {
        let all: Vec<String> = predicates
            .iter()
            .map(|predicate| format!("({predicate})"))
            .collect();
        sql += &format!(" where {}", all.join(" and "));
    }
    if !keys.is_empty() {
        let places: Vec<String> = (1..=keys.len()).map(|place| place.to_string()).collect();
        sql += &format!(" group by {}", keys.join(", "));
        if random.below(5) == 0 {
            sql += " having count(*) > 100";
        }
        sql += &format!(" order by {}", places.join(", "));
    }
    sql
}

/// One that copies columns, with two threads for queries, and one that does not, with one.
fn databases() -> (Database, Database) {
    let without = EngineConfig {
        column_bytes_max: 0,
        ..options().engine
    };
    let without = Options {
        engine: without,
        ..options()
    };
    let with = Options {
        query_threads: 2,
        ..options()
    };
    let (one, other) = (SimDisk::new(1), SimDisk::new(2));
    (open_with(&one, with), open_with(&other, without))
}

fn shown(client: &mut Client, name: &str) -> u64 {
    client.rows(&format!("show weft.{name}")).parse().unwrap()
}

/// Reads all columns until they are copied.
fn wait_for_copies(client: &mut Client) {
    let begin = Instant::now();
    loop {
        let before = shown(client, "rows_from_slots");
        client.rows("select * from t where id + 0 < 0");
        if shown(client, "rows_from_slots") < before + ROWS as u64 / 2 {
            return;
        }
        assert!(begin.elapsed() < SOON, "no copy was made");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn compare(random: &mut Prng, rounds: usize, one: &mut Client, other: &mut Client) {
    for _ in 0..rounds {
        let sql = query(random);
        assert_eq!(one.rows(&sql), other.rows(&sql), "{sql}");
    }
}

#[test]
fn aggregations_on_codes_are_those_of_rows() {
    let (with, without) = databases();
    let (mut one, mut other) = (Client::with(&with, TABLE), Client::with(&without, TABLE));
    let (mut old, mut other_old) = (Client::new(&with), Client::new(&without));
    let mut random = Prng::new(11);
    let both =
        |one: &mut Client, other: &mut Client, sql: &str| assert_eq!(one.ok(sql), other.ok(sql), "{sql}");
    both(&mut one, &mut other, &insert(1, ROWS));
    wait_for_copies(&mut one);
    compare(&mut random, 25, &mut one, &mut other);
    let on_codes = shown(&mut one, "rows_aggregated_on_codes");
    assert!(on_codes > 3 * ROWS as u64, "{on_codes} rows on codes");
    let nothing = "select count(*), sum(w), max(l) from t where i > 5000";
    assert_eq!(one.rows(nothing), "0,NULL,NULL");
    for client in [&mut old, &mut other_old] {
        client.ok("begin isolation level repeatable read; select count(*) from t");
    }
    for round in 0..6 {
        let (id, step) = (random.below(ROWS as u64), random.below(200) + 1);
        for sql in [
            format!(
                "update t set i = i + 1, n = n + 1, g = g || '!' where id between {id} and {}",
                id + 300
            ),
            format!(
                "update t set b = not b, r = -r, s = 7 where id % {} = {}",
                step + 100,
                step
            ),
            format!("delete from t where id % 997 = {step}"),
            insert(ROWS + round * 10 + 1, ROWS + round * 10 + 10),
        ] {
            both(&mut one, &mut other, &sql);
        }
        compare(&mut random, 4, &mut one, &mut other);
        // A transaction's own changes.
        if round % 3 == 1 {
            let change =
                "begin; update t set i = 1, n = 'NaN' where id % 500 = 1; delete from t where id % 500 = 2";
            both(&mut one, &mut other, change);
            compare(&mut random, 4, &mut one, &mut other);
            both(
                &mut one,
                &mut other,
                if round == 1 { "rollback" } else { "commit" },
            );
        }
        compare(&mut random, 4, &mut old, &mut other_old);
    }
    for client in [&mut old, &mut other_old] {
        client.ok("commit");
    }
    wait_for_copies(&mut one);
    compare(&mut random, 15, &mut one, &mut other);
    both(&mut one, &mut other, "truncate t");
    compare(&mut random, 5, &mut one, &mut other);
}

/// While others write, a snapshot's aggregates on codes are those of its decoded rows.
#[test]
fn aggregations_on_codes_are_those_of_their_snapshot() {
    let db = Arc::new(open_with(&SimDisk::new(3), options()));
    let mut reader = Client::with(&db, TABLE);
    reader.ok(&insert(1, ROWS));
    wait_for_copies(&mut reader);
    let ends = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let (db, ends) = (Arc::clone(&db), Arc::clone(&ends));
        move || {
            let (mut client, mut random) = (Client::new(&db), Prng::new(5));
            let mut next = ROWS;
            while !ends.load(Ordering::Relaxed) {
                let id = random.below(ROWS as u64);
                client.ok(&match random.below(4) {
                    0 => format!("delete from t where id between {id} and {}", id + 3),
                    1 => insert(next + 1, next + 20),
                    _ => format!(
                        "update t set i = i + 1, n = n - 1, g = 'group 9' where id between {id} and {}",
                        id + 9
                    ),
                });
                next += 20;
            }
        }
    });
    let mut random = Prng::new(6);
    let begin = Instant::now();
    let mut compared = 0;
    while begin.elapsed() < Duration::from_secs(1) || compared < 10 {
        let sql = query(&mut random);
        let decoded = match sql.split_once(" where ") {
            Some((before, behind)) => format!("{before} where id + 0 > 0 and {behind}"),
            None => sql.replacen(" from t", " from t where id + 0 > 0", 1),
        };
        reader.ok("begin isolation level repeatable read");
        assert_eq!(reader.rows(&sql), reader.rows(&decoded), "{sql}");
        reader.ok("commit");
        compared += 1;
    }
    ends.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(shown(&mut reader, "rows_aggregated_on_codes") > ROWS as u64);
}

/// A kept plan decides anew for each value of its parameters.
#[test]
fn parameters_decide_whether_codes_do() {
    let (with, without) = databases();
    let (mut one, mut other) = (Client::with(&with, TABLE), Client::with(&without, TABLE));
    for client in [&mut one, &mut other] {
        client.ok(&insert(1, ROWS));
        client.ok(
            "prepare q (int, numeric) as select g, count(*), sum(n), min(i) from t where i < $1 and n < $2 \
                   group by g order by g",
        );
    }
    wait_for_copies(&mut one);
    for arguments in [
        "100, 400.25",
        "100, 400.255",
        "null, 1",
        "0, null",
        "-500, 1",
        "2000000, 99999999999",
    ] {
        let sql = format!("execute q ({arguments})");
        assert_eq!(one.rows(&sql), other.rows(&sql), "{sql}");
        assert_eq!(one.rows(&sql), other.rows(&sql), "{sql}");
    }
    assert!(shown(&mut one, "rows_aggregated_on_codes") > 0);
}

#[test]
fn explain_shows_what_is_computed_on_codes() {
    let db = open_with(&SimDisk::new(4), options());
    let mut client = Client::with(&db, TABLE);
    client.ok(&insert(1, ROWS));
    let mut plan = |sql: &str| client.rows(&format!("explain {sql}"));
    let shown = plan("select g, count(*), avg(n) from t where i between 1 and 9 group by g");
    assert!(
        shown.contains("AggregateOnCodes: aggregate on codes, by=[g], of=[count(*), sum(n)]"),
        "{shown}"
    );
    for sql in [
        "select sum(i + 1) from t",
        "select sum(u) from t",
        "select count(distinct i) from t",
        "select count(*) from t where g like '%1'",
        "select count(*) from t where i < 9 or n < 3",
        "select s % 3, count(*) from t group by 1",
        "select u, count(*) from t group by u",
        "select count(*) from t group by rollup (g)",
        "select count(*) filter (where b) from t",
    ] {
        let shown = plan(sql);
        let suits_a_part = sql.contains("rollup");
        assert!(suits_a_part || !shown.contains("on codes"), "{sql}: {shown}");
    }
}

/// Sums on codes end where PostgreSQL's do.
#[test]
fn sums_on_codes_overflow_as_others_do() {
    let (db, _) = databases();
    let mut client = Client::with(&db, TABLE);
    client.ok(&insert(1, ROWS));
    wait_for_copies(&mut client);
    let before = shown(&mut client, "rows_aggregated_on_codes");
    // The sum of bigint is a numeric: more than 64 bits are no overflow.
    assert_eq!(client.rows("select sum(w), avg(i) from t"), {
        let (rows, most) = (ROWS as i128, i128::from(i64::MAX));
        let ids = rows * (rows + 1) / 2;
        let values: Vec<i128> = (1..=rows)
            .filter(|g| g % 11 != 0)
            .map(|g| g * 7 % 1000 - 300)
            .collect();
        let average = weft_types::Numeric::from_i128(values.iter().sum(), 0).unwrap();
        let count = weft_types::Numeric::from_i128(values.len() as i128, 0).unwrap();
        format!("{},{}", most * rows - ids, average.div(&count).unwrap())
    });
    let on_codes = shown(&mut client, "rows_aggregated_on_codes") - before;
    // The newest rows are in no copy yet.
    assert!(on_codes > ROWS as u64 / 2, "{on_codes} rows on codes");
}
