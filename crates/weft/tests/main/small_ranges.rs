//! Small ranges as programs: aggregates, other orders and DISTINCT, against the query engine.
//!
//! Each statement is asked twice, by `id between` or `g =`, which compiles, and by `id + 0 between` or
//! `g + 0 =`, which no index serves: both answers must be alike. What PostgreSQL 15 shows where the two may
//! differ (zeros of numerics, equal values that look different) stands in tests of its own.

use proptest::prelude::*;
use weft::sink::PipelinePosition;
use weft_types::Value;

use super::client::{Client, Results, database};

const TABLE: &str =
    "create table r (id int primary key, g int, k int, s smallint, b bigint, f float8, e real,
    n numeric(8,2), t text, v varchar(6), c char(5), d date, a timestamptz, y bool);
    create index r_g on r (g, k)";

/// Columns of a row behind its key, as literals that may repeat.
fn row() -> impl Strategy<Value = String> {
    fn of(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
        prop::sample::select(values)
    }
    let numbers = (
        of(&["0", "1", "2"]),
        of(&["null", "-3", "0", "7", "7", "50000", "2147483647"]),
        of(&["null", "-1", "0", "32767"]),
        of(&["null", "9223372036854775807", "-5", "12"]),
        of(&["null", "'nan'", "0", "'-0'", "1.5", "'infinity'", "'-infinity'"]),
        of(&["null", "'nan'", "0.25", "-7"]),
        of(&["null", "1.00", "1", "-0.25", "100.05", "0"]),
    );
    let others = (
        of(&["null", "''", "'a'", "'B'", "'ab'", "'é'", "' b'"]),
        of(&["null", "'x'", "'x '", "'Y'", "''"]),
        of(&["null", "'p'", "'p  '", "'pq'", "''", "E'p\\t'"]),
        of(&["null", "'2020-02-29'", "'1999-12-31'"]),
        of(&["null", "'2024-01-01 10:00:00+00'", "'2024-01-01 10:00:00.5+02'"]),
        of(&["null", "true", "false"]),
    );
    (numbers, others).prop_map(|((g, k, s, b, f, e, n), (t, v, c, d, a, y))| {
        format!("{g}, {k}, {s}, {b}, {f}, {e}, {n}, {t}, {v}, {c}, {d}, {a}, {y}")
    })
}

/// Each with `WHERE` where the range goes.
const STATEMENTS: &[&str] = &[
    "select count(*) from r WHERE",
    "select count(*) as a0, count(k) as b1, count(t) as c2, count(n) as d3 from r WHERE",
    "select count(1) from r WHERE",
    "select count(id) as a0, count(g) as b1 from r WHERE",
    "select sum(k) from r WHERE",
    "select sum(k) as a0, sum(s) as b1, sum(id) as c2, sum(k) + 1 as d3 from r WHERE",
    "select sum(b) as a0, sum(n) as b1, avg(n) as c2 from r WHERE",
    "select sum(k * k) from r WHERE",
    "select sum(s * s) as a0, min(k + s) as b1 from r WHERE",
    "select sum(k / (g - 1)) from r WHERE",
    "select min(k) as a0, max(k) as b1, min(s) as c2, max(s) as d3, min(b) as e4, max(b) as f5 from r WHERE",
    "select min(f) as a0, max(f) as b1, min(e) as c2, max(e) as d3 from r WHERE",
    "select min(d) as a0, max(d) as b1, min(a) as c2, max(a) as d3 from r WHERE",
    "select min(n) as a0, max(n) as b1 from r WHERE",
    "select min(t) as a0, max(t) as b1, min(v) as c2, max(v) as d3 from r WHERE",
    "select min(t || v) as a0, max(lower(t)) as b1 from r WHERE",
    "select avg(k) as a0, avg(s) as b1, avg(b) as c2 from r WHERE",
    "select coalesce(sum(k), 0) as a0, count(*) > 3 as b1, sum(k) / nullif(count(k), 0) as c2 from r WHERE",
    "select max(k) - min(k) as spread from r WHERE limit 1",
    "select count(*) from r WHERE limit 0",
    "select count(*) from r WHERE offset 1",
    "select sum(case when k > 0 then 1 else 0 end) from r WHERE and k is not null",
    "select count(y) as a0, count(c) as b1, count(coalesce(t, v)) as c2 from r WHERE",
    "select id, k from r WHERE order by k, id",
    "select id, k from r WHERE order by k desc, id",
    "select id, k from r WHERE order by k nulls first, id desc",
    "select id, k from r WHERE order by 2 desc nulls last, 1",
    "select id from r WHERE order by t, v desc, id",
    "select id from r WHERE order by c, id",
    "select id, e from r WHERE order by e, id",
    "select id from r WHERE order by n desc, id",
    "select id from r WHERE order by d, a, y, id",
    "select id, t as k from r WHERE order by k, id",
    "select id, k + s from r WHERE and k < 100000 order by k + s, id",
    "select * from r WHERE order by y, t, id",
    "select id from r WHERE order by b desc, id limit 3",
    "select id from r WHERE order by b, id limit 2 offset 1",
    "select id from r WHERE order by b, id offset 2",
    "select id from r WHERE order by b, id limit 0",
    "select id from r WHERE order by length(t), id limit 4",
    "select distinct k from r WHERE order by k",
    "select distinct c from r WHERE order by c",
    "select distinct t, y from r WHERE order by y desc, t",
    "select distinct n, e from r WHERE order by 2, 1",
    "select distinct v from r WHERE order by v limit 2 offset 1",
    "select distinct d, a, b from r WHERE order by d, a, b",
    "select distinct k > 3 from r WHERE order by 1",
];

/// Numbers without the zeros that the query engine shows or does not, and without the sign of zero.
fn plain(row: &str) -> String {
    let field = |text: &str| match text.parse::<f64>() {
        Ok(0.0) => "0".to_owned(),
        Ok(_) if text.contains('.') => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        _ => text.to_owned(),
    };
    row.split(',').map(field).collect::<Vec<_>>().join(",")
}

fn answer(client: &mut Client, sql: &str) -> Vec<String> {
    let (results, result) = client.message(sql);
    match result {
        Ok(()) => results
            .rows
            .iter()
            .map(|row| plain(row))
            .chain(results.tags)
            .collect(),
        Err(error) => vec![error.state.0.to_owned()],
    }
}

/// The same, but that the query engine tells an average's digits from the quotient alone, which leaves out
/// four of PostgreSQL's where the operands begin with equal ones: 32767 / 3 (`shown_quotient_digits`).
fn is_alike(program: &[String], engine: &[String]) -> bool {
    let numbers = |row: &String| -> Vec<String> {
        let parts = row.split(|c: char| !(c.is_ascii_digit() || c == '.'));
        parts.map(str::to_owned).collect()
    };
    let is_rounded = |(long, short): (&String, &String)| {
        let kept = short.get(..short.len().saturating_sub(1)).unwrap_or_default();
        long == short || short.contains('.') && long.len() == short.len() + 4 && long.starts_with(kept)
    };
    program.len() == engine.len()
        && program.iter().zip(engine).all(|(one, other)| {
            let (one, other) = (numbers(one), numbers(other));
            one.len() == other.len() && one.iter().zip(&other).all(is_rounded)
        })
}

#[track_caller]
fn is_program(client: &mut Client, sql: &str) -> String {
    let lines = client.rows(&format!("explain {sql}"));
    assert!(lines.starts_with("Program"), "{sql}: {lines}");
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]
    #[test]
    fn both_execution_paths_return_the_same_rows(
        rows in prop::collection::vec(row(), 0..14),
        low in 0..8_i32,
        width in -1..14_i32,
    ) {
        let db = database();
        let mut client = Client::with(&db, TABLE);
        for (id, row) in rows.iter().enumerate() {
            client.ok(&format!("insert into r values ({id}, {row})"));
        }
        let high = low + width;
        let ranges = [
            (format!("where id between {low} and {high}"), format!("where id + 0 between {low} and {high}")),
            ("where g = 1".to_owned(), "where g + 0 = 1".to_owned()),
            (format!("where id = {low}"), format!("where id + 0 = {low}")),
        ];
        for statement in STATEMENTS {
            for (by_index, by_engine) in &ranges {
                let program = statement.replace("WHERE", by_index);
                is_program(&mut client, &program);
                let general = answer(&mut client, &statement.replace("WHERE", by_engine));
                let alone = answer(&mut client, &program);
                if program.contains("avg(") {
                    prop_assert!(is_alike(&alone, &general), "{}: {:?}, {:?}", &program, &alone, &general);
                } else {
                    prop_assert_eq!(&alone, &general, "{}", &program);
                }
                client.ok("begin");
                let within = answer(&mut client, &program);
                client.ok("rollback");
                prop_assert_eq!(&within, &alone, "{} in a transaction", &program);
            }
        }
    }
}

/// What PostgreSQL 15 shows.
#[test]
fn results_are_postgresqls() {
    let db = database();
    let mut client = Client::with(
        &db,
        "create table p (id int primary key, f float8, u numeric, c char(4), i int, l bigint, t text);
         insert into p values (1, 0, 1.0, 'a', 4, 9223372036854775807, 'b'), (2, '-0', 1.00, 'a  ', 4, 1, 'B'),
             (3, 'nan', 2.5, E'a\\t', 7, 1, null), (4, null, null, null, null, null, 'é'), (5, 'infinity', 3, 'b', -1, 0, '')",
    );
    for (sql, expected) in [
        (
            "select distinct f from p where id between 1 and 5 order by f",
            "0;Infinity;NaN;NULL",
        ),
        (
            "select distinct f from p where id between 1 and 5 order by f desc",
            "NULL;NaN;Infinity;0",
        ),
        (
            "select distinct u from p where id between 1 and 5 order by 1 nulls first",
            "NULL;1.0;2.5;3",
        ),
        (
            "select distinct c from p where id between 1 and 5 order by c",
            "a   ;a\t  ;b   ;NULL",
        ),
        (
            "select id from p where id between 1 and 5 order by f, id desc",
            "2;1;5;3;4",
        ),
        (
            "select id from p where id between 1 and 5 order by t",
            "5;2;1;4;3",
        ),
        (
            "select min(f), max(f), min(u), max(u) from p where id between 1 and 5",
            "-0,NaN,1.00,3",
        ),
        (
            "select sum(u), avg(u), sum(l) from p where id between 1 and 5",
            "7.50,1.8750000000000000,9223372036854775809",
        ),
        (
            "select avg(i), sum(i), count(i), count(*) from p where id between 1 and 5",
            "3.5000000000000000,14,4,5",
        ),
        (
            "select avg(i), sum(i), count(i), count(*), max(t) from p where id between 6 and 5",
            "NULL,NULL,0,0,NULL",
        ),
        ("select sum(i) from p where id = 9", "NULL"),
        ("select distinct i from p where id between 2 and 1", ""),
        ("select count(*) from p where id between null and 3", "0"),
    ] {
        is_program(&mut client, sql);
        assert_eq!(client.rows(sql), expected, "{sql}");
    }
    client.fails(
        "select sum(2147483647 * i) from p where id between 1 and 2",
        "22003",
    );
    client.fails("select id, count(*) from p where id between 1 and 2", "42803");
    client.fails(
        "select distinct t from p where id between 1 and 2 order by id",
        "42P10",
    );
    client.fails("select sum(t) from p where id between 1 and 2", "42883");
}

#[test]
fn the_finishing_step_is_shown() {
    let db = database();
    let mut client = Client::with(&db, TABLE);
    let lines = is_program(
        &mut client,
        "select distinct k, t from r where id between 1 and 9 order by k desc nulls last limit 7",
    );
    let expected = "  Behind it: sort by k desc nulls last, t; each row once; limit 7";
    assert!(
        lines.split(';').count() > 4 && lines.contains(expected),
        "{lines}"
    );
    let lines = is_program(&mut client, "select k from r where g = 1 order by length(t), s");
    assert!(lines.contains("Behind it: sort by length(t), s"), "{lines}");
    // What an index gives in order is not sorted.
    let lines = is_program(&mut client, "select k from r where g = 1 order by k desc");
    assert!(!lines.contains("Behind it"), "{lines}");
    for general in [
        "select k from r order by k",
        "select distinct k from r",
        "select sum(f) from r where id between 1 and 9",
        "select count(distinct k) from r where id between 1 and 9",
        "select count(*) from r where k between 1 and 9",
        "select g, count(*) from r where id between 1 and 9 group by g",
        "select count(*) filter (where k > 1) from r where id between 1 and 9",
        "select sum(sum(k)) over () from r where id between 1 and 9",
    ] {
        let lines = client.rows(&format!("explain {general}"));
        assert!(!lines.starts_with("Program"), "{general}: {lines}");
    }
}

#[test]
fn counts_may_be_parameters() {
    let db = database();
    let mut client = Client::with(&db, TABLE);
    client.ok("insert into r (id, k) values (1, 3), (2, 1), (3, 2), (4, null)");
    let session = &mut client.0;
    let text = "select id from r where id between $1 and $2 order by k limit $3 offset $4";
    let prepared = session.prepare(text, &[]).unwrap();
    assert_eq!(prepared.columns().len(), 1);
    let mut ask = |limit: Value, offset: Value| {
        let mut results = Results::default();
        let params = [Value::Int4(1), Value::Int4(9), limit, offset];
        let result = session.execute(&prepared, &params, PipelinePosition::Alone, &mut results);
        session.sync().unwrap();
        match result {
            Ok(()) => format!("{} {}", results.rows.join(";"), results.tags.join(";")),
            Err(error) => error.state.0.to_owned(),
        }
    };
    let int = Value::Int8;
    assert_eq!(ask(int(2), int(1)), "3;1 SELECT 2");
    assert_eq!(ask(int(9), int(3)), "4 SELECT 1");
    assert_eq!(ask(int(9), int(4)), " SELECT 0");
    assert_eq!(ask(int(0), int(0)), " SELECT 0");
    assert_eq!(ask(Value::Null, Value::Null), "2;3;1;4 SELECT 4");
    assert_eq!(ask(int(-1), int(0)), "2201W");
    assert_eq!(ask(int(1), int(-1)), "2201X");
    let prepared = session
        .prepare("select k from r where id = $1 offset $2", &[])
        .unwrap();
    for (offset, expected) in [(0, "SELECT 1"), (1, "SELECT 0")] {
        let mut results = Results::default();
        let params = [Value::Int4(1), int(offset)];
        session
            .execute(&prepared, &params, PipelinePosition::Alone, &mut results)
            .unwrap();
        assert_eq!(results.tags, [expected]);
    }
}

#[test]
fn one_message_and_one_pipeline() {
    let db = database();
    let mut client = Client::with(&db, TABLE);
    client.ok("insert into r (id, g, k) values (1, 1, 5), (2, 1, 4), (3, 1, 4)");
    let (results, result) = client.message(
        "begin; update r set k = 6 where id = 3; select sum(k) from r where id between 1 and 3;
         select k, id from r where g = 1 order by id desc limit 2;
         select distinct k from r where id between 1 and 3 order by k desc; commit",
    );
    result.unwrap();
    assert_eq!(results.rows, ["15", "6,3", "4,2", "6", "5", "4"]);
    assert_eq!(
        results.tags,
        ["BEGIN", "UPDATE 1", "SELECT 1", "SELECT 2", "SELECT 3", "COMMIT"]
    );
    let session = &mut client.0;
    let texts = [
        "update r set k = $1 where id = $2",
        "select max(k), count(*) from r where id between $1 and $2",
        "select id from r where id between $1 and $2 order by k limit $3",
    ];
    let prepared = texts.map(|text| session.prepare(text, &[]).unwrap());
    let [update, sum, sorted] = &prepared;
    let (a, b, c) = (
        [Value::Int4(9), Value::Int4(1)],
        [Value::Int4(1), Value::Int4(2)],
        [Value::Int4(1), Value::Int4(9), Value::Int8(2)],
    );
    assert!(
        session
            .run_block(&[(update, &a), (sum, &b), (sorted, &c)])
            .unwrap()
    );
    let mut results = Results::default();
    for step in 0..3 {
        session.push_block(step, &mut results).unwrap();
    }
    assert_eq!(results.rows, ["9,2", "2", "3"]);
    assert_eq!(results.tags, ["UPDATE 1", "SELECT 1", "SELECT 2"]);
}

/// Beyond the instruction budget, and beyond the widest range of a program, the query engine answers.
#[test]
fn oversized_statements_go_to_the_query_engine() {
    let db = database();
    let mut client = Client::with(&db, "create table w (g int, id int, v int, primary key (g, id))");
    client.ok("insert into w select 1, n, n % 7 from generate_series(1, 200000) as s(n)");
    for (sql, expected) in [
        ("select sum(v), count(*) from w where g = 1", "599997,200000"),
        (
            "select distinct v from w where g = 1 order by v desc limit 2",
            "6;5",
        ),
    ] {
        is_program(&mut client, sql);
        assert_eq!(client.rows(sql), expected);
    }
}

/// A reader under REPEATABLE READ keeps its snapshot; under SERIALIZABLE a range that was summed is locked.
#[test]
fn isolation_is_that_of_plain_ranges() {
    let db = database();
    let mut one = Client::with(&db, TABLE);
    one.ok("insert into r (id, k) values (1, 5), (2, 4), (20, 9)");
    let mut two = Client::new(&db);
    one.ok("begin isolation level repeatable read");
    let sum = "select sum(k) from r where id between 1 and 9";
    let sorted = "select k from r where id between 1 and 9 order by k";
    assert_eq!((one.rows(sum), one.rows(sorted)), ("9".into(), "4;5".into()));
    two.ok("insert into r (id, k) values (3, 1)");
    assert_eq!((one.rows(sum), one.rows(sorted)), ("9".into(), "4;5".into()));
    one.ok("commit");
    assert_eq!((one.rows(sum), one.rows(sorted)), ("10".into(), "1;4;5".into()));
    // Its own changes are seen.
    one.ok("begin; update r set k = 0 where id = 1");
    assert_eq!((one.rows(sum), one.rows(sorted)), ("5".into(), "0;1;4".into()));
    one.ok("rollback; begin isolation level serializable");
    assert_eq!(one.rows(sum), "10");
    two.ok("set lock_timeout = '50ms'");
    two.fails("insert into r (id, k) values (4, 1)", "55P03");
    one.ok("commit");
}
